/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_api.c: the entry points of cache.h. */
#include "context.h"
#include "fusor/cache.h"

fusor_status fusor_cache_get_stats(fusor_context *ctx, fusor_cache_stats *out) {
    fu_error e;
    if (!ctx) return FUSOR_ERROR_ARGUMENT;
    fu_error_clear(&e);
    if (!out || out->size < sizeof *out) {
        FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_cache_get_stats: out->size must be sizeof(fusor_cache_stats)");
        return context_fail(ctx, &e);
    }
    rt_cache_stats s = rt_cache_get_stats(ctx->cache);
    *out = (fusor_cache_stats){out->size, s.memory_hits, s.disk_hits, s.misses, s.compiles, s.failures, s.written, s.evicted, s.bad_entries, s.load_ns, s.compile_ns};
    return FUSOR_OK;
}

const char *fusor_cache_directory(fusor_context *ctx) { return ctx ? rt_cache_dir(ctx->cache) : ""; }

typedef struct listing { int (*visit)(void *user, const fusor_cache_entry *entry); void *user; } listing;

static bool visit_entry(void *user, const rt_cache_entry *x) {
    const listing *l = user;
    fusor_cache_entry e = {.key = x->key, .symbol = x->symbol ? x->symbol : "", .level = x->level ? x->level : "", .description = x->description ? x->description : "",
                           .problem = x->problem, .file_bytes = x->file_bytes, .code_bytes = x->code_bytes, .compile_ns = x->compile_ns,
                           .created_s = x->created_s, .used_s = x->used_s, .is_of_this_build = x->is_of_this_build};
    return l->visit(l->user, &e) != 0;
}

fusor_status fusor_cache_list(fusor_context *ctx, int (*visit)(void *user, const fusor_cache_entry *entry), void *user) {
    fu_error e;
    if (!ctx) return FUSOR_ERROR_ARGUMENT;
    fu_error_clear(&e);
    if (!visit) return FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_cache_list: visit must not be NULL"), context_fail(ctx, &e);
    listing l = {visit, user};
    if (rt_cache_dir(ctx->cache)[0] == 0) return FUSOR_OK;      /* memory only: no entries */
    return rt_cache_list(&e, rt_cache_dir(ctx->cache), visit_entry, &l) == FUSOR_OK ? FUSOR_OK : context_fail(ctx, &e);
}

fusor_status fusor_cache_clear(fusor_context *ctx, int64_t *n_out) {
    fu_error e;
    if (!ctx) return FUSOR_ERROR_ARGUMENT;
    fu_error_clear(&e);
    if (n_out) *n_out = 0;
    if (rt_cache_dir(ctx->cache)[0] == 0) return FUSOR_OK;
    return rt_cache_clear(&e, rt_cache_dir(ctx->cache), n_out) == FUSOR_OK ? FUSOR_OK : context_fail(ctx, &e);
}

fusor_status fusor_cache_add_bundle(fusor_context *ctx, const char *path) {
    fu_error e;
    if (!ctx) return FUSOR_ERROR_ARGUMENT;
    fu_error_clear(&e);
    if (!path) return FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_cache_add_bundle: path must not be NULL"), context_fail(ctx, &e);
    return rt_cache_add_tier(ctx->cache, &e, path) == FUSOR_OK ? FUSOR_OK : context_fail(ctx, &e);
}
