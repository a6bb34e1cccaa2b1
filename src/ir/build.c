/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* build.c: the tree of ast.h to graphs, callees before callers. A statement that fails leaves its results "poisoned":
 * they are known but have no node, and what uses them is skipped without a message. build_node.c has what stands
 * right of a statement's "=". */
#include "base/small.h"
#include "ir/build.h"
#include <string.h>

const char *build_type_text(builder *b, ir_id id) {
    fu_str s;
    fu_str_init(&s, b->m->arena);
    ir_type_print(&s, b->g, ir_at(b->g, id));
    return s.at;
}
static const char *size_text(builder *b, ir_size x) {
    fu_str s;
    fu_str_init(&s, b->m->arena);
    ir_size_print(&s, b->g->sizes, x);
    return s.at;
}

/* ---- names ---- */

static void fail_no_value(builder *b, ast_word word, fu_loc loc) {
    ast *m = b->m;
    const char *text = ast_text(m, word), *near = NULL;
    ast_word_info *w = &m->words.at[word];
    if (w->defined_mark == b->mark) {
        AST_FAIL(m, FUSOR_ERROR_SYNTAX, loc, "value %%%.64s is used before it is defined at line %u", text,
                 w->defined_loc.line);
        return;
    }
    if (strlen(text) <= 64) {
        const char **names = FU_NEW_N(m->arena, const char *, b->g->nodes.n);
        uint32_t n = 0;
        for (ir_id i = 1; i < b->g->nodes.n; i++)
            if (ir_at(b->g, i)->name) names[n++] = ir_at(b->g, i)->name;
        near = fu_nearest(text, names, n);
    }
    AST_FAIL(m, FUSOR_ERROR_SYNTAX, loc, "there is no value %%%.64s%s%s%s", text, near ? "; did you mean %" : "",
             near ? near : "", near ? "?" : "");
}

bool build_find_value(builder *b, ast_word word, fu_loc loc, ir_id *out) {
    const ast_word_info *w = &b->m->words.at[word];
    if (w->value_mark != b->mark && b->has_lost) {
        *out = 0;
        return true;
    }
    if (w->value_mark != b->mark) {
        fail_no_value(b, word, loc);
        return false;
    }
    *out = w->value;
    return true;
}

static void define(builder *b, ast_name name, ir_id id) {
    ast_word_info *w = &b->m->words.at[name.word];
    if (w->value_mark == b->mark) return; /* reported as a second definition; the first one stays */
    w->value_mark = b->mark;
    w->value = id;
    w->value_loc = name.loc;
}

static bool check_new(builder *b, ast_name name, const char *what) {
    const ast_word_info *w = &b->m->words.at[name.word];
    if (w->value_mark != b->mark) return true;
    AST_FAIL(b->m, FUSOR_ERROR_SYNTAX, name.loc, "%s %%%.64s is already defined at line %u", what, w->text,
             w->value_loc.line);
    return false;
}

bool build_failed(builder *b, fu_loc loc) {
    ast_report(b->m, loc);
    b->g->failed = false; /* later statements do not depend on this one */
    return false;
}

/* ---- types ---- */

/* Declared types: what is written must be what is; sizes that may yet turn out equal are checked at the call. */
static bool check_type(builder *b, const ast_type *t, ir_id id, fu_loc loc, bool is_result, const char *what) {
    ast *m = b->m;
    ir_size dim[IR_MAX_RANK];
    const ir_node *n = ir_at(b->g, id);
    if (!ast_type_build(m, b->g, b->mark, t, dim)) return false;
    if (t->dtype != n->dtype) {
        AST_FAIL(m, FUSOR_ERROR_TYPE, loc, "%s is %s but is declared %s", what, build_type_text(b, id),
                 ir_dtypes[t->dtype].name);
        return false;
    }
    if (t->rank != n->rank) {
        AST_FAIL(m, FUSOR_ERROR_SHAPE, loc, "%s is %s but is declared with %u dimension%s", what,
                 build_type_text(b, id), t->rank, t->rank == 1 ? "" : "s");
        return false;
    }
    for (unsigned d = 0; d < t->rank; d++) {
        if (t->dim[d].is_inferred || dim[d] == n->dim[d]) continue;
        if (ir_size_never_equal(b->g->sizes, dim[d], n->dim[d])) {
            AST_FAIL(m, FUSOR_ERROR_SHAPE, loc, "%s is %s but its dim %u is declared %s", what, build_type_text(b, id),
                     d, size_text(b, dim[d]));
            return false;
        }
        ir_add_check(b->g, (ir_check){.a = n->dim[d],
                                      .b = dim[d],
                                      .kind = IR_CHECK_EQUAL,
                                      .loc = loc,
                                      .what = fu_format(m->arena, "%s: dim %u", what, d),
                                      .origin = is_result ? IR_CHECK_RESULT : IR_CHECK_ANNOTATION});
    }
    return true;
}

