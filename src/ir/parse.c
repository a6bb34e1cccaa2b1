/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* parse.c: the grammar of the text form, to the tree of ast.h, and ir_parse: statements and functions; parse_type.c has
 * what they are made of. Recursion only for lists and parentheses, whose depth is limited. After an error the rest of
 * the statement (outside of statements: of the function) is skipped. */
#include "base/small.h"
#include "ir/parser.h"
#include <string.h>

/* ---- tokens ---- */

/* "'x'", "the end of the text": what the next token is, for messages. Long ones are cut. */
const char *parse_found(const parser *p) {
    const ir_token *t = &p->token;
    int n = (int)(t->n > 40 ? 40 : t->n);
    const char *more = t->n > 40 ? "..." : "";
    switch (t->kind) {
    case IR_TOKEN_END: return "the end of the text";
    case IR_TOKEN_VALUE: return fu_format(p->m->arena, "'%%%.*s%s'", n, t->at, more);
    case IR_TOKEN_FUNCTION: return fu_format(p->m->arena, "'@%.*s%s'", n, t->at, more);
    case IR_TOKEN_STRING: return "a string";
    case IR_TOKEN_ARROW: return "'->'";
    case IR_TOKEN_PUNCTUATION: return fu_format(p->m->arena, "'%c'", t->punctuation);
    default: return fu_format(p->m->arena, "'%.*s%s'", n, t->at, more);
    }
}

/* "expected WHAT, found X" at the next token, or what the lexer has against it. Always false. */
bool parse_expected(parser *p, const char *what) {
    if (p->token.kind == IR_TOKEN_ERROR) AST_FAIL(p->m, FUSOR_ERROR_SYNTAX, p->token.loc, "%s", p->token.text);
    else if (p->token.kind == IR_TOKEN_WORD && !at_plain_word(p))
        AST_FAIL(p->m, FUSOR_ERROR_SYNTAX, p->token.loc, "expected %s, found the reserved word %s", what,
                 parse_found(p));
    else AST_FAIL(p->m, FUSOR_ERROR_SYNTAX, p->token.loc, "expected %s, found %s", what, parse_found(p));
    return false;
}

/* ---- statements ---- */

static bool parse_attr(parser *p, ast_attr *out) {
    *out = (ast_attr){.loc = p->token.loc};
    if (at(p, '[')) {
        if (!enter(p)) return false;
        next(p);
        out->kind = AST_ATTR_LIST;
        fu_vec(ast_attr) list = {0};
        while (!at(p, ']')) {
            ast_attr item;
            if (list.n && !expect(p, ',', "or ']' in the list")) return false;
            if (!parse_attr(p, &item)) return false;
            fu_push(p->m->arena, &list, item);
        }
        next(p);
        p->depth--;
        out->as.list.at = list.at;
        out->as.list.n = list.n;
        return true;
    }
    if (p->token.kind == IR_TOKEN_STRING) {
        out->kind = AST_ATTR_STRING;
        out->as.string = p->token.text;
        next(p);
    } else if (p->token.kind == IR_TOKEN_VALUE) {
        out->kind = AST_ATTR_VALUE;
        out->as.word = take_name(p).word;
    } else if (parse_dtype(p)) {
        out->kind = AST_ATTR_DTYPE;
        out->as.dtype = parse_dtype(p);
        next(p);
    } else if (at_literal(p) && (p->token.kind != IR_TOKEN_INTEGER || p->token.number.range != IR_RANGE_I64)) {
        out->kind = AST_ATTR_LITERAL;
        out->as.literal = parse_literal(p);
    } else if (p->token.kind == IR_TOKEN_INTEGER || at_plain_word(p) || at(p, '(')) {
        out->kind = AST_ATTR_SIZE;
        return parse_size(p, &out->as.size);
    } else {
        return parse_expected(p, "an attribute value");
    }
    return true;
}

