/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* emit.c: types, constants, instructions and control flow of the emit context. Memory is in emit_memory.c, operators in
 * lower_ew.c and lower_cast.c. Everything here is one LLVM instruction or a few; nothing can become a library call. */
#include "jit/emit.h"
#include "jit/math.h"
#include <string.h>

/* ---- types ---- */
LLVMTypeRef em_scalar_type(emit *e, ir_dtype t) {
    switch (t) {
    case FUSOR_F64: return e->t_f64;
    case FUSOR_F32:
    case FUSOR_F16:
    case FUSOR_BF16: return e->t_f32;
    case FUSOR_BOOL: return e->t_i1;
    case FUSOR_I64:
    case FUSOR_U64: return e->t_i64;
    case FUSOR_I32:
    case FUSOR_U32: return e->t_i32;
    case FUSOR_I8:
    case FUSOR_U8: return e->t_i8;
    default: return e->t_i16;
    }
}

LLVMTypeRef em_memory_type(emit *e, ir_dtype t) {
    return ir_is_bool(t) ? e->t_i8 : ir_is_half(t) ? e->t_i16 : em_scalar_type(e, t);
}
LLVMTypeRef em_vec(emit *e, LLVMTypeRef scalar) {
    return e->lanes == 1 ? scalar : LLVMVectorType(scalar, (unsigned)e->lanes);
}
LLVMTypeRef em_type(emit *e, ir_dtype t) { return em_vec(e, em_scalar_type(e, t)); }

/* ---- constants ---- */
LLVMValueRef em_splat(emit *e, LLVMValueRef scalar) {
    if (e->lanes == 1) return scalar;
    if (LLVMIsConstant(scalar)) {
        LLVMValueRef all[64];
        for (int i = 0; i < e->lanes; i++) all[i] = scalar;
        return LLVMConstVector(all, (unsigned)e->lanes);
    }
    LLVMTypeRef type = em_vec(e, LLVMTypeOf(scalar));
    LLVMValueRef one = LLVMBuildInsertElement(e->b, LLVMGetPoison(type), scalar, LLVMConstInt(e->t_i32, 0, 0), "");
    return LLVMBuildShuffleVector(e->b, one, LLVMGetPoison(type),
                                  LLVMConstNull(LLVMVectorType(e->t_i32, (unsigned)e->lanes)), "");
}

LLVMValueRef em_f32(emit *e, double v) { return em_splat(e, LLVMConstReal(e->t_f32, (double)(float)v)); }
LLVMValueRef em_f64(emit *e, double v) { return em_splat(e, LLVMConstReal(e->t_f64, v)); }
LLVMValueRef em_i32(emit *e, int32_t v) { return em_splat(e, LLVMConstInt(e->t_i32, (uint32_t)v, 0)); }
LLVMValueRef em_i64s(emit *e, int64_t v) { return LLVMConstInt(e->t_i64, (uint64_t)v, 0); }

LLVMValueRef em_int(emit *e, ir_dtype t, int64_t v) {
    LLVMTypeRef type = em_scalar_type(e, t);
    unsigned width = LLVMGetIntTypeWidth(type);
    uint64_t bits = ir_is_bool(t) ? v != 0 : (uint64_t)v << (64 - width) >> (64 - width);
    return em_splat(e, LLVMConstInt(type, bits, 0));
}

LLVMValueRef em_const(emit *e, ir_dtype t, double v) {
    return t == FUSOR_F64 ? em_f64(e, v) : ir_is_float(t) ? em_f32(e, v) : em_int(e, t, (int64_t)v);
}

/* ---- instructions ---- */
LLVMValueRef em_fadd(emit *e, LLVMValueRef a, LLVMValueRef b) { return LLVMBuildFAdd(e->b, a, b, ""); }
LLVMValueRef em_fsub(emit *e, LLVMValueRef a, LLVMValueRef b) { return LLVMBuildFSub(e->b, a, b, ""); }
LLVMValueRef em_fmul(emit *e, LLVMValueRef a, LLVMValueRef b) { return LLVMBuildFMul(e->b, a, b, ""); }
/* On a GPU of f32 without a call: math_gpu.c says why. LLVM (22, SimplifyDemandedVectorElts) takes lanes of a quotient
 * for 0 where it knows those of both operands to be 0, as in a masked load, and drops the select that hides their NaN:
 * so it does not see the numerator's. The fence is no instruction. */
