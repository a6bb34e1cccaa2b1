/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_cluster.c: nodes in clusters: what is stored by which, what floats, what an expression costs, and whether a node
 * fits into the space of a cluster, within the limits of one kernel. */
#include "base/small.h"
#include "ir/plan_internal.h"

int plan_new_cluster(planner *p, cluster_kind kind, ir_id anchor, int rank, const ir_size *dim) {
    cluster c = {.kind = kind, .anchor = anchor, .rank = rank, .column = -1, .step = -1};
    memcpy(c.dim, dim, (size_t)rank * sizeof *dim);
    fu_push(p->arena, &p->clusters, c);
    return (int)p->clusters.n - 1;
}

void plan_store_in(planner *p, int c, ir_id id) {
    node_info *v = &p->info[id];
    if (v->made_by) return;
    v->made_by = c;
    fu_push(p->arena, &p->clusters.at[c].stores, id);
}

/* The value behind views, for questions of where it is computed. */
ir_id plan_behind_views(const planner *p, ir_id id) {
    while (is_view(ir_at(p->g, id)) && !is_leaf(p, id) && p->info[id].home == 0) id = ir_at(p->g, id)->in[0];
    return id;
}

/* A consumer outside its cluster reads this operand: homed values behind views must be stored. */
void plan_needs_memory(planner *p, ir_id id, ir_reason reason) {
    for (;;) {
        node_info *v = &p->info[id];
        if (v->home) {
            if (!v->is_used_outside) v->reason = reason;
            v->is_used_outside = true;
            /* a view inside a cluster is read through its operand where that is stored anyway */
            plan_store_in(p, v->home, id);
            return;
        }
        if (is_leaf(p, id) || !is_view(ir_at(p->g, id))) return;
        id = ir_at(p->g, id)->in[0];
    }
}

/* Opens a map cluster that stores a floating value. */
void plan_store_floating(planner *p, ir_id id, ir_reason reason) {
    const ir_node *n = ir_at(p->g, id);
    if (is_leaf(p, id) || n->op == IR_OP_LITERAL) return;
    if (p->info[id].home) {
        plan_needs_memory(p, id, reason);
        return;
    }
    int c = plan_new_cluster(p, CLUSTER_MAP, 0, n->rank, n->dim);
    plan_store_in(p, c, id);
    p->info[id].avail = c;
    p->info[id].reason = reason;
}

/* Size of the floating subtree under id, up to a limit. A value behind two movements is computed twice, at two places:
 * so a node counts once for each path of movements that leads to it. */
typedef struct visit {
    ir_id id;
    uint32_t path;
} visit;
/* As many elements as the value, or nearly: no dim of size 1 or left out that the value has. */
static bool is_large(const planner *p, const ir_node *leaf, const ir_node *value) {
    if (leaf->rank < value->rank) return false;
    for (int d = 0; d < value->rank && leaf->rank == value->rank; d++)
        if (ir_size_is(p->g->sizes, leaf->dim[d], 1) && !ir_size_is(p->g->sizes, value->dim[d], 1)) return false;
    return true;
}

static void measure(const planner *p, ir_id id, uint32_t path, const ir_node *top, subtree *s, visit *seen,
                    int *n_seen) {
    if (s->n > MAX_SUBTREE || *n_seen >= 2 * MAX_SUBTREE) {
        s->n = MAX_SUBTREE + 1;
        return;
    }
    for (int i = 0; i < *n_seen; i++)
        if (seen[i].id == id && seen[i].path == path) return;
    seen[(*n_seen)++] = (visit){id, path};
    const ir_node *n = ir_at(p->g, id);
    if (is_leaf(p, id) || p->info[id].home) {
        s->leaves += n->rank > 0;
        s->large += n->rank > 0 && is_large(p, n, top);
        return;
    }
    if (!is_view(n))
        s->n += n->op == IR_OP_PAD ? 1 + plan_padded_dims(p->g, n) : is_move(n) ? 4 * (n->rank + n->n_in) : 1;
    s->is_costly |= (ir_ops[n->op].flags & IR_COSTLY) != 0;
    for (int i = 0; i < n->n_in; i++)
        measure(p, n->in[i], is_move(n) ? path * 31 + id * 8 + (uint32_t)i : path, top, s, seen, n_seen);
}

subtree plan_measure_subtree(const planner *p, ir_id id) {
    visit seen[2 * MAX_SUBTREE];
    int n_seen = 0;
    subtree s = {0};
    measure(p, id, 0, ir_at(p->g, id), &s, seen, &n_seen);
    return s;
}

