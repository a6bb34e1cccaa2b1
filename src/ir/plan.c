/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan.c: which values become which kernel.
 *
 * Nodes are visited in order. A contraction or reduction opens a cluster (a reduction joins one over the same space
 * where it can); an element-wise node joins the latest cluster it depends on when its space fits, else it floats and is
 * recomputed where it is used, unless that would cost more than storing it. A cluster depends only on clusters of
 * smaller number, so the plan has no cycles. Cost: O(nodes * rank), and O(nodes) for each node that nears a limit. */
#include "base/small.h"
#include "ir/einsum.h"
#include "ir/plan_internal.h"
#include "ir/window.h"

bool plan_has_kernel(const planner *p, const ir_node *n) {
    const ir_op_info *op = &ir_ops[n->op];
    ir_dtype main = n->n_in ? ir_at(p->g, n->in[op->flags & IR_COND ? 1 : 0])->dtype : n->dtype;
    if (p->options->reference) return n->op == IR_OP_PARAM || n->op == IR_OP_LITERAL;
    switch (op->kind) {
    case IR_KIND_EW: return ir_has_lowering(n->op, main);
    case IR_KIND_CONVERT: return true;
    case IR_KIND_REDUCE:
    case IR_KIND_ARGREDUCE: return !ir_is_composite_reduce(n->op);
    case IR_KIND_CONTRACT: return ir_is_contraction(p->g, n);
    case IR_KIND_ATTENTION: return n->rank <= IR_KERNEL_MAX_DIMS - 3; /* as pass_expand has it */
    case IR_KIND_ROW:
    case IR_KIND_NORM:
    case IR_KIND_WINDOW:
    case IR_KIND_QUANTIZE:
    case IR_KIND_CELL: return false;
    case IR_KIND_SCAN:
        return !ir_size_is(p->g->sizes, n->dim[__builtin_ctz(ir_node_axes(p->g, n))], 1); /* pass_expand has those */
    case IR_KIND_EINSUM: return ir_einsum_is_product(n);
    case IR_KIND_CONV: return ir_conv_is_window(p->g, n);
    case IR_KIND_RANDOM: return ir_dtypes[n->dtype].bytes >= 4;
    case IR_KIND_MOVE:
        return n->op == IR_OP_SLICE || n->op == IR_OP_PAD || n->op == IR_OP_CONCAT; /* others are expanded */
    case IR_KIND_INDEX:
        if (n->op == IR_OP_SCATTER) {
            ir_op combine = ir_scatter_combine(n->attr[1].is_set ? n->attr[1].integer : 0);
            return combine == IR_OP_NONE || ir_has_lowering(combine, n->dtype);
        }
        return n->op == IR_OP_TAKE || n->op == IR_OP_TAKE_ALONG;
    default: return true;
    }
}

/* ---- reductions ---- */
static uint32_t reduced_axes(const planner *p, const ir_node *n) {
    const ir_node *x = ir_at(p->g, n->in[0]);
    uint32_t all = x->rank >= 32 ? 0 : (1u << x->rank) - 1;
    const ir_attr *at = n->attr;
    if (ir_ops[n->op].kind == IR_KIND_ARGREDUCE)
        return at && at[0].is_set ? 1u << ir_axis(at[0].integer, x->rank) : all;
    if (!at || !at[0].is_set) return all;
    uint32_t m = 0;
    for (uint32_t i = 0; i < at[0].n; i++) {
        int64_t v = 0;
        ir_size_is_const(p->g->sizes, at[0].list[i], &v);
        m |= 1u << ir_axis(v, x->rank);
    }
    return m;
}

static void reduction_coords(planner *p, ir_id id, uint32_t axes) {
    ir_node *n = ir_at(p->g, id);
    const ir_node *x = ir_at(p->g, n->in[0]);
    bool keep = n->rank == x->rank && x->rank > 0 && axes != 0;
    int d = 0;
    for (int xd = 0; xd < x->rank; xd++) {
        bool is_reduced = axes >> xd & 1;
        if (is_reduced && !keep) continue;
        p->info[id].coord[d++] = is_reduced || ir_size_is(p->g->sizes, x->dim[xd], 1) ? -1 : (int8_t)xd;
    }
}

/* The same space, walked in the same order. */
static bool same_space(const cluster *k, const ir_node *x, uint32_t axes, int column, uint32_t merged) {
    if (k->kind != CLUSTER_REDUCE || k->rank != x->rank || k->reduced != axes || k->column != column ||
        k->merged != merged)
        return false;
    for (int d = 0; d < k->rank; d++)
        if (k->dim[d] != x->dim[d]) return false;
    return true;
}

static bool identity_coords(const planner *p, ir_id id) {
    const ir_node *n = ir_at(p->g, id);
    for (int d = 0; d < n->rank; d++)
        if (p->info[id].coord[d] >= 0 && p->info[id].coord[d] != d) return false;
    return true;
}

enum { SMALL_SPACE = 16384, CHEAP = 8 /* operators that are computed twice rather than stored */ };
static bool small_constant_space(const planner *p, const ir_node *x) {
    int64_t total = 1, v;
    for (int d = 0; d < x->rank; d++) {
        if (!ir_size_is_const(p->g->sizes, x->dim[d], &v) || v > SMALL_SPACE) return false;
        total *= v;
        if (total > SMALL_SPACE) return false;
    }
    return true;
}