/* At what follows word, which was met where an operand belongs. Always false. */
static bool fail_word(parser *p, fu_loc loc, uint32_t word, const char *found) {
    ast *m = p->m;
    bool fits = m->words.at[word].length <= 40;
    if (at(p, '(') || p->token.kind == IR_TOKEN_VALUE)
        AST_FAIL(m, FUSOR_ERROR_SYNTAX, loc,
                 "%s is a call, and an operand is a value: write '%%t = %s(...)' as a statement before this one, and "
                 "%%t here",
                 found, fits ? ast_text(m, word) : "OPERATOR");
    else {
        const bool is_end = at(p, ')') || at(p, ',');
        const char *text = ast_text(m, word), *type = fits && is_end ? ir_dtype_nearest(text) : NULL;
        const bool may_be_size = fits && is_end && !type && text[0] >= 'A' && text[0] <= 'Z';
        AST_FAIL(m, FUSOR_ERROR_SYNTAX, loc, "expected '=' after attribute name %s; a value is written %%%s%s%s%s",
                 found, fits ? text : "x",
                 type          ? "; did you mean the type '"
                 : may_be_size ? "; the size of an axis as a value is dim(%x, axis=0)"
                               : "",
                 type ? type : "", type ? "'?" : "");
    }
    return false;
}

/* Where ',' or ')' belongs: whether there is one, or what an infix operator would be here. */
static bool parse_comma(parser *p) {
    const char *name = at(p, '+') ? "add" : at(p, '-') ? "sub" : at(p, '*') ? "mul" : at(p, '/') ? "div" : NULL;
    if (!name) return expect(p, ',', "or ')' after an argument");
    AST_FAIL(p->m, FUSOR_ERROR_SYNTAX, p->token.loc,
             "infix '%c' is of fusor eval only: write %s(%%a, %%b) as a statement of its own", p->token.punctuation,
             name);
    return false;
}

static bool parse_operand(parser *p, ast_arg *out) {
    out->loc = p->token.loc;
    if (p->token.kind == IR_TOKEN_VALUE) {
        out->kind = AST_ARG_VALUE;
        out->word = take_name(p).word;
        return true;
    }
    if (!at_literal(p)) {
        const char *what = "an operand: a value such as %x, or a number", *found = parse_found(p);
        if (at(p, '['))
            what =
                "an operand: a value such as %x, or a number (a list is an attribute's, as in shape=[2, 3]; operands "
                "stand one by one)";
        if (!at_plain_word(p)) return parse_expected(p, what);
        ast_name name = take_name(p);
        if (at(p, '(')) return fail_word(p, name.loc, name.word, found);
        AST_FAIL(p->m, FUSOR_ERROR_SYNTAX, name.loc, "expected %s, found %s", what, found);
        return false;
    }
    out->kind = AST_ARG_LITERAL;
    out->as.literal = parse_literal(p);
    return true;
}

static bool parse_arg(parser *p, ast_arg *out) {
    *out = (ast_arg){.loc = p->token.loc};
    if (parse_dtype(p)) {
        out->kind = AST_ARG_TYPE;
        out->as.type = FU_NEW(p->m->arena, ast_type);
        return parse_type(p, false, out->as.type);
    }
    if (p->token.kind == IR_TOKEN_STRING) {
        out->kind = AST_ARG_STRING;
        out->as.string = p->token.text;
        next(p);
        return true;
    }
    if (at_plain_word(p) || at_word(p, "alias") || at_word(p, "const")) {
        if (!at_plain_word(p)) return parse_expected(p, "an operand or an attribute name");
        out->kind = AST_ARG_ATTR;
        const char *name = parse_found(p);
        out->word = take_name(p).word;
        if (!at(p, '=')) return fail_word(p, out->loc, out->word, name);
        next(p);
        out->as.attr = FU_NEW(p->m->arena, ast_attr);
        return parse_attr(p, out->as.attr);
    }
    return parse_operand(p, out);
}

static bool parse_stmt(parser *p, ast_stmt *s) {
    ast *m = p->m;
    fu_vec(ast_name) results = {0};
    fu_vec(ast_arg) args = {0};
    fu_vec(ast_type) annotations = {0};
    p->depth = 0;
    for (;;) {
        if (p->token.kind != IR_TOKEN_VALUE)
            return parse_expected(p, results.n ? "a value such as %y after ','"
                                               : "a statement such as '%y = relu(%x)', 'return' or '}'");
        fu_push(m->arena, &results, take_name(p));
        s->result = results.at;
        s->n_results = results.n;
        if (!take(p, ',')) break;
    }
    if (!expect(p, '=', "after the result")) return false;
    s->is_call = p->token.kind == IR_TOKEN_FUNCTION;
    if (p->token.kind == IR_TOKEN_VALUE)
        return parse_expected(p, "the name of an operator such as add(%a, %b), or @ and the name of a function");
    if (!s->is_call && !at_plain_word(p))
        return parse_expected(p, "the name of an operator, or @ and the name of a function");
    s->op = take_name(p);
    if (!expect(p, '(', "after the name of the operator")) return false;
    while (!at(p, ')')) {
        ast_arg a;
        if (args.n && !parse_comma(p)) return false;
        if (!parse_arg(p, &a)) return false;
        fu_push(m->arena, &args, a);
    }
    next(p);
    if (at(p, ':')) {
        do {
            ast_type t;
            next(p);
            if (!parse_type(p, true, &t)) return false;
            fu_push(m->arena, &annotations, t);
        } while (at(p, ','));
    }
    if (p->token.kind != IR_TOKEN_VALUE && !at_word(p, "return") && !at(p, '}') && !at_end(p))
        return parse_expected(p, annotations.n ? "the next statement" : "':' and a type, or the next statement");
    s->arg = args.at;
    s->n_args = args.n;
    s->annotation = annotations.at;
    s->n_annotations = annotations.n;
    return true;
}

