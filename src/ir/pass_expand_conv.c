/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_expand_conv.c: convolutions as matrix products and movement, in the type that sums are made in.
 *
 *   conv            of the padded operand, in one kernel, which takes the pads in on a CPU (plan_window.c); depthwise
 *                   with its pads
 *   one window      of the whole image: operand [N, C * places] @ weights [O, C * places] transposed, of one filter for
 *                   each channel their products summed; conv_transpose of one place: operand [N, C] @ weights
 *                   [C, O * places]
 *   conv of one place, without pads, between transposes of images whose channels are last
 *                   operand @ weights [O, C] transposed, over the channels where they lie; transposed in turn;
 *                   with strides of some of its places
 *   conv_transpose  with strides, on a CPU: without bias and in the type of sums, one kernel (ir_conv_fits_phases)
 *   other ones      along each axis, element q * stride + r of the result, pads included, is a convolution of stride 1
 *                   of the operand with every stride-th place, backwards: one convolution makes all r that meet the
 *                   same count of places as channels (two of them an axis where the stride does not divide the
 *                   kernel), and their elements take turns in the result. For r = 0 .. K - 1 alone where the stride is
 *                   more; what is left is zeros
 *   the same with strides and dilations of more than 1 along one axis, or whose kernel has sizes with names
 *                   weights [C, O * places] transposed @ operand [N, C, positions], once, groups as batches; then axis
 *                   by axis a scatter that adds each product to the element of the result that it belongs to */
#include "base/small.h"
#include "ir/expand.h"
#include "ir/window.h"
#include <string.h>

typedef struct conv {
    const ir_expand *c;
    ir_graph *g;
    ir_sizes *s;
    const ir_node *n;
    ir_dtype t; /* of sums */
    unsigned spatial, rank;
    int64_t groups, kernel[IR_MAX_SPATIAL]; /* kernel: where expand_turned takes it */
    int64_t stride[IR_MAX_SPATIAL], dilation[IR_MAX_SPATIAL], begin[IR_MAX_SPATIAL], end[IR_MAX_SPATIAL];
} conv;

/* conv_transpose: are the places of every axis, those that meet one element, a step apart that no stride changes? */
static bool is_turned(const ir_graph *g, const ir_node *n) {
    const ir_node *w = ir_at(g, n->in[1]);
    int64_t size;
    if (n->op != IR_OP_CONV_TRANSPOSE) return false;
    for (unsigned d = IR_SPATIAL_AT; d < w->rank; d++) {
        const unsigned i = d - (unsigned)IR_SPATIAL_AT;
        if (!ir_size_is_const(g->sizes, w->dim[d], &size) || size > INT32_MAX) return false;
        if (ir_window_entry(g, n, "strides", i, 1) > 1 && size > 1 && ir_window_entry(g, n, "dilations", i, 1) > 1)
            return false;
    }
    return true;
}

static bool makes_nothing(const ir_graph *g, const ir_node *n) { return ir_size_is(g->sizes, n->dim[1], 0); }

/* Has a convolution one filter for each channel? */
static bool has_filters(const ir_graph *g, const ir_node *n) {
    const ir_node *w = ir_at(g, n->in[1]);
    const int64_t groups = ir_node_attr(n, "groups")->integer;
    return n->op == IR_OP_CONV && ir_size_is(g->sizes, w->dim[0], groups) && ir_size_is(g->sizes, w->dim[1], 1) &&
           ir_size_is(g->sizes, ir_at(g, n->in[0])->dim[1], groups);
}

/* Is a window the whole image, or the result of one place, so that nothing is read or added to twice? */
static bool has_one_window(const ir_graph *g, const ir_node *n) {
    const ir_node *x = ir_at(g, n->in[0]), *w = ir_at(g, n->in[1]);
    const bool is_transposed = n->op == IR_OP_CONV_TRANSPOSE;
    const unsigned spatial = (unsigned)n->rank - IR_SPATIAL_AT;
    if (!ir_is_float(x->dtype) || x->dtype != w->dtype) return false;
    if (ir_node_attr(n, "groups")->integer != 1 && !has_filters(g, n)) return false;
    for (unsigned i = 0; i < spatial; i++) {
        const ir_size image = (is_transposed ? n : x)->dim[IR_SPATIAL_AT + i],
                      place = (is_transposed ? x : n)->dim[IR_SPATIAL_AT + i];
        if (!ir_size_is(g->sizes, place, 1) || image != w->dim[IR_SPATIAL_AT + i] ||
            ir_window_entry(g, n, "pads", i, 0) || ir_window_entry(g, n, "pads", i + spatial, 0) ||
            (ir_window_entry(g, n, "dilations", i, 1) != 1 && !ir_size_is(g->sizes, image, 1)) ||
            (is_transposed && ir_window_entry(g, n, "output_padding", i, 0)))
            return false;
    }
    return true;
}