/* Column form: does the second-level cache hold all rows of a chunk of columns that is still wide? Then one kernel
 * reads them once from memory for all its passes; of more rows, runs are so short that it waits longer than several
 * kernels do. On a GPU a thread has a column. */
static bool has_few_rows(const planner *p, const ir_node *x, uint32_t axes, int column) {
    enum { FEWEST_COLUMNS = 16 };
    int64_t bytes = ir_dtypes[x->dtype].bytes, v;
    for (int d = 0; d < x->rank; d++) {
        if (!(axes >> d & 1)) continue;
        if (!ir_size_is_const(p->g->sizes, x->dim[d], &v) || v < 1 || v > IR_COLUMN_BYTES / bytes) return false;
        bytes *= v;
    }
    int64_t columns = 1; /* with the dims before it that are kept: one run, mostly (plan_dims.c) */
    for (int d = column; d >= 0 && !(axes >> d & 1) && columns < FEWEST_COLUMNS; d--)
        columns = ir_size_is_const(p->g->sizes, x->dim[d], &v) && v < FEWEST_COLUMNS ? columns * v : FEWEST_COLUMNS;
    return columns >= FEWEST_COLUMNS && !ir_level_is_gpu(p->options->level);
}

/* A matrix times a vector (pass_expand_matvec.c): the vector is read once for each row, so a costly one is computed
 * before. */
static void store_costly_vector(planner *p, const ir_node *sum) {
    const ir_id id = sum->in[0];
    const ir_node *x = ir_at(p->g, id);
    if (x->op != IR_OP_MUL || !x->group || x->group != sum->group || p->info[id].home) return;
    for (int i = 0; i < 2; i++) {
        const bool is_stretched = ir_at(p->g, x->in[i])->rank < x->rank || (x->stretch && x->stretch[i]);
        if (is_stretched && !p->info[plan_behind_views(p, x->in[i])].is_wanted &&
            plan_measure_subtree(p, x->in[i]).is_costly)
            plan_store_floating(p, x->in[i], IR_REASON_RECOMPUTE);
    }
    p->info[id].avail = plan_latest_avail(p, x);
}

static void place_reduction(planner *p, ir_id id) {
    ir_node *n = ir_at(p->g, id);
    store_costly_vector(p, n);
    ir_id xid = n->in[0];
    const ir_node *x = ir_at(p->g, xid);
    uint32_t axes = reduced_axes(p, n);
    node_info *v = &p->info[id];
    int c = p->info[xid].home, joined = 0, column = plan_column_of(p, xid, axes);
    uint32_t merged = plan_merged_axes(p, xid, axes);
    const cluster *mine = &p->clusters.at[c];
    bool fits = c && same_space(mine, x, axes, column, merged) && (mine->is_row || mine->can_row) &&
                identity_coords(p, xid) && plan_may_share(p, id, xid) && !p->info[xid].is_barrier,
         has_registers = mine->n_reductions < MAX_REDUCTIONS;
    if (fits && has_registers && plan_take_room(p, c, n)) {
        joined = c; /* a reduction of a row value: one more pass over the row, be it of one element */
        p->clusters.at[c].is_row = true;
    } else {
        if (c)
            plan_needs_memory(p, xid,
                              p->clusters.at[c].kind == CLUSTER_CONTRACT || p->clusters.at[c].kind == CLUSTER_WINDOW
                                  ? IR_REASON_CONTRACT_THEN_REDUCE
                              : p->clusters.at[c].kind == CLUSTER_ATTENTION ? IR_REASON_ATTENTION
                              : !fits                                       ? IR_REASON_REDUCE_OTHER_AXES
                              : has_registers                               ? IR_REASON_LIMIT
                                                                            : IR_REASON_REGISTERS);
        for (int k = (int)p->clusters.n - 1; k > p->info[xid].avail && !joined; k--)
            if (same_space(&p->clusters.at[k], x, axes, column, merged) &&
                plan_may_share(p, id, p->clusters.at[k].anchor) && p->clusters.at[k].n_reductions < MAX_REDUCTIONS &&
                plan_take_room(p, k, n))
                joined = k; /* a sibling over the same space */
    }
    if (!joined) {
        joined = plan_new_cluster(p, CLUSTER_REDUCE, id, x->rank, x->dim);
        cluster *k = &p->clusters.at[joined];
        k->reduced = axes;
        (void)plan_take_room(p, joined, n);
        bool has_rows = false;
        for (int d = 0; d < x->rank; d++) has_rows |= !(axes >> d & 1) && !ir_size_is(p->g->sizes, x->dim[d], 1);
        k->column = column;
        k->merged = merged;
        k->can_row = k->column < 0 ? has_rows || small_constant_space(p, x) : has_few_rows(p, x, axes, column);
    }
    v->home = joined;
    v->avail = joined;
    p->clusters.at[joined].n_reductions++; /* their accumulators fill registers and stack */
    reduction_coords(p, id, axes);
}

