/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* contract_row.c: what follows a contraction on complete rows: softmax, norms, sums, the place of the largest element.
 * The tile program is a contraction whose outputs are the kept values (ir/kernel_rows.c); the row program is a row
 * kernel that reads them, in a function of its own: the same code as a row kernel of its own would have, so the same
 * bits.
 *
 *   a block as wide as n:   kept rows are in the worker's scratch; when the last K block is done, the worker goes on
 *                           with them
 *
 *   else:                   kept rows are in args.kept, and phase 2 deals them out again
 *
 *   direct form:            the rows of each batch are kept in scratch
 *
 * Which of the first two is a run-time field. Both programs find the address of the kept rows, as if row 0 were there,
 * in slots at the end of the head of scratch. */
#include "jit/contract.h"

static void load_slots(contract *c) {
    emit *e = c->e;
    const int64_t slots = ir_kernel_contract_head_bytes(c->whole) - IR_ROW_SLOTS;
    for (int b = c->whole->n_buffers; b < e->k->n_buffers; b++) {
        LLVMValueRef at = em_gep(e, e->scratch, e->t_i8, num(c, slots + 8 * (b - c->whole->n_buffers)));
        e->base[b] = LLVMBuildLoad2(e->b, e->t_ptr, at, "");
    }
}

void contract_load_args(contract *c, LLVMValueRef args) {
    emit *e = c->e;
    em_load_args(e, args);
    if (!ir_kernel_has_rows(c->whole)) return;
    load_slots(c);
    for (int b = c->whole->n_buffers; b < e->k->n_buffers; b++) {
        LLVMValueRef run = num(c, 1);
        for (int d = c->dim_n; d >= 0; d--) {
            e->stride[b][d] = run;
            run = d == c->dim_n ? e->size[d] : em_mul(e, run, e->size[d]);
        }
        if (c->dim_k < e->k->n_dims) e->stride[b][c->dim_k] = num(c, 0);
    }
}

static LLVMValueRef round_up_64(emit *e, LLVMValueRef bytes) {
    return em_and(e, em_add(e, bytes, em_i64s(e, 63)), em_i64s(e, -64));
}

/* Makes the slots say where row 0 is, for `rows` kept rows from row `first` on at `at`; the first byte behind them. */
static LLVMValueRef set_slots(contract *c, LLVMValueRef at, LLVMValueRef first, LLVMValueRef rows) {
    emit *e = c->e;
    int value[IR_ROW_VALUES], n = ir_kernel_row_values(c->whole, value);
    const int64_t slots = ir_kernel_contract_head_bytes(c->whole) - IR_ROW_SLOTS;
    for (int i = 0; i < n; i++) {
        LLVMValueRef row_bytes = em_mul(e, c->n, num(c, ir_dtypes[c->whole->inst[value[i]].dtype].bytes));
        LLVMValueRef row_0 = em_gep(e, at, e->t_i8, em_sub(e, num(c, 0), em_mul(e, first, row_bytes)));
        LLVMBuildStore(e->b, row_0, em_gep(e, e->scratch, e->t_i8, num(c, slots + 8 * i)));
        at = em_gep(e, at, e->t_i8, round_up_64(e, em_mul(e, rows, row_bytes)));
    }
    return at;
}

static LLVMValueRef count_rows(contract *c) {
    LLVMValueRef rows = c->m;
    for (int i = 0; i < c->n_batch; i++) rows = em_mul(c->e, rows, c->e->size[c->batch[i]]);
    return rows;
}

