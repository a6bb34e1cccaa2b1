/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_DEBUGGER_H
#define RT_DEBUGGER_H
/* Tells tools the names of loaded kernels, and the lines of their descriptions: Linux perf by /tmp/perf-PID.map
 * (FUSOR_PERF=map: names) or jit-PID.dump (FUSOR_PERF=jitdump: code and lines, for perf inject), GDB by its JIT
 * interface (FUSOR_GDB=1). The descriptions that lines point at are files of FUSOR_DUMP_DIR, or of a new directory in
 * /tmp. Failures are silent: these files serve reading only. Any thread. */
#include "rt/loader.h"
#include <stdbool.h>

/* Returns what rt_debugger_remove needs; NULL when GDB was not told. */
void *rt_debugger_add(const char *symbol, const void *code, size_t bytes, const rt_code_debug *debug);
/* Does anybody listen who can use a line table? */
bool rt_debugger_wants_lines(void);
bool rt_debugger_wants_private_code(void); /* a mapping of its own for each kernel, of anonymous memory */
void rt_debugger_remove(void *handle);
#endif
