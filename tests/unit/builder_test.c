/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* builder_test.c: modules and the function builder: what is built prints, compiles and runs as what is parsed. */
#include "api_test.h"

static fusor_context *ctx;
static void setup(void) { ctx = new_context(0); }
static void teardown(void) { fusor_context_free(ctx); }
TestSuite(builder, .init = setup, .fini = teardown);

static fusor_module *dense(void) {
    fusor_module *m = NULL;
    OK(fusor_module_new(ctx, &m));
    OK(fusor_function_begin(m, "dense"));
    fusor_size B = fusor_function_dim(m, "B");
    fusor_tensor x = fusor_function_param(m, "x", FUSOR_F32, 2, (fusor_size[]){B, {NULL, 3}}, 0);
    fusor_tensor w = fusor_function_param(m, "w", FUSOR_F32, 2, (fusor_size[]){{NULL, 3}, {NULL, 2}}, 1);
    fusor_tensor b = fusor_function_param(m, "b", FUSOR_F32, 1, (fusor_size[]){{NULL, 2}}, 1);
    fusor_tensor y = fusor_relu(fusor_add(fusor_mul(fusor_matmul(x, w), 1.0), b));
    fusor_buffer shape;
    OK(fusor_shape_of(y, &shape));
    cr_assert(shape.rank == 2 && shape.shape[0] == -1 && shape.shape[1] == 2);
    fusor_function_result(m, "y", y, NULL);
    OK(fusor_function_end(m));
    return m;
}

Test(builder, a_built_function_runs_and_outlives_its_module) {
    fusor_module *m = dense();
    fusor_executable *exe = NULL;
    OK(fusor_module_compile(m, "dense", NULL, &exe));
    fusor_module_free(m);
    float x[6] = {1, -2, 3, 4, 5, -6}, w[6] = {1, 0, 0, 1, 1, 1}, b[2] = {.5f, -9}, y[4];
    fusor_buffer in[3] = {{.data = x, .dtype = FUSOR_F32, .rank = 2, .shape = {2, 3}},
                          {.data = w, .dtype = FUSOR_F32, .rank = 2, .shape = {3, 2}},
                          {.data = b, .dtype = FUSOR_F32, .rank = 1, .shape = {2}}};
    fusor_buffer out = {.data = y, .dtype = FUSOR_F32, .rank = 2, .shape = {2, 2}};
    OK(fusor_executable_call(exe, 3, in, 1, &out));
    cr_assert(y[0] == 4.5f && y[1] == 0 && y[2] == 0 && y[3] == 0);
    in[0].shape[1] = 4;
    FAILS(fusor_executable_call(exe, 3, in, 1, &out), FUSOR_ERROR_SHAPE, "x");
    fusor_executable_free(exe);
}

Test(builder, prints_what_parses_to_the_same) {
    fusor_module *m = dense(), *again = NULL;
    char *text = NULL, *twice = NULL;
    OK(fusor_module_print(m, &text));
    cr_assert(strstr(text, "func @dense(%x: f32[B, 3], const %w: f32[3, 2], const %b: f32[2]) -> (%y: f32[B, 2])"),
              "%s", text);
    OK(fusor_module_parse(ctx, "again", text, strlen(text), &again));
    OK(fusor_module_print(again, &twice));
    cr_assert_str_eq(text, twice);
    fusor_text_free(text);
    fusor_text_free(twice);
    fusor_module_free(again);
    fusor_module_free(m);
}

/* Names of values come from anywhere; a text is UTF-8. */
Test(builder, names_of_values_are_made_utf8) {
    fusor_module *m = NULL, *again = NULL;
    char *text = NULL;
    OK(fusor_module_new(ctx, &m));
    OK(fusor_function_begin(m, "f"));
    fusor_tensor x = fusor_function_param(m, "x", FUSOR_F32, 0, NULL, 0);
    fusor_function_result(m, "y", fusor_name(fusor_exp(x), "a\xff\"\xc3\xbc\n\xe2\x82"), NULL);
    OK(fusor_function_end(m));
    OK(fusor_module_print(m, &text));
    cr_assert(strstr(text, "name=\"a?\\\"\xc3\xbc\\n??\""), "%s", text);
    OK(fusor_module_parse(ctx, "again", text, strlen(text), &again));
    fusor_text_free(text);
    fusor_module_free(again);
    fusor_module_free(m);
}

