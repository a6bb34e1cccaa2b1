/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_build.c: one cluster becomes one step: its scalar program, the access maps of its buffers, its dims.
 *
 * value(id, chain) emits the instruction for element `id[chain^-1(kernel index)]`. A chain is the list of index maps (views,
 * broadcasts) between a floating node and the cluster's space; at a leaf the leaf's contiguous strides are pushed through it
 * and come out as one stride for each cluster dim. */
#include "base/small.h"
#include "ir/gpu.h"
#include "ir/plan_builder.h"

const chain *builder_chain(builder *b, const chain *c) {
    for (uint32_t i = 0; i < b->chains.n; i++) {
        const chain *o = b->chains.at[i];
        if (o->kind == c->kind && o->outer == c->outer && o->rank == c->rank && o->mask == c->mask &&
            o->view == c->view && o->operand == c->operand && memcmp(o->coord, c->coord, sizeof o->coord) == 0)
            return o;
    }
    chain *copy = fu_dup(b->p->arena, c, sizeof *c);
    fu_push(b->p->arena, &b->chains, copy);
    return copy;
}

const chain *builder_top(builder *b, int rank, const int8_t *coord) {
    chain c = {.kind = CHAIN_TOP, .rank = rank};
    for (int d = 0; d < rank; d++) c.coord[d] = coord[d];
    return builder_chain(b, &c);
}

/* Operand i of an element-wise node that sits at `at`. */
static const chain *operand_chain(builder *b, const chain *at, const ir_node *n, int i) {
    const ir_node *o = ir_at(b->p->g, n->in[i]);
    uint8_t mask = n->stretch ? n->stretch[i] : 0;
    if (o->rank == n->rank && mask == 0) return at;
    chain c = {.kind = CHAIN_STRETCH, .outer = at, .rank = o->rank, .mask = mask};
    return builder_chain(b, &c);
}

/* The stride of the dim before one of size dim that has stride run. A size of 0 counts as 1, or a row of no elements would
 * have stride 0, which means that nothing varies along it. */
static ir_size next_run(ir_sizes *sz, ir_size run, ir_size dim) {
    return ir_size_is(sz, dim, 0) ? run : ir_size_mul(sz, run, dim);
}

/* Strides over a node's dims -> strides over the cluster's dims. */
bool builder_push(builder *b, const chain *at, const ir_size *in, place *out) {
    const ir_graph *g = b->p->g;
    ir_sizes *sz = g->sizes;
    ir_size s[MAX_SPACE], t[MAX_SPACE];
    out->offset = b->zero;
    out->n_terms = out->n_guards = 0;
    for (int d = 0; d < b->space; d++) out->stride[d] = b->zero;
    if (!at) return true; /* a scalar */
    memcpy(s, in, (size_t)at->rank * sizeof *s);
    for (; at->kind != CHAIN_TOP; at = at->outer) {
        int to = at->outer->rank, from[IR_MAX_RANK];
        if (at->kind == CHAIN_STRETCH) {
            for (int d = 0; d < to; d++) {
                int od = d - (to - at->rank);
                t[d] = od < 0 || (at->mask >> d & 1) ? b->zero : s[od];
            }
        } else if (at->kind == CHAIN_MOVE) {
            builder_move_link(b, at, s, t, out);
        } else {
            const ir_node *n = ir_at(g, at->view);
            const ir_node *x = ir_at(g, n->in[0]);
            if (plan_view_is_index_map(g, n)) {
                plan_view_dims(g, n, from);
                for (int d = 0; d < to; d++) t[d] = from[d] < 0 ? b->zero : s[from[d]];
            } else { /* a reshape of contiguous memory is contiguous */
                ir_size run = b->one;
                for (int d = x->rank - 1; d >= 0; d--) {
                    if (s[d] != run && !ir_size_is(sz, x->dim[d], 1)) return false;
                    run = next_run(sz, run, x->dim[d]);
                }
                run = b->one;
                for (int d = to - 1; d >= 0; d--) {
                    t[d] = ir_size_is(sz, n->dim[d], 1) ? b->zero : run;
                    run = next_run(sz, run, n->dim[d]);
                }
            }
        }
        memcpy(s, t, (size_t)to * sizeof *s);
    }
    for (int d = 0; d < at->rank; d++)
        if (at->coord[d] >= 0) out->stride[at->coord[d]] = ir_size_add(sz, out->stride[at->coord[d]], s[d]);
    return true;
}

static void contiguous(builder *b, const ir_node *n, ir_size out[MAX_SPACE]) {
    ir_size run = b->one;
    for (int d = n->rank - 1; d >= 0; d--) {
        out[d] = ir_size_is(b->p->g->sizes, n->dim[d], 1) ? b->zero : run;
        run = next_run(b->p->g->sizes, run, n->dim[d]);
    }
}

uint16_t builder_fail(builder *b, const char *what) {
    if (b->status == FUSOR_OK) b->status = FU_FAIL(b->p->error, FUSOR_ERROR_INTERNAL, "planner: %s", what);
    return 0;
}

uint16_t builder_inst(builder *b, ir_kinst inst) {
    ir_kernel *k = b->k;
    if (k->n_insts >= IR_KERNEL_MAX_INSTS) return builder_fail(b, "too many instructions in one kernel");
    if (inst.op != IR_K_SCALAR)
        for (int i = 0; i < k->n_insts; i++)
            if (memcmp(&k->inst[i], &inst, sizeof inst) == 0) return (uint16_t)i;
    k->inst[k->n_insts] = inst;
    return (uint16_t)k->n_insts++;
}

uint16_t builder_scalar(builder *b, ir_plan_scalar s) {
    ir_kernel *k = b->k;
    if (k->n_scalars >= IR_KERNEL_MAX_INSTS) return builder_fail(b, "too many scalars in one kernel");
    ir_kinst inst;
    memset(&inst, 0, sizeof inst);
    inst.op = IR_K_SCALAR;
    inst.dtype = s.dtype;
    inst.index = (uint16_t)k->n_scalars;
    k->scalar[k->n_scalars++] = s.dtype;
    fu_push(b->p->arena, &b->scalars, s);
    return builder_inst(b, inst);
}

