/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* move_test.c: movement before it runs: sizes with clamped bounds, types of parts of named sizes, several results in
 * text, and what pass_expand makes of it all. */
#include "plan_test.h"

TestSuite(move, .init = text_start, .fini = text_stop);

/* ---- positive parts ---- */

static const char *size_text(const ir_sizes *s, ir_size x) {
    fu_str text;
    fu_str_init(&text, &arena);
    ir_size_print(&text, s, x);
    return text.at;
}

Test(move, positive_parts_have_one_form) {
    ir_sizes *s = ir_sizes_new(&arena);
    const ir_size n = ir_size_sym(s, "N"), m = ir_size_sym(s, "M"), zero = ir_size_const(s, 0),
                  one = ir_size_const(s, 1);
    const ir_size less = ir_size_sub(s, n, one);
    cr_expect_eq(ir_size_positive(s, n), n);
    cr_expect_eq(ir_size_positive(s, ir_size_sub(s, zero, n)), zero);
    cr_expect_eq(ir_size_positive(s, ir_size_const(s, -3)), zero);
    cr_expect_eq(ir_size_max(s, n, m), ir_size_max(s, m, n));
    cr_expect_eq(ir_size_min(s, n, m), ir_size_min(s, m, n));
    cr_expect_eq(ir_size_add(s, ir_size_min(s, n, m), ir_size_max(s, n, m)), ir_size_add(s, n, m));
    cr_expect_eq(ir_size_min(s, n, ir_size_add(s, n, one)), n);
    cr_expect_eq(ir_size_sub(s, n, ir_size_min(s, one, n)), ir_size_positive(s, less), "x[1:] and x[:-1] are as long");
    cr_expect_eq(ir_size_positive(s, ir_size_positive(s, less)), ir_size_positive(s, less));
    cr_expect(ir_size_never_negative(s, ir_size_min(s, n, m)));
    cr_expect(ir_size_never_negative(s, ir_size_sub(s, n, ir_size_min(s, n, m))));
    cr_expect(!ir_size_never_negative(s, ir_size_sub(s, m, ir_size_positive(s, less))));
    cr_expect_str_eq(size_text(s, ir_size_positive(s, less)), "max(N-1, 0)");
    cr_expect(ir_size_is_writable(s, less) && !ir_size_is_writable(s, ir_size_mul(s, m, ir_size_positive(s, less))));
}

Test(move, positive_parts_evaluate_and_substitute) {
    ir_sizes *s = ir_sizes_new(&arena);
    const ir_size n = ir_size_sym(s, "N"), m = ir_size_sym(s, "M");
    const ir_size low = ir_size_min(s, n, m), high = ir_size_max(s, n, m);
    for (int64_t a = 0; a < 4; a++) {
        for (int64_t b = 0; b < 4; b++) {
            int64_t x = -1, y = -1;
            const int64_t values[2] = {a, b};
            cr_expect(ir_size_eval(s, low, values, &x) == IR_SIZE_OK && x == (a < b ? a : b));
            cr_expect(ir_size_eval(s, high, values, &y) == IR_SIZE_OK && y == (a < b ? b : a));
            const ir_size map[2] = {ir_size_const(s, a), ir_size_const(s, b)};
            cr_expect(ir_size_is(s, ir_size_substitute(s, s, low, map), x));
        }
    }
    ir_sizes *copy = ir_sizes_copy(&arena, s);
    cr_expect_str_eq(size_text(copy, low), size_text(s, low));
}

/* ---- types ---- */

/* The type of %r in a function of x: f32[N, M], y: f32[4, 8]. */
static const char *type_of(const char *body) {
    const ir_module *m = must_parse(
        fu_format(&arena, "func @f(%%x: f32[N, M], %%y: f32[4, 8], %%i: i32[K]) -> f32[N, M] { %s return %%x }", body));
    const ir_graph *g = m->functions.at[0];
    fu_str s;
    fu_str_init(&s, &arena);
    for (ir_id id = 1; id < g->nodes.n; id++)
        if (ir_at(g, id)->name && strcmp(ir_at(g, id)->name, "r") == 0) ir_type_print(&s, g, ir_at(g, id));
    return s.at;
}

