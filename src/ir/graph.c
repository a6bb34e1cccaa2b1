/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* graph.c: making nodes (hash-consing, weak literals, roles), copying graphs, and binding sizes at a call. What a
 * node's type and shape are is decided in infer.c. */
#include "base/small.h"
#include "ir/graph.h"
#include "base/bits.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

ir_graph *ir_graph_new(fu_arena *a, fu_error *e, const fu_source *src, const char *name) {
    ir_graph *g = FU_NEW(a, ir_graph);
    g->arena = a;
    g->error = e;
    g->source = src;
    g->name = name;
    g->sizes = ir_sizes_new(a);
    fu_map_init(&g->unique, a);
    fu_push(a, &g->nodes, (ir_node){.op = IR_OP_NONE});
    return g;
}

/* Text that g's nodes point to, in arena a: shared where it is g's own arena. */
static const char *keep(fu_arena *a, const ir_graph *g, const char *text) {
    return text && g->arena != a ? fu_strdup(a, text) : text;
}

ir_graph *ir_graph_like(fu_arena *a, const ir_graph *from) {
    ir_graph *g = ir_graph_new(a, from->error, from->source, keep(a, from, from->name));
    g->loc = from->loc;
    g->packs_const = from->packs_const;
    g->has_fma = from->has_fma;
    /* The table may be shared as long as both live in one arena: it only grows. */
    g->sizes = from->arena == a ? from->sizes : ir_sizes_copy(a, from->sizes);
    for (uint32_t i = 0; i < from->checks.n; i++) {
        ir_check c = from->checks.at[i];
        c.what = keep(a, from, c.what);
        c.meta_name = keep(a, from, c.meta_name);
        c.meta_loc = keep(a, from, c.meta_loc);
        fu_push(a, &g->checks, c);
    }
    g->as_written = from->as_written && from->arena != a ? ir_graph_copy_live(a, from->as_written) : from->as_written;
    return g;
}

/* ---- nodes ---- */

static bool same_attr(const ir_attr_info *info, const ir_attr *x, const ir_attr *y) {
    const bool is_alike = x->is_set == y->is_set || !isnan(info->default_value); /* NaN: a default that none writes */
    switch (info->type) {
    case IR_ATTR_FLOAT:
    case IR_ATTR_NUMBER: return is_alike && memcmp(&x->number, &y->number, sizeof x->number) == 0;
    case IR_ATTR_BOOL:
    case IR_ATTR_INT:
    case IR_ATTR_SCALAR: /* an operand: compared there */
    case IR_ATTR_ENUM: return x->integer == y->integer;
    case IR_ATTR_DTYPE: return x->is_set == y->is_set && x->integer == y->integer;
    case IR_ATTR_AXIS: return is_alike && x->integer == y->integer;
    case IR_ATTR_AXES:
    case IR_ATTR_INTS:
    case IR_ATTR_SIZES:
    case IR_ATTR_INDICES:
    case IR_ATTR_TEXT:
    case IR_ATTR_SIZE: break;
    }
    return x->is_set == y->is_set && x->n == y->n &&
           (x->n == 0 || memcmp(x->list, y->list, x->n * sizeof *x->list) == 0);
}

static uint64_t hash_node(const ir_node *n) {
    const struct {
        uint32_t op, dtype, rank, n_in, index, group;
        ir_bits bits;
    } head = {n->op, n->dtype, n->rank, n->n_in, n->index, n->group, n->bits};
    uint64_t h = fu_hash(&head, sizeof head, 1);
    h = fu_hash(n->dim, n->rank * sizeof *n->dim, h);
    if (n->n_in) h = fu_hash(n->in, n->n_in * sizeof *n->in, h);
    for (unsigned i = 0; n->attr && i < ir_ops[n->op].n_attrs; i++) {
        const ir_attr *x = &n->attr[i];
        if (ir_ops[n->op].attrs[i].type != IR_ATTR_TEXT) h = fu_hash(&x->integer, sizeof x->integer, h);
        h = fu_hash(&x->number, sizeof x->number, h);
        if (x->n) h = fu_hash(x->list, x->n * sizeof *x->list, h);
    }
    return h;
}

static unsigned mask_of(const ir_node *n, unsigned i) { return n->stretch ? n->stretch[i] : 0; }

