/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_memory.c: the buffers of a plan: what lies where, which results may be written straight into the parameter they
 * are aliased to, which are copied last, and how long a temporary lives. */
#include "base/small.h"
#include "ir/plan_internal.h"

static int new_buffer(planner *p, ir_storage storage, int index, const ir_node *n, ir_id id) {
    ir_plan_buffer b = {.storage = storage,
                        .index = index,
                        .dtype = n->dtype,
                        .rank = n->rank,
                        .node = id,
                        .first_step = -1,
                        .last_step = -1,
                        .part_of = -1};
    memcpy(b.dim, n->dim, sizeof b.dim);
    fu_push(p->arena, &p->plan->buffers, b);
    return (int)p->plan->buffers.n - 1;
}

void plan_literal_buffer(planner *p, ir_id id) {
    const ir_node *n = ir_at(p->g, id);
    if (n->op != IR_OP_LITERAL || p->info[id].buffer >= 0) return;
    p->info[id].buffer = new_buffer(p, IR_STORE_LITERAL, 0, n, id);
    p->plan->buffers.at[p->info[id].buffer].bits = n->bits;
}

/* May operand 0 of a scatter be made where its result lies? Nothing else reads it, and no parameter is overwritten. */
static bool is_made_in_place(const planner *p, ir_id id, ir_id x) {
    const int buffer = p->info[x].buffer;
    int uses = 0;
    if (!p->info[x].made_by || buffer < 0 || p->plan->buffers.at[buffer].storage != IR_STORE_TEMP) return false;
    for (ir_id i = 1; i < p->g->nodes.n; i++)
        for (int j = 0; j < ir_at(p->g, i)->n_in && p->uses[i]; j++) uses += ir_at(p->g, i)->in[j] == x;
    for (uint32_t r = 0; r < p->g->results.n; r++) {
        const ir_result *result = &p->g->results.at[r];
        uses += result->node == x || (result->node == id && result->alias >= 0);
    }
    return uses == 1;
}

void plan_make_buffers(planner *p) {
    ir_graph *g = p->g;
    for (uint32_t i = 0; i < g->params.n; i++)
        p->info[g->params.at[i].node].buffer =
            new_buffer(p, IR_STORE_INPUT, (int)i, ir_at(g, g->params.at[i].node), g->params.at[i].node);
    for (uint32_t r = 0; r < g->results.n; r++) {
        int b = new_buffer(p, IR_STORE_OUTPUT, (int)r, ir_at(g, g->results.at[r].node), g->results.at[r].node);
        node_info *v = &p->info[g->results.at[r].node];
        /* an aliased result is computed in memory of its own until plan_write_in_place proves that it need not be */
        if (v->buffer < 0 && g->results.at[r].alias < 0 && ir_at(g, g->results.at[r].node)->op != IR_OP_LITERAL)
            v->buffer = b;
    }
    for (ir_id id = 1; id < g->nodes.n; id++)
        if (p->info[id].as_result) p->info[id].buffer = p->info[g->results.at[p->info[id].as_result - 1].node].buffer;
    for (uint32_t r = 0; r < g->results.n; r++) plan_literal_buffer(p, g->results.at[r].node);
    for (ir_id id = 1; id < g->nodes.n; id++)
        if (p->info[id].made_by && p->info[id].buffer < 0)
            p->info[id].buffer = new_buffer(p, IR_STORE_TEMP, 0, ir_at(g, id), id);
    for (uint32_t c = 1; c < p->clusters.n; c++) {
        const cluster *k = &p->clusters.at[c];
        if (k->band_rows) p->plan->buffers.at[p->info[k->stores.at[0]].buffer].storage = IR_STORE_BAND;
    }
    for (ir_id id = g->nodes.n - 1; id >= 1; id--) { /* of scatters of scatters the last one first */
        const ir_node *n = ir_at(g, id);
        if (n->op == IR_OP_SCATTER && p->info[id].made_by && plan_has_kernel(p, n) && is_made_in_place(p, id, n->in[0]))
            p->info[n->in[0]].buffer = p->info[id].buffer;
    }
}

