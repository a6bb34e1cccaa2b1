/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_expand_take.c: indices of take, take_along and scatter that are counted, not looked up: what they move is a view
 * then, which fuses, and has nothing to store, check or gather.
 *
 *   a + b * j           a slice: flipped, every other one, shifted; one element, where j is not in it
 *   (a + j) mod m       a pad that wraps around: rolled, tiled
 *   j / q               along the last axis, each element q times: upsampled. (Of other axes rows are copied as it is.)
 *   a + b * either      the same of a slice
 *
 * And a scatter of a + j or a - j into no more than a few times as many places is a concatenation of what is before,
 * there and behind; not into a parameter that is written in place, of which only the updates are touched.
 *
 * j: the place of an index along one axis of the indices (iota). Only where the text proves every index to be in
 * range, and what is converted, divided or shifted on the way to it not to have wrapped around. */
#include "base/small.h"
#include "ir/expand.h"

enum { MAX_DEPTH = 10 };                     /* of an index expression: each operator may ask both operands */
static const int64_t FAR = INT64_C(1) << 60; /* numbers past it are not looked at, so that sums of two are exact */

typedef struct places { /* a + b * f(j) */
    int dim;            /* whose place j is; -1: a everywhere */
    ir_size a;
    int64_t b;
    enum { PLACES_LINE, PLACES_WRAP, PLACES_REPEAT } kind; /* f(j): j; (from + j) mod by; j / by */
    int64_t from, by;
} places;

static bool number_of(const ir_graph *g, const places *p, int64_t *out) {
    return p->dim < 0 && ir_size_is_const(g->sizes, p->a, out);
}

/* How many values f has. n: the indices, or what they are computed of. */
static ir_size count_of(const ir_graph *g, const places *p, const ir_node *n) {
    if (p->dim < 0) return ir_size_const(g->sizes, 1);
    if (p->kind == PLACES_WRAP) return ir_size_const(g->sizes, p->by);
    return ir_size_div(g->sizes, n->dim[p->dim], ir_size_const(g->sizes, p->kind == PLACES_REPEAT ? p->by : 1));
}

/* The lowest and the highest value, where there is one. */
static void range_of(const ir_graph *g, const places *p, const ir_node *n, ir_size *low, ir_size *high) {
    ir_sizes *s = g->sizes;
    const ir_size steps = ir_size_sub(s, count_of(g, p, n), ir_size_const(s, 1));
    const ir_size last = ir_size_add(s, p->a, ir_size_mul(s, steps, ir_size_const(s, p->b)));
    *low = p->b < 0 ? last : p->a;
    *high = p->b < 0 ? p->a : last;
}

/* Are the values those of the expression without wrapping around? Sums and products may have wrapped on the way: what
 * counts is what they come to. i64 holds all that is counted in memory. */
static bool fits(const ir_graph *g, const places *p, const ir_node *n) {
    const int bits = 8 * ir_dtypes[n->dtype].bytes - ir_is_signed(n->dtype);
    ir_size low, high;
    int64_t lowest, highest;
    if (bits == 63) return true;
    range_of(g, p, n, &low, &high);
    if (!ir_size_is_const(g->sizes, low, &lowest) || !ir_size_is_const(g->sizes, high, &highest)) return false;
    if (bits == 64) return lowest >= 0;
    return lowest >= (ir_is_signed(n->dtype) ? -(INT64_C(1) << bits) : 0) && highest < INT64_C(1) << bits;
}

static bool scale(const ir_graph *g, places *p, int64_t by) {
    p->a = ir_size_mul(g->sizes, p->a, ir_size_const(g->sizes, by));
    if (!by) *p = (places){.dim = -1, .a = p->a};
    return !__builtin_mul_overflow(p->b, by, &p->b);
}

/* x / by or x mod by, x being a plain count. */
static bool divide(const ir_graph *g, const ir_node *x, places *p, int64_t by, bool is_rest, bool is_floored) {
    ir_sizes *s = g->sizes;
    ir_size low, high;
    int64_t from, lowest, highest;
    if (by < 1 || by > FAR || p->kind != PLACES_LINE || p->b != 1 || !fits(g, p, x) ||
        !ir_size_is_const(s, p->a, &from))
        return false;
    range_of(g, p, x, &low, &high);
    if (is_rest) {
        if (!ir_size_is_const(s, low, &lowest) || !ir_size_is_const(s, high, &highest)) return false;
        if (lowest >= 0 && highest < by) return true;
        if (lowest < 0 && !is_floored) return false;
        p->from = (from % by + by) % by;
    } else if (from) {
        return false;
    }
    p->kind = is_rest ? PLACES_WRAP : PLACES_REPEAT;
    p->a = ir_size_const(s, 0);
    p->by = by;
    return true;
}

