/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* codegen.c: kernel description -> LLVM module -> verified -> object -> blob. The module's one entry point.
 *
 * An LLVM context lives for one part of one request: a large kernel's blob is made of several objects, each of a part
 * of its functions (parts.h), by as many threads as the caller lends; all others are one part. Target machines (0.4 ms
 * and more to make) are kept in a few slots that are taken and given back by atomic exchange: never shared by two
 * threads at once, and no lock for a fork to inherit.
 * LLVM's fatal errors end the process, so ir_kernel_verify and check_bitcasts refuse what could cause one. */
#include "jit/debug_info.h"
#include "jit/emit.h"
#include "jit/gpu.h"
#include "jit/link.h"
#include "jit/llvm_compat.h"
#include "jit/parts.h"
#include "ir/codegen_api.h"
#include "base/build_id.h"
#include <llvm-c/Analysis.h>
#include <llvm-c/Disassembler.h>
#include <llvm-c/Support.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define FRAME_MAX "16384" /* bytes of a function's frame: workers may have small stacks */
static const char triple[] = "x86_64-unknown-linux-gnu", gpu_triple[] = "nvptx64-nvidia-cuda";

static fusor_status (*const emit_kind[IR_KERNEL_KIND_COUNT])(emit *, fu_error *) = {
    [IR_KERNEL_MAP] = jit_emit_map,
    [IR_KERNEL_REDUCE] = jit_emit_reduce,
    [IR_KERNEL_ROW] = jit_emit_row,
    [IR_KERNEL_SCAN] = jit_emit_scan,
    [IR_KERNEL_CONTRACT] = jit_emit_contract,
    [IR_KERNEL_WINDOW] = jit_emit_window,
    [IR_KERNEL_ATTENTION] = jit_emit_attention,
};

/* NULL: not on a GPU yet. */
static fusor_status (*const emit_gpu_kind[IR_KERNEL_KIND_COUNT])(emit *, fu_error *) = {
    [IR_KERNEL_MAP] = gpu_emit_map,
    [IR_KERNEL_REDUCE] = gpu_emit_row,
    [IR_KERNEL_ROW] = gpu_emit_row,
    [IR_KERNEL_SCAN] = gpu_emit_scan,
    [IR_KERNEL_CONTRACT] = gpu_emit_contract,
    [IR_KERNEL_WINDOW] = gpu_emit_window,
    [IR_KERNEL_ATTENTION] = gpu_emit_attention,
};

/* What one request holds of LLVM: released in one place, also when memory runs out. */
typedef struct job {
    struct job *other[JIT_MOST_PARTS]; /* of other parts of the kernel */
    fu_arena arena;
    fu_error error;
    const fusor_codegen_request *request;
    fusor_codegen_result *result;
    ir_kernel *kernel;
    LLVMContextRef ctx;
    LLVMModuleRef mod;
    LLVMBuilderRef builder;
    jit_debug debug;
    LLVMTargetMachineRef machine;
    ir_target target; /* of machine */
    LLVMMemoryBufferRef object;
    LLVMDisasmContextRef disasm;
    char *message; /* LLVM's */
    char diagnostic[256];
    bool is_narrow, is_frame_large;
} job;

/* ---- target machines ---- */
enum { SLOTS = 8 };
static _Atomic(LLVMTargetMachineRef) machines[IR_LEVEL_COUNT][1 << IR_FEATURE_COUNT][SLOTS];
static pthread_once_t initialized = PTHREAD_ONCE_INIT;

/* Loop strength reduction takes a tenth of the time of a compilation and more, and changes nothing measurable: the
 * loops made here step their pointers themselves. A jump that crosses or ends at a multiple of 32 bytes is decoded anew
 * each time by CPUs from Skylake to Cascade Lake (Intel's erratum SKX102), so none does. (Cascade Lake, one thread: 7x7
 * of 3 channels 0.85 of the time, 3x3 of 128 channels of 28x28 0.95, 1x1 of 512 of 28x28 0.985; products of f32 and
 * compile time 1.0.) These switches belong to the process: a shared LLVM is left as it is. */
