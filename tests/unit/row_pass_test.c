/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* row_pass_test.c: passes over rows, at every level the host has: extremes find a NaN at any place; the first pass over
 * a row before the last one over the row before it, in place. (What kernels compute otherwise: reduce_test.c.) */
#include "jit_run.h"
#include <math.h>
#include <stdlib.h>

/* A NaN at each place of the second of three rows: that result alone is a NaN, whatever is behind it in the row. The
 * second row alone, where all is reduced; of a row kernel, what it is subtracted from. */
typedef enum nan_form { OF_ROWS, OF_ALL, OF_ROW_KERNEL } nan_form;
static void set_number(ir_dtype t, void *x, int64_t i, double v) {
    if (t == FUSOR_F64) ((double *)x)[i] = v;
    else ((float *)x)[i] = (float)v;
}
static double get_number(ir_dtype t, const void *x, int64_t i) {
    return t == FUSOR_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}
static void check_nan_of_rows(ir_level level, ir_dtype t, const char *op, nan_form form, const char *r, int64_t n) {
    static double x[3 * 4300], out[3 * 4300];
    const char *type = ir_dtypes[t].name;
    const bool is_whole = form == OF_ALL, is_row = form == OF_ROW_KERNEL;
    char text[512];
    snprintf(text, sizeof text,
             "fusor-kernel 1\nkind %s\nlevel %s\n%sdim r %s\nbuffer in %s %s\nbuffer out %s %s\n"
             "%%0 = load.%s #0\n%%1 = %s.%s %%0\n%%2 = sub.%s %%%d %%1\n%%3 = store.%s #1 %%%d\n",
             is_row ? "row" : "reduce", ir_levels[level].name, is_whole ? "" : "dim p ?\n", r, type,
             is_whole ? "1" : "? 1", type,
             is_whole ? "0"
             : is_row ? "? 1"
                      : "1 0",
             type, op, type, type, is_row ? 0 : 1, type, is_row ? 2 : 1);
    run_kernel k = run_compile(text);
    for (int64_t i = 0; i < 3 * n; i++) set_number(t, x, i, (double)(i % 7) - 3);
    for (int64_t at = n; at < 2 * n; at += 1 + n / 150) {
        const double was = get_number(t, x, at);
        const int64_t rows = is_whole ? 1 : 3, blocks = (n + 4095) / 4096, row = is_row ? n : 1;
        int64_t of_rows[4] = {n, 1, row, is_row}, of_all[2] = {1, 0}, sizes[2] = {3, n};
        _Alignas(64) char shared[256], scratch[256];
        void *pointer[2] = {(char *)x + (is_whole ? n * ir_dtypes[t].bytes : 0), out};
        ir_kernel_args a = {.version = 1,
                            .tune = {1, 1},
                            .buffer = pointer,
                            .size = is_whole ? sizes + 1 : sizes,
                            .stride = is_whole ? of_all : of_rows,
                            .shared = shared,
                            .scratch = scratch};
        set_number(t, x, at, NAN);
        for (a.phase = 0; a.phase < (is_row ? 1 : 2); a.phase++) k.fn(&a, 0, a.phase || is_row ? rows : rows * blocks);
        for (int64_t q = 0; q < rows; q++)
            for (int64_t i = 0; i < row; i++) {
                const double v = get_number(t, out, q * row + i);
                const bool is_nan = is_whole || q == 1;
                cr_assert(is_nan   ? isnan(v)
                          : is_row ? fabs(v) <= 6
                                   : fabs(v) == 3,
                          "level %d %s of %d %s, form %d, NaN at %d: %g for row %d", level, op, (int)n, type, form,
                          (int)at, v, (int)q);
            }
        set_number(t, x, at, was);
    }
}
Test(row_pass, extremes_are_nans_wherever_one_is) {
    static const char *const sizes[] = {"20", "70", "128", "130", "300", "4200"};
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        if (!host_has_level((ir_level)level)) continue;
        for (int l = 0; l < (int)(sizeof sizes / sizeof *sizes); l++)
            for (int variant = 0; variant < 12; variant++)
                check_nan_of_rows((ir_level)level, (l + variant) % 3 ? FUSOR_F32 : FUSOR_F64,
                                  variant & 1 ? "reduce_min" : "reduce_max", (nan_form)(variant / 4),
                                  variant & 2 ? sizes[l] : "?", atoi(sizes[l]));
    }
}

/* Results over their own input, of two and three passes, cheap and costly ones, in rows that go two at once and, longer
 * ones, one by one: the bits of those beside it. Tiles of two rows and of one. */
static void check_in_place(ir_level level, const char *body, const char *length, int64_t n) {
    enum { N_ROWS = 3, MOST = 3000 };
    static float x[N_ROWS * MOST], y[N_ROWS * MOST];
    char text[1024];
    snprintf(text, sizeof text,
             "fusor-kernel 1\nkind row\nlevel %s\ndim p ?\ndim r %s\nbuffer in f32 ? 1\nbuffer out f32 ? 1\n"
             "%%0 = load.f32 #0\n%s",
             ir_levels[level].name, length, body);
    run_kernel k = run_compile(text);
    for (int64_t i = 0; i < N_ROWS * n; i++) x[i] = sinf((float)i * 0.7f) * 3;
    int64_t size[2] = {N_ROWS, n}, stride[4] = {n, 1, n, 1};
    _Alignas(64) static char scratch[4096 + MOST * 4];
    void *apart[2] = {x, y}, *same[2] = {x, x};
    ir_kernel_args a = {.version = 1, .tune = {2}, .buffer = apart, .size = size, .stride = stride, .scratch = scratch};
    k.fn(&a, 0, 2);
    a.buffer = same;
    for (int tile = 0; tile < 2; tile++) k.fn(&a, tile, tile + 1);
    cr_assert_eq(memcmp(x, y, (size_t)(N_ROWS * n) * sizeof *x), 0, "level %d, rows of %d (%s): %s", level, (int)n,
                 length, body);
}
Test(row_pass, results_may_lie_over_the_rows) {
    static const char *const bodies[] = {
        "%1 = reduce_max.f32 %0\n%2 = sub.f32 %0 %1\n%3 = exp.f32 %2 kept\n%4 = reduce_sum.f32 %3\n"
        "%5 = div.f32 %3 %4\n%6 = store.f32 #1 %5\n",
        "%1 = reduce_sum.f32 %0\n%2 = sub.f32 %0 %1\n%3 = square.f32 %2\n%4 = reduce_sum.f32 %3\n"
        "%5 = div.f32 %2 %4\n%6 = store.f32 #1 %5\n",
        "%1 = square.f32 %0\n%2 = reduce_sum.f32 %1\n%3 = div.f32 %0 %2\n%4 = store.f32 #1 %3\n",
    };
    static const char *const lengths[] = {"100", "300", "1200", "3000"};
    for (int level = 0; level < IR_LEVEL_COUNT; level++)
        for (int i = 0; i < 12 && host_has_level((ir_level)level); i++)
            for (int is_known = 0; is_known < 2; is_known++)
                check_in_place((ir_level)level, bodies[i / 4], is_known ? lengths[i % 4] : "?", atoi(lengths[i % 4]));
}
