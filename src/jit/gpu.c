/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu.c: the entry of a GPU kernel and the instructions that only a GPU has. */
#include "jit/gpu.h"
#include "jit/llvm_compat.h"
#include <llvm-c/DebugInfo.h>
#include <stdio.h>
#include <string.h>

enum { GLOBAL = 1, SHARED = 3, PTX_KERNEL = 71 /* LLVM's calling convention */ };

LLVMValueRef gpu_call(emit *e, const char *name, LLVMTypeRef *overload, unsigned n_overload, LLVMValueRef *in,
                      unsigned n) {
    const unsigned id = compat_intrinsic(name, &n_overload, &n);
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, id, overload, n_overload);
    return LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, in, n, "");
}

static void add_type_attribute(emit *e, const char *name, LLVMTypeRef type) {
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(e->fn, 1, LLVMCreateTypeAttribute(e->ctx, kind, type));
}

static LLVMValueRef load_word(emit *e, LLVMTypeRef type, int word) {
    LLVMValueRef base = e->set ? e->set : LLVMGetParam(e->fn, 0);
    LLVMValueRef at = em_gep(e, base, e->t_i8, em_i64s(e, 8 * (int64_t)word));
    LLVMValueRef v = LLVMBuildLoad2(e->b, type, at, "");
    LLVMSetAlignment(v, 8);
    return v;
}

LLVMValueRef gpu_word(emit *e, int word) { return load_word(e, e->t_i64, word); }

static void add_number(emit *e, const char *name, int n) {
    char text[16];
    snprintf(text, sizeof text, "%d", n);
    LLVMAddTargetDependentFunctionAttr(e->fn, name, text);
}

void gpu_limit(emit *e, int threads, int blocks) {
    add_number(e, "nvvm.maxntid", threads);
    if (blocks) add_number(e, "nvvm.minctasm", blocks);
}

void gpu_limit_registers(emit *e, int registers) { add_number(e, "nvvm.maxnreg", registers); }

enum { CTAID, NTID, TID, NCTAID };
static const char *const special_names[4] = {"ctaid", "ntid", "tid", "nctaid"};

static LLVMValueRef special(emit *e, const char *name) {
    char full[64];
    snprintf(full, sizeof full, "llvm.nvvm.read.ptx.sreg.%s", name);
    return LLVMBuildZExt(e->b, gpu_call(e, full, NULL, 0, NULL, 0), e->t_i64, "");
}

LLVMValueRef gpu_special(emit *e, const char *name) {
    size_t n = strcspn(name, ".");
    if (!e->set) return special(e, name);
    for (int i = 0; i < 4; i++)
        if (strlen(special_names[i]) == n && memcmp(special_names[i], name, n) == 0 && name[n + 1] != 'z')
            return e->place[i][name[n + 1] - 'x'];
    return em_i64s(e, name[0] == 'n'); /* along z there is one */
}

/* The block's set, and its place in the grid and the block of that: ir/gpu.h, is_each. */
static void find_set(emit *e, LLVMTypeRef global) {
    int words = ir_gpu_words(e->k);
    LLVMValueRef index = load_word(e, global, 0), sets = load_word(e, global, 1), block = special(e, "ctaid.x"),
                 thread = special(e, "tid.x"), one = em_i64s(e, 1);
    LLVMValueRef number = LLVMBuildLoad2(e->b, e->t_i32, em_gep(e, index, e->t_i32, block), "");
    LLVMValueRef bytes = em_i64s(e, 8 * (int64_t)ir_gpu_each_words(e->k));
    e->set = em_gep(e, sets, e->t_i8, em_mul(e, LLVMBuildZExt(e->b, number, e->t_i64, ""), bytes));
    LLVMValueRef of_set = em_sub(e, block, gpu_word(e, words + IR_GPU_EACH_FIRST)), x, y,
                 grid_x = gpu_word(e, words + IR_GPU_EACH_GRID_X), log = gpu_word(e, words + IR_GPU_EACH_BLOCK_X);
    LLVMValueRef threads_x = LLVMBuildShl(e->b, one, log, "");
    x = LLVMBuildTrunc(e->b, of_set, e->t_i32, "");
    y = LLVMBuildUDiv(e->b, x, LLVMBuildTrunc(e->b, grid_x, e->t_i32, ""), "");
    e->place[CTAID][1] = LLVMBuildZExt(e->b, y, e->t_i64, "");
    e->place[CTAID][0] = em_sub(e, of_set, em_mul(e, e->place[CTAID][1], grid_x));
    e->place[NCTAID][0] = grid_x;
    e->place[NCTAID][1] = gpu_word(e, words + IR_GPU_EACH_GRID_Y);
    e->place[TID][0] = em_and(e, thread, em_sub(e, threads_x, one));
    e->place[TID][1] = LLVMBuildLShr(e->b, thread, log, "");
    e->place[NTID][0] = threads_x;
    e->place[NTID][1] = LLVMBuildLShr(e->b, em_i64s(e, IR_GPU_THREADS), log, "");
}

