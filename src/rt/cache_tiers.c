/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_tiers.c: a kernel from entries: bundles and read-only directories in their order, then the cache directory. A
 * bad entry is a warning, counted, set aside where the directory is ours, and a miss. */
#include "rt/cache_internal.h"
#include "base/arena.h"
#include "rt/cpuinfo.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TOUCH_SECONDS = 3600 };

/* Counts a bad entry, and warns of it: once, although a request looks into the directory twice. is_bad: not for want of
 * a descriptor or memory. */
static void tell(rt_cache *c, const cache_wish *w, const char *where, const char *problem, bool is_bad) {
    if (w->is_told) return;
    pthread_mutex_lock(&c->lock);
    if (is_bad) CACHE_COUNT(c, bad_entries, 1);
    pthread_mutex_unlock(&c->lock);
    fu_log_warn(&c->log, "cache entry %s/%s: %s; it is ignored", where, w->file, problem);
}

const char *cache_mismatch(const rt_cache *c, cache_wish *w, const rt_entry *entry) {
    const rt_entry_header *h = entry->head;
    w->reason = RT_MISS_FOREIGN;
    if (memcmp(h->key, w->key, IR_KEY_BYTES) != 0) return "the key inside is not that of its name";
    if (strcmp(h->build_id, c->build_id) != 0) return "of another build";
    if (h->description_bytes != w->bytes || memcmp(entry->description, w->description, w->bytes) != 0)
        return "of another kernel with the same key";
    char target[IR_TARGET_MAX];
    if (strcmp(h->level, ir_target_name(w->target, target)) != 0) return "of another target";
    if (ir_level_is_gpu(w->target.level) && cache_text_problem(entry->blob, (size_t)h->blob_bytes))
        return cache_text_problem(entry->blob, (size_t)h->blob_bytes);
    w->reason = RT_MISS_NEW;
    return NULL;
}

/* One tier's answer. where names it for the warning. True: *out is loaded (or, with out NULL, an intact entry is
 * there). A bad entry is a miss; only a loader that has no memory or is not allowed to make code is an error, in
 * *status. */
static bool try_entry(rt_cache *c, fu_error *e, cache_wish *w, const void *data, size_t bytes, const char *where,
                      bool *is_bad, rt_kernel **out, fusor_status *status) {
    rt_entry entry;
    const char *problem = rt_entry_decode(data, bytes, &entry);
    w->reason = RT_MISS_DAMAGED;
    if (!problem) problem = cache_mismatch(c, w, &entry);
    if (!problem && !rt_host_has(entry.head->features, NULL, NULL) && out) {
        problem = "it needs features that this machine lacks";
        w->reason = RT_MISS_FEATURES;
    }
    if (problem) {
        *is_bad = true;
        tell(c, w, where, problem, true);
        return false;
    }
    if (w->wants_lines && !entry.head->lines_bytes && !c->only) {
        w->reason = RT_MISS_NO_LINES;
        return false;
    }
    if (!out) return true;
    const rt_entry_header *h = entry.head;
    rt_code_debug debug = {w->description, w->bytes, entry.lines, (size_t)h->lines_bytes};
    *status =
        cache_kernel_new(e, w, entry.blob, (size_t)h->blob_bytes, h->entry, h->code_bytes, h->compile_ns, &debug, out);
    return *status == FUSOR_OK;
}

/* Sets a bad entry aside, a directory too, which would stand in its place: it is found no more, and there to look at
 * for an hour (the next survey removes it). */
static void quarantine(const rt_dir *d, const char *file) {
    char to[2 * IR_KEY_BYTES + 1 + RT_ENTRY_SUFFIX_BYTES + 16];
    snprintf(to, sizeof to, "%s.bad", file);
    if (renameat(d->fd, file, d->fd, to)) unlinkat(d->fd, file, 0);
    else utimensat(d->fd, to, NULL, AT_SYMLINK_NOFOLLOW);
}

