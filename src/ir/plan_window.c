/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_window.c: a convolution as a window kernel. Its space is the result's, then the channels of a group, the places
 * of the kernel, and the groups; the operands are read along it as they lie, with strides that overlap. */
#include "ir/plan_builder.h"
#include "ir/window.h"

/* Dims of the space behind those of the result. */
static int dim_c(const ir_node *n) { return n->rank; }
static int dim_place(const ir_node *n, unsigned axis) { return n->rank + 1 + (int)axis; }
static int dim_group(const ir_node *n) { return 2 * n->rank - 1; }

static int64_t entry(const ir_graph *g, const ir_node *n, const char *name, unsigned i) {
    const ir_attr *a = ir_node_attr(n, name);
    int64_t v = 1;
    if (a && a->is_set && i < a->n) ir_size_is_const(g->sizes, a->list[i], &v);
    return v;
}

static int64_t groups_of(const ir_node *n) {
    const ir_attr *a = ir_node_attr(n, "groups");
    return a ? a->integer : 1;
}

bool ir_conv_fits_window(const ir_graph *g, const ir_node *n) {
    if (n->op != IR_OP_CONV) return false;
    const ir_node *w = ir_at(g, n->in[1]);
    const int64_t groups = groups_of(n);
    int64_t v;
    if (!ir_is_float(ir_at(g, n->in[0])->dtype) || !ir_is_float(n->dtype)) return false;
    if (!ir_size_is_const(g->sizes, w->dim[0], &v) || v < groups) return false;
    for (unsigned d = IR_SPATIAL_AT; d < w->rank; d++)
        if (!ir_size_is_const(g->sizes, w->dim[d], &v) || v > INT32_MAX) return false;
    return true;
}

bool ir_conv_is_window(const ir_graph *g, const ir_node *n) {
    if (n->n_in != 2 || !ir_conv_fits_window(g, n)) return false;
    const ir_dtype t = ir_at(g, n->in[0])->dtype;
    const ir_attr *pads = ir_node_attr(n, "pads");
    for (uint32_t i = 0; pads && i < pads->n; i++)
        if (!ir_size_is(g->sizes, pads->list[i], 0)) return false;
    return (t == FUSOR_F32 || t == FUSOR_F64) && ir_at(g, n->in[1])->dtype == t && n->dtype == t;
}

/* Strides of contiguous memory, also along sizes of 1. */
static void runs(const builder *b, const ir_node *x, ir_size out[IR_MAX_RANK]) {
    ir_size run = b->one;
    for (int d = x->rank - 1; d >= 0; d--) {
        out[d] = run;
        run = ir_size_mul(b->p->g->sizes, run, x->dim[d]);
    }
}

void plan_window_space(builder *b, const ir_node *n) {
    const ir_graph *g = b->p->g;
    const ir_node *w = ir_at(g, n->in[1]);
    const unsigned spatial = n->rank - (unsigned)IR_SPATIAL_AT;
    b->dim[dim_c(n)] = w->dim[1];
    for (unsigned i = 0; i < spatial; i++) b->dim[dim_place(n, i)] = w->dim[IR_SPATIAL_AT + i];
    b->dim[dim_group(n)] = ir_size_const(g->sizes, groups_of(n));
    b->space = dim_group(n) + 1;
    int64_t made = 1;
    ir_size_is_const(g->sizes, w->dim[0], &made);
    int64_t columns = -1, rows = 1, products = -1, v;
    if (ir_size_is_const(g->sizes, w->dim[1], &products))
        for (unsigned i = 0; i < spatial; i++)
            if (ir_size_is_const(g->sizes, w->dim[IR_SPATIAL_AT + i], &v))
                products = products > INT32_MAX ? -1 : products * v;
    if (!ir_size_is_const(g->sizes, n->dim[n->rank - 1], &columns)) columns = -1;
    if (spatial > 1 && !ir_size_is_const(g->sizes, n->dim[n->rank - 2], &rows)) rows = -1;
    b->k->tile = ir_window_tile(b->k->level, n->dtype, made / groups_of(n), columns, rows, products,
                                entry(g, n, "strides", spatial - 1));
}

