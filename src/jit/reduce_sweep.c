/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* reduce_sweep.c: the sweep over one block of the last r dim with the lanes along it, in the order of ir/schedule.h.
 *
 *   few elements, known: straight code, one vector for each of the accumulators in use, the last one masked
 *
 *   cheap program: a loop over groups of IR_REDUCE_UNROLL vectors, accumulators in registers; then the rest, with masks
 *   in registers too
 *
 *   costly program: one vector a step, accumulators that go round in registers, then one masked step; where that cannot
 *   be, the rest only, two copies of the code
 *
 * The rest: whole vectors (left out where the level has masks and a cheap program's loop came before), then masked
 * vectors where the level has masks, else single elements, each combined into its own accumulator in memory. All values
 * of a step are computed before its first store, so an output may be the same memory as an input of this pass. */
#include "jit/reduce_common.h"
#include <string.h>

enum { FRAME_MAX = 12 * 1024, CHEAP_MAX = 24, STREAM_AHEAD = 4096, STREAM_BYTES = 2 << 20 };

static void need(red_sweep *s, int inst, int *count) {
    red *r = s->r;
    const ir_kinst *in = &r->k->inst[inst];
    if (s->is_needed[inst]) return;
    s->is_needed[inst] = true;
    if (red_is_block(r, inst)) {
        s->is_seed[inst] = true;
        return;
    }
    ++*count;
    if (s->kept_row && in->is_kept && r->pass[inst] < s->pass) {
        s->is_loaded[inst] = true;
        return;
    }
    if (in->op < IR_OP_COUNT && (ir_ops[in->op].flags & IR_COSTLY)) s->is_costly = true;
    for (int i = 0; i < in->n_in; i++) need(s, in->in[i], count);
}

/* An accumulator area holds IR_REDUCE_UNROLL * lanes elements. The sweeps of a kernel do not overlap, but each has its
 * own areas: frames stay small anyway. */
static fusor_status make_memory(red_sweep *s, fu_error *err) {
    red *r = s->r;
    emit *e = r->e;
    int n = IR_REDUCE_UNROLL * e->level->lanes;
    int64_t bytes = 0;
    for (int j = 0; j < r->n_reductions; j++)
        bytes += n * (ir_dtypes[red_type(r, j)].bytes + (red_is_arg(r, j) ? 4 : 0));
    if (bytes > FRAME_MAX)
        return FU_FAIL(err, FUSOR_ERROR_UNSUPPORTED,
                       "%d reductions in one kernel need %lld bytes of accumulators; the limit is %d", r->n_reductions,
                       (long long)bytes, FRAME_MAX);
    for (int a = 0; a < s->n_acc; a++) {
        LLVMTypeRef t = em_memory_type(e, red_type(r, s->acc[a]));
        s->memory[a] = em_alloca(e, LLVMArrayType2(t, (uint64_t)n), 64);
        if (red_is_arg(r, s->acc[a])) s->index_memory[a] = em_alloca(e, LLVMArrayType2(e->t_i32, (uint64_t)n), 64);
    }
    return FUSOR_OK;
}

static red_sweep *new_sweep(red *r, int pass, LLVMValueRef *kept) {
    int n = r->k->n_insts;
    fu_arena *arena = r->e->arena;
    red_sweep *s = FU_NEW(arena, red_sweep);
    s->r = r;
    s->pass = pass;
    s->kept_row = kept;
    s->acc = FU_NEW_N(arena, int, n);
    s->store = FU_NEW_N(arena, int, n);
    s->kept = FU_NEW_N(arena, int, n);
    s->memory = FU_NEW_N(arena, LLVMValueRef, n);
    s->index_memory = FU_NEW_N(arena, LLVMValueRef, n);
    s->x = FU_NEW_N(arena, LLVMValueRef, n);
    s->vector = fu_alloc(arena, (size_t)(n + 1) * sizeof *s->vector);
    s->find = FU_NEW_N(arena, red_sweep *, n);
    s->nan = FU_NEW_N(arena, LLVMValueRef, n);
    s->nans = FU_NEW_N(arena, LLVMValueRef, n);
    return s;
}

/* Are n elements of a block written out? A constant mask costs nothing at any level, and without masks the rest would be
 * a second copy of the code anyway. An arg-reduction alone holds its vectors in registers until it has found one. */
static bool is_straight(const red_sweep *s, int64_t n) {
    const red *r = s->r;
    const int64_t lanes = r->e->level->lanes;
    if (s->is_costly) return n <= (r->e->level->has_mask ? 1 : 2) * lanes;
    const bool is_alone = s->n_acc == 1 && s->has_arg && s->n_stores + s->n_kept == 0;
    return n <= IR_REDUCE_UNROLL * lanes || (is_alone && n <= RED_FIND_MAX * lanes && n <= RED_FIND_ELEMENTS);
}

/* Does red_find what an accumulator and its halves do? */
static bool is_found(const red_sweep *s, int a, int64_t n) {
    return red_is_arg(s->r, s->acc[a]) && n > 0 && n <= RED_FIND_ELEMENTS && is_straight(s, n);
}

/* Arg-reductions of cheap programs compare groups of IR_REDUCE_UNROLL vectors, and carry the number of the group along:
 * half the work. The element is looked for at the end, by evaluating the group again. Not where a block is straight
 * code; and an output of the sweep may have overwritten what would be read again. */
static void find_by_group(red_sweep *s) {
    red *r = s->r;
    int64_t n;
    if (s->is_costly || s->n_stores || r->v >= 0) return;
    if (red_constant(r->e->size[r->last], &n) && is_straight(s, n)) return;
    for (int a = 0; a < s->n_acc; a++) {
        if (!red_is_arg(r, s->acc[a])) continue;
        red_sweep *f = new_sweep(r, s->pass, s->kept_row);
        int count = 0;
        f->acc[f->n_acc++] = s->acc[a];
        need(f, r->k->inst[r->reduction[s->acc[a]]].in[0], &count);
        s->find[a] = f;
    }
    s->masks_rest = red_masks_rest(r, s) && s->n_kept == 0;
    for (int a = 0; a < s->n_acc; a++)
        if (s->find[a]) s->find[a]->masks_rest = s->masks_rest;
}

fusor_status red_sweep_new(red *r, int pass, LLVMValueRef *kept, fu_error *err, red_sweep **out) {
    const ir_kernel *k = r->k;
    red_sweep *s = new_sweep(r, pass, kept);
    int count = 0;
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        if (ir_kernel_is_reduce_op(in->op) && r->pass[in->in[0]] == pass) {
            s->acc[s->n_acc++] = r->number[i];
            s->has_arg |= red_is_arg(r, r->number[i]);
            need(s, in->in[0], &count);
        } else if (in->op == IR_K_STORE && r->is_element_store[i] && r->pass[i] == pass) {
            s->store[s->n_stores++] = i;
            need(s, in->in[0], &count);
        } else if (kept && in->is_kept && !red_is_block(r, i) && r->pass[i] == pass) {
            s->kept[s->n_kept++] = i;
            need(s, i, &count);
        }
    }
    if (count > CHEAP_MAX) s->is_costly = true;
    if (s->has_arg) find_by_group(s);
    *out = s->n_acc + s->n_stores + s->n_kept ? s : NULL;
    return *out && s->n_acc && r->v < 0 ? make_memory(s, err) : FUSOR_OK;
}

