/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* lower_fma.c: a * b + c with one rounding. Where the level has no instruction, llvm.fma would become a call of the C
 * library, so it is computed here: f32: the product is exact in f64; the f64 sum is rounded to odd (its last bit set
 * when it is inexact), after which rounding to f32 is as if from the exact sum (Boldo and Melquiond 2008: 53 >= 24 +
 * 2). f64: in 128-bit integers, lane by lane. */
#include "jit/lower.h"

static LLVMValueRef fma_f32(emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
    LLVMTypeRef wide = em_vec(e, e->t_f64), bits = em_vec(e, e->t_i64);
    LLVMValueRef p = em_fmul(e, LLVMBuildFPExt(e->b, a, wide, ""), LLVMBuildFPExt(e->b, b, wide, ""));
    LLVMValueRef z = LLVMBuildFPExt(e->b, c, wide, "");
    /* Knuth's two-sum; an infinity or a NaN makes the error a NaN, which "ordered and not equal" refuses. */
    LLVMValueRef s = em_fadd(e, p, z), t = em_fsub(e, s, p);
    LLVMValueRef error = em_fadd(e, em_fsub(e, p, em_fsub(e, s, t)), em_fsub(e, z, t));
    LLVMValueRef zero = em_int(e, FUSOR_I64, 0), one = em_int(e, FUSOR_I64, 1);
    LLVMValueRef i = LLVMBuildBitCast(e->b, s, bits, ""), ei = LLVMBuildBitCast(e->b, error, bits, "");
    LLVMValueRef is_even = em_icmp(e, LLVMIntEQ, em_and(e, i, one), zero);
    LLVMValueRef fix = em_and(e, em_fcmp(e, LLVMRealONE, error, em_f64(e, 0)), is_even);
    /* The odd neighbour on the side of the exact sum: away from zero when the error has the sign of the sum. */
    LLVMValueRef same_sign = em_icmp(e, LLVMIntSGE, em_xor(e, i, ei), zero);
    LLVMValueRef odd = em_select(e, same_sign, em_add(e, i, one), em_sub(e, i, one));
    s = LLVMBuildBitCast(e->b, em_select(e, fix, odd, i), wide, "");
    return LLVMBuildFPTrunc(e->b, s, em_vec(e, e->t_f32), "");
}

/* ---- f64, one lane (e->lanes is 1) ---- */
static LLVMValueRef u64(emit *e, uint64_t v) { return LLVMConstInt(e->t_i64, v, 0); }
static LLVMValueRef less64(emit *e, LLVMValueRef a, LLVMValueRef b) { return em_icmp(e, LLVMIntSLT, a, b); }

/* Mantissa with its top bit at 52 (0 for zero) and exponent: |x| = m * 2^e. */
typedef struct parts {
    LLVMValueRef m, e, is_negative, is_finite;
} parts;

static parts split(emit *e, LLVMValueRef x) {
    LLVMValueRef bits = LLVMBuildBitCast(e->b, x, e->t_i64, ""), zero = u64(e, 0);
    LLVMValueRef field = em_and(e, em_lshr(e, bits, 52), u64(e, 0x7ff)),
                 low = em_and(e, bits, u64(e, (UINT64_C(1) << 52) - 1));
    LLVMValueRef is_normal = em_icmp(e, LLVMIntNE, field, zero);
    LLVMValueRef lz =
        LLVMBuildCall2(e->b, LLVMFunctionType(e->t_i64, (LLVMTypeRef[]){e->t_i64, e->t_i1}, 2, 0),
                       LLVMGetIntrinsicDeclaration(e->mod, LLVMLookupIntrinsicID("llvm.ctlz", 9), &e->t_i64, 1),
                       (LLVMValueRef[]){low, LLVMConstInt(e->t_i1, 0, 0)}, 2, "");
    LLVMValueRef shift = em_sub(e, lz, u64(e, 11)); /* of a subnormal; 53 for zero, which stays zero */
    parts p;
    p.m = em_select(e, is_normal, em_or(e, low, u64(e, UINT64_C(1) << 52)), LLVMBuildShl(e->b, low, shift, ""));
    p.e = em_select(e, is_normal, em_sub(e, field, u64(e, 1075)), em_sub(e, u64(e, (uint64_t)-1074), shift));
    p.is_negative = less64(e, bits, zero);
    p.is_finite = em_icmp(e, LLVMIntNE, field, u64(e, 0x7ff));
    return p;
}

