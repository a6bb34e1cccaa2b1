/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* parse_type.c: sizes, types, literals and the sources of parameters, to the tree of ast.h. */
#include "base/small.h"
#include "ir/parser.h"

/* ---- sizes and types ---- */

static bool push_size(parser *p, ast_size_item item) {
    if (p->size.n >= 2 * IR_MAX_SIZE_OPERANDS) {
        AST_FAIL(p->m, FUSOR_ERROR_SYNTAX, item.loc, "a size expression has at most %d operands", IR_MAX_SIZE_OPERANDS);
        return false;
    }
    fu_push(p->m->arena, &p->size, item);
    return true;
}

static bool size_expr(parser *p);

static bool size_atom(parser *p) {
    fu_loc loc = p->token.loc;
    if (p->token.kind == IR_TOKEN_INTEGER) {
        if (p->token.number.range != IR_RANGE_I64) {
            AST_FAIL(p->m, FUSOR_ERROR_SHAPE, loc, "size %s does not fit in 64 bits", parse_found(p));
            return false;
        }
        int64_t v = p->token.number.i;
        next(p);
        return push_size(p, (ast_size_item){.kind = AST_SIZE_INT, .value = v, .loc = loc});
    }
    if (at_plain_word(p)) {
        ast_name name = take_name(p);
        return push_size(p, (ast_size_item){.kind = AST_SIZE_WORD, .word = name.word, .loc = loc});
    }
    if (!at(p, '(')) return parse_expected(p, "a size: an integer, a name or '('");
    if (!enter(p)) return false;
    next(p);
    if (!size_expr(p) || !expect(p, ')', "after the size expression")) return false;
    p->depth--;
    return true;
}

static bool size_term(parser *p) {
    if (!size_atom(p)) return false;
    while (at(p, '*') || at(p, '/')) {
        ast_size_item op = {.kind = at(p, '*') ? AST_SIZE_MUL : AST_SIZE_DIV, .loc = p->token.loc};
        next(p);
        if (!size_atom(p) || !push_size(p, op)) return false;
    }
    return true;
}

static bool size_expr(parser *p) {
    if (!size_term(p)) return false;
    while (at(p, '+') || at(p, '-')) {
        ast_size_item op = {.kind = at(p, '+') ? AST_SIZE_ADD : AST_SIZE_SUB, .loc = p->token.loc};
        next(p);
        if (!size_term(p) || !push_size(p, op)) return false;
    }
    return true;
}

bool parse_size(parser *p, ast_size *out) {
    fu_loc loc = p->token.loc;
    p->size.n = 0;
    if (!size_expr(p)) return false;
    *out = (ast_size){fu_dup(p->m->arena, p->size.at, p->size.n * sizeof *p->size.at), p->size.n, loc, false};
    return true;
}

ir_dtype parse_dtype(const parser *p) {
    return p->token.kind == IR_TOKEN_WORD ? ir_dtype_parse(p->token.at, p->token.n) : 0;
}

bool parse_type(parser *p, bool may_infer, ast_type *out) {
    *out = (ast_type){.dtype = parse_dtype(p), .loc = p->token.loc};
    if (!out->dtype) {
        if (p->token.kind != IR_TOKEN_WORD) return parse_expected(p, "a type such as f32 or f32[N, 4]");
        const char *near =
            p->token.n <= 64 ? ir_dtype_nearest(fu_strndup(p->m->arena, p->token.at, p->token.n)) : NULL;
        bool later = at_word(p, "f8e4m3") || at_word(p, "f8e5m2") || at_word(p, "i4") || at_word(p, "u4");
        if (later)
            AST_FAIL(p->m, FUSOR_ERROR_UNSUPPORTED, out->loc, "type %s is reserved for a later version",
                     parse_found(p));
        else
            AST_FAIL(p->m, FUSOR_ERROR_SYNTAX, out->loc, "unknown type %s%s%s%s", parse_found(p),
                     near ? "; did you mean '" : "",
                     near ? near : "; types are f64 f32 f16 bf16 i64 i32 i16 i8 u64 u32 u16 u8 bool", near ? "'?" : "");
        return false;
    }
    next(p);
    if (!take(p, '[')) return true;
    out->has_dims = true;
    ast_size dim[IR_MAX_RANK];
    while (!at(p, ']')) {
        if (out->rank) {
            if (!expect(p, ',', "or ']' after a dimension")) return false;
        }
        if (out->rank == IR_MAX_RANK) {
            AST_FAIL(p->m, FUSOR_ERROR_SHAPE, p->token.loc, "a type has at most %d dimensions", IR_MAX_RANK);
            return false;
        }
        ast_size *d = &dim[out->rank];
        if (at(p, '?')) {
            *d = (ast_size){.loc = p->token.loc, .is_inferred = true};
            if (!may_infer) {
                AST_FAIL(p->m, FUSOR_ERROR_SYNTAX, p->token.loc, "'?' stands only in a result type or an annotation");
                return false;
            }
            next(p);
        } else if (!parse_size(p, d)) {
            return false;
        }
        out->rank++;
    }
    next(p);
    if (out->rank) out->dim = fu_dup(p->m->arena, dim, out->rank * sizeof *dim);
    return true;
}

