/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_bands.c: which maps share the kernel of the convolution that they read: those of which row i is made of rows
 * i * step to i * step + step - 1 alone, for one step, as with the windows of a pool that do not overlap. The map becomes
 * the tail of the convolution's cluster (ir_kernel_head in kernel.h): what it reads lies in the worker's scratch, a band
 * of rows at a time, and never in memory. Where windows overlap along rows, rows would be computed twice or kept from
 * band to band, which takes what it saves; pads and what knows its place (iota) would have to know the band's.
 *
 * No cycle: whatever else the tail reads was made by clusters before the convolution. Cost: O(nodes + edges) of all
 * clusters, and a bounded number of nodes for each candidate. */
#include "base/small.h"
#include "ir/plan_internal.h"

enum { ROWS = IR_SPATIAL_AT, COLUMNS = IR_SPATIAL_AT + 1, RANK = IR_SPATIAL_AT + 2 };

typedef struct search {
    planner *p;
    ir_id value;               /* of the convolution's cluster */
    int head, tail;            /* that cluster; the map's */
    int64_t step, first, last; /* row i of the map reads rows i * step + first to i * step + last of the value */
    int n_found, n_visits;     /* times that the value was met; nodes looked at */
} search;

enum { NO_READER = 0, MANY_READERS = -1 };
typedef struct readers {
    planner *p;
    int *by;             /* by node: the cluster that alone reads it, another than its own */
    bool *is_for_others; /* by node: an operator reads it that no tail may have, or one that others read */
    int *seen;           /* by node: the last cluster whose program it was met in */
} readers;

/* May a tail have this operator? */
static bool is_for_tail(const ir_node *n) {
    const ir_kind kind = ir_ops[n->op].kind;
    return kind == IR_KIND_EW || kind == IR_KIND_CONVERT || is_view(n) ||
           (kind == IR_KIND_CREATE && n->op != IR_OP_IOTA);
}

/* Does each element of n read one of the same image and channel of operand i, in a row that grows with its own? */
static bool keeps_channels(const planner *p, const ir_node *n, int i, const ir_size *start, const int64_t *along) {
    const ir_node *x = ir_at(p->g, n->in[i]);
    if (x->rank != RANK || n->rank != RANK || (n->stretch && n->stretch[i])) return false;
    if (n->op != IR_OP_SLICE) return !is_view(n);
    for (int d = 0; d < ROWS; d++)
        if (!ir_size_is(p->g->sizes, start[d], 0) || along[d] != 1 || n->dim[d] != x->dim[d]) return false;
    return along[ROWS] > 0;
}

/* Row i * step + at of node id is asked for, for each row i of the map: which rows of the value that takes is added to
 * s->first and s->last. False: this is not for a tail. */
static bool find_rows(search *s, ir_id id, int64_t step, int64_t at) {
    enum { MOST_VISITS = 4096 };
    planner *p = s->p;
    const ir_node *n = ir_at(p->g, id);
    if (s->n_visits++ > MOST_VISITS) return false;
    if (id == s->value) {
        if (s->n_found && s->step != step) return false;
        if (!s->n_found || at < s->first) s->first = at;
        if (!s->n_found || at > s->last) s->last = at;
        s->step = step;
        s->n_found++;
        return true;
    }
    if (n->op == IR_OP_LITERAL || n->op == IR_OP_DIM) return true;
    if ((is_leaf(p, id) && p->info[id].made_by != s->tail) || p->info[id].home) return p->info[id].level < s->head;
    if (!is_for_tail(n)) return false;
    ir_size start[IR_MAX_RANK];
    int64_t along[IR_MAX_RANK], from = 0;
    bool is_known = true;
    if (n->op == IR_OP_SLICE) {
        ir_slice_map(p->g, n, start, along);
        if (n->rank == RANK) is_known = ir_slice_start(p->g, n, ROWS, &from);
        if (n->rank == RANK && along[ROWS] > INT32_MAX) return false;
        if (n->rank == RANK && is_known) at = along[ROWS] * at + from, step *= along[ROWS];
    }
    for (int i = 0; i < n->n_in; i++) {
        const int before = s->n_found;
        if (!find_rows(s, n->in[i], step, at)) return false;
        if (s->n_found > before && (!is_known || !keeps_channels(p, n, i, start, along))) return false;
    }
    return true;
}

/* Notes what the program of cluster c reads, from node id down. */
static void note_reads(readers *r, ir_id id, int c) {
    const ir_node *n = ir_at(r->p->g, id);
    if (r->seen[id] == c) return;
    r->seen[id] = c;
    for (int i = 0; i < n->n_in; i++) {
        const ir_id x = n->in[i];
        const node_info *v = &r->p->info[x];
        if (v->home != c && r->by[x] != c) r->by[x] = r->by[x] == NO_READER ? c : MANY_READERS;
        if (is_leaf(r->p, x) || (v->home && v->home != c)) continue;
        note_reads(r, x, c);
    }
}

