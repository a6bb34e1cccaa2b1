/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_MATH_IMPL_H
#define JIT_MATH_IMPL_H
/* What the math_*.c files share: polynomials, exponents and the cores of exp and log. Coefficients come from
 * scripts/minimax.py, under the names they have there. */
#include "jit/math.h"

/* c[0] + c[1] x + ... + c[n-1] x^(n-1), by Horner's rule: throughput counts, and other elements fill the latency. */
LLVMValueRef mi_poly(emit *e, LLVMValueRef x, const float *c, int n);
LLVMValueRef mi_poly_d(emit *e, LLVMValueRef x, const double *c, int n); /* the same on f64 values */

/* math_hyper.c, math_erf.c: of tanh and erf near 0, and of the logarithm of 1 - erf above. */
extern const float mi_tanh_p[5], mi_erf_p[7], mi_erf_q[9];

bool mi_is_f64(const emit *e, LLVMValueRef x); /* are its elements f64 (else f32) */
LLVMValueRef mi_to_f64(emit *e, LLVMValueRef x);
LLVMValueRef mi_to_f32(emit *e, LLVMValueRef x);
LLVMValueRef mi_bits_d(emit *e, LLVMValueRef x); /* f64 -> i64 */
LLVMValueRef mi_of_bits_d(emit *e, LLVMValueRef x);
LLVMValueRef mi_i64(emit *e, int64_t v);                      /* splat */
LLVMValueRef mi_min(emit *e, LLVMValueRef c, LLVMValueRef x); /* c where c < x, else x: a NaN x stays. One minps */
LLVMValueRef mi_max(emit *e, LLVMValueRef c, LLVMValueRef x);
LLVMValueRef mi_sqrt(emit *e, LLVMValueRef x);
LLVMValueRef mi_flip_sign(emit *e, LLVMValueRef x,
                          LLVMValueRef bits); /* x with its sign bit xor-ed by that of bits (i32) */
LLVMValueRef mi_is_inf(emit *e, LLVMValueRef magnitude);
LLVMValueRef mi_not(emit *e, LLVMValueRef c);

/* f32 and f64. AVX-512's instructions on exponents do in one step, subnormals and infinities included, what takes five
 * to ten. */
bool mi_has_exponents(const emit *e);
/* x * 2^floor(k); some: 0 in other lanes (NULL: all) */
LLVMValueRef mi_scalef(emit *e, LLVMValueRef x, LLVMValueRef k, LLVMValueRef some);
LLVMValueRef mi_getexp(emit *e, LLVMValueRef x);                 /* floor(log2 |x|) */
LLVMValueRef mi_getmant(emit *e, LLVMValueRef x);                /* x / 2^n in [0.75, 1.5); NaN below 0 */

/* math_pieces.c: where the level has AVX-512 (of gelu: AVX2), at any width. Of a >= 0 or NaN: tanh(a) and erf(a) within
 * 2 ULP; the upper tail of the normal distribution, or what the tanh form of gelu has for it, within 4e-8 / a, 0 above
 * 7.625 (6.5). */
bool mi_has_pieces(const emit *e);
bool mi_has_gelu_pieces(const emit *e);
LLVMValueRef mi_tanh_pieces(emit *e, LLVMValueRef a);
LLVMValueRef mi_erf_pieces(emit *e, LLVMValueRef a);
LLVMValueRef mi_gelu_tail_pieces(emit *e, LLVMValueRef a, bool is_tanh);

/* exp(x) = p * 2^k. k is a float; bits are those of k + added + 1.5 * 2^23, whose low part is k + added as an integer. */
typedef struct mi_exp_parts {
    LLVMValueRef p, k, bits, some; /* some: the others are 0, and the rest is garbage there (NULL: all) */
    int added;
} mi_exp_parts;
/* x held from below for exp or exp2, which is 0 from `least` on: at `zero` (one lane at v4: far below), or by the lanes
 * that are not in *some. A
 * result that is tiny before it is rounded takes a microcode assist of Intel's cores, 30 to 60 times as long for the
 * whole vector; but one that is not computed, or a product below 2^-160 (f64: 2^-1085), none. */
LLVMValueRef mi_exp_held(emit *e, LLVMValueRef x, double least, double zero, LLVMValueRef *some);
/* The same for what is made of x beside its exponential: in all lanes, an instruction more where scalef scales. */
LLVMValueRef mi_exp_floor(emit *e, LLVMValueRef x, double least, double zero);
/* of exp(x + low), |x| < 190, or where mi_exp_held has held it; low: tiny or NULL. below: x < 44, by fewer instructions where there is no vscalef. */
mi_exp_parts mi_exp_reduce(emit *e, LLVMValueRef x, LLVMValueRef low);
mi_exp_parts mi_exp_reduce_below(emit *e, LLVMValueRef x, LLVMValueRef low);
mi_exp_parts mi_exp2_reduce(emit *e, LLVMValueRef x);     /* of 2^x */
LLVMValueRef mi_scale(emit *e, mi_exp_parts v, int bias); /* p * 2^(k + bias), rounded once, -254 < k + bias < 254 */
LLVMValueRef mi_scale_normal(emit *e,
                             mi_exp_parts v);       /* the same, where the result is known to be normal; no NaN kept */
LLVMValueRef mi_exp_neg(emit *e, LLVMValueRef x);   /* exp(x) for x <= 0 or NaN */
LLVMValueRef mi_expm1_neg(emit *e, LLVMValueRef x); /* expm1(x); right for x <= 0 or NaN, garbage else */
LLVMValueRef mi_exp2_d(emit *e, LLVMValueRef x);    /* 2^x in f64, |x| <= 1000, within 2^-39 */

/* x = (1 + f) 2^n; is_balanced: m in [sqrt(1/2), sqrt(2)), else in [0.75, 1.5) */
typedef struct mi_log_parts {
    LLVMValueRef f, n;
} mi_log_parts;
mi_log_parts mi_log_reduce(emit *e, LLVMValueRef x, bool is_balanced);
LLVMValueRef mi_log_limits(emit *e, LLVMValueRef x, LLVMValueRef y); /* y, or log x where x is 0, infinite, < 0, NaN */
LLVMValueRef mi_log_specials(emit *e, LLVMValueRef x,
                             LLVMValueRef y); /* the same of mi_log_reduce's y: AVX-512 needs nothing */
LLVMValueRef mi_log_with_d(emit *e, LLVMValueRef x, const double *c,
                           int n); /* log(x) in f64, x normal > 0; c: mi_log_terms, or fewer */
/* y log2 |x| in f64 with a polynomial for the logarithm, infinite or 0 where that is the limit; and r = 2^that with its
 * sign, NaN and 1 where C99 Annex F has them. */
LLVMValueRef mi_pow_exponent(emit *e, LLVMValueRef x, LLVMValueRef y, const double *c, int n);
LLVMValueRef mi_pow_specials(emit *e, LLVMValueRef x, LLVMValueRef y, LLVMValueRef r);
LLVMValueRef mi_log1p_poly(emit *e, LLVMValueRef f); /* log(1 + f), -0.25 <= f <= 0.5 */
extern const double mi_log_terms[14];                /* good to 2^-38 */
/* log(1 + x + low), |low| below an ULP of x, or NULL. Levels with fma. The sign of a zero x is lost. */
LLVMValueRef mi_log1p_pair(emit *e, LLVMValueRef x, LLVMValueRef low);
LLVMValueRef mi_log1p_d(emit *e, LLVMValueRef x); /* log(1 + x) in f64, -1 < x < 2^1000, within 2^-37 */
#endif