/* ---- fitting a node into a cluster ---- */
static bool in_cluster(const planner *p, ir_id id, int c) { return p->info[id].home == c && c != 0; }

/* Coordinates of an element-wise node from those of its homed operands; false when it does not fit. */
static bool fit_coords(const planner *p, int c, const ir_node *n, int8_t coord[IR_MAX_RANK], ir_reason *why) {
    const cluster *k = &p->clusters.at[c];
    uint32_t used = 0;
    *why = k->kind == CLUSTER_REDUCE ? IR_REASON_REDUCE_OTHER_AXES : IR_REASON_DIFFERENT_SPACE;
    for (int d = 0; d < n->rank; d++) coord[d] = -2;
    for (int i = 0; i < n->n_in; i++) {
        const ir_node *o = ir_at(p->g, n->in[i]);
        if (!in_cluster(p, n->in[i], c)) continue;
        for (int d = n->rank - o->rank; d < n->rank; d++) {
            int8_t at = p->info[n->in[i]].coord[d - (n->rank - o->rank)];
            if ((n->stretch && n->stretch[i] >> d & 1) || at < 0) continue;
            if (coord[d] != -2 && coord[d] != at) return false;
            coord[d] = at;
        }
    }
    for (int d = 0; d < n->rank; d++) {
        if (coord[d] < 0) continue;
        if (used >> coord[d] & 1) return false;
        used |= 1u << coord[d];
    }
    int next = 0;
    for (int d = 0; d < n->rank; d++) {
        if (ir_size_is(p->g->sizes, n->dim[d], 1)) {
            coord[d] = -1;
            continue;
        }
        if (coord[d] >= 0) {
            next = coord[d] + 1;
            continue;
        }
        if (next >= k->rank || used >> next & 1 || k->dim[next] != n->dim[d]) { /* the missing dim, wherever it is */
            next = -1;
            for (int e = 0; e < k->rank && next < 0; e++)
                if (!(used >> e & 1) && k->dim[e] == n->dim[d] && !ir_size_is(p->g->sizes, k->dim[e], 1)) next = e;
            if (next < 0) return false;
        }
        coord[d] = (int8_t)next;
        used |= 1u << next++;
    }
    for (int d = 0; d < n->rank; d++)
        if (coord[d] >= 0 && k->dim[coord[d]] != n->dim[d]) return false;
    uint32_t full = 0;
    for (int d = 0; d < k->rank; d++)
        if (!ir_size_is(p->g->sizes, k->dim[d], 1)) full |= 1u << d;
    if (k->kind == CLUSTER_CONTRACT || k->kind == CLUSTER_WINDOW || k->kind == CLUSTER_ATTENTION)
        return (used & full) == full;
    uint32_t kept = full & ~k->reduced;
    if ((used & kept) != kept) return false;
    uint32_t r = used & k->reduced & full;
    if (r == (k->reduced & full) && !k->is_row && !k->can_row) *why = IR_REASON_WORKING_SET;
    return r == 0 || (r == (k->reduced & full) && (k->is_row || k->can_row));
}

static bool varies_along_reduced(const planner *p, int c, const ir_node *n, const int8_t *coord) {
    for (int d = 0; d < n->rank; d++)
        if (coord[d] >= 0 && p->clusters.at[c].reduced >> coord[d] & 1) return true;
    return false;
}

/* no_fuse: only the primitives of one composite share a kernel. */
bool plan_may_share(const planner *p, ir_id a, ir_id b) {
    uint32_t ga = ir_at(p->g, a)->group, gb = ir_at(p->g, b)->group;
    return !p->options->no_fuse || (ga != 0 && ga == gb);
}

/* Room for a node and the floating subtrees of its operands; takes it. */
bool plan_take_room(planner *p, int c, const ir_node *n) {
    cluster *k = &p->clusters.at[c];
    int nodes = 1, leaves = 0;
    for (int i = 0; i < n->n_in; i++) {
        if (in_cluster(p, n->in[i], c)) continue;
        subtree s = plan_measure_subtree(p, n->in[i]);
        nodes += s.n;
        leaves += s.leaves;
    }
    if (k->n_nodes + nodes > MAX_CLUSTER_NODES || k->n_leaves + leaves > MAX_CLUSTER_LEAVES) return false;
    k->n_nodes += nodes;
    k->n_leaves += leaves;
    return true;
}

bool plan_have_room(const cluster *a, const cluster *b) {
    return a->n_nodes + b->n_nodes <= MAX_CLUSTER_NODES && a->n_leaves + b->n_leaves <= MAX_CLUSTER_LEAVES;
}

