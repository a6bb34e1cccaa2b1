/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* line_table_test.c: line tables name the line of the description that instructions come from, and change no byte of
 * code. */
#include "ir/codegen_api.h"
#include "ir/kernel.h"
#include "jit/line_table.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

const fusor_codegen_table *fusor_codegen_module(void);

static void *allocate(void *user, size_t bytes) {
    (void)user;
    return malloc(bytes);
}

static fusor_codegen_result generate(const char *description, uint32_t options) {
    fusor_codegen_request q = {.version = FUSOR_CODEGEN_VERSION,
                               .stage = FUSOR_CODEGEN_BLOB,
                               .description = description,
                               .description_bytes = strlen(description),
                               .symbol = "fk_test",
                               .options = options,
                               .allocate = allocate};
    fusor_codegen_result r = {0};
    cr_assert_eq(fusor_codegen_module()->generate(&q, &r), 0, "%s", r.error);
    return r;
}

#define KERNEL(kind, level, rest) "fusor-kernel 1\nkind " kind "\nlevel " level "\n" rest
#define MAP                                                                                                            \
    "dim p ?\nbuffer in f32 1\nbuffer out f32 1\n%0 = load.f32 #0\n%1 = exp.f32 %0\n%2 = tanh.f32 %1\n%3 = store.f32 " \
    "#1 %2\n"
#define ROW                                                                                                            \
    "dim p ?\ndim r ?\nbuffer in f32 ? 1\nbuffer out f32 ? 1\n%0 = load.f32 #0\n%1 = exp.f32 %0 kept\n%2 = "           \
    "reduce_sum.f32 %1\n%3 = div.f32 %1 %2\n%4 = store.f32 #1 %3\n"
#define CONTRACT                                                                                                       \
    "tile 4 16 512\ndim m ?\ndim n ?\ndim k ?\nbuffer in f32 ? 0 1\nbuffer in f32 0 1 ?\nbuffer out f32 ? 1 0\n%0 = "  \
    "load.f32 #0\n%1 = load.f32 #1\n%2 = matmul.f32 %0 %1\n%3 = relu.f32 %2\n%4 = store.f32 #2 %3\n"

Test(line_table, same_code_and_every_instruction) {
    static const struct {
        const char *text;
        int first, last; /* lines; a load may become the operand of another instruction */
    } kernels[] = {
        {KERNEL("map", "x86-64-v2", MAP), 8, 10}, {KERNEL("map", "x86-64-v3", MAP), 8, 10},
        {KERNEL("map", "x86-64-v4", MAP), 8, 10}, {KERNEL("row", "x86-64-v2", ROW), 9, 12},
        {KERNEL("row", "x86-64-v4", ROW), 9, 12}, {KERNEL("contract", "x86-64-v3", CONTRACT), 13, 15},
    };
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        fusor_codegen_result plain = generate(kernels[i].text, 0),
                             with = generate(kernels[i].text, FUSOR_CODEGEN_LINES);
        cr_assert(!plain.lines && with.lines && with.lines_bytes % sizeof(fusor_codegen_line) == 0);
        cr_assert(plain.bytes == with.bytes && memcmp(plain.data, with.data, plain.bytes) == 0,
                  "kernel %zu: other code with lines", i);
        const fusor_codegen_line *row = with.lines;
        size_t n = with.lines_bytes / sizeof *row;
        uint64_t seen = 0;
        cr_assert_eq(row[0].offset, 0);
        for (size_t r = 0; r < n; r++) {
            cr_assert(row[r].offset <= with.code_bytes && (!r || row[r].offset > row[r - 1].offset));
            cr_assert_leq(row[r].line, (uint32_t)kernels[i].last);
            seen |= UINT64_C(1) << row[r].line;
        }
        for (int line = kernels[i].first; line <= kernels[i].last; line++)
            cr_assert(seen >> line & 1, "kernel %zu: no instruction comes from line %d", i, line);
        free(plain.data);
        free(with.data);
        free(with.lines);
    }
}

static fusor_status decode(const void *data, size_t n, fusor_codegen_line **rows, size_t *n_rows, fu_arena *a) {
    static fu_error e;
    fu_error_clear(&e);
    return jit_line_table(data, n, 1000, a, rows, n_rows, &e);
}

/* A unit by hand: header, then opcodes. */
Test(line_table, opcodes) {
    static const unsigned char unit[] = {47,
                                         0,
                                         0,
                                         0,
                                         4,
                                         0,
                                         23,
                                         0,
                                         0,
                                         0,
                                         1,
                                         1,
                                         1,
                                         (unsigned char)-5,
                                         14,
                                         13,
                                         0,
                                         1,
                                         1,
                                         1,
                                         1,
                                         0,
                                         0,
                                         0,
                                         1,
                                         0,
                                         0,
                                         1,
                                         0,
                                         'f',
                                         0,
                                         0,
                                         0,
                                         0,
                                         5,
                                         2,
                                         0,
                                         0,
                                         0,
                                         0,                   /* an address of 4 bytes: skipped */
                                         13 + 5 + 2 + 14 * 3, /* special: 3 bytes, 2 lines */
                                         2,
                                         7,
                                         3,
                                         10,
                                         1, /* 7 bytes, 10 lines, row */
                                         2,
                                         4,
                                         0,
                                         1,
                                         1};
    fu_arena a;
    jmp_buf oom;
    fusor_codegen_line *rows;
    size_t n;
    fu_arena_init(&a, &oom);
    if (setjmp(oom)) cr_assert(false);
    unsigned char data[sizeof unit];
    memcpy(data, unit, sizeof unit);
    data[0] = sizeof unit - 4;
    cr_assert_eq(decode(data, sizeof data, &rows, &n, &a), FUSOR_OK);
    cr_assert_eq(n, 3);
    cr_assert(rows[0].offset == 3 && rows[0].line == 3 && rows[1].offset == 10 && rows[1].line == 13);
    cr_assert(rows[2].offset == 14 && rows[2].line == 0);
    for (size_t cut = 1; cut < sizeof data; cut++)
        cr_assert_neq(decode(data, cut, &rows, &n, &a), FUSOR_OK, "cut at %zu", cut);
    cr_assert_eq(decode(data, 0, &rows, &n, &a), FUSOR_OK);
    cr_assert_eq(n, 0);
    fu_arena_free(&a);
}
