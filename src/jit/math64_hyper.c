/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math64_hyper.c: hyperbolic functions and their inverses in f64. */
#include "jit/math64_impl.h"

/* sinh_64: error 2^-61.7 */
static const double sinh_64[7] = {
    0x1.5555555555556p-3,  0x1.1111111111023p-7,  0x1.a01a01a036385p-13, 0x1.71de3a3bf7332p-19,
    0x1.ae646f1b71b61p-26, 0x1.61174f999f96bp-33, 0x1.b5abf3fb300b4p-41,
};

/* tanh = t / (t + 2), t = expm1(2 |x|); at 20 it is 1. Error: 2.26 ULP. */
LLVMValueRef math64_tanh(emit *e, LLVMValueRef x) {
    LLVMValueRef a = mi_min(e, em_f64(e, 20), em_fabs(e, x)), t = mi64_expm1_held(e, em_fadd(e, a, a));
    return em_copysign(e, em_fdiv(e, t, em_fadd(e, t, em_f64(e, 2))), x);
}

/* exp(a) / 2 for a >= 0, without overflow before the function's own. */
static LLVMValueRef half_exp(emit *e, LLVMValueRef a) {
    return mi64_scale(e, mi64_exp_reduce(e, mi_min(e, em_f64(e, 712), a), NULL), -1);
}

/* |x| < 1: x + x^3 P(x^2). Above: w - 1 / (4 w), w = exp(|x|) / 2. Error: 1.58 ULP (1.62 without fma). */
LLVMValueRef math64_sinh(emit *e, LLVMValueRef x) {
    LLVMValueRef a = em_fabs(e, x), z = em_fmul(e, x, x), w = half_exp(e, a);
    LLVMValueRef small = em_mad(e, em_fmul(e, mi_poly_d(e, z, sinh_64, 7), z), x, x);
    LLVMValueRef large = em_copysign(e, em_fsub(e, w, em_fdiv(e, em_f64(e, 0.25), w)), x);
    return em_select(e, em_fcmp(e, LLVMRealULT, a, em_f64(e, 1)), small, large);
}

/* w + 1 / (4 w). Error: 1.21 ULP (1.44 without fma). */
LLVMValueRef math64_cosh(emit *e, LLVMValueRef x) {
    LLVMValueRef w = half_exp(e, em_fabs(e, x));
    return em_fadd(e, w, em_fdiv(e, em_f64(e, 0.25), w));
}

/* log1p(t), or for t above 2^60, where the square may overflow, log(t) + ln 2 of the argument itself. */
static LLVMValueRef log_of(emit *e, LLVMValueRef a, LLVMValueRef t) {
    LLVMValueRef is_big = em_fcmp(e, LLVMRealOGT, a, em_f64(e, 0x1p60));
    return mi64_log1p(e, em_select(e, is_big, a, t), em_select(e, is_big, em_f64(e, 1), em_f64(e, 0)));
}

/* log1p(a + a^2 / (1 + sqrt(1 + a^2))): every term is positive. Error: 1.63 ULP. */
LLVMValueRef math64_asinh(emit *e, LLVMValueRef x) {
    LLVMValueRef a = em_fabs(e, x), z = em_fmul(e, a, a), one = em_f64(e, 1);
    LLVMValueRef t = em_fadd(e, a, em_fdiv(e, z, em_fadd(e, one, mi_sqrt(e, em_fadd(e, one, z)))));
    LLVMValueRef y = em_copysign(e, log_of(e, a, t), x);
    return em_select(e, em_fcmp(e, LLVMRealOLT, a, em_f64(e, __builtin_inf())), y, x);
}

/* log1p(t + sqrt(2 t + t^2)), t = x - 1. Error: 2.06 ULP. */
LLVMValueRef math64_acosh(emit *e, LLVMValueRef x) {
    LLVMValueRef one = em_f64(e, 1), t = em_fsub(e, x, one);
    LLVMValueRef s = mi_sqrt(e, em_mad(e, t, t, em_fadd(e, t, t)));
    LLVMValueRef y = log_of(e, x, em_fadd(e, t, s)), inf = em_f64(e, __builtin_inf());
    y = em_select(e, em_fcmp(e, LLVMRealOEQ, x, inf), x, y);
    return mi64_nan_where(e, em_fcmp(e, LLVMRealULT, x, one), y);
}

/* log1p(2 a / (1 - a)) / 2. Error: 1.91 ULP. */
LLVMValueRef math64_atanh(emit *e, LLVMValueRef x) {
    LLVMValueRef a = em_fabs(e, x), one = em_f64(e, 1);
    LLVMValueRef t = em_fdiv(e, em_fadd(e, a, a), em_fsub(e, one, a));
    LLVMValueRef y = em_fmul(e, mi64_log1p(e, t, NULL), em_f64(e, 0.5));
    y = em_select(e, em_fcmp(e, LLVMRealOEQ, a, one), em_f64(e, __builtin_inf()), y);
    return em_copysign(e, mi64_nan_where(e, em_fcmp(e, LLVMRealUGT, a, one), y), x);
}
