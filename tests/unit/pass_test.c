/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_test.c: what the passes make of programs (as text), that the order of statements does not matter, and that no
 * rewrite changes a bit: every rule is run on special values before and after, by the reference evaluator. */
#include "ir/pass.h"
#include "base/env.h"
#include "eval_graph.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static jmp_buf oom;
static fu_arena arena;
static fu_error *error;
static void setup(void) {
    setenv("FUSOR_VERIFY", "2", 1);
    fu_arena_init(&arena, &oom);
    error = FU_NEW(&arena, fu_error);
}
static void teardown(void) { fu_arena_free(&arena); }
TestSuite(pass, .init = setup, .fini = teardown);

static ir_graph *parse(const char *text) {
    ir_module *m;
    ir_graph *g;
    cr_assert_eq(ir_parse(&arena, error, "<text>", text, strlen(text), &m), FUSOR_OK, "%s\n%s", error->text, text);
    cr_assert_eq(ir_flatten(&arena, error, m, ir_module_find(m, NULL), &g), FUSOR_OK, "%s", error->text);
    return g;
}

static const char *printed(const ir_graph *g) {
    fu_str s;
    fu_str_init(&s, &arena);
    ir_print_graph(&s, g);
    return s.at;
}

static ir_graph *optimized(const char *text) {
    ir_graph *g = parse(text);
    cr_assert_eq(ir_run_passes(&arena, error, &g), FUSOR_OK, "%s\n%s", error->text, text);
    return g;
}

/* The statements between the braces. */
static const char *body(const char *text) {
    const char *printed_text = printed(optimized(text)), *from = strchr(printed_text, '{');
    return from ? from + 2 : printed_text;
}
#define EXPECT_BODY(params, statements, expected)                                                                      \
    cr_expect_str_eq(body("func @f(" params ") {\n" statements "}\n"), expected "}\n")

/* env.def, which knows no pass, has the names of all. */
Test(pass, variables_know_the_names) {
    for (const ir_pass *p = ir_passes; p->name; p++) {
        char value[64], text[120];
        snprintf(value, sizeof value, "pass=%s", p->name);
        setenv("FUSOR_DEBUG", value, 1);
        cr_expect_null(fu_env_expected(FU_FUSOR_DEBUG, text, sizeof text), "%s", value);
        snprintf(value, sizeof value, "-%s,+%s", p->name, p->name);
        setenv("FUSOR_PASSES", value, 1);
        cr_expect_null(fu_env_expected(FU_FUSOR_PASSES, text, sizeof text), "%s", value);
    }
    unsetenv("FUSOR_DEBUG");
    unsetenv("FUSOR_PASSES");
}

Test(pass, composite_reductions_become_groups) {
    EXPECT_BODY("%x: f32[B, 8]) -> (%y: f32[B]", "%y = reduce_l2(%x, axes=[1])\nreturn %y\n",
                "  %1 = square(%x)\n  %2 = reduce_sum(%1, axes=[1])\n  %y = sqrt(%2)\n  return %y\n");
    EXPECT_BODY("%x: u8[B, 8]) -> (%y: i32[B]", "%y = reduce_l1(%x, axes=[1], dtype=i32)\nreturn %y\n",
                "  %1 = cast(%x, i64)\n  %2 = reduce_sum(%1, axes=[1])\n  %y = cast(%2, i32)\n  return %y\n");
    EXPECT_BODY("%x: f32[2, 0]) -> (%y: f32[2]", "%y = reduce_logsumexp(%x, axes=[1])\nreturn %y\n",
                "  %1 = exp(%x)\n  %2 = reduce_sum(%1, axes=[1])\n  %y = log(%2)\n  return %y\n");
}

