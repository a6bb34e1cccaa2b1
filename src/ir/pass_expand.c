/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_expand: softmax, log_softmax and reduce_mean become groups of primitives. A composite is one operator: inside,
 * all is in the accumulation type, with one conversion at the end; its nodes share a `group` number. Needs: types.
 * Keeps: types. Breaks: ids. Cost: O(nodes). */
#include "ir/pass.h"
#include <string.h>

typedef struct composite {
    ir_rewrite *rw;
    ir_node model; /* place, metadata and group of the nodes made */
} composite;

/* A node like the model; `dims` gives rank and dims. */
static ir_node made(const composite *c, ir_op op, ir_dtype t, const ir_node *dims, unsigned n_in) {
    ir_node n = {.op = op,
                 .dtype = t,
                 .n_in = (uint16_t)n_in,
                 .loc = c->model.loc,
                 .meta_name = c->model.meta_name,
                 .meta_loc = c->model.meta_loc,
                 .group = c->model.group};
    n.rank = dims->rank;
    memcpy(n.dim, dims->dim, sizeof n.dim);
    if (ir_ops[op].n_attrs) {
        n.attr = FU_NEW_N(c->rw->arena, ir_attr, ir_ops[op].n_attrs);
        for (unsigned i = 0; i < ir_ops[op].n_attrs; i++) n.attr[i].number = ir_ops[op].attrs[i].default_value;
    }
    return n;
}

static ir_id add1(const composite *c, ir_op op, ir_id x) {
    const ir_node *of = ir_at(c->rw->to, x);
    ir_node n = made(c, op, of->dtype, of, 1);
    n.in = &x;
    return ir_add_raw(c->rw->to, &n);
}

static ir_id cast(const composite *c, ir_id x, ir_dtype t) {
    const ir_node *of = ir_at(c->rw->to, x);
    if (of->dtype == t) return x;
    ir_node n = made(c, IR_OP_CAST, t, of, 1);
    n.in = &x;
    return ir_add_raw(c->rw->to, &n);
}

/* x op y over the dims of x; y is stretched along the dims of `mask`. */
static ir_id add2(const composite *c, ir_op op, ir_id x, ir_id y, unsigned mask) {
    const ir_node *of = ir_at(c->rw->to, x);
    ir_node n = made(c, op, of->dtype, of, 2);
    ir_id in[2] = {x, y};
    uint8_t stretch[2] = {0, (uint8_t)mask};
    n.in = in;
    n.stretch = stretch;
    return ir_add_raw(c->rw->to, &n);
}

/* x reduced over the axes of `mask` in type t, as the node `dims` is shaped. */
static ir_id reduce(const composite *c, ir_op op, ir_id x, uint32_t mask, bool keepdims, ir_dtype t,
                    const ir_node *dims) {
    ir_sizes *s = c->rw->to->sizes;
    const ir_node of = *ir_at(c->rw->to, x);
    ir_node n = made(c, op, t, dims, 1);
    ir_size list[IR_MAX_RANK];
    uint32_t count = 0;
    for (unsigned d = 0; d < of.rank; d++) {
        if (mask >> d & 1) list[count++] = ir_size_const(s, (int64_t)d);
    }
    /* ORDER attrs_REDUCE: axes, keepdims, dtype */
    n.attr[0] = (ir_attr){.is_set = true, .list = list, .n = count};
    n.attr[1] = (ir_attr){.is_set = keepdims, .integer = keepdims};
    if (of.dtype != t) n.attr[2] = (ir_attr){.is_set = true, .integer = t};
    n.in = &x;
    return ir_add_raw(c->rw->to, &n);
}

/* The last node of a composite is the one that the user named. */
static ir_id finish(const composite *c, ir_id id, ir_id operand) {
    if (id != operand) ir_at(c->rw->to, id)->name = c->model.name;
    return id;
}

