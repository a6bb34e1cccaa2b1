/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_open.c: the life of a cache: mode, directory, tiers, and what a fork needs. */
#include "base/small.h"
#include "rt/cache_internal.h"
#include "base/env.h"
#include "rt/compiler.h"
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_KERNELS = 1024 };
#define DEFAULT_MAX_BYTES  ((uint64_t)512 << 20)
#define DEFAULT_CODE_BYTES ((uint64_t)64 << 20)

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
    c->dir_bytes = RT_CACHE_UNKNOWN_BYTES;
    if (c->mode != RT_CACHE_OFF) {
        char path[4096], why[256];
        const int found = rt_cache_find_dir(o->dir, o->ignore_environment, path, sizeof path);
        if (found == ENAMETOOLONG)
            fu_log_warn(&c->log, "cache directory: its name is longer than %zu bytes; kernels stay in memory",
                        sizeof path - 1);
        if (!found) {
            const char *problem = rt_dir_open(path, c->mode != RT_CACHE_RO, &c->dir, why, sizeof why);
            c->has_dir = !problem;
            if (!problem)
                c->cubins = rt_cubins_new(&c->dir, c->max_bytes, c->mode != RT_CACHE_REFRESH, c->mode != RT_CACHE_RO);
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
    cache_tell_stats(c);
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
