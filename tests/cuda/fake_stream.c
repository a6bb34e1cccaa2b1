/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* fake_stream.c: streams are queues of work, which runs when somebody waits for it (FAKECUDA_ORDER=lazy), so that what
 * is read before a wait is visibly old. Work of different streams is ordered by events alone. eager: all work runs at
 * once. reverse: the work of the other streams runs before that of the one that is waited for. */
#include "fake_cuda.h"
#include <stdlib.h>
#include <string.h>

struct cu_event_st {
    struct cu_event_st *next;
    fake_context *context;
    unsigned flags;
    fake_mark *mark; /* of the last record; NULL: never recorded */
};
static fake_stream *streams;
static struct cu_event_st *events;
static int n_streams_made;

static void let_go(fake_mark *m) {
    if (m && --m->uses == 0) free(m);
}

/* ---- running ---- */
static cu_result run_one(fake_stream *s);

static void run_to(fake_mark *m) {
    m->uses++;
    while (!m->is_done && m->stream->first && !run_one(m->stream)) continue;
    let_go(m);
}

static void discard(fake_work *w) {
    if (w->mark && w->kind == FAKE_RECORD) w->mark->is_done = true;
    let_go(w->mark);
    free(w->staged);
    free(w->params);
    free(w);
}

static cu_result perform(fake_stream *s, fake_work *w) {
    if (w->fault) {
        if (fake_is_sticky(w->fault))
            return fake_kill(s->context, w->fault, "work gives %d, as FAKECUDA_FAIL says", w->fault);
        return w->fault;
    }
    switch (w->kind) {
    case FAKE_COPY:
    case FAKE_FILL: return fake_work_copy(s->context, w);
    case FAKE_LAUNCH: return fake_module_launch(s->context, w);
    case FAKE_RECORD: w->mark->at_ns = fake_now_ns(); return CU_OK;
    case FAKE_WAIT: return CU_OK;
    case FAKE_ALLOC: fake_memory_reach(w->to_device, w->to); return CU_OK;
    case FAKE_FREE:
        if (fake_memory_free(w->to_device, w->to, "cuMemFreeAsync"))
            return fake_kill(s->context, CU_ILLEGAL_ADDRESS, "%s", fake_cuda_said());
        return CU_OK;
    }
    return CU_OK;
}

/* The first of a stream's work, and what of other streams it waits for. */
static cu_result run_one(fake_stream *s) {
    fake_context *c = s->context;
    if (s->first->kind == FAKE_WAIT && !s->first->mark->is_done) run_to(s->first->mark);
    if (c->dead) return c->dead;
    fake_work *w = s->first;
    s->first = w->next;
    if (!s->first) s->last = NULL;
    cu_result r = perform(s, w);
    discard(w);
    return r;
}

cu_result fake_run(fake_stream *s) {
    cu_result r = CU_OK;
    if (s->is_running) return CU_OK;
    s->is_running = true;
    if (fake_set.order == FAKE_REVERSE)
        for (fake_stream *other = streams; other; other = other->next)
            if (other != s && other->context == s->context && !other->is_running) {
                cu_result o = CU_OK;
                while (other->first && !s->context->dead) o = run_one(other);
                if (o) r = o;
            }
    while (s->first && !s->context->dead) {
        cu_result one = run_one(s);
        if (one) r = one;
    }
    s->is_running = false;
    return s->context->dead ? s->context->dead : r;
}

cu_result fake_run_all(fake_context *c) {
    cu_result r = CU_OK;
    for (fake_stream *s = streams; s && !c->dead; s = s->next)
        if (s->context == c && fake_run(s)) r = CU_LAUNCH_FAILED;
    return c->dead ? c->dead : r;
}

