/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_BUILD_H
#define IR_BUILD_H
/* What build.c and build_node.c share: the function that is being built. Functions that return bool are false after an
 * error, which they have reported. */
#include "ir/ast.h"

typedef struct builder {
    ast *m;
    ast_func *f;
    ir_graph *g;
    uint32_t mark; /* of words that belong to this function */
    bool has_lost; /* a broken statement has unknown results: what is not known may be one of them */
} builder;

const char *build_type_text(builder *b, ir_id id);
/* *out 0: poisoned. */
bool build_find_value(builder *b, ast_word word, fu_loc loc, ir_id *out);
/* Moves an error that a graph function left in the scratch record. Always false. */
bool build_failed(builder *b, fu_loc loc);

/* build_node.c: result[i] of the statement; 0: poisoned. */
bool build_operator(builder *b, const ast_stmt *s, ir_id *result);
bool build_call(builder *b, const ast_stmt *s, ir_id *result);
#endif
