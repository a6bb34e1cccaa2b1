/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_make.c: a kernel that no tier has: one process compiles it while others wait for the key's lock file, then it
 * is loaded and written to the directory, from which old entries leave now and then. */
#include "base/small.h"
#include "rt/cache_internal.h"
#include "rt/compiler.h"
#include "rt/probes.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { WRITES_PER_SURVEY = 256 };

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
    fu_part parts[RT_ENTRY_PARTS];
    if (!rt_entry_encode(&h, w->description, w->bytes, r->data, r->bytes, r->lines, r->lines_bytes, parts))
        return EFBIG;
    int problem = rt_dir_write(&c->dir, w->file, parts, RT_ENTRY_PARTS);
    if (problem == ENOENT) { /* the directory was removed under us: make it again, once */
        rt_dir again;
        char why[256];
        if (!rt_dir_open(c->dir.path, true, &again, why, sizeof why)) {
            problem = rt_dir_write(&again, w->file, parts, RT_ENTRY_PARTS);
            /* Other threads may be using the descriptor: it keeps its number and gets the new directory. */
            if (dup3(again.fd, c->dir.fd, O_CLOEXEC) < 0) problem = errno;
            rt_cubins_follow(c->cubins, &again);
            rt_dir_close(&again);
        }
    }
    if (problem) {
        if (problem != EISDIR) write_broken(c, strerror(problem)); /* in the place of this entry alone */
        return problem;
    }
    pthread_mutex_lock(&c->lock);
    CACHE_COUNT(c, written, 1);
    bool survey = c->dir_bytes == RT_CACHE_UNKNOWN_BYTES || ++c->writes % WRITES_PER_SURVEY == 0;
    if (!survey) survey = (c->dir_bytes += h.file_bytes) > c->max_bytes;
    pthread_mutex_unlock(&c->lock);
    if (survey) {
        int64_t gone;
        uint64_t left = rt_dir_keep_to(&c->dir, c->max_bytes, &gone);
        pthread_mutex_lock(&c->lock);
        c->dir_bytes = left;
        CACHE_COUNT(c, evicted, gone);
        pthread_mutex_unlock(&c->lock);
    }
    return 0;
}

/* ---- making ---- */
static void *allocate(void *user, size_t bytes) {
    (void)user;
    return fu_malloc(bytes);
}

typedef struct tasks {
    void (*run)(void *arg, int i);
    void *arg;
    int n;
    atomic_int next;
} tasks;

static void *run_some(void *arg) {
    tasks *t = arg;
    for (int i; (i = atomic_fetch_add(&t->next, 1)) < t->n;) t->run(t->arg, i);
    return NULL;
}

/* user: the wish. */
static void run_all(void *user, int n, void (*task)(void *arg, int i), void *arg) {
    const int most = ((const cache_wish *)user)->n_threads;
    tasks t = {.run = task, .arg = arg, .n = n};
    rt_compilers_run(n < most ? n : most, run_some, &t);
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
                               .allocate = allocate,
                               .run_all = run_all,
                               .user = (void *)(uintptr_t)w};
    *r = (fusor_codegen_result){0};
    int64_t start = fu_now_ns();
    int s = rt_module_generate(call, &q, r);
    *ns_out = fu_now_ns() - start;
    RT_PROBE_COMPILE(w->symbol, *ns_out, s);
    r->error[sizeof r->error - 1] = 0;
    if (!s &&
        (!r->data || !r->bytes || r->entry >= r->bytes || r->code_bytes > r->bytes || (r->lines_bytes && !r->lines))) {
        s = FUSOR_ERROR_INTERNAL;
        snprintf(r->error, sizeof r->error, "code generation returned an impossible result");
    }
    pthread_mutex_lock(&c->lock);
    if (s) CACHE_COUNT(c, failures, 1);
    else CACHE_COUNT(c, compiles, 1);
    CACHE_COUNT(c, compile_ns, *ns_out);
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
fusor_status cache_make(rt_cache *c, fu_error *e, cache_wish *w, rt_kernel **out, bool *from_disk_out) {
    char lock_name[sizeof w->file];
    int lock_fd = -1;
    bool has_disk = may_write(c);
    fusor_status status = FUSOR_OK;
    *from_disk_out = false;
    if (has_disk) {
        const void *arg[2] = {c, w};
        snprintf(lock_name, sizeof lock_name, "%.*s.lock", 2 * IR_KEY_BYTES, w->file);
        lock_fd = rt_dir_lock(&c->dir, lock_name, c->mode == RT_CACHE_REFRESH ? NULL : entry_is_there, arg);
        w->is_told = true;
        if (c->mode != RT_CACHE_REFRESH && cache_try_dir(c, e, w, &c->dir, true, out, &status)) *from_disk_out = true;
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
        if (out) status = cache_kernel_new(e, w, r->data, r->bytes, r->entry, r->code_bytes, compile_ns, &debug, out);
        if (status == FUSOR_OK && has_disk) {
            int problem = write_entry(c, w, r, compile_ns);
            if (problem && !out)
                status = FU_FAIL(e, FUSOR_ERROR_IO, "cache directory %s: %s", c->dir.path, strerror(problem));
        } else if (status == FUSOR_OK && !out) {
            status =
                FU_FAIL(e, FUSOR_ERROR_IO, "kernel %s: the cache has no directory that it may write to", w->symbol);
        }
        free_result(r);
    }
    fu_free(r);
    if (has_disk) rt_dir_unlock(&c->dir, lock_name, lock_fd);
    return status;
}
