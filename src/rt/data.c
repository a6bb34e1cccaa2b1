/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tensors from and to files: opening sources, the .npy format both ways. A file is mapped privately; where its layout
 * is ours (C order, native byte order, aligned) the tensor stays in the mapping, else it is copied once into row-major
 * order. */
#include "base/small.h"
#include "rt/data_parts.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALIGNMENT = 64, NPY_MAX_HEADER = 1 << 20 };
static const char npy_magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

static fusor_status fail_errno(fu_error *e, const char *label, const char *verb, int code) {
    return FU_FAIL(e, code == ENOMEM ? FUSOR_ERROR_MEMORY : FUSOR_ERROR_IO, "%s: cannot %s: %s", label, verb,
                   strerror(code));
}

static fusor_status bytes_open(fu_error *e, const char *label, const char *path, rt_bytes *out) {
    rt_bytes b = {0};
    int code = strcmp(path, "-") == 0 ? ESPIPE : fu_file_map_private(path, &b.map);
    if (code == ESPIPE || code == ENODEV || code == EACCES || code == ENOSYS) {
        /* stdin, a pipe, or a file system without mappings */
        int why = fu_file_read(path, SIZE_MAX / 4, &b.memory, &b.n);
        if (why) return fail_errno(e, label, "read", why);
        b.at = b.memory;
    } else if (code) {
        return fail_errno(e, label, "read", code);
    } else {
        b.at = b.map.data;
        b.n = b.map.bytes;
    }
    *out = b;
    return FUSOR_OK;
}

static void bytes_close(rt_bytes *b) {
    fu_file_unmap(&b->map);
    fu_free(b->memory);
    *b = (rt_bytes){0};
}

bool rt_shape_bytes(ir_dtype t, int rank, const int64_t *shape, size_t *bytes_out) {
    int64_t bytes = ir_dtypes[t].bytes;
    bool is_empty = false, overflow = false;
    for (int d = 0; d < rank; d++) {
        if (shape[d] < 0) return false;
        is_empty |= shape[d] == 0;
        overflow |= __builtin_mul_overflow(bytes, shape[d], &bytes);
    }
    *bytes_out = is_empty ? 0 : (size_t)bytes;
    return is_empty || !overflow;
}

/* ---- .npy headers: a Python dict literal of three known keys ---- */
typedef struct cursor {
    fu_error *e;
    const char *label, *begin, *at, *end;
} cursor;

static fusor_status fail_header(const cursor *c, const char *expected) {
    char found[16] = "the end";
    if (c->at < c->end) {
        unsigned char ch = (unsigned char)*c->at;
        if (ch > ' ' && ch < 127) snprintf(found, sizeof found, "'%c'", ch);
        else snprintf(found, sizeof found, "byte 0x%02x", ch);
    }
    return FU_FAIL(c->e, FUSOR_ERROR_SYNTAX, "%s: header of the .npy, character %zu: %s; expected %s", c->label,
                   (size_t)(c->at - c->begin) + 1, found, expected);
}

static void skip_space(cursor *c) {
    while (c->at < c->end && strchr(" \t\r\n", *c->at) && *c->at) c->at++;
}

static bool accept(cursor *c, const char *token) {
    size_t n = strlen(token);
    skip_space(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, token, n) != 0) return false;
    c->at += n;
    return true;
}

static fusor_status read_string(cursor *c, const char *what, char *out, size_t cap) {
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return fail_header(c, what);
    char quote = *c->at++;
    size_t n = 0;
    while (c->at < c->end && *c->at != quote) {
        if (n + 1 >= cap) return fail_header(c, "a shorter word");
        out[n++] = *c->at++;
    }
    if (c->at == c->end) return fail_header(c, "a closing quote");
    c->at++;
    out[n] = 0;
    return FUSOR_OK;
}

