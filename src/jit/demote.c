/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* demote.c: values of a function that live in more than one block go through memory, as a compiler without optimization
 * has them. For code that runs seldom: what costs most in compiling it are the values that are alive across nests of
 * loops and calls (the register allocator's splitting, and the users of induction variables, which LLVM analyzes in
 * functions without optimization too). */
#include "jit/emit.h"

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
