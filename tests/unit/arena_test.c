/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* arena_test.c: the arena: alignment, zero fill, marks, running out of memory. */
#include "base/arena.h"
#include "base/vec.h"
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

static bool is_zero(const unsigned char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i]) return false;
    return true;
}

Test(arena, memory_is_aligned_distinct_and_zero) {
    jmp_buf oom;
    cr_assert_eq(setjmp(oom), 0);
    fu_arena a;
    fu_arena_init(&a, &oom);
    unsigned char *last = NULL;
    for (size_t n = 0; n < 3000; n += 7) {
        unsigned char *p = fu_alloc(&a, n);
        cr_assert_eq((uintptr_t)p % 16, 0);
        cr_assert_neq(p, last);
        cr_assert(is_zero(p, n));
        memset(p, 0xaa, n);
        last = p;
    }
    cr_assert(is_zero(fu_alloc(&a, 5u << 20), 5u << 20));
    fu_arena_free(&a);
    cr_assert_null(a.head);
    cr_assert(is_zero(fu_alloc(&a, 100), 100), "usable again after free");
    fu_arena_free(&a);
}

Test(arena, released_memory_comes_back_zero) {
    jmp_buf oom;
    cr_assert_eq(setjmp(oom), 0);
    fu_arena a;
    fu_arena_init(&a, &oom);
    int *kept = FU_NEW(&a, int);
    *kept = 42;
    fu_mark m = fu_arena_mark(&a);
    for (int round = 0; round < 3; round++) {
        unsigned char *p = fu_alloc(&a, 1000);
        cr_assert(is_zero(p, 1000), "round %d", round);
        memset(p, 0xff, 1000);
        memset(fu_alloc(&a, 1u << 21), 0xff, 1u << 21);
        fu_arena_release(&a, m);
        /* A smaller and then a larger piece over the same dirty bytes. */
        cr_assert(is_zero(fu_alloc(&a, 24), 24));
        cr_assert(is_zero(fu_alloc(&a, 2000), 2000));
        fu_arena_release(&a, m);
    }
    cr_assert_eq(*kept, 42);
    fu_arena_free(&a);
}

Test(arena, strings) {
    jmp_buf oom;
    cr_assert_eq(setjmp(oom), 0);
    fu_arena a;
    fu_arena_init(&a, &oom);
    cr_assert_str_eq(fu_strdup(&a, "relu"), "relu");
    cr_assert_str_eq(fu_strndup(&a, "softmax", 4), "soft");
    cr_assert_str_eq(fu_strndup(&a, "ab", 10), "ab");
    cr_assert_str_eq(fu_format(&a, "%d-%s", 7, "x"), "7-x");
    char long_text[5000];
    memset(long_text, 'y', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    cr_assert_str_eq(fu_format(&a, "%s", long_text), long_text);
    fu_arena_free(&a);
}

/* Every allocation of a small job fails once; each time control arrives at the target and nothing leaks. */
Test(arena, out_of_memory_goes_to_the_target) {
    for (volatile long n = 1;; n++) {
        jmp_buf oom;
        static fu_arena a;
        volatile bool failed = true;
        fu_arena_init(&a, &oom);
        if (!setjmp(oom)) {
            fu_malloc_fail_at(n);
            for (int i = 0; i < 10; i++) fu_alloc(&a, 100000);
            failed = false;
        }
        fu_malloc_fail_at(0);
        fu_arena_free(&a);
        if (!failed) {
            cr_assert_gt(n, 3, "some allocations must have failed");
            break;
        }
        cr_assert_lt(n, 1000);
    }
}

Test(arena, overflow_is_out_of_memory) {
    jmp_buf oom;
    fu_arena a;
    volatile int caught = 0;
    fu_arena_init(&a, &oom);
    if (!setjmp(oom)) fu_alloc_n(&a, SIZE_MAX / 2, 3);
    else caught++;
    if (!setjmp(oom)) fu_alloc(&a, SIZE_MAX);
    else caught++;
    if (!setjmp(oom)) fu_alloc(&a, SIZE_MAX / 2);
    else caught++;
    cr_assert_eq(caught, 3);
    fu_arena_free(&a);
}

Test(arena, malloc_fails_when_told) {
    fu_malloc_fail_at(2);
    void *p = fu_malloc(8), *q = fu_calloc(1, 8), *r = fu_realloc(NULL, 8);
    cr_assert_not_null(p);
    cr_assert_null(q);
    cr_assert_not_null(r);
    fu_free(p);
    fu_free(r);
}

Test(vec, grows) {
    jmp_buf oom;
    cr_assert_eq(setjmp(oom), 0);
    fu_arena a;
    fu_arena_init(&a, &oom);
    fu_vec(uint64_t) v = {0};
    for (uint64_t i = 0; i < 1000; i++) fu_push(&a, &v, i * i);
    cr_assert_eq(v.n, 1000);
    for (uint64_t i = 0; i < 1000; i++) cr_assert_eq(v.at[i], i * i);
    fu_reserve(&a, &v, 100000);
    cr_assert_geq(v.cap, 100000);
    cr_assert_eq(v.at[999], 999 * 999);
    fu_arena_free(&a);
}
