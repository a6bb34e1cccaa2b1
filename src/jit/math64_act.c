/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math64_act.c: activations in f64, in the forms of math_act.c. Where a factor exp(x) makes the result subnormal, its
 * power of two comes last, so that there too only one rounding is left: no absolute bound is needed. */
#include "jit/math64_impl.h"

/* x exp(x) is 0 below -760. */
static LLVMValueRef held_below(emit *e, LLVMValueRef x) { return mi_exp_floor(e, x, -760, -1000); }

static LLVMValueRef is_negative(emit *e, LLVMValueRef x) { return em_fcmp(e, LLVMRealOLT, x, em_f64(e, 0)); }

/* exp(-|x|) in parts. */
static mi_exp_parts exp_minus_abs(emit *e, LLVMValueRef x) {
    LLVMValueRef a = held_below(e, em_fneg(e, em_fabs(e, x)));
    return mi64_exp_reduce(e, a, NULL);
}

/* y * 2^k where c, else y; NaN for x = -inf, where the formula has infinity times 0. */
static LLVMValueRef scale_where(emit *e, LLVMValueRef c, LLVMValueRef x, LLVMValueRef y, mi_exp_parts v) {
    LLVMValueRef is_low = em_fcmp(e, LLVMRealOEQ, x, em_f64(e, -__builtin_inf()));
    v.p = y;
    if (c) y = em_select(e, c, mi64_scale(e, v, 0), y);
    else y = mi64_scale(e, v, 0);
    return mi64_nan_where(e, is_low, y);
}

/* 1 - w / (1 + w), or w - w^2 / (1 + w): see math_act.c. Error: 1.63 ULP. */
LLVMValueRef math64_sigmoid(emit *e, LLVMValueRef x) {
    LLVMValueRef w = mi64_scale(e, exp_minus_abs(e, x), 0), one = em_f64(e, 1);
    LLVMValueRef b = em_select(e, is_negative(e, x), w, one);
    return em_fsub(e, b, em_fdiv(e, em_fmul(e, b, w), em_fadd(e, one, w)));
}

/* Error: 2.77 ULP (2.85 without fma). */
LLVMValueRef math64_silu(emit *e, LLVMValueRef x) {
    mi_exp_parts v = exp_minus_abs(e, x);
    LLVMValueRef held = held_below(e, x);
    LLVMValueRef w = mi64_scale(e, v, 0), one = em_f64(e, 1), below = is_negative(e, x);
    LLVMValueRef y = em_fdiv(e, em_fmul(e, held, em_select(e, below, v.p, one)), em_fadd(e, one, w));
    return scale_where(e, below, x, y, v);
}

/* max(x, 0) + log1p(w): above 1/2, log1p(w) = ln 2 + log1p((w - 1) / 2), exactly. Error: 1.33 ULP (1.58 without fma).
 */
LLVMValueRef math64_softplus(emit *e, LLVMValueRef x) {
    LLVMValueRef w = mi64_scale(e, exp_minus_abs(e, x), 0), zero = em_f64(e, 0), half = em_f64(e, 0.5);
    LLVMValueRef is_above = em_fcmp(e, LLVMRealOGT, w, half);
    LLVMValueRef f = em_select(e, is_above, em_fmul(e, em_fsub(e, w, em_f64(e, 1)), half), w);
    LLVMValueRef y = mi64_log_sum(e, f, NULL, em_select(e, is_above, em_f64(e, 1), zero));
    return em_fadd(e, em_select(e, em_fcmp(e, LLVMRealUGT, x, zero), x, zero), y);
}

/* x n / (n + 2), n = w (w + 2), w = p 2^k: the k of the upper w comes last. Above 20 it is x. Error: 3.01 ULP. */
LLVMValueRef math64_mish(emit *e, LLVMValueRef x) {
    LLVMValueRef two = em_f64(e, 2), held = held_below(e, mi_min(e, em_f64(e, 20), x));
    mi_exp_parts v = mi64_exp_reduce(e, held, NULL);
    LLVMValueRef w = mi64_scale(e, v, 0), more = em_fadd(e, w, two);
    LLVMValueRef y = em_fmul(e, em_fmul(e, held, v.p), em_fdiv(e, more, em_mad(e, w, more, two)));
    y = scale_where(e, NULL, x, y, v);
    return em_select(e, em_fcmp(e, LLVMRealOGT, x, em_f64(e, 20)), x, y);
}

/* elu, celu, selu: alpha times expm1 for x < 0. Error: 1.9 ULP. */
static LLVMValueRef expm1_below(emit *e, LLVMValueRef x) { return mi64_expm1_held(e, mi_max(e, em_f64(e, -40), x)); }

LLVMValueRef math64_elu(emit *e, LLVMValueRef x, LLVMValueRef alpha) {
    LLVMValueRef held = mi_min(e, em_f64(e, 0), x); /* what is above is not used */
    return em_select(e, is_negative(e, x), em_fmul(e, alpha, expm1_below(e, held)), x);
}

LLVMValueRef math64_celu(emit *e, LLVMValueRef x, LLVMValueRef alpha) {
    return em_select(e, is_negative(e, x), em_fmul(e, alpha, math64_expm1(e, em_fdiv(e, x, alpha))), x);
}

LLVMValueRef math64_selu(emit *e, LLVMValueRef x) {
    const double scale = 1.0507009873554804934193349852946, alpha = 1.6732632423543772848170429916717;
    LLVMValueRef below = em_fmul(e, em_f64(e, scale * alpha), expm1_below(e, mi_min(e, em_f64(e, 0), x)));
    return em_select(e, is_negative(e, x), below, em_fmul(e, em_f64(e, scale), x));
}