void gpu_begin(emit *e, const char *symbol) {
    const ir_kernel *k = e->k;
    LLVMTypeRef words = LLVMArrayType2(e->t_i64, (uint64_t)(k->is_each ? IR_GPU_EACH_PARAMS : ir_gpu_words(k)));
    LLVMTypeRef global = LLVMPointerTypeInContext(e->ctx, GLOBAL);
    e->fn = LLVMAddFunction(e->mod, symbol, LLVMFunctionType(e->t_void, &e->t_ptr, 1, 0));
    LLVMSetFunctionCallConv(e->fn, PTX_KERNEL);
    add_type_attribute(e, "byval", words);
    LLVMAddAttributeAtIndex(e->fn, 1, LLVMCreateEnumAttribute(e->ctx, LLVMGetEnumAttributeKindForName("align", 5), 8));
    gpu_limit(e, IR_GPU_THREADS, 0);
    LLVMPositionBuilderAtEnd(e->b, em_block(e, "entry"));
    if (k->is_each) find_set(e, global);
    e->phase = gpu_word(e, IR_GPU_WORD_PHASE);
    e->scratch = load_word(e, global, IR_GPU_WORD_SCRATCH);
    for (int d = 0; d < k->n_dims; d++) e->size[d] = em_i64s(e, k->dim[d].size);
    for (int b = 0; b < k->n_buffers; b++)
        for (int d = 0; d < k->n_dims; d++) e->stride[b][d] = em_i64s(e, k->buffer[b].stride[d]);
    for (ir_gpu_word w = {0}; ir_gpu_next_word(k, &w);) switch (w.is) {
        case IR_GPU_BUFFER: e->base[w.number] = load_word(e, global, w.at); break;
        case IR_GPU_SIZE: e->size[w.number] = gpu_word(e, w.at); break;
        case IR_GPU_STRIDE: e->stride[w.number][w.dim] = gpu_word(e, w.at); break;
        default: {
            const ir_dtype t = k->scalar[w.number];
            e->scalar[w.number] = em_to_register(e, t, load_word(e, em_memory_type(e, t), w.at));
        }
        }
}

gpu_span gpu_threads(emit *e, char axis) {
    char name[16];
    LLVMValueRef v[4];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s.%c", special_names[i], axis);
        v[i] = gpu_special(e, name);
    }
    return (gpu_span){em_add(e, em_mul(e, v[0], v[1]), v[2]), em_mul(e, v[3], v[1])};
}

void gpu_keep_loop(emit *e, const em_loop *l) {
    static const char property[] = "llvm.loop.unroll.disable", kind[] = "llvm.loop";
    LLVMMetadataRef text = LLVMMDStringInContext2(e->ctx, property, sizeof property - 1);
    LLVMMetadataRef self = LLVMTemporaryMDNode(e->ctx, NULL, 0), disable = LLVMMDNodeInContext2(e->ctx, &text, 1);
    LLVMMetadataRef loop = LLVMMDNodeInContext2(e->ctx, (LLVMMetadataRef[]){self, disable}, 2);
    LLVMMetadataReplaceAllUsesWith(self, loop);
    LLVMSetMetadata(LLVMGetBasicBlockTerminator(l->next), LLVMGetMDKindIDInContext(e->ctx, kind, sizeof kind - 1),
                    LLVMMetadataAsValue(e->ctx, loop));
}