bool ir_same_attrs(const ir_node *x, const ir_node *y) {
    for (unsigned i = 0; x->attr && i < ir_ops[x->op].n_attrs; i++) {
        if (!same_attr(&ir_ops[x->op].attrs[i], &x->attr[i], &y->attr[i])) return false;
    }
    return true;
}

static bool same_node(const ir_node *x, const ir_node *y) {
    if (x->op != y->op || x->dtype != y->dtype || x->rank != y->rank || x->n_in != y->n_in || x->index != y->index ||
        x->group != y->group || x->bits != y->bits || (x->callee == NULL) != (y->callee == NULL) ||
        (x->attr == NULL) != (y->attr == NULL) || (x->callee && strcmp(x->callee, y->callee) != 0) ||
        memcmp(x->dim, y->dim, x->rank * sizeof *x->dim) != 0)
        return false;
    for (unsigned i = 0; i < x->n_in; i++) {
        if (x->in[i] != y->in[i] || mask_of(x, i) != mask_of(y, i)) return false;
    }
    return ir_same_attrs(x, y);
}

ir_id ir_add_raw(ir_graph *g, const ir_node *node) {
    ir_node n = *node;
    /* What a user named or can point at stays itself: names and places come back in messages, profiles and prints. */
    const bool is_unique =
        n.op == IR_OP_PARAM || n.op == IR_OP_CALL || n.name || n.meta_name || n.meta_loc || n.loc.line;
    const uint64_t h = is_unique ? 0 : hash_node(&n);
    if (!is_unique) {
        for (uint32_t i = fu_map_find(&g->unique, h); i != UINT32_MAX; i = fu_map_next(&g->unique, h, i)) {
            if (same_node(ir_at(g, g->unique.value[i]), &n)) return g->unique.value[i];
        }
    }
    n.in = n.n_in ? fu_dup(g->arena, n.in, n.n_in * sizeof *n.in) : NULL;
    if (n.stretch) {
        bool any = false;
        for (unsigned i = 0; i < n.n_in; i++) any |= n.stretch[i] != 0;
        n.stretch = any ? fu_dup(g->arena, n.stretch, n.n_in) : NULL;
    }
    if (n.attr) {
        n.attr = fu_dup(g->arena, n.attr, ir_ops[n.op].n_attrs * sizeof *n.attr);
        for (unsigned i = 0; i < ir_ops[n.op].n_attrs; i++) {
            ir_attr *x = &n.attr[i];
            x->list = x->n ? fu_dup(g->arena, x->list, x->n * sizeof *x->list) : NULL;
        }
    }
    const ir_id id = g->nodes.n;
    fu_push(g->arena, &g->nodes, n);
    if (!is_unique) fu_map_add(&g->unique, h, id);
    return id;
}

ir_id ir_add_param(ir_graph *g, const char *name, ir_dtype t, int rank, const ir_size *dim, fu_loc loc) {
    ir_node n = {
        .op = IR_OP_PARAM, .dtype = t, .rank = (uint8_t)rank, .index = (uint16_t)g->params.n, .name = name, .loc = loc};
    if (rank < 0 || rank > IR_MAX_RANK || g->params.n >= UINT16_MAX) {
        FU_FAIL_AT(g->error, FUSOR_ERROR_SHAPE, g->source, loc, "parameter %%%s: %s", name ? name : "?",
                   rank < 0 || rank > IR_MAX_RANK ? "the rank must be 0 to 8"
                                                  : "a function takes at most 65535 parameters");
        g->failed = true;
        return 0;
    }
    if (rank) memcpy(n.dim, dim, (size_t)rank * sizeof *dim);
    if (ir_infer(g, &n, 0) != FUSOR_OK) {
        g->failed = true;
        return 0;
    }
    const ir_id id = ir_add_raw(g, &n);
    fu_push(g->arena, &g->params, (ir_param){.name = name, .node = id, .loc = loc});
    return id;
}

ir_id ir_add_literal(ir_graph *g, ir_dtype t, ir_bits bits) {
    if (ir_is_float(t) && isnan(ir_bits_to_double(t, bits))) bits = ir_bits_from_double(t, NAN, NULL);
    return ir_add_raw(g, &(ir_node){.op = IR_OP_LITERAL, .dtype = t, .bits = bits});
}

