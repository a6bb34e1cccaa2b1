/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* memory.c: memory of tensors on any device, and copies between them.
 *
 * A copy is a number of runs: what is contiguous on both sides. Few runs that touch a device are a copy each. Many are
 * brought together on the CPU, where the device's side is one span, with its gaps. Memory of a device that is not the
 * context's goes through the CPU, over a queue of its own. */
#include "base/small.h"
#include "memory.h"
#include "fusor/device.h"
#include "rt/buffer.h"
#include "rt/device.h"
#include "rt/exec.h"

enum { MANY_RUNS = 4096 };

/* ---- descriptions ---- */
fusor_status memory_check(fu_error *e, const char *who, const fusor_buffer *b, bool needs_data, int64_t *bytes_out) {
    if (!fusor_dtype_size((fusor_dtype)b->dtype))
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s: dtype %d is no fusor_dtype", who, b->dtype);
    if (b->rank < 0 || b->rank > FUSOR_MAX_RANK)
        return FU_FAIL(e, FUSOR_ERROR_SHAPE, "%s: rank %d; expected 0 to 8", who, b->rank);
    FU_TRY(rt_check_flags(e, who, "", b));
    int64_t bytes = (int64_t)fusor_dtype_size((fusor_dtype)b->dtype);
    bool is_empty = false, overflows = false;
    for (int d = 0; d < b->rank; d++) {
        if (b->shape[d] < 0)
            return FU_FAIL(e, FUSOR_ERROR_SHAPE, "%s: dim %d is %lld; a size must not be negative", who, d,
                           (long long)b->shape[d]);
        is_empty |= b->shape[d] == 0;
        overflows |= __builtin_mul_overflow(bytes, b->shape[d], &bytes);
    }
    if (is_empty) bytes = 0;
    else if (overflows) return FU_FAIL(e, FUSOR_ERROR_SHAPE, "%s: the bytes of the tensor overflow 64 bits", who);
    if (needs_data && bytes && !b->data)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s: data is NULL but the tensor is not empty", who);
    if (needs_data && bytes && (uintptr_t)b->data % fusor_dtype_size((fusor_dtype)b->dtype))
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s: data is not aligned to its element size, %d bytes", who,
                       (int)fusor_dtype_size((fusor_dtype)b->dtype));
    if (bytes_out) *bytes_out = bytes;
    return FUSOR_OK;
}

fusor_status memory_check_device(fu_error *e, const char *who, const fusor_context *ctx, int32_t device) {
    if (device == 0 || (ctx->device && device == ctx->device)) return FUSOR_OK;
    if (!ctx->device && ctx->option_status != FUSOR_OK)
        return FU_FAIL(e, ctx->option_status, "%s: %s", who, ctx->option_error);
    if (!ctx->device)
        return FU_FAIL(
            e, FUSOR_ERROR_DEVICE,
            "%s: device %d, and the context runs on the CPU; expected 0, the CPU (a context of device \"cuda:%d\" has "
            "device %d)",
            who, device, device > 0 ? device - 1 : 0, device > 0 ? device : 1);
    return FU_FAIL(e, FUSOR_ERROR_DEVICE, "%s: device %d; expected 0, the CPU, or %d, the context's cuda:%d", who,
                   device, ctx->device, ctx->device - 1);
}

/* ---- life ---- */
static void give_to_queue(void *queue, void *p, size_t bytes) {
    (void)bytes;
    rt_queue_put(queue, (rt_address)(uintptr_t)p);
}

fusor_status memory_get(fusor_context *ctx, fu_error *e, fusor_buffer *b) {
    int64_t bytes = 0;
    rt_address at = 0;
    FU_TRY(memory_check(e, "memory", b, false, &bytes));
    if (!b->device) {
        void *p = rt_buffer_get(&ctx->exec, (size_t)bytes);
        if (!p) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for %lld bytes", (long long)bytes);
        b->data = p;
        return FUSOR_OK;
    }
    FU_TRY(memory_check_device(e, "memory", ctx, b->device));
    FU_TRY(rt_queue_get(ctx->queue, e, (size_t)bytes, &at));
    if (!rt_buffer_note((void *)(uintptr_t)at, (size_t)bytes, give_to_queue, ctx->queue)) {
        rt_queue_put(ctx->queue, at);
        return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for the note of a buffer");
    }
    b->data = (void *)(uintptr_t)at;
    return FUSOR_OK;
}

