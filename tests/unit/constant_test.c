/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* constant_test.c: matrices that are computed of `const` parameters alone (weights of 4 bits) are made and packed once,
 * where all of these are bound. Bits are those of what is not bound; executables that share one of the parameters keep
 * matrices of their own. */
#include "api_test.h"
#include "plan_test.h"
#include <stdio.h>

TestSuite(constant, .init = text_start, .fini = text_stop);

enum { N = 96, K = 128, G = 32, MOST = 40 };

/* Nibbles in turns, or the low ones and then the high ones; %d is the matrix [N, K]. */
#define UNPACK(concat)                                                                                                 \
    "%l = and(%q, 15) %h = shr(%q, 4) " concat " %w = reshape(%c, shape=[96, 4, 32]) %f = cast(%w, f32)"               \
    " %z = sub(%f, 8.0) %t = unsqueeze(%s, axes=[2]) %m = mul(%z, %t) %d = reshape(%m, shape=[96, 128]) "
#define IN_TURNS        UNPACK("%l1 = unsqueeze(%l, axes=[2]) %h1 = unsqueeze(%h, axes=[2]) %c = concat(%l1, %h1, axis=2)")
#define HALVES          UNPACK("%c = concat(%l, %h, axis=1)")
#define HEAD(m, result) "func @f(%x: f32[" m ", 128], const %q: u8[96, 64], const %s: f32[96, 4]) -> " result " { "

static const char *const programs[] = {
    HEAD("M", "f32[M, 96]") IN_TURNS "%y = matmul(%x, %d, transpose_b=true) return %y }",
    HEAD("M", "f32[M, 96]") HALVES "%y = matmul(%x, %d, transpose_b=true) return %y }",
    HEAD("1", "f32[1, 96]") IN_TURNS "%y = matmul(%x, %d, transpose_b=true) return %y }",
    /* one matrix for two products, the second of what the first made; and a product with a sum of it beside */
    HEAD("M", "f32[M, 128]") HALVES "%a = matmul(%x, %d, transpose_b=true) %y = matmul(%a, %d) return %y }",
    HEAD("M", "(f32[M, 96], f32[96])") HALVES "%y = matmul(%x, %d, transpose_b=true) %r = reduce_sum(%d, axes=[1])"
                                              " return %y, %r }",
    /* in the packing kernel alone */
    HEAD("M", "f32[M, 64]") "%f = cast(%q, f32) %e = mul(%f, 0.5) %v = slice(%x, starts=[0], ends=[96], axes=[1])"
                            " %y = matmul(%v, %e) return %y }",
};
enum { N_PROGRAMS = sizeof programs / sizeof *programs };

static float x[MOST * K], s[2][N * 4], y[MOST * K], want[MOST * K], r[N];
static uint8_t q[2][N * K / 2];

static void fill(void) {
    for (int i = 0; i < MOST * K; i++) x[i] = (float)((i * 37) % 101) / 50 - 1;
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < N * 4; i++) s[k][i] = (float)((i * 7 + k * 5) % 13 + 1) / 16;
        for (int i = 0; i < N * K / 2; i++) q[k][i] = (uint8_t)(i * 29 + i / 64 * 3 + k * 17);
    }
}

static fusor_buffer of_q(int k) { return (fusor_buffer){.data = q[k], .dtype = FUSOR_U8, .rank = 2, .shape = {N, 64}}; }
static fusor_buffer of_s(int k) { return (fusor_buffer){.data = s[k], .dtype = FUSOR_F32, .rank = 2, .shape = {N, 4}}; }

/* Calls with m rows, after n_bound inputs less than all. */
static void call(fusor_context *ctx, fusor_executable *exe, int64_t m, int kq, int ks, bool has_q, bool has_s,
                 float *to) {
    fusor_buffer in[3] = {{.data = x, .dtype = FUSOR_F32, .rank = 2, .shape = {m, K}}}, out[2];
    fusor_argument_info info[2];
    const int n_out = fusor_executable_outputs(exe, 2, info);
    int n = 1;
    if (has_q) in[n++] = of_q(kq);
    if (has_s) in[n++] = of_s(ks);
    for (int i = 0; i < n_out; i++) out[i] = (fusor_buffer){.data = NULL};
    OK(fusor_executable_infer(exe, n, in, n_out, out));
    out[0].data = to;
    if (n_out > 1) out[1].data = r;
    OK(fusor_executable_call(exe, n, in, n_out, out));
}

