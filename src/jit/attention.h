/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_ATTENTION_H
#define JIT_ATTENTION_H
/* What the files of the attention kernel share: attention.c (which keys meet which queries, and in what order),
 * attention_tile.c (products), attention_words.c (halves as words), attention_amx.c (their products in tiles),
 * attention_softmax.c (scores to weights), attention_hidden.c (values of hidden keys that are not finite),
 * attention_rows.c (operands evaluated, results stored). */
#include "jit/emit.h"

enum { ATTENTION_CHUNKS = 4 }; /* most vectors of the level's lanes in a row of a panel */
enum { ATTENTION_FORMS = 3 };  /* most registers in a row of a panel: a form of the products for each number */
/* Parameters of ROW_WEIGHTS; those of WEIGHTS are followed by lines that they prefetch with each key: where, step; and
 * where weights are split by two of the parts. */
enum { ATTENTION_WEIGHTS_IN = 10, ATTENTION_PREFETCHED = 2, ATTENTION_SPLIT_IN = 2 };
typedef enum attention_function {
    PACK_Q,
    PACK_K,
    PACK_V,
    PACK_K_ROWS, /* in the type of rows, where that is another */
    PACK_V_ROWS,
    PACK_MASK,  /* an operand's rows, evaluated (attention_rows.c) */
    STORE_ROWS, /* results through the epilogue */
    TURN,       /* a matrix transposed (attention_tile.c) */
    PRODUCTS,   /* panels: a matrix of memory times a panel; behind it the forms for fewer registers of queries */
    DOTS = PRODUCTS + ATTENTION_FORMS,
    WEIGH, /* one query: its scores; its weights times the values */
    KEEP,  /* results of a panel as they were, and made again where values are not finite (attention_hidden.c) */
    AGAIN,
    WEIGHTS, /* scores of a panel to weights (attention_softmax.c); in as many forms */
    WEIGHTS_BOUND = WEIGHTS + ATTENTION_FORMS,     /* some keys may be out of bounds */
    ROW_WEIGHTS = WEIGHTS_BOUND + ATTENTION_FORMS, /* of one query */
    DIVIDE,                                        /* results of a panel by their sums */
    WORDS_OF_ROWS,                                 /* halves as words (attention_words.c) */
    WORDS_OF_MEMORY,
    JOIN, /* weights that are two bf16 (attention_amx.c) as f32; their products with values */
    VALUES,
    SCORES,                                   /* of words: by tiles (attention_amx.c), or in forms as PRODUCTS, */
    SCORES_BY_FMA = SCORES + ATTENTION_FORMS, /* and of words that the instruction may not multiply */
    MERGE,                                    /* one part's results joined to those before */
    ATTENTION_FUNCTIONS
} attention_function;

typedef struct attention {
    emit *e;
    const ir_kernel *k;
    ir_attention_dims at;
    int inst, q, keys, v, scale, cap, mask, low, high; /* instructions; -1: none */
    bool mask_has_queries;                             /* the mask varies along them */
    ir_dtype acc;
    ir_dtype k_row, v_row; /* one by one: of a row of keys or values: its own type where that is a half, else acc */
    bool splits;           /* ir_kernel_attention_splits */
    ir_dot dot;            /* of queries and keys: how the scores of panels are made; NONE: from accumulators */
    bool is_tile;          /* ir_dot_is_tile */
    bool is_raw;           /* panels: scores are scaled where they become weights, so the largest one is found before */
    bool has_largest;      /* and no key is masked: PRODUCTS find it */
    int forms; /* what is done with panels, in so many forms: for nr / v_lanes registers of queries and fewer */
    int acc_bytes, lanes, v_lanes; /* lanes: of the level; v_lanes: elements of one register */
    int mr, nr, kb;
    LLVMTypeRef t_acc, t_vec;
    /* set at the entry of each function that has the argument block */
    LLVMValueRef n_queries, n_values, n_keys, head; /* sizes */
    LLVMValueRef head_up, values_up;                /* head and values rounded up to lanes */
    LLVMValueRef index[IR_KERNEL_MAX_DIMS];         /* of the batch dims and g */
    LLVMValueRef batch_off[IR_KERNEL_MAX_BUFFERS];
    LLVMValueRef function[ATTENTION_FUNCTIONS];
    LLVMTypeRef function_type[ATTENTION_FUNCTIONS];
} attention;

