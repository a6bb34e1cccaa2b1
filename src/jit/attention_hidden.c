/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attention_hidden.c: values at keys that causal or window hides. The products of a panel (attention_tile.c) multiply
 * them by a weight of 0, which is nothing unless they are infinite or NaN. So where the queries of a panel see
 * different keys of a block, their results are kept before the products, and if those leave anything that is not
 * finite, they are made again, by the keys that each query sees alone. In the same order: other bits are the same. */
#include "jit/attention.h"

/* (from, to, count): accumulators copied, a multiple of lanes. */
static void emit_keep(attention *a) {
    emit *e = a->e;
    LLVMTypeRef parameter[3] = {e->t_ptr, e->t_ptr, e->t_i64};
    attention_outer *o = attention_begin(a, KEEP, "keep", parameter, 3, false, true);
    LLVMValueRef in[3];
    LLVMGetParams(e->fn, in);
    e->lanes = a->lanes;
    em_loop l = em_for(e, attention_num(a, 0), in[2], attention_num(a, a->lanes));
    attention_put(a, attention_get(a, in[0], l.i), in[1], l.i);
    em_end(e, &l);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

/* Is any of results[rows][nr] infinite or NaN? i1 */
static LLVMValueRef has_special(attention *a, LLVMValueRef results, LLVMValueRef rows) {
    emit *e = a->e;
    const int chunks = a->nr / a->lanes;
    LLVMValueRef first[ATTENTION_CHUNKS], zero = em_const(e, a->acc, 0), all = zero;
    em_loop l = em_for(e, attention_num(a, 0), rows, attention_num(a, 1));
    for (int c = 0; c < chunks; c++) first[c] = em_loop_phi(e, &l, zero);
    for (int c = 0; c < chunks; c++) {
        LLVMValueRef at = em_add(e, em_mul(e, l.i, attention_num(a, a->nr)), attention_num(a, c * a->lanes));
        em_loop_next(e, first[c], em_mad(e, attention_get(a, results, at), zero, first[c])); /* x * 0: 0, or NaN */
    }
    em_end(e, &l);
    for (int c = 0; c < chunks; c++) all = em_fadd(e, all, first[c]);
    LLVMValueRef bits =
        LLVMBuildBitCast(e->b, em_fcmp(e, LLVMRealUNO, all, all), LLVMIntTypeInContext(e->ctx, (unsigned)a->lanes), "");
    return LLVMBuildICmp(e->b, LLVMIntNE, bits, LLVMConstNull(LLVMTypeOf(bits)), "");
}

/* (v, column, columns, row, weights, count, results, factors, before, low, high): where results [columns][nr] have
 * something that is not finite, results = before * factors + values x weights [count][nr], of the keys x of query i with
 * low + i <= x <= high + i. Values are `column` elements apart along a row, rows `row`. */
static void emit_again(attention *a) {
    enum { V, COLUMN, COLUMNS, ROW, WEIGHTS_OF, COUNT, RESULTS, FACTORS, BEFORE, LOW, HIGH, N_IN };
    emit *e = a->e;
    LLVMTypeRef parameter[N_IN] = {e->t_ptr, e->t_i64, e->t_i64, e->t_i64, e->t_ptr, e->t_i64,
                                   e->t_ptr, e->t_ptr, e->t_ptr, e->t_i64, e->t_i64};
    attention_outer *o = attention_begin(a, AGAIN, "again", parameter, N_IN, false, true);
    LLVMValueRef in[N_IN], zero = attention_num(a, 0), one = attention_num(a, 1), nr = attention_num(a, a->nr);
    LLVMGetParams(e->fn, in);
    e->lanes = a->lanes;
    em_branch special = em_if(e, has_special(a, in[RESULTS], in[COLUMNS]));
    LLVMValueRef low = attention_narrow(a, in[LOW]), high = attention_narrow(a, in[HIGH]);
    em_loop c = em_for(e, zero, in[COLUMNS], one);
    LLVMValueRef v = attention_at(a, in[V], em_mul(e, c.i, in[COLUMN])), to = em_mul(e, c.i, nr);
    for (int chunk = 0; chunk < a->nr / a->lanes; chunk++) {
        LLVMValueRef first = attention_num(a, chunk * a->lanes), at = em_add(e, to, first);
        em_loop key = em_for(e, zero, in[COUNT], one);
        LLVMValueRef sum = em_loop_phi(e, &key, em_const(e, a->acc, 0));
        e->lanes = 1;
        LLVMValueRef x = attention_get(a, v, em_mul(e, key.i, in[ROW]));
        e->lanes = a->lanes;
        LLVMValueRef w = attention_get(a, in[WEIGHTS_OF], em_add(e, em_mul(e, key.i, nr), first));
        LLVMValueRef sees = attention_sees(a, low, high, key.i, chunk);
        em_loop_next(e, sum, em_select(e, sees, em_mad(e, em_splat(e, x), w, sum), sum));
        em_end(e, &key);
        LLVMValueRef factor = attention_get(a, in[FACTORS], first);
        attention_put(a, em_mad(e, attention_get(a, in[BEFORE], at), factor, sum), in[RESULTS], at);
    }
    em_end(e, &c);
    em_endif(e, &special);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

void attention_emit_hidden(attention *a) {
    emit_keep(a);
    emit_again(a);
}
