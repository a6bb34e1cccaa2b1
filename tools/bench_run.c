/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* bench_run.c: measures workloads. For each size all rivals are made ready, then timed in rounds that go around them,
 * starting with another one each time, so that a machine that slows down slows all; medians over the rounds are
 * reported, with the interquartile range as the spread. The process and its workers are pinned to as many CPUs as there
 * are threads. */
#include "bench.h"
#include "timing.h"
#include "base/env.h"
#include "base/log.h"
#include "rt/cpuinfo.h"
#include "rt/compiler.h"
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef struct progress {
    tool *t;
    bool is_on;
    double done, all;
    int64_t start;
} progress;
typedef struct session {
    tool *t;
    progress *bar;
    int n_threads;
    limits limits;
    bench_plain *plain;
    bench_peers *peers;
    json_t *results;
    double seconds;
    int n_again;
} session;

/* ---- progress: one line on a terminal ---- */
static void show(progress *p, const bench_workload *w, int64_t size, int n_threads) {
    if (!p->is_on) return;
    double part = p->all > 0 ? p->done / p->all : 0, took = (double)(fu_now_ns() - p->start) * 1e-9,
           left = part > 0 ? took / part - took : -1;
    char bar[25], rest[32] = "";
    for (int i = 0; i < 24; i++) bar[i] = i < (int)(24 * part) ? '#' : '.';
    bar[24] = 0;
    if (left >= 60) snprintf(rest, sizeof rest, ", %.0f min %02.0f s left", floor(left / 60), fmod(left, 60));
    else if (left >= 0) snprintf(rest, sizeof rest, ", %.0f s left", left);
    struct winsize window;
    int columns = ioctl(2, TIOCGWINSZ, &window) == 0 && window.ws_col > 20 ? window.ws_col - 1
                                                                           : 79; /* a line that wraps is not cleared */
    const char *line = fu_format(&p->t->arena, "%s %3.0f %%%s  %s: %s, %" PRId64 ", %d thread%s", bar, 100 * part, rest,
                                 w->suite, w->name, size, n_threads, n_threads == 1 ? "" : "s");
    fprintf(stderr, "\r\033[K%.*s", columns, line);
    (void)fflush(stderr);
}
static void clear(const progress *p) {
    if (p->is_on) fputs("\r\033[K", stderr);
}

/* ---- one workload and size ---- */
static double at_part(const double *sorted, int n, double part) { return sorted[(int)((n - 1) * part + 0.5)]; }

/* Rounds until the rivals have had `seconds` each, and at least a few. False: "fused" or "unfused" failed. */
static bool measure(bench_rivals *rivals, double seconds, fu_arena *arena) {
    for (int i = 0; i < rivals->n; i++) {
        rivals->at[i].sample = FU_NEW_N(arena, double, BENCH_MAX_ROUNDS);
        double first = rivals->at[i].round(&rivals->at[i], 0);
        if (isnan(first) && i < 2) return false;
        rivals->at[i].n = isnan(first) ? -1 : 0;
        if (rivals->at[i].one_ns <= 0) rivals->at[i].one_ns = first;
    }
    int64_t start = fu_now_ns();
    for (int round = 0; round < BENCH_MAX_ROUNDS; round++) {
        double took = (double)(fu_now_ns() - start) * 1e-9, budget = seconds * rivals->n;
        if (round >= 7 ? took >= budget : round >= 3 && took >= 8 * budget) break;
        for (int k = 0; k < rivals->n; k++) {
            bench_rival *r = &rivals->at[(k + round) % rivals->n];
            if (r->n < 0) continue;
            double ns = r->round(r, 1e6);
            if (isnan(ns)) {
                if (r - rivals->at < 2) return false;
                r->n = -1;
            } else r->sample[r->n++] = ns;
        }
    }
    for (int i = 0; i < rivals->n; i++) {
        bench_rival *r = &rivals->at[i];
        if (r->n <= 0) continue;
        r->median_ns = timing_median(r->sample, r->n); /* sorts */
        r->min_ns = r->sample[0];
        r->spread = (at_part(r->sample, r->n, 0.75) - at_part(r->sample, r->n, 0.25)) / r->median_ns;
    }
    return true;
}

