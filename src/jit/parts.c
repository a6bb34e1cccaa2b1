/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* parts.c: see parts.h. */
#include "jit/parts.h"

/* Of instructions. EPYC 9005, milliseconds alone, in two, in three parts, by two threads: a matmul with bias and relu
 * (1,500) 13.3, 8.1, 8.4; a 3x3 convolution (2,200) 22.1, 12.9, 14.0; attention (3,100) 36, 20.6, 22.1. A part takes 1
 * to 1.5 ms before LLVM generates code, as much as a small kernel. */
enum { FEWEST_FOR_TWO = 700, FEWEST_FOR_THREE = 2500 };

/* In instructions that are compiled like those of a register tile; those of functions that are not optimized (optnone)
 * take a third of their time. */
static int cost_of(LLVMValueRef fn) {
    static const char name[] = "optnone";
    const unsigned kind = LLVMGetEnumAttributeKindForName(name, sizeof name - 1);
    int n = 0;
    for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(fn); b; b = LLVMGetNextBasicBlock(b))
        for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = LLVMGetNextInstruction(i)) n++;
    return LLVMGetEnumAttributeAtIndex(fn, LLVMAttributeFunctionIndex, kind) ? (n + 2) / 3 : n;
}

int jit_parts_count(LLVMModuleRef mod) {
    int cost = 0, functions = 0;
    for (LLVMValueRef f = LLVMGetFirstFunction(mod); f; f = LLVMGetNextFunction(f)) {
        cost += cost_of(f);
        functions += LLVMCountBasicBlocks(f) > 0;
    }
    const int n = 1 + (cost >= FEWEST_FOR_TWO) + (cost >= FEWEST_FOR_THREE);
    return functions < n ? functions : n;
}

static void empty(LLVMValueRef fn) {
    LLVMBasicBlockRef b;
    LLVMValueRef i;
    for (b = LLVMGetFirstBasicBlock(fn); b; b = LLVMGetNextBasicBlock(b))
        while ((i = LLVMGetLastInstruction(b))) {
            if (LLVMGetFirstUse(i)) LLVMReplaceAllUsesWith(i, LLVMGetPoison(LLVMTypeOf(i)));
            LLVMInstructionEraseFromParent(i);
        }
    while ((b = LLVMGetFirstBasicBlock(fn))) LLVMDeleteBasicBlock(b);
}

/* The costliest function that has no part yet goes to the part that has least. */
void jit_parts_keep(LLVMModuleRef mod, int n, int part) {
    enum { MOST_FUNCTIONS = 64 };
    LLVMValueRef fn[MOST_FUNCTIONS];
    int cost[MOST_FUNCTIONS], n_functions = 0, load[JIT_MOST_PARTS] = {0};
    for (LLVMValueRef f = LLVMGetFirstFunction(mod); f; f = LLVMGetNextFunction(f)) {
        if (LLVMCountBasicBlocks(f) == 0) continue; /* an intrinsic */
        LLVMSetLinkage(f, LLVMExternalLinkage);
        LLVMSetVisibility(f, LLVMHiddenVisibility);
        if (n_functions == MOST_FUNCTIONS) { /* those behind are of the first part */
            if (part != 0) empty(f);
            continue;
        }
        fn[n_functions] = f;
        cost[n_functions++] = cost_of(f);
    }
    for (int left = n_functions; left > 0; left--) {
        int most = 0, to = 0;
        for (int i = 1; i < n_functions; i++)
            if (cost[i] > cost[most]) most = i;
        for (int i = 1; i < n; i++)
            if (load[i] < load[to]) to = i;
        load[to] += cost[most];
        cost[most] = -1;
        if (to != part) empty(fn[most]);
    }
    for (LLVMValueRef next, g = LLVMGetFirstGlobal(mod); g; g = next) { /* tables that only others look into */
        next = LLVMGetNextGlobal(g);
        if (!LLVMGetFirstUse(g)) LLVMDeleteGlobal(g);
    }
}
