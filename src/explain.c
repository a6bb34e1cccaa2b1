/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* explain.c: a plan as a JSON document ("fusor-explain/1"): kernels, boundaries with their reasons, memory, and the
 * same function unfused. `fusor explain` prints its text form from the same document. */
#include "base/small.h"
#include "context.h"
#include "ir/gpu.h"
#include "ir/pass.h"
#include "rt/compiler.h"
#include "rt/tune.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

typedef struct totals {
    int kernels;
    double bytes, peak_bytes, temp_bytes, flops;
} totals; /* peak: of temps that live at once; temp: of all */

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

/* Of its own, for one call. */
static bool has_memory(const ir_plan_buffer *b) { return b->storage == IR_STORE_TEMP && b->part_of < 0; }

static totals sum_up(const ir_plan *p, const int64_t *symbols) {
    totals t = {0};
    for (uint32_t i = 0; i < p->steps.n; i++) {
        ir_cost c = ir_step_cost(p, (int)i, symbols);
        double live = 0;
        t.kernels += p->steps.at[i].kind != IR_STEP_COPY && p->steps.at[i].kind != IR_STEP_CHECK;
        t.bytes += c.bytes_read + c.bytes_written;
        t.flops += c.flops;
        for (uint32_t b = 0; b < p->buffers.n; b++)
            if (has_memory(&p->buffers.at[b]) && p->buffers.at[b].first_step <= (int)i &&
                p->buffers.at[b].last_step >= (int)i)
                live += buffer_bytes(p, (int)b, symbols);
        if (live > t.peak_bytes) t.peak_bytes = live;
    }
    for (uint32_t b = 0; b < p->buffers.n; b++)
        if (has_memory(&p->buffers.at[b]) && p->buffers.at[b].first_step >= 0)
            t.temp_bytes += buffer_bytes(p, (int)b, symbols);
    return t;
}

/* What leaves 64 bits, of sizes that are assumed, stands at the end of them. */
static json_int_t count(double n) { return n < 0x1p63 ? (json_int_t)n : INT64_MAX; }

static json_t *totals_json(const totals *t) {
    return json_pack("{s:i, s:I, s:I, s:I, s:I}", "kernels", t->kernels, "bytes", count(t->bytes), "peak_bytes",
                     count(t->peak_bytes), "temp_bytes", count(t->temp_bytes), "flops", count(t->flops));
}