static json_t *row_of(const bench_workload *w, int64_t size, int n_threads, const bench_rivals *rivals,
                      const traffic *moved, const traffic *apart, json_t *reasons) {
    const bench_rival *fused = &rivals->at[0], *unfused = &rivals->at[1];
    json_t *others = json_object();
    for (int i = 2; i < rivals->n; i++) {
        const bench_rival *r = &rivals->at[i];
        if (r->n > 0 && !r->is_apart)
            (void)json_object_set_new(others, r->name,
                                      json_pack("{s:f, s:f, s:f, s:i}", "ns", r->median_ns, "min_ns", r->min_ns,
                                                "spread", r->spread, "rounds", r->n));
    }
    static const char *const kinds[] = {"call", "dispatch", "lazy", "compile", "load", "cold", "warm"};
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:I, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:i}", "suite", w->suite, "name", w->name,
                  "kind", kinds[w->kind], "size", (json_int_t)size, "threads", n_threads, "fused_ns", fused->median_ns,
                  "unfused_ns", unfused->median_ns, "ratio", unfused->median_ns / fused->median_ns, "spread",
                  fused->spread, "unfused_spread", unfused->spread, "min_ns", fused->min_ns, "rounds", fused->n);
    (void)json_object_update_new(row, json_pack("{s:i, s:i, s:I, s:I, s:I, s:o, s:O}", "kernels", moved->kernels,
                                                "unfused_kernels", apart->kernels, "bytes",
                                                (json_int_t)(moved->bytes_read + moved->bytes_written), "unfused_bytes",
                                                (json_int_t)(apart->bytes_read + apart->bytes_written), "flops",
                                                (json_int_t)moved->flops, "rivals", others, "left_out", reasons));
    return row;
}

/* What binds a plan that takes ns: for each kernel the time that the limits allow, added; the limit is that of the
 * kernel that needs most. */
static void add_limit(json_t *row, const limits *l, const ir_plan *plan, const int64_t *symbols, double ns) {
    double least = 0, most = 0;
    const char *limit = "";
    for (uint32_t i = 0; i < plan->steps.n; i++) {
        ir_cost c = ir_step_cost(plan, (int)i, symbols);
        ir_dtype type = ir_step_work_type(plan, (int)i);
        rt_bound b = rt_limits_bound(&l->all, type, c.bytes_read + c.bytes_written, c.work, ns);
        least += b.least_ns;
        if (b.least_ns > most && strcmp(b.limit, "call") != 0) most = b.least_ns, limit = b.limit;
    }
    if (limit[0]) (void)json_object_update_new(row, json_pack("{s:s, s:f}", "limit", limit, "share", least / ns));
}

static int run_one(session *s, const bench_workload *w, int64_t size, double seconds, json_t **row) {
    tool *t = s->t;
    bench_data data = {0};
    bench_rivals rivals = {0};
    bench_own *own = NULL;
    bench_auto *choice = NULL;
    const ir_plan *fused, *unfused;
    json_t *reasons = json_object();
    *row = NULL;
    int status = bench_own_open(t, w, size, &data, &rivals, &own, &fused, &unfused);
    if (!status) status = bench_own_auto(t, &data, own, &rivals, &choice);
    if (!status) {
        bench_plain_add(t, s->plain, &data, &rivals);
        bench_peers_add(t, s->peers, &data, &rivals, reasons);
        if (measure(&rivals, seconds, &t->arena)) {
            int64_t symbols[1] = {size};
            traffic moved = timing_traffic(fused, symbols), apart = timing_traffic(unfused, symbols);
            *row = row_of(w, size, s->n_threads, &rivals, &moved, &apart, reasons);
            if (choice) (void)json_object_set_new(*row, "auto", bench_auto_row(choice, &rivals));
            if (w->kind == BENCH_CALL) add_limit(*row, &s->limits, fused, symbols, rivals.at[0].median_ns);
            bool is_above = json_number_value(json_object_get(*row, "share")) > 1.2 &&
                            s->n_again++ < 2; /* of another type's peak, or of a cache */
            if (is_above) limits_beside(t, &s->limits, 1.000001 * s->limits.flops);
            if (w->kind == BENCH_CALL && moved.is_f32 && s->results)
                limits_beside(t, &s->limits, moved.flops / rivals.at[0].median_ns * 1e9);
        } else
            status = tool_environment(t, "%s of suite %s failed at size %" PRId64 ": %s", w->name, w->suite, size,
                                      fusor_error_message(t->ctx));
        bench_plain_done(s->plain);
    }
    bench_own_close(t, own);
    bench_data_close(&data);
    json_decref(reasons);
    return status;
}

