/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* contract_sweep.c: few rows by a large matrix that is read where it lies (IR_CONTRACT_B_SWEPT). A register tile would
 * read a strip of each row of the matrix, often a page from the one before, and wait for each; here some rows of the
 * matrix at a time are read from end to end, as fast as they come, and the sums of all columns of the block wait in L1:
 *
 *   sums = 0; for STEPS rows of operand 1: for two rows of operand 0: for each whole panel: sums += products
 *   not the first K block: add what the blocks before left
 *   not the last: to the partial sums; else by way of contract_epilogue.c to the outputs
 *
 * Each sum takes its products in the order that the register tile does. What is behind the last whole panel is its.
 * (f32, one thread of a core with 512 KB of L2, 2, 4 and 8 rows by 1024 x 1024, over the tile in place: 0.29, 0.63 and
 * 0.55 of the time; the read alone is 0.7 of the first.) */
#include "jit/contract.h"

enum { ROWS_AT_ONCE = 2, STEPS = IR_SWEPT_STEPS };

typedef struct sweep {
    contract *c;
    LLVMValueRef columns;            /* whole panels of them */
    LLVMValueRef panels;             /* of rows */
    LLVMValueRef b, b_k;             /* of the block; bytes to the next row */
    LLVMValueRef a, a_row, a_k;      /* of the panel of rows; bytes to the next row, and along k */
    LLVMValueRef sums;               /* of the panel of rows, in the first panel of columns */
    LLVMValueRef tile, column_bytes; /* bytes of a tile of sums; and of all those of a panel of columns */
} sweep;

/* What the products of two rows need: of operand 0, bytes to the second row and along k; of operand 1, bytes to the
 * next row and those of a row; the sums of the first row, and bytes to those of the second and from one panel of
 * columns to the next. */
enum { PAIR_A, PAIR_A_ROW, PAIR_A_K, PAIR_B, PAIR_B_K, PAIR_BYTES, PAIR_SUMS, PAIR_ROW, PAIR_NEXT, PAIR_PARAMETERS };

/* (words PAIR_*): sums += products of two rows with STEPS rows of operand 1. */
static void emit_pair(contract *c) {
    emit *e = c->e;
    LLVMTypeRef type[PAIR_PARAMETERS];
    for (int i = 0; i < PAIR_PARAMETERS; i++)
        type[i] = i == PAIR_A || i == PAIR_B || i == PAIR_SUMS ? e->t_ptr : e->t_i64;
    contract_outer *o = contract_begin(c, PAIR, "pair", type, PAIR_PARAMETERS, true);
    LLVMValueRef in[PAIR_PARAMETERS];
    LLVMGetParams(e->fn, in);
    LLVMValueRef a[ROWS_AT_ONCE][STEPS], b[STEPS];
    for (int i = 0; i < ROWS_AT_ONCE; i++) {
        LLVMValueRef at = i ? bytes_behind(c, in[PAIR_A], in[PAIR_A_ROW]) : in[PAIR_A];
        for (int j = 0; j < STEPS; j++) {
            a[i][j] = em_load_splat(e, c->t_vec, at, (unsigned)c->acc_bytes);
            at = bytes_behind(c, at, in[PAIR_A_K]);
        }
    }
    for (int j = 0; j < STEPS; j++) b[j] = j ? bytes_behind(c, b[j - 1], in[PAIR_B_K]) : in[PAIR_B];
    em_loop l = em_for(e, num(c, 0), in[PAIR_BYTES], num(c, c->nr * c->acc_bytes));
    LLVMValueRef sums = em_loop_phi(e, &l, in[PAIR_SUMS]);
    for (int v = 0; v < c->nv; v++) {
        LLVMValueRef at[ROWS_AT_ONCE], sum[ROWS_AT_ONCE];
        for (int i = 0; i < ROWS_AT_ONCE; i++) {
            at[i] = element(c, i ? bytes_behind(c, sums, in[PAIR_ROW]) : sums, num(c, v * c->v_lanes));
            sum[i] = contract_tile_load(c, at[i], c->v_lanes * c->acc_bytes);
        }
        for (int j = 0; j < STEPS; j++) {
            LLVMValueRef behind = em_add(e, l.i, num(c, v * c->v_lanes * c->acc_bytes)),
                         x = contract_tile_load(c, bytes_behind(c, b[j], behind), c->acc_bytes);
            for (int i = 0; i < ROWS_AT_ONCE; i++) sum[i] = contract_mul_add(c, a[i][j], x, sum[i], false);
        }
        for (int i = 0; i < ROWS_AT_ONCE; i++)
            LLVMSetAlignment(LLVMBuildStore(e->b, sum[i], at[i]), (unsigned)(c->v_lanes * c->acc_bytes));
    }
    em_loop_next(e, sums, bytes_behind(c, sums, in[PAIR_NEXT]));
    em_end(e, &l);
    contract_end(c, o);
}

/* The panel of rows that `panel` is, and how many it has. */
static LLVMValueRef enter_panel(sweep *s, LLVMValueRef panel) {
    contract *c = s->c;
    emit *e = c->e;
    LLVMValueRef mr = num(c, c->mr), next = em_add(e, contract_tile_in(c, CONTRACT_A_NEXT),
                                                   em_mul(e, contract_tile_in(c, CONTRACT_A_NEXT_ROW), mr));
    s->a = bytes_behind(c, contract_tile_in(c, CONTRACT_A), em_mul(e, panel, next));
    s->sums = bytes_behind(c, contract_tile_in(c, CONTRACT_SUMS), em_mul(e, panel, s->tile));
    return contract_panel_rows(c, panel);
}

