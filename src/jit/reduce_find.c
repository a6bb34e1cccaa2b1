/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* reduce_find.c: which element has the extreme value: the second half of arg-reductions of the inner form, whose sweep
 * knows it to a group of vectors (where the last, incomplete vectors of a block have it: to the element).
 *
 *   place and value -> the group's elements again, compared with the value, one bit each -> the first (last) bit
 *
 * Rows that turn out to be a few groups, without a NaN, do without the sweep: the extreme value of the row, then all
 * its elements are compared with it. No lane carries a place along, and none is looked for among lanes. */
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
    return is;
}

/* The lanes of a mask as bits of an i64. */
static LLVMValueRef bits_of(emit *e, LLVMValueRef mask) {
    LLVMTypeRef t = LLVMIntTypeInContext(e->ctx, (unsigned)e->lanes);
    return LLVMBuildZExt(e->b, e->lanes == 1 ? mask : LLVMBuildBitCast(e->b, mask, t, ""), e->t_i64, "");
}

/* The lanes of two masks as one. */
static LLVMValueRef both_masks(emit *e, LLVMValueRef a, LLVMValueRef b) {
    const unsigned n = 2 * LLVMGetVectorSize(LLVMTypeOf(a));
    LLVMValueRef index[64];
    for (unsigned i = 0; i < n; i++) index[i] = LLVMConstInt(e->t_i32, i, 0);
    return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(index, n), "");
}

/* The lanes of a group's masks as bits of an i64. Mask registers are put together as such: one move instead of four. */
static LLVMValueRef bits_of_group(emit *e, const LLVMValueRef *mask) {
    LLVMValueRef bits = NULL;
    if (e->level->has_mask) {
        LLVMValueRef all = both_masks(e, both_masks(e, mask[0], mask[1]), both_masks(e, mask[2], mask[3]));
        LLVMTypeRef t = LLVMIntTypeInContext(e->ctx, (unsigned)(IR_REDUCE_UNROLL * e->lanes));
        return LLVMBuildZExt(e->b, LLVMBuildBitCast(e->b, all, t, ""), e->t_i64, "");
    }
    for (int u = 0; u < IR_REDUCE_UNROLL; u++) {
        LLVMValueRef more = bits_of(e, mask[u]);
        bits = u ? em_or(e, bits, LLVMBuildShl(e->b, more, em_i64s(e, u * e->lanes), "")) : more;
    }
    return bits;
}

