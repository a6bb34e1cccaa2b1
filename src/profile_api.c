/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* profile_api.c: the entry points of profile.h. */
#include "context.h"
#include "fusor/cache.h"
#include "fusor/profile.h"
#include <jansson.h>
#include <stdlib.h>

fusor_status fusor_profile_enable(fusor_context *ctx, int on) {
    if (!ctx) return FUSOR_ERROR_ARGUMENT;
    rt_profile *p = atomic_load_explicit(&ctx->profile, memory_order_acquire);
    if (!p && !on) return FUSOR_OK;
    if (!p) {
        rt_profile *made = rt_profile_new();
        if (!made) {
            fu_error e;
            fu_error_clear(&e);
            (void)FU_FAIL(&e, FUSOR_ERROR_MEMORY, "fusor_profile_enable: no memory for the profile");
            return context_fail(ctx, &e);
        }
        if (atomic_compare_exchange_strong(&ctx->profile, &p, made)) p = made;
        else fu_free(made);     /* another thread was first */
    }
    if (on && !atomic_load(&p->on)) rt_profile_reset(p);
    atomic_store(&p->on, on != 0);
    return FUSOR_OK;
}

static int slower_first(const void *a, const void *b) {
    int64_t x = atomic_load(&(*(rt_profile_entry *const *)a)->ns), y = atomic_load(&(*(rt_profile_entry *const *)b)->ns);
    return x > y ? -1 : x < y;
}

static json_t *entry_json(rt_profile_entry *e, double all) {
    double ns = (double)atomic_load(&e->ns), bytes = atomic_load(&e->bytes), flops = atomic_load(&e->flops);
    return json_pack("{s:s, s:i, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "function", e->function, "step", e->step, "kind", e->kind, "symbol", e->symbol,
                     "ops", e->ops, "calls", (json_int_t)atomic_load(&e->calls), "ns", (json_int_t)ns, "min_ns", (json_int_t)atomic_load(&e->min_ns),
                     "bytes", (json_int_t)bytes, "flops", (json_int_t)flops, "gb_s", ns > 0 ? bytes / ns : 0.0, "gflop_s", ns > 0 ? flops / ns : 0.0,
                     "share", all > 0 ? ns / all : 0.0);
}

fusor_status fusor_profile_json(fusor_context *ctx, char **text_out) {
    fu_error e;
    if (!ctx || !text_out) return FUSOR_ERROR_ARGUMENT;
    fu_error_clear(&e);
    rt_profile *p = atomic_load_explicit(&ctx->profile, memory_order_acquire);
    int n = 0, used = p ? atomic_load(&p->used) : 0;
    double all = 0;
    rt_profile_entry **order = fu_calloc(RT_PROFILE_ENTRIES, sizeof *order);
    for (int i = 0; order && i < used && i < RT_PROFILE_ENTRIES; i++) {
        rt_profile_entry *x = &p->entry[i];
        if (!atomic_load_explicit(&x->is_ready, memory_order_acquire) || atomic_load(&x->calls) == 0) continue;
        order[n++] = x;
        all += (double)atomic_load(&x->ns);
    }
    json_t *kernels = json_array(), *d = NULL;
    if (order && kernels) {
        qsort(order, (size_t)n, sizeof *order, slower_first);
        for (int i = 0; i < n; i++) (void)json_array_append_new(kernels, entry_json(order[i], all));
        fusor_cache_stats c = {.size = sizeof c};
        if (fusor_cache_get_stats(ctx, &c) != FUSOR_OK) c.compiles = -1;    /* it cannot: ctx is there */
        d = json_pack("{s:s, s:O, s:I, s:I, s:{s:I, s:I, s:I}}", "schema", "fusor-profile/1", "kernels", kernels, "ns", (json_int_t)all, "dropped",
                      (json_int_t)(p ? atomic_load(&p->dropped) : 0), "cache", "memory_hits", (json_int_t)c.memory_hits, "disk_hits", (json_int_t)c.disk_hits, "compiles",
                      (json_int_t)c.compiles);
    }
    json_decref(kernels);
    fu_free(order);
    const size_t flags = JSON_INDENT(1) | JSON_REAL_PRECISION(9), bytes = d ? json_dumpb(d, NULL, 0, flags) : 0;
    char *text = bytes ? fu_malloc(bytes + 1) : NULL;
    if (text) text[json_dumpb(d, text, bytes, flags)] = 0;
    json_decref(d);
    if (!text) {
        (void)FU_FAIL(&e, FUSOR_ERROR_MEMORY, "fusor_profile_json: out of memory");
        return context_fail(ctx, &e);
    }
    *text_out = text;
    return FUSOR_OK;
}