bool ir_expands_conv(const ir_graph *g, const ir_node *n) {
    if (ir_ops[n->op].kind != IR_KIND_CONV) return false;
    if (has_one_window(g, n)) return true;
    return !ir_conv_is_window(g, n) &&
           (n->op == IR_OP_CONV_TRANSPOSE || ir_conv_fits_window(g, n) || makes_nothing(g, n));
}

static ir_size number(const conv *v, int64_t x) { return ir_size_const(v->s, x); }
static ir_id add2(const conv *v, ir_op op, ir_id a, ir_id b) {
    return ir_expand_op(v->c, op, 2, (ir_id[]){a, b}, NULL, 0, 0);
}
static ir_id cast(const conv *v, ir_id x, ir_dtype t) {
    return ir_at(v->g, x)->dtype == t ? x : ir_expand_op(v->c, IR_OP_CAST, 1, &x, NULL, 0, t);
}
static ir_id reshape(const conv *v, ir_id x, const ir_size *dim, unsigned rank) {
    return ir_expand_shaped(v->c, IR_OP_RESHAPE, x, dim, rank);
}
/* Sizes of the spatial axes of a node, multiplied. */
static ir_size area(const conv *v, const ir_node *x) {
    ir_size n = number(v, 1);
    for (unsigned i = 0; i < v->spatial; i++) n = ir_size_mul(v->s, n, x->dim[IR_SPATIAL_AT + i]);
    return n;
}

/* begin and end, which may be negative, around axes from `first` on; one cuts off no more than there is. */
static ir_id pad_or_cut(const conv *v, ir_id x, unsigned first, const int64_t *begin, const int64_t *end) {
    const unsigned rank = ir_at(v->g, x)->rank;
    ir_size list[2 * IR_MAX_RANK];
    bool any = false;
    for (unsigned i = 0; i < 2 * rank; i++) list[i] = number(v, 0);
    for (unsigned i = 0; i < v->spatial; i++) {
        list[first + i] = number(v, begin[i]);
        list[rank + first + i] = number(v, end[i]);
        any |= begin[i] || end[i];
    }
    if (!any) return x;
    const ir_attr pads = ir_list_attr(list, 2 * rank); /* ORDER attrs_PAD: pads, value, mode */
    return ir_expand_op(v->c, IR_OP_PAD, 2, (ir_id[]){x, ir_add_literal(v->g, ir_at(v->g, x)->dtype, 0)}, &pads, 1, 0);
}

/* The same; where one side cuts off more than there is, or may, the other one comes first. */
static ir_id padded(const conv *v, ir_id x, unsigned first, const int64_t *begin, const int64_t *end) {
    int64_t more[2][IR_MAX_SPATIAL], less[2][IR_MAX_SPATIAL], size;
    bool any = false;
    for (unsigned i = 0; i < v->spatial; i++) {
        const int64_t side[2] = {begin[i], end[i]};
        const bool is_const = ir_size_is_const(v->s, ir_at(v->g, x)->dim[first + i], &size);
        any |= is_const ? begin[i] < -size || end[i] < -size : (begin[i] < 0) != (end[i] < 0);
        for (int k = 0; k < 2; k++) {
            more[k][i] = side[k] > 0 ? side[k] : 0;
            less[k][i] = side[k] < 0 ? side[k] : 0;
        }
    }
    if (!any) return pad_or_cut(v, x, first, begin, end);
    x = pad_or_cut(v, x, first, more[0], more[1]);
    return x ? pad_or_cut(v, x, first, less[0], less[1]) : 0;
}

/* Products in the type of sums: floats, and 8-bit operands of one type in i32, are so as they are; other integers in
 * i64. */
static ir_id product(const conv *v, ir_id a, ir_id b, bool is_transposed) {
    const ir_attr attr[3] = {/* ORDER attrs_MATMUL: transpose_a, transpose_b, dtype */
                             {.is_set = is_transposed, .integer = is_transposed},
                             {0},
                             {.is_set = ir_is_float(v->t), .integer = v->t}};
    const ir_id y = ir_expand_op(v->c, IR_OP_MATMUL, 2, (ir_id[]){a, b}, attr, 3, 0);
    return y ? cast(v, y, v->t) : 0;
}

