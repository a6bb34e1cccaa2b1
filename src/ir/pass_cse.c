/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_cse: equal nodes become one, and the graph gets its canonical form: operands of commutative operators in one
 * order (is_out_of_order), nodes in the order in which the results need them. So programs that say the same in another
 * order are one program to the planner and the cache. Names and places are no part of it: the first node's stay.
 *
 * Composites that share nodes after merging (softmax and log_softmax of one tensor) become one group, and groups are
 * numbered in canonical order. Nodes inside and outside of composites are kept apart. Needs: types. Keeps: types.
 * Breaks: ids, order. Cost: O(nodes + edges). */
#include "base/small.h"
#include "ir/kernel.h"
#include "ir/pass.h"
#include <string.h>

/* Each decides where those before it are equal. */
typedef enum hash_kind {
    OF_FORM,  /* without numbers and sizes, of whichever parameters: what is done to each of several is one kernel */
    OF_SHAPE, /* with its parameters */
    OF_ALL,   /* with its numbers and sizes */
    HASHES
} hash_kind;

typedef struct cse {
    fu_arena *arena;
    const ir_graph *from;
    ir_graph *pool;         /* one node of each kind, without metadata: its hash-consing does the merging */
    ir_id *in_pool;         /* by id of `from` */
    ir_id *first;           /* by id of `pool`: the node of `from` it was made of */
    ir_id *param;           /* by id of `pool`: the first parameter that the node is of, as its index + 1 */
    uint64_t *hash[HASHES]; /* by id of `pool`: of what the node computes, the same whatever the ids are */
    uint32_t *group;        /* by group number: union-find */
} cse;

static uint32_t root(uint32_t *group, uint32_t x) {
    while (group[x] != x) x = group[x] = group[group[x]];
    return x;
}

static uint64_t mix(uint64_t h, uint64_t v) { return fu_hash(&v, sizeof v, h); }

/* What becomes an argument of a kernel must not decide the order of operands: the same chain over other sizes, under
 * other names of sizes, or with other numbers in it, is the same kernel. Of sizes, only those that may be baked into
 * its description count (ir/kernel.h); literals and attributes that are numbers do not. */
static uint64_t size_class(const ir_sizes *s, ir_size x) {
    int64_t v;
    return ir_size_is_const(s, x, &v) && v >= 0 && v <= IR_BAKE_MAX ? (uint64_t)v : UINT64_MAX;
}

static uint64_t structural_hash(const cse *c, const ir_node *n, hash_kind kind) {
    const uint64_t *hash = c->hash[kind];
    const bool is_exact = kind == OF_ALL;
    const ir_sizes *s = c->pool->sizes;
    if (n->op == IR_OP_PARAM) return kind == OF_FORM ? 1 : 1u + n->index;
    /* By name: a new row of the table does not reorder old programs. */
    const char *name = ir_ops[n->op].name;
    uint64_t h = mix(fu_hash(name, strlen(name), 0), (uint64_t)n->dtype << 32 | (uint64_t)n->rank << 16 | n->index);
    h = mix(h, n->group != 0);
    if (is_exact) h = mix(h, n->bits);
    for (unsigned d = 0; d < n->rank; d++) h = mix(h, is_exact ? ir_size_hash(s, n->dim[d]) : size_class(s, n->dim[d]));
    for (unsigned i = 0; i < n->n_in; i++) h = mix(mix(h, hash[n->in[i]]), n->stretch ? n->stretch[i] : 0);
    for (unsigned i = 0; n->attr && i < ir_ops[n->op].n_attrs; i++) {
        const ir_attr *x = &n->attr[i];
        uint64_t number = 0;
        if (is_exact) memcpy(&number, &x->number, sizeof number);
        h = mix(mix(h, ir_ops[n->op].attrs[i].type == IR_ATTR_TEXT ? 0 : (uint64_t)x->integer), number);
        for (uint32_t k = 0; k < x->n; k++)
            h = mix(h, is_exact ? ir_size_hash(s, x->list[k]) : size_class(s, x->list[k]));
    }
    return h;
}