/* At a function, as far as what is skipped tells: the word alone may stand where a size belongs, f32[func]. */
static bool at_function(const parser *p) {
    if (!at_word(p, "func") || p->token.starts_line) return at_word(p, "func");
    parser ahead = *p;
    next(&ahead);
    return ahead.token.kind == IR_TOKEN_FUNCTION;
}

/* To where a statement begins: a line that starts with "%a, %b =", or return, '}' or func. What fails as a beginning is
 * not tried again from its middle, so this stays linear. */
static void skip_statement(parser *p) {
    while (!at_end(p) && !at_function(p) && !at_word(p, "return") && !at(p, '}')) {
        if (p->token.kind != IR_TOKEN_VALUE || !p->token.starts_line) {
            next(p);
            continue;
        }
        ir_lexer lexer = p->lexer;
        ir_token token = p->token;
        do next(p);
        while (take(p, ',') && p->token.kind == IR_TOKEN_VALUE);
        if (at(p, '=')) {
            p->lexer = lexer;
            p->token = token;
            return;
        }
    }
}

/* ---- functions ---- */

static bool parse_param(parser *p, ast_param *out) {
    *out = (ast_param){0};
    p->depth = 0;
    if (at_word(p, "const")) {
        out->is_const = true;
        next(p);
    }
    if (p->token.kind != IR_TOKEN_VALUE) return parse_expected(p, "a parameter such as '%x: f32[N]'");
    out->name = take_name(p);
    if (!expect(p, ':', "and a type after the parameter")) return false;
    if (!parse_type(p, false, &out->type)) return false;
    return !take(p, '=') || parse_source(p, out);
}

static bool parse_result(parser *p, ast_result *out) {
    *out = (ast_result){.loc = p->token.loc};
    p->depth = 0;
    if (p->token.kind == IR_TOKEN_VALUE) {
        out->has_name = true;
        out->name = take_name(p);
        if (!expect(p, ':', "and a type after the result's name")) return false;
    }
    if (!parse_type(p, true, &out->type)) return false;
    if (!at_word(p, "alias")) return true;
    next(p);
    if (p->token.kind != IR_TOKEN_VALUE) return parse_expected(p, "a parameter such as %p after 'alias'");
    out->has_alias = true;
    out->alias = take_name(p);
    return true;
}

static bool parse_signature(parser *p, ast_func *f) {
    ast *m = p->m;
    fu_vec(ast_param) params = {0};
    fu_vec(ast_result) results = {0};
    if (!expect(p, '(', "after the function's name")) return false;
    while (!at(p, ')')) {
        ast_param a;
        if (params.n && !expect(p, ',', "or ')' after a parameter")) return false;
        if (params.n == IR_MAX_PARAMS) {
            AST_FAIL(m, FUSOR_ERROR_SYNTAX, p->token.loc, "a function has at most %d parameters", IR_MAX_PARAMS);
            return false;
        }
        if (!parse_param(p, &a)) return false;
        fu_push(m->arena, &params, a);
    }
    next(p);
    if (p->token.kind != IR_TOKEN_ARROW) return parse_expected(p, "'->' and the results");
    next(p);
    bool many = take(p, '(');
    while (!(many && at(p, ')'))) {
        ast_result r;
        if (results.n && !expect(p, ',', "or ')' after a result")) return false;
        if (results.n == IR_MAX_PARAMS) {
            AST_FAIL(m, FUSOR_ERROR_SYNTAX, p->token.loc, "a function has at most %d results", IR_MAX_PARAMS);
            return false;
        }
        if (!parse_result(p, &r)) return false;
        fu_push(m->arena, &results, r);
        if (!many) break;
    }
    if (many) next(p);
    f->param = params.at;
    f->n_params = params.n;
    f->result = results.at;
    f->n_results = results.n;
    return expect(p, '{', "before the function's statements");
}