Test(move, types_of_parts) {
    cr_expect_str_eq(type_of("%r = slice(%y, starts=[1, -3], ends=[99, 99])"), "f32[3, 3]");
    cr_expect_str_eq(type_of("%r = slice(%y, starts=[6], ends=[0], steps=[-4], axes=[1])"), "f32[4, 2]");
    cr_expect_str_eq(type_of("%r = slice(%y, starts=[9223372036854775807], ends=[-9223372036854775808], steps=[-1])"),
                     "f32[4, 8]");
    cr_expect_str_eq(type_of("%r = slice(%x, starts=[0], ends=[-1])"), "f32[max(N-1, 0), M]");
    cr_expect_str_eq(type_of("%r = slice(%x, starts=[2], ends=[-3])"), "f32[max(N-5, 0), M]");
    cr_expect_str_eq(type_of("%r = slice(%x, starts=[2], ends=[-3], steps=[2])"), "f32[(max(N-5, 0)+1)/2, M]");
    /* As often as one likes: the sizes do not grow. */
    cr_expect_str_eq(type_of("%a = slice(%x, starts=[1], ends=[-1]) %b = slice(%a, starts=[1], ends=[-1]) "
                             "%c = slice(%b, starts=[1], ends=[-1]) %d = slice(%c, starts=[1], ends=[-1]) "
                             "%r = slice(%d, starts=[1], ends=[-1])"),
                     "f32[max(N-10, 0), M]");
    cr_expect_str_eq(type_of("%r = slice(%x, starts=[0], ends=[N])"), "f32[N, M]");
    cr_expect_str_eq(type_of("%r = slice(%x, starts=[0], ends=[-9223372036854775808], steps=[-1])"),
                     type_of("%r = slice(%x, starts=[0], ends=[1])"));
    cr_expect_str_eq(type_of("%r = flip(%x, axes=[0, 1])"), "f32[N, M]");
    cr_expect_str_eq(type_of("%r = pad(%x, pads=[1, 0, 2, M])"), "f32[N+3, 2*M]");
    cr_expect_str_eq(type_of("%r = pad(%y, pads=[-1, 0, -1, 0])"), "f32[2, 8]");
    cr_expect_str_eq(type_of("%r = concat(%x, %x, %x, axis=-1)"), "f32[N, 3*M]");
    cr_expect_str_eq(type_of("%a, %r = split(%y, axis=1, sizes=[3, 5])"), "f32[4, 5]");
    cr_expect_str_eq(type_of("%r = tile(%x, repeats=[2, K])"), "f32[2*N, K*M]");
    cr_expect_str_eq(type_of("%r = take(%x, %i, axis=1)"), "f32[N, K]");
    cr_expect_str_eq(type_of("%r = take(%x, 3)"), "f32[M]");
    cr_expect_str_eq(type_of("%r = one_hot(%i, depth=M, dtype=bool)"), "bool[K, M]");
}

Test(move, several_results_are_text_again) {
    const char *text =
        round_trip("func @f(%x: f32[8]) -> f32[5] { %a, %b = split(%x, axis=0, sizes=[3, 5]) return %b }");
    cr_assert(strstr(text, "  %a, %b = split(%x, axis=0, sizes=[3, 5])\n"), "%s", text);
    /* A result that is gone has a name of its own again. */
    const ir_graph *live = ir_graph_copy_live(&arena, must_parse(text)->functions.at[0]);
    cr_assert(strstr(graph_text(live), "  %1, %b = split("), "%s", graph_text(live));
    round_trip(graph_text(live));
    text = round_trip("func @f(%x: f32[8], %v: f32) -> (f32[9], f32[9]) { %a = pad(%x, value=%v, pads=[1, 0]) "
                      "%b = pad(%x, pads=[0, 1], value=-0.5) return %a, %b }");
    cr_assert(strstr(text, "pad(%x, value=%v, pads=[1, 0])") && strstr(text, "pad(%x, value=-0.5, pads=[0, 1])"), "%s",
              text);
    round_trip("func @f(%x: f32[N]) -> f32[?] { %a = slice(%x, starts=[1], ends=[-1]) : f32[?] return %a }");
}

Test(move, calls_with_parts_are_inlined) {
    const ir_module *m =
        must_parse("func @f(%x: f32[N, 8]) -> (f32[?, 3], f32[?, 5]) { %a, %b = @g(%x) return %a, %b }\n"
                   "func @g(%z: f32[P, Q]) -> (f32[?, 3], f32[?, 5]) { %h = slice(%z, starts=[1], ends=[P]) "
                   "%a, %b = split(%h, axis=1, sizes=[3, 5]) return %a, %b }");
    const ir_graph *flat = flatten(m, "f");
    cr_expect_eq(ir_verify(flat, &error, "flatten"), FUSOR_OK, "%s", error.text);
    cr_assert(strstr(graph_text(flat), "= split("), "%s", graph_text(flat));
    round_trip(graph_text(flat));
}

/* ---- expansion ---- */

static const char *expanded(const char *text) {
    ir_graph *g = must_parse(text)->functions.at[0];
    fu_error_clear(&error);
    cr_assert_eq(ir_pass_expand(&arena, &error, &g), FUSOR_OK, "%s", error.text);
    cr_assert_eq(ir_verify(g, &error, "expand"), FUSOR_OK, "%s", error.text);
    cr_assert_eq(ir_pass_dce(&arena, &error, &g), FUSOR_OK);
    return graph_text(g);
}

