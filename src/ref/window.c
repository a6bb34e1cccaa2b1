/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Operators with sliding windows, and quantization: one element of the result at a time, as doc/operators.md words
 * it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* roundeven */
#endif
#include "ref/kinds.h"
#include "base/bits.h"
#include "ir/scalar.h"
#include "ir/window.h"
#include <math.h>

/* ---- windows ---- */
typedef struct total {
    long double sum;
    int64_t count;
    ir_bits most;
    bool any;
} total;

static void take(const ref_call *c, int64_t at, total *t) {
    const ref_tensor *x = c->in;
    const ir_bits v = ref_get(x, at);
    t->count++;
    if (c->n->op != IR_OP_MAX_POOL) {
        t->sum += ir_bits_to_double(x->dtype, v);
        return;
    }
    t->most = t->any ? ir_scalar_ew(IR_OP_MAXIMUM, x->dtype, (ir_bits[]){t->most, v}, NULL, 0) : v;
    t->any = true;
}

/* The window of result position `at` (along the spatial axes) in the plane from `first` on. */
static total window_at(const ref_call *c, const ir_window *w, int64_t first, const int64_t *at) {
    const int64_t *size = c->in->shape + IR_SPATIAL_AT;
    int64_t k[IR_MAX_SPATIAL] = {0};
    total t = {0};
    for (;;) {
        int64_t offset = 0;
        bool is_in = true, counts = true;
        for (int i = 0; i < w->n; i++) {
            const ir_window_axis *a = &w->axis[i];
            const int64_t p = at[i] * a->stride + k[i] * a->dilation - a->begin;
            is_in &= p >= 0 && p < size[i];
            counts &= p >= -a->begin && p < size[i] + a->end;
            offset = offset * size[i] + p;
        }
        if (is_in) take(c, first + offset, &t);
        else if (counts && w->counts_pads) t.count++;
        int i = w->n - 1;
        while (i >= 0 && ++k[i] == w->axis[i].kernel) k[i--] = 0;
        if (i < 0) return t;
    }
}

static ir_bits lowest(ir_dtype t) { return ir_scalar_of(t, -INFINITY); } /* casts saturate */

fusor_status ref_window(const ref_call *c) {
    const ref_tensor *x = c->in;
    ir_window w = ir_window_of(c->g, c->n);
    int64_t plane = 1, windows = 1, n = ref_count(c->out);
    if (w.n == 0) { /* all of it */
        w.n = x->rank - IR_SPATIAL_AT;
        for (int i = 0; i < w.n; i++) w.axis[i] = (ir_window_axis){x->shape[IR_SPATIAL_AT + i], 1, 1, 0, 0};
    }
    if (w.n != x->rank - IR_SPATIAL_AT || c->out->rank != x->rank)
        return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: the operand has rank %d; expected %d", ir_ops[c->n->op].name,
                        x->rank, w.n + IR_SPATIAL_AT);
    for (int i = 0; i < w.n; i++) {
        plane *= x->shape[IR_SPATIAL_AT + i];
        windows *= c->out->shape[IR_SPATIAL_AT + i];
    }
    for (int64_t o = 0; o < n; o++) {
        int64_t at[IR_MAX_SPATIAL], rest = o % windows;
        for (int i = w.n - 1; i >= 0; i--) {
            at[i] = rest % c->out->shape[IR_SPATIAL_AT + i];
            rest /= c->out->shape[IR_SPATIAL_AT + i];
        }
        const total t = plane ? window_at(c, &w, o / windows * plane, at) : (total){0};
        if (c->n->op == IR_OP_MAX_POOL) ref_put(c->out, o, t.any ? t.most : lowest(x->dtype));
        else ref_put_real(c->out, o, t.sum / (long double)t.count);
    }
    return FUSOR_OK;
}

/* ---- quantization ---- */
/* What element i has of a scale or a zero point: the only one, or that of its index along the axis. */
static int64_t parameter_of(const ref_call *c, const ref_tensor *p, int64_t i) {
    const ir_attr *axis = ref_attr(c->n, "axis");
    int64_t inner = 1;
    if (!axis || p->rank == 0) return 0;
    for (int d = (int)axis->integer + 1; d < c->out->rank; d++) inner *= c->out->shape[d];
    return i / inner % c->out->shape[axis->integer];
}

/* x / s, rounded to odd: rounding it once more to f32 is rounding the exact quotient. */
static double odd_quotient(double x, double s) {
    double q = x / s;
    const double rest = fma(-q, s, x);
    if (!(fabs(rest) > 0) || !isfinite(q) || (fu_f64_bits(q) & 1)) return q;
    const bool is_too_large = !signbit(rest) != !signbit(s) ? !signbit(q) : signbit(q); /* rest / s against q */
    return nextafter(q, is_too_large ? 0 : copysign(INFINITY, q));
}

fusor_status ref_quantize(const ref_call *c) {
    const ref_tensor *x = c->in, *scale = c->in + 1, *zero = c->in + 2;
    const int64_t n = ref_count(c->out);
    const bool is_f64 = scale->dtype == FUSOR_F64;
    for (int64_t i = 0; i < n; i++) {
        const double s = ir_bits_to_double(scale->dtype, ref_get(scale, parameter_of(c, scale, i)));
        const int64_t z = ref_int(zero->dtype, ref_get(zero, parameter_of(c, zero, i)));
        if (c->n->op == IR_OP_DEQUANTIZE) {
            const int64_t from_zero = ref_int(x->dtype, ref_get(x, i)) - z;
            ref_put_real(c->out, i, is_f64 ? (double)from_zero * s : (double)((float)from_zero * (float)s));
            continue;
        }
        const float quotient = (float)odd_quotient(ir_bits_to_double(x->dtype, ref_get(x, i)), s);
        const double y = isnan(quotient) ? (double)z : (double)roundevenf(quotient) + (double)z;
        ref_put_real(c->out, i, y); /* saturates */
    }
    return FUSOR_OK;
}
