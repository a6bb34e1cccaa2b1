/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* bf16_words.c: words of two bf16, for contractions (contract_dot.c) and attention (attention_words.c). vdpbf16ps adds
 * the product of the upper halves, then that of the lower ones, as two fma do, but takes subnormals for 0. So words are
 * made with the earlier element in the upper half, and with rows of them goes the least exponent of their elements, by
 * which is decided whether the instruction may be used. And f16 that are cut into two bf16 (ir/schedule.h,
 * TILE_CUT). */
#include "jit/emit.h"
#include <string.h>

LLVMValueRef em_dot(emit *e, const char *name, LLVMValueRef *in, unsigned n) {
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMTypeRef type = LLVMIntrinsicGetType(e->ctx, id, NULL, 0), parameter[3];
    LLVMValueRef cast[3];
    LLVMGetParamTypes(type, parameter);
    for (unsigned i = 0; i < n; i++) cast[i] = LLVMBuildBitCast(e->b, in[i], parameter[i], "");
    return LLVMBuildCall2(e->b, type, LLVMGetIntrinsicDeclaration(e->mod, id, NULL, 0), cast, n, "");
}

LLVMValueRef em_bf16_dot(emit *e, LLVMValueRef acc, LLVMValueRef a, LLVMValueRef b) {
    return em_dot(e, "llvm.x86.avx512bf16.dpbf16ps.512", (LLVMValueRef[]){acc, a, b}, 3);
}

void em_bf16_round(emit *e, LLVMValueRef *x, int n) {
    enum { SUBNORMAL = 0x20 }; /* of vfpclassps */
    LLVMTypeRef t_mask = LLVMIntTypeInContext(e->ctx, 16), t_bits = em_vec(e, e->t_i16);
    LLVMValueRef any = LLVMConstNull(t_mask), near[EM_MAX_SIDE], exact[EM_MAX_SIDE];
    for (int i = 0; i < n; i++) {
        LLVMValueRef in[2] = {x[i], LLVMConstInt(e->t_i32, SUBNORMAL, 0)};
        LLVMValueRef is = em_dot(e, "llvm.x86.avx512.fpclass.ps.512", in, 2);
        any = LLVMBuildOr(e->b, any, LLVMBuildBitCast(e->b, is, t_mask, ""), "");
        near[i] = LLVMBuildBitCast(e->b, em_dot(e, "llvm.x86.avx512bf16.cvtneps2bf16.512", &x[i], 1), t_bits, "");
    }
    em_branch b = em_if(e, em_icmp(e, LLVMIntNE, any, LLVMConstNull(t_mask)));
    for (int i = 0; i < n; i++) exact[i] = em_half_bits(e, FUSOR_BF16, em_half_round(e, FUSOR_BF16, x[i], false));
    LLVMBasicBlockRef then = LLVMGetInsertBlock(e->b);
    em_endif(e, &b);
    for (int i = 0; i < n; i++) {
        LLVMValueRef phi = LLVMBuildPhi(e->b, t_bits, "");
        LLVMAddIncoming(phi, (LLVMValueRef[]){exact[i], near[i]}, (LLVMBasicBlockRef[]){then, b.other}, 2);
        near[i] = phi;
    }
    for (int i = 0; i < n; i++) x[i] = em_half_value(e, FUSOR_BF16, near[i]);
}

LLVMValueRef em_bf16_half(emit *e, LLVMValueRef words, bool is_upper) {
    const unsigned n = LLVMGetVectorSize(LLVMTypeOf(words));
    LLVMValueRef lane[64];
    for (unsigned i = 0; i < n; i++) lane[i] = LLVMConstInt(e->t_i32, is_upper ? 0xffff0000u : 16, 0);
    LLVMValueRef by = LLVMConstVector(lane, n), bits = LLVMBuildBitCast(e->b, words, LLVMVectorType(e->t_i32, n), "");
    bits = is_upper ? LLVMBuildAnd(e->b, bits, by, "") : LLVMBuildShl(e->b, bits, by, "");
    return LLVMBuildBitCast(e->b, bits, LLVMVectorType(e->t_f32, n), "");
}

LLVMValueRef em_lesser_magnitude(emit *e, LLVMValueRef least, LLVMValueRef magnitude) {
    LLVMValueRef x = LLVMBuildAdd(e->b, magnitude, LLVMConstAllOnes(LLVMTypeOf(least)), "");
    return LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntULT, x, least, ""), x, least, "");
}