/* ---- one step ---- */
static LLVMValueRef kept_place(const red_sweep *s, int inst, const red_at *at) {
    emit *e = s->r->e;
    LLVMValueRef i = em_add(e, s->kept_at, at->i);
    if (at->c) i = red_advance(e, at->c, i, s->kept_step[inst]);
    return em_gep(e, s->kept_row[inst], em_memory_type(e, s->r->k->inst[inst].dtype), i);
}

void red_evaluate(red_sweep *s, red_body *b, red_at at, LLVMValueRef *seed) {
    red *r = s->r;
    emit *e = r->e;
    const ir_kernel *k = r->k;
    b->at = at;
    em_values_init(&b->v, red_load_value, &b->at);
    if (r->has_access && e->lanes > 1) {
        em_values_init(&b->one, red_load_value, &b->at);
        memcpy(b->one.at, s->seed, sizeof b->one.at);
        b->v.one = &b->one;
    }
    for (int n = 0; n < k->n_insts; n++) {
        if (s->is_seed[n]) b->v.at[n] = seed[n];
        if (!s->is_loaded[n]) continue;
        ir_dtype t = k->inst[n].dtype;
        b->v.at[n] = em_load_ptr(e, t, kept_place(s, n, &at), at.mask, ir_dtypes[t].bytes);
    }
    for (int a = 0; a < s->n_acc; a++) s->x[a] = em_value(e, &b->v, k->inst[r->reduction[s->acc[a]]].in[0]);
    for (int n = 0; n < s->n_kept; n++) em_value(e, &b->v, s->kept[n]);
    for (int n = 0; n < s->n_stores; n++) em_value(e, &b->v, k->inst[s->store[n]].in[0]);
}

