/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_ops_test.c: the differential test of every operator (ops_test.c) with GPU kernels (gpu_run.h). */
#include "ir/target.h"
#include "gpu_run.h"

#define LAUNCH    GPU_LAUNCH
#define QUEUE     GPU_QUEUE
#define N_TARGETS 2
/* sm_70 differs in how it rounds halves and takes maxima: one check of a few. */
static bool choose_target(int i, uint32_t levels, const char *text, ir_target *out) {
    (void)text;
    *out = (ir_target){gpu_level_for(i ? IR_LEVEL_SM70 : IR_LEVEL_SM80), 0};
    return i == 0 || (levels % 3 == 0 && !on_machine());
}
/* Tests of their own (below) choose sizes that reach other forms of a kernel. */
static bool takes_any_size;
/* What takes the interpreter long is left out: it does some ten million instructions of a lane a second. */
#define IS_FOR_US(size)                                                                                                \
    (takes_any_size || on_machine() ||                                                                                 \
     (size)[0] * ((size)[1] > 0 ? (size)[1] : 1) * ((size)[2] > 0 ? (size)[2] : 1) <= 1500)
/* f32, and a sixth of the others, not the same for each operator; fused alone. A device does all. */
#define IS_TYPE_FOR_US(op, t)  ((t) == FUSOR_F32 || mix((uint64_t)(op)*64 + (uint64_t)(t)) % 6 == 0 || on_machine())
#define IS_ALWAYS_FOR_US(text) false
#define N_FUSIONS(...)         1
#define KEEPS_HIDDEN           false
#define N_PROCESSES            (on_machine() ? 8 : IR_OP_COUNT)
#define KERNELS_LEVEL          IR_LEVEL_SM80
#include "../diff/ops_test.c"

/* A program, and values of A, B, C, D. */
typedef struct sized {
    const char *text;
    int64_t size[4];
} sized;

/* Attention: wide values in one piece or several, heads that are no whole slice, blocks of queries and of keys with
 * edges, few queries of long keys, which come in parts. */
Test(gpu, attention, .timeout = 600) {
    static const sized cases[] = {
        {"func @f(%q: f32[2, A, 40], %k: f32[2, B, 40], %v: f32[2, B, 100], %m: f32[A, B]) -> f32[2, A, 100] { "
         "%y = attention(%q, %k, %v, %m) return %y }",
         {70, 130, 1, 0}},
        {"func @f(%q: f32[A, C], %k: f32[B, C], %v: f32[B, D]) -> f32[A, D] { %y = attention(%q, %k, %v, causal=true, "
         "causal_offset=60) return %y }",
         {67, 129, 70, 90}},
        {"func @f(%q: bf16[6, A, 64], %k: bf16[2, B, 64], %v: bf16[2, B, 64]) -> bf16[6, A, 64] { "
         "%y = attention(%q, %k, %v, causal=true) return %y }",
         {66, 66, 1, 0}},
        {"func @f(%q: f16[A, 64], %k: f16[B, 64], %v: f16[B, 160]) -> f16[A, 160] { %y = attention(%q, %k, %v, "
         "softcap=3) "
         "return %y }",
         {17, 70, 1, 0}},
        {"func @f(%q: f16[2, A, 70], %k: f16[2, B, 70], %v: f16[2, B, 40], %m: f16[A, B]) -> f16[2, A, 40] { %n = "
         "neg(%k) "
         "%y = attention(%q, %n, %v, %m, window=[60, 9]) return %y }",
         {80, 90, 1, 0}},
        {"func @f(%q: bf16[A, C], %k: bf16[B, C], %v: bf16[B, D], %m: bool[A, B]) -> f32[A, D] { %y = attention(%q, "
         "%k, %v, "
         "%m, dtype=f32) %r = abs(%y) return %r }",
         {40, 600, 24, 130}},
        {"func @f(%q: bf16[A, 128], %k: bf16[B, 128], %v: bf16[B, 128]) -> f32[A, 128] { %y = attention(%q, %k, %v, "
         "causal=true, causal_offset=1000, dtype=f32) return %y }",
         {18, 1030, 1, 0}},
        {"func @f(%q: f64[2, A, 20], %k: f64[2, B, 20], %v: f64[2, B, 70], %m: bool[B]) -> f64[2, A, 70] { "
         "%y = attention(%q, %k, %v, %m) return %y }",
         {65, 100, 1, 0}},
        {"func @f(%q: f32[2, A, 32], %k: f32[2, B, 32], %v: f32[2, B, 32], %m: bool[A, B]) -> (f32[2, A, 32], f32[2, "
         "A, "
         "32]) { %x = attention(%q, %k, %v, causal=true, causal_offset=800, window=[500, -1]) %y = attention(%q, %k, "
         "%v, "
         "%m) return %x, %y }",
         {3, 1100, 1, 0}},
        {"func @f(%q: f64[A, 8], %k: f64[B, 8], %v: f64[B, 5]) -> f64[A, 5] { %y = attention(%q, %k, %v) return %y }",
         {20, 700, 1, 0}},
        {"func @f(%q: f32[4, A, 16], %k: f32[4, 16, B], %v: f32[4, B, 64]) -> f32[4, A, 64] { %s = matmul(%q, %k) "
         "%t = mul(%s, 0.25) %p = softmax(%t, axis=-1) %y = matmul(%p, %v) return %y }",
         {33, 70, 1, 0}},
        /* NaN behind the last key that a query sees: values read as vectors, as halves, computed */
        {"func @f(%q: f32[A, C], %k: f32[B, C], %v: f32[B, 40]) -> f32[A, 40] { %i = iota(shape=[B, 1], axis=0, "
         "dtype=i64) %e = ge(%i, 100) %n = select(%e, nan, %v) %s = softmax(%n, axis=-1) %y = attention(%q, %k, %s, "
         "causal=true, causal_offset=60) return %y }",
         {40, 150, 8, 0}},
        {"func @f(%q: bf16[A, 64], %k: bf16[B, 64], %v: bf16[B, 64]) -> bf16[A, 64] { %i = iota(shape=[B, 1], axis=0, "
         "dtype=i64) %e = ge(%i, 100) %n = select(%e, nan, %v) %s = softmax(%n, axis=-1) %y = attention(%q, %k, %s, "
         "window=[-1, 2], causal_offset=57) return %y }",
         {40, 150, 1, 0}},
        {"func @f(%q: f64[A, C], %k: f64[B, C], %v: f64[B, 7]) -> f64[A, 7] { %i = iota(shape=[B, 1], axis=0, "
         "dtype=i64) %e = ge(%i, 100) %n = select(%e, nan, %v) %y = attention(%q, %k, %n, causal=true, "
         "causal_offset=97) return %y }",
         {3, 150, 8, 0}},
    };
    if (!begin()) return;
    takes_any_size = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int strided = 0; strided < 2; strided++)
            check(cases[i].text, (domain){-3, 3, SPECIAL_NONE, false}, cases[i].size, one_thread, strided, ALL_LEVELS);
    rt_cache_close(cache);
}

