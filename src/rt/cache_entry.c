/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_entry.c: entries and bundles, between bytes and structs. Whatever the bytes are, decoding reads inside them
 * only. */
#include "rt/cache_entry.h"
#include "base/hash.h"
#include "rt/module.h"
#include <errno.h>
#include <fcntl.h>

enum { ALIGN = 64 };
#define CHECKED_FROM (offsetof(rt_entry_header, checksum) + 16)

static uint64_t align_up(uint64_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

void rt_key_text(const uint8_t key[IR_KEY_BYTES], char text[2 * IR_KEY_BYTES + 1]) {
    static const char digit[] = "0123456789abcdef";
    for (int i = 0; i < IR_KEY_BYTES; i++) {
        text[2 * i] = digit[key[i] >> 4];
        text[2 * i + 1] = digit[key[i] & 15];
    }
    text[2 * IR_KEY_BYTES] = 0;
}

static bool has_end(const char *text, size_t room) { return memchr(text, 0, room) != NULL; }

const char *rt_entry_decode(const void *data, size_t bytes, rt_entry *out) {
    const rt_entry_header *h = data;
    *out = (rt_entry){0};
    if (bytes < sizeof *h) return "shorter than a header";
    if (memcmp(h->magic, RT_ENTRY_MAGIC, 8) != 0) return "not a kernel entry";
    if (h->format != RT_ENTRY_FORMAT) return "another format version";
    if (h->header_bytes != sizeof *h) return "another header size";
    if (!has_end(h->build_id, sizeof h->build_id) || !has_end(h->level, sizeof h->level) ||
        !has_end(h->features, sizeof h->features) || !has_end(h->symbol, sizeof h->symbol))
        return "a header text without end";
    out->head = h;
    if (h->file_bytes != bytes) return h->file_bytes > bytes ? "truncated" : "longer than its header says";
    if (h->description_bytes > bytes - sizeof *h) return "description length out of range";
    uint64_t blob_at = align_up(sizeof *h + h->description_bytes + 1);
    if (blob_at > bytes || h->blob_bytes != bytes - blob_at || !h->blob_bytes) return "code length out of range";
    if (h->entry >= h->blob_bytes || h->code_bytes > h->blob_bytes) return "code offsets out of range";
    uint8_t sum[16];
    fu_hash128((const char *)data + CHECKED_FROM, bytes - CHECKED_FROM, sum);
    if (memcmp(sum, h->checksum, sizeof sum) != 0) return "checksum does not match";
    const char *description = (const char *)data + sizeof *h;
    if (description[h->description_bytes] != 0 || memchr(description, 0, (size_t)h->description_bytes))
        return "description is not text";
    out->description = description;
    out->blob = (const char *)data + blob_at;
    return NULL;
}

bool rt_entry_encode(rt_entry_header *head, const char *description, size_t description_bytes, const void *blob,
                     size_t blob_bytes, const void *parts[4], size_t part_bytes[4]) {
    static const char zeros[ALIGN];
    uint64_t end = sizeof *head + description_bytes, blob_at = align_up(end + 1);
    if (description_bytes > RT_ENTRY_MAX_BYTES || blob_bytes > RT_ENTRY_MAX_BYTES ||
        blob_at + blob_bytes > RT_ENTRY_MAX_BYTES)
        return false;
    memcpy(head->magic, RT_ENTRY_MAGIC, 8);
    head->format = RT_ENTRY_FORMAT;
    head->header_bytes = sizeof *head;
    head->description_bytes = description_bytes;
    head->blob_bytes = blob_bytes;
    head->file_bytes = blob_at + blob_bytes;
    parts[0] = head;
    part_bytes[0] = sizeof *head;
    parts[1] = description;
    part_bytes[1] = description_bytes;
    parts[2] = zeros;
    part_bytes[2] = (size_t)(blob_at - end);
    parts[3] = blob;
    part_bytes[3] = blob_bytes;
    /* The checksum runs over the file as it will be; kernels are small enough to be put together for it. */
    size_t bytes = (size_t)head->file_bytes;
    char *whole = fu_malloc(bytes);
    if (!whole) return false;
    size_t at = 0;
    for (int i = 0; i < 4; i++) {
        memcpy(whole + at, parts[i], part_bytes[i]);
        at += part_bytes[i];
    }
    fu_hash128(whole + CHECKED_FROM, bytes - CHECKED_FROM, head->checksum);
    fu_free(whole);
    return true;
}

/* ---- bundles ---- */
typedef struct bundle_header { char magic[8]; uint32_t format, slot_bytes; uint64_t n; } bundle_header;

const char *rt_bundle_open(const char *path, rt_bundle *out) {
    *out = (rt_bundle){0};
    rt_dir d = {.fd = AT_FDCWD};
    int e = rt_dir_read(&d, path, (uint64_t)1 << 32, &out->data, &out->bytes, NULL);
    if (e) return e == EPERM ? "not a plain file that only you or root may write" : strerror(e);
    const bundle_header *h = out->data;
    const char *problem = NULL;
    if (out->bytes < sizeof *h || memcmp(h->magic, RT_BUNDLE_MAGIC, 8) != 0) problem = "not a bundle";
    else if (h->format != RT_BUNDLE_FORMAT || h->slot_bytes != sizeof(rt_bundle_slot))
        problem = "a bundle of another format version";
    else if (h->n > (out->bytes - sizeof *h) / sizeof(rt_bundle_slot)) problem = "truncated";
    if (problem) {
        rt_bundle_close(out);
        return problem;
    }
    out->n = h->n;
    out->slot = (const void *)(h + 1);
    return NULL;
}

void rt_bundle_close(rt_bundle *b) {
    fu_free(b->data);
    *b = (rt_bundle){0};
}

const void *rt_bundle_at(const rt_bundle *b, uint64_t i, size_t *bytes_out) {
    const rt_bundle_slot *s = &b->slot[i];
    if (s->at % 8 || s->at > b->bytes || s->bytes > b->bytes - s->at) return NULL;
    *bytes_out = (size_t)s->bytes;
    return (const char *)b->data + s->at;
}

const void *rt_bundle_find(const rt_bundle *b, const uint8_t key[IR_KEY_BYTES], size_t *bytes_out) {
    uint64_t low = 0, high = b->n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int order = memcmp(b->slot[middle].key, key, IR_KEY_BYTES);
        if (order == 0) return rt_bundle_at(b, middle, bytes_out);
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

/* All entries of a directory that are intact and of this build; two passes, so that the index can go first. */
fusor_status rt_cache_export(fu_error *e, const char *dir, const char *bundle, int64_t *n_out) {
    char why[256];
    rt_dir d;
    if (rt_dir_open(dir, false, &d, why, sizeof why))
        return FU_FAIL(e, FUSOR_ERROR_IO, "cache directory %s: %s", dir, why);
    char **names = NULL;
    size_t n_names = 0, n = 0;
    int failed = rt_dir_names(&d, &names, &n_names);
    rt_bundle_slot *slot = fu_calloc(n_names + 1, sizeof *slot);
    void **data = fu_calloc(n_names + 1, sizeof *data);
    if (!failed && (!slot || !data)) failed = ENOMEM;
    for (size_t i = 0; i < n_names && !failed; i++) {
        size_t bytes;
        rt_entry entry;
        if (rt_dir_read(&d, names[i], RT_ENTRY_MAX_BYTES, &data[n], &bytes, NULL)) continue;
        if (rt_entry_decode(data[n], bytes, &entry) || strcmp(entry.head->build_id, rt_build_id()) != 0) {
            fu_free(data[n]);
            data[n] = NULL;
            continue;
        }
        memcpy(slot[n].key, entry.head->key, IR_KEY_BYTES);
        slot[n++].bytes = bytes;
    }
    /* Names are hex digits of the keys, so name order is key order. */
    if (!failed) {
        static const char zeros[ALIGN];
        bundle_header h = {.format = RT_BUNDLE_FORMAT, .slot_bytes = sizeof *slot, .n = n};
        memcpy(h.magic, RT_BUNDLE_MAGIC, 8);
        const void **parts = fu_calloc(2 * n + 4, sizeof *parts);
        size_t *part_bytes = fu_calloc(2 * n + 4, sizeof *part_bytes);
        rt_dir here = {.fd = AT_FDCWD};
        if (!parts || !part_bytes) failed = ENOMEM;
        else {
            uint64_t end = sizeof h + n * sizeof *slot, at = align_up(end);
            int k = 0;
            parts[k] = &h, part_bytes[k++] = sizeof h;
            parts[k] = slot, part_bytes[k++] = n * sizeof *slot;
            parts[k] = zeros, part_bytes[k++] = (size_t)(at - end);
            for (size_t i = 0; i < n; i++) {
                slot[i].at = at;
                parts[k] = data[i], part_bytes[k++] = (size_t)slot[i].bytes;
                parts[k] = zeros, part_bytes[k++] = (size_t)(align_up(slot[i].bytes) - slot[i].bytes);
                at += align_up(slot[i].bytes);
            }
            failed = rt_dir_write(&here, bundle, parts, part_bytes, k);
        }
        fu_free(parts);
        fu_free(part_bytes);
    }
    for (size_t i = 0; i < n && data; i++) fu_free(data[i]);
    fu_free(data);
    fu_free(slot);
    fu_free(names);
    rt_dir_close(&d);
    if (failed)
        return FU_FAIL(e, failed == ENOMEM ? FUSOR_ERROR_MEMORY : FUSOR_ERROR_IO, "bundle %s: %s", bundle,
                       strerror(failed));
    if (n_out) *n_out = (int64_t)n;
    return FUSOR_OK;
}

fusor_status rt_cache_import(fu_error *e, const char *bundle, const char *dir, int64_t *n_out) {
    char why[256];
    rt_bundle b;
    rt_dir d;
    const char *problem = rt_bundle_open(bundle, &b);
    if (problem) return FU_FAIL(e, FUSOR_ERROR_IO, "bundle %s: %s", bundle, problem);
    if (rt_dir_open(dir, true, &d, why, sizeof why)) {
        rt_bundle_close(&b);
        return FU_FAIL(e, FUSOR_ERROR_IO, "cache directory %s: %s", dir, why);
    }
    int64_t n = 0;
    int failed = 0;
    for (uint64_t i = 0; i < b.n && !failed; i++) {
        size_t bytes;
        rt_entry entry;
        const void *data = rt_bundle_at(&b, i, &bytes);
        if (!data || rt_entry_decode(data, bytes, &entry) || strcmp(entry.head->build_id, rt_build_id()) != 0) continue;
        char name[2 * IR_KEY_BYTES + 1 + RT_ENTRY_SUFFIX_BYTES];
        rt_key_text(entry.head->key, name);
        strcat(name, RT_ENTRY_SUFFIX);
        failed = rt_dir_write(&d, name, &data, &bytes, 1);
        n += !failed;
    }
    rt_dir_close(&d);
    rt_bundle_close(&b);
    if (failed) return FU_FAIL(e, FUSOR_ERROR_IO, "cache directory %s: %s", dir, strerror(failed));
    if (n_out) *n_out = n;
    return FUSOR_OK;
}
