/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_PARTS_H
#define JIT_PARTS_H
/* A kernel's functions in parts that threads compile at once. Each part emits the whole kernel into a context of its
 * own (a twentieth of the time of compiling it) and keeps its functions: LLVM's contexts cannot be shared, and emitting
 * gives the same functions each time. Which function is in which part depends on the functions alone, so a kernel's
 * bytes are the same however many threads there are. Only where the address space has no room for all parts at once it
 * is compiled whole, to other bytes that compute the same. Maps are never in parts. */
#include <llvm-c/Core.h>

enum { JIT_MOST_PARTS = 3 };

/* How many parts pay: 1 to JIT_MOST_PARTS. */
int jit_parts_count(LLVMModuleRef mod);
/* Of n parts, `part` stays; the others' functions become declarations, and all may be called from other objects. */
void jit_parts_keep(LLVMModuleRef mod, int n, int part);
#endif