/* ---- contractions ---- */
/* A costly operand is stored before the contraction: as it is, or what it is turned from where others read that too, so
 * that all read the same memory. */
static void store_operand(planner *p, ir_id id) {
    const ir_id root = plan_behind_views(p, id);
    bool is_turned = true;
    for (ir_id at = id; at != root; at = ir_at(p->g, at)->in[0]) is_turned &= ir_at(p->g, at)->op == IR_OP_TRANSPOSE;
    if (!is_turned || p->uses[root] < 2) {
        plan_store_floating(p, id, IR_REASON_RECOMPUTE);
        return;
    }
    plan_store_floating(p, root, IR_REASON_RECOMPUTE);
    for (ir_id at = id; at != root; at = ir_at(p->g, at)->in[0]) p->info[at].avail = p->info[root].avail;
}

/* A cluster of these dims, with the value in it and what that reads; its dims are the value's, as far as those go. */
static int home_in_new_cluster(planner *p, cluster_kind kind, ir_id id, int rank, const ir_size *dim) {
    const ir_node *n = ir_at(p->g, id);
    const int c = plan_new_cluster(p, kind, id, rank, dim);
    node_info *v = &p->info[id];
    v->home = v->avail = c;
    for (int d = 0; d < n->rank; d++) v->coord[d] = ir_size_is(p->g->sizes, n->dim[d], 1) ? -1 : (int8_t)d;
    (void)plan_take_room(p, c, n);
    return c;
}

static void place_operands(planner *p, const ir_node *n) {
    for (int i = 0; i < 2; i++) {
        ir_id root = plan_behind_views(p, n->in[i]);
        if (p->info[root].home) {
            cluster_kind kind = p->clusters.at[p->info[root].home].kind;
            plan_needs_memory(p, n->in[i],
                              p->options->no_fuse ? IR_REASON_USER
                              : kind == CLUSTER_CONTRACT || kind == CLUSTER_WINDOW || kind == CLUSTER_ATTENTION
                                  ? IR_REASON_TWO_CONTRACTIONS
                                  : IR_REASON_REDUCE_INTO_CONTRACT);
        } else {
            subtree s = plan_measure_subtree(p, n->in[i]);
            if (s.n > 0 &&
                (s.leaves > MAX_CLUSTER_LEAVES / 2 - 2 || (s.is_costly && i == 0 && !p->info[root].is_wanted)))
                store_operand(p, n->in[i]); /* packing evaluates operand 0 once for every block of columns */
        }
    }
}

/* Operand 0's rows lie apart in memory, a few at a time (every other place of an image): where they lie, each few were
 * a product of their own. They are stored in order, and are one product. (Cascade Lake, one thread, of the time of such
 * products: 14 rows of 14, 512 to 1024 0.80, 7 of 7, 1024 to 2048 0.81, 28 of 28, 256 to 512 1.04.) */
static void store_short_rows(planner *p, const ir_node *n) {
    enum { SHORT_ROWS = 24 };
    const ir_node *x = ir_at(p->g, n->in[0]);
    int64_t rows;
    bool skips = false, has_batch = false;
    if (p->options->no_fuse || ir_level_is_gpu(p->options->level) || x->op != IR_OP_SLICE || x->rank < 3 ||
        ir_at(p->g, n->in[1])->rank != 2 || x->group != n->group ||
        !ir_size_is_const(p->g->sizes, x->dim[x->rank - 2], &rows) || rows >= SHORT_ROWS)
        return;
    const ir_attr *steps = ir_node_attr(x, "steps");
    for (uint32_t i = 0; steps && i < steps->n; i++) skips |= !ir_size_is(p->g->sizes, steps->list[i], 1);
    for (int d = 0; d < x->rank - 2; d++) has_batch |= !ir_size_is(p->g->sizes, x->dim[d], 1);
    if (skips && has_batch) plan_store_floating(p, n->in[0], IR_REASON_LAYOUT);
}

static void place_contraction(planner *p, ir_id id) {
    ir_node *n = ir_at(p->g, id);
    ir_size one = ir_size_const(p->g->sizes, 1), dim[IR_MAX_RANK + 1];
    bool has_m = ir_at(p->g, n->in[0])->rank > 1, has_n = ir_at(p->g, n->in[1])->rank > 1;
    int batch = n->rank - has_m - has_n, d = batch;
    store_short_rows(p, n);
    place_operands(p, n);
    memcpy(dim, n->dim, (size_t)batch * sizeof *dim);
    dim[batch] = has_m ? n->dim[d++] : one;
    dim[batch + 1] = has_n ? n->dim[d++] : one;
    (void)home_in_new_cluster(p, CLUSTER_CONTRACT, id, batch + 2, dim);
    if (!has_m && has_n && !ir_size_is(p->g->sizes, n->dim[batch], 1)) p->info[id].coord[batch] = (int8_t)(batch + 1);
}

/* A product whose dims are those of the result as it is (plan_einsum.c). */
static void place_einsum(planner *p, ir_id id) {
    const ir_node *n = ir_at(p->g, id);
    place_operands(p, n);
    (void)home_in_new_cluster(p, CLUSTER_CONTRACT, id, n->rank, n->dim);
}

