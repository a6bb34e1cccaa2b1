/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_TRACE_H
#define RT_TRACE_H
/* What happened when, on which thread: the events of one context while its profile keeps them (RT_PROFILE_EVENTS).
 *
 * A fixed table that is filled with an atomic counter: any thread may add, nothing is moved or freed while others add,
 * and what does not fit is counted. A reset starts a generation; a slot is held while it is filled or read, and who
 * finds one held takes the next. */
#include "rt/profile.h"

enum { RT_TRACE_EVENTS = 1 << 16, RT_TRACE_TEXT = IR_SYMBOL_MAX, RT_TRACE_HELD = 1 };
typedef enum rt_event_kind {
    RT_EVENT_STAGE,
    RT_EVENT_COMPILE,
    RT_EVENT_LOAD,
    RT_EVENT_STEP,
    RT_EVENT_TILES,
    RT_EVENT_CALL
} rt_event_kind;
typedef struct rt_event {
    uint8_t kind;             /* rt_event_kind */
    int32_t thread;           /* rt_trace_thread */
    int32_t entry;            /* STEP, TILES: number of the profile's entry; else -1 */
    int64_t begin_ns, end_ns; /* fu_now_ns */
    int64_t first, last;      /* TILES: [first, last) of phase `phase` */
    int32_t phase;
    char text[RT_TRACE_TEXT]; /* STAGE ("parse", "plan"), COMPILE and LOAD: what; CALL: function */
} rt_event;
typedef struct rt_trace_slot {
    _Atomic uint32_t state; /* RT_TRACE_HELD, or the generation that filled it; 0: none has */
    rt_event event;
} rt_trace_slot;
typedef struct rt_trace {
    _Atomic uint32_t generation; /* RT_TRACE_HELD + 1 and on */
    _Atomic int64_t used;
    rt_trace_slot slot[RT_TRACE_EVENTS];
} rt_trace;

rt_trace *rt_trace_new(void); /* NULL: no memory */
void rt_trace_free(rt_trace *t);
void rt_trace_reset(rt_trace *t); /* any thread; what is being filled belongs to neither side */
/* The profile's trace while it keeps events; else NULL. A load and a branch. */
static inline rt_trace *rt_trace_of(_Atomic(rt_profile *) *profile) {
    rt_profile *p = profile ? atomic_load_explicit(profile, memory_order_acquire) : NULL;
    return p && atomic_load_explicit(&p->on, memory_order_relaxed) == RT_PROFILE_EVENTS
               ? atomic_load_explicit(&p->trace, memory_order_acquire)
               : NULL;
}
/* t NULL: nothing. text may be NULL. */
void rt_trace_add(rt_trace *t, rt_event_kind kind, const char *text, int64_t begin_ns, int64_t end_ns);
void rt_trace_add_step(rt_trace *t, int entry, int64_t begin_ns, int64_t end_ns);
void rt_trace_add_tiles(rt_trace *t, int entry, int phase, int64_t first, int64_t last, int64_t begin_ns,
                        int64_t end_ns);
/* A copy of event i, below the number used; false: there is none of this generation, or somebody holds it. */
bool rt_trace_read(rt_trace *t, int64_t i, rt_event *out);
int64_t rt_trace_used(const rt_trace *t);
int64_t rt_trace_dropped(const rt_trace *t);
int rt_trace_thread(void); /* a small number of the calling thread, from 0, the same for its life */
#endif
