/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_expand_pick.c: take_along of a few elements of each row, where the value is element-wise and a reduction of the
 * row goes into it: the log_softmax of the label's class (cross-entropy). It is computed of these elements alone, with
 * the same bits, so its rows are neither made nor stored. Not of short rows, whose kernels have no gathers
 * (jit/reduce_short.c). What no reduction goes into, the planner computes where it is read anyway. */
#include "base/small.h"
#include "ir/expand.h"
#include "ir/kernel.h"

enum { MAX_DEPTH = 8, MOST_NODES = 24, MOST_TAKEN = 4 };

typedef struct pick {
    const ir_expand *c;
    const ir_node *n; /* the take_along; operand 1: the indices, of its shape */
    int axis, left;   /* left: nodes that may still be made */
} pick;

static bool is_elementwise(const ir_node *x) {
    const ir_kind kind = ir_ops[x->op].kind;
    return (kind == IR_KIND_EW || kind == IR_KIND_CONVERT) && x->n_in <= 3;
}

/* Is operand i of x the same along the axis? */
static bool is_same_along(const pick *p, const ir_node *x, int i) {
    const ir_graph *g = p->c->rw->to;
    const ir_node *o = ir_at(g, x->in[i]);
    const int d = p->axis - (x->rank - o->rank);
    return d < 0 || ir_size_is(g->sizes, o->dim[d], 1);
}

/* Does a reduction go into the value as something that is the same along the axis? */
static bool has_reduction(const pick *p, ir_id id, bool is_same, int depth) {
    const ir_graph *g = p->c->rw->to;
    const ir_node *x = ir_at(g, id);
    if (is_same && ir_ops[x->op].kind == IR_KIND_REDUCE) return true;
    if (depth == 0 || !(is_elementwise(x) || (is_same && ir_ops[x->op].kind == IR_KIND_VIEW))) return false;
    for (int i = 0; i < x->n_in; i++)
        if (has_reduction(p, x->in[i], is_same || is_same_along(p, x, i), depth - 1)) return true;
    return false;
}

/* The picked elements of a value as large as the operand of the take_along; 0: it would be too much. */
static ir_id elements(pick *p, ir_id id, int depth) {
    ir_graph *g = p->c->rw->to;
    const ir_node x = *ir_at(g, id);
    if (--p->left < 0) return 0;
    if (depth == 0 || !is_elementwise(&x))
        return ir_expand_op(p->c, IR_OP_TAKE_ALONG, 2, (ir_id[]){id, p->n->in[1]}, p->n->attr, 1, 0);
    ir_id in[3];
    for (int i = 0; i < x.n_in; i++) {
        const ir_node *o = ir_at(g, x.in[i]);
        in[i] = x.in[i];
        if (is_same_along(p, &x, i)) continue;
        if (o->rank != x.rank || memcmp(o->dim, x.dim, x.rank * sizeof *x.dim) != 0) return 0;
        in[i] = elements(p, x.in[i], depth - 1);
        if (!in[i]) return 0;
    }
    return ir_expand_op(p->c, x.op, x.n_in, in, x.attr, x.attr ? ir_ops[x.op].n_attrs : 0,
                        ir_ops[x.op].kind == IR_KIND_CONVERT ? x.dtype : 0);
}

ir_id ir_expand_pick(const ir_expand *c, const ir_node *n) {
    ir_graph *g = c->rw->to;
    if (n->op != IR_OP_TAKE_ALONG) return 0;
    const ir_node x = *ir_at(g, n->in[0]), index = *ir_at(g, n->in[1]);
    pick p = {c, n, ir_axis(ir_node_attr(n, "axis")->integer, x.rank), MOST_NODES};
    int64_t taken, all = INT64_MAX;
    if (!ir_size_is_const(g->sizes, n->dim[p.axis], &taken)) return 0;
    (void)ir_size_is_const(g->sizes, x.dim[p.axis], &all);
    if (taken > MOST_TAKEN || all <= IR_BAKE_MAX || index.rank != x.rank) return 0;
    for (int d = 0; d < x.rank; d++)
        if (index.dim[d] != n->dim[d] || (d != p.axis && x.dim[d] != n->dim[d])) return 0;
    return is_elementwise(&x) && has_reduction(&p, n->in[0], false, MAX_DEPTH) ? elements(&p, n->in[0], MAX_DEPTH) : 0;
}