/* A convolution reads both operands where they lie: what is computed is stored first, but pads and conversions. */
static void place_window(planner *p, ir_id id) {
    const ir_node *n = ir_at(p->g, id);
    const plan_window_form f = plan_window_form_of(p, n);
    for (int i = 0; i < 2; i++) {
        const ir_id x = i ? f.w : f.x, root = plan_behind_views(p, x);
        if (p->info[root].home) {
            const cluster_kind kind = p->clusters.at[p->info[root].home].kind;
            plan_needs_memory(p, x,
                              p->options->no_fuse                                  ? IR_REASON_USER
                              : kind == CLUSTER_CONTRACT || kind == CLUSTER_WINDOW ? IR_REASON_TWO_CONTRACTIONS
                                                                                   : IR_REASON_REDUCE_INTO_CONTRACT);
        }
        plan_store_floating(p, x, IR_REASON_RECOMPUTE);
    }
    (void)home_in_new_cluster(p, CLUSTER_WINDOW, id, n->rank, n->dim);
}

/* ---- attention ---- */
/* A kernel of its own over its result, with what is element-wise before and after it. Keys and values are evaluated
 * once for each tile of queries: what is costly comes from memory. */
static void place_attention(planner *p, ir_id id) {
    const ir_node *n = ir_at(p->g, id);
    for (int i = 0; i < n->n_in; i++) {
        if (p->info[plan_behind_views(p, n->in[i])].home) {
            plan_needs_memory(p, n->in[i], p->options->no_fuse ? IR_REASON_USER : IR_REASON_ATTENTION);
            continue;
        }
        subtree s = plan_measure_subtree(p, n->in[i]);
        if (s.n > 0 && (s.leaves > MAX_CLUSTER_LEAVES / 4 || s.n > MAX_CLUSTER_NODES / 5 || s.is_costly))
            plan_store_floating(p, n->in[i], IR_REASON_RECOMPUTE);
    }
    (void)home_in_new_cluster(p, CLUSTER_ATTENTION, id, n->rank, n->dim);
}

/* ---- running sums and products ---- */
/* A kernel of its own, with what is element-wise before and after it. Its order depends on the form alone, as a
 * reduction's. */
static void place_scan(planner *p, ir_id id) {
    ir_node *n = ir_at(p->g, id);
    const ir_node *x = ir_at(p->g, n->in[0]);
    const int axis = __builtin_ctz(ir_node_axes(p->g, n));
    if (p->info[plan_behind_views(p, n->in[0])].home) plan_needs_memory(p, n->in[0], IR_REASON_SCAN);
    const int c = home_in_new_cluster(p, CLUSTER_SCAN, id, x->rank, x->dim);
    cluster *k = &p->clusters.at[c];
    k->scanned = axis;
    k->column = plan_column_of(p, n->in[0], 1u << axis);
}

static void place_reference(planner *p, ir_id id) {
    ir_node *n = ir_at(p->g, id);
    for (int i = 0; i < n->n_in; i++) {
        if (ir_at(p->g, n->in[i])->op == IR_OP_LITERAL) continue;
        if (p->info[n->in[i]].home) plan_needs_memory(p, n->in[i], IR_REASON_NO_LOWERING);
        else plan_store_floating(p, n->in[i], IR_REASON_NO_LOWERING);
    }
    int c = plan_new_cluster(p, CLUSTER_REFERENCE, id, n->rank, n->dim);
    plan_store_in(p, c, id);
    p->info[id].avail = c;
    p->info[id].reason = IR_REASON_NO_LOWERING;
}

/* ---- values that windows read ---- */
/* Slices of one composite that read a value, or it padded: a window is as many slices as it has places
 * (pass_expand_window.c). */
static void count_taps(planner *p) {
    const ir_graph *g = p->g;
    uint32_t *group = FU_NEW_N(p->arena, uint32_t, g->nodes.n);
    for (ir_id id = 1; id < g->nodes.n; id++) {
        const ir_node *n = ir_at(g, id);
        if (n->op != IR_OP_SLICE || !n->group || !p->uses[id]) continue;
        node_info *x = &p->info[n->in[0]];
        ir_size start[IR_MAX_RANK];
        int64_t step[IR_MAX_RANK], all = 1;
        ir_slice_map(p->g, n, start, step);
        for (int d = 0; d < n->rank && all < INT32_MAX; d++)
            all *= step[d] < 0 ? 1 : step[d] < INT32_MAX ? step[d] : INT32_MAX;
        x->taps = group[n->in[0]] == n->group ? x->taps + 1 : x->taps > 1 ? x->taps : 1;
        x->step = all;
        group[n->in[0]] = n->group;
    }
    for (ir_id id = g->nodes.n - 1; id >= 1; id--) {
        const ir_node *n = ir_at(g, id);
        node_info *x = &p->info[n->n_in ? n->in[0] : 0];
        if (n->op == IR_OP_PAD && n->group && p->info[id].taps > x->taps)
            x->taps = p->info[id].taps, x->step = p->info[id].step;
    }
}

