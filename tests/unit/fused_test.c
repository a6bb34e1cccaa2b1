/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Fused and unfused give the same bits where that takes care: programs of a few inputs, run both ways, compared byte by
 * byte. */
#include "api_test.h"
#include "ir/target.h"
#include "rt/cpuinfo.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX = 3, MOST = 4096 };
typedef struct side {
    void *data;
    int64_t bytes;
} side;

static side run(fusor_context *ctx, const char *text, uint32_t flags, const fusor_buffer *in, int n) {
    fusor_executable *exe = compiled_with(ctx, text, flags);
    fusor_buffer out = {.data = NULL};
    OK(fusor_executable_call(exe, n, in, 1, &out));
    side s = {.bytes = out.dtype == FUSOR_F64 ? 8 : 4};
    for (int d = 0; d < out.rank; d++) s.bytes *= out.shape[d];
    s.data = malloc((size_t)s.bytes + 1);
    memcpy(s.data, out.data, (size_t)s.bytes);
    fusor_buffer_free(ctx, &out);
    fusor_executable_free(exe);
    return s;
}

/* A result may be written over an input, so each way has inputs of its own. */
static void fill(fusor_dtype t, const fusor_buffer *shapes, int n, fusor_buffer *in) {
    static double room[MAX][MOST];
    for (int i = 0; i < n; i++) {
        int64_t elements = 1;
        in[i] = shapes[i];
        for (int d = 0; d < in[i].rank; d++) elements *= in[i].shape[d];
        cr_assert(elements <= MOST);
        for (int64_t e = 0; e < elements; e++) {
            double v = (double)((e * 37 + i * 11) % 101) / 17 * (1 + e) - 3;
            if (t == FUSOR_F64) room[i][e] = v;
            else ((float *)room[i])[e] = (float)v;
        }
        in[i].data = room[i];
        in[i].dtype = (int32_t)t;
    }
}

static void same_bits(const char *text, fusor_dtype t, const fusor_buffer *shapes, int n) {
    fusor_context *ctx = new_context(1);
    fusor_buffer in[MAX];
    fill(t, shapes, n, in);
    side a = run(ctx, text, 0, in, n);
    fill(t, shapes, n, in);
    side b = run(ctx, text, FUSOR_NO_FUSE, in, n);
    cr_assert_eq(a.bytes, b.bytes);
    cr_assert(memcmp(a.data, b.data, (size_t)a.bytes) == 0, "%s", text);
    free(a.data);
    free(b.data);
    fusor_context_free(ctx);
}
#define SHAPE(...) FUSOR_BUFFER(NULL, FUSOR_F32, __VA_ARGS__)

/* A transpose behind a row kernel may part dims that its reduction runs over as one: then it has a kernel of its own. */
Test(fused, a_transpose_behind_merged_axes) {
    same_bits("func @f(%f: f32[2, 8, 8, 8]) -> f32[2, 8, 8, 8] { %a = reduce_sum(%f, axes=[1, 2, 3]) %b = reshape(%a, "
              "shape=[2, 1, 1, 1]) %c = sub(%f, %b) %r = transpose(%c, perm=[0, 2, 1, 3]) return %r }",
              FUSOR_F32, (fusor_buffer[]){SHAPE(2, 8, 8, 8)}, 1);
}

/* Means and maxima of blocks of a plane are pools: the elements of a block, whichever they are, a NaN among them too. */
Test(fused, blocks_of_a_plane) {
    enum { N = 3, H = 5, K = 3, W = 11, L = 2 };
    static float x[N * H * K * W * L], mean[N * H * W], most[N * H * W];
    for (int i = 0; i < N * H * K * W * L; i++) x[i] = (float)(i * 37 % 101) - 60;
    x[100] = NAN;
    fusor_context *ctx = new_context(1);
    for (int is_fused = 0; is_fused < 2; is_fused++) {
        fusor_executable *exe = compiled_with(
            ctx,
            "func @f(%x: f32[N, H, 3, W, 2]) -> (f32[N, H, W], f32[N, H, 1, W, 1]) { %a = reduce_mean(%x, axes=[2, 4]) "
            "%b = reduce_max(%x, axes=[2, -1], keepdims=true) return %a, %b }",
            is_fused ? 0 : FUSOR_NO_FUSE);
        const fusor_buffer in = FUSOR_BUFFER(x, FUSOR_F32, N, H, K, W, L);
        fusor_buffer out[2] = {FUSOR_BUFFER(mean, FUSOR_F32, N, H, W), FUSOR_BUFFER(most, FUSOR_F32, N, H, 1, W, 1)};
        OK(fusor_executable_call(exe, 1, &in, 2, out));
        fusor_executable_free(exe);
        for (int b = 0; b < N * H * W; b++) {
            double sum = 0, largest = -INFINITY;
            for (int k = 0; k < K; k++)
                for (int l = 0; l < L; l++) {
                    const double v = x[((b / W * K + k) * W + b % W) * L + l];
                    sum += v;
                    largest = isnan(v) || isnan(largest) ? NAN : v > largest ? v : largest;
                }
            if (isnan(sum)) cr_expect(isnan(mean[b]) && isnan(most[b]), "block %d: %g, %g", b, mean[b], most[b]);
            else
                cr_expect(fabs(mean[b] - sum / (K * L)) < 1e-5 && most[b] == largest, "block %d: %g, %g", b, mean[b],
                          most[b]);
        }
    }
    fusor_context_free(ctx);
}

