/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pick_test.c: take_along of a few elements of rows that are normalized (cross-entropy): only these are computed, with
 * the bits that the whole rows have. */
#include "api_test.h"
#include "plan_test.h"
#include <math.h>

TestSuite(pick, .init = text_start, .fini = text_stop);

enum { ROWS = 7, COLUMNS = 100, TAKEN = 2 };
/* %x: f32[B, N], %g: f32[B, N], to %v */
static const char *const values[] = {
    "%v = log_softmax(%x)",
    "%v = softmax(%x)",
    "%a = mul(%x, %g) %m = reduce_mean(%a, axes=[1], keepdims=true) %d = sub(%a, %m) %s = square(%d)"
    " %q = reduce_sum(%s, axes=[1]) %u = unsqueeze(%q, axes=[1]) %e = sqrt(%u) %n = div(%d, %e) %v = maximum(%n, -0.1)",
    "%h = cast(%x, f64) %l = log_softmax(%h) %v = cast(%l, f32)",
};
enum { VALUES = sizeof values / sizeof *values };

static const char *program(int i, bool is_whole, const char *n) {
    return fu_format(&arena,
                     is_whole ? "func @f(%%x: f32[B, %s], %%g: f32[B, %s]) -> f32[B, %s] { %s return %%v }"
                              : "func @f(%%x: f32[B, %s], %%g: f32[B, %s], %%t: i64[B, 2]) -> f32[B, 2] { %s"
                                " %%y = take_along(%%v, %%t, axis=%s) return %%y }",
                     n, n, is_whole ? n : values[i],
                     is_whole ? values[i]
                     : i & 1  ? "1"
                              : "-1");
}

static void call(const char *text, int n, const fusor_buffer *in, fusor_buffer *out) {
    fusor_context *ctx = new_context(1);
    fusor_executable *exe = NULL;
    OK(fusor_compile_text(ctx, text, NULL, &exe));
    OK(fusor_executable_call(exe, n, in, 1, out));
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

Test(pick, bits_are_those_of_whole_rows) {
    static float x[ROWS * COLUMNS], g[ROWS * COLUMNS], whole[ROWS * COLUMNS], y[ROWS * TAKEN];
    int64_t t[ROWS * TAKEN];
    for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = sinf((float)i) * 5, g[i] = cosf((float)i) + 1;
    for (int i = 0; i < ROWS * TAKEN; i++) t[i] = i % 3 == 2 ? -1 - i * 5 : i * 7 % COLUMNS;
    for (int i = 0; i < 2 * VALUES; i++) {
        const char *n = i < VALUES ? "N" : "100";
        fusor_buffer in[3] = {FUSOR_BUFFER(x, FUSOR_F32, ROWS, COLUMNS), FUSOR_BUFFER(g, FUSOR_F32, ROWS, COLUMNS),
                              FUSOR_BUFFER(t, FUSOR_I64, ROWS, TAKEN)},
                     all = FUSOR_BUFFER(whole, FUSOR_F32, ROWS, COLUMNS), out = FUSOR_BUFFER(y, FUSOR_F32, ROWS, TAKEN);
        call(program(i % VALUES, true, n), 2, in, &all);
        call(program(i % VALUES, false, n), 3, in, &out);
        for (int k = 0; k < ROWS * TAKEN; k++) {
            const int64_t column = t[k] < 0 ? t[k] + COLUMNS : t[k];
            const float want = whole[k / TAKEN * COLUMNS + column];
            cr_expect(memcmp(&y[k], &want, sizeof want) == 0, "%s [%s], element %d: %g, not %g", values[i % VALUES], n,
                      k, (double)y[k], (double)want);
        }
    }
}

/* Elements that the kernels of a program store for each other. */
static bool stores_rows(const char *text) {
    const ir_plan *p = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4});
    for (uint32_t i = 0; i < p->buffers.n; i++) {
        const ir_plan_buffer *b = &p->buffers.at[i];
        if (b->storage == IR_STORE_TEMP && b->rank == 2 && !ir_size_is(p->graph->sizes, b->dim[1], 1)) return true;
    }
    return false;
}

Test(pick, rows_are_not_stored) {
    for (int i = 0; i < VALUES; i++) {
        cr_expect(!stores_rows(program(i, false, "N")), "%s", values[i]);
        cr_expect(!stores_rows(program(i, false, "65")), "%s", values[i]);
    }
    /* short rows are made: all at once; so are those of which many are taken */
    cr_expect(stores_rows(program(0, false, "10")));
    cr_expect(stores_rows("func @f(%x: f32[B, N], %t: i64[B, K]) -> f32[B, K] { %v = softmax(%x)"
                          " %y = take_along(%v, %t, axis=1) return %y }"));
}

Test(pick, wrong_indices_name_the_operator) {
    static float x[ROWS * COLUMNS], y[ROWS * TAKEN];
    int64_t t[ROWS * TAKEN] = {0, COLUMNS};
    fusor_context *ctx = new_context(1);
    fusor_executable *exe = NULL;
    fusor_buffer in[3] = {FUSOR_BUFFER(x, FUSOR_F32, ROWS, COLUMNS), FUSOR_BUFFER(x, FUSOR_F32, ROWS, COLUMNS),
                          FUSOR_BUFFER(t, FUSOR_I64, ROWS, TAKEN)},
                 out = FUSOR_BUFFER(y, FUSOR_F32, ROWS, TAKEN);
    OK(fusor_compile_text(ctx, program(0, false, "N"), NULL, &exe));
    FAILS(fusor_executable_call(exe, 3, in, 1, &out), FUSOR_ERROR_INDEX, "take_along: index 100 at position [0, 1]");
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}
