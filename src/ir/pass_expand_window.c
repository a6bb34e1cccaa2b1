/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_expand_window.c: pooling as what maps know: the element of each window at one place is a strided slice of the
 * padded operand, and the slices of all places are combined element by element. So a pool is a map, with what comes
 * before and after it.
 *
 *   max_pool      maximum of the slices; the pads are the lowest value
 *   average_pool  sum of the slices / how many are no padding, from the index where that is not the same everywhere
 *   global        reduce_mean over the spatial axes
 *
 * Windows of up to MAX_PLACES are taken as they are in one kernel: the places of a row, then the rows. Larger ones are
 * taken axis by axis, the last one first: 9x9 is 9 + 9 operations instead of 81. And a long axis by parts: `part`
 * adjacent elements are combined first, then every part-th of the results, so an axis of 100 is 10 + 10. What an axis
 * or a part makes is stored (plan.c: count_taps), so there are few kernels and none grows with the window. Order of
 * combination follows from attributes alone. */
#include "base/small.h"
#include "ir/expand.h"
#include "ir/scalar.h"
#include <math.h>
#include "ir/window.h"
#include <string.h>

enum { MAX_PLACES = 16 };

typedef struct pool {
    const ir_expand *c;
    ir_graph *g;
    const ir_node *n;
    ir_window w;
} pool;

static bool is_small(const ir_window *w) {
    int64_t n = 1;
    for (int i = 0; i < w->n; i++) n = w->axis[i].kernel > MAX_PLACES ? MAX_PLACES + 1 : n * w->axis[i].kernel;
    return n <= MAX_PLACES;
}

bool ir_expands_window(const ir_node *n) { return ir_ops[n->op].kind == IR_KIND_WINDOW; }

static ir_id add(const pool *p, ir_op op, int n_in, const ir_id *in, const ir_attr *attr, unsigned n_attrs,
                 ir_dtype to) {
    return ir_expand_op(p->c, op, n_in, in, attr, n_attrs, to);
}
static ir_id add2(const pool *p, ir_op op, ir_id a, ir_id b) { return add(p, op, 2, (ir_id[]){a, b}, NULL, 0, 0); }
static ir_size constant(const pool *p, int64_t v) { return ir_size_const(p->g->sizes, v); }
static ir_id integer(const pool *p, int64_t v) { return ir_add_literal(p->g, FUSOR_I64, (ir_bits)v); }

/* x with `value` around spatial axes [first, last], as far as any window reaches: ceil adds less than a stride. */
static ir_id padded(const pool *p, ir_id x, ir_bits value, int first, int last) {
    const unsigned rank = p->n->rank;
    ir_size list[2 * IR_MAX_RANK];
    bool any = false;
    for (unsigned i = 0; i < 2 * rank; i++) list[i] = constant(p, 0);
    for (int i = first; i <= last; i++) {
        const ir_window_axis *a = &p->w.axis[i];
        const int64_t end = a->end + (p->w.is_ceil ? a->stride - 1 : 0);
        list[IR_SPATIAL_AT + i] = constant(p, a->begin);
        list[rank + IR_SPATIAL_AT + (unsigned)i] = constant(p, end);
        any |= a->begin || end;
    }
    if (!any) return x;
    const ir_attr pads = ir_list_attr(list, 2 * rank); /* ORDER attrs_PAD: pads, value, mode */
    return add(p, IR_OP_PAD, 2, (ir_id[]){x, ir_add_literal(p->g, ir_at(p->g, x)->dtype, value)}, &pads, 1, 0);
}

/* `count` elements of an axis: from element `from` on, `step` apart. */
typedef struct part {
    unsigned axis;
    int64_t from, step;
    ir_size count;
} part;

static ir_id slice(const pool *p, ir_id x, const part *parts, unsigned n) {
    ir_size start[IR_MAX_SPATIAL], end[IR_MAX_SPATIAL], step[IR_MAX_SPATIAL], axis[IR_MAX_SPATIAL];
    ir_sizes *s = p->g->sizes;
    bool is_all = true;
    for (unsigned i = 0; i < n; i++) {
        const ir_size before =
            ir_size_mul(s, ir_size_sub(s, parts[i].count, constant(p, 1)), constant(p, parts[i].step));
        start[i] = constant(p, parts[i].from);
        /* of no elements: a bound below 0 would count from the end */
        end[i] = parts[i].count == constant(p, 0) ? start[i] : ir_size_add(s, before, constant(p, parts[i].from + 1));
        step[i] = constant(p, parts[i].step);
        axis[i] = constant(p, parts[i].axis);
        is_all &= parts[i].from == 0 && parts[i].step == 1 && ir_at(p->g, x)->dim[parts[i].axis] == parts[i].count;
    }
    if (is_all) return x;
    const ir_id id = ir_expand_slice(p->c, x, n, start, end, step, axis);
    /* Bounds that clamp make the same sizes in other words. */
    for (unsigned i = 0; i < n && id; i++) ir_at(p->g, id)->dim[parts[i].axis] = parts[i].count;
    return id;
}

