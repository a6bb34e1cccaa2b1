/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Reductions, argmax and argmin, and the softmax family. Float sums and products run in long double, integer ones wrap
 * in 64 bits; what combines by a comparison goes element by element through the combining EW row. */
#include "ref/kinds.h"
#include "ir/scalar.h"
#include <math.h>

static ir_bits infinity_of(ir_dtype t, bool negative) { /* of integers: the extreme value (casts saturate) */
    return ir_scalar_of(t, negative ? -INFINITY : INFINITY);
}

typedef enum how { SUM_REAL, SUM_INT, COMBINE } how;
typedef union total {
    long double real;
    uint64_t integer;
    ir_bits bits;
} total;

/* The reduction of one operand: each element is combined into the total of its position. */
typedef struct reduction {
    const ref_call *c;
    const ref_tensor *x;
    uint32_t mask; /* the reduced axes */
    int64_t n_out, n_each;
    how way;
    bool is_product;
    ir_op combine;
    total *totals;
} reduction;

/* What a composite sums: the term of a real element, with what an earlier sweep said of its position. */
static long double term(ir_op op, long double v, long double center) {
    switch (op) {
    case IR_OP_REDUCE_VAR:
    case IR_OP_REDUCE_STD: return (v - center) * (v - center);
    case IR_OP_REDUCE_L1: return fabsl(v);
    case IR_OP_REDUCE_L2: return v * v;
    case IR_OP_REDUCE_LOGSUMEXP: return expl(v - center);
    default: return v;
    }
}

static void take(const reduction *r, total *to, ir_op op, ir_bits b, long double center) {
    const ir_dtype t = r->x->dtype;
    if (r->way == SUM_REAL) {
        const long double v = term(op, ir_bits_to_double(t, b), center);
        to->real = r->is_product ? to->real * v : to->real + v;
    } else if (r->way == SUM_INT) {
        uint64_t v = (uint64_t)ref_int(t, b);
        if (op == IR_OP_REDUCE_L1 && ir_is_signed(t) && (int64_t)v < 0) v = 0 - v;
        to->integer = r->is_product ? to->integer * v : to->integer + v;
    } else {
        ir_bits pair[2] = {to->bits, b};
        to->bits = ir_scalar_ew(r->combine, t, pair, NULL, 0);
    }
}

/* totals: from `start` on, the terms of `op` about centers[position] (NULL: 0). */
static void sweep(const reduction *r, ir_op op, total start, const total *centers) {
    int64_t kept[IR_MAX_RANK], strides[IR_MAX_RANK];
    ref_walk w; /* operand 0: the total of each position */
    for (int64_t o = 0; o < r->n_out; o++) r->totals[o] = start;
    for (int d = 0; d < r->x->rank; d++) kept[d] = r->mask >> d & 1 ? 1 : r->x->shape[d];
    ref_walk_init(&w, 1, r->x->rank, r->x->shape);
    ref_strides(r->x->rank, kept, strides);
    for (int d = 0; d < r->x->rank; d++) w.stride[0][d] = r->mask >> d & 1 ? 0 : strides[d];
    int64_t i = 0;
    while (ref_walk_next(&w))
        for (int64_t j = 0; j < w.inner; j++, i++) {
            const int64_t o = w.offset[0] + j * w.step[0];
            take(r, &r->totals[o], op, ref_get(r->x, i), centers ? centers[o].real : 0);
        }
}

/* The largest element of each position as a real, 0 where that is no number: log(sum(exp(x))) is taken about it. */
static void largest(const reduction *r, total *centers) {
    reduction m = *r;
    m.way = COMBINE;
    m.combine = IR_OP_MAXIMUM;
    m.totals = centers;
    sweep(&m, IR_OP_REDUCE_MAX, (total){.bits = infinity_of(r->x->dtype, true)}, NULL);
    for (int64_t o = 0; o < r->n_out; o++) {
        const double v = ir_bits_to_double(r->x->dtype, centers[o].bits);
        centers[o].real = isfinite(v) ? v : 0;
    }
}

static void means(const reduction *r, total *centers) {
    reduction m = *r;
    m.totals = centers;
    sweep(&m, IR_OP_REDUCE_SUM, (total){.real = 0}, NULL);
    for (int64_t o = 0; o < r->n_out; o++) centers[o].real /= r->n_each;
}

