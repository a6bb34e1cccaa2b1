/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_GPU_CONTRACT_H
#define JIT_GPU_CONTRACT_H
/* What the files of a contraction or convolution without tensor cores share: gpu_contract.c (blocks, products,
 * results), gpu_contract_load.c (operands). */
#include "jit/gpu.h"

enum { FMA_PART_MAX = 64 /* elements of a thread */, FMA_VEC_MAX = 4, FMA_LOADS = 16, FMA_PAD = 4 };

/* How the threads of a block share the elements of an operand's step: n adjacent ones, along the rows or along k, at each
 * of `passes` places, which are row_step rows and k_step products apart. */
typedef struct fma_way {
    int n, threads /* fewer than the block's where it is small */, passes, row_step, k_step;
    LLVMValueRef row, k; /* of the thread's first element in the tile */
} fma_way;
typedef enum fma_width { FMA_VECTORS, FMA_SINGLES } fma_width; /* 16 bytes, or one element */

/* How an operand comes into shared memory: [step][rows + pad], one step of products at a time. */
typedef struct fma_operand {
    ir_gpu_axis axis;              /* of its rows: rows, or columns, of the result */
    int inst, row_dim, rows, line; /* line: elements from one k to the next in shared memory */
    bool is_row_fast;              /* adjacent along rows */
    bool is_gathered;              /* a convolution's operand 1: elements, by a table of where products are */
    bool is_copied; /* asynchronously (gpu_contract_copy.c): all that follows but way and can is unused */
    fma_way way[2];
    LLVMValueRef can;               /* i1: vec elements can be read, or copied, at once; NULL: never */
    LLVMValueRef offset[FMA_LOADS]; /* of the places' rows, where `can`; of what is fetched next, but of gathers */
    LLVMValueRef value[FMA_LOADS];  /* what was fetched: vectors */
    struct {
        LLVMValueRef from;  /* address of the thread's first element of the next step; a gather's of its column */
        LLVMValueRef place; /* where it goes in a stage: elements */
        LLVMValueRef has_all_rows;       /* i1: the tile is inside along this axis */
        LLVMValueRef next_step, pass[2]; /* bytes from a step, or a place, to the next */
    } copy;
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
    int stages;         /* steps that are in shared memory, operand 1 of each behind operand 0 */
    LLVMValueRef table; /* gathers: where products are, of two steps; i32 */
    LLVMValueRef shared, thread, lane_x, lane_y, warp_row,
        warp_column; /* the warp's first row and column in the tile */
    LLVMValueRef index[IR_KERNEL_MAX_DIMS], batch_off[IR_KERNEL_MAX_BUFFERS];
    LLVMValueRef first[2];              /* row and column of the tile */
    LLVMValueRef k_end;                 /* of the block of threads' part */
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

/* Once: which way operands come. Once a variant: how threads share them. Once a tile: where they are. */
void fma_find_operands(contract *c);
void fma_lay_out(contract *c);
void fma_begin_tile(contract *c);
/* How many steps of a tile shared memory holds: copies are several ahead of the products. */
int fma_stages(const contract *c, const ir_gpu_fma_tile *t);
static inline int fma_stage_elements(const ir_gpu_fma_tile *t) {
    return (t->rows + t->columns + 2 * FMA_PAD) * t->step;
}
/* The first step taken will be that from k on. */
void fma_begin(contract *c, LLVMValueRef k);
/* The step from k on, on its way to a stage (elements from the first one): copies begin, and what can be read as vectors
 * is read into registers; then on to the next step. Once the products of another step are made, fma_put brings it from
 * there, with what is computed. What is past k's end is 0. Copies of all but the last `but` steps have arrived behind
 * fma_wait, for the thread that waits. */
void fma_take(contract *c, LLVMValueRef stage, LLVMValueRef k);
void fma_put(contract *c, LLVMValueRef stage, LLVMValueRef k);
void fma_wait(contract *c, int but);
void fma_fill_table(contract *c, LLVMValueRef k); /* of the step from k on, for fma_take behind the next barrier */
/* While products are made registers are few: what says where the tile lies waits in local memory. Once a tile; and into
 * c, where it is used: the caller puts back the c before, whose values are those of the code around. */
void fma_park(contract *c);
void fma_unpark(contract *c);
/* Where the next step begins, for each place and copy: how many, and which. */
int fma_places(contract *c, LLVMValueRef **out);

/* ---- gpu_contract_load.c, for gpu_contract_copy.c ---- */
LLVMValueRef fma_can_take_vectors(contract *c, const fma_operand *o); /* of the batch: i1; NULL: never */
LLVMValueRef fma_table_offset(contract *c, LLVMValueRef k,
                              LLVMValueRef i);                     /* of product k + i, of the step from k on */
LLVMValueRef fma_gather_column(contract *c, const fma_operand *o); /* elements from the buffer's base */
/* ---- gpu_contract_copy.c ---- */
bool fma_is_copied(const contract *c, const fma_operand *o);
void fma_begin_copies(contract *c, fma_operand *o);
void fma_copy(contract *c, fma_operand *o, LLVMValueRef to, LLVMValueRef k); /* to: the operand's part of a stage */
#endif
