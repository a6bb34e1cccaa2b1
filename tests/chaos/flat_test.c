/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* flat_test.c: many different kernels compiled, run and released: resident memory stays flat, released code is
 * unmapped, and the limits of the memory table and of the directory are kept. FUSOR_FLAT_KERNELS says how many (default
 * 240; make check-long: 10000). */
#include "fusor/fusor.h"
#include "rt/cpuinfo.h"
#include "rt/loader.h"
#include "rt/compiler.h"
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N = 33, STEPS = 6 };
static char dir[128];

static bool has_module(void) {
    static fu_error e;
    const fusor_codegen_table *t;
    return rt_host_level() >= 0 && rt_module_get(&e, &t) == FUSOR_OK;
}

static int64_t status_kb(const char *name) {
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long long kb = -1;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0) sscanf(line + strlen(name), ": %lld", &kb);
    if (f) fclose(f);
    return kb;
}

static int64_t directory_bytes(int *n_out) {
    int64_t bytes = 0;
    DIR *d = opendir(dir);
    *n_out = 0;
    for (struct dirent *item; d && (item = readdir(d));) {
        char path[512];
        struct stat st;
        snprintf(path, sizeof path, "%s/%.200s", dir, item->d_name);
        if (!strstr(item->d_name, ".fk") || stat(path, &st)) continue;
        bytes += st.st_size;
        ++*n_out;
    }
    if (d) closedir(d);
    return bytes;
}

/* Program `number` is a chain of STEPS of six operators. */
static void text_of(int number, char *text, size_t room) {
    static const char *const ops[] = {"add", "sub", "mul", "maximum", "minimum", "div"};
    int n = snprintf(text, room, "func @f(%%v0: f32[N], %%b: f32[N]) -> f32[N] {\n");
    for (int s = 0; s < STEPS; s++, number /= 6)
        n += snprintf(text + n, room - (size_t)n, "  %%v%d = %s(%%v%d, %%b)\n", s + 1, ops[number % 6], s);
    snprintf(text + n, room - (size_t)n, "  return %%v%d\n}\n", STEPS);
}

static float expected(int number, float v, float b) {
    for (int s = 0; s < STEPS; s++, number /= 6) {
        switch (number % 6) {
        case 0: v = v + b; break;
        case 1: v = v - b; break;
        case 2: v = v * b; break;
        case 3: v = v > b ? v : b; break;
        case 4: v = v < b ? v : b; break;
        default: v = v / b;
        }
    }
    return v;
}

static void run_one(fusor_context *ctx, int number) {
    char text[600];
    fusor_executable *exe = NULL;
    float x[N], b[N], y[N];
    text_of(number, text, sizeof text);
    for (int i = 0; i < N; i++) x[i] = (float)(i - 11) * 0.75f, b[i] = 1.5f + (float)(i % 5);
    fusor_buffer in[2] = {{.data = x, .dtype = FUSOR_F32, .rank = 1, .shape = {N}},
                          {.data = b, .dtype = FUSOR_F32, .rank = 1, .shape = {N}}};
    fusor_buffer out = {.data = y, .dtype = FUSOR_F32, .rank = 1, .shape = {N}};
    cr_assert_eq(fusor_compile_text(ctx, text, NULL, &exe), FUSOR_OK, "%s", fusor_error_message(ctx));
    cr_assert_eq(fusor_executable_call(exe, 2, in, 1, &out), FUSOR_OK, "%s", fusor_error_message(ctx));
    for (int i = 0; i < N; i++) cr_assert_eq(y[i], expected(number, x[i], b[i]), "program %d, element %d", number, i);
    fusor_executable_free(exe);
}

Test(flat, kernels_come_and_go, .timeout = 3000) {
    if (!has_module()) cr_skip("no code generation module");
    const char *wanted = getenv("FUSOR_FLAT_KERNELS");
    int n = wanted ? atoi(wanted) : 240, limit = 64 << 10, n_files;
    if (n > 46656) n = 46656;
    strcpy(dir, "/tmp/fusor-flat-XXXXXX");
    cr_assert(mkdtemp(dir));
    int64_t first_kb = 0;
    fusor_cache_stats s = {.size = sizeof s};
    /* Several contexts one after the other: each leaves nothing behind. */
    enum { ROUNDS = 12 };
    for (int round = 0, number = 0; round < ROUNDS; round++) {
        fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
        o.cache_dir = dir;
        o.cache_max_bytes = (uint64_t)limit;
        o.n_threads = 1;
        fusor_context *ctx = fusor_context_new(&o);
        for (int end = n * (round + 1) / ROUNDS; number < end; number++) run_one(ctx, number);
        cr_assert_eq(fusor_cache_get_stats(ctx, &s), FUSOR_OK);
        cr_assert(rt_code_get_stats().kernels <= 1024);
        fusor_context_free(ctx);
        cr_assert_eq(rt_code_get_stats().kernels, 0, "code stays mapped");
        cr_assert(rt_code_get_stats().mapped_bytes <= 1 << 20);
        int64_t bytes = directory_bytes(&n_files);
        /* The size is looked at once in a while: one kernel more may lie there. */
        cr_assert(bytes <= limit + 16384, "%lld bytes in the directory, %d files", (long long)bytes, n_files);
        if (round == ROUNDS / 4) first_kb = status_kb("VmRSS");
    }
    int64_t last_kb = status_kb("VmRSS"), slack_kb = first_kb / 20;
    fprintf(stderr, "%d kernels: VmRSS %lld kB after a quarter, %lld kB at the end, %d files left\n", n,
            (long long)first_kb, (long long)last_kb, n_files);
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    cr_assert_eq(system(command), 0);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    cr_assert(last_kb <= first_kb + slack_kb, "memory grew from %lld to %lld kB over %d kernels", (long long)first_kb,
              (long long)last_kb, n);
#else
    (void)slack_kb;
#endif
}