static readers find_readers(planner *p) {
    const uint32_t n = p->g->nodes.n;
    readers r = {p, FU_NEW_N(p->arena, int, n), FU_NEW_N(p->arena, bool, n), FU_NEW_N(p->arena, int, n)};
    ir_id *next = FU_NEW_N(p->arena, ir_id, n), *first = FU_NEW_N(p->arena, ir_id, p->clusters.n);
    for (ir_id id = n; id-- > 1;) { /* lists of the nodes that a cluster is home to */
        const int c = p->info[id].home;
        next[id] = first[c];
        first[c] = id;
        const bool is_other = p->info[id].home || (p->uses[id] && !is_for_tail(ir_at(p->g, id)));
        for (int i = 0; i < ir_at(p->g, id)->n_in; i++) r.is_for_others[ir_at(p->g, id)->in[i]] |= is_other;
    }
    for (int c = 1; c < (int)p->clusters.n; c++) {
        const cluster *k = &p->clusters.at[c];
        if (k->anchor) note_reads(&r, k->anchor, c);
        for (uint32_t i = 0; i < k->stores.n; i++) note_reads(&r, k->stores.at[i], c);
        for (ir_id id = first[c]; id; id = next[id]) note_reads(&r, id, c);
    }
    return r;
}

/* A plain convolution over two axes, whose kernel is one of tiles of rows. */
static bool has_rows(const planner *p, const cluster *c) {
    const ir_node *n = ir_at(p->g, c->anchor);
    const ir_attr *groups = ir_node_attr(n, "groups");
    return c->kind == CLUSTER_WINDOW && n->op == IR_OP_CONV && c->rank == RANK && (!groups || groups->integer == 1) &&
           !ir_conv_is_depthwise(p->g, n) && c->stores.n == 1 && !c->tail;
}

/* The map that alone reads what cluster s->head stores; 0: there is none. (Most are read by the next convolution.) */
static int only_reader(const search *s, const readers *r) {
    const planner *p = s->p;
    const node_info *v = &p->info[s->value];
    const int found = r->by[s->value];
    if (v->home != s->head || v->is_barrier || v->as_result || plan_is_result(p, s->value)) return 0;
    if (found <= 0 || r->is_for_others[s->value]) return 0;
    return p->clusters.at[found].kind == CLUSTER_MAP && !p->clusters.at[found].anchor ? found : 0;
}

/* Is the value as the convolution's result lies, and are the map's images and channels the same? */
static bool is_beside(const planner *p, ir_id id, const cluster *head, const cluster *tail) {
    const ir_node *n = ir_at(p->g, id);
    if (n->rank != RANK || tail->rank != RANK || memcmp(head->dim, tail->dim, ROWS * sizeof *head->dim) != 0)
        return false;
    for (int d = 0; d < RANK; d++)
        if (n->dim[d] != head->dim[d] || (p->info[id].coord[d] >= 0 && p->info[id].coord[d] != d)) return false;
    return true;
}

void plan_attach_bands(planner *p) {
    search s = {.p = p};
    bool has_any = false;
    for (int c = 1; c < (int)p->clusters.n; c++) has_any |= has_rows(p, &p->clusters.at[c]);
    if (!has_any || p->options->no_fuse) return;
    const readers r = find_readers(p);
    for (int c = 1; c < (int)p->clusters.n; c++) {
        if (!has_rows(p, &p->clusters.at[c])) continue;
        s.value = p->clusters.at[c].stores.at[0];
        s.head = c;
        s.n_found = s.n_visits = 0;
        s.tail = only_reader(&s, &r);
        const cluster *k = &p->clusters.at[s.tail];
        if (!s.tail || !is_beside(p, s.value, &p->clusters.at[c], k) || !plan_have_room(&p->clusters.at[c], k))
            continue;
        bool is_tail = true;
        for (uint32_t i = 0; i < k->stores.n && is_tail; i++)
            is_tail = ir_at(p->g, k->stores.at[i])->rank == RANK && find_rows(&s, k->stores.at[i], 1, 0);
        if (!is_tail || !s.n_found || s.step > IR_BAND_ROWS) continue;
        if (s.last - s.first >= s.step) p->info[s.value].reason = IR_REASON_RECOMPUTE; /* rows are read twice */
        if (s.first < 0 || s.last >= s.step) continue;
        p->clusters.at[c].tail = s.tail;
        p->clusters.at[c].band_rows = s.step;
        p->clusters.at[s.tail].head = c;
    }
}
