/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* argument_test.c: what no program should pass: handles that are NULL, options of other versions, numbers out of range.
 * Each is a status with a text where the caller looks for it, and nothing that was handed in has changed. */
#include "api_test.h"
#include <malloc.h>
#include <stddef.h>
#include <stdlib.h>

static fusor_context *ctx;
static void setup(void) { ctx = new_context(1); }
static void teardown(void) { fusor_context_free(ctx); }
TestSuite(argument, .init = setup, .fini = teardown);

static const char text[] = "func @f(%x: f32[N]) -> f32[N] { %y = add(%x, 1) return %y }";

/* Every refused call has a text, also where no context is named; nothing is left from the one before. */
#define REFUSED(expr)                                                                                                  \
    do {                                                                                                               \
        fusor_error_clear(ctx);                                                                                        \
        FAILS(expr, FUSOR_ERROR_ARGUMENT, "NULL");                                                                     \
    } while (0)

Test(argument, null_handles_leave_a_text) {
    fusor_module *m = NULL;
    char *out = NULL;
    fusor_cache_stats stats = {.size = sizeof stats};
    REFUSED(fusor_module_parse(NULL, NULL, text, sizeof text - 1, &m));
    REFUSED(fusor_module_load(NULL, "x.fusor", &m));
    REFUSED(fusor_module_new(NULL, &m));
    REFUSED(fusor_module_print(NULL, &out));
    REFUSED(fusor_function_begin(NULL, "f"));
    REFUSED(fusor_function_end(NULL));
    REFUSED(fusor_cache_get_stats(NULL, &stats));
    REFUSED(fusor_cache_get_totals(NULL, &stats, NULL));
    REFUSED(fusor_cache_list(NULL, NULL, NULL));
    REFUSED(fusor_cache_clear(NULL, NULL));
    REFUSED(fusor_cache_prune(NULL, 0, 0, NULL, NULL));
    REFUSED(fusor_cache_verify(NULL, NULL, NULL));
    REFUSED(fusor_cache_export(NULL, "x", NULL));
    REFUSED(fusor_cache_add_bundle(NULL, "x"));
    REFUSED(fusor_cache_add_bundle_memory(NULL, text, 1));
    REFUSED(fusor_cache_why(NULL, text, NULL, NULL, NULL));
    REFUSED(fusor_profile_enable(NULL, 1));
    REFUSED(fusor_profile_json(NULL, &out));
    REFUSED(fusor_trace_json(NULL, &out));
    REFUSED(fusor_to_dlpack(fusor_f(1), NULL));
    cr_assert(!m && !out);
    fusor_buffer shape;
    fusor_error_clear(ctx);
    FAILS(fusor_status_of((fusor_tensor){0}), FUSOR_ERROR_ARGUMENT, "never set");
    fusor_error_clear(ctx);
    FAILS(fusor_shape_of((fusor_tensor){0}, &shape), FUSOR_ERROR_ARGUMENT, "never set");
    fusor_error_clear(ctx);
    FAILS(fusor_assign(fusor_f(1), fusor_f(2)), FUSOR_ERROR_ARGUMENT, "number alone");
}

Test(argument, null_executables_have_no_arguments) {
    fusor_argument_info info;
    cr_assert_eq(fusor_executable_inputs(NULL, 1, &info), 0);
    cr_assert_eq(fusor_executable_outputs(NULL, 1, &info), 0);
    fusor_executable *exe = NULL;
    OK(fusor_compile_text(ctx, text, NULL, &exe));
    cr_assert_eq(fusor_executable_inputs(exe, 1, NULL), 1);
    cr_assert_eq(fusor_executable_outputs(exe, 1, NULL), 1);
    fusor_executable_free(exe);
}

