/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_tiers.c: what waits for what: levels of values, and tiers of results, which say which may share a map.
 *
 * Clusters with an anchor are numbered so that each needs only those of smaller number; maps that store single values
 * (store_shared, what a gather or a product reads from memory) are made when they are found to be needed, and have no
 * place in that order. The level of a value is the largest number of a cluster with an anchor that it needs, or is
 * computed in, through all such maps. So what is needed has no higher level, and a cluster needs lower ones alone.
 *
 * Results of one shape and level may share a kernel, in which one reads another from a register. What any other kernel
 * needs of them it reads from memory: so they may not share it where one needs what a kernel makes that needs another
 * of them. That would be a cycle. Tiers rule it out:
 *
 *   - a result is a tier above the results of another class that its kernel needs, and not below those of its own;
 *   - a cluster is a tier above the results that it needs; and results and clusters are not below the clusters that
 *     they need.
 *
 * A class are the results of one shape and level (plan_is_of_class). Along any path of needs tiers do not fall, and
 * they rise where it goes from a result to a cluster or another class: so a path that comes back to a class of the tier
 * that it began at never left it. place_results (plan.c) may cut a class into several maps, where it is too large for
 * one: it fills one after the other with results in their order in the graph, in which none needs a later one of its
 * class.
 *
 * A cluster that becomes part of another's kernel (plan_rows.c, plan_bands.c) needs, beside that one, lower levels than
 * that one's: through these nothing leads back to it.
 *
 * Cost: O(nodes) for each result and cluster, no more than lie between it and what is in memory. */
#include "base/small.h"
#include "ir/plan_internal.h"
#include <string.h>

/* What has a tier: the clusters by their numbers, and behind them the results, by node. */
typedef struct tiers {
    planner *p;
    uint32_t n_clusters;
    const bool *is_floating; /* by node: a result that no cluster stores yet */
    int *tier;               /* of each */
    uint8_t *state;          /* of each: 0 not seen, 1 its needs are, 2 has its tier */
    ir_id *member, *next;    /* a node that the cluster computes or stores, and behind a node another; 0: no more */
    uint32_t *seen, walks;   /* by node: the walk that came by last */
    fu_vec(ir_id) ahead;
    fu_vec(uint32_t) needs, unsettled; /* needs: of the one at hand */
} tiers;

static int cluster_of(const planner *p, ir_id id) {
    return p->info[id].made_by ? p->info[id].made_by : p->info[id].home;
}

void plan_find_levels(planner *p) {
    for (ir_id id = 1; id < p->g->nodes.n; id++) {
        const ir_node *n = ir_at(p->g, id);
        const int c = cluster_of(p, id);
        const bool is_single = p->clusters.at[c].kind == CLUSTER_MAP && !p->clusters.at[c].anchor; /* or in none */
        int level = is_single ? 0 : c;
        for (int i = 0; i < n->n_in && is_single; i++)
            if (p->info[n->in[i]].level > level) level = p->info[n->in[i]].level;
        p->info[id].level = level;
    }
}

bool plan_is_of_class(const planner *p, ir_id id, int rank, const ir_size *dim, int level) {
    const ir_node *n = ir_at(p->g, id);
    return level == p->info[id].level && rank == n->rank && memcmp(dim, n->dim, (size_t)rank * sizeof *dim) == 0;
}

static bool is_one_class(const planner *p, ir_id x, ir_id y) {
    const ir_node *n = ir_at(p->g, y);
    return plan_is_of_class(p, x, n->rank, n->dim, p->info[y].level);
}

/* Adds the clusters and results that node id needs, through what floats, to t->needs; but for its own cluster. */
static void walk_from(tiers *t, ir_id id, int own) {
    fu_arena *a = t->p->arena;
    fu_push(a, &t->ahead, id);
    while (t->ahead.n > 0) {
        const ir_node *n = ir_at(t->p->g, t->ahead.at[--t->ahead.n]);
        for (int i = 0; i < n->n_in; i++) {
            const ir_id x = n->in[i];
            const int c = cluster_of(t->p, x);
            if (t->seen[x] == t->walks) continue;
            t->seen[x] = t->walks;
            if (t->is_floating[x]) fu_push(a, &t->needs, t->n_clusters + x);
            else if (!c) fu_push(a, &t->ahead, x);
            else if (c != own) fu_push(a, &t->needs, (uint32_t)c);
        }
    }
}

static void find_needs(tiers *t, uint32_t of) {
    t->walks++;
    t->needs.n = 0;
    if (of >= t->n_clusters) walk_from(t, of - t->n_clusters, 0);
    else
        for (ir_id id = t->member[of]; id; id = t->next[id]) walk_from(t, id, (int)of);
}

/* Those that it needs have their tiers: its own. */
static int tier_of(const tiers *t, uint32_t of) {
    const uint32_t n = t->n_clusters;
    int tier = 0;
    for (uint32_t i = 0; i < t->needs.n; i++) {
        const uint32_t x = t->needs.at[i];
        const bool rises = x >= n && (of < n || !is_one_class(t->p, x - n, of - n));
        if (t->tier[x] + rises > tier) tier = t->tier[x] + rises;
    }
    return tier;
}

static void settle(tiers *t, uint32_t top) {
    t->unsettled.n = 0;
    fu_push(t->p->arena, &t->unsettled, top);
    while (t->unsettled.n > 0) {
        const uint32_t x = t->unsettled.at[t->unsettled.n - 1];
        if (t->state[x] == 2) {
            t->unsettled.n--;
            continue;
        }
        find_needs(t, x);
        if (t->state[x]) {
            t->tier[x] = tier_of(t, x);
            t->state[x] = 2;
            t->unsettled.n--;
            continue;
        }
        t->state[x] = 1;
        for (uint32_t i = 0; i < t->needs.n; i++)
            if (!t->state[t->needs.at[i]]) fu_push(t->p->arena, &t->unsettled, t->needs.at[i]);
    }
}

void plan_find_tiers(planner *p, const bool *is_floating) {
    const uint32_t n_nodes = p->g->nodes.n, n_clusters = p->clusters.n;
    tiers t = {.p = p, .n_clusters = n_clusters, .is_floating = is_floating};
    t.tier = FU_NEW_N(p->arena, int, n_clusters + n_nodes);
    t.state = FU_NEW_N(p->arena, uint8_t, n_clusters + n_nodes);
    t.seen = FU_NEW_N(p->arena, uint32_t, n_nodes);
    t.member = FU_NEW_N(p->arena, ir_id, n_clusters);
    t.next = FU_NEW_N(p->arena, ir_id, n_nodes);
    for (ir_id id = 1; id < n_nodes; id++) {
        const int c = cluster_of(p, id);
        t.next[id] = t.member[c];
        t.member[c] = id;
    }
    for (ir_id id = 1; id < n_nodes; id++) {
        if (!is_floating[id]) continue;
        settle(&t, n_clusters + id);
        p->info[id].tier = t.tier[n_clusters + id];
    }
}
