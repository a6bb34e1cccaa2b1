/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* select.c: CPU or GPU for one call (select.h): the model, the policy, and what was measured, kept in DIR/select:
 * header, histories, a checksum over all of it. It is read, merged and replaced under a lock file, by rename; what is
 * damaged counts as empty. */
#include "base/small.h"
#include "rt/select.h"
#include "base/arena.h"
#include "base/hash.h"
#include "base/log.h"
#include "rt/cache_entry.h"
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

/* ---- the model ---- */
/* A modest core of the level, as in explain; the part of a device's limits that ordinary kernels reach. */
enum { CPU_CALL_NS = 200, CPU_STEP_NS = 500, LAUNCH_NS = 5000, TRANSFER_NS = 10000 };
#define CPU_BYTES_A_NS  10.0
#define CPU_FLOPS_A_NS  10.0 /* a lane */
#define SHARE_OF_MEMORY 0.7
#define SHARE_OF_PEAK   0.4

static bool is_work(const ir_step *s) { return s->kind != IR_STEP_CHECK; }

double rt_select_cpu_ns(const ir_plan *p, const int64_t *symbol_values, int n_threads) {
    double ns = CPU_CALL_NS;
    const double lanes = ir_level_is_gpu(p->options.level) ? 8 : ir_levels[p->options.level].lanes;
    const double cores = n_threads > 1 ? 0.8 * n_threads : 1;
    for (uint32_t i = 0; i < p->steps.n; i++) {
        const ir_cost c = ir_step_cost(p, (int)i, symbol_values);
        const double moving = (c.bytes_read + c.bytes_written) / (CPU_BYTES_A_NS * fmin(cores, 4));
        const double most = fmax(moving, c.work / (CPU_FLOPS_A_NS * lanes * cores));
        if (is_work(&p->steps.at[i])) ns += (p->steps.n > 1 ? CPU_STEP_NS : 0) + most;
    }
    return ns;
}

double rt_select_move_ns(const rt_select_gpu *gpu, double bytes_up, double bytes_down) {
    double ns = 0;
    if (bytes_up > 0) ns += TRANSFER_NS + 1e9 * bytes_up / gpu->up_bytes_per_s;
    if (bytes_down > 0) ns += TRANSFER_NS + 1e9 * bytes_down / gpu->down_bytes_per_s;
    return ns;
}

double rt_select_gpu_ns(const rt_select_gpu *gpu, const ir_plan *p, const int64_t *symbol_values, double bytes_up,
                        double bytes_down) {
    const rt_limits *l = &gpu->limits;
    if (!l->is_known || !(gpu->up_bytes_per_s > 0) || !(gpu->down_bytes_per_s > 0)) return INFINITY;
    double ns = 0;
    for (uint32_t i = 0; i < p->steps.n; i++) {
        const ir_cost c = ir_step_cost(p, (int)i, symbol_values);
        const double peak = l->peak[ir_step_work_type(p, (int)i) == FUSOR_F64 ? RT_LIMIT_F64 : RT_LIMIT_F32];
        if (p->steps.at[i].kind == IR_STEP_REFERENCE) return INFINITY; /* by way of the CPU, in the middle of it */
        if (!is_work(&p->steps.at[i])) continue;
        ns +=
            LAUNCH_NS + 1e9 * fmax((c.bytes_read + c.bytes_written) / (SHARE_OF_MEMORY * l->bandwidth[RT_LIMIT_MEMORY]),
                                   c.work / (SHARE_OF_PEAK * peak));
    }
    return ns + rt_select_move_ns(gpu, bytes_up, bytes_down);
}

/* ---- the choice ---- */
static double median(const float *ns, uint32_t n) {
    float sorted[RT_SELECT_KEPT];
    if (n > RT_SELECT_KEPT) n = RT_SELECT_KEPT;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i;
        for (; k > 0 && sorted[k - 1] > ns[i]; k--) sorted[k] = sorted[k - 1];
        sorted[k] = ns[i];
    }
    return n ? (double)sorted[n / 2] : INFINITY;
}

