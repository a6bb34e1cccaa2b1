/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* device_api_test.c: devices in the C API, over the fake driver: contexts and their errors, memory there, copies
 * between any two places, calls with buffers of both kinds. */
#include "device_api.h"
#include <unistd.h>

TestSuite(device_api, .timeout = 120);

static const char axpy[] = "func @axpy(%a: f32[], %x: f32[N], %y: f32[N]) -> f32[N] {\n"
                           "  %m = mul(%a, %x)\n  %r = add(%m, %y)\n  return %r\n}\n"
                           "func @step(%p: f32[N], %g: f32[N]) -> (%q: f32[N] alias %p) {\n"
                           "  %q = sub(%p, %g)\n  return %q\n}\n";

/* ---- contexts ---- */
Test(device_api, which_device_there_is) {
    ONLY_ON_THE_FAKE_DRIVER();
    fusor_context *ctx = device_context("cuda");
    int32_t device = -1;
    fusor_device_info info = FUSOR_DEVICE_INFO_INIT;
    OK(fusor_context_device(ctx, &device));
    cr_assert_eq(device, 1);
    cr_assert_eq(fusor_device_count(), 2);
    OK(fusor_device_describe(2, &info));
    cr_assert(info.name[0] && info.compute_capability == 90 && info.memory_bytes > 0 &&
              strcmp(info.target, "sm_90a") == 0);
    OK(fusor_device_describe(0, &info));
    cr_assert(strcmp(info.name, "CPU") == 0 && info.multiprocessors >= 1);
    FAILS(fusor_device_describe(3, &info), FUSOR_ERROR_DEVICE, "has 2");
    FAILS(fusor_device_describe(-1, &info), FUSOR_ERROR_DEVICE, "device -1");
    info.size = offsetof(fusor_device_info, target); /* of an older header: no more is written */
    memset(info.target, 'x', sizeof info.target);
    OK(fusor_device_describe(1, &info));
    cr_assert_eq(info.target[0], 'x');
    fusor_context_free(ctx);
    ctx = device_context("cuda:1");
    OK(fusor_context_device(ctx, &device));
    cr_assert_eq(device, 2);
    fusor_context_free(ctx);
    ctx = device_context("cpu");
    OK(fusor_context_device(ctx, &device));
    cr_assert_eq(device, 0);
    OK(fusor_context_wait(ctx));
    fusor_context_free(ctx);
}

