/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* explain.c: a plan as a JSON document ("fusor-explain/1"): kernels, boundaries with their reasons, memory, and the same
 * function unfused. `fusor explain` prints its text form from the same document. */
#include "context.h"
#include "rt/compiler.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

/* Sizes that nobody gave stand at this; the document says so. */
enum { ASSUMED_SIZE = 1024 };

typedef struct totals { int kernels; double bytes, peak_bytes, flops; } totals;

static double buffer_bytes(const ir_plan *p, int i, const int64_t *symbols) {
    const ir_plan_buffer *b = &p->buffers.at[i];
    double n = ir_dtypes[b->dtype].bytes;
    for (int d = 0; d < b->rank; d++) {
        int64_t v;
        if (ir_size_eval(p->graph->sizes, b->dim[d], symbols, &v) != IR_SIZE_OK) return 0;
        n *= (double)v;
    }
    return n;
}

static totals sum_up(const ir_plan *p, const int64_t *symbols) {
    totals t = {0};
    for (uint32_t i = 0; i < p->steps.n; i++) {
        ir_cost c = ir_step_cost(p, (int)i, symbols);
        double live = 0;
        t.kernels += p->steps.at[i].kind != IR_STEP_COPY && p->steps.at[i].kind != IR_STEP_CHECK;
        t.bytes += c.bytes_read + c.bytes_written;
        t.flops += c.flops;
        for (uint32_t b = 0; b < p->buffers.n; b++)
            if (p->buffers.at[b].storage == IR_STORE_TEMP && p->buffers.at[b].first_step <= (int)i && p->buffers.at[b].last_step >= (int)i)
                live += buffer_bytes(p, (int)b, symbols);
        if (live > t.peak_bytes) t.peak_bytes = live;
    }
    return t;
}

static json_t *totals_json(const totals *t) {
    return json_pack("{s:i, s:I, s:I, s:I}", "kernels", t->kernels, "bytes", (json_int_t)t->bytes, "peak_bytes", (json_int_t)t->peak_bytes,
                     "flops", (json_int_t)t->flops);
}

static const char *node_name(const ir_graph *g, ir_id id) {
    const ir_node *n = ir_at(g, id);
    for (uint32_t r = 0; r < g->results.n; r++)
        if (g->results.at[r].node == id) return g->results.at[r].name;
    return n->name ? n->name : ir_ops[n->op].name;
}

static const char *buffer_name(const ir_plan *p, int i) {
    const ir_plan_buffer *b = &p->buffers.at[i];
    if (b->storage == IR_STORE_INPUT) return p->graph->params.at[b->index].name;
    if (b->storage == IR_STORE_OUTPUT) return p->graph->results.at[b->index].name;
    return b->storage == IR_STORE_LITERAL ? "literal" : node_name(p->graph, b->node);
}

/* Time that moving the bytes or doing the arithmetic takes on a modest core of the level: a constant of the level, not measured. */
static double estimate_ns(const ir_plan *p, const ir_cost *c) {
    double memory = (c->bytes_read + c->bytes_written) / 10, compute = c->flops / (2.0 * ir_levels[p->options.level].lanes);
    return 200 + (memory > compute ? memory : compute);
}

static void add_kernel_fields(fu_arena *arena, const ir_plan *p, const ir_step *s, json_t *o) {
    const ir_kernel *k = s->kernel;
    uint8_t key[IR_KEY_BYTES];
    char symbol[IR_SYMBOL_MAX], hex[2 * IR_KEY_BYTES + 1];
    fu_str text, loop;
    fu_str_init(&text, arena);
    fu_str_init(&loop, arena);
    ir_kernel_print(&text, k);
    ir_kernel_key(text.at, text.n, rt_build_id(), key);
    ir_kernel_symbol(k, key, symbol);
    for (int b = 0; b < IR_KEY_BYTES; b++) snprintf(hex + 2 * b, 3, "%02x", key[b]);
    for (int d = 0; d < k->n_dims; d++) {
        fu_str_addf(&loop, "%s%c=", d ? " " : "", k->dim[d].role);
        ir_size_print(&loop, p->graph->sizes, s->dim[d]);
    }
    (void)json_object_set_new(o, "key", json_string(hex));
    (void)json_object_set_new(o, "symbol", json_string(symbol));
    (void)json_object_set_new(o, "loop", json_string(loop.at ? loop.at : ""));
    if (k->kind == IR_KERNEL_CONTRACT || k->kind == IR_KERNEL_WINDOW)
        (void)json_object_set_new(o, "tile", json_pack("{s:i, s:i, s:i}", "rows", k->tile.mr, "columns", k->tile.nr, "k_block", k->tile.kb));
    (void)json_object_set_new(o, "vector", json_integer(ir_levels[k->level].lanes));
}

