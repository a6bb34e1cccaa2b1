/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* infer_move.c: types and shapes of operators that move elements (kinds MOVE and INDEX), and what their attributes mean
 * for places: the index map of a slice, the message for an index that is out of range. Bounds of slices clamp to sizes
 * that may be known at the call only, so these sizes are built of minima and maxima (size.c). */
#include "base/small.h"
#include "ir/infer_parts.h"
#include <stdio.h>
#include <string.h>

static ir_size constant(ir_graph *g, int64_t v) { return ir_size_const(g->sizes, v); }

static int64_t list_int(const ir_graph *g, const ir_attr *x, uint32_t i) {
    int64_t v = 0;
    ir_size_is_const(g->sizes, x->list[i], &v);
    return v;
}

/* a - b must not be negative, now or at the call; false: it is. `what` words the check. */
static bool not_less(ir_graph *g, const ir_node *n, ir_size a, ir_size b, const char *what) {
    int64_t v;
    const ir_size rest = ir_size_sub(g->sizes, a, b);
    if (ir_size_is_const(g->sizes, rest, &v)) return v >= 0;
    ir_add_check(g, (ir_check){.a = rest, .kind = IR_CHECK_NOT_NEGATIVE, .what = what, .loc = n->loc});
    return true;
}

/* ---- slice ---- */

enum { SLICE_STARTS, SLICE_ENDS, SLICE_STEPS, SLICE_AXES }; /* ORDER attrs_SLICE */
static const int64_t FAR = INT64_C(1) << 62;                /* a bound or step past it is as good as infinite */

/* The bound x as an index: negative ones count from the end of `size`. What is written may be a size of unknown
 * sign. */
static ir_size from_end(ir_sizes *s, ir_size x, ir_size size) {
    int64_t v;
    if (ir_size_is_const(s, x, &v)) return v < 0 ? ir_size_add(s, x, size) : x;
    const ir_size minus = ir_size_positive(s, ir_size_sub(s, ir_size_const(s, 0), x));
    const ir_size is_negative = ir_size_min(s, minus, ir_size_const(s, 1));
    return ir_size_add(s, x, ir_size_mul(s, size, is_negative));
}

/* The bound clamped to low <= x <= high. */
static ir_size clamp_bound(ir_sizes *s, ir_size x, ir_size size, ir_size low, ir_size high) {
    int64_t v;
    if (ir_size_is_const(s, x, &v)) {
        if (v >= FAR) return high;
        if (v <= -FAR) return low;
        if (v >= 0 && ir_size_is(s, low, 0)) return ir_size_min(s, x, high);
    }
    const ir_size at = from_end(s, x, size);
    if (ir_size_is_const(s, x, &v) && v < 0) return ir_size_max(s, at, low); /* at most size - 1 */
    return ir_size_max(s, ir_size_min(s, at, high), low);
}

typedef struct slice_range {
    ir_size start, count;
    int64_t step;
} slice_range;

/* Entry i of the lists, along an axis of `size`. */
static slice_range range_of(const ir_graph *g, const ir_node *n, uint32_t i, ir_size size) {
    ir_sizes *s = g->sizes;
    const ir_size zero = ir_size_const(s, 0), last = ir_size_sub(s, size, ir_size_const(s, 1));
    const ir_attr *steps = &n->attr[SLICE_STEPS];
    slice_range r = {.step = steps->is_set ? list_int(g, steps, i) : 1};
    const ir_size start = n->attr[SLICE_STARTS].list[i], end = n->attr[SLICE_ENDS].list[i];
    ir_size length;
    int64_t from, to;
    if (r.step > 0) {
        r.start = clamp_bound(s, start, size, zero, size);
        /* From the front to so many before the end: the clamps cancel, whatever the size is. */
        if (ir_size_is_const(s, start, &from) && ir_size_is_const(s, end, &to) && from >= 0 && from < FAR && to < 0 &&
            to > -FAR)
            length = ir_size_add(s, size, ir_size_const(s, to - from));
        else length = ir_size_sub(s, clamp_bound(s, end, size, zero, size), r.start);
    } else {
        /* Of an empty axis the last index is -1, and so is the end: nothing is left. */
        r.start = ir_size_min(s, clamp_bound(s, start, size, zero, size), last);
        length = ir_size_sub(s, r.start, clamp_bound(s, end, size, ir_size_const(s, -1), last));
    }
    const int64_t stride = r.step > 0 ? r.step : -r.step;
    const ir_size covered = ir_size_add(s, ir_size_positive(s, length), ir_size_const(s, stride - 1));
    r.count = ir_size_div(s, covered, ir_size_const(s, stride));
    return r;
}