/* v >> n with the bits that fall out or'ed into the last one; n in 0..127. */
static LLVMValueRef sticky_shift(emit *e, LLVMValueRef v, LLVMValueRef n) {
    LLVMValueRef kept = LLVMBuildLShr(e->b, v, n, ""), back = LLVMBuildShl(e->b, kept, n, "");
    return em_or(e, kept, LLVMBuildZExt(e->b, em_icmp(e, LLVMIntNE, back, v), LLVMTypeOf(v), ""));
}

/* m * 2^exponent, m an unsigned 64-bit integer with its top bit set and a sticky last bit, as the bits of a double. */
static LLVMValueRef round_to_f64(emit *e, LLVMValueRef m, LLVMValueRef exponent, LLVMTypeRef i128) {
    LLVMValueRef one = LLVMConstInt(i128, 1, 0), top = em_add(e, exponent, u64(e, 63));
    /* 53 bits stay; of a subnormal fewer. 66 leaves nothing, whatever comes. */
    LLVMValueRef lost = em_sub(e, u64(e, (uint64_t)-1022), top);
    lost = em_add(e, em_select(e, less64(e, lost, u64(e, 0)), u64(e, 0), lost), u64(e, 11));
    lost = em_select(e, less64(e, u64(e, 66), lost), u64(e, 66), lost);
    LLVMValueRef n = LLVMBuildZExt(e->b, lost, i128, ""), w = LLVMBuildZExt(e->b, m, i128, "");
    LLVMValueRef q = LLVMBuildLShr(e->b, w, n, ""), rest = em_sub(e, w, LLVMBuildShl(e->b, q, n, ""));
    LLVMValueRef half = LLVMBuildShl(e->b, one, em_sub(e, n, one), ""), zero = LLVMConstInt(i128, 0, 0);
    LLVMValueRef is_odd = em_icmp(e, LLVMIntNE, em_and(e, q, one), zero);
    LLVMValueRef up =
        em_or(e, em_icmp(e, LLVMIntUGT, rest, half), em_and(e, em_icmp(e, LLVMIntEQ, rest, half), is_odd));
    LLVMValueRef mantissa = em_add(e, LLVMBuildTrunc(e->b, q, e->t_i64, ""), LLVMBuildZExt(e->b, up, e->t_i64, ""));
    /* The implicit bit of a normal adds one to the exponent field, and so does a carry out of the mantissa. */
    LLVMValueRef field = em_add(e, top, u64(e, 1022));
    field = em_select(e, less64(e, field, u64(e, 0)), u64(e, 0), field);
    LLVMValueRef bits = em_add(e, em_shl(e, field, 52), mantissa);
    return em_select(e, less64(e, u64(e, 1023), top), u64(e, UINT64_C(0x7ff) << 52), bits);
}

