/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_conv_test.c: convolutions as products of matrices on a GPU (gpu_run.h) against the reference
 * evaluator: types, strides, pads, dilations, groups, one to three spatial axes, each tile, edges, several K blocks and
 * parts of k; that halves are multiplied by tensor cores, without conflicts of banks; and which launches have no
 * tiles. */
#include "gpu_check.h"

/* T: the type. */
static const char *typed(const char *from, ir_dtype t) {
    static char text[500];
    char *to = text + sprintf(text, "func @f");
    for (const char *c = from; *c; c++)
        to += sprintf(to, "%.*s", *c == 'T' ? (int)strlen(ir_dtypes[t].name) : 1, *c == 'T' ? ir_dtypes[t].name : c);
    return text;
}

/* Products that are multiples of 16 bytes and not, of less than a piece, and of several; groups; columns that are whole
 * tiles, a few more, and of several images; what is added up in parts, or in several K blocks. A bias, an activation,
 * another operand behind them. */
static const struct {
    const char *text;
    int64_t size[4];
} cases[] = {
    {"(%x: T[A, 8, B, C], %w: T[16, 8, 3, 3], %b: T[16]) -> T[A, 16, B, C] { %s = conv(%x, %w, %b, pads=[1, 1, 1, 1]) "
     "%y = relu(%s) return %y }",
     {2, 7, 12, 1}},
    {"(%x: T[A, D, B, C], %w: T[66, D, 3, 3], %r: T[A, 66, B, C]) -> T[A, 66, B, C] { %s = conv(%x, %w, pads=[1, 1, "
     "1, 1]) %h = add(%s, %r) %y = relu(%h) return %y }",
     {1, 9, 8, 7}},
    {"(%x: T[A, 24, B, C], %w: T[20, 12, 2, 3]) -> T[A, 20, ?, ?] { %y = conv(%x, %w, strides=[2, 1], dilations=[1, "
     "2], groups=2) return %y }",
     {3, 6, 11, 1}},
    {"(%x: T[A, 6, B], %w: T[9, 6, 5], %b: T[9]) -> T[A, 9, ?] { %y = conv(%x, %w, %b, strides=[3], pads=[2, 4]) "
     "return %y }",
     {2, 70, 1, 1}},
    {"(%x: T[A, 3, 4, B, C], %w: T[12, 3, 2, 3, 3]) -> T[A, 12, ?, ?, ?] { %y = conv(%x, %w, pads=[1, 0, 1, 0, 1, 1], "
     "strides=[2, 1, 1]) return %y }",
     {2, 6, 5, 1}},
    {"(%x: T[A, 64, B, C], %w: T[40, 64, 3, 3]) -> T[A, 40, ?, ?] { %s = conv(%x, %w) %y = silu(%s) return %y }",
     {1, 4, 14, 1}},
    {"(%x: T[A, D, B, C], %w: T[130, D, 1, 1]) -> T[A, 130, B, C] { %y = conv(%x, %w) return %y }", {2, 13, 10, 33}},
    {"(%x: T[A, B, 9, C], %w: T[5, B, 3, 1]) -> f32[A, 5, 7, C] { %f = cast(%x, f32) %g = cast(%w, f32) %y = conv(%f, "
     "%g) return %y }",
     {1, 3, 40, 1}},
    {"(%x: T[A, 8, 0, C], %w: T[16, 8, 1, 1]) -> T[A, 16, 0, C] { %y = conv(%x, %w) return %y }", {2, 1, 12, 1}},
    {"(%x: T[A, B, 5, C], %w: T[6, B, 3, 3]) -> T[A, 6, 3, ?] { %y = conv(%x, %w) return %y }", {2, 0, 12, 1}},
    {"(%x: T[A, 8, B, C], %w: T[36, 8, D, D], %b: T[36]) -> T[A, 36, ?, ?] { %s = conv(%x, %w, %b, pads=[1, 1, 1, 1]) "
     "%y = relu(%s) return %y }",
     {2, 7, 12, 3}},
    {"(%x: T[A, 8, 5, C], %w: T[B, 8, 3, D]) -> T[A, B, ?, ?] { %y = conv(%x, %w, strides=[1, 2]) return %y }",
     {1, 18, 12, 2}},
};
enum { N_CASES = sizeof cases / sizeof *cases };
static const ir_dtype types[] = {FUSOR_F32, FUSOR_BF16, FUSOR_F16, FUSOR_F64};
enum { N_TYPES = sizeof types / sizeof *types };

GPU_TESTS(gpu_conv, agrees_with_the_reference, N_TYPES *N_CASES) {
    const int i = *number / N_TYPES, type = *number % N_TYPES;
    if (type > 1 && (i + type) % 3) return; /* of other types a third of the cases */
    if (!begin()) return;
    gpu_fusions = 2;
    const bool has_pads = strstr(cases[i].text, "pads"); /* which are zeros, times what is infinite */
    for (int strided = 0; strided < 2; strided++)
        check(typed(cases[i].text, types[type]),
              (domain){-3, 3, strided && !has_pads ? SPECIAL_SOME : SPECIAL_NONE, false}, cases[i].size, one_thread,
              strided, 1);
    rt_cache_close(cache);
}

