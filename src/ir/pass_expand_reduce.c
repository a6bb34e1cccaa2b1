/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_expand_reduce.c: composite reductions, the softmax family and norms as primitives of pass_expand.
 *
 * Variances are about a mean that is rounded; the sum of the deviations, which would be 0, tells how far off it is, and
 * is taken out again (the corrected two-pass algorithm: Chan, Golub, LeVeque 1983). */
#include "base/small.h"
#include "ir/expand.h"

/* The shape of x with a size of 1 along the dims of `mask`; *stretch: those of them that were not 1. */
static ir_node row_shape(const ir_expand *c, const ir_node *x, uint32_t mask, unsigned *stretch) {
    ir_node row = *x;
    *stretch = 0;
    for (unsigned d = 0; d < x->rank; d++) {
        if (!(mask >> d & 1)) continue;
        row.dim[d] = ir_size_const(c->rw->to->sizes, 1);
        if (row.dim[d] != x->dim[d]) *stretch |= 1u << d;
    }
    return row;
}

static unsigned all_dims(const ir_node *n) { return (1u << n->rank) - 1; }

/* x op v for a scalar v. */
static ir_id with_scalar(const ir_expand *c, ir_op op, ir_id x, ir_id v) {
    return ir_expand_2(c, op, x, v, all_dims(ir_at(c->rw->to, x)));
}

/* y, which has sizes of 1 along the axes of `mask`, without them: the shape of n. */
static ir_id without_axes(const ir_expand *c, const ir_node *n, ir_id y, uint32_t mask) {
    if (mask == 0) return y;
    ir_node squeeze = ir_expand_node(c, IR_OP_SQUEEZE, ir_at(c->rw->to, y)->dtype, n, 1);
    ir_size list[IR_MAX_RANK];
    uint32_t count = 0;
    for (unsigned d = 0; d < IR_MAX_RANK; d++)
        if (mask >> d & 1) list[count++] = ir_size_const(c->rw->to->sizes, (int64_t)d);
    squeeze.attr[0] = (ir_attr){.is_set = true, .list = list, .n = count};
    squeeze.in = &y;
    return ir_add_raw(c->rw->to, &squeeze);
}

/* What variances are made of: deviations from the rounded mean, their mean, the sum of squared deviations from the
 * mean. */
typedef struct deviations {
    ir_id d, off, squares;
} deviations;

static deviations deviations_of(const ir_expand *c, ir_id x, uint32_t mask, ir_id count, const ir_node *row,
                                unsigned stretch) {
    const ir_dtype t = ir_at(c->rw->to, x)->dtype;
    const ir_id total = ir_expand_reduce(c, IR_OP_REDUCE_SUM, x, mask, true, t, row);
    const ir_id d = ir_expand_2(c, IR_OP_SUB, x, with_scalar(c, IR_OP_DIV, total, count), stretch);
    const ir_id sum = ir_expand_reduce(c, IR_OP_REDUCE_SUM, d, mask, true, t, row);
    const ir_id squares = ir_expand_reduce(c, IR_OP_REDUCE_SUM, ir_expand_1(c, IR_OP_SQUARE, d), mask, true, t, row);
    const ir_id off = with_scalar(c, IR_OP_DIV, sum, count);
    const ir_id about = ir_expand_2(c, IR_OP_SUB, squares, ir_expand_2(c, IR_OP_MUL, sum, off, 0), 0);
    return (deviations){d, off, with_scalar(c, IR_OP_MAXIMUM, about, ir_expand_number(c, t, 0))};
}

static ir_id expand_softmax(const ir_expand *c, const ir_node *n) {
    ir_graph *g = c->rw->to;
    const uint32_t mask = ir_node_axes(g, n);
    const unsigned axis = (unsigned)__builtin_ctz(mask);
    const ir_id operand = n->in[0];
    /* Over an axis of no elements there is no row to have a maximum: the result is as empty as the operand. */
    if (ir_size_is(g->sizes, n->dim[axis], 0))
        return ir_expand_finish(c, ir_expand_cast(c, operand, n->dtype), operand);
    const ir_dtype t = ir_node_accumulator(g, n);
    unsigned stretch;
    const ir_node row = row_shape(c, n, mask, &stretch);
    const ir_id x = ir_expand_cast(c, operand, t);
    const ir_id max = ir_expand_reduce(c, IR_OP_REDUCE_MAX, x, mask, true, t, &row);
    const ir_id shifted = ir_expand_2(c, IR_OP_SUB, x, max, stretch);
    const ir_id e = ir_expand_1(c, IR_OP_EXP, shifted);
    const ir_id sum = ir_expand_reduce(c, IR_OP_REDUCE_SUM, e, mask, true, t, &row);
    /* One division a row: of a vector they take as long as ten products. */
    const ir_id y = n->op == IR_OP_SOFTMAX
                        ? ir_expand_2(c, IR_OP_MUL, e, ir_expand_1(c, IR_OP_RECIPROCAL, sum), stretch)
                        : ir_expand_2(c, IR_OP_SUB, shifted, ir_expand_1(c, IR_OP_LOG, sum), stretch);
    return ir_expand_finish(c, ir_expand_cast(c, y, n->dtype), operand);
}

