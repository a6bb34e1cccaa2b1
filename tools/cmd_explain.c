/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cmd_explain.c: fusor explain. The document of src/explain.c, as it is or as text, a graph for dot, or a page; with
 * --measure the times of calls, fused and unfused, and of each kernel. */
#include "explain.h"
#include "inputs.h"
#include "auto.h"
#include "limits.h"
#include "timing.h"
#include "fusor/profile.h"
#include "base/env.h"
#include "base/file.h"
#include "ir/pass.h"
#include "rt/compiler.h"
#include "rt/cpuinfo.h"
#include <inttypes.h>
#include <stdlib.h>

static const char *words(tool *t, const json_t *list) {
    fu_str s;
    size_t i;
    json_t *w;
    fu_str_init(&s, &t->arena);
    json_array_foreach(json_array_size(list) ? (json_t *)list : NULL, i, w)
        fu_str_addf(&s, "%s%s", i ? " " : "", json_string_value(w));
    return s.at ? s.at : "";
}

static void as_dot(tool *t, fu_str *o, const json_t *d) {
    size_t i;
    json_t *v;
    fu_str_addf(o, "digraph \"%s\" {\n  node [shape=box, fontname=\"monospace\"];\n", explain_text_of(d, "function"));
    json_array_foreach(json_object_get(d, "kernels"), i, v) fu_str_addf(
        o, "  k%zu [label=\"%zu %s\\n%s\"];\n", i, i, explain_text_of(v, "kind"), words(t, json_object_get(v, "ops")));
    json_array_foreach(json_object_get(d, "boundaries"), i, v)
        fu_str_addf(o, "  k%.0f -> k%.0f [label=\"%%%s\\n%s\"];\n", explain_number(v, "from"), explain_number(v, "to"),
                    explain_text_of(v, "value"), explain_text_of(v, "reason"));
    fu_str_add(o, "}\n");
}

/* ---- --measure ---- */
typedef struct measured {
    fusor_executable *fused, *apart;
    fusor_call *call[2];
    fusor_buffer *out[2];
    double *step_ns, ns[2];
} measured;

static int context_error(tool *t, fusor_status status) {
    fu_error e;
    fu_error_clear(&e);
    const char *text = fusor_error_message(t->ctx);
    (void)FU_FAIL(&e, status, "%s", text[0] ? text : fusor_status_name(status));
    return tool_fail(t, &e);
}

static int prepare(tool *t, const program *p, const ir_graph *g, const inputs *in, bool no_fuse, fusor_executable **exe,
                   fusor_call **call, fusor_buffer **out) {
    fu_error e;
    fu_error_clear(&e);
    compile_request request = {.ctx = t->ctx,
                               .name = p->name,
                               .module = p->module,
                               .function = g->name,
                               .flags = FUSOR_KEEP_SOURCES | (no_fuse ? FUSOR_NO_FUSE : 0)};
    if (compile_executable(&e, &request, exe) != FUSOR_OK) return tool_fail(t, &e);
    if (!no_fuse) tool_ran(t, *exe);
    *out = FU_NEW_N(&t->arena, fusor_buffer, g->results.n + 1);
    fusor_status status = fusor_executable_call(*exe, in->n, in->buffer, (int)g->results.n, *out);
    if (status == FUSOR_OK) status = fusor_executable_prepare(*exe, in->n, in->buffer, (int)g->results.n, *out, call);
    return status == FUSOR_OK ? 0 : context_error(t, status);
}

/* Rounds alternate between fused and unfused; then the fused call with the profile on. */
static int time_both(tool *t, measured *m) {
    enum { ROUNDS = 15 };
    const double batch_ns = (t->min_time >= 0 ? t->min_time : 0.4) * 1e9 / (2 * ROUNDS);
    double samples[2][ROUNDS];
    int64_t batch[2], n_steps = rt_exec_plan(m->fused->exec)->steps.n;
    char *text = NULL;
    size_t i;
    json_t *k;
    for (int side = 0; side < 2; side++) batch[side] = timing_batch_of(m->call[side], batch_ns);
    for (int round = 0; round < ROUNDS; round++)
        for (int side = 0; side < 2; side++) samples[side][round] = timing_batch_ns(m->call[side], batch[side]);
    for (int side = 0; side < 2; side++) m->ns[side] = timing_median(samples[side], ROUNDS);
    fusor_status status = fusor_profile_enable(t->ctx, 1);
    for (int64_t run = 0; run < 20 + batch[0] * 3 && status == FUSOR_OK; run++) status = fusor_call_run(m->call[0]);
    if (status == FUSOR_OK) status = fusor_profile_enable(t->ctx, 0);
    if (status == FUSOR_OK) status = fusor_profile_json(t->ctx, &text);
    if (status != FUSOR_OK) return context_error(t, status);
    json_t *d = json_loads(text, 0, NULL);
    fusor_text_free(text);
    m->step_ns = FU_NEW_N(&t->arena, double, n_steps + 1);
    json_array_foreach(json_object_get(d, "kernels"), i, k) {
        const int64_t step = json_integer_value(json_object_get(k, "step"));
        if (step >= 0 && step < n_steps) m->step_ns[step] = (double)json_integer_value(json_object_get(k, "median_ns"));
    }
    json_decref(d);
    return 0;
}

