/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attention_amx.c: the scores of panels of queries by tile registers, where queries and keys are halves
 * (ir_kernel_attention_dot): keys are operand 0 in rows of words along the head, a panel's 32 queries operand 1. And
 * the products of weights and values, where those are bf16: weights, which are f32, are cut into three bf16 parts, and
 * the values are turned. Else, and where a panel sees a part of a block only, those are made in attention_tile.c.
 *
 * Operands come as accumulators (attention_rows.c) that halves can represent, and become words in the same place.
 * Behind the words of bf16 goes the least exponent of their elements, as in front of a contraction's panels
 * (contract_dot.c): where a product could be subnormal, fma makes the scores. */
#include "jit/amx.h"
#include "jit/attention.h"
#include <string.h>

static ir_dtype half_type(const attention *a) { return a->dot == IR_DOT_TILE_F16 ? FUSOR_F16 : FUSOR_BF16; }
static LLVMValueRef load(attention *a, LLVMValueRef at) {
    return em_load_ptr(a->e, FUSOR_F32, at, NULL, (unsigned)a->acc_bytes);
}

/* The lesser of `least` and the magnitudes of x less 1: so 0 is the largest. What is infinite or no number counts as
 * subnormal: a part of a weight may be 0 where the weight is not. */
static LLVMValueRef least_of(attention *a, LLVMValueRef least, LLVMValueRef x) {
    emit *e = a->e;
    x = em_and(e, em_bits_of_f32(e, x), em_i32(e, 0x7fffffff));
    x = em_select(e, em_icmp(e, LLVMIntUGE, x, em_i32(e, 0x7f800000)), em_i32(e, 1), x);
    x = em_sub(e, x, em_i32(e, 1));
    return em_select(e, em_icmp(e, LLVMIntULT, x, least), x, least);
}

/* The exponent field of that, -1000 of a subnormal, 512 where all are 0. */
static void store_exponent(attention *a, LLVMValueRef least, LLVMValueRef to) {
    emit *e = a->e;
    const char *name = "llvm.vector.reduce.umin";
    LLVMTypeRef type = LLVMTypeOf(least), t = e->t_i32;
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, LLVMLookupIntrinsicID(name, strlen(name)), &type, 1);
    LLVMValueRef x = LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, &least, 1, "");
    LLVMValueRef none = LLVMBuildICmp(e->b, LLVMIntEQ, x, LLVMConstAllOnes(t), "");
    x = LLVMBuildLShr(e->b, LLVMBuildAdd(e->b, x, LLVMConstInt(t, 1, 0), ""), LLVMConstInt(t, 23, 0), "");
    LLVMValueRef is_tiny = LLVMBuildICmp(e->b, LLVMIntEQ, x, LLVMConstNull(t), "");
    x = LLVMBuildSelect(e->b, is_tiny, LLVMConstInt(t, (unsigned)-1000, 0), x, "");
    x = LLVMBuildSelect(e->b, none, LLVMConstInt(t, 512, 0), x, "");
    LLVMSetAlignment(LLVMBuildStore(e->b, x, to), 4);
}

/* (rows, count, columns, words, least): f32 rows[count][columns], columns a multiple of lanes, become rows of words,
 * filled up with zeros. A row's words end before the next row's elements begin, and each is written behind what it is
 * made of. */