void red_write(red_sweep *s, red_body *b) {
    red *r = s->r;
    emit *e = r->e;
    const ir_kernel *k = r->k;
    for (int n = 0; n < s->n_kept; n++) {
        int inst = s->kept[n];
        ir_dtype t = k->inst[inst].dtype;
        em_store_ptr(e, t, b->v.at[inst], kept_place(s, inst, &b->at), b->at.mask, ir_dtypes[t].bytes);
    }
    for (int n = 0; n < s->n_stores; n++) {
        const ir_kinst *in = &k->inst[s->store[n]];
        LLVMValueRef off = red_advance(e, NULL, b->at.i, e->stride[in->index][r->last]);
        if (b->at.c) off = red_advance(e, off, b->at.c, e->stride[in->index][r->v]);
        em_store(e, in->index, b->v.at[in->in[0]], off, e->stride[in->index][r->along], b->at.mask);
    }
}

/* A step of the inner form at element i of the last r dim. */
static void evaluate(red_sweep *s, red_body *b, LLVMValueRef i, LLVMValueRef mask) {
    red_evaluate(s, b, (red_at){s->r, i, NULL, mask}, s->r->e->lanes == 1 ? s->seed : s->seed_splat);
}

/* Numbers of the lanes' elements within the block, as i32: an arg-reduction's index until the block is done. */
static LLVMValueRef positions(red_sweep *s, LLVMValueRef i) {
    emit *e = s->r->e;
    if (!s->has_arg) return NULL;
    LLVMValueRef first = em_splat(e, LLVMBuildTrunc(e->b, em_sub(e, i, s->r->begin), e->t_i32, ""));
    return e->lanes == 1 ? first : em_add(e, first, red_lane_numbers(e, e->t_i32, 0));
}

static red_acc fresh(red_sweep *s, int a, int u) {
    red *r = s->r;
    int j = s->acc[a];
    LLVMValueRef index = NULL;
    if (red_is_arg(r, j)) index = red_no_index(r, j, red_lane_numbers(r->e, r->e->t_i32, u * r->e->lanes));
    return red_identity(r, j, index);
}

/* The lines of s->ahead that belong to `elements` from i on. */
static void prefetch_ahead(const red_sweep *s, LLVMValueRef i, int elements) {
    emit *e = s->r->e;
    if (!s->n_ahead) return;
    em_branch prefetches = em_if(e, s->prefetches_ahead);
    for (const red_ahead *a = s->ahead; a < s->ahead + s->n_ahead; a++) {
        LLVMValueRef at = em_gep(e, a->row, e->t_i8, em_mul(e, i, em_i64s(e, a->bytes)));
        em_prefetch_lines(e, at, elements * a->bytes, 1);
    }
    em_endif(e, &prefetches);
}

/* Extremes of all elements: the instructions that a core has begun reach less far than prefetchers would have to. (Zen
 * 5, from L3 and from memory: maxima of 1e6 floats 0.92 of the time, of 1.6e7 0.85. Sums would take 1.0 to 1.1; of rows
 * maxima of 100000x100 0.67, but of 64x1000, in L2, 1.2.) */
void red_find_stream(red_sweep *s) {
    red *r = s->r;
    bool is_extreme = false;
    for (int a = 0; a < s->n_acc; a++) is_extreme |= red_is_arg(r, s->acc[a]) || red_sets_nans_apart(r, s->acc[a]);
    for (int n = 0; n < r->k->n_insts && is_extreme && r->n_p == 0 && r->v < 0; n++) {
        const ir_kinst *in = &r->k->inst[n];
        if (!s->is_needed[n] || s->is_seed[n] || in->op != IR_K_LOAD) continue;
        const int size = ir_dtypes[r->k->buffer[in->index].dtype].bytes;
        LLVMValueRef bytes = em_mul(r->e, red_product(r, r->r0, r->last + 1), em_i64s(r->e, size));
        s->prefetches_stream = em_icmp(r->e, LLVMIntSGE, bytes, em_i64s(r->e, STREAM_BYTES));
        return;
    }
}