#define EXPANDS(text, ...)                                                                                             \
    do {                                                                                                               \
        const char *got_ = expanded(text), *const want_[] = {__VA_ARGS__};                                             \
        for (size_t i_ = 0; i_ < sizeof want_ / sizeof *want_; i_++)                                                   \
            cr_expect(strstr(got_, want_[i_]), "%s lacks %s", got_, want_[i_]);                                        \
    } while (0)

Test(move, expands_into_what_kernels_know) {
    EXPANDS("func @f(%x: f32[4, 8]) -> f32[4, 8] { %r = flip(%x, axes=[1]) return %r }",
            "%r = slice(%x, starts=[9223372036854775807], ends=[-9223372036854775808], steps=[-1], axes=[1])");
    EXPANDS("func @f(%x: f32[1, 8]) -> f32[1, 8] { %r = flip(%x, axes=[0]) return %r }", "return %x");
    EXPANDS("func @f(%x: f32[4, 8]) -> f32[4, 5] { %a, %r = split(%x, axis=1, sizes=[3, 5]) return %r }",
            "%r = slice(%x, starts=[3], ends=[8], axes=[1])");
    EXPANDS("func @f(%x: f32[4, 8]) -> f32[6, 4] { %r = pad(%x, pads=[2, -1, 0, -3]) return %r }",
            "slice(%x, starts=[0, 1], ends=[9223372036854775807, -3])", "%r = pad(%1, value=0.0, pads=[2, 0, 0, 0])");
    EXPANDS("func @f(%x: f32[4, 8]) -> f32[4, 8] { %r = pad(%x, pads=[0, 0, 0, 0]) return %r }", "return %x");
    EXPANDS("func @f(%x: f32[4, 8]) -> f32[4, 8] { %r = slice(%x, starts=[0, -9], ends=[4, 99]) return %r }",
            "return %x");
    EXPANDS("func @f(%x: f32[4, 8]) -> f32[4, 8] { %r = concat(%x, axis=0) return %r }", "return %x");
    EXPANDS("func @f(%x: f32[4, 8], %e: f32[0, 8]) -> f32[4, 8] { %r = concat(%e, %x, %e, axis=0) return %r }",
            "return %x");
    EXPANDS("func @f(%x: f32[4, 8]) -> f32[4, 8] { %r = tile(%x, repeats=[1, 1]) return %r }", "return %x");
    EXPANDS("func @f(%x: f32[4, 8]) -> f32[8, 8] { %r = tile(%x, repeats=[2, 1]) return %r }",
            "reshape(%x, shape=[1, 4, 8])", "shape=[2, 4, 8])", "shape=[8, 8])");
    EXPANDS("func @f(%i: i8[4]) -> f32[4, 300] { %r = one_hot(%i, depth=300) return %r }", "cast(%i, i32)",
            "iota(shape=[300]", "eq(");
    EXPANDS("func @f(%x: f32[N, 8]) -> f32[N, 8] { %r = tril(%x) return %r }", "dtype=i64", "le(", "%r = select(");
}

Test(move, concat_of_many_is_a_tree) {
    const char *text = expanded(
        "func @f(%x: f32[2]) -> f32[20] { %r = concat(%x, %x, %x, %x, %x, %x, %x, %x, %x, %x, axis=0) return %r }");
    unsigned n = 0;
    for (const char *at = text; (at = strstr(at, "= concat(")); at++) n++;
    cr_expect_eq(n, 3u, "%s", text);
}

/* Rows of pixels that are pads, or operands of concat, in parts are runs of elements, not of pixels. */
static int dims_of(const char *text) {
    const ir_plan *p = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V3});
    cr_assert(p->steps.n == 1, "%s: %d kernels", text, p->steps.n);
    return p->steps.at[0].kernel->n_dims;
}

Test(move, pixels_are_elements_of_a_row) {
    cr_expect_eq(dims_of("func @f(%x: u8[H, W, 3]) -> u8[?, ?, 3] { %y = pad(%x, pads=[1, 2, 0, 1, 3, 0]) return %y }"),
                 2);
    cr_expect_eq(dims_of("func @f(%x: f32[H, W, 4], %z: f32[H, V, 4]) -> f32[H, ?, 4] { %c = concat(%x, %z, axis=1) "
                         "%y = neg(%c) return %y }"),
                 2);
    cr_expect_eq(
        dims_of("func @f(%x: f32[H, W, 3], %b: f32[3]) -> f32[H, ?, 3] { %p = pad(%x, pads=[0, 2, 0, 0, 0, 0]) "
                "%y = mul(%p, %b) return %y }"),
        3, "not where something else is for each of them");
    cr_expect_eq(dims_of("func @f(%x: i64[H, W, 3]) -> i64[H, ?, 3] { %p = pad(%x, pads=[0, 2, 0, 0, 0, 0]) "
                         "%i = iota(shape=[W+2, 1], axis=0, dtype=i64) %y = mul(%p, %i) return %y }"),
                 3, "or the pixel's number is a value");
}

