/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reductions, argmax and argmin, and the softmax family. Float sums and products run in long double, integer ones wrap
 * in 64 bits; what combines by a comparison goes element by element through the combining EW row. */
#include "ref/kinds.h"
#include "ir/scalar.h"
#include <math.h>

static ir_bits infinity_of(ir_dtype t, bool negative) {     /* of integers: the extreme value (casts saturate) */
    double v = negative ? -INFINITY : INFINITY;
    ir_bits b;
    memcpy(&b, &v, 8);
    return ir_scalar_cast(FUSOR_F64, t, b);
}

typedef enum how { SUM_REAL, SUM_INT, COMBINE } how;
typedef union total { long double real; uint64_t integer; ir_bits bits; } total;

fusor_status ref_reduce(const ref_call *c) {
    const ir_op_info *info = &ir_ops[c->n->op];
    const ref_tensor *x = c->in;
    ir_dtype t = x->dtype;
    uint32_t mask;
    FU_TRY(ref_attr_axes(c, "axes", x->rank, (1u << x->rank) - 1, &mask));
    bool is_product = info->combine == IR_OP_MUL;
    how way = !info->is_sum_like ? COMBINE : ir_is_float(t) ? SUM_REAL : SUM_INT;

    int64_t kept[IR_MAX_RANK], strides[IR_MAX_RANK], n_out = 1, n_each = 1;
    for (int d = 0; d < x->rank; d++) {
        kept[d] = mask >> d & 1 ? 1 : x->shape[d];
        n_out *= kept[d];
        if (mask >> d & 1) n_each *= x->shape[d];
    }
    if (n_out != ref_count(c->out))
        return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: %lld results; expected %lld", info->name, (long long)n_out,
                        (long long)ref_count(c->out));
    bool is_bounded = info->combine == IR_OP_MAXIMUM || info->combine == IR_OP_MINIMUM;
    if (is_bounded && n_each == 0 && n_out > 0)
        return REF_FAIL(c, FUSOR_ERROR_SHAPE,
                        "%s: no elements to choose from: a reduced axis has size 0; expected 1 or more", info->name);
    if (n_out == 0) return FUSOR_OK;

    total start = {0};
    if (way == SUM_REAL) start.real = is_product;
    else if (way == SUM_INT) start.integer = is_product;
    else if (is_bounded) start.bits = infinity_of(t, info->combine == IR_OP_MAXIMUM);
    else start.bits = info->combine == IR_OP_AND;
    total *totals = fu_malloc((size_t)n_out * sizeof *totals);
    if (!totals) return REF_FAIL(c, FUSOR_ERROR_MEMORY, "%s: no memory for %lld totals", info->name, (long long)n_out);
    for (int64_t o = 0; o < n_out; o++) totals[o] = start;

    ref_walk w;                                 /* operand 0: the total of each position */
    ref_walk_init(&w, 1, x->rank, x->shape);
    ref_strides(x->rank, kept, strides);
    for (int d = 0; d < x->rank; d++) w.stride[0][d] = mask >> d & 1 ? 0 : strides[d];
    int64_t i = 0;
    while (ref_walk_next(&w))
        for (int64_t j = 0; j < w.inner; j++, i++) {
            total *to = &totals[w.offset[0] + j * w.step[0]];
            ir_bits b = ref_get(x, i);
            if (way == SUM_REAL) {
                double v = ir_bits_to_double(t, b);
                to->real = is_product ? to->real * v : to->real + v;
            } else if (way == SUM_INT) {
                uint64_t v = (uint64_t)ref_int(t, b);
                to->integer = is_product ? to->integer * v : to->integer + v;
            } else {
                ir_bits pair[2] = { to->bits, b };
                to->bits = ir_scalar_ew(info->combine, t, pair, NULL, 0);
            }
        }
    for (int64_t o = 0; o < n_out; o++) {
        if (way == SUM_REAL)
            ref_put_real(c->out, o, c->n->op == IR_OP_REDUCE_MEAN ? totals[o].real / n_each : totals[o].real);
        else ref_put(c->out, o, ir_scalar_cast(way == SUM_INT ? FUSOR_I64 : t, c->out->dtype, totals[o].bits));
    }
    fu_free(totals);
    return FUSOR_OK;
}

/* A tensor seen as [outer, len, inner] around one axis; axis -1: all of it as one row. */
typedef struct around { int64_t outer, len, inner; } around;

