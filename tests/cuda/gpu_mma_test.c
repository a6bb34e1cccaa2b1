/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_mma_test.c: contractions on tensor cores (gpu_run.h) against the reference evaluator: types,
 * layouts, sizes around the edges of tiles, producers and consumers in the kernel; that their operands are copied
 * asynchronously where they can be, and that no access of shared memory has a conflict of banks then. */
#include "gpu_check.h"

/* T: the type of the operands, U: that of operand 1, R: of the result. */
static void write_program(char *to, const char *from, ir_dtype t, ir_dtype u) {
    to += sprintf(to, "func @f");
    for (const char *c = from; *c; c++) {
        const char *word = *c == 'T'   ? ir_dtypes[t].name
                           : *c == 'U' ? ir_dtypes[u].name
                           : *c == 'R' ? ir_dtypes[ir_is_float(t) ? t : FUSOR_I32].name
                                       : NULL;
        to += sprintf(to, "%.*s", word ? (int)strlen(word) : 1, word ? word : c);
    }
}

/* Sanitizers find nothing in interpreted PTX, only in the interpreter, which they make ten times as slow: of what takes
 * long there, one in six. */
static bool is_left_out(int number, const int64_t size[4]) {
#ifdef __SANITIZE_ADDRESS__
    enum { MANY = 1 << 17 };
    return size[0] * size[1] * size[2] * size[3] > MANY && number % 6 != 0;
#else
    (void)number;
    (void)size;
    return false;
#endif
}

static const struct {
    ir_dtype t, u;
} types[] = {{FUSOR_BF16, FUSOR_BF16}, {FUSOR_F16, FUSOR_F16}, {FUSOR_I8, FUSOR_I8},
             {FUSOR_U8, FUSOR_U8},     {FUSOR_I8, FUSOR_U8},   {FUSOR_U8, FUSOR_I8}};
enum { N_TYPES = sizeof types / sizeof *types, FLOATS = 2 };

static const char *const layouts[] = {
    "(%x: T[A, B], %y: U[B, C]) -> R[A, C] { %r = matmul(%x, %y) return %r }",
    "(%x: T[A, B], %y: U[C, B]) -> R[A, C] { %r = matmul(%x, %y, transpose_b=true) return %r }",
    "(%x: T[B, A], %y: U[B, C]) -> R[A, C] { %r = matmul(%x, %y, transpose_a=true) return %r }",
    "(%x: T[B, A], %y: U[C, B]) -> R[A, C] { %r = matmul(%x, %y, transpose_a=true, transpose_b=true) return %r }",
    "(%x: T[D, A, B], %y: U[B, C]) -> R[D, A, C] { %r = matmul(%x, %y) return %r }",
    "(%x: T[2, 1, A, B], %y: U[D, C, B]) -> R[2, D, A, C] { %r = matmul(%x, %y, transpose_b=true) return %r }",
};
/* With edges; multiples of 16 bytes and not; nothing; parts of k. */
static const int64_t sizes[][4] = {{1, 1, 1, 1},     {3, 7, 2, 2},      {16, 16, 8, 1},     {64, 64, 64, 1},
                                   {65, 33, 66, 2},  {72, 200, 88, 1},  {16, 1024, 136, 1}, {7, 648, 130, 1},
                                   {129, 96, 16, 1}, {200, 1048, 5, 1}, {0, 3, 20, 2},      {3, 0, 20, 2},
                                   {40, 30, 0, 1},   {128, 40, 130, 2}};

GPU_TESTS(gpu_mma, agrees_with_the_reference, N_TYPES *(sizeof layouts / sizeof *layouts)) {
    int type = *number % N_TYPES, layout = *number / N_TYPES;
    char text[400];
    if (!begin()) return;
    write_program(text, layouts[layout], types[type].t, types[type].u);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        if (k % 3 != (size_t)(*number % 3) && layout > 1 && type > 0) continue;
        if (is_left_out(*number + (int)k, sizes[k])) continue;
        check(text, (domain){-4, 4, k % 4 == 1 ? SPECIAL_SOME : SPECIAL_NONE, type >= FLOATS}, sizes[k], one_thread,
              k == 4, 1);
    }
    rt_cache_close(cache);
}

