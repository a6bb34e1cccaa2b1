/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TOOL_LIMITS_H
#define TOOL_LIMITS_H
/* The machine's measured limits (rt/limits.h) as the subcommands use them: kept beside the cache of the tool's
 * context. */
#include "options.h"
#include "rt/limits.h"

/* Per second: f32 multiply-adds counted as two; memory, read + write. `all` has the other types and the cache
 * levels. */
typedef struct limits {
    double flops, bytes;
    int n_threads;
    bool is_known;
    rt_limits all;
} limits;
/* For n_threads; from the file beside the cache where there is one (unless `again`), else measured (about 0.4 s) and
 * kept there. */
limits limits_get(tool *t, int n_threads, bool again);
/* A rate of f32 above the peak shows that the limits were measured at a bad moment: they are measured again, and the
 * larger ones are kept. */
void limits_beside(tool *t, limits *l, double flops_per_s);
/* "37% of peak" style share of what binds: the larger of the two shares. type: of the operations. */
const char *limits_share(tool *t, const limits *l, ir_dtype type, double bytes_per_s, double flops_per_s);
#endif
