/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cmd_bench.c: fusor bench. From the command line to a document of results (measured, or read with --import-json), and
 * from it to the table, the files and the comparison that were asked for. */
#include "bench.h"
#include <errno.h>
#include <unistd.h>

static double number(const json_t *o, const char *field) { return json_number_value(json_object_get(o, field)); }
static const char *text(const json_t *o, const char *field) { return json_string_value(json_object_get(o, field)); }

static const char *best_peer(tool *t, const json_t *row) {
    const char *name, *best = NULL;
    json_t *r, *rivals = json_object_get(row, "rivals");
    double ns = 0;
    json_object_foreach(rivals, name, r) {
        if (strcmp(name, "c") == 0 || strcmp(name, "prepared") == 0) continue;
        if (!best || number(r, "ns") < ns) best = name, ns = number(r, "ns");
    }
    return best ? fu_format(&t->arena, "%.2fx %s", ns / number(row, "fused_ns"), best) : "";
}

static void print_table(tool *t, const json_t *document) {
    bool has_c = false, has_prepared = false, has_peers = false,
         has_baseline = json_object_get(document, "baseline") != NULL;
    const json_t *results = json_object_get(document, "results"), *row, *r;
    size_t i;
    json_array_foreach(results, i, row) {
        const json_t *rivals = json_object_get(row, "rivals");
        has_c |= json_object_get(rivals, "c") != NULL;
        has_prepared |= json_object_get(rivals, "prepared") != NULL;
        has_peers |= best_peer(t, row)[0] != 0;
    }
    struct {
        const char *title;
        bool is_on, is_left;
    } columns[] = {{"suite", true, true},
                   {"workload", true, true},
                   {"size", true, false},
                   {"threads", true, false},
                   {"fused", true, false},
                   {"unfused", true, false},
                   {"ratio", true, false},
                   {"C", has_c, false},
                   {"prepared", has_prepared, false},
                   {"best peer", has_peers, true},
                   {"spread", true, false},
                   {"GB/s", true, false},
                   {"GFLOP/s", true, false},
                   {"share of the measured limit", true, true},
                   {fu_format(&t->arena, "since %s", t->baseline ? t->baseline : ""), has_baseline, true}};
    enum { N = sizeof columns / sizeof *columns };
    report_table table = {.t = t};
    for (int c = 0; c < N; c++) {
        if (!columns[c].is_on) continue;
        if (columns[c].is_left) table.left_mask |= 1u << table.columns;
        table.columns++;
        fu_push(&t->arena, &table.cells, columns[c].title);
    }
    const char *suite = "";
    json_array_foreach(results, i, row) {
        const json_t *rivals = json_object_get(row, "rivals");
        double ns = number(row, "fused_ns"), bytes = number(row, "bytes") / ns * 1e9,
               flops = number(row, "flops") / ns * 1e9;
        const char *kind = text(row, "kind"), *verdict = text(row, "verdict");
        bool is_work = !kind || strcmp(kind, "call") == 0;
        const char *cells[N] = {
            strcmp(text(row, "suite"), suite) == 0 ? "" : text(row, "suite"),
            text(row, "name"),
            fu_format(&t->arena, "%.0f", number(row, "size")),
            fu_format(&t->arena, "%.0f", number(row, "threads")),
            report_ns(t, ns),
            report_ns(t, number(row, "unfused_ns")),
            fu_format(&t->arena, "%.2fx", number(row, "unfused_ns") / ns),
            (r = json_object_get(rivals, "c")) ? fu_format(&t->arena, "%.2fx", number(r, "ns") / ns) : "",
            (r = json_object_get(rivals, "prepared")) ? report_ns(t, number(r, "ns")) : "",
            best_peer(t, row),
            fu_format(&t->arena, "%.0f%%", 100 * number(row, "spread")),
            is_work ? report_rate(t, bytes, "") : "",
            is_work ? report_rate(t, flops, "") : "",
            text(row, "limit") ? fu_format(&t->arena, "%.0f%% of %s", 100 * number(row, "share"), text(row, "limit"))
                               : "",
            !verdict ? ""
            : strcmp(verdict, "new") == 0
                ? "new"
                : fu_format(&t->arena, "%+.1f%%%s%s", 100 * number(row, "change"),
                            strcmp(verdict, "same") == 0 ? "" : " ", strcmp(verdict, "same") == 0 ? "" : verdict)};
        suite = text(row, "suite");
        for (int c = 0; c < N; c++)
            if (columns[c].is_on) fu_push(&t->arena, &table.cells, cells[c]);
    }
    report_table_print(&table, stdout);
}

