/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_DEBUGGER_INTERNAL_H
#define RT_DEBUGGER_INTERNAL_H
/* What debugger.c and the files of its formats share. All under debugger.c's lock. */
#include "rt/debugger.h"

/* jitdump.c. file: path of the description's text, "" where there is none. */
void rt_jitdump_add(const char *symbol, const void *code, size_t bytes, const rt_code_debug *debug, const char *file);
/* dwarf.c: an ELF file with a symbol for the code, and its lines where it has them, in one block by fu_malloc; NULL: no
 * memory. */
void *rt_dwarf_file(const char *symbol, const void *code, size_t bytes, const rt_code_debug *debug, const char *file,
                    size_t *bytes_out);
#endif
