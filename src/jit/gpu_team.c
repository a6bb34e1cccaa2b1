/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_team.c: accumulators of a GPU's reductions, and how those of many threads become one (gpu_row.h). */
#include "jit/gpu_row.h"

enum { WARPS = IR_GPU_THREADS / IR_GPU_WARP };

/* ---- passes ---- */
void gpu_find_pass(const red *r, int number, gpu_pass *p) {
    *p = (gpu_pass){.number = number};
    for (int j = 0; j < r->n_reductions; j++)
        if (r->pass[r->reduction[j]] == number + 1) p->acc[p->n_acc++] = j;
    for (int s = 0; s < r->k->n_insts; s++)
        p->has_stores |= r->k->inst[s].op == IR_K_STORE && r->is_element_store[s] && r->pass[s] == number;
}

int gpu_passes(const red *r) {
    int n = 0;
    for (int i = 0; i < r->k->n_insts; i++)
        if (r->pass[i] >= n) n = r->pass[i] + 1;
    return n;
}

int gpu_most_accs(const red *r) {
    int most = 0;
    gpu_pass p;
    for (int number = 0; number < gpu_passes(r); number++) {
        gpu_find_pass(r, number, &p);
        if (p.n_acc > most) most = p.n_acc;
    }
    return most;
}

/* ---- accumulators ---- */
red_acc gpu_no_acc(gpu_row *w, int j) {
    emit *e = w->r->e;
    return red_identity(w->r, j, red_is_arg(w->r, j) ? em_i64s(e, red_is_last(w->r, j) ? -1 : 0) : NULL);
}

gpu_cell gpu_cell_new(gpu_row *w, int j) {
    emit *e = w->r->e;
    gpu_cell c = {em_alloca(e, em_scalar_type(e, red_type(w->r, j)), 8), NULL};
    if (red_is_arg(w->r, j)) c.index = em_alloca(e, e->t_i64, 8);
    return c;
}

void gpu_cell_set(gpu_row *w, int j, gpu_cell c, red_acc acc) {
    (void)j;
    LLVMBuildStore(w->r->e->b, acc.value, c.value);
    if (c.index) LLVMBuildStore(w->r->e->b, acc.index, c.index);
}

red_acc gpu_cell_get(gpu_row *w, int j, gpu_cell c) {
    emit *e = w->r->e;
    red_acc a = {LLVMBuildLoad2(e->b, em_scalar_type(e, red_type(w->r, j)), c.value, ""), NULL};
    if (c.index) a.index = LLVMBuildLoad2(e->b, e->t_i64, c.index, "");
    return a;
}

red_acc gpu_select(gpu_row *w, int j, LLVMValueRef condition, red_acc a, red_acc b) {
    emit *e = w->r->e;
    (void)j;
    return (red_acc){em_select(e, condition, a.value, b.value),
                     a.index ? em_select(e, condition, a.index, b.index) : NULL};
}

red_acc gpu_load_partial(gpu_row *w, int j, LLVMValueRef slot) {
    emit *e = w->r->e;
    return red_load(w->r, j, slot, em_gep(e, slot, e->t_i8, em_i64s(e, 8)), FUSOR_I64, NULL);
}

void gpu_set_results(gpu_row *w, const gpu_pass *p, const red_acc *acc, em_values *v) {
    for (int a = 0; a < p->n_acc; a++) v->at[w->r->reduction[p->acc[a]]] = acc[a].index ? acc[a].index : acc[a].value;
}

/* ---- parts of a row ---- */
LLVMValueRef gpu_part_slot(gpu_row *w, int j, LLVMValueRef number, LLVMValueRef c) {
    red *r = w->r;
    emit *e = r->e;
    LLVMValueRef parts = em_mul(e, r->rows, w->chunks);
    if (c) {
        number = em_add(e, em_mul(e, number, r->columns), c);
        parts = em_mul(e, parts, r->columns);
    }
    return red_slot(e, e->scratch, em_add(e, em_mul(e, em_i64s(e, j), parts), number));
}

void gpu_chunk_range(gpu_row *w, LLVMValueRef chunk, LLVMValueRef *from, LLVMValueRef *to) {
    emit *e = w->r->e;
    LLVMValueRef some, rest, padded = em_sub(e, em_add(e, w->r->partials, w->chunks), em_i64s(e, 1));
    em_branch many = em_if(e, em_icmp(e, LLVMIntSGT, w->chunks, em_i64s(e, 1)));
    red_divide(e, padded, w->chunks, &some, &rest);
    many.then = LLVMGetInsertBlock(e->b);
    em_endif(e, &many);
    LLVMValueRef each = LLVMBuildPhi(e->b, e->t_i64, ""), both[2] = {some, w->r->partials};
    LLVMAddIncoming(each, both, (LLVMBasicBlockRef[]){many.then, many.other}, 2);
    *from = em_mul(e, chunk, each);
    *to = em_min(e, em_add(e, *from, each), w->r->partials);
}

/* The barrier makes what all threads stored come before the one's fence, which is so for what they load behind the
 * other. */
