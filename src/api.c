/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* api.c: the entry points of compile.h: arguments checked, work handed to the layer that does it, errors recorded. */
#include "auto.h"
#include "check.h"
#include "context.h"
#include "start.h"
#include "fusor/graph.h"

#define CHECK_ARGUMENT(ctx, e, cond, ...)                                                                              \
    if (!(cond)) return FU_FAIL((e), FUSOR_ERROR_ARGUMENT, __VA_ARGS__), context_fail((ctx), (e))

fusor_status fusor_compile_text(fusor_context *ctx, const char *text, const char *function, fusor_executable **out) {
    fu_error e;
    if (!ctx) return context_refuse("fusor_compile_text: the context is NULL");
    fu_error_clear(&e);
    CHECK_ARGUMENT(ctx, &e, text && out, "fusor_compile_text: text and out must not be NULL");
    compile_request r = {.ctx = ctx,
                         .name = "<text>",
                         .text = text,
                         .length = strlen(text),
                         .function = function,
                         .start = START_IF_ASKED};
    return compile_executable(&e, &r, out) == FUSOR_OK ? FUSOR_OK : context_fail(ctx, &e);
}

fusor_status fusor_module_compile(fusor_module *module, const char *function, const fusor_compile_options *options,
                                  fusor_executable **out) {
    fu_error e;
    fusor_compile_options o = FUSOR_COMPILE_OPTIONS_INIT;
    if (!module) return context_refuse("fusor_module_compile: the module is NULL");
    fu_error_clear(&e);
    CHECK_ARGUMENT(module->ctx, &e, out, "fusor_module_compile: out must not be NULL");
    if (options) memcpy(&o, options, options->size && options->size < sizeof o ? options->size : sizeof o);
    CHECK_ARGUMENT(module->ctx, &e, !(o.flags & ~(uint32_t)(FUSOR_NO_FUSE | FUSOR_KEEP_SOURCES)),
                   "fusor_module_compile: flags 0x%x; expected FUSOR_NO_FUSE, FUSOR_KEEP_SOURCES", (unsigned)o.flags);
    compile_request r = {.ctx = module->ctx,
                         .module = module->module,
                         .function = function,
                         .flags = o.flags,
                         .target = o.target,
                         .start = START_IF_ASKED};
    return compile_executable(&e, &r, out) == FUSOR_OK ? FUSOR_OK : context_fail(module->ctx, &e);
}

static int find_param(const ir_graph *g, const char *name) {
    for (uint32_t i = 0; i < g->params.n; i++)
        if (strcmp(g->params.at[i].name, name) == 0) return (int)i;
    return -1;
}

/* Of "auto": the GPU's side with the same parameters bound; NULL: the CPU alone is left. */
static auto_choice *bind_other_side(fusor_executable *exe, int n, const int *param, const fusor_buffer *values) {
    rt_exec *gpu = exe->choice ? auto_gpu(exe, NULL) : NULL, *bound = NULL;
    fu_error *e = gpu ? fu_calloc(1, sizeof *e) : NULL;
    if (e) (void)rt_exec_bind(gpu, e, n, param, values, &bound);
    fu_free(e);
    return bound ? auto_new(bound) : NULL;
}

