/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_GPU_ATTENTION_H
#define JIT_GPU_ATTENTION_H
/* What the files of attention on a GPU share: gpu_attention.c (blocks of threads, results, parts),
 * gpu_attention_block.c (one block of keys, by fma), gpu_attention_mma.c (by tensor cores) and gpu_attention_wgmma.c
 * (all of a block's keys, by wgmma).
 *
 * By fma, thread (x, y) of FLASH_SIDE x FLASH_GROUPS has queries y + FLASH_GROUPS * i, keys x + FLASH_SIDE * j of a
 * block of keys, and of the values columns vec * x + l of each piece of FLASH_SIDE * vec; so the FLASH_SIDE threads of
 * a query are neighbours in one warp. By tensor cores (wgmma too) a warp has 16 queries, a thread elements of
 * fragments: queries y and y + 8, keys (and columns) 2 * x and 2 * x + 1 of each 8. */
#include "jit/attention.h"
#include "jit/gpu.h"

enum {
    FLASH_SIDE = 8,
    FLASH_GROUPS = IR_GPU_ATTENTION_THREADS / FLASH_SIDE,
    FLASH_ROWS = IR_GPU_ATTENTION_QUERIES / FLASH_GROUPS, /* queries of a thread, at most */
    FLASH_KEYS = 8,                                       /* keys of a thread, at most */
    FLASH_WIDTH = 128 / FLASH_SIDE                        /* columns of a thread, at most */
};

typedef struct flash {
    attention a;
    emit *e;
    /* fixed by the accumulator's type: elements of 16 bytes; keys of a block; of the head's elements those in shared
     * memory at once; lines of shared memory with what keeps them in different banks: of queries and keys, of weights;
     * rows of values in shared memory at once */
    int vec, keys, slice, line, weight_line, value_rows;
    int width;                   /* columns of the values */
    int rows, own_keys, queries; /* queries and keys of a thread; queries of the block */
    /* Thread (x, y) of a form: queries y + row_step * i; keys and columns vec * x + l of each piece of side * vec, with
     * a vec for each. */
    bool is_mma, is_group;
    ir_gpu_attention_group group; /* is_group */
    int threads;                  /* of the block */
    int side, row_step, key_vec, column_vec;
    int values_at; /* element of shared memory where values begin; queries, keys, weights and masks are in front */
    LLVMValueRef shared, weights, thread, x, y; /* weights: and masks, in shared memory */
    LLVMValueRef scale, cap, low, high;
    LLVMValueRef has_vectors[3]; /* i1: q, k, v may be read vec elements at a time; NULL: never */
    LLVMValueRef q0, n0;         /* the block's first query and column */
    LLVMValueRef seen_end;       /* behind the last key that any of its queries sees: values there may be anything */
    LLVMValueRef result[FLASH_ROWS * FLASH_WIDTH], largest[FLASH_ROWS], sum[FLASH_ROWS];
} flash;

static inline int flash_key(const flash *f, int j) { /* key j of a thread from its first on; columns alike */
    return j / f->key_vec * f->side * f->key_vec + j % f->key_vec;
}
static inline int flash_column(const flash *f, int c) {
    return c / f->column_vec * f->side * f->column_vec + c % f->column_vec;
}
static inline LLVMValueRef flash_num(flash *f, int64_t v) { return em_i64s(f->e, v); }
static inline LLVMValueRef flash_at(flash *f, LLVMValueRef base, LLVMValueRef i) {
    return em_gep(f->e, base, f->a.t_acc, i);
}
static inline LLVMValueRef flash_load(flash *f, LLVMValueRef at) {
    return em_load_ptr(f->e, f->a.acc, at, NULL, (unsigned)f->a.acc_bytes);
}
static inline void flash_store(flash *f, LLVMValueRef v, LLVMValueRef at) {
    em_store_ptr(f->e, f->a.acc, v, at, NULL, (unsigned)f->a.acc_bytes);
}
LLVMValueRef flash_exp(flash *f, LLVMValueRef x);
LLVMValueRef flash_larger(flash *f, LLVMValueRef x, LLVMValueRef y); /* of numbers; a NaN never is */
/* What is subtracted from scores whose largest is `largest`. */
LLVMValueRef flash_about(flash *f, LLVMValueRef largest);
/* Can vec elements of an operand be read at once, in the batch that f->a is at? */
void flash_find_vectors(flash *f);
/* An operand's rows [row, row + rows) and columns alike into shared memory, zeros outside, and for values behind
 * seen_end. is_raw: 16-bit elements as they are. */
typedef struct flash_piece {
    int operand, inst, row_dim, column_dim; /* operand -1: a mask */
    int rows, columns, line;                /* of shared memory */
    LLVMValueRef row, column, to;
    bool is_raw;
} flash_piece;
void flash_stage(flash *f, const flash_piece *p);
/* The mask at every place of the block, where fma has the weights. With a barrier behind. */
void flash_stage_mask(flash *f, LLVMValueRef j0);
/* Scores [rows][own_keys] of a block of keys, by slices of the head: queries and then keys come to shared memory as
 * lines of `slice` elements, `line` apart, accumulators or (is_raw) 16 bits as they are; add() adds what `count` of
 * them give. */
typedef struct flash_slices {
    int slice, line;
    bool is_raw;
    void (*add)(flash *f, LLVMValueRef *score, LLVMValueRef count);
} flash_slices;
void flash_make_scores(flash *f, const flash_slices *s, LLVMValueRef j0, LLVMValueRef *score);
/* A product of a query and a key, times the scale and with cap and mask: row i and key j of the thread. */
LLVMValueRef flash_score(flash *f, LLVMValueRef s, int i, int j);
/* Numbers of keys as i32: far ones are as good as none. */
LLVMValueRef flash_narrow(flash *f, LLVMValueRef bound);
/* Scores [rows][own_keys] to weights: to shared memory, or (is_mma) where they are. */
void flash_make_weights(flash *f, LLVMValueRef *score, LLVMValueRef j0);
/* Keys [j0, j0 + f->keys): f->result, f->largest and f->sum go on by them. Every thread must come here. */
void flash_add_keys(flash *f, LLVMValueRef j0);

/* ---- gpu_attention_mma.c: the same by tensor cores ---- */
enum { FLASH_MMA_ROWS = 2, FLASH_MMA_SIDE = 4 };
bool flash_can_mma(const flash *f);     /* queries, keys and values of one 16-bit type, on sm_80 and up */
int flash_mma_elements(const flash *f); /* of shared memory, as accumulators */
void flash_mma_keys(flash *f, LLVMValueRef j0);

/* Two f32 as 16 bits each in an i32, the first one in the low half. */
LLVMValueRef flash_pair(flash *f, ir_dtype t, LLVMValueRef low, LLVMValueRef high);

/* ---- gpu_attention_wgmma.c ---- */
LLVMValueRef flash_can_group(flash *f); /* i1: are addresses and strides those that 16 bytes can be copied with? */
/* All keys [from, to) of a block, by wgmma. */
void flash_group_keys(flash *f, LLVMValueRef from, LLVMValueRef to);
#endif