static bool places_of(const ir_graph *g, ir_id id, int depth, places *p);

static bool through_view(const ir_graph *g, const ir_node *n, int depth, places *p) {
    int from[IR_MAX_RANK], dim = -1;
    if (!ir_view_is_index_map(g, n) || !places_of(g, n->in[0], depth, p)) return false;
    ir_view_dims(g, n, from);
    for (int d = 0; d < n->rank && p->dim >= 0; d++)
        if (from[d] == p->dim) dim = d;
    if (p->dim >= 0 && dim < 0) return false;
    p->dim = dim;
    return true;
}

/* A flipped count, and the like. */
static bool through_slice(ir_graph *g, const ir_node *n, int depth, places *p) {
    ir_size start[IR_MAX_RANK];
    int64_t step[IR_MAX_RANK];
    if (!places_of(g, n->in[0], depth, p)) return false;
    if (p->dim < 0) return true;
    ir_slice_map(g, n, start, step);
    if (p->kind != PLACES_LINE) return false;
    p->a = ir_size_add(g->sizes, p->a, ir_size_mul(g->sizes, start[p->dim], ir_size_const(g->sizes, p->b)));
    return !__builtin_mul_overflow(p->b, step[p->dim], &p->b);
}

static bool of_two(const ir_graph *g, const ir_node *n, int depth, places *p) {
    ir_sizes *s = g->sizes;
    places y;
    int64_t by = 0;
    if (!places_of(g, n->in[0], depth, p) || !places_of(g, n->in[1], depth, &y)) return false;
    const ir_node *x = ir_at(g, n->in[0]);
    if (p->dim >= 0) p->dim += n->rank - x->rank;
    if (y.dim >= 0) y.dim += n->rank - ir_at(g, n->in[1])->rank;
    switch (n->op) {
    case IR_OP_SUB:
        if (!scale(g, &y, -1)) return false;
        /* fall through */
    case IR_OP_ADD:
        if (p->dim >= 0 && y.dim >= 0) return false;
        y.a = p->a = ir_size_add(s, p->a, y.a);
        if (y.dim >= 0) *p = y;
        return true;
    case IR_OP_MUL:
        if (number_of(g, p, &by)) *p = y;
        else if (!number_of(g, &y, &by)) return false;
        return scale(g, p, by);
    default:
        if (!number_of(g, &y, &by)) return false;
        if (n->op == IR_OP_SHR || n->op == IR_OP_AND) {
            if (n->op == IR_OP_SHR && (by < 0 || by > 30)) return false;
            if (n->op == IR_OP_AND && (by < 0 || by > FAR || by & (by + 1))) return false;
            by = n->op == IR_OP_SHR ? INT64_C(1) << by : by + 1;
        }
        /* A rest of bits is floored in two's complement, as mod is. p->dim is of n, whose shape is x's then. */
        return x->rank == n->rank && divide(g, x, p, by, n->op != IR_OP_DIV && n->op != IR_OP_SHR, n->op != IR_OP_FMOD);
    }
}

/* What the indices of node id come to; false: unknown. */
static bool places_of(const ir_graph *g, ir_id id, int depth, places *p) {
    const ir_node *n = ir_at(g, id);
    const ir_size zero = ir_size_const(g->sizes, 0);
    if (!ir_is_int(n->dtype) || depth == MAX_DEPTH) return false;
    switch (n->op) {
    case IR_OP_LITERAL: {
        const unsigned unused = 64u - 8u * ir_dtypes[n->dtype].bytes;
        const int64_t v = (int64_t)(n->bits << unused);
        *p = (places){.dim = -1, .a = ir_size_const(g->sizes, ir_is_signed(n->dtype) ? v >> unused : (int64_t)n->bits)};
        return ir_is_signed(n->dtype) || n->bits >> 63 == 0;
    }
    case IR_OP_DIM:
        *p = (places){.dim = -1, .a = ir_at(g, n->in[0])->dim[ir_node_attr(n, "axis")->integer]};
        return true;
    case IR_OP_IOTA: {
        const int axis = (int)ir_node_attr(n, "axis")->integer;
        const bool is_one = ir_size_is(g->sizes, n->dim[axis], 1);
        *p = (places){.dim = is_one ? -1 : axis, .a = zero, .b = !is_one};
        return true;
    }
    case IR_OP_CAST: return places_of(g, n->in[0], depth + 1, p) && fits(g, p, ir_at(g, n->in[0]));
    case IR_OP_NEG: return places_of(g, n->in[0], depth + 1, p) && scale(g, p, -1);
    case IR_OP_FULL: return places_of(g, n->in[0], depth + 1, p);
    case IR_OP_RESHAPE:
    case IR_OP_SQUEEZE:
    case IR_OP_UNSQUEEZE:
    case IR_OP_TRANSPOSE:
    case IR_OP_BROADCAST_TO: return through_view(g, n, depth + 1, p);
    case IR_OP_SLICE: return through_slice((ir_graph *)g, n, depth + 1, p);
    case IR_OP_ADD:
    case IR_OP_SUB:
    case IR_OP_MUL:
    case IR_OP_DIV:
    case IR_OP_MOD:
    case IR_OP_FMOD:
    case IR_OP_SHR:
    case IR_OP_AND: return of_two(g, n, depth + 1, p);
    default: return false;
    }
}

