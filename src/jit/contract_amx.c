/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* contract_amx.c: the tile of a contraction on a CPU with tile registers (AMX), which takes the place of
 * contract_tile.c and is called like it: the tiles of one panel of operand 1 and a run of row panels of operand 0, 32 x
 * 32 each.
 *
 *   per panel      its rows differ from those before: the registers are configured
 *   products       amx.c, into 4 KB of memory
 *   not the first  add what the blocks before left, a vector at a time
 *   the last       contract_epilogue.c, on what was just stored
 *
 * Where bf16 could be subnormal, which the instruction takes for 0 (contract_is_exact), the same sums in the same order
 * are made by fma (ir/schedule.h). */
#include "jit/amx.h"
#include "jit/contract.h"

typedef struct amx {
    contract *c;
    LLVMValueRef in[CONTRACT_TILE_PARAMETERS];
    LLVMValueRef m0, partial; /* of the panel */
    amx_product p;
} amx;

static const char *product_name(const contract *c) {
    if (c->dot == IR_DOT_TILE_BF16) return "llvm.x86.tdpbf16ps";
    if (c->dot == IR_DOT_TILE_F16) return "llvm.x86.tdpfp16ps";
    bool is_signed[2];
    for (int i = 0; i < 2; i++) is_signed[i] = ir_is_signed(c->k->inst[c->operand[i]].dtype);
    return is_signed[0] ? (is_signed[1] ? "llvm.x86.tdpbssd" : "llvm.x86.tdpbsud")
                        : (is_signed[1] ? "llvm.x86.tdpbusd" : "llvm.x86.tdpbuud");
}

/* The products, in scratch, and the partial sums of the K blocks before: to scratch for the epilogue, or else back. */
static void add_partial(amx *t) {
    contract *c = t->c;
    emit *e = c->e;
    LLVMValueRef to = em_select(e, t->in[CONTRACT_IS_LAST], t->p.to, t->partial);
    em_loop l = em_for(e, num(c, 0), em_mul(e, t->p.rows, num(c, c->nr)), num(c, c->v_lanes));
    LLVMValueRef sum = contract_tile_load(c, element(c, t->p.to, l.i), AMX_ROW_BYTES);
    LLVMValueRef before = contract_tile_load(c, element(c, t->partial, l.i), AMX_ROW_BYTES);
    sum = ir_is_float(c->acc) ? em_fadd(e, before, sum) : em_add(e, before, sum);
    LLVMSetAlignment(LLVMBuildStore(e->b, sum, element(c, to, l.i)), AMX_ROW_BYTES);
    em_end(e, &l);
}

static void make_panel(amx *t) {
    contract *c = t->c;
    emit *e = c->e;
    LLVMValueRef is_last = t->in[CONTRACT_IS_LAST], is_later = t->in[CONTRACT_IS_LATER];
    t->p.to = em_select(e, em_or(e, is_last, is_later), e->scratch, t->partial);
    if (c->dot == IR_DOT_TILE_BF16) {
        em_branch exact = em_if(e, contract_is_exact(c, t->p.a, t->in[CONTRACT_B]));
        amx_multiply(e, &t->p);
        em_else(e, &exact);
        amx_multiply_bf16_slowly(e, &t->p);
        em_endif(e, &exact);
    } else amx_multiply(e, &t->p);
    em_branch later = em_if(e, is_later);
    add_partial(t);
    em_endif(e, &later);
    em_branch last = em_if(e, is_last);
    contract_call(c, FINISH, (LLVMValueRef[]){e->args, t->in[CONTRACT_BATCH], t->m0, t->in[CONTRACT_N0], t->p.rows}, 5);
    em_endif(e, &last);
}

void contract_emit_amx_tile(contract *c) {
    emit *e = c->e;
    contract_outer *o = contract_begin_tile(c, TILE);
    amx t = {.c = c, .p = {.name = product_name(c), .config = amx_begin(e)}};
    for (int i = 0; i < CONTRACT_LEFT; i++) t.in[i] = contract_tile_in(c, i);
    contract_decode_batch(c, t.in[CONTRACT_BATCH], 0);
    LLVMValueRef n0 = contract_decode_columns(c, t.in[CONTRACT_N0]);
    t.p.a_row = t.in[CONTRACT_A_ROW];
    t.p.b = t.in[CONTRACT_B];
    t.p.words = t.in[CONTRACT_COUNT];
    em_loop l = em_for(e, num(c, 0), t.in[CONTRACT_PANELS], num(c, 1));
    LLVMValueRef configured = em_loop_phi(e, &l, num(c, -1));
    t.p.a = em_loop_phi(e, &l, t.in[CONTRACT_A]);
    t.m0 = em_loop_phi(e, &l, t.in[CONTRACT_M0]);
    t.partial = em_loop_phi(e, &l, t.in[CONTRACT_PARTIAL]);
    LLVMValueRef is_full = em_icmp(e, LLVMIntSLT, l.i, t.in[CONTRACT_FULL]);
    t.p.rows = em_select(e, is_full, num(c, c->mr), t.in[CONTRACT_ROWS_LEFT]);
    t.p.is_high = em_icmp(e, LLVMIntSGT, t.p.rows, num(c, AMX_SIDE));
    t.p.is_wide = em_icmp(e, LLVMIntSGT, em_sub(e, c->n, n0), num(c, AMX_SIDE));
    em_branch changed = em_if(e, em_icmp(e, LLVMIntNE, t.p.rows, configured));
    amx_configure(e, &t.p);
    em_endif(e, &changed);
    make_panel(&t);
    em_loop_next(e, configured, t.p.rows);
    LLVMValueRef next_a = em_add(e, em_mul(e, t.p.rows, t.in[CONTRACT_A_NEXT_ROW]), t.in[CONTRACT_A_NEXT]);
    em_loop_next(e, t.p.a, em_gep(e, t.p.a, e->t_i8, next_a));
    em_loop_next(e, t.m0, em_add(e, t.m0, t.p.rows));
    em_loop_next(e, t.partial, element(c, t.partial, num(c, c->mr * c->nr)));
    em_end(e, &l);
    amx_release(e);
    contract_end(c, o);
}
