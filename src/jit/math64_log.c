/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math64_log.c: logarithms in f64.
 *
 * x = 2^n (1 + f), 1 + f in [0.75, 1.5), so that n = 0 around 1. With s = f / (2 + f), log(1 + f) = 2 atanh(s) is an
 * odd series in s, |s| <= 0.2: half as many terms as in f. It is taken as f - (h - s (h + R)), h = f^2 / 2, R = s^2
 * P(s^2), whose first term is exact (the arrangement is that of Ng's log in fdlibm). */
#include "jit/math64_impl.h"

#define LN2_HIGH     0x1.62e42fefa3p-1
#define LN2_LOW      0x1.3de6af278ece6p-42 /* positive: n is infinite where AVX-512 reduced 0 or infinity */
#define LOG2E_HIGH   0x1.71547652p+0       /* 32 bits */
#define LOG2E_LOW    0x1.705fc2eefa2p-33
#define LOG10E_HIGH  0x1.bcb7b152p-2
#define LOG10E_LOW   0x1.b9438ca9aadd5p-36
#define LOG10_2_HIGH 0x1.34413509f7p-2
#define LOG10_2_LOW  0x1.3fde623e2566bp-43
enum { BIAS = 1023, FRACTION = 52 };

/* log_64: error 2^-62.7 */
static const double log_64[8] = {
    0x1.555555555554fp-1, 0x1.999999999c15ep-2, 0x1.24924921e733fp-2, 0x1.c71c748c6dc9fp-3,
    0x1.745c4bbf5b4eap-3, 0x1.3b35a164dc3ccp-3, 0x1.0dcdbec83abcdp-3, 0x1.1b7287ac5a94ap-3,
};

/* n and 1 + f from the bits: adding 2^51 carries into the exponent where the fraction is 1.5 and above. */
static LLVMValueRef biased_exponent(emit *e, LLVMValueRef bits) {
    return em_lshr(e, em_add(e, bits, mi_i64(e, INT64_C(1) << 51)), FRACTION);
}

static LLVMValueRef exponent_value(emit *e, LLVMValueRef biased) {
    LLVMValueRef v = mi_of_bits_d(e, em_or(e, biased, mi_i64(e, 0x4330000000000000))); /* 2^52 + biased */
    return em_fsub(e, v, em_f64(e, 0x1p52 + BIAS));
}

static LLVMValueRef fraction_less_one(emit *e, LLVMValueRef bits, LLVMValueRef biased) {
    LLVMValueRef n = em_shl(e, em_sub(e, biased, mi_i64(e, BIAS)), FRACTION);
    return em_fsub(e, mi_of_bits_d(e, em_sub(e, bits, n)), em_f64(e, 1));
}

mi64_log_parts mi64_log_reduce(emit *e, LLVMValueRef x) {
    if (mi_has_exponents(e)) {
        LLVMValueRef m = mi_getmant(e, x);
        return (mi64_log_parts){em_fsub(e, m, em_f64(e, 1)), em_fsub(e, mi_getexp(e, x), mi_getexp(e, m))};
    }
    LLVMValueRef is_small = em_fcmp(e, LLVMRealOLT, x, em_f64(e, 0x1p-1022));
    LLVMValueRef bits = mi_bits_d(e, em_select(e, is_small, em_fmul(e, x, em_f64(e, 0x1p54)), x));
    LLVMValueRef biased = biased_exponent(e, bits);
    LLVMValueRef n = em_fadd(e, exponent_value(e, biased), em_select(e, is_small, em_f64(e, -54), em_f64(e, 0)));
    return (mi64_log_parts){fraction_less_one(e, bits, biased), n};
}

/* h and s (h + R) */
typedef struct series {
    LLVMValueRef h, rest;
} series;
static series log_series(emit *e, LLVMValueRef f) {
    series v;
    LLVMValueRef s = em_fdiv(e, f, em_fadd(e, f, em_f64(e, 2))), z = em_fmul(e, s, s);
    v.h = em_fmul(e, em_fmul(e, f, f), em_f64(e, 0.5));
    v.rest = em_fmul(e, s, em_mad(e, z, mi_poly_d(e, z, log_64, 8), v.h));
    return v;
}

LLVMValueRef mi64_log_sum(emit *e, LLVMValueRef f, LLVMValueRef c, LLVMValueRef n) {
    series v = log_series(e, f);
    LLVMValueRef low = em_mad(e, n, em_f64(e, LN2_LOW), v.rest);
    if (c) { /* c / (1 + f), within 5 % of what is half a unit of the result's last place */
        LLVMValueRef g = em_mad(e, f, em_mad(e, f, em_f64(e, 0.6), em_f64(e, -0.97)), em_f64(e, 1));
        low = em_mad(e, c, g, low);
    }
    LLVMValueRef y = em_fsub(e, f, em_fsub(e, v.h, low));
    return em_mad(e, n, em_f64(e, LN2_HIGH), y);
}

/* The result for arguments that are zero, infinite, negative or NaN. */
static LLVMValueRef specials(emit *e, LLVMValueRef x, LLVMValueRef y) {
    LLVMValueRef inf = em_f64(e, __builtin_inf());
    y = em_select(e, em_fcmp(e, LLVMRealOEQ, x, inf), inf, y);
    y = mi64_nan_where(e, em_fcmp(e, LLVMRealULT, x, em_f64(e, 0)), y);
    return em_select(e, em_fcmp(e, LLVMRealOEQ, x, em_f64(e, 0)), em_f64(e, -__builtin_inf()), y);
}

/* Error: 0.89 ULP (0.90 without fma). */
LLVMValueRef math64_log(emit *e, LLVMValueRef x) {
    mi64_log_parts v = mi64_log_reduce(e, x);
    LLVMValueRef y = mi64_log_sum(e, v.f, NULL, v.n);
    return mi_has_exponents(e) ? y : specials(e, x, y);
}

/* n * unit + log(1 + f) / ln(base): the upper half of f - h times a factor of 32 bits is exact. */
static LLVMValueRef other_base(emit *e, LLVMValueRef x, mi_pair unit, mi_pair factor) {
    mi64_log_parts p = mi64_log_reduce(e, x);
    series v = log_series(e, p.f);
    LLVMValueRef high = em_fsub(e, p.f, v.h);
    high = mi_of_bits_d(e, em_and(e, mi_bits_d(e, high), mi_i64(e, ~INT64_C(0xffffffff))));
    LLVMValueRef low = em_fadd(e, em_fsub(e, em_fsub(e, p.f, high), v.h), v.rest);
    LLVMValueRef top = em_fmul(e, high, factor.hi);
    LLVMValueRef rest = em_mad(e, em_fadd(e, low, high), factor.lo, em_fmul(e, low, factor.hi));
    if (unit.lo) rest = em_mad(e, p.n, unit.lo, rest);
    mi_pair sum = mi_fast_sum(e, unit.lo ? em_fmul(e, p.n, unit.hi) : p.n, top);
    return specials(e, x, em_fadd(e, sum.hi, em_fadd(e, sum.lo, rest)));
}

/* Error: 0.95 ULP. */
LLVMValueRef math64_log2(emit *e, LLVMValueRef x) {
    return other_base(e, x, (mi_pair){NULL, NULL}, mi_pair_of(e, LOG2E_HIGH, LOG2E_LOW));
}

/* Error: 0.71 ULP. */
LLVMValueRef math64_log10(emit *e, LLVMValueRef x) {
    return other_base(e, x, mi_pair_of(e, LOG10_2_HIGH, LOG10_2_LOW), mi_pair_of(e, LOG10E_HIGH, LOG10E_LOW));
}

/* u = 1 + x and c, what it leaves; both times 2^-n. For n = 0: x itself. From 2^60 on c counts no more. */
LLVMValueRef mi64_log1p(emit *e, LLVMValueRef x, LLVMValueRef more) {
    mi_pair u = mi_sum(e, em_f64(e, 1), x);
    LLVMValueRef bits = mi_bits_d(e, u.hi), biased = biased_exponent(e, bits), n = exponent_value(e, biased);
    LLVMValueRef is_near = em_fcmp(e, LLVMRealOEQ, n, em_f64(e, 0)), zero = em_f64(e, 0);
    LLVMValueRef f = em_select(e, is_near, x, fraction_less_one(e, bits, biased));
    LLVMValueRef scale = mi_of_bits_d(e, em_shl(e, em_sub(e, mi_i64(e, 2 * BIAS), biased), FRACTION));
    LLVMValueRef has_none = em_or(e, is_near, em_fcmp(e, LLVMRealOGT, x, em_f64(e, 0x1p60)));
    LLVMValueRef c = em_select(e, has_none, zero, em_fmul(e, u.lo, scale));
    return mi64_log_sum(e, f, c, more ? em_fadd(e, n, more) : n);
}

/* Error: 0.79 ULP. */
LLVMValueRef math64_log1p(emit *e, LLVMValueRef x) {
    LLVMValueRef inf = em_f64(e, __builtin_inf()), minus_one = em_f64(e, -1);
    LLVMValueRef y = em_copysign(e, mi64_log1p(e, x, NULL), x);
    y = em_select(e, em_fcmp(e, LLVMRealOEQ, x, inf), inf, y);
    y = mi64_nan_where(e, em_fcmp(e, LLVMRealULT, x, minus_one), y);
    return em_select(e, em_fcmp(e, LLVMRealOEQ, x, minus_one), em_f64(e, -__builtin_inf()), y);
}
