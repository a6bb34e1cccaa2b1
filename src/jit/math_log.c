/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math_log.c: logarithms.
 *
 * Range reduction: x = m * 2^n with m in [0.75, 1.5), f = m - 1 exactly, so that n = 0 around 1, where the result is
 * small and no sum with n * ln 2 may cancel. AVX-512 has instructions for both parts, with infinities, zeros and
 * negative numbers handled; elsewhere the parts come from the bits, subnormal arguments scaled by 2^23 before, special
 * ones replaced after. */
#include "jit/math_impl.h"

#define LN2          0.693147180559945309417
#define LN2_HIGH     0x1.62e4p-1 /* 15 bits: n * high is exact */
#define LN2_LOW      0x1.7f7d1cf79abcap-20
#define LOG10_2_HIGH 0x1.344p-2
#define LOG10_2_LOW  0x1.3509f79fef312p-18

/* log_p: error 2^-27.6 */
static const float log_p[8] = {
    0x1.5555a4p-2f, -0x1.000044p-2f, 0x1.99697p-3f, -0x1.54eed6p-3f,
    0x1.2885e2p-3f, -0x1.0d93e2p-3f, 0x1.aca36p-4f, -0x1.7140d6p-5f,
};
/* log2_p: error 2^-25.6 */
static const float log2_p[10] = {
    0x1.715476p+0f,  -0x1.715476p-1f, 0x1.ec71ap-2f,   -0x1.7156cp-2f, 0x1.275214p-2f,
    -0x1.eb2b98p-3f, 0x1.a8785p-3f,   -0x1.88b1d4p-3f, 0x1.603566p-3f, -0x1.7b3814p-4f,
};
/* log10_p: error 2^-26.6 */
static const float log10_p[10] = {
    0x1.bcb7b2p-2f,  -0x1.bcb7b2p-3f, 0x1.287906p-3f,  -0x1.bcb6aep-4f, 0x1.64462cp-4f,
    -0x1.2899a2p-4f, 0x1.ebb36cp-5f,  -0x1.b92c5cp-5f, 0x1.01c844p-4f,  -0x1.91b534p-5f,
};
/* log_d of minimax.py: error 2^-41.0 */
const double mi_log_terms[14] = {
    -0x1.00000000062f1p-1, 0x1.55555559e06acp-2,  -0x1.ffffffeae2062p-3, 0x1.999993199d79bp-3, -0x1.555551aba6739p-3,
    0x1.2493cb80cfa9ap-3,  -0x1.00035b529d885p-3, 0x1.c6d330547c58fp-4,  -0x1.9884d4b62284p-4, 0x1.768f6586ca5f5p-4,
    -0x1.658a850092454p-4, 0x1.49e5b45dde68cp-4,  -0x1.ca63d2c6a8319p-5, 0x1.3aaed87e69ae1p-6,
};

/* is_balanced: m in [sqrt(1/2), sqrt(2)), so that the sum cannot lose a bit: log2 and log10, whose f P(f) is a rounded
 * product, need that. */
mi_log_parts mi_log_reduce(emit *e, LLVMValueRef x, bool is_balanced) {
    mi_log_parts v;
    if (mi_has_exponents(e)) {
        LLVMValueRef m = mi_getmant(e, x);
        v.n = em_fsub(e, mi_getexp(e, x), mi_getexp(e, m));
        if (is_balanced) {
            LLVMValueRef is_high = em_fcmp(e, LLVMRealOGT, m, em_f32(e, 1.41421356));
            m = em_select(e, is_high, em_fmul(e, m, em_f32(e, 0.5)), m);
            v.n = em_select(e, is_high, em_fadd(e, v.n, em_f32(e, 1)), v.n);
        }
        v.f = em_fsub(e, m, em_f32(e, 1));
        return v;
    }
    LLVMValueRef is_small = em_fcmp(e, LLVMRealOLT, x, em_f32(e, 0x1p-126));
    LLVMValueRef bits = em_bits_of_f32(e, em_select(e, is_small, em_fmul(e, x, em_f32(e, 0x1p23)), x));
    LLVMValueRef above = em_sub(e, bits, em_i32(e, is_balanced ? 0x3f3504f3 : 0x3f400000));
    LLVMValueRef n = em_ashr(e, above, 23);
    v.f = em_fsub(e, em_f32_of_bits(e, em_sub(e, bits, em_shl(e, n, 23))), em_f32(e, 1));
    v.n = em_fadd(e, LLVMBuildSIToFP(e->b, n, em_vec(e, e->t_f32), ""),
                  em_select(e, is_small, em_f32(e, -23), em_f32(e, 0)));
    return v;
}