/* Contractions without tensor cores: each tile, with edges in all directions, operands that lie either way, aligned and
 * not, or are computed; and of several K blocks, whose sums come from several blocks of threads, or wait in a thread's
 * memory (of few tiles only by gpu_fma_parts). */
Test(gpu, contraction, .timeout = 900) {
    static const sized cases[] = {
        {"func @f(%a: f32[A, B], %b: f32[B, C], %c: f32[C]) -> f32[A, C] { %h = matmul(%a, %b) %y = add(%h, %c) return "
         "%y }",
         {132, 20, 136, 0}},
        {"func @f(%a: f32[B, A], %b: f32[C, B]) -> f32[A, C] { %y = matmul(%a, %b, transpose_a=true, transpose_b=true) "
         "return %y }",
         {130, 13, 131, 0}},
        {"func @f(%a: f32[2, A, B], %b: f32[2, B, C]) -> f32[2, A, C] { %x = neg(%a) %h = matmul(%x, %b) %y = tanh(%h) "
         "return "
         "%y }",
         {17, 36, 20, 0}},
        {"func @f(%a: f32[A, B], %b: f32[B, C]) -> f32[A, C] { %h = matmul(%a, %b) %y = abs(%h) return %y }",
         {9, 1030, 12, 0}},
        {"func @f(%a: f64[A, B], %b: f64[B, C]) -> f64[A, C] { %y = matmul(%a, %b) return %y }", {18, 514, 34, 0}},
        {"func @f(%a: i32[A, B], %b: i32[B, C]) -> i64[A, C] { %y = matmul(%a, %b) return %y }", {66, 35, 70, 0}},
        {"func @f(%a: f32[A, B], %b: f32[B, 24]) -> f32[A, 24] { %y = matmul(%a, %b) return %y }", {70, 24, 1, 0}},
        /* quotients of the program, of numbers from 2^63 on */
        {"func @f(%a: f32[A, B], %b: f32[B, C], %c: u64[A, C], %d: u64[C]) -> f32[A, C] { %h = matmul(%a, %b) %n = "
         "sub(0, %c) %q = div(%n, %d) %r = div(%n, %n) %s = add(%q, %r) %f = cast(%s, f32) %y = add(%h, %f) return %y "
         "}",
         {5, 9, 7, 0}},
    };
    if (!begin()) return;
    takes_any_size = true;
    for (gpu_fma_tile = 0; gpu_fma_tile < IR_GPU_FMA_TILES; gpu_fma_tile++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            check(cases[i].text, (domain){-3, 3, SPECIAL_NONE, i == 5}, cases[i].size, one_thread,
                  (i + (size_t)gpu_fma_tile) % 3 == 0, 1u << 1);
    gpu_fma_tile = -1;
    for (gpu_fma_parts = 0; gpu_fma_parts < 3; gpu_fma_parts++) {
        check(cases[3].text, (domain){-3, 3, SPECIAL_SOME, false}, (int64_t[4]){200, 1540, 30, 0}, one_thread, false,
              1u << 1);
        gpu_fma_tile = IR_GPU_FMA_LARGE;
        check(cases[0].text, (domain){-3, 3, SPECIAL_NONE, false}, (int64_t[4]){130, 1100, 20, 0}, one_thread, false,
              1u << 1);
        gpu_fma_tile = -1;
        check(cases[4].text, (domain){-3, 3, SPECIAL_NONE, false}, (int64_t[4]){18, 1100, 34, 0}, one_thread, true,
              1u << 1);
        check("func @f(%x: f32[A, 130, B, C], %w: f32[9, 130, 3, 3]) -> f32[A, 9, ?, ?] { %y = conv(%x, %w) return %y "
              "}",
              (domain){-3, 3, SPECIAL_NONE, false}, (int64_t[4]){1, 5, 9, 0}, one_thread, false, 1u << 1);
    }
    gpu_fma_parts = 0;
    rt_cache_close(cache);
}

/* Gathered rows, and rows behind or between others: 16 bytes at a time where they are multiples of that, which takes
 * fewer instructions; else, and where the rows begin in between, elements. */
Test(gpu, rows_of_others, .timeout = 300) {
    static const char *const texts[] = {
        "func @f(%x: bf16[A, B], %i: i64[C]) -> bf16[C, B] { %r = take(%x, %i, axis=0) %y = neg(%r) return %y }",
        "func @f(%x: f32[A, B], %i: i64[C]) -> f32[C, 2, B] { %j = unsqueeze(%i, axes=[1]) %k = concat(%j, %j, axis=1) "
        "%y = take(%x, %k, axis=0) return %y }",
        "func @f(%x: f16[A, B], %z: f16[C, B]) -> f16[?, B] { %r = concat(%x, %z, axis=0) %y = abs(%r) return %y }",
    };
    ptx_counts counts[2] = {{0}};
    if (!begin()) return;
    takes_any_size = true;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int is_odd = 0; is_odd < 2; is_odd++) {
            counts[is_odd] = (ptx_counts){0};
            gpu_counts = &counts[is_odd];
            check(texts[i], (domain){0, 4.9, SPECIAL_NONE, true}, (int64_t[4]){5, 264 - is_odd, 6, 0}, one_thread,
                  false, 1u << 1);
            gpu_counts = NULL;
            cr_expect(!is_odd || on_machine() || 2 * counts[0].instructions < counts[1].instructions,
                      "%s: %llu and %llu instructions", texts[i], (unsigned long long)counts[0].instructions,
                      (unsigned long long)counts[1].instructions);
            check(texts[i], (domain){0, 4.9, SPECIAL_NONE, true}, (int64_t[4]){5, 264 - is_odd, 6, 0}, one_thread, true,
                  1u << 1);
        }
    rt_cache_close(cache);
}