static around split_at(const ref_tensor *x, int axis) {
    around r = {1, 1, 1};
    for (int d = 0; d < x->rank; d++) *(axis < 0 || d == axis ? &r.len : d < axis ? &r.outer : &r.inner) *= x->shape[d];
    return r;
}

fusor_status ref_argreduce(const ref_call *c) {
    const ref_tensor *x = c->in;
    ir_dtype t = x->dtype;
    uint32_t mask;
    FU_TRY(ref_attr_axes(c, "axis", x->rank, 0, &mask));
    around r = split_at(x, mask ? __builtin_ctz(mask) : -1);
    bool is_last = ref_attr_int(c->n, "select_last") != 0;
    ir_op better = c->n->op == IR_OP_ARGMAX ? IR_OP_GT : IR_OP_LT;
    if (r.outer * r.inner != ref_count(c->out))
        return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: %lld results; expected %lld", ir_ops[c->n->op].name,
                        (long long)(r.outer * r.inner), (long long)ref_count(c->out));
    if (r.len == 0 && r.outer * r.inner > 0)
        return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: no elements to choose from: the axis has size 0; expected 1 or more",
                        ir_ops[c->n->op].name);
    for (int64_t o = 0; o < r.outer; o++)
        for (int64_t i = 0; i < r.inner; i++) {
            int64_t best = 0;
            ir_bits v[2];                       /* candidate, best */
            v[1] = ref_get(x, o * r.len * r.inner + i);
            for (int64_t k = 1; k < r.len; k++) {
                v[0] = ref_get(x, (o * r.len + k) * r.inner + i);
                bool best_is_nan = ir_is_float(t) && ir_scalar_ew(IR_OP_ISNAN, t, &v[1], NULL, 0);
                bool takes;
                if (ir_is_float(t) && ir_scalar_ew(IR_OP_ISNAN, t, &v[0], NULL, 0)) takes = !best_is_nan || is_last;
                else if (best_is_nan) takes = false;
                else takes = ir_scalar_ew(better, t, v, NULL, 0) || (is_last && ir_scalar_ew(IR_OP_EQ, t, v, NULL, 0));
                if (takes) { best = k; v[1] = v[0]; }
            }
            ref_put(c->out, o * r.inner + i, ir_scalar_cast(FUSOR_I64, c->out->dtype, (ir_bits)best));
        }
    return FUSOR_OK;
}

/* softmax and log_softmax: a NaN in a row, or a row of -inf only, or +inf, gives NaN as the formula does. */
fusor_status ref_row(const ref_call *c) {
    const ref_tensor *x = c->in;
    uint32_t mask;
    if (c->n->op != IR_OP_SOFTMAX && c->n->op != IR_OP_LOG_SOFTMAX)
        return REF_FAIL(c, FUSOR_ERROR_INTERNAL, "%s: the reference evaluator has no rule for it",
                        ir_ops[c->n->op].name);
    if (x->rank == 0)
        return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: the operand is a scalar; it has no axis", ir_ops[c->n->op].name);
    FU_TRY(ref_attr_axes(c, "axis", x->rank, 1u << (x->rank - 1), &mask));
    around r = split_at(x, __builtin_ctz(mask));
    if (ref_count(x) != ref_count(c->out))
        return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: the result's shape is not the operand's", ir_ops[c->n->op].name);
    for (int64_t o = 0; o < r.outer; o++)
        for (int64_t i = 0; i < r.inner; i++) {
            int64_t first = o * r.len * r.inner + i;
            long double most = -INFINITY, sum = 0;
            for (int64_t k = 0; k < r.len; k++)
                most = fmaxl(most, ir_bits_to_double(x->dtype, ref_get(x, first + k * r.inner)));
            for (int64_t k = 0; k < r.len; k++)
                sum += expl(ir_bits_to_double(x->dtype, ref_get(x, first + k * r.inner)) - most);
            long double log_sum = logl(sum);
            for (int64_t k = 0; k < r.len; k++) {
                long double v = ir_bits_to_double(x->dtype, ref_get(x, first + k * r.inner)) - most;
                ref_put_real(c->out, first + k * r.inner, c->n->op == IR_OP_SOFTMAX ? expl(v) / sum : v - log_sum);
            }
        }
    return FUSOR_OK;
}
