/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TOOL_TIMING_H
#define TOOL_TIMING_H
/* Repeated calls and what they took. */
#include "options.h"

typedef struct timing {
    double median_ns, min_ns, p99_ns; /* of the samples */
    int64_t runs, samples, batch;     /* a sample is the mean of batch calls */
} timing;
/* Calls run(user) until min_time seconds and at least a few samples are full, or exactly `runs` times where runs > 0.
 * Calls too short for the clock are timed in batches. run returns false to stop with an error. */
bool timing_measure(tool *t, bool (*run)(void *user), void *user, int64_t warmup, int64_t runs, double min_time,
                    timing *out);
double timing_median(double *samples, int64_t n); /* sorts */
/* To an error of a repeated call of f, whose first one went well: where results are written over parameters. */
void timing_note_repeat(tool *t, const ir_graph *f);

/* A prepared call, timed in batches: mean of n calls, NaN when one fails; and the n that takes about batch_ns. For
 * rounds in which several calls alternate. */
double timing_batch_ns(fusor_call *call, int64_t n);
int64_t timing_batch_of(fusor_call *call, double batch_ns);

typedef struct traffic {
    double bytes_read, bytes_written, flops;
    int kernels;
    ir_dtype type; /* of the arithmetic of the step that has most of it */
    bool is_f32;   /* all arithmetic is */
} traffic;
traffic timing_traffic(const ir_plan *plan, const int64_t *symbols);
#endif
