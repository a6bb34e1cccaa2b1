/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_PASS_H
#define IR_PASS_H
/* Graph-to-graph passes and their runner. Each pass is one file and one row of ir_passes; the runner verifies
 * (FUSOR_VERIFY), dumps (FUSOR_DEBUG=pass=NAME, "(unchanged)" when nothing changed) and times each. */
#include "ir/plan.h"

typedef struct ir_pass {
    const char *name, *text;
    fusor_status (*run)(fu_arena *a, fu_error *e, ir_graph **g); /* replaces *g where it changes anything */
} ir_pass;
extern const ir_pass ir_passes[]; /* ends with a NULL name; in pipeline order: expand, fold, simplify, cse, dce */

/* What every pass does: walk the nodes of `from` in order and make each anew in `to`, or something better in its place.
 * map[i] is what became of node i. begin adds the parameters; finish the results, and replaces *g if is_changed. */
typedef struct ir_rewrite {
    fu_arena *arena;
    const ir_graph *from;
    ir_graph *to;
    ir_id *map;
    bool is_changed;
} ir_rewrite;
void ir_rewrite_begin(ir_rewrite *rw, fu_arena *a, const ir_graph *g);
/* Node i with its operands mapped (a list of its own), to be changed and added. */
ir_node ir_rewrite_node(const ir_rewrite *rw, ir_id i);
void ir_rewrite_finish(ir_rewrite *rw, ir_graph **g);

/* The one way from a flattened graph to one that ir_plan_make takes, for the target and the manner of `options`:
 * attention in primitives is recognized where the plan fuses, then the pipeline runs. What it was made of stays with it
 * (as_written), so that a plan for another kind of target begins there again. */
fusor_status ir_normalize(fu_arena *a, fu_error *e, ir_graph **g, const ir_plan_options *options);
/* The pipeline alone, for a graph that ir_normalize has begun with. FUSOR_PASSES switches rows off by name. */
fusor_status ir_run_passes(fu_arena *a, fu_error *e, ir_graph **g);

/* pass_expand.c: softmax, log_softmax, reduce_mean as marked groups of primitives. */
fusor_status ir_pass_expand(fu_arena *a, fu_error *e, ir_graph **g);
/* pass_expand_move.c: n in terms of what kernels know, as new nodes of rw->to or an operand; false: it is that
 * already. */
bool ir_expand_move(ir_rewrite *rw, const ir_node *n, ir_id *out);
/* pass_fold.c: operators of literals only become literals (by the reference evaluation of one element, ir/scalar.h). */
fusor_status ir_pass_fold(fu_arena *a, fu_error *e, ir_graph **g);
/* pass_attention.c: attention written in primitives becomes the operator. For plans that fuse: before the pipeline. */
fusor_status ir_recognize_attention(fu_arena *a, fu_error *e, ir_graph **g);
/* pass_channels.c: images between convolutions get their channels last. For plans that fuse, on a CPU: likewise. */
void ir_put_channels_last(fu_arena *a, ir_graph **g);
/* pass_simplify.c: rules.def, bit-exact ones only (x*1, x/1, neg(neg x), double transposes, reshape chains ...). */
fusor_status ir_pass_simplify(fu_arena *a, fu_error *e, ir_graph **g);
/* pass_cse.c: equal nodes become one; canonical order of nodes and of commutative operands. */
fusor_status ir_pass_cse(fu_arena *a, fu_error *e, ir_graph **g);
fusor_status ir_pass_dce(fu_arena *a, fu_error *e, ir_graph **g);
#endif