Test(device_api, names_that_are_none) {
    ONLY_ON_THE_FAKE_DRIVER();
    static const struct {
        const char *name, *message;
        fusor_status status;
    } cases[] = {
        {"cudda", "did you mean 'cuda'", FUSOR_ERROR_ARGUMENT},
        {"gpu", "did you mean 'cuda:0'", FUSOR_ERROR_ARGUMENT},
        {"cuda:", "did you mean 'cuda:0'", FUSOR_ERROR_ARGUMENT},
        {"cuda:-1", "expected cpu, cuda, cuda:K, auto or reference", FUSOR_ERROR_ARGUMENT},
        {"cuda:1x", "expected cpu", FUSOR_ERROR_ARGUMENT},
        {"quantum", "expected cpu", FUSOR_ERROR_ARGUMENT},
        {"cuda:2", "the driver has 2", FUSOR_ERROR_DEVICE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fusor_context *ctx = device_context(cases[i].name);
        fusor_executable *exe = NULL;
        int32_t device = -1;
        FAILS(fusor_compile_text(ctx, axpy, NULL, &exe), cases[i].status, cases[i].message);
        FAILS(fusor_context_device(ctx, &device), cases[i].status, cases[i].message);
        fusor_buffer b = {.dtype = FUSOR_F32, .rank = 1, .shape = {4}, .device = 1};
        FAILS(fusor_buffer_new(ctx, &b), cases[i].status, cases[i].message);
        cr_assert(!exe && device == -1 && !b.data);
        fusor_context_free(ctx);
    }
}

Test(device_api, no_driver) {
    (void)setenv("FUSOR_CUDA_LIB", "/nowhere/libcuda.so.1", 1);
    fusor_context *ctx = device_context("cuda");
    fusor_executable *exe;
    FAILS(fusor_compile_text(ctx, axpy, NULL, &exe), FUSOR_ERROR_DEVICE, "/nowhere/libcuda.so.1");
    cr_assert_eq(fusor_device_count(), 0);
    cr_assert(strstr(fusor_error_message(NULL), "/nowhere/libcuda.so.1"));
    fusor_context_free(ctx);
}

Test(device_api, targets) {
    ONLY_ON_THE_FAKE_DRIVER();
    (void)setenv("FAKECUDA_CC", "80", 1);
    static const struct {
        const char *target, *message;
    } cases[] = {{"sm_70", NULL},
                 {"sm_80", NULL},
                 {"sm_90a", "its own is sm_80"},
                 {"v3", "its own is sm_80"},
                 {"sm_8", "sm_80"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
        fusor_executable *exe = NULL;
        fusor_context_free(device_context("cuda")); /* the environment */
        o.cache_dir = "";
        o.device = "cuda";
        o.target = cases[i].target;
        fusor_context *ctx = fusor_context_new(&o);
        fusor_status status = fusor_compile_text(ctx, axpy, NULL, &exe);
        if (cases[i].message) cr_assert(status != FUSOR_OK && strstr(fusor_error_message(ctx), cases[i].message));
        else cr_assert_eq(status, FUSOR_OK, "%s", fusor_error_message(ctx));
        fusor_executable_free(exe);
        fusor_context_free(ctx);
    }
}

/* ---- memory ---- */
Test(device_api, memory) {
    ONLY_ON_THE_FAKE_DRIVER();
    fusor_context *ctx = device_context("cuda");
    float x[6] = {1, 2, 3, 4, 5, 6};
    fusor_buffer b = HOST(x, FUSOR_F32, 2, 3), d = there(ctx, &b), bad = d;
    cr_assert(d.data && d.data != x && d.device == 1);
    holds(ctx, &d, x);
    fusor_buffer_free(ctx, &d);
    cr_assert(!d.data);
    bad = (fusor_buffer){.dtype = FUSOR_F32, .rank = 1, .shape = {4}, .device = 2};
    FAILS(fusor_buffer_new(ctx, &bad), FUSOR_ERROR_DEVICE, "device 2");
    bad.device = -1;
    FAILS(fusor_buffer_new(ctx, &bad), FUSOR_ERROR_DEVICE, "device -1");
    bad = (fusor_buffer){.dtype = FUSOR_F32, .rank = 1, .shape = {4}, .flags = FUSOR_STRIDED, .device = 1};
    FAILS(fusor_buffer_new(ctx, &bad), FUSOR_ERROR_ARGUMENT, "strides");
    bad = (fusor_buffer){.dtype = 99, .device = 1};
    FAILS(fusor_buffer_new(ctx, &bad), FUSOR_ERROR_ARGUMENT, "dtype 99");
    bad = (fusor_buffer){.dtype = FUSOR_F32, .rank = 1, .shape = {-4}, .device = 1};
    FAILS(fusor_buffer_new(ctx, &bad), FUSOR_ERROR_SHAPE, "negative");
    bad = (fusor_buffer){.dtype = FUSOR_F32, .rank = 2, .shape = {INT64_MAX, 4}, .device = 1};
    FAILS(fusor_buffer_new(ctx, &bad), FUSOR_ERROR_SHAPE, "overflow");
    bad = (fusor_buffer){.dtype = FUSOR_U8, .rank = 1, .shape = {(int64_t)1 << 50}, .device = 1};
    FAILS(fusor_buffer_new(ctx, &bad), FUSOR_ERROR_MEMORY, "");
    bad = (fusor_buffer){.dtype = FUSOR_U8, .rank = 1, .device = 1};
    OK(fusor_buffer_new(ctx, &bad)); /* no elements */
    cr_assert(bad.data);
    b = (fusor_buffer){.dtype = FUSOR_F32, .rank = 1, .shape = {4}};
    OK(fusor_buffer_new(ctx, &b)); /* the CPU's */
    ((float *)b.data)[3] = 1;
    fusor_buffer_free(ctx, &b);
    fusor_buffer_free(ctx, &(fusor_buffer){.data = x}); /* not fusor's: left alone */
    fusor_context_free(ctx);                            /* `bad` goes with it, and what was kept for reuse */
    cr_assert_eq(fake_live("memory"), 0, "%ld blocks stay", fake_live("memory"));
    cr_assert_eq(fake_live("stream"), 0);
}

Test(device_api, the_cpu_has_no_device_memory) {
    fusor_context *ctx = device_context("cpu");
    fusor_buffer b = {.dtype = FUSOR_F32, .rank = 1, .shape = {4}, .device = 1};
    FAILS(fusor_buffer_new(ctx, &b), FUSOR_ERROR_DEVICE, "runs on the CPU");
    FAILS(fusor_status_of(fusor_adopt(ctx, &(fusor_buffer){.data = &b, .dtype = FUSOR_F32, .device = 1}, NULL, NULL)),
          FUSOR_ERROR_DEVICE, "runs on the CPU");
    fusor_context_free(ctx);
}

/* ---- copies ---- */
/* A strided view in memory of its own: rows of 7 in 11, every second column, backwards. */
enum { ROWS = 3, COLUMNS = 4 };
static fusor_buffer view(float *memory, int kind) {
    fusor_buffer b = HOST(memory, FUSOR_F32, ROWS, COLUMNS);
    if (kind == 0) return b;
    b.flags = FUSOR_STRIDED;
    b.stride[0] = kind == 2 ? 1 : 11;
    b.stride[1] = kind == 1 ? 1 : kind == 2 ? ROWS : 2;
    if (kind == 4) b.data = memory + 10, b.stride[1] = -2;
    return b;
}

Test(device_api, copies_between_any_two_places) {
    ONLY_ON_THE_FAKE_DRIVER();
    fusor_context *ctx = device_context("cuda"), *other = device_context("cuda:1");
    float from[64], to[64], back[64];
    for (int kind_from = 0; kind_from < 5; kind_from++)
        for (int kind_to = 0; kind_to < 5; kind_to++)
            for (int place = 0; place < 9; place++) {
                int32_t a = place % 3, b = place / 3;
                for (int i = 0; i < 64; i++) from[i] = (float)i, to[i] = -1;
                fusor_buffer source = view(from, kind_from), dest = view(to, kind_to);
                fusor_buffer all_from = HOST(from, FUSOR_F32, 64), all_to = HOST(to, FUSOR_F32, 64), there_from,
                             there_to;
                there_from = there_to = HOST(NULL, FUSOR_F32, 64);
                there_from.device = a;
                there_to.device = b;
                fusor_context *ctx_from = a == 2 ? other : ctx, *ctx_to = b == 2 ? other : ctx;
                OK(fusor_buffer_new(ctx_from, &there_from));
                OK(fusor_buffer_new(ctx_to, &there_to));
                OK(fusor_buffer_copy(ctx_from, &all_from, &there_from));
                OK(fusor_buffer_copy(ctx_to, &all_to, &there_to));
                OK(fusor_context_wait(other));
                source.device = a;
                source.data = (float *)there_from.data + ((float *)source.data - from);
                dest.device = b;
                dest.data = (float *)there_to.data + ((float *)dest.data - to);
                OK(fusor_buffer_copy(ctx, &source, &dest));
                OK(fusor_context_wait(ctx));
                fusor_buffer all_back = HOST(back, FUSOR_F32, 64);
                OK(fusor_buffer_copy(ctx_to, &there_to, &all_back));
                int n_kept = 0;
                const fusor_buffer plain_from = view(from, kind_from), plain_to = view(back, kind_to);
                for (int r = 0; r < ROWS; r++)
                    for (int c = 0; c < COLUMNS; c++) {
                        const int64_t i = kind_from ? r * plain_from.stride[0] + c * plain_from.stride[1]
                                                    : r * COLUMNS + c,
                                      j = kind_to ? r * plain_to.stride[0] + c * plain_to.stride[1] : r * COLUMNS + c;
                        cr_assert_eq(((float *)plain_to.data)[j], ((float *)plain_from.data)[i],
                                     "from %d on %d to %d on %d", kind_from, a, kind_to, b);
                    }
                for (int i = 0; i < 64; i++) n_kept += back[i] == -1;
                cr_assert_eq(n_kept, 64 - ROWS * COLUMNS, "what lies between was written");
                fusor_buffer_free(ctx_from, &there_from);
                fusor_buffer_free(ctx_to, &there_to);
            }
    fusor_context_free(other);
    fusor_context_free(ctx);
}

Test(device_api, copies_of_many_runs_are_few_transfers) {
    ONLY_ON_THE_FAKE_DRIVER();
    fusor_context *ctx = device_context("cuda");
    enum { N = 100 };
    float *x = malloc(N * N * sizeof *x), *y = malloc(N * N * sizeof *y);
    for (int i = 0; i < N * N; i++) x[i] = (float)i;
    fusor_buffer b = HOST(x, FUSOR_F32, N, N), d = there(ctx, &b), turned = d, host = HOST(y, FUSOR_F32, N, N);
    turned.flags = FUSOR_STRIDED;
    turned.stride[0] = 1;
    turned.stride[1] = N;
    const long before = downloads() + uploads();
    OK(fusor_buffer_copy(ctx, &turned, &host));
    for (int i = 0; i < N * N; i++) cr_assert_eq(y[i], x[i % N * N + i / N]);
    OK(fusor_buffer_copy(ctx, &b, &turned));
    OK(fusor_buffer_copy(ctx, &d, &host));
    for (int i = 0; i < N * N; i++) cr_assert_eq(y[i], x[i % N * N + i / N]);
    cr_assert_leq(downloads() + uploads() - before, 8);
    free(x);
    free(y);
    fusor_context_free(ctx);
}

Test(device_api, copies_that_are_refused) {
    fusor_context *ctx = device_context("cuda");
    float x[8] = {0}, y[8];
    fusor_buffer a = HOST(x, FUSOR_F32, 8), b = HOST(y, FUSOR_F32, 8), c = b;
    FAILS(fusor_buffer_copy(ctx, NULL, &b), FUSOR_ERROR_ARGUMENT, "NULL");
    c.dtype = FUSOR_I32;
    FAILS(fusor_buffer_copy(ctx, &a, &c), FUSOR_ERROR_TYPE, "f32 but to is i32");
    c = HOST(y, FUSOR_F32, 4, 2);
    FAILS(fusor_buffer_copy(ctx, &a, &c), FUSOR_ERROR_SHAPE, "rank 1");
    c = HOST(y, FUSOR_F32, 7);
    FAILS(fusor_buffer_copy(ctx, &a, &c), FUSOR_ERROR_SHAPE, "dim 0 is 8 in from but 7");
    c = b;
    c.flags = FUSOR_READONLY;
    FAILS(fusor_buffer_copy(ctx, &a, &c), FUSOR_ERROR_ARGUMENT, "read only");
    c.flags = 0;
    c.data = NULL;
    FAILS(fusor_buffer_copy(ctx, &a, &c), FUSOR_ERROR_ARGUMENT, "NULL");
    c = b;
    c.flags = FUSOR_STRIDED;
    FAILS(fusor_buffer_copy(ctx, &a, &c), FUSOR_ERROR_OVERLAP, "overlaps itself");
    a = HOST(x, FUSOR_F32, 4);
    c = HOST(x + 2, FUSOR_F32, 4);
    FAILS(fusor_buffer_copy(ctx, &a, &c), FUSOR_ERROR_OVERLAP, "share bytes");
    OK(fusor_buffer_copy(ctx, &a, &a));
    c.device = 9;
    FAILS(fusor_buffer_copy(ctx, &a, &c), FUSOR_ERROR_DEVICE, "cuda:8");
    c.device = -3;
    FAILS(fusor_buffer_copy(ctx, &a, &c), FUSOR_ERROR_DEVICE, "device -3");
    fusor_context_free(ctx);
}

/* ---- calls ---- */
Test(device_api, buffers_of_both_kinds_in_one_call) {
    ONLY_ON_THE_FAKE_DRIVER();
    fusor_context *ctx = device_context("cuda");
    fusor_executable *exe = NULL;
    float a = 2, x[5] = {1, 2, 3, 4, 5}, y[5] = {10, 20, 30, 40, 50}, z[5], want[5] = {12, 24, 36, 48, 60};
    OK(fusor_compile_text(ctx, axpy, "axpy", &exe));
    fusor_buffer hx = HOST(x, FUSOR_F32, 5), hy = HOST(y, FUSOR_F32, 5), dx = there(ctx, &hx), dy = there(ctx, &hy);
    fusor_buffer scalar = {.data = &a, .dtype = FUSOR_F32};
    for (int k = 0; k < 8; k++) {
        fusor_buffer in[3] = {scalar, k & 1 ? dx : hx, k & 2 ? dy : hy}, out = HOST(k & 4 ? NULL : z, FUSOR_F32, 5);
        memset(z, 0, sizeof z);
        out.device = k & 4 ? 1 : 0;
        const long waits = downloads();
        OK(fusor_executable_call(exe, 3, in, 1, &out));
        cr_assert_eq(downloads() - waits, k & 4 ? 0 : 1);
        cr_assert_eq(out.device, k & 4 ? 1 : 0);
        holds(ctx, &out, want);
        if (k & 4) fusor_buffer_free(ctx, &out);
    }
    fusor_buffer out = {0}; /* nothing said: memory of the CPU */
    OK(fusor_executable_call(exe, 3, (fusor_buffer[]){scalar, dx, dy}, 1, &out));
    cr_assert(out.device == 0 && ((float *)out.data)[4] == 60);
    fusor_buffer_free(ctx, &out);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

Test(device_api, results_follow_in_order) {
    ONLY_ON_THE_FAKE_DRIVER();
    fusor_context *ctx = device_context("cuda");
    fusor_executable *step = NULL;
    float p[4] = {100, 200, 300, 400}, g[4] = {1, 2, 3, 4}, want[4] = {90, 180, 270, 360};
    OK(fusor_compile_text(ctx, axpy, "step", &step));
    fusor_buffer hp = HOST(p, FUSOR_F32, 4), hg = HOST(g, FUSOR_F32, 4), dp = there(ctx, &hp), dg = there(ctx, &hg);
    const long waits = downloads() + fake_count("cuStreamSynchronize"), sent = uploads();
    for (int i = 0; i < 10; i++) {
        fusor_buffer out = {.device = 1};
        OK(fusor_executable_call(step, 2, (fusor_buffer[]){dp, dg}, 1, &out));
        cr_assert(out.data == dp.data && out.device == 1);
    }
    cr_assert_eq(downloads() + fake_count("cuStreamSynchronize"), waits, "a call waited");
    cr_assert_eq(uploads(), sent);
    fusor_buffer_free(ctx, &dg); /* still used by what was asked for: given back behind it */
    holds(ctx, &dp, want);
    OK(fusor_context_wait(ctx));
    fusor_executable_free(step);
    fusor_context_free(ctx);
}

Test(device_api, prepared_calls_and_sets) {
    fusor_context *ctx = device_context("cuda");
    fusor_executable *step = NULL;
    fusor_call *call = NULL;
    float p[2][3] = {{10, 20, 30}, {40, 50, 60}}, g[3] = {1, 2, 3}, want[2][3] = {{8, 16, 24}, {39, 48, 57}};
    OK(fusor_compile_text(ctx, axpy, "step", &step));
    fusor_buffer hp[2] = {HOST(p[0], FUSOR_F32, 3), HOST(p[1], FUSOR_F32, 3)}, hg = HOST(g, FUSOR_F32, 3);
    fusor_buffer dp[2] = {there(ctx, &hp[0]), there(ctx, &hp[1])}, dg = there(ctx, &hg),
                 out[2] = {{.device = 1}, {.device = 1}};
    OK(fusor_executable_prepare(step, 2, (fusor_buffer[]){dp[0], dg}, 1, out, &call));
    OK(fusor_call_run(call));
    fusor_call_free(call);
    out[0] = (fusor_buffer){.device = 1};
    OK(fusor_executable_call_each(step, 2, 2, (fusor_buffer_list[]){{dp, 2}, {&dg, 1}}, 1,
                                  &(fusor_buffer_list){out, 2}));
    holds(ctx, &dp[0], want[0]);
    holds(ctx, &dp[1], want[1]);
    fusor_executable_free(step);
    fusor_context_free(ctx);
}

Test(device_api, calls_are_checked_by_the_reference_evaluator) {
    (void)setenv("FUSOR_CHECK", "1", 1);
    fusor_context *ctx = device_context("cuda");
    fusor_executable *exe = NULL;
    float a = 2, x[3] = {1, 2, 3}, want[3] = {3, 6, 9};
    OK(fusor_compile_text(ctx, axpy, "axpy", &exe));
    fusor_buffer hx = HOST(x, FUSOR_F32, 3), dx = there(ctx, &hx), out = {.device = 1};
    OK(fusor_executable_call(exe, 3, (fusor_buffer[]){{.data = &a, .dtype = FUSOR_F32}, dx, hx}, 1, &out));
    holds(ctx, &out, want);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

Test(device_api, errors_of_the_device_come_with_the_wait) {
    ONLY_ON_THE_FAKE_DRIVER();
    (void)setenv("FAKECUDA_FAIL", "cuLaunchKernel:1=700@", 1);
    (void)setenv("FAKECUDA_QUIET", "1", 1);
    fusor_context *ctx = device_context("cuda");
    fusor_executable *exe = NULL;
    float p[3] = {1, 2, 3}, g[3] = {0};
    OK(fusor_compile_text(ctx, axpy, "step", &exe));
    fusor_buffer hp = HOST(p, FUSOR_F32, 3), hg = HOST(g, FUSOR_F32, 3), dp = there(ctx, &hp), out = {.device = 1};
    OK(fusor_executable_call(exe, 2, (fusor_buffer[]){dp, hg}, 1, &out));
    FAILS(fusor_context_wait(ctx), FUSOR_ERROR_DEVICE, "ILLEGAL_ADDRESS");
    FAILS(fusor_executable_call(exe, 2, (fusor_buffer[]){dp, hg}, 1, &out), FUSOR_ERROR_DEVICE, "");
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}
