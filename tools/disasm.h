/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TOOL_DISASM_H
#define TOOL_DISASM_H
/* Machine code beside the lines of the kernel's description that it comes from. */
#include "report.h"
#include "base/str.h"
#include "ir/codegen_api.h"

typedef struct disasm_counts {
    int instructions, stores, loads;
} disasm_counts; /* stores to the frame, loads from it */
/* text: rows "OFFSET: instruction" of FUSOR_CODEGEN_DISASM; lines: n_lines rows of the line table, or NULL. Adds the
 * rows to out, each stretch of a line below "; NUMBER: LINE"; appends to instructions, unless that is NULL. */
disasm_counts disasm_interleave(tool *t, fu_str *out, const char *text, const char *description,
                                const fusor_codegen_line *lines, size_t n_lines, json_t *instructions);
/* What the code generator makes of a description: LLVM IR, and instructions beside its lines. In the tool's arena; NULL
 * back: what is wrong is in *problem_out. */
const char *disasm_llvm(tool *t, const fusor_codegen_table *module, const char *description, const char *symbol,
                        const char **problem_out);
const char *disasm_code(tool *t, const fusor_codegen_table *module, const char *description, const char *symbol,
                        disasm_counts *counts_out, const char **problem_out);
#endif