/* Number of the first (last) bit, of some. */
static LLVMValueRef position_of(const red_sweep *s, LLVMValueRef bits) {
    red *r = s->r;
    emit *e = r->e;
    LLVMValueRef in[2] = {bits, LLVMConstInt(e->t_i1, 1, 0)};
    if (!red_is_last(r, s->acc[0])) return em_intrinsic(e, "llvm.cttz", 2, in);
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

/* left: what a masked group has, or NULL: all. */
static LLVMValueRef find_in_group(const wanted *w, LLVMValueRef from, LLVMValueRef left) {
    red *r = w->s->r;
    emit *e = r->e;
    LLVMValueRef is[IR_REDUCE_UNROLL], there = NULL;
    if (left) {
        const int64_t group = (int64_t)IR_REDUCE_UNROLL * e->lanes;
        left = em_min(e, left, em_i64s(e, group)); /* at least one */
        there = LLVMBuildLShr(e->b, em_i64s(e, -1), em_sub(e, em_i64s(e, 64), left), "");
    }
    for (int u = 0; u < IR_REDUCE_UNROLL; u++) {
        LLVMValueRef i = em_add(e, from, em_i64s(e, (int64_t)u * e->lanes));
        is[u] = is_wanted(w, i, left ? red_mask_of(e, left, there, u) : NULL);
    }
    LLVMValueRef bits = bits_of_group(e, is);
    if (left) bits = em_and(e, bits, there);
    return em_add(e, from, position_of(w->s, bits));
}

LLVMValueRef red_locate(red_sweep *s, const em_values *row, LLVMValueRef place, LLVMValueRef value) {
    red *r = s->r;
    emit *e = r->e;
    wanted w = {.s = s, .value = value};
    red_enter_block(r, em_lshr(e, place, __builtin_ctz(IR_REDUCE_BLOCK)));
    red_seeds(s, row);
    w.splat = em_splat(e, value);
    LLVMValueRef from = em_add(e, r->begin, em_and(e, place, em_i64s(e, IR_REDUCE_BLOCK - 1))), i;
    if (s->masks_rest) {
        i = find_in_group(&w, from, em_sub(e, r->end, from));
    } else {
        LLVMValueRef behind = em_add(e, from, em_i64s(e, (int64_t)IR_REDUCE_UNROLL * e->lanes));
        em_branch whole = em_if(e, em_icmp(e, LLVMIntSLE, behind, r->end));
        LLVMValueRef found = find_in_group(&w, from, NULL);
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

/* ---- short rows ---- */
bool red_finds_short(const red *r, const red_sweep *s) {
    return s->n_acc == 1 && s->find[0] && s->masks_rest && r->r0 == r->last;
}

static LLVMValueRef at_vector(emit *e, LLVMValueRef from, int u) {
    return u ? em_add(e, from, em_i64s(e, (int64_t)u * e->lanes)) : from;
}

static LLVMValueRef value_at(red_short *w, LLVMValueRef i, LLVMValueRef mask) {
    red_body b;
    red_evaluate(w->s, &b, (red_at){w->s->r, i, NULL, mask}, w->s->seed_splat);
    return w->s->x[0];
}

/* The group from `from` on (rest: what is there of it): the extreme values of acc and of the group; acc.index: the
 * lanes that had a NaN, as bits. */
static red_acc extremes(red_short *w, LLVMValueRef from, bool is_rest, red_acc acc) {
    red *r = w->s->r;
    emit *e = r->e;
    const int j = w->s->acc[0];
    LLVMValueRef x[IR_REDUCE_UNROLL], nans = NULL;
    for (int u = 0; u < IR_REDUCE_UNROLL; u++) {
        LLVMValueRef mask = is_rest ? red_mask_of(e, w->left, w->there, u) : NULL;
        x[u] = value_at(w, at_vector(e, from, u), mask);
        if (mask) x[u] = em_select(e, mask, x[u], red_identity(r, j, NULL).value);
    }
    for (int u = 0; u < IR_REDUCE_UNROLL && acc.index; u += 2) {
        LLVMValueRef either = em_fcmp(e, LLVMRealUNO, x[u], x[u + 1]);
        nans = nans ? em_or(e, nans, either) : either;
    }
    if (nans) acc.index = em_or(e, acc.index, bits_of(e, nans));
    for (int h = IR_REDUCE_UNROLL / 2; h >= 1; h /= 2)
        for (int u = 0; u < h; u++) x[u] = red_better(r, j, x[u], x[u + h]);
    acc.value = red_better(r, j, x[0], acc.value);
    return acc;
}

/* The place of the group's first (last) element that is the extreme one, or what was found before. */
static LLVMValueRef place_in(red_short *w, LLVMValueRef from, bool is_rest, LLVMValueRef found) {
    red *r = w->s->r;
    emit *e = r->e;
    const int j = w->s->acc[0];
    LLVMValueRef is[IR_REDUCE_UNROLL];
    for (int u = 0; u < IR_REDUCE_UNROLL; u++) {
        LLVMValueRef x = value_at(w, at_vector(e, from, u), is_rest ? red_mask_of(e, w->left, w->there, u) : NULL);
        is[u] =
            ir_is_float(red_type(r, j)) ? em_fcmp(e, LLVMRealOEQ, x, w->extreme) : em_icmp(e, LLVMIntEQ, x, w->extreme);
    }
    LLVMValueRef bits = bits_of_group(e, is);
    if (is_rest) bits = em_and(e, bits, w->there);
    LLVMValueRef takes = em_icmp(e, LLVMIntNE, bits, em_i64s(e, 0));
    if (!red_is_last(r, j)) takes = em_and(e, takes, em_icmp(e, LLVMIntSLT, found, em_i64s(e, 0)));
    return em_select(e, takes, em_add(e, from, position_of(w->s, bits)), found);
}

/* The groups [0, whole) and the rest: what `of` makes of them, from `first` on. */
static red_acc over_groups(red_short *w, red_acc first, bool is_place) {
    emit *e = w->s->r->e;
    em_loop l = em_for(e, em_i64s(e, 0), w->whole, em_i64s(e, (int64_t)IR_REDUCE_UNROLL * e->lanes));
    red_acc all = {first.value ? em_loop_phi(e, &l, first.value) : NULL,
                   first.index ? em_loop_phi(e, &l, first.index) : NULL},
            next;
    if (is_place) next = (red_acc){NULL, place_in(w, l.i, false, all.index)};
    else next = extremes(w, l.i, false, all);
    if (all.value) em_loop_next(e, all.value, next.value);
    if (all.index) em_loop_next(e, all.index, next.index);
    em_end(e, &l);
    em_branch rest = em_if(e, em_icmp(e, LLVMIntSGT, w->left, em_i64s(e, 0)));
    if (is_place) next = (red_acc){NULL, place_in(w, w->whole, true, all.index)};
    else next = extremes(w, w->whole, true, all);
    LLVMBasicBlockRef then = LLVMGetInsertBlock(e->b);
    em_endif(e, &rest);
    return (red_acc){red_phi(e, next.value, then, all.value, rest.other),
                     red_phi(e, next.index, then, all.index, rest.other)};
}

LLVMValueRef red_short_extreme(red_sweep *s, const em_values *row, red_short *w) {
    red *r = s->r;
    emit *e = r->e;
    const int j = s->acc[0];
    const bool is_float = ir_is_float(red_type(r, j));
    *w = (red_short){.s = s->find[0]};
    LLVMValueRef zero = em_i64s(e, 0), length = e->size[r->last];
    LLVMValueRef most = em_i64s(e, (int64_t)RED_SHORT * IR_REDUCE_UNROLL * e->level->lanes - 1);
    em_branch is = em_if(e, em_icmp(e, LLVMIntULE, em_sub(e, length, em_i64s(e, 1)), most));
    red_enter_block(r, zero);
    red_seeds(w->s, row);
    w->whole = em_and(e, length, em_i64s(e, -(int64_t)IR_REDUCE_UNROLL * e->lanes));
    w->left = em_sub(e, length, w->whole);
    w->there = red_bits_below(e, w->left);
    red_acc all = over_groups(w, (red_acc){red_identity(r, j, NULL).value, is_float ? zero : NULL}, false);
    LLVMValueRef no = LLVMConstNull(e->t_i1), ok = LLVMConstAllOnes(e->t_i1);
    if (is_float) ok = em_icmp(e, LLVMIntEQ, all.index, zero);
    w->extreme = em_splat(e, red_extreme_lane(r, j, all.value));
    LLVMBasicBlockRef then = LLVMGetInsertBlock(e->b);
    em_endif(e, &is);
    LLVMValueRef *kept[] = {&w->extreme, &w->whole, &w->left, &w->there};
    for (int n = 0; n < 4; n++) *kept[n] = red_phi(e, *kept[n], then, LLVMGetPoison(LLVMTypeOf(*kept[n])), is.other);
    ok = red_phi(e, ok, then, no, is.other);
    e->lanes = 1;
    red_leave_block(r);
    return ok;
}

LLVMValueRef red_short_place(const em_values *row, red_short *w) {
    red *r = w->s->r;
    emit *e = r->e;
    red_enter_block(r, em_i64s(e, 0));
    red_seeds(w->s, row);
    LLVMValueRef place = over_groups(w, (red_acc){NULL, em_i64s(e, -1)}, true).index;
    e->lanes = 1;
    red_leave_block(r);
    return place;
}
