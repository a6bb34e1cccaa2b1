/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* debug_info.c: debug locations. While a kernel is emitted the builder's location is the line of the instruction being
 * lowered (em_at), in one scope for all; at the end each function gets a subprogram, and each of its instructions a
 * location in it, as LLVM's verifier demands. */
#include "jit/debug_info.h"
#include <llvm-c/DebugInfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lines of the description: "%7 = ..." is where instruction 7 is. */
static void find_lines(jit_debug *d, const ir_kernel *k, const char *text, size_t bytes) {
    uint32_t line = 1;
    for (const char *at = text, *end = text + bytes; at < end; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (*at == '%') {
            long number = strtol(at + 1, NULL, 10);
            if (number >= 0 && number < IR_KERNEL_MAX_INSTS) d->line[number] = line;
        }
        at = newline ? newline + 1 : end;
    }
    d->first_line = 2; /* "kind ..." */
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_OP_MATMUL && (k->kind == IR_KERNEL_CONTRACT || k->kind == IR_KERNEL_WINDOW))
            d->first_line = d->line[i];
}

static LLVMMetadataRef subprogram(jit_debug *d, const char *name, size_t n) {
    return LLVMDIBuilderCreateFunction(d->builder, d->file, name, n, name, n, d->file, d->first_line, d->type, 0, 1,
                                       d->first_line, LLVMDIFlagZero, 0);
}

void jit_debug_begin(jit_debug *d, emit *e, const char *symbol, const char *description, size_t bytes) {
    static const char producer[] = "fusor";
    char name[IR_SYMBOL_MAX + 16];
    int n = snprintf(name, sizeof name, "%s.kernel", symbol);
    memset(d, 0, sizeof *d);
    find_lines(d, e->k, description, bytes);
    d->builder = LLVMCreateDIBuilder(e->mod);
    d->file = LLVMDIBuilderCreateFile(d->builder, name, (size_t)n, ".", 1);
    LLVMDIBuilderCreateCompileUnit(d->builder, LLVMDWARFSourceLanguageC, d->file, producer, sizeof producer - 1, 0, "",
                                   0, 0, "", 0, LLVMDWARFEmissionLineTablesOnly, 0, 0, 0, "", 0, "", 0);
    d->type = LLVMDIBuilderCreateSubroutineType(d->builder, d->file, NULL, 0, LLVMDIFlagZero);
    d->scope = subprogram(d, symbol, strlen(symbol));
    LLVMAddModuleFlag(e->mod, LLVMModuleFlagBehaviorWarning, "Debug Info Version", 18,
                      LLVMValueAsMetadata(LLVMConstInt(e->t_i32, LLVMDebugMetadataVersion(), 0)));
    LLVMAddModuleFlag(e->mod, LLVMModuleFlagBehaviorWarning, "Dwarf Version", 13,
                      LLVMValueAsMetadata(LLVMConstInt(e->t_i32, 4, 0)));
    e->debug = d;
    LLVMSetCurrentDebugLocation2(e->b, LLVMDIBuilderCreateDebugLocation(e->ctx, d->first_line, 0, d->scope, NULL));
}

void *em_at(emit *e, int inst) {
    if (!e->debug || !e->debug->builder || inst < 0) return NULL;
    LLVMMetadataRef before = LLVMGetCurrentDebugLocation2(e->b);
    LLVMSetCurrentDebugLocation2(
        e->b, LLVMDIBuilderCreateDebugLocation(e->ctx, e->debug->line[inst], 0, e->debug->scope, NULL));
    return before;
}

void em_back(emit *e, void *before) {
    if (before) LLVMSetCurrentDebugLocation2(e->b, before);
}

void jit_debug_end(jit_debug *d, emit *e) {
    if (!d->builder) return;
    for (LLVMValueRef fn = LLVMGetFirstFunction(e->mod); fn; fn = LLVMGetNextFunction(fn)) {
        size_t n;
        const char *name = LLVMGetValueName2(fn, &n);
        if (LLVMIsDeclaration(fn)) continue;
        LLVMMetadataRef scope = fn == e->fn ? d->scope : subprogram(d, name, n);
        LLVMSetSubprogram(fn, scope);
        for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(fn); b; b = LLVMGetNextBasicBlock(b))
            for (LLVMValueRef i = LLVMGetFirstInstruction(b); i; i = LLVMGetNextInstruction(i)) {
                LLVMMetadataRef at = LLVMInstructionGetDebugLoc(i);
                unsigned line = at ? LLVMDILocationGetLine(at) : d->first_line;
                if (!at || scope != d->scope)
                    LLVMInstructionSetDebugLoc(i, LLVMDIBuilderCreateDebugLocation(e->ctx, line, 0, scope, NULL));
            }
    }
    LLVMDIBuilderFinalize(d->builder);
}

void jit_debug_drop(jit_debug *d) {
    if (d->builder) LLVMDisposeDIBuilder(d->builder);
    d->builder = NULL;
}
