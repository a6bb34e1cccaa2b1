/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* explain_test.c: the document of fusor_explain_json: what the user wrote comes back; and one plan, with the same
 * kernels, for programs that say the same in another order, under other names, with dead code between. */
#include "api_test.h"
#include <jansson.h>
#include <string.h>

static fusor_context *ctx;
static void setup(void) { ctx = new_context(0); }
static void teardown(void) { fusor_context_free(ctx); }
TestSuite(explain, .init = setup, .fini = teardown);

static json_t *explain(const char *text, const char *function) {
    fusor_executable *exe = NULL;
    char *json = NULL;
    OK(fusor_compile_text(ctx, text, function, &exe));
    OK(fusor_explain_json(exe, &json));
    json_t *d = json_loads(json, 0, NULL);
    cr_assert(d, "%s", json);
    fusor_text_free(json);
    fusor_executable_free(exe);
    return d;
}

static const char *text_of(const json_t *o, const char *name) {
    const char *s = json_string_value(json_object_get(o, name));
    cr_assert(s, "no %s", name);
    return s;
}

Test(explain, statements_come_back_as_they_were_written) {
    json_t *d = explain("func @f(%a: f32[N, 64]) -> f32[N, 64] {\n"
                        "  %p = softmax(%a, name=\"layer/attention\", loc=\"model.py:12\")\n"
                        "  %y = mul(%p, 2.0)  return %y\n}\n",
                        NULL);
    const json_t *k = json_array_get(json_object_get(d, "kernels"), 0),
                 *s = json_array_get(json_object_get(k, "statements"), 0);
    cr_assert_eq(json_array_size(json_object_get(d, "kernels")), 1);
    cr_assert_eq(json_array_size(json_object_get(k, "statements")), 2);
    cr_assert_str_eq(text_of(s, "op"), "softmax");
    cr_assert_str_eq(text_of(s, "value"), "p");
    cr_assert_str_eq(text_of(s, "at"), "<text>:2:8");
    cr_assert_str_eq(text_of(s, "name"), "layer/attention");
    cr_assert_str_eq(text_of(s, "loc"), "model.py:12");
    s = json_array_get(json_object_get(k, "statements"), 1);
    cr_assert_str_eq(text_of(s, "op"), "mul");
    cr_assert_str_eq(text_of(s, "value"), "y");
    cr_assert(strstr(text_of(k, "ir"), "reduce_max(%a") && strstr(text_of(k, "ir"), "%y = mul("), "%s",
              text_of(k, "ir"));
    cr_assert(strstr(text_of(k, "description"), "row"));
    cr_assert_str_eq(text_of(k, "estimated_limit"), "memory");
    cr_assert_gt(json_integer_value(json_object_get(k, "work")),
                 json_integer_value(json_object_get(k, "flops"))); /* exp is more than one */
    cr_assert_gt(json_integer_value(json_object_get(json_object_get(k, "schedule"), "tiles")), 0);
    json_decref(d);
}

/* n: rows of operand 0. 16,384 columns of 4 bytes crowd the L2 cache of any CPU. */
static void expect_form(int n, const char *mark, int columns, const char *form) {
    char text[200];
    snprintf(text, sizeof text,
             "func @f(%%a: f32[%d, 1024], %s%%b: f32[1024, %d]) -> f32[%d, %d] { %%y = matmul(%%a, %%b) return %%y }",
             n, mark, columns, n, columns);
    json_t *d = explain(text, NULL);
    const json_t *k = json_array_get(json_object_get(d, "kernels"), 0);
    const char *said = text_of(json_object_get(k, "schedule"), "form");
    cr_assert(strncmp(said, form, strlen(form)) == 0, "%d rows: %s", n, said);
    json_decref(d);
}

