/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_GPU_MMA_H
#define JIT_GPU_MMA_H
/* What the files of a contraction on tensor cores share (gpu_mma.c: blocks, the loop along k, products; gpu_mma_load.c:
 * operands into shared memory; gpu_mma_store.c: accumulators to results). Shared memory is addressed by i32 byte
 * offsets from m->shared. */
#include "jit/gpu.h"

/* An operand's piece of one stage: `lines` lines of line_bytes bytes. A line is a row of the operand, k_bytes of its k;
 * or, turned, one k of all rows of the block. The 16-byte chunks of a line are permuted, so that the 8 lines of a
 * matrix that ldmatrix reads at once lie in different banks. */
typedef struct mma_operand {
    int inst, row_dim;
    int bytes, lanes;                         /* of an element; elements of 16 bytes */
    int buffer;                               /* it is copied from, or -1 */
    bool is_turned, has_vectors, is_gathered; /* has_vectors: computed 16 bytes at a time */
    int rows, k;                              /* of a piece, elements */
    int lines, line_bytes, at;                /* at: offset in the stage */
    int segment; /* wgmma: longer lines than 128 bytes are cut into columns of 128, this many bytes apart; else 0 */
    /* asynchronous copies: what they are for this thread, in this block */
    LLVMValueRef can, first, line, element, k_of_thread, to, step, pass_step;
    LLVMValueRef rows_left;             /* i32: from this thread's first element on, up to those of a piece */
    LLVMValueRef has_all_rows;          /* i1: none of the block's rows is outside the matrix */
    int passes, lines_of_pass, columns; /* columns: a thread copies of each of its lines, a part of the line apart */
    LLVMValueRef chunk;                 /* gathers: i32, the first of the thread's chunks of its line */
    LLVMValueRef read[8], is_inside;    /* gathers: what was read of a piece; i1: is there such a piece? */
} mma_operand;

typedef struct mma {
    emit *e;
    const ir_kernel *k;
    gpu_space s;
    int dim[3], matmul; /* dim: the innermost of rows, columns, products */
    ir_dtype acc;
    LLVMTypeRef t_acc;
    LLVMValueRef shared, thread, lane, warp;      /* i32, but shared */
    LLVMValueRef flags, tile, parts, threads;     /* i64; threads of the block */
    LLVMValueRef rows_log, columns_log;           /* i64: of the block's tile */
    LLVMValueRef tiles_m, tiles_n, tiles, length; /* i64: of a batch; products of a part */
    LLVMValueRef batch, part, m0, n0, k_begin, k_end;
    LLVMValueRef index[IR_KERNEL_MAX_DIMS], batch_off[IR_KERNEL_MAX_BUFFERS];
    const ir_gpu_mma_tile *t;          /* the one whose code is being made */
    int stage_bytes, n_threads, group; /* group: of rows of tiles */
    mma_operand operand[2];
} mma;

static inline LLVMValueRef mma_num(mma *m, int64_t v) { return em_i64s(m->e, v); }
static inline LLVMValueRef mma_i32(mma *m, LLVMValueRef v) { return LLVMBuildTrunc(m->e->b, v, m->e->t_i32, ""); }
static inline LLVMValueRef mma_i64(mma *m, LLVMValueRef v) { return LLVMBuildZExt(m->e->b, v, m->e->t_i64, ""); }
static inline LLVMValueRef mma_add(mma *m, LLVMValueRef v, int by) { /* i32 */
    return by ? em_add(m->e, v, em_i32(m->e, by)) : v;
}
static inline LLVMValueRef mma_bits(mma *m, LLVMValueRef v, int from, int n) { /* n bits of an i32 */
    LLVMValueRef x = from ? em_lshr(m->e, v, from) : v;
    return em_and(m->e, x, em_i32(m->e, (1 << n) - 1));
}
static inline LLVMValueRef mma_at(mma *m, LLVMValueRef offset) { return em_gep(m->e, m->shared, m->e->t_i8, offset); }

