/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_constant.c: operand 1 of a contraction that is computed of `const` parameters alone (weights of few bits that
 * are unpacked and scaled, transposed or folded): where all of them are bound, it is packed once, and the kernels that
 * made it run once. Sizes that a call gives have no say in it. Cost: O(steps^2) where there are such operands. */
#include "base/small.h"
#include "ir/plan_internal.h"

typedef struct constants {
    planner *p;
    ir_plan *plan;
    bool *is;    /* by buffer: made of constants */
    bool *of;    /* by buffer and parameter */
    int *writes; /* by buffer: steps that write it */
} constants;

static bool is_written(const ir_step *st, int a) {
    return st->kind == IR_STEP_KERNEL ? st->kernel->buffer[a].is_output
                                      : st->kind != IR_STEP_CHECK && a == st->n_args - 1;
}

static bool is_known(const constants *c, ir_size s) {
    int64_t v;
    return ir_size_is_const(c->p->g->sizes, s, &v);
}

static bool has_known_scalars(const constants *c, const ir_step *st, const bool *of) {
    for (int i = 0; i < st->kernel->n_insts; i++) {
        const ir_kinst *in = &st->kernel->inst[i];
        if (in->op == IR_K_SCALAR && (!of || of[i]) && st->scalar[in->index].kind == IR_SCALAR_SIZE &&
            !is_known(c, st->scalar[in->index].size))
            return false;
    }
    return true;
}

/* Does the step make temporaries of constants? */
static bool is_constant(const constants *c, const ir_step *st) {
    if (st->kind != IR_STEP_KERNEL || !has_known_scalars(c, st, NULL)) return false;
    for (int d = 0; d < st->kernel->n_dims; d++)
        if (!is_known(c, st->dim[d])) return false;
    for (int a = 0; a < st->n_args; a++) {
        const ir_plan_buffer *b = &c->plan->buffers.at[st->arg[a]];
        if (is_written(st, a) ? b->storage != IR_STORE_TEMP || c->writes[st->arg[a]] > 1 : !c->is[st->arg[a]])
            return false;
    }
    return true;
}

/* Instructions that are needed for more than operand 1. */
static void mark_others(const ir_kernel *k, int inst, bool *marked) {
    if (marked[inst]) return;
    marked[inst] = true;
    for (int i = 0; i < (k->inst[inst].op == IR_OP_MATMUL ? 1 : k->inst[inst].n_in); i++)
        mark_others(k, k->inst[inst].in[i], marked);
}

static int product_of(const ir_step *st) {
    int i = st->kind == IR_STEP_KERNEL && st->kernel->kind == IR_KERNEL_CONTRACT && !st->kernel->is_direct
                ? st->kernel->n_insts - 1
                : -1;
    while (i >= 0 && st->kernel->inst[i].op != IR_OP_MATMUL) i--;
    return i;
}

/* Makes the step pack its operand 1 once, if that is made of constants. */
static void pack_once(const constants *c, ir_step *st) {
    const int product = product_of(st), n = (int)c->p->g->params.n;
    bool marked[IR_KERNEL_MAX_INSTS] = {false};
    if (product < 0 || st->prepack_param >= 0) return;
    const ir_kernel *k = st->kernel;
    const int w = k->inst[product].in[1];
    bool *of = FU_NEW_N(c->p->arena, bool, n);
    ir_kernel_mark(k, w, marked);
    for (int d = 0; d < k->n_dims; d++)
        if (ir_kernel_varies(k, w) >> d & 1 && !is_known(c, st->dim[d])) return;
    for (int i = 0; i < k->n_insts; i++) {
        if (!marked[i] || k->inst[i].op != IR_K_LOAD) continue;
        const int b = st->arg[k->inst[i].index];
        if (!c->is[b]) return;
        for (int p = 0; p < n; p++) of[p] |= c->of[b * n + p];
    }
    if (!has_known_scalars(c, st, marked)) return;
    st->sources = FU_NEW_N(c->p->arena, int, n);
    for (int p = 0; p < n; p++)
        if (of[p]) st->prepack_param = st->sources[st->n_sources++] = p;
}

static void add_served(ir_step *st, int step) {
    for (int i = 0; i < st->n_serves; i++)
        if (st->serves[i] == step) return;
    st->serves[st->n_serves++] = step;
}

/* Is buffer b read by nothing but what packs it, or makes what is packed, once? Those are added to the steps that step
 * `by` serves. */
static bool is_packed_alone(const constants *c, int by, int b) {
    ir_step *st = &c->plan->steps.at[by];
    for (int s = by + 1; s < (int)c->plan->steps.n; s++) {
        const ir_step *reader = &c->plan->steps.at[s];
        bool reads = false, others[IR_KERNEL_MAX_INSTS] = {false};
        for (int a = 0; a < reader->n_args; a++) reads |= reader->arg[a] == b;
        if (!reads) continue;
        for (int i = 0; i < reader->n_serves; i++) add_served(st, reader->serves[i]);
        if (reader->n_serves) continue;
        if (!reader->n_sources) return false;
        for (int i = 0; i < reader->kernel->n_insts; i++)
            if (reader->kernel->inst[i].op == IR_K_STORE) mark_others(reader->kernel, i, others);
        for (int i = 0; i < reader->kernel->n_insts; i++)
            if (others[i] && reader->kernel->inst[i].op == IR_K_LOAD && reader->arg[reader->kernel->inst[i].index] == b)
                return false;
        add_served(st, s);
    }
    return true;
}

void plan_find_constants(planner *p) {
    ir_plan *plan = p->plan;
    const int n = (int)p->g->params.n, n_buffers = (int)plan->buffers.n, n_steps = (int)plan->steps.n;
    constants c = {p, plan, FU_NEW_N(p->arena, bool, n_buffers), FU_NEW_N(p->arena, bool, n_buffers *n + 1),
                   FU_NEW_N(p->arena, int, n_buffers)};
    bool any = false;
    if (ir_level_is_gpu(p->options->level) || p->options->reference) return;
    for (int b = 0; b < n_buffers; b++) {
        const ir_plan_buffer *at = &plan->buffers.at[b];
        const bool is_param = at->storage == IR_STORE_INPUT && p->g->params.at[at->index].is_const;
        c.is[b] = is_param || at->storage == IR_STORE_LITERAL;
        if (is_param) c.of[b * n + at->index] = true;
    }
    for (int s = 0; s < n_steps; s++)
        for (int a = 0; a < plan->steps.at[s].n_args; a++)
            c.writes[plan->steps.at[s].arg[a]] += is_written(&plan->steps.at[s], a);
    for (int s = 0; s < n_steps; s++) {
        ir_step *st = &plan->steps.at[s];
        pack_once(&c, st);
        any |= st->n_sources > 0;
        if (!is_constant(&c, st)) continue;
        for (int a = 0; a < st->n_args; a++)
            for (int from = 0; is_written(st, a) && from < st->n_args; from++) {
                c.is[st->arg[a]] = true;
                for (int q = 0; q < n && !is_written(st, from); q++)
                    c.of[st->arg[a] * n + q] |= c.of[st->arg[from] * n + q];
            }
    }
    for (int s = n_steps - 1; s >= 0 && any; s--) {
        ir_step *st = &plan->steps.at[s];
        if (!is_constant(&c, st)) continue;
        st->serves = FU_NEW_N(p->arena, int, n_steps);
        for (int a = 0; a < st->n_args && st->n_serves >= 0; a++)
            if (is_written(st, a) && !is_packed_alone(&c, s, st->arg[a])) st->n_serves = -1;
        if (st->n_serves < 0) st->n_serves = 0;
    }
}
