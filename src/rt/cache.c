/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache.c: find or make: the memory table, what is being made at the moment, then the tiers (cache_tiers.c) and the
 * making of what none has (cache_make.c).
 *
 * The lock covers the table and the list of flights only: no file, no compile, no loader call happens under it. */
#include "rt/cache_internal.h"
#include "base/arena.h"
#include "rt/cpuinfo.h"
#include "rt/debugger.h"
#include <stdio.h>

enum { COMPILES_PER_FLUSH = 64 };

/* ---- kernels ---- */
rt_kernel *rt_kernel_keep(rt_kernel *k) {
    atomic_fetch_add_explicit(&k->refs, 1, memory_order_relaxed);
    return k;
}

void rt_kernel_release(rt_kernel *k) {
    if (!k || atomic_fetch_sub_explicit(&k->refs, 1, memory_order_acq_rel) != 1) return;
    rt_code_release(k->code);
    rt_cubins_release(k->cubins);
    fu_free(k);
}

const char *cache_text_problem(const void *blob, size_t bytes) {
    const char *text = blob;
    if (!bytes || memchr(text, 0, bytes) != text + bytes - 1) return "its PTX is not text";
    return strstr(text, ".version") && strstr(text, ".entry") ? NULL : "its PTX has no entry";
}

/* Machine code goes where it can run; the text for a GPU stays in the kernel, behind the description. */
static fusor_status take_blob(rt_kernel *k, fu_error *e, const cache_wish *w, const void *blob, size_t bytes,
                              uint64_t entry, const rt_code_debug *debug) {
    if (ir_level_is_gpu(w->target.level)) {
        if (cache_text_problem(blob, bytes))
            return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "kernel %s: %s", w->symbol, cache_text_problem(blob, bytes));
        k->ptx = memcpy((char *)(k + 1) + w->bytes + 1, blob, bytes);
        k->ptx_bytes = bytes - 1;
        k->cubins = rt_cubins_keep(w->cubins);
        return FUSOR_OK;
    }
    FU_TRY(rt_code_load(e, blob, bytes, entry, w->symbol, debug, &k->code));
    void *address = rt_code_entry(k->code);
    memcpy(&k->fn, &address, sizeof k->fn);
    return FUSOR_OK;
}

/* Loads a blob. The new kernel has one reference. */
fusor_status cache_kernel_new(fu_error *e, const cache_wish *w, const void *blob, size_t blob_bytes, uint64_t entry,
                              uint64_t code_bytes, int64_t compile_ns, const rt_code_debug *debug, rt_kernel **out) {
    rt_kernel *k = fu_calloc(1, sizeof *k + w->bytes + 1 + (ir_level_is_gpu(w->target.level) ? blob_bytes : 0));
    if (!k) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "kernel %s: no memory", w->symbol);
    fusor_status s = take_blob(k, e, w, blob, blob_bytes, entry, debug);
    if (s != FUSOR_OK) {
        fu_free(k);
        return s;
    }
    memcpy(k->key, w->key, IR_KEY_BYTES);
    snprintf(k->symbol, sizeof k->symbol, "%s", w->symbol);
    k->description = (char *)(k + 1);
    memcpy(k->description, w->description, w->bytes);
    k->description_bytes = w->bytes;
    k->blob_bytes = blob_bytes;
    k->code_bytes = code_bytes;
    k->compile_ns = compile_ns;
    atomic_init(&k->refs, 1);
    *out = k;
    return FUSOR_OK;
}

/* ---- the memory table; all under the lock ---- */
static cache_item **bucket_of(rt_cache *c, const uint8_t *key) {
    uint32_t h;
    memcpy(&h, key, sizeof h);
    return &c->bucket[h % RT_CACHE_BUCKETS];
}

rt_kernel *cache_find_in_memory(rt_cache *c, const cache_wish *w) {
    for (cache_item *i = *bucket_of(c, w->key); i; i = i->next) {
        rt_kernel *k = i->kernel;
        if (memcmp(k->key, w->key, IR_KEY_BYTES) != 0 || k->description_bytes != w->bytes ||
            memcmp(k->description, w->description, w->bytes) != 0)
            continue;
        i->used = ++c->clock;
        return k;
    }
    return NULL;
}