static json_t *step_json(fu_arena *arena, const ir_plan *p, const rt_exec *exec, int i, const int64_t *symbols) {
    const ir_step *s = &p->steps.at[i];
    ir_cost c = ir_step_cost(p, i, symbols);
    json_t *o = json_object(), *ops = json_array(), *reads = json_array(), *writes = json_array();
    static const char *const kinds[] = {"kernel", "reference", "check", "copy"};
    (void)json_object_set_new(o, "kind", json_string(s->kind == IR_STEP_KERNEL ? ir_kernel_kind_names[s->kernel->kind] : kinds[s->kind]));
    (void)json_object_set_new(o, "key", json_string(""));
    for (int k = 0; k < s->n_ops; k++) {
        const ir_node *n = ir_at(p->graph, s->ops[k]);
        (void)json_array_append_new(ops, json_string(ir_ops[n->op].name));
        if (n->meta_name) (void)json_object_set_new(o, "name", json_string(n->meta_name));
    }
    for (int a = 0; a < s->n_args; a++) {
        bool is_output = s->kind == IR_STEP_KERNEL ? s->kernel->buffer[a].is_output : a + 1 == s->n_args && s->kind != IR_STEP_CHECK;
        (void)json_array_append_new(is_output ? writes : reads, json_string(buffer_name(p, s->arg[a])));
    }
    (void)json_object_set_new(o, "ops", ops);
    (void)json_object_set_new(o, "reads", reads);
    (void)json_object_set_new(o, "writes", writes);
    (void)json_object_set_new(o, "bytes_read", json_integer((json_int_t)c.bytes_read));
    (void)json_object_set_new(o, "bytes_written", json_integer((json_int_t)c.bytes_written));
    (void)json_object_set_new(o, "flops", json_integer((json_int_t)c.flops));
    (void)json_object_set_new(o, "estimated_ns", json_real(estimate_ns(p, &c)));
    if (s->kind == IR_STEP_KERNEL) add_kernel_fields(arena, p, s, o);
    else (void)json_object_set_new(o, "reason", json_string(s->reason ? s->reason : ""));
    if (exec && s->kind == IR_STEP_KERNEL) {
        const rt_step_info *info = rt_exec_step(exec, i);
        static const char *const sources[] = {"memory", "disk", "compiled"};
        (void)json_object_set_new(o, "source", json_string(sources[info->outcome.source]));
        (void)json_object_set_new(o, "ready_ns", json_integer(info->outcome.ns));
    }
    return o;
}

static json_t *boundaries_json(const ir_plan *p) {
    json_t *a = json_array();
    for (uint32_t i = 0; i < p->boundaries.n; i++) {
        const ir_boundary *b = &p->boundaries.at[i];
        (void)json_array_append_new(a, json_pack("{s:i, s:i, s:s, s:s, s:s}", "from", b->from, "to", b->to, "value", node_name(p->graph, b->value),
                                                 "reason", ir_reason_names[b->reason], "text", ir_reason_texts[b->reason]));
    }
    return a;
}

static json_t *memory_json(const ir_plan *p, const int64_t *symbols) {
    json_t *a = json_array();
    for (uint32_t i = 0; i < p->buffers.n; i++) {
        const ir_plan_buffer *b = &p->buffers.at[i];
        if (b->storage == IR_STORE_OUTPUT && b->first_step >= 0 && p->graph->results.at[b->index].alias >= 0)
            (void)json_array_append_new(a, json_pack("{s:s, s:s, s:i, s:i, s:i, s:s}", "value", p->graph->results.at[b->index].name, "dtype", ir_dtypes[b->dtype].name,
                                                     "bytes", 0, "first", b->first_step, "last", b->last_step, "in_place",
                                                     p->graph->params.at[p->graph->results.at[b->index].alias].name));
        if (b->storage != IR_STORE_TEMP || b->first_step < 0) continue;
        (void)json_array_append_new(a, json_pack("{s:s, s:s, s:I, s:i, s:i}", "value", node_name(p->graph, b->node), "dtype", ir_dtypes[b->dtype].name,
                                                 "bytes", (json_int_t)buffer_bytes(p, (int)i, symbols), "first", b->first_step, "last", b->last_step));
    }
    return a;
}

fusor_status explain_json(fu_arena *arena, fu_error *e, const ir_plan *plan, const rt_exec *exec, const int64_t *symbol_values, char **out) {
    const ir_graph *g = plan->graph;
    uint32_t n = ir_size_symbol_count(g->sizes);
    int64_t *symbols = FU_NEW_N(arena, int64_t, n + 1);
    bool is_assumed = false;
    for (uint32_t i = 0; i < n; i++) {
        symbols[i] = symbol_values && symbol_values[i] >= 0 ? symbol_values[i] : ASSUMED_SIZE;
        is_assumed |= !symbol_values || symbol_values[i] < 0;
    }
    /* The graph of an executable is never written to: the unfused plan is made of a copy. */
    ir_plan_options options = plan->options;
    options.no_fuse = true;
    ir_plan *unfused;
    FU_TRY(ir_plan_make(arena, e, ir_graph_copy_live(arena, g), &options, &unfused));
    totals fused = sum_up(plan, symbols), apart = sum_up(unfused, symbols);

    char target[IR_TARGET_MAX];
    json_t *d = json_pack("{s:s, s:s, s:s, s:b}", "schema", "fusor-explain/1", "function", g->name, "target", ir_target_name((ir_target){plan->options.level, plan->options.features}, target), "assumed", is_assumed);
    json_t *dims = json_object(), *kernels = json_array();
    for (uint32_t i = 0; i < n; i++) (void)json_object_set_new(dims, ir_size_symbol_name(g->sizes, i), json_integer(symbols[i]));
    for (uint32_t i = 0; i < plan->steps.n; i++) (void)json_array_append_new(kernels, step_json(arena, plan, exec, (int)i, symbols));
    (void)json_object_set_new(d, "dims", dims);
    (void)json_object_set_new(d, "kernels", kernels);
    (void)json_object_set_new(d, "boundaries", boundaries_json(plan));
    (void)json_object_set_new(d, "fused", totals_json(&fused));
    (void)json_object_set_new(d, "unfused", totals_json(&apart));
    (void)json_object_set_new(d, "memory", memory_json(plan, symbols));
    const size_t flags = JSON_INDENT(1) | JSON_REAL_PRECISION(17), bytes = d ? json_dumpb(d, NULL, 0, flags) : 0;
    char *text = bytes ? fu_malloc(bytes + 1) : NULL;
    if (text) text[json_dumpb(d, text, bytes, flags)] = 0;
    json_decref(d);
    if (!text) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "out of memory while explaining @%s", g->name);
    *out = text;
    return FUSOR_OK;
}