static void swap_operands(const cse *c, ir_node *n) {
    const ir_id x = n->in[0];
    uint8_t *stretch = FU_NEW_N(c->arena, uint8_t, 2);
    if (n->stretch) {
        stretch[0] = n->stretch[1];
        stretch[1] = n->stretch[0];
    }
    n->in[0] = n->in[1];
    n->in[1] = x;
    n->stretch = stretch;
}

/* dtype= of an element-wise row only tells the type of literals, whose nodes have it: there where nothing else would
 * say it in a dump, and nowhere else, so that it never tells equal nodes apart. */
static void normalize_literal_type(const cse *c, ir_node *n) {
    const ir_op_info *info = &ir_ops[n->op];
    if (info->kind != IR_KIND_EW || !n->attr) return;
    const unsigned main = (info->flags & IR_COND) != 0;
    bool only_literals = true;
    for (unsigned i = main; i < n->n_in; i++) only_literals &= ir_at(c->pool, n->in[i])->op == IR_OP_LITERAL;
    n->attr = fu_dup(c->arena, n->attr, info->n_attrs * sizeof *n->attr);
    for (unsigned i = 0; i < info->n_attrs; i++) {
        if (info->attrs[i].type != IR_ATTR_DTYPE) continue;
        n->attr[i] = (ir_attr){0};
        if (only_literals) n->attr[i] = (ir_attr){.is_set = true, .integer = ir_at(c->pool, n->in[main])->dtype};
    }
}

static ir_id first_param(const cse *c, const ir_node *n) {
    ir_id first = n->op == IR_OP_PARAM ? n->index + 1u : UINT32_MAX;
    for (unsigned i = 0; i < n->n_in; i++)
        if (c->param[n->in[i]] < first) first = c->param[n->in[i]];
    return first;
}

/* Operands of a commutative operator: literals last, and scalars before them; then whose parameters come first, so that
 * what a program does to one parameter after the other (an optimizer) is the same kernel each time; then by what they
 * compute. */
static bool is_out_of_order(const cse *c, const ir_node *n) {
    if (!(ir_ops[n->op].flags & IR_COMMUTES) || n->n_in != 2) return false;
    const bool x = ir_at(c->pool, n->in[0])->op == IR_OP_LITERAL, y = ir_at(c->pool, n->in[1])->op == IR_OP_LITERAL;
    if (x != y) return x;
    const bool sx = ir_at(c->pool, n->in[0])->rank == 0, sy = ir_at(c->pool, n->in[1])->rank == 0;
    if (sx != sy) return sx;
    const ir_id px = c->param[n->in[0]], py = c->param[n->in[1]];
    if (px != py) return px > py;
    for (int h = 0; h < HASHES; h++)
        if (c->hash[h][n->in[0]] != c->hash[h][n->in[1]]) return c->hash[h][n->in[0]] > c->hash[h][n->in[1]];
    return false;
}

static void merge(cse *c) {
    for (ir_id i = 1; i < c->from->nodes.n; i++) {
        ir_node n = *ir_at(c->from, i);
        ir_id *in = FU_NEW_N(c->arena, ir_id, n.n_in);
        for (unsigned k = 0; k < n.n_in; k++) in[k] = c->in_pool[n.in[k]];
        const uint32_t group = n.group;
        n.in = in;
        n.group = group != 0;
        n.name = n.meta_name = n.meta_loc = NULL;
        n.loc = (fu_loc){0, 0};
        normalize_literal_type(c, &n);
        if (is_out_of_order(c, &n)) swap_operands(c, &n);
        const ir_id id = ir_add_raw(c->pool, &n);
        c->in_pool[i] = id;
        if (c->first[id]) {
            const uint32_t x = root(c->group, group), y = root(c->group, ir_at(c->from, c->first[id])->group);
            if (group) c->group[x] = y;
            continue;
        }
        c->first[id] = i;
        c->param[id] = first_param(c, &n);
        for (int h = 0; h < HASHES; h++) c->hash[h][id] = structural_hash(c, &n, (hash_kind)h);
    }
}

