/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* lazy_plan.c: from recorded operators to an executable. The operators in order, with operands by position and sizes by
 * name, make a key; a step that is repeated finds its plan by it and nothing is compiled. What is not found becomes an
 * ir_graph and goes through the pipeline of fusor.c.
 *
 * Concrete sizes become named ones by the rule of the pipeline: 1 stays, inner sizes up to 64 stay where rows or
 * contractions work along them, as do few rows of columns and all that the kernel of a convolution has; every other size
 * that a parameter has becomes a name, equal sizes the same. The key has the names, so another pattern of equal sizes is another plan,
 * while other sizes in the same pattern are not. */
#include "lazy_internal.h"
#include <stdio.h>

enum { MAX_NAMED = 64, MAX_KEPT = 64 }; /* distinct sizes; what comes after stays a number */

typedef struct size_map {
    bool is_baked;  /* all stay numbers */
    uint64_t inner; /* IR_BAKE_MAX bits: bit v - 1: the size v stays */
    uint32_t n, n_kept;
    int64_t value[MAX_NAMED], kept[MAX_KEPT]; /* kept: larger ones that stay */
} size_map;
typedef struct mapped {
    int64_t v;
    bool is_name;
} mapped; /* v: number, or index of the name */

static bool stays(const size_map *m, int64_t v) {
    if (m->is_baked || v == 1) return true;
    for (uint32_t i = 0; i < m->n_kept; i++)
        if (m->kept[i] == v) return true;
    return v >= 1 && v <= IR_BAKE_MAX && m->inner >> (v - 1) & 1;
}

static mapped map_size(const size_map *m, int64_t v) {
    if (stays(m, v)) return (mapped){v, false};
    for (uint32_t i = 0; i < m->n; i++)
        if (m->value[i] == v) return (mapped){i, true};
    return (mapped){v, false};
}

static void keep_inner(size_map *m, int64_t v) {
    if (v >= 1 && v <= IR_BAKE_MAX) m->inner |= UINT64_C(1) << (v - 1);
}

/* There are kernels for convolutions whose kernel and channels are numbers. */
static void keep_any(size_map *m, int64_t v) {
    keep_inner(m, v);
    if (stays(m, v)) return;
    if (m->n_kept < MAX_KEPT) m->kept[m->n_kept++] = v;
    else m->is_baked = true;
}

/* Rows that the planner has in one kernel with what uses their reduction, where it knows how many (softmax over
 * channels, norms by way of keepdims; has_few_rows of ir/plan.c). The kernel is the same for all. */
static void keep_rows(const lazy_state *s, const lazy_slot *x, ir_kind kind, size_map *m) {
    const lazy_slot *y = x->n_in && x->in[0].slot ? lazy_at(s, x->in[0].slot) : NULL;
    op_attr attr[IR_MAX_ATTRS];
    uint32_t rows = 0;
    if (!y || x->rank != y->rank || y->rank < 2) return;
    if (kind == IR_KIND_ROW && x->attr) {
        lazy_unpack_attrs(x->op, x->attr, attr);
        if (attr[0].is_set) rows = 1u << ir_axis(attr[0].integer, y->rank);
    }
    for (int d = 0; kind == IR_KIND_REDUCE && d < y->rank; d++) rows |= (uint32_t)(x->shape[d] == 1) << d;
    int64_t bytes = ir_dtypes[y->dtype].bytes;
    for (int d = 0; d < y->rank; d++) {
        if (!(rows >> d & 1)) continue;
        if (d == y->rank - 1 || y->shape[d] > IR_COLUMN_BYTES / bytes) return;
        bytes *= y->shape[d];
    }
    for (int d = 0; d < y->rank; d++)
        if (rows >> d & 1) keep_any(m, y->shape[d]);
}

