/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_expand_hot.c: what is made of one_hot, without it.
 *
 * Counts: the sum of one_hot over its indices (the sum of eq(index, iota) along a last axis, as a whole of 0 and 1) is a
 * scatter of ones, which takes an addition for each index, not one for each index and place. The sums are the same bits:
 * integers wrap alike, and floats hold every number on the way exactly.
 *
 *   place   minimum(index as unsigned, depth): what is out of range goes to a place behind all, which is cut off
 *   lines   of many indices: parts that threads count apart, and a sum of their counts
 *
 * On a GPU a line of updates is one thread's, so the sum stays there.
 *
 * Lookups: the product of one_hot and a matrix is rows of it; zeros, where an index is out of range. As zeros are
 * multiplied too, each column of floats is NaN where a row other than its own has an infinity or NaN: finite elements
 * of columns are counted for that. */
#include "base/small.h"
#include "ir/expand.h"
#include <math.h>
#include <string.h>

enum {
    LEAST_DEPTH = 17, /* 16 places are a vector, and one thread adds that in the time of a scattered one */
    MOST_LINES = 64,
    PER_PLACE = 16 /* indices of a line for each place that it counts */
};

/* Places that are compared with each index: iota along the last axis of n, all of its type. */
static bool is_places(const ir_graph *g, const ir_node *n, ir_id id, int64_t depth) {
    const ir_node *x = ir_at(g, id);
    int64_t size;
    if (x->op != IR_OP_IOTA || ir_node_attr(x, "axis")->integer != x->rank - 1 || n->dtype != FUSOR_BOOL) return false;
    const int bits = 8 * ir_dtypes[x->dtype].bytes - ir_is_signed(x->dtype);
    for (int d = 0; d < x->rank - 1; d++)
        if (!ir_size_is(g->sizes, x->dim[d], 1)) return false;
    return ir_is_int(x->dtype) && ir_size_is_const(g->sizes, x->dim[x->rank - 1], &size) && size == depth &&
           (bits >= 31 || depth <= INT64_C(1) << bits);
}

/* What indices of other shape and type are made of, a few operators back: so it is read as it lies. */
static ir_id behind(const ir_graph *g, ir_id id) {
    enum { FEW = 8 };
    for (int i = 0; i < FEW; i++) {
        const ir_node *n = ir_at(g, id);
        if (n->op == IR_OP_CAST) {
            const ir_dtype from = ir_at(g, n->in[0])->dtype;
            if (!ir_is_int(from) || ir_dtypes[from].bytes >= ir_dtypes[n->dtype].bytes ||
                (ir_is_signed(from) && !ir_is_signed(n->dtype)))
                return id;
        } else if (n->op != IR_OP_RESHAPE && n->op != IR_OP_UNSQUEEZE && n->op != IR_OP_SQUEEZE) {
            return id;
        }
        id = n->in[0];
    }
    return id;
}

typedef struct hot {
    ir_id indices; /* [.., 1] */
    int64_t depth;
    unsigned rank; /* with the places */
    ir_size dim[IR_MAX_RANK];
    ir_dtype whole; /* unsigned, as wide as the indices or wider: what is out of range is past all places */
} hot;

/* Is id a one_hot, of whole numbers? */
static bool is_hot(const ir_graph *g, ir_id id, hot *h) {
    const ir_node *x = ir_at(g, id);
    if (x->op == IR_OP_CAST) x = ir_at(g, x->in[0]);
    if (x->op != IR_OP_EQ || x->rank < 2 || !ir_size_is_const(g->sizes, x->dim[x->rank - 1], &h->depth)) return false;
    if (h->depth < LEAST_DEPTH || h->depth > INT64_C(1) << 30) return false;
    const int side = is_places(g, x, x->in[1], h->depth) ? 0 : is_places(g, x, x->in[0], h->depth) ? 1 : -1;
    if (side < 0) return false;
    const ir_node *index = ir_at(g, x->in[side]);
    h->indices = x->in[side];
    h->rank = x->rank;
    h->whole = ir_dtypes[index->dtype].bytes == 8 ? FUSOR_U64 : FUSOR_U32;
    memcpy(h->dim, x->dim, sizeof h->dim);
    return index->rank == x->rank && ir_size_is(g->sizes, index->dim[x->rank - 1], 1) &&
           memcmp(index->dim, x->dim, (x->rank - 1u) * sizeof *x->dim) == 0;
}

/* The indices in another shape, as whole. */
static ir_id indices_of(const ir_expand *c, const hot *h, ir_size *dim, unsigned rank) {
    const ir_id x = behind(c->rw->to, h->indices);
    return ir_expand_cast(c, ir_expand_shaped(c, IR_OP_RESHAPE, x, dim, rank), h->whole);
}

static ir_id unary(const ir_expand *c, ir_op op, ir_id x) { return ir_expand_op(c, op, 1, &x, NULL, 0, 0); }

static ir_id binary(const ir_expand *c, ir_op op, ir_id x, ir_id y) {
    return ir_expand_op(c, op, 2, (ir_id[]){x, y}, NULL, 0, 0);
}

static ir_id select(const ir_expand *c, ir_id which, ir_id x, ir_id y) {
    return ir_expand_op(c, IR_OP_SELECT, 3, (ir_id[]){which, x, y}, NULL, 0, 0);
}

