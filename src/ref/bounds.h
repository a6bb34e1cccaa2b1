/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef REF_BOUNDS_H
#define REF_BOUNDS_H
/* How far a result may be from the reference evaluator's: the documented bounds of the operators (doc/numerics.md,
 * Bounds), carried through the graph for the very inputs at hand. Used by `fusor run --check` and the differential
 * tests.
 *
 * Every value has an absolute bound per element. An operator's own bound (0 where its result is the correctly rounded
 * one; its row's ulp or absolute error; k * u * sum|terms| of sums and contractions) is added to what the bounds of its
 * operands may do to it, which is found by evaluating it at the ends of their ranges: so the condition of every step
 * counts, and a chain of exact operators must agree to the bit. */
#include "ref/interp.h"

/* Evaluates a flattened graph on concrete inputs (contiguous); sizes are bound and checked. out[r].data and bound[r]
 * (one double an element; of kernels of the fast tier where is_fast) lie in arena a. */
fusor_status ref_eval_bounds(fu_arena *a, fu_error *e, const ir_graph *g, bool is_fast, int n_in, const ref_tensor *in,
                             int n_out, ref_tensor *out, double **bound);
/* Distance of neighbouring numbers of type t at v; 1 for integers and bool. */
double ref_ulp(ir_dtype t, double v);

typedef struct ref_comparison {
    double max_ulp;   /* largest difference; infinite where only one of the two is NaN or infinite */
    double bound_ulp; /* the bound at the element that comes nearest to it, or exceeds it most */
    int64_t at;       /* that element, row-major; -1 in an empty tensor */
    double at_ulp,
        at_bound_ulp; /* difference there, and its bound: what ok is decided by. bound_ulp is at least max_ulp where all are ok */
    bool ok;
} ref_comparison;
/* limit_ulp < 0: judged by bound; else by limit_ulp. All NaNs are equal. */
ref_comparison ref_compare(const ref_tensor *got, const ref_tensor *expected, const double *bound, double limit_ulp);
#endif