static void prefetch_stream(const red_sweep *s, LLVMValueRef i, int elements) {
    const red *r = s->r;
    emit *e = r->e;
    bool is_prefetched[IR_KERNEL_MAX_BUFFERS] = {false};
    if (!s->prefetches_stream) return;
    em_branch prefetches = em_if(e, s->prefetches_stream);
    for (int n = 0; n < r->k->n_insts; n++) {
        const ir_kinst *in = &r->k->inst[n];
        if (!s->is_needed[n] || s->is_seed[n] || in->op != IR_K_LOAD || in->variant || is_prefetched[in->index])
            continue;
        if (r->k->buffer[in->index].stride[r->last] != 1) continue;
        const int bytes = ir_dtypes[r->k->buffer[in->index].dtype].bytes;
        LLVMValueRef at = em_gep(e, e->base[in->index], e->t_i8, em_mul(e, i, em_i64s(e, bytes)));
        em_prefetch_lines(e, em_gep(e, at, e->t_i8, em_i64s(e, STREAM_AHEAD)), elements * bytes, 1);
        is_prefetched[in->index] = true;
    }
    em_endif(e, &prefetches);
}

/* ---- accumulators in memory ---- */
static LLVMValueRef element(red_sweep *s, int a, bool of_index, LLVMValueRef number) {
    emit *e = s->r->e;
    LLVMTypeRef t = of_index ? e->t_i32 : em_memory_type(e, red_type(s->r, s->acc[a]));
    LLVMValueRef base = of_index ? s->index_memory[a] : s->memory[a];
    return base ? em_gep(e, base, t, number) : NULL;
}

static void spill(red_sweep *s, red_acc (*acc)[IR_REDUCE_UNROLL]) {
    emit *e = s->r->e;
    for (int a = 0; a < s->n_acc; a++)
        for (int u = 0; u < IR_REDUCE_UNROLL; u++) {
            LLVMValueRef n = em_i64s(e, u * e->lanes);
            red_store(s->r, s->acc[a], acc[a][u], element(s, a, false, n), element(s, a, true, n), FUSOR_I32, NULL);
        }
}

static void reload(red_sweep *s, red_acc (*acc)[IR_REDUCE_UNROLL]) {
    emit *e = s->r->e;
    for (int a = 0; a < s->n_acc; a++)
        for (int u = 0; u < IR_REDUCE_UNROLL; u++) {
            LLVMValueRef n = em_i64s(e, u * e->lanes);
            acc[a][u] = red_load(s->r, s->acc[a], element(s, a, false, n), element(s, a, true, n), FUSOR_I32, NULL);
        }
}

static void step_in_memory(red_sweep *s, LLVMValueRef i, LLVMValueRef mask) {
    red *r = s->r;
    emit *e = r->e;
    red_body b;
    evaluate(s, &b, i, mask);
    LLVMValueRef group = em_i64s(e, IR_REDUCE_UNROLL * e->level->lanes - 1), position = positions(s, i);
    LLVMValueRef number = s->n_acc ? em_and(e, em_sub(e, i, r->begin), group) : NULL;
    for (int a = 0; a < s->n_acc; a++) {
        LLVMValueRef at = element(s, a, false, number), index_at = element(s, a, true, number);
        red_acc acc = red_load(r, s->acc[a], at, index_at, FUSOR_I32, NULL);
        acc = red_take(r, s->acc[a], acc, s->x[a], position, mask);
        red_store(r, s->acc[a], acc, at, index_at, FUSOR_I32, NULL);
    }
    red_write(s, &b);
}

/* Elements [from, r->end), vector by vector; from - r->begin is a multiple of the lanes. */
static void rest_in_memory(red_sweep *s, LLVMValueRef from) {
    red *r = s->r;
    emit *e = r->e;
    int lanes = e->lanes;
    LLVMValueRef width = em_i64s(e, lanes);
    em_loop l;
    LLVMValueRef whole = em_and(e, em_sub(e, r->end, from), em_i64s(e, -(int64_t)lanes));
    if (e->level->has_mask) {
        if (s->is_costly) { /* all of a costly program's elements come here, and masked steps stream at half the rate */
            l = em_for(e, from, em_add(e, from, whole), width);
            prefetch_ahead(s, l.i, lanes);
            step_in_memory(s, l.i, NULL);
            em_end(e, &l);
            from = em_add(e, from, whole);
        }
        l = em_for(e, from, r->end, width);
        step_in_memory(s, l.i, em_mask(e, em_sub(e, r->end, l.i)));
        em_end(e, &l);
        return;
    }
    l = em_for(e, from, em_add(e, from, whole), width);
    prefetch_ahead(s, l.i, lanes);
    step_in_memory(s, l.i, NULL);
    em_end(e, &l);
    e->lanes = 1;
    l = em_for(e, em_add(e, from, whole), r->end, em_i64s(e, 1));
    em_loop_is_rare(e, &l);
    step_in_memory(s, l.i, NULL);
    em_end(e, &l);
    e->lanes = lanes;
}

