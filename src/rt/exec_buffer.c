/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* exec_buffer.c: the caller's buffers: checks, overlaps, strided copies, memory of results. */
#include "rt/exec_device.h"
#include "rt/exec_internal.h"
#include "rt/buffer.h"
#include <stdlib.h>

#define OVERLAP_MAX_BITS ((size_t)1 << 33) /* interleaved buffers over more bytes than this count as overlapping */

static const char *type_name(int32_t t) { return t > 0 && t < IR_DTYPE_COUNT ? ir_dtypes[t].name : "no dtype"; }

static int64_t count_of(const fusor_buffer *b) {
    int64_t n = 1;
    for (int d = 0; d < b->rank; d++) n *= b->shape[d];
    return n;
}

static void fill_strides(fusor_buffer *b) {
    uint64_t n = 1; /* may wrap where another size is 0 */
    for (int d = b->rank - 1; d >= 0; d--) {
        b->stride[d] = (int64_t)n;
        n *= b->shape[d] > 0 ? (uint64_t)b->shape[d] : 1;
    }
}

/* Without the product of the sizes: it may not fit 64 bits, which binding the sizes reports. */
static bool is_empty(const fusor_buffer *b) {
    for (int d = 0; d < b->rank; d++)
        if (b->shape[d] == 0) return true;
    return false;
}

/* Strides of dims of size 1 do not matter. */
static bool is_dense(const fusor_buffer *b) {
    int64_t n = 1;
    for (int d = b->rank - 1; d >= 0; d--) {
        if (b->shape[d] != 1 && b->stride[d] != n) return false;
        n *= b->shape[d];
    }
    return true;
}

bool rt_find_range(const fusor_buffer *b, int64_t *low, int64_t *high) {
    const int64_t limit = INT64_MAX / 16;
    *low = *high = 0;
    for (int d = 0; d < b->rank; d++) {
        int64_t reach;
        if (b->shape[d] <= 1) continue;
        if (__builtin_mul_overflow(b->shape[d] - 1, b->stride[d], &reach) ||
            (reach < 0 ? __builtin_add_overflow(*low, reach, low) : __builtin_add_overflow(*high, reach, high)))
            return false;
    }
    return *low >= -limit && *high <= limit;
}

/* Range of bytes, strides made explicit. False where an offset leaves 64 bits. */
static bool measure(call_end *n, size_t bytes) {
    fusor_buffer *b = &n->user;
    if (!(b->flags & FUSOR_STRIDED)) fill_strides(b);
    int64_t low, high;
    n->low = n->high = b->data;
    n->is_dense = true;
    if (is_empty(b)) return true;
    if (!rt_find_range(b, &low, &high)) return false;
    n->is_dense = is_dense(b);
    if (b->data) {
        n->low = (char *)b->data + low * (int64_t)bytes;
        n->high = (char *)b->data + (high + 1) * (int64_t)bytes;
    }
    return true;
}

bool exec_measure(call_end *n) { return measure(n, ir_dtypes[n->user.dtype].bytes); }

fusor_status rt_check_flags(fu_error *e, const char *who, const char *name, const fusor_buffer *b) {
    if (!(b->flags & ~(uint32_t)(FUSOR_STRIDED | FUSOR_READONLY))) return FUSOR_OK;
    return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s%s: flags 0x%x; expected FUSOR_STRIDED, FUSOR_READONLY", who, name,
                   (unsigned)b->flags);
}

