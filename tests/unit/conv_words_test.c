/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Convolutions of bf16 by vdpbf16ps have the bits of targets without it, of all shapes (which elements follow one
 * another in K: src/ir/kernel.h) and values: products that underflow, subnormal elements, infinities, NaNs and
 * zeros of both signs. */
#include "../host_level.h"
#include "api_test.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* As the text has them. `sizes`: of what is named there, B, C, H and W. */
typedef struct conv {
    const char *x, *w, *attrs;
} conv;
enum { BATCH = 2, CHANNELS = 7, HEIGHT = 9, WIDTH = 21 };

/* By channel and, where sizes are named or many, by columns. Channels and places odd and even, of several K blocks;
 * groups, strides, dilations, pads; lines that go on; one axis and three; places of one. */
static const conv cases[] = {
    {"[2, 20, 7, 7]", "[40, 20, 3, 3]", "pads=[1, 1, 1, 1]"},
    {"[B, 64, 14, 14]", "[33, 64, 3, 3]", "pads=[1, 1, 1, 1]"},
    {"[1, 63, 9, 20]", "[16, 63, 3, 3]", "pads=[1, 0, 2, 1]"},
    {"[B, 5, 30, 31]", "[24, 5, 7, 7]", "pads=[3, 3, 3, 3], strides=[2, 2]"},
    {"[2, 3, 33, 30]", "[64, 3, 7, 7]", "pads=[3, 3, 3, 3], strides=[2, 2]"},
    {"[1, 66, 14, 14]", "[48, 33, 3, 3]", "pads=[1, 1, 1, 1], groups=2"},
    {"[B, 64, 10, 10]", "[70, 64, 1, 1]", "groups=1"},
    {"[1, 601, 6, 7]", "[33, 601, 1, 1]", "groups=1"},
    {"[2, 96, 14, 13]", "[64, 96, 1, 1]", "strides=[2, 2]"},
    {"[1, 24, 20, 20]", "[80, 24, 2, 2]", "strides=[2, 1], dilations=[2, 2]"},
    {"[1, 24, 20, 20]", "[48, 24, 3, 2]", "pads=[2, 1, 0, 1], dilations=[1, 2]"},
    {"[2, 9, 12, 17]", "[20, 9, 3, 5]", "pads=[1, 2, 1, 2], strides=[1, 2], dilations=[2, 1]"},
    {"[1, 9, 6, 5, 9]", "[32, 9, 3, 3, 3]", "pads=[1, 1, 1, 1, 1, 1]"},
    {"[1, 8, 6, 5, 9]", "[24, 8, 3, 1, 3]", "pads=[1, 0, 1, 1, 0, 1], strides=[2, 1, 1]"},
    {"[1, 7, 6, 5, 9]", "[18, 7, 2, 3, 1]", "groups=1"},
    {"[2, 48, 19]", "[40, 48, 5]", "strides=[2], pads=[1, 4]"},
    {"[2, 32, 40]", "[20, 32, 7]", "pads=[3, 3]"},
    {"[2, 300, 40]", "[33, 300, 3]", "pads=[2, 0]"},
    /* by columns: sizes that are named */
    {"[B, 20, H, W]", "[40, 20, 3, 3]", "pads=[1, 1, 1, 1]"},
    {"[B, 65, H, W]", "[13, 65, 3, 3]", "pads=[2, 0, 1, 1]"},
    {"[1, C, H, W]", "[12, C, 3, 3]", "pads=[1, 1, 1, 1]"},
    {"[B, 3, H, W]", "[44, 3, 3, 3]", "strides=[2, 2], pads=[1, 1, 1, 1]"},
    {"[B, 3, H, W]", "[80, 3, 3, 5]", "strides=[3, 4], pads=[1, 2, 1, 2]"},
    {"[B, 130, H, W]", "[16, 130, 1, 1]", "groups=1"},
    {"[1, 90, H, W]", "[20, 45, 1, 1]", "strides=[2, 3], groups=2"},
    {"[B, 10, H, W]", "[24, 10, 2, 3]", "dilations=[2, 3], pads=[1, 1, 1, 1]"},
    {"[B, 11, 4, H, W]", "[12, 11, 3, 3, 3]", "pads=[1, 1, 1, 1, 1, 1], dilations=[1, 2, 1]"},
    {"[1, 100, 40]", "[20, 100, 7]", "pads=[3, 3]"}, /* a word would lie in two K blocks: not by words */
    {"[B, 24, 50]", "[33, 24, 3]", "pads=[1, 1]"},
    {"[1, 1, H, W]", "[12, 1, 3, 3]", "groups=1"},
};
enum { CASES = sizeof cases / sizeof *cases };

