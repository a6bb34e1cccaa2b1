/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* print.c: graphs as canonical text. Parsing it gives the same function, and printing that the same bytes; so names are
 * made unique here (inlining and passes leave clashes and gaps), and sizes that the user had checked are written where
 * they were checked. */
#include "base/small.h"
#include "ir/graph.h"
#include "ir/lex.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The results of each call, in order: index by the call, id[first[call] + k]. */
typedef struct call_results {
    uint32_t *first, *n;
    ir_id *id;
} call_results;

struct ir_printer {
    fu_str *out;
    fu_arena *a;
    const ir_graph *g;
    const char **name;                /* by node; NULL = printed inline or not at all */
    fu_vec(const char *) taken;       /* names in use */
    fu_map taken_map;                 /* hash of a name -> index in taken */
    fu_map next_map;                  /* hash of a base name -> index in next */
    fu_vec(uint32_t) next;            /* the number to try next */
    ir_size **declared;               /* by node: dims of its annotation; NULL = none */
    ir_size **result_dim;             /* by result: declared dims; NULL = the node's */
    uint32_t *first_hint, *next_hint; /* by node, by hint: 1 + a hint that is written there; NULL: the graph has none */
    bool has_unbound;                 /* some symbol is no parameter's: a call leaves out a parameter with a file */
    call_results calls;
    bool *chosen; /* by node: the statements to print; NULL: all */
};
typedef ir_printer printer;

/* ---- literals ---- */

/* The shortest decimal that is rounded to the same f16 or bf16. */
static void print_short_float(fu_str *out, ir_dtype t, ir_bits bits) {
    double v = ir_bits_to_double(t, bits);
    if (!isfinite(v)) {
        fu_str_add_float(out, v, 32);
        return;
    }
    for (int digits = 1; digits <= 6; digits++) {
        char text[48], plain[48];
        snprintf(text, sizeof text, "%.*e", digits - 1, v);
        /* The decimal point may be the locale's. */
        size_t n = 0;
        int k = 0;
        for (const char *p = text; *p && *p != 'e'; p++) {
            bool digit = *p >= '0' && *p <= '9';
            if (!digit && *p != '-') continue;
            plain[n++] = *p;
            if (digit && k++ == 0) plain[n++] = '.';
        }
        n += (size_t)snprintf(plain + n, sizeof plain - n, "%s", strchr(text, 'e'));
        const char *end;
        bool good = true;
        double near = fu_parse_float(plain, n, &end);
        if (ir_bits_from_double(t, near, &good) != bits || !good) continue;
        fu_str_add_float(out, near, 64);
        return;
    }
    fu_str_add_float(out, v, 64);
}

static void print_bits(fu_str *out, ir_dtype t, ir_bits bits) {
    if (t == FUSOR_F64 || t == FUSOR_F32) fu_str_add_float(out, ir_bits_to_double(t, bits), t == FUSOR_F64 ? 64 : 32);
    else if (ir_is_float(t)) print_short_float(out, t, bits);
    else if (ir_is_bool(t)) fu_str_add(out, bits ? "true" : "false");
    else if (!ir_is_signed(t)) fu_str_addf(out, "%llu", (unsigned long long)bits);
    else {
        unsigned unused = 64 - 8 * (unsigned)ir_dtypes[t].bytes;
        fu_str_addf(out, "%lld", (long long)((int64_t)(bits << unused) >> unused));
    }
}

static void print_string(fu_str *out, const char *s) {
    fu_str_addc(out, '"');
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
        const char *known = strchr(from, c);
        if (known) fu_str_addf(out, "\\%c", to[known - from]);
        else if (c < 0x20 || c == 0x7f) fu_str_addf(out, "\\u%04x", c);
        else fu_str_addc(out, (char)c);
    }
    fu_str_addc(out, '"');
}

/* ---- names ---- */