fusor_status exec_check_input(const core *c, fu_error *e, int p, const fusor_buffer *b, bool needs_data,
                              call_end *out) {
    const ir_plan_buffer *want = &c->plan->buffers.at[p];
    const char *name = c->plan->graph->params.at[p].name;
    if (b->dtype != want->dtype)
        return FU_FAIL(e, FUSOR_ERROR_TYPE, "input %%%s is %s; expected %s", name, type_name(b->dtype),
                       ir_dtypes[want->dtype].name);
    if (b->rank != want->rank)
        return FU_FAIL(e, FUSOR_ERROR_SHAPE, "input %%%s has rank %d; expected %d", name, (int)b->rank, want->rank);
    if (b->device != 0 && !exec_device_takes(c, b))
        return FU_FAIL(e, FUSOR_ERROR_DEVICE, "input %%%s is on device %d; expected %s", name, (int)b->device,
                       exec_device_expected(c));
    for (int d = 0; d < b->rank; d++)
        if (b->shape[d] < 0)
            return FU_FAIL(e, FUSOR_ERROR_SHAPE, "input %%%s: dim %d is %lld; a size must not be negative", name, d,
                           (long long)b->shape[d]);
    FU_TRY(rt_check_flags(e, "input %", name, b));
    size_t bytes = ir_dtypes[want->dtype].bytes;
    out->user = *b;
    out->is_device = exec_device_is_own(c, b);
    if (!needs_data) return FUSOR_OK;
    if (is_empty(b)) return FUSOR_OK;
    if (!b->data) return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "input %%%s has no data", name);
    if ((uintptr_t)b->data % bytes)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "input %%%s: data is not aligned to its element size, %zu bytes", name,
                       bytes);
    return FUSOR_OK;
}

/* ---- strided copies ---- */
typedef void (*line_fn)(char *a, char *b, int64_t n, int64_t stride);
#define LINES(T)                                                                                                       \
    static void gather_##T(char *a, char *b, int64_t n, int64_t stride) {                                              \
        for (int64_t i = 0; i < n; i++) ((T *)a)[i] = ((T *)b)[i * stride];                                            \
    }                                                                                                                  \
    static void scatter_##T(char *a, char *b, int64_t n, int64_t stride) {                                             \
        for (int64_t i = 0; i < n; i++) ((T *)b)[i * stride] = ((T *)a)[i];                                            \
    }
LINES(uint8_t)
LINES(uint16_t)
LINES(uint32_t)
LINES(uint64_t)

/* a is contiguous and moves on; b is strided. */
static char *walk(char *a, char *b, const fusor_buffer *layout, int d, size_t bytes, line_fn line) {
    int64_t n = layout->shape[d];
    if (d + 1 == layout->rank) {
        line(a, b, n, layout->stride[d]);
        return a + n * (int64_t)bytes;
    }
    for (int64_t i = 0; i < n; i++) a = walk(a, b + i * layout->stride[d] * (int64_t)bytes, layout, d + 1, bytes, line);
    return a;
}

static void copy_strided(void *dense, const fusor_buffer *b, size_t bytes, bool is_gather) {
    static const line_fn gathers[9] = {
        [1] = gather_uint8_t, [2] = gather_uint16_t, [4] = gather_uint32_t, [8] = gather_uint64_t};
    static const line_fn scatters[9] = {
        [1] = scatter_uint8_t, [2] = scatter_uint16_t, [4] = scatter_uint32_t, [8] = scatter_uint64_t};
    if (count_of(b) == 0) return;
    if (b->rank == 0 || is_dense(b)) {
        size_t all = (size_t)count_of(b) * bytes;
        if (is_gather) memcpy(dense, b->data, all);
        else memcpy(b->data, dense, all);
        return;
    }
    walk(dense, b->data, b, 0, bytes, is_gather ? gathers[bytes] : scatters[bytes]);
}

void exec_gather(void *dst, const fusor_buffer *src, size_t bytes) {
    fusor_buffer b = *src;
    if (!(b.flags & FUSOR_STRIDED)) fill_strides(&b);
    copy_strided(dst, &b, bytes, true);
}

void exec_scatter(const fusor_buffer *dst, const void *src, size_t bytes) {
    fusor_buffer b = *dst;
    if (!(b.flags & FUSOR_STRIDED)) fill_strides(&b);
    copy_strided((void *)src, &b, bytes, false);
}

void exec_normalize_bool(uint8_t *p, int64_t n) {
    for (int64_t i = 0; i < n; i++) p[i] = p[i] != 0;
}