/* ---- accumulators in registers ---- */
static LLVMValueRef main_loop(red_sweep *s, red_acc (*acc)[IR_REDUCE_UNROLL], int unroll) {
    red *r = s->r;
    emit *e = r->e;
    red_body b;
    int64_t group = (int64_t)unroll * e->lanes;
    LLVMValueRef whole = em_and(e, em_sub(e, r->end, r->begin), em_i64s(e, -group)), end = em_add(e, r->begin, whole);
    int64_t n;
    for (int a = 0; a < s->n_acc; a++)
        s->nans[a] = !s->find[a] && red_sets_nans_apart(r, s->acc[a]) ? red_no_nans(r, s->acc[a]) : NULL;
    if (red_constant(whole, &n) && n == 0) return end;
    em_loop l = em_for(e, r->begin, end, em_i64s(e, group));
    red_acc phi[s->n_acc + 1][IR_REDUCE_UNROLL];
    LLVMValueRef group_of[s->n_acc + 1]
                         [IR_REDUCE_UNROLL]; /* elements compared at once: the first accumulator takes them */
    for (int a = 0; a < s->n_acc; a++)
        if (s->find[a]) s->nan[a] = em_loop_phi(e, &l, s->nan[a]);
    for (int a = 0; a < s->n_acc; a++)
        for (int u = 0; u < (s->find[a] ? 1 : unroll); u++) {
            phi[a][u].value = em_loop_phi(e, &l, acc[a][u].value);
            phi[a][u].index = acc[a][u].index ? em_loop_phi(e, &l, acc[a][u].index) : NULL;
            acc[a][u] = phi[a][u];
        }
    LLVMValueRef nans[s->n_acc + 1][IR_REDUCE_UNROLL / 2], next_nans[s->n_acc + 1][IR_REDUCE_UNROLL / 2];
    bool is_apart[s->n_acc + 1];
    for (int a = 0; a < s->n_acc; a++) {
        is_apart[a] = s->nans[a];
        for (int u = 0; u < unroll / 2 && is_apart[a]; u++) nans[a][u] = em_loop_phi(e, &l, red_no_nans(r, s->acc[a]));
    }
    prefetch_ahead(s, l.i, (int)group);
    prefetch_stream(s, l.i, (int)group);
    for (int u = 0; u < unroll; u++) {
        LLVMValueRef i = u ? em_add(e, l.i, em_i64s(e, (int64_t)u * e->lanes)) : l.i, position = positions(s, i);
        evaluate(s, &b, i, NULL);
        for (int a = 0; a < s->n_acc; a++) {
            const int j = s->acc[a];
            group_of[a][u] = s->x[a];
            if (is_apart[a]) acc[a][u].value = red_better(r, j, acc[a][u].value, s->x[a]);
            else if (!s->find[a]) acc[a][u] = red_take(r, j, acc[a][u], s->x[a], position, NULL);
            if (is_apart[a] && u % 2)
                next_nans[a][u / 2] = red_add_nans(r, nans[a][u / 2], group_of[a][u - 1], s->x[a]);
        }
        red_write(s, &b);
    }
    for (int a = 0; a < s->n_acc; a++) {
        if (!s->find[a]) continue;
        LLVMValueRef first = em_splat(e, LLVMBuildTrunc(e->b, em_sub(e, l.i, r->begin), e->t_i32, ""));
        LLVMValueRef nan = s->nan[a];
        acc[a][0] = red_take_group(r, s->acc[a], acc[a][0], group_of[a], first, &nan);
        em_loop_next(e, s->nan[a], nan);
    }
    for (int a = 0; a < s->n_acc; a++)
        for (int u = 0; u < (s->find[a] ? 1 : unroll); u++) {
            em_loop_next(e, phi[a][u].value, acc[a][u].value);
            if (phi[a][u].index) em_loop_next(e, phi[a][u].index, acc[a][u].index);
            acc[a][u] = phi[a][u];
            if (is_apart[a] && u % 2) em_loop_next(e, nans[a][u / 2], next_nans[a][u / 2]);
        }
    em_end(e, &l);
    for (int a = 0; a < s->n_acc; a++)
        for (int u = 0; u < unroll / 2 && is_apart[a]; u++)
            s->nans[a] = u ? em_or(e, s->nans[a], nans[a][u]) : nans[a][u];
    return end;
}

