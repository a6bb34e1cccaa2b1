/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_row.c: reduce and row kernels on a GPU. A team (a block, or a warp where rows are known to be short) takes one row:
 *
 *   for each pass: each thread sweeps its elements, a step of the team apart; the team's accumulators become one by shuffles
 *                  and, in a block, shared memory; every thread has the result, so the next pass can use it
 *   one thread: values of the row and their stores
 *
 * Few long rows are cut into parts, the units of phase 0, whose partial results phase 1 combines. In column form a thread
 * takes a column, of a part of its rows. The order of a reduction follows from the sizes. Data flow, addresses and
 * accumulators are those of the CPU's kernels (reduce_common.c). */
#include "jit/gpu.h"
#include "jit/reduce_common.h"
#include <string.h>

enum { WARPS = IR_GPU_THREADS / IR_GPU_WARP };

typedef struct row {
    red *r;
    bool is_warp;            /* a row is one warp's */
    LLVMValueRef lane, size; /* number in the team, threads of the team */
    LLVMValueRef thread;     /* number in the block */
    LLVMValueRef shared;     /* of a block: WARPS slots of IR_PARTIAL_BYTES */
    LLVMValueRef chunks;
} row;

typedef struct pass {
    int number, n_acc, acc[IR_KERNEL_MAX_INSTS]; /* reduction numbers */
    bool has_stores;
} pass;

/* ---- accumulators: value and, of arg-reductions, index ---- */
static red_acc shuffle(row *w, red_acc a, int mask) {
    return (red_acc){gpu_shuffle(w->r->e, a.value, mask), a.index ? gpu_shuffle(w->r->e, a.index, mask) : NULL};
}

static red_acc load_partial(row *w, int j, LLVMValueRef slot) {
    emit *e = w->r->e;
    return red_load(w->r, j, slot, em_gep(e, slot, e->t_i8, em_i64s(e, 8)), FUSOR_I64, NULL);
}

/* The accumulators of a team's threads as one, which all of them have. Every thread must come here. */
static red_acc combine_team(row *w, int j, red_acc acc) {
    red *r = w->r;
    emit *e = r->e;
    for (int mask = IR_GPU_WARP / 2; mask; mask /= 2) acc = red_merge(r, j, acc, shuffle(w, acc, mask));
    if (w->is_warp) return acc;
    LLVMValueRef warp = em_lshr(e, w->thread, 5), in_warp = em_and(e, w->thread, em_i64s(e, IR_GPU_WARP - 1));
    em_branch first = em_if(e, em_icmp(e, LLVMIntEQ, in_warp, em_i64s(e, 0)));
    red_store_partial(r, j, acc, red_slot(e, w->shared, warp));
    em_endif(e, &first);
    gpu_barrier(e);
    for (int i = 0; i < WARPS; i++) {
        red_acc one = load_partial(w, j, red_slot(e, w->shared, em_i64s(e, i)));
        acc = i ? red_merge(r, j, acc, one) : one;
    }
    gpu_barrier(e); /* before the slots are used again */
    return acc;
}

/* ---- loops whose accumulators are phis ---- */
typedef struct acc_loop {
    em_loop loop;
    red_acc acc[IR_KERNEL_MAX_INSTS];
} acc_loop;

static void begin_loop(row *w, const pass *p, acc_loop *l, const red_acc *from, LLVMValueRef begin, LLVMValueRef end,
                       LLVMValueRef step) {
    emit *e = w->r->e;
    l->loop = em_for(e, begin, end, step);
    for (int a = 0; a < p->n_acc; a++) {
        l->acc[a].value = em_loop_phi(e, &l->loop, from[a].value);
        l->acc[a].index = from[a].index ? em_loop_phi(e, &l->loop, from[a].index) : NULL;
    }
}

static void end_loop(row *w, const pass *p, acc_loop *l, const red_acc *now) {
    emit *e = w->r->e;
    for (int a = 0; a < p->n_acc; a++) {
        em_loop_next(e, l->acc[a].value, now[a].value);
        if (l->acc[a].index) em_loop_next(e, l->acc[a].index, now[a].index);
    }
    em_end(e, &l->loop);
}

