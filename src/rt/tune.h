/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_TUNE_H
#define RT_TUNE_H
/* The run-time fields of a launch and whether threads are worth their start. Nothing here may change a bit of a result:
 * tile sizes only say how much of the work one worker takes at a time (doc/planning.md, last section). */
#include "ir/kernel.h"

/* Fills tune[] for a call with these sizes (each >= 0) and strides (as in ir_kernel_args; NULL: unknown) on at most
 * n_threads workers; caches are the host's. */
void rt_tune(const ir_kernel *k, const int64_t *size, const int64_t *stride, int n_threads,
             int64_t tune[IR_TUNE_COUNT]);
/* Work of a call, in element visits of a cheap kernel; saturates. */
int64_t rt_tune_work(const ir_kernel *k, const int64_t *size);
/* n_threads, or 1 where a team that costs so many nanoseconds (rt_fork_ns) costs more than it saves for that much work.
 */
int rt_tune_team(int64_t work, int n_threads, int64_t fork_ns);
/* rt_tune_team of one call with a team that costs as little as any. */
int rt_tune_threads(const ir_kernel *k, const int64_t *size, int n_threads);
#endif
