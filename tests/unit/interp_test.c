/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* interp_test.c: the reference evaluator on programs in text, one operator kind at a time, with special values and
 * empty shapes. */
#include "eval_graph.h"
#include "text_test.h"
#include "base/log.h"
#include "ir/scalar.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(interp, .init = text_start, .fini = text_stop);

static double value_of(const ref_tensor *t, int64_t i) {
    ir_bits b = 0;
    memcpy(&b, (char *)t->data + i * ir_dtypes[t->dtype].bytes, ir_dtypes[t->dtype].bytes);
    return ir_bits_to_double(t->dtype, b);
}

/* "f32[2,3]" and its values; NULL: 0, 1, 2, ... */
static ref_tensor make(const char *type, const double *v) {
    ref_tensor t = {0};
    const char *p = strchr(type, '[');
    t.dtype = ir_dtype_parse(type, p ? (size_t)(p - type) : strlen(type));
    for (; p && *p != ']'; p = strpbrk(p, ",]")) t.shape[t.rank++] = strtol(p + 1, (char **)&p, 10);
    t.data = fu_alloc(&arena, (size_t)ref_count(&t) * 8 + 1);
    for (int64_t i = 0; i < ref_count(&t); i++) {
        ir_bits b = ir_scalar_of(t.dtype, v ? v[i] : (double)i);
        memcpy((char *)t.data + i * ir_dtypes[t.dtype].bytes, &b, ir_dtypes[t.dtype].bytes);
    }
    return t;
}

static fusor_status run(const char *text, const ref_tensor *in, ref_tensor *out) {
    ir_module *m;
    ir_graph *g;
    FU_TRY(ir_parse(&arena, &error, "test.fusor", text, strlen(text), &m));
    FU_TRY(ir_flatten(&arena, &error, m, ir_module_find(m, NULL), &g));
    return eval_graph(&arena, &error, g, in, out);
}

/* Runs "func @f(PARAMS) -> TYPE { %r = EXPRESSION return %r }" and compares the result; NULL values: type only. */
static void check(int line, const char *params, const char *type, const char *expression, const ref_tensor *in,
                  const double *want) {
    char text[2000];
    ref_tensor got = {0}, expected = make(type, NULL);
    snprintf(text, sizeof text, "func @f(%s) -> %s { %%r = %s return %%r }", params, type, expression);
    cr_assert_eq(run(text, in, &got), FUSOR_OK, "line %d: %s: %s", line, expression, error.text);
    cr_assert_eq(got.dtype, expected.dtype);
    cr_assert_eq(got.rank, expected.rank);
    for (int d = 0; d < got.rank; d++) cr_assert_eq(got.shape[d], expected.shape[d], "line %d: dim %d", line, d);
    for (int64_t i = 0; want && i < ref_count(&got); i++) {
        double v = value_of(&got, i), w = want[i];
        bool is_same = (v != v && w != w) || (v == w && signbit(v) == signbit(w)) || (w != 0 && fabs(v / w - 1) < 1e-6);
        cr_expect(is_same, "line %d: %s: element %ld is %.17g; expected %.17g", line, expression, (long)i, v, w);
    }
}
#define V(...)                                                                                                         \
    (const double[]) { __VA_ARGS__ }
#define IN(...)                                                                                                        \
    (const ref_tensor[]) { __VA_ARGS__ }
#define CHECK(params, type, expression, inputs, ...) check(__LINE__, params, type, expression, inputs, __VA_ARGS__)

Test(interp, broadcasting) {
    CHECK("%a: f32[2,1], %b: f32[3]", "f32[2,3]", "add(%a, %b)",
          IN(make("f32[2,1]", V(10, 20)), make("f32[3]", V(1, 2, 3))), V(11, 12, 13, 21, 22, 23));
    CHECK("%a: f32[N,3], %b: f32", "f32[2,3]", "mul(%a, 2.0)", IN(make("f32[2,3]", NULL), make("f32", V(1))), NULL);
    CHECK("%a: f32[4]", "f32[4]", "mul(%a, 2.0)", IN(make("f32[4]", V(0.0, -0.0, INFINITY, NAN))),
          V(0.0, -0.0, INFINITY, NAN));
    CHECK("%c: bool[2], %a: i8[3,2]", "i8[3,2]", "select(%c, %a, -1)",
          IN(make("bool[2]", V(1, 0)), make("i8[3,2]", NULL)), V(0, -1, 2, -1, 4, -1));
    CHECK("%a: f32[0,3], %b: f32[3]", "f32[0,3]", "add(%a, %b)", IN(make("f32[0,3]", NULL), make("f32[3]", NULL)),
          V(0));
    CHECK("%a: f32, %b: f32", "f32", "sub(%a, %b)", IN(make("f32", V(1)), make("f32", V(3))), V(-2));
}

