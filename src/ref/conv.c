/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Convolutions: one element of the result at a time, over the channels of its group and the places of the kernel, of
 * operands that are widened first. Along an axis, place k of the kernel meets element o * stride + k * dilation -
 * begin; transposed, element i is met where o = i * stride + k * dilation - begin. */
#include "ref/kinds.h"
#include "ir/scalar.h"
#include "ir/window.h"

typedef struct conv {
    const ref_call *c;
    bool is_transposed, is_float;
    int n; /* spatial axes */
    int64_t stride[IR_MAX_SPATIAL], dilation[IR_MAX_SPATIAL], begin[IR_MAX_SPATIAL];
    int64_t groups, taken, made; /* channels of a group, in and out */
    int64_t plane, places;       /* elements of a channel of x, of a kernel */
    union {                      /* every element of x, and of the weights */
        double *real;
        uint64_t *integer;
    } x, w;
} conv;
typedef struct total {
    long double real;
    uint64_t integer;
} total;

/* Element of the plane of x that place `k` of the kernel meets for result position `at`; -1: padding, or none
 * (transposed). */
static int64_t met(const conv *v, const int64_t *at, const int64_t *k) {
    const int64_t *size = v->c->in[0].shape + IR_SPATIAL_AT;
    int64_t offset = 0;
    for (int i = 0; i < v->n; i++) {
        int64_t p;
        if (v->is_transposed) {
            p = at[i] + v->begin[i] - k[i] * v->dilation[i];
            if (p < 0 || p % v->stride[i]) return -1;
            p /= v->stride[i];
        } else {
            p = at[i] * v->stride[i] + k[i] * v->dilation[i] - v->begin[i];
        }
        if (p < 0 || p >= size[i]) return -1;
        offset = offset * size[i] + p;
    }
    return offset;
}

/* The elements of a tensor: as double, which has all floats, or as 64-bit integers. NULL: no memory. */
static void *widen(const ref_tensor *t) {
    const int64_t n = ref_count(t);
    void *to = fu_malloc((size_t)n * 8 + 1);
    const bool is_float = ir_is_float(t->dtype);
    for (int64_t i = 0; to && i < n; i++) {
        if (is_float) ((double *)to)[i] = ir_bits_to_double(t->dtype, ref_get(t, i));
        else ((uint64_t *)to)[i] = (uint64_t)ref_int(t->dtype, ref_get(t, i));
    }
    return to;
}

static total window_at(const conv *v, int64_t image, int64_t channel, const int64_t *at) {
    const int64_t *kernel = v->c->in[1].shape + IR_SPATIAL_AT, group = channel / v->made, in_group = channel % v->made;
    const int64_t first = (image * v->groups + group) * v->taken; /* channel of x */
    int64_t k[IR_MAX_SPATIAL] = {0};
    total t = {0};
    for (int64_t place = 0; place < v->places; place++) {
        const int64_t p = met(v, at, k);
        for (int64_t c = 0; c < v->taken; c++) {
            const int64_t w = v->is_transposed ? (group * v->taken + c) * v->made + in_group : channel * v->taken + c;
            const int64_t at_x = (first + c) * v->plane + p, at_w = w * v->places + place;
            if (p >= 0 && v->is_float) t.real += (long double)v->x.real[at_x] * v->w.real[at_w];
            else if (p >= 0) t.integer += v->x.integer[at_x] * v->w.integer[at_w];
            else if (v->is_float && !v->is_transposed) /* padding is zeros, which infinite weights make NaN */
                t.real += 0 * (long double)v->w.real[at_w];
        }
        for (int i = v->n - 1; i >= 0 && ++k[i] == kernel[i]; i--) k[i] = 0;
    }
    return t;
}

static void convolve(const conv *v, const ref_tensor *b) {
    const ref_call *c = v->c;
    /* 8-bit operands add up in i32 unless more is asked for: as the 64-bit sum wrapped to 32 bits. */
    const bool wraps = !v->is_float && ir_dtypes[c->in[0].dtype].bytes == 1 && ir_dtypes[c->out->dtype].bytes < 8;
    const int64_t n = ref_count(c->out);
    int64_t at[2 + IR_MAX_SPATIAL] = {0};
    for (int64_t o = 0; o < n; o++) {
        total t = window_at(v, at[0], at[1], at + IR_SPATIAL_AT);
        if (v->is_float) {
            if (b) t.real += ir_bits_to_double(b->dtype, ref_get(b, at[1]));
            ref_put_real(c->out, o, t.real);
        } else {
            if (b) t.integer += (uint64_t)ref_int(b->dtype, ref_get(b, at[1]));
            const int64_t sum = wraps ? (int64_t)(int32_t)t.integer : (int64_t)t.integer;
            ref_put(c->out, o, ir_scalar_cast(FUSOR_I64, c->out->dtype, (ir_bits)sum));
        }
        for (int d = c->out->rank - 1; d >= 0 && ++at[d] == c->out->shape[d]; d--) at[d] = 0;
    }
}

fusor_status ref_conv(const ref_call *c) {
    const ref_tensor *x = &c->in[0], *w = &c->in[1], *b = c->n->n_in > 2 ? &c->in[2] : NULL;
    conv v = {.c = c,
              .is_transposed = c->n->op == IR_OP_CONV_TRANSPOSE,
              .is_float = ir_is_float(x->dtype),
              .n = x->rank - IR_SPATIAL_AT,
              .groups = ref_attr_int(c->n, "groups"),
              .plane = 1,
              .places = 1};
    if (w->rank != x->rank || c->out->rank != x->rank || v.n < 1 || v.n > IR_MAX_SPATIAL || v.groups < 1)
        return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: the operands do not belong together", ir_ops[c->n->op].name);
    v.taken = x->shape[1] / v.groups;
    v.made = c->out->shape[1] / v.groups;
    for (int i = 0; i < v.n; i++) {
        v.stride[i] = ir_window_entry(c->g, c->n, "strides", (unsigned)i, 1);
        v.dilation[i] = ir_window_entry(c->g, c->n, "dilations", (unsigned)i, 1);
        v.begin[i] = ir_window_entry(c->g, c->n, "pads", (unsigned)i, 0);
        v.plane *= x->shape[IR_SPATIAL_AT + i];
        v.places *= w->shape[IR_SPATIAL_AT + i];
    }
    v.x.real = widen(x);
    v.w.real = widen(w);
    if (v.x.real && v.w.real) convolve(&v, b);
    const bool has_memory = v.x.real && v.w.real;
    fu_free(v.x.real);
    fu_free(v.w.real);
    if (!has_memory)
        return REF_FAIL(c, FUSOR_ERROR_MEMORY, "%s: no memory for widened copies of its operands",
                        ir_ops[c->n->op].name);
    return FUSOR_OK;
}
