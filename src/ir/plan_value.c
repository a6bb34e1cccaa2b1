/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_value.c: the values of one kernel, as instructions.
 *
 * value(id, chain) emits the instruction for element `id[chain^-1(kernel index)]`. A chain is the list of index maps
 * (views, broadcasts) between a floating node and the cluster's space; at a leaf the leaf's contiguous strides are
 * pushed through it and come out as one stride for each cluster dim. */
#include "base/small.h"
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

/* The stride of the dim before one of size dim that has stride run. A size of 0 counts as 1, or a row of no elements
 * would have stride 0, which means that nothing varies along it. */
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
            if (ir_view_is_index_map(g, n)) {
                ir_view_dims(g, n, from);
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

void builder_contiguous(builder *b, const ir_node *n, ir_size out[MAX_SPACE]) {
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

uint16_t builder_buffer(builder *b, int buffer, bool is_output, ir_dtype t, const ir_size stride[MAX_SPACE],
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

/* What is told of why `to` reads value `id` from memory: what was noted where it was refused, unless the kinds of the
 * two kernels say more. */
static ir_reason reason_between(const planner *p, ir_id id, const cluster *from, const cluster *to) {
    const ir_reason noted = p->info[id].reason;
    const bool from_reduce = from->kind == CLUSTER_REDUCE, to_reduce = to->kind == CLUSTER_REDUCE;
    const bool from_contract = from->kind == CLUSTER_CONTRACT || from->kind == CLUSTER_WINDOW,
               to_contract = to->kind == CLUSTER_CONTRACT || to->kind == CLUSTER_WINDOW;
    if (p->options->no_fuse) return IR_REASON_USER;
    if (p->info[id].is_barrier) return IR_REASON_BARRIER;
    if (noted == IR_REASON_WORKING_SET || noted == IR_REASON_REGISTERS || (from_reduce && !p->info[id].home))
        return noted;
    if (from->kind == CLUSTER_REFERENCE || to->kind == CLUSTER_REFERENCE) return IR_REASON_NO_LOWERING;
    if (from_contract && to_contract) return IR_REASON_TWO_CONTRACTIONS;
    if (from->kind == CLUSTER_SCAN || to->kind == CLUSTER_SCAN) return IR_REASON_SCAN;
    if (from->kind == CLUSTER_ATTENTION || to->kind == CLUSTER_ATTENTION)
        return noted == IR_REASON_RECOMPUTE ? noted : IR_REASON_ATTENTION;
    if (from_reduce && to_contract) return IR_REASON_REDUCE_INTO_CONTRACT;
    if (from_contract && to_reduce) return IR_REASON_CONTRACT_THEN_REDUCE;
    if (from_reduce && to_reduce) return IR_REASON_REDUCE_OTHER_AXES;
    if (noted < IR_REASON_COUNT && noted != IR_REASON_USER) return noted;
    return from_reduce ? IR_REASON_REDUCE_OTHER_AXES : IR_REASON_SHARED;
}

void builder_boundary(builder *b, ir_id id) {
    planner *p = b->p;
    const cluster *from = &p->clusters.at[p->info[id].made_by];
    for (int i = 0; i < from->n_parts; i++) builder_boundary(b, from->part[i]);
    if (from->n_parts) return;
    for (uint32_t i = 0; i < p->plan->boundaries.n; i++) {
        const ir_boundary *o = &p->plan->boundaries.at[i];
        if (o->value == id && o->to == -1 - b->c) return;
    }
    const ir_reason r = reason_between(p, id, from, &p->clusters.at[b->c]);
    fu_push(p->arena, &p->plan->boundaries, (ir_boundary){from->step, -1 - b->c, id, r});
}

static uint16_t load(builder *b, ir_id id, const chain *at) {
    planner *p = b->p;
    const ir_node *n = ir_at(p->g, id);
    ir_size strides[MAX_SPACE];
    place where = {.is_unguarded = false};
    if (p->info[id].made_by && id != b->band) {
        fusor_status st = plan_build_step(p, p->info[id].made_by);
        if (st != FUSOR_OK) {
            b->status = st;
            return 0;
        }
        builder_boundary(b, id);
    }
    builder_contiguous(b, n, strides);
    if (!builder_push(b, n->rank ? at : NULL, strides, &where))
        return builder_fail(b, "a reshape of strided memory is no index map");
    if (id == b->band && where.stride[1] == b->zero) where.stride[1] = b->one; /* one channel is a dim too */
    ir_kinst inst;
    memset(&inst, 0, sizeof inst);
    inst.op = IR_K_LOAD;
    inst.dtype = n->dtype;
    if (where.n_terms) inst.in[inst.n_in++] = builder_offset(b, &where), inst.variant |= IR_LOAD_OFFSET;
    if (where.n_guards) inst.in[inst.n_in++] = builder_guard(b, &where), inst.variant |= IR_LOAD_GUARD;
    inst.index = builder_buffer(b, p->info[id].buffer, false, n->dtype, where.stride, where.offset);
    b->k->buffer[inst.index].is_band = id == b->band;
    return builder_inst(b, inst);
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
        builder_boundary(b, id);
    }
    ir_kinst inst;
    memset(&inst, 0, sizeof inst);
    inst.op = IR_K_LOAD;
    inst.dtype = n->dtype;
    inst.index = builder_buffer(b, p->info[id].buffer, false, n->dtype, stride, offset);
    if (guard >= 0) inst.in[inst.n_in++] = (uint16_t)guard, inst.variant |= IR_LOAD_GUARD;
    return builder_inst(b, inst);
}

static uint16_t iota(builder *b, ir_id id, const chain *at) {
    const ir_node *n = ir_at(b->p->g, id);
    int64_t axis = n->attr[1].is_set ? n->attr[1].integer : 0;
    if (n->rank == 0) return builder_cast(b, builder_size(b, b->zero), n->dtype);
    return builder_cast(b, builder_coordinate(b, at, ir_axis(axis, n->rank)), n->dtype);
}

void builder_note(builder *b, ir_id id) {
    for (uint32_t i = 0; i < b->ops.n; i++)
        if (b->ops.at[i] == id) return;
    fu_push(b->p->arena, &b->ops, id);
}

uint16_t builder_place(builder *b, const ir_size stride[MAX_SPACE]) {
    access a = {0};
    memcpy(a.stride, stride, sizeof a.stride);
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
    return builder_inst(b, inst);
}

/* The row-major number of the element of node n at this chain, as i64. */
static uint16_t element_number(builder *b, const ir_node *n, const chain *at) {
    ir_size strides[MAX_SPACE];
    place where = {.is_unguarded = true};
    builder_contiguous(b, n, strides);
    if (!builder_push(b, n->rank ? at : NULL, strides, &where))
        return builder_fail(b, "random numbers under a reshape");
    uint16_t number = builder_place(b, where.stride);
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
    for (int i = 0; i < op->n_attrs; i++) {
        const ir_attr *at = n->attr ? &n->attr[i] : NULL;
        bool set = at && at->is_set, ok = true;
        if (op->attrs[i].type == IR_ATTR_FLOAT) {
            ir_dtype t = ir_at(b->p->g, n->in[0])->dtype;
            if (ir_is_half(t)) t = FUSOR_F32; /* as the reference rounds it */
            double v = set ? at->number : op->attrs[i].default_value;
            inst.in[inst.n_in++] =
                builder_scalar(b, (ir_plan_scalar){.dtype = t, .bits = ir_bits_from_double(t, v, &ok)});
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
                                                      .size = x->dim[ir_axis(axis, x->rank)]});
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
    const bool is_here = id != b->band && (is_mine(b, v->home) || is_mine(b, v->made_by));
    if (is_mine(b, v->home) && id != b->band) at = NULL;
    for (uint32_t i = 0; i < b->memos.n; i++)
        if (b->memos.at[i].id == id && b->memos.at[i].at == at) return b->memos.at[i].inst;
    uint16_t inst = !is_here && (is_leaf(p, id) || v->home) ? load(b, id, at) : compute(b, id, at);
    fu_push(p->arena, &b->memos, (memo){id, at, inst});
    return inst;
}
