/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_CONTRACT_H
#define JIT_CONTRACT_H
/* What the files of the contraction kernel share. */
#include "jit/emit.h"

typedef enum contract_function {
    PACK0,
    PACK1,
    TILE,
    LAST_TILE,
    SWEEP,
    PAIR,
    FINISH,
    HEAD,
    ROWS,
    BY_FMA,
    CONTRACT_FUNCTIONS
} contract_function;
enum { CONTRACT_MAX_TILE = 32, CONTRACT_MAX_ROWS = 16 }; /* vector registers in a tile, and rows */

typedef struct contract {
    emit *e;
    const ir_kernel *k;
    const ir_kernel *whole;  /* k, or with a row program what k is the tile program of: arguments and scratch are its */
    int dim_m, dim_n, dim_k; /* the last three dims */
    int n_batch, batch[IR_KERNEL_MAX_DIMS];
    int n_outer_n, outer_n[IR_KERNEL_MAX_DIMS]; /* dims of role y */
    int n_outer_k, outer_k[IR_KERNEL_MAX_DIMS]; /* dims of role j */
    int matmul, operand[2];                     /* instruction numbers */
    ir_dtype acc;                               /* type of the accumulators and of the words of panels */
    ir_dot dot;                                 /* how words are multiplied; NONE: each is one element */
    int group, heads[2], parts;                 /* ir_dots[dot] */
    bool is_tile;                               /* ir_dot_is_tile */
    bool copies_a;   /* panels of operand 0 are [row][k]: rows of memory, with their words made ready, or of values
                        (contract_packs_by_rows); tiles: [step][part][row][k of a step] */
    ir_dtype packed; /* type of an element in a word: acc, but with a dot */
    int packed_bytes;
    int acc_bytes, lanes; /* lanes: of the level; programs are evaluated this wide */
    int v_lanes, nv;      /* elements of one vector register; registers in a row of the tile: nr = nv * v_lanes */
    int mr, nr, kb;
    int columns;  /* of the tiles of the function being emitted: nr, or a known n below it, or last_columns */
    bool is_last; /* it is LAST_TILE: the last of its vectors may have lanes behind n */
    LLVMTypeRef t_acc, t_vec;               /* scalar; one vector register */
    LLVMTypeRef t_packed;                   /* as it is in memory */
    LLVMValueRef m, n, kk, k_words;         /* sizes, kk: of all of k; words of a row of a panel, without heads */
    LLVMValueRef index[IR_KERNEL_MAX_DIMS]; /* of the outer dims, in the tile being made */
    LLVMValueRef batch_off[IR_KERNEL_MAX_BUFFERS]; /* what they add to each buffer's offset */
    LLVMValueRef b_stride, b_jump; /* of the panel being read: elements between rows; at the end of a run */
    struct contract_row *row;      /* where the offset of a row comes from the one before; NULL: from its number */
    LLVMValueRef function[CONTRACT_FUNCTIONS]; /* beside the kernel's */
    LLVMTypeRef function_type[CONTRACT_FUNCTIONS];
    LLVMValueRef staging; /* part of scratch: see ir/kernel.h */
} contract;

/* A point of the iteration space: m, n, k of lane 0, and the dim along which lanes go (-1: none, or one lane). */
typedef struct contract_point {
    contract *c;
    LLVMValueRef m, n, k;
    int axis;
    LLVMValueRef mask; /* of loads; NULL = all lanes */
} contract_point;
/* Rows that come one after the other: where row `number` is at column n0 in each buffer, once that was needed. */
typedef struct contract_row {
    LLVMValueRef n0;
    int number, column; /* the point's, behind n0 */
    int at[IR_KERNEL_MAX_BUFFERS];
    LLVMValueRef offset[IR_KERNEL_MAX_BUFFERS];
} contract_row;
LLVMValueRef contract_load(emit *e, em_values *v, const ir_kinst *inst, void *point);
LLVMValueRef contract_offset(contract *c, int buffer, const contract_point *at);
LLVMValueRef contract_step(contract *c, int buffer, int axis);
/* Batch number -> index of each batch dim and offset of each buffer. With only the dims in `which`. */
void contract_decode_batch(contract *c, LLVMValueRef number, uint32_t which);
/* With several dims of columns: flat columns are those of all panels, each nr of them. Behind contract_decode_batch:
 * the first column in its run of n; the indices of dims y are c->index, and they count in c->batch_off. With one dim:
 * the same. */
