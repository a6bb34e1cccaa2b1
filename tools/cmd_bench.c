/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cmd_bench.c: fusor bench. Every workload of bench/suite.def fused and unfused (one kernel an operator), in one run: rounds
 * alternate between the two, so that a machine that slows down slows both, and medians over the rounds are compared. */
#include "limits.h"
#include "report.h"
#include "timing.h"
#include "base/file.h"
#include "base/log.h"
#include "rt/data.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

typedef struct workload { const char *suite, *name, *sizes, *text; } workload;
static const workload workloads[] = {
#define BENCH(suite, name, sizes, text) {suite, name, sizes, text},
#include "../bench/suite.def"
#undef BENCH
};
enum { N_WORKLOADS = sizeof workloads / sizeof *workloads, MAX_ROUNDS = 1000 };

typedef struct result { const workload *w; int64_t size; int threads; double fused_ns, unfused_ns, spread, bytes, flops; int kernels, unfused_kernels; } result;

/* One executable with its buffers, ready to be called. */
typedef struct side { fusor_executable *exe; fusor_call *call; int n_in, n_out; fusor_buffer in[16], out[4]; void *memory[16]; } side;

static int fail(tool *t, fusor_status status) {
    fu_error e;
    fu_error_clear(&e);
    (void)FU_FAIL(&e, status, "%s", fusor_error_message(t->ctx));
    return tool_fail(t, &e);
}

static void close_side(tool *t, side *s) {
    fusor_call_free(s->call);
    for (int i = 0; i < s->n_out; i++) fusor_buffer_free(t->ctx, &s->out[i]);
    for (int i = 0; i < 16; i++) fu_free(s->memory[i]);
    fusor_executable_free(s->exe);
}

/* Const parameters are bound, as a program that keeps its weights does. */
static int open_side(tool *t, const workload *w, int64_t size, bool no_fuse, side *s) {
    fu_error e;
    fu_error_clear(&e);
    compile_request request = {.ctx = t->ctx, .name = w->name, .text = w->text, .length = strlen(w->text), .flags = no_fuse ? FUSOR_NO_FUSE : 0};
    if (compile_executable(&e, &request, &s->exe) != FUSOR_OK) return tool_fail(t, &e);
    fusor_argument_info info[16];
    const char *names[16];
    fusor_buffer bound[16];
    int n = fusor_executable_inputs(s->exe, 16, info), n_bound = 0;
    for (int i = 0; i < n; i++) {
        fusor_buffer b = {.dtype = info[i].dtype, .rank = info[i].rank};
        size_t count = 1;
        for (int d = 0; d < b.rank; d++) count *= (size_t)(b.shape[d] = info[i].shape[d] < 0 ? size : info[i].shape[d]);
        s->memory[i] = fu_malloc(count * fusor_dtype_size((fusor_dtype)b.dtype) + 64);
        if (!s->memory[i]) return tool_environment(t, "no memory for the inputs of %s", w->name);
        b.data = (void *)(((uintptr_t)s->memory[i] + 63) & ~(uintptr_t)63);
        if (rt_data_fill(&e, fu_format(&t->arena, "normal:%d", i + 1), &b) != FUSOR_OK) return tool_fail(t, &e);
        if (info[i].is_const) {
            names[n_bound] = info[i].name;
            bound[n_bound++] = b;
        } else s->in[s->n_in++] = b;
    }
    fusor_status status;
    if (n_bound) {
        fusor_executable *made;
        if ((status = fusor_executable_bind(s->exe, n_bound, names, bound, &made)) != FUSOR_OK) return fail(t, status);
        fusor_executable_free(s->exe);
        s->exe = made;
    }
    s->n_out = fusor_executable_outputs(s->exe, 4, info);
    if ((status = fusor_executable_call(s->exe, s->n_in, s->in, s->n_out, s->out)) != FUSOR_OK ||
        (status = fusor_executable_prepare(s->exe, s->n_in, s->in, s->n_out, s->out, &s->call)) != FUSOR_OK)
        return fail(t, status);
    return 0;
}