Test(explain, how_a_product_reads_its_matrix) {
    expect_form(2, "", 16384, "rows: few rows of operand 1 at a time");
    expect_form(2, "const ", 16384, "tiles: operand 1 packed once and kept");
    expect_form(2, "", 100, "tiles: operand 1 where it lies");
    expect_form(1000, "", 1000, "tiles: operand 1 packed ");
}

Test(explain, names_of_several_results_and_of_calls) {
    json_t *d =
        explain("func @f(%a: f32[64]) -> f32[32] { %p, %q = split(%a, axis=0, sizes=[32, 32]) %s = @g(%p, %q, "
                "name=\"call\") return %s }\n"
                "func @g(%a: f32[N], %b: f32[N]) -> f32[N] { %t = add(%a, %b) %u = exp(%t, name=\"own\") return %u }",
                NULL);
    const json_t *list = json_object_get(json_array_get(json_object_get(d, "kernels"), 0), "statements");
    const size_t n = json_array_size(list);
    cr_assert(n >= 2, "%s", json_dumps(list, 0));
    cr_assert_str_eq(text_of(json_array_get(list, 0), "value"), "p, %q");
    cr_assert_str_eq(text_of(json_array_get(list, n - 2), "name"), "call");
    cr_assert_str_eq(text_of(json_array_get(list, n - 1), "name"), "own");
    json_decref(d);
}

Test(explain, errors_of_a_call_say_whose_statement_it_was) {
    fusor_executable *exe = NULL;
    float x[3] = {0}, y[2], z[12] = {0}, w[12];
    int32_t i[2] = {1, 9};
    fusor_buffer in[2] = {{.data = x, .dtype = FUSOR_F32, .rank = 1, .shape = {3}},
                          {.data = i, .dtype = FUSOR_I32, .rank = 1, .shape = {2}}};
    fusor_buffer out = {.data = y, .dtype = FUSOR_F32, .rank = 1, .shape = {2}};
    OK(fusor_compile_text(
        ctx,
        "func @f(%x: f32[N], %i: i32[K]) -> f32[K] { %y = take(%x, %i, name=\"embed\", loc=\"model.py:7\") return %y }",
        NULL, &exe));
    cr_assert_eq(fusor_executable_call(exe, 2, in, 1, &out), FUSOR_ERROR_INDEX);
    cr_assert(strstr(fusor_error_message(ctx), "expected -3 to 2 (in \"embed\", from model.py:7)"), "%s",
              fusor_error_message(ctx));
    fusor_executable_free(exe);
    fusor_buffer both[2] = {{.data = z, .dtype = FUSOR_F32, .rank = 2, .shape = {3, 4}},
                            {.data = z, .dtype = FUSOR_F32, .rank = 2, .shape = {4, 3}}};
    fusor_buffer sum = {.data = w, .dtype = FUSOR_F32, .rank = 2, .shape = {3, 4}};
    OK(fusor_compile_text(
        ctx, "func @f(%x: f32[N, M], %y: f32[M, N]) -> f32[N, M] { %z = add(%x, %y, name=\"residual\") return %z }",
        NULL, &exe));
    cr_assert_eq(fusor_executable_call(exe, 2, both, 1, &sum), FUSOR_ERROR_SHAPE);
    cr_assert(strstr(fusor_error_message(ctx), "(in \"residual\")"), "%s", fusor_error_message(ctx));
    fusor_executable_free(exe);
}

/* Keys in order, buffers by place, boundaries by steps and reason: all that a plan is but names. */
static char *shape_of(json_t *d) {
    json_t *out = json_array(), *x;
    size_t i;
    json_array_foreach(json_object_get(d, "kernels"), i, x)(void)
        json_array_append_new(out, json_pack("[s, O, O, O]", text_of(x, "key"), json_object_get(x, "bytes_read"),
                                             json_object_get(x, "bytes_written"), json_object_get(x, "flops")));
    json_array_foreach(json_object_get(d, "boundaries"), i, x)(void) json_array_append_new(
        out, json_pack("[O, O, s]", json_object_get(x, "from"), json_object_get(x, "to"), text_of(x, "reason")));
    json_array_foreach(json_object_get(d, "memory"), i, x)(void)
        json_array_append_new(out, json_pack("[O, O, O]", json_object_get(x, "bytes"), json_object_get(x, "first"),
                                             json_object_get(x, "last")));
    char *text = json_dumps(out, JSON_COMPACT);
    json_decref(out);
    json_decref(d);
    return text;
}

