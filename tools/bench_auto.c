/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* bench_auto.c: fusor bench --device auto. How often was the choice between CPU and GPU the faster one? Three more
 * rivals take part in a workload's rounds: the executable's CPU side, its GPU side, and the executable itself, which
 * chooses, all called with the same data, in the CPU's memory. Before the rounds it is called until its trials are
 * over. A row gets "auto" with the medians and the choice; bench_auto_judge makes verdicts and the sum of them from a
 * document, measured or imported. */
#include "bench.h"
#include "auto.h"
#include "start.h"
#include "rt/device.h"
#include <math.h>

/* Calls until trials are over: RT_SELECT_ENOUGH of each side, where each RT_SELECT_TRY-th call is one. */
enum { MOST_CALLS = 2 * RT_SELECT_TRY * (RT_SELECT_ENOUGH + 1) };
/* A choice is right when its side has the lower median, or is behind by no more than the larger spread of both, which
 * counts as this much at least and at most. */
#define LEAST_NOISE 0.02
#define MOST_NOISE  0.10

struct bench_auto {
    fusor_executable *exe;
    rt_exec *cpu, *gpu; /* borrowed from exe; gpu NULL: it cannot be had */
    fusor_buffer *in, *out;
    int n_in, n_out, first; /* the place of "cpu" among the rivals */
    fu_error e;
};

static bool run_auto(void *user) {
    bench_auto *a = user;
    return fusor_executable_call(a->exe, a->n_in, a->in, a->n_out, a->out) == FUSOR_OK;
}
static bool run_cpu(void *user) {
    bench_auto *a = user;
    fu_error_clear(&a->e);
    return rt_exec_call(a->cpu, &a->e, a->n_in, a->in, a->n_out, a->out) == FUSOR_OK;
}
static bool run_gpu(void *user) {
    bench_auto *a = user;
    fu_error_clear(&a->e);
    return rt_exec_call(a->gpu, &a->e, a->n_in, a->in, a->n_out, a->out) == FUSOR_OK;
}
static bool wait_for_gpu(void *user) {
    bench_auto *a = user;
    return rt_queue_wait(a->exe->ctx->queue, &a->e) == FUSOR_OK;
}
static double round_auto(bench_rival *r, double ns) { return bench_repeat(r, ns, run_auto); }
static double round_cpu(bench_rival *r, double ns) { return bench_repeat(r, ns, run_cpu); }
static double round_gpu(bench_rival *r, double ns) { return bench_repeat(r, ns, run_gpu); }

bench_auto *bench_auto_add(tool *t, fusor_executable *exe, int n_in, fusor_buffer *in, int n_out, fusor_buffer *out,
                           bench_rivals *rivals) {
    bench_auto *a = FU_NEW(&t->arena, bench_auto);
    rt_select_choice last;
    *a = (bench_auto){.exe = exe, .in = in, .out = out, .n_in = n_in, .n_out = n_out, .first = rivals->n};
    fu_error_clear(&a->e);
    start_wait(exe);
    a->cpu = start_exec(exe);
    a->gpu = auto_gpu(exe, &a->e);
    if (!a->gpu || rivals->n + 3 > BENCH_MAX_RIVALS) return a;
    for (int i = 0; i < MOST_CALLS && run_auto(a); i++)
        if (auto_last(exe, &last) && !last.is_open && !last.is_trial && last.is_measured[last.side]) break;
    rivals->at[rivals->n++] = (bench_rival){.name = "cpu", .round = round_cpu, .user = a, .is_apart = true};
    rivals->at[rivals->n++] =
        (bench_rival){.name = "gpu", .round = round_gpu, .finish = wait_for_gpu, .user = a, .is_apart = true};
    rivals->at[rivals->n++] =
        (bench_rival){.name = "auto", .round = round_auto, .finish = wait_for_gpu, .user = a, .is_apart = true};
    return a;
}

json_t *bench_auto_row(const bench_auto *a, const bench_rivals *rivals) {
    const bench_rival *cpu = &rivals->at[a->first], *gpu = cpu + 1, *itself = cpu + 2;
    rt_select_choice last;
    if (!a->gpu) return json_pack("{s:s}", "reason", a->e.text);
    if (cpu->n <= 0 || gpu->n <= 0 || itself->n <= 0)
        return json_pack("{s:s}", "reason", a->e.text[0] ? a->e.text : "a call failed");
    if (!auto_last(a->exe, &last)) return json_pack("{s:s}", "reason", "no choice was made");
    const bool is_gpu = (last.side == RT_SIDE_GPU) != last.is_trial;
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "choice", is_gpu ? "gpu" : "cpu", "cpu_ns", cpu->median_ns,
                     "gpu_ns", gpu->median_ns, "auto_ns", itself->median_ns, "cpu_spread", cpu->spread, "gpu_spread",
                     gpu->spread);
}

