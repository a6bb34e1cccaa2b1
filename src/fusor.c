/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* fusor.c: the pipeline. Text or graph in, executable out; each step is a function of the layer that owns it.
 *
 *   ir_parse         text -> module               src/ir/parse.c, graph.c, infer.c
 *   ir_flatten       calls inlined                src/ir/flatten.c
 *   ir_normalize     normalized graph             src/ir/pass.c: (fused plans) attention in primitives recognized;
 *                                                 expand, fold, simplify, cse, dce
 *   ir_plan_make     kernels and buffers          src/ir/plan.c, plan_cluster.c, plan_build.c
 *   rt_exec_new      every kernel found or made   src/rt/exec_kernels.c -> cache.c -> loader.c; on a miss compiler.c
 *                                                 -> src/jit/codegen.c
 *   rt_exec_call     run                          src/rt/exec.c -> threads.c
 */
#include "base/small.h"
#include "auto.h"
#include "context.h"
#include "dump.h"
#include "base/hash.h"
#include "ir/pass.h"
#include "ref/interp.h"
#include "rt/cpuinfo.h"
#include "sources.h"
#include "rt/trace.h"
#include "start.h"

_Static_assert(sizeof(rt_tensor) == sizeof(ref_tensor) && offsetof(rt_tensor, data) == offsetof(ref_tensor, data),
               "one layout");

/* The module in the plan's own arena: the plan keeps names and places, and outlives the module that it was made
 * from. */
static ir_module *copy_module(fu_arena *arena, fu_error *e, const ir_module *from) {
    ir_module *to = FU_NEW(arena, ir_module);
    const fu_source *source = &from->source;
    to->arena = arena;
    to->source = (fu_source){source->name ? fu_strdup(arena, source->name) : NULL, NULL, source->length};
    if (source->text) to->source.text = fu_dup(arena, source->text, source->length);
    for (uint32_t i = 0; i < from->functions.n; i++) {
        ir_graph *g = ir_graph_copy_live(arena, from->functions.at[i]);
        g->error = e;
        if (g->source) g->source = &to->source;
        fu_push(arena, &to->functions, g);
    }
    return to;
}

static fusor_status find_function(fu_arena *arena, fu_error *e, const compile_request *r, ir_module **module,
                                  ir_graph **out) {
    if (r->module) *module = copy_module(arena, e, r->module);
    else FU_TRY(ir_parse(arena, e, r->name, r->text, r->length, module));
    const char *name = r->function && *r->function == '@' ? r->function + 1 : r->function; /* as the language has it */
    *out = ir_module_find(*module, name);
    if (*out) return FUSOR_OK;
    if (!r->function)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT,
                       "%s:1:1: error: the module has no function; expected 'func @name(...) -> ... { ... }'",
                       (*module)->source.name);
    return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s: no function '@%s'; the first one is '@%s'", (*module)->source.name,
                   name, (*module)->functions.n ? (*module)->functions.at[0]->name : "(none)");
}

static fusor_status plan_options(fu_error *e, const compile_request *r, ir_plan_options *out) {
    const fusor_context *ctx = r->ctx;
    *out = (ir_plan_options){.level = ctx->level,
                             .features = ctx->features,
                             .no_fuse = (r->flags & FUSOR_NO_FUSE) != 0,
                             .fast_math = (ctx->flags & FUSOR_FAST_MATH) != 0,
                             .reference = ctx->is_reference};
    if (r->target) {
        ir_target target;
        FU_TRY(ir_target_parse(e, r->target, &target));
        out->level = target.level;
        out->features = target.features;
    } else if (ctx->option_status == FUSOR_ERROR_ARGUMENT || (!ctx->has_level && !ctx->is_reference)) {
        return FU_FAIL(e, ctx->option_status, "%s", ctx->option_error);
    }
    return FUSOR_OK;
}

