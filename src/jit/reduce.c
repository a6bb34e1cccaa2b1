/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* reduce.c: reduce kernels, in two phases with a barrier between them.
 *
 *   phase 0     a unit is one partial result of one row (column form: and a chunk of columns):
 *               all its reductions at once, and the stores of values per element
 *
 *   phase 1     a unit is a row (and a chunk of columns):
 *               combines the partial results and evaluates what depends on them
 *
 * Where what is computed once a row is a function, a row's results go to an array for as many rows as there are lanes,
 * and then one vector of all these rows is finished at once: a row of 64 products takes less time than the function.
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

static LLVMValueRef is_one_partial(red *r) { return em_icmp(r->e, LLVMIntEQ, r->partials, em_i64s(r->e, 1)); }

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
    red_enter_block(r, i);
    red_sweep_block(s, &row, slot);
    red_leave_block(r);
    if (is_whole) {
        finish_row(r, s, q);
    } else if (searches(s)) { /* as long as the row is in the first-level cache */
        LLVMValueRef partials = r->partials;
        em_branch whole = em_if(e, is_one_partial(r));
        r->partials = em_i64s(e, 1);
        finish_row(r, s, q);
        r->partials = partials;
        em_endif(e, &whole);
    }
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

/* ---- what rows have one of, in vectors ---- */
typedef struct lane_rows {
    red *r;
    LLVMValueRef mask; /* of the rows; NULL: all lanes */
} lane_rows;

static LLVMValueRef load_of_rows(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    const lane_rows *at = user;
    const int dim = at->r->n_p - 1;
    (void)v;
    if (inst->op != IR_K_INDEX) return em_load(e, inst->index, em_i64s(e, 0), e->stride[inst->index][dim], at->mask);
    LLVMValueRef all = em_splat(e, at->r->index[inst->index]);
    return inst->index == dim && e->lanes > 1 ? em_add(e, all, red_lane_numbers(e, e->t_i64, 0)) : all;
}

static bool has_function_of_rows(const red *r, const red_sweep *s) {
    if (r->e->level->lanes == 1 || r->n_p == 0 || r->v >= 0 || r->has_access || searches(s)) return false;
    for (int i = 0; i < r->k->n_insts; i++) {
        const uint16_t op = r->k->inst[i].op;
        if (op < IR_OP_COUNT && ir_ops[op].flags & IR_COSTLY && red_is_row(r, i) && r->pass[i] > 0) return true;
    }
    return false;
}

/* The rows from the one entered on, whose results are in array[]. */
static void finish_lanes(red *r, const red_sweep *s, LLVMValueRef *array, LLVMValueRef first, LLVMValueRef mask) {
    emit *e = r->e;
    lane_rows at = {r, mask};
    em_values row;
    em_values_init(&row, load_of_rows, &at);
    for (int a = 0; a < s->n_acc; a++) {
        const int inst = r->reduction[s->acc[a]];
        const ir_dtype t = r->k->inst[inst].dtype;
        LLVMValueRef from = em_gep(e, array[a], em_memory_type(e, t), first);
        row.at[inst] = em_load_ptr(e, t, from, NULL, ir_dtypes[t].bytes);
    }
    for (int i = 0; i < r->k->n_insts; i++) {
        const ir_kinst *in = &r->k->inst[i];
        if (in->op != IR_K_STORE || r->is_element_store[i]) continue;
        em_store(e, in->index, em_value(e, &row, in->in[0]), em_i64s(e, 0), e->stride[in->index][r->n_p - 1], mask);
    }
}

/* Rows begin..end: each is reduced (whole: from its elements; else from its partial results), then groups of them are
 * finished. */
