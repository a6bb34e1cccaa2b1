/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* amx_ops_test.c: the differential test of contractions (ops_test.c) whose kernels are made of tiles, with what becomes
 * of their results; the instructions are emulated where the machine has none. */
#include "amx_emulate.h"
#include "ir/target.h"
#include "rt/cpuinfo.h"
#include "rt/limits.h"
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAUNCH    NULL
#define N_TARGETS 2
/* All features; of f16, once more without products of those: they are cut into two bf16. */
static bool choose_target(int i, uint32_t levels, const char *text, ir_target *out) {
    (void)levels;
    if (rt_host_level() < IR_LEVEL_V4 || !amx_can_emulate()) return false;
    amx_emulate();
    rt_host_assume(amx_features());
    *out = (ir_target){IR_LEVEL_V4, rt_host_extras(IR_LEVEL_V4)};
    if (i == 0) return true;
    if (!(out->features & IR_FEATURE_AMXFP16) || !strstr(text, ": f16[")) return false;
    out->features &= ~IR_FEATURE_AMXFP16;
    return true;
}
static bool is_contraction(const char *text) {
    static const char *const ops[] = {"matmul(", "einsum(", "_cell(", "attention(", "conv("};
    for (int i = 0; i < 5; i++)
        if (strstr(text, ops[i])) return true;
    return false;
}
#define IS_FOR_US(size) is_contraction(text)
#define IS_TYPE_FOR_US(op, t)                                                                                          \
    ((ir_ops[op].kind == IR_KIND_CONTRACT || ir_ops[op].kind == IR_KIND_EINSUM || ir_ops[op].kind == IR_KIND_CELL ||   \
      ir_ops[op].kind == IR_KIND_ATTENTION || ir_ops[op].kind == IR_KIND_CONV) &&                                      \
     (ir_is_half(t) || ir_dtypes[t].bytes == 1))
#define N_FUSIONS(...) 2
#include "../diff/ops_test.c"

/* Edges of tiles and steps; operands as they lie and turned; what comes in front of a contraction and behind it. */
Test(tiles, shapes, .timeout = 600) {
    static const int64_t sides[] = {1, 15, 16, 17, 31, 32, 33, 64, 100},
                         depths[] = {1, 31, 32, 33, 64, 127, 1030, 2090};
    static const char *const forms[] = {
        "func @f(%a: T[A, B], %b: T[B, C]) -> T[A, C] { %r = matmul(%a, %b) return %r }",
        "func @f(%a: T[A, B], %b: T[C, B], %c: T[C]) -> T[A, C] { %r = matmul(%a, %b, transpose_b=true) "
        "%s = add(%r, %c) %t = relu(%s) return %t }",
        "func @f(%a: T[B, A], %b: T[B, C]) -> f32[A, C] { %r = matmul(%a, %b, transpose_a=true, dtype=f32) return %r }",
        "func @f(%a: T[A, B], %b: T[B, C], %c: f32[C]) -> (f32[A, C], f32[A, C]) { %x = relu(%a) "
        "%r = matmul(%x, %b, dtype=f32) %s = add(%r, %c) %t = gelu(%s) return %t, %r }",
        "func @f(%a: T[3, A, B], %b: T[3, B, C]) -> f32[3, A, C] { %r = matmul(%a, %b, dtype=f32) "
        "%s = softmax(%r, axis=-1) return %s }",
    };
    static const char *const integers[] = {
        "func @f(%a: S[A, B], %b: T[B, C]) -> i32[A, C] { %r = matmul(%a, %b) return %r }",
        "func @f(%a: S[A, B], %b: T[C, B], %c: i32[C]) -> i32[A, C] { %r = matmul(%a, %b, transpose_b=true) "
        "%s = add(%r, %c) %t = relu(%s) return %t }",
        "func @f(%a: S[B, A], %b: T[B, C]) -> f32[A, C] { %r = matmul(%a, %b, transpose_a=true) %s = cast(%r, f32) "
        "return %s }",
    };
    static const char *const pairs[][2] = {{"bf16", "bf16"}, {"f16", "f16"}, {"u8", "i8"}, {"i8", "u8"}, {"i8", "i8"}};
    ir_target target;
    if (!choose_target(0, 0, "", &target)) cr_skip_test("no AVX-512");
    if (!begin()) return;
    for (int pair = 0; pair < 5; pair++)
        for (int form = 0; form < (pair < 2 ? 5 : 3); form++) {
            char text[600];
            int n = 0;
            for (const char *p = pair < 2 ? forms[form] : integers[form]; *p; p++) {
                bool is_name = (*p == 'T' || *p == 'S') && p[1] == '[';
                if (is_name) n += snprintf(text + n, sizeof text - (size_t)n, "%s", pairs[pair][*p == 'T']);
                else text[n++] = *p;
            }
            text[n] = 0;
            for (int i = 0; i < 12; i++) {
                uint64_t r = mix((uint64_t)(pair * 100 + form * 20 + i));
                int64_t size[4] = {sides[r % 9], depths[r / 16 % 8], sides[r / 128 % 9], 1};
                check(text, (domain){-1, 1, SPECIAL_NONE, pair >= 2}, size, i % 4 ? one_thread : many_threads, i == 5,
                      ALL_LEVELS);
            }
        }
    rt_cache_close(cache);
}

