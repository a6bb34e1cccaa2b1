/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* hint_test.c: barrier and fuse_with, as text, in functions that are built, and on lazy tensors: they are met or an
 * error that says why not; no bit of a result changes; the kernels of what they do not concern stay the same; they
 * print and parse. */
#include "api_test.h"
#include <jansson.h>
#include <string.h>

static fusor_context *ctx;
static void setup(void) { ctx = new_context(0); }
static void teardown(void) { fusor_context_free(ctx); }
TestSuite(hint, .init = setup, .fini = teardown);

static json_t *explain(fusor_executable *exe) {
    char *text = NULL;
    OK(fusor_explain_json(exe, &text));
    json_t *d = json_loads(text, 0, NULL);
    cr_assert(d, "%s", text);
    fusor_text_free(text);
    return d;
}

static fusor_executable *compile(const char *text) {
    fusor_executable *exe = NULL;
    OK(fusor_compile_text(ctx, text, NULL, &exe));
    return exe;
}

static size_t count(const char *text, const char *list) {
    fusor_executable *exe = compile(text);
    json_t *d = explain(exe);
    size_t n = json_array_size(json_object_get(d, list));
    json_decref(d);
    fusor_executable_free(exe);
    return n;
}

/* The reason of the first boundary. */
static void expect_reason(const char *text, const char *reason) {
    fusor_executable *exe = compile(text);
    json_t *d = explain(exe);
    cr_assert_str_eq(json_string_value(json_object_get(json_array_get(json_object_get(d, "boundaries"), 0), "reason")),
                     reason, "%s", text);
    json_decref(d);
    fusor_executable_free(exe);
}

#define F(body) "func @f(%a: f32[M, N]) -> f32[M, N] { " body " return %y }"

Test(hint, a_barrier_cuts_every_kind) {
    static const char *const cut[] = {
        F("%b = exp(%a, barrier=true) %y = neg(%b)"),
        F("%b = softmax(%a, barrier=true) %y = neg(%b)"),
        F("%b = reduce_max(%a, axes=[1], keepdims=true, barrier=true) %y = sub(%a, %b)"),
        F("%b = cumsum(%a, axis=1, barrier=true) %y = neg(%b)"),
        F("%m = matmul(%a, %a, transpose_b=true, barrier=true) %y = relu(%m)"),
        F("%e = exp(%a) %b = flip(%e, axes=[1], barrier=true) %y = neg(%b)"),
        F("%b = exp(%a, barrier=true) %r = reduce_sum(%b, axes=[1], keepdims=true) %y = div(%b, %r)"),
    };
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        char text[400], *at;
        strcpy(text, cut[i]);
        if (strstr(text, "%m = "))
            strcpy(text, "func @f(%a: f32[M, N]) -> f32[M, M] { %m = matmul(%a, %a, transpose_b=true, barrier=true) %y "
                         "= relu(%m) return %y }");
        cr_assert_eq(count(text, "kernels"), 2, "%s", text);
        expect_reason(text, "barrier");
        at = strstr(text, ", barrier=true");
        memmove(at, at + 14, strlen(at + 14) + 1);
        cr_assert_eq(count(text, "kernels"), 1, "%s", text);
    }
    cr_assert_eq(count(F("%b = exp(%a, barrier=false) %y = neg(%b)"), "kernels"), 1);
}

Test(hint, a_barrier_on_a_call_cuts_behind_its_results) {
    const char *text = "func @f(%a: f32[N]) -> f32[N] { %b = @g(%a, barrier=true) %y = neg(%b) return %y }\n"
                       "func @g(%a: f32[N]) -> f32[N] { %t = exp(%a) %u = add(%t, 1.0) return %u }";
    cr_assert_eq(count(text, "kernels"), 2);
    expect_reason(text, "barrier");
}