Test(explain, equal_programs_have_one_plan) {
    static const char *const programs[][3] = {
        {/* as written, permuted, renamed with dead code */
         "func @f(%a: f32[M, N], %b: f32[N], %w: f32[N, N]) -> (%x: f32[M, N], %z: f32[M]) { %e = exp(%a) %s = "
         "reduce_sum(%e, axes=[1], keepdims=true) %p = div(%e, %s)"
         " %h = matmul(%p, %w) %r = relu(%h) %y = add(%r, %b) %z = reduce_max(%a, axes=[1]) return %y, %z }",
         "func @f(%a: f32[M, N], %b: f32[N], %w: f32[N, N]) -> (%x: f32[M, N], %z: f32[M]) { %z = reduce_max(%a, "
         "axes=[1]) %e = exp(%a) %s = reduce_sum(%e, axes=[1], keepdims=true)"
         " %p = div(%e, %s) %h = matmul(%p, %w) %r = relu(%h) %y = add(%b, %r) return %y, %z }",
         "func @other(%p0: f32[R, C], %p1: f32[C], %p2: f32[C, C]) -> (%u: f32[R, C], %v: f32[R]) { %dead = tanh(%p0) "
         "%q = exp(%p0, name=\"n\", loc=\"l\") %dead2 = matmul(%p0, %p2)"
         " %again = exp(%p0) %t = reduce_sum(%again, axes=[-1], keepdims=true) %k = div(%q, %t) %m = matmul(%k, %p2) "
         "%o = relu(%m) %dead3 = add(%dead2, %dead) %l = add(%o, %p1)"
         " %n = reduce_max(%p0, axes=[1]) return %l, %n }"},
        {"func @f(%a: f32[N], %b: f32[N], %c: f32[N]) -> (%x: f32[N], %y: f32[N], %z: f32) { %t = mul(%a, %b) %u = "
         "add(%t, %c) %v = sub(%u, %a) %w = tanh(%v) %s = reduce_sum(%w) return %u, %w, %s }",
         "func @f(%a: f32[N], %b: f32[N], %c: f32[N]) -> (%x: f32[N], %y: f32[N], %z: f32) { %t = mul(%b, %a) %u = "
         "add(%c, %t) %v = sub(%u, %a) %w = tanh(%v) %s = reduce_sum(%w) return %u, %w, %s }",
         "func @g(%q: f32[K], %r: f32[K], %s: f32[K]) -> (%i: f32[K], %j: f32[K], %k: f32) { %d0 = exp(%q) %1 = "
         "mul(%q, %r) %2 = add(%1, %s) %d1 = reduce_sum(%d0) %3 = sub(%2, %q) %4 = tanh(%3)"
         " %5 = reduce_sum(%4) return %2, %4, %5 }"},
        {"func @f(%a: f32[M, N]) -> f32[M, N] { %b = exp(%a, barrier=true) %c = layer_norm(%b) %d = gelu(%c) %y = "
         "add(%d, %b) return %y }",
         "func @f(%a: f32[M, N]) -> f32[M, N] { %b = exp(%a, barrier=true) %c = layer_norm(%b) %d = gelu(%c) %y = "
         "add(%b, %d) return %y }",
         "func @f(%v: f32[H, W]) -> f32[H, W] { %z = exp(%v) %b = exp(%v, barrier=true) %x = neg(%z) %c = "
         "layer_norm(%b) %d = gelu(%c) %y = add(%d, %z) return %y }"},
    };
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        char *first = shape_of(explain(programs[i][0], NULL));
        for (int k = 1; k < 3; k++) {
            char *other = shape_of(explain(programs[i][k], NULL));
            cr_assert_str_eq(first, other, "program %zu, variant %d:\n%s\n%s", i, k, first, other);
            free(other);
        }
        free(first);
    }
}