/* Is it better in memory before windows read it? Those that overlap would compute it once for each of their places; and
 * one kernel has no room for all that lies under them. */
static bool is_stored_for_windows(const planner *p, ir_id id, const subtree *s) {
    const node_info *v = &p->info[id];
    if (v->taps < 2) return false;
    if (s->leaves * v->taps > MAX_SUBTREE_LEAVES - 4) return s->n > 0;
    return v->taps > v->step && (s->is_costly || s->n * v->taps > MAX_SUBTREE / 2);
}

/* ---- one node ---- */
static void place_elementwise(planner *p, ir_id id) {
    ir_node *n = ir_at(p->g, id);
    ir_reason why = IR_REASON_DIFFERENT_SPACE;
    int c = plan_latest_avail(p, n);
    if (is_view(n) ? !p->info[id].must_store && plan_try_join_view(p, id, &why) : plan_try_join(p, id, c, &why)) return;
    if (is_view(n)) {
        if (p->info[n->in[0]].home && !ir_view_is_index_map(p->g, n)) why = IR_REASON_LAYOUT;
    }
    for (int i = 0; i < n->n_in; i++) plan_needs_memory(p, n->in[i], why);
    p->info[id].avail = plan_latest_avail(p, n);
    if (is_view(n) && !ir_view_is_index_map(p->g, n)) { /* a reshape reads memory in order */
        ir_id x = n->in[0];
        plan_store_floating(p, x, IR_REASON_LAYOUT);
        p->info[id].avail = p->info[x].avail;
    }
    subtree s = plan_measure_subtree(p, id);
    if (p->info[id].must_store || s.n > MAX_SUBTREE || s.leaves > MAX_SUBTREE_LEAVES)
        plan_store_floating(p, id, p->options->no_fuse ? IR_REASON_USER : IR_REASON_LIMIT);
    else if (!is_view(n) && is_stored_for_windows(p, id, &s)) plan_store_floating(p, id, IR_REASON_RECOMPUTE);
}

/* Padding, concatenation and gathers float, like element-wise values: the kernels that read them compute where to
 * read. */
static void place_move(planner *p, ir_id id) {
    ir_node *n = ir_at(p->g, id);
    for (int i = 0; i < n->n_in; i++) plan_needs_memory(p, n->in[i], IR_REASON_DIFFERENT_SPACE);
    if (plan_has_index(n)) {
        subtree table = plan_measure_subtree(p, n->in[0]);
        if (table.is_costly || table.leaves > 2)
            plan_store_floating(p, n->in[0], IR_REASON_RECOMPUTE); /* an element may be taken often */
        if (!plan_index_is_certain(p, n)) plan_store_floating(p, plan_index_base(p, n->in[1]), IR_REASON_INDICES);
    }
    for (int i = 0; i < n->n_in && n->n_in > 1; i++) { /* half of the room for each operand, so that nests end */
        subtree s = plan_measure_subtree(p, n->in[i]);
        if (s.n > MAX_SUBTREE / 2 || s.leaves > MAX_SUBTREE_LEAVES / 2)
            plan_store_floating(p, n->in[i], IR_REASON_LIMIT);
    }
    p->info[id].avail = plan_latest_avail(p, n);
    subtree s = plan_measure_subtree(p, id);
    if (p->info[id].must_store || s.n > MAX_SUBTREE || s.leaves > MAX_SUBTREE_LEAVES)
        plan_store_floating(p, id, p->options->no_fuse ? IR_REASON_USER : IR_REASON_LIMIT);
}

/* A cluster of its own over the space of the updates, which are fused; operand 0 and the indices are in memory. */
static void place_scatter(planner *p, ir_id id) {
    ir_node *n = ir_at(p->g, id), *indices = ir_at(p->g, n->in[1]);
    for (int i = 0; i < n->n_in; i++) plan_needs_memory(p, n->in[i], IR_REASON_DIFFERENT_SPACE);
    for (int i = 0; i < 2; i++)
        if (!p->info[n->in[i]].home && !(i && plan_index_is_certain(p, n)))
            plan_store_floating(p, i ? plan_index_base(p, n->in[i]) : n->in[i],
                                i ? IR_REASON_INDICES : IR_REASON_DIFFERENT_SPACE);
    subtree s = plan_measure_subtree(p, n->in[2]);
    if (s.n > MAX_SUBTREE || s.leaves > MAX_SUBTREE_LEAVES) plan_store_floating(p, n->in[2], IR_REASON_LIMIT);
    int c = plan_new_cluster(p, CLUSTER_MAP, id, indices->rank, indices->dim);
    plan_store_in(p, c, id);
    p->info[id].avail = c;
    p->info[id].reason = IR_REASON_DIFFERENT_SPACE;
}

