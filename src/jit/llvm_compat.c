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

/* The only true lane of a constant mask; -1 where there are others, or the mask is not known. A mask of the first lanes
 * is made from the bits of a number. */
static int only_lane(LLVMValueRef mask) {
    const int lanes = (int)LLVMGetVectorSize(LLVMTypeOf(mask));
    int found = -1;
    if (LLVMIsAConstantExpr(mask) && LLVMGetConstOpcode(mask) == LLVMBitCast) {
        LLVMValueRef bits = LLVMGetOperand(mask, 0);
        if (LLVMGetTypeKind(LLVMTypeOf(bits)) == LLVMVectorTypeKind && LLVMGetVectorSize(LLVMTypeOf(bits)) == 1)
            bits = LLVMGetAggregateElement(bits, 0);
        if (!bits || !LLVMIsAConstantInt(bits) || LLVMGetIntTypeWidth(LLVMTypeOf(bits)) > 64) return -1;
        const uint64_t set = LLVMConstIntGetZExtValue(bits);
        return set && !(set & (set - 1)) ? __builtin_ctzll(set) : -1;
    }
    if (!LLVMIsAConstantVector(mask)) return -1;
    for (int i = 0; i < lanes; i++) {
        LLVMValueRef lane = LLVMGetAggregateElement(mask, (unsigned)i);
        if (!lane || !LLVMIsAConstantInt(lane)) return -1;
        if (!LLVMConstIntGetZExtValue(lane)) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found;
}

/* One lane alone is a store of its element: LLVM 22's x86 back end makes a masked store of one constant lane one of the
 * type from before a truncation, which writes behind the element (AVX-512: bf16 and bytes from 32 bits). */
void compat_masked_store(LLVMModuleRef mod, LLVMBuilderRef b, compat_masked kind, LLVMValueRef value, LLVMValueRef ptr,
                         LLVMValueRef mask, unsigned align) {
    LLVMValueRef args[3] = {value, ptr, mask};
    const int only = kind == COMPAT_CONTIGUOUS ? only_lane(mask) : -1;
    if (only >= 0) {
        LLVMTypeRef t_i32 = LLVMInt32TypeInContext(LLVMGetModuleContext(mod));
        LLVMValueRef index = LLVMConstInt(t_i32, (unsigned)only, 0), x = LLVMBuildExtractElement(b, value, index, "");
        if (only) ptr = LLVMBuildGEP2(b, LLVMTypeOf(x), ptr, &index, 1, "");
        LLVMSetAlignment(LLVMBuildStore(b, x, ptr), only ? 1 : align);
        return;
    }
    call_masked(mod, b, kind == COMPAT_CONTIGUOUS ? "llvm.masked.store" : "llvm.masked.scatter", LLVMTypeOf(value),
                args, 3, 1, align);
}

/* Before LLVM 20 the C API has no scopes but the thread and the system: the latter, which is more than is asked for. */
LLVMValueRef compat_count_on_device(LLVMBuilderRef b, LLVMValueRef at, LLVMValueRef most) {
#if LLVM_VERSION_MAJOR < 20
    return LLVMBuildAtomicRMW(b, LLVMAtomicRMWBinOpUIncWrap, at, most, LLVMAtomicOrderingMonotonic, 0);
#else
    const unsigned device = LLVMGetSyncScopeID(LLVMGetValueContext(at), "device", 6);
    return LLVMBuildAtomicRMWSyncScope(b, LLVMAtomicRMWBinOpUIncWrap, at, most, LLVMAtomicOrderingMonotonic, device);
#endif
}