/* Element offset of a buffer at a row, column and product (NULL: it does not vary along it). */
typedef struct mma_point {
    mma *m;
    LLVMValueRef x[3]; /* by ir_gpu_axis */
    int lane_dim;      /* e->lanes elements along it from x on; -1: one */
} mma_point;
LLVMValueRef mma_load_value(emit *e, em_values *v, const ir_kinst *inst, void *point);
LLVMValueRef mma_offset(const mma_point *at, int buffer);

void mma_enter_batch(mma *m, LLVMValueRef number);
/* How many tiles a batch has, and where one of them is: of a part of k, all as i64. */
void mma_count_tiles(mma *m);
void mma_enter_tile(mma *m, LLVMValueRef part, LLVMValueRef number);

/* ---- gpu_mma.c: the loop along k ---- */
LLVMValueRef mma_next_stage(mma *m, LLVMValueRef stage);
/* The first pieces into the first stages, each a group; from[]: where this thread's copies are then. */
void mma_fill_stages(mma *m, int pieces, LLVMValueRef from[2]);
/* One more piece of both operands, a group; from[] is advanced. But for what is gathered: that is read into registers,
 * and put where it belongs, later; then the table is that of the next piece. */
void mma_load_pieces(mma *m, LLVMValueRef stage, LLVMValueRef k, LLVMValueRef from[2]);
void mma_gather(mma *m, LLVMValueRef stage, LLVMValueRef k); /* much of it is put at once */
void mma_put_gathered(mma *m, LLVMValueRef stage, LLVMValueRef k);
void mma_begin_from(mma *m, em_loop *l, LLVMValueRef from[2]); /* from[] as phis of a loop */
void mma_next_from(mma *m, LLVMValueRef phi[2], LLVMValueRef next[2]);
/* ---- gpu_wgmma.c: the loop along k by wgmma, m->t being laid out; up to the results in shared memory ---- */
void mma_emit_wgmma(mma *m);
/* Addresses (i32) in shared memory of what four warps multiply, in the first stage: group: which four. */
void mma_first_operands(mma *m, LLVMValueRef group, LLVMValueRef first[2]);
/* The products of one piece begin, as a group; first: of the operands in its stage. */
void mma_multiply_group(mma *m, LLVMValueRef first[2], LLVMValueRef stage, LLVMValueRef *acc);
/* gpu_wgmma_roles.c: all tiles of the block, m->t, by warps that copy and warps that multiply. */
void mma_emit_roles(mma *m);

/* What permutes the chunks of a line (an i32 number): xor with this. */
LLVMValueRef mma_permutation(mma *m, const mma_operand *p, LLVMValueRef line);
/* gpu_mma_load.c: places of the operands in a stage; what copies need, once a block; one piece, from k on, into a
 * stage. */
void mma_lay_out(mma *m, bool is_wgmma);
void mma_begin_copies(mma *m, int operand);
/* Gathers: where the products of the piece from k on are, for mma_load_piece behind the next barrier. */
void mma_fill_table(mma *m, LLVMValueRef k);
void mma_load_piece(mma *m, int operand, LLVMValueRef stage, LLVMValueRef k, LLVMValueRef from);
/* gpu_mma_store.c: accumulators [rows / 16][columns / 8][4] of the warp to shared memory; from there to the results, or
 * to a part's sums; the sums of all parts to the results (the second launch). */
void mma_stage_result(mma *m, LLVMValueRef *acc, int n_m, int n_n, LLVMValueRef row, LLVMValueRef column_chunk);
void mma_emit_epilogue(mma *m);
/* The results of one warp, its accumulators of 16 rows from `row` on (i32, of the tile), by IR_GPU_MMA_OUT bytes of
 * shared memory of its own from `place` on: without a barrier of the block. */
void mma_emit_warp_results(mma *m, LLVMValueRef *acc, LLVMValueRef row, LLVMValueRef place);
void mma_emit_sums(mma *m);
#endif