static int run_one(tool *t, const workload *w, int64_t size, result *out) {
    side fused = {0}, unfused = {0};
    double *a = FU_NEW_N(&t->arena, double, MAX_ROUNDS), *b = FU_NEW_N(&t->arena, double, MAX_ROUNDS);
    int status = open_side(t, w, size, false, &fused);
    if (!status) status = open_side(t, w, size, true, &unfused);
    if (!status) {
        int64_t na = timing_batch_of(fused.call, 200e3), nb = timing_batch_of(unfused.call, 200e3), start = fu_now_ns();
        double seconds = t->min_time >= 0 ? t->min_time : t->quick ? 0.05 : 0.3;
        int n = 0;
        for (; n < MAX_ROUNDS && (n < 5 || (double)(fu_now_ns() - start) < seconds * 1e9); n++) {
            a[n] = timing_batch_ns(fused.call, na);
            b[n] = timing_batch_ns(unfused.call, nb);
        }
        int64_t symbols[1] = {size};
        traffic moved = timing_traffic(rt_exec_plan(fused.exe->exec), symbols), apart = timing_traffic(rt_exec_plan(unfused.exe->exec), symbols);
        *out = (result){.w = w, .size = size, .threads = t->ctx->n_threads, .fused_ns = timing_median(a, n), .unfused_ns = timing_median(b, n),
                        .bytes = moved.bytes_read + moved.bytes_written, .flops = moved.flops, .kernels = moved.kernels, .unfused_kernels = apart.kernels};
        out->spread = (a[n * 3 / 4] - a[n / 4]) / out->fused_ns;        /* timing_median sorted them */
    }
    close_side(t, &fused);
    close_side(t, &unfused);
    return status;
}

static bool is_wanted(const tool *t, const workload *w) {
    bool named = t->args.n == 0;
    for (uint32_t i = 0; i < t->args.n; i++) named |= strcmp(t->args.at[i], w->suite) == 0;
    return named && (!t->filter || strstr(w->name, t->filter) || strstr(w->suite, t->filter));
}

static int check_suites(tool *t) {
    const char *names[N_WORKLOADS];
    size_t n = 0;
    for (int i = 0; i < N_WORKLOADS; i++)
        if (n == 0 || strcmp(names[n - 1], workloads[i].suite) != 0) names[n++] = workloads[i].suite;
    for (uint32_t i = 0; i < t->args.n; i++) {
        bool known = false;
        for (size_t k = 0; k < n; k++) known |= strcmp(names[k], t->args.at[i]) == 0;
        if (!known) return tool_usage(t, "unknown suite '%s'%s (see fusor bench --list)", t->args.at[i], tool_suggest(t, t->args.at[i], names, n, ""));
    }
    return 0;
}

static json_t *to_json(const result *r) {
    return json_pack("{s:s, s:s, s:I, s:i, s:f, s:f, s:f, s:f, s:i, s:i, s:I, s:I}", "suite", r->w->suite, "name", r->w->name, "size", (json_int_t)r->size,
                     "threads", r->threads, "fused_ns", r->fused_ns, "unfused_ns", r->unfused_ns, "ratio", r->unfused_ns / r->fused_ns, "spread", r->spread,
                     "kernels", r->kernels, "unfused_kernels", r->unfused_kernels, "bytes", (json_int_t)r->bytes, "flops", (json_int_t)r->flops);
}

/* ---- baselines: the JSON document, beside the kernel cache ---- */
static int baseline_path(tool *t, const char *name, const char **out) {
    const char *dir = rt_cache_dir(t->ctx->cache);
    if (strchr(name, '/') || !name[0]) return tool_usage(t, "baseline '%s': a name has no '/' and is not empty", name);
    if (!dir[0]) return tool_environment(t, "there is no cache directory to keep baselines in; give --cache-dir");
    *out = fu_format(&t->arena, "%s/bench-%s.json", dir, name);
    return 0;
}

static int write_json(tool *t, const char *path, const json_t *document) {
    char *text = json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    if (!text) return tool_environment(t, "out of memory");
    fu_part part = {text, strlen(text)};
    int why = fu_file_write_atomic(path, 0666, &part, 1);
    free(text);
    return why ? tool_environment(t, "%s: %s", path, strerror(why)) : 0;
}

static int compare(tool *t, const json_t *results) {
    const char *path;
    size_t i, k;
    json_t *now, *then;
    double threshold = (t->threshold >= 0 ? t->threshold : 5) / 100;
    int regressions = 0, status = baseline_path(t, t->baseline, &path);
    if (status) return status;
    json_error_t why;
    json_t *base = json_load_file(path, 0, &why);
    if (!base) return tool_environment(t, "baseline '%s': %s: %s (make it with --save-baseline %s)", t->baseline, path, why.text, t->baseline);
    json_array_foreach(results, i, now) json_array_foreach(json_object_get(base, "results"), k, then) {
        if (!json_equal(json_object_get(now, "name"), json_object_get(then, "name")) || !json_equal(json_object_get(now, "size"), json_object_get(then, "size")) ||
            !json_equal(json_object_get(now, "threads"), json_object_get(then, "threads")))
            continue;
        double a = json_number_value(json_object_get(now, "fused_ns")), b = json_number_value(json_object_get(then, "fused_ns")), change = a / b - 1;
        double noise = fmax(json_number_value(json_object_get(now, "spread")), json_number_value(json_object_get(then, "spread")));
        bool is_worse = change > threshold && change > noise;
        regressions += is_worse;
        if (is_worse || -change > fmax(threshold, noise))
            fprintf(stderr, "%s: %s size %" JSON_INTEGER_FORMAT ", %" JSON_INTEGER_FORMAT " threads: %+.1f%% (spread %.1f%%)\n", is_worse ? "SLOWER" : "faster",
                    json_string_value(json_object_get(now, "name")), json_integer_value(json_object_get(now, "size")),
                    json_integer_value(json_object_get(now, "threads")), 100 * change, 100 * noise);
    }
    json_decref(base);
    if (!t->quiet) fprintf(stderr, "%d regression%s against baseline '%s'\n", regressions, regressions == 1 ? "" : "s", t->baseline);
    return regressions ? EXIT_NO : 0;
}

