/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Kernels whose functions are compiled in parts (src/jit/parts.h): the same bytes whoever compiles which part, and
 * errors of each part. What such kernels compute is in the tests of contractions, windows and attention. */
#include "jit_run.h"
#include <pthread.h>

static const char matmul[] =
    "fusor-kernel 1\nkind contract\nlevel x86-64-v3\ntile 6 16 512\ndim m ?\ndim n ?\ndim k ?\nbuffer in f32 ? 0 1\n"
    "buffer in f32 0 1 ?\nbuffer in f32 0 1 0\nbuffer out f32 ? 1 0\n%0 = load.f32 #0\n%1 = load.f32 #1\n"
    "%2 = matmul.f32 %0 %1\n%3 = load.f32 #2\n%4 = add.f32 %2 %3\n%5 = relu.f32 %4\n%6 = store.f32 #3 %5\n";
static const char relu[] = "fusor-kernel 1\nkind map\nlevel x86-64-v3\ndim p ?\nbuffer in f32 1\nbuffer out f32 1\n"
                           "%0 = load.f32 #0\n%1 = relu.f32 %0\n%2 = store.f32 #1 %1\n";

typedef struct tasks {
    void (*task)(void *arg, int i);
    void *arg;
    int number;
} tasks;

static void *run_one(void *arg) {
    tasks *t = arg;
    t->task(t->arg, t->number);
    return NULL;
}

static void run_together(void *user, int n, void (*task)(void *arg, int i), void *arg) {
    pthread_t thread[16];
    tasks t[16];
    *(int *)user = n;
    cr_assert(n <= 16);
    for (int i = 0; i < n; i++) {
        t[i] = (tasks){task, arg, i};
        cr_assert(pthread_create(&thread[i], NULL, run_one, &t[i]) == 0);
    }
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
}

static void run_backwards(void *user, int n, void (*task)(void *arg, int i), void *arg) {
    *(int *)user = n;
    for (int i = n; i-- > 0;) task(arg, i);
}

Test(parts, bytes_do_not_depend_on_threads, .timeout = 60) {
    size_t bytes;
    char *alone = run_stage(matmul, FUSOR_CODEGEN_BLOB, &bytes, NULL);
    cr_assert_not_null(alone);
    for (int i = 0; i < 2; i++) {
        int n_parts = 0;
        fusor_codegen_request q = run_request(matmul, FUSOR_CODEGEN_BLOB);
        fusor_codegen_result r;
        q.run_all = i ? run_backwards : run_together;
        q.user = &n_parts;
        cr_assert(fusor_codegen_module()->generate(&q, &r) == FUSOR_OK, "%s", r.error);
        cr_assert(n_parts > 1);
        cr_assert(r.bytes == bytes && memcmp(r.data, alone, bytes) == 0);
        free(r.data);
    }
    free(alone);
}

Test(parts, small_kernels_are_one) {
    int n_parts = 0;
    fusor_codegen_request q = run_request(relu, FUSOR_CODEGEN_BLOB);
    fusor_codegen_result r;
    q.run_all = run_backwards;
    q.user = &n_parts;
    cr_assert(fusor_codegen_module()->generate(&q, &r) == FUSOR_OK, "%s", r.error);
    cr_assert(n_parts == 0);
    free(r.data);
}

/* Every part has its lines, in one table by offset. */
Test(parts, lines_of_all_parts) {
    int n_parts = 0;
    fusor_codegen_request q = run_request(matmul, FUSOR_CODEGEN_BLOB);
    fusor_codegen_result r;
    q.options = FUSOR_CODEGEN_LINES;
    q.run_all = run_together;
    q.user = &n_parts;
    cr_assert(fusor_codegen_module()->generate(&q, &r) == FUSOR_OK, "%s", r.error);
    const fusor_codegen_line *line = r.lines;
    const size_t n = r.lines_bytes / sizeof *line;
    uint32_t ends = 0;
    for (size_t i = 0; i < n; i++) {
        cr_assert(i == 0 || line[i].offset > line[i - 1].offset);
        cr_assert(line[i].offset < r.code_bytes || (line[i].line == 0 && line[i].offset == r.code_bytes));
        ends += line[i].line == 0;
    }
    cr_assert(n_parts > 1 && n > 10);
    cr_assert(line[n - 1].offset > r.code_bytes * 3 / 4 && ends < n / 2);
    free(r.data);
    free(r.lines);
}

/* In any part, also in a thread of its own; and nothing is leaked (sanitizer builds see that). */
Test(parts, out_of_memory, .timeout = 120) {
    int status = FUSOR_ERROR_MEMORY, n_parts;
    long n = 1, refused = 0;
    for (; status != FUSOR_OK && n < 1000; n++) {
        fusor_codegen_request q = run_request(matmul, FUSOR_CODEGEN_BLOB);
        fusor_codegen_result r;
        q.run_all = n & 1 ? run_together : run_backwards;
        q.user = &n_parts;
        fu_malloc_fail_at(n);
        status = fusor_codegen_module()->generate(&q, &r);
        fu_malloc_fail_at(0);
        cr_assert(status == FUSOR_OK || (status == FUSOR_ERROR_MEMORY && r.error[0]), "%d %s", status, r.error);
        refused += status != FUSOR_OK;
        free(r.data);
    }
    cr_assert(refused > 2 && n < 1000);
}
