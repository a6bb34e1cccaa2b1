/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_GPU_CONTRACT_H
#define JIT_GPU_CONTRACT_H
/* What the files of a contraction or convolution without tensor cores share: gpu_contract.c (blocks, products,
 * results), gpu_contract_load.c (operands). */
#include "jit/gpu.h"

enum { FMA_PART_MAX = 64 /* elements of a thread */, FMA_VEC_MAX = 4, FMA_LOADS = 16 };

/* How an operand comes into shared memory: [step][rows + pad], one step of products at a time. A thread takes vec
 * adjacent elements, along the rows or along k, at each of `passes` places. */
typedef struct fma_operand {
    ir_gpu_axis axis;              /* of its rows: rows, or columns, of the result */
    int inst, row_dim, rows, line; /* line: elements from one k to the next in shared memory */
    int passes, of_line;           /* threads side by side along the line (of rows, or of k) */
    bool is_row_fast;              /* adjacent along rows */
    int threads;                   /* fewer than the block's where it is small */
    bool is_gathered;              /* a convolution's operand 1: elements, by a table of where products are */
    LLVMValueRef can;              /* i1: vec elements can be read at once; NULL: never */
    LLVMValueRef first;            /* row of the block */
    LLVMValueRef row, k;           /* of the thread's first element in the tile */
    LLVMValueRef offset[FMA_LOADS]; /* of the places' rows, where `can`; of what is fetched next, but of gathers */
    LLVMValueRef value[FMA_LOADS];  /* what was fetched: vectors */
} fma_operand;

typedef struct contract {
    emit *e;
    const ir_kernel *k;
    gpu_space s;
    int dim[3]; /* the innermost of rows, columns, products */
    int matmul;
    ir_dtype acc;
    LLVMTypeRef t_acc;
    int vec; /* elements of 16 bytes */
    const ir_gpu_fma_tile *t;
    int buffer;         /* elements of one of the two buffers of shared memory; operand 1 is behind operand 0 */
    LLVMValueRef table; /* gathers: where products are, of two steps; i32 */
    LLVMValueRef shared, thread, lane_x, lane_y, warp_row,
        warp_column; /* the warp's first row and column in the tile */
    LLVMValueRef index[IR_KERNEL_MAX_DIMS], batch_off[IR_KERNEL_MAX_BUFFERS];
    LLVMValueRef first[2];              /* row and column of the tile */
    LLVMValueRef scratch, scratch_step; /* of the tile, and from one K block to the next: elements */
    LLVMValueRef local;                 /* the thread's own memory: sums of K blocks, then what is parked */
    fma_operand operand[2];
} contract;

typedef struct fma_point {
    contract *c;
    LLVMValueRef x[3]; /* row, column, product; NULL: does not vary along it */
} fma_point;
LLVMValueRef fma_load(emit *e, em_values *v, const ir_kinst *inst, void *point);
LLVMValueRef fma_offset(const fma_point *at, int buffer);
static inline LLVMValueRef fma_num(contract *c, int64_t v) { return em_i64s(c->e, v); }

/* Once a variant: how operands are taken. Once a tile: where. */
void fma_lay_out(contract *c);
void fma_begin_tile(contract *c);
/* The first step fetched will be that from k on. */
void fma_begin(contract *c, LLVMValueRef k);
/* What can be read as vectors, of the step from k on, into registers, and on to the next step. Then from there to a
 * buffer, with what cannot; what is past k's end is 0. */
void fma_fetch(contract *c, LLVMValueRef k);
void fma_fill_table(contract *c, LLVMValueRef k); /* of the step from k on, for fma_fetch behind the next barrier */
void fma_put(contract *c, LLVMValueRef buffer, LLVMValueRef k);
/* While products are made registers are few: what says where the tile lies waits in local memory. Once a tile; and into
 * c, where it is used: the caller puts back the c before, whose values are those of the code around. */
void fma_park(contract *c);
void fma_unpark(contract *c);
/* How many offsets the next fetch begins at, and which. */
int fma_places(contract *c, LLVMValueRef **out);
#endif
