/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TOOL_CACHE_ENTRIES_H
#define TOOL_CACHE_ENTRIES_H
/* The entries of the cache directory as the subcommands of `fusor cache` see them. */
#include "report.h"

typedef struct cache_entry {
    const char *file, *key, *checksum, *symbol, *level, *features, *build_id, *description, *problem, *kind, *shape;
    uint64_t file_bytes, blob_bytes, code_bytes, start, lines_bytes;
    const void *blob, *lines; /* read by cache_find_key only */
    int64_t compile_ns, created_s, used_s, hits;
    bool is_of_this_build, is_gpu; /* is_gpu: the blob is PTX */
    bool is_unread;                /* the problem is not the file's (rt/cache.h) */
} cache_entry;
typedef fu_vec(cache_entry) cache_entries;

/* The directory in force. 0, or the exit status after a message. */
int cache_directory(tool *t, char *path, size_t room);
/* Machine code that a driver made of a kernel for a GPU. */
typedef struct cache_cubin {
    const char *file, *key, *problem, *driver;
    uint64_t file_bytes, cubin_bytes;
    int cc, driver_version;
    bool is_unread;
} cache_cubin;
typedef fu_vec(cache_cubin) cache_cubins;
int cache_read_cubins(tool *t, const char *dir, cache_cubins *out);

/* All entries that --filter takes, in key order; none where the directory is not there yet. */
int cache_read(tool *t, const char *dir, bool with_code, cache_entries *out);
/* The one entry whose key (or symbol) starts as the argument says. */
int cache_find_key(tool *t, const char *dir, const cache_entry **out);
json_t *cache_entry_json(const cache_entry *e);
/* "now", "5m", "3h", "2d" */
const char *cache_age(tool *t, int64_t since);

int cache_disasm(tool *t, const char *dir); /* cmd_cache_disasm.c */
/* cmd_cache_warm.c */
int cache_warm(tool *t);
int cache_why(tool *t);
#endif
