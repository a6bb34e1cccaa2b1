/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* scan.c: running sums and products along one dim, with what is element-wise before and after them. The order is that
 * of ir/schedule.h: blocks of the dim are scanned from the identity; what came before a block is added last, from a
 * carry in two parts (their sum is good to twice the digits), so the error does not grow with the number of blocks.
 *
 *   inner form (lanes along the dim)       one vector: log2(lanes) shifted additions, then the total so far of the
 * block column form (lanes along dim v)        one element of each column at a time, in rows of a chunk of columns;
 * totals and carries in the worker's scratch
 *
 *   phase 0     inner form in two phases: a unit is a block; its total
 *   phase 1     a unit is a line: the totals of its blocks become what is before each
 *   phase 2     a unit is a line, or a block of it when the phases before ran, or a line and a chunk of columns: the
 * results
 *
 * Lines that are known to be short are straight code in phase 2, and have no other.
 *
 * In two phases a long line is the work of several threads; the bits are the same, for the blocks are. A reversed scan
 * takes its vectors from the end and turns them. */
#include "jit/scan.h"
#include <string.h>

/* ---- arithmetic ---- */
LLVMValueRef scan_combine(scan *s, LLVMValueRef a, LLVMValueRef b) {
    ir_kinst inst = {.op = s->is_product ? IR_OP_MUL : IR_OP_ADD, .dtype = s->t, .n_in = 2};
    return em_lower(s->e, &inst, (LLVMValueRef[]){a, b}, (ir_dtype[]){s->t, s->t});
}

LLVMValueRef scan_identity(scan *s) { return em_const(s->e, s->t, s->is_product); }

/* x, or 0 where it is a NaN: the rounding errors of infinite sums are none. */
static LLVMValueRef number_or_zero(emit *e, LLVMValueRef x) {
    return em_select(e, em_fcmp(e, LLVMRealORD, x, x), x, LLVMConstNull(LLVMTypeOf(x)));
}

/* The carry past one more block of that total; Knuth's two-sum keeps what the addition rounds off. */
scan_carry scan_carry_past(scan *s, scan_carry c, LLVMValueRef total) {
    emit *e = s->e;
    LLVMValueRef sum = scan_combine(s, c.high, total);
    if (!s->has_carry_rest) return (scan_carry){sum, NULL};
    LLVMValueRef part = em_fsub(e, sum, c.high);
    LLVMValueRef rest = em_fadd(e, em_fsub(e, c.high, em_fsub(e, sum, part)), em_fsub(e, total, part));
    LLVMValueRef low = em_fadd(e, c.low, number_or_zero(e, rest)), high = em_fadd(e, sum, low);
    return (scan_carry){high, number_or_zero(e, em_fsub(e, low, em_fsub(e, high, sum)))};
}

scan_carry scan_no_carry(scan *s) {
    return (scan_carry){scan_identity(s), s->has_carry_rest ? em_const(s->e, s->t, 0) : NULL};
}

/* Lane k of the result is lane by + k of (a, b) put one after the other: by in 0 .. lanes. */
static LLVMValueRef shifted(emit *e, LLVMValueRef a, LLVMValueRef b, int by) {
    LLVMValueRef index[64];
    for (int i = 0; i < e->lanes; i++) index[i] = LLVMConstInt(e->t_i32, (unsigned)(by + i), 0);
    return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(index, (unsigned)e->lanes), "");
}

static LLVMValueRef turned(emit *e, LLVMValueRef x) {
    if (e->lanes == 1) return x;
    LLVMValueRef index[64];
    for (int i = 0; i < e->lanes; i++) index[i] = LLVMConstInt(e->t_i32, (unsigned)(e->lanes - 1 - i), 0);
    return LLVMBuildShuffleVector(e->b, x, LLVMGetPoison(LLVMTypeOf(x)), LLVMConstVector(index, (unsigned)e->lanes),
                                  "");
}

