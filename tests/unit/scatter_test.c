/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* scatter_test.c: scatters and gathers whose indices are repeated by views: indices are neither stored nor checked as
 * often as they are repeated, rows are stored in vectors, and what is scattered into is made where the result lies.
 * (Values are compared in diff/ops_test.c.) */
#include "api_test.h"
#include "plan_test.h"
#include "../host_level.h"

TestSuite(scatter, .init = text_start, .fini = text_stop);

#define INDEX_ADD                                                                                                      \
    "func @f(%i: i64[N], %x: f32[N, 64]) -> f32[100, 64] { %z = full(0.0, shape=[100, 64], dtype=f32)"                 \
    " %j = unsqueeze(%i, axes=[1]) %k = broadcast_to(%j, shape=[N, 64])"                                               \
    " %y = scatter(%z, %k, %x, axis=0, mode=add) return %y }"

Test(scatter, rows_are_one_kernel_in_the_memory_of_the_result) {
    const ir_plan *p = plan_text(INDEX_ADD, &(ir_plan_options){.level = IR_LEVEL_V4});
    cr_assert_eq(p->steps.n, 3, "the check, the zeros, the rows: %u", p->steps.n);
    cr_expect_eq(p->steps.at[0].kind, IR_STEP_CHECK);
    cr_expect_eq(p->steps.at[0].arg[0], 0, "the parameter itself");
    cr_expect(ir_kernel_scatters_rows(p->steps.at[2].kernel));
    for (uint32_t i = 0; i < p->buffers.n; i++)
        cr_expect(p->buffers.at[i].storage != IR_STORE_TEMP || p->buffers.at[i].first_step < 0, "%u", i);
    /* indices that differ along the rows, and along the last axis, go one by one: in the first case row by row, if
     * those are more than a few elements */
    static const char *const columns[] = {"M", "64", "8", "7"};
    for (int c = 0; c < 4; c++) {
        const char *text = "func @f(%%i: i64[N, %s], %%x: f32[N, %s], %%z: f32[9, %s]) -> f32[9, %s] {"
                           " %%y = scatter(%%z, %%i, %%x, axis=0, mode=add) return %%y }";
        p = plan_text(fu_format(&arena, text, columns[c], columns[c], columns[c], columns[c]),
                      &(ir_plan_options){.level = IR_LEVEL_V4});
        cr_expect(!ir_kernel_scatters_rows(p->steps.at[p->steps.n - 1].kernel));
        cr_expect_eq(ir_kernel_scatters_columns(p->steps.at[p->steps.n - 1].kernel), c < 3, "%s", columns[c]);
    }
    p = plan_text("func @f(%i: i64[1, N], %x: f32[64, N], %z: f32[64, 9]) -> f32[64, 9] {"
                  " %k = broadcast_to(%i, shape=[64, N]) %y = scatter(%z, %k, %x, axis=1, mode=add) return %y }",
                  &(ir_plan_options){.level = IR_LEVEL_V4});
    cr_expect(!ir_kernel_scatters_columns(p->steps.at[p->steps.n - 1].kernel));
}

static bool has_copy(const char *text) {
    const ir_plan *p = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4});
    for (uint32_t s = 0; s < p->steps.n; s++)
        if (p->steps.at[s].kind == IR_STEP_COPY) return true;
    return false;
}

Test(scatter, what_else_reads_operand_0_has_it_copied) {
#define SCATTER      "%y = scatter(%z, %i, %x, axis=0) "
#define HEAD(result) "func @f(%p: f32[M], %i: i32[N], %x: f32[N]) -> " result " { %z = mul(%p, 2.0) " SCATTER
    cr_expect(!has_copy(HEAD("f32[M]") "return %y }"));
    cr_expect(!has_copy(HEAD("f32[M]") "%r = scatter(%y, %i, %x, axis=0, mode=add) return %r }"));
    cr_expect(has_copy(HEAD("(f32[M], f32[M])") "return %y, %z }"));
    cr_expect(has_copy(HEAD("f32[M]") "%r = mul(%y, %z) return %r }"));
    cr_expect(has_copy(HEAD("(%r: f32[M] alias %p)") "return %y }"), "until all of the old contents was read");
}

