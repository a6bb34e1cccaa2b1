/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_GPU_ATTENTION_H
#define JIT_GPU_ATTENTION_H
/* What the files of attention on a GPU share: gpu_attention.c (blocks of threads, results, parts),
 * gpu_attention_block.c (one block of keys, by fma), gpu_attention_mma.c (by tensor cores), gpu_attention_wgmma.c
 * (all of a block's keys, by wgmma), gpu_attention_few.c (few queries, by tensor cores) and gpu_attention_weights.c
 * (scores to weights in the last two).
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
    LLVMValueRef has_vectors[4]; /* i1: q, k, v, mask may be read vec elements at a time; NULL: never */
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
    int operand, inst, row_dim, column_dim; /* operand: q, k, v, mask */
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
LLVMValueRef flash_staged_mask(flash *f, int i, int j); /* of row i and key j of the thread */
/* A product of a query and a key, times the scale and with cap and mask (as an accumulator; NULL: none). */
LLVMValueRef flash_score(flash *f, LLVMValueRef s, LLVMValueRef mask);
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

/* c[4] += a[4] x b[2], fragments of 16 x 16 and 16 x 8 elements. */
void flash_multiply(flash *f, const LLVMValueRef *a, const LLVMValueRef *b, LLVMValueRef *c);

/* ---- gpu_attention_weights.c: scores to weights in the registers of fragments, of a block of 2 * n_scores keys.
 * Accumulator i of a thread is of its query flash_row_of(i), and key 2 * x + i / 4 * 8 + i % 2 of the block. ---- */
enum { FLASH_SCORES = 64 }; /* of a thread, at most */
static inline int flash_row_of(int i) { return i >> 1 & 1; }
typedef struct flash_weights {
    flash *f;
    int n_scores;
    bool has_mask;                           /* one that is loaded as it lies (ir_gpu_attention_mask_is_plain) */
    bool is_minus_score;                     /* are references? else they are exponents of 2 */
    LLVMValueRef is_far, log2_scale, offset; /* scores * log2_scale are exponents of 2; added to all of them */
    /* i32, numbers of keys from `first` (i64) on: all queries of the warp see [all_from, all_to), the thread's two
     * [own_from, own_to), less 2 * x */
    LLVMValueRef first, all_from, all_to, own_from[2], own_to[2];
    LLVMValueRef mask_has_pairs, mask_row[2], mask[FLASH_SCORES / 2]; /* rows of its queries; pairs, as they lie */
    LLVMValueRef score[FLASH_SCORES], reference[2], sum[2], factor[2], is_moved;
} flash_weights;
/* f, n_scores and has_mask are given; then first. */
void flash_find_scale(flash_weights *w);
/* Keys from `first` on, i32: far ones are as good as none, a block has fewer than 2^30. */
LLVMValueRef flash_distance(flash_weights *w, LLVMValueRef key);
/* Bounds of the warp's queries least to most, and of the thread's two, where keys end at `to`. */
void flash_find_bounds(flash_weights *w, LLVMValueRef least, LLVMValueRef most, const LLVMValueRef query[2],
                       LLVMValueRef to);
/* Where the mask's rows of two queries are; head (NULL: that of the batch): numbers of heads from the batch's on. */
void flash_find_mask(flash_weights *w, const LLVMValueRef head[2], const LLVMValueRef query[2]);
void flash_load_mask(flash_weights *w, LLVMValueRef j); /* of the block of keys from j (i64) on */
/* Scores of the block from key `first` + j (i32) on to weights, where they are: reference and sum go on, results so far
 * are to be multiplied by factor where is_moved (i1, alike in the warp). */
void flash_weigh(flash_weights *w, LLVMValueRef j);
/* What weights and results with a reference are relative to: a score (is_minus_score), or a score's exponent of 2; and
 * that as a score. */
LLVMValueRef flash_top(flash_weights *w, LLVMValueRef reference);
LLVMValueRef flash_top_score(flash_weights *w, LLVMValueRef top);
/* By what results are multiplied, of the difference of two tops, or references. */
LLVMValueRef flash_power(flash_weights *w, LLVMValueRef difference);
/* Each weight as two numbers of 16 bits: the nearest one, and what is left. Pairs, in the order of the scores. */
void flash_split(flash_weights *w, LLVMValueRef part[2][FLASH_SCORES / 2]);
/* Two f32 as 16 bits each in an i32, the first one in the low half. */
LLVMValueRef flash_pair(flash *f, ir_dtype t, LLVMValueRef low, LLVMValueRef high);
/* Ends a branch: what was changed in it, or was before. */
void flash_join(flash *f, em_branch *b, LLVMValueRef *now, LLVMValueRef *was, int n);

/* ---- gpu_attention_few.c ---- */
int flash_few_elements(const flash *f); /* of shared memory, as accumulators */
/* All blocks of a launch, where queries are few (ir_gpu_attention_has_few). */
void flash_emit_few(flash *f);

/* ---- gpu_attention.c: results ---- */
/* attention_inverse: by what results are multiplied (attention_share). */
LLVMValueRef flash_inverse(flash *f, LLVMValueRef sum);
/* The result of the batch that f->a is at, through the epilogue. */
void flash_store_result(flash *f, LLVMValueRef m, LLVMValueRef n, LLVMValueRef value);
/* Element (part, batch, query) of scratch: its E results, then the largest score and the sum. */
LLVMValueRef flash_scratch_row(flash *f, LLVMValueRef part, LLVMValueRef batches, LLVMValueRef batch, LLVMValueRef m);
LLVMValueRef flash_count_batches(flash *f);
LLVMValueRef flash_ceil_div(flash *f, LLVMValueRef x, LLVMValueRef by);
/* Keys [from, to) of a part that queries first to last see, from a block of f->keys on; and f->seen_end. */
void flash_find_part(flash *f, LLVMValueRef part, LLVMValueRef parts, LLVMValueRef first, LLVMValueRef last,
                     LLVMValueRef *from, LLVMValueRef *to);

/* ---- gpu_attention_wgmma.c ---- */
LLVMValueRef flash_can_group(flash *f); /* i1: are addresses and strides those that 16 bytes can be copied with? */
/* All keys [from, to) of a block, by wgmma. */
void flash_group_keys(flash *f, LLVMValueRef from, LLVMValueRef to);
#endif