/* ---- parameters ---- */

static bool build_source(builder *b, const ast_param *p, ir_param *out) {
    ast *m = b->m;
    const ir_node *n = ir_at(b->g, out->node);
    out->source_loc = p->source_loc;
    out->path = p->path;
    if (p->source != AST_SOURCE_LITERAL && p->source != AST_SOURCE_LIST) return true;
    if (p->source == AST_SOURCE_LIST) {
        if (p->value_rank != n->rank) {
            AST_FAIL(m, FUSOR_ERROR_SHAPE, p->source_loc, "the list has %u dimension%s but parameter %%%.64s is %s",
                     p->value_rank, p->value_rank == 1 ? "" : "s", out->name, build_type_text(b, out->node));
            return false;
        }
        for (unsigned d = 0; d < n->rank; d++) {
            if (!ir_size_never_equal(b->g->sizes, n->dim[d], ir_size_const(b->g->sizes, p->value_dim[d]))) continue;
            AST_FAIL(m, FUSOR_ERROR_SHAPE, p->source_loc, "dim %u of the list is %lld but parameter %%%.64s is %s", d,
                     (long long)p->value_dim[d], out->name, build_type_text(b, out->node));
            return false;
        }
    }
    out->has_value = true;
    out->value_rank = p->value_rank;
    memcpy(out->value_dim, p->value_dim, sizeof out->value_dim);
    out->value = FU_NEW_N(m->arena, ir_bits, p->n_values);
    const char *what = fu_format(m->arena, "source of %%%.64s", out->name);
    for (uint32_t i = 0; i < p->n_values; i++) {
        ir_operand x = ast_operand(m, &p->value[i], p->n_values == 1);
        if (ir_literal_bits(b->g, what, &x, n->dtype, &out->value[i]) != FUSOR_OK)
            return build_failed(b, p->value[i].loc);
    }
    return true;
}

static bool build_param(builder *b, const ast_param *p) {
    ast *m = b->m;
    ir_size dim[IR_MAX_RANK];
    if (!check_new(b, p->name, "parameter")) return false;
    const ast_word_info *w = &m->words.at[p->name.word];
    if (w->dim_mark == b->mark) {
        AST_FAIL(m, FUSOR_ERROR_SYNTAX, p->name.loc, "parameter %%%.64s has the name of a size", w->text);
        return false;
    }
    if (!ast_type_build(m, b->g, b->mark, &p->type, dim)) return false;
    ir_id id = ir_add_param(b->g, w->text, p->type.dtype, p->type.rank, dim, p->name.loc);
    if (!id) return build_failed(b, p->name.loc);
    ir_param *out = &b->g->params.at[b->g->params.n - 1];
    out->is_const = p->is_const;
    define(b, p->name, id);
    return build_source(b, p, out);
}

static bool build_params(builder *b) {
    ast *m = b->m;
    ast_func *f = b->f;
    bool good = true;
    for (uint32_t i = 0; i < f->n_params; i++) {
        const ast_type *t = &f->param[i].type;
        for (unsigned d = 0; d < t->rank; d++) {
            if (t->dim[d].n != 1 || t->dim[d].item[0].kind != AST_SIZE_WORD) continue;
            m->words.at[t->dim[d].item[0].word].dim_mark = b->mark;
            (void)ir_size_sym(b->g->sizes, ast_text(m, t->dim[d].item[0].word));
        }
    }
    for (uint32_t i = 0; i < f->n_params && !ast_is_full(m); i++) {
        if (build_param(b, &f->param[i])) continue;
        define(b, f->param[i].name, 0);
        good = false;
    }
    return good;
}