cu_result fake_put(fake_call *c, fake_stream *s, fake_work w) {
    fake_work *kept = malloc(sizeof *kept);
    if (!kept) return CU_OUT_OF_MEMORY;
    /* stream 0 waits for the streams that are not made with CU_STREAM_NON_BLOCKING, and they for it */
    if (!(s->flags & CU_STREAM_NON_BLOCKING))
        for (fake_stream *other = streams; other; other = other->next)
            if (other != s && other->context == s->context && !(other->flags & CU_STREAM_NON_BLOCKING) &&
                (s == s->context->base || other == s->context->base))
                fake_run(other);
    *kept = w;
    kept->next = NULL;
    kept->fault = c->late;
    if (s->last) s->last->next = kept;
    else s->first = kept;
    s->last = kept;
    return fake_set.order == FAKE_EAGER ? fake_run(s) : CU_OK;
}

void fake_drop(fake_context *c) {
    for (fake_stream *s = streams; s; s = s->next) {
        if (s->context != c) continue;
        while (s->first) {
            fake_work *w = s->first;
            s->first = w->next;
            discard(w);
        }
        s->last = NULL;
    }
}

bool fake_is_pending(bool (*uses)(const fake_work *w, const void *what), const void *what, int *stream) {
    for (const fake_stream *s = streams; s; s = s->next)
        for (const fake_work *w = s->first; w; w = w->next)
            if (uses(w, what)) return *stream = s->number, true;
    return false;
}

/* ---- streams ---- */
static fake_stream *make(fake_context *c, unsigned flags) {
    fake_stream *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->context = c;
    s->flags = flags;
    s->number = ++n_streams_made;
    s->next = streams;
    streams = s;
    return s;
}

fake_stream *fake_stream_base(fake_context *c) {
    if (!c->base) c->base = make(c, 0);
    return c->base;
}

fake_stream *fake_stream_of(fake_call *c, cu_stream handle) {
    if (!handle) {
        fake_stream *base = fake_stream_base(c->context);
        if (!base) c->result = CU_OUT_OF_MEMORY;
        return base;
    }
    fake_stream *s = streams;
    while (s && s != handle) s = s->next;
    if (!s) c->result = fake_say(CU_INVALID_HANDLE, "%p is no stream, or a destroyed one", (void *)handle);
    else if (s->context != c->context)
        c->result = fake_say(CU_INVALID_HANDLE, "stream %d is one of another context", s->number), s = NULL;
    return s;
}

