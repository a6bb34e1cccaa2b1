/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cmd_cache_warm.c: fusor cache warm and why. Both plan the functions of the programs that are given (all, or those
 * named by @FUNC behind the FILE), for every target: as they are written, which is what a run has whatever its sizes
 * (run --dim, the API), and then for every combination of --dim with these integers instead of names. warm makes the
 * kernels without running them, why tells what a request for each would meet. */
#include "cache_entries.h"
#include "inputs.h"
#include "base/env.h"
#include "rt/compiler.h"
#include <stdlib.h>

typedef struct key_bytes {
    uint8_t at[IR_KEY_BYTES];
} key_bytes;
typedef struct walk {
    tool *t;
    const char *targets;
    bool is_why;
    int n_kernels, n_made, n_dims_used;
    fu_vec(key_bytes) keys;
    report_table *table;
    json_t *kernels;
} walk;

static void key_of(const ir_kernel *k, fu_arena *a, uint8_t key[IR_KEY_BYTES]) {
    fu_str text;
    fu_str_init(&text, a);
    ir_kernel_print(&text, k);
    ir_kernel_key(text.at, text.n, rt_build_id(), key);
}

static int warm_kernel(walk *w, const ir_kernel *k) {
    fu_error e;
    fu_error_clear(&e);
    rt_cache_outcome outcome;
    key_bytes key;
    key_of(k, &w->t->arena, key.at);
    for (uint32_t i = 0; i < w->keys.n; i++)
        if (memcmp(w->keys.at[i].at, key.at, IR_KEY_BYTES) == 0) return 0;
    if (rt_cache_get(w->t->ctx->cache, &e, k, 1, NULL, &outcome) != FUSOR_OK) return tool_fail(w->t, &e);
    fu_push(&w->t->arena, &w->keys, key);
    w->n_kernels++;
    w->n_made += outcome.source == RT_CACHE_COMPILED;
    return 0;
}

static int explain_kernel(walk *w, const char *function, const ir_kernel *k) {
    tool *t = w->t;
    fu_error e;
    fu_error_clear(&e);
    rt_cache_answer *a = fu_alloc(&t->arena, sizeof *a);
    if (rt_cache_why(t->ctx->cache, &e, k, a) != FUSOR_OK) return tool_fail(t, &e);
    w->n_kernels++;
    w->n_made += !a->is_hit;
    char name[IR_TARGET_MAX];
    const char *target = ir_target_name(ir_kernel_target(k), name);
    if (t->json) {
        json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:b}", "function", function, "symbol", a->symbol, "key", a->key,
                              "target", target, "hit", a->is_hit);
        if (a->is_hit) (void)json_object_set_new(o, "where", json_string(fu_utf8(&t->arena, a->where)));
        else {
            (void)json_object_set_new(o, "reason", json_string(rt_miss_reason_names[a->reason]));
            if (a->problem[0]) (void)json_object_set_new(o, "problem", json_string(fu_utf8(&t->arena, a->problem)));
            if (a->nearest[0])
                (void)json_object_update_new(o, json_pack("{s:s, s:s, s:s, s:s}", "nearest", a->nearest, "field",
                                                          a->field, "wanted", a->wanted, "has", a->has));
        }
        return json_array_append_new(w->kernels, o) ? tool_environment(t, "out of memory") : 0;
    }
    const char *text = a->is_hit                      ? fu_format(&t->arena, "in %s", a->where)
                       : a->reason == RT_MISS_OFF     ? "off: no directory and no bundle is in use"
                       : a->reason == RT_MISS_REFRESH ? "refresh: entries are not looked for"
                       : a->problem[0] ? fu_format(&t->arena, "%s: %s", rt_miss_reason_names[a->reason], a->problem)
                       : a->nearest[0]
                           ? fu_format(&t->arena, "%s: %s is '%s'; the nearest entry, %.12s, has '%s'",
                                       rt_miss_reason_names[a->reason], a->field, a->wanted, a->nearest, a->has)
                           : fu_format(&t->arena, "%s: no intact entry is there", rt_miss_reason_names[a->reason]);
    report_row(w->table, fu_format(&t->arena, "@%s", function), a->is_hit ? "hit" : "miss",
               fu_strndup(&t->arena, a->key, 12), fu_strdup(&t->arena, a->symbol), text);
    return 0;
}

