/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Counts in pass_expand: the sum of one_hot over its indices (the sum of eq(index, iota) along a last axis, as a whole
 * of 0 and 1) is a scatter of ones, which takes an addition for each index, not one for each index and place. The sums
 * are the same bits: integers wrap alike, and floats hold every number on the way exactly.
 *
 *   place   minimum(index as unsigned, depth): what is out of range goes to a place behind all, which is cut off
 *   lines   of many indices: parts that threads count apart, and a sum of their counts
 *
 * On a GPU a line of updates is one thread's, so the sum stays there. */
#include "base/small.h"
#include "ir/expand.h"

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

static ir_attr list_attr(ir_size *list, uint32_t n) { return (ir_attr){.is_set = true, .list = list, .n = n}; }

static ir_id filled(const ir_expand *c, int v, ir_dtype t, ir_size *dim, unsigned rank) {
    const ir_attr attr[2] = {list_attr(dim, rank), {.is_set = true, .integer = t}}; /* ORDER attrs_FULL */
    const ir_id in = ir_add_literal(c->rw->to, t, (ir_bits)v);
    return ir_expand_op(c, IR_OP_FULL, 1, &in, attr, 2, 0);
}

/* What indices of other shape and type are made of: so it is read as it lies. */
static ir_id behind(const ir_graph *g, ir_id id) {
    for (;;) {
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
}

ir_id ir_expand_count_of_places(const ir_expand *c, const ir_node *n) {
    ir_graph *g = c->rw->to;
    ir_sizes *s = g->sizes;
    if (n->op != IR_OP_REDUCE_SUM || !g->packs_const) return 0;
    const ir_node *x = ir_at(g, n->in[0]);
    if (x->op == IR_OP_CAST) x = ir_at(g, x->in[0]);
    int64_t depth = 0, count = 0;
    if (x->op != IR_OP_EQ || x->rank < 2 || !ir_size_is_const(s, x->dim[x->rank - 1], &depth)) return 0;
    if (depth < LEAST_DEPTH || depth > INT64_C(1) << 30) return 0;
    const int side = is_places(g, x, x->in[1], depth) ? 0 : is_places(g, x, x->in[0], depth) ? 1 : -1;
    if (side < 0) return 0;
    const ir_id indices = x->in[side];
    const ir_node of = *x, index = *ir_at(g, indices);
    /* kept dims, then reduced ones, then places; indices vary along all but the last */
    const unsigned rank = of.rank, reduced = ir_node_axes(g, n);
    unsigned kept = 0;
    while (kept < rank - 1 && !(reduced >> kept & 1)) kept++;
    if (kept == rank - 1 || reduced != ((1u << (rank - 1)) - (1u << kept))) return 0;
    if (index.rank != rank || !ir_size_is(s, index.dim[rank - 1], 1)) return 0;
    if (memcmp(index.dim, of.dim, (rank - 1) * sizeof *of.dim) != 0) return 0;
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
    ir_attr shape = list_attr(dim, last + 1u), axes = {0}, axis = {.is_set = true, .integer = (int64_t)last};
    const ir_dtype whole = ir_dtypes[index.dtype].bytes == 8 ? FUSOR_U64 : FUSOR_U32;
    ir_id in[3] = {0, behind(g, indices), ir_add_literal(g, whole, (ir_bits)depth)};
    in[1] = ir_expand_cast(c, ir_expand_op(c, IR_OP_RESHAPE, 1, &in[1], &shape, 1, 0), whole);
    in[1] = ir_expand_op(c, IR_OP_MINIMUM, 2, &in[1], NULL, 0, 0);
    in[2] = filled(c, 1, t, dim, last + 1u);
    dim[last] = ir_size_const(s, depth + 1);
    in[0] = filled(c, 0, t, dim, last + 1u);
    const ir_attr attr[2] = {axis, {.is_set = true, .integer = 1}}; /* ORDER attrs_SCATTER: mode=add */
    ir_id y = ir_expand_op(c, IR_OP_SCATTER, 3, in, attr, 2, 0);
    ir_size start = ir_size_const(s, 0), end = ir_size_const(s, depth), at = ir_size_const(s, (int64_t)last);
    const ir_attr part[4] = {list_attr(&start, 1), list_attr(&end, 1), {0}, list_attr(&at, 1)};
    y = ir_expand_op(c, IR_OP_SLICE, 1, &y, part, 4, 0);
    axes = list_attr(&start, 1); /* lines are dim 0 */
    if (lines > 1) y = ir_expand_op(c, IR_OP_REDUCE_SUM, 1, &y, &axes, 1, 0);
    y = ir_expand_cast(c, y, n->dtype);
    memcpy(dim, n->dim, sizeof dim);
    shape = list_attr(dim, n->rank);
    return ir_at(g, y)->rank == n->rank ? y : ir_expand_op(c, IR_OP_RESHAPE, 1, &y, &shape, 1, 0);
}