LLVMValueRef red_phi(emit *e, LLVMValueRef a, LLVMBasicBlockRef from_a, LLVMValueRef b, LLVMBasicBlockRef from_b) {
    if (!a) return NULL;
    LLVMValueRef phi = LLVMBuildPhi(e->b, LLVMTypeOf(a), "");
    LLVMAddIncoming(phi, (LLVMValueRef[]){a, b}, (LLVMBasicBlockRef[]){from_a, from_b}, 2);
    return phi;
}

/* Fewer elements than a group from `from` on: a masked vector for each accumulator, its mask a part of one word. */
static void rest_in_registers(red_sweep *s, red_acc (*acc)[IR_REDUCE_UNROLL], LLVMValueRef from) {
    red *r = s->r;
    emit *e = r->e;
    red_body b;
    LLVMValueRef left = em_sub(e, r->end, from), bits = red_bits_below(e, left),
                 group_of[s->n_acc + 1][IR_REDUCE_UNROLL];
    for (int u = 0; u < IR_REDUCE_UNROLL; u++) {
        LLVMValueRef i = em_add(e, from, em_i64s(e, (int64_t)u * e->lanes)), position = positions(s, i);
        LLVMValueRef mask = red_mask_of(e, left, bits, u);
        evaluate(s, &b, i, mask);
        for (int a = 0; a < s->n_acc; a++) {
            const int j = s->acc[a];
            if (s->find[a]) group_of[a][u] = em_select(e, mask, s->x[a], red_identity(r, j, NULL).value);
            else if (s->nans[a]) acc[a][u] = red_take_apart(r, j, acc[a][u], s->x[a], mask, &s->nans[a]);
            else acc[a][u] = red_take(r, j, acc[a][u], s->x[a], position, mask);
        }
        red_write(s, &b);
    }
    LLVMValueRef first = s->has_arg ? em_splat(e, LLVMBuildTrunc(e->b, em_sub(e, from, r->begin), e->t_i32, "")) : NULL;
    for (int a = 0; a < s->n_acc; a++)
        if (s->find[a]) acc[a][0] = red_take_group(r, s->acc[a], acc[a][0], group_of[a], first, &s->nan[a]);
}

/* Without masks only rows of a multiple of the group never touch memory with their accumulators. */
static void rest(red_sweep *s, red_acc (*acc)[IR_REDUCE_UNROLL], LLVMValueRef from) {
    emit *e = s->r->e;
    int64_t n;
    if (red_constant(em_sub(e, s->r->end, from), &n) && n == 0) return;
    em_branch some = em_if(e, em_icmp(e, LLVMIntSLT, from, s->r->end));
    red_acc after[s->n_acc + 1][IR_REDUCE_UNROLL];
    LLVMValueRef nan[s->n_acc + 1], nans[s->n_acc + 1];
    memcpy(nan, s->nan, (size_t)s->n_acc * sizeof *nan);
    memcpy(nans, s->nans, (size_t)s->n_acc * sizeof *nans);
    if (s->masks_rest || (e->level->has_mask && s->n_acc)) {
        for (int a = 0; a < s->n_acc; a++) memcpy(after[a], acc[a], sizeof after[a]);
        rest_in_registers(s, after, from);
    } else {
        spill(s, acc);
        rest_in_memory(s, from);
        reload(s, after);
        for (int a = 0; a < s->n_acc; a++)
            for (int u = 0; u < IR_REDUCE_UNROLL && s->nans[a]; u += 2)
                s->nans[a] = red_add_nans(s->r, s->nans[a], after[a][u].value, after[a][u + 1].value);
    }
    LLVMBasicBlockRef then = LLVMGetInsertBlock(e->b);
    em_endif(e, &some);
    for (int a = 0; a < s->n_acc; a++) {
        const bool is_grouped = s->find[a] && s->masks_rest;
        if (is_grouped) s->nan[a] = red_phi(e, s->nan[a], then, nan[a], some.other);
        s->nans[a] = red_phi(e, s->nans[a], then, nans[a], some.other);
        for (int u = 0; u < (is_grouped ? 1 : IR_REDUCE_UNROLL); u++) {
            acc[a][u].value = red_phi(e, after[a][u].value, then, acc[a][u].value, some.other);
            acc[a][u].index = red_phi(e, after[a][u].index, then, acc[a][u].index, some.other);
        }
    }
}

