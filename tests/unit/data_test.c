/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* data_test.c: .npy, .npz and .safetensors files made here, whole, cut off and damaged; writing; fills. */
#include "rt/data.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

static fu_error error;
static char dir[] = "/tmp/fusor-data-XXXXXX";

static void start(void) {
    fu_error_clear(&error);
    cr_assert_not_null(mkdtemp(dir));
}
static void stop(void) {
    char command[100];
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    if (system(command)) cr_log_warn("%s stays", dir);
}
TestSuite(data, .init = start, .fini = stop);

typedef struct bytes {
    uint8_t at[8192];
    size_t n;
} bytes;
static void add(bytes *b, const void *p, size_t n) {
    cr_assert_leq(n, sizeof b->at - b->n);
    if (n) memcpy(b->at + b->n, p, n);
    b->n += n;
}
static void add_int(bytes *b, uint64_t v, int n) { add(b, &v, (size_t)n); } /* little-endian */

/* Room for four names at once. */
static const char *path_of(const char *name) {
    static char path[4][200];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}
static const char *save(const char *name, const bytes *b) {
    const char *path = path_of(name);
    cr_assert_eq(fu_file_write_atomic(path, 0600, &(fu_part){b->at, b->n}, 1), 0);
    return path;
}

static bytes npy(int major, const char *header, const void *data, size_t n) {
    bytes b = {.n = 0};
    char padded[256];
    int length = snprintf(padded, sizeof padded, "%s", header);
    while ((length + (major > 1 ? 12 : 10)) % 64 != 63) padded[length++] = ' ';
    padded[length++] = '\n';
    add(&b, "\x93NUMPY", 6);
    add_int(&b, (uint64_t)major, 2);
    add_int(&b, (uint64_t)length, major > 1 ? 4 : 2);
    add(&b, padded, (size_t)length);
    add(&b, data, n);
    return b;
}
#define NPY(major, header, ...) npy(major, header, (__VA_ARGS__), sizeof(__VA_ARGS__))
#define F4(order, shape)        "{'descr': '<f4', 'fortran_order': " order ", 'shape': " shape ", }"
static const float six[6] = {0, 1, 2, 3, 4, 5};

static rt_data read_ok(const char *source, ir_dtype wanted) {
    rt_data d = {0};
    cr_assert_eq(rt_data_read(&error, source, wanted, &d), FUSOR_OK, "%s", error.text);
    return d;
}
static void read_fails(const char *source, ir_dtype wanted, fusor_status status, const char *word) {
    rt_data d = {.memory = &d};
    fu_error_clear(&error);
    fusor_status got = rt_data_read(&error, source, wanted, &d);
    cr_expect_eq(got, status, "%s: status %d; expected %d: %s", source, (int)got, (int)status, error.text);
    cr_expect_not_null(strstr(error.text, word), "no '%s' in: %s", word, error.text);
    cr_expect_not_null(strstr(error.text, strrchr(source, '/')), "no file in: %s", error.text);
    cr_expect_eq(d.memory, &d);
    fu_error_clear(&error);
}

Test(data, npy_in_every_layout) {
    static const float column_major[6] = {0, 3, 1, 4, 2, 5};
    uint8_t big[24];
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 4; k++) big[4 * i + k] = ((const uint8_t *)&six[i])[3 - k];
    const bytes files[] = {
        NPY(1, F4("False", "(2, 3)"), six),
        NPY(2, F4("False", "(2, 3)"), six),
        NPY(3, F4("False", "(2, 3)"), six),
        NPY(1, F4("True", "(2, 3)"), column_major),
        NPY(1, F4("False", "(2L, 3L)"), six),
        NPY(1, "{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\">f4\"}", big),
        NPY(1, "{ 'shape' : (2,3,) , 'fortran_order' : False , 'descr' : '=f4' }", six),
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        rt_data d = read_ok(save("x.npy", &files[i]), FUSOR_F32);
        cr_expect_eq(d.buffer.rank, 2);
        cr_expect_eq(d.buffer.shape[0], 2);
        cr_expect_eq(d.buffer.shape[1], 3);
        cr_expect_eq(memcmp(d.buffer.data, six, sizeof six), 0, "file %zu", i);
        cr_expect_eq(d.map.base != NULL, i != 3 && i != 5, "file %zu", i);
        ((float *)d.buffer.data)[0] = 9; /* private: not into the file */
        rt_data_free(&d);
        rt_data_free(&d);
        d = read_ok(path_of("x.npy"), 0);
        cr_expect_eq(((float *)d.buffer.data)[0], 0);
        rt_data_free(&d);
    }
}

