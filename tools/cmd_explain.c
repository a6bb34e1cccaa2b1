/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cmd_explain.c: fusor explain. The document of src/explain.c, as it is or as text, a graph for dot, or a page. */
#include "html.h"
#include "inputs.h"
#include "report.h"
#include "base/file.h"
#include "ir/pass.h"
#include <inttypes.h>

static const char *text_of(const json_t *o, const char *name) {
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}
static double number_of(const json_t *o, const char *name) { return json_number_value(json_object_get(o, name)); }

static const char *words(tool *t, const json_t *list, const char *prefix) {
    fu_str s;
    size_t i;
    json_t *w;
    fu_str_init(&s, &t->arena);
    json_array_foreach(list, i, w) fu_str_addf(&s, "%s%s%s", i ? " " : "", prefix, json_string_value(w));
    return s.at ? s.at : "";
}

static const char *count_text(tool *t, double flops) {
    return flops >= 1e9 ? fu_format(&t->arena, "%.2f GFLOP", flops / 1e9) : flops >= 1e6 ? fu_format(&t->arena, "%.2f MFLOP", flops / 1e6)
                                                                              : fu_format(&t->arena, "%.0f FLOP", flops);
}

static void kernel_text(tool *t, fu_str *o, size_t i, const json_t *k) {
    const char *key = text_of(k, "key");
    fu_str_addf(o, "kernel %zu: %s: %s\n", i, text_of(k, "kind"), words(t, json_object_get(k, "ops"), ""));
    if (key[0]) fu_str_addf(o, "  %s\n  loop %s", text_of(k, "symbol"), text_of(k, "loop")[0] ? text_of(k, "loop") : "(one element)");
    else fu_str_addf(o, "  because %s", text_of(k, "reason"));
    const json_t *tile = json_object_get(k, "tile");
    if (tile) fu_str_addf(o, "; tile %.0f x %.0f, k block %.0f", number_of(tile, "rows"), number_of(tile, "columns"), number_of(tile, "k_block"));
    fu_str_addf(o, "\n  reads %s; writes %s\n", words(t, json_object_get(k, "reads"), "%"), words(t, json_object_get(k, "writes"), "%"));
    fu_str_addf(o, "  %s read, %s written, %s, about %s\n", report_bytes(t, number_of(k, "bytes_read")), report_bytes(t, number_of(k, "bytes_written")),
                count_text(t, number_of(k, "flops")), report_ns(t, number_of(k, "estimated_ns")));
}

static void as_text(tool *t, fu_str *o, const json_t *d) {
    const json_t *fused = json_object_get(d, "fused"), *unfused = json_object_get(d, "unfused"), *dims = json_object_get(d, "dims");
    const char *name;
    size_t i;
    json_t *v;
    fu_str_addf(o, "@%s for %s", text_of(d, "function"), text_of(d, "target"));
    json_object_foreach((json_t *)dims, name, v) fu_str_addf(o, ", %s=%" JSON_INTEGER_FORMAT, name, json_integer_value(v));
    fu_str_addf(o, "%s\n", json_is_true(json_object_get(d, "assumed")) ? " (sizes not given are assumed: --dim)" : "");
    for (int k = 0; k < 2; k++) {
        const json_t *x = k ? unfused : fused;
        fu_str_addf(o, "%s  %.0f kernel%s, %s moved, peak of temporaries %s\n", k ? "unfused" : "fused  ", number_of(x, "kernels"), number_of(x, "kernels") == 1 ? "" : "s",
                    report_bytes(t, number_of(x, "bytes")), report_bytes(t, number_of(x, "peak_bytes")));
    }
    json_array_foreach(json_object_get(d, "kernels"), i, v) kernel_text(t, o, i, v);
    json_array_foreach(json_object_get(d, "boundaries"), i, v)
        fu_str_addf(o, "boundary %.0f -> %.0f at %%%s: %s: %s\n", number_of(v, "from"), number_of(v, "to"), text_of(v, "value"), text_of(v, "reason"), text_of(v, "text"));
    json_array_foreach(json_object_get(d, "memory"), i, v) {
        if (json_object_get(v, "in_place")) {
            fu_str_addf(o, "memory %%%s: in place of %%%s, written by kernel %.0f\n", text_of(v, "value"), text_of(v, "in_place"), number_of(v, "last"));
            continue;
        }
        fu_str_addf(o, "memory %%%s: %s, kernels %.0f to %.0f\n", text_of(v, "value"), report_bytes(t, number_of(v, "bytes")), number_of(v, "first"), number_of(v, "last"));
    }
}