/* Each lane's elements up to it: the distance doubles. */
static LLVMValueRef prefix(scan *s, LLVMValueRef x) {
    emit *e = s->e;
    for (int by = 1; by < e->lanes; by *= 2) x = scan_combine(s, shifted(e, scan_identity(s), x, e->lanes - by), x);
    return x;
}

static LLVMValueRef last_lane(emit *e, LLVMValueRef x) { return e->lanes == 1 ? x : em_lane(e, x, e->lanes - 1); }

/* ---- values ---- */
/* Those that varying instructions use and that do not vary along the dims of `mask`, as scalars. */
static void make_seeds(scan *s, red_at at, uint32_t mask) {
    const ir_kernel *k = s->r->k;
    emit *e = s->e;
    em_values v;
    const int lanes = e->lanes;
    memset(s->seed, 0, sizeof s->seed);
    e->lanes = 1;
    em_values_init(&v, red_load_value, &at);
    for (int i = 0; i < k->n_insts; i++) {
        if (k->inst[i].op != IR_K_STORE && (s->r->varies[i] & mask) == 0) continue;
        for (int j = 0; j < k->inst[i].n_in; j++) {
            const int in = k->inst[i].in[j];
            if ((s->r->varies[in] & mask) == 0 && !s->seed[in]) s->seed[in] = em_value(e, &v, in);
        }
    }
    e->lanes = lanes;
}

static void begin_values(scan *s, em_values *v, red_at *at) {
    em_values_init(v, red_load_value, at);
    for (int i = 0; i < s->r->k->n_insts; i++)
        if (s->seed[i]) v->at[i] = em_splat(s->e, s->seed[i]);
}

/* All values, then all stores: an output may be the memory of an input. */
void scan_store_values(scan *s, em_values *v, const red_at *at) {
    const ir_kernel *k = s->r->k;
    emit *e = s->e;
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE) em_value(e, v, k->inst[i].in[0]);
    for (int i = 0; i < k->n_insts; i++) {
        if (k->inst[i].op != IR_K_STORE) continue;
        const int b = k->inst[i].index;
        LLVMValueRef off = red_advance(e, NULL, at->i, e->stride[b][s->r->last]);
        if (at->c) off = red_advance(e, off, at->c, e->stride[b][s->r->v]);
        em_store(e, b, em_value(e, v, k->inst[i].in[0]), off, e->stride[b][s->r->along], at->mask);
    }
}

/* ---- inner form ---- */
/* The elements at places j .. j + lanes - 1 of the scan; `total` of the block's elements before them, and after them
 * back. count: how many there are where that is fewer. */
static LLVMValueRef step(scan *s, LLVMValueRef j, LLVMValueRef count, LLVMValueRef total, LLVMValueRef before) {
    emit *e = s->e;
    red_at at = {s->r, j, NULL, count ? em_mask(e, count) : NULL};
    em_values v;
    if (s->is_reversed) at.i = em_sub(e, s->length, em_add(e, j, count ? count : em_i64s(e, e->lanes)));
    begin_values(s, &v, &at);
    LLVMValueRef x = em_value(e, &v, s->inst->in[0]);
    if (at.mask) x = em_select(e, at.mask, x, scan_identity(s));
    if (s->is_reversed) x = turned(e, x);
    x = prefix(s, x);
    LLVMValueRef after = scan_combine(s, total, em_splat(e, last_lane(e, x)));
    if (!before) return after; /* of the total alone */
    LLVMValueRef y = scan_combine(s, total, x);
    if (s->is_exclusive) y = e->lanes == 1 ? total : shifted(e, total, y, e->lanes - 1);
    y = scan_combine(s, em_splat(e, before), y);
    v.at[s->number] = s->is_reversed ? turned(e, y) : y;
    scan_store_values(s, &v, &at);
    return after;
}

static LLVMValueRef step_loop(scan *s, LLVMValueRef from, LLVMValueRef to, LLVMValueRef total, LLVMValueRef before) {
    emit *e = s->e;
    em_loop l = em_for(e, from, to, em_i64s(e, e->lanes));
    LLVMValueRef phi = em_loop_phi(e, &l, total);
    em_loop_next(e, phi, step(s, l.i, NULL, phi, before));
    em_end(e, &l);
    return phi;
}