void memory_put(fusor_context *ctx, const fusor_buffer *b) { rt_buffer_release(&ctx->exec, b->data); }

/* ---- runs ---- */
/* What is left of the dims: outer ones with strides in bytes, then runs. */
typedef struct runs {
    int n_dims;
    int64_t n[FUSOR_MAX_RANK], from[FUSOR_MAX_RANK], to[FUSOR_MAX_RANK];
    int64_t n_runs, run_bytes, from_low, from_high, to_low, to_high; /* low, high: offsets of the bytes touched */
} runs;

static int64_t row_stride(const fusor_buffer *b, int d) {
    int64_t s = 1;
    if (b->flags & FUSOR_STRIDED) return b->stride[d];
    for (int k = d + 1; k < b->rank; k++) s *= b->shape[k];
    return s;
}

static fusor_status find_runs(fu_error *e, const fusor_buffer *from, const fusor_buffer *to, runs *r) {
    const int64_t each = (int64_t)fusor_dtype_size((fusor_dtype)from->dtype);
    *r = (runs){.n_runs = 1, .run_bytes = each};
    bool overflows = false;
    for (int d = 0; d < from->rank; d++) {
        int64_t a = 0, b = 0, reach = 0;
        if (from->shape[d] == 1) continue;
        overflows |= __builtin_mul_overflow(row_stride(from, d), each, &a) ||
                     __builtin_mul_overflow(row_stride(to, d), each, &b);
        overflows |= __builtin_mul_overflow(a, from->shape[d] - 1, &reach);
        overflows |= __builtin_add_overflow(reach < 0 ? r->from_low : r->from_high, reach,
                                            reach < 0 ? &r->from_low : &r->from_high);
        overflows |= __builtin_mul_overflow(b, from->shape[d] - 1, &reach);
        overflows |=
            __builtin_add_overflow(reach < 0 ? r->to_low : r->to_high, reach, reach < 0 ? &r->to_low : &r->to_high);
        if (overflows) return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "the strides leave the address space");
        int last = r->n_dims - 1;
        if (last >= 0 && r->from[last] == a * from->shape[d] && r->to[last] == b * from->shape[d]) {
            r->n[last] *= from->shape[d]; /* one dim on both sides */
            r->from[last] = a;
            r->to[last] = b;
        } else {
            r->n[r->n_dims] = from->shape[d];
            r->from[r->n_dims] = a;
            r->to[r->n_dims++] = b;
        }
    }
    r->from_high += each;
    r->to_high += each;
    if (r->n_dims && r->from[r->n_dims - 1] == each && r->to[r->n_dims - 1] == each) r->run_bytes *= r->n[--r->n_dims];
    for (int d = 0; d < r->n_dims; d++) r->n_runs *= r->n[d];
    return FUSOR_OK;
}

/* Offsets of the next run; false after the last. */
static bool next_run(const runs *r, int64_t at[FUSOR_MAX_RANK], int64_t *from, int64_t *to) {
    for (int d = r->n_dims - 1; d >= 0; d--) {
        *from += r->from[d];
        *to += r->to[d];
        if (++at[d] < r->n[d]) return true;
        *from -= r->from[d] * r->n[d];
        *to -= r->to[d] * r->n[d];
        at[d] = 0;
    }
    return false;
}

static void copy_on_cpu(const runs *r, const char *from, char *to) {
    int64_t at[FUSOR_MAX_RANK] = {0}, a = 0, b = 0;
    do memcpy(to + b, from + a, (size_t)r->run_bytes);
    while (next_run(r, at, &a, &b));
}

static fusor_status copy_runs(fu_error *e, rt_queue *q, const runs *r, const fusor_buffer *from,
                              const fusor_buffer *to) {
    int64_t at[FUSOR_MAX_RANK] = {0}, a = 0, b = 0;
    const size_t bytes = (size_t)r->run_bytes;
    fusor_status s = FUSOR_OK;
    do {
        const char *source = (const char *)from->data + a;
        char *dest = (char *)to->data + b;
        const rt_address f = (rt_address)(uintptr_t)source, t = (rt_address)(uintptr_t)dest;
        s = !from->device ? rt_queue_upload(q, e, t, source, bytes)
            : !to->device ? rt_queue_download_later(q, e, dest, f, bytes)
                          : rt_queue_copy(q, e, t, f, bytes);
    } while (s == FUSOR_OK && next_run(r, at, &a, &b));
    if (to->device) return s;
    const fusor_status w = rt_queue_wait(q, e); /* after a failure too: nothing may arrive later */
    return s == FUSOR_OK ? w : s;
}