static void name_sizes(const lazy_state *s, bool is_baked, size_map *m) {
    bool has_rows = false;
    m->is_baked = is_baked;
    m->inner = 0;
    m->n = m->n_kept = 0;
    if (is_baked) return;
    for (uint32_t i = 0; i < s->n_order; i++) {
        const lazy_slot *x = lazy_at(s, s->order[i]);
        if (x->kind != SLOT_OP) continue;
        ir_kind kind = ir_ops[x->op].kind;
        has_rows |= kind == IR_KIND_REDUCE || kind == IR_KIND_ARGREDUCE || kind == IR_KIND_ROW ||
                    kind == IR_KIND_NORM || kind == IR_KIND_SCAN || kind == IR_KIND_CONTRACT;
        if (kind == IR_KIND_ROW || kind == IR_KIND_REDUCE) keep_rows(s, x, kind, m);
        for (uint32_t k = 0; kind == IR_KIND_EINSUM && k < x->n_in; k++) { /* small ones decide what is put in order */
            const lazy_slot *y = x->in[k].slot ? lazy_at(s, x->in[k].slot) : NULL;
            for (int d = 0; y && d < y->rank; d++) keep_inner(m, y->shape[d]);
        }
        if ((kind != IR_KIND_CONTRACT && kind != IR_KIND_CONV) || x->n_in < 2 || !x->in[1].slot) continue;
        const lazy_slot *b = lazy_at(s, x->in[1].slot);
        for (int d = 0; kind == IR_KIND_CONV && d < b->rank; d++) keep_any(m, b->shape[d]);
        if (kind == IR_KIND_CONV) continue;
        for (int d = b->rank > 2 ? b->rank - 2 : 0; d < b->rank; d++) keep_inner(m, b->shape[d]);
        if (b->rank < 3 || !x->in[0].slot) continue;
        /* many small matrices: with the rows known too, contractions take the direct form (ir/plan_direct.c) */
        const lazy_slot *a = lazy_at(s, x->in[0].slot);
        for (int d = a->rank - 2; a->rank > 2 && d < a->rank; d++) keep_inner(m, a->shape[d]);
    }
    for (int pass = has_rows ? 0 : 1; pass < 2; pass++) {
        for (uint32_t i = 0; i < s->n_order; i++) {
            const lazy_slot *x = lazy_at(s, s->order[i]);
            if (x->kind != SLOT_LEAF) continue;
            if (pass == 0 && x->rank) keep_inner(m, x->shape[x->rank - 1]);
            for (int d = 0; pass == 1 && d < x->rank; d++) {
                int64_t v = x->shape[d];
                mapped have = map_size(m, v);
                if (!have.is_name && !stays(m, v) && m->n < MAX_NAMED) m->value[m->n++] = v;
            }
        }
    }
}

/* Which size of a reshape is better inferred: a product or a part of named sizes, which has no name itself. Else it
 * would be a number, and every size another plan. -1: none. */
static int to_infer(const size_map *m, const lazy_slot *x, const op_attr *shape) {
    int found = -1;
    if (x->op != IR_OP_RESHAPE || m->is_baked) return -1;
    for (uint32_t i = 0; i < shape->n; i++) {
        int64_t v = lazy_list_at(shape, i);
        if (v <= 0) return -1;
        if (!stays(m, v) && !map_size(m, v).is_name && (found < 0 || v > lazy_list_at(shape, (uint32_t)found)))
            found = (int)i;
    }
    return found;
}

static mapped map_listed(const size_map *m, const op_attr *x, uint32_t i, int inferred) {
    return (int)i == inferred ? (mapped){-1, false} : map_size(m, lazy_list_at(x, i));
}

/* ---- the key ---- */

static bool put(lazy_state *s, const void *p, size_t bytes) {
    if (s->key_bytes + bytes > s->cap_key) {
        size_t cap = s->cap_key ? s->cap_key * 2 : 1024;
        while (cap < s->key_bytes + bytes) cap *= 2;
        unsigned char *key = fu_realloc(s->key, cap);
        if (!key) return false;
        s->key = key;
        s->cap_key = cap;
    }
    memcpy(s->key + s->key_bytes, p, bytes);
    s->key_bytes += bytes;
    return true;
}

static bool put_size(lazy_state *s, mapped x) {
    unsigned char bytes[9] = {x.is_name};
    memcpy(bytes + 1, &x.v, sizeof x.v);
    return put(s, bytes, sizeof bytes);
}

static bool put_leaf(lazy_state *s, const size_map *m, const lazy_slot *x) {
    bool good = put(s, (unsigned char[]){'L', x->dtype, x->rank}, 3);
    for (int d = 0; d < x->rank; d++) good = good && put_size(s, map_size(m, x->shape[d]));
    return good;
}