/* ---- inputs ---- */
static fusor_status make_staging(const core *c, fu_error *e, call_end *n, int64_t bytes) {
    if (n->staging && n->staging_bytes >= (size_t)bytes) return FUSOR_OK;
    rt_memory_put(&c->options, n->staging, n->staging_bytes);
    n->staging_bytes = 0;
    n->staging = rt_memory_get(&c->options, (size_t)bytes);
    if (!n->staging) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a copy of %lld bytes", (long long)bytes);
    n->staging_bytes = (size_t)bytes;
    return FUSOR_OK;
}

fusor_status exec_stage_inputs(frame *f, fu_error *e) {
    const core *c = f->x->core;
    for (int p = 0; p < c->n_params; p++) {
        if (f->x->bound[p]) continue;
        call_end *n = &f->in[p];
        if (!measure(n, ir_dtypes[n->user.dtype].bytes))
            return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "input %%%s: its strides leave the address space",
                           c->plan->graph->params.at[p].name);
        n->is_staged = !n->is_device && (!n->is_dense || c->normalizes[p] || n->user.device);
        if (n->is_staged) FU_TRY(make_staging(c, e, n, f->bytes[p]));
        exec_aim_end(f, p, n);
    }
    return FUSOR_OK;
}

void exec_copy_in(frame *f) {
    const core *c = f->x->core;
    for (int p = 0; p < c->n_params; p++) {
        call_end *n = &f->in[p];
        if (f->x->bound[p] || !n->is_staged) continue;
        if (!n->user.device) /* else it is there: exec_device_run.c fetched it */
            copy_strided(n->staging, &n->user, ir_dtypes[n->user.dtype].bytes, true);
        if (c->normalizes[p]) exec_normalize_bool(n->staging, f->count[p]);
    }
}

void exec_copy_out(frame *f) {
    const core *c = f->x->core;
    for (int r = 0; r < c->n_results; r++)
        if (f->out[r].is_staged && !f->out[r].user.device)
            copy_strided(f->out[r].staging, &f->out[r].user, ir_dtypes[f->out[r].user.dtype].bytes, false);
}

/* ---- overlaps ---- */
/* Offset of the first byte of each element in turn; false after the last. */
static bool next_index(const fusor_buffer *b, int64_t *index, int64_t *offset) {
    for (int d = b->rank - 1; d >= 0; d--) {
        if (++index[d] < b->shape[d]) {
            *offset += b->stride[d];
            return true;
        }
        *offset -= b->stride[d] * (index[d] - 1);
        index[d] = 0;
    }
    return false;
}

/* Goes through the bytes of n that lie in [low, high). MARK: marks them; an input may have a byte in many places.
 * MARK_ONCE: the same, until one was marked before: true. LOOK: is one marked? */
typedef enum marking { MARK, MARK_ONCE, LOOK } marking;
static bool mark(const call_end *n, size_t bytes, char *low, char *high, uint64_t *bits, marking how) {
    int64_t index[8] = {0}, offset = 0;
    do {
        char *p = (char *)n->user.data + offset * (int64_t)bytes;
        for (size_t i = 0; i < bytes; i++) {
            if (p + i < low || p + i >= high) continue;
            size_t bit = (size_t)(p + i - low);
            if (how != MARK && bits[bit / 64] >> (bit % 64) & 1) return true;
            if (how != LOOK) bits[bit / 64] |= UINT64_C(1) << (bit % 64);
        }
    } while (next_index(&n->user, index, &offset));
    return false;
}

