/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Products whose result is wanted transposed (src/ir/pass_expand_turned.c): which are made the other way round, and
 * that it is not to be seen. */
#include "../host_level.h"
#include "api_test.h"
#include "plan_test.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows, columns and products of the one contraction of a text at v4. */
static void sizes_of(const char *text, int64_t size[3]) {
    text_start();
    const ir_plan *p = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4});
    cr_assert(p->steps.n == 1 && p->steps.at[0].kernel->kind == IR_KERNEL_CONTRACT, "%s: %u kernels", text, p->steps.n);
    const ir_step *st = &p->steps.at[0];
    for (int i = 0; i < 3; i++)
        cr_assert(ir_size_is_const(p->graph->sizes, st->dim[st->kernel->n_dims - 3 + i], &size[i]));
    text_stop();
}

static void check_turned(const char *body, int64_t rows, int64_t products, bool is_turned) {
    char text[500];
    snprintf(text, sizeof text,
             "func @f(%%x: f32[%ld, %ld], %%w: f32[%ld, 48], %%b: f32[48], %%r: f32[48, %ld]) -> %s { %s }", (long)rows,
             (long)products, (long)products, (long)rows,
             strchr(strstr(body, "return"), ',') ? "(f32[?, ?], f32[?, ?])" : "f32[?, ?]", body);
    int64_t size[3];
    sizes_of(text, size);
    const bool is = size[0] == 48 && size[1] == rows;
    cr_expect(is == is_turned && (is || (size[0] == rows && size[1] == 48)) && size[2] == products, "%s: %ld x %ld",
              text, (long)size[0], (long)size[1]);
}

Test(turned, what_is_wanted_transposed) {
    check_turned("%c = matmul(%x, %w) %y = transpose(%c) return %y", 512, 40, true);
    check_turned("%c = matmul(%x, %w) %d = add(%c, %b) %t = transpose(%d, perm=[1, -2]) %y = add(%t, %r) return %y",
                 256, 40, true);
    check_turned("%c = matmul(%x, %w) %t = transpose(%c) %e = exp(%t) %u = neg(%t) return %e, %u", 512, 40, true);
    /* rows that lie apart by no power of two; few rows for so many products */
    check_turned("%c = matmul(%x, %w) %y = transpose(%c) return %y", 500, 40, false);
    check_turned("%c = matmul(%x, %w) %y = transpose(%c) return %y", 256, 4096, false);
    /* as it is, too; back again; read as it is */
    check_turned("%c = matmul(%x, %w) %y = transpose(%c) return %y, %c", 512, 40, false);
    check_turned("%c = matmul(%x, %w) %t = transpose(%c) %u = neg(%t) %y = transpose(%u) return %y", 512, 40, false);
    check_turned("%c = matmul(%x, %w) %y = relu(%c) return %y", 512, 40, false);
}

/* A costly operand is stored once, as its other readers have it: kernels of a plan, and what it has in memory between. */
static void check_stored(const char *body, unsigned kernels, int64_t elements) {
    char text[300];
    snprintf(text, sizeof text, "func @f(%%x: f32[60, 60]) -> %s { %s }",
             strchr(strstr(body, "return"), ',') ? "(f32[60, 60], f32[60, 60])" : "f32[60, 60]", body);
    text_start();
    const ir_plan *p = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4});
    int64_t stored = 0;
    for (unsigned i = 0; i < p->steps.n; i++)
        for (int b = 0; b < p->steps.at[i].kernel->n_buffers; b++)
            stored += p->steps.at[i].kernel->buffer[b].is_output ? 3600 : 0;
    cr_expect(p->steps.n == kernels && stored == elements, "%s: %u kernels, %ld elements", text, p->steps.n,
              (long)stored);
    text_stop();
}

Test(turned, a_costly_operand_is_stored_once) {
    check_stored("%e = exp(%x) %t = transpose(%e) %y = matmul(%t, %e) return %y", 2, 7200);
    check_stored("%e = exp(%x) %t = transpose(%e) %y = matmul(%t, %x) return %y, %e", 2, 7200);
    check_stored("%e = exp(%x) %t = transpose(%e) %y = matmul(%t, %t) return %y", 2, 7200);
    check_stored("%e = exp(%x) %t = transpose(%e) %y = matmul(%t, %x) return %y", 2, 7200);
    check_stored("%e = exp(%x) %t = transpose(%e) %y = matmul(%t, %e) %z = add(%y, %t) return %z", 2, 7200);
}

/* Numbers without order, of every exponent from 2^-20 to 2^20. */
static float *numbers(size_t n, uint32_t seed) {
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        x[i] = (float)(int32_t)seed * (1.0f / (float)(1u << (seed >> 8) % 20));
    }
    return x;
}

