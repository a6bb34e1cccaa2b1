/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Movement in pass_expand. What kernels know is few: a slice, a pad that only adds, a concatenation of at most
 * MAX_CONCAT, take, take_along and scatter. The rest becomes these, views and element-wise operators; what moves
 * nothing goes.
 *
 *   flip      slice by -1
 *   split     a slice for each result
 *   tile      a size of 1 before each repeated axis, stretched, and merged with it
 *   pad       first a slice, for what negative pads cut off
 *   concat    a tree
 *   one_hot   cast(eq(index, iota))
 *   tril      select(iota of columns <= iota of rows + k, x, 0), triu likewise */
#include "base/small.h"
#include "ir/pass.h"
#include <string.h>

enum { MAX_CONCAT = 8 };

typedef struct mover {
    ir_rewrite *rw;
    ir_graph *g;      /* rw->to */
    const ir_node *n; /* what is expanded: its place and metadata are those of the nodes made */
} mover;

static ir_size constant(const mover *m, int64_t v) { return ir_size_const(m->g->sizes, v); }

static ir_id marked(const mover *m, ir_id id) {
    if (id && ir_ops[ir_at(m->g, id)->op].kind != IR_KIND_CORE) {
        ir_at(m->g, id)->meta_name = m->n->meta_name;
        ir_at(m->g, id)->meta_loc = m->n->meta_loc;
    }
    return id;
}

/* An operator by its usual rules. attr: its leading attributes, n_attrs of them. */
static ir_id add(const mover *m, ir_op op, int n_in, const ir_operand *in, const ir_attr *attr, unsigned n_attrs,
                 ir_dtype to) {
    ir_attr all[IR_MAX_ATTRS] = {{0}};
    if (n_attrs) memcpy(all, attr, n_attrs * sizeof *attr);
    return marked(m, ir_add(m->g, op, n_in, in, n_attrs ? all : NULL, to, m->n->loc));
}

/* A node of op and attributes in the place of m->n: with its shape and type, whatever the operands say of their
 * sizes. */
static ir_id in_place(const mover *m, ir_op op, unsigned n_in, ir_id *in, uint8_t *stretch, const ir_attr *attr,
                      unsigned n_attrs) {
    ir_attr all[IR_MAX_ATTRS] = {{0}};
    ir_node n = *m->n;
    memcpy(all, attr, n_attrs * sizeof *attr);
    n.op = op;
    n.index = 0;
    n.n_in = (uint16_t)n_in;
    n.in = in;
    n.stretch = stretch;
    n.attr = all;
    return ir_add_raw(m->g, &n);
}

static ir_id reshape(const mover *m, ir_id x, ir_size *dim, unsigned rank, ir_op op) {
    const ir_operand in = ir_use(x);
    const ir_attr shape = ir_list_attr(dim, rank);
    return add(m, op, 1, &in, &shape, 1, 0);
}

static bool same_dims(const ir_node *x, const ir_node *y) {
    return x->rank == y->rank && memcmp(x->dim, y->dim, x->rank * sizeof *x->dim) == 0;
}

static int64_t axis_of(const ir_node *n) { return ir_node_attr(n, "axis")->integer; }

/* ---- to slices ---- */

static ir_id expand_slice(const mover *m) {
    const ir_node *n = m->n, *x = ir_at(m->g, n->in[0]);
    ir_size start[IR_MAX_RANK];
    int64_t step[IR_MAX_RANK];
    bool takes_all = same_dims(x, n);
    ir_slice_map(m->g, n, start, step);
    for (unsigned d = 0; d < n->rank; d++) takes_all &= step[d] == 1 && ir_size_is(m->g->sizes, start[d], 0);
    return takes_all ? n->in[0] : 0;
}

static ir_id expand_flip(const mover *m) {
    const ir_attr *axes = ir_node_attr(m->n, "axes");
    ir_size list[4][IR_MAX_RANK]; /* ORDER attrs_SLICE: starts, ends, steps, axes */
    uint32_t count = 0;
    for (uint32_t i = 0; i < axes->n; i++) {
        int64_t d = 0;
        ir_size_is_const(m->g->sizes, axes->list[i], &d);
        if (ir_size_is(m->g->sizes, m->n->dim[d], 1)) continue;
        list[0][count] = constant(m, INT64_MAX);
        list[1][count] = constant(m, INT64_MIN);
        list[2][count] = constant(m, -1);
        list[3][count++] = axes->list[i];
    }
    if (!count) return m->n->in[0];
    ir_attr attr[4];
    for (int k = 0; k < 4; k++) attr[k] = ir_list_attr(list[k], count);
    return in_place(m, IR_OP_SLICE, 1, m->n->in, NULL, attr, 4);
}