/* The block of that number: its total, a scalar. before: what to add to its results, NULL: none are wanted. */
static LLVMValueRef emit_block(scan *s, LLVMValueRef block, LLVMValueRef before) {
    emit *e = s->e;
    LLVMValueRef from = em_mul(e, block, em_i64s(e, IR_SCAN_BLOCK));
    LLVMValueRef end = em_min(e, em_add(e, from, em_i64s(e, IR_SCAN_BLOCK)), s->length);
    e->lanes = e->level->lanes;
    LLVMValueRef whole = em_add(e, from, em_and(e, em_sub(e, end, from), em_i64s(e, -(int64_t)e->lanes)));
    LLVMValueRef total = em_lane(e, step_loop(s, from, whole, scan_identity(s), before), 0);
    if (!e->level->has_mask) {
        e->lanes = 1;
        total = step_loop(s, whole, end, total, before);
    } else {
        em_branch some = em_if(e, em_icmp(e, LLVMIntSLT, whole, end));
        LLVMValueRef more = step(s, whole, em_sub(e, end, whole), em_splat(e, total), before);
        LLVMValueRef in[2] = {em_lane(e, more, 0), total};
        LLVMBasicBlockRef then = LLVMGetInsertBlock(e->b);
        em_endif(e, &some);
        total = LLVMBuildPhi(e->b, LLVMTypeOf(total), "");
        LLVMAddIncoming(total, in, (LLVMBasicBlockRef[]){then, some.other}, 2);
    }
    e->lanes = 1;
    return total;
}

static LLVMValueRef slot(scan *s, LLVMValueRef unit) { return em_gep(s->e, s->e->shared, s->e->t_i64, unit); }

/* Tiles of `grain` units each. */
static em_loop units_loop(emit *e, LLVMValueRef grain, LLVMValueRef units) {
    LLVMValueRef end = em_min(e, em_mul(e, e->tile_end, grain), units);
    return em_for(e, em_mul(e, e->tile_begin, grain), end, em_i64s(e, 1));
}

static void enter_line(scan *s, LLVMValueRef line) {
    red_enter_row(s->r, line);
    make_seeds(s, (red_at){s->r, NULL, NULL, NULL}, 1u << s->r->last);
}

static void emit_totals(scan *s) {
    emit *e = s->e;
    LLVMValueRef line, block;
    em_loop u = units_loop(e, e->tune[IR_TUNE_SCAN_GRAIN], em_mul(e, s->r->rows, s->blocks));
    red_divide(e, u.i, s->blocks, &line, &block);
    enter_line(s, line);
    em_store_ptr(e, s->t, emit_block(s, block, NULL), slot(s, u.i), NULL, 8);
    em_end(e, &u);
}

/* Calls for each block of [from, to): with the scan_carry before it; its total. */
typedef LLVMValueRef of_block(scan *s, LLVMValueRef block, scan_carry before, LLVMValueRef line);
static void for_blocks(scan *s, LLVMValueRef from, LLVMValueRef to, scan_carry first, LLVMValueRef line, of_block *f) {
    emit *e = s->e;
    em_loop l = em_for(e, from, to, em_i64s(e, 1));
    scan_carry c = {em_loop_phi(e, &l, first.high), first.low ? em_loop_phi(e, &l, first.low) : NULL};
    scan_carry next = scan_carry_past(s, c, f(s, l.i, c, line));
    em_loop_next(e, c.high, next.high);
    if (c.low) em_loop_next(e, c.low, next.low);
    em_end(e, &l);
}

static LLVMValueRef total_to_before(scan *s, LLVMValueRef block, scan_carry before, LLVMValueRef line) {
    LLVMValueRef at = slot(s, em_add(s->e, em_mul(s->e, line, s->blocks), block));
    LLVMValueRef total = em_load_ptr(s->e, s->t, at, NULL, 8);
    em_store_ptr(s->e, s->t, before.high, at, NULL, 8);
    return total;
}