static fusor_status read_shape(cursor *c, rt_array *a) {
    if (!accept(c, "(")) return fail_header(c, "'(' of the shape");
    a->rank = 0;
    while (!accept(c, ")")) {
        int64_t v = 0;
        skip_space(c);
        if (c->at == c->end || *c->at < '0' || *c->at > '9') return fail_header(c, "a size or ')'");
        if (a->rank == FUSOR_MAX_RANK) return fail_header(c, "')': at most 8 dimensions");
        for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
            if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *c->at - '0', &v))
                return fail_header(c, "a size below 2^63");
        if (c->at < c->end && *c->at == 'L') c->at++; /* written by Python 2 */
        a->shape[a->rank++] = v;
        if (accept(c, ",")) continue;
        if (!accept(c, ")")) return fail_header(c, "',' or ')'");
        break;
    }
    return FUSOR_OK;
}

/* "<f4" and so on. */
static fusor_status set_descr(const cursor *c, const char *descr, ir_dtype wanted, rt_array *a) {
    static const struct {
        char kind[4];
        ir_dtype t;
    } kinds[] = {
        {"f8", FUSOR_F64}, {"f4", FUSOR_F32}, {"f2", FUSOR_F16}, {"V2", FUSOR_BF16}, {"i8", FUSOR_I64},
        {"i4", FUSOR_I32}, {"i2", FUSOR_I16}, {"i1", FUSOR_I8},  {"u1", FUSOR_U8},   {"b1", FUSOR_BOOL},
        {"u2", FUSOR_U16}, {"u4", FUSOR_U32}, {"u8", FUSOR_U64}, {"?", FUSOR_BOOL},
    };
    const char *kind = descr;
    bool is_big = *descr == '>';
    if (*descr && strchr("<>|=", *descr)) kind++;
    a->dtype = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].kind, kind) == 0) a->dtype = kinds[i].t;
    if (!a->dtype)
        return FU_FAIL(c->e, FUSOR_ERROR_TYPE,
                       "%s: element type '%s'; expected one of f8 f4 f2 i8 i4 i2 i1 u8 u4 u2 u1 b1, or V2 for bf16",
                       c->label, descr);
    if (a->dtype == FUSOR_U16 && wanted == FUSOR_BF16) a->dtype = FUSOR_BF16;
    a->is_swapped = is_big && ir_dtypes[a->dtype].bytes > 1;
    return FUSOR_OK;
}

fusor_status rt_npy_decode(fu_error *e, const char *label, uint8_t *at, size_t n, ir_dtype wanted, rt_array *out) {
    if (n < 10 || memcmp(at, npy_magic, sizeof npy_magic) != 0)
        return FU_FAIL(e, FUSOR_ERROR_SYNTAX, "%s: not a .npy file: %s; expected \\x93NUMPY, a version and a header",
                       label,
                       n == 0   ? "it is empty"
                       : n < 10 ? "it is shorter than 10 bytes"
                                : "other first bytes");
    unsigned major = at[6], minor = at[7];
    if (major < 1 || major > 3)
        return FU_FAIL(e, FUSOR_ERROR_SYNTAX, "%s: .npy format version %u.%u; expected 1.0, 2.0 or 3.0", label, major,
                       minor);
    size_t length = at[8] | (size_t)at[9] << 8, begin = 10;
    if (major > 1) {
        if (n < 12) return FU_FAIL(e, FUSOR_ERROR_SYNTAX, "%s: the .npy header is cut off", label);
        length |= (size_t)at[10] << 16 | (size_t)at[11] << 24;
        begin = 12;
    }
    if (length > n - begin || length > NPY_MAX_HEADER)
        return FU_FAIL(e, FUSOR_ERROR_SYNTAX, "%s: a .npy header of %zu bytes in a file of %zu; expected at most %zu",
                       label, length, n, n - begin < NPY_MAX_HEADER ? n - begin : (size_t)NPY_MAX_HEADER);

    const char *text = (const char *)at + begin;
    cursor c = {e, label, text, text, text + length};
    rt_array a = {0};
    unsigned seen = 0;
    if (!accept(&c, "{")) return fail_header(&c, "'{'");
    while (!accept(&c, "}")) {
        char key[32], descr[32];
        unsigned bit = 0;
        FU_TRY(read_string(&c, "a quoted key", key, sizeof key));
        if (!accept(&c, ":")) return fail_header(&c, "':'");
        if (strcmp(key, "descr") == 0) {
            bit = 1;
            if (accept(&c, "["))
                return FU_FAIL(e, FUSOR_ERROR_TYPE, "%s: a structured element type; expected plain numbers", label);
            FU_TRY(read_string(&c, "a quoted element type", descr, sizeof descr));
            FU_TRY(set_descr(&c, descr, wanted, &a));
        } else if (strcmp(key, "fortran_order") == 0) {
            bit = 2;
            a.is_fortran = accept(&c, "True");
            if (!a.is_fortran && !accept(&c, "False")) return fail_header(&c, "True or False");
        } else if (strcmp(key, "shape") == 0) {
            bit = 4;
            FU_TRY(read_shape(&c, &a));
        }
        if (!bit || seen & bit)
            return FU_FAIL(e, FUSOR_ERROR_SYNTAX,
                           "%s: header of the .npy: %s key '%s'; expected descr, fortran_order and shape", label,
                           bit ? "a second" : "an unknown", key);
        seen |= bit;
        if (accept(&c, ",")) continue;
        if (!accept(&c, "}")) return fail_header(&c, "',' or '}'");
        break;
    }
    if (seen != 7)
        return FU_FAIL(e, FUSOR_ERROR_SYNTAX,
                       "%s: header of the .npy without %s; expected descr, fortran_order and shape", label,
                       !(seen & 1)   ? "descr"
                       : !(seen & 2) ? "fortran_order"
                                     : "shape");
    skip_space(&c);
    if (c.at != c.end) return fail_header(&c, "the end of the header");
    if (!rt_shape_bytes(a.dtype, a.rank, a.shape, &a.bytes))
        return FU_FAIL(e, FUSOR_ERROR_SYNTAX, "%s: a shape of more bytes than 64 bits can count", label);
    if (a.bytes > n - begin - length)
        return FU_FAIL(e, FUSOR_ERROR_SYNTAX, "%s: cut off: %zu bytes of data; its shape and type expect %zu", label,
                       n - begin - length, a.bytes);
    a.data = at + begin + length;
    *out = a;
    return FUSOR_OK;
}

