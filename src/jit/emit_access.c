/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* emit_access.c: loads that are more than base and strides: with an element offset (gathers), with a guard (padding,
 * concatenation), and with lanes 2 to 4 elements apart, or backwards.
 *
 *   offset  the same for all lanes: one add, then as without        else: one address a lane
 *   guard   the same for all lanes: a branch around the load        else: all lanes, none, or a masked load: a branch
 *           (also as a part of one that is not)                     each
 *
 * Guards change their value a few times in a row, so their branches cost less than masking every load would. Operands
 * are evaluated before the branches, for their values are used again behind them. */
#include "jit/emit.h"
#include "jit/llvm_compat.h"

typedef struct access {
    int buf;
    LLVMValueRef off, step, at; /* at: <lanes x i64> behind off, or NULL */
} access;

static LLVMValueRef load_plain(emit *e, const access *a, LLVMValueRef mask) {
    return a->at ? em_gather(e, a->buf, a->off, a->at, mask) : em_load(e, a->buf, a->off, a->step, mask);
}

/* b's two ends meet: x of the then-side, and zero of the other. */
static LLVMValueRef or_zero(emit *e, em_branch *b, LLVMValueRef x) {
    LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b);
    em_endif(e, b);
    LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(x)), phi = LLVMBuildPhi(e->b, LLVMTypeOf(x), "");
    LLVMAddIncoming(phi, (LLVMValueRef[]){x, zero}, (LLVMBasicBlockRef[]){from, b->other}, 2);
    return phi;
}

static LLVMValueRef load_if(emit *e, const access *a, LLVMValueRef guard, LLVMValueRef mask) {
    em_branch b = em_if(e, guard);
    return or_zero(e, &b, load_plain(e, a, mask));
}

/* guard: <lanes x i1>, and of the masked lanes only. */
static LLVMValueRef load_some(emit *e, const access *a, LLVMValueRef guard) {
    const bool is_one = !a->at && LLVMIsAConstantInt(a->step) && LLVMConstIntGetSExtValue(a->step) == 0;
    LLVMTypeRef narrow = LLVMIntTypeInContext(e->ctx, (unsigned)e->lanes);
    LLVMValueRef bits = LLVMBuildBitCast(e->b, guard, narrow, "");
    em_branch any = em_if(e, em_icmp(e, LLVMIntNE, bits, LLVMConstInt(narrow, 0, 0)));
    em_branch all = em_if(e, em_icmp(e, LLVMIntEQ, bits, LLVMConstAllOnes(narrow)));
    LLVMValueRef x[2] = {load_plain(e, a, NULL)};
    LLVMBasicBlockRef from[2] = {LLVMGetInsertBlock(e->b)};
    em_else(e, &all);
    if (is_one) {
        x[1] = em_select(e, guard, em_load(e, a->buf, a->off, a->step, NULL), LLVMConstNull(LLVMTypeOf(x[0])));
    } else {
        x[1] = load_plain(e, a, guard);
    }
    from[1] = LLVMGetInsertBlock(e->b);
    em_endif(e, &all);
    LLVMValueRef some = LLVMBuildPhi(e->b, LLVMTypeOf(x[0]), "");
    LLVMAddIncoming(some, x, from, 2);
    return or_zero(e, &any, some);
}

/* Of a guard that is u and v, where u is the same for all lanes and v is not: v, and *same is u; else the guard, and
 * *same is -1. */
static int varying_part(const emit *e, int guard, int lane_dim, int *same) {
    const ir_kinst *in = &e->k->inst[guard];
    *same = -1;
    for (int i = 0; in->op == IR_OP_AND && i < 2; i++) {
        if (e->varies[in->in[i]] >> lane_dim & 1 || !(e->varies[in->in[1 - i]] >> lane_dim & 1)) continue;
        *same = in->in[i];
        return in->in[1 - i];
    }
    return guard;
}

LLVMValueRef em_load_value(emit *e, em_values *v, const ir_kinst *inst, int lane_dim, LLVMValueRef off,
                           LLVMValueRef step, LLVMValueRef mask) {
    access a = {inst->index, off, step, NULL};
    LLVMValueRef guard = NULL, same = NULL;
    bool guard_varies = false;
    int n = 0;
    if (mask && e->lanes == 1 && LLVMGetTypeKind(LLVMTypeOf(mask)) == LLVMVectorTypeKind) mask = NULL; /* em_uniform */
#define VARIES(i) (e->lanes > 1 && lane_dim >= 0 && (e->varies[i] >> lane_dim & 1) != 0)
    if (inst->variant & IR_LOAD_OFFSET) {
        int i = inst->in[n++];
        if (VARIES(i)) {
            LLVMValueRef lane[64];
            for (int l = 0; l < e->lanes; l++) lane[l] = em_i64s(e, l);
            a.at = em_value(e, v, i);
            if (!LLVMIsAConstantInt(step) || LLVMConstIntGetSExtValue(step) != 0)
                a.at = em_add(e, a.at, em_mul(e, LLVMConstVector(lane, (unsigned)e->lanes), em_splat(e, step)));
        } else {
            a.off = em_add(e, off, em_uniform(e, v, i));
        }
    }
    if (inst->variant & IR_LOAD_GUARD) {
        guard_varies = VARIES(inst->in[n]);
        int part = inst->in[n], uniform = -1;
        if (guard_varies) part = varying_part(e, part, lane_dim, &uniform);
        guard = guard_varies ? em_value(e, v, part) : em_uniform(e, v, part);
        if (uniform >= 0) same = em_uniform(e, v, uniform);
    }
#undef VARIES
    if (!guard) return load_plain(e, &a, mask);
    if (!guard_varies) return load_if(e, &a, guard, mask);
    if (mask) guard = em_and(e, guard, mask);
    if (!same) return load_some(e, &a, guard);
    em_branch b = em_if(e, same);
    return or_zero(e, &b, load_some(e, &a, guard));
}