LLVMValueRef gpu_made_here(emit *e, LLVMValueRef v, LLVMValueRef i) {
    LLVMValueRef high = LLVMBuildTrunc(e->b, em_lshr(e, i, 32), e->t_i32, "");
    high = em_lshr(e, gpu_asm(e, "mov.b32 $0, $1;", "=r,r", true, e->t_i32, &high, 1), 31);
    return LLVMBuildZExt(e->b, em_add(e, LLVMBuildTrunc(e->b, v, e->t_i32, ""), high), e->t_i64, "");
}

LLVMValueRef gpu_wide_quotient(emit *e, LLVMValueRef a, LLVMValueRef b) {
    em_loop l = em_for(e, em_i64s(e, 0), em_i64s(e, 64), em_i64s(e, 1));
    LLVMValueRef rest = em_loop_phi(e, &l, em_i64s(e, 0)), quotient = em_loop_phi(e, &l, a);
    LLVMValueRef more = em_or(e, em_shl(e, rest, 1), em_lshr(e, quotient, 63));
    LLVMValueRef is_one = em_icmp(e, LLVMIntUGE, more, b), bit = LLVMBuildZExt(e->b, is_one, e->t_i64, "");
    em_loop_next(e, rest, em_select(e, is_one, em_sub(e, more, b), more));
    em_loop_next(e, quotient, em_or(e, em_shl(e, quotient, 1), bit));
    em_end(e, &l);
    gpu_keep_loop(e, &l);
    return quotient;
}

/* a / b, or what is left of it, by f64: an estimate to 2^-50 of it, what it leaves the same way, and the last unit. */
static LLVMValueRef straight_quotient(emit *e, LLVMValueRef a, LLVMValueRef b, bool is_rest) {
    LLVMValueRef db = LLVMBuildSIToFP(e->b, b, e->t_f64, ""), left = a, q = em_i64s(e, 0), one = em_f64(e, 1);
    LLVMValueRef r = gpu_call(e, "llvm.nvvm.rcp.approx.ftz.d", NULL, 0, &db, 1), minus = em_fneg(e, db);
    for (int i = 0; i < 2; i++) r = em_mad(e, r, em_mad(e, minus, r, one), r);
    for (int i = 0; i < 2; i++) {
        LLVMValueRef more = em_fmul(e, LLVMBuildSIToFP(e->b, left, e->t_f64, ""), r);
        q = em_add(e, q, LLVMBuildFPToSI(e->b, more, e->t_i64, ""));
        left = em_sub(e, a, em_mul(e, q, b));
    }
    LLVMValueRef is_below = em_icmp(e, LLVMIntSLT, left, em_i64s(e, 0)), is_above = em_icmp(e, LLVMIntSGE, left, b);
    LLVMValueRef zero = em_i64s(e, 0);
    if (!is_rest)
        return em_add(e, q, em_select(e, is_below, em_i64s(e, -1), em_select(e, is_above, em_i64s(e, 1), zero)));
    return em_add(e, left, em_select(e, is_below, b, em_select(e, is_above, em_sub(e, zero, b), zero)));
}

/* What a kernel still divides in 64 bits by what only the call knows: numbers of tiles and the like, none of them
 * negative. The program's own quotients may be of any numbers. Conversions of numbers out of range are poison, and
 * addresses begin with these quotients: LLVM's straight-line strength reduction walks back all that leads to one, for
 * each pair that it compares, to know whether it is poison. Frozen they are not (products of f32 and f64: 0.4 of the
 * time to compile). */
void gpu_replace_quotients(emit *e) {
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    e->lanes = 1;
    for (LLVMBasicBlockRef block = LLVMGetFirstBasicBlock(e->fn); block; block = LLVMGetNextBasicBlock(block))
        for (LLVMValueRef i = LLVMGetFirstInstruction(block), next; i; i = next) {
            next = LLVMGetNextInstruction(i);
            const LLVMOpcode op = LLVMGetInstructionOpcode(i);
            if ((op != LLVMUDiv && op != LLVMURem) || LLVMTypeOf(i) != e->t_i64) continue;
            if (LLVMIsAConstantInt(LLVMGetOperand(i, 1)) || em_is_program(e, i)) continue;
            LLVMPositionBuilderBefore(e->b, i);
            LLVMValueRef value = straight_quotient(e, LLVMGetOperand(i, 0), LLVMGetOperand(i, 1), op == LLVMURem);
            LLVMReplaceAllUsesWith(i, LLVMBuildFreeze(e->b, value, ""));
            LLVMInstructionEraseFromParent(i);
        }
    LLVMPositionBuilderAtEnd(e->b, here);
}