static void emit_carries(scan *s) {
    emit *e = s->e;
    em_loop u = units_loop(e, em_i64s(e, 1), s->r->rows);
    for_blocks(s, em_i64s(e, 0), s->blocks, scan_no_carry(s), u.i, total_to_before);
    em_end(e, &u);
}

static LLVMValueRef results_of_block(scan *s, LLVMValueRef block, scan_carry before, LLVMValueRef line) {
    (void)line;
    return emit_block(s, block, before.high);
}

static LLVMValueRef phi2(emit *e, LLVMValueRef a, LLVMValueRef b, const em_branch *branch) {
    LLVMValueRef phi = LLVMBuildPhi(e->b, LLVMTypeOf(a), "");
    LLVMAddIncoming(phi, (LLVMValueRef[]){a, b}, (LLVMBasicBlockRef[]){branch->then, branch->other}, 2);
    return phi;
}

static void emit_lines(scan *s) {
    emit *e = s->e;
    LLVMValueRef zero = em_i64s(e, 0), one = em_i64s(e, 1);
    LLVMValueRef split = em_icmp(e, LLVMIntNE, e->tune[IR_TUNE_SCAN_TWO_PHASES], zero);
    LLVMValueRef per_line = em_select(e, split, s->blocks, one), line, block;
    em_loop u = units_loop(e, e->tune[IR_TUNE_SCAN_GRAIN], em_mul(e, s->r->rows, per_line));
    red_divide(e, u.i, per_line, &line, &block);
    em_branch parts = em_if(e, split);
    LLVMValueRef stored = em_load_ptr(e, s->t, slot(s, u.i), NULL, 8), after = em_add(e, block, one);
    em_endif(e, &parts);
    scan_carry first = scan_no_carry(s);
    first.high = phi2(e, stored, first.high, &parts);
    LLVMValueRef to = phi2(e, after, s->blocks, &parts);
    enter_line(s, line);
    for_blocks(s, block, to, first, line, results_of_block);
    em_end(e, &u);
}

/* Lines that are known to be short, of a program that is: no blocks, no carries; straight code, so that lines overlap.
 */
static bool is_short(const scan *s, int64_t *length) {
    enum { MOST_CODE = 160, OF_FUNCTION = 20 }; /* in instructions of the kernel */
    const ir_kernel *k = s->r->k;
    const int lanes = s->e->level->lanes;
    if (!red_constant(s->length, length) || *length > IR_BAKE_MAX) return false;
    int64_t code = 0, steps = *length / lanes + (s->e->level->has_mask ? 1 : *length % lanes);
    for (int i = 0; i < k->n_insts; i++)
        code += k->inst[i].op < IR_OP_COUNT && (ir_ops[k->inst[i].op].flags & IR_COSTLY) ? OF_FUNCTION : 1;
    return code * steps <= MOST_CODE;
}

static void emit_short_lines(scan *s, int64_t length) {
    emit *e = s->e;
    LLVMValueRef before = scan_no_carry(s).high;
    em_loop u = units_loop(e, e->tune[IR_TUNE_SCAN_GRAIN], s->r->rows);
    enter_line(s, u.i);
    e->lanes = e->level->lanes;
    LLVMValueRef total = scan_identity(s);
    int64_t j = 0;
    for (; j + e->lanes <= length; j += e->lanes) total = step(s, em_i64s(e, j), NULL, total, before);
    if (e->level->has_mask && j < length) {
        (void)step(s, em_i64s(e, j), em_i64s(e, length - j), total, before);
        j = length;
    }
    total = em_lane(e, total, 0);
    e->lanes = 1;
    for (; j < length; j++) total = step(s, em_i64s(e, j), NULL, total, before);
    em_end(e, &u);
}

/* ---- column form ---- */
/* Rows of the chunk in scratch: total of the block so far, high and low part of what is before it. */
enum { TOTAL, HIGH, LOW };

