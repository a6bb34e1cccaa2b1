/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* loader_test.c: code runs, memory is reused and given back, nothing is writable and executable, forks seal. */
#include "rt/loader.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static _Thread_local fu_error error;

/* mov eax, value; ret, at `entry` in a blob of `bytes` */
static rt_code *load(int value, size_t bytes, size_t entry) {
    unsigned char *blob = calloc(1, bytes);
    blob[entry] = 0xb8;
    memcpy(blob + entry + 1, &value, 4);
    blob[entry + 5] = 0xc3;
    rt_code *c = NULL;
    fu_error_clear(&error);
    fusor_status s = rt_code_load(&error, blob, bytes, entry, "fk_test", NULL, &c);
    cr_assert_eq(s, FUSOR_OK, "%s", error.text);
    free(blob);
    return c;
}

static int run(const rt_code *c) {
    int (*fn)(void);
    void *p = rt_code_entry(c);
    memcpy(&fn, &p, sizeof fn);
    return fn();
}

static void no_page_is_writable_and_executable(void) {
    FILE *f = fopen("/proc/self/maps", "r");
    char line[1024];
    while (f && fgets(line, sizeof line, f)) cr_expect(!strstr(line, " rwx"), "%s", line);
    if (f) fclose(f);
}

static void many(void) {
    enum { N = 3000 };
    static rt_code *c[N];
    for (int i = 0; i < N; i++) {
        c[i] = load(i, 6 + (size_t)(i * 37 % 3000), (size_t)(i * 37 % 3000));
        cr_assert_eq((uintptr_t)((char *)rt_code_entry(c[i]) - i * 37 % 3000) % 64, 0);
    }
    for (int i = 0; i < N; i += 2) rt_code_release(c[i]);
    for (int i = 0; i < N; i += 2) c[i] = load(-i, 100, 7);
    for (int i = 0; i < N; i++) cr_assert_eq(run(c[i]), i % 2 ? i : -i);
    no_page_is_writable_and_executable();
    cr_assert_eq(rt_code_get_stats().kernels, N);
    for (int i = 0; i < N; i++) rt_code_release(c[i]);
    rt_code_stats s = rt_code_get_stats();
    cr_assert_eq(s.kernels, 0);
    cr_assert_eq(s.used_bytes, 0);
    cr_assert_leq(s.chunks, 1);
}

Test(loader, many_kernels) { many(); }
Test(loader, many_kernels_without_dual_mapping) {
    rt_code_set_mode(RT_CODE_PROTECT);
    many();
}

Test(loader, memory_is_flat) {
    for (int i = 0; i < 10000; i++) {
        rt_code *c = load(i, 4000, 64);
        cr_assert_eq(run(c), i);
        rt_code_release(c);
        cr_assert_leq(rt_code_get_stats().mapped_bytes, 1 << 20);
    }
}

Test(loader, large_blobs) {
    rt_code *c = load(5, 3 << 20, (3 << 20) - 6), *d = load(6, 100, 0);
    cr_assert_eq(run(c) + run(d), 11);
    cr_assert_eq(((const unsigned char *)rt_code_entry(c))[5], 0xc3);
    rt_code_release(c);
    rt_code_release(d);
    cr_assert_leq(rt_code_get_stats().chunks, 1);
    rt_code_release(NULL);
}

Test(loader, bad_requests) {
    rt_code *c = NULL;
    fu_error_clear(&error);
    cr_assert_eq(rt_code_load(&error, "", 0, 0, "k", NULL, &c), FUSOR_ERROR_ARGUMENT);
    fu_error_clear(&error);
    cr_assert_eq(rt_code_load(&error, "abc", 3, 3, "k", NULL, &c), FUSOR_ERROR_ARGUMENT);
    cr_assert_null(c);
}

Test(loader, forbidden_memory_is_a_clear_status) {
    rt_code_set_mode(RT_CODE_NONE);
    rt_code *c = NULL;
    fu_error_clear(&error);
    cr_assert_eq(rt_code_load(&error, "\xc3", 1, 0, "fk_x", NULL, &c), FUSOR_ERROR_UNSUPPORTED);
    cr_assert(strstr(error.text, "fk_x") && strstr(error.text, "executable memory"), "%s", error.text);
    rt_code_set_mode(RT_CODE_AUTO);
    c = load(3, 10, 0);
    cr_assert_eq(run(c), 3);
}