fusor_status fusor_executable_bind(fusor_executable *exe, int n, const char *const *names, const fusor_buffer *values,
                                   fusor_executable **out) {
    fu_error e;
    if (!exe) return context_refuse("fusor_executable_bind: the executable is NULL");
    fu_error_clear(&e);
    const ir_graph *g = rt_exec_plan(exe->exec)->graph;
    CHECK_ARGUMENT(exe->ctx, &e, out && (n <= 0 || (names && values)),
                   "fusor_executable_bind: names, values and out must not be NULL");
    CHECK_ARGUMENT(exe->ctx, &e, n >= 0 && n <= (int)g->params.n,
                   "fusor_executable_bind: %d names given; @%s has %u parameters", n, g->name, g->params.n);
    start_wait(exe); /* what is bound is used for long: it gets the fused program */
    int *param = fu_calloc((size_t)n + 1, sizeof *param);
    if (!param) return FU_FAIL(&e, FUSOR_ERROR_MEMORY, "out of memory"), context_fail(exe->ctx, &e);
    for (int i = 0; i < n && e.status == FUSOR_OK; i++) {
        param[i] = names[i] ? find_param(g, names[i][0] == '%' ? names[i] + 1 : names[i]) : -1;
        if (!names[i]) FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "bind: names[%d] is NULL", i);
        else if (param[i] < 0) FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "bind: @%s has no parameter '%s'", g->name, names[i]);
        else if (!g->params.at[param[i]].is_const)
            FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "bind: parameter %%%s of @%s is not const; declare it 'const %%%s: ...'",
                    g->params.at[param[i]].name, g->name, g->params.at[param[i]].name);
        for (int j = 0; j < i && e.status == FUSOR_OK; j++)
            if (param[j] == param[i])
                FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "bind: parameter %%%s is named twice", g->params.at[param[i]].name);
    }
    rt_exec *bound = NULL;
    if (e.status == FUSOR_OK) (void)rt_exec_bind(start_exec(exe), &e, n, param, values, &bound);
    auto_choice *choice = e.status == FUSOR_OK ? bind_other_side(exe, n, param, values) : NULL;
    fu_free(param);
    if (e.status != FUSOR_OK) return context_fail(exe->ctx, &e);
    fusor_executable *made = fu_calloc(1, sizeof *made);
    if (!made) {
        rt_exec_release(bound);
        auto_free(choice);
        return FU_FAIL(&e, FUSOR_ERROR_MEMORY, "out of memory"), context_fail(exe->ctx, &e);
    }
    made->ctx = context_keep(exe->ctx);
    made->exec = bound;
    made->choice = choice;
    made->program = exe->program;
    *out = made;
    return FUSOR_OK;
}

fusor_status fusor_executable_infer(fusor_executable *exe, int n_inputs, const fusor_buffer *inputs, int n_outputs,
                                    fusor_buffer *outputs) {
    fu_error e;
    if (!exe) return context_refuse("fusor_executable_infer: the executable is NULL");
    fu_error_clear(&e);
    rt_exec *x = exe->choice ? auto_prepare(exe, n_inputs > 0 ? n_inputs : 0, inputs, 0, NULL) : start_exec(exe);
    return rt_exec_infer(x, &e, n_inputs, inputs, n_outputs, outputs) == FUSOR_OK ? FUSOR_OK
                                                                                  : context_fail(exe->ctx, &e);
}

fusor_status fusor_executable_call(fusor_executable *exe, int n_inputs, const fusor_buffer *inputs, int n_outputs,
                                   fusor_buffer *outputs) {
    fu_error e;
    if (!exe) return context_refuse("fusor_executable_call: the executable is NULL");
    fu_error_clear(&e);
    fusor_status status = exe->choice ? auto_call(exe, &e, n_inputs, inputs, n_outputs, outputs)
                          : exe->ctx->checks && n_inputs >= 0 && inputs && outputs
                              ? check_call(exe->ctx, &e, start_exec(exe), n_inputs, inputs, n_outputs, outputs)
                              : rt_exec_call(start_exec(exe), &e, n_inputs, inputs, n_outputs, outputs);
    return status == FUSOR_OK ? FUSOR_OK : context_fail(exe->ctx, &e);
}

void executable_drop(fusor_executable *exe) {
    if (!exe) return;
    rt_exec_release(exe->exec);
    auto_free(exe->choice);
    start_drop(exe->job);
    fu_free(exe);
}

void fusor_executable_free(fusor_executable *exe) {
    fusor_context *ctx = exe ? exe->ctx : NULL;
    executable_drop(exe);
    fusor_context_free(ctx);
}

static void describe(const ir_graph *g, ir_id id, const char *name, fusor_argument_info *out) {
    const ir_node *n = ir_at(g, id);
    memset(out, 0, sizeof *out);
    out->name = name;
    out->dtype = n->dtype;
    out->rank = n->rank;
    out->alias = -1;
    for (int d = 0; d < n->rank; d++)
        if (!ir_size_is_const(g->sizes, n->dim[d], &out->shape[d])) out->shape[d] = -1;
}