Test(data, npy_of_every_type) {
    for (ir_dtype t = 1; t < IR_DTYPE_COUNT; t++) {
        uint8_t data[16] = {1, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0};
        fusor_buffer b = {.data = data, .dtype = t, .rank = 1, .shape = {2}};
        const char *path = path_of("t.npy");
        cr_assert_eq(rt_data_write_npy(&error, path, &b), FUSOR_OK, "%s", error.text);
        rt_data d = read_ok(path, t);
        cr_expect_eq(memcmp(d.buffer.data, data, 2u * ir_dtypes[t].bytes), 0, "%s", ir_dtypes[t].name);
        rt_data_free(&d);
        d = read_ok(path, 0);
        cr_expect_eq(d.buffer.dtype, t);
        rt_data_free(&d);
    }
    bytes u2 = NPY(1, "{'descr': '<u2', 'fortran_order': False, 'shape': (1,)}", (uint16_t[]){0x3f80});
    rt_data d = read_ok(save("u.npy", &u2), FUSOR_BF16);
    cr_expect_eq(d.buffer.dtype, FUSOR_BF16);
    rt_data_free(&d);
    bytes v2 = NPY(1, "{'descr': '|V2', 'fortran_order': False, 'shape': ()}", (uint16_t[]){0x3f80});
    d = read_ok(save("v.npy", &v2), FUSOR_BF16);
    cr_expect_eq(d.buffer.rank, 0);
    rt_data_free(&d);
    bytes truth = NPY(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (4,)}", (uint8_t[]){0, 1, 2, 255});
    d = read_ok(save("b.npy", &truth), FUSOR_BOOL);
    cr_expect_eq(memcmp(d.buffer.data, "\0\1\1\1", 4), 0);
    rt_data_free(&d);
    bytes none = npy(1, F4("False", "(3, 0)"), NULL, 0);
    d = read_ok(save("e.npy", &none), FUSOR_F32);
    cr_expect_eq(d.buffer.shape[0], 3);
    rt_data_free(&d);
}

Test(data, malformed_npy) {
    struct {
        const char *header;
        fusor_status status;
        const char *word;
    } const cases[] = {
        {F4("False", "(2, 4)"), FUSOR_ERROR_SYNTAX, "cut off"},
        {F4("False", "(4611686018427387904, 4)"), FUSOR_ERROR_SYNTAX, "64 bits"},
        {F4("False", "(1000000000000,)"), FUSOR_ERROR_SYNTAX, "4000000000000"},
        {F4("False", "(99999999999999999999,)"), FUSOR_ERROR_SYNTAX, "2^63"},
        {F4("False", "(-1,)"), FUSOR_ERROR_SYNTAX, "'-'"},
        {F4("False", "(1,1,1,1,1,1,1,1,1)"), FUSOR_ERROR_SYNTAX, "8 dimensions"},
        {F4("Maybe", "(2,)"), FUSOR_ERROR_SYNTAX, "True or False"},
        {F4("False", "2"), FUSOR_ERROR_SYNTAX, "'('"},
        {F4("False", "(2 3)"), FUSOR_ERROR_SYNTAX, "',' or ')'"},
        {"{'descr': '<f4', 'shape': (2,)}", FUSOR_ERROR_SYNTAX, "fortran_order"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (2,)}", FUSOR_ERROR_SYNTAX, "second"},
        {"{'what': 1}", FUSOR_ERROR_SYNTAX, "what"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (2,)}", FUSOR_ERROR_TYPE, "<c8"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", FUSOR_ERROR_TYPE, "structured"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}", FUSOR_ERROR_TYPE, "f64"},
        {"{'descr': '<f4", FUSOR_ERROR_SYNTAX, "shorter"},
        {"[]", FUSOR_ERROR_SYNTAX, "'{'"},
        {F4("False", "(2,)") " x", FUSOR_ERROR_SYNTAX, "'x'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bytes b = npy(1, cases[i].header, six, sizeof six);
        read_fails(save("m.npy", &b), FUSOR_F32, cases[i].status, cases[i].word);
    }
    read_fails(path_of("absent.npy"), 0, FUSOR_ERROR_IO, strerror(ENOENT));
    read_fails(save("empty.npy", &(bytes){.n = 0}), 0, FUSOR_ERROR_SYNTAX, "empty");
    bytes long_header = {.n = 0};
    add(&long_header, "\x93NUMPY\2\0\xff\xff\xff\x7f", 12);
    read_fails(save("long.npy", &long_header), 0, FUSOR_ERROR_SYNTAX, "header");
    bytes version = NPY(4, F4("False", "(2, 3)"), six);
    read_fails(save("version.npy", &version), 0, FUSOR_ERROR_SYNTAX, "4.0");
}

