/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* fake_memory.c: a device's memory. Addresses come from a range that nobody may read or write, so that the host's use
 * of one faults; contents lie elsewhere. Addresses are not used twice and have a gap behind each, so that what is
 * outside, or freed, or not there yet, is found. What was never written reads as bytes of 0xff: NaNs, and -1. */
#include "fake_cuda.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 256, GAP = 256, CHUNK = 1 << 16, SMALL = 1 << 20, POISON = 0xff };
typedef struct host {
    struct host *next;
    size_t bytes;
    uint8_t *at;
} host;
static host *hosts;

bool fake_memory_open(fake_device *d) {
    for (d->reserved_bytes = 1ull << 42; d->reserved_bytes >= 1ull << 34; d->reserved_bytes >>= 1) {
        d->reserved = mmap(NULL, d->reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (d->reserved != MAP_FAILED) return true;
    }
    return false;
}

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* ---- the table ---- */
static bool contains(const fake_allocation *a, cu_address at) { return at - a->base < a->bytes; }

/* The last allocation that begins at or before `at`; -1: none. */
static int find(const fake_device *d, cu_address at) {
    int low = 0, high = d->n_list;
    while (low < high) {
        int middle = (low + high) / 2;
        if (d->list[middle].base <= at) low = middle + 1;
        else high = middle;
    }
    return low - 1;
}

static void explain(const fake_device *d, cu_address at, uint64_t bytes, char *why) {
    int i = find(d, at);
    const fake_allocation *a = i < 0 ? NULL : &d->list[i];
    for (int k = 0; k < fake_set.n_devices; k++)
        if (&fake_devices[k] != d &&
            at - (cu_address)(uintptr_t)fake_devices[k].reserved < fake_devices[k].reserved_bytes) {
            snprintf(why, PTX_ERROR_ROOM, "%llu bytes at %#llx, which is memory of device %d",
                     (unsigned long long)bytes, (unsigned long long)at, k);
            return;
        }
    if (!a || at - a->base > a->bytes + (64 << 20)) {
        snprintf(why, PTX_ERROR_ROOM, "%llu bytes at %#llx, which is no memory of the device",
                 (unsigned long long)bytes, (unsigned long long)at);
        return;
    }
    snprintf(why, PTX_ERROR_ROOM, "%llu bytes at offset %llu of allocation %d, which has %zu bytes%s",
             (unsigned long long)bytes, (unsigned long long)(at - a->base), a->number, a->bytes,
             a->is_freed      ? " and is freed"
             : !a->is_reached ? " and is not there yet: its stream has not reached cuMemAllocAsync"
                              : "");
}

static void touch(fake_allocation *a, uint64_t from, uint64_t bytes) {
    for (uint64_t c = from / CHUNK; c <= (from + bytes - 1) / CHUNK; c++) {
        if (a->touched[c]) continue;
        a->touched[c] = 1;
        size_t left = a->bytes - c * CHUNK;
        memset(a->host + c * CHUNK, POISON, left < CHUNK ? left : CHUNK);
    }
}

uint8_t *fake_memory_at(fake_device *d, cu_address at, uint64_t bytes, char *why) {
    fake_allocation *a = d->found < d->n_list ? &d->list[d->found] : NULL;
    bool is_all;
    if (!a || !contains(a, at)) {
        int i = find(d, at);
        a = i < 0 ? NULL : &d->list[i];
        if (a && contains(a, at)) d->found = i;
        else {
            const void *p = (const void *)(uintptr_t)at;
            if (fake_is_pinned(p, bytes, &is_all) && is_all) return (uint8_t *)(uintptr_t)p;
            return explain(d, at, bytes, why), NULL;
        }
    }
    uint64_t offset = at - a->base;
    if (bytes > a->bytes - offset || a->is_freed || !a->is_reached) return explain(d, at, bytes, why), NULL;
    if (a->touched && bytes) touch(a, offset, bytes);
    return a->host + offset;
}

fake_allocation *fake_memory_find(cu_address at, fake_device **device) {
    for (int k = 0; k < fake_set.n_devices; k++) {
        fake_device *d = &fake_devices[k];
        int i = find(d, at);
        if (i < 0 || !contains(&d->list[i], at) || d->list[i].is_freed) continue;
        *device = d;
        return &d->list[i];
    }
    return NULL;
}

static cu_result allocate(fake_context *c, cu_address *address, size_t bytes, bool is_async) {
    fake_device *d = c->device;
    if (!address || !bytes) return CU_INVALID_VALUE;
    if (bytes > fake_set.memory - d->used && is_async) fake_run_all(c); /* what is freed in a stream may come free */
    if (bytes > fake_set.memory - d->used || round_up(bytes, ALIGNMENT) + GAP > d->reserved_bytes - d->next)
        return CU_OUT_OF_MEMORY;
    if (d->n_list == d->n_room) {
        int room = d->n_room ? 2 * d->n_room : 64;
        fake_allocation *more = realloc(d->list, (size_t)room * sizeof *more);
        if (!more) return CU_OUT_OF_MEMORY;
        d->list = more;
        d->n_room = room;
    }
    fake_allocation a = {.base = (cu_address)(uintptr_t)d->reserved + d->next,
                         .bytes = bytes,
                         .is_async = is_async,
                         .is_reached = !is_async,
                         .number = d->n_list};
    if (bytes <= SMALL) {
        if (posix_memalign((void **)&a.host, ALIGNMENT, round_up(bytes, ALIGNMENT))) return CU_OUT_OF_MEMORY;
        memset(a.host, POISON, bytes);
    } else {
        a.host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        a.touched = calloc(bytes / CHUNK + 1, 1);
        if (a.host == MAP_FAILED || !a.touched) return CU_OUT_OF_MEMORY;
    }
    d->list[d->n_list++] = a;
    d->used += bytes;
    d->next += round_up(bytes, ALIGNMENT) + GAP;
    *address = a.base;
    return CU_OK;
}

static void release(fake_device *d, fake_allocation *a) {
    if (a->bytes <= SMALL) free(a->host);
    else munmap(a->host, a->bytes);
    free(a->touched);
    a->host = a->touched = NULL;
    a->is_freed = true;
    d->used -= a->bytes;
}

void fake_memory_reach(fake_device *d, cu_address base) { d->list[find(d, base)].is_reached = true; }

cu_result fake_memory_free(fake_device *d, cu_address base, const char *how) {
    int i = find(d, base);
    if (i < 0 || d->list[i].base != base)
        return fake_say(CU_INVALID_VALUE, "%s of %#llx, which was never allocated on device %d", how,
                        (unsigned long long)base, d->ordinal);
    if (d->list[i].is_freed) return fake_say(CU_INVALID_VALUE, "%s of allocation %d, which is freed", how, i);
    if (!d->list[i].is_reached)
        return fake_say(CU_INVALID_VALUE, "%s of allocation %d, which its stream has not reached", how, i);
    release(d, &d->list[i]);
    return CU_OK;
}

void fake_memory_drop(fake_device *d) {
    for (int i = 0; i < d->n_list; i++)
        if (!d->list[i].is_freed) release(d, &d->list[i]);
}

/* ---- the driver's functions ---- */
cu_result cuMemAlloc_v2(cu_address *address, size_t bytes) {
    CALL(cuMemAlloc_v2, CONTEXT);
    return allocate(call.context, address, bytes, false);
}

/* Waits for the device's work, as the real one does; not for memory of cuMemAllocAsync. */
cu_result cuMemFree_v2(cu_address address) {
    CALL(cuMemFree_v2, CONTEXT);
    fake_device *of;
    const fake_allocation *a = fake_memory_find(address, &of);
    if (!address) return CU_OK;
    if (a && !a->is_async && fake_run_all(call.context)) return call.context->dead;
    return fake_memory_free(call.context->device, address, "cuMemFree");
}

cu_result cuMemAllocAsync(cu_address *address, size_t bytes, cu_stream stream) {
    CALL(cuMemAllocAsync, CONTEXT);
    fake_stream *s = fake_stream_of(&call, stream);
    if (!s) return call.result;
    cu_result r = allocate(call.context, address, bytes, true);
    if (r) return r;
    return fake_put(&call, s, (fake_work){.kind = FAKE_ALLOC, .to = *address, .to_device = call.context->device});
}

cu_result cuMemFreeAsync(cu_address address, cu_stream stream) {
    CALL(cuMemFreeAsync, CONTEXT);
    fake_stream *s = fake_stream_of(&call, stream);
    fake_device *of = NULL;
    if (!s) return call.result;
    const fake_allocation *a = fake_memory_find(address, &of);
    if (!a || a->base != address || of != call.context->device)
        return fake_say(CU_INVALID_VALUE, "cuMemFreeAsync of %#llx, which is not allocated",
                        (unsigned long long)address);
    return fake_put(&call, s, (fake_work){.kind = FAKE_FREE, .to = address, .to_device = of});
}

cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    CALL(cuMemGetInfo_v2, CONTEXT);
    if (!free_bytes || !total_bytes) return CU_INVALID_VALUE;
    *free_bytes = fake_set.memory - call.context->device->used;
    *total_bytes = fake_set.memory;
    return CU_OK;
}