/* A convolution that one kernel reads in place: of the padded operand, unless the kernel sees to pads. */
static ir_id windowed(const conv *v, ir_id x, ir_id w) {
    ir_size stride[IR_MAX_SPATIAL], dilation[IR_MAX_SPATIAL], pads[2 * IR_MAX_SPATIAL];
    bool is_cut = false; /* pads that are negative take elements away */
    for (unsigned i = 0; i < v->spatial; i++) {
        stride[i] = number(v, v->stride[i]);
        dilation[i] = number(v, v->dilation[i]);
        pads[i] = number(v, v->begin[i]);
        pads[v->spatial + i] = number(v, v->end[i]);
        is_cut |= v->begin[i] < 0 || v->end[i] < 0;
    }
    ir_attr attr[4] = {/* ORDER attrs_CONV: strides, pads, dilations, groups */
                       ir_list_attr(stride, v->spatial), ir_list_attr(pads, 2 * v->spatial),
                       ir_list_attr(dilation, v->spatial), (ir_attr){.is_set = true, .integer = v->groups}};
    ir_id in[2] = {x, w};
    const ir_node made = {.op = IR_OP_CONV, .dtype = v->t, .rank = (uint8_t)v->rank, .n_in = 2, .in = in, .attr = attr};
    if (is_cut || !ir_conv_is_depthwise(v->g, &made)) {
        x = padded(v, x, IR_SPATIAL_AT, v->begin, v->end);
        attr[1] = (ir_attr){0};
    }
    if (x && ir_is_float(v->t)) { /* pads first: on a GPU the padded operand is read as halves */
        x = cast(v, x, v->t);
        w = cast(v, w, v->t);
    }
    const ir_id y = x ? ir_expand_op(v->c, IR_OP_CONV, 2, (ir_id[]){x, w}, attr, 4, 0) : 0;
    if (y) memcpy(ir_at(v->g, y)->dim, v->n->dim, v->rank * sizeof(ir_size)); /* the same sizes in other words */
    return y ? cast(v, y, v->t) : 0;
}

/* What a transposed convolution is along its axes. Elements of the result that take turns, its phases, are made by one
 * convolution where they meet the same count of places. Where the stride does not divide the kernel, the first phases
 * of an axis meet one place more than the others: these are two parts. */
typedef struct turns {
    int64_t phases[IR_MAX_SPATIAL], from[IR_MAX_SPATIAL]; /* of this part: how many, and the first */
    int64_t taken[IR_MAX_SPATIAL];                        /* places that each of them meets */
    int64_t begin[IR_MAX_SPATIAL], end[IR_MAX_SPATIAL];   /* pads of the convolution, also negative */
    int64_t all;                                          /* phases of all axes */
} turns;

/* Phases of an axis that have a place at all. */
static int64_t phases_of(const conv *v, unsigned i) {
    if (v->stride[i] == 1) return 1;
    return v->stride[i] < v->kernel[i] ? v->stride[i] : v->kernel[i];
}
static bool has_two_parts(const conv *v, unsigned i) { return v->kernel[i] % phases_of(v, i) != 0; }

/* Bit i of `part`: the second part of axis i. */
static turns turns_of(const conv *v, unsigned part) {
    turns t = {.all = 1};
    for (unsigned i = 0; i < v->spatial; i++) {
        const int64_t s = v->stride[i], k = v->kernel[i], phases = phases_of(v, i), rest = k % phases;
        /* The result begins at `begin`, and ends so far behind operand * stride. */
        const int64_t behind = (s > 1 ? k - s : (k - 1) * v->dilation[i]) + v->end[i];
        const bool is_second = part >> i & 1;
        t.from[i] = is_second ? rest : 0;
        t.phases[i] = is_second ? phases - rest : rest ? rest : phases;
        t.taken[i] = k / phases + (rest && !is_second);
        t.begin[i] = (t.taken[i] - 1) * (s > 1 ? 1 : v->dilation[i]) - v->begin[i] / s;
        t.end[i] = behind >= 0 ? (behind + s - 1) / s : -(-behind / s);
        t.all *= t.phases[i];
    }
    return t;
}

/* Of weights [C, O / g, places, phases, ..] what a part has. */
static ir_id part_of(const conv *v, const turns *t, ir_id w) {
    ir_size start[2 * IR_MAX_SPATIAL], stop[2 * IR_MAX_SPATIAL], step[2 * IR_MAX_SPATIAL], axes[2 * IR_MAX_SPATIAL];
    unsigned n = 0;
    for (unsigned i = 0; i < v->spatial; i++) {
        if (!has_two_parts(v, i)) continue;
        start[n] = number(v, 0);
        stop[n] = number(v, t->taken[i]);
        axes[n++] = number(v, 2 + 2 * (int)i);
        start[n] = number(v, t->from[i]);
        stop[n] = number(v, t->from[i] + t->phases[i]);
        axes[n++] = number(v, 3 + 2 * (int)i);
    }
    for (unsigned i = 0; i < n; i++) step[i] = number(v, 1);
    return n ? ir_expand_slice(v->c, w, n, start, stop, step, axes) : w;
}

