/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_CACHE_H
#define FUSOR_CACHE_H
/* fusor/cache.h: the kernel cache of a context. */
#include <fusor/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Counters of the cache. Times in nanoseconds; saved_ns is compile time of kernels that came from disk, less their
 *  loading. The misses by reason: no such entry; it was there once (evicted, deleted); damaged; of another build or
 *  kernel; it needs features that the machine lacks; owner, mode or input error; a debugger wants line tables that it
 *  lacks; mode refresh; there is no tier and no directory. */
typedef struct fusor_cache_stats {
    size_t  size;                   /* sizeof(fusor_cache_stats), set by the caller */
    int64_t memory_hits, disk_hits, misses, compiles, failures, written, evicted, bad_entries;
    int64_t load_ns, compile_ns, saved_ns;
    int64_t miss_new, miss_gone, miss_damaged, miss_foreign, miss_features, miss_unreadable, miss_no_lines,
        miss_refresh, miss_off;
} fusor_cache_stats;
/** Counters of one context since it was made. A shorter struct (an older size, from 88 on) gets what it has room for.
 * **Errors**: ARGUMENT. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_cache_get_stats(fusor_context *ctx, fusor_cache_stats *out);
/** Counters of the directory, over all processes since *since_s_out (Unix time, may be NULL; 0: nothing was counted).
 *  They are told by each context when it is freed, and may be lost: nothing depends on them. **Errors**: ARGUMENT,
 *  IO. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_cache_get_totals(fusor_context *ctx, fusor_cache_stats *out,
                                                               int64_t *since_s_out);
/** The directory in use; "" where there is none. Borrowed from ctx. */
FUSOR_API const char *fusor_cache_directory(fusor_context *ctx);

/** One entry of the directory, for fusor_cache_list. All texts are borrowed for the call. */
typedef struct fusor_cache_entry {
    const char *key, *symbol, *level, *description, *problem;   /* problem: NULL = intact */
    uint64_t    file_bytes, code_bytes;
    int64_t     compile_ns, created_s, used_s;                  /* Unix times */
    int32_t     is_of_this_build;
    int64_t     hits;               /* loads from disk, as far as the directory's counters know */
} fusor_cache_entry;
/** Calls visit for each entry in name order until it returns 0. **Errors**: IO. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_cache_list(fusor_context *ctx,
                                                         int (*visit)(void *user, const fusor_cache_entry *entry),
                                                         void *user);
/** Removes every entry of the directory; *n_out (may be NULL): how many. **Errors**: IO (a file could
 *  not be deleted). */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_cache_clear(fusor_context *ctx, int64_t *n_out);
/** Removes the entries that were not used for max_age_s seconds (0: any age; negative: ARGUMENT), then the least
 *  recently used ones until max_bytes are left (UINT64_MAX: no limit); *n_out and *bytes_out (may be NULL): what went.
 *  **Errors**: IO (a file could not be deleted). */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_cache_prune(fusor_context *ctx, uint64_t max_bytes, int64_t max_age_s,
                                                          int64_t *n_out, int64_t *bytes_out);
/** Checks every entry and sets bad ones aside (NAME.bad); *n_out and *n_bad_out (may be NULL). **Errors**: IO. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_cache_verify(fusor_context *ctx, int64_t *n_out, int64_t *n_bad_out);
/** Writes the intact entries of this build as one bundle file. **Errors**: IO, MEMORY. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_cache_export(fusor_context *ctx, const char *bundle, int64_t *n_out);
/** Adds a read-only bundle file or directory below the tiers that are there. **Errors**: IO (it cannot be read; also a
 * warning). */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_cache_add_bundle(fusor_context *ctx, const char *path);
/** The same for the bytes of a bundle, in a program's constants for instance. **Ownership**: borrowed until ctx is
 * gone; any alignment. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_cache_add_bundle_memory(fusor_context *ctx, const void *data,
                                                                      size_t bytes);

/** What compiling a program would meet, one kernel at a time; nothing is compiled, loaded or counted. All texts are
 * borrowed for the call. */
typedef struct fusor_cache_answer {
    int32_t     is_hit;
    const char *symbol, *key;
    const char *where;              /* of a hit: "memory", or the path of directory or bundle; of a problem: its path */
    const char *reason;             /* of a miss: "new", "gone", "damaged", "foreign", ... as in fusor_cache_stats */
    const char *problem;            /* what is wrong with an entry that is there; "" */
    const char *nearest;            /* of a miss: key of the nearest intact entry; "" where there is none */
    const char *field, *wanted, *has;   /* the first key field that differs from it: "level", "dim", "program", ... or "build" */
} fusor_cache_answer;
/** Calls visit for each kernel of a function (NULL: the first) until it returns 0. **Errors**: what compiling says. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_cache_why(fusor_context *ctx, const char *text, const char *function,
                                                        int (*visit)(void *user, const fusor_cache_answer *answer),
                                                        void *user);

#ifdef __cplusplus
}
#endif
#endif
