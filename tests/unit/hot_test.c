/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* hot_test.c: sums of one_hot over indices are scatters of ones, with the counts that the sums are; its products with
 * matrices are lookups, with the bits that the products have. */
#include "api_test.h"
#include "plan_test.h"
#include <math.h>

TestSuite(hot, .init = text_start, .fini = text_stop);

static bool is_scatter(const char *params, const char *body, const char *type, ir_level level) {
    const ir_plan *p = plan_text(fu_format(&arena, "func @f(%s) -> %s { %s return %%y }", params, type, body),
                                 &(ir_plan_options){.level = level});
    bool scatters = false;
    for (uint32_t s = 0; s < p->steps.n; s++) {
        scatters |= p->steps.at[s].kind == IR_STEP_KERNEL && ir_kernel_is_scatter(p->steps.at[s].kernel);
        cr_expect(p->steps.at[s].kind != IR_STEP_CHECK, "no index is out of range: %s", body);
    }
    return scatters;
}

#define SUM(depth, more) "%h = one_hot(%i, depth=" depth more ") %y = reduce_sum(%h, axes=[0])"

Test(hot, counts_are_scatters) {
    const ir_level v4 = IR_LEVEL_V4;
    cr_expect(is_scatter("%i: i32[N]", SUM("256", ", dtype=i32"), "i64[256]", v4));
    cr_expect(is_scatter("%i: u8[5000]", SUM("256", ""), "f32[256]", v4));
    cr_expect(
        is_scatter("%i: i64[B, 500]", "%h = one_hot(%i, depth=99) %y = reduce_sum(%h, axes=[1])", "f32[B, 99]", v4));
    cr_expect(is_scatter("%i: i64[500]",
                         "%p = iota(shape=[99], axis=0, dtype=i64) %u = unsqueeze(%i, axes=[1]) %e = eq(%u, %p)"
                         " %y = reduce_sum(%e, axes=[0])",
                         "i64[99]", v4));
    cr_expect(!is_scatter("%i: i32[N]", SUM("16", ", dtype=i32"), "i64[16]", v4), "cheaper as a sum");
    cr_expect(!is_scatter("%i: i32[N]", SUM("256", ""), "f32[256]", v4), "f32 may not hold the number");
    cr_expect(!is_scatter("%i: i32[20000000]", SUM("256", ""), "f32[256]", v4));
    cr_expect(is_scatter("%i: i32[20000000]", SUM("256", ", dtype=f64"), "f64[256]", v4));
    cr_expect(!is_scatter("%i: i32[N], %d: f32[D]", SUM("D", ", dtype=i32"), "i64[D]", v4), "D, of any size");
    cr_expect(!is_scatter("%i: i32[500]", "%h = one_hot(%i, depth=99) %y = reduce_sum(%h, axes=[1])", "f32[500]", v4));
    cr_expect(
        !is_scatter("%i: i32[9, 500]", "%h = one_hot(%i, depth=99) %y = reduce_sum(%h, axes=[0])", "f32[500, 99]", v4),
        "of columns");
    cr_expect(!is_scatter("%i: i32[500]",
                          "%p = iota(shape=[300], axis=0, dtype=i8) %c = cast(%i, i8) %u = unsqueeze(%c, axes=[1])"
                          " %e = eq(%u, %p) %y = reduce_sum(%e, axes=[0])",
                          "i64[300]", v4),
              "places that wrap around");
    cr_expect(!is_scatter("%i: i32[N]", SUM("256", ", dtype=i32"), "i64[256]", IR_LEVEL_SM80),
              "a line is one thread's");
}

/* Index number i of a type as bits: in range, behind, negative, extreme. */
static int64_t index_of(int i, int depth, int bits, bool is_signed) {
    const int64_t most = bits == 64 ? INT64_MAX : (INT64_C(1) << (bits - is_signed)) - 1;
    const int64_t v = (int64_t)((unsigned)i * 2654435761u >> 9) % (depth + 3);
    switch (i % 97) {
    case 0: return is_signed ? -1 : most;
    case 1: return is_signed ? -most - 1 : 0;
    case 2: return most;
    case 3: return is_signed && bits > 8 ? -depth : 0;
    default: return v > most ? v % 100 : v;
    }
}