static uint16_t add_buffer(builder *b, int buffer, bool is_output, ir_dtype t, const ir_size stride[MAX_SPACE],
                           ir_size offset) {
    for (uint32_t i = 0; i < b->accesses.n && !is_output; i++) {
        const access *a = &b->accesses.at[i];
        if (a->buffer == buffer && !a->is_output && a->offset == offset &&
            memcmp(a->stride, stride, (size_t)b->space * sizeof *stride) == 0)
            return (uint16_t)i;
    }
    if (b->accesses.n >= IR_KERNEL_MAX_BUFFERS) return builder_fail(b, "too many buffers in one kernel");
    access a = {.buffer = buffer, .is_output = is_output, .offset = offset};
    memcpy(a.stride, stride, (size_t)b->space * sizeof *stride);
    fu_push(b->p->arena, &b->accesses, a);
    b->k->buffer[b->accesses.n - 1].dtype = t;
    b->k->buffer[b->accesses.n - 1].is_output = is_output;
    b->k->n_buffers = (int)b->accesses.n;
    return (uint16_t)(b->accesses.n - 1);
}

/* ---- boundaries ---- */
static void add_boundary(builder *b, ir_id id) {
    planner *p = b->p;
    const cluster *from = &p->clusters.at[p->info[id].made_by], *to = &p->clusters.at[b->c];
    ir_reason r = p->info[id].reason;
    bool from_reduce = from->kind == CLUSTER_REDUCE,
         to_contract = to->kind == CLUSTER_CONTRACT || to->kind == CLUSTER_WINDOW;
    bool from_contract = from->kind == CLUSTER_CONTRACT || from->kind == CLUSTER_WINDOW;
    const bool is_exact =
        r == IR_REASON_WORKING_SET || r == IR_REASON_REGISTERS; /* says more than the kinds of the two do */
    if (p->options->no_fuse) r = IR_REASON_USER;
    else if (p->info[id].is_barrier) r = IR_REASON_BARRIER;
    else if (is_exact) {
    } else if (from->kind == CLUSTER_REFERENCE || to->kind == CLUSTER_REFERENCE) r = IR_REASON_NO_LOWERING;
    else if (from_contract && to_contract) r = IR_REASON_TWO_CONTRACTIONS;
    else if (from->kind == CLUSTER_SCAN || to->kind == CLUSTER_SCAN) r = IR_REASON_SCAN;
    else if (from->kind == CLUSTER_ATTENTION || to->kind == CLUSTER_ATTENTION)
        r = r == IR_REASON_RECOMPUTE ? r : IR_REASON_ATTENTION;
    else if (from_reduce && to_contract) r = IR_REASON_REDUCE_INTO_CONTRACT;
    else if (from_contract && to->kind == CLUSTER_REDUCE) r = IR_REASON_CONTRACT_THEN_REDUCE;
    else if (from_reduce && to->kind == CLUSTER_REDUCE) r = IR_REASON_REDUCE_OTHER_AXES;
    else if (r >= IR_REASON_COUNT || r == IR_REASON_USER)
        r = from_reduce ? IR_REASON_REDUCE_OTHER_AXES : IR_REASON_SHARED;
    for (uint32_t i = 0; i < p->plan->boundaries.n; i++) {
        const ir_boundary *o = &p->plan->boundaries.at[i];
        if (o->value == id && o->to == (int)p->plan->steps.n) return;
    }
    fu_push(p->arena, &p->plan->boundaries, (ir_boundary){from->step, -1 - b->c, id, r});
}

/* ---- values ---- */
static uint16_t load(builder *b, ir_id id, const chain *at) {
    planner *p = b->p;
    const ir_node *n = ir_at(p->g, id);
    ir_size strides[MAX_SPACE];
    place where = {.is_unguarded = false};
    if (p->info[id].made_by) {
        fusor_status st = plan_build_step(p, p->info[id].made_by);
        if (st != FUSOR_OK) {
            b->status = st;
            return 0;
        }
        add_boundary(b, id);
    }
    contiguous(b, n, strides);
    if (!builder_push(b, n->rank ? at : NULL, strides, &where))
        return builder_fail(b, "a reshape of strided memory is no index map");
    ir_kinst inst;
    memset(&inst, 0, sizeof inst);
    inst.op = IR_K_LOAD;
    inst.dtype = n->dtype;
    if (where.n_terms) inst.in[inst.n_in++] = builder_offset(b, &where), inst.variant |= IR_LOAD_OFFSET;
    if (where.n_guards) inst.in[inst.n_in++] = builder_guard(b, &where), inst.variant |= IR_LOAD_GUARD;
    inst.index = add_buffer(b, p->info[id].buffer, false, n->dtype, where.stride, where.offset);
    return builder_inst(b, inst);
}

uint16_t builder_load(builder *b, ir_id id, const ir_size stride[MAX_SPACE]) {
    return builder_load_guarded(b, id, stride, b->zero, -1);
}

uint16_t builder_load_guarded(builder *b, ir_id id, const ir_size stride[MAX_SPACE], ir_size offset, int guard) {
    planner *p = b->p;
    const ir_node *n = ir_at(p->g, id);
    if (p->info[id].made_by) {
        const fusor_status st = plan_build_step(p, p->info[id].made_by);
        if (st != FUSOR_OK) {
            b->status = st;
            return 0;
        }
        add_boundary(b, id);
    }
    ir_kinst inst;
    memset(&inst, 0, sizeof inst);
    inst.op = IR_K_LOAD;
    inst.dtype = n->dtype;
    inst.index = add_buffer(b, p->info[id].buffer, false, n->dtype, stride, offset);
    if (guard >= 0) inst.in[inst.n_in++] = (uint16_t)guard, inst.variant |= IR_LOAD_GUARD;
    return builder_inst(b, inst);
}

static uint16_t iota(builder *b, ir_id id, const chain *at) {
    const ir_node *n = ir_at(b->p->g, id);
    int64_t axis = n->attr[1].is_set ? n->attr[1].integer : 0;
    if (n->rank == 0) return builder_cast(b, builder_size(b, b->zero), n->dtype);
    return builder_cast(b, builder_coordinate(b, at, (int)(axis < 0 ? axis + n->rank : axis)), n->dtype);
}

void builder_note(builder *b, ir_id id) {
    for (uint32_t i = 0; i < b->ops.n; i++)
        if (b->ops.at[i] == id) return;
    fu_push(b->p->arena, &b->ops, id);
}

/* The row-major number of the element of node n at this chain, as i64: a sum over the kernel's dims, which are known last. Until
 * then an INDEX of no dim stands for it (PLACE + number). */