Test(pass, composites_become_groups) {
    EXPECT_BODY("%x: f16[B, 8]) -> (%y: f16[B, 8]", "%y = softmax(%x)\nreturn %y\n",
                "  %1 = cast(%x, f32)\n"
                "  %2 = reduce_max(%1, axes=[1], keepdims=true)\n"
                "  %3 = sub(%1, %2)\n"
                "  %4 = exp(%3)\n"
                "  %5 = reduce_sum(%4, axes=[1], keepdims=true)\n"
                "  %6 = reciprocal(%5)\n"
                "  %7 = mul(%6, %4)\n"
                "  %y = cast(%7, f16)\n"
                "  return %y\n");
    const ir_graph *g =
        optimized("func @f(%x: f32[B, 8]) -> (%y: f32[B, 8], %z: f32[B, 8]) {\n"
                  "%a = softmax(%x)\n%b = exp(%x)\n%y = add(%a, %b)\n%z = log_softmax(%x)\nreturn %y, %z\n}");
    unsigned in_group = 0;
    for (ir_id i = 1; i < g->nodes.n; i++) {
        in_group += ir_at(g, i)->group != 0;
        cr_expect_leq(ir_at(g, i)->group, 1u, "two composites that share their nodes are one group");
    }
    cr_expect_eq(in_group, 8u);
    EXPECT_BODY("%x: f32[B, 0]) -> (%y: f32[B, 0]", "%y = softmax(%x)\nreturn %y\n", "  return %x\n");
    EXPECT_BODY("%x: f32[B, 8]) -> (%y: f32[B]", "%y = reduce_mean(%x, axes=[1])\nreturn %y\n",
                "  %1 = reduce_sum(%x, axes=[1])\n  %y = mul(%1, 0.125)\n  return %y\n");
    EXPECT_BODY("%x: f32[B, N]) -> (%y: f32[1, 1]", "%y = reduce_mean(%x, keepdims=true)\nreturn %y\n",
                "  %1 = reduce_sum(%x, axes=[0, 1], keepdims=true)\n"
                "  %2 = dim(%x, axis=0)\n"
                "  %3 = dim(%x, axis=1)\n"
                "  %4 = mul(%2, %3)\n"
                "  %5 = cast(%4, f32)\n"
                "  %y = div(%1, %5)\n"
                "  return %y\n");
}

Test(pass, literals_fold_where_the_result_is_exact) {
    EXPECT_BODY("%x: f32[N]) -> (%y: f32[N]",
                "%a = full(2.0, shape=[], dtype=f32)\n%b = sqrt(%a)\n%c = div(1.0, %b)\n%y = mul(%x, %c)\nreturn %y\n",
                "  %y = mul(%x, 0.70710677)\n  return %y\n");
    EXPECT_BODY("%x: f64[N]) -> (%y: f64[N]", "%y = div(%x, 0.25)\nreturn %y\n",
                "  %y = mul(%x, 4.0)\n  return %y\n");
    EXPECT_BODY("%x: f64[N]) -> (%y: f64[N]", "%y = div(%x, 0x1p-1074)\nreturn %y\n",
                "  %y = div(%x, 5e-324)\n  return %y\n");
    EXPECT_BODY("%x: f32[N]) -> (%y: f32[N]", "%a = exp(0.5, dtype=f32)\n%y = mul(%x, %a)\nreturn %y\n",
                "  %a = exp(0.5, dtype=f32)\n  %y = mul(%x, %a)\n  return %y\n");
}

Test(pass, rules_keep_their_hands_off_zeros) {
    EXPECT_BODY("%x: f32[N]) -> (%y: f32[N]", "%y = add(%x, 0.0)\nreturn %y\n", "  %y = add(%x, 0.0)\n  return %y\n");
    EXPECT_BODY("%x: f32[N]) -> (%y: f32[N]", "%y = add(%x, -0.0)\nreturn %y\n", "  return %x\n");
    EXPECT_BODY("%x: i32[N]) -> (%y: i32[N]", "%y = add(%x, 0)\nreturn %y\n", "  return %x\n");
    EXPECT_BODY("%x: f32[1]) -> (%y: f32[4]", "%a = full(1.0, shape=[4], dtype=f32)\n%y = mul(%x, %a)\nreturn %y\n",
                "  %a = full(1.0, shape=[4], dtype=f32)\n  %y = mul(%x, %a)\n  return %y\n");
}

Test(pass, views_meet) {
    EXPECT_BODY("%x: f32[A, B, C]) -> (%y: f32[A, B, C]",
                "%a = transpose(%x, perm=[1, 2, 0])\n%y = transpose(%a, perm=[2, 0, 1])\nreturn %y\n", "  return %x\n");
    EXPECT_BODY(
        "%x: f32[A, B]) -> (%y: f32[B, A, 1]",
        "%a = reshape(%x, shape=[-1])\n%b = unsqueeze(%a, axes=[0])\n%y = reshape(%b, shape=[B, A, 1])\nreturn %y\n",
        "  %y = reshape(%x, shape=[B, A, 1])\n  return %y\n");
    EXPECT_BODY("%x: f32[A, B], %b: f32[B]) -> (%y: f32[A, B]",
                "%w = broadcast_to(%b, shape=[A, B])\n%y = add(%w, %x)\nreturn %y\n",
                "  %y = add(%x, %b)\n  return %y\n");
}

