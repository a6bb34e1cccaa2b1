/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TESTS_JIT_RUN_H
#define TESTS_JIT_RUN_H
/* Compiles kernel descriptions and runs them in buffers between guard pages: shared by the tests of src/jit. */
#include "../host_level.h"
#include "ir/codegen_api.h"
#include "ir/kernel.h"
#include "ir/scalar.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

const fusor_codegen_table *fusor_codegen_module(void);

typedef struct run_kernel {
    ir_kernel_fn fn;
    void *map;
    size_t map_bytes;
} run_kernel;

/* The last kernels that were compiled: most cases run one with many sizes. */
enum { RUN_KEPT = 64 };
typedef struct run_kept {
    char *text;
    run_kernel kernel;
} run_kept;

static inline void *run_allocate(void *user, size_t bytes) {
    (void)user;
    return malloc(bytes);
}

static inline fusor_codegen_request run_request(const char *text, fusor_codegen_stage stage) {
    return (fusor_codegen_request){.version = FUSOR_CODEGEN_VERSION,
                                   .stage = stage,
                                   .description = text,
                                   .description_bytes = strlen(text),
                                   .symbol = "fk_test",
                                   .allocate = run_allocate};
}

/* The text of a stage; malloc'ed. */
static inline char *run_stage(const char *text, fusor_codegen_stage stage, size_t *bytes_out, char *error) {
    fusor_codegen_request q = run_request(text, stage);
    fusor_codegen_result r;
    int status = fusor_codegen_module()->generate(&q, &r);
    if (error) snprintf(error, sizeof r.error, "%s", r.error);
    if (status != FUSOR_OK) return NULL;
    if (bytes_out) *bytes_out = r.bytes;
    return r.data;
}

/* The kernel stays until RUN_KEPT others have been compiled. */
static inline run_kernel run_compile(const char *text) {
    static run_kept kept[RUN_KEPT];
    static int next;
    for (int i = 0; i < RUN_KEPT; i++)
        if (kept[i].text && strcmp(kept[i].text, text) == 0) return kept[i].kernel;
    fusor_codegen_request q = run_request(text, FUSOR_CODEGEN_BLOB);
    fusor_codegen_result r;
    int status = fusor_codegen_module()->generate(&q, &r);
    cr_assert(status == FUSOR_OK, "%s\n%s", r.error, text);
    run_kernel k = {.map_bytes = (r.bytes + 4095) & ~(size_t)4095};
    k.map = mmap(NULL, k.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(k.map != MAP_FAILED);
    memcpy(k.map, r.data, r.bytes);
    cr_assert(mprotect(k.map, k.map_bytes, PROT_READ | PROT_EXEC) == 0);
    void *entry = (char *)k.map + r.entry;
    memcpy(&k.fn, &entry, sizeof k.fn);
    free(r.data);
    run_kept *place = &kept[next++ % RUN_KEPT];
    if (place->text) munmap(place->kernel.map, place->kernel.map_bytes);
    free(place->text);
    *place = (run_kept){strdup(text), k};
    return k;
}

/* `bytes` bytes that end (at_end) or begin at a page nobody may touch. */
typedef struct run_buffer {
    char *data, *map;
    size_t map_bytes;
} run_buffer;
static inline run_buffer run_guarded(size_t bytes, bool at_end) {
    size_t inner = (bytes + 4095) & ~(size_t)4095;
    run_buffer b = {.map_bytes = inner + 8192};
    b.map = mmap(NULL, b.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(b.map != MAP_FAILED);
    if (inner) cr_assert(mprotect(b.map + 4096, inner, PROT_READ | PROT_WRITE) == 0);
    b.data = at_end ? b.map + 4096 + inner - bytes : b.map + 4096;
    return b;
}
static inline void run_free(run_buffer *b) { munmap(b->map, b->map_bytes); }

/* Seeded: splitmix64. */
static inline uint64_t run_random(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline ir_bits run_get(ir_dtype t, const void *base, int64_t i) {
    uint64_t v = 0;
    memcpy(&v, (const char *)base + i * ir_dtypes[t].bytes, ir_dtypes[t].bytes);
    return v;
}
static inline void run_put(ir_dtype t, void *base, int64_t i, ir_bits v) {
    memcpy((char *)base + i * ir_dtypes[t].bytes, &v, ir_dtypes[t].bytes);
}

/* Values that break things, by type; then random bits. */
static inline ir_bits run_value(ir_dtype t, uint64_t *state) {
    static const double special[] = {0,
                                     -0.0,
                                     1,
                                     -1,
                                     0.5,
                                     -0.5,
                                     1.5,
                                     2.5,
                                     -2.5,
                                     3,
                                     6,
                                     7,
                                     127,
                                     128,
                                     -128,
                                     -129,
                                     255,
                                     256,
                                     32767,
                                     32768,
                                     -32768,
                                     65535,
                                     65536,
                                     2147483647.,
                                     2147483648.,
                                     -2147483648.,
                                     -2147483649.,
                                     4294967295.,
                                     4294967296.,
                                     0x1p63,
                                     -0x1p63,
                                     0x1p64,
                                     0x1.fffffffffffffp62,
                                     0x1p-149,
                                     0x1p-126,
                                     0x1.fffffep127,
                                     0x1p-1074,
                                     0x1p-1022,
                                     1e300,
                                     -1e-300,
                                     16777217.,
                                     0x1p53};
    uint64_t r = run_random(state), pick = run_random(state) % 8;
    int bits = 8 * ir_dtypes[t].bytes;
    if (ir_is_bool(t)) return r & 1 ? (r >> 8 & 255 ? r >> 8 & 255 : 1) : 0;
    if (ir_is_float(t)) {
        double d = special[r % (sizeof special / sizeof *special)];
        if (pick == 0) d = __builtin_inf();
        if (pick == 1) d = -__builtin_inf();
        if (pick == 2) d = __builtin_nan("");
        if (pick == 3) d = (double)(int64_t)(r >> 44) / 64 - 8192;
        if (pick >= 6) return r >> (64 - bits);
        float f = (float)d;
        uint64_t v = 0;
        if (t == FUSOR_F64) memcpy(&v, &d, 8);
        else if (t == FUSOR_F32) memcpy(&v, &f, 4);
        else v = t == FUSOR_F16 ? ir_f64_to_f16(d) : ir_f64_to_bf16(d);
        return v;
    }
    if (pick < 3) r = r % 140 - 70;
    if (pick == 3) r = UINT64_C(1) << (bits - 1);
    if (pick == 4) r = (UINT64_C(1) << (bits - 1)) - 1;
    return r << (64 - bits) >> (64 - bits);
}

static inline bool run_is_nan(ir_dtype t, ir_bits v) {
    if (t == FUSOR_F32) return (v & 0x7fffffff) > 0x7f800000;
    if (ir_is_half(t)) return (v & 0x7fff) > (t == FUSOR_F16 ? 0x7c00 : 0x7f80);
    return t == FUSOR_F64 && (v & INT64_MAX) > UINT64_C(0x7ff0000000000000);
}
/* Bits, but all NaNs are equal. */
static inline bool run_same(ir_dtype t, ir_bits a, ir_bits b) {
    return a == b || (run_is_nan(t, a) && run_is_nan(t, b));
}
#endif
