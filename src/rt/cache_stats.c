/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_stats.c: the losable counters of a cache directory, DIR/stats: header, counters, uses by key; a checksum over
 * all of it. It is rewritten in place under flock: a torn write fails the checksum and counting begins anew. */
#include "base/small.h"
#include "rt/cache_stats.h"
#include "base/file.h"
#include "base/hash.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC "FUSORS1\n"
enum { FORMAT = 1, MAX_USES = 8192, KEPT_USES = 6144, N_COUNTERS = sizeof(rt_cache_stats) / sizeof(int64_t) };
_Static_assert(sizeof(rt_cache_stats) == N_COUNTERS * sizeof(int64_t), "counters are int64_t only");

typedef struct header {
    char magic[8];
    uint32_t format, n_counters;
    uint8_t checksum[16]; /* of everything after this field */
    int64_t since_s;
    uint64_t n;
    rt_cache_stats totals;
} header;
#define CHECKED_FROM (offsetof(header, checksum) + 16)

static void add_counts(rt_cache_stats *to, const rt_cache_stats *from) {
    int64_t a[N_COUNTERS], b[N_COUNTERS];
    memcpy(a, to, sizeof a);
    memcpy(b, from, sizeof b);
    for (int i = 0; i < N_COUNTERS; i++) a[i] = (int64_t)((uint64_t)a[i] + (uint64_t)b[i]);
    memcpy(to, a, sizeof a);
}

bool rt_stats_decode(const void *data, size_t bytes, rt_stats_content *out) {
    const header *h = data;
    uint8_t sum[16];
    *out = (rt_stats_content){0};
    if (bytes < sizeof *h || memcmp(h->magic, MAGIC, 8) != 0 || h->format != FORMAT || h->n_counters != N_COUNTERS ||
        h->n > MAX_USES || bytes != sizeof *h + h->n * sizeof(rt_stats_use))
        return false;
    fu_hash128((const char *)data + CHECKED_FROM, bytes - CHECKED_FROM, sum);
    if (memcmp(sum, h->checksum, sizeof sum) != 0) return false;
    out->since_s = h->since_s;
    out->totals = h->totals;
    if (h->n && (out->use = fu_malloc((size_t)h->n * sizeof *out->use))) {
        memcpy(out->use, h + 1, (size_t)h->n * sizeof *out->use);
        out->n = (size_t)h->n;
    }
    return true;
}

void rt_stats_read(const rt_dir *d, rt_stats_content *out) {
    void *data;
    size_t bytes;
    *out = (rt_stats_content){0};
    if (rt_dir_read(d, RT_STATS_FILE, sizeof(header) + MAX_USES * sizeof(rt_stats_use), &data, &bytes, NULL)) return;
    rt_stats_decode(data, bytes, out);
    fu_free(data);
    /* Of a clock that was ahead: what is used in the future would never age. */
    const int64_t now = time(NULL);
    for (size_t i = 0; i < out->n; i++)
        if (out->use[i].last_s > now) out->use[i].last_s = now;
}

void rt_stats_free(rt_stats_content *s) {
    fu_free(s->use);
    *s = (rt_stats_content){0};
}

static int by_key(const void *a, const void *b) {
    return memcmp(((const rt_stats_use *)a)->key, ((const rt_stats_use *)b)->key, IR_KEY_BYTES);
}

static int newer_first(const void *a, const void *b) {
    const rt_stats_use *x = a, *y = b;
    return x->last_s != y->last_s ? (x->last_s < y->last_s ? 1 : -1) : by_key(a, b);
}

const rt_stats_use *rt_stats_find(const rt_stats_content *s, const uint8_t key[IR_KEY_BYTES]) {
    rt_stats_use wanted;
    memcpy(wanted.key, key, IR_KEY_BYTES);
    return s->n ? bsearch(&wanted, s->use, s->n, sizeof wanted, by_key) : NULL;
}

void rt_stats_note_use(rt_stats_delta *delta, const uint8_t key[IR_KEY_BYTES], bool is_hit, bool is_new) {
    int i = 0;
    while (i < delta->n_uses && memcmp(delta->use[i].key, key, IR_KEY_BYTES) != 0) i++;
    if (i == RT_STATS_PENDING) return;
    if (i == delta->n_uses) {
        delta->use[delta->n_uses++] = (rt_stats_use){0};
        memcpy(delta->use[i].key, key, IR_KEY_BYTES);
        delta->is_new[i] = false;
    }
    delta->is_new[i] |= is_new;
    delta->use[i].hits += is_hit;
    delta->use[i].last_s = time(NULL);
}

