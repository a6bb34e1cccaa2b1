/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* counted_test.c: take and take_along whose indices are counted (expressions of iota) are views where every index is in
 * range, and what they were where one is not. The oracle: the indices as a program of their own gives them. And scatters whose
 * indices are neighbours are concatenations. */
#include "api_test.h"
#include "plan_test.h"

TestSuite(counted, .init = text_start, .fini = text_stop);

/* ---- which are views ---- */

static bool is_view(const char *body, const char *type) {
    const ir_plan *p = plan_text(
        fu_format(&arena, "func @f(%%x: f32[6, 12], %%z: f32[N, 12]) -> f32[%s] { %s return %%y }", type, body),
        &(ir_plan_options){.level = IR_LEVEL_V4});
    const bool is_one = p->steps.n == 1 && p->steps.at[0].kind == IR_STEP_KERNEL;
    for (uint32_t s = 0; s < p->steps.n; s++)
        if (p->steps.at[s].kind == IR_STEP_CHECK) return false;
    cr_expect(is_one, "%s", body);
    return is_one;
}

#define IOTA(n, t) "%i = iota(shape=[" n "], axis=0, dtype=" t ") "
#define TAKE(axis) " %y = take(%x, %j, axis=" axis ")"

Test(counted, indices_in_range_are_views) {
    cr_expect(is_view(IOTA("12", "i32") "%j = sub(11, %i)" TAKE("1"), "6, 12"), "flipped");
    cr_expect(is_view(IOTA("6", "i8") "%j = sub(-1, %i)" TAKE("0"), "6, 12"), "flipped, from the end");
    cr_expect(is_view(IOTA("6", "u8") "%j = sub(5, %i)" TAKE("0"), "6, 12"), "0 - i wraps, 5 - i does not");
    cr_expect(is_view(IOTA("12", "i64") "%f = flip(%i, axes=[0]) %j = cast(%f, i16)" TAKE("1"), "6, 12"));
    cr_expect(is_view(IOTA("6", "i32") "%d = mul(%i, 2) %j = add(%d, 1)" TAKE("1"), "6, 6"), "every other one");
    cr_expect(is_view(IOTA("5", "i64") "%j = add(%i, 7)" TAKE("1"), "6, 5"), "shifted");
    cr_expect(is_view(IOTA("24", "i32") "%j = mod(%i, 12)" TAKE("1"), "6, 24"), "tiled");
    cr_expect(is_view(IOTA("6", "i32") "%a = add(%i, 2) %j = mod(%a, 6)" TAKE("0"), "6, 12"), "rolled");
    cr_expect(is_view(IOTA("6", "i64") "%a = sub(%i, 2) %j = mod(%a, 6)" TAKE("0"), "6, 12"), "rolled back");
    cr_expect(is_view(IOTA("12", "i32") "%j = and(%i, 7)" TAKE("1"), "6, 12"), "a rest of bits");
    cr_expect(is_view(IOTA("36", "i32") "%j = div(%i, 3)" TAKE("1"), "6, 36"), "upsampled");
    cr_expect(is_view(IOTA("24", "u16") "%s = shr(%i, 1) %j = sub(11, %s)" TAKE("1"), "6, 24"), "and flipped");
    cr_expect(is_view(" %y = take(%x, -1, axis=1)", "6"), "one");
    cr_expect(is_view(IOTA("3", "i32") "%u = reshape(%i, shape=[3, 1]) %j = broadcast_to(%u, shape=[3, 4])" TAKE("0"),
                      "3, 4, 12"));
    cr_expect(is_view("%i = iota(shape=[1, 12], axis=1, dtype=i32) %j = sub(11, %i) %y = take_along(%x, %j, axis=1)",
                      "6, 12"));
    cr_expect(is_view("%i = iota(shape=[6, 12], axis=1, dtype=i32) %j = sub(11, %i) %y = take_along(%x, %j, axis=1)",
                      "6, 12"));
    cr_expect(
        is_view(IOTA("N", "i64") "%n = dim(%z, axis=0) %m = sub(%n, 1) %j = sub(%m, %i) %y = take(%z, %j)", "N, 12"),
        "of any size");
}

