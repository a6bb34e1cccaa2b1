/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FU_HASH_H
#define FU_HASH_H
/* Open-addressing hash map in an arena, and the hash function of cache keys. */
#include "base/arena.h"

uint64_t fu_hash(const void *p, size_t bytes, uint64_t seed);     /* XXH3 64 */
void fu_hash128(const void *p, size_t bytes, uint8_t digest[16]); /* XXH3 128, big-endian canonical form */

/* Multimap from a 64-bit hash to a 32-bit value. The caller compares: iterate over all values of a hash. */
typedef struct fu_map {
    uint64_t *hash;
    uint32_t *value;
    uint32_t n, cap;
    fu_arena *arena;
} fu_map;
void fu_map_init(fu_map *m, fu_arena *a);
void fu_map_add(fu_map *m, uint64_t hash, uint32_t value); /* values must not be UINT32_MAX */
/* for (uint32_t i = fu_map_find(m, h); i != UINT32_MAX; i = fu_map_next(m, h, i)) use m->value[i] */
uint32_t fu_map_find(const fu_map *m, uint64_t hash);
uint32_t fu_map_next(const fu_map *m, uint64_t hash, uint32_t i);
#endif
