/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* trace_api.c: fusor_trace_json: the events of a context in Chrome's trace event format. One process, a row a thread; a
 * call holds its kernels, a kernel what its threads did, by times alone. */
#include "context.h"
#include "fusor/profile.h"
#include "rt/trace.h"
#include <jansson.h>

static const char *const categories[] = {
    [RT_EVENT_STAGE] = "plan",  [RT_EVENT_COMPILE] = "compile", [RT_EVENT_LOAD] = "load",
    [RT_EVENT_STEP] = "kernel", [RT_EVENT_TILES] = "tiles",     [RT_EVENT_CALL] = "call"};

static json_t *event_json(const rt_profile *p, const rt_event *x, int64_t start) {
    const rt_profile_entry *e =
        x->entry >= 0 && x->entry < RT_PROFILE_ENTRIES && atomic_load(&p->entry[x->entry].is_ready)
            ? &p->entry[x->entry]
            : NULL;
    const char *name = x->text[0] ? x->text : e ? (e->symbol[0] ? e->symbol : e->kind) : "step";
    const char *category = e && e->step < 0 ? "transfer" : categories[x->kind];
    json_t *o = json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i}", "name", name, "cat", category, "ph", "X", "ts",
                          (double)(x->begin_ns - start) / 1e3, "dur", (double)(x->end_ns - x->begin_ns) / 1e3, "pid", 1,
                          "tid", x->thread + 1);
    json_t *args = NULL;
    if (x->kind == RT_EVENT_TILES)
        args = json_pack("{s:i, s:I, s:I}", "phase", x->phase, "first", (json_int_t)x->first, "tiles",
                         (json_int_t)(x->last - x->first));
    else if (e && x->kind == RT_EVENT_STEP)
        args = json_pack("{s:i, s:s, s:s, s:s, s:s}", "step", e->step, "kind", e->kind, "ops", e->ops, "name", e->names,
                         "loc", e->places);
    if (args) (void)json_object_set_new(o, "args", args);
    return o;
}

static json_t *name_json(const char *what, int thread, const char *name) {
    return json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", what, "ph", "M", "pid", 1, "tid", thread, "args", "name",
                     name);
}

static json_t *events_json(const rt_profile *p, rt_trace *t) {
    json_t *a = json_array();
    const int64_t n = rt_trace_used(t);
    rt_event x;
    int64_t start = INT64_MAX;
    bool has_row[1024] = {false};
    char name[32];
    for (int64_t i = 0; i < n; i++)
        if (rt_trace_read(t, i, &x) && x.begin_ns < start) start = x.begin_ns;
    (void)json_array_append_new(a, name_json("process_name", 0, "fusor"));
    for (int64_t i = 0; i < n; i++) {
        if (!rt_trace_read(t, i, &x) || x.begin_ns < start) continue; /* earlier: it has ended only now */
        if (x.thread < 1024 && !has_row[x.thread]) {
            has_row[x.thread] = true;
            snprintf(name, sizeof name, "thread %d", x.thread);
            (void)json_array_append_new(a, name_json("thread_name", x.thread + 1, name));
        }
        (void)json_array_append_new(a, event_json(p, &x, start));
    }
    return a;
}

fusor_status fusor_trace_json(fusor_context *ctx, char **text_out) {
    fu_error e;
    if (!ctx || !text_out) return context_refuse("fusor_trace_json: the context or text_out is NULL");
    fu_error_clear(&e);
    rt_profile *p = atomic_load_explicit(&ctx->profile, memory_order_acquire);
    rt_trace *t = p ? atomic_load(&p->trace) : NULL;
    rt_fpenv environment;
    rt_fpenv_enter(&environment);
    json_t *d = json_pack("{s:o, s:s, s:{s:I}}", "traceEvents", t ? events_json(p, t) : json_array(), "displayTimeUnit",
                          "ns", "otherData", "dropped", (json_int_t)(t ? rt_trace_dropped(t) : 0));
    const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(15), bytes = d ? json_dumpb(d, NULL, 0, flags) : 0;
    char *text = bytes ? fu_malloc(bytes + 1) : NULL;
    if (text) text[json_dumpb(d, text, bytes, flags)] = 0;
    json_decref(d);
    rt_fpenv_leave(&environment);
    if (!text) return FU_FAIL(&e, FUSOR_ERROR_MEMORY, "fusor_trace_json: out of memory"), context_fail(ctx, &e);
    *text_out = text;
    return FUSOR_OK;
}
