/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_wgmma_roles.c: contractions on sm_90a both of whose operands are copied: the warps of a block have roles, so that
 * none waits for all others. A block takes one tile after the other:
 *
 *   copying warps (the last four): for each piece: wait until its stage is empty; copies; "full" as soon as they are
 *       there
 *   multiplying warps, twice four, each with 64 rows of the tile: for each piece: wait until its stage is full;
 *       products begin; wait for those of the piece before, whose stage is empty then
 *     and, at the end of the tile, results by 4 KB of the warp's own (gpu_mma_store.c), while the next tile is copied
 *
 * Each stage has two barriers of shared memory, "full" (each copying thread arrives) and "empty" (each multiplying
 * warp). The n-th use of a stage waits for the n-th phase of its barriers, of which the parity tells. Copies are
 * written by one proxy and read by another: who multiplies fences, behind the barrier. The copying warps give registers
 * to the others. */
#include "jit/gpu_mma.h"
#include <stdio.h>
#include <string.h>

enum { REGISTERS_OF_COPIER = 56, REGISTERS_OF_OTHERS = 224 /* of the 168 that all threads begin with */, SLOT = 16 };

/* Where in the stages a warp is: over all tiles of its block. */
typedef struct ring {
    LLVMValueRef slot, parity; /* i32: number of the stage; of the phase that it is waited for */
} ring;

static ring begin_ring(mma *m, em_loop *l, ring from) {
    return (ring){em_loop_phi(m->e, l, from.slot), em_loop_phi(m->e, l, from.parity)};
}

static void next_ring(mma *m, ring phi, ring next) {
    em_loop_next(m->e, phi.slot, next.slot);
    em_loop_next(m->e, phi.parity, next.parity);
}

static ring advanced(mma *m, ring r) {
    emit *e = m->e;
    LLVMValueRef next = mma_add(m, r.slot, 1), is_last = em_icmp(e, LLVMIntEQ, next, em_i32(e, m->t->stages));
    return (ring){em_select(e, is_last, em_i32(e, 0), next),
                  em_xor(e, r.parity, LLVMBuildZExt(e->b, is_last, e->t_i32, ""))};
}

/* ---- barriers: addresses in shared memory, i32 ---- */
static void on_barrier(mma *m, const char *text, LLVMValueRef barrier) {
    gpu_asm(m->e, text, "r,~{memory}", true, m->e->t_void, &barrier, 1);
}

static void arrive(mma *m, LLVMValueRef barrier) {
    on_barrier(m, "{ .reg .b64 %state; mbarrier.arrive.shared.b64 %state, [$0]; }", barrier);
}

static void wait_for(mma *m, LLVMValueRef barrier, LLVMValueRef parity) {
    emit *e = m->e;
    LLVMBasicBlockRef again = em_block(e, "wait"), done = LLVMCreateBasicBlockInContext(e->ctx, "waited");
    LLVMBuildBr(e->b, again);
    LLVMPositionBuilderAtEnd(e->b, again);
    LLVMValueRef is_over = gpu_asm(e, "mbarrier.try_wait.parity.shared.b64 $0, [$1], $2;", "=b,r,r,~{memory}", true,
                                   e->t_i1, (LLVMValueRef[]){barrier, parity}, 2);
    LLVMBuildCondBr(e->b, is_over, done, again);
    LLVMAppendExistingBasicBlock(e->fn, done);
    LLVMPositionBuilderAtEnd(e->b, done);
}

static int out_at(const mma *m) { return m->stage_bytes * m->t->stages; }
static int n_multiplying(const mma *m) { return m->t->warps_m * m->t->warps_n; }

static LLVMValueRef barrier_of(mma *m, ring r, bool is_empty) {
    emit *e = m->e;
    const int first = out_at(m) + IR_GPU_MMA_OUT * n_multiplying(m) + (is_empty ? IR_GPU_MMA_BARRIER : 0);
    LLVMValueRef base = mma_add(m, LLVMBuildPtrToInt(e->b, m->shared, e->t_i32, ""), first);
    return em_add(e, base, em_shl(e, r.slot, __builtin_ctz(SLOT)));
}

