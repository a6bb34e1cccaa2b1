/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_move.c: slices, padding, concatenation and gathers inside kernels.
 *
 *   slice       strides times steps, an offset: nothing in the program
 *   pad         constant: a guarded load, and a select where the value is not 0; other modes: a computed index
 *   concat      one guarded load for each operand, and selects
 *   take        a computed offset: the index is loaded, wrapped, times the stride
 *
 * All of it happens where a leaf's strides are pushed through the chain (builder_push), so whatever is computed between
 * the leaf and the movement is computed at the place that is read: no memory between them. */
#include "base/small.h"
#include "ir/plan_builder.h"

static const ir_node *node(const builder *b, ir_id id) { return ir_at(b->p->g, id); }
static ir_sizes *sizes(const builder *b) { return b->p->g->sizes; }

/* ---- instructions on indices ---- */
uint16_t builder_op(builder *b, ir_op op, ir_dtype t, int n, const uint16_t *in) {
    ir_kinst inst;
    memset(&inst, 0, sizeof inst);
    inst.op = (uint16_t)op;
    inst.dtype = t;
    inst.n_in = (uint8_t)n;
    memcpy(inst.in, in, (size_t)n * sizeof *in);
    return builder_inst(b, inst);
}

static uint16_t binary(builder *b, ir_op op, ir_dtype t, uint16_t x, uint16_t y) {
    return builder_op(b, op, t, 2, (uint16_t[]){x, y});
}

uint16_t builder_size(builder *b, ir_size s) {
    for (int i = 0; i < b->k->n_insts; i++) {
        const ir_kinst *in = &b->k->inst[i];
        if (in->op != IR_K_SCALAR || in->dtype != FUSOR_I64) continue;
        const ir_plan_scalar *have = &b->scalars.at[in->index];
        if (have->kind == IR_SCALAR_SIZE && have->size == s) return (uint16_t)i;
    }
    return builder_scalar(b, (ir_plan_scalar){.dtype = FUSOR_I64, .kind = IR_SCALAR_SIZE, .size = s});
}

static uint16_t times(builder *b, uint16_t x, ir_size by) {
    return by == b->one ? x : binary(b, IR_OP_MUL, FUSOR_I64, x, builder_size(b, by));
}

/* sum of what there is; *sum: -1 = nothing yet */
static void add_to(builder *b, int *sum, uint16_t x) {
    *sum = *sum < 0 ? x : binary(b, IR_OP_ADD, FUSOR_I64, (uint16_t)*sum, x);
}

uint16_t builder_offset(builder *b, const place *where) {
    int sum = -1;
    for (int i = 0; i < where->n_terms; i++) add_to(b, &sum, times(b, where->term[i], where->term_stride[i]));
    return (uint16_t)sum;
}

uint16_t builder_guard(builder *b, const place *where) {
    uint16_t all = where->guard[0];
    for (int i = 1; i < where->n_guards; i++) all = binary(b, IR_OP_AND, FUSOR_BOOL, all, where->guard[i]);
    return all;
}

uint16_t builder_coordinate(builder *b, const chain *at, int d) {
    ir_size strides[MAX_SPACE];
    place where = {.is_unguarded = true};
    int sum = -1;
    for (int i = 0; i < at->rank; i++) strides[i] = i == d ? b->one : b->zero;
    if (!builder_push(b, at, strides, &where)) return builder_fail(b, "an index under a reshape");
    /* a channel of a convolution is a group and a place in it: two dims, once the kernel's are known */
    const bool is_place = b->p->clusters.at[b->c].kind == CLUSTER_WINDOW && where.stride[1] != b->zero;
    if (is_place) sum = builder_place(b, where.stride);
    for (int i = 0; i < b->space && !is_place; i++) {
        if (where.stride[i] == b->zero) continue;
        ir_kinst inst;
        memset(&inst, 0, sizeof inst);
        inst.op = IR_K_INDEX;
        inst.dtype = FUSOR_I64;
        inst.index = (uint16_t)i; /* a cluster dim; renumbered with the dims */
        uint16_t index = builder_inst(b, inst);
        access a = {.buffer = (int)index};
        for (int j = 0; j < MAX_SPACE; j++) a.stride[j] = i == j ? b->one : b->zero;
        fu_push(b->p->arena, &b->indexes, a);
        add_to(b, &sum, times(b, index, where.stride[i]));
    }
    for (int i = 0; i < where.n_terms; i++) add_to(b, &sum, times(b, where.term[i], where.term_stride[i]));
    if (where.offset != b->zero || sum < 0) add_to(b, &sum, builder_size(b, where.offset));
    return (uint16_t)sum;
}