Test(interp, a_named_size_of_1_does_not_stretch) {
    ref_tensor in[2] = {make("f32[1]", NULL), make("f32[3]", NULL)}, out = {0};
    cr_assert_neq(run("func @f(%a: f32[N], %b: f32[M]) -> f32[N] { %r = add(%a, %b) return %r }", in, &out), FUSOR_OK);
}

Test(interp, conversions) {
    CHECK("%a: f32[4]", "u8[4]", "cast(%a, u8)", IN(make("f32[4]", V(-1, 1.9, 300, NAN))), V(0, 1, 255, 0));
    CHECK("%a: i32[2]", "f32[2]", "bitcast(%a, f32)", IN(make("i32[2]", V(0x3f800000, 0x40000000))), V(1, 2));
    CHECK("%a: f32[2]", "bf16[2]", "cast(%a, bf16)", IN(make("f32[2]", V(1.0078125, 3.4e38))), V(1.0078125, INFINITY));
}

Test(interp, views_and_creation) {
    CHECK("%a: i32[2,3]", "i32[3,2]", "transpose(%a)", IN(make("i32[2,3]", NULL)), V(0, 3, 1, 4, 2, 5));
    CHECK("%a: i32[2,1,3]", "i32[1,3,2]", "transpose(%a, perm=[1, 2, 0])", IN(make("i32[2,1,3]", NULL)),
          V(0, 3, 1, 4, 2, 5));
    CHECK("%a: i32[2,3]", "i32[3,2]", "reshape(%a, shape=[-1, 2])", IN(make("i32[2,3]", NULL)), V(0, 1, 2, 3, 4, 5));
    CHECK("%a: i32[3,1]", "i32[2,3,2]", "broadcast_to(%a, shape=[2, 3, 2])", IN(make("i32[3,1]", NULL)),
          V(0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2));
    CHECK("%a: i32[1,2,1]", "i32[2]", "squeeze(%a, axes=[0, -1])", IN(make("i32[1,2,1]", NULL)), V(0, 1));
    CHECK("%a: i32[2]", "i32[1,2,1]", "unsqueeze(%a, axes=[0, 2])", IN(make("i32[2]", NULL)), V(0, 1));
    CHECK("%a: i32[2,5]", "i64", "dim(%a, axis=1)", IN(make("i32[2,5]", NULL)), V(5));
    CHECK("%a: f32[N]", "f16[2,2]", "full(1.5, shape=[2, N], dtype=f16)", IN(make("f32[2]", NULL)), NULL);
    CHECK("%a: f32[1]", "f32[2,3]", "iota(shape=[2, 3], axis=1, dtype=f32)", IN(make("f32[1]", NULL)),
          V(0, 1, 2, 0, 1, 2));
    CHECK("%a: f32[1]", "i8[2,3]", "iota(shape=[2, 3], axis=0, dtype=i8)", IN(make("f32[1]", NULL)),
          V(0, 0, 0, 1, 1, 1));
}