Test(explain, a_scatter_into_what_a_kernel_made) {
    json_t *d = explain("func @f(%a: i64[4, K], %b: i64[K], %i: i64[3], %u: i64[3]) -> i64[4] { "
                        "%m = matmul(%a, %b) %y = scatter(%m, %i, %u, axis=0, mode=add) return %y }",
                        NULL);
    const json_t *list = json_object_get(d, "boundaries"), *b = json_array_get(list, 0);
    cr_assert_eq(json_array_size(list), 1);
    cr_assert_str_eq(text_of(b, "value"), "m");
    cr_assert_str_eq(text_of(b, "reason"), "different-space");
    json_decref(d);
}

/* What a reduction computes of its operand before it adds is not done, and stored, by the kernel that makes the operand
 * where that is more bytes. */
Test(explain, fused_moves_no_more_than_unfused) {
    static const char *const programs[] = {
        "func @f(%x: f32[N, 8, 9, 9], %w: f32[4, 8, 3, 3]) -> (f32[N], f32[N]) { %c = conv(%x, %w) %a = reduce_l1(%c, "
        "axes=[1, 2, 3]) %m = reduce_max(%c, axes=[1, 2, 3]) return %a, %m }",
        "func @f(%x: bf16[N, K, M], %g: bf16[N]) -> bf16[M] { %m = reduce_max(%x, axes=[1]) %y = matmul(%g, %m) return "
        "%y }",
        "func @f(%x: f16[N, K], %w: f16[K, M]) -> f64[M] { %p = matmul(%x, %w) %t = transpose(%p) %d = cast(%t, f64) "
        "%y = reduce_sum(%d, axes=[1]) return %y }",
        "func @f(%x: f16[N, K], %z: f16[K], %m: f16[K, 2]) -> f16[K] { %s = reduce_sum(%x, axes=[0]) %y = "
        "einsum(\"a,a,ae->a\", %s, %z, %m) return %y }",
        "func @f(%x: i8[N, K, M]) -> i64[M] { %m = reduce_max(%x, axes=[1]) %d = cast(%m, f64) %e = mul(%d, %d) %y = "
        "argmax(%e, axis=0) return %y }"};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        json_t *d = explain(programs[i], NULL);
        static const char *const names[] = {"kernels", "bytes", "peak_bytes"};
        for (int k = 0; k < 3; k++) {
            const json_int_t fused = json_integer_value(json_object_get(json_object_get(d, "fused"), names[k])),
                             unfused = json_integer_value(json_object_get(json_object_get(d, "unfused"), names[k]));
            cr_expect_leq(fused, unfused, "%s: %s", programs[i], names[k]);
        }
        json_decref(d);
    }
}

/* A value of halves is stored as halves, however many read it: each reader converts it. (Where one of them is in the
 * kernel that makes the value, the others may read what that has converted; no reader here is.) */
