/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Arrays inside of archives: .npz (a ZIP file, stored or deflated members, ZIP64) and .safetensors. Both are read from
 * their directories only, and every offset is checked against the file before it is used. A ZIP member's checksum is
 * verified; stored members stay mapped. */
#include "base/small.h"
#include "rt/data_parts.h"
#include <jansson.h>
#include <string.h>
#include <zlib.h>

/* What a search over names found, for the message where it found nothing: the first names that there are. */
typedef struct listing {
    char text[200];
    size_t n, count;
    bool is_cut;
} listing;

static void list_name(listing *l, const char *name, size_t n) {
    static const char more[] = ", ...";
    size_t comma = l->n ? 2 : 0;
    l->count++;
    if (l->is_cut) return;
    l->is_cut = n + comma + sizeof more > sizeof l->text - l->n;
    if (l->is_cut) {
        memcpy(l->text + l->n, more + 2 - comma, sizeof more - 2 + comma);
        return;
    }
    memcpy(l->text + l->n, ", ", comma);
    l->n += comma;
    for (size_t i = 0; i < n; i++) l->text[l->n++] = name[i] < ' ' && name[i] >= 0 ? '?' : name[i];
    l->text[l->n] = 0;
}

static fusor_status fail_name(fu_error *e, const char *label, const char *name, const listing *l) {
    if (l->count == 0) return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s: the archive holds no array", label);
    if (!name)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s: the archive holds %zu arrays; expected %s:NAME, one of: %s", label,
                       l->count, label, l->text);
    return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s: no array '%s' in the archive; it has: %s", label, name, l->text);
}

/* ---- .npz ---- */
static uint32_t u16_at(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }
static uint32_t u32_at(const uint8_t *p) { return u16_at(p) | u16_at(p + 2) << 16; }
static uint64_t u64_at(const uint8_t *p) { return u32_at(p) | (uint64_t)u32_at(p + 4) << 32; }

typedef struct zip_dir {
    const uint8_t *at, *end;
} zip_dir;
typedef struct zip_entry {
    const char *name; /* name_n bytes, without ".npy" */
    size_t name_n;
    unsigned flags, method;
    uint32_t crc;
    uint64_t packed, bytes, offset;
} zip_entry;

static fusor_status fail_zip(fu_error *e, const char *label, const char *what) {
    return FU_FAIL(e, FUSOR_ERROR_SYNTAX, "%s: malformed .npz: %s", label, what);
}

static fusor_status zip_open(fu_error *e, const char *label, const rt_bytes *f, zip_dir *out) {
    enum { END = 22, LOCATOR = 20, END64 = 56, MAX_COMMENT = 65535 };
    if (f->n < END) return fail_zip(e, label, "too short for a ZIP file; expected 22 bytes or more");
    size_t first = f->n > END + MAX_COMMENT ? f->n - END - MAX_COMMENT : 0, i = f->n - END + 1;
    while (i-- > first)
        if (memcmp(f->at + i, "PK\5\6", 4) == 0 && u16_at(f->at + i + 20) <= f->n - END - i) break;
    if (i + 1 == first || i > f->n) return fail_zip(e, label, "no end-of-directory record (cut off?)");
    uint64_t bytes = u32_at(f->at + i + 12), offset = u32_at(f->at + i + 16), limit = i;
    if (i >= LOCATOR && memcmp(f->at + i - LOCATOR, "PK\6\7", 4) == 0) {
        uint64_t at = u64_at(f->at + i - LOCATOR + 8);
        if (i - LOCATOR < END64 || at > i - LOCATOR - END64 || memcmp(f->at + at, "PK\6\6", 4) != 0)
            return fail_zip(e, label, "the ZIP64 locator points to no end-of-directory record");
        bytes = u64_at(f->at + at + 40);
        offset = u64_at(f->at + at + 48);
        limit = at;
    }
    if (bytes > limit || offset > limit - bytes) return fail_zip(e, label, "the directory lies outside of the file");
    out->at = f->at + offset;
    out->end = out->at + bytes;
    return FUSOR_OK;
}

