/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_PASS_H
#define IR_PASS_H
/* Graph-to-graph passes and their runner. Each pass is one file and one row of ir_passes; the runner verifies
 * (FUSOR_VERIFY), dumps (FUSOR_DEBUG=pass=NAME, "(unchanged)" when nothing changed) and times each. */
#include "ir/graph.h"

typedef struct ir_pass {
    const char *name, *text;
    fusor_status (*run)(fu_arena *a, fu_error *e, ir_graph **g);    /* replaces *g where it changes anything */
} ir_pass;
extern const ir_pass ir_passes[];       /* ends with a NULL name; in pipeline order: expand, fold, simplify, cse, dce */
extern const int ir_pass_count;

/* Runs the pipeline. FUSOR_PASSES switches rows off by name. */
fusor_status ir_run_passes(fu_arena *a, fu_error *e, ir_graph **g);

/* pass_expand.c: softmax, log_softmax, reduce_mean as marked groups of primitives. */
fusor_status ir_pass_expand(fu_arena *a, fu_error *e, ir_graph **g);
/* pass_fold.c: operators of literals only become literals (by the reference evaluation of one element, ir/scalar.h). */
fusor_status ir_pass_fold(fu_arena *a, fu_error *e, ir_graph **g);
/* pass_simplify.c: rules.def, bit-exact ones only (x*1, x/1, neg(neg x), double transposes, reshape chains, identity views ...). */
fusor_status ir_pass_simplify(fu_arena *a, fu_error *e, ir_graph **g);
fusor_status ir_pass_cse(fu_arena *a, fu_error *e, ir_graph **g);       /* and canonical order: commutative operands by a structural hash, not by id */
fusor_status ir_pass_dce(fu_arena *a, fu_error *e, ir_graph **g);
#endif
