/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_SRC_START_H
#define FUSOR_SRC_START_H
/* No cold start: FUSOR_START_UNFUSED. A program whose fused kernels are in no cache runs at once on kernels of one
 * operator each, from the bundle that was made with fusor, while a thread compiles the fused ones; then calls change
 * over. Same bits either way. The bundle is opened by the first program that needs it; without one, programs start as
 * ever. */
#include "context.h"

void start_close(fusor_context *ctx);
/* True: *out runs the plan's function unfused, and its fused kernels are still to be compiled. False: nothing was
 * done. */
bool start_unfused(fu_arena *arena, fu_error *e, const compile_request *r, const ir_plan *plan,
                   const rt_exec_options *options, rt_exec **out);
/* Begins to compile the fused program, with what is bound to the interim one; NULL: there is no thread for it, and exe
 * stays as it is. Counted: the executable and the thread. */
struct start_job *start_compile(const compile_request *r, rt_exec *interim);
void start_drop(struct start_job *job);
/* What a call of exe runs now; borrowed from exe. */
rt_exec *start_exec(const fusor_executable *exe);
/* Waits until the fused program is there, or failed: for uses that stay with what they got. */
void start_wait(const fusor_executable *exe);
#endif
