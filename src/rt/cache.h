/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_CACHE_H
#define RT_CACHE_H
/* Finds or makes compiled kernels: memory table, read-only tiers (bundles, directories), the disk directory, then the
 * code generation module. A cached kernel is never wrong, half-written, foreign or stale: key, full description, build,
 * features and checksum are compared, every size is checked. Trouble with files never fails a call: it costs one
 * warning and the kernel is made.
 *
 * Files: DIR/<32 hex digits of the key>.fk (cache_entry.h has the format), written to a temporary name and renamed once
 * the kernel is usable. DIR is FUSOR_CACHE_DIR, XDG_CACHE_HOME/fusor, HOME/.cache/fusor, else there is none; it is
 * refused unless it belongs to the effective user or root and nobody else may write it.
 *
 * Threads: one cache may be used from any number of threads; threads that need the same kernel at once compile it once,
 * processes too (a lock file that is waited for at most two seconds). A fork is safe: the child goes on with the memory
 * table as it was. */
#include "base/error.h"
#include "base/log.h"
#include "ir/codegen_api.h"
#include "ir/kernel.h"
#include "rt/loader.h"
#include <stdatomic.h>

/* A kernel ready to run, or to be loaded on a device. Immutable, counted; holds its code or text. */
typedef struct rt_kernel {
    ir_kernel_fn fn; /* NULL: of a GPU */
    rt_code *code;
    const char *ptx;          /* of a GPU's, NUL-terminated; NULL: of a CPU */
    size_t ptx_bytes;         /* without the NUL */
    struct rt_cubins *cubins; /* of a GPU's: where what a driver makes of it is kept (cubin.h); NULL: nowhere */
    uint8_t key[IR_KEY_BYTES];
    char symbol[IR_SYMBOL_MAX];
    char *description; /* NUL-terminated */
    size_t description_bytes, blob_bytes;
    uint64_t code_bytes; /* of instructions */
    int64_t compile_ns;  /* when it was compiled, here or by whoever stored it */
    atomic_int refs;
} rt_kernel;
rt_kernel *rt_kernel_keep(rt_kernel *k);
void rt_kernel_release(rt_kernel *k); /* NULL is allowed */

typedef enum rt_cache_mode { RT_CACHE_DEFAULT, RT_CACHE_OFF, RT_CACHE_RO, RT_CACHE_RW, RT_CACHE_REFRESH } rt_cache_mode;
/* "off", "ro", "rw", "refresh"; RT_CACHE_DEFAULT for anything else. */
rt_cache_mode rt_cache_mode_parse(const char *text);

typedef struct rt_cache_options {
    rt_cache_mode mode;      /* DEFAULT: FUSOR_CACHE */
    const char *dir;         /* NULL: the rule above. "": no directory */
    const char *path;        /* read-only tiers, separated by ':'. NULL: FUSOR_CACHE_PATH */
    uint64_t max_bytes;      /* of the directory; 0 = 512 MB */
    int max_kernels;         /* in memory that nobody uses any more; 0 = 1024 */
    uint64_t max_code_bytes; /* of code in memory that nobody uses any more; 0 = 64 MB */
    bool only;               /* never compile: a miss is FUSOR_ERROR_MISS */
    bool ignore_environment;
    const char *build_id; /* NULL: the library's. Tests only */
    /* NULL: the code generation module. Tests give their own */
    int (*generate)(const fusor_codegen_request *request, fusor_codegen_result *result);
    fu_log log; /* where warnings go */
} rt_cache_options;

