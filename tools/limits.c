/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* limits.c: measures peak f32 arithmetic (independent chains of multiply-adds in registers, with the widest vectors granted) and
 * memory bandwidth (a = b + c over arrays well past the last-level cache's share; every byte read or written counted once). */
#include "limits.h"
#include "base/file.h"
#include "base/log.h"
#include "rt/cpuinfo.h"
#include "rt/threads.h"
#include <stdlib.h>

enum { CHAINS = 12, ROUNDS = 4096 };

/* One body for each vector width; the attribute lets the compiler use the instructions that the caller checked. */
#define PEAK(NAME, TARGET, LANES)                                                                                       \
    typedef float NAME##_vector __attribute__((vector_size(4 * LANES)));                                                \
    __attribute__((target(TARGET), optimize("O2", "fp-contract=fast"), noinline)) static float NAME(float seed) {      \
        NAME##_vector a[CHAINS], m, c;                                                                                  \
        for (int i = 0; i < LANES; i++) m[i] = 0.999999f, c[i] = 1e-6f * seed;                                           \
        for (int k = 0; k < CHAINS; k++) a[k] = m * (float)k;                                                           \
        for (int r = 0; r < ROUNDS; r++)                                                                                \
            _Pragma("GCC unroll 12") for (int k = 0; k < CHAINS; k++) a[k] = a[k] * m + c;                               \
        float s = 0;                                                                                                    \
        for (int k = 0; k < CHAINS; k++) s += a[k][0] + a[k][LANES - 1];                                                \
        return s;                                                                                                       \
    }
PEAK(peak_v2, "sse4.2", 4)
PEAK(peak_v3, "avx2,fma", 8)
PEAK(peak_v4, "avx512f", 16)

typedef struct job { float (*peak)(float); float *a, *b, *c; int64_t n; volatile float sink; } job;

static void peak_tile(void *user, int worker, int64_t begin, int64_t end) {
    job *j = user;
    for (int64_t i = begin; i < end; i++) j->sink = j->peak((float)(worker + 1));
}

__attribute__((optimize("O3"))) static void add(float *restrict a, const float *restrict b, const float *restrict c, int64_t n) {
    for (int64_t i = 0; i < n; i++) a[i] = b[i] + c[i];
}

enum { CHUNK = 1 << 16 };
static void bandwidth_tile(void *user, int worker, int64_t begin, int64_t end) {
    job *j = user;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i * CHUNK, n = j->n - at < CHUNK ? j->n - at : CHUNK;
        add(j->a + at, j->b + at, j->c + at, n);
    }
}

static double best_seconds(int n_threads, int64_t n_tiles, rt_tile_fn fn, job *j, double seconds) {
    double best = 1e30;
    for (int64_t start = fu_now_ns(), runs = 0; runs < 3 || (double)(fu_now_ns() - start) < seconds * 1e9; runs++) {
        int64_t from = fu_now_ns();
        rt_parallel(n_threads, n_tiles, fn, j, NULL);
        double took = (double)(fu_now_ns() - from) * 1e-9;
        if (took < best) best = took;
    }
    return best;
}

static limits measure(int n_threads) {
    limits l = {.n_threads = n_threads, .is_known = true};
    int level = rt_host_level();
    job j = {.peak = level >= IR_LEVEL_V4 ? peak_v4 : level >= IR_LEVEL_V3 ? peak_v3 : peak_v2};
    double lanes = level >= IR_LEVEL_V4 ? 16 : level >= IR_LEVEL_V3 ? 8 : 4;
    int64_t tiles = 32 * (int64_t)n_threads;
    l.flops = 2.0 * lanes * CHAINS * ROUNDS * (double)tiles / best_seconds(n_threads, tiles, peak_tile, &j, 0.1);
    j.n = (int64_t)16 << 20;        /* 3 x 64 MB */
    j.a = calloc((size_t)j.n, sizeof(float));
    j.b = calloc((size_t)j.n, sizeof(float));
    j.c = calloc((size_t)j.n, sizeof(float));
    if (j.a && j.b && j.c) {
        memset(j.b, 1, (size_t)j.n * sizeof(float));
        memset(j.c, 1, (size_t)j.n * sizeof(float));
        l.bytes = 12.0 * (double)j.n / best_seconds(n_threads, (j.n + CHUNK - 1) / CHUNK, bandwidth_tile, &j, 0.15);
    }
    free(j.a);
    free(j.b);
    free(j.c);
    return l;
}

static const char *file_of(tool *t, int n_threads) {
    const char *dir = t->ctx ? fusor_cache_directory(t->ctx) : "";
    return dir[0] ? fu_format(&t->arena, "%s/limits-%d", dir, n_threads) : NULL;
}

static void keep(tool *t, const limits *l) {
    const char *file = file_of(t, l->n_threads);
    if (!file || (t->cache && (strcmp(t->cache, "off") == 0 || strcmp(t->cache, "ro") == 0))) return;
    const char *text = fu_format(&t->arena, "fusor-limits 1 level %d flops %.6g bytes %.6g on %s\n", rt_host_level(), l->flops, l->bytes, rt_host_brand());
    fu_part part = {text, strlen(text)};
    (void)fu_file_write_atomic(file, 0600, &part, 1);       /* not kept: measured again */
}

limits limits_get(tool *t, int n_threads, bool again) {
    limits l = {0};
    const char *file = file_of(t, n_threads), *brand = rt_host_brand();
    int level = rt_host_level();
    void *data = NULL;
    size_t n;
    char known[128] = "";
    if (file && !again && fu_file_read(file, 4096, &data, &n) == 0) {
        int at = 0;
        if (sscanf(data, "fusor-limits 1 level %d flops %lf bytes %lf on %n%127[^\n]", &l.n_threads, &l.flops, &l.bytes, &at, known) >= 3 &&
            l.n_threads == level && strcmp(known, brand) == 0 && l.flops > 0)
            l.is_known = true;
        l.n_threads = n_threads;
        fu_free(data);
        if (l.is_known) return l;
    }
    l = measure(n_threads);
    keep(t, &l);
    return l;
}

void limits_beside(tool *t, limits *l, double flops_per_s) {
    if (!l->is_known || flops_per_s <= l->flops) return;
    limits again = measure(l->n_threads);
    if (again.flops > l->flops) l->flops = again.flops;
    if (again.bytes > l->bytes) l->bytes = again.bytes;
    if (flops_per_s > l->flops) l->flops = flops_per_s;
    keep(t, l);
}

const char *limits_share(tool *t, const limits *l, double bytes_per_s, double flops_per_s) {
    if (!l->is_known || l->flops <= 0 || l->bytes <= 0) return "";
    double memory = bytes_per_s / l->bytes, compute = flops_per_s / l->flops;
    return memory >= compute ? fu_format(&t->arena, "%.0f%% of memory bandwidth", 100 * memory)
                             : fu_format(&t->arena, "%.0f%% of peak arithmetic", 100 * compute);
}