static uint32_t find_text(const printer *p, const fu_map *m, const char *text, const char *const *texts) {
    uint64_t h = fu_hash(text, strlen(text), 0);
    (void)p;
    for (uint32_t i = fu_map_find(m, h); i != UINT32_MAX; i = fu_map_next(m, h, i))
        if (strcmp(texts[m->value[i]], text) == 0) return m->value[i];
    return UINT32_MAX;
}

static bool take_name(printer *p, const char *name) {
    if (!name || !ir_is_ident(name) || find_text(p, &p->taken_map, name, p->taken.at) != UINT32_MAX) return false;
    fu_map_add(&p->taken_map, fu_hash(name, strlen(name), 0), p->taken.n);
    fu_push(p->a, &p->taken, name);
    return true;
}

/* base.1, base.2, ...; without a base (or with a base of digits, after which nothing may stand) 1, 2, ... */
static const char *new_name(printer *p, const char *base) {
    if (!base || !ir_is_ident(base) || (*base >= '0' && *base <= '9')) base = "";
    uint64_t h = fu_hash(base, strlen(base), 1);
    uint32_t i = fu_map_find(&p->next_map, h), k;
    if (i == UINT32_MAX) {
        fu_map_add(&p->next_map, h, p->next.n);
        k = p->next.n;
        fu_push(p->a, &p->next, 1);
    } else {
        k = p->next_map.value[i];
    }
    const char *name;
    do name = fu_format(p->a, "%s%s%u", base, *base ? "." : "", p->next.at[k]++);
    while (!take_name(p, name));
    return name;
}

static bool is_literal(const ir_graph *g, ir_id id) { return ir_at(g, id)->op == IR_OP_LITERAL; }

/* Does operand i of n, a literal, get its type from the rest of the statement when it is read back? */
static bool is_inline(const ir_graph *g, const ir_node *n, unsigned i) {
    ir_dtype t = ir_at(g, n->in[i])->dtype;
    if (n->op == IR_OP_CALL) return true;
    const ir_role role = ir_operand_role(n->op, i);
    if (role == IR_ROLE_CONDITION) return t == FUSOR_BOOL;
    if (role == IR_ROLE_INDEX) return t == FUSOR_I64;
    if (role == IR_ROLE_SEED) return t == FUSOR_I64 || (t == FUSOR_U64 && ir_at(g, n->in[i])->bits >> 63);
    if (n->op == IR_OP_CAST) return t == FUSOR_F64 || t == FUSOR_I64 || t == FUSOR_BOOL;
    for (unsigned k = 0; k < n->n_in; k++)
        if (!is_literal(g, n->in[k]) && ir_operand_role(n->op, k) == role) return ir_at(g, n->in[k])->dtype == t;
    const ir_attr *dtype = ir_node_attr(n, "dtype");
    return dtype && dtype->is_set && dtype->integer == t;
}

static void name_nodes(printer *p) {
    const ir_graph *g = p->g;
    bool *wants = FU_NEW_N(p->a, bool, g->nodes.n);
    for (ir_id id = 1; id < g->nodes.n; id++) {
        const ir_node *n = ir_at(g, id);
        wants[id] |= n->op != IR_OP_LITERAL && n->op != IR_OP_CALL;
        for (unsigned i = 0; i < n->n_in; i++)
            if (is_literal(g, n->in[i]) && !is_inline(g, n, i)) wants[n->in[i]] = true;
    }
    for (uint32_t i = 0; i < g->params.n; i++)
        if (take_name(p, g->params.at[i].name)) p->name[g->params.at[i].node] = g->params.at[i].name;
    /* A result keeps its name, whatever an inlined function called its values. */
    for (uint32_t i = 0; i < g->results.n; i++) {
        ir_id id = g->results.at[i].node;
        const char *name = ir_at(g, id)->name;
        if (wants[id] && !p->name[id] && name && strcmp(name, g->results.at[i].name) == 0 && take_name(p, name))
            p->name[id] = name;
    }
    for (ir_id id = 1; id < g->nodes.n; id++)
        if (wants[id] && !p->name[id] && take_name(p, ir_at(g, id)->name)) p->name[id] = ir_at(g, id)->name;
    for (ir_id id = 1; id < g->nodes.n; id++)
        if (wants[id] && !p->name[id]) p->name[id] = new_name(p, ir_at(g, id)->name);
}

