/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_attention_test.c: attention by wgmma (gpu_run.h) against the reference evaluator: head sizes, edges of the blocks
 * of queries and keys, bounds, masks, operands that are copied, computed or strided, keys in parts; that it is by wgmma
 * with no conflict of banks; that queries do not depend on those beside them. */
#include "gpu_check.h"

static const ir_dtype types[2] = {FUSOR_BF16, FUSOR_F16};

/* T: the type. */
static void write_program(char *to, const char *from, ir_dtype t) {
    to += sprintf(to, "func @f");
    for (const char *c = from; *c; c++)
        to += sprintf(to, "%.*s", *c == 'T' ? (int)strlen(ir_dtypes[t].name) : 1, *c == 'T' ? ir_dtypes[t].name : c);
}

typedef struct sized {
    const char *text;
    int64_t size[3][4];
} sized;

#define ONE "(%q: T[A, 64], %k: T[B, 64], %v: T[B, 64]) -> T[A, 64] { %y = attention(%q, %k, %v"
static const sized cases[] = {
    {"(%q: T[A, 128], %k: T[B, 128], %v: T[B, 128]) -> T[A, 128] { %y = attention(%q, %k, %v, causal=true, "
     "causal_offset=70) return %y }",
     {{400, 450, 1, 1}, {65, 200, 1, 1}, {193, 30, 1, 1}}},
    {ONE ") return %y }", {{17, 64, 1, 1}, {64, 65, 1, 1}, {200, 300, 1, 1}}},
    {ONE ", causal=true) return %y }", {{64, 64, 1, 1}, {129, 129, 1, 1}, {257, 257, 1, 1}}},
    {ONE ", causal=true, causal_offset=100) return %y }", {{30, 130, 1, 1}, {130, 229, 1, 1}, {150, 40, 1, 1}}},
    {ONE ", window=[70, 9]) return %y }", {{300, 300, 1, 1}, {140, 20, 1, 1}, {100, 301, 1, 1}}},
    {ONE ", window=[-1, 2], scale=-0.3) return %y }", {{150, 130, 1, 1}, {20, 10, 1, 1}, {64, 64, 1, 1}}},
    {ONE ", softcap=3) return %y }", {{70, 70, 1, 1}, {20, 10, 1, 1}, {64, 64, 1, 1}}},
    {ONE ", scale=0) return %y }", {{70, 70, 1, 1}, {130, 10, 1, 1}, {20, 0, 1, 1}}},
    {"(%q: T[6, A, 64], %k: T[2, B, 64], %v: T[2, B, 64]) -> T[6, A, 64] { %y = attention(%q, %k, %v, causal=true) "
     "return %y }",
     {{66, 66, 1, 1}, {20, 50, 1, 1}, {130, 20, 1, 1}}},
    {"(%q: T[A, C], %k: T[B, C], %v: T[B, D]) -> T[A, D] { %y = attention(%q, %k, %v) return %y }",
     {{70, 130, 24, 40}, {20, 66, 33, 7}, {40, 70, 1, 1}}},
    {"(%q: T[A, C], %k: T[B, C], %v: T[B, D]) -> T[A, D] { %y = attention(%q, %k, %v, causal=true) return %y }",
     {{200, 200, 128, 128}, {80, 66, 80, 96}, {40, 70, 65, 70}}},
    {"(%q: T[A, C], %k: T[B, C], %v: T[B, D]) -> T[A, D] { %y = attention(%q, %k, %v, window=[60, 60]) return %y }",
     {{200, 200, 64, 128}, {80, 66, 128, 64}, {40, 70, 120, 200}}},
    {"(%q: T[2, A, 64], %k: T[2, B, 64], %v: T[2, B, 64], %m: bool[A, B]) -> f32[2, A, 64] { %y = attention(%q, %k, "
     "%v, %m, dtype=f32) %r = abs(%y) return %r }",
     {{70, 130, 1, 1}, {20, 66, 1, 1}, {129, 65, 1, 1}}},
    {"(%q: T[A, 64], %k: T[B, 64], %v: T[B, 64], %m: bool[A, B]) -> T[A, 64] { %y = attention(%q, %k, %v, %m, "
     "causal=true, softcap=4) return %y }",
     {{200, 200, 1, 1}, {130, 66, 1, 1}, {100, 300, 1, 1}}},
    {"(%q: T[2, A, 128], %k: T[2, B, 128], %v: T[2, B, 40], %m: T[A, B]) -> T[2, A, 40] { %n = neg(%k) %y = "
     "attention(%q, %n, %v, %m, window=[60, 9]) return %y }",
     {{80, 90, 1, 1}, {193, 66, 1, 1}, {17, 200, 1, 1}}},
    {"(%q: T[A, 64], %k: T[B, 64], %v: T[B, 64], %m: T[A, B]) -> T[A, 64] { %y = attention(%q, %k, %v, %m) return %y }",
     {{40, 0, 1, 1}, {70, 191, 1, 1}, {130, 128, 1, 1}}},
    {"(%q: T[A, 40, 64], %k: T[B, 40, 64], %v: T[B, 40, 64]) -> T[40, A, 64] { %a = transpose(%q, perm=[1, 0, 2]) %b = "
     "transpose(%k, perm=[1, 0, 2]) %c = transpose(%v, perm=[1, 0, 2]) %y = attention(%a, %b, %c) return %y }",
     {{18, 20, 1, 1}, {20, 70, 1, 1}, {18, 1, 1, 1}}},
    {"(%q: T[A, 64], %k: T[64, B], %v: T[64, B]) -> T[A, 64] { %b = transpose(%k) %c = transpose(%v) %n = neg(%q) %y = "
     "attention(%n, %b, %c, causal=true) return %y }",
     {{70, 70, 1, 1}, {20, 200, 1, 1}, {130, 10, 1, 1}}},
    {"(%q: T[A, 128], %k: T[B, 128], %v: T[B, 128]) -> f32[A, 128] { %y = attention(%q, %k, %v, causal=true, "
     "causal_offset=1000, dtype=f32) return %y }",
     {{18, 1030, 1, 1}, {200, 1100, 1, 1}, {20, 2000, 1, 1}}},
    {ONE ", window=[700, 100], causal_offset=900) return %y }", {{40, 1500, 1, 1}, {150, 1100, 1, 1}, {17, 900, 1, 1}}},
    /* NaN behind the last key that a query sees */
    {"(%q: T[A, 64], %k: T[B, 64], %v: T[B, 64]) -> T[A, 64] { %i = iota(shape=[B, 1], axis=0, dtype=i64) %e = ge(%i, "
     "100) %n = select(%e, nan, %v) %m = select(%e, nan, %k) %s = softmax(%n, axis=-1) %y = attention(%q, %m, %s, "
     "window=[-1, 2], causal_offset=57) return %y }",
     {{40, 150, 1, 1}, {40, 100, 1, 1}, {20, 500, 1, 1}}},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static void check_case(const sized *c, ir_level level, ir_dtype t) {
    char text[1000];
    if (!begin()) return;
    gpu_level = level;
    write_program(text, c->text, t);
    for (int s = 0; s < 3; s++)
        for (int strided = 0; strided < 2; strided++)
            check(text, (domain){-3, 3, SPECIAL_NONE, false}, c->size[s], one_thread, strided, 1);
    rt_cache_close(cache);
}

GPU_TESTS(gpu_attention, agrees_with_the_reference, 2 * N_CASES) {
    check_case(&cases[*number / 2], IR_LEVEL_SM90A, types[*number % 2]);
}

GPU_TESTS(gpu_attention, is_by_wgmma_without_conflicts, 4) {
    static const char *const texts[2] = {
        ONE ", causal=true) return %y }",
        "(%q: T[A, 128], %k: T[B, 128], %v: T[B, 128]) -> T[A, 128] { %y = attention(%q, %k, %v) return %y }"};
    ptx_counts counts = {0};
    char text[400];
    if (!begin()) return;
    gpu_level = IR_LEVEL_SM90A;
    write_program(text, texts[*number / 2], types[*number % 2]);
    gpu_counts = &counts;
    check(text, (domain){-3, 3, SPECIAL_NONE, false}, (int64_t[4]){192, 192, 1, 1}, one_thread, false, 1);
    gpu_counts = NULL;
    if (gpu_ends_uncounted()) return;
    cr_expect_gt(counts.wgmma, 0, "%s is not by wgmma", text);
    cr_expect_eq(counts.mma, 0);
    cr_expect_eq(counts.worst_ways, 1, "%s: %d ways at line %d of the PTX", text, counts.worst_ways, counts.worst_line);
    rt_cache_close(cache);
}

/* Up to 16 queries (gpu_attention_few.c): rows of heads that share keys, sizes that are no whole pieces, keys in parts,
 * bounds, masks as they lie. */
#define SHARED "(%q: T[2, 6, A, 64], %k: T[2, 2, B, 64], %v: T[2, 2, B, 64]"
#define RUN    ") -> T[2, 6, A, 64] { %y = attention(%q, %k, %v"
static const sized few_cases[] = {
    {"(%q: T[3, A, 64], %k: T[3, B, 64], %v: T[3, B, 64]) -> T[3, A, 64] { %y = attention(%q, %k, %v) return %y }",
     {{1, 100, 1, 1}, {16, 65, 1, 1}, {7, 1100, 1, 1}}},
    {SHARED RUN ") return %y }", {{1, 70, 1, 1}, {5, 64, 1, 1}, {7, 600, 1, 1}}},
    {SHARED RUN ", causal=true, causal_offset=50) return %y }", {{3, 64, 1, 1}, {9, 200, 1, 1}, {1, 30, 1, 1}}},
    {SHARED RUN ", window=[20, 5], causal_offset=500) return %y }", {{8, 800, 1, 1}, {1, 520, 1, 1}, {16, 400, 1, 1}}},
    {SHARED ", %m: bool[2, 1, 1, B]" RUN ", %m) return %y }", {{1, 71, 1, 1}, {4, 128, 1, 1}, {2, 1, 1, 1}}},
    {SHARED ", %m: f32[6, A, B]" RUN ", %m, dtype=T) return %y }", {{1, 64, 1, 1}, {3, 90, 1, 1}, {6, 77, 1, 1}}},
    {SHARED ", %m: T[2, 6, 1, B]" RUN ", %m, softcap=4, scale=-0.3) return %y }",
     {{1, 65, 1, 1}, {4, 200, 1, 1}, {2, 530, 1, 1}}},
    {SHARED ", %m: bool[A, B]" RUN ", %m, causal=true, causal_offset=9) return %y }",
     {{2, 20, 1, 1}, {5, 64, 1, 1}, {16, 17, 1, 1}}},
    {"(%q: T[A, C], %k: T[B, C], %v: T[B, D]) -> T[A, D] { %y = attention(%q, %k, %v, scale=0.1) return %y }",
     {{5, 70, 80, 96}, {16, 66, 8, 128}, {1, 700, 128, 40}}},
    /* heads and values of less than what four, or eight, lanes read */
    {"(%q: T[A, C], %k: T[B, C], %v: T[B, D]) -> T[A, D] { %y = attention(%q, %k, %v) return %y }",
     {{1, 64, 8, 32}, {1, 256, 16, 32}, {1, 128, 64, 8}}},
    {"(%q: T[2, A, 128], %k: T[2, B, 128], %v: T[2, B, 128], %r: f32[2, A, 128]) -> f32[2, A, 128] { %y = "
     "attention(%q, %k, %v, dtype=f32) %s = add(%y, %r) %a = abs(%y) %o = sub(%s, %a) return %o }",
     {{1, 100, 1, 1}, {3, 900, 1, 1}, {2, 0, 1, 1}}},
    {"(%q: T[A, 4, 64], %k: T[B, 2, 64], %v: T[B, 2, 64]) -> T[A, 4, 64] { %a = transpose(%q, perm=[1, 0, 2]) %b = "
     "transpose(%k, perm=[1, 0, 2]) %c = transpose(%v, perm=[1, 0, 2]) %y = attention(%a, %b, %c) %z = transpose(%y, "
     "perm=[1, 0, 2]) return %z }",
     {{1, 20, 1, 1}, {9, 70, 1, 1}, {4, 1, 1, 1}}},
    {"(%q: T[A, 64], %k: T[B, 64], %v: T[B, 64]) -> T[A, 64] { %i = iota(shape=[B, 1], axis=0, dtype=i64) %e = ge(%i, "
     "58) %n = select(%e, nan, %v) %y = attention(%q, %k, %v, window=[-1, 2], causal_offset=50) %z = attention(%q, %n, "
     "%n, window=[-1, 2], causal_offset=50) %o = add(%y, %z) return %o }",
     {{4, 80, 1, 1}, {1, 60, 1, 1}, {4, 58, 1, 1}}},
};
enum { N_FEW_CASES = sizeof few_cases / sizeof *few_cases };

GPU_TESTS(gpu_attention, of_few_queries, 4 * N_FEW_CASES) {
    check_case(&few_cases[*number / 4], *number & 1 ? IR_LEVEL_SM90A : IR_LEVEL_SM80, types[*number >> 1 & 1]);
}

GPU_TESTS(gpu_attention, of_few_queries_reads_keys_once, 4) {
    ptx_counts counts = {0};
    char text[400];
    if (!begin()) return;
    gpu_level = *number & 1 ? IR_LEVEL_SM90A : IR_LEVEL_SM80;
    write_program(text, SHARED RUN ") return %y }", types[*number >> 1]);
    gpu_counts = &counts;
    check(text, (domain){-3, 3, SPECIAL_NONE, false}, (int64_t[4]){1, 256, 1, 1}, one_thread, false, 1);
    gpu_counts = NULL;
    if (gpu_ends_uncounted()) return;
    cr_expect_eq(counts.wgmma, 0);
    /* of 16 keys and 16 rows: 2 x 4 products of scores, 8 x 2 of weights in two parts; two heads of two batches */
    cr_expect_eq(counts.mma, 4 * 256 / 16 * (2 * 4 + 8 * 2), "%llu products", (unsigned long long)counts.mma);
    rt_cache_close(cache);
}

/* ---- masks that are added, of keys that are as good as hidden by a number that is finite ---- */
/* From key `hidden(query)` on a query's keys have a mask of 0, those in front `far`. A score to which it was added is
 * nothing else any more, so without another key the result is the values' mean. */
static int64_t hidden(int64_t query, int64_t keys) {
    const int64_t n[] = {32, keys / 2, keys, keys - 1, 0, 64, 128};
    return n[query % 7] < keys ? n[query % 7] : keys;
}

static double weight_of(const ref_tensor *q, const ref_tensor *k, int64_t query, int64_t key, double cap) {
    double s = 0;
    for (int i = 0; i < 64; i++) s += at(q, query * 64 + i) * at(k, key * 64 + i) / 8;
    return exp(cap > 0 ? cap * tanh(s / cap) : s);
}

typedef struct far_case {
    const char *text;
    double cap, sign; /* of the mask that is given */
} far_case;
#define FAR "(%q: T[A, 64], %k: T[B, 64], %v: T[B, 64], %m: f32[A, B]) -> f32[A, 64] { "
static const far_case far_cases[] = {
    {FAR "%y = attention(%q, %k, %v, %m, dtype=f32) return %y }", 0, 1},
    {FAR "%n = neg(%m) %y = attention(%q, %k, %v, %n, dtype=f32, softcap=2) return %y }", 2, -1},
};

static void check_far(const far_case *c, ir_level level, ir_dtype t, int64_t queries, int64_t keys, float far) {
    char text[400];
    ref_tensor in[4] = {{.dtype = t, .rank = 2, .shape = {queries, 64}},
                        {.dtype = t, .rank = 2, .shape = {keys, 64}},
                        {.dtype = t, .rank = 2, .shape = {keys, 64}},
                        {.dtype = FUSOR_F32, .rank = 2, .shape = {queries, keys}}};
    fusor_buffer b[4], out = {.dtype = FUSOR_F32, .rank = 2, .shape = {queries, 64}};
    for (int i = 0; i < 4; i++) {
        in[i].data = malloc(bytes_of(&in[i]));
        if (i < 3) fill(&in[i], (uint64_t)i, -1, 1, SPECIAL_NONE);
        b[i] = describe(&in[i], in[i].data);
    }
    float *mask = in[3].data, *y = calloc((size_t)queries * 64, sizeof *y);
    for (int64_t i = 0; i < queries * keys; i++) mask[i] = i % keys < hidden(i / keys, keys) ? far * (float)c->sign : 0;
    out.data = y;
    write_program(text, c->text, t);
    rt_exec *x =
        build(&error, cache, text,
              (setup){.level = gpu_level_for(level), .n_threads = 1, .launch = GPU_LAUNCH, .queue = GPU_QUEUE});
    cr_assert(x, "%s: %s", text, error.text);
    cr_assert_eq(rt_exec_call(x, &error, 4, b, 1, &out), FUSOR_OK, "%s: %s", text, error.text);
    for (int64_t i = 0; i < queries; i++) {
        const int64_t n = hidden(i, keys);
        const bool takes_far = n == keys || (far > 0 && n > 0);
        double want[64] = {0}, sum = 0;
        for (int64_t j = takes_far ? 0 : n; j < (takes_far ? n : keys); j++) {
            const double w = takes_far ? 1 : weight_of(&in[0], &in[1], i, j, c->cap);
            for (int v = 0; v < 64; v++) want[v] += w * at(&in[2], j * 64 + v);
            sum += w;
        }
        for (int v = 0; v < 64; v++)
            cr_assert(fabs(y[i * 64 + v] - want[v] / sum) < 1e-4,
                      "%s A=%lld B=%lld for %s, mask %g: %g of query %lld, not %g", text, (long long)queries,
                      (long long)keys, ir_levels[level].short_name, (double)far, (double)y[i * 64 + v], (long long)i,
                      want[v] / sum);
    }
    for (int i = 0; i < 4; i++) free(in[i].data);
    free(y);
    rt_exec_release(x);
}

GPU_TESTS(gpu_attention, bears_masks_of_large_numbers, 12) {
    static const float far[] = {-1e9f, -1e10f, -1e30f, -0x1.fep127f, -0x1.fffffep127f, 1e10f};
    const int form = *number / 4; /* few queries for two levels, wgmma */
    const int64_t queries = form < 2 ? 7 : 20;
    const ir_level level = form == 0 ? IR_LEVEL_SM80 : IR_LEVEL_SM90A;
    if (!begin()) return;
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        check_far(&far_cases[*number & 1], level, types[*number >> 1 & 1], queries, 150, far[i]);
        if (i % 3 == 1) check_far(&far_cases[*number & 1], level, types[*number >> 1 & 1], queries, 1030, far[i]);
    }
    rt_cache_close(cache);
}