/* ---- copying into row-major order ---- */
/* stride: of each dim, in bytes. */
static void gather(uint8_t *dst, const uint8_t *src, size_t each, int rank, const int64_t *dim, const int64_t *stride,
                   bool is_swapped) {
    int64_t at[FUSOR_MAX_RANK] = {0}, inner = rank ? dim[rank - 1] : 1, step = rank ? stride[rank - 1] : 0;
    for (;;) {
        if (step == (int64_t)each && !is_swapped) {
            memcpy(dst, src, (size_t)inner * each);
            dst += (size_t)inner * each;
        } else {
            for (int64_t i = 0; i < inner; i++, dst += each) {
                const uint8_t *from = src + i * step;
                if (is_swapped)
                    for (size_t b = 0; b < each; b++) dst[b] = from[each - 1 - b];
                else memcpy(dst, from, each);
            }
        }
        int d = rank - 2;
        for (; d >= 0; d--) {
            src += stride[d];
            if (++at[d] < dim[d]) break;
            src -= stride[d] * dim[d];
            at[d] = 0;
        }
        if (d < 0) return;
    }
}

static void *alloc_aligned(size_t bytes, void **memory_out) {
    char *p = bytes > SIZE_MAX - ALIGNMENT ? NULL : fu_malloc(bytes + ALIGNMENT);
    *memory_out = p;
    return p ? p + (ALIGNMENT - (uintptr_t)p % ALIGNMENT) % ALIGNMENT : NULL;
}