static bool put_op(lazy_state *s, const size_map *m, const lazy_slot *x) {
    const ir_op_info *info = &ir_ops[x->op];
    unsigned ones = 0; /* dims of 1 broadcast, also where what makes them 1 is no part of the key */
    for (int d = 0; d < x->rank; d++) ones |= (unsigned)(x->shape[d] == 1) << d;
    const unsigned char head[8] = {
        'O', x->op, x->to, x->result, (unsigned char)x->n_in, x->attr != NULL, lazy_has_hints(x), (unsigned char)ones};
    bool good = put(s, head, sizeof head);
    for (uint32_t k = 0; good && k < x->n_in; k++) {
        uint32_t in = x->in[k].slot ? lazy_at(s, x->in[k].slot)->index : UINT32_MAX - x->in[k].dtype;
        good = put(s, &in, sizeof in);
    }
    if (good && lazy_has_hints(x)) {
        good = put(s, (unsigned char[]){'H', x->is_barrier}, 2) && put(s, &x->n_wants, sizeof x->n_wants);
        for (uint32_t i = 0; good && i < x->n_wants; i++) {
            uint32_t at = lazy_want_at(s, &x->wants[i]);
            good = put(s, &at, sizeof at);
        }
    }
    if (!x->attr) return good;
    op_attr attr[IR_MAX_ATTRS];
    lazy_unpack_attrs(x->op, x->attr, attr);
    const unsigned char *at = x->attr;
    for (unsigned i = 0; good && i < info->n_attrs; i++) {
        size_t bytes = LAZY_ATTR_HEAD + attr[i].n * sizeof *attr[i].list;
        bool is_sizes = info->attrs[i].type == IR_ATTR_SIZES;
        good = put(s, at, is_sizes ? LAZY_ATTR_HEAD : bytes);
        int inferred = is_sizes ? to_infer(m, x, &attr[i]) : -1;
        for (uint32_t k = 0; is_sizes && good && k < attr[i].n; k++)
            good = put_size(s, map_listed(m, &attr[i], k, inferred));
        at += bytes;
    }
    return good;
}

int lazy_leaf_of(const lazy_state *s, const lazy_storage *m) {
    for (uint32_t r = m->readers; r; r = lazy_at(s, r)->next_reader)
        if (lazy_at(s, r)->mark == s->mark) return (int)lazy_at(s, r)->index;
    return -1;
}

static fusor_status make_key(lazy_state *s, fu_error *e, const size_map *m, uint32_t n, const lazy_result *results) {
    bool good = true;
    s->key_bytes = 0;
    good = put(s, &m->is_baked, 1);
    for (uint32_t i = 0; good && i < s->n_order; i++) {
        const lazy_slot *x = lazy_at(s, s->order[i]);
        good = x->kind == SLOT_LEAF ? put_leaf(s, m, x) : put_op(s, m, x);
    }
    for (uint32_t r = 0; good && r < n; r++) {
        int32_t pair[2] = {(int32_t)lazy_at(s, results[r].slot)->index,
                           results[r].over ? lazy_leaf_of(s, results[r].over) : -1};
        good = put(s, "R", 1) && put(s, pair, sizeof pair);
    }
    return good ? FUSOR_OK : lazy_no_memory(e);
}

/* ---- the graph ---- */

typedef struct building {
    lazy_state *s;
    const size_map *map;
    ir_graph *g;
    ir_id *id; /* by place in the order */
    int *param;
} building;

static ir_size graph_size(building *b, mapped x) {
    char name[16];
    if (!x.is_name) return ir_size_const(b->g->sizes, x.v);
    snprintf(name, sizeof name, "N%d", (int)x.v);
    return ir_size_sym(b->g->sizes, name);
}

static ir_id add_param(building *b, char kind, const lazy_slot *x, ir_dtype dtype) {
    ir_size dim[IR_MAX_RANK];
    for (int d = 0; x && d < x->rank; d++) dim[d] = graph_size(b, map_size(b->map, x->shape[d]));
    return ir_add_param(b->g, fu_format(b->g->arena, "%c%u", kind, b->g->params.n), dtype, x ? x->rank : 0, dim,
                        (fu_loc){0, 0});
}

/* false: named sizes make another shape of it than the numbers did. */
static bool same_shape(const building *b, const lazy_slot *x, ir_id id) {
    const ir_node *n = ir_at(b->g, id);
    if (n->rank != x->rank || n->dtype != x->dtype) return false;
    for (int d = 0; d < x->rank; d++)
        if (ir_size_is(b->g->sizes, n->dim[d], 1) != (x->shape[d] == 1)) return false;
    return true;
}

