/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ptx_count.c: conflicts of banks in shared memory, as ptx.h has them. */
#include "ptx.h"

enum { LANES = 32, BANKS = 32 };

/* Distinct words in the bank that has the most of them, of some lanes. */
static int ways_of(const uint64_t *at, uint32_t active, int lanes, int bytes) {
    uint64_t words[LANES * 4];
    int n = 0, in_bank[BANKS] = {0}, most = 1;
    for (int lane = 0; lane < lanes; lane++) {
        if (!(active >> lane & 1)) continue;
        for (uint64_t word = at[lane] / 4; word <= (at[lane] + (uint64_t)bytes - 1) / 4; word++) {
            int k = 0;
            while (k < n && words[k] != word) k++;
            if (k < n) continue; /* lanes of the same word are served together */
            words[n++] = word;
            if (++in_bank[word % BANKS] > most) most = in_bank[word % BANKS];
        }
    }
    return most;
}

void ptx_count_shared(ptx_counts *c, const uint64_t at[LANES], uint32_t active, int bytes, int line) {
    int lanes = bytes >= 16 ? 8 : bytes >= 8 ? 16 : 32;
    c->shared_accesses++;
    for (int first = 0; first < LANES; first += lanes) {
        uint32_t of_turn = lanes == 32 ? active : active >> first & ((1u << lanes) - 1);
        if (!of_turn) continue;
        int ways = ways_of(at + first, of_turn, lanes, bytes);
        c->shared_least++;
        c->shared_turns += (uint64_t)ways;
        if (ways <= c->worst_ways) continue;
        c->worst_ways = ways;
        c->worst_line = line;
    }
}