rt_select_choice rt_select_choose(rt_select_history *h, const double model_ns[RT_SIDES], const double *also_ns) {
    double all_ns[RT_SIDES];
    rt_select_choice c = {0};
    for (int s = 0; s < RT_SIDES; s++) {
        c.is_measured[s] = h->n[s] >= RT_SELECT_ENOUGH;
        const double also = also_ns ? also_ns[s] : 0;
        c.expected_ns[s] = (c.is_measured[s] ? median(h->ns[s], h->n[s]) : model_ns[s]) + also;
        all_ns[s] = model_ns[s] + also;
    }
    c.side = c.expected_ns[RT_SIDE_GPU] < c.expected_ns[RT_SIDE_CPU] ? RT_SIDE_GPU : RT_SIDE_CPU;
    const rt_side other = c.side == RT_SIDE_CPU ? RT_SIDE_GPU : RT_SIDE_CPU;
    const bool may_try = isfinite(all_ns[other]) && all_ns[other] <= RT_SELECT_WORSE * all_ns[c.side];
    c.is_open = may_try && !c.is_measured[other];
    h->calls++;
    if (may_try && h->calls % (c.is_measured[other] ? RT_SELECT_RETRY : RT_SELECT_TRY) == 0) {
        c.side = other;
        c.is_trial = true;
    }
    return c;
}

void rt_select_learn(rt_select_history *h, rt_side side, double ns) {
    h->ns[side][h->n[side]++ % RT_SELECT_KEPT] = (float)ns;
    if (h->n[side] >= 1000000 * RT_SELECT_KEPT) h->n[side] = RT_SELECT_KEPT;
    h->used_s = (int64_t)time(NULL);
}

static uint64_t size_class(double v) {
    int e;
    if (!(v > 0)) return 0;
    const double m = frexp(v, &e); /* 0.5 .. 1 */
    return (uint64_t)(e * 4 + (int)((m - 0.5) * 8)) + 1;
}

uint64_t rt_select_key(uint64_t program, const int64_t *sizes, size_t n, double bytes_up, double bytes_down) {
    uint64_t key = program;
    for (size_t i = 0; i < n + 2; i++) {
        const uint64_t c = size_class(i < n ? (double)sizes[i] : i == n ? bytes_up : bytes_down);
        key = fu_hash(&c, sizeof c, key);
    }
    return key ? key : 1;
}

/* ---- histories ---- */
#define FILE_NAME "select"
#define MAGIC     "FUSORA1\n"
enum { MOST = 2048, KEPT = 1536, SAVE_EVERY = 256 };
typedef struct header {
    char magic[8];
    uint8_t checksum[16]; /* of everything after this field */
    uint64_t n, entry_bytes;
} header;
#define CHECKED_FROM (offsetof(header, checksum) + 16)

struct rt_select {
    pthread_mutex_t lock;
    char *path; /* of the directory; NULL: memory only */
    bool is_read_only;
    rt_select_history *at; /* MOST of them, by key */
    size_t n;
    uint32_t unsaved;
};

static size_t place_of(const rt_select_history *at, size_t n, uint64_t key) {
    size_t low = 0;
    while (low < n) {
        const size_t mid = low + (n - low) / 2;
        if (at[mid].key < key) low = mid + 1;
        else n = mid;
    }
    return low;
}

static int newest_first(const void *a, const void *b) {
    const int64_t x = ((const rt_select_history *)a)->used_s, y = ((const rt_select_history *)b)->used_s;
    return x < y ? 1 : x > y ? -1 : 0;
}
static int by_key(const void *a, const void *b) {
    const uint64_t x = ((const rt_select_history *)a)->key, y = ((const rt_select_history *)b)->key;
    return x > y ? 1 : x < y ? -1 : 0;
}

static rt_select_history *find(rt_select *s, uint64_t key) {
    size_t i = place_of(s->at, s->n, key);
    if (i < s->n && s->at[i].key == key) return &s->at[i];
    if (s->n == MOST) { /* the oldest go */
        qsort(s->at, s->n, sizeof *s->at, newest_first);
        s->n = KEPT;
        qsort(s->at, s->n, sizeof *s->at, by_key);
        i = place_of(s->at, s->n, key);
    }
    memmove(s->at + i + 1, s->at + i, (s->n - i) * sizeof *s->at);
    s->at[i] = (rt_select_history){.key = key, .used_s = (int64_t)time(NULL)};
    s->n++;
    return &s->at[i];
}

