/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_async.c: what threads ask for and wait for later: copies to shared memory (sm_80 and newer), products of four warps
 * (wgmma, sm_90a); and the instructions as text that LLVM has no other name for. */
#include "jit/gpu.h"
#include <string.h>

LLVMValueRef gpu_asm(emit *e, const char *text, const char *constraints, bool has_effects, LLVMTypeRef result,
                     LLVMValueRef *in, unsigned n) {
    LLVMTypeRef *type = FU_NEW_N(e->arena, LLVMTypeRef, n + 1);
    for (unsigned i = 0; i < n; i++) type[i] = LLVMTypeOf(in[i]);
    LLVMTypeRef fn = LLVMFunctionType(result, type, n, 0);
    LLVMValueRef f = LLVMGetInlineAsm(fn, text, strlen(text), constraints, strlen(constraints), has_effects, 0,
                                      LLVMInlineAsmDialectATT, 0);
    return LLVMBuildCall2(e->b, fn, f, in, n, "");
}

void gpu_say(emit *e, const char *text) { gpu_asm(e, text, "~{memory}", true, e->t_void, NULL, 0); }

/* ---- copies ---- */
void gpu_commit_copies(emit *e) { gpu_call(e, "llvm.nvvm.cp.async.commit.group", NULL, 0, NULL, 0); }

void gpu_wait_for_copies(emit *e, int but) {
    LLVMValueRef n = em_i32(e, but);
    gpu_call(e, "llvm.nvvm.cp.async.wait.group", NULL, 0, &n, 1);
}

/* ---- products ---- */
void gpu_on_sums(emit *e, const char *text, LLVMValueRef *acc, int n, bool is_read, LLVMValueRef *in,
                 const char *in_kinds, int n_in) {
    fu_str constraints;
    LLVMTypeRef *outs = FU_NEW_N(e->arena, LLVMTypeRef, n);
    LLVMValueRef *values = FU_NEW_N(e->arena, LLVMValueRef, n + n_in);
    unsigned all = 0;
    fu_str_init(&constraints, e->arena);
    for (int i = 0; i < n; i++) {
        fu_str_addf(&constraints, "=f,");
        outs[i] = e->t_f32;
    }
    for (int i = 0; i < n_in; i++) {
        fu_str_addf(&constraints, "%c,", in_kinds[i]);
        values[all++] = in[i];
    }
    for (int i = 0; i < n && is_read; i++) {
        fu_str_addf(&constraints, "%d,", i);
        values[all++] = acc[i];
    }
    fu_str_addf(&constraints, "~{memory}");
    LLVMTypeRef out = LLVMStructTypeInContext(e->ctx, outs, (unsigned)n, 0);
    LLVMValueRef result = gpu_asm(e, text, constraints.at, true, out, values, all);
    for (int i = 0; i < n; i++) acc[i] = LLVMBuildExtractValue(e->b, result, (unsigned)i, "");
}

void gpu_begin_product(emit *e, const gpu_product *p, LLVMValueRef *acc, int n) {
    const char *type = p->type == FUSOR_BF16 ? "bf16" : "f16";
    LLVMValueRef in[6];
    fu_str text;
    fu_str_init(&text, e->arena);
    fu_str_addf(&text, "wgmma.mma_async.sync.aligned.m64n%dk16.f32.%s.%s {", 2 * n, type, type);
    for (int i = 0; i < n; i++) fu_str_addf(&text, "%s$%d", i ? ", " : "", i);
    if (p->n_a == 1) fu_str_addf(&text, "}, $%d, $%d, $%d, 1, 1, %d, %d;", n, n + 1, n + 2, p->a_turned, p->b_turned);
    else
        fu_str_addf(&text, "}, {$%d, $%d, $%d, $%d}, $%d, $%d, 1, 1, %d;", n, n + 1, n + 2, n + 3, n + 4, n + 5,
                    p->b_turned);
    memcpy(in, p->a, (size_t)p->n_a * sizeof *in);
    in[p->n_a] = p->b;
    in[p->n_a + 1] = LLVMConstInt(e->t_i1, p->adds, 0);
    gpu_on_sums(e, text.at, acc, n, p->adds, in, p->n_a == 1 ? "llb" : "rrrrlb", p->n_a + 2);
}
