/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* threads_test.c: every tile once, whoever runs it; phases in order; nested calls, forked children, refused threads. */
#include "rt/threads.h"
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 5000 };
typedef struct count {
    atomic_int tile[MOST];
    atomic_int worker[RT_MAX_THREADS];
    atomic_int busy[RT_MAX_THREADS];
    int n_threads;
    atomic_int wrong;
} count;

static void tally(void *user, int worker, int64_t begin, int64_t end) {
    count *c = user;
    if (worker < 0 || worker >= c->n_threads || begin >= end) {
        c->wrong++;
        return;
    }
    if (c->busy[worker]++) c->wrong++; /* two tiles at once with one worker's scratch */
    c->worker[worker]++;
    for (int64_t i = begin; i < end; i++) c->tile[i]++;
    c->busy[worker]--;
}

static void check_all(int n_threads, int n_tiles, const rt_parallel_for *own) {
    count *c = calloc(1, sizeof *c);
    c->n_threads = n_threads < 1 ? 1 : n_threads;
    rt_parallel(n_threads, n_tiles, tally, c, own);
    cr_expect_eq(c->wrong, 0);
    for (int i = 0; i < MOST; i++)
        cr_assert_eq(c->tile[i], i < n_tiles, "threads %d, tiles %d, tile %d", n_threads, n_tiles, i);
    free(c);
}

Test(threads, every_tile_once) {
    static const int threads[] = {-1, 0, 1, 2, 3, 7, 64, 65, 200}, tiles[] = {0, 1, 2, 3, 63, 64, 65, 1000, MOST};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++)
        for (size_t n = 0; n < sizeof tiles / sizeof *tiles; n++) check_all(threads[t], tiles[n], NULL);
}

/* More threads than a machine has cores cost more than the bound, and are measured again some times, not for ever. */
Test(threads, what_a_fork_costs) {
    enum { ASKED = 100 };
    cr_assert_eq(rt_fork_ns(1), RT_FORK_LEAST_NS);
    for (int n = 2; n <= 512; n *= 16) {
        int64_t before = RT_FORK_MOST_NS;
        for (int i = 0; i < ASKED; i++) {
            const int64_t ns = rt_fork_ns(n);
            cr_assert(ns >= RT_FORK_LEAST_NS && ns <= before, "%d threads: %ld ns behind %ld", n, (long)ns,
                      (long)before);
            before = ns;
        }
        cr_assert(n < 512 || before == RT_FORK_MOST_NS, "512 threads: %ld ns", (long)before);
    }
}

/* Where no team is entered nothing is measured: what is known behind it is of a team. */
static void fork_in_a_tile(void *user, int worker, int64_t begin, int64_t end) {
    (void)worker, (void)begin, (void)end;
    *(int64_t *)user = rt_fork_ns(512);
}
Test(threads, no_fork_is_measured_where_there_is_no_team) {
    int64_t inside = 0;
    rt_parallel(1, 1, fork_in_a_tile, &inside, NULL);
    cr_assert_eq(inside, RT_FORK_LEAST_NS);
#ifdef _OPENMP
#pragma omp parallel num_threads(2)
    cr_assert_eq(rt_fork_ns(512), RT_FORK_LEAST_NS);
#endif
    cr_assert_eq(rt_fork_ns(512), RT_FORK_MOST_NS);
}

/* It makes threads for each call, whatever its parent knew. */
Test(threads, a_forked_child_has_no_cheap_team) {
    (void)rt_fork_ns(2);
    const pid_t child = fork();
    if (child == 0) _exit(rt_fork_ns(2) == RT_FORK_MOST_NS ? 0 : 1);
    int status = 0;
    cr_assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
    cr_assert_eq(WEXITSTATUS(status), 0);
}