/* ---- archives ---- */
typedef struct member {
    const char *name;
    bytes data;
    bool is_deflated, has_descriptor, is_zip64;
} member;

static bytes zip(const member *m, int n) {
    bytes b = {.n = 0}, directory = {.n = 0};
    for (int i = 0; i < n; i++) {
        static uint8_t packed[16384];
        size_t packed_n = m[i].data.n, offset = b.n, name_n = strlen(m[i].name);
        uint64_t crc = crc32(0, m[i].data.at, (uInt)m[i].data.n);
        memcpy(packed, m[i].data.at, packed_n);
        if (m[i].is_deflated) {
            z_stream s = {0};
            cr_assert_eq(deflateInit2(&s, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
            s.next_in = (Bytef *)m[i].data.at;
            s.avail_in = (uInt)m[i].data.n;
            s.next_out = packed;
            s.avail_out = sizeof packed;
            cr_assert_eq(deflate(&s, Z_FINISH), Z_STREAM_END);
            packed_n = s.total_out;
            deflateEnd(&s);
        }
        uint64_t flags = m[i].has_descriptor ? 8 : 0, method = m[i].is_deflated ? 8 : 0;
        add(&b, "PK\3\4", 4);
        add_int(&b, 20, 2), add_int(&b, flags, 2), add_int(&b, method, 2), add_int(&b, 0, 4);
        add_int(&b, flags ? 0 : crc, 4), add_int(&b, flags ? 0 : packed_n, 4), add_int(&b, flags ? 0 : m[i].data.n, 4);
        add_int(&b, name_n, 2), add_int(&b, 0, 2);
        add(&b, m[i].name, name_n);
        add(&b, packed, packed_n);
        if (flags) add(&b, "PK\7\10", 4), add_int(&b, crc, 4), add_int(&b, packed_n, 4), add_int(&b, m[i].data.n, 4);

        add(&directory, "PK\1\2", 4);
        add_int(&directory, 45, 2), add_int(&directory, 20, 2), add_int(&directory, flags, 2),
            add_int(&directory, method, 2);
        add_int(&directory, 0, 4), add_int(&directory, crc, 4);
        uint64_t big = m[i].is_zip64 ? UINT32_MAX : 0;
        add_int(&directory, big ? big : packed_n, 4), add_int(&directory, big ? big : m[i].data.n, 4);
        add_int(&directory, name_n, 2), add_int(&directory, big ? 28 : 0, 2);
        add_int(&directory, 0, 2 + 2 + 2), add_int(&directory, 0, 4), add_int(&directory, big ? big : offset, 4);
        add(&directory, m[i].name, name_n);
        if (big) {
            add_int(&directory, 1, 2), add_int(&directory, 24, 2);
            add_int(&directory, m[i].data.n, 8), add_int(&directory, packed_n, 8), add_int(&directory, offset, 8);
        }
    }
    size_t start_of_directory = b.n;
    add(&b, directory.at, directory.n);
    if (n && m[0].is_zip64) {
        size_t end64 = b.n;
        add(&b, "PK\6\6", 4), add_int(&b, 44, 8), add_int(&b, 45, 2), add_int(&b, 45, 2), add_int(&b, 0, 8);
        add_int(&b, (uint64_t)n, 8), add_int(&b, (uint64_t)n, 8), add_int(&b, directory.n, 8),
            add_int(&b, start_of_directory, 8);
        add(&b, "PK\6\7", 4), add_int(&b, 0, 4), add_int(&b, end64, 8), add_int(&b, 1, 4);
        start_of_directory = directory.n = UINT32_MAX;
    }
    add(&b, "PK\5\6", 4), add_int(&b, 0, 4), add_int(&b, (uint64_t)n, 2), add_int(&b, (uint64_t)n, 2);
    add_int(&b, directory.n, 4), add_int(&b, start_of_directory, 4), add_int(&b, 0, 2);
    return b;
}

static bool count_name(void *user, const char *name) {
    (void)name;
    return ++*(int *)user < 2;
}

Test(data, npz) {
    bytes x = NPY(1, F4("False", "(6,)"), six);
    for (int kind = 0; kind < 8; kind++) {
        member m[2] = {{"w1.npy", x, kind & 1, kind & 2, kind & 4}, {"b.1.npy", x, false, kind & 2, kind & 4}};
        bytes z = zip(m, 2);
        const char *path = save("m.npz", &z);
        static const char *const names[] = {"w1", "w1.npy", "b.1"};
        for (int i = 0; i < 3; i++) {
            char source[300];
            snprintf(source, sizeof source, "%s:%s", path, names[i]);
            rt_data d = read_ok(source, FUSOR_F32);
            cr_expect_eq(memcmp(d.buffer.data, six, sizeof six), 0, "kind %d", kind);
            cr_expect_eq((uintptr_t)d.buffer.data % 4, 0);
            rt_data_free(&d);
        }
        char source[300];
        snprintf(source, sizeof source, "%s:w2", path);
        read_fails(source, 0, FUSOR_ERROR_ARGUMENT, "w1, b.1");
        read_fails(path, 0, FUSOR_ERROR_ARGUMENT, "2 arrays");
        int n = 0;
        cr_expect_eq(rt_data_names(&error, path, count_name, &n), FUSOR_OK);
        cr_expect_eq(n, 2);
        z = zip(m, 1);
        rt_data d = read_ok(save("one.npz", &z), 0);
        rt_data_free(&d);
    }
    bytes z = zip(NULL, 0);
    read_fails(save("none.npz", &z), 0, FUSOR_ERROR_ARGUMENT, "no array");
    read_fails(save("no.npz", &x), 0, FUSOR_ERROR_SYNTAX, "end-of-directory");
}

Test(data, deflated_members_must_be_what_they_say) {
    member m = {"w.npy", NPY(1, F4("False", "(6,)"), six), true, false, false};
    bytes good = zip(&m, 1), b = good;
    size_t record = good.n - 22 - 46 - 5;
    cr_assert_eq(memcmp(b.at + record, "PK\1\2", 4), 0);
    b.at[record + 16] ^= 1;
    read_fails(save("crc.npz", &b), 0, FUSOR_ERROR_SYNTAX, "checksum");
    b = good;
    b.at[record + 24]++;
    read_fails(save("long.npz", &b), 0, FUSOR_ERROR_SYNTAX, "length");
    b = good;
    b.at[record + 24]--;
    read_fails(save("short.npz", &b), 0, FUSOR_ERROR_SYNTAX, "length");
    b = good;
    memset(b.at + record + 24, 0xee, 4); /* 4 GB from a few bytes: refused before allocating */
    read_fails(save("bomb.npz", &b), 0, FUSOR_ERROR_SYNTAX, "1032");
    b = good;
    b.at[record + 10] = 12;
    read_fails(save("bzip.npz", &b), 0, FUSOR_ERROR_TYPE, "12");
    b = good;
    b.at[record + 8] |= 1;
    read_fails(save("secret.npz", &b), 0, FUSOR_ERROR_TYPE, "encrypted");
    b = good;
    b.at[30 + 5] ^= 0xff;
    read_fails(save("damaged.npz", &b), 0, FUSOR_ERROR_SYNTAX, "malformed .npz");
}

Test(data, stored_members_are_checked_too) {
    member m = {"w.npy", NPY(1, F4("False", "(6,)"), six), false, false, false};
    bytes b = zip(&m, 1);
    const size_t record = b.n - 22 - 46 - 5;
    cr_assert_eq(memcmp(b.at + record, "PK\1\2", 4), 0);
    b.at[record - 1] ^= 1; /* the last element */
    read_fails(save("stored.npz", &b), 0, FUSOR_ERROR_SYNTAX, "checksum");
}

static bytes safetensors(const char *json, const void *data, size_t n) {
    bytes b = {.n = 0};
    add_int(&b, strlen(json), 8);
    add(&b, json, strlen(json));
    add(&b, data, n);
    return b;
}

Test(data, safetensors) {
    const char *json =
        "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"b.c:d\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]},"
        "\"e\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[26,26]}}  ";
    uint8_t data[26] = {0};
    memcpy(data, six, 24);
    data[25] = 0x3f;
    bytes b = safetensors(json, data, sizeof data);
    char source[300];
    const char *path = save("m.safetensors", &b);
    snprintf(source, sizeof source, "%s:a", path);
    rt_data d = read_ok(source, FUSOR_F32);
    cr_expect_eq(memcmp(d.buffer.data, six, sizeof six), 0);
    rt_data_free(&d);
    snprintf(source, sizeof source, "%s:b.c:d", path);
    d = read_ok(source, FUSOR_BF16);
    cr_expect_eq(*(uint16_t *)d.buffer.data, 0x3f00);
    rt_data_free(&d);
    snprintf(source, sizeof source, "%s:e", path);
    d = read_ok(source, 0);
    rt_data_free(&d);
    snprintf(source, sizeof source, "%s:x", path);
    read_fails(source, 0, FUSOR_ERROR_ARGUMENT, "a, b.c:d, e");

    struct {
        const char *tensor;
        fusor_status status;
        const char *word;
    } const cases[] = {
        {"{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,20]}", FUSOR_ERROR_SYNTAX, "span"},
        {"{\"dtype\":\"F32\",\"shape\":[7],\"data_offsets\":[0,28]}", FUSOR_ERROR_SYNTAX, "outside"},
        {"{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[-24,0]}", FUSOR_ERROR_SYNTAX, "outside"},
        {"{\"dtype\":\"F32\",\"shape\":[-6],\"data_offsets\":[0,24]}", FUSOR_ERROR_SYNTAX, "sizes"},
        {"{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,24]}", FUSOR_ERROR_SYNTAX,
         "64 bits"},
        {"{\"dtype\":\"F32\",\"shape\":[6.0],\"data_offsets\":[0,24]}", FUSOR_ERROR_SYNTAX, "sizes"},
        {"{\"dtype\":\"F8_E4M3\",\"shape\":[24],\"data_offsets\":[0,24]}", FUSOR_ERROR_TYPE, "F8_E4M3"},
        {"{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,6],\"data_offsets\":[0,24]}", FUSOR_ERROR_SYNTAX,
         "8 dimensions"},
        {"{\"dtype\":\"F32\"}", FUSOR_ERROR_SYNTAX, "shape"},
        {"[1, 2]", FUSOR_ERROR_SYNTAX, "dtype"},
        {"{", FUSOR_ERROR_SYNTAX, "line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        snprintf(text, sizeof text, "{\"a\":%s}", cases[i].tensor);
        b = safetensors(text, six, sizeof six);
        read_fails(save("bad.safetensors", &b), 0, cases[i].status, cases[i].word);
    }
    b.at[7] = 0x7f;
    read_fails(save("huge.safetensors", &b), 0, FUSOR_ERROR_SYNTAX, "header");
}

/* Every file cut off at every length, and with every byte changed in three ways: an error or a tensor, never a crash.
 */
Test(data, damage) {
    member m[2] = {{"w1.npy", NPY(1, F4("False", "(6,)"), six), true, false, false},
                   {"b.npy", NPY(2, F4("True", "(2, 3)"), six), false, true, false}};
    bytes z64 = zip((member[]){{"b.npy", m[1].data, true, true, true}}, 1);
    const char *json = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}";
    bytes files[] = {m[0].data, m[1].data, zip(m, 2), z64, safetensors(json, six, sizeof six)};
    static const char *const source[] = {"d.npy", "d.npy", "d.npz:w1", "d.npz:b", "d.safetensors:a"};
    static const char *const name[] = {"d.npy", "d.npy", "d.npz", "d.npz", "d.safetensors"};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
        for (size_t i = 0; i < files[f].n; i++)
            for (int way = 0; way < 4; way++) {
                static const uint8_t change[] = {0, 1, 0x80, 0xff};
                bytes b = files[f];
                if (way) b.at[i] ^= change[way];
                else b.n = i;
                save(name[f], &b);
                rt_data d = {0};
                fu_error_clear(&error);
                fusor_status s = rt_data_read(&error, path_of(source[f]), FUSOR_F32, &d);
                cr_assert_eq(s == FUSOR_OK, error.status == FUSOR_OK);
                if (s == FUSOR_OK) {
                    size_t n = 1;
                    volatile float sum = 0;
                    for (int k = 0; k < d.buffer.rank; k++) n *= (size_t)d.buffer.shape[k];
                    for (size_t k = 0; k < n; k++) sum += ((float *)d.buffer.data)[k];
                }
                rt_data_free(&d);
            }
}

