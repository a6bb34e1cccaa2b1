/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_entry.c: entries, between bytes and structs. Whatever the bytes are, decoding reads inside them only, and
 * nothing of an entry is used before all of it was checked. */
#include "rt/cache_entry.h"
#include "base/hash.h"

#define CHECKED_FROM (offsetof(rt_entry_header, checksum) + 16)

void rt_key_text(const uint8_t key[IR_KEY_BYTES], char text[2 * IR_KEY_BYTES + 1]) {
    static const char digit[] = "0123456789abcdef";
    for (int i = 0; i < IR_KEY_BYTES; i++) {
        text[2 * i] = digit[key[i] >> 4];
        text[2 * i + 1] = digit[key[i] & 15];
    }
    text[2 * IR_KEY_BYTES] = 0;
}

void rt_key_read(const char *text, uint8_t key[IR_KEY_BYTES]) {
    for (int i = 0; i < 2 * IR_KEY_BYTES; i++) {
        const int digit = text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10;
        key[i / 2] = (uint8_t)(i % 2 ? key[i / 2] << 4 | digit : digit);
    }
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
    uint64_t blob_at = rt_entry_align(sizeof *h + h->description_bytes + 1);
    if (blob_at > bytes || !h->blob_bytes || h->blob_bytes > bytes - blob_at ||
        h->lines_bytes != bytes - blob_at - h->blob_bytes)
        return "code length out of range";
    if (h->lines_bytes % sizeof(fusor_codegen_line)) return "line table length out of range";
    if (h->entry >= h->blob_bytes || h->code_bytes > h->blob_bytes) return "code offsets out of range";
    uint8_t sum[16];
    fu_hash128((const char *)data + CHECKED_FROM, bytes - CHECKED_FROM, sum);
    if (memcmp(sum, h->checksum, sizeof sum) != 0) return "checksum does not match";
    const char *description = (const char *)data + sizeof *h;
    if (description[h->description_bytes] != 0 || memchr(description, 0, (size_t)h->description_bytes))
        return "description is not text";
    out->description = description;
    out->blob = (const char *)data + blob_at;
    out->lines = h->lines_bytes ? (const char *)out->blob + h->blob_bytes : NULL;
    return NULL;
}

bool rt_entry_encode(rt_entry_header *head, const char *description, size_t description_bytes, const void *blob,
                     size_t blob_bytes, const void *lines, size_t lines_bytes, fu_part parts[RT_ENTRY_PARTS]) {
    static const char zeros[RT_ENTRY_ALIGN];
    uint64_t end = sizeof *head + description_bytes, blob_at = rt_entry_align(end + 1);
    if (description_bytes > RT_ENTRY_MAX_BYTES || blob_bytes > RT_ENTRY_MAX_BYTES || lines_bytes > RT_ENTRY_MAX_BYTES ||
        blob_at + blob_bytes + lines_bytes > RT_ENTRY_MAX_BYTES)
        return false;
    memcpy(head->magic, RT_ENTRY_MAGIC, 8);
    head->format = RT_ENTRY_FORMAT;
    head->header_bytes = sizeof *head;
    head->description_bytes = description_bytes;
    head->blob_bytes = blob_bytes;
    head->lines_bytes = lines_bytes;
    head->file_bytes = blob_at + blob_bytes + lines_bytes;
    parts[0] = (fu_part){head, sizeof *head};
    parts[1] = (fu_part){description, description_bytes};
    parts[2] = (fu_part){zeros, (size_t)(blob_at - end)};
    parts[3] = (fu_part){blob, blob_bytes};
    parts[4] = (fu_part){lines, lines_bytes};
    /* The checksum runs over the file as it will be; kernels are small enough to be put together for it. */
    size_t bytes = (size_t)head->file_bytes;
    char *whole = fu_malloc(bytes);
    if (!whole) return false;
    size_t at = 0;
    for (int i = 0; i < RT_ENTRY_PARTS; i++) {
        if (parts[i].bytes) memcpy(whole + at, parts[i].data, parts[i].bytes);
        at += parts[i].bytes;
    }
    fu_hash128(whole + CHECKED_FROM, bytes - CHECKED_FROM, head->checksum);
    fu_free(whole);
    return true;
}
