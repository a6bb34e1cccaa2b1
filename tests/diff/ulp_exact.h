/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef DIFF_ULP_EXACT_H
#define DIFF_ULP_EXACT_H
/* The judge of ulp.c: what an approximated f32 row of ops.def should have returned, by MPFR with 160 bits. The formulas
 * are written here, not taken from the row. */
#include "ir/op.h"

/* Whether the build has MPFR and there is a formula for the row. */
bool exact_has(ir_op op, int variant);
/* The exact value for these operands; attr: the row's float attributes. exact_error() is about the last one set. */
void exact_set(ir_op op, int variant, const double *attr, float x, float y);
/* Error of got in ULP of the exact value; infinite where the class or the sign of zero is wrong. abs_out: absolute. */
double exact_error(float got, double *abs_out);
/* Is the exact value a number that f32 can hold (no NaN, no infinity, no overflow)? */
bool exact_is_finite(void);
#endif
