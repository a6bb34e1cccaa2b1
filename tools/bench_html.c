/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* bench_html.c: fusor bench --export-html. One page from a document of results: a sum, bars for each workload with how
 * rivals fare by size, rooflines, scaling with size and threads, the history of the baselines, and all numbers as a
 * table. No script and no other file. */
#include "bench.h"
#include "html.h"
#include "base/file.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>

enum { MAX_POINTS = 1024, MAX_LINES = 8, MAX_HISTORY = 20 };
typedef struct page {
    tool *t;
    fu_str s;
    const json_t *document, *results;
    int max_threads, min_threads;
} page;

static double number(const json_t *o, const char *field) { return json_number_value(json_object_get(o, field)); }
static const char *text(const json_t *o, const char *field) {
    const char *v = json_string_value(json_object_get(o, field));
    return v ? v : "";
}
static bool is_kind(const json_t *row, const char *kind) {
    return strcmp(text(row, "kind"), kind) == 0 || (!text(row, "kind")[0] && strcmp(kind, "call") == 0);
}
static bool is_row(const json_t *row, const char *suite, const char *name) {
    return strcmp(text(row, "suite"), suite) == 0 && (!name || strcmp(text(row, "name"), name) == 0);
}

/* What a rival took; 0: it took no part. */
static double rival_ns(const json_t *row, const char *rival) {
    if (strcmp(rival, "fused") == 0) return number(row, "fused_ns");
    if (strcmp(rival, "unfused") == 0) return number(row, "unfused_ns");
    return number(json_object_get(json_object_get(row, "rivals"), rival), "ns");
}
static double best_peer_ns(const json_t *row) {
    const char *name;
    json_t *r;
    double best = 0;
    json_object_foreach(json_object_get(row, "rivals"), name,
                        r) if (strcmp(name, "c") != 0 && strcmp(name, "prepared") != 0 &&
                               (best == 0 || number(r, "ns") < best)) best = number(r, "ns");
    return best;
}
static const char *label_of(const char *rival) { return strcmp(rival, "c") == 0 ? "C -O3" : rival; }

static const char *size_text(tool *t, double v) {
    return v >= 1e6   ? fu_format(&t->arena, "%.4gM", v / 1e6)
           : v >= 1e4 ? fu_format(&t->arena, "%.4gk", v / 1e3)
                      : fu_format(&t->arena, "%.0f", v);
}
static const char *threads_text(tool *t, double n) {
    return fu_format(&t->arena, "%.0f thread%s", n, n == 1 ? "" : "s");
}

static void add(page *p, const char *s) { fu_str_add(&p->s, s); }
static void put(page *p, const char *s) { html_text(&p->s, s); }

/* Names of suites, or of workloads of a suite, in the order of the results. */
static int distinct(const page *p, const char *suite, const char *names[], int room) {
    const json_t *row;
    size_t i;
    int n = 0;
    json_array_foreach(p->results, i, row) {
        const char *name = text(row, suite ? "name" : "suite");
        bool is_known = suite && !is_row(row, suite, NULL);
        for (int k = 0; k < n && !is_known; k++) is_known = strcmp(names[k], name) == 0;
        if (!is_known && n < room) names[n++] = name;
    }
    return n;
}

/* Rows of a workload at a thread count, sizes ascending. */
static int rows_of(const page *p, const char *suite, const char *name, int threads, const json_t *rows[], int room) {
    const json_t *row;
    size_t i;
    int n = 0;
    json_array_foreach(p->results, i,
                       row) if (is_row(row, suite, name) && (int)number(row, "threads") == threads && n < room) {
        int at = n++;
        for (; at > 0 && number(rows[at - 1], "size") > number(row, "size"); at--) rows[at] = rows[at - 1];
        rows[at] = row;
    }
    return n;
}

/* ---- the sum ---- */
static void tile(page *p, const char *value, const char *what) { html_figure(&p->s, value, what); }

