/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TESTS_EVAL_GRAPH_H
#define TESTS_EVAL_GRAPH_H
/* A flattened graph on concrete inputs, node by node with the reference evaluator; everything lies in arena a. */
#include "ref/interp.h"

static inline fusor_status eval_graph(fu_arena *a, fu_error *e, const ir_graph *g, const ref_tensor *in,
                                      ref_tensor *out) {
    int64_t *symbols = FU_NEW_N(a, int64_t, ir_size_symbol_count(g->sizes) + 1);
    const int64_t **shape = FU_NEW_N(a, const int64_t *, g->params.n + 1);
    for (uint32_t p = 0; p < g->params.n; p++) shape[p] = in[p].shape;
    FU_TRY(ir_bind_sizes(g, e, shape, symbols));
    const uint32_t *uses = ir_use_counts(a, g);
    ref_tensor *values = FU_NEW_N(a, ref_tensor, g->nodes.n);
    for (ir_id id = 1; id < g->nodes.n; id++) {
        const ir_node *n = ir_at(g, id);
        ref_tensor *v = &values[id], *operands = FU_NEW_N(a, ref_tensor, n->n_in + 1u);
        if (n->op == IR_OP_PARAM) *v = in[n->index];
        if (n->op == IR_OP_PARAM || !uses[id]) continue;
        v->dtype = n->dtype;
        v->rank = n->rank;
        for (int d = 0; d < n->rank; d++)
            if (ir_size_eval(g->sizes, n->dim[d], symbols, &v->shape[d]) != IR_SIZE_OK || v->shape[d] < 0)
                return FU_FAIL(e, FUSOR_ERROR_SHAPE, "dim %d of the result is no size", d);
        v->data = fu_alloc(a, (size_t)ref_count(v) * ir_dtypes[n->dtype].bytes + 1);
        for (int k = 0; k < n->n_in; k++) operands[k] = values[n->in[k]];
        FU_TRY(ref_eval_node(g, e, n, operands, v, symbols));
    }
    for (uint32_t r = 0; r < g->results.n; r++) out[r] = values[g->results.at[r].node];
    return FUSOR_OK;
}
#endif