static ir_id expand_mean(const ir_expand *c, const ir_node *n, uint32_t mask, bool keepdims, ir_dtype t) {
    const ir_id sum = ir_expand_reduce(c, IR_OP_REDUCE_SUM, n->in[0], mask, keepdims, t, n);
    return with_scalar(c, IR_OP_DIV, sum, ir_expand_cast(c, ir_expand_count(c, n->in[0], mask), t));
}

static ir_id expand_variance(const ir_expand *c, const ir_node *n, uint32_t mask, bool keepdims, ir_dtype t) {
    const ir_attr *correction = ir_node_attr(n, "correction");
    const ir_id x = ir_expand_cast(c, n->in[0], t), elements = ir_expand_count(c, n->in[0], mask);
    const ir_node of = *ir_at(c->rw->to, x);
    unsigned stretch;
    const ir_node row = row_shape(c, &of, mask, &stretch);
    const ir_id count = ir_expand_cast(c, elements, t);
    ir_id degrees = count;
    if (correction && correction->number != 0) { /* in f64: the count may need its digits */
        const ir_id most = ir_expand_cast(c, elements, FUSOR_F64);
        const ir_id left = ir_expand_2(c, IR_OP_SUB, most, ir_expand_number(c, FUSOR_F64, correction->number), 0);
        degrees = ir_expand_2(c, IR_OP_MAXIMUM, left, ir_expand_number(c, FUSOR_F64, 0), 0);
        degrees = ir_expand_cast(c, degrees, t);
    }
    ir_id y = with_scalar(c, IR_OP_DIV, deviations_of(c, x, mask, count, &row, stretch).squares, degrees);
    if (n->op == IR_OP_REDUCE_STD) y = ir_expand_1(c, IR_OP_SQRT, y);
    return keepdims ? y : without_axes(c, n, y, mask);
}

/* Of unsigned types there is nothing to take the absolute value of: those of 64 bits are negative only as i64. */
static ir_id expand_l1(const ir_expand *c, const ir_node *n, uint32_t mask, bool keepdims, ir_dtype t) {
    const ir_dtype from = ir_at(c->rw->to, n->in[0])->dtype;
    ir_id x = ir_expand_cast(c, n->in[0], t);
    if (ir_is_float(from) || ir_is_signed(from)) x = ir_expand_1(c, IR_OP_ABS, x);
    return ir_expand_reduce(c, IR_OP_REDUCE_SUM, x, mask, keepdims, t, n);
}

static ir_id expand_l2(const ir_expand *c, const ir_node *n, uint32_t mask, bool keepdims, ir_dtype t) {
    const ir_id x = ir_expand_1(c, IR_OP_SQUARE, ir_expand_cast(c, n->in[0], t));
    return ir_expand_1(c, IR_OP_SQRT, ir_expand_reduce(c, IR_OP_REDUCE_SUM, x, mask, keepdims, t, n));
}

/* max + log(sum(exp(x - max))); about 0 where the largest is no finite number, and so over no elements, too. */
static ir_id expand_logsumexp(const ir_expand *c, const ir_node *n, uint32_t mask, bool keepdims, ir_dtype t) {
    ir_graph *g = c->rw->to;
    const ir_id x = ir_expand_cast(c, n->in[0], t);
    const ir_node of = *ir_at(g, x);
    unsigned stretch;
    const ir_node row = row_shape(c, &of, mask, &stretch);
    for (unsigned d = 0; d < of.rank; d++) { /* over no elements there is no largest one to ask for */
        if (!(mask >> d & 1) || !ir_size_is(g->sizes, of.dim[d], 0)) continue;
        return ir_expand_1(c, IR_OP_LOG,
                           ir_expand_reduce(c, IR_OP_REDUCE_SUM, ir_expand_1(c, IR_OP_EXP, x), mask, keepdims, t, n));
    }
    const ir_id max = ir_expand_reduce(c, IR_OP_REDUCE_MAX, x, mask, true, t, &row);
    ir_node select = ir_expand_node(c, IR_OP_SELECT, t, &row, 3);
    const ir_id is_finite = ir_expand_1(c, IR_OP_ISFINITE, max);
    ir_id in[3] = {is_finite, max, ir_expand_number(c, t, 0)};
    uint8_t stretches[3] = {0, 0, (uint8_t)all_dims(&row)};
    select.in = in;
    select.stretch = stretches;
    const ir_id about = ir_add_raw(g, &select);
    const ir_id e = ir_expand_1(c, IR_OP_EXP, ir_expand_2(c, IR_OP_SUB, x, about, stretch));
    const ir_id log = ir_expand_1(c, IR_OP_LOG, ir_expand_reduce(c, IR_OP_REDUCE_SUM, e, mask, true, t, &row));
    const ir_id y = ir_expand_2(c, IR_OP_ADD, log, about, 0);
    return keepdims ? y : without_axes(c, n, y, mask);
}