/* Weights [C, O / g, K..] as [O * phases, C / g, taken..], places backwards. */
static ir_id turned_weights(const conv *v, const turns *t, ir_id w) {
    const ir_node of = *ir_at(v->g, w);
    const ir_size groups = number(v, v->groups), each = ir_size_div(v->s, of.dim[0], groups),
                  made = ir_size_mul(v->s, groups, of.dim[1]);
    ir_size dim[IR_MAX_RANK] = {groups, each, of.dim[1]};
    int perm[IR_MAX_RANK];
    unsigned n = 2;
    int64_t none[IR_MAX_SPATIAL] = {0}, more[IR_MAX_SPATIAL], rows[IR_MAX_SPATIAL];
    for (unsigned i = 0; i < v->spatial; i++) {
        rows[i] = (v->kernel[i] + phases_of(v, i) - 1) / phases_of(v, i);
        more[i] = rows[i] * phases_of(v, i) - v->kernel[i]; /* zeros that no part has */
    }
    w = padded(v, w, IR_SPATIAL_AT, none, more);
    if (!w) return 0;
    if (v->groups > 1) { /* [g, C / g, O / g, ..] to [O, C / g, ..] */
        for (unsigned i = 0; i < v->spatial; i++) dim[3 + i] = ir_at(v->g, w)->dim[IR_SPATIAL_AT + i];
        for (unsigned i = 0; i < v->spatial + 3; i++) perm[i] = i == 1 ? 2 : i == 2 ? 1 : (int)i;
        w = ir_expand_transpose(v->c, reshape(v, w, dim, v->spatial + 3), perm);
        dim[0] = made;
        dim[1] = each;
    } else {
        dim[0] = of.dim[0];
        dim[1] = of.dim[1];
    }
    for (unsigned i = 0; i < v->spatial; i++) {
        dim[n++] = number(v, rows[i]);
        dim[n++] = number(v, phases_of(v, i));
    }
    if (w) w = reshape(v, w, dim, n);
    if (w) w = part_of(v, t, w);
    perm[0] = v->groups > 1 ? 0 : 1;
    for (unsigned i = 0; i < v->spatial; i++) {
        perm[1 + i] = 3 + 2 * (int)i;
        perm[2 + v->spatial + i] = 2 + 2 * (int)i;
    }
    perm[1 + v->spatial] = 1 - perm[0];
    w = ir_expand_transpose(v->c, w, perm);
    ir_size start[IR_MAX_SPATIAL], stop[IR_MAX_SPATIAL], back[IR_MAX_SPATIAL], axes[IR_MAX_SPATIAL];
    unsigned count = 0;
    for (unsigned i = 0; i < v->spatial; i++) {
        if (t->taken[i] == 1) continue;
        start[count] = number(v, INT64_MAX);
        stop[count] = number(v, INT64_MIN);
        back[count] = number(v, -1);
        axes[count++] = number(v, 2 + (int)v->spatial + (int)i);
    }
    if (count) w = ir_expand_slice(v->c, w, count, start, stop, back, axes);
    dim[0] = ir_size_mul(v->s, made, number(v, t->all));
    dim[1] = each;
    for (unsigned i = 0; i < v->spatial; i++) dim[2 + i] = number(v, t->taken[i]);
    return w ? reshape(v, w, dim, v->rank) : 0;
}

/* One convolution: the elements of a part, [N, O, phases.., Q..]. */
static ir_id made_part(const conv *v, ir_id x, ir_id w, unsigned part) {
    const ir_node of = *ir_at(v->g, x);
    const turns t = turns_of(v, part);
    bool is_plain = true;
    conv inner = *v;
    ir_node made = {.op = IR_OP_CONV, .dtype = v->t, .rank = v->n->rank};
    made.dim[0] = of.dim[0];
    made.dim[1] = ir_size_mul(v->s, v->n->dim[1], number(v, t.all));
    for (unsigned i = 0; i < v->spatial; i++) {
        const int64_t d = v->stride[i] > 1 ? 1 : v->dilation[i];
        inner.begin[i] = t.begin[i];
        inner.end[i] = t.end[i];
        inner.dilation[i] = d;
        inner.stride[i] = 1;
        made.dim[IR_SPATIAL_AT + i] =
            v->stride[i] == 1
                ? v->n->dim[IR_SPATIAL_AT + i]
                : ir_size_add(v->s, of.dim[IR_SPATIAL_AT + i], number(v, t.begin[i] + t.end[i] - (t.taken[i] - 1) * d));
        is_plain &= v->stride[i] == 1;
    }
    inner.n = &made;
    w = turned_weights(v, &t, w);
    const ir_id y = w ? windowed(&inner, x, w) : 0;
    if (!y || is_plain) return y;
    ir_size dim[IR_MAX_RANK] = {of.dim[0], v->n->dim[1]};
    for (unsigned i = 0; i < v->spatial; i++) {
        dim[2 + i] = number(v, t.phases[i]);
        dim[2 + v->spatial + i] = made.dim[IR_SPATIAL_AT + i];
    }
    return reshape(v, y, dim, 2 + 2 * v->spatial);
}