static void set_switches(void) {
#ifdef FUSOR_LLVM_STATIC
    const char *const switches[] = {"fusor", "-disable-lsr", "-x86-branches-within-32B-boundaries"};
    LLVMParseCommandLineOptions((int)(sizeof switches / sizeof *switches), switches, NULL);
#endif
}

static void initialize(void) {
    set_switches();
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86Disassembler();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
}

/* "a,b" -> "+a,+b" */
static const char *feature_list(fu_arena *a, ir_target target) {
    char list[IR_TARGET_FEATURES_MAX];
    const char *features = ir_target_features(target, list);
    fu_str s;
    fu_str_init(&s, a);
    fu_str_addc(&s, '+');
    for (; *features; features++) {
        fu_str_addc(&s, *features);
        if (*features == ',') fu_str_addc(&s, '+');
    }
    return s.at;
}

/* No list of features: LLVM then takes the oldest version of PTX that the target allows, which the most drivers
 * know. */
static fusor_status make_gpu_machine(job *j, ir_target want) {
    LLVMTargetRef target;
    j->target = want;
    if (LLVMGetTargetFromTriple(gpu_triple, &target, &j->message))
        return FU_FAIL(&j->error, FUSOR_ERROR_UNSUPPORTED, "LLVM has no target %s: %s", gpu_triple, j->message);
    j->machine = LLVMCreateTargetMachine(target, gpu_triple, ir_levels[want.level].name, "", LLVMCodeGenLevelDefault,
                                         LLVMRelocDefault, LLVMCodeModelDefault);
    if (!j->machine)
        return FU_FAIL(&j->error, FUSOR_ERROR_UNSUPPORTED, "LLVM makes no code for %s", ir_levels[want.level].name);
    return FUSOR_OK;
}

static fusor_status take_machine(job *j, ir_target want) {
    if (ir_level_is_gpu(want.level)) return make_gpu_machine(j, want);
    for (int i = 0; i < SLOTS && !j->machine; i++)
        j->machine = atomic_exchange(&machines[want.level][want.features][i], NULL);
    j->target = want;
    if (j->machine) return FUSOR_OK;
    const ir_level_info *info = &ir_levels[want.level];
    const char *features = feature_list(&j->arena, want);
    LLVMTargetRef target;
    if (LLVMGetTargetFromTriple(triple, &target, &j->message))
        return FU_FAIL(&j->error, FUSOR_ERROR_UNSUPPORTED, "LLVM has no target %s: %s", triple, j->message);
    j->machine = LLVMCreateTargetMachine(target, triple, info->name, features, LLVMCodeGenLevelDefault, LLVMRelocPIC,
                                         LLVMCodeModelSmall);
    if (!j->machine) return FU_FAIL(&j->error, FUSOR_ERROR_UNSUPPORTED, "LLVM makes no code for %s", info->name);
    return FUSOR_OK;
}

static void give_machine(job *j) {
    for (int i = 0; i < SLOTS && j->machine && !ir_level_is_gpu(j->target.level); i++) {
        LLVMTargetMachineRef none = NULL;
        if (atomic_compare_exchange_strong(&machines[j->target.level][j->target.features][i], &none, j->machine))
            j->machine = NULL;
    }
    if (j->machine) LLVMDisposeTargetMachine(j->machine);
    j->machine = NULL;
}

/* ---- the function ---- */
static fusor_status check_bitcasts(const ir_kernel *k, fu_error *err) {
    for (int n = 0; n < k->n_insts; n++) {
        if (k->inst[n].op != IR_OP_BITCAST) continue;
        const ir_dtype from = k->inst[k->inst[n].in[0]].dtype, t = k->inst[n].dtype;
        if (ir_dtypes[from].bytes != ir_dtypes[t].bytes || ir_is_bool(from) || ir_is_bool(t))
            return FU_FAIL(err, FUSOR_ERROR_INTERNAL, "kernel instruction %%%d: bitcast from %s to %s", n,
                           ir_dtypes[from].name, ir_dtypes[t].name);
    }
    return FUSOR_OK;
}