/* All rows, STEPS of k from k on: in pairs, of which the last may be one row twice, with the same sums. */
static void emit_steps(sweep *s, LLVMValueRef k) {
    contract *c = s->c;
    emit *e = c->e;
    LLVMValueRef zero = num(c, 0), one = num(c, 1), row_bytes = num(c, c->nr * c->acc_bytes);
    em_loop lp = em_for(e, zero, s->panels, one);
    LLVMValueRef rows = enter_panel(s, lp.i);
    em_loop lr = em_for(e, zero, rows, num(c, ROWS_AT_ONCE));
    LLVMValueRef has_two = em_icmp(e, LLVMIntSLT, em_add(e, lr.i, one), rows);
    LLVMValueRef in[PAIR_PARAMETERS] = {
        [PAIR_A] = bytes_behind(c, s->a, em_add(e, em_mul(e, lr.i, s->a_row), em_mul(e, k, s->a_k))),
        [PAIR_A_ROW] = em_select(e, has_two, s->a_row, zero),
        [PAIR_A_K] = s->a_k,
        [PAIR_B] = bytes_behind(c, s->b, em_mul(e, k, s->b_k)),
        [PAIR_B_K] = s->b_k,
        [PAIR_BYTES] = em_mul(e, s->columns, row_bytes),
        [PAIR_SUMS] = bytes_behind(c, s->sums, em_mul(e, lr.i, row_bytes)),
        [PAIR_ROW] = em_select(e, has_two, row_bytes, zero),
        [PAIR_NEXT] = s->column_bytes,
    };
    contract_call(c, PAIR, in, PAIR_PARAMETERS);
    em_end(e, &lr);
    em_end(e, &lp);
}

/* to = a + b, vector by vector; or a, or 0 where that is NULL. */
static void emit_vectors(const sweep *s, LLVMValueRef to, LLVMValueRef a, LLVMValueRef b) {
    contract *c = s->c;
    emit *e = c->e;
    const int bytes = c->v_lanes * c->acc_bytes;
    em_loop l = em_for(e, num(c, 0), em_mul(e, s->columns, s->column_bytes), num(c, bytes));
    LLVMValueRef x = a ? contract_tile_load(c, bytes_behind(c, a, l.i), bytes) : LLVMConstNull(c->t_vec);
    if (b) x = contract_add(c, x, contract_tile_load(c, bytes_behind(c, b, l.i), bytes));
    LLVMSetAlignment(LLVMBuildStore(e->b, x, bytes_behind(c, to, l.i)), (unsigned)bytes);
    em_end(e, &l);
}

/* The sums of the last K block to the outputs. */
static void emit_outputs(const sweep *s, LLVMValueRef sums) {
    contract *c = s->c;
    emit *e = c->e;
    LLVMValueRef zero = num(c, 0), one = num(c, 1);
    em_loop lp = em_for(e, zero, s->panels, one);
    LLVMValueRef m0 = em_add(e, contract_tile_in(c, CONTRACT_M0), em_mul(e, lp.i, num(c, c->mr)));
    LLVMValueRef rows = contract_panel_rows(c, lp.i);
    em_loop lj = em_for(e, zero, s->columns, one);
    LLVMValueRef n0 = em_add(e, contract_tile_in(c, CONTRACT_N0), em_mul(e, lj.i, num(c, c->nr)));
    LLVMValueRef behind = em_add(e, em_mul(e, lj.i, s->column_bytes), em_mul(e, lp.i, s->tile));
    contract_call(c, FINISH,
                  (LLVMValueRef[]){LLVMGetParam(e->fn, 0), contract_tile_in(c, CONTRACT_BATCH), m0, n0, rows,
                                   bytes_behind(c, sums, behind)},
                  6);
    em_end(e, &lj);
    em_end(e, &lp);
}

/* (args, words): the whole panels of a block, a K block of them. */
void contract_emit_sweep(contract *c) {
    emit *e = c->e;
    emit_pair(c);
    LLVMTypeRef type[2] = {e->t_ptr, e->t_ptr};
    contract_outer *o = contract_begin(c, SWEEP, "sweep", type, 2, false);
    sweep s = {.c = c,
               .columns = contract_tile_in(c, CONTRACT_COLUMNS),
               .panels = contract_tile_in(c, CONTRACT_PANELS),
               .b = contract_tile_in(c, CONTRACT_B),
               .b_k = contract_tile_in(c, CONTRACT_B_K),
               .a_row = contract_tile_in(c, CONTRACT_A_ROW),
               .a_k = contract_tile_in(c, CONTRACT_A_K),
               .tile = num(c, (int64_t)c->mr * c->nr * c->acc_bytes)};
    s.column_bytes = em_mul(e, s.panels, s.tile);
    LLVMValueRef sums = contract_tile_in(c, CONTRACT_SUMS), count = contract_tile_in(c, CONTRACT_COUNT);
    emit_vectors(&s, sums, NULL, NULL);
    em_loop lk = em_for(e, num(c, 0), count, num(c, STEPS));
    emit_steps(&s, lk.i);
    em_end(e, &lk);

    LLVMValueRef partial = contract_tile_in(c, CONTRACT_PARTIAL);
    em_branch later = em_if(e, contract_tile_in(c, CONTRACT_IS_LATER));
    emit_vectors(&s, sums, partial, sums);
    em_endif(e, &later);
    em_branch last = em_if(e, contract_tile_in(c, CONTRACT_IS_LAST));
    emit_outputs(&s, sums);
    em_else(e, &last);
    emit_vectors(&s, partial, sums, NULL);
    em_endif(e, &last);
    contract_end(c, o);
}
