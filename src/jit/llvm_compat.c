/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* llvm_compat.c: differences between the LLVM versions that fusor builds with (19 to 22). */
#include "jit/llvm_compat.h"
#include <llvm/Config/llvm-config.h>
#include <string.h>

#if LLVM_VERSION_MAJOR < 19
#error "fusor needs LLVM 19 or later"
#endif

/* Calls an intrinsic overloaded on (value type, pointer type). Since LLVM 22 the alignment is an attribute of the
 * pointer argument; before, an i32 operand behind it. */
static LLVMValueRef call_masked(LLVMModuleRef mod, LLVMBuilderRef b, const char *name, LLVMTypeRef type,
                                LLVMValueRef *args, int n, int ptr_index, unsigned align) {
    LLVMContextRef ctx = LLVMGetModuleContext(mod);
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMTypeRef overload[2];
    overload[0] = type;
    overload[1] = LLVMTypeOf(args[ptr_index]);
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(mod, id, overload, 2);
    LLVMValueRef list[4];
    int k = 0;
    for (int i = 0; i < n; i++) {
        list[k++] = args[i];
#if LLVM_VERSION_MAJOR < 22
        if (i == ptr_index) list[k++] = LLVMConstInt(LLVMInt32TypeInContext(ctx), align, 0);
#endif
    }
    LLVMValueRef call = LLVMBuildCall2(b, LLVMGlobalGetValueType(fn), fn, list, (unsigned)k, "");
#if LLVM_VERSION_MAJOR >= 22
    unsigned kind = LLVMGetEnumAttributeKindForName("align", 5);
    LLVMAddCallSiteAttribute(call, (LLVMAttributeIndex)(ptr_index + 1), LLVMCreateEnumAttribute(ctx, kind, align));
#endif
    return call;
}

LLVMValueRef compat_masked_load(LLVMModuleRef mod, LLVMBuilderRef b, compat_masked kind, LLVMTypeRef type,
                                LLVMValueRef ptr, LLVMValueRef mask, LLVMValueRef passthru, unsigned align) {
    LLVMValueRef args[3] = {ptr, mask, passthru};
    return call_masked(mod, b, kind == COMPAT_CONTIGUOUS ? "llvm.masked.load" : "llvm.masked.gather", type, args, 3, 0,
                       align);
}

void compat_masked_store(LLVMModuleRef mod, LLVMBuilderRef b, compat_masked kind, LLVMValueRef value, LLVMValueRef ptr,
                         LLVMValueRef mask, unsigned align) {
    LLVMValueRef args[3] = {value, ptr, mask};
    call_masked(mod, b, kind == COMPAT_CONTIGUOUS ? "llvm.masked.store" : "llvm.masked.scatter", LLVMTypeOf(value),
                args, 3, 1, align);
}
