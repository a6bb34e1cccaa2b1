/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* buffer.c: the pool of tensor memory and the register of what callers hold. */
#include "rt/buffer.h"
#include "base/arena.h"
#include "rt/exec.h"
#include "rt/fork.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 64, STEPS = 4, CLASSES = 64 * STEPS };
#define HUGE_BYTES      ((size_t)2 << 20)
#define CACHE_MAX_BYTES ((int64_t)256 << 20)

typedef struct spare {
    struct spare *next;
} spare;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static spare *spares[CLASSES];
static int64_t cached_bytes;
static rt_memory_stats counted; /* gets, reused, system_bytes */

/* What callers hold: open addressing by address; grows at 3/4. */
typedef struct held {
    void *p;
    size_t bytes;
    void (*deallocate)(void *user, void *p, size_t bytes);
    void *user;
} held;
static held *table;
static size_t table_cap, table_n;

static void watch_forks(void) {
    static rt_fork_hook hook;
    rt_fork_guard(&hook, &lock);
}

/* Classes are 64, 80, 96, 112, 128, 160 ...: four to a power of two, so that at most a fifth is wasted. */
static size_t class_of(size_t bytes, int *class_out) {
    if (bytes < ALIGN) bytes = ALIGN;
    int top = 63 - __builtin_clzll(bytes); /* 2^top <= bytes */
    size_t unit = (size_t)1 << (top - 2);
    size_t step = (bytes - ((size_t)1 << top) + unit - 1) / unit;
    *class_out = top * STEPS + (int)step; /* step 4 is the next power's step 0 */
    return ((size_t)1 << top) + step * unit;
}

/* ---- from the system ---- */
static void *system_get(size_t bytes) {
    if (bytes >= HUGE_BYTES) {
        size_t room = bytes + HUGE_BYTES;
        char *base = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED) return NULL;
        char *p = (char *)(((uintptr_t)base + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1));
        size_t end = (bytes + 4095) & ~(size_t)4095;
        if (p > base) munmap(base, (size_t)(p - base));
        munmap(p + end, (size_t)(base + room - (p + end)));
        (void)madvise(p, end, MADV_HUGEPAGE);
        return p;
    }
    char *raw = fu_malloc(bytes + ALIGN + sizeof(void *));
    if (!raw) return NULL;
    char *p = (char *)(((uintptr_t)raw + sizeof(void *) + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1));
    memcpy(p - sizeof(void *), &raw, sizeof raw);
    return p;
}

static void system_put(void *p, size_t bytes) {
    if (bytes >= HUGE_BYTES) {
        munmap(p, (bytes + 4095) & ~(size_t)4095);
        return;
    }
    void *raw;
    memcpy(&raw, (char *)p - sizeof(void *), sizeof raw);
    fu_free(raw);
}

/* ---- pool ---- */
static void *pool_get(size_t bytes) {
    if (bytes > (size_t)1 << 46) return NULL;
    int class;
    size_t size = class_of(bytes, &class);
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    spare *s = spares[class];
    counted.gets++;
    if (!s) counted.system_bytes += (int64_t)size;
    if (s) {
        counted.reused++;
        spares[class] = s->next;
        cached_bytes -= (int64_t)size;
    }
    pthread_mutex_unlock(&lock);
    return s ? s : system_get(size);
}

static void pool_put(void *p, size_t bytes) {
    int class;
    size_t size = class_of(bytes, &class);
    pthread_mutex_lock(&lock);
    bool keeps = cached_bytes + (int64_t)size <= CACHE_MAX_BYTES;
    if (keeps) {
        spare *s = p;
        s->next = spares[class];
        spares[class] = s;
        cached_bytes += (int64_t)size;
    }
    pthread_mutex_unlock(&lock);
    if (!keeps) system_put(p, size);
}

void *rt_memory_get(const rt_exec_options *options, size_t bytes) {
    if (!bytes) bytes = 1;
    return options && options->allocate ? options->allocate(options->memory_user, bytes, ALIGN) : pool_get(bytes);
}

