/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_expand_window.c: pooling as what maps know: the element of each window at one place is a strided slice of the padded operand,
 * and the slices of all places are combined element by element. So a pool is one map kernel, with what comes before and after it.
 *
 *   max_pool      maximum of the slices; the pads are the lowest value
 *   average_pool  sum of the slices / how many are no padding, from the index where that is not the same everywhere
 *   global        reduce_mean over the spatial axes
 *
 * The places of a window are taken in row-major order. A window of more than MAX_PLACES stays one operator, for the reference. */
#include "ir/expand.h"
#include "ir/window.h"
#include <string.h>

enum { MAX_PLACES = 64 };

typedef struct pool {
    const ir_expand *c;
    ir_graph *g;
    const ir_node *n;
    ir_window w;
} pool;

static int64_t places_of(const ir_window *w) {
    int64_t n = 1;
    for (int i = 0; i < w->n; i++) n = n > MAX_PLACES || w->axis[i].kernel > MAX_PLACES ? MAX_PLACES + 1 : n * w->axis[i].kernel;
    return n;
}

bool ir_expands_window(const ir_graph *g, const ir_node *n) {
    if (ir_ops[n->op].kind != IR_KIND_WINDOW) return false;
    const ir_window w = ir_window_of(g, n);
    return places_of(&w) <= MAX_PLACES;
}

/* An operator by its usual rules; what is new belongs to the composite. attr: its leading attributes. */
static ir_id add(const pool *p, ir_op op, int n_in, const ir_id *in, const ir_attr *attr, unsigned n_attrs, ir_dtype to) {
    ir_operand x[3];
    ir_attr all[IR_MAX_ATTRS] = {{0}};
    if (n_attrs) memcpy(all, attr, n_attrs * sizeof *attr);
    for (int i = 0; i < n_in; i++) x[i] = ir_use(in[i]);
    const uint32_t before = p->g->nodes.n;
    const ir_id id = ir_add(p->g, op, n_in, x, n_attrs ? all : NULL, to, p->n->loc);
    if (id >= before) {
        ir_node *made = ir_at(p->g, id);
        made->group = p->c->model.group;
        made->meta_name = p->c->model.meta_name;
        made->meta_loc = p->c->model.meta_loc;
    }
    return id;
}
static ir_id add2(const pool *p, ir_op op, ir_id a, ir_id b) { return add(p, op, 2, (ir_id[]){a, b}, NULL, 0, 0); }
static ir_size constant(const pool *p, int64_t v) { return ir_size_const(p->g->sizes, v); }
static ir_attr list_attr(ir_size *list, unsigned n) { return (ir_attr){.is_set = true, .list = list, .n = n}; }
static ir_id integer(const pool *p, int64_t v) { return ir_add_literal(p->g, FUSOR_I64, (ir_bits)v); }

/* The value below which no element is. */
static ir_bits lowest(ir_dtype t) {
    bool fits;
    if (ir_is_float(t)) return ir_bits_from_double(t, -__builtin_inf(), &fits);
    return ir_is_signed(t) ? (ir_bits)1 << (8 * ir_dtypes[t].bytes - 1) : 0;
}

/* x with `value` around it, as far as any window reaches: ceil adds less than a stride. */
static ir_id padded(const pool *p, ir_id x, ir_bits value) {
    const unsigned rank = p->n->rank;
    ir_size list[2 * IR_MAX_RANK];
    bool any = false;
    for (unsigned i = 0; i < 2 * rank; i++) list[i] = constant(p, 0);
    for (int i = 0; i < p->w.n; i++) {
        const ir_window_axis *a = &p->w.axis[i];
        const int64_t end = a->end + (p->w.is_ceil ? a->stride - 1 : 0);
        list[IR_SPATIAL_AT + i] = constant(p, a->begin);
        list[rank + IR_SPATIAL_AT + (unsigned)i] = constant(p, end);
        any |= a->begin || end;
    }
    if (!any) return x;
    const ir_attr pads = list_attr(list, 2 * rank); /* ORDER attrs_PAD: pads, value, mode */
    return add(p, IR_OP_PAD, 2, (ir_id[]){x, ir_add_literal(p->g, ir_at(p->g, x)->dtype, value)}, &pads, 1, 0);
}

/* The elements at one place of every window. */
static ir_id at_place(const pool *p, ir_id x, const int64_t *place) {
    ir_size start[IR_MAX_SPATIAL], end[IR_MAX_SPATIAL], step[IR_MAX_SPATIAL], axis[IR_MAX_SPATIAL];
    ir_sizes *s = p->g->sizes;
    bool is_all = true;
    for (int i = 0; i < p->w.n; i++) {
        const ir_window_axis *a = &p->w.axis[i];
        const ir_size count = p->n->dim[IR_SPATIAL_AT + i], stride = constant(p, a->stride);
        const int64_t from = place[i] * a->dilation;
        start[i] = constant(p, from);
        end[i] = ir_size_add(s, ir_size_mul(s, ir_size_sub(s, count, constant(p, 1)), stride), constant(p, from + 1));
        step[i] = stride;
        axis[i] = constant(p, IR_SPATIAL_AT + i);
        is_all &= from == 0 && a->stride == 1 && ir_at(p->g, x)->dim[IR_SPATIAL_AT + i] == count;
    }
    if (is_all) return x;
    const unsigned n = (unsigned)p->w.n; /* ORDER attrs_SLICE: starts, ends, steps, axes */
    const ir_attr attr[4] = {list_attr(start, n), list_attr(end, n), list_attr(step, n), list_attr(axis, n)};
    const ir_id part = add(p, IR_OP_SLICE, 1, &x, attr, 4, 0);
    if (!part) return 0;
    /* Bounds that clamp make the same sizes in other words. */
    memcpy(ir_at(p->g, part)->dim, p->n->dim, sizeof p->n->dim);
    return part;
}