/* ---- links ---- */
static void add_term(builder *b, place *out, uint16_t index, ir_size stride) {
    if (out->n_terms >= MAX_TERMS) {
        (void)builder_fail(b, "too many computed indices");
        return;
    }
    out->term[out->n_terms] = index;
    out->term_stride[out->n_terms++] = stride;
}

static void add_guard(builder *b, place *out, uint16_t guard) {
    for (int i = 0; i < out->n_guards; i++)
        if (out->guard[i] == guard) return;
    if (out->n_guards == MAX_TERMS)
        out->guard[MAX_TERMS - 1] = binary(b, IR_OP_AND, FUSOR_BOOL, out->guard[MAX_TERMS - 1], guard);
    else out->guard[out->n_guards++] = guard;
}

/* begin <= coordinate < end of dim d of a size; bounds that always hold are left out. -1: all do. */
static int between(builder *b, const chain *outer, int d, ir_size begin, ir_size end, ir_size size) {
    int all = -1;
    if (begin == b->zero && end == size) return -1;
    uint16_t c = builder_coordinate(b, outer, d);
    if (begin != b->zero) all = binary(b, IR_OP_GE, FUSOR_BOOL, c, builder_size(b, begin));
    if (end == size) return all;
    uint16_t below = binary(b, IR_OP_LT, FUSOR_BOOL, c, builder_size(b, end));
    return all < 0 ? below : binary(b, IR_OP_AND, FUSOR_BOOL, (uint16_t)all, below);
}

enum { PAD_CONSTANT, PAD_EDGE, PAD_REFLECT, PAD_WRAP }; /* ORDER of mode= in the row's attributes */
static int64_t enum_of(const ir_node *n, const char *name) {
    const ir_attr *a = ir_node_attr(n, name);
    return a && a->is_set ? a->integer : 0;
}
int plan_axis_of(const ir_node *n) {
    const ir_attr *a = ir_node_attr(n, "axis");
    return a && a->is_set ? (int)a->integer : 0;
}
static const ir_size *pads_of(const ir_node *n) { return ir_node_attr(n, "pads")->list; }

static bool is_padded(const builder *b, const ir_node *n, int d) {
    const ir_size *pads = pads_of(n);
    return pads[d] != b->zero || pads[n->rank + d] != b->zero;
}

int plan_padded_dims(const ir_graph *g, const ir_node *n) {
    int count = 0;
    for (int d = 0; d < n->rank; d++)
        count += !ir_size_is(g->sizes, pads_of(n)[d], 0) || !ir_size_is(g->sizes, pads_of(n)[n->rank + d], 0);
    return count;
}

static int pad_guard(builder *b, const chain *outer, const ir_node *n, int d) {
    ir_size begin = pads_of(n)[d], end = ir_size_add(sizes(b), begin, node(b, n->in[0])->dim[d]);
    return between(b, outer, d, begin, end, n->dim[d]);
}

static ir_size before_operand(builder *b, const ir_node *n, int operand, int axis) {
    ir_size sum = b->zero;
    for (int i = 0; i < operand; i++) sum = ir_size_add(sizes(b), sum, node(b, n->in[i])->dim[axis]);
    return sum;
}

static uint16_t select_op(builder *b, uint16_t c, uint16_t x, uint16_t y) {
    return builder_op(b, IR_OP_SELECT, b->k->inst[x].dtype, 3, (uint16_t[]){c, x, y});
}

/* May coordinates lie beyond the value of a link? In the pads around it, or in what it is concatenated with. */
static bool is_beyond(const builder *b, const chain *at) {
    for (; at; at = at->outer) {
        if (at->kind != CHAIN_MOVE) continue;
        const ir_node *n = node(b, at->view);
        if (n->op == IR_OP_CONCAT || (n->op == IR_OP_PAD && enum_of(n, "mode") == PAD_CONSTANT)) return true;
    }
    return false;
}

/* Index into the operand of a padded dim: the edge; or reflected at both ends, or again from the start. Pads of reflect
 * and wrap may be wider than the dim, then over and over: for wrap alone, as reflect's are checked to be narrower.
 * An element: one is read wherever the coordinates lie. */
