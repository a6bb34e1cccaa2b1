/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* arena.c: the bump arena and the one door to malloc. */
#include "base/arena.h"
#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct fu_block {
    fu_block *next; /* owned; the older block */
    size_t cap, used;
    size_t dirty; /* bytes from here on were never handed out and are still zero from calloc */
    _Alignas(16) unsigned char at[];
};

enum { ALIGN = 16, FIRST_BLOCK = 4096, LARGEST_BLOCK = 1 << 20 };

/* Counts down; 0 = off. Atomic only so that a fail point set while other threads allocate is no data race. */
static atomic_long fail_in;

static bool allocation_fails(void) {
    if (atomic_load_explicit(&fail_in, memory_order_relaxed) == 0) return false;
    return atomic_fetch_sub_explicit(&fail_in, 1, memory_order_relaxed) == 1;
}

void fu_malloc_fail_at(long n) { atomic_store(&fail_in, n); }

bool fu_has_room(size_t bytes) {
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return room != MAP_FAILED && munmap(room, bytes) == 0;
}

void *fu_malloc(size_t bytes) { return allocation_fails() ? NULL : malloc(bytes ? bytes : 1); }

void *fu_calloc(size_t n, size_t each) { return allocation_fails() ? NULL : calloc(n ? n : 1, each ? each : 1); }

void *fu_realloc(void *p, size_t bytes) { return allocation_fails() ? NULL : realloc(p, bytes ? bytes : 1); }

void fu_free(void *p) { free(p); }

static _Noreturn void out_of_memory(fu_arena *a) {
    assert(a->oom && "an arena needs its oom target before the first allocation");
    longjmp(*a->oom, 1);
}

void fu_arena_init(fu_arena *a, jmp_buf *oom) { *a = (fu_arena){.oom = oom}; }

void fu_arena_free(fu_arena *a) { fu_arena_release(a, (fu_mark){0}); }

static void add_block(fu_arena *a, size_t bytes) {
    size_t cap = a->head ? a->head->cap * 2 : FIRST_BLOCK;
    if (cap > LARGEST_BLOCK) cap = LARGEST_BLOCK;
    if (cap < bytes) cap = bytes;
    if (cap > SIZE_MAX - sizeof(fu_block)) out_of_memory(a);
    fu_block *b = fu_calloc(1, sizeof *b + cap);
    if (!b) out_of_memory(a);
    b->cap = cap;
    b->next = a->head;
    a->head = b;
}

void *fu_alloc(fu_arena *a, size_t bytes) {
    if (bytes > SIZE_MAX / 2) out_of_memory(a);
    bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (!bytes) bytes = ALIGN; /* distinct addresses for empty things, too */
    if (!a->head || a->head->cap - a->head->used < bytes) add_block(a, bytes);
    fu_block *b = a->head;
    unsigned char *p = b->at + b->used;
    if (b->used < b->dirty) memset(p, 0, bytes < b->dirty - b->used ? bytes : b->dirty - b->used);
    b->used += bytes;
    if (b->dirty < b->used) b->dirty = b->used;
    a->bytes += bytes;
    return p;
}

void *fu_alloc_n(fu_arena *a, size_t n, size_t each) {
    size_t bytes;
    if (__builtin_mul_overflow(n, each, &bytes)) out_of_memory(a);
    return fu_alloc(a, bytes);
}

void *fu_dup(fu_arena *a, const void *p, size_t bytes) {
    void *q = fu_alloc(a, bytes);
    if (bytes) memcpy(q, p, bytes);
    return q;
}

char *fu_strdup(fu_arena *a, const char *s) { return fu_strndup(a, s, strlen(s)); }

char *fu_strndup(fu_arena *a, const char *s, size_t n) {
    n = strnlen(s, n);
    if (n == SIZE_MAX) out_of_memory(a);
    char *t = fu_alloc(a, n + 1);
    memcpy(t, s, n);
    return t;
}

char *fu_format(fu_arena *a, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *t = NULL;
    if (n >= 0) {
        t = fu_alloc(a, (size_t)n + 1);
        vsnprintf(t, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    return t ? t : fu_alloc(a, 1); /* vsnprintf fails only on text that is not valid in the locale */
}

fu_mark fu_arena_mark(const fu_arena *a) { return (fu_mark){.block = a->head, .used = a->head ? a->head->used : 0}; }

void fu_arena_release(fu_arena *a, fu_mark m) {
    while (a->head && a->head != m.block) {
        fu_block *next = a->head->next;
        fu_free(a->head);
        a->head = next;
    }
    if (a->head) a->head->used = m.used;
}