static LLVMValueRef load_field(emit *e, LLVMTypeRef type, LLVMValueRef base, size_t offset, unsigned align) {
    LLVMValueRef v = LLVMBuildLoad2(e->b, type, em_gep(e, base, e->t_i8, em_i64s(e, (int64_t)offset)), "");
    LLVMSetAlignment(v, align);
    return v;
}

/* The argument block is the ABI of cached kernels. */
#define FIELD(name, offset) _Static_assert(offsetof(ir_kernel_args, name) == (offset), "ABI of kernels")
FIELD(version, 0);
FIELD(phase, 4);
FIELD(tune, 8);
FIELD(buffer, 72);
FIELD(size, 80);
FIELD(stride, 88);
FIELD(scalar, 96);
FIELD(scratch, 104);
FIELD(shared, 112);
FIELD(kept, 120);
#undef FIELD
_Static_assert(sizeof(ir_kernel_args) == 128, "ABI of kernels");

void em_load_args(emit *e, LLVMValueRef args) {
    const ir_kernel *k = e->k;
    e->args = args;
#define FIELD(type, name)                                                                                              \
    load_field(e, type, e->args, offsetof(ir_kernel_args, name), sizeof(((ir_kernel_args *)0)->name))
    e->phase = FIELD(e->t_i32, phase);
    for (int i = 0; i < IR_TUNE_COUNT; i++)
        e->tune[i] = load_field(e, e->t_i64, e->args, offsetof(ir_kernel_args, tune) + 8 * (size_t)i, 8);
    LLVMValueRef buffers = FIELD(e->t_ptr, buffer), sizes = FIELD(e->t_ptr, size);
    LLVMValueRef strides = FIELD(e->t_ptr, stride), scalars = FIELD(e->t_ptr, scalar);
    e->scratch = FIELD(e->t_ptr, scratch);
    e->shared = FIELD(e->t_ptr, shared);
    e->kept = FIELD(e->t_ptr, kept);
#undef FIELD
    for (int d = 0; d < k->n_dims; d++)
        e->size[d] = k->dim[d].size != IR_SIZE_RUNTIME ? em_i64s(e, k->dim[d].size)
                                                       : load_field(e, e->t_i64, sizes, 8 * (size_t)d, 8);
    for (int b = 0; b < k->n_buffers && b < e->whole->n_buffers; b++) {
        e->base[b] = load_field(e, e->t_ptr, buffers, 8 * (size_t)b, 8);
        for (int d = 0; d < k->n_dims; d++) {
            int64_t s = k->buffer[b].stride[d];
            e->stride[b][d] = s != IR_STRIDE_RUNTIME
                                  ? em_i64s(e, s)
                                  : load_field(e, e->t_i64, strides, 8 * (size_t)(b * e->whole->n_dims + d), 8);
        }
    }
    int lanes = e->lanes;
    e->lanes = 1;
    for (int s = 0; s < k->n_scalars; s++) {
        ir_dtype t = k->scalar[s];
        LLVMValueRef v = load_field(e, em_memory_type(e, t), scalars, 8 * (size_t)s, 8); /* little-endian */
        e->scalar[s] = ir_is_bool(t)   ? em_icmp(e, LLVMIntNE, v, LLVMConstInt(e->t_i8, 0, 0))
                       : ir_is_half(t) ? em_half_value(e, t, v)
                                       : v;
    }
    e->lanes = lanes;
}

static void add_attribute(LLVMValueRef fn, LLVMContextRef ctx, const char *name) {
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(ctx, kind, 0));
}

/* optnone on an O2 target machine (FastISel, then the greedy register allocator) halves the time of compilation and
 * gives the same speed where memory is the limit; the register tile of a contraction would run at half its speed. */