/* ---- copies ---- */
static fusor_buffer dense_copy(const fusor_buffer *b, void *data) {
    fusor_buffer dense = *b;
    dense.flags = 0;
    dense.device = 0;
    dense.data = data;
    return dense;
}

/* Many runs between the CPU and one span of the device. */
static fusor_status copy_span(fusor_context *ctx, fu_error *e, rt_queue *q, const runs *r, const fusor_buffer *from,
                              const fusor_buffer *to) {
    const bool is_upload = to->device != 0;
    const int64_t low = is_upload ? r->to_low : r->from_low, high = is_upload ? r->to_high : r->from_high;
    const size_t bytes = (size_t)(high - low);
    char *span = rt_memory_get(&ctx->exec, bytes);
    if (!span) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a copy of %zu bytes", bytes);
    const rt_address at = (rt_address)(uintptr_t)(is_upload ? to->data : from->data) + (uint64_t)low;
    fusor_status s = rt_queue_download(q, e, span, at, bytes); /* of an upload: what is in the gaps */
    if (s == FUSOR_OK) copy_on_cpu(r, is_upload ? from->data : span - low, is_upload ? span - low : (char *)to->data);
    if (s == FUSOR_OK && is_upload) s = rt_queue_upload(q, e, at, span, bytes);
    rt_memory_put(&ctx->exec, span, bytes);
    return s;
}

/* A queue for memory of this device: the context's, or *made_out, for one copy. */
static fusor_status queue_of(fusor_context *ctx, fu_error *e, int32_t device, rt_queue **out, rt_queue **made_out) {
    rt_device *d;
    *made_out = NULL;
    if (device == ctx->device && ctx->queue) return *out = ctx->queue, FUSOR_OK;
    if (device < 0) return FU_FAIL(e, FUSOR_ERROR_DEVICE, "device %d; expected 0 or more", device);
    FU_TRY(rt_device_open(e, device - 1, &d));
    FU_TRY(rt_queue_new(d, e, made_out));
    *out = *made_out;
    return FUSOR_OK;
}

/* One side at most is a device. */
static fusor_status copy_one(fusor_context *ctx, fu_error *e, const runs *r, const fusor_buffer *from,
                             const fusor_buffer *to) {
    const int32_t device = from->device ? from->device : to->device;
    rt_queue *q = NULL, *made = NULL;
    if (!device) return copy_on_cpu(r, from->data, to->data), FUSOR_OK;
    FU_TRY(queue_of(ctx, e, device, &q, &made));
    const int64_t span = to->device ? r->to_high - r->to_low : r->from_high - r->from_low;
    const bool is_span = r->n_runs > MANY_RUNS && span / 16 <= r->n_runs * r->run_bytes;
    fusor_status s = is_span ? copy_span(ctx, e, q, r, from, to) : copy_runs(e, q, r, from, to);
    if (made && s == FUSOR_OK) s = rt_queue_wait(made, e); /* nobody could wait for it later */
    rt_queue_free(made);
    return s;
}

static fusor_status copy_by_cpu(fusor_context *ctx, fu_error *e, const fusor_buffer *from, const fusor_buffer *to) {
    int64_t bytes = 0;
    runs r;
    FU_TRY(memory_check(e, "copy", from, false, &bytes));
    void *memory = rt_memory_get(&ctx->exec, (size_t)bytes);
    if (!memory) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a copy of %lld bytes", (long long)bytes);
    fusor_buffer dense = dense_copy(from, memory);
    fusor_status s = find_runs(e, from, &dense, &r);
    if (s == FUSOR_OK) s = copy_one(ctx, e, &r, from, &dense);
    if (s == FUSOR_OK) s = find_runs(e, &dense, to, &r);
    if (s == FUSOR_OK) s = copy_one(ctx, e, &r, &dense, to);
    rt_memory_put(&ctx->exec, memory, (size_t)bytes);
    return s;
}

fusor_status memory_copy(fusor_context *ctx, fu_error *e, const fusor_buffer *from, const fusor_buffer *to) {
    runs r;
    for (int d = 0; d < from->rank; d++)
        if (from->shape[d] == 0) return FUSOR_OK;
    FU_TRY(find_runs(e, from, to, &r));
    if (!from->device || !to->device) return copy_one(ctx, e, &r, from, to);
    if (from->device == to->device && from->device == ctx->device && r.n_runs <= MANY_RUNS)
        return copy_runs(e, ctx->queue, &r, from, to);
    return copy_by_cpu(ctx, e, from, to);
}

