/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* explain_text.c: the document of explain.c for a terminal. Read from the document alone, so that what is printed is in
 * it. */
#include "base/small.h"
#include "context.h"
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <math.h>

static const char *text_of(const json_t *o, const char *name) {
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}
/* What the user wrote: on one line, and nothing that the terminal would obey. */
static const char *shown(fu_str *o, const json_t *s, const char *name) {
    char *text = fu_strdup(o->arena, text_of(s, name));
    (void)fu_make_printable(text, false);
    return text;
}
static double number_of(const json_t *o, const char *name) { return json_number_value(json_object_get(o, name)); }

/* "1.25 ms" */
static void add_scaled(fu_str *o, double v, const char *const *units, int n) {
    int i = 0;
    while (i + 1 < n && fabs(v) >= 1000) v /= 1000, i++;
    int digits = fabs(v) >= 100 || (i == 0 && v == floor(v)) ? 0 : fabs(v) >= 10 ? 1 : 2;
    fu_str_addf(o, "%.*f %s", digits, v, units[i]);
}
static void add_ns(fu_str *o, double ns) { add_scaled(o, ns, (const char *const[]){"ns", "us", "ms", "s"}, 4); }
static void add_bytes(fu_str *o, double v) { add_scaled(o, v, (const char *const[]){"B", "KB", "MB", "GB", "TB"}, 5); }
static void add_count(fu_str *o, double v) {
    add_scaled(o, v, (const char *const[]){"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"}, 5);
}

static void add_words(fu_str *o, const json_t *list, const char *prefix) {
    size_t i;
    json_t *w;
    json_array_foreach((json_t *)list, i, w) fu_str_addf(o, "%s%s%s", i ? " " : "", prefix, json_string_value(w));
}

static void add_schedule(fu_str *o, const json_t *k) {
    const json_t *s = json_object_get(k, "schedule"), *tile = json_object_get(s, "tile");
    fu_str_addf(o, "  loop     %s; %s\n", text_of(k, "loop")[0] ? text_of(k, "loop") : "(one element)",
                text_of(s, "form"));
    if (json_object_get(s, "blocks")) { /* a GPU's */
        fu_str_addf(o, "  schedule %.0f block%s of %.0f threads in %.0f launch%s", number_of(s, "blocks"),
                    number_of(s, "blocks") == 1 ? "" : "s", number_of(s, "threads"), number_of(s, "phases"),
                    number_of(s, "phases") == 1 ? "" : "es");
        if (number_of(s, "shared_bytes") > 0) fu_str_add(o, ", shared "), add_bytes(o, number_of(s, "shared_bytes"));
        if (number_of(s, "scratch_bytes") > 0) fu_str_add(o, ", scratch "), add_bytes(o, number_of(s, "scratch_bytes"));
        fu_str_addc(o, '\n');
        return;
    }
    fu_str_addf(o, "  schedule %.0f lanes", number_of(s, "vector"));
    if (tile)
        fu_str_addf(o, ", register tile %.0f x %.0f, k block %.0f", number_of(tile, "rows"), number_of(tile, "columns"),
                    number_of(tile, "k_block"));
    fu_str_addf(o, "; %.0f tile%s in %.0f phase%s, %.0f thread%s", number_of(s, "tiles"),
                number_of(s, "tiles") == 1 ? "" : "s", number_of(s, "phases"), number_of(s, "phases") == 1 ? "" : "s",
                number_of(s, "threads"), number_of(s, "threads") == 1 ? "" : "s");
    if (number_of(s, "scratch_bytes") > 0) fu_str_add(o, ", scratch "), add_bytes(o, number_of(s, "scratch_bytes"));
    if (number_of(s, "shared_bytes") > 0) fu_str_add(o, ", shared "), add_bytes(o, number_of(s, "shared_bytes"));
    fu_str_addc(o, '\n');
}

static void add_statements(fu_str *o, const json_t *k) {
    size_t i;
    json_t *s;
    json_array_foreach(json_object_get(k, "statements"), i, s) {
        if (!text_of(s, "at")[0] && !text_of(s, "name")[0] && !text_of(s, "loc")[0]) continue;
        fu_str_addf(o, "  from     %s%s%%%s = %s", shown(o, s, "at"), text_of(s, "at")[0] ? " " : "",
                    text_of(s, "value"), text_of(s, "op"));
        if (text_of(s, "name")[0]) fu_str_addf(o, " \"%s\"", shown(o, s, "name"));
        if (text_of(s, "loc")[0]) fu_str_addf(o, " (%s)", shown(o, s, "loc"));
        fu_str_addc(o, '\n');
    }
}

static void add_times(fu_str *o, const json_t *k) {
    const bool is_measured = json_object_get(k, "measured_ns") != NULL;
    fu_str_add(o, "  time     estimated ");
    add_ns(o, number_of(k, "estimated_ns"));
    fu_str_addf(o, " (%s)", text_of(k, "estimated_limit"));
    if (is_measured) {
        fu_str_add(o, ", measured ");
        add_ns(o, number_of(k, "measured_ns"));
        if (strcmp(text_of(k, "limit"), "call") == 0)
            fu_str_addf(o, ": %.0f %% is the cost of a call", 100 * number_of(k, "limit_share"));
        else if (text_of(k, "limit")[0]) {
            fu_str_addf(o, ": %.0f %% of what %s allows (", 100 * number_of(k, "limit_share"), text_of(k, "limit"));
            add_ns(o, number_of(k, "limit_ns"));
            fu_str_addc(o, ')');
        }
    }
    fu_str_addc(o, '\n');
}