static ir_id expand_split(const mover *m) {
    const ir_node *n = m->n;
    const ir_attr *sizes = ir_node_attr(n, "sizes");
    if (sizes->n == 1) return n->in[0];
    ir_size start = constant(m, 0), axis = constant(m, axis_of(n)), end;
    for (uint32_t i = 0; i < n->index; i++) start = ir_size_add(m->g->sizes, start, sizes->list[i]);
    end = ir_size_add(m->g->sizes, start, sizes->list[n->index]);
    const ir_attr attr[4] = {ir_list_attr(&start, 1), ir_list_attr(&end, 1), {0}, ir_list_attr(&axis, 1)};
    return in_place(m, IR_OP_SLICE, 1, n->in, NULL, attr, 4);
}

/* ---- pad ---- */

static ir_id expand_pad(const mover *m) {
    const ir_node *n = m->n;
    const unsigned rank = n->rank;
    const ir_attr *pads = ir_node_attr(n, "pads"), *mode = ir_node_attr(n, "mode");
    ir_size start[IR_MAX_RANK], end[IR_MAX_RANK], rest[2 * IR_MAX_RANK];
    bool cuts = false, adds = false;
    for (unsigned i = 0; i < 2 * rank; i++) {
        int64_t v;
        const bool is_cut = ir_size_is_const(m->g->sizes, pads->list[i], &v) && v < 0;
        rest[i] = is_cut ? constant(m, 0) : pads->list[i];
        if (i < rank) start[i] = constant(m, is_cut ? -v : 0);
        else end[i - rank] = constant(m, is_cut ? v : INT64_MAX);
        cuts |= is_cut;
        adds |= !ir_size_is(m->g->sizes, rest[i], 0);
    }
    const bool needs_value = mode->integer == 0 && n->n_in == 1;
    if (adds && !cuts && !needs_value) return 0;
    ir_id in[2] = {n->in[0], n->n_in > 1 ? n->in[1] : 0};
    if (cuts) {
        const ir_attr attr[2] = {ir_list_attr(start, rank), ir_list_attr(end, rank)};
        if (!adds) return in_place(m, IR_OP_SLICE, 1, in, NULL, attr, 2);
        const ir_operand x = ir_use(in[0]);
        in[0] = add(m, IR_OP_SLICE, 1, &x, attr, 2, 0);
    }
    if (!adds) return in[0];
    if (needs_value) in[1] = ir_add_literal(m->g, n->dtype, 0);
    uint8_t stretch[2] = {0, (uint8_t)((1u << rank) - 1)};
    const ir_attr attr[3] = {ir_list_attr(rest, 2 * rank), {0}, *mode}; /* ORDER attrs_PAD */
    return in_place(m, IR_OP_PAD, in[1] ? 2 : 1, in, stretch, attr, 3);
}

/* ---- concat ---- */

static ir_id expand_concat(const mover *m) {
    const ir_node *n = m->n;
    const unsigned axis = (unsigned)axis_of(n);
    ir_operand *part = FU_NEW_N(m->rw->arena, ir_operand, n->n_in);
    unsigned count = 0;
    for (unsigned i = 0; i < n->n_in; i++) {
        if (!ir_size_is(m->g->sizes, ir_at(m->g, n->in[i])->dim[axis], 0)) part[count++] = ir_use(n->in[i]);
    }
    if (count == 0) part[count++] = ir_use(n->in[0]);
    if (count == 1) return part[0].node;
    if (count == n->n_in && count <= MAX_CONCAT) return 0;
    const ir_attr *attr = ir_node_attr(n, "axis");
    while (count > MAX_CONCAT) {
        unsigned groups = 0;
        for (unsigned i = 0; i < count; i += MAX_CONCAT) {
            const unsigned left = count - i, size = left < MAX_CONCAT ? left : MAX_CONCAT;
            part[groups++] = size == 1 ? part[i] : ir_use(add(m, IR_OP_CONCAT, (int)size, &part[i], attr, 1, 0));
        }
        count = groups;
    }
    ir_id in[MAX_CONCAT];
    for (unsigned i = 0; i < count; i++) in[i] = part[i].node;
    return in_place(m, IR_OP_CONCAT, count, in, NULL, attr, 1);
}

