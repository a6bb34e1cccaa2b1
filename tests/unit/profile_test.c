/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* profile_test.c: profile.h: nothing is counted while it is off; calls, prepared calls, calls over sets and lazy
 * tensors are counted while it is on; entries outlive executables. */
#include "api_test.h"
#include "profile_advice.h"
#include "rt/limits.h"
#include "rt/trace.h"
#include <jansson.h>
#include <pthread.h>

static json_t *profile(fusor_context *ctx) {
    char *text = NULL;
    OK(fusor_profile_json(ctx, &text));
    json_t *d = json_loads(text, 0, NULL);
    cr_assert(d, "%s", text);
    cr_assert_str_eq(json_string_value(json_object_get(d, "schema")), "fusor-profile/1");
    fusor_text_free(text);
    return d;
}

static int64_t calls(fusor_context *ctx) {
    json_t *d = profile(ctx), *k;
    size_t i;
    int64_t n = 0;
    json_array_foreach(json_object_get(d, "kernels"), i, k) n += json_integer_value(json_object_get(k, "calls"));
    json_decref(d);
    return n;
}

Test(profile, counts_while_it_is_on) {
    fusor_context *ctx = new_context(0);
    fusor_executable *exe;
    OK(fusor_compile_text(
        ctx, "func @f(%a: f32[N], %b: f32[N]) -> f32[N] {\n  %s = add(%a, %b)\n  %r = relu(%s)\n  return %r\n}\n", NULL,
        &exe));
    enum { N = 1000 };
    float a[N] = {1}, b[N] = {2}, y[N];
    fusor_buffer in[2] = {{.data = a, .dtype = FUSOR_F32, .rank = 1, .shape = {N}},
                          {.data = b, .dtype = FUSOR_F32, .rank = 1, .shape = {N}}};
    fusor_buffer out = {.data = y, .dtype = FUSOR_F32, .rank = 1, .shape = {N}};
    OK(fusor_executable_call(exe, 2, in, 1, &out));
    cr_assert_eq(calls(ctx), 0);
    OK(fusor_profile_enable(ctx, 1));
    for (int i = 0; i < 3; i++) OK(fusor_executable_call(exe, 2, in, 1, &out));
    fusor_call *call;
    OK(fusor_executable_prepare(exe, 2, in, 1, &out, &call));
    OK(fusor_call_run(call));
    fusor_call_free(call);
    json_t *d = profile(ctx), *k = json_array_get(json_object_get(d, "kernels"), 0);
    cr_assert_eq(json_array_size(json_object_get(d, "kernels")), 1);
    cr_assert_eq(json_integer_value(json_object_get(k, "calls")), 4);
    cr_assert_eq(json_integer_value(json_object_get(k, "bytes")), 4 * 3 * N * 4);
    cr_assert_str_eq(json_string_value(json_object_get(k, "function")), "f");
    cr_assert_str_eq(json_string_value(json_object_get(k, "kind")), "map");
    cr_assert_str_eq(json_string_value(json_object_get(k, "ops")), "add relu");
    cr_assert(json_integer_value(json_object_get(k, "ns")) >= 4 * json_integer_value(json_object_get(k, "min_ns")));
    const double median = (double)json_integer_value(json_object_get(k, "median_ns"));
    cr_assert_float_eq(json_number_value(json_object_get(k, "gb_s")) * median, 3 * N * 4, 1);
    json_decref(d);
    fusor_buffer_list lists[2] = {{in, 1}, {in + 1, 1}}, to = {&out, 1};
    OK(fusor_executable_call_each(exe, 1, 2, lists, 1, &to));
    cr_assert_eq(calls(ctx), 5);
    OK(fusor_profile_enable(ctx, 0));
    cr_assert_eq(calls(ctx), 5);
    /* calls that are repeated without looking at anything look at this */
    OK(fusor_executable_prepare(exe, 2, in, 1, &out, &call));
    for (int i = 0; i < 3; i++) {
        OK(fusor_call_run(call));
        OK(fusor_executable_call(exe, 2, in, 1, &out));
    }
    OK(fusor_profile_enable(ctx, 1)); /* from zero */
    for (int i = 0; i < 3; i++) {
        OK(fusor_call_run(call));
        OK(fusor_executable_call(exe, 2, in, 1, &out));
    }
    cr_assert_eq(calls(ctx), 6);
    OK(fusor_profile_enable(ctx, 0));
    OK(fusor_call_run(call));
    cr_assert_eq(calls(ctx), 6);
    fusor_call_free(call);
    fusor_executable_free(exe);
    float z[N];
    OK(fusor_read(fusor_exp(fusor_wrap_const(ctx, a, FUSOR_F32, FUSOR_SHAPE(N))), z, sizeof z));
    cr_assert_eq(calls(ctx), 6);
    OK(fusor_profile_enable(ctx, 1)); /* from zero */
    cr_assert_eq(calls(ctx), 0);
    OK(fusor_read(fusor_exp(fusor_wrap_const(ctx, a, FUSOR_F32, FUSOR_SHAPE(N))), z, sizeof z));
    cr_assert_eq(calls(ctx), 1);
    fusor_context_free(ctx);
}

/* More steps than the table has: counted as dropped, and nothing else happens. */
Test(profile, a_full_table_drops) {
    fusor_context *ctx = new_context(0);
    float a[4] = {1, 2, 3, 4}, y[4];
    fusor_buffer in = {.data = a, .dtype = FUSOR_F32, .rank = 1, .shape = {4}},
                 out = {.data = y, .dtype = FUSOR_F32, .rank = 1, .shape = {4}};
    OK(fusor_profile_enable(ctx, 1));
    for (int i = 0; i < 1100; i++) {
        fusor_executable *exe;
        OK(fusor_compile_text(ctx, "func @f(%a: f32[N]) -> f32[N] {\n  %y = neg(%a)\n  return %y\n}\n", NULL, &exe));
        OK(fusor_executable_call(exe, 1, &in, 1, &out));
        fusor_executable_free(exe);
    }
    json_t *d = profile(ctx);
    cr_assert_eq(json_array_size(json_object_get(d, "kernels")), 1024);
    cr_assert_eq(json_integer_value(json_object_get(d, "dropped")), 1100 - 1024);
    json_decref(d);
    fusor_context_free(ctx);
}