static ir_id combined(const pool *p, ir_op op, ir_id x) {
    int64_t place[IR_MAX_SPATIAL] = {0};
    ir_id sum = 0;
    for (;;) {
        const ir_id part = at_place(p, x, place);
        sum = sum ? add2(p, op, sum, part) : part;
        int i = p->w.n - 1;
        while (i >= 0 && ++place[i] == p->w.axis[i].kernel) place[i--] = 0;
        if (i < 0) return sum;
    }
}

/* How many places of the windows along axis i count, as f32 or f64: a tensor of that axis's windows; 0: all of them do. */
static ir_id counted(const pool *p, int i, ir_id x, ir_dtype t) {
    const ir_window_axis *a = &p->w.axis[i];
    const unsigned d = IR_SPATIAL_AT + (unsigned)i;
    if ((!a->begin && !a->end && !p->w.is_ceil) || (p->w.counts_pads && !p->w.is_ceil)) return 0;
    ir_size shape[IR_MAX_SPATIAL];
    for (int k = i; k < p->w.n; k++) shape[k - i] = k == i ? p->n->dim[d] : constant(p, 1);
    const ir_attr size_axis = {.is_set = true, .integer = d};
    const ir_attr iota[3] = {list_attr(shape, (unsigned)(p->w.n - i)), {.is_set = true}, {.is_set = true, .integer = FUSOR_I64}};
    /* positions from low to high - 1 count, in places of the operand */
    const ir_id low = integer(p, p->w.counts_pads ? -a->begin : 0);
    ir_id high = add(p, IR_OP_DIM, 1, &x, &size_axis, 1, 0);
    if (p->w.counts_pads && a->end) high = add2(p, IR_OP_ADD, high, integer(p, a->end));
    ir_id first = add(p, IR_OP_IOTA, 0, NULL, iota, 3, 0);
    if (a->stride != 1) first = add2(p, IR_OP_MUL, first, integer(p, a->stride));
    if (a->begin) first = add2(p, IR_OP_SUB, first, integer(p, a->begin));
    ir_id count = 0;
    if (a->dilation == 1) {
        const ir_id past = add2(p, IR_OP_MINIMUM, add2(p, IR_OP_ADD, first, integer(p, a->kernel)), high);
        count = add2(p, IR_OP_SUB, past, add2(p, IR_OP_MAXIMUM, first, low));
    }
    for (int64_t k = 0; k < a->kernel && a->dilation != 1; k++) {
        const ir_id at = add2(p, IR_OP_ADD, first, integer(p, k * a->dilation));
        const ir_id is_in = add2(p, IR_OP_AND, add2(p, IR_OP_GE, at, low), add2(p, IR_OP_LT, at, high));
        const ir_id one = add(p, IR_OP_CAST, 1, &is_in, NULL, 0, FUSOR_I64);
        count = count ? add2(p, IR_OP_ADD, count, one) : one;
    }
    /* a window in the padding only has none, and its average is NaN */
    count = add2(p, IR_OP_MAXIMUM, count, integer(p, 0));
    return add(p, IR_OP_CAST, 1, &count, NULL, 0, t);
}

static ir_id expand_average(const pool *p) {
    const ir_id operand = p->n->in[0];
    const ir_dtype t = p->n->dtype == FUSOR_F64 ? FUSOR_F64 : FUSOR_F32;
    const ir_id x = ir_expand_cast(p->c, operand, t);
    const ir_id sum = combined(p, IR_OP_ADD, padded(p, x, 0));
    double same = 1;
    ir_id count = 0;
    for (int i = 0; i < p->w.n; i++) {
        const ir_id each = counted(p, i, operand, t);
        if (!each) same *= (double)p->w.axis[i].kernel;
        else count = count ? add2(p, IR_OP_MUL, count, each) : each;
    }
    const ir_id number = ir_expand_number(p->c, t, same);
    if (count && same != 1) count = add2(p, IR_OP_MUL, count, number);
    return ir_expand_cast(p->c, add2(p, IR_OP_DIV, sum, count ? count : number), p->n->dtype);
}

ir_id ir_expand_window(const ir_expand *c, const ir_node *n) {
    const pool p = {.c = c, .g = c->rw->to, .n = n, .w = ir_window_of(c->rw->to, n)};
    if (p.w.n == 0) {
        ir_size axes[IR_MAX_SPATIAL];
        ir_node mean = ir_expand_node(c, IR_OP_REDUCE_MEAN, n->dtype, n, 1);
        ir_id in = n->in[0];
        for (unsigned d = IR_SPATIAL_AT; d < n->rank; d++) axes[d - IR_SPATIAL_AT] = constant(&p, d);
        mean.in = &in;
        mean.attr[0] = list_attr(axes, n->rank - IR_SPATIAL_AT); /* ORDER attrs_REDUCE: axes, keepdims, dtype */
        mean.attr[1] = (ir_attr){.is_set = true, .integer = 1};
        return ir_expand_reduction(c, &mean);
    }
    const ir_id y = n->op == IR_OP_MAX_POOL ? combined(&p, IR_OP_MAXIMUM, padded(&p, n->in[0], lowest(n->dtype))) : expand_average(&p);
    return ir_expand_finish(c, y, n->in[0]);
}
