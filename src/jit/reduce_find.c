/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* reduce_find.c: which element has the extreme value: the second half of arg-reductions of the inner form, whose sweep
 * knows it to a group of vectors (where the last, incomplete vectors of a block have it: to the element).
 *
 *   place and value -> the group's elements again, compared with the value, one bit each -> the first (last) bit */
#include "jit/reduce_common.h"

typedef struct wanted {
    red_sweep *s;
    LLVMValueRef value, splat;
} wanted;

/* Where the element is the value, or a NaN: if there is one, the value is a NaN. */
static LLVMValueRef is_wanted(const wanted *w, LLVMValueRef i, LLVMValueRef mask) {
    red *r = w->s->r;
    emit *e = r->e;
    red_body b;
    red_evaluate(w->s, &b, (red_at){r, i, NULL, mask}, e->lanes == 1 ? w->s->seed : w->s->seed_splat);
    LLVMValueRef x = w->s->x[0], value = e->lanes == 1 ? w->value : w->splat, is;
    if (ir_is_float(red_type(r, w->s->acc[0])))
        is = em_or(e, em_fcmp(e, LLVMRealOEQ, x, value), em_fcmp(e, LLVMRealUNO, x, x));
    else is = em_icmp(e, LLVMIntEQ, x, value);
    return mask ? em_and(e, is, mask) : is;
}

/* The lanes of a mask as bits of an i64. */
static LLVMValueRef bits_of(emit *e, LLVMValueRef mask) {
    LLVMTypeRef t = LLVMIntTypeInContext(e->ctx, (unsigned)e->lanes);
    return LLVMBuildZExt(e->b, e->lanes == 1 ? mask : LLVMBuildBitCast(e->b, mask, t, ""), e->t_i64, "");
}

/* Number of the first (last) bit, of some. */
static LLVMValueRef position_of(const wanted *w, LLVMValueRef bits) {
    red *r = w->s->r;
    emit *e = r->e;
    LLVMValueRef in[2] = {bits, LLVMConstInt(e->t_i1, 1, 0)};
    if (!red_is_last(r, w->s->acc[0])) return em_intrinsic(e, "llvm.cttz", 2, in);
    return em_sub(e, em_i64s(e, 63), em_intrinsic(e, "llvm.ctlz", 2, in));
}

/* The place is in the last, incomplete vectors of a block where the level has no masks: element by element. */
static LLVMValueRef find_in_rest(const wanted *w, LLVMValueRef from) {
    red *r = w->s->r;
    emit *e = r->e;
    int lanes = e->lanes;
    e->lanes = 1;
    em_loop l = em_for(e, from, r->end, em_i64s(e, 1));
    LLVMValueRef best = em_loop_phi(e, &l, em_i64s(e, -1)), is = is_wanted(w, l.i, NULL);
    if (!red_is_last(r, w->s->acc[0])) is = em_and(e, is, em_icmp(e, LLVMIntSLT, best, em_i64s(e, 0)));
    em_loop_next(e, best, em_select(e, is, l.i, best));
    em_end(e, &l);
    e->lanes = lanes;
    return best;
}

static LLVMValueRef find_in_group(const wanted *w, LLVMValueRef from) {
    red *r = w->s->r;
    emit *e = r->e;
    LLVMValueRef bits = NULL;
    for (int u = 0; u < IR_REDUCE_UNROLL; u++) {
        LLVMValueRef i = em_add(e, from, em_i64s(e, (int64_t)u * e->lanes));
        LLVMValueRef more = bits_of(e, is_wanted(w, i, e->level->has_mask ? em_mask(e, em_sub(e, r->end, i)) : NULL));
        bits = u ? em_or(e, bits, LLVMBuildShl(e->b, more, em_i64s(e, u * e->lanes), "")) : more;
    }
    return em_add(e, from, position_of(w, bits));
}

LLVMValueRef red_locate(red_sweep *s, const em_values *row, LLVMValueRef place, LLVMValueRef value) {
    red *r = s->r;
    emit *e = r->e;
    wanted w = {.s = s, .value = value};
    red_enter_block(r, em_lshr(e, place, __builtin_ctz(IR_REDUCE_BLOCK)));
    red_seeds(s, row);
    w.splat = em_splat(e, value);
    LLVMValueRef from = em_add(e, r->begin, em_and(e, place, em_i64s(e, IR_REDUCE_BLOCK - 1))), i;
    if (e->level->has_mask) {
        i = find_in_group(&w, from);
    } else {
        LLVMValueRef behind = em_add(e, from, em_i64s(e, (int64_t)IR_REDUCE_UNROLL * e->lanes));
        em_branch whole = em_if(e, em_icmp(e, LLVMIntSLE, behind, r->end));
        LLVMValueRef found = find_in_group(&w, from);
        LLVMBasicBlockRef then = LLVMGetInsertBlock(e->b);
        em_else(e, &whole);
        LLVMValueRef rest = find_in_rest(&w, from);
        LLVMBasicBlockRef other = LLVMGetInsertBlock(e->b);
        em_endif(e, &whole);
        i = LLVMBuildPhi(e->b, e->t_i64, "");
        LLVMAddIncoming(i, (LLVMValueRef[]){found, rest}, (LLVMBasicBlockRef[]){then, other}, 2);
    }
    e->lanes = 1;
    red_leave_block(r);
    return em_add(e, s->kept_at, i);
}