/* ---- what a trace shows of a compile ---- */
typedef struct stages {
    rt_trace *trace;
    int64_t begin;
} stages;
static stages begin_stages(const compile_request *r) {
    rt_trace *trace = rt_trace_of(&r->ctx->profile);
    return (stages){trace, trace ? fu_now_ns() : 0};
}
static void end_stage(stages *s, const char *name) {
    if (!s->trace) return;
    const int64_t now = fu_now_ns();
    rt_trace_add(s->trace, RT_EVENT_STAGE, name, s->begin, now);
    s->begin = now;
}

/* *replay_out (may be NULL): the command that compiles it again, while compiles are logged; else NULL. */
static fusor_status make_plan(fu_arena *arena, fu_error *e, const compile_request *r, ir_plan **out,
                              const char **replay_out) {
    ir_module *module;
    ir_graph *function, *graph;
    ir_plan_options options;
    stages s = begin_stages(r);
    FU_TRY(plan_options(e, r, &options));
    FU_TRY(find_function(arena, e, r, &module, &function));
    dump_module(arena, module);
    end_stage(&s, r->module ? "module" : "parse");
    FU_TRY(ir_flatten(arena, e, module, function, &graph));
    end_stage(&s, "flatten");
    if (replay_out) *replay_out = dump_replay(arena, graph, &options);
    FU_TRY(ir_normalize(arena, e, &graph, &options));
    end_stage(&s, "passes");
    FU_TRY(ir_plan_make(arena, e, graph, &options, out));
    end_stage(&s, "plan");
    dump_plan(arena, &r->ctx->log, *out);
    return FUSOR_OK;
}

fusor_status compile_plan(fu_arena *arena, fu_error *e, const compile_request *r, ir_plan **out) {
    return make_plan(arena, e, r, out, NULL);
}

static void log_replay(const compile_request *r, const rt_exec *exec, const char *command) {
    const ir_plan *plan = rt_exec_plan(exec);
    bool is_compiled = false;
    for (uint32_t i = 0; command && i < plan->steps.n; i++)
        is_compiled |=
            plan->steps.at[i].kind == IR_STEP_KERNEL && rt_exec_step(exec, (int)i)->outcome.source == RT_CACHE_COMPILED;
    if (is_compiled) fu_log_event(&r->ctx->log, "compile", "replay,%s", command);
}

static fusor_status reference_node(const ir_graph *g, fu_error *e, const ir_node *n, const rt_tensor *in,
                                   rt_tensor *out, const int64_t *symbols) {
    return ref_eval_node(g, e, n, (const ref_tensor *)in, (ref_tensor *)out, symbols);
}

/* Where kernels cannot be had (no module, no executable memory, or a miss that may not compile) the reference evaluator
 * serves. */
static bool falls_back(const fusor_context *ctx, fusor_status status) {
    return status == FUSOR_ERROR_UNSUPPORTED || (status == FUSOR_ERROR_MISS && (ctx->flags & FUSOR_REFERENCE_ON_MISS));
}

bool compile_holds(rt_cache *cache, const ir_plan *p, bool in_tiers_only) {
    for (uint32_t i = 0; i < p->steps.n; i++)
        if (p->steps.at[i].kind == IR_STEP_KERNEL && !rt_cache_holds(cache, p->steps.at[i].kernel, in_tiers_only, NULL))
            return false;
    return true;
}

/* The set without the feature that stands last in feature.def, the latest one. */
static ir_features without_last(ir_features f) {
    ir_features last = 1;
    while (f >> 1 >= last) last <<= 1;
    return f & ~last;
}

/* A hit for every kernel; else there is a warning of the first bad entry. */
static bool is_intact(fu_arena *arena, fu_error *e, const compile_request *r, const ir_plan *p) {
    rt_cache_answer *a = fu_alloc(arena, sizeof *a);
    for (uint32_t i = 0; i < p->steps.n; i++) {
        if (p->steps.at[i].kind != IR_STEP_KERNEL) continue;
        if (rt_cache_why(r->ctx->cache, e, p->steps.at[i].kernel, a) == FUSOR_OK && a->is_hit) continue;
        fu_error_clear(e);
        if (a->problem[0] && a->reason != RT_MISS_NO_LINES)
            fu_log_warn(&r->ctx->log, "cache entry %s/%s.fk: %s; it is ignored", a->where, a->key, a->problem);
        return false;
    }
    return true;
}