Test(builder, aliases_attributes_and_names_of_sizes) {
    fusor_module *m = NULL;
    OK(fusor_module_new(ctx, &m));
    OK(fusor_function_begin(m, "step"));
    fusor_size shape[2] = {fusor_function_dim(m, "R"), fusor_function_dim(m, "C")};
    fusor_tensor p = fusor_function_param(m, "p", FUSOR_F32, 2, shape, 0);
    fusor_tensor flat = fusor_apply(ctx, "reshape", 1, &p, "shape=[R*C]");
    fusor_tensor one = fusor_full(ctx, 1, FUSOR_F32, 0, NULL);
    fusor_function_result(m, "q", fusor_sub(p, one), "p");
    fusor_function_result(m, NULL, fusor_reduce_sum(flat, FUSOR_ALL_AXES, 0), NULL);
    OK(fusor_function_end(m));
    fusor_executable *exe = NULL;
    OK(fusor_module_compile(m, NULL, NULL, &exe));
    float data[4] = {1, 2, 3, 4}, sum = 0;
    fusor_buffer in = {.data = data, .dtype = FUSOR_F32, .rank = 2, .shape = {2, 2}};
    fusor_buffer out[2] = {in, {.data = &sum, .dtype = FUSOR_F32}};
    OK(fusor_executable_call(exe, 1, &in, 2, out));
    cr_assert(data[0] == 0 && data[3] == 3 && sum == 10);
    fusor_executable_free(exe);
    fusor_module_free(m);
}

Test(builder, a_result_without_a_name_takes_no_other_s) {
    fusor_module *m = NULL;
    OK(fusor_module_new(ctx, &m));
    OK(fusor_function_begin(m, "f"));
    fusor_tensor x = fusor_function_param(m, "x", FUSOR_F32, 0, NULL, 0);
    fusor_function_result(m, "result1", x, NULL);
    fusor_function_result(m, NULL, fusor_neg(x), NULL);
    FAILS(fusor_function_end(m), FUSOR_ERROR_ARGUMENT, "an earlier result is named %result1");
    fusor_module_free(m);
}

Test(builder, traces_movement_and_several_results) {
    fusor_module *m = NULL;
    OK(fusor_module_new(ctx, &m));
    OK(fusor_function_begin(m, "parts"));
    fusor_tensor x = fusor_function_param(m, "x", FUSOR_F32, 2, (fusor_size[]){{"N", 0}, {NULL, 5}}, 0), part[2];
    fusor_split(x, 1, FUSOR_SHAPE(2, 3), part);
    fusor_function_result(m, "a", fusor_apply(ctx, "pad", 1, &part[0], "pads=[0, 0, 0, 1], value=9"), NULL);
    fusor_function_result(m, "b", part[1], NULL);
    OK(fusor_function_end(m));
    char *text = NULL;
    OK(fusor_module_print(m, &text));
    cr_assert(strstr(text, "= split(%x, axis=1, sizes=[2, 3])") && strstr(text, "value=9.0, pads=[0, 0, 0, 1])"), "%s",
              text);
    cr_assert_eq(strstr(strstr(text, "split(") + 1, "split("), NULL, "one statement: %s", text);
    fusor_text_free(text);
    fusor_executable *exe = NULL;
    OK(fusor_module_compile(m, NULL, NULL, &exe));
    float data[5] = {1, 2, 3, 4, 5}, a[3], b[3];
    fusor_buffer in = {.data = data, .dtype = FUSOR_F32, .rank = 2, .shape = {1, 5}};
    fusor_buffer out[2] = {{.data = a, .dtype = FUSOR_F32, .rank = 2, .shape = {1, 3}},
                           {.data = b, .dtype = FUSOR_F32, .rank = 2, .shape = {1, 3}}};
    OK(fusor_executable_call(exe, 1, &in, 2, out));
    cr_assert(a[1] == 2 && a[2] == 9 && b[0] == 3 && b[2] == 5);
    fusor_executable_free(exe);
    fusor_module_free(m);
}

