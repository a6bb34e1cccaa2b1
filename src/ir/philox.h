/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_PHILOX_H
#define IR_PHILOX_H
/* Random numbers: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC11) and
 * what its words become (doc/numerics.md, "Random numbers"). The one definition for the reference evaluator, for data
 * from a word, and, in constants, for code generation.
 *
 * Key: the halves of the seed. Counter: the halves of the group number, 0, 0. A group's four words make four elements,
 * or two of f64: element i is number i mod that of group i / that. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define PHILOX_M0 UINT32_C(0xD2511F53)
#define PHILOX_M1 UINT32_C(0xCD9E8D57)
#define PHILOX_W0 UINT32_C(0x9E3779B9) /* what the key grows by each round */
#define PHILOX_W1 UINT32_C(0xBB67AE85)
enum { PHILOX_ROUNDS = 10 };

static inline void philox_rounds(uint32_t c[4], uint32_t k0, uint32_t k1) {
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t a = (uint64_t)PHILOX_M0 * c[0], b = (uint64_t)PHILOX_M1 * c[2];
        uint32_t n0 = (uint32_t)(b >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(a >> 32) ^ c[3] ^ k1;
        c[0] = n0;
        c[1] = (uint32_t)b;
        c[2] = n2;
        c[3] = (uint32_t)a;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
}

static inline void philox_words(uint64_t seed, uint64_t group, uint32_t out[4]) {
    uint32_t c[4] = {(uint32_t)group, (uint32_t)(group >> 32), 0, 0};
    philox_rounds(c, (uint32_t)seed, (uint32_t)(seed >> 32));
    memcpy(out, c, sizeof c);
}

static inline int philox_each(int is_f64) { return is_f64 ? 2 : 4; } /* elements a group */

/* cos and sin of 2 pi v for 0 <= v < 1, exact at the quarters: v is reduced before it is multiplied. */
static inline void philox_turn(double v, double *cosine, double *sine) {
    const double q = rint(4 * v), angle = 6.283185307179586476925 * (v - q / 4);
    const double c = cos(angle), s = sin(angle);
    const int quarter = (int)q & 3;
    *cosine = quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s;
    *sine = quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c;
}

/* The elements of one group, as real numbers not yet rounded to the element type. */
static inline void philox_group(uint64_t seed, uint64_t group, int is_f64, int is_normal, double out[4]) {
    uint32_t w[4];
    const int each = philox_each(is_f64);
    philox_words(seed, group, w);
    for (int k = 0; k < each; k++)
        out[k] =
            is_f64 ? ((double)(w[2 * k] >> 5) * 0x1p26 + (double)(w[2 * k + 1] >> 6)) * 0x1p-53 : (w[k] >> 8) * 0x1p-24;
    for (int k = 0; is_normal && k < each; k += 2) {
        const double radius = sqrt(fabs(2 * log1p(-out[k])));
        double c, s;
        philox_turn(out[k + 1], &c, &s);
        out[k] = radius * c;
        out[k + 1] = radius * s;
    }
}
#endif