/* ---- sizes and types ---- */

/* A size in a type. What no parameter binds, and what has no form in a text, cannot be written; it is inferred
 * again. */
static void print_dim(printer *p, ir_size x) {
    size_t start = p->out->n;
    if (!ir_size_is_writable(p->g->sizes, x)) {
        fu_str_addc(p->out, '?');
        return;
    }
    ir_size_print(p->out, p->g->sizes, x);
    if (!p->has_unbound) return;
    for (const char *t = p->out->at + start; *t;) {
        size_t n = 0;
        while ((t[n] >= 'a' && t[n] <= 'z') || (t[n] >= 'A' && t[n] <= 'Z') || (t[n] >= '0' && t[n] <= '9') ||
               t[n] == '_' || t[n] == '.')
            n++;
        if (n == 0) {
            t++;
            continue;
        }
        bool bound = *t >= '0' && *t <= '9';
        for (uint32_t i = 0; i < p->g->params.n && !bound; i++) {
            const ir_node *param = ir_at(p->g, p->g->params.at[i].node);
            uint32_t symbol;
            for (unsigned d = 0; d < param->rank; d++) {
                if (!ir_size_is_symbol(p->g->sizes, param->dim[d], &symbol)) continue;
                const char *name = ir_size_symbol_name(p->g->sizes, symbol);
                bound |= strlen(name) == n && memcmp(name, t, n) == 0;
            }
        }
        if (!bound) {
            p->out->n = start;
            p->out->at[start] = 0;
            fu_str_addc(p->out, '?');
            return;
        }
        t += n;
    }
}

static void print_type(printer *p, const ir_node *n, const ir_size *dim) {
    fu_str_add(p->out, ir_dtypes[n->dtype].name);
    for (unsigned d = 0; d < n->rank; d++) {
        fu_str_add(p->out, d ? ", " : "[");
        print_dim(p, dim[d]);
    }
    if (n->rank) fu_str_addc(p->out, ']');
}

static bool put_check(printer *p, ir_size from, ir_size to, const ir_node *n, ir_size **dim) {
    for (unsigned d = 0; d < n->rank; d++) {
        if (n->dim[d] != from || (*dim && (*dim)[d] != n->dim[d])) continue;
        if (!*dim) *dim = fu_dup(p->a, n->dim, n->rank * sizeof *n->dim);
        (*dim)[d] = to;
        return true;
    }
    return false;
}

static bool has_statement(const printer *p, ir_id id) {
    const ir_node *n = ir_at(p->g, id);
    return n->op != IR_OP_PARAM && n->op != IR_OP_LITERAL && n->op != IR_OP_CALL && p->name[id];
}

static uint64_t hash_check(const ir_check *c) {
    const ir_size pair[2] = {c->a < c->b ? c->a : c->b, c->a < c->b ? c->b : c->a};
    return fu_hash(pair, sizeof pair, 0);
}

/* Finds each check that the user wrote as a type (or that came with a call) a statement or a result with one of its
 * sizes, and declares the other there. Results come first where it was written in a result, else statements; so reading
 * the text back gives the checks the same places. What an operator demands anyway is not written. */