Test(counted, what_may_be_out_of_range_is_checked) {
    cr_expect(!is_view(IOTA("12", "i32") "%j = sub(12, %i)" TAKE("1"), "6, 12"));
    cr_expect(!is_view(IOTA("12", "i32") "%j = sub(%i, 1)" TAKE("1"), "6, 12"), "-1 and 0 are no neighbours");
    cr_expect(!is_view(IOTA("13", "i32") "%j = mod(%i, 13)" TAKE("1"), "6, 13"));
    cr_expect(!is_view(IOTA("7", "i64") "%j = div(%i, 1)" TAKE("0"), "7, 12"));
    cr_expect(!is_view(IOTA("N", "i64") "%y = take(%x, %i)", "N, 12"));
    cr_expect(!is_view(IOTA("N", "i32") "%n = dim(%z, axis=0) %c = cast(%n, i32) %m = sub(%c, 1) %j = sub(%m, %i)"
                                        " %y = take(%z, %j)",
                       "N, 12"),
              "more than 2^31 would wrap around");
    cr_expect(!is_view(IOTA("6", "u8") "%a = sub(%i, 2) %j = mod(%a, 6)" TAKE("0"), "6, 12"), "254 mod 6 is 2");
    cr_expect(!is_view("%i = iota(shape=[2*N+1], axis=0, dtype=i64) %j = div(%i, 2) %t = transpose(%z)"
                       " %y = take(%t, %j, axis=1)",
                       "12, 2*N+1"),
              "N is one too many");
    cr_expect(!is_view("%i = iota(shape=[6, 1], axis=0, dtype=i32) %y = take_along(%x, %i, axis=1)", "6, 1"),
              "another one in each row");
}

/* ---- any expression ---- */