Test(hint, fuse_with_is_met_or_says_why_not) {
    fusor_executable *exe = NULL;
    /* Without the hint %t is stored by the first of two kernels that need it: a boundary more. */
    const char *costly = F("%t = exp(%a) %s = reduce_sum(%t, axes=[0]) %y = div(%t, %s)"),
               *wanted = F("%t = exp(%a) %s = reduce_sum(%t, axes=[0]) %y = div(%t, %s, fuse_with=%t)");
    cr_assert_eq(count(costly, "kernels"), 2);
    cr_assert_eq(count(costly, "boundaries"), 2);
    cr_assert_eq(count(wanted, "kernels"), 2);
    cr_assert_eq(count(wanted, "boundaries"), 1);
    cr_assert_eq(count(F("%t = exp(%a) %s = neg(%t, fuse_with=[%t, %a]) %y = abs(%s, fuse_with=%t)"), "kernels"), 1);
    FAILS(fusor_compile_text(ctx,
                             "func @f(%a: f32[M, 8], %w: f32[8, 8]) -> f32[M, 8] {\n  %b = matmul(%a, %w)\n  %y = "
                             "matmul(%b, %w, fuse_with=%b)\n  return %y\n}",
                             NULL, &exe),
          FUSOR_ERROR_ARGUMENT,
          "<text>:3:33: error: fuse_with: %y and %b are not computed in one kernel: a contraction reads");
    FAILS(fusor_compile_text(ctx, F("%b = exp(%a, barrier=true) %y = neg(%b, fuse_with=%b)"), NULL, &exe),
          FUSOR_ERROR_ARGUMENT, "a barrier asks");
    FAILS(fusor_compile_text(ctx,
                             "func @f(%a: f32[N]) -> (f32[N], f32[N]) { %b = exp(%a, barrier=true) "
                             "%y = neg(%a, fuse_with=%b) return %b, %y }",
                             NULL, &exe),
          FUSOR_ERROR_ARGUMENT, "a barrier asks");
    FAILS(fusor_compile_text(ctx, F("%d = exp(%a) %y = neg(%a, fuse_with=%d)"), NULL, &exe), FUSOR_ERROR_ARGUMENT,
          "no result needs %d");
    /* A statement that no result needs asks for nothing. */
    cr_assert_eq(count(F("%y = neg(%a) %d = exp(%y, fuse_with=%y)"), "kernels"), 1);
    cr_assert_eq(count("func @f(%a: f32[7, 33], %i: i64[2]) -> f32[7, 33] { %y = neg(%a) "
                       "%d = take(%y, %i, fuse_with=%y) return %y }",
                       "kernels"),
                 2, "one of them checks %%i");
    /* Unfused is what somebody asked for. */
    fusor_module *m = NULL;
    OK(fusor_module_parse(ctx, NULL, wanted, strlen(wanted), &m));
    fusor_compile_options o = FUSOR_COMPILE_OPTIONS_INIT;
    o.flags = FUSOR_NO_FUSE;
    OK(fusor_module_compile(m, NULL, &o, &exe));
    fusor_executable_free(exe);
    fusor_module_free(m);
}

static void run(const char *text, const float *a, float *y) {
    fusor_executable *exe = compile(text);
    fusor_buffer in = {.data = (void *)a, .dtype = FUSOR_F32, .rank = 2, .shape = {7, 33}},
                 out = {.data = y, .dtype = FUSOR_F32, .rank = 2, .shape = {7, 33}};
    OK(fusor_executable_call(exe, 1, &in, 1, &out));
    fusor_executable_free(exe);
}

Test(hint, no_bit_changes) {
    float a[7 * 33], plain[7 * 33], hinted[7 * 33];
    for (int i = 0; i < 7 * 33; i++) a[i] = (float)(i * 37 % 101) / 17 - 3;
    run(F("%t = exp(%a) %s = reduce_sum(%t, axes=[1], keepdims=true) %d = div(%t, %s) %y = gelu(%d)"), a, plain);
    run(F("%t = exp(%a, barrier=true) %s = reduce_sum(%t, axes=[1], keepdims=true, barrier=true) %d = div(%t, %s, "
          "barrier=true) %y = gelu(%d)"),
        a, hinted);
    cr_assert(memcmp(plain, hinted, sizeof plain) == 0);
    run(F("%t = exp(%a) %s = reduce_sum(%t, axes=[0], keepdims=true) %y = div(%t, %s)"), a, plain);
    run(F("%t = exp(%a) %s = reduce_sum(%t, axes=[0], keepdims=true) %y = div(%t, %s, fuse_with=%t)"), a, hinted);
    cr_assert(memcmp(plain, hinted, sizeof plain) == 0);
}