void ir_add_check(ir_graph *g, ir_check check) {
    enum { WINDOW = 32 }; /* repeats come soon after each other; a longer search would be quadratic */
    int64_t a;
    const bool holds = check.kind == IR_CHECK_EQUAL ? check.a == check.b && !ir_size_is_huge(g->sizes, check.a)
                       : check.kind == IR_CHECK_NOT_NEGATIVE
                           ? ir_size_never_negative(g->sizes, check.a)
                           : ir_size_is(g->sizes, check.b, 0) || (ir_size_is_const(g->sizes, check.a, &a) && a != 0);
    if (holds) return;
    const uint32_t first = g->checks.n > WINDOW ? g->checks.n - WINDOW : 0;
    for (uint32_t i = first; i < g->checks.n; i++) {
        ir_check *c = &g->checks.at[i];
        const bool same_b = check.kind == IR_CHECK_NOT_NEGATIVE || c->b == check.b;
        const bool swapped = check.kind == IR_CHECK_EQUAL && c->a == check.b && c->b == check.a;
        if (c->kind == check.kind && ((c->a == check.a && same_b) || swapped)) {
            /* What an operator demands anyway need not be printed as the user's. */
            if (check.origin == IR_CHECK_INFERRED) c->origin = IR_CHECK_INFERRED;
            return;
        }
    }
    fu_push(g->arena, &g->checks, check);
}

/* ---- literals and roles ---- */

/* f where the written number lies `residue` beside it: of the two doubles around it, the one with an odd mantissa, from
 * which rounding to a narrower type gives what rounding the number itself would. */
static double odd_neighbour(double f, int residue) {
    return residue == 0 || (fu_f64_bits(f) & 1) || !isfinite(f) ? f : nextafter(f, residue > 0 ? INFINITY : -INFINITY);
}

fusor_status ir_literal_bits(ir_graph *g, const char *what, const ir_operand *x, ir_dtype t, ir_bits *out) {
    char number[40];
    const char *text = x->text;
    if (!text) {
        if (x->literal == IR_LIT_FLOAT) snprintf(number, sizeof number, "%g", x->f);
        else if (x->literal == IR_LIT_BOOL) snprintf(number, sizeof number, "%s", x->i ? "true" : "false");
        else snprintf(number, sizeof number, x->f >= 0x1p63 ? "%llu" : "%lld", (unsigned long long)x->i);
        text = number;
    }
    const char *type = ir_dtypes[t].name;
    if ((x->literal == IR_LIT_BOOL) != ir_is_bool(t)) {
        return FU_FAIL_AT(g->error, FUSOR_ERROR_TYPE, g->source, x->loc,
                          x->literal == IR_LIT_BOOL ? "%s: %s stands only beside bool, not %s; write a number"
                                                    : "%s: the number %s cannot stand beside %s; write %s",
                          what, text, type, x->loc.line ? "true or false" : "fusor_b(1) or fusor_b(0)");
    }
    bool fits = true;
    ir_bits bits;
    if (x->literal == IR_LIT_FLOAT && !ir_is_float(t) && !text[strspn(text, "-0123456789")] && fabs(x->f) >= 0x1p63) {
        fits = false; /* an integer past 64 bits */
        bits = 0;
    } else if (x->literal == IR_LIT_FLOAT) {
        if (!ir_is_float(t)) {
            return FU_FAIL_AT(g->error, FUSOR_ERROR_TYPE, g->source, x->loc,
                              "%s: the float literal %s stands beside %s; "
                              "cast the %s operand to a float type, or write an integer",
                              what, text, type, type);
        }
        bits = ir_bits_from_double(t, t == FUSOR_F64 ? x->f : odd_neighbour(x->f, x->residue), &fits);
    } else if (x->literal == IR_LIT_INT && x->f >= 0x1p63 && x->i < 0) {
        const uint64_t u = (uint64_t)x->i;
        bits = t == FUSOR_U64 ? u : ir_bits_from_double(t, t == FUSOR_F64 ? (double)u : ir_odd_double(false, u), &fits);
    } else {
        bits = ir_bits_from_int(t, x->i, &fits);
    }
    if (!fits) {
        return FU_FAIL_AT(g->error, FUSOR_ERROR_TYPE, g->source, x->loc,
                          ir_is_float(t) ? "%s: the literal %s overflows %s to infinity; write inf if that is meant"
                                         : "%s: the literal %s does not fit %s",
                          what, text, type);
    }
    *out = bits;
    return FUSOR_OK;
}

