/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cpuinfo.c: feature bits, cache sizes, affinity and quota of this process. */
#include "base/small.h"
#include "rt/cpuinfo.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { MAX_THREADS = 1024 };

/* State components in XCR0. */
#define XCR0_AVX    UINT64_C(0x6)
#define XCR0_AVX512 UINT64_C(0xE6)
#define XCR0_AMX    UINT64_C(0x60000)

typedef struct feature {
    const char *name;
    size_t word;
    unsigned bit;
    uint64_t state;
} feature;
#define AT(field) offsetof(rt_cpuid, field)
/* LLVM's name, where its bit is, and which register state the system must save for it. */
static const feature features[] = {
    {"sse3", AT(leaf1_ecx), 0, 0},
    {"ssse3", AT(leaf1_ecx), 9, 0},
    {"fma", AT(leaf1_ecx), 12, XCR0_AVX},
    {"cx16", AT(leaf1_ecx), 13, 0},
    {"sse4.1", AT(leaf1_ecx), 19, 0},
    {"sse4.2", AT(leaf1_ecx), 20, 0},
    {"movbe", AT(leaf1_ecx), 22, 0},
    {"popcnt", AT(leaf1_ecx), 23, 0},
    {"avx", AT(leaf1_ecx), 28, XCR0_AVX},
    {"f16c", AT(leaf1_ecx), 29, XCR0_AVX},
    {"sahf", AT(ext1_ecx), 0, 0},
    {"lzcnt", AT(ext1_ecx), 5, 0},
    {"bmi", AT(leaf7_ebx), 3, 0},
    {"avx2", AT(leaf7_ebx), 5, XCR0_AVX},
    {"bmi2", AT(leaf7_ebx), 8, 0},
    {"avx512f", AT(leaf7_ebx), 16, XCR0_AVX512},
    {"avx512dq", AT(leaf7_ebx), 17, XCR0_AVX512},
    {"avx512ifma", AT(leaf7_ebx), 21, XCR0_AVX512},
    {"avx512cd", AT(leaf7_ebx), 28, XCR0_AVX512},
    {"avx512bw", AT(leaf7_ebx), 30, XCR0_AVX512},
    {"avx512vl", AT(leaf7_ebx), 31, XCR0_AVX512},
    {"avx512vbmi", AT(leaf7_ecx), 1, XCR0_AVX512},
    {"avx512vbmi2", AT(leaf7_ecx), 6, XCR0_AVX512},
    {"avx512vnni", AT(leaf7_ecx), 11, XCR0_AVX512},
    {"avx512fp16", AT(leaf7_edx), 23, XCR0_AVX512},
    {"amx-bf16", AT(leaf7_edx), 22, XCR0_AMX},
    {"amx-tile", AT(leaf7_edx), 24, XCR0_AMX},
    {"amx-int8", AT(leaf7_edx), 25, XCR0_AMX},
    {"amx-fp16", AT(leaf7_1_eax), 21, XCR0_AMX},
    {"avxvnni", AT(leaf7_1_eax), 4, XCR0_AVX},
    {"avx512bf16", AT(leaf7_1_eax), 5, XCR0_AVX512},
};
enum { FEATURE_COUNT = sizeof features / sizeof *features };
_Static_assert(FEATURE_COUNT <= 64, "one bit each");

uint64_t rt_features_decode(const rt_cpuid *raw) {
    uint64_t bits = 0;
    for (int i = 0; i < FEATURE_COUNT; i++) {
        uint32_t word;
        memcpy(&word, (const char *)raw + features[i].word, sizeof word);
        if ((word >> features[i].bit & 1) && (raw->xcr0 & features[i].state) == features[i].state)
            bits |= UINT64_C(1) << i;
    }
    return bits;
}

rt_cpuid rt_cpuid_read(void) {
    rt_cpuid r = {0};
#if defined(__x86_64__)
    uint32_t a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) {
        r.leaf1_ecx = c;
        r.leaf1_edx = d;
    }
    if (r.leaf1_ecx >> 27 & 1) { /* OSXSAVE: XGETBV may be executed */
        uint32_t low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        r.xcr0 = (uint64_t)high << 32 | low;
    }
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        r.leaf7_ebx = b;
        r.leaf7_ecx = c;
        r.leaf7_edx = d;
        if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) r.leaf7_1_eax = a;
    }
    if (__get_cpuid(0x80000001, &a, &b, &c, &d)) r.ext1_ecx = c;
#endif
    return r;
}