/* ---- views ---- */

static ir_id slice(const ir_expand *c, ir_id x, unsigned axis, ir_size first, int64_t step, ir_size count) {
    ir_sizes *s = c->rw->to->sizes;
    const ir_size size = ir_at(c->rw->to, x)->dim[axis], one = ir_size_const(s, 1), last = ir_size_sub(s, size, one);
    if (!step) step = 1;
    if (step == 1 && count == size && ir_size_is(s, first, 0)) return x;
    ir_size end = ir_size_mul(s, ir_size_sub(s, count, one), ir_size_const(s, step)), at = ir_size_const(s, axis);
    end = ir_size_add(s, ir_size_add(s, first, end), ir_size_const(s, step < 0 ? -1 : 1));
    if (ir_size_is(s, end, -1)) end = ir_size_const(s, INT64_MIN);
    if (step < 0 && first == last) first = ir_size_const(s, INT64_MAX);
    ir_size by = ir_size_const(s, step);
    x = ir_expand_slice(c, x, 1, &first, &end, &by, &at);
    return x && ir_at(c->rw->to, x)->dim[axis] == count ? x : 0;
}

/* The places from .. from + n - 1 of x over and over. */
static ir_id wrap(const ir_expand *c, ir_id x, unsigned axis, int64_t from, int64_t n) {
    ir_sizes *s = c->rw->to->sizes;
    const unsigned rank = ir_at(c->rw->to, x)->rank;
    ir_size pads[2 * IR_MAX_RANK];
    int64_t size = 0;
    ir_size_is_const(s, ir_at(c->rw->to, x)->dim[axis], &size);
    for (unsigned d = 0; d < 2 * rank; d++) pads[d] = ir_size_const(s, 0);
    if (from + n > size) {
        pads[rank + axis] = ir_size_const(s, from + n - size);
        const ir_attr attr[3] = {ir_list_attr(pads, 2 * rank), {0}, {.is_set = true, .integer = 3}}; /* ORDER: wrap */
        x = ir_expand_op(c, IR_OP_PAD, 1, &x, attr, 3, 0);
    }
    return x ? slice(c, x, axis, ir_size_const(s, from), 1, ir_size_const(s, n)) : 0;
}

/* Each element along the last axis `by` times. */
static ir_id repeat(const ir_expand *c, ir_id x, int64_t by) {
    ir_sizes *s = c->rw->to->sizes;
    const ir_node n = *ir_at(c->rw->to, x);
    ir_size dim[IR_MAX_RANK];
    if (n.rank == IR_MAX_RANK) return 0;
    memcpy(dim, n.dim, sizeof dim);
    dim[n.rank] = ir_size_const(s, 1);
    x = ir_expand_shaped(c, IR_OP_RESHAPE, x, dim, n.rank + 1u);
    dim[n.rank] = ir_size_const(s, by);
    x = ir_expand_shaped(c, IR_OP_BROADCAST_TO, x, dim, n.rank + 1u);
    dim[n.rank - 1] = ir_size_mul(s, n.dim[n.rank - 1], dim[n.rank]);
    return ir_expand_shaped(c, IR_OP_RESHAPE, x, dim, n.rank);
}

