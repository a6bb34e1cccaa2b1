/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* profile_api.c: the entry points of profile.h. */
#include "base/small.h"
#include "context.h"
#include "fusor/cache.h"
#include "fusor/profile.h"
#include "profile_advice.h"
#include "rt/buffer.h"
#include "rt/trace.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fusor_status no_memory(fusor_context *ctx) {
    fu_error e;
    fu_error_clear(&e);
    (void)FU_FAIL(&e, FUSOR_ERROR_MEMORY, "fusor_profile_enable: no memory for the profile");
    return context_fail(ctx, &e);
}

fusor_status fusor_profile_enable(fusor_context *ctx, int on) {
    if (!ctx) return context_refuse("fusor_profile_enable: the context is NULL");
    if (on < 0 || on > FUSOR_PROFILE_EVENTS) {
        fu_error e;
        fu_error_clear(&e);
        (void)FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_profile_enable: on is %d; expected 0, 1 or 2 (events too)", on);
        return context_fail(ctx, &e);
    }
    rt_profile *p = atomic_load_explicit(&ctx->profile, memory_order_acquire);
    if (!p && !on) return FUSOR_OK;
    if (!p) {
        rt_profile *made = rt_profile_new();
        if (!made) return no_memory(ctx);
        if (atomic_compare_exchange_strong(&ctx->profile, &p, made)) p = made;
        else fu_free(made); /* another thread was first */
    }
    if (on == FUSOR_PROFILE_EVENTS && !atomic_load(&p->trace)) {
        rt_trace *made = rt_trace_new(), *none = NULL;
        if (!made) return no_memory(ctx);
        if (!atomic_compare_exchange_strong(&p->trace, &none, made)) rt_trace_free(made);
    }
    if (on && !atomic_load(&p->on)) {
        const rt_memory_stats now = rt_memory_get_stats();
        rt_profile_reset(p);
        atomic_store(&p->memory.gets, now.gets);
        atomic_store(&p->memory.reused, now.reused);
        atomic_store(&p->memory.system_bytes, now.system_bytes);
    }
    atomic_store(&p->on, on == FUSOR_PROFILE_EVENTS ? RT_PROFILE_EVENTS : on ? RT_PROFILE_COUNTS : RT_PROFILE_OFF);
    return FUSOR_OK;
}

static int slower_first(const void *a, const void *b) {
    int64_t x = atomic_load(&(*(rt_profile_entry *const *)a)->ns),
            y = atomic_load(&(*(rt_profile_entry *const *)b)->ns);
    return x > y ? -1 : x < y;
}

static json_t *entry_json(rt_profile_entry *e, double all, const rt_limits *limits) {
    const int64_t calls = atomic_load(&e->calls), median = rt_profile_median(e);
    double ns = (double)atomic_load(&e->ns), bytes = atomic_load(&e->bytes), flops = atomic_load(&e->flops),
           work = atomic_load(&e->work);
    const double one = calls ? 1.0 / (double)calls : 0, each = median > 0 ? one / (double)median : 0;
    const rt_bound bound = rt_limits_bound(limits, e->type, bytes * one, work * one, (double)median);
    profile_facts f = {.kind = e->kind,
                       .ops = e->ops,
                       .limit = bound.limit,
                       .limit_share = bound.share,
                       .median_ns = (double)median,
                       .bytes = bytes * one,
                       .n_threads = limits->n_threads};
    json_t *o = json_pack(
        "{s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:s, s:f, s:s}",
        "function", e->function, "step", e->step, "kind", e->kind, "symbol", e->symbol, "ops", e->ops, "names",
        e->names, "places", e->places, "calls", (json_int_t)calls, "ns", (json_int_t)ns, "min_ns",
        (json_int_t)atomic_load(&e->min_ns), "median_ns", (json_int_t)median, "bytes", (json_int_t)bytes, "flops",
        (json_int_t)flops, "work", (json_int_t)work, "gb_s", bytes * each, "gflop_s", flops * each, "share",
        all > 0 ? ns / all : 0.0, "limit", bound.limit, "limit_share", bound.share, "advice", profile_advice(&f));
    return o;
}

/* At most `most` characters of a list of names or places, cut between two of them. */
static const char *shortened(const char *list, int most, char out[128]) {
    int n = (int)strlen(list);
    if (n <= most) return list;
    for (n = most; n > 0 && list[n] != ' ' && list[n] != ','; n--) {}
    if (n == 0) n = most; /* one long word */
    while (n > 1 && (list[n - 1] == ',' || list[n - 1] == ' ')) n--;
    snprintf(out, 128, "%.*s ...", n, list);
    return out;
}

/* The kernels that take most of the time, in sentences. */
static json_t *bottleneck_json(const json_t *kernels) {
    json_t *a = json_array(), *k;
    size_t i;
    double told = 0;
    char text[800], room[128];
    json_array_foreach((json_t *)kernels, i, k) {
        const double share = json_number_value(json_object_get(k, "share"));
        if (i >= 3 || (i > 0 && (share < 0.1 || told > 0.9))) break;
        const char *places = json_string_value(json_object_get(k, "places")),
                   *names = json_string_value(json_object_get(k, "names"));
        const char *what = names && names[0] ? names : places && places[0] ? places : "";
        snprintf(text, sizeof text, "kernel %d (%s%s%s) takes %.0f %% of the time: %s",
                 (int)json_integer_value(json_object_get(k, "step")), json_string_value(json_object_get(k, "kind")),
                 what[0] ? ", " : "", shortened(what, 100, room), 100 * share,
                 json_string_value(json_object_get(k, "advice")));
        (void)json_array_append_new(a, json_string(text));
        told += share;
    }
    return a;
}

