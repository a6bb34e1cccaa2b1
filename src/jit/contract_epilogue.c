/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* contract_epilogue.c: from a register tile to the outputs.
 *
 * The tile is in memory (in L1, just written); the program behind the matmul is evaluated on it row by row, and what
 * it stores is stored. */
#include "jit/contract.h"

/* Evaluates and stores everything at one point; x is where the accumulators of this point lie. */
static void epilogue_at(contract *c, contract_point *at, LLVMValueRef x) {
    emit *e = c->e;
    em_values v;
    em_values_init(&v, contract_load, at);
    LLVMValueRef sum = em_load_ptr(e, c->acc, x, NULL, (unsigned)c->acc_bytes);
    v.at[c->matmul] = em_cast(e, sum, c->acc, c->k->inst[c->matmul].dtype);
    for (int i = 0; i < c->k->n_insts; i++) {
        const ir_kinst *in = &c->k->inst[i];
        if (in->op != IR_K_STORE) continue;
        LLVMValueRef value = em_value(e, &v, in->in[0]);
        em_store(e, in->index, value, contract_offset(c, in->index, at), contract_step(c, in->index, at->axis),
                 at->mask);
    }
}

static bool is_costly_epilogue(const contract *c) {
    for (int i = c->matmul; i < c->k->n_insts; i++)
        if (c->k->inst[i].op < IR_OP_COUNT && (ir_ops[c->k->inst[i].op].flags & IR_COSTLY)) return true;
    return false;
}

/* Vectors of a row, or single elements where the end cannot be masked. A costly program is emitted once, in a loop.
 * Whole vectors are stored without masks: masked stores are slow where they miss the caches near. */
static void epilogue_row(contract *c, LLVMValueRef row, LLVMValueRef m, LLVMValueRef n0, LLVMValueRef columns,
                         LLVMValueRef *mask, bool is_whole, bool in_loop) {
    emit *e = c->e;
    if (!in_loop) {
        for (int j = 0; j < c->nr / c->lanes; j++) {
            contract_point at = {c, m, em_add(e, n0, num(c, j * c->lanes)), NULL, c->dim_n, mask[j]};
            epilogue_at(c, &at, element(c, row, num(c, j * c->lanes)));
        }
        return;
    }
    em_loop l = em_for(e, num(c, 0), columns, num(c, e->lanes));
    bool is_masked = !is_whole && e->lanes > 1;
    contract_point at = {c,
                         m,
                         em_add(e, n0, l.i),
                         NULL,
                         e->lanes > 1 ? c->dim_n : -1,
                         is_masked ? em_mask(e, em_sub(e, columns, l.i)) : NULL};
    epilogue_at(c, &at, element(c, row, l.i));
    em_end(e, &l);
}

static void epilogue_rows(contract *c, LLVMValueRef tile, LLVMValueRef m0, LLVMValueRef rows, LLVMValueRef n0,
                          LLVMValueRef columns, bool is_whole, bool is_costly) {
    emit *e = c->e;
    LLVMValueRef mask[8] = {0};
    bool has_mask = e->level->has_mask;
    e->lanes = is_whole || has_mask ? c->lanes : 1;
    for (int j = 0; j < c->nr / c->lanes && !is_whole && !is_costly && has_mask; j++)
        mask[j] = em_mask(e, em_sub(e, columns, num(c, j * c->lanes)));
    em_loop l = em_for(e, num(c, 0), rows, num(c, 1));
    LLVMValueRef row = element(c, tile, em_mul(e, l.i, num(c, c->nr)));
    epilogue_row(c, row, em_add(e, m0, l.i), n0, columns, mask, is_whole, is_costly || e->lanes == 1);
    em_end(e, &l);
}

/* (args, batch, m0, n0): what becomes of the tile in scratch, whose first element is at m0, n0. */
void contract_emit_epilogue(contract *c) {
    emit *e = c->e;
    bool is_costly = is_costly_epilogue(c);
    LLVMTypeRef parameter[4] = {e->t_ptr, e->t_i64, e->t_i64, e->t_i64};
    contract_outer *o = contract_begin(c, FINISH, "finish", parameter, 4, is_costly);
    LLVMValueRef m0 = LLVMGetParam(e->fn, 2), n0 = LLVMGetParam(e->fn, 3), tile = e->scratch, nr = num(c, c->nr);
    contract_decode_batch(c, LLVMGetParam(e->fn, 1), UINT32_MAX);
    LLVMValueRef rows = contract_min(e, em_sub(e, c->m, m0), num(c, c->mr)), left = em_sub(e, c->n, n0);
    em_branch b = em_if(e, em_icmp(e, LLVMIntSGE, left, nr));
    epilogue_rows(c, tile, m0, rows, n0, nr, true, is_costly);
    em_else(e, &b);
    epilogue_rows(c, tile, m0, rows, n0, left, false, is_costly);
    em_endif(e, &b);
    contract_end(c, o);
}