/* What is done with a total last. */
static long double finished(const reduction *r, long double sum, long double center) {
    const ir_attr *correction = ir_node_attr(r->c->n, "correction");
    const long double n = r->n_each - (correction ? (long double)correction->number : 0);
    switch (r->c->n->op) {
    case IR_OP_REDUCE_MEAN: return sum / r->n_each;
    case IR_OP_REDUCE_VAR: return sum / (n > 0 ? n : 0);
    case IR_OP_REDUCE_STD: return sqrtl(sum / (n > 0 ? n : 0));
    case IR_OP_REDUCE_L2: return sqrtl(sum);
    case IR_OP_REDUCE_LOGSUMEXP: return center + logl(sum);
    default: return sum;
    }
}

fusor_status ref_reduce(const ref_call *c) {
    const ir_op op = c->n->op;
    const ir_op_info *info = &ir_ops[op];
    const ref_tensor *x = c->in;
    const ir_dtype t = x->dtype;
    reduction r = {
        .c = c, .x = x, .n_out = 1, .n_each = 1, .is_product = info->combine == IR_OP_MUL, .combine = info->combine};
    FU_TRY(ref_attr_axes(c, "axes", x->rank, (1u << x->rank) - 1, &r.mask));
    r.way = !info->is_sum_like ? COMBINE : ir_is_float(t) ? SUM_REAL : SUM_INT;
    for (int d = 0; d < x->rank; d++) *(r.mask >> d & 1 ? &r.n_each : &r.n_out) *= x->shape[d];
    if (r.n_out != ref_count(c->out))
        return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: %lld results; expected %lld", info->name, (long long)r.n_out,
                        (long long)ref_count(c->out));
    /* Inside a composite the largest of nothing is -inf: what the composite gives then is its own affair. */
    bool is_bounded = info->combine == IR_OP_MAXIMUM || info->combine == IR_OP_MINIMUM;
    if (is_bounded && r.n_each == 0 && r.n_out > 0 && !c->n->group)
        return REF_FAIL(c, FUSOR_ERROR_SHAPE,
                        "%s: no elements to choose from: a reduced axis has size 0; expected 1 or more", info->name);
    if (r.n_out == 0) return FUSOR_OK;

    total start = {0}, *centers = NULL;
    if (r.way == SUM_REAL) start.real = r.is_product;
    else if (r.way == SUM_INT) start.integer = r.is_product;
    else if (is_bounded) start.bits = infinity_of(t, info->combine == IR_OP_MAXIMUM);
    else start.bits = info->combine == IR_OP_AND;
    const bool is_centered = op == IR_OP_REDUCE_VAR || op == IR_OP_REDUCE_STD || op == IR_OP_REDUCE_LOGSUMEXP;
    r.totals = fu_malloc((size_t)r.n_out * sizeof *r.totals * (is_centered ? 2 : 1));
    if (!r.totals)
        return REF_FAIL(c, FUSOR_ERROR_MEMORY, "%s: no memory for %lld totals", info->name, (long long)r.n_out);
    if (is_centered) {
        centers = r.totals + r.n_out;
        if (op == IR_OP_REDUCE_LOGSUMEXP) largest(&r, centers);
        else means(&r, centers);
    }
    sweep(&r, op, start, centers);
    for (int64_t o = 0; o < r.n_out; o++) {
        if (r.way == SUM_REAL) ref_put_real(c->out, o, finished(&r, r.totals[o].real, centers ? centers[o].real : 0));
        else ref_put(c->out, o, ir_scalar_cast(r.way == SUM_INT ? FUSOR_I64 : t, c->out->dtype, r.totals[o].bits));
    }
    fu_free(r.totals);
    return FUSOR_OK;
}

/* A tensor seen as [outer, len, inner] around one axis; axis -1: all of it as one row. */
typedef struct around {
    int64_t outer, len, inner;
} around;

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
            ir_bits v[2]; /* candidate, best */
            v[1] = ref_get(x, o * r.len * r.inner + i);
            for (int64_t k = 1; k < r.len; k++) {
                v[0] = ref_get(x, (o * r.len + k) * r.inner + i);
                bool best_is_nan = ir_is_float(t) && ir_scalar_ew(IR_OP_ISNAN, t, &v[1], NULL, 0);
                bool takes;
                if (ir_is_float(t) && ir_scalar_ew(IR_OP_ISNAN, t, &v[0], NULL, 0)) takes = !best_is_nan || is_last;
                else if (best_is_nan) takes = false;
                else takes = ir_scalar_ew(better, t, v, NULL, 0) || (is_last && ir_scalar_ew(IR_OP_EQ, t, v, NULL, 0));
                if (takes) {
                    best = k;
                    v[1] = v[0];
                }
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