LLVMValueRef em_fdiv(emit *e, LLVMValueRef a, LLVMValueRef b) {
    if (ir_level_is_gpu(e->k->level) && LLVMTypeOf(a) == em_vec(e, e->t_f32)) return math_gpu_divide(e, a, b);
    if (LLVMGetTypeKind(LLVMTypeOf(a)) == LLVMVectorTypeKind) a = em_intrinsic(e, "llvm.arithmetic.fence", 1, &a);
    return LLVMBuildFDiv(e->b, a, b, "");
}
/* What an address adds and multiplies is often 0 or 1, and functions without optimization would compute it. */
static bool is_one(LLVMValueRef x) { return LLVMIsAConstantInt(x) && LLVMConstIntGetZExtValue(x) == 1; }
LLVMValueRef em_add(emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMIsNull(a) ? b : LLVMIsNull(b) ? a : LLVMBuildAdd(e->b, a, b, "");
}
LLVMValueRef em_sub(emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMIsNull(b) ? a : LLVMBuildSub(e->b, a, b, "");
}
LLVMValueRef em_mul(emit *e, LLVMValueRef a, LLVMValueRef b) {
    return is_one(a) || LLVMIsNull(b) ? b : is_one(b) || LLVMIsNull(a) ? a : LLVMBuildMul(e->b, a, b, "");
}
LLVMValueRef em_and(emit *e, LLVMValueRef a, LLVMValueRef b) { return LLVMBuildAnd(e->b, a, b, ""); }
LLVMValueRef em_or(emit *e, LLVMValueRef a, LLVMValueRef b) { return LLVMBuildOr(e->b, a, b, ""); }
LLVMValueRef em_xor(emit *e, LLVMValueRef a, LLVMValueRef b) { return LLVMBuildXor(e->b, a, b, ""); }

/* An integer constant of the type of `like`, a scalar or a vector of any length (not only the current width). */
static LLVMValueRef int_like(LLVMValueRef like, uint64_t v) {
    LLVMTypeRef type = LLVMTypeOf(like);
    if (LLVMGetTypeKind(type) != LLVMVectorTypeKind) return LLVMConstInt(type, v, 0);
    LLVMValueRef all[64];
    unsigned n = LLVMGetVectorSize(type);
    for (unsigned i = 0; i < n; i++) all[i] = LLVMConstInt(LLVMGetElementType(type), v, 0);
    return LLVMConstVector(all, n);
}

LLVMValueRef em_shl(emit *e, LLVMValueRef a, int bits) {
    return LLVMBuildShl(e->b, a, int_like(a, (uint64_t)bits), "");
}
LLVMValueRef em_lshr(emit *e, LLVMValueRef a, int bits) {
    return LLVMBuildLShr(e->b, a, int_like(a, (uint64_t)bits), "");
}
LLVMValueRef em_ashr(emit *e, LLVMValueRef a, int bits) {
    return LLVMBuildAShr(e->b, a, int_like(a, (uint64_t)bits), "");
}

LLVMValueRef em_intrinsic(emit *e, const char *name, int n, LLVMValueRef *args) {
    LLVMTypeRef type = LLVMTypeOf(args[0]);
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, LLVMLookupIntrinsicID(name, strlen(name)), &type, 1);
    return LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, (unsigned)n, "");
}

LLVMValueRef em_mad(emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
    if (!e->level->has_fma) return em_fadd(e, em_fmul(e, a, b), c);
    return em_intrinsic(e, "llvm.fma", 3, (LLVMValueRef[]){a, b, c});
}

