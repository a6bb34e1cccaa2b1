/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* infer_cell.c: types and shapes of recurrent cells (kind CELL): lstm_cell(x, h, c, w_ih, w_hh [, b_ih, b_hh]), and
 * gru_cell and rnn_cell without c. x is [.., I], h and c [.., H] with the same leading dims, the weights [gates * H, I]
 * and [gates * H, H], the biases [gates * H]. A result is shaped as h. */
#include "base/small.h"
#include "ir/infer_parts.h"
#include "ir/cell.h"

static const char *who(ir_graph *g, const ir_node *n, const ir_cell *c, unsigned i) {
    const char *role = i == 0         ? "x"
                       : i == 1       ? "h"
                       : i == c->w_ih ? "w_ih"
                       : i == c->w_hh ? "w_hh"
                       : i == c->b_ih ? "b_ih"
                       : i == c->b_hh ? "b_hh"
                                      : "c";
    return fu_format(g->arena, "%s, %s,", role, label(g, n, i));
}

/* Dim d of operand i is `size`, which is said as `what`. */
static fusor_status check_dim(ir_graph *g, const ir_node *n, const ir_cell *c, unsigned i, unsigned d, ir_size size,
                              const char *what) {
    const ir_node *x = ir_at(g, n->in[i]);
    if (x->dim[d] == size) return FUSOR_OK;
    if (ir_size_never_equal(g->sizes, x->dim[d], size)) {
        return SHAPE_ERROR("%s is %s; expected dim %u = %s, %s", who(g, n, c, i), type_text(g, x), d,
                           size_text(g, size), what);
    }
    const char *text = fu_format(g->arena, "%s: dim %u of %s must be %s", ir_ops[n->op].name, d, label(g, n, i), what);
    ir_add_check(g, (ir_check){.a = x->dim[d], .b = size, .kind = IR_CHECK_EQUAL, .what = text, .loc = n->loc});
    return FUSOR_OK;
}

static fusor_status check_rank(ir_graph *g, const ir_node *n, const ir_cell *c, unsigned i, unsigned rank,
                               const char *form) {
    const ir_node *x = ir_at(g, n->in[i]);
    if (x->rank == rank) return FUSOR_OK;
    return SHAPE_ERROR("%s is %s; expected %s", who(g, n, c, i), type_text(g, x), form);
}

fusor_status infer_cell(ir_graph *g, ir_node *n) {
    const ir_cell c = ir_cell_of(n);
    if (n->n_in != c.w_hh + 1 && n->n_in != c.w_hh + 3)
        return TYPE_ERROR("b_ih is given without b_hh; expected both or neither");
    const ir_node x = *ir_at(g, n->in[0]), h = *ir_at(g, n->in[1]);
    for (unsigned i = 0; i < n->n_in; i++) {
        const ir_node *o = ir_at(g, n->in[i]);
        FU_TRY(check_class(g, n, i, ir_ops[n->op].classes));
        if (o->dtype != x.dtype) {
            return TYPE_ERROR("%s is %s but %s is %s; expected one type: cast one of them", label(g, n, 0),
                              type_text(g, &x), label(g, n, i), type_text(g, o));
        }
    }
    if (x.rank == 0) return SHAPE_ERROR("%s is a scalar; expected [.., features]", who(g, n, &c, 0));
    FU_TRY(check_rank(g, n, &c, 1, x.rank, "[.., hidden] of the rank of x"));
    const unsigned last = x.rank - 1;
    const ir_size hidden = h.dim[last], rows = ir_size_mul(g->sizes, ir_size_const(g->sizes, c.gates), hidden);
    const char *all =
        c.gates == 1 ? "as many as h has features" : fu_format(g->arena, "%d gates of the features of h", c.gates);
    for (unsigned d = 0; d < last; d++) FU_TRY(check_dim(g, n, &c, 1, d, x.dim[d], "as x has"));
    if (c.c) {
        FU_TRY(check_rank(g, n, &c, c.c, x.rank, "the shape of h"));
        for (unsigned d = 0; d < x.rank; d++) FU_TRY(check_dim(g, n, &c, c.c, d, h.dim[d], "as h has"));
    }
    FU_TRY(check_rank(g, n, &c, c.w_ih, 2, "[gates * hidden, features of x]"));
    FU_TRY(check_dim(g, n, &c, c.w_ih, 0, rows, all));
    FU_TRY(check_dim(g, n, &c, c.w_ih, 1, x.dim[last], "the features of x"));
    FU_TRY(check_rank(g, n, &c, c.w_hh, 2, "[gates * hidden, hidden]"));
    FU_TRY(check_dim(g, n, &c, c.w_hh, 0, rows, all));
    FU_TRY(check_dim(g, n, &c, c.w_hh, 1, hidden, "the features of h"));
    for (unsigned i = c.w_hh + 1; i < n->n_in; i++) {
        FU_TRY(check_rank(g, n, &c, i, 1, "[gates * hidden]"));
        FU_TRY(check_dim(g, n, &c, i, 0, rows, all));
    }
    n->dtype = x.dtype;
    copy_dims(n, &h);
    return FUSOR_OK;
}