static fusor_buffer tensor(void *data, fusor_dtype t, int rank, int64_t a, int64_t b) {
    return (fusor_buffer){.data = data, .dtype = t, .rank = rank, .shape = {a, b}};
}

Test(scatter, errors_name_the_place_among_repeated_indices) {
    fusor_context *ctx = new_context(1);
    fusor_executable *exe = NULL;
    static float x[3 * 64], z[100 * 64];
    int64_t i[3] = {7, 99, -101};
    fusor_buffer in[2] = {tensor(i, FUSOR_I64, 1, 3, 0), tensor(x, FUSOR_F32, 2, 3, 64)};
    fusor_buffer out = tensor(z, FUSOR_F32, 2, 100, 64);
    OK(fusor_compile_text(ctx, INDEX_ADD, NULL, &exe));
    z[0] = 5;
    FAILS(fusor_executable_call(exe, 2, in, 1, &out), FUSOR_ERROR_INDEX, "index -101 at position [2, 0]");
    cr_expect_eq(z[0], 5, "nothing was written");
    i[2] = -1;
    OK(fusor_executable_call(exe, 2, in, 1, &out));
    cr_expect_eq(z[0], 0);
    fusor_executable_free(exe);
    /* repeated in front and in the middle; computed */
    int32_t k[4] = {0, 1, 2, 1};
    float t[4] = {0, 1, 2, 3}, y[64];
    OK(fusor_compile_text(ctx,
                          "func @f(%x: f32[2, 2], %i: i32[2, 2]) -> f32[3, 2, 2, 4] { %j = add(%i, 0)"
                          " %u = unsqueeze(%j, axes=[0, 2]) %k = broadcast_to(%u, shape=[3, 2, 2, 2])"
                          " %q = reshape(%x, shape=[1, 1, 2, 2]) %b = broadcast_to(%q, shape=[3, 2, 2, 2])"
                          " %r = take_along(%b, %k, axis=3) %y = concat(%r, %r, axis=3) return %y }",
                          NULL, &exe));
    in[0] = tensor(t, FUSOR_F32, 2, 2, 2), in[1] = tensor(k, FUSOR_I32, 2, 2, 2);
    out = (fusor_buffer){.data = y, .dtype = FUSOR_F32, .rank = 4, .shape = {3, 2, 2, 4}};
    FAILS(fusor_executable_call(exe, 2, in, 1, &out), FUSOR_ERROR_INDEX, "index 2 at position [0, 1, 0, 0]");
    fusor_executable_free(exe);
    /* every u8 is an index of 256 places, and not of 255 */
    for (int n = 255; n < 257; n++) {
        char text[200];
        uint8_t byte = 255;
        snprintf(text, sizeof text, "func @f(%%x: f32[%d], %%i: u8[N]) -> f32[N] { %%y = take(%%x, %%i) return %%y }",
                 n);
        OK(fusor_compile_text(ctx, text, NULL, &exe));
        z[255] = 8;
        in[0] = tensor(z, FUSOR_F32, 1, n, 0), in[1] = tensor(&byte, FUSOR_U8, 1, 1, 0);
        out = tensor(y, FUSOR_F32, 1, 1, 0);
        if (n == 256) OK(fusor_executable_call(exe, 2, in, 1, &out));
        else FAILS(fusor_executable_call(exe, 2, in, 1, &out), FUSOR_ERROR_INDEX, "index 255 at position [0]");
        if (n == 256) cr_expect_eq(y[0], 8);
        fusor_executable_free(exe);
    }
    /* repeated not once */
    OK(fusor_compile_text(ctx,
                          "func @f(%x: f32[A, N], %i: i32[N]) -> f32[A, N] { %k = broadcast_to(%i, shape=[A, N])"
                          " %y = take_along(%x, %k, axis=1) return %y }",
                          NULL, &exe));
    k[0] = 77;
    in[0] = tensor(NULL, FUSOR_F32, 2, 0, 4), in[1] = tensor(k, FUSOR_I32, 1, 4, 0);
    out = tensor(NULL, FUSOR_F32, 2, 0, 4);
    OK(fusor_executable_call(exe, 2, in, 1, &out));
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

/* Of several updates of one place the last one counts, on any number of threads; rows of one tile and of several. */
Test(scatter, updates_of_columns_apply_in_order) {
    enum { ROWS = 3000, PLACES = 7 };
    static const int columns[] = {5, 9, 16, 50, 100};
    static float x[ROWS * 100], z[PLACES * 100], want[PLACES * 100], y[PLACES * 100];
    static int32_t index[ROWS * 100];
    for (int threads = 1; threads <= 4; threads += 3) {
        fusor_context *ctx = new_context(threads);
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
            const int n = columns[c];
            fusor_executable *exe;
            memset(want, 0, sizeof want);
            for (int i = 0; i < ROWS * n; i++) {
                index[i] = (int32_t)((unsigned)i * 2654435761u >> 8) % PLACES - (i % 3 == 0 ? PLACES : 0);
                x[i] = (float)i;
                want[(index[i] + PLACES) % PLACES * n + i % n] = x[i];
            }
            OK(fusor_compile_text(ctx,
                                  "func @f(%z: f32[P, M], %i: i32[N, M], %x: f32[N, M]) -> f32[P, M] {"
                                  " %y = scatter(%z, %i, %x, axis=0) return %y }",
                                  NULL, &exe));
            fusor_buffer in[3] = {tensor(z, FUSOR_F32, 2, PLACES, n), tensor(index, FUSOR_I32, 2, ROWS, n),
                                  tensor(x, FUSOR_F32, 2, ROWS, n)},
                         out = tensor(y, FUSOR_F32, 2, PLACES, n);
            OK(fusor_executable_call(exe, 3, in, 1, &out));
            for (int i = 0; i < PLACES * n; i++)
                cr_assert_eq(y[i], want[i], "%d threads, %d columns, place %d", threads, n, i);
            fusor_executable_free(exe);
        }
        fusor_context_free(ctx);
    }
}