/* Tiles by sizes: all multiprocessors have one, and a row or column of results does not fill large ones. */
Test(gpu, tiles) {
    static const struct {
        int64_t m, n, k;
        int tile, parts;
    } cases[] = {{4096, 4096, 4096, IR_GPU_FMA_LARGE, 1}, {1024, 1024, 1024, IR_GPU_FMA_LARGE, 2},
                 {1024, 1024, 4096, IR_GPU_FMA_LARGE, 4}, {64, 64, 64, IR_GPU_FMA_SMALL, 1},
                 {1, 4096, 4096, IR_GPU_FMA_FLAT, 8},     {4096, 4, 512, IR_GPU_FMA_TALL, 1},
                 {1050, 140, 8192, IR_GPU_FMA_SMALL, 6},  {0, 5, 0, IR_GPU_FMA_TALL, 1}};
    static ir_kernel k = {.kind = IR_KERNEL_CONTRACT,
                          .level = IR_LEVEL_SM80,
                          .n_dims = 3,
                          .n_insts = 3,
                          .dim = {{'m', IR_SIZE_RUNTIME}, {'n', IR_SIZE_RUNTIME}, {'k', IR_SIZE_RUNTIME}},
                          .inst = {{.op = IR_K_LOAD, .dtype = FUSOR_F32},
                                   {.op = IR_K_LOAD, .dtype = FUSOR_F32},
                                   {.op = IR_OP_MATMUL, .dtype = FUSOR_F32, .n_in = 2, .in = {0, 1}}},
                          .tile = {64, 64, 512}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ir_gpu_launch l;
        ir_gpu_plan(&k, (int64_t[]){cases[i].m, cases[i].n, cases[i].k}, &l);
        cr_assert(l.tile == cases[i].tile && l.chunks == cases[i].parts, "case %zu: tile %d, %lld parts", i, l.tile,
                  (long long)l.chunks);
        cr_assert_eq(l.n_phases, cases[i].parts > 1 ? 2 : 1);
    }
}