static uint32_t slice_axis(const ir_graph *g, const ir_node *n, uint32_t i) {
    return n->attr[SLICE_AXES].is_set ? (uint32_t)list_int(g, &n->attr[SLICE_AXES], i) : i;
}

void ir_slice_map(ir_graph *g, const ir_node *n, ir_size *start, int64_t *step) {
    const ir_node *x = ir_at(g, n->in[0]);
    for (unsigned d = 0; d < x->rank; d++) {
        start[d] = constant(g, 0);
        step[d] = 1;
    }
    for (uint32_t i = 0; i < n->attr[SLICE_STARTS].n; i++) {
        const uint32_t d = slice_axis(g, n, i);
        const slice_range r = range_of(g, n, i, x->dim[d]);
        start[d] = r.start;
        step[d] = r.step;
    }
}

bool ir_slice_start(ir_graph *g, const ir_node *n, int axis, int64_t *out) {
    const ir_attr *starts = &n->attr[SLICE_STARTS];
    *out = 0;
    for (uint32_t i = 0; i < starts->n; i++)
        if (slice_axis(g, n, i) == (uint32_t)axis)
            return ir_size_is_const(g->sizes, starts->list[i], out) && *out >= 0;
    return true;
}

static fusor_status infer_slice(ir_graph *g, ir_node *n) {
    const ir_node x = *ir_at(g, n->in[0]);
    const uint32_t count = n->attr[SLICE_STARTS].n;
    copy_dims(n, &x);
    for (int k = SLICE_ENDS; k <= SLICE_AXES; k++) {
        if ((k == SLICE_ENDS || n->attr[k].is_set) && n->attr[k].n != count) {
            return SHAPE_ERROR("starts= has %u entries but %s= has %u; expected as many", count,
                               ir_ops[n->op].attrs[k].name, n->attr[k].n);
        }
    }
    if (count > x.rank) {
        return SHAPE_ERROR("starts= has %u entries but %s is %s; expected %u at most", count, label(g, n, 0),
                           type_text(g, &x), x.rank);
    }
    if (n->attr[SLICE_AXES].is_set)
        FU_TRY(fix_axes(g, n, &n->attr[SLICE_AXES], "axes", x.rank, operand_text(g, n), false));
    for (uint32_t i = 0; n->attr[SLICE_STEPS].is_set && i < count; i++) {
        const int64_t step = list_int(g, &n->attr[SLICE_STEPS], i);
        if (step == 0) return SHAPE_ERROR("entry %u of steps= is 0; a step goes forward or backward", i);
        if (step > FAR || step < -FAR) n->attr[SLICE_STEPS].list[i] = constant(g, step < 0 ? -FAR : FAR);
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t d = slice_axis(g, n, i);
        n->dim[d] = range_of(g, n, i, x.dim[d]).count;
    }
    return FUSOR_OK;
}

/* ---- pad ---- */

enum { PAD_PADS, PAD_VALUE, PAD_MODE };                     /* ORDER attrs_PAD */
enum { MODE_CONSTANT, MODE_EDGE, MODE_REFLECT, MODE_WRAP }; /* ORDER of its words */
static const char *const mode_names[] = {"constant", "edge", "reflect", "wrap"};

/* Where the pads of an axis take their elements from: the axis, less what negative pads cut off. */
static fusor_status check_pad_source(ir_graph *g, const ir_node *n, unsigned d, ir_size size, ir_size pad) {
    const int64_t mode = n->attr[PAD_MODE].integer;
    const char *operand = label(g, n, 0), *name = mode_names[mode];
    if (mode == MODE_CONSTANT || ir_size_is(g->sizes, pad, 0)) return FUSOR_OK;
    if (mode == MODE_REFLECT) {
        const char *what = fu_format(g->arena, "pad: mode=reflect by %s on dim %u of %s needs more elements than that",
                                     size_text(g, pad), d, operand);
        if (!ir_size_is_const(g->sizes, pad, NULL)) { /* by 0 it takes none */
            const ir_size more = ir_size_positive(g->sizes, ir_size_sub(g->sizes, size, pad));
            ir_add_check(g, (ir_check){.a = more, .b = pad, .kind = IR_CHECK_NOT_ZERO, .what = what, .loc = n->loc});
            return FUSOR_OK;
        }
        if (not_less(g, n, size, ir_size_add(g->sizes, pad, constant(g, 1)), what)) return FUSOR_OK;
        return SHAPE_ERROR("mode=reflect by %s, but dim %u of %s has %s elements; expected less than that",
                           size_text(g, pad), d, operand, size_text(g, size));
    }
    int64_t v;
    if (!ir_size_is_const(g->sizes, size, &v)) {
        const char *what =
            fu_format(g->arena, "pad: mode=%s: dim %u of %s is empty, so there is nothing to repeat", name, d, operand);
        ir_add_check(g, (ir_check){.a = size, .b = pad, .kind = IR_CHECK_NOT_ZERO, .what = what, .loc = n->loc});
        return FUSOR_OK;
    }
    if (v > 0) return FUSOR_OK;
    return SHAPE_ERROR("mode=%s, but dim %u of %s is empty, so there is nothing to repeat", name, d, operand);
}

