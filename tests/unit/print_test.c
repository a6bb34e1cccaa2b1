/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* print_test.c: canonical text; parsing it and printing again gives the same bytes. tests/golden has whole programs. */
#include "text_test.h"
#include <dirent.h>

TestSuite(print, .init = text_start, .fini = text_stop);

Test(print, version_line_always) {
    cr_assert_str_eq(round_trip(""), "fusor 1\n");
    cr_assert_str_eq(round_trip("func @f(%x:f32[])->f32{return%x}"),
                     "fusor 1\nfunc @f(%x: f32) -> f32 {\n  return %x\n}\n");
}

Test(print, literals_of_every_type) {
    static const char *const rows[][3] = {
        {"f32", "0.1", "0.1"},
        {"f32", "1e-7", "1e-07"},
        {"f32", "3", "3.0"},
        {"f32", "-inf", "-inf"},
        {"f32", "nan", "nan"},
        {"f32", "0x1p-149", "1e-45"},
        {"f64", "0.1", "0.1"},
        {"f64", "1e300", "1e+300"},
        {"f64", "-0.0", "-0.0"},
        {"f16", "0.1", "0.1"},
        {"f16", "65504", "65500.0"},
        {"f16", "0x1p-24", "6e-08"},
        {"bf16", "3.14", "3.14"},
        {"bf16", "3.3895314e38", "3.39e+38"},
        {"i8", "-128", "-128"},
        {"u8", "255", "255"},
        {"i64", "-9223372036854775808", "-9223372036854775808"},
        {"u64", "18446744073709551615", "18446744073709551615"},
        {"bool", "true", "true"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *text = fu_format(&arena, "func @f(%%x: %s = %s) -> %s { return %s }", rows[i][0], rows[i][1],
                                     rows[i][0], rows[i][1]);
        const char *want = fu_format(&arena, "fusor 1\nfunc @f(%%x: %s = %s) -> %s {\n  return %s\n}\n", rows[i][0],
                                     rows[i][2], rows[i][0], rows[i][2]);
        cr_expect_str_eq(round_trip(text), want);
    }
}

/* Every f16 and bf16 value reads back. */
Test(print, short_floats_read_back, .timeout = 120) {
    static const ir_dtype types[] = {FUSOR_F16, FUSOR_BF16};
    for (int k = 0; k < 2; k++) {
        fu_str s;
        fu_str_init(&s, &arena);
        fu_str_addf(&s, "func @f(%%x: %s[N] = [0", ir_dtypes[types[k]].name);
        ir_module *m = must_parse("func @f(%x: f16) -> f16 { return %x }");
        ir_param p = {.name = "x", .node = 1, .has_value = true, .value_rank = 1, .value_dim = {65536}};
        p.value = FU_NEW_N(&arena, ir_bits, 65536);
        for (uint32_t b = 0; b < 65536; b++) p.value[b] = b;
        ir_graph *g = m->functions.at[0];
        g->params.at[0] = p;
        ir_at(g, 1)->dtype = types[k];
        ir_at(g, 1)->rank = 1;
        ir_at(g, 1)->dim[0] = ir_size_const(g->sizes, 65536);
        ir_module *back = must_parse(graph_text(g));
        for (uint32_t b = 0; b < 65536; b++) {
            double was = ir_bits_to_double(types[k], b),
                   is = ir_bits_to_double(types[k], back->functions.at[0]->params.at[0].value[b]);
            cr_assert(was != was ? is != is : back->functions.at[0]->params.at[0].value[b] == b, "%s 0x%x",
                      ir_dtypes[types[k]].name, b);
        }
    }
}

Test(print, attributes_only_when_set) {
    const char *text =
        round_trip("func @f(%x: f32[N, 4]) -> f32[?, ?] {\n%a = softmax(%x)\n%b = softmax(%a, axis=-1)\n"
                   "%c = reduce_sum(%b, keepdims=false, axes=[0])\n%d = leaky_relu(%b, alpha=0.3) return %d }");
    cr_expect(strstr(text, "%a = softmax(%x)\n"));
    cr_expect(strstr(text, "%b = softmax(%a, axis=1)\n"));
    cr_expect(strstr(text, "%c = reduce_sum(%b, axes=[0], keepdims=false)\n"));
    cr_expect(strstr(text, "%d = leaky_relu(%b, alpha=0.3)\n"));
}

Test(print, an_offset_keeps_its_name) {
    const char *text = round_trip("func @f(%q: f32[2, 2], %o: i32, %m: bool[2, 2]) -> f32[?, ?] {\n"
                                  "%a = attention(%q, %q, %q, causal=true, causal_offset=%o)\n"
                                  "%b = attention(%a, %q, %q, %m, causal_offset=1) return %b }");
    cr_expect(strstr(text, "%a = attention(%q, %q, %q, causal_offset=%o, causal=true)\n"), "%s", text);
    cr_expect(strstr(text, "%b = attention(%a, %q, %q, %m, causal_offset=1)\n"), "%s", text);
}

Test(print, strings_and_metadata) {
    const char *text = round_trip("func @f(%x: f32 = \"a\\\"\\u0001\\n\\u00e9.npy\") -> f32 { %y = relu(%x, "
                                  "loc=\"m.py:12\", name=\"l/ffn\") return %y }");
    cr_expect(strstr(text, "= \"a\\\"\\u0001\\n\xc3\xa9.npy\""), "%s", text);
    cr_expect(strstr(text, "relu(%x, name=\"l/ffn\", loc=\"m.py:12\")"), "%s", text);
}

Test(print, result_names_by_the_rule_are_not_written) {
    cr_expect(strstr(round_trip("func @f(%x: f32) -> (f32, f32) { %a = relu(%x) return %a, %a }"), "-> (f32, f32) {"));
    cr_expect(strstr(round_trip("func @f(%x: f32) -> (%a: f32, f32) { %a = relu(%x) return %a, %a }"),
                     "-> (%a: f32, f32) {"));
    cr_expect(strstr(round_trip("func @f(%x: f32) -> %x: f32 { return %x }"), "-> (%x: f32) {"));
}

Test(print, checked_sizes_are_kept) {
    const char *text =
        round_trip("func @f(%x: f32[N], %k: f32[K]) -> (f32[5], f32[?]) { %y = relu(%x) : f32[K*2] return %k, %y }");
    cr_expect(strstr(text, "-> (f32[5], f32[N]) {"), "%s", text);
    cr_expect(strstr(text, "%y = relu(%x) : f32[2*K]\n"), "%s", text);
    cr_expect_eq(must_parse(text)->functions.at[0]->checks.n, 2);
}

static ir_id made(ir_graph *g, ir_op op, int n, ir_id x, ir_id y) {
    return ir_add(g, op, n, (ir_operand[]){ir_use(x), ir_use(y)}, NULL, 0, (fu_loc){0, 0});
}

/* Nodes that passes make have no names, or names that clash; literals that nothing gives a type to. */
Test(print, made_nodes) {
    ir_module *m = must_parse("func @f(%x: f32[N], %1: f32[N]) -> f32[N] { %y = relu(%x) return %y }");
    ir_graph *g = m->functions.at[0];
    ir_id x = g->params.at[0].node, half = ir_add_literal(g, FUSOR_F32, 0x3f000000);
    ir_id a = made(g, IR_OP_NEG, 1, x, 0);
    ir_id sum = made(g, IR_OP_ADD, 2, half, half);
    ir_id b = made(g, IR_OP_MUL, 2, a, half);
    ir_id c = made(g, IR_OP_MUL, 2, b, sum);
    ir_at(g, b)->name = "y";
    g->results.at[0].node = c;
    const char *text = graph_text(g);
    cr_assert_str_eq(
        text,
        "func @f(%x: f32[N], %1: f32[N]) -> (%y: f32[N]) {\n  %y = relu(%x)\n  %2 = full(0.5, shape=[], dtype=f32)\n"
        "  %3 = neg(%x)\n  %4 = add(%2, %2)\n  %y.1 = mul(%3, 0.5)\n  %5 = mul(%y.1, %4)\n  return %5\n}\n");
    cr_assert_str_eq(graph_text(must_parse(text)->functions.at[0]), text);
}

/* tests/golden: "# run: print" and "# run: flatten @f"; the expected text stands after "# expect" in lines "#| ...". */
static int check_golden(const char *name) {
    size_t n;
    char *text = read_test_file(fu_format(&arena, "golden/%s", name), &n), command[16], func[64] = "";
    char *run = strstr(text, "# run: "), *line = strstr(text, "\n# expect\n");
    if (!run || sscanf(run, "# run: %15s @%63s", command, func) < 1) return 0;
    if (strcmp(command, "print") != 0 && strcmp(command, "flatten") != 0) return 0;
    cr_assert(line, "%s has no # expect", name);
    fu_str want;
    fu_str_init(&want, &arena);
    for (line = strchr(line + 1, '\n') + 1; strncmp(line, "#|", 2) == 0; line = strchr(line, '\n') + 1) {
        const char *from = line + 2 + (line[2] == ' ');
        fu_str_addn(&want, from, (size_t)(strchr(line, '\n') + 1 - from));
    }
    const char *got;
    if (command[0] == 'p') got = round_trip(text);
    else {
        got = graph_text(flatten(must_parse(text), func[0] ? func : NULL));
        cr_expect_str_eq(graph_text(must_parse(got)->functions.at[0]), got, "%s", name);
    }
    cr_expect_str_eq(got, want.at, "%s: got\n%s", name, got);
    return 1;
}

Test(print, golden_files) {
    const char *root = getenv("FUSOR_SRCDIR");
    DIR *d = opendir(fu_format(&arena, "%s/tests/golden", root ? root : "."));
    cr_assert(d);
    int n = 0;
    for (struct dirent *f; (f = readdir(d));) {
        const char *dot = strrchr(f->d_name, '.');
        if (dot && strcmp(dot, ".fusor") == 0) n += check_golden(f->d_name);
    }
    closedir(d);
    cr_assert_geq(n, 3);
}