static void summary(page *p) {
    tool *t = p->t;
    const json_t *row, *base = json_object_get(p->document, "baseline");
    size_t i;
    double unfused = 0, plain = 0, peer = 0;
    int n = 0, n_plain = 0, n_peer = 0, n_first = 0;
    json_array_foreach(p->results, i, row) {
        double ns = number(row, "fused_ns"), c = rival_ns(row, "c"), best = best_peer_ns(row);
        unfused += log(number(row, "unfused_ns") / ns), n++;
        if (c > 0) plain += log(c / ns), n_plain++;
        if (best > 0) peer += log(best / ns), n_peer++, n_first += best >= ns;
    }
    add(p, "<div class=\"figures\">");
    tile(p, fu_format(&t->arena, "%d", n), "results: workloads by size and threads");
    if (n) tile(p, fu_format(&t->arena, "%.2f×", exp(unfused / n)), "as fast as unfused (geometric mean)");
    if (n_plain)
        tile(p, fu_format(&t->arena, "%.2f×", exp(plain / n_plain)),
             fu_format(&t->arena, "as fast as C -O3, over %d", n_plain));
    if (n_peer)
        tile(p, fu_format(&t->arena, "%.2f×", exp(peer / n_peer)),
             fu_format(&t->arena, "as fast as the best peer, over %d", n_peer));
    if (n_peer) tile(p, fu_format(&t->arena, "%d of %d", n_first, n_peer), "faster than every peer");
    if (base)
        tile(p, fu_format(&t->arena, "%.0f", number(base, "slower")),
             fu_format(&t->arena, "slower than baseline %s, %.0f faster", text(base, "name"), number(base, "faster")));
    if (json_object_get(p->document, "auto")) {
        const json_t *sum = json_object_get(p->document, "auto");
        tile(p, fu_format(&t->arena, "%.0f of %.0f", number(sum, "right"), number(sum, "choices")),
             "choices between CPU and GPU were the faster one");
    }
    add(p, "</div>");
}

/* ---- CPU or GPU ---- */
static void choices(page *p) {
    static const char *const heads[] = {"workload", "size", "threads", "choice",
                                        "CPU",      "GPU",  "auto",    "the faster one?"};
    tool *t = p->t;
    const json_t *row;
    html_table table;
    size_t i;
    int shown = 0;
    if (!json_object_get(p->document, "auto")) return;
    add(p, "<h2 id=\"auto\">The CPU or the GPU</h2><p>");
    put(p, bench_auto_text(t, p->document));
    add(p, ".</p>");
    json_array_foreach(p->results, i, row) {
        const json_t *a = json_object_get(row, "auto");
        if (!a) continue;
        if (!shown++) table = html_table_begin(&p->s, 8, 1u << 3 | 1u << 7, heads);
        html_row(&table, fu_format(&t->arena, "%s: %s", text(row, "suite"), text(row, "name")),
                 size_text(t, number(row, "size")), fu_format(&t->arena, "%.0f", number(row, "threads")),
                 text(a, "choice"), report_ns(t, number(a, "cpu_ns")), report_ns(t, number(a, "gpu_ns")),
                 report_ns(t, number(a, "auto_ns")), bench_auto_verdict(t, row));
    }
    if (shown) html_table_end(&table);
}

/* ---- a workload's card ---- */
static void bar(page *p, const char *rival, double ns, double fused, double fastest, double spread) {
    tool *t = p->t;
    add(p, "<div class=\"rival\" title=\"");
    put(p, fu_format(&t->arena, "%s: %s, %.2f times as fast as fused, spread %.0f %%", label_of(rival),
                     report_ns(t, ns), fused / ns, 100 * spread));
    add(p, "\"><span class=\"n\">");
    put(p, label_of(rival));
    fu_str_addf(&p->s,
                "</span><span class=\"t\"><i style=\"width:%.1f%%;background:%s\"></i></span><span "
                "class=\"v\"><b>%s</b> · %.2f×</span></div>",
                100 * fastest / ns, bench_colour(rival), report_ns(t, ns), fused / ns);
}

static int rivals_of(const json_t *row, const char *names[BENCH_MAX_RIVALS]) {
    const char *name;
    json_t *r;
    int n = 0;
    names[n++] = "fused";
    names[n++] = "unfused";
    json_object_foreach(json_object_get(row, "rivals"), name, r) if (n < BENCH_MAX_RIVALS) names[n++] = name;
    return n;
}