static void emit_halves_of_rows(attention *a) {
    emit *e = a->e;
    LLVMTypeRef parameter[5] = {e->t_ptr, e->t_i64, e->t_i64, e->t_i64, e->t_ptr};
    attention_outer *o = attention_begin(a, HALVES_OF_ROWS, "halves_of_rows", parameter, 5, false, true);
    LLVMValueRef in[5], zero = attention_num(a, 0), lanes = attention_num(a, a->lanes), two = attention_num(a, 2);
    LLVMGetParams(e->fn, in);
    e->lanes = a->lanes;
    LLVMTypeRef t_bits = em_vec(e, e->t_i16), i16 = e->t_i16;
    em_loop r = em_for(e, zero, in[1], attention_num(a, 1));
    LLVMValueRef least = em_loop_phi(e, &r, LLVMConstAllOnes(em_vec(e, e->t_i32)));
    LLVMValueRef from = attention_at(a, in[0], em_mul(e, r.i, in[2]));
    LLVMValueRef to = attention_at(a, in[0], em_mul(e, r.i, in[3]));
    em_loop c = em_for(e, zero, in[2], lanes);
    LLVMValueRef row_least = em_loop_phi(e, &c, least), x = load(a, attention_at(a, from, c.i));
    LLVMSetAlignment(LLVMBuildStore(e->b, em_to_memory(e, half_type(a), x), em_gep(e, to, i16, c.i)), 2);
    em_loop_next(e, row_least, least_of(a, row_least, x));
    em_end(e, &c);
    em_loop z = em_for(e, in[2], em_mul(e, in[3], two), lanes);
    LLVMSetAlignment(LLVMBuildStore(e->b, LLVMConstNull(t_bits), em_gep(e, to, i16, z.i)), 2);
    em_end(e, &z);
    em_loop_next(e, least, row_least);
    em_end(e, &r);
    store_exponent(a, least, in[4]);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

/* (panel, columns, words, least): f32 panel[columns][nr] becomes words[words][nr], of two rows each, then zeros. */
static void emit_halves_of_panel(attention *a) {
    emit *e = a->e;
    LLVMTypeRef parameter[4] = {e->t_ptr, e->t_i64, e->t_i64, e->t_ptr};
    attention_outer *o = attention_begin(a, HALVES_OF_PANEL, "halves_of_panel", parameter, 4, false, true);
    LLVMValueRef in[4], zero = attention_num(a, 0), one = attention_num(a, 1), nr = attention_num(a, a->nr);
    LLVMGetParams(e->fn, in);
    e->lanes = a->lanes;
    LLVMTypeRef t_words = em_vec(e, e->t_i32);
    LLVMValueRef filled = LLVMBuildLShr(e->b, in[1], one, "");
    em_loop w = em_for(e, zero, filled, one);
    LLVMValueRef least = em_loop_phi(e, &w, LLVMConstAllOnes(t_words)), all = least, word[8];
    LLVMValueRef from = attention_at(a, in[0], em_mul(e, w.i, attention_num(a, 2 * a->nr)));
    LLVMValueRef to = attention_at(a, in[0], em_mul(e, w.i, nr));
    for (int j = 0; j < a->nr / a->lanes; j++) {
        LLVMValueRef half[2];
        for (int h = 0; h < 2; h++) {
            LLVMValueRef x = load(a, attention_at(a, from, attention_num(a, h * a->nr + j * a->lanes)));
            all = least_of(a, all, x);
            half[h] = LLVMBuildZExt(e->b, em_to_memory(e, half_type(a), x), t_words, "");
        }
        word[j] = em_or(e, half[0], em_shl(e, half[1], 16));
    }
    for (int j = 0; j < a->nr / a->lanes; j++)
        LLVMSetAlignment(LLVMBuildStore(e->b, word[j], attention_at(a, to, attention_num(a, j * a->lanes))), 4);
    em_loop_next(e, least, all);
    em_end(e, &w);
    em_loop z = em_for(e, em_mul(e, filled, nr), em_mul(e, in[2], nr), attention_num(a, a->lanes));
    LLVMSetAlignment(LLVMBuildStore(e->b, LLVMConstNull(t_words), attention_at(a, in[0], z.i)), 4);
    em_end(e, &z);
    store_exponent(a, least, in[3]);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

static LLVMValueRef exponent(attention *a, LLVMValueRef at) {
    LLVMValueRef x = LLVMBuildLoad2(a->e->b, a->e->t_i32, at, "");
    LLVMSetAlignment(x, 4);
    return x;
}

/* As contract_is_exact. */
LLVMValueRef attention_is_exact(attention *a, LLVMValueRef least, LLVMValueRef other) {
    emit *e = a->e;
    LLVMValueRef both = LLVMBuildAdd(e->b, exponent(a, least), exponent(a, other), "");
    return LLVMBuildICmp(e->b, LLVMIntSGE, both, LLVMConstInt(e->t_i32, 142, 0), "");
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
    LLVMValueRef is_exact = attention_is_exact(a, in[5], in[6]);
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
                all = least_of(a, all, part);
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
    store_exponent(a, least, in[4]);
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
    emit_halves_of_rows(a);
    emit_halves_of_panel(a);
    emit_scores(a);
    if (!a->splits) return;
    emit_split(a);
    emit_values(a);
}