/* (args, begin, end, scratch): rows [begin, end), which are complete. */
fusor_status contract_emit_rows(contract *c, fu_error *err) {
    emit *e = c->e;
    LLVMTypeRef parameter[4] = {e->t_ptr, e->t_i64, e->t_i64, e->t_ptr};
    const bool was_optimized = e->is_optimized;
    contract_outer *o = contract_begin(c, ROWS, "rows", parameter, 4, true);
    ir_kernel *k = FU_NEW(e->arena, ir_kernel);
    ir_kernel_row_program(c->whole, k);
    em_take_program(e, k);
    e->inner.n = 0;
    e->is_optimized = false;
    e->lanes = 1;
    contract_load_args(c, LLVMGetParam(e->fn, 0));
    e->scratch = LLVMGetParam(e->fn, 3);
    FU_TRY(row_emit(e, err, LLVMGetParam(e->fn, 1), LLVMGetParam(e->fn, 2)));
    if (!e->is_optimized) em_leave_unoptimized(e, e->fn);
    contract_end(c, o);
    e->is_optimized = was_optimized;
    return FUSOR_OK;
}

/* Rows [begin, end), kept among up to most_rows at `kept`; what lies behind them is the row program's. */
static void run_rows(contract *c, LLVMValueRef kept, LLVMValueRef begin, LLVMValueRef end, LLVMValueRef most_rows) {
    emit *e = c->e;
    int value[IR_ROW_VALUES], n = ir_kernel_row_values(c->whole, value);
    for (int i = 0; i < n; i++) {
        LLVMValueRef row_bytes = em_mul(e, c->n, num(c, ir_dtypes[c->whole->inst[value[i]].dtype].bytes));
        kept = em_gep(e, kept, e->t_i8, round_up_64(e, em_mul(e, most_rows, row_bytes)));
    }
    contract_call(c, ROWS, (LLVMValueRef[]){e->args, begin, end, kept}, 4);
}

void contract_begin_block(contract *c, LLVMValueRef end_of_scratch, LLVMValueRef batch, LLVMValueRef m_first,
                          LLVMValueRef most_rows) {
    emit *e = c->e;
    LLVMValueRef first = em_add(e, em_mul(e, batch, c->m), m_first);
    em_branch later = em_if(e, contract_rows_later(c));
    (void)set_slots(c, e->kept, num(c, 0), count_rows(c));
    em_else(e, &later);
    (void)set_slots(c, end_of_scratch, first, most_rows);
    em_endif(e, &later);
}

void contract_end_block(contract *c, LLVMValueRef end_of_scratch, LLVMValueRef batch, LLVMValueRef m_first,
                        LLVMValueRef m_end, LLVMValueRef most_rows) {
    emit *e = c->e;
    em_branch now = em_if(e, em_xor(e, contract_rows_later(c), LLVMConstInt(e->t_i1, 1, 0)));
    LLVMValueRef first = em_mul(e, batch, c->m);
    run_rows(c, end_of_scratch, em_add(e, first, m_first), em_add(e, first, m_end), most_rows);
    em_endif(e, &now);
}

void contract_begin_batch(contract *c, LLVMValueRef kept, LLVMValueRef batch) {
    (void)set_slots(c, kept, em_mul(c->e, batch, c->m), c->m);
    load_slots(c); /* the tiles of this form are in the same function */
}

void contract_end_batch(contract *c, LLVMValueRef kept, LLVMValueRef batch) {
    LLVMValueRef first = em_mul(c->e, batch, c->m);
    run_rows(c, kept, first, em_add(c->e, first, c->m), c->m);
}

LLVMValueRef contract_rows_later(contract *c) {
    return em_icmp(c->e, LLVMIntNE, c->e->tune[IR_TUNE_CONTRACT_ROWS], num(c, 0));
}

void contract_emit_row_phase(contract *c) {
    emit *e = c->e;
    LLVMValueRef grain = e->tune[IR_TUNE_CONTRACT_ROWS], rows = count_rows(c);
    (void)set_slots(c, e->kept, num(c, 0), rows);
    LLVMValueRef end = em_min(e, em_mul(e, e->tile_end, grain), rows);
    LLVMValueRef scratch = em_gep(e, e->scratch, e->t_i8, num(c, ir_kernel_contract_head_bytes(c->whole)));
    contract_call(c, ROWS, (LLVMValueRef[]){e->args, em_mul(e, e->tile_begin, grain), end, scratch}, 4);
}
