/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef REF_INTERP_H
#define REF_INTERP_H
/* Slow, obvious evaluator: the oracle of the tests, `--check`, and what serves where there is no kernel. */
#include "ir/graph.h"

/* A contiguous row-major tensor. bool elements are 0 or 1. */
typedef struct ref_tensor {
    ir_dtype dtype;
    int rank;
    int64_t shape[IR_MAX_RANK];
    void *data;
} ref_tensor;
static inline int64_t ref_count(const ref_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->shape[i];
    return n;
}

/* Evaluates one node: `in` are its operands (contiguous), `out` has dtype, shape and memory. Sums, products and
 * contractions accumulate in double (long double for f64) or int64, so that the result is nearer to the truth than any
 * kernel's bound. */
fusor_status ref_eval_node(const ir_graph *g, fu_error *e, const ir_node *n, const ref_tensor *in, ref_tensor *out,
                           const int64_t *symbol_values);
#endif