int plan_latest_avail(const planner *p, const ir_node *n) {
    int m = 0;
    for (int i = 0; i < n->n_in; i++)
        if (p->info[n->in[i]].avail > m) m = p->info[n->in[i]].avail;
    return m;
}

bool plan_try_join(planner *p, ir_id id, int c, ir_reason *why) {
    ir_node *n = ir_at(p->g, id);
    cluster *k = &p->clusters.at[c];
    bool any = false;
    if (c == 0 || k->kind == CLUSTER_MAP || k->kind == CLUSTER_REFERENCE) return false;
    for (int i = 0; i < n->n_in; i++) {
        if (in_cluster(p, n->in[i], c)) {
            any = true;
            if (!plan_may_share(p, id, plan_behind_views(p, n->in[i]))) return *why = IR_REASON_USER, false;
            if (p->info[n->in[i]].is_barrier) return *why = IR_REASON_BARRIER, false;
        } else if (p->info[n->in[i]].avail >= c) {
            return *why = IR_REASON_CYCLE, false;
        }
    }
    if (!any) return false;
    if (!fit_coords(p, c, n, p->info[id].coord, why)) return false;
    if (k->kind == CLUSTER_REDUCE && !plan_keeps_merged(p, c, id, p->info[id].coord))
        return *why = IR_REASON_DIFFERENT_SPACE, false;
    if (!plan_take_room(p, c, n)) return *why = IR_REASON_LIMIT, false;
    k = &p->clusters.at[c];
    if (k->kind == CLUSTER_REDUCE && varies_along_reduced(p, c, n, p->info[id].coord)) k->is_row = true;
    for (int i = 0; i < n->n_in; i++) /* what an earlier cluster has comes from memory */
        if (!in_cluster(p, n->in[i], c)) plan_needs_memory(p, n->in[i], IR_REASON_DIFFERENT_SPACE);
    p->info[id].home = c;
    p->info[id].avail = c;
    return true;
}

/* The last dim of the cluster that the value varies along; -1: none. */
static int last_coord(const planner *p, ir_id id) {
    for (int d = ir_at(p->g, id)->rank - 1; d >= 0; d--)
        if (p->info[id].coord[d] >= 0) return p->info[id].coord[d];
    return -1;
}

/* Would a vector of the kernel be stored element by element, which are far apart? Where that is by a large power of two
 * they fall into few sets of L1. Short rows have vectors across them (jit/reduce_short.c). (EPYC 9005, f32, with a map
 * for the transpose: softmax of 128x128, 256x256, 1000x1000, 1024x1024, 3000x3000 0.22, 0.07, 0.46, 0.06, 0.77 of the
 * time; products of 100, 256, 1000, 1024 rows, which have a name, by 256x256 0.94, 0.56, 0.95, 0.24.) */
static bool scatters(const planner *p, ir_id id) {
    enum { SHORT = 63 };
    const ir_node *n = ir_at(p->g, id);
    const cluster *k = &p->clusters.at[p->info[n->in[0]].home];
    const int before = last_coord(p, n->in[0]), after = last_coord(p, id);
    int64_t along, across;
    if (n->op != IR_OP_TRANSPOSE || ir_level_is_gpu(p->options->level) || before < 0 || before == after) return false;
    const bool has_along = ir_size_is_const(p->g->sizes, k->dim[before], &along),
               has_across = ir_size_is_const(p->g->sizes, k->dim[after], &across);
    if (k->kind == CLUSTER_CONTRACT)
        return ir_at(p->g, k->anchor)->op == IR_OP_MATMUL && before == k->rank - 1 && (!has_along || along > SHORT) &&
               (!has_across || across > SHORT);
    if (k->kind != CLUSTER_SCAN && k->kind != CLUSTER_REDUCE) return false;
    const int column = k->column >= 0             ? k->column
                       : k->kind == CLUSTER_SCAN  ? k->scanned
                       : k->reduced >> before & 1 ? before
                                                  : -1;
    return before == column && (!has_along || along > SHORT) && (!has_across || across > SHORT);
}

