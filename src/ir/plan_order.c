/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_order.c: the order of a reduction. It depends on two choices: the form (column or inner) and which reduced dims
 * are walked as one. Both follow from the program alone, never from what was fused or stored: so fused and unfused
 * kernels give the same bits. */
#include "base/small.h"
#include "ir/plan_internal.h"

/* A convolution, or the product that it is of images whose channels are last: its places lie as its operand's. */
static bool is_conv(const ir_node *n) {
    return ir_ops[n->op].kind == IR_KIND_CONV || (n->op == IR_OP_MATMUL && n->index == IR_PLACES);
}

/* Where the walk down an operand ends: a parameter, or what is always in memory, row-major. */
static bool is_source(const planner *p, const ir_node *n) {
    ir_kind kind = ir_ops[n->op].kind;
    if (is_conv(n)) return false;
    return n->n_in == 0 || kind == IR_KIND_RANDOM || kind == IR_KIND_REDUCE || kind == IR_KIND_ARGREDUCE ||
           kind == IR_KIND_SCAN || kind == IR_KIND_CONTRACT || kind == IR_KIND_EINSUM || kind == IR_KIND_ATTENTION ||
           !plan_has_kernel(p, n) || (is_view(n) && !ir_view_is_index_map(p->g, n));
}

/* Can dims x and y of a value (-1: it does not vary) be walked as one dim in whatever memory it, or a value under it,
 * may lie? `size` is dim y's in the loop: an operand may give that size another name, and only the call finds that they
 * agree; the kernel cannot tell that its rows then lie one after the other. */
static bool is_one_run(const planner *p, ir_id id, int x, int y, ir_size size, int *budget) {
    const ir_node *n = ir_at(p->g, id);
    int from[IR_MAX_RANK];
    if (x >= 0 && ir_size_is(p->g->sizes, n->dim[x], 1)) x = -1;
    if (y >= 0 && ir_size_is(p->g->sizes, n->dim[y], 1)) y = -1;
    if (x < 0 && y < 0) return true;
    if (x < 0 || y <= x || --*budget < 0 || is_conv(n)) return false;
    for (int d = x + 1; d < y; d++)
        if (!ir_size_is(p->g->sizes, n->dim[d], 1)) return false;
    if (n->op == IR_OP_IOTA) {
        int axis = ir_axis(n->attr[1].is_set ? n->attr[1].integer : 0, n->rank);
        return axis != x && axis != y;
    }
    if (is_source(p, n)) return n->dim[y] == size;
    if (is_move(n)) {
        for (int i = 0; i < n->n_in; i++) {
            int ox = x < 0 ? -1 : plan_move_dim(p->g, n, i, x), oy = y < 0 ? -1 : plan_move_dim(p->g, n, i, y);
            if (ox == PLAN_DIM_MOVED || oy == PLAN_DIM_MOVED || !is_one_run(p, n->in[i], ox, oy, size, budget))
                return false;
        }
        return true;
    }
    if (is_view(n)) {
        ir_view_dims(p->g, n, from);
        return is_one_run(p, n->in[0], from[x], from[y], size, budget);
    }
    for (int i = 0; i < n->n_in; i++) {
        int lead = n->rank - ir_at(p->g, n->in[i])->rank, mask = n->stretch ? n->stretch[i] : 0;
        int ox = x < lead || mask >> x & 1 ? -1 : x - lead, oy = y < lead || mask >> y & 1 ? -1 : y - lead;
        if (ir_ops[n->op].kind != IR_KIND_CREATE && !is_one_run(p, n->in[i], ox, oy, size, budget)) return false;
    }
    return true;
}

enum { WALK_BUDGET = 4096 };

/* The reduced dims of x that are one with the next reduced dim. */
uint32_t plan_merged_axes(const planner *p, ir_id xid, uint32_t axes) {
    const ir_node *x = ir_at(p->g, xid);
    int before = -1, budget = WALK_BUDGET;
    uint32_t merged = 0;
    for (int d = 0; d < x->rank; d++) {
        if (!(axes >> d & 1) || ir_size_is(p->g->sizes, x->dim[d], 1)) continue;
        if (before >= 0 && is_one_run(p, xid, before, d, x->dim[d], &budget)) merged |= 1u << before;
        before = d;
    }
    return merged;
}

/* A value per element that joins a row kernel must let the merged dims be one, too. */
bool plan_keeps_merged(const planner *p, int c, ir_id id, const int8_t *coord) {
    const cluster *k = &p->clusters.at[c];
    int budget = WALK_BUDGET;
    for (int d = 0; d < k->rank; d++) {
        int next = d + 1, x = -1, y = -1;
        if (!(k->merged >> d & 1)) continue;
        while (next < k->rank && (!(k->reduced >> next & 1) || ir_size_is(p->g->sizes, k->dim[next], 1))) next++;
        for (int i = 0; i < ir_at(p->g, id)->rank; i++) {
            if (coord[i] == d) x = i;
            if (coord[i] == next) y = i;
        }
        if (!is_one_run(p, id, x, y, k->dim[next], &budget)) return false;
    }
    return true;
}

/* The dim along which a value's elements are adjacent in memory: its last one, through views and operands. Where those
 * are of different ones it is none (-1), so that it is the same for operands in any order, and channels put last. */
static int fast_dim_of(const planner *p, ir_id id) {
    const ir_node *n = ir_at(p->g, id);
    int last = -1, found = -1, from[IR_MAX_RANK];
    for (int d = 0; d < n->rank; d++)
        if (!ir_size_is(p->g->sizes, n->dim[d], 1)) last = d;
    if (last < 0 || is_source(p, n)) return last;
    if (is_view(n)) {
        ir_view_dims(p->g, n, from);
        const int inner = p->fast_dim[n->in[0]];
        for (int d = 0; d < n->rank; d++)
            if (from[d] == inner && inner >= 0) return d;
        return last;
    }
    if (is_conv(n)) return p->fast_dim[n->in[0]];
    bool any = false;
    for (int i = 0; i < n->n_in; i++) {
        if (ir_at(p->g, n->in[i])->rank != n->rank || (n->stretch && n->stretch[i])) continue;
        const int of = p->fast_dim[n->in[i]];
        if (any && of != found) return -1;
        found = of;
        any = true;
    }
    return any ? found : last;
}

void plan_find_fast_dims(planner *p) {
    p->fast_dim = FU_NEW_N(p->arena, int8_t, p->g->nodes.n);
    for (ir_id id = 1; id < p->g->nodes.n; id++) p->fast_dim[id] = (int8_t)fast_dim_of(p, id);
}

/* The dim along which column form has its lanes; -1: inner form. */
int plan_column_of(const planner *p, ir_id xid, uint32_t axes) {
    const ir_node *x = ir_at(p->g, xid);
    const int fast = p->fast_dim[xid];
    if (fast < 0 || axes >> fast & 1) return -1;
    for (int d = 0; d < x->rank; d++)
        if (axes >> d & 1 && !ir_size_is(p->g->sizes, x->dim[d], 1)) return fast;
    return -1;
}
