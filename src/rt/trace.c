/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* trace.c: the table of events. */
#include "rt/trace.h"
#include "base/arena.h"
#include <stdio.h>

rt_trace *rt_trace_new(void) {
    rt_trace *t = fu_calloc(1, sizeof *t);
    if (t) atomic_init(&t->generation, RT_TRACE_HELD + 1);
    return t;
}
void rt_trace_free(rt_trace *t) { fu_free(t); }

/* ORDER: who sees the new generation (take) counts from 0, so no two of one generation have the same slot. */
void rt_trace_reset(rt_trace *t) {
    atomic_store(&t->used, 0);
    atomic_fetch_add(&t->generation, 1);
}

int rt_trace_thread(void) {
    static atomic_int next;
    static _Thread_local int mine = -1;
    if (mine < 0) mine = atomic_fetch_add(&next, 1);
    return mine;
}

/* A slot that nobody holds, held; done() takes what its state is to be then: *generation_out. */
static rt_trace_slot *take(rt_trace *t, rt_event_kind kind, int64_t begin_ns, int64_t end_ns,
                           uint32_t *generation_out) {
    if (!t) return NULL;
    *generation_out = atomic_load(&t->generation);
    for (;;) {
        const int64_t at = atomic_fetch_add(&t->used, 1);
        if (at >= RT_TRACE_EVENTS) return NULL;
        rt_trace_slot *s = &t->slot[at];
        uint32_t state = atomic_load_explicit(&s->state, memory_order_relaxed);
        if (state == RT_TRACE_HELD || state > *generation_out ||
            !atomic_compare_exchange_strong(&s->state, &state, RT_TRACE_HELD))
            continue;
        rt_event *e = &s->event;
        e->kind = (uint8_t)kind;
        e->thread = rt_trace_thread();
        e->entry = -1;
        e->begin_ns = begin_ns;
        e->end_ns = end_ns;
        e->text[0] = 0;
        return s;
    }
}

static void done(rt_trace_slot *s, uint32_t generation) {
    atomic_store_explicit(&s->state, generation, memory_order_release);
}

void rt_trace_add(rt_trace *t, rt_event_kind kind, const char *text, int64_t begin_ns, int64_t end_ns) {
    uint32_t generation;
    rt_trace_slot *s = take(t, kind, begin_ns, end_ns, &generation);
    if (!s) return;
    if (text) (void)snprintf(s->event.text, sizeof s->event.text, "%s", text);
    done(s, generation);
}

void rt_trace_add_step(rt_trace *t, int entry, int64_t begin_ns, int64_t end_ns) {
    uint32_t generation;
    rt_trace_slot *s = take(t, RT_EVENT_STEP, begin_ns, end_ns, &generation);
    if (!s) return;
    s->event.entry = entry - 1;
    done(s, generation);
}

void rt_trace_add_tiles(rt_trace *t, int entry, int phase, int64_t first, int64_t last, int64_t begin_ns,
                        int64_t end_ns) {
    uint32_t generation;
    rt_trace_slot *s = take(t, RT_EVENT_TILES, begin_ns, end_ns, &generation);
    if (!s) return;
    s->event.entry = entry - 1;
    s->event.phase = phase;
    s->event.first = first;
    s->event.last = last;
    done(s, generation);
}

bool rt_trace_read(rt_trace *t, int64_t i, rt_event *out) {
    uint32_t state = atomic_load(&t->generation);
    rt_trace_slot *s = &t->slot[i];
    if (!atomic_compare_exchange_strong(&s->state, &state, RT_TRACE_HELD)) return false;
    *out = s->event;
    done(s, state);
    return true;
}

int64_t rt_trace_used(const rt_trace *t) {
    const int64_t used = atomic_load(&t->used);
    return used < RT_TRACE_EVENTS ? used : RT_TRACE_EVENTS;
}

int64_t rt_trace_dropped(const rt_trace *t) {
    const int64_t used = atomic_load(&t->used);
    return used > RT_TRACE_EVENTS ? used - RT_TRACE_EVENTS : 0;
}
