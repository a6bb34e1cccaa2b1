/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_PROFILE_H
#define FUSOR_PROFILE_H
/* fusor/profile.h: how long the kernels of a context take. Off, it costs a load and a branch a call; on, two readings of
 * the clock a kernel. */
#include <fusor/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Starts counting (on = 1: from zero) or stops; what was counted stays. Serves executables and lazy tensors of ctx, made before or after.
 *  **Errors**: ARGUMENT, MEMORY. **Threads**: any. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_profile_enable(fusor_context *ctx, int on);
/** What was counted, as a JSON document "fusor-profile/1": {"kernels": [{"function", "step", "kind", "symbol", "ops", "calls", "ns",
 *  "min_ns", "bytes", "flops", "gb_s", "gflop_s", "share"}], "ns", "dropped", "cache": {"memory_hits", "disk_hits",
 *  "compiles"}}, slowest first. bytes and flops are those of the plan's model, summed over the calls; share is of all steps' time.
 *  Free with fusor_text_free. **Errors**: ARGUMENT, MEMORY. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_profile_json(fusor_context *ctx, char **text_out);

#ifdef __cplusplus
}
#endif
#endif