/* ---- statements ---- */

/* Diagnostics from number `from` on are of this statement: what its name= and loc= say goes behind their first line. */
static void add_where(ast *m, const ast_stmt *s, int from) {
    const char *name = NULL, *loc = NULL;
    char where[IR_WHERE_MAX];
    for (uint32_t i = 0; i < s->n_args; i++) {
        const ast_arg *arg = &s->arg[i];
        if (arg->kind != AST_ARG_ATTR || arg->as.attr->kind != AST_ATTR_STRING) continue;
        if (strcmp(ast_text(m, arg->word), "name") == 0) name = arg->as.attr->as.string;
        if (strcmp(ast_text(m, arg->word), "loc") == 0) loc = arg->as.attr->as.string;
    }
    if (!ir_where(name, loc, where)[0]) return;
    for (int i = from; i < m->n_diagnostics; i++) {
        ast_diagnostic *d = &m->diagnostic[i];
        const int first = (int)strcspn(d->text, "\n");
        d->text = (char *)fu_format(m->arena, "%.*s%s%s", first, d->text, where, d->text + first);
        d->length = strlen(d->text);
    }
}

static bool build_stmt(builder *b, const ast_stmt *s, ir_id *result) {
    ast *m = b->m;
    for (uint32_t i = 0; i < s->n_results; i++)
        if (!check_new(b, s->result[i], "value")) return false;
    for (uint32_t i = 0; i < s->n_results; i++) {
        /* "%a, %a = ...": found by marking, as a list of a million names may come. */
        ast_word_info *w = &m->words.at[s->result[i].word];
        if (w->used_mark == b->mark) {
            AST_FAIL(m, FUSOR_ERROR_SYNTAX, s->result[i].loc, "value %%%.64s is defined twice here", w->text);
            return false;
        }
        w->used_mark = b->mark;
    }
    if (!(s->is_call ? build_call(b, s, result) : build_operator(b, s, result))) return false;
    if (s->n_annotations && s->n_annotations != s->n_results) {
        AST_FAIL(m, FUSOR_ERROR_TYPE, s->annotation[0].loc, "%u result%s but %u type%s after ':'", s->n_results,
                 s->n_results == 1 ? "" : "s", s->n_annotations, s->n_annotations == 1 ? "" : "s");
        return false;
    }
    for (uint32_t i = 0; i < s->n_annotations; i++) {
        if (!result[i]) continue;
        const char *what = fu_format(m->arena, "%%%.64s", ast_text(m, s->result[i].word));
        if (!check_type(b, &s->annotation[i], result[i], s->annotation[i].loc, false, what)) return false;
    }
    return true;
}

static bool build_stmts(builder *b) {
    ast *m = b->m;
    ast_func *f = b->f;
    bool good = true;
    for (uint32_t i = 0; i < f->stmts.n; i++) {
        const ast_stmt *s = &f->stmts.at[i];
        b->has_lost |= s->n_results == 0;
        for (uint32_t k = 0; k < s->n_results; k++) {
            ast_word_info *w = &m->words.at[s->result[k].word];
            if (w->defined_mark == b->mark) continue;
            w->defined_mark = b->mark;
            w->defined_loc = s->result[k].loc;
        }
    }
    for (uint32_t i = 0; i < f->stmts.n && !ast_is_full(m); i++) {
        const ast_stmt *s = &f->stmts.at[i];
        ir_id *result = FU_NEW_N(m->arena, ir_id, s->n_results + 1);
        const int n_before = m->n_diagnostics;
        bool built = !s->is_bad && build_stmt(b, s, result);
        if (m->n_diagnostics > n_before) add_where(m, s, n_before);
        good &= built;
        for (uint32_t k = 0; k < s->n_results; k++) define(b, s->result[k], built ? result[k] : 0);
    }
    return good;
}

/* ---- results ---- */