static LLVMValueRef row_of(scan *s, int row, LLVMValueRef c) {
    emit *e = s->e;
    LLVMValueRef at = em_add(e, em_mul(e, e->tune[IR_TUNE_SCAN_COLUMNS], em_i64s(e, row)), c);
    return em_gep(e, e->scratch, em_scalar_type(e, s->t), at);
}

static LLVMValueRef get(scan *s, int row, LLVMValueRef c) {
    return em_load_ptr(s->e, s->t, row_of(s, row, c), NULL, ir_dtypes[s->t].bytes);
}

static void put(scan *s, int row, LLVMValueRef c, LLVMValueRef x) {
    em_store_ptr(s->e, s->t, x, row_of(s, row, c), NULL, ir_dtypes[s->t].bytes);
}

/* Element i of the columns from first + c on. */
static void column_step(scan *s, LLVMValueRef i, LLVMValueRef first, LLVMValueRef c, LLVMValueRef mask) {
    emit *e = s->e;
    red_at at = {s->r, i, em_add(e, first, c), mask};
    em_values v;
    begin_values(s, &v, &at);
    LLVMValueRef total = get(s, TOTAL, c), after = scan_combine(s, total, em_value(e, &v, s->inst->in[0]));
    put(s, TOTAL, c, after);
    v.at[s->number] = scan_combine(s, get(s, HIGH, c), s->is_exclusive ? total : after);
    scan_store_values(s, &v, &at);
}

static void emit_row(scan *s, LLVMValueRef j, LLVMValueRef first, LLVMValueRef n) {
    emit *e = s->e;
    LLVMValueRef i = s->is_reversed ? em_sub(e, em_sub(e, s->length, em_i64s(e, 1)), j) : j, zero = em_i64s(e, 0);
    make_seeds(s, (red_at){s->r, i, NULL, NULL}, 1u << s->r->v);
    e->lanes = e->level->lanes;
    LLVMValueRef whole = em_and(e, n, em_i64s(e, -(int64_t)e->lanes));
    em_loop l = em_for(e, zero, whole, em_i64s(e, e->lanes));
    column_step(s, i, first, l.i, NULL);
    em_end(e, &l);
    if (!e->level->has_mask) e->lanes = 1;
    l = em_for(e, whole, n, em_i64s(e, e->lanes));
    column_step(s, i, first, l.i, e->lanes > 1 ? em_mask(e, em_sub(e, n, l.i)) : NULL);
    em_end(e, &l);
    e->lanes = 1;
}

/* Whole vectors: what is in scratch behind the last column is nobody's. */
static em_loop scratch_loop(scan *s, LLVMValueRef n) {
    s->e->lanes = s->e->level->lanes;
    return em_for(s->e, em_i64s(s->e, 0), n, em_i64s(s->e, s->e->lanes));
}

static void emit_chunk(scan *s, LLVMValueRef first, LLVMValueRef n) {
    emit *e = s->e;
    LLVMValueRef block = em_i64s(e, IR_SCAN_COLUMN_BLOCK);
    em_loop l = scratch_loop(s, n);
    scan_carry c = scan_no_carry(s);
    put(s, TOTAL, l.i, scan_identity(s));
    put(s, HIGH, l.i, c.high);
    if (c.low) put(s, LOW, l.i, c.low);
    e->lanes = 1;
    em_end(e, &l);
    em_loop b = em_for(e, em_i64s(e, 0), s->length, block);
    em_loop j = em_for(e, b.i, em_min(e, em_add(e, b.i, block), s->length), em_i64s(e, 1));
    emit_row(s, j.i, first, n);
    em_end(e, &j);
    l = scratch_loop(s, n);
    c = (scan_carry){get(s, HIGH, l.i), s->has_carry_rest ? get(s, LOW, l.i) : NULL};
    c = scan_carry_past(s, c, get(s, TOTAL, l.i));
    put(s, TOTAL, l.i, scan_identity(s));
    put(s, HIGH, l.i, c.high);
    if (c.low) put(s, LOW, l.i, c.low);
    e->lanes = 1;
    em_end(e, &l);
    em_end(e, &b);
}

