/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_GPU_GRID_H
#define IR_GPU_GRID_H
/* What the files that plan launches (gpu.c, gpu_contract.c, gpu_mma.c, gpu_attention.c) share: sizes of a grid. */
#include "ir/arith.h"
#include "ir/gpu.h"

enum { GRID_X_MAX = INT32_MAX, GRID_Y_MAX = 65535 }; /* of z too; CUDA C++ Programming Guide, compute capabilities */

/* 1 .. most */
static inline uint32_t grid_at_most(int64_t v, int64_t most) { return (uint32_t)(v < 1 ? 1 : v > most ? most : v); }
/* Of a contraction: its dims before m, n, k, multiplied. */
static inline int64_t grid_batches(const ir_kernel *k, const int64_t *size) {
    int64_t n = 1;
    for (int d = 0; d < k->n_dims - 3; d++) n = ir_times(n, size[d]);
    return n;
}
#endif
