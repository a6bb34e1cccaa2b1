/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef DIFF_ULP_INPUTS_H
#define DIFF_ULP_INPUTS_H
/* Arguments for ulp.c, the same in every run. All of them are f64 values, exact in the type that is measured. */
#include "ir/op.h"

uint64_t input_random(void);
double input_rounded(ir_dtype t, double v);
double input_of_bits(ir_dtype t, uint64_t bits);
uint64_t input_bits(ir_dtype t, double v);

/* Number `number` of the pairs for a function of two arguments: every pair of a list of special values, then random
 * bits, arguments around 1 with large exponents, moderate values, values of similar size. */
void input_pair(ir_dtype t, long long number, double *x, double *y);
/* Of the arguments of a function of one: special values and their neighbours, then random bits, values of the row's
 * domain, values around 1, multiples of pi/2 (any exponent) and their neighbours, numbers of few bits. */
double input_single(ir_dtype t, const ir_op_info *info, long long number);
long long input_specials(const ir_op_info *info); /* how many of the first ones are special values */
/* Near v: some units in the last place, or up to some thousandths away. */
double input_near(ir_dtype t, double v);
#endif