static void leave_unoptimized(LLVMValueRef fn, LLVMContextRef ctx) {
    add_attribute(fn, ctx, "optnone");
    add_attribute(fn, ctx, "noinline");
}

void em_leave_unoptimized(emit *e, LLVMValueRef fn) { leave_unoptimized(fn, e->ctx); }

LLVMValueRef em_function(emit *e, const char *name, LLVMTypeRef type, bool is_optimized) {
    LLVMValueRef fn = LLVMAddFunction(e->mod, name, type);
    add_attribute(fn, e->ctx, "nounwind");
    if (!is_optimized) leave_unoptimized(fn, e->ctx);
    LLVMAddTargetDependentFunctionAttr(fn, "warn-stack-size", FRAME_MAX);
    /* A jump table is a table of addresses: it would need relocations that a blob cannot have. */
    LLVMAddTargetDependentFunctionAttr(fn, "no-jump-tables", "true");
    LLVMSetAlignment(fn, JIT_BLOB_ALIGN);
    return fn;
}

static emit *new_emit(job *j) {
    emit *e = FU_NEW(&j->arena, emit);
    e->ctx = j->ctx;
    e->mod = j->mod;
    e->b = j->builder;
    e->whole = j->kernel;
    em_take_program(e, j->kernel);
    e->level = &ir_levels[j->kernel->level];
    e->lanes = 1;
    e->fast_math = j->kernel->fast_math;
    e->is_narrow = j->is_narrow;
    e->arena = &j->arena;
    e->t_void = LLVMVoidTypeInContext(e->ctx);
    e->t_i1 = LLVMInt1TypeInContext(e->ctx);
    e->t_i8 = LLVMInt8TypeInContext(e->ctx);
    e->t_i16 = LLVMInt16TypeInContext(e->ctx);
    e->t_i32 = LLVMInt32TypeInContext(e->ctx);
    e->t_i64 = LLVMInt64TypeInContext(e->ctx);
    e->t_f32 = LLVMFloatTypeInContext(e->ctx);
    e->t_f64 = LLVMDoubleTypeInContext(e->ctx);
    e->t_ptr = LLVMPointerTypeInContext(e->ctx, 0);
    return e;
}

static void take_diagnostic(LLVMDiagnosticInfoRef info, void *user) {
    job *j = user;
    char *text = LLVMGetDiagInfoDescription(info);
    if (strstr(text, "stack frame size")) j->is_frame_large = true; /* a warning */
    else if (LLVMGetDiagInfoSeverity(info) == LLVMDSError && !j->diagnostic[0])
        snprintf(j->diagnostic, sizeof j->diagnostic, "%s", text);
    LLVMDisposeMessage(text);
}

static fusor_status emit_function(job *j) {
    const fusor_codegen_request *r = j->request;
    emit *e = new_emit(j);
    LLVMTypeRef parameters[3] = {e->t_ptr, e->t_i64, e->t_i64};
    if (r->options & FUSOR_CODEGEN_LINES)
        jit_debug_begin(&j->debug, e, r->symbol, r->description, r->description_bytes);
    e->fn = em_function(e, r->symbol, LLVMFunctionType(e->t_i32, parameters, 3, 0), true);
    LLVMPositionBuilderAtEnd(e->b, em_block(e, "entry"));
    e->tile_begin = LLVMGetParam(e->fn, 1);
    e->tile_end = LLVMGetParam(e->fn, 2);
    em_load_args(e, LLVMGetParam(e->fn, 0));
    FU_TRY(emit_kind[j->kernel->kind](e, &j->error));
    if (!LLVMGetBasicBlockTerminator(LLVMGetInsertBlock(e->b))) LLVMBuildRet(e->b, LLVMConstInt(e->t_i32, 0, 0));
    if (!e->is_optimized) leave_unoptimized(e->fn, e->ctx);
    jit_debug_end(&j->debug, e);
    return FUSOR_OK;
}

