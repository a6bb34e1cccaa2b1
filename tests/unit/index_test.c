/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* index_test.c: wrong indices of take, wherever they come from and wherever they are. (Those of parameters and of
 * scatter: exec_test.c.) OK and FAILS of api_test.h assert. */
#include "api_test.h"
#include <stdio.h>

/* The place of a wrong index is one of the indices, also where their memory is that of a result of another rank. */
Test(index, places_are_those_of_the_indices) {
    static const char *const shapes[] = {"6", "3, 2", "1, 2, 1, 3"};
    static const int64_t of_row[][4] = {{6}, {3, 2}, {1, 2, 1, 3}};
    static const uint8_t ranks[] = {1, 2, 4};
    fusor_context *ctx = new_context(1);
    for (int r = 0; r < 3; r++) {
        char text[300];
        snprintf(text, sizeof text,
                 "func @f(%%x: f32[5, 4], %%i: i32[2, N]) -> (f32[2, N, 4], i32[%s]) { %%j = add(%%i, 1)"
                 " %%t = take(%%x, %%j, axis=0) %%r = reshape(%%j, shape=[%s]) return %%t, %%r }",
                 shapes[r], shapes[r]);
        float x[20] = {0}, t[24];
        int32_t index[6] = {0, 1, 2, 3, 9, 1}, j[6];
        fusor_executable *exe;
        OK(fusor_compile_text(ctx, text, NULL, &exe));
        fusor_buffer in[2] = {FUSOR_BUFFER(x, FUSOR_F32, 5, 4), FUSOR_BUFFER(index, FUSOR_I32, 2, 3)},
                     out[2] = {FUSOR_BUFFER(t, FUSOR_F32, 2, 3, 4), {.data = j, .dtype = FUSOR_I32, .rank = ranks[r]}};
        memcpy(out[1].shape, of_row[r], sizeof of_row[r]);
        FAILS(fusor_executable_call(exe, 2, in, 2, out), FUSOR_ERROR_INDEX,
              "index 10 at position [1, 1] of the indices");
        index[4] = 2;
        OK(fusor_executable_call(exe, 2, in, 2, out));
        fusor_executable_free(exe);
    }
    fusor_context_free(ctx);
}

Test(index, a_scalar_has_no_position) {
    fusor_context *ctx = new_context(1);
    float x[5] = {0}, y;
    int32_t index = 7;
    fusor_executable *exe;
    OK(fusor_compile_text(ctx, "func @f(%x: f32[5], %i: i32) -> f32 { %y = take(%x, %i, axis=0) return %y }", NULL,
                          &exe));
    fusor_buffer in[2] = {FUSOR_BUFFER(x, FUSOR_F32, 5), FUSOR_BUFFER(&index, FUSOR_I32)},
                 out = FUSOR_BUFFER(&y, FUSOR_F32);
    FAILS(fusor_executable_call(exe, 2, in, 1, &out), FUSOR_ERROR_INDEX,
          "take: index 7 of the scalar %i is out of range for axis 0 of size 5");
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

/* An index is wrong also where every place that it could name has the same element. */
Test(index, those_that_decide_nothing_are_checked) {
    static const char *const moves[] = {"%b = neg(%x) %t = take(%b, %j, axis=1)", "%t = take(%x, %j, axis=1)",
                                        "%b = broadcast_to(%x, shape=[3, 2]) %t = take(%b, %j, axis=1)",
                                        "%b = full(1.0, shape=[3, 2], dtype=f32) %t = take(%b, %j, axis=1)",
                                        "%v = flip(%i, axes=[0]) %t = take(%x, %v, axis=1)"};
    fusor_context *ctx = new_context(1);
    for (size_t m = 0; m < sizeof moves / sizeof *moves; m++) {
        char text[300];
        snprintf(text, sizeof text,
                 "func @f(%%x: f32[3, 1], %%i: i32[4]) -> f32[3, 4] { %%j = add(%%i, 1) %s return %%t }", moves[m]);
        float x[3] = {1, 2, 3}, t[12];
        int32_t index[4] = {-1, 0, 2, -1};
        fusor_executable *exe;
        OK(fusor_compile_text(ctx, text, NULL, &exe));
        fusor_buffer in[2] = {FUSOR_BUFFER(x, FUSOR_F32, 3, 1), FUSOR_BUFFER(index, FUSOR_I32, 4)},
                     out = FUSOR_BUFFER(t, FUSOR_F32, 3, 4);
        FAILS(fusor_executable_call(exe, 2, in, 1, &out), FUSOR_ERROR_INDEX, "is out of range for axis 1");
        for (int i = 0; i < 4; i++) index[i] = m == 4 ? 0 : -1;
        OK(fusor_executable_call(exe, 2, in, 1, &out));
        fusor_executable_free(exe);
    }
    fusor_context_free(ctx);
}

/* The first wrong one of many, at the ends of vectors, blocks and tiles of those that are looked at together. */
Test(index, any_place_is_looked_at) {
    enum { N = 2 * 65536 + 77, SIZE = 5 };
    static const int64_t wrong[] = {SIZE, -SIZE - 1, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    static const int places[] = {0, 1, 7, 255, 256, 1000, 65535, 65536, 131071, 131072, N - 2, N - 1};
    static int64_t wide[N];
    static int32_t narrow[N];
    static float y[N];
    float x[SIZE] = {0};
    fusor_context *ctx = new_context(2);
    for (int bits = 32; bits <= 64; bits += 32) {
        char text[200], message[80];
        fusor_executable *exe;
        snprintf(text, sizeof text, "func @f(%%x: f32[%d], %%i: i%d[N]) -> f32[N] { %%y = take(%%x, %%i) return %%y }",
                 SIZE, bits);
        OK(fusor_compile_text(ctx, text, NULL, &exe));
        fusor_buffer in[2] = {FUSOR_BUFFER(x, FUSOR_F32, SIZE), FUSOR_BUFFER(narrow, FUSOR_I32, N)},
                     out = FUSOR_BUFFER(y, FUSOR_F32, N);
        if (bits == 64) in[1] = (fusor_buffer)FUSOR_BUFFER(wide, FUSOR_I64, N);
        for (int i = 0; i < N; i++) narrow[i] = i % (2 * SIZE) - SIZE, wide[i] = narrow[i];
        OK(fusor_executable_call(exe, 2, in, 1, &out));
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            for (int w = 0; w < (bits == 32 ? 4 : 6); w++) {
                const int at = places[p];
                if (w % 2) narrow[N - 1] = SIZE, wide[N - 1] = SIZE; /* not the first */
                narrow[at] = (int32_t)wrong[w], wide[at] = wrong[w];
                snprintf(message, sizeof message, "index %lld at position [%d]", (long long)wrong[w], at);
                FAILS(fusor_executable_call(exe, 2, in, 1, &out), FUSOR_ERROR_INDEX, message);
                narrow[at] = narrow[N - 1] = 0, wide[at] = wide[N - 1] = 0;
            }
        }
        fusor_executable_free(exe);
    }
    fusor_context_free(ctx);
}