static void place_checks(printer *p) {
    const ir_graph *g = p->g;
    bool has_calls = false;
    fu_map known; /* a collision of hashes would lose a check in the text, not in the graph */
    fu_map_init(&known, p->a);
    for (ir_id id = 1; id < g->nodes.n; id++) has_calls |= ir_at(g, id)->op == IR_OP_CALL;
    for (uint32_t k = 0; k < g->checks.n; k++) {
        const ir_check *c = &g->checks.at[k];
        if (c->kind == IR_CHECK_EQUAL && c->origin == IR_CHECK_INFERRED) fu_map_add(&known, hash_check(c), k);
    }
    uint32_t budget = 1u << 24; /* hosts looked at; checks past it are not printed rather than never finished */
    for (uint32_t k = 0; k < g->checks.n; k++) {
        const ir_check *c = &g->checks.at[k];
        if (c->kind != IR_CHECK_EQUAL || c->origin == IR_CHECK_INFERRED) continue;
        if ((c->origin == IR_CHECK_COPIED && has_calls) || fu_map_find(&known, hash_check(c)) != UINT32_MAX) continue;
        fu_map_add(&known, hash_check(c), k);
        bool done = false;
        for (int pass = 0; pass < 4 && !done; pass++) {
            bool results = (c->origin == IR_CHECK_RESULT) == (pass < 2);
            ir_size from = pass & 1 ? c->b : c->a, to = pass & 1 ? c->a : c->b;
            for (uint32_t i = 0; results && i < g->results.n && !done && budget; i++, budget--)
                done = put_check(p, from, to, ir_at(g, g->results.at[i].node), &p->result_dim[i]);
            for (ir_id id = 1; !results && id < g->nodes.n && !done && budget; id++, budget--)
                done = has_statement(p, id) && put_check(p, from, to, ir_at(g, id), &p->declared[id]);
        }
    }
}

/* ---- functions ---- */

static void print_list(fu_str *out, const ir_param *param, ir_dtype t) {
    int64_t at[IR_MAX_RANK] = {0};
    const ir_bits *value = param->value;
    unsigned rank = param->value_rank, level = 0;
    /* A list of lists without recursion: at[level] counts the elements written at each depth. */
    fu_str_addc(out, '[');
    for (;;) {
        if (at[level] == param->value_dim[level]) {
            fu_str_addc(out, ']');
            if (level == 0) return;
            at[--level]++;
            continue;
        }
        if (at[level]) fu_str_add(out, ", ");
        if (level + 1 < rank) {
            fu_str_addc(out, '[');
            at[++level] = 0;
        } else {
            print_bits(out, t, *value++);
            at[level]++;
        }
    }
}

static void print_param(printer *p, const ir_param *param) {
    const ir_node *n = ir_at(p->g, param->node);
    fu_str_addf(p->out, "%s%%%s: ", param->is_const ? "const " : "", p->name[param->node]);
    print_type(p, n, n->dim);
    if (!param->path && !param->has_value) return;
    fu_str_add(p->out, " = ");
    if (param->path) print_string(p->out, param->path);
    else if (param->value_rank == 0) print_bits(p->out, n->dtype, param->value[0]);
    else print_list(p->out, param, n->dtype);
}

static void print_operand(printer *p, ir_id id, bool inlined) {
    const ir_node *n = ir_at(p->g, id);
    if (n->op == IR_OP_LITERAL && inlined) print_bits(p->out, n->dtype, n->bits);
    else fu_str_addf(p->out, "%%%s", p->name[id] ? p->name[id] : "?");
}

static void print_attr(printer *p, const ir_attr_info *info, const ir_attr *x) {
    fu_str *out = p->out;
    fu_str_addf(out, "%s=", info->name);
    switch (info->type) {
    case IR_ATTR_FLOAT:
    case IR_ATTR_NUMBER: fu_str_add_float(out, x->number, 64); return;
    case IR_ATTR_BOOL: fu_str_add(out, x->integer ? "true" : "false"); return;
    case IR_ATTR_INT:
    case IR_ATTR_AXIS: fu_str_addf(out, "%lld", (long long)x->integer); return;
    case IR_ATTR_DTYPE: fu_str_add(out, ir_dtypes[x->integer].name); return;
    case IR_ATTR_ENUM: {
        const char *word = info->words;
        for (int64_t i = 0; i < x->integer && *word; i++) {
            word += strcspn(word, "|");
            word += *word == '|';
        }
        fu_str_addn(out, word, strcspn(word, "|"));
        return;
    }
    case IR_ATTR_SIZE: ir_size_print(out, p->g->sizes, x->list[0]); return;
    case IR_ATTR_TEXT:
    case IR_ATTR_SCALAR: return; /* the first argument; an operand */
    case IR_ATTR_AXES:
    case IR_ATTR_INTS:
    case IR_ATTR_SIZES:
    case IR_ATTR_INDICES: break;
    }
    fu_str_addc(out, '[');
    for (uint32_t i = 0; i < x->n; i++) {
        if (i) fu_str_add(out, ", ");
        ir_size_print(out, p->g->sizes, x->list[i]);
    }
    fu_str_addc(out, ']');
}