/* Sizes and numbers become arguments of a kernel, so they must not decide the order of its operands. */
Test(pass, arguments_do_not_order_operands) {
    EXPECT_BODY("%a: f32[10000], %b: f32[10000], %c: f32[10000]) -> (%y: f32[10000]",
                "%t = mul(%b, %a)\n%u = mul(%c, 0.5)\n%y = add(%u, %t)\nreturn %y\n",
                "  %t = mul(%a, %b)\n  %u = mul(%c, 0.5)\n  %y = add(%t, %u)\n  return %y\n");
    EXPECT_BODY("%a: f32[N], %b: f32[N], %c: f32[N]) -> (%y: f32[N]",
                "%t = mul(%a, %b)\n%u = mul(%c, 0.25)\n%y = add(%t, %u)\nreturn %y\n",
                "  %t = mul(%a, %b)\n  %u = mul(%c, 0.25)\n  %y = add(%t, %u)\n  return %y\n");
}

Test(pass, order_of_statements_and_operands_does_not_matter) {
    const ir_graph *one = optimized("func @f(%x: f32[N], %y: f32[N]) -> (%p: f32[N], %q: f32) {\n"
                                    "%1 = exp(%x)\n%2 = mul(%x, %y)\n%3 = add(%1, %2)\n%4 = exp(%x)\n"
                                    "%p = sub(%3, %4)\n%q = reduce_sum(%3)\nreturn %p, %q\n}");
    const ir_graph *two = optimized("func @f(%x: f32[N], %y: f32[N]) -> (%p: f32[N], %q: f32) {\n"
                                    "%2 = mul(%y, %x)\n%4 = exp(%x)\n%9 = tan(%y)\n%3 = add(%2, %4)\n"
                                    "%q = reduce_sum(%3)\n%p = sub(%3, %4)\nreturn %p, %q\n}");
    cr_assert_eq(one->nodes.n, two->nodes.n);
    for (ir_id i = 1; i < one->nodes.n; i++) {
        const ir_node *x = ir_at(one, i), *y = ir_at(two, i);
        cr_expect_eq(x->op, y->op);
        cr_assert_eq(x->n_in, y->n_in);
        for (unsigned k = 0; k < x->n_in; k++) cr_expect_eq(x->in[k], y->in[k]);
    }
}

Test(pass, dumps_read_back) {
    const char *text = printed(optimized("func @f(%x: f32[B, N], %h: bf16[B, N]) -> (%y: f32[B, N], %m: bf16[N]) {\n"
                                         "%y = softmax(%x, axis=0)\n%m = reduce_mean(%h, axes=[0])\nreturn %y, %m\n}"));
    cr_expect_str_eq(printed(optimized(text)), text);
}

/* ---- no rewrite changes a bit ---- */

static const double floats[] = {0.0,  -0.0,  1,    -1,    0.5, -3.75, 1e-45, -1e-40,
                                6e-8, 65504, 3e38, -3e38, 7.5, 2.5,   -2.5,  0.1};
enum { N = 16 + 3 };

static ir_bits special(ir_dtype t, int i) {
    if (ir_is_float(t)) {
        const double v = i < 16    ? floats[i]
                         : i == 16 ? __builtin_inf()
                         : i == 17 ? -__builtin_inf()
                                   : __builtin_nan("");
        return ir_bits_from_double(t, v, NULL);
    }
    static const int64_t ints[] = {0, 1, -1, 2, 7, INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, -128, 127, 255, 64};
    return ir_is_bool(t) ? (ir_bits)(i % 2) : ir_bits_from_int(t, ints[i % 13], NULL);
}

static ref_tensor pairs(ir_dtype t, bool is_first) {
    ref_tensor x = {.dtype = t, .rank = 1, .shape = {N * N}};
    const unsigned bytes = ir_dtypes[t].bytes;
    char *data = x.data = fu_alloc_n(&arena, N * N, bytes);
    for (int i = 0; i < N * N; i++) {
        const ir_bits b = special(t, is_first ? i / N : i % N);
        memcpy(data + (size_t)i * bytes, &b, bytes);
    }
    return x;
}

static bool is_nan_bits(ir_dtype t, const void *p) {
    ir_bits b = 0;
    memcpy(&b, p, ir_dtypes[t].bytes);
    const double v = ir_bits_to_double(t, b);
    return ir_is_float(t) && v != v;
}