static bool build_alias(builder *b, const ast_result *r, ir_id id, bool *is_taken, int *out) {
    ast *m = b->m;
    ir_graph *g = b->g;
    ir_id p;
    if (!build_find_value(b, r->alias.word, r->alias.loc, &p)) return false;
    if (!p) return true;
    const ir_node *n = ir_at(g, id), *to = ir_at(g, p);
    const char *name = ast_text(m, r->alias.word);
    if (to->op != IR_OP_PARAM) {
        AST_FAIL(m, FUSOR_ERROR_TYPE, r->alias.loc, "alias %%%.64s: not a parameter", name);
        return false;
    }
    bool same = n->dtype == to->dtype && n->rank == to->rank;
    for (unsigned d = 0; same && d < n->rank; d++) {
        /* Two named sizes that are equal only by chance are no promise that one buffer serves for the other. */
        bool both_named = ir_size_is_symbol(g->sizes, n->dim[d], NULL) && ir_size_is_symbol(g->sizes, to->dim[d], NULL);
        same = n->dim[d] == to->dim[d] || !(both_named || ir_size_never_equal(g->sizes, n->dim[d], to->dim[d]));
    }
    if (!same) {
        AST_FAIL(m, n->dtype != to->dtype ? FUSOR_ERROR_TYPE : FUSOR_ERROR_SHAPE, r->alias.loc,
                 "alias %%%.64s: the parameter is %s but the result is %s; they must be equal", name,
                 build_type_text(b, p), build_type_text(b, id));
        return false;
    }
    if (is_taken[to->index]) {
        AST_FAIL(m, FUSOR_ERROR_SYNTAX, r->alias.loc,
                 "alias %%%.64s: an earlier result is written over that parameter already", name);
        return false;
    }
    is_taken[to->index] = true;
    *out = to->index;
    for (unsigned d = 0; d < n->rank; d++)
        ir_add_check(g, (ir_check){.a = n->dim[d],
                                   .b = to->dim[d],
                                   .kind = IR_CHECK_EQUAL,
                                   .loc = r->alias.loc,
                                   .what = fu_format(m->arena, "alias %%%.64s: dim %u", name, d)});
    return true;
}

static bool build_result(builder *b, uint32_t i, bool *is_taken, ir_result *out) {
    ast *m = b->m;
    const ast_result *r = &b->f->result[i];
    const ast_arg *a = &b->f->returned[i];
    *out = (ir_result){.alias = -1, .is_declared = r->has_name, .loc = r->has_name ? r->name.loc : a->loc};
    if (a->kind == AST_ARG_LITERAL) {
        ir_operand x = ast_operand(m, &a->as.literal, true);
        ir_bits bits;
        if (r->type.rank) {
            AST_FAIL(m, FUSOR_ERROR_SHAPE, a->loc, "result %u is a number but is declared with %u dimension%s", i,
                     r->type.rank, r->type.rank == 1 ? "" : "s");
            return false;
        }
        if (ir_literal_bits(b->g, "return", &x, r->type.dtype, &bits) != FUSOR_OK) return build_failed(b, a->loc);
        out->node = ir_add_literal(b->g, r->type.dtype, bits);
    } else {
        if (!build_find_value(b, a->word, a->loc, &out->node)) return false;
        if (!out->node) return true;
        const char *what = fu_format(m->arena, "result %u (%%%.64s)", i, ast_text(m, a->word));
        if (!check_type(b, &r->type, out->node, a->loc, true, what)) return false;
    }
    return !r->has_alias || build_alias(b, r, out->node, is_taken, &out->alias);
}

/* Declared names; else the returned value's, where no other result wants it; else result<i>. */
static bool name_results(builder *b, ir_result *result) {
    ast *m = b->m;
    ast_func *f = b->f;
    bool good = true;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < f->n_results; i++) {
            const ast_result *r = &f->result[i];
            const ast_arg *a = &f->returned[i];
            if (!r->has_name && a->kind != AST_ARG_VALUE) continue;
            ast_word_info *w = &m->words.at[r->has_name ? r->name.word : a->word];
            w->n_results = pass ? w->n_results + 1 : 0;
        }
    for (uint32_t i = 0; i < f->n_results; i++) {
        const ast_result *r = &f->result[i];
        const ast_arg *a = &f->returned[i];
        ast_word word;
        if (r->has_name) {
            word = r->name.word;
        } else if (a->kind == AST_ARG_VALUE && m->words.at[a->word].n_results == 1) {
            word = a->word;
        } else {
            const char *name = fu_format(m->arena, "result%u", i);
            word = ast_intern(m, name, strlen(name));
        }
        ast_word_info *w = &m->words.at[word];
        if (w->result_mark == b->mark) {
            AST_FAIL(m, FUSOR_ERROR_SYNTAX, result[i].loc, "there is a result %%%.64s already", w->text);
            good = false;
        }
        w->result_mark = b->mark;
        result[i].name = w->text;
    }
    return good;
}

