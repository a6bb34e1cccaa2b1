/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_api.c: the entry points of cache.h. */
#include "base/small.h"
#include "context.h"
#include "fusor/cache.h"

/* What a caller built against the first version has. */
#define FIRST_SIZE offsetof(fusor_cache_stats, saved_ns)

static fusor_status give_stats(fu_error *e, const char *what, const rt_cache_stats *s, fusor_cache_stats *out) {
    if (!out || out->size < FIRST_SIZE)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s: out->size must be sizeof(fusor_cache_stats), at least %d", what,
                       (int)FIRST_SIZE);
    size_t size = out->size < sizeof *out ? out->size : sizeof *out;
    fusor_cache_stats all = {out->size,
                             s->memory_hits,
                             s->disk_hits,
                             s->misses,
                             s->compiles,
                             s->failures,
                             s->written,
                             s->evicted,
                             s->bad_entries,
                             s->load_ns,
                             s->compile_ns,
                             s->saved_ns,
                             s->miss[RT_MISS_NEW],
                             s->miss[RT_MISS_GONE],
                             s->miss[RT_MISS_DAMAGED],
                             s->miss[RT_MISS_FOREIGN],
                             s->miss[RT_MISS_FEATURES],
                             s->miss[RT_MISS_UNREADABLE],
                             s->miss[RT_MISS_NO_LINES],
                             s->miss[RT_MISS_REFRESH],
                             s->miss[RT_MISS_OFF]};
    memcpy(out, &all, size);
    return FUSOR_OK;
}

fusor_status fusor_cache_get_stats(fusor_context *ctx, fusor_cache_stats *out) {
    fu_error e;
    if (!ctx) return context_refuse("fusor_cache_get_stats: the context is NULL");
    fu_error_clear(&e);
    rt_cache_stats s = rt_cache_get_stats(ctx->cache);
    return give_stats(&e, "fusor_cache_get_stats", &s, out) == FUSOR_OK ? FUSOR_OK : context_fail(ctx, &e);
}

fusor_status fusor_cache_get_totals(fusor_context *ctx, fusor_cache_stats *out, int64_t *since_s_out) {
    fu_error e;
    rt_cache_stats s = {0};
    int64_t since = 0;
    if (!ctx) return context_refuse("fusor_cache_get_totals: the context is NULL");
    fu_error_clear(&e);
    const char *dir = rt_cache_dir(ctx->cache);
    if ((dir[0] && rt_cache_read_totals(&e, dir, &s, &since) != FUSOR_OK) ||
        give_stats(&e, "fusor_cache_get_totals", &s, out) != FUSOR_OK)
        return context_fail(ctx, &e);
    if (since_s_out) *since_s_out = since;
    return FUSOR_OK;
}

const char *fusor_cache_directory(fusor_context *ctx) { return ctx ? rt_cache_dir(ctx->cache) : ""; }

typedef struct listing {
    int (*visit)(void *user, const fusor_cache_entry *entry);
    void *user;
} listing;

static bool visit_entry(void *user, const rt_cache_entry *x) {
    const listing *l = user;
    fusor_cache_entry e = {.key = x->key,
                           .symbol = x->symbol ? x->symbol : "",
                           .level = x->level ? x->level : "",
                           .description = x->description ? x->description : "",
                           .problem = x->problem,
                           .file_bytes = x->file_bytes,
                           .code_bytes = x->code_bytes,
                           .compile_ns = x->compile_ns,
                           .created_s = x->created_s,
                           .used_s = x->used_s,
                           .is_of_this_build = x->is_of_this_build,
                           .hits = x->hits};
    return l->visit(l->user, &e) != 0;
}

