/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_SCAN_H
#define JIT_SCAN_H
/* What scan kernels of the CPU (scan.c) and of GPUs (gpu_scan.c) share: the instruction, its arithmetic and the
 * carry. */
#include "jit/reduce_common.h"

typedef struct scan {
    red *r;
    emit *e;
    const ir_kinst *inst;
    int number; /* of the scan's instruction */
    ir_dtype t;
    bool is_product, is_exclusive, is_reversed, has_carry_rest;
    LLVMValueRef length, blocks;
    LLVMValueRef seed[IR_KERNEL_MAX_INSTS]; /* values that do not vary along the lanes' dim, as scalars */
} scan;

/* What came before a block: high + low. Products and integers have no low part. */
typedef struct scan_carry {
    LLVMValueRef high, low;
} scan_carry;

fusor_status scan_init(emit *e, fu_error *err, scan **out);
LLVMValueRef scan_combine(scan *s, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef scan_identity(scan *s);
scan_carry scan_no_carry(scan *s);
/* The carry past one more block of that total. */
scan_carry scan_carry_past(scan *s, scan_carry c, LLVMValueRef total);
/* All values at a place, then all stores: an output may be the memory of an input. */
void scan_store_values(scan *s, em_values *v, const red_at *at);
#endif