LLVMValueRef em_fcmp(emit *e, LLVMRealPredicate p, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildFCmp(e->b, p, a, b, "");
}
LLVMValueRef em_icmp(emit *e, LLVMIntPredicate p, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildICmp(e->b, p, a, b, "");
}
LLVMValueRef em_select(emit *e, LLVMValueRef c, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(e->b, c, a, b, "");
}
LLVMValueRef em_or_zero(emit *e, LLVMValueRef x, LLVMValueRef mask) {
    return mask ? em_select(e, mask, x, LLVMConstNull(LLVMTypeOf(x))) : x;
}
LLVMValueRef em_min(emit *e, LLVMValueRef a, LLVMValueRef b) {
    return em_select(e, em_icmp(e, LLVMIntSLT, a, b), a, b);
}
LLVMValueRef em_max(emit *e, LLVMValueRef a, LLVMValueRef b) {
    return em_select(e, em_icmp(e, LLVMIntSGT, a, b), a, b);
}

LLVMValueRef em_load_splat(emit *e, LLVMTypeRef vector, LLVMValueRef ptr, unsigned align) {
    LLVMValueRef x = LLVMBuildLoad2(e->b, LLVMGetElementType(vector), ptr, ""), poison = LLVMGetPoison(vector);
    LLVMSetAlignment(x, align);
    x = LLVMBuildInsertElement(e->b, poison, x, LLVMConstInt(e->t_i32, 0, 0), "");
    return LLVMBuildShuffleVector(e->b, x, poison, LLVMConstNull(LLVMVectorType(e->t_i32, LLVMGetVectorSize(vector))),
                                  "");
}

LLVMValueRef em_opaque(emit *e, LLVMValueRef x) {
    LLVMTypeRef type = LLVMTypeOf(x), fn = LLVMFunctionType(type, &type, 1, 0);
    const bool is_vector = LLVMGetTypeKind(type) == LLVMVectorTypeKind;
    LLVMValueRef same = LLVMGetInlineAsm(fn, "", 0, is_vector ? "=v,0" : "=r,0", 4, 0, 0, LLVMInlineAsmDialectATT, 0);
    return LLVMBuildCall2(e->b, fn, same, &x, 1, "");
}

void em_use(emit *e, LLVMValueRef x) {
    LLVMTypeRef type = LLVMTypeOf(x), fn = LLVMFunctionType(LLVMVoidTypeInContext(e->ctx), &type, 1, 0);
    const bool is_vector = LLVMGetTypeKind(type) == LLVMVectorTypeKind;
    LLVMValueRef use = LLVMGetInlineAsm(fn, "", 0, is_vector ? "v" : "r", 1, 1, 0, LLVMInlineAsmDialectATT, 0);
    LLVMBuildCall2(e->b, fn, use, &x, 1, "");
}

/* The type of `like` with another element type. */
static LLVMTypeRef type_like(LLVMValueRef like, LLVMTypeRef element) {
    LLVMTypeRef type = LLVMTypeOf(like);
    return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMVectorType(element, LLVMGetVectorSize(type)) : element;
}

LLVMValueRef em_bits_of_f32(emit *e, LLVMValueRef x) { return LLVMBuildBitCast(e->b, x, type_like(x, e->t_i32), ""); }
LLVMValueRef em_f32_of_bits(emit *e, LLVMValueRef x) { return LLVMBuildBitCast(e->b, x, type_like(x, e->t_f32), ""); }
LLVMValueRef em_fabs(emit *e, LLVMValueRef x) { return em_intrinsic(e, "llvm.fabs", 1, &x); }
LLVMValueRef em_fneg(emit *e, LLVMValueRef x) { return LLVMBuildFNeg(e->b, x, ""); }
LLVMValueRef em_rint(emit *e, LLVMValueRef x) { return em_intrinsic(e, "llvm.roundeven", 1, &x); }

LLVMValueRef em_copysign(emit *e, LLVMValueRef magnitude, LLVMValueRef sign) {
    return em_intrinsic(e, "llvm.copysign", 2, (LLVMValueRef[]){magnitude, sign});
}

LLVMValueRef em_lane(emit *e, LLVMValueRef vector, int lane) {
    if (LLVMGetTypeKind(LLVMTypeOf(vector)) != LLVMVectorTypeKind) return vector;
    return LLVMBuildExtractElement(e->b, vector, LLVMConstInt(e->t_i32, (unsigned)lane, 0), "");
}