static bool build_results(builder *b) {
    ast *m = b->m;
    ast_func *f = b->f;
    if (f->n_returned != f->n_results) {
        AST_FAIL(m, FUSOR_ERROR_TYPE, f->return_loc, "@%.64s declares %u result%s but returns %u", b->g->name,
                 f->n_results, f->n_results == 1 ? "" : "s", f->n_returned);
        return false;
    }
    bool good = true, *is_taken = FU_NEW_N(m->arena, bool, b->g->params.n);
    ir_result *result = FU_NEW_N(m->arena, ir_result, f->n_results);
    for (uint32_t i = 0; i < f->n_results && !ast_is_full(m); i++) good &= build_result(b, i, is_taken, &result[i]);
    good &= name_results(b, result);
    for (uint32_t i = 0; i < f->n_results && good; i++) fu_push(m->arena, &b->g->results, result[i]);
    return good;
}

/* ---- functions in order ---- */

static void build_func(ast *m, uint32_t index) {
    ast_func *f = &m->funcs.at[index];
    if (f->is_bad) {
        f->failed = true;
        return;
    }
    builder b = {m, f, ir_graph_new(m->arena, m->scratch, m->source, ast_text(m, f->name.word)), index + 1, false};
    b.g->loc = f->name.loc;
    f->graph = b.g;
    bool params = build_params(&b), stmts = build_stmts(&b), results = build_results(&b);
    if (!params || !stmts || !results) f->failed = true;
    f->inlined += b.g->nodes.n + b.g->hints.n;
}

typedef struct walk {
    uint32_t func, stmt;
} walk;

static void fail_recursion(ast *m, const walk *stack, uint32_t n, uint32_t to, fu_loc loc) {
    uint32_t first = n;
    while (first > 0 && stack[first - 1].func != to) first--;
    first -= first > 0;
    fu_str path;
    fu_str_init(&path, m->arena);
    for (uint32_t i = first; i < n; i++) {
        if (i == first + 8) {
            fu_str_add(&path, ".. -> ");
            break;
        }
        fu_str_addf(&path, "@%.64s -> ", ast_text(m, m->funcs.at[stack[i].func].name.word));
    }
    const char *name = ast_text(m, m->funcs.at[to].name.word);
    AST_FAIL(m, FUSOR_ERROR_SYNTAX, loc,
             "@%.64s calls itself (%s@%.64s); calls are inlined, so recursion is not possible", name, path.at, name);
}

void ast_build(ast *m, ir_module *module) {
    enum { NEW, OPEN, DONE };
    fu_vec(walk) stack = {0};
    for (uint32_t i = 0; i < m->funcs.n && !ast_is_full(m); i++) {
        if (m->funcs.at[i].color != NEW) continue;
        fu_push(m->arena, &stack, (walk){i, 0});
        while (stack.n && !ast_is_full(m)) {
            walk *top = &stack.at[stack.n - 1];
            ast_func *f = &m->funcs.at[top->func];
            f->color = OPEN;
            if (f->is_bad || top->stmt == f->stmts.n) {
                f->color = DONE;
                build_func(m, top->func);
                stack.n--;
                continue;
            }
            ast_stmt *s = &f->stmts.at[top->stmt++];
            uint32_t callee = s->is_call && !s->is_bad ? m->words.at[s->op.word].function : 0;
            if (!callee || m->funcs.at[callee - 1].color == DONE) continue;
            if (m->funcs.at[callee - 1].color == NEW) {
                fu_push(m->arena, &stack, (walk){callee - 1, 0});
                continue;
            }
            fail_recursion(m, stack.at, stack.n, callee - 1, s->op.loc);
            s->is_bad = true;
            f->failed = true;
        }
    }
    for (uint32_t i = 0; i < m->funcs.n; i++)
        if (m->funcs.at[i].graph) fu_push(m->arena, &module->functions, m->funcs.at[i].graph);
}
