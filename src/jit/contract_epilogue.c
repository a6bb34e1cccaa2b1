/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* contract_epilogue.c: from a register tile to the outputs: the program behind the matmul is evaluated, and what it
 * stores is stored.
 *
 * Two ways. Cheap programs on whole tiles run on the registers, as part of the tile's function (contract_epilogue_row).
 * Costly ones, and the last columns where they fill no tile, run on the tile in memory (in L1, just written), row by
 * row, in a function beside it (finish), where they are emitted once; without optimization, but for costly ones and
 * those of products in tiles (AMX). */
#include "jit/contract.h"
#include <string.h>

static void store_all(contract *c, contract_point *at, em_values *v) {
    emit *e = c->e;
    for (int i = 0; i < c->k->n_insts; i++) {
        const ir_kinst *in = &c->k->inst[i];
        if (in->op != IR_K_STORE) continue;
        LLVMValueRef value = em_value(e, v, in->in[0]);
        em_store(e, in->index, value, contract_offset(c, in->index, at), contract_step(c, in->index, at->axis),
                 at->mask);
    }
}

bool contract_stores_bf16(const contract *c) {
    const bool has_rounding = c->dot == IR_DOT_BF16 || (c->dot == IR_DOT_TILE_BF16 && c->k->features & IR_FEATURE_BF16);
    bool is_stored = has_rounding && c->k->inst[c->matmul].dtype == FUSOR_BF16 && c->lanes == 16;
    for (int i = 0; i < c->k->n_insts && is_stored; i++)
        for (int j = 0; j < c->k->inst[i].n_in; j++)
            is_stored &= c->k->inst[i].in[j] != c->matmul || c->k->inst[i].op == IR_K_STORE;
    return is_stored;
}

/* Vectors of sums as the matmul's type. */
static void round_sums(contract *c, LLVMValueRef *sum, int n) {
    const ir_kinst *matmul = &c->k->inst[c->matmul];
    const ir_dtype t = matmul->dtype;
    if (c->e->lanes == 16 && contract_stores_bf16(c)) {
        em_bf16_round(c->e, sum, n);
        return;
    }
    const bool has_short_nans = t == FUSOR_BF16 && c->acc == FUSOR_F32 && c->e->has_short_nans[matmul->in[0]] &&
                                c->e->has_short_nans[matmul->in[1]];
    for (int i = 0; i < n; i++)
        sum[i] = has_short_nans ? em_half_round(c->e, t, sum[i], true) : em_cast(c->e, sum[i], c->acc, t);
}

void contract_finish(contract *c, contract_point *at, LLVMValueRef sum) {
    em_values v;
    em_values_init(&v, contract_load, at);
    round_sums(c, &sum, 1);
    v.at[c->matmul] = sum;
    store_all(c, at, &v);
}

static bool is_costly(const ir_kinst *in) { return in->op < IR_OP_COUNT && (ir_ops[in->op].flags & IR_COSTLY); }

bool contract_has_costly_epilogue(const contract *c) {
    for (int i = c->matmul; i < c->k->n_insts; i++)
        if (is_costly(&c->k->inst[i])) return true;
    return false;
}

/* As long as a costly one: rounding takes ten instructions. */
static bool has_halves(const contract *c) {
    for (int i = c->matmul; i < c->k->n_insts; i++)
        if (ir_is_half(c->k->inst[i].dtype)) return true;
    return false;
}

bool contract_has_long_epilogue(const contract *c) { return contract_has_costly_epilogue(c) || has_halves(c); }

/* ---- on the registers ---- */
/* Instructions for which the tile's function is unrolled: each costs as many as the tile has registers. */
enum { DIRECT_MAX = 8 };

/* What the stores need that is not an operand's. */
static void mark_used(const contract *c, bool *used) {
    memset(used, 0, sizeof *used * IR_KERNEL_MAX_INSTS);
    for (int i = c->k->n_insts - 1; i >= 0; i--) {
        const ir_kinst *in = &c->k->inst[i];
        if (i == c->matmul || (in->op != IR_K_STORE && !used[i])) continue;
        for (int j = 0; j < in->n_in; j++) used[in->in[j]] = true;
    }
}