cu_result cuMemHostAlloc(void **p, size_t bytes, unsigned flags) {
    CALL(cuMemHostAlloc, CONTEXT);
    if (!p || flags > 7) return CU_INVALID_VALUE;
    if (!bytes) return *p = NULL, CU_OK;
    host *h = calloc(1, sizeof *h);
    if (!h || posix_memalign((void **)&h->at, 4096, bytes)) return free(h), CU_OUT_OF_MEMORY;
    memset(h->at, POISON, bytes);
    h->bytes = bytes;
    h->next = hosts;
    hosts = h;
    *p = h->at;
    return CU_OK;
}

static bool uses_host(const fake_work *w, const void *what) {
    const host *h = what;
    return w->kind == FAKE_COPY && ((!w->to_device && w->to - (uintptr_t)h->at < h->bytes) ||
                                    (!w->from_device && !w->staged && w->from - (uintptr_t)h->at < h->bytes));
}

cu_result cuMemFreeHost(void *p) {
    CALL(cuMemFreeHost, CONTEXT);
    int stream;
    if (!p) return CU_OK;
    for (host **at = &hosts; *at; at = &(*at)->next) {
        host *h = *at;
        if (h->at != p) continue;
        if (fake_is_pending(uses_host, h, &stream))
            return fake_kill(call.context, CU_ILLEGAL_ADDRESS,
                             "cuMemFreeHost of memory that a copy on stream %d has still to use", stream);
        *at = h->next;
        free(h->at);
        free(h);
        return CU_OK;
    }
    return fake_say(CU_INVALID_VALUE, "cuMemFreeHost of %p, which cuMemHostAlloc did not give", p);
}