static int measure(tool *t, const program *p, const ir_graph *g, inputs *in, measured *m) {
    int status = inputs_bind(t, in, NULL);
    if (!status) status = prepare(t, p, g, in, t->no_fuse, &m->fused, &m->call[0], &m->out[0]);
    if (!status) status = prepare(t, p, g, in, true, &m->apart, &m->call[1], &m->out[1]);
    if (!status) status = time_both(t, m);
    if (status && m->call[0]) timing_note_repeat(t, g);
    return status;
}

static void end_measure(tool *t, const ir_graph *g, measured *m, inputs *in) {
    for (int side = 0; side < 2; side++) {
        fusor_call_free(m->call[side]);
        for (uint32_t r = 0; m->out[side] && r < g->results.n; r++)
            if (g->results.at[r].alias < 0) fusor_buffer_free(t->ctx, &m->out[side][r]);
        fusor_executable_free(side ? m->apart : m->fused);
    }
    if (in->buffer) inputs_free(in);
}

/* A plan is shown for one size of each name. */
static int check_dims(tool *t, const ir_graph *g, const inputs *in) {
    for (uint32_t i = 0; i < in->dims.n; i++) {
        const inputs_dim *d = &in->dims.at[i];
        const char *name = ir_size_symbol_name(g->sizes, d->symbol);
        if (d->n > 1)
            return tool_usage(t, "--dim %s: %d sizes; explain shows one, like --dim %s=%lld (run --time takes several)",
                              name, d->n, name, (long long)d->value[0]);
    }
    return 0;
}

/* Sizes that nobody gives, and inputs that nobody names, are assumed; with NAME=SOURCE the sizes come from these. */
static int find_inputs(tool *t, const program *p, const ir_graph *g, uint32_t used, inputs *in) {
    if (!t->measure) {
        if (used < t->args.n)
            return tool_usage(t, "argument '%s' was not expected; inputs are for --measure", t->args.at[used]);
        return inputs_dims(t, g, in);
    }
    if (!t->fill) t->fill = "uniform:1";
    const bool is_bare = used == t->args.n && t->weights.n == 0;
    for (uint32_t i = 0; i < ir_size_symbol_count(g->sizes) && is_bare; i++) {
        const char *name = ir_size_symbol_name(g->sizes, i);
        bool is_given = false;
        for (uint32_t k = 0; k < t->dims.n; k++)
            is_given |= strncmp(t->dims.at[k], name, strlen(name)) == 0 && t->dims.at[k][strlen(name)] == '=';
        if (!is_given) fu_push(&t->arena, &t->dims, fu_format(&t->arena, "%s=%d", name, EXPLAIN_ASSUMED_SIZE));
    }
    return inputs_find(t, p, g, used, in);
}

static int write_document(tool *t, int format, const char *text) {
    fu_str out;
    fu_str_init(&out, &t->arena);
    if (format == 1) fu_str_addf(&out, "%s\n", text);
    else if (format == 0) explain_text(&out, text);
    else {
        fu_error e;
        const fusor_codegen_table *module = NULL;
        json_t *d = json_loads(text, 0, NULL);
        if (!d) return tool_environment(t, "out of memory");
        fu_error_clear(&e);
        if (format == 2) as_dot(t, &out, d);
        else {
            const bool has_module = rt_module_get(&e, &module) == FUSOR_OK;
            explain_html(t, &out, d, has_module ? module : NULL, e.text);
        }
        json_decref(d);
    }
    if (t->outputs.n == 0 || strcmp(t->outputs.at[0], "-") == 0) {
        (void)fwrite(out.at, 1, out.n, stdout);
        return 0;
    }
    fu_part part = {out.at, out.n};
    int why = fu_file_write(t->outputs.at[0], &part, 1);
    return why ? tool_environment(t, "%s: %s", t->outputs.at[0], strerror(why)) : 0;
}

/* Sizes that nobody gives are smaller where so many of them at once would be more than a kernel counts. is_auto: says
 * where device "auto" would run it, of those sizes. */
static fusor_status explain_assumed(tool *t, fu_error *e, explain_request *r, uint32_t n, bool is_auto, char **text) {
    enum { SMALLEST = 16 };
    char choice[300] = "";
    int64_t *size = FU_NEW_N(&t->arena, int64_t, n + 1);
    for (r->assumed_size = EXPLAIN_ASSUMED_SIZE;; r->assumed_size /= 4) {
        bool is_assumed = false;
        for (uint32_t i = 0; i < n; i++) {
            is_assumed |= r->symbol_values[i] < 0;
            size[i] = r->symbol_values[i] < 0 ? r->assumed_size : r->symbol_values[i];
        }
        if (is_auto) auto_plan_text(t->ctx, r->plan, size, choice, sizeof choice);
        r->choice = is_auto ? choice : NULL;
        const fusor_status status = explain_json(&t->arena, e, r, text);
        r->choice = NULL;
        if (status != FUSOR_ERROR_SHAPE || !is_assumed || r->assumed_size <= SMALLEST) return status;
        fu_error_clear(e);
    }
}