/* The next entry; *more_out is false at the end. */
static fusor_status zip_next(fu_error *e, const char *label, zip_dir *d, zip_entry *out, bool *more_out) {
    enum { RECORD = 46 };
    *more_out = false;
    if (d->at == d->end) return FUSOR_OK;
    size_t left = (size_t)(d->end - d->at);
    if (left < RECORD || memcmp(d->at, "PK\1\2", 4) != 0) return fail_zip(e, label, "a bad record in the directory");
    size_t name = u16_at(d->at + 28), extra = u16_at(d->at + 30), comment = u16_at(d->at + 32);
    if (left - RECORD < name + extra + comment) return fail_zip(e, label, "a record of the directory is cut off");
    zip_entry z = {
        .name = (const char *)d->at + RECORD,
        .name_n = name,
        .flags = u16_at(d->at + 8),
        .method = u16_at(d->at + 10),
        .crc = u32_at(d->at + 16),
        .packed = u32_at(d->at + 20),
        .bytes = u32_at(d->at + 24),
        .offset = u32_at(d->at + 42),
    };
    const uint8_t *x = d->at + RECORD + name, *x_end = x + extra;
    while (x_end - x >= 4) {
        size_t n = u16_at(x + 2);
        const uint8_t *field = x + 4;
        if ((size_t)(x_end - field) < n) break; /* padding that is no field */
        if (u16_at(x) == 1) {                   /* ZIP64: the values that did not fit, in this order */
            uint64_t *const big[] = {&z.bytes, &z.packed, &z.offset};
            for (int k = 0; k < 3; k++) {
                if (*big[k] != UINT32_MAX) continue;
                if (n < 8) return fail_zip(e, label, "a ZIP64 field is too short");
                *big[k] = u64_at(field);
                field += 8;
                n -= 8;
            }
            break;
        }
        x = field + n;
    }
    if (z.name_n > 4 && memcmp(z.name + z.name_n - 4, ".npy", 4) == 0) z.name_n -= 4;
    d->at += RECORD + name + extra + comment;
    *out = z;
    *more_out = true;
    return FUSOR_OK;
}

enum { CHUNK = 1 << 30 }; /* zlib counts in 32 bits */

static bool has_checksum(const uint8_t *at, uint64_t n, uint32_t want) {
    uLong crc = crc32(0, NULL, 0);
    for (uint64_t i = 0; i < n; i += CHUNK) crc = crc32(crc, at + i, (uInt)(n - i < CHUNK ? n - i : CHUNK));
    return crc == want;
}

static fusor_status inflate_member(fu_error *e, const char *label, uint8_t *from, const zip_entry *z, rt_bytes *out) {
    enum { MAX_RATIO = 1032 }; /* deflate: 258 bytes from 2 bits at the most */
    if (z->bytes / MAX_RATIO > z->packed + 1)
        return FU_FAIL(e, FUSOR_ERROR_SYNTAX,
                       "%s: malformed .npz: a member of %llu bytes says to hold %llu; expected less than "
                       "%d times as many",
                       label, (unsigned long long)z->packed, (unsigned long long)z->bytes, MAX_RATIO);
    uint8_t *to = z->bytes < SIZE_MAX ? fu_malloc((size_t)z->bytes + 1) : NULL;
    z_stream s = {0};
    if (!to || inflateInit2(&s, -MAX_WBITS) != Z_OK) {
        fu_free(to);
        return FU_FAIL(e, FUSOR_ERROR_MEMORY, "%s: no memory for its %llu bytes", label, (unsigned long long)z->bytes);
    }
    uint64_t in = 0, done = 0;    /* handed to zlib */
    uint64_t room = z->bytes + 1; /* one more: to see a member that is longer than it says */
    s.next_in = from;
    s.next_out = to;
    int code = Z_OK;
    while (code == Z_OK) {
        if (!s.avail_in && in < z->packed) {
            s.avail_in = (uInt)(z->packed - in < CHUNK ? z->packed - in : CHUNK);
            in += s.avail_in;
        }
        if (!s.avail_out && done < room) {
            s.avail_out = (uInt)(room - done < CHUNK ? room - done : CHUNK);
            done += s.avail_out;
        }
        code = inflate(&s, Z_NO_FLUSH);
    }
    done -= s.avail_out;
    inflateEnd(&s);
    if (code != Z_STREAM_END || done != z->bytes || !has_checksum(to, done, z->crc)) {
        fu_free(to);
        return FU_FAIL(e, FUSOR_ERROR_SYNTAX, "%s: malformed .npz: %s", label,
                       code != Z_STREAM_END && code != Z_BUF_ERROR ? "the compressed data is damaged"
                       : done != z->bytes || code != Z_STREAM_END  ? "a member's length is not what the directory says"
                                                                   : "a member's checksum is wrong");
    }
    out->at = out->memory = to;
    out->n = (size_t)done;
    return FUSOR_OK;
}