/* f16 that are cut: whole numbers of 11 bits whose sums are exact; infinities, NaN, the largest and least numbers and
 * zeros, packed, turned and made by a program; of an element without such the bits are those of an operand without. */
Test(tiles, f16_in_parts, .timeout = 600) {
    static const char *const exact[] = {
        "func @f(%a: f16[A, B], %b: f16[B, C]) -> f32[A, C] { %u = mul(%a, 2047) %x = round(%u) %v = mul(%b, 3) "
        "%y = round(%v) %r = matmul(%x, %y, dtype=f32) return %r }",
        "func @f(%a: f16[B, A], %b: f16[C, B]) -> f32[A, C] { %u = mul(%a, 7) %x = round(%u) %v = mul(%b, 2047) "
        "%y = round(%v) %r = matmul(%x, %y, transpose_a=true, transpose_b=true, dtype=f32) return %r }",
        "func @f(%a: f16[A, B], %b: f16[B, C]) -> f32[A, C] { %u = mul(%a, 3) %v = round(%u) %x = mul(%v, "
        "5.9604645e-8) "
        "%y = sign(%b) %z = mul(%y, 65504) %r = matmul(%x, %z, dtype=f32) return %r }",
    };
    static const char *const special[] = {
        "func @f(%a: f16[A, B], %b: f16[B, C]) -> f32[A, C] { %r = matmul(%a, %b, dtype=f32) return %r }",
        "func @f(%a: f16[B, A], %b: f16[C, B]) -> f16[A, C] { %r = matmul(%a, %b, transpose_a=true, transpose_b=true) "
        "return %r }",
        "func @f(%a: f16[A, B], %b: f16[B, C]) -> (bool[A, C], bool[A, C]) { %c = neg(%a) "
        "%r = matmul(%c, %b, dtype=f32) %i = isinf(%r) %n = isnan(%r) return %i, %n }",
    };
    static const char *const few[] = {
        "func @f(%a: f16[A, B], %b: f16[B, C]) -> (bool[A, C], bool[A, C]) { %s = sub(%a, 0.998) %t = relu(%s) "
        "%u = mul(%t, 65504) %v = mul(%u, 65504) %x = add(%a, %v) %r = matmul(%x, %b, dtype=f32) "
        "%q = matmul(%a, %b, dtype=f32) %i = isinf(%r) %f = isfinite(%r) %d = not(%f) %e = eq(%r, %q) %o = or(%d, %e) "
        "return %i, %o }",
        "func @f(%a: f16[A, B], %b: f16[C, B]) -> (bool[A, C], bool[A, C]) { %s = sub(%b, 0.998) %t = relu(%s) "
        "%u = mul(%t, 65504) %v = mul(%u, 65504) %x = sub(%b, %v) %r = matmul(%a, %x, transpose_b=true, dtype=f32) "
        "%q = matmul(%a, %b, transpose_b=true, dtype=f32) %i = isinf(%r) %f = isfinite(%r) %d = not(%f) %e = eq(%r, "
        "%q) "
        "%o = or(%d, %e) return %i, %o }",
    };
    static const int64_t sizes[][3] = {{64, 64, 64}, {33, 100, 70}, {100, 1200, 40}, {32, 32, 32}, {17, 31, 200}};
    ir_target target;
    if (!choose_target(0, 0, "", &target)) cr_skip_test("no AVX-512");
    if (!begin()) return;
    for (int i = 0; i < 15; i++) {
        const int64_t *s = sizes[i / 3], size[4] = {s[0], s[1], s[2], 1};
        const int *threads = i % 2 ? one_thread : many_threads;
        check(exact[i % 3], (domain){-1, 1, SPECIAL_NONE, true}, size, threads, i == 7, ALL_LEVELS);
        check(special[i % 3], (domain){-1, 1, SPECIAL_SOME, i % 3 == 2}, size, threads, i == 8, ALL_LEVELS);
        check(few[i % 2], (domain){-1, 1, SPECIAL_NONE, true}, size, threads, i == 9, ALL_LEVELS);
        check(special[i % 3], (domain){-65504, 65504, SPECIAL_HUGE, i % 3 == 2}, size, threads, i == 8, ALL_LEVELS);
    }
    rt_cache_close(cache);
}