static bool parse_return(parser *p, ast_func *f) {
    fu_vec(ast_arg) returned = {0};
    f->return_loc = p->token.loc;
    next(p);
    do {
        ast_arg a = {0};
        if (!parse_operand(p, &a)) return false;
        fu_push(p->m->arena, &returned, a);
    } while (take(p, ','));
    f->returned = returned.at;
    f->n_returned = returned.n;
    return expect(p, '}', "after the returned values");
}

/* After an error outside of statements: on to the next function. */
static void skip_function(parser *p) {
    while (!at_end(p) && !at_function(p)) next(p);
}

/* At "func". False: nothing of it can be built, and the rest is to be skipped. */
static bool parse_function(parser *p, ast_func *f) {
    ast *m = p->m;
    next(p);
    if (p->token.kind != IR_TOKEN_FUNCTION) return parse_expected(p, "a function name such as @main");
    f->name = take_name(p);
    if (!parse_signature(p, f)) return false;
    while (!at_word(p, "return")) {
        if (at(p, '}') || at_end(p) || at_word(p, "func")) {
            /* What a broken statement took away is not complained about again. */
            if (f->stmts.n && f->stmts.at[f->stmts.n - 1].is_bad) return false;
            return parse_expected(p, "a statement or 'return'");
        }
        ast_stmt s = {0};
        if (!parse_stmt(p, &s)) {
            s.is_bad = true;
            if (ast_is_full(m)) return false;
            /* A token that stands for nothing here must not be met again. */
            if (p->token.kind == IR_TOKEN_ERROR || s.n_results == 0) next(p);
            skip_statement(p);
        }
        fu_push(m->arena, &f->stmts, s);
    }
    return parse_return(p, f);
}

static void parse_module(parser *p) {
    ast *m = p->m;
    next(p);
    if (at_word(p, "fusor")) {
        next(p);
        if (p->token.kind != IR_TOKEN_INTEGER || p->token.number.range != IR_RANGE_I64 || p->token.number.i != 1) {
            if (p->token.kind == IR_TOKEN_INTEGER)
                AST_FAIL(m, FUSOR_ERROR_SYNTAX, p->token.loc,
                         "the text is of language version %s; this fusor reads version 1", parse_found(p));
            else parse_expected(p, "the language version 1");
            return;
        }
        next(p);
    }
    while (!at_end(p) && !ast_is_full(m)) {
        if (!at_word(p, "func")) {
            parse_expected(p, "'func'");
            next(p);
            skip_function(p);
            continue;
        }
        uint32_t index = m->funcs.n;
        ast_func f = {0};
        f.is_bad = !parse_function(p, &f);
        if (f.is_bad) skip_function(p);
        if (!f.name.loc.line) continue;
        ast_word_info *w = &m->words.at[f.name.word];
        if (w->function) {
            AST_FAIL(m, FUSOR_ERROR_SYNTAX, f.name.loc, "function @%s is already defined at line %u", w->text,
                     m->funcs.at[w->function - 1].name.loc.line);
        } else {
            w->function = index + 1;
        }
        fu_push(m->arena, &m->funcs, f);
    }
}

fusor_status ir_parse(fu_arena *a, fu_error *e, const char *name, const char *text, size_t length, ir_module **out) {
    if (length >= (size_t)1 << 30)
        return FU_FAIL(e, FUSOR_ERROR_SYNTAX, "%s: the text is larger than 1 GiB", name ? name : "<text>");
    ir_module *module = FU_NEW(a, ir_module);
    module->arena = a;
    module->source = (fu_source){fu_strdup(a, name ? name : "<text>"), fu_strndup(a, "", 0), length};
    if (length) {
        char *copy = fu_alloc(a, length + 1);
        memcpy(copy, text, length);
        module->source.text = copy;
    }
    ast *m = FU_NEW(a, ast);
    m->arena = a;
    m->source = &module->source;
    m->scratch = FU_NEW(a, fu_error);
    fu_map_init(&m->word_map, a);
    parser *p = FU_NEW(a, parser);
    p->m = m;
    ir_lex_init(&p->lexer, a, module->source.text, length);
    parse_module(p);
    m->n_phase = 0;
    ast_build(m, module);
    if (m->n_diagnostics) {
        ast_report_all(m, e);
        return e->status;
    }
    /* From now on graphs report to the caller's record. */
    for (uint32_t i = 0; i < module->functions.n; i++) module->functions.at[i]->error = e;
    *out = module;
    return FUSOR_OK;
}