/* The name of operand i where it is written as an attribute; else NULL. It is the last one that the row may have;
 * attention's may stand without the mask before it, and is told from a mask by its type. */
static const char *scalar_name(const ir_graph *g, const ir_node *n, unsigned i) {
    const ir_op_info *info = &ir_ops[n->op];
    const bool is_offset = info->kind == IR_KIND_ATTENTION && i == info->min_in && ir_is_int(ir_at(g, n->in[i])->dtype);
    for (unsigned k = 0; (i + 1 == info->max_in || is_offset) && k < info->n_attrs; k++)
        if (info->attrs[k].type == IR_ATTR_SCALAR) return info->attrs[k].name;
    return NULL;
}

/* The nodes of one statement with several results stand in a row, as far as they live: how many there are from `id`
 * on. */
static uint32_t count_siblings(const ir_graph *g, ir_id id) {
    const ir_node *n = ir_at(g, id);
    uint32_t count = 1;
    for (ir_id k = id + 1; ir_ops[n->op].n_results != 1 && k < g->nodes.n; k++, count++) {
        const ir_node *x = ir_at(g, k);
        if (x->op != n->op || x->index <= ir_at(g, k - 1)->index || x->n_in != n->n_in ||
            memcmp(x->in, n->in, n->n_in * sizeof *n->in) != 0 || x->loc.line != n->loc.line ||
            x->loc.col != n->loc.col || !ir_same_attrs(x, n))
            break;
    }
    return count;
}

/* A type for a result that nothing uses, beside others that have to be declared: every size is left to be inferred. */
static void print_unused(printer *p, const ir_node *sibling) {
    fu_str_add(p->out, ir_dtypes[sibling->dtype].name);
    for (unsigned d = 0; d < sibling->rank; d++) fu_str_add(p->out, d ? ", ?" : "[?");
    if (sibling->rank) fu_str_addc(p->out, ']');
}

/* A hint on two values is written where the later one is defined. */
static ir_id hint_place(const ir_hint *h) { return h->with > h->node ? h->with : h->node; }

static void place_hints(printer *p) {
    const ir_graph *g = p->g;
    if (!g->hints.n) return;
    p->first_hint = FU_NEW_N(p->a, uint32_t, g->nodes.n);
    p->next_hint = FU_NEW_N(p->a, uint32_t, g->hints.n);
    for (uint32_t i = g->hints.n; i-- > 0;) {
        uint32_t *first = &p->first_hint[hint_place(&g->hints.at[i])];
        p->next_hint[i] = *first;
        *first = i + 1;
    }
}

static const char *comma(unsigned *n);