bool fake_is_pinned(const void *p, size_t bytes, bool *is_all) {
    for (const host *h = hosts; h; h = h->next) {
        uintptr_t offset = (uintptr_t)p - (uintptr_t)h->at;
        if (offset >= h->bytes) continue;
        *is_all = bytes <= h->bytes - offset;
        return true;
    }
    return false;
}

cu_result cuPointerGetAttribute(void *value, int attribute, cu_address address) {
    CALL(cuPointerGetAttribute, INITIALIZED);
    fake_device *d;
    bool is_all;
    if (!value) return CU_INVALID_VALUE;
    const fake_allocation *a = fake_memory_find(address, &d);
    bool is_host = !a && fake_is_pinned((const void *)(uintptr_t)address, 1, &is_all);
    if (!a && !is_host) return CU_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_CONTEXT: *(cu_context *)value = a ? &d->context : NULL; return CU_OK;
    case CU_POINTER_MEMORY_TYPE: *(unsigned *)value = a ? CU_MEMORY_DEVICE : CU_MEMORY_HOST; return CU_OK;
    case CU_POINTER_DEVICE_ORDINAL: *(int *)value = a ? d->ordinal : 0; return CU_OK;
    default: return CU_INVALID_VALUE;
    }
}

long fake_memory_live(const char *kind) {
    long n = 0;
    bool is_bytes = strcmp(kind, "bytes") == 0;
    if (strcmp(kind, "host") == 0)
        for (const host *h = hosts; h; h = h->next) n++;
    if (is_bytes || strcmp(kind, "memory") == 0)
        for (int k = 0; k < FAKE_MAX_DEVICES; k++)
            for (int i = 0; i < fake_devices[k].n_list; i++)
                if (!fake_devices[k].list[i].is_freed) n += is_bytes ? (long)fake_devices[k].list[i].bytes : 1;
    return n;
}