Test(interp, reductions) {
    CHECK("%a: f32[2,3]", "f32", "reduce_sum(%a)", IN(make("f32[2,3]", NULL)), V(15));
    CHECK("%a: f32[2,3]", "f32[3]", "reduce_sum(%a, axes=[0])", IN(make("f32[2,3]", NULL)), V(3, 5, 7));
    CHECK("%a: f32[2,3]", "f32[2,1]", "reduce_mean(%a, axes=[-1], keepdims=true)", IN(make("f32[2,3]", NULL)), V(1, 4));
    CHECK("%a: f32[2,3]", "f32[2,3]", "reduce_sum(%a, axes=[])", IN(make("f32[2,3]", NULL)), V(0, 1, 2, 3, 4, 5));
    CHECK("%a: f32[2,2,2]", "f32[2]", "reduce_prod(%a, axes=[0, 2])", IN(make("f32[2,2,2]", NULL)),
          V(0, 2 * 3 * 6 * 7));
    CHECK("%a: i8[3]", "i64", "reduce_sum(%a)", IN(make("i8[3]", V(127, 127, -1))), V(253));
    CHECK("%a: i8[3]", "i8", "reduce_sum(%a, dtype=i8)", IN(make("i8[3]", V(127, 127, -1))), V(-3));
    CHECK("%a: bool[3]", "i64", "reduce_sum(%a)", IN(make("bool[3]", V(1, 0, 1))), V(2));
    CHECK("%a: f32[4]", "f32", "reduce_max(%a)", IN(make("f32[4]", V(1, NAN, 7, -INFINITY))), V(NAN));
    CHECK("%a: f32[2]", "f32", "reduce_max(%a)", IN(make("f32[2]", V(-INFINITY, -INFINITY))), V(-INFINITY));
    CHECK("%a: i8[2]", "i8", "reduce_min(%a)", IN(make("i8[2]", V(-128, 127))), V(-128));
    CHECK("%a: u8[2]", "u8", "reduce_max(%a)", IN(make("u8[2]", V(255, 1))), V(255));
    CHECK("%a: bool[2,2]", "bool[2]", "reduce_all(%a, axes=[1])", IN(make("bool[2,2]", V(1, 0, 1, 1))), V(0, 1));
    CHECK("%a: bool[2,2]", "bool[2]", "reduce_any(%a, axes=[1])", IN(make("bool[2,2]", V(1, 0, 0, 0))), V(1, 0));
    /* many small terms: the accumulator is wide */
    double *tiny = fu_alloc(&arena, 70000 * sizeof *tiny);
    for (int i = 0; i < 70000; i++) tiny[i] = 0x1p-10;
    CHECK("%a: f16[70000]", "f16", "reduce_sum(%a)", IN(make("f16[70000]", tiny)), V(68.375));
}

Test(interp, empty_reductions) {
    CHECK("%a: f32[0]", "f32", "reduce_sum(%a)", IN(make("f32[0]", NULL)), V(0));
    CHECK("%a: f32[0,2]", "f32[2]", "reduce_prod(%a, axes=[0])", IN(make("f32[0,2]", NULL)), V(1, 1));
    CHECK("%a: f32[0]", "f32", "reduce_mean(%a)", IN(make("f32[0]", NULL)), V(NAN));
    CHECK("%a: bool[0]", "bool", "reduce_all(%a)", IN(make("bool[0]", NULL)), V(1));
    CHECK("%a: bool[0]", "bool", "reduce_any(%a)", IN(make("bool[0]", NULL)), V(0));
    CHECK("%a: f32[N,0]", "f32[0]", "reduce_max(%a, axes=[0])", IN(make("f32[0,0]", NULL)), V(0));
    ref_tensor in = make("f32[0]", NULL), out = {0};
    cr_assert_eq(run("func @f(%a: f32[N]) -> f32 { %r = reduce_max(%a) return %r }", &in, &out), FUSOR_ERROR_SHAPE);
    cr_assert_not_null(strstr(error.text, "reduce_max"));
    fu_error_clear(&error);
    cr_assert_eq(run("func @f(%a: f32[N]) -> i64 { %r = argmin(%a) return %r }", &in, &out), FUSOR_ERROR_SHAPE);
}

