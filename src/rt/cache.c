/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache.c: find or make. The memory table, what is being made at the moment, the tiers, and the call of code
 * generation.
 *
 * The lock covers the table and the list of flights only: no file, no compile, no loader call happens under it. */
#include "rt/cache_internal.h"
#include "base/arena.h"
#include "base/env.h"
#include "rt/cpuinfo.h"
#include "rt/debugger.h"
#include "rt/compiler.h"
#include "rt/probes.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TOUCH_SECONDS = 3600, WRITES_PER_SURVEY = 256, DEFAULT_KERNELS = 1024, COMPILES_PER_FLUSH = 64 };
#define DEFAULT_MAX_BYTES  ((uint64_t)512 << 20)
#define DEFAULT_CODE_BYTES ((uint64_t)64 << 20)
#define UNKNOWN_BYTES      UINT64_MAX

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
static fusor_status make_kernel(fu_error *e, const cache_wish *w, const void *blob, size_t blob_bytes, uint64_t entry,
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

/* One event, for this cache and for the directory's counters. Under the lock. */
#define COUNT(c, field, n) ((c)->stats.field += (n), (c)->delta.counts.field += (n))

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

/* ---- fork ---- */
static void before_fork(void *user) { pthread_mutex_lock(&((rt_cache *)user)->lock); }
static void after_fork_parent(void *user) { pthread_mutex_unlock(&((rt_cache *)user)->lock); }
static void after_fork_child(void *user) {
    rt_cache *c = user;
    c->flights = NULL;              /* who was making them is not here */
    c->delta = (rt_stats_delta){0}; /* the parent tells them */
    pthread_cond_init(&c->landed, NULL);
    pthread_mutex_unlock(&c->lock);
}

/* ---- entries ---- */
static void count_bad(rt_cache *c) {
    pthread_mutex_lock(&c->lock);
    COUNT(c, bad_entries, 1);
    pthread_mutex_unlock(&c->lock);
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
        count_bad(c);
        fu_log_warn(&c->log, "cache entry %s/%s: %s; it is ignored", where, w->file, problem);
        return false;
    }
    if (w->wants_lines && !entry.head->lines_bytes && !c->only) {
        w->reason = RT_MISS_NO_LINES;
        return false;
    }
    if (!out) return true;
    const rt_entry_header *h = entry.head;
    rt_code_debug debug = {w->description, w->bytes, entry.lines, (size_t)h->lines_bytes};
    *status = make_kernel(e, w, entry.blob, (size_t)h->blob_bytes, h->entry, h->code_bytes, h->compile_ns, &debug, out);
    return *status == FUSOR_OK;
}

/* Sets a bad entry aside: it is found no more, and there to look at for an hour (the next survey removes it). */
static void quarantine(const rt_dir *d, const char *file) {
    char to[2 * IR_KEY_BYTES + 1 + RT_ENTRY_SUFFIX_BYTES + 16];
    struct stat st;
    if (fstatat(d->fd, file, &st, AT_SYMLINK_NOFOLLOW) || S_ISDIR(st.st_mode)) return;
    snprintf(to, sizeof to, "%s.bad", file);
    if (renameat(d->fd, file, d->fd, to)) unlinkat(d->fd, file, 0);
    else utimensat(d->fd, to, NULL, AT_SYMLINK_NOFOLLOW);
}

static bool try_dir(rt_cache *c, fu_error *e, cache_wish *w, const rt_dir *d, bool is_ours, rt_kernel **out,
                    fusor_status *status) {
    void *data;
    size_t bytes;
    int64_t mtime_s;
    bool is_bad = false, found = false;
    int problem = rt_dir_read(d, w->file, RT_ENTRY_MAX_BYTES, &data, &bytes, &mtime_s);
    if (problem == ENOENT || problem == ENOMEM) return false;
    if (problem) {
        is_bad = true;
        w->reason = RT_MISS_UNREADABLE;
        count_bad(c);
        fu_log_warn(&c->log, "cache entry %s/%s: %s; it is ignored", d->path, w->file,
                    problem == EPERM ? "not a plain file that only you or root may write" : strerror(problem));
    } else {
        found = try_entry(c, e, w, data, bytes, d->path, &is_bad, out, status);
        fu_free(data);
    }
    bool may_write = is_ours && c->mode != RT_CACHE_RO;
    if (is_bad && may_write) quarantine(d, w->file);
    /* Once an hour; a time in the future (a clock that was wrong) is set right at once, or the entry would never age. */
    int64_t age_s = time(NULL) - mtime_s;
    if (found && may_write && (age_s > TOUCH_SECONDS || age_s < -TOUCH_SECONDS))
        utimensat(d->fd, w->file, NULL, AT_SYMLINK_NOFOLLOW);
    return found;
}