/* The result for arguments that are zero, infinite, negative or NaN. */
LLVMValueRef mi_log_limits(emit *e, LLVMValueRef x, LLVMValueRef y) {
    LLVMValueRef inf = em_f32(e, __builtin_inf());
    y = em_select(e, em_fcmp(e, LLVMRealOEQ, x, inf), inf, y);
    y = em_select(e, em_fcmp(e, LLVMRealULT, x, em_f32(e, 0)), em_f32(e, __builtin_nan("")), y);
    return em_select(e, em_fcmp(e, LLVMRealOEQ, x, em_f32(e, 0)), em_f32(e, -__builtin_inf()), y);
}

LLVMValueRef mi_log_specials(emit *e, LLVMValueRef x, LLVMValueRef y) {
    return mi_has_exponents(e) ? y : mi_log_limits(e, x, y);
}

LLVMValueRef mi_log1p_poly(emit *e, LLVMValueRef f) {
    LLVMValueRef q = em_mad(e, mi_poly(e, f, log_p, 8), f, em_f32(e, -0.5));
    return em_mad(e, em_fmul(e, f, f), q, f);
}

/* log: n ln 2 + (f - f^2/2 + f^3 P(f)). With fma the product n * ln 2 is not rounded and ln 2 as one float is good to
 * 2^-28; without, its first part is exact. Error: 0.91 ULP. */
LLVMValueRef math_log(emit *e, LLVMValueRef x) {
    mi_log_parts v = mi_log_reduce(e, x, false);
    LLVMValueRef y = mi_log1p_poly(e, v.f);
    if (e->level->has_fma) return mi_log_specials(e, x, em_mad(e, v.n, em_f32(e, LN2), y));
    y = em_mad(e, v.n, em_f32(e, LN2_LOW), y);
    return mi_log_specials(e, x, em_mad(e, v.n, em_f32(e, LN2_HIGH), y));
}

/* log2: n + f P(f). Error: 1.41 ULP (1.57 without fma). */
LLVMValueRef math_log2(emit *e, LLVMValueRef x) {
    mi_log_parts v = mi_log_reduce(e, x, true);
    return mi_log_specials(e, x, em_mad(e, v.f, mi_poly(e, v.f, log2_p, 10), v.n));
}

/* log10: n log10(2) in two parts + f P(f). The second part is positive: n is infinite where AVX-512 reduced 0 or
 * infinity. Error: 1.59 ULP (1.62 without fma). */
LLVMValueRef math_log10(emit *e, LLVMValueRef x) {
    mi_log_parts v = mi_log_reduce(e, x, true);
    LLVMValueRef y = em_fmul(e, v.f, mi_poly(e, v.f, log10_p, 10));
    y = em_mad(e, v.n, em_f32(e, LOG10_2_LOW), y);
    return mi_log_specials(e, x, em_mad(e, v.n, em_f32(e, LOG10_2_HIGH), y));
}

/* ---- in f64, for functions of more than one step ---- */
/* n = exponent of u, by putting the biased exponent into the low bits of 2^52; f = x * 2^-n + rest(2^-n). */
static LLVMValueRef log_core_d(emit *e, LLVMValueRef u, LLVMValueRef x, double minus_one, const double *c, int terms) {
    LLVMValueRef biased = em_lshr(e, em_add(e, mi_bits_d(e, u), mi_i64(e, 0x0008000000000000)), 52);
    LLVMValueRef n = mi_of_bits_d(e, em_or(e, biased, mi_i64(e, 0x4330000000000000)));
    n = em_fsub(e, n, em_f64(e, 0x1p52 + 1023));
    LLVMValueRef s = mi_of_bits_d(e, em_shl(e, em_sub(e, mi_i64(e, 2046), biased), 52));
    LLVMValueRef rest = minus_one != 0 ? em_f64(e, minus_one) : em_fsub(e, s, em_f64(e, 1));
    LLVMValueRef f = em_mad(e, x, s, rest);
    LLVMValueRef y = em_mad(e, em_fmul(e, f, f), mi_poly_d(e, f, c, terms), f);
    return em_mad(e, n, em_f64(e, LN2), y);
}