static fusor_executable *bind(fusor_context *ctx, fusor_executable *exe, const char *name, fusor_buffer value) {
    fusor_executable *out = NULL;
    OK(fusor_executable_bind(exe, 1, &name, &value, &out));
    return out;
}

static void same(const char *text, int64_t m, const char *what) {
    for (int64_t i = 0; i < m * 64; i++)
        cr_assert(memcmp(&y[i], &want[i], sizeof y[i]) == 0, "%s, %d rows: %g, not %g at %d: %s", what, (int)m,
                  (double)y[i], (double)want[i], (int)i, text);
}

Test(constant, bound_ones_give_the_same_bits) {
    static const int64_t rows[] = {1, 40, 7, 7, 7, 0, 3};
    fill();
    for (int threads = 1; threads < 4; threads += 2) {
        fusor_context *ctx = new_context(threads);
        for (int p = 0; p < N_PROGRAMS; p++) {
            fusor_executable *exe = NULL;
            OK(fusor_compile_text(ctx, programs[p], NULL, &exe));
            /* one of the two is shared, in both orders of binding */
            fusor_executable *with_q = bind(ctx, exe, "q", of_q(0)), *with_s = bind(ctx, exe, "s", of_s(0));
            fusor_executable *all[4] = {bind(ctx, with_q, "s", of_s(0)), bind(ctx, with_q, "s", of_s(1)),
                                        bind(ctx, with_s, "q", of_q(0)), bind(ctx, with_s, "q", of_q(1))};
            static const int which[4][2] = {{0, 0}, {0, 1}, {0, 0}, {1, 0}};
            for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
                const int64_t m = strstr(programs[p], "f32[1,") ? 1 : rows[k];
                call(ctx, exe, m, 0, 0, true, true, want);
                call(ctx, with_q, m, 0, 0, false, true, y);
                same(programs[p], m, "q");
                call(ctx, with_s, m, 0, 0, true, false, y);
                same(programs[p], m, "s");
                for (int i = 0; i < 4; i++) {
                    call(ctx, exe, m, which[i][0], which[i][1], true, true, want);
                    for (int again = 0; again < 3; again++) {
                        memset(y, 255, sizeof y);
                        call(ctx, all[i], m, 0, 0, false, false, y);
                        same(programs[p], m, "both");
                    }
                }
            }
            for (int i = 0; i < 4; i++) fusor_executable_free(all[i]);
            fusor_executable_free(with_q);
            fusor_executable_free(with_s);
            fusor_executable_free(exe);
        }
        fusor_context_free(ctx);
    }
}

/* Over several sets of buffers: the first call makes the matrix, the second has it. */
Test(constant, each_set_has_it) {
    enum { SETS = 3 };
    static const int64_t rows[SETS] = {5, 40, 7};
    static float result[SETS][MOST * K];
    fill();
    for (int threads = 1; threads < 4; threads += 2)
        for (int p = 0; p < 2; p++) {
            fusor_context *ctx = new_context(threads);
            fusor_executable *exe = NULL;
            OK(fusor_compile_text(ctx, programs[p], NULL, &exe));
            fusor_executable *with_q = bind(ctx, exe, "q", of_q(0)), *both = bind(ctx, with_q, "s", of_s(0));
            for (int again = 0; again < 2; again++) {
                fusor_buffer in[SETS], out[SETS];
                for (int i = 0; i < SETS; i++) {
                    in[i] = (fusor_buffer){.data = x + i * K, .dtype = FUSOR_F32, .rank = 2, .shape = {rows[i] - i, K}};
                    out[i] =
                        (fusor_buffer){.data = result[i], .dtype = FUSOR_F32, .rank = 2, .shape = {rows[i] - i, N}};
                }
                memset(result, 255, sizeof result);
                OK(fusor_executable_call_each(both, SETS, 1, &(fusor_buffer_list){in, SETS}, 1,
                                              &(fusor_buffer_list){out, SETS}));
                for (int i = 0; i < SETS; i++) {
                    fusor_buffer all[3] = {in[i], of_q(0), of_s(0)}, to = out[i];
                    to.data = want;
                    OK(fusor_executable_call(exe, 3, all, 1, &to));
                    memcpy(y, result[i], sizeof y);
                    same(programs[p], (rows[i] - i) * N / 64, "a set");
                }
            }
            fusor_executable_free(both);
            fusor_executable_free(with_q);
            fusor_executable_free(exe);
            fusor_context_free(ctx);
        }
}