static void destroy(fake_stream *s) {
    for (fake_stream **at = &streams; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    free(s);
}

cu_result cuStreamCreate(cu_stream *stream, unsigned flags) {
    CALL(cuStreamCreate, CONTEXT);
    if (!stream || flags > 1) return CU_INVALID_VALUE;
    *stream = make(call.context, flags);
    return *stream ? CU_OK : CU_OUT_OF_MEMORY;
}

/* Its work is done first. */
cu_result cuStreamDestroy_v2(cu_stream stream) {
    CALL(cuStreamDestroy_v2, CONTEXT);
    fake_stream *s = stream ? fake_stream_of(&call, stream) : NULL;
    if (!s) return stream ? call.result : CU_INVALID_HANDLE;
    fake_run(s);
    if (!call.context->dead) destroy(s);
    return call.context->dead;
}

cu_result cuStreamSynchronize(cu_stream stream) {
    CALL(cuStreamSynchronize, CONTEXT);
    fake_stream *s = fake_stream_of(&call, stream);
    return s ? fake_run(s) : call.result;
}

/* Does one piece of its work, so that asking again and again comes to an end. */
cu_result cuStreamQuery(cu_stream stream) {
    CALL(cuStreamQuery, CONTEXT);
    fake_stream *s = fake_stream_of(&call, stream);
    if (!s) return call.result;
    if (!s->first) return CU_OK;
    cu_result r = run_one(s);
    return r ? r : CU_NOT_READY;
}

void fake_streams_forget(fake_context *c) {
    for (fake_stream *s = streams, *next; s; s = next) {
        next = s->next;
        if (s->context == c) destroy(s);
    }
    c->base = NULL;
}

/* ---- events ---- */
static cu_result check_event(const fake_call *c, cu_event event) {
    const struct cu_event_st *e = events;
    while (e && e != event) e = e->next;
    if (!e) return fake_say(CU_INVALID_HANDLE, "%p is no event, or a destroyed one", (void *)event);
    return e->context == c->context ? CU_OK : fake_say(CU_INVALID_HANDLE, "an event of another context");
}

cu_result cuEventCreate(cu_event *event, unsigned flags) {
    CALL(cuEventCreate, CONTEXT);
    if (!event || flags > 7) return CU_INVALID_VALUE;
    *event = calloc(1, sizeof **event);
    if (!*event) return CU_OUT_OF_MEMORY;
    (*event)->context = call.context;
    (*event)->flags = flags;
    (*event)->next = events;
    events = *event;
    return CU_OK;
}

cu_result cuEventDestroy_v2(cu_event event) {
    CALL(cuEventDestroy_v2, CONTEXT);
    cu_result r = check_event(&call, event);
    if (r) return r;
    for (struct cu_event_st **at = &events; *at; at = &(*at)->next)
        if (*at == event) {
            *at = event->next;
            break;
        }
    let_go(event->mark);
    free(event);
    return CU_OK;
}

cu_result cuEventRecord(cu_event event, cu_stream stream) {
    CALL(cuEventRecord, CONTEXT);
    fake_stream *s = fake_stream_of(&call, stream);
    if (!s) return call.result;
    cu_result r = check_event(&call, event);
    if (r) return r;
    fake_mark *m = calloc(1, sizeof *m);
    if (!m) return CU_OUT_OF_MEMORY;
    m->stream = s;
    m->uses = 2; /* the event's and the work's */
    let_go(event->mark);
    event->mark = m;
    return fake_put(&call, s, (fake_work){.kind = FAKE_RECORD, .mark = m});
}

cu_result cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned flags) {
    CALL(cuStreamWaitEvent, CONTEXT);
    fake_stream *s = fake_stream_of(&call, stream);
    if (!s) return call.result;
    cu_result r = flags ? CU_INVALID_VALUE : check_event(&call, event);
    if (r || !event->mark) return r; /* never recorded: nothing to wait for */
    event->mark->uses++;
    return fake_put(&call, s, (fake_work){.kind = FAKE_WAIT, .mark = event->mark});
}

cu_result cuEventQuery(cu_event event) {
    CALL(cuEventQuery, CONTEXT);
    cu_result r = check_event(&call, event);
    if (r || !event->mark || event->mark->is_done) return r;
    r = run_one(event->mark->stream);
    return r ? r : CU_NOT_READY;
}

cu_result cuEventSynchronize(cu_event event) {
    CALL(cuEventSynchronize, CONTEXT);
    cu_result r = check_event(&call, event);
    if (r || !event->mark) return r;
    if (fake_set.order == FAKE_REVERSE && !event->mark->is_done) return fake_run(event->mark->stream);
    run_to(event->mark);
    return call.context->dead;
}

cu_result cuEventElapsedTime(float *ms, cu_event from, cu_event to) {
    CALL(cuEventElapsedTime, CONTEXT);
    cu_result r = ms ? check_event(&call, from) : CU_INVALID_VALUE;
    if (!r) r = check_event(&call, to);
    if (r) return r;
    if ((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING)
        return fake_say(CU_INVALID_HANDLE, "an event without time");
    if (!from->mark || !to->mark) return fake_say(CU_INVALID_HANDLE, "an event that was not recorded");
    if (!from->mark->is_done || !to->mark->is_done) return CU_NOT_READY;
    *ms = (float)((double)(to->mark->at_ns - from->mark->at_ns) * 1e-6);
    return CU_OK;
}

long fake_stream_live(const char *kind) {
    long n = 0;
    if (strcmp(kind, "stream") == 0)
        for (const fake_stream *s = streams; s; s = s->next) n += s != s->context->base;
    if (strcmp(kind, "event") == 0)
        for (const struct cu_event_st *e = events; e; e = e->next) n++;
    if (strcmp(kind, "pending") == 0)
        for (const fake_stream *s = streams; s; s = s->next)
            for (const fake_work *w = s->first; w; w = w->next) n++;
    return n;
}
