/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* contract_dot.c: contractions of narrow operands, whose panels have words of several elements (ir/schedule.h, ir_dot):
 * how words are made of elements, what lies in front of each K block of a panel, and the products of two words. */
#include "jit/contract.h"
#include <string.h>

static ir_dtype type_of(const contract *c, int operand) { return c->k->inst[c->operand[operand]].dtype; }

void contract_set_dot(contract *c) {
    c->dot = ir_kernel_contract_dot(c->k);
    c->group = ir_dots[c->dot].group;
    c->parts = ir_dots[c->dot].parts;
    for (int i = 0; i < 2; i++) c->heads[i] = ir_dots[c->dot].heads[i];
    c->is_tile = ir_dot_is_tile(c->dot);
    c->packed = c->dot == IR_DOT_NONE                             ? c->acc
                : c->dot == IR_DOT_I16                            ? FUSOR_I16
                : c->dot == IR_DOT_I8 || c->dot == IR_DOT_TILE_I8 ? FUSOR_I8
                : type_of(c, 0) == FUSOR_F16                      ? FUSOR_F16
                                                                  : FUSOR_BF16;
    c->packed_bytes = ir_dtypes[c->packed].bytes;
    c->t_packed = em_memory_type(c->e, c->packed);
    c->copies_a = c->is_tile || ((c->dot == IR_DOT_I8 || c->dot == IR_DOT_BF16) && contract_is_plain_load(c, 0)) ||
                  contract_packs_by_rows(c);
}

bool contract_is_flipped(const contract *c) {
    return c->dot == IR_DOT_I8 && ir_is_signed(type_of(c, 0)) == ir_is_signed(type_of(c, 1));
}

/* Products with a padded element: 0, and of bf16 -0, which changes no sum. What operand 0 has is then of no matter, but
 * that it is no NaN. */
int contract_padding(const contract *c, int operand) {
    return (c->dot == IR_DOT_BF16 || c->dot == IR_DOT_TILE_BF16) && operand == 1 ? 0x8000 : 0;
}

static LLVMValueRef splat(contract *c, LLVMValueRef x) {
    LLVMValueRef all[64];
    for (int i = 0; i < c->v_lanes; i++) all[i] = x;
    return LLVMConstVector(all, (unsigned)c->v_lanes);
}

static LLVMValueRef i32_splat(contract *c, uint32_t x) { return splat(c, LLVMConstInt(c->e->t_i32, x, 0)); }

/* DOT_BF16 adds the product of the upper halves first. */
LLVMValueRef contract_words(contract *c, int operand, const LLVMValueRef *element) {
    emit *e = c->e;
    LLVMTypeRef type = em_vec(e, e->t_i32);
    LLVMValueRef word = NULL;
    for (int g = 0; g < c->group; g++) {
        int place = c->dot == IR_DOT_BF16 ? 1 - g : g;
        LLVMValueRef x = LLVMBuildZExt(e->b, element[g], type, "");
        if (place) x = em_shl(e, x, place * 8 * c->packed_bytes);
        word = word ? em_or(e, word, x) : x;
    }
    return operand == 0 && contract_is_flipped(c) ? em_xor(e, word, em_i32(e, (int32_t)0x80808080u)) : word;
}

/* Words as they lie in memory: the change of their bits, the order of their halves. */
LLVMValueRef contract_memory_words(contract *c, int operand, LLVMValueRef words) {
    emit *e = c->e;
    if (operand == 0 && contract_is_flipped(c)) return em_xor(e, words, i32_splat(c, 0x80808080u));
    if (c->dot != IR_DOT_BF16) return words;
    LLVMTypeRef type = LLVMTypeOf(words);
    words = LLVMBuildBitCast(e->b, words, LLVMVectorType(e->t_i32, (unsigned)c->v_lanes), "");
    LLVMValueRef by = i32_splat(c, 16);
    words = em_or(e, LLVMBuildShl(e->b, words, by, ""), LLVMBuildLShr(e->b, words, by, ""));
    return LLVMBuildBitCast(e->b, words, type, "");
}

