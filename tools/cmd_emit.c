/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cmd_emit.c: fusor emit. What each step of the pipeline made, as text that later steps (or the system's tools)
 * read. */
#include "export.h"
#include "inputs.h"
#include "report.h"
#include "base/file.h"
#include "ir/codegen_api.h"
#include "ir/pass.h"
#include "rt/cpuinfo.h"
#include "rt/compiler.h"
#include <ctype.h>
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef enum emit_stage {
    EMIT_IR,
    EMIT_OPT,
    EMIT_PLAN,
    EMIT_LLVM,
    EMIT_ASM,
    EMIT_OBJ,
    EMIT_HEADER,
    EMIT_PTX,
    EMIT_CUBIN,
    EMIT_STAGES
} emit_stage;
static const char *const stage_names[EMIT_STAGES] = {"ir",  "opt",    "plan", "llvm", "asm",
                                                     "obj", "header", "ptx",  "cubin"};
#define STAGES "ir, opt, plan, llvm, asm, obj, header, ptx or cubin"

static void *allocate(void *user, size_t bytes) {
    (void)user;
    return malloc(bytes ? bytes : 1);
}

static int write_out(tool *t, const void *data, size_t bytes) {
    if (t->outputs.n == 0 || strcmp(t->outputs.at[0], "-") == 0) {
        (void)fwrite(data, 1, bytes, stdout);
        return 0;
    }
    fu_part part = {data, bytes};
    int why = fu_file_write(t->outputs.at[0], &part, 1);
    return why ? tool_environment(t, "%s: %s", t->outputs.at[0], strerror(why)) : 0;
}

/* The kernel that --kernel names by its number; -1: it names none so. */
static int chosen_number(const tool *t, int n_kernels) {
    const size_t n = t->kernel ? strspn(t->kernel, "0123456789") : 0;
    if (!n || t->kernel[n] || n > 9) return -1;
    const int number = atoi(t->kernel);
    return number < n_kernels ? number : -1;
}

static bool is_chosen(const tool *t, const export_kernel *k, int number, int chosen) {
    if (!t->kernel) return true;
    if (chosen >= 0) return number == chosen;
    return strncmp(k->symbol, t->kernel, strlen(t->kernel)) == 0 || strncmp(k->key, t->kernel, strlen(t->kernel)) == 0;
}

/* The different kernels of a plan that --kernel takes. 0, or the exit status. A function of copies alone has none and
 * can be exported all the same: the header copies. */
static int find_kernels(tool *t, const ir_plan *plan, bool is_export, export_kernels *out) {
    int number = 0, n_kernels = 0;
    bool has_reference = false;
    for (uint32_t i = 0; i < plan->steps.n; i++) n_kernels += plan->steps.at[i].kind == IR_STEP_KERNEL;
    const int chosen = chosen_number(t, n_kernels);
    for (uint32_t i = 0; i < plan->steps.n; i++) {
        has_reference |= plan->steps.at[i].kind == IR_STEP_REFERENCE;
        if (plan->steps.at[i].kind != IR_STEP_KERNEL) continue;
        export_kernel k = {.k = plan->steps.at[i].kernel};
        uint8_t key[IR_KEY_BYTES];
        fu_str_init(&k.text, &t->arena);
        ir_kernel_print(&k.text, k.k);
        ir_kernel_key(k.text.at, k.text.n, rt_build_id(), key);
        ir_kernel_symbol(k.k, key, k.symbol);
        for (int b = 0; b < IR_KEY_BYTES; b++) snprintf(k.key + 2 * b, 3, "%02x", key[b]);
        bool is_new = true;
        for (uint32_t j = 0; j < out->n; j++) is_new &= strcmp(out->at[j].key, k.key) != 0;
        if (is_new && is_chosen(t, &k, number, chosen)) fu_push(&t->arena, out, k);
        number++;
    }
    if (number == 0 && ir_level_is_gpu(plan->options.level))
        return tool_environment(
            t, "@%s has no kernel for %s: its operators have none on a GPU (doc/gpu.md; see --stage plan)",
            plan->graph->name, ir_levels[plan->options.level].name);
    if (number == 0 && !t->kernel && is_export && !has_reference) return 0;
    if (number == 0)
        return tool_usage(t, "@%s has no kernel: its plan is %s (see --stage plan)", plan->graph->name,
                          has_reference ? "copies and reference steps" : "copies alone");
    if (out->n == 0)
        return tool_usage(t, "--kernel %s: no kernel of @%s has this symbol, key or number (see fusor explain)",
                          t->kernel, plan->graph->name);
    return 0;
}

static int generate_one(tool *t, const fusor_codegen_table *module, const export_kernel *k, fusor_codegen_stage stage,
                        fusor_codegen_result *result) {
    fu_error e;
    fu_error_clear(&e);
    fusor_codegen_request request = {.version = FUSOR_CODEGEN_VERSION,
                                     .stage = stage,
                                     .description = k->text.at,
                                     .description_bytes = k->text.n,
                                     .symbol = k->symbol,
                                     .allocate = allocate};
    *result = (fusor_codegen_result){0};
    int status = module->generate(&request, result);
    if (!status) return 0;
    (void)FU_FAIL(&e, (fusor_status)status, "kernel %s: %s", k->symbol, result->error);
    free(result->data);
    return tool_fail(t, &e);
}

/* All kernels of the function as one object; --kernel: LLVM's own object of one. */
static int write_object(tool *t, const fusor_codegen_table *module, const export_kernels *kernels) {
    export_blob *blob = FU_NEW_N(&t->arena, export_blob, kernels->n + 1);
    fu_str out;
    fu_str_init(&out, &t->arena);
    for (uint32_t i = 0; i < kernels->n; i++) {
        fusor_codegen_result r;
        int status = generate_one(t, module, &kernels->at[i], FUSOR_CODEGEN_BLOB, &r);
        if (status) return status;
        blob[i] =
            (export_blob){kernels->at[i].symbol, fu_dup(&t->arena, r.data, r.bytes), r.bytes, r.entry, r.code_bytes};
        free(r.data);
    }
    export_object(&out, blob, kernels->n);
    return write_out(t, out.at, out.n);
}

/* What ptxas makes of PTX. Its own messages go to stderr. */
static int assemble(tool *t, const char *ptx, size_t bytes, const char *gpu) {
    char dir[] = "/tmp/fusor-ptx-XXXXXX";
    if (!mkdtemp(dir)) return tool_environment(t, "%s: %s", dir, strerror(errno));
    char *from = fu_format(&t->arena, "%s/kernel.ptx", dir), *to = fu_format(&t->arena, "%s/kernel.cubin", dir),
         *arch = fu_format(&t->arena, "-arch=%s", gpu);
    char *argv[] = {"ptxas", arch, "-o", to, from, NULL};
    fu_part part = {ptx, bytes};
    void *cubin = NULL;
    size_t cubin_bytes;
    pid_t pid;
    int how = 0, status = 0, why = fu_file_write_atomic(from, 0600, &part, 1);
    if (!why) why = posix_spawnp(&pid, "ptxas", NULL, NULL, argv, environ);
    if (why) {
        status = tool_environment(t, "--stage cubin needs ptxas, an assembler of the CUDA toolkit: %s", strerror(why));
    } else {
        while (waitpid(pid, &how, 0) < 0 && errno == EINTR) continue;
        if (how != 0)
            status = tool_environment(
                t, "ptxas %s failed%s", arch,
                strcmp(gpu, "sm_70") == 0 ? " (toolkits from CUDA 13 on know nothing before sm_75)" : "");
        else if ((why = fu_file_read(to, SIZE_MAX, &cubin, &cubin_bytes)) != 0)
            status = tool_environment(t, "%s: %s", to, strerror(why));
        else status = write_out(t, cubin, cubin_bytes);
        fu_free(cubin);
    }
    (void)unlink(from);
    (void)unlink(to);
    (void)rmdir(dir);
    return status;
}

/* Kernels that follow each other in one text have the same local labels; a number tells those of the later ones. */
static void add_assembly(fu_str *out, const char *text, size_t n, uint32_t number) {
    for (size_t i = 0, word = 0; i < n; i++) {
        const bool is_label = number && !word && n - i > 1 && text[i] == '.' && text[i + 1] == 'L';
        word = isalnum((unsigned char)text[i]) || strchr("_.$", text[i]);
        if (is_label) fu_str_addf(out, ".L%u", number), i++;
        else fu_str_addc(out, text[i]);
    }
}

static int generate(tool *t, const ir_plan *plan, emit_stage stage_wanted) {
    fusor_codegen_stage stage = stage_wanted == EMIT_LLVM  ? FUSOR_CODEGEN_LLVM
                                : stage_wanted == EMIT_OBJ ? FUSOR_CODEGEN_OBJECT
                                                           : FUSOR_CODEGEN_ASM;

    fu_error e;
    fu_error_clear(&e);
    const fusor_codegen_table *module;
    export_kernels kernels = {0};
    int status = find_kernels(t, plan, stage == FUSOR_CODEGEN_OBJECT, &kernels);
    if (status) return status;
    if (stage_wanted == EMIT_CUBIN && t->outputs.n == 0)
        return tool_usage(t, "--stage cubin: a cubin is no text; give -o FILE (or -o -)");
    if (stage_wanted == EMIT_CUBIN && kernels.n > 1)
        return tool_usage(t, "--stage cubin: @%s has %u kernels; choose one with --kernel (see fusor explain)",
                          plan->graph->name, kernels.n);
    if (stage == FUSOR_CODEGEN_OBJECT && t->kernel && kernels.n > 1) {
        fu_str names;
        fu_str_init(&names, &t->arena);
        for (uint32_t i = 0; i < kernels.n; i++) fu_str_addf(&names, "\n  --kernel %s", kernels.at[i].key);
        return tool_usage(t, "--kernel %s: %u kernels of @%s start so; choose:%s", t->kernel, kernels.n,
                          plan->graph->name, names.at);
    }
    if (stage == FUSOR_CODEGEN_OBJECT && t->outputs.n == 0)
        return tool_usage(t, "--stage obj: an object file is no text; give -o FILE (or -o -)");
    if (rt_module_get(&e, &module) != FUSOR_OK) return tool_fail(t, &e);
    if (stage == FUSOR_CODEGEN_OBJECT && !t->kernel) return write_object(t, module, &kernels);
    fu_str all;
    fu_str_init(&all, &t->arena);
    for (uint32_t i = 0; i < kernels.n; i++) {
        fusor_codegen_result result;
        if ((status = generate_one(t, module, &kernels.at[i], stage, &result)) != 0) return status;
        if (stage_wanted == EMIT_ASM) add_assembly(&all, result.data, result.bytes, i);
        else fu_str_addn(&all, result.data, result.bytes);
        free(result.data);
        if (stage != FUSOR_CODEGEN_OBJECT && all.n && all.at[all.n - 1] != '\n') fu_str_addc(&all, '\n');
    }
    if (stage_wanted == EMIT_CUBIN) return assemble(t, all.at, all.n, ir_levels[plan->options.level].name);
    return write_out(t, all.at, all.n);
}

/* A GPU's stages need a GPU's target, sm_80 where none is given; the others a CPU's. */
static int choose_target(tool *t, emit_stage stage, ir_target *out) {
    bool wants_gpu = stage == EMIT_PTX || stage == EMIT_CUBIN;
    int status = tool_target(t, out);
    if (status) return status;
    bool is_gpu = ir_level_is_gpu(out->level);
    if (wants_gpu && !is_gpu && t->target)
        return tool_usage(t, "--stage %s is for a GPU; --target %s is a CPU (expected sm_70, sm_80 or sm_90a)",
                          t->stage, t->target);
    if (wants_gpu && !is_gpu) *out = (ir_target){IR_LEVEL_SM80, 0};
    if (is_gpu && (stage == EMIT_ASM || stage == EMIT_OBJ || stage == EMIT_HEADER))
        return tool_usage(t, "--stage %s is for a CPU; for %s there are ptx and cubin", t->stage,
                          t->target ? t->target : "a GPU");
    return 0;
}

int cmd_emit(tool *t) {
    program p;
    uint32_t used;
    int stage = 0, status;
    ir_graph *function, *graph;
    fu_error e;
    fu_error_clear(&e);
    if (!t->stage) return tool_usage(t, "which stage? give --stage " STAGES);
    while (stage < EMIT_STAGES && strcmp(t->stage, stage_names[stage]) != 0) stage++;
    if (stage == EMIT_STAGES)
        return tool_usage(t, "--stage %s: expected " STAGES "%s", t->stage,
                          tool_suggest(t, t->stage, stage_names, EMIT_STAGES, ""));
    if (t->outputs.n > 1) return tool_usage(t, "-o is given %u times; expected one file", t->outputs.n);
    if (t->kernel && (stage == EMIT_IR || stage == EMIT_OPT || stage == EMIT_PLAN || stage == EMIT_HEADER))
        return tool_usage(t, "--stage %s is of all kernels; --kernel is for llvm, asm, obj, ptx and cubin", t->stage);
    if ((status = program_load(t, &p, &used)) != 0) return status;
    fu_str out;
    fu_str_init(&out, &t->arena);
    if (stage == EMIT_IR) {
        if (used < t->args.n && (status = program_function(t, &p, used, &function, &graph)) != 0) return status;
        if (used < t->args.n) return tool_usage(t, "argument '%s' was not expected", t->args.at[used]);
        ir_print_module(&out, p.module);
        return write_out(t, out.at, out.n);
    }
    if ((status = program_function(t, &p, used, &function, &graph)) != 0) return status;
    if (used < t->args.n) return tool_usage(t, "argument '%s' was not expected", t->args.at[used]);
    inputs in = {0};
    if ((status = inputs_dims(t, graph, &in)) != 0) return status;
    const bool is_exported = stage == EMIT_OBJ || stage == EMIT_HEADER; /* leaves sizes out that a run refuses */
    if (!is_exported && (status = inputs_check_dims(t, graph, &in)) != 0) return status;
    ir_plan_options options = {.no_fuse = t->no_fuse,
                               .fast_math = t->math && strcmp(t->math, "fast") == 0,
                               .reference = t->device && strcmp(t->device, "reference") == 0};
    ir_target target;
    if ((status = choose_target(t, (emit_stage)stage, &target)) != 0) return status;
    options.level = target.level;
    options.features = target.features;
    const ir_graph *written = graph;
    if (ir_normalize(&t->arena, &e, &graph, &options) != FUSOR_OK) return tool_fail(t, &e);
    if (stage == EMIT_OPT) {
        fu_str_add(&out, "fusor 1\n");
        ir_print_graph(&out, graph);
        return write_out(t, out.at, out.n);
    }
    ir_plan *plan;
    if (ir_plan_make(&t->arena, &e, graph, &options, &plan) != FUSOR_OK) return tool_fail(t, &e);
    if (stage == EMIT_PLAN) {
        ir_plan_print(&out, plan);
        return write_out(t, out.at, out.n);
    }
    if (stage == EMIT_HEADER) {
        export_kernels kernels = {0};
        if ((status = find_kernels(t, plan, true, &kernels)) != 0 ||
            (status = export_header(t, written, plan, &kernels, &out)) != 0)
            return status;
        return write_out(t, out.at, out.n);
    }
    return generate(t, plan, (emit_stage)stage);
}