static void take_nans(red_sweep *s, red_acc (*acc)[IR_REDUCE_UNROLL]) {
    for (int a = 0; a < s->n_acc; a++)
        if (s->find[a]) acc[a][0] = red_with_nans(s->r, s->acc[a], acc[a][0], s->nan[a]);
}

/* ---- accumulators in registers, of costly programs ---- */
/* One copy of the program for whole vectors and one for the rest. The accumulators go round: the first takes the next
 * vector and becomes the last. What they hold is then combined by pairs of the same distance, in another order of the
 * operands only: which must not show. */
static bool may_rotate(const red_sweep *s) {
    if (!s->r->e->level->has_mask || s->has_arg) return false;
    for (int a = 0; a < s->n_acc; a++) {
        ir_op combine = ir_ops[s->r->k->inst[s->r->reduction[s->acc[a]]].op].combine;
        bool is_extreme = combine == IR_OP_MAXIMUM || combine == IR_OP_MINIMUM; /* of +0 and -0 the second wins */
        if (is_extreme && ir_is_float(red_type(s->r, s->acc[a]))) return false;
    }
    return true;
}

static void rotating_loop(red_sweep *s, red_acc (*acc)[IR_REDUCE_UNROLL]) {
    red *r = s->r;
    emit *e = r->e;
    red_body b;
    const int last = IR_REDUCE_UNROLL - 1;
    LLVMValueRef whole = em_and(e, em_sub(e, r->end, r->begin), em_i64s(e, -(int64_t)e->lanes));
    LLVMValueRef end = em_add(e, r->begin, whole), took[s->n_acc + 1];
    em_loop l = em_for(e, r->begin, end, em_i64s(e, e->lanes));
    for (int a = 0; a < s->n_acc; a++)
        for (int u = 0; u <= last; u++) acc[a][u].value = em_loop_phi(e, &l, acc[a][u].value);
    prefetch_ahead(s, l.i, e->lanes);
    evaluate(s, &b, l.i, NULL);
    for (int a = 0; a < s->n_acc; a++) {
        took[a] = red_take(r, s->acc[a], acc[a][0], s->x[a], NULL, NULL).value;
        for (int u = 0; u <= last; u++) em_loop_next(e, acc[a][u].value, u == last ? took[a] : acc[a][u + 1].value);
    }
    red_write(s, &b);
    em_end(e, &l);
    em_branch some = em_if(e, em_icmp(e, LLVMIntSLT, end, r->end));
    LLVMValueRef mask = em_mask(e, em_sub(e, r->end, end));
    evaluate(s, &b, end, mask);
    for (int a = 0; a < s->n_acc; a++) took[a] = red_take(r, s->acc[a], acc[a][0], s->x[a], NULL, mask).value;
    red_write(s, &b);
    LLVMBasicBlockRef then = LLVMGetInsertBlock(e->b);
    em_endif(e, &some);
    for (int a = 0; a < s->n_acc; a++) acc[a][0].value = red_phi(e, took[a], then, acc[a][0].value, some.other);
}

static void straight(red_sweep *s, red_acc (*acc)[IR_REDUCE_UNROLL], int64_t n) {
    red *r = s->r;
    emit *e = r->e;
    red_body b;
    for (int u = 0; (int64_t)u * e->lanes < n; u++) {
        int64_t left = n - (int64_t)u * e->lanes;
        LLVMValueRef i = em_add(e, r->begin, em_i64s(e, (int64_t)u * e->lanes)), position = positions(s, i);
        LLVMValueRef mask = left < e->lanes ? em_mask(e, em_i64s(e, left)) : NULL;
        evaluate(s, &b, i, mask);
        for (int a = 0; a < s->n_acc; a++) {
            if (is_found(s, a, n)) s->vector[a][u] = s->x[a];
            else acc[a][u] = red_take(r, s->acc[a], acc[a][u], s->x[a], position, mask);
        }
        red_write(s, &b);
    }
}

/* ---- the sweep ---- */
void red_seeds(red_sweep *s, const em_values *row) {
    red *r = s->r;
    emit *e = r->e;
    red_body b;
    b.at = (red_at){r, NULL, NULL, NULL};
    b.v = *row; /* a copy: what is computed for this block is no value of the row */
    b.v.user = &b.at;
    for (int n = 0; n < r->k->n_insts; n++)
        if (s->is_seed[n]) s->seed[n] = em_value(e, &b.v, n);
    e->lanes = e->level->lanes;
    for (int n = 0; n < r->k->n_insts; n++)
        if (s->is_seed[n]) s->seed_splat[n] = em_splat(e, s->seed[n]);
    s->kept_at = red_advance(e, NULL, r->outer, e->size[r->last]);
}