/* Single elements of a row, from element k on: the last words, and what fills them. */
static void copy_elements(contract *c, LLVMValueRef to, LLVMValueRef from, LLVMValueRef k, LLVMValueRef k_count) {
    emit *e = c->e;
    LLVMValueRef padding = LLVMConstInt(c->t_packed, (unsigned)contract_padding(c, 0), 0);
    LLVMValueRef end = em_mul(e, contract_in_words(c, k_count), num(c, c->group));
    for (int i = 0; i < 2; i++) {
        em_loop l = em_for(e, i ? k_count : k, i ? end : k_count, num(c, 1));
        LLVMValueRef place = c->dot == IR_DOT_BF16 ? em_xor(e, l.i, num(c, 1)) : l.i, x = padding;
        if (!i) {
            x = LLVMBuildLoad2(e->b, c->t_packed, em_gep(e, from, c->t_packed, l.i), "");
            LLVMSetAlignment(x, (unsigned)c->packed_bytes);
            if (contract_is_flipped(c)) x = em_xor(e, x, LLVMConstInt(c->t_packed, 0x80, 0));
        }
        LLVMValueRef store = LLVMBuildStore(e->b, x, em_gep(e, to, c->t_packed, place));
        LLVMSetAlignment(store, (unsigned)c->packed_bytes);
        em_end(e, &l);
    }
}

void contract_copy_rows(contract *c, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef rows, LLVMValueRef k_first,
                        LLVMValueRef k_count) {
    emit *e = c->e;
    enum { STEP = 4 }; /* vectors */
    int buffer = c->k->inst[c->operand[0]].index, vector = c->v_lanes * c->group;
    contract_point at = {c, first, NULL, k_first, -1, NULL};
    LLVMValueRef base = em_gep(e, e->base[buffer], c->t_packed, contract_offset(c, buffer, &at));
    LLVMValueRef words = contract_in_words(c, k_count), begin = num(c, 0);
    em_loop r = em_for(e, begin, rows, num(c, 1));
    LLVMValueRef from = em_gep(e, base, c->t_packed, em_mul(e, r.i, e->stride[buffer][c->dim_m]));
    LLVMValueRef to = element(c, dst, em_mul(e, r.i, words));
    for (int step = STEP; step; step = step > 1 ? 1 : 0) {
        LLVMValueRef end = em_and(e, k_count, num(c, -step * vector));
        em_loop l = em_for(e, begin, end, num(c, step * vector));
        for (int i = 0; i < step; i++) {
            LLVMValueRef k = i ? em_add(e, l.i, num(c, i * vector)) : l.i;
            LLVMValueRef x = contract_tile_load(c, em_gep(e, from, c->t_packed, k), c->packed_bytes);
            LLVMValueRef store = LLVMBuildStore(e->b, contract_memory_words(c, 0, x), em_gep(e, to, c->t_packed, k));
            LLVMSetAlignment(store, (unsigned)c->packed_bytes);
        }
        em_end(e, &l);
        begin = end;
    }
    copy_elements(c, to, from, begin, k_count);
    em_end(e, &r);
}

/* ---- products ---- */
LLVMValueRef contract_dot(contract *c, LLVMValueRef acc, LLVMValueRef a, LLVMValueRef b, bool is_slow) {
    emit *e = c->e;
    int bits = e->level->vector_bytes * 8;
    if (c->dot == IR_DOT_BF16) {
        if (!is_slow) return em_bf16_dot(e, acc, a, b);
        acc = em_mad(e, em_bf16_half(e, a, true), em_bf16_half(e, b, true), acc);
        return em_mad(e, em_bf16_half(e, a, false), em_bf16_half(e, b, false), acc);
    }
    if (c->dot == IR_DOT_I16) {
        const char *name = bits == 512   ? "llvm.x86.avx512.pmaddw.d.512"
                           : bits == 256 ? "llvm.x86.avx2.pmadd.wd"
                                         : "llvm.x86.sse2.pmadd.wd";
        return em_add(e, acc, em_dot(e, name, (LLVMValueRef[]){a, b}, 2));
    }
    /* Unsigned first: operand 0 where it was made so (see contract_is_flipped), or is. */
    bool is_first = ir_is_signed(type_of(c, 1));
    LLVMValueRef in[3] = {acc, is_first ? a : b, is_first ? b : a};
    return em_dot(e, bits == 512 ? "llvm.x86.avx512.vpdpbusd.512" : "llvm.x86.avx512.vpdpbusd.256", in, 3);
}

