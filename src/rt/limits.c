/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* limits.c: measures peak arithmetic (independent chains of multiply-adds, or of dot products, in registers) for each
 * type that has instructions of its own, and bandwidth (a = b + c; every byte read or written counted once) for arrays
 * that fit each cache level and for ones well past the last. The best of many short runs counts. Kept in a file beside
 * the cache, one for each number of threads. */
#include "rt/limits.h"
#include "base/arena.h"
#include "base/log.h"
#include "rt/cache_entry.h"
#include "rt/cpuinfo.h"
#include "rt/threads.h"
#include <immintrin.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

const char *const rt_limit_type_names[RT_LIMIT_TYPES] = {"f64", "f32", "bf16", "i8"};
const char *const rt_limit_level_names[RT_LIMIT_LEVELS] = {"L1", "L2", "L3", "memory"};

/* CALL_NS: of a kernel's work in nothing but the call; below it no other limit is worth a name. */
enum { CHAINS = 12, ROUNDS = 2048, TILES = 16, ARRAYS = 3, KNOWN = 16, ROUNDS_AT_MOST = 4 };
static const double CALL_NS = 150, SECONDS = 0.03, AT_MOST = 0.15;

/* ---- arithmetic. One body for each vector width; the attribute lets the compiler use the instructions that the caller
 * checked. ---- */
#define PEAK(NAME, TARGET, TYPE, BYTES)                                                                                \
    typedef TYPE NAME##_vector __attribute__((vector_size(BYTES)));                                                    \
    __attribute__((target(TARGET), optimize("O2", "fp-contract=fast"), noinline)) static double NAME(int seed) {       \
        enum { LANES = BYTES / sizeof(TYPE) };                                                                         \
        NAME##_vector a[CHAINS], m, c;                                                                                 \
        for (int i = 0; i < LANES; i++) m[i] = (TYPE)0.999999, c[i] = (TYPE)1e-6 * (TYPE)seed;                         \
        for (int k = 0; k < CHAINS; k++) a[k] = m * (TYPE)k;                                                           \
        for (int r = 0; r < ROUNDS; r++)                                                                               \
            _Pragma("GCC unroll 12") for (int k = 0; k < CHAINS; k++) a[k] = a[k] * m + c;                             \
        double s = 0;                                                                                                  \
        for (int k = 0; k < CHAINS; k++) s += (double)(a[k][0] + a[k][LANES - 1]);                                     \
        return s;                                                                                                      \
    }
