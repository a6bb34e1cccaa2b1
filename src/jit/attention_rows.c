/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attention_rows.c: the programs of the attention kernel on rows of memory: operands that are more than a load of
 * accumulators, evaluated into scratch, and results through the epilogue. Lanes go along the row; its end is masked, or
 * taken one by one where the level has no masks. */
#include "jit/attention.h"

static LLVMValueRef coordinate(const attention_point *at, int dim) {
    const attention *a = at->a;
    LLVMValueRef x = dim == a->at.m   ? at->m
                     : dim == a->at.n ? at->n
                     : dim == a->at.k ? at->k
                     : dim == a->at.j ? at->j
                                      : a->index[dim];
    return x ? x : em_i64s(a->e, 0);
}

LLVMValueRef attention_offset(attention *a, int buffer, const attention_point *at) {
    emit *e = a->e;
    LLVMValueRef off = a->batch_off[buffer];
    for (int d = a->at.m; d <= a->at.j; d++) {
        const int64_t stride = a->k->buffer[buffer].stride[d];
        LLVMValueRef x = coordinate(at, d);
        if (stride == 0 || (LLVMIsAConstantInt(x) && LLVMConstIntGetSExtValue(x) == 0)) continue;
        off = em_add(e, off, stride == 1 ? x : em_mul(e, x, e->stride[buffer][d]));
    }
    return off;
}

static LLVMValueRef step_of(attention *a, int buffer, int axis) {
    return axis < 0 ? em_i64s(a->e, 0) : a->e->stride[buffer][axis];
}

LLVMValueRef attention_load(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    attention_point *at = user;
    if (inst->op == IR_K_LOAD)
        return em_load_value(e, v, inst, at->axis, attention_offset(at->a, inst->index, at),
                             step_of(at->a, inst->index, at->axis), at->mask);
    LLVMValueRef x = em_splat(e, coordinate(at, inst->index));
    if (inst->index != at->axis || e->lanes == 1) return x;
    LLVMValueRef lane[64];
    for (int i = 0; i < e->lanes; i++) lane[i] = em_i64s(e, i);
    return em_add(e, x, LLVMConstVector(lane, (unsigned)e->lanes));
}

bool attention_is_plain(const attention *a, int inst) {
    const ir_kinst *in = &a->k->inst[inst];
    return in->op == IR_K_LOAD && !in->variant && in->dtype == a->acc;
}

bool attention_has_halves(const attention *a, int inst, int dim) {
    const ir_kinst *in = &a->k->inst[inst];
    return in->op == IR_K_LOAD && !in->variant && ir_is_half(in->dtype) && a->k->buffer[in->index].stride[dim] == 1;
}

/* ---- operands ---- */
typedef struct rows {
    attention *a;
    int inst, row_dim, column_dim;
    ir_dtype to;
    LLVMValueRef row, first;
} rows;

static void set(attention_point *at, int dim, LLVMValueRef x) {
    const attention *a = at->a;
    *(dim == a->at.m ? &at->m : dim == a->at.n ? &at->n : dim == a->at.k ? &at->k : &at->j) = x;
}

static LLVMValueRef value_at(const rows *r, LLVMValueRef column, LLVMValueRef mask) {
    attention *a = r->a;
    attention_point at = {.a = a, .axis = a->e->lanes > 1 ? r->column_dim : -1, .mask = mask};
    em_values v;
    set(&at, r->row_dim, r->row);
    set(&at, r->column_dim, em_add(a->e, r->first, column));
    em_values_init(&v, attention_load, &at);
    return em_cast(a->e, em_value(a->e, &v, r->inst), a->k->inst[r->inst].dtype, r->to);
}

static void put(const rows *r, LLVMValueRef v, LLVMValueRef base, LLVMValueRef i) {
    emit *e = r->a->e;
    em_store_ptr(e, r->to, v, em_gep(e, base, em_memory_type(e, r->to), i), NULL, (unsigned)ir_dtypes[r->to].bytes);
}