/* Can a file be made there? */
static int check_path(tool *t, const char *path) {
    const char *slash = path ? strrchr(path, '/') : NULL;
    const char *directory = !slash ? "." : slash == path ? "/" : fu_strndup(&t->arena, path, (size_t)(slash - path));
    return path && access(directory, W_OK | X_OK) ? tool_environment(t, "%s: %s: %s", path, directory, strerror(errno))
                                                  : 0;
}

/* --list and --counts have no results that could be compared or kept. */
static int check_unmeasured(tool *t) {
    const char *what = t->list ? "--list" : "--counts";
    const char *option = t->list && t->counts ? "--counts"
                         : t->export_json     ? "--export-json"
                         : t->export_html     ? "--export-html"
                         : t->import_json     ? "--import-json"
                         : t->save_baseline   ? "--save-baseline"
                         : t->baseline        ? "--baseline"
                         : t->threshold >= 0  ? "--threshold"
                                              : NULL;
    return option ? tool_usage(t, "%s measures nothing, so %s cannot be given with it; %s --json prints a document",
                               what, option, what)
                  : 0;
}

/* Results of a file: those of the suites and of --filter. */
static int import(tool *t, json_t **document) {
    const char *unused = t->dims.n            ? "--dim"
                         : t->min_time >= 0   ? "--min-time"
                         : t->quick           ? "--quick"
                         : t->peers           ? "--peers"
                         : t->python          ? "--python"
                         : t->n_thread_counts ? "--threads"
                                              : NULL;
    if (unused) return tool_usage(t, "--import-json measures nothing, so %s cannot be given with it", unused);
    const int status = bench_read(t, t->import_json, "--import-json", document);
    json_t *results = status ? NULL : json_object_get(*document, "results");
    const size_t n = json_array_size(results);
    for (size_t i = n; i-- > 0;) {
        const json_t *row = json_array_get(results, i);
        const bench_workload w = {.suite = text(row, "suite"), .name = text(row, "name")};
        if (!bench_is_wanted(t, &w)) (void)json_array_remove(results, i);
    }
    return n && json_array_size(results) == 0
               ? tool_usage(t, "%s: no result is of these suites and --filter", t->import_json)
               : status;
}

int cmd_bench(tool *t) {
    int status = bench_check_suites(t), worse = 0;
    const char *path;
    json_t *document = NULL;
    if (!status && t->no_fuse)
        status = tool_usage(t, "'bench' takes no --no-fuse: it measures fused and unfused programs side by side");
    if (status) return status;
    if ((t->list || t->counts) && (status = check_unmeasured(t)) != 0) return status;
    if (t->list) return bench_list(t);
    if (t->counts) return bench_counts(t);
    /* What cannot be written is refused now rather than after minutes. */
    if ((status = tool_no_stdout(t, "--export-json", t->export_json)) != 0 ||
        (status = tool_no_stdout(t, "--export-html", t->export_html)) != 0)
        return status;
    if ((status = check_path(t, t->export_json)) != 0 || (status = check_path(t, t->export_html)) != 0) return status;
    if (t->save_baseline && (status = bench_baseline_path(t, t->save_baseline, &path)) != 0) return status;
    if (t->baseline &&
        ((status = bench_baseline_path(t, t->baseline, &path)) != 0 ||
         (status = bench_read(t, path, fu_format(&t->arena, "baseline '%s'", t->baseline), &document)) != 0))
        return status;
    json_decref(document);
    document = NULL;
    status = t->import_json ? import(t, &document) : bench_run(t, &document);
    if (!status && t->baseline && (worse = bench_compare(t, document, !t->import_json)) > EXIT_NO) status = worse;
    if (!status) bench_auto_judge(document);
    if (!status && t->export_json) status = bench_save(t, t->export_json, document);
    if (!status && t->export_html) {
        json_t *history = bench_history(t);
        status = bench_html(t, t->export_html, document, history);
        json_decref(history);
    }
    if (!status && t->save_baseline && (status = bench_baseline_path(t, t->save_baseline, &path)) == 0)
        status = bench_save(t, path, document);
    if (!status && !t->json) {
        print_table(t, document);
        bench_auto_print(t, document);
    }
    if (!status && t->json) status = report_print(t, json_incref(document));
    json_decref(document);
    return status ? status : worse;
}