static void card(page *p, const char *suite, const char *name) {
    tool *t = p->t;
    const json_t *rows[8];
    const char *rivals[BENCH_MAX_RIVALS];
    int n = rows_of(p, suite, name, p->min_threads, rows, 8);
    if (!n) return;
    const json_t *row = rows[n - 1];
    int n_rivals = rivals_of(row, rivals);
    double fused = number(row, "fused_ns"), fastest = fused;
    for (int i = 0; i < n_rivals; i++) fastest = fmin(fastest, rival_ns(row, rivals[i]));
    add(p, "<section class=\"card\"><h3>");
    put(p, name);
    add(p, "</h3><p class=\"note\">");
    put(p, fu_format(&t->arena, "size %s, %s", size_text(t, number(row, "size")),
                     threads_text(t, number(row, "threads"))));
    double kernels = number(row, "kernels"), apart = number(row, "unfused_kernels");
    const char *plural = kernels == 1 ? "" : "s";
    if (is_kind(row, "call") && number(row, "unfused_bytes") > 0)
        put(p, kernels == apart
                   ? fu_format(&t->arena, "; %.0f kernel%s, %s moved", kernels, plural,
                               report_bytes(t, number(row, "bytes")))
                   : fu_format(&t->arena, "; %.0f kernel%s of %.0f, %s of %s moved", kernels, plural, apart,
                               report_bytes(t, number(row, "bytes")), report_bytes(t, number(row, "unfused_bytes"))));
    if (text(row, "limit")[0])
        put(p, fu_format(&t->arena, "; %.0f %% of %s", 100 * number(row, "share"), text(row, "limit")));
    add(p, "</p>");
    for (int i = 0; i < n_rivals; i++) {
        const json_t *r = json_object_get(json_object_get(row, "rivals"), rivals[i]);
        bar(p, rivals[i], rival_ns(row, rivals[i]), fused, fastest,
            i == 0   ? number(row, "spread")
            : i == 1 ? number(row, "unfused_spread")
                     : number(r, "spread"));
    }
    if (n > 1) {
        bench_series series[BENCH_MAX_RIVALS];
        int n_series = 0;
        for (int i = 0; i < n_rivals; i++) {
            double *x = FU_NEW_N(&t->arena, double, n), *y = FU_NEW_N(&t->arena, double, n);
            const char **tip = FU_NEW_N(&t->arena, const char *, n);
            int m = 0;
            for (int k = 0; k < n; k++) {
                double ns = rival_ns(rows[k], rivals[i]);
                if (!(ns > 0)) continue;
                x[m] = number(rows[k], "size"), y[m] = number(rows[k], "fused_ns") / ns;
                tip[m++] = fu_format(&t->arena, "%s, size %s: %s, %.2f times as fast as fused", label_of(rivals[i]),
                                     size_text(t, number(rows[k], "size")), report_ns(t, ns),
                                     number(rows[k], "fused_ns") / ns);
            }
            series[n_series++] = (bench_series){label_of(rivals[i]), bench_colour(rivals[i]), m, x, y, tip};
        }
        bench_chart c = {.title = fu_format(&t->arena, "%s: speed beside fused by size", name),
                         .x_label = "size",
                         .y_label = "speed beside fused",
                         .log_x = true,
                         .log_y = true,
                         .has_lines = true,
                         .has_points = true,
                         .is_without_key = true,
                         .series = series,
                         .n_series = n_series};
        bench_draw(&p->s, &c);
    }
    add(p, "</section>");
}