static json_t *limits_json(const rt_limits *l) {
    json_t *peaks = json_object(), *bandwidths = json_object();
    for (int i = 0; i < RT_LIMIT_TYPES; i++)
        (void)json_object_set_new(peaks, rt_limit_type_names[i], json_real(l->peak[i] / 1e9));
    for (int i = 0; i < RT_LIMIT_LEVELS; i++)
        (void)json_object_set_new(bandwidths, rt_limit_level_names[i], json_real(l->bandwidth[i] / 1e9));
    return json_pack("{s:o, s:o}", "peak_gflops", peaks, "bandwidth_gbs", bandwidths);
}

static const double FASTER =
    1.1; /* than the peak: the model's work is an estimate, but no kernel is so much faster than it */

static json_t *document(fusor_context *ctx, rt_profile *p) {
    int n = 0, used = p ? atomic_load(&p->used) : 0;
    double all = 0;
    rt_profile_entry **order = fu_calloc(RT_PROFILE_ENTRIES, sizeof *order);
    if (!order) return NULL;
    for (int i = 0; i < used && i < RT_PROFILE_ENTRIES; i++) {
        rt_profile_entry *x = &p->entry[i];
        if (!atomic_load_explicit(&x->is_ready, memory_order_acquire) || atomic_load(&x->calls) == 0) continue;
        order[n++] = x;
        all += (double)atomic_load(&x->ns);
    }
    qsort(order, (size_t)n, sizeof *order, slower_first);
    rt_limits limits = {.n_threads = ctx->n_threads};
    const bool is_read_only = context_keeps_nothing(ctx);
    if (n) limits = context_limits(ctx, is_read_only);
    for (int i = 0; i < n && !context_home(ctx); i++) {
        const double rate = atomic_load(&order[i]->work) / (double)atomic_load(&order[i]->calls) /
                            (double)rt_profile_median(order[i]) * 1e9;
        if (isfinite(rate) && rate > FASTER * rt_limits_peak(&limits, order[i]->type))
            rt_limits_beside(&limits, rt_cache_dir(ctx->cache), is_read_only, order[i]->type, rate, false);
    }
    json_t *kernels = json_array();
    for (int i = 0; i < n; i++) (void)json_array_append_new(kernels, entry_json(order[i], all, &limits));
    fu_free(order);
    fusor_cache_stats c = {.size = sizeof c};
    if (fusor_cache_get_stats(ctx, &c) != FUSOR_OK) c.compiles = -1; /* it cannot: ctx is there */
    const rt_memory_stats now = rt_memory_get_stats();
    rt_memory_stats was = now;
    if (p) {
        was.gets = atomic_load(&p->memory.gets);
        was.reused = atomic_load(&p->memory.reused);
        was.system_bytes = atomic_load(&p->memory.system_bytes);
    }
    return json_pack("{s:s, s:o, s:I, s:I, s:i, s:o, s:{s:I, s:I, s:I}, s:{s:I, s:I, s:I}, s:o}", "schema",
                     "fusor-profile/1", "kernels", kernels, "ns", (json_int_t)all, "dropped",
                     (json_int_t)(p ? atomic_load(&p->dropped) : 0), "threads", ctx->n_threads, "limits",
                     limits_json(&limits), "cache", "memory_hits", (json_int_t)c.memory_hits, "disk_hits",
                     (json_int_t)c.disk_hits, "compiles", (json_int_t)c.compiles, "pool", "gets",
                     (json_int_t)(now.gets - was.gets), "reused", (json_int_t)(now.reused - was.reused), "system_bytes",
                     (json_int_t)(now.system_bytes - was.system_bytes), "bottleneck", bottleneck_json(kernels));
}

fusor_status fusor_profile_json(fusor_context *ctx, char **text_out) {
    fu_error e;
    if (!ctx || !text_out) return context_refuse("fusor_profile_json: the context or text_out is NULL");
    fu_error_clear(&e);
    rt_fpenv environment;
    rt_fpenv_enter(&environment);
    json_t *d = document(ctx, atomic_load_explicit(&ctx->profile, memory_order_acquire));
    const size_t flags = JSON_INDENT(1) | JSON_REAL_PRECISION(9), bytes = d ? json_dumpb(d, NULL, 0, flags) : 0;
    char *text = bytes ? fu_malloc(bytes + 1) : NULL;
    if (text) text[json_dumpb(d, text, bytes, flags)] = 0;
    json_decref(d);
    rt_fpenv_leave(&environment);
    if (!text) {
        (void)FU_FAIL(&e, FUSOR_ERROR_MEMORY, "fusor_profile_json: out of memory");
        return context_fail(ctx, &e);
    }
    *text_out = text;
    return FUSOR_OK;
}