static bool add_op(building *b, const lazy_slot *x) {
    ir_graph *g = b->g;
    const ir_op_info *info = &ir_ops[x->op];
    ir_operand *in = FU_NEW_N(g->arena, ir_operand, x->n_in + 1);
    ir_attr attr[IR_MAX_ATTRS] = {{0}};
    op_attr plain[IR_MAX_ATTRS] = {{0}};
    for (uint32_t k = 0; k < x->n_in; k++)
        in[k] = ir_use(x->in[k].slot ? b->id[lazy_at(b->s, x->in[k].slot)->index]
                                     : add_param(b, 's', NULL, x->in[k].dtype));
    if (x->attr) lazy_unpack_attrs(x->op, x->attr, plain);
    for (unsigned i = 0; i < info->n_attrs; i++) {
        bool is_sizes = info->attrs[i].type == IR_ATTR_SIZES;
        int inferred = is_sizes ? to_infer(b->map, x, &plain[i]) : -1;
        attr[i] = (ir_attr){
            .is_set = plain[i].is_set, .number = plain[i].number, .integer = plain[i].integer, .n = plain[i].n};
        attr[i].list = FU_NEW_N(g->arena, ir_size, attr[i].n);
        for (uint32_t k = 0; k < attr[i].n; k++)
            attr[i].list[k] = is_sizes ? graph_size(b, map_listed(b->map, &plain[i], k, inferred))
                                       : ir_size_const(g->sizes, lazy_list_at(&plain[i], k));
    }
    const ir_attr *given = x->attr ? attr : NULL;
    ir_id id = info->n_results == 1 ? ir_add(g, x->op, (int)x->n_in, in, given, x->to, (fu_loc){0, 0})
                                    : ir_add_result(g, x->op, x->result, (int)x->n_in, in, given, (fu_loc){0, 0});
    b->id[x->index] = id;
    if (id && x->text && !ir_at(g, id)->meta_name) ir_at(g, id)->meta_name = fu_strdup(g->arena, x->text);
    return id && same_shape(b, x, id);
}

/* false: see same_shape, or an error in e. */
static bool build(building *b, uint32_t n, const lazy_result *results) {
    lazy_state *s = b->s;
    ir_graph *g = b->g;
    b->id = FU_NEW_N(g->arena, ir_id, s->n_order);
    b->param = FU_NEW_N(g->arena, int, s->n_order);
    for (uint32_t i = 0; i < s->n_order; i++) {
        const lazy_slot *x = lazy_at(s, s->order[i]);
        b->param[i] = (int)g->params.n;
        if (x->kind == SLOT_OP ? !add_op(b, x) : !(b->id[i] = add_param(b, 'p', x, x->dtype))) return false;
    }
    for (uint32_t i = 0; i < s->n_order; i++) {
        const lazy_slot *x = lazy_at(s, s->order[i]);
        if (x->kind == SLOT_OP && lazy_has_hints(x) && lazy_add_hints(s, g, x, b->id) != FUSOR_OK) return false;
    }
    for (uint32_t r = 0; r < n; r++) {
        int leaf = results[r].over ? lazy_leaf_of(s, results[r].over) : -1;
        ir_result out = {.name = fu_format(g->arena, "r%u", r),
                         .node = b->id[lazy_at(s, results[r].slot)->index],
                         .is_declared = true};
        out.alias = leaf < 0 ? -1 : b->param[leaf];
        if (out.alias >= 0) {
            const ir_node *from = ir_at(g, out.node), *to = ir_at(g, g->params.at[out.alias].node);
            for (int d = 0; d < to->rank; d++)
                ir_add_check(
                    g, (ir_check){.a = from->dim[d], .b = to->dim[d], .kind = IR_CHECK_EQUAL, .what = "assignment"});
        }
        fu_push(g->arena, &g->results, out);
    }
    return true;
}

static fusor_status compile(lazy_state *s, fu_error *e, const size_map *map, uint32_t n, const lazy_result *results,
                            rt_exec **out, fusor_executable **exe_out) {
    static const fu_source source = {"lazy", NULL, 0};
    FU_CALL_ARENA(arena, return lazy_no_memory(e));
    ir_module *module = FU_NEW(&arena, ir_module);
    module->arena = &arena;
    module->source = source;
    building b = {.s = s, .map = map, .g = ir_graph_new(&arena, e, &source, "lazy")};
    fusor_executable *exe = NULL;
    fusor_status status;
    if (build(&b, n, results)) {
        fu_push(&arena, &module->functions, b.g);
        compile_request r = {.ctx = s->ctx, .name = "lazy", .module = module, .flags = FUSOR_KEEP_SOURCES};
        status = compile_executable(e, &r, &exe);
    } else if (map->is_baked) {
        if (b.g->params.n == UINT16_MAX) { /* the text of ir_add_param is of a function */
            fu_error_clear(e);
            FU_FAIL(e, FUSOR_ERROR_SHAPE,
                    "lazy: one evaluation takes at most %d numbers and tensors; fusor_eval on the way makes it several",
                    UINT16_MAX);
        }
        status = e->status != FUSOR_OK
                     ? e->status
                     : FU_FAIL(e, FUSOR_ERROR_INTERNAL, "lazy: the graph has another shape than its operators");
    } else {
        fu_error_clear(e);
        status = FUSOR_OK; /* *out stays NULL */
    }
    fu_arena_free(&arena);
    if (!exe) return status;
    *out = rt_exec_keep(exe->exec); /* the plan is kept by the context, so it must not hold it */
    if (exe->choice) {
        *exe_out = exe;
        fusor_context_free(s->ctx); /* its reference; ours is not the last one */
    } else fusor_executable_free(exe);
    s->plans_made++;
    return FUSOR_OK;
}

