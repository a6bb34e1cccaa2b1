/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* window_pairs.c: convolutions of bf16 by vdpbf16ps (ir/kernel.h): the order of sums is that of all targets,
 * so a word has two elements of K that follow one another, the first in its upper half (jit/bf16_words.c). Of the
 * operand they lie a place or a channel apart: the slab has a plane for each way that they do, and the table says where
 * each word is. Rows of weights are words as they lie, with halves changed.
 *
 * The instruction takes subnormals for 0. Of each row or vector of packed weights, and of each slab, the least exponent
 * is kept; where both allow a subnormal product, a tile makes the same sums by fma. */
#include "jit/window.h"

/* In the head of scratch, behind the pitch. */
enum { AT_EXPONENT = 8, AT_SLOW = 16 };

LLVMValueRef window_slab_exponent(window *w) { return em_gep(w->e, w->e->scratch, w->e->t_i8, num(w, AT_EXPONENT)); }

/* ---- the slab's planes ---- */
LLVMValueRef window_pair_planes(window *w) {
    emit *e = w->e;
    LLVMValueRef n = em_mul(e, w->taken, num(w, w->pairs.n_kinds));
    if (!w->pairs.crosses) return n;
    return em_add(e, n, LLVMBuildLShr(e->b, em_add(e, w->taken, num(w, 1)), num(w, 1), ""));
}

/* Of two channels where some words have elements of both. */
static int64_t planes_each(const window *w) { return w->pairs.crosses ? 2 * w->pairs.n_kinds + 1 : w->pairs.n_kinds; }

static LLVMValueRef plane_of(window *w, LLVMValueRef channel, LLVMValueRef kind) {
    emit *e = w->e;
    LLVMValueRef each = num(w, planes_each(w)), one = num(w, 1);
    if (!w->pairs.crosses) return em_add(e, em_mul(e, channel, each), kind);
    LLVMValueRef first = em_mul(e, LLVMBuildLShr(e->b, channel, one, ""), each),
                 of_second = em_mul(e, em_and(e, channel, one), num(w, w->pairs.n_kinds + 1));
    return em_add(e, em_add(e, first, of_second), kind);
}

LLVMValueRef window_pair_of_plane(window *w, LLVMValueRef plane, LLVMValueRef by[4]) {
    emit *e = w->e;
    const ir_window_pairs *p = &w->pairs;
    LLVMValueRef each = num(w, planes_each(w)), channel = LLVMBuildUDiv(e->b, plane, each, ""),
                 kind = LLVMBuildURem(e->b, plane, each, "");
    if (p->crosses) {
        LLVMValueRef is_second = em_icmp(e, LLVMIntSGT, kind, num(w, p->n_kinds));
        channel = em_add(e, em_mul(e, channel, num(w, 2)), LLVMBuildZExt(e->b, is_second, e->t_i64, ""));
        kind = em_select(e, is_second, em_sub(e, kind, num(w, p->n_kinds + 1)), kind);
    }
    for (int i = 0; i < 4; i++) {
        by[i] = num(w, p->by[0][i]);
        for (int n = 1; n < p->n_kinds + p->crosses; n++)
            by[i] = em_select(e, em_icmp(e, LLVMIntEQ, kind, num(w, n)), num(w, p->by[n][i]), by[i]);
    }
    return channel;
}

/* ---- the table ---- */
void window_emit_pair_table(window *w, const window_slab *slab) {
    emit *e = w->e;
    const ir_window_pairs *p = &w->pairs;
    em_loop l = em_for(e, num(w, 0), w->kk, num(w, 1));
    LLVMValueRef k = em_mul(e, l.i, num(w, 2)), place[3], of_axis[IR_KERNEL_MAX_AXES] = {0},
                 kind = num(w, p->kind_of[3]);
    LLVMValueRef all = num(w, p->places[0] * p->places[1] * p->places[2]), channel = LLVMBuildUDiv(e->b, k, all, "");
    LLVMValueRef left = LLVMBuildURem(e->b, k, all, "");
    for (int i = 0; i < 3; i++) {
        place[i] = LLVMBuildURem(e->b, left, num(w, p->places[i]), "");
        left = LLVMBuildUDiv(e->b, left, num(w, p->places[i]), "");
        if (i < w->k->n_axes) of_axis[w->k->n_axes - 1 - i] = place[i];
    }
    for (int i = 2; i >= 0; i--)
        kind = em_select(e, em_icmp(e, LLVMIntSLT, place[i], num(w, p->places[i] - 1)), num(w, p->kind_of[i]), kind);
    LLVMBuildStore(e->b, window_slab_place(w, slab, plane_of(w, channel, kind), of_axis),
                   em_gep(e, w->table, e->t_i64, l.i));
    if (!w->k->is_by_channel)
        LLVMBuildStore(e->b, em_mul(e, l.i, num(w, (int64_t)w->nr * w->bytes)),
                       em_gep(e, w->panel_table, e->t_i64, l.i));
    em_end(e, &l);
}