/* ---- heads ---- */
/* DOT_I8: what operand 0 being changed by 128 adds to each column, with the sign changed: nothing where it is not. */
static void emit_sums_head(contract *c, LLVMValueRef panel, LLVMValueRef head, LLVMValueRef words) {
    emit *e = c->e;
    LLVMValueRef sum[8], zero = LLVMConstNull(c->t_vec);
    bool is_signed = ir_is_signed(type_of(c, 1));
    if (contract_is_flipped(c)) {
        em_loop l = em_for(e, em_i64s(e, 0), words, em_i64s(e, 1));
        LLVMValueRef row = element(c, panel, em_mul(e, l.i, em_i64s(e, c->nr)));
        LLVMValueRef by = i32_splat(c, 0x80808080u), next[8];
        for (int j = 0; j < c->nv; j++) sum[j] = em_loop_phi(e, &l, zero);
        for (int j = 0; j < c->nv; j++) {
            LLVMValueRef b = contract_tile_load(c, element(c, row, num(c, j * c->v_lanes)), c->acc_bytes);
            LLVMValueRef in[3] = {sum[j], is_signed ? by : b, is_signed ? b : by};
            next[j] = em_dot(
                e, e->level->vector_bytes == 64 ? "llvm.x86.avx512.vpdpbusd.512" : "llvm.x86.avx512.vpdpbusd.256", in,
                3);
        }
        for (int j = 0; j < c->nv; j++) em_loop_next(e, sum[j], next[j]);
        em_end(e, &l);
    }
    for (int j = 0; j < c->nv; j++) {
        LLVMValueRef x = contract_is_flipped(c) ? LLVMBuildSub(e->b, zero, sum[j], "") : zero;
        LLVMSetAlignment(LLVMBuildStore(e->b, x, element(c, head, num(c, j * c->v_lanes))), (unsigned)c->acc_bytes);
    }
}

/* The least of the magnitudes of the words from i on and of what was found before, less 1: so 0 is the largest. */
static LLVMValueRef least_of(contract *c, LLVMValueRef least, LLVMValueRef panel, LLVMValueRef i, LLVMValueRef mask) {
    emit *e = c->e;
    LLVMTypeRef halves = LLVMTypeOf(least);
    LLVMValueRef x = em_load_ptr(e, FUSOR_I32, element(c, panel, i), mask, 4);
    x = LLVMBuildBitCast(e->b, em_and(e, x, em_i32(e, 0x7fff7fff)), halves, "");
    return em_lesser_magnitude(e, least, x);
}

/* DOT_BF16: the least exponent field of an element that is not 0, -1000 where it is subnormal; 512 where all are 0. */
static void emit_exponent_head(contract *c, LLVMValueRef panel, LLVMValueRef head, LLVMValueRef n) {
    emit *e = c->e;
    enum { STEP = 4 }; /* vectors */
    LLVMTypeRef halves = LLVMVectorType(e->t_i16, 2 * (unsigned)c->v_lanes);
    LLVMValueRef whole = em_and(e, n, num(c, -STEP * c->v_lanes));
    LLVMValueRef found[STEP], next[STEP];
    e->lanes = c->v_lanes;
    em_loop l = em_for(e, num(c, 0), whole, num(c, STEP * c->v_lanes));
    for (int i = 0; i < STEP; i++) found[i] = em_loop_phi(e, &l, LLVMConstAllOnes(halves));
    for (int i = 0; i < STEP; i++) next[i] = least_of(c, found[i], panel, em_add(e, l.i, num(c, i * c->v_lanes)), NULL);
    for (int i = 0; i < STEP; i++) em_loop_next(e, found[i], next[i]);
    em_end(e, &l);
    LLVMValueRef all = found[0];
    for (int i = 1; i < STEP; i++)
        all = LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntULT, found[i], all, ""), found[i], all, "");
    em_loop rest = em_for(e, whole, n, num(c, c->v_lanes));
    LLVMValueRef least = em_loop_phi(e, &rest, all);
    em_loop_next(e, least, least_of(c, least, panel, rest.i, em_mask(e, em_sub(e, n, rest.i))));
    em_end(e, &rest);
    em_store_least_exponent(e, least, head);
}

