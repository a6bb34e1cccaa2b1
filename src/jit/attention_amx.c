/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attention_amx.c: the scores of panels of queries by tile registers, where queries and keys are words of halves
 * (attention_words.c): keys are operand 0 in rows of words along the head, a panel's 32 queries operand 1. And the
 * products of weights and values, where those are bf16: weights, which are f32, are cut into three bf16 parts, and the
 * values are turned. Else, and where a panel sees a part of a block only, those are made in attention_tile.c. */
#include "jit/amx.h"
#include "jit/attention.h"

static LLVMValueRef load(attention *a, LLVMValueRef at) {
    return em_load_ptr(a->e, FUSOR_F32, at, NULL, (unsigned)a->acc_bytes);
}

/* (keys, rows, queries, words, dst, least of keys, of queries): dst[i][nr] = keys[i] x queries, as ir/schedule.h has it
 * for the dot. */
static void emit_scores(attention *a) {
    emit *e = a->e;
    LLVMTypeRef parameter[7] = {e->t_ptr, e->t_i64, e->t_ptr, e->t_i64, e->t_ptr, e->t_ptr, e->t_ptr};
    attention_outer *o = attention_begin(a, SCORES, "scores", parameter, 7, false, true);
    LLVMValueRef in[7];
    LLVMGetParams(e->fn, in);
    amx_product p = {.name = a->dot == IR_DOT_TILE_F16 ? "llvm.x86.tdpfp16ps" : "llvm.x86.tdpbf16ps",
                     .config = amx_begin(e),
                     .a_row = em_mul(e, in[3], attention_num(a, a->acc_bytes)),
                     .b = in[2],
                     .words = in[3]};
    LLVMValueRef is_exact = em_bf16_is_exact(e, in[5], in[6]);
    em_loop l = em_for(e, attention_num(a, 0), in[1], attention_num(a, AMX_COLUMNS));
    LLVMValueRef configured = em_loop_phi(e, &l, attention_num(a, 0));
    p.rows = em_min(e, em_sub(e, in[1], l.i), attention_num(a, AMX_COLUMNS));
    p.is_high = em_icmp(e, LLVMIntSGT, p.rows, attention_num(a, AMX_SIDE));
    p.a = em_gep(e, in[0], e->t_i8, em_mul(e, l.i, p.a_row));
    p.to = attention_at(a, in[4], em_mul(e, l.i, attention_num(a, a->nr)));
    em_branch changed = em_if(e, em_icmp(e, LLVMIntNE, p.rows, configured));
    amx_configure(e, &p);
    em_endif(e, &changed);
    if (a->dot == IR_DOT_TILE_BF16) {
        em_branch exact = em_if(e, is_exact);
        amx_multiply(e, &p);
        em_else(e, &exact);
        amx_multiply_bf16_slowly(e, &p);
        em_endif(e, &exact);
    } else amx_multiply(e, &p);
    em_loop_next(e, configured, p.rows);
    em_end(e, &l);
    amx_release(e);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

/* ---- weights and values ---- */
enum { PARTS = 3 }; /* 24 bits of a weight are three times 8 */

/* (s, count, parts, words, least): s[count][nr] as the sums of three halves each, parts[PARTS][kb / 2][nr] of words,
 * the last of `words` filled up with zeros. A weight with a subnormal part shows in the exponent; else nothing is
 * lost. */
static void emit_split(attention *a) {
    emit *e = a->e;
    LLVMTypeRef parameter[5] = {e->t_ptr, e->t_i64, e->t_ptr, e->t_i64, e->t_ptr};
    attention_outer *o = attention_begin(a, SPLIT, "split", parameter, 5, false, true);
    LLVMValueRef in[5], zero = attention_num(a, 0), one = attention_num(a, 1), nr = attention_num(a, a->nr);
    LLVMGetParams(e->fn, in);
    e->lanes = a->lanes;
    LLVMTypeRef t_words = em_vec(e, e->t_i32);
    em_branch odd = em_if(e, em_icmp(e, LLVMIntNE, em_and(e, in[1], one), zero));
    for (int j = 0; j < a->nr; j += a->lanes)
        em_store_ptr(e, a->acc, em_f32(e, 0),
                     attention_at(a, in[0], em_add(e, em_mul(e, in[1], nr), attention_num(a, j))), NULL,
                     (unsigned)a->acc_bytes);
    em_endif(e, &odd);
    LLVMValueRef pairs = LLVMBuildLShr(e->b, em_add(e, in[1], one), one, "");
    em_loop w = em_for(e, zero, pairs, one);
    LLVMValueRef least = em_loop_phi(e, &w, LLVMConstAllOnes(t_words)), all = least;
    for (int j = 0; j < a->nr; j += a->lanes) {
        LLVMValueRef word[PARTS] = {0};
        for (int h = 0; h < 2; h++) {
            LLVMValueRef row = em_mul(e, em_add(e, em_add(e, w.i, w.i), attention_num(a, h)), nr);
            LLVMValueRef x = load(a, attention_at(a, in[0], em_add(e, row, attention_num(a, j))));
            for (int p = 0; p < PARTS; p++) {
                LLVMValueRef part = p + 1 < PARTS ? em_half_round(e, FUSOR_BF16, x, false) : x;
                LLVMValueRef bits = LLVMBuildZExt(e->b, em_to_memory(e, FUSOR_BF16, part), t_words, "");
                all = attention_least_of(a, all, part);
                word[p] = h ? em_or(e, word[p], em_shl(e, bits, 16)) : bits;
                if (p + 1 < PARTS) x = em_fsub(e, x, part);
            }
        }
        for (int p = 0; p < PARTS; p++) {
            LLVMValueRef to = em_add(e, em_mul(e, w.i, nr), attention_num(a, p * a->kb / 2 * a->nr + j));
            LLVMSetAlignment(LLVMBuildStore(e->b, word[p], attention_at(a, in[2], to)), 4);
        }
    }
    em_loop_next(e, least, all);
    em_end(e, &w);
    em_loop z = em_for(e, em_mul(e, pairs, nr), em_mul(e, in[3], nr), attention_num(a, a->lanes));
    for (int p = 0; p < PARTS; p++) {
        LLVMValueRef to = em_add(e, z.i, attention_num(a, p * a->kb / 2 * a->nr));
        LLVMSetAlignment(LLVMBuildStore(e->b, LLVMConstNull(t_words), attention_at(a, in[2], to)), 4);
    }
    em_end(e, &z);
    em_store_least_exponent(e, least, in[4]);
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
                     .config = amx_begin(e),
                     .a_row = em_mul(e, in[2], attention_num(a, a->acc_bytes)),
                     .b = in[3],
                     .words = in[2],
                     .to = in[4]};
    for (int i = 1; i < PARTS; i++) p.more[i - 1] = attention_at(a, in[3], attention_num(a, i * a->kb / 2 * a->nr));
    em_loop l = em_for(e, zero, in[1], attention_num(a, AMX_COLUMNS));
    LLVMValueRef configured = em_loop_phi(e, &l, zero);
    p.rows = em_min(e, em_sub(e, in[1], l.i), attention_num(a, AMX_COLUMNS));
    p.is_high = em_icmp(e, LLVMIntSGT, p.rows, attention_num(a, AMX_SIDE));
    p.a = em_gep(e, in[0], e->t_i8, em_mul(e, l.i, p.a_row));
    em_branch changed = em_if(e, em_icmp(e, LLVMIntNE, p.rows, configured));
    amx_configure(e, &p);
    em_endif(e, &changed);
    amx_multiply(e, &p);
    em_loop r = em_for(e, zero, em_mul(e, p.rows, nr), nr);
    LLVMValueRef dst = attention_at(a, in[5], em_add(e, em_mul(e, l.i, nr), r.i)), from = attention_at(a, in[4], r.i);
    for (int j = 0; j < a->nr; j += a->lanes) {
        LLVMValueRef at = attention_num(a, j), to = attention_at(a, dst, at);
        LLVMValueRef sum =
            em_mad(e, load(a, to), load(a, attention_at(a, in[6], at)), load(a, attention_at(a, from, at)));
        em_store_ptr(e, a->acc, sum, to, NULL, (unsigned)a->acc_bytes);
    }
    em_end(e, &r);
    em_loop_next(e, configured, p.rows);
    em_end(e, &l);
    amx_release(e);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

void attention_emit_amx(attention *a) {
    emit_scores(a);
    if (!a->splits) return;
    emit_split(a);
    emit_values(a);
}
