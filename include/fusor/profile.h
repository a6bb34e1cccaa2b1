/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_PROFILE_H
#define FUSOR_PROFILE_H
/* fusor/profile.h: how long the kernels of a context take. Off, it costs a load and a branch a call; on, two readings
 * of the clock a kernel. */
#include <fusor/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Starts counting (on = 1: from zero; FUSOR_PROFILE_EVENTS: and keeps events for fusor_trace_json) or stops (0); any
 *  other number is ARGUMENT. What was counted stays. Serves executables and lazy tensors of ctx, made before or after.
 *  **Errors**: ARGUMENT, MEMORY. **Threads**: any. **Cost**: of a call, with on = 1 some 60 ns a kernel; with events
 *  another 60 ns for each piece of work that a thread takes. */
enum { FUSOR_PROFILE_EVENTS = 2 };
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_profile_enable(fusor_context *ctx, int on);
/** What was counted, as a JSON document "fusor-profile/1": {"kernels": [{"function", "step", "kind", "symbol", "ops",
 *  "names", "places", "calls", "ns", "min_ns", "median_ns", "bytes", "flops", "work", "gb_s", "gflop_s", "share",
 *  "limit", "limit_share", "advice"}], "ns", "dropped", "threads", "limits", "cache": {"memory_hits", "disk_hits",
 *  "compiles"}, "pool": {"gets", "reused", "system_bytes"}, "bottleneck": [...]}, slowest first. names and places:
 *  name= and loc= (else FILE:LINE:COL) of the statements. bytes, flops and work are those of the plan's model, summed
 *  over the calls; gb_s and gflop_s are rates of the median call; share is of all steps' time; limit is what binds the
 *  kernel ("arithmetic", "L1", "L2", "L3", "memory", "call") and limit_share how near its median comes to that limit of
 *  this machine; bottleneck says in sentences where the time goes and what to do. The first document measures the
 *  machine (under a second where it is idle; kept beside the cache). Free with fusor_text_free. **Errors**: ARGUMENT,
 *  MEMORY. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_profile_json(fusor_context *ctx, char **text_out);
/** The events kept since fusor_profile_enable(ctx, FUSOR_PROFILE_EVENTS), in Chrome's trace event format (Perfetto,
 *  chrome://tracing): stages of compiles, kernels compiled or loaded, calls, kernels, and what each thread did of them.
 *  Call it while nothing of ctx runs. Free with fusor_text_free. **Errors**: ARGUMENT, MEMORY. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_trace_json(fusor_context *ctx, char **text_out);

#ifdef __cplusplus
}
#endif
#endif
