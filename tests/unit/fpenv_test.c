/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* fpenv_test.c: callers that trap floating-point exceptions, flush subnormals or round another way get the same bits, and
 * have their environment back. */
#include "api_test.h"
#include "../host_level.h"
#include <fenv.h>
#include <stdlib.h>
#ifdef __SSE__
#include <xmmintrin.h>

enum { MANY = 200000, N_WAYS = 6 };

static void set_environment(int way) {
    if (way == 1) feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
    if (way == 2) feenableexcept(FE_ALL_EXCEPT);
    if (way == 3) _mm_setcsr(_mm_getcsr() | 0x8040); /* FTZ and DAZ, as -ffast-math sets them */
    if (way == 4) fesetround(FE_UPWARD);
    if (way == 5) fesetround(FE_DOWNWARD);
}

/* Calls, prepared calls, the calls again that a prepared one makes shorter, lazy tensors. */
static void gives_its_bits(const char *level, int threads) {
    static const char text[] =
        "func @f(%x: f32[N], %y: f32[N]) -> (f32[N], f32[N], f32[]) { %q = div(%x, %y) "
        "%t = mul(%x, 0.1) %e = exp(%t) %d = mul(%t, 1e-38) %s = reduce_sum(%e) return %q, %d, %s }";
    static float x[MANY], y[MANY], want[2][MANY], got[2][MANY], want_sum, got_sum;
    for (int i = 0; i < MANY; i++) x[i] = (float)(i % 100 - 50), y[i] = (float)(i % 7);
    for (int way = 0; way < N_WAYS; way++) {
        set_environment(way);
        const unsigned before = _mm_getcsr() & ~0x3fu;
        fusor_context *ctx = new_context_for(level, threads);
        fusor_executable *exe;
        fusor_call *call;
        fusor_buffer in[2] = {{.data = x, .dtype = FUSOR_F32, .rank = 1, .shape = {MANY}},
                              {.data = y, .dtype = FUSOR_F32, .rank = 1, .shape = {MANY}}},
                     out[3] = {in[0], in[0], {.data = way ? &got_sum : &want_sum, .dtype = FUSOR_F32}};
        for (int i = 0; i < 2; i++) out[i].data = way ? got[i] : want[i];
        OK(fusor_compile_text(ctx, text, NULL, &exe));
        OK(fusor_executable_prepare(exe, 2, in, 3, out, &call));
        for (int run = 0; run < 5; run++) {
            memset(got, 0, sizeof got);
            got_sum = 0;
            if (run < 2) OK(fusor_executable_call(exe, 2, in, 3, out));
            else OK(fusor_call_run(call));
            const bool is_same =
                !way || (!memcmp(want, got, sizeof got) && !memcmp(&want_sum, &got_sum, sizeof got_sum));
            const unsigned after = _mm_getcsr() & ~0x3fu;
            fesetenv(FE_DFL_ENV); /* asserts compute too */
            cr_assert(is_same, "%s, %d threads, way %d, run %d: other bits", level, threads, way, run);
            cr_assert_eq(after, before, "way %d, run %d: %x, but %x before", way, run, after, before);
            set_environment(way);
        }
        fusor_tensor X = fusor_wrap(ctx, x, FUSOR_F32, FUSOR_SHAPE(MANY)),
                     Y = fusor_wrap(ctx, y, FUSOR_F32, FUSOR_SHAPE(MANY));
        OK(fusor_read(fusor_div(X, Y), got[0], sizeof got[0]));
        fesetenv(FE_DFL_ENV);
        cr_assert_eq(memcmp(want[0], got[0], sizeof got[0]), 0, "lazy, way %d: other bits", way);
        set_environment(way);
        /* Sets of buffers, and a number that is rounded where it is written. */
        memset(got, 0, sizeof got);
        got_sum = 0;
        fusor_buffer_list ins[2] = {{&in[0], 1}, {&in[1], 1}}, outs[3] = {{&out[0], 1}, {&out[1], 1}, {&out[2], 1}};
        OK(fusor_executable_call_each(exe, 1, 2, ins, 3, outs));
        float rounded[2] = {0};
        float one = 1;
        OK(fusor_read(fusor_mul(fusor_wrap(ctx, &one, FUSOR_F32, 0, NULL), fusor_f(0.7)), &rounded[0], sizeof one));
        fusor_module *m;
        fusor_executable *number;
        fusor_buffer result = {.data = &rounded[1], .dtype = FUSOR_F32};
        static const char half[] = "func @f(%x: f32) -> f32 { %y = mul(%x, 0.7) return %y }";
        fusor_buffer single = {.data = &one, .dtype = FUSOR_F32};
        OK(fusor_module_parse(ctx, NULL, half, sizeof half - 1, &m));
        OK(fusor_module_compile(m, NULL, NULL, &number));
        OK(fusor_executable_call(number, 1, &single, 1, &result));
        fesetenv(FE_DFL_ENV);
        cr_assert(!way || (!memcmp(want, got, sizeof got) && !memcmp(&want_sum, &got_sum, sizeof got_sum)),
                  "sets, way %d: other bits", way);
        cr_assert(rounded[0] == 0.7f && rounded[1] == 0.7f, "way %d: 0.7 is %a and %a", way, (double)rounded[0],
                  (double)rounded[1]);
        fusor_executable_free(number);
        fusor_module_free(m);
        fusor_call_free(call);
        fusor_executable_free(exe);
        fusor_context_free(ctx);
    }
    cr_assert(want[0][7 * 7] != 0 && want[1][49] != 0 && want[1][49] > -1e-38 && want[1][49] < 1e-38); /* subnormal */
}