void gpu_barrier(emit *e) {
    LLVMValueRef zero = LLVMConstInt(e->t_i32, 0, 0);
    gpu_call(e, "llvm.nvvm.barrier.cta.sync.aligned.all", NULL, 0, &zero, 1);
}

static LLVMValueRef shuffle_word(emit *e, LLVMValueRef v, int mask) {
    LLVMValueRef in[4] = {LLVMConstInt(e->t_i32, 0xffffffff, 0), v, LLVMConstInt(e->t_i32, (unsigned)mask, 0),
                          LLVMConstInt(e->t_i32, IR_GPU_WARP - 1, 0)};
    return gpu_call(e, "llvm.nvvm.shfl.sync.bfly.i32", NULL, 0, in, 4);
}

LLVMValueRef gpu_shuffle(emit *e, LLVMValueRef v, int mask) {
    LLVMTypeRef type = LLVMTypeOf(v);
    bool is_int = LLVMGetTypeKind(type) == LLVMIntegerTypeKind;
    unsigned bits = is_int ? LLVMGetIntTypeWidth(type) : type == e->t_f64 ? 64 : 32;
    LLVMTypeRef as_int = LLVMIntTypeInContext(e->ctx, bits);
    LLVMValueRef x = is_int ? v : LLVMBuildBitCast(e->b, v, as_int, ""), out;
    if (bits == 64) {
        LLVMValueRef low = shuffle_word(e, LLVMBuildTrunc(e->b, x, e->t_i32, ""), mask);
        LLVMValueRef high = shuffle_word(e, LLVMBuildTrunc(e->b, em_lshr(e, x, 32), e->t_i32, ""), mask);
        out = em_or(e, LLVMBuildZExt(e->b, low, e->t_i64, ""), em_shl(e, LLVMBuildZExt(e->b, high, e->t_i64, ""), 32));
    } else {
        out = shuffle_word(e, bits < 32 ? LLVMBuildZExt(e->b, x, e->t_i32, "") : x, mask);
        if (bits < 32) out = LLVMBuildTrunc(e->b, out, as_int, "");
    }
    return is_int ? out : LLVMBuildBitCast(e->b, out, type, "");
}

LLVMValueRef gpu_same_in_warp(emit *e, LLVMValueRef v) {
    LLVMValueRef in[4] = {em_i32(e, -1), v, em_i32(e, 0), em_i32(e, IR_GPU_WARP - 1)};
    return gpu_call(e, "llvm.nvvm.shfl.sync.idx.i32", NULL, 0, in, 4);
}

LLVMValueRef gpu_exp2(emit *e, LLVMValueRef x) { return gpu_call(e, "llvm.nvvm.ex2.approx.ftz", &e->t_f32, 1, &x, 1); }

void gpu_fence(emit *e) { gpu_call(e, "llvm.nvvm.membar.gl", NULL, 0, NULL, 0); }

LLVMValueRef gpu_count(emit *e, LLVMValueRef address, LLVMValueRef index, LLVMValueRef most) {
    LLVMValueRef at = LLVMBuildIntToPtr(e->b, address, LLVMPointerTypeInContext(e->ctx, GLOBAL), "");
    at = em_gep(e, at, e->t_i32, index);
    return compat_count_on_device(e->b, at, LLVMBuildTrunc(e->b, most, e->t_i32, ""));
}

LLVMValueRef gpu_shared(emit *e, LLVMTypeRef element, int n) {
    LLVMTypeRef type = LLVMArrayType2(element, (uint64_t)n);
    LLVMValueRef g = LLVMAddGlobalInAddressSpace(e->mod, type, "shared", SHARED);
    LLVMSetInitializer(g, LLVMGetUndef(type));
    LLVMSetLinkage(g, LLVMInternalLinkage);
    LLVMSetAlignment(g, 16);
    return g;
}

LLVMValueRef gpu_dynamic_shared(emit *e) {
    LLVMValueRef g = LLVMAddGlobalInAddressSpace(e->mod, LLVMArrayType2(e->t_i8, 0), "operands", SHARED);
    LLVMSetLinkage(g, LLVMExternalLinkage);
    LLVMSetAlignment(g, 1024);
    return g;
}
