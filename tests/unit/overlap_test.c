/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* overlap_test.c: do two buffers share a byte, or two elements of one? Beside what marking every byte says; with layouts
 * over more bytes than could be marked; and without memory. */
#include "rt/exec.h"
#include "base/arena.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 1 << 14, MIDDLE = ROOM / 2, N_CASES = 100000 };

static unsigned seed = 1;
static int below(int n) { return (int)(rand_r(&seed) % (unsigned)n); }

static int64_t bytes_of(const fusor_buffer *b) { return (int64_t)fusor_dtype_size(b->dtype); }

/* Marks the bytes of b, which lies in a room that begins at 0; true where one was marked before. */
static bool mark(const fusor_buffer *b, unsigned char *room) {
    bool found = false;
    int64_t n = 1;
    for (int d = 0; d < b->rank; d++) n *= b->shape[d];
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, rest = i;
        for (int d = b->rank - 1; d >= 0; rest /= b->shape[d--]) at += rest % b->shape[d] * b->stride[d];
        unsigned char *p = room + (int64_t)(intptr_t)b->data + at * bytes_of(b);
        for (int64_t k = 0; k < bytes_of(b); k++) found |= p[k]++ != 0;
    }
    return found;
}

static fusor_buffer any(int rank, int widest) {
    static const fusor_dtype types[4] = {FUSOR_I8, FUSOR_F16, FUSOR_F32, FUSOR_F64};
    fusor_buffer b = {.dtype = types[below(4)], .rank = rank, .flags = FUSOR_STRIDED};
    for (int d = 0; d < rank; d++) {
        b.shape[d] = below(5) + (below(50) != 0);
        b.stride[d] = below(widest) * (below(4) ? 1 : -1);
    }
    return b;
}

static bool no_memory_overlap(const fusor_buffer *a, const fusor_buffer *b) {
    fu_malloc_fail_at(1);
    const bool is = b ? rt_buffers_overlap(a, b) : rt_buffer_overlaps_itself(a);
    fu_malloc_fail_at(0);
    return is;
}

Test(overlap, is_exact) {
    static unsigned char room[2][ROOM];
    int n[2][2] = {{0}};
    for (int i = 0; i < N_CASES; i++) {
        const int widest = below(2) ? 8 : 40;
        fusor_buffer a = any(below(5), widest), b = any(below(2) ? a.rank : below(5), widest);
        for (int d = 0; d < a.rank && d < b.rank; d++)
            if (below(3)) b.stride[d] = a.stride[d];
        if (below(2)) b.dtype = a.dtype;
        a.data = (void *)(intptr_t)MIDDLE; /* addresses: nothing is read */
        b.data = (void *)(intptr_t)(MIDDLE + below(60) * bytes_of(&b));
        memset(room, 0, sizeof room);
        const bool self = mark(&a, room[0]);
        (void)mark(&b, room[1]);
        bool common = false;
        for (int k = 0; k < ROOM; k++) common |= room[0][k] && room[1][k];
        cr_assert_eq(no_memory_overlap(&a, NULL), self, "case %d, itself", i);
        cr_assert_eq(no_memory_overlap(&a, &b), common, "case %d", i);
        cr_assert_eq(no_memory_overlap(&b, &a), common, "case %d, the other way", i);
        n[0][self]++, n[1][common]++;
    }
    for (int i = 0; i < 4; i++) cr_assert(n[i / 2][i % 2] > N_CASES / 10);
}

Test(overlap, wide_layouts) {
    for (int64_t s = 128; s < INT64_C(1) << 50; s *= 2) {
        fusor_buffer a = {.data = (void *)(intptr_t)4096,
                          .dtype = FUSOR_F32,
                          .rank = 3,
                          .shape = {3, 4, 40},
                          .stride = {4 * (s + 3) + 50, s + 3, 3},
                          .flags = FUSOR_STRIDED},
                     b = a;
        b.data = (void *)(intptr_t)(4096 + 4);
        cr_assert_not(no_memory_overlap(&a, &b), "%lld", (long long)s);
        b.stride[0]++; /* row 2 of b lies on row 2 of a */
        cr_assert(no_memory_overlap(&a, &b), "%lld", (long long)s);
        b = a;
        b.data = (void *)(intptr_t)(4096 + 4 * 3 * 39);
        cr_assert(no_memory_overlap(&a, &b), "%lld", (long long)s);
        a.stride[1] = -a.stride[1];
        cr_assert_not(no_memory_overlap(&a, NULL), "%lld", (long long)s);
        a.stride[1] = 2 * a.stride[0];
        cr_assert(no_memory_overlap(&a, NULL), "%lld", (long long)s);
    }
}

/* Strides that no allocator has: the answer may be wrong, but it comes. */
Test(overlap, ends, .timeout = 60) {
    for (int i = 0; i < 5; i++) {
        fusor_buffer b = {.data = &seed, .dtype = FUSOR_F32, .rank = 8, .flags = FUSOR_STRIDED};
        for (int d = 0; d < 8; d++) {
            b.shape[d] = 1000 + below(1000);
            b.stride[d] = ((int64_t)rand_r(&seed) << 10 | below(1 << 10)) | 1;
        }
        (void)rt_buffer_overlaps_itself(&b);
    }
}
