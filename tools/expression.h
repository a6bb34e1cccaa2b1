/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TOOL_EXPRESSION_H
#define TOOL_EXPRESSION_H
/* Infix expressions of `fusor eval`, made into a function @eval:
 *
 *   program  = { name "=" expr ";" } result { "," result } .        result = [ name "=" ] expr .
 *   expr     = operators of C and Python, loosest first: ?:  || or  && and  |  ^  &  == !=  < <= > >=  << >>  + -
 *              * / % @  unary - + ! ~ not  ** (to the right)  postfix .T
 *   primary  = number | name | "(" expr ")" | function "(" [ arg { "," arg } ] ")" .
 *   arg      = expr | dtype | string | attribute "=" value .           as in the language
 *
 * Every operator of the language is a function; sum prod mean var std all any are reduce_*, max and min are reduce_* of
 * one operand and maximum, minimum of two, where is select. A name that is no value defined before is a parameter. */
#include "options.h"

typedef struct expression_param {
    const char *name, *type /* "f32[N]" */;
    const char *argument; /* where the type is of one, that: "a:f32[N]"; else NULL */
    fu_loc loc;
} expression_param;
typedef fu_vec(expression_param) expression_params;
/* The parameters, in order of appearance; type is NULL. A syntax error is located in `text`, called "<expression>". */
fusor_status expression_find_params(fu_arena *a, fu_error *e, const char *text, expression_params *out);
/* The module of one function. Every parameter has a type; an error in one that an argument gave is located there. */
fusor_status expression_build(fu_arena *a, fu_error *e, const char *text, const expression_params *params,
                              ir_module **out);
#endif