/* Producers of operands, epilogues, several outputs. */
static const char *const fused[] = {
    "(%x: T[A, B], %y: T[B, C], %b: T[C]) -> T[A, C] { %m = matmul(%x, %y) %s = add(%m, %b) %r = relu(%s) return %r }",
    "(%x: T[A, B], %y: T[C, B], %b: f32[A, C]) -> f32[A, C] { %m = matmul(%x, %y, transpose_b=true) %f = cast(%m, f32) "
    "%r = add(%f, %b) return %r }",
    "(%x: T[A, B], %y: T[B, C], %b: T[C, A]) -> (T[A, C], f32[A, C]) { %m = matmul(%x, %y) %t = transpose(%b) %s = "
    "add(%m, %t) "
    "%g = silu(%s) %f = cast(%s, f32) return %g, %f }",
    "(%x: f32[A, B], %y: T[B, C]) -> T[A, C] { %c = cast(%x, T) %r = matmul(%c, %y) return %r }",
    "(%x: T[A, B], %g: T[B], %y: T[C, B]) -> T[A, C] { %c = mul(%x, %g) %w = neg(%y) %r = matmul(%c, %w, "
    "transpose_b=true) return %r }",
    "(%x: f32[A, B], %y: f32[B, C]) -> T[A, C] { %c = cast(%x, T) %d = cast(%y, T) %r = matmul(%c, %d) return %r }",
    "(%x: T[B, A], %g: T[A], %y: T[B, C]) -> T[A, C] { %c = mul(%x, %g) %w = relu(%y) %r = matmul(%c, %w, "
    "transpose_a=true) return %r }",
};

GPU_TESTS(gpu_mma, fuses, FLOATS *(sizeof fused / sizeof *fused)) {
    static const int64_t at[][4] = {{3, 7, 2, 1}, {64, 64, 64, 1}, {33, 80, 68, 1}, {8, 600, 40, 1}, {70, 24, 9, 1}};
    char text[500];
    if (!begin()) return;
    gpu_fusions = 2;
    write_program(text, fused[*number / FLOATS], types[*number % FLOATS].t, types[*number % FLOATS].t);
    for (size_t k = 0; k < sizeof at / sizeof *at; k++)
        if (!is_left_out(*number + (int)k, at[k]))
            check(text, (domain){-4, 4, k == 0 ? SPECIAL_SOME : SPECIAL_NONE, false}, at[k], one_thread, k == 2, 1);
    rt_cache_close(cache);
}

/* Aligned operands: products by the instruction, as many as the tiles have; every byte of the operands read once for
 * each tile of the other; no conflicts. */
GPU_TESTS(gpu_mma, has_no_conflicts, 4 * 4) {
    static const int64_t of_tile[][4] = {{1024, 64, 2048, 1}, {64, 128, 64, 1}, {16, 128, 128, 1}, {128, 128, 16, 1}};
    const int64_t *s = of_tile[*number % 4];
    ptx_counts counts = {0};
    char text[400];
    if (is_left_out(*number, s) || !begin()) return;
    write_program(text, layouts[*number / 4], FUSOR_BF16, FUSOR_BF16);
    gpu_counts = &counts;
    check(text, (domain){-4, 4, SPECIAL_NONE, false}, s, one_thread, false, 1);
    gpu_counts = NULL;
    if (gpu_ends_uncounted()) return;
    const uint64_t m = (uint64_t)s[0], k = (uint64_t)s[1], n = (uint64_t)s[2], products = m * k * n;
    const uint64_t tiles_m = m > 128 ? m / 128 : 1, tiles_n = n > 128 ? n / 128 : 1;
    cr_expect_eq(counts.mma, products / (16 * 8 * 16), "%llu instructions for %llu products",
                 (unsigned long long)counts.mma, (unsigned long long)products);
    cr_expect_eq(counts.worst_ways, 1, "%s: %d ways at line %d of the PTX", text, counts.worst_ways, counts.worst_line);
    const uint64_t bytes = 2 * (m * k * tiles_n + n * k * tiles_m + m * n);
    cr_expect_eq(counts.global_bytes, bytes, "%llu bytes, not %llu", (unsigned long long)counts.global_bytes,
                 (unsigned long long)bytes);
    rt_cache_close(cache);
}

/* ---- the tiles of large results, on small ones: that of mma, and those of wgmma on sm_90a ---- */
enum { N_LARGE = 3 };
static void choose_large(int number) {
    static const int tiles[N_LARGE] = {0, 4, 5};
    gpu_tile = tiles[number];
    gpu_level = number ? IR_LEVEL_SM90A : IR_LEVEL_SM80;
}

GPU_TESTS(gpu_mma, large_tiles_agree, N_LARGE *FLOATS *(sizeof layouts + sizeof fused) / sizeof *layouts) {
    static const int64_t at[][4] = {
        {64, 64, 72, 1}, {136, 200, 264, 1}, {131, 72, 300, 2}, {33, 9, 17, 2}, {16, 1040, 24, 1}};
    const int type = *number / N_LARGE % FLOATS, program = *number / N_LARGE / FLOATS,
              n_layouts = sizeof layouts / sizeof *layouts;
    char text[500];
    if (!begin()) return;
    choose_large(*number % N_LARGE);
    write_program(text, program < n_layouts ? layouts[program] : fused[program - n_layouts], types[type].t,
                  types[type].t);
    for (int k = type == 0 ? 0 : 2; k < 5; k++)
        if (!is_left_out(*number + k, at[k]))
            check(text, (domain){-4, 4, k == 0 ? SPECIAL_SOME : SPECIAL_NONE, false}, at[k], one_thread, false, 1);
    rt_cache_close(cache);
}