/* Adds pool node `id` to the result, with the metadata of the first node it was made of. */
static ir_id emit(const cse *c, ir_rewrite *rw, ir_id id, const ir_id *map, uint32_t *number, uint32_t *n_groups) {
    ir_node n = *ir_at(c->pool, id);
    const ir_node *old = ir_at(c->from, c->first[id]);
    ir_id *in = FU_NEW_N(c->arena, ir_id, n.n_in);
    for (unsigned k = 0; k < n.n_in; k++) in[k] = map[n.in[k]];
    n.in = in;
    n.loc = old->loc;
    n.name = old->name;
    n.meta_name = old->meta_name;
    n.meta_loc = old->meta_loc;
    if (old->group) {
        const uint32_t g = root(c->group, old->group);
        if (!number[g]) number[g] = ++*n_groups;
        n.group = number[g];
    }
    return ir_add_raw(rw->to, &n);
}

fusor_status ir_pass_cse(fu_arena *a, fu_error *e, ir_graph **g) {
    (void)e;
    const ir_graph *from = *g;
    const uint32_t count = from->nodes.n;
    uint32_t n_groups = 0, max_group = 0;
    for (ir_id i = 1; i < count; i++) max_group = ir_at(from, i)->group > max_group ? ir_at(from, i)->group : max_group;
    cse c = {.arena = a,
             .from = from,
             .pool = ir_graph_like(a, from),
             .in_pool = FU_NEW_N(a, ir_id, count),
             .first = FU_NEW_N(a, ir_id, count + 1),
             .param = FU_NEW_N(a, ir_id, count + 1),
             .group = FU_NEW_N(a, uint32_t, max_group + 1)};
    for (int h = 0; h < HASHES; h++) c.hash[h] = FU_NEW_N(a, uint64_t, count + 1);
    for (uint32_t i = 0; i <= max_group; i++) c.group[i] = i;
    merge(&c);

    /* Depth first from the results, and from what else is kept, operands before users, without recursion: graphs are
     * as deep as their text is long. */
    ir_rewrite rw;
    ir_rewrite_begin(&rw, a, from);
    ir_id *map = FU_NEW_N(a, ir_id, c.pool->nodes.n), *stack = FU_NEW_N(a, ir_id, c.pool->nodes.n);
    uint16_t *next = FU_NEW_N(a, uint16_t, c.pool->nodes.n);
    uint32_t *number = FU_NEW_N(a, uint32_t, max_group + 1);
    for (uint32_t p = 0; p < from->params.n; p++) {
        const ir_id old = from->params.at[p].node;
        map[c.in_pool[old]] = rw.map[old];
    }
    for (uint32_t r = 0, n_results = from->results.n; r < n_results + count; r++) {
        uint32_t depth = 0;
        const ir_id kept = r < n_results ? from->results.at[r].node : r - n_results, top = c.in_pool[kept];
        if (r >= n_results && !ir_checks_parameter(from, ir_at(from, kept))) continue;
        if (!map[top]) stack[depth++] = top;
        while (depth) {
            const ir_id id = stack[depth - 1];
            const ir_node *n = ir_at(c.pool, id);
            while (next[id] < n->n_in && map[n->in[next[id]]]) next[id]++;
            if (next[id] < n->n_in) {
                stack[depth++] = n->in[next[id]];
                continue;
            }
            map[id] = emit(&c, &rw, id, map, number, &n_groups);
            depth--;
        }
    }
    for (ir_id i = 1; i < count; i++) {
        rw.map[i] = map[c.in_pool[i]];
        const ir_node *x = ir_at(from, i), *y = ir_at(rw.to, rw.map[i]);
        rw.is_changed |= rw.map[i] != i || x->group != y->group ||
                         (x->n_in == 2 && rw.map[x->in[0]] != y->in[0] && rw.map[x->in[0]] == y->in[1]);
    }
    ir_rewrite_finish(&rw, g);
    return FUSOR_OK;
}