/* Both processes load and free after the fork; the memory is shared, so without sealing they would run each other's
 * code. */
Test(loader, fork_seals) {
    enum { N = 200 };
    rt_code *old[N], *mine[N];
    for (int i = 0; i < N; i++) old[i] = load(i, 200, 0);
    for (int i = 0; i < N; i += 4) rt_code_release(old[i]);
    pid_t pid = fork();
    int base = pid ? 10000 : 20000, bad = 0;
    cr_assert_eq(rt_code_get_stats().sealed_chunks, rt_code_get_stats().chunks);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < N; i++) mine[i] = load(base + i, 200, 0);
        for (int i = 0; i < N; i++) bad += run(mine[i]) != base + i;
        for (int i = 0; i < N; i++)
            if (i % 4) bad += run(old[i]) != i;
        for (int i = 0; i < N; i++) rt_code_release(mine[i]);
    }
    /* One process gives all of its old kernels back; the other still runs them. */
    if (pid == 0) {
        for (int i = 0; i < N; i++)
            if (i % 4) rt_code_release(old[i]);
        rt_code_release(load(1, 64, 0));
        bad += rt_code_get_stats().kernels != 0 || rt_code_get_stats().sealed_chunks != 0;
        _exit(bad ? 1 : 0);
    }
    int status;
    waitpid(pid, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int i = 0; i < N; i++)
        if (i % 4) bad += run(old[i]) != i;
    cr_assert_eq(bad, 0);
}

/* The sanitizers' own allocator takes locks that a fork of a threaded process leaves behind in the child. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FORKS = 0 };
#else
enum { FORKS = 20 };
#endif

static void *hammer(void *arg) {
    int base = *(int *)arg;
    rt_code *c[50];
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 50; i++) c[i] = load(base + i, 64 + (size_t)(i * 13), 0);
        for (int i = 0; i < 50; i++) cr_assert_eq(run(c[i]), base + i);
        for (int i = 0; i < 50; i++) rt_code_release(c[i]);
    }
    return NULL;
}

Test(loader, threads_and_forks) {
    pthread_t t[3];
    int base[3] = {1000, 2000, 3000};
    for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, hammer, &base[i]);
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(10);
            rt_code *c = load(77, 64, 0); /* no lock was left behind */
            _exit(run(c) == 77 ? 0 : 1);
        }
        int status;
        waitpid(pid, &status, 0);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
}

Test(loader, perf_map) {
    char path[64], text[512] = "", want[128];
    snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
    unlink(path);
    setenv("FUSOR_PERF", "map", 1);
    rt_code *c = load(1, 100, 0), *d = load(2, 50, 0);
    FILE *f = fopen(path, "r");
    cr_assert(f);
    cr_assert_gt(fread(text, 1, sizeof text - 1, f), 0);
    fclose(f);
    snprintf(want, sizeof want, "%lx 64 fk_test\n%lx 32 fk_test\n", (unsigned long)rt_code_entry(c),
             (unsigned long)rt_code_entry(d));
    cr_assert_str_eq(text, want);
    unlink(path);
}

Test(loader, perf_map_follows_no_link) {
    char path[64], victim[64];
    snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
    snprintf(victim, sizeof victim, "/tmp/fusor-victim-%ld", (long)getpid());
    close(open(victim, O_CREAT | O_WRONLY, 0600));
    unlink(path);
    cr_assert_eq(symlink(victim, path), 0);
    setenv("FUSOR_PERF", "map", 1);
    rt_code_release(load(1, 100, 0));
    struct stat st;
    cr_assert_eq(stat(victim, &st), 0);
    cr_assert_eq(st.st_size, 0);
    unlink(path);
    unlink(victim);
}

Test(loader, gdb_registration) {
    setenv("FUSOR_GDB", "1", 1);
    rt_code *c = load(1, 100, 0), *d = load(2, 100, 0);
    cr_assert_eq(run(c) + run(d), 3);
    rt_code_release(c);
    rt_code_release(d);
}
