/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* hash_test.c: fixed values of the hash functions (cache keys on disk depend on them) and the multimap. */
#include "base/hash.h"
#include <criterion/criterion.h>
#include <string.h>

Test(hash, values_never_change) {
    /* From the xxHash specification's reference implementation. */
    cr_expect_eq(fu_hash("", 0, 0), 0x2D06800538D394C2u);
    cr_expect_eq(fu_hash(NULL, 0, 0), 0x2D06800538D394C2u);
    uint8_t digest[16];
    static const uint8_t empty[16] = {0x99, 0xAA, 0x06, 0xD3, 0x01, 0x47, 0x98, 0xD8,
                                      0x60, 0x01, 0xC3, 0x24, 0x46, 0x8D, 0x49, 0x7F};
    fu_hash128("", 0, digest);
    cr_expect_arr_eq(digest, empty, 16);
    cr_expect_neq(fu_hash("a", 1, 0), fu_hash("a", 1, 1), "the seed counts");
    uint8_t other[16];
    fu_hash128("kernel", 6, digest);
    fu_hash128("kernal", 6, other);
    cr_expect(memcmp(digest, other, 16) != 0);
}

Test(map, finds_every_value_of_a_hash) {
    jmp_buf oom;
    cr_assert_eq(setjmp(oom), 0);
    fu_arena a;
    fu_arena_init(&a, &oom);
    fu_map m;
    fu_map_init(&m, &a);
    cr_assert_eq(fu_map_find(&m, 1), UINT32_MAX, "an empty map finds nothing");
    /* 500 hashes with 1 to 3 values; hashes that differ only in high or only in low bits. */
    for (uint32_t i = 0; i < 500; i++) {
        uint64_t h = i % 2 ? (uint64_t)i << 40 : i;
        for (uint32_t k = 0; k <= i % 3; k++) fu_map_add(&m, h, i * 4 + k);
    }
    for (uint32_t i = 0; i < 500; i++) {
        uint64_t h = i % 2 ? (uint64_t)i << 40 : i;
        uint32_t seen = 0, count = 0;
        for (uint32_t s = fu_map_find(&m, h); s != UINT32_MAX; s = fu_map_next(&m, h, s)) {
            cr_assert_eq(m.value[s] / 4, i);
            seen |= 1u << (m.value[s] & 3);
            count++;
        }
        cr_assert_eq(count, i % 3 + 1);
        cr_assert_eq(seen, (1u << count) - 1);
    }
    cr_assert_eq(fu_map_find(&m, 12345678), UINT32_MAX);
    cr_assert_leq(m.n, m.cap / 4 * 3);
    fu_arena_free(&a);
}