enum { PLACE = 1000 };
static uint16_t element_number(builder *b, const ir_node *n, const chain *at) {
    ir_size strides[MAX_SPACE];
    place where = {.is_unguarded = true};
    access a = {0};
    contiguous(b, n, strides);
    if (!builder_push(b, n->rank ? at : NULL, strides, &where))
        return builder_fail(b, "random numbers under a reshape");
    memcpy(a.stride, where.stride, sizeof a.stride);
    uint32_t i = 0;
    while (i < b->places.n && memcmp(b->places.at[i].stride, a.stride, (size_t)b->space * sizeof *a.stride) != 0) i++;
    if (i == b->places.n) {
        fu_push(b->p->arena, &b->places, a);
        fu_push(b->p->arena, &b->indexes, a);
    }
    ir_kinst inst;
    memset(&inst, 0, sizeof inst);
    inst.op = IR_K_INDEX;
    inst.dtype = FUSOR_I64;
    inst.index = (uint16_t)(PLACE + i);
    uint16_t number = builder_inst(b, inst);
    if (where.offset != b->zero)
        number = builder_op(b, IR_OP_ADD, FUSOR_I64, 2, (uint16_t[]){number, builder_size(b, where.offset)});
    if (where.n_terms) number = builder_op(b, IR_OP_ADD, FUSOR_I64, 2, (uint16_t[]){number, builder_offset(b, &where)});
    return number;
}

static uint16_t push_op(builder *b, const ir_node *n, ir_id id, int n_in, const uint16_t *in) {
    const ir_op_info *op = &ir_ops[n->op];
    ir_kinst inst;
    memset(&inst, 0, sizeof inst);
    inst.op = (uint16_t)n->op;
    inst.dtype = n->dtype;
    inst.n_in = (uint8_t)n_in;
    memcpy(inst.in, in, (size_t)n_in * sizeof *in);
    int scalars = 0;
    for (int i = 0; i < op->n_attrs; i++) {
        const ir_attr *at = n->attr ? &n->attr[i] : NULL;
        bool set = at && at->is_set, ok = true;
        if (op->attrs[i].type == IR_ATTR_FLOAT) {
            ir_dtype t = ir_at(b->p->g, n->in[0])->dtype;
            if (ir_is_half(t)) t = FUSOR_F32; /* as the reference rounds it */
            double v = set ? at->number : op->attrs[i].default_value;
            inst.in[inst.n_in++] =
                builder_scalar(b, (ir_plan_scalar){.dtype = t, .bits = ir_bits_from_double(t, v, &ok)});
            scalars++;
        } else if (op->attrs[i].type == IR_ATTR_ENUM) {
            inst.variant = (uint16_t)(set ? at->integer : (int64_t)op->attrs[i].default_value);
        } else if (op->kind == IR_KIND_ARGREDUCE && op->attrs[i].type == IR_ATTR_BOOL &&
                   strcmp(op->attrs[i].name, "select_last") == 0) {
            inst.variant = set && at->integer;
        } else if (op->kind == IR_KIND_SCAN && op->attrs[i].type == IR_ATTR_BOOL && set && at->integer) {
            inst.variant |= strcmp(op->attrs[i].name, "reverse") == 0 ? IR_SCAN_REVERSE : IR_SCAN_EXCLUSIVE;
        }
    }
    builder_note(b, id);
    (void)scalars;
    return builder_inst(b, inst);
}

uint16_t builder_cast(builder *b, uint16_t x, ir_dtype t) {
    if (b->k->inst[x].dtype == t) return x;
    ir_kinst inst;
    memset(&inst, 0, sizeof inst);
    inst.op = IR_OP_CAST;
    inst.dtype = t;
    inst.n_in = 1;
    inst.in[0] = x;
    return builder_inst(b, inst);
}

/* A reduction, or a running one. */
static uint16_t reduction(builder *b, const ir_node *n, ir_id id) {
    const ir_node *x = ir_at(b->p->g, n->in[0]);
    int8_t identity[IR_MAX_RANK];
    for (int d = 0; d < x->rank; d++) identity[d] = ir_size_is(b->p->g->sizes, x->dim[d], 1) ? -1 : (int8_t)d;
    /* Integers and bool sum in i64, halves in f32; the extremes of halves too, which is exact and saves conversions. */
    ir_dtype acc = ir_node_accumulator(b->p->g, n);
    if (ir_is_half(acc)) acc = FUSOR_F32;
    uint16_t in = builder_cast(b, builder_value(b, n->in[0], builder_top(b, x->rank, identity)), acc);
    if (ir_ops[n->op].kind == IR_KIND_ARGREDUCE) return push_op(b, n, id, 1, &in);
    ir_node in_acc = *n;
    in_acc.dtype = acc;
    return builder_cast(b, push_op(b, &in_acc, id, 1, &in), n->dtype);
}

static uint16_t product_of_subscripts(builder *b, const ir_node *n, ir_id id) {
    uint16_t in[2];
    for (int i = 0; i < 2; i++) {
        int8_t coord[IR_MAX_RANK];
        plan_einsum_coord(b, n, i, coord);
        in[i] = builder_value(b, n->in[i], builder_top(b, ir_at(b->p->g, n->in[i])->rank, coord));
    }
    ir_node product = *n;
    product.op = IR_OP_MATMUL;
    product.attr = NULL;
    return push_op(b, &product, id, 2, in);
}

static uint16_t contraction(builder *b, const ir_node *n, ir_id id) {
    const cluster *c = &b->p->clusters.at[b->c];
    int batch = c->rank - 2, m = batch, nn = batch + 1, kk = batch + 2;
    uint16_t in[2];
    for (int i = 0; i < 2; i++) {
        const ir_node *x = ir_at(b->p->g, n->in[i]);
        int8_t coord[IR_MAX_RANK];
        bool flip = n->attr && n->attr[i].is_set && n->attr[i].integer && x->rank > 1;
        int keep = i == 0 ? m : nn;
        if (x->rank == 1) {
            coord[0] = (int8_t)kk;
        } else {
            int r = x->rank, first = i == 0 ? keep : kk, second = i == 0 ? kk : keep;
            for (int d = 0; d < r - 2; d++) {
                int at = batch - (r - 2) + d;
                bool repeats = ir_size_is(b->p->g->sizes, x->dim[d], 1);
                coord[d] = repeats ? -1 : (int8_t)at;
            }
            coord[r - 2] = (int8_t)(flip ? second : first);
            coord[r - 1] = (int8_t)(flip ? first : second);
        }
        for (int d = 0; d < x->rank; d++)
            if (ir_size_is(b->p->g->sizes, x->dim[d], 1)) coord[d] = -1;
        in[i] = builder_value(b, n->in[i], builder_top(b, x->rank, coord));
    }
    return push_op(b, n, id, 2, in);
}

