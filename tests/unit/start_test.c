/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* start_test.c: a program that starts unfused (start.h) and has a parameter with a source: the file is read once, so
 * the fused kernels, which come later, have the values that the unfused ones had. */
#include "api_test.h"
#include "base/error.h"
#include "rt/data.h"
#include "start.h"
#include <stdio.h>
#include <unistd.h>

enum { N = 5 };
static void write_weights(const char *path, float value) {
    float w[N];
    fu_error e;
    fu_error_clear(&e);
    for (int i = 0; i < N; i++) w[i] = value;
    const fusor_buffer b = {.data = w, .dtype = FUSOR_F32, .rank = 1, .shape = {N}};
    cr_assert_eq(rt_data_write_npy(&e, path, &b), FUSOR_OK, "%s", e.text);
}

Test(start, sources_are_read_once, .timeout = 120) {
    char dir[] = "/tmp/fusor-start.XXXXXX", path[64], text[256];
    cr_assert(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/w.npy", dir);
    snprintf(text, sizeof text,
             "func @f(%%x: f32[N], %%w: f32[N] = \"%s\") -> f32[N] {\n"
             "  %%a = mul(%%x, %%w) %%b = add(%%a, %%w) %%y = sub(%%b, 1) return %%y }\n",
             path);
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.cache_dir = "";
    o.flags = FUSOR_START_UNFUSED;
    fusor_context *ctx = fusor_context_new(&o);
    cr_assert(ctx);
    fusor_executable *exe = NULL;
    float x[N], y[N] = {0};
    fusor_buffer in = {.data = x, .dtype = FUSOR_F32, .rank = 1, .shape = {N}}, out = in;
    out.data = y;
    for (int i = 0; i < N; i++) x[i] = (float)i;
    write_weights(path, 2);
    OK(fusor_compile_text(ctx, text, "f", &exe));
    write_weights(path, 3);
    (void)unlink(path);
    fusor_call *call = NULL;
    OK(fusor_executable_call(exe, 1, &in, 1, &out));
    for (int i = 0; i < N; i++) cr_expect_eq(y[i], 2 * x[i] + 1);
    OK(fusor_executable_prepare(exe, 1, &in, 1, &out, &call)); /* waits for the fused kernels */
    memset(y, 0, sizeof y);
    OK(fusor_call_run(call));
    for (int i = 0; i < N; i++) cr_expect_eq(y[i], 2 * x[i] + 1);
    const bool began_unfused = exe->job != NULL, is_fused = start_exec(exe) != exe->exec;
    fusor_call_free(call);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
    (void)rmdir(dir);
    if (!began_unfused) cr_skip("no kernels beside the module to start with");
    cr_expect(is_fused, "the fused program was not made");
}