static void expect_same_bits(const char *dtype, const char *statements) {
    const ir_dtype t = ir_dtype_parse(dtype, strlen(dtype));
    const char *text = statements;
    /* The result type is whatever is inferred. */
    for (int r = 1; r < IR_DTYPE_COUNT; r++) {
        ir_module *m;
        ir_graph *before;
        text = fu_format(&arena, "func @f(%%x: %s[N], %%y: %s[N]) -> (%%r: %s[N]) {\n%s\nreturn %%r\n}\n", dtype, dtype,
                         ir_dtypes[r].name, statements);
        fu_error_clear(error);
        if (ir_parse(&arena, error, "<text>", text, strlen(text), &m) != FUSOR_OK) continue;
        cr_assert_eq(ir_flatten(&arena, error, m, ir_module_find(m, NULL), &before), FUSOR_OK);
        ir_graph *after = before;
        cr_assert_eq(ir_run_passes(&arena, error, &after), FUSOR_OK, "%s", error->text);
        const ref_tensor in[2] = {pairs(t, true), pairs(t, false)};
        ref_tensor a = {0}, b = {0};
        cr_assert_eq(eval_graph(&arena, error, before, in, &a), FUSOR_OK, "%s", error->text);
        cr_assert_eq(eval_graph(&arena, error, after, in, &b), FUSOR_OK, "%s", error->text);
        const size_t bytes = ir_dtypes[r].bytes;
        for (size_t i = 0; i < N * N; i++) {
            const char *p = (const char *)a.data + i * bytes, *q = (const char *)b.data + i * bytes;
            if (is_nan_bits((ir_dtype)r, p) && is_nan_bits((ir_dtype)r, q)) continue;
            cr_assert(memcmp(p, q, bytes) == 0, "element %zu of\n%safter passes\n%s", i, text, printed(after));
        }
        return;
    }
    cr_assert_fail("does not compile: %s\n%s", text, error->text);
}

Test(pass, no_rule_changes_a_bit_of_floats, .timeout = 120) {
    static const char *const types[] = {"f32", "f16", "bf16", "f64"};
    static const char *const programs[] = {
        "%r = mul(%x, 1.0)",
        "%r = mul(1.0, %x)",
        "%r = div(%x, 1.0)",
        "%r = add(%x, -0.0)",
        "%r = sub(%x, 0.0)",
        "%r = add(%x, 0.0)",
        "%r = sub(%x, -0.0)",
        "%r = mul(%x, 0.0)",
        "%r = sub(%x, %x)",
        "%r = maximum(%x, %x)",
        "%r = minimum(%x, %x)",
        "%r = mul(%x, %x)",
        "%r = mul(%x, -1.0)",
        "%a = neg(%x)\n%r = neg(%a)",
        "%a = neg(%x)\n%r = abs(%a)",
        "%a = abs(%x)\n%r = abs(%a)",
        "%a = neg(%x)\n%r = square(%a)",
        "%a = relu(%x)\n%r = relu(%a)",
        "%a = relu(%x)\n%r = relu6(%a)",
        "%a = relu6(%x)\n%r = relu(%a)",
        "%a = sign(%x)\n%r = sign(%a)",
        "%a = floor(%x)\n%r = ceil(%a)",
        "%a = round(%x)\n%r = floor(%a)",
        "%a = trunc(%x)\n%r = round(%a)",
        "%a = neg(%x)\n%b = neg(%y)\n%r = mul(%a, %b)",
        "%a = neg(%x)\n%b = neg(%y)\n%r = div(%a, %b)",
        "%a = neg(%y)\n%r = add(%x, %a)",
        "%a = neg(%x)\n%r = add(%a, %y)",
        "%a = neg(%y)\n%r = sub(%x, %a)",
        "%a = sub(%x, %y)\n%r = neg(%a)",
        "%r = div(%x, 8.0)",
        "%r = div(%x, -0.25)",
        "%r = div(%x, 3.0)",
        "%r = div(%x, 16384.0)",
        "%r = div(%x, 32768.0)",
        "%r = div(%x, 0x1p-14)",
        "%a = eq(%x, %y)\n%r = not(%a)",
        "%a = ne(%x, %y)\n%r = not(%a)",
        "%a = lt(%x, %y)\n%r = not(%a)",
        "%c = lt(%x, %y)\n%d = not(%c)\n%r = select(%d, %x, %y)",
        "%c = lt(%x, %y)\n%r = select(%c, %x, %x)",
        "%r = select(true, %x, %y)",
        "%r = select(false, %x, %y)",
        "%a = cast(%x, f64)\n%r = cast(%a, f16)",
        "%a = cast(%x, f32)\n%r = cast(%a, bf16)",
        "%a = cast(%x, f16)\n%r = cast(%a, f32)",
        "%a = cast(%x, f64)\n%r = cast(%a, i8)",
        "%a = cast(%x, i32)\n%r = cast(%a, f32)",
        "%a = cast(%x, i64)\n%r = cast(%a, u8)",
        "%a = cast(%x, bool)\n%r = cast(%a, f32)",
        "%a = add(%x, %y)\n%b = add(%y, %x)\n%r = sub(%a, %b)",
    };
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (size_t p = 0; p < sizeof programs / sizeof *programs; p++) expect_same_bits(types[t], programs[p]);
    }
}