void red_sweep_row(red_sweep *s, em_values *row) {
    for (int n = 0; n < s->r->k->n_insts; n++)
        if (s->is_seed[n] && red_is_row(s->r, n)) em_value(s->r->e, row, n);
}

/* At the level's lanes from here on. Returns how many accumulators may have taken an element. */
static int64_t sweep(red_sweep *s, const em_values *row, red_acc (*acc)[IR_REDUCE_UNROLL]) {
    red *r = s->r;
    emit *e = r->e;
    red_seeds(s, row);
    int64_t n = INT64_MAX;
    bool known = red_constant(em_sub(e, r->end, r->begin), &n);
    for (int a = 0; a < s->n_acc; a++) {
        s->nans[a] = NULL;
        for (int u = 0; u < IR_REDUCE_UNROLL; u++) acc[a][u] = fresh(s, a, u);
    }
    if (known && is_straight(s, n)) {
        straight(s, acc, n);
    } else if (s->is_costly && may_rotate(s)) {
        rotating_loop(s, acc);
        known = false; /* an accumulator that took nothing may be any of them now */
    } else if (s->is_costly) {
        spill(s, acc);
        rest_in_memory(s, r->begin);
        reload(s, acc);
    } else {
        for (int a = 0; a < s->n_acc; a++)
            if (s->find[a]) s->nan[a] = red_no_nan(r, s->acc[a]);
        LLVMValueRef end = main_loop(s, acc, s->n_acc ? IR_REDUCE_UNROLL : 2);
        if (!s->masks_rest) take_nans(s, acc);
        rest(s, acc, end);
        if (s->masks_rest) take_nans(s, acc);
    }
    return known ? n : INT64_MAX;
}

void red_sweep_vectors(red_sweep *s, const em_values *row, LLVMValueRef *out) {
    red_acc acc[s->n_acc + 1][IR_REDUCE_UNROLL];
    const int64_t elements = sweep(s, row, acc);
    for (int a = 0; a < s->n_acc; a++) {
        red_fold(s->r, s->acc[a], acc[a], s->nans[a], elements);
        out[a] = (s->nans[a] ? red_put_nans(s->r, s->acc[a], acc[a][0], s->nans[a]) : acc[a][0]).value;
    }
    s->r->e->lanes = 1;
}

void red_sweep_block(red_sweep *s, const em_values *row, LLVMValueRef *slot) {
    red *r = s->r;
    emit *e = r->e;
    red_acc acc[s->n_acc + 1][IR_REDUCE_UNROLL];
    const int64_t elements = sweep(s, row, acc);
    for (int a = 0; a < s->n_acc; a++) {
        const int64_t taken = s->find[a] && s->masks_rest ? e->lanes : elements; /* groups: the first has all */
        red_acc total = is_found(s, a, elements) ? red_find(r, s->acc[a], s->vector[a], elements)
                                                 : red_halves(r, s->acc[a], acc[a], s->nans[a], taken);
        if (total.index) {
            LLVMValueRef first =
                s->find[a] ? em_mul(e, r->partial, em_i64s(e, IR_REDUCE_BLOCK)) : em_add(e, s->kept_at, r->begin);
            total.index = em_add(e, first, LLVMBuildSExt(e->b, total.index, e->t_i64, ""));
        }
        red_store_partial(r, s->acc[a], total, slot[a]);
    }
    e->lanes = 1;
}

LLVMValueRef red_result(red_sweep *s, int a, const em_values *row, LLVMValueRef first) {
    red *r = s->r;
    emit *e = r->e;
    int j = s->acc[a];
    LLVMValueRef result = red_tree(r, j, first);
    if (!s->find[a]) return result;
    int64_t n = -1;
    if (red_constant(r->partials, &n) && n == 0) return result;
    em_branch any = {0};
    if (n < 0) any = em_if(e, em_icmp(e, LLVMIntSGT, r->partials, em_i64s(e, 0)));
    LLVMValueRef found = red_locate(s->find[a], row, result, red_load(r, j, first, first, FUSOR_I64, NULL).value);
    LLVMBasicBlockRef then = LLVMGetInsertBlock(e->b);
    if (n >= 0) return found;
    em_endif(e, &any);
    return red_phi(e, found, then, result, any.other);
}