static bool is_single(const bench_workload *w) {
    return w->kind == BENCH_COMPILE || w->kind == BENCH_LOAD || w->kind == BENCH_COLD || w->kind == BENCH_WARM;
}

/* ---- all of them ---- */
/* The first n CPUs that the process may use; what it may use afterwards is restored by the caller. */
static void pin(const cpu_set_t *all, int n) {
    cpu_set_t some;
    CPU_ZERO(&some);
    for (int c = 0; c < CPU_SETSIZE && n > 0; c++)
        if (CPU_ISSET(c, all)) CPU_SET(c, &some), n--;
    if (CPU_COUNT(&some)) (void)sched_setaffinity(0, sizeof some, &some);
}

static int run_threads(session *s, int n_threads, bool is_first, const cpu_set_t *all, json_t *document) {
    tool *t = s->t;
    int64_t sizes[8];
    pin(all, n_threads);
    int status = tool_context(t, n_threads);
    if (status) return status;
    s->n_threads = t->ctx->n_threads;
    s->limits = limits_get(t, s->n_threads, false);
    const bool is_device =
        context_home(t->ctx) != 0 || t->ctx->is_auto; /* then plain C and peers, on the CPU, are no rivals */
    s->plain = s->n_threads == 1 && !is_device ? bench_plain_open(t) : NULL;
    if (is_device && !t->peers) t->peers = "none";
    status = bench_peers_open(t, s->n_threads, &s->peers);
    (void)json_object_update_new(json_object_get(document, "peers"), bench_peers_versions(s->peers));
    for (int i = 0; i < bench_n_workloads && !status; i++) {
        const bench_workload *w = &bench_workloads[i];
        if (!bench_is_wanted(t, w) || (is_single(w) && !is_first)) continue;
        int n = bench_sizes(t, w, sizes);
        for (int k = 0; k < n && !status; k++) {
            json_t *row;
            show(s->bar, w, sizes[k], s->n_threads);
            fu_mark mark = fu_arena_mark(&t->arena);
            status = run_one(s, w, sizes[k], s->seconds, &row);
            fu_arena_release(&t->arena, mark);
            s->bar->done++;
            if (row) (void)json_array_append_new(s->results, row);
        }
    }
    char device[24];
    (void)json_object_set_new(document, "device", json_string(context_device_name(t->ctx, device)));
    if (t->ctx->is_auto) (void)json_object_set_new(document, "auto", json_object());
    else if (t->ctx->auto_why[0])
        (void)json_object_set_new(document, "auto", json_pack("{s:s}", "reason", t->ctx->auto_why));
    json_t *limit = json_pack("{s:i, s:f, s:f, s:{}, s:{}}", "threads", s->n_threads, "flops", s->limits.flops, "bytes",
                              s->limits.bytes, "bandwidth", "peak");
    for (int k = 0; k < RT_LIMIT_LEVELS; k++)
        (void)json_object_set_new(json_object_get(limit, "bandwidth"), rt_limit_level_names[k],
                                  json_real(s->limits.all.bandwidth[k]));
    for (int k = 0; k < RT_LIMIT_TYPES; k++)
        (void)json_object_set_new(json_object_get(limit, "peak"), rt_limit_type_names[k],
                                  json_real(s->limits.all.peak[k]));
    (void)json_array_append_new(json_object_get(document, "limits"), limit);
    bench_peers_close(s->peers);
    bench_plain_close(s->plain);
    return status;
}

