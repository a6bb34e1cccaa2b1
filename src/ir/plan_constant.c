/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_constant.c: what a kernel packs once, for all calls: operand 1 of a contraction, or the weights of a convolution,
 * that is a `const` parameter; and an operand 1 that is computed of `const` parameters alone (weights of few bits that
 * are unpacked and scaled, transposed or folded), with the kernels that make it. All of them must be bound, and sizes
 * that a call gives may have no say in what is packed: not in how much, nor in where it is read. What is made of more
 * than MOST_SOURCES parameters is computed in each call. Cost: O(steps^2) where operands are computed. */
#include "base/small.h"
#include "ir/plan_internal.h"
#include <string.h>

enum { MOST_SOURCES = 64 };

typedef struct param_set {
    int n, *at; /* of the graph's, in order */
} param_set;
typedef struct constants {
    planner *p;
    ir_plan *plan;
    bool *is;      /* by buffer: made of constants */
    param_set *of; /* by buffer: of these */
    int *writes;   /* by buffer: steps that write it */
} constants;

/* ---- sizes that are the same in every call ---- */
typedef struct fixed {
    const ir_graph *g;
    const int *params; /* these are bound */
    int n_params;
    bool *symbols; /* that their shapes, and what is checked, determine */
} fixed;

static bool is_fixed(const fixed *f, ir_size s) {
    if (ir_size_is_made_of(f->g->sizes, s, f->symbols)) return true;
    for (int i = 0; i < f->n_params; i++) {
        const ir_node *n = ir_at(f->g, f->g->params.at[f->params[i]].node);
        for (int d = 0; d < n->rank; d++)
            if (n->dim[d] == s) return true;
    }
    return false;
}

static bool fix_symbol(const fixed *f, ir_size s) {
    uint32_t symbol;
    if (!ir_size_is_symbol(f->g->sizes, s, &symbol) || f->symbols[symbol]) return false;
    return f->symbols[symbol] = true;
}

static fixed fixed_by(const planner *p, const int *params, int n_params) {
    const ir_graph *g = p->g;
    fixed f = {g, params, n_params, FU_NEW_N(p->arena, bool, ir_size_symbol_count(g->sizes) + 1)};
    for (int i = 0; i < n_params; i++) {
        const ir_node *n = ir_at(g, g->params.at[params[i]].node);
        for (int d = 0; d < n->rank; d++) (void)fix_symbol(&f, n->dim[d]);
    }
    for (bool more = true; more;) { /* a size that must equal a fixed one */
        more = false;
        for (uint32_t i = 0; i < g->checks.n; i++) {
            const ir_check *c = &g->checks.at[i];
            if (c->kind != IR_CHECK_EQUAL) continue;
            if (is_fixed(&f, c->a)) more |= fix_symbol(&f, c->b);
            if (is_fixed(&f, c->b)) more |= fix_symbol(&f, c->a);
        }
    }
    return f;
}

/* Is where a buffer is read, and how far apart elements are, the same in every call? */
static bool is_read_alike(const fixed *f, const ir_step *st, int b) {
    const int n = st->kernel->n_dims;
    if (!is_fixed(f, st->offset[b])) return false;
    for (int d = 0; d < n; d++)
        if (!is_fixed(f, st->stride[b * n + d])) return false;
    return true;
}

/* Is as much packed of instruction w in every call? Packing goes along the dims that w varies along, and of an operand
 * that is broadcast too along those that a panel is made of. */
static bool is_packed_alike(const fixed *f, const ir_step *st, int w) {
    const ir_kernel *k = st->kernel;
    const char *panel = k->kind == IR_KERNEL_WINDOW ? "mk" : "njky";
    for (int d = 0; d < k->n_dims; d++)
        if ((ir_kernel_varies(k, w) >> d & 1 || strchr(panel, k->dim[d].role)) && !is_fixed(f, st->dim[d]))
            return false;
    return true;
}

