/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_expand_attention.c: attention as two matmuls with a softmax between them, in the accumulation type:
 *
 *   s = matmul(q, transpose(k)) * scale, capped, + mask, -inf where a key is not kept
 *   e = exp(s - max(s)), about 0 where the whole row is -inf
 *   y = matmul(e / max(sum(e), 1), v)        (a sum is 0 or at least the 1 of the largest score)
 *
 * Where several query heads share a key head, their rows are those of one matrix: q [.., G * R, S, D] is read as
 * [.., G, R * S, D]. */
#include "base/small.h"
#include "ir/attention.h"
#include "ir/expand.h"
#include "ir/kernel.h"
#include <math.h>

/* Only what has more dims than a kernel: batches, heads twice, queries, keys, and the two sizes of a head. */
bool ir_expands_attention(const ir_node *n) {
    return ir_ops[n->op].kind == IR_KIND_ATTENTION && n->rank > IR_KERNEL_MAX_DIMS - 3;
}

typedef struct attention {
    const ir_expand *c;
    ir_graph *g;
    const ir_node *n;
    ir_attention a;
    ir_dtype t;
    ir_size queries, keys;
} attention;

static ir_id add1(const attention *x, ir_op op, ir_id a) { return ir_expand_op(x->c, op, 1, &a, NULL, 0, 0); }
static ir_id add2(const attention *x, ir_op op, ir_id a, ir_id b) {
    return ir_expand_op(x->c, op, 2, (ir_id[]){a, b}, NULL, 0, 0);
}
static ir_id select3(const attention *x, ir_id cond, ir_id a, ir_id b) {
    return ir_expand_op(x->c, IR_OP_SELECT, 3, (ir_id[]){cond, a, b}, NULL, 0, 0);
}
static ir_id number(const attention *x, double v) { return ir_expand_number(x->c, x->t, v); }
static ir_id integer(const attention *x, int64_t v) { return ir_add_literal(x->g, FUSOR_I64, (ir_bits)v); }
static ir_id cast(const attention *x, ir_id a, ir_dtype t) {
    return ir_at(x->g, a)->dtype == t ? a : ir_expand_op(x->c, IR_OP_CAST, 1, &a, NULL, 0, t);
}

static ir_id product(const attention *x, ir_id a, ir_id b, bool is_transposed) {
    const ir_attr attr[3] = {/* ORDER attrs_MATMUL: transpose_a, transpose_b, dtype */
                             {0},
                             {.is_set = is_transposed, .integer = is_transposed},
                             {.is_set = true, .integer = x->t}};
    return ir_expand_op(x->c, IR_OP_MATMUL, 2, (ir_id[]){a, b}, attr, 3, 0);
}

/* a with other sizes in its last three dims but one: heads and rows. */
static ir_id with_heads(const attention *x, ir_id a, ir_size heads, ir_size rows) {
    ir_node shape = *ir_at(x->g, a);
    shape.dim[shape.rank - 3] = heads;
    shape.dim[shape.rank - 2] = rows;
    return ir_expand_shaped(x->c, IR_OP_RESHAPE, a, shape.dim, shape.rank);
}

static ir_size heads_of(const attention *x, ir_id id) {
    const ir_node *a = ir_at(x->g, id);
    return a->rank < 3 ? ir_size_const(x->g->sizes, 1) : a->dim[a->rank - 3];
}

/* 1 / sqrt(D), of a head without elements 1. */
static ir_id scaled(const attention *x, ir_id s) {
    const ir_node *q = ir_at(x->g, x->n->in[0]);
    int64_t d;
    if (x->a.has_scale) return x->a.scale == 1 ? s : add2(x, IR_OP_MUL, s, number(x, x->a.scale));
    if (ir_size_is_const(x->g->sizes, q->dim[q->rank - 1], &d))
        return d <= 1 ? s : add2(x, IR_OP_MUL, s, number(x, 1 / sqrt((double)d)));
    const ir_attr axis = {.is_set = true, .integer = q->rank - 1};
    const ir_id size = ir_expand_op(x->c, IR_OP_DIM, 1, &x->n->in[0], &axis, 1, 0);
    const ir_id length = cast(x, add2(x, IR_OP_MAXIMUM, size, integer(x, 1)), FUSOR_F64);
    return add2(x, IR_OP_MUL, s, cast(x, add1(x, IR_OP_RECIPROCAL, add1(x, IR_OP_SQRT, length)), x->t));
}

/* 0, 1, .. along the first of `rank` dims, the others 1. */
static ir_id indices(const attention *x, ir_size count, unsigned rank) {
    ir_size shape[2] = {count, ir_size_const(x->g->sizes, 1)};
    const ir_attr attr[3] = {/* ORDER attrs_IOTA: shape, axis, dtype */
                             {.is_set = true, .list = shape, .n = rank},
                             {.is_set = true},
                             {.is_set = true, .integer = FUSOR_I64}};
    return ir_expand_op(x->c, IR_OP_IOTA, 0, NULL, attr, 3, 0);
}

/* i + causal_offset, a column. */
static ir_id shifted_queries(const attention *x) {
    const ir_id i = indices(x, x->queries, 2);
    if (x->a.offset < 0) return i;
    ir_id offset = x->n->in[x->a.offset];
    const ir_dtype t = ir_at(x->g, offset)->dtype;
    if (t == FUSOR_U64) offset = add2(x, IR_OP_MINIMUM, offset, ir_add_literal(x->g, t, (ir_bits)IR_ATTENTION_LIMIT));
    offset = cast(x, offset, FUSOR_I64);
    if (t == FUSOR_I64) {
        offset = add2(x, IR_OP_MINIMUM, offset, integer(x, IR_ATTENTION_LIMIT));
        offset = add2(x, IR_OP_MAXIMUM, offset, integer(x, -IR_ATTENTION_LIMIT));
    }
    return add2(x, IR_OP_ADD, i, offset);
}

