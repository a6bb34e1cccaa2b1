/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* fork.c: the list of fork hooks and its pthread_atfork handlers. */
#include "base/small.h"
#include "rt/fork.h"
#include <stddef.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static rt_fork_hook *hooks;
static int forks; /* that wait or are under way */
static _Thread_local int inside;

void rt_fork_rest(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }

bool rt_fork_enter(void) {
    if (!inside && __atomic_load_n(&forks, __ATOMIC_SEQ_CST)) return false;
    inside++;
    return true;
}

void rt_fork_leave(void) { inside--; }

static bool is_any_busy(void) {
    for (rt_fork_hook *h = hooks; h; h = h->next)
        if (h->is_busy && __atomic_load_n(h->is_busy, __ATOMIC_SEQ_CST)) return true;
    return false;
}

/* The list's own lock is held over the fork: the child finds the list whole. What is busy may need it to end. */
static void prepare(void) {
    __atomic_add_fetch(&forks, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&lock);
    for (int ms = 0; ms < 1000 && !inside && is_any_busy(); ms++) {
        pthread_mutex_unlock(&lock);
        rt_fork_rest();
        pthread_mutex_lock(&lock);
    }
    for (rt_fork_hook *h = hooks; h; h = h->next)
        if (h->prepare) h->prepare(h->user);
}

static void in_parent(void) {
    for (rt_fork_hook *h = hooks; h; h = h->next)
        if (h->parent) h->parent(h->user);
    pthread_mutex_unlock(&lock);
    __atomic_sub_fetch(&forks, 1, __ATOMIC_SEQ_CST);
}

static void in_child(void) {
    for (rt_fork_hook *h = hooks; h; h = h->next)
        if (h->child) h->child(h->user);
    pthread_mutex_unlock(&lock);
    forks = 0;
}

static void install(void) { pthread_atfork(prepare, in_parent, in_child); }

void rt_fork_add(rt_fork_hook *hook) {
    pthread_once(&once, install);
    pthread_mutex_lock(&lock);
    if (!hook->link) { /* else the parent was just adding it: the child's pthread_once begins anew */
        hook->next = hooks;
        hook->link = &hooks;
        if (hooks) hooks->link = &hook->next;
        hooks = hook;
    }
    pthread_mutex_unlock(&lock);
}

static void take(void *mutex) { pthread_mutex_lock(mutex); }
static void drop(void *mutex) { pthread_mutex_unlock(mutex); }

void rt_fork_guard(rt_fork_hook *hook, pthread_mutex_t *mutex) {
    hook->prepare = take; /* and its place in the list stays, where it has one */
    hook->parent = hook->child = drop;
    hook->user = mutex;
    rt_fork_add(hook);
}

void rt_fork_remove(rt_fork_hook *hook) {
    pthread_mutex_lock(&lock);
    *hook->link = hook->next;
    if (hook->next) hook->next->link = hook->link;
    hook->link = NULL;
    pthread_mutex_unlock(&lock);
}