/* The phases of axis `axis` and those behind it, with the parts before it as in `part`. */
static ir_id joined(const conv *v, ir_id x, ir_id w, unsigned axis, unsigned part) {
    if (axis == v->spatial) return made_part(v, x, w, part);
    const ir_id first = joined(v, x, w, axis + 1, part);
    if (!first || !has_two_parts(v, axis)) return first;
    const ir_id second = joined(v, x, w, axis + 1, part | 1u << axis);
    const ir_attr along = {.is_set = true, .integer = 2 + (int)axis};
    return second ? ir_expand_op(v->c, IR_OP_CONCAT, 2, (ir_id[]){first, second}, &along, 1, 0) : 0;
}

/* [N, O, phases.., Q..] as the result: elements of the phases in turn, zeros for those that meet no place. */
static ir_id interleaved(const conv *v, ir_id y) {
    const ir_node of = *ir_at(v->g, y);
    const unsigned m = v->spatial;
    ir_size dim[IR_MAX_RANK] = {of.dim[0], v->n->dim[1]}, start[IR_MAX_SPATIAL], stop[IR_MAX_SPATIAL],
            step[IR_MAX_SPATIAL], axis[IR_MAX_SPATIAL];
    int64_t none[IR_MAX_SPATIAL] = {0}, more[IR_MAX_SPATIAL];
    int perm[IR_MAX_RANK] = {0, 1};
    bool is_whole = true;
    for (unsigned i = 0; i < m; i++) {
        perm[2 + 2 * i] = (int)(2 + m + i);
        perm[3 + 2 * i] = (int)(2 + i);
        more[i] = v->stride[i] - phases_of(v, i);
    }
    y = padded(v, y, 2, none, more);
    y = ir_expand_transpose(v->c, y, perm);
    for (unsigned i = 0; i < m; i++) {
        const ir_size count = v->n->dim[IR_SPATIAL_AT + i];
        const int64_t first = v->begin[i] % v->stride[i];
        dim[2 + i] = ir_size_mul(v->s, of.dim[2 + m + i], number(v, v->stride[i]));
        start[i] = number(v, first);
        stop[i] = ir_size_add(v->s, count, start[i]);
        step[i] = number(v, 1);
        axis[i] = number(v, IR_SPATIAL_AT + (int)i);
        is_whole &= first == 0 && dim[2 + i] == count;
    }
    y = y ? reshape(v, y, dim, v->rank) : 0;
    if (!y || is_whole) return y;
    y = ir_expand_slice(v->c, y, m, start, stop, step, axis);
    if (y) memcpy(ir_at(v->g, y)->dim, v->n->dim, v->rank * sizeof(ir_size));
    return y;
}

/* The same as one kernel; the attributes are those of the node, but for the type. */
static ir_id in_phases(const conv *v, ir_id x, ir_id w) {
    const ir_op_info *op = &ir_ops[v->n->op];
    return ir_expand_op(v->c, v->n->op, 2, (ir_id[]){x, w}, v->n->attr, op->n_attrs - 1u, 0);
}

static ir_id expand_turned(const conv *v, ir_id x, ir_id w) {
    bool is_plain = true;
    for (unsigned i = 0; i < v->spatial; i++) is_plain &= v->stride[i] == 1;
    const ir_id y = joined(v, x, w, 0, 0);
    return y && !is_plain ? interleaved(v, y) : y;
}

/* Along spatial axis i, element x * stride + k * dilation of the result is made of place k and element x, which are
 * `count` and `taken`: [1, count * taken, 1]. */
static ir_id elements_met(const conv *v, unsigned i, ir_size count, ir_size taken) {
    ir_size shape[2] = {count, taken}, one = number(v, 1);
    const int64_t step[2] = {v->dilation[i], v->stride[i]};
    ir_id sum = 0;
    for (int k = 0; k < 2; k++) {
        const ir_attr attr[3] = {/* ORDER attrs_IOTA: shape, axis, dtype */
                                 ir_list_attr(shape, 2),
                                 {.is_set = true, .integer = k},
                                 {.is_set = true, .integer = FUSOR_I64}};
        const ir_id at = add2(v, IR_OP_MUL, ir_expand_op(v->c, IR_OP_IOTA, 0, NULL, attr, 3, 0),
                              ir_add_literal(v->g, FUSOR_I64, (ir_bits)step[k]));
        sum = k ? add2(v, IR_OP_ADD, sum, at) : at;
    }
    return reshape(v, sum, (ir_size[]){one, ir_size_mul(v->s, count, taken), one}, 3);
}