static int walk_function(walk *w, const program *p, const char *function, const char *label) {
    tool *t = w->t;
    fu_error e;
    for (const char *at = w->targets;;) {
        size_t n = strcspn(at, ",");
        compile_request request = {.ctx = t->ctx,
                                   .name = p->name,
                                   .module = p->module,
                                   .function = function,
                                   .flags = t->no_fuse ? FUSOR_NO_FUSE : 0,
                                   .target = n ? fu_strndup(&t->arena, at, n) : NULL};
        ir_plan *plan;
        fu_error_clear(&e);
        if (compile_plan(&t->arena, &e, &request, &plan) != FUSOR_OK)
            return e.status == FUSOR_ERROR_ARGUMENT ? tool_usage(t, "%s", e.text) : tool_fail(t, &e);
        if (w->is_why) compile_choose_held(&t->arena, &e, &request, &plan);
        for (uint32_t i = 0; i < plan->steps.n; i++) {
            if (plan->steps.at[i].kind != IR_STEP_KERNEL) continue;
            const ir_kernel *k = plan->steps.at[i].kernel;
            int status = w->is_why ? explain_kernel(w, label, k) : warm_kernel(w, k);
            if (status) return status;
        }
        if (!at[n]) return 0;
        at += n + 1;
    }
}

/* --dim B=1,32: those of the options that name a size of this function. */
static int find_dims(walk *w, const ir_graph *g, inputs *in) {
    tool *t = w->t;
    tool_words all = t->dims, own = {0};
    for (uint32_t i = 0; i < all.n; i++) {
        const char *equals = strchr(all.at[i], '=');
        if (!equals) return tool_usage(t, "--dim %s: expected NAME=SIZE or NAME=SIZE,SIZE", all.at[i]);
        if (ir_size_find_symbol(g->sizes, fu_strndup(&t->arena, all.at[i], (size_t)(equals - all.at[i]))) >= 0)
            fu_push(&t->arena, &own, all.at[i]);
    }
    w->n_dims_used += (int)own.n;
    t->dims = own;
    int status = inputs_dims(t, g, in);
    t->dims = all;
    return status;
}

static int walk_sizes(walk *w, const program *p, const ir_graph *g) {
    tool *t = w->t;
    inputs in = {0};
    int status = find_dims(w, g, &in);
    if (status || !in.dims.n) return status ? status : walk_function(w, p, g->name, g->name);
    ir_graph *flat;
    fu_error e;
    fu_error_clear(&e);
    if (ir_flatten(&t->arena, &e, p->module, g, &flat) != FUSOR_OK) return tool_fail(t, &e);
    if ((status = inputs_check_dims(t, flat, &in)) != 0) return status;
    if ((status = walk_function(w, p, g->name, g->name)) != 0) return status;
    int64_t *values = FU_NEW_N(&t->arena, int64_t, ir_size_symbol_count(g->sizes) + 1);
    int *choice = FU_NEW_N(&t->arena, int, in.dims.n);
    do {
        fu_str label;
        fu_str_init(&label, &t->arena);
        fu_str_add(&label, g->name);
        for (uint32_t i = 0; i < ir_size_symbol_count(g->sizes); i++) values[i] = -1;
        for (uint32_t i = 0; i < in.dims.n; i++) {
            values[in.dims.at[i].symbol] = in.dims.at[i].value[choice[i]];
            fu_str_addf(&label, " %s=%lld", ir_size_symbol_name(g->sizes, in.dims.at[i].symbol),
                        (long long)in.dims.at[i].value[choice[i]]);
        }
        program sized;
        const char *name;
        status = program_specialize(t, p, g, values, &sized, &name);
        if (!status) status = walk_function(w, &sized, name, label.at);
    } while (!status && inputs_next_sizes(&in, choice));
    return status;
}

/* The functions that args[*from ...] name, which are taken; where none is named, all. */
static int walk_program(walk *w, const program *p, uint32_t *from) {
    const tool_words *args = &w->t->args;
    const uint32_t first = *from;
    int status = 0;
    for (; *from < args->n && args->at[*from][0] == '@' && !status; ++*from) {
        ir_graph *g;
        status = program_find(w->t, p, args->at[*from] + 1, &g);
        if (!status) status = walk_sizes(w, p, g);
    }
    for (uint32_t f = 0; *from == first && f < p->module->functions.n && !status; f++)
        status = walk_sizes(w, p, p->module->functions.at[f]);
    return status;
}

