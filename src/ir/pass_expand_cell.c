/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Recurrent cells in pass_expand: two contractions with transposed weights for all gates at once, biases added to each,
 * then the gates as slices of the last axis and the formula element by element, all in the accumulation type:
 *
 *   p = x w_ih^T + b_ih, q = h w_hh^T + b_hh
 *   rnn    activation(p + q)
 *   lstm   i, f, g, o = parts of p + q;  c' = sigmoid(f) * c + sigmoid(i) * tanh(g);  h' = sigmoid(o) * tanh(c')
 *   gru    r = sigmoid(p_r + q_r), z = sigmoid(p_z + q_z), n = tanh(p_n + r * q_n);  h' = (1 - z) * n + z * h
 *          linear_before_reset=false: n = tanh(p_n + (r * h) w_n^T + b_n) with the rows of w_hh and b_hh that are n's
 *
 * Each result of an lstm is expanded on its own; cse makes one of what they share. */
#include "base/small.h"
#include "ir/cell.h"
#include "ir/expand.h"
#include <string.h>

bool ir_expands_cell(const ir_node *n) { return ir_ops[n->op].kind == IR_KIND_CELL; }

typedef struct cell {
    const ir_expand *e;
    const ir_node *n;
    ir_cell of;
    ir_dtype acc;
} cell;

/* [.., rows]: what a product with weights of that many rows is. */
static ir_node like_gates(const cell *c, int gates) {
    ir_sizes *s = c->e->rw->to->sizes;
    ir_node dims = *c->n;
    dims.dim[dims.rank - 1] = ir_size_mul(s, ir_size_const(s, gates), c->n->dim[c->n->rank - 1]);
    return dims;
}

/* Gates from `first` on, `count` of them, along `axis` of x. */
static ir_id part(const cell *c, ir_id x, unsigned axis, int first, int count) {
    ir_graph *g = c->e->rw->to;
    const ir_node *of = ir_at(g, x);
    const ir_size hidden = c->n->dim[c->n->rank - 1];
    ir_node n = ir_expand_node(c->e, IR_OP_SLICE, of->dtype, of, 1);
    n.dim[axis] = ir_size_mul(g->sizes, ir_size_const(g->sizes, count), hidden);
    ir_size start = ir_size_mul(g->sizes, ir_size_const(g->sizes, first), hidden);
    ir_size end = ir_size_add(g->sizes, start, n.dim[axis]), at = ir_size_const(g->sizes, axis);
    /* ORDER attrs_SLICE: starts, ends, steps, axes */
    n.attr[0] = (ir_attr){.is_set = true, .list = &start, .n = 1};
    n.attr[1] = (ir_attr){.is_set = true, .list = &end, .n = 1};
    n.attr[3] = (ir_attr){.is_set = true, .list = &at, .n = 1};
    n.in = &x;
    return ir_add_raw(g, &n);
}

/* x w^T + b over `gates` gates; b 0: none. */
static ir_id product(const cell *c, ir_id x, ir_id w, ir_id b, int gates) {
    ir_graph *g = c->e->rw->to;
    const ir_node dims = like_gates(c, gates);
    ir_node n = ir_expand_node(c->e, IR_OP_MATMUL, c->acc, &dims, 2);
    const unsigned n_batch = dims.rank > 2 ? dims.rank - 2u : 0;
    ir_id in[2] = {x, w};
    uint8_t stretch[2] = {0, (uint8_t)((1u << n_batch) - 1)};
    /* ORDER attrs_MATMUL: transpose_a, transpose_b, dtype */
    n.attr[1] = (ir_attr){.is_set = true, .integer = 1};
    if (ir_at(g, x)->dtype != c->acc) n.attr[2] = (ir_attr){.is_set = true, .integer = c->acc};
    n.in = in;
    n.stretch = stretch;
    const ir_id y = ir_add_raw(g, &n);
    return b ? ir_expand_2(c->e, IR_OP_ADD, y, ir_expand_cast(c->e, b, c->acc), (1u << (dims.rank - 1)) - 1) : y;
}

static ir_id two(const cell *c, ir_op op, ir_id x, ir_id y) { return ir_expand_2(c->e, op, x, y, 0); }
static ir_id one(const cell *c, ir_op op, ir_id x) { return ir_expand_1(c->e, op, x); }
/* Operand i in the accumulation type. */
static ir_id wide(const cell *c, unsigned i) { return ir_expand_cast(c->e, c->n->in[i], c->acc); }

static ir_id lstm(const cell *c, ir_id sum) {
    const unsigned last = c->n->rank - 1u;
    const ir_id i = one(c, IR_OP_SIGMOID, part(c, sum, last, 0, 1)),
                f = one(c, IR_OP_SIGMOID, part(c, sum, last, 1, 1));
    const ir_id in = one(c, IR_OP_TANH, part(c, sum, last, 2, 1));
    const ir_id kept = two(c, IR_OP_MUL, f, wide(c, c->of.c)),
                state = two(c, IR_OP_ADD, kept, two(c, IR_OP_MUL, i, in));
    if (c->n->index == 1) return state;
    const ir_id o = one(c, IR_OP_SIGMOID, part(c, sum, last, 3, 1));
    return two(c, IR_OP_MUL, o, one(c, IR_OP_TANH, state));
}

static ir_id gru(const cell *c, ir_id p, ir_id q) {
    ir_graph *g = c->e->rw->to;
    const unsigned last = c->n->rank - 1u;
    const ir_id h = wide(c, 1);
    const ir_id r = one(c, IR_OP_SIGMOID, two(c, IR_OP_ADD, part(c, p, last, 0, 1), part(c, q, last, 0, 1)));
    const ir_id z = one(c, IR_OP_SIGMOID, two(c, IR_OP_ADD, part(c, p, last, 1, 1), part(c, q, last, 1, 1)));
    ir_id n;
    if (ir_node_attr(c->n, "linear_before_reset")->integer) {
        n = two(c, IR_OP_MUL, r, part(c, q, last, 2, 1));
    } else {
        const ir_id w = ir_expand_cast(c->e, part(c, c->n->in[c->of.w_hh], 0, 2, 1), c->acc);
        const ir_id b = c->of.b_hh ? part(c, c->n->in[c->of.b_hh], 0, 2, 1) : 0;
        n = product(c, two(c, IR_OP_MUL, r, h), w, b, 1);
    }
    n = one(c, IR_OP_TANH, two(c, IR_OP_ADD, part(c, p, last, 2, 1), n));
    ir_node rest = ir_expand_node(c->e, IR_OP_SUB, c->acc, c->n, 2);
    ir_id in[2] = {ir_expand_number(c->e, c->acc, 1), z};
    uint8_t stretch[2] = {(uint8_t)((1u << c->n->rank) - 1), 0};
    rest.in = in;
    rest.stretch = stretch;
    return two(c, IR_OP_ADD, two(c, IR_OP_MUL, ir_add_raw(g, &rest), n), two(c, IR_OP_MUL, z, h));
}

ir_id ir_expand_cell(const ir_expand *e, const ir_node *n) {
    const cell c = {.e = e, .n = n, .of = ir_cell_of(n), .acc = ir_node_accumulator(e->rw->to, n)};
    const ir_id p = product(&c, n->in[0], n->in[c.of.w_ih], c.of.b_ih ? n->in[c.of.b_ih] : 0, c.of.gates);
    ir_id w = n->in[c.of.w_hh], b = c.of.b_hh ? n->in[c.of.b_hh] : 0;
    const int rows = n->op == IR_OP_GRU_CELL && !ir_node_attr(n, "linear_before_reset")->integer ? 2 : c.of.gates;
    if (rows < c.of.gates) { /* those of n are multiplied with r * h */
        w = part(&c, w, 0, 0, rows);
        if (b) b = part(&c, b, 0, 0, rows);
    }
    const ir_id q = product(&c, n->in[1], w, b, rows);
    ir_id y;
    if (n->op == IR_OP_GRU_CELL) {
        y = gru(&c, p, q);
    } else {
        const ir_id sum = two(&c, IR_OP_ADD, p, q);
        y = n->op == IR_OP_LSTM_CELL ? lstm(&c, sum)
                                     : one(&c, ir_node_attr(n, "activation")->integer ? IR_OP_RELU : IR_OP_TANH, sum);
    }
    return ir_expand_finish(e, ir_expand_cast(e, y, n->dtype), 0);
}
