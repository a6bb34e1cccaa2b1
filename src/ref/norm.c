/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* norm.c: layer_norm and rms_norm, in long double: statistics of each row, then its elements, each rounded once. */
#include "ref/norm.h"
#include <math.h>

fusor_status ref_norm_rows(const ref_call *c, ref_norm_shape *out) {
    const ref_tensor *x = c->in;
    const ir_attr *epsilon = ir_node_attr(c->n, "epsilon");
    uint32_t mask;
    if (x->rank == 0)
        return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: the operand is a scalar; it has no axis", ir_ops[c->n->op].name);
    FU_TRY(ref_attr_axes(c, "axis", x->rank, 1u << (x->rank - 1), &mask));
    *out = (ref_norm_shape){.rows = 1, .len = 1, .epsilon = epsilon ? epsilon->number : 1e-5};
    for (int d = 0; d < x->rank; d++) *(d < __builtin_ctz(mask) ? &out->rows : &out->len) *= x->shape[d];
    return FUSOR_OK;
}

ref_norm_row ref_norm_row_of(const ref_call *c, const ref_norm_shape *s, int64_t row) {
    const ref_tensor *x = c->in;
    ref_norm_row r = {0};
    long double sum = 0;
    if (c->n->op == IR_OP_LAYER_NORM) {
        for (int64_t i = 0; i < s->len; i++) sum += ir_bits_to_double(x->dtype, ref_get(x, row * s->len + i));
        r.mean = sum / s->len;
    }
    sum = 0;
    for (int64_t i = 0; i < s->len; i++) {
        long double d = ir_bits_to_double(x->dtype, ref_get(x, row * s->len + i)) - r.mean;
        sum += d * d;
    }
    r.deviation = sqrtl(sum / s->len + s->epsilon);
    return r;
}

/* Strides of gamma or beta over the dims of x: 0 where it stretches. */
fusor_status ref_norm_strides(const ref_call *c, int k, int64_t *stride_out) {
    const ref_tensor *x = c->in, *t = &c->in[k];
    int64_t own[IR_MAX_RANK];
    ref_strides(t->rank, t->shape, own);
    for (int d = 0; d < x->rank; d++) {
        const int from = d - (x->rank - t->rank);
        const bool stretches = from < 0 || (c->n->stretch ? (c->n->stretch[k] >> d & 1) != 0 : t->shape[from] == 1);
        if (from >= 0 && t->shape[from] != (stretches ? 1 : x->shape[d]))
            return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: dim %d of operand %d is %lld; expected %lld",
                            ir_ops[c->n->op].name, from, k, (long long)t->shape[from],
                            (long long)(stretches ? 1 : x->shape[d]));
        stride_out[d] = stretches ? 0 : own[from];
    }
    return FUSOR_OK;
}

fusor_status ref_norm(const ref_call *c) {
    const ref_tensor *x = c->in;
    ref_norm_shape s;
    ref_norm_row row = {0};
    ref_walk w;
    FU_TRY(ref_norm_rows(c, &s));
    if (ref_count(x) != ref_count(c->out))
        return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: the result's shape is not the operand's", ir_ops[c->n->op].name);
    ref_walk_init(&w, c->n->n_in, x->rank, x->shape);
    for (int k = 1; k < c->n->n_in; k++) FU_TRY(ref_norm_strides(c, k, w.stride[k]));
    int64_t i = 0, now = -1;
    while (ref_walk_next(&w))
        for (int64_t j = 0; j < w.inner; j++, i++) {
            if (i / s.len != now) row = ref_norm_row_of(c, &s, now = i / s.len);
            long double y = (ir_bits_to_double(x->dtype, ref_get(x, i)) - row.mean) / row.deviation;
            for (int k = 1; k < c->n->n_in; k++) {
                const long double v = ir_bits_to_double(x->dtype, ref_get(&c->in[k], w.offset[k] + j * w.step[k]));
                y = k == 1 ? y * v : y + v;
            }
            ref_put_real(c->out, i, y);
        }
    return FUSOR_OK;
}