fusor_status memory_read(fusor_context *ctx, fu_error *e, const fusor_buffer *from, void *to) {
    fusor_buffer dense = dense_copy(from, to);
    int64_t bytes = 0;
    FU_TRY(memory_check(e, "read", from, false, &bytes));
    FU_TRY(memory_copy(ctx, e, from, &dense));
    uint8_t *p = to;
    if (from->dtype == FUSOR_BOOL) /* the caller's bytes may be any; what comes out is 0 or 1 */
        for (int64_t i = 0; i < bytes; i++) p[i] = p[i] != 0;
    return FUSOR_OK;
}

/* ---- entry points: device.h ---- */
fusor_status fusor_buffer_new(fusor_context *ctx, fusor_buffer *buffer) {
    fu_error e;
    if (!ctx) return context_refuse("fusor_buffer_new: the context is NULL");
    fu_error_clear(&e);
    if (!buffer) {
        (void)FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_buffer_new: the buffer is NULL");
    } else if (buffer->flags & FUSOR_STRIDED) {
        (void)FU_FAIL(&e, FUSOR_ERROR_ARGUMENT,
                      "fusor_buffer_new: the buffer has strides; expected none: new memory is contiguous");
    } else if (memory_check(&e, "fusor_buffer_new", buffer, false, NULL) == FUSOR_OK &&
               memory_check_device(&e, "fusor_buffer_new", ctx, buffer->device) == FUSOR_OK) {
        fusor_buffer made = *buffer;
        if (memory_get(ctx, &e, &made) == FUSOR_OK) *buffer = made;
    }
    return context_fail(ctx, &e);
}

static bool is_same_place(const fusor_buffer *a, const fusor_buffer *b) {
    bool is_same = a->data == b->data;
    for (int d = 0; d < a->rank; d++) is_same = is_same && (a->shape[d] == 1 || row_stride(a, d) == row_stride(b, d));
    return is_same;
}

static fusor_status check_copy(fu_error *e, const fusor_buffer *from, const fusor_buffer *to) {
    int64_t bytes = 0;
    runs r;
    FU_TRY(memory_check(e, "fusor_buffer_copy: from", from, true, &bytes));
    FU_TRY(memory_check(e, "fusor_buffer_copy: to", to, true, NULL));
    if (from->dtype != to->dtype)
        return FU_FAIL(e, FUSOR_ERROR_TYPE, "fusor_buffer_copy: from is %s but to is %s; expected one dtype",
                       fusor_dtype_name((fusor_dtype)from->dtype), fusor_dtype_name((fusor_dtype)to->dtype));
    if (from->rank != to->rank)
        return FU_FAIL(e, FUSOR_ERROR_SHAPE, "fusor_buffer_copy: from has rank %d but to has rank %d", from->rank,
                       to->rank);
    for (int d = 0; d < from->rank; d++)
        if (from->shape[d] != to->shape[d])
            return FU_FAIL(e, FUSOR_ERROR_SHAPE, "fusor_buffer_copy: dim %d is %lld in from but %lld in to", d,
                           (long long)from->shape[d], (long long)to->shape[d]);
    if (to->flags & FUSOR_READONLY) return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "fusor_buffer_copy: to is read only");
    if (!bytes) return FUSOR_OK;
    FU_TRY(find_runs(e, from, to, &r));
    if (rt_buffer_overlaps_itself(to))
        return FU_FAIL(e, FUSOR_ERROR_OVERLAP,
                       "fusor_buffer_copy: to overlaps itself: two of its elements share memory");
    if (from->device == to->device && !is_same_place(from, to) && rt_buffers_overlap(from, to))
        return FU_FAIL(e, FUSOR_ERROR_OVERLAP, "fusor_buffer_copy: from and to share bytes");
    return FUSOR_OK;
}

fusor_status fusor_buffer_copy(fusor_context *ctx, const fusor_buffer *from, const fusor_buffer *to) {
    fu_error e;
    if (!ctx) return context_refuse("fusor_buffer_copy: the context is NULL");
    fu_error_clear(&e);
    if (!from || !to) (void)FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_buffer_copy: from and to must not be NULL");
    else if (check_copy(&e, from, to) == FUSOR_OK && (from->device != to->device || !is_same_place(from, to)))
        (void)memory_copy(ctx, &e, from, to);
    return context_fail(ctx, &e);
}
