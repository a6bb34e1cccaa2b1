/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef REF_NORM_H
#define REF_NORM_H
/* What the evaluation of norms and their error bounds share: the operand as rows, and the statistics of a row. */
#include "ref/kinds.h"

typedef struct ref_norm_shape {
    int64_t rows, len;
    double epsilon;
} ref_norm_shape;
typedef struct ref_norm_row {
    long double mean, deviation; /* 0 for rms_norm; sqrt(variance + epsilon) */
} ref_norm_row;
fusor_status ref_norm_rows(const ref_call *c, ref_norm_shape *out);
ref_norm_row ref_norm_row_of(const ref_call *c, const ref_norm_shape *s, int64_t row);
fusor_status ref_norm_strides(const ref_call *c, int k, int64_t *stride_out); /* of operand k over the dims of x */
#endif