/* All places of the windows from `axis` on at once, at places at[] of the axes before: those of each row first, which
 * several windows may share (plan_slide.c). */
static ir_id combined(const pool *p, ir_op op, ir_id x, int axis, int64_t at[IR_MAX_SPATIAL]) {
    ir_id sum = 0;
    if (axis == p->w.n) {
        part parts[IR_MAX_SPATIAL];
        for (int i = 0; i < p->w.n; i++)
            parts[i] = (part){IR_SPATIAL_AT + (unsigned)i, at[i] * p->w.axis[i].dilation, p->w.axis[i].stride,
                              p->n->dim[IR_SPATIAL_AT + i]};
        return slice(p, x, parts, (unsigned)p->w.n);
    }
    for (at[axis] = 0; at[axis] < p->w.axis[axis].kernel; at[axis]++) {
        const ir_id one = combined(p, op, x, axis + 1, at);
        sum = sum ? add2(p, op, sum, one) : one;
    }
    return sum;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Places combined by the first of two steps along an axis: what has the fewest reads for an element of the operand.
 * Results are needed at multiples of what divides the stride and the distance of parts. */
static int64_t best_part(int64_t kernel, int64_t dilation, int64_t stride) {
    int64_t best = 2;
    double least = 1e300;
    for (int64_t n = 2; n <= MAX_PLACES; n++) {
        const double apart = (double)common_divisor(stride, n * dilation);
        const double reads = ((double)n + 1) / apart + (double)(kernel / n + kernel % n) / (double)stride;
        if (reads < least) best = n, least = reads;
    }
    return best;
}

/* Element o of the result along `axis`: x[o * stride + k * dilation] for all k of the kernel, combined. x is padded. */
static ir_id along(const pool *p, ir_op op, ir_id x, unsigned axis, ir_window_axis a, ir_size count) {
    ir_sizes *s = p->g->sizes;
    ir_id sum = 0;
    int64_t n = 0, known;
    if (ir_size_is(s, count, 1)) a.stride = a.kernel * a.dilation; /* the only window: as well as any other */
    if (a.kernel > MAX_PLACES) {
        const int64_t taken = best_part(a.kernel, a.dilation, a.stride), parts = a.kernel / taken;
        const int64_t apart = common_divisor(a.stride, taken * a.dilation);
        const ir_window_axis first = {.kernel = taken, .stride = apart, .dilation = a.dilation};
        const ir_window_axis rest = {
            .kernel = parts, .stride = a.stride / apart, .dilation = taken * a.dilation / apart};
        ir_size needed = ir_size_mul(s, ir_size_sub(s, count, constant(p, 1)), constant(p, rest.stride));
        needed = ir_size_add(s, needed, constant(p, (parts - 1) * rest.dilation + 1));
        /* no window: nothing is there to combine */
        if (!ir_size_is_const(s, count, &known)) needed = ir_size_mul(s, needed, ir_size_min(s, count, constant(p, 1)));
        else if (known == 0) needed = count;
        sum = along(p, op, along(p, op, x, axis, first, needed), axis, rest, count);
        n = parts * taken;
    }
    for (; n < a.kernel && (sum || n == 0); n++) {
        const ir_id one = slice(p, x, &(part){axis, n * a.dilation, a.stride, count}, 1);
        sum = sum ? add2(p, op, sum, one) : one;
    }
    return sum;
}

/* x over all windows. */
static ir_id pooled(const pool *p, ir_op op, ir_id x, ir_bits pad) {
    if (is_small(&p->w)) return combined(p, op, padded(p, x, pad, 0, p->w.n - 1), 0, (int64_t[IR_MAX_SPATIAL]){0});
    for (int i = p->w.n - 1; i >= 0; i--)
        x = along(p, op, padded(p, x, pad, i, i), IR_SPATIAL_AT + (unsigned)i, p->w.axis[i],
                  p->n->dim[IR_SPATIAL_AT + i]);
    return x;
}

/* How many places of a dilated window that starts at `first` lie before `end`. */
static ir_id places_before(const pool *p, const ir_window_axis *a, ir_id first, ir_id end) {
    const ir_id distance = add2(p, IR_OP_MAXIMUM, add2(p, IR_OP_SUB, end, first), integer(p, 0));
    const ir_id up = add2(p, IR_OP_ADD, distance, integer(p, a->dilation - 1));
    return add2(p, IR_OP_MINIMUM, add2(p, IR_OP_DIV, up, integer(p, a->dilation)), integer(p, a->kernel));
}

/* How many places of the windows along axis i count, as f32 or f64: a tensor of that axis's windows; 0: all of them
 * do. */
static ir_id counted(const pool *p, int i, ir_id x, ir_dtype t) {
    const ir_window_axis *a = &p->w.axis[i];
    const unsigned d = IR_SPATIAL_AT + (unsigned)i;
    if ((!a->begin && !a->end && !p->w.is_ceil) || (p->w.counts_pads && !p->w.is_ceil)) return 0;
    ir_size shape[IR_MAX_SPATIAL];
    for (int k = i; k < p->w.n; k++) shape[k - i] = k == i ? p->n->dim[d] : constant(p, 1);
    const ir_attr size_axis = {.is_set = true, .integer = d};
    const ir_attr iota[3] = {
        ir_list_attr(shape, (unsigned)(p->w.n - i)), {.is_set = true}, {.is_set = true, .integer = FUSOR_I64}};
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
    } else { /* those before high without those before low */
        count = add2(p, IR_OP_SUB, places_before(p, a, first, high), places_before(p, a, first, low));
    }
    /* a window in the padding only has none, and its average is NaN */
    count = add2(p, IR_OP_MAXIMUM, count, integer(p, 0));
    return add(p, IR_OP_CAST, 1, &count, NULL, 0, t);
}

