/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math64_pow.c: powers and roots in f64. */
#include "jit/math64_impl.h"

#define TWO_THIRDS_HIGH 0x1.5555555555555p-1
#define TWO_THIRDS_LOW  0x1.5555555555555p-55
#define LOG2E_HIGH      0x1.71547652b82fep+0
#define LOG2E_LOW       0x1.777d0ffda0d24p-56

/* log_tail_64: error 2^-75.6 */
static const double log_tail_64[9] = {
    0x1.999999999999ap-2, 0x1.2492492492358p-2, 0x1.c71c71c747f81p-3, 0x1.745d172d4daa9p-3, 0x1.3b13b94046098p-3,
    0x1.110f73a5ccd6fp-3, 0x1.e249bb00a7701p-4, 0x1.a741e0c8f7c74p-4, 0x1.da6701295b6c9p-4,
};
/* cbrt_64: error 2^-25.5 */
static const double cbrt_64[6] = {
    0x1.0000005c9c7d5p+0,  -0x1.55555ac1ecb04p-2, 0x1.c711504ab9a34p-3,
    -0x1.61e88f30fc5abp-3, 0x1.2d4dabccb7fcp-3,   -0x1.06946e35faf8bp-3,
};

/* log2(x) within 2^-63 of itself, for finite x > 0: with s = f / (2 + f), log(1 + f) = 2 s + 2/3 s^3 + s^5 P(s^2),
 * where only the last term, below 2^-11 of the first, is of one double. */
static mi_pair log2_pair(emit *e, LLVMValueRef x) {
    mi64_log_parts p = mi64_log_reduce(e, x);
    mi_pair bottom = mi_fast_sum(e, em_f64(e, 2), p.f);
    LLVMValueRef inverse = em_fdiv(e, em_f64(e, 1), bottom.hi);
    mi_pair s = {.hi = em_fmul(e, p.f, inverse)}, back = mi_product(e, s.hi, bottom.hi);
    LLVMValueRef rest = em_fsub(e, em_fsub(e, p.f, back.hi), em_fadd(e, back.lo, em_fmul(e, s.hi, bottom.lo)));
    s.lo = em_fmul(e, rest, inverse);
    mi_pair z = mi_pair_times(e, s, s), cube = mi_pair_times(e, z, s);
    mi_pair third = mi_pair_times(e, cube, mi_pair_of(e, TWO_THIRDS_HIGH, TWO_THIRDS_LOW));
    LLVMValueRef tail = em_fmul(e, em_fmul(e, cube.hi, z.hi), mi_poly_d(e, z.hi, log_tail_64, 9));
    mi_pair log = mi_fast_sum(e, em_fadd(e, s.hi, s.hi), third.hi);
    log.lo = em_fadd(e, log.lo, em_fadd(e, em_fadd(e, s.lo, s.lo), em_fadd(e, third.lo, tail)));
    log = mi_fast_sum(e, log.hi, log.lo);
    log = mi_pair_times(e, log, mi_pair_of(e, LOG2E_HIGH, LOG2E_LOW));
    mi_pair sum = mi_fast_sum(e, p.n, log.hi);
    sum.lo = em_fadd(e, sum.lo, log.lo);
    return sum;
}

/* 2^(y log2 |x|) with both as pairs; then, by C99 Annex F: the sign of odd y, NaN for a negative x and an y that is not
 * an integer, 1 for y = 0 and for x = 1, 0 and infinity as limits. |y| above 2^66 is held there: where log2 |x| is not
 * 0 it is 2^-53 at least. Error: 0.87 ULP (1.12 without fma). */
LLVMValueRef math64_pow(emit *e, LLVMValueRef x, LLVMValueRef y) {
    LLVMValueRef a = em_fabs(e, x), zero = em_f64(e, 0), one = em_f64(e, 1), inf = em_f64(e, __builtin_inf());
    LLVMValueRef is_zero = em_fcmp(e, LLVMRealOEQ, a, zero), is_inf = em_fcmp(e, LLVMRealOEQ, a, inf);
    LLVMValueRef is_limit = em_or(e, is_zero, is_inf), most = em_f64(e, 1100), least = em_f64(e, -1100);
    mi_pair log = log2_pair(e, em_select(e, is_limit, one, a));
    LLVMValueRef held = mi_max(e, em_f64(e, -0x1p66), mi_min(e, em_f64(e, 0x1p66), y));
    mi_pair w = mi_product(e, held, log.hi);
    w.lo = em_mad(e, held, log.lo, w.lo);
    w.lo = em_select(e, em_fcmp(e, LLVMRealOLT, em_fabs(e, w.hi), most), w.lo, zero);
    w.hi = em_select(e, is_limit, em_fmul(e, y, em_select(e, is_zero, em_fneg(e, inf), inf)), w.hi);
    w.hi = mi_max(e, least, mi_min(e, most, w.hi));
    LLVMValueRef r = mi64_scale(e, mi64_exp2_reduce(e, w.hi, w.lo), 0);

    LLVMValueRef is_negative = em_icmp(e, LLVMIntSLT, mi_bits_d(e, x), mi_i64(e, 0));
    LLVMValueRef half = em_fmul(e, y, em_f64(e, 0.5)), is_integer = em_fcmp(e, LLVMRealOEQ, em_rint(e, y), y);
    LLVMValueRef is_odd = em_and(e, is_integer, em_fcmp(e, LLVMRealUNE, em_rint(e, half), half));
    r = mi64_select_sign(e, em_and(e, is_negative, is_odd), r);
    LLVMValueRef is_inside = em_and(e, em_fcmp(e, LLVMRealOLT, x, zero), em_fcmp(e, LLVMRealOLT, a, inf));
    r = mi64_nan_where(e, em_and(e, is_inside, mi_not(e, is_integer)), r);
    r = em_select(e, em_fcmp(e, LLVMRealUNO, x, y), em_fadd(e, x, y), r);
    LLVMValueRef is_one = em_or(e, em_fcmp(e, LLVMRealOEQ, x, one), em_fcmp(e, LLVMRealOEQ, y, zero));
    return em_select(e, is_one, one, r);
}

