/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_expand: composites become groups of primitives. A composite is one operator: inside, all is in the accumulation
 * type, with one conversion at the end; its nodes share a `group` number. The walk and what all families use is here; a
 * family of operators is a pass_expand_*.c. Needs: types. Keeps: types. Breaks: ids. Cost: O(nodes). */
#include "base/small.h"
#include "ir/expand.h"
#include "ir/window.h"
#include <string.h>

ir_node ir_expand_node(const ir_expand *c, ir_op op, ir_dtype t, const ir_node *dims, unsigned n_in) {
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

ir_id ir_expand_1(const ir_expand *c, ir_op op, ir_id x) {
    const ir_node *of = ir_at(c->rw->to, x);
    ir_node n = ir_expand_node(c, op, ir_ops[op].result_is_bool ? FUSOR_BOOL : of->dtype, of, 1);
    n.in = &x;
    return ir_add_raw(c->rw->to, &n);
}

ir_id ir_expand_cast(const ir_expand *c, ir_id x, ir_dtype t) {
    const ir_node *of = ir_at(c->rw->to, x);
    if (of->dtype == t) return x;
    ir_node n = ir_expand_node(c, IR_OP_CAST, t, of, 1);
    n.in = &x;
    return ir_add_raw(c->rw->to, &n);
}

ir_id ir_expand_2(const ir_expand *c, ir_op op, ir_id x, ir_id y, unsigned mask) {
    const ir_node *of = ir_at(c->rw->to, x);
    ir_node n = ir_expand_node(c, op, of->dtype, of, 2);
    ir_id in[2] = {x, y};
    uint8_t stretch[2] = {0, (uint8_t)mask};
    n.in = in;
    n.stretch = stretch;
    return ir_add_raw(c->rw->to, &n);
}

ir_id ir_expand_reduce(const ir_expand *c, ir_op op, ir_id x, uint32_t mask, bool keepdims, ir_dtype t,
                       const ir_node *dims) {
    ir_sizes *s = c->rw->to->sizes;
    const ir_node of = *ir_at(c->rw->to, x);
    ir_node n = ir_expand_node(c, op, t, dims, 1);
    ir_size list[IR_MAX_RANK];
    uint32_t count = 0;
    for (unsigned d = 0; d < of.rank; d++) {
        if (mask >> d & 1) list[count++] = ir_size_const(s, (int64_t)d);
    }
    /* ORDER attrs_REDUCE: axes, keepdims, dtype */
    n.attr[0] = (ir_attr){.is_set = true, .list = list, .n = count};
    n.attr[1] = (ir_attr){.is_set = keepdims, .integer = keepdims};
    const bool is_narrow =
        ir_ops[op].is_sum_like && ir_is_int(t) && t != FUSOR_I64; /* sums of integers are i64 by themselves */
    if (of.dtype != t || is_narrow) n.attr[2] = (ir_attr){.is_set = true, .integer = t};
    n.in = &x;
    return ir_add_raw(c->rw->to, &n);
}

ir_id ir_expand_shaped(const ir_expand *c, ir_op op, ir_id x, const ir_size *dim, unsigned rank) {
    ir_size list[IR_MAX_RANK];
    const ir_node *n = x ? ir_at(c->rw->to, x) : NULL;
    if (!n || (n->rank == rank && memcmp(n->dim, dim, rank * sizeof *dim) == 0)) return x;
    memcpy(list, dim, rank * sizeof *dim);
    const ir_attr shape = ir_list_attr(list, rank);
    return ir_expand_op(c, op, 1, &x, &shape, 1, 0);
}

ir_id ir_expand_slice(const ir_expand *c, ir_id x, unsigned n, ir_size *start, ir_size *end, ir_size *step,
                      ir_size *axis) {
    const ir_attr attr[4] = {ir_list_attr(start, n), ir_list_attr(end, n), ir_list_attr(step, n),
                             ir_list_attr(axis, n)}; /* ORDER attrs_SLICE: starts, ends, steps, axes */
    return x ? ir_expand_op(c, IR_OP_SLICE, 1, &x, attr, 4, 0) : 0;
}

ir_id ir_expand_number(const ir_expand *c, ir_dtype t, double v) {
    bool fits;
    return ir_add_literal(c->rw->to, t, ir_bits_from_double(t, v, &fits));
}

ir_id ir_expand_count(const ir_expand *c, ir_id x, uint32_t mask) {
    const ir_node scalar = {.rank = 0};
    const unsigned rank = ir_at(c->rw->to, x)->rank;
    ir_id count = 0;
    for (unsigned d = 0; d < rank; d++) {
        if (!(mask >> d & 1)) continue;
        ir_node dim = ir_expand_node(c, IR_OP_DIM, FUSOR_I64, &scalar, 1);
        dim.in = &x;
        dim.attr[0] = (ir_attr){.is_set = true, .integer = (int64_t)d};
        const ir_id size = ir_add_raw(c->rw->to, &dim);
        count = count ? ir_expand_2(c, IR_OP_MUL, count, size, 0) : size;
    }
    return count ? count : ir_add_literal(c->rw->to, FUSOR_I64, 1);
}

ir_id ir_expand_op(const ir_expand *c, ir_op op, int n_in, const ir_id *in, const ir_attr *attr, unsigned n_attrs,
                   ir_dtype to) {
    ir_graph *g = c->rw->to;
    ir_operand x[3];
    ir_attr all[IR_MAX_ATTRS] = {{0}};
    if (n_attrs) memcpy(all, attr, n_attrs * sizeof *attr);
    for (int i = 0; i < n_in; i++) x[i] = ir_use(in[i]);
    const uint32_t before = g->nodes.n;
    const ir_id id = ir_add(g, op, n_in, x, n_attrs ? all : NULL, to, c->model.loc);
    if (id >= before) {
        ir_node *made = ir_at(g, id);
        made->group = c->model.group;
        made->meta_name = c->model.meta_name;
        made->meta_loc = c->model.meta_loc;
    }
    return id;
}

ir_id ir_expand_transpose(const ir_expand *c, ir_id x, const int *perm) {
    ir_size list[IR_MAX_RANK];
    if (!x) return 0;
    const unsigned rank = ir_at(c->rw->to, x)->rank;
    for (unsigned d = 0; d < rank; d++) list[d] = ir_size_const(c->rw->to->sizes, perm[d]);
    const ir_attr attr = ir_list_attr(list, rank);
    return ir_expand_op(c, IR_OP_TRANSPOSE, 1, &x, &attr, 1, 0);
}

ir_id ir_expand_full(const ir_expand *c, ir_dtype t, ir_bits v, const ir_size *dim, unsigned rank) {
    ir_size list[IR_MAX_RANK];
    memcpy(list, dim, rank * sizeof *dim);
    const ir_attr shape = ir_list_attr(list, rank); /* ORDER attrs_FULL: shape, dtype */
    const ir_id in = ir_add_literal(c->rw->to, t, v);
    return ir_expand_op(c, IR_OP_FULL, 1, &in, &shape, 1, 0);
}

ir_id ir_expand_finish(const ir_expand *c, ir_id id, ir_id operand) {
    if (id != operand) ir_at(c->rw->to, id)->name = c->model.name;
    return id;
}

/* `id` in the place of node n: a size that n knows to be 1 is known there too, so that what broadcasts n stretches it. */
static ir_id with_ones(const ir_rewrite *rw, ir_id id, const ir_node *n) {
    ir_node to = *n;
    ir_attr shape = ir_list_attr(to.dim, n->rank);
    bool has_ones = false;
    for (unsigned d = 0; id && d < n->rank; d++) {
        const ir_size size = ir_at(rw->to, id)->dim[d];
        if (size == n->dim[d]) continue;
        if (ir_size_is(rw->to->sizes, n->dim[d], 1)) has_ones = true;
        else to.dim[d] = size;
    }
    if (!has_ones) return id;
    to.op = IR_OP_RESHAPE;
    to.index = 0;
    to.n_in = 1;
    to.in = &id;
    to.stretch = NULL;
    to.attr = &shape;
    return ir_add_raw(rw->to, &to);
}

fusor_status ir_pass_expand(fu_arena *a, fu_error *e, ir_graph **g) {
    ir_rewrite rw;
    ir_rewrite_begin(&rw, a, *g);
    const uint32_t *uses = ir_uses_if_turned(a, *g);
    const bool *goes_last = ir_goes_last(a, *g);
    uint32_t group = 0;
    for (ir_id i = 1; i < (*g)->nodes.n; i++) group = ir_at(*g, i)->group > group ? ir_at(*g, i)->group : group;
    for (ir_id i = 1; i < (*g)->nodes.n; i++) {
        if (rw.map[i]) continue;
        const ir_node n = ir_rewrite_node(&rw, i);
        if (ir_expand_move(&rw, &n, &rw.map[i])) {
            rw.map[i] = with_ones(&rw, rw.map[i], &n);
            rw.is_changed = true;
            continue;
        }
        const ir_expand as_it_is = {.rw = &rw, .model = n};
        ir_id moved = n.op == IR_OP_TAKE || n.op == IR_OP_TAKE_ALONG ? ir_expand_take(&as_it_is, &n)
                      : n.op == IR_OP_SCATTER                        ? ir_expand_scatter(&as_it_is, &n)
                                                                     : ir_expand_hot(&as_it_is, &n);
        if (!moved) moved = ir_expand_pick(&as_it_is, &n);
        if (moved) {
            rw.map[i] = with_ones(&rw, ir_expand_finish(&as_it_is, moved, n.in[0]), &n);
            rw.is_changed = true;
            continue;
        }
        ir_id (*family)(const ir_expand *c, const ir_node *n) =
            ir_expands_behind_transpose(rw.to, &n)       ? ir_expand_behind_transpose
            : ir_expands_blocks(rw.to, &n)               ? ir_expand_blocks
            : ir_expands_reduce(rw.to, &n)               ? ir_expand_reduction
            : ir_expands_random(rw.to, &n)               ? ir_expand_random
            : ir_expands_window(&n)                      ? ir_expand_window
            : ir_expands_attention(&n)                   ? ir_expand_attention
            : ir_expands_last_channels(*g, goes_last, i) ? ir_expand_last_channels
            : ir_expands_conv(rw.to, &n)                 ? ir_expand_conv
            : ir_expands_einsum(&n)                      ? ir_expand_einsum
            : ir_expands_matvec(rw.to, &n)               ? ir_expand_matvec
            : ir_expands_turned(*g, uses, i)             ? ir_expand_turned
            : ir_expands_quantize(&n)                    ? ir_expand_quantize
            : ir_expands_cell(&n)                        ? ir_expand_cell
                                                         : NULL;
        if (!family) {
            rw.map[i] = ir_add_raw(rw.to, &n);
            continue;
        }
        ir_expand c = {.rw = &rw, .model = n};
        c.model.group = ++group;
        rw.map[i] = with_ones(&rw, family(&c, &n), &n);
        if (!rw.map[i])
            return e->status != FUSOR_OK ? e->status
                                         : FU_FAIL(e, FUSOR_ERROR_INTERNAL, "expand: %s", ir_ops[n.op].name);
        rw.is_changed = true;
    }
    ir_rewrite_finish(&rw, g);
    return FUSOR_OK;
}
