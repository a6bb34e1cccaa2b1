/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math_erf.c: error functions and gelu. */
#include "jit/math_impl.h"

#define LOG2E 1.44269504088896340736

/* erf_p: error 2^-30.0 */
const float mi_erf_p[7] = {
    0x1.06eba8p-3f, -0x1.81274p-2f, 0x1.ce2d64p-4f, -0x1.b80124p-6f, 0x1.544b08p-8f, -0x1.a61812p-11f, 0x1.4fa938p-14f,
};
/* erf_q: error 2^-34.1 */
const float mi_erf_q[9] = {
    0x1.d019ccp-13f, -0x1.a11ec4p+0f, -0x1.d408e8p-1f,  -0x1.3ed31p-3f,  0x1.254298p-5f,
    -0x1.7b8194p-8f, 0x1.2330f4p-11f, -0x1.2b70fep-16f, -0x1.fe70ap-21f,
};
/* gelu_p: error 2^-25.0 */
static const float gelu_p[12] = {
    0x1.5845dcp-2f,  0x1.535baep-2f, 0x1.d7d688p-5f, -0x1.2ccaecp-3f, -0x1.fbed0ap-9f, 0x1.b8cfaap-4f,
    -0x1.f01aacp-5f, -0x1.ab87ap-5f, 0x1.811f28p-4f, -0x1.d8bc8ep-6f, -0x1.64ce18p-5f, 0x1.2e9e3p-5f,
};
/* erfcx_d: error 2^-38.2 */
static const double erfcx_d[14] = {
    0x1.ce2f34dee8064p-3, 0x1.ce2bfffa059adp-3,  0x1.a96eca34a0bd6p-3,  0x1.5cde7a00ca0fp-3,  0x1.0a0b0cb98f49ep-3,
    0x1.b10bc154ba9ddp-6, 0x1.494037b4147e8p-3,  -0x1.866c3e345d572p-2, 0x1.53c79595ac378p-1, -0x1.dd2094f15ec9fp-1,
    0x1.a8d269011e21bp-1, -0x1.c152c977afc9bp-2, 0x1.068bc26c9c3cfp-3,  -0x1.08447a86feeap-6,
};

/* erf: pieces where the level has them. Else, |x| < 0.95: x + x P(x^2). Above: 1 - 2^Q(|x|), Q a polynomial for
 * log2(erfc); at 4 the result is 1. Error: 1.43 ULP (v3 1.15, without fma 1.37). */
LLVMValueRef math_erf(emit *e, LLVMValueRef x) {
    LLVMValueRef a = em_fabs(e, x), z = em_fmul(e, x, x);
    if (mi_has_pieces(e)) return em_copysign(e, mi_erf_pieces(e, a), x);
    LLVMValueRef small = em_mad(e, mi_poly(e, z, mi_erf_p, 7), x, x);
    LLVMValueRef q = mi_poly(e, mi_min(e, em_f32(e, 4), a), mi_erf_q, 9);
    LLVMValueRef large = em_fsub(e, em_f32(e, 1), mi_scale_normal(e, mi_exp2_reduce(e, q)));
    LLVMValueRef use_small = em_fcmp(e, LLVMRealULT, a, em_f32(e, 0.95)); /* NaN too */
    return em_select(e, use_small, small, em_copysign(e, large, x));
}

/* erfc, in f64 since the square in exp(-x^2) multiplies errors by up to 100: erfc(a) = exp(-a^2) t P(t), t = 1 / (1 +
 * 0.4 a), a = |x|; erfc(-a) = 2 - erfc(a). At 10.2 the result is 0. Error: 0.51 ULP. */
LLVMValueRef math_erfc(emit *e, LLVMValueRef x) {
    LLVMValueRef a = mi_to_f64(e, mi_min(e, em_f32(e, 10.2), em_fabs(e, x))), one = em_f64(e, 1);
    LLVMValueRef t = em_fdiv(e, one, em_mad(e, a, em_f64(e, 0.4), one));
    LLVMValueRef r = em_fmul(e, t, mi_poly_d(e, t, erfcx_d, 14));
    r = em_fmul(e, r, mi_exp2_d(e, em_fmul(e, em_fmul(e, a, a), em_f64(e, -LOG2E))));
    LLVMValueRef is_negative = em_fcmp(e, LLVMRealOLT, x, em_f32(e, 0));
    return mi_to_f32(e, em_select(e, is_negative, em_fsub(e, em_f64(e, 2), r), r));
}

