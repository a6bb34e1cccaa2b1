/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* window_pack.c: panels of a convolution's columns, for the register tile: where the operand's rows are short or their
 * elements apart, so that vectors of columns do not lie in memory. A panel is [k][nr]; columns go on from one row to
 * the next. */
#include "jit/llvm_compat.h"
#include "jit/window.h"

/* Some columns of one row: the first lies at `source`, where k is an offset of the table, and goes to `column`. */
typedef struct part {
    LLVMValueRef source, column, step; /* step: elements between columns */
} part;

/* A vector of columns from number v of the part on, for all k. mask: of columns; NULL: all. */
static void copy_vectors(window *w, const part *p, LLVMValueRef v, LLVMValueRef mask) {
    emit *e = w->e;
    LLVMValueRef from = element(w, p->source, em_mul(e, v, p->step)), to = em_add(e, p->column, v), lane[64];
    LLVMValueRef read[2] = {mask, mask}, apart = NULL;
    for (int i = 0; i < 2 && w->step == 2; i++) read[i] = window_active_elements(w, mask, 2, i);
    if (w->step != 1 && w->step != 2) { /* bytes from one column to the others */
        for (int i = 0; i < w->v_lanes; i++) lane[i] = num(w, i * w->bytes);
        apart = LLVMBuildMul(e->b, em_splat(e, p->step), LLVMConstVector(lane, (unsigned)w->v_lanes), "");
    }
    em_loop l = em_for(e, num(w, 0), w->kk, num(w, 1));
    LLVMValueRef at = em_gep(e, from, e->t_i8, LLVMBuildLoad2(e->b, e->t_i64, em_gep(e, w->table, e->t_i64, l.i), "")),
                 x;
    if (apart) {
        LLVMValueRef all = LLVMConstAllOnes(LLVMVectorType(e->t_i1, (unsigned)w->v_lanes));
        x = compat_masked_load(e->mod, e->b, COMPAT_SCATTERED, w->t_vec, em_gep(e, at, e->t_i8, apart),
                               mask ? mask : all, LLVMConstNull(w->t_vec), (unsigned)w->bytes);
    } else x = window_load_columns(w, at, 0, w->step, read);
    LLVMValueRef dst = element(w, w->panel, em_add(e, em_mul(e, l.i, num(w, w->nr)), to));
    if (mask) compat_masked_store(e->mod, e->b, COMPAT_CONTIGUOUS, x, dst, mask, (unsigned)w->bytes);
    else LLVMSetAlignment(LLVMBuildStore(e->b, x, dst), (unsigned)w->bytes);
    em_end(e, &l);
}

/* One column for all k; source NULL: zeros. */
static void copy_column(window *w, const part *p, LLVMValueRef v) {
    emit *e = w->e;
    LLVMValueRef to = em_add(e, p->column, v), x = LLVMConstNull(w->t_acc), from = p->source;
    if (from) from = element(w, from, em_mul(e, v, p->step));
    em_loop l = em_for(e, num(w, 0), w->kk, num(w, 1));
    if (from) {
        LLVMValueRef at = LLVMBuildLoad2(e->b, e->t_i64, em_gep(e, w->table, e->t_i64, l.i), "");
        x = LLVMBuildLoad2(e->b, w->t_acc, em_gep(e, from, e->t_i8, at), "");
        LLVMSetAlignment(x, (unsigned)w->bytes);
    }
    LLVMValueRef dst = element(w, w->panel, em_add(e, em_mul(e, l.i, num(w, w->nr)), to));
    LLVMSetAlignment(LLVMBuildStore(e->b, x, dst), (unsigned)w->bytes);
    em_end(e, &l);
}

static void copy_columns(window *w, const part *p, LLVMValueRef columns) {
    emit *e = w->e;
    const int lanes = e->lanes;
    LLVMValueRef vl = num(w, w->v_lanes), whole = em_and(e, columns, num(w, -w->v_lanes));
    e->lanes = w->v_lanes;
    em_loop l = em_for(e, num(w, 0), whole, vl);
    copy_vectors(w, p, l.i, NULL);
    em_end(e, &l);
    if (e->level->has_mask) {
        em_branch b = em_if(e, em_icmp(e, LLVMIntSLT, whole, columns));
        copy_vectors(w, p, whole, em_mask(e, em_sub(e, columns, whole)));
        em_endif(e, &b);
    }
    e->lanes = lanes;
    if (e->level->has_mask) return;
    em_loop rest = em_for(e, whole, columns, num(w, 1));
    copy_column(w, p, rest.i);
    em_end(e, &rest);
}

void window_emit_panel(window *w) {
    emit *e = w->e;
    LLVMTypeRef parameter[4] = {e->t_ptr, e->t_ptr, e->t_i64, e->t_i64};
    window_outer *o = window_begin(w, PANEL, "panel", parameter, 4);
    LLVMValueRef from = LLVMGetParam(e->fn, 1), begin = LLVMGetParam(e->fn, 2), columns = LLVMGetParam(e->fn, 3);
    LLVMValueRef n = e->size[w->dim_n], zero = num(w, 0);
    part p = {.step = w->step ? num(w, w->step) : e->stride[w->operand][w->dim_n]};
    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b), head = em_block(e, "row"), body = em_block(e, "columns"),
                      done = em_block(e, "rest");
    LLVMBuildBr(e->b, head);
    LLVMPositionBuilderAtEnd(e->b, head);
    LLVMValueRef at = LLVMBuildPhi(e->b, e->t_i64, "");
    LLVMAddIncoming(at, &zero, &before, 1);
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSLT, at, columns), body, done);
    LLVMPositionBuilderAtEnd(e->b, body);
    LLVMValueRef position = em_add(e, begin, at), row = LLVMBuildUDiv(e->b, position, n, ""),
                 column = em_sub(e, position, em_mul(e, row, n));
    LLVMValueRef count = em_min(e, em_sub(e, n, column), em_sub(e, columns, at));
    p.source = element(w, from, em_add(e, em_mul(e, row, w->pitch), em_mul(e, column, p.step)));
    p.column = at;
    copy_columns(w, &p, count);
    LLVMValueRef next = em_add(e, at, count);
    LLVMBasicBlockRef end = LLVMGetInsertBlock(e->b);
    LLVMAddIncoming(at, &next, &end, 1);
    LLVMBuildBr(e->b, head);
    LLVMPositionBuilderAtEnd(e->b, done);
    if (!e->level->has_mask) {
        em_loop rest = em_for(e, columns, num(w, w->nr), num(w, 1));
        copy_column(w, &(part){.column = zero}, rest.i);
        em_end(e, &rest);
    }
    window_end(w, o);
}