Test(explain, halves_are_stored_as_halves) {
    static const char *const producers[] = {"conv(%x, %w, pads=[1, 1, 1, 1])", "conv(%x, %v)", "attention(%x, %x, %x)",
                                            "matmul(%x, %x)", "layer_norm(%x)"};
    static const char *const readers[] = {"conv(%c, %v)",
                                          "conv(%c, %w, pads=[1, 1, 1, 1])",
                                          "global_average_pool(%c)",
                                          "conv_transpose(%c, %v)",
                                          "matmul(%c, %c)",
                                          "attention(%c, %c, %c)",
                                          "max_pool(%c, kernel=[2, 2], strides=[2, 2])",
                                          "cumsum(%c, axis=1)"};
    enum { PRODUCERS = sizeof producers / sizeof *producers, READERS = sizeof readers / sizeof *readers };
    for (int p = 0; p < PRODUCERS; p++)
        for (int i = 0; i < READERS * READERS; i++) {
            char text[1024];
            snprintf(text, sizeof text,
                     "func @f(%%x: bf16[2, 8, 8, 8], %%w: bf16[8, 8, 3, 3], %%v: bf16[8, 8, 1, 1]) -> (bf16[?, ?, ?, "
                     "?], bf16[?, ?, ?, ?]) { %%c = %s %%a = %s %%b = %s return %%a, %%b }",
                     producers[p], readers[i / READERS], readers[i % READERS]);
            json_t *d = explain(text, NULL);
            const json_t *fused = json_object_get(d, "fused"), *unfused = json_object_get(d, "unfused");
            cr_expect_leq(json_integer_value(json_object_get(fused, "peak_bytes")),
                          json_integer_value(json_object_get(unfused, "peak_bytes")), "%s", text);
            cr_expect_leq(json_integer_value(json_object_get(fused, "bytes")),
                          json_integer_value(json_object_get(unfused, "bytes")), "%s", text);
            json_decref(d);
        }
}

/* Indices are in memory, and what a scatter writes over, however narrow they were before. */
Test(explain, indices_lie_in_memory) {
    static const char *const programs[] = {
        "func @f(%x: f16[6, 8], %t: f32[3, 8]) -> f32[6, 8] { %s = softmax(%x) %c = gt(%s, 0.125) %i = cast(%c, i32) "
        "%r "
        "= take_along(%t, %i, axis=0) return %r }",
        "func @f(%x: f32[6, 8], %w: f32[8, 8], %t: f32[4, 3]) -> f32[6, 8, 3] { %s = matmul(%x, %w) %c = gt(%s, 0.0) "
        "%i "
        "= cast(%c, i64) %r = take(%t, %i, axis=0) return %r }",
        "func @f(%g: i32[5], %t: f32[6, 8]) -> (f32[8], f32[6]) { %m = reduce_max(%g) %o = cast(%m, i64) %r = take(%t, "
        "%o, axis=0) %u = take(%t, %o, axis=1) return %r, %u }",
        "func @f(%z: f16[4, 8], %i: i32[4, 8], %u: f32[4, 8]) -> f32[4, 8] { %a = layer_norm(%z) %b = cast(%a, f32) %r "
        "= "
        "scatter(%b, %i, %u, axis=1, mode=add) return %r }"};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        json_t *d = explain(programs[i], NULL);
        cr_expect_geq(json_integer_value(json_object_get(json_object_get(d, "fused"), "kernels")), 1, "%s",
                      programs[i]);
        json_decref(d);
    }
}

/* What an epilogue reads of reductions comes before the product, be it in front of it in the program or behind: the
 * squares of distances are complete where the product is. */
Test(explain, an_epilogue_reads_reductions_from_anywhere) {
    static const char *const orders[] = {"%r = add(%n, %a) %q = add(%r, %b)", "%r = add(%a, %n) %q = add(%b, %r)",
                                         "%r = add(%a, %b) %q = add(%n, %r)"};
    for (int i = 0; i < 3; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "func @f(%%x: f32[M, K], %%z: f32[N, K]) -> f32[M, N] { %%t = transpose(%%z) %%m = matmul(%%x, %%t)"
                 " %%n = mul(%%m, -2.0) %%s = square(%%x) %%a = reduce_sum(%%s, axes=[1], keepdims=true)"
                 " %%u = square(%%z) %%b = reduce_sum(%%u, axes=[1]) %s %%y = sqrt(%%q) return %%y }",
                 orders[i]);
        json_t *d = explain(text, NULL);
        cr_expect_eq(json_integer_value(json_object_get(json_object_get(d, "fused"), "kernels")), 3, "%s", text);
        json_decref(d);
    }
}