static uint16_t pad_index(builder *b, const chain *outer, const ir_node *n, int d, int64_t mode) {
    ir_size size = node(b, n->in[0])->dim[d], last = ir_size_sub(sizes(b), size, b->one);
    uint16_t zero = builder_size(b, b->zero), c = builder_coordinate(b, outer, d);
    if (pads_of(n)[d] != b->zero) c = binary(b, IR_OP_SUB, FUSOR_I64, c, builder_size(b, pads_of(n)[d]));
    if (mode == PAD_EDGE) return builder_op(b, IR_OP_CLAMP, FUSOR_I64, 3, (uint16_t[]){c, zero, builder_size(b, last)});
    if (mode == PAD_WRAP) return binary(b, IR_OP_MOD, FUSOR_I64, c, builder_size(b, size));
    uint16_t up = builder_op(b, IR_OP_ABS, FUSOR_I64, 1, &c),
             twice = builder_size(b, ir_size_add(sizes(b), last, last));
    uint16_t down = binary(b, IR_OP_SUB, FUSOR_I64, twice, up);
    uint16_t i = binary(b, IR_OP_MINIMUM, FUSOR_I64, up, down);
    return is_beyond(b, outer) ? binary(b, IR_OP_MAXIMUM, FUSOR_I64, i, zero) : i;
}

/* Does operand dim od repeat along result dim d? */
static bool repeats(const builder *b, const ir_node *n, int operand, int od, int d) {
    return ir_size_is(sizes(b), node(b, n->in[operand])->dim[od], 1) && !ir_size_is(sizes(b), n->dim[d], 1);
}

uint16_t builder_wrapped(builder *b, ir_id id, uint16_t i) {
    const ir_node *n = node(b, id);
    bool is_signed = ir_is_signed(node(b, n->in[1])->dtype);
    i = builder_cast(b, i, FUSOR_I64);
    if (!is_signed) return i;
    uint16_t is_negative = binary(b, IR_OP_LT, FUSOR_BOOL, i, builder_size(b, b->zero));
    uint16_t size = builder_size(b, node(b, n->in[0])->dim[plan_axis_of(n)]);
    return select_op(b, is_negative, binary(b, IR_OP_ADD, FUSOR_I64, i, size), i);
}

/* The index of a take, at a link's consumer. */
static uint16_t taken_index(builder *b, ir_id id, const chain *outer) {
    const ir_node *n = node(b, id);
    chain c = {.kind = CHAIN_MOVE, .outer = outer, .rank = node(b, n->in[1])->rank, .view = id, .operand = 1};
    uint16_t i = builder_value(b, n->in[1], builder_chain(b, &c));
    if (b->status == FUSOR_OK) b->status = plan_check_index(b->p, id);
    return builder_wrapped(b, id, i);
}

int plan_move_dim(ir_graph *g, const ir_node *n, int operand, int d) {
    const ir_node *x = ir_at(g, n->in[operand]);
    ir_size start[IR_MAX_RANK];
    int64_t step[IR_MAX_RANK];
    int axis, rank = operand || n->n_in < 2 ? 0 : ir_at(g, n->in[1])->rank;
    switch (n->op) {
    case IR_OP_SLICE:
        ir_slice_map(g, n, start, step);
        return x->dim[d] == n->dim[d] && step[d] == 1 ? d : PLAN_DIM_MOVED;
    case IR_OP_PAD:
        if (operand) return -1;
        return ir_size_is(g->sizes, pads_of(n)[d], 0) && ir_size_is(g->sizes, pads_of(n)[n->rank + d], 0)
                   ? d
                   : PLAN_DIM_MOVED;
    case IR_OP_CONCAT: return d == plan_axis_of(n) ? PLAN_DIM_MOVED : d;
    case IR_OP_TAKE:
        axis = plan_axis_of(n);
        if (operand) return d >= axis && d < axis + x->rank ? d - axis : -1;
        return d < axis ? d : d < axis + rank ? -1 : d - rank + 1;
    default: /* TAKE_ALONG */
        if (operand == 0 && d == plan_axis_of(n)) return PLAN_DIM_MOVED;
        return ir_size_is(g->sizes, x->dim[d], 1) && !ir_size_is(g->sizes, n->dim[d], 1) ? -1 : d;
    }
}

/* From one element of a slice to the next along an axis of `size`, as steps of the operand. A step past the axis is as
 * good as its size, whose product with a stride fits. */
static ir_size slice_stride(ir_sizes *sz, ir_size size, int64_t step) {
    enum { SMALL = 1 << 30 };
    if (step >= -SMALL && step <= SMALL) return ir_size_const(sz, step);
    const ir_size most = ir_size_min(sz, size, ir_size_const(sz, step < 0 ? -step : step));
    return step < 0 ? ir_size_sub(sz, ir_size_const(sz, 0), most) : most;
}

