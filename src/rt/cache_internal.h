/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_CACHE_INTERNAL_H
#define RT_CACHE_INTERNAL_H
/* What the files of the cache object share: the object itself, and a request on its way through the tiers. */
#include "rt/cache_entry.h"
#include "rt/cache_stats.h"
#include "rt/cubin.h"
#include "rt/fork.h"
#include <pthread.h>

enum { RT_CACHE_BUCKETS = 1024, RT_CACHE_MAX_TIERS = 32 };
#define RT_CACHE_UNKNOWN_BYTES UINT64_MAX /* of a directory that was not surveyed yet */

typedef struct cache_item {
    struct cache_item *next;
    rt_kernel *kernel;
    uint64_t used;
} cache_item;
/* A kernel that a thread is making; lives on that thread's stack. */
typedef struct cache_flight {
    struct cache_flight *next;
    const uint8_t *key;
    int cancel_state; /* the thread's, until it has landed: others wait for it */
} cache_flight;
typedef struct cache_tier {
    bool is_dir;
    rt_dir dir;
    rt_bundle bundle;
    char *path;
} cache_tier;

struct rt_cache {
    pthread_mutex_t lock;
    pthread_cond_t landed;
    rt_fork_hook hook;
    cache_item *bucket[RT_CACHE_BUCKETS];
    int n_items;
    uint64_t clock, code_bytes; /* code_bytes: of the blobs in the table */
    cache_flight *flights;
    rt_cache_stats stats;
    rt_stats_delta delta; /* what the directory's stats file has not been told yet */
    /* Set when opened. */
    rt_cache_mode mode;
    bool only;
    uint64_t max_bytes, max_code_bytes;
    int max_kernels;
    char build_id[64];
    int (*generate)(const fusor_codegen_request *, fusor_codegen_result *);
    fu_log log;
    bool has_dir;
    rt_dir dir;
    rt_cubins *cubins; /* NULL: no directory */
    cache_tier tiers[RT_CACHE_MAX_TIERS];
    atomic_int n_tiers;
    /* The directory's state; under the lock. */
    bool is_write_broken; /* one warning was given; entries are not written any more */
    uint64_t dir_bytes;
    int writes;
};

/* One event, for this cache and for the directory's counters. Under the lock. */
#define CACHE_COUNT(c, field, n) ((c)->stats.field += (n), (c)->delta.counts.field += (n))

/* One request, as it goes through the tiers. */
typedef struct cache_wish {
    const char *description, *symbol;
    size_t bytes;
    ir_target target;
    const uint8_t *key;
    rt_cubins *cubins;     /* the cache's */
    rt_miss_reason reason; /* of a miss, as far as the tiers have told */
    int n_threads;         /* that may compile it */
    bool is_told;          /* what is bad was told when all tiers were looked at */
    bool wants_lines;      /* a debugger or profiler listens: an entry without a line table is a miss */
    char file[2 * IR_KEY_BYTES + 1 + RT_ENTRY_SUFFIX_BYTES + 5];
} cache_wish;

/* cache.c: the kernel in the memory table, borrowed; under the lock. */
rt_kernel *cache_find_in_memory(rt_cache *c, const cache_wish *w);
/* cache_tiers.c: NULL when the decoded entry is the one that is wanted, else why not. */
const char *cache_mismatch(const rt_cache *c, cache_wish *w, const rt_entry *entry);
/* cache.c: NULL when the blob is PTX with its NUL, else what is wrong. */
const char *cache_text_problem(const void *blob, size_t bytes);
/* cache.c: loads a blob. The new kernel has one reference. */
fusor_status cache_kernel_new(fu_error *e, const cache_wish *w, const void *blob, size_t blob_bytes, uint64_t entry,
                              uint64_t code_bytes, int64_t compile_ns, const rt_code_debug *debug, rt_kernel **out);
/* cache.c: adds what happened to the directory's counters. */
void cache_tell_stats(rt_cache *c);
/* cache_tiers.c: whether one tier, or any, has the kernel: *out is loaded (or, with out NULL, an intact entry is
 * there). A bad entry is a miss; only a loader that has no memory or is not allowed to make code is an error, in
 * *status. is_ours: it may be written. */
bool cache_try_dir(rt_cache *c, fu_error *e, cache_wish *w, const rt_dir *d, bool is_ours, rt_kernel **out,
                   fusor_status *status);
bool cache_try_tiers(rt_cache *c, fu_error *e, cache_wish *w, rt_kernel **out, fusor_status *status);
/* cache_make.c: compiles, loads and stores, or finds it on the disk after all. out NULL: stores only. */
fusor_status cache_make(rt_cache *c, fu_error *e, cache_wish *w, rt_kernel **out, bool *from_disk_out);
/* cache_why.c: the error of a miss that must not compile; it names the first line in which the nearest entry
 * differs. */
fusor_status cache_miss(rt_cache *c, fu_error *e, cache_wish *w);
/* cache.c: key, symbol and text of a kernel for this cache; text is the arena's. */
void cache_wish_make(const rt_cache *c, fu_arena *a, const ir_kernel *k, uint8_t key[IR_KEY_BYTES],
                     char symbol[IR_SYMBOL_MAX], cache_wish *out);
#endif