/* The view that take or take_along is, or 0. */
ir_id ir_expand_take(const ir_expand *c, const ir_node *n) {
    ir_graph *g = c->rw->to;
    ir_sizes *s = g->sizes;
    const ir_node x = *ir_at(g, n->in[0]), index = *ir_at(g, n->in[1]);
    const bool is_along = n->op == IR_OP_TAKE_ALONG;
    const unsigned axis = (unsigned)ir_node_attr(n, "axis")->integer;
    ir_size low, high, dim[IR_MAX_RANK];
    int64_t length = 0;
    places p;
    if (!places_of(g, n->in[1], 0, &p) || !fits(g, &p, &index)) return 0;
    if (is_along && p.dim >= 0 && p.dim != (int)axis) return 0;
    const ir_size count = count_of(g, &p, &index), minus = ir_size_const(s, -1),
                  all = p.dim < 0 ? count : index.dim[p.dim];
    range_of(g, &p, &index, &low, &high);
    if (ir_size_never_negative(s, ir_size_sub(s, minus, high))) { /* from the end */
        p.a = ir_size_add(s, p.a, x.dim[axis]);
        range_of(g, &p, &index, &low, &high);
    }
    /* Where there is an index at all, what is as large as the number of their steps is not negative either. */
    const ir_size above = ir_size_sub(s, ir_size_add(s, x.dim[axis], minus), high),
                  steps = ir_size_add(s, count, minus);
    const bool is_in_range =
        (ir_size_never_negative(s, low) || ir_size_never_negative(s, ir_size_sub(s, low, steps))) &&
        (ir_size_never_negative(s, above) || ir_size_never_negative(s, ir_size_sub(s, above, steps)));
    if (!is_in_range) return 0;
    if (p.kind == PLACES_WRAP && (!ir_size_is_const(s, all, &length) || length > FAR)) return 0;
    if (p.kind == PLACES_REPEAT && (axis + 1u != x.rank || ir_size_mul(s, count, ir_size_const(s, p.by)) != all))
        return 0;
    for (unsigned d = 0; is_along && d < n->rank; d++)
        if (d != axis && x.dim[d] != n->dim[d] && !ir_size_is(s, x.dim[d], 1)) return 0;
    ir_id y = slice(c, n->in[0], axis, p.a, p.b, count);
    if (y && p.kind == PLACES_WRAP) y = wrap(c, y, axis, p.from, length);
    if (y && p.kind == PLACES_REPEAT) y = repeat(c, y, p.by);
    if (!y) return 0;
    if (!is_along) { /* sizes of 1 where the indices have other axes */
        memcpy(dim, n->dim, sizeof dim);
        for (int d = 0; d < index.rank; d++)
            if (d != p.dim) dim[axis + (unsigned)d] = ir_size_const(s, 1);
        y = ir_expand_shaped(c, IR_OP_RESHAPE, y, dim, n->rank);
    }
    return y ? ir_expand_shaped(c, IR_OP_BROADCAST_TO, y, n->dim, n->rank) : 0;
}

/* The concatenation that a scatter is, or 0. */
ir_id ir_expand_scatter(const ir_expand *c, const ir_node *n) {
    enum { MOST = 4 }; /* places for each update */
    ir_graph *g = c->rw->to;
    ir_sizes *s = g->sizes;
    const ir_node x = *ir_at(g, n->in[0]), index = *ir_at(g, n->in[1]);
    const unsigned axis = (unsigned)ir_node_attr(n, "axis")->integer;
    const ir_op combine = ir_scatter_combine(ir_node_attr(n, "mode")->integer);
    ir_size low, high;
    int64_t first, last, size, count;
    places p;
    for (uint32_t r = 0; r < g->params.n && x.op == IR_OP_PARAM; r++)
        for (uint32_t i = 0; i < c->rw->from->results.n && g->params.at[r].node == n->in[0]; i++)
            if (c->rw->from->results.at[i].alias == (int)r) return 0;
    if (!places_of(g, n->in[1], 0, &p) || !fits(g, &p, &index) || p.kind != PLACES_LINE) return 0;
    for (unsigned d = 0; d < n->rank; d++)
        if (d != axis && index.dim[d] != x.dim[d]) return 0;
    range_of(g, &p, &index, &low, &high);
    if (!ir_size_is_const(s, low, &first) || !ir_size_is_const(s, high, &last) ||
        !ir_size_is_const(s, x.dim[axis], &size) || !ir_size_is_const(s, index.dim[axis], &count) || count < 1)
        return 0;
    if (last < 0 && first >= -FAR) first += size, last += size;
    const bool is_each = p.dim == (int)axis ? p.b == 1 || p.b == -1 : p.dim < 0 && count == 1;
    if (!is_each || size > FAR || first < 0 || last >= size || size / MOST > count) return 0;
    ir_id part[3], u = n->in[2];
    int n_parts = 0;
    if (p.b < 0) u = slice(c, u, axis, ir_size_const(s, count - 1), -1, ir_size_const(s, count));
    if (first) part[n_parts++] = slice(c, n->in[0], axis, ir_size_const(s, 0), 1, ir_size_const(s, first));
    part[n_parts] = u;
    if (combine != IR_OP_NONE) {
        const ir_id there = slice(c, n->in[0], axis, ir_size_const(s, first), 1, ir_size_const(s, count));
        part[n_parts] = ir_expand_op(c, combine, 2, (ir_id[]){there, u}, NULL, 0, 0);
    }
    n_parts++;
    if (last + 1 < size)
        part[n_parts++] = slice(c, n->in[0], axis, ir_size_const(s, last + 1), 1, ir_size_const(s, size - last - 1));
    return n_parts == 1 ? part[0] : ir_expand_op(c, IR_OP_CONCAT, n_parts, part, ir_node_attr(n, "axis"), 1, 0);
}