static fusor_status emit_gpu_function(job *j) {
    const ir_kernel *k = j->kernel;
    if (!emit_gpu_kind[k->kind])
        return FU_FAIL(&j->error, FUSOR_ERROR_UNSUPPORTED, "there is no code for kernels of kind %s on a GPU yet",
                       ir_kernel_kind_names[k->kind]);
    if (8 * ir_gpu_words(k) > IR_GPU_PARAM_MAX)
        return FU_FAIL(&j->error, FUSOR_ERROR_UNSUPPORTED, "%s has %d bytes of parameters; a GPU takes %d",
                       j->request->symbol, 8 * ir_gpu_words(k), IR_GPU_PARAM_MAX);
    emit *e = new_emit(j);
    gpu_begin(e, j->request->symbol);
    FU_TRY(emit_gpu_kind[k->kind](e, &j->error));
    if (k->kind == IR_KERNEL_CONTRACT || k->kind == IR_KERNEL_WINDOW || k->kind == IR_KERNEL_ATTENTION)
        gpu_replace_quotients(e);
    LLVMBuildRetVoid(e->b);
    compat_note_limits(j->mod, e->fn);
    return FUSOR_OK;
}

/* In a text that others follow, each kernel's functions have its name before theirs. */
static void name_locals(job *j) {
    for (LLVMValueRef f = LLVMGetFirstFunction(j->mod); f; f = LLVMGetNextFunction(f)) {
        size_t n;
        if (LLVMGetLinkage(f) != LLVMInternalLinkage && LLVMGetLinkage(f) != LLVMPrivateLinkage) continue;
        const char *own = LLVMGetValueName2(f, &n), *name = fu_format(&j->arena, "%s.%s", j->request->symbol, own);
        LLVMSetValueName2(f, name, strlen(name));
    }
}

static fusor_status build_module(job *j) {
    const fusor_codegen_request *r = j->request;
    j->ctx = LLVMContextCreate();
    LLVMContextSetDiscardValueNames(j->ctx, r->stage != FUSOR_CODEGEN_LLVM);
    LLVMContextSetDiagnosticHandler(j->ctx, take_diagnostic, j);
    j->mod = LLVMModuleCreateWithNameInContext("kernel", j->ctx);
    j->builder = LLVMCreateBuilderInContext(j->ctx);
    LLVMSetTarget(j->mod, ir_level_is_gpu(j->kernel->level) ? gpu_triple : triple);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(j->machine);
    LLVMSetModuleDataLayout(j->mod, layout);
    LLVMDisposeTargetData(layout);

    FU_TRY(ir_level_is_gpu(j->kernel->level) ? emit_gpu_function(j) : emit_function(j));
    if (LLVMVerifyModule(j->mod, LLVMReturnStatusAction, &j->message))
        return FU_FAIL(&j->error, FUSOR_ERROR_INTERNAL, "code generation of %s made wrong LLVM IR: %s", r->symbol,
                       j->message);
    LLVMDisposeMessage(j->message); /* an empty one comes without an error too */
    j->message = NULL;
    if (r->stage == FUSOR_CODEGEN_ASM && !ir_level_is_gpu(j->kernel->level)) name_locals(j);
    return FUSOR_OK;
}

/* ---- stages ---- */
static fusor_status give(job *j, const void *data, size_t bytes) {
    char *p = j->request->allocate(j->request->user, bytes + 1);
    if (!p) return FU_FAIL(&j->error, FUSOR_ERROR_MEMORY, "no memory for %zu bytes of generated code", bytes);
    if (bytes) memcpy(p, data, bytes);
    p[bytes] = 0;
    j->result->data = p;
    j->result->bytes = bytes;
    return FUSOR_OK;
}

static void drop_module(job *j) {
    if (j->object) LLVMDisposeMemoryBuffer(j->object);
    jit_debug_drop(&j->debug);
    if (j->builder) LLVMDisposeBuilder(j->builder);
    if (j->mod) LLVMDisposeModule(j->mod);
    if (j->ctx) LLVMContextDispose(j->ctx);
    j->object = NULL;
    j->builder = NULL;
    j->mod = NULL;
    j->ctx = NULL;
}