void compile_choose_held(fu_arena *arena, fu_error *e, const compile_request *r, ir_plan **plan) {
    ir_plan_options options = (*plan)->options;
    if (r->target || r->ctx->is_level_given || options.reference || ir_level_is_gpu(options.level) ||
        !rt_cache_has_tiers(r->ctx->cache) || compile_holds(r->ctx->cache, *plan, false))
        return;
    for (int level = (int)options.level; level >= 0; level--) {
        ir_target target = {(ir_level)level, rt_host_extras((ir_level)level)};
        for (bool is_last = false; !is_last; target.features = without_last(target.features)) {
            ir_plan *lower;
            char name[IR_TARGET_MAX];
            is_last = !target.features;
            if (target.level == (*plan)->options.level && target.features == (*plan)->options.features) continue;
            options.level = target.level;
            options.features = target.features;
            if (ir_plan_make(arena, e, (*plan)->graph, &options, &lower) != FUSOR_OK) {
                fu_error_clear(e);
                return;
            }
            if (!compile_holds(r->ctx->cache, lower, true)) continue;
            if (!is_intact(arena, e, r, lower)) return;
            fu_log_event(&r->ctx->log, "dispatch", "@%s,level,%s", lower->graph->name, ir_target_name(target, name));
            *plan = lower;
            return;
        }
    }
}

/* *is_interim_out: unfused, while the fused kernels are not there (start.c). */
static fusor_status make_exec(fu_arena *arena, fu_error *e, const compile_request *r, ir_plan *plan, rt_exec **out,
                              bool *is_interim_out) {
    rt_exec_options options = r->ctx->exec;
    options.reference = reference_node;
    options.log = &r->ctx->log;
    compile_choose_held(arena, e, r, &plan);
    *is_interim_out = r->start != START_NEVER && start_unfused(arena, e, r, plan, &options, out);
    if (*is_interim_out) return FUSOR_OK;
    fusor_status status = rt_exec_new(e, arena, plan, r->ctx->cache, &options, out);
    if (!falls_back(r->ctx, status)) return status;
    fu_log_warn(&r->ctx->log, "the reference evaluator serves @%s: %s", plan->graph->name, e->text);
    fu_error_clear(e);
    ir_plan_options reference = plan->options;
    reference.reference = true;
    FU_TRY(ir_plan_make(arena, e, plan->graph, &reference, &plan));
    return rt_exec_new(e, arena, plan, r->ctx->cache, &options, out);
}

/* A copy of the graph that a normalized one was made of, with what it borrows. */
static ir_graph *copy_as_written(fu_arena *arena, fu_error *e, const ir_graph *from) {
    if (from->as_written) from = from->as_written;
    ir_graph *g = ir_graph_copy_live(arena, from);
    g->arena = arena;
    g->error = e;
    if (from->source) {
        fu_source *source = FU_NEW(arena, fu_source);
        *source = *from->source;
        if (source->name) source->name = fu_strdup(arena, source->name);
        if (source->text) source->text = fu_dup(arena, source->text, source->length);
        g->source = source;
    }
    return g;
}

fusor_status compile_for_gpu(fusor_context *ctx, fu_error *e, const rt_exec *cpu, rt_exec **out) {
    const ir_plan *from = rt_exec_plan(cpu);
    FU_CALL_ARENA(arena, return FU_FAIL(e, FUSOR_ERROR_MEMORY, "out of memory while compiling"));
    ir_plan *plan = NULL;
    ir_plan_options options = from->options;
    options.level = ctx->gpu_target.level;
    options.features = ctx->gpu_target.features;
    rt_exec_options run = ctx->exec;
    run.reference = reference_node;
    run.log = &ctx->log;
    run.queue = ctx->queue;
    ir_graph *graph = copy_as_written(&arena, e, from->graph);
    fusor_status status = ir_normalize(&arena, e, &graph, &options);
    if (status == FUSOR_OK) status = ir_plan_make(&arena, e, graph, &options, &plan);
    if (status == FUSOR_OK) status = rt_exec_new(e, &arena, plan, ctx->cache, &run, out);
    if (status != FUSOR_OK) fu_arena_free(&arena);
    return status;
}