/* ---- one element ---- */
/* Values at i (and column c): what the pass reduces joins acc; its stores. */
static void take_element(row *w, const pass *p, const em_values *of_row, LLVMValueRef i, LLVMValueRef c, red_acc *acc) {
    red *r = w->r;
    emit *e = r->e;
    const ir_kernel *k = r->k;
    red_at at = {r, i, c, NULL};
    em_values v;
    em_values_init(&v, red_load_value, &at);
    memcpy(v.at, of_row->at, sizeof v.at);
    LLVMValueRef position = red_advance(e, i, r->outer, e->size[r->last]);
    for (int a = 0; a < p->n_acc; a++) {
        int j = p->acc[a];
        acc[a] = red_take(r, j, acc[a], em_value(e, &v, k->inst[r->reduction[j]].in[0]), position, NULL);
    }
    for (int s = 0; s < k->n_insts; s++)
        if (k->inst[s].op == IR_K_STORE && r->is_element_store[s] && r->pass[s] == p->number) em_value(e, &v, s);
    for (int s = 0; s < k->n_insts; s++) {
        if (k->inst[s].op != IR_K_STORE || !r->is_element_store[s] || r->pass[s] != p->number) continue;
        int b = k->inst[s].index;
        LLVMValueRef off = red_advance(e, NULL, i, e->stride[b][r->last]);
        if (c) off = red_advance(e, off, c, e->stride[b][r->v]);
        em_store(e, b, em_value(e, &v, s), off, e->stride[b][r->along], NULL);
    }
}

static void identities(row *w, const pass *p, red_acc *acc) {
    for (int a = 0; a < p->n_acc; a++) {
        LLVMValueRef none =
            red_is_arg(w->r, p->acc[a]) ? em_i64s(w->r->e, red_is_last(w->r, p->acc[a]) ? -1 : 0) : NULL;
        acc[a] = red_identity(w->r, p->acc[a], none);
    }
}

/* Elements of the partial results [from, to), `step` of them apart from `first` on, or all of them in column form. */
static void sweep(row *w, const pass *p, const em_values *of_row, LLVMValueRef from, LLVMValueRef to, LLVMValueRef c,
                  red_acc *acc) {
    red *r = w->r;
    emit *e = r->e;
    acc_loop outer, inner;
    begin_loop(w, p, &outer, acc, from, to, em_i64s(e, 1));
    red_enter_block(r, outer.loop.i);
    begin_loop(w, p, &inner, outer.acc, c ? r->begin : em_add(e, r->begin, w->lane), r->end,
               c ? em_i64s(e, 1) : w->size);
    memcpy(acc, inner.acc, (size_t)p->n_acc * sizeof *acc);
    take_element(w, p, of_row, inner.loop.i, c, acc);
    end_loop(w, p, &inner, acc);
    red_leave_block(r);
    end_loop(w, p, &outer, inner.acc);
    memcpy(acc, outer.acc, (size_t)p->n_acc * sizeof *acc);
}

static void find_pass(const red *r, int number, pass *p) {
    *p = (pass){.number = number};
    for (int j = 0; j < r->n_reductions; j++)
        if (r->pass[r->reduction[j]] == number + 1) p->acc[p->n_acc++] = j;
    for (int s = 0; s < r->k->n_insts; s++)
        p->has_stores |= r->k->inst[s].op == IR_K_STORE && r->is_element_store[s] && r->pass[s] == number;
}

static void set_results(row *w, const pass *p, const red_acc *acc, em_values *v) {
    for (int a = 0; a < p->n_acc; a++) v->at[w->r->reduction[p->acc[a]]] = acc[a].index ? acc[a].index : acc[a].value;
}

static void finish(row *w, em_values *v, red_at *at) {
    emit *e = w->r->e;
    em_branch first = em_if(e, em_icmp(e, LLVMIntEQ, at->c ? em_i64s(e, 0) : w->lane, em_i64s(e, 0)));
    red_finish(w->r, v, at);
    em_endif(e, &first);
}

/* ---- one row, or one column of it ---- */
typedef struct unit {
    red_at at;
    em_values v; /* of the row */
    pass p;
    red_acc acc[IR_KERNEL_MAX_INSTS];
} unit;

