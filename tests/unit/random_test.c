/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* random_test.c: Philox against the known answers of Random123, the numbers made of its words against the definition,
 * seeds as numbers and as tensors, moments, and the same values whatever reads them. */
#include "api_test.h"
#include "ir/philox.h"
#include <math.h>
#include <stdlib.h>

Test(random, philox_has_the_published_answers) {
    static const struct {
        uint32_t counter[4], key[2], answer[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t c[4];
        memcpy(c, known[i].counter, sizeof c);
        philox_rounds(c, known[i].key[0], known[i].key[1]);
        for (int k = 0; k < 4; k++) cr_expect_eq(c[k], known[i].answer[k], "answer %zu, word %d: %08x", i, k, c[k]);
    }
}

enum { N = 1003 };

/* Element i of a tensor of u numbers with this seed, by the words themselves. */
static double uniform(uint64_t seed, int64_t i, bool is_f64) {
    uint32_t w[4];
    philox_words(seed, (uint64_t)(is_f64 ? i / 2 : i / 4), w);
    if (!is_f64) return (w[i % 4] >> 8) * 0x1p-24;
    return ((double)(w[i % 2 * 2] >> 5) * 0x1p26 + (double)(w[i % 2 * 2 + 1] >> 6)) * 0x1p-53;
}

Test(random, kernels_make_the_numbers_of_the_definition) {
    fusor_context *ctx = new_context(0);
    static float f[N];
    static double d[N];
    const uint64_t seeds[] = {0, 7, UINT64_MAX, UINT64_C(0x123456789abcdef0)};
    for (size_t s = 0; s < sizeof seeds / sizeof *seeds; s++) {
        OK(fusor_read(fusor_random_uniform(ctx, seeds[s], FUSOR_F32, FUSOR_SHAPE(17, 59)), f, sizeof f));
        for (int i = 0; i < N; i++) cr_assert_eq(f[i], (float)uniform(seeds[s], i, false), "element %d", i);
        OK(fusor_read(fusor_random_uniform(ctx, seeds[s], FUSOR_F64, FUSOR_SHAPE(N)), d, sizeof d));
        for (int i = 0; i < N; i++) cr_assert_eq(d[i], uniform(seeds[s], i, true), "element %d", i);
        OK(fusor_read(fusor_random_normal(ctx, seeds[s], FUSOR_F32, FUSOR_SHAPE(N)), f, sizeof f));
        for (int i = 0; i < N; i++) {
            double u = uniform(seeds[s], i & ~1, false), v = uniform(seeds[s], i | 1, false);
            double want = sqrt(-2 * log1p(-u)) * (i % 2 ? sin(2 * M_PI * v) : cos(2 * M_PI * v));
            cr_assert(fabs(f[i] - want) <= 1e-7 + 4 * 0x1p-23 * fabs(want), "element %d: %g, not %g", i, f[i], want);
        }
    }
    fusor_context_free(ctx);
}

Test(random, a_seed_may_be_a_tensor_of_any_integer_type) {
    fusor_context *ctx = new_context(0);
    float want[5], got[5];
    const int8_t small = -3;
    const uint64_t large = UINT64_MAX - 2;
    const float real = 3;
    OK(fusor_read(fusor_random_uniform(ctx, -3, FUSOR_F32, FUSOR_SHAPE(5)), want, sizeof want));
    OK(fusor_read(
        fusor_random_uniform(ctx, fusor_wrap_const(ctx, &small, FUSOR_I8, 0, NULL), FUSOR_F32, FUSOR_SHAPE(5)), got,
        sizeof got));
    cr_expect_arr_eq(got, want, sizeof got);
    OK(fusor_read(
        fusor_random_uniform(ctx, fusor_wrap_const(ctx, &large, FUSOR_U64, 0, NULL), FUSOR_F32, FUSOR_SHAPE(5)), got,
        sizeof got));
    cr_expect_arr_eq(got, want, sizeof got);
    OK(fusor_read(fusor_apply(ctx, "random_uniform", 0, NULL, "shape=[5], seed=-3"), got, sizeof got));
    cr_expect_arr_eq(got, want, sizeof got);
    fusor_tensor bad =
        fusor_random_uniform(ctx, fusor_wrap_const(ctx, &real, FUSOR_F32, 0, NULL), FUSOR_F32, FUSOR_SHAPE(5));
    cr_expect_eq(fusor_status_of(bad), FUSOR_ERROR_TYPE);
    cr_expect(strstr(fusor_error_message(ctx), "scalar of an integer type"), "%s", fusor_error_message(ctx));
    bad = fusor_random_uniform(ctx, 1, FUSOR_I32, FUSOR_SHAPE(5));
    cr_expect_eq(fusor_status_of(bad), FUSOR_ERROR_TYPE);
    fusor_context_free(ctx);
}

Test(random, another_seed_compiles_nothing) {
    fusor_context *ctx = new_context(0);
    float y[7];
    fusor_cache_stats before = {.size = sizeof before}, after = {.size = sizeof after};
    for (int64_t seed = 0; seed < 9; seed++) {
        if (seed == 1) OK(fusor_cache_get_stats(ctx, &before));
        OK(fusor_read(fusor_random_normal(ctx, seed, FUSOR_F32, FUSOR_SHAPE(7)), y, sizeof y));
    }
    OK(fusor_cache_get_stats(ctx, &after));
    cr_expect_eq(before.compiles, after.compiles);
    fusor_context_free(ctx);
}

Test(random, moments_are_those_of_the_distributions) {
    enum { M = 1 << 20 };
    fusor_context *ctx = new_context(0);
    float *x = malloc(M * sizeof *x);
    cr_assert(x);
    for (int normal = 0; normal < 2; normal++) {
        OK(fusor_read(normal ? fusor_random_normal(ctx, 11, FUSOR_F32, FUSOR_SHAPE(M))
                             : fusor_random_uniform(ctx, 11, FUSOR_F32, FUSOR_SHAPE(M)),
                      x, M * sizeof *x));
        double sum = 0, squares = 0;
        for (int i = 0; i < M; i++) {
            sum += x[i];
            squares += (double)x[i] * x[i];
            cr_assert(normal ? fabsf(x[i]) < 6 : x[i] >= 0 && x[i] < 1);
        }
        double mean = sum / M, variance = squares / M - mean * mean;
        cr_expect_float_eq(mean, normal ? 0 : 0.5, 0.005, "mean %g", mean);
        cr_expect_float_eq(variance, normal ? 1 : 1. / 12, 0.005, "variance %g", variance);
    }
    free(x);
    fusor_context_free(ctx);
}
