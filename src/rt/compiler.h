/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_COMPILER_H
#define RT_COMPILER_H
/* Finds and loads the code generation module (the part with LLVM in it), at the first kernel that no cache holds. */
#include "base/error.h"
#include <stdbool.h>
#include "ir/codegen_api.h"

/* The build id that this library was compiled with; the module must have the same. Static storage. */
const char *rt_build_id(void);
/* The module's table, loaded at the first call: FUSOR_CODEGEN, else beside this library or program (also in a build
 * tree), else the configured directory. It stays loaded for the life of the process. Any thread. Errors: UNSUPPORTED
 * (no module, one that does not load, or one of another version or build). */
fusor_status rt_module_get(fu_error *e, const fusor_codegen_table **out);
/* One request to a module's `generate`. A fork of the process waits until no thread is in here: LLVM has locks and
 * things that are made at first use, which a child would wait for in vain. Any thread, but none that holds the lock of a
 * fork hook. */
int rt_module_generate(int (*generate)(const fusor_codegen_request *, fusor_codegen_result *),
                       const fusor_codegen_request *request, fusor_codegen_result *result);
enum { RT_MOST_COMPILERS = 16 };
/* Calls work(arg) on up to n threads at once, this one among them, and RT_MOST_COMPILERS at most: fewer where the
 * system refuses them, and this one alone where the address space is limited, since each reserves a stack and an arena
 * of malloc, and the C library ends a process in which LLVM's thread-local data finds no room. They end before this
 * returns. For code generation: threads of calls may have stacks that are too small for LLVM. Where work calls this
 * again, the caller shares the threads out, so that there are no more altogether. */
void rt_compilers_run(int n, void *(*work)(void *arg), void *arg);
/* The path it was loaded from; "" before. */
const char *rt_module_path(void);
/* The path of a file that is installed with the module (or lies in the build tree); false: there is none. */
bool rt_module_find_file(const char *name, char *path, size_t room);
#endif
