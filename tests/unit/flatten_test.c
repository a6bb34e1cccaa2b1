/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* flatten_test.c: calls inlined, how they bind sizes, and parameters that calls leave out. */
#include "text_test.h"

TestSuite(flatten, .init = text_start, .fini = text_stop);

static const char *flat(const char *text, const char *function) {
    const char *first = graph_text(flatten(must_parse(text), function));
    cr_assert_str_eq(graph_text(must_parse(first)->functions.at[0]), first);
    return first;
}

Test(flatten, without_calls_is_the_same) {
    const char *text = "fusor 1\nfunc @f(%x: f32[N], const %w: f32[4] = \"w.npy\") -> (%y: f32[N] alias %x) {\n  %y = "
                       "relu(%x)\n  return %y\n}\n";
    cr_assert_str_eq(flat(text, "f"), text + 8);
}

Test(flatten, several_results_in_any_order) {
    cr_assert_str_eq(
        flat("func @f(%x: f32[N]) -> (f32[N], f32[N]) { %b, %a = @g(%x, 2) %c = add(%a, %b) return %c, %b }\n"
             "func @g(%x: f32[N], %k: f32) -> (f32[N], f32[N]) { %p = mul(%x, %k) %q = neg(%p) return %q, %x }",
             "f"),
        "func @f(%x: f32[N]) -> (f32[N], %b: f32[N]) {\n  %p = mul(%x, 2.0)\n  %q = neg(%p)\n"
        "  %c = add(%x, %q)\n  return %c, %q\n}\n");
}

Test(flatten, nested_calls_and_metadata) {
    const char *text = flat("func @a(%x: f32[N]) -> f32[N] { %y = @b(%x, name=\"outer\", loc=\"a.py:1\") return %y }\n"
                            "func @b(%x: f32[M]) -> f32[M] { %y = @c(%x, name=\"inner\") %z = neg(%y) return %z }\n"
                            "func @c(%x: f32[K]) -> f32[K] { %y = relu(%x) %z = abs(%y, name=\"own\") return %z }",
                            "a");
    cr_expect(strstr(text, "relu(%x, name=\"inner\", loc=\"a.py:1\")"), "%s", text);
    cr_expect(strstr(text, "name=\"own\", loc=\"a.py:1\")"), "%s", text);
    cr_expect(strstr(text, "neg("), "%s", text);
    cr_expect(strstr(text, "name=\"outer\", loc=\"a.py:1\")"), "%s", text);
}

/* Broadcasting is decided in the callee: N of @g does not stretch because an argument happens to have size 1. */
Test(flatten, a_size_that_happens_to_be_1_does_not_stretch) {
    cr_assert_null(parse("func @f(%x: f32[1], %y: f32[5]) -> f32[5] { %z = @g(%x, %y) return %z }\n"
                         "func @g(%a: f32[N], %b: f32[M]) -> f32[M] { %c = add(%a, %b) return %c }"));
    cr_assert(strstr(error.text, "t:1:"), "%s", error.text);
    /* A size that the text makes 1 does. */
    ir_graph *g = flatten(must_parse("func @f(%x: f32[B], %y: f32[5]) -> f32[5] { %z = @g(%x, %y) return %z }\n"
                                     "func @g(%a: f32[1], %b: f32[M]) -> f32[M] { %c = add(%a, %b) return %c }"),
                          "f");
    cr_assert_eq(g->checks.n, 1);
    const int64_t one[1] = {1}, two[1] = {2}, five[1] = {5};
    int64_t values[4];
    cr_expect_eq(ir_bind_sizes(g, &error, (const int64_t *[]){one, five}, values), FUSOR_OK, "%s", error.text);
    cr_expect_eq(ir_bind_sizes(g, &error, (const int64_t *[]){two, five}, values), FUSOR_ERROR_SHAPE);
}

Test(flatten, checks_of_callees_come_along) {
    ir_graph *g = flatten(must_parse("func @f(%x: f32[A], %y: f32[B]) -> f32[?] { %z = @g(%x, %y) return %z }\n"
                                     "func @g(%x: f32[N], %y: f32[M]) -> f32[N] { %z = @h(%x, %y) return %z }\n"
                                     "func @h(%x: f32[N], %y: f32[N]) -> f32[N] { %z = add(%x, %y) return %z }"),
                          "f");
    const int64_t a[1] = {4}, b[1] = {5};
    int64_t values[2];
    cr_expect_eq(ir_bind_sizes(g, &error, (const int64_t *[]){a, a}, values), FUSOR_OK, "%s", error.text);
    cr_expect_eq(ir_bind_sizes(g, &error, (const int64_t *[]){a, b}, values), FUSOR_ERROR_SHAPE);
    cr_expect(strstr(error.text, "t:2:"), "%s", error.text);
}