/* ---- rooflines ---- */
static void roofline(page *p, const json_t *limit) {
    tool *t = p->t;
    const json_t *row;
    size_t i;
    bench_series series[2];
    for (int k = 0; k < 2; k++) {
        double *x = FU_NEW_N(&t->arena, double, MAX_POINTS), *y = FU_NEW_N(&t->arena, double, MAX_POINTS);
        const char **tip = FU_NEW_N(&t->arena, const char *, MAX_POINTS);
        int n = 0;
        json_array_foreach(p->results, i, row) {
            double flops = number(row, "flops"), bytes = number(row, k ? "unfused_bytes" : "bytes"),
                   ns = number(row, k ? "unfused_ns" : "fused_ns");
            if (number(row, "threads") != number(limit, "threads") || !is_kind(row, "call") ||
                !(flops > 0 && bytes > 0) || n == MAX_POINTS)
                continue;
            x[n] = flops / bytes, y[n] = flops / ns;
            tip[n++] = fu_format(&t->arena, "%s, %s: %s, size %s: %.3g GFLOP/s, %.3g GB/s", k ? "unfused" : "fused",
                                 text(row, "suite"), text(row, "name"), size_text(t, number(row, "size")), flops / ns,
                                 bytes / ns);
        }
        series[k] = (bench_series){k ? "unfused" : "fused", bench_colour(k ? "unfused" : "fused"), n, x, y, tip};
    }
    if (!series[0].n) return;
    bench_chart c = {.title = "roofline",
                     .x_label = "arithmetic per byte moved (flop/byte)",
                     .y_label = "GFLOP/s",
                     .log_x = true,
                     .log_y = true,
                     .has_points = true,
                     .series = series,
                     .n_series = 2,
                     .flops = number(limit, "flops")};
    for (int k = 0; k < RT_LIMIT_LEVELS; k++) {
        double bytes = k == RT_LIMIT_MEMORY ? number(limit, "bytes")
                                            : number(json_object_get(limit, "bandwidth"), rt_limit_level_names[k]);
        if (!(bytes > 0)) continue;
        c.slope[c.n_slopes].name = rt_limit_level_names[k];
        c.slope[c.n_slopes++].bytes = bytes;
    }
    add(p, "<section class=\"card\"><h3>");
    put(p, threads_text(t, number(limit, "threads")));
    add(p, "</h3>");
    bench_draw(&p->s, &c);
    add(p, "</section>");
}

/* ---- scaling with size ---- */
static void by_size(page *p, const char *suite) {
    static const char *const colours[MAX_LINES] = {"var(--p0)", "var(--p1)", "var(--p2)", "var(--p3)",
                                                   "var(--p4)", "var(--p5)", "var(--p6)", "var(--p7)"};
    tool *t = p->t;
    const char *names[64];
    const json_t *rows[8];
    bench_series series[MAX_LINES];
    int n_names = distinct(p, suite, names, 64), n_series = 0,
        n_rows = rows_of(p, suite, names[0], p->min_threads, rows, 8);
    if (!n_rows || !is_kind(rows[0], "call")) return;
    bool is_arithmetic = number(rows[n_rows - 1], "flops") > 4 * number(rows[n_rows - 1], "bytes");
    for (int i = 0; i < n_names && n_series < MAX_LINES; i++) {
        int n = rows_of(p, suite, names[i], p->min_threads, rows, 8);
        if (n < 2) continue;
        double *x = FU_NEW_N(&t->arena, double, n), *y = FU_NEW_N(&t->arena, double, n);
        const char **tip = FU_NEW_N(&t->arena, const char *, n);
        for (int k = 0; k < n; k++) {
            x[k] = number(rows[k], "size"),
            y[k] = number(rows[k], is_arithmetic ? "flops" : "bytes") / number(rows[k], "fused_ns");
            tip[k] = fu_format(&t->arena, "%s, size %s: %.3g %s", names[i], size_text(t, x[k]), y[k],
                               is_arithmetic ? "GFLOP/s" : "GB/s");
        }
        series[n_series] = (bench_series){names[i], colours[n_series], n, x, y, tip};
        n_series++;
    }
    if (!n_series) return;
    bench_chart c = {.title = fu_format(&t->arena, "%s: rate of the fused kernels by size", suite),
                     .x_label = "size",
                     .y_label = is_arithmetic ? "GFLOP/s" : "GB/s",
                     .log_x = true,
                     .has_lines = true,
                     .has_points = true,
                     .series = series,
                     .n_series = n_series};
    add(p, "<section class=\"card\"><h3>");
    put(p, suite);
    add(p, "</h3>");
    bench_draw(&p->s, &c);
    add(p, "</section>");
}