static fusor_status infer_pad(ir_graph *g, ir_node *n) {
    ir_sizes *s = g->sizes;
    const ir_node x = *ir_at(g, n->in[0]);
    const ir_attr *pads = &n->attr[PAD_PADS];
    copy_dims(n, &x);
    if (pads->n != 2u * x.rank) {
        return SHAPE_ERROR("pads= has %u entries but %s is %s; expected %u: all begins, then all ends", pads->n,
                           label(g, n, 0), type_text(g, &x), 2 * x.rank);
    }
    if (n->n_in == 2) {
        const ir_node *value = ir_at(g, n->in[1]);
        if (n->attr[PAD_MODE].integer != MODE_CONSTANT)
            return TYPE_ERROR("value= has a meaning with mode=constant only, not with mode=%s",
                              mode_names[n->attr[PAD_MODE].integer]);
        if (value->dtype != x.dtype)
            return TYPE_ERROR("value= is %s but %s is %s; expected one type: cast the value", type_text(g, value),
                              label(g, n, 0), type_text(g, &x));
        if (value->rank) return SHAPE_ERROR("value= is %s; expected a scalar", type_text(g, value));
        n->stretch[1] = (uint8_t)((1u << x.rank) - 1);
    }
    for (unsigned d = 0; d < x.rank; d++) {
        ir_size kept = x.dim[d], pad[2] = {pads->list[d], pads->list[x.rank + d]};
        for (int k = 0; k < 2; k++) {
            int64_t v;
            n->dim[d] = ir_size_add(s, n->dim[d], pad[k]);
            const bool is_known = ir_size_is_const(s, pad[k], &v);
            if (is_known && v == INT64_MIN) /* has no positive number; no axis is so long */
                return SHAPE_ERROR("entry %u of pads= is %lld; expected -%lld or more", d + (k ? x.rank : 0u),
                                   (long long)v, (long long)INT64_MAX);
            if (is_known && v < 0) {
                kept = ir_size_add(s, kept, pad[k]);
                pad[k] = constant(g, 0);
            } else if (!is_known && !ir_size_never_negative(s, pad[k])) {
                const char *what = fu_format(g->arena, "pad: entry %u of pads=", d + (k ? x.rank : 0u));
                ir_add_check(g, (ir_check){.a = pad[k], .kind = IR_CHECK_NOT_NEGATIVE, .what = what, .loc = n->loc});
            }
        }
        const char *what = fu_format(g->arena, "pad: dim %u of %s less what pads= cut off", d, label(g, n, 0));
        if (!not_less(g, n, kept, constant(g, 0), what)) {
            return SHAPE_ERROR("pads= cut off more than dim %u of %s has, which is %s", d, label(g, n, 0),
                               type_text(g, &x));
        }
        for (int k = 0; k < 2; k++) FU_TRY(check_pad_source(g, n, d, kept, pad[k]));
    }
    return FUSOR_OK;
}

/* ---- concat, split, tile, triangles ---- */

static int64_t *axis_of(const ir_node *n) { return &attr_to_fix(n, "axis")->integer; }