/* Is the cluster part of this kernel? */
static bool is_mine(const builder *b, int c) { return c == b->c || (b->tail && c == b->tail); }

static uint16_t compute(builder *b, ir_id id, const chain *at) {
    planner *p = b->p;
    const ir_node *n = ir_at(p->g, id);
    const ir_op_info *op = &ir_ops[n->op];
    uint16_t in[5];
    if (is_mine(b, p->info[id].home)) {
        if (op->kind == IR_KIND_REDUCE || op->kind == IR_KIND_ARGREDUCE) return reduction(b, n, id);
        if (op->kind == IR_KIND_SCAN) return reduction(b, n, id);
        if (op->kind == IR_KIND_CONTRACT) return contraction(b, n, id);
        if (op->kind == IR_KIND_EINSUM) return product_of_subscripts(b, n, id);
        if (op->kind == IR_KIND_CONV) {
            builder_note(b, id);
            return plan_window_value(b, n);
        }
        if (op->kind == IR_KIND_ATTENTION) return builder_attention(b, n, id);
        at = builder_top(b, n->rank, p->info[id].coord);
    }
    switch (op->kind) {
    case IR_KIND_VIEW: {
        if (is_mine(b, p->info[id].home) && p->info[n->in[0]].home == p->info[id].home)
            return builder_value(b, n->in[0], NULL);
        chain v = {.kind = CHAIN_VIEW, .outer = at, .rank = ir_at(p->g, n->in[0])->rank, .view = id};
        return builder_value(b, n->in[0], builder_chain(b, &v));
    }
    case IR_KIND_MOVE:
    case IR_KIND_INDEX: builder_note(b, id); return builder_move(b, id, at);
    case IR_KIND_CREATE:
        if (n->op == IR_OP_IOTA) return iota(b, id, at);
        if (n->op == IR_OP_DIM) {
            const ir_node *x = ir_at(p->g, n->in[0]);
            int64_t axis = n->attr[0].integer;
            return builder_scalar(b, (ir_plan_scalar){.dtype = FUSOR_I64,
                                                      .kind = IR_SCALAR_SIZE,
                                                      .size = x->dim[axis < 0 ? axis + x->rank : axis]});
        } else {
            chain c = {.kind = CHAIN_STRETCH, .outer = at, .rank = 0};
            return builder_value(b, n->in[0], builder_chain(b, &c));
        }
    case IR_KIND_RANDOM: {
        chain c = {.kind = CHAIN_STRETCH, .outer = at, .rank = 0};
        in[0] = builder_value(b, n->in[0], builder_chain(b, &c));
        in[1] = element_number(b, n, at);
        return push_op(b, n, id, 2, in);
    }
    default: break;
    }
    for (int i = 0; i < n->n_in; i++) in[i] = builder_value(b, n->in[i], operand_chain(b, at, n, i));
    return push_op(b, n, id, n->n_in, in);
}

uint16_t builder_value(builder *b, ir_id id, const chain *at) {
    planner *p = b->p;
    const ir_node *n = ir_at(p->g, id);
    const node_info *v = &p->info[id];
    if (b->status != FUSOR_OK) return 0;
    if (n->op == IR_OP_LITERAL) return builder_scalar(b, (ir_plan_scalar){.dtype = n->dtype, .bits = n->bits});
    const bool is_here = is_mine(b, v->home) || is_mine(b, v->made_by);
    if (is_mine(b, v->home)) at = NULL;
    for (uint32_t i = 0; i < b->memos.n; i++)
        if (b->memos.at[i].id == id && b->memos.at[i].at == at) return b->memos.at[i].inst;
    uint16_t inst = !is_here && (is_leaf(p, id) || v->home) ? load(b, id, at) : compute(b, id, at);
    fu_push(p->arena, &b->memos, (memo){id, at, inst});
    return inst;
}

/* ---- dims ---- */
bool builder_mergeable(const builder *b, int x, int y) {
    ir_sizes *sz = b->p->g->sizes;
    for (uint32_t i = 0; i < b->accesses.n + b->indexes.n; i++) {
        const access *a = i < b->accesses.n ? &b->accesses.at[i] : &b->indexes.at[i - b->accesses.n];
        if (a->stride[x] != ir_size_mul(sz, a->stride[y], b->dim[y])) return false;
    }
    return true;
}

/* MAP: the dim along which inputs are contiguous that have the last dim's elements apart; -1: there is none. Where the last dim is
 * short, or that one is, blocks of both are no use. */
static int transposed_dim(builder *b) {
    const ir_sizes *sz = b->p->g->sizes;
    int last = b->space - 1, found = -1;
    int64_t n = 0;
    while (last >= 0 && ir_size_is(sz, b->dim[last], 1)) last--;
    if (last < 1 || (ir_size_is_const(sz, b->dim[last], &n) && n <= IR_BAKE_MAX)) return -1;
    for (uint32_t i = 0; i < b->accesses.n; i++) {
        const access *a = &b->accesses.at[i];
        if (a->is_output && a->stride[last] != b->one) return -1;
        if (a->is_output || ir_size_is_const(sz, a->stride[last], &n)) {
            if (a->is_output || (n >= -1 && n <= 4)) continue;
        }
        for (int d = 0; d < last; d++) {
            if (a->stride[d] != b->one || ir_size_is(sz, b->dim[d], 1) ||
                (ir_size_is_const(sz, b->dim[d], &n) && n < 16))
                continue;
            if (found >= 0 && found != d) return -1;
            found = d;
        }
    }
    return found;
}

/* MAP on a CPU: the dim along which vectors go where the last one is of a few elements that its inputs have apart (not 2 to 4 elements,
 * which are whole vectors and shuffles): one along which an input is contiguous, else, for very few, the largest that is known; else
 * the last one, `last`. (Elements of several tensors that take turns: their stores are apart.) */