/* Makes the tensor of an array that lies in `bytes`, whose ownership moves to *out or ends. */
static fusor_status settle(fu_error *e, const char *label, const rt_array *a, ir_dtype wanted, rt_bytes *bytes,
                           rt_data *out) {
    if (wanted && a->dtype != wanted)
        return FU_FAIL(e, FUSOR_ERROR_TYPE,
                       "%s: its elements are %s; expected %s. Convert the file "
                       "(numpy.save(path, array.astype(...))), or declare the parameter %s and cast it to %s",
                       label, ir_dtypes[a->dtype].name, ir_dtypes[wanted].name, ir_dtypes[a->dtype].name,
                       ir_dtypes[wanted].name);
    rt_data d = {0};
    size_t each = ir_dtypes[a->dtype].bytes;
    d.buffer.dtype = a->dtype;
    d.buffer.rank = a->rank;
    for (int i = 0; i < a->rank; i++) d.buffer.shape[i] = a->shape[i];
    int n_long = 0; /* dims that matter for the order */
    for (int i = 0; i < a->rank; i++) n_long += a->shape[i] != 1;
    if (a->bytes && (a->is_swapped || (a->is_fortran && n_long > 1) || (uintptr_t)a->data % each ||
                     !(bytes->map.base || bytes->memory))) {
        int64_t stride[FUSOR_MAX_RANK], s = (int64_t)each;
        for (int k = 0; k < a->rank; k++) {
            int i = a->is_fortran ? k : a->rank - 1 - k;
            stride[i] = s;
            s *= a->shape[i];
        }
        d.buffer.data = alloc_aligned(a->bytes, &d.memory);
        if (!d.buffer.data) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "%s: no memory for its %zu bytes", label, a->bytes);
        gather(d.buffer.data, a->data, each, a->rank, a->shape, stride, a->is_swapped);
    } else if (a->bytes) {
        d.buffer.data = a->data;
        d.map = bytes->map;
        d.memory = bytes->memory;
        *bytes = (rt_bytes){0};
    }
    if (a->dtype == FUSOR_BOOL) { /* kernels rely on 0 and 1; this writes to the private copy only */
        uint8_t *p = d.buffer.data;
        for (size_t i = 0; i < a->bytes; i++)
            if (p[i] > 1) p[i] = 1;
    }
    *out = d;
    return FUSOR_OK;
}

/* ---- sources ---- */
typedef enum format { NPY, NPZ, SAFETENSORS } format;

/* Splits "path.npz:name"; *name_out is NULL where there is none. The path is fu_malloc'ed. */
static char *split_source(const char *source, format *format_out, const char **name_out) {
    static const char *const suffix[] = {[NPZ] = ".npz", [SAFETENSORS] = ".safetensors"};
    size_t length = strlen(source);
    *format_out = NPY;
    *name_out = NULL;
    for (int f = NPZ; f <= SAFETENSORS && *format_out == NPY; f++)
        for (const char *p = source; (p = strstr(p, suffix[f])) != NULL; p++) {
            const char *after = p + strlen(suffix[f]);
            if (*after != ':' && *after != 0) continue;
            *format_out = (format)f;
            *name_out = *after ? after + 1 : NULL;
            length = (size_t)(after - source);
            break;
        }
    char *path = fu_malloc(length + 1);
    if (!path) return NULL;
    memcpy(path, source, length);
    path[length] = 0;
    return path;
}

/* Opens the file of a source; an archive is known by its suffix, a .npz also by its first bytes. */
static fusor_status open_source(fu_error *e, const char *source, rt_bytes *file, format *format_out,
                                const char **name_out) {
    char *path = split_source(source, format_out, name_out);
    if (!path) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "%s: no memory for its path", source);
    fusor_status status = bytes_open(e, source, path, file);
    fu_free(path);
    if (status == FUSOR_OK && *format_out == NPY && file->n >= 4 && memcmp(file->at, "PK\3\4", 4) == 0)
        *format_out = NPZ;
    return status;
}

fusor_status rt_data_read(fu_error *e, const char *source, ir_dtype wanted, rt_data *out) {
    rt_bytes file, member = {0};
    rt_array a;
    format f;
    const char *name;
    FU_TRY(open_source(e, source, &file, &f, &name));
    fusor_status status;
    if (f == SAFETENSORS) {
        status = rt_safetensors_find(e, source, &file, name, &a);
        if (status == FUSOR_OK) status = settle(e, source, &a, wanted, &file, out);
    } else if (f == NPZ) {
        status = rt_npz_find(e, source, &file, name, &member);
        if (status == FUSOR_OK) status = rt_npy_decode(e, source, member.at, member.n, wanted, &a);
        if (status == FUSOR_OK) status = settle(e, source, &a, wanted, member.memory ? &member : &file, out);
    } else {
        status = rt_npy_decode(e, source, file.at, file.n, wanted, &a);
        if (status == FUSOR_OK) status = settle(e, source, &a, wanted, &file, out);
    }
    bytes_close(&member);
    bytes_close(&file);
    return status;
}