fusor_status fusor_cache_list(fusor_context *ctx, int (*visit)(void *user, const fusor_cache_entry *entry),
                              void *user) {
    fu_error e;
    if (!ctx) return context_refuse("fusor_cache_list: the context is NULL");
    fu_error_clear(&e);
    if (!visit)
        return FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_cache_list: visit must not be NULL"), context_fail(ctx, &e);
    listing l = {visit, user};
    if (rt_cache_dir(ctx->cache)[0] == 0) return FUSOR_OK; /* memory only: no entries */
    return rt_cache_list(&e, rt_cache_dir(ctx->cache), visit_entry, &l) == FUSOR_OK ? FUSOR_OK : context_fail(ctx, &e);
}

fusor_status fusor_cache_clear(fusor_context *ctx, int64_t *n_out) {
    fu_error e;
    if (!ctx) return context_refuse("fusor_cache_clear: the context is NULL");
    fu_error_clear(&e);
    int64_t n = 0;
    const char *dir = rt_cache_dir(ctx->cache);
    if (dir[0] && rt_cache_clear(&e, dir, &n) != FUSOR_OK) return context_fail(ctx, &e);
    if (n_out) *n_out = n;
    return FUSOR_OK;
}

fusor_status fusor_cache_add_bundle(fusor_context *ctx, const char *path) {
    fu_error e;
    if (!ctx) return context_refuse("fusor_cache_add_bundle: the context is NULL");
    fu_error_clear(&e);
    if (!path)
        return FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_cache_add_bundle: path must not be NULL"),
               context_fail(ctx, &e);
    return rt_cache_add_tier(ctx->cache, &e, path) == FUSOR_OK ? FUSOR_OK : context_fail(ctx, &e);
}

fusor_status fusor_cache_add_bundle_memory(fusor_context *ctx, const void *data, size_t bytes) {
    fu_error e;
    if (!ctx) return context_refuse("fusor_cache_add_bundle_memory: the context is NULL");
    fu_error_clear(&e);
    if (!data)
        return FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_cache_add_bundle_memory: data must not be NULL"),
               context_fail(ctx, &e);
    return rt_cache_add_memory_tier(ctx->cache, &e, data, bytes) == FUSOR_OK ? FUSOR_OK : context_fail(ctx, &e);
}

fusor_status fusor_cache_prune(fusor_context *ctx, uint64_t max_bytes, int64_t max_age_s, int64_t *n_out,
                               int64_t *bytes_out) {
    fu_error e;
    if (!ctx) return context_refuse("fusor_cache_prune: the context is NULL");
    fu_error_clear(&e);
    if (max_age_s < 0)
        return FU_FAIL(&e, FUSOR_ERROR_ARGUMENT,
                       "fusor_cache_prune: max_age_s is %lld; expected 0, any age, or seconds", (long long)max_age_s),
               context_fail(ctx, &e);
    int64_t n = 0, bytes = 0;
    const char *dir = rt_cache_dir(ctx->cache);
    if (dir[0] && rt_cache_prune(&e, dir, max_bytes, max_age_s, false, &n, &bytes) != FUSOR_OK)
        return context_fail(ctx, &e);
    if (n_out) *n_out = n;
    if (bytes_out) *bytes_out = bytes;
    return FUSOR_OK;
}

typedef struct checking {
    fu_error *e;
    const char *dir;
    int64_t n, n_bad;
    fusor_status status;
} checking;

static bool check_entry(void *user, const rt_cache_entry *x) {
    checking *c = user;
    c->n++;
    if (!x->problem) return true;
    if (x->is_unread) { /* the first one is told, when all are checked */
        if (c->status == FUSOR_OK)
            c->status = FU_FAIL(c->e, FUSOR_ERROR_IO, "fusor_cache_verify: %s/%s: %s", c->dir, x->file, x->problem);
        return true;
    }
    c->n_bad++;
    fu_error own;
    fu_error_clear(&own);
    const fusor_status set_aside = rt_cache_quarantine(&own, c->dir, x->file);
    if (set_aside != FUSOR_OK && c->status == FUSOR_OK) {
        c->status = set_aside;
        *c->e = own;
    }
    return set_aside == FUSOR_OK;
}

