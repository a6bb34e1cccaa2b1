/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_LINE_TABLE_H
#define JIT_LINE_TABLE_H
/* From the DWARF line program of a kernel's object (.debug_line, relocated to offsets in the blob) to rows of offset
 * and line. */
#include "base/arena.h"
#include "base/error.h"
#include "ir/codegen_api.h"

/* bytes may be anything. Rows are sorted by offset, neighbours differ in line, offsets lie below code_bytes; line 0
 * ends a sequence. Errors: INTERNAL (malformed). */
fusor_status jit_line_table(const void *section, size_t bytes, uint64_t code_bytes, fu_arena *a,
                            fusor_codegen_line **rows_out, size_t *n_out, fu_error *err);
#endif