int cmd_explain(tool *t) {
    static const char *const formats[] = {"text", "json", "dot", "html"};
    program p;
    uint32_t used;
    ir_graph *graph;
    inputs in = {0};
    fu_error e;
    int format = t->json ? 1 : 0, status;
    ir_plan_options options = {.no_fuse = t->no_fuse,
                               .fast_math = t->math && strcmp(t->math, "fast") == 0,
                               .reference = t->device && strcmp(t->device, "reference") == 0};
    fu_error_clear(&e);
    ir_target target;
    if (t->format) {
        format = -1;
        for (int i = 0; i < 4; i++)
            if (strcmp(t->format, formats[i]) == 0) format = i;
        if (format < 0)
            return tool_usage(t, "--format %s: expected text, json, dot or html%s", t->format,
                              tool_suggest(t, t->format, formats, 4, ""));
        if (t->json && format != 1) return tool_usage(t, "--json and --format %s: choose one", t->format);
    }
    if (t->outputs.n > 1) return tool_usage(t, "-o is given %u times; expected one file", t->outputs.n);
    if ((status = program_load(t, &p, &used)) != 0 || (status = program_function(t, &p, used, NULL, &graph)) != 0)
        return status;
    if ((status = find_inputs(t, &p, graph, used, &in)) != 0 || (status = check_dims(t, graph, &in)) != 0 ||
        (!t->measure && (status = inputs_check_dims(t, graph, &in)) != 0) || (status = tool_target(t, &target)) != 0)
        return status;
    const char *unused = t->measure         ? NULL
                         : t->min_time >= 0 ? "--min-time"
                         : t->fill          ? "--fill"
                         : t->weights.n     ? "--weights"
                                            : NULL;
    if (unused) tool_note(t, "%s counts for nothing here; it is for --measure", unused);
    options.level = target.level;
    options.features = target.features;
    if (t->measure && (status = tool_context(t, 0)) != 0) return status;
    const ir_graph *flat = graph;
    ir_plan *plan;
    measured m = {0};
    if (t->measure && (status = measure(t, &p, flat, &in, &m)) != 0) {
        end_measure(t, flat, &m, &in);
        return status;
    }
    if (!t->measure && (ir_normalize(&t->arena, &e, &graph, &options) != FUSOR_OK ||
                        ir_plan_make(&t->arena, &e, graph, &options, &plan) != FUSOR_OK))
        return tool_fail(t, &e);
    limits l;
    explain_request request = {.plan = t->measure ? rt_exec_plan(m.fused->exec) : plan,
                               .exec = t->measure ? m.fused->exec : NULL,
                               .n_threads = fu_env_int(FU_FUSOR_THREADS) > 0 ? (int)fu_env_int(FU_FUSOR_THREADS)
                                                                             : rt_default_threads(),
                               .measured_ns = m.step_ns,
                               .fused_ns = m.ns[0],
                               .unfused_ns = m.ns[1]};
    if (!t->measure && ir_level_is_gpu(plan->options.level) && !t->target && (status = tool_context(t, 0)) != 0)
        return status;
    if (!t->measure && t->ctx && context_home(t->ctx)) { /* of a device that is there: its limits, for estimates */
        l = limits_get(t, 1, false);
        request.limits = &l.all;
    }
    if (t->measure) {
        request.n_threads = t->ctx->n_threads;
        l = limits_get(t, request.n_threads, false);
        request.limits = &l.all;
    } else if (t->threads) request.n_threads = t->thread_counts[0];
    uint32_t n = ir_size_symbol_count(flat->sizes);
    int64_t *symbols = FU_NEW_N(&t->arena, int64_t, n + 1);
    for (uint32_t i = 0; i < n; i++) symbols[i] = t->measure ? in.symbols[i] : -1;
    for (uint32_t i = 0; i < in.dims.n && !t->measure; i++) symbols[in.dims.at[i].symbol] = in.dims.at[i].value[0];
    request.symbol_values = symbols;
    char *text = NULL;
    const bool is_auto = t->device && strcmp(t->device, "auto") == 0;
    if (is_auto && !t->ctx && (status = tool_context(t, request.n_threads)) != 0) return status;
    fusor_status made = explain_assumed(t, &e, &request, n, is_auto, &text);
    status = made == FUSOR_OK ? write_document(t, format, text) : tool_fail(t, &e);
    fu_free(text);
    end_measure(t, flat, &m, &in);
    return status;
}
