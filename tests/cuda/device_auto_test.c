/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* device_auto_test.c: device "auto" over the fake driver: the results are right on whichever side a call runs, wherever
 * its buffers are; histories that were written beforehand decide the side; without a driver it is the CPU. */
#include "device_api.h"
#include "lazy.h"
#include "rt/select.h"
#include <sys/stat.h>
#include <unistd.h>

TestSuite(device_auto, .timeout = 120);

static const char program[] =
    "func @step(%p: f32[N], %g: f32[N]) -> (%q: f32[N] alias %p, %s: f32[N]) {\n"
    "  %q = sub(%p, %g)\n  %s = add(%g, %g)\n  return %q, %s\n}\n"
    "func @dense(%x: f32[B, 3], const %w: f32[3, 2]) -> f32[B, 2] { %y = matmul(%x, %w) return %y }\n";
enum { N = 7 };

static long launches(void) { return fake_count("cuLaunchKernel"); }

Test(device_auto, results_are_right_on_both_sides) {
    fusor_context *ctx = device_context("auto");
    fusor_executable *exe = NULL;
    int32_t device = -1;
    OK(fusor_context_device(ctx, &device));
    cr_assert_eq(device, 1);
    OK(fusor_compile_text(ctx, program, "step", &exe));
    for (int round = 0; round < 40; round++)
        for (int place = 0; place < 8; place++) {
            float p[N], g[N], s[N], want_p[N], want_s[N];
            for (int i = 0; i < N; i++) {
                p[i] = (float)(10 * i), g[i] = (float)i, s[i] = -1;
                want_p[i] = p[i] - g[i], want_s[i] = g[i] + g[i];
            }
            fusor_buffer hp = HOST(p, FUSOR_F32, N), hg = HOST(g, FUSOR_F32, N), in[2], out[2] = {{0}, {0}};
            in[0] = place & 1 ? there(ctx, &hp) : hp;
            in[1] = place & 2 ? there(ctx, &hg) : hg;
            if (place & 4) out[1].device = 1;
            else out[1] = HOST(s, FUSOR_F32, N);
            OK(fusor_executable_call(exe, 2, in, 2, out));
            cr_assert(out[0].data == in[0].data && out[0].device == in[0].device);
            cr_assert_eq(out[1].device, place & 4 ? 1 : 0);
            holds(ctx, &out[0], want_p);
            holds(ctx, &out[1], want_s);
            if (place & 4) fusor_buffer_free(ctx, &out[1]);
            if (place & 1) fusor_buffer_free(ctx, &in[0]);
            if (place & 2) fusor_buffer_free(ctx, &in[1]);
        }
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

Test(device_auto, small_calls_stay_on_the_cpu) {
    ONLY_ON_THE_FAKE_DRIVER();
    fusor_context *ctx = device_context("auto");
    fusor_executable *exe = NULL;
    float p[N] = {0}, g[N] = {0}, s[N];
    OK(fusor_compile_text(ctx, program, "step", &exe));
    fusor_buffer in[2] = {HOST(p, FUSOR_F32, N), HOST(g, FUSOR_F32, N)}, out[2] = {in[0], HOST(s, FUSOR_F32, N)};
    for (int i = 0; i < 3000; i++) OK(fusor_executable_call(exe, 2, in, 2, out));
    cr_assert_eq(launches(), 0); /* the model finds it a hundred times slower there: it is not even tried */
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

Test(device_auto, what_was_measured_decides) {
    ONLY_ON_THE_FAKE_DRIVER();
    char dir[] = "/tmp/fusor-auto.XXXXXX", file[64];
    cr_assert(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/select", dir);
    enum { BIG = 4096 };
    static float p[BIG], g[BIG], s[BIG];
    for (int pass = 0; pass < 2; pass++) {
        fusor_context_free(device_context("auto")); /* the environment */
        fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
        o.device = "auto";
        o.cache_dir = dir;
        fusor_context *ctx = fusor_context_new(&o);
        fusor_executable *exe = NULL;
        OK(fusor_compile_text(ctx, program, "step", &exe));
        fusor_buffer hp = HOST(p, FUSOR_F32, BIG), hg = HOST(g, FUSOR_F32, BIG), hs = HOST(s, FUSOR_F32, BIG);
        fusor_buffer in[2] = {there(ctx, &hp), there(ctx, &hg)}, out[2] = {in[0], there(ctx, &hs)};
        /* Data on the device: the model takes the GPU, until there is a measure of it. */
        const long before = launches();
        for (int i = 0; i < 20; i++) OK(fusor_executable_call(exe, 2, in, 2, out));
        OK(fusor_context_wait(ctx));
        if (pass == 0) cr_assert_geq(launches() - before, RT_SELECT_ENOUGH);
        fusor_executable_free(exe);
        fusor_context_free(ctx);
        struct stat st;
        cr_assert_eq(stat(file, &st), 0, "what was learned is not kept");
    }
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    cr_assert_eq(system(command), 0);
}

Test(device_auto, bound_parameters_and_prepared_calls) {
    ONLY_ON_THE_FAKE_DRIVER();
    fusor_context *ctx = device_context("auto");
    fusor_executable *exe = NULL, *bound = NULL;
    fusor_call *call = NULL;
    float x[6] = {1, 2, 3, 4, 5, 6}, w[6] = {1, 0, 0, 1, 1, 1}, y[4], want[4] = {4, 5, 10, 11};
    OK(fusor_compile_text(ctx, program, "dense", &exe));
    fusor_buffer hx = HOST(x, FUSOR_F32, 2, 3), hw = HOST(w, FUSOR_F32, 3, 2), out = HOST(y, FUSOR_F32, 2, 2);
    OK(fusor_executable_bind(exe, 1, (const char *[]){"w"}, &hw, &bound));
    OK(fusor_executable_call(bound, 1, &hx, 1, &out));
    holds(ctx, &out, want);
    fusor_buffer dx = there(ctx, &hx), there_out = {.device = 1};
    OK(fusor_executable_call(bound, 1, &dx, 1, &there_out));
    holds(ctx, &there_out, want);
    const long before = launches();
    fusor_buffer made = {.device = 1}, shape = {0};
    OK(fusor_executable_infer(bound, 1, &dx, 1, &shape));
    cr_assert(shape.rank == 2 && shape.shape[0] == 2);
    OK(fusor_executable_prepare(bound, 1, &dx, 1, &made, &call)); /* its buffers are there, so it runs there */
    OK(fusor_call_run(call));
    holds(ctx, &made, want);
    cr_assert_gt(launches(), before);
    fusor_call_free(call);
    memset(y, 0, sizeof y);
    OK(fusor_executable_prepare(bound, 1, &hx, 1, &out, &call));
    OK(fusor_call_run(call));
    holds(ctx, &out, want);
    fusor_call_free(call);
    fusor_executable_free(exe);
    fusor_executable_free(bound);
    fusor_context_free(ctx);
}

/* Each side has a plan of its own, from the program as it was written: a CPU makes the phases of a strided transposed
 * convolution in one kernel, which no GPU has. */
Test(device_auto, each_side_has_its_own_form_of_a_program) {
    ONLY_ON_THE_FAKE_DRIVER();
    static const char up[] = "func @up(%x: f32[1, 2, 3, 3], %w: f32[2, 8, 4, 4]) -> f32[1, 8, 8, 8] {\n"
                             "  %y = conv_transpose(%x, %w, strides=[2, 2])\n  return %y\n}\n";
    static float x[18], w[256], want[512], y[512];
    for (int i = 0; i < 18; i++) x[i] = (float)(i % 5) - 2;
    for (int i = 0; i < 256; i++) w[i] = (float)(i % 7) - 3;
    fusor_context *ctx = device_context("auto");
    fusor_executable *exe = NULL;
    fusor_call *call = NULL;
    OK(fusor_compile_text(ctx, up, NULL, &exe));
    fusor_buffer in[2] = {HOST(x, FUSOR_F32, 1, 2, 3, 3), HOST(w, FUSOR_F32, 2, 8, 4, 4)};
    fusor_buffer out = HOST(want, FUSOR_F32, 1, 8, 8, 8), here = HOST(y, FUSOR_F32, 1, 8, 8, 8);
    OK(fusor_executable_call(exe, 2, in, 1, &out));
    OK(fusor_executable_prepare(exe, 2, in, 1, &here, &call));
    OK(fusor_call_run(call));
    fusor_call_free(call);
    for (int i = 0; i < 512; i++) cr_assert_eq(y[i], want[i]);
    fusor_buffer on_device[2] = {there(ctx, &in[0]), there(ctx, &in[1])}, made = {.device = 1};
    const long before = launches();
    OK(fusor_executable_prepare(exe, 2, on_device, 1, &made, &call));
    OK(fusor_call_run(call));
    cr_assert_gt(launches(), before);
    holds(ctx, &made, want);
    fusor_call_free(call);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

Test(device_auto, errors_are_those_of_a_call) {
    fusor_context *ctx = device_context("auto");
    fusor_executable *exe = NULL;
    float p[N] = {0}, g[N + 1] = {0};
    OK(fusor_compile_text(ctx, program, "step", &exe));
    fusor_buffer in[2] = {HOST(p, FUSOR_F32, N), HOST(g, FUSOR_F32, N + 1)}, out[2] = {{0}, {0}};
    FAILS(fusor_executable_call(exe, 2, in, 2, out), FUSOR_ERROR_SHAPE, "N");
    FAILS(fusor_executable_call(exe, 1, in, 2, out), FUSOR_ERROR_ARGUMENT, "takes 2 inputs");
    FAILS(fusor_executable_call(exe, 2, NULL, 2, out), FUSOR_ERROR_ARGUMENT, "");
    in[0] = there(ctx, &in[0]);
    FAILS(fusor_executable_call(exe, 2, in, 2, NULL), FUSOR_ERROR_ARGUMENT, "their array is NULL");
    fusor_buffer_free(ctx, &in[0]);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

/* ---- lazy tensors ---- */
enum { MANY = 300000 };
static float many[MANY], read_back[MANY];
static void fill_many(void) {
    for (int i = 0; i < MANY; i++) many[i] = (float)(i % 1000) - 500;
}
static int32_t device_of(fusor_tensor t) {
    fusor_buffer b = {.device = -1};
    cr_assert_eq(fusor_buffer_of(t, &b), FUSOR_OK);
    return b.device;
}
/* From now on the last evaluation, done again, is expected to take so long. */
static void teach(fusor_context *ctx, double cpu_ns, double gpu_ns) {
    const uint64_t key = lazy_get_stats(ctx).last_key;
    cr_assert(key);
    for (int i = 0; i < 2 * RT_SELECT_KEPT; i++)
        rt_select_tell(ctx->select, key, i % 2 ? RT_SIDE_GPU : RT_SIDE_CPU, i % 2 ? gpu_ns : cpu_ns);
}

Test(device_auto, small_lazy_tensors_are_the_cpus) {
    ONLY_ON_THE_FAKE_DRIVER();
    fusor_context *ctx = device_context("auto");
    float x[3] = {1, 2, 3}, y[3];
    fusor_tensor t = fusor_mul(fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(3)), 2);
    cr_assert_eq(device_of(t), 0);
    for (int i = 0; i < 100; i++) {
        OK(fusor_read(fusor_add(t, i), y, sizeof y));
        /* A machine that is busy may need longer here than a GPU is expected to: what is asked is not how busy it is. */
        for (int k = 0; k < RT_SELECT_KEPT; k++)
            rt_select_tell(ctx->select, lazy_get_stats(ctx).last_key, RT_SIDE_CPU, 1e3);
    }
    cr_assert(y[0] == 101 && y[2] == 105);
    cr_assert_eq(launches(), 0);
    fusor_context_free(ctx);
}

Test(device_auto, lazy_tensors_run_where_their_data_is) {
    ONLY_ON_THE_FAKE_DRIVER();
    fusor_context *ctx = device_context("auto");
    fill_many();
    fusor_tensor d = fusor_keep(fusor_to_device(fusor_wrap_const(ctx, many, FUSOR_F32, FUSOR_SHAPE(MANY))));
    cr_assert_eq(device_of(d), 1);
    /* 1.2 MB are dearer to fetch than to double there; the result is not fetched either */
    const long before = launches();
    fusor_tensor t = fusor_keep(fusor_mul(d, 2)), u;
    OK(fusor_eval(1, &t));
    cr_assert_eq(lazy_get_stats(ctx).last_device, 1);
    const long fetched = downloads(); /* not those that found out the rate of the bus */
    u = fusor_keep(fusor_add(t, 1));
    OK(fusor_eval(1, &u));
    cr_assert_eq(lazy_get_stats(ctx).last_device, 1);
    cr_assert_eq(launches() - before, 2);
    cr_assert_eq(downloads(), fetched, "a result was fetched that nobody read");
    OK(fusor_read(u, read_back, sizeof read_back));
    for (int i = 0; i < MANY; i++) cr_assert_eq(read_back[i], many[i] * 2 + 1);
    fusor_release(d);
    fusor_release(t);
    fusor_release(u);
    fusor_context_free(ctx);
}

Test(device_auto, histories_decide_for_lazy_tensors) {
    fusor_context *ctx = device_context("auto");
    fill_many();
    fusor_tensor d = fusor_keep(fusor_to_device(fusor_wrap_const(ctx, many, FUSOR_F32, FUSOR_SHAPE(MANY))));
    fusor_tensor t = fusor_keep(fusor_square(d)), u;
    OK(fusor_eval(1, &t));
    for (int round = 0; round < 4; round++) {
        const int32_t side = round & 1;
        teach(ctx, side ? 1e12 : 1, side ? 1 : 1e12);
        fusor_release(t);
        t = fusor_keep(fusor_square(d));
        OK(fusor_eval(1, &t));
        cr_assert_eq(lazy_get_stats(ctx).last_device, side, "round %d", round);
        /* what the CPU made is there, and what reads both sides' data is right on either */
        u = fusor_sub(t, d);
        OK(fusor_read(u, read_back, sizeof read_back));
        for (int i = 0; i < MANY; i++) cr_assert_eq(read_back[i], many[i] * many[i] - many[i]);
        OK(fusor_eval(1, &u));
        t = (fusor_release(t), fusor_keep(fusor_square(d)));
        OK(fusor_eval(1, &t));
    }
    fusor_release(d);
    fusor_release(t);
    fusor_context_free(ctx);
}

Test(device_auto, data_that_is_read_often_moves_once) {
    ONLY_ON_THE_FAKE_DRIVER();
    fusor_context *ctx = device_context("auto");
    fill_many();
    fusor_tensor x = fusor_wrap_const(ctx, many, FUSOR_F32, FUSOR_SHAPE(MANY)), t = fusor_keep(fusor_mul(x, 3)), u;
    OK(fusor_eval(1, &t));
    u = fusor_keep(fusor_exp(t));
    OK(fusor_eval(1, &u));
    teach(ctx, 2e4, 1e4);
    fusor_release(u);
    fusor_release(t);
    t = fusor_keep(fusor_mul(x, 4));
    OK(fusor_eval(1, &t));
    teach(ctx, 1, 1e12); /* the result of this is to be the CPU's */
    fusor_release(t);
    t = fusor_keep(fusor_mul(x, 5));
    OK(fusor_eval(1, &t));
    cr_assert_eq(lazy_get_stats(ctx).last_device, 0);
    /* The GPU takes half as long, and the transfer many times that: after a while it is worth it, and then it is
     * there. */
    int at = -1;
    long sent = 0;
    for (int i = 0; i < 4000 && (at < 0 || i < at + 6); i++) {
        u = fusor_keep(fusor_exp(t));
        OK(fusor_eval(1, &u));
        fusor_release(u);
        if (at >= 0 || !lazy_get_stats(ctx).last_device) continue;
        at = i;
        sent = uploads();
    }
    cr_assert_gt(at, 1);
    cr_assert_eq(uploads(), sent, "it went there again");
    fusor_release(t);
    fusor_context_free(ctx);
}

Test(device_auto, assignments_and_shown_memory) {
    fusor_context *ctx = device_context("auto");
    fill_many();
    static float p[MANY];
    fusor_tensor d = fusor_keep(fusor_to_device(fusor_wrap_const(ctx, many, FUSOR_F32, FUSOR_SHAPE(MANY))));
    fusor_buffer host = HOST(p, FUSOR_F32, MANY), there_ = there(ctx, &host), shown;
    fusor_tensor P = fusor_keep(fusor_wrap(ctx, p, FUSOR_F32, FUSOR_SHAPE(MANY)));
    fusor_tensor D = fusor_keep(fusor_adopt(ctx, &there_, NULL, NULL));
    for (int i = 0; i < 12; i++) {
        fusor_status status;
        fusor_scope scope = fusor_scope_begin(ctx, &status);
        OK(fusor_assign(P, fusor_add(P, d)));
        OK(fusor_assign(D, fusor_add(D, d)));
        fusor_scope_end(&scope);
        cr_assert_eq(status, FUSOR_OK, "%s", fusor_error_message(ctx));
        teach(ctx, i % 2 ? 1e12 : 1, i % 2 ? 1 : 1e12);
        if (i) cr_assert_eq(lazy_get_stats(ctx).last_device, !(i % 2));
        cr_assert_eq(p[3], (float)(i + 1) * many[3]); /* complete when the scope has ended */
    }
    fusor_buffer back = HOST(read_back, FUSOR_F32, MANY);
    OK(fusor_buffer_copy(ctx, &there_, &back));
    for (int i = 0; i < MANY; i++) cr_assert(p[i] == 12 * many[i] && read_back[i] == 12 * many[i]);
    /* Memory that a caller has the address of may change: no copy of it is kept on the other side. */
    OK(fusor_buffer_of(d, &shown));
    cr_assert_eq(shown.device, 1);
    for (int i = 0; i < MANY; i++) p[i] = 7;
    OK(fusor_buffer_copy(ctx, &host, &shown));
    for (int i = 0; i < 4; i++) {
        fusor_tensor u = fusor_add(d, 1);
        OK(fusor_read(u, read_back, sizeof read_back));
        cr_assert(read_back[0] == 8 && read_back[MANY - 1] == 8);
        teach(ctx, i % 2 ? 1e12 : 1, i % 2 ? 1 : 1e12);
    }
    fusor_release(d);
    fusor_release(P);
    fusor_release(D);
    fusor_context_free(ctx);
}

Test(device_auto, a_full_device_leaves_lazy_tensors_to_the_cpu) {
    ONLY_ON_THE_FAKE_DRIVER();
    (void)setenv("FAKECUDA_MEMORY", "2000000", 1);
    fusor_context *ctx = device_context("auto");
    fill_many();
    fusor_tensor d = fusor_keep(fusor_to_device(fusor_wrap_const(ctx, many, FUSOR_F32, FUSOR_SHAPE(MANY))));
    fusor_tensor t = fusor_mul(d, 2);
    OK(fusor_eval(1, &t)); /* 1.2 MB more do not fit */
    cr_assert_eq(lazy_get_stats(ctx).last_device, 0);
    OK(fusor_read(t, read_back, sizeof read_back));
    for (int i = 0; i < MANY; i++) cr_assert_eq(read_back[i], many[i] * 2);
    fusor_release(d);
    fusor_context_free(ctx);
}

Test(device_auto, without_a_driver_it_is_the_cpu) {
    (void)setenv("FUSOR_CUDA_LIB", "/nowhere/libcuda.so.1", 1);
    fusor_context *ctx = device_context("auto");
    fusor_executable *exe = NULL;
    float p[N] = {0}, g[N] = {1}, s[N];
    int32_t device = -1;
    OK(fusor_context_device(ctx, &device));
    cr_assert_eq(device, 0);
    OK(fusor_compile_text(ctx, program, "step", &exe));
    fusor_buffer in[2] = {HOST(p, FUSOR_F32, N), HOST(g, FUSOR_F32, N)}, out[2] = {in[0], HOST(s, FUSOR_F32, N)};
    OK(fusor_executable_call(exe, 2, in, 2, out));
    cr_assert_eq(p[0], -1);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}