/* Panels of queries: edges of tiles in queries, keys and head; what bounds and masks leave of a block of keys; keys
 * that are subnormal, which the instruction would take for 0. */
Test(tiles, attention, .timeout = 600) {
    static const int64_t queries[] = {17, 32, 33, 70}, keys[] = {1, 15, 16, 31, 33, 128, 187, 300},
                         heads[] = {1, 7, 16, 31, 32, 33, 64, 100};
    static const char *const forms[] = {
        "func @f(%q: T[A, C], %k: T[B, C], %v: T[B, D]) -> T[A, D] { %r = attention(%q, %k, %v) return %r }",
        "func @f(%q: T[A, C], %k: T[B, C], %v: T[B, D]) -> T[A, D] { %r = attention(%q, %k, %v, causal=true) return %r "
        "}",
        "func @f(%q: T[4, A, C], %k: T[2, B, C], %v: T[2, B, D]) -> T[4, A, D] { %a = neg(%q) "
        "%r = attention(%a, %k, %v, window=[40, 20], softcap=5) %s = relu(%r) return %s }",
        "func @f(%q: T[A, C], %k: T[C, B], %v: T[B, D], %m: bool[A, B]) -> T[A, D] { %t = transpose(%k) "
        "%r = attention(%q, %t, %v, %m) return %r }",
        "func @f(%q: T[A, C], %k: T[B, C], %v: T[B, D]) -> T[A, D] { %a = mul(%q, 1e38) %b = mul(%k, 1e-38) "
        "%r = attention(%a, %b, %v) return %r }",
    };
    ir_target target;
    if (!choose_target(0, 0, "", &target)) cr_skip_test("no AVX-512");
    if (!begin()) return;
    /* Fused and not: 2 panels, 4 x 2 x 2 products of scores and 2 x 4 x 2 x 2 of weights and values each. */
    const long none = amx_count(AMX_PRODUCT);
    check("func @f(%q: bf16[A, C], %k: bf16[B, C], %v: bf16[B, D]) -> bf16[A, D] { %r = attention(%q, %k, %v) return "
          "%r }",
          (domain){-1, 1, SPECIAL_NONE, false}, (int64_t[4]){64, 128, 32, 32}, one_thread, false, ALL_LEVELS);
    if (!amx_has_hardware()) cr_assert_eq(amx_count(AMX_PRODUCT) - none, 2 * 2 * (16 + 32));
    /* scales that scores are multiplied by before the largest is found, as they turn their order or are far from 1 */
    static const char *const scales[] = {"-2.0", "-0.125", "1e20", "1e-25", "0.0"};
    for (int i = 0; i < 5; i++) {
        char text[200];
        snprintf(text, sizeof text,
                 "func @f(%%q: bf16[A, C], %%k: bf16[B, C], %%v: bf16[B, D]) -> bf16[A, D] { %%r = attention(%%q, %%k, "
                 "%%v, scale=%s%s) return %%r }",
                 scales[i], i % 2 ? ", causal=true" : "");
        check(text, (domain){-1, 1, SPECIAL_NONE, false}, (int64_t[4]){70, 97, 33, 20}, one_thread, false, ALL_LEVELS);
    }
    /* products of queries and keys that overflow before such a scale, which multiplies the queries */
    check(
        "func @f(%q: bf16[A, C], %k: bf16[B, C], %v: bf16[B, D]) -> bf16[A, D] { %x = mul(%k, 1e19) %y = mul(%q, 1e18) "
        "%r = attention(%y, %x, %v, scale=1e-37) return %r }",
        (domain){-3, 3, SPECIAL_NONE, false}, (int64_t[4]){77, 331, 33, 20}, one_thread, false, ALL_LEVELS);
    /* infinite values: not what a part of a weight that is 0 would make of them */
    check("func @f(%q: bf16[A, C], %k: bf16[B, C], %v: bf16[B, D]) -> bool[A, D] { %w = mul(%v, 1e38) "
          "%x = mul(%w, 1e38) %r = attention(%q, %k, %x) %s = isinf(%r) return %s }",
          (domain){0.1, 1, SPECIAL_NONE, true}, (int64_t[4]){64, 128, 32, 32}, one_thread, false, ALL_LEVELS);
    for (int i = 0; i < 90; i++) {
        const uint64_t r = mix((uint64_t)i + 1000);
        const int form = i % 9 < 5 ? i % 9 : i % 9 - 5;
        const char *type = i % 9 < 5 ? "bf16" : "f16"; /* f16 has no such large numbers */
        char text[600];
        int n = 0;
        for (const char *p = forms[form]; *p; p++) {
            if (*p == 'T' && p[1] == '[') n += snprintf(text + n, sizeof text - (size_t)n, "%s", type);
            else text[n++] = *p;
        }
        text[n] = 0;
        const long before = amx_count(AMX_PRODUCT);
        check(text, (domain){-1, 1, i < 72 ? SPECIAL_NONE : SPECIAL_SOME, false},
              (int64_t[4]){queries[r % 4], keys[r / 4 % 8], heads[r / 32 % 8], 1 + (int64_t)(r / 256 % 40)},
              i % 4 ? one_thread : many_threads, i % 9 == 6, ALL_LEVELS);
        if (form < 3 && i < 72 && !amx_has_hardware()) cr_assert_gt(amx_count(AMX_PRODUCT), before, "%s", text);
    }
    rt_cache_close(cache);
}

