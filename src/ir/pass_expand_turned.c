/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_expand_turned.c: products whose result is wanted transposed. A contraction makes rows, vectors of columns:
 * stored along a column they are elements far apart. So where all that becomes of a product is transposed, its operands
 * change places: (a b)^T = b^T a^T. Each element is the sum of the same products in the same order.
 *
 *   matmul -> element-wise -> transpose -> element-wise -> anything
 *   becomes matmul' -> transpose -> element-wise -> transpose -> ..., whose two transposes are one index map of a
 *   kernel. What becomes of matmul' is transposed twice, so the pass leaves it as it is from then on
 *
 * Only where the elements of a vector lie apart by a large power of two, so that they fall into few sets of a cache:
 * else the stores are hidden, or a map transposes (plan_cluster.c), and what is packed the other way is not hidden.
 * (EPYC 9005, f32, one thread, the time of what it was: 512x64x512 0.09, 512x256x256 0.27, 512x256x196 0.38,
 * 256x256x256 0.64, 1024 cubed 0.57, 384x256x256 0.95; where it is left out 128x256x256 1.12, 196x512x384 1.28. At v3
 * and v2, which store element by element, 0.89 to 1.04.)
 *
 * And rows of what is transposed, softmax(transpose(x)): vectors lie along x's last dim, and the result's elements
 * apart. The softmax of x is made along the other axis, and transposed: by a map, or not at all where what follows
 * turns it back. (Softmax of 128x128, 256x256, 1000x1000, 1024x1024 0.64, 0.22, 0.52, 0.06 of the time, cumsum of
 * 1024x1024 0.05.) */
#include "base/small.h"
#include "ir/expand.h"
#include <string.h>

/* Of the product as it was: from so many rows on that are a multiple of so many bytes a vector's elements would be
 * stored to few sets of L1. What operand 1 takes to be packed anew, where it was packed once, is a small part of the
 * products where a row has no more than so many of them for each row. */
enum { FEWEST_ROWS = 256, SET_BYTES = 512, PRODUCTS_A_ROW = 8 };
enum { MOST_USERS = 64 }; /* that are looked at */

/* Axis d with the last two changing places. */
static int swapped(int d, int rank) { return d < rank - 2 ? d : 2 * rank - 3 - d; }

/* A transpose of the last two axes alone. */
static bool is_turn(const ir_graph *g, const ir_node *n) {
    int perm[IR_MAX_RANK];
    if (n->op != IR_OP_TRANSPOSE || n->rank < 2) return false;
    ir_view_perm(g, n, perm);
    for (int d = 0; d < n->rank; d++)
        if (perm[d] != swapped(d, n->rank)) return false;
    return true;
}

/* Is all that becomes of it by element-wise operators transposed once, or three times, before something else reads it?
 * But not by products, which read it either way. *left: users to look at. */
static bool ends_turned(const ir_graph *g, const uint32_t *uses, ir_id id, bool is_turned, int *left) {
    const unsigned rank = ir_at(g, id)->rank;
    for (uint32_t r = 0; r < g->results.n; r++)
        if (g->results.at[r].node == id && !is_turned) return false;
    for (ir_id i = id + 1; i < g->nodes.n; i++) {
        const ir_node *n = ir_at(g, i);
        const ir_kind kind = ir_ops[n->op].kind;
        bool is_user = false;
        for (int k = 0; k < n->n_in; k++) is_user |= n->in[k] == id;
        if (!is_user || !uses[i]) continue; /* or it is dead */
        if (kind == IR_KIND_CONTRACT || kind == IR_KIND_EINSUM || kind == IR_KIND_ATTENTION || kind == IR_KIND_CONV ||
            kind == IR_KIND_CELL || --*left < 0)
            return false;
        const bool turns = is_turn(g, n), is_element_wise = kind == IR_KIND_EW || kind == IR_KIND_CONVERT;
        if (!turns && (!is_element_wise || n->rank != rank)) {
            if (!is_turned) return false;
        } else if (!ends_turned(g, uses, i, is_turned != turns, left)) return false;
    }
    return true;
}

const uint32_t *ir_uses_if_turned(fu_arena *a, const ir_graph *g) {
    for (ir_id i = 1; i < g->nodes.n; i++)
        if (ir_at(g, i)->op == IR_OP_TRANSPOSE) return ir_use_counts(a, g);
    return NULL;
}