static ir_id expand_softmax(composite *c, const ir_node *n) {
    ir_graph *g = c->rw->to;
    const uint32_t mask = ir_node_axes(g, n);
    const unsigned axis = (unsigned)__builtin_ctz(mask);
    const ir_id operand = n->in[0];
    /* Over an axis of no elements there is no row to have a maximum: the result is as empty as the operand. */
    if (ir_size_is(g->sizes, n->dim[axis], 0)) return finish(c, cast(c, operand, n->dtype), operand);
    const ir_dtype t = ir_node_accumulator(g, n);
    ir_node row = *n; /* the shape of one value a row */
    row.dim[axis] = ir_size_const(g->sizes, 1);
    const unsigned stretch = n->dim[axis] == row.dim[axis] ? 0 : mask;
    const ir_id x = cast(c, operand, t);
    const ir_id max = reduce(c, IR_OP_REDUCE_MAX, x, mask, true, t, &row);
    const ir_id shifted = add2(c, IR_OP_SUB, x, max, stretch);
    const ir_id e = add1(c, IR_OP_EXP, shifted);
    const ir_id sum = reduce(c, IR_OP_REDUCE_SUM, e, mask, true, t, &row);
    const ir_id y = n->op == IR_OP_SOFTMAX ? add2(c, IR_OP_DIV, e, sum, stretch)
                                           : add2(c, IR_OP_SUB, shifted, add1(c, IR_OP_LOG, sum), stretch);
    return finish(c, cast(c, y, n->dtype), operand);
}

static ir_id expand_mean(composite *c, const ir_node *n) {
    ir_graph *g = c->rw->to;
    const ir_id operand = n->in[0];
    const ir_node x = *ir_at(g, operand), scalar = {.rank = 0};
    const uint32_t mask = ir_node_axes(g, n);
    const ir_dtype t = ir_node_accumulator(g, n);
    const ir_attr *keepdims = ir_node_attr(n, "keepdims");
    const ir_id sum = reduce(c, IR_OP_REDUCE_SUM, operand, mask, keepdims->integer != 0, t, n);
    ir_id count = 0;
    for (unsigned d = 0; d < x.rank; d++) {
        if (!(mask >> d & 1)) continue;
        ir_node dim = made(c, IR_OP_DIM, FUSOR_I64, &scalar, 1);
        ir_id in = operand;
        dim.in = &in;
        dim.attr[0] = (ir_attr){.is_set = true, .integer = (int64_t)d};
        const ir_id size = ir_add_raw(g, &dim);
        count = count ? add2(c, IR_OP_MUL, count, size, 0) : size;
    }
    if (!count) count = ir_add_literal(g, FUSOR_I64, 1);
    const unsigned all = (1u << n->rank) - 1;
    return finish(c, cast(c, add2(c, IR_OP_DIV, sum, cast(c, count, t), all), n->dtype), operand);
}

fusor_status ir_pass_expand(fu_arena *a, fu_error *e, ir_graph **g) {
    (void)e;
    ir_rewrite rw;
    ir_rewrite_begin(&rw, a, *g);
    uint32_t group = 0;
    for (ir_id i = 1; i < (*g)->nodes.n; i++) group = ir_at(*g, i)->group > group ? ir_at(*g, i)->group : group;
    for (ir_id i = 1; i < (*g)->nodes.n; i++) {
        if (rw.map[i]) continue;
        const ir_node n = ir_rewrite_node(&rw, i);
        const bool is_mean = n.op == IR_OP_REDUCE_MEAN;
        if (ir_ops[n.op].kind != IR_KIND_ROW && !is_mean) {
            rw.map[i] = ir_add_raw(rw.to, &n);
            continue;
        }
        composite c = {.rw = &rw, .model = n};
        c.model.group = ++group;
        rw.map[i] = is_mean ? expand_mean(&c, &n) : expand_softmax(&c, &n);
        rw.is_changed = true;
    }
    ir_rewrite_finish(&rw, g);
    return FUSOR_OK;
}