/* Copies the given attributes, with defaults for those not given; NULL after an error. */
static ir_attr *fill_attrs(ir_graph *g, ir_op op, const ir_attr *given, fu_loc loc) {
    const ir_op_info *info = &ir_ops[op];
    ir_attr *out = FU_NEW_N(g->arena, ir_attr, info->n_attrs);
    for (unsigned i = 0; i < info->n_attrs; i++) {
        const ir_attr_info *d = &info->attrs[i];
        if (given && given[i].is_set) {
            out[i] = given[i];
            /* infer.c normalizes lists in place: never the caller's. */
            out[i].list = given[i].n ? fu_dup(g->arena, given[i].list, given[i].n * sizeof *given[i].list) : NULL;
        } else if (d->is_required && d->type != IR_ATTR_SCALAR) { /* those are operands */
            FU_FAIL_AT(g->error, FUSOR_ERROR_TYPE, g->source, loc, "%s: needs the attribute %s=%s", info->name, d->name,
                       d->type == IR_ATTR_AXIS    ? "k"
                       : d->type == IR_ATTR_DTYPE ? "T, an element type"
                       : d->type == IR_ATTR_SIZE  ? "n"
                       : d->type == IR_ATTR_TEXT  ? "\"..\", a string, as its first argument"
                                                  : "[..]");
            return NULL;
        } else {
            out[i].number = isnan(d->default_value) ? 0 : d->default_value;
            out[i].integer = (int64_t)out[i].number;
        }
    }
    return out;
}

const char *ir_attr_text(const ir_graph *g, fu_arena *a, const ir_attr *x) {
    char *text = fu_dup(a, "", 1);
    if (x->n) text = memset(FU_NEW_N(a, char, x->n + 1), 0, x->n + 1);
    for (uint32_t i = 0; i < x->n; i++) {
        int64_t c = '?';
        ir_size_is_const(g->sizes, x->list[i], &c);
        text[i] = (char)c;
    }
    return text;
}

const ir_attr *ir_node_attr(const ir_node *n, const char *name) {
    const ir_op_info *info = &ir_ops[n->op];
    for (unsigned i = 0; n->attr && i < info->n_attrs; i++) {
        if (strcmp(info->attrs[i].name, name) == 0) return &n->attr[i];
    }
    return NULL;
}

/* The type of the literals of operand i's role; 0 with a message where nothing decides it. */
static ir_dtype literal_type(ir_graph *g, const ir_node *n, int n_in, const ir_operand *in, int i, ir_dtype to) {
    const ir_op_info *info = &ir_ops[n->op];
    const ir_role role = ir_operand_role(n->op, (unsigned)i);
    if (role == IR_ROLE_CONDITION) return FUSOR_BOOL;
    if (role == IR_ROLE_INDEX) return FUSOR_I64;
    if (n->op == IR_OP_DEQUANTIZE && role == IR_ROLE_MAIN)
        return FUSOR_F32; /* the scale has no other float beside it */
    if (role == IR_ROLE_SEED)
        return in[i].f >= 0x1p63 && (in[i].literal == IR_LIT_FLOAT || in[i].i < 0) ? FUSOR_U64 : FUSOR_I64;
    if (n->op == IR_OP_CAST) {
        /* The exact value is converted: the literal itself takes the widest type of its kind. */
        (void)to;
        return in[i].literal == IR_LIT_FLOAT ? FUSOR_F64 : in[i].literal == IR_LIT_BOOL ? FUSOR_BOOL : FUSOR_I64;
    }
    for (int k = 0; k < n_in; k++) {
        if (in[k].literal == IR_LIT_NONE && ir_operand_role(n->op, (unsigned)k) == role)
            return ir_at(g, in[k].node)->dtype;
    }
    const ir_attr *dtype = ir_node_attr(n, "dtype");
    if (dtype && dtype->is_set) return (ir_dtype)dtype->integer;
    FU_FAIL_AT(g->error, FUSOR_ERROR_TYPE, g->source, n->loc,
               dtype ? "%s: no operand of its role is a tensor, so nothing gives a literal a type; add dtype=T"
                     : "%s: a literal has no type here; make a tensor of it with full(value, shape=[], dtype=T)",
               info->name);
    return 0;
}

