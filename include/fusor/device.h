/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_DEVICE_H
#define FUSOR_DEVICE_H
/* fusor/device.h: devices beside the CPU: which there are, memory on them, copies between them.
 *
 * A context runs on one device, which fusor_context_options.device (or FUSOR_DEVICE) names: "cpu", "cuda" (the first),
 * "cuda:1" ... The numbers in fusor_buffer.device are 0 for the CPU and 1 + k for CUDA device k. A call may mix
 * buffers: inputs of the CPU are uploaded by the call, those of the context's device are read where they are; outputs
 * in memory of the CPU are complete when the call returns, those on the device follow in order: each call and copy of a
 * context sees what was asked for before it, and fusor_context_wait waits for all of it. So results that stay on the
 * device cost no waiting and no copy. No part of the CUDA toolkit is needed: the driver's libcuda.so.1 is looked for
 * when a device is first named. */
#include <fusor/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Number of CUDA devices; where it is 0, fusor_error_message(NULL) says why. **Threads**: any. **Cost**: the driver's
 *  start, some 100 ms, once in a process. */
FUSOR_API int fusor_device_count(void);

/** What a device is. size: sizeof(fusor_device_info), set by the caller (FUSOR_DEVICE_INFO_INIT). */
typedef struct fusor_device_info {
    size_t  size;
    char    name[128];              /* "NVIDIA H200"; "CPU" */
    char    target[32];             /* what kernels are made for: "sm_90a", "x86-64-v4+vnni" */
    int32_t compute_capability;     /* 90 for 9.0; CPU: 0 */
    int32_t multiprocessors;        /* CPU: threads that a context takes by default */
    int64_t memory_bytes;           /* CPU: 0 */
} fusor_device_info;
#define FUSOR_DEVICE_INFO_INIT { sizeof(fusor_device_info), "", "", 0, 0, 0 }
/** Describes device 0 (the CPU) or 1 + k (CUDA device k). **Errors**: DEVICE (no such device, no driver;
 *  fusor_error_message(NULL) says which). **Threads**: any. **Cost**: as fusor_device_count. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_device_describe(int32_t device, fusor_device_info *out);

/** Which device the context runs on, as in fusor_buffer.device: 0 for the CPU and the reference evaluator; with "auto"
 *  the CUDA device that may be chosen, 0 where there is none. **Errors**: that of the context's options, which every
 *  compile would report: DEVICE, ARGUMENT. **Threads**: any. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_context_device(fusor_context *ctx, int32_t *device_out);

/** Waits until everything that was asked of the context's device is done. Nothing to do on the CPU. **Errors**: DEVICE:
 *  of that work.
 *  **Threads**: any. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_context_wait(fusor_context *ctx);

/** Memory for a contiguous tensor: dtype, rank, shape and device of *buffer are given, data is set. Its contents are
 *  unspecified. **Ownership**: fusor_buffer_free gives it back, in order on a device: what was asked for before may
 *  still use it. A device's memory ends with its context. **Errors**: ARGUMENT, SHAPE; DEVICE (neither 0 nor the
 *  context's device); MEMORY, with bytes wanted and free. *buffer is untouched on failure. **Threads**: any. **Cost**:
 *  1 microsecond from the pool of memory given back. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_buffer_new(fusor_context *ctx, fusor_buffer *buffer);

/** Copies a tensor, between any two devices, strides allowed on both sides. **Shapes**, **Types**: equal. `from` may
 *  change when this returns; `to` is complete then in memory of the CPU, on a device in order. Memory of a device that
 *  is not the context's must not have work pending.
 *  **Errors**: ARGUMENT (READONLY, NULL data), TYPE, SHAPE, OVERLAP (not the same memory, but a part of it), DEVICE,
 *  MEMORY. **Threads**: any.
 *  **Cost**: contiguous ones, and rows, at the speed of the bus; scattered elements of a device's memory through the
 *  CPU's. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_buffer_copy(fusor_context *ctx, const fusor_buffer *from,
                                                          const fusor_buffer *to);

#ifdef __cplusplus
}
#endif
#endif