Test(hot, counts_are_right) {
    enum { MAX = 1 << 16 };
    static const char *const types[] = {"i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"};
    static const fusor_dtype of_type[] = {FUSOR_I8,  FUSOR_U8,  FUSOR_I16, FUSOR_U16,
                                          FUSOR_I32, FUSOR_U32, FUSOR_I64, FUSOR_U64};
    static const struct {
        const char *shape, *result, *body;
        int rows, n, depth;
        bool is_float;
    } cases[] = {
        {"65536", "i64[100]", "%h = one_hot(%i, depth=100, dtype=i32) %y = reduce_sum(%h, axes=[0])", 1, MAX, 100,
         false},
        {"N", "i64[300]", "%h = one_hot(%i, depth=300, dtype=u8) %y = reduce_sum(%h, axes=[0])", 1, 1000, 300, false},
        {"17, 59", "f32[1, 1, 17]", "%h = one_hot(%i, depth=17) %y = reduce_sum(%h, axes=[0, 1], keepdims=true)", 1,
         1003, 17, true},
        {"13, 40", "f32[13, 50]", "%h = one_hot(%i, depth=50, dtype=f16) %y = reduce_sum(%h, axes=[1], dtype=f32)", 13,
         40, 50, true},
        {"0", "i64[64]", "%h = one_hot(%i, depth=64, dtype=bool) %y = reduce_sum(%h, axes=[0])", 1, 0, 64, false},
    };
    static uint64_t indices[MAX];
    static int64_t want[13 * 300], whole[13 * 300];
    static float single[13 * 300];
    for (int threads = 1; threads <= 3; threads += 2) {
        fusor_context *ctx = new_context(threads);
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            for (int t = 0; t < 8; t++) {
                const int bits = 8 << t / 2, depth = cases[c].depth;
                const bool is_signed = t % 2 == 0;
                memset(want, 0, sizeof want);
                for (int i = 0; i < cases[c].rows * cases[c].n; i++) {
                    const int64_t v = index_of(i, depth, bits, is_signed);
                    memcpy((char *)indices + i * (bits / 8), &v, (size_t)bits / 8);
                    if (v >= 0 && v < depth) want[i / cases[c].n * depth + v]++;
                }
                fusor_executable *exe;
                OK(fusor_compile_text(ctx,
                                      fu_format(&arena, "func @f(%%i: %s[%s]) -> %s { %s return %%y }", types[t],
                                                cases[c].shape, cases[c].result, cases[c].body),
                                      NULL, &exe));
                const bool has_rows = cases[c].rows > 1, is_split = strchr(cases[c].shape, ',') && !has_rows;
                fusor_buffer in = {.data = indices, .dtype = of_type[t], .rank = 1, .shape = {cases[c].n}};
                fusor_buffer out = {.data = cases[c].is_float ? (void *)single : (void *)whole,
                                    .dtype = cases[c].is_float ? FUSOR_F32 : FUSOR_I64,
                                    .rank = 1,
                                    .shape = {depth}};
                if (has_rows) in.rank = 2, in.shape[0] = cases[c].rows, in.shape[1] = cases[c].n;
                if (has_rows) out.rank = 2, out.shape[0] = cases[c].rows, out.shape[1] = depth;
                if (is_split) in.rank = 2, in.shape[0] = 17, in.shape[1] = 59;
                if (is_split) out.rank = 3, out.shape[0] = out.shape[1] = 1, out.shape[2] = depth;
                OK(fusor_executable_call(exe, 1, &in, 1, &out));
                for (int i = 0; i < cases[c].rows * depth; i++)
                    cr_assert_eq(cases[c].is_float ? (int64_t)single[i] : whole[i], want[i], "%s of %s, place %d: %g",
                                 cases[c].body, types[t], i, cases[c].is_float ? (double)single[i] : (double)whole[i]);
                fusor_executable_free(exe);
            }
        }
        fusor_context_free(ctx);
    }
}

/* Gathers by such an index need no check either. */
Test(hot, a_minimum_is_certain) {
    const ir_plan *p;
    for (int most = 8; most < 11; most++) {
        p = plan_text(fu_format(&arena,
                                "func @f(%%x: f32[10], %%i: u32[N]) -> f32[N] {"
                                " %%j = minimum(%%i, %d) %%y = take(%%x, %%j) return %%y }",
                                most),
                      &(ir_plan_options){.level = IR_LEVEL_V4});
        cr_expect_eq(p->steps.n, most < 10 ? 1 : 3, "%d: %u steps", most, p->steps.n);
    }
    p = plan_text("func @f(%x: f32[10], %i: i32[N]) -> f32[N] { %j = minimum(%i, 9) %y = take(%x, %j) return %y }",
                  &(ir_plan_options){.level = IR_LEVEL_V4});
    cr_expect_eq(p->steps.n, 3, "negative ones: %u steps", p->steps.n);
}

/* ---- products ---- */

static int n_contractions(const char *text) {
    const ir_plan *p = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4});
    int n = 0;
    for (uint32_t s = 0; s < p->steps.n; s++)
        n += p->steps.at[s].kind == IR_STEP_KERNEL && p->steps.at[s].kernel->kind == IR_KERNEL_CONTRACT;
    return n;
}

#define HOT "%h = one_hot(%i, depth=100) "