/* All results of a statement have the hints that it has: those of the first one that lives. */
static void print_hints(printer *p, const ir_id *result, uint32_t n_results, unsigned *args) {
    const ir_graph *g = p->g;
    uint32_t r = 0, n = 0;
    while (r < n_results && (!result[r] || !p->first_hint[result[r]])) r++;
    if (r == n_results) return;
    for (uint32_t k = p->first_hint[result[r]]; k; k = p->next_hint[k - 1])
        if (g->hints.at[k - 1].kind == IR_HINT_BARRIER) {
            fu_str_addf(p->out, "%sbarrier=true", comma(args));
            break;
        }
    fu_str list;
    fu_str_init(&list, p->a);
    for (uint32_t k = p->first_hint[result[r]]; k; k = p->next_hint[k - 1]) {
        const ir_hint *h = &g->hints.at[k - 1];
        ir_id with = h->with == result[r] ? h->node : h->with;
        bool is_own = false;
        for (uint32_t i = 0; i < n_results; i++) is_own |= with == result[i];
        if (h->kind == IR_HINT_FUSE_WITH && with && !is_own && p->name[with])
            fu_str_addf(&list, "%s%%%s", n++ ? ", " : "", p->name[with]);
    }
    if (n) fu_str_addf(p->out, "%sfuse_with=%s%s%s", comma(args), n > 1 ? "[" : "", list.at, n > 1 ? "]" : "");
}

static const char *comma(unsigned *n) { return (*n)++ ? ", " : ""; }

static void print_node(printer *p, ir_id id, const ir_id *result, uint32_t n_results) {
    const ir_node *n = ir_at(p->g, id);
    const ir_op_info *info = &ir_ops[n->op];
    fu_str *out = p->out;
    unsigned args = 0;
    fu_str_add(out, "  ");
    for (uint32_t i = 0; i < n_results; i++)
        fu_str_addf(out, "%s%%%s", i ? ", " : "", result[i] ? p->name[result[i]] : new_name(p, NULL));
    if (n->op == IR_OP_LITERAL) {
        fu_str_add(out, " = full(");
        print_bits(out, n->dtype, n->bits);
        fu_str_addf(out, ", shape=[], dtype=%s)\n", ir_dtypes[n->dtype].name);
        return;
    }
    if (n->op == IR_OP_CALL) fu_str_addf(out, " = @%s(", n->callee);
    else fu_str_addf(out, " = %s(", info->name);
    for (unsigned i = 0; n->attr && i < info->n_attrs; i++) {
        if (info->attrs[i].type != IR_ATTR_TEXT || !n->attr[i].is_set) continue;
        fu_str_add(out, comma(&args));
        print_string(out, ir_attr_text(p->g, p->a, &n->attr[i]));
    }
    for (unsigned i = 0; i < n->n_in; i++) {
        const char *name = scalar_name(p->g, n, i);
        fu_str_addf(out, "%s%s%s", comma(&args), name ? name : "", name ? "=" : "");
        print_operand(p, n->in[i], is_literal(p->g, n->in[i]) && is_inline(p->g, n, i));
    }
    if (info->kind == IR_KIND_CONVERT) fu_str_addf(out, "%s%s", comma(&args), ir_dtypes[n->dtype].name);
    for (unsigned i = 0; n->attr && i < info->n_attrs; i++) {
        if (!n->attr[i].is_set || info->attrs[i].type == IR_ATTR_TEXT || info->attrs[i].type == IR_ATTR_SCALAR)
            continue;
        fu_str_add(out, comma(&args));
        print_attr(p, &info->attrs[i], &n->attr[i]);
    }
    if (n->meta_name) {
        fu_str_addf(out, "%sname=", comma(&args));
        print_string(out, n->meta_name);
    }
    if (n->meta_loc) {
        fu_str_addf(out, "%sloc=", comma(&args));
        print_string(out, n->meta_loc);
    }
    if (p->first_hint) print_hints(p, result, n_results, &args);
    fu_str_addc(out, ')');
    bool annotated = false;
    for (uint32_t i = 0; i < n_results; i++) annotated |= result[i] && p->declared[result[i]];
    for (uint32_t i = 0; annotated && i < n_results; i++) {
        const ir_node *r = ir_at(p->g, result[i] ? result[i] : id);
        fu_str_add(out, i ? ", " : " : ");
        if (!result[i] && r->op != IR_OP_CALL) {
            print_unused(p, r);
            continue;
        }
        print_type(p, r, p->declared[result[i]] ? p->declared[result[i]] : r->dim);
    }
    fu_str_addc(out, '\n');
}

