/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* verify.c: every invariant of graph.h. Code generation may assume them: what it would crash on is refused here, with
 * the pass that broke it. Types are compared with what infer.c says of a copy of the node. */
#include "base/small.h"
#include "ir/graph.h"
#include "ir/lex.h"
#include <string.h>

typedef struct verifier {
    fu_arena *a; /* scratch */
    const ir_graph *g;
    ir_graph *shadow; /* g with sizes, checks and errors of its own, for ir_infer */
    fu_error *e;
    const char *pass;
} verifier;

#define FAIL(v, loc, ...) fail((v), (loc), __LINE__, fu_format((v)->a, __VA_ARGS__))
static fusor_status fail(verifier *v, fu_loc loc, int line, const char *message) {
    return fu_fail_at(v->e, FUSOR_ERROR_INTERNAL, v->g->source, loc, __FILE__, line, "@%s%s%s: %s",
                      v->g->name ? v->g->name : "?", v->pass ? " after pass " : "", v->pass ? v->pass : "", message);
}

static const char *describe(verifier *v, ir_id id) {
    const ir_node *n = ir_at(v->g, id);
    const char *op = n->op > IR_OP_NONE && n->op < IR_OP_COUNT ? ir_ops[n->op].name : "?";
    return n->name ? fu_format(v->a, "node %u (%%%s = %s)", id, n->name, op) : fu_format(v->a, "node %u (%s)", id, op);
}

static bool is_dtype(int64_t t) { return t > 0 && t < IR_DTYPE_COUNT; }

static const char *type_text(verifier *v, const ir_node *n) {
    fu_str s;
    fu_str_init(&s, v->a);
    ir_type_print(&s, v->shadow, n);
    return s.at;
}

static fusor_status verify_operands(verifier *v, ir_id id) {
    const ir_node *n = ir_at(v->g, id);
    const ir_op_info *info = &ir_ops[n->op];
    if (info->kind != IR_KIND_CORE && !ir_op_takes(n->op, n->n_in))
        return FAIL(v, n->loc, "%s has %u operands", describe(v, id), n->n_in);
    if (n->n_in && !n->in) return FAIL(v, n->loc, "%s has no operand array", describe(v, id));
    for (unsigned i = 0; i < n->n_in; i++) {
        if (n->in[i] == 0 || n->in[i] >= id)
            return FAIL(v, n->loc, "%s: operand %u is node %u, which does not come before it", describe(v, id), i,
                        n->in[i]);
        if (ir_at(v->g, n->in[i])->op == IR_OP_CALL && n->op != IR_OP_RESULT)
            return FAIL(v, n->loc, "%s: operand %u is a call, not one of its results", describe(v, id), i);
    }
    if (n->stretch)
        for (unsigned i = 0; i < n->n_in; i++)
            if (n->stretch[i] >> n->rank)
                return FAIL(v, n->loc, "%s: stretch mask %u is 0x%x at rank %u", describe(v, id), i, n->stretch[i],
                            n->rank);
    return FUSOR_OK;
}

static fusor_status verify_attrs(verifier *v, ir_id id) {
    const ir_node *n = ir_at(v->g, id);
    const ir_op_info *info = &ir_ops[n->op];
    if (info->n_attrs && !n->attr) return FAIL(v, n->loc, "%s has no attributes", describe(v, id));
    for (unsigned i = 0; i < info->n_attrs; i++) {
        const ir_attr *x = &n->attr[i];
        const ir_attr_info *d = &info->attrs[i];
        if (d->is_required && !x->is_set && d->type != IR_ATTR_SCALAR)
            return FAIL(v, n->loc, "%s lacks attribute %s", describe(v, id), d->name);
        if (x->n && !x->list) return FAIL(v, n->loc, "%s: attribute %s has no list", describe(v, id), d->name);
        if (d->type == IR_ATTR_DTYPE && x->is_set && !is_dtype(x->integer))
            return FAIL(v, n->loc, "%s: attribute %s is type %lld", describe(v, id), d->name, (long long)x->integer);
        if (d->type == IR_ATTR_BOOL && (x->integer < 0 || x->integer > 1))
            return FAIL(v, n->loc, "%s: attribute %s is %lld", describe(v, id), d->name, (long long)x->integer);
        if (d->type == IR_ATTR_ENUM) {
            int64_t words = 1;
            for (const char *p = d->words; p && *p; p++) words += *p == '|';
            if (x->integer < 0 || x->integer >= words)
                return FAIL(v, n->loc, "%s: attribute %s is word %lld of %s", describe(v, id), d->name,
                            (long long)x->integer, d->words);
        }
        for (uint32_t k = 0; (d->type == IR_ATTR_AXES || d->type == IR_ATTR_INTS) && k < x->n; k++)
            if (!ir_size_is_const(v->shadow->sizes, x->list[k], NULL))
                return FAIL(v, n->loc, "%s: attribute %s has an entry that is no constant", describe(v, id), d->name);
    }
    if (info->n_results != 1 && info->kind != IR_KIND_CORE && n->index >= ir_count_results(n->op, n->attr))
        return FAIL(v, n->loc, "%s is result %u of %u", describe(v, id), n->index, ir_count_results(n->op, n->attr));
    return FUSOR_OK;
}