/* Each tile, whatever the sizes ask for: by fma; by tensor cores, those of wgmma too; in the fast tier. */
enum { FMA = IR_GPU_FMA_TILES, ALL = FMA + 2 * IR_GPU_MMA_TILES };
GPU_TESTS(gpu_conv, tiles_agree, ALL) {
    static const int chosen[] = {0, 1, 2, 5, 6};
    ir_dtype t = FUSOR_F32;
    gpu_is_fast = false;
    if (!begin()) return;
    if (*number < FMA) {
        gpu_fma_tile = *number;
    } else {
        gpu_tile = (*number - FMA) / 2;
        gpu_is_fast = (*number - FMA) % 2;
        if (!gpu_is_fast) t = FUSOR_BF16;
        if (ir_gpu_mma_is_wgmma(gpu_tile)) gpu_level = IR_LEVEL_SM90A, t = FUSOR_F16, gpu_is_fast = false;
    }
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++)
        check(typed(cases[chosen[i]].text, t), (domain){-3, 3, SPECIAL_NONE, false}, cases[chosen[i]].size, one_thread,
              false, 1);
    rt_cache_close(cache);
}

/* Whole tiles: as many instructions of tensor cores as there are products, and no conflicts. */
GPU_TESTS(gpu_conv, has_no_conflicts, IR_GPU_MMA_TILES - 1 /* but for the first, which gathers nothing */) {
    const int tile = *number + 1;
    const ir_gpu_mma_tile *t = &ir_gpu_mma_tiles[tile];
    const uint64_t rows = (uint64_t)t->rows, columns = (uint64_t)t->columns, k = 16 * 3 * 3;
    ptx_counts counts = {0};
    char program[200];
    if (!begin()) return;
    gpu_tile = tile;
    snprintf(program, sizeof program,
             "(%%x: T[1, 16, A, B], %%w: T[%d, 16, 3, 3]) -> T[1, %d, ?, ?] { %%y = conv(%%x, %%w) return %%y }",
             t->rows, t->rows);
    if (ir_gpu_mma_is_wgmma(gpu_tile)) gpu_level = IR_LEVEL_SM90A;
    gpu_counts = &counts;
    check(typed(program, FUSOR_BF16), (domain){-3, 3, SPECIAL_NONE, false}, (int64_t[4]){2 + t->columns / 16, 18, 1, 1},
          one_thread, false, 1);
    gpu_counts = NULL;
    if (gpu_ends_uncounted()) return;
    const uint64_t piece = (uint64_t)t->k_bytes / 2, pieces = (k + piece - 1) / piece * piece;
    if (ir_gpu_mma_is_wgmma(gpu_tile)) cr_expect_eq(counts.wgmma, 4 * rows * columns * pieces / (64 * columns * 16));
    else cr_expect_eq(counts.mma, rows * columns * pieces / (16 * 8 * 16), "%llu", (unsigned long long)counts.mma);
    cr_expect_eq(counts.worst_ways, 1, "%d ways at line %d of the PTX", counts.worst_ways, counts.worst_line);
    /* the operands, once each; of a gather each product's columns */
    cr_expect_eq(counts.global_bytes, 2 * (rows * k + pieces * columns + rows * columns), "%llu bytes",
                 (unsigned long long)counts.global_bytes);
    rt_cache_close(cache);
}

/* Few channels of a group, and more columns than 31 bits have numbers for: without tiles. */
Test(gpu_conv, chooses_tiles) {
    static ir_kernel k = {
        .kind = IR_KERNEL_WINDOW,
        .level = IR_LEVEL_SM80,
        .n_dims = 5,
        .n_buffers = 2,
        .n_insts = 3,
        .dim = {{'b', IR_SIZE_RUNTIME},
                {'m', IR_SIZE_RUNTIME},
                {'y', IR_SIZE_RUNTIME},
                {'n', IR_SIZE_RUNTIME},
                {'k', IR_SIZE_RUNTIME}},
        .buffer = {{.dtype = FUSOR_F32, .stride = {0, IR_STRIDE_RUNTIME, 0, 0, 1}},
                   {.dtype = FUSOR_F32, .stride = {IR_STRIDE_RUNTIME, 0, IR_STRIDE_RUNTIME, 1, IR_STRIDE_RUNTIME}}},
        .inst = {{.op = IR_K_LOAD, .dtype = FUSOR_F32},
                 {.op = IR_K_LOAD, .dtype = FUSOR_F32, .index = 1},
                 {.op = IR_OP_MATMUL, .dtype = FUSOR_F32, .n_in = 2, .in = {0, 1}}},
        .tile = {6, 32, 512}};
    static const struct {
        int64_t size[5];
        int tile, parts;
    } at[] = {{{32, 64, 56, 56, 64}, IR_GPU_FMA_SMALL, 1},
              {{32, 128, 56, 56, 64}, IR_GPU_FMA_LARGE, 1},
              {{32, 4, 56, 56, 64}, IR_GPU_WINDOW_DIRECT, 1},
              {{32, 5, 56, 56, 64}, IR_GPU_FMA_FLAT, 1},
              {{1, 512, 7, 7, 4608}, IR_GPU_FMA_SMALL, 9},
              {{1, 512, 4, 4, 4608}, IR_GPU_FMA_TALL, 9},
              {{1 << 11, 64, 1 << 10, 1 << 10, 64}, IR_GPU_WINDOW_DIRECT, 1}};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        ir_gpu_launch l;
        ir_gpu_plan(&k, at[i].size, &l);
        cr_expect(l.tile == at[i].tile && l.chunks == at[i].parts, "case %zu: tile %d, %lld parts", i, l.tile,
                  (long long)l.chunks);
    }
}
