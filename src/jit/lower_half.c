/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* lower_half.c: f16 and bf16 values. In a register a half is a float that the half type can represent; 16 bits are only
 * in memory:
 *
 *   load    16 bits -> float, exact
 *   operator in f32, then em_half_round: the nearest half (even of two), as a float again; left out where the result is
 *           representable anyway (ops.def, IR_CLOSED)
 *   store   float -> 16 bits, exact; the bits that a load or a rounding came from are remembered, so a value that only
 *           passes through costs nothing
 *
 * Where the level has F16C (or is a GPU's) its instructions do f16 (they keep subnormals whatever the control register
 * says), and bf16 from sm_80 on; else, and for bf16, integers do: vcvtneps2bf16 flushes subnormals (but see
 * em_bf16_round).
 * Rounding through f32 is the rounding of the exact result for + - * / and sqrt: 24 >= 2 * 11 + 2 bits (Figueroa
 * 1995). */
#include "jit/gpu.h"
#include "jit/lower.h"
#include <string.h>

static bool has_f16c(const emit *e) {
    return ir_level_is_gpu(e->k->level) || strstr(e->level->features, "f16c") != NULL;
}
static LLVMValueRef i32(emit *e, uint32_t v) { return em_i32(e, (int32_t)v); }

static void remember(emit *e, ir_dtype t, LLVMValueRef value, LLVMValueRef bits) {
    e->half[e->n_half++ % EM_HALVES] = (em_half){value, bits, t};
}

/* The bits that are known of a value, or NULL. */
static LLVMValueRef recall(const emit *e, ir_dtype t, LLVMValueRef value) {
    for (int i = 0; i < EM_HALVES; i++)
        if (e->half[i].value == value && e->half[i].type == t) return e->half[i].bits;
    return NULL;
}

/* ---- f16 with integers ---- */
/* 2^112 moves the exponent of f16 to that of f32, subnormals included; infinity and NaN get the exponent of theirs. */
static LLVMValueRef widen_f16(emit *e, LLVMValueRef bits) {
    LLVMValueRef w = LLVMBuildZExt(e->b, bits, em_vec(e, e->t_i32), "");
    LLVMValueRef magnitude = em_and(e, w, i32(e, 0x7fff)), sign = em_shl(e, em_and(e, w, i32(e, 0x8000)), 16);
    LLVMValueRef scaled = em_fmul(e, em_f32_of_bits(e, em_shl(e, magnitude, 13)), em_f32(e, 0x1p112));
    LLVMValueRef special = em_icmp(e, LLVMIntUGE, magnitude, i32(e, 0x7c00));
    LLVMValueRef exponent = em_select(e, special, i32(e, 0x7f800000), i32(e, 0));
    return em_f32_of_bits(e, em_or(e, em_or(e, em_bits_of_f32(e, scaled), exponent), sign));
}

static LLVMValueRef narrow_f16(emit *e, LLVMValueRef value) {
    LLVMValueRef x = em_bits_of_f32(e, value), a = em_and(e, x, i32(e, 0x7fffffff));
    LLVMValueRef sign = em_and(e, em_lshr(e, x, 16), i32(e, 0x8000));
    /* Below 2^-14: added to 0.5, whose last place is that of the smallest f16, the sum is rounded where f16 is. */
    LLVMValueRef sum = em_fadd(e, em_f32_of_bits(e, a), em_f32(e, 0.5));
    LLVMValueRef subnormal = em_sub(e, em_bits_of_f32(e, sum), i32(e, 0x3f000000));
    LLVMValueRef odd = em_and(e, em_lshr(e, a, 13), i32(e, 1));
    LLVMValueRef normal = em_lshr(e, em_add(e, em_add(e, a, i32(e, 0xc8000fff)), odd), 13);
    LLVMValueRef nan = em_icmp(e, LLVMIntUGT, a, i32(e, 0x7f800000));
    LLVMValueRef special = em_select(e, nan, i32(e, 0x7e00), i32(e, 0x7c00));
    LLVMValueRef r = em_select(e, em_icmp(e, LLVMIntULT, a, i32(e, 0x38800000)), subnormal, normal);
    r = em_select(e, em_icmp(e, LLVMIntUGE, a, i32(e, 0x47800000)), special, r);
    return LLVMBuildTrunc(e->b, em_or(e, r, sign), em_vec(e, e->t_i16), "");
}