Test(interp, argmax_and_argmin) {
    ref_tensor ties = make("f32[5]", V(1, 3, 0, 3, 0)), nans = make("f32[4]", V(9, NAN, 10, NAN));
    CHECK("%a: f32[5]", "i64", "argmax(%a)", IN(ties), V(1));
    CHECK("%a: f32[5]", "i64", "argmax(%a, select_last=true)", IN(ties), V(3));
    CHECK("%a: f32[5]", "i64", "argmin(%a)", IN(ties), V(2));
    CHECK("%a: f32[5]", "i64", "argmin(%a, select_last=true)", IN(ties), V(4));
    CHECK("%a: f32[4]", "i64", "argmax(%a)", IN(nans), V(1));
    CHECK("%a: f32[4]", "i64", "argmin(%a, select_last=true)", IN(nans), V(3));
    CHECK("%a: i32[2,3]", "i64[3]", "argmax(%a, axis=0)", IN(make("i32[2,3]", V(5, 1, 9, 4, 2, 9))), V(0, 1, 0));
    CHECK("%a: i32[2,3]", "i64[2,1]", "argmin(%a, axis=-1, keepdims=true)", IN(make("i32[2,3]", V(5, 1, 9, 4, 2, 1))),
          V(1, 2));
    CHECK("%a: u64[2,2]", "i64", "argmax(%a)", IN(make("u64[2,2]", V(1, 2, 1.8e19, 3))), V(2));
}

Test(interp, matmul_shapes) {
    ref_tensor a = make("f32[2,3]", NULL), b = make("f32[3,2]", NULL), v = make("f32[3]", V(1, 10, 100));
    CHECK("%a: f32[2,3], %b: f32[3,2]", "f32[2,2]", "matmul(%a, %b)", IN(a, b), V(10, 13, 28, 40));
    CHECK("%a: f32[2,3], %v: f32[3]", "f32[2]", "matmul(%a, %v)", IN(a, v), V(210, 543));
    CHECK("%v: f32[3], %b: f32[3,2]", "f32[2]", "matmul(%v, %b)", IN(v, b), V(420, 531));
    CHECK("%v: f32[3]", "f32", "matmul(%v, %v)", IN(v), V(10101));
    CHECK("%a: f32[2,3]", "f32[2,2]", "matmul(%a, %a, transpose_b=true)", IN(a), V(5, 14, 14, 50));
    CHECK("%a: f32[2,3]", "f32[3,3]", "matmul(%a, %a, transpose_a=true)", IN(a), V(9, 12, 15, 12, 17, 22, 15, 22, 29));
    CHECK("%a: f32[2,1,1,2], %b: f32[3,2,1]", "f32[2,3,1,1]", "matmul(%a, %b)",
          IN(make("f32[2,1,1,2]", NULL), make("f32[3,2,1]", NULL)), V(1, 3, 5, 3, 13, 23));
    CHECK("%a: f32[2,0], %b: f32[0,2]", "f32[2,2]", "matmul(%a, %b)",
          IN(make("f32[2,0]", NULL), make("f32[0,2]", NULL)), V(0, 0, 0, 0));
    CHECK("%a: f32[1,2], %b: f32[2,1]", "f32[1,1]", "matmul(%a, %b)",
          IN(make("f32[1,2]", V(0, 1)), make("f32[2,1]", V(INFINITY, 1))), V(NAN));
}

Test(interp, matmul_of_integers) {
    ref_tensor x = make("i8[1,2]", V(-128, -128)), y = make("u8[2,1]", V(255, 255));
    CHECK("%a: i8[1,2], %b: u8[2,1]", "i32[1,1]", "matmul(%a, %b)", IN(x, y), V(-65280));
    CHECK("%a: i8[1,2], %b: u8[2,1]", "i8[1,1]", "matmul(%a, %b, dtype=i8)", IN(x, y), V(0));
    CHECK("%a: i32[1,2], %b: i32[2,1]", "i64[1,1]", "matmul(%a, %b)",
          IN(make("i32[1,2]", V(0x7fffffff, 1)), make("i32[2,1]", V(4, 1))), V(4.0 * 0x7fffffff + 1));
    CHECK("%a: f64[1,2], %b: f64[2,1]", "f64[1,1]", "matmul(%a, %b)",
          IN(make("f64[1,2]", V(1e16, 1)), make("f64[2,1]", V(1, 1))), V(1e16 + 1));
}

