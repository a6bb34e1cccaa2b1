/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_CALL_H
#define IR_CALL_H
/* What a call means for sizes; build.c checks calls with it, flatten.c inlines by it, so both agree. */
#include "ir/graph.h"

/* Finds the size in `g` of each dim symbol of `callee` when called with args (their nodes in g; fewer than parameters
 * where the rest have sources): map has ir_size_symbol_count(callee->sizes) entries. A size that only the file behind a
 * left-out parameter tells becomes the symbol "callee.K" of g, which that parameter binds once flatten.c has made it
 * one of g. demand: what the callee needs (equal sizes, its own checks, which hold those of its calls) becomes checks
 * of g with the call's name= and loc=, or an error at its place where it cannot hold. The front end asks for it; a
 * graph that it made has those checks. */
fusor_status ir_call_bind(ir_graph *g, const ir_graph *callee, uint32_t n_args, const ir_id *arg, const ir_node *call,
                          bool demand, ir_size *map);
/* The name of a left-out parameter's symbol or parameter in the caller: "callee.name"; names of inner calls stay. */
const char *ir_call_name(fu_arena *a, const ir_graph *callee, const char *name, bool is_inner);
#endif