/* A result that is a parameter which another result overwrites: its old contents are saved before anything runs. */
void plan_save_parameters(planner *p) {
    ir_graph *g = p->g;
    for (uint32_t r = 0; r < g->results.n; r++) {
        ir_id id = g->results.at[r].node;
        const ir_node *n = ir_at(g, id);
        if (n->op != IR_OP_PARAM) continue;
        for (uint32_t q = 0; q < g->results.n; q++) {
            if (q == r || g->results.at[q].alias != (int)n->index) continue;
            ir_step st = {.kind = IR_STEP_COPY, .n_args = 2, .arg = FU_NEW_N(p->arena, int, 2), .prepack_param = -1};
            st.arg[0] = p->info[id].buffer;
            st.arg[1] = new_buffer(p, IR_STORE_TEMP, 0, n, id);
            st.reason = ir_reason_texts[IR_REASON_ALIAS];
            fu_push(p->arena, &p->plan->steps, st);
            p->saved[r] = st.arg[1];
            break;
        }
    }
}

/* The last of a kernel's buffers that is this one; -1: none. */
static int arg_of(const ir_step *st, int buffer) {
    int at = -1;
    for (int a = 0; a < st->n_args; a++)
        if (st->arg[a] == buffer) at = a;
    return at;
}

/* The buffer whose memory it lies in. */
static int whole_of(const ir_plan *plan, int buffer) {
    while (plan->buffers.at[buffer].part_of >= 0) buffer = plan->buffers.at[buffer].part_of;
    return buffer;
}

/* Does the step's kernel read that buffer only at the element that it writes to its buffer `store`? */
static bool reads_as_it_writes(const ir_plan *plan, const ir_step *st, int buffer, int store) {
    const ir_kernel *k = st->kernel;
    for (int a = 0; a < st->n_args; a++) /* nor a part of it, or what it is a part of */
        if (st->arg[a] != buffer && whole_of(plan, st->arg[a]) == whole_of(plan, buffer)) return false;
    for (int a = 0; a < st->n_args; a++)
        if (st->arg[a] == buffer &&
            (st->offset[a] != st->offset[store] || memcmp(&st->stride[a * k->n_dims], &st->stride[store * k->n_dims],
                                                          (size_t)k->n_dims * sizeof *st->stride) != 0))
            return false;
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        if (in->op == IR_K_LOAD && in->variant & IR_LOAD_OFFSET && st->arg[in->index] == buffer) return false;
    }
    return true;
}

/* An aliased result is written straight into its parameter where no later step reads the parameter and the step that
 * makes it, a map, reads the parameter only at the element it writes. Else it is copied at the end. */
void plan_write_in_place(planner *p) {
    ir_graph *g = p->g;
    ir_plan *plan = p->plan;
    for (uint32_t r = 0; r < g->results.n; r++) {
        int param = g->results.at[r].alias, temp = p->info[g->results.at[r].node].buffer, writer = -1, first = -1;
        if (param < 0 || temp < 0 || plan->buffers.at[temp].storage != IR_STORE_TEMP) continue;
        bool is_safe = true;
        for (uint32_t s = 0; s < plan->steps.n && is_safe; s++) {
            const ir_step *st = &plan->steps.at[s];
            for (int a = 0; a < st->n_args; a++) {
                if (st->kind == IR_STEP_KERNEL && st->arg[a] == temp && st->kernel->buffer[a].is_output)
                    writer = (int)s;
                if (first < 0 && st->arg[a] == temp && (writer >= 0 || st->kind == IR_STEP_COPY))
                    first = (int)s; /* a scatter's copy of its operand comes before its kernel */
                if (st->arg[a] == param && first >= 0 && (int)s > first) is_safe = false;
            }
            if (st->kind == IR_STEP_CHECK && first >= 0)
                is_safe = false; /* a wrong index leaves parameters as they were */
        }
        if (!is_safe || writer < 0 || plan->steps.at[writer].kernel->kind != IR_KERNEL_MAP) continue;
        const ir_step *w = &plan->steps.at[writer];
        if (!reads_as_it_writes(plan, w, param, arg_of(w, temp))) continue;
        for (uint32_t s = 0; s < plan->steps.n; s++)
            for (int a = 0; a < plan->steps.at[s].n_args; a++)
                if (plan->steps.at[s].arg[a] == temp) plan->steps.at[s].arg[a] = (int)(g->params.n + r);
        p->info[g->results.at[r].node].buffer = (int)(g->params.n + r);
    }
}