Test(interp, softmax_family) {
    double z = 1 + exp(-1) + exp(-2);
    ref_tensor a = make("f32[3]", V(1000, 1001, 1002));
    CHECK("%a: f32[3]", "f32[3]", "softmax(%a)", IN(a), V(exp(-2) / z, exp(-1) / z, 1 / z));
    CHECK("%a: f32[3]", "f32[3]", "log_softmax(%a)", IN(a), V(-2 - log(z), -1 - log(z), -log(z)));
    CHECK("%a: f32[2,2]", "f32[2,2]", "softmax(%a, axis=0)", IN(make("f32[2,2]", V(0, 5, 0, 5))), V(.5, .5, .5, .5));
    CHECK("%a: f32[2]", "f32[2]", "softmax(%a)", IN(make("f32[2]", V(-INFINITY, -INFINITY))), V(NAN, NAN));
    CHECK("%a: f32[2]", "f32[2]", "softmax(%a)", IN(make("f32[2]", V(-INFINITY, 3))), V(0, 1));
    CHECK("%a: f32[2]", "f32[2]", "softmax(%a)", IN(make("f32[2]", V(NAN, 3))), V(NAN, NAN));
    CHECK("%a: f32[2,0]", "f32[2,0]", "softmax(%a)", IN(make("f32[2,0]", NULL)), V(0));
}

Test(interp, composite_reductions) {
    const double big = 1e6, inf = INFINITY;
    ref_tensor a = make("f32[4]", V(big - 1, big + 1, big - 1, big + 1)), e = make("f32[2,0]", NULL);
    CHECK("%a: f32[4]", "f32", "reduce_var(%a)", IN(a), V(1));
    CHECK("%a: f32[4]", "f32", "reduce_var(%a, correction=1)", IN(a), V(4. / 3));
    CHECK("%a: f32[4]", "f32", "reduce_var(%a, correction=0.5)", IN(a), V(4 / 3.5));
    CHECK("%a: f32[4]", "f32", "reduce_var(%a, correction=9)", IN(a), V(inf));
    CHECK("%a: f32[4]", "f32", "reduce_std(%a, correction=2)", IN(a), V(sqrt(2)));
    CHECK("%a: f32[2,0]", "f32[2]", "reduce_var(%a, axes=[1])", IN(e), V(NAN, NAN));
    CHECK("%a: f32[1]", "f32", "reduce_var(%a)", IN(make("f32[1]", V(7))), V(0));
    CHECK("%a: f32[1]", "f32", "reduce_var(%a, correction=1)", IN(make("f32[1]", V(7))), V(NAN));
    CHECK("%a: f32[2]", "f32", "reduce_std(%a)", IN(make("f32[2]", V(inf, 1))), V(NAN));
    ref_tensor b = make("f16[2,2]", V(3, -4, 0, -2));
    CHECK("%a: f16[2,2]", "f16[2]", "reduce_l2(%a, axes=[1])", IN(b), V(5, 2));
    CHECK("%a: f16[2,2]", "f16[1,2]", "reduce_l1(%a, axes=[0], keepdims=true)", IN(b), V(3, 6));
    CHECK("%a: f16[2,2]", "f32", "reduce_l1(%a, dtype=f32)", IN(b), V(9));
    CHECK("%a: i8[3]", "i64", "reduce_l1(%a)", IN(make("i8[3]", V(-128, 127, -1))), V(256));
    CHECK("%a: i8[3]", "i8", "reduce_l1(%a, dtype=i8)", IN(make("i8[3]", V(-128, 127, -1))), V(0));
    CHECK("%a: u8[2]", "i64", "reduce_l1(%a)", IN(make("u8[2]", V(200, 100))), V(300));
    CHECK("%a: bool[3]", "i64", "reduce_l1(%a)", IN(make("bool[3]", V(1, 0, 1))), V(2));
    CHECK("%a: f32[3]", "f32", "reduce_logsumexp(%a)", IN(make("f32[3]", V(1000, 1000, 1000))), V(1000 + log(3)));
    CHECK("%a: f32[2]", "f32", "reduce_logsumexp(%a)", IN(make("f32[2]", V(-inf, -inf))), V(-inf));
    CHECK("%a: f32[2]", "f32", "reduce_logsumexp(%a)", IN(make("f32[2]", V(-inf, 3))), V(3));
    CHECK("%a: f32[2]", "f32", "reduce_logsumexp(%a)", IN(make("f32[2]", V(inf, 3))), V(inf));
    CHECK("%a: f32[2]", "f32", "reduce_logsumexp(%a)", IN(make("f32[2]", V(NAN, 3))), V(NAN));
    CHECK("%a: f32[2,0]", "f32[2]", "reduce_logsumexp(%a, axes=[1])", IN(e), V(-inf, -inf));
    CHECK("%a: f32[2,0]", "f32[2]", "reduce_l2(%a, axes=[1])", IN(e), V(0, 0));
}

