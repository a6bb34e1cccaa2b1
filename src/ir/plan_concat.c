/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_concat.c: values that are made where a concatenation of them lies, so that no kernel copies them there.
 *
 * A concatenation that a map of its own would store is a joint: it is there once its operands are, each of them a run
 * of its elements. Those that kernels store anyway are stored there; what else it is made of (a pool, a pad, an
 * upsampled value) is stored there by a map for each, which moves what the one map would have moved of it. A joint may
 * be part of another one.
 *
 * Not where an operand lies elsewhere already: a parameter, a result, one that is joined twice. Nor along an axis behind
 * dims of other sizes than 1, where operands would not be contiguous, as all of a plan's buffers are. Nor what is made
 * of constants alone, which may be packed once (plan_constant.c), or what a hint names; nor a map for each of many
 * operands beside few that are stored. Cost: O(nodes * results). */
#include "base/small.h"
#include "ir/plan_internal.h"

typedef struct finder {
    planner *p;
    /* by node: is it made of a parameter that a call gives; may a scatter overwrite it, in the memory of its own
     * result */
    bool *varies, *is_overwritten;
} finder;

static bool is_named(const planner *p, ir_id id) {
    for (uint32_t i = 0; i < p->g->hints.n; i++) {
        const ir_hint *h = &p->g->hints.at[i];
        if (plan_behind_views(p, h->node) == id || (h->with && plan_behind_views(p, h->with) == id)) return true;
    }
    return false;
}

/* May the buffer of a stored value be a part of another one? */
static bool is_movable(const planner *p, ir_id id) {
    const node_info *v = &p->info[id];
    const cluster *c = &p->clusters.at[v->made_by];
    const bool is_band = c->band_rows && c->stores.at[0] == id;
    return !v->part_of && !v->as_result && !is_band && !plan_is_result(p, id);
}

static bool has_wishes(const planner *p) {
    for (uint32_t i = 0; i < p->g->hints.n; i++)
        if (p->g->hints.at[i].kind == IR_HINT_FUSE_WITH) return true;
    return false;
}

/* The value whose elements, in their order, are those of operand x; 0: it can not be made in a part. One that no kernel
 * stores has no other reader, who might be what it waits for, and shares no kernel as a hint may want it to. */
static ir_id value_of(const finder *f, ir_id x) {
    const planner *p = f->p;
    bool is_read_once = p->uses[x] == 1;
    while (plan_is_in_order(ir_at(p->g, x)) && !p->info[x].home && !p->info[x].made_by) {
        x = ir_at(p->g, x)->in[0];
        is_read_once &= p->uses[x] == 1;
    }
    const node_info *v = &p->info[x];
    if (ir_at(p->g, x)->op == IR_OP_PARAM || !f->varies[x] || f->is_overwritten[x]) return 0;
    if (v->made_by) return is_movable(p, x) ? x : 0;
    return !v->home && is_read_once && !has_wishes(p) ? x : 0;
}

static bool is_joint(const finder *f, ir_id id) {
    const planner *p = f->p;
    const ir_node *n = ir_at(p->g, id);
    const cluster *c = &p->clusters.at[p->info[id].made_by];
    if (n->op != IR_OP_CONCAT || !p->info[id].made_by || p->info[id].home || c->kind != CLUSTER_MAP || c->anchor ||
        c->stores.n != 1 || c->head || c->tail || !f->varies[id] || f->is_overwritten[id] || is_named(p, id))
        return false;
    for (int d = 0; d < plan_axis_of(n); d++)
        if (!ir_size_is(p->g->sizes, n->dim[d], 1)) return false;
    int results = 0;
    for (uint32_t r = 0; r < p->g->results.n; r++) {
        if (p->g->results.at[r].node != id) continue;
        if (p->g->results.at[r].alias >= 0 || results++) return false;
    }
    return true;
}

static void join(const finder *f, ir_id id) {
    planner *p = f->p;
    const ir_node *n = ir_at(p->g, id);
    ir_id *part = FU_NEW_N(p->arena, ir_id, n->n_in);
    int stored = 0;
    for (int i = 0; i < n->n_in; i++) {
        part[i] = value_of(f, n->in[i]);
        if (!part[i]) return;
        for (int j = 0; j < i; j++)
            if (part[j] == part[i]) return;
        stored += p->info[part[i]].made_by != 0;
    }
    if (2 * stored < n->n_in) return;
    ir_sizes *sizes = p->g->sizes;
    ir_size at = ir_size_const(sizes, 0), inner = ir_size_const(sizes, 1);
    for (int d = plan_axis_of(n) + 1; d < n->rank; d++) inner = ir_size_mul(sizes, inner, n->dim[d]);
    for (int i = 0; i < n->n_in; i++) {
        plan_store_floating(p, part[i], IR_REASON_PART);
        p->info[part[i]].part_of = id;
        p->info[part[i]].part_at = at;
        at = ir_size_add(sizes, at, ir_size_mul(sizes, ir_at(p->g, n->in[i])->dim[plan_axis_of(n)], inner));
    }
    cluster *c = &p->clusters.at[p->info[id].made_by];
    c->n_parts = n->n_in;
    c->part = part;
}

/* From the last concatenation on: what one is made of may be stored for it, and be one itself. */
void plan_find_parts(planner *p) {
    if (p->options->no_fuse || p->options->reference || ir_level_is_gpu(p->options->level)) return;
    const finder f = {p, FU_NEW_N(p->arena, bool, p->g->nodes.n), FU_NEW_N(p->arena, bool, p->g->nodes.n)};
    for (ir_id id = 1; id < p->g->nodes.n; id++) {
        const ir_node *n = ir_at(p->g, id);
        f.varies[id] = n->op == IR_OP_PARAM && !p->g->params.at[n->index].is_const;
        for (int i = 0; i < n->n_in; i++) f.varies[id] |= f.varies[n->in[i]];
        if (n->op == IR_OP_SCATTER && p->uses[id]) f.is_overwritten[n->in[0]] = true;
    }
    for (ir_id id = p->g->nodes.n - 1; id >= 1; id--)
        if (is_joint(&f, id)) join(&f, id);
}

void plan_place_parts(planner *p) {
    for (ir_id id = 1; id < p->g->nodes.n; id++) {
        const node_info *v = &p->info[id];
        if (!v->part_of) continue;
        ir_plan_buffer *b = &p->plan->buffers.at[v->buffer];
        b->part_of = p->info[v->part_of].buffer;
        b->part_at = v->part_at;
    }
}
