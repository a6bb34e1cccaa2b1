/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_AMX_H
#define JIT_AMX_H
/* Products of matrices by tile registers (AMX), for kernels that have an operand in rows of words along k and the other
 * as words of 32 columns: contract_amx.c, window_amx.c, attention_amx.c. A kernel configures them when rows change, and
 * releases them behind the last product. (Configuring takes 167 cycles, as long as the products of ten tiles; measured.) */
#include "jit/emit.h"

enum { AMX_SIDE = 16, AMX_ROW_BYTES = 64, AMX_COLUMNS = 2 * AMX_SIDE, AMX_LINE_BYTES = AMX_COLUMNS * 4 };
enum { AMX_AHEAD = 4, AMX_PREFETCHED_ROWS = 4 };

typedef struct amx_product {
    const char *name;           /* of the instruction */
    LLVMValueRef rows, is_high; /* of operand 0, up to 32; i1: more than 16 */
    LLVMValueRef is_whole;      /* i1: configured whole; NULL: always */
    LLVMValueRef is_wide;       /* i1: more than 16 columns; NULL: always */
    /* Operand 0: rows a_row bytes apart, of which the next AMX_ROW_BYTES are a_step behind. Operand 1:
     * [words][AMX_COLUMNS], b_row bytes from one word's columns to the next one's (0: AMX_LINE_BYTES). */
    LLVMValueRef a, a_row, a_step, b;
    int b_row;
    /* Where not NULL: where each step of operand 1 lies, an i64 of bytes behind b; its words are b_pitch bytes apart.
     * One more entry is read, and nothing at what it says. */
    LLVMValueRef table, b_pitch;
    LLVMValueRef a_stays; /* i1: operand 0 is read again soon, from L1, or with its neighbours */
    LLVMValueRef
        more[2]; /* NULL, or what is multiplied with operand 0 too, after operand 1 in each step, into the same sums */
    /* Where not NULL, what is wanted in L2 soon: each step prefetches AMX_AHEAD lines, `ahead_step` bytes behind those of
     * the step before. */
    LLVMValueRef ahead, ahead_step;
    /* Where not NULL, the first of the rows that results go to, wanted in L1 then: until prefetch_end (an i64), each step
     * prefetches prefetch_lines lines of AMX_PREFETCHED_ROWS of them, the others prefetch_row bytes behind it,
     * prefetch_step bytes behind those
     * of the step before. */
    LLVMValueRef prefetch, prefetch_row[AMX_PREFETCHED_ROWS - 1], prefetch_step, prefetch_end;
    int prefetch_lines;
    /* Operands are sums of two bf16 (ir/schedule.h, TILE_CUT): of each step of operand 0 there are 32 rows of high
     * parts, then those of low ones, and a_step is from one such pair to the next; so are the words of operand 1. */
    bool is_cut;
    void (*beside)(emit *e, void *user); /* NULL, or what each step has beside its products: it may call functions */
    /* NULL, or the same, once: behind all steps but the last two, and before any sums are stored (behind these, what it
     * loads would wait for stores of the same place in a page). */
    void (*before_stores)(emit *e, void *user);
    void *user;
    LLVMValueRef words;    /* along k, a multiple of AMX_SIDE, of twice that where elements are cut */
    LLVMValueRef to;       /* sums [rows][AMX_COLUMNS] */
    LLVMValueRef to_row;   /* bytes from one of those rows to the next; NULL: AMX_LINE_BYTES */
    LLVMValueRef is_begin; /* i1: sums begin at 0, else at those `from`, [rows][AMX_COLUMNS]; NULL: at 0 */
    LLVMValueRef from;
    LLVMValueRef scale; /* amx_multiply_bf16_slowly: what elements of operand 1 are multiplied by; NULL: 1 */
} amx_product;
/* The instruction that multiplies elements of types a and b in this way. */
const char *amx_product_name(ir_dot dot, ir_dtype a, ir_dtype b);
/* Tiles for p->rows rows (none count as one). What the registers held is lost. */
void amx_configure(emit *e, const amx_product *p);
void amx_configure_whole(emit *e); /* for all rows; fewer may be made, if more can be read */
void amx_multiply(emit *e, const amx_product *p);
/* The same sums of bf16 (without more; cut or not) in the same order (ir/schedule.h) by fma, which keeps subnormals,
 * and infinities of elements that are cut. */
void amx_multiply_bf16_slowly(emit *e, const amx_product *p);
void amx_release(emit *e);
#endif