static int list_workloads(tool *t) {
    json_t *a = json_array();
    for (int i = 0; i < N_WORKLOADS; i++) {
        const workload *w = &workloads[i];
        if (!is_wanted(t, w)) continue;
        if (!t->json) printf("%-14s %-26s %s\n", w->suite, w->name, w->sizes);
        (void)json_array_append_new(a, json_pack("{s:s, s:s, s:s}", "suite", w->suite, "name", w->name, "sizes", w->sizes));
    }
    json_t *d = report_new("fusor-bench-list/1");
    (void)json_object_set_new(d, "workloads", a);
    if (t->json) return report_print(t, d);
    json_decref(d);
    return 0;
}

static int run_threads(tool *t, int threads, json_t *results, report_table *table) {
    int status = tool_context(t, threads);
    if (status) return status;
    limits l = limits_get(t, t->ctx->n_threads, false);
    for (int i = 0; i < N_WORKLOADS; i++) {
        const workload *w = &workloads[i];
        if (!is_wanted(t, w)) continue;
        for (const char *p = w->sizes; *p;) {
            size_t n = strcspn(p, " ");
            bool is_last = !p[n];
            int64_t size = 0;
            result r;
            if (!(is_last && t->quick)) {
                (void)tool_parse_size(fu_strndup(&t->arena, p, n), 1000, &size);
                fu_mark mark = fu_arena_mark(&t->arena);
                status = run_one(t, w, size, &r);
                fu_arena_release(&t->arena, mark);
                if (status) return status;
                (void)json_array_append_new(results, to_json(&r));
                double bytes = r.bytes / r.fused_ns * 1e9, flops = r.flops / r.fused_ns * 1e9;
                limits_beside(t, &l, flops);
                report_row(table, w->name, fu_format(&t->arena, "%" PRId64, size), fu_format(&t->arena, "%d", r.threads), report_ns(t, r.fused_ns),
                           report_ns(t, r.unfused_ns), fu_format(&t->arena, "%.2fx", r.unfused_ns / r.fused_ns), fu_format(&t->arena, "%.0f%%", 100 * r.spread),
                           report_rate(t, bytes, ""), report_rate(t, flops, ""), limits_share(t, &l, bytes, flops));
            }
            p += n + !is_last;
        }
    }
    return 0;
}

int cmd_bench(tool *t) {
    int status = check_suites(t);
    if (status) return status;
    if (t->list) return list_workloads(t);
    json_t *results = json_array();
    report_table table = {.t = t, .columns = 10, .left_mask = 1 | 1u << 9};
    report_row(&table, "workload", "size", "threads", "fused", "unfused", "ratio", "spread", "GB/s", "GFLOP/s", "share of the measured limit");
    if (t->threads) {
        for (const char *p = t->threads; *p && !status;) {
            status = run_threads(t, atoi(p), results, &table);
            p += strcspn(p, ",");
            p += *p == ',';
        }
    } else {
        status = tool_context(t, 0);
        int all = status ? 1 : t->ctx->n_threads;
        if (!status) status = run_threads(t, 1, results, &table);
        if (!status && all > 1) status = run_threads(t, all, results, &table);
    }
    json_t *document = report_new("fusor-bench/1");
    (void)json_object_set(document, "results", results);
    if (!status && t->export_json) status = write_json(t, t->export_json, document);
    const char *path;
    if (!status && t->save_baseline && (status = baseline_path(t, t->save_baseline, &path)) == 0) status = write_json(t, path, document);
    if (!status && !t->json) report_table_print(&table, stdout);
    if (!status && t->json) status = report_print(t, json_incref(document));
    if (!status && t->baseline) status = compare(t, results);
    json_decref(document);
    json_decref(results);
    return status;
}