static ir_id add(ir_graph *g, ir_op op, unsigned index, int n_in, const ir_operand *in, const ir_attr *attr,
                 ir_dtype to, fu_loc loc) {
    const ir_op_info *info = &ir_ops[op];
    for (int i = 0; i < n_in; i++) {
        if (in[i].literal == IR_LIT_NONE && (in[i].node == 0 || in[i].node >= g->nodes.n)) {
            g->failed = true; /* the error that made this operand 0 has been reported */
            return 0;
        }
    }
    for (unsigned i = 0; i < info->n_attrs && n_in == info->max_in - 1; i++) {
        if (info->attrs[i].type != IR_ATTR_SCALAR || !info->attrs[i].is_required) continue;
        FU_FAIL_AT(g->error, FUSOR_ERROR_TYPE, g->source, loc,
                   "%s: needs the attribute %s=n, an integer or a scalar value", info->name, info->attrs[i].name);
        g->failed = true;
        return 0;
    }
    if (n_in > IR_MAX_OPERANDS && info->max_in == IR_ANY_NUMBER) {
        FU_FAIL_AT(g->error, FUSOR_ERROR_UNSUPPORTED, g->source, loc, "%s: takes %d operands at most, got %d",
                   info->name, IR_MAX_OPERANDS, n_in);
        g->failed = true;
        return 0;
    }
    if (!ir_op_takes(op, (unsigned)n_in)) {
        FU_FAIL_AT(g->error, FUSOR_ERROR_TYPE, g->source, loc, "%s: takes %s operand%s, got %d", info->name,
                   info->min_in == info->max_in    ? fu_format(g->arena, "%d", info->min_in)
                   : info->max_in != IR_ANY_NUMBER ? fu_format(g->arena, "%d to %d", info->min_in, info->max_in)
                                                   : fu_format(g->arena, "%d or more", info->min_in),
                   info->max_in == 1 ? "" : "s", n_in);
        g->failed = true;
        return 0;
    }
    ir_node n = {.op = op, .n_in = (uint16_t)n_in, .index = (uint16_t)index, .loc = loc};
    ir_id few_ids[8], *ids = n_in <= 8 ? few_ids : FU_NEW_N(g->arena, ir_id, n_in);
    uint8_t few_masks[8] = {0};
    n.in = ids;
    n.stretch = n_in <= 8 ? few_masks : FU_NEW_N(g->arena, uint8_t, n_in);
    if (info->n_attrs && !(n.attr = fill_attrs(g, op, attr, loc))) {
        g->failed = true;
        return 0;
    }
    if (index && index >= ir_count_results(op, n.attr)) {
        FU_FAIL_AT(g->error, FUSOR_ERROR_ARGUMENT, g->source, loc, "%s: there is no result %u; it has %u", info->name,
                   index, ir_count_results(op, n.attr));
        g->failed = true;
        return 0;
    }
    for (int i = 0; i < n_in; i++) {
        ir_bits bits;
        ids[i] = in[i].node;
        if (in[i].literal == IR_LIT_NONE) continue;
        const ir_dtype t = literal_type(g, &n, n_in, in, i, to);
        if (t == 0 || ir_literal_bits(g, info->name, &in[i], t, &bits) != FUSOR_OK) {
            g->failed = true;
            return 0;
        }
        ids[i] = ir_add_literal(g, t, bits);
    }
    if (ir_infer(g, &n, to) != FUSOR_OK) {
        g->failed = true;
        return 0;
    }
    return ir_add_raw(g, &n);
}

ir_id ir_add(ir_graph *g, ir_op op, int n_in, const ir_operand *in, const ir_attr *attr, ir_dtype to, fu_loc loc) {
    return add(g, op, 0, n_in, in, attr, to, loc);
}

ir_id ir_add_result(ir_graph *g, ir_op op, unsigned index, int n_in, const ir_operand *in, const ir_attr *attr,
                    fu_loc loc) {
    return add(g, op, index, n_in, in, attr, 0, loc);
}

uint32_t ir_count_results(ir_op op, const ir_attr *attr) {
    const ir_op_info *info = &ir_ops[op];
    if (info->n_results) return info->n_results;
    for (unsigned i = 0; attr && i < info->n_attrs; i++) {
        if (info->attrs[i].type == IR_ATTR_SIZES) return attr[i].n;
    }
    return 0;
}

/* ---- whole graphs ---- */

uint32_t *ir_use_counts(fu_arena *a, const ir_graph *g) {
    uint32_t *uses = FU_NEW_N(a, uint32_t, g->nodes.n);
    for (uint32_t i = 0; i < g->results.n; i++) uses[g->results.at[i].node]++;
    for (ir_id i = g->nodes.n; i-- > 1;) {
        const ir_node *n = ir_at(g, i);
        for (unsigned k = 0; k < n->n_in && uses[i]; k++) uses[n->in[k]]++;
    }
    return uses;
}