/* Two operands name the same sizes differently: that they agree is known only when the call has checked it, and whether
 * the axes of a reduction are walked as one must not depend on which of them share its kernel. */
Test(fused, sizes_of_several_names) {
    same_bits("func @f(%x: f32[A, B], %y: f32[C, D]) -> f32 { %s = add(%x, %y) %r = reduce_sum(%s) return %r }",
              FUSOR_F32, (fusor_buffer[]){SHAPE(61, 13), SHAPE(61, 13)}, 2);
    same_bits("func @f(%x: f32[A, B], %y: f32[61, 13]) -> f32 { %s = add(%y, %x) %r = reduce_mean(%s) return %r }",
              FUSOR_F32, (fusor_buffer[]){SHAPE(61, 13), SHAPE(61, 13)}, 2);
    same_bits("func @f(%x: f64[8, 3], %g: f64[8, N]) -> f64[8, 3] {"
              " %h = neg(%g) %r = layer_norm(%x, %h, axis=0) return %r }",
              FUSOR_F64, (fusor_buffer[]){SHAPE(8, 3), SHAPE(8, 3)}, 2);
}

/* Rows of windows end with a whole vector, of which some elements are made twice: not where that reads its own result. */
Test(fused, windows_beside_an_operand_that_is_written_over) {
    static const int64_t widths[] = {3, 16, 17, 28, 33};
    for (int i = 0; i < 5; i++) {
        const fusor_buffer shapes[2] = {SHAPE(1, 3, 29, widths[i]), SHAPE(1, 3, 29, widths[i])};
        char text[400];
        for (int known = 0; known < 2; known++) {
            char w[24] = "W";
            if (known) snprintf(w, sizeof w, "%d", (int)widths[i]);
            snprintf(text, sizeof text,
                     "func @f(%%p: f32[1, 3, 29, %s], %%x: f32[1, 3, 29, %s]) -> (%%y: f32[1, 3, 29, %s] alias %%p) {"
                     " %%m = max_pool(%%x, kernel=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1]) %%y = add(%%p, %%m)"
                     " return %%y }",
                     w, w, w);
            same_bits(text, FUSOR_F32, shapes, 2);
        }
    }
}

/* Rows that are counted, in the last pass down the columns: its elements know which row they are of. */
Test(fused, counted_rows_of_columns) {
    const fusor_buffer shapes[1] = {SHAPE(5, 37)};
    same_bits("func @f(%x: f32[5, 37]) -> f32[5, 37] { %i = iota(shape=[5, 1], axis=0, dtype=f32) %y = mul(%x, %i)"
              " %m = reduce_max(%y, axes=[0], keepdims=true) %r = sub(%y, %m) return %r }",
              FUSOR_F32, shapes, 1);
    same_bits("func @f(%x: f32[5, 37]) -> f32[5, 37] { %i = iota(shape=[5, 37], axis=0, dtype=i64) %k = iota(shape=[5, "
              "37], axis=1, dtype=i64)"
              " %c = le(%i, %k) %y = select(%c, %x, -inf) %r = softmax(%y, axis=0) return %r }",
              FUSOR_F32, shapes, 1);
}

/* The order of their sums must not depend on where an operand lies, which is behind neg or transposed by a kernel. */
Test(fused, sums_over_several_subscripts) {
    same_bits("func @f(%a: f32[24, 24, 5], %b: f32[24, 5, 30]) -> f32[24, 30] { %t = transpose(%a, perm=[0, 2, 1])"
              " %n = neg(%t) %r = einsum(\"ihj,jhk->ik\", %n, %b) return %r }",
              FUSOR_F32, (fusor_buffer[]){SHAPE(24, 24, 5), SHAPE(24, 5, 30)}, 2);
    same_bits("func @f(%a: f32[24, 48, 3], %b: f32[3, 30, 24]) -> f32[24, 30] { %s = slice(%a, starts=[0, 0, 0],"
              " ends=[24, 48, 3], steps=[1, 2, 1]) %t = transpose(%b, perm=[1, 2, 0]) %n = abs(%t)"
              " %r = einsum(\"ijh,kjh->ik\", %s, %n) return %r }",
              FUSOR_F32, (fusor_buffer[]){SHAPE(24, 48, 3), SHAPE(3, 30, 24)}, 2);
}