static ir_id expand_average(const pool *p) {
    const ir_id operand = p->n->in[0];
    const ir_dtype t = p->n->dtype == FUSOR_F64 ? FUSOR_F64 : FUSOR_F32;
    const ir_id x = ir_expand_cast(p->c, operand, t);
    const ir_id sum = pooled(p, IR_OP_ADD, x, 0);
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
        mean.attr[0] = ir_list_attr(axes, n->rank - IR_SPATIAL_AT); /* ORDER attrs_REDUCE: axes, keepdims, dtype */
        mean.attr[1] = (ir_attr){.is_set = true, .integer = 1};
        return ir_expand_reduction(c, &mean);
    }
    const ir_id y = n->op == IR_OP_MAX_POOL ? pooled(&p, IR_OP_MAXIMUM, n->in[0], ir_scalar_of(n->dtype, -INFINITY))
                                            : expand_average(&p);
    return ir_expand_finish(c, y, n->in[0]);
}

/* ---- blocks ---- */
/* The mean or the largest of each block of a plane that a reshape has cut up: [.., h, k, w, l] along k and l, which are
 * short, is a pool of [.., h k, w l], whose vectors run along w and not along l. On a GPU pools are plain loops. */
bool ir_expands_blocks(const ir_graph *g, const ir_node *n) {
    enum { MOST = 4, FEWEST_COLUMNS = 8 };
    if ((n->op != IR_OP_REDUCE_MEAN && n->op != IR_OP_REDUCE_MAX) || !g->packs_const) return false;
    const ir_node *x = ir_at(g, n->in[0]);
    const ir_attr *dtype = ir_node_attr(n, "dtype");
    int64_t k, l, w;
    return x->rank >= 4 && !(dtype && dtype->is_set) && ir_node_axes(g, n) == 5u << (x->rank - 3) &&
           ir_size_is_const(g->sizes, x->dim[x->rank - 3], &k) && ir_size_is_const(g->sizes, x->dim[x->rank - 1], &l) &&
           k >= 2 && k <= MOST && l >= 2 && l <= MOST &&
           !(ir_size_is_const(g->sizes, x->dim[x->rank - 2], &w) && w < FEWEST_COLUMNS);
}

ir_id ir_expand_blocks(const ir_expand *c, const ir_node *n) {
    ir_sizes *s = c->rw->to->sizes;
    const ir_node x = *ir_at(c->rw->to, n->in[0]);
    const unsigned h = x.rank - 4u;
    ir_size plane[4] = {ir_size_const(s, 1), ir_size_const(s, 1), ir_size_mul(s, x.dim[h], x.dim[h + 1]),
                        ir_size_mul(s, x.dim[h + 2], x.dim[h + 3])},
            window[2] = {x.dim[h + 1], x.dim[h + 3]};
    for (unsigned d = 0; d < h; d++) plane[0] = ir_size_mul(s, plane[0], x.dim[d]);
    for (unsigned d = 0; d < 4; d++)
        if (ir_size_is_huge(s, plane[d])) /* an expression of too many terms */
            return n->op == IR_OP_REDUCE_MEAN ? ir_expand_reduction(c, n) : ir_add_raw(c->rw->to, n);
    ir_id image = ir_expand_shaped(c, IR_OP_RESHAPE, n->in[0], plane, 4);
    if (!image) return 0;
    const ir_op op = n->op == IR_OP_REDUCE_MAX ? IR_OP_MAX_POOL : IR_OP_AVERAGE_POOL;
    ir_node windows = ir_expand_node(c, op, n->dtype, n, 1);
    windows.in = &image;
    windows.rank = 4;
    memcpy(windows.dim, plane, sizeof plane);
    windows.dim[2] = x.dim[h];
    windows.dim[3] = x.dim[h + 2];
    windows.attr[0] = windows.attr[1] = ir_list_attr(window, 2); /* ORDER ATTRS_WINDOW: kernel, strides */
    return ir_expand_shaped(c, IR_OP_RESHAPE, ir_expand_window(c, &windows), n->dim, n->rank);
}