static ir_id lookup(const ir_expand *c, const ir_node *n) {
    ir_graph *g = c->rw->to;
    hot h;
    const ir_id w = n->in[1];
    if (ir_at(g, w)->rank != 2 || n->attr[0].integer || n->attr[1].integer || !is_hot(g, n->in[0], &h)) return 0;
    if (!ir_size_is(g->sizes, ir_at(g, w)->dim[0], h.depth)) return 0;
    const ir_dtype t = ir_at(g, w)->dtype;
    const ir_id indices = indices_of(c, &h, h.dim, h.rank - 1);
    const ir_id row[2] = {w, binary(c, IR_OP_MINIMUM, indices, ir_add_literal(g, h.whole, (ir_bits)h.depth - 1))};
    h.dim[h.rank - 1] = ir_size_const(g->sizes, 1);
    const ir_id is_place =
        binary(c, IR_OP_LT, indices_of(c, &h, h.dim, h.rank), ir_add_literal(g, h.whole, (ir_bits)h.depth));
    const ir_id zero = ir_add_literal(g, t, 0), x = ir_expand_op(c, IR_OP_TAKE, 2, row, NULL, 0, 0);
    ir_id y = select(c, is_place, x, zero);
    if (t == FUSOR_U64) y = ir_expand_cast(c, y, FUSOR_I64); /* what sums are made in */
    if (!ir_is_float(t)) return ir_expand_cast(c, y, n->dtype);
    ir_size first = ir_size_const(g->sizes, 0);
    const ir_attr axes = ir_list_attr(&first, 1);
    const ir_id finite = unary(c, IR_OP_ISFINITE, w), own = unary(c, IR_OP_NOT, unary(c, IR_OP_ISFINITE, x));
    const ir_id others = ir_expand_op(c, IR_OP_REDUCE_SUM, 1, &finite, &axes, 1, 0);
    const ir_id is_own = binary(c, IR_OP_AND, is_place, own); /* its own element is none of the others */
    const ir_id count = binary(c, IR_OP_ADD, others, ir_expand_cast(c, is_own, FUSOR_I64));
    y = ir_expand_cast(c, binary(c, IR_OP_ADD, y, zero), n->dtype); /* a sum of zeros is +0 */
    return select(c, binary(c, IR_OP_EQ, count, ir_add_literal(g, FUSOR_I64, (ir_bits)h.depth)), y,
                  ir_expand_number(c, n->dtype, ir_is_bool(n->dtype) ? 1 : NAN));
}

ir_id ir_expand_hot(const ir_expand *c, const ir_node *n) {
    ir_graph *g = c->rw->to;
    ir_sizes *s = g->sizes;
    hot of;
    if (n->op == IR_OP_MATMUL) return lookup(c, n);
    if (n->op != IR_OP_REDUCE_SUM || !g->packs_const || !is_hot(g, n->in[0], &of)) return 0;
    const int64_t depth = of.depth;
    int64_t count = 0;
    /* kept dims, then reduced ones, then places; indices vary along all but the last */
    const unsigned rank = of.rank, reduced = ir_node_axes(g, n);
    unsigned kept = 0;
    while (kept < rank - 1 && !(reduced >> kept & 1)) kept++;
    if (kept == rank - 1 || reduced != ((1u << (rank - 1)) - (1u << kept))) return 0;
    ir_size all = ir_size_const(s, 1), dim[IR_MAX_RANK];
    for (unsigned d = kept; d < rank - 1; d++) all = ir_size_mul(s, all, of.dim[d]);
    const bool is_known = ir_size_is_const(s, all, &count);
    const ir_dtype sum = ir_node_accumulator(g, n), t = is_known && count < INT32_MAX ? FUSOR_I32 : FUSOR_I64;
    const int64_t exact = sum == FUSOR_F64 ? INT64_C(1) << 53 : INT64_C(1) << 24;
    if (ir_is_float(sum) && (!is_known || count > exact)) return 0;

    int64_t lines = kept || !is_known ? 1 : MOST_LINES;
    while (lines > 1 && (count % lines || count / lines < PER_PLACE * depth)) lines /= 2;
    memcpy(dim, of.dim, kept * sizeof *dim);
    unsigned last = kept;
    if (lines > 1) dim[last++] = ir_size_const(s, lines);
    dim[last] = ir_size_div(s, all, ir_size_const(s, lines));
    ir_attr shape, axes, axis = {.is_set = true, .integer = (int64_t)last};
    ir_id in[3] = {
        0, binary(c, IR_OP_MINIMUM, indices_of(c, &of, dim, last + 1u), ir_add_literal(g, of.whole, (ir_bits)depth))};
    in[2] = ir_expand_full(c, t, 1, dim, last + 1u);
    dim[last] = ir_size_const(s, depth + 1);
    in[0] = ir_expand_full(c, t, 0, dim, last + 1u);
    const ir_attr attr[2] = {axis, {.is_set = true, .integer = 1}}; /* ORDER attrs_SCATTER: mode=add */
    ir_id y = ir_expand_op(c, IR_OP_SCATTER, 3, in, attr, 2, 0);
    ir_size start = ir_size_const(s, 0), end = ir_size_const(s, depth), step = ir_size_const(s, 1),
            at = ir_size_const(s, (int64_t)last);
    y = ir_expand_slice(c, y, 1, &start, &end, &step, &at);
    axes = ir_list_attr(&start, 1); /* lines are dim 0 */
    if (lines > 1) y = ir_expand_op(c, IR_OP_REDUCE_SUM, 1, &y, &axes, 1, 0);
    if (ir_is_float(sum)) y = ir_expand_cast(c, y, sum); /* exact; a conversion from there saturates */
    y = ir_expand_cast(c, y, n->dtype);
    memcpy(dim, n->dim, sizeof dim);
    shape = ir_list_attr(dim, n->rank);
    return ir_at(g, y)->rank == n->rank ? y : ir_expand_op(c, IR_OP_RESHAPE, 1, &y, &shape, 1, 0);
}