typedef struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t all;
    int here, want;
} meeting;
/* Ends only when `want` workers are inside at once. */
static void meet(void *user, int worker, int64_t begin, int64_t end) {
    (void)worker, (void)begin, (void)end;
    meeting *m = user;
    pthread_mutex_lock(&m->lock);
    if (++m->here == m->want) pthread_cond_broadcast(&m->all);
    while (m->here < m->want) pthread_cond_wait(&m->all, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

Test(threads, a_large_request_is_really_used, .timeout = 120) {
    setenv("OMP_DYNAMIC", "true", 1);
    meeting m = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, RT_MAX_THREADS};
    rt_parallel(RT_MAX_THREADS, RT_MAX_THREADS, meet, &m, NULL);
    cr_assert_eq(m.here, RT_MAX_THREADS);
}

typedef struct steps {
    atomic_int done[4];
    atomic_int wrong;
    int n;
} steps;
typedef struct step {
    steps *all;
    int number;
} step;
static void run_step(void *user, int worker, int64_t begin, int64_t end) {
    (void)worker;
    step *s = user;
    if (s->number && s->all->done[s->number - 1] != s->all->n) s->all->wrong++;
    s->all->done[s->number] += (int)(end - begin);
}

Test(threads, phases_wait_for_each_other) {
    for (int round = 0; round < 200; round++) {
        steps all = {.n = 1 + round % 50};
        step s[4];
        rt_phase phases[5];
        for (int i = 0; i < 4; i++) {
            s[i] = (step){&all, i};
            phases[i < 2 ? i : i + 1] = (rt_phase){all.n, run_step, &s[i]};
        }
        phases[2] = (rt_phase){0, run_step, NULL}; /* skipped */
        rt_parallel_phases(1 + round % 4, 5, phases, NULL);
        cr_assert_eq(all.wrong, 0);
        for (int i = 0; i < 4; i++) cr_assert_eq(all.done[i], all.n);
    }
}

static void nested(void *user, int worker, int64_t begin, int64_t end) {
    (void)worker, (void)begin, (void)end;
    count *c = user;
    c[1].n_threads = 1; /* inner calls are serial: worker 0 */
    static _Thread_local count mine;
    memset(&mine, 0, sizeof mine);
    mine.n_threads = 1;
    rt_parallel(8, 100, tally, &mine, NULL);
    for (int i = 0; i < 100; i++) c->wrong += mine.tile[i] != 1;
    c->wrong += mine.wrong;
}

Test(threads, nested_calls_are_serial) {
    count *c = calloc(2, sizeof *c);
    rt_parallel(4, 16, nested, c, NULL);
    cr_assert_eq(c->wrong, 0);
    free(c);
}

/* ---- the caller's parallel-for ---- */
static int own_calls;
static void backwards(void *user, int64_t n, void (*task)(void *, int64_t), void *arg) {
    own_calls += user == &own_calls;
    while (n-- > 0) task(arg, n);
}
static void lazy(void *user, int64_t n, void (*task)(void *, int64_t), void *arg) {
    (void)user;
    if (n > 2) task(arg, 1);
}

Test(threads, callers_parallel_for) {
    rt_parallel_for own = {backwards, &own_calls};
    check_all(4, 1000, &own);
    cr_assert_eq(own_calls, 1);
    rt_parallel_for poor = {lazy, NULL};
    check_all(4, 1000, &poor);
    check_all(2, 10, &poor);
}

/* ---- fork ---- */
static void in_child(void) {
    alarm(20); /* a hang ends the child */
    count *c = calloc(1, sizeof *c);
    c->n_threads = 4;
    for (int i = 0; i < 50; i++) rt_parallel(4, 1000, tally, c, NULL);
    int bad = c->wrong;
    for (int i = 0; i < 1000; i++) bad += c->tile[i] != 50;
    /* The child has real threads too. */
    meeting m = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 3};
    rt_parallel(3, 3, meet, &m, NULL);
    steps all = {.n = 30};
    step s[3];
    rt_phase phases[3];
    for (int i = 0; i < 3; i++) {
        s[i] = (step){&all, i};
        phases[i] = (rt_phase){all.n, run_step, &s[i]};
    }
    rt_parallel_phases(4, 3, phases, NULL);
    _exit(bad || all.wrong || all.done[2] != 30 ? 1 : 0);
}

Test(threads, a_forked_child_works, .timeout = 60) {
    check_all(4, 1000, NULL);
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();
        if (pid == 0) in_child();
        int status;
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
        check_all(4, 1000, NULL); /* the parent's team is alive */
    }
}

/* libgomp would end the process. */
Test(threads, refused_threads_do_not_end_the_process, .timeout = 60) {
    pid_t pid = fork();
    if (pid == 0) {
        if (setuid(65534)) _exit(0); /* root is not limited */
        struct rlimit none = {1, 1};
        setrlimit(RLIMIT_NPROC, &none);
        count *c = calloc(1, sizeof *c);
        c->n_threads = 16;
        rt_parallel(16, 500, tally, c, NULL);
        int bad = c->wrong;
        for (int i = 0; i < 500; i++) bad += c->tile[i] != 1;
        _exit(bad ? 1 : 0);
    }
    int status;
    waitpid(pid, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
}

static void *user_thread(void *arg) {
    (void)arg;
    for (int i = 0; i < 20; i++) check_all(3, 500, NULL);
    return NULL;
}
Test(threads, several_callers) {
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, user_thread, NULL);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
}
