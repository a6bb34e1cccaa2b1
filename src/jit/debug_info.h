/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_DEBUG_INFO_H
#define JIT_DEBUG_INFO_H
/* Line tables on request: each machine instruction belongs to the line of the description whose instruction it was made
 * for. The code is the same with and without. */
#include "jit/emit.h"

typedef struct jit_debug {
    struct LLVMOpaqueDIBuilder *builder; /* NULL: no line table is wanted */
    LLVMMetadataRef file, type, scope;
    uint32_t first_line;                /* of what belongs to no instruction */
    uint32_t line[IR_KERNEL_MAX_INSTS]; /* of each instruction in the description */
} jit_debug;
/* After the module is made and before anything is emitted; e->debug = d. */
void jit_debug_begin(jit_debug *d, emit *e, const char *symbol, const char *description, size_t bytes);
/* After everything is emitted and before the module is verified: every function and instruction gets its place. */
void jit_debug_end(jit_debug *d, emit *e);
void jit_debug_drop(jit_debug *d);
#endif