/* Parameters, literals, calls: what infer.c takes as given. */
static fusor_status verify_core(verifier *v, ir_id id) {
    const ir_graph *g = v->g;
    const ir_node *n = ir_at(g, id);
    if (n->op == IR_OP_PARAM && (n->index >= g->params.n || g->params.at[n->index].node != id))
        return FAIL(v, n->loc, "%s is not parameter %u", describe(v, id), n->index);
    if (n->op == IR_OP_CALL && !n->callee) return FAIL(v, n->loc, "%s calls nothing", describe(v, id));
    if (n->op == IR_OP_RESULT && (n->n_in != 1 || ir_at(g, n->in[0])->op != IR_OP_CALL))
        return FAIL(v, n->loc, "%s is no result of a call", describe(v, id));
    if (n->op == IR_OP_LITERAL) {
        unsigned width = ir_dtypes[n->dtype].bytes * 8u;
        if (n->rank) return FAIL(v, n->loc, "%s has rank %u", describe(v, id), n->rank);
        if ((width < 64 && n->bits >> width) || (ir_is_bool(n->dtype) && n->bits > 1))
            return FAIL(v, n->loc, "%s: bits 0x%llx do not fit %s", describe(v, id), (unsigned long long)n->bits,
                        ir_dtypes[n->dtype].name);
    }
    return FUSOR_OK;
}

static fusor_status verify_type(verifier *v, ir_id id) {
    const ir_node *n = ir_at(v->g, id);
    ir_node copy = *n;
    copy.stretch = NULL;
    if (n->attr) {
        /* infer.c puts lists in order in place. */
        copy.attr = fu_dup(v->a, n->attr, ir_ops[n->op].n_attrs * sizeof *n->attr);
        for (unsigned i = 0; i < ir_ops[n->op].n_attrs; i++)
            if (n->attr[i].n) copy.attr[i].list = fu_dup(v->a, n->attr[i].list, n->attr[i].n * sizeof *n->attr[i].list);
    }
    v->shadow->checks.n = 0;
    if (ir_infer(v->shadow, &copy, n->dtype) != FUSOR_OK)
        return FAIL(v, n->loc, "%s is not well formed: %s", describe(v, id), v->shadow->error->text);
    bool same = copy.dtype == n->dtype && copy.rank == n->rank;
    for (unsigned d = 0; same && d < n->rank; d++)
        same = copy.dim[d] == n->dim[d] || !ir_size_never_equal(v->shadow->sizes, copy.dim[d], n->dim[d]);
    if (!same)
        return FAIL(v, n->loc, "%s has type %s but its operands give %s", describe(v, id), type_text(v, n),
                    type_text(v, &copy));
    return FUSOR_OK;
}

static fusor_status verify_node(verifier *v, ir_id id) {
    const ir_node *n = ir_at(v->g, id);
    if (n->op <= IR_OP_NONE || n->op >= IR_OP_COUNT) return FAIL(v, n->loc, "node %u has operator %d", id, (int)n->op);
    if (n->rank > IR_MAX_RANK) return FAIL(v, n->loc, "%s has rank %u", describe(v, id), n->rank);
    if (n->op != IR_OP_CALL && !is_dtype(n->dtype)) return FAIL(v, n->loc, "%s has type %u", describe(v, id), n->dtype);
    FU_TRY(verify_operands(v, id));
    FU_TRY(verify_attrs(v, id));
    for (unsigned d = 0; d < n->rank; d++) {
        int64_t size;
        if (ir_size_is_const(v->shadow->sizes, n->dim[d], &size) && size < 0)
            return FAIL(v, n->loc, "%s: dim %u is %lld", describe(v, id), d, (long long)size);
    }
    if (ir_ops[n->op].kind == IR_KIND_CORE) return verify_core(v, id);
    return verify_type(v, id);
}

static fusor_status verify_name(verifier *v, fu_map *names, const char *const *texts, uint32_t i, fu_loc loc,
                                const char *what) {
    const char *name = texts[i];
    if (!name) return FAIL(v, loc, "%s %u has no name", what, i);
    uint64_t h = fu_hash(name, strlen(name), 0);
    for (uint32_t k = fu_map_find(names, h); k != UINT32_MAX; k = fu_map_next(names, h, k))
        if (strcmp(texts[names->value[k]], name) == 0)
            return FAIL(v, loc, "%ss %u and %u are both %%%s", what, names->value[k], i, name);
    fu_map_add(names, h, i);
    return FUSOR_OK;
}