int fusor_executable_inputs(const fusor_executable *exe, int n, fusor_argument_info *info) {
    if (!exe) return 0;
    if (!info) n = 0;
    const ir_graph *g = rt_exec_plan(exe->exec)->graph;
    int count = 0;
    for (uint32_t i = 0; i < g->params.n; i++) {
        if (rt_exec_is_bound(exe->exec, (int)i)) continue;
        if (count < n) {
            describe(g, g->params.at[i].node, g->params.at[i].name, &info[count]);
            info[count].is_const = g->params.at[i].is_const;
        }
        count++;
    }
    return count;
}

int fusor_executable_outputs(const fusor_executable *exe, int n, fusor_argument_info *info) {
    if (!exe) return 0;
    if (!info) n = 0;
    const ir_graph *g = rt_exec_plan(exe->exec)->graph;
    for (uint32_t r = 0; r < g->results.n && (int)r < n; r++) {
        describe(g, g->results.at[r].node, g->results.at[r].name, &info[r]);
        if (g->results.at[r].alias < 0) continue;
        info[r].alias = 0;
        for (int i = 0; i < g->results.at[r].alias; i++) info[r].alias += !rt_exec_is_bound(exe->exec, i);
    }
    return (int)g->results.n;
}

int fusor_would_compile(const fusor_executable *exe, int n_inputs, const fusor_buffer *inputs,
                        const char **reason_out) {
    (void)exe;
    (void)n_inputs;
    (void)inputs;
    if (reason_out)
        *reason_out = "sizes and scalars are run-time arguments: the kernels made at compile serve every size";
    return 0;
}

/* An executable of its own for a prepared call: the user may free the one that it was made of. */
static fusor_executable *hold(fusor_executable *exe, int n_in, const fusor_buffer *in, int n_out,
                              const fusor_buffer *out) {
    fusor_executable *held = fu_calloc(1, sizeof *held);
    if (!held) return NULL;
    start_wait(exe); /* prepared once, called often */
    held->ctx = context_keep(exe->ctx);
    held->exec = rt_exec_keep(exe->choice ? auto_prepare(exe, n_in, in, n_out, out) : start_exec(exe));
    return held;
}

static fusor_call *call_new(fusor_executable *exe, fu_error *e, int n_in, const fusor_buffer *in, int n_out,
                            const fusor_buffer *out) {
    fusor_call *c = fu_calloc(1, sizeof *c);
    if (c && (c->exe = hold(exe, n_in, in, n_out, out))) return c;
    fu_free(c);
    FU_FAIL(e, FUSOR_ERROR_MEMORY, "out of memory");
    return NULL;
}

fusor_status fusor_executable_prepare(fusor_executable *exe, int n_inputs, const fusor_buffer *inputs, int n_outputs,
                                      fusor_buffer *outputs, fusor_call **out) {
    fu_error e;
    if (!exe) return context_refuse("fusor_executable_prepare: the executable is NULL");
    fu_error_clear(&e);
    CHECK_ARGUMENT(exe->ctx, &e, out, "fusor_executable_prepare: out must not be NULL");
    fusor_call *c = call_new(exe, &e, n_inputs, inputs, n_outputs, outputs);
    if (!c) return context_fail(exe->ctx, &e);
    if (rt_call_new(c->exe->exec, &e, n_inputs, inputs, n_outputs, outputs, &c->call) != FUSOR_OK) {
        fusor_call_free(c);
        return context_fail(exe->ctx, &e);
    }
    *out = c;
    return FUSOR_OK;
}

_Static_assert(sizeof(rt_buffers) == sizeof(fusor_buffer_list) &&
                   offsetof(rt_buffers, n) == offsetof(fusor_buffer_list, n),
               "one layout");
_Static_assert(sizeof(rt_carry) == sizeof(fusor_carry) && offsetof(rt_carry, output) == offsetof(fusor_carry, output),
               "one layout");