/* Blocks that make one tile after the other: their stages go on where they were, whatever the tiles' lengths. */
GPU_TESTS(gpu_mma, blocks_go_on, 2 * 3 * 4) {
    static const int64_t at[][4] = {{200, 200, 264, 2}, {131, 72, 300, 3}, {72, 0, 520, 2}, {130, 1030, 257, 1}};
    static const int programs[] = {4, 1, 5};
    char text[400];
    if (is_left_out(*number, at[*number / 6]) || !begin()) return;
    choose_large(1 + *number % 2);
    gpu_most_blocks = 1 + *number / 2 % 2;
    write_program(text, layouts[programs[*number / 2 % 3]], FUSOR_F16, FUSOR_F16);
    check(text, (domain){-4, 4, SPECIAL_NONE, false}, at[*number / 6], one_thread, false, 1);
    gpu_most_blocks = 0;
    rt_cache_close(cache);
}

/* Parts of k, of large tiles, by instructions of the size that each has. */
GPU_TESTS(gpu_mma, large_tiles_have_no_conflicts, N_LARGE * 5) {
    static const uint64_t m = 128, k = 256, n = 256;
    ptx_counts counts = {0};
    char text[400];
    if (is_left_out(*number, (int64_t[4]){m, k, n, 1}) || !begin()) return;
    choose_large(*number % N_LARGE);
    const bool is_computed = *number / N_LARGE == 4; /* of f32 */
    write_program(text, is_computed ? fused[5] : layouts[*number / N_LARGE], FUSOR_BF16, FUSOR_BF16);
    gpu_counts = &counts;
    check(text, (domain){-4, 4, SPECIAL_NONE, false}, (int64_t[4]){m, k, n, 1}, one_thread, false, 1);
    gpu_counts = NULL;
    if (gpu_ends_uncounted()) return;
    const uint64_t columns = *number % N_LARGE == 2 ? 256 : 128;
    if (*number % N_LARGE == 0) cr_expect_eq(counts.mma, m * n * k / (16 * 8 * 16));
    else cr_expect_eq(counts.wgmma, 4 * m * n * k / (64 * columns * 16)); /* by four warps each */
    cr_expect_eq(counts.worst_ways, 1, "%s: %d ways at line %d of the PTX", text, counts.worst_ways, counts.worst_line);
    const uint64_t read = m * k * (n / columns) + n * k, bytes = 2 * (m * n + read) + (is_computed ? 2 * read : 0);
    cr_expect_eq(counts.global_bytes, bytes, "%llu bytes, not %llu", (unsigned long long)counts.global_bytes,
                 (unsigned long long)bytes);
    rt_cache_close(cache);
}

/* Results with enough of the large tiles that sizes alone ask for them: more than an interpreter does in its time. */
GPU_TESTS(gpu_mma, large_results_agree, FLOATS * 4) {
    static const int64_t at[][4] = {{1920, 64, 2048, 1}, {1931, 72, 2100, 1}, {1024, 200, 2056, 1}};
    char text[400];
    if (!on_machine()) cr_skip_test("no device: bench/gpu/run.sh runs it on one");
    if (!begin()) return;
    write_program(text, layouts[*number / FLOATS], types[*number % FLOATS].t, types[*number % FLOATS].t);
    for (int k = 0; k < 3; k++) check(text, (domain){-4, 4, SPECIAL_NONE, false}, at[k], one_thread, false, 1);
    rt_cache_close(cache);
}

