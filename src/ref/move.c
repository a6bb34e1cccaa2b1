/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Movement in the reference evaluator. Every element of a result is found on its own: its coordinates become those of
 * an operand (place functions), or of an index. Scatter goes the other way, an update at a time. */
#include "ir/scalar.h"
#include "ref/kinds.h"

/* ---- coordinates ---- */

/* The next position in row-major order; false after the last. */
static bool advance(const ref_tensor *t, int64_t *at) {
    for (int d = t->rank - 1; d >= 0; d--) {
        if (++at[d] < t->shape[d]) return true;
        at[d] = 0;
    }
    return false;
}

static int64_t offset_of(const ref_tensor *t, const int64_t *at) {
    int64_t offset = 0;
    for (int d = 0; d < t->rank; d++) offset = offset * t->shape[d] + at[d];
    return offset;
}

static fusor_status list_entry(const ref_call *c, const ir_attr *list, uint32_t i, int64_t *out) {
    if (i < list->n && ir_size_eval(c->g->sizes, list->list[i], c->symbols, out) == IR_SIZE_OK) return FUSOR_OK;
    return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: entry %u of a list is no 64-bit number", ir_ops[c->n->op].name, i);
}

static fusor_status check_axis(const ref_call *c, int64_t axis, int rank) {
    if (axis >= 0 && axis < rank) return FUSOR_OK;
    return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: axis %lld of a tensor of rank %d", ir_ops[c->n->op].name,
                    (long long)axis, rank);
}

/* ---- slice, flip, pad ---- */

/* First index and step along each axis. NumPy's and ONNX's rule: negative bounds count from the end, then bounds clamp,
 * to [0, size] forward, and to [0, size - 1] (start) and [-1, size - 1] (end) backward. The end only decides how
 * many. */
static fusor_status slice_place(const ref_call *c, int64_t *first, int64_t *step) {
    const ir_attr *starts = ref_attr(c->n, "starts"), *steps = ref_attr(c->n, "steps"), *axes = ref_attr(c->n, "axes");
    for (int d = 0; d < c->in->rank; d++) {
        first[d] = 0;
        step[d] = 1;
    }
    for (uint32_t i = 0; starts && i < starts->n; i++) {
        int64_t axis = i, start, by = 1;
        if (axes) FU_TRY(list_entry(c, axes, i, &axis));
        if (steps) FU_TRY(list_entry(c, steps, i, &by));
        FU_TRY(list_entry(c, starts, i, &start));
        FU_TRY(check_axis(c, axis, c->in->rank));
        const int64_t size = c->in->shape[axis], last = by > 0 ? size : size - 1;
        if (start < 0) start += size;
        if (start < 0) start = 0;
        first[axis] = start > last ? last : start;
        step[axis] = by;
    }
    return FUSOR_OK;
}

static fusor_status eval_slice(const ref_call *c) {
    int64_t first[IR_MAX_RANK], step[IR_MAX_RANK], at[IR_MAX_RANK] = {0}, from[IR_MAX_RANK], count = ref_count(c->out);
    uint32_t flipped = 0;
    if (c->n->op == IR_OP_FLIP) {
        FU_TRY(ref_attr_axes(c, "axes", c->in->rank, 0, &flipped));
        for (int d = 0; d < c->in->rank; d++) {
            first[d] = flipped >> d & 1 ? c->in->shape[d] - 1 : 0;
            step[d] = flipped >> d & 1 ? -1 : 1;
        }
    } else {
        FU_TRY(slice_place(c, first, step));
    }
    for (int64_t i = 0; i < count; i++, advance(c->out, at)) {
        for (int d = 0; d < c->in->rank; d++) {
            from[d] = first[d] + at[d] * step[d];
            if (from[d] < 0 || from[d] >= c->in->shape[d])
                return REF_FAIL(c, FUSOR_ERROR_INTERNAL, "%s: result position %lld along axis %d is outside",
                                ir_ops[c->n->op].name, (long long)at[d], d);
        }
        ref_put(c->out, i, ref_get(c->in, offset_of(c->in, from)));
    }
    return FUSOR_OK;
}

/* The index that position i of a padded axis shows, -1: the value. low and high: what is left of it after negative
 * pads. */
static int64_t pad_place(int64_t mode, int64_t i, int64_t low, int64_t high) {
    enum { CONSTANT, EDGE, REFLECT, WRAP }; /* ORDER of mode= */
    const int64_t size = high - low;
    if (i >= low && i < high) return i;
    switch (mode) {
    case EDGE: return i < low ? low : high - 1;
    case REFLECT: return i < low ? 2 * low - i : 2 * (high - 1) - i;
    case WRAP: {
        const int64_t rest = (i - low) % size;
        return low + (rest < 0 ? rest + size : rest);
    }
    default: return -1;
    }
}