/* The thread counts of --threads, else that of FUSOR_THREADS, else one and all. */
static int thread_counts(tool *t, int counts[64]) {
    int n = t->n_thread_counts;
    memcpy(counts, t->thread_counts, sizeof t->thread_counts);
    if (n) return n;
    int all = rt_default_threads(), said = (int)fu_env_int(FU_FUSOR_THREADS);
    if (said > 0) return counts[0] = said, 1;
    counts[n++] = 1;
    const char *device = t->device ? t->device : fu_env_string(FU_FUSOR_DEVICE);
    if (all > 1 && strncmp(device, "cuda", 4) != 0) counts[n++] = all;
    return n;
}

static double seconds_of(const tool *t) { return t->min_time >= 0 ? t->min_time : t->quick ? 0.02 : 0.1; }

static json_t *document_new(tool *t, json_t *results) {
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    (void)strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    int level = rt_host_level();
    json_t *d = report_new("fusor-bench/1");
    (void)json_object_update_new(d, json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:[], s:{}, s:O}", "date", date,
                                              "version", fusor_version_string(), "build", rt_build_id(), "cpu",
                                              rt_host_brand(), "level", level < 0 ? "none" : ir_levels[level].name,
                                              "quick", t->quick, "limits", "peers", "results", results));
    return d;
}

int bench_run(tool *t, json_t **out) {
    int counts[64], n = thread_counts(t, counts), status = 0;
    progress bar = {.t = t, .is_on = !t->quiet && isatty(2), .start = fu_now_ns()};
    session s = {.t = t, .bar = &bar, .results = json_array(), .seconds = seconds_of(t)};
    int64_t sizes[8];
    cpu_set_t all;
    CPU_ZERO(&all);
    bool is_known = sched_getaffinity(0, sizeof all, &all) == 0;
    for (int i = 0; i < bench_n_workloads; i++)
        if (bench_is_wanted(t, &bench_workloads[i]))
            bar.all += bench_sizes(t, &bench_workloads[i], sizes) * (is_single(&bench_workloads[i]) ? 1 : n);
    *out = document_new(t, s.results);
    json_decref(s.results); /* the document holds it */
    for (int i = 0; i < n && !status; i++) status = run_threads(&s, counts[i], i == 0, &all, *out);
    if (is_known) (void)sched_setaffinity(0, sizeof all, &all);
    clear(&bar);
    return status;
}

json_t *bench_again(tool *t, const json_t *row) {
    const char *suite = json_string_value(json_object_get(row, "suite")),
               *name = json_string_value(json_object_get(row, "name"));
    for (int i = 0; i < bench_n_workloads; i++) {
        const bench_workload *w = &bench_workloads[i];
        if (strcmp(w->suite, suite) != 0 || strcmp(w->name, name) != 0) continue;
        int n_threads = (int)json_integer_value(json_object_get(row, "threads"));
        progress off = {.t = t};
        session s = {.t = t, .bar = &off, .n_threads = n_threads};
        json_t *again = NULL;
        cpu_set_t all;
        CPU_ZERO(&all);
        bool is_known = sched_getaffinity(0, sizeof all, &all) == 0;
        if (is_known) pin(&all, n_threads);
        if (tool_context(t, n_threads) == 0)
            (void)run_one(&s, w, json_integer_value(json_object_get(row, "size")), 3 * seconds_of(t), &again);
        if (is_known) (void)sched_setaffinity(0, sizeof all, &all);
        return again;
    }
    return NULL;
}
