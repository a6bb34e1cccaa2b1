/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_CACHE_STATS_H
#define RT_CACHE_STATS_H
/* Counters of a cache directory over all processes: the file DIR/stats. Nothing depends on it: it may be missing,
 * damaged, locked or unwritable at any time, which costs counts and nothing else. A process gathers what happened
 * (rt_stats_delta) and adds it to the file now and then, under a lock that it does not wait for. */
#include "rt/cache_entry.h"

#define RT_STATS_FILE "stats"
/* Uses of one entry: loads from disk, and the last of them (Unix time). */
typedef struct rt_stats_use {
    uint8_t key[IR_KEY_BYTES];
    int64_t hits, last_s;
} rt_stats_use;
enum { RT_STATS_PENDING = 64 };
typedef struct rt_stats_delta {
    rt_cache_stats counts;
    int n_uses;
    rt_stats_use use[RT_STATS_PENDING]; /* those that find no room are counted, but not by key */
    bool is_new[RT_STATS_PENDING];      /* of use[i]: a miss for want of an entry was among them */
} rt_stats_delta;

/* The file's content; zeros where there is none. uses: by fu_malloc, sorted by key (NULL when none). */
typedef struct rt_stats_content {
    rt_cache_stats totals;
    int64_t since_s;
    rt_stats_use *use;
    size_t n;
} rt_stats_content;
/* False: the bytes (8-byte aligned) are no intact file; *out is zeros then. */
bool rt_stats_decode(const void *data, size_t bytes, rt_stats_content *out);
void rt_stats_read(const rt_dir *d, rt_stats_content *out);
void rt_stats_free(rt_stats_content *s);
const rt_stats_use *rt_stats_find(const rt_stats_content *s, const uint8_t key[IR_KEY_BYTES]);
/* Adds delta and forgets it; keeps it where the file cannot be had now. False: it will never be (not writable). */
bool rt_stats_add(const rt_dir *d, rt_stats_delta *delta);
void rt_stats_note_use(rt_stats_delta *delta, const uint8_t key[IR_KEY_BYTES], bool is_hit, bool is_new);
#endif
