/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* loader.c: executable memory for kernels. */
#include "rt/loader.h"
#include "base/arena.h"
#include "base/file.h"
#include "rt/debugger.h"
#include "rt/fork.h"
#include "rt/probes.h"
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

enum { SLOT = 64, CHUNK_BYTES = 1 << 20, PAGE = 4096 };
#define BLOB_MAX ((size_t)1 << 30)
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

/* One memfd mapped twice. `taken` has a bit for each slot. */
typedef struct chunk {
    struct chunk *next;
    char *rw, *rx;
    size_t bytes;
    pid_t owner; /* the process that made it: a child made by a bare clone ran no fork handler */
    bool is_sealed;
    int kernels;
    size_t n_slots, used_slots, hint;
    uint64_t taken[];
} chunk;

struct rt_code {
    chunk *home; /* NULL: a mapping of its own */
    char *rx;
    size_t bytes, map_bytes, entry;
    void *debugger;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static chunk *chunks;
static rt_code_mode wanted = RT_CODE_AUTO, found = RT_CODE_AUTO; /* found: what AUTO came to in this process */
static int own_mappings;
static int64_t own_bytes;

static void before_fork(void *user) {
    (void)user;
    pthread_mutex_lock(&lock);
}
static void after_fork(void *user) {
    (void)user;
    for (chunk *c = chunks; c; c = c->next) c->is_sealed = true;
    pthread_mutex_unlock(&lock);
}
static void watch_forks(void) {
    static rt_fork_hook hook = {.prepare = before_fork, .parent = after_fork, .child = after_fork};
    rt_fork_add(&hook);
}

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* ---- chunks ---- */
/* Where there is no such file, or none of that size (RLIMIT_FSIZE): mremap(2) from size 0 maps shared pages a second
 * time. */
static void map_without_file(chunk *c, size_t bytes) {
    c->rw = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (c->rw == MAP_FAILED) return;
    c->rx = mremap(c->rw, 0, bytes, MREMAP_MAYMOVE);
    if (c->rx != MAP_FAILED && mprotect(c->rx, bytes, PROT_READ | PROT_EXEC) == 0) return;
    const int e = errno;
    munmap(c->rw, bytes);
    c->rw = MAP_FAILED;
    errno = e;
}

static chunk *new_chunk(size_t bytes) {
    size_t n_slots = bytes / SLOT, words = (n_slots + 63) / 64;
    chunk *c = fu_calloc(1, sizeof *c + words * sizeof c->taken[0]);
    if (!c) return errno = ENOMEM, NULL;
    /* MFD_EXEC is demanded where vm.memfd_noexec is set, and unknown to kernels before 6.3. */
    int fd = memfd_create("fusor-code", MFD_CLOEXEC | MFD_EXEC);
    if (fd < 0 && errno == EINVAL) fd = memfd_create("fusor-code", MFD_CLOEXEC);
    c->rw = c->rx = MAP_FAILED;
    if (fd >= 0 && !fu_file_set_size(fd, bytes)) {
        c->rx = mmap(NULL, bytes, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
        if (c->rx != MAP_FAILED) c->rw = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    } else map_without_file(c, bytes);
    int e = errno;
    if (fd >= 0) close(fd);
    if (c->rw == MAP_FAILED) {
        if (c->rx != MAP_FAILED) munmap(c->rx, bytes);
        fu_free(c);
        errno = e;
        return NULL;
    }
    c->bytes = bytes;
    c->n_slots = n_slots;
    c->owner = getpid();
    c->next = chunks;
    chunks = c;
    return c;
}

static void free_chunk(chunk *c) {
    for (chunk **p = &chunks; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            break;
        }
    munmap(c->rw, c->bytes);
    munmap(c->rx, c->bytes);
    fu_free(c);
}

static bool is_writable(const chunk *c, pid_t pid) { return !c->is_sealed && c->owner == pid; }
static bool is_taken(const chunk *c, size_t i) { return c->taken[i / 64] >> (i % 64) & 1; }
static void set_taken(chunk *c, size_t from, size_t n, bool value) {
    for (size_t i = from; i < from + n; i++) {
        if (value) c->taken[i / 64] |= UINT64_C(1) << (i % 64);
        else c->taken[i / 64] &= ~(UINT64_C(1) << (i % 64));
    }
    c->used_slots = value ? c->used_slots + n : c->used_slots - n;
}

/* First fit in [from, to); n_slots when there is none. */
static size_t find_run(const chunk *c, size_t from, size_t to, size_t n) {
    size_t run = 0;
    for (size_t i = from; i < to; i++) {
        if (i % 64 == 0 && c->taken[i / 64] == UINT64_MAX) { /* a full word at once */
            run = 0;
            i += 63;
            continue;
        }
        run = is_taken(c, i) ? 0 : run + 1;
        if (run == n) return i + 1 - n;
    }
    return c->n_slots;
}

static chunk *find_slots(size_t n, size_t *at_out) {
    pid_t pid = getpid();
    for (chunk *c = chunks, *next; c; c = next) {
        next = c->next;
        if (c->kernels == 0 && !is_writable(c, pid)) { /* was empty when a fork sealed it */
            free_chunk(c);
            continue;
        }
        if (!is_writable(c, pid) || c->n_slots - c->used_slots < n) continue;
        size_t at = find_run(c, c->hint, c->n_slots, n);
        if (at == c->n_slots && c->hint) at = find_run(c, 0, c->n_slots, n);
        if (at < c->n_slots) return *at_out = at, c;
    }
    size_t bytes = round_up(n * SLOT, PAGE);
    *at_out = 0;
    return new_chunk(bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES);
}

static int load_dual(rt_code *code, const void *blob) {
    size_t n = round_up(code->bytes, SLOT) / SLOT, at;
    chunk *c = find_slots(n, &at);
    if (!c) return errno ? errno : ENOMEM;
    set_taken(c, at, n, true);
    c->hint = at + n;
    c->kernels++;
    memcpy(c->rw + at * SLOT, blob, code->bytes);
    code->home = c;
    code->rx = c->rx + at * SLOT;
    return 0;
}

/* ---- a mapping for each blob ---- */
static int load_protect(rt_code *code, const void *blob) {
    size_t bytes = round_up(code->bytes, PAGE);
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return errno;
    memcpy(p, blob, code->bytes);
    if (mprotect(p, bytes, PROT_READ | PROT_EXEC)) {
        int e = errno;
        munmap(p, bytes);
        return e;
    }
    code->rx = p;
    code->map_bytes = bytes;
    own_mappings++;
    own_bytes += (int64_t)bytes;
    return 0;
}

static bool is_refusal(int e) { return e == EPERM || e == EACCES || e == ENOSYS || e == EINVAL || e == EOPNOTSUPP; }

/* Under the lock. dual and protect: the errno of each way; -1 where not tried. */
static bool place(rt_code *code, const void *blob, int *dual_out, int *protect_out) {
    rt_code_mode mode = wanted == RT_CODE_AUTO ? found : wanted;
    const bool is_free = wanted == RT_CODE_AUTO && mode != RT_CODE_NONE;
    if (is_free && rt_debugger_wants_private_code() && (*protect_out = load_protect(code, blob)) == 0) return true;
    if (mode == RT_CODE_AUTO || mode == RT_CODE_DUAL) {
        *dual_out = load_dual(code, blob);
        if (*dual_out == 0) {
            if (wanted == RT_CODE_AUTO) found = RT_CODE_DUAL;
            return true;
        }
        if (mode == RT_CODE_DUAL && wanted != RT_CODE_AUTO) return false;
    }
    if (mode == RT_CODE_NONE) return false;
    *protect_out = load_protect(code, blob);
    /* Out of memory or descriptors now says nothing about the next time. */
    if (*protect_out == 0 && wanted == RT_CODE_AUTO && is_refusal(*dual_out)) found = RT_CODE_PROTECT;
    return *protect_out == 0;
}

fusor_status rt_code_load(fu_error *e, const void *blob, size_t bytes, uint64_t entry, const char *symbol,
                          const rt_code_debug *debug, rt_code **out) {
    if (!bytes || bytes > BLOB_MAX || entry >= bytes)
        return FU_FAIL(
            e, FUSOR_ERROR_ARGUMENT,
            "kernel %s: a blob of %zu bytes with its function at %llu; expected 1 to %zu bytes and the function inside",
            symbol, bytes, (unsigned long long)entry, BLOB_MAX);
    pthread_once(&once, watch_forks);
    rt_code *code = fu_calloc(1, sizeof *code);
    if (!code) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "kernel %s: no memory to load it", symbol);
    code->bytes = bytes;
    code->entry = (size_t)entry;
    int dual = -1, protect = -1;
    pthread_mutex_lock(&lock);
    bool ok = place(code, blob, &dual, &protect);
    pthread_mutex_unlock(&lock);
    if (!ok) {
        fu_free(code);
        if (dual == ENOMEM || protect == ENOMEM || dual == EMFILE || dual == ENFILE)
            return FU_FAIL(e, FUSOR_ERROR_MEMORY, "kernel %s: no memory for %zu bytes of code", symbol, bytes);
        return FU_FAIL(e, FUSOR_ERROR_UNSUPPORTED,
                       "kernel %s: this system allows no executable memory (two mappings: %s; mprotect: %s)", symbol,
                       dual < 0 ? "not tried" : strerror(dual), protect < 0 ? "not tried" : strerror(protect));
    }
    __builtin___clear_cache(code->rx, code->rx + bytes);
    RT_PROBE_LOAD(symbol, code->rx, bytes);
    code->debugger = rt_debugger_add(symbol, code->rx, bytes, debug);
    *out = code;
    return FUSOR_OK;
}

void *rt_code_entry(const rt_code *c) { return c->rx + c->entry; }

void rt_code_release(rt_code *code) {
    if (!code) return;
    rt_debugger_remove(code->debugger);
    pthread_mutex_lock(&lock);
    chunk *c = code->home;
    if (c) {
        if (is_writable(c, getpid())) {
            /* int3: a call through a stale pointer stops there instead of running another kernel's code. */
            memset(c->rw + (code->rx - c->rx), 0xCC, code->bytes);
            size_t at = (size_t)(code->rx - c->rx) / SLOT;
            set_taken(c, at, round_up(code->bytes, SLOT) / SLOT, false);
            if (at < c->hint) c->hint = at;
        }
        /* The last chunk stays: a program that makes and frees one kernel at a time would map and unmap for each. */
        bool is_only = chunks == c && !c->next && is_writable(c, getpid()) && c->bytes == CHUNK_BYTES;
        if (--c->kernels == 0 && !is_only) free_chunk(c);
    } else {
        munmap(code->rx, code->map_bytes);
        own_mappings--;
        own_bytes -= (int64_t)code->map_bytes;
    }
    pthread_mutex_unlock(&lock);
    fu_free(code);
}

void rt_code_set_mode(rt_code_mode mode) {
    pthread_mutex_lock(&lock);
    wanted = mode;
    found = RT_CODE_AUTO;
    pthread_mutex_unlock(&lock);
}

rt_code_stats rt_code_get_stats(void) {
    rt_code_stats s = {0};
    pthread_mutex_lock(&lock);
    s.kernels = own_mappings;
    s.mapped_bytes = s.used_bytes = own_bytes;
    for (chunk *c = chunks; c; c = c->next) {
        s.chunks++;
        s.sealed_chunks += c->is_sealed;
        s.kernels += c->kernels;
        s.mapped_bytes += (int64_t)c->bytes;
        s.used_bytes += (int64_t)c->used_slots * SLOT;
    }
    pthread_mutex_unlock(&lock);
    return s;
}