bool cache_try_dir(rt_cache *c, fu_error *e, cache_wish *w, const rt_dir *d, bool is_ours, rt_kernel **out,
                   fusor_status *status) {
    void *data;
    size_t bytes;
    int64_t mtime_s = 0;
    bool is_bad = false, found = false;
    int problem = rt_dir_read(d, w->file, RT_ENTRY_MAX_BYTES, &data, &bytes, &mtime_s);
    if (problem == ENOENT || problem == ENOMEM) return false;
    if (problem) {
        is_bad = rt_dir_is_bad(problem);
        w->reason = RT_MISS_UNREADABLE;
        tell(c, w, d->path, rt_dir_reason(problem), is_bad);
    } else {
        found = try_entry(c, e, w, data, bytes, d->path, &is_bad, out, status);
        fu_free(data);
    }
    bool may_write = is_ours && c->mode != RT_CACHE_RO;
    if (is_bad && may_write) quarantine(d, w->file);
    /* Once an hour; a time in the future (a clock that was wrong) is set right at once, or the entry would never
     * age. */
    int64_t age_s = time(NULL) - mtime_s;
    if (found && may_write && (age_s > TOUCH_SECONDS || age_s < -TOUCH_SECONDS))
        utimensat(d->fd, w->file, NULL, AT_SYMLINK_NOFOLLOW);
    return found;
}

/* Bundles and read-only directories, then the cache directory. */
bool cache_try_tiers(rt_cache *c, fu_error *e, cache_wish *w, rt_kernel **out, fusor_status *status) {
    if (c->mode == RT_CACHE_REFRESH) {
        w->reason = RT_MISS_REFRESH;
        return false;
    }
    int n_tiers = atomic_load_explicit(&c->n_tiers, memory_order_acquire);
    if (!n_tiers && !c->has_dir) w->reason = RT_MISS_OFF;
    for (int i = 0; i < n_tiers && *status == FUSOR_OK; i++) {
        cache_tier *t = &c->tiers[i];
        if (t->is_dir) {
            if (cache_try_dir(c, e, w, &t->dir, false, out, status)) return true;
            continue;
        }
        size_t bytes;
        bool is_bad = false;
        void *data = rt_bundle_find(&t->bundle, w->key, &bytes);
        bool found = data && try_entry(c, e, w, data, bytes, t->path, &is_bad, out, status);
        fu_free(data);
        if (found) return true;
    }
    return *status == FUSOR_OK && c->has_dir && cache_try_dir(c, e, w, &c->dir, true, out, status);
}

bool rt_cache_holds(rt_cache *c, const ir_kernel *k, bool in_tiers_only, uint8_t key_out[IR_KEY_BYTES]) {
    if (key_out) memset(key_out, 0, IR_KEY_BYTES);
    FU_CALL_ARENA(arena, return false);
    uint8_t key[IR_KEY_BYTES];
    char symbol[IR_SYMBOL_MAX];
    cache_wish w;
    cache_wish_make(c, &arena, k, key, symbol, &w);
    if (key_out) memcpy(key_out, key, IR_KEY_BYTES);
    bool held = false;
    if (!in_tiers_only) {
        pthread_mutex_lock(&c->lock);
        held = cache_find_in_memory(c, &w) != NULL;
        pthread_mutex_unlock(&c->lock);
    }
    int n_tiers = c->mode == RT_CACHE_REFRESH ? 0 : atomic_load_explicit(&c->n_tiers, memory_order_acquire);
    for (int i = 0; i < n_tiers && !held; i++) {
        const cache_tier *t = &c->tiers[i];
        held = t->is_dir ? faccessat(t->dir.fd, w.file, F_OK, 0) == 0 : rt_bundle_has(&t->bundle, key);
    }
    /* The directory is a read-only tier where nothing may be compiled or written. */
    if (!held && c->has_dir && c->mode != RT_CACHE_REFRESH && (!in_tiers_only || c->only || c->mode == RT_CACHE_RO))
        held = faccessat(c->dir.fd, w.file, F_OK, 0) == 0;
    fu_arena_free(&arena);
    return held;
}

bool rt_cache_has_tiers(rt_cache *c) {
    return c->mode != RT_CACHE_REFRESH && (atomic_load_explicit(&c->n_tiers, memory_order_acquire) > 0 ||
                                           (c->has_dir && (c->only || c->mode == RT_CACHE_RO)));
}