void builder_move_link(builder *b, const chain *at, const ir_size *s, ir_size *t, place *out) {
    const ir_node *n = node(b, at->view), *x = node(b, n->in[at->operand]);
    ir_sizes *sz = sizes(b);
    ir_size start[IR_MAX_RANK];
    int64_t step[IR_MAX_RANK], mode = n->op == IR_OP_PAD ? enum_of(n, "mode") : 0;
    int axis = n->op == IR_OP_SLICE || n->op == IR_OP_PAD ? -1 : plan_axis_of(n);
    for (int d = 0; d < n->rank; d++) t[d] = b->zero;
    if (n->op == IR_OP_SLICE) ir_slice_map(b->p->g, n, start, step);
    for (int d = 0; d < x->rank; d++) {
        ir_size shift = b->zero;
        int to = d, guard = -1;
        if (s[d] == b->zero) continue;
        if (n->op == IR_OP_SLICE) {
            out->offset = ir_size_add(sz, out->offset, ir_size_mul(sz, s[d], start[d]));
            if (!ir_size_is(sz, n->dim[d], 1)) t[d] = ir_size_mul(sz, s[d], slice_stride(sz, x->dim[d], step[d]));
            continue;
        }
        if (n->op == IR_OP_PAD && is_padded(b, n, d)) {
            if (mode != PAD_CONSTANT) {
                add_term(b, out, pad_index(b, at->outer, n, d, mode), s[d]);
                continue;
            }
            if (!out->is_unguarded) guard = pad_guard(b, at->outer, n, d);
            shift = pads_of(n)[d];
        } else if (n->op == IR_OP_CONCAT && d == axis) {
            shift = before_operand(b, n, at->operand, axis);
            if (!out->is_unguarded)
                guard = between(b, at->outer, d, shift, ir_size_add(sz, shift, x->dim[d]), n->dim[d]);
        } else if (n->op == IR_OP_TAKE && at->operand == 1) {
            to = axis + d;
        } else if (n->op == IR_OP_TAKE || n->op == IR_OP_TAKE_ALONG) {
            if (at->operand == 0 && d == axis) {
                const uint16_t index = taken_index(b, at->view, at->outer);
                int64_t size = 0; /* beyond the value index 0 is read, where there is one */
                add_term(b, out, index, s[d]);
                if (!out->is_unguarded && is_beyond(b, at->outer) && !(ir_size_is_const(sz, x->dim[d], &size) && size))
                    add_guard(b, out, binary(b, IR_OP_LT, FUSOR_BOOL, index, builder_size(b, x->dim[d])));
                continue;
            }
            if (n->op == IR_OP_TAKE && d > axis) to = d - 1 + node(b, n->in[1])->rank;
            if (n->op == IR_OP_TAKE_ALONG && repeats(b, n, at->operand, d, d)) continue;
        }
        t[to] = s[d];
        if (shift != b->zero) out->offset = ir_size_sub(sz, out->offset, ir_size_mul(sz, s[d], shift));
        if (guard >= 0) add_guard(b, out, (uint16_t)guard);
    }
}

/* ---- values ---- */
static uint16_t operand_value(builder *b, ir_id id, int operand, const chain *at) {
    const ir_node *n = node(b, id);
    chain c = {.kind = CHAIN_MOVE,
               .outer = at,
               .rank = node(b, n->in[operand])->rank,
               .view = id,
               .operand = (uint8_t)operand};
    return builder_value(b, n->in[operand], builder_chain(b, &c));
}

static uint16_t padded(builder *b, ir_id id, const chain *at) {
    const ir_node *n = node(b, id);
    uint16_t x = operand_value(b, id, 0, at);
    place all = {.n_guards = 0};
    for (int d = 0; d < n->rank; d++) {
        int guard = is_padded(b, n, d) ? pad_guard(b, at, n, d) : -1;
        if (guard >= 0) add_guard(b, &all, (uint16_t)guard);
    }
    if (!all.n_guards || b->status != FUSOR_OK) return x;
    uint16_t guard = builder_guard(b, &all), fill;
    const ir_kinst *load = &b->k->inst[x];
    if (n->n_in == 1 || (node(b, n->in[1])->op == IR_OP_LITERAL && node(b, n->in[1])->bits == 0)) {
        if (load->op == IR_K_LOAD && load->variant & IR_LOAD_GUARD && load->in[load->n_in - 1] == guard)
            return x; /* 0 where it is not read */
        fill = builder_scalar(b, (ir_plan_scalar){.dtype = load->dtype});
    } else {
        chain c = {.kind = CHAIN_STRETCH, .outer = at, .rank = 0};
        fill = builder_value(b, n->in[1], builder_chain(b, &c));
    }
    return select_op(b, guard, x, fill);
}