void plan_lifetimes(ir_plan *plan) {
    for (uint32_t s = 0; s < plan->steps.n; s++) {
        const ir_step *st = &plan->steps.at[s];
        for (int a = 0; a < st->n_args; a++) {
            ir_plan_buffer *b = &plan->buffers.at[st->arg[a]];
            while (b) { /* and what it is a part of */
                if (b->first_step < 0) b->first_step = (int)s;
                b->last_step = (int)s;
                b = b->part_of < 0 ? NULL : &plan->buffers.at[b->part_of];
            }
        }
    }
}

static bool is_written(const ir_step *st, int a) {
    if (st->kind == IR_STEP_KERNEL) return st->kernel->buffer[a].is_output;
    return st->kind != IR_STEP_CHECK && a + 1 == st->n_args;
}

fusor_status plan_check_made(const ir_plan *plan, fu_arena *arena, fu_error *e) {
    bool *is_made = FU_NEW_N(arena, bool, plan->buffers.n + 1);
    for (uint32_t s = 0; s < plan->steps.n; s++)
        for (int turn = 0; turn < 2; turn++) /* reads, then writes */
            for (int a = 0; a < plan->steps.at[s].n_args; a++) {
                const ir_step *st = &plan->steps.at[s];
                const ir_plan_buffer *b = st->arg[a] < 0 ? NULL : &plan->buffers.at[st->arg[a]];
                if (is_written(st, a) != turn) continue;
                if (!b || (!turn && b->storage == IR_STORE_TEMP && !is_made[st->arg[a]] &&
                           (b->part_of < 0 || !is_made[b->part_of])))
                    return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "step %u of the plan reads what no step before it makes",
                                   (unsigned)s);
                if (turn) is_made[st->arg[a]] = true;
                if (turn && b->part_of >= 0) is_made[b->part_of] = true;
            }
    return FUSOR_OK;
}

static int n_outputs(const ir_kernel *k) {
    int n = 0;
    for (int b = 0; b < k->n_buffers; b++) n += k->buffer[b].is_output;
    return n;
}

/* By columns the last channels of a convolution are made twice unless they fill a tile, and without masks the last
 * columns are. */
static bool makes_twice(const ir_sizes *sizes, const ir_step *st) {
    const ir_kernel *k = st->kernel;
    int64_t m;
    return !k->is_by_channel && !ir_window_is_tiled(k) &&
           (!ir_levels[k->level].has_mask || k->tile.mr < 1 ||
            !ir_size_is_const(sizes, st->dim[ir_kernel_dim(k, 'm')], &m) || m % k->tile.mr != 0);
}

/* Does it write each element once, behind all that it reads for that? Not over what it multiplies, which is read many
 * times; maps alone compute all values that they store before they store the first. */
static bool writes_once(const ir_sizes *sizes, const ir_step *st, int buffer_read) {
    const ir_kernel *k = st->kernel;
    if (k->kind == IR_KERNEL_MAP) return true;
    if (k->kind != IR_KERNEL_CONTRACT && k->kind != IR_KERNEL_WINDOW) return false;
    if (k->kind == IR_KERNEL_WINDOW &&
        (k->is_depthwise || k->band_rows || ir_kernel_is_transposed_window(k) || makes_twice(sizes, st)))
        return false;
    if (ir_kernel_has_rows(k) || n_outputs(k) != 1) return false;
    bool is_multiplied[IR_KERNEL_MAX_INSTS] = {0};
    for (int i = 0; i < k->n_insts; i++)
        for (int j = 0; k->inst[i].op == IR_OP_MATMUL && j < k->inst[i].n_in; j++)
            ir_kernel_mark(k, k->inst[i].in[j], is_multiplied);
    for (int i = 0; i < k->n_insts; i++)
        if (is_multiplied[i] && k->inst[i].op == IR_K_LOAD && st->arg[k->inst[i].index] == buffer_read) return false;
    return true;
}

