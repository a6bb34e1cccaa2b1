/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_TENSOR_H
#define FUSOR_TENSOR_H
/* fusor/tensor.h: lazy tensors. Every operator (op.h) returns a handle at once and computes nothing; fusor_eval,
 * fusor_read and the end of a scope evaluate what they need as one graph, in as few kernels as pays. One evaluation
 * takes at most 65535 numbers and tensors that are in memory; fusor_eval on the way makes it several.
 *
 * A tensor is a 16-byte value, copied freely. Every result belongs to the calling thread's innermost open scope (none
 * open: to the context). Producers are kept alive by the graph itself. fusor_keep gives the caller one reference that
 * outlives the scope, even unevaluated; fusor_release returns it. A handle used after its scope is FUSOR_ERROR_STALE
 * naming the operator that made it, never a use after free, as long as its context is there: handles that were not
 * kept end with it. Errors are sticky: an operator on a bad handle returns a bad handle; eval, read and the scope's
 * status report the first error. Tensors are immutable; fusor_assign overwrites wrapped memory when evaluated, and
 * expressions made before it read the old contents.
 * Any thread may evaluate; evaluations of one context run one after the other, and operators wait for them.
 * A fork waits, a second at most, until no other thread evaluates; the child has all tensors then. After a fork
 * within an evaluation (in a callback of this thread, or beside a longer one) those of its context are stale in the
 * child, kept ones too.
 * In a context on a CUDA device (device.h) results stay on it until they are read; an evaluation uploads the wrapped
 * memory that it reads (fusor_to_device keeps data there), and an assignment to wrapped memory of the CPU is complete
 * when it has been run. */
#include <fusor/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A handle. Its fields are fusor's. */
typedef struct fusor_tensor {
    void *owner;
    uint32_t slot, generation;
} fusor_tensor;

/** Opaque, on the caller's stack: begin and end must be in one thread, innermost first. */
typedef struct fusor_scope {
    fusor_context *ctx;
    fusor_status *status;
    uint64_t id;
    int32_t is_open, pass;
} fusor_scope;
/** Opens a scope. *status (may be NULL) gets the first error of the scope when it ends, else FUSOR_OK. */
FUSOR_API fusor_scope fusor_scope_begin(fusor_context *ctx, fusor_status *status);
/** Runs the scope's pending assignments as one graph, sets its status, drops its tensors. A second call: nothing. */
FUSOR_API void fusor_scope_end(fusor_scope *scope);
#if defined(__GNUC__) && !defined(__cplusplus)
/** FUSOR_SCOPE(ctx, &status) { ... }: ends at the brace, by break, return and goto too. C++ has fusor::scope of
 *  fusor.hpp. */
