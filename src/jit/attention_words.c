/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attention_words.c: rows of halves as rows of words of two, for the instructions that multiply those
 * (ir_kernel_attention_dot): of keys, and of queries, which are then turned into panels.
 *
 * Rows come from memory where they lie, or as accumulators (attention_rows.c) that halves can represent and that become
 * words in the same place. With words of bf16 goes the least exponent of their elements (bf16_words.c): where a product
 * could be subnormal, fma makes the scores. */
#include "jit/attention.h"

static ir_dtype half_type(const attention *a) { return a->dot == IR_DOT_TILE_F16 ? FUSOR_F16 : FUSOR_BF16; }

/* n halves as words: vdpbf16ps adds the product of the upper halves first. */
static LLVMValueRef in_order(attention *a, LLVMValueRef halves, int n) {
    LLVMValueRef index[64];
    if (a->dot != IR_DOT_BF16) return halves;
    for (int i = 0; i < n; i++) index[i] = LLVMConstInt(a->e->t_i32, (unsigned)(i ^ 1), 0);
    return LLVMBuildShuffleVector(a->e->b, halves, halves, LLVMConstVector(index, (unsigned)n), "");
}

/* em_lesser_magnitude of f32. What is infinite or no number counts as subnormal. */
static LLVMValueRef least_of(attention *a, LLVMValueRef least, LLVMValueRef x) {
    emit *e = a->e;
    x = em_and(e, em_bits_of_f32(e, x), em_i32(e, 0x7fffffff));
    return em_lesser_magnitude(e, least,
                               em_select(e, em_icmp(e, LLVMIntUGE, x, em_i32(e, 0x7f800000)), em_i32(e, 1), x));
}

/* (rows, count, columns, words, least): f32 rows[count][columns], columns a multiple of lanes, become rows of words,
 * filled up with zeros. A row's words end before the next row's elements begin, and each is written behind what it is
 * made of. */
static void emit_words_of_rows(attention *a) {
    emit *e = a->e;
    LLVMTypeRef parameter[5] = {e->t_ptr, e->t_i64, e->t_i64, e->t_i64, e->t_ptr};
    attention_outer *o = attention_begin(a, WORDS_OF_ROWS, "words_of_rows", parameter, 5, false, true);
    LLVMValueRef in[5], zero = attention_num(a, 0), lanes = attention_num(a, a->lanes), two = attention_num(a, 2);
    LLVMGetParams(e->fn, in);
    e->lanes = a->lanes;
    LLVMTypeRef t_bits = em_vec(e, e->t_i16), i16 = e->t_i16;
    em_loop r = em_for(e, zero, in[1], attention_num(a, 1));
    LLVMValueRef least = em_loop_phi(e, &r, LLVMConstAllOnes(em_vec(e, e->t_i32)));
    LLVMValueRef from = attention_at(a, in[0], em_mul(e, r.i, in[2]));
    LLVMValueRef to = attention_at(a, in[0], em_mul(e, r.i, in[3]));
    em_loop c = em_for(e, zero, in[2], lanes);
    LLVMValueRef row_least = em_loop_phi(e, &c, least);
    LLVMValueRef x = em_load_ptr(e, FUSOR_F32, attention_at(a, from, c.i), NULL, (unsigned)a->acc_bytes);
    LLVMValueRef bits = in_order(a, em_to_memory(e, half_type(a), x), a->lanes);
    LLVMSetAlignment(LLVMBuildStore(e->b, bits, em_gep(e, to, i16, c.i)), 2);
    em_loop_next(e, row_least, least_of(a, row_least, x));
    em_end(e, &c);
    em_loop z = em_for(e, in[2], em_mul(e, in[3], two), lanes);
    LLVMSetAlignment(LLVMBuildStore(e->b, LLVMConstNull(t_bits), em_gep(e, to, i16, z.i)), 2);
    em_end(e, &z);
    em_loop_next(e, least, row_least);
    em_end(e, &r);
    em_store_least_exponent(e, least, in[4]);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

/* (from, row, count, last, columns, to, words, least): the same of halves in memory: rows 0 to count - 1, from last on
 * that one again, each `row` behind the one before. */
static void emit_words_of_memory(attention *a) {
    emit *e = a->e;
    LLVMTypeRef parameter[8] = {e->t_ptr, e->t_i64, e->t_i64, e->t_i64, e->t_i64, e->t_ptr, e->t_i64, e->t_ptr};
    attention_outer *o = attention_begin(a, WORDS_OF_MEMORY, "words_of_memory", parameter, 8, false, true);
    LLVMValueRef in[8], zero = attention_num(a, 0);
    LLVMGetParams(e->fn, in);
    e->lanes = 2 * a->lanes;
    LLVMTypeRef t_bits = em_vec(e, e->t_i16), i16 = e->t_i16;
    LLVMValueRef sign = em_splat(e, LLVMConstInt(i16, 0x7fff, 0));
    em_loop r = em_for(e, zero, in[2], attention_num(a, 1));
    LLVMValueRef least = em_loop_phi(e, &r, LLVMConstAllOnes(t_bits));
    LLVMValueRef from = em_gep(e, in[0], i16, em_mul(e, em_min(e, r.i, in[3]), in[1]));
    LLVMValueRef to = attention_at(a, in[5], em_mul(e, r.i, in[6]));
    em_loop c = em_for(e, zero, in[4], attention_num(a, e->lanes));
    LLVMValueRef row_least = em_loop_phi(e, &c, least), mask = em_mask(e, em_sub(e, in[4], c.i));
    LLVMValueRef x = em_load_ptr(e, FUSOR_I16, em_gep(e, from, i16, c.i), mask, 2);
    LLVMSetAlignment(LLVMBuildStore(e->b, in_order(a, x, e->lanes), em_gep(e, to, i16, c.i)), 4);
    em_loop_next(e, row_least, em_lesser_magnitude(e, row_least, em_and(e, x, sign)));
    em_end(e, &c);
    em_loop_next(e, least, row_least);
    em_end(e, &r);
    em_store_least_exponent(e, least, in[7]);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

void attention_emit_words(attention *a) {
    const bool q = attention_has_halves(a, a->q, a->at.k), k = attention_has_halves(a, a->keys, a->at.k);
    if (!q || !k || a->splits) emit_words_of_rows(a);
    if (q || k) emit_words_of_memory(a);
}