/* A third of the upper word as a number is within 5 % (subnormal arguments times 2^54 before, the result times 2^-18
 * after); t (t^3 / c)^(-1/3) by a polynomial leaves 2^-25; of t rounded to 26 bits the square is exact, and a step of
 * Halley's makes the rest (the steps are those of Lynn Dunn's and Bruce Evans' cbrt). Error: 0.81 ULP. */
LLVMValueRef math64_cbrt(emit *e, LLVMValueRef x) {
    LLVMValueRef a = em_fabs(e, x), is_small = em_fcmp(e, LLVMRealOLT, a, em_f64(e, 0x1p-1000)), one = em_f64(e, 1);
    LLVMValueRef c = em_select(e, is_small, em_fmul(e, a, em_f64(e, 0x1p54)), a);
    LLVMTypeRef i32 = em_vec(e, e->t_i32), i64 = em_vec(e, e->t_i64), f64 = em_vec(e, e->t_f64);
    LLVMValueRef word = LLVMBuildTrunc(e->b, em_lshr(e, mi_bits_d(e, c), 32), i32, "");
    LLVMValueRef third = em_fmul(e, LLVMBuildSIToFP(e->b, word, f64, ""), em_f64(e, 1 / 3.0));
    word = em_add(e, LLVMBuildFPToSI(e->b, third, i32, ""), em_i32(e, 715094163)); /* (1023 * 2/3 - 0.0331) * 2^20 */
    LLVMValueRef t = mi_of_bits_d(e, em_shl(e, LLVMBuildZExt(e->b, word, i64, ""), 32));
    LLVMValueRef d = em_fsub(e, em_fmul(e, em_fmul(e, t, t), em_fdiv(e, t, c)), one);
    t = em_fmul(e, t, mi_poly_d(e, d, cbrt_64, 6));
    LLVMValueRef bits = em_add(e, mi_bits_d(e, t), mi_i64(e, 0x4000000));
    t = mi_of_bits_d(e, em_and(e, bits, mi_i64(e, ~INT64_C(0x7ffffff))));
    LLVMValueRef r = em_fdiv(e, c, em_fmul(e, t, t));
    r = em_fdiv(e, em_fsub(e, r, t), em_fadd(e, em_fadd(e, t, t), r));
    LLVMValueRef y = em_mad(e, t, r, t);
    y = em_copysign(e, em_select(e, is_small, em_fmul(e, y, em_f64(e, 0x1p-18)), y), x);
    LLVMValueRef is_number =
        em_and(e, em_fcmp(e, LLVMRealOGT, a, em_f64(e, 0)), em_fcmp(e, LLVMRealOLT, a, em_f64(e, __builtin_inf())));
    return em_select(e, is_number, y, em_fadd(e, x, x));
}

/* Both scaled by a power of two, so that the larger square is in range; what of the smaller one underflows does not
 * count. An infinity wins over NaN. Error: 1.17 ULP. */
LLVMValueRef math64_hypot(emit *e, LLVMValueRef x, LLVMValueRef y) {
    LLVMValueRef a = em_fabs(e, x), b = em_fabs(e, y), inf = em_f64(e, __builtin_inf()), one = em_f64(e, 1);
    LLVMValueRef most = em_select(e, em_fcmp(e, LLVMRealOGT, a, b), a, b);
    LLVMValueRef is_large = em_fcmp(e, LLVMRealOGT, most, em_f64(e, 0x1p500));
    LLVMValueRef is_small = em_fcmp(e, LLVMRealOLT, most, em_f64(e, 0x1p-450));
    LLVMValueRef down = em_select(e, is_small, em_f64(e, 0x1p600), one),
                 up = em_select(e, is_small, em_f64(e, 0x1p-600), one);
    down = em_select(e, is_large, em_f64(e, 0x1p-600), down);
    up = em_select(e, is_large, em_f64(e, 0x1p600), up);
    LLVMValueRef least = em_select(e, em_fcmp(e, LLVMRealOGT, a, b), b, a);
    most = em_fmul(e, most, down); /* so that the order of the operands changes no bit */
    least = em_fmul(e, least, down);
    LLVMValueRef r = em_fmul(e, mi_sqrt(e, em_mad(e, most, most, em_fmul(e, least, least))), up);
    LLVMValueRef either = em_or(e, em_fcmp(e, LLVMRealOEQ, a, inf), em_fcmp(e, LLVMRealOEQ, b, inf));
    return em_select(e, either, inf, r);
}
