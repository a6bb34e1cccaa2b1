/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_channels.c: images between convolutions get their channels last, where that makes enough of them products of
 * matrices. A value of [N, C, H, W] that only convolutions, element-wise operators and reductions of few places read is
 * then in memory as [N, H, W, C]: what makes it is transposed, and what reads it reads a transpose of that.
 *
 *   conv 1x1   between two such images is a matrix product of their rows (pass_expand_conv.c), without a copy or a turn
 *   conv       by channel turns what it reads of them as it copies its pads, and stores its sums as they are
 *              (jit/window_slab.c); by columns it reads a copy
 *   pools      are turned as they are stored
 *   reductions and element-wise operators read views
 *
 * Elements, and the order in which each is summed up, stay what they are, so no bit changes. For fused plans on a CPU
 * only, since others would copy at each transpose; so it is no row of ir_passes. Needs: types. Keeps: types. Breaks:
 * ids. Cost: O(nodes), and as often again as what one value may not be decides about those before it.
 *
 * (Cascade Lake, one thread, of the time before: ResNet-50 0.85, 1x1 of 64 channels of 56x56 to 256 and back 0.75.) */
#include "base/small.h"
#include "ir/expand.h"
#include "ir/window.h"
#include <string.h>

enum { RANK = 4, CHANNELS = 1 };
static const int to_last[RANK] = {0, 2, 3, 1}, from_last[RANK] = {0, 3, 1, 2}, of_one[RANK - 1] = {1, 2, 0};

typedef struct channels {
    const ir_graph *g;
    bool *last;     /* by node: may its channels lie last? */
    uint32_t *part; /* by node: union-find of those that read each other */
    const uint32_t *uses;
} channels;

static uint32_t root(uint32_t *part, uint32_t x) {
    while (part[x] != x) x = part[x] = part[part[x]];
    return x;
}

/* A convolution over rows and columns of known sizes, of one type, that could read or make such images. */
static bool is_conv(const ir_graph *g, const ir_node *n) {
    int64_t v;
    if (n->op != IR_OP_CONV || n->rank != RANK || (n->dtype != FUSOR_F32 && n->dtype != FUSOR_F64) ||
        ir_node_attr(n, "groups")->integer != 1 || ir_at(g, n->in[0])->dtype != n->dtype ||
        ir_at(g, n->in[1])->dtype != n->dtype)
        return false;
    for (int d = 1; d < RANK; d++)
        if (!ir_size_is_const(g->sizes, n->dim[d], &v) || !ir_size_is_const(g->sizes, ir_at(g, n->in[1])->dim[d], &v) ||
            !ir_size_is_const(g->sizes, ir_at(g, n->in[0])->dim[d], &v))
            return false;
    return true;
}

static bool is_pool(const ir_node *n) { return n->op == IR_OP_MAX_POOL || n->op == IR_OP_AVERAGE_POOL; }

/* The same along all places: a number, or one for each channel. */
static bool is_even(const ir_graph *g, ir_id id) {
    const ir_node *x = ir_at(g, id);
    return x->rank == 0 || (x->rank >= RANK - 1 && ir_size_is(g->sizes, x->dim[x->rank - 1], 1) &&
                            ir_size_is(g->sizes, x->dim[x->rank - 2], 1));
}

/* Could what makes node n make it so, by its kind and what it is made of? */
static bool can_make(const channels *c, const ir_node *n) {
    bool any = false;
    if (n->rank != RANK || !ir_channels_are_vectors(c->g, n->dim[CHANNELS], n->dtype)) return false;
    if (is_conv(c->g, n) || is_pool(n)) return true;
    if (ir_ops[n->op].kind != IR_KIND_EW || !ir_is_float(n->dtype)) return false;
    for (int i = 0; i < n->n_in; i++) {
        if (!c->last[n->in[i]] && !is_even(c->g, n->in[i])) return false;
        any |= c->last[n->in[i]];
    }
    return any;
}

/* Rows of places that a reduction can take one in each lane: its order, along the last axis of planes, reads others
 * element by element. (Squeeze and excite of 256 channels of 56x56: 10 times the time.) */
static bool has_few_places(const ir_graph *g, const ir_node *n) {
    enum { FEW = 64 };
    int64_t y, x;
    return ir_size_is_const(g->sizes, n->dim[2], &y) && ir_size_is_const(g->sizes, n->dim[3], &x) && x > 0 &&
           y <= FEW / x;
}

/* Does node n read operand `id` as well so? Windows of a pool are vectors of columns, whose pads are guards of few
 * places; its result is turned as it is stored. (3x3, stride 2, 64 channels of 112x112, Cascade Lake: 9 times the
 * time.) */
static bool can_read(const channels *c, ir_id node, ir_id id) {
    const ir_node *n = ir_at(c->g, node);
    if (is_conv(c->g, n)) {
        for (int i = 1; i < n->n_in; i++)
            if (n->in[i] == id) return false;
        return true;
    }
    return (ir_ops[n->op].kind == IR_KIND_REDUCE && has_few_places(c->g, ir_at(c->g, id))) ||
           (ir_ops[n->op].kind == IR_KIND_EW && c->last[node]);
}

