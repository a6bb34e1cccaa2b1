/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_MATH_H
#define JIT_MATH_H
/* Functions on f32 and f64 values of the current width (1 to 16 lanes), emitted inline, without calls: the same bits at
 * every width of one level. Straight-line code, but for sin, cos and tan, which may leave the builder in a new block.
 * Two functions a row of ops.def that is KFF and not a few instructions. Bounds against the correctly rounded result:
 * f32, in the rows; f64, 4 ULP; doc/accuracy.md has the largest errors found (tests/diff/ulp.c). Scalar attributes
 * (alpha) come as splats. Special values are those of C99 Annex F; subnormals are kept. */
#include "jit/emit.h"

/* math_<name> on f32 values (any precision above it is inside) and math64_<name> on f64 values, with as many
 * operands. */
#define MATH_1(name) LLVMValueRef math_##name(emit *e, LLVMValueRef x), math64_##name(emit *e, LLVMValueRef x)
#define MATH_2(name)                                                                                                   \
    LLVMValueRef math_##name(emit *e, LLVMValueRef x, LLVMValueRef y),                                                 \
        math64_##name(emit *e, LLVMValueRef x, LLVMValueRef y)

/* math_exp.c, math64_exp.c; so for the rest */
MATH_1(exp);
MATH_1(exp2);
MATH_1(expm1);
/* log */
MATH_1(log);
MATH_1(log2);
MATH_1(log10);
MATH_1(log1p);
/* trig */
MATH_1(sin);
MATH_1(cos);
MATH_1(tan);
/* atan; operands of atan2 as in C */
MATH_1(asin);
MATH_1(acos);
MATH_1(atan);
MATH_2(atan2);
/* hyper */
MATH_1(sinh);
MATH_1(cosh);
MATH_1(tanh);
MATH_1(asinh);
MATH_1(acosh);
MATH_1(atanh);
/* erf; gelu: e->variant 0 = by erf, 1 = the tanh form */
MATH_1(erf);
MATH_1(erfc);
MATH_1(gelu);
/* pow */
MATH_2(pow);
MATH_1(cbrt);
MATH_2(hypot);
/* f32 and f64 in one, in math_pow.c */
LLVMValueRef math_rsqrt(emit *e, LLVMValueRef x);
/* act; the second operand of elu and celu is alpha */
MATH_2(elu);
MATH_2(celu);
MATH_1(selu);
MATH_1(sigmoid);
MATH_1(silu);
MATH_1(softplus);
MATH_1(mish);
#undef MATH_1
#undef MATH_2
/* math_exp.c: 2^x on f32 values for x <= 0 or NaN, where a relative error of 2 ULP is far below what x is off by: the
 * weights of a softmax. 1 at 0, 0 at minus infinity. */
LLVMValueRef math_weight(emit *e, LLVMValueRef x);
/* math_fast.c: the fast tier's version of a row of fast.def on f32 values, x as for the lowering of the row; NULL:
 * there is none, or the precise one is as fast at this level. */
LLVMValueRef math_fast(emit *e, ir_op op, LLVMValueRef *x);
/* math_gpu.c: a GPU's version of a row on f32 values, in both tiers; NULL: there is none of its own. And a / b, rounded
 * as a division; leaves the builder in a new block. */
LLVMValueRef math_gpu(emit *e, ir_op op, LLVMValueRef *x);
bool math_gpu_has(ir_op op);
LLVMValueRef math_gpu_divide(emit *e, LLVMValueRef a, LLVMValueRef b);
#endif