/* ---- scaling with threads: how many times as fast as one thread, at the largest size ---- */
static void by_threads(page *p, const char *suite) {
    tool *t = p->t;
    const char *names[64];
    const json_t *rows[8];
    int n_names = distinct(p, suite, names, 64), counts[64], n_counts = 0;
    const json_t *limit;
    size_t k;
    json_array_foreach(json_object_get(p->document, "limits"), k, limit) if (n_counts < 64) counts[n_counts++] =
        (int)number(limit, "threads");
    bool is_open = false;
    for (int i = 0; i < n_names; i++) {
        int n = rows_of(p, suite, names[i], p->min_threads, rows, 8);
        if (!n || !is_kind(rows[0], "call")) return;
        double one = number(rows[n - 1], "fused_ns");
        for (int c = 0; c < n_counts; c++) {
            int m = counts[c] == p->min_threads ? 0 : rows_of(p, suite, names[i], counts[c], rows, 8);
            if (!m) continue;
            double ns = number(rows[m - 1], "fused_ns"), times = one / ns;
            if (!is_open) {
                add(p, "<section class=\"card\"><h3>");
                put(p, suite);
                add(p, "</h3>");
            }
            is_open = true;
            add(p, "<div class=\"rival long\"><span class=\"n\" title=\"");
            put(p, names[i]);
            add(p, "\">");
            put(p, names[i]);
            fu_str_addf(&p->s,
                        "</span><span class=\"t\"><i style=\"width:%.1f%%;background:var(--fused)\"></i></span><span "
                        "class=\"v\"><b>%.2f×</b> · %s</span></div>",
                        100 * fmin(1, times / ((double)p->max_threads / p->min_threads)), times,
                        threads_text(t, counts[c]));
        }
    }
    if (is_open) add(p, "</section>");
}

/* ---- baselines ---- */
static const json_t *same_row(const json_t *row, const json_t *rows) {
    const json_t *r;
    size_t i;
    json_array_foreach(rows, i, r) if (is_row(r, text(row, "suite"), text(row, "name")) &&
                                       number(r, "size") == number(row, "size") &&
                                       number(r, "threads") == number(row, "threads")) return r;
    return NULL;
}

static void history_chart(page *p, const json_t *history) {
    tool *t = p->t;
    const char *suites[64];
    int kept = (int)json_array_size(history), first = kept > MAX_HISTORY ? kept - MAX_HISTORY : 0, n = kept - first + 1,
        n_suites = distinct(p, NULL, suites, 64);
    const char **names = FU_NEW_N(&t->arena, const char *, n);
    if (n < 2) return;
    add(p, "<h2 id=\"history\">History</h2><p>Speed of the fused kernels beside this run, by suite, over the baselines "
           "that are kept: geometric means over the results that both have."
           " Machines are not told apart here.</p><div class=\"grid\">");
    for (int b = 0; b < n; b++)
        names[b] = b + 1 < n ? text(json_array_get(history, (size_t)(first + b)), "name") : "now";
    for (int i = 0; i < n_suites; i++) {
        double *x = FU_NEW_N(&t->arena, double, n), *y = FU_NEW_N(&t->arena, double, n);
        const char **tip = FU_NEW_N(&t->arena, const char *, n);
        int m = 0;
        for (int b = 0; b < n; b++) {
            const json_t *rows = b + 1 < n ? json_object_get(json_array_get(history, (size_t)(first + b)), "results")
                                           : p->results,
                         *row;
            double sum = 0;
            size_t k;
            int common = 0;
            json_array_foreach(p->results, k, row) {
                const json_t *then = is_row(row, suites[i], NULL) ? same_row(row, rows) : NULL;
                if (then) sum += log(number(row, "fused_ns") / number(then, "fused_ns")), common++;
            }
            if (!common) continue;
            x[m] = b, y[m] = exp(sum / common);
            tip[m] = fu_format(&t->arena, "%s: %.3f times as fast as now, over %d results", names[b], y[m], common);
            m++;
        }
        if (m < 2) continue;
        bench_series one = {suites[i], "var(--fused)", m, x, y, tip};
        bench_chart c = {.title = fu_format(&t->arena, "%s over the baselines", suites[i]),
                         .x_label = "baseline",
                         .y_label = "speed beside now",
                         .has_lines = true,
                         .has_points = true,
                         .series = &one,
                         .n_series = 1,
                         .x_names = names,
                         .n_x_names = n};
        add(p, "<section class=\"card\"><h3>");
        put(p, suites[i]);
        add(p, "</h3>");
        bench_draw(&p->s, &c);
        add(p, "</section>");
    }
    add(p, "</div>");
}