Test(data, out_of_memory) {
    member m = {"w.npy", NPY(1, F4("True", "(2, 3)"), six), true, false, false};
    bytes z = zip(&m, 1);
    const char *path = save("m.npz", &z);
    fusor_status s = FUSOR_ERROR_MEMORY;
    for (long n = 1; s != FUSOR_OK && n < 20; n++) {
        rt_data d = {0};
        fu_error_clear(&error);
        fu_malloc_fail_at(n);
        s = rt_data_read(&error, path, 0, &d);
        fu_malloc_fail_at(0);
        cr_assert(s == FUSOR_OK || s == FUSOR_ERROR_MEMORY, "%s", error.text);
        rt_data_free(&d);
    }
    cr_assert_eq(s, FUSOR_OK);
}

Test(data, writing) {
    fusor_buffer b = {
        .data = (void *)six, .dtype = FUSOR_F32, .rank = 2, .shape = {3, 2}, .stride = {1, 3}, .flags = FUSOR_STRIDED};
    const char *path = path_of("o.npy");
    cr_assert_eq(rt_data_write_npy(&error, path, &b), FUSOR_OK, "%s", error.text);
    rt_data d = read_ok(path, FUSOR_F32);
    static const float want[] = {0, 3, 1, 4, 2, 5};
    cr_expect_eq(d.buffer.shape[0], 3);
    cr_expect_eq(memcmp(d.buffer.data, want, sizeof want), 0);
    cr_expect_eq((uintptr_t)d.buffer.data % 64, 0);
    rt_data_free(&d);
    b.stride[0] = -1;
    b.data = (void *)(six + 2);
    cr_assert_eq(rt_data_write_npy(&error, path, &b), FUSOR_OK);
    d = read_ok(path, FUSOR_F32);
    cr_expect_eq(((float *)d.buffer.data)[0], 2);
    rt_data_free(&d);
    fusor_buffer none = {.dtype = FUSOR_F32, .rank = 2, .shape = {0, INT64_MAX}};
    cr_expect_eq(rt_data_write_npy(&error, path, &none), FUSOR_OK, "%s", error.text);
    cr_expect_eq(rt_data_write_npy(&error, "/dev/null", &b), FUSOR_OK);
    struct stat st;
    cr_expect(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
    cr_expect_eq(rt_data_write_npy(&error, path_of("no/such/dir.npy"), &b), FUSOR_ERROR_IO);
    cr_expect_not_null(strstr(error.text, "dir.npy"));
    fu_error_clear(&error);
    b.dtype = 99;
    cr_expect_eq(rt_data_write_npy(&error, path, &b), FUSOR_ERROR_ARGUMENT);
}

/* ---- fills ---- */
static void fill(const char *spec, ir_dtype t, int64_t n, void *data) {
    fusor_buffer b = {.data = data, .dtype = t, .rank = 1, .shape = {n}};
    cr_assert_eq(rt_data_fill(&error, spec, &b), FUSOR_OK, "%s", error.text);
}
static void fill_fails(const char *spec, ir_dtype t) {
    uint64_t data[1];
    fusor_buffer b = {.data = data, .dtype = t, .rank = 1, .shape = {1}};
    fu_error_clear(&error);
    cr_expect_neq(rt_data_fill(&error, spec, &b), FUSOR_OK, "%s", spec);
    cr_expect_not_null(strstr(error.text, spec));
}

Test(data, fills) {
    float f[9];
    double d[5];
    int8_t c[9];
    uint64_t u[2];
    uint16_t h[4];
    /* Philox4x32-10 of Random123's known answers: key 0, counter 0 gives 6627e8d5 e169c58d bc57ac4c 9b00dbd8. */
    fill("uniform:0", FUSOR_F32, 9, f);
    cr_expect_eq(f[0], (float)(0x6627e8d5 >> 8) * 0x1p-24f);
    cr_expect_eq(f[1], (float)(0xe169c58d >> 8) * 0x1p-24f);
    cr_expect_eq(f[3], (float)(0x9b00dbd8 >> 8) * 0x1p-24f);
    fill("uniform:0", FUSOR_F64, 5, d);
    cr_expect_eq(d[0], ((0x6627e8d5 >> 5) * 0x1p26 + (0xe169c58d >> 6)) * 0x1p-53);
    fill("normal:0", FUSOR_F32, 9, f);
    double v = (0x6627e8d5 >> 8) * 0x1p-24, w = (0xe169c58d >> 8) * 0x1p-24;
    cr_expect_float_eq(f[0], sqrt(-2 * log(1 - v)) * cos(2 * M_PI * w), 1e-6);
    cr_expect_float_eq(f[1], sqrt(-2 * log(1 - v)) * sin(2 * M_PI * w), 1e-6);
    fill("uniform:7", FUSOR_I8, 9, c);
    for (int i = 0; i < 9; i++) cr_expect(c[i] >= 0 && c[i] <= 99);
    fill("arange", FUSOR_F32, 9, f);
    cr_expect_eq(f[8], 8);
    fill("-1.5", FUSOR_F16, 4, h);
    cr_expect_eq(h[3], 0xbe00);
    fill("18446744073709551615", FUSOR_U64, 2, u);
    cr_expect_eq(u[1], UINT64_MAX);
    fill("-9223372036854775808", FUSOR_I64, 2, u);
    cr_expect_eq(u[1], (uint64_t)1 << 63);
    fill("ones", FUSOR_BF16, 4, h);
    cr_expect_eq(h[0], 0x3f80);
    fill("-0", FUSOR_F32, 1, f);
    cr_expect(signbit(f[0]));
    fill("inf", FUSOR_F32, 1, f);
    cr_expect(isinf(f[0]));
    fill("true", FUSOR_BOOL, 9, c);
    cr_expect_eq(c[8], 1);
    fill_fails("1.5", FUSOR_I32);
    fill_fails("300", FUSOR_U8);
    fill_fails("-1", FUSOR_U8);
    fill_fails("128", FUSOR_I8);
    fill_fails("1e40", FUSOR_F32);
    fill_fails("1", FUSOR_BOOL);
    fill_fails("true", FUSOR_F32);
    fill_fails("uniform:", FUSOR_F32);
    fill_fails("normal:-1", FUSOR_F32);
    cr_expect(rt_data_is_fill("uniform:3") && rt_data_is_fill("-.5e3") && rt_data_is_fill("0x1p3") &&
              rt_data_is_fill("ones"));
    cr_expect(!rt_data_is_fill("x.npy") && !rt_data_is_fill("3.npy") && !rt_data_is_fill("-") && !rt_data_is_fill("") &&
              !rt_data_is_fill("./zeros") && !rt_data_is_fill("1.5x"));
}

/* "-": one .npy through a pipe. */
Test(data, standard_streams) {
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        fusor_buffer b = {.data = (void *)six, .dtype = FUSOR_F32, .rank = 1, .shape = {6}};
        _exit(rt_data_write_npy(&error, "-", &b) != FUSOR_OK);
    }
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    rt_data d = read_ok("-", FUSOR_F32);
    cr_expect_eq(memcmp(d.buffer.data, six, sizeof six), 0);
    rt_data_free(&d);
    int status;
    waitpid(child, &status, 0);
    cr_expect_eq(status, 0);
}
