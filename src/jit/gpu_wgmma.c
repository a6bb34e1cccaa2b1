/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_wgmma.c: the loop along k of a contraction on sm_90a: wgmma, whose operands stay in shared memory. Four warps
 * make 64 rows and all columns of the tile. A piece is 128 bytes of k; its lines of 128 bytes are permuted as
 * everywhere here, which is the 128-byte swizzle of wgmma's descriptors (PTX ISA 9.0, 9.7.15.5.1).
 *
 *   for each piece: wait for the thread's copies of it; fence (they are read by another proxy); barrier; its products
 *       begin; the piece stages - 2 further is asked for; wait for the products of the piece before
 *
 * so products of a piece run while the next one is waited for. The stage that is written was read two pieces before:
 * whoever is behind the barrier has waited for those products. */
#include "jit/gpu_mma.h"
#include <string.h>

enum { K_BYTES = 32 /* of an instruction */, SWIZZLE_128 = 1, LINE = 128, EIGHT_LINES = 8 * LINE };

/* A descriptor without its address: distances of 8 lines, and of columns of 128 bytes, in units of 16 bytes. */
static uint64_t descriptor(const mma_operand *p) {
    uint64_t leading = p->is_turned ? (uint64_t)(p->segment ? p->segment : EIGHT_LINES) / 16 : 1,
             stride = EIGHT_LINES / 16;
    return leading << 16 | stride << 32 | (uint64_t)SWIZZLE_128 << 62;
}

/* Shared addresses have fewer than 18 bits. */
static LLVMValueRef with_address(mma *m, uint64_t descriptor_bits, LLVMValueRef byte) {
    emit *e = m->e;
    return em_or(e, mma_i64(m, em_lshr(e, byte, 4)), mma_num(m, (int64_t)descriptor_bits));
}

/* 64 rows: a column of 128 bytes of a turned operand, or 64 lines. */
void mma_first_operands(mma *m, LLVMValueRef group, LLVMValueRef first[2]) {
    emit *e = m->e;
    const mma_operand *p = m->operand;
    LLVMValueRef base = LLVMBuildPtrToInt(e->b, m->shared, e->t_i32, "");
    LLVMValueRef rows = em_mul(e, group, em_i32(e, p[0].is_turned ? p[0].segment : 64 * LINE));
    first[0] = em_add(e, mma_add(m, base, p[0].at), rows);
    first[1] = mma_add(m, base, p[1].at);
}

void mma_multiply_group(mma *m, LLVMValueRef first[2], LLVMValueRef stage, LLVMValueRef *acc) {
    emit *e = m->e;
    LLVMValueRef d[2];
    gpu_product product = {.type = m->k->inst[m->operand[0].inst].dtype,
                           .adds = true,
                           .a_turned = m->operand[0].is_turned,
                           .b_turned = m->operand[1].is_turned,
                           .n_a = 1};
    gpu_say(e, "wgmma.fence.sync.aligned;");
    for (int o = 0; o < 2; o++) d[o] = with_address(m, descriptor(&m->operand[o]), em_add(e, first[o], stage));
    for (int s = 0; s < m->t->k_bytes / K_BYTES; s++) {
        LLVMValueRef at[2];
        for (int o = 0; o < 2; o++) {
            /* along a line, or 16 lines further */
            int by = m->operand[o].is_turned ? 2 * EIGHT_LINES : K_BYTES;
            at[o] = s ? em_add(e, d[o], mma_num(m, s * by / 16)) : d[o];
        }
        product.a[0] = at[0];
        product.b = at[1];
        gpu_begin_product(e, &product, acc, m->t->columns / 2);
    }
    gpu_say(e, "wgmma.commit_group.sync.aligned;");
}

void mma_emit_wgmma(mma *m) {
    emit *e = m->e;
    const int n_acc = m->t->columns / 2, ahead = m->t->stages - 2;
    LLVMValueRef from[2], now[2], next[2], *acc = FU_NEW_N(e->arena, LLVMValueRef, 2 * n_acc), *sum = acc + n_acc;
    LLVMValueRef first[2];
    const mma_operand *p = m->operand;
    mma_first_operands(m, em_lshr(e, m->warp, 2), first);
    mma_fill_stages(m, ahead, from);
    em_loop l = em_for(e, m->k_begin, m->k_end, mma_num(m, p[0].k));
    LLVMValueRef read = em_loop_phi(e, &l, em_i32(e, 0)), write = em_loop_phi(e, &l, em_i32(e, ahead * m->stage_bytes));
    memcpy(now, from, sizeof now);
    mma_begin_from(m, &l, now);
    for (int i = 0; i < n_acc; i++) acc[i] = sum[i] = em_loop_phi(e, &l, LLVMConstNull(m->t_acc));
    gpu_wait_for_copies(e, ahead - 1);
    gpu_say(e, "fence.proxy.async.shared::cta;");
    gpu_barrier(e);
    mma_multiply_group(m, first, read, sum);
    memcpy(next, now, sizeof next);
    LLVMValueRef k = em_add(e, l.i, mma_num(m, ahead * p[0].k));
    mma_load_pieces(m, write, k, next);
    mma_gather(m, write, k);
    mma_put_gathered(m, write, k);
    gpu_say(e, "wgmma.wait_group.sync.aligned 1;");
    for (int i = 0; i < n_acc; i++) em_loop_next(e, acc[i], sum[i]);
    em_loop_next(e, read, mma_next_stage(m, read));
    em_loop_next(e, write, mma_next_stage(m, write));
    mma_next_from(m, now, next);
    em_end(e, &l);
    gpu_say(e, "wgmma.wait_group.sync.aligned 0;");
    gpu_wait_for_copies(e, 0);
    gpu_barrier(e); /* the results take the place of the operands */
    mma_stage_result(m, acc, 1, m->t->columns / 8, em_shl(e, m->warp, 4), em_i32(e, 0));
}