/* ---- control ---- */
/* Blocks are appended in the order of the text, the block behind a loop or branch only when it is reached: under
 * optnone the back end keeps the order, so this is what makes the hot path fall through. */
LLVMBasicBlockRef em_block(emit *e, const char *name) { return LLVMAppendBasicBlockInContext(e->ctx, e->fn, name); }

/* The test is at the head, so phis made by em_loop_phi are valid behind the loop (the value after the last iteration).
 */
em_loop em_for(emit *e, LLVMValueRef begin, LLVMValueRef end, LLVMValueRef step) {
    em_loop l = {0};
    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b);
    l.head = em_block(e, "head");
    l.body = em_block(e, "body");
    l.done = LLVMCreateBasicBlockInContext(e->ctx, "done");
    l.step = step;
    l.number = ++e->n_loops;
    LLVMBuildBr(e->b, l.head);
    LLVMPositionBuilderAtEnd(e->b, l.head);
    l.i = LLVMBuildPhi(e->b, LLVMTypeOf(begin), "i");
    LLVMAddIncoming(l.i, &begin, &before, 1);
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSLT, l.i, end), l.body, l.done);
    LLVMPositionBuilderAtEnd(e->b, l.body);
    return l;
}

void em_loop_is_rare(emit *e, const em_loop *l) {
    static const char name[] = "branch_weights", kind[] = "prof";
    LLVMMetadataRef weights[3] = {LLVMMDStringInContext2(e->ctx, name, sizeof name - 1),
                                  LLVMValueAsMetadata(LLVMConstInt(e->t_i32, 1, 0)),
                                  LLVMValueAsMetadata(LLVMConstInt(e->t_i32, 16, 0))};
    LLVMSetMetadata(LLVMGetBasicBlockTerminator(l->head), LLVMGetMDKindIDInContext(e->ctx, kind, sizeof kind - 1),
                    LLVMMetadataAsValue(e->ctx, LLVMMDNodeInContext2(e->ctx, weights, 3)));
}

LLVMValueRef em_loop_phi(emit *e, em_loop *l, LLVMValueRef initial) {
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b), before = LLVMGetIncomingBlock(l->i, 0);
    LLVMPositionBuilderBefore(e->b, l->i);
    LLVMValueRef phi = LLVMBuildPhi(e->b, LLVMTypeOf(initial), "");
    LLVMAddIncoming(phi, &initial, &before, 1);
    LLVMPositionBuilderAtEnd(e->b, here);
    return phi;
}

void em_loop_next(emit *e, LLVMValueRef phi, LLVMValueRef value) {
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    LLVMAddIncoming(phi, &value, &here, 1);
}

void em_end(emit *e, em_loop *l) {
    l->next = LLVMGetInsertBlock(e->b);
    LLVMValueRef i = em_add(e, l->i, l->step);
    LLVMAddIncoming(l->i, &i, &l->next, 1);
    LLVMBuildBr(e->b, l->head);
    if (l->number == e->n_loops)
        fu_push(e->arena, &e->inner, (em_inner){LLVMGetIncomingBlock(l->i, 0), l->head, l->next});
    LLVMAppendExistingBasicBlock(e->fn, l->done);
    LLVMPositionBuilderAtEnd(e->b, l->done);
}

em_branch em_if(emit *e, LLVMValueRef cond) {
    em_branch b = {em_block(e, "then"), LLVMCreateBasicBlockInContext(e->ctx, "else"),
                   LLVMCreateBasicBlockInContext(e->ctx, "endif")};
    LLVMBuildCondBr(e->b, cond, b.then, b.other);
    LLVMPositionBuilderAtEnd(e->b, b.then);
    return b;
}

void em_else(emit *e, em_branch *b) {
    LLVMBuildBr(e->b, b->done);
    LLVMAppendExistingBasicBlock(e->fn, b->other);
    LLVMPositionBuilderAtEnd(e->b, b->other);
}