/* 1 / sqrt(v + epsilon), for one value a row. */
static ir_id scale_of(const ir_expand *c, const ir_node *n, ir_id v) {
    const ir_dtype t = ir_at(c->rw->to, v)->dtype;
    const ir_id root = ir_expand_1(
        c, IR_OP_SQRT, with_scalar(c, IR_OP_ADD, v, ir_expand_number(c, t, ir_node_attr(n, "epsilon")->number)));
    return ir_expand_1(c, IR_OP_RECIPROCAL, root);
}

static ir_id expand_norm(const ir_expand *c, const ir_node *n) {
    ir_graph *g = c->rw->to;
    const uint32_t mask = ir_node_axes(g, n);
    const ir_dtype t = ir_node_accumulator(g, n);
    unsigned stretch;
    const ir_node row = row_shape(c, n, mask, &stretch);
    const ir_id x = ir_expand_cast(c, n->in[0], t), count = ir_expand_cast(c, ir_expand_count(c, n->in[0], mask), t);
    ir_id y;
    if (n->op == IR_OP_LAYER_NORM) {
        const deviations v = deviations_of(c, x, mask, count, &row, stretch);
        const ir_id scale = scale_of(c, n, with_scalar(c, IR_OP_DIV, v.squares, count));
        y = ir_expand_2(c, IR_OP_MUL, ir_expand_2(c, IR_OP_SUB, v.d, v.off, stretch), scale, stretch);
    } else {
        const ir_id squares =
            ir_expand_reduce(c, IR_OP_REDUCE_SUM, ir_expand_1(c, IR_OP_SQUARE, x), mask, true, t, &row);
        y = ir_expand_2(c, IR_OP_MUL, x, scale_of(c, n, with_scalar(c, IR_OP_DIV, squares, count)), stretch);
    }
    for (unsigned i = 1; i < n->n_in; i++)
        y = ir_expand_2(c, i == 1 ? IR_OP_MUL : IR_OP_ADD, y, ir_expand_cast(c, n->in[i], t),
                        n->stretch ? n->stretch[i] : 0);
    return ir_expand_finish(c, ir_expand_cast(c, y, n->dtype), n->in[0]);
}

/* Along an axis of one element: it, or what an exclusive scan begins with. */
static ir_id expand_scan(const ir_expand *c, const ir_node *n) {
    const ir_dtype t = ir_node_accumulator(c->rw->to, n);
    if (!ir_node_attr(n, "exclusive")->integer)
        return ir_expand_finish(c, ir_expand_cast(c, ir_expand_cast(c, n->in[0], t), n->dtype), n->in[0]);
    ir_node full = ir_expand_node(c, IR_OP_FULL, n->dtype, n, 1);
    const bool is_product = n->op == IR_OP_CUMPROD;
    ir_id value = ir_is_float(n->dtype) ? ir_expand_number(c, n->dtype, is_product)
                                        : ir_add_literal(c->rw->to, n->dtype, (ir_bits)is_product);
    /* ORDER attrs_FULL: shape, dtype */
    full.attr[0] = (ir_attr){.is_set = true, .list = full.dim, .n = full.rank};
    full.attr[1] = (ir_attr){.is_set = true, .integer = n->dtype};
    full.in = &value;
    full.stretch = (uint8_t[]){(uint8_t)all_dims(n)};
    return ir_expand_finish(c, ir_add_raw(c->rw->to, &full), n->in[0]);
}

bool ir_expands_reduce(const ir_graph *g, const ir_node *n) {
    const ir_kind kind = ir_ops[n->op].kind;
    if (kind == IR_KIND_SCAN) return ir_size_is(g->sizes, n->dim[__builtin_ctz(ir_node_axes(g, n))], 1);
    return kind == IR_KIND_ROW || kind == IR_KIND_NORM || ir_is_composite_reduce(n->op);
}

ir_id ir_expand_reduction(const ir_expand *c, const ir_node *n) {
    if (ir_ops[n->op].kind == IR_KIND_ROW) return expand_softmax(c, n);
    if (ir_ops[n->op].kind == IR_KIND_NORM) return expand_norm(c, n);
    if (ir_ops[n->op].kind == IR_KIND_SCAN) return expand_scan(c, n);
    const uint32_t mask = ir_node_axes(c->rw->to, n);
    const ir_dtype t = ir_node_accumulator(c->rw->to, n);
    const ir_attr *keepdims = ir_node_attr(n, "keepdims");
    const bool keep = keepdims && keepdims->integer != 0;
    ir_id y;
    switch (n->op) {
    case IR_OP_REDUCE_MEAN: y = expand_mean(c, n, mask, keep, t); break;
    case IR_OP_REDUCE_L1: y = expand_l1(c, n, mask, keep, t); break;
    case IR_OP_REDUCE_L2: y = expand_l2(c, n, mask, keep, t); break;
    case IR_OP_REDUCE_LOGSUMEXP: y = expand_logsumexp(c, n, mask, keep, t); break;
    default: y = expand_variance(c, n, mask, keep, t); break;
    }
    return ir_expand_finish(c, ir_expand_cast(c, y, n->dtype), n->in[0]);
}