static void place(planner *p, ir_id id) {
    const ir_node *n = ir_at(p->g, id);
    if (n->op == IR_OP_PARAM || n->op == IR_OP_LITERAL || !p->uses[id]) return; /* no use: only checked */
    if (!plan_has_kernel(p, n)) {
        place_reference(p, id);
        return;
    }
    switch (ir_ops[n->op].kind) {
    case IR_KIND_CONTRACT: place_contraction(p, id); break;
    case IR_KIND_EINSUM: place_einsum(p, id); break;
    case IR_KIND_CONV: place_window(p, id); break;
    case IR_KIND_REDUCE:
    case IR_KIND_ARGREDUCE: place_reduction(p, id); break;
    case IR_KIND_SCAN: place_scan(p, id); break;
    case IR_KIND_ATTENTION: place_attention(p, id); break;
    case IR_KIND_MOVE:
    case IR_KIND_INDEX:
        if (n->op == IR_OP_SCATTER) {
            place_scatter(p, id);
            break;
        }
        if (!is_view(n)) {
            place_move(p, id);
            break;
        }
        place_elementwise(p, id);
        break;
    default: place_elementwise(p, id); break;
    }
    if (p->info[id].is_barrier) plan_store_floating(p, id, IR_REASON_BARRIER);
}

static bool has_epilogue(const ir_node *n) {
    const ir_kind kind = ir_ops[n->op].kind;
    return kind == IR_KIND_CONTRACT || kind == IR_KIND_EINSUM || kind == IR_KIND_CONV || kind == IR_KIND_ATTENTION ||
           kind == IR_KIND_SCAN;
}

/* Contractions and their like in their order, and before each all nodes that need none from it on: a reduction that
 * its epilogue reads has a smaller cluster number then, wherever the program has it. */
static void place_all(planner *p) {
    const uint32_t n = p->g->nodes.n;
    uint32_t *turn = FU_NEW_N(p->arena, uint32_t, n), *from = FU_NEW_N(p->arena, uint32_t, n + 1), turns = 0;
    ir_id *order = FU_NEW_N(p->arena, ir_id, n);
    for (ir_id id = 1; id < n; id++) { /* the last of them that it needs, or is */
        const ir_node *v = ir_at(p->g, id);
        for (int i = 0; i < v->n_in; i++)
            if (turn[v->in[i]] > turn[id]) turn[id] = turn[v->in[i]];
        if (has_epilogue(v)) turn[id] = ++turns;
        from[turn[id] + 1]++;
    }
    for (uint32_t t = 1; t <= turns; t++) from[t] += from[t - 1];
    for (ir_id id = 1; id < n; id++) order[from[turn[id]]++] = id;
    for (uint32_t i = 0; i + 1 < n; i++) place(p, order[i]);
}

/* no_fuse: every operator has memory of its own, but the primitives inside one composite. */
static void mark_unfused(planner *p) {
    uint8_t *is_used_elsewhere = FU_NEW_N(p->arena, uint8_t, p->g->nodes.n);
    for (ir_id id = 1; id < p->g->nodes.n; id++) {
        const ir_node *n = ir_at(p->g, id);
        for (int i = 0; i < n->n_in && p->uses[id]; i++)
            if (!n->group || n->group != ir_at(p->g, n->in[i])->group) is_used_elsewhere[n->in[i]] = 1;
    }
    for (ir_id id = 1; id < p->g->nodes.n; id++) {
        const ir_node *n = ir_at(p->g, id);
        ir_kind kind = ir_ops[n->op].kind;
        if (kind == IR_KIND_EW || kind == IR_KIND_CONVERT || kind == IR_KIND_RANDOM || (is_move(n) && !is_view(n)))
            p->info[id].must_store = is_used_elsewhere[id] || !n->group;
    }
}

/* Who reads a floating value, directly or through floating consumers: numbers of clusters; results count as a cluster
 * of their shape, behind all. */
enum { READERS = 4 };
typedef struct readers {
    int n, at[READERS]; /* different ones, increasing; n = READERS: that many or more */
    bool is_result;     /* it is one of them itself */
    bool has_map;       /* one of them stores another value for others, perhaps for clusters of smaller number */
} readers;

static void add_reader(readers *r, int reader) {
    int i = 0;
    while (i < r->n && r->at[i] < reader) i++;
    if (i == READERS || (i < r->n && r->at[i] == reader)) return;
    if (r->n < READERS) r->n++;
    for (int k = r->n - 1; k > i; k--) r->at[k] = r->at[k - 1];
    r->at[i] = reader;
}

/* The first of the readers, where it is a reduction over the space of the value: it has each element once, and can
 * store it, if it needs none of the others. Clusters need those of smaller number, and maps, which are numbered as they
 * are found to be needed. 0: there is none. An aliased result is written in place by maps alone. */
static int reader_that_stores(const planner *p, ir_id id, const readers *r) {
    const ir_node *n = ir_at(p->g, id);
    const cluster *k = &p->clusters.at[r->at[0] < (int)p->clusters.n ? r->at[0] : 0];
    if (r->has_map || k->kind != CLUSTER_REDUCE || k->rank != n->rank || k->n_leaves >= MAX_CLUSTER_LEAVES ||
        memcmp(k->dim, n->dim, (size_t)n->rank * sizeof *n->dim) != 0)
        return 0;
    for (uint32_t i = 0; i < p->g->results.n; i++)
        if (p->g->results.at[i].node == id && p->g->results.at[i].alias >= 0) return 0;
    return r->at[0];
}

