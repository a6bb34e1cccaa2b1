/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_SCALAR_H
#define IR_SCALAR_H
/* One element of one operator, straight from ops.def's reference expressions: used by constant folding, by the
 * reference evaluator and by the tests. Slow and obvious. */
#include "ir/op.h"

/* op: EW row; t: dtype of the main role; x[i]: operand bits (operand 0 of an IR_COND row is a bool);
 * attr: the leading FLOAT attributes; variant: value of the ENUM attribute or 0. Result in the row's result type. */
ir_bits ir_scalar_ew(ir_op op, ir_dtype t, const ir_bits *x, const double *attr, int variant);
ir_bits ir_scalar_cast(ir_dtype from, ir_dtype to, ir_bits x);
ir_bits ir_scalar_of(ir_dtype t, double v); /* v cast to t: integers saturate */
/* The same EW row without the final rounding: long double result of exact real operands. */
long double ir_scalar_real(ir_op op, const long double *x, const double *attr, int variant);
#endif