static fusor_status eval_pad(const ref_call *c) {
    const ref_tensor *x = c->in;
    const ir_attr *pads = ref_attr(c->n, "pads");
    const int64_t mode = ref_attr_int(c->n, "mode"), count = ref_count(c->out);
    const ir_bits value = c->n->n_in > 1 ? ref_get(&c->in[1], 0) : 0;
    int64_t begin[IR_MAX_RANK], low[IR_MAX_RANK], high[IR_MAX_RANK], at[IR_MAX_RANK] = {0}, from[IR_MAX_RANK];
    for (int d = 0; d < x->rank; d++) {
        int64_t end;
        FU_TRY(list_entry(c, pads, (uint32_t)d, &begin[d]));
        FU_TRY(list_entry(c, pads, (uint32_t)(x->rank + d), &end));
        low[d] = begin[d] < 0 ? -begin[d] : 0;
        high[d] = x->shape[d] + (end < 0 ? end : 0);
    }
    for (int64_t i = 0; i < count; i++, advance(c->out, at)) {
        bool is_inside = true;
        for (int d = 0; d < x->rank; d++) {
            from[d] = high[d] > low[d] ? pad_place(mode, at[d] - begin[d], low[d], high[d]) : -1;
            is_inside &= from[d] >= 0 && from[d] < x->shape[d];
        }
        ref_put(c->out, i, is_inside ? ref_get(x, offset_of(x, from)) : value);
    }
    return FUSOR_OK;
}

/* ---- concat, split, tile, triangles ---- */

static fusor_status eval_concat(const ref_call *c) {
    const int64_t axis = ref_attr_int(c->n, "axis"), count = ref_count(c->out);
    int64_t at[IR_MAX_RANK] = {0};
    FU_TRY(check_axis(c, axis, c->out->rank));
    for (int64_t i = 0; i < count; i++, advance(c->out, at)) {
        int64_t from[IR_MAX_RANK];
        unsigned k = 0;
        memcpy(from, at, sizeof from);
        while (k + 1u < c->n->n_in && from[axis] >= c->in[k].shape[axis]) from[axis] -= c->in[k++].shape[axis];
        ref_put(c->out, i, ref_get(&c->in[k], offset_of(&c->in[k], from)));
    }
    return FUSOR_OK;
}

static fusor_status eval_split(const ref_call *c) {
    const int64_t axis = ref_attr_int(c->n, "axis"), count = ref_count(c->out);
    int64_t at[IR_MAX_RANK] = {0}, first = 0, size;
    FU_TRY(check_axis(c, axis, c->out->rank));
    for (uint32_t i = 0; i < c->n->index; i++) {
        FU_TRY(list_entry(c, ref_attr(c->n, "sizes"), i, &size));
        first += size;
    }
    for (int64_t i = 0; i < count; i++, advance(c->out, at)) {
        int64_t from[IR_MAX_RANK];
        memcpy(from, at, sizeof from);
        from[axis] += first;
        ref_put(c->out, i, ref_get(c->in, offset_of(c->in, from)));
    }
    return FUSOR_OK;
}

static void eval_tile(const ref_call *c) {
    int64_t at[IR_MAX_RANK] = {0}, from[IR_MAX_RANK], count = ref_count(c->out);
    for (int64_t i = 0; i < count; i++, advance(c->out, at)) {
        for (int d = 0; d < c->in->rank; d++) from[d] = at[d] % c->in->shape[d];
        ref_put(c->out, i, ref_get(c->in, offset_of(c->in, from)));
    }
}

static void eval_triangle(const ref_call *c) {
    int64_t at[IR_MAX_RANK] = {0}, count = ref_count(c->out), k = ref_attr_int(c->n, "k");
    const int row = c->out->rank - 2, column = c->out->rank - 1;
    for (int64_t i = 0; i < count; i++, advance(c->out, at)) {
        const __int128 diagonal = (__int128)at[row] + k; /* k may be any number */
        const bool is_kept = c->n->op == IR_OP_TRIL ? at[column] <= diagonal : at[column] >= diagonal;
        ref_put(c->out, i, is_kept ? ref_get(c->in, i) : 0);
    }
}

fusor_status ref_move(const ref_call *c) {
    switch (c->n->op) {
    case IR_OP_SLICE:
    case IR_OP_FLIP: return eval_slice(c);
    case IR_OP_PAD: return eval_pad(c);
    case IR_OP_CONCAT: return eval_concat(c);
    case IR_OP_SPLIT: return eval_split(c);
    case IR_OP_TILE: eval_tile(c); return FUSOR_OK;
    default: eval_triangle(c); return FUSOR_OK;
    }
}