/* ---- caches ---- */
/* CPUID leaf 4 (Intel) and 0x8000001D (AMD) have one layout. */
static void caches_from_cpuid(rt_caches *out) {
#if defined(__x86_64__)
    static const uint32_t leaves[2] = {4, 0x8000001D};
    for (int l = 0; l < 2 && !out->l1d_bytes; l++)
        for (uint32_t i = 0; i < 16; i++) {
            uint32_t a, b, c, d;
            if (!__get_cpuid_count(leaves[l], i, &a, &b, &c, &d) || (a & 31) == 0) break;
            int type = (int)(a & 31), level = (int)(a >> 5 & 7);
            int64_t bytes = (int64_t)((b >> 22) + 1) * ((b >> 12 & 0x3ff) + 1) * ((b & 0xfff) + 1) * ((int64_t)c + 1);
            if (type == 2) continue; /* instructions */
            if (level == 1) out->l1d_bytes = bytes;
            if (level == 2) out->l2_bytes = bytes;
            if (level == 3) {
                out->l3_bytes = bytes;
                out->l3_sharers = (int)(a >> 14 & 0xfff) + 1;
            }
        }
#else
    (void)out;
#endif
}

/* A small text file of /proc or /sys; "" when there is none. */
static void read_text(const char *path, char *text, size_t room) {
    text[0] = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    size_t n = 0;
    for (ssize_t got; n + 1 < room && (got = read(fd, text + n, room - 1 - n)) > 0;) n += (size_t)got;
    text[n] = 0;
    close(fd);
}

static void caches_from_sysfs(rt_caches *out) {
    for (int i = 0; i < 8; i++) {
        char path[128], text[64];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", i);
        read_text(path, text, sizeof text);
        if (!text[0]) return;
        if (text[0] == 'I') continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
        read_text(path, text, sizeof text);
        long level = strtol(text, NULL, 10);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        read_text(path, text, sizeof text);
        char *unit;
        int64_t bytes = strtoll(text, &unit, 10);
        if (*unit == 'K') bytes <<= 10;
        if (*unit == 'M') bytes <<= 20;
        int64_t *slot = level == 1 ? &out->l1d_bytes : level == 2 ? &out->l2_bytes : level == 3 ? &out->l3_bytes : NULL;
        if (slot && !*slot) *slot = bytes;
    }
}

/* ---- once ---- */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t host_bits;
static rt_caches host_caches;
static char host_brand[49];

static void find_out(void) {
    rt_cpuid raw = rt_cpuid_read();
    host_bits = rt_features_decode(&raw);
    caches_from_cpuid(&host_caches);
    if (!host_caches.l1d_bytes || !host_caches.l2_bytes) caches_from_sysfs(&host_caches);
    /* A hypervisor may hide all of it. */
    if (host_caches.l1d_bytes < 8 << 10) host_caches.l1d_bytes = 32 << 10;
    if (host_caches.l2_bytes < 64 << 10) host_caches.l2_bytes = 512 << 10;
    if (host_caches.l3_bytes < host_caches.l2_bytes) host_caches.l3_bytes = host_caches.l2_bytes;
    if (host_caches.l3_sharers < 1) host_caches.l3_sharers = 1;
#if defined(__x86_64__)
    uint32_t words[12];
    bool has_brand = true;
    for (uint32_t i = 0; i < 3; i++)
        has_brand = has_brand &&
                    __get_cpuid(0x80000002 + i, words + 4 * i, words + 4 * i + 1, words + 4 * i + 2, words + 4 * i + 3);
    if (has_brand) memcpy(host_brand, words, 48);
#endif
}

static void need(void) { pthread_once(&once, find_out); }

uint64_t rt_host_features(void) {
    need();
    return host_bits;
}
const rt_caches *rt_host_caches(void) {
    need();
    return &host_caches;
}
void rt_host_assume_caches(rt_caches caches) {
    need();
    host_caches = caches;
}
const char *rt_host_brand(void) {
    need();
    return host_brand;
}
int rt_feature_count(void) { return FEATURE_COUNT; }
const char *rt_feature_name(int i) { return i >= 0 && i < FEATURE_COUNT ? features[i].name : ""; }

/* The tile registers cost 8 KB of every thread's signal frame, so the kernel hands them out on request only. */
static pthread_once_t amx_once = PTHREAD_ONCE_INIT;
static bool amx_granted;
static void ask_for_amx(void) {
#if defined(__x86_64__) && defined(SYS_arch_prctl)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    amx_granted = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#endif
}

static bool has_feature(const char *name, size_t n) {
    for (int i = 0; i < FEATURE_COUNT; i++) {
        if (strlen(features[i].name) != n || memcmp(features[i].name, name, n) != 0) continue;
        if (!(host_bits >> i & 1)) return false;
        if (features[i].state != XCR0_AMX) return true;
        pthread_once(&amx_once, ask_for_amx);
        return amx_granted;
    }
    return false;
}

bool rt_host_has(const char *list, const char **missing_out, size_t *length_out) {
    need();
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        if (n && !has_feature(p, n)) {
            if (missing_out) *missing_out = p;
            if (length_out) *length_out = n;
            return false;
        }
        p += n + (p[n] == ',');
    }
    return true;
}

