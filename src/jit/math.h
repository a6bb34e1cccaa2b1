/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_MATH_H
#define JIT_MATH_H
/* Functions on f32 and f64 values of the current width (1 to 16 lanes), emitted inline, without calls: the same bits at
 * every width of one level. Straight-line code, but for sin, cos and tan, which may leave the builder in a new block. Two
 * functions a row of ops.def that is KFF and not a few instructions. Bounds against the correctly rounded result: f32, in the
 * rows; f64, 4 ULP; doc/accuracy.md has the largest errors found (tests/diff/ulp.c). Scalar attributes (alpha) come as
 * splats. Special values are those of C99 Annex F; subnormals are kept. */
#include "jit/emit.h"

/* math_exp.c */
LLVMValueRef math_exp(emit *e, LLVMValueRef x);
LLVMValueRef math_exp2(emit *e, LLVMValueRef x);
LLVMValueRef math_expm1(emit *e, LLVMValueRef x);
/* math_log.c */
LLVMValueRef math_log(emit *e, LLVMValueRef x);
LLVMValueRef math_log2(emit *e, LLVMValueRef x);
LLVMValueRef math_log10(emit *e, LLVMValueRef x);
LLVMValueRef math_log1p(emit *e, LLVMValueRef x);
/* math_trig.c */
LLVMValueRef math_sin(emit *e, LLVMValueRef x);
LLVMValueRef math_cos(emit *e, LLVMValueRef x);
LLVMValueRef math_tan(emit *e, LLVMValueRef x);
/* math_atan.c */
LLVMValueRef math_asin(emit *e, LLVMValueRef x);
LLVMValueRef math_acos(emit *e, LLVMValueRef x);
LLVMValueRef math_atan(emit *e, LLVMValueRef x);
LLVMValueRef math_atan2(emit *e, LLVMValueRef y, LLVMValueRef x);
/* math_hyper.c */
LLVMValueRef math_sinh(emit *e, LLVMValueRef x);
LLVMValueRef math_cosh(emit *e, LLVMValueRef x);
LLVMValueRef math_tanh(emit *e, LLVMValueRef x);
LLVMValueRef math_asinh(emit *e, LLVMValueRef x);
LLVMValueRef math_acosh(emit *e, LLVMValueRef x);
LLVMValueRef math_atanh(emit *e, LLVMValueRef x);
/* math_erf.c; gelu: e->variant 0 = by erf, 1 = the tanh form */
LLVMValueRef math_erf(emit *e, LLVMValueRef x);
LLVMValueRef math_erfc(emit *e, LLVMValueRef x);
LLVMValueRef math_gelu(emit *e, LLVMValueRef x);
/* math_pow.c; rsqrt: f64 too */
LLVMValueRef math_pow(emit *e, LLVMValueRef x, LLVMValueRef y);
LLVMValueRef math_cbrt(emit *e, LLVMValueRef x);
LLVMValueRef math_rsqrt(emit *e, LLVMValueRef x);
LLVMValueRef math_hypot(emit *e, LLVMValueRef x, LLVMValueRef y);
/* math_act.c */
LLVMValueRef math_elu(emit *e, LLVMValueRef x, LLVMValueRef alpha);
LLVMValueRef math_celu(emit *e, LLVMValueRef x, LLVMValueRef alpha);
LLVMValueRef math_selu(emit *e, LLVMValueRef x);
LLVMValueRef math_sigmoid(emit *e, LLVMValueRef x);
LLVMValueRef math_silu(emit *e, LLVMValueRef x);
LLVMValueRef math_softplus(emit *e, LLVMValueRef x);
LLVMValueRef math_mish(emit *e, LLVMValueRef x);
/* math_fast.c: the fast tier's version of a row of fast.def on f32 values, x as for the lowering of the row; NULL: there is
 * none, or the precise one is as fast at this level. */
LLVMValueRef math_fast(emit *e, ir_op op, LLVMValueRef *x);
/* The same for f64 values, in the math64_*.c of the same names. */
LLVMValueRef math64_exp(emit *e, LLVMValueRef x);
LLVMValueRef math64_exp2(emit *e, LLVMValueRef x);
LLVMValueRef math64_expm1(emit *e, LLVMValueRef x);
LLVMValueRef math64_log(emit *e, LLVMValueRef x);
LLVMValueRef math64_log2(emit *e, LLVMValueRef x);
LLVMValueRef math64_log10(emit *e, LLVMValueRef x);
LLVMValueRef math64_log1p(emit *e, LLVMValueRef x);
LLVMValueRef math64_sin(emit *e, LLVMValueRef x);
LLVMValueRef math64_cos(emit *e, LLVMValueRef x);
LLVMValueRef math64_tan(emit *e, LLVMValueRef x);
LLVMValueRef math64_asin(emit *e, LLVMValueRef x);
LLVMValueRef math64_acos(emit *e, LLVMValueRef x);
LLVMValueRef math64_atan(emit *e, LLVMValueRef x);
LLVMValueRef math64_atan2(emit *e, LLVMValueRef y, LLVMValueRef x);
LLVMValueRef math64_sinh(emit *e, LLVMValueRef x);
LLVMValueRef math64_cosh(emit *e, LLVMValueRef x);
LLVMValueRef math64_tanh(emit *e, LLVMValueRef x);
LLVMValueRef math64_asinh(emit *e, LLVMValueRef x);
LLVMValueRef math64_acosh(emit *e, LLVMValueRef x);
LLVMValueRef math64_atanh(emit *e, LLVMValueRef x);
LLVMValueRef math64_erf(emit *e, LLVMValueRef x);
LLVMValueRef math64_erfc(emit *e, LLVMValueRef x);
LLVMValueRef math64_gelu(emit *e, LLVMValueRef x);
LLVMValueRef math64_pow(emit *e, LLVMValueRef x, LLVMValueRef y);
LLVMValueRef math64_cbrt(emit *e, LLVMValueRef x);
LLVMValueRef math64_hypot(emit *e, LLVMValueRef x, LLVMValueRef y);
LLVMValueRef math64_elu(emit *e, LLVMValueRef x, LLVMValueRef alpha);
LLVMValueRef math64_celu(emit *e, LLVMValueRef x, LLVMValueRef alpha);
LLVMValueRef math64_selu(emit *e, LLVMValueRef x);
LLVMValueRef math64_sigmoid(emit *e, LLVMValueRef x);
LLVMValueRef math64_silu(emit *e, LLVMValueRef x);
LLVMValueRef math64_softplus(emit *e, LLVMValueRef x);
LLVMValueRef math64_mish(emit *e, LLVMValueRef x);
#endif