static double number(const json_t *o, const char *field) { return json_number_value(json_object_get(o, field)); }
static const char *text(const json_t *o, const char *field) {
    const char *v = json_string_value(json_object_get(o, field));
    return v ? v : "";
}

void bench_auto_judge(json_t *document) {
    json_t *row, *sum = json_object_get(document, "auto");
    size_t i;
    int n = 0, right = 0;
    if (!json_is_object(sum)) return;
    json_array_foreach(json_object_get(document, "results"), i, row) {
        json_t *a = json_object_get(row, "auto");
        const double cpu = number(a, "cpu_ns"), gpu = number(a, "gpu_ns");
        if (!(cpu > 0) || !(gpu > 0)) continue;
        const bool is_gpu = strcmp(text(a, "choice"), "gpu") == 0;
        const double behind = (is_gpu ? gpu / cpu : cpu / gpu) - 1;
        const double noise =
            fmin(MOST_NOISE, fmax(LEAST_NOISE, fmax(number(a, "cpu_spread"), number(a, "gpu_spread"))));
        const bool is_right = behind <= noise;
        (void)json_object_set_new(a, "behind", json_real(fmax(0, behind)));
        (void)json_object_set_new(a, "noise", json_real(noise));
        (void)json_object_set_new(a, "right", json_boolean(is_right));
        n++;
        right += is_right;
    }
    (void)json_object_set_new(sum, "choices", json_integer(n));
    (void)json_object_set_new(sum, "right", json_integer(right));
    (void)json_object_set_new(sum, "share", n ? json_real((double)right / n) : json_null());
}

const char *bench_auto_text(tool *t, const json_t *document) {
    const json_t *sum = json_object_get(document, "auto");
    const int n = (int)number(sum, "choices"), right = (int)number(sum, "right");
    if (!json_is_object(sum)) return "";
    if (n) return fu_format(&t->arena, "%d of %d choices were the faster one (%.1f %%)", right, n, 100.0 * right / n);
    const char *reason = text(sum, "reason");
    return fu_format(&t->arena, "no choice was made%s%s", reason[0] ? ": " : " in these workloads", reason);
}

const char *bench_auto_verdict(tool *t, const json_t *row) {
    const json_t *a = json_object_get(row, "auto");
    if (!a) return "";
    if (!json_object_get(a, "right")) return fu_format(&t->arena, "no choice: %s", text(a, "reason"));
    if (!json_is_true(json_object_get(a, "right")))
        return fu_format(&t->arena, "wrong by %.1f %%", 100 * number(a, "behind"));
    return number(a, "behind") > 0 ? "right, within the noise" : "right";
}

void bench_auto_print(tool *t, const json_t *document) {
    report_table table = {.t = t, .columns = 8, .left_mask = 1u << 0 | 1u << 1 | 1u << 4 | 1u << 7};
    const json_t *row;
    size_t i;
    if (!json_is_object(json_object_get(document, "auto"))) return;
    report_row(&table, "suite", "workload", "size", "threads", "choice", "CPU", "GPU", "the faster one?");
    const uint32_t heads = table.cells.n;
    json_array_foreach(json_object_get(document, "results"), i, row) {
        const json_t *a = json_object_get(row, "auto");
        const bool is_known = json_object_get(a, "right") != NULL;
        if (!a) continue;
        report_row(&table, text(row, "suite"), text(row, "name"), fu_format(&t->arena, "%.0f", number(row, "size")),
                   fu_format(&t->arena, "%.0f", number(row, "threads")), text(a, "choice"),
                   is_known ? report_ns(t, number(a, "cpu_ns")) : "", is_known ? report_ns(t, number(a, "gpu_ns")) : "",
                   bench_auto_verdict(t, row));
    }
    printf("\n");
    if (table.cells.n > heads) report_table_print(&table, stdout);
    printf("auto: %s\n", bench_auto_text(t, document));
}