static fusor_status compile_once(job *j, LLVMCodeGenFileType type) {
    j->is_frame_large = false;
    bool failed = LLVMTargetMachineEmitToMemoryBuffer(j->machine, j->mod, type, &j->message, &j->object);
    if (failed || j->diagnostic[0])
        return FU_FAIL(&j->error, FUSOR_ERROR_INTERNAL, "LLVM made no code for %s: %s", j->request->symbol,
                       failed ? j->message : j->diagnostic);
    return FUSOR_OK;
}

/* All values of a step are alive before its first store: some hundred outputs do not fit a frame as vectors. */
static fusor_status compile(job *j, LLVMCodeGenFileType type) {
    FU_TRY(compile_once(j, type));
    if (j->is_frame_large && j->kernel->kind == IR_KERNEL_MAP) {
        drop_module(j);
        j->is_narrow = true;
        FU_TRY(build_module(j));
        FU_TRY(compile_once(j, type));
    }
    if (j->is_frame_large)
        return FU_FAIL(&j->error, FUSOR_ERROR_UNSUPPORTED,
                       "%s needs more than " FRAME_MAX " bytes of stack: %d instructions have too many values at once",
                       j->request->symbol, j->kernel->n_insts);
    return FUSOR_OK;
}

/* No place has a name: LLVM writes the offset that a branch goes to, where without this it writes the way there. */
static const char *no_name(void *user, uint64_t value, uint64_t *type, uint64_t pc, const char **name) {
    (void)user, (void)value, (void)pc;
    *type = LLVMDisassembler_ReferenceType_InOut_None;
    *name = NULL;
    return NULL;
}

/* One line an instruction: offset, bytes, text; an int3 of padding ends nothing, bytes that are no instruction are
 * shown as such. */
static fusor_status disassemble(job *j, const uint8_t *code, size_t bytes) {
    const ir_level_info *level = &ir_levels[j->target.level];
    j->disasm =
        LLVMCreateDisasmCPUFeatures(triple, level->name, feature_list(&j->arena, j->target), NULL, 0, NULL, no_name);
    if (!j->disasm) return FU_FAIL(&j->error, FUSOR_ERROR_UNSUPPORTED, "LLVM has no disassembler for %s", level->name);
    LLVMSetDisasmOptions(j->disasm, LLVMDisassembler_Option_PrintImmHex);
    fu_str out;
    fu_str_init(&out, &j->arena);
    for (size_t at = 0; at < bytes;) {
        char text[256] = "";
        size_t n = LLVMDisasmInstruction(j->disasm, (uint8_t *)code + at, bytes - at, at, text, sizeof text);
        fu_str_addf(&out, "%6zx:%s\n", at, n ? text : "\t(bad)");
        at += n ? n : 1;
    }
    return give(j, out.at, out.n);
}

/* ---- parts of a kernel ---- */
/* The first is the request's own job; the others emit the kernel again. */
typedef struct part {
    job *job;
    const job *whole;
    int n, number;
    fusor_status status;
} part;

/* Address space for a request: 1 to 5 MB, kernels of every kind measured. */
enum { REQUEST_ROOM = 16 << 20 };

static fusor_status read_kernel(job *j) {
    const fusor_codegen_request *r = j->request;
    j->kernel = FU_NEW(&j->arena, ir_kernel);
    return ir_kernel_parse(&j->error, r->description, r->description_bytes, j->kernel);
}

static fusor_status compile_other(part *p) {
    job *j = p->job;
    jmp_buf oom;
    fu_arena_init(&j->arena, &oom);
    if (setjmp(oom)) return FU_FAIL(&j->error, FUSOR_ERROR_MEMORY, "no memory for code generation");
    FU_TRY(read_kernel(j));
    FU_TRY(take_machine(j, p->whole->target));
    FU_TRY(build_module(j));
    jit_parts_keep(j->mod, p->n, p->number);
    return compile(j, LLVMObjectFile);
}