static void as_dot(tool *t, fu_str *o, const json_t *d) {
    size_t i;
    json_t *v;
    fu_str_addf(o, "digraph \"%s\" {\n  node [shape=box, fontname=\"monospace\"];\n", text_of(d, "function"));
    json_array_foreach(json_object_get(d, "kernels"), i, v)
        fu_str_addf(o, "  k%zu [label=\"%zu %s\\n%s\"];\n", i, i, text_of(v, "kind"), words(t, json_object_get(v, "ops"), ""));
    json_array_foreach(json_object_get(d, "boundaries"), i, v)
        fu_str_addf(o, "  k%.0f -> k%.0f [label=\"%%%s\\n%s\"];\n", number_of(v, "from"), number_of(v, "to"), text_of(v, "value"), text_of(v, "reason"));
    fu_str_add(o, "}\n");
}

static void as_html(tool *t, fu_str *o, const json_t *d) {
    fu_str text;
    fu_str_init(&text, &t->arena);
    as_text(t, &text, d);
    html_begin(o, fu_format(&t->arena, "@%s", text_of(d, "function")), NULL, NULL);
    fu_str_add(o, "<pre>");
    html_text(o, text.at);
    fu_str_add(o, "</pre>\n");
    html_end(o, NULL);
}

int cmd_explain(tool *t) {
    static const char *const formats[] = {"text", "json", "dot", "html"};
    program p;
    uint32_t used;
    ir_graph *graph;
    inputs in = {0};
    fu_error e;
    int format = t->json ? 1 : 0, status;
    ir_plan_options options = {.no_fuse = t->no_fuse, .fast_math = t->math && strcmp(t->math, "fast") == 0, .reference = t->device && strcmp(t->device, "reference") == 0};
    fu_error_clear(&e);
    ir_target target;
    if (t->format) {
        format = -1;
        for (int i = 0; i < 4; i++)
            if (strcmp(t->format, formats[i]) == 0) format = i;
        if (format < 0) return tool_usage(t, "--format %s: expected text, json, dot or html%s", t->format, tool_suggest(t, t->format, formats, 4, ""));
        if (t->json && format != 1) return tool_usage(t, "--json and --format %s: choose one", t->format);
    }
    if (t->outputs.n > 1) return tool_usage(t, "-o is given %u times; expected one file", t->outputs.n);
    if ((status = program_load(t, &p, &used)) != 0 || (status = program_function(t, &p, used, NULL, &graph)) != 0) return status;
    if (used < t->args.n) return tool_usage(t, "argument '%s' was not expected", t->args.at[used]);
    if ((status = inputs_dims(t, graph, &in)) != 0 || (status = tool_target(t, &target)) != 0) return status;
    options.level = target.level;
    options.features = target.features;
    if (ir_run_passes(&t->arena, &e, &graph) != FUSOR_OK) return tool_fail(t, &e);
    ir_plan *plan;
    if (ir_plan_make(&t->arena, &e, graph, &options, &plan) != FUSOR_OK) return tool_fail(t, &e);
    uint32_t n = ir_size_symbol_count(plan->graph->sizes);
    int64_t *symbols = FU_NEW_N(&t->arena, int64_t, n + 1);
    for (uint32_t i = 0; i < n; i++) symbols[i] = -1;
    for (uint32_t i = 0; i < in.dims.n; i++) symbols[in.dims.at[i].symbol] = in.dims.at[i].value[0];
    char *text;
    if (explain_json(&t->arena, &e, plan, NULL, symbols, &text) != FUSOR_OK) return tool_fail(t, &e);
    fu_str out;
    fu_str_init(&out, &t->arena);
    if (format == 1) fu_str_addf(&out, "%s\n", text);
    else {
        json_t *d = json_loads(text, 0, NULL);
        if (!d) {
            fu_free(text);
            return tool_environment(t, "out of memory");
        }
        (format == 0 ? as_text : format == 2 ? as_dot : as_html)(t, &out, d);
        json_decref(d);
    }
    fu_free(text);
    if (t->outputs.n == 0 || strcmp(t->outputs.at[0], "-") == 0) {
        (void)fwrite(out.at, 1, out.n, stdout);
        return 0;
    }
    fu_part part = {out.at, out.n};
    int why = fu_file_write_atomic(t->outputs.at[0], 0666, &part, 1);
    return why ? tool_environment(t, "%s: %s", t->outputs.at[0], strerror(why)) : 0;
}