static fusor_status infer_concat(ir_graph *g, ir_node *n) {
    const ir_node x = *ir_at(g, n->in[0]);
    FU_TRY(fix_axis(g, n, axis_of(n), x.rank, operand_text(g, n)));
    const unsigned axis = (unsigned)*axis_of(n);
    copy_dims(n, &x);
    for (unsigned i = 1; i < n->n_in; i++) {
        const ir_node *y = ir_at(g, n->in[i]);
        if (y->dtype != x.dtype)
            return TYPE_ERROR("%s is %s but %s is %s; expected one type: cast one of them", label(g, n, 0),
                              type_text(g, &x), label(g, n, i), type_text(g, y));
        if (y->rank != x.rank)
            return SHAPE_ERROR("%s is %s but %s is %s; expected one rank", label(g, n, 0), type_text(g, &x),
                               label(g, n, i), type_text(g, y));
        for (unsigned d = 0; d < x.rank; d++) {
            if (d == axis) {
                n->dim[d] = ir_size_add(g->sizes, n->dim[d], y->dim[d]);
            } else if (!agree(g, n, x.dim[d], y->dim[d], label(g, n, 0), d, label(g, n, i), d)) {
                return SHAPE_ERROR("%s is %s but %s is %s; expected %s dim %u = %s", label(g, n, 0), type_text(g, &x),
                                   label(g, n, i), type_text(g, y), label(g, n, i), d, size_text(g, x.dim[d]));
            }
        }
    }
    return FUSOR_OK;
}

static fusor_status infer_split(ir_graph *g, ir_node *n) {
    const ir_node x = *ir_at(g, n->in[0]);
    const ir_attr *sizes = attr_of(n, "sizes");
    FU_TRY(fix_axis(g, n, axis_of(n), x.rank, operand_text(g, n)));
    const unsigned axis = (unsigned)*axis_of(n);
    ir_size total = constant(g, 0);
    if (sizes->n == 0) return SHAPE_ERROR("sizes= is empty; expected the size of each result");
    for (uint32_t i = 0; i < sizes->n; i++) {
        int64_t v;
        if (ir_size_is_const(g->sizes, sizes->list[i], &v) && v < 0)
            return SHAPE_ERROR("size %lld in sizes= is negative", (long long)v);
        total = ir_size_add(g->sizes, total, sizes->list[i]);
    }
    if (ir_size_is_huge(g->sizes, total)) {
        return SHAPE_ERROR("the sum of sizes= overflows 64 bits; expected dim %u of %s, %s", axis, operand_text(g, n),
                           size_text(g, x.dim[axis]));
    }
    if (ir_size_never_equal(g->sizes, x.dim[axis], total)) {
        return SHAPE_ERROR("%s is %s but sizes= add up to %s; expected dim %u, %s", label(g, n, 0), type_text(g, &x),
                           size_text(g, total), axis, size_text(g, x.dim[axis]));
    }
    const char *what = fu_format(g->arena, "split: dim %u of %s and the sum of sizes=", axis, label(g, n, 0));
    ir_add_check(g, (ir_check){.a = x.dim[axis], .b = total, .kind = IR_CHECK_EQUAL, .what = what, .loc = n->loc});
    copy_dims(n, &x);
    n->dim[axis] = sizes->list[n->index];
    return FUSOR_OK;
}

static fusor_status infer_tile(ir_graph *g, ir_node *n) {
    const ir_node x = *ir_at(g, n->in[0]);
    const ir_attr *repeats = attr_of(n, "repeats");
    if (repeats->n != x.rank) {
        return SHAPE_ERROR("repeats= has %u entries but %s is %s; expected %u", repeats->n, label(g, n, 0),
                           type_text(g, &x), x.rank);
    }
    copy_dims(n, &x);
    for (unsigned d = 0; d < x.rank; d++) {
        const char *what = fu_format(g->arena, "tile: entry %u of repeats=", d);
        if (!not_less(g, n, repeats->list[d], constant(g, 0), what))
            return SHAPE_ERROR("entry %u of repeats= is %s; expected 0 or more", d, size_text(g, repeats->list[d]));
        n->dim[d] = ir_size_mul(g->sizes, x.dim[d], repeats->list[d]);
    }
    return FUSOR_OK;
}

static fusor_status infer_triangle(ir_graph *g, ir_node *n) {
    const ir_node *x = ir_at(g, n->in[0]);
    if (x->rank < 2) return SHAPE_ERROR("%s is %s; expected rank 2 or more", label(g, n, 0), type_text(g, x));
    copy_dims(n, x);
    return FUSOR_OK;
}