/* Both sides of an executable of "auto" get the parameters that have sources; without any the GPU's waits until it is
 * chosen. */
static auto_choice *start_auto(fu_error *e, const compile_request *r, const rt_exec *exec, const char *program) {
    const ir_graph *g = rt_exec_plan(exec)->graph;
    rt_exec *gpu = NULL, *bound = NULL;
    bool has_sources = false;
    for (uint32_t i = 0; i < g->params.n && !(r->flags & FUSOR_KEEP_SOURCES); i++)
        has_sources |= g->params.at[i].path != NULL;
    if (!has_sources) return auto_new(NULL);
    if (compile_for_gpu(r->ctx, e, exec, &gpu) == FUSOR_OK && sources_bind(e, gpu, program, &bound) == FUSOR_OK) {
        rt_exec_release(gpu);
        return auto_new(bound);
    }
    rt_exec_release(gpu);
    fu_error_clear(e);
    return NULL; /* the CPU alone */
}

static uint64_t hash_program(fu_arena *arena, const ir_graph *g) {
    fu_str text;
    fu_str_init(&text, arena);
    ir_print_graph(&text, g);
    return fu_hash(text.at, text.n, 0);
}

static fusor_status compile_program(fu_error *e, const compile_request *r, fusor_executable **out) {
    rt_exec *volatile exec = NULL;
    rt_exec *made = NULL;
    ir_plan *plan = NULL;
    const char *replay = NULL;
    bool is_interim = false;
    FU_CALL_ARENA(arena, return FU_FAIL(e, FUSOR_ERROR_MEMORY, "out of memory while compiling"));
    fusor_status status = make_plan(&arena, e, r, &plan, &replay);
    if (status == FUSOR_OK && r->target && ir_level_is_gpu(plan->options.level))
        status = FU_FAIL(e, FUSOR_ERROR_DEVICE,
                         "target '%s' is a GPU's: it is for making kernels (fusor cache warm, fusor emit); to run on a "
                         "GPU, choose the device",
                         r->target);
    const uint64_t program = status == FUSOR_OK && r->ctx->is_auto ? hash_program(&arena, plan->graph) : 0;
    if (status == FUSOR_OK) status = make_exec(&arena, e, r, plan, &made, &is_interim);
    if (status == FUSOR_OK) log_replay(r, made, replay);
    if (status != FUSOR_OK) {
        fu_arena_free(&arena);
        return status;
    }
    exec = made; /* the arena is the exec's now */
    auto_choice *choice = NULL;
    const char *program_name = r->module ? r->module->source.name : r->name;
    if (r->ctx->is_auto && !r->target) choice = start_auto(e, r, exec, program_name);
    if (!(r->flags & FUSOR_KEEP_SOURCES)) {
        rt_exec *bound = NULL;
        status = sources_bind(e, exec, program_name, &bound);
        rt_exec_release(exec);
        if (status != FUSOR_OK) {
            auto_free(choice);
            return status;
        }
        exec = bound;
    }
    fusor_executable *exe = fu_calloc(1, sizeof *exe);
    if (!exe) {
        rt_exec_release(exec);
        auto_free(choice);
        return FU_FAIL(e, FUSOR_ERROR_MEMORY, "out of memory while compiling");
    }
    exe->ctx = context_keep(r->ctx);
    exe->exec = exec;
    exe->choice = choice;
    exe->program = program;
    if (is_interim) exe->job = start_compile(r, exec);
    *out = exe;
    return FUSOR_OK;
}

fusor_status compile_executable(fu_error *e, const compile_request *r, fusor_executable **out) {
    rt_fpenv environment;
    rt_fpenv_enter(&environment); /* constants are computed, and weights packed */
    const fusor_status status = compile_program(e, r, out);
    rt_fpenv_leave(&environment);
    return status;
}