LLVMValueRef gpu_is_last(gpu_row *w, LLVMValueRef counter, LLVMValueRef n) {
    emit *e = w->r->e;
    LLVMValueRef thread = em_or(e, gpu_special(e, "tid.x"), gpu_special(e, "tid.y"));
    LLVMValueRef most = em_sub(e, n, em_i64s(e, 1));
    gpu_barrier(e);
    em_branch one = em_if(e, em_icmp(e, LLVMIntEQ, thread, em_i64s(e, 0)));
    gpu_fence(e);
    LLVMValueRef before = LLVMBuildZExt(e->b, gpu_count(e, w->counters, counter, most), e->t_i64, "");
    gpu_fence(e);
    LLVMBuildStore(e->b, LLVMBuildZExt(e->b, em_icmp(e, LLVMIntEQ, before, most), e->t_i32, ""), w->is_last);
    em_endif(e, &one);
    gpu_barrier(e);
    LLVMValueRef is_last = LLVMBuildLoad2(e->b, e->t_i32, w->is_last, "");
    return em_icmp(e, LLVMIntEQ, is_last, LLVMConstInt(e->t_i32, 1, 0));
}

/* ---- teams ---- */
/* Does it depend on the order which of -0 and +0 a merge gives? */
static bool has_order(const gpu_row *w, int j) {
    return red_sets_nans_apart(w->r, j) && !em_has_max_nan(w->r->e, red_type(w->r, j));
}

/* As a merge of the lower lane's and the upper one's, in both of them. */
static red_acc merge_in_order(gpu_row *w, int j, red_acc own, red_acc other, int mask) {
    emit *e = w->r->e;
    LLVMValueRef is_upper = em_icmp(e, LLVMIntNE, em_and(e, w->lane, em_i64s(e, mask)), em_i64s(e, 0));
    return red_merge(w->r, j, gpu_select(w, j, is_upper, other, own), gpu_select(w, j, is_upper, own, other));
}

/* By halves among the lanes of a warp; lanes of smaller teams beside each other keep to themselves. */
static red_acc combine_warp(gpu_row *w, int j, red_acc acc) {
    red *r = w->r;
    emit *e = r->e;
    for (int mask = IR_GPU_WARP / 2; mask; mask /= 2) {
        if (w->known_team && mask >= w->known_team) continue;
        red_acc other = {gpu_shuffle(e, acc.value, mask), acc.index ? gpu_shuffle(e, acc.index, mask) : NULL};
        red_acc both = has_order(w, j) ? merge_in_order(w, j, acc, other, mask) : red_merge(r, j, acc, other);
        acc = w->known_team ? both : gpu_select(w, j, em_icmp(e, LLVMIntSGT, w->team, em_i64s(e, mask)), both, acc);
    }
    return acc;
}

static LLVMValueRef slot_at(gpu_row *w, int a, LLVMValueRef warp) {
    emit *e = w->r->e;
    return red_slot(e, w->slots, em_add(e, em_i64s(e, (int64_t)a * WARPS), warp));
}

/* What the first lane of each warp has, in order. What lies behind the team's own is loaded too, and does not count. */
static void combine_warps(gpu_row *w, const gpu_pass *p, red_acc *acc) {
    red *r = w->r;
    emit *e = r->e;
    LLVMValueRef in_warp = em_and(e, w->thread, em_i64s(e, IR_GPU_WARP - 1)), warp = em_lshr(e, w->thread, 5);
    LLVMValueRef warps = em_lshr(e, w->team, 5), first = em_and(e, warp, em_sub(e, em_i64s(e, 0), warps));
    em_branch is_first = em_if(e, em_icmp(e, LLVMIntEQ, in_warp, em_i64s(e, 0)));
    for (int a = 0; a < p->n_acc; a++) red_store_partial(r, p->acc[a], acc[a], slot_at(w, a, warp));
    em_endif(e, &is_first);
    gpu_barrier(e);
    for (int a = 0; a < p->n_acc; a++) {
        int j = p->acc[a];
        LLVMValueRef own = slot_at(w, a, first);
        acc[a] = gpu_load_partial(w, j, own);
        for (int i = 1; i < WARPS; i++) {
            LLVMValueRef is_ours = em_icmp(e, LLVMIntSGT, warps, em_i64s(e, i));
            red_acc both = red_merge(r, j, acc[a], gpu_load_partial(w, j, red_slot(e, own, em_i64s(e, i))));
            acc[a] = gpu_select(w, j, is_ours, both, acc[a]);
        }
    }
    gpu_barrier(e); /* before the slots are used again */
}

void gpu_combine_team(gpu_row *w, const gpu_pass *p, red_acc *acc) {
    emit *e = w->r->e;
    gpu_cell *cell = FU_NEW_N(e->arena, gpu_cell, p->n_acc + 1);
    for (int a = 0; a < p->n_acc; a++) acc[a] = combine_warp(w, p->acc[a], acc[a]);
    if ((w->known_team && w->known_team <= IR_GPU_WARP) || !p->n_acc) return;
    for (int a = 0; a < p->n_acc; a++) {
        cell[a] = gpu_cell_new(w, p->acc[a]);
        gpu_cell_set(w, p->acc[a], cell[a], acc[a]);
    }
    em_branch has_warps = em_if(e, em_icmp(e, LLVMIntSGT, w->team, em_i64s(e, IR_GPU_WARP)));
    combine_warps(w, p, acc);
    for (int a = 0; a < p->n_acc; a++) gpu_cell_set(w, p->acc[a], cell[a], acc[a]);
    em_endif(e, &has_warps);
    for (int a = 0; a < p->n_acc; a++) acc[a] = gpu_cell_get(w, p->acc[a], cell[a]);
}