static int vector_dim(builder *b, int last) {
    enum { FEW = 8, VERY_FEW = 4, MANY = 16 };
    const ir_sizes *sz = b->p->g->sizes;
    int64_t n = 0, most = MANY - 1;
    int contiguous_dim = -1, largest = last;
    bool may_gather = false;
    if (ir_level_is_gpu(b->k->level) || last < 1 || !ir_size_is_const(sz, b->dim[last], &n) || n > FEW) return last;
    const bool is_very_few = n <= VERY_FEW;
    for (uint32_t i = 0; i < b->accesses.n; i++) {
        const access *a = &b->accesses.at[i];
        if (a->is_output) continue;
        may_gather = is_very_few;
        if (ir_size_is_const(sz, a->stride[last], &n) && n != 0 && n >= -1 && n <= 4) return last;
        for (int d = 0; d < last; d++)
            if (a->stride[d] == b->one && !ir_size_is(sz, b->dim[d], 1) &&
                !(ir_size_is_const(sz, b->dim[d], &n) && n < MANY))
                contiguous_dim = d;
    }
    for (int d = 0; d < last && may_gather; d++)
        if (ir_size_is_const(sz, b->dim[d], &n) && n > most) {
            most = n;
            largest = d;
        }
    return contiguous_dim >= 0 ? contiguous_dim : largest;
}

/* The sums that place() left open: over the kernel's dims, whose cluster dims are order[]. */
static void make_places(builder *b, const int *order) {
    ir_kernel *k = b->k;
    if (!b->places.n) return;
    int n = k->n_insts;
    ir_kinst *old = fu_dup(b->p->arena, k->inst, (size_t)n * sizeof *old);
    uint16_t *now = FU_NEW_N(b->p->arena, uint16_t, n);
    k->n_insts = 0;
    for (int i = 0; i < n; i++) {
        ir_kinst inst = old[i];
        for (int j = 0; j < inst.n_in; j++) inst.in[j] = now[inst.in[j]];
        if (inst.op != IR_K_INDEX || inst.index < PLACE) {
            if (k->n_insts == IR_KERNEL_MAX_INSTS) {
                builder_fail(b, "too many instructions in one kernel");
                return;
            }
            k->inst[k->n_insts] = inst; /* as it was: builder_inst would merge stores */
            now[i] = (uint16_t)k->n_insts++;
            continue;
        }
        const access *a = &b->places.at[inst.index - PLACE];
        int sum = -1;
        for (int d = 0; d < k->n_dims; d++) {
            ir_size s = order[d] == MAX_SPACE - 1 ? b->zero : a->stride[order[d]];
            if (s == b->zero) continue;
            ir_kinst x;
            memset(&x, 0, sizeof x);
            x.dtype = FUSOR_I64;
            x.op = IR_K_INDEX;
            x.index = (uint16_t)d;
            uint16_t term = builder_inst(b, x);
            x.index = 0;
            x.n_in = 2;
            if (s != b->one) {
                x.op = IR_OP_MUL;
                x.in[0] = term;
                x.in[1] = builder_scalar(b, (ir_plan_scalar){.dtype = FUSOR_I64, .kind = IR_SCALAR_SIZE, .size = s});
                term = builder_inst(b, x);
            }
            x.op = IR_OP_ADD;
            x.in[0] = (uint16_t)sum;
            x.in[1] = term;
            sum = sum < 0 ? term : builder_inst(b, x);
        }
        now[i] = sum >= 0 ? (uint16_t)sum : builder_scalar(b, (ir_plan_scalar){.dtype = FUSOR_I64});
    }
    for (int i = 0; i < k->n_axes; i++) k->axis[i].size = now[k->axis[i].size];
}

/* Column form of a scan: the first of the dims from which on memory runs on to the column in every buffer; they are walked as one. */
static int first_column(builder *b, const cluster *c) {
    int first = c->column;
    for (int d = c->column - 1; d > c->scanned; d--) {
        if (ir_size_is(b->p->g->sizes, b->dim[d], 1)) continue;
        if (!builder_mergeable(b, d, first)) break;
        b->dim[first] = ir_size_mul(b->p->g->sizes, b->dim[d], b->dim[first]);
        b->dim[d] = b->one; /* its strides are those of the column, whose size it is part of now */
    }
    return first;
}

