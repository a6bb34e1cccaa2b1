/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* exec_buffer.c: the caller's buffers: checks, overlaps, strided copies, memory of results. */
#include "rt/exec_device.h"
#include "rt/exec_internal.h"
#include "rt/buffer.h"
#include <stdlib.h>

enum { OVERLAP_MAX_TRIES = 1 << 26 }; /* a fraction of a second: strides that take more of them count as overlapping */

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
    if (b->data) { /* addresses: they are compared, and may be of no memory at all */
        n->low = (char *)((uintptr_t)b->data + (uintptr_t)(low * (int64_t)bytes));
        n->high = (char *)((uintptr_t)b->data + (uintptr_t)((high + 1) * (int64_t)bytes));
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
/* Offsets are sums of terms, step * x with 0 <= x <= most, so two buffers share a byte where a sum of the terms of both
 * can be the distance between them, and no element need be looked at. */
typedef struct term {
    uint64_t step, most;
    uint64_t reach, unit; /* of this term and those below: the largest sum; all sums are multiples of unit */
} term;
typedef struct sum {
    term at[2 * 8 + 2]; /* by step */
    int n;
    uint32_t tries;
} sum;

static void add_term(sum *s, uint64_t step, uint64_t most) {
    int i = s->n;
    if (!step || !most) return;
    for (; i > 0 && s->at[i - 1].step > step; i--) s->at[i] = s->at[i - 1];
    s->at[i] = (term){.step = step, .most = most};
    s->n++;
}

static bool first_can_be(sum *s, int n, uint64_t to) {
    if (n == 0) return to == 0;
    const term *x = &s->at[n - 1];
    if (to > x->reach || to % x->unit) return false;
    if (n == 1) return true;
    const uint64_t below = x[-1].reach;
    for (uint64_t i = to > below ? (to - below - 1) / x->step + 1 : 0; i <= x->most && i * x->step <= to; i++)
        if (++s->tries > OVERLAP_MAX_TRIES || first_can_be(s, n - 1, to - i * x->step)) return true;
    return false;
}

static bool can_be(sum *s, uint64_t to) {
    int n = 0;
    /* A multiple of the term below that leaves no gap there makes that one longer: rows side by side, windows that
     * share elements, the same stride in both buffers. What is left then has a few candidates a term, as a rule. */
    for (int i = 0; i < s->n; i++) {
        const term x = s->at[i];
        term *below = n ? &s->at[n - 1] : NULL;
        if (below && x.step % below->step == 0 && x.step / below->step - 1 <= below->most)
            below->most += x.step / below->step * x.most;
        else s->at[n++] = x;
    }
    for (int i = 0; i < n; i++) {
        term *x = &s->at[i];
        x->reach = x->step * x->most + (i ? x[-1].reach : 0);
        x->unit = x->step;
        for (uint64_t rest = i ? x[-1].unit : 0, t; rest; rest = t) {
            t = x->unit % rest;
            x->unit = rest;
        }
    }
    return first_can_be(s, n, to);
}

/* Dim d, in steps of so many bytes; the stride of one element may be any number. */
static void add_dim(sum *s, const fusor_buffer *b, int d, uint64_t bytes) {
    if (b->shape[d] > 1) add_term(s, (uint64_t)llabs(b->stride[d]) * bytes, (uint64_t)b->shape[d] - 1);
}

static void add_bytes(sum *s, const fusor_buffer *b) {
    const uint64_t bytes = (uint64_t)ir_dtypes[b->dtype].bytes;
    add_term(s, 1, bytes - 1);
    for (int d = 0; d < b->rank; d++) add_dim(s, b, d, bytes);
}

bool exec_ends_overlap(const call_end *a, const call_end *b) {
    const char *low = a->low > b->low ? a->low : b->low, *high = a->high < b->high ? a->high : b->high;
    if (low >= high) return false;
    if (a->is_dense && b->is_dense) return true;
    sum s = {.n = 0}; /* bytes from a->low to a byte of a, and from the same byte of b to b's last */
    add_bytes(&s, &a->user);
    add_bytes(&s, &b->user);
    return can_be(&s, (uint64_t)(b->high - 1 - a->low));
}

bool exec_overlaps_itself(const call_end *n) {
    const fusor_buffer *b = &n->user;
    if (n->is_dense || n->low >= n->high) return false;
    sum dims = {.n = 0};
    for (int d = 0; d < b->rank; d++) {
        if (b->shape[d] > 1 && b->stride[d] == 0) return true;
        add_dim(&dims, b, d, 1);
    }
    uint64_t reach = 0;
    for (int i = 0; i < dims.n; i++) {
        const term *x = &dims.at[i];
        if (x->step <= reach) {
            sum s = {.n = 0}; /* the last dim in which two elements differ: those below are to make up for it */
            for (int k = 0; k < i; k++) add_term(&s, dims.at[k].step, 2 * dims.at[k].most);
            add_term(&s, x->step, x->most - 1);
            if (can_be(&s, reach - x->step)) return true;
        }
        reach += x->step * x->most;
    }
    return false;
}

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
    if (exec_overlaps_itself(n))
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