/* Chrome's format: complete events with times, a name for each thread's row, kernels inside calls and pieces of work
 * inside kernels. */
Test(explain, a_trace_has_threads_kernels_and_stages) {
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.cache_dir = "";
    o.n_threads = 2;
    fusor_context *two = fusor_context_new(&o);
    fusor_executable *exe = NULL;
    char *text = NULL;
    enum { N = 1 << 20 };
    float *a = calloc(N, sizeof *a), *y = calloc(N, sizeof *y);
    fusor_buffer in = {.data = a, .dtype = FUSOR_F32, .rank = 1, .shape = {N}},
                 out = {.data = y, .dtype = FUSOR_F32, .rank = 1, .shape = {N}};
    cr_assert(two && a && y);
    cr_assert_eq(fusor_profile_enable(two, FUSOR_PROFILE_EVENTS), FUSOR_OK);
    cr_assert_eq(
        fusor_compile_text(
            two, "func @f(%a: f32[N]) -> f32[N] { %b = exp(%a, barrier=true, name=\"first\") %y = tanh(%b) return %y }",
            NULL, &exe),
        FUSOR_OK);
    cr_assert_eq(fusor_executable_call(exe, 1, &in, 1, &out), FUSOR_OK);
    cr_assert_eq(fusor_profile_enable(two, 0), FUSOR_OK);
    cr_assert_eq(fusor_executable_call(exe, 1, &in, 1, &out), FUSOR_OK); /* no events any more */
    cr_assert_eq(fusor_trace_json(two, &text), FUSOR_OK);
    json_t *d = json_loads(text, 0, NULL), *events = json_object_get(d, "traceEvents"), *x, *k;
    cr_assert(d, "%s", text);
    int n_calls = 0, n_kernels = 0, n_plans = 0, n_ready = 0, n_names = 0;
    int64_t tiles[2] = {0};
    double begin[2] = {0}, end[2] = {0};
    size_t i, j;
    json_array_foreach(events, i, x) {
        const char *ph = text_of(x, "ph");
        if (*ph == 'M') {
            n_names++;
            continue;
        }
        const char *cat = text_of(x, "cat");
        const double ts = json_number_value(json_object_get(x, "ts")),
                     dur = json_number_value(json_object_get(x, "dur"));
        cr_assert(*ph == 'X' && ts >= 0 && dur >= 0 && json_integer_value(json_object_get(x, "tid")) >= 1, "%s", text);
        n_plans += strcmp(cat, "plan") == 0;
        n_ready += strcmp(cat, "compile") == 0 || strcmp(cat, "load") == 0;
        n_calls += strcmp(cat, "call") == 0;
        if (strcmp(cat, "kernel") != 0) continue;
        begin[n_kernels] = ts;
        end[n_kernels] = ts + dur;
        if (n_kernels == 0) cr_assert_str_eq(text_of(json_object_get(x, "args"), "name"), "first");
        cr_assert(++n_kernels <= 2);
    }
    cr_assert(n_calls == 1 && n_kernels == 2 && n_ready == 2 && n_plans >= 3 && n_names >= 2, "%s", text);
    json_array_foreach(events, j, k) {
        const char *cat = json_string_value(json_object_get(k, "cat"));
        if (!cat || strcmp(cat, "tiles") != 0) continue;
        const double ts = json_number_value(json_object_get(k, "ts")),
                     last = ts + json_number_value(json_object_get(k, "dur"));
        const int of = ts >= begin[1];
        cr_assert(ts >= begin[of] - 0.01 && last <= end[of] + 0.01, "%s", text);
        tiles[of] += json_integer_value(json_object_get(json_object_get(k, "args"), "tiles"));
    }
    cr_assert(tiles[0] > 1 && tiles[0] == tiles[1], "%s", text);
    json_decref(d);
    fusor_text_free(text);
    fusor_executable_free(exe);
    fusor_context_free(two);
    free(a);
    free(y);
}