/* Which results' names have to be written: those that the user wrote, and those that the rule would not give back. */
static bool *declared_names(printer *p) {
    const ir_graph *g = p->g;
    bool *declared = FU_NEW_N(p->a, bool, g->results.n);
    uint32_t *count = FU_NEW_N(p->a, uint32_t, p->taken.n);
    for (uint32_t i = 0; i < g->results.n; i++) declared[i] = g->results.at[i].is_declared;
    for (int round = 0; round < 4; round++) {
        bool changed = false;
        memset(count, 0, p->taken.n * sizeof *count);
        for (uint32_t i = 0; i < g->results.n; i++) {
            const char *value = p->name[g->results.at[i].node], *want = declared[i] ? g->results.at[i].name : value;
            uint32_t k = want ? find_text(p, &p->taken_map, want, p->taken.at) : UINT32_MAX;
            if (k != UINT32_MAX) count[k]++;
        }
        for (uint32_t i = 0; i < g->results.n; i++) {
            if (declared[i]) continue;
            const char *value = p->name[g->results.at[i].node];
            uint32_t k = value ? find_text(p, &p->taken_map, value, p->taken.at) : UINT32_MAX;
            char number[24];
            snprintf(number, sizeof number, "result%u", i);
            const char *derived = k != UINT32_MAX && count[k] == 1 ? value : number;
            if (strcmp(derived, g->results.at[i].name) == 0) continue;
            declared[i] = changed = true;
        }
        if (!changed) return declared;
    }
    for (uint32_t i = 0; i < g->results.n; i++) declared[i] = true;
    return declared;
}

static void print_results(printer *p) {
    const ir_graph *g = p->g;
    const bool *declared = declared_names(p);
    bool list = g->results.n != 1 || declared[0] || g->results.at[0].alias >= 0;
    fu_str_add(p->out, list ? " -> (" : " -> ");
    for (uint32_t i = 0; i < g->results.n; i++) {
        const ir_result *r = &g->results.at[i];
        const ir_node *n = ir_at(g, r->node);
        if (i) fu_str_add(p->out, ", ");
        if (declared[i]) fu_str_addf(p->out, "%%%s: ", r->name);
        print_type(p, n, p->result_dim[i] ? p->result_dim[i] : n->dim);
        if (r->alias >= 0) fu_str_addf(p->out, " alias %%%s", p->name[g->params.at[r->alias].node]);
    }
    fu_str_add(p->out, list ? ") {\n" : " {\n");
}

static call_results find_results(printer *p) {
    const ir_graph *g = p->g;
    call_results c = {FU_NEW_N(p->a, uint32_t, g->nodes.n), FU_NEW_N(p->a, uint32_t, g->nodes.n), NULL};
    uint32_t total = 0;
    for (ir_id id = 1; id < g->nodes.n; id++) {
        const ir_node *n = ir_at(g, id);
        if (n->op == IR_OP_RESULT && n->index >= c.n[n->in[0]]) c.n[n->in[0]] = n->index + 1u;
    }
    for (ir_id id = 1; id < g->nodes.n; id++) {
        c.first[id] = total;
        total += c.n[id];
    }
    c.id = FU_NEW_N(p->a, ir_id, total);
    for (ir_id id = 1; id < g->nodes.n; id++) {
        const ir_node *n = ir_at(g, id);
        if (n->op == IR_OP_RESULT) c.id[c.first[n->in[0]] + n->index] = id;
    }
    return c;
}

static bool any_unbound(const printer *p) {
    const ir_graph *g = p->g;
    uint32_t n = ir_size_symbol_count(g->sizes), symbol;
    bool *bound = FU_NEW_N(p->a, bool, n);
    for (uint32_t i = 0; i < g->params.n; i++) {
        const ir_node *param = ir_at(g, g->params.at[i].node);
        for (unsigned d = 0; d < param->rank; d++)
            if (ir_size_is_symbol(g->sizes, param->dim[d], &symbol)) bound[symbol] = true;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!bound[i]) return true;
    return false;
}