typedef enum rt_cache_source { RT_CACHE_MEMORY, RT_CACHE_DISK, RT_CACHE_COMPILED } rt_cache_source;
typedef struct rt_cache_outcome {
    rt_cache_source source;
    int64_t ns;
} rt_cache_outcome;
/* Why a kernel was in no tier. ORDER rt_miss_reason: names in cache.c, fields in fusor/cache.h */
typedef enum rt_miss_reason {
    RT_MISS_NEW,        /* no entry with this key */
    RT_MISS_GONE,       /* as before, but there was one: evicted or deleted (the stats file knows) */
    RT_MISS_DAMAGED,    /* truncated, or the checksum does not match */
    RT_MISS_FOREIGN,    /* of another build, kernel or level */
    RT_MISS_FEATURES,   /* needs features that this machine lacks */
    RT_MISS_UNREADABLE, /* owner, mode, kind of file, input error */
    RT_MISS_NO_LINES,   /* a debugger or profiler wants line tables, and the entry has none */
    RT_MISS_REFRESH,    /* mode refresh: not looked for */
    RT_MISS_OFF,        /* there is neither tier nor directory */
    RT_MISS_COUNT
} rt_miss_reason;
extern const char *const rt_miss_reason_names[RT_MISS_COUNT];
typedef struct rt_cache_stats { /* int64_t only */
    int64_t memory_hits, disk_hits, misses, compiles, failures, written, evicted, bad_entries;
    int64_t load_ns, compile_ns, saved_ns; /* saved: compile time of what came from disk, less its loading */
    int64_t miss[RT_MISS_COUNT];           /* misses by reason */
} rt_cache_stats;

typedef struct rt_cache rt_cache;
/* o NULL: defaults. Strings are copied. Fails with MEMORY only; a directory that cannot be used is a warning. */
fusor_status rt_cache_open(fu_error *e, const rt_cache_options *o, rt_cache **out);
/* No call may be in progress. Kernels that are still held stay valid. */
void rt_cache_close(rt_cache *c);
/* "" when there is no usable directory. Lives as long as the cache. */
const char *rt_cache_dir(const rt_cache *c);
/* Adds a bundle file or directory below the tiers that are there. A tier that cannot be read is a warning and
 * FUSOR_ERROR_IO. */
fusor_status rt_cache_add_tier(rt_cache *c, fu_error *e, const char *path);

/* The same for a bundle in memory, which the caller leaves alone as long as the cache lives. */
fusor_status rt_cache_add_memory_tier(rt_cache *c, fu_error *e, const void *data, size_t bytes);

/* Is there an entry for the kernel (or the kernel itself, in memory)? Its content is not looked at. in_tiers_only: in a
 * tier that is only read. key_out: the kernel's, or NULL. False, and the key is zeros, also where there is no memory. */
bool rt_cache_holds(rt_cache *c, const ir_kernel *k, bool in_tiers_only, uint8_t key_out[IR_KEY_BYTES]);
/* Is there a tier that is only read? */
bool rt_cache_has_tiers(rt_cache *c);

/* *out is a reference that the caller owns. out NULL: the kernel is only made sure to be on disk (another level's too);
 * outcome may be NULL. Errors: MISS (o.only), DEVICE (the kernel needs features that this machine lacks), UNSUPPORTED
 * (no module, no executable memory), MEMORY, and whatever code generation says. n_threads: that may compile it. */
fusor_status rt_cache_get(rt_cache *c, fu_error *e, const ir_kernel *k, int n_threads, rt_kernel **out,
                          rt_cache_outcome *outcome);
/* A kernel by its printed description, and what is made of that. */
typedef struct rt_cache_request {
    const char *description;
    size_t bytes; /* of it */
    ir_target target;
    const char *symbol;
    const uint8_t *key; /* IR_KEY_BYTES */
    int n_threads;      /* that may compile it */
} rt_cache_request;
/* The same for a printed description; for tests, whose descriptions need be no kernel's. */
fusor_status rt_cache_get_text(rt_cache *c, fu_error *e, const rt_cache_request *r, rt_kernel **out,
                               rt_cache_outcome *outcome);
rt_cache_stats rt_cache_get_stats(rt_cache *c);

/* What a request for this kernel would meet now; nothing is loaded, compiled, counted or changed. */
typedef struct rt_cache_answer {
    bool is_hit;
    rt_cache_source source; /* of a hit: MEMORY or DISK */
    char where[4200];       /* of a hit from disk, or of what has the problem: path of the directory or bundle */
    rt_miss_reason reason;  /* of a miss */
    char problem[160];      /* what is wrong with an entry that is there; "" */
    char key[2 * IR_KEY_BYTES + 1], symbol[IR_SYMBOL_MAX];
    /* Of a miss: the intact entry with the most lines in common; nearest[0] = 0 when there is none, or none counts. */
    char nearest[2 * IR_KEY_BYTES + 1];
    char field[16], wanted[160], has[160]; /* the first key field that differs ("level", "dim", ... or "build") */
} rt_cache_answer;
fusor_status rt_cache_why(rt_cache *c, fu_error *e, const ir_kernel *k, rt_cache_answer *out);