/* Bytes in a row from n->low on; the others lie multiples of *period past them. */
static uint64_t row_bytes(const call_end *n, size_t bytes, uint64_t *period) {
    const fusor_buffer *b = &n->user;
    uint64_t row = 1;
    bool is_in_row[8] = {false};
    for (int d = b->rank - 1; d >= 0; d--) /* rows are inner dims, but for transposed ones: those are looked at */
        if (b->shape[d] == 1 || (uint64_t)llabs(b->stride[d]) == row) {
            is_in_row[d] = true;
            row *= (uint64_t)b->shape[d];
        }
    for (int d = 0; d < b->rank; d++)
        for (uint64_t s = is_in_row[d] ? 0 : (uint64_t)llabs(b->stride[d]) * bytes, t; s; s = t) {
            t = *period % s;
            *period = s;
        }
    return row * bytes;
}

/* Columns beside columns, odd beside even elements: the rows of one lie between those of the other. */
static bool lie_between(const call_end *a, size_t a_bytes, const call_end *b, size_t b_bytes) {
    uint64_t period = 0;
    const uint64_t a_row = row_bytes(a, a_bytes, &period), b_row = row_bytes(b, b_bytes, &period);
    if (!period) return false;
    const uint64_t ahead = b->low >= a->low ? (uint64_t)(b->low - a->low) % period
                                            : (period - (uint64_t)(a->low - b->low) % period) % period;
    return ahead >= a_row && ahead + b_row <= period;
}

static bool overlaps(const call_end *a, size_t a_bytes, const call_end *b, size_t b_bytes) {
    char *low = a->low > b->low ? a->low : b->low, *high = a->high < b->high ? a->high : b->high;
    if (low >= high) return false;
    if (a->is_dense && b->is_dense) return true;
    if (lie_between(a, a_bytes, b, b_bytes)) return false;
    /* Interleaved in another way: the answer is exact, at the price of looking at every element. */
    size_t span = (size_t)(high - low);
    uint64_t *bits = span > OVERLAP_MAX_BITS ? NULL : fu_calloc(span / 64 + 1, sizeof *bits);
    if (!bits) return true;
    (void)mark(a, a_bytes, low, high, bits, MARK);
    bool found = mark(b, b_bytes, low, high, bits, LOOK);
    fu_free(bits);
    return found;
}

bool exec_ends_overlap(const call_end *a, const call_end *b) {
    return overlaps(a, ir_dtypes[a->user.dtype].bytes, b, ir_dtypes[b->user.dtype].bytes);
}

static bool overlaps_itself(const call_end *n, size_t bytes) {
    if (n->is_dense || n->low >= n->high) return false;
    /* Sorted by stride, each step past everything inside it: no two elements meet. */
    int order[8], m = 0;
    for (int d = 0; d < n->user.rank; d++)
        if (n->user.shape[d] > 1) order[m++] = d;
    for (int i = 1; i < m; i++)
        for (int j = i; j > 0 && llabs(n->user.stride[order[j]]) < llabs(n->user.stride[order[j - 1]]); j--) {
            int t = order[j];
            order[j] = order[j - 1];
            order[j - 1] = t;
        }
    int64_t extent = 1;
    bool is_plain = true;
    for (int i = 0; i < m; i++) {
        int64_t stride = llabs(n->user.stride[order[i]]);
        if (stride == 0) return true;
        if (stride < extent) is_plain = false;
        extent += stride * (n->user.shape[order[i]] - 1);
    }
    if (is_plain) return false;
    size_t span = (size_t)(n->high - n->low);
    uint64_t *bits = span > OVERLAP_MAX_BITS ? NULL : fu_calloc(span / 64 + 1, sizeof *bits);
    if (!bits) return true;
    bool found = mark(n, bytes, n->low, n->high, bits, MARK_ONCE);
    fu_free(bits);
    return found;
}

bool exec_overlaps_itself(const call_end *n) { return overlaps_itself(n, ir_dtypes[n->user.dtype].bytes); }

static call_end end_of(const fusor_buffer *b) {
    call_end end = {.user = *b};
    (void)exec_measure(&end);
    return end;
}

bool rt_buffers_overlap(const fusor_buffer *a, const fusor_buffer *b) {
    const call_end x = end_of(a), y = end_of(b);
    return exec_ends_overlap(&x, &y);
}