fusor_status fusor_cache_verify(fusor_context *ctx, int64_t *n_out, int64_t *n_bad_out) {
    fu_error e;
    if (!ctx) return context_refuse("fusor_cache_verify: the context is NULL");
    fu_error_clear(&e);
    checking c = {.e = &e, .dir = rt_cache_dir(ctx->cache)};
    if (c.dir[0] && (rt_cache_list(&e, c.dir, check_entry, &c) != FUSOR_OK || c.status != FUSOR_OK))
        return context_fail(ctx, &e);
    if (n_out) *n_out = c.n;
    if (n_bad_out) *n_bad_out = c.n_bad;
    return FUSOR_OK;
}

fusor_status fusor_cache_export(fusor_context *ctx, const char *bundle, int64_t *n_out) {
    fu_error e;
    if (!ctx) return context_refuse("fusor_cache_export: the context is NULL");
    fu_error_clear(&e);
    if (!bundle)
        return FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_cache_export: bundle must not be NULL"), context_fail(ctx, &e);
    const char *dir = rt_cache_dir(ctx->cache);
    if (!dir[0])
        return FU_FAIL(&e, FUSOR_ERROR_IO, "fusor_cache_export: the context has no cache directory"),
               context_fail(ctx, &e);
    int64_t n = 0;
    if (rt_cache_export(&e, dir, bundle, &n) != FUSOR_OK) return context_fail(ctx, &e);
    if (n_out) *n_out = n;
    return FUSOR_OK;
}

static fusor_status why(fusor_context *ctx, fu_error *e, fu_arena *arena, const compile_request *r,
                        int (*visit)(void *user, const fusor_cache_answer *answer), void *user) {
    ir_plan *plan;
    FU_TRY(compile_plan(arena, e, r, &plan));
    compile_choose_held(arena, e, r, &plan);
    rt_cache_answer *a = fu_alloc(arena, sizeof *a);
    for (uint32_t i = 0; i < plan->steps.n; i++) {
        if (plan->steps.at[i].kind != IR_STEP_KERNEL) continue;
        FU_TRY(rt_cache_why(ctx->cache, e, plan->steps.at[i].kernel, a));
        fusor_cache_answer answer = {a->is_hit,
                                     a->symbol,
                                     a->key,
                                     a->is_hit && a->source == RT_CACHE_MEMORY ? "memory" : a->where,
                                     a->is_hit ? "" : rt_miss_reason_names[a->reason],
                                     a->problem,
                                     a->nearest,
                                     a->field,
                                     a->wanted,
                                     a->has};
        if (!visit(user, &answer)) break;
    }
    return FUSOR_OK;
}

fusor_status fusor_cache_why(fusor_context *ctx, const char *text, const char *function,
                             int (*visit)(void *user, const fusor_cache_answer *answer), void *user) {
    fu_error e;
    fu_arena arena;
    jmp_buf oom;
    if (!ctx) return context_refuse("fusor_cache_why: the context is NULL");
    fu_error_clear(&e);
    if (!text || !visit)
        return FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_cache_why: text and visit must not be NULL"),
               context_fail(ctx, &e);
    compile_request r = {.ctx = ctx, .name = "<text>", .text = text, .length = strlen(text), .function = function};
    fu_arena_init(&arena, &oom);
    rt_fpenv environment;
    rt_fpenv_enter(&environment); /* as compiling does: the same kernels */
    fusor_status s;
    if (setjmp(oom)) s = FU_FAIL(&e, FUSOR_ERROR_MEMORY, "out of memory while planning");
    else s = why(ctx, &e, &arena, &r, visit, user);
    rt_fpenv_leave(&environment);
    fu_arena_free(&arena);
    return s == FUSOR_OK ? FUSOR_OK : context_fail(ctx, &e);
}