void rt_host_assume(const char *list) {
    need();
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        for (int i = 0; i < FEATURE_COUNT; i++) {
            if (strlen(features[i].name) != n || memcmp(features[i].name, p, n) != 0) continue;
            host_bits |= UINT64_C(1) << i;
            if (features[i].state == XCR0_AMX) pthread_once(&amx_once, ask_for_amx), amx_granted = true;
        }
        p += n + (p[n] == ',');
    }
}

int rt_host_level(void) {
    for (int l = IR_LEVEL_COUNT - 1; l >= 0; l--)
        if (rt_host_has(ir_levels[l].features, NULL, NULL)) return l;
    return -1;
}

ir_features rt_host_extras(ir_level level) {
    ir_features granted = 0;
    for (int i = 0; i < IR_FEATURE_COUNT; i++)
        if (ir_feature_table[i].level == level && rt_host_has(ir_feature_table[i].features, NULL, NULL))
            granted |= (ir_features)1 << i;
    return granted;
}

/* ---- cores ---- */
int rt_affinity_count(void) {
    /* The mask may be wider than cpu_set_t on machines with more than 1024 CPUs. */
    for (size_t cpus = 1024; cpus <= 1 << 17; cpus *= 8) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set) return 1;
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        CPU_ZERO_S(bytes, set);
        int ok = sched_getaffinity(0, bytes, set) == 0;
        int n = ok ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (ok) return n > 0 ? n : 1;
    }
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

static int whole_cpus(long long quota, long long period) {
    if (quota <= 0 || period <= 0) return 0;
    long long n = (quota + period - 1) / period;
    return n > MAX_THREADS ? MAX_THREADS : (int)n;
}

/* The smallest limit of `path` (as /proc names it) and its ancestors in the hierarchy mounted at root/controller. */
static int walk_up(const char *root, const char *controller, const char *path, size_t length, bool is_v2) {
    int best = 0;
    for (;;) {
        while (length && path[length - 1] == '/') length--;
        char file[1024], text[128];
        int limit = 0, m = (int)length;
        if (is_v2) {
            snprintf(file, sizeof file, "%s%.*s/cpu.max", root, m, path);
            read_text(file, text, sizeof text);
            long long quota, period;
            if (sscanf(text, "%lld %lld", &quota, &period) == 2) limit = whole_cpus(quota, period);
        } else {
            snprintf(file, sizeof file, "%s/%s%.*s/cpu.cfs_quota_us", root, controller, m, path);
            read_text(file, text, sizeof text);
            long long quota = strtoll(text, NULL, 10);
            snprintf(file, sizeof file, "%s/%s%.*s/cpu.cfs_period_us", root, controller, m, path);
            read_text(file, text, sizeof text);
            limit = whole_cpus(quota, strtoll(text, NULL, 10));
        }
        if (limit && (!best || limit < best)) best = limit;
        if (!length) return best;
        while (length && path[length - 1] != '/') length--;
    }
}

int rt_cgroup_cpus(const char *proc_text, const char *root) {
    int best = 0;
    for (const char *line = proc_text; *line;) {
        size_t n = strcspn(line, "\n");
        const char *first = memchr(line, ':', n),
                   *second = first ? memchr(first + 1, ':', n - (size_t)(first + 1 - line)) : NULL;
        if (second) {
            const char *path = second + 1;
            size_t length = n - (size_t)(path - line);
            size_t names = (size_t)(second - first) - 1;
            int limit = 0;
            if (names == 0) limit = walk_up(root, "", path, length, true);
            char word[64];
            if (names && names < sizeof word) {
                memcpy(word, first + 1, names);
                word[names] = 0;
                char copy[64], *save = NULL;
                memcpy(copy, word, sizeof copy);
                for (char *w = strtok_r(copy, ",", &save); w; w = strtok_r(NULL, ",", &save))
                    if (strcmp(w, "cpu") == 0) limit = walk_up(root, "cpu", path, length, false);
            }
            if (limit && (!best || limit < best)) best = limit;
        }
        line += n + (line[n] == '\n');
    }
    return best;
}

int rt_default_threads(void) {
    static atomic_int known = -1; /* read once, or by a few at once: it takes some fifty file operations */
    int n = rt_affinity_count(), quota = atomic_load(&known);
    if (quota < 0) {
        char text[8192];
        read_text("/proc/self/cgroup", text, sizeof text);
        atomic_store(&known, quota = rt_cgroup_cpus(text, "/sys/fs/cgroup"));
    }
    if (quota && quota < n) n = quota;
    const char *omp = secure_getenv("OMP_NUM_THREADS"); /* a list where regions nest: the first is the outermost */
    long asked = omp ? strtol(omp, NULL, 10) : 0;
    if (asked > 0 && asked < n) n = (int)asked;
    return n > MAX_THREADS ? MAX_THREADS : n;
}
