/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_bundle.c: many entries in one file that is only read: opening and finding, writing (export) and unpacking
 * (import). Whatever the bytes are, what is found goes through the same checks as an entry of a directory. */
#include "base/small.h"
#include "base/file.h"
#include "rt/cache_entry.h"
#include "rt/compiler.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct bundle_header {
    char magic[8];
    uint32_t format, slot_bytes;
    uint64_t n;
} bundle_header;

/* False: the bundle ends before. */
static bool read_at(const rt_bundle *b, uint64_t at, void *to, size_t bytes) {
    if (at > b->bytes || bytes > b->bytes - at) return false;
    if (b->fd < 0) {
        memcpy(to, b->memory + at, bytes);
        return true;
    }
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(b->fd, (char *)to + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

/* What is wrong with the contents of a file, as against with reaching it. */
static const char not_a_bundle[] = "not a bundle", other_format[] = "a bundle of another format version",
                  truncated[] = "truncated";
static bool is_damage(const char *problem) {
    return problem == not_a_bundle || problem == other_format || problem == truncated;
}

static const char *read_index(rt_bundle *b) {
    bundle_header h;
    const char *problem = NULL;
    if (!read_at(b, 0, &h, sizeof h) || memcmp(h.magic, RT_BUNDLE_MAGIC, 8) != 0) problem = not_a_bundle;
    else if (h.format != RT_BUNDLE_FORMAT || h.slot_bytes != sizeof(rt_bundle_slot)) problem = other_format;
    else if (h.n > (b->bytes - sizeof h) / sizeof(rt_bundle_slot)) problem = truncated;
    else if (!(b->slot = fu_malloc((size_t)h.n * sizeof *b->slot + 1))) problem = strerror(ENOMEM);
    else if (!read_at(b, sizeof h, b->slot, (size_t)h.n * sizeof *b->slot)) problem = truncated;
    else b->n = h.n;
    if (problem) rt_bundle_close(b);
    return problem;
}

const char *rt_bundle_open(const char *path, rt_bundle *out) {
    rt_dir here = {.fd = AT_FDCWD};
    *out = (rt_bundle){.fd = -1};
    out->fd = rt_dir_open_file(&here, path, &out->bytes, NULL);
    if (out->fd < 0) return rt_dir_reason(errno);
    return read_index(out);
}

const char *rt_bundle_of_memory(const void *data, size_t bytes, rt_bundle *out) {
    *out = (rt_bundle){.fd = -1, .memory = data, .bytes = bytes};
    return read_index(out);
}

void rt_bundle_close(rt_bundle *b) {
    if (b->fd >= 0) close(b->fd);
    fu_free(b->slot);
    *b = (rt_bundle){.fd = -1};
}

void *rt_bundle_at(const rt_bundle *b, uint64_t i, size_t *bytes_out) {
    const rt_bundle_slot *s = &b->slot[i];
    if (s->bytes > RT_ENTRY_MAX_BYTES || s->at > b->bytes || s->bytes > b->bytes - s->at) return NULL;
    void *data = fu_malloc((size_t)s->bytes + 1);
    if (data && !read_at(b, s->at, data, (size_t)s->bytes)) {
        fu_free(data);
        data = NULL;
    }
    if (data) *bytes_out = (size_t)s->bytes;
    return data;
}

static bool find(const rt_bundle *b, const uint8_t key[IR_KEY_BYTES], uint64_t *at_out) {
    uint64_t low = 0, high = b->n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int order = memcmp(b->slot[middle].key, key, IR_KEY_BYTES);
        if (order == 0) return *at_out = middle, true;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return false;
}

bool rt_bundle_has(const rt_bundle *b, const uint8_t key[IR_KEY_BYTES]) {
    uint64_t at;
    return find(b, key, &at);
}

void *rt_bundle_find(const rt_bundle *b, const uint8_t key[IR_KEY_BYTES], size_t *bytes_out) {
    uint64_t at;
    return find(b, key, &at) ? rt_bundle_at(b, at, bytes_out) : NULL;
}

/* ---- writing ---- */
static int write_bundle(const char *bundle, rt_bundle_slot *slot, void *const *data, size_t n) {
    static const char zeros[RT_ENTRY_ALIGN];
    bundle_header h = {.format = RT_BUNDLE_FORMAT, .slot_bytes = sizeof *slot, .n = n};
    memcpy(h.magic, RT_BUNDLE_MAGIC, 8);
    fu_part *parts = fu_calloc(2 * n + 4, sizeof *parts);
    if (!parts) return ENOMEM;
    uint64_t end = sizeof h + n * sizeof *slot, at = rt_entry_align(end);
    int k = 0;
    parts[k++] = (fu_part){&h, sizeof h};
    parts[k++] = (fu_part){slot, n * sizeof *slot};
    parts[k++] = (fu_part){zeros, (size_t)(at - end)};
    for (size_t i = 0; i < n; i++) {
        const uint64_t whole = rt_entry_align(slot[i].bytes);
        slot[i].at = at;
        parts[k++] = (fu_part){data[i], (size_t)slot[i].bytes};
        parts[k++] = (fu_part){zeros, (size_t)(whole - slot[i].bytes)};
        at += whole;
    }
    /* Made to be shipped, so by the umask; but nobody reads a bundle that others may write to. */
    const int failed = fu_file_replace(bundle, 0644, parts, k);
    fu_free(parts);
    return failed == ESPIPE ? ENOTSUP : failed; /* a device is not replaced, nor /dev/stdout */
}

/* Names are hex digits of the keys and sorted, so name order is key order; what lies under another name is no hit. */
static fusor_status export_names(fu_error *e, const rt_dir *d, char *const *names, size_t n_names, const char *bundle,
                                 int64_t *n_out) {
    size_t n = 0;
    rt_bundle_slot *slot = fu_calloc(n_names + 1, sizeof *slot);
    void **data = fu_calloc(n_names + 1, sizeof *data);
    int failed = slot && data ? 0 : ENOMEM;
    for (size_t i = 0; i < n_names && !failed; i++) {
        size_t bytes;
        rt_entry entry;
        if (rt_dir_read(d, names[i], RT_ENTRY_MAX_BYTES, &data[n], &bytes, NULL)) continue;
        char key[2 * IR_KEY_BYTES + 1];
        bool is_good = !rt_entry_decode(data[n], bytes, &entry) && strcmp(entry.head->build_id, rt_build_id()) == 0;
        if (is_good) rt_key_text(entry.head->key, key);
        if (!is_good || strncmp(key, names[i], 2 * IR_KEY_BYTES) != 0) {
            fu_free(data[n]);
            data[n] = NULL;
            continue;
        }
        memcpy(slot[n].key, entry.head->key, IR_KEY_BYTES);
        slot[n++].bytes = bytes;
    }
    if (!failed) failed = write_bundle(bundle, slot, data, n);
    for (size_t i = 0; i < n && data; i++) fu_free(data[i]);
    fu_free(data);
    fu_free(slot);
    if (failed)
        return FU_FAIL(e, failed == ENOMEM ? FUSOR_ERROR_MEMORY : FUSOR_ERROR_IO, "bundle %s: %s", bundle,
                       strerror(failed));
    if (n_out) *n_out = (int64_t)n;
    return FUSOR_OK;
}

static fusor_status open_dir(fu_error *e, const char *dir, bool make, rt_dir *out) {
    char why[256];
    if (rt_dir_open(dir, make, out, why, sizeof why))
        return FU_FAIL(e, FUSOR_ERROR_IO, "cache directory %s: %s", dir, why);
    return FUSOR_OK;
}

fusor_status rt_cache_export(fu_error *e, const char *dir, const char *bundle, int64_t *n_out) {
    rt_dir d;
    FU_TRY(open_dir(e, dir, false, &d));
    char **names = NULL;
    size_t n = 0;
    int failed = rt_dir_names(&d, false, &names, &n);
    fusor_status s = failed ? FU_FAIL(e, failed == ENOMEM ? FUSOR_ERROR_MEMORY : FUSOR_ERROR_IO,
                                      "cache directory %s: %s", dir, strerror(failed))
                            : export_names(e, &d, names, n, bundle, n_out);
    fu_free(names);
    rt_dir_close(&d);
    return s;
}

typedef char key_name[2 * IR_KEY_BYTES + 1 + RT_ENTRY_SUFFIX_BYTES];
static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

fusor_status rt_cache_export_keys(fu_error *e, const char *dir, const uint8_t (*keys)[IR_KEY_BYTES], size_t n,
                                  const char *bundle, int64_t *n_out) {
    rt_dir d;
    FU_TRY(open_dir(e, dir, false, &d));
    key_name *text = fu_calloc(n + 1, sizeof *text);
    char **names = fu_calloc(n + 1, sizeof *names);
    fusor_status s = FUSOR_OK;
    if (!text || !names) s = FU_FAIL(e, FUSOR_ERROR_MEMORY, "bundle %s: no memory", bundle);
    else {
        for (size_t i = 0; i < n; i++) {
            rt_key_text(keys[i], text[i]);
            names[i] = strcat(text[i], RT_ENTRY_SUFFIX);
        }
        qsort(names, n, sizeof *names, by_name);
        size_t kept = 0;
        for (size_t i = 0; i < n; i++)
            if (!kept || strcmp(names[kept - 1], names[i]) != 0) names[kept++] = names[i];
        s = export_names(e, &d, names, kept, bundle, n_out);
    }
    fu_free(names);
    fu_free(text);
    rt_dir_close(&d);
    return s;
}

fusor_status rt_cache_import(fu_error *e, const char *bundle, const char *dir, int64_t *n_out) {
    rt_bundle b;
    rt_dir d;
    const char *problem = rt_bundle_open(bundle, &b);
    if (problem)
        return FU_FAIL(e, is_damage(problem) ? FUSOR_ERROR_ARGUMENT : FUSOR_ERROR_IO, "bundle %s: %s", bundle, problem);
    fusor_status s = open_dir(e, dir, true, &d);
    if (s != FUSOR_OK) {
        rt_bundle_close(&b);
        return s;
    }
    int64_t n = 0, n_damaged = 0;
    const int64_t n_all = (int64_t)b.n;
    int failed = 0;
    for (uint64_t i = 0; i < b.n && !failed; i++) {
        size_t bytes;
        rt_entry entry;
        void *data = rt_bundle_at(&b, i, &bytes);
        const bool is_good = data && !rt_entry_decode(data, bytes, &entry);
        n_damaged += !is_good;
        if (is_good && strcmp(entry.head->build_id, rt_build_id()) == 0) {
            key_name name;
            rt_key_text(entry.head->key, name);
            strcat(name, RT_ENTRY_SUFFIX);
            failed = rt_dir_write(&d, name, &(fu_part){data, bytes}, 1);
            n += !failed;
        }
        fu_free(data);
    }
    rt_dir_close(&d);
    rt_bundle_close(&b);
    if (failed) return FU_FAIL(e, FUSOR_ERROR_IO, "cache directory %s: %s", dir, strerror(failed));
    if (n_damaged)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT,
                       "bundle %s: %lld of its %lld entries are damaged; the others were taken over", bundle,
                       (long long)n_damaged, (long long)n_all);
    if (n_out) *n_out = n;
    return FUSOR_OK;
}