fusor_status infer_move(ir_graph *g, ir_node *n) {
    FU_TRY(check_class(g, n, 0, ir_ops[n->op].classes));
    n->dtype = ir_at(g, n->in[0])->dtype;
    switch (n->op) {
    case IR_OP_SLICE: return infer_slice(g, n);
    case IR_OP_PAD: return infer_pad(g, n);
    case IR_OP_CONCAT: return infer_concat(g, n);
    case IR_OP_SPLIT: return infer_split(g, n);
    case IR_OP_TILE: return infer_tile(g, n);
    case IR_OP_FLIP:
        copy_dims(n, ir_at(g, n->in[0]));
        return fix_axes(g, n, attr_to_fix(n, "axes"), "axes", n->rank, operand_text(g, n), true);
    default: return infer_triangle(g, n);
    }
}

/* ---- indices ---- */

static fusor_status infer_take(ir_graph *g, ir_node *n) {
    const ir_node x = *ir_at(g, n->in[0]), at = *ir_at(g, n->in[1]);
    FU_TRY(fix_axis(g, n, axis_of(n), x.rank, operand_text(g, n)));
    const unsigned axis = (unsigned)*axis_of(n), rank = x.rank + at.rank - 1u;
    if (rank > IR_MAX_RANK) {
        return SHAPE_ERROR("%s is %s and %s is %s, which makes rank %u; a tensor has at most 8 dims", label(g, n, 0),
                           type_text(g, &x), label(g, n, 1), type_text(g, &at), rank);
    }
    n->rank = (uint8_t)rank;
    for (unsigned d = 0; d < rank; d++) {
        n->dim[d] = d < axis ? x.dim[d] : d < axis + at.rank ? at.dim[d - axis] : x.dim[d + 1 - at.rank];
    }
    return FUSOR_OK;
}

static fusor_status check_ranks(ir_graph *g, const ir_node *n, unsigned i, const ir_node *x, const ir_node *y) {
    if (x->rank == y->rank) return FUSOR_OK;
    return SHAPE_ERROR("%s is %s but %s is %s; expected one rank", label(g, n, 0), type_text(g, x), label(g, n, i),
                       type_text(g, y));
}

static fusor_status infer_take_along(ir_graph *g, ir_node *n) {
    const ir_node x = *ir_at(g, n->in[0]), at = *ir_at(g, n->in[1]);
    FU_TRY(fix_axis(g, n, axis_of(n), x.rank, operand_text(g, n)));
    FU_TRY(check_ranks(g, n, 1, &x, &at));
    const unsigned axis = (unsigned)*axis_of(n), part[2] = {x.rank, x.rank};
    FU_TRY(broadcast_but(g, n, part, x.rank, 1u << axis));
    n->rank = x.rank;
    n->dim[axis] = at.dim[axis];
    return FUSOR_OK;
}

static fusor_status infer_scatter(ir_graph *g, ir_node *n) {
    const ir_node x = *ir_at(g, n->in[0]), at = *ir_at(g, n->in[1]), y = *ir_at(g, n->in[2]);
    FU_TRY(fix_axis(g, n, axis_of(n), x.rank, operand_text(g, n)));
    const unsigned axis = (unsigned)*axis_of(n);
    const ir_attr *mode = attr_of(n, "mode");
    if (mode->integer && ir_is_bool(x.dtype)) {
        return TYPE_ERROR("%s is %s; mode=%s takes numbers, and bool has mode=set only", label(g, n, 0),
                          type_text(g, &x), ir_ops[ir_scatter_combine(mode->integer)].name);
    }
    if (y.dtype != x.dtype) {
        return TYPE_ERROR("%s is %s but %s is %s; expected one type: cast one of them", label(g, n, 0),
                          type_text(g, &x), label(g, n, 2), type_text(g, &y));
    }
    FU_TRY(check_ranks(g, n, 1, &x, &at));
    FU_TRY(check_ranks(g, n, 2, &x, &y));
    copy_dims(n, &x);
    for (unsigned d = 0; d < x.rank; d++) {
        if (!agree(g, n, at.dim[d], y.dim[d], label(g, n, 1), d, label(g, n, 2), d)) {
            return SHAPE_ERROR("%s is %s but %s is %s; expected one shape", label(g, n, 1), type_text(g, &at),
                               label(g, n, 2), type_text(g, &y));
        }
        const char *what =
            fu_format(g->arena, "scatter: dim %u of %s less that of %s", d, label(g, n, 0), label(g, n, 1));
        if (d != axis && !not_less(g, n, x.dim[d], at.dim[d], what)) {
            return SHAPE_ERROR("%s is %s but %s is %s; expected dim %u = %s at most", label(g, n, 0), type_text(g, &x),
                               label(g, n, 1), type_text(g, &at), d, size_text(g, x.dim[d]));
        }
    }
    return FUSOR_OK;
}

