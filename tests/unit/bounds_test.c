/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* bounds_test.c: the bounds of whole functions: exact chains are exact, others are neither too tight nor without
 * meaning. */
#include "ref/bounds.h"
#include "text_test.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(bounds, .init = text_start, .fini = text_stop);

/* Evaluates the function of `text` on n inputs of these shapes; result 0 and its bound. */
static ref_tensor eval(const char *text, int n, const ref_tensor *in, double **bound) {
    ir_module *m;
    ir_graph *g;
    ref_tensor out[4] = {0};
    double *bounds[4];
    cr_assert_eq(ir_parse(&arena, &error, "<text>", text, strlen(text), &m), FUSOR_OK, "%s", error.text);
    cr_assert_eq(ir_flatten(&arena, &error, m, ir_module_find(m, NULL), &g), FUSOR_OK);
    cr_assert_eq(ref_eval_bounds(&arena, &error, g, false, n, in, (int)g->results.n, out, bounds), FUSOR_OK, "%s",
                 error.text);
    *bound = bounds[0];
    return out[0];
}
static float x[4] = {0.5f, -1.25f, 3, 1e-3f}, y[4] = {2, 0.75f, -1, 8};
#define VECTOR(p) ((ref_tensor){FUSOR_F32, 1, {4}, (p)})

Test(bounds, exact_chain_is_exact) {
    double *b;
    (void)eval("func @f(%x: f32[N], %y: f32[N]) -> f32[N] { %m = mul(%x, %y) %s = add(%m, %x) %r = relu(%s) %d = "
               "div(%r, 3.0) return %d }",
               2, (ref_tensor[]){VECTOR(x), VECTOR(y)}, &b);
    for (int i = 0; i < 4; i++) cr_expect_eq(b[i], 0);
}

Test(bounds, function_has_its_rows_bound) {
    double *b;
    ref_tensor r = eval("func @f(%x: f32[N]) -> f32[N] { %e = exp(%x) return %e }", 1, (ref_tensor[]){VECTOR(x)}, &b);
    for (int i = 0; i < 4; i++) cr_expect_float_eq(b[i], 2 * ref_ulp(FUSOR_F32, ((float *)r.data)[i]), 1e-12);
}

Test(bounds, a_tensor_of_one_value_has_its_bound) {
    double *b;
    float one = 0.3f;
    ref_tensor r = eval("func @f(%x: f32) -> f32[4] { %e = exp(%x) %y = full(%e, shape=[4]) return %y }", 1,
                        (ref_tensor[]){{FUSOR_F32, 0, {0}, &one}}, &b);
    for (int i = 0; i < 4; i++) cr_expect_float_eq(b[i], 2 * ref_ulp(FUSOR_F32, ((float *)r.data)[i]), 1e-12);
}

Test(bounds, condition_counts) {
    double *b, *c; /* exp(x) - e^x's neighbour: the error stays, the result does not */
    (void)eval("func @f(%x: f32[N]) -> f32[N] { %e = exp(%x) %s = sub(%e, 1.6487213) return %s }", 1,
               (ref_tensor[]){VECTOR(x)}, &b);
    cr_expect_gt(b[0], 1e-7);
    (void)eval("func @f(%x: f32[N]) -> f32[N] { %e = exp(%x) %s = mul(%e, 100.0) return %s }", 1,
               (ref_tensor[]){VECTOR(x)}, &c);
    cr_expect_gt(c[0], 90 * b[0]);
}

/* The ends of an operand's range say nothing of what lies between, where the result jumps there. */
Test(bounds, what_jumps_may_be_anything_it_can_be) {
    static const struct {
        const char *text;
        double least, most;
    } cases[] = {
        {"%e = exp(%x) %r = mod(%e, 0.0000001) return %r", 1e-7, 2e-7}, /* less than what exp is off by */
        {"%e = exp(%x) %r = fmod(%e, 0.0000001) return %r", 1e-7, 2e-7},
        {"%e = exp(%x) %r = mod(1e30, %e) return %r", 0.28, 21},
        {"%e = exp(%x) %r = mod(%e, 64.0) return %r", 1e-8, 1e-4}, /* no multiple of 64 is near */
        {"%e = exp(%x) %s = round(%e) %i = cast(%s, i32) %m = mod(%i, 7) %r = cast(%m, f32) return %r", 0, 0},
        {"%e = exp(%x) %s = mul(%e, 1e8) %i = cast(%s, i32) %m = mod(%i, 7) %r = cast(%m, f32) return %r", 7, 1e9},
        {"%e = exp(%x) %s = mul(%e, 1e8) %i = cast(%s, i32) %m = and(%i, 7) %r = cast(%m, f32) return %r", 1e9, 5e9},
        {"%e = exp(%x) %s = mul(%e, 1e8) %i = cast(%s, i32) %m = mul(%i, 1000000007) %r = cast(%m, f32) return %r", 1e9,
         5e9},
        {"%e = exp(%x) %s = mul(%e, 1e7) %i = cast(%s, i32) %m = cast(%i, i8) %r = cast(%m, f32) return %r", 0, 256},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char text[400];
        double *b;
        snprintf(text, sizeof text, "func @f(%%x: f32[N]) -> f32[N] { %s }", cases[k].text);
        (void)eval(text, 1, (ref_tensor[]){VECTOR(x)}, &b);
        for (int i = 0; i < 3; i++)
            cr_expect(b[i] >= cases[k].least && b[i] <= cases[k].most, "%s: element %d: %g", text, i, b[i]);
    }
}

