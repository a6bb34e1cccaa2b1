/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_list.c: looks at a cache directory and tidies it, without a cache object: what `fusor cache` does. */
#include "base/small.h"
#include "rt/cache_internal.h"
#include "rt/compiler.h"
#include "rt/cubin.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static fusor_status open_dir(fu_error *e, const char *dir, rt_dir *out) {
    char why[256];
    if (rt_dir_open(dir, false, out, why, sizeof why))
        return FU_FAIL(e, FUSOR_ERROR_IO, "cache directory %s: %s", dir, why);
    return FUSOR_OK;
}

static bool is_gpu_level(const char *name) {
    for (int l = IR_LEVEL_COUNT; l < IR_LEVEL_END; l++)
        if (strcmp(ir_levels[l].name, name) == 0) return true;
    return false;
}

static const char *why_not_read(int problem, bool *is_unread) {
    *is_unread = !rt_dir_is_bad(problem);
    return rt_dir_reason(problem);
}

static void describe(const rt_entry *in, const char *file, const char *problem, size_t bytes, int64_t mtime_s,
                     const rt_stats_content *stats, rt_cache_entry *out) {
    *out = (rt_cache_entry){.file = file, .problem = problem, .file_bytes = bytes, .used_s = mtime_s};
    out->symbol = out->level = out->features = out->build_id = out->description = "";
    snprintf(out->key, sizeof out->key, "%.*s", 2 * IR_KEY_BYTES, file);
    const rt_entry_header *h = in->head;
    if (!h) return;
    out->symbol = h->symbol;
    out->level = h->level;
    out->features = h->features;
    out->build_id = h->build_id;
    out->is_of_this_build = strcmp(h->build_id, rt_build_id()) == 0;
    out->compile_ns = h->compile_ns;
    out->created_s = h->created_s;
    rt_key_text(h->checksum, out->checksum); /* of as many bytes as a key */
    if (problem) return;
    char key[2 * IR_KEY_BYTES + 1];
    rt_key_text(h->key, key);
    if (strcmp(key, out->key) != 0) out->problem = "the key inside is not that of its name";
    if (!out->problem && is_gpu_level(h->level)) out->problem = cache_text_problem(in->blob, (size_t)h->blob_bytes);
    out->description = in->description;
    out->blob = in->blob;
    out->blob_bytes = h->blob_bytes;
    out->code_bytes = h->code_bytes;
    out->entry = h->entry;
    out->lines = in->lines;
    out->lines_bytes = h->lines_bytes;
    const rt_stats_use *use = rt_stats_find(stats, h->key);
    if (use) {
        out->hits = use->hits;
        if (use->last_s > mtime_s) out->used_s = use->last_s;
    }
}

fusor_status rt_cache_list(fu_error *e, const char *dir, bool (*visit)(void *user, const rt_cache_entry *entry),
                           void *user) {
    rt_dir d;
    FU_TRY(open_dir(e, dir, &d));
    char **names;
    size_t n;
    int failed = rt_dir_names(&d, false, &names, &n);
    if (failed) {
        rt_dir_close(&d);
        return FU_FAIL(e, failed == ENOMEM ? FUSOR_ERROR_MEMORY : FUSOR_ERROR_IO, "cache directory %s: %s", dir,
                       strerror(failed));
    }
    bool go_on = true;
    rt_stats_content stats;
    rt_stats_read(&d, &stats);
    for (size_t i = 0; i < n && go_on; i++) {
        void *data = NULL;
        size_t bytes = 0;
        int64_t mtime_s = 0;
        rt_entry entry = {0};
        rt_cache_entry shown;
        bool is_unread = false;
        int problem = rt_dir_read(&d, names[i], RT_ENTRY_MAX_BYTES, &data, &bytes, &mtime_s);
        if (problem == ENOENT) continue; /* evicted meanwhile */
        struct stat st;
        if (problem && !fstatat(d.fd, names[i], &st, AT_SYMLINK_NOFOLLOW)) {
            mtime_s = st.st_mtime;
            bytes = (size_t)st.st_size;
        }
        const char *text = problem ? why_not_read(problem, &is_unread) : rt_entry_decode(data, bytes, &entry);
        describe(&entry, names[i], text, bytes, mtime_s, &stats, &shown);
        shown.is_unread = is_unread;
        go_on = visit(user, &shown);
        fu_free(data);
    }
    rt_stats_free(&stats);
    fu_free(names);
    rt_dir_close(&d);
    return FUSOR_OK;
}