static void find(channels *c) {
    const ir_graph *g = c->g;
    for (ir_id id = 1; id < g->nodes.n; id++) c->last[id] = c->uses[id] && can_make(c, ir_at(g, id));
    for (uint32_t r = 0; r < g->results.n; r++) c->last[g->results.at[r].node] = false;
    for (uint32_t h = 0; h < g->hints.n; h++) c->last[g->hints.at[h].node] = c->last[g->hints.at[h].with] = false;
    for (bool changes = true; changes;) {
        changes = false;
        for (ir_id id = g->nodes.n - 1; id >= 1; id--) {
            const ir_node *n = ir_at(g, id);
            for (int i = 0; i < n->n_in && c->uses[id]; i++) {
                if (!c->last[n->in[i]] || can_read(c, id, n->in[i])) continue;
                c->last[n->in[i]] = false;
                changes = true;
            }
        }
        for (ir_id id = 1; id < g->nodes.n; id++) {
            if (!c->last[id] || can_make(c, ir_at(g, id))) continue;
            c->last[id] = false;
            changes = true;
        }
    }
}

/* Products of a convolution for each image. */
static double work_of(const ir_graph *g, const ir_node *n) {
    const ir_node *w = ir_at(g, n->in[1]);
    double work = 1;
    int64_t v;
    for (int d = 1; d < RANK; d++) {
        (void)ir_size_is_const(g->sizes, n->dim[d], &v);
        work *= (double)v;
        (void)ir_size_is_const(g->sizes, w->dim[d], &v);
        work *= (double)v;
    }
    return work;
}

/* Those that read each other are such images together, where a third of their convolutions' work is products of
 * matrices then: others gain nothing, and turn what they read. False: none are. */
static bool choose(channels *c, fu_arena *a) {
    const ir_graph *g = c->g;
    double *all = FU_NEW_N(a, double, g->nodes.n), *products = FU_NEW_N(a, double, g->nodes.n);
    for (ir_id id = 0; id < g->nodes.n; id++) c->part[id] = id;
    for (ir_id id = 1; id < g->nodes.n; id++) {
        const ir_node *n = ir_at(g, id);
        for (int i = 0; i < n->n_in && c->last[id]; i++)
            if (c->last[n->in[i]]) c->part[root(c->part, id)] = root(c->part, n->in[i]);
    }
    for (ir_id id = 1; id < g->nodes.n; id++) {
        const ir_node *n = ir_at(g, id);
        if (!c->uses[id] || !is_conv(g, n) || (!c->last[id] && !c->last[n->in[0]])) continue;
        const double work = work_of(g, n);
        const uint32_t part = root(c->part, c->last[id] ? id : n->in[0]);
        all[part] += work;
        if (ir_conv_has_one_place(g, n) && c->last[id] && c->last[n->in[0]]) products[part] += work;
    }
    bool any = false;
    for (ir_id id = 1; id < g->nodes.n; id++) {
        const uint32_t part = root(c->part, id);
        c->last[id] &= products[part] > 0 && 3 * products[part] >= all[part];
        any |= c->last[id];
    }
    return any;
}

/* Node i, whose dims and operands are those of images with channels last. made: those operands. */
static ir_id make_last(const ir_expand *e, ir_id i, const ir_id *made) {
    ir_node n = ir_rewrite_node(e->rw, i);
    const ir_node *old = ir_at(e->rw->from, i);
    uint8_t *stretch = FU_NEW_N(e->rw->arena, uint8_t, n.n_in);
    for (int d = 0; d < RANK; d++) n.dim[d] = old->dim[to_last[d]];
    for (int k = 0; k < n.n_in; k++) {
        const ir_id x = old->in[k];
        const int rank = ir_at(e->rw->from, x)->rank;
        if (made[x]) n.in[k] = made[x];
        else if (rank) n.in[k] = ir_expand_transpose(e, n.in[k], rank == RANK ? to_last : of_one);
        for (int d = 0; d < RANK; d++)
            if (old->stretch && old->stretch[k] >> to_last[d] & 1) stretch[k] |= (uint8_t)(1u << d);
    }
    if (old->stretch) n.stretch = stretch;
    return ir_add_raw(e->rw->to, &n);
}

void ir_put_channels_last(fu_arena *a, ir_graph **g) {
    const uint32_t n = (*g)->nodes.n;
    channels c = {*g, FU_NEW_N(a, bool, n), FU_NEW_N(a, uint32_t, n), ir_use_counts(a, *g)};
    ir_rewrite rw;
    ir_id *made = FU_NEW_N(a, ir_id, n);
    find(&c);
    if (!choose(&c, a)) return;
    ir_rewrite_begin(&rw, a, *g);
    rw.is_changed = true;
    for (ir_id i = 1; i < n; i++) {
        if (ir_at(*g, i)->op == IR_OP_PARAM) continue;
        if (!c.last[i]) {
            const ir_node same = ir_rewrite_node(&rw, i);
            rw.map[i] = ir_add_raw(rw.to, &same);
            continue;
        }
        const ir_expand ex = {.rw = &rw, .model = *ir_at(*g, i)};
        if (ir_ops[ir_at(*g, i)->op].kind == IR_KIND_EW) {
            made[i] = make_last(&ex, i, made);
        } else {
            const ir_node same = ir_rewrite_node(&rw, i);
            made[i] = ir_expand_transpose(&ex, ir_add_raw(rw.to, &same), to_last);
        }
        rw.map[i] = ir_expand_transpose(&ex, made[i], from_last);
        ir_at(rw.to, rw.map[i])->index = IR_PLANES;
    }
    ir_rewrite_finish(&rw, g);
}