void em_endif(emit *e, em_branch *b) {
    LLVMBuildBr(e->b, b->done);
    if (!LLVMGetBasicBlockParent(b->other)) { /* no em_else */
        LLVMAppendExistingBasicBlock(e->fn, b->other);
        LLVMPositionBuilderAtEnd(e->b, b->other);
        LLVMBuildBr(e->b, b->done);
    }
    LLVMAppendExistingBasicBlock(e->fn, b->done);
    LLVMPositionBuilderAtEnd(e->b, b->done);
}

LLVMValueRef em_alloca(emit *e, LLVMTypeRef t, unsigned align) {
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b), entry = LLVMGetEntryBasicBlock(e->fn);
    LLVMValueRef first = LLVMGetFirstInstruction(entry);
    if (first) LLVMPositionBuilderBefore(e->b, first);
    else LLVMPositionBuilderAtEnd(e->b, entry);
    LLVMValueRef slot = LLVMBuildAlloca(e->b, t, "");
    LLVMSetAlignment(slot, align);
    LLVMPositionBuilderAtEnd(e->b, here);
    return slot;
}

/* ---- reductions ---- */
LLVMValueRef em_identity(emit *e, ir_op reduce_op, ir_dtype t) {
    int bits = 8 * ir_dtypes[t].bytes;
    switch (reduce_op == IR_OP_ARGMAX   ? IR_OP_MAXIMUM
            : reduce_op == IR_OP_ARGMIN ? IR_OP_MINIMUM
                                        : ir_ops[reduce_op].combine) {
    case IR_OP_MUL: return em_const(e, t, 1);
    case IR_OP_AND: return em_int(e, t, -1);
    case IR_OP_MAXIMUM:
        if (ir_is_float(t)) return em_const(e, t, -__builtin_inf());
        return em_int(e, t, ir_is_signed(t) ? (int64_t)(UINT64_MAX << (bits - 1)) : 0);
    case IR_OP_MINIMUM:
        if (ir_is_float(t)) return em_const(e, t, __builtin_inf());
        return em_int(e, t, ir_is_signed(t) ? (int64_t)(UINT64_MAX >> (65 - bits)) : -1);
    default: return em_const(e, t, 0); /* sums, or */
    }
}

bool em_has_max_nan(const emit *e, ir_dtype t) {
    return e->k->level >= IR_LEVEL_SM80 && (t == FUSOR_F32 || ir_is_half(t));
}

/* max.NaN, min.NaN: one instruction where the rows of maximum and minimum take four. */
static LLVMValueRef combine_on_gpu(emit *e, ir_op combine, ir_dtype t, LLVMValueRef acc, LLVMValueRef x) {
    if (!em_has_max_nan(e, t)) return NULL;
    const char *name = combine == IR_OP_MAXIMUM ? "llvm.maximum" : combine == IR_OP_MINIMUM ? "llvm.minimum" : NULL;
    return name ? em_intrinsic(e, name, 2, (LLVMValueRef[]){acc, x}) : NULL;
}

LLVMValueRef em_combine(emit *e, ir_op reduce_op, ir_dtype t, LLVMValueRef acc, LLVMValueRef x) {
    LLVMValueRef on_gpu = combine_on_gpu(e, ir_ops[reduce_op].combine, t, acc, x);
    if (on_gpu) return on_gpu;
    ir_kinst inst = {.op = (uint16_t)ir_ops[reduce_op].combine, .dtype = t, .n_in = 2};
    int number = 0;
    while (number < e->k->n_insts && e->k->inst[number].op != (uint16_t)reduce_op) number++;
    void *before = em_at(e, number < e->k->n_insts ? number : -1);
    LLVMValueRef v = em_lower(e, &inst, (LLVMValueRef[]){acc, x}, (ir_dtype[]){t, t});
    em_back(e, before);
    return v;
}

/* ---- the scalar program ---- */
/* NaNs that arithmetic and functions make are those of their operands, or have one bit set (half_test.c). Others come
 * from memory, from f16, which has more bits, and from f64. */