/* Steps that need not run again; -1: nothing is packed once. */
static int done_once(const char *text) {
    const ir_plan *p = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4});
    int packs = 0, done = 0;
    for (uint32_t i = 0; i < p->steps.n; i++) packs += p->steps.at[i].prepack_param >= 0;
    for (uint32_t i = 0; i < p->steps.n; i++) done += p->steps.at[i].serves.n > 0;
    return packs ? done : -1;
}

Test(constant, what_is_packed_is_made_once) {
    cr_expect_eq(done_once(programs[0]), 2);
    cr_expect_eq(done_once(programs[1]), 2);
    cr_expect_eq(done_once(programs[2]), 2);
    cr_expect_eq(done_once(programs[3]), 2);
    cr_expect_eq(done_once(programs[5]), 0, "it is packed as it is computed");
    /* something else reads it; a call's sizes and inputs are in it; its indices are checked in each call */
    cr_expect_leq(done_once(programs[4]), 1);
    cr_expect_eq(done_once("func @f(%x: f32[M, K], const %w: f32[96, 128], %u: f32[128]) -> f32[M, 96] {"
                           " %v = slice(%x, starts=[0], ends=[128], axes=[1]) %a = reshape(%w, shape=[128, 96])"
                           " %t = reshape(%u, shape=[128, 1]) %b = mul(%a, %t) %y = matmul(%v, %b) return %y }"),
                 -1);
    cr_expect_eq(done_once("func @f(%x: f32[M, 128], const %w: f32[128, 96]) -> f32[M, 96] {"
                           " %n = dim(%x, axis=0) %f = cast(%n, f32) %b = mul(%w, %f) %y = matmul(%x, %b) return %y }"),
                 -1);
    cr_expect_eq(done_once("func @f(%x: f32[M, 128], const %w: f32[200, 96], const %i: i32[64]) -> f32[M, 96] {"
                           " %j = concat(%i, %i, axis=0) %b = take(%w, %j, axis=0) %y = matmul(%x, %b) return %y }"),
                 0);
}

/* What is used of a constant that is bound depends on the call: how much of it, which part, how often. Sizes go up and
 * down, through executables of one bound value. */
static const char *const parts[] = {
    "%b = slice(%w, starts=[0, 0], ends=[64, T]) %y = matmul(%x, %b)",
    "%b = slice(%w, starts=[0], ends=[T]) %c = slice(%x, starts=[0], ends=[T], axes=[1]) %y = matmul(%c, %b)",
    "%b = slice(%w, starts=[0, T], ends=[64, T+16]) %y = matmul(%x, %b)",
    "%b = slice(%w, starts=[T, 3], ends=[T+16, 40]) %c = slice(%x, starts=[0], ends=[16], axes=[1]) %y = matmul(%c, "
    "%b)",
    "%b = slice(%w, starts=[0], ends=[1]) %d = reshape(%b, shape=[100]) %e = broadcast_to(%d, shape=[T, 100]) "
    "%c = slice(%x, starts=[0], ends=[T], axes=[1]) %y = matmul(%c, %e)",
    "%b = slice(%w, starts=[0, 0], ends=[64, T]) %c = mul(%b, 2) %y = matmul(%x, %c)",
    "%b = slice(%w, starts=[T, 0], ends=[T+16, 50]) %d = sigmoid(%b) %e = transpose(%d) %c = slice(%x, starts=[0], "
    "ends=[50], axes=[1]) %y = matmul(%c, %e)",
    "%b = slice(%w, starts=[0], ends=[1]) %d = reshape(%b, shape=[100]) %e = broadcast_to(%d, shape=[T, 100]) "
    "%g = add(%e, 1) %c = slice(%x, starts=[0], ends=[T], axes=[1]) %y = matmul(%c, %g)",
    "%b = slice(%w, starts=[0, T], ends=[64, T+8]) %y = einsum(\"mk,kn->nm\", %x, %b)",
    "%b = slice(%w, starts=[T, 0], ends=[T+6, 72]) %d = reshape(%b, shape=[6, 8, 9]) %i = reshape(%x, shape=[M, 8, 8]) "
    "%y = conv(%i, %d, pads=[4, 4])",
    "%b = slice(%w, starts=[0, 0], ends=[T, 72]) %d = reshape(%b, shape=[T, 8, 9]) %i = reshape(%x, shape=[M, 8, 8]) "
    "%y = conv(%i, %d, pads=[4, 4])",
    "%d = dim(%m, axis=0) %e = cast(%d, f32) %c = mul(%w, %e) %y = matmul(%x, %c)",
};