fusor_status rt_npz_find(fu_error *e, const char *label, const rt_bytes *zip, const char *name, rt_bytes *member_out) {
    zip_dir d;
    zip_entry z, found = {0};
    listing names = {0};
    bool more, is_found = false;
    size_t name_n = name ? strlen(name) : 0;
    if (name_n > 4 && strcmp(name + name_n - 4, ".npy") == 0) name_n -= 4;
    FU_TRY(zip_open(e, label, zip, &d));
    for (;;) {
        FU_TRY(zip_next(e, label, &d, &z, &more));
        if (!more) break;
        list_name(&names, z.name, z.name_n);
        if (name && (z.name_n != name_n || memcmp(z.name, name, name_n) != 0)) continue;
        found = z; /* of equal names the last counts, as in Python */
        is_found = true;
    }
    if (!is_found || (!name && names.count > 1)) return fail_name(e, label, name, &names);
    if (found.flags & 1) return FU_FAIL(e, FUSOR_ERROR_TYPE, "%s: the member is encrypted; expected plain data", label);
    if (found.method != 0 && found.method != 8)
        return FU_FAIL(e, FUSOR_ERROR_TYPE, "%s: compression method %u; expected 0 (stored) or 8 (deflated)", label,
                       found.method);
    enum { LOCAL = 30 };
    if (zip->n < LOCAL || found.offset > zip->n - LOCAL || memcmp(zip->at + found.offset, "PK\3\4", 4) != 0)
        return fail_zip(e, label, "the directory points to no member");
    size_t at = (size_t)found.offset + LOCAL, skip = u16_at(zip->at + at - 4) + u16_at(zip->at + at - 2);
    if (skip > zip->n - at || found.packed > zip->n - at - skip) return fail_zip(e, label, "a member is cut off");
    at += skip;
    if (found.method == 8) return inflate_member(e, label, zip->at + at, &found, member_out);
    if (found.packed != found.bytes) return fail_zip(e, label, "a stored member has two lengths");
    if (!has_checksum(zip->at + at, found.bytes, found.crc)) return fail_zip(e, label, "a member's checksum is wrong");
    *member_out = (rt_bytes){.at = zip->at + at, .n = (size_t)found.bytes};
    return FUSOR_OK;
}

fusor_status rt_npz_names(fu_error *e, const char *label, const rt_bytes *zip, bool (*each)(void *, const char *),
                          void *user) {
    zip_dir d;
    zip_entry z;
    bool more;
    char name[65536]; /* a ZIP name has at most 65535 bytes */
    FU_TRY(zip_open(e, label, zip, &d));
    for (;;) {
        FU_TRY(zip_next(e, label, &d, &z, &more));
        if (!more) return FUSOR_OK;
        memcpy(name, z.name, z.name_n);
        name[z.name_n] = 0;
        if (!each(user, name)) return FUSOR_OK;
    }
}

/* ---- .safetensors: a length, a JSON directory, the data ---- */
static fusor_status st_open(fu_error *e, const char *label, const rt_bytes *f, json_t **header_out, size_t *data_out) {
    enum { MAX_HEADER = 100000000 }; /* the limit of the format's own implementation */
    if (f->n < 8) return FU_FAIL(e, FUSOR_ERROR_SYNTAX, "%s: no .safetensors file: shorter than 8 bytes", label);
    uint64_t n = u64_at(f->at);
    if (n > f->n - 8 || n > MAX_HEADER)
        return FU_FAIL(e, FUSOR_ERROR_SYNTAX,
                       "%s: malformed .safetensors: a header of %llu bytes in a file of %zu; expected at "
                       "most %zu",
                       label, (unsigned long long)n, f->n, f->n - 8 < MAX_HEADER ? f->n - 8 : (size_t)MAX_HEADER);
    json_error_t why;
    json_t *h = json_loadb((const char *)f->at + 8, (size_t)n, JSON_REJECT_DUPLICATES, &why);
    if (!h)
        return FU_FAIL(e, FUSOR_ERROR_SYNTAX, "%s: malformed .safetensors: header, line %d, column %d: %s", label,
                       why.line, why.column, why.text);
    if (!json_is_object(h)) {
        json_decref(h);
        return FU_FAIL(e, FUSOR_ERROR_SYNTAX, "%s: malformed .safetensors: the header is no JSON object", label);
    }
    *header_out = h;
    *data_out = 8 + (size_t)n;
    return FUSOR_OK;
}

