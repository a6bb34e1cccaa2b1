/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* device_auto_test.c: device "auto" over the fake driver: the results are right on whichever side a call runs, wherever its buffers
 * are; histories that were written beforehand decide the side; without a driver it is the CPU. */
#include "device_api.h"
#include "rt/select.h"
#include <sys/stat.h>
#include <unistd.h>

TestSuite(device_auto, .timeout = 120);

static const char program[] = "func @step(%p: f32[N], %g: f32[N]) -> (%q: f32[N] alias %p, %s: f32[N]) {\n"
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

Test(device_auto, errors_are_those_of_a_call) {
    fusor_context *ctx = device_context("auto");
    fusor_executable *exe = NULL;
    float p[N] = {0}, g[N + 1] = {0};
    OK(fusor_compile_text(ctx, program, "step", &exe));
    fusor_buffer in[2] = {HOST(p, FUSOR_F32, N), HOST(g, FUSOR_F32, N + 1)}, out[2] = {{0}, {0}};
    FAILS(fusor_executable_call(exe, 2, in, 2, out), FUSOR_ERROR_SHAPE, "N");
    FAILS(fusor_executable_call(exe, 1, in, 2, out), FUSOR_ERROR_ARGUMENT, "takes 2 inputs");
    FAILS(fusor_executable_call(exe, 2, NULL, 2, out), FUSOR_ERROR_ARGUMENT, "");
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

Test(device_auto, lazy_tensors_are_the_cpus) {
    fusor_context *ctx = device_context("auto");
    float x[3] = {1, 2, 3}, y[3];
    fusor_buffer b;
    fusor_tensor t = fusor_mul(fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(3)), 2);
    OK(fusor_buffer_of(t, &b));
    cr_assert_eq(b.device, 0);
    OK(fusor_read(fusor_to_device(t), y, sizeof y));
    cr_assert(y[0] == 2 && y[2] == 6);
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
