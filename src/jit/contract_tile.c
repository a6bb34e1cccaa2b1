/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* contract_tile.c: the register tile of a contraction: mr x nr accumulators over the panels of both operands, and the
 * addition of a K block's sums to those before it.
 * Words of panels that hold several elements are multiplied by contract_dot.c. */
#include "jit/contract.h"

LLVMValueRef contract_tile_load(contract *c, LLVMValueRef ptr, int align) {
    LLVMValueRef v = LLVMBuildLoad2(c->e->b, c->t_vec, ptr, "");
    LLVMSetAlignment(v, (unsigned)align);
    return v;
}

static LLVMValueRef mul_add(contract *c, LLVMValueRef a, LLVMValueRef b, LLVMValueRef acc, bool is_slow) {
    emit *e = c->e;
    if (c->dot) return contract_dot(c, acc, a, b, is_slow);
    return ir_is_float(c->acc) ? em_mad(e, a, b, acc) : em_add(e, em_mul(e, a, b), acc);
}

static void prefetch(contract *c, LLVMValueRef ptr) {
    emit *e = c->e;
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, LLVMLookupIntrinsicID("llvm.prefetch", 13), &e->t_ptr, 1);
    LLVMValueRef in[4] = {ptr, LLVMConstInt(e->t_i32, 0, 0), LLVMConstInt(e->t_i32, 3, 0),
                          LLVMConstInt(e->t_i32, 1, 0)};
    LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, in, 4, "");
}

/* How far ahead the panel is prefetched: a kilobyte. */
int64_t contract_rows_ahead(const contract *c) { return 1024 / (c->nr * c->acc_bytes) + 1; }

/* One product of the panels at pa and pb into acc. */
static void tile_step(contract *c, LLVMValueRef *acc, LLVMValueRef pa, LLVMValueRef pb, bool is_slow) {
    emit *e = c->e;
    LLVMValueRef zeros = LLVMConstNull(LLVMVectorType(e->t_i32, (unsigned)c->v_lanes)), b[8];
    for (int j = 0; j < c->nv; j++) b[j] = contract_tile_load(c, element(c, pb, num(c, j * c->v_lanes)), c->acc_bytes);
    /* The panel of operand 1 comes from the next cache the first time; the hardware's prefetcher is late for it. */
    for (int at = 0; at < c->nr * c->acc_bytes; at += 64)
        prefetch(c, em_gep(e, element(c, pb, c->b_ahead), e->t_i8, num(c, at)));
    for (int i = 0; i < c->mr; i++) {
        LLVMValueRef x = LLVMBuildLoad2(e->b, c->t_acc, element(c, pa, num(c, i)), "");
        LLVMSetAlignment(x, (unsigned)c->acc_bytes);
        LLVMValueRef poison = LLVMGetPoison(c->t_vec);
        LLVMValueRef a = LLVMBuildShuffleVector(
            e->b, LLVMBuildInsertElement(e->b, poison, x, LLVMConstInt(e->t_i32, 0, 0), ""), poison, zeros, "");
        for (int j = 0; j < c->nv; j++) acc[i * c->nv + j] = mul_add(c, a, b[j], acc[i * c->nv + j], is_slow);
    }
}

LLVMValueRef contract_merge(contract *c, LLVMValueRef a, LLVMBasicBlockRef from_a, LLVMValueRef b,
                          LLVMBasicBlockRef from_b) {
    LLVMValueRef phi = LLVMBuildPhi(c->e->b, LLVMTypeOf(a), "");
    LLVMAddIncoming(phi, &a, &from_a, 1);
    LLVMAddIncoming(phi, &b, &from_b, 1);
    return phi;
}

/* (pa, pb, count, dst, b_stride, b_ahead): dst[mr][nr] = sum over k < count of pa[k] x pb[k]. The only function that is
 * optimized, and what costs most to compile: so it has a loop of single products (two an iteration are no faster:
 * EPYC 9005, 512^3 f32, level v4 and v3), and stores its sums however they go on. */