static void emit_lanes_of_rows(red *r, red_sweep *s, LLVMValueRef begin, LLVMValueRef end, bool is_whole) {
    emit *e = r->e;
    const int n = e->level->lanes;
    LLVMValueRef array[s->n_acc + 1], zero = em_i64s(e, 0), one = em_i64s(e, 1), lanes = em_i64s(e, n);
    for (int a = 0; a < s->n_acc; a++) {
        const ir_dtype t = r->k->inst[r->reduction[s->acc[a]]].dtype;
        array[a] = em_alloca(e, LLVMArrayType2(em_memory_type(e, t), (uint64_t)n), 64);
    }
    em_loop groups = em_for(e, begin, end, one);
    red_enter_row(r, groups.i);
    LLVMValueRef count = em_min(e, em_sub(e, end, groups.i), lanes);
    if (r->n_p > 1) count = em_min(e, count, em_sub(e, e->size[r->n_p - 1], r->index[r->n_p - 1]));
    em_loop l = em_for(e, zero, count, one);
    LLVMValueRef q = em_add(e, groups.i, l.i), slot[s->n_acc + 1];
    red_at at = {r, NULL, NULL, NULL};
    em_values row;
    em_values_init(&row, red_load_value, &at);
    red_enter_row(r, q);
    for (int a = 0; a < s->n_acc; a++) {
        LLVMValueRef number = em_add(e, em_mul(e, em_i64s(e, s->acc[a]), r->rows), q);
        slot[a] = red_slot(e, e->shared, em_mul(e, number, r->partials));
    }
    if (is_whole) {
        red_enter_block(r, zero);
        red_sweep_block(s, &row, slot);
        red_leave_block(r);
    }
    for (int a = 0; a < s->n_acc; a++) {
        const int inst = r->reduction[s->acc[a]];
        const ir_dtype t = r->k->inst[inst].dtype;
        LLVMValueRef to = em_gep(e, array[a], em_memory_type(e, t), l.i);
        em_store_ptr(e, t, red_result(s, a, &row, slot[a]), to, NULL, ir_dtypes[t].bytes);
    }
    em_end(e, &l);
    red_enter_row(r, groups.i);
    if (e->level->has_mask) {
        e->lanes = n;
        finish_lanes(r, s, array, zero, em_mask(e, count));
        e->lanes = 1;
    } else {
        em_branch all = em_if(e, em_icmp(e, LLVMIntEQ, count, lanes));
        e->lanes = n;
        finish_lanes(r, s, array, zero, NULL);
        e->lanes = 1;
        em_else(e, &all);
        em_loop each = em_for(e, zero, count, one);
        red_enter_row(r, em_add(e, groups.i, each.i));
        finish_lanes(r, s, array, each.i, NULL);
        em_end(e, &each);
        em_endif(e, &all);
    }
    groups.step = count;
    em_end(e, &groups);
}

static void emit_finish(red *r, red_sweep *s) {
    emit *e = r->e;
    LLVMValueRef grain = e->tune[IR_TUNE_REDUCE_FINISH_GRAIN];
    LLVMValueRef end = em_min(e, em_mul(e, e->tile_end, grain), r->rows);
    if (searches(s)) end = em_select(e, is_one_partial(r), em_i64s(e, 0), end); /* phase 0 has finished the rows */
    if (has_function_of_rows(r, s)) {
        emit_lanes_of_rows(r, s, em_mul(e, e->tile_begin, grain), end, false);
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
    if (red_is_short(r)) {
        LLVMValueRef grain = e->tune[IR_TUNE_REDUCE_GRAIN];
        red_short_rows(r, em_mul(e, e->tile_begin, grain), em_min(e, em_mul(e, e->tile_end, grain), r->rows));
        return FUSOR_OK;
    }
    FU_TRY(red_sweep_new(r, 0, NULL, err, &s));
    if (ir_kernel_is_one_phase(e->k)) {
        LLVMValueRef grain = e->tune[IR_TUNE_REDUCE_GRAIN], end = em_mul(e, e->tile_end, grain);
        if (has_function_of_rows(r, s))
            emit_lanes_of_rows(r, s, em_mul(e, e->tile_begin, grain), em_min(e, end, r->rows), true);
        else emit_partials(r, s, true);
        return FUSOR_OK;
    }
    em_branch first = em_if(e, em_icmp(e, LLVMIntEQ, e->phase, LLVMConstInt(e->t_i32, 0, 0)));
    if (r->v >= 0) red_column_partials(r, s);
    else emit_partials(r, s, false);
    em_else(e, &first);
    if (r->v >= 0) red_column_finish(r);
    else emit_finish(r, s);
    em_endif(e, &first);
    em_demote_nests(e);
    return FUSOR_OK;
}
