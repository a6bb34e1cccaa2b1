/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_GPU_ROW_H
#define JIT_GPU_ROW_H
/* What reduce and row kernels of a GPU share (gpu_row.c: rows, gpu_column.c: columns): what a sweep over a row
 * computes, its accumulators, and how those of a team's threads become one (gpu_team.c). Accumulators between steps are
 * in memory, of which nothing is left: LLVM puts what is only loaded and stored into registers. */
#include "jit/gpu.h"
#include "jit/reduce_common.h"

typedef struct gpu_pass {
    int number, n_acc, acc[IR_KERNEL_MAX_INSTS]; /* reduction numbers */
    bool has_stores;
} gpu_pass;

typedef struct gpu_cell {
    LLVMValueRef value, index; /* of an accumulator; index of arg-reductions alone */
} gpu_cell;

typedef struct gpu_row {
    red *r;
    int64_t known_team;      /* threads of a team, or 0: not known before the call */
    LLVMValueRef lane, team; /* number in the team, and how many it has */
    LLVMValueRef thread;     /* number in the block */
    LLVMValueRef
        slots; /* in shared memory: for each accumulator of a pass one for each warp; column form: for each thread */
    LLVMValueRef chunks, counters, is_cut; /* address of the counters; are there some? */
    LLVMValueRef is_last;                  /* in shared memory: gpu_is_last */
} gpu_row;

void gpu_find_pass(const red *r, int number, gpu_pass *p);
int gpu_passes(const red *r);
int gpu_most_accs(const red *r); /* of a pass */
/* Accumulators in memory. */
gpu_cell gpu_cell_new(gpu_row *w, int j);
void gpu_cell_set(gpu_row *w, int j, gpu_cell c, red_acc acc);
red_acc gpu_cell_get(gpu_row *w, int j, gpu_cell c);
red_acc gpu_no_acc(gpu_row *w, int j);
red_acc gpu_select(gpu_row *w, int j, LLVMValueRef condition, red_acc a, red_acc b);
red_acc gpu_load_partial(gpu_row *w, int j, LLVMValueRef slot);
/* acc[0..p->n_acc) of each thread of a team as one, which all of them have. All threads of the block must come here. */
void gpu_combine_team(gpu_row *w, const gpu_pass *p, red_acc *acc);
/* Where in scratch the partial result of part `number` (of all rows' parts, of column c or NULL) lies. */
LLVMValueRef gpu_part_slot(gpu_row *w, int j, LLVMValueRef number, LLVMValueRef c);
/* Partial results (blocks of the last reduced dim) of a chunk. */
void gpu_chunk_range(gpu_row *w, LLVMValueRef chunk, LLVMValueRef *from, LLVMValueRef *to);
/* Is this block the last of n that come here with this counter? Behind its stores of partial results; then those of all
 * n can be loaded. All threads of the block come here, and get the same answer. */
LLVMValueRef gpu_is_last(gpu_row *w, LLVMValueRef counter, LLVMValueRef n);
void gpu_set_results(gpu_row *w, const gpu_pass *p, const red_acc *acc, em_values *v);
void gpu_emit_columns(gpu_row *w);
#endif