/* A panel of whole words becomes one of parts where it is: its steps from the last one on, each of which goes behind
 * all that is still to be read; words of the first one are read before they are overwritten. */
static void emit_cut(contract *c, LLVMValueRef panel, LLVMValueRef head, LLVMValueRef words) {
    emit *e = c->e;
    enum { UNROLL = 2 };
    const int lanes = 2 * c->v_lanes, step = ir_dots[c->dot].step / c->group * c->nr; /* words of all rows */
    e->lanes = lanes;
    LLVMValueRef steps = LLVMBuildUDiv(e->b, words, num(c, ir_dot_words(c->dot, 1)), ""), part[2];
    em_loop s = em_for(e, num(c, 0), steps, num(c, 1));
    LLVMValueRef outer = em_loop_phi(e, &s, LLVMConstNull(em_vec(e, e->t_i16)));
    LLVMValueRef from = em_mul(e, em_sub(e, em_sub(e, steps, s.i), num(c, 1)), num(c, step));
    LLVMValueRef to = element(c, panel, em_mul(e, from, num(c, c->parts)));
    from = element(c, panel, from);
    em_loop l = em_for(e, num(c, 0), num(c, step), num(c, UNROLL * c->v_lanes));
    LLVMValueRef most = em_loop_phi(e, &l, outer), next = most;
    for (int i = 0; i < UNROLL; i++) {
        LLVMValueRef at = em_add(e, l.i, num(c, i * c->v_lanes));
        LLVMValueRef x = em_load_ptr(e, FUSOR_I16, element(c, from, at), NULL, (unsigned)c->acc_bytes);
        next = em_f16_most(e, next, x);
        em_f16_cut(e, x, part);
        for (int p = 0; p < 2; p++) {
            LLVMValueRef store = LLVMBuildStore(e->b, part[p], element(c, to, em_add(e, at, num(c, p * step))));
            LLVMSetAlignment(store, (unsigned)c->acc_bytes);
        }
    }
    em_loop_next(e, most, next);
    em_end(e, &l);
    em_loop_next(e, outer, most);
    em_end(e, &s);
    em_store_is_finite(e, outer, head);
    e->lanes = c->lanes;
}

/* (panel, its head, words, rows of the panel), for both operands. */
void contract_emit_head(contract *c) {
    emit *e = c->e;
    LLVMTypeRef parameter[4] = {e->t_ptr, e->t_ptr, e->t_i64, e->t_i64};
    LLVMValueRef in[4];
    if (!c->heads[0] && !c->heads[1]) return;
    contract_outer *o = contract_begin(c, HEAD, "head", parameter, 4, true);
    LLVMGetParams(e->fn, in);
    if (c->packed == FUSOR_BF16) emit_exponent_head(c, in[0], in[1], em_mul(e, in[2], in[3]));
    else if (c->parts > 1) emit_cut(c, in[0], in[1], in[2]);
    else emit_sums_head(c, in[0], in[1], in[2]);
    contract_end(c, o);
}

LLVMValueRef contract_is_exact(contract *c, LLVMValueRef pa, LLVMValueRef pb) {
    return em_bf16_is_exact(c->e, element(c, pa, num(c, -c->mr)), element(c, pb, num(c, -c->nr)));
}
