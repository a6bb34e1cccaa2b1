/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_LEX_H
#define IR_LEX_H
/* Tokens of the text form. The lexer runs one token ahead of the parser and stores none. */
#include "ir/types.h"

typedef enum ir_token_kind {
    IR_TOKEN_END,
    IR_TOKEN_ERROR,    /* no token: `text` is the message */
    IR_TOKEN_WORD,     /* a bare ident, reserved words too */
    IR_TOKEN_VALUE,    /* %ident; at, n are those of the ident */
    IR_TOKEN_FUNCTION, /* @ident */
    IR_TOKEN_INTEGER,
    IR_TOKEN_FLOAT,  /* also "-inf"; "inf" and "nan" are words */
    IR_TOKEN_STRING, /* text, n: the decoded string */
    IR_TOKEN_ARROW,
    IR_TOKEN_PUNCTUATION /* `punctuation` is the character */
} ir_token_kind;

typedef struct ir_number {
    int64_t i;      /* INTEGER: the value where range == IR_RANGE_I64, its bits where IR_RANGE_U64 */
    double f;       /* nearest double, of integers too */
    int8_t residue; /* sign of (the written value - f): narrower types than f64 then still round once */
    enum { IR_RANGE_I64, IR_RANGE_U64, IR_RANGE_NONE } range;
} ir_number;

typedef struct ir_token {
    ir_token_kind kind;
    char punctuation;
    bool starts_line; /* nothing but white space before it on its line */
    fu_loc loc;
    const char *at; /* in the source text (VALUE, FUNCTION: after the sigil); not NUL-terminated */
    uint32_t n;
    const char *text; /* STRING, ERROR: arena */
    ir_number number;
} ir_token;

typedef struct ir_lexer {
    fu_arena *arena;
    const char *p, *end;
    fu_loc loc; /* of *p */
    bool at_line_start;
    bool after_operand; /* an operand has ended just before p: '-' is an operator */
} ir_lexer;

void ir_lex_init(ir_lexer *x, fu_arena *a, const char *text, size_t length);
void ir_lex_next(ir_lexer *x, ir_token *out);
bool ir_token_is(const ir_token *t, const char *word); /* a WORD of that spelling */
bool ir_word_is_reserved(const char *at, size_t n);    /* as a bare word */
bool ir_is_ident(const char *text);                    /* may follow '%' */
#endif