/* Of y [rows, places * elements, rest] along axis i: [rows, full, rest], where what meets is added up. */
static ir_id added_up(const conv *v, ir_id y, unsigned i, ir_size count, ir_size taken, ir_size full) {
    const ir_node of = *ir_at(v->g, y);
    ir_size all[3] = {of.dim[0], of.dim[1], of.dim[2]};
    const ir_id met = elements_met(v, i, count, taken);
    /* ORDER attrs_BROADCAST_TO: shape; attrs_SCATTER: axis, mode; ir_scatter_combine: 1 adds */
    const ir_attr same = ir_list_attr(all, 3),
                  how[2] = {{.is_set = true, .integer = 1}, {.is_set = true, .integer = 1}};
    const ir_id in[3] = {ir_expand_full(v->c, v->t, 0, (ir_size[]){of.dim[0], full, of.dim[2]}, 3),
                         ir_expand_op(v->c, IR_OP_BROADCAST_TO, 1, &met, &same, 1, 0), y};
    return ir_expand_op(v->c, IR_OP_SCATTER, 3, in, how, 2, 0);
}

/* All products at once, [N, O, places.., elements..], then axis by axis what meets in an element of the result. */
static ir_id expand_transposed(const conv *v, ir_id x, ir_id w) {
    const ir_node of = *ir_at(v->g, x), weights = *ir_at(v->g, w);
    const unsigned n = v->spatial;
    const ir_size groups = number(v, v->groups), taken = ir_size_div(v->s, of.dim[1], groups), count = area(v, &of),
                  made = ir_size_mul(v->s, weights.dim[1], area(v, &weights));
    ir_size dim[IR_MAX_RANK] = {of.dim[0], v->n->dim[1]}, start[IR_MAX_SPATIAL], stop[IR_MAX_SPATIAL],
            step[IR_MAX_SPATIAL], axis[IR_MAX_SPATIAL], rows = ir_size_mul(v->s, of.dim[0], v->n->dim[1]);
    ir_id y = v->groups == 1 ? product(v, reshape(v, w, (ir_size[]){taken, made}, 2),
                                       reshape(v, x, (ir_size[]){of.dim[0], taken, count}, 3), true)
                             : product(v, reshape(v, w, (ir_size[]){groups, taken, made}, 3),
                                       reshape(v, x, (ir_size[]){of.dim[0], groups, taken, count}, 4), true);
    for (unsigned i = 0; i < n && y; i++) {
        /* [rows, K, K of the axes behind it.., X, X of those..] to [rows, K, X, ..] */
        const unsigned left = n - i, rank = 1 + 2 * left;
        const ir_size *k = &weights.dim[IR_SPATIAL_AT + i], *m = &of.dim[IR_SPATIAL_AT + i];
        const ir_size full =
            ir_size_add(v->s, v->n->dim[IR_SPATIAL_AT + i],
                        number(v, v->begin[i] - v->end[i] + ir_window_entry(v->g, v->n, "output_padding", i, 0)));
        ir_size split[IR_MAX_RANK] = {rows}, rest = number(v, 1);
        int perm[IR_MAX_RANK] = {0, 1, 1 + (int)left};
        for (unsigned j = 0; j < left; j++) {
            split[1 + j] = k[j];
            split[1 + left + j] = m[j];
            if (!j) continue;
            perm[2 + j] = 1 + (int)j;
            perm[1 + left + j] = 1 + (int)(left + j);
            rest = ir_size_mul(v->s, rest, ir_size_mul(v->s, k[j], m[j]));
        }
        y = ir_expand_transpose(v->c, reshape(v, y, split, rank), perm);
        if (y) y = reshape(v, y, (ir_size[]){rows, ir_size_mul(v->s, k[0], m[0]), rest}, 3);
        if (y) y = added_up(v, y, i, k[0], m[0], full);
        rows = ir_size_mul(v->s, rows, full);
        dim[IR_SPATIAL_AT + i] = full;
        start[i] = number(v, v->begin[i]);
        stop[i] = ir_size_add(v->s, v->n->dim[IR_SPATIAL_AT + i], start[i]);
        step[i] = number(v, 1);
        axis[i] = number(v, IR_SPATIAL_AT + (int)i);
    }
    y = y ? reshape(v, y, dim, v->rank) : 0;
    y = ir_expand_slice(v->c, y, n, start, stop, step, axis);
    if (y) memcpy(ir_at(v->g, y)->dim, v->n->dim, v->rank * sizeof(ir_size));
    return y;
}

/* Each channel times its filter, summed over the places. */
static ir_id filtered(const conv *v) {
    const ir_node *n = v->n;
    ir_size dim[IR_MAX_RANK];
    uint32_t places = 0;
    dim[0] = n->dim[1];
    for (unsigned i = 0; i < v->spatial; i++) {
        dim[1 + i] = ir_at(v->g, n->in[1])->dim[IR_SPATIAL_AT + i];
        places |= 1u << (IR_SPATIAL_AT + i);
    }
    const ir_id all =
        add2(v, IR_OP_MUL, cast(v, n->in[0], v->t), cast(v, reshape(v, n->in[1], dim, v->rank - 1), v->t));
    return all ? ir_expand_reduce(v->c, IR_OP_REDUCE_SUM, all, places, true, v->t, n) : 0;
}

