/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TOOL_EXPORT_H
#define TOOL_EXPORT_H
/* Ahead of time: a function as an object file (its kernels) and a C header (how they are called). */
#include "options.h"
#include "ir/codegen_api.h"

typedef struct export_kernel {
    const ir_kernel *k;
    fu_str text;
    char symbol[IR_SYMBOL_MAX], key[2 * IR_KEY_BYTES + 1];
} export_kernel;
typedef fu_vec(export_kernel) export_kernels;
typedef struct export_blob {
    const char *symbol;
    const void *data;
    size_t bytes;
    uint64_t entry, code_bytes;
} export_blob;

/* The names of the function and of its arguments, no two alike. Results that are an alias have the parameter's. */
typedef struct export_names {
    const char *function, **param, **result, **dim;
} export_names;
export_names export_make_names(tool *t, const ir_graph *g);
/* An ELF64 relocatable with all blobs in .text, one function symbol each (weak: the same kernel may come in another
 * object). */
void export_object(fu_str *out, const export_blob *blob, size_t n);
/* The header; reads the plan's sizes from --dim. written: the function as a run checks it, before the passes. 0, or the
 * exit status after a message. The plan is given away. */
int export_header(tool *t, const ir_graph *written, ir_plan *plan, const export_kernels *kernels, fu_str *out);
#endif
