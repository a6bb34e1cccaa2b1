/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_DEBUGGER_H
#define RT_DEBUGGER_H
/* Tells tools the names of loaded kernels: Linux perf by /tmp/perf-PID.map (FUSOR_PERF=map), GDB by its JIT interface
 * (FUSOR_GDB=1). Failures are silent: these files serve reading only. Any thread. */
#include "rt/loader.h"

/* Returns what rt_debugger_remove needs; NULL when GDB was not told. */
void *rt_debugger_add(const char *symbol, const void *code, size_t bytes, const rt_code_debug *debug);
void  rt_debugger_remove(void *handle);
#endif