static void make_barriers(mma *m) {
    emit *e = m->e;
    em_branch b = em_if(e, em_icmp(e, LLVMIntEQ, m->thread, em_i32(e, 0)));
    for (int i = 0; i < m->t->stages; i++)
        for (int is_empty = 0; is_empty < 2; is_empty++) {
            LLVMValueRef in[2] = {barrier_of(m, (ring){em_i32(e, i), NULL}, is_empty),
                                  em_i32(e, is_empty ? n_multiplying(m) : IR_GPU_MMA_COPIERS)};
            gpu_asm(e, "mbarrier.init.shared.b64 [$0], $1;", "r,r,~{memory}", true, e->t_void, in, 2);
        }
    em_endif(e, &b);
    gpu_barrier(e);
}

/* ---- tiles ---- */
static em_loop begin_tiles(mma *m) {
    emit *e = m->e;
    LLVMValueRef all = em_mul(e, m->tiles, m->s.size[IR_GPU_BATCHES]);
    return em_for(e, gpu_special(e, "ctaid.x"), all, gpu_special(e, "nctaid.x"));
}

/* Most calls have one batch: no divisions of 64 bits then. */
static void enter_tile(mma *m, LLVMValueRef number) {
    emit *e = m->e;
    em_branch b = em_if(e, em_icmp(e, LLVMIntSGE, number, m->tiles));
    LLVMValueRef batch = LLVMBuildUDiv(e->b, number, m->tiles, ""),
                 rest = em_sub(e, number, em_mul(e, batch, m->tiles));
    LLVMBasicBlockRef from[2] = {LLVMGetInsertBlock(e->b), b.other};
    em_endif(e, &b);
    LLVMValueRef batches = LLVMBuildPhi(e->b, e->t_i64, ""), tile = LLVMBuildPhi(e->b, e->t_i64, "");
    LLVMAddIncoming(batches, (LLVMValueRef[]){batch, mma_num(m, 0)}, from, 2);
    LLVMAddIncoming(tile, (LLVMValueRef[]){rest, number}, from, 2);
    mma_enter_batch(m, batches);
    mma_enter_tile(m, mma_num(m, 0), tile);
}

/* ---- who copies ---- */
/* A piece of both operands into its stage, and "full" behind it: copies say so themselves, whatever else was stored by
 * this thread says it now. */
static void fill_stage(mma *m, ring r, LLVMValueRef k, LLVMValueRef from[2]) {
    emit *e = m->e;
    LLVMValueRef stage = em_mul(e, r.slot, em_i32(e, m->stage_bytes)), full = barrier_of(m, r, false);
    for (int o = 0; o < 2; o++) {
        mma_load_piece(m, o, stage, k, from[o]);
        from[o] = em_gep(e, from[o], e->t_i8, m->operand[o].step);
    }
    em_branch b = em_if(e, em_and(e, m->operand[0].can, m->operand[1].can));
    on_barrier(m, "cp.async.mbarrier.arrive.noinc.shared.b64 [$0];", full);
    em_else(e, &b);
    gpu_say(e, "cp.async.wait_all;");
    arrive(m, full);
    em_endif(e, &b);
}

static void copy_tiles(mma *m) {
    emit *e = m->e;
    LLVMValueRef from[2], next[2];
    em_loop lt = begin_tiles(m);
    ring of_tile = begin_ring(m, &lt, (ring){em_i32(e, 0), em_i32(e, 1)}); /* at first all stages are empty */
    enter_tile(m, lt.i);
    for (int o = 0; o < 2; o++) {
        mma_begin_copies(m, o);
        from[o] = m->operand[o].first;
    }
    em_loop l = em_for(e, m->k_begin, m->k_end, mma_num(m, m->operand[0].k));
    ring at = begin_ring(m, &l, of_tile);
    mma_begin_from(m, &l, from);
    memcpy(next, from, sizeof next);
    wait_for(m, barrier_of(m, at, true), at.parity);
    fill_stage(m, at, l.i, next);
    mma_next_from(m, from, next);
    next_ring(m, at, advanced(m, at));
    em_end(e, &l);
    gpu_keep_loop(e, &l);
    next_ring(m, of_tile, at);
    em_end(e, &lt);
}

