/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_build.c: one cluster becomes one step: its space, its scalar program (plan_value.c), what it stores, its dims
 * (plan_dims.c). */
#include "ir/gpu.h"
#include "ir/plan_builder.h"

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
            builder_boundary(&b, n->in[i]);
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

/* coord: dims of the space that those of a value that is not homed here are; NULL: the same. */
static void add_store(builder *b, ir_id id, uint16_t inst, int buffer, const int8_t *coord) {
    const ir_node *n = ir_at(b->p->g, id);
    const node_info *v = &b->p->info[id];
    ir_size strides[MAX_SPACE], out[MAX_SPACE];
    builder_contiguous(b, n, strides);
    for (int d = 0; d < b->space; d++) out[d] = b->zero;
    for (int d = 0; d < n->rank; d++) {
        int at = is_mine(b, v->home) ? v->coord[d] : coord ? coord[d] : d;
        if (at >= 0 && strides[d] != b->zero) out[at] = strides[d];
    }
    /* the dims m and n of a contraction are there at size 1 too; its result is stored along both */
    const cluster *c = &b->p->clusters.at[b->c];
    const bool is_tail = b->band && id != b->band;
    for (int d = 1; d < c->rank && c->kind == CLUSTER_WINDOW; d += d == 1 && c->rank > 3 ? c->rank - 3 : 1) {
        const int at = is_tail ? coord[d] : d;
        if (ir_size_is(b->p->g->sizes, b->dim[at], 1)) out[at] = b->one;
    }
    for (int d = c->rank - 2; d < c->rank && (c->kind == CLUSTER_CONTRACT || c->kind == CLUSTER_ATTENTION); d++)
        if (d >= 0 && ir_size_is(b->p->g->sizes, b->dim[d], 1)) out[d] = b->one;
    ir_kinst st;
    memset(&st, 0, sizeof st);
    st.op = IR_K_STORE;
    st.dtype = n->dtype;
    st.n_in = 1;
    st.in[0] = inst;
    st.index = builder_buffer(b, buffer, true, n->dtype, out, b->zero);
    b->k->buffer[st.index].is_band = id == b->band;
    builder_inst(b, st);
}

/* A scatter: its result is a copy of operand 0 by the step before, and each update is stored where its index says,
 * combined with what is there by then. Lines along other axes are independent; in one, updates come one after the
 * other. */
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
    builder_contiguous(b, n, strides);
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
        inst.index = builder_buffer(b, buffer, false, n->dtype, out, b->zero);
        update = builder_op(b, combine, n->dtype, 2, (uint16_t[]){builder_inst(b, inst), update});
    }
    inst.op = IR_K_STORE;
    inst.variant = IR_STORE_OFFSET;
    inst.n_in = 2;
    inst.in[0] = update;
    inst.in[1] = offset;
    inst.index = builder_buffer(b, buffer, true, n->dtype, out, b->zero);
    builder_inst(b, inst);
    builder_note(b, id);
}