Test(interp, running_sums_and_products) {
    ref_tensor a = make("i8[2,3]", V(100, 100, 100, -1, 2, -3)), f = make("f32[3]", V(1e8, 1, -1e8));
    CHECK("%a: i8[2,3]", "i64[2,3]", "cumsum(%a, axis=1)", IN(a), V(100, 200, 300, -1, 1, -2));
    CHECK("%a: i8[2,3]", "i64[2,3]", "cumsum(%a, axis=-2)", IN(a), V(100, 100, 100, 99, 102, 97));
    CHECK("%a: i8[2,3]", "i64[2,3]", "cumsum(%a, axis=1, exclusive=true)", IN(a), V(0, 100, 200, 0, -1, 1));
    CHECK("%a: i8[2,3]", "i64[2,3]", "cumsum(%a, axis=1, reverse=true)", IN(a), V(300, 200, 100, -2, -1, -3));
    CHECK("%a: i8[2,3]", "i64[2,3]", "cumsum(%a, axis=1, exclusive=true, reverse=true)", IN(a),
          V(200, 100, 0, -1, -3, 0));
    CHECK("%a: i8[2,3]", "i64[2,3]", "cumprod(%a, axis=1)", IN(a), V(100, 1e4, 1e6, -1, -2, 6));
    CHECK("%a: i8[2,3]", "i8[2,3]", "cumsum(%a, axis=1, dtype=i8)", IN(a), V(100, -56, 44, -1, 1, -2));
    CHECK("%a: bool[3]", "i64[3]", "cumsum(%a, axis=0)", IN(make("bool[3]", V(1, 0, 1))), V(1, 1, 2));
    CHECK("%a: f32[3]", "f32[3]", "cumsum(%a, axis=0)", IN(f), V(1e8, 1e8, 1));
    CHECK("%a: f32[3]", "f64[3]", "cumsum(%a, axis=0, dtype=f64)", IN(f), V(1e8, 1e8 + 1, 1));
    CHECK("%a: f32[3]", "f32[3]", "cumprod(%a, axis=0, exclusive=true)", IN(f), V(1, 1e8, 1e8));
    CHECK("%a: f32[2,0]", "f32[2,0]", "cumsum(%a, axis=1)", IN(make("f32[2,0]", NULL)), V(0));
    CHECK("%a: f32[3]", "f32[3]", "cumsum(%a, axis=0)", IN(make("f32[3]", V(1, INFINITY, 2))),
          V(1, INFINITY, INFINITY));
}

Test(interp, norms) {
    const double s = 1 / sqrt(1 + 1e-5), r = 1 / sqrt(2.5 + 0.5);
    ref_tensor a = make("f32[2,2]", V(1, 3, 6, 4)), g = make("f32[2]", V(2, 10)), b = make("f32[2,1]", V(100, 200));
    CHECK("%a: f32[2,2]", "f32[2,2]", "layer_norm(%a)", IN(a), V(-s, s, s, -s));
    CHECK("%a: f32[2,2], %b: f32[2]", "f32[2,2]", "layer_norm(%a, %b)", IN(a, g), V(-2 * s, 10 * s, 2 * s, -10 * s));
    CHECK("%a: f32[2,2], %b: f32[2], %c: f32[2,1]", "f32[2,2]", "layer_norm(%a, %b, %c)", IN(a, g, b),
          V(100 - 2 * s, 100 + 10 * s, 200 + 2 * s, 200 - 10 * s));
    CHECK("%a: f32[4]", "f32[4]", "layer_norm(%a, epsilon=0)", IN(make("f32[4]", V(1, 1, 3, 3))), V(-1, -1, 1, 1));
    CHECK("%a: f32[2,2]", "f32[2,2]", "layer_norm(%a, axis=0, epsilon=3)", IN(make("f32[2,2]", V(1, 3, 6, 4))),
          V(-2.5 / 2.5, -.5 / 2.5, 2.5 / 2.5, .5 / 2.5));
    CHECK("%a: f32[2]", "f32[2]", "rms_norm(%a, epsilon=0.5)", IN(make("f32[2]", V(1, 2))), V(r, 2 * r));
    CHECK("%a: f32[2], %b: f32[2]", "f32[2]", "rms_norm(%a, %b, epsilon=0.5)", IN(make("f32[2]", V(1, 2)), g),
          V(2 * r, 20 * r));
    CHECK("%a: f32[0,3]", "f32[0,3]", "layer_norm(%a)", IN(make("f32[0,3]", NULL)), V(0));
    CHECK("%a: f32[2]", "f32[2]", "layer_norm(%a)", IN(make("f32[2]", V(NAN, 1))), V(NAN, NAN));
}

