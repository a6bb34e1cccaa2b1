/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_MATH64_IMPL_H
#define JIT_MATH64_IMPL_H
/* What the math64_*.c files share: values of twice the precision, and the cores of exp and log. What does not depend on
 * the type (mi_min, mi_sqrt, mi_scalef ...) is in math_impl.h. Coefficients come from scripts/minimax.py, under the
 * names they have there. */
#include "jit/math_impl.h"

/* hi + lo, where lo is what hi leaves of a sum or a product (Dekker 1971, Knuth). */
typedef struct mi_pair {
    LLVMValueRef hi, lo;
} mi_pair;
mi_pair mi_sum(emit *e, LLVMValueRef a, LLVMValueRef b);      /* exact */
mi_pair mi_fast_sum(emit *e, LLVMValueRef a, LLVMValueRef b); /* exact where |a| >= |b| or a = 0 */
mi_pair mi_product(emit *e, LLVMValueRef a, LLVMValueRef b);  /* exact, or within 2^-105 without fma */
mi_pair mi_pair_times(emit *e, mi_pair a, mi_pair b);         /* within 2^-103 */
mi_pair mi_pair_of(emit *e, double hi, double lo);

LLVMValueRef mi64_select_sign(emit *e, LLVMValueRef c, LLVMValueRef x); /* -x where c, else x */
LLVMValueRef mi64_nan_where(emit *e, LLVMValueRef c, LLVMValueRef y);

/* exp(x) = p * 2^k, as in math_impl.h: k is a double; bits are those of k + 1.5 * 2^52. */
mi_exp_parts mi64_exp_reduce(emit *e, LLVMValueRef x, LLVMValueRef low); /* of exp(x + low), |x| < 2000, or held by mi_exp_floor; low or NULL */
/* The same with p = 1 + sum of a pair: p->lo is what p.hi, which is in the result, leaves. */
mi_exp_parts mi64_exp_pair(emit *e, LLVMValueRef x, LLVMValueRef low, mi_pair *p);
mi_exp_parts mi64_exp2_reduce(emit *e, LLVMValueRef x, LLVMValueRef low);
LLVMValueRef mi64_scale(emit *e, mi_exp_parts v, int bias); /* p * 2^(k + bias), rounded once, |k + bias| < 2044 */
LLVMValueRef mi64_exp_neg(emit *e, LLVMValueRef x);         /* exp(x) for x <= 0 or NaN */
LLVMValueRef mi64_expm1_held(emit *e, LLVMValueRef x);      /* expm1(x), -40 <= x <= 710 */

LLVMValueRef mi64_log_sum(emit *e, LLVMValueRef f, LLVMValueRef c, LLVMValueRef n); /* log(1 + f + c) + n ln 2, -0.25 <=
                                                                                       f <= 0.5, c tiny or NULL */
LLVMValueRef mi64_log1p(emit *e, LLVMValueRef x, LLVMValueRef more); /* log1p(x) + more ln 2, -1 < x; more or NULL */
/* x = 2^n (1 + f), -0.25 <= f < 0.5, for x > 0 (subnormal too); other x: anything. */
typedef struct mi64_log_parts {
    LLVMValueRef f, n;
} mi64_log_parts;
mi64_log_parts mi64_log_reduce(emit *e, LLVMValueRef x);
#endif
