/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* threads_test.c: eight threads compile and call the same programs and different ones on one context, and free what
 * they hold in any order; errors stay with the thread that made them. A warm process, one whose kernels are all in the
 * disk cache, never maps the code generation module. */
#include "fusor/fusor.h"
#include "rt/cpuinfo.h"
#include "rt/compiler.h"
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_THREADS = 8, ROUNDS = 12, N_PROGRAMS = 10, N = 3000 };

static bool has_module(void) {
    static fu_error e;
    const fusor_codegen_table *t;
    return rt_host_level() >= 0 && rt_module_get(&e, &t) == FUSOR_OK;
}

static void program(int which, char *text, size_t size) {
    static const char *const ops[] = {"add(%x, %y)", "sub(%x, %y)", "mul(%x, %y)", "maximum(%x, %y)",
                                      "minimum(%x, %y)"};
    snprintf(text, size,
             "func @f(%%x: i32[N], %%y: i32[N]) -> (i32[N], i64) { %%a = %s %%b = %s %%s = reduce_sum(%%b) return %%b, "
             "%%s }",
             ops[which % 5], which / 5 ? "square(%a)" : "neg(%a)");
}

static int32_t expected(int which, int32_t x, int32_t y) {
    int32_t a = which % 5 == 0   ? x + y
                : which % 5 == 1 ? x - y
                : which % 5 == 2 ? x * y
                : which % 5 == 3 ? (x > y ? x : y)
                : x < y          ? x
                                 : y;
    return which / 5 ? a * a : -a;
}

static int compile_and_call(fusor_context *ctx, int which, int n) {
    char text[300];
    int32_t *x = malloc(sizeof *x * N), *y = malloc(sizeof *y * N), *z = malloc(sizeof *z * N);
    int64_t sum = 0, want = 0;
    fusor_executable *exe = NULL;
    program(which, text, sizeof text);
    for (int i = 0; i < N; i++) {
        x[i] = i % 131 - 60;
        y[i] = i % 57 - 20;
    }
    fusor_buffer in[2] = {{.data = x, .dtype = FUSOR_I32, .rank = 1, .shape = {n}},
                          {.data = y, .dtype = FUSOR_I32, .rank = 1, .shape = {n}}};
    fusor_buffer out[2] = {{.data = z, .dtype = FUSOR_I32, .rank = 1, .shape = {n}},
                           {.data = &sum, .dtype = FUSOR_I64}};
    int bad = fusor_compile_text(ctx, text, NULL, &exe) != FUSOR_OK;
    bad = bad || fusor_executable_call(exe, 2, in, 2, out) != FUSOR_OK;
    for (int i = 0; i < n && !bad; i++) {
        bad |= z[i] != expected(which, x[i], y[i]);
        want += expected(which, x[i], y[i]);
    }
    fusor_executable_free(exe);
    free(x);
    free(y);
    free(z);
    return bad || sum != want;
}

typedef struct worker {
    fusor_context *ctx;
    fusor_executable *shared;
    int number;
} worker; /* shared holds ctx */
static atomic_int wrong;

static void *work(void *arg) {
    const worker *w = arg;
    for (int round = 0; round < ROUNDS; round++) {
        int which = round % 2 ? round / 2 % N_PROGRAMS
                              : (w->number + round) % N_PROGRAMS; /* the same for all, then different ones */
        if (compile_and_call(w->ctx, which, 1 + (w->number * 371 + round * 97) % N)) atomic_fetch_add(&wrong, 1);
        fusor_executable *bad = NULL;
        char text[80], name[16];
        snprintf(name, sizeof name, "t%d_%d", w->number, round);
        snprintf(text, sizeof text, "func @f(%%x: f32) -> f32 { %%y = %s(%%x) return %%y }", name);
        if (fusor_compile_text(w->ctx, text, NULL, &bad) == FUSOR_OK || !strstr(fusor_error_message(w->ctx), name))
            atomic_fetch_add(&wrong, 1);
        float x[64], y[64];
        for (int i = 0; i < 64; i++) x[i] = (float)(i - w->number);
        fusor_buffer in = {.data = x, .dtype = FUSOR_F32, .rank = 1, .shape = {64}},
                     out = {.data = y, .dtype = FUSOR_F32, .rank = 1, .shape = {64}};
        if (fusor_executable_call(w->shared, 1, &in, 1, &out) != FUSOR_OK) atomic_fetch_add(&wrong, 1);
        for (int i = 0; i < 64; i++)
            if (y[i] != (x[i] < 0 ? 0 : x[i])) atomic_fetch_add(&wrong, 1);
    }
    fusor_executable_free(w->shared); /* the last one frees the context */
    return NULL;
}

Test(threads, share_one_context, .timeout = 240) {
    if (!has_module()) cr_skip("no code generation module");
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.cache_dir = "";
    o.n_threads = 2;
    fusor_context *ctx = fusor_context_new(&o);
    pthread_t thread[N_THREADS];
    worker w[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        w[i] = (worker){.ctx = ctx, .number = i};
        cr_assert_eq(
            fusor_compile_text(ctx, "func @f(%x: f32[N]) -> f32[N] { %y = relu(%x) return %y }", NULL, &w[i].shared),
            FUSOR_OK, "%s", fusor_error_message(ctx));
    }
    fusor_context_free(ctx);
    for (int i = 0; i < N_THREADS; i++) cr_assert_eq(pthread_create(&thread[i], NULL, work, &w[i]), 0);
    for (int i = 0; i < N_THREADS; i++) pthread_join(thread[i], NULL);
    cr_assert_eq(atomic_load(&wrong), 0);
}

/* ---- warm starts ---- */
static int maps_module(void) {
    char line[1024];
    int found = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) found |= strstr(line, "fusor-codegen") || strstr(line, "libLLVM");
    if (f) fclose(f);
    return found;
}

/* In a process of its own. Bit 0: wrong result; bit 1: the module is mapped. */
static int in_child(const char *dir, int which) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
        o.cache_dir = dir;
        fusor_context *ctx = fusor_context_new(&o);
        int rc = compile_and_call(ctx, which, 100);
        fusor_context_free(ctx);
        _exit(rc | maps_module() << 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

Test(warm, start_does_not_map_the_module, .timeout = 60) {
    char dir[] = "/tmp/fusor-warm-XXXXXX", command[80];
    cr_assert(mkdtemp(dir));
    unsetenv("FUSOR_CACHE");
    if (rt_host_level() < 0) cr_skip("no code can be generated for this processor");
    fflush(NULL);
    pid_t child = fork(); /* asked there, so that this process never has the module */
    if (child == 0) _exit(has_module());
    int status = 0;
    waitpid(child, &status, 0);
    if (WEXITSTATUS(status) != 1) cr_skip("no code generation module");
    cr_expect_eq(in_child(dir, 3), 2, "a cold start maps the module");
    for (int i = 0; i < 3; i++)
        cr_expect_eq(in_child(dir, 3), 0, "a warm start mapped the module, or its result is wrong");
    cr_expect_eq(in_child(dir, 4), 2, "another program is no hit");
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    cr_expect_eq(system(command), 0);
}
