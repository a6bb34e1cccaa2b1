/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* threads.c: teams of workers. The only file with OpenMP in it. */
#include "rt/threads.h"
#include "base/arena.h"
#include "base/log.h"
#include "rt/fork.h"
#include "rt/fpenv.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* ThreadSanitizer does not see libgomp's synchronization, and without OpenMP there is no team: plain threads serve
 * instead. */
#if defined(_OPENMP) && !defined(__SANITIZE_THREAD__)
#define HAS_TEAM 1
#else
#define HAS_TEAM 0
#endif

enum { SHARES = 64, CHUNKS_PER_WORKER = 8, LINE = 64 };

typedef struct share {
    _Alignas(LINE) _Atomic int64_t next;
    int64_t end;
} share;
/* Tiles of one phase, dealt out. */
typedef struct deal {
    int n_shares;
    int64_t chunk;
    share part[SHARES];
} deal;

/* Two deals alternate: the one of phase p + 1 is set up while phase p runs, so a phase costs one barrier. */
typedef struct job {
    const rt_phase *phases;
    int n_phases, n_threads;
    deal deals[2];
} job;

static _Thread_local int depth;

static void set_up(deal *d, const rt_phase *p, int n_threads) {
    int n = n_threads < SHARES ? n_threads : SHARES;
    if (n > p->n_tiles) n = p->n_tiles > 0 ? (int)p->n_tiles : 1;
    d->n_shares = n;
    d->chunk = p->n_tiles / ((int64_t)n_threads * CHUNKS_PER_WORKER);
    if (d->chunk < 1) d->chunk = 1;
    int64_t each = p->n_tiles / n, rest = p->n_tiles % n, at = 0;
    for (int i = 0; i < n; i++) {
        atomic_store_explicit(&d->part[i].next, at, memory_order_relaxed);
        at += each + (i < rest);
        d->part[i].end = at;
    }
}

static void take_tiles(deal *d, const rt_phase *p, int worker) {
    rt_fpenv environment;
    rt_fpenv_enter(&environment);
    depth++;
    for (int i = 0; i < d->n_shares; i++) {
        share *s = &d->part[(worker + i) % d->n_shares];
        for (;;) {
            /* Look before adding: counters of finished shares stay in every core's cache. */
            if (atomic_load_explicit(&s->next, memory_order_relaxed) >= s->end) break;
            int64_t begin = atomic_fetch_add_explicit(&s->next, d->chunk, memory_order_relaxed);
            if (begin >= s->end) break;
            int64_t end = begin + d->chunk < s->end ? begin + d->chunk : s->end;
            p->fn(p->user, worker, begin, end);
        }
    }
    depth--;
    rt_fpenv_leave(&environment);
}

static void run_serial(int n_phases, const rt_phase *phases) {
    rt_fpenv environment;
    rt_fpenv_enter(&environment);
    depth++;
    for (int i = 0; i < n_phases; i++)
        if (phases[i].n_tiles > 0) phases[i].fn(phases[i].user, 0, 0, phases[i].n_tiles);
    depth--;
    rt_fpenv_leave(&environment);
}

/* What one worker does. barrier: all workers wait for each other. */
static void work(job *j, int worker, void (*barrier)(void *), void *arg) {
    for (int p = 0; p < j->n_phases; p++) {
        /* The other deal was last used before the previous barrier. */
        if (worker == 0 && p + 1 < j->n_phases) set_up(&j->deals[(p + 1) & 1], &j->phases[p + 1], j->n_threads);
        if (j->phases[p].n_tiles > 0) take_tiles(&j->deals[p & 1], &j->phases[p], worker);
        if (p + 1 < j->n_phases) barrier(arg);
    }
}

/* ---- plain threads: forked children, and where OpenMP cannot serve ---- */
typedef struct crew {
    job *job;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_open; /* all members are known: begin */
    int n_members, waiting;
    unsigned generation;
} crew;
typedef struct member {
    crew *crew;
    int worker;
    pthread_t thread;
} member;