Test(bounds, sums_and_products_of_matrices) {
    double *b;
    (void)eval("func @f(%x: f32[N]) -> f32 { %s = reduce_sum(%x) return %s }", 1, (ref_tensor[]){VECTOR(x)}, &b);
    double terms = 0.5 + 1.25 + 3 + 1e-3;
    cr_expect_float_eq(b[0], (256 + 2) * 0x1p-24 * terms, 1e-6 * b[0]);
    ref_tensor a = {FUSOR_F32, 2, {2, 2}, x}, m = {FUSOR_F32, 2, {2, 2}, y};
    (void)eval("func @f(%a: f32[2, 2], %b: f32[2, 2]) -> f32[2, 2] { %s = matmul(%a, %b) return %s }", 2,
               (ref_tensor[]){a, m}, &b);
    cr_expect_float_eq(b[0], 513 * 0x1p-24 * (0.5 * 2 + 1.25 * 1), 1e-6 * b[0]);
    ref_tensor ints = {FUSOR_I32, 1, {4}, (int32_t[]){1, 2, 3, 4}};
    (void)eval("func @f(%x: i32[N]) -> i64 { %s = reduce_sum(%x) return %s }", 1, &ints, &b);
    cr_expect_eq(b[0], 0);
    /* A sum and a product near 2 and 1: what is truncated may be the integer below. */
    (void)eval("func @f(%x: f32[N]) -> i64 { %s = reduce_sum(%x, dtype=i64) return %s }", 1, (ref_tensor[]){VECTOR(x)},
               &b);
    cr_expect(b[0] >= 1 && b[0] < 1.01, "%g", b[0]);
    (void)eval("func @f(%x: f32[N]) -> i64[N] { %s = cumprod(%x, axis=0, dtype=i64) return %s }", 1,
               (ref_tensor[]){VECTOR(x)}, &b);
    cr_expect(b[3] >= 1 && b[3] < 1.01, "%g", b[3]);
}

/* Four updates of one place, which are added one after the other: as exact as their operands, or each rounded. */
Test(bounds, scattered_sums_are_rounded_each) {
    const double terms = 0.5 + 2 + 0.75 + 1 + 8;
    const ref_tensor in[2] = {VECTOR(x), VECTOR(y)};
    double *b;
    (void)eval("func @f(%x: f32[N], %y: f32[N]) -> f32[N] { %z = full(0, shape=[N], dtype=i64)"
               " %s = scatter(%x, %z, %y, axis=0, mode=add) return %s }",
               2, in, &b);
    for (int i = 0; i < 4; i++) cr_expect_eq(b[i], 0);
    (void)eval("func @f(%x: f32[N], %y: f32[N]) -> f32[N] { %e = exp2(%x) %l = log2(%e)"
               " %z = full(0, shape=[N], dtype=i64) %s = scatter(%l, %z, %y, axis=0, mode=add) return %s }",
               2, in, &b);
    cr_expect(b[0] > 4 * 0x1p-23 * terms && b[0] < 5 * 0x1p-23 * terms, "%g", b[0]);
    cr_expect_lt(b[1], 4 * ref_ulp(FUSOR_F32, -1.25) * 2, "no update: %g", b[1]);
    float big[4] = {3e38f, 3e38f, -3e38f, -3e38f};
    (void)eval("func @f(%x: f32[N], %y: f32[N]) -> f32[N] { %e = exp2(%x) %z = full(0, shape=[N], dtype=i64)"
               " %s = scatter(%e, %z, %y, axis=0, mode=add) return %s }",
               2, (ref_tensor[]){VECTOR(x), VECTOR(big)}, &b);
    cr_expect(isinf(b[0]), "a sum on the way may be out of range: %g", b[0]);
}

