/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_SRC_MEMORY_H
#define FUSOR_SRC_MEMORY_H
/* Memory of tensors on any device, for callers and lazy tensors; and copies between them. */
#include "context.h"

/* Is the description one of a tensor? Errors: ARGUMENT (dtype, NULL data where it needs some), SHAPE. *bytes_out (may
 * be NULL): of the elements, without gaps. */
fusor_status memory_check(fu_error *e, const char *who, const fusor_buffer *b, bool needs_data, int64_t *bytes_out);
/* May calls of the context be given memory of this device? Errors: DEVICE. */
fusor_status memory_check_device(fu_error *e, const char *who, const fusor_context *ctx, int32_t device);
/* Sets b->data (contiguous) on b->device, which is 0 or the context's. memory_put leaves foreign memory alone. */
fusor_status memory_get(fusor_context *ctx, fu_error *e, fusor_buffer *b);
void memory_put(fusor_context *ctx, const fusor_buffer *b);
/* Equal dtypes and shapes. `to` is complete when this returns where it is the CPU's, else in order of the context's
 * queue. */
fusor_status memory_copy(fusor_context *ctx, fu_error *e, const fusor_buffer *from, const fusor_buffer *to);
/* The same into contiguous memory of the CPU; bool elements become 0 or 1. */
fusor_status memory_read(fusor_context *ctx, fu_error *e, const fusor_buffer *from, void *to);
#endif
