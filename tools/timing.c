/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* timing.c: repeats a call and sums up the samples. */
#include "timing.h"
#include "base/log.h"
#include <math.h>
#include <stdlib.h>

enum { MAX_SAMPLES = 1 << 16 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void timing_note_repeat(tool *t, const ir_graph *f) {
    for (uint32_t i = 0; i < f->results.n; i++)
        if (f->results.at[i].alias >= 0)
            tool_note(t, "a repeated call failed, not the first: each begins with what the one before wrote over %%%s",
                      f->params.at[f->results.at[i].alias].name);
}

double timing_median(double *samples, int64_t n) {
    if (n == 0) return NAN;
    qsort(samples, (size_t)n, sizeof *samples, by_value);
    return n % 2 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
}

bool timing_measure(tool *t, bool (*run)(void *user), void *user, int64_t warmup, int64_t runs, double min_time,
                    timing *out) {
    double *samples = FU_NEW_N(&t->arena, double, MAX_SAMPLES);
    for (int64_t i = 0; i < warmup; i++)
        if (!run(user)) return false;
    int64_t from = fu_now_ns();
    if (runs <= 0 && !run(user)) return false;
    int64_t one = fu_now_ns() - from, batch = runs > 0 || one > 5000 ? 1 : 10000 / (one + 1) + 1, n = 0;
    *out = (timing){.min_ns = INFINITY, .batch = batch};
    uint64_t random = 1;
    for (int64_t start = fu_now_ns(); runs <= 0 || n < runs; n++) {
        if (runs <= 0 && n >= 5 && (double)(fu_now_ns() - start) >= min_time * 1e9) break;
        from = fu_now_ns();
        for (int64_t k = 0; k < batch; k++)
            if (!run(user)) return false;
        const double sample = (double)(fu_now_ns() - from) / (double)batch;
        out->min_ns = fmin(out->min_ns, sample);
        int64_t at = n;
        if (n >= MAX_SAMPLES) { /* those kept are a random choice of all (a reservoir) */
            random = random * 6364136223846793005u + 1442695040888963407u;
            at = (int64_t)((random >> 20) % (uint64_t)(n + 1));
        }
        if (at < MAX_SAMPLES) samples[at] = sample;
    }
    out->samples = n;
    out->runs = n * batch;
    if (n > MAX_SAMPLES) n = MAX_SAMPLES;
    out->median_ns = timing_median(samples, n);
    out->p99_ns = samples[(n * 99 + 99) / 100 - 1]; /* 99 % of the samples took no longer */
    return true;
}

double timing_batch_ns(fusor_call *call, int64_t n) {
    int64_t from = fu_now_ns();
    for (int64_t i = 0; i < n; i++)
        if (fusor_call_run(call) != FUSOR_OK) return NAN;
    return (double)(fu_now_ns() - from) / (double)n;
}

int64_t timing_batch_of(fusor_call *call, double batch_ns) {
    double one = 1e30;
    for (int i = 0; i < 3; i++) one = fmin(one, timing_batch_ns(call, 1));
    return one < batch_ns ? (int64_t)(batch_ns / (one + 1)) + 1 : 1;
}

traffic timing_traffic(const ir_plan *plan, const int64_t *symbols) {
    traffic sum = {.type = FUSOR_F32, .is_f32 = true};
    double most = 0;
    for (uint32_t i = 0; i < plan->steps.n; i++) {
        ir_cost c = ir_step_cost(plan, (int)i, symbols);
        sum.bytes_read += c.bytes_read;
        sum.bytes_written += c.bytes_written;
        sum.flops += c.flops;
        const ir_dtype type = ir_step_work_type(plan, (int)i);
        if (c.flops > most) most = c.flops, sum.type = type;
        sum.is_f32 &= type == FUSOR_F32;
        sum.kernels += plan->steps.at[i].kind != IR_STEP_COPY && plan->steps.at[i].kind != IR_STEP_CHECK;
    }
    return sum;
}