/* The copy before it, unless plan_make_buffers had operand 0 made in the result's memory. */
static fusor_status copy_operand(builder *b, ir_id id) {
    planner *p = b->p;
    ir_id x = ir_at(p->g, id)->in[0];
    ir_step st = {.kind = IR_STEP_COPY,
                  .n_args = 2,
                  .arg = FU_NEW_N(p->arena, int, 2),
                  .prepack_param = -1,
                  .reason = "updates are scattered into a copy"};
    if (p->info[x].made_by) {
        FU_TRY(plan_build_step(p, p->info[x].made_by));
        builder_boundary(b, x);
    }
    if (p->info[x].buffer < 0)
        return FU_FAIL(p->error, FUSOR_ERROR_INTERNAL, "planner: an operand of 'scatter' has no memory");
    if (p->info[x].buffer == p->info[id].buffer) return FUSOR_OK; /* it was made there */
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

/* The dims of the tail of a convolution behind its own: rows and columns; images and channels are the same. */
static int8_t *tail_space(builder *b) {
    const cluster *head = &b->p->clusters.at[b->c], *tail = &b->p->clusters.at[head->tail];
    int8_t *coord = FU_NEW_N(b->p->arena, int8_t, IR_MAX_RANK);
    coord[0] = ir_size_is(b->p->g->sizes, head->dim[0], 1) ? -1 : 0;
    coord[1] = 1;
    for (int d = IR_SPATIAL_AT; d < tail->rank; d++) {
        coord[d] = (int8_t)b->space;
        b->dim[b->space++] = tail->dim[d];
    }
    b->k->band_rows = head->band_rows;
    return coord;
}

static bool is_direct_window(const builder *b) {
    if (!b->k->band_rows) return ir_window_is_small(b->k);
    ir_kernel *head = FU_NEW(b->p->arena, ir_kernel);
    ir_kernel_head(b->k, head);
    return ir_window_is_small(head);
}

/* On a GPU a contraction whose sizes are known has code for the tile that they ask for alone. */
static void choose_tile(const planner *p, ir_kernel *k, const ir_step *st) {
    int64_t size[IR_KERNEL_MAX_DIMS];
    for (int d = 0; d < k->n_dims; d++)
        if (!ir_size_is_const(p->g->sizes, st->dim[d], &size[d])) return;
    k->only_tile = ir_gpu_only_tile(k, size);
}

static ir_kernel_kind kind_of(const cluster *c) {
    switch (c->kind) {
    case CLUSTER_MAP: return IR_KERNEL_MAP;
    case CLUSTER_SCAN: return IR_KERNEL_SCAN;
    case CLUSTER_CONTRACT: return IR_KERNEL_CONTRACT;
    case CLUSTER_ATTENTION: return IR_KERNEL_ATTENTION;
    case CLUSTER_WINDOW: return IR_KERNEL_WINDOW;
    default: return c->is_row ? IR_KERNEL_ROW : IR_KERNEL_REDUCE;
    }
}

static builder new_builder(planner *p, int c) {
    const cluster *cl = &p->clusters.at[c];
    builder b = {.p = p, .c = c, .tail = cl->tail, .k = FU_NEW(p->arena, ir_kernel), .space = cl->rank};
    memcpy(b.dim, cl->dim, (size_t)cl->rank * sizeof *cl->dim);
    b.zero = ir_size_const(p->g->sizes, 0);
    b.one = ir_size_const(p->g->sizes, 1);
    b.k->level = p->options->level;
    b.k->fast_math = p->options->fast_math;
    b.k->kind = kind_of(cl);
    return b;
}

/* Everything that the cluster and its tail store. identity: the cluster's dims as they are; tail: those that the tail's
 * are, NULL without one. */
static void store_values(builder *b, const int8_t *identity, const int8_t *tail) {
    planner *p = b->p;
    const int c = b->c;
    const uint32_t n_stores = p->clusters.at[c].stores.n +
                              (b->tail ? p->clusters.at[b->tail].stores.n : 0); /* more clusters come meanwhile */
    uint16_t *inst = FU_NEW_N(p->arena, uint16_t, n_stores);
    for (uint32_t s = 0; s < n_stores; s++) {
        const ir_id id = stored(p, c, s);
        const bool is_own = is_mine(b, p->info[id].home);
        inst[s] = builder_value(b, id, is_own ? NULL : builder_top(b, p->clusters.at[c].rank, tail ? tail : identity));
        if (!tail || s) continue;
        b->band = id; /* behind its store comes what reads it */
        add_store(b, id, inst[s], p->info[id].buffer, NULL);
    }
    for (uint32_t s = tail ? 1 : 0; s < n_stores; s++) {
        const ir_id id = stored(p, c, s);
        add_store(b, id, inst[s], p->info[id].buffer, tail);
        /* a value that is the result of several names is stored for each of them that overwrites no parameter */
        for (uint32_t r = 0; r < p->g->results.n; r++) {
            const int out = (int)(p->g->params.n + r);
            if (p->g->results.at[r].node == id && out != p->info[id].buffer && p->g->results.at[r].alias < 0)
                add_store(b, id, inst[s], out, tail);
        }
    }
    const cluster *cl = &p->clusters.at[c];
    for (uint32_t i = 0; i < cl->kept.n; i++) {
        const uint16_t value = builder_value(b, cl->kept.at[i], NULL);
        b->k->inst[value].is_kept = true; /* now that no instruction is compared with it any more */
    }
}

/* The step has what the builder gathered. */
static void take_arguments(const builder *b, ir_step *st) {
    st->n_args = b->k->n_buffers;
    st->arg = FU_NEW_N(b->p->arena, int, st->n_args);
    st->offset = FU_NEW_N(b->p->arena, ir_size, st->n_args);
    for (int i = 0; i < st->n_args; i++) {
        st->arg[i] = b->accesses.at[i].buffer;
        st->offset[i] = b->accesses.at[i].offset;
    }
    st->scalar = b->scalars.at;
    st->ops = b->ops.at;
    st->n_ops = (int)b->ops.n;
}

static fusor_status build_kernel(planner *p, int c) {
    const cluster *cl = &p->clusters.at[c];
    const ir_node *anchor = ir_at(p->g, cl->anchor);
    const cluster_kind kind = cl->kind;
    const ir_id scatter = kind == CLUSTER_MAP ? cl->anchor : 0;
    builder b = new_builder(p, c);
    int8_t identity[IR_MAX_RANK];
    for (int d = 0; d < IR_MAX_RANK; d++)
        identity[d] = d < cl->rank && !ir_size_is(p->g->sizes, cl->dim[d], 1) ? (int8_t)d : -1;
    if (kind == CLUSTER_CONTRACT) plan_contract_space(&b, anchor);
    if (kind == CLUSTER_WINDOW) plan_window_space(&b, anchor);
    if (kind == CLUSTER_ATTENTION) builder_attention_space(&b, anchor);
    const int8_t *tail = cl->band_rows ? tail_space(&b) : NULL;
    if (scatter) add_scatter(&b, scatter, identity);
    else store_values(&b, identity, tail);
    FU_TRY(b.status);
    ir_step st = {.kind = IR_STEP_KERNEL, .kernel = b.k, .prepack_param = -1};
    builder_order_dims(&b, &st);
    FU_TRY(b.status);
    if (kind == CLUSTER_CONTRACT && anchor->op == IR_OP_EINSUM) plan_contract_tile(&b, &st);
    if (kind == CLUSTER_WINDOW && !is_direct_window(&b)) plan_window_tile(&b, anchor, false);
    if (b.k->kind == IR_KERNEL_ROW || (b.tail && !tail)) builder_mark_kept(&b, &st);
    plan_find_slide(&b, &st);
    plan_find_turns(&b);
    take_arguments(&b, &st);
    plan_find_packed(p, &st);
    plan_make_direct(p, b.k, &st);
    if (kind == CLUSTER_CONTRACT) plan_contract_forms(&b, &st);
    choose_tile(p, b.k, &st);
    FU_TRY(ir_kernel_verify(b.k, p->error));
    if (scatter) FU_TRY(copy_operand(&b, scatter));
    push_step(p, c, st);
    return FUSOR_OK;
}

/* A concatenation that is complete once its parts are: by the last of their steps. */
static fusor_status build_parts(planner *p, int c) {
    int last = -1;
    for (int i = 0; i < p->clusters.at[c].n_parts; i++) {
        const int by = p->info[p->clusters.at[c].part[i]].made_by;
        FU_TRY(plan_build_step(p, by));
        if (p->clusters.at[by].step > last) last = p->clusters.at[by].step;
    }
    p->clusters.at[c].step = last;
    return FUSOR_OK;
}

fusor_status plan_build_step(planner *p, int c) {
    if (p->clusters.at[c].head) c = p->clusters.at[c].head;
    if (p->clusters.at[c].step >= 0 || (p->clusters.at[c].stores.n == 0 && !p->clusters.at[c].tail)) return FUSOR_OK;
    if (p->clusters.at[c].is_building)
        return FU_FAIL(p->error, FUSOR_ERROR_INTERNAL, "planner: kernels depend on each other in a cycle");
    p->clusters.at[c].is_building = true;
    fusor_status st = p->clusters.at[c].n_parts                     ? build_parts(p, c)
                      : p->clusters.at[c].kind == CLUSTER_REFERENCE ? build_reference(p, c)
                                                                    : build_kernel(p, c);
    p->clusters.at[c].is_building = false;
    return st;
}
