/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* trace.c: the table of events. */
#include "rt/trace.h"
#include "base/arena.h"
#include <stdio.h>

rt_trace *rt_trace_new(void) { return fu_calloc(1, sizeof(rt_trace)); }
void rt_trace_free(rt_trace *t) { fu_free(t); }

void rt_trace_reset(rt_trace *t) {
    const int64_t used = atomic_load(&t->used);
    for (int64_t i = 0; i < used && i < RT_TRACE_EVENTS; i++)
        atomic_store_explicit(&t->event[i].is_ready, false, memory_order_relaxed);
    atomic_store(&t->used, 0);
}

int rt_trace_thread(void) {
    static atomic_int next;
    static _Thread_local int mine = -1;
    if (mine < 0) mine = atomic_fetch_add(&next, 1);
    return mine;
}

static rt_event *take(rt_trace *t, rt_event_kind kind, int64_t begin_ns, int64_t end_ns) {
    if (!t) return NULL;
    const int64_t at = atomic_fetch_add_explicit(&t->used, 1, memory_order_relaxed);
    if (at >= RT_TRACE_EVENTS) return NULL;
    rt_event *e = &t->event[at];
    e->kind = (uint8_t)kind;
    e->thread = rt_trace_thread();
    e->entry = -1;
    e->begin_ns = begin_ns;
    e->end_ns = end_ns;
    e->text[0] = 0;
    return e;
}

static void done(rt_event *e) { atomic_store_explicit(&e->is_ready, true, memory_order_release); }

void rt_trace_add(rt_trace *t, rt_event_kind kind, const char *text, int64_t begin_ns, int64_t end_ns) {
    rt_event *e = take(t, kind, begin_ns, end_ns);
    if (!e) return;
    if (text) (void)snprintf(e->text, sizeof e->text, "%s", text);
    done(e);
}

void rt_trace_add_step(rt_trace *t, int entry, int64_t begin_ns, int64_t end_ns) {
    rt_event *e = take(t, RT_EVENT_STEP, begin_ns, end_ns);
    if (!e) return;
    e->entry = entry - 1;
    done(e);
}

void rt_trace_add_tiles(rt_trace *t, int entry, int phase, int64_t first, int64_t last, int64_t begin_ns,
                        int64_t end_ns) {
    rt_event *e = take(t, RT_EVENT_TILES, begin_ns, end_ns);
    if (!e) return;
    e->entry = entry - 1;
    e->phase = phase;
    e->first = first;
    e->last = last;
    done(e);
}

int64_t rt_trace_dropped(const rt_trace *t) {
    const int64_t used = atomic_load(&t->used);
    return used > RT_TRACE_EVENTS ? used - RT_TRACE_EVENTS : 0;
}