/* Which list is missing is said. */
Test(argument, lists_that_are_null) {
    float v = 1;
    const char *no_name = NULL;
    fusor_buffer in = {.data = &v, .dtype = FUSOR_F32, .rank = 1, .shape = {1}}, out = {.data = NULL};
    const fusor_buffer_list ins = {&in, 1}, outs = {&out, 1};
    fusor_carry carry = {0};
    fusor_executable *exe = NULL, *bound = NULL;
    OK(fusor_compile_text(ctx, text, NULL, &exe));
    FAILS(fusor_executable_call_each(exe, 1, 1, NULL, 1, NULL), FUSOR_ERROR_ARGUMENT,
          "1 lists of buffers given, but their array is NULL");
    FAILS(fusor_executable_call_each(exe, 1, 1, &ins, 1, NULL), FUSOR_ERROR_ARGUMENT,
          "1 lists of outputs given, but their array is NULL");
    FAILS(fusor_executable_call_each(exe, 1, 1, &ins, 1, &(fusor_buffer_list){NULL, 1}), FUSOR_ERROR_ARGUMENT,
          "the list of outputs for %y is NULL");
    FAILS(fusor_executable_call_each(exe, 1, 1, &(fusor_buffer_list){NULL, 1}, 1, &outs), FUSOR_ERROR_ARGUMENT,
          "the list of buffers for %x is NULL");
    FAILS(fusor_executable_call_each(exe, 2, 1, &ins, 1, &outs), FUSOR_ERROR_ARGUMENT,
          "1 outputs given for %y; expected 2, one a set");
    FAILS(fusor_executable_scan(exe, 1, 1, NULL, 1, &in, 1, &out), FUSOR_ERROR_ARGUMENT,
          "1 states given, and no list of them");
    FAILS(fusor_executable_scan(exe, 1, -1, &carry, 1, &in, 1, &out), FUSOR_ERROR_ARGUMENT, "-1 states given");
    cr_assert(!strstr(fusor_error_message(ctx), "list"));
    FAILS(fusor_executable_bind(exe, 1, &no_name, &in, &bound), FUSOR_ERROR_ARGUMENT, "bind: names[0] is NULL");
    FAILS(fusor_status_of(fusor_apply(ctx, NULL, 0, NULL, NULL)), FUSOR_ERROR_ARGUMENT, "name is NULL");
    fusor_executable_free(exe);
}

Test(argument, an_applied_operator_has_operands_of_its_context) {
    float v = -1, got = 0;
    fusor_context *other = new_context(1);
    const fusor_tensor x = fusor_wrap_const(other, &v, FUSOR_F32, 0, NULL);
    FAILS(fusor_status_of(fusor_apply(ctx, "relu", 1, &x, NULL)), FUSOR_ERROR_ARGUMENT,
          "relu: the tensors belong to different contexts; expected one");
    cr_assert_eq(fusor_read(fusor_apply(other, "neg", 1, &x, NULL), &got, sizeof got), FUSOR_OK);
    cr_assert_eq(got, 1);
    fusor_context_free(other);
}

Test(argument, numbers_of_one_evaluation_are_counted) {
    float x = 0;
    fusor_tensor sum = fusor_wrap_const(ctx, &x, FUSOR_F32, FUSOR_SHAPE(1));
    for (int i = 0; i < 65536; i++) sum = fusor_add(sum, 1);
    FAILS(fusor_read(sum, &x, sizeof x), FUSOR_ERROR_SHAPE,
          "lazy: one evaluation takes at most 65535 numbers and tensors; fusor_eval on the way");
}

/* What went wrong before a context was made, or without any, is not its error. */
Test(argument, a_whole_number_of_fusor_f_beside_integers) {
    uint8_t x[2] = {1, 2};
    fusor_tensor sum = (fusor_add)(fusor_wrap_const(ctx, x, FUSOR_U8, FUSOR_SHAPE(2)), fusor_f(1));
    FAILS(fusor_status_of(sum), FUSOR_ERROR_TYPE, "add: the float literal 1 stands beside u8; cast the u8 operand");
}

