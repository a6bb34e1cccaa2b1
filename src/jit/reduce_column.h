/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_REDUCE_COLUMN_H
#define JIT_REDUCE_COLUMN_H
/* The column form, as reduce kernels (reduce_column.c) and row kernels (row_column.c) have it: chunks of columns, and
 * partial results of each column.
 *
 * Partial results: for reduction j (in instruction order), row q and partial i, from slots + 16 * ((j * rows + q) *
 * partials + i) * width on: all values, and 8 * width further on all indices. */
#include "jit/reduce_common.h"

typedef struct column {
    red *r;
    red_sweep *s;             /* what is swept; NULL: nothing */
    LLVMValueRef begin, end;  /* the chunk's columns */
    LLVMValueRef partial;     /* number of the block entered */
    int blocks;               /* that are swept at once, from it on */
    LLVMValueRef slots, rows; /* of partial results, above */
    LLVMValueRef row;         /* q; NULL: 0 */
    LLVMValueRef width;       /* columns that there are slots for */
    LLVMValueRef first;       /* the column of the first of them; NULL: 0 */
    LLVMValueRef *line;       /* row kernels, by instruction: values of the columns, from `first` on; NULL: none */
    void (*step)(struct column *w, LLVMValueRef c, int vectors, LLVMValueRef mask);
} column;
/* `user` of what column_load loads. */
typedef struct column_at {
    red_at at;
    column *w;
} column_at;

/* How many chunks of `by` columns; the columns of one. */
LLVMValueRef column_chunks(red *r, LLVMValueRef by);
void column_enter(column *w, LLVMValueRef chunk, LLVMValueRef by);
/* The step at each of the chunk's columns, `vectors` vectors at a time where that many are whole. */
void column_chunk(column *w, int vectors);
/* The block entered, swept by w->s: partial results to their slots. */
void column_block(column *w);
/* The tree of ir/schedule.h over a column's partial results, in place; the identity where nothing is reduced. */
LLVMValueRef column_tree(column *w, int j, LLVMValueRef c, LLVMValueRef mask);
/* Its result becomes partial result 0, which column_load has from there. */
void column_keep(column *w, int j, LLVMValueRef c, LLVMValueRef result, LLVMValueRef mask);
/* em_values' load at a column_at: what red_load_value loads, and results of reductions. */
LLVMValueRef column_load(emit *e, em_values *v, const ir_kinst *inst, void *user);
/* Where w->line has the value of an instruction at column c. */
LLVMValueRef column_line(column *w, int inst, LLVMValueRef c);
#endif
