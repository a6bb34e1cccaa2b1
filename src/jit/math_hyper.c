/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math_hyper.c: hyperbolic functions and their inverses. */
#include "jit/math_impl.h"

#define LOG2E         1.44269504088896340736
#define HALF_LN2_HIGH 0x1.62e4p-2 /* 15 bits: k * high is exact */
#define HALF_LN2_LOW  0x1.7f7d1cf79abcap-21
#define MAGIC         0x1.8p23

/* tanh_p: error 2^-29.7 */
const float mi_tanh_p[5] = {
    -0x1.55554ap-2f, 0x1.110cf2p-3f, -0x1.b91fdcp-5f, 0x1.58f5cp-6f, -0x1.999c72p-8f,
};
/* exp2x_p: error 2^-28.2 */
static const float exp2x_p[6] = {
    0x1p+1f, 0x1.fffffcp+0f, 0x1.555492p+0f, 0x1.5558b6p-1f, 0x1.1239a8p-2f, 0x1.6a474cp-4f,
};
/* sinh_p: error 2^-31.6 */
static const float sinh_p[4] = {
    0x1.555556p-3f,
    0x1.1110ep-7f,
    0x1.a022bap-13f,
    0x1.756caap-19f,
};

/* tanh: pieces where the level has them. Else, |x| < 0.55: x + x^3 P(x^2). Above: 1 - 2 / (w + 1), w = exp(2 |x|)
 * reduced by ln(2) / 2; at 10 the result is 1. Error: 0.99 ULP (v3 1.55, without fma 1.48). */
LLVMValueRef math_tanh(emit *e, LLVMValueRef x) {
    LLVMValueRef a = em_fabs(e, x), one = em_f32(e, 1);
    if (mi_has_pieces(e)) return em_copysign(e, mi_tanh_pieces(e, a), x);
    LLVMValueRef held = mi_min(e, em_f32(e, 10), a);
    LLVMValueRef t = em_mad(e, held, em_f32(e, 2 * LOG2E), em_f32(e, MAGIC));
    mi_exp_parts v = {.bits = em_bits_of_f32(e, t), .k = em_fsub(e, t, em_f32(e, MAGIC))};
    LLVMValueRef r = em_mad(e, v.k, em_f32(e, -HALF_LN2_LOW), em_mad(e, v.k, em_f32(e, -HALF_LN2_HIGH), held));
    v.p = em_mad(e, mi_poly(e, r, exp2x_p, 6), r, one);
    LLVMValueRef w = em_fadd(e, mi_scale_normal(e, v), one);
    LLVMValueRef large = em_fsub(e, one, em_fdiv(e, em_f32(e, 2), w)), z = em_fmul(e, x, x);
    LLVMValueRef small = em_mad(e, em_fmul(e, mi_poly(e, z, mi_tanh_p, 5), z), a, a);
    LLVMValueRef y = em_select(e, em_fcmp(e, LLVMRealULT, a, em_f32(e, 0.55)), small, large); /* NaN: small */
    return em_copysign(e, y, x);
}

/* exp(a) / 2 for a >= 0, without overflow before the function's own. */
static LLVMValueRef half_exp(emit *e, LLVMValueRef a) {
    return mi_scale(e, mi_exp_reduce(e, mi_min(e, em_f32(e, 90), a), NULL), -1);
}

/* sinh: |x| < 1: x + x^3 P(x^2). Above: w - 1 / (4 w), w = exp(|x|) / 2. Error: 1.59 ULP (1.64 without fma). */
LLVMValueRef math_sinh(emit *e, LLVMValueRef x) {
    LLVMValueRef a = em_fabs(e, x), z = em_fmul(e, x, x), w = half_exp(e, a);
    LLVMValueRef small = em_mad(e, em_fmul(e, mi_poly(e, z, sinh_p, 4), z), x, x);
    LLVMValueRef large = em_copysign(e, em_fsub(e, w, em_fdiv(e, em_f32(e, 0.25), w)), x);
    return em_select(e, em_fcmp(e, LLVMRealULT, a, em_f32(e, 1)), small, large);
}

/* cosh: w + 1 / (4 w). Error: 1.32 ULP (1.56 without fma). */
LLVMValueRef math_cosh(emit *e, LLVMValueRef x) {
    LLVMValueRef w = half_exp(e, em_fabs(e, x));
    return em_fadd(e, w, em_fdiv(e, em_f32(e, 0.25), w));
}

/* ---- inverses: log1p of a sum, in f64 or, with fma, in pairs of f32 that keep what the sum rounds off ---- */
#define LN2 0.693147180559945309417
#define BIG 0x1p30f /* from here on w is 2 x, whose logarithm is that of x and ln 2 */

static LLVMValueRef asinh_wide(emit *e, LLVMValueRef x) {
    LLVMValueRef a = mi_to_f64(e, em_fabs(e, x)), z = em_fmul(e, a, a), one = em_f64(e, 1);
    LLVMValueRef y = em_fdiv(e, z, em_fadd(e, one, mi_sqrt(e, em_fadd(e, one, z))));
    y = em_copysign(e, mi_to_f32(e, mi_log1p_d(e, em_fadd(e, a, y))), x);
    LLVMValueRef is_finite = em_fcmp(e, LLVMRealOLT, em_fabs(e, x), em_f32(e, __builtin_inf()));
    return em_select(e, is_finite, y, x);
}

