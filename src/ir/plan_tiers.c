/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_tiers.c: which results may share a map.
 *
 * Results that wait for the same cluster share a kernel where their shapes are equal, and a result is read from memory
 * by the kernels of others. So they may not share it where one is read by something that another one needs: that would
 * be a cycle. Equal tiers guarantee that there is none:
 *
 *   - who reads a shared value (store_shared) is a tier above it;
 *   - results of one shape, tier and cluster waited for are a class. A result whose class would come to need itself,
 *     through a class of another shape, goes a tier up.
 *
 * place_results (plan.c) asks the same (plan_is_of_class); it may still cut a class into several maps, where it is too
 * large for one.
 *
 * Cost: O(nodes + classes^2 / 64) for each result. */
#include "base/small.h"
#include "ir/plan_internal.h"
#include <string.h>

typedef struct result_class {
    const ir_node *like; /* any of its results */
    int avail, tier;
    uint64_t *needs; /* the classes that it reads, or that these need: a bit each */
} result_class;

typedef struct tiers {
    planner *p;
    fu_vec(result_class) classes;
    int *class_of; /* by node: 1 + that of a result, 0: none */
    bool *is_result;
    ir_id *seen; /* by node: the result that came by last */
    size_t words;
    fu_vec(ir_id) ahead;
    uint64_t *reads; /* of the result at hand */
} tiers;

static bool has_bit(const uint64_t *set, int i) { return set[i / 64] >> (i % 64) & 1; }
static void add_bit(uint64_t *set, int i) { set[i / 64] |= (uint64_t)1 << (i % 64); }

/* The classes that the kernel of result id reads. What a cluster has, a shared value too, is made before all results of
 * its readers' tier. */
static void find_reads(tiers *t, ir_id id) {
    memset(t->reads, 0, t->words * sizeof *t->reads);
    t->ahead.n = 0;
    fu_push(t->p->arena, &t->ahead, id);
    while (t->ahead.n > 0) {
        const ir_node *n = ir_at(t->p->g, t->ahead.at[--t->ahead.n]);
        for (int i = 0; i < n->n_in; i++) {
            const ir_id x = n->in[i];
            const node_info *info = &t->p->info[x];
            if (t->seen[x] == id || info->home || info->made_by) continue;
            t->seen[x] = id;
            if (t->class_of[x]) add_bit(t->reads, t->class_of[x] - 1);
            else fu_push(t->p->arena, &t->ahead, x);
        }
    }
}

bool plan_is_of_class(const ir_node *n, const node_info *v, int rank, const ir_size *dim, int avail, int tier) {
    return avail == v->avail && tier == v->tier && rank == n->rank &&
           memcmp(dim, n->dim, (size_t)n->rank * sizeof *dim) == 0;
}

static int find_class(const tiers *t, const ir_node *n, const node_info *v) {
    for (uint32_t c = 0; c < t->classes.n; c++) {
        const result_class *k = &t->classes.at[c];
        if (plan_is_of_class(n, v, k->like->rank, k->like->dim, k->avail, k->tier)) return (int)c;
    }
    return -1;
}

/* Would class c need itself, if it read those? */
static bool is_cycle(const tiers *t, int c) {
    for (int d = 0; d < (int)t->classes.n; d++)
        if (d != c && has_bit(t->reads, d) && has_bit(t->classes.at[d].needs, c)) return true;
    return false;
}

/* The class of a result that floats: of the least tier that there can be. */
static void settle(tiers *t, ir_id id) {
    fu_arena *arena = t->p->arena;
    const ir_node *n = ir_at(t->p->g, id);
    node_info *v = &t->p->info[id];
    int c;
    find_reads(t, id);
    while ((c = find_class(t, n, v)) >= 0 && is_cycle(t, c)) v->tier++;
    if (c < 0) {
        c = (int)t->classes.n;
        const result_class new = {n, v->avail, v->tier, FU_NEW_N(arena, uint64_t, t->words)};
        fu_push(arena, &t->classes, new);
    }
    t->class_of[id] = c + 1;
    for (int d = 0; d < (int)t->classes.n; d++) /* all that it needs now */
        if (d != c && has_bit(t->reads, d))
            for (size_t w = 0; w < t->words; w++) t->reads[w] |= t->classes.at[d].needs[w];
    t->reads[c / 64] &= ~((uint64_t)1 << (c % 64));
    for (int a = 0; a < (int)t->classes.n; a++) {
        if (a != c && !has_bit(t->classes.at[a].needs, c)) continue;
        for (size_t w = 0; w < t->words; w++) t->classes.at[a].needs[w] |= t->reads[w];
    }
}

void plan_find_tiers(planner *p, int first_shared) {
    const uint32_t n_nodes = p->g->nodes.n, n_results = p->g->results.n;
    tiers t = {.p = p, .words = (n_results + 63) / 64};
    t.class_of = FU_NEW_N(p->arena, int, n_nodes);
    t.is_result = FU_NEW_N(p->arena, bool, n_nodes);
    t.seen = FU_NEW_N(p->arena, ir_id, n_nodes);
    t.reads = FU_NEW_N(p->arena, uint64_t, t.words);
    for (uint32_t r = 0; r < n_results; r++) t.is_result[p->g->results.at[r].node] = true;
    for (ir_id id = 1; id < n_nodes; id++) {
        const ir_node *n = ir_at(p->g, id);
        node_info *v = &p->info[id];
        if (v->home || (v->made_by && v->made_by < first_shared)) continue;
        int avail = v->made_by ? p->clusters.at[v->made_by].after : v->avail;
        for (int i = 0; i < n->n_in; i++) {
            const node_info *x = &p->info[n->in[i]];
            bool is_shared = x->made_by >= first_shared;
            int x_avail = is_shared ? p->clusters.at[x->made_by].after : x->avail;
            if (x_avail == avail && x->tier + is_shared > v->tier) v->tier = x->tier + is_shared;
        }
        if (t.is_result[id] && !v->made_by && n->op != IR_OP_PARAM && n->op != IR_OP_LITERAL) settle(&t, id);
    }
}