/* X, W and T of a form are these types. */
static void convolution_in_tiles(const char *form, const char *const type[3], int i) {
    char text[600];
    int n = 0;
    for (const char *p = form; *p; p++) {
        const int at = *p == 'X' ? 0 : *p == 'W' ? 1 : 2;
        if (strchr("XWT", *p) && p[1] == '[') n += snprintf(text + n, sizeof text - (size_t)n, "%s", type[at]);
        else text[n++] = *p;
    }
    text[n] = 0;
    const bool is_float = ir_is_float(ir_dtype_parse(type[2], strlen(type[2])));
    const uint64_t r = mix((uint64_t)i + 77);
    const int64_t size[4] = {1 + (int64_t)(r % 3), 1 + (int64_t)(r / 8 % 12), 1 + (int64_t)(r / 256 % 40), 1};
    const long before = amx_count(AMX_PRODUCT);
    check(text, (domain){-1, 1, SPECIAL_NONE, !is_float}, size, i % 4 ? one_thread : many_threads, false, ALL_LEVELS);
    if (!amx_has_hardware() && strcmp(type[0], "f16")) cr_assert_gt(amx_count(AMX_PRODUCT), before, "%s", text);
    if (is_float && i % 3 == 0) check(text, (domain){-1, 1, SPECIAL_SOME, false}, size, one_thread, false, ALL_LEVELS);
    if (is_float && i % 3 == 1)
        check(text, (domain){-3e-38, 3e-38, SPECIAL_NONE, false}, size, one_thread, false, ALL_LEVELS);
}

/* Edges of tiles in channels and columns, of steps in channels and places; strides, pads, dilations, groups, one to
 * three axes; what is behind a convolution, and operands that another kernel converts. */