static bool has_cheap_epilogue(const contract *c) {
    bool used[IR_KERNEL_MAX_INSTS];
    int n = 0;
    mark_used(c, used);
    for (int i = 0; i < c->k->n_insts; i++) {
        const ir_kinst *in = &c->k->inst[i];
        bool is_store = in->op == IR_K_STORE;
        if (i == c->matmul || (!used[i] && !is_store)) continue;
        if (is_store || in->op == IR_K_LOAD) {
            int64_t stride = c->k->buffer[in->index].stride[c->dim_n];
            if (in->variant || (stride != 1 && (is_store || stride != 0))) return false;
        } else if (in->op == IR_K_INDEX || is_costly(in)) {
            return false;
        }
        /* Halves are rounded with constants that would take registers from the accumulators: one of them spilled in the
         * loop of products costs half of the speed (Zen 5, bf16). */
        if (in->op < IR_OP_COUNT && ir_is_half(in->dtype)) return false;
        n += in->op != IR_K_SCALAR;
    }
    return n <= DIRECT_MAX;
}

/* Values that do not vary along m, of each vector of columns: evaluated once a tile. */
struct contract_columns {
    int n;
    contract_row row;
    contract_point at[8];
    em_values v[8];
};

static void columns_of(contract *c, em_values *v, int inst) {
    const ir_kinst *in = &c->k->inst[inst];
    if (inst == c->matmul || v->at[inst]) return;
    if (c->e->varies[inst] >> c->dim_m & 1) {
        if (in->op == IR_K_LOAD) return;
        for (int j = 0; j < in->n_in; j++) columns_of(c, v, in->in[j]);
        return;
    }
    em_value(c->e, v, inst);
}

bool contract_ends_in_registers(const contract *c) {
    return (c->e->level->has_mask || c->columns % c->lanes == 0) && has_cheap_epilogue(c);
}

LLVMValueRef contract_is_whole(contract *c, LLVMValueRef n0) {
    if (c->is_last ? c->e->level->has_mask : c->columns < c->nr) return LLVMConstInt(c->e->t_i1, 1, 0);
    return em_icmp(c->e, LLVMIntSGE, em_sub(c->e, c->n, n0), num(c, c->columns));
}

/* Of vector j of n; NULL: all lanes. */
static LLVMValueRef mask_of(contract *c, LLVMValueRef n0, int j, int n) {
    const int left = c->columns - j * c->lanes;
    if (left < c->lanes) return em_mask(c->e, num(c, left));
    if (!c->is_last || j + 1 < n || !c->e->level->has_mask) return NULL;
    return em_mask(c->e, em_sub(c->e, em_sub(c->e, c->n, n0), num(c, j * c->lanes)));
}

contract_columns *contract_epilogue_begin(contract *c, LLVMValueRef n0) {
    emit *e = c->e;
    contract_columns *s = FU_NEW(e->arena, contract_columns);
    e->lanes = c->lanes;
    s->row.n0 = n0;
    s->n = (c->columns + c->lanes - 1) / c->lanes;
    for (int j = 0; j < s->n; j++) {
        s->at[j] = (contract_point){c,    num(c, 0), em_add(e, n0, num(c, j * c->lanes)),
                                    NULL, c->dim_n,  mask_of(c, n0, j, s->n)};
        em_values_init(&s->v[j], contract_load, &s->at[j]);
        for (int i = 0; i < c->k->n_insts; i++)
            if (c->k->inst[i].op == IR_K_STORE) columns_of(c, &s->v[j], c->k->inst[i].in[0]);
    }
    return s;
}

void contract_epilogue_row(contract *c, contract_columns *s, LLVMValueRef m, LLVMValueRef *sum) {
    emit *e = c->e;
    int parts = c->lanes / c->v_lanes;
    LLVMValueRef x[8];
    c->row = &s->row;
    for (int j = 0; j < s->n; j++) {
        x[j] = sum[j * parts];
        if (parts != 2) continue;
        LLVMValueRef lane[64];
        for (int i = 0; i < c->lanes; i++) lane[i] = LLVMConstInt(e->t_i32, (unsigned)i, 0);
        x[j] = LLVMBuildShuffleVector(e->b, x[j], sum[j * parts + 1], LLVMConstVector(lane, (unsigned)c->lanes), "");
    }
    round_sums(c, x, s->n);
    for (int j = 0; j < s->n; j++) {
        contract_point at = s->at[j];
        em_values v = s->v[j];
        at.m = m;
        s->row.column = j * c->lanes;
        v.user = &at;
        v.one = NULL;
        v.at[c->matmul] = x[j];
        store_all(c, &at, &v);
    }
    c->row = NULL;
    s->row.number++;
}

/* ---- on the tile in memory ---- */
/* Evaluates and stores everything at one point; x is where the accumulators of this point lie. */
static void epilogue_at(contract *c, contract_point *at, LLVMValueRef x) {
    x = em_load_ptr(c->e, c->acc, x, NULL, (unsigned)c->acc_bytes);
    contract_finish(c, at, em_or_zero(c->e, x, at->mask));
}