/* log1p(a + q), q = a^2 / (1 + sqrt(1 + a^2)): every term is positive, and where the error of q counts it is a small
 * part of the sum. Error: 1.55 ULP (0.51 without fma). */
LLVMValueRef math_asinh(emit *e, LLVMValueRef x) {
    if (!e->level->has_fma) return asinh_wide(e, x);
    LLVMValueRef a = em_fabs(e, x), one = em_f32(e, 1), zero = em_f32(e, 0), z = em_fmul(e, a, a);
    LLVMValueRef is_big = em_fcmp(e, LLVMRealOGT, a, em_f32(e, BIG));
    LLVMValueRef q = em_fdiv(e, z, em_fadd(e, one, mi_sqrt(e, em_mad(e, a, a, one))));
    q = em_select(e, is_big, zero, q);
    LLVMValueRef w = em_fadd(e, a, q), low = em_select(e, is_big, zero, em_fsub(e, q, em_fsub(e, w, a)));
    LLVMValueRef y = em_fadd(e, mi_log1p_pair(e, w, low), em_select(e, is_big, em_f32(e, LN2), zero));
    return em_copysign(e, y, x);
}

static LLVMValueRef acosh_wide(emit *e, LLVMValueRef x) {
    LLVMValueRef t = em_fsub(e, mi_to_f64(e, x), em_f64(e, 1));
    LLVMValueRef s = mi_sqrt(e, em_mad(e, t, t, em_fadd(e, t, t)));
    LLVMValueRef y = mi_to_f32(e, mi_log1p_d(e, em_fadd(e, t, s)));
    y = em_select(e, mi_is_inf(e, x), x, y);
    return em_select(e, em_fcmp(e, LLVMRealULT, x, em_f32(e, 1)), em_f32(e, __builtin_nan("")), y);
}

/* log1p(t + s), s = sqrt(2 t + t^2), t = x - 1 exactly below 2^24. The root is corrected by a step of Newton's, with
 * what the two terms under it rounded off; the divisor is held above 0, so that the step adds 0 to a root of 0.
 * Error: 1.25 ULP (0.51 without fma). */
LLVMValueRef math_acosh(emit *e, LLVMValueRef x) {
    if (!e->level->has_fma) return acosh_wide(e, x);
    LLVMValueRef one = em_f32(e, 1), zero = em_f32(e, 0), t = em_fsub(e, x, one), twice = em_fadd(e, t, t);
    LLVMValueRef is_big = em_fcmp(e, LLVMRealOGT, x, em_f32(e, BIG));
    LLVMValueRef under = em_mad(e, t, t, twice), s = mi_sqrt(e, under);
    LLVMValueRef rest = em_mad(e, t, t, em_fsub(e, twice, under));
    rest = em_fadd(e, em_mad(e, s, em_fneg(e, s), under), rest);
    LLVMValueRef step = em_fmul(e, rest, em_fdiv(e, em_f32(e, 0.5), mi_max(e, em_f32(e, 0x1p-40), s)));
    LLVMValueRef w = em_fadd(e, t, s), low = em_fadd(e, em_fsub(e, t, em_fsub(e, w, s)), step);
    w = em_select(e, is_big, x, w);
    low = em_select(e, is_big, zero, low);
    LLVMValueRef y = em_fadd(e, mi_log1p_pair(e, w, low), em_select(e, is_big, em_f32(e, LN2), zero));
    return em_select(e, em_fcmp(e, LLVMRealULT, x, one), em_f32(e, __builtin_nan("")), y);
}

static LLVMValueRef atanh_wide(emit *e, LLVMValueRef a) {
    a = mi_to_f64(e, a);
    LLVMValueRef t = em_fdiv(e, em_fadd(e, a, a), em_fsub(e, em_f64(e, 1), a));
    return mi_to_f32(e, em_fmul(e, mi_log1p_d(e, t), em_f64(e, 0.5)));
}

/* log1p(t) / 2, t = 2 a / (1 - a) in two parts: what 1 - a and the quotient round off comes out of the remainder.
 * Error: 1.48 ULP (0.51 without fma). */
static LLVMValueRef atanh_pair(emit *e, LLVMValueRef a) {
    LLVMValueRef one = em_f32(e, 1), v = em_fsub(e, one, a), v_low = em_fsub(e, em_fsub(e, one, v), a);
    LLVMValueRef r = em_fdiv(e, one, v), twice = em_fadd(e, a, a), t = em_fmul(e, twice, r), minus = em_fneg(e, t);
    LLVMValueRef rest = em_mad(e, minus, v_low, em_mad(e, minus, v, twice));
    return em_fmul(e, mi_log1p_pair(e, t, em_fmul(e, rest, r)), em_f32(e, 0.5));
}

LLVMValueRef math_atanh(emit *e, LLVMValueRef x) {
    LLVMValueRef a = em_fabs(e, x), one = em_f32(e, 1), y = e->level->has_fma ? atanh_pair(e, a) : atanh_wide(e, a);
    y = em_select(e, em_fcmp(e, LLVMRealOEQ, a, one), em_f32(e, __builtin_inf()), y);
    y = em_select(e, em_fcmp(e, LLVMRealUGT, a, one), em_f32(e, __builtin_nan("")), y);
    return em_copysign(e, y, x);
}