LLVMValueRef contract_decode_columns(contract *c, LLVMValueRef flat);
/* With several dims of k: number of a run of k -> the indices of dims j, as above. */
void contract_decode_run(contract *c, LLVMValueRef run);
LLVMValueRef contract_run_length(contract *c); /* at least 1 */
static inline LLVMValueRef num(contract *c, int64_t v) { return em_i64s(c->e, v); }
/* The word that element k is in. */
static inline LLVMValueRef contract_word_of(contract *c, LLVMValueRef k) {
    return c->group == 1 ? k : LLVMBuildLShr(c->e->b, k, em_i64s(c->e, c->group / 2), "");
}
/* Words of a row of a panel for n elements along k: as they are packed; and in parts, where words are cut. */
static inline LLVMValueRef contract_packed_words(contract *c, LLVMValueRef n) {
    int64_t step = ir_dots[c->dot].step;
    if (step == 1) return n;
    return contract_word_of(c, em_and(c->e, em_add(c->e, n, em_i64s(c->e, step - 1)), em_i64s(c->e, -step)));
}
static inline LLVMValueRef contract_in_words(contract *c, LLVMValueRef n) {
    LLVMValueRef words = contract_packed_words(c, n);
    return c->parts == 1 ? words : em_mul(c->e, words, em_i64s(c->e, c->parts));
}
/* Of the longest K block. */
static inline LLVMValueRef contract_block_words(contract *c) {
    return em_min(c->e, c->k_words, em_i64s(c->e, ir_dot_words(c->dot, c->kb)));
}
static inline LLVMValueRef element(contract *c, LLVMValueRef base, LLVMValueRef i) {
    return em_gep(c->e, base, c->t_acc, i);
}
static inline LLVMValueRef bytes_behind(contract *c, LLVMValueRef p, LLVMValueRef bytes) {
    return em_gep(c->e, p, c->e->t_i8, bytes);
}
/* Of accumulators. */
static inline LLVMValueRef contract_add(contract *c, LLVMValueRef a, LLVMValueRef b) {
    return ir_is_float(c->acc) ? em_fadd(c->e, a, b) : em_add(c->e, a, b);
}
/* A phi of two values, at the begin of the block that both blocks lead to. */
LLVMValueRef contract_merge(contract *c, LLVMValueRef a, LLVMBasicBlockRef from_a, LLVMValueRef b,
                            LLVMBasicBlockRef from_b);

/* ---- functions beside the kernel's: deep nests of loops in one function cost much more to compile ---- */
typedef struct contract_outer {
    emit e;
    contract c;
    LLVMBasicBlockRef block;
} contract_outer;
/* Into a new function. But for heads, rows and the tile, its first parameter is the argument block, and what it holds
 * is loaded. */
contract_outer *contract_begin(contract *c, contract_function f, const char *name, LLVMTypeRef *parameter, unsigned n,
                               bool is_optimized);
void contract_end(contract *c, const contract_outer *o); /* and back */
void contract_call(contract *c, contract_function f, LLVMValueRef *in, unsigned n);

void contract_set_values(contract *c); /* what is loaded at the entry of each function */
/* Of operand 0 or 1: see the function. */
void contract_emit_pack(contract *c, int operand);
void contract_call_pack(contract *c, int operand, LLVMValueRef dst, LLVMValueRef batch, LLVMValueRef first,
                        LLVMValueRef panels, LLVMValueRef k0, LLVMValueRef k_count);

/* ---- contract_direct.c ---- */
fusor_status contract_emit_direct(contract *c, fu_error *err); /* the whole kernel */