static void changes(page *p) {
    tool *t = p->t;
    const json_t *base = json_object_get(p->document, "baseline"), *row;
    static const char *const heads[] = {"workload", "size", "change", "noise", "then", "now", "threads"};
    html_table table;
    size_t i;
    int shown = 0;
    if (!base) return;
    add(p, "<h2 id=\"baseline\">Beside baseline ");
    put(p, text(base, "name"));
    fu_str_addf(&p->s, "</h2><p>%.0f results compared: %.0f slower and %.0f faster by more than %.3g %% and the noise.",
                number(base, "compared"), number(base, "slower"), number(base, "faster"),
                100 * number(base, "threshold"));
    if (fabs(number(base, "drift") - 1) > 0.02)
        fu_str_addf(&p->s, " By plain C the machine changed by %+.1f %%; that is divided out.",
                    100 * (number(base, "drift") - 1));
    add(p, "</p>");
    json_array_foreach(p->results, i, row) {
        const char *verdict = text(row, "verdict");
        if (strcmp(verdict, "slower") != 0 && strcmp(verdict, "faster") != 0) continue;
        if (!shown++) table = html_table_begin(&p->s, 7, 0, heads);
        html_row_begin(&table);
        html_cell(&table, 0);
        put(p, fu_format(&t->arena, "%s: %s", text(row, "suite"), text(row, "name")));
        html_cell(&table, 1);
        put(p, size_text(t, number(row, "size")));
        html_cell(&table, 2);
        fu_str_addf(&p->s, "<span class=\"%s\">%+.1f %%</span>", verdict, 100 * number(row, "change"));
        const char *cells[] = {fu_format(&t->arena, "%.1f %%", 100 * number(row, "noise")),
                               report_ns(t, number(row, "baseline_ns")), report_ns(t, number(row, "fused_ns")),
                               fu_format(&t->arena, "%.0f", number(row, "threads"))};
        for (int c = 0; c < 4; c++) {
            html_cell(&table, 3 + c);
            put(p, cells[c]);
        }
        html_row_end(&table);
    }
    if (shown) html_table_end(&table);
}

/* ---- all numbers ---- */
static void numbers(page *p) {
    static const char *const heads[] = {"workload", "size", "threads", "fused",   "unfused", "ratio",
                                        "spread",   "GB/s", "GFLOP/s", "kernels", "others"};
    tool *t = p->t;
    const json_t *row;
    const char *name;
    json_t *r;
    size_t i;
    add(p, "<h2 id=\"numbers\">All numbers</h2><p>Medians; the spread is the interquartile range over the "
           "median.</p><details><summary>Show the table</summary>");
    html_table table = html_table_begin(&p->s, 11, 1u << 10, heads);
    json_array_foreach(p->results, i, row) {
        double ns = number(row, "fused_ns");
        bool is_work = is_kind(row, "call");
        fu_str others;
        fu_str_init(&others, &t->arena);
        json_object_foreach(json_object_get(row, "rivals"), name, r)
            fu_str_addf(&others, "%s%s %s", others.n ? ", " : "", label_of(name), report_ns(t, number(r, "ns")));
        html_row(
            &table, fu_format(&t->arena, "%s: %s", text(row, "suite"), text(row, "name")),
            size_text(t, number(row, "size")), fu_format(&t->arena, "%.0f", number(row, "threads")), report_ns(t, ns),
            report_ns(t, number(row, "unfused_ns")), fu_format(&t->arena, "%.2f", number(row, "unfused_ns") / ns),
            fu_format(&t->arena, "%.0f %%", 100 * number(row, "spread")),
            is_work ? report_rate(t, number(row, "bytes") / ns * 1e9, "") : "",
            is_work ? report_rate(t, number(row, "flops") / ns * 1e9, "") : "",
            fu_format(&t->arena, "%.0f of %.0f", number(row, "kernels"), number(row, "unfused_kernels")), others.at);
    }
    html_table_end(&table);
    add(p, "</details>");
}