static fusor_status fail_tensor(fu_error *e, const char *label, const char *name, const char *what) {
    return FU_FAIL(e, FUSOR_ERROR_SYNTAX, "%s: malformed .safetensors: tensor '%s': %s", label, name, what);
}

static fusor_status st_decode(fu_error *e, const char *label, const rt_bytes *f, size_t data, const char *name,
                              json_t *tensor, rt_array *out) {
    static const struct {
        const char *name;
        ir_dtype t;
    } types[] = {
        {"F64", FUSOR_F64}, {"F32", FUSOR_F32}, {"F16", FUSOR_F16}, {"BF16", FUSOR_BF16}, {"I64", FUSOR_I64},
        {"I32", FUSOR_I32}, {"I16", FUSOR_I16}, {"I8", FUSOR_I8},   {"U8", FUSOR_U8},     {"BOOL", FUSOR_BOOL},
        {"U16", FUSOR_U16}, {"U32", FUSOR_U32}, {"U64", FUSOR_U64},
    };
    const char *type = json_string_value(json_object_get(tensor, "dtype"));
    json_t *shape = json_object_get(tensor, "shape"), *offsets = json_object_get(tensor, "data_offsets");
    rt_array a = {0};
    if (!type || !json_is_array(shape) || !json_is_array(offsets) || json_array_size(offsets) != 2)
        return fail_tensor(e, label, name, "expected dtype, shape and two data_offsets");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, type) == 0) a.dtype = types[i].t;
    if (!a.dtype)
        return FU_FAIL(e, FUSOR_ERROR_TYPE,
                       "%s: element type %.32s; expected one of F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 "
                       "BOOL",
                       label, type);
    if (json_array_size(shape) > FUSOR_MAX_RANK) return fail_tensor(e, label, name, "expected at most 8 dimensions");
    a.rank = (int)json_array_size(shape);
    for (int d = 0; d < a.rank; d++) {
        json_t *v = json_array_get(shape, (size_t)d);
        a.shape[d] = json_is_integer(v) ? json_integer_value(v) : -1;
    }
    if (!rt_shape_bytes(a.dtype, a.rank, a.shape, &a.bytes))
        return fail_tensor(e, label, name, "a shape that is not of sizes, or of more bytes than 64 bits can count");
    json_t *b = json_array_get(offsets, 0), *c = json_array_get(offsets, 1);
    int64_t from = json_is_integer(b) ? json_integer_value(b) : -1,
            to = json_is_integer(c) ? json_integer_value(c) : -1;
    if (from < 0 || to < from || (uint64_t)to > f->n - data)
        return fail_tensor(e, label, name, "data_offsets outside of the file");
    if ((uint64_t)(to - from) != a.bytes)
        return fail_tensor(e, label, name, "data_offsets that do not span what dtype and shape need");
    a.data = f->at + data + from;
    *out = a;
    return FUSOR_OK;
}

fusor_status rt_safetensors_find(fu_error *e, const char *label, const rt_bytes *file, const char *name,
                                 rt_array *out) {
    json_t *header, *tensor, *found = NULL;
    size_t data;
    listing names = {0};
    const char *key, *found_key = NULL;
    FU_TRY(st_open(e, label, file, &header, &data));
    json_object_foreach(header, key, tensor) {
        if (strcmp(key, "__metadata__") == 0) continue;
        list_name(&names, key, strlen(key));
        if (name && strcmp(key, name) != 0) continue;
        found = tensor;
        found_key = key;
    }
    fusor_status status = !found || (!name && names.count > 1) ? fail_name(e, label, name, &names)
                                                               : st_decode(e, label, file, data, found_key, found, out);
    json_decref(header);
    return status;
}

fusor_status rt_safetensors_names(fu_error *e, const char *label, const rt_bytes *file,
                                  bool (*each)(void *, const char *), void *user) {
    json_t *header, *tensor;
    size_t data;
    const char *key;
    FU_TRY(st_open(e, label, file, &header, &data));
    json_object_foreach(header, key, tensor) {
        if (strcmp(key, "__metadata__") == 0) continue;
        if (!each(user, key)) break;
    }
    json_decref(header);
    return FUSOR_OK;
}