static void emit_tile(contract *c, contract_function f, const char *name) {
    emit *e = c->e;
    int n = c->mr * c->nv;
    LLVMTypeRef parameter[6] = {e->t_ptr, e->t_ptr, e->t_i64, e->t_ptr, e->t_i64, e->t_i64};
    contract_outer *o = contract_begin(c, f, name, parameter, 6, true);
    LLVMValueRef in[6], zero = LLVMConstNull(c->t_vec), phi[3];
    LLVMValueRef sum[CONTRACT_MAX_TILE], next[CONTRACT_MAX_TILE], first[8];
    LLVMGetParams(e->fn, in);
    bool in_place = ir_kernel_contract_in_place(c->k);
    c->b_stride = in_place ? in[4] : num(c, c->nr);
    c->b_ahead = in_place ? in[5] : num(c, c->nr * contract_rows_ahead(c));

    for (int j = 0; j < c->nv; j++) /* sums begin with the head of the panel */
        first[j] = c->dot == IR_DOT_I8 ? contract_tile_load(c, element(c, in[1], num(c, j * c->v_lanes - c->nr)), c->acc_bytes) : zero;
    LLVMBasicBlockRef entry = LLVMGetInsertBlock(e->b), body = em_block(e, "products"), done = em_block(e, "sums");
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSGT, in[2], num(c, 0)), body, done);
    LLVMPositionBuilderAtEnd(e->b, body);
    for (int i = 0; i < 3; i++) {
        phi[i] = LLVMBuildPhi(e->b, LLVMTypeOf(in[i]), "");
        LLVMAddIncoming(phi[i], &in[i], &entry, 1);
    }
    for (int i = 0; i < n; i++) {
        next[i] = sum[i] = LLVMBuildPhi(e->b, c->t_vec, "");
        LLVMAddIncoming(sum[i], &first[i % c->nv], &entry, 1);
    }
    tile_step(c, next, phi[0], phi[1], f == SLOW_TILE);
    LLVMValueRef then[3] = {element(c, phi[0], num(c, c->mr)), element(c, phi[1], c->b_stride),
                            em_sub(e, phi[2], num(c, 1))};
    for (int i = 0; i < 3; i++) LLVMAddIncoming(phi[i], &then[i], &body, 1);
    for (int i = 0; i < n; i++) LLVMAddIncoming(sum[i], &next[i], &body, 1);
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntNE, then[2], num(c, 0)), body, done);

    LLVMPositionBuilderAtEnd(e->b, done);
    for (int i = 0; i < n; i++) sum[i] = contract_merge(c, first[i % c->nv], entry, next[i], body);
    for (int i = 0; i < n; i++) {
        LLVMValueRef at = element(c, in[3], num(c, i / c->nv * c->nr + i % c->nv * c->v_lanes));
        LLVMSetAlignment(LLVMBuildStore(e->b, sum[i], at), (unsigned)(c->v_lanes * c->acc_bytes));
    }
    contract_end(c, o);
}

void contract_emit_tile(contract *c) {
    emit_tile(c, TILE, "tile");
    if (c->dot == IR_DOT_BF16) emit_tile(c, SLOW_TILE, "slow_tile");
}

/* (partial, tile, dst): dst = partial + tile, a row at a time: once a K block, so simple. */
void contract_emit_add(contract *c) {
    emit *e = c->e;
    int align = c->v_lanes * c->acc_bytes;
    LLVMTypeRef parameter[3] = {e->t_ptr, e->t_ptr, e->t_ptr};
    contract_outer *o = contract_begin(c, ADD, "add", parameter, 3, false);
    LLVMValueRef in[3];
    LLVMGetParams(e->fn, in);
    em_loop l = em_for(e, num(c, 0), num(c, c->mr * c->nr), num(c, c->nr));
    for (int j = 0; j < c->nv; j++) {
        LLVMValueRef at = em_add(e, l.i, num(c, j * c->v_lanes));
        LLVMValueRef a = contract_tile_load(c, element(c, in[0], at), align), b = contract_tile_load(c, element(c, in[1], at), align);
        LLVMValueRef sum = ir_is_float(c->acc) ? em_fadd(e, a, b) : em_add(e, a, b);
        LLVMSetAlignment(LLVMBuildStore(e->b, sum, element(c, in[2], at)), (unsigned)align);
    }
    em_end(e, &l);
    contract_end(c, o);
}