/* ---- inspection: work on a directory, without a cache object ---- */
/* The directory that a cache with these settings would use: 0, ENOENT where there is none, ENAMETOOLONG. dir as in
 * rt_cache_options. */
int rt_cache_find_dir(const char *dir, bool ignore_environment, char *path_out, size_t room);

typedef struct rt_cache_entry {
    const char *file;    /* name in the directory */
    const char *problem; /* NULL: intact. Else what is wrong; the fields below that could be read are set */
    bool is_unread;      /* the problem is the system's, not the file's: it may be good */
    char key[2 * IR_KEY_BYTES + 1];
    char checksum[2 * IR_KEY_BYTES + 1]; /* as the file has it; "": there is none */
    const char *symbol, *level, *features, *build_id, *description;
    uint64_t file_bytes, blob_bytes, code_bytes, entry;
    const void *blob;
    const void *lines; /* line table (ir/codegen_api.h); NULL: it was not asked for */
    uint64_t lines_bytes;
    int64_t compile_ns, created_s, used_s; /* Unix times; used: within the hour */
    int64_t hits;                          /* loads from disk that the stats file knows of */
    bool is_of_this_build;
} rt_cache_entry;
/* Calls visit for each entry, in name order; everything is borrowed for the call; false ends it. Errors: IO (no such
 * directory). */
fusor_status rt_cache_list(fu_error *e, const char *dir, bool (*visit)(void *user, const rt_cache_entry *entry),
                           void *user);
/* Machine code that a driver made of a GPU's kernel, in a file beside it (cubin.h). */
typedef struct rt_cache_cubin {
    const char *file, *problem; /* problem: NULL: intact; else the fields below are not set */
    bool is_unread;
    char key[2 * IR_KEY_BYTES + 1];
    uint64_t file_bytes, cubin_bytes;
    int cc, driver_version;
    const char *driver;
} rt_cache_cubin;
/* As rt_cache_list. */
fusor_status rt_cache_list_cubins(fu_error *e, const char *dir, bool (*visit)(void *user, const rt_cache_cubin *cubin),
                                  void *user);
/* Deletes entries: those not used for max_age_s (0 = any age), then the least recently used until max_bytes is kept
 * (UINT64_MAX = no limit, 0 = everything goes), temporary and lock files and what was set aside too. *n_out and
 * *bytes_out (may be NULL): what went, or would go. IO: something could not be deleted. */
fusor_status rt_cache_prune(fu_error *e, const char *dir, uint64_t max_bytes, int64_t max_age_s, bool is_dry_run,
                            int64_t *n_out, int64_t *bytes_out);
/* Bad entries that were set aside in a directory. */
fusor_status rt_cache_count_quarantined(fu_error *e, const char *dir, int64_t *n_out, int64_t *bytes_out);
/* Counters of all processes since *since_s_out (0: nothing was counted); zeros where the file is missing or damaged. */
fusor_status rt_cache_read_totals(fu_error *e, const char *dir, rt_cache_stats *totals_out, int64_t *since_s_out);
fusor_status rt_cache_zero_totals(fu_error *e, const char *dir);
/* Deletes all entries, counters, and temporary and lock files; what a living process is writing stays. */
fusor_status rt_cache_clear(fu_error *e, const char *dir, int64_t *n_out);
/* Renames a bad entry so that it is found no more: DIR/NAME.bad. */
fusor_status rt_cache_quarantine(fu_error *e, const char *dir, const char *file);
/* Writes the intact entries of a directory that are of this build as one bundle file. */
fusor_status rt_cache_export(fu_error *e, const char *dir, const char *bundle, int64_t *n_out);
/* The same for the files that are named: DIR/<key>.fk for each of n keys; those that are missing are left out. */
fusor_status rt_cache_export_keys(fu_error *e, const char *dir, const uint8_t (*keys)[IR_KEY_BYTES], size_t n,
                                  const char *bundle, int64_t *n_out);
/* Copies the intact entries of a bundle that are of this build into a directory. */
fusor_status rt_cache_import(fu_error *e, const char *bundle, const char *dir, int64_t *n_out);
#endif