static uint64_t state = 1;
static uint32_t random_bits(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

enum { ORDINARY, TINY, SUBNORMAL, INFINITE, ZEROS, VALUES };

/* An element of bf16. */
static uint16_t element(int values) {
    const uint16_t sign = (uint16_t)(random_bits() & 0x8000), fraction = (uint16_t)(random_bits() & 0x7f);
    const uint32_t one_in = random_bits() % 97;
    unsigned exponent = 120 + random_bits() % 8;
    if (values == TINY) exponent = 56 + random_bits() % 12;
    if (values == SUBNORMAL && one_in == 0) exponent = 0;
    if (values == INFINITE && one_in == 0) return sign | 0x7f80;
    if (values == INFINITE && one_in == 1) return sign | 0x7fc0;
    if (values == ZEROS && one_in % 2) return sign;
    return (uint16_t)(sign | exponent << 7 | fraction);
}

static int64_t read_shape(const char *text, int64_t shape[8], int64_t *count) {
    static const char names[] = "BCHW";
    static const int64_t sizes[] = {BATCH, CHANNELS, HEIGHT, WIDTH};
    int64_t rank = 0;
    *count = 1;
    for (const char *at = text + 1; *at && *at != ']'; at += strcspn(at, ",]"), at += strspn(at, ", ")) {
        const char *name = strchr(names, *at);
        shape[rank] = name ? sizes[name - names] : strtol(at, NULL, 10);
        *count *= shape[rank++];
    }
    return rank;
}

static fusor_buffer buffer_of(void *data, fusor_dtype t, int64_t rank, const int64_t *shape) {
    fusor_buffer b = {.data = data, .dtype = t, .rank = (int)rank};
    for (int64_t d = 0; d < rank; d++) b.shape[d] = shape[d];
    return b;
}

static void *call(const conv *c, const char *target, int n_threads, bool is_const, bool is_wide, uint16_t *x,
                  uint16_t *w, size_t *bytes) {
    int64_t of_x[8], of_w[8], n;
    const int64_t rank = read_shape(c->x, of_x, &n);
    read_shape(c->w, of_w, &n);
    char text[400];
    const char *any = rank == 3 ? "[?, ?, ?]" : rank == 4 ? "[?, ?, ?, ?]" : "[?, ?, ?, ?, ?]";
    snprintf(text, sizeof text,
             "func @f(%%x: bf16%s, %s%%w: bf16%s) -> %s%s { %%c = conv(%%x, %%w, %s%s) %%y = %s "
             "return %%y }",
             c->x, is_const ? "const " : "", c->w, is_wide ? "f32" : "bf16", any, c->attrs,
             is_wide ? ", dtype=f32" : "", is_wide ? "neg(%c)" : "relu(%c)");
    fusor_context *ctx = new_context_for(target, n_threads);
    fusor_executable *exe = NULL;
    fusor_buffer in[2] = {buffer_of(x, FUSOR_BF16, rank, of_x), buffer_of(w, FUSOR_BF16, rank, of_w)};
    OK(fusor_compile_text(ctx, text, NULL, &exe));
    fusor_buffer out = {0};
    OK(fusor_executable_call(exe, 2, in, 1, &out));
    *bytes = is_wide ? 4 : 2;
    for (int d = 0; d < out.rank; d++) *bytes *= (size_t)out.shape[d];
    void *y = malloc(*bytes);
    memcpy(y, out.data, *bytes);
    fusor_buffer_free(ctx, &out);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
    return y;
}

static bool is_nan(uint32_t bits, bool is_wide) {
    return is_wide ? (bits & 0x7fffffff) > 0x7f800000 : (bits & 0x7fff) > 0x7f80;
}

static void equal_bits(const void *a, const void *b, size_t bytes, bool is_wide, const char *where) {
    for (size_t i = 0; i < bytes / (is_wide ? 4 : 2); i++) {
        const uint32_t x = is_wide ? ((const uint32_t *)a)[i] : ((const uint16_t *)a)[i],
                       y = is_wide ? ((const uint32_t *)b)[i] : ((const uint16_t *)b)[i];
        cr_assert(x == y || (is_nan(x, is_wide) && is_nan(y, is_wide)), "%s: element %zu is %x, not %x", where, i, x,
                  y);
    }
}

static const char *const plain = "x86-64-v4", *const with_words = "x86-64-v4+bf16";
static bool is_here(void) { return host_has_level(IR_LEVEL_V4) && __builtin_cpu_supports("avx512bf16"); }

Test(conv_words, bits_are_those_without_the_instruction, .timeout = 600) {
    if (!is_here()) cr_skip_test("no AVX512-BF16 here");
    for (int i = 0; i < CASES; i++) {
        int64_t shape[8], of_x, of_w;
        read_shape(cases[i].x, shape, &of_x);
        read_shape(cases[i].w, shape, &of_w);
        uint16_t *x = malloc((size_t)of_x * 2), *w = malloc((size_t)of_w * 2);
        for (int values = 0; values < VALUES; values++) {
            const bool is_const = (i + values) % 3 != 0, is_wide = (i + values) % 2;
            for (int64_t k = 0; k < of_x; k++) x[k] = element(values);
            for (int64_t k = 0; k < of_w; k++) w[k] = element(values == ZEROS ? ORDINARY : values);
            char where[200];
            snprintf(where, sizeof where, "conv of %s and %s, %s, values %d", cases[i].x, cases[i].w, cases[i].attrs,
                     values);
            size_t bytes, again;
            void *want = call(&cases[i], plain, 1, is_const, is_wide, x, w, &bytes),
                 *got = call(&cases[i], with_words, 1 + (i + values) % 3, is_const, is_wide, x, w, &again);
            cr_assert_eq(bytes, again);
            equal_bits(got, want, bytes, is_wide, where);
            free(want);
            free(got);
        }
        free(x);
        free(w);
    }
}