/* ---- indices ---- */

/* Every index is looked at before anything is written: one that is out of range is an error, the first of them. */
static fusor_status check_indices(const ref_call *c, int64_t size) {
    const ref_tensor *x = &c->in[1];
    const int64_t count = ref_count(x);
    const bool is_signed = ir_is_signed(x->dtype);
    for (int64_t i = 0; i < count; i++) {
        const ir_bits bits = ref_get(x, i);
        const int64_t v = ref_int(x->dtype, bits);
        if (is_signed ? v >= -size && v < size : bits < (ir_bits)size) continue;
        return ir_fail_index(c->g, c->e, c->n, c->n->in[1], bits, i, x->shape, size);
    }
    return FUSOR_OK;
}

static int64_t index_at(const ref_call *c, int64_t i, int64_t size) {
    const int64_t v = ref_int(c->in[1].dtype, ref_get(&c->in[1], i));
    return v < 0 ? v + size : v;
}

static void eval_take(const ref_call *c, int axis) {
    const ref_tensor *x = c->in, *indices = &c->in[1];
    int64_t at[IR_MAX_RANK] = {0}, from[IR_MAX_RANK], count = ref_count(c->out);
    for (int64_t i = 0; i < count; i++, advance(c->out, at)) {
        for (int d = 0; d < axis; d++) from[d] = at[d];
        from[axis] = index_at(c, offset_of(indices, at + axis), x->shape[axis]);
        for (int d = axis + 1; d < x->rank; d++) from[d] = at[d - 1 + indices->rank];
        ref_put(c->out, i, ref_get(x, offset_of(x, from)));
    }
}

static void eval_take_along(const ref_call *c, int axis) {
    const ref_tensor *x = c->in, *indices = &c->in[1];
    const uint8_t *stretch = c->n->stretch;
    int64_t at[IR_MAX_RANK] = {0}, from[IR_MAX_RANK], which[IR_MAX_RANK], count = ref_count(c->out);
    for (int64_t i = 0; i < count; i++, advance(c->out, at)) {
        for (int d = 0; d < x->rank; d++) {
            from[d] = stretch && (stretch[0] >> d & 1) ? 0 : at[d];
            which[d] = stretch && (stretch[1] >> d & 1) ? 0 : at[d];
        }
        from[axis] = index_at(c, offset_of(indices, which), x->shape[axis]);
        ref_put(c->out, i, ref_get(x, offset_of(x, from)));
    }
}

static void eval_scatter(const ref_call *c, int axis) {
    const ref_tensor *x = c->in, *updates = &c->in[2];
    const ir_op combine = ir_scatter_combine(ref_attr_int(c->n, "mode"));
    int64_t at[IR_MAX_RANK] = {0}, to[IR_MAX_RANK], count = ref_count(updates);
    if (ref_count(x)) memmove(c->out->data, x->data, (size_t)ref_count(x) * ir_dtypes[x->dtype].bytes);
    for (int64_t i = 0; i < count; i++, advance(updates, at)) {
        memcpy(to, at, sizeof to);
        to[axis] = index_at(c, i, x->shape[axis]);
        const int64_t place = offset_of(c->out, to);
        const ir_bits pair[3] = {ref_get(c->out, place), ref_get(updates, i)};
        ref_put(c->out, place, combine ? ir_scalar_ew(combine, x->dtype, pair, NULL, 0) : pair[1]);
    }
}

static void eval_one_hot(const ref_call *c) {
    const int64_t depth = c->out->shape[c->out->rank - 1], rows = ref_count(c->in);
    const ir_bits zero = 0, one = ir_scalar_cast(FUSOR_I64, c->out->dtype, 1);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t hot = ref_int(c->in->dtype, ref_get(c->in, i));
        const bool is_negative = ir_is_signed(c->in->dtype) && hot < 0;
        for (int64_t k = 0; k < depth; k++) ref_put(c->out, i * depth + k, !is_negative && hot == k ? one : zero);
    }
}

fusor_status ref_index(const ref_call *c) {
    if (c->n->op == IR_OP_ONE_HOT) {
        eval_one_hot(c);
        return FUSOR_OK;
    }
    const int64_t axis = ref_attr_int(c->n, "axis");
    FU_TRY(check_axis(c, axis, c->in->rank));
    FU_TRY(check_indices(c, c->in->shape[axis]));
    if (c->n->op == IR_OP_TAKE) eval_take(c, (int)axis);
    else if (c->n->op == IR_OP_TAKE_ALONG) eval_take_along(c, (int)axis);
    else eval_scatter(c, (int)axis);
    return FUSOR_OK;
}
