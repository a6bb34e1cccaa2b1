/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_FORK_H
#define RT_FORK_H
/* One pthread_atfork for the whole run time. What has a lock or state that a fork would tear registers a hook, and a
 * hook with `prepare` keeps a fork waiting while another thread is inside its locked region. Locks of hooks are never
 * nested in each other, so their order does not matter.
 *
 * Some locks have no hook, and a fork while another thread holds one leaves it locked in the child: measuring limits
 * (limits.c), device "auto" (select.c, src/auto.c), and those of a GPU, which a child cannot use. That of cpuinfo.c is
 * only tried. Locks of lazy tensors have those of hooks inside: a fork takes none of them, but waits until no thread
 * is in there (rt_fork_enter), and the child makes them anew (src/lazy.c). */
#include <pthread.h>
#include <stdbool.h>

typedef struct rt_fork_hook {
    void (*prepare)(void *user); /* in the parent before the fork: take the lock. Each may be NULL */
    void (*parent)(void *user);  /* after it: release */
    void (*child)(
        void *user); /* in the child: release and repair; only async-signal-safe work and memory that is there */
    void *user;
    const volatile bool *is_busy; /* NULL, or: a fork waits while it is set */
    struct rt_fork_hook *next, **link; /* link NULL: it is in no list */
} rt_fork_hook;
/* The hook's memory is borrowed until it is removed. One that is there already is not added again. Any thread. */
void rt_fork_add(rt_fork_hook *hook);
void rt_fork_remove(rt_fork_hook *hook);
/* For state that a lock makes whole: the lock is held over every fork. */
void rt_fork_guard(rt_fork_hook *hook, pthread_mutex_t *lock);
/* By a thread that has set *is_busy of a hook. false: a fork waits; take it back, give the lock back, rest and begin
 * anew. A thread that is inside is let in again, and forks without waiting. Others wait a second at most: what is inside may
 * itself wait for the thread that forks. */
bool rt_fork_enter(void);
void rt_fork_leave(void);
void rt_fork_rest(void);
#endif
