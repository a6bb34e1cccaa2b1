/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_CODEGEN_API_H
#define IR_CODEGEN_API_H
/* The whole interface between libfusor and the code generation module: one exported function that returns this table.
 * No pointer into the other side's data is kept; memory comes from the caller's allocator; our code in the module
 * never ends the process, but LLVM does where malloc fails while it generates code. */
#include <stddef.h>
#include <stdint.h>

#define FUSOR_CODEGEN_VERSION 3
typedef enum fusor_codegen_stage {
    FUSOR_CODEGEN_BLOB,
    FUSOR_CODEGEN_LLVM,
    FUSOR_CODEGEN_ASM,
    FUSOR_CODEGEN_OBJECT,
    FUSOR_CODEGEN_DISASM
} fusor_codegen_stage;

enum { FUSOR_CODEGEN_LINES = 1 }; /* option: a line table */
/* From this offset of the blob on, up to the next row's, the instructions belong to this line of the description
 * (1-based; 0: to none). Sorted by offset. */
typedef struct fusor_codegen_line {
    uint32_t offset, line;
} fusor_codegen_line;

typedef struct fusor_codegen_request {
    uint32_t version;        /* FUSOR_CODEGEN_VERSION */
    uint32_t stage;          /* fusor_codegen_stage */
    const char *description; /* ir_kernel_print text */
    size_t description_bytes;
    const char *symbol; /* name of the kernel function */
    uint32_t options;   /* FUSOR_CODEGEN_LINES */
    const void *blob;
    size_t blob_bytes;                           /* DISASM: what to disassemble */
    void *(*allocate)(void *user, size_t bytes); /* NULL back = out of memory */
    /* Calls task(arg, i) for each i < n, on any threads whose stacks have room for LLVM (fusor's are of the default
     * size), and returns when all are done. NULL: one after the other. */
    void (*run_all)(void *user, int n, void (*task)(void *arg, int i), void *arg);
    void *user;
} fusor_codegen_request;
typedef struct fusor_codegen_result {
    void *data;
    size_t bytes;        /* from allocate; text stages are NUL-terminated after bytes */
    uint64_t entry;      /* BLOB: offset of the kernel function */
    uint64_t code_bytes; /* BLOB: bytes of its instructions */
    void *lines;
    size_t lines_bytes; /* BLOB with LINES: fusor_codegen_line rows, from allocate; NULL where there are none */
    char error[1024];   /* when it failed */
} fusor_codegen_result;
typedef struct fusor_codegen_table {
    uint32_t version;
    const char *build_id, *llvm_version;
    int (*generate)(const fusor_codegen_request *request, fusor_codegen_result *result); /* 0, or a fusor_status */
} fusor_codegen_table;
/* The one symbol that the module exports. */
typedef const fusor_codegen_table *(*fusor_codegen_module_fn)(void);
#define FUSOR_CODEGEN_SYMBOL "fusor_codegen_module"
#endif
