/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_ROW_H
#define JIT_ROW_H
/* What both forms of row kernels share (row.c, row_column.c): the passes over a row, and where values that are kept
 * from one to the next lie. */
#include "jit/reduce_common.h"

typedef struct row_passes {
    red *r;
    red_sweep *sweep[IR_KERNEL_MAX_INSTS + 1]; /* by pass; NULL = nothing to do */
    int n;
    /* of kept values, by instruction */
    LLVMValueRef place[IR_KERNEL_MAX_INSTS]; /* rows in scratch; NULL = not kept */
    int kept_in[IR_KERNEL_MAX_INSTS];        /* the output whose row has them until it is overwritten; -1: scratch */
    LLVMValueRef kept[IR_KERNEL_MAX_INSTS];  /* of the row entered: what sweeps have as kept_row, ... */
    LLVMValueRef step[IR_KERNEL_MAX_INSTS];  /* ... and, in column form, as kept_step */
    LLVMValueRef overlaps, *results;         /* two rows at once: i1; results of the first pass, by acc */
} row_passes;

/* Rows of kept values in scratch from byte `at` on, `columns` elements each step of the row. */
void row_place_kept(row_passes *p, LLVMValueRef at, LLVMValueRef columns);
/* row_column.c: units [begin, end): chunks of columns of rows. */
void row_columns(row_passes *p, LLVMValueRef begin, LLVMValueRef end);
#endif