/* ---- kept plans ---- */

static void free_plan(lazy_plan *p) {
    if (p->exec) rt_exec_release(p->exec);
    executable_drop(p->exe);
    fu_free(p->key);
    fu_free(p);
}

static void drop_oldest(lazy_state *s) {
    lazy_plan **oldest = NULL;
    for (int i = 0; i < LAZY_PLANS; i++)
        for (lazy_plan **p = &s->plans[i]; *p; p = &(*p)->next)
            if (!oldest || (*p)->used < (*oldest)->used) oldest = p;
    if (!oldest) return;
    lazy_plan *dead = *oldest;
    *oldest = dead->next;
    free_plan(dead);
    s->n_plans--;
}

static lazy_plan *find_plan(lazy_state *s, uint64_t hash) {
    for (lazy_plan *p = s->plans[hash % LAZY_PLANS]; p; p = p->next) {
        if (p->hash != hash || p->bytes != s->key_bytes || memcmp(p->key, s->key, s->key_bytes) != 0) continue;
        p->used = ++s->plan_clock;
        return p;
    }
    return NULL;
}

/* May an index turn out to be out of range when other steps have run? */
static bool may_refuse(const ir_plan *p) {
    for (uint32_t i = 0; i < p->steps.n; i++)
        if (p->steps.at[i].kind == IR_STEP_CHECK || p->steps.at[i].kind == IR_STEP_REFERENCE) return true;
    return false;
}

static fusor_status new_plan(lazy_state *s, fu_error *e, uint64_t hash, rt_exec *exec, fusor_executable *exe,
                             lazy_plan **out) {
    while (s->n_plans >= LAZY_PLANS) drop_oldest(s);
    lazy_plan *p = fu_calloc(1, sizeof *p);
    unsigned char *key = fu_malloc(s->key_bytes + 1);
    if (!p || !key) {
        fu_free(p);
        fu_free(key);
        if (exec) rt_exec_release(exec);
        executable_drop(exe);
        return lazy_no_memory(e);
    }
    memcpy(key, s->key, s->key_bytes);
    *p = (lazy_plan){
        .hash = hash, .used = ++s->plan_clock, .bytes = (uint32_t)s->key_bytes, .key = key, .exec = exec, .exe = exe};
    p->may_refuse = exec && may_refuse(rt_exec_plan(exec));
    p->next = s->plans[hash % LAZY_PLANS];
    s->plans[hash % LAZY_PLANS] = p;
    s->n_plans++;
    *out = p;
    return FUSOR_OK;
}

fusor_status lazy_plan_get(lazy_state *s, fu_error *e, uint32_t n, const lazy_result *results, lazy_plan **out) {
    for (int baked = 0; baked < 2; baked++) {
        size_map map;
        rt_exec *exec = NULL;
        fusor_executable *exe = NULL;
        name_sizes(s, baked != 0, &map);
        FU_TRY(make_key(s, e, &map, n, results));
        if (s->key_bytes > UINT32_MAX) return lazy_no_memory(e);
        uint64_t hash = fu_hash(s->key, s->key_bytes, 0);
        lazy_plan *p = find_plan(s, hash);
        if (!p) {
            FU_TRY(compile(s, e, &map, n, results, &exec, &exe));
            FU_TRY(new_plan(s, e, hash, exec, exe, &p));
        }
        if (p->exec) {
            *out = p;
            return FUSOR_OK;
        }
    }
    return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "lazy: no plan");
}

void lazy_plans_free(lazy_state *s) {
    while (s->n_plans) drop_oldest(s);
}