uint16_t plan_window_value(builder *b, const ir_node *n) {
    ir_sizes *sz = b->p->g->sizes;
    const ir_node x = *ir_at(b->p->g, n->in[0]), w = *ir_at(b->p->g, n->in[1]);
    const unsigned spatial = n->rank - (unsigned)IR_SPATIAL_AT;
    const ir_size each = ir_size_div(sz, w.dim[0], ir_size_const(sz, groups_of(n))); /* channels made by a group */
    ir_size run[IR_MAX_RANK], stride[2][MAX_SPACE];
    ir_kinst inst;
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < MAX_SPACE; d++) stride[i][d] = b->zero;
    runs(b, &w, run);
    stride[0][1] = run[0];
    stride[0][dim_c(n)] = run[1];
    stride[0][dim_group(n)] = ir_size_mul(sz, run[0], each);
    for (unsigned i = 0; i < spatial; i++) stride[0][dim_place(n, i)] = run[IR_SPATIAL_AT + i];
    runs(b, &x, run);
    stride[1][0] = run[0];
    stride[1][dim_c(n)] = run[1];
    stride[1][dim_group(n)] = ir_size_mul(sz, run[1], w.dim[1]);
    for (unsigned i = 0; i < spatial; i++) {
        const ir_size along = run[IR_SPATIAL_AT + i];
        stride[1][IR_SPATIAL_AT + i] = ir_size_mul(sz, along, ir_size_const(sz, entry(b->p->g, n, "strides", i)));
        stride[1][dim_place(n, i)] = ir_size_mul(sz, along, ir_size_const(sz, entry(b->p->g, n, "dilations", i)));
    }
    memset(&inst, 0, sizeof inst);
    inst.op = IR_OP_MATMUL;
    inst.dtype = n->dtype;
    inst.n_in = 2;
    for (int i = 0; i < 2; i++) { /* operand 0 of the kernel is the weights */
        inst.in[i] = builder_load(b, n->in[1 - i], stride[i]);
        b->window[i] = b->k->inst[inst.in[i]].index;
    }
    return builder_inst(b, inst);
}

/* The kernel's dims: batch, groups, outer spatial dims; channels made, rows, columns; channels taken and places that
 * are not one. The result and what it is combined with have the groups within the channels. */
int plan_window_order(builder *b, const ir_node *n, int order[MAX_SPACE + 1], char role[MAX_SPACE + 1]) {
    ir_sizes *sz = b->p->g->sizes;
    const int columns = n->rank - 1, rows = n->rank > IR_SPATIAL_AT + 1 ? n->rank - 2 : -1;
    int count = 0;
    b->dim[1] = ir_size_div(sz, b->dim[1], b->dim[dim_group(n)]);
    for (uint32_t i = 0; i < b->accesses.n; i++) {
        access *a = &b->accesses.at[i];
        if ((int)i != b->window[0] && (int)i != b->window[1])
            a->stride[dim_group(n)] = ir_size_mul(sz, a->stride[1], b->dim[1]);
    }
#define PUT(d, r) (order[count] = (d), role[count++] = (r))
    if (!ir_size_is(sz, b->dim[0], 1)) PUT(0, 'b');
    if (!ir_size_is(sz, b->dim[dim_group(n)], 1)) PUT(dim_group(n), 'b');
    for (int d = IR_SPATIAL_AT; d < rows; d++)
        if (!ir_size_is(sz, b->dim[d], 1)) PUT(d, 'b');
    PUT(1, 'm');
    PUT(rows < 0 ? MAX_SPACE - 1 : rows, 'y');
    PUT(columns, 'n');
    for (int d = dim_c(n); d < dim_group(n); d++)
        if (d == dim_group(n) - 1 || !ir_size_is(sz, b->dim[d], 1)) PUT(d, 'k');
#undef PUT
    return count;
}