/* Columns from .. to - 1 of a row by e->lanes. */
static void epilogue_loop(contract *c, LLVMValueRef row, LLVMValueRef m, LLVMValueRef n0, LLVMValueRef from,
                          LLVMValueRef to, bool is_masked) {
    emit *e = c->e;
    em_loop l = em_for(e, from, to, num(c, e->lanes));
    if (e->lanes == 1) em_loop_is_rare(e, &l);
    contract_point at = {c,
                         m,
                         em_add(e, n0, l.i),
                         NULL,
                         e->lanes > 1 ? c->dim_n : -1,
                         is_masked ? em_mask(e, em_sub(e, to, l.i)) : NULL};
    epilogue_at(c, &at, element(c, row, l.i));
    em_end(e, &l);
}

/* Vectors of a row, and single elements where the end cannot be masked. A long program is emitted once, in a loop.
 * Whole vectors are stored without masks: masked stores are slow where they miss the caches near. */
static void epilogue_row(contract *c, LLVMValueRef row, LLVMValueRef m, LLVMValueRef n0, LLVMValueRef columns,
                         LLVMValueRef *mask, bool is_whole, bool is_long) {
    emit *e = c->e;
    if (is_whole || e->level->has_mask) {
        if (is_long) epilogue_loop(c, row, m, n0, num(c, 0), columns, !is_whole);
        for (int j = 0; j < c->nr / c->lanes && !is_long; j++) {
            contract_point at = {c, m, em_add(e, n0, num(c, j * c->lanes)), NULL, c->dim_n, mask[j]};
            epilogue_at(c, &at, element(c, row, num(c, j * c->lanes)));
        }
        return;
    }
    LLVMValueRef whole = em_and(e, columns, num(c, -c->lanes));
    epilogue_loop(c, row, m, n0, num(c, 0), whole, false);
    e->lanes = 1;
    epilogue_loop(c, row, m, n0, whole, columns, false);
    e->lanes = c->lanes;
}

static void epilogue_rows(contract *c, LLVMValueRef tile, LLVMValueRef m0, LLVMValueRef rows, LLVMValueRef n0,
                          LLVMValueRef columns, bool is_whole, bool is_long) {
    emit *e = c->e;
    LLVMValueRef mask[8] = {0};
    e->lanes = c->lanes;
    for (int j = 0; j < c->nr / c->lanes && !is_whole && !is_long && e->level->has_mask; j++)
        mask[j] = em_mask(e, em_sub(e, columns, num(c, j * c->lanes)));
    em_loop l = em_for(e, num(c, 0), rows, num(c, 1));
    LLVMValueRef row = element(c, tile, em_mul(e, l.i, num(c, c->nr)));
    epilogue_row(c, row, em_add(e, m0, l.i), n0, columns, mask, is_whole, is_long);
    em_end(e, &l);
}

void contract_emit_epilogue(contract *c) {
    emit *e = c->e;
    const bool costly = contract_has_costly_epilogue(c), is_long = costly || (has_halves(c) && !c->is_tile);
    LLVMTypeRef parameter[6] = {e->t_ptr, e->t_i64, e->t_i64, e->t_i64, e->t_i64, e->t_ptr};
    contract_outer *o = contract_begin(c, FINISH, "finish", parameter, 6, costly || c->is_tile);
    LLVMValueRef m0 = LLVMGetParam(e->fn, 2), n0 = LLVMGetParam(e->fn, 3), rows = LLVMGetParam(e->fn, 4);
    LLVMValueRef tile = LLVMGetParam(e->fn, 5), nr = num(c, c->nr);
    contract_decode_batch(c, LLVMGetParam(e->fn, 1), UINT32_MAX);
    n0 = contract_decode_columns(c, n0);
    LLVMValueRef left = em_sub(e, c->n, n0);
    if (!c->is_tile && has_cheap_epilogue(c)) { /* whole tiles do not come here, but those of a sweep */
        if (c->k->can_sweep) left = em_min(e, left, nr);
        epilogue_rows(c, tile, m0, rows, n0, left, false, is_long);
        contract_end(c, o);
        return;
    }
    em_branch b = em_if(e, em_icmp(e, LLVMIntSGE, left, nr));
    epilogue_rows(c, tile, m0, rows, n0, nr, true, is_long);
    em_else(e, &b);
    epilogue_rows(c, tile, m0, rows, n0, left, false, is_long);
    em_endif(e, &b);
    contract_end(c, o);
}