/* What is the largest of zeros has any sign, where they have both: what jumps at 0 is not judged then. */
Test(bounds, the_largest_zero_has_any_sign) {
    static const char *const bodies[] = {"f32 { %m = reduce_max(%x)", "f32 { %m = reduce_min(%x)",
                                         "f32[1, 1, 1] { %m = max_pool(%x, kernel=[4])"};
    for (int i = 0; i < 6; i++) {
        double *b;
        float zeros[4] = {0, i & 1 ? -0.f : 0, 0, 0};
        ref_tensor in = {FUSOR_F32, 3, {1, 1, 4}, zeros};
        (void)eval(
            fu_format(&arena, "func @f(%%x: f32[1, 1, 4]) -> %s %%y = reciprocal(%%m) return %%y }", bodies[i / 2]), 1,
            &in, &b);
        cr_expect_eq(b[0], i & 1 ? INFINITY : 0, "%s: %g", bodies[i / 2], b[0]);
    }
    double *b;
    float zeros[4] = {0, -0.f, 0, 0};
    (void)eval("func @f(%x: f32[N]) -> bool { %m = reduce_max(%x) %y = gt(%m, 0.0) return %y }", 1,
               (ref_tensor[]){VECTOR(zeros)}, &b);
    cr_expect_eq(b[0], 0, "no zero is above 0");
    double wide[4] = {0, -0., 0, 0};
    (void)eval("func @f(%x: f64[4]) -> f64 { %m = reduce_max(%x) %y = sqrt(%m) return %y }", 1,
               (ref_tensor[]){{FUSOR_F64, 1, {4}, wide}}, &b);
    cr_expect_lt(b[0], 1, "the root of a zero is a zero: %g", b[0]);
    float rows[6] = {0, -0.f, 3, 1, 2, 5};
    (void)eval("func @f(%x: f32[2, 3]) -> i64 { %m = reduce_max(%x, axes=[1]) %y = argmax(%m, axis=0) return %y }", 1,
               (ref_tensor[]){{FUSOR_F32, 2, {2, 3}, rows}}, &b);
    cr_expect_eq(b[0], 0, "no row's largest is a zero: %g", b[0]);
}

/* The sum of a mean may overflow where the mean does not. */
Test(bounds, sums_out_of_range_are_not_judged) {
    float big[4] = {3e38f, 3e38f, 3e38f, 3e38f};
    static const char *const bodies[] = {"f32 { %y = reduce_mean(%x)",
                                         "f32[1, 1, 1] { %y = average_pool(%x, kernel=[4])",
                                         "f32[1, 1, 1] { %y = global_average_pool(%x)"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        double *b;
        ref_tensor in = {FUSOR_F32, 3, {1, 1, 4}, big};
        (void)eval(fu_format(&arena, "func @f(%%x: f32[1, 1, 4]) -> %s return %%y }", bodies[i]), 1, &in, &b);
        cr_expect(isinf(b[0]), "%s: %g", bodies[i], b[0]);
        for (int k = 0; k < 4; k++) big[k] = 3e37f;
        (void)eval(fu_format(&arena, "func @f(%%x: f32[1, 1, 4]) -> %s return %%y }", bodies[i]), 1, &in, &b);
        cr_expect(isfinite(b[0]), "%s: %g", bodies[i], b[0]);
        for (int k = 0; k < 4; k++) big[k] = 3e38f;
    }
}

Test(bounds, comparison) {
    float got[4] = {0.5f, -1.25f, 3, 1e-3f};
    double bound[4] = {0, 0, 1e-6, 0};
    ref_tensor a = VECTOR(got), b = VECTOR(x);
    ref_comparison c = ref_compare(&a, &b, bound, -1);
    cr_expect(c.ok && c.max_ulp == 0);
    got[2] = nextafterf(3, 4);
    c = ref_compare(&a, &b, bound, -1);
    cr_expect(c.ok && c.max_ulp == 1 && c.bound_ulp >= 1 && c.at == 2);
    cr_expect(c.at_ulp == 1 && c.at_bound_ulp > 4 && c.at_bound_ulp < 4.3); /* 1e-6 of 2^-22 */
    memcpy(got, x, sizeof got);
    got[0] = nextafterf(x[0], 1);
    got[3] = x[3] * 1.5f;
    c = ref_compare(&a, &b, (double[4]){0}, -1); /* without a bound: the largest error, not the first */
    cr_expect(!c.ok && c.at == 3 && c.at_ulp == c.max_ulp && c.max_ulp > 1);
    got[3] = x[3];
    got[0] = NAN;
    c = ref_compare(&a, &b, bound, -1);
    cr_expect(!c.ok && c.at == 0);
    cr_expect_not(ref_compare(&a, &b, bound, 1e9).ok);
    x[0] = NAN;
    cr_expect(ref_compare(&a, &b, bound, 1).ok);
}
