/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* dump.c: FUSOR_DEBUG=ir,plan,key,llvm,asm and FUSOR_VERBOSE=dispatch,compile: what a compile made, for people who
 * debug it, and the command that compiles it again. */
#include "dump.h"
#include "base/env.h"
#include "rt/compiler.h"

static void *allocate(void *user, size_t bytes) { return fu_alloc(user, bytes); }

static void dump_code(fu_arena *a, const ir_kernel *k, const char *stage, fusor_codegen_stage number) {
    const fusor_codegen_table *module = NULL;
    fu_error *e = FU_NEW(a, fu_error);
    uint8_t key[IR_KEY_BYTES];
    char symbol[IR_SYMBOL_MAX];
    fu_str text;
    if (!fu_dump_on(stage) || rt_module_get(e, &module) != FUSOR_OK) return;
    fu_str_init(&text, a);
    ir_kernel_print(&text, k);
    ir_kernel_key(text.at, text.n, rt_build_id(), key);
    ir_kernel_symbol(k, key, symbol);
    fusor_codegen_request request = {.version = FUSOR_CODEGEN_VERSION,
                                     .stage = number,
                                     .description = text.at,
                                     .description_bytes = text.n,
                                     .symbol = symbol,
                                     .allocate = allocate,
                                     .user = a};
    fusor_codegen_result *result = FU_NEW(a, fusor_codegen_result);
    fu_dump(stage, symbol, module->generate(&request, result) == 0 ? result->data : result->error);
}

void dump_module(fu_arena *a, const ir_module *m) {
    fu_str text;
    if (!fu_dump_on("ir")) return;
    fu_str_init(&text, a);
    ir_print_module(&text, m);
    fu_dump("ir", "module", text.at);
}

void dump_plan(fu_arena *a, const fu_log *log, const ir_plan *plan) {
    fu_str text;
    if (fu_dump_on("plan")) {
        fu_str_init(&text, a);
        ir_plan_print(&text, plan);
        fu_dump("plan", plan->graph->name, text.at);
    }
    for (uint32_t i = 0; i < plan->boundaries.n && fu_log_on("dispatch"); i++) {
        const ir_boundary *b = &plan->boundaries.at[i];
        fu_log_event(log, "dispatch", "%s,%d,%d,%s", plan->graph->name, b->from, b->to, ir_reason_names[b->reason]);
    }
    for (uint32_t i = 0; i < plan->steps.n; i++) {
        const ir_kernel *k = plan->steps.at[i].kernel;
        if (!k) continue;
        if (fu_dump_on("key")) {
            uint8_t key[IR_KEY_BYTES];
            char symbol[IR_SYMBOL_MAX];
            fu_str_init(&text, a);
            ir_kernel_print(&text, k);
            ir_kernel_key(text.at, text.n, rt_build_id(), key);
            ir_kernel_symbol(k, key, symbol);
            fu_dump("key", symbol, text.at);
        }
        dump_code(a, k, "llvm", FUSOR_CODEGEN_LLVM);
        dump_code(a, k, "asm", FUSOR_CODEGEN_ASM);
    }
}

const char *dump_replay(fu_arena *a, const ir_graph *flat, const ir_plan_options *options) {
    enum { LONGEST = 3500 }; /* an event is one line of 4 KB */
    fu_str program, command;
    char target[IR_TARGET_MAX];
    if (!fu_log_on("compile")) return NULL;
    fu_str_init(&program, a);
    fu_str_init(&command, a);
    ir_print_graph(&program, flat);
    ir_target_name((ir_target){options->level, options->features}, target);
    const char *dir = fu_env_string(FU_FUSOR_DUMP_DIR);
    fu_str_add(&command, "fusor cache warm ");
    if (program.n < LONGEST) {
        fu_str_add(&command, "-e '");
        for (const char *p = program.at; *p; p++) {
            if (*p == '\'') fu_str_add(&command, "'\\''");
            else fu_str_addc(&command, *p == '\n' ? ' ' : *p);
        }
        fu_str_addc(&command, '\'');
    } else if (*dir) {
        fu_dump("replay", flat->name, program.at);
        fu_str_addf(&command, "%s/%s.replay", dir, flat->name);
    } else {
        return fu_format(a, "@%s is too long for a line: set FUSOR_DUMP_DIR to have it in a file", flat->name);
    }
    fu_str_addf(&command, " --target %s --cache refresh%s%s", target, options->no_fuse ? " --no-fuse" : "",
                options->fast_math ? " --math fast" : "");
    return command.at;
}