/* Row q entered (column c of it, or NULL), the first pass with accumulators of no element. */
static void begin_unit(row *w, unit *u, LLVMValueRef q, LLVMValueRef c) {
    u->at = (red_at){w->r, NULL, c, NULL};
    find_pass(w->r, 0, &u->p);
    red_enter_row(w->r, q);
    em_values_init(&u->v, red_load_value, &u->at);
    identities(w, &u->p, u->acc);
}

/* Where the partial result of part `number` (of all rows' parts) lies. */
static LLVMValueRef part_slot(row *w, int j, LLVMValueRef number, LLVMValueRef c) {
    red *r = w->r;
    emit *e = r->e;
    LLVMValueRef parts = em_mul(e, r->rows, w->chunks);
    if (c) {
        number = em_add(e, em_mul(e, number, r->columns), c);
        parts = em_mul(e, parts, r->columns);
    }
    return red_slot(e, e->shared, em_add(e, em_mul(e, em_i64s(e, j), parts), number));
}

/* Partial results of part `chunk` of all. */
static void chunk_range(row *w, LLVMValueRef chunk, LLVMValueRef *from, LLVMValueRef *to) {
    emit *e = w->r->e;
    LLVMValueRef one = em_i64s(e, 1),
                 each = LLVMBuildUDiv(e->b, em_sub(e, em_add(e, w->r->partials, w->chunks), one), w->chunks, "");
    *from = em_mul(e, chunk, each);
    *to = red_min(e, em_add(e, *from, each), w->r->partials);
}

/* All passes of row q; in column form there is one. */
static void whole(row *w, LLVMValueRef q, LLVMValueRef c) {
    red *r = w->r;
    emit *e = r->e;
    unit u;
    int n = 0;
    begin_unit(w, &u, q, c);
    for (int i = 0; i < r->k->n_insts; i++)
        if (r->pass[i] >= n) n = r->pass[i] + 1;
    for (int number = 0; number < (c ? 1 : n); number++) {
        find_pass(r, number, &u.p);
        if (!u.p.n_acc && !u.p.has_stores) continue;
        identities(w, &u.p, u.acc);
        sweep(w, &u.p, &u.v, em_i64s(e, 0), r->partials, c, u.acc);
        for (int a = 0; a < u.p.n_acc && !c; a++) u.acc[a] = combine_team(w, u.p.acc[a], u.acc[a]);
        set_results(w, &u.p, u.acc, &u.v);
    }
    finish(w, &u.v, &u.at);
}

/* Part `number` of all rows' parts. */
static void part(row *w, LLVMValueRef number, LLVMValueRef c) {
    red *r = w->r;
    emit *e = r->e;
    LLVMValueRef q, chunk, from, to;
    unit u;
    red_divide(e, number, w->chunks, &q, &chunk);
    chunk_range(w, chunk, &from, &to);
    begin_unit(w, &u, q, c);
    sweep(w, &u.p, &u.v, from, to, c, u.acc);
    for (int a = 0; a < u.p.n_acc; a++) {
        int j = u.p.acc[a];
        if (c) {
            red_store_partial(r, j, u.acc[a], part_slot(w, j, number, c));
            continue;
        }
        u.acc[a] = combine_team(w, j, u.acc[a]);
        em_branch first = em_if(e, em_icmp(e, LLVMIntEQ, w->lane, em_i64s(e, 0)));
        red_store_partial(r, j, u.acc[a], part_slot(w, j, number, NULL));
        em_endif(e, &first);
    }
}

/* The parts of row q as one: by a team, or a column's by its thread. */
static void join_parts(row *w, LLVMValueRef q, LLVMValueRef c) {
    red *r = w->r;
    emit *e = r->e;
    unit u;
    acc_loop l;
    begin_unit(w, &u, q, c);
    begin_loop(w, &u.p, &l, u.acc, c ? em_i64s(e, 0) : w->lane, w->chunks, c ? em_i64s(e, 1) : w->size);
    for (int a = 0; a < u.p.n_acc; a++) {
        int j = u.p.acc[a];
        LLVMValueRef number = em_add(e, em_mul(e, q, w->chunks), l.loop.i);
        u.acc[a] = red_merge(r, j, l.acc[a], load_partial(w, j, part_slot(w, j, number, c)));
    }
    end_loop(w, &u.p, &l, u.acc);
    for (int a = 0; a < u.p.n_acc && !c; a++) l.acc[a] = combine_team(w, u.p.acc[a], l.acc[a]);
    set_results(w, &u.p, l.acc, &u.v);
    finish(w, &u.v, &u.at);
}