void ir_map_hints(ir_graph *g, const ir_graph *from, const ir_id *map) {
    for (uint32_t i = 0; i < from->hints.n; i++) {
        ir_hint h = from->hints.at[i];
        h.node = map[h.node];
        h.with = h.with ? map[h.with] : 0;
        h.name = keep(g->arena, from, h.name);
        h.with_name = keep(g->arena, from, h.with_name);
        if (h.node) fu_push(g->arena, &g->hints, h);
    }
}

bool ir_checks_parameter(const ir_graph *g, const ir_node *n) {
    if (n->op == IR_OP_CALL) return true;
    if (ir_ops[n->op].kind != IR_KIND_INDEX || n->n_in < 2) return false;
    const ir_node *x = ir_at(g, n->in[1]);
    while (ir_view_is_checked_below(g, x)) x = ir_at(g, x->in[0]);
    return x->op == IR_OP_PARAM;
}

ir_graph *ir_graph_copy_live(fu_arena *a, const ir_graph *g) {
    ir_graph *out = ir_graph_like(a, g);
    bool *live = FU_NEW_N(a, bool, g->nodes.n);
    ir_id *map = FU_NEW_N(a, ir_id, g->nodes.n);
    for (uint32_t i = 0; i < g->params.n; i++) live[g->params.at[i].node] = true;
    for (uint32_t i = 0; i < g->results.n; i++) live[g->results.at[i].node] = true;
    for (ir_id i = g->nodes.n; i-- > 1;) {
        const ir_node *n = ir_at(g, i);
        live[i] |= ir_checks_parameter(g, n);
        for (unsigned k = 0; live[i] && k < n->n_in; k++) live[n->in[k]] = true;
    }
    for (ir_id i = 1; i < g->nodes.n; i++) {
        if (!live[i]) continue;
        ir_node n = *ir_at(g, i);
        ir_id *in = FU_NEW_N(a, ir_id, n.n_in);
        for (unsigned k = 0; k < n.n_in; k++) in[k] = map[n.in[k]];
        n.in = in;
        n.name = keep(a, g, n.name);
        n.meta_name = keep(a, g, n.meta_name);
        n.meta_loc = keep(a, g, n.meta_loc);
        n.callee = keep(a, g, n.callee);
        map[i] = ir_add_raw(out, &n);
    }
    for (uint32_t i = 0; i < g->params.n; i++) {
        ir_param p = g->params.at[i];
        p.node = map[p.node];
        p.name = keep(a, g, p.name);
        p.path = keep(a, g, p.path);
        if (p.value && g->arena != a) {
            size_t count = 1;
            for (unsigned d = 0; d < p.value_rank; d++) count *= (size_t)p.value_dim[d];
            p.value = fu_dup(a, p.value, count * sizeof *p.value);
        }
        fu_push(a, &out->params, p);
    }
    for (uint32_t i = 0; i < g->results.n; i++) {
        ir_result r = g->results.at[i];
        r.node = map[r.node];
        r.name = keep(a, g, r.name);
        fu_push(a, &out->results, r);
    }
    ir_map_hints(out, g, map);
    out->failed = g->failed;
    return out;
}

const char *ir_where(const char *name, const char *loc, char text[IR_WHERE_MAX]) {
    text[0] = 0;
    if (name || loc)
        (void)snprintf(text, IR_WHERE_MAX, " (%s%.80s%s%s%s%.80s)", name ? "in \"" : "", name ? name : "",
                       name ? "\"" : "", name && loc ? ", " : "", loc ? "from " : "", loc ? loc : "");
    (void)fu_make_printable(text, false); /* a message's first line is one line */
    return text;
}

/* ---- sizes at a call ---- */

/* Text of a size in a message. An arena of its own: the graph's may not be written during a call. where: ir_where. */
static fusor_status fail_size(const ir_graph *g, fu_error *e, fu_loc loc, const char *where, const char *what,
                              ir_size a, const char *relation, const ir_size *b, int64_t va, int64_t vb) {
    FU_CALL_ARENA(arena, return FU_FAIL(e, FUSOR_ERROR_MEMORY, "out of memory"));
    fu_str text;
    fu_str_init(&text, &arena);
    ir_size_print(&text, g->sizes, a);
    if (!ir_size_is_const(g->sizes, a, NULL)) fu_str_addf(&text, " = %lld", (long long)va);
    if (b) {
        fu_str_addf(&text, "%s", relation);
        ir_size_print(&text, g->sizes, *b);
        if (!ir_size_is_const(g->sizes, *b, NULL)) fu_str_addf(&text, " = %lld", (long long)vb);
    } else {
        fu_str_add(&text, relation);
    }
    const fusor_status status = FU_FAIL_AT(e, FUSOR_ERROR_SHAPE, g->source, loc, "%s: %s%s", what, text.at, where);
    fu_arena_free(&arena);
    return status;
}