/* A plan with sizes that somebody gave, or might give, is one that could run. */
static fusor_status check_plan(fu_error *e, const ir_plan *p, const totals *t, const int64_t *symbols) {
    for (uint32_t i = 0; i < p->steps.n; i++) {
        const ir_step *s = &p->steps.at[i];
        int64_t size[IR_KERNEL_MAX_DIMS];
        if (s->kind != IR_STEP_KERNEL) continue;
        for (int d = 0; d < s->kernel->n_dims; d++)
            if (ir_size_eval(p->graph->sizes, s->dim[d], symbols, &size[d]) != IR_SIZE_OK) size[d] = INT64_MAX;
        if (!ir_kernel_is_countable(s->kernel, size))
            return FU_FAIL(e, FUSOR_ERROR_SHAPE, "a kernel of @%s would have more than 2^52 steps with these sizes",
                           p->graph->name);
    }
    if (t->bytes < 0x1p63 && t->temp_bytes < 0x1p63 && t->flops < 0x1p63) return FUSOR_OK;
    return FU_FAIL(e, FUSOR_ERROR_SHAPE, "the bytes or operations of @%s overflow 64 bits with these sizes",
                   p->graph->name);
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

/* Time that moving the bytes or doing the arithmetic takes on a modest core of the level: constants of the level, not
 * measured, so that two machines print the same. */
/* A GPU: 1 TB/s, 20 TFLOP/s, or what is known of the one that is there. */
static double estimate_gpu_ns(const rt_limits *l, const ir_cost *c, const char **limit_out) {
    enum { LAUNCH_NS = 5000, BYTES_A_NS = 1000, OPERATIONS_A_NS = 20000 };
    const double rate = l ? l->bandwidth[RT_LIMIT_MEMORY] / 1e9 : BYTES_A_NS,
                 peak = l ? l->peak[RT_LIMIT_F32] / 1e9 : OPERATIONS_A_NS;
    const double memory = (c->bytes_read + c->bytes_written) / rate, compute = c->work / peak;
    const double most = memory > compute ? memory : compute;
    *limit_out = most < LAUNCH_NS ? "launch" : memory > compute ? "memory" : "arithmetic";
    return LAUNCH_NS + most;
}

static double estimate_ns(const ir_plan *p, const ir_cost *c, const rt_limits *limits, const char **limit_out) {
    if (ir_level_is_gpu(p->options.level))
        return estimate_gpu_ns(limits && limits->is_known ? limits : NULL, c, limit_out);
    enum { CALL_NS = 200, BYTES_A_NS = 10, OPERATIONS_A_NS = 8 }; /* a lane: two multiply-adds a cycle at 2 GHz */
    double memory = (c->bytes_read + c->bytes_written) / BYTES_A_NS,
           compute = c->work / (OPERATIONS_A_NS * ir_levels[p->options.level].lanes);
    double most = memory > compute ? memory : compute;
    *limit_out = most < CALL_NS ? "call" : memory > compute ? "memory" : "arithmetic";
    return CALL_NS + most;
}

/* ---- one step ---- */
/* How its loops go, in words. */
static const char *contract_form_of(const ir_kernel *k, bool is_prepacked, const int64_t *tune) {
    if (k->is_direct) return "tiles: of small sizes that are known, in registers from first to last";
    if (is_prepacked) return "tiles: operand 1 packed once and kept, register tiles of the result, blocks of k";
    switch (tune[IR_TUNE_CONTRACT_B]) {
    case IR_CONTRACT_B_PACKED: return "tiles: operand 1 packed before, register tiles of the result, blocks of k";
    case IR_CONTRACT_B_IN_PLACE: return "tiles: operand 1 where it lies, register tiles of the result, blocks of k";
    case IR_CONTRACT_B_SWEPT: return "rows: few rows of operand 1 at a time, across columns whose sums L1 holds";
    default: return "tiles: operand 1 packed by each block, register tiles of the result, blocks of k";
    }
}

static const char *form_of(const ir_kernel *k, bool is_prepacked, const int64_t *tune) {
    switch (k->kind) {
    case IR_KERNEL_MAP:
        return ir_kernel_scatters_columns(k) ? "scatter: rows of updates in order"
               : ir_kernel_is_scatter(k)     ? "scatter: updates in order"
               : ir_kernel_is_transposed(k)  ? "transposed: blocks of rows and columns"
                                             : "every element once, in order";
    case IR_KERNEL_REDUCE:
        return ir_kernel_is_column(k) ? "columns: vectors of adjacent columns run down the rows"
                                      : "inner: vectors run along the reduced elements";
    case IR_KERNEL_ROW:
        return ir_kernel_is_column(k)
                   ? "columns: chunks of columns that the cache holds, as many sweeps down their rows "
                     "as the reductions need"
                   : "rows: as many sweeps over a row as its reductions need, then the next row";
    case IR_KERNEL_SCAN:
        return ir_kernel_is_column(k) ? "columns: vectors of adjacent columns run along the axis"
                                      : "lines: blocks of a line, with the totals before them";
    case IR_KERNEL_WINDOW:
        if (ir_window_is_tiled(k)) {
            if (k->band_rows) return "tile registers (AMX): channels by columns; rows go by scratch to what reads them";
            if (k->n_folded) return "tile registers (AMX): channels by columns; places along the last axes fill words";
            return "tile registers (AMX): channels by columns, no copy of the windows";
        }
        if (k->band_rows)
            return k->is_by_channel
                       ? "tiles: columns by vectors of channels, weights packed; rows go by scratch to what reads them"
                       : "tiles: channels by vectors of columns; rows go by scratch to what reads them";
        if (k->is_by_channel) return "tiles: columns by vectors of channels, weights packed, no copy of the windows";
        return "tiles: channels by vectors of columns, no copy of all windows";
    case IR_KERNEL_CONTRACT: return contract_form_of(k, is_prepacked, tune);
    case IR_KERNEL_ATTENTION:
        return "tiles: blocks of queries (m), each against all keys (j) a block at a time: scores, running softmax, "
               "sums of values";
    default: return "every element once";
    }
}

static const char *gpu_form_of(const ir_kernel *k) {
    switch (k->kind) {
    case IR_KERNEL_MAP: return "a thread an element, or several adjacent ones";
    case IR_KERNEL_REDUCE:
    case IR_KERNEL_ROW: return "a team of threads a row, or a thread a column";
    case IR_KERNEL_SCAN: return "a thread a line";
    case IR_KERNEL_CONTRACT:
    case IR_KERNEL_WINDOW: return "a block a tile of the result, operands through shared memory";
    case IR_KERNEL_ATTENTION: return "a block a tile of queries (m), keys (j) through shared memory";
    default: return "a thread an element";
    }
}

static void add_grid(const ir_plan *p, const ir_step *s, const int64_t *symbols, json_t *o) {
    const ir_kernel *k = s->kernel;
    int64_t size[IR_KERNEL_MAX_DIMS];
    ir_gpu_launch l;
    double blocks = 0, threads = 0, shared = 0;
    for (int d = 0; d < k->n_dims; d++)
        if (ir_size_eval(p->graph->sizes, s->dim[d], symbols, &size[d]) != IR_SIZE_OK) size[d] = 0;
    ir_gpu_plan(k, size, &l);
    for (int i = 0; i < l.n_phases; i++) {
        const double n = (double)l.grid[i][0] * l.grid[i][1] * l.grid[i][2],
                     each = (double)l.block[i][0] * l.block[i][1] * l.block[i][2];
        blocks += n;
        threads = each > threads ? each : threads;
        shared = l.shared_bytes[i] > shared ? l.shared_bytes[i] : shared;
    }
    (void)json_object_set_new(o, "schedule",
                              json_pack("{s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:I}", "form", gpu_form_of(k), "vector", 1,
                                        "threads", (int)threads, "phases", l.n_phases, "tiles", (json_int_t)blocks,
                                        "scratch_bytes", (json_int_t)l.scratch_bytes, "shared_bytes",
                                        (json_int_t)shared, "blocks", (json_int_t)blocks));
}

static void add_schedule(fu_arena *arena, const ir_plan *p, const ir_step *s, const int64_t *symbols, int n_threads,
                         json_t *o) {
    const ir_kernel *k = s->kernel;
    int64_t size[IR_KERNEL_MAX_DIMS], tune[IR_TUNE_COUNT] = {0}, tiles = 0;
    ir_launch launch;
    for (int d = 0; d < k->n_dims; d++)
        if (ir_size_eval(p->graph->sizes, s->dim[d], symbols, &size[d]) != IR_SIZE_OK) size[d] = 0;
    const int n = rt_tune_threads(k, size, n_threads);
    int64_t *stride = FU_NEW_N(arena, int64_t, k->n_buffers * k->n_dims + 1);
    for (int i = 0; i < k->n_buffers * k->n_dims; i++)
        if (ir_size_eval(p->graph->sizes, s->stride[i], symbols, &stride[i]) != IR_SIZE_OK) stride[i] = 0;
    rt_tune(k, size, stride, n, tune);
    ir_kernel_launch(k, size, tune, &launch);
    for (int i = 0; i < launch.n_phases; i++) tiles += launch.tiles[i];
    json_t *schedule =
        json_pack("{s:s, s:i, s:i, s:i, s:I, s:I, s:I}", "form", form_of(k, s->prepack_param >= 0, tune), "vector",
                  ir_levels[k->level].lanes, "threads", n, "phases", launch.n_phases, "tiles", (json_int_t)tiles,
                  "scratch_bytes", (json_int_t)launch.scratch_bytes, "shared_bytes", (json_int_t)launch.shared_bytes);
    if (k->kind == IR_KERNEL_CONTRACT || k->kind == IR_KERNEL_WINDOW)
        (void)json_object_set_new(
            schedule, "tile",
            json_pack("{s:i, s:i, s:i}", "rows", k->tile.mr, "columns", k->tile.nr, "k_block", k->tile.kb));
    (void)json_object_set_new(o, "schedule", schedule);
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
    (void)json_object_set_new(o, "description", json_string(text.at));
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

/* What statements of the steps are shown with; made once. */
typedef struct text_of {
    ir_printer *printer;
    const char **line; /* where lines of the source begin, from 1; NULL: there is no source */
    uint32_t n_lines;
} text_of;

static text_of find_text(fu_arena *arena, const ir_graph *g) {
    const fu_source *s = g->source;
    text_of t = {.printer = ir_printer_new(arena, g)};
    if (!s || !s->text) return t;
    for (size_t i = 0; i < s->length; i++) t.n_lines += s->text[i] == '\n';
    t.line = FU_NEW_N(arena, const char *, ++t.n_lines + 1);
    t.line[1] = s->text;
    for (size_t i = 0, k = 1; i < s->length; i++)
        if (s->text[i] == '\n') t.line[++k] = s->text + i + 1;
    return t;
}

/* The operator of the text at a place, and the values that its statement defines ("%h, %c"): what normalization made
 * several nodes of is called as the user wrote it. False: there is no text. */
static bool read_statement(fu_arena *arena, const text_of *t, const fu_source *source, fu_loc loc, const char **op_out,
                           const char **values_out) {
    if (!t->line || !loc.line || loc.line > t->n_lines) return false;
    const char *p = t->line[loc.line], *end = source->text + source->length, *start = p;
    for (uint32_t col = 1; p < end && *p != '\n' && (col < loc.col || ((unsigned char)*p & 0xc0) == 0x80); p++)
        col += ((unsigned char)*p & 0xc0) != 0x80;
    const char *op = p;
    if (p < end && *p == '@') p++;
    while (p < end && is_letter(*p)) p++;
    const char *q = op;
    while (q > start && (q[-1] == ' ' || q[-1] == '\t')) q--;
    if (p == op || q == start || q[-1] != '=') return false;
    const char *last = --q;
    while (q > start && (is_letter(q[-1]) || strchr(" ,%\t", q[-1]))) q--;
    while (q < last && *q != '%') q++;
    while (last > q && (last[-1] == ' ' || last[-1] == '\t')) last--;
    if (q == last) return false;
    *op_out = fu_strndup(arena, op, (size_t)(p - op));
    *values_out = fu_strndup(arena, q + 1, (size_t)(last - q - 1));
    return true;
}

/* The statements that the step computes something of: what the user wrote, where, and under which name. */
static json_t *statements_json(fu_arena *arena, const text_of *t, const ir_plan *p, const ir_step *s) {
    const ir_graph *g = p->graph;
    json_t *a = json_array();
    for (int k = 0; k < s->n_ops; k++) {
        const ir_node *n = ir_at(g, s->ops[k]);
        const char *op = ir_ops[n->op].name, *value = node_name(g, s->ops[k]);
        bool is_known = false;
        for (int j = 0; j < k && !is_known; j++) {
            const ir_node *m = ir_at(g, s->ops[j]);
            is_known = n->loc.line && m->loc.line == n->loc.line && m->loc.col == n->loc.col;
        }
        if (is_known) continue; /* another part of the same composite */
        (void)read_statement(arena, t, g->source, n->loc, &op, &value);
        json_t *o = json_pack("{s:s, s:s}", "op", op, "value", value);
        if (n->loc.line && g->source)
            (void)json_object_set_new(
                o, "at",
                json_string(fu_format(arena, "%s:%u:%u", g->source->name ? fu_utf8(arena, g->source->name) : "<text>",
                                      n->loc.line, n->loc.col)));
        if (n->meta_name) (void)json_object_set_new(o, "name", json_string(n->meta_name));
        if (n->meta_loc) (void)json_object_set_new(o, "loc", json_string(n->meta_loc));
        (void)json_array_append_new(a, o);
    }
    return a;
}

/* Once: a kernel may read a buffer in several ways. */
static void add_name(json_t *names, const char *name) {
    for (size_t i = 0; i < json_array_size(names); i++)
        if (strcmp(json_string_value(json_array_get(names, i)), name) == 0) return;
    (void)json_array_append_new(names, json_string(name));
}

static json_t *step_json(fu_arena *arena, const explain_request *r, const text_of *t, int i, const int64_t *symbols) {
    const ir_plan *p = r->plan;
    const ir_step *s = &p->steps.at[i];
    ir_cost c = ir_step_cost(p, i, symbols);
    const char *limit;
    const double estimated = estimate_ns(p, &c, r->limits, &limit);
    json_t *o = json_object(), *ops = json_array(), *reads = json_array(), *writes = json_array();
    static const char *const kinds[] = {"kernel", "reference", "check", "copy"};
    (void)json_object_set_new(
        o, "kind", json_string(s->kind == IR_STEP_KERNEL ? ir_kernel_kind_names[s->kernel->kind] : kinds[s->kind]));
    (void)json_object_set_new(o, "key", json_string(""));
    for (int k = 0; k < s->n_ops; k++) {
        const ir_node *n = ir_at(p->graph, s->ops[k]);
        (void)json_array_append_new(ops, json_string(ir_ops[n->op].name));
        if (n->meta_name) (void)json_object_set_new(o, "name", json_string(n->meta_name));
        if (n->meta_loc) (void)json_object_set_new(o, "loc", json_string(n->meta_loc));
    }
    for (int a = 0; a < s->n_args; a++) {
        bool is_output =
            s->kind == IR_STEP_KERNEL ? s->kernel->buffer[a].is_output : a + 1 == s->n_args && s->kind != IR_STEP_CHECK;
        if (p->buffers.at[s->arg[a]].storage != IR_STORE_BAND)
            add_name(is_output ? writes : reads, buffer_name(p, s->arg[a]));
    }
    (void)json_object_set_new(o, "ops", ops);
    (void)json_object_set_new(o, "statements", statements_json(arena, t, p, s));
    fu_str ir;
    fu_str_init(&ir, arena);
    ir_print_nodes(t->printer, &ir, s->ops, s->n_ops);
    (void)json_object_set_new(o, "ir", json_string(ir.at));
    (void)json_object_set_new(o, "reads", reads);
    (void)json_object_set_new(o, "writes", writes);
    (void)json_object_set_new(o, "bytes_read", json_integer(count(c.bytes_read)));
    (void)json_object_set_new(o, "bytes_written", json_integer(count(c.bytes_written)));
    (void)json_object_set_new(o, "flops", json_integer(count(c.flops)));
    (void)json_object_set_new(o, "work", json_integer(count(c.work)));
    (void)json_object_set_new(o, "estimated_ns", json_real(estimated));
    (void)json_object_set_new(o, "estimated_limit", json_string(limit));
    if (s->kind == IR_STEP_KERNEL) {
        add_kernel_fields(arena, p, s, o);
        if (ir_level_is_gpu(p->options.level)) add_grid(p, s, symbols, o);
        else add_schedule(arena, p, s, symbols, r->n_threads, o);
    } else (void)json_object_set_new(o, "reason", json_string(s->reason ? s->reason : ""));
    if (r->measured_ns) {
        const double ns = r->measured_ns[i];
        (void)json_object_set_new(o, "measured_ns", json_real(ns));
        if (r->limits) {
            rt_bound b =
                rt_limits_bound(r->limits, ir_step_work_type(p, i), c.bytes_read + c.bytes_written, c.work, ns);
            (void)json_object_set_new(o, "limit", json_string(b.limit));
            (void)json_object_set_new(o, "limit_share", json_real(b.share));
            (void)json_object_set_new(o, "limit_ns", json_real(b.least_ns));
        }
    }
    if (r->exec && s->kind == IR_STEP_KERNEL) {
        const rt_step_info *info = rt_exec_step(r->exec, i);
        static const char *const sources[] = {"memory", "disk", "compiled"};
        (void)json_object_set_new(o, "source", json_string(sources[info->outcome.source]));
        (void)json_object_set_new(o, "ready_ns", json_integer(info->outcome.ns));
    }
    return o;
}

static double value_bytes(const ir_plan *p, ir_id id, const int64_t *symbols) {
    const ir_node *n = ir_at(p->graph, id);
    double bytes = ir_dtypes[n->dtype].bytes;
    for (int d = 0; d < n->rank; d++) {
        int64_t v;
        if (ir_size_eval(p->graph->sizes, n->dim[d], symbols, &v) != IR_SIZE_OK) return 0;
        bytes *= (double)v;
    }
    return bytes;
}

static json_t *boundaries_json(const ir_plan *p, const int64_t *symbols) {
    json_t *a = json_array();
    for (uint32_t i = 0; i < p->boundaries.n; i++) {
        const ir_boundary *b = &p->boundaries.at[i];
        (void)json_array_append_new(a, json_pack("{s:i, s:i, s:s, s:s, s:s, s:I}", "from", b->from, "to", b->to,
                                                 "value", node_name(p->graph, b->value), "reason",
                                                 ir_reason_names[b->reason], "text", ir_reason_texts[b->reason],
                                                 "bytes", count(value_bytes(p, b->value, symbols))));
    }
    return a;
}

static json_t *memory_json(const ir_plan *p, const int64_t *symbols) {
    json_t *a = json_array();
    for (uint32_t i = 0; i < p->buffers.n; i++) {
        const ir_plan_buffer *b = &p->buffers.at[i];
        if (b->storage == IR_STORE_OUTPUT && b->first_step >= 0 && p->graph->results.at[b->index].alias >= 0)
            (void)json_array_append_new(
                a, json_pack("{s:s, s:s, s:i, s:i, s:i, s:s}", "value", p->graph->results.at[b->index].name, "dtype",
                             ir_dtypes[b->dtype].name, "bytes", 0, "first", b->first_step, "last", b->last_step,
                             "in_place", p->graph->params.at[p->graph->results.at[b->index].alias].name));
        if (b->storage != IR_STORE_TEMP || b->first_step < 0) continue;
        json_t *o = json_pack("{s:s, s:s, s:I, s:i, s:i}", "value", node_name(p->graph, b->node), "dtype",
                              ir_dtypes[b->dtype].name, "bytes", count(buffer_bytes(p, (int)i, symbols)), "first",
                              b->first_step, "last", b->last_step);
        if (b->part_of >= 0)
            (void)json_object_set_new(o, b->is_over ? "in_place" : "part_of", json_string(buffer_name(p, b->part_of)));
        (void)json_array_append_new(a, o);
    }
    return a;
}

/* ---- the document ---- */
static json_t *totals_json_of(const totals *t, double measured_ns) {
    json_t *o = totals_json(t);
    if (measured_ns > 0) (void)json_object_set_new(o, "measured_ns", json_real(measured_ns));
    return o;
}

fusor_status explain_json(fu_arena *arena, fu_error *e, const explain_request *r, char **out) {
    const ir_plan *plan = r->plan;
    const ir_graph *g = plan->graph;
    uint32_t n = ir_size_symbol_count(g->sizes);
    int64_t *symbols = FU_NEW_N(arena, int64_t, n + 1);
    bool is_assumed = false;
    for (uint32_t i = 0; i < n; i++) {
        symbols[i] = r->symbol_values && r->symbol_values[i] >= 0 ? r->symbol_values[i] : r->assumed_size;
        is_assumed |= !r->symbol_values || r->symbol_values[i] < 0;
    }
    /* The graph of an executable is never written to: the unfused plan is made of a copy. */
    ir_plan_options options = plan->options;
    options.no_fuse = true;
    ir_graph *copy = ir_graph_copy_live(arena, g->as_written ? g->as_written : g);
    FU_TRY(ir_normalize(arena, e, &copy, &options));
    ir_plan *unfused;
    FU_TRY(ir_plan_make(arena, e, copy, &options, &unfused));
    totals fused = sum_up(plan, symbols), apart = sum_up(unfused, symbols);
    if (r->symbol_values) {
        FU_TRY(check_plan(e, plan, &fused, symbols));
        FU_TRY(check_plan(e, unfused, &apart, symbols));
    }
    char target[IR_TARGET_MAX];
    ir_target_name((ir_target){plan->options.level, plan->options.features}, target);

    json_t *d = json_pack("{s:s, s:s, s:s, s:b, s:i}", "schema", "fusor-explain/1", "function", g->name, "target",
                          target, "assumed", is_assumed, "threads", r->n_threads);
    json_t *dims = json_object(), *kernels = json_array();
    const text_of source = find_text(arena, g);
    for (uint32_t i = 0; i < n; i++)
        (void)json_object_set_new(dims, ir_size_symbol_name(g->sizes, i), json_integer(symbols[i]));
    for (uint32_t i = 0; i < plan->steps.n; i++)
        (void)json_array_append_new(kernels, step_json(arena, r, &source, (int)i, symbols));
    if (r->choice) (void)json_object_set_new(d, "auto", json_string(r->choice));
    (void)json_object_set_new(d, "dims", dims);
    (void)json_object_set_new(d, "kernels", kernels);
    (void)json_object_set_new(d, "boundaries", boundaries_json(plan, symbols));
    (void)json_object_set_new(d, "fused", totals_json_of(&fused, r->fused_ns));
    (void)json_object_set_new(d, "unfused", totals_json_of(&apart, r->unfused_ns));
    (void)json_object_set_new(d, "memory", memory_json(plan, symbols));
    const size_t flags = JSON_INDENT(1) | JSON_REAL_PRECISION(17), bytes = d ? json_dumpb(d, NULL, 0, flags) : 0;
    char *text = bytes ? fu_malloc(bytes + 1) : NULL;
    if (text) text[json_dumpb(d, text, bytes, flags)] = 0;
    json_decref(d);
    if (!text) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "out of memory while explaining @%s", g->name);
    *out = text;
    return FUSOR_OK;
}
