/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* llvm_compat.c: differences between the LLVM versions that fusor builds with (19 to 22). */
#include "jit/llvm_compat.h"
#include <llvm/Config/llvm-config.h>
#include <stdlib.h>
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

/* Intrinsics that have another name in earlier versions, where neither is overloaded, and the operands they have there.
 * Which a version has is asked of it. */
unsigned compat_intrinsic(const char *name, unsigned *n_overload, unsigned *n_in) {
    static const struct {
        const char *now, *before;
        unsigned n_in;
    } renamed[] = {{"llvm.nvvm.barrier.cta.sync.aligned.all", "llvm.nvvm.barrier0", 0},
                   {"llvm.nvvm.ex2.approx.ftz", "llvm.nvvm.ex2.approx.ftz.f", 1}};
    const unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed && !id; i++) {
        if (strcmp(renamed[i].now, name) != 0) continue;
        *n_overload = 0;
        *n_in = renamed[i].n_in;
        return LLVMLookupIntrinsicID(renamed[i].before, strlen(renamed[i].before));
    }
    return id;
}

/* Before LLVM 21 not all limits of a kernel are attributes of its function: they are notes of the module. */
void compat_note_limits(LLVMModuleRef mod, LLVMValueRef fn) {
#if LLVM_VERSION_MAJOR < 21
    static const char *const names[][2] = {
        {"nvvm.maxntid", "maxntidx"}, {"nvvm.minctasm", "minctasm"}, {"nvvm.maxnreg", "maxnreg"}};
    LLVMContextRef ctx = LLVMGetModuleContext(mod);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        unsigned length;
        LLVMAttributeRef a =
            LLVMGetStringAttributeAtIndex(fn, LLVMAttributeFunctionIndex, names[i][0], (unsigned)strlen(names[i][0]));
        if (!a) continue;
        const unsigned long long n = strtoull(LLVMGetStringAttributeValue(a, &length), NULL, 10);
        LLVMMetadataRef part[3] = {LLVMValueAsMetadata(fn),
                                   LLVMMDStringInContext2(ctx, names[i][1], strlen(names[i][1])),
                                   LLVMValueAsMetadata(LLVMConstInt(LLVMInt32TypeInContext(ctx), n, 0))};
        LLVMAddNamedMetadataOperand(mod, "nvvm.annotations",
                                    LLVMMetadataAsValue(ctx, LLVMMDNodeInContext2(ctx, part, 3)));
    }
#else
    (void)mod;
    (void)fn;
#endif
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
