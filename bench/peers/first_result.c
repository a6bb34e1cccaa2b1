/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* first_result.c: microseconds from main() to the compiled program and to the first result of a chain of 8 operators,
 * in a process of its own. With an argument: nothing in the cache, started unfused. first_result.py builds and repeats
 * it. */
#include "fusor/fusor.h"
#include <stdio.h>
#include <time.h>

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
    double start = now_us();
    (void)argv;
    static float x[1000], y[1000];
    for (int i = 0; i < 1000; i++) x[i] = (float)i * .01f;
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.n_threads = 1;
    if (argc > 1) {
        o.flags = FUSOR_START_UNFUSED;
        o.cache_dir = "";
    }
    fusor_context *ctx = fusor_context_new(&o);
    fusor_executable *exe;
    fusor_buffer in = {.data = x, .dtype = FUSOR_F32, .rank = 1, .shape = {1000}}, out = in;
    out.data = y;
    const char *text =
        "func @f(%x: f32[N]) -> f32[N] { %a = mul(%x, 2.) %b = add(%a, 1.) %c = tanh(%b) %d = exp(%c) %e = sub(%d, %x) "
        "%g = sigmoid(%e) %h = mul(%g, %x) %y = maximum(%h, .1) return %y }";
    if (fusor_compile_text(ctx, text, NULL, &exe) != FUSOR_OK) return puts(fusor_error_message(ctx)), 1;
    double compiled = now_us();
    if (fusor_executable_call(exe, 1, &in, 1, &out) != FUSOR_OK) return puts(fusor_error_message(ctx)), 1;
    printf("%.1f %.1f\n", compiled - start, now_us() - start);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
    return 0;
}
