/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_rows.c: which reductions share the kernel of the contraction that they reduce: a softmax, a norm, an argmax or a
 * sum over the last dim of a product. Its cluster stays what it would be alone (its order is part of its meaning,
 * plan_order.c), but becomes the tail of the contraction's: a row program on rows that are complete (kernel.h). What it
 * reads of the contraction is kept for it, and stored only where something else reads it too.
 *
 * No cycle: whatever else the tail reads is of a lower level than the contraction (plan_tiers.c). Cost: O(nodes) for each
 * candidate. */
#include "base/small.h"
#include "ir/plan_internal.h"

/* Row by row, without a change of place. */
static bool is_same_place(const planner *p, const cluster *c, ir_id id, int operand) {
    const ir_node *n = ir_at(p->g, id), *x = ir_at(p->g, n->in[operand]);
    const ir_kind kind = ir_ops[n->op].kind;
    const bool is_reduction = kind == IR_KIND_REDUCE || kind == IR_KIND_ARGREDUCE;
    if (x->rank != c->rank || p->info[n->in[operand]].is_barrier) return false;
    if (!is_reduction && (n->rank != x->rank || (n->stretch && n->stretch[operand]))) return false;
    for (int d = 0; d < c->rank; d++) {
        int from = p->info[n->in[operand]].coord[d], to = is_reduction ? d : p->info[id].coord[d];
        if ((from >= 0 && from != d) || (to >= 0 && to != d)) return false;
    }
    return true;
}

/* Is the last dim of the result all columns, and k one dim? */
static bool has_rows(const planner *p, const cluster *c) {
    const ir_node *n = ir_at(p->g, c->anchor);
    return n->op != IR_OP_EINSUM || plan_einsum_has_rows(p, n);
}

static bool may_follow(const planner *p, int head, int tail) {
    const cluster *c = &p->clusters.at[head], *r = &p->clusters.at[tail];
    if (c->kind != CLUSTER_CONTRACT || !has_rows(p, c) || c->tail || c->rank != r->rank || r->column >= 0 ||
        r->reduced != 1u << (r->rank - 1))
        return false;
    if (memcmp(c->dim, r->dim, (size_t)c->rank * sizeof *c->dim) != 0 ||
        ir_size_is(p->g->sizes, c->dim[c->rank - 1], 1))
        return false;
    if (!plan_have_room(c, r)) return false;
    for (ir_id id = 1; id < p->g->nodes.n; id++) {
        const ir_node *n = ir_at(p->g, id);
        if (p->info[id].home != tail) continue;
        for (int i = 0; i < n->n_in; i++) {
            const int home = p->info[n->in[i]].home;
            if (home == tail || (home == head ? is_same_place(p, c, id, i) : p->info[n->in[i]].level < head)) continue;
            return false;
        }
    }
    return true;
}

/* What the tail reads; without memory where nothing else does. */
static void keep_values(planner *p, int head, int tail) {
    cluster *c = &p->clusters.at[head];
    uint8_t *reads = FU_NEW_N(p->arena, uint8_t, p->g->nodes.n); /* 1: the tail, 2: another kernel */
    for (ir_id id = 1; id < p->g->nodes.n; id++) {
        const ir_node *n = ir_at(p->g, id);
        for (int i = 0; i < n->n_in && p->uses[id]; i++)
            if (p->info[n->in[i]].home == head && p->info[id].home != head)
                reads[n->in[i]] |= p->info[id].home == tail ? 1 : 2;
    }
    uint32_t left = 0;
    for (uint32_t s = 0; s < c->stores.n; s++) {
        ir_id id = c->stores.at[s];
        if (reads[id] != 1 || plan_is_result(p, id)) c->stores.at[left++] = id;
        else p->info[id].made_by = 0;
    }
    c->stores.n = left;
    for (ir_id id = 1; id < p->g->nodes.n; id++)
        if (reads[id] & 1) fu_push(p->arena, &c->kept, id);
}

static int count_kept(const planner *p, int head, int tail) {
    int n = 0;
    for (ir_id x = 1; x < p->g->nodes.n; x++) {
        bool is_read = false;
        for (ir_id id = x + 1; id < p->g->nodes.n && p->info[x].home == head && !is_read; id++) {
            const ir_node *of = ir_at(p->g, id);
            for (int i = 0; i < of->n_in && p->info[id].home == tail; i++) is_read |= of->in[i] == x;
        }
        n += is_read;
    }
    return n;
}

void plan_attach_rows(planner *p) {
    for (int tail = 1; tail < (int)p->clusters.n && !p->options->no_fuse; tail++) {
        const cluster *r = &p->clusters.at[tail];
        if (r->kind != CLUSTER_REDUCE || !r->stores.n) continue;
        const int head = p->info[ir_at(p->g, r->anchor)->in[0]].home;
        if (!head || !may_follow(p, head, tail) || count_kept(p, head, tail) > IR_ROW_VALUES) continue;
        p->clusters.at[head].tail = tail;
        p->clusters.at[tail].head = head;
        keep_values(p, head, tail);
    }
}