static ir_id of_one_window(const conv *v) {
    const ir_node *n = v->n;
    const ir_node weights = *ir_at(v->g, n->in[1]);
    if (v->groups != 1) return filtered(v);
    const bool is_transposed = n->op == IR_OP_CONV_TRANSPOSE;
    const ir_size places = area(v, &weights);
    /* operand and weights as matrices; those of conv have the results as rows */
    ir_size of_x[2] = {n->dim[0], weights.dim[is_transposed ? 0 : 1]}, of_w[2] = {weights.dim[0], weights.dim[1]};
    if (!is_transposed) of_x[1] = ir_size_mul(v->s, of_x[1], places);
    of_w[1] = ir_size_mul(v->s, of_w[1], places);
    const ir_id in[2] = {reshape(v, n->in[0], of_x, 2), reshape(v, n->in[1], of_w, 2)};
    const ir_attr attr[3] = {
        {0},
        {.is_set = true, .integer = !is_transposed},
        {.is_set = true, .integer = v->t}}; /* ORDER attrs_MATMUL: transpose_a, transpose_b, dtype */
    ir_id y = in[0] && in[1] ? ir_expand_op(v->c, IR_OP_MATMUL, 2, in, attr, 3, 0) : 0;
    if (!y) return 0;
    const ir_node matmul = *ir_at(v->g, y);
    if (ir_expands_matvec(v->g, &matmul)) y = ir_expand_matvec(v->c, &matmul);
    return y ? reshape(v, cast(v, y, v->t), n->dim, v->rank) : 0;
}

/* With the bias, in the type of the node. */
static ir_id finished(const conv *v, ir_id y) {
    const ir_node *n = v->n;
    if (y && n->n_in > 2) {
        ir_size dim[IR_MAX_RANK] = {n->dim[1]};
        for (unsigned i = 1; i <= v->spatial; i++) dim[i] = number(v, 1);
        y = add2(v, IR_OP_ADD, y, cast(v, reshape(v, n->in[2], dim, v->rank - 1), v->t));
    }
    return y ? ir_expand_finish(v->c, cast(v, y, n->dtype), n->in[0]) : 0;
}

static conv conv_of(const ir_expand *c, const ir_node *n) {
    ir_graph *g = c->rw->to;
    return (conv){.c = c,
                  .g = g,
                  .s = g->sizes,
                  .n = n,
                  .t = ir_node_accumulator(g, n),
                  .rank = n->rank,
                  .spatial = n->rank - IR_SPATIAL_AT,
                  .groups = ir_node_attr(n, "groups")->integer};
}

/* ---- images whose channels are last ---- */
bool ir_moves_channels(const ir_graph *g, const ir_node *n, bool is_back) {
    int perm[IR_MAX_RANK];
    if (n->op != IR_OP_TRANSPOSE || n->rank <= IR_SPATIAL_AT) return false;
    ir_view_perm(g, n, perm);
    for (int d = 0; d < n->rank; d++) {
        const int last = n->rank - 1, to = is_back ? d + 1 : d - 1,
                  from = d == 0                      ? 0
                         : d == (is_back ? last : 1) ? -1
                                                     : to;
        if (perm[d] != (from >= 0 ? from : is_back ? 1 : last)) return false;
    }
    return true;
}

const bool *ir_goes_last(fu_arena *a, const ir_graph *g) {
    const uint32_t *uses = ir_uses_if_turned(a, g);
    bool *is = FU_NEW_N(a, bool, g->nodes.n);
    if (!uses) return is;
    for (ir_id id = 0; id < g->nodes.n; id++) is[id] = uses[id] != 0; /* or it is dead */
    for (uint32_t r = 0; r < g->results.n; r++) is[g->results.at[r].node] = false;
    for (ir_id id = g->nodes.n; id-- > 1;) {
        const ir_node *n = ir_at(g, id);
        const bool is_elementwise = ir_ops[n->op].kind == IR_KIND_EW || ir_ops[n->op].kind == IR_KIND_CONVERT;
        for (int k = 0; k < n->n_in && uses[id]; k++)
            is[n->in[k]] &= ir_moves_channels(g, n, true) || (is_elementwise && is[id]);
    }
    return is;
}

bool ir_conv_has_one_place(const ir_graph *g, const ir_node *n) {
    const ir_node *w = ir_at(g, n->in[1]);
    for (unsigned d = IR_SPATIAL_AT, i = 0; d < n->rank; d++, i++)
        if (!ir_size_is(g->sizes, w->dim[d], 1) || ir_window_entry(g, n, "pads", i, 0) ||
            ir_window_entry(g, n, "pads", i + n->rank - IR_SPATIAL_AT, 0))
            return false;
    return true;
}