/* Is operand i read transposed? ORDER attrs_MATMUL */
static bool is_flipped(const ir_node *n, int i) { return n->attr && n->attr[i].is_set && n->attr[i].integer; }

bool ir_expands_turned(const ir_graph *g, const uint32_t *uses, ir_id id) {
    const ir_node *n = ir_at(g, id), *a, *b;
    int64_t rows, columns, products;
    if (n->op != IR_OP_MATMUL || !uses || !uses[id]) return false;
    a = ir_at(g, n->in[0]);
    b = ir_at(g, n->in[1]);
    const bool flips = is_flipped(n, 0);
    if (a->rank < 2 || b->rank < 2 || !ir_is_float(a->dtype) || a->dtype != b->dtype || !ir_is_contraction(g, n) ||
        !ir_size_is_const(g->sizes, n->dim[n->rank - 2], &rows) ||
        !ir_size_is_const(g->sizes, n->dim[n->rank - 1], &columns) ||
        !ir_size_is_const(g->sizes, a->dim[a->rank - (flips ? 2 : 1)], &products) || rows < FEWEST_ROWS ||
        rows % (SET_BYTES / ir_dtypes[n->dtype].bytes) || columns < 2 || products / PRODUCTS_A_ROW > rows)
        return false;
    int left = MOST_USERS;
    return ends_turned(g, uses, id, false, &left);
}

ir_id ir_expand_turned(const ir_expand *c, const ir_node *n) {
    ir_attr attr[3] = {{.is_set = true}, {.is_set = true}, n->attr ? n->attr[2] : (ir_attr){0}};
    int perm[IR_MAX_RANK];
    for (int i = 0; i < 2; i++) attr[i].integer = !is_flipped(n, 1 - i);
    for (int d = 0; d < n->rank; d++) perm[d] = swapped(d, n->rank);
    const ir_id y = ir_expand_op(c, IR_OP_MATMUL, 2, (ir_id[]){n->in[1], n->in[0]}, attr, 3, 0),
                t = ir_expand_transpose(c, y, perm);
    return t ? ir_expand_finish(c, t, n->in[0]) : 0;
}

/* ---- rows of what is transposed ---- */
bool ir_expands_behind_transpose(const ir_graph *g, const ir_node *n) {
    if (!n->attr ||
        (n->op != IR_OP_SOFTMAX && n->op != IR_OP_LOG_SOFTMAX && n->op != IR_OP_CUMSUM && n->op != IR_OP_CUMPROD))
        return false;
    const ir_node *t = ir_at(g, n->in[0]);
    if (t->op != IR_OP_TRANSPOSE || t->rank < 1) return false;
    int perm[IR_MAX_RANK];
    ir_view_perm(g, t, perm);
    return perm[t->rank - 1] != t->rank - 1;
}

ir_id ir_expand_behind_transpose(const ir_expand *c, const ir_node *n) {
    const ir_graph *g = c->rw->to;
    const ir_node t = *ir_at(g, n->in[0]);
    const unsigned n_attrs = ir_ops[n->op].n_attrs;
    ir_node moved = *n;
    ir_attr attr[IR_MAX_ATTRS];
    int perm[IR_MAX_RANK];
    ir_view_perm(g, &t, perm);
    memcpy(attr, n->attr, n_attrs * sizeof *attr); /* ORDER attrs_SOFTMAX, attrs_SCAN: axis first */
    const int64_t axis = attr[0].is_set ? attr[0].integer : (int64_t)ir_ops[n->op].attrs[0].default_value;
    attr[0] = (ir_attr){.is_set = true, .integer = perm[ir_axis(axis, n->rank)]};
    moved.in = t.in;
    moved.attr = attr;
    memcpy(moved.dim, ir_at(g, t.in[0])->dim, sizeof moved.dim);
    const ir_id y = ir_expands_reduce(g, &moved) ? ir_expand_reduction(c, &moved)
                                                 : ir_expand_op(c, n->op, 1, t.in, attr, n_attrs, 0);
    const ir_id back = ir_expand_transpose(c, y, perm);
    return back ? ir_expand_finish(c, back, n->in[0]) : 0;
}