static void head(page *p, bool has_history) {
    tool *t = p->t;
    const char *suites[64], *name;
    json_t *version, *peers = json_object_get(p->document, "peers");
    int n = distinct(p, NULL, suites, 64);
    fu_str lead;
    fu_str_init(&lead, &t->arena);
    fu_str_addf(&lead, "%s · %s · fusor %s, build %.12s · %s", text(p->document, "cpu"), text(p->document, "level"),
                text(p->document, "version"), text(p->document, "build"), text(p->document, "date"));
    if (json_is_true(json_object_get(p->document, "quick"))) fu_str_add(&lead, " · quick");
    json_object_foreach(peers, name, version)
        fu_str_addf(&lead, " · %s %s", name, json_string_value(version) ? json_string_value(version) : "");
    html_begin(&p->s, "fusor bench", lead.at, bench_style);
    summary(p);
    add(p, "<nav>");
    if (json_object_get(p->document, "baseline")) add(p, "<a href=\"#baseline\">baseline</a>");
    for (int i = 0; i < n; i++) {
        fu_str_addf(&p->s, "<a href=\"#suite%d\">", i);
        put(p, suites[i]);
        add(p, "</a>");
    }
    add(p, "<a href=\"#roofline\">roofline</a><a href=\"#sizes\">sizes</a>");
    if (p->max_threads > p->min_threads) add(p, "<a href=\"#threads\">threads</a>");
    if (has_history) add(p, "<a href=\"#history\">history</a>");
    add(p, "<a href=\"#numbers\">all numbers</a></nav>\n");
}

int bench_html(tool *t, const char *path, const json_t *document, const json_t *history) {
    page p = {.t = t, .document = document, .results = json_object_get(document, "results"), .min_threads = INT32_MAX};
    const char *suites[64], *names[64];
    const json_t *row, *limit;
    size_t i;
    fu_str_init(&p.s, &t->arena);
    json_array_foreach(p.results, i, row) {
        if ((int)number(row, "threads") > p.max_threads) p.max_threads = (int)number(row, "threads");
        if ((int)number(row, "threads") < p.min_threads) p.min_threads = (int)number(row, "threads");
    }
    head(&p, json_array_size(history) > 0);
    int n = distinct(&p, NULL, suites, 64);
    changes(&p);
    choices(&p);
    for (int k = 0; k < n; k++) {
        fu_str_addf(&p.s, "<h2 id=\"suite%d\">", k);
        put(&p, suites[k]);
        add(&p, "</h2><p class=\"note\">Longer bars are faster; × is the speed beside fused. Below: the same by "
                "size.</p><div class=\"grid\">");
        int m = distinct(&p, suites[k], names, 64);
        for (int j = 0; j < m; j++) card(&p, suites[k], names[j]);
        add(&p, "</div>");
    }
    add(&p, "<h2 id=\"roofline\">Roofline</h2><p>A point for each result: the arithmetic that a byte of memory traffic "
            "serves, and the rate reached. Fusing moves a point to the right."
            " The lines are this machine's measured limits: memory's, and dashed those of the caches, which small "
            "sizes fit. Narrow types pass the peak, which is that of f32.</p><div class=\"grid large\">");
    json_array_foreach(json_object_get(document, "limits"), i, limit) roofline(&p, limit);
    add(&p, "</div><h2 id=\"sizes\">Scaling with size</h2><p>The rate of the fused kernels");
    if (p.results && json_array_size(p.results)) put(&p, fu_format(&t->arena, ", %s", threads_text(t, p.min_threads)));
    add(&p, ".</p><div class=\"grid\">");
    for (int k = 0; k < n; k++) by_size(&p, suites[k]);
    add(&p, "</div>");
    if (p.max_threads > p.min_threads) {

        add(&p, "<h2 id=\"threads\">Scaling with threads</h2><p>How many times as fast as with the fewest threads, at "
                "the largest size; a full bar is as many times as there are threads more.</p>"
                "<div class=\"grid\">");
        for (int k = 0; k < n; k++) by_threads(&p, suites[k]);
        add(&p, "</div>");
    }
    history_chart(&p, history);
    numbers(&p);
    add(&p, "<footer class=\"note\">Rivals are timed in turns within one run, pinned to as many CPUs as there are "
            "threads; those that are not timed are stopped. Fused and unfused give the same"
            " bits; others were checked to agree but for rounding. C is compiled with -O3 -march=native. Made by fusor "
            "bench --export-html.</footer>");
    html_end(&p.s, NULL);
    fu_part part = {p.s.at, p.s.n};
    int why = fu_file_write(path, &part, 1);
    return why ? tool_environment(t, "%s: %s", path, strerror(why)) : 0;
}