/* ---- bits and values ---- */
static LLVMValueRef widen(emit *e, ir_dtype t, LLVMValueRef bits) {
    if (t == FUSOR_BF16) return em_f32_of_bits(e, em_shl(e, LLVMBuildZExt(e->b, bits, em_vec(e, e->t_i32), ""), 16));
    if (!has_f16c(e)) return widen_f16(e, bits);
    LLVMValueRef half = LLVMBuildBitCast(e->b, bits, em_vec(e, LLVMHalfTypeInContext(e->ctx)), "");
    return LLVMBuildFPExt(e->b, half, em_vec(e, e->t_f32), "");
}

/* LLVM 22 makes f64 -> f32 -> f16 one conversion, which rounds once and is a call: they are kept apart. */
static LLVMValueRef narrow_with_f16c(emit *e, LLVMValueRef value) {
    if (LLVMIsAFPTruncInst(value)) value = em_intrinsic(e, "llvm.arithmetic.fence", 1, &value);
    LLVMValueRef half = LLVMBuildFPTrunc(e->b, value, em_vec(e, LLVMHalfTypeInContext(e->ctx)), "");
    return LLVMBuildBitCast(e->b, half, em_vec(e, e->t_i16), "");
}

LLVMValueRef em_half_value(emit *e, ir_dtype t, LLVMValueRef bits) {
    LLVMValueRef value = widen(e, t, bits);
    remember(e, t, value, bits);
    return value;
}

LLVMValueRef em_half_bits(emit *e, ir_dtype t, LLVMValueRef value) {
    LLVMValueRef bits = recall(e, t, value);
    if (bits) return bits;
    if (t == FUSOR_F16) return has_f16c(e) ? narrow_with_f16c(e, value) : narrow_f16(e, value);
    return LLVMBuildTrunc(e->b, em_lshr(e, em_bits_of_f32(e, value), 16), em_vec(e, e->t_i16), "");
}

/* ---- bf16 by the instructions of GPUs from sm_80 on: two at once, to nearest even, a NaN is 0x7fff ---- */
static LLVMValueRef narrow_on_gpu(emit *e, LLVMValueRef value) {
    LLVMTypeRef pair = LLVMVectorType(e->t_i16, 2);
    if (e->lanes == 1)
        return LLVMBuildBitCast(e->b, gpu_call(e, "llvm.nvvm.f2bf16.rn", NULL, 0, &value, 1), e->t_i16, "");
    LLVMValueRef bits = LLVMGetPoison(em_vec(e, e->t_i16));
    for (int i = 0; i < e->lanes; i += 2) { /* the first operand becomes the upper half */
        LLVMValueRef in[2] = {em_lane(e, value, i + 1), em_lane(e, value, i)};
        LLVMValueRef two = LLVMBuildBitCast(e->b, gpu_call(e, "llvm.nvvm.ff2bf16x2.rn", NULL, 0, in, 2), pair, "");
        for (int j = 0; j < 2; j++)
            bits = LLVMBuildInsertElement(e->b, bits, em_lane(e, two, j), LLVMConstInt(e->t_i32, (unsigned)(i + j), 0),
                                          "");
    }
    return bits;
}