static fusor_status verify_params(verifier *v) {
    const ir_graph *g = v->g;
    fu_map names;
    fu_map_init(&names, v->a);
    const char **texts = FU_NEW_N(v->a, const char *, g->params.n);
    for (uint32_t i = 0; i < g->params.n; i++) {
        const ir_param *p = &g->params.at[i];
        texts[i] = p->name;
        FU_TRY(verify_name(v, &names, texts, i, p->loc, "parameter"));
        if (p->node == 0 || p->node >= g->nodes.n || ir_at(g, p->node)->op != IR_OP_PARAM ||
            ir_at(g, p->node)->index != i)
            return FAIL(v, p->loc, "parameter %u (%%%s) is node %u, which is another thing", i, p->name, p->node);
        if (p->path && p->has_value) return FAIL(v, p->loc, "parameter %%%s has two sources", p->name);
        if (!p->has_value) continue;
        int64_t n = 1;
        for (unsigned d = 0; d < p->value_rank && d < IR_MAX_RANK; d++) n *= p->value_dim[d];
        if (p->value_rank > IR_MAX_RANK || (n > 0 && !p->value))
            return FAIL(v, p->loc, "parameter %%%s has a broken source", p->name);
    }
    return FUSOR_OK;
}

static fusor_status verify_results(verifier *v) {
    const ir_graph *g = v->g;
    fu_map names;
    fu_map_init(&names, v->a);
    const char **texts = FU_NEW_N(v->a, const char *, g->results.n);
    bool *taken = FU_NEW_N(v->a, bool, g->params.n);
    for (uint32_t i = 0; i < g->results.n; i++) {
        const ir_result *r = &g->results.at[i];
        texts[i] = r->name;
        FU_TRY(verify_name(v, &names, texts, i, r->loc, "result"));
        if (r->node == 0 || r->node >= g->nodes.n || ir_at(g, r->node)->op == IR_OP_CALL)
            return FAIL(v, r->loc, "result %u (%%%s) is node %u, which is no value", i, r->name, r->node);
        if (r->alias == -1) continue;
        if (r->alias < 0 || (uint32_t)r->alias >= g->params.n)
            return FAIL(v, r->loc, "result %%%s is over parameter %d, which does not exist", r->name, r->alias);
        if (taken[r->alias])
            return FAIL(v, r->loc, "result %%%s is over a parameter that another result is over", r->name);
        taken[r->alias] = true;
        const ir_node *n = ir_at(g, r->node), *p = ir_at(g, g->params.at[r->alias].node);
        bool same = n->dtype == p->dtype && n->rank == p->rank;
        for (unsigned d = 0; same && d < n->rank; d++)
            same = !ir_size_never_equal(v->shadow->sizes, n->dim[d], p->dim[d]);
        if (!same)
            return FAIL(v, r->loc, "result %%%s is %s but over %%%s, which is %s", r->name, type_text(v, n),
                        g->params.at[r->alias].name, type_text(v, p));
    }
    return FUSOR_OK;
}

static fusor_status verify(verifier *v) {
    const ir_graph *g = v->g;
    if (g->nodes.n == 0 || g->nodes.at[0].op != IR_OP_NONE) return FAIL(v, g->loc, "node 0 is in use");
    FU_TRY(verify_params(v));
    for (ir_id id = 1; id < g->nodes.n; id++) FU_TRY(verify_node(v, id));
    FU_TRY(verify_results(v));
    for (uint32_t i = 0; i < g->checks.n; i++) {
        const ir_check *c = &g->checks.at[i];
        if (!c->what) return FAIL(v, c->loc, "check %u says nothing", i);
        if (c->kind < IR_CHECK_EQUAL || c->kind > IR_CHECK_NOT_ZERO)
            return FAIL(v, c->loc, "check %u has kind %d", i, (int)c->kind);
    }
    return FUSOR_OK;
}

fusor_status ir_verify(const ir_graph *g, fu_error *e, const char *after_pass) {
    /* The graph is const, and infer.c makes sizes and checks: they go to a scratch arena. */
    FU_CALL_ARENA(arena,
                  return FU_FAIL(e, FUSOR_ERROR_MEMORY, "out of memory while verifying @%s", g->name ? g->name : "?"));
    ir_graph *shadow = FU_NEW(&arena, ir_graph);
    *shadow = *g;
    shadow->arena = &arena;
    shadow->sizes = ir_sizes_copy(&arena, g->sizes);
    shadow->error = FU_NEW(&arena, fu_error);
    shadow->source = NULL;
    memset(&shadow->checks, 0, sizeof shadow->checks);
    verifier v = {&arena, g, shadow, e, after_pass};
    fusor_status status = verify(&v);
    fu_arena_free(&arena);
    return status;
}