Test(constant, parts_that_a_call_chooses) {
    static const int64_t sizes[] = {40, 17, 17, 5, 48, 1, 30};
    static float rows_of[33 * 64], w[64 * 100], t[64];
    char text[700];
    for (int i = 0; i < 33 * 64; i++) rows_of[i] = (float)(i % 13) - 6;
    for (int i = 0; i < 64 * 100; i++) w[i] = (float)(i % 97) - 40;
    fusor_context *ctx = new_context(2);
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        const bool is_image = strstr(parts[p], "conv(") != NULL;
        snprintf(
            text, sizeof text,
            "func @f(%%x: f32[M, 64], const %%w: f32[64, 100], const %%m: f32[T]) -> f32[?, ?%s] { %s return %%y }",
            is_image ? ", ?" : "", parts[p]);
        fusor_executable *exe = NULL, *bound, *other;
        OK(fusor_compile_text(ctx, text, NULL, &exe));
        fusor_buffer of_w = {.data = w, .dtype = FUSOR_F32, .rank = 2, .shape = {64, 100}};
        bound = bind(ctx, exe, "w", of_w);
        fusor_buffer of_t = {.data = t, .dtype = FUSOR_F32, .rank = 1, .shape = {9}};
        other = bind(ctx, bound, "m", of_t); /* has the same bound value, and one T */
        for (size_t k = 0; k < 2 * sizeof sizes / sizeof *sizes; k++) {
            const int64_t rows = k % 3 ? 33 : 7, size = k % 2 ? 9 : sizes[k / 2];
            fusor_buffer in[3] = {{.data = rows_of, .dtype = FUSOR_F32, .rank = 2, .shape = {rows, 64}},
                                  of_w,
                                  {.data = t, .dtype = FUSOR_F32, .rank = 1, .shape = {size}}};
            fusor_buffer want_y = {0}, got = {0};
            OK(fusor_executable_call(exe, 3, in, 1, &want_y));
            in[1] = in[2];
            OK(fusor_executable_call(k % 2 ? other : bound, k % 2 ? 1 : 2, in, 1, &got));
            size_t n = 1;
            for (int d = 0; d < got.rank; d++) {
                cr_assert_eq(got.shape[d], want_y.shape[d], "%s", text);
                n *= (size_t)got.shape[d];
            }
            cr_assert_eq(memcmp(got.data, want_y.data, n * sizeof(float)), 0, "%s: call %d, T = %d", text, (int)k,
                         (int)size);
            fusor_buffer_free(ctx, &want_y);
            fusor_buffer_free(ctx, &got);
        }
        fusor_executable_free(exe);
        fusor_executable_free(bound);
        fusor_executable_free(other);
    }
    fusor_context_free(ctx);
}

/* Sizes that have names are no reason to pack anew: the constant's shape gives them, and what must be equal to one. */
Test(constant, named_sizes_are_packed_once) {
    static const char *const named[] = {
        "func @f(%x: f32[M, K], const %w: f32[K, N]) -> f32[M, N] { %y = matmul(%x, %w) return %y }",
        "func @f(%x: f32[M, D], const %w: f32[K, N]) -> f32[M, N] { %y = matmul(%x, %w) return %y }",
        "func @f(%x: f32[M, D], const %w: f32[N, 2*N]) -> f32[M, N] { %y = matmul(%x, %w, transpose_b=true) return %y "
        "}",
        "func @f(%x: f32[B, M, D], const %w: f32[D, N]) -> f32[B, M, N] { %b = slice(%w, starts=[0, 1], ends=[D, N]) "
        "%c = pad(%b, pads=[0, 0, 0, 1]) %d = slice(%w, starts=[0, 0], ends=[D, N]) %y = matmul(%x, %d) return %y }",
        "func @f(%x: f16[A, C, H, W], const %w: f16[M, D, 3, 3]) -> f16[A, M, ?, ?] { %y = conv(%x, %w) return %y }",
    };
    const ir_plan_options options = {.level = IR_LEVEL_V3};
    for (size_t p = 0; p < sizeof named / sizeof *named; p++) {
        const ir_plan *plan = plan_text(named[p], &options);
        int found = 0;
        for (uint32_t i = 0; i < plan->steps.n; i++) found += plan->steps.at[i].prepack_param == 1;
        cr_expect_eq(found, 1, "%s", named[p]);
    }
}
