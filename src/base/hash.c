/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* hash.c: XXH3 under our names, and the open-addressing multimap (linear probing, at most 3/4 full). */
#include "base/hash.h"
#include <string.h>
#include <xxhash.h>

uint64_t fu_hash(const void *p, size_t bytes, uint64_t seed) {
    return XXH3_64bits_withSeed(bytes ? p : "", bytes, seed);
}

void fu_hash128(const void *p, size_t bytes, uint8_t digest[16]) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes ? p : "", bytes));
    memcpy(digest, canonical.digest, 16);
}

static uint32_t first_slot(const fu_map *m, uint64_t hash) {
    /* Callers may use weak hashes such as small integers: multiply before taking the low bits. */
    return (uint32_t)((hash * 0x9E3779B97F4A7C15u) >> 32) & (m->cap - 1);
}

static void put(fu_map *m, uint64_t hash, uint32_t value) {
    uint32_t i = first_slot(m, hash);
    while (m->value[i] != UINT32_MAX) i = (i + 1) & (m->cap - 1);
    m->hash[i] = hash;
    m->value[i] = value;
}

static void grow(fu_map *m) {
    fu_map old = *m;
    m->cap = old.cap ? old.cap * 2 : 16;
    m->hash = FU_NEW_N(m->arena, uint64_t, m->cap);
    m->value = FU_NEW_N(m->arena, uint32_t, m->cap);
    memset(m->value, 0xff, m->cap * sizeof *m->value);
    for (uint32_t i = 0; i < old.cap; i++)
        if (old.value[i] != UINT32_MAX) put(m, old.hash[i], old.value[i]);
}

void fu_map_init(fu_map *m, fu_arena *a) { *m = (fu_map){.arena = a}; }

void fu_map_add(fu_map *m, uint64_t hash, uint32_t value) {
    if (m->n >= m->cap / 4 * 3) grow(m);
    put(m, hash, value);
    m->n++;
}

static uint32_t probe(const fu_map *m, uint64_t hash, uint32_t i) {
    for (; m->value[i] != UINT32_MAX; i = (i + 1) & (m->cap - 1))
        if (m->hash[i] == hash) return i;
    return UINT32_MAX;
}

uint32_t fu_map_find(const fu_map *m, uint64_t hash) {
    return m->cap ? probe(m, hash, first_slot(m, hash)) : UINT32_MAX;
}

uint32_t fu_map_next(const fu_map *m, uint64_t hash, uint32_t i) { return probe(m, hash, (i + 1) & (m->cap - 1)); }