/* (args, batch, row, count, last, column, columns, dst, dst_row): dst[i][c] = the operand at row min(row + i, last) and
 * column `column` + c, for i < count, c < columns, in type `to`; zeros from there to the next multiple of lanes. */
static void emit_pack(attention *a, attention_function f, const char *name, int inst, int row_dim, int column_dim,
                      ir_dtype to) {
    emit *e = a->e;
    LLVMTypeRef parameter[9] = {e->t_ptr, e->t_i64, e->t_i64, e->t_i64, e->t_i64,
                                e->t_i64, e->t_i64, e->t_ptr, e->t_i64};
    attention_outer *o = attention_begin(a, f, name, parameter, 9, true, true);
    LLVMValueRef in[9], zero = attention_num(a, 0), one = attention_num(a, 1), lanes = attention_num(a, a->lanes);
    LLVMGetParams(e->fn, in);
    attention_decode(a, in[1]);
    LLVMValueRef whole = em_and(e, in[6], attention_num(a, -a->lanes)), left = em_sub(e, in[6], whole);
    em_loop l = em_for(e, zero, in[3], one);
    rows r = {a, inst, row_dim, column_dim, to, em_min(e, em_add(e, in[2], l.i), in[4]), in[5]};
    LLVMValueRef dst = em_gep(e, in[7], em_memory_type(e, to), em_mul(e, l.i, in[8]));
    e->lanes = a->lanes;
    em_loop c = em_for(e, zero, whole, lanes);
    put(&r, value_at(&r, c.i, NULL), dst, c.i);
    em_end(e, &c);
    em_branch tail = em_if(e, em_icmp(e, LLVMIntNE, left, zero));
    if (e->level->has_mask) {
        LLVMValueRef mask = em_mask(e, left);
        put(&r, em_select(e, mask, value_at(&r, whole, mask), em_const(e, to, 0)), dst, whole);
    } else {
        put(&r, em_const(e, to, 0), dst, whole);
        e->lanes = 1;
        c = em_for(e, whole, in[6], one);
        put(&r, value_at(&r, c.i, NULL), dst, c.i);
        em_end(e, &c);
    }
    em_endif(e, &tail);
    em_end(e, &l);
    LLVMBuildRetVoid(e->b);
    em_demote_nests(e);
    attention_end(a, o);
}

/* ---- results ---- */
static void store_at(attention *a, LLVMValueRef m, LLVMValueRef n, LLVMValueRef src, LLVMValueRef by,
                     LLVMValueRef mask) {
    emit *e = a->e;
    attention_point at = {.a = a, .m = m, .n = n, .axis = e->lanes > 1 ? a->at.n : -1, .mask = mask};
    em_values v;
    em_values_init(&v, attention_load, &at);
    LLVMValueRef x = em_load_ptr(e, a->acc, attention_at(a, src, n), NULL, (unsigned)a->acc_bytes);
    v.at[a->inst] = em_cast(e, attention_share(e, a->acc, x, em_splat(e, by)), a->acc, a->k->inst[a->inst].dtype);
    for (int i = 0; i < a->k->n_insts; i++) {
        const ir_kinst *in = &a->k->inst[i];
        if (in->op == IR_K_STORE)
            em_store(e, in->index, em_value(e, &v, in->in[0]), attention_offset(a, in->index, &at),
                     step_of(a, in->index, at.axis), mask);
    }
}

int attention_plain_result(const attention *a) {
    int found = -1;
    for (int i = 0; i < a->k->n_insts; i++) {
        const ir_kinst *in = &a->k->inst[i];
        if (in->op != IR_K_STORE) continue;
        if (found >= 0 || in->variant || in->in[0] != a->inst || a->k->inst[a->inst].dtype != a->acc) return -1;
        if (a->k->buffer[in->index].dtype != a->acc || a->k->buffer[in->index].stride[a->at.n] != 1) return -1;
        found = in->index;
    }
    return found;
}