#define LEVEL(ID, name, short_name, lanes, bytes, ...)                                                                 \
    PEAK(peak_f32_##ID, "arch=" name, float, bytes)                                                                    \
    PEAK(peak_f64_##ID, "arch=" name, double, bytes)
#include "ir/level.def"
#undef LEVEL

/* Chains of dot products into VECTOR accumulators. */
#define DOT(NAME, TARGET, VECTOR, INPUT, ZERO, STEP)                                                                   \
    __attribute__((target(TARGET), optimize("O2"), noinline)) static double NAME(int seed) {                           \
        VECTOR a[CHAINS];                                                                                              \
        INPUT x = {0};                                                                                                 \
        for (int k = 0; k < CHAINS; k++) a[k] = ZERO(k);                                                               \
        for (int r = 0; r < ROUNDS; r++) _Pragma("GCC unroll 12") for (int k = 0; k < CHAINS; k++) {                   \
                VECTOR next = STEP; /* of a[k] itself the asm would make memory */                                     \
                __asm__ volatile("" : "+v"(next));                                                                     \
                a[k] = next;                                                                                           \
            }                                                                                                          \
        double s = seed;                                                                                               \
        for (int k = 0; k < CHAINS; k++) s += (double)a[k][0];                                                         \
        return s;                                                                                                      \
    }
DOT(peak_bf16_512, "avx512f,avx512bw,avx512bf16", __m512, __m512i, _mm512_set1_ps,
    _mm512_dpbf16_ps(a[k], (__m512bh)x, (__m512bh)x))
DOT(peak_i8_512, "avx512f,avx512bw,avx512vnni", __m512i, __m512i, _mm512_set1_epi32, _mm512_dpbusd_epi32(a[k], x, x))
DOT(peak_i8_256, "avx2,avxvnni", __m256i, __m256i, _mm256_set1_epi32, _mm256_dpbusd_avx_epi32(a[k], x, x))

/* As many products of tiles, into four of them in turn: a sum of one is ready before its turn comes again. */
#define TILE(NAME, TARGET, PRODUCT)                                                                                    \
    __attribute__((target(TARGET), noinline)) static double NAME(int seed) {                                           \
        _Alignas(64) uint8_t config[64] = {1};                                                                         \
        for (int i = 0; i < 8; i++) config[16 + 2 * i] = 64, config[48 + i] = 16;                                      \
        __asm__ volatile("" : : "r"(config) : "memory"); /* of gcc 12's intrinsic, only 8 bytes of it are read */      \
        _tile_loadconfig(config);                                                                                      \
        for (int r = 0; r < ROUNDS * CHAINS / 4; r++) {                                                                \
            PRODUCT(0, 4, 6);                                                                                          \
            PRODUCT(1, 4, 7);                                                                                          \
            PRODUCT(2, 5, 6);                                                                                          \
            PRODUCT(3, 5, 7);                                                                                          \
        }                                                                                                              \
        _tile_release();                                                                                               \
        return seed;                                                                                                   \
    }
TILE(peak_bf16_tile, "amx-tile,amx-bf16", _tile_dpbf16ps)
TILE(peak_i8_tile, "amx-tile,amx-int8", _tile_dpbusd)

typedef struct peak {
    double (*run)(int seed);
    double per_step;
} peak;

static const peak peaks_f32[] = {
#define LEVEL(ID, name, short_name, lanes, bytes, ...) {peak_f32_##ID, 2 * bytes / sizeof(float)},
#include "ir/level.def"
#undef LEVEL
};
static const peak peaks_f64[] = {
#define LEVEL(ID, name, short_name, lanes, bytes, ...) {peak_f64_##ID, 2 * bytes / sizeof(double)},
#include "ir/level.def"
#undef LEVEL
};
/* Of a host below all levels, code of the lowest. */
static int level_of_host(void) { return rt_host_level() < 0 ? 0 : rt_host_level(); }

static peak peak_of(rt_limit_type type) {
    const char *missing;
    size_t n;
    switch (type) {
    case RT_LIMIT_F64: return peaks_f64[level_of_host()];
    case RT_LIMIT_F32: return peaks_f32[level_of_host()];
    case RT_LIMIT_BF16:
        if (rt_host_has("amx-tile,amx-bf16", &missing, &n)) return (peak){peak_bf16_tile, 16 * 16 * 32 * 2};
        return rt_host_has("avx512f,avx512bw,avx512bf16", &missing, &n) ? (peak){peak_bf16_512, 64} : (peak){0};
    default:
        if (rt_host_has("amx-tile,amx-int8", &missing, &n)) return (peak){peak_i8_tile, 16 * 16 * 64 * 2};
        if (rt_host_has("avx512f,avx512bw,avx512vnni", &missing, &n)) return (peak){peak_i8_512, 128};
        return rt_host_has("avx2,avxvnni", &missing, &n) ? (peak){peak_i8_256, 64} : (peak){0};
    }
}

/* ---- bandwidth ---- */
#define ADD(NAME, TARGET)                                                                                              \
    __attribute__((target(TARGET), optimize("O3"), noinline)) static void NAME(                                        \
        float *restrict a, const float *restrict b, const float *restrict c, int64_t n) {                              \
        for (int64_t i = 0; i < n; i++) a[i] = b[i] + c[i];                                                            \
    }
typedef void add(float *restrict a, const float *restrict b, const float *restrict c, int64_t n);
#define LEVEL(ID, name, ...) ADD(add_##ID, "prefer-vector-width=512,arch=" name)
#include "ir/level.def"
#undef LEVEL
static add *const adds[] = {
#define LEVEL(ID, ...) add_##ID,
#include "ir/level.def"
#undef LEVEL
};

typedef struct job {
    peak peak;
    add *add;
    float *memory;
    int64_t n, repeats; /* floats of one array, of one worker; times that a tile walks them */
    bool is_shared;     /* the arrays are one for all workers, tiles are parts of it */
} job;

static void peak_tile(void *user, int worker, int64_t begin, int64_t end) {
    const job *j = user;
    volatile double sink; /* of this worker alone */
    for (int64_t i = begin; i < end; i++) sink = j->peak.run(worker + 1);
    (void)sink;
}

static void bandwidth_tile(void *user, int worker, int64_t begin, int64_t end) {
    job *j = user;
    for (int64_t i = begin; i < end; i++) {
        float *a = j->memory + (j->is_shared ? i : worker) * ARRAYS * j->n;
        for (int64_t k = 0; k < j->repeats; k++) j->add(a, a + j->n, a + 2 * j->n, j->n);
    }
}

static double elapsed(int64_t start) { return (double)(fu_now_ns() - start) * 1e-9; }

/* Where other processes hold a core, runs are few and slow: some more of them, then no more. */
static double best_seconds(int n_threads, int64_t n_tiles, rt_tile_fn fn, job *j) {
    double best = 1e30;
    for (int64_t start = fu_now_ns(), runs = 0; runs < 3 || elapsed(start) < (runs < 8 ? AT_MOST : SECONDS); runs++) {
        int64_t from = fu_now_ns();
        rt_parallel(n_threads, n_tiles, fn, j, NULL);
        double took = (double)(fu_now_ns() - from) * 1e-9;
        if (took < best) best = took;
    }
    return best;
}

/* Bytes of one thread's share of a level. */
static double share_of(rt_limit_level level, int n_threads) {
    const rt_caches *c = rt_host_caches();
    const int sharers = n_threads < c->l3_sharers ? n_threads : c->l3_sharers;
    switch (level) {
    case RT_LIMIT_L1: return (double)c->l1d_bytes;
    case RT_LIMIT_L2: return (double)c->l2_bytes;
    case RT_LIMIT_L3: return (double)c->l3_bytes / (sharers < 1 ? 1 : sharers);
    default: return INFINITY;
    }
}

/* Bytes a second of a level by n_threads threads whose shares are those of `team` threads. */
static double measure_bandwidth(rt_limit_level level, int team, int n_threads) {
    const double share = share_of(level, team), below = level == RT_LIMIT_L1 ? 0 : share_of(level - 1, team);
    const bool is_memory = level == RT_LIMIT_MEMORY;
    job j = {.add = adds[level_of_host()], .is_shared = is_memory, .repeats = 1};
    if (!is_memory && !(share >= 2 * below)) return 0; /* no room of its own: a small L3 over large L2s */
    int64_t tiles = TILES * (int64_t)n_threads, sets = is_memory ? tiles : n_threads;
    /* Half of the level; memory: past any cache's share, and no more than a small machine has. */
    j.n = (int64_t)((is_memory ? (double)(192 << 20) / (double)tiles : share / 2) / (ARRAYS * sizeof(float))) &
          ~(int64_t)15;
    if (j.n < 16) return 0;
    if (!is_memory) j.repeats = 1 + (128 << 10) / (j.n * ARRAYS * (int64_t)sizeof(float));
    const size_t bytes = (size_t)sets * ARRAYS * (size_t)j.n * sizeof(float);
    char *block = fu_malloc(bytes + 64);
    if (!block) return 0;
    j.memory = (float *)(void *)(((uintptr_t)block + 63) & ~(uintptr_t)63);
    memset(j.memory, 0, bytes);
    const double moved = (double)(ARRAYS * sizeof(float)) * (double)j.n * (double)j.repeats * (double)tiles,
                 rate = moved / best_seconds(n_threads, tiles, bandwidth_tile, &j);
    fu_free(block);
    return rate;
}

static double measure_peak(rt_limit_type type, int n_threads) {
    job j = {.peak = peak_of(type)};
    const int64_t tiles = TILES * (int64_t)n_threads;
    return j.peak.run
               ? j.peak.per_step * CHAINS * ROUNDS * (double)tiles / best_seconds(n_threads, tiles, peak_tile, &j)
               : 0;
}

/* Half as wide elements are twice as many, and a team is no slower than one thread of it: where that does not show,
 * other processes held a core. */
static bool is_doubtful(const rt_limits *l, const double *one) {
    const double ratio = l->peak[RT_LIMIT_F32] / l->peak[RT_LIMIT_F64];
    bool is = !(ratio > 1.6 && ratio < 2.4);
    for (int type = 0; type < RT_LIMIT_TYPES; type++) is |= l->peak[type] < 0.95 * one[type];
    return is;
}

/* The best of some rounds, and of one thread: others' work makes nothing faster. */
static rt_limits measure(int n_threads) {
    rt_limits l = {.n_threads = n_threads, .is_known = true};
    double one[RT_LIMIT_TYPES] = {0};
    for (int round = 0; round == 0 || (round < ROUNDS_AT_MOST && is_doubtful(&l, one)); round++)
        for (int type = 0; type < RT_LIMIT_TYPES; type++) {
            l.peak[type] = fmax(l.peak[type], measure_peak(type, n_threads));
            if (n_threads > 1) one[type] = fmax(one[type], measure_peak(type, 1));
        }
    for (int type = 0; type < RT_LIMIT_TYPES; type++) l.peak[type] = fmax(l.peak[type], one[type]);
    for (int level = 0; level < RT_LIMIT_LEVELS; level++) {
        l.bandwidth[level] = measure_bandwidth(level, n_threads, n_threads);
        if (n_threads > 1 && l.bandwidth[level] > 0)
            l.bandwidth[level] = fmax(l.bandwidth[level], measure_bandwidth(level, n_threads, 1));
    }
    for (int level = RT_LIMIT_MEMORY; level-- > 0;) /* a noisy moment: no level is slower than the one behind it */
        if (l.bandwidth[level] > 0 && l.bandwidth[level] < l.bandwidth[level + 1])
            l.bandwidth[level] = l.bandwidth[level + 1];
    return l;
}

/* ---- the file ---- */
enum { NAME_MAX_BYTES = 32 };
static const char *name_of(int n_threads, char out[NAME_MAX_BYTES]) {
    snprintf(out, NAME_MAX_BYTES, "limits-%d", n_threads);
    return out;
}

static void keep(const rt_limits *l, const char *path) {
    char name[NAME_MAX_BYTES];
    rt_dir dir;
    json_t *d = json_pack("{s:s, s:i, s:s, s:i}", "schema", "fusor-limits/3", "level", rt_host_level(), "cpu",
                          rt_host_brand(), "threads", l->n_threads);
    json_t *peaks = json_object(), *bandwidths = json_object();
    for (int i = 0; i < RT_LIMIT_TYPES; i++)
        (void)json_object_set_new(peaks, rt_limit_type_names[i], json_real(l->peak[i]));
    for (int i = 0; i < RT_LIMIT_LEVELS; i++)
        (void)json_object_set_new(bandwidths, rt_limit_level_names[i], json_real(l->bandwidth[i]));
    (void)json_object_set_new(d, "peak", peaks); /* frees it, where d is NULL */
    (void)json_object_set_new(d, "bandwidth", bandwidths);
    char text[2048];
    size_t n = d ? json_dumpb(d, text, sizeof text, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : 0;
    json_decref(d);
    if (!n || n >= sizeof text || !rt_dir_try(path, &dir)) return;
    fu_part part = {text, n};
    (void)rt_dir_write(&dir, name_of(l->n_threads, name), &part, 1); /* not kept: measured again by the next process */
    rt_dir_close(&dir);
}

static double positive(const json_t *d, const char *list, const char *name) {
    const double v = json_number_value(json_object_get(json_object_get(d, list), name));
    return v > 0 && isfinite(v) ? v : 0;
}

static bool read_file(const char *path, int n_threads, rt_limits *l) {
    char name[NAME_MAX_BYTES];
    rt_dir dir;
    void *data = NULL;
    size_t n;
    if (!rt_dir_try(path, &dir)) return false;
    const bool is_read = !rt_dir_read(&dir, name_of(n_threads, name), 4096, &data, &n, NULL);
    rt_dir_close(&dir);
    if (!is_read) return false;
    json_t *d = json_loadb(data, n, 0, NULL);
    fu_free(data);
    const char *cpu = json_string_value(json_object_get(d, "cpu")),
               *schema = json_string_value(json_object_get(d, "schema"));
    *l = (rt_limits){.n_threads = n_threads};
    for (int i = 0; i < RT_LIMIT_TYPES; i++) l->peak[i] = positive(d, "peak", rt_limit_type_names[i]);
    for (int i = 0; i < RT_LIMIT_LEVELS; i++) l->bandwidth[i] = positive(d, "bandwidth", rt_limit_level_names[i]);
    l->is_known = cpu && schema && strcmp(schema, "fusor-limits/3") == 0 && strcmp(cpu, rt_host_brand()) == 0 &&
                  json_integer_value(json_object_get(d, "level")) == rt_host_level() && l->peak[RT_LIMIT_F32] > 0 &&
                  l->bandwidth[RT_LIMIT_MEMORY] > 0;
    json_decref(d);
    return l->is_known;
}

/* ---- what the process knows ---- */
static rt_limits known[KNOWN];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static rt_limits *find_known(int n_threads) {
    for (int i = 0; i < KNOWN; i++)
        if (known[i].is_known && known[i].n_threads == n_threads) return &known[i];
    for (int i = 0; i < KNOWN; i++)
        if (!known[i].is_known) return &known[i];
    return &known[n_threads % KNOWN];
}

static void learn(rt_limits l) {
    for (int i = 0; i < RT_LIMIT_LEVELS; i++) l.holds[i] = share_of(i, l.n_threads) * l.n_threads;
    *find_known(l.n_threads) = l;
}

rt_limits rt_limits_get(const char *dir, int n_threads, bool is_read_only, bool again) {
    rt_limits l;
    (void)pthread_mutex_lock(&mutex);
    const rt_limits *have = find_known(n_threads);
    if (again || !have->is_known || have->n_threads != n_threads) {
        if (again || !read_file(dir, n_threads, &l)) {
            l = measure(n_threads);
            if (!is_read_only) keep(&l, dir);
        }
        learn(l);
    }
    l = *find_known(n_threads);
    (void)pthread_mutex_unlock(&mutex);
    return l;
}

/* The peak that a type is held against. */
static rt_limit_type peak_type(const rt_limits *l, ir_dtype type) {
    const bool is_tile = type == FUSOR_F16 && rt_host_has("amx-tile,amx-fp16", NULL, NULL); /* as fast as bf16 */
    if ((type == FUSOR_BF16 || is_tile) && l->peak[RT_LIMIT_BF16] > 0) return RT_LIMIT_BF16;
    if ((type == FUSOR_I8 || type == FUSOR_U8) && l->peak[RT_LIMIT_I8] > 0) return RT_LIMIT_I8;
    return type == FUSOR_F64 ? RT_LIMIT_F64 : RT_LIMIT_F32;
}

static void raise_to(rt_limits *l, const rt_limits *to) {
    for (int i = 0; i < RT_LIMIT_TYPES; i++) l->peak[i] = fmax(l->peak[i], to->peak[i]);
    for (int i = 0; i < RT_LIMIT_LEVELS; i++) l->bandwidth[i] = fmax(l->bandwidth[i], to->bandwidth[i]);
    l->is_doubted |= to->is_doubted;
}

void rt_limits_beside(rt_limits *l, const char *dir, bool is_read_only, ir_dtype type, double flops_per_s, bool again) {
    const rt_limit_type own = peak_type(l, type);
    const bool is_own = own != RT_LIMIT_F32 || type == FUSOR_F32; /* others may be faster than f32 */
    if (!l->is_known || !(flops_per_s > rt_limits_peak(l, type))) return;
    (void)pthread_mutex_lock(&mutex);
    const rt_limits *have = find_known(l->n_threads);
    if (have->is_known && have->n_threads == l->n_threads) raise_to(l, have); /* by another thread meanwhile */
    const bool measures = again || !l->is_doubted;
    if (measures) {
        const rt_limits now = measure(l->n_threads);
        raise_to(l, &now);
    }
    if (is_own) l->peak[own] = fmax(l->peak[own], flops_per_s);
    l->is_doubted = true;
    if (measures || is_own) {
        learn(*l);
        if (!is_read_only) keep(l, dir);
    }
    (void)pthread_mutex_unlock(&mutex);
}

/* Of f16 that are cut into two bf16 (ir/schedule.h), four products are one. */
double rt_limits_peak(const rt_limits *l, ir_dtype type) {
    const double own = l->peak[peak_type(l, type)];
    return type == FUSOR_F16 ? fmax(own, l->peak[RT_LIMIT_BF16] / 4) : own;
}

rt_bound rt_limits_bound(const rt_limits *l, ir_dtype type, double bytes, double work, double ns) {
    if (!l->is_known || !(ns > 0)) return (rt_bound){"", 0, 0};
    int level = RT_LIMIT_L1;
    while (level < RT_LIMIT_MEMORY && (l->bandwidth[level] <= 0 || bytes > l->holds[level])) level++;
    const double moving = 1e9 * bytes / l->bandwidth[level], computing = 1e9 * work / rt_limits_peak(l, type),
                 least = fmax(moving, computing);
    if (least < CALL_NS && least < ns / 2) return (rt_bound){"call", 1 - least / ns, least};
    return (rt_bound){moving >= computing ? rt_limit_level_names[level] : "arithmetic", least / ns, least};
}
