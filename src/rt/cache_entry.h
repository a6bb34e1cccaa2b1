/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_CACHE_ENTRY_H
#define RT_CACHE_ENTRY_H
/* Inside the cache: the format of entries and bundles, and files in the cache directory. */
#include "base/file.h"
#include "rt/cache.h"
#include <errno.h>

/* ---- entry: header, description, zeros up to 64, blob, line table (where one was asked for) ---- */
#define RT_ENTRY_MAGIC  "FUSORK1\n"
#define RT_BUNDLE_MAGIC "FUSORB1\n"
enum { RT_ENTRY_FORMAT = 3, RT_BUNDLE_FORMAT = 1, RT_ENTRY_SUFFIX_BYTES = 3, RT_ENTRY_ALIGN = 64, RT_ENTRY_PARTS = 5 };
static inline uint64_t rt_entry_align(uint64_t n) { return (n + RT_ENTRY_ALIGN - 1) / RT_ENTRY_ALIGN * RT_ENTRY_ALIGN; }
#define RT_ENTRY_SUFFIX ".fk"
/* No kernel comes near; a larger file is not read. */
#define RT_ENTRY_MAX_BYTES ((uint64_t)64 << 20)

typedef struct rt_entry_header {
    char magic[8];
    uint32_t format, header_bytes;
    uint8_t checksum[16]; /* XXH3-128 of everything after this field */
    uint64_t file_bytes;
    uint8_t key[IR_KEY_BYTES];
    char build_id[64], level[64], features[256], symbol[IR_SYMBOL_MAX]; /* NUL-terminated and zero-filled */
    uint64_t description_bytes, blob_bytes, entry, code_bytes;
    int64_t compile_ns, created_s;
    uint64_t lines_bytes; /* the rest of the file, behind the blob */
} rt_entry_header;

/* What is in an entry, pointing into the bytes it was read from. */
typedef struct rt_entry {
    const rt_entry_header *head;
    const char *description;
    const void *blob, *lines; /* lines: NULL where there is none; not aligned */
} rt_entry;
/* NULL when the bytes are an intact entry, else what is wrong (static text). data is 8-byte aligned. */
const char *rt_entry_decode(const void *data, size_t bytes, rt_entry *out);
/* Fills in sizes and the checksum of *head. The file is then the parts one after the other; they point to head, to the
 * caller's memory and to static zeros. False: too long, or no memory for the checksum. */
bool rt_entry_encode(rt_entry_header *head, const char *description, size_t description_bytes, const void *blob,
                     size_t blob_bytes, const void *lines, size_t lines_bytes, fu_part parts[RT_ENTRY_PARTS]);
void rt_key_text(const uint8_t key[IR_KEY_BYTES], char text[2 * IR_KEY_BYTES + 1]);
/* And back, of a text that begins with one, as the name of a file does. */
void rt_key_read(const char *text, uint8_t key[IR_KEY_BYTES]);

/* ---- directory ---- */
typedef struct rt_dir {
    int fd;
    char path[4096];
} rt_dir;
/* Opens it, checks owner and mode. make: create what is missing. NULL, or why not (in `why`, whose owner is the
 * caller). */
const char *rt_dir_open(const char *path, bool make, rt_dir *out, char *why, size_t room);
/* The same for one that is there, where nobody asks why not. "" and NULL are none. */
bool rt_dir_try(const char *path, rt_dir *out);
void rt_dir_close(rt_dir *d);
/* Opens a plain file that only the effective user or root may write; the descriptor, or -1 with errno (EPERM: it is not
 * one; ELOOP: a link). */
int rt_dir_open_file(const rt_dir *d, const char *name, uint64_t *bytes_out, int64_t *mtime_s_out);
/* Whole content of a file, by fu_malloc; 0 or errno, as above. mtime_s may be NULL. */
int rt_dir_read(const rt_dir *d, const char *name, uint64_t max_bytes, void **data_out, size_t *bytes_out,
                int64_t *mtime_s_out);
/* Is the file to blame for that? Else it may be good: the system had no descriptor, no memory or no leave for it. */
static inline bool rt_dir_is_bad(int problem) { return problem == EPERM || problem == ELOOP || problem == EFBIG; }
const char *rt_dir_reason(int problem); /* in words */
int rt_dir_write(const rt_dir *d, const char *name, const fu_part *parts, int n);
/* Waits up to two seconds for NAME; the descriptor, or -1. is_done (may be NULL) ends the waiting early with -1. */
int rt_dir_lock(const rt_dir *d, const char *name, bool (*is_done)(void *user), void *user);
void rt_dir_unlock(const rt_dir *d, const char *name, int fd);
/* The first file that could not be deleted, where error is not 0; "": the directory could not be read. */
typedef struct rt_dir_failure {
    int error;
    char name[256];
} rt_dir_failure;
/* Deletes the least recently used entries until `target` bytes are left, with what drivers made of them (its bytes
 * count, it is no entry), and temporary and lock files: stale ones, or all but what a living process writes. Bytes
 * left; *failed_out may be NULL. */
uint64_t rt_dir_evict(const rt_dir *d, uint64_t max_bytes, uint64_t target_bytes, int64_t max_age_s, bool is_dry_run,
                      bool all_temporary, int64_t *n_out, int64_t *bytes_out, rt_dir_failure *failed_out);
/* So as writing does: above max_bytes, nine tenths of them are left. */
uint64_t rt_dir_keep_to(const rt_dir *d, uint64_t max_bytes, int64_t *n_out);
/* Bad entries that were set aside (NAME.bad): how many, and their bytes; is_removed: and deletes them. */
rt_dir_failure rt_dir_quarantined(const rt_dir *d, bool is_removed, int64_t *n_out, int64_t *bytes_out);
/* Names of all entries, or of what drivers made of them (cubin.h), sorted, in one block by fu_malloc: *names_out[i]. 0
 * or errno. */
int rt_dir_names(const rt_dir *d, bool of_cubins, char ***names_out, size_t *n_out);

/* ---- bundle: magic, format, count, index sorted by key, entries at multiples of 64. Only the index is read when it is
 * opened; a file that is cut or changed later costs misses. ---- */
typedef struct rt_bundle_slot {
    uint8_t key[IR_KEY_BYTES];
    uint64_t at, bytes;
} rt_bundle_slot;
typedef struct rt_bundle {
    int fd;             /* -1: in memory */
    const char *memory; /* the caller's */
    uint64_t bytes, n;
    rt_bundle_slot *slot; /* by fu_malloc */
} rt_bundle;
/* NULL, or what is wrong with the file. Files that others may write are refused. */
const char *rt_bundle_open(const char *path, rt_bundle *out);
const char *rt_bundle_of_memory(const void *data, size_t bytes, rt_bundle *out);
void rt_bundle_close(rt_bundle *b);
bool rt_bundle_has(const rt_bundle *b, const uint8_t key[IR_KEY_BYTES]);
/* A copy of the entry with this key, by fu_malloc, not yet decoded; NULL when there is none, or no memory. */
void *rt_bundle_find(const rt_bundle *b, const uint8_t key[IR_KEY_BYTES], size_t *bytes_out);
void *rt_bundle_at(const rt_bundle *b, uint64_t i, size_t *bytes_out);
#endif
