/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FU_ARENA_H
#define FU_ARENA_H
/* Bump arena. Everything a compile makes lives in one and dies with it; nothing inside is freed alone.
 *
 * Running out of memory does not return: fu_alloc unwinds with longjmp to the arena's `oom` target, which
 * the outermost entry point sets (setjmp). So no code between checks for NULL. The price: a function
 * that holds a lock, a file descriptor or malloc'ed memory must not call fu_alloc while it does. */
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fu_block fu_block;
typedef struct fu_arena {
    fu_block *head; /* owned; newest first */
    jmp_buf *oom;   /* borrowed; where running out of memory goes; must be set before the first allocation */
    size_t bytes;   /* total handed out */
} fu_arena;
typedef struct fu_mark {
    fu_block *block;
    size_t used;
} fu_mark;

void fu_arena_init(fu_arena *a, jmp_buf *oom);
void fu_arena_free(fu_arena *a);                      /* frees every block; the arena can be used again */
void *fu_alloc(fu_arena *a, size_t bytes);            /* zero-filled, 16-byte aligned; never NULL */
void *fu_alloc_n(fu_arena *a, size_t n, size_t each); /* the same, n * each with overflow = out of memory */
void *fu_dup(fu_arena *a, const void *p, size_t bytes);
char *fu_strdup(fu_arena *a, const char *s);
char *fu_strndup(fu_arena *a, const char *s, size_t n);
char *fu_format(fu_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
fu_mark fu_arena_mark(const fu_arena *a);
void fu_arena_release(fu_arena *a, fu_mark m); /* frees what was allocated since the mark */

/* The arena of one call, opened by a function that frees it on its own way out: where memory runs out below, the arena
 * is freed and the statement after the name, a return, executed. What that reads and the function changes is volatile,
 * as always with setjmp. */
#define FU_CALL_ARENA(name, ...)                                                                                       \
    fu_arena name;                                                                                                     \
    jmp_buf name##_oom;                                                                                                \
    fu_arena_init(&name, &name##_oom);                                                                                 \
    if (setjmp(name##_oom)) {                                                                                          \
        fu_arena_free(&name);                                                                                          \
        __VA_ARGS__;                                                                                                   \
    }

#define FU_NEW(a, T)      ((T *)fu_alloc((a), sizeof(T)))
#define FU_NEW_N(a, T, n) ((T *)fu_alloc_n((a), (size_t)(n), sizeof(T)))

/* malloc behind one door so that the chaos tests can let the n-th allocation fail.
 * fu_malloc_fail_at(n): the n-th call from now on fails (0 = never). Thread-unsafe, tests only. */
void *fu_malloc(size_t bytes);
void *fu_calloc(size_t n, size_t each);
void *fu_realloc(void *p, size_t bytes);
void fu_free(void *p);
void fu_malloc_fail_at(long n);
/* Is so much address space left? Asked before LLVM gets to work, which ends the process where malloc has nothing for it.
 * Not by malloc, which would take its freeing as advice about all large blocks of the program. */
bool fu_has_room(size_t bytes);
#endif