/* ---- sizes that the program knows: code for one tile, which the sizes ask for ---- */
static const struct {
    const char *text;
    ir_level level;
    int tile;
} known[] = {
    {"func @f(%x: f32[40, 256, 24], %y: f32[24, 256]) -> f32[40, 256, 256] { %r = matmul(%x, %y) return %r }",
     IR_LEVEL_SM80, IR_GPU_FMA_LARGE},
    {"func @f(%x: f32[70, 1100], %y: f32[1100, 90]) -> f32[70, 90] { %r = matmul(%x, %y) return %r }", IR_LEVEL_SM80,
     IR_GPU_FMA_SMALL},
    {"func @f(%x: f32[9, 70], %y: f32[70, 300]) -> f32[9, 300] { %r = matmul(%x, %y) return %r }", IR_LEVEL_SM70,
     IR_GPU_FMA_FLAT},
    {"func @f(%x: f32[300, 70], %y: f32[70, 9]) -> f32[300, 9] { %r = matmul(%x, %y) return %r }", IR_LEVEL_SM80,
     IR_GPU_FMA_TALL},
    {"func @f(%x: f32[2, 8, 9, 12], %w: f32[20, 8, 3, 3]) -> f32[2, 20, 7, 10] { %r = conv(%x, %w) return %r }",
     IR_LEVEL_SM80, IR_GPU_FMA_SMALL},
    {"func @f(%x: bf16[40, 200, 40], %y: bf16[40, 300]) -> bf16[40, 200, 300] { %r = matmul(%x, %y) return %r }",
     IR_LEVEL_SM80, 0},
    {"func @f(%x: bf16[70, 1200], %y: bf16[1200, 90]) -> bf16[70, 90] { %r = matmul(%x, %y) return %r }",
     IR_LEVEL_SM90A, 1},
    {"func @f(%x: f16[9, 70], %y: f16[70, 300]) -> f16[9, 300] { %r = matmul(%x, %y) return %r }", IR_LEVEL_SM80, 2},
    {"func @f(%x: f16[300, 70], %y: f16[70, 9]) -> f16[300, 9] { %r = matmul(%x, %y) return %r }", IR_LEVEL_SM90A, 3},
    {"func @f(%x: bf16[130, 128, 40], %y: bf16[40, 128]) -> bf16[130, 128, 128] { %r = matmul(%x, %y) return %r }",
     IR_LEVEL_SM90A, 5},
    {"func @f(%x: bf16[2, 16, 9, 12], %w: bf16[20, 16, 3, 3]) -> bf16[2, 20, 7, 10] { %r = conv(%x, %w) return %r }",
     IR_LEVEL_SM80, 1},
};
/* Its text is read back, and no other number. */
static void reads_tile(const char *description, const char *form) {
    static const char *const wrong[] = {"form tile -1\n", "form tile 31\n", "form tile 2147483647\n", "form tile 1 2\n",
                                        "form tile\n"};
    static ir_kernel k;
    fu_error e;
    char text[8192];
    const char *at = strstr(description, form);
    fu_error_clear(&e);
    cr_assert_eq(ir_kernel_parse(&e, description, strlen(description), &k), FUSOR_OK, "%s", e.text);
    cr_expect_eq(k.only_tile - 1, atoi(form + strlen("form tile ")));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - description), description, wrong[i], at + strlen(form));
        fu_error_clear(&e);
        cr_expect(ir_kernel_parse(&e, text, strlen(text), &k) != FUSOR_OK || ir_kernel_verify(&k, &e) != FUSOR_OK,
                  "accepted: %s", wrong[i]);
    }
}

GPU_TESTS(gpu_mma, known_sizes_have_one_tile, sizeof known / sizeof *known) {
    char form[40];
    if (!begin()) return;
    gpu_level = known[*number].level;
    snprintf(form, sizeof form, "form tile %d\n", known[*number].tile);
    check(known[*number].text, (domain){-4, 4, SPECIAL_NONE, false}, (int64_t[4]){1, 1, 1, 1}, one_thread, false, 1);
    bool has_form = on_machine();
    for (const gpu_kernel *k = gpu_kernels; k; k = k->next) {
        if (!strstr(k->description, form)) continue;
        has_form = true;
        reads_tile(k->description, form);
    }
    cr_expect(has_form, "%s: not %s", known[*number].text, form);
    rt_cache_close(cache);
}

/* ---- tf32, in the fast tier alone ---- */
GPU_TESTS(gpu_mma, tf32_is_within_its_bound, 2 * sizeof layouts / sizeof *layouts) {
    static const int64_t at[][4] = {
        {64, 64, 72, 1}, {33, 9, 18, 2}, {7, 300, 40, 1}, {40, 68, 12, 1}, {130, 36, 24, 1}};
    ptx_counts counts = {0};
    char text[400];
    if (!begin()) return;
    write_program(text, layouts[*number / 2], FUSOR_F32, FUSOR_F32);
    gpu_is_fast = true;
    gpu_tile = *number % 2 ? 0 : -1;
    for (int k = 0; k < 5; k++) {
        gpu_counts = k ? NULL : &counts;
        check(text, (domain){-4, 4, SPECIAL_NONE, false}, at[k], one_thread, k == 2, 1);
    }
    if (gpu_ends_uncounted()) return;
    cr_expect_gt(counts.mma, 0, "%s has no instruction of tensor cores", text);
    cr_expect_eq(counts.worst_ways, 1, "%s: %d ways at line %d of the PTX", text, counts.worst_ways, counts.worst_line);
    gpu_is_fast = false;
    gpu_tile = -1;
    gpu_counts = &counts;
    counts = (ptx_counts){0};
    check(text, (domain){-4, 4, SPECIAL_NONE, false}, at[1], one_thread, false, 1);
    gpu_counts = NULL;
    cr_expect_eq(counts.mma, 0, "%s rounds f32 that nobody allowed it to", text);
    rt_cache_close(cache);
}