static ir_id both(const attention *x, ir_id a, ir_id b) { return a ? add2(x, IR_OP_AND, a, b) : b; }

/* Which keys are kept, as bool that stretches to the scores; 0: all. */
static ir_id kept(const attention *x) {
    const ir_attention *a = &x->a;
    ir_id keep = 0;
    if (a->is_causal || a->left >= 0 || a->right >= 0) {
        const ir_id i = shifted_queries(x), j = indices(x, x->keys, 1);
        if (a->is_causal) keep = both(x, keep, add2(x, IR_OP_LE, j, i));
        if (a->left >= 0) keep = both(x, keep, add2(x, IR_OP_GE, j, add2(x, IR_OP_SUB, i, integer(x, a->left))));
        if (a->right >= 0) keep = both(x, keep, add2(x, IR_OP_LE, j, add2(x, IR_OP_ADD, i, integer(x, a->right))));
    }
    if (a->mask >= 0 && ir_is_bool(ir_at(x->g, x->n->in[a->mask])->dtype)) keep = both(x, keep, x->n->in[a->mask]);
    return keep;
}

/* The scores of every query and key, -inf where the key is not kept. */
static ir_id masked(const attention *x, ir_id s) {
    const int mask = x->a.mask;
    s = scaled(x, s);
    if (x->a.softcap > 0) {
        const ir_id cap = number(x, x->a.softcap);
        s = add2(x, IR_OP_MUL, add1(x, IR_OP_TANH, add2(x, IR_OP_DIV, s, cap)), cap);
    }
    if (mask >= 0 && !ir_is_bool(ir_at(x->g, x->n->in[mask])->dtype))
        s = add2(x, IR_OP_ADD, s, cast(x, x->n->in[mask], x->t));
    const ir_id keep = kept(x);
    return keep ? select3(x, keep, s, number(x, -INFINITY)) : s;
}

/* is_empty: of each row, is no key kept? */
static ir_id softmax(const attention *x, ir_id s, ir_id *is_empty) {
    ir_node row = *ir_at(x->g, s);
    const uint32_t last = 1u << (row.rank - 1);
    row.dim[row.rank - 1] = ir_size_const(x->g->sizes, 1);
    const ir_id max = ir_expand_reduce(x->c, IR_OP_REDUCE_MAX, s, last, true, x->t, &row);
    *is_empty = add2(x, IR_OP_EQ, max, number(x, -INFINITY));
    const ir_id about = select3(x, *is_empty, number(x, 0), max);
    const ir_id e = add1(x, IR_OP_EXP, add2(x, IR_OP_SUB, s, about));
    const ir_id sum = ir_expand_reduce(x->c, IR_OP_REDUCE_SUM, e, last, true, x->t, &row);
    return add2(x, IR_OP_DIV, e, add2(x, IR_OP_MAXIMUM, sum, number(x, 1)));
}

ir_id ir_expand_attention(const ir_expand *c, const ir_node *n) {
    ir_graph *g = c->rw->to;
    const ir_node *q = ir_at(g, n->in[0]), *k = ir_at(g, n->in[1]);
    const attention x = {.c = c,
                         .g = g,
                         .n = n,
                         .a = ir_attention_of(g, n),
                         .t = ir_node_accumulator(g, n),
                         .queries = q->dim[q->rank - 2],
                         .keys = k->dim[k->rank - 2]};
    if (ir_size_is(g->sizes, x.keys, 0)) { /* no row has a largest score */
        ir_node shape = *n;
        const ir_attr attr[2] = {/* ORDER attrs_FULL: shape, dtype */
                                 {.is_set = true, .list = shape.dim, .n = shape.rank},
                                 {.is_set = true, .integer = n->dtype}};
        const ir_id zero = ir_is_float(n->dtype) ? ir_expand_number(c, n->dtype, 0) : ir_add_literal(g, n->dtype, 0);
        return ir_expand_finish(c, ir_expand_op(c, IR_OP_FULL, 1, &zero, attr, 2, 0), n->in[0]);
    }
    const ir_size hq = heads_of(&x, n->in[0]), hv = heads_of(&x, n->in[2]);
    ir_size h = heads_of(&x, n->in[1]), rows = x.queries;
    if (ir_size_is(g->sizes, h, 1)) h = hv;
    const bool is_grouped = hq != h && !ir_size_is(g->sizes, hq, 1);
    if (is_grouped) rows = ir_size_mul(g->sizes, ir_size_div(g->sizes, hq, h), x.queries);
    ir_id s = product(&x, is_grouped ? with_heads(&x, n->in[0], h, rows) : n->in[0], n->in[1], true);
    if (s && is_grouped) s = with_heads(&x, s, hq, x.queries);
    if (!s || !(s = masked(&x, s))) return 0;
    ir_id is_empty, y = softmax(&x, s, &is_empty);
    if (y && is_grouped) y = with_heads(&x, y, h, rows);
    if (y) y = product(&x, y, cast(&x, n->in[2], x.t), false);
    if (y && is_grouped) y = with_heads(&x, y, hq, x.queries);
    if (y) y = select3(&x, is_empty, number(&x, 0), y); /* values may be NaN */
    return y ? ir_expand_finish(c, cast(&x, y, n->dtype), n->in[0]) : 0;
}