/* ---- tile ---- */

/* x[dims] repeated along the axes of `mask`, as views; with the sizes of 1 the rank must not pass IR_MAX_RANK. */
static ir_id tile_axes(const mover *m, ir_id x, const ir_size *dim, unsigned rank, unsigned mask,
                       const ir_size *repeats) {
    ir_size split[IR_MAX_RANK], stretched[IR_MAX_RANK], merged[IR_MAX_RANK];
    unsigned k = 0;
    for (unsigned d = 0; d < rank; d++) {
        merged[d] = dim[d];
        if (mask >> d & 1) {
            merged[d] = ir_size_mul(m->g->sizes, dim[d], repeats[d]);
            split[k] = constant(m, 1);
            stretched[k++] = repeats[d];
        }
        split[k] = stretched[k] = dim[d];
        k++;
    }
    x = reshape(m, x, split, k, IR_OP_RESHAPE);
    x = reshape(m, x, stretched, k, IR_OP_BROADCAST_TO);
    return reshape(m, x, merged, rank, IR_OP_RESHAPE);
}

static ir_id expand_tile(const mover *m) {
    const ir_node *n = m->n;
    const ir_attr *repeats = ir_node_attr(n, "repeats");
    unsigned mask = 0, count = 0;
    ir_size dim[IR_MAX_RANK];
    ir_id x = n->in[0];
    memcpy(dim, ir_at(m->g, x)->dim, sizeof dim);
    for (unsigned d = 0; d < n->rank; d++) {
        if (ir_size_is(m->g->sizes, repeats->list[d], 1)) continue;
        mask |= 1u << d;
        count++;
    }
    if (!mask) return x;
    if (n->rank + count <= IR_MAX_RANK) return tile_axes(m, x, dim, n->rank, mask, repeats->list);
    /* One axis after the other, with the axes before and after it each taken together. */
    for (unsigned d = 0; d < n->rank; d++) {
        if (!(mask >> d & 1)) continue;
        ir_size three[3] = {constant(m, 1), dim[d], constant(m, 1)}, times[3] = {0, repeats->list[d], 0};
        for (unsigned k = 0; k < n->rank; k++) {
            if (k != d) three[k < d ? 0 : 2] = ir_size_mul(m->g->sizes, three[k < d ? 0 : 2], dim[k]);
        }
        x = tile_axes(m, reshape(m, x, three, 3, IR_OP_RESHAPE), three, 3, 2, times);
        dim[d] = ir_size_mul(m->g->sizes, dim[d], repeats->list[d]);
    }
    return reshape(m, x, dim, n->rank, IR_OP_RESHAPE);
}

/* ---- broadcast_to ---- */
/* A dim that must be 1, but is not known to be, does not stretch: what follows takes it for one that has one index,
 * which a reshape says. */
static ir_id expand_broadcast(const mover *m) {
    const ir_node *n = m->n, x = *ir_at(m->g, n->in[0]);
    ir_size dim[IR_MAX_RANK];
    bool has_ones = false;
    for (unsigned d = 0; d < x.rank; d++) {
        const ir_size to = n->dim[d + n->rank - x.rank];
        const bool becomes_one = ir_size_is(m->g->sizes, to, 1) && !ir_size_is(m->g->sizes, x.dim[d], 1);
        dim[d] = becomes_one ? to : x.dim[d];
        has_ones |= becomes_one;
    }
    if (!has_ones) return 0;
    const ir_id id = reshape(m, n->in[0], dim, x.rank, IR_OP_RESHAPE);
    ir_size all[IR_MAX_RANK];
    memcpy(all, n->dim, sizeof all);
    return !id || same_dims(ir_at(m->g, id), n) ? id : reshape(m, id, all, n->rank, IR_OP_BROADCAST_TO);
}

/* ---- comparisons with positions ---- */

/* Position along a dim: i32 where that holds both sizes and what is added to them, else i64. */
static ir_dtype position_type(const mover *m, const ir_size *size, int n) {
    int64_t v;
    for (int i = 0; i < n; i++) {
        if (!ir_size_is_const(m->g->sizes, size[i], &v) || v > INT64_C(1) << 30) return FUSOR_I64;
    }
    return FUSOR_I32;
}