/* ---- literals and sources ---- */

ast_literal parse_literal(parser *p) {
    ast_literal l = {
        .kind = AST_FLOAT, .loc = p->token.loc, .at = p->token.at, .n = p->token.n, .number = p->token.number};
    if (p->token.kind == IR_TOKEN_INTEGER) l.kind = AST_INT;
    else if (at_word(p, "inf")) l.number.f = __builtin_inf();
    else if (at_word(p, "nan")) l.number.f = __builtin_nan("");
    else if (p->token.kind == IR_TOKEN_WORD) {
        l.kind = AST_BOOL;
        l.number.i = at_word(p, "true");
    }
    next(p);
    return l;
}

typedef fu_vec(ast_literal) literals;

/* The list at depth `level` (0 = outermost). All lists of one depth have one length, given by the first of them. */
static bool parse_list(parser *p, ast_param *out, literals *values, int level, int *leaf_level) {
    if (level >= IR_MAX_RANK) {
        AST_FAIL(p->m, FUSOR_ERROR_SHAPE, p->token.loc,
                 "a list of data nests at most %d deep, as tensors have rank %d at most", IR_MAX_RANK, IR_MAX_RANK);
        return false;
    }
    fu_loc loc = p->token.loc;
    next(p);
    int64_t n = 0;
    bool first_here = out->value_dim[level] < 0;
    while (!at(p, ']')) {
        if (n && !expect(p, ',', "or ']' in the list")) return false;
        fu_loc where = p->token.loc;
        bool is_list = at(p, '[');
        if (!is_list && !at_literal(p)) return parse_expected(p, "a number, true, false or a list");
        if (*leaf_level < 0 && !is_list) *leaf_level = level;
        bool has_lists = level + 1 < IR_MAX_RANK && out->value_dim[level + 1] >= 0;
        if (is_list ? *leaf_level >= 0 && level >= *leaf_level : level != *leaf_level || has_lists) {
            AST_FAIL(p->m, FUSOR_ERROR_SHAPE, where, "the list mixes numbers and lists at one depth");
            return false;
        }
        if (is_list) {
            if (!parse_list(p, out, values, level + 1, leaf_level)) return false;
        } else {
            fu_push(p->m->arena, values, parse_literal(p));
        }
        n++;
    }
    next(p);
    if (first_here) {
        out->value_dim[level] = n;
    } else if (out->value_dim[level] != n) {
        AST_FAIL(p->m, FUSOR_ERROR_SHAPE, loc,
                 "this list has length %lld but the first one at its depth has length %lld", (long long)n,
                 (long long)out->value_dim[level]);
        return false;
    }
    return true;
}

bool parse_source(parser *p, ast_param *out) {
    out->source_loc = p->token.loc;
    if (p->token.kind == IR_TOKEN_STRING) {
        out->source = AST_SOURCE_STRING;
        out->path = p->token.text;
        if (!*out->path) {
            AST_FAIL(p->m, FUSOR_ERROR_SYNTAX, p->token.loc, "the path of a source is empty");
            return false;
        }
        next(p);
        return true;
    }
    if (at_literal(p)) {
        out->source = AST_SOURCE_LITERAL;
        ast_literal l = parse_literal(p);
        out->value = fu_dup(p->m->arena, &l, sizeof l);
        out->n_values = 1;
        return true;
    }
    if (!at(p, '[')) return parse_expected(p, "a source: a number, a list or a file name in quotes");
    out->source = AST_SOURCE_LIST;
    for (int i = 0; i < IR_MAX_RANK; i++) out->value_dim[i] = -1;
    literals values = {0};
    int leaf_level = -1;
    if (!parse_list(p, out, &values, 0, &leaf_level)) return false;
    while (out->value_rank < IR_MAX_RANK && out->value_dim[out->value_rank] >= 0) out->value_rank++;
    for (int i = out->value_rank; i < IR_MAX_RANK; i++) out->value_dim[i] = 0;
    out->value = values.at;
    out->n_values = values.n;
    return true;
}