/* The kernel longest unused that nobody else holds leaves the table; it is returned and released outside the lock. */
static rt_kernel *take_oldest(rt_cache *c) {
    cache_item **oldest = NULL;
    for (int b = 0; b < RT_CACHE_BUCKETS; b++)
        for (cache_item **p = &c->bucket[b]; *p; p = &(*p)->next)
            if (atomic_load(&(*p)->kernel->refs) == 1 && (!oldest || (*p)->used < (*oldest)->used)) oldest = p;
    if (!oldest) return NULL;
    cache_item *i = *oldest;
    rt_kernel *k = i->kernel;
    *oldest = i->next;
    fu_free(i);
    c->n_items--;
    c->code_bytes -= k->blob_bytes;
    return k;
}

/* Adds k (the table takes a reference of its own). Without memory for it the kernel is simply not found again. Returns
 * what leaves for it: at most one, so a table above its limits shrinks as long as it is used. */
static rt_kernel *remember(rt_cache *c, rt_kernel *k) {
    rt_kernel *leaves =
        c->n_items >= c->max_kernels || c->code_bytes + k->blob_bytes > c->max_code_bytes ? take_oldest(c) : NULL;
    cache_item *i = fu_malloc(sizeof *i);
    if (i) {
        cache_item **b = bucket_of(c, k->key);
        *i = (cache_item){*b, rt_kernel_keep(k), ++c->clock};
        *b = i;
        c->n_items++;
        c->code_bytes += k->blob_bytes;
    }
    return leaves;
}

const char *const rt_miss_reason_names[RT_MISS_COUNT] = {"new",        "gone",     "damaged", "foreign", "features",
                                                         "unreadable", "no-lines", "refresh", "off"};

/* ---- find or make ---- */
static void land(rt_cache *c, cache_flight *f) {
    for (cache_flight **p = &c->flights; *p; p = &(*p)->next)
        if (*p == f) {
            *p = f->next;
            break;
        }
    pthread_cond_broadcast(&c->landed);
}

/* A kernel from memory (kept for the caller), or NULL: the caller's flight has begun. */
static rt_kernel *find_or_take_off(rt_cache *c, const cache_wish *w, cache_flight *f) {
    pthread_mutex_lock(&c->lock);
    rt_kernel *k;
    for (;;) {
        k = cache_find_in_memory(c, w);
        if (k) break;
        cache_flight *other = c->flights;
        while (other && memcmp(other->key, w->key, IR_KEY_BYTES) != 0) other = other->next;
        if (!other) break;
        pthread_cond_wait(&c->landed, &c->lock);
    }
    if (k) {
        rt_kernel_keep(k);
        CACHE_COUNT(c, memory_hits, 1);
    } else {
        *f = (cache_flight){.next = c->flights, .key = w->key};
        c->flights = f;
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &f->cancel_state);
    }
    pthread_mutex_unlock(&c->lock);
    return k;
}

/* Adds what happened to the directory's counters. Without the file lock for it, or without the file, nothing is lost
 * but counts. */
void cache_tell_stats(rt_cache *c) {
    pthread_mutex_lock(&c->lock);
    bool tells = c->has_dir && c->mode != RT_CACHE_RO && !c->is_write_broken &&
                 (c->delta.counts.disk_hits || c->delta.counts.misses || c->delta.counts.bad_entries);
    rt_stats_delta *delta = tells ? fu_malloc(sizeof *delta) : NULL;
    if (delta) *delta = c->delta;
    if (delta || !tells) c->delta = (rt_stats_delta){0};
    pthread_mutex_unlock(&c->lock);
    if (delta) rt_stats_add(&c->dir, delta);
    fu_free(delta);
}

static cache_wish wish_of(const rt_cache *c, const rt_cache_request *r) {
    cache_wish w = {.description = r->description,
                    .symbol = r->symbol,
                    .bytes = r->bytes,
                    .target = r->target,
                    .key = r->key,
                    .cubins = c->cubins,
                    .n_threads = r->n_threads,
                    .wants_lines = !ir_level_is_gpu(r->target.level) && rt_debugger_wants_lines()};
    rt_key_text(r->key, w.file);
    strcat(w.file, RT_ENTRY_SUFFIX);
    return w;
}