fusor_status fusor_executable_prepare_each(fusor_executable *exe, int64_t n_sets, int n_inputs,
                                           const fusor_buffer_list *inputs, int n_outputs,
                                           const fusor_buffer_list *outputs, fusor_call **out) {
    fu_error e;
    if (!exe) return context_refuse("fusor_executable_prepare_each: the executable is NULL");
    fu_error_clear(&e);
    CHECK_ARGUMENT(exe->ctx, &e, out, "fusor_executable_prepare_each: out must not be NULL");
    fusor_call *c = call_new(exe, &e, n_inputs > 0 && inputs && inputs[0].n > 0,
                             n_inputs > 0 && inputs ? inputs[0].at : NULL, 0, NULL);
    if (!c) return context_fail(exe->ctx, &e);
    if (rt_each_new(c->exe->exec, &e, n_sets, n_inputs, (const rt_buffers *)inputs, n_outputs,
                    (const rt_buffers *)outputs, &c->each) != FUSOR_OK) {
        fusor_call_free(c);
        return context_fail(exe->ctx, &e);
    }
    *out = c;
    return FUSOR_OK;
}

fusor_status fusor_executable_prepare_scan(fusor_executable *exe, int64_t n_steps, int n_carries,
                                           const fusor_carry *carries, int n_inputs, const fusor_buffer *inputs,
                                           int n_outputs, fusor_buffer *outputs, fusor_call **out) {
    fu_error e;
    if (!exe) return context_refuse("fusor_executable_prepare_scan: the executable is NULL");
    fu_error_clear(&e);
    CHECK_ARGUMENT(exe->ctx, &e, out, "fusor_executable_prepare_scan: out must not be NULL");
    fusor_call *c = call_new(exe, &e, n_inputs, inputs, n_outputs, outputs);
    if (!c) return context_fail(exe->ctx, &e);
    if (rt_scan_new(c->exe->exec, &e, n_steps, n_carries, (const rt_carry *)carries, n_inputs, inputs, n_outputs,
                    outputs, &c->scan) != FUSOR_OK) {
        fusor_call_free(c);
        return context_fail(exe->ctx, &e);
    }
    *out = c;
    return FUSOR_OK;
}

/* Apart, so that a call which succeeds makes no room for a message. */
static __attribute__((noinline)) fusor_status run_call(fusor_call *call) {
    fu_error e;
    if (!call) return context_refuse("fusor_call_run: the call is NULL");
    fu_error_clear(&e);
    fusor_status status = call->each   ? rt_each_run(call->each, &e)
                          : call->scan ? rt_scan_run(call->scan, &e)
                                       : rt_call_run(call->call, &e);
    if (status != FUSOR_OK) return context_fail(call->exe->ctx, &e);
    if (call->call) call->again = rt_call_single(call->call);
    return FUSOR_OK;
}

fusor_status fusor_call_run(fusor_call *call) {
    if (__builtin_expect(call && rt_again_run(&call->again), 1)) return FUSOR_OK;
    return call && call->call && rt_call_again(call->call) ? FUSOR_OK : run_call(call);
}

void fusor_call_free(fusor_call *call) {
    if (!call) return;
    rt_call_free(call->call);
    rt_each_free(call->each);
    rt_scan_free(call->scan);
    fusor_executable_free(call->exe);
    fu_free(call);
}

/* ---- prepared, run once and freed ---- */
/* An output as the caller gave it, for a run that fails. */
typedef struct given {
    fusor_buffer *at, was;
    int result;
} given;

static void note(given *g, int result, fusor_buffer *at) { *g = (given){at, *at, result}; }

/* Runs and frees the call. If that fails its outputs are what they were, and what memory they got is given back: of a
 * result that is written over a parameter it is that one's. */
static fusor_status run_once(fusor_executable *exe, fusor_call *c, given *g, int64_t n) {
    const ir_graph *graph = rt_exec_plan(exe->exec)->graph;
    const fusor_status status = fusor_call_run(c);
    for (int64_t i = 0; i < n && status != FUSOR_OK; i++) {
        if (!g[i].was.data && graph->results.at[g[i].result].alias < 0) fusor_buffer_free(exe->ctx, g[i].at);
        *g[i].at = g[i].was;
    }
    fusor_call_free(c);
    return status;
}