/* Elements of a dim; those of a named size count as many. */
static int64_t elements_of(const planner *p, ir_size size) {
    enum { MANY = 64 };
    int64_t n = MANY;
    (void)ir_size_is_const(p->g->sizes, size, &n);
    return n < INT16_MAX ? n : INT16_MAX;
}

/* Is operand i computed much more often than it has elements, in the kernel of what stretches it? Along the last dims
 * it is computed once for a run of elements, which serves as well where that is long. Few elements are not worth a
 * kernel. */
static bool stretches(const planner *p, const ir_node *n, int i) {
    enum { OFTEN = 4, RUN = 64, FEW = 512 };
    const ir_node *x = ir_at(p->g, n->in[i]);
    const int lead = n->rank - x->rank;
    int64_t times = 1, run = 1, all = 1;
    for (int d = 0; d < n->rank && all < INT32_MAX; d++) {
        const bool is_stretched = d < lead || (n->stretch && n->stretch[i] >> d & 1) ||
                                  (n->op == IR_OP_BROADCAST_TO && ir_size_is(p->g->sizes, x->dim[d - lead], 1));
        const int64_t size = elements_of(p, n->dim[d]);
        all *= size;
        times *= is_stretched ? size : 1;
        run = is_stretched || size == 1 ? run * size : 1;
    }
    return times >= OFTEN && times < all && all >= FEW && run < RUN;
}

/* A floating value that several clusters would compute is stored where that moves fewer bytes or saves a costly
 * function: by the first of them where that can be, else by a kernel of its own. So is a costly one that is stretched:
 * one kernel would compute it again and again. */
static void store_shared(planner *p) {
    uint32_t n = p->g->nodes.n;
    readers *of = FU_NEW_N(p->arena, readers, n);
    bool *is_stretched = FU_NEW_N(p->arena, bool, n);
    for (uint32_t r = 0; r < p->g->results.n; r++) {
        const ir_node *a = ir_at(p->g, p->g->results.at[r].node);
        uint32_t first = 0;
        for (; first < r; first++) {
            const ir_node *b = ir_at(p->g, p->g->results.at[first].node);
            if (b->rank == a->rank && memcmp(a->dim, b->dim, a->rank * sizeof *a->dim) == 0) break;
        }
        add_reader(&of[p->g->results.at[r].node], (int)(INT32_MAX - first));
        of[p->g->results.at[r].node].is_result = true;
    }
    for (ir_id id = n - 1; id >= 1; id--) {
        const ir_node *v = ir_at(p->g, id);
        node_info *info = &p->info[id];
        if (v->op == IR_OP_PARAM || v->op == IR_OP_LITERAL || !p->uses[id]) continue;
        const bool is_floating = !info->home && !info->made_by;
        if (is_floating && (of[id].n > 1 || is_stretched[id]) && !is_view(v) && v->rank > 0 &&
            ir_ops[v->op].kind != IR_KIND_CREATE && !info->is_wanted) {
            const subtree s = plan_measure_subtree(p, id);
            const int stored_by = is_stretched[id] ? 0 : reader_that_stores(p, id, &of[id]), times = of[id].n,
                      large = s.large;
            const bool moves_less = times > 1 && (large + !stored_by + times < large * times + !!stored_by ||
                                                  (s.leaves > 1 && s.n > CHEAP));
            if (s.is_costly || moves_less) {
                info->reason = s.is_costly ? IR_REASON_RECOMPUTE : IR_REASON_SHARED;
                if (stored_by) {
                    plan_store_in(p, stored_by, id);
                    p->clusters.at[stored_by].n_leaves++;
                } else plan_store_floating(p, id, info->reason);
            }
        }
        for (int i = 0; i < v->n_in; i++) {
            readers *in = &of[v->in[i]];
            if (ir_ops[v->op].kind == IR_KIND_EW || v->op == IR_OP_BROADCAST_TO)
                is_stretched[v->in[i]] |= stretches(p, v, i);
            else if (is_view(v) && v->op != IR_OP_SLICE) is_stretched[v->in[i]] |= is_stretched[id];
            const int by = info->home ? info->home : info->made_by;
            if (by) add_reader(in, by);
            for (int k = 0; k < of[id].n && !by; k++) add_reader(in, of[id].at[k]);
            in->has_map |=
                by ? p->clusters.at[by].kind == CLUSTER_MAP /* results are stored once, and read from there */
                   : of[id].has_map || (of[id].is_result && of[id].n > 1);
        }
    }
}

bool plan_is_result(const planner *p, ir_id id) {
    for (uint32_t r = 0; r < p->g->results.n; r++)
        if (p->g->results.at[r].node == id) return true;
    return false;
}

bool plan_is_in_order(const ir_node *n) {
    return n->op == IR_OP_RESHAPE || n->op == IR_OP_SQUEEZE || n->op == IR_OP_UNSQUEEZE;
}

/* Where a result is a stored value under another shape, that is stored as the result. */
static bool place_as_result(planner *p, uint32_t r) {
    ir_id id = p->g->results.at[r].node;
    if (p->g->results.at[r].alias >= 0) return false;
    while (plan_is_in_order(ir_at(p->g, id)) && !p->info[id].home && !p->info[id].made_by) id = ir_at(p->g, id)->in[0];
    node_info *x = &p->info[id];
    const ir_id result = p->g->results.at[r].node;
    if (id == result || !x->made_by || plan_is_result(p, id)) return false;
    if (x->as_result) return p->g->results.at[x->as_result - 1].node == result;
    x->as_result = (int)r + 1;
    return true;
}