/* Bundles and read-only directories, then the cache directory. */
static bool try_tiers(rt_cache *c, fu_error *e, cache_wish *w, rt_kernel **out, fusor_status *status) {
    if (c->mode == RT_CACHE_REFRESH) {
        w->reason = RT_MISS_REFRESH;
        return false;
    }
    int n_tiers = atomic_load_explicit(&c->n_tiers, memory_order_acquire);
    if (!n_tiers && !c->has_dir) w->reason = RT_MISS_OFF;
    for (int i = 0; i < n_tiers && *status == FUSOR_OK; i++) {
        cache_tier *t = &c->tiers[i];
        if (t->is_dir) {
            if (try_dir(c, e, w, &t->dir, false, out, status)) return true;
            continue;
        }
        size_t bytes;
        bool is_bad = false;
        void *data = rt_bundle_find(&t->bundle, w->key, &bytes);
        bool found = data && try_entry(c, e, w, data, bytes, t->path, &is_bad, out, status);
        fu_free(data);
        if (found) return true;
    }
    return *status == FUSOR_OK && c->has_dir && try_dir(c, e, w, &c->dir, true, out, status);
}

bool rt_cache_holds(rt_cache *c, const ir_kernel *k, bool in_tiers_only) {
    FU_CALL_ARENA(arena, return false);
    uint8_t key[IR_KEY_BYTES];
    char symbol[IR_SYMBOL_MAX];
    cache_wish w;
    cache_wish_make(c, &arena, k, key, symbol, &w);
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

/* ---- writing ---- */
static void write_broken(rt_cache *c, const char *what) {
    pthread_mutex_lock(&c->lock);
    bool first = !c->is_write_broken;
    c->is_write_broken = true;
    pthread_mutex_unlock(&c->lock);
    if (first) fu_log_warn(&c->log, "cache directory %s: %s; new kernels stay in memory", c->dir.path, what);
}

static bool may_write(rt_cache *c) {
    pthread_mutex_lock(&c->lock);
    bool yes = c->has_dir && c->mode != RT_CACHE_RO && !c->is_write_broken;
    pthread_mutex_unlock(&c->lock);
    return yes;
}

static int write_entry(rt_cache *c, const cache_wish *w, const fusor_codegen_result *r, int64_t compile_ns) {
    rt_entry_header h = {
        .entry = r->entry, .code_bytes = r->code_bytes, .compile_ns = compile_ns, .created_s = time(NULL)};
    memcpy(h.key, w->key, IR_KEY_BYTES);
    snprintf(h.build_id, sizeof h.build_id, "%s", c->build_id);
    _Static_assert(sizeof h.level >= IR_TARGET_MAX && sizeof h.features >= IR_TARGET_FEATURES_MAX, "they fit");
    ir_target_name(w->target, h.level);
    ir_target_features(w->target, h.features);
    snprintf(h.symbol, sizeof h.symbol, "%s", w->symbol);
    const void *parts[RT_ENTRY_PARTS];
    size_t part_bytes[RT_ENTRY_PARTS];
    if (!rt_entry_encode(&h, w->description, w->bytes, r->data, r->bytes, r->lines, r->lines_bytes, parts, part_bytes))
        return EFBIG;
    int problem = rt_dir_write(&c->dir, w->file, parts, part_bytes, RT_ENTRY_PARTS);
    if (problem == ENOENT) { /* the directory was removed under us: make it again, once */
        rt_dir again;
        char why[256];
        if (!rt_dir_open(c->dir.path, true, &again, why, sizeof why)) {
            problem = rt_dir_write(&again, w->file, parts, part_bytes, RT_ENTRY_PARTS);
            /* Other threads may be using the descriptor: it keeps its number and gets the new directory. */
            if (dup3(again.fd, c->dir.fd, O_CLOEXEC) < 0) problem = errno;
            rt_dir_close(&again);
        }
    }
    if (problem) {
        write_broken(c, strerror(problem));
        return problem;
    }
    pthread_mutex_lock(&c->lock);
    COUNT(c, written, 1);
    bool survey = c->dir_bytes == UNKNOWN_BYTES || ++c->writes % WRITES_PER_SURVEY == 0;
    if (!survey) survey = (c->dir_bytes += h.file_bytes) > c->max_bytes;
    pthread_mutex_unlock(&c->lock);
    if (survey) {
        int64_t gone;
        uint64_t left = rt_dir_evict(&c->dir, c->max_bytes, c->max_bytes / 10 * 9, 0, false, false, &gone, NULL);
        pthread_mutex_lock(&c->lock);
        c->dir_bytes = left;
        COUNT(c, evicted, gone);
        pthread_mutex_unlock(&c->lock);
    }
    return 0;
}

/* ---- making ---- */
static void *allocate(void *user, size_t bytes) {
    (void)user;
    return fu_malloc(bytes);
}

static void free_result(fusor_codegen_result *r) {
    fu_free(r->data);
    fu_free(r->lines);
    r->data = r->lines = NULL;
}

static fusor_status generate(rt_cache *c, fu_error *e, const cache_wish *w, fusor_codegen_result *r, int64_t *ns_out) {
    int (*call)(const fusor_codegen_request *, fusor_codegen_result *) = c->generate;
    if (!call) {
        const fusor_codegen_table *table;
        FU_TRY(rt_module_get(e, &table));
        call = table->generate;
    }
    fusor_codegen_request q = {.version = FUSOR_CODEGEN_VERSION,
                               .stage = FUSOR_CODEGEN_BLOB,
                               .description = w->description,
                               .description_bytes = w->bytes,
                               .symbol = w->symbol,
                               .options = w->wants_lines ? FUSOR_CODEGEN_LINES : 0,
                               .allocate = allocate};
    *r = (fusor_codegen_result){0};
    int64_t start = fu_now_ns();
    int s = call(&q, r);
    *ns_out = fu_now_ns() - start;
    RT_PROBE_COMPILE(w->symbol, *ns_out, s);
    r->error[sizeof r->error - 1] = 0;
    if (!s &&
        (!r->data || !r->bytes || r->entry >= r->bytes || r->code_bytes > r->bytes || (r->lines_bytes && !r->lines))) {
        s = FUSOR_ERROR_INTERNAL;
        snprintf(r->error, sizeof r->error, "code generation returned an impossible result");
    }
    pthread_mutex_lock(&c->lock);
    if (s) COUNT(c, failures, 1);
    else COUNT(c, compiles, 1);
    COUNT(c, compile_ns, *ns_out);
    pthread_mutex_unlock(&c->lock);
    fu_log_event(&c->log, "compile", "%s,%lld,%s", w->symbol, (long long)*ns_out, s ? "failed" : "ok");
    if (!s) return FUSOR_OK;
    free_result(r);
    fusor_status status = s > 0 && s <= FUSOR_ERROR_INTERNAL ? (fusor_status)s : FUSOR_ERROR_INTERNAL;
    return FU_FAIL(e, status, "kernel %s: %s", w->symbol,
                   r->error[0] ? r->error : "code generation failed without a message");
}

static bool entry_is_there(void *user) {
    const void *const *arg = user;
    const rt_cache *c = arg[0];
    return faccessat(c->dir.fd, ((const cache_wish *)arg[1])->file, F_OK, 0) == 0;
}

/* Compiles, loads and stores; looks at the disk once more when another process held the lock. out NULL: stores only. */
static fusor_status make(rt_cache *c, fu_error *e, cache_wish *w, rt_kernel **out, bool *from_disk_out) {
    char lock_name[sizeof w->file];
    int lock_fd = -1;
    bool has_disk = may_write(c);
    fusor_status status = FUSOR_OK;
    *from_disk_out = false;
    if (has_disk) {
        const void *arg[2] = {c, w};
        snprintf(lock_name, sizeof lock_name, "%.*s.lock", 2 * IR_KEY_BYTES, w->file);
        lock_fd = rt_dir_lock(&c->dir, lock_name, c->mode == RT_CACHE_REFRESH ? NULL : entry_is_there, arg);
        if (c->mode != RT_CACHE_REFRESH && try_dir(c, e, w, &c->dir, true, out, &status)) *from_disk_out = true;
    }
    fusor_codegen_result *r = NULL;
    int64_t compile_ns = 0;
    if (status == FUSOR_OK && !*from_disk_out) {
        r = fu_calloc(1, sizeof *r);
        if (!r) status = FU_FAIL(e, FUSOR_ERROR_MEMORY, "kernel %s: no memory to compile it", w->symbol);
        else status = generate(c, e, w, r, &compile_ns);
    }
    if (r && status == FUSOR_OK) {
        rt_code_debug debug = {w->description, w->bytes, r->lines, r->lines_bytes};
        if (out) status = make_kernel(e, w, r->data, r->bytes, r->entry, r->code_bytes, compile_ns, &debug, out);
        if (status == FUSOR_OK && has_disk) {
            int problem = write_entry(c, w, r, compile_ns);
            if (problem && !out)
                status = FU_FAIL(e, FUSOR_ERROR_IO, "cache directory %s: %s", c->dir.path, strerror(problem));
        } else if (status == FUSOR_OK && !out) {
            status = FU_FAIL(e, FUSOR_ERROR_IO, "kernel %s: there is no cache directory to write it to", w->symbol);
        }
        free_result(r);
    }
    fu_free(r);
    if (has_disk) rt_dir_unlock(&c->dir, lock_name, lock_fd);
    return status;
}

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
        COUNT(c, memory_hits, 1);
    } else {
        *f = (cache_flight){c->flights, w->key};
        c->flights = f;
    }
    pthread_mutex_unlock(&c->lock);
    return k;
}