/* A slot that a thread fills while the trace starts anew is passed over, and what it holds then is of no time. */
Test(profile, a_trace_starts_anew_while_it_is_filled) {
    rt_trace *t = rt_trace_new();
    rt_event x;
    cr_assert(t);
    rt_trace_add(t, RT_EVENT_CALL, "before", 1, 2);
    cr_assert(rt_trace_read(t, 0, &x) && strcmp(x.text, "before") == 0);
    const uint32_t generation = atomic_load(&t->slot[0].state);
    atomic_store(&t->slot[1].state, RT_TRACE_HELD);
    atomic_store(&t->used, 2);
    rt_trace_reset(t);
    cr_assert_eq(rt_trace_used(t), 0);
    cr_assert_not(rt_trace_read(t, 0, &x));
    rt_trace_add(t, RT_EVENT_CALL, "first", 3, 4);
    rt_trace_add(t, RT_EVENT_CALL, "second", 5, 6);
    atomic_store(&t->slot[1].state, generation);
    cr_assert_eq(rt_trace_used(t), 3);
    cr_assert(rt_trace_read(t, 0, &x) && strcmp(x.text, "first") == 0);
    cr_assert_not(rt_trace_read(t, 1, &x));
    cr_assert(rt_trace_read(t, 2, &x) && strcmp(x.text, "second") == 0);
    rt_trace_free(t);
}

static atomic_bool is_over;
static void *call_on(void *exe) {
    float a[4] = {1, 2, 3, 4}, y[4];
    fusor_buffer in = {.data = a, .dtype = FUSOR_F32, .rank = 1, .shape = {4}},
                 out = {.data = y, .dtype = FUSOR_F32, .rank = 1, .shape = {4}};
    while (!atomic_load(&is_over))
        if (fusor_executable_call(exe, 1, &in, 1, &out) != FUSOR_OK) return exe;
    return NULL;
}

/* For builds with --enable-tsan. */
Test(profile, is_switched_while_calls_run) {
    fusor_context *ctx = new_context(1);
    fusor_executable *exe;
    pthread_t thread[2];
    OK(fusor_compile_text(ctx, "func @f(%a: f32[N]) -> f32[N] {\n  %y = neg(%a)\n  return %y\n}\n", NULL, &exe));
    for (int i = 0; i < 2; i++) cr_assert_eq(pthread_create(&thread[i], NULL, call_on, exe), 0);
    for (int i = 0; i < 300; i++) {
        char *text = NULL;
        OK(fusor_profile_enable(ctx, i % 3));
        if (i % 50) continue;
        OK(fusor_trace_json(ctx, &text));
        fusor_text_free(text);
    }
    atomic_store(&is_over, true);
    void *failed;
    for (int i = 0; i < 2; i++) cr_assert(pthread_join(thread[i], &failed) == 0 && !failed);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

/* Limits that were measured at a bad moment do not last: a kernel of any type that is faster has them measured again,
 * once; and others' work does not make a team slower than one thread of it. */
Test(profile, bad_limits_are_measured_again) {
    const rt_limits good = rt_limits_get("", 1, true, false);
    cr_assert(good.is_known && !good.is_doubted);
    rt_limits l = good;
    for (int i = 0; i < RT_LIMIT_TYPES; i++) l.peak[i] /= 1000;
    rt_limits bad = l;
    rt_limits_beside(&l, "", true, FUSOR_F64, 2 * bad.peak[RT_LIMIT_F64], false);
    cr_assert(l.is_doubted);
    for (int i = 0; i < RT_LIMIT_TYPES; i++) cr_expect_geq(l.peak[i], good.peak[i] / 100);
    const rt_limits known = rt_limits_get("", 1, true, false);
    cr_assert(known.is_doubted);
    l = bad; /* once: now what the process knows */
    rt_limits_beside(&l, "", true, FUSOR_F16, 2 * rt_limits_peak(&bad, FUSOR_F16), false);
    for (int i = 0; i < RT_LIMIT_TYPES; i++) cr_expect_eq(l.peak[i], known.peak[i]);
}

/* A kernel of products is not told of functions that it has not. */
Test(profile, advice_is_of_the_kind_of_kernel) {
    static const char *const kinds[] = {"contract", "window", "attention"};
    for (int i = 0; i < 3; i++)
        for (double share = .2; share < 1; share += .3) {
            const profile_facts f = {kinds[i], "relu", "arithmetic", share, 1e6, 1e6, 1};
            cr_expect(!strstr(profile_advice(&f), "functions"), "%s: %s", kinds[i], profile_advice(&f));
        }
    for (int i = 0; i < 3; i++) {
        const profile_facts near = {kinds[i], "relu", "arithmetic", 1.05, 1e6, 1e6, 1},
                            past = {kinds[i], "relu", "arithmetic", 116, 1e6, 1e6, 1};
        cr_expect(strstr(profile_advice(&near), "near the peak"), "%s", profile_advice(&near));
        cr_expect(strstr(profile_advice(&past), "fusor info --measure"), "%s", profile_advice(&past));
    }
    cr_expect(strstr(profile_advice(&(profile_facts){"map", "exp", "arithmetic", .5, 1e6, 1e6, 1}), "functions"));
}