Test(argument, functions_with_and_without_a_sign) {
    fusor_executable *exe = NULL;
    static const char two[] = "func @f(%x: f32) -> f32 { return %x }  func @g(%x: f64) -> f64 { return %x }";
    OK(fusor_compile_text(ctx, two, "@g", &exe));
    fusor_argument_info info;
    cr_assert_eq(fusor_executable_inputs(exe, 1, &info), 1);
    cr_assert_eq(info.dtype, FUSOR_F64);
    fusor_executable_free(exe);
    FAILS(fusor_compile_text(ctx, two, "@h", &exe), FUSOR_ERROR_ARGUMENT, "no function '@h'");
}

Test(argument, a_context_starts_without_an_error) {
    cr_assert_eq(fusor_executable_call(NULL, 0, NULL, 0, NULL), FUSOR_ERROR_ARGUMENT);
    cr_assert(strstr(fusor_error_message(ctx), "NULL"));
    fusor_context *later = new_context(1);
    cr_assert_str_eq(fusor_error_message(later), "");
    fusor_error_clear(ctx);
    if (fusor_device_count() == 0) cr_assert_str_neq(fusor_error_message(NULL), "");
    cr_assert_str_eq(fusor_error_message(ctx), ""); /* having no device is no error */
    fusor_device_info info = FUSOR_DEVICE_INFO_INIT;
    cr_assert_eq(fusor_device_describe(-1, &info), FUSOR_ERROR_DEVICE);
    cr_assert(strstr(fusor_error_message(ctx), "-1"));
    fusor_error_clear(ctx);
    cr_assert_eq(fusor_executable_call(NULL, 0, NULL, 0, NULL), FUSOR_ERROR_ARGUMENT);
    cr_assert(strstr(fusor_error_message(later), "NULL"));
    fusor_context_free(later);
}

/* Who names no context is told the last error of all; what a context said goes with it, at the thread's next error. */
Test(argument, errors_of_contexts_that_are_gone) {
    fusor_executable *exe = NULL;
    fusor_context *other = new_context(1);
    cr_assert_eq(fusor_compile_text(ctx, "one", NULL, &exe), FUSOR_ERROR_SYNTAX);
    cr_assert_eq(fusor_compile_text(other, "two", NULL, &exe), FUSOR_ERROR_SYNTAX);
    cr_assert(strstr(fusor_error_message(NULL), "two") && strstr(fusor_error_message(ctx), "one"));
    fusor_error_clear(NULL);
    cr_assert_str_eq(fusor_error_message(NULL), "");
    cr_assert_str_eq(fusor_error_message(ctx), "");
    fusor_context_free(other);
    const size_t before = mallinfo2().uordblks;
    for (int i = 0; i < 200; i++) {
        other = new_context(1);
        cr_assert_eq(fusor_compile_text(other, "bad", NULL, &exe), FUSOR_ERROR_SYNTAX);
        fusor_context_free(other);
    }
    cr_assert_lt((int64_t)mallinfo2().uordblks - (int64_t)before, 1 << 18, "%zu", mallinfo2().uordblks - before);
}

static void option_fails(fusor_context_options o, const char *message) {
    o.cache_dir = "";
    fusor_context *c = fusor_context_new(&o);
    fusor_executable *exe = NULL;
    cr_assert_eq(fusor_compile_text(c, text, NULL, &exe), FUSOR_ERROR_ARGUMENT);
    cr_assert(strstr(fusor_error_message(c), message), "%s", fusor_error_message(c));
    fusor_context_free(c);
}
static void *allocate(void *user, size_t bytes, size_t align) {
    (void)user;
    (void)align;
    return malloc(bytes);
}