/* Adds what happened to the directory's counters. Without the file lock for it, or without the file, nothing is lost but
 * counts. */
static void tell_stats(rt_cache *c) {
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

fusor_status rt_cache_get_text(rt_cache *c, fu_error *e, const char *description, size_t bytes, ir_target target,
                               const char *symbol, const uint8_t key[IR_KEY_BYTES], rt_kernel **out,
                               rt_cache_outcome *outcome) {
    cache_wish w = {.description = description,
                    .symbol = symbol,
                    .bytes = bytes,
                    .target = target,
                    .key = key,
                    .cubins = c->cubins,
                    .wants_lines = !ir_level_is_gpu(target.level) && rt_debugger_wants_lines()};
    int64_t start = fu_now_ns();
    const char *missing;
    size_t length;
    char features[IR_TARGET_FEATURES_MAX], name[IR_TARGET_MAX];
    if (out && !rt_host_has(ir_target_features(target, features), &missing, &length))
        return FU_FAIL(e, FUSOR_ERROR_DEVICE, "kernel %s is for %s, which needs %.*s; this machine does not have it",
                       symbol, ir_target_name(target, name), (int)length, missing);
    rt_key_text(key, w.file);
    strcat(w.file, RT_ENTRY_SUFFIX);
    cache_flight f;
    rt_kernel *k = out ? find_or_take_off(c, &w, &f) : NULL;
    rt_cache_source source = RT_CACHE_MEMORY;
    fusor_status status = FUSOR_OK;
    if (!k) {
        rt_kernel **want = out ? &k : NULL;
        bool found = try_tiers(c, e, &w, want, &status);
        source = RT_CACHE_DISK;
        if (!found && status == FUSOR_OK) {
            pthread_mutex_lock(&c->lock);
            COUNT(c, misses, 1);
            COUNT(c, miss[w.reason], 1);
            rt_stats_note_use(&c->delta, key, false);
            pthread_mutex_unlock(&c->lock);
            fu_log_event(&c->log, "cache", "%s,why,%s", symbol, rt_miss_reason_names[w.reason]);
            if (c->only) status = cache_miss(c, e, &w);
            else status = make(c, e, &w, want, &found);
            if (!found) source = RT_CACHE_COMPILED;
        }
        pthread_mutex_lock(&c->lock);
        rt_kernel *leaves = NULL;
        if (status == FUSOR_OK && source == RT_CACHE_DISK) {
            int64_t load_ns = fu_now_ns() - start;
            COUNT(c, disk_hits, 1);
            COUNT(c, load_ns, load_ns);
            if (k && k->compile_ns > load_ns) COUNT(c, saved_ns, k->compile_ns - load_ns);
            rt_stats_note_use(&c->delta, key, true);
        }
        if (status == FUSOR_OK && out) leaves = remember(c, k);
        if (out) land(c, &f);
        bool flush = c->delta.counts.compiles + c->delta.counts.failures >= COMPILES_PER_FLUSH ||
                     c->delta.n_uses == RT_STATS_PENDING;
        pthread_mutex_unlock(&c->lock);
        rt_kernel_release(leaves);
        if (flush) tell_stats(c);
        if (status != FUSOR_OK) return status;
    }
    int64_t ns = fu_now_ns() - start;
    if (source != RT_CACHE_MEMORY)
        fu_log_event(&c->log, "cache", "%s,%s,%lld", symbol, source == RT_CACHE_DISK ? "hit" : "miss", (long long)ns);
    if (out) *out = k;
    if (outcome) *outcome = (rt_cache_outcome){source, ns};
    return FUSOR_OK;
}

void cache_wish_make(const rt_cache *c, fu_arena *a, const ir_kernel *k, uint8_t key[IR_KEY_BYTES],
                     char symbol[IR_SYMBOL_MAX], cache_wish *out) {
    fu_str text;
    fu_str_init(&text, a);
    ir_kernel_print(&text, k);
    ir_kernel_key(text.at, text.n, c->build_id, key);
    ir_kernel_symbol(k, key, symbol);
    *out = (cache_wish){
        .description = text.at, .symbol = symbol, .bytes = text.n, .target = ir_kernel_target(k), .key = key};
    rt_key_text(key, out->file);
    strcat(out->file, RT_ENTRY_SUFFIX);
}

fusor_status rt_cache_get(rt_cache *c, fu_error *e, const ir_kernel *k, rt_kernel **out, rt_cache_outcome *outcome) {
    FU_CALL_ARENA(arena, return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for the description of a kernel"));
    uint8_t key[IR_KEY_BYTES];
    char symbol[IR_SYMBOL_MAX];
    cache_wish w;
    cache_wish_make(c, &arena, k, key, symbol, &w);
    /* Nothing below allocates from the arena, so nothing below is left by longjmp. */
    fusor_status s = rt_cache_get_text(c, e, w.description, w.bytes, ir_kernel_target(k), symbol, key, out, outcome);
    fu_arena_free(&arena);
    return s;
}

rt_cache_stats rt_cache_get_stats(rt_cache *c) {
    pthread_mutex_lock(&c->lock);
    rt_cache_stats s = c->stats;
    pthread_mutex_unlock(&c->lock);
    return s;
}

/* ---- open, close ---- */
rt_cache_mode rt_cache_mode_parse(const char *text) {
    static const char *const names[] = {"off", "ro", "rw", "refresh"};
    for (int i = 0; i < 4; i++)
        if (strcmp(text, names[i]) == 0) return (rt_cache_mode)(RT_CACHE_OFF + i);
    return RT_CACHE_DEFAULT;
}

static fusor_status add_tier(rt_cache *c, fu_error *e, cache_tier *t, const char *problem) {
    pthread_mutex_lock(&c->lock);
    int n = atomic_load(&c->n_tiers);
    if (!problem && n == RT_CACHE_MAX_TIERS) problem = "there are 32 tiers already";
    if (!problem) {
        c->tiers[n] = *t;
        atomic_store_explicit(&c->n_tiers, n + 1, memory_order_release);
    }
    pthread_mutex_unlock(&c->lock);
    if (!problem) return FUSOR_OK;
    fu_log_warn(&c->log, "cache tier %s: %s; it is not used", t->path, problem);
    fusor_status s = FU_FAIL(e, FUSOR_ERROR_IO, "cache tier %s: %s", t->path, problem);
    if (t->is_dir) rt_dir_close(&t->dir);
    else rt_bundle_close(&t->bundle);
    fu_free(t->path);
    return s;
}

static bool new_tier(fu_error *e, const char *path, cache_tier *out) {
    *out = (cache_tier){.path = fu_malloc(strlen(path) + 1)};
    out->dir.fd = out->bundle.fd = -1;
    if (out->path) strcpy(out->path, path);
    else FU_FAIL(e, FUSOR_ERROR_MEMORY, "cache tier %s: no memory", path);
    return out->path != NULL;
}

fusor_status rt_cache_add_tier(rt_cache *c, fu_error *e, const char *path) {
    char why[256];
    const char *problem = NULL;
    struct stat st;
    cache_tier t;
    if (!new_tier(e, path, &t)) return FUSOR_ERROR_MEMORY;
    if (stat(path, &st)) problem = strerror(errno);
    else if (S_ISDIR(st.st_mode)) {
        t.is_dir = true;
        problem = rt_dir_open(path, false, &t.dir, why, sizeof why);
    } else problem = rt_bundle_open(path, &t.bundle);
    return add_tier(c, e, &t, problem);
}

fusor_status rt_cache_add_memory_tier(rt_cache *c, fu_error *e, const void *data, size_t bytes) {
    cache_tier t;
    char name[64];
    snprintf(name, sizeof name, "memory at %p", data);
    if (!new_tier(e, name, &t)) return FUSOR_ERROR_MEMORY;
    return add_tier(c, e, &t, rt_bundle_of_memory(data, bytes, &t.bundle));
}

static void add_tiers(rt_cache *c, const char *list) {
    fu_error *ignored = fu_malloc(sizeof *ignored); /* 16 KB: too much for a caller's thread stack */
    while (ignored && *list) {
        char path[4096];
        size_t n = strcspn(list, ":");
        if (n && n < sizeof path) {
            memcpy(path, list, n);
            path[n] = 0;
            fu_error_clear(ignored);
            fusor_status s = rt_cache_add_tier(c, ignored, path);
            (void)s; /* it was a warning */
        }
        list += n + (list[n] == ':');
    }
    fu_free(ignored);
}

fusor_status rt_cache_open(fu_error *e, const rt_cache_options *o, rt_cache **out) {
    static const rt_cache_options defaults;
    if (!o) o = &defaults;
    rt_cache *c = fu_calloc(1, sizeof *c);
    if (!c) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a kernel cache");
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->landed, NULL);
    c->mode = o->mode;
    if (c->mode == RT_CACHE_DEFAULT && !o->ignore_environment) {
        c->mode = rt_cache_mode_parse(fu_env_string(FU_FUSOR_CACHE));
        if (c->mode == RT_CACHE_DEFAULT)
            fu_log_warn(&o->log, "FUSOR_CACHE=%s: expected off, ro, rw or refresh; rw is used",
                        fu_env_string(FU_FUSOR_CACHE));
    }
    if (c->mode == RT_CACHE_DEFAULT) c->mode = RT_CACHE_RW;
    c->only = o->only;
    c->max_bytes = o->max_bytes ? o->max_bytes : DEFAULT_MAX_BYTES;
    c->max_kernels = o->max_kernels > 0 ? o->max_kernels : DEFAULT_KERNELS;
    c->max_code_bytes = o->max_code_bytes ? o->max_code_bytes : DEFAULT_CODE_BYTES;
    snprintf(c->build_id, sizeof c->build_id, "%s", o->build_id ? o->build_id : rt_build_id());
    c->generate = o->generate;
    c->log = o->log;
    c->dir.fd = -1;
    c->dir_bytes = UNKNOWN_BYTES;
    if (c->mode != RT_CACHE_OFF) {
        char path[4096], why[256];
        if (rt_cache_find_dir(o->dir, o->ignore_environment, path, sizeof path)) {
            const char *problem = rt_dir_open(path, c->mode != RT_CACHE_RO, &c->dir, why, sizeof why);
            c->has_dir = !problem;
            if (!problem) c->cubins = rt_cubins_new(&c->dir, c->mode != RT_CACHE_REFRESH, c->mode != RT_CACHE_RO);
            if (problem && !(c->mode == RT_CACHE_RO && access(path, F_OK)))
                fu_log_warn(&c->log, "cache directory %s: %s; kernels stay in memory", path, problem);
        }
        const char *tiers = o->path ? o->path : o->ignore_environment ? "" : fu_env_string(FU_FUSOR_CACHE_PATH);
        add_tiers(c, tiers);
    }
    c->hook = (rt_fork_hook){.prepare = before_fork, .parent = after_fork_parent, .child = after_fork_child, .user = c};
    rt_fork_add(&c->hook);
    *out = c;
    return FUSOR_OK;
}

void rt_cache_close(rt_cache *c) {
    if (!c) return;
    rt_fork_remove(&c->hook);
    tell_stats(c);
    for (int b = 0; b < RT_CACHE_BUCKETS; b++)
        for (cache_item *i = c->bucket[b], *next; i; i = next) {
            next = i->next;
            rt_kernel_release(i->kernel);
            fu_free(i);
        }
    int n_tiers = atomic_load(&c->n_tiers);
    for (int t = 0; t < n_tiers; t++) {
        if (c->tiers[t].is_dir) rt_dir_close(&c->tiers[t].dir);
        else rt_bundle_close(&c->tiers[t].bundle);
        fu_free(c->tiers[t].path);
    }
    rt_dir_close(&c->dir);
    rt_cubins_release(c->cubins);
    pthread_cond_destroy(&c->landed);
    pthread_mutex_destroy(&c->lock);
    fu_free(c);
}

const char *rt_cache_dir(const rt_cache *c) { return c->has_dir ? c->dir.path : ""; }