/* With the numbers of the call, what the callee's text says is not always enough to say it again. */
Test(flatten, sizes_of_the_call) {
    ir_graph *g =
        flatten(must_parse("func @f(%x: f32[0, 3]) -> f32[0, 3] { %r = @g(%x) return %r }\n"
                           "func @g(%x: f32[A, 3]) -> f32[A, 3] { %r = reshape(%x, shape=[A, -1]) return %r }"),
                "f");
    cr_expect(strstr(graph_text(g), "shape=[0, 3]"), "%s", graph_text(g));
    g = flatten(must_parse("func @f(%x: f32[1, 4], %g: f32[B, 4]) -> f32[?, ?] { %r = @g(%x, %g) return %r }\n"
                           "func @g(%x: f32[N, 4], %g: f32[M, 4]) -> f32[?, ?] { %r = rms_norm(%x, %g) return %r }"),
                "f");
    const int64_t x[2] = {1, 4}, one[2] = {1, 4}, two[2] = {2, 4};
    int64_t values[1];
    cr_expect_eq(ir_bind_sizes(g, &error, (const int64_t *[]){x, one}, values), FUSOR_OK, "%s", error.text);
    cr_expect_eq(ir_bind_sizes(g, &error, (const int64_t *[]){x, two}, values), FUSOR_ERROR_SHAPE);
    fu_error_clear(&error);
    const ir_module *m = must_parse("func @f(%x: f32[2]) -> f32[?] {\n  %r = @g(%x)\n  return %r\n}\nfunc @g(%x: "
                                    "f32[A]) -> f32[?] { %r = slice(%x, "
                                    "starts=[A*4611686018427387904], ends=[9223372036854775807]) return %r }");
    cr_expect_eq(ir_flatten(&arena, &error, m, ir_module_find(m, "f"), &g), FUSOR_ERROR_SHAPE);
    cr_expect(strstr(error.text, "t:2:8: error: call of @g, line 5: a size does not fit"), "%s", error.text);
}

Test(flatten, left_out_parameters) {
    ir_graph *g = flatten(
        must_parse("func @f(%x: f32[M, 3]) -> f32[?, ?] { %y = @g(%x) %z = @g(%x) %s = add(%y, %z) return %s }\n"
                   "func @g(%x: f32[N, D], const %w: f32[D, K] = \"w.npy\", %b: f32[K] = 0.5, %l: f32[3] = [1, 2, 3]) "
                   "-> f32[N, K] {\n"
                   "  %m = mul(%x, %l) %y = matmul(%m, %w) %z = add(%y, %b) return %z }"),
        "f");
    cr_assert_eq(g->params.n, 3);
    cr_expect_str_eq(g->params.at[1].name, "g.w");
    cr_expect_str_eq(g->params.at[1].path, "w.npy");
    cr_expect(g->params.at[1].is_const);
    cr_expect_str_eq(g->params.at[2].name, "g.l");
    cr_expect_eq(g->params.at[2].value[2], 0x40400000);
    cr_expect(strstr(graph_text(g), "const %g.w: f32[3, g.K] = \"w.npy\""), "%s", graph_text(g));
    const int64_t x[2] = {7, 3}, w[2] = {3, 9}, l[1] = {3};
    int64_t values[4];
    cr_expect_eq(ir_bind_sizes(g, &error, (const int64_t *[]){x, w, l}, values), FUSOR_OK, "%s", error.text);
}

Test(flatten, left_out_of_a_call_in_a_call) {
    const char *text = "func @f(%x: f32[M]) -> f32[?] { %y = @g(%x) return %y }\n"
                       "func @g(%x: f32[M]) -> f32[?] { %y = @h(%x) %z = relu(%y) return %z }\n"
                       "func @h(%x: f32[N], %w: f32[N, K] = \"w.npy\") -> f32[K] { %y = matmul(%x, %w) return %y }";
    cr_assert(strstr(flat(text, "f"), "func @f(%x: f32[M], %h.w: f32[M, h.K] = \"w.npy\") -> (%"), "%s",
              flat(text, "f"));
    cr_assert_str_eq(round_trip(text), module_text(must_parse(text)));
}

Test(flatten, a_name_that_reads_like_a_left_out_size_is_refused) {
    cr_assert_null(parse("func @f(%x: f32[g.K]) -> f32[?] { %y = @g(%x) return %y }\n"
                         "func @g(%x: f32[N], %w: f32[N, K] = \"w.npy\") -> f32[K] { %y = matmul(%x, %w) return %y }"));
    cr_assert(strstr(error.text, "rename it"), "%s", error.text);
}

Test(flatten, deep_calls_do_not_recurse, .timeout = 60) {
    enum { N = 20000 };
    fu_str s;
    fu_str_init(&s, &arena);
    for (int i = 0; i < N; i++)
        fu_str_addf(&s, "func @f%d(%%x: f32[N]) -> f32[N] { %%y = @f%d(%%x) return %%y }\n", i, i + 1);
    fu_str_addf(&s, "func @f%d(%%x: f32[N]) -> f32[N] { %%y = relu(%%x) return %%y }\n", N);
    ir_graph *g = flatten(must_parse(s.at), "f0");
    cr_assert_eq(g->nodes.n, 3);
}

Test(flatten, growth_is_limited, .timeout = 60) {
    fu_str s;
    fu_str_init(&s, &arena);
    fu_str_add(&s, "func @f0(%x: f32[N]) -> f32[N] { %y = relu(%x) return %y }\n");
    for (int i = 1; i < 60; i++)
        fu_str_addf(&s, "func @f%d(%%x: f32[N]) -> f32[N] { %%y = @f%d(%%x) %%z = @f%d(%%y) return %%z }\n", i, i - 1,
                    i - 1);
    cr_assert_null(parse(s.at));
    cr_assert_eq(error.status, FUSOR_ERROR_UNSUPPORTED, "%s", error.text);
    cr_assert_leq(arena.bytes, 64 << 20);
}
