/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_expand_random.c: random numbers as kernels make them: f32 or f64, from an i64 seed. Halves are the f32 values
 * rounded; a seed of another type has the same bits, extended as the type says. */
#include "ir/expand.h"
#include <string.h>

bool ir_expands_random(const ir_graph *g, const ir_node *n) {
    if (ir_ops[n->op].kind != IR_KIND_RANDOM) return false;
    return ir_is_half(n->dtype) || ir_at(g, n->in[0])->dtype != FUSOR_I64;
}

ir_id ir_expand_random(const ir_expand *c, const ir_node *n) {
    ir_id seed = ir_expand_cast(c, n->in[0], FUSOR_I64);
    ir_node r = *n;
    ir_attr attr[IR_MAX_ATTRS];
    if (ir_is_half(n->dtype)) r.dtype = FUSOR_F32;
    memcpy(attr, n->attr, ir_ops[n->op].n_attrs * sizeof *attr);
    attr[2] = (ir_attr){.is_set = true, .integer = r.dtype}; /* ORDER attrs_RANDOM: shape, seed, dtype */
    r.attr = attr;
    r.in = &seed;
    r.name = NULL;
    r.group = c->model.group;
    return ir_expand_finish(c, ir_expand_cast(c, ir_add_raw(c->rw->to, &r), n->dtype), seed);
}