void rt_data_free(rt_data *d) {
    fu_file_unmap(&d->map);
    fu_free(d->memory);
    *d = (rt_data){0};
}

fusor_status rt_data_names(fu_error *e, const char *path, bool (*each)(void *user, const char *name), void *user) {
    rt_bytes file;
    format f;
    const char *name;
    char *stem = split_source(path, &f, &name); /* members are asked for by FILE:NAME */
    if (stem && f == NPY)
        return fu_free(stem), FU_FAIL(e, FUSOR_ERROR_ARGUMENT,
                                      "%s: no archive by its name; expected a .npz or .safetensors file", path);
    fu_free(stem);
    FU_TRY(open_source(e, path, &file, &f, &name));
    const fusor_status status =
        f == NPZ ? rt_npz_names(e, path, &file, each, user) : rt_safetensors_names(e, path, &file, each, user);
    bytes_close(&file);
    return status;
}

/* ---- writing ---- */
fusor_status rt_data_write_npy(fu_error *e, const char *path, const fusor_buffer *b) {
    static const char *const descr[IR_DTYPE_COUNT] = {
        [FUSOR_F64] = "<f8", [FUSOR_F32] = "<f4", [FUSOR_F16] = "<f2", [FUSOR_BF16] = "<V2", [FUSOR_I64] = "<i8",
        [FUSOR_I32] = "<i4", [FUSOR_I16] = "<i2", [FUSOR_I8] = "|i1",  [FUSOR_U8] = "|u1",   [FUSOR_BOOL] = "|b1",
        [FUSOR_U16] = "<u2", [FUSOR_U32] = "<u4", [FUSOR_U64] = "<u8",
    };
    size_t bytes;
    if (b->dtype < 1 || b->dtype >= IR_DTYPE_COUNT || b->rank < 0 || b->rank > FUSOR_MAX_RANK || b->device != 0 ||
        !rt_shape_bytes((ir_dtype)b->dtype, b->rank, b->shape, &bytes) || (bytes && !b->data))
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s: cannot be written: the buffer is no tensor on the CPU", path);
    size_t each = ir_dtypes[b->dtype].bytes;

    char header[512];
    int n = snprintf(header, sizeof header, "%.6s%c%c%c%c{'descr': '%s', 'fortran_order': False, 'shape': (", npy_magic,
                     1, 1, 1, 1, descr[b->dtype]);
    for (int d = 0; d < b->rank; d++)
        n += snprintf(header + n, sizeof header - (size_t)n,
                      d + 1 < b->rank ? "%lld, "
                      : b->rank == 1  ? "%lld,"
                                      : "%lld",
                      (long long)b->shape[d]);
    n += snprintf(header + n, sizeof header - (size_t)n, "), }");
    while ((n + 1) % ALIGNMENT) header[n++] = ' ';
    header[n++] = '\n';
    header[7] = 0; /* version 1.0, then the length of what follows: no zero could pass snprintf */
    header[8] = (char)((n - 10) & 0xff);
    header[9] = (char)((n - 10) >> 8);

    fu_part parts[2] = {{header, (size_t)n}, {b->data, bytes}};
    void *packed = NULL;
    if (b->flags & FUSOR_STRIDED && bytes) {
        int64_t stride[FUSOR_MAX_RANK];
        for (int d = 0; d < b->rank; d++) stride[d] = b->stride[d] * (int64_t)each;
        packed = fu_malloc(bytes);
        if (!packed) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "%s: no memory for its %zu bytes", path, bytes);
        gather(packed, b->data, each, b->rank, b->shape, stride, false);
        parts[1].data = packed;
    }
    int code;
    if (strcmp(path, "-") == 0) {
        fflush(stdout); /* what the program printed comes first */
        code = fu_write_parts(STDOUT_FILENO, parts, 2);
    } else code = fu_file_write(path, parts, 2);
    fu_free(packed);
    return code ? fail_errno(e, path, "write", code) : FUSOR_OK;
}
