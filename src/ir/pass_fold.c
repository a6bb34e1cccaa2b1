/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_fold: operators of literals (and of tensors filled with one) become literals, by the reference evaluation of one
 * element. Only rows whose result is the correctly rounded one: a folded exp would differ from a kernel's in its last
 * bits, and with it the bits of a program would depend on whether it was folded. Needs: types. Keeps: types. Breaks:
 * ids. Cost: O(nodes). */
#include "ir/pass.h"
#include "ir/scalar.h"
#include <string.h>

/* The one value that every element of x has, if known here. */
static bool constant_of(const ir_graph *g, ir_id x, ir_bits *out) {
    const ir_node *n = ir_at(g, x);
    if (n->op == IR_OP_FULL) n = ir_at(g, n->in[0]);
    if (n->op != IR_OP_LITERAL) return false;
    *out = n->bits;
    return true;
}

static bool evaluate(const ir_graph *g, const ir_node *n, ir_bits *out) {
    const ir_op_info *info = &ir_ops[n->op];
    ir_bits x[8];
    if (n->n_in == 0 || n->n_in > 8) return false;
    if (n->op == IR_OP_DIM) {
        int64_t size;
        const ir_attr *axis = ir_node_attr(n, "axis");
        if (!ir_size_is_const(g->sizes, ir_at(g, n->in[0])->dim[axis->integer], &size)) return false;
        *out = (ir_bits)size;
        return true;
    }
    for (unsigned i = 0; i < n->n_in; i++) {
        if (!constant_of(g, n->in[i], &x[i])) return false;
    }
    const ir_dtype t = ir_at(g, n->in[n->n_in - 1])->dtype; /* the main role comes last: conditions are first */
    if (n->op == IR_OP_CAST) {
        *out = ir_scalar_cast(t, n->dtype, x[0]);
        return true;
    }
    if (n->op == IR_OP_BITCAST) {
        *out = x[0];
        return true;
    }
    if (info->kind != IR_KIND_EW || !(info->flags & IR_EXACT)) return false;
    /* Halves are computed as if in f32, which rounds twice where one f32 rounding is not harmless. */
    if (n->op == IR_OP_FMA && ir_dtypes[t].bytes == 2) return false;
    /* Rows with scalar attributes round those first, in the width of the kernel: left to it. */
    if (info->n_scalar_attrs) return false;
    *out = ir_scalar_ew(n->op, t, x, NULL, 0);
    return true;
}

fusor_status ir_pass_fold(fu_arena *a, fu_error *e, ir_graph **g) {
    (void)e;
    ir_rewrite rw;
    ir_rewrite_begin(&rw, a, *g);
    for (ir_id i = 1; i < (*g)->nodes.n; i++) {
        if (rw.map[i]) continue;
        ir_node n = ir_rewrite_node(&rw, i);
        ir_bits bits;
        if (!evaluate(rw.to, &n, &bits)) {
            rw.map[i] = ir_add_raw(rw.to, &n);
            continue;
        }
        rw.is_changed = true;
        ir_id value = ir_add_literal(rw.to, n.dtype, bits);
        if (n.rank == 0) {
            rw.map[i] = value;
            continue;
        }
        /* ORDER attrs_FULL: shape, dtype */
        ir_attr attr[2] = {{.is_set = true, .list = n.dim, .n = n.rank}, {.is_set = true, .integer = n.dtype}};
        uint8_t stretch = (uint8_t)((1u << n.rank) - 1);
        n.op = IR_OP_FULL;
        n.n_in = 1;
        n.in = &value;
        n.stretch = &stretch;
        n.attr = attr;
        rw.map[i] = ir_add_raw(rw.to, &n);
    }
    ir_rewrite_finish(&rw, g);
    return FUSOR_OK;
}