Test(argument, options_that_nobody_knows) {
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.flags = FUSOR_CACHE_ONLY | 0x4000;
    option_fails(o, "0x4000");
    o.device = "reference"; /* nothing to compile for, yet no less wrong */
    option_fails(o, "0x4000");
    o.flags = 0;
    o.n_threads = -1;
    option_fails(o, "-1 threads");
    o = (fusor_context_options)FUSOR_CONTEXT_OPTIONS_INIT;
    o.allocate = allocate;
    option_fails(o, "allocate");
    fusor_module *m = NULL;
    fusor_executable *exe = NULL;
    fusor_compile_options c = FUSOR_COMPILE_OPTIONS_INIT;
    OK(fusor_module_parse(ctx, NULL, text, sizeof text - 1, &m));
    c.flags = 0x10;
    FAILS(fusor_module_compile(m, NULL, &c, &exe), FUSOR_ERROR_ARGUMENT, "0x10");
    /* a GPU's target is no host's, whoever is asked */
    c = (fusor_compile_options)FUSOR_COMPILE_OPTIONS_INIT;
    c.target = "sm_80";
    FAILS(fusor_module_compile(m, NULL, &c, &exe), FUSOR_ERROR_DEVICE, "sm_80");
    o = (fusor_context_options)FUSOR_CONTEXT_OPTIONS_INIT;
    o.device = "cpu";
    o.target = "sm_80";
    o.cache_dir = "";
    fusor_context *gpu = fusor_context_new(&o);
    FAILS(fusor_compile_text(gpu, text, NULL, &exe), FUSOR_ERROR_DEVICE, "sm_80");
    fusor_context_free(gpu);
    cr_assert_null(exe);
    fusor_module_free(m);
    FAILS(fusor_profile_enable(ctx, 3), FUSOR_ERROR_ARGUMENT, "on is 3");
    FAILS(fusor_profile_enable(ctx, -1), FUSOR_ERROR_ARGUMENT, "on is -1");
    fusor_device_info info = {0};
    cr_assert_eq(fusor_device_describe(0, &info), FUSOR_ERROR_ARGUMENT); /* room for nothing */
    cr_assert_eq(info.name[0], 0);
}

Test(argument, a_negative_age_removes_nothing) {
    int64_t n = -7, bytes = -7;
    FAILS(fusor_cache_prune(ctx, 0, -1, &n, &bytes), FUSOR_ERROR_ARGUMENT, "-1");
    cr_assert(n == -7 && bytes == -7);
    OK(fusor_cache_prune(ctx, 0, 0, &n, &bytes));
    cr_assert(n == 0 && bytes == 0);
}

static int released;
static void release(void *user) {
    (void)user;
    released++;
}

Test(argument, wrapped_memory_is_checked_at_once) {
    _Alignas(8) char memory[16] = {0};
    FAILS(fusor_status_of(fusor_wrap(ctx, memory + 1, FUSOR_F32, FUSOR_SHAPE(2))), FUSOR_ERROR_ARGUMENT, "not aligned");
    OK(fusor_status_of(fusor_wrap(ctx, memory + 1, FUSOR_I8, FUSOR_SHAPE(2))));
    OK(fusor_status_of(fusor_wrap(ctx, memory + 1, FUSOR_F32, FUSOR_SHAPE(0))));
    FAILS(fusor_status_of(fusor_wrap(ctx, memory, FUSOR_F32, 2, NULL)), FUSOR_ERROR_ARGUMENT, "shape is NULL");
    FAILS(fusor_status_of(fusor_adopt(ctx, NULL, release, NULL)), FUSOR_ERROR_ARGUMENT, "buffer is NULL");
    cr_assert_eq(released, 1);
}

/* ---- overlaps ---- */
enum { MEMORY = 96 };
static int counts[MEMORY];

static int64_t random_below(uint64_t *state, int64_t n) {
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (int64_t)((*state >> 33) % (uint64_t)n);
}

/* Counts the elements of b, of rank 2, in each place of the memory; false where one is outside. */
static bool count_elements(const fusor_buffer *b, int64_t at) {
    for (int64_t i = 0; i < b->shape[0]; i++)
        for (int64_t j = 0; j < b->shape[1]; j++) {
            int64_t p = at + i * b->stride[0] + j * b->stride[1];
            if (p < 0 || p >= MEMORY) return false;
            counts[p]++;
        }
    return true;
}

