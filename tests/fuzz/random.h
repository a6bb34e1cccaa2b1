/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUZZ_RANDOM_H
#define FUZZ_RANDOM_H
/* Random numbers of the drivers that change bytes, from one seed: splitmix64 (Steele, Lea, Flood 2014). */
#include <stddef.h>
#include <stdint.h>

static uint64_t state;
static uint64_t next_random(void) { /* splitmix64 */
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}
static size_t below(size_t n) { return n ? next_random() % n : 0; }
#endif