#define FUSOR_SCOPE(ctx, status)                 FUSOR_SCOPE_COUNTED_(ctx, status, __COUNTER__)
#define FUSOR_SCOPE_COUNTED_(ctx, status, count) FUSOR_SCOPE_NAMED_(ctx, status, count)
#define FUSOR_SCOPE_NAMED_(context, status_out, count)                                                                 \
    for (fusor_scope fusor_scope_##count                                                                               \
         __attribute__((cleanup(fusor_scope_end))) = fusor_scope_begin((context), (status_out));                       \
         fusor_scope_##count.pass == 0; fusor_scope_##count.pass = 1)
#endif

/** Wraps the caller's contiguous row-major memory without a copy; it stays valid and unchanged until what reads it has
 *  been evaluated. fusor_wrap may be assigned to; fusor_wrap_const is read only. **Shapes**: rank sizes at `shape`
 *  (FUSOR_SHAPE(2, 3) is both). **Ownership**: the memory stays the caller's. **Errors**: a bad handle (ARGUMENT,
 * SHAPE), reported when evaluated. **Cost**: under 1 microsecond. */
FUSOR_API fusor_tensor fusor_wrap(fusor_context *ctx, void *data, fusor_dtype dtype, int rank, const int64_t *shape);
FUSOR_API fusor_tensor fusor_wrap_const(fusor_context *ctx, const void *data, fusor_dtype dtype, int rank,
                                        const int64_t *shape);
/** Takes over memory described by a buffer (strides allowed): release(user) runs exactly once, also on failure, with no
 * lock held. */
FUSOR_API fusor_tensor fusor_adopt(fusor_context *ctx, const fusor_buffer *buffer, void (*release)(void *user),
                                   void *user);

struct DLManagedTensor; /* of dlpack.h, which fusor does not need */
/** Takes over a DLPack tensor in memory of the CPU or of the context's CUDA device, strides too, without a copy: its
 *  deleter runs exactly once, also on failure, when nothing reads it any more. What writes to a device's memory must
 *  have been waited for. **Errors**: a bad handle (UNSUPPORTED: device, type or rank; DEVICE: a device that is not the
 *  context's). */
FUSOR_API fusor_tensor fusor_from_dlpack(fusor_context *ctx, struct DLManagedTensor *managed);
/** Evaluates t and hands its memory out without a copy. The DLPack tensor holds a reference of t (and so the context)
 *  until its deleter runs, on any thread. The memory must not be written. On a device it is waited for, and what reads
 *  it must be done when the deleter runs. *out is untouched on failure. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_to_dlpack(fusor_tensor t, struct DLManagedTensor **out);

/** A weak scalar: takes the dtype of the tensors beside it, as a literal of the IR does; a kernel argument, never part
 * of a key. */
FUSOR_API fusor_tensor fusor_f(double value);
FUSOR_API fusor_tensor fusor_i(int64_t value);
FUSOR_API fusor_tensor fusor_u(uint64_t value);
FUSOR_API fusor_tensor fusor_b(int value); /* true or false: stands beside bool only */
/** One reference for the caller; the handle then outlives its scope. Returns t. */
FUSOR_API fusor_tensor fusor_keep(fusor_tensor t);
FUSOR_API void fusor_release(fusor_tensor t);
/** Names the value in explain, profiles and errors; the text is copied. Returns t. */
FUSOR_API fusor_tensor fusor_name(fusor_tensor t, const char *name);

/** Hints about which operators share a kernel; they never change a bit of any result. For lazy tensors and for values
 * of a function that is being built; in a text the same is `barrier=true` and `fuse_with=%b` on a statement.
 * fusor_barrier: t is complete in memory before anything that reads it starts, so its kernel ends there.
 * fusor_fuse_with: a and b, results of operators that are still to be computed, are computed in one kernel, also where
 * the planner would rather keep them apart. Both return their first argument. **Errors**: fusor_fuse_with: a bad handle
 * (ARGUMENT); evaluation, or the compile of the function, fails with ARGUMENT and the reason where no kernel can
 * compute both. **Cost**: under 1 microsecond. */
FUSOR_API fusor_tensor fusor_barrier(fusor_tensor t);
FUSOR_API fusor_tensor fusor_fuse_with(fusor_tensor a, fusor_tensor b);

/** Schedules writing `value` over the memory that `wrapped` wraps (dtype and shape equal): when the scope ends, or with
 * the next fusor_eval or fusor_read of this thread in the same scope. Expressions made before read the old contents,
 * later ones the new. value may be a scalar, which fills. **Errors**: ARGUMENT (not wrapped, read only, or with
 * strides), TYPE, SHAPE, those of value; when it is evaluated: OVERLAP (the memory is read or assigned as part of
 * another wrapped tensor too: wrap it once); after a failed assignment none of its scope is run, so no step is done by
 * half. */
FUSOR_API fusor_status fusor_assign(fusor_tensor wrapped, fusor_tensor value);
/** Evaluates n tensors as one graph (and pending assignments of their context); their values are then kept in memory:
 * of one that is assigned too, and that fusor_keep does not hold by then, in the memory it is assigned to, which must
 * then stay, and change by fusor_assign only, as long as that tensor is used. Of none it does nothing: no context is
 * named. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_eval(int n, const fusor_tensor *t);
/** Evaluates t and returns its contents in memory of the context's device (on the CPU in memory of fusor's own):
 *  wrapped memory is uploaded once, not by each evaluation that reads it, and may change or go. What is there already
 *  is shared, not copied. **Ownership**: as the result of an operator: fusor_keep where it outlives the scope.
 *  **Errors**: a bad handle. A number alone, or a value of a function that is being built, is returned as it is. */
FUSOR_API fusor_tensor fusor_to_device(fusor_tensor t);
/** Evaluates t and copies its elements, row-major, to dst. bytes must be exactly its size (else ARGUMENT naming it). */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_read(fusor_tensor t, void *dst, size_t bytes);
/** Evaluates t and describes its memory, which is valid as long as the handle. In a context on a device results are
 *  there: device is 1 + k and data an address of it, complete in order of the context (fusor_context_wait). */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_buffer_of(fusor_tensor t, fusor_buffer *out);
/** Dtype, rank and shape without computing anything; data is NULL. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_shape_of(fusor_tensor t, fusor_buffer *out);
/** FUSOR_OK, or the first error behind this handle. Computes nothing. */
FUSOR_API fusor_status fusor_status_of(fusor_tensor t);

#ifdef __cplusplus
}
#endif
#endif