LLVMValueRef attention_inverse(attention *a, LLVMValueRef sum, LLVMValueRef n_keys) {
    emit *e = a->e;
    LLVMValueRef one = em_const(e, a->acc, 1), is_empty = em_fcmp(e, LLVMRealOEQ, sum, em_const(e, a->acc, 0));
    if (a->k->inst[a->inst].variant & IR_ATTENTION_NAN) {
        LLVMValueRef has_none = em_icmp(e, LLVMIntEQ, n_keys, attention_num(a, 0));
        is_empty = em_and(e, is_empty, em_splat(e, has_none));
    }
    return em_select(e, is_empty, em_const(e, a->acc, 0), em_fdiv(e, one, sum));
}

LLVMValueRef attention_share(emit *e, ir_dtype t, LLVMValueRef x, LLVMValueRef by) {
    LLVMValueRef zero = em_const(e, t, 0);
    return em_select(e, em_fcmp(e, LLVMRealOEQ, by, zero), zero, em_fmul(e, x, by));
}

/* (args, batch, row, count, src, src_row, sums): rows of unfinished results, each divided by its sum, become results
 * from row `row` on. */
static void emit_store(attention *a) {
    emit *e = a->e;
    LLVMTypeRef parameter[7] = {e->t_ptr, e->t_i64, e->t_i64, e->t_i64, e->t_ptr, e->t_i64, e->t_ptr};
    attention_outer *o = attention_begin(a, STORE_ROWS, "store", parameter, 7, true, true);
    LLVMValueRef in[7], zero = attention_num(a, 0), one = attention_num(a, 1);
    LLVMGetParams(e->fn, in);
    attention_decode(a, in[1]);
    LLVMValueRef whole = em_and(e, a->n_values, attention_num(a, -a->lanes)), left = em_sub(e, a->n_values, whole);
    em_loop l = em_for(e, zero, in[3], one);
    LLVMValueRef m = em_add(e, in[2], l.i), src = attention_at(a, in[4], em_mul(e, l.i, in[5]));
    e->lanes = 1;
    LLVMValueRef sum = em_load_ptr(e, a->acc, attention_at(a, in[6], l.i), NULL, (unsigned)a->acc_bytes);
    LLVMValueRef by = attention_inverse(a, sum, a->n_keys);
    e->lanes = a->lanes;
    em_loop c = em_for(e, zero, whole, attention_num(a, a->lanes));
    store_at(a, m, c.i, src, by, NULL);
    em_end(e, &c);
    em_branch tail = em_if(e, em_icmp(e, LLVMIntNE, left, zero));
    if (e->level->has_mask) {
        store_at(a, m, whole, src, by, em_mask(e, left));
    } else {
        e->lanes = 1;
        c = em_for(e, whole, a->n_values, one);
        store_at(a, m, c.i, src, by, NULL);
        em_end(e, &c);
    }
    em_endif(e, &tail);
    em_end(e, &l);
    LLVMBuildRetVoid(e->b);
    em_demote_nests(e);
    attention_end(a, o);
}

void attention_emit_rows(attention *a) {
    emit_pack(a, PACK_Q, "pack_q", a->q, a->at.m, a->at.k, a->acc);
    if (!a->dot || !attention_has_halves(a, a->keys, a->at.k))
        emit_pack(a, PACK_K, "pack_k", a->keys, a->at.j, a->at.k, a->acc);
    emit_pack(a, PACK_V, "pack_v", a->v, a->at.j, a->at.n, a->acc);
    if (a->k_row != a->acc) emit_pack(a, PACK_K_ROWS, "pack_k_rows", a->keys, a->at.j, a->at.k, a->k_row);
    if (a->v_row != a->acc) emit_pack(a, PACK_V_ROWS, "pack_v_rows", a->v, a->at.j, a->at.n, a->v_row);
    if (a->mask >= 0) emit_pack(a, PACK_MASK, "pack_mask", a->mask, a->at.m, a->at.j, a->acc);
    emit_store(a);
}