Test(hot, products_are_lookups) {
    cr_expect_eq(n_contractions("func @f(%i: i32[B, T], %w: f32[100, 64]) -> f32[B, T, 64] {" HOT
                                "%y = matmul(%h, %w) return %y }"),
                 0);
    cr_expect_eq(n_contractions("func @f(%i: i32[B], %w: f32[100, N]) -> f16[B, N] {" HOT
                                "%y = matmul(%h, %w, dtype=f16) return %y }"),
                 0);
    cr_expect_eq(n_contractions("func @f(%i: i32[B], %w: f32[64, 100]) -> f32[B, 64] {" HOT
                                "%y = matmul(%h, %w, transpose_b=true) return %y }"),
                 1);
    cr_expect_eq(n_contractions("func @f(%i: i32[64], %w: f32[64, 30]) -> f32[100, 30] {" HOT
                                "%y = matmul(%h, %w, transpose_a=true) return %y }"),
                 1, "sums of rows");
    cr_expect_eq(
        n_contractions("func @f(%i: i32[B], %w: f32[V, 64]) -> f32[B, 64] {" HOT "%y = matmul(%h, %w) return %y }"), 1,
        "V is 100 when it is called");
    cr_expect_eq(n_contractions("func @f(%i: f32[B], %w: f32[100, 64]) -> f32[B, 64] {"
                                " %p = iota(shape=[100], axis=0, dtype=f32) %u = unsqueeze(%i, axes=[1])"
                                " %e = eq(%u, %p) %h = cast(%e, f32) %y = matmul(%h, %w) return %y }"),
                 1, "floats are no indices");
}

/* The same bits as the product with a matrix of zeros and ones: of infinities, NaN and -0 too. */
Test(hot, lookups_have_the_bits_of_products) {
    enum { V = 33, N = 20, M = 40 };
    static const struct {
        const char *type, *result, *attribute;
        bool is_int;
    } types[] = {{"f32", "f32", "", false},
                 {"f64", "f64", "", false},
                 {"f16", "f16", "", false},
                 {"bf16", "bf16", "", false},
                 {"f32", "bool", ", dtype=bool", false},
                 {"i8", "i32", "", true},
                 {"i32", "i64", "", true},
                 {"i64", "i64", "", true}};
    fusor_context *ctx = new_context(2);
    int32_t index[M];
    float w[V * N], h[M * V];
    for (int i = 0; i < M; i++) index[i] = i < 6 ? (int[]){-1, V, INT32_MIN, INT32_MAX, 0, V - 1}[i] : i * 7 % V;
    for (int i = 0; i < M; i++)
        for (int k = 0; k < V; k++) h[i * V + k] = index[i] == k;
    for (int is_finite = 0; is_finite < 2; is_finite++) {
        for (int i = 0; i < V * N; i++) w[i] = i % 11 == 0 ? -0.0f : (float)(i % 101 - 50);
        if (!is_finite) { /* columns: one infinity; NaN; two; in the last row */
            w[3 * N + 2] = INFINITY;
            w[7 * N + 5] = NAN;
            w[7 * N + 6] = -INFINITY;
            w[8 * N + 6] = INFINITY;
            w[(V - 1) * N + 19] = -INFINITY;
        }
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            if (types[t].is_int && !is_finite) continue;
            double y[2][M * N];
            for (int way = 0; way < 2; way++) {
                fusor_executable *exe;
                const char *hot = way ? fu_format(&arena, "%%o = cast(%%h, %s)", types[t].type)
                                      : fu_format(&arena, "%%o = one_hot(%%i, depth=%d, dtype=%s)", V, types[t].type);
                OK(fusor_compile_text(
                    ctx,
                    fu_format(&arena,
                              "func @f(%%i: i32[%d], %%h: f32[%d, %d], %%w: f32[%d, %d]) -> f64[%d, %d] {"
                              " %%x = cast(%%w, %s) %s %%y = matmul(%%o, %%x%s) : %s[%d, %d]"
                              " %%r = cast(%%y, f64) return %%r }",
                              M, M, V, V, N, M, N, types[t].type, hot, types[t].attribute, types[t].result, M, N),
                    NULL, &exe));
                fusor_buffer in[3] = {FUSOR_BUFFER(index, FUSOR_I32, M), FUSOR_BUFFER(h, FUSOR_F32, M, V),
                                      FUSOR_BUFFER(w, FUSOR_F32, V, N)},
                             out = FUSOR_BUFFER(y[way], FUSOR_F64, M, N);
                OK(fusor_executable_call(exe, 3, in, 1, &out));
                fusor_executable_free(exe);
            }
            for (int i = 0; i < M * N; i++)
                cr_assert(isnan(y[0][i]) ? isnan(y[1][i]) : y[0][i] == y[1][i] && signbit(y[0][i]) == signbit(y[1][i]),
                          "%s at %d, %d: %g, not %g", types[t].type, i / N, i % N, y[0][i], y[1][i]);
        }
    }
    fusor_context_free(ctx);
}