/* ---- inner form ---- */
static em_branch if_first_phase(emit *e) { return em_if(e, em_icmp(e, LLVMIntEQ, e->phase, em_i64s(e, 0))); }

static void emit_inner(row *w) {
    red *r = w->r;
    emit *e = r->e;
    LLVMValueRef block = gpu_special(e, "ctaid.x"), blocks = gpu_special(e, "nctaid.x"), first = block, step = blocks;
    if (w->is_warp) { /* the last rows' warps may have nothing to do; there are no barriers */
        first = em_add(e, em_mul(e, block, em_i64s(e, WARPS)), em_lshr(e, w->thread, 5));
        step = em_mul(e, blocks, em_i64s(e, WARPS));
    }
    bool has_parts = e->k->kind == IR_KERNEL_REDUCE && !w->is_warp;
    em_branch cut = {0}, phase;
    if (has_parts) {
        cut = em_if(e, em_icmp(e, LLVMIntSGT, w->chunks, em_i64s(e, 1)));
        phase = if_first_phase(e);
        em_loop l = em_for(e, first, em_mul(e, r->rows, w->chunks), step);
        part(w, l.i, NULL);
        em_end(e, &l);
        em_else(e, &phase);
        l = em_for(e, first, r->rows, step);
        join_parts(w, l.i, NULL);
        em_end(e, &l);
        em_endif(e, &phase);
        em_else(e, &cut);
    }
    em_loop l = em_for(e, first, r->rows, step);
    whole(w, l.i, NULL);
    em_end(e, &l);
    if (has_parts) em_endif(e, &cut);
}

/* ---- column form ---- */
/* make: whole, part (of as many units as there are parts) or join_parts. */
static void each_column(row *w, void (*make)(row *w, LLVMValueRef number, LLVMValueRef c)) {
    red *r = w->r;
    emit *e = r->e;
    gpu_span x = gpu_threads(e, 'x');
    LLVMValueRef y = gpu_special(e, "ctaid.y"), step = gpu_special(e, "nctaid.y");
    em_loop units = em_for(e, y, make == part ? em_mul(e, r->rows, w->chunks) : r->rows, step);
    em_loop columns = em_for(e, x.first, r->columns, x.step);
    make(w, units.i, columns.i);
    em_end(e, &columns);
    em_end(e, &units);
}

static void emit_column(row *w) {
    emit *e = w->r->e;
    em_branch cut = em_if(e, em_icmp(e, LLVMIntSGT, w->chunks, em_i64s(e, 1))), phase;
    phase = if_first_phase(e);
    each_column(w, part);
    em_else(e, &phase);
    each_column(w, join_parts);
    em_endif(e, &phase);
    em_else(e, &cut);
    each_column(w, whole);
    em_endif(e, &cut);
}

fusor_status gpu_emit_row(emit *e, fu_error *err) {
    row *w = FU_NEW(e->arena, row);
    FU_TRY(red_init(e, err, &w->r));
    w->is_warp = ir_gpu_is_warp_row(e->k);
    w->thread = gpu_special(e, "tid.x");
    w->lane = w->is_warp ? em_and(e, w->thread, em_i64s(e, IR_GPU_WARP - 1)) : w->thread;
    w->size = em_i64s(e, w->is_warp ? IR_GPU_WARP : IR_GPU_THREADS);
    w->chunks = gpu_word(e, IR_GPU_WORD_CHUNKS);
    if (w->r->v >= 0) {
        emit_column(w);
        return FUSOR_OK;
    }
    if (!w->is_warp) w->shared = gpu_shared(e, e->t_i64, WARPS * IR_PARTIAL_BYTES / 8);
    emit_inner(w);
    return FUSOR_OK;
}
