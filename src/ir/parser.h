/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_PARSER_H
#define IR_PARSER_H
/* What parse.c and parse_type.c share: the parser, one token ahead. Functions that return bool are false after an
 * error, which they have reported. */
#include "ir/ast.h"

typedef struct parser {
    ast *m;
    ir_lexer lexer;
    ir_token token;             /* the next one, not yet taken */
    fu_vec(ast_size_item) size; /* of the dimexpr being read */
    int depth;                  /* of lists and parentheses */
} parser;

/* "'x'", "the end of the text": what the next token is, for messages. Long ones are cut. */
const char *parse_found(const parser *p);
/* "expected WHAT, found X" at the next token, or what the lexer has against it. Always false. */
bool parse_expected(parser *p, const char *what);

/* parse_type.c */
bool parse_size(parser *p, ast_size *out);
ir_dtype parse_dtype(const parser *p); /* the dtype that the next token names; 0: none */
bool parse_type(parser *p, bool may_infer, ast_type *out);
ast_literal parse_literal(parser *p); /* the next token, which is at_literal */
bool parse_source(parser *p, ast_param *out);

/* ---- tokens ---- */

static inline void next(parser *p) { ir_lex_next(&p->lexer, &p->token); }
static inline bool at_end(const parser *p) { return p->token.kind == IR_TOKEN_END; }
static inline bool at(const parser *p, char c) {
    return p->token.kind == IR_TOKEN_PUNCTUATION && p->token.punctuation == c;
}
static inline bool at_word(const parser *p, const char *word) { return ir_token_is(&p->token, word); }
static inline bool at_plain_word(const parser *p) {
    return p->token.kind == IR_TOKEN_WORD && !ir_word_is_reserved(p->token.at, p->token.n);
}

static inline bool take(parser *p, char c) {
    if (!at(p, c)) return false;
    next(p);
    return true;
}

static inline bool expect(parser *p, char c, const char *where) {
    if (take(p, c)) return true;
    return parse_expected(p, fu_format(p->m->arena, "'%c' %s", c, where));
}

static inline bool enter(parser *p) {
    if (p->depth < IR_MAX_NESTING) {
        p->depth++;
        return true;
    }
    AST_FAIL(p->m, FUSOR_ERROR_SYNTAX, p->token.loc, "lists and parentheses nest more than %d deep", IR_MAX_NESTING);
    return false;
}

static inline ast_name take_name(parser *p) {
    ast_name name = {ast_intern(p->m, p->token.at, p->token.n), p->token.loc};
    next(p);
    return name;
}

static inline bool at_literal(const parser *p) {
    return p->token.kind == IR_TOKEN_INTEGER || p->token.kind == IR_TOKEN_FLOAT || at_word(p, "inf") ||
           at_word(p, "nan") || at_word(p, "true") || at_word(p, "false");
}
#endif
