/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math_act.c: activations made of exp and log, in forms without cancellation and without overflow on the way. */
#include "jit/math_impl.h"

static LLVMValueRef is_negative(emit *e, LLVMValueRef x) { return em_fcmp(e, LLVMRealOLT, x, em_f32(e, 0)); }
static LLVMValueRef exp_minus_abs(emit *e, LLVMValueRef x) { return mi_exp_neg(e, em_fneg(e, em_fabs(e, x))); }

/* sigmoid: with w = exp(-|x|) <= 1, 1 - w / (1 + w), or w - w^2 / (1 + w) for x < 0: the quotient's error counts little
 * in either, and subnormal results come out. Error: 1.88 ULP (every float). Without fma exp is worse by a quarter of an
 * ULP, which is made up for by doing the rest in f64. */
LLVMValueRef math_sigmoid(emit *e, LLVMValueRef x) {
    LLVMValueRef w = exp_minus_abs(e, x), one = em_f32(e, 1), b = em_select(e, is_negative(e, x), w, one);
    if (!e->level->has_fma) {
        LLVMTypeRef wide = em_vec(e, e->t_f64), narrow = em_vec(e, e->t_f32);
        w = LLVMBuildFPExt(e->b, w, wide, "");
        b = LLVMBuildFPExt(e->b, b, wide, "");
        return LLVMBuildFPTrunc(e->b, em_fdiv(e, b, em_fadd(e, em_f64(e, 1), w)), narrow, "");
    }
    return em_fsub(e, b, em_fdiv(e, em_fmul(e, b, w), em_fadd(e, one, w)));
}

/* silu: x / (1 + w), or x w / (1 + w) for x < 0. Error: 4 ULP; near the subnormal range the absolute bound holds. */
LLVMValueRef math_silu(emit *e, LLVMValueRef x) {
    LLVMValueRef w = exp_minus_abs(e, x), one = em_f32(e, 1);
    LLVMValueRef top = em_fmul(e, x, em_select(e, is_negative(e, x), w, one));
    return em_fdiv(e, top, em_fadd(e, one, w));
}

/* softplus: max(x, 0) + log1p(w), w = exp(-|x|) in (0, 1]: above 0.5, log1p(w) = ln 2 + log1p((w - 1) / 2), and (w - 1)
 * / 2 is exact. Error: 1.59 ULP (1.74 without fma). */
LLVMValueRef math_softplus(emit *e, LLVMValueRef x) {
    LLVMValueRef w = exp_minus_abs(e, x), zero = em_f32(e, 0), half = em_f32(e, 0.5);
    LLVMValueRef is_above = em_fcmp(e, LLVMRealOGT, w, half);
    LLVMValueRef f = em_select(e, is_above, em_fmul(e, em_fsub(e, w, em_f32(e, 1)), half), w);
    LLVMValueRef ln2 = em_select(e, is_above, em_f32(e, 0.693147180559945309417), zero);
    LLVMValueRef y = em_fadd(e, mi_log1p_poly(e, f), ln2);
    return em_fadd(e, em_select(e, em_fcmp(e, LLVMRealUGT, x, zero), x, zero), y);
}

/* mish: tanh(log(1 + w)) = n / (n + 2), n = w (w + 2), w = exp(x); 1 above 20. Error: 4 ULP; near the subnormal range
 * the absolute bound holds. */
LLVMValueRef math_mish(emit *e, LLVMValueRef x) {
    LLVMValueRef two = em_f32(e, 2), held = mi_exp_floor(e, mi_min(e, em_f32(e, 20), x), -104, -130);
    LLVMValueRef w = mi_scale(e, mi_exp_reduce_below(e, held, NULL), 0);
    LLVMValueRef n = em_fmul(e, w, em_fadd(e, w, two));
    LLVMValueRef y = em_fdiv(e, em_fmul(e, x, n), em_fadd(e, n, two));
    return em_select(e, em_fcmp(e, LLVMRealOGT, x, em_f32(e, 20)), x, y);
}

/* elu, celu, selu: alpha times expm1 for x < 0. Error: 0.88 ULP (0.85 without fma). */
LLVMValueRef math_elu(emit *e, LLVMValueRef x, LLVMValueRef alpha) {
    return em_select(e, is_negative(e, x), em_fmul(e, alpha, mi_expm1_neg(e, x)), x);
}

/* A negative alpha makes the argument positive: the full function. */
LLVMValueRef math_celu(emit *e, LLVMValueRef x, LLVMValueRef alpha) {
    return em_select(e, is_negative(e, x), em_fmul(e, alpha, math_expm1(e, em_fdiv(e, x, alpha))), x);
}

LLVMValueRef math_selu(emit *e, LLVMValueRef x) {
    const double scale = 1.0507009873554804934193349852946, alpha = 1.6732632423543772848170429916717;
    LLVMValueRef below = em_fmul(e, em_f32(e, scale * alpha), mi_expm1_neg(e, x));
    return em_select(e, is_negative(e, x), below, em_fmul(e, em_f32(e, scale), x));
}
