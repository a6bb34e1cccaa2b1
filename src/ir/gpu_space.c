/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_space.c: a contraction, or a convolution, as a product of matrices: which dims of the kernel count what. */
#include "ir/arith.h"
#include "ir/gpu.h"

static const ir_kinst *operand(const ir_kernel *k, int number) {
    const ir_kinst *product = ir_kernel_matmul(k);
    return product ? &k->inst[product->in[number]] : NULL;
}

/* Reads with a guard: pads that are no copy. */
bool ir_gpu_window_has_pads(const ir_kernel *k) {
    const ir_kinst *x = operand(k, 1);
    return x && x->variant != 0;
}

static int axis_of(const ir_kernel *k, const ir_kinst *weights, int dim) {
    switch (k->dim[dim].role) {
    case 'm': return IR_GPU_ROWS;
    case 'y':
    case 'n': return IR_GPU_COLUMNS;
    case 'k': return IR_GPU_PRODUCTS;
    default: break;
    }
    /* images, and planes of them, have the same weights */
    const bool is_shared = k->kind == IR_KERNEL_WINDOW && k->buffer[weights->index].stride[dim] == 0;
    return is_shared ? IR_GPU_COLUMNS : IR_GPU_BATCHES;
}

void ir_gpu_space_of(const ir_kernel *k, ir_gpu_space *out) {
    const ir_kinst *weights = operand(k, 0);
    *out = (ir_gpu_space){0};
    for (int d = 0; d < k->n_dims; d++) {
        const int axis = axis_of(k, weights, d);
        out->dim[axis][out->n[axis]++] = (int8_t)d;
    }
}

int64_t ir_gpu_space_size(const ir_gpu_space *s, const int64_t *size, ir_gpu_axis axis) {
    int64_t n = 1;
    for (int i = 0; i < s->n[axis]; i++) n = ir_times(n, size[s->dim[axis][i]]);
    return n;
}