Test(pass, no_rule_changes_a_bit_of_integers, .timeout = 120) {
    static const char *const types[] = {"i8", "i32", "i64", "u8", "u32", "u64", "i16", "u16"};
    static const char *const programs[] = {
        "%r = mul(%x, 1)",
        "%r = div(%x, 1)",
        "%r = add(%x, 0)",
        "%r = sub(%x, 0)",
        "%r = or(%x, 0)",
        "%r = xor(%x, 0)",
        "%r = and(%x, %x)",
        "%r = shl(%x, 0)",
        "%r = shr(%x, 0)",
        "%r = mul(%x, %x)",
        "%r = div(%x, 8)",
        "%a = neg(%x)\n%r = neg(%a)",
        "%a = neg(%x)\n%r = abs(%a)",
        "%a = abs(%x)\n%r = abs(%a)",
        "%a = abs(%x)\n%r = relu(%a)",
        "%a = neg(%x)\n%r = square(%a)",
        "%a = bitwise_not(%x)\n%r = bitwise_not(%a)",
        "%a = neg(%x)\n%b = neg(%y)\n%r = mul(%a, %b)",
        "%a = neg(%x)\n%b = neg(%y)\n%r = div(%a, %b)",
        "%a = neg(%y)\n%r = add(%x, %a)",
        "%a = neg(%y)\n%r = sub(%x, %a)",
        "%a = relu6(%x)\n%r = relu(%a)",
        "%a = cast(%x, i64)\n%r = cast(%a, u8)",
        "%a = cast(%x, u64)\n%r = cast(%a, f32)",
        "%a = cast(%x, f64)\n%r = cast(%a, i8)",
        "%a = cast(%x, f32)\n%r = cast(%a, bf16)",
        "%a = cast(%x, f32)\n%r = cast(%a, f16)",
        "%a = cast(%x, bf16)\n%r = cast(%a, f64)",
        "%a = cast(%x, i32)\n%r = cast(%a, f16)",
        "%a = cast(%x, u16)\n%r = cast(%a, i64)",
        "%a = cast(%x, i16)\n%r = cast(%a, bool)",
        "%a = cast(%x, bool)\n%r = cast(%a, i32)",
        "%a = cast(%x, f16)\n%r = cast(%a, bool)",
    };
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (size_t p = 0; p < sizeof programs / sizeof *programs; p++) expect_same_bits(types[t], programs[p]);
    }
    expect_same_bits("i32", "%r = and(%x, -1)");
    expect_same_bits("i32", "%r = mul(%x, -1)");
    expect_same_bits("bool", "%a = not(%x)\n%r = not(%a)");
    expect_same_bits("bool", "%a = and(%x, true)\n%r = or(%a, false)");
    expect_same_bits("bool", "%a = cast(%x, f16)\n%r = cast(%a, i8)");
    expect_same_bits("bool", "%a = not(%x)\n%r = select(%a, %x, %y)");
}

Test(pass, rows_switch_off_by_name) {
    setenv("FUSOR_PASSES", "-simplify,-cse", 1);
    EXPECT_BODY("%x: f32[N]) -> (%y: f32[N]", "%y = mul(%x, 1.0)\nreturn %y\n", "  %y = mul(%x, 1.0)\n  return %y\n");
    setenv("FUSOR_PASSES", "-simplify,+simplify", 1);
    EXPECT_BODY("%x: f32[N]) -> (%y: f32[N]", "%y = mul(%x, 1.0)\nreturn %y\n", "  return %x\n");
}