ir_printer *ir_printer_new(fu_arena *a, const ir_graph *g) {
    printer *p = FU_NEW(a, printer);
    p->a = a;
    p->g = g;
    p->name = FU_NEW_N(a, const char *, g->nodes.n);
    p->declared = FU_NEW_N(a, ir_size *, g->nodes.n);
    p->result_dim = FU_NEW_N(a, ir_size *, g->results.n);
    fu_map_init(&p->taken_map, a);
    fu_map_init(&p->next_map, a);
    p->has_unbound = any_unbound(p);
    name_nodes(p);
    place_checks(p);
    place_hints(p);
    p->calls = find_results(p);
    return p;
}

/* Of the nodes from first to last, those that are chosen. */
static void print_statements(printer *p, ir_id first, ir_id last) {
    const ir_graph *g = p->g;
    const bool *chosen = p->chosen;
    for (ir_id id = first; id <= last; id++) {
        ir_op op = ir_at(g, id)->op;
        if (op == IR_OP_CALL) {
            if (!chosen || chosen[id]) print_node(p, id, p->calls.id + p->calls.first[id], p->calls.n[id]);
        } else if (ir_ops[op].n_results != 1) {
            uint32_t n = count_siblings(g, id), n_results = ir_count_results(op, ir_at(g, id)->attr);
            ir_id *result = FU_NEW_N(p->a, ir_id, n_results);
            bool is_chosen = !chosen;
            for (ir_id k = id; k < id + n; k++) {
                result[ir_at(g, k)->index] = k;
                is_chosen |= chosen && chosen[k];
            }
            if (is_chosen) print_node(p, id, result, n_results);
            id += n - 1;
        } else if (op != IR_OP_PARAM && op != IR_OP_RESULT && p->name[id] && (!chosen || chosen[id])) {
            print_node(p, id, &id, 1);
        }
    }
}

void ir_print_nodes(ir_printer *p, fu_str *out, const ir_id *id, int n) {
    if (n == 0) return;
    ir_id first = id[0], last = id[0];
    if (!p->chosen) p->chosen = FU_NEW_N(p->a, bool, p->g->nodes.n);
    p->out = out;
    for (int i = 0; i < n; i++) {
        p->chosen[id[i]] = true;
        first = id[i] < first ? id[i] : first;
        last = id[i] > last ? id[i] : last;
    }
    while (first > 1 && ir_ops[ir_at(p->g, first)->op].n_results != 1 && /* several results: from the first one */
           ir_at(p->g, first - 1)->op == ir_at(p->g, first)->op)
        first--;
    print_statements(p, first, last);
    for (int i = 0; i < n; i++) p->chosen[id[i]] = false;
}

void ir_print_graph(fu_str *out, const ir_graph *g) {
    printer *p = ir_printer_new(out->arena, g);
    p->out = out;
    fu_str_addf(out, "func @%s(", g->name);
    for (uint32_t i = 0; i < g->params.n; i++) {
        if (i) fu_str_add(out, ", ");
        print_param(p, &g->params.at[i]);
    }
    fu_str_addc(out, ')');
    print_results(p);
    print_statements(p, 1, g->nodes.n - 1);
    fu_str_add(out, "  return ");
    for (uint32_t i = 0; i < g->results.n; i++) {
        if (i) fu_str_add(out, ", ");
        print_operand(p, g->results.at[i].node, true);
    }
    fu_str_add(out, "\n}\n");
}

void ir_print_module(fu_str *out, const ir_module *m) {
    fu_str_add(out, "fusor 1\n");
    for (uint32_t i = 0; i < m->functions.n; i++) {
        if (i) fu_str_addc(out, '\n');
        ir_print_graph(out, m->functions.at[i]);
    }
}