static ir_size elements_of(const ir_plan *plan, const ir_plan_buffer *b) {
    ir_size n = ir_size_const(plan->graph->sizes, 1);
    for (int d = 0; d < b->rank; d++) n = ir_size_mul(plan->graph->sizes, n, b->dim[d]);
    return n;
}

/* A temporary takes the place of one that the step which makes it is the last to read, where that is safe: half the
 * memory, whose lines are there when it is written. (Cascade Lake, one thread, product, bias, residual and relu: 3136 x
 * 64 x 256 1.13 times as fast, 784 x 128 x 512 1.08, 49 x 512 x 2048 1.05 to 1.13.) */
void plan_write_over(ir_plan *plan) {
    if (plan->options.no_fuse || plan->options.reference || ir_level_is_gpu(plan->options.level)) return;
    int *last = FU_NEW_N(plan->graph->arena, int, plan->buffers.n);
    for (uint32_t b = 0; b < plan->buffers.n; b++) last[b] = plan->buffers.at[b].last_step;
    for (uint32_t s = 0; s < plan->steps.n; s++) {
        const ir_step *st = &plan->steps.at[s];
        for (int store = 0; store < st->n_args && st->kind == IR_STEP_KERNEL; store++) {
            ir_plan_buffer *to = &plan->buffers.at[st->arg[store]];
            if (!st->kernel->buffer[store].is_output || to->storage != IR_STORE_TEMP || to->part_of >= 0 ||
                to->first_step != (int)s)
                continue;
            for (int a = 0; a < st->n_args && to->part_of < 0; a++) {
                const int number = st->arg[a];
                ir_plan_buffer *from = &plan->buffers.at[number];
                if (st->kernel->buffer[a].is_output || from->storage != IR_STORE_TEMP || last[number] != (int)s ||
                    from->first_step >= (int)s || (from->part_of >= 0 && !from->is_over) ||
                    ir_dtypes[from->dtype].bytes != ir_dtypes[to->dtype].bytes ||
                    elements_of(plan, from) != elements_of(plan, to) || !writes_once(plan->graph->sizes, st, number) ||
                    !reads_as_it_writes(plan, st, number, store))
                    continue;
                to->part_of = from->is_over ? from->part_of : number; /* chains are as long as networks */
                to->part_at = ir_size_const(plan->graph->sizes, 0);
                to->is_over = true;
                last[number] = -1; /* of two results of a step only one takes it */
                if (plan->buffers.at[to->part_of].last_step < to->last_step)
                    plan->buffers.at[to->part_of].last_step = to->last_step;
            }
        }
    }
}

/* Results that no step wrote in place: copied last, all reads before. A parameter returned under another alias is saved
 * first. */
void plan_copy_results(planner *p) {
    ir_graph *g = p->g;
    for (uint32_t r = 0; r < g->results.n; r++) {
        int out = (int)g->params.n + (int)r,
            from = p->saved[r] >= 0 ? p->saved[r] : p->info[g->results.at[r].node].buffer;
        bool is_written = from == out; /* also where its parts are made (plan_concat.c) */
        for (uint32_t s = 0; s < p->plan->steps.n; s++)
            for (int a = 0; a < p->plan->steps.at[s].n_args; a++) is_written |= p->plan->steps.at[s].arg[a] == out;
        if (is_written) continue;
        ir_step st = {.kind = IR_STEP_COPY, .n_args = 2, .arg = FU_NEW_N(p->arena, int, 2), .prepack_param = -1};
        st.arg[0] = from;
        st.arg[1] = out;
        st.reason = ir_at(g, g->results.at[r].node)->op == IR_OP_PARAM     ? "a parameter is returned as it is"
                    : ir_at(g, g->results.at[r].node)->op == IR_OP_LITERAL ? "a number is returned"
                    : g->results.at[r].alias >= 0                          ? ir_reason_texts[IR_REASON_ALIAS]
                                                                           : "a result is returned under a second name";
        fu_push(p->arena, &p->plan->steps, st);
    }
}