/* Lines that are known to be short have straight code, and the bits of those that are not known. */
Test(fused, known_and_named_lines_scan_alike) {
    static const char *const scans[] = {"cumsum(%z, axis=1)", "cumsum(%z, axis=1, reverse=true)",
                                        "cumprod(%z, axis=1, exclusive=true)",
                                        "cumsum(%z, axis=1, reverse=true, exclusive=true)"};
    static const int lengths[] = {1, 2, 3, 4, 5, 7, 8, 9, 11, 15, 16, 17, 23, 31, 33, 48, 63, 64};
    for (int level = 0; level <= (int)rt_host_level(); level++) {
        fusor_context *ctx = new_context_for(ir_levels[level].name, 2);
        for (int i = 0; i < 18 * 4; i++) {
            const int n = lengths[i / 4];
            const fusor_dtype t = i % 3 ? FUSOR_F32 : FUSOR_F64;
            const fusor_buffer shape[1] = {SHAPE(9, n)};
            char text[2][256], size[2][8] = {"N"};
            fusor_buffer in[MAX];
            side got[2];
            snprintf(size[1], sizeof size[1], "%d", n);
            for (int k = 0; k < 2; k++) {
                snprintf(
                    text[k], sizeof text[k],
                    "func @f(%%x: %s[9, %s]) -> %s[9, %s] { %%z = mul(%%x, 0.01) %%y = %s %%r = neg(%%y) return %%r }",
                    t == FUSOR_F32 ? "f32" : "f64", size[k], t == FUSOR_F32 ? "f32" : "f64", size[k], scans[i % 4]);
                fill(t, shape, 1, in);
                got[k] = run(ctx, text[k], 0, in, 1);
            }
            cr_assert_eq(got[0].bytes, got[1].bytes);
            cr_assert(memcmp(got[0].data, got[1].data, (size_t)got[0].bytes) == 0, "%s", text[1]);
            free(got[0].data);
            free(got[1].data);
        }
        fusor_context_free(ctx);
    }
}

/* Few rows by a matrix whose rows are a power of two apart are made another way than many (contract_sweep.c): with the
 * same bits, for known rows and a name. Behind the last whole panel of columns is a part of one, behind two K blocks a
 * part of a third. */
static void few_rows_are_as_many(fusor_context *ctx, fusor_dtype t) {
    enum { ROWS = 16, K = 1036, N = 1024 };
    const char *type = t == FUSOR_F32 ? "f32" : "f64";
    const int64_t bytes = t == FUSOR_F32 ? 4 : 8;
    fusor_buffer in[3] = {SHAPE(ROWS, K), SHAPE(K, N), SHAPE(N)};
    for (int i = 0; i < 3; i++) {
        const int64_t n = in[i].shape[0] * (in[i].rank > 1 ? in[i].shape[1] : 1);
        in[i].dtype = (int32_t)t;
        in[i].data = malloc((size_t)(n * bytes));
        for (int64_t e = 0; e < n; e++) {
            const double v = (double)(e * (37 + i) % 1009) / 503 - 1;
            if (t == FUSOR_F64) ((double *)in[i].data)[e] = v;
            else ((float *)in[i].data)[e] = (float)v;
        }
    }
    side all = {NULL};
    for (int rows = ROWS; rows >= -8; rows--) { /* below 0: named */
        const int m = rows < 0 ? -rows : rows;
        if (!m || rows == 1 || (m > 9 && m < ROWS)) continue; /* one row, known, is a reduction of its own order */
        char text[300], size[12] = "M";
        if (rows > 0) snprintf(size, sizeof size, "%d", rows);
        snprintf(text, sizeof text,
                 "func @f(%%x: %s[%s, %d], %%w: %s[%d, %d], %%b: %s[%d]) -> %s[%s, %d] { %%p = matmul(%%x, %%w) "
                 "%%s = add(%%p, %%b) %%r = relu(%%s) return %%r }",
                 type, size, K, type, K, N, type, N, type, size, N);
        in[0].shape[0] = m;
        side some = run(ctx, text, 0, in, 3);
        if (rows == ROWS) {
            all = some;
            continue;
        }
        cr_assert_eq(some.bytes, m * N * bytes);
        cr_assert(memcmp(some.data, all.data, (size_t)some.bytes) == 0, "%s, %d rows", text, m);
        free(some.data);
    }
    free(all.data);
    for (int i = 0; i < 3; i++) free(in[i].data);
}

Test(fused, few_rows_by_a_large_matrix) {
    for (int level = 0; level <= (int)rt_host_level(); level++)
        for (int n_threads = 1; n_threads <= 2; n_threads++) {
            fusor_context *ctx = new_context_for(ir_levels[level].name, n_threads);
            few_rows_are_as_many(ctx, FUSOR_F32);
            few_rows_are_as_many(ctx, FUSOR_F64);
            fusor_context_free(ctx);
        }
}

Test(fused, buffer_macro) {
    float x[6];
    const fusor_buffer b = FUSOR_BUFFER(x, FUSOR_F32, 2, 3), scalar = FUSOR_BUFFER(x + 1, FUSOR_I32);
    cr_assert(b.data == x && b.dtype == FUSOR_F32 && b.rank == 2 && b.shape[0] == 2 && b.shape[1] == 3);
    cr_assert(!b.shape[2] && !b.flags && !b.device);
    cr_assert(scalar.data == x + 1 && scalar.dtype == FUSOR_I32 && scalar.rank == 0 && !scalar.shape[0]);
}
