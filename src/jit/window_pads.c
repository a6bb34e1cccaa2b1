/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* window_pads.c: products with pads that convolutions by channel leave out (ir_window_leaves_out), on small images a
 * tenth to a fifth of all. A sum that is not -0 stays what it is when 0 times a finite weight is added, and in the end
 * none is -0 (ir_window_drops_sign); so the tiles just do not multiply what they know to be pads: rows of places that a
 * row of the result meets nothing of, and columns at both ends of a row.
 *
 * 0 times a weight that is infinite or NaN is NaN. Phase 0 looks for such (window_check_weights); where a line meets
 * one, the function PADS adds all that was left out, and more that was not: a sum that has become NaN stays one. */
#include "jit/window.h"

void window_find_pads(window *w) {
    w->drops_sign = ir_window_drops_sign(w->k);
    w->leaves_out = ir_window_leaves_out(w->k);
    if (!w->leaves_out) return;
    w->across = (int)window_places(w, 0);
    w->down = (int)window_places(w, 1);
}

bool window_is_pad(const window *w, int place, int column, int columns, bool is_behind) {
    const ir_kaxis *x = window_axis(w, 0);
    const int64_t from_end = (columns - 1 - column) * x->stride + (w->across - 1 - place) * x->dilation;
    return is_behind ? from_end < x->end : column * x->stride + place * x->dilation < x->begin;
}

/* The first place whose element, the first being that of place 0, is `bound` or behind. */
static LLVMValueRef first_place(window *w, LLVMValueRef bound, LLVMValueRef first, int64_t dilation) {
    emit *e = w->e;
    LLVMValueRef before = em_max(e, em_sub(e, bound, first), num(w, 0));
    if (dilation > 1) before = LLVMBuildUDiv(e->b, em_add(e, before, num(w, dilation - 1)), num(w, dilation), "");
    return em_min(e, before, num(w, w->down));
}

void window_rows_met(window *w, LLVMValueRef y, LLVMValueRef *begin, LLVMValueRef *end) {
    emit *e = w->e;
    const ir_kaxis *a = window_axis(w, 1);
    *begin = num(w, 0);
    *end = num(w, w->down);
    if (!a) return;
    LLVMValueRef is_row = em_icmp(e, LLVMIntSGE, y, num(w, 0)),
                 first = em_sub(e, em_mul(e, y, num(w, a->stride)), num(w, a->begin));
    *begin = em_select(e, is_row, first_place(w, num(w, 0), first, a->dilation), *begin);
    *end = em_select(e, is_row, first_place(w, axis_size(w, a), first, a->dilation), *end);
}

LLVMValueRef window_check_weights(window *w, LLVMValueRef packed, LLVMValueRef apart) {
    enum { AT_ONCE = 4 };
    emit *e = w->e;
    LLVMValueRef sum[AT_ONCE], zero = LLVMConstNull(w->t_vec), last = em_sub(e, w->kk, num(w, 1));
    const int lanes = e->lanes;
    em_loop l = em_for(e, num(w, 0), w->kk, num(w, AT_ONCE));
    for (int i = 0; i < AT_ONCE; i++) sum[i] = em_loop_phi(e, &l, zero);
    e->lanes = w->v_lanes;
    for (int i = 0; i < AT_ONCE; i++) {
        LLVMValueRef k = em_min(e, em_add(e, l.i, num(w, i)), last);
        LLVMValueRef x = window_load_vector(w, element(w, packed, em_mul(e, k, apart)));
        em_loop_next(e, sum[i], window_multiply(w, x, zero, sum[i]));
    }
    e->lanes = lanes;
    em_end(e, &l);
    for (int i = 1; i < AT_ONCE; i++) sum[0] = em_fadd(e, sum[0], sum[i]);
    return sum[0];
}

/* Is the place's element none of the operand's? */
static LLVMValueRef is_outside(window *w, const ir_kaxis *a, LLVMValueRef index, LLVMValueRef place) {
    emit *e = w->e;
    if (!a) return LLVMConstInt(e->t_i1, 0, 0);
    LLVMValueRef at = em_add(e, em_mul(e, index, num(w, a->stride)), em_mul(e, place, num(w, a->dilation)));
    return em_icmp(e, LLVMIntUGE, em_sub(e, at, num(w, a->begin)), axis_size(w, a));
}

/* (args, weights, columns, width, sums, y, column): sums [columns][nr] of a line whose first element is at row y and
 * `column`; 0 times the weights of what is outside is added to `width` channels of them. */
void window_emit_pads(window *w) {
    emit *e = w->e;
    LLVMTypeRef parameter[7] = {e->t_ptr, e->t_ptr, e->t_i64, e->t_i64, e->t_ptr, e->t_i64, e->t_i64};
    window_outer *o = window_begin(w, PADS, "pads", parameter, 7);
    LLVMValueRef in[7], zero = num(w, 0), one = num(w, 1), n = e->size[w->dim_n], down = num(w, w->down),
                        across = num(w, w->across);
    LLVMGetParams(e->fn, in);
    const int lanes = e->lanes;
    e->lanes = w->v_lanes;
    em_loop c = em_for(e, zero, in[2], one);
    LLVMValueRef row = w->tile_rows ? LLVMBuildUDiv(e->b, c.i, n, "") : zero;
    LLVMValueRef y = em_add(e, in[5], row), x = em_add(e, in[6], em_sub(e, c.i, em_mul(e, row, n)));
    em_loop k = em_for(e, zero, w->kk, one);
    LLVMValueRef at_x = LLVMBuildURem(e->b, k.i, across, ""),
                 at_y = LLVMBuildURem(e->b, LLVMBuildUDiv(e->b, k.i, across, ""), down, "");
    em_branch b =
        em_if(e, em_or(e, is_outside(w, window_axis(w, 1), y, at_y), is_outside(w, window_axis(w, 0), x, at_x)));
    em_loop v = em_for(e, zero, in[3], num(w, w->v_lanes));
    LLVMValueRef weights = element(w, in[1], em_add(e, em_mul(e, k.i, in[3]), v.i));
    LLVMValueRef to = element(w, in[4], em_add(e, em_mul(e, c.i, num(w, w->nr)), v.i));
    LLVMValueRef sum =
        window_multiply(w, window_load_vector(w, weights), LLVMConstNull(w->t_vec), window_load_vector(w, to));
    LLVMSetAlignment(LLVMBuildStore(e->b, sum, to), (unsigned)w->bytes);
    em_end(e, &v);
    em_endif(e, &b);
    em_end(e, &k);
    em_end(e, &c);
    e->lanes = lanes;
    window_end(w, o);
}

void window_add_pads(window *w, LLVMValueRef *in, LLVMValueRef checked, LLVMValueRef width) {
    emit *e = w->e;
    LLVMValueRef is_not_finite = LLVMConstInt(e->t_i1, 0, 0);
    em_loop l = em_for(e, num(w, 0), width, num(w, 1));
    LLVMValueRef any = em_loop_phi(e, &l, is_not_finite);
    LLVMValueRef x = LLVMBuildLoad2(e->b, w->t_acc, element(w, checked, l.i), "");
    em_loop_next(e, any, em_or(e, any, em_fcmp(e, LLVMRealUNO, x, x)));
    em_end(e, &l);
    em_branch b = em_if(e, any);
    window_call(w, PADS, in, 7);
    em_endif(e, &b);
}