/* Windows, columns beside columns, odd beside even: refused exactly where an element would be written that is read. */
Test(argument, overlaps_are_exact) {
    fusor_executable *exe = NULL;
    float memory[MEMORY] = {0};
    uint64_t state = 1;
    int n[2] = {0, 0};
    OK(fusor_compile_text(ctx, "func @f(%x: f32[M, N]) -> f32[M, N] { %y = neg(%x) return %y }", NULL, &exe));
    for (int i = 0; i < 20000; i++) {
        fusor_buffer b[2] = {{.dtype = FUSOR_F32, .rank = 2, .flags = FUSOR_STRIDED}};
        for (int d = 0; d < 2; d++) b[0].shape[d] = 1 + random_below(&state, 5);
        b[1] = b[0];
        bool is_inside = true, overlaps = false;
        int read[MEMORY];
        for (int k = 0; k < 2; k++) {
            int64_t at = random_below(&state, MEMORY);
            for (int d = 0; d < 2; d++) b[k].stride[d] = random_below(&state, 25) - 12;
            b[k].data = memory + at;
            memset(counts, 0, sizeof counts);
            is_inside = is_inside && count_elements(&b[k], at);
            if (k == 0) memcpy(read, counts, sizeof read);
        }
        if (!is_inside) continue;
        for (int p = 0; p < MEMORY; p++) overlaps |= counts[p] > 1 || (counts[p] && read[p]);
        n[overlaps]++;
        cr_assert_eq(fusor_executable_call(exe, 1, &b[0], 1, &b[1]), overlaps ? FUSOR_ERROR_OVERLAP : FUSOR_OK,
                     "case %d: [%lld, %lld] from %td by %lld, %lld to %td by %lld, %lld", i, (long long)b[0].shape[0],
                     (long long)b[0].shape[1], (float *)b[0].data - memory, (long long)b[0].stride[0],
                     (long long)b[0].stride[1], (float *)b[1].data - memory, (long long)b[1].stride[0],
                     (long long)b[1].stride[1]);
    }
    cr_assert(n[0] > 500 && n[1] > 500, "%d %d", n[0], n[1]);
    fusor_executable_free(exe);
}

/* Bits that mean nothing yet must not come to mean something in programs that set them. */
Test(argument, unknown_flags_of_buffers) {
    const char words[] = "flags 0x4; expected FUSOR_STRIDED, FUSOR_READONLY";
    fusor_executable *exe = NULL, *bound = NULL;
    float memory[2][3] = {{1, 2, 3}};
    const char *name = "x";
    OK(fusor_compile_text(ctx, "func @f(const %x: f32[N]) -> f32[N] { %y = add(%x, 1) return %y }", NULL, &exe));
    fusor_buffer in = FUSOR_BUFFER(memory[0], FUSOR_F32, 3), out = FUSOR_BUFFER(memory[1], FUSOR_F32, 3), bad = in;
    bad.flags = 4;
    FAILS(fusor_executable_call(exe, 1, &bad, 1, &out), FUSOR_ERROR_ARGUMENT, words);
    FAILS(fusor_executable_infer(exe, 1, &bad, 1, &out), FUSOR_ERROR_ARGUMENT, words);
    FAILS(fusor_executable_bind(exe, 1, &name, &bad, &bound), FUSOR_ERROR_ARGUMENT, words);
    FAILS(fusor_buffer_copy(ctx, &bad, &out), FUSOR_ERROR_ARGUMENT, words);
    FAILS(fusor_status_of(fusor_adopt(ctx, &bad, NULL, NULL)), FUSOR_ERROR_ARGUMENT, words);
    bad = out;
    bad.flags = 4;
    FAILS(fusor_executable_call(exe, 1, &in, 1, &bad), FUSOR_ERROR_ARGUMENT, words);
    FAILS(fusor_buffer_copy(ctx, &in, &bad), FUSOR_ERROR_ARGUMENT, words);
    cr_assert(!bound && memory[1][0] == 0);
    out.flags = FUSOR_READONLY; /* of no use, and no error of infer's */
    OK(fusor_executable_infer(exe, 1, &in, 1, &out));
    fusor_executable_free(exe);
}
