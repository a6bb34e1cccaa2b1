/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* view.c: which dims of a view are which dims of its operand. */
#include "ir/graph.h"

void ir_view_perm(const ir_graph *g, const ir_node *n, int perm[IR_MAX_RANK]) {
    const ir_attr *at = n->attr;
    for (int i = 0; i < n->rank; i++) {
        perm[i] = n->rank - 1 - i;
        if (at && at->is_set) {
            int64_t v = 0;
            ir_size_is_const(g->sizes, at->list[i], &v);
            perm[i] = ir_axis(v, n->rank);
        }
    }
}

/* Dims of a and b other than 1, in order, are the same sizes: from[] maps result dims to operand dims. */
static bool match_without_ones(const ir_graph *g, const ir_node *n, const ir_node *x, int from[IR_MAX_RANK]) {
    int j = 0;
    for (int d = 0; d < n->rank; d++) {
        from[d] = -1;
        if (ir_size_is(g->sizes, n->dim[d], 1)) continue;
        while (j < x->rank && ir_size_is(g->sizes, x->dim[j], 1)) j++;
        if (j >= x->rank || x->dim[j] != n->dim[d]) return false;
        from[d] = j++;
    }
    while (j < x->rank && ir_size_is(g->sizes, x->dim[j], 1)) j++;
    return j == x->rank;
}

bool ir_view_is_index_map(const ir_graph *g, const ir_node *n) {
    int from[IR_MAX_RANK];
    if (n->op != IR_OP_RESHAPE) return true;
    return match_without_ones(g, n, ir_at(g, n->in[0]), from);
}

bool ir_view_is_checked_below(const ir_graph *g, const ir_node *n) {
    return ir_ops[n->op].kind == IR_KIND_VIEW && n->op != IR_OP_TRANSPOSE && ir_view_is_index_map(g, n);
}

void ir_view_dims(const ir_graph *g, const ir_node *n, int from[IR_MAX_RANK]) {
    const ir_node *x = ir_at(g, n->in[0]);
    if (n->op == IR_OP_TRANSPOSE) {
        ir_view_perm(g, n, from);
    } else if (n->op == IR_OP_SLICE) {
        for (int d = 0; d < n->rank; d++) from[d] = d;
    } else if (n->op == IR_OP_BROADCAST_TO) {
        for (int d = 0; d < n->rank; d++) {
            int xd = d - (n->rank - x->rank);
            from[d] = xd < 0 || (ir_size_is(g->sizes, x->dim[xd], 1) && !ir_size_is(g->sizes, n->dim[d], 1)) ? -1 : xd;
        }
    } else if (!match_without_ones(g, n, x, from)) { /* squeeze, unsqueeze and reshapes by ones always match */
        for (int d = 0; d < n->rank; d++) from[d] = -1;
    }
}