static void compile_part(void *parts, int i) {
    part *p = &((part *)parts)[i];
    if (i > 0) {
        p->status = compile_other(p);
        return;
    }
    jit_parts_keep(p->job->mod, p->n, 0);
    p->status = compile(p->job, LLVMObjectFile);
}

static fusor_status compile_parts(job *j, part *parts, int n) {
    const fusor_codegen_request *r = j->request;
    parts[0] = (part){.job = j, .whole = j, .n = n};
    for (int i = 1; i < n; i++) {
        j->other[i] = FU_NEW(&j->arena, job);
        j->other[i]->request = r;
        parts[i] = (part){.job = j->other[i], .whole = j, .n = n, .number = i};
    }
    if (r->run_all) r->run_all(r->user, n, compile_part, parts);
    else
        for (int i = 0; i < n; i++) compile_part(parts, i);
    for (int i = 0; i < n; i++)
        if (parts[i].status != FUSOR_OK) {
            if (i > 0) j->error = parts[i].job->error;
            return parts[i].status;
        }
    return FUSOR_OK;
}

static fusor_status link_object(job *j, jit_blob *blob) {
    int n = j->kernel->kind == IR_KERNEL_MAP ? 1 : jit_parts_count(j->mod); /* maps may be emitted again (compile) */
    if (n > 1 && !fu_has_room((size_t)n * REQUEST_ROOM)) n = 1;
    part parts[JIT_MOST_PARTS] = {{.job = j}};
    jit_object object[JIT_MOST_PARTS];
    FU_TRY(n > 1 ? compile_parts(j, parts, n) : compile(j, LLVMObjectFile));
    for (int i = 0; i < n; i++)
        object[i] = (jit_object){LLVMGetBufferStart(parts[i].job->object), LLVMGetBufferSize(parts[i].job->object)};
    return jit_link(object, n, j->request->symbol, &j->arena, blob, &j->error);
}

static fusor_status give_lines(job *j, const jit_blob *blob) {
    size_t bytes = blob->n_lines * sizeof *blob->lines;
    if (!bytes) return FUSOR_OK;
    j->result->lines = j->request->allocate(j->request->user, bytes);
    if (!j->result->lines) return FU_FAIL(&j->error, FUSOR_ERROR_MEMORY, "no memory for %zu bytes of lines", bytes);
    memcpy(j->result->lines, blob->lines, bytes);
    j->result->lines_bytes = bytes;
    return FUSOR_OK;
}

static fusor_status give_compiled(job *j, LLVMCodeGenFileType type) {
    FU_TRY(compile(j, type));
    return give(j, LLVMGetBufferStart(j->object), LLVMGetBufferSize(j->object));
}

/* The blob of a GPU's kernel is its PTX, with the NUL. */
static fusor_status give_ptx(job *j) {
    FU_TRY(give_compiled(j, LLVMAssemblyFile));
    j->result->code_bytes = j->result->bytes++;
    return FUSOR_OK;
}

static fusor_status run_stage(job *j) {
    jit_blob blob;
    bool is_gpu = ir_level_is_gpu(j->kernel->level);
    switch (j->request->stage) {
    case FUSOR_CODEGEN_LLVM:
        j->message = LLVMPrintModuleToString(j->mod);
        return give(j, j->message, strlen(j->message));
    case FUSOR_CODEGEN_ASM: return give_compiled(j, LLVMAssemblyFile);
    case FUSOR_CODEGEN_OBJECT: return give_compiled(j, LLVMObjectFile);
    case FUSOR_CODEGEN_DISASM:
        if (is_gpu) return give_compiled(j, LLVMAssemblyFile);
        FU_TRY(link_object(j, &blob));
        return disassemble(j, blob.data, blob.code_bytes);
    default:
        if (is_gpu) return give_ptx(j);
        FU_TRY(link_object(j, &blob));
        FU_TRY(give(j, blob.data, blob.bytes));
        FU_TRY(give_lines(j, &blob));
        j->result->entry = blob.entry;
        j->result->code_bytes = blob.code_bytes;
        return FUSOR_OK;
    }
}

