/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_GPU_GRID_H
#define IR_GPU_GRID_H
/* What the files that plan launches (gpu.c, gpu_contract.c, gpu_mma.c, gpu_attention.c) share: sizes of a grid. */
#include "ir/arith.h"
#include "ir/gpu.h"

enum { GRID_X_MAX = INT32_MAX, GRID_Y_MAX = 65535 }; /* of z too; CUDA C++ Programming Guide, compute capabilities */

/* 1 .. most */
static inline uint32_t grid_at_most(int64_t v, int64_t most) { return (uint32_t)(v < 1 ? 1 : v > most ? most : v); }
/* Sizes of the matrices of a contraction, or convolution. */
typedef struct grid_matrices {
    int64_t batches, m, n, k;
} grid_matrices;
static inline grid_matrices grid_matrices_of(const ir_kernel *k, const int64_t *size) {
    ir_gpu_space s;
    ir_gpu_space_of(k, &s);
    return (grid_matrices){ir_gpu_space_size(&s, size, IR_GPU_BATCHES), ir_gpu_space_size(&s, size, IR_GPU_ROWS),
                           ir_gpu_space_size(&s, size, IR_GPU_COLUMNS), ir_gpu_space_size(&s, size, IR_GPU_PRODUCTS)};
}
#endif