Test(fpenv, the_callers_changes_nothing) {
    for (int level = 0; level < IR_LEVEL_COUNT; level++)
        if (host_has_level(level))
            for (int threads = 1; threads < 3; threads++) gives_its_bits(ir_levels[level].short_name, threads);
}

/* ---- texts ---- */
static int count_misses(void *n, const fusor_cache_answer *a) {
    *(int *)n += !a->is_hit;
    return 1;
}

/* What is printed and explained has numbers in it, and so have the kernels that a cache is asked for. */
Test(fpenv, texts_are_the_same) {
    static const char text[] = "func @f(%x: f64[N], %y: f32[N], %z: f16[N]) -> (%a: f64[N], %b: f32[N], %c: f16[N]) {\n"
                               "  %0 = mul(%x, 0.12345678901234568)\n"
                               "  %1 = add(%0, 1.2345e-310)\n"
                               "  %a = minimum(%1, 1.7976931348623157e+308)\n"
                               "  %3 = mul(%y, 0.1)\n"
                               "  %b = leaky_relu(%3, alpha=1.2345e-40)\n"
                               "  %c = mul(%z, 0.1)\n"
                               "  return %a, %b, %c\n"
                               "}\n";
    double x[3] = {1, 2, 3};
    fusor_buffer in[3] = {{.data = x, .dtype = FUSOR_F64, .rank = 1, .shape = {1}},
                          {.data = x + 1, .dtype = FUSOR_F32, .rank = 1, .shape = {1}},
                          {.data = x + 2, .dtype = FUSOR_F16, .rank = 1, .shape = {1}}},
                 out[3] = {{.data = NULL}};
    char *want[2] = {NULL}, *got[4];
    fusor_context *ctx = new_context(1);
    fusor_module *m;
    fusor_executable *exe;
    OK(fusor_profile_enable(ctx, FUSOR_PROFILE_EVENTS));
    OK(fusor_module_parse(ctx, NULL, text, sizeof text - 1, &m));
    OK(fusor_module_compile(m, NULL, NULL, &exe));
    OK(fusor_executable_call(exe, 3, in, 3, out));
    for (int way = 0; way < N_WAYS; way++) {
        int misses = 0;
        set_environment(way);
        const fusor_status s[5] = {fusor_module_print(m, &got[0]), fusor_explain_json(exe, &got[1]),
                                   fusor_profile_json(ctx, &got[2]), fusor_trace_json(ctx, &got[3]),
                                   fusor_cache_why(ctx, text, NULL, count_misses, &misses)};
        fesetenv(FE_DFL_ENV);
        for (int i = 0; i < 5; i++) OK(s[i]);
        cr_assert_eq(misses, 0, "way %d: %d kernels have another key", way, misses);
        for (int i = 0; i < 2; i++) {
            if (!way) want[i] = got[i];
            cr_assert_str_eq(got[i], want[i], "way %d", way);
        }
        for (int i = way ? 0 : 2; i < 4; i++) fusor_text_free(got[i]);
    }
    cr_assert(strstr(want[0], "mul(%x, 0.12345678901234568)"), "%s", want[0]);
    for (int i = 0; i < 2; i++) fusor_text_free(want[i]);
    for (int i = 0; i < 3; i++) fusor_buffer_free(ctx, &out[i]);
    fusor_executable_free(exe);
    fusor_module_free(m);
    fusor_context_free(ctx);
}

Test(fpenv, the_reference_evaluators_neither) {
    setenv("FUSOR_DEVICE", "reference", 1);
    gives_its_bits(NULL, 1);
}
#endif