static void parse_attr_list(parser *p, ir_op op, ast_stmt *s, ir_dtype *to) {
    ast *m = p->m;
    fu_vec(ast_arg) args = {0};
    next(p);
    while (!at_end(p)) {
        ast_arg x;
        if (args.n && !expect(p, ',', "or the end after an attribute")) return;
        if (!parse_arg(p, &x)) return;
        if (x.kind == AST_ARG_TYPE && ir_ops[op].kind == IR_KIND_CONVERT && !x.as.type->has_dims && args.n == 0) {
            *to = x.as.type->dtype;
        } else if (x.kind == AST_ARG_STRING && op == IR_OP_EINSUM &&
                   args.n == 0) { /* its first attribute, without name */
            ast_attr *a = FU_NEW(m->arena, ast_attr);
            *a = (ast_attr){.kind = AST_ATTR_STRING, .loc = x.loc, .as.string = x.as.string};
            const char *name = ir_ops[op].attrs[0].name;
            x = (ast_arg){.kind = AST_ARG_ATTR, .loc = x.loc, .word = ast_intern(m, name, strlen(name)), .as.attr = a};
        } else if (x.kind != AST_ARG_ATTR) {
            AST_FAIL(m, FUSOR_ERROR_SYNTAX, x.loc, "%s: expected an attribute such as axis=1", ir_ops[op].name);
            return;
        }
        fu_push(m->arena, &args, x);
    }
    s->arg = args.at;
    s->n_args = args.n;
}

fusor_status ir_parse_attrs(ir_graph *g, ir_op op, const char *text, const fu_source *shown, ir_attr *attr,
                            ir_dtype *to, ir_operand *scalar) {
    enum { MARK = 1 };
    fu_arena *a = g->arena;
    fu_source *source = FU_NEW(a, fu_source);
    *source = (fu_source){"<attributes>", fu_strdup(a, text), strlen(text)};
    ast *m = FU_NEW(a, ast);
    m->arena = a;
    m->source = shown ? shown : source;
    m->scratch = FU_NEW(a, fu_error);
    fu_map_init(&m->word_map, a);
    parser *p = FU_NEW(a, parser);
    p->m = m;
    ir_lex_init(&p->lexer, a, source->text, source->length);
    ast_stmt s = {0};
    ast_meta meta = {0};
    parse_attr_list(p, op, &s, to);
    for (uint32_t i = 0; i < ir_size_symbol_count(g->sizes); i++) {
        const char *symbol = ir_size_symbol_name(g->sizes, i);
        ast_word word = ast_intern(m, symbol, strlen(symbol)); /* may move the words */
        m->words.at[word].dim_mark = MARK;
    }
    const ast_attr *operand = NULL;
    if (!m->n_diagnostics && ast_attrs_build(m, g, MARK, &s, op, attr, &meta))
        operand = ast_scalar_attr(m, &s, op, attr);
    if (!m->n_diagnostics && (meta.is_barrier || meta.fuse_with))
        AST_FAIL(m, FUSOR_ERROR_SYNTAX, s.arg[0].loc,
                 "%s: a text of attributes has no hints; call fusor_barrier or fusor_fuse_with", ir_ops[op].name);
    else if (!m->n_diagnostics && (meta.name || meta.loc))
        AST_FAIL(m, FUSOR_ERROR_SYNTAX, s.arg[0].loc,
                 "%s: a text of attributes has no name= and loc=; call fusor_name on the result", ir_ops[op].name);
    if (operand && operand->kind == AST_ATTR_VALUE)
        AST_FAIL(m, FUSOR_ERROR_TYPE, operand->loc,
                 "%s: a text of attributes has no values; give the tensor as an operand", ir_ops[op].name);
    else if (operand) *scalar = ast_attr_operand(m, operand);
    if (!m->n_diagnostics) return FUSOR_OK;
    ast_report_all(m, g->error);
    g->failed = true;
    return g->error->status;
}

ir_graph *ir_module_find(const ir_module *m, const char *function) {
    if (!function) return m->functions.n ? m->functions.at[0] : NULL;
    for (uint32_t i = 0; i < m->functions.n; i++)
        if (strcmp(m->functions.at[i]->name, function) == 0) return m->functions.at[i];
    return NULL;
}