static void add_kernel(fu_str *o, size_t i, const json_t *k) {
    fu_str_addf(o, "\nkernel %zu: %s: ", i, text_of(k, "kind"));
    add_words(o, json_object_get(k, "ops"), "");
    fu_str_addc(o, '\n');
    if (text_of(k, "key")[0]) {
        fu_str_addf(o, "  symbol   %s\n", text_of(k, "symbol"));
        add_schedule(o, k);
    } else {
        fu_str_addf(o, "  because  %s\n", text_of(k, "reason"));
    }
    add_statements(o, k);
    fu_str_add(o, "  data     reads ");
    if (json_array_size(json_object_get(k, "reads"))) add_words(o, json_object_get(k, "reads"), "%");
    else fu_str_add(o, "nothing");
    fu_str_add(o, "; writes ");
    if (json_array_size(json_object_get(k, "writes"))) add_words(o, json_object_get(k, "writes"), "%");
    else fu_str_add(o, "nothing");
    fu_str_add(o, "; ");
    add_bytes(o, number_of(k, "bytes_read"));
    fu_str_add(o, " in, ");
    add_bytes(o, number_of(k, "bytes_written"));
    fu_str_add(o, " out, ");
    add_count(o, number_of(k, "flops"));
    fu_str_addc(o, '\n');
    add_times(o, k);
}

static void add_totals(fu_str *o, const char *name, const json_t *x) {
    fu_str_addf(o, "%-8s %.0f kernel%s, ", name, number_of(x, "kernels"), number_of(x, "kernels") == 1 ? "" : "s");
    add_bytes(o, number_of(x, "bytes"));
    fu_str_add(o, " moved, peak of temporaries ");
    add_bytes(o, number_of(x, "peak_bytes"));
    if (number_of(x, "temp_bytes") > number_of(x, "peak_bytes")) {
        fu_str_add(o, " (of ");
        add_bytes(o, number_of(x, "temp_bytes"));
        fu_str_add(o, ", by reuse)");
    }
    if (number_of(x, "measured_ns") > 0) fu_str_add(o, ", a call takes "), add_ns(o, number_of(x, "measured_ns"));
    fu_str_addc(o, '\n');
}

static void add_memory(fu_str *o, const json_t *d) {
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(d, "memory"), i, v) {
        if (i == 0) fu_str_addc(o, '\n');
        if (json_object_get(v, "in_place") && number_of(v, "bytes") == 0) {
            fu_str_addf(o, "memory %%%s: in place of %%%s, written by kernel %.0f\n", text_of(v, "value"),
                        text_of(v, "in_place"), number_of(v, "last"));
            continue;
        }
        fu_str_addf(o, "memory %%%s: ", text_of(v, "value"));
        if (json_object_get(v, "in_place")) fu_str_addf(o, "in place of %%%s, ", text_of(v, "in_place"));
        if (json_object_get(v, "part_of")) fu_str_addf(o, "part of %%%s, ", text_of(v, "part_of"));
        add_bytes(o, number_of(v, "bytes"));
        fu_str_addf(o, ", kernels %.0f to %.0f\n", number_of(v, "first"), number_of(v, "last"));
    }
}

void explain_text(fu_str *o, const char *json) {
    json_t *d = json_loads(json, 0, NULL), *v;
    const char *name;
    size_t i;
    if (!d) return; /* no memory: the caller sees that nothing was added */
    fu_str_addf(o, "@%s for %s", text_of(d, "function"), text_of(d, "target"));
    json_object_foreach(json_object_get(d, "dims"), name, v)
        fu_str_addf(o, ", %s=%" JSON_INTEGER_FORMAT, name, json_integer_value(v));
    const bool is_gpu = strncmp(text_of(d, "target"), "sm_", 3) == 0;
    if (!is_gpu) fu_str_addf(o, ", %.0f thread%s", number_of(d, "threads"), number_of(d, "threads") == 1 ? "" : "s");
    fu_str_addf(o, "%s\n", json_is_true(json_object_get(d, "assumed")) ? " (sizes not given are assumed: --dim)" : "");
    if (text_of(d, "auto")[0]) fu_str_addf(o, "auto     %s\n", text_of(d, "auto"));
    add_totals(o, "fused", json_object_get(d, "fused"));
    add_totals(o, "unfused", json_object_get(d, "unfused"));
    json_array_foreach(json_object_get(d, "kernels"), i, v) add_kernel(o, i, v);
    json_array_foreach(json_object_get(d, "boundaries"), i, v) {
        fu_str_addf(o, "%sboundary %.0f -> %.0f at %%%s (", i ? "" : "\n", number_of(v, "from"), number_of(v, "to"),
                    text_of(v, "value"));
        add_bytes(o, number_of(v, "bytes"));
        fu_str_addf(o, "): %s: %s\n", text_of(v, "reason"), text_of(v, "text"));
    }
    add_memory(o, d);
    json_decref(d);
}