/* [size] or, as a column, [size, 1]. */
static ir_id positions(const mover *m, ir_size size, bool is_column, ir_dtype t) {
    ir_size dim[2] = {size, constant(m, 1)};
    /* ORDER attrs_IOTA: shape, axis, dtype */
    const ir_attr attr[3] = {ir_list_attr(dim, is_column ? 2 : 1), {.is_set = true}, {.is_set = true, .integer = t}};
    return add(m, IR_OP_IOTA, 0, NULL, attr, 3, 0);
}

static ir_id expand_one_hot(const mover *m) {
    const ir_node *n = m->n;
    const ir_dtype from = ir_at(m->g, n->in[0])->dtype;
    const bool is_narrow = from != FUSOR_I64 && from != FUSOR_U64 && from != FUSOR_U32;
    /* The index type itself would not do: 300 columns and 8 bits. A u64 past 2^63 wraps to what no column is. */
    const ir_dtype t = is_narrow ? position_type(m, &n->dim[n->rank - 1], 1) : FUSOR_I64;
    ir_size last = constant(m, n->rank - 1);
    const ir_attr axes = ir_list_attr(&last, 1);
    ir_operand x = ir_use(n->in[0]);
    if (from != t) x = ir_use(add(m, IR_OP_CAST, 1, &x, NULL, 0, t));
    x = ir_use(add(m, IR_OP_UNSQUEEZE, 1, &x, &axes, 1, 0));
    const ir_operand pair[2] = {x, ir_use(positions(m, n->dim[n->rank - 1], false, t))};
    const ir_operand hot = ir_use(add(m, IR_OP_EQ, 2, pair, NULL, 0, 0));
    return ir_is_bool(n->dtype) ? hot.node : add(m, IR_OP_CAST, 1, &hot, NULL, 0, n->dtype);
}

static ir_id expand_triangle(const mover *m) {
    const ir_node *n = m->n;
    const ir_size *size = &n->dim[n->rank - 2];
    const ir_dtype t = position_type(m, size, 2);
    const int64_t far = INT64_C(1) << (t == FUSOR_I32 ? 30 : 62); /* past every element, and no sum overflows */
    int64_t k = ir_node_attr(n, "k")->integer;
    k = k > far ? far : k < -far ? -far : k;
    ir_operand row = ir_use(positions(m, size[0], true, t));
    const ir_operand shifted[2] = {row, {.literal = IR_LIT_INT, .i = k, .f = (double)k}};
    if (k) row = ir_use(add(m, IR_OP_ADD, 2, shifted, NULL, 0, 0));
    const ir_operand pair[2] = {ir_use(positions(m, size[1], false, t)), row};
    const ir_operand keeps = ir_use(add(m, n->op == IR_OP_TRIL ? IR_OP_LE : IR_OP_GE, 2, pair, NULL, 0, 0));
    const ir_operand chosen[3] = {keeps, ir_use(n->in[0]), ir_use(ir_add_literal(m->g, n->dtype, 0))};
    return add(m, IR_OP_SELECT, 3, chosen, NULL, 0, 0);
}

bool ir_expand_move(ir_rewrite *rw, const ir_node *n, ir_id *out) {
    const mover m = {.rw = rw, .g = rw->to, .n = n};
    ir_id id = 0;
    switch (n->op) {
    case IR_OP_SLICE: id = expand_slice(&m); break;
    case IR_OP_FLIP: id = expand_flip(&m); break;
    case IR_OP_SPLIT: id = expand_split(&m); break;
    case IR_OP_PAD: id = expand_pad(&m); break;
    case IR_OP_CONCAT: id = expand_concat(&m); break;
    case IR_OP_TILE: id = expand_tile(&m); break;
    case IR_OP_BROADCAST_TO: id = expand_broadcast(&m); break;
    case IR_OP_ONE_HOT: id = expand_one_hot(&m); break;
    case IR_OP_TRIL:
    case IR_OP_TRIU: id = expand_triangle(&m); break;
    default: break;
    }
    if (!id) return false;
    bool is_operand = false;
    for (unsigned i = 0; i < n->n_in; i++) is_operand |= n->in[i] == id;
    if (!is_operand) ir_at(rw->to, id)->name = n->name;
    *out = id;
    return true;
}
