/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef DIFF_ULP_EXACT_H
#define DIFF_ULP_EXACT_H
/* The judge of ulp.c: what an approximated row of ops.def should have returned, by MPFR with 160 bits. The formulas
 * are written here, not taken from the row. */
#include "ir/op.h"

/* Whether the build has MPFR and there is a formula for the row. */
bool exact_has(ir_op op, int variant);
/* The exact value for these operands; attr: the row's float attributes. exact_error() is about the last one set. */
void exact_set(ir_op op, int variant, const double *attr, double x, double y);
/* Error of got in ULP (of the type) of the exact value; infinite where the class or the sign of zero is wrong. abs_out:
 * absolute. */
double exact_error(ir_dtype type, double got, double *abs_out);
/* Is the exact value a number that the type can hold (no NaN, no infinity, no overflow)? */
bool exact_is_finite(ir_dtype t);

/* A normal number is f * 2^e, 1/2 <= f < 1, least <= e <= largest; f has `digits` bits. 1 ULP is 2^(e - digits). */
typedef struct exact_format {
    int digits, least, largest;
} exact_format;
exact_format exact_format_of(ir_dtype t);
#endif
