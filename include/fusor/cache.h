/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_CACHE_H
#define FUSOR_CACHE_H
/* fusor/cache.h: the kernel cache of a context. */
#include <fusor/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Counters of one context since it was made. Times in nanoseconds. */
typedef struct fusor_cache_stats {
    size_t  size;                   /* sizeof(fusor_cache_stats), set by the caller */
    int64_t memory_hits, disk_hits, misses, compiles, failures, written, evicted, bad_entries;
    int64_t load_ns, compile_ns;
} fusor_cache_stats;
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_cache_get_stats(fusor_context *ctx, fusor_cache_stats *out);
/** The directory in use; "" where there is none. Borrowed from ctx. */
FUSOR_API const char *fusor_cache_directory(fusor_context *ctx);

/** One entry of the directory, for fusor_cache_list. All texts are borrowed for the call. */
typedef struct fusor_cache_entry {
    const char *key, *symbol, *level, *description, *problem;   /* problem: NULL = intact */
    uint64_t    file_bytes, code_bytes;
    int64_t     compile_ns, created_s, used_s;                  /* Unix times */
    int32_t     is_of_this_build;
} fusor_cache_entry;
/** Calls visit for each entry in name order until it returns 0. **Errors**: IO. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_cache_list(fusor_context *ctx, int (*visit)(void *user, const fusor_cache_entry *entry), void *user);
/** Removes every entry of the directory; *n_out (may be NULL): how many. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_cache_clear(fusor_context *ctx, int64_t *n_out);
/** Adds a read-only bundle file or directory below the tiers that are there. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_cache_add_bundle(fusor_context *ctx, const char *path);

#ifdef __cplusplus
}
#endif
#endif