static int walk_all(walk *w) {
    tool *t = w->t;
    int status;
    if (t->args.n < 2 && !t->text)
        return tool_usage(t, "cache %s: expected FILE [@FUNC ...] ... or -e TEXT", t->args.at[0]);
    if (!t->text && t->args.at[1][0] == '@')
        return tool_usage(t, "cache %s: expected FILE before %s", t->args.at[0], t->args.at[1]);
    w->targets = t->target ? t->target : fu_strdup(&t->arena, fu_env_string(FU_FUSOR_TARGET));
    t->target = NULL; /* the context is the host's: nothing runs */
    (void)unsetenv("FUSOR_TARGET");
    if ((status = tool_context(t, 0)) != 0) return status;
    if (!w->is_why && !rt_cache_dir(t->ctx->cache)[0])
        return tool_environment(t, "there is no cache directory to warm");
    program p;
    uint32_t at = 1, unused;
    if (t->text && (status = program_load(t, &p, &unused)) == 0) status = walk_program(w, &p, &at);
    if (t->text && !status && at < t->args.n) return tool_usage(t, "argument '%s' was not expected", t->args.at[at]);
    while (!t->text && at < t->args.n && !status) {
        status = program_read(t, t->args.at[at++], &p);
        if (!status) status = walk_program(w, &p, &at);
    }
    if (!status && t->dims.n && !w->n_dims_used)
        return tool_usage(t, "--dim %s: no function has a size of this name", t->dims.at[0]);
    return status;
}

int cache_warm(tool *t) {
    walk w = {.t = t};
    fu_error e;
    fu_error_clear(&e);
    if (t->outputs.n > 1) return tool_usage(t, "-o is given %u times; expected one file", t->outputs.n);
    int status = tool_no_stdout(t, "-o", t->outputs.n ? t->outputs.at[0] : NULL);
    if (!status) status = walk_all(&w);
    if (status) return status;
    const char *dir = rt_cache_dir(t->ctx->cache), *bundle = t->outputs.n ? t->outputs.at[0] : NULL;
    int64_t written = 0;
    if (bundle && rt_cache_export_keys(&e, dir, (const uint8_t(*)[IR_KEY_BYTES])(const void *)w.keys.at, w.keys.n,
                                       bundle, &written) != FUSOR_OK)
        return tool_fail(t, &e);
    if (t->json) {
        json_t *d = report_new("fusor-cache-warm/1");
        (void)json_object_update_new(d, json_pack("{s:s, s:i, s:i, s:s?, s:I}", "directory", fu_utf8(&t->arena, dir),
                                                  "kernels", w.n_kernels, "compiled", w.n_made, "bundle",
                                                  bundle ? fu_utf8(&t->arena, bundle) : NULL, "bundle_entries",
                                                  (json_int_t)written));
        return report_print(t, d);
    }
    if (t->quiet) return 0;
    if (bundle) printf("%lld entries in %s\n", (long long)written, bundle);
    printf("%d kernel%s ready in %s, %d compiled now\n", w.n_kernels, w.n_kernels == 1 ? "" : "s", dir, w.n_made);
    return 0;
}

int cache_why(tool *t) {
    report_table table = {.t = t, .columns = 5, .left_mask = 31};
    walk w = {.t = t, .is_why = true, .table = &table, .kernels = t->json ? json_array() : NULL};
    report_row(&table, "function", "cache", "key", "kernel", "why");
    int status = walk_all(&w);
    if (status) {
        json_decref(w.kernels);
        return status;
    }
    if (t->json) {
        json_t *d = report_new("fusor-cache-why/1");
        (void)json_object_set_new(d, "directory", json_string(fu_utf8(&t->arena, rt_cache_dir(t->ctx->cache))));
        (void)json_object_set_new(d, "hits", json_integer(w.n_kernels - w.n_made));
        (void)json_object_set_new(d, "misses", json_integer(w.n_made));
        (void)json_object_set_new(d, "kernels", w.kernels);
        return report_print(t, d);
    }
    if (w.n_kernels) report_table_print(&table, stdout);
    if (!t->quiet) printf("%d kernel%s, %d would be compiled\n", w.n_kernels, w.n_kernels == 1 ? "" : "s", w.n_made);
    return 0;
}