/* Two sorted lists into one; out has room for both. */
static size_t merge(const rt_stats_use *a, size_t n_a, const rt_stats_use *b, size_t n_b, rt_stats_use *out) {
    size_t n = 0, i = 0, j = 0;
    while (i < n_a || j < n_b) {
        int order = i == n_a ? 1 : j == n_b ? -1 : by_key(&a[i], &b[j]);
        out[n] = order <= 0 ? a[i++] : b[j++];
        if (order == 0) {
            out[n].hits += b[j].hits;
            if (b[j].last_s > out[n].last_s) out[n].last_s = b[j].last_s;
            j++;
        }
        n++;
    }
    return n;
}

/* A descriptor with the lock, or -1. */
static int open_locked(const rt_dir *d, bool *is_forbidden) {
    *is_forbidden = true;
    int fd = openat(d->fd, RT_STATS_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    struct stat st;
    if (fd < 0) return -1;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0) || st.st_mode & 022 ||
        st.st_nlink > 1) {
        close(fd);
        return -1;
    }
    *is_forbidden = false;
    for (int attempt = 0; flock(fd, LOCK_EX | LOCK_NB); attempt++) {
        if (attempt == 8) {
            close(fd);
            return -1;
        }
        nanosleep(&(struct timespec){0, 500000}, NULL);
    }
    return fd;
}

/* In place of what is there; the file's offset is 0. */
static bool write_all(int fd, const char *data, size_t bytes) {
    return !fu_write_parts(fd, &(fu_part){data, bytes}, 1) && !fu_file_set_size(fd, bytes);
}

bool rt_stats_add(const rt_dir *d, rt_stats_delta *delta) {
    bool is_forbidden;
    int fd = open_locked(d, &is_forbidden);
    if (fd < 0) return !is_forbidden;
    rt_stats_content old;
    rt_stats_read(d, &old);
    if (!old.since_s) old.since_s = time(NULL);
    char *data = fu_malloc(sizeof(header) + (old.n + (size_t)delta->n_uses) * sizeof *delta->use);
    if (data) {
        rt_stats_use *use = (rt_stats_use *)(data + sizeof(header));
        /* A miss of a key that the file knows is one of an entry that was there and went. */
        for (int i = 0; i < delta->n_uses; i++)
            if (delta->is_new[i] && rt_stats_find(&old, delta->use[i].key)) {
                delta->counts.miss[RT_MISS_NEW]--;
                delta->counts.miss[RT_MISS_GONE]++;
            }
        qsort(delta->use, (size_t)delta->n_uses, sizeof *delta->use, by_key);
        size_t n = merge(old.use, old.n, delta->use, (size_t)delta->n_uses, use);
        if (n > MAX_USES) {
            qsort(use, n, sizeof *use, newer_first);
            n = KEPT_USES;
            qsort(use, n, sizeof *use, by_key);
        }
        header h = {.format = FORMAT, .n_counters = N_COUNTERS, .since_s = old.since_s, .n = n, .totals = old.totals};
        memcpy(h.magic, MAGIC, 8);
        add_counts(&h.totals, &delta->counts);
        memcpy(data, &h, sizeof h);
        size_t bytes = sizeof h + n * sizeof *use;
        fu_hash128(data + CHECKED_FROM, bytes - CHECKED_FROM, ((header *)(void *)data)->checksum);
        if (!write_all(fd, data, bytes)) is_forbidden = true;
        fu_free(data);
        *delta = (rt_stats_delta){0};
    }
    rt_stats_free(&old);
    fu_file_unlock(fd);
    return !is_forbidden;
}

/* ---- inspection ---- */
fusor_status rt_cache_read_totals(fu_error *e, const char *dir, rt_cache_stats *totals_out, int64_t *since_s_out) {
    char why[256];
    rt_dir d;
    if (rt_dir_open(dir, false, &d, why, sizeof why))
        return FU_FAIL(e, FUSOR_ERROR_IO, "cache directory %s: %s", dir, why);
    rt_stats_content s;
    rt_stats_read(&d, &s);
    rt_dir_close(&d);
    *totals_out = s.totals;
    *since_s_out = s.since_s;
    rt_stats_free(&s);
    return FUSOR_OK;
}

fusor_status rt_cache_zero_totals(fu_error *e, const char *dir) {
    char why[256];
    rt_dir d;
    if (rt_dir_open(dir, false, &d, why, sizeof why))
        return FU_FAIL(e, FUSOR_ERROR_IO, "cache directory %s: %s", dir, why);
    int failed = unlinkat(d.fd, RT_STATS_FILE, 0) && errno != ENOENT ? errno : 0;
    rt_dir_close(&d);
    if (failed) return FU_FAIL(e, FUSOR_ERROR_IO, "%s/%s: %s", dir, RT_STATS_FILE, strerror(failed));
    return FUSOR_OK;
}
