/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_LINK_H
#define JIT_LINK_H
/* Links the objects of a kernel into a flat position-independent blob: instructions first, then read-only constants.
 * Loading it is copying it to a 64-byte aligned address and making it executable; nothing is left to relocate. */
#include "base/arena.h"
#include "base/error.h"
#include "ir/codegen_api.h"

typedef struct jit_blob {
    uint8_t *data; /* in the arena */
    size_t bytes;
    uint64_t entry;            /* offset of the function */
    uint64_t code_bytes;       /* instructions are [0, code_bytes) */
    fusor_codegen_line *lines; /* in the arena; n_lines is 0 where no object has a line table */
    size_t n_lines;
} jit_blob;
enum { JIT_BLOB_ALIGN = 64, JIT_BLOB_MAX_BYTES = 64 << 20 };

/* An ELF64 x86-64 relocatable; any bytes (every offset is checked). */
typedef struct jit_object {
    const void *data;
    size_t bytes;
} jit_object;

/* Objects call functions of each other by name. symbol: the one function to be called from outside. */
fusor_status jit_link(const jit_object *objects, int n, const char *symbol, fu_arena *a, jit_blob *out, fu_error *err);
#endif