Test(hint, prints_and_parses) {
    const char *text = "fusor 1\nfunc @f(%a: f32[N]) -> f32[N] {\n  %b = exp(%a, barrier=true)\n  %c = neg(%b)\n  %y = "
                       "add(%b, %c, name=\"last\", barrier=true, fuse_with=[%c, %a])\n"
                       "  %p, %q = split(%y, axis=0, sizes=[N, 0], barrier=true, fuse_with=%y)\n  return %p\n}\n";
    fusor_module *m = NULL;
    char *printed = NULL;
    OK(fusor_module_parse(ctx, NULL, text, strlen(text), &m));
    OK(fusor_module_print(m, &printed));
    cr_assert_str_eq(printed, text);
    fusor_text_free(printed);
    fusor_module_free(m);
}

Test(hint, built_functions_have_them) {
    fusor_module *m = NULL;
    char *printed = NULL;
    OK(fusor_module_new(ctx, &m));
    OK(fusor_function_begin(m, "f"));
    fusor_size N = fusor_function_dim(m, "N");
    fusor_tensor a = fusor_function_param(m, "a", FUSOR_F32, 1, &N, 0);
    fusor_tensor b = fusor_barrier(fusor_exp(a)), c = fusor_neg(b), y = fusor_fuse_with(fusor_mul(c, b), c);
    fusor_function_result(m, "y", y, NULL);
    OK(fusor_function_end(m));
    OK(fusor_module_print(m, &printed));
    cr_assert(strstr(printed, "exp(%a, barrier=true)") && strstr(printed, ", fuse_with=%"), "%s", printed);
    cr_assert_eq(count(printed, "kernels"), 2);
    fusor_text_free(printed);
    fusor_module_free(m);
}

static int64_t kernels_run(void) {
    char *text = NULL;
    OK(fusor_profile_json(ctx, &text));
    json_t *d = json_loads(text, 0, NULL), *k;
    size_t i;
    int64_t n = 0;
    json_array_foreach(json_object_get(d, "kernels"), i, k) n += json_integer_value(json_object_get(k, "calls"));
    json_decref(d);
    fusor_text_free(text);
    OK(fusor_profile_enable(ctx, 0));
    OK(fusor_profile_enable(ctx, 1));
    return n;
}

Test(hint, lazy_tensors_have_them) {
    float a[8] = {1, 2, 3, 4, 5, 6, 7, 8}, plain[8], y[8];
    fusor_tensor A = fusor_wrap_const(ctx, a, FUSOR_F32, FUSOR_SHAPE(8));
    OK(fusor_profile_enable(ctx, 1));
    OK(fusor_read(fusor_neg(fusor_exp(A)), plain, sizeof plain));
    cr_assert_eq(kernels_run(), 1);
    for (int i = 0; i < 2; i++) { /* another plan than without, and found again */
        OK(fusor_read(fusor_neg(fusor_barrier(fusor_exp(A))), y, sizeof y));
        cr_assert_eq(kernels_run(), 2);
        cr_assert(memcmp(plain, y, sizeof y) == 0);
        OK(fusor_read(fusor_neg(fusor_exp(A)), y, sizeof y));
        cr_assert_eq(kernels_run(), 1);
    }
    fusor_tensor e = fusor_exp(A), n = fusor_fuse_with(fusor_neg(e), e);
    OK(fusor_read(n, y, sizeof y));
    cr_assert_eq(kernels_run(), 1);
    fusor_tensor b = fusor_barrier(fusor_exp(A));
    n = fusor_fuse_with(fusor_neg(b), b);
    FAILS(fusor_read(n, y, sizeof y), FUSOR_ERROR_ARGUMENT, "a barrier asks");
    fusor_tensor s = fusor_sqrt(A), t = fusor_fuse_with(fusor_neg(s), s);
    OK(fusor_eval(1, &s));
    FAILS(fusor_read(t, y, sizeof y), FUSOR_ERROR_ARGUMENT, "evaluated before");
    FAILS(fusor_status_of(fusor_fuse_with(fusor_neg(s), s)), FUSOR_ERROR_ARGUMENT, "in memory already");
    FAILS(fusor_status_of(fusor_fuse_with(fusor_exp(A), A)), FUSOR_ERROR_ARGUMENT, "in memory already");
    OK(fusor_read(fusor_barrier(A), y, sizeof y));
    OK(fusor_read(fusor_barrier(s), y, sizeof y));
}
