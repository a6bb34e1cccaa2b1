/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* reduce.c: reduce kernels, in two phases with a barrier between them.
 *
 *   phase 0     a unit is one partial result of one row (column form: and a chunk of columns):
 *               all its reductions at once, and the stores of values per element
 *
 *   phase 1     a unit is a row (and a chunk of columns):
 *               combines the partial results and evaluates what depends on them
 *
 * Results of as many rows as there are lanes are made at once where they can be (reduce_lanes.c).
 *
 * Rows that are known to be one partial result are finished in phase 0, and there is no other (arg-reductions: in phase
 * 0 wherever they turn out to be one, since each row is searched for its extreme value at the end); those of a few
 * elements several at once (reduce_short.c). The inner form is here; the column form is in reduce_column.c. */
#include "jit/reduce_common.h"

static void finish_row(red *r, red_sweep *s, LLVMValueRef q);

static bool searches(const red_sweep *s) {
    for (int a = 0; a < s->n_acc; a++)
        if (s->find[a]) return true;
    return false;
}

/* is_whole: a row is one partial result and is finished at once. */
static void emit_partials(red *r, red_sweep *s, bool is_whole) {
    emit *e = r->e;
    LLVMValueRef grain = e->tune[IR_TUNE_REDUCE_GRAIN], begin = em_mul(e, e->tile_begin, grain);
    LLVMValueRef units = em_mul(e, r->rows, r->partials), end = em_min(e, em_mul(e, e->tile_end, grain), units);
    LLVMValueRef zero = em_i64s(e, 0), one = em_i64s(e, 1), slot[s->n_acc + 1], q, i;
    red_divide(e, begin, em_max(e, r->partials, one), &q, &i);
    em_loop l = em_for(e, begin, end, one);
    q = em_loop_phi(e, &l, q); /* counted along: no division a unit */
    i = em_loop_phi(e, &l, i);
    for (int a = 0; a < s->n_acc; a++) {
        LLVMValueRef of_reduction = em_mul(e, em_i64s(e, s->acc[a]), units);
        slot[a] = red_slot(e, e->shared, em_add(e, of_reduction, l.i));
    }
    red_at at = {r, NULL, NULL, NULL};
    em_values row;
    em_values_init(&row, red_load_value, &at);
    red_enter_row(r, q);
    em_branch is_short = {0};
    const bool finds_short = red_finds_short(r, s);
    if (finds_short) {
        red_short w;
        red_sweep_row(s->find[0], &row);
        em_values of_short = row;
        is_short = em_if(e, red_short_extreme(s, &row, &w));
        of_short.at[r->reduction[s->acc[0]]] = red_short_place(&row, &w);
        red_finish(r, &of_short, &at);
        em_else(e, &is_short);
    }
    red_enter_block(r, i);
    red_sweep_block(s, &row, slot);
    red_leave_block(r);
    if (is_whole) {
        finish_row(r, s, q);
    } else if (searches(s)) { /* as long as the row is in the first-level cache */
        LLVMValueRef partials = r->partials;
        em_branch whole = em_if(e, red_is_one_partial(r));
        r->partials = em_i64s(e, 1);
        finish_row(r, s, q);
        r->partials = partials;
        em_endif(e, &whole);
    }
    if (finds_short) em_endif(e, &is_short);
    LLVMValueRef next = em_add(e, i, one), is_past = em_icmp(e, LLVMIntEQ, next, r->partials);
    em_loop_next(e, q, em_select(e, is_past, em_add(e, q, one), q));
    em_loop_next(e, i, em_select(e, is_past, zero, next));
    em_end(e, &l);
}

/* The row entered, number q. */
static void finish_row(red *r, red_sweep *s, LLVMValueRef q) {
    emit *e = r->e;
    red_at at = {r, NULL, NULL, NULL};
    em_values row;
    em_values_init(&row, red_load_value, &at);
    for (int a = 0; a < s->n_acc; a++) {
        LLVMValueRef number = em_add(e, em_mul(e, em_i64s(e, s->acc[a]), r->rows), q);
        LLVMValueRef first = red_slot(e, e->shared, em_mul(e, number, r->partials));
        row.at[r->reduction[s->acc[a]]] = red_result(s, a, &row, first);
    }
    red_finish(r, &row, &at);
}

static void emit_finish(red *r, red_sweep *s) {
    emit *e = r->e;
    LLVMValueRef grain = e->tune[IR_TUNE_REDUCE_FINISH_GRAIN];
    LLVMValueRef end = em_min(e, em_mul(e, e->tile_end, grain), r->rows);
    if (searches(s) || red_joins_units(r, s)) /* phase 0 has finished the rows */
        end = em_select(e, red_is_one_partial(r), em_i64s(e, 0), end);
    if (red_has_function_of_rows(r) && !searches(s)) {
        red_lanes_of_rows(r, s, em_mul(e, e->tile_begin, grain), end, false);
        return;
    }
    em_loop l = em_for(e, em_mul(e, e->tile_begin, grain), end, em_i64s(e, 1));
    red_enter_row(r, l.i);
    finish_row(r, s, l.i);
    em_end(e, &l);
}

fusor_status jit_emit_reduce(emit *e, fu_error *err) {
    red *r;
    red_sweep *s;
    FU_TRY(red_init(e, err, &r));
    for (int i = 0; i < e->k->n_insts; i++) {
        const ir_kinst *in = &e->k->inst[i];
        bool late = ir_kernel_is_reduce_op(in->op) ? r->pass[i] > 1 : r->is_element_store[i] && r->pass[i] > 0;
        if (late)
            return FU_FAIL(err, FUSOR_ERROR_INTERNAL,
                           "kernel instruction %%%d: uses a reduction's result per element; "
                           "that needs a row kernel",
                           i);
    }
    FU_TRY(red_sweep_new(r, 0, NULL, err, &s));
    red_find_stream(s);
    if (red_is_short(r) && !red_joins_short(r, s)) {
        LLVMValueRef grain = e->tune[IR_TUNE_REDUCE_GRAIN];
        red_short_rows(r, em_mul(e, e->tile_begin, grain), em_min(e, em_mul(e, e->tile_end, grain), r->rows));
        return FUSOR_OK;
    }
    if (ir_kernel_is_one_phase(e->k)) {
        LLVMValueRef grain = e->tune[IR_TUNE_REDUCE_GRAIN], end = em_mul(e, e->tile_end, grain);
        if (red_joins_units(r, s)) red_units(r, s, true);
        else if (red_has_function_of_rows(r) && !searches(s))
            red_lanes_of_rows(r, s, em_mul(e, e->tile_begin, grain), em_min(e, end, r->rows), true);
        else emit_partials(r, s, true);
        return FUSOR_OK;
    }
    em_branch first = em_if(e, em_icmp(e, LLVMIntEQ, e->phase, LLVMConstInt(e->t_i32, 0, 0)));
    if (r->v >= 0) red_column_partials(r, s);
    else if (red_joins_units(r, s)) red_units(r, s, false);
    else emit_partials(r, s, false);
    em_else(e, &first);
    if (r->v >= 0) red_column_finish(r);
    else emit_finish(r, s);
    em_endif(e, &first);
    /* Nests with rows of a few vectors wait for their counters in memory (64 rows of 128 times a vector, v3: 335 ns with
     * them there, 257 without, for 0.1 to 0.2 ms of compilation). */
    if (!red_joins_units(r, s)) em_demote_nests(e);
    return FUSOR_OK;
}