void plan_find_packed(planner *p, ir_step *st) {
    const ir_kernel *k = st->kernel;
    if (k->kind != IR_KERNEL_CONTRACT && !ir_kernel_window_packs(k)) return;
    for (int i = 0; i < k->n_insts; i++) {
        if (k->inst[i].op != IR_OP_MATMUL) continue;
        const ir_kinst *w = k->kind == IR_KERNEL_WINDOW ? ir_kernel_window_operand(k, 0) : &k->inst[k->inst[i].in[1]];
        if (w->op != IR_K_LOAD || w->variant) continue;
        const ir_plan_buffer *b = &p->plan->buffers.at[st->arg[w->index]];
        if (b->storage != IR_STORE_INPUT || !p->g->params.at[b->index].is_const) continue;
        const fixed f = fixed_by(p, &b->index, 1);
        if (is_read_alike(&f, st, w->index) && is_packed_alike(&f, st, (int)(w - k->inst)))
            st->prepack_param = b->index;
    }
}

/* ---- operands that are computed ---- */
static bool is_written(const ir_step *st, int a) {
    return st->kind == IR_STEP_KERNEL ? st->kernel->buffer[a].is_output
                                      : st->kind != IR_STEP_CHECK && a == st->n_args - 1;
}

/* of: instructions; NULL: all. */
static bool has_fixed_scalars(const fixed *f, const ir_step *st, const bool *of) {
    for (int i = 0; i < st->kernel->n_insts; i++) {
        const ir_kinst *in = &st->kernel->inst[i];
        if (in->op == IR_K_SCALAR && (!of || of[i]) && st->scalar[in->index].kind == IR_SCALAR_SIZE &&
            !is_fixed(f, st->scalar[in->index].size))
            return false;
    }
    return true;
}

/* The parameters that these n buffers are made of. False: too many. */
static bool list_params(const constants *c, const int *buffer, int n_buffers, param_set *out) {
    int all[MOST_SOURCES];
    *out = (param_set){0, NULL};
    for (int i = 0; i < n_buffers; i++) {
        const param_set *of = &c->of[buffer[i]];
        for (int k = 0; k < of->n; k++) {
            int to = out->n;
            while (to > 0 && all[to - 1] >= of->at[k]) to--;
            if (to < out->n && all[to] == of->at[k]) continue;
            if (out->n == MOST_SOURCES) return false;
            memmove(all + to + 1, all + to, (size_t)(out->n++ - to) * sizeof *all);
            all[to] = of->at[k];
        }
    }
    out->at = fu_dup(c->p->arena, all, (size_t)out->n * sizeof *all);
    return true;
}

/* Does the step make temporaries of constants? *of: of these. */
static bool is_constant(const constants *c, const ir_step *st, param_set *of) {
    if (st->kind != IR_STEP_KERNEL) return false;
    int read[IR_KERNEL_MAX_BUFFERS], n_read = 0;
    for (int a = 0; a < st->n_args; a++) {
        const ir_plan_buffer *b = &c->plan->buffers.at[st->arg[a]];
        if (is_written(st, a) ? b->storage != IR_STORE_TEMP || c->writes[st->arg[a]] > 1 : !c->is[st->arg[a]])
            return false;
        if (!is_written(st, a)) read[n_read++] = st->arg[a];
    }
    if (!list_params(c, read, n_read, of)) return false;
    const fixed f = fixed_by(c->p, of->at, of->n);
    if (!has_fixed_scalars(&f, st, NULL)) return false;
    for (int d = 0; d < st->kernel->n_dims; d++)
        if (!is_fixed(&f, st->dim[d])) return false;
    for (int a = 0; a < st->n_args; a++)
        if (!is_read_alike(&f, st, a)) return false;
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
    const int product = product_of(st);
    int read[IR_KERNEL_MAX_BUFFERS], n_read = 0;
    bool marked[IR_KERNEL_MAX_INSTS] = {false};
    if (product < 0 || st->prepack_param >= 0) return;
    const ir_kernel *k = st->kernel;
    const int w = k->inst[product].in[1];
    ir_kernel_mark(k, w, marked);
    bool is_read[IR_KERNEL_MAX_BUFFERS] = {false};
    for (int i = 0; i < k->n_insts; i++)
        if (marked[i] && k->inst[i].op == IR_K_LOAD) is_read[k->inst[i].index] = true;
    for (int b = 0; b < k->n_buffers; b++) {
        if (!is_read[b]) continue;
        if (!c->is[st->arg[b]]) return;
        read[n_read++] = st->arg[b];
    }
    param_set of;
    if (!list_params(c, read, n_read, &of)) return;
    const fixed f = fixed_by(c->p, of.at, of.n);
    if (!is_packed_alike(&f, st, w) || !has_fixed_scalars(&f, st, marked)) return;
    for (int b = 0; b < k->n_buffers; b++)
        if (is_read[b] && !is_read_alike(&f, st, b)) return;
    st->sources = of.at;
    st->n_sources = of.n;
    if (of.n) st->prepack_param = of.at[of.n - 1];
}

