/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef REF_BOUNDS_NORM_H
#define REF_BOUNDS_NORM_H
/* Error bounds of composite reductions, running sums, norms and attention. in_error[k]: bounds of the elements of
 * operand k, or NULL where it is exact; error: of the result's elements, added to; u: half a unit in the last place of
 * 1 in the accumulation type. */
#include "ref/kinds.h"

/* What converting y's exact value from the accumulation type to t may add: of a narrower float, a rounding; of an
 * integer 1, the values may lie on two sides of one. */
double ref_narrowing(ir_dtype t, double u, double y);
void ref_bound_composite(const ref_call *c, const double *const *in_error, double u,
                         double *error); /* var, std, l2, logsumexp */
void ref_bound_scan(const ref_call *c, const double *const *in_error, double u, double *error);
fusor_status ref_bound_norm(const ref_call *c, const double *const *in_error, double u, double *error);
/* attention.c, beside its reference. */
fusor_status ref_bound_attention(const ref_call *c, const double *const *in_error, double u, double *error);
#endif