Test(builder, errors_stick_until_the_end) {
    fusor_module *m = NULL;
    OK(fusor_module_new(ctx, &m));
    OK(fusor_function_begin(m, "f"));
    fusor_tensor x = fusor_function_param(m, "x", FUSOR_F32, 1, (fusor_size[]){{"N", 0}}, 0);
    fusor_tensor i = fusor_function_param(m, "i", FUSOR_I32, 1, (fusor_size[]){{"N", 0}}, 0);
    FAILS(fusor_function_begin(m, "g"), FUSOR_ERROR_ARGUMENT, "before @f has ended");
    fusor_tensor bad = fusor_relu(fusor_add(x, i));
    FAILS(fusor_status_of(bad), FUSOR_ERROR_TYPE, "add: ");
    FAILS(fusor_status_of(fusor_reshape(bad, 1, NULL)), FUSOR_ERROR_TYPE, "add: ");
    FAILS(fusor_status_of(fusor_function_param(m, "late", FUSOR_F32, 0, NULL, 0)), FUSOR_ERROR_TYPE, "add: ");
    fusor_function_result(m, "y", fusor_add(x, 1), NULL);
    FAILS(fusor_function_end(m), FUSOR_ERROR_TYPE, "add: ");
    FAILS(fusor_function_end(m), FUSOR_ERROR_ARGUMENT, "begun no function");
    /* Nothing of it is in the module; handles are stale now and lazy tensors stay apart. */
    float a[2] = {1, 2};
    fusor_tensor A = fusor_wrap(ctx, a, FUSOR_F32, FUSOR_SHAPE(2));
    FAILS(fusor_status_of(x), FUSOR_ERROR_STALE, "has ended");
    FAILS(fusor_status_of(fusor_add(x, 1)), FUSOR_ERROR_STALE, "has ended");
    FAILS(fusor_status_of(bad), FUSOR_ERROR_STALE, "has ended");
    fusor_buffer buffer;
    FAILS(fusor_shape_of(x, &buffer), FUSOR_ERROR_STALE, "has ended");
    FAILS(fusor_buffer_of(x, &buffer), FUSOR_ERROR_STALE, "has ended");
    FAILS(fusor_read(x, a, sizeof a), FUSOR_ERROR_STALE, "has ended");
    FAILS(fusor_eval(1, &x), FUSOR_ERROR_STALE, "has ended");
    FAILS(fusor_eval(2, (fusor_tensor[]){A, x}), FUSOR_ERROR_STALE,
          "fusor_eval: a value belongs to a function that has");
    FAILS(fusor_status_of(fusor_add(A, x)), FUSOR_ERROR_STALE, "add: a value belongs to a function that has ended");
    FAILS(fusor_assign(A, x), FUSOR_ERROR_STALE, "has ended");
    FAILS(fusor_assign(x, A), FUSOR_ERROR_STALE, "has ended");
    OK(fusor_function_begin(m, "f"));
    fusor_tensor y = fusor_function_param(m, "y", FUSOR_F32, 0, NULL, 0);
    fusor_function_result(m, NULL, fusor_add(y, x), NULL);
    FAILS(fusor_function_end(m), FUSOR_ERROR_STALE, "has ended");
    OK(fusor_function_begin(m, "f"));
    y = fusor_function_param(m, "y", FUSOR_F32, 0, NULL, 0);
    FAILS(fusor_read(y, a, sizeof a), FUSOR_ERROR_ARGUMENT, "a function being built");
    FAILS(fusor_status_of(fusor_add(A, y)), FUSOR_ERROR_ARGUMENT, "is being built has no data");
    fusor_function_result(m, NULL, fusor_add(y, A), NULL);
    FAILS(fusor_function_end(m), FUSOR_ERROR_ARGUMENT, "lazy tensor");
    OK(fusor_function_begin(m, "f"));
    FAILS(fusor_function_end(m), FUSOR_ERROR_ARGUMENT, "no result");
    OK(fusor_function_begin(m, "f"));
    y = fusor_function_param(m, "y", FUSOR_F32, 0, NULL, 0);
    fusor_function_result(m, NULL, fusor_cast(y, FUSOR_F16), "y");
    FAILS(fusor_function_end(m), FUSOR_ERROR_TYPE, "they must be equal");
    OK(fusor_function_begin(m, "f"));
    (void)fusor_function_param(m, "N", FUSOR_F32, 1, (fusor_size[]){{"N", 0}}, 0);
    cr_assert_neq(fusor_function_end(m), FUSOR_OK);
    OK(fusor_function_begin(m, "f"));
    (void)fusor_function_param(m, "x", FUSOR_F32, 1, (fusor_size[]){{"7", 0}}, 0);
    FAILS(fusor_function_end(m), FUSOR_ERROR_ARGUMENT, "'7' is no name of a size"); /* it would print as a number */
    FAILS(fusor_function_begin(m, "not a name"), FUSOR_ERROR_ARGUMENT, "not a name");
    fusor_module_free(m);
}

Test(builder, modules_are_parsed_and_files_loaded) {
    fusor_module *m = NULL;
    static const char text[] = "func @f(%x: f32[N]) -> f32[N] { %y = nonsense(%x) return %y }";
    FAILS(fusor_module_parse(ctx, "bad.fusor", text, sizeof text - 1, &m), FUSOR_ERROR_SYNTAX, "bad.fusor:1:38: error");
    cr_assert_null(m);
    FAILS(fusor_module_load(ctx, "/nowhere/at/all.fusor", &m), FUSOR_ERROR_IO, "/nowhere/at/all.fusor");
    FAILS(fusor_module_parse(ctx, NULL, NULL, 5, &m), FUSOR_ERROR_ARGUMENT, "NULL");
    fusor_module_free(NULL);
}