/* ---- contract_tile.c ---- */
/* What the tile's function is told: a block of 64-bit words in memory, its second parameter behind the argument block.
 * In registers, what is needed behind the products would be alive, and moved to memory and back, across them. Strides
 * in bytes. Element (i, k) of operand 0 is A_ROW * i + A_K * k behind A. The next panel is A_NEXT and A_NEXT_ROW * rows
 * behind it: one for packed panels, the other in place. B_NEXT: bytes to the panel of columns that is multiplied next,
 * which is prefetched (0: none), B_NEXT_STEP of them in each step (not of tiles). PAGE_HEAD, of a single row: bytes at
 * the begin of each page of operand 1 that are prefetched. The first FULL of the PANELS panels have mr rows, one behind
 * them ROWS_LEFT. PARTIAL: their partial sums, one tile behind the other.
 * Only of the sweep: COLUMNS: whole panels of columns; SUMS and PARTIAL are theirs.
 * Only with several dims of k: after LEFT elements along k, then after each RUN, the step is A_JUMP, B_JUMP. Only with
 * DOT_BF16: SUMS is a tile in memory. Only tiles: A_K is bytes from one step to the next; what is made is the part of
 * COUNT words that begins FROM words behind the K block, whose first and last part IS_BEGIN and IS_END tell; between
 * them, sums are in SUMS, one tile behind the other; CONFIGURED, which the function sets too: the rows that registers are
 * configured for, -1 for none. */
enum {
    CONTRACT_A,
    CONTRACT_A_ROW,
    CONTRACT_A_K,
    CONTRACT_A_NEXT,
    CONTRACT_A_NEXT_ROW,
    CONTRACT_B,
    CONTRACT_B_K,
    CONTRACT_B_NEXT,
    CONTRACT_B_NEXT_STEP,
    CONTRACT_PAGE_HEAD,
    CONTRACT_COUNT,
    CONTRACT_M0,
    CONTRACT_PANELS,
    CONTRACT_ROWS_LEFT,
    CONTRACT_FULL,
    CONTRACT_N0,
    CONTRACT_BATCH,
    CONTRACT_PARTIAL,
    CONTRACT_IS_LATER,
    CONTRACT_IS_LAST,
    CONTRACT_SUMS,
    CONTRACT_FROM,
    CONTRACT_IS_BEGIN,
    CONTRACT_IS_END,
    CONTRACT_CONFIGURED,
    CONTRACT_COLUMNS,
    CONTRACT_LEFT,
    CONTRACT_RUN,
    CONTRACT_A_JUMP,
    CONTRACT_B_JUMP,
    CONTRACT_TILE_PARAMETERS
};
/* Into its function; a word of its block, loaded here. */
contract_outer *contract_begin_tile(contract *c, contract_function f);
LLVMValueRef contract_tile_in(contract *c, int word);
LLVMValueRef contract_panel_rows(contract *c, LLVMValueRef panel); /* of rows: how many it has, by FULL and ROWS_LEFT */
void contract_tell(contract *c, LLVMValueRef told, int word, LLVMValueRef value); /* a word of the block `told` */
void contract_emit_tiles(contract *c);
/* contract_amx.c: c->is_tile. */
void contract_emit_amx_tile(contract *c);
/* Operand 0 where it is rows of memory, into a panel: `rows` rows of it; and its head. */
void contract_copy_tiles(contract *c, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef rows, LLVMValueRef k_first,
                         LLVMValueRef k_count);
LLVMValueRef contract_tile_load(contract *c, LLVMValueRef ptr, int align);
/* acc + the products of vectors of words; is_slow: as of contract_dot. */
LLVMValueRef contract_mul_add(contract *c, LLVMValueRef a, LLVMValueRef b, LLVMValueRef acc, bool is_slow);
/* contract_sweep.c: where c->k->can_sweep. */
void contract_emit_sweep(contract *c);

/* ---- contract_dot.c: words of several elements ---- */
/* Fills in what follows from c->dot. */
void contract_set_dot(contract *c);
/* acc + the products of the words of a and b (vectors): of their elements in order. is_slow: DOT_BF16, by fma. */
LLVMValueRef contract_dot(contract *c, LLVMValueRef acc, LLVMValueRef a, LLVMValueRef b, bool is_slow);
/* Are the bits of operand 0 changed (elements ^ 0x80) while they are packed? */
bool contract_is_flipped(const contract *c);
/* What fills a word of an operand behind the last k: products with it change no sum. An element, zero-extended. */
int contract_padding(const contract *c, int operand);
/* (panel, its head, words along k, rows): writes the head in front of the panel. Where an operand has heads[]. */
void contract_emit_head(contract *c);
/* contract_pack of operand 0 where c->copies_a and it is no tile; rows: of them. */
void contract_copy_rows(contract *c, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef rows, LLVMValueRef k_first,
                        LLVMValueRef k_count);