/* What the file has and memory has not, or has seen less lately. */
static void merge(rt_select *s, const rt_dir *dir) {
    void *data = NULL;
    size_t bytes = 0;
    uint8_t sum[16];
    header h;
    if (rt_dir_read(dir, FILE_NAME, sizeof h + MOST * sizeof *s->at, &data, &bytes, NULL)) return;
    if (bytes >= sizeof h) memcpy(&h, data, sizeof h);
    const bool has_size = bytes >= sizeof h && memcmp(h.magic, MAGIC, 8) == 0 && h.entry_bytes == sizeof *s->at &&
                          h.n <= MOST && bytes == sizeof h + h.n * sizeof *s->at;
    if (has_size) fu_hash128((const char *)data + CHECKED_FROM, bytes - CHECKED_FROM, sum);
    if (has_size && memcmp(sum, h.checksum, sizeof sum) == 0)
        for (uint64_t i = 0; i < h.n; i++) {
            rt_select_history x;
            memcpy(&x, (const char *)data + sizeof h + i * sizeof x, sizeof x);
            if (!x.key) continue;
            rt_select_history *mine = find(s, x.key);
            const uint32_t calls = mine->calls;
            if (x.n[0] + x.n[1] <= mine->n[0] + mine->n[1]) continue;
            *mine = x;
            mine->calls = calls;
        }
    fu_free(data);
}

rt_select *rt_select_open(const char *dir, bool is_read_only) {
    rt_select *s = fu_calloc(1, sizeof *s);
    if (!s) return NULL;
    pthread_mutex_init(&s->lock, NULL);
    s->is_read_only = is_read_only;
    s->at = fu_calloc(MOST, sizeof *s->at);
    if (!s->at) {
        rt_select_close(s);
        return NULL;
    }
    rt_dir d;
    if (rt_dir_try(dir, &d)) {
        if ((s->path = fu_malloc(strlen(dir) + 1))) strcpy(s->path, dir);
        merge(s, &d);
        rt_dir_close(&d);
    }
    return s;
}

/* Under s->lock. Who finds the file's lock taken leaves it to a later time. */
static bool save(rt_select *s) {
    rt_dir dir;
    s->unsaved = 0;
    if (s->is_read_only || !rt_dir_try(s->path, &dir)) return false;
    const int fd = openat(dir.fd, FILE_NAME ".lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    bool ok = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (ok) {
        merge(s, &dir);
        header h = {.magic = MAGIC, .n = s->n, .entry_bytes = sizeof *s->at};
        const size_t bytes = s->n * sizeof *s->at;
        char *all = fu_malloc(sizeof h + bytes);
        if (all) {
            memcpy(all, &h, sizeof h);
            memcpy(all + sizeof h, s->at, bytes);
            fu_hash128(all + CHECKED_FROM, sizeof h + bytes - CHECKED_FROM, h.checksum);
            memcpy(all, &h, sizeof h);
            ok = rt_dir_write(&dir, FILE_NAME, &(fu_part){all, sizeof h + bytes}, 1) == 0;
        } else ok = false;
        fu_free(all);
    }
    if (fd >= 0) fu_file_unlock(fd);
    rt_dir_close(&dir);
    return ok;
}

bool rt_select_save(rt_select *s) {
    pthread_mutex_lock(&s->lock);
    const bool ok = save(s);
    pthread_mutex_unlock(&s->lock);
    return ok;
}

void rt_select_close(rt_select *s) {
    if (!s) return;
    if (s->at && s->unsaved) (void)save(s);
    pthread_mutex_destroy(&s->lock);
    fu_free(s->path);
    fu_free(s->at);
    fu_free(s);
}

rt_select_choice rt_select_ask(rt_select *s, uint64_t key, const double model_ns[RT_SIDES], const double *also_ns) {
    pthread_mutex_lock(&s->lock);
    const rt_select_choice c = rt_select_choose(find(s, key), model_ns, also_ns);
    pthread_mutex_unlock(&s->lock);
    return c;
}

void rt_select_tell(rt_select *s, uint64_t key, rt_side side, double ns) {
    pthread_mutex_lock(&s->lock);
    rt_select_learn(find(s, key), side, ns);
    if (++s->unsaved >= SAVE_EVERY) (void)save(s);
    pthread_mutex_unlock(&s->lock);
}