static void order_dims(builder *b, ir_step *st) {
    const cluster *c = &b->p->clusters.at[b->c];
    ir_sizes *sz = b->p->g->sizes;
    ir_kernel *k = b->k;
    int order[MAX_SPACE + 1], n = 0;
    char role[MAX_SPACE + 1];
    bool contract = c->kind == CLUSTER_CONTRACT;
#define TAKE(cond, r)                                                                                                  \
    for (int d = 0; d < b->space; d++)                                                                                 \
        if ((cond) && (contract && d >= c->rank - 2 ? true : !ir_size_is(sz, b->dim[d], 1)))                           \
            order[n] = d, role[n++] = (r);
    const bool has_subscripts = contract && ir_at(b->p->g, c->anchor)->op == IR_OP_EINSUM;
    if (has_subscripts) {
        n = plan_einsum_order(b, ir_at(b->p->g, c->anchor), order, role);
    } else if (contract) {
        TAKE(d < c->rank - 2, 'b')
        TAKE(d == c->rank - 2, 'm')
        TAKE(d == c->rank - 1, 'n')
        TAKE(d == c->rank, 'k')
    } else if (c->kind == CLUSTER_WINDOW) {
        n = plan_window_order(b, ir_at(b->p->g, c->anchor), order, role);
    } else if (c->kind == CLUSTER_ATTENTION) { /* queries, values, head size and keys are dims at size 1 too */
        const int heads =
            b->space == c->rank + 3 ? c->rank - 3 : c->rank - 2; /* from here on they have roles of their own */
        TAKE(d < heads, 'b')
        for (int d = heads; d < b->space; d++) order[n] = d, role[n++] = "hmnkjg"[d - (c->rank - 3)];
    } else if (c->kind == CLUSTER_REDUCE) {
        bool column = c->column >= 0 && k->kind == IR_KERNEL_REDUCE;
        TAKE(!(c->reduced >> d & 1) && !(column && d == c->column), 'p')
        int before = n;
        TAKE(c->reduced >> d & 1, 'r')
        if (n == before) { /* every reduced size is 1, or there is no axis: one element is reduced */
            order[n] = MAX_SPACE - 1;
            role[n++] = 'r';
        }
        if (column) TAKE(d == c->column, 'v')
    } else if (c->kind == CLUSTER_SCAN) {
        int column = c->column >= 0 ? first_column(b, c) : -1;
        TAKE(d != c->scanned && d != column, 'p')
        TAKE(d == c->scanned, 'r')
        TAKE(d == column, 'v')
    } else {
        int t = transposed_dim(b), last = b->space - 1;
        if (c->anchor)
            last = (int)ir_at(b->p->g, c->anchor)->attr[0].integer,
            t = MAX_SPACE; /* a scatter's axis is walked in order */
        else
            while (last > 0 && ir_size_is(sz, b->dim[last], 1)) last--;
        const int along = c->anchor || t >= 0 ? last : vector_dim(b, last);
        if (along != last) last = along, t = MAX_SPACE;
        TAKE(d != t && (t < 0 || d != last), 'p') /* t past the space: last only moves to the end */
        TAKE(d == t, 't')
        TAKE(t >= 0 && d == last, 'p')
    }
#undef TAKE
    /* merge neighbours of one role, and a batch that only operand 0 has into the rows */
    for (int d = has_subscripts ? -1 : n - 2; d >= 0; d--) {
        bool same = role[d] == role[d + 1] && role[d] != 'v' && c->kind != CLUSTER_WINDOW;
        if (contract && role[d] == 'b' && role[d + 1] == 'm') same = true;
        if (role[d] == 'r' && order[d] != MAX_SPACE - 1 && !(c->merged >> order[d] & 1)) same = false;
        if (!same || order[d] == MAX_SPACE - 1 || order[d + 1] == MAX_SPACE - 1 ||
            !builder_mergeable(b, order[d], order[d + 1]))
            continue;
        if (role[d] == 'b' && role[d + 1] == 'm' && ir_size_is(sz, b->dim[order[d + 1]], 1)) continue;
        b->dim[order[d + 1]] = ir_size_mul(sz, b->dim[order[d]], b->dim[order[d + 1]]);
        memmove(&order[d], &order[d + 1], (size_t)(n - d - 1) * sizeof *order);
        memmove(&role[d], &role[d + 1], (size_t)(n - d - 1));
        n--;
    }
    k->n_dims = n;
    const bool is_gpu = ir_level_is_gpu(k->level);
    st->dim = FU_NEW_N(b->p->arena, ir_size, n);
    st->stride = FU_NEW_N(b->p->arena, ir_size, n * k->n_buffers);
    for (int d = 0; d < n; d++) {
        ir_size size = order[d] == MAX_SPACE - 1 ? b->one : b->dim[order[d]];
        int64_t v = 0;
        /* On a GPU one length is as good as another, and an optimizer's maps of all parameters are one kernel. */
        bool bakes = strchr("rnk", role[d]) != NULL || (k->kind == IR_KERNEL_MAP && d == n - 1 && !(is_gpu && n == 1));
        bakes = bakes && (c->kind != CLUSTER_WINDOW || role[d] == 'k') && ir_size_is_const(sz, size, &v) &&
                v <= (is_gpu && c->kind == CLUSTER_ATTENTION ? IR_GPU_ATTENTION_BAKE : IR_BAKE_MAX);
        k->dim[d] = (ir_kdim){role[d], bakes ? v : IR_SIZE_RUNTIME};
        st->dim[d] = size;
        for (int i = 0; i < k->n_buffers; i++) {
            ir_size s = order[d] == MAX_SPACE - 1 ? b->zero : b->accesses.at[i].stride[order[d]];
            /* along the lanes, loads of every 2nd to 4th element, or backwards, are whole vectors and shuffles */
            bool spreads = d == n - 1 && !contract && c->kind != CLUSTER_ATTENTION && !k->buffer[i].is_output;
            spreads |= role[d] == 'n' && i == b->window[1] && c->kind == CLUSTER_WINDOW;
            bool baked =
                ir_size_is_const(sz, s, &v) && (v == 0 || v == 1 || (spreads && (v == -1 || (v >= 2 && v <= 4))));
            k->buffer[i].stride[d] = baked ? v : IR_STRIDE_RUNTIME;
            st->stride[i * n + d] = s;
        }
    }
    for (int i = 0; i < k->n_insts; i++) {
        if (k->inst[i].op != IR_K_INDEX) continue;
        for (int d = 0; d < n; d++)
            if (order[d] == k->inst[i].index) {
                k->inst[i].index = (uint16_t)d;
                break;
            }
    }
    make_places(b, order);
}

/* Values of a pass that a later pass reads again are kept where a function makes them costly. (A row program's of the first pass are
 * read from the kept rows of the contraction.) */
static void mark_kept(ir_kernel *k) {
    uint32_t r = 0;
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].role == (k->kind == IR_KERNEL_CONTRACT ? 'n' : 'r')) r |= 1u << d;
    for (int i = 0; i < k->n_insts; i++) {
        uint16_t op = k->inst[i].op;
        if (op >= IR_OP_COUNT || !(ir_ops[op].flags & IR_COSTLY) || !(ir_kernel_varies(k, i) & r)) continue;
        int pass = ir_kernel_pass(k, i);
        if (k->kind == IR_KERNEL_CONTRACT && pass == 0) continue;
        for (int u = i + 1; u < k->n_insts && !k->inst[i].is_kept; u++) {
            if (ir_kernel_is_reduce_op(k->inst[u].op) || ir_kernel_pass(k, u) <= pass) continue;
            for (int j = 0; j < k->inst[u].n_in; j++)
                if (k->inst[u].in[j] == i) k->inst[i].is_kept = true;
        }
    }
}

/* ---- steps ---- */
static ir_step *push_step(planner *p, int c, ir_step st) {
    for (uint32_t i = 0; i < p->plan->boundaries.n; i++) {
        ir_boundary *o = &p->plan->boundaries.at[i];
        if (o->to == -1 - c) o->to = (int)p->plan->steps.n;
    }
    p->clusters.at[c].step = (int)p->plan->steps.n;
    if (p->clusters.at[c].tail) p->clusters.at[p->clusters.at[c].tail].step = (int)p->plan->steps.n;
    fu_push(p->arena, &p->plan->steps, st);
    return &p->plan->steps.at[p->plan->steps.n - 1];
}

static fusor_status build_reference(planner *p, int c) {
    ir_id id = p->clusters.at[c].anchor;
    const ir_node *n = ir_at(p->g, id);
    builder b = {.p = p, .c = c};
    ir_step st = {.kind = IR_STEP_REFERENCE,
                  .node = id,
                  .n_args = n->n_in + 1,
                  .arg = FU_NEW_N(p->arena, int, n->n_in + 1),
                  .prepack_param = -1};
    for (int i = 0; i < n->n_in; i++) {
        const node_info *v = &p->info[n->in[i]];
        plan_literal_buffer(p, n->in[i]);
        if (v->made_by) {
            FU_TRY(plan_build_step(p, v->made_by));
            add_boundary(&b, n->in[i]);
        }
        if (v->buffer < 0)
            return FU_FAIL(p->error, FUSOR_ERROR_INTERNAL, "planner: an operand of '%s' has no memory",
                           ir_ops[n->op].name);
        st.arg[i] = v->buffer;
    }
    st.arg[n->n_in] = p->info[id].buffer;
    if (plan_has_index(n)) FU_TRY(plan_check_index(p, id));
    st.ops = fu_dup(p->arena, &id, sizeof id);
    st.n_ops = 1;
    st.reason =
        p->options->reference ? "the reference evaluator was asked for" : ir_reason_texts[IR_REASON_NO_LOWERING];
    push_step(p, c, st);
    return FUSOR_OK;
}

