/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* alloc_test.c: allocation n fails, for every n that a compile and a call make: the answer is FUSOR_ERROR_MEMORY with a
 * text, or a right result where the library could do without; nothing leaks (AddressSanitizer builds see it), and the
 * same context works afterwards. */
#include "base/arena.h"
#include "fusor/fusor.h"
#include "rt/cpuinfo.h"
#include "rt/compiler.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const programs[] = {
    "func @f(%x: f32[N], %y: f32[N]) -> f32[N] { %s = add(%x, %y) %r = mul(%s, 0.5) return %r }",
    "func @f(%x: f32[N], %y: f32[N]) -> (f32[N], f32) { %s = softmax(%x) %t = mul(%s, %y) %r = reduce_sum(%t) "
    "return %t, %r }",
    "func @f(%x: f32[N], %y: f32[N]) -> (%r: f32[N] alias %x) { %a = unsqueeze(%x, axes=[1]) %b = unsqueeze(%y, "
    "axes=[0]) %m = matmul(%a, %b) "
    "%s = reduce_sum(%m, axes=[1]) %r = @g(%s) return %r }\n"
    "func @g(%x: f32[K]) -> f32[K] { %r = tanh(%x) return %r }",
    "func @f(%x: f32[N], %y: f32[N]) -> f16[N] { %a = cast(%x, f16) %b = cast(%y, f16) %r = add(%a, %b) return %r "
    "}", /* the reference evaluator */
};
enum { N = 40, N_PROGRAMS = sizeof programs / sizeof *programs, ENOUGH = 25 };

static bool has_module(void) {
    static fu_error e;
    const fusor_codegen_table *t;
    return rt_host_level() >= 0 && rt_module_get(&e, &t) == FUSOR_OK;
}

static fusor_status compile_and_call(fusor_context *ctx, const char *text, double *sum_out) {
    fusor_executable *exe = NULL;
    float x[N], y[N];
    for (int i = 0; i < N; i++) {
        x[i] = (float)i / 16 - 1;
        y[i] = 1 - (float)i / 32;
    }
    fusor_buffer in[2] = {{.data = x, .dtype = FUSOR_F32, .rank = 1, .shape = {N}},
                          {.data = y, .dtype = FUSOR_F32, .rank = 1, .shape = {N}}},
                 out[2] = {{0}};
    fusor_status status = fusor_compile_text(ctx, text, NULL, &exe);
    if (status != FUSOR_OK) {
        cr_assert_null(exe);
        return status;
    }
    int n_out = fusor_executable_outputs(exe, 0, NULL);
    status = fusor_executable_call(exe, 2, in, n_out, out);
    *sum_out = 0;
    for (int k = 0; k < n_out && status == FUSOR_OK; k++) {
        int64_t n = out[k].rank ? out[k].shape[0] : 1;
        for (int64_t i = 0; i < n; i++)
            *sum_out += out[k].dtype == FUSOR_F32 ? ((float *)out[k].data)[i] : ((uint16_t *)out[k].data)[i];
    }
    for (int k = 0; k < n_out; k++) fusor_buffer_free(ctx, &out[k]);
    fusor_executable_free(exe);
    return status;
}

static fusor_context *new_context(void) {
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.cache_dir = "";
    o.n_threads = 2;
    return fusor_context_new(&o);
}

static void fail_each(int p, bool is_warm) {
    fusor_context *ctx = new_context();
    double want, got;
    cr_assert(ctx);
    cr_assert_eq(compile_and_call(ctx, programs[p], &want), FUSOR_OK, "%s", fusor_error_message(ctx));
    for (long n = 1, good = 0; good < ENOUGH; n++) {
        if (!is_warm) {
            fusor_context_free(ctx);
            ctx = new_context();
        }
        fu_malloc_fail_at(n);
        fusor_status status = compile_and_call(ctx, programs[p], &got);
        fu_malloc_fail_at(0);
        good = status == FUSOR_OK ? good + 1 : 0;
        cr_assert(status == FUSOR_OK || status == FUSOR_ERROR_MEMORY, "program %d, allocation %ld: %s: %s", p, n,
                  fusor_status_name(status), fusor_error_message(ctx));
        if (status == FUSOR_OK) cr_assert_eq(got, want, "program %d, allocation %ld: %g, expected %g", p, n, got, want);
        if (status == FUSOR_ERROR_MEMORY && n % 7 == 0) {
            cr_assert_eq(compile_and_call(ctx, programs[p], &got), FUSOR_OK, "after allocation %ld: %s", n,
                         fusor_error_message(ctx));
            cr_assert_eq(got, want);
        }
        cr_assert(n < 100000);
    }
    fusor_context_free(ctx);
}

Test(alloc, every_allocation_of_a_warm_call_may_fail, .timeout = 600) {
    if (!has_module()) cr_skip("no code generation module");
    for (int p = 0; p < N_PROGRAMS; p++) fail_each(p, true);
}

Test(alloc, every_allocation_of_a_compile_may_fail, .timeout = 600) {
    if (!has_module()) cr_skip("no code generation module");
    for (int p = 0; p < N_PROGRAMS; p++) fail_each(p, false);
}

Test(alloc, contexts_without_memory_are_null, .timeout = 60) {
    for (long n = 1, good = 0; good < 5; n++) {
        fu_malloc_fail_at(n);
        fusor_context *ctx = new_context();
        fu_malloc_fail_at(0);
        good = ctx ? good + 1 : 0;
        fusor_context_free(ctx);
        cr_assert(n < 10000);
    }
}

Test(alloc, scopes_without_memory_say_so) {
    fusor_context *ctx = new_context();
    bool is_refused[4] = {false};
    for (long n = 0; n < 4; n++) {
        fusor_status status = FUSOR_OK;
        fusor_error_clear(ctx);
        fu_malloc_fail_at(n);
        fusor_scope scope = fusor_scope_begin(ctx, &status);
        fu_malloc_fail_at(0);
        is_refused[n] = status != FUSOR_OK;
        if (is_refused[n]) {
            cr_assert_eq(status, FUSOR_ERROR_MEMORY);
            cr_assert(strstr(fusor_error_message(ctx), "out of memory"), "allocation %ld: no text", n);
        }
        fusor_scope_end(&scope);
    }
    cr_assert(is_refused[1] && !is_refused[3]);
    fusor_context_free(ctx);
}

/* Errors in texts need memory too: the message may be lost, never the status; and then that is said. */
Test(alloc, failing_compiles_may_fail, .timeout = 60) {
    static const char *const wrong[] = {"func @f(%x: f32[N]) -> f32[N] { %y = rleu(%x) return %y }",
                                        "func @f(%x: f32[3], %y: f32[4]) -> f32[3] { %z = add(%x, %y) return %z }",
                                        "func @f(", ""};
    fusor_context *ctx = NULL;
    for (int p = 0; p < 4; p++)
        for (long n = 1; n < 120; n++) {
            fusor_executable *exe = NULL;
            fusor_context_free(ctx);
            ctx = new_context(); /* without a record */
            fu_malloc_fail_at(n);
            fusor_status status = fusor_compile_text(ctx, wrong[p], NULL, &exe);
            fu_malloc_fail_at(0);
            cr_assert_neq(status, FUSOR_OK);
            cr_assert_null(exe);
            cr_assert_neq(fusor_error_message(ctx)[0], 0, "program %d, allocation %ld", p, n);
            fusor_error_clear(ctx);
            cr_assert_eq(fusor_error_message(ctx)[0], 0);
        }
    fusor_context_free(ctx);
}