static void emit_columns(scan *s) {
    emit *e = s->e;
    LLVMValueRef by = e->tune[IR_TUNE_SCAN_COLUMNS], chunks, rest, line, chunk;
    red_divide(e, em_add(e, s->r->columns, em_sub(e, by, em_i64s(e, 1))), by, &chunks, &rest);
    em_loop u = units_loop(e, e->tune[IR_TUNE_SCAN_GRAIN], em_mul(e, s->r->rows, chunks));
    red_divide(e, u.i, chunks, &line, &chunk);
    LLVMValueRef first = em_mul(e, chunk, by);
    red_enter_row(s->r, line);
    emit_chunk(s, first, em_min(e, by, em_sub(e, s->r->columns, first)));
    em_end(e, &u);
}

/* ---- the kernel ---- */
fusor_status scan_init(emit *e, fu_error *err, scan **out) {
    scan *s = FU_NEW(e->arena, scan);
    FU_TRY(red_init(e, err, &s->r));
    s->e = e;
    for (int i = 0; i < e->k->n_insts; i++)
        if (e->k->inst[i].op < IR_OP_COUNT && ir_ops[e->k->inst[i].op].kind == IR_KIND_SCAN) s->number = i;
    s->inst = &e->k->inst[s->number];
    s->t = s->inst->dtype;
    if (s->t != FUSOR_F32 && s->t != FUSOR_F64 && s->t != FUSOR_I64)
        return FU_FAIL(err, FUSOR_ERROR_INTERNAL,
                       "kernel instruction %%%d: %s in %s; kernels run them in f32, f64 or i64", s->number,
                       ir_ops[s->inst->op].name, ir_dtypes[s->t].name);
    s->is_product = s->inst->op == IR_OP_CUMPROD;
    s->is_exclusive = s->inst->variant & IR_SCAN_EXCLUSIVE;
    s->is_reversed = s->inst->variant & IR_SCAN_REVERSE;
    s->has_carry_rest = !s->is_product && ir_is_float(s->t);
    s->length = e->size[s->r->last];
    s->blocks = em_lshr(e, em_add(e, s->length, em_i64s(e, IR_SCAN_BLOCK - 1)), __builtin_ctz(IR_SCAN_BLOCK));
    /* A running sum of what is the same in all lanes is so too, but it is not known before the loop over the dim: it
     * and what uses it are computed per lane. */
    const uint32_t all = 1u << s->r->last | (s->r->v >= 0 ? 1u << s->r->v : 0);
    bool uses[IR_KERNEL_MAX_INSTS] = {false};
    for (int i = s->number; i < e->k->n_insts; i++) {
        uses[i] = i == s->number;
        for (int j = 0; j < e->k->inst[i].n_in; j++) uses[i] |= uses[e->k->inst[i].in[j]];
        if (!uses[i]) continue;
        s->r->varies[i] |= all;
        e->varies[i] |= all;
    }
    *out = s;
    return FUSOR_OK;
}

fusor_status jit_emit_scan(emit *e, fu_error *err) {
    scan *s;
    FU_TRY(scan_init(e, err, &s));
    e->lanes = 1;
    e->is_optimized = true;
    if (s->r->v >= 0) { /* phase 2 alone has tiles */
        emit_columns(s);
        return FUSOR_OK;
    }
    int64_t length;
    if (is_short(s, &length)) {
        em_branch last = em_if(e, em_icmp(e, LLVMIntEQ, e->phase, LLVMConstInt(e->t_i32, 2, 0)));
        emit_short_lines(s, length);
        em_endif(e, &last);
        return FUSOR_OK;
    }
    em_branch first = em_if(e, em_icmp(e, LLVMIntEQ, e->phase, LLVMConstInt(e->t_i32, 0, 0)));
    emit_totals(s);
    em_else(e, &first);
    em_branch second = em_if(e, em_icmp(e, LLVMIntEQ, e->phase, LLVMConstInt(e->t_i32, 1, 0)));
    emit_carries(s);
    em_else(e, &second);
    emit_lines(s);
    em_endif(e, &second);
    em_endif(e, &first);
    return FUSOR_OK;
}