bool rt_buffer_overlaps_itself(const fusor_buffer *b) {
    const call_end end = end_of(b);
    return exec_overlaps_itself(&end);
}

/* ---- outputs ---- */
void exec_fill_shape(const frame *f, int result, fusor_buffer *out) {
    const core *c = f->x->core;
    int b = c->n_params + result;
    out->dtype = c->plan->buffers.at[b].dtype;
    out->rank = c->plan->buffers.at[b].rank;
    memcpy(out->shape, f->dim[b], sizeof out->shape);
    fill_strides(out);
    out->flags = 0;
    out->device = 0;
}

fusor_status exec_check_place(const core *c, fu_error *e, int r, const fusor_buffer *given) {
    const char *name = c->plan->graph->results.at[r].name;
    const int bytes = ir_dtypes[given->dtype].bytes;
    if (given->device != 0 && !exec_device_takes(c, given))
        return FU_FAIL(e, FUSOR_ERROR_DEVICE, "output %%%s is on device %d; expected %s", name, (int)given->device,
                       exec_device_expected(c));
    FU_TRY(rt_check_flags(e, "output %", name, given));
    if (given->flags & FUSOR_READONLY) return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "output %%%s is read-only", name);
    if (!is_empty(given) && (uintptr_t)given->data % (uintptr_t)bytes)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "output %%%s: data is not aligned to its element size, %d bytes", name,
                       bytes);
    return FUSOR_OK;
}

static fusor_status check_given(const frame *f, fu_error *e, int r, const fusor_buffer *given) {
    const core *c = f->x->core;
    int b = c->n_params + r;
    const ir_plan_buffer *want = &c->plan->buffers.at[b];
    const char *name = c->plan->graph->results.at[r].name;
    if (given->dtype != want->dtype)
        return FU_FAIL(e, FUSOR_ERROR_TYPE, "output %%%s is given as %s; the result is %s", name,
                       type_name(given->dtype), ir_dtypes[want->dtype].name);
    if (given->rank != want->rank)
        return FU_FAIL(e, FUSOR_ERROR_SHAPE, "output %%%s is given with rank %d; the result has rank %d", name,
                       (int)given->rank, want->rank);
    for (int d = 0; d < want->rank; d++)
        if (given->shape[d] != f->dim[b][d])
            return FU_FAIL(e, FUSOR_ERROR_SHAPE, "output %%%s: dim %d is %lld; the result's is %lld", name, d,
                           (long long)given->shape[d], (long long)f->dim[b][d]);
    return exec_check_place(c, e, r, given);
}

void *exec_output_get(const core *c, fu_error *e, const fusor_buffer *out, const char *name, int64_t bytes) {
    if (out->device) return exec_device_output_get(c, e, out, name, bytes);
    void *p = rt_buffer_get(&c->options, (size_t)bytes);
    if (!p) (void)FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for result %%%s, %lld bytes", name, (long long)bytes);
    return p;
}

void exec_aim_end(frame *f, int b, const call_end *n) {
    f->base[b] = n->is_staged ? n->staging : n->user.data;
    for (int i = f->x->core->first_part; b >= f->x->core->n_params && i < f->x->core->n_buffers; i++) {
        int64_t at;
        if (exec_whole(f, i, &at) == b) f->base[i] = (void *)((uintptr_t)f->base[b] + (uintptr_t)at);
    }
    if (f->device) exec_device_aim(f, b, n);
}

/* A result that is written over parameter p: the parameter's own memory. */
static fusor_status check_alias(const frame *f, fu_error *e, int r, int p, call_end *n) {
    const core *c = f->x->core;
    const char *name = c->plan->graph->results.at[r].name, *param = c->plan->graph->params.at[p].name;
    const call_end *from = &f->in[p];
    if (from->user.flags & FUSOR_READONLY)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "input %%%s is read-only, but result %%%s is written over it", param,
                       name);
    if (!n->user.data) {
        n->user = from->user;
        return FUSOR_OK;
    }
    fusor_buffer given = n->user;
    if (!(given.flags & FUSOR_STRIDED)) fill_strides(&given);
    bool same = given.data == from->user.data && given.device == from->user.device;
    for (int d = 0; d < given.rank; d++)
        same = same && (given.shape[d] <= 1 || given.stride[d] == from->user.stride[d]);
    if (!same)
        return FU_FAIL(
            e, FUSOR_ERROR_ARGUMENT,
            "output %%%s is written over %%%s: its buffer must have that input's data and strides, or no data", name,
            param);
    return FUSOR_OK;
}