Test(tiles, convolutions, .timeout = 600) {
    static const char *const forms[] = {
        "func @f(%x: X[A, 32, B, C], %w: W[32, 32, 3, 3]) -> T[A, 32, B, C] { %r = conv(%x, %w, pads=[1, 1, 1, 1]) "
        "return "
        "%r }",
        "func @f(%x: X[A, 40, B, C], %w: W[17, 40, 1, 1], %b: T[17]) -> T[A, 17, B, C] { %r = conv(%x, %w, %b) %s = "
        "relu(%r) return %s }",
        "func @f(%x: X[A, 70, 9, 13], %w: W[33, 70, 3, 2], %b: T[33]) -> T[A, 33, 4, 7] { %r = conv(%x, %w, %b, "
        "strides=[2, 2], pads=[0, 1, 0, 1]) return %r }",
        "func @f(%x: X[2, 128, B, C], %w: W[48, 64, 3, 3], %y: T[2, 48, B, C]) -> T[2, 48, B, C] { %r = conv(%x, %w, "
        "groups=2, pads=[2, 2, 2, 2], dilations=[2, 2]) %s = add(%r, %y) %t = relu(%s) return %t }",
        "func @f(%x: X[A, 33, 100], %w: W[64, 33, 5]) -> T[A, 64, 96] { %r = conv(%x, %w) return %r }",
        "func @f(%x: X[1, 32, 5, 6, 7], %w: W[16, 32, 2, 3, 2]) -> T[1, 16, 5, 6, 4] { %r = conv(%x, %w, pads=[1, 1, "
        "0, 0, "
        "1, 1], strides=[1, 1, 2]) return %r }",
        "func @f(%x: X[A, 100, 7, 7], %w: W[100, 100, 7, 7]) -> T[A, 100, 1, 1] { %r = conv(%x, %w) return %r }",
        "func @f(%x: X[1, 32, 3, 3], %w: W[32, 32, 5, 3]) -> T[1, 32, 7, 19] { %r = conv(%x, %w, pads=[4, 9, 4, 9]) "
        "return "
        "%r }",
        "func @f(%x: X[A, 64, 16, 20], %w: W[32, 64, 3, 3]) -> T[A, 32, 7, 9] { %r = conv(%x, %w) %s = max_pool(%r, "
        "kernel=[2, 2], strides=[2, 2]) return %s }",
    };
    /* several K blocks; channels in parts, which a pool reads too; a row that is cut; a kernel as wide as the image, by
     * rows; channels that a team shares; zeros by another kernel, and less of an image */
    static const char *const more[] = {
        "func @f(%x: X[1, 1024, 4, 5], %w: W[40, 1024, 3, 3]) -> T[1, 40, 2, 3] { %r = conv(%x, %w) return %r }",
        "func @f(%x: X[1, 512, 9, 20], %w: W[300, 512, 3, 3]) -> T[1, 300, 3, 9] { %r = conv(%x, %w) %s = max_pool(%r, "
        "kernel=[2, 2], strides=[2, 2]) return %s }",
        "func @f(%x: X[1, 32, 3001], %w: W[16, 32, 3]) -> T[1, 16, 3001] { %r = conv(%x, %w, pads=[1, 1]) return %r }",
        "func @f(%x: X[A, 32, 20, 40], %w: W[40, 32, 2, 40]) -> T[A, 40, 19, 1] { %r = conv(%x, %w) return %r }",
        "func @f(%x: X[1, 128, 7, 7], %w: W[300, 128, 3, 3]) -> T[1, 300, 7, 7] { %r = conv(%x, %w, pads=[1, 1, 1, 1]) "
        "return %r }",
        "func @f(%x: X[1, 32, 9, 9], %w: W[16, 32, 3, 3]) -> T[1, 16, 8, 7] { %u = pad(%x, pads=[0, 0, 2, -1, 0, 0, "
        "-1, 1]) "
        "%r = conv(%u, %w) return %r }",
    };
    /* few channels: places along columns count as such, or all places; a row that is cut, patches, what reads a pool */
    static const char *const few[] = {
        "func @f(%x: X[A, 3, 20, 37], %w: W[40, 3, 7, 7], %b: T[40]) -> T[A, 40, 10, 19] { %r = conv(%x, %w, %b, "
        "strides=[2, 2], pads=[3, 3, 3, 3]) %s = relu(%r) return %s }",
        "func @f(%x: X[A, 3, B, C], %w: W[33, 3, 3, 3]) -> T[A, 33, B, C] { %r = conv(%x, %w, pads=[1, 1, 1, 1]) "
        "return "
        "%r }",
        "func @f(%x: X[A, 12, 9, 40], %w: W[24, 12, 3, 3]) -> T[A, 24, 8, 14] { %r = conv(%x, %w, pads=[0, 1, 1, 2], "
        "strides=[1, 3]) return %r }",
        "func @f(%x: X[1, 1, 3001], %w: W[64, 1, 50]) -> T[1, 64, 591] { %r = conv(%x, %w, strides=[5]) return %r }",
        "func @f(%x: X[A, 3, 5, 9, 12], %w: W[24, 3, 2, 3, 5]) -> T[A, 24, 3, 9, 3] { %r = conv(%x, %w, dilations=[2, "
        "1, 1], pads=[0, 1, 1, 0, 1, 0], strides=[1, 1, 3]) return %r }",
        "func @f(%x: X[A, 24, 9, C], %w: W[80, 6, 3, 3], %y: T[A, 80, 9, C]) -> T[A, 80, 9, C] { %r = conv(%x, %w, "
        "groups=4, pads=[2, 2, 2, 2], dilations=[2, 2]) %s = add(%r, %y) return %s }",
        "func @f(%x: X[A, 3, 33, 48], %w: W[50, 3, 16, 16]) -> T[A, 50, 2, 3] { %r = conv(%x, %w, strides=[16, 16]) "
        "return %r }",
        "func @f(%x: X[A, 5, 16, 20], %w: W[32, 5, 3, 3]) -> T[A, 32, 7, 9] { %r = conv(%x, %w) %s = max_pool(%r, "
        "kernel=[2, 2], strides=[2, 2]) return %s }",
    };
    /* the same bits where a conversion is a kernel's of its own, or of another program */
    static const char *const halves[] = {
        "func @f(%x: X[A, 32, B, C], %w: X[32, 32, 3, 3]) -> (f32[A, 32, B, C], f32[A, 32, B, C]) { %u = cast(%x, f32) "
        "%v = cast(%w, f32) %r = conv(%u, %v, pads=[1, 1, 1, 1]) return %r, %u }",
        "func @f(%x: X[A, 32, B, C], %w: X[32, 32, 1, 3], %z: X[40, 32, 1, 3]) -> (f32[A, 32, B, C], X[A, 40, B, C]) { "
        "%u = neg(%x) %r = conv(%u, %w, pads=[0, 1, 0, 1], dtype=f32) %s = conv(%u, %z, pads=[0, 1, 0, 1]) return %r, "
        "%s "
        "}",
    };
    static const char *const types[][3] = {{"bf16", "bf16", "bf16"}, {"f16", "f16", "f16"}, {"u8", "i8", "i32"},
                                           {"i8", "u8", "i32"},      {"i8", "i8", "i32"},   {"u8", "u8", "i32"}};
#define LIST(x) x, sizeof x / sizeof *x
    static const struct {
        const char *const *form;
        size_t n;
        int types[7]; /* of those above, then -1 */
    } groups[] = {{LIST(forms), {0, 1, 2, 3, 4, 5, -1}},
                  {LIST(more), {0, 2, -1}},
                  {LIST(few), {0, 1, 2, 3, -1}},
                  {LIST(halves), {0, 1, 0, 1, -1}}};
    int i = 0;
    ir_target target;
    if (!choose_target(0, 0, "", &target)) cr_skip_test("no AVX-512");
    if (!begin()) return;
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (const int *t = groups[g].types; *t >= 0; t++)
            for (size_t k = 0; k < groups[g].n; k++, i++) /* bf16 and u8 x i8 all */
                if (*t == 0 || *t == 2 || is_in_mixed_share((uint64_t)i))
                    convolution_in_tiles(groups[g].form[k], types[*t], i);
    rt_cache_close(cache);
}