/* Words [lanes] of elements [group][lanes], as integers. */
LLVMValueRef contract_words(contract *c, int operand, const LLVMValueRef *element);
/* A vector register of words, read from adjacent elements in memory. */
LLVMValueRef contract_memory_words(contract *c, int operand, LLVMValueRef words);
/* i1: may the tile of these panels be made by the instruction? */
LLVMValueRef contract_is_exact(contract *c, LLVMValueRef pa, LLVMValueRef pb);

/* ---- contract_epilogue.c ---- */
/* (args, batch, m0, n0, rows, tile): what becomes of rows of sums at `tile`, whose first element is at m0, n0. */
void contract_emit_epilogue(contract *c);
/* The same from registers, in the tile's function, for tiles that have all its columns: is the program simple enough,
 * and can the end of a row be stored; what it needs of columns n0...; then one row after the other. */
typedef struct contract_columns contract_columns;
bool contract_ends_in_registers(const contract *c);
LLVMValueRef contract_is_whole(contract *c, LLVMValueRef n0); /* i1: has the tile at n0 all its columns? */
contract_columns *contract_epilogue_begin(contract *c, LLVMValueRef n0);
void contract_epilogue_row(contract *c, contract_columns *columns, LLVMValueRef m, LLVMValueRef *sum);
/* Are the sums bf16 that are only stored, where an instruction rounds to those? It takes subnormals for 0; what rounds
 * again in registers gains nothing by it. */
bool contract_stores_bf16(const contract *c);
/* Is there an operator behind the product that takes many instructions? Or such a one, or a rounding to halves? */
bool contract_has_costly_epilogue(const contract *c);
bool contract_has_long_epilogue(const contract *c);
/* At one point, e->lanes wide; sum: its totals, in the accumulator type. */
void contract_finish(contract *c, contract_point *at, LLVMValueRef sum);

/* ---- contract_row.c: a row program behind the contraction ---- */
/* em_load_args, and where the kept rows are that c->whole has no buffer for. */
void contract_load_args(contract *c, LLVMValueRef args);
/* (args, begin, end, scratch): the row program of complete rows. */
fusor_status contract_emit_rows(contract *c, fu_error *err);
/* i1: phase 2 makes the rows. Else a block is as wide as n, and these two are around it: before its first store, and
 * where all of its rows are complete. Up to most_rows kept rows lie at end_of_scratch. */
LLVMValueRef contract_rows_later(contract *c);
void contract_begin_block(contract *c, LLVMValueRef end_of_scratch, LLVMValueRef batch, LLVMValueRef m_first,
                          LLVMValueRef most_rows);
void contract_end_block(contract *c, LLVMValueRef end_of_scratch, LLVMValueRef batch, LLVMValueRef m_first,
                        LLVMValueRef m_end, LLVMValueRef most_rows);
void contract_emit_row_phase(contract *c);
/* Direct form: the same around the tiles of a batch. */
void contract_begin_batch(contract *c, LLVMValueRef kept, LLVMValueRef batch);
void contract_end_batch(contract *c, LLVMValueRef kept, LLVMValueRef batch);

/* ---- contract_pack.c ---- */

/* Emits: dst[k][r] (with a dot, dst[k / group][r] and there element k % group) = operand at row first + r, column
 * k_first + k for k < k_count, r < rows (mr for operand 0 along m, nr for operand 1 along n). Rows past the end of the
 * dim repeat valid ones or are 0. Up to lanes * (rows + 1) elements behind the panel are overwritten where
 * rows is no multiple of the vector length. */
bool contract_is_plain_load(contract *c, int operand);
void contract_pack(contract *c, int operand, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef k_first,
                   LLVMValueRef k_count);
bool contract_packs_by_rows(contract *c); /* operand 0, where a word is one element */
/* The same of operand 0 of tiles where its program is more than a load, and where it is packed by rows. rows: of them;
 * in tiles others repeat the last. */
void contract_pack_values(contract *c, LLVMValueRef dst, LLVMValueRef first, LLVMValueRef rows, LLVMValueRef k_first,
                          LLVMValueRef k_count);
#endif