LLVMValueRef mi_log_with_d(emit *e, LLVMValueRef x, const double *c, int n) { return log_core_d(e, x, x, -1, c, n); }
LLVMValueRef mi_log1p_d(emit *e, LLVMValueRef x) {
    return log_core_d(e, em_fadd(e, x, em_f64(e, 1)), x, 0, mi_log_terms, 14);
}

/* log1p in f64, where 1 + x keeps every bit that matters: x * 2^-n + (2^-n - 1) is f with one rounding, and x itself
 * for n = 0. */
static LLVMValueRef log1p_wide(emit *e, LLVMValueRef x) {
    LLVMValueRef y = em_copysign(e, mi_to_f32(e, mi_log1p_d(e, mi_to_f64(e, x))), x);
    LLVMValueRef inf = em_f32(e, __builtin_inf());
    y = em_select(e, em_fcmp(e, LLVMRealOEQ, x, inf), inf, y);
    y = em_select(e, em_fcmp(e, LLVMRealULT, x, em_f32(e, -1)), em_f32(e, __builtin_nan("")), y);
    return em_select(e, em_fcmp(e, LLVMRealOEQ, x, em_f32(e, -1)), em_f32(e, -__builtin_inf()), y);
}

/* The same in f32 with fma: n and s = 2^-n are those of 1 + x, f = s x + (s - 1) + s low. Only f is rounded, and where
 * n is not 0 the result is so large that its error counts a quarter. */
LLVMValueRef mi_log1p_pair(emit *e, LLVMValueRef x, LLVMValueRef low) {
    LLVMValueRef one = em_f32(e, 1), u = em_fadd(e, x, one), n, s, f, inf = em_f32(e, __builtin_inf());
    if (mi_has_exponents(e)) {
        n = em_fsub(e, mi_getexp(e, mi_getmant(e, u)), mi_getexp(e, u)); /* minus n, infinite at 0 and infinity */
        s = mi_scalef(e, one, n, NULL);
        f = em_mad(e, x, s, em_fsub(e, s, one));
        if (low) f = em_mad(e, low, s, f);
        /* 0 and infinity made f a NaN and leave n to give the result; those of arguments below -1 are in n too. */
        f = em_select(e, em_fcmp(e, LLVMRealOLT, f, em_f32(e, 0.625)), f, em_f32(e, 0.625));
        return em_mad(e, n, em_f32(e, -LN2), mi_log1p_poly(e, f));
    }
    /* From 2^63 on 1 + x is x, which times 2^-64 keeps s normal. */
    LLVMValueRef is_huge = em_fcmp(e, LLVMRealOGE, x, em_f32(e, 0x1p63));
    LLVMValueRef part = em_select(e, is_huge, em_f32(e, 0x1p-64), one);
    LLVMValueRef held = em_fmul(e, x, part), bits = em_bits_of_f32(e, em_fmul(e, u, part));
    LLVMValueRef field = em_and(e, em_sub(e, bits, em_i32(e, 0x3f400000)), em_i32(e, (int32_t)0xff800000u));
    s = em_f32_of_bits(e, em_sub(e, em_i32(e, 0x3f800000), field));
    f = em_mad(e, held, s, em_select(e, is_huge, em_f32(e, -1), em_fsub(e, s, one)));
    if (low) f = em_mad(e, low, s, f);
    n = LLVMBuildSIToFP(e->b, em_ashr(e, field, 23), em_vec(e, e->t_f32), "");
    n = em_fadd(e, n, em_select(e, is_huge, em_f32(e, 64), em_f32(e, 0)));
    LLVMValueRef y = em_mad(e, n, em_f32(e, LN2), mi_log1p_poly(e, f));
    y = em_select(e, em_fcmp(e, LLVMRealUEQ, x, inf), x, y);
    y = em_select(e, em_fcmp(e, LLVMRealULT, x, em_f32(e, -1)), em_f32(e, __builtin_nan("")), y);
    return em_select(e, em_fcmp(e, LLVMRealOEQ, x, em_f32(e, -1)), em_f32(e, -__builtin_inf()), y);
}

/* log1p: without fma in f64. Error: 1.27 ULP (0.51 without fma). */
LLVMValueRef math_log1p(emit *e, LLVMValueRef x) {
    if (!e->level->has_fma) return log1p_wide(e, x);
    return em_copysign(e, mi_log1p_pair(e, x, NULL), x);
}