static given *room_for_outputs(fusor_executable *exe, int64_t n) {
    fu_error e;
    given *g = fu_calloc((size_t)n + 1, sizeof *g);
    fu_error_clear(&e);
    if (!g) (void)FU_FAIL(&e, FUSOR_ERROR_MEMORY, "no memory for a note of %lld outputs", (long long)n);
    if (!g) (void)context_fail(exe->ctx, &e);
    return g;
}

/* Buffers of a list of outputs; of another length it is refused later. */
static int64_t count_outputs(const fusor_buffer_list *list, int64_t n_sets) {
    return list->at && list->n == n_sets && n_sets > 0 ? n_sets : 0;
}

fusor_status fusor_executable_call_each(fusor_executable *exe, int64_t n_sets, int n_inputs,
                                        const fusor_buffer_list *inputs, int n_outputs,
                                        const fusor_buffer_list *outputs) {
    fusor_call *c = NULL;
    if (!exe) return context_refuse("fusor_executable_call_each: the executable is NULL");
    int64_t n = 0;
    for (int r = 0; r < n_outputs && outputs; r++) n += count_outputs(&outputs[r], n_sets);
    given *g = room_for_outputs(exe, n);
    if (!g) return FUSOR_ERROR_MEMORY;
    n = 0;
    for (int r = 0; r < n_outputs && outputs; r++)
        for (int64_t i = 0; i < count_outputs(&outputs[r], n_sets); i++) note(&g[n++], r, &outputs[r].at[i]);
    fusor_status status = fusor_executable_prepare_each(exe, n_sets, n_inputs, inputs, n_outputs, outputs, &c);
    if (status == FUSOR_OK) status = run_once(exe, c, g, n);
    fu_free(g);
    return status;
}

fusor_status fusor_executable_scan(fusor_executable *exe, int64_t n_steps, int n_carries, const fusor_carry *carries,
                                   int n_inputs, const fusor_buffer *inputs, int n_outputs, fusor_buffer *outputs) {
    fusor_call *c = NULL;
    if (!exe) return context_refuse("fusor_executable_scan: the executable is NULL");
    const int n = outputs && n_outputs > 0 ? n_outputs : 0;
    given *g = room_for_outputs(exe, n);
    if (!g) return FUSOR_ERROR_MEMORY;
    for (int r = 0; r < n; r++) note(&g[r], r, &outputs[r]);
    fusor_status status =
        fusor_executable_prepare_scan(exe, n_steps, n_carries, carries, n_inputs, inputs, n_outputs, outputs, &c);
    if (status == FUSOR_OK) status = run_once(exe, c, g, n);
    fu_free(g);
    return status;
}

static fusor_status explain(const fusor_executable *exe, fu_error *e, char **text_out) {
    FU_CALL_ARENA(arena, return FU_FAIL(e, FUSOR_ERROR_MEMORY, "out of memory"));
    explain_request r = {.plan = rt_exec_plan(exe->exec),
                         .exec = exe->exec,
                         .assumed_size = EXPLAIN_ASSUMED_SIZE,
                         .n_threads = exe->ctx->n_threads};
    const fusor_status status = explain_json(&arena, e, &r, text_out);
    fu_arena_free(&arena);
    return status;
}

fusor_status fusor_explain_json(fusor_executable *exe, char **text_out) {
    fu_error e;
    if (!exe) return context_refuse("fusor_explain_json: the executable is NULL");
    fu_error_clear(&e);
    CHECK_ARGUMENT(exe->ctx, &e, text_out, "fusor_explain_json: text_out must not be NULL");
    rt_fpenv environment;
    rt_fpenv_enter(&environment); /* it plans once more */
    (void)explain(exe, &e, text_out);
    rt_fpenv_leave(&environment);
    return context_fail(exe->ctx, &e);
}

void fusor_text_free(char *text) { fu_free(text); }
