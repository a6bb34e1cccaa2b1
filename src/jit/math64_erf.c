/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math64_erf.c: error functions and gelu in f64.
 *
 * exp(a^2) erfc(a) = P(q) / (1 + 2 a), q = (a - 4) / (a + 4): P is between 1 and 1.3 for all a >= 0, and nearly flat
 * from 1 on, so that errors of q count little (the mapping is Juffa's). One division makes both quotients; the one that
 * counts is corrected by what it leaves. */
#include "jit/math64_impl.h"

#define SQRT_HALF_HIGH 0x1.6a09e667f3bcdp-1
#define SQRT_HALF_LOW  -0x1.bdd3413b26456p-55

/* erf_64: error 2^-56.3 */
static const double erf_64[13] = {
    0x1.06eba8214db69p-3,  -0x1.812746b037a29p-2,  0x1.ce2f21a045fc1p-4,  -0x1.b82ce3138b457p-6,
    0x1.565bcd385720bp-8,  -0x1.c02dbc0ee5308p-11, 0x1.f9a422fce9f26p-14, -0x1.f4e6aa76174b2p-17,
    0x1.bafe6bf8439f7p-20, -0x1.69627d88d6516p-23, 0x1.377824f4dfca6p-26, -0x1.637053e985fcdp-29,
    0x1.64c7fec72bc12p-32,
};
/* erfcx_64: error 2^-54.6 */
static const double erfcx_64[23] = {
    0x1.3ba5916e9fd7fp+0,   -0x1.1df1ad154a28ep-3,  0x1.f7f5df66fc3f3p-7,   0x1.16ecefcfa54e3p-4,
    -0x1.9ddb23c3e2fc8p-4,  0x1.7fee004e0c551p-4,   -0x1.0fb06dfeb0d25p-4,  0x1.3079edf79df1dp-5,
    -0x1.0962387585b97p-6,  0x1.49c67222b3efdp-8,   -0x1.8d4aa5fbc2e2ep-11, -0x1.a1ded7cf79c8p-13,
    0x1.3be10dfde6763p-13,  -0x1.99623adc377e5p-16, -0x1.78ac91cc3b537p-17, 0x1.7f773f66d49c2p-18,
    0x1.441799a98e06bp-22,  -0x1.be00acff35398p-21, 0x1.0fe85d805a942p-24,  0x1.e33594dcc2588p-24,
    -0x1.296781f353cacp-27, -0x1.bb4844524e089p-27, -0x1.9030a759bee4ap-30,
};

/* erfc(a) = p * 2^k for 0 <= a <= 28; a_low: what a lacks, or NULL, which matters in 1 + 2 a only; square: a^2 as a
 * pair. is_rough: without the terms below the last place, for a
 * result that will be subtracted from a larger one. */
static mi_exp_parts erfc_parts(emit *e, LLVMValueRef a, LLVMValueRef a_low, mi_pair square, bool is_rough) {
    LLVMValueRef one = em_f64(e, 1), twice = em_fadd(e, a, a), four = em_fadd(e, a, em_f64(e, 4));
    mi_pair bottom = mi_sum(e, twice, one);
    if (a_low) bottom.lo = em_fadd(e, bottom.lo, em_fadd(e, a_low, a_low));
    LLVMValueRef inverse = em_fdiv(e, one, em_fmul(e, bottom.hi, four));
    LLVMValueRef q = em_mad(e, twice, em_fmul(e, bottom.hi, inverse), em_f64(e, -1)), by = em_fmul(e, four, inverse);
    if (is_rough) {
        mi_exp_parts v = mi64_exp_reduce(e, em_fneg(e, square.hi), NULL);
        v.p = em_fmul(e, v.p, em_fmul(e, mi_poly_d(e, q, erfcx_64, 23), by));
        return v;
    }
    mi_pair top, power;
    mi_exp_parts v = mi64_exp_pair(e, em_fneg(e, square.hi), em_fneg(e, square.lo), &power);
    LLVMValueRef rest = em_fmul(e, q, mi_poly_d(e, q, erfcx_64 + 1, 22));
    top = mi_pair_times(e, mi_fast_sum(e, em_f64(e, erfcx_64[0]), rest), power);
    /* y = top / bottom: one step from the approximate quotient */
    LLVMValueRef y = em_fmul(e, top.hi, by);
    mi_pair back = mi_product(e, y, bottom.hi);
    LLVMValueRef left = em_fadd(e, em_fsub(e, top.hi, back.hi), em_fsub(e, top.lo, back.lo));
    left = em_fsub(e, left, em_fmul(e, y, bottom.lo));
    v.p = em_mad(e, left, by, y);
    return v;
}

static LLVMValueRef erf_small(emit *e, LLVMValueRef x) {
    return em_mad(e, mi_poly_d(e, em_fmul(e, x, x), erf_64, 13), x, x);
}

/* |x| < 0.95: x + x P(x^2). Above: 1 - erfc; at 6 the result is 1. Error: 1.26 ULP (1.28 without fma). */
LLVMValueRef math64_erf(emit *e, LLVMValueRef x) {
    LLVMValueRef a = em_fabs(e, x), held = mi_min(e, em_f64(e, 6), a);
    mi_pair square = {.hi = em_fmul(e, held, held)};
    LLVMValueRef large = em_fsub(e, em_f64(e, 1), mi64_scale(e, erfc_parts(e, held, NULL, square, true), 0));
    LLVMValueRef use_small = em_fcmp(e, LLVMRealULT, a, em_f64(e, 0.95)); /* NaN too */
    return em_select(e, use_small, erf_small(e, x), em_copysign(e, large, x));
}

/* |x| < 1/2: 1 - erf(x). Above: as described, 2 - erfc(-x) for x < 0; at 27.3 it is 0. Error: 1.47 ULP (1.56 without
 * fma). */
LLVMValueRef math64_erfc(emit *e, LLVMValueRef x) {
    LLVMValueRef a = em_fabs(e, x), held = mi_min(e, em_f64(e, 27.3), a);
    LLVMValueRef tail = mi64_scale(e, erfc_parts(e, held, NULL, mi_product(e, held, held), false), 0);
    LLVMValueRef is_negative = em_fcmp(e, LLVMRealOLT, x, em_f64(e, 0));
    LLVMValueRef large = em_select(e, is_negative, em_fsub(e, em_f64(e, 2), tail), tail);
    LLVMValueRef small = em_fsub(e, em_f64(e, 1), erf_small(e, x));
    return em_select(e, em_fcmp(e, LLVMRealULT, a, em_f64(e, 0.5)), small, large); /* NaN too */
}

/* y 2^k where x < 0, else y; NaN for x = -inf, where the formula has infinity times 0. */
static LLVMValueRef finish_gelu(emit *e, LLVMValueRef x, LLVMValueRef is_negative, LLVMValueRef below,
                                LLVMValueRef above, mi_exp_parts v, int bias) {
    v.p = below;
    LLVMValueRef y = em_select(e, is_negative, mi64_scale(e, v, bias), above);
    return mi64_nan_where(e, em_fcmp(e, LLVMRealOEQ, x, em_f64(e, -__builtin_inf())), y);
}

/* x < 0: x Phi(x), Phi(x) = erfc(-x / sqrt 2) / 2, with x^2 / 2 as the square. Above: x - x Phi(-x), where nothing
 * cancels. At 38.7 the tail is 0. Error: 3.10 ULP (3.35 without fma). */
static LLVMValueRef gelu_erf(emit *e, LLVMValueRef x) {
    LLVMValueRef held = mi_min(e, em_f64(e, 38.7), em_fabs(e, x)), half = em_f64(e, 0.5);
    LLVMValueRef is_negative = em_fcmp(e, LLVMRealOLT, x, em_f64(e, 0));
    mi_pair square = mi_product(e, held, em_fmul(e, held, half));
    mi_pair a = mi_product(e, held, em_f64(e, SQRT_HALF_HIGH));
    a.lo = em_mad(e, held, em_f64(e, SQRT_HALF_LOW), a.lo);
    mi_exp_parts v = erfc_parts(e, a.hi, a.lo, square, false);
    LLVMValueRef tail = mi64_scale(e, v, -1), above = em_fmul(e, x, em_fsub(e, em_f64(e, 1), tail));
    return finish_gelu(e, x, is_negative, em_fmul(e, em_fneg(e, held), v.p), above, v, -1);
}

/* x / (1 + exp(-u)), u = 2 sqrt(2 / pi) (x + 0.044715 x^3), as a pair, since exp multiplies its relative error by up to
 * 745; for x < 0 x w / (1 + w), w = exp(u). At 22 the exponential is 0. Error: 3.29 ULP. */
static LLVMValueRef gelu_tanh(emit *e, LLVMValueRef x) {
    const double first = 0x1.9884533d43651p+0, first_low = -0x1.cbc0d30ebfd15p-54; /* 2 sqrt(2 / pi) */
    const double third = 0x1.2444f2a4d8b4bp-4, third_low = -0x1.6c843a29d1c7p-61;  /* that by 0.044715 */
    LLVMValueRef a = mi_min(e, em_f64(e, 22), em_fabs(e, x)), one = em_f64(e, 1);
    mi_pair u = mi_pair_times(e, mi_product(e, a, a), mi_pair_of(e, third, third_low));
    mi_pair sum = mi_sum(e, u.hi, em_f64(e, first));
    sum.lo = em_fadd(e, sum.lo, em_fadd(e, u.lo, em_f64(e, first_low)));
    u = mi_product(e, sum.hi, a);
    u.lo = em_mad(e, sum.lo, a, u.lo);
    mi_exp_parts v = mi64_exp_reduce(e, em_fneg(e, u.hi), em_fneg(e, u.lo));
    LLVMValueRef bottom = em_fadd(e, one, mi64_scale(e, v, 0));
    LLVMValueRef is_negative = em_fcmp(e, LLVMRealOLT, x, em_f64(e, 0));
    LLVMValueRef y = em_fdiv(e, em_select(e, is_negative, em_fneg(e, em_fmul(e, a, v.p)), x), bottom);
    return finish_gelu(e, x, is_negative, y, y, v, 0);
}

LLVMValueRef math64_gelu(emit *e, LLVMValueRef x) { return e->variant ? gelu_tanh(e, x) : gelu_erf(e, x); }