/* Evaluates a size that must be a size. */
static fusor_status eval_size(const ir_graph *g, fu_error *e, ir_size x, const int64_t *values, fu_loc loc,
                              const char *what, int64_t *out) {
    switch (ir_size_eval(g->sizes, x, values, out)) {
    case IR_SIZE_OK: return FUSOR_OK;
    case IR_SIZE_ZERO_DIVISION:
        return FU_FAIL_AT(e, FUSOR_ERROR_SHAPE, g->source, loc, "%s: a size expression divides by zero", what);
    case IR_SIZE_OVERFLOW: break;
    }
    return FU_FAIL_AT(e, FUSOR_ERROR_SHAPE, g->source, loc, "%s: a size expression overflows 64 bits", what);
}

static const char *node_label(const ir_node *n) { return n->name ? n->name : ir_ops[n->op].name; }

/* Dims of a node: none negative, and elements and bytes within 64 bits. */
static fusor_status check_node(const ir_graph *g, fu_error *e, const ir_node *n, const int64_t *values) {
    char where[IR_WHERE_MAX];
    int64_t dim[IR_MAX_RANK];
    bool is_empty = false;
    for (unsigned d = 0; d < n->rank; d++) {
        FU_TRY(eval_size(g, e, n->dim[d], values, n->loc, node_label(n), &dim[d]));
        if (dim[d] < 0)
            return fail_size(g, e, n->loc, ir_where(n->meta_name, n->meta_loc, where), node_label(n), n->dim[d],
                             ": a size must not be negative", NULL, dim[d], 0);
        is_empty |= dim[d] == 0;
    }
    int64_t bytes = ir_dtypes[n->dtype].bytes;
    for (unsigned d = 0; d < n->rank && !is_empty; d++) {
        if (__builtin_mul_overflow(bytes, dim[d], &bytes)) {
            return FU_FAIL_AT(e, FUSOR_ERROR_SHAPE, g->source, n->loc, "%s: the bytes of the tensor overflow 64 bits",
                              node_label(n));
        }
    }
    return FUSOR_OK;
}

static fusor_status check_one(const ir_graph *g, fu_error *e, const ir_check *c, const int64_t *values) {
    char text[IR_WHERE_MAX];
    const char *where = ir_where(c->meta_name, c->meta_loc, text);
    int64_t a, b = 0;
    FU_TRY(eval_size(g, e, c->a, values, c->loc, c->what, &a));
    switch (c->kind) {
    case IR_CHECK_NOT_NEGATIVE:
        if (a >= 0) return FUSOR_OK;
        return fail_size(g, e, c->loc, where, c->what, c->a, "; a size must not be negative", NULL, a, 0);
    case IR_CHECK_EQUAL:
        FU_TRY(eval_size(g, e, c->b, values, c->loc, c->what, &b));
        if (a == b) return FUSOR_OK;
        return fail_size(g, e, c->loc, where, c->what, c->a, " but ", &c->b, a, b);
    case IR_CHECK_NOT_ZERO: break;
    }
    if (a != 0) return FUSOR_OK;
    FU_TRY(eval_size(g, e, c->b, values, c->loc, c->what, &b));
    if (b == 0) return FUSOR_OK;
    return FU_FAIL_AT(e, FUSOR_ERROR_SHAPE, g->source, c->loc, "%s%s", c->what, where);
}

static const char *param_name(const ir_graph *g, uint32_t p) {
    return g->params.at[p].name ? g->params.at[p].name : "?";
}

/* The first parameter with `symbol` bare among its dims: who bound it, for messages. */
static uint32_t binder_of(const ir_graph *g, uint32_t symbol) {
    for (uint32_t p = 0; p < g->params.n; p++) {
        const ir_node *n = ir_at(g, g->params.at[p].node);
        for (unsigned d = 0; d < n->rank; d++) {
            uint32_t found;
            if (ir_size_is_symbol(g->sizes, n->dim[d], &found) && found == symbol) return p;
        }
    }
    return 0;
}