LLVMValueRef em_half_round(emit *e, ir_dtype t, LLVMValueRef value, bool has_short_nans) {
    if (recall(e, t, value)) return value;
    if (t == FUSOR_BF16 && e->level->cores != IR_CORES_NONE) return em_half_value(e, t, narrow_on_gpu(e, value));
    if (t == FUSOR_F16) return em_half_value(e, t, has_f16c(e) ? narrow_with_f16c(e, value) : narrow_f16(e, value));
    /* The carry of the addition goes into the exponent as it should, to infinity too; a NaN only gets its quiet bit.
     * But those with 16 zeros below stay as they are; but on a GPU all NaNs are 0x7fffffff. */
    LLVMValueRef x = em_bits_of_f32(e, value), up;
    if (e->level->has_mask) { /* an instruction less than by adding the bit itself */
        LLVMValueRef is_odd = em_icmp(e, LLVMIntNE, em_and(e, x, i32(e, 0x10000)), i32(e, 0));
        up = em_add(e, x, em_select(e, is_odd, i32(e, 0x8000), i32(e, 0x7fff)));
    } else up = em_add(e, em_add(e, x, i32(e, 0x7fff)), em_and(e, em_lshr(e, x, 16), i32(e, 1)));
    if (!has_short_nans || ir_level_is_gpu(e->k->level))
        up = em_select(e, em_fcmp(e, LLVMRealUNO, value, value), em_or(e, x, i32(e, 0x400000)), up);
    LLVMValueRef rounded = em_f32_of_bits(e, em_and(e, up, i32(e, 0xffff0000)));
    remember(e, t, rounded, LLVMBuildTrunc(e->b, em_lshr(e, up, 16), em_vec(e, e->t_i16), ""));
    return rounded;
}

/* ---- conversions that must round once ---- */
/* f64 to the f32 neighbour with an odd last bit, where it is not exact: whatever is rounded from that to fewer bits is
 * as if rounded from the f64 (Boldo and Melquiond 2008). Overflow gives the largest float, which is odd. */
static LLVMValueRef f32_to_odd(emit *e, LLVMValueRef x) {
    LLVMValueRef near = LLVMBuildFPTrunc(e->b, x, em_vec(e, e->t_f32), "");
    LLVMValueRef back = LLVMBuildFPExt(e->b, near, em_vec(e, e->t_f64), ""), bits = em_bits_of_f32(e, near);
    LLVMValueRef one = i32(e, 1), is_even = em_icmp(e, LLVMIntEQ, em_and(e, bits, one), i32(e, 0));
    LLVMValueRef fix = em_and(e, em_fcmp(e, LLVMRealONE, back, x), is_even);
    LLVMValueRef beyond = em_fcmp(e, LLVMRealOGT, em_fabs(e, back), em_fabs(e, x));
    LLVMValueRef odd = em_select(e, beyond, em_sub(e, bits, one), em_add(e, bits, one));
    return em_f32_of_bits(e, em_select(e, fix, odd, bits));
}

/* An integer of more bits than the float holds, with all the bits that do not fit made sticky in the last that does. */
static LLVMValueRef sticky(emit *e, LLVMValueRef x, ir_dtype t, int digits, int lost) {
    LLVMValueRef rest = em_and(e, x, em_int(e, t, (INT64_C(1) << lost) - 1)), zero = em_int(e, t, 0);
    LLVMValueRef high = em_and(e, x, em_int(e, t, -(INT64_C(1) << lost)));
    LLVMValueRef bit = em_select(e, em_icmp(e, LLVMIntNE, rest, zero), em_int(e, t, INT64_C(1) << lost), zero);
    LLVMValueRef limit = em_int(e, t, INT64_C(1) << digits), is_large;
    if (ir_is_signed(t)) /* |x| >= 2^digits */
        is_large = em_icmp(e, LLVMIntUGE, em_add(e, x, limit), em_int(e, t, INT64_C(1) << (digits + 1)));
    else is_large = em_icmp(e, LLVMIntUGE, x, limit);
    return em_select(e, is_large, em_or(e, high, bit), x);
}

LLVMValueRef em_half_cast(emit *e, LLVMValueRef x, ir_dtype from, ir_dtype to) {
    bool is_wide = ir_dtypes[from].bytes == 8;
    if (!ir_is_float(from) && !ir_is_bool(from)) { /* an f16 of an integer that is not exact in the float is infinite */
        if (to == FUSOR_BF16 && is_wide) x = sticky(e, x, from, 53, 11);
        if (to == FUSOR_BF16 && ir_dtypes[from].bytes == 4) x = sticky(e, x, from, 24, 8);
    }
    LLVMValueRef f = em_cast(e, x, from, is_wide ? FUSOR_F64 : FUSOR_F32);
    return em_half_round(e, to, is_wide ? f32_to_odd(e, f) : f, false);
}