/* What ran above ran on tiles. */
Test(tiles, are_used) {
    ir_target target;
    if (!choose_target(0, 0, "", &target)) cr_skip_test("no AVX-512");
    if (!begin()) return;
    long before = amx_count(AMX_PRODUCT);
    check("func @f(%a: bf16[A, B], %b: bf16[B, C]) -> bf16[A, C] { %r = matmul(%a, %b) %s = relu(%r) return %s }",
          (domain){-1, 1, SPECIAL_NONE, false}, (int64_t[4]){100, 70, 90, 1}, many_threads, false, ALL_LEVELS);
    if (!amx_has_hardware()) cr_assert_geq(amx_count(AMX_PRODUCT) - before, 7 * 6 * 3 * 4);
}

/* What products of tiles reach is measured by some, with a configuration that the instruction takes: a process that
 * measures gets as far as a product (all of them are too many for the emulator). */
static long products_before;
static void end_at_a_product(int signal_number) {
    (void)signal_number;
    if (amx_count(AMX_PRODUCT) > products_before) _exit(0);
}

Test(tiles, limits, .timeout = 600) {
    ir_target target;
    if (!choose_target(0, 0, "", &target)) cr_skip_test("no AVX-512");
    products_before = amx_count(AMX_PRODUCT);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGALRM, end_at_a_product);
        setitimer(ITIMER_REAL, &(struct itimerval){{0, 20000}, {0, 20000}}, NULL);
        rt_limits l = rt_limits_get("", 1, true, true);
        _exit(l.peak[RT_LIMIT_BF16] > 0 && l.peak[RT_LIMIT_I8] > 0 ? 0 : 1);
    }
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", (unsigned)status);
}