/* ---- weights ---- */
void window_emit_pair_row(window *w, LLVMValueRef off, LLVMValueRef row) {
    emit *e = w->e;
    const int lanes = e->lanes;
    LLVMValueRef from = em_gep(e, e->base[w->weights], e->t_i16, off), two = num(w, 2);
    em_loop l = em_for(e, num(w, 0), w->kk, num(w, w->v_lanes));
    LLVMValueRef first = em_mul(e, l.i, two);
    e->lanes = 2 * w->v_lanes;
    LLVMValueRef x =
        em_load_ptr(e, FUSOR_I16, em_gep(e, from, e->t_i16, first), em_mask(e, em_sub(e, w->elements, first)), 2);
    e->lanes = w->v_lanes;
    x = LLVMBuildBitCast(e->b, x, em_vec(e, e->t_i32), "");
    x = em_or(e, em_shl(e, x, 16), em_lshr(e, x, 16));
    em_store_ptr(e, FUSOR_I32, x, element(w, row, l.i), em_mask(e, em_sub(e, w->kk, l.i)), (unsigned)w->bytes);
    em_end(e, &l);
    e->lanes = lanes;
    LLVMValueRef is_odd = em_icmp(e, LLVMIntNE, em_and(e, w->elements, num(w, 1)), num(w, 0));
    em_branch b = em_if(e, is_odd); /* -0 times the slab's 0 changes no sum */
    LLVMValueRef last =
        LLVMBuildStore(e->b, LLVMConstInt(e->t_i16, 0x8000, 0), element(w, row, em_sub(e, w->kk, num(w, 1))));
    LLVMSetAlignment(last, 2);
    em_endif(e, &b);
}

LLVMValueRef window_least_of(window *w, LLVMValueRef least, LLVMValueRef words) {
    emit *e = w->e;
    words = LLVMBuildBitCast(e->b, words, LLVMVectorType(e->t_i32, (unsigned)w->v_lanes), "");
    words = em_and(e, words, em_i32(e, 0x7fff7fff));
    return em_lesser_magnitude(e, least, LLVMBuildBitCast(e->b, words, LLVMTypeOf(least), ""));
}

LLVMTypeRef window_halves(window *w) { return LLVMVectorType(w->e->t_i16, 2 * (unsigned)w->v_lanes); }

void window_store_exponent(window *w, LLVMValueRef from, LLVMValueRef count, LLVMValueRef apart, LLVMValueRef to) {
    emit *e = w->e;
    const int lanes = e->lanes;
    e->lanes = w->v_lanes;
    LLVMValueRef step = apart ? num(w, 1) : num(w, w->v_lanes);
    em_loop l = em_for(e, num(w, 0), count, step);
    LLVMValueRef least = em_loop_phi(e, &l, LLVMConstAllOnes(window_halves(w)));
    LLVMValueRef at = element(w, from, apart ? em_mul(e, l.i, apart) : l.i);
    LLVMValueRef x =
        em_load_ptr(e, FUSOR_I32, at, apart ? NULL : em_mask(e, em_sub(e, count, l.i)), (unsigned)w->bytes);
    em_loop_next(e, least, window_least_of(w, least, x));
    em_end(e, &l);
    em_store_least_exponent(e, least, to);
    e->lanes = lanes;
}

/* ---- may a tile be made by the instruction? ---- */
LLVMValueRef window_is_slow(window *w, LLVMValueRef exponents, LLVMValueRef count, int apart) {
    emit *e = w->e;
    LLVMValueRef no = LLVMConstInt(e->t_i1, 0, 0);
    em_loop l = em_for(e, num(w, 0), count, num(w, 1));
    LLVMValueRef is = em_loop_phi(e, &l, no);
    LLVMValueRef at = element(w, exponents, em_mul(e, l.i, num(w, apart)));
    em_loop_next(e, is, em_or(e, is, LLVMBuildNot(e->b, em_bf16_is_exact(e, at, window_slab_exponent(w)), "")));
    em_end(e, &l);
    return is;
}

LLVMValueRef window_tell_slow(window *w, LLVMValueRef is_slow) {
    emit *e = w->e;
    LLVMValueRef at = em_gep(e, e->scratch, e->t_i8, num(w, AT_SLOW));
    LLVMBuildStore(e->b, LLVMBuildZExt(e->b, is_slow, e->t_i64, ""), at);
    return at;
}

void window_leave_if_slow(window *w, window_function f, LLVMValueRef by_fma, LLVMValueRef at, LLVMValueRef *in, int n) {
    emit *e = w->e;
    LLVMBasicBlockRef slow = em_block(e, "slow"), fast = em_block(e, "fast");
    LLVMValueRef told = LLVMBuildLoad2(e->b, e->t_i64, at, "");
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntNE, told, num(w, 0)), slow, fast);
    LLVMPositionBuilderAtEnd(e->b, slow);
    LLVMBuildCall2(e->b, w->function_type[f], by_fma, in, (unsigned)n, "");
    LLVMBuildRetVoid(e->b);
    LLVMPositionBuilderAtEnd(e->b, fast);
}