/* A view of a homed value stays in the cluster where its dims map one to one, and vectors stay vectors. */
bool plan_try_join_view(planner *p, ir_id id, ir_reason *why) {
    ir_node *n = ir_at(p->g, id);
    const node_info *x = &p->info[n->in[0]];
    int from[IR_MAX_RANK];
    if (!x->home || x->is_barrier || p->info[id].is_barrier || n->op == IR_OP_SLICE || !ir_view_is_index_map(p->g, n))
        return false;
    if (n->op == IR_OP_TRANSPOSE && n->index == IR_PLANES) return *why = IR_REASON_LAYOUT, false; /* stored as it is */
    ir_view_dims(p->g, n, from);
    for (int d = 0; d < n->rank; d++) {
        if (from[d] < 0 && !ir_size_is(p->g->sizes, n->dim[d], 1)) return false; /* a broadcast: no one-to-one map */
        p->info[id].coord[d] = from[d] < 0 ? -1 : x->coord[from[d]];
    }
    if (scatters(p, id)) return *why = IR_REASON_TRANSPOSED, false;
    if (p->clusters.at[x->home].kind == CLUSTER_REDUCE && !plan_keeps_merged(p, x->home, id, p->info[id].coord))
        return *why = IR_REASON_DIFFERENT_SPACE, false;
    p->info[id].home = x->home;
    p->info[id].avail = x->home;
    return true;
}

/* ---- what a reader computes itself ---- */
/* Is it a value of the cluster's head that has no memory, since the tail alone reads it? */
static bool is_kept_by_head(const planner *p, ir_id id, int c) {
    const node_info *v = &p->info[id];
    return v->home && v->home == p->clusters.at[c].head && !v->made_by;
}

/* The operand that is homed in cluster c too and has as many elements as the value; 0: there is none, or several, or
 * another one is not in memory. */
static ir_id source_in(const planner *p, ir_id id, int c) {
    const ir_node *n = ir_at(p->g, id);
    const ir_kind kind = ir_ops[n->op].kind;
    ir_id y = 0;
    if (kind != IR_KIND_EW && kind != IR_KIND_CONVERT && !is_view(n)) return 0;
    for (int i = 0; i < n->n_in; i++) {
        if (is_kept_by_head(p, n->in[i], c)) return 0;
        if (!in_cluster(p, n->in[i], c)) continue;
        if (n->stretch && n->stretch[i]) return 0;
        if (y && y != n->in[i]) return 0;
        y = n->in[i];
    }
    return y && (is_view(n) || ir_at(p->g, y)->rank == n->rank) ? y : 0;
}

/* The cluster that evaluates operand x of node id, once for each element; 0: there is none, or others might too. */
static int reader_of(const planner *p, ir_id id, int i) {
    const ir_node *n = ir_at(p->g, id);
    const ir_kind kind = ir_ops[n->op].kind;
    const node_info *v = &p->info[id];
    if (kind == IR_KIND_REDUCE || kind == IR_KIND_ARGREDUCE) return v->home;
    if (kind != IR_KIND_EW && kind != IR_KIND_CONVERT) return 0;
    if (ir_at(p->g, n->in[i])->rank != n->rank || (n->stretch && n->stretch[i])) return 0;
    return v->home ? v->home : v->made_by;
}

/* x, of cluster c, that only cluster `reader` reads: what of it is stored instead. 0: x is. */
static ir_id narrower(const planner *p, ir_id x, int c) {
    uint32_t bytes = ir_dtypes[ir_at(p->g, x)->dtype].bytes;
    ir_id best = 0;
    for (ir_id y = x; p->uses[y] == 1 && !p->info[y].is_barrier && !p->info[y].is_wanted;) {
        y = source_in(p, y, c);
        if (!y) break;
        const uint32_t b = p->info[y].made_by ? 0 : ir_dtypes[ir_at(p->g, y)->dtype].bytes;
        if (b < bytes) best = y, bytes = b;
    }
    return best;
}

/* reader: that has to have room for it; 0: all have. */
static void leave(planner *p, ir_id x, int c, int reader, ir_id stored) {
    cluster *k = &p->clusters.at[c];
    for (ir_id y = x; reader && y != stored; y = source_in(p, y, c))
        if (!plan_take_room(p, reader, ir_at(p->g, y))) return;
    for (ir_id y = x, next; y != stored; y = next) {
        uint32_t left = 0;
        next = source_in(p, y, c);
        p->info[y].home = p->info[y].made_by = 0;
        for (uint32_t s = 0; s < k->stores.n; s++)
            if (k->stores.at[s] != y) k->stores.at[left++] = k->stores.at[s];
        k->stores.n = left;
    }
    p->info[stored].reason = p->info[x].reason;
    plan_store_in(p, c, stored);
}

/* Nodes that read each node: those of i are user[first[i]] .. user[first[i + 1] - 1]. */
typedef struct users {
    uint32_t *first;
    ir_id *user;
    uint32_t *seen; /* by node: the number of the search that met it last */
    uint32_t search;
} users;