/* ---- who multiplies ---- */
/* The warp has read its part of a stage. */
static void leave_stage(mma *m, LLVMValueRef empty, LLVMValueRef has_read) {
    emit *e = m->e;
    em_branch b = em_if(e, em_and(e, has_read, em_icmp(e, LLVMIntEQ, m->lane, em_i32(e, 0))));
    arrive(m, empty);
    em_endif(e, &b);
}

/* acc[]: the sums of the tile, behind the loop. Returns where in the stages the warp is then. */
static ring multiply_tile(mma *m, LLVMValueRef first[2], ring from, LLVMValueRef *acc) {
    emit *e = m->e;
    const int n_acc = m->t->columns / 2;
    LLVMValueRef *sum = FU_NEW_N(e->arena, LLVMValueRef, n_acc);
    em_loop l = em_for(e, m->k_begin, m->k_end, mma_num(m, m->operand[0].k));
    ring at = begin_ring(m, &l, from);
    LLVMValueRef before = em_loop_phi(e, &l, em_i32(e, 0)); /* "empty" of the piece before */
    for (int i = 0; i < n_acc; i++) acc[i] = sum[i] = em_loop_phi(e, &l, LLVMConstNull(m->t_acc));
    wait_for(m, barrier_of(m, at, false), at.parity);
    gpu_say(e, "fence.proxy.async.shared::cta;");
    mma_multiply_group(m, first, em_mul(e, at.slot, em_i32(e, m->stage_bytes)), sum);
    gpu_say(e, "wgmma.wait_group.sync.aligned 1;");
    leave_stage(m, before, em_icmp(e, LLVMIntNE, before, em_i32(e, 0)));
    for (int i = 0; i < n_acc; i++) em_loop_next(e, acc[i], sum[i]);
    em_loop_next(e, before, barrier_of(m, at, true));
    next_ring(m, at, advanced(m, at));
    em_end(e, &l);
    gpu_say(e, "wgmma.wait_group.sync.aligned 0;");
    leave_stage(m, before, em_icmp(e, LLVMIntNE, before, em_i32(e, 0)));
    return at;
}

static void multiply_tiles(mma *m) {
    emit *e = m->e;
    LLVMValueRef first[2], *acc = FU_NEW_N(e->arena, LLVMValueRef, m->t->columns / 2);
    LLVMValueRef place = mma_add(m, em_mul(e, m->warp, em_i32(e, IR_GPU_MMA_OUT)), out_at(m));
    mma_first_operands(m, em_lshr(e, m->warp, 2), first);
    em_loop lt = begin_tiles(m);
    ring of_tile = begin_ring(m, &lt, (ring){em_i32(e, 0), em_i32(e, 0)});
    enter_tile(m, lt.i);
    ring at = multiply_tile(m, first, of_tile, acc);
    mma_emit_warp_results(m, acc, em_shl(e, m->warp, 4), place);
    next_ring(m, of_tile, at);
    em_end(e, &lt);
}

static void set_registers(mma *m, const char *how, int n) {
    char text[64];
    snprintf(text, sizeof text, "setmaxnreg.%s.sync.aligned.u32 %d;", how, n);
    gpu_say(m->e, text);
}

void mma_emit_roles(mma *m) {
    emit *e = m->e;
    LLVMValueRef thread = m->thread, warp = m->warp, parts = m->parts;
    m->n_threads = IR_GPU_MMA_COPIERS;
    m->parts = mma_num(m, 1);
    mma_lay_out(m, true);
    mma_count_tiles(m);
    make_barriers(m);
    m->warp = gpu_same_in_warp(e, m->warp);
    em_branch b = em_if(e, em_icmp(e, LLVMIntUGE, m->warp, em_i32(e, n_multiplying(m))));
    set_registers(m, "dec", REGISTERS_OF_COPIER);
    m->thread = em_and(e, thread, em_i32(e, IR_GPU_MMA_COPIERS - 1));
    copy_tiles(m);
    em_else(e, &b);
    set_registers(m, "inc", REGISTERS_OF_OTHERS);
    multiply_tiles(m);
    em_endif(e, &b);
    m->thread = thread;
    m->warp = warp;
    m->parts = parts;
}