static void add_served(const constants *c, ir_step *st, int step) {
    for (uint32_t i = 0; i < st->serves.n; i++)
        if (st->serves.at[i] == step) return;
    fu_push(c->p->arena, &st->serves, step);
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
        for (uint32_t i = 0; i < reader->serves.n; i++) add_served(c, st, reader->serves.at[i]);
        if (reader->serves.n) continue;
        if (!reader->n_sources) return false;
        for (int i = 0; i < reader->kernel->n_insts; i++)
            if (reader->kernel->inst[i].op == IR_K_STORE) mark_others(reader->kernel, i, others);
        for (int i = 0; i < reader->kernel->n_insts; i++)
            if (others[i] && reader->kernel->inst[i].op == IR_K_LOAD && reader->arg[reader->kernel->inst[i].index] == b)
                return false;
        add_served(c, st, s);
    }
    return true;
}

void plan_find_constants(planner *p) {
    ir_plan *plan = p->plan;
    const int n_buffers = (int)plan->buffers.n, n_steps = (int)plan->steps.n;
    bool any = false;
    param_set of;
    if (ir_level_is_gpu(p->options->level) || p->options->reference) return;
    constants c = {p, plan, FU_NEW_N(p->arena, bool, n_buffers), FU_NEW_N(p->arena, param_set, n_buffers),
                   FU_NEW_N(p->arena, int, n_buffers)};
    for (int b = 0; b < n_buffers; b++) {
        ir_plan_buffer *at = &plan->buffers.at[b];
        const bool is_param = at->storage == IR_STORE_INPUT && p->g->params.at[at->index].is_const;
        c.is[b] = is_param || at->storage == IR_STORE_LITERAL;
        if (is_param) c.of[b] = (param_set){1, &at->index};
    }
    for (int s = 0; s < n_steps; s++)
        for (int a = 0; a < plan->steps.at[s].n_args; a++)
            c.writes[plan->steps.at[s].arg[a]] += is_written(&plan->steps.at[s], a);
    for (int s = 0; s < n_steps; s++) {
        ir_step *st = &plan->steps.at[s];
        pack_once(&c, st);
        any |= st->n_sources > 0;
        if (!is_constant(&c, st, &of)) continue;
        for (int a = 0; a < st->n_args; a++) {
            if (!is_written(st, a)) continue;
            c.is[st->arg[a]] = true;
            c.of[st->arg[a]] = of;
        }
    }
    for (int s = n_steps - 1; s >= 0 && any; s--) {
        ir_step *st = &plan->steps.at[s];
        if (!is_constant(&c, st, &of)) continue;
        bool is_alone = true;
        for (int a = 0; a < st->n_args && is_alone; a++)
            is_alone = !is_written(st, a) || is_packed_alone(&c, s, st->arg[a]);
        if (!is_alone) st->serves.n = 0;
    }
}