static void add_store(builder *b, ir_id id, uint16_t inst, int buffer) {
    const ir_node *n = ir_at(b->p->g, id);
    const node_info *v = &b->p->info[id];
    ir_size strides[MAX_SPACE], out[MAX_SPACE];
    contiguous(b, n, strides);
    for (int d = 0; d < b->space; d++) out[d] = b->zero;
    for (int d = 0; d < n->rank; d++) {
        int at = is_mine(b, v->home) ? v->coord[d] : d;
        if (at >= 0 && strides[d] != b->zero) out[at] = strides[d];
    }
    /* the dims m and n of a contraction are there at size 1 too; its result is stored along both */
    const cluster *c = &b->p->clusters.at[b->c];
    for (int d = 1; d < c->rank && c->kind == CLUSTER_WINDOW; d += d == 1 && c->rank > 3 ? c->rank - 3 : 1)
        if (ir_size_is(b->p->g->sizes, b->dim[d], 1)) out[d] = b->one;
    for (int d = c->rank - 2; d < c->rank && (c->kind == CLUSTER_CONTRACT || c->kind == CLUSTER_ATTENTION); d++)
        if (d >= 0 && ir_size_is(b->p->g->sizes, b->dim[d], 1)) out[d] = b->one;
    ir_kinst st;
    memset(&st, 0, sizeof st);
    st.op = IR_K_STORE;
    st.dtype = n->dtype;
    st.n_in = 1;
    st.in[0] = inst;
    st.index = add_buffer(b, buffer, true, n->dtype, out, b->zero);
    builder_inst(b, st);
}

/* A scatter: its result is a copy of operand 0 by the step before, and each update is stored where its index says, combined with
 * what is there by then. Lines along other axes are independent; in one, updates come one after the other. */
static void add_scatter(builder *b, ir_id id, const int8_t *identity) {
    planner *p = b->p;
    const ir_node *n = ir_at(p->g, id);
    int axis = (int)n->attr[0].integer, buffer = p->info[id].buffer;
    ir_op combine = ir_scatter_combine(n->attr[1].is_set ? n->attr[1].integer : 0);
    ir_size strides[MAX_SPACE], out[MAX_SPACE];
    uint16_t update = builder_value(b, n->in[2], builder_top(b, n->rank, identity)),
             i = builder_value(b, n->in[1], builder_top(b, n->rank, identity));
    if (b->status == FUSOR_OK) b->status = plan_check_index(p, id);
    if (b->status != FUSOR_OK) return;
    contiguous(b, n, strides);
    for (int d = 0; d < b->space; d++) out[d] = d == axis || identity[d] < 0 ? b->zero : strides[d];
    place where = {.n_terms = 1,
                   .term = {builder_wrapped(b, id, i)},
                   .term_stride = {strides[axis] == b->zero ? b->one : strides[axis]}};
    ir_kinst inst;
    memset(&inst, 0, sizeof inst);
    inst.dtype = n->dtype;
    inst.variant = IR_LOAD_OFFSET;
    uint16_t offset = builder_offset(b, &where);
    if (combine != IR_OP_NONE) {
        inst.op = IR_K_LOAD;
        inst.n_in = 1;
        inst.in[0] = offset;
        inst.index = add_buffer(b, buffer, false, n->dtype, out, b->zero);
        update = builder_op(b, combine, n->dtype, 2, (uint16_t[]){builder_inst(b, inst), update});
    }
    inst.op = IR_K_STORE;
    inst.variant = IR_STORE_OFFSET;
    inst.n_in = 2;
    inst.in[0] = update;
    inst.in[1] = offset;
    inst.index = add_buffer(b, buffer, true, n->dtype, out, b->zero);
    builder_inst(b, inst);
    builder_note(b, id);
}

/* The copy before it. */
static fusor_status copy_operand(builder *b, ir_id id) {
    planner *p = b->p;
    ir_id x = ir_at(p->g, id)->in[0];
    ir_step st = {.kind = IR_STEP_COPY,
                  .n_args = 2,
                  .arg = FU_NEW_N(p->arena, int, 2),
                  .prepack_param = -1,
                  .reason = "updates are scattered into a copy"};
    if (p->info[x].made_by) FU_TRY(plan_build_step(p, p->info[x].made_by));
    if (p->info[x].buffer < 0)
        return FU_FAIL(p->error, FUSOR_ERROR_INTERNAL, "planner: an operand of 'scatter' has no memory");
    st.arg[0] = p->info[x].buffer;
    st.arg[1] = p->info[id].buffer;
    fu_push(p->arena, &p->plan->steps, st);
    return FUSOR_OK;
}

/* Node that a kernel stores: its cluster's, then those of the tail. */
static ir_id stored(const planner *p, int c, uint32_t s) {
    const cluster *k = &p->clusters.at[c];
    return s < k->stores.n ? k->stores.at[s] : p->clusters.at[k->tail].stores.at[s - k->stores.n];
}

