/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* demote.c: values of a function that live in more than one block go through memory, as a compiler without optimization
 * has them. For code that runs seldom: what costs most in compiling it are the values that are alive across nests of
 * loops and calls (the register allocator's splitting, and the users of induction variables, which LLVM analyzes in
 * functions without optimization too). */
#include "jit/emit.h"
#include <string.h>

/* The place in front of which a user's load goes: the user, or where a phi's value comes from. */
static LLVMValueRef place_of(LLVMValueRef user, unsigned operand) {
    return LLVMIsAPHINode(user) ? LLVMGetBasicBlockTerminator(LLVMGetIncomingBlock(user, operand)) : user;
}

static LLVMValueRef behind(LLVMValueRef def) {
    LLVMValueRef next = LLVMGetNextInstruction(def);
    while (LLVMIsAPHINode(next)) next = LLVMGetNextInstruction(next);
    return next;
}

/* Makes a user outside the block of def read the slot instead; false when it has no such operand. */
static bool redirect(emit *e, LLVMValueRef user, LLVMValueRef def, LLVMValueRef *slot) {
    for (unsigned i = 0; i < (unsigned)LLVMGetNumOperands(user); i++) {
        if (LLVMGetOperand(user, i) != def) continue;
        LLVMValueRef place = place_of(user, i);
        if (LLVMGetInstructionParent(place) == LLVMGetInstructionParent(def)) continue;
        if (!*slot) *slot = em_alloca(e, LLVMTypeOf(def), 8);
        LLVMPositionBuilderBefore(e->b, place);
        LLVMSetOperand(user, i, LLVMBuildLoad2(e->b, LLVMTypeOf(def), *slot, ""));
        return true;
    }
    return false;
}

static void demote(emit *e, LLVMValueRef def) {
    LLVMValueRef slot = NULL;
    for (LLVMUseRef use = LLVMGetFirstUse(def); use;) /* from the start again, for a changed use leaves the list */
        use = redirect(e, LLVMGetUser(use), def, &slot) ? LLVMGetFirstUse(def) : LLVMGetNextUse(use);
    if (!slot) return;
    LLVMPositionBuilderBefore(e->b, behind(def));
    LLVMBuildStore(e->b, def, slot);
}

void em_demote(emit *e) {
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(e->fn); b; b = LLVMGetNextBasicBlock(b))
        for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = LLVMGetNextInstruction(i)) {
            LLVMTypeRef type = LLVMTypeOf(i);
            bool is_word = LLVMGetTypeKind(type) == LLVMPointerTypeKind || type == e->t_i64 || type == e->t_i1;
            if (is_word && !LLVMIsAAllocaInst(i)) demote(e, i);
        }
    LLVMPositionBuilderAtEnd(e->b, here);
}

/* ---- outside innermost loops ---- */
typedef struct nests {
    emit *e;
    LLVMBasicBlockRef *block; /* of innermost loops, and which */
    uint32_t *loop;
    uint32_t n;
} nests;

enum { NO_LOOP = UINT32_MAX };

static uint32_t loop_of(const nests *w, LLVMBasicBlockRef b) {
    for (uint32_t i = 0; i < w->n; i++)
        if (w->block[i] == b) return w->loop[i];
    return NO_LOOP;
}

static void find_loops(nests *w, emit *e) {
    uint32_t blocks = LLVMCountBasicBlocks(e->fn);
    *w = (nests){e, FU_NEW_N(e->arena, LLVMBasicBlockRef, blocks), FU_NEW_N(e->arena, uint32_t, blocks), 0};
    for (uint32_t l = 0; l < e->inner.n; l++) /* a loop's blocks follow one another */
        for (LLVMBasicBlockRef b = e->inner.at[l].head; b; b = LLVMGetNextBasicBlock(b)) {
            w->block[w->n] = b;
            w->loop[w->n++] = l;
            if (b == e->inner.at[l].last) break;
        }
}

/* The place where a user's load goes: in front of the user, or of the innermost loop it is in. */
static LLVMValueRef place_outside(const nests *w, LLVMValueRef user, unsigned operand, uint32_t *loop_out) {
    LLVMValueRef place = place_of(user, operand);
    *loop_out = loop_of(w, LLVMGetInstructionParent(place));
    return *loop_out == NO_LOOP ? place : LLVMGetBasicBlockTerminator(w->e->inner.at[*loop_out].before);
}

static bool redirect_outside(const nests *w, LLVMValueRef user, LLVMValueRef def, LLVMValueRef *slot,
                             LLVMValueRef *before_loop) {
    emit *e = w->e;
    bool any = false;
    for (unsigned i = 0; i < (unsigned)LLVMGetNumOperands(user); i++) {
        if (LLVMGetOperand(user, i) != def) continue;
        uint32_t loop;
        LLVMValueRef place = place_outside(w, user, i, &loop), load = loop == NO_LOOP ? NULL : before_loop[loop];
        if (LLVMGetInstructionParent(place) == LLVMGetInstructionParent(def)) continue;
        if (!*slot) *slot = em_alloca(e, LLVMTypeOf(def), 8);
        if (!load) {
            LLVMPositionBuilderBefore(e->b, place);
            load = LLVMBuildLoad2(e->b, LLVMTypeOf(def), *slot, "");
            if (loop != NO_LOOP) before_loop[loop] = load;
        }
        LLVMSetOperand(user, i, load);
        any = true;
    }
    return any;
}

void em_demote_nests(emit *e) {
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    nests w;
    find_loops(&w, e);
    LLVMValueRef *before_loop = FU_NEW_N(e->arena, LLVMValueRef, e->inner.n);
    for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(e->fn); b; b = LLVMGetNextBasicBlock(b)) {
        if (loop_of(&w, b) != NO_LOOP) continue;
        for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = LLVMGetNextInstruction(i)) {
            LLVMTypeRef type = LLVMTypeOf(i);
            bool is_word = LLVMGetTypeKind(type) == LLVMPointerTypeKind || type == e->t_i64 || type == e->t_i1;
            LLVMValueRef slot = NULL;
            if (!is_word || LLVMIsAAllocaInst(i)) continue;
            memset(before_loop, 0, sizeof *before_loop * e->inner.n);
            for (LLVMUseRef use = LLVMGetFirstUse(i); use;)
                use = redirect_outside(&w, LLVMGetUser(use), i, &slot, before_loop) ? LLVMGetFirstUse(i)
                                                                                    : LLVMGetNextUse(use);
            if (!slot) continue;
            LLVMPositionBuilderBefore(e->b, behind(i));
            LLVMBuildStore(e->b, i, slot);
        }
    }
    LLVMPositionBuilderAtEnd(e->b, here);
}
