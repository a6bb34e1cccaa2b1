/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* buffer_test.c: alignment, reuse, callbacks, foreign pointers, threads, forks. */
#include "rt/buffer.h"
#include "rt/fork.h"
#include "base/arena.h"
#include "rt/exec.h"
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

Test(buffer, aligned_and_large_enough) {
    for (size_t n = 0; n < 200000; n = n * 9 / 8 + 1) {
        char *p = rt_memory_get(NULL, n);
        cr_assert(p && (uintptr_t)p % 64 == 0);
        memset(p, 1, n ? n : 1);
        rt_memory_put(NULL, p, n);
    }
    for (size_t n = 1 << 20; n < (size_t)40 << 20; n = n * 5 / 3 + 13) {
        char *p = rt_memory_get(NULL, n);
        cr_assert(p && (n < 2 << 20 || (uintptr_t)p % (2 << 20) == 0));
        p[0] = p[n - 1] = 1;
        rt_memory_put(NULL, p, n);
    }
    rt_memory_trim();
    cr_assert_eq(rt_memory_get_stats().cached_bytes, 0);
    rt_memory_put(NULL, NULL, 5);
}

Test(buffer, reuse) {
    void *p = rt_memory_get(NULL, 5000);
    rt_memory_put(NULL, p, 5000);
    cr_assert_eq(rt_memory_get(NULL, 5001), p);
    rt_memory_put(NULL, p, 5001);
}

Test(buffer, the_cache_has_a_limit) {
    void *p[40];
    for (int i = 0; i < 40; i++) p[i] = rt_memory_get(NULL, 16 << 20);
    for (int i = 0; i < 40; i++) rt_memory_put(NULL, p[i], 16 << 20);
    cr_assert_leq(rt_memory_get_stats().cached_bytes, 256 << 20);
}

Test(buffer, impossible_sizes) {
    cr_assert_null(rt_memory_get(NULL, SIZE_MAX));
    cr_assert_null(rt_buffer_get(NULL, SIZE_MAX / 2));
    fu_malloc_fail_at(1);
    cr_assert_null(rt_memory_get(NULL, 100));
    fu_malloc_fail_at(0);
}

Test(buffer, foreign_memory_is_left_alone) {
    int mine;
    rt_buffer_release(NULL, &mine);
    rt_buffer_release(NULL, NULL);
    void *p = rt_buffer_get(NULL, 100);
    rt_buffer_release(NULL, (char *)p + 8);
    cr_assert_eq(rt_memory_get_stats().live_buffers, 1);
    rt_buffer_release(NULL, p);
    rt_buffer_release(NULL, p); /* twice: it is not ours any more */
    cr_assert_eq(rt_memory_get_stats().live_buffers, 0);
}

Test(buffer, register_of_many) {
    enum { N = 5000 };
    static void *p[N];
    for (int i = 0; i < N; i++) p[i] = rt_buffer_get(NULL, 64 + (size_t)i % 300);
    for (int i = 0; i < N; i++) {
        int j = (int)((int64_t)i * 1237 % N);
        rt_buffer_release(NULL, p[j]);
        p[j] = NULL;
        if (i % 3 == 0) p[j] = rt_buffer_get(NULL, 1000);
        cr_assert_eq(rt_memory_get_stats().live_buffers, N - (i + 1) + i / 3 + 1);
    }
    for (int i = 0; i < N; i++) rt_buffer_release(NULL, p[i]);
    cr_assert_eq(rt_memory_get_stats().live_buffers, 0);
}

static int n_allocated, n_freed;
static size_t last_bytes;
static void *own_get(void *user, size_t bytes, size_t align) {
    n_allocated += user == &n_allocated;
    last_bytes = bytes;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}
static void own_put(void *user, void *p, size_t bytes) {
    n_freed += user == &n_allocated && bytes == last_bytes;
    free(p);
}
Test(buffer, callbacks) {
    rt_exec_options o = {.allocate = own_get, .deallocate = own_put, .memory_user = &n_allocated};
    void *p = rt_buffer_get(&o, 777);
    rt_buffer_release(NULL, p);
    p = rt_memory_get(&o, 99);
    rt_memory_put(&o, p, 99);
    cr_assert(n_allocated == 2 && n_freed == 2);
}

static int64_t n_given;
static void give(void *user, void *p, size_t bytes) {
    (void)user;
    n_given += (int64_t)(uintptr_t)p + (int64_t)bytes;
}
Test(buffer, memory_of_another_kind) {
    int mine, other;
    for (uintptr_t i = 1; i <= 100; i++) cr_assert(rt_buffer_note((void *)(i << 8), 3, give, i % 10 ? &mine : &other));
    rt_buffer_release(NULL, (void *)(20 << 8));
    cr_assert(n_given == (20 << 8) + 3);
    rt_buffer_release(NULL, (void *)(20 << 8)); /* once */
    cr_assert(n_given == (20 << 8) + 3);
    n_given = 0;
    rt_buffer_give_all(&other);
    cr_assert(n_given == 9 * 3 + ((550 - 20) << 8), "%lld", (long long)n_given);
    n_given = 0;
    rt_buffer_give_all(&mine);
    cr_assert(n_given == 90 * 3 + ((5050 - 550) << 8));
    cr_assert(rt_memory_get_stats().live_buffers == 0);
}

/* The sanitizers' own allocator takes locks that a fork of a threaded process leaves behind in the child. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FORKS = 0 };
#else
enum { FORKS = 10 };
#endif

static void *churn(void *arg) {
    for (int i = 0; i < 3000; i++) {
        size_t n = (size_t)(i * 97 % 9000);
        char *p = rt_buffer_get(NULL, n);
        memset(p, i, n);
        rt_buffer_release(NULL, p);
    }
    return arg;
}
/* As in a child whose parent was just adding it. */
static int n_called;
static void note_fork(void *user) { n_called += *(int *)user; }
Test(buffer, a_fork_hook_is_there_once) {
    static rt_fork_hook before, hook, guard;
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    int one = 1;
    before = hook = (rt_fork_hook){.parent = note_fork, .child = note_fork, .user = &one};
    rt_fork_add(&before);
    for (int i = 0; i < 2; i++) {
        rt_fork_guard(&guard, &mutex);
        rt_fork_add(&hook);
    }
    for (int round = 0; round < 2; round++) {
        n_called = 0;
        pid_t pid = fork();
        if (pid == 0) _exit(n_called);
        int status;
        cr_assert(pid > 0 && waitpid(pid, &status, 0) == pid);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 2 - round && n_called == 2 - round);
        if (round == 0) rt_fork_remove(&hook);
    }
    rt_fork_add(&hook); /* again */
    rt_fork_remove(&guard);
    rt_fork_remove(&before);
    rt_fork_remove(&hook);
}

Test(buffer, threads_and_forks) {
    pthread_t t[3];
    for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, churn, NULL);
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(10);
            churn(NULL);
            _exit(0);
        }
        int status;
        waitpid(pid, &status, 0);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
}
