/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math_pow.c: powers and roots. */
#include "jit/math_impl.h"

#define LOG2E 1.44269504088896340736

/* pow = 2^(y log2 |x|) in f64, where every float is normal and the logarithm good to 2^-38: y log2 |x| counts up to
 * 150, so the error stays below 2^-30. Then, by C99 Annex F: the sign of odd y, NaN for a negative x and an y that is
 * not an integer, 1 for y = 0 and for x = 1, 0 and infinity as limits. Error: 0.51 ULP. */
LLVMValueRef math_pow(emit *e, LLVMValueRef x, LLVMValueRef y) {
    LLVMValueRef w = mi_pow_exponent(e, x, y, mi_log_terms, 14);
    w = mi_max(e, em_f64(e, -1000), mi_min(e, em_f64(e, 1000), w));
    return mi_pow_specials(e, x, y, mi_to_f32(e, mi_exp2_d(e, w)));
}

LLVMValueRef mi_pow_exponent(emit *e, LLVMValueRef x, LLVMValueRef y, const double *c, int n) {
    LLVMValueRef a = em_fabs(e, x), zero = em_f32(e, 0), one = em_f32(e, 1), inf = em_f64(e, __builtin_inf());
    LLVMValueRef log = em_fmul(e, mi_log_with_d(e, mi_to_f64(e, a), c, n), em_f64(e, LOG2E));
    log = em_select(e, em_fcmp(e, LLVMRealOEQ, a, zero), em_f64(e, -__builtin_inf()), log);
    log = em_select(e, mi_is_inf(e, a), inf, log);
    LLVMValueRef w = em_fmul(e, mi_to_f64(e, y), log);
    return em_select(e, em_fcmp(e, LLVMRealOEQ, a, one), em_f64(e, 0), w); /* infinity times 0 */
}

LLVMValueRef mi_pow_specials(emit *e, LLVMValueRef x, LLVMValueRef y, LLVMValueRef r) {
    LLVMValueRef zero = em_f32(e, 0), one = em_f32(e, 1);
    LLVMValueRef is_negative = em_icmp(e, LLVMIntSLT, em_bits_of_f32(e, x), em_i32(e, 0));
    LLVMValueRef half = em_fmul(e, y, em_f32(e, 0.5));
    LLVMValueRef is_integer = em_fcmp(e, LLVMRealOEQ, em_rint(e, y), y);
    LLVMValueRef is_odd = em_and(e, is_integer, em_fcmp(e, LLVMRealUNE, em_rint(e, half), half));
    r = em_select(e, em_and(e, is_negative, is_odd), em_fneg(e, r), r);
    LLVMValueRef is_inside =
        em_and(e, em_fcmp(e, LLVMRealOLT, x, zero), em_fcmp(e, LLVMRealOGT, x, em_f32(e, -__builtin_inf())));
    LLVMValueRef is_nan = em_and(e, is_inside, mi_not(e, is_integer));
    r = em_select(e, is_nan, em_f32(e, __builtin_nan("")), r);
    r = em_select(e, em_fcmp(e, LLVMRealUNO, x, y), em_fadd(e, x, y), r);
    LLVMValueRef is_one = em_or(e, em_fcmp(e, LLVMRealOEQ, x, one), em_fcmp(e, LLVMRealOEQ, y, zero));
    return em_select(e, is_one, one, r);
}

/* g (g^3 + 2 c) / (2 g^3 + c) twice in f64, which leaves 2^-40. */
static LLVMValueRef cbrt_wide(emit *e, LLVMValueRef guess, LLVMValueRef scaled) {
    LLVMValueRef g = mi_to_f64(e, guess), c = mi_to_f64(e, scaled);
    for (int i = 0; i < 2; i++) {
        LLVMValueRef cube = em_fmul(e, em_fmul(e, g, g), g);
        LLVMValueRef top = em_fadd(e, cube, em_fadd(e, c, c)), bottom = em_fadd(e, em_fadd(e, cube, cube), c);
        g = em_fmul(e, g, em_fdiv(e, top, bottom));
    }
    return mi_to_f32(e, g);
}

/* Two steps of the same in f32 with fma: g - g / 6 (g^3 - c) / (c / 2 + (g^3 - c) / 3), where nothing overflows. The
 * first ends within 2^-14; in the second the numerator is exact up to the rounding of g^2, a third of which stays. */
static LLVMValueRef cbrt_steps(emit *e, LLVMValueRef g, LLVMValueRef c) {
    LLVMValueRef half = em_fmul(e, c, em_f32(e, 0.5));
    for (int i = 0; i < 2; i++) {
        LLVMValueRef over = em_mad(e, em_fmul(e, g, g), g, em_fneg(e, c));
        LLVMValueRef bottom = em_mad(e, over, em_f32(e, 1 / 3.0), half);
        g = em_mad(e, em_fmul(e, g, em_f32(e, -1 / 6.0)), em_fdiv(e, over, bottom), g);
    }
    return g;
}

/* cbrt: a third of the bits as a number is within 4 % (subnormal arguments times 2^24 before, the result times 2^-8
 * after); then steps of Halley's. Error: 0.74 ULP (0.51 without fma). */
LLVMValueRef math_cbrt(emit *e, LLVMValueRef x) {
    LLVMValueRef a = em_fabs(e, x), is_small = em_fcmp(e, LLVMRealOLT, a, em_f32(e, 0x1p-100));
    LLVMValueRef scaled = em_select(e, is_small, em_fmul(e, a, em_f32(e, 0x1p24)), a);
    LLVMTypeRef f32 = em_vec(e, e->t_f32), i32 = em_vec(e, e->t_i32);
    LLVMValueRef bits = LLVMBuildSIToFP(e->b, em_bits_of_f32(e, scaled), f32, "");
    bits = LLVMBuildFPToSI(e->b, em_fmul(e, bits, em_f32(e, 1 / 3.0)), i32, "");
    LLVMValueRef guess = em_f32_of_bits(e, em_add(e, bits, em_i32(e, 0x2a512ce3)));
    LLVMValueRef y = e->level->has_fma ? cbrt_steps(e, guess, scaled) : cbrt_wide(e, guess, scaled);
    y = em_copysign(e, em_select(e, is_small, em_fmul(e, y, em_f32(e, 0x1p-8)), y), x);
    LLVMValueRef is_number =
        em_and(e, em_fcmp(e, LLVMRealOGT, a, em_f32(e, 0)), em_fcmp(e, LLVMRealOLT, a, em_f32(e, __builtin_inf())));
    return em_select(e, is_number, y, em_fadd(e, x, x));
}

/* Two correctly rounded steps. Error: 1.49 ULP. */
LLVMValueRef math_rsqrt(emit *e, LLVMValueRef x) {
    return em_fdiv(e, mi_is_f64(e, x) ? em_f64(e, 1) : em_f32(e, 1), mi_sqrt(e, x));
}

/* hypot in f64: the squares are exact and in range. An infinity wins over NaN. Error: 0.51 ULP. */
LLVMValueRef math_hypot(emit *e, LLVMValueRef x, LLVMValueRef y) {
    LLVMValueRef a = mi_to_f64(e, x), b = mi_to_f64(e, y);
    LLVMValueRef r = mi_to_f32(e, mi_sqrt(e, em_mad(e, a, a, em_fmul(e, b, b))));
    LLVMValueRef either = em_or(e, mi_is_inf(e, em_fabs(e, x)), mi_is_inf(e, em_fabs(e, y)));
    return em_select(e, either, em_f32(e, __builtin_inf()), r);
}