static uint64_t state;
static uint32_t below(uint32_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

/* Statements that make %j, and its type in *type. */
static const char *expression(int n, int rank_axis, const char *shape, const char **type) {
    static const char *const types[] = {"i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8"};
    fu_str s;
    fu_str_init(&s, &arena);
    *type = types[below(8)];
    fu_str_addf(&s, "%%v0 = iota(shape=[%s], axis=%d, dtype=%s) ", shape, rank_axis, *type);
    const int count = (int)below(5);
    const bool is_signed = **type == 'i';
    for (int k = 0; k < count; k++) {
        const int c = (int)below(14) - (is_signed ? 3 : 0);
        const unsigned positive = below(12);
        switch (below(12)) {
        case 0:
        case 1: fu_str_addf(&s, "%%v%d = add(%%v%d, %d) ", k + 1, k, c); break;
        case 2: fu_str_addf(&s, "%%v%d = sub(%%v%d, %d) ", k + 1, k, c); break;
        case 3: fu_str_addf(&s, "%%v%d = sub(%d, %%v%d) ", k + 1, is_signed && below(2) ? -1 : n - 1, k); break;
        case 4: fu_str_addf(&s, "%%v%d = mul(%%v%d, %d) ", k + 1, k, (int)below(4) - is_signed); break;
        case 5: fu_str_addf(&s, "%%v%d = div(%%v%d, %u) ", k + 1, k, below(2) ? 2 : positive); break;
        case 6: fu_str_addf(&s, "%%v%d = mod(%%v%d, %u) ", k + 1, k, positive); break;
        case 7: fu_str_addf(&s, "%%v%d = fmod(%%v%d, %u) ", k + 1, k, positive); break;
        case 8: fu_str_addf(&s, "%%v%d = shr(%%v%d, %u) ", k + 1, k, below(3)); break;
        case 9: fu_str_addf(&s, "%%v%d = and(%%v%d, %u) ", k + 1, k, below(2) ? 3 : positive); break;
        case 10: fu_str_addf(&s, "%%v%d = flip(%%v%d, axes=[%d]) ", k + 1, k, rank_axis); break;
        default:
            *type = types[below(8)];
            fu_str_addf(&s, "%%v%d = cast(%%v%d, %s) ", k + 1, k, *type);
            if ((**type == 'i') != is_signed)
                return fu_str_addf(&s, "%%j = reshape(%%v%d, shape=[%s]) ", k + 1, shape), s.at;
        }
    }
    fu_str_addf(&s, "%%j = reshape(%%v%d, shape=[%s]) ", count, shape);
    return s.at;
}

static fusor_status run(fusor_context *ctx, const char *text, fusor_buffer *in, fusor_buffer *out) {
    fusor_executable *exe;
    cr_assert_eq(fusor_compile_text(ctx, text, NULL, &exe), FUSOR_OK, "%s\n%s", text, fusor_error_message(ctx));
    const fusor_status status = fusor_executable_call(exe, in != NULL, in, 1, out);
    fusor_executable_free(exe);
    return status;
}

Test(counted, any_expression_takes_what_its_indices_say) {
    enum { COLUMNS = 3, MAX = 24 };
    fusor_context *ctx = new_context(1);
    int n_wrong = 0, n_right = 0;
    float x[12 * COLUMNS];
    for (int i = 0; i < 12 * COLUMNS; i++) x[i] = (float)(i + 1);
    for (uint64_t seed = 1; seed <= 400; seed++) {
        state = seed;
        for (int i = 0; i < 4; i++) (void)below(2);
        const int n = 1 + (int)below(MAX), size = 1 + (int)below(12), form = (int)below(4);
        /* rows, columns, along rows, two axes of indices */
        const char *const shape = form == 2   ? fu_format(&arena, "1, %d", n)
                                  : form == 3 ? fu_format(&arena, "2, %d", n)
                                              : fu_format(&arena, "%d", n);
        const char *type, *body = expression(below(2) ? n : size, form >= 2, shape, &type);
        const int rank = 1 + (form >= 2), n_indices = form == 3 ? 2 * n : n;
        int64_t index[2 * MAX];
        float y[2 * MAX * COLUMNS];
        fusor_buffer of_index = {.data = index, .dtype = FUSOR_I64, .rank = rank},
                     of_x = {.data = x, .dtype = FUSOR_F32, .rank = 2}, of_y = {.data = y, .dtype = FUSOR_F32};
        memcpy(of_index.shape,
               form == 2   ? (int64_t[]){1, n}
               : form == 3 ? (int64_t[]){2, n}
                           : (int64_t[]){n, 0},
               2 * sizeof(int64_t));
        cr_assert_eq(run(ctx,
                         fu_format(&arena, "func @f() -> i64[%s] { %s %%r = cast(%%j, i64) return %%r }", shape, body),
                         NULL, &of_index),
                     FUSOR_OK, "%s", fusor_error_message(ctx));
        const bool is_row = form == 0 || form == 3; /* rows of x are taken, else columns */
        memcpy(of_x.shape, is_row ? (int64_t[]){size, COLUMNS} : (int64_t[]){COLUMNS, size}, 2 * sizeof(int64_t));
        const char *of = form == 3 ? fu_format(&arena, "2, %d, %d", n, COLUMNS)
                         : is_row  ? fu_format(&arena, "%d, %d", n, COLUMNS)
                                   : fu_format(&arena, "%d, %d", COLUMNS, n);
        of_y.rank = form == 3 ? 3 : 2;
        memcpy(of_y.shape,
               form == 3 ? (int64_t[]){2, n, COLUMNS}
               : is_row  ? (int64_t[]){n, COLUMNS, 0}
                         : (int64_t[]){COLUMNS, n, 0},
               3 * sizeof(int64_t));
        const char *text =
            fu_format(&arena, "func @f(%%x: f32[%d, %d]) -> f32[%s] { %s %%y = %s(%%x, %%j, axis=%d) return %%y }",
                      (int)of_x.shape[0], (int)of_x.shape[1], of, body, form == 2 ? "take_along" : "take", !is_row);
        bool is_wrong = false;
        for (int i = 0; i < n_indices; i++) { /* u64 beyond i64 comes back negative */
            is_wrong |= index[i] >= size || index[i] < (*type == 'u' ? 0 : -size);
            if (index[i] < 0) index[i] += size;
        }
        const fusor_status status = run(ctx, text, &of_x, &of_y);
        cr_assert_eq(status, is_wrong ? FUSOR_ERROR_INDEX : FUSOR_OK, "seed %d: %s\n%s", (int)seed, text,
                     status ? fusor_error_message(ctx) : "no error");
        n_wrong += is_wrong;
        n_right += !is_wrong;
        for (int i = 0; !is_wrong && i < n_indices; i++)
            for (int c = 0; c < COLUMNS; c++)
                cr_assert_eq(is_row ? y[i * COLUMNS + c] : y[c * n + i],
                             is_row ? x[index[i] * COLUMNS + c] : x[c * size + index[i]], "seed %d, %d %d: %s",
                             (int)seed, i, c, text);
    }
    cr_expect(n_wrong > 50 && n_right > 100, "%d wrong, %d right", n_wrong, n_right);
    fusor_context_free(ctx);
}

/* Beyond its range an index is the error it was, by name and place. */
Test(counted, errors_are_those_of_indices) {
    fusor_context *ctx = new_context(1);
    float x[12] = {0}, y[12];
    fusor_buffer in = FUSOR_BUFFER(x, FUSOR_F32, 12), out = FUSOR_BUFFER(y, FUSOR_F32, 12);
    cr_expect_eq(run(ctx,
                     "func @f(%x: f32[12]) -> f32[12] { %i = iota(shape=[12], axis=0, dtype=i32) %j = add(%i, 1)"
                     " %y = take(%x, %j) return %y }",
                     &in, &out),
                 FUSOR_ERROR_INDEX);
    cr_expect(strstr(fusor_error_message(ctx), "index 12 at position [11] of the indices %j"), "%s",
              fusor_error_message(ctx));
    fusor_context_free(ctx);
}

/* Numbers that overflow whatever is made of them: programs of any kind, none of which may fail but by an index. */
Test(counted, extreme_numbers) {
    static const char *const numbers[] = {"9223372036854775807",
                                          "9223372036854775806",
                                          "-9223372036854775808",
                                          "4611686018427387904",
                                          "1152921504606846977",
                                          "-4611686018427387905",
                                          "-9223372036854775807",
                                          "0",
                                          "-1"};
    static const char *const ops[] = {"add(%i, %K)", "sub(%i, %K)",  "sub(%K, %i)", "mul(%i, %K)", "div(%i, %K)",
                                      "mod(%i, %K)", "fmod(%i, %K)", "and(%i, %K)", "shr(%i, %K)"};
    enum { N_NUMBERS = sizeof numbers / sizeof *numbers, N_OPS = sizeof ops / sizeof *ops };
    fusor_context *ctx = new_context(1);
    int64_t x[4] = {1, 2, 3, 4}, j[4], y[4];
    int n_right = 0;
    for (int k = 0; k < N_NUMBERS * N_NUMBERS * N_OPS * N_OPS; k += 7) {
        const int a = k % N_NUMBERS, b = k / N_NUMBERS % N_NUMBERS, p = k / N_NUMBERS / N_NUMBERS % N_OPS,
                  q = k / N_NUMBERS / N_NUMBERS / N_OPS;
        char body[300] = "%i = iota(shape=[4], axis=0, dtype=i64) %a = ";
        for (int step = 0; step < 2; step++) {
            for (const char *c = ops[step ? q : p]; *c; c++) {
                if (c[0] == '%' && c[1] == 'K') strcat(body, numbers[step ? b : a]), c++;
                else if (c[0] == '%' && step) strcat(body, "%a"), c++;
                else strncat(body, c, 1);
            }
            strcat(body, step ? "" : " %j = ");
        }
        fusor_buffer of_x = FUSOR_BUFFER(x, FUSOR_I64, 4), of_j = FUSOR_BUFFER(j, FUSOR_I64, 4),
                     of_y = FUSOR_BUFFER(y, FUSOR_I64, 4);
        OK(run(ctx, fu_format(&arena, "func @f() -> i64[4] { %s return %%j }", body), NULL, &of_j));
        const fusor_status status =
            run(ctx, fu_format(&arena, "func @f(%%x: i64[4]) -> i64[4] { %s %%y = take(%%x, %%j) return %%y }", body),
                &of_x, &of_y);
        bool is_wrong = false;
        for (int i = 0; i < 4; i++) is_wrong |= j[i] < -4 || j[i] > 3;
        cr_assert_eq(status, is_wrong ? FUSOR_ERROR_INDEX : FUSOR_OK, "%s", body);
        for (int i = 0; !is_wrong && i < 4; i++) cr_assert_eq(y[i], x[(j[i] + 4) % 4], "%s, %d", body, i);
        n_right += !is_wrong;
    }
    cr_expect(n_right > 100, "%d", n_right);
    fusor_context_free(ctx);
}

/* Of no element there is nothing to take, by an index or by none. */
Test(counted, no_elements) {
    fusor_context *ctx = new_context(1);
    float x[1] = {0};
    fusor_buffer in = FUSOR_BUFFER(x, FUSOR_F32, 0), out = FUSOR_BUFFER(x, FUSOR_F32, 0);
    OK(run(ctx,
           "func @f(%x: f32[N]) -> f32[N] { %i = iota(shape=[N], axis=0, dtype=i64) %n = dim(%x, axis=0)"
           " %m = sub(%n, 1) %j = sub(%m, %i) %y = take(%x, %j) return %y }",
           &in, &out));
    fusor_context_free(ctx);
}

/* ---- scatters ---- */

static bool is_concat(const char *body, const char *result) {
    const ir_plan *p =
        plan_text(fu_format(&arena, "func @f(%%x: f32[12, 8], %%u: f32[5, 8], %%v: f32[12, 8]) -> %s { %s return %%y }",
                            result, body),
                  &(ir_plan_options){.level = IR_LEVEL_V4});
    bool scatters = false;
    for (uint32_t s = 0; s < p->steps.n; s++)
        scatters |= p->steps.at[s].kind == IR_STEP_KERNEL && ir_kernel_is_scatter(p->steps.at[s].kernel);
    return !scatters;
}

#define ROWS(n, t) "%i = iota(shape=[" n ", 8], axis=0, dtype=" t ") "

Test(counted, scatters_of_neighbours_are_concatenations) {
    const char *y = "f32[12, 8]";
    cr_expect(is_concat(ROWS("5", "i32") "%j = add(%i, 3) %y = scatter(%x, %j, %u, axis=0)", y));
    cr_expect(is_concat(ROWS("5", "i32") "%j = sub(-1, %i) %y = scatter(%x, %j, %u, axis=0, mode=add)", y));
    cr_expect(is_concat(ROWS("12", "i64") "%y = scatter(%x, %i, %v, axis=0, mode=max)", y));
    cr_expect(!is_concat(ROWS("5", "i32") "%j = add(%i, 8) %y = scatter(%x, %j, %u, axis=0)", y), "12 is no place");
    cr_expect(!is_concat(ROWS("5", "i32") "%j = mul(%i, 2) %y = scatter(%x, %j, %u, axis=0)", y));
    cr_expect(!is_concat(ROWS("5", "i32") "%j = mul(%i, 0) %y = scatter(%x, %j, %u, axis=0)", y), "all into one");
    cr_expect(!is_concat(ROWS("5", "i32") "%j = div(%i, 2) %y = scatter(%x, %j, %u, axis=0)", y));
    cr_expect(!is_concat(ROWS("5", "i32") "%t = slice(%u, starts=[0], ends=[2]) %j = slice(%i, starts=[0], ends=[2])"
                                          " %y = scatter(%x, %j, %t, axis=0)",
                         y),
              "few");
    cr_expect(!is_concat("%i = iota(shape=[5, 8], axis=1, dtype=i32) %y = scatter(%x, %i, %u, axis=1)", y),
              "of 5 rows");
    cr_expect(
        !is_concat(ROWS("5", "i32") "%j = add(%i, 3) %y = scatter(%x, %j, %u, axis=0)", "(%y: f32[12, 8] alias %x)"),
        "in place");
}

Test(counted, any_scatter_of_neighbours_is_right) {
    enum { MAX = 12, COLUMNS = 3 };
    static const char *const modes[] = {"set", "add", "mul", "max", "min"};
    fusor_context *ctx = new_context(1);
    for (uint64_t seed = 1; seed <= 150; seed++) {
        state = seed;
        for (int i = 0; i < 4; i++) (void)below(2);
        const int size = 1 + (int)below(MAX), n = 1 + (int)below((uint32_t)size), mode = (int)below(5);
        const bool is_row = below(2), is_back = below(2), is_negative = below(2);
        const int first = (int)below((uint32_t)(size - n) + 1);
        const int from = (is_back ? first + n - 1 : first) - (is_negative ? size : 0);
        float x[MAX * COLUMNS], u[MAX * COLUMNS], y[MAX * COLUMNS], want[MAX * COLUMNS];
        for (int i = 0; i < size * COLUMNS; i++) want[i] = x[i] = i % 4 ? (float)(i - 9) : -0.0f;
        for (int i = 0; i < n * COLUMNS; i++) u[i] = (float)((int)below(40) - 20) / 4;
        for (int i = 0; i < n; i++) {
            const int to = is_back ? first + n - 1 - i : first + i;
            for (int c = 0; c < COLUMNS; c++) {
                float *at = &want[is_row ? to * COLUMNS + c : c * size + to];
                const float v = u[is_row ? i * COLUMNS + c : c * n + i];
                const bool keeps = mode == 3 ? *at > v : mode == 4 && *at < v;
                *at = mode == 1 ? *at + v : mode == 2 ? *at * v : keeps ? *at : v;
            }
        }
        const int rows = is_row ? n : COLUMNS, columns = is_row ? COLUMNS : n;
        const int x_rows = is_row ? size : COLUMNS, x_columns = is_row ? COLUMNS : size;
        const char *text =
            fu_format(&arena,
                      "func @f(%%x: f32[%d, %d], %%u: f32[%d, %d]) -> f32[%d, %d] {"
                      " %%i = iota(shape=[%d, %d], axis=%d, dtype=i32) %%j = %s"
                      " %%y = scatter(%%x, %%j, %%u, axis=%d, mode=%s) return %%y }",
                      x_rows, x_columns, rows, columns, x_rows, x_columns, rows, columns, !is_row,
                      is_back ? fu_format(&arena, "sub(%d, %%i)", from) : fu_format(&arena, "add(%%i, %d)", from),
                      !is_row, modes[mode]);
        fusor_executable *exe;
        OK(fusor_compile_text(ctx, text, NULL, &exe));
        fusor_buffer in[2] = {FUSOR_BUFFER(x, FUSOR_F32, x_rows, x_columns), FUSOR_BUFFER(u, FUSOR_F32, rows, columns)},
                     out = FUSOR_BUFFER(y, FUSOR_F32, x_rows, x_columns);
        OK(fusor_executable_call(exe, 2, in, 1, &out));
        cr_assert_eq(memcmp(y, want, (size_t)size * COLUMNS * sizeof *y), 0, "seed %d: %s", (int)seed, text);
        fusor_executable_free(exe);
    }
    fusor_context_free(ctx);
}