static bool has_all(const ir_graph *g, const ir_size *x, unsigned n, const int64_t *values) {
    for (unsigned i = 0; i < n; i++)
        if (!ir_size_is_known(g->sizes, x[i], values)) return false;
    return true;
}

static fusor_status check_all(const ir_graph *g, fu_error *e, const int64_t *values, bool is_whole) {
    for (uint32_t i = 0; i < g->checks.n; i++) {
        const ir_check *c = &g->checks.at[i];
        if (is_whole ||
            (has_all(g, &c->a, 1, values) && (c->kind == IR_CHECK_NOT_NEGATIVE || has_all(g, &c->b, 1, values))))
            FU_TRY(check_one(g, e, c, values));
    }
    const ir_node *last = NULL; /* neighbours mostly have one shape: checked once */
    for (ir_id i = 1; i < g->nodes.n; i++) {
        const ir_node *n = ir_at(g, i);
        if (n->rank == 0 || n->op == IR_OP_CALL ||
            (last && last->rank == n->rank && last->dtype == n->dtype &&
             memcmp(last->dim, n->dim, n->rank * sizeof *n->dim) == 0))
            continue;
        if (is_whole || has_all(g, n->dim, n->rank, values)) FU_TRY(check_node(g, e, n, values));
        last = n;
    }
    return FUSOR_OK;
}

fusor_status ir_check_sizes(const ir_graph *g, fu_error *e, const int64_t *symbol_values) {
    return check_all(g, e, symbol_values, false);
}

/* At the parameter's place, where the program is a text. */
static fusor_status fail_param(const ir_graph *g, fu_error *e, uint32_t p, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static fusor_status fail_param(const ir_graph *g, fu_error *e, uint32_t p, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const fu_loc loc = g->params.at[p].loc;
    return loc.line ? FU_FAIL_AT(e, FUSOR_ERROR_SHAPE, g->source, loc, "%s", text)
                    : FU_FAIL(e, FUSOR_ERROR_SHAPE, "%s", text);
}

fusor_status ir_bind_sizes(const ir_graph *g, fu_error *e, const int64_t *const *shape, int64_t *symbol_values) {
    const uint32_t n_symbols = ir_size_symbol_count(g->sizes);
    for (uint32_t i = 0; i < n_symbols; i++) symbol_values[i] = -1;
    for (uint32_t p = 0; p < g->params.n; p++) {
        const ir_node *n = ir_at(g, g->params.at[p].node);
        for (unsigned d = 0; d < n->rank; d++) {
            uint32_t symbol;
            if (shape[p][d] < 0) {
                return fail_param(g, e, p, "parameter %%%.64s: dim %u is %lld; a size must not be negative",
                                  param_name(g, p), d, (long long)shape[p][d]);
            }
            if (!ir_size_is_symbol(g->sizes, n->dim[d], &symbol)) continue;
            if (symbol_values[symbol] < 0) {
                symbol_values[symbol] = shape[p][d];
            } else if (symbol_values[symbol] != shape[p][d]) {
                return fail_param(g, e, p,
                                  "dim %.64s is %lld in parameter %%%.64s but %lld in parameter %%%.64s (dim %u)",
                                  ir_size_symbol_name(g->sizes, symbol), (long long)symbol_values[symbol],
                                  param_name(g, binder_of(g, symbol)), (long long)shape[p][d], param_name(g, p), d);
            }
        }
    }
    for (uint32_t p = 0; p < g->params.n; p++) {
        const ir_node *n = ir_at(g, g->params.at[p].node);
        for (unsigned d = 0; d < n->rank; d++) {
            int64_t want;
            if (ir_size_is_symbol(g->sizes, n->dim[d], NULL)) continue;
            FU_TRY(eval_size(g, e, n->dim[d], symbol_values, g->params.at[p].loc, param_name(g, p), &want));
            if (want != shape[p][d]) {
                char what[160];
                const ir_size got = n->dim[d];
                snprintf(what, sizeof what, "parameter %%%.64s: dim %u is %lld, expected", param_name(g, p), d,
                         (long long)shape[p][d]);
                return fail_size(g, e, g->params.at[p].loc, "", what, got, "", NULL, want, 0);
            }
        }
    }
    return check_all(g, e, symbol_values, true);
}