/* What goes one by one has no step of half a vector, at no level: rows of 5 and 7 would leave one. */
Test(scatter, short_rows_at_every_level) {
    static const char *const programs[] = {
        "func @f(%z: f32[P, 5], %i: i32[N, 5], %x: f32[N, 5]) -> f32[P, 5] {"
        " %y = scatter(%z, %i, %x, axis=0) return %y }",
        "func @f(%z: f32[P, 7], %i: i64[N, 7], %x: f32[N, 7]) -> f32[P, 7] { %j = add(%i, 1) %u = add(%x, %x)"
        " %y = scatter(%z, %j, %u, axis=0, mode=add) return %y }",
        "func @f(%x: f32[1, 4, 17, 7], %w: f32[4, 1, 5, 3]) -> f32[1, ?, 58, 8] {"
        " %y = conv_transpose(%x, %w, strides=[3, 1], pads=[0, 1, 0, 0], dilations=[2, 1], output_padding=[1, 0], groups=2) return %y }"};
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        if (ir_level_is_gpu((ir_level)level) || !host_has_level(level)) continue;
        fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
        o.target = ir_levels[level].name;
        o.cache_dir = "";
        fusor_context *ctx = fusor_context_new(&o);
        for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
            fusor_executable *exe = NULL;
            cr_expect_eq(fusor_compile_text(ctx, programs[i], NULL, &exe), FUSOR_OK, "%s: %s", o.target,
                         fusor_error_message(ctx));
            fusor_executable_free(exe);
        }
        fusor_context_free(ctx);
    }
}