static fusor_status infer_one_hot(ir_graph *g, ir_node *n) {
    const ir_node x = *ir_at(g, n->in[0]);
    const ir_size depth = attr_of(n, "depth")->list[0];
    const char *what = "one_hot: depth=";
    if (x.rank == IR_MAX_RANK)
        return SHAPE_ERROR("%s is %s, and depth= adds a dim; a tensor has at most 8", label(g, n, 0), type_text(g, &x));
    if (!not_less(g, n, depth, constant(g, 0), what))
        return SHAPE_ERROR("depth=%s; expected 0 or more", size_text(g, depth));
    const ir_dtype said = dtype_attr(n);
    n->dtype = said ? said : FUSOR_F32;
    copy_dims(n, &x);
    n->dim[n->rank++] = depth;
    return FUSOR_OK;
}

fusor_status infer_index(ir_graph *g, ir_node *n) {
    for (unsigned i = 0; i < n->n_in; i++) {
        const bool is_index = ir_operand_role(n->op, i) == IR_ROLE_INDEX;
        FU_TRY(check_class(g, n, i, is_index ? IR_CLASS_S | IR_CLASS_U : ir_ops[n->op].classes));
    }
    n->dtype = ir_at(g, n->in[0])->dtype;
    switch (n->op) {
    case IR_OP_TAKE: return infer_take(g, n);
    case IR_OP_TAKE_ALONG: return infer_take_along(g, n);
    case IR_OP_SCATTER: return infer_scatter(g, n);
    default: return infer_one_hot(g, n);
    }
}

#define INDEX_FORMAT "%s: index %s%s%s%s is out of range for axis %lld of size %lld; %s%s"
/* Coordinates in what views make of `base`, of which coord[] is an element: the first one that shows it. */
static void seen_at(const ir_graph *g, ir_id id, ir_id base, int64_t coord[IR_MAX_RANK]) {
    const ir_node *n = ir_at(g, id);
    int64_t below[IR_MAX_RANK];
    int from[IR_MAX_RANK];
    if (id == base) return;
    seen_at(g, n->in[0], base, coord);
    memcpy(below, coord, sizeof below);
    ir_view_dims(g, n, from);
    for (int d = 0; d < n->rank; d++) coord[d] = from[d] < 0 ? 0 : below[from[d]];
}

fusor_status ir_fail_index(const ir_graph *g, fu_error *e, const ir_node *n, ir_id base, ir_bits index, int64_t at,
                           const int64_t *shape, int64_t size) {
    const ir_node *x = ir_at(g, n->in[1]);
    const unsigned unused = 64u - 8u * ir_dtypes[x->dtype].bytes;
    char value[24], place[IR_MAX_RANK * 24 + 40] = " of the scalar", range[80], where[IR_WHERE_MAX];
    if (ir_is_signed(x->dtype))
        snprintf(value, sizeof value, "%lld", (long long)((int64_t)(index << unused) >> unused));
    else snprintf(value, sizeof value, "%llu", (unsigned long long)index);
    int64_t coord[IR_MAX_RANK] = {0};
    for (unsigned d = ir_at(g, base)->rank; d-- > 0; at /= shape[d]) coord[d] = at % shape[d];
    seen_at(g, n->in[1], base, coord);
    unsigned used = 0;
    for (unsigned d = 0; d < x->rank; d++)
        used += (unsigned)snprintf(place + used, sizeof place - used, d ? ", %lld" : " at position [%lld",
                                   (long long)coord[d]);
    if (used) snprintf(place + used, sizeof place - used, "] of the indices");
    if (size) snprintf(range, sizeof range, "expected %lld to %lld", -(long long)size, (long long)size - 1);
    else snprintf(range, sizeof range, "the axis is empty");
    const char *name = x->name ? x->name : "", *mark = x->name ? " %" : "";
    const long long axis = (long long)ir_node_attr(n, "axis")->integer;
    const char *op = ir_ops[n->op].name;
    if (g->source && n->loc.line)
        return FU_FAIL_AT(e, FUSOR_ERROR_INDEX, g->source, n->loc, INDEX_FORMAT, op, value, place, mark, name, axis,
                          (long long)size, range, ir_where(n->meta_name, n->meta_loc, where));
    return FU_FAIL(e, FUSOR_ERROR_INDEX, INDEX_FORMAT, op, value, place, mark, name, axis, (long long)size, range,
                   ir_where(n->meta_name, n->meta_loc, where));
}
