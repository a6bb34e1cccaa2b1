/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* einsum_order.c: the order in which the operands of an einsum are multiplied, two at a time. Cost of a product: the
 * number of its multiplications, over the labels of both. Up to MAX_EXHAUSTIVE operands the least sum of costs, over
 * all trees, by the subsets of operands; above, one after the other the pair whose product grows least over what it
 * replaces, of equal ones the cheapest. Ties go to what comes first, so that the order follows from the text alone. */
#include "base/small.h"
#include "ir/einsum.h"

enum { MAX_EXHAUSTIVE = 8 };

static double volume(ir_labels s, const double *size) {
    double v = 1;
    for (; s; s &= s - 1) v *= size[__builtin_ctzll(s)];
    return v;
}

static bool greedy(fu_arena *arena, uint32_t n, const ir_labels *given, ir_labels out, const double *size,
                   ir_einsum_step *step) {
    ir_labels *term = FU_NEW_N(arena, ir_labels, 2 * n);
    bool *is_used = FU_NEW_N(arena, bool, 2 * n);
    for (uint32_t i = 0; i < n; i++) term[i] = given[i];
    for (uint32_t s = 0; s + 1 < n; s++) {
        /* How many of the terms that are left have a label, to know what a product keeps without a walk for each pair.
         */
        uint32_t count[64] = {0}, have = n + s;
        double best = 0, most = 0;
        bool found = false;
        for (uint32_t i = 0; i < have; i++)
            for (ir_labels l = is_used[i] ? 0 : term[i]; l; l &= l - 1) count[__builtin_ctzll(l)]++;
        for (uint32_t a = 0; a < have; a++)
            for (uint32_t b = a + 1; b < have && !is_used[a]; b++) {
                if (is_used[b]) continue;
                ir_labels kept = 0;
                for (ir_labels l = term[a] | term[b]; l; l &= l - 1) {
                    const int k = __builtin_ctzll(l);
                    const ir_labels bit = (ir_labels)1 << k;
                    const uint32_t mine = (term[a] & bit ? 1u : 0u) + (term[b] & bit ? 1u : 0u);
                    if ((out & bit) || count[k] > mine) kept |= bit;
                }
                if (__builtin_popcountll(kept) > IR_MAX_RANK) continue;
                const double cost = volume(kept, size) - volume(term[a], size) - volume(term[b], size);
                const double products = volume(term[a] | term[b], size);
                if (found && (cost > best || (cost == best && products >= most))) continue;
                found = true;
                best = cost;
                most = products;
                step[s] = (ir_einsum_step){a, b, kept};
            }
        if (!found) return false;
        is_used[step[s].a] = is_used[step[s].b] = true;
        term[have] = step[s].kept;
    }
    return true;
}

/* One subset of the operands: the best way to its product. */
typedef struct subset {
    double cost;
    ir_labels kept;
    uint32_t left;
    bool is_possible;
} subset;

static uint32_t emit(const subset *all, uint32_t set, uint32_t n, ir_einsum_step *step, uint32_t *n_steps) {
    if (!(set & (set - 1))) return (uint32_t)__builtin_ctz(set);
    const uint32_t a = emit(all, all[set].left, n, step, n_steps), b = emit(all, set ^ all[set].left, n, step, n_steps);
    step[*n_steps] = (ir_einsum_step){a, b, all[set].kept};
    return n + (*n_steps)++;
}

static bool exhaustive(fu_arena *arena, uint32_t n, const ir_labels *term, ir_labels out, const double *size,
                       ir_einsum_step *step) {
    const uint32_t whole = (1u << n) - 1;
    subset *all = FU_NEW_N(arena, subset, whole + 1);
    for (uint32_t set = 1; set <= whole; set++) {
        subset *s = &all[set];
        ir_labels mine = 0, outside = out;
        for (uint32_t i = 0; i < n; i++) *(set >> i & 1 ? &mine : &outside) |= term[i];
        s->kept = mine & outside;
        if (!(set & (set - 1))) {
            s->kept = term[__builtin_ctz(set)];
            s->is_possible = true;
            continue;
        }
        if (__builtin_popcountll(s->kept) > IR_MAX_RANK) continue;
        for (uint32_t left = (set - 1) & set; left; left = (left - 1) & set) {
            const subset *a = &all[left], *b = &all[set ^ left];
            if (left < (set ^ left) || !a->is_possible || !b->is_possible) continue;
            const double cost = a->cost + b->cost + volume(a->kept | b->kept, size);
            if (s->is_possible && cost >= s->cost) continue;
            s->is_possible = true;
            s->cost = cost;
            s->left = set ^ left; /* the one with the first operand's place, where both are single */
        }
    }
    if (!all[whole].is_possible) return false;
    uint32_t n_steps = 0;
    emit(all, whole, n, step, &n_steps);
    return true;
}

bool ir_einsum_order(fu_arena *a, uint32_t n, const ir_labels *term, ir_labels out, const double *size,
                     ir_einsum_step *step) {
    return n <= MAX_EXHAUSTIVE ? exhaustive(a, n, term, out, size, step) : greedy(a, n, term, out, size, step);
}
