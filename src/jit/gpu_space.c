/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_space.c: the matrices of a contraction or convolution on a GPU (ir_gpu_space): their sizes, and from numbers of
 * batches, rows, columns and products to indices along the kernel's dims and offsets in its buffers. */
#include "jit/gpu.h"

void gpu_space_of(emit *e, gpu_space *s) {
    ir_gpu_space_of(e->k, &s->of);
    for (ir_gpu_axis a = 0; a < IR_GPU_AXES; a++) {
        s->size[a] = em_i64s(e, 1);
        for (int i = 0; i < s->of.n[a]; i++) s->size[a] = em_mul(e, s->size[a], e->size[s->of.dim[a][i]]);
    }
}

void gpu_space_split(emit *e, const gpu_space *s, ir_gpu_axis axis, LLVMValueRef number, LLVMValueRef *index) {
    const int n = s->of.n[axis];
    const bool is_short = axis == IR_GPU_COLUMNS || axis == IR_GPU_PRODUCTS;
    LLVMTypeRef type = is_short && n > 1 ? e->t_i32 : e->t_i64;
    LLVMValueRef left = n > 1 ? LLVMBuildTrunc(e->b, number, type, "") : number;
    for (int i = n - 1; i >= 0; i--) {
        const int d = s->of.dim[axis][i];
        LLVMValueRef size = LLVMBuildTrunc(e->b, e->size[d], type, "");
        index[d] = LLVMBuildZExt(e->b, i ? LLVMBuildURem(e->b, left, size, "") : left, e->t_i64, "");
        if (i) left = LLVMBuildUDiv(e->b, left, size, "");
    }
}

LLVMValueRef gpu_space_offset(emit *e, const gpu_space *s, ir_gpu_axis axis, int buffer, LLVMValueRef number) {
    LLVMValueRef index[IR_KERNEL_MAX_DIMS], off = em_i64s(e, 0);
    bool is_split = false;
    for (int i = 0; i < s->of.n[axis]; i++) {
        const int d = s->of.dim[axis][i];
        if (e->k->buffer[buffer].stride[d] == 0) continue;
        if (!is_split) gpu_space_split(e, s, axis, number, index);
        is_split = true;
        off = em_add(e, off, em_mul(e, index[d], e->stride[buffer][d]));
    }
    return off;
}

LLVMValueRef gpu_space_index(emit *e, const gpu_space *s, ir_gpu_axis axis, int dim, LLVMValueRef number) {
    LLVMValueRef index[IR_KERNEL_MAX_DIMS];
    for (int i = 0; i < s->of.n[axis]; i++) {
        if (s->of.dim[axis][i] != dim) continue;
        gpu_space_split(e, s, axis, number, index);
        return index[dim];
    }
    return NULL;
}