/* A point of the iteration space: m, n, k, j of lane 0 (NULL: the program does not vary along it), the dim of the
 * lanes. */
typedef struct attention_point {
    attention *a;
    LLVMValueRef m, n, k, j;
    int axis;          /* -1: none, or one lane */
    LLVMValueRef mask; /* of loads; NULL: all lanes */
} attention_point;
LLVMValueRef attention_load(emit *e, em_values *v, const ir_kinst *inst, void *point);
LLVMValueRef attention_offset(attention *a, int buffer, const attention_point *at);
/* An operand that lies in memory in the accumulator type: a load and nothing else. */
bool attention_is_plain(const attention *a, int inst);
/* One that lies in memory as halves, adjacent along dim. */
bool attention_has_halves(const attention *a, int inst, int dim);

/* ---- attention.c: functions beside the kernel's ---- */
typedef struct attention_outer {
    emit e;
    attention a;
    LLVMBasicBlockRef block;
} attention_outer;
/* Into a new function; with has_args its first parameter is the argument block, and what it holds is loaded. */
attention_outer *attention_begin(attention *a, attention_function f, const char *name, LLVMTypeRef *parameter,
                                 unsigned n, bool has_args, bool is_optimized);
void attention_end(attention *a, const attention_outer *o);
void attention_call(attention *a, attention_function f, LLVMValueRef *in, unsigned n);
/* What the description says into a: dims, instructions, the accumulator. */
void attention_read(attention *a, emit *e);
/* Batch number -> a->index and a->batch_off. */
void attention_decode(attention *a, LLVMValueRef batch);
LLVMValueRef attention_at(attention *a, LLVMValueRef base, LLVMValueRef i); /* element i of accumulators */
static inline LLVMValueRef attention_num(attention *a, int64_t v) { return em_i64s(a->e, v); }
/* Are there keys that a query does not see because of where they are? */
static inline bool attention_has_bounds(const attention *a) { return a->low >= 0 || a->high >= 0; }
/* Accumulators from element i on, as many as lanes. */
static inline LLVMValueRef attention_get(attention *a, LLVMValueRef base, LLVMValueRef i) {
    return em_load_ptr(a->e, a->acc, attention_at(a, base, i), NULL, (unsigned)a->acc_bytes);
}
static inline void attention_put(attention *a, LLVMValueRef v, LLVMValueRef base, LLVMValueRef i) {
    em_store_ptr(a->e, a->acc, v, attention_at(a, base, i), NULL, (unsigned)a->acc_bytes);
}

/* ---- attention_amx.c: a weight as the sum of two bf16, in words of two keys ---- */
enum { ATTENTION_PARTS = 2 };
/* Weights x of two keys -> words of the parts. */
void attention_split(attention *a, const LLVMValueRef x[2], LLVMValueRef word[ATTENTION_PARTS]);
/* What em_bf16_is_exact is told of the parts of weights, of which `least` is the least (em_lesser_magnitude). */
void attention_store_exponent(attention *a, LLVMValueRef least, LLVMValueRef to);

/* Each emits its functions; parameters are said there. */
void attention_emit_tiles(attention *a);
void attention_emit_words(attention *a); /* a->dot */
void attention_emit_amx(attention *a);   /* a->is_tile */
void attention_emit_softmax(attention *a);
/* A bound of key numbers as i32: far ones are as good as none. */
LLVMValueRef attention_narrow(attention *a, LLVMValueRef bound);
/* Do the queries of lanes [chunk * lanes ...) of a panel see key x of a block? low, high: as attention_narrow gives
 * them, for query 0. An i1 a lane. */
LLVMValueRef attention_sees(attention *a, LLVMValueRef low, LLVMValueRef high, LLVMValueRef x, int chunk);
void attention_emit_hidden(attention *a); /* attention_has_bounds */
/* 1 / sum, of one or more lanes. A sum is 0 (no key: so are the results, and this; or NaN) or about 1 or more. */
LLVMValueRef attention_inverse(attention *a, LLVMValueRef sum, LLVMValueRef n_keys);
/* x * by, of attention_inverse; 0 where that is 0, whatever x is (weights of 0 may have met values that are NaN). */
LLVMValueRef attention_share(emit *e, ir_dtype t, LLVMValueRef x, LLVMValueRef by);
/* The buffer that results go to as they are, with adjacent columns; -1: there is more to do. */
int attention_plain_result(const attention *a);
void attention_emit_rows(attention *a);
#endif