/* Where the result stays with its channels before its places, they would be written apart. */
bool ir_expands_last_channels(const ir_graph *g, const bool *goes_last, ir_id id) {
    const ir_node *n = ir_at(g, id);
    if (n->op != IR_OP_CONV || !goes_last[id]) return false;
    const ir_node *x = ir_at(g, n->in[0]), *w = ir_at(g, n->in[1]);
    return ir_is_float(n->dtype) && x->dtype == w->dtype && ir_node_attr(n, "groups")->integer == 1 &&
           ir_moves_channels(g, x, false) && ir_conv_has_one_place(g, n);
}

/* Every stride-th place of images whose channels are last; those there are as many of as the result has. */
static ir_id some_places(const conv *v, ir_id x) {
    ir_size list[4][IR_MAX_SPATIAL];
    bool any = false;
    for (unsigned i = 0; i < v->spatial; i++) {
        const int64_t stride = ir_window_entry(v->g, v->n, "strides", i, 1);
        any |= stride != 1;
        list[0][i] = number(v, 0);
        list[1][i] = ir_at(v->g, x)->dim[1 + i];
        list[2][i] = number(v, stride);
        list[3][i] = number(v, 1 + i);
    }
    if (!any) return x;
    x = ir_expand_slice(v->c, x, v->spatial, list[0], list[1], list[2], list[3]);
    for (unsigned i = 0; i < v->spatial && x; i++) ir_at(v->g, x)->dim[1 + i] = v->n->dim[IR_SPATIAL_AT + i];
    return x;
}

ir_id ir_expand_last_channels(const ir_expand *c, const ir_node *n) {
    const conv v = conv_of(c, n);
    const ir_attr attr[3] = {{0}, {.is_set = true, .integer = true}, {.is_set = true, .integer = v.t}};
    int perm[IR_MAX_RANK] = {0, (int)v.rank - 1}; /* ORDER attrs_MATMUL: transpose_a, transpose_b, dtype */
    for (int d = IR_SPATIAL_AT; d < (int)v.rank; d++) perm[d] = d - 1;
    const ir_id w = reshape(&v, n->in[1], ir_at(v.g, n->in[1])->dim, 2);
    const ir_id x = some_places(&v, ir_at(v.g, n->in[0])->in[0]);
    const ir_id y = w && x ? ir_expand_op(c, IR_OP_MATMUL, 2, (ir_id[]){x, w}, attr, 3, 0) : 0;
    if (y) ir_at(v.g, y)->index = IR_PLACES;
    return finished(&v, y ? ir_expand_transpose(c, cast(&v, y, v.t), perm) : 0);
}

ir_id ir_expand_conv(const ir_expand *c, const ir_node *n) {
    ir_graph *g = c->rw->to;
    const bool is_transposed = n->op == IR_OP_CONV_TRANSPOSE;
    conv v = conv_of(c, n);
    if (makes_nothing(g, n)) return ir_expand_finish(c, ir_expand_full(c, n->dtype, 0, n->dim, n->rank), n->in[0]);
    if (has_one_window(g, n)) return finished(&v, of_one_window(&v));
    const bool by_turns = is_turned(g, n);
    for (uint32_t i = 0; by_turns && i < v.spatial; i++)
        ir_size_is_const(g->sizes, ir_at(g, n->in[1])->dim[IR_SPATIAL_AT + i], &v.kernel[i]);
    for (uint32_t i = 0; i < v.spatial; i++) {
        v.stride[i] = ir_window_entry(g, n, "strides", i, 1);
        v.dilation[i] = ir_window_entry(g, n, "dilations", i, 1);
        v.begin[i] = ir_window_entry(g, n, "pads", i, 0);
        v.end[i] = ir_window_entry(g, n, "pads", i + v.spatial, 0);
        if (is_transposed) v.end[i] = ir_window_entry(g, n, "output_padding", i, 0) - v.end[i];
    }
    const bool by_phases = ir_conv_fits_phases(g, n);
    ir_id x = n->in[0], w = n->in[1];
    const ir_dtype tx = ir_at(g, x)->dtype;
    const bool is_narrow = !ir_is_float(tx) && ir_dtypes[tx].bytes == 1;
    if (is_transposed ? by_phases || by_turns || v.t == FUSOR_F64 : is_narrow && v.t != FUSOR_I32) {
        const ir_dtype wide = ir_is_float(v.t) ? v.t : FUSOR_I16; /* what u8 and i8 both fit into */
        x = cast(&v, x, wide);
        w = cast(&v, w, wide);
    }
    ir_id y = !is_transposed ? windowed(&v, x, w)
              : by_phases    ? in_phases(&v, x, w)
              : by_turns     ? expand_turned(&v, x, w)
                             : expand_transposed(&v, x, w);
    return finished(&v, y);
}