/* x times the tail of |x| or what is left of 1: a subtraction in some lanes. */
static LLVMValueRef gelu_of_tail(emit *e, LLVMValueRef x, LLVMValueRef tail) {
    LLVMValueRef rest = em_fsub(e, em_f32(e, 1), tail), is_below = em_fcmp(e, LLVMRealOLT, x, em_f32(e, 0));
    return em_fmul(e, x, em_select(e, is_below, tail, rest));
}

/* The same without masks, of a tail that is 0 from 8 on: the positive part of x less |x| times the tail. (Infinity less
 * infinity times 0 would be NaN.) */
static LLVMValueRef gelu_without_masks(emit *e, LLVMValueRef x) {
    LLVMValueRef a = em_fabs(e, mi_min(e, em_f32(e, 8), x)), tail = mi_gelu_tail_pieces(e, a, e->variant);
    return em_mad(e, em_fneg(e, a), tail, mi_max(e, em_f32(e, -0.0), x));
}

/* gelu: 4 ULP, or 4e-8 absolute: x Phi(x). Where the level has pieces (math_gelu), by those of the tail Phi(-a).
 * Here Phi(-a) = exp(-a^2/2) t P(t - 1/2), t = 1 / (1 + a / 2), and Phi(a) = 1 - Phi(-a): nothing cancels on either
 * side. The square is made exact in two parts, from the upper 12 bits of a. At 14.6 Phi(-a) is 0. */
static LLVMValueRef gelu_erf(emit *e, LLVMValueRef x) {
    LLVMValueRef a = mi_min(e, em_f32(e, 14.6), em_fabs(e, x)), one = em_f32(e, 1);
    LLVMValueRef top = em_f32_of_bits(e, em_and(e, em_bits_of_f32(e, a), em_i32(e, (int32_t)0xfffff000u)));
    LLVMValueRef high = em_fmul(e, em_fmul(e, top, top), em_f32(e, -0.5));
    LLVMValueRef low = em_fmul(e, em_fmul(e, em_fsub(e, a, top), em_fadd(e, a, top)), em_f32(e, -0.5));
    LLVMValueRef t = em_fdiv(e, one, em_mad(e, a, em_f32(e, 0.5), one));
    LLVMValueRef r = em_fmul(e, t, mi_poly(e, em_fsub(e, t, em_f32(e, 0.5)), gelu_p, 12));
    mi_exp_parts v = mi_exp_reduce_below(e, high, low);
    v.p = em_fmul(e, v.p, r);
    return gelu_of_tail(e, x, mi_scale(e, v, 0));
}

/* x / 2 (1 + tanh u) = x / (1 + exp(-2u)); for x < 0 x w / (1 + w) with w = exp(2u), which cannot overflow. */
static LLVMValueRef gelu_tanh(emit *e, LLVMValueRef x) {
    const double c = 2 * 0.79788456080286535588; /* 2 sqrt(2 / pi) */
    LLVMValueRef q = em_mad(e, em_fmul(e, x, x), em_f32(e, -c * 0.044715), em_f32(e, -c));
    LLVMValueRef w = mi_exp_neg(e, em_fmul(e, em_fabs(e, x), q)), one = em_f32(e, 1);
    LLVMValueRef is_negative = em_fcmp(e, LLVMRealOLT, x, em_f32(e, 0));
    return em_fdiv(e, em_fmul(e, x, em_select(e, is_negative, w, one)), em_fadd(e, one, w));
}

LLVMValueRef math_gelu(emit *e, LLVMValueRef x) {
    if (mi_has_pieces(e)) return gelu_of_tail(e, x, mi_gelu_tail_pieces(e, em_fabs(e, x), e->variant));
    if (mi_has_gelu_pieces(e)) return gelu_without_masks(e, x);
    return e->variant ? gelu_tanh(e, x) : gelu_erf(e, x);
}
