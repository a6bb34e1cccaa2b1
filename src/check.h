/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_SRC_CHECK_H
#define FUSOR_SRC_CHECK_H
/* FUSOR_CHECK=1: calls compared with the reference evaluator. */
#include "context.h"

/* rt_exec_call, then the same by the reference evaluator; INTERNAL when a result is further off than documented.
 * Executables with bound parameters are called without a check. */
fusor_status check_call(fusor_context *ctx, fu_error *e, rt_exec *x, int n_in, const fusor_buffer *in, int n_out,
                        fusor_buffer *out);
#endif
