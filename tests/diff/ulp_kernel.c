/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ulp_kernel.c: description text -> fusor_codegen_module() -> executable pages. */
#include "ulp_kernel.h"
#include "../host_level.h"
#include "ir/codegen_api.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

const fusor_codegen_table *fusor_codegen_module(void);

int kernel_best_level(void) {
    int level = IR_LEVEL_COUNT - 1;
    while (level > 0 && !host_has_level(level)) level--;
    return level;
}

static void *allocate(void *user, size_t bytes) {
    (void)user;
    return malloc(bytes);
}

static size_t describe(const variant *v, const char *type, const char *scalar_type, int level, char *text,
                       size_t room) {
    const ir_op_info *info = &ir_ops[v->op];
    char operands[64] = "";
    size_t n = 0;
    int value = 0;
#define PUT(...) n += (size_t)snprintf(text + n, room - n, __VA_ARGS__)
    PUT("fusor-kernel %d\nkind map\nlevel %s\n%sdim p ?\n", IR_KERNEL_ABI, ir_levels[level].name,
        v->is_fast ? "math fast\n" : "");
    for (int i = 0; i < info->max_in; i++) PUT("buffer in %s 1\n", type);
    PUT("buffer out %s 1\n", type);
    for (int i = 0; i < info->n_scalar_attrs; i++) PUT("scalar %s\n", scalar_type);
    for (int i = 0; i < info->max_in + info->n_scalar_attrs; i++) {
        bool is_load = i < info->max_in;
        PUT("%%%d = %s.%s #%d\n", value++, is_load ? "load" : "scalar", is_load ? type : scalar_type,
            is_load ? i : i - info->max_in);
        snprintf(operands + strlen(operands), sizeof operands - strlen(operands), " %%%d", i);
    }
    PUT("%%%d = %s.%s%s", value, info->name, type, operands);
    if (v->variant) PUT(" variant %d", v->variant);
    PUT("\n%%%d = store.%s #%d %%%d\n", value + 1, type, info->max_in, value);
#undef PUT
    return n;
}

bool kernel_make(const variant *v, ir_dtype type, int level, kernel *out) {
    char text[1024];
    const char *scalar = type == FUSOR_F64 ? "f64" : "f32";
    fusor_codegen_request q = {.version = FUSOR_CODEGEN_VERSION,
                               .stage = FUSOR_CODEGEN_BLOB,
                               .description = text,
                               .description_bytes = describe(v, ir_dtypes[type].name, scalar, level, text, sizeof text),
                               .symbol = "fk_ulp",
                               .allocate = allocate};
    fusor_codegen_result r = {0};
    if (fusor_codegen_module()->generate(&q, &r) != 0) {
        fprintf(stderr, "ulp: %s\n%s", r.error, text);
        return false;
    }
    *out = (kernel){.bytes = r.bytes, .v = v, .type = type};
    out->map = mmap(NULL, r.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (out->map == MAP_FAILED) return false;
    memcpy(out->map, r.data, r.bytes);
    free(r.data);
    if (mprotect(out->map, r.bytes, PROT_READ | PROT_EXEC) != 0) return false;
    void *entry = (char *)out->map + r.entry;
    memcpy(&out->fn, &entry, sizeof out->fn);
    return true;
}

void kernel_drop(kernel *k) {
    if (k->map) munmap(k->map, k->bytes);
    *k = (kernel){0};
}

void kernel_run(const kernel *k, const void *x, const void *y, void *dst, int n) {
    void *buffers[3] = {(void *)(uintptr_t)x, ir_ops[k->v->op].max_in == 2 ? (void *)(uintptr_t)y : dst, dst};
    int64_t size = n, stride[3] = {1, 1, 1};
    uint64_t scalar[2] = {0};
    for (int i = 0; i < 2; i++) {
        if (k->type == FUSOR_F64) memcpy(&scalar[i], &k->v->attr[i], 8);
        else memcpy(&scalar[i], &(float){(float)k->v->attr[i]}, 4);
    }
    ir_kernel_args args = {.version = IR_KERNEL_ABI,
                           .tune = {[IR_TUNE_MAP_ROWS] = 1, [IR_TUNE_MAP_COLUMNS] = CHUNK + 64},
                           .buffer = buffers,
                           .size = &size,
                           .stride = stride,
                           .scalar = scalar};
    k->fn(&args, 0, 1);
}