static LLVMValueRef fma_f64_lane(emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
    LLVMTypeRef i128 = LLVMIntTypeInContext(e->ctx, 128);
    LLVMValueRef wide_zero = LLVMConstInt(i128, 0, 0), zero = u64(e, 0);
    parts x = split(e, a), y = split(e, b), z = split(e, c);
    /* Both terms with the top bit at 124 or 125; the one with the smaller exponent is shifted right. When that loses
     * bits, the shift is so far that at most one bit cancels, and the sticky bit stays far below the 53 that are kept.
     */
    LLVMValueRef product = em_mul(e, LLVMBuildZExt(e->b, x.m, i128, ""), LLVMBuildZExt(e->b, y.m, i128, ""));
    LLVMValueRef p = em_shl(e, product, 20), q = em_shl(e, LLVMBuildZExt(e->b, z.m, i128, ""), 73);
    LLVMValueRef pe = em_sub(e, em_add(e, x.e, y.e), u64(e, 20)), qe = em_sub(e, z.e, u64(e, 73));
    qe = em_select(e, em_icmp(e, LLVMIntEQ, z.m, zero), u64(e, (uint64_t)-9999), qe); /* zero never moves the product */
    LLVMValueRef p_is_lower = less64(e, pe, qe), exponent = em_select(e, p_is_lower, qe, pe);
    LLVMValueRef limit = u64(e, 127), dp = em_sub(e, exponent, pe), dq = em_sub(e, exponent, qe);
    dp = em_select(e, less64(e, limit, dp), limit, dp);
    dq = em_select(e, less64(e, limit, dq), limit, dq);
    p = sticky_shift(e, p, LLVMBuildZExt(e->b, dp, i128, ""));
    q = sticky_shift(e, q, LLVMBuildZExt(e->b, dq, i128, ""));
    LLVMValueRef p_negative = em_xor(e, x.is_negative, y.is_negative);
    LLVMValueRef subtract = em_xor(e, p_negative, z.is_negative);
    LLVMValueRef sum = em_add(e, p, em_select(e, subtract, em_sub(e, wide_zero, q), q));
    LLVMValueRef flipped = em_icmp(e, LLVMIntSLT, sum, wide_zero), is_negative = em_xor(e, p_negative, flipped);
    sum = em_select(e, flipped, em_sub(e, wide_zero, sum), sum);
    LLVMValueRef is_zero = em_icmp(e, LLVMIntEQ, sum, wide_zero);

    LLVMValueRef lz = LLVMBuildCall2(
        e->b, LLVMFunctionType(i128, (LLVMTypeRef[]){i128, e->t_i1}, 2, 0),
        LLVMGetIntrinsicDeclaration(e->mod, LLVMLookupIntrinsicID("llvm.ctlz", 9), &i128, 1),
        (LLVMValueRef[]){em_or(e, sum, LLVMBuildZExt(e->b, is_zero, i128, "")), LLVMConstInt(e->t_i1, 0, 0)}, 2, "");
    LLVMValueRef m = sticky_shift(e, LLVMBuildShl(e->b, sum, lz, ""), LLVMConstInt(i128, 64, 0));
    exponent = em_add(e, em_sub(e, exponent, LLVMBuildTrunc(e->b, lz, e->t_i64, "")), u64(e, 64));
    LLVMValueRef bits = round_to_f64(e, LLVMBuildTrunc(e->b, m, e->t_i64, ""), exponent, i128);
    bits = em_or(e, bits, em_select(e, is_negative, u64(e, UINT64_C(1) << 63), zero));
    LLVMValueRef result = LLVMBuildBitCast(e->b, bits, e->t_f64, "");

    /* Plain arithmetic where it is exact or not finite: a factor of 0, a sum of 0 (with its sign), infinities and NaN.
     */
    LLVMValueRef xy_finite = em_and(e, x.is_finite, y.is_finite);
    LLVMValueRef no_product = em_icmp(e, LLVMIntEQ, product, wide_zero);
    LLVMValueRef plain = em_or(e, LLVMBuildNot(e->b, xy_finite, ""), em_or(e, no_product, is_zero));
    result = em_select(e, plain, em_fadd(e, em_fmul(e, a, b), c), result);
    return em_select(e, em_and(e, xy_finite, LLVMBuildNot(e->b, z.is_finite, "")), c, result);
}

/* The lanes go through memory so that the code exists once. */
static LLVMValueRef fma_f64(emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
    int lanes = e->lanes;
    if (lanes == 1) return fma_f64_lane(e, a, b, c);
    LLVMTypeRef type = em_vec(e, e->t_f64);
    LLVMValueRef in[3] = {a, b, c}, slot[3], lane[3];
    for (int i = 0; i < 3; i++) {
        slot[i] = em_alloca(e, type, 64);
        LLVMSetAlignment(LLVMBuildStore(e->b, in[i], slot[i]), 64);
    }
    e->lanes = 1;
    em_loop l = em_for(e, em_i64s(e, 0), em_i64s(e, lanes), em_i64s(e, 1));
    for (int i = 0; i < 3; i++) {
        lane[i] = LLVMBuildLoad2(e->b, e->t_f64, em_gep(e, slot[i], e->t_f64, l.i), "");
        LLVMSetAlignment(lane[i], 8);
    }
    LLVMValueRef r = fma_f64_lane(e, lane[0], lane[1], lane[2]);
    LLVMSetAlignment(LLVMBuildStore(e->b, r, em_gep(e, slot[0], e->t_f64, l.i)), 8);
    em_end(e, &l);
    e->lanes = lanes;
    LLVMValueRef v = LLVMBuildLoad2(e->b, type, slot[0], "");
    LLVMSetAlignment(v, 64);
    return v;
}

LLVMValueRef jit_fma(emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
    if (e->level->has_fma) return em_intrinsic(e, "llvm.fma", 3, (LLVMValueRef[]){a, b, c});
    return e->dt == FUSOR_F64 ? fma_f64(e, a, b, c) : fma_f32(e, a, b, c);
}