static void crew_barrier(void *arg) {
    crew *c = arg;
    pthread_mutex_lock(&c->lock);
    unsigned mine = c->generation;
    if (++c->waiting == c->n_members) {
        c->waiting = 0;
        c->generation++;
        pthread_cond_broadcast(&c->changed);
    }
    while (mine == c->generation) pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

static void *crew_member(void *arg) {
    member *m = arg;
    pthread_mutex_lock(&m->crew->lock);
    while (!m->crew->is_open) pthread_cond_wait(&m->crew->changed, &m->crew->lock);
    pthread_mutex_unlock(&m->crew->lock);
    work(m->crew->job, m->worker, crew_barrier, m->crew);
    return NULL;
}

static void run_crew(job *j) {
    member *members = fu_malloc((size_t)j->n_threads * sizeof *members);
    if (!members) {
        run_serial(j->n_phases, j->phases);
        return;
    }
    crew c = {.job = j, .n_members = 1};
    pthread_mutex_init(&c.lock, NULL);
    pthread_cond_init(&c.changed, NULL);
    int n = 1;
    for (; n < j->n_threads; n++) {
        members[n] = (member){.crew = &c, .worker = n};
        if (pthread_create(&members[n].thread, NULL, crew_member, &members[n])) break;
    }
    pthread_mutex_lock(&c.lock);
    c.n_members = n;
    c.is_open = true;
    pthread_cond_broadcast(&c.changed);
    pthread_mutex_unlock(&c.lock);
    work(j, 0, crew_barrier, &c);
    for (int i = 1; i < n; i++) pthread_join(members[i].thread, NULL);
    pthread_cond_destroy(&c.changed);
    pthread_mutex_destroy(&c.lock);
    fu_free(members);
}

/* ---- OpenMP ---- */
#if HAS_TEAM
static atomic_bool is_forked;
static void after_fork(void *user) {
    (void)user;
    atomic_store(&is_forked, true);
}
/* At load time: the application may have used OpenMP itself before it forks, and called nothing of ours yet. */
__attribute__((constructor)) static void watch_forks(void) {
    static rt_fork_hook hook = {.child = after_fork};
    rt_fork_add(&hook);
}

static void team_barrier(void *arg) {
    (void)arg;
#pragma omp barrier
}

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool is_open;
} gate;
static void *wait_at_gate(void *arg) {
    gate *g = arg;
    pthread_mutex_lock(&g->lock);
    while (!g->is_open) pthread_cond_wait(&g->opened, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* libgomp ends the process when the system refuses it a thread. So a team larger than any before on this thread (each
 * thread has its own pool) is tried out first: as many plain threads must exist at once. */
static bool can_have(int n_threads) {
    static _Thread_local int proven;
    if (n_threads <= proven) return true;
    pthread_t *threads = fu_malloc((size_t)n_threads * sizeof *threads);
    if (!threads) return false;
    gate g = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    int n = 0;
    while (n < n_threads - 1 && pthread_create(&threads[n], NULL, wait_at_gate, &g) == 0) n++;
    pthread_mutex_lock(&g.lock);
    g.is_open = true;
    pthread_cond_broadcast(&g.opened);
    pthread_mutex_unlock(&g.lock);
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    fu_free(threads);
    if (n == n_threads - 1) proven = n_threads;
    return n == n_threads - 1;
}

static void run_team(job *j) {
    /* OMP_DYNAMIC may hand out fewer threads than asked for; an explicit number is meant. */
    int was_dynamic = omp_get_dynamic();
    if (was_dynamic) omp_set_dynamic(0);
#pragma omp parallel num_threads(j->n_threads)
    work(j, omp_get_thread_num(), team_barrier, NULL);
    if (was_dynamic) omp_set_dynamic(was_dynamic);
}
#endif

/* ---- the caller's parallel-for ---- */
typedef struct own_task {
    deal deal;
    const rt_phase *phase;
} own_task;
static void run_own_task(void *arg, int64_t index) {
    own_task *t = arg;
    take_tiles(&t->deal, t->phase, (int)index);
}

static void run_own(int n_threads, int n_phases, const rt_phase *phases, const rt_parallel_for *own) {
    for (int p = 0; p < n_phases; p++) {
        if (phases[p].n_tiles <= 0) continue;
        if (phases[p].n_tiles == 1) {
            run_serial(1, &phases[p]);
            continue;
        }
        own_task t = {.phase = &phases[p]};
        set_up(&t.deal, &phases[p], n_threads);
        own->run(own->user, n_threads, run_own_task, &t);
        take_tiles(&t.deal, &phases[p], 0); /* what a callback that ran too few tasks left */
    }
}

void rt_parallel_phases(int n_threads, int n_phases, const rt_phase *phases, const rt_parallel_for *own) {
    int64_t most = 0;
    for (int i = 0; i < n_phases; i++)
        if (phases[i].n_tiles > most) most = phases[i].n_tiles;
    if (n_threads > RT_MAX_THREADS) n_threads = RT_MAX_THREADS;
    if (n_threads > most) n_threads = (int)most;
    if (n_threads <= 1 || depth > 0) {
        run_serial(n_phases, phases);
        return;
    }
    if (own && own->run) {
        run_own(n_threads, n_phases, phases, own);
        return;
    }
    job j;
    j.phases = phases;
    j.n_phases = n_phases;
    j.n_threads = n_threads;
    set_up(&j.deals[0], &phases[0], n_threads);
#if HAS_TEAM
    if (!atomic_load_explicit(&is_forked, memory_order_relaxed) && can_have(n_threads)) {
        run_team(&j);
        return;
    }
#endif
    run_crew(&j);
}

void rt_parallel(int n_threads, int64_t n_tiles, rt_tile_fn fn, void *user, const rt_parallel_for *own) {
    rt_phase phase = {n_tiles, fn, user};
    rt_parallel_phases(n_threads, 1, &phase, own);
}

static void do_nothing(void *user, int worker, int64_t begin, int64_t end) {
    (void)user, (void)worker, (void)begin, (void)end;
}

/* May a team be entered here? Not in a tile, nor in a parallel region of the caller's, whose own regions have one thread. */
static bool is_outside(void) {
#if HAS_TEAM
    return depth == 0 && !omp_in_parallel();
#else
    return depth == 0;
#endif
}

static int64_t time_forks(int n_threads) {
    enum { FORKS = 16 };
    int64_t least = RT_FORK_MOST_NS;
    for (int i = 0; i < FORKS && least > RT_FORK_LEAST_NS; i++) {
        const int64_t start = fu_now_ns();
        rt_parallel(n_threads, n_threads, do_nothing, NULL, NULL);
        const int64_t took = fu_now_ns() - start;
        if (took < least) least = took;
    }
    return least < RT_FORK_LEAST_NS ? RT_FORK_LEAST_NS : least;
}

/* A core that is taken away meanwhile makes it too long: so there is a bound that hurts little, and what comes to it is
 * measured again some times. */
int64_t rt_fork_ns(int n_threads) {
    enum { TRIES = 4, SIZES = 11 }; /* of teams: up to 1, 2, 4 .. RT_MAX_THREADS */
    static _Atomic int64_t known[SIZES];
    static atomic_int tries[SIZES];
    int size = 0;
#if HAS_TEAM
    if (atomic_load_explicit(&is_forked, memory_order_relaxed)) return RT_FORK_MOST_NS; /* threads for each call */
#endif
    if (n_threads <= 1 || !is_outside()) return RT_FORK_LEAST_NS;
    while (size + 1 < SIZES && 1 << size < n_threads) size++;
    int64_t least = atomic_load(&known[size]);
    if ((least && least < RT_FORK_MOST_NS) || atomic_load(&tries[size]) >= TRIES) return least;
    atomic_fetch_add(&tries[size], 1);
    const int64_t took = time_forks(n_threads);
    while (!least || took < least)
        if (atomic_compare_exchange_weak(&known[size], &least, took)) return took;
    return least;
}