static fusor_status get(rt_cache *c, fu_error *e, cache_wish *w, rt_kernel **out, rt_cache_outcome *outcome) {
    int64_t start = fu_now_ns();
    const char *missing;
    size_t length;
    char features[IR_TARGET_FEATURES_MAX], name[IR_TARGET_MAX];
    if (out && !rt_host_has(ir_target_features(w->target, features), &missing, &length))
        return FU_FAIL(e, FUSOR_ERROR_DEVICE, "kernel %s is for %s, which needs %.*s; this machine does not have it",
                       w->symbol, ir_target_name(w->target, name), (int)length, missing);
    cache_flight f;
    rt_kernel *k = out ? find_or_take_off(c, w, &f) : NULL;
    rt_cache_source source = RT_CACHE_MEMORY;
    fusor_status status = FUSOR_OK;
    if (!k) {
        rt_kernel **want = out ? &k : NULL;
        bool found = cache_try_tiers(c, e, w, want, &status);
        source = RT_CACHE_DISK;
        if (!found && status == FUSOR_OK) {
            const rt_miss_reason reason = w->reason;
            if (c->only) status = cache_miss(c, e, w);
            else status = cache_make(c, e, w, want, &found);
            if (!found) { /* another process may have made it meanwhile: that is a hit */
                source = RT_CACHE_COMPILED;
                pthread_mutex_lock(&c->lock);
                CACHE_COUNT(c, misses, 1);
                CACHE_COUNT(c, miss[reason], 1);
                rt_stats_note_use(&c->delta, w->key, false, reason == RT_MISS_NEW);
                pthread_mutex_unlock(&c->lock);
                fu_log_event(&c->log, "cache", "%s,why,%s", w->symbol, rt_miss_reason_names[reason]);
            }
        }
        pthread_mutex_lock(&c->lock);
        rt_kernel *leaves = NULL;
        if (status == FUSOR_OK && source == RT_CACHE_DISK) {
            int64_t load_ns = fu_now_ns() - start;
            CACHE_COUNT(c, disk_hits, 1);
            CACHE_COUNT(c, load_ns, load_ns);
            if (k && k->compile_ns > load_ns) CACHE_COUNT(c, saved_ns, k->compile_ns - load_ns);
            rt_stats_note_use(&c->delta, w->key, true, false);
        }
        if (status == FUSOR_OK && out) leaves = remember(c, k);
        if (out) land(c, &f);
        bool flush = c->delta.counts.compiles + c->delta.counts.failures >= COMPILES_PER_FLUSH ||
                     c->delta.n_uses == RT_STATS_PENDING;
        pthread_mutex_unlock(&c->lock);
        rt_kernel_release(leaves);
        if (flush) cache_tell_stats(c);
        if (out) (void)pthread_setcancelstate(f.cancel_state, &f.cancel_state);
        if (status != FUSOR_OK) return status;
    }
    int64_t ns = fu_now_ns() - start;
    if (source != RT_CACHE_MEMORY)
        fu_log_event(&c->log, "cache", "%s,%s,%lld", w->symbol, source == RT_CACHE_DISK ? "hit" : "miss",
                     (long long)ns);
    if (out) *out = k;
    if (outcome) *outcome = (rt_cache_outcome){source, ns};
    return FUSOR_OK;
}

fusor_status rt_cache_get_text(rt_cache *c, fu_error *e, const rt_cache_request *r, rt_kernel **out,
                               rt_cache_outcome *outcome) {
    cache_wish w = wish_of(c, r);
    return get(c, e, &w, out, outcome);
}

void cache_wish_make(const rt_cache *c, fu_arena *a, const ir_kernel *k, uint8_t key[IR_KEY_BYTES],
                     char symbol[IR_SYMBOL_MAX], cache_wish *out) {
    fu_str text;
    fu_str_init(&text, a);
    ir_kernel_print(&text, k);
    ir_kernel_key(text.at, text.n, c->build_id, key);
    ir_kernel_symbol(k, key, symbol);
    const rt_cache_request r = {text.at, text.n, ir_kernel_target(k), symbol, key, 1};
    *out = wish_of(c, &r);
}

fusor_status rt_cache_get(rt_cache *c, fu_error *e, const ir_kernel *k, int n_threads, rt_kernel **out,
                          rt_cache_outcome *outcome) {
    FU_CALL_ARENA(arena, return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for the description of a kernel"));
    uint8_t key[IR_KEY_BYTES];
    char symbol[IR_SYMBOL_MAX];
    cache_wish w;
    cache_wish_make(c, &arena, k, key, symbol, &w);
    /* Nothing below allocates from the arena, so nothing below is left by longjmp. */
    w.n_threads = n_threads;
    fusor_status s = get(c, e, &w, out, outcome);
    fu_arena_free(&arena);
    return s;
}

rt_cache_stats rt_cache_get_stats(rt_cache *c) {
    pthread_mutex_lock(&c->lock);
    rt_cache_stats s = c->stats;
    pthread_mutex_unlock(&c->lock);
    return s;
}