static users find_users(const planner *p) {
    const uint32_t n = p->g->nodes.n;
    users u = {.first = FU_NEW_N(p->arena, uint32_t, n + 2), .seen = FU_NEW_N(p->arena, uint32_t, n)};
    for (ir_id id = 1; id < n; id++)
        for (int i = 0; i < ir_at(p->g, id)->n_in && p->uses[id]; i++) u.first[ir_at(p->g, id)->in[i] + 2]++;
    for (uint32_t i = 2; i < n + 2; i++) u.first[i] += u.first[i - 1];
    u.user = FU_NEW_N(p->arena, ir_id, u.first[n + 1] + 1);
    for (ir_id id = 1; id < n; id++)
        for (int i = 0; i < ir_at(p->g, id)->n_in && p->uses[id]; i++)
            u.user[u.first[ir_at(p->g, id)->in[i] + 1]++] = id;
    return u;
}

enum { MOST_READERS = 16 };
typedef struct readers {
    int cluster[MOST_READERS], n;
} readers;

/* The clusters that evaluate x, which is of cluster c, or what floats above it from `id` on. False: c does itself, a
 * pass glued to it, or something needs x in memory; or they are too many. */
static bool find_readers(const planner *p, users *u, ir_id id, int c, readers *r) {
    if (u->seen[id] == u->search) return true;
    u->seen[id] = u->search;
    if (plan_is_result(p, id)) return false;
    for (uint32_t k = u->first[id]; k < u->first[id + 1]; k++) {
        const ir_id by = u->user[k];
        const int reader = p->info[by].home ? p->info[by].home : p->info[by].made_by;
        const ir_kind kind = ir_ops[ir_at(p->g, by)->op].kind;
        /* indices, and what is scattered into, are read from memory */
        if (kind == IR_KIND_INDEX || reader == c) return false;
        if (kind == IR_KIND_CONV && !plan_window_reads_memory(p, ir_at(p->g, by))) return false;
        if (!reader) {
            if (!find_readers(p, u, by, c, r)) return false;
            continue;
        }
        int at = 0;
        while (at < r->n && r->cluster[at] != reader) at++;
        if (at < r->n) continue;
        if (r->n == MOST_READERS || p->clusters.at[reader].kind == CLUSTER_REFERENCE ||
            p->clusters.at[c].tail == reader)
            return false;
        r->cluster[r->n++] = reader;
    }
    return true;
}

/* x, of cluster c, converted from a narrower type and read by other clusters alone: they convert it. */
static void leave_cast(planner *p, users *u, ir_id x, int c) {
    const ir_id from = ir_at(p->g, x)->in[0];
    readers r = {.n = 0};
    if (p->info[from].home != c || p->info[x].is_barrier || p->info[x].is_wanted || p->info[x].must_store ||
        ir_dtypes[ir_at(p->g, from)->dtype].bytes >= ir_dtypes[ir_at(p->g, x)->dtype].bytes)
        return;
    if (!u->first) *u = find_users(p);
    u->search++;
    const node_info kept = p->info[x];
    p->info[x].home = p->info[x].made_by = 0; /* as it would be then */
    const bool is_left = find_readers(p, u, x, c, &r);
    p->info[x] = kept;
    if (!is_left) return;
    for (int i = 0; i < r.n; i++)
        if (!plan_take_room(p, r.cluster[i], ir_at(p->g, x))) return;
    leave(p, x, c, 0, from);
}

/* A value that one node of another cluster reads is computed there, where what it is made of is of a narrower type or
 * is stored anyway: else fusing would move more than single operators do. Conversions of narrower values are left to any
 * number of readers. */
void plan_leave_to_readers(planner *p) {
    for (ir_id id = 1; id < p->g->nodes.n; id++) {
        const ir_node *n = ir_at(p->g, id);
        for (int i = 0; i < n->n_in && p->uses[id]; i++) {
            const ir_id x = n->in[i];
            const int c = p->info[x].home, reader = reader_of(p, id, i);
            if (!c || !reader || reader == c || p->info[x].made_by != c || p->clusters.at[c].tail == reader) continue;
            const ir_id stored = narrower(p, x, c);
            if (stored) leave(p, x, c, reader, stored);
        }
    }
    users u = {.first = NULL}; /* made for the first cast that may be left */
    for (ir_id x = 1; x < p->g->nodes.n; x++)
        if (p->uses[x] && ir_at(p->g, x)->op == IR_OP_CAST && p->info[x].home && p->info[x].made_by == p->info[x].home)
            leave_cast(p, &u, x, p->info[x].home);
}