Test(interp, graphs) {
    ref_tensor x = make("f32[3]", V(-1, 2, 3)), w = make("f32[3]", V(1, 1, 1)), out[3] = {0};
    const char *text = "func @f(%x: f32[N], %w: f32[N]) -> (f32[N], f32[N], f32[N]) {\n"
                       "  %dead = exp(%x)\n  %s = add(%x, %w)\n  %r = @act(%s)\n  return %r, %x, %r\n}\n"
                       "func @act(%v: f32[M]) -> f32[M] {\n  %t = relu(%v)\n  %u = mul(%t, %t)\n  return %u\n}\n";
    cr_assert_eq(run(text, (ref_tensor[]){x, w}, out), FUSOR_OK, "%s", error.text);
    cr_assert_eq(value_of(&out[0], 2), 16);
    cr_assert_eq(value_of(&out[1], 0), -1);
    cr_assert_eq(value_of(&out[2], 1), 9);
    ref_tensor wrong[2] = {x, make("f32[4]", NULL)};
    cr_assert_eq(run(text, wrong, out), FUSOR_ERROR_SHAPE);
}

/* Every allocation of an evaluation fails in turn: an error, no leak (the sanitizer build looks), no crash. */
Test(interp, out_of_memory) {
    ref_tensor x = make("f32[64,64]", NULL), out;
    ir_module *m;
    ir_graph *g;
    const char *text = "func @f(%x: f32[N,64]) -> f32[N] { %y = matmul(%x, %x) %z = softmax(%y) %e = exp(%z)\n"
                       "%r = reduce_sum(%e, axes=[1]) return %r }";
    cr_assert_eq(ir_parse(&arena, &error, "t", text, strlen(text), &m), FUSOR_OK, "%s", error.text);
    cr_assert_eq(ir_flatten(&arena, &error, m, ir_module_find(m, NULL), &g), FUSOR_OK);
    fusor_status status = FUSOR_ERROR_MEMORY;
    for (volatile long n = 1; status != FUSOR_OK && n < 50; n++) {
        fu_error_clear(&error);
        memset(&out, 0, sizeof out);
        if (setjmp(oom)) continue;
        fu_malloc_fail_at(n);
        status = eval_graph(&arena, &error, g, &x, &out);
        fu_malloc_fail_at(0);
        cr_assert(status == FUSOR_OK || status == FUSOR_ERROR_MEMORY, "%s", error.text);
    }
    cr_assert_eq(status, FUSOR_OK);
}

Test(interp, is_fast_enough_to_be_an_oracle) {
    ref_tensor x = make("f32[1000000]", NULL), s = make("f32[256,256]", NULL), out = {0};
    int64_t begin = fu_now_ns();
    cr_assert_eq(
        run("func @f(%x: f32[N]) -> f32[N] { %a = mul(%x, 1e-6) %b = tanh(%a) %c = sigmoid(%a) %d = mul(%b, %c)\n"
            "%e = add(%d, %x) return %e }",
            &x, &out),
        FUSOR_OK, "%s", error.text);
    int64_t middle = fu_now_ns();
    memset(&out, 0, sizeof out);
    cr_assert_eq(run("func @f(%x: f32[N,N]) -> f32[N,N] { %r = matmul(%x, %x) return %r }", &s, &out), FUSOR_OK);
    int64_t end = fu_now_ns();
    /* Speed is not asserted: the numbers are for who looks (criterion --verbose). */
    cr_log_info("chain of 5 on 1e6 elements: %.3f s; matmul 256: %.3f s", (double)(middle - begin) * 1e-9,
                (double)(end - middle) * 1e-9);
}