static fusor_status build_kernel(planner *p, int c) {
    cluster *cl = &p->clusters.at[c];
    builder b = {.p = p, .c = c, .tail = cl->tail, .k = FU_NEW(p->arena, ir_kernel), .space = cl->rank};
    memcpy(b.dim, cl->dim, (size_t)cl->rank * sizeof *cl->dim);
    b.zero = ir_size_const(p->g->sizes, 0);
    b.one = ir_size_const(p->g->sizes, 1);
    b.k->level = p->options->level;
    b.k->fast_math = p->options->fast_math;
    b.k->kind = cl->kind == CLUSTER_MAP         ? IR_KERNEL_MAP
                : cl->kind == CLUSTER_SCAN      ? IR_KERNEL_SCAN
                : cl->kind == CLUSTER_CONTRACT  ? IR_KERNEL_CONTRACT
                : cl->kind == CLUSTER_ATTENTION ? IR_KERNEL_ATTENTION
                : cl->kind == CLUSTER_WINDOW    ? IR_KERNEL_WINDOW
                : cl->is_row                    ? IR_KERNEL_ROW
                                                : IR_KERNEL_REDUCE;
    int8_t identity[IR_MAX_RANK];
    for (int d = 0; d < IR_MAX_RANK; d++)
        identity[d] = d < cl->rank && !ir_size_is(p->g->sizes, cl->dim[d], 1) ? (int8_t)d : -1;
    if (cl->kind == CLUSTER_CONTRACT) {
        const ir_node *n = ir_at(p->g, cl->anchor), *x = ir_at(p->g, n->in[0]);
        bool flip = n->op == IR_OP_MATMUL && n->attr && n->attr[0].is_set && n->attr[0].integer && x->rank > 1;
        if (n->op == IR_OP_EINSUM) plan_einsum_space(&b, n);
        else b.dim[b.space++] = x->dim[flip ? x->rank - 2 : x->rank - 1];
        ir_target target = {p->options->level, p->options->features};
        ir_dtype y = ir_at(p->g, n->in[1])->dtype, acc = ir_contract_acc(x->dtype, y, n->dtype);
        ir_dot dot = ir_contract_dot(target, x->dtype, y, acc);
        int64_t columns = -1;
        if (n->op == IR_OP_MATMUL) ir_size_is_const(p->g->sizes, cl->dim[cl->rank - 1], &columns);
        b.k->tile = dot ? ir_dot_tile(target.level, dot) : ir_contract_tile_of(target.level, acc, columns);
        b.k->features = ir_contract_features(target, x->dtype, y, acc);
    }
    if (cl->kind == CLUSTER_WINDOW) plan_window_space(&b, ir_at(p->g, cl->anchor));
    if (cl->kind == CLUSTER_ATTENTION) builder_attention_space(&b, ir_at(p->g, cl->anchor));
    ir_id scatter = cl->kind == CLUSTER_MAP ? cl->anchor : 0;
    const uint32_t n_own = scatter ? 0 : cl->stores.n,
                   n_stores = n_own + (cl->tail ? p->clusters.at[cl->tail].stores.n : 0);
    uint16_t *inst = FU_NEW_N(p->arena, uint16_t, n_stores);
    if (scatter) add_scatter(&b, scatter, identity);
    for (uint32_t s = 0; s < n_stores; s++) {
        ir_id id = stored(p, c, s);
        inst[s] = builder_value(
            &b, id, is_mine(&b, p->info[id].home) ? NULL : builder_top(&b, p->clusters.at[c].rank, identity));
    }
    for (uint32_t s = 0; s < n_stores; s++) {
        ir_id id = stored(p, c, s);
        add_store(&b, id, inst[s], p->info[id].buffer);
        /* a value that is the result of several names is stored for each of them that overwrites no parameter */
        for (uint32_t r = 0; r < p->g->results.n; r++) {
            int out = (int)(p->g->params.n + r);
            if (p->g->results.at[r].node == id && out != p->info[id].buffer && p->g->results.at[r].alias < 0)
                add_store(&b, id, inst[s], out);
        }
    }
    cl = &p->clusters.at[c];
    for (uint32_t i = 0; i < cl->kept.n; i++) {
        const uint16_t value = builder_value(&b, cl->kept.at[i], NULL);
        b.k->inst[value].is_kept = true; /* now that no instruction is compared with it any more */
    }
    FU_TRY(b.status);
    ir_step st = {.kind = IR_STEP_KERNEL, .kernel = b.k, .prepack_param = -1};
    order_dims(&b, &st);
    FU_TRY(b.status);
    if (cl->kind == CLUSTER_CONTRACT && ir_at(p->g, cl->anchor)->op == IR_OP_EINSUM) { /* now the columns are known */
        const ir_dtype acc = ir_kernel_contract_acc(b.k);
        int64_t columns = -1;
        ir_size_is_const(p->g->sizes, st.dim[b.k->n_dims - 2], &columns);
        if (!ir_kernel_contract_dot(b.k)) b.k->tile = ir_contract_tile_of(b.k->level, acc, columns);
    }
    if (b.k->kind == IR_KERNEL_ROW || b.tail) mark_kept(b.k);
    st.n_args = b.k->n_buffers;
    st.arg = FU_NEW_N(p->arena, int, st.n_args);
    st.offset = FU_NEW_N(p->arena, ir_size, st.n_args);
    for (int i = 0; i < st.n_args; i++) {
        st.arg[i] = b.accesses.at[i].buffer;
        st.offset[i] = b.accesses.at[i].offset;
    }
    st.scalar = b.scalars.at;
    st.ops = b.ops.at;
    st.n_ops = (int)b.ops.n;
    if (b.k->kind == IR_KERNEL_CONTRACT || ir_kernel_window_packs(b.k)) { /* what phase 0 packs */
        for (int i = 0; i < b.k->n_insts; i++) {
            if (b.k->inst[i].op != IR_OP_MATMUL) continue;
            const ir_kinst *w = b.k->kind == IR_KERNEL_WINDOW ? ir_kernel_window_operand(b.k, 0) : &b.k->inst[b.k->inst[i].in[1]];
            if (w->op != IR_K_LOAD || w->variant) continue;
            const ir_plan_buffer *pb = &p->plan->buffers.at[st.arg[w->index]];
            if (pb->storage == IR_STORE_INPUT && p->g->params.at[pb->index].is_const) st.prepack_param = pb->index;
        }
    }
    plan_make_direct(p, b.k, &st);
    FU_TRY(ir_kernel_verify(b.k, p->error));
    if (scatter) FU_TRY(copy_operand(&b, scatter));
    push_step(p, c, st);
    return FUSOR_OK;
}

fusor_status plan_build_step(planner *p, int c) {
    if (p->clusters.at[c].head) c = p->clusters.at[c].head;
    if (p->clusters.at[c].step >= 0 || (p->clusters.at[c].stores.n == 0 && !p->clusters.at[c].tail)) return FUSOR_OK;
    if (p->clusters.at[c].is_building)
        return FU_FAIL(p->error, FUSOR_ERROR_INTERNAL, "planner: kernels depend on each other in a cycle");
    p->clusters.at[c].is_building = true;
    fusor_status st = p->clusters.at[c].kind == CLUSTER_REFERENCE ? build_reference(p, c) : build_kernel(p, c);
    p->clusters.at[c].is_building = false;
    return st;
}
