/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* exec_kernels.c: the kernels of a plan, found in the cache or made. One after the other, until one has to be compiled:
 * that takes a hundred times as long as to find it, so as many threads as calls may use then share what is left. Where
 * there are several for each kernel, they share its parts. */
#include "base/small.h"
#include "rt/compiler.h"
#include "rt/exec_internal.h"
#include <pthread.h>
#include <string.h>

static bool is_kernel(const core *c, int step) { return c->plan->steps.at[step].kind == IR_STEP_KERNEL; }

/* Threads that may compile, all kernels and their parts together: none but this one where calls run on the caller's
 * threads. */
static int compilers(const core *c) {
    if (c->options.parallel_for) return 1;
    return c->options.n_threads < RT_MOST_COMPILERS ? c->options.n_threads : RT_MOST_COMPILERS;
}

/* n_threads: for it alone. */
static fusor_status find_kernel(core *c, fu_error *e, int step, int n_threads) {
    rt_kernel *k;
    rt_trace *trace = rt_trace_of(c->options.profile);
    const int64_t begin = trace ? fu_now_ns() : 0;
    rt_cache_outcome *outcome = &c->info[step].outcome;
    FU_TRY(rt_cache_get(c->cache, e, c->plan->steps.at[step].kernel, n_threads, &k, outcome));
    c->info[step].kernel = k;
    if (trace)
        rt_trace_add(trace, outcome->source == RT_CACHE_COMPILED ? RT_EVENT_COMPILE : RT_EVENT_LOAD, k->symbol, begin,
                     fu_now_ns());
    return FUSOR_OK;
}

/* ---- several at once ---- */
/* Steps whose kernels have to be compiled, of those that have the same kernel one. */
typedef struct search {
    core *core;
    int *step, n_steps;
    int n_threads; /* for each of them */
    atomic_int next;
    pthread_mutex_t lock;
    int failed; /* the first of them that did; n_steps: none */
    fusor_status status;
    fu_error *error;
} search;

static bool is_over(search *s, int i) {
    pthread_mutex_lock(&s->lock);
    const bool over = i >= s->failed;
    pthread_mutex_unlock(&s->lock);
    return over;
}

/* The error is that of the first one that fails, whichever thread meets it. */
static void note_failure(search *s, int i, fusor_status status, const fu_error *e) {
    pthread_mutex_lock(&s->lock);
    if (i < s->failed) {
        s->failed = i;
        s->status = status;
        *s->error = *e;
    }
    pthread_mutex_unlock(&s->lock);
}

static void *find_some(void *arg) {
    search *s = arg;
    fu_error e;
    for (int i; i = atomic_fetch_add(&s->next, 1), !is_over(s, i);) {
        fu_error_clear(&e);
        const fusor_status status = find_kernel(s->core, &e, s->step[i], s->n_threads);
        if (status != FUSOR_OK) note_failure(s, i, status, &e);
    }
    return NULL;
}

static void find_together(search *s) {
    const int threads = compilers(s->core);
    s->n_threads = threads / s->n_steps > 1 ? threads / s->n_steps : 1;
    pthread_mutex_init(&s->lock, NULL);
    rt_compilers_run(threads < s->n_steps ? threads : s->n_steps, find_some, s);
    pthread_mutex_destroy(&s->lock);
}

/* Compiles what is missing from step `first` on, where that is more than one kernel and the first one is missing. */
static fusor_status compile_together(core *c, fu_error *e, int first) {
    search s = {.core = c, .error = e};
    uint8_t key[IR_KEY_BYTES], (*keys)[IR_KEY_BYTES] = NULL;
    for (int i = first; i < c->n_steps; i++) {
        const bool is_held = !is_kernel(c, i) || rt_cache_holds(c->cache, c->plan->steps.at[i].kernel, false, key);
        if (is_held && i == first) return FUSOR_OK;
        if (!keys) keys = fu_calloc((size_t)(c->n_steps - first), sizeof *keys);
        if (!s.step) s.step = fu_calloc((size_t)(c->n_steps - first), sizeof *s.step);
        if (!keys || !s.step) break; /* one after the other, then */
        int same = 0;
        while (same < s.n_steps && memcmp(keys[same], key, sizeof key) != 0) same++;
        if (is_held || same < s.n_steps) continue;
        memcpy(keys[s.n_steps], key, sizeof key);
        s.step[s.n_steps++] = i;
    }
    s.failed = s.n_steps;
    if (s.n_steps > 1) find_together(&s);
    fu_free(keys);
    fu_free(s.step);
    return s.status;
}

fusor_status exec_find_kernels(core *c, fu_error *e) {
    if (c->options.is_layout_only || c->options.launch) return FUSOR_OK;
    int n_kernels = 0;
    for (int i = 0; i < c->n_steps; i++) n_kernels += is_kernel(c, i);
    const bool may_share = n_kernels > 1 && compilers(c) > 1;
    bool may_miss = may_share; /* the first one, and those behind one that was compiled alone */
    for (int i = 0; i < c->n_steps; i++) {
        if (!is_kernel(c, i) || c->info[i].kernel) continue;
        if (may_miss) FU_TRY(compile_together(c, e, i));
        const bool is_alone = !c->info[i].kernel;
        if (is_alone) FU_TRY(find_kernel(c, e, i, compilers(c)));
        may_miss = may_share && is_alone && c->info[i].outcome.source == RT_CACHE_COMPILED;
    }
    return FUSOR_OK;
}