/* Vectors go along pixels of 2 to 4 elements where these are no run in an input: the elements take turns. */
static int64_t turns_of(const char *text) {
    const ir_plan *p = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V3});
    const ir_kernel *k = p->steps.at[0].kernel;
    cr_assert(p->steps.n == 1 && k->n_dims >= 2, "%s", text);
    const int64_t stride = k->buffer[k->n_buffers - 1].stride[k->n_dims - 1];
    return stride > 1 ? stride : 0;
}

Test(move, vectors_go_along_pixels) {
    cr_expect_eq(turns_of("func @f(%x: u8[H, W, 3]) -> u8[H, W, 3] { %y = flip(%x, axes=[1]) return %y }"), 3);
    cr_expect_eq(turns_of("func @f(%x: u8[H, W, 4]) -> u8[H, W, 3] { %y = slice(%x, starts=[0], ends=[3], axes=[2]) "
                          "return %y }"),
                 3);
    cr_expect_eq(turns_of("func @f(%x: f32[N, 9, 2], %b: f32[N, 1, 2]) -> f32[N, 9, 2] { %y = add(%x, %b) return %y }"),
                 0, "few pixels");
    cr_expect_eq(
        turns_of("func @f(%x: f32[N, 17, 2], %b: f32[N, 1, 2]) -> f32[N, 17, 2] { %y = add(%x, %b) return %y }"), 2);
    cr_expect_eq(turns_of("func @f(%x: f32[N, 4], %b: f32[N, 1]) -> f32[N, 4] { %y = mul(%x, %b) return %y }"), 4);
    cr_expect_eq(turns_of("func @f(%x: u8[H, W, 3]) -> u8[W, H, 3] { %y = transpose(%x, perm=[1, 0, 2]) return %y }"),
                 0, "pixels that are far apart");
    cr_expect_eq(turns_of("func @f(%x: f32[3, H, W], %b: f32[3], %s: f32[3]) -> f32[H, W, 3] { %t = transpose(%x, "
                          "perm=[1, 2, 0]) %m = mul(%t, %s) %y = add(%m, %b) return %y }"),
                 3, "planes, and an operand with one value for each channel");
    cr_expect_eq(turns_of("func @f(%x: f32[1, 5], %b: f32[N, 1]) -> f32[N, 5] { %y = add(%x, %b) return %y }"), 0,
                 "an outer sum");
    cr_expect_eq(turns_of("func @f(%x: f32[N, 3]) -> f32[N, 3] { %i = iota(shape=[N, 1], axis=0, dtype=f32) "
                          "%y = add(%x, %i) return %y }"),
                 3, "the number of a pixel");
}

/* Rows of few columns that are a run but for what all of them share: the stride from row to row is baked then. */
static int64_t baked_columns(const char *text) {
    const ir_plan *p = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V3});
    const ir_kernel *k = p->steps.at[0].kernel;
    cr_assert(p->steps.n == 1 && k->n_dims >= 2, "%s", text);
    const int64_t stride = k->buffer[0].stride[k->n_dims - 2];
    return stride == IR_STRIDE_RUNTIME ? 0 : stride;
}

Test(move, rows_of_few_columns_are_grouped) {
    cr_expect_eq(baked_columns("func @f(%x: f32[N, 10], %b: f32[10]) -> f32[N, 10] { %y = add(%x, %b) return %y }"),
                 10);
    cr_expect_eq(
        baked_columns("func @f(%x: u8[H, W, 3], %b: u8[H, 1, 3]) -> u8[H, W, 3] { %y = mul(%x, %b) return %y }"), 3);
    cr_expect_eq(baked_columns("func @f(%x: f32[N, 8], %b: f32[8]) -> f32[N, 8] { %y = add(%x, %b) return %y }"), 0,
                 "a whole vector");
    cr_expect_eq(baked_columns("func @f(%x: f32[N, 10], %b: f32[N, 1]) -> f32[N, 10] { %y = add(%x, %b) return %y }"),
                 0, "one value a row");
    cr_expect_eq(baked_columns("func @f(%x: f32[N, 20, 10], %b: f32[N, 1, 10]) -> f32[N, 20, 10] { %y = add(%x, %b) "
                               "return %y }"),
                 0, "few rows");
    cr_expect_eq(baked_columns("func @f(%x: f32[N, 10], %a: f32[10], %b: f32[10]) -> f32[N, 10] { %c = flip(%b, "
                               "axes=[0]) %s = add(%x, %a) %y = add(%s, %c) return %y }"),
                 0, "what rows share is turned");
}