static fusor_status check_overlaps(const frame *f, fu_error *e, int r) {
    const core *c = f->x->core;
    const ir_graph *g = c->plan->graph;
    const call_end *n = &f->out[r];
    size_t bytes = ir_dtypes[n->user.dtype].bytes;
    if (overlaps_itself(n, bytes))
        return FU_FAIL(e, FUSOR_ERROR_OVERLAP, "output %%%s overlaps itself: two of its elements share memory",
                       g->results.at[r].name);
    for (int p = 0; p < c->n_params; p++) {
        if (f->x->bound[p] || c->alias_of[p] == r) continue;
        if (exec_ends_overlap(n, &f->in[p]))
            return FU_FAIL(e, FUSOR_ERROR_OVERLAP, "output %%%s overlaps input %%%s", g->results.at[r].name,
                           g->params.at[p].name);
    }
    for (int q = 0; q < r; q++)
        if (exec_ends_overlap(n, &f->out[q]))
            return FU_FAIL(e, FUSOR_ERROR_OVERLAP, "output %%%s overlaps output %%%s", g->results.at[r].name,
                           g->results.at[q].name);
    return FUSOR_OK;
}

static fusor_status prepare_output(frame *f, fu_error *e, int r, const fusor_buffer *given) {
    const core *c = f->x->core;
    const ir_result *result = &c->plan->graph->results.at[r];
    int b = c->n_params + r;
    call_end *n = &f->out[r];
    n->user = *given;
    if (given->data) FU_TRY(check_given(f, e, r, given));
    if (result->alias >= 0) FU_TRY(check_alias(f, e, r, result->alias, n));
    else if (!given->data) {
        exec_fill_shape(f, r, &n->user);
        n->user.device = c->device ? given->device : 0;
        n->user.data = exec_output_get(c, e, &n->user, result->name, f->bytes[b]);
        if (!n->user.data) return e->status;
        n->is_new = true;
    }
    n->is_device = exec_device_is_own(c, &n->user);
    if (!measure(n, ir_dtypes[n->user.dtype].bytes))
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "output %%%s: its strides leave the address space", result->name);
    n->is_staged = !n->is_device && (!n->is_dense || n->user.device);
    if (!n->is_new) FU_TRY(check_overlaps(f, e, r));
    if (n->is_staged) FU_TRY(make_staging(c, e, n, f->bytes[b]));
    exec_aim_end(f, b, n);
    return FUSOR_OK;
}

fusor_status exec_prepare_outputs(frame *f, fu_error *e, const fusor_buffer *out) {
    const core *c = f->x->core;
    for (int r = 0; r < c->n_results; r++) f->out[r].is_new = false;
    for (int r = 0; r < c->n_results; r++) {
        fusor_status s = prepare_output(f, e, r, &out[r]);
        if (s != FUSOR_OK) {
            exec_drop_outputs(f);
            return s;
        }
    }
    return FUSOR_OK;
}

void exec_drop_outputs(frame *f) {
    const core *c = f->x->core;
    for (int r = 0; r < c->n_results; r++)
        if (f->out[r].is_new) {
            rt_buffer_release(&c->options, f->out[r].user.data);
            f->out[r].is_new = false;
        }
}

void exec_give_outputs(const frame *f, fusor_buffer *out) {
    const core *c = f->x->core;
    for (int r = 0; r < c->n_results; r++)
        if (!out[r].data) out[r] = f->out[r].user;
}
