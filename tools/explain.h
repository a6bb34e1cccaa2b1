/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TOOL_EXPLAIN_H
#define TOOL_EXPLAIN_H
/* The forms of fusor explain that are made of its document ("fusor-explain/1"). */
#include "report.h"
#include "base/str.h"
#include "ir/codegen_api.h"

/* explain_html.c: one self-contained page: the graph with kernels as boxes, and for each kernel its statements,
 * description, LLVM IR and machine code. module: NULL where there is no code generator; `problem` then says why. */
void explain_html(tool *t, fu_str *o, const json_t *document, const fusor_codegen_table *module, const char *problem);
/* explain_graph.c: the kernels in layers, as SVG; boxes are links to #kN. */
void explain_graph(tool *t, fu_str *o, const json_t *document);
static inline const char *explain_text_of(const json_t *o, const char *name) {
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}
static inline double explain_number(const json_t *o, const char *name) {
    return json_number_value(json_object_get(o, name));
}
/* Measured where it was, else estimated. */
static inline double explain_ns(const json_t *kernel) {
    return json_object_get(kernel, "measured_ns") ? explain_number(kernel, "measured_ns")
                                                  : explain_number(kernel, "estimated_ns");
}
/* The colour of a kind, a series of html.h. */
int explain_series(const char *kind);
#endif