static float *call(const char *text, const char *target, fusor_buffer *in, size_t made) {
    fusor_context *ctx = new_context_for(target, 2);
    fusor_executable *exe = NULL;
    fusor_buffer out = {0};
    OK(fusor_compile_text(ctx, text, NULL, &exe));
    OK(fusor_executable_call(exe, 2, in, 1, &out));
    float *y = malloc(made * sizeof *y);
    for (size_t i = 0; i < made; i++) y[i] = ((float *)out.data)[i];
    fusor_buffer_free(ctx, &out);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
    return y;
}

Test(turned, sums_are_those_of_the_product) {
    enum { BATCHES = 2, ROWS = 256, PRODUCTS = 600, COLUMNS = 37, ALL = BATCHES * ROWS * COLUMNS };
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        if (ir_level_is_gpu((ir_level)level) || !host_has_level(level)) continue;
        float *x = numbers((size_t)BATCHES * ROWS * PRODUCTS, 1), *w = numbers((size_t)PRODUCTS * COLUMNS, 2);
        fusor_buffer in[2] = {FUSOR_BUFFER(x, FUSOR_F32, BATCHES, ROWS, PRODUCTS),
                              FUSOR_BUFFER(w, FUSOR_F32, COLUMNS, PRODUCTS)};
        float *y = call("func @f(%x: f32[2, 256, 600], %w: f32[37, 600]) -> f32[?, ?, ?] { %y = matmul(%x, %w, "
                        "transpose_b=true) return %y }",
                        ir_levels[level].name, in, ALL),
              *t = call("func @f(%x: f32[2, 256, 600], %w: f32[37, 600]) -> f32[?, ?, ?] { %c = matmul(%x, %w, "
                        "transpose_b=true) %y = transpose(%c, perm=[0, 2, 1]) return %y }",
                        ir_levels[level].name, in, ALL);
        for (int i = 0; i < ALL; i++) {
            const int b = i / (ROWS * COLUMNS), row = i / COLUMNS % ROWS, column = i % COLUMNS;
            const float there = t[(b * COLUMNS + column) * ROWS + row];
            cr_assert_eq(y[i], there, "%s, row %d, column %d: %.9g, %.9g", ir_levels[level].name, row, column,
                         (double)y[i], (double)there);
        }
        free(x);
        free(w);
        free(y);
        free(t);
    }
}

/* How many kernels a text has, and, of its first one, whether vectors lie along a dim that is not reduced. */
static void check_kernels(const char *text, unsigned wanted, bool has_column) {
    text_start();
    const ir_plan *p = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4});
    cr_expect(p->steps.n == wanted, "%s: %u kernels", text, p->steps.n);
    const ir_kernel *k = p->steps.at[0].kernel;
    bool is_column = false;
    for (int d = 0; d < k->n_dims; d++) is_column |= k->dim[d].role == 'v';
    cr_expect_eq(is_column, has_column, "%s", text);
    text_stop();
}

Test(turned, rows_are_stored_in_order) {
    check_kernels("func @f(%x: f32[N, 300]) -> f32[?, ?] { %s = softmax(%x) %y = transpose(%s) return %y }", 2, false);
    check_kernels("func @f(%x: f32[N, 300]) -> f32[?, ?] { %s = cumsum(%x, axis=1) %y = transpose(%s) return %y }", 2,
                  false);
    check_kernels("func @f(%x: f32[N, 10]) -> f32[?, ?] { %s = softmax(%x) %y = transpose(%s) return %y }", 1, false);
    check_kernels("func @f(%x: f32[N, 300], %w: f32[300, 100]) -> f32[?, ?] { %c = matmul(%x, %w) %y = transpose(%c) "
                  "return %y }",
                  2, false);
}

Test(turned, rows_of_what_is_transposed_lie_along_columns) {
    check_kernels("func @f(%x: f32[100, 500]) -> f32[?, ?] { %t = transpose(%x) %y = softmax(%t) return %y }", 2, true);
    check_kernels("func @f(%x: f32[100, 500]) -> f32[?, ?] { %t = transpose(%x) %y = cumsum(%t, axis=-1) return %y }",
                  2, true);
    check_kernels("func @f(%x: f32[100, 500]) -> f32[?, ?] { %t = transpose(%x) %s = log_softmax(%t, axis=1) %y = "
                  "transpose(%s) return %y }",
                  1, true);
    check_kernels("func @f(%x: f32[2, 64, 30, 30]) -> f32[?, ?, ?, ?] { %t = transpose(%x, perm=[0, 2, 3, 1]) %s = "
                  "softmax(%t) %y = transpose(%s, perm=[0, 3, 1, 2]) return %y }",
                  1, true);
}