static uint16_t concatenated(builder *b, ir_id id, const chain *at) {
    const ir_node *n = node(b, id);
    int axis = plan_axis_of(n), v = -1;
    for (int i = n->n_in - 1; i >= 0; i--) {
        ir_size size = node(b, n->in[i])->dim[axis];
        if (v >= 0 && ir_size_is(sizes(b), size, 0)) continue;
        uint16_t x = operand_value(b, id, i, at);
        if (v < 0) {
            v = x;
            continue;
        }
        ir_size end = ir_size_add(sizes(b), before_operand(b, n, i, axis), size);
        uint16_t is_before = binary(b, IR_OP_LT, FUSOR_BOOL, builder_coordinate(b, at, axis), builder_size(b, end));
        v = select_op(b, is_before, x, (uint16_t)v);
    }
    return (uint16_t)v;
}

uint16_t builder_move(builder *b, ir_id id, const chain *at) {
    const ir_node *n = node(b, id);
    if (n->op == IR_OP_CONCAT) return concatenated(b, id, at);
    if (n->op == IR_OP_PAD && enum_of(n, "mode") == PAD_CONSTANT) return padded(b, id, at);
    const uint16_t v = operand_value(b, id, 0, at);
    /* An index decides nothing where the axis has one element, or all that it has are one; it may be wrong all the
     * same. */
    if (plan_has_index(n) && b->status == FUSOR_OK && !b->p->is_checked[id]) (void)taken_index(b, id, at);
    return v;
}

/* ---- checks of indices ---- */
ir_id plan_index_base(const planner *p, ir_id id) {
    for (;;) {
        const ir_node *n = ir_at(p->g, id);
        if (is_leaf(p, id) || p->info[id].home || !ir_view_is_checked_below(p->g, n)) return id;
        id = n->in[0];
    }
}

bool plan_index_is_certain(const planner *p, const ir_node *n) {
    const ir_node *x = ir_at(p->g, n->in[1]);
    int64_t size;
    if (x->op != IR_OP_MINIMUM || ir_is_signed(x->dtype) ||
        !ir_size_is_const(p->g->sizes, ir_at(p->g, n->in[0])->dim[plan_axis_of(n)], &size))
        return false;
    for (int i = 0; i < 2; i++) {
        const ir_node *most = ir_at(p->g, x->in[i]);
        if (most->op == IR_OP_LITERAL && size > 0 && most->bits < (ir_bits)size) return true;
    }
    return false;
}

/* Before whatever uses them; those of parameters before anything runs. One step for each place that is indexed. */
fusor_status plan_check_index(planner *p, ir_id id) {
    const ir_node *n = ir_at(p->g, id);
    const ir_id base = plan_index_base(p, n->in[1]);
    if (p->is_checked[id]) return FUSOR_OK;
    p->is_checked[id] = true;
    if (plan_index_is_certain(p, n)) return FUSOR_OK;
    plan_literal_buffer(p, base);
    const int buffer = p->info[base].buffer;
    if (buffer < 0)
        return FU_FAIL(p->error, FUSOR_ERROR_INTERNAL, "planner: the indices of '%s' have no memory",
                       ir_ops[n->op].name);
    ir_step st = {.kind = IR_STEP_CHECK,
                  .n_args = 1,
                  .arg = FU_NEW_N(p->arena, int, 1),
                  .dim = FU_NEW_N(p->arena, ir_size, 2),
                  .node = id,
                  .base = base,
                  .prepack_param = -1,
                  .reason = "indices are checked before anything is written through them"};
    st.arg[0] = buffer;
    st.dim[0] = ir_at(p->g, n->in[0])->dim[plan_axis_of(n)];
    st.dim[1] = ir_node_count(p->g, ir_at(p->g, n->in[1]));
    fu_push(p->arena, &p->plan->steps, st);
    return FUSOR_OK;
}

bool plan_has_index(const ir_node *n) { return ir_ops[n->op].kind == IR_KIND_INDEX && n->n_in > 1; }