void rt_memory_put(const rt_exec_options *options, void *p, size_t bytes) {
    if (!p) return;
    if (!bytes) bytes = 1;
    if (options && options->allocate) options->deallocate(options->memory_user, p, bytes);
    else pool_put(p, bytes);
}

void rt_memory_trim(void) {
    spare *all[CLASSES];
    pthread_mutex_lock(&lock);
    memcpy(all, spares, sizeof all);
    memset(spares, 0, sizeof spares);
    cached_bytes = 0;
    pthread_mutex_unlock(&lock);
    for (int c = 0; c < CLASSES; c++)
        for (spare *s = all[c], *next; s; s = next) {
            next = s->next;
            int top = c / STEPS;
            system_put(s, ((size_t)1 << top) + (size_t)(c % STEPS) * ((size_t)1 << (top - 2)));
        }
}

/* ---- what callers hold ---- */
static size_t slot_of(const void *p) { return (size_t)(((uintptr_t)p >> 6) * 0x9E3779B97F4A7C15u >> 20); }

static bool grow_table(void) {
    size_t cap = table_cap ? table_cap * 2 : 64;
    held *bigger = fu_calloc(cap, sizeof *bigger);
    if (!bigger) return false;
    for (size_t i = 0; i < table_cap; i++) {
        if (!table[i].p) continue;
        size_t at = slot_of(table[i].p) & (cap - 1);
        while (bigger[at].p) at = (at + 1) & (cap - 1);
        bigger[at] = table[i];
    }
    fu_free(table);
    table = bigger;
    table_cap = cap;
    return true;
}

static bool note(held h) {
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    bool ok = table_n < table_cap / 4 * 3 || grow_table();
    if (ok) {
        size_t at = slot_of(h.p) & (table_cap - 1);
        while (table[at].p) at = (at + 1) & (table_cap - 1);
        table[at] = h;
        table_n++;
    }
    pthread_mutex_unlock(&lock);
    return ok;
}

static bool forget(void *p, held *out) {
    bool found = false;
    pthread_mutex_lock(&lock);
    if (table_cap) {
        size_t mask = table_cap - 1, at = slot_of(p) & mask;
        while (table[at].p && table[at].p != p) at = (at + 1) & mask;
        if (table[at].p) {
            *out = table[at];
            found = true;
            table_n--;
            /* Those behind it move up, so that no search ends at the hole. */
            for (size_t hole = at, i = (at + 1) & mask;; i = (i + 1) & mask) {
                table[hole].p = NULL;
                while (table[i].p && ((i - (slot_of(table[i].p) & mask)) & mask) < ((i - hole) & mask))
                    i = (i + 1) & mask;
                if (!table[i].p) break;
                table[hole] = table[i];
                hole = i;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void *rt_buffer_get(const rt_exec_options *options, size_t bytes) {
    if (!bytes) bytes = 1;
    void *p = rt_memory_get(options, bytes);
    bool has_own = options && options->allocate;
    if (!p || note((held){p, bytes, has_own ? options->deallocate : NULL, has_own ? options->memory_user : NULL}))
        return p;
    rt_memory_put(options, p, bytes);
    return NULL;
}

void rt_buffer_release(const rt_exec_options *options, void *p) {
    (void)options;
    held h;
    if (!p || !forget(p, &h)) return;
    if (h.deallocate) h.deallocate(h.user, p, h.bytes);
    else pool_put(p, h.bytes);
}

bool rt_buffer_note(void *p, size_t bytes, void (*give)(void *user, void *p, size_t bytes), void *user) {
    return note((held){p, bytes, give, user});
}

void rt_buffer_give_all(const void *user) {
    for (;;) {
        void *p = NULL;
        pthread_mutex_lock(&lock);
        for (size_t i = 0; i < table_cap && !p; i++)
            if (table[i].p && table[i].user == user) p = table[i].p;
        pthread_mutex_unlock(&lock);
        if (!p) return;
        rt_buffer_release(NULL, p);
    }
}

rt_memory_stats rt_memory_get_stats(void) {
    pthread_mutex_lock(&lock);
    rt_memory_stats s = counted;
    s.cached_bytes = cached_bytes;
    s.live_buffers = (int64_t)table_n;
    pthread_mutex_unlock(&lock);
    return s;
}
