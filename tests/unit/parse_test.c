/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* parse_test.c: what texts mean, and tests/error: which texts are refused, how and where. */
#include "text_test.h"
#include "ir/lex.h"
#include <dirent.h>
#include <math.h>

TestSuite(parse, .init = text_start, .fini = text_stop);

static ir_graph *function(const char *text) { return must_parse(text)->functions.at[0]; }
static const ir_node *result_node(const ir_graph *g, uint32_t i) { return ir_at(g, g->results.at[i].node); }
static const char *type_of(const ir_graph *g, const ir_node *n) {
    fu_str s;
    fu_str_init(&s, &arena);
    ir_type_print(&s, g, n);
    return s.at;
}
#define RESULT(text, i) type_of(function(text), result_node(function(text), i))

Test(parse, empty_texts) {
    cr_assert_eq(must_parse("")->functions.n, 0);
    cr_assert_eq(must_parse("fusor 1")->functions.n, 0);
    cr_assert_eq(must_parse(" # only a comment, with \xc3\xa9\n\t\r\n")->functions.n, 0);
    cr_assert_null(ir_module_find(must_parse("fusor 1"), NULL));
}

Test(parse, functions_in_any_order_and_find) {
    ir_module *m = must_parse("func @a(%x: f32[N]) -> f32[N] { %y = @b(%x) return %y }\n"
                              "func @b(%x: f32[N]) -> f32[N] { %y = relu(%x) return %y }");
    cr_assert_eq(m->functions.n, 2);
    cr_assert_str_eq(ir_module_find(m, NULL)->name, "a");
    cr_assert_str_eq(ir_module_find(m, "b")->name, "b");
    cr_assert_null(ir_module_find(m, "c"));
}

Test(parse, white_space_is_free) {
    ir_graph *g = function(
        "fusor\n1 func@f(%x:f32[N],const%w:f32[N]=\"w.npy\")->f32[N]{%y=add(%x,%w)%z=relu(%y):f32[N]return%z}");
    cr_assert_eq(g->params.n, 2);
    cr_assert(g->params.at[1].is_const && !g->params.at[0].is_const);
    cr_assert_str_eq(g->params.at[1].path, "w.npy");
    cr_assert_str_eq(g->results.at[0].name, "z");
}

static double literal_of(const char *number, const char *dtype) {
    const char *text = fu_format(&arena, "func @f(%%x: %s) -> %s { return %s }", dtype, dtype, number);
    const ir_graph *g = function(text);
    return ir_bits_to_double(result_node(g, 0)->dtype, result_node(g, 0)->bits);
}

