/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attention_amx.c: the scores of panels of queries by tile registers, where queries and keys are words of halves
 * (attention_words.c): keys are operand 0 in rows of words along the head, a panel's 32 queries operand 1. And the
 * products of weights and values, where those are bf16: weights, which are f32, are cut into two bf16 parts as they are
 * made (attention_softmax.c), and the values are turned. Else, and where a panel does not see a block's first keys, those
 * are made in attention_tile.c.
 *
 * Parts lie where the scores were: [kb / 2 words][ATTENTION_PARTS][nr]. */
#include "ir/arith.h"
#include "jit/amx.h"
#include "jit/attention.h"

/* (keys, rows, queries, words, dst, least of keys, of queries, scale): dst[i][nr] = keys[i] x queries, as ir/schedule.h
 * has it for the dot; of bf16, with a scale that is not 1, of queries multiplied by it. Up to 31 rows more are read and
 * written, of whatever is in scratch. */
static void emit_scores(attention *a) {
    emit *e = a->e;
    LLVMTypeRef parameter[8] = {e->t_ptr, e->t_i64, e->t_ptr, e->t_i64, e->t_ptr, e->t_ptr, e->t_ptr, a->t_acc};
    attention_outer *o = attention_begin(a, SCORES, "scores", parameter, 8, false, true);
    LLVMValueRef in[8];
    LLVMGetParams(e->fn, in);
    const int64_t head = a->k->dim[a->at.k].size;
    const int step = ir_dots[a->dot].step;
    if (head >= 1) in[3] = attention_num(a, ir_round_up(head, step) / 2);
    amx_product p = {.name = a->dot == IR_DOT_TILE_F16 ? "llvm.x86.tdpfp16ps" : "llvm.x86.tdpbf16ps",
                     .a_row = em_mul(e, in[3], attention_num(a, a->acc_bytes)),
                     .a_step = attention_num(a, AMX_ROW_BYTES),
                     .a_stays = LLVMConstInt(e->t_i1, 1, 0),
                     .b = in[2],
                     .words = in[3],
                     .scale = in[7]};
    LLVMValueRef is_exact = em_bf16_is_exact(e, in[5], in[6]), one = LLVMConstReal(a->t_acc, 1);
    is_exact = em_and(e, is_exact, em_fcmp(e, LLVMRealOEQ, in[7], one));
    em_loop l = em_for(e, attention_num(a, 0), in[1], attention_num(a, AMX_COLUMNS));
    p.rows = em_min(e, em_sub(e, in[1], l.i), attention_num(a, AMX_COLUMNS));
    p.is_high = em_icmp(e, LLVMIntSGT, p.rows, attention_num(a, AMX_SIDE));
    p.a = em_gep(e, in[0], e->t_i8, em_mul(e, l.i, p.a_row));
    p.to = attention_at(a, in[4], em_mul(e, l.i, attention_num(a, a->nr)));
    if (a->dot == IR_DOT_TILE_BF16) {
        em_branch exact = em_if(e, is_exact);
        amx_multiply(e, &p);
        em_else(e, &exact);
        amx_multiply_bf16_slowly(e, &p);
        em_endif(e, &exact);
    } else amx_multiply(e, &p);
    em_end(e, &l);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

/* ---- weights and values ---- */
/* The first part is a weight's upper 8 bits,
 * the second what is left, rounded to 8 bits: no more than 2^-16 of the weight is lost, 256 of the 528 roundings that
 * the bound has for sums (ref/attention.c). */
void attention_split(attention *a, const LLVMValueRef x[2], LLVMValueRef word[ATTENTION_PARTS]) {
    emit *e = a->e;
    LLVMValueRef part[ATTENTION_PARTS][2], high = em_i32(e, (int32_t)0xffff0000u);
    for (int h = 0; h < 2; h++) {
        LLVMValueRef bits = em_bits_of_f32(e, x[h]), upper = em_and(e, bits, high);
        LLVMValueRef rest = em_fsub(e, x[h], LLVMBuildBitCast(e->b, upper, LLVMTypeOf(x[h]), ""));
        part[0][h] = bits;
        part[1][h] = em_add(e, em_bits_of_f32(e, rest), em_i32(e, 0x8000));
    }
    for (int p = 0; p < ATTENTION_PARTS; p++)
        word[p] = em_or(e, LLVMBuildLShr(e->b, part[p][0], em_i32(e, 16), ""), em_and(e, part[p][1], high));
}

/* All weights are multiples of the last bit of the least one, 2^(E - 150), as elements of exponent E - 16 are; none is
 * subnormal where E is 24 and more. (One that is no number makes all of its query's results none by their sum.) */
void attention_store_exponent(attention *a, LLVMValueRef least, LLVMValueRef to) {
    emit *e = a->e;
    LLVMTypeRef t = e->t_i32;
    em_store_least_exponent(e, least, to);
    LLVMValueRef x = LLVMBuildLoad2(e->b, t, to, "");
    LLVMSetAlignment(x, 4);
    LLVMValueRef is_bad = LLVMBuildICmp(e->b, LLVMIntSLT, x, LLVMConstInt(t, 24, 0), "");
    x = LLVMBuildSelect(e->b, is_bad, LLVMConstInt(t, (uint32_t)-1000, 0),
                        LLVMBuildSub(e->b, x, LLVMConstInt(t, 16, 0), ""), "");
    LLVMSetAlignment(LLVMBuildStore(e->b, x, to), 4);
}

/* (s, count): parts become weights s[count][nr], for products by fma. */
static void emit_join(attention *a) {
    emit *e = a->e;
    LLVMTypeRef parameter[2] = {e->t_ptr, e->t_i64};
    attention_outer *o = attention_begin(a, JOIN, "join", parameter, 2, false, true);
    LLVMValueRef in[2], zero = attention_num(a, 0), one = attention_num(a, 1);
    LLVMGetParams(e->fn, in);
    e->lanes = a->lanes;
    LLVMTypeRef t = em_vec(e, e->t_f32);
    em_loop w = em_for(e, zero, LLVMBuildLShr(e->b, em_add(e, in[1], one), one, ""), one);
    LLVMValueRef row = em_mul(e, w.i, attention_num(a, ATTENTION_PARTS * a->nr)), x[ATTENTION_CHUNKS][2];
    for (int c = 0; c < a->nr / a->lanes; c++)
        for (int p = 0; p < ATTENTION_PARTS; p++) {
            LLVMValueRef at = em_add(e, row, attention_num(a, p * a->nr + c * a->lanes));
            LLVMValueRef word = em_bits_of_f32(e, attention_get(a, in[0], at)), half[2];
            half[0] = LLVMBuildShl(e->b, word, em_i32(e, 16), "");
            half[1] = em_and(e, word, em_i32(e, (int32_t)0xffff0000u));
            for (int h = 0; h < 2; h++) {
                LLVMValueRef part = LLVMBuildBitCast(e->b, half[h], t, "");
                x[c][h] = p ? em_fadd(e, x[c][h], part) : part;
            }
        }
    for (int c = 0; c < a->nr / a->lanes; c++)
        for (int h = 0; h < 2; h++)
            attention_put(a, x[c][h], in[0], em_add(e, row, attention_num(a, h * a->nr + c * a->lanes)));
    em_end(e, &w);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

/* (turned, rows, words, parts, sums, dst, factors): dst[i][nr] = dst[i] * factors + turned[i] x the sum of the parts,
 * for i < rows; sums: memory for 32 rows of that. */
static void emit_values(attention *a) {
    emit *e = a->e;
    LLVMTypeRef parameter[7] = {e->t_ptr, e->t_i64, e->t_i64, e->t_ptr, e->t_ptr, e->t_ptr, e->t_ptr};
    attention_outer *o = attention_begin(a, VALUES, "values", parameter, 7, false, true);
    LLVMValueRef in[7], zero = attention_num(a, 0), nr = attention_num(a, a->nr);
    LLVMGetParams(e->fn, in);
    e->lanes = a->lanes;
    amx_product p = {.name = "llvm.x86.tdpbf16ps",
                     .a_row = em_mul(e, in[2], attention_num(a, a->acc_bytes)),
                     .a_step = attention_num(a, AMX_ROW_BYTES),
                     .a_stays = LLVMConstInt(e->t_i1, 1, 0),
                     .b = in[3],
                     .words = in[2],
                     .to = in[4]};
    p.b_row = ATTENTION_PARTS * a->nr * a->acc_bytes;
    for (int i = 1; i < ATTENTION_PARTS; i++) p.more[i - 1] = attention_at(a, in[3], attention_num(a, i * a->nr));
    LLVMValueRef factor[ATTENTION_CHUNKS];
    for (int j = 0; j < a->nr; j += a->lanes) factor[j / a->lanes] = attention_get(a, in[6], attention_num(a, j));
    em_loop l = em_for(e, zero, in[1], attention_num(a, AMX_COLUMNS));
    p.rows = em_min(e, em_sub(e, in[1], l.i), attention_num(a, AMX_COLUMNS));
    p.is_high = em_icmp(e, LLVMIntSGT, p.rows, attention_num(a, AMX_SIDE));
    p.a = em_gep(e, in[0], e->t_i8, em_mul(e, l.i, p.a_row));
    amx_multiply(e, &p);
    em_loop r = em_for(e, zero, em_mul(e, p.rows, nr), nr);
    LLVMValueRef dst = attention_at(a, in[5], em_add(e, em_mul(e, l.i, nr), r.i)), from = attention_at(a, in[4], r.i);
    for (int j = 0; j < a->nr; j += a->lanes) {
        LLVMValueRef at = attention_num(a, j), to = attention_at(a, dst, at);
        attention_put(a, em_mad(e, attention_get(a, to, zero), factor[j / a->lanes], attention_get(a, from, at)), to,
                      zero);
    }
    em_end(e, &r);
    em_end(e, &l);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

void attention_emit_amx(attention *a) {
    emit_scores(a);
    if (!a->splits) return;
    emit_join(a);
    emit_values(a);
}