static bool has_short_nans(const emit *e, const ir_kinst *in) {
    if (!ir_is_float(in->dtype) || in->dtype == FUSOR_BF16) return true;
    if (in->dtype != FUSOR_F32 || in->op == IR_K_LOAD) return false;
    if (in->op == IR_K_SCALAR) return true; /* a literal: ir_add_literal */
    if (in->op >= IR_OP_COUNT) return false;
    const ir_op_info *op = &ir_ops[in->op];
    const bool is_arithmetic = in->op == IR_OP_CAST || op->kind == IR_KIND_EW ||
                               (op->kind == IR_KIND_REDUCE && op->combine != IR_OP_NONE) ||
                               op->kind == IR_KIND_CONTRACT || op->kind == IR_KIND_CONV;
    for (int i = 0; i < in->n_in; i++)
        if (!e->has_short_nans[in->in[i]]) return false;
    return is_arithmetic;
}

void em_take_program(emit *e, const ir_kernel *k) {
    e->k = k;
    ir_kernel_vary_all(k, e->varies);
    for (int i = 0; i < k->n_insts; i++) e->has_short_nans[i] = has_short_nans(e, &k->inst[i]);
}

void em_values_init(em_values *v, LLVMValueRef (*load)(emit *, em_values *, const ir_kinst *, void *), void *user) {
    memset(v->at, 0, sizeof v->at);
    v->load = load;
    v->user = user;
    v->one = NULL;
}

LLVMValueRef em_uniform(emit *e, em_values *v, int inst) {
    if (e->lanes == 1) return em_value(e, v, inst);
    if (!v->one) {
        v->one = FU_NEW(e->arena, em_values);
        em_values_init(v->one, v->load, v->user);
    }
    int lanes = e->lanes;
    e->lanes = 1;
    LLVMValueRef x = em_value(e, v->one, inst);
    e->lanes = lanes;
    return x;
}

/* Operators that are not element-wise (reductions, MATMUL) are the kernel kind's: it sets at[] before, or v->load makes
 * them. */
LLVMValueRef em_value(emit *e, em_values *v, int number) {
    const ir_kinst *inst = &e->k->inst[number];
    if (v->at[number]) return v->at[number];
    if (inst->op == IR_K_SCALAR) return v->at[number] = em_splat(e, e->scalar[inst->index]);
    if (inst->op == IR_K_STORE) return em_value(e, v, inst->in[0]);
    const ir_kind kind = inst->op < IR_OP_COUNT ? ir_ops[inst->op].kind : IR_KIND_CORE;
    if (kind != IR_KIND_EW && kind != IR_KIND_CONVERT && kind != IR_KIND_RANDOM) {
        void *before = em_at(e, number);
        v->at[number] = v->load(e, v, inst, v->user);
        em_back(e, before);
        return v->at[number];
    }
    LLVMValueRef in[5];
    ir_dtype type[5];
    for (int i = 0; i < inst->n_in; i++) {
        in[i] = em_value(e, v, inst->in[i]);
        type[i] = e->k->inst[inst->in[i]].dtype;
    }
    void *before = em_at(e, number);
    if (kind == IR_KIND_RANDOM) v->at[number] = em_random(e, inst, in[0], in[1]);
    else if (inst->op == IR_OP_CAST && inst->dtype == FUSOR_BF16 && type[0] == FUSOR_F32)
        v->at[number] = em_half_round(e, FUSOR_BF16, in[0], e->has_short_nans[inst->in[0]]);
    else v->at[number] = em_lower(e, inst, in, type);
    em_back(e, before);
    return v->at[number];
}

static unsigned program_kind(emit *e) {
    static const char kind[] = "fusor.program";
    return LLVMGetMDKindIDInContext(e->ctx, kind, sizeof kind - 1);
}

void em_mark_program(emit *e, LLVMValueRef v) {
    if (!LLVMIsAInstruction(v)) return; /* folded */
    LLVMSetMetadata(v, program_kind(e), LLVMMetadataAsValue(e->ctx, LLVMMDNodeInContext2(e->ctx, NULL, 0)));
}

bool em_is_program(emit *e, LLVMValueRef v) { return LLVMGetMetadata(v, program_kind(e)) != NULL; }
