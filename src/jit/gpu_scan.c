/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_scan.c: running sums and products on a GPU: a thread takes a line, in the order of the column form of
 * ir/schedule.h. In column form adjacent threads have adjacent lines. */
#include "jit/gpu.h"
#include "jit/scan.h"

/* Element j of the scan; the block's total with it. */
static LLVMValueRef take(scan *s, LLVMValueRef j, LLVMValueRef c, LLVMValueRef before, LLVMValueRef total) {
    emit *e = s->e;
    LLVMValueRef place = s->is_reversed ? em_sub(e, em_sub(e, s->length, em_i64s(e, 1)), j) : j;
    red_at at = {s->r, place, c, NULL};
    em_values v;
    em_values_init(&v, red_load_value, &at);
    LLVMValueRef now = scan_combine(s, total, em_value(e, &v, s->inst->in[0]));
    v.at[s->number] = scan_combine(s, before, s->is_exclusive ? total : now);
    scan_store_values(s, &v, &at);
    return now;
}

static void emit_line(scan *s, LLVMValueRef c) {
    emit *e = s->e;
    LLVMValueRef block = em_i64s(e, IR_SCAN_COLUMN_BLOCK);
    scan_carry none = scan_no_carry(s), before = none;
    em_loop b = em_for(e, em_i64s(e, 0), s->length, block);
    before.high = em_loop_phi(e, &b, none.high);
    if (none.low) before.low = em_loop_phi(e, &b, none.low);
    em_loop l = em_for(e, b.i, em_min(e, em_add(e, b.i, block), s->length), em_i64s(e, 1));
    LLVMValueRef total = em_loop_phi(e, &l, scan_identity(s));
    em_loop_next(e, total, take(s, l.i, c, before.high, total));
    em_end(e, &l);
    scan_carry after = scan_carry_past(s, before, total);
    em_loop_next(e, before.high, after.high);
    if (none.low) em_loop_next(e, before.low, after.low);
    em_end(e, &b);
}

fusor_status gpu_emit_scan(emit *e, fu_error *err) {
    scan *s;
    FU_TRY(scan_init(e, err, &s));
    s->r->outer = s->r->partial = em_i64s(e, 0);
    gpu_span x = gpu_threads(e, 'x'), y = gpu_threads(e, 'y');
    bool is_column = s->r->v >= 0;
    em_loop rows = is_column ? em_for(e, y.first, s->r->rows, y.step) : em_for(e, x.first, s->r->rows, x.step);
    red_enter_row(s->r, rows.i);
    if (is_column) {
        em_loop columns = em_for(e, x.first, s->r->columns, x.step);
        emit_line(s, columns.i);
        em_end(e, &columns);
    } else {
        emit_line(s, NULL);
    }
    em_end(e, &rows);
    return FUSOR_OK;
}