static fusor_status run_job(job *j) {
    const fusor_codegen_request *r = j->request;
    if (r->stage > FUSOR_CODEGEN_DISASM)
        return FU_FAIL(&j->error, FUSOR_ERROR_ARGUMENT, "no code generation stage %u; the last is %d", r->stage,
                       FUSOR_CODEGEN_DISASM);
    bool has_blob = r->stage == FUSOR_CODEGEN_DISASM && r->blob;
    if (has_blob && !r->description) { /* instructions of an unknown target: the highest knows all of them */
        j->target = (ir_target){IR_LEVEL_COUNT - 1, ir_level_extras(IR_LEVEL_COUNT - 1)};
        return disassemble(j, r->blob, r->blob_bytes);
    }
    if (!r->description || !r->symbol || !r->symbol[0])
        return FU_FAIL(&j->error, FUSOR_ERROR_ARGUMENT, "code generation needs a description and a symbol");
    FU_TRY(read_kernel(j));
    if (has_blob) {
        j->target = ir_kernel_target(j->kernel);
        if (ir_level_is_gpu(j->target.level)) return give(j, r->blob, strnlen(r->blob, r->blob_bytes));
        return disassemble(j, r->blob, r->blob_bytes);
    }
    FU_TRY(check_bitcasts(j->kernel, &j->error));
    FU_TRY(take_machine(j, ir_kernel_target(j->kernel)));
    FU_TRY(build_module(j));
    return run_stage(j);
}

static void release(job *j) {
    if (j->disasm) LLVMDisasmDispose(j->disasm);
    if (j->message) LLVMDisposeMessage(j->message);
    drop_module(j);
    give_machine(j);
    for (int i = 0; i < JIT_MOST_PARTS; i++)
        if (j->other[i]) release(j->other[i]); /* in the arena */
    fu_arena_free(&j->arena);
}

static int generate(const fusor_codegen_request *request, fusor_codegen_result *result) {
    memset(result, 0, sizeof *result);
    if (request->version != FUSOR_CODEGEN_VERSION) {
        snprintf(result->error, sizeof result->error, "code generation request of version %u; this module has %d",
                 request->version, FUSOR_CODEGEN_VERSION);
        return FUSOR_ERROR_ARGUMENT;
    }
    job *j = fu_has_room(REQUEST_ROOM) ? fu_calloc(1, sizeof *j) : NULL;
    jmp_buf oom;
    fusor_status status = FUSOR_ERROR_MEMORY;
    if (!j) {
        snprintf(result->error, sizeof result->error, "no memory for code generation");
        return FUSOR_ERROR_MEMORY;
    }
    j->request = request;
    j->result = result;
    fu_arena_init(&j->arena, &oom);
    if (setjmp(oom) == 0) status = run_job(j);
    else status = FU_FAIL(&j->error, FUSOR_ERROR_MEMORY, "no memory for code generation");
    if (status != FUSOR_OK)
        snprintf(result->error, sizeof result->error, "%.*s", (int)sizeof result->error - 1, j->error.text);
    release(j);
    fu_free(j);
    return (int)status;
}

__attribute__((visibility("default"))) const fusor_codegen_table *fusor_codegen_module(void);
/* Who asks for the table holds a lock that no fork comes between (src/rt/compiler.c). So LLVM's registries, which it
 * fills under locks of its own, are filled here: a child forked in the middle of it would wait for ever. */
const fusor_codegen_table *fusor_codegen_module(void) {
    pthread_once(&initialized, initialize);
    static const fusor_codegen_table table = {FUSOR_CODEGEN_VERSION, FUSOR_BUILD_ID, FUSOR_LLVM_VERSION, generate};
    return &table;
}