Test(parse, numbers) {
    static const struct {
        const char *text;
        double value;
    } rows[] = {
        {"1", 1},           {"-1", -1},        {"007", 7},          {"1.5", 1.5},
        {"1.", 1},          {".5", 0.5},       {"-.5", -0.5},       {"1e5", 1e5},
        {"1.5e-3", 1.5e-3}, {"1E+2", 100},     {"0x1.8p3", 12},     {"-0X1P-1", -0.5},
        {"0x.8p0", 0.5},    {"inf", INFINITY}, {"-inf", -INFINITY}, {"18446744073709551616", 0x1p64},
        {"1e-400", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_eq(literal_of(rows[i].text, "f64"), rows[i].value, "%s", rows[i].text);
    cr_expect(isnan(literal_of("nan", "f64")));
    cr_expect(signbit(literal_of("-0.0", "f64")));
}

Test(parse, numbers_are_rounded_once) {
    /* 1 + 2^-24 is a tie of f32 that goes to even; a little more must go up, which a detour over f64 would lose. */
    cr_expect_eq(literal_of("1.000000059604644775390625", "f32"), 1.0);
    cr_expect_eq(literal_of("1.00000005960464477539062500000000001", "f32"), 1.0 + 0x1p-23);
    cr_expect_eq(literal_of("1.00000017881393432617187499999999999", "f32"), 1.0 + 0x1p-23);
    cr_expect_eq(literal_of("1.00048828125000000000000000001", "f16"), 1.0 + 0x1p-10);
    cr_expect_eq(literal_of("0x1.000001000000000001p0", "f32"), 1.0 + 0x1p-23);
    cr_expect_eq(literal_of("9223372036854775809", "u64"), 0x1p63);
    cr_expect_eq(literal_of("9007199791611905", "f32"), 9007200328482816.0);
}

Test(parse, minus_belongs_to_a_number_only_where_no_operand_has_ended) {
    cr_expect_str_eq(RESULT("func @f(%x: f32[N]) -> f32[?] { %y = reshape(%x, shape=[N-1+1]) return %y }", 0),
                     "f32[N]");
    cr_expect_str_eq(RESULT("func @f(%x: f32[N, M]) -> f32[?] { %y = reshape(%x, shape=[-1]) return %y }", 0),
                     "f32[M*N]");
    cr_expect_str_eq(RESULT("func @f(%x: f32[N], %y: f32[N*2-N]) -> f32[?] { return %y }", 0), "f32[N]");
    cr_expect_str_eq(RESULT("func @f(%x: f32[N], %y: f32[N - -1]) -> f32[?] { return %y }", 0), "f32[N+1]");
    cr_expect_null(parse("func @f(%x: f32) -> f32 { %y = add(%x, 1 -1) return %y }"));
}

Test(parse, sizes) {
    cr_expect_str_eq(RESULT("func @f(%x: f32[2*(3+4), 7/2, N], %y: f32[(N+N)/2]) -> f32[?, ?, ?] { return %x }", 0),
                     "f32[14, 3, N]");
    cr_expect_str_eq(RESULT("func @f(%x: f32[N]) -> f32[] { %y = reduce_sum(%x) return %y }", 0), "f32");
    /* Bound by a later parameter. */
    cr_expect_str_eq(RESULT("func @f(%x: f32[N+1], %y: f32[N]) -> f32[N+1] { return %x }", 0), "f32[N+1]");
}

Test(parse, reserved_words_are_fine_after_a_sigil) {
    ir_graph *g =
        function("func @return(%func: f32[N]) -> (%f32: f32[N]) { %inf = relu(%func) %0 = neg(%inf) return %0 }");
    cr_assert_str_eq(g->name, "return");
    cr_assert_str_eq(g->params.at[0].name, "func");
    cr_assert_str_eq(g->results.at[0].name, "f32");
}

Test(parse, result_names) {
    static const struct {
        const char *results, *returned, *names[3];
    } rows[] = {
        {"(f32, f32, f32)", "%a, %b, 1.0", {"a", "b", "result2"}},
        {"(f32, f32, f32)", "%a, %a, %b", {"result0", "result1", "b"}},
        {"(%y: f32, f32, %z: f32)", "%a, %b, %b", {"y", "b", "z"}},
        {"(%b: f32, f32, f32)", "%a, %b, %a", {"b", "result1", "a"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ir_graph *g = function(fu_format(&arena, "func @f(%%x: f32) -> %s { %%a = relu(%%x) %%b = neg(%%x) return %s }",
                                         rows[i].results, rows[i].returned));
        for (int k = 0; k < 3; k++)
            cr_expect_str_eq(g->results.at[k].name, rows[i].names[k], "row %zu result %d", i, k);
    }
}

Test(parse, sources) {
    ir_graph *g =
        function("func @f(%a: f32[2, 2] = [[1, 2.5], [-3, inf]], %b: i8[N] = [1, -128], %c: f16[3, 0] = [[], [], []],\n"
                 "  %d: bool[M] = true, %e: bf16[K, K] = \"m.npz:w\\u00e91\", %f: u64[1] = [18446744073709551615]) -> "
                 "f32 { return 1 }");
    const ir_param *p = g->params.at;
    cr_assert_eq(p[0].value_rank, 2);
    cr_assert_eq(p[0].value[1], 0x40200000);
    cr_assert_eq(p[1].value_dim[0], 2);
    cr_assert_eq(p[1].value[1], 0x80);
    cr_assert(p[2].value_rank == 2 && p[2].value_dim[0] == 3 && p[2].value_dim[1] == 0);
    cr_assert(p[3].has_value && p[3].value_rank == 0 && p[3].value[0] == 1);
    cr_assert(!p[4].has_value);
    cr_assert_str_eq(p[4].path, "m.npz:w\xc3\xa9"
                                "1");
    cr_assert_eq(p[4].source_loc.line, 2);
    cr_assert_eq(p[5].value[0], UINT64_MAX);
}

Test(parse, strings) {
    ir_graph *g = function("func @f(%x: f32) -> f32 { %y = relu(%x, loc=\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\ud83d\\ude00\", "
                           "name=\"\") return %y }");
    cr_assert_str_eq(result_node(g, 0)->meta_loc, "\"\\/\b\f\n\r\t\xf0\x9f\x98\x80");
    cr_assert_str_eq(result_node(g, 0)->meta_name, "");
}

Test(parse, attributes) {
    ir_graph *g = function(
        "func @f(%x: f32[B, 8]) -> f64[?, ?] {\n"
        "  %a = reduce_sum(%x, keepdims=true, axes=[-1], dtype=f64, name=\"s\")\n"
        "  %b = gelu(%x, approximate=tanh)\n  %c = leaky_relu(%b, alpha=1)\n  %d = transpose(%c, perm=[1, 0])\n"
        "  %e = full(0.5, shape=[B, 2*(B+1)/2], dtype=bf16)\n  %z = reshape(%x, shape=[B*2, -1])\n  return %a }");
    cr_assert_str_eq(type_of(g, result_node(g, 0)), "f64[B, 1]");
    cr_assert_str_eq(result_node(g, 0)->meta_name, "s");
    for (ir_id i = 1; i < g->nodes.n; i++) {
        const ir_node *n = ir_at(g, i);
        if (n->op == IR_OP_GELU) cr_assert_eq(ir_node_attr(n, "approximate")->integer, 1);
        if (n->op == IR_OP_LEAKY_RELU) cr_assert_eq(ir_node_attr(n, "alpha")->number, 1.0);
        if (n->op == IR_OP_FULL) cr_assert_str_eq(type_of(g, n), "bf16[B, B+1]");
        if (n->op == IR_OP_TRANSPOSE) cr_assert_str_eq(type_of(g, n), "f32[8, B]");
    }
}

Test(parse, unbound_size_in_annotation_is_an_error) {
    cr_assert_null(parse("func @f(%x: f32[N]) -> f32[N] { %y = relu(%x) : f32[K] return %y }"));
    cr_assert(strstr(error.text, "t:1:53: error: size K is not bound"), "%s", error.text);
}

Test(parse, what_may_be_equal_is_checked_at_the_call) {
    ir_graph *g = function("func @f(%x: f32[N], %k: f32[K], %p: f32[8]) -> (f32[?] alias %p, f32[N/2]) {\n"
                           "  %y = relu(%x) : f32[K*2]\n  return %y, %k }");
    cr_assert_eq(g->checks.n, 3);
    cr_assert_eq(g->results.at[0].alias, 2);
    /* N = 8 by the alias, K = N/2 by the second result, and N = 2K by the annotation. */
    const int64_t good[3][1] = {{8}, {4}, {8}}, bad[3][1] = {{6}, {3}, {8}};
    int64_t values[2];
    cr_expect_eq(ir_bind_sizes(g, &error, (const int64_t *[]){bad[0], bad[1], bad[2]}, values), FUSOR_ERROR_SHAPE);
    fu_error_clear(&error);
    cr_expect_eq(ir_bind_sizes(g, &error, (const int64_t *[]){good[0], good[1], good[2]}, values), FUSOR_OK, "%s",
                 error.text);
}

Test(parse, text_is_copied) {
    char *text = malloc(200);
    strcpy(text, "func @f(%x: f32[N], %y: f32[M]) -> f32[N] {\n  %z = add(%x, %y)\n  return %z\n}\n");
    ir_module *m = must_parse(text);
    memset(text, 'x', 199);
    free(text);
    ir_graph *g = m->functions.at[0];
    const int64_t a[1] = {2}, b[1] = {3};
    int64_t values[2];
    cr_assert_eq(ir_bind_sizes(g, &error, (const int64_t *[]){a, b}, values), FUSOR_ERROR_SHAPE);
    cr_assert(strstr(error.text, "t:2:8: error: ") && strstr(error.text, "%z = add(%x, %y)\n       ^"), "%s",
              error.text);
}

Test(parse, errors_look_like_a_compilers) {
    cr_assert_null(parse("func @f(%x: f32[N]) -> f32[N] {\n\t%y = rleu(%x)\n\treturn %y\n}\n"));
    cr_assert_str_eq(error.text,
                     "t:2:7: error: unknown operator 'rleu'; did you mean 'relu'?\n\t%y = rleu(%x)\n\t     ^");
}

/* The word func in brackets begins no function. */
Test(parse, a_reserved_word_in_a_type_is_one_error) {
    static const char *const texts[] = {
        "func @f(%x: f32[func]) -> f32[func] { return %x }\nfunc @g(%x: f32) -> f32 { return %x }",
        "func @f(%x: f32) -> f32 { %y = relu(%x) : f32[func] return %y }",
        "func @f(%x: f32) -> f32[func] { return %x }\nfunc\n@g(%x: f32) -> f32 { return %x }",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cr_assert_null(parse(texts[i]));
        cr_expect_eq(error.n, 1, "%s", error.text);
    }
    cr_assert_null(parse("func @f(%x: f32[func]) -> f32 { return %x } func @g(%x: f32) -> f32 { return %z }"));
    cr_expect_eq(error.n, 2, "%s", error.text);
}

Test(parse, errors_come_in_the_order_of_the_text) {
    cr_assert_null(
        parse("func @f(%x: f32) -> f32 {\n%a = rleu(%x)\n%b = add(%x\n%c = relu(%a)\nreturn %c }\nfunc @g( { }"));
    const char *first = strstr(error.text, "t:2:6"), *second = strstr(error.text, "t:4:1"),
               *third = strstr(error.text, "t:6:10");
    cr_assert(first && second && third && first < second && second < third, "%s", error.text);
    cr_assert_eq(error.n, 3);
}

static char *repeat(const char *before, const char *unit, size_t n, const char *after) {
    fu_str s;
    fu_str_init(&s, &arena);
    fu_str_add(&s, before);
    for (size_t i = 0; i < n; i++) fu_str_add(&s, unit);
    fu_str_add(&s, after);
    return s.at;
}

/* Texts of a megabyte that once could have recursed, or worked in squares. */
Test(parse, hostile_texts, .timeout = 60) {
    enum { N = 300000 };
    const char *const texts[] = {
        repeat("func @f(%x: f32[", "(", N, ""),
        repeat("func @f(%x: f32 = ", "[", N, ""),
        repeat("func @f(%x: f32) -> f32 { %y = reshape(%x, shape=", "[", N, ""),
        repeat("func @f(%x: f32[N]) -> f32 { %y = reshape(%x, shape=[N", "+N", N, "]) return %y }"),
        repeat("func @f(%x: f32[N]) -> f32 { %y = add(%x", ",%x", N, ") return %y }"),
        repeat("func @f(%x: f32) -> f32 {\n", "%a,\n", N, " relu(%x) return %x }"),
        repeat("", "func ", N, ""),
        repeat("", "%", N, ""),
        repeat("", "\"\n", N, ""),
        repeat("func @f(%x: f32 = ", "9", N, ") -> f32 { }"),
        repeat("func @f(", "%x: f32, ", N, ""),
        repeat("func @f(%x: f32) -> f32 {", " return", N, ""),
        repeat("func @f(%x: f32) -> f32 {", "%y = @f(%x)", N, ""),
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t before = arena.bytes, length = strlen(texts[i]);
        cr_expect_null(parse(texts[i]), "text %zu", i);
        cr_expect_leq(error.n, FU_ERROR_MAX_DIAGNOSTICS);
        cr_expect_leq(arena.bytes - before, 400 * length + (1 << 20), "text %zu of %zu bytes took %zu", i, length,
                      arena.bytes - before);
    }
}

Test(parse, limits) {
    fu_str s;
    fu_str_init(&s, &arena);
    for (int n = 65535; n <= 65536; n++) {
        s.n = 0;
        fu_str_add(&s, "func @f(");
        for (int i = 0; i < n; i++) fu_str_addf(&s, "%s%%p%d: f32[N%d]", i ? ", " : "", i, i);
        fu_str_add(&s, ") -> f32 { return 1.0 }");
        cr_expect((parse(s.at) != NULL) == (n == 65535), "%d parameters: %s", n, error.text);
    }
}

/* ---- tests/error ---- */

static void check_error_file(const char *name) {
    size_t n;
    const char *text = read_test_file(fu_format(&arena, "error/%s", name), &n);
    ir_module *m = NULL;
    fu_error_clear(&error);
    fusor_status status = ir_parse(&arena, &error, name, text, n, &m);
    cr_expect_neq(status, FUSOR_OK, "%s was accepted", name);
    int wanted = 0;
    for (const char *line = text; line && line < text + n && *line == '#';
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        char fragment[512] = "", place[32] = "", got[64] = "";
        if (sscanf(line, "# expect-status %63[A-Z_]", got) == 1)
            cr_expect_str_eq(got, fusor_status_name(status), "%s: %s", name, error.text);
        if (sscanf(line, "# expect-error %31s %511[^\n]", place, fragment) != 2) continue;
        wanted++;
        const char *want = fu_format(&arena, "%s:%s: error: %s", name, place, fragment);
        cr_expect(strstr(error.text, want), "%s: wanted\n%s\nbut got\n%s", name, want, error.text);
    }
    cr_expect_eq(error.n, wanted, "%s: %d errors, expected %d:\n%s", name, error.n, wanted, error.text);
}

Test(parse, error_files) {
    const char *root = getenv("FUSOR_SRCDIR");
    DIR *d = opendir(fu_format(&arena, "%s/tests/error", root ? root : "."));
    cr_assert(d);
    int n = 0;
    for (struct dirent *f; (f = readdir(d));) {
        const char *dot = strrchr(f->d_name, '.');
        if (!dot || strcmp(dot, ".fusor") != 0) continue;
        check_error_file(f->d_name);
        n++;
    }
    closedir(d);
    cr_assert_geq(n, 60);
}