fusor_status rt_cache_list_cubins(fu_error *e, const char *dir, bool (*visit)(void *user, const rt_cache_cubin *cubin),
                                  void *user) {
    rt_dir d;
    FU_TRY(open_dir(e, dir, &d));
    char **names;
    size_t n;
    int failed = rt_dir_names(&d, true, &names, &n);
    if (failed) {
        rt_dir_close(&d);
        return FU_FAIL(e, failed == ENOMEM ? FUSOR_ERROR_MEMORY : FUSOR_ERROR_IO, "cache directory %s: %s", dir,
                       strerror(failed));
    }
    bool go_on = true;
    for (size_t i = 0; i < n && go_on; i++) {
        void *data = NULL;
        size_t bytes = 0;
        rt_cache_cubin shown = {.file = names[i], .driver = ""};
        int problem = rt_dir_read(&d, names[i], RT_ENTRY_MAX_BYTES, &data, &bytes, NULL);
        if (problem == ENOENT) continue; /* evicted meanwhile */
        shown.file_bytes = bytes;
        snprintf(shown.key, sizeof shown.key, "%.*s", 2 * IR_KEY_BYTES, names[i]);
        shown.problem = problem ? why_not_read(problem, &shown.is_unread) : rt_cubin_problem(data, bytes);
        if (!shown.problem) {
            const rt_cubin_header *h = data;
            char key[2 * IR_KEY_BYTES + 1];
            shown.cc = h->cc;
            shown.driver_version = h->driver_version;
            shown.driver = h->driver;
            shown.cubin_bytes = h->cubin_bytes;
            rt_key_text(h->key, key);
            if (strcmp(key, shown.key) != 0) shown.problem = "the key inside is not that of its name";
        }
        go_on = visit(user, &shown);
        fu_free(data);
    }
    fu_free(names);
    rt_dir_close(&d);
    return FUSOR_OK;
}

static fusor_status fail_deleting(fu_error *e, const char *dir, const rt_dir_failure *f, int64_t n_deleted) {
    const char *space = f->name[0] ? " " : "", *why = strerror(f->error);
    if (!n_deleted)
        return FU_FAIL(e, FUSOR_ERROR_IO, "cache directory %s: cannot delete%s%s: %s", dir, space, f->name, why);
    return FU_FAIL(e, FUSOR_ERROR_IO, "cache directory %s: cannot delete%s%s: %s (%lld deleted)", dir, space, f->name,
                   why, (long long)n_deleted);
}

fusor_status rt_cache_prune(fu_error *e, const char *dir, uint64_t max_bytes, int64_t max_age_s, bool is_dry_run,
                            int64_t *n_out, int64_t *bytes_out) {
    rt_dir d;
    FU_TRY(open_dir(e, dir, &d));
    int64_t n_bad, bad_bytes, n, bytes;
    rt_dir_failure failed,
        failed_bad = rt_dir_quarantined(&d, !is_dry_run, &n_bad, &bad_bytes); /* only for who looks at them */
    rt_dir_evict(&d, max_bytes, max_bytes, max_age_s, is_dry_run, false, &n, &bytes, &failed);
    rt_dir_close(&d);
    if (failed_bad.error) failed = failed_bad;
    if (failed.error) return fail_deleting(e, dir, &failed, n + n_bad);
    if (n_out) *n_out = n + n_bad;
    if (bytes_out) *bytes_out = bytes + bad_bytes;
    return FUSOR_OK;
}

fusor_status rt_cache_count_quarantined(fu_error *e, const char *dir, int64_t *n_out, int64_t *bytes_out) {
    rt_dir d;
    FU_TRY(open_dir(e, dir, &d));
    (void)rt_dir_quarantined(&d, false, n_out, bytes_out);
    rt_dir_close(&d);
    return FUSOR_OK;
}

fusor_status rt_cache_clear(fu_error *e, const char *dir, int64_t *n_out) {
    rt_dir d;
    FU_TRY(open_dir(e, dir, &d));
    int64_t n;
    rt_dir_failure failed;
    rt_dir_evict(&d, 0, 0, 0, false, true, &n, NULL, &failed);
    if (unlinkat(d.fd, RT_STATS_FILE, 0) && errno != ENOENT && !failed.error)
        failed = (rt_dir_failure){errno, RT_STATS_FILE};
    rt_dir_close(&d);
    if (failed.error) return fail_deleting(e, dir, &failed, n);
    if (n_out) *n_out = n;
    return FUSOR_OK;
}

fusor_status rt_cache_quarantine(fu_error *e, const char *dir, const char *file) {
    char to[256];
    int n = snprintf(to, sizeof to, "%s.bad", file);
    if (strchr(file, '/') || n < 0 || (size_t)n >= sizeof to)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "'%s' is no name of a cache entry", file);
    rt_dir d;
    FU_TRY(open_dir(e, dir, &d));
    int failed = renameat(d.fd, file, d.fd, to) ? errno : 0;
    rt_dir_close(&d);
    if (failed) return FU_FAIL(e, FUSOR_ERROR_IO, "%s/%s: %s", dir, file, strerror(failed));
    return FUSOR_OK;
}
