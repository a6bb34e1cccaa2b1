/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TOOL_REPORT_H
#define TOOL_REPORT_H
/* What the subcommands print: JSON documents, numbers for people, tables, and tensors as NumPy prints them. */
#include "options.h"
#include <jansson.h>

/* A document of this schema ("fusor-run/1"). */
json_t *report_new(const char *schema);
/* Prints it on stdout and frees it. The exit status. */
int report_print(tool *t, json_t *document);
/* NaN and infinities, which JSON lacks, become "nan", "inf", "-inf". */
json_t *report_real(double v);
/* The same of an element; a 64-bit integer as it is where JSON's writer has it (not u64 from 2^63 on). */
json_t *report_element(ir_dtype t, ir_bits bits);
json_t *report_shape(int rank, const int64_t *shape);
/* An object of sizes by name. */
json_t *report_dims(const ir_sizes *s, const int64_t *values);

/* In the tool's arena: "1.25 ms", "3.2 GB", "12.5" */
const char *report_ns(tool *t, double ns);
const char *report_bytes(tool *t, double bytes);
const char *report_rate(tool *t, double per_second, const char *unit);
const char *report_shape_text(tool *t, ir_dtype dtype, int rank, const int64_t *shape);

/* Columns that fit their widest cell; the first column is flush left, the others right unless left_mask has their
 * bit. */
typedef struct report_table {
    tool *t;
    int columns;
    uint32_t left_mask;
    fu_vec(const char *) cells;
} report_table;
/* On one line, and nothing that the terminal would obey. */
const char *report_shown(tool *t, const char *text);
void report_row(report_table *table, ...); /* columns strings */
void report_table_print(report_table *table, FILE *out);

typedef struct report_summary {
    double min, max, mean;
    ir_bits least, most; /* min and max as they are in the tensor */
    int64_t n, n_nan;
} report_summary;
/* Over the elements that are no NaN; n counts all. */
report_summary report_summarize(const fusor_buffer *b);
/* The elements, or the corners of a large tensor, as NumPy prints them. */
void report_tensor(tool *t, FILE *out, const fusor_buffer *b);
/* Flushes stdout. 0, also where the reader has gone away; else the exit status after a message. */
int report_flush(tool *t);
#endif