/* The newest map of results of the node's class, where there is room for it too; else a new one. Older ones with room
 * would come to wait for newer ones (plan_tiers.c). */
static int map_for(planner *p, ir_id id, int first_map, const subtree *s) {
    const ir_node *n = ir_at(p->g, id);
    const node_info *v = &p->info[id];
    for (int c = (int)p->clusters.n - 1; c >= first_map && !p->options->no_fuse; c--) {
        const cluster *k = &p->clusters.at[c];
        if (k->tier != v->tier || !plan_is_of_class(p, id, k->rank, k->dim, k->level)) continue;
        if (k->n_nodes + s->n <= MAX_CLUSTER_NODES && k->n_leaves + s->leaves <= MAX_CLUSTER_LEAVES &&
            k->stores.n < MAX_MAP_RESULTS)
            return c;
        break;
    }
    const int c = plan_new_cluster(p, CLUSTER_MAP, 0, n->rank, n->dim);
    p->clusters.at[c].level = v->level;
    p->clusters.at[c].tier = v->tier;
    return c;
}

static void place_results(planner *p) {
    bool *is_floating = FU_NEW_N(p->arena, bool, p->g->nodes.n);
    for (uint32_t r = 0; r < p->g->results.n; r++) {
        const ir_id id = p->g->results.at[r].node;
        const node_info *v = &p->info[id];
        const ir_node *n = ir_at(p->g, id);
        if (v->made_by || n->op == IR_OP_PARAM || n->op == IR_OP_LITERAL) continue; /* returned as it is: copied */
        if (place_as_result(p, r)) continue;
        if (v->home) plan_store_in(p, v->home, id);
        else is_floating[id] = true;
    }
    plan_find_tiers(p, is_floating);
    const int first_map = (int)p->clusters.n;
    for (ir_id id = 1; id < p->g->nodes.n; id++) { /* what others read comes before them */
        if (!is_floating[id]) continue;
        const subtree s = plan_measure_subtree(p, id);
        const int c = map_for(p, id, first_map, &s);
        p->clusters.at[c].n_nodes += s.n;
        p->clusters.at[c].n_leaves += s.leaves;
        p->info[id].reason = IR_REASON_COUNT; /* stored because it is a result */
        plan_store_in(p, c, id);
    }
}

fusor_status ir_plan_make(fu_arena *a, fu_error *e, ir_graph *g, const ir_plan_options *options, ir_plan **out) {
    ir_plan *plan = FU_NEW(a, ir_plan);
    if (g->packs_const == ir_level_is_gpu(options->level))
        return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "plan: the graph was normalized for another kind of target");
    if (ir_level_is_gpu(options->level)) FU_TRY(ir_lower_einsums(a, e, &g));
    planner p = {.arena = a, .error = e, .g = g, .plan = plan, .options = &plan->options};
    plan->graph = g;
    plan->options = *options;
    p.info = FU_NEW_N(a, node_info, g->nodes.n);
    for (ir_id id = 0; id < g->nodes.n; id++) p.info[id].buffer = -1;
    p.saved = FU_NEW_N(a, int, g->results.n);
    for (uint32_t r = 0; r < g->results.n; r++) p.saved[r] = -1;
    fu_push(a, &p.clusters, (cluster){.step = -1});
    p.goes_last = ir_goes_last(a, g);
    p.uses = ir_use_counts(a, g);
    plan_find_fast_dims(&p);
    plan_take_hints(&p);
    if (options->no_fuse) mark_unfused(&p);
    count_taps(&p);
    place_all(&p);
    if (!options->no_fuse) store_shared(&p);
    plan_find_levels(&p);
    place_results(&p);
    if (!ir_level_is_gpu(options->level)) {
        plan_attach_rows(&p);
        plan_attach_bands(&p);
    }
    if (!options->no_fuse) plan_leave_to_readers(&p);
    plan_find_parts(&p);
    plan_make_buffers(&p);
    plan_place_parts(&p);
    p.is_checked = FU_NEW_N(a, bool, g->nodes.n);
    for (ir_id id = 1; id < g->nodes.n; id++) /* parameters' before anything is written */
        if (plan_has_index(ir_at(g, id)) && ir_at(g, plan_index_base(&p, ir_at(g, id)->in[1]))->op == IR_OP_PARAM)
            FU_TRY(plan_check_index(&p, id));
    plan_save_parameters(&p);
    for (int c = 1; c < (int)p.clusters.n; c++) FU_TRY(plan_build_step(&p, c));
    plan_write_in_place(&p);
    plan_copy_results(&p);
    plan_find_constants(&p);
    FU_TRY(plan_check_made(plan, a, e));
    plan_lifetimes(plan);
    plan_write_over(plan);
    FU_TRY(plan_check_hints(&p));
    *out = plan;
    return FUSOR_OK;
}