void em_store_least_exponent(emit *e, LLVMValueRef least, LLVMValueRef to) {
    LLVMTypeRef t = e->t_i32;
    const bool is_half = LLVMGetElementType(LLVMTypeOf(least)) == e->t_i16;
    LLVMValueRef all = em_intrinsic(e, "llvm.vector.reduce.umin", 1, &least);
    LLVMValueRef x = LLVMBuildAdd(e->b, is_half ? LLVMBuildZExt(e->b, all, t, "") : all, LLVMConstInt(t, 1, 0), "");
    x = LLVMBuildLShr(e->b, x, LLVMConstInt(t, is_half ? 7 : 23, 0), "");
    LLVMValueRef is_tiny = LLVMBuildICmp(e->b, LLVMIntEQ, x, LLVMConstNull(t), "");
    x = LLVMBuildSelect(e->b, is_tiny, LLVMConstInt(t, (uint32_t)-1000, 0), x, "");
    if (!is_half) /* 1 more than the largest i32 is 0 */
        x = LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntEQ, all, LLVMConstAllOnes(t), ""), LLVMConstInt(t, 512, 0),
                            x, "");
    LLVMSetAlignment(LLVMBuildStore(e->b, x, to), 4);
}

/* ---- f16 as two bf16 ---- */
void em_f16_cut(emit *e, LLVMValueRef bits, LLVMValueRef part[2]) {
    LLVMValueRef x = em_half_value(e, FUSOR_F16, bits), odd[64];
    LLVMValueRef word = em_bits_of_f32(e, x),
                 high = em_f32_of_bits(e, em_and(e, word, em_i32(e, (int32_t)0xffff0000u)));
    LLVMTypeRef halves = LLVMVectorType(e->t_i16, 2 * (unsigned)e->lanes);
    for (int i = 0; i < e->lanes; i++) odd[i] = LLVMConstInt(e->t_i32, 2 * (unsigned)i + 1, 0);
    LLVMValueRef upper = LLVMConstVector(odd, (unsigned)e->lanes);
    part[0] = word;
    part[1] = em_bits_of_f32(e, em_fsub(e, x, high));
    for (int p = 0; p < 2; p++) {
        LLVMValueRef all = LLVMBuildBitCast(e->b, part[p], halves, "");
        part[p] = LLVMBuildShuffleVector(e->b, all, LLVMGetPoison(halves), upper, "");
    }
}

LLVMValueRef em_f16_most(emit *e, LLVMValueRef most, LLVMValueRef bits) {
    LLVMValueRef x = em_and(e, bits, em_splat(e, LLVMConstInt(e->t_i16, 0x7fff, 0)));
    return LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntUGT, x, most, ""), x, most, "");
}

void em_store_is_finite(emit *e, LLVMValueRef most, LLVMValueRef to) {
    LLVMTypeRef t = e->t_i32;
    LLVMValueRef all = em_intrinsic(e, "llvm.vector.reduce.umax", 1, &most);
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntULT, all, LLVMConstInt(e->t_i16, 0x7c00, 0), "");
    LLVMValueRef x = LLVMBuildSelect(e->b, is, LLVMConstInt(t, 512, 0), LLVMConstInt(t, (uint32_t)-1000, 0), "");
    LLVMSetAlignment(LLVMBuildStore(e->b, x, to), 4);
}

/* Elements are multiples of 2^(E - 134), E the exponent field, so products, and whatever they add up to, of
 * 2^(Ea + Eb - 268): with Ea + Eb >= 142 nothing but 0 is below 2^-126. */
LLVMValueRef em_bf16_is_exact(emit *e, LLVMValueRef at, LLVMValueRef other) {
    LLVMValueRef x = LLVMBuildLoad2(e->b, e->t_i32, at, ""), y = LLVMBuildLoad2(e->b, e->t_i32, other, "");
    LLVMSetAlignment(x, 4);
    LLVMSetAlignment(y, 4);
    return LLVMBuildICmp(e->b, LLVMIntSGE, LLVMBuildAdd(e->b, x, y, ""), LLVMConstInt(e->t_i32, 142, 0), "");
}
