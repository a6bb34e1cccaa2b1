/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* infer_window.c: types and shapes of operators with sliding windows (kind WINDOW). The number of windows along an axis
 * is what ONNX says: those that start at multiples of the stride and lie within the padded axis; with ceil=true those
 * too that stick out behind it, if they start before the end padding. */
#include "base/small.h"
#include "ir/infer_parts.h"
#include "ir/window.h"
#include <string.h>

static const int64_t MOST = INT32_MAX; /* of any number in an attribute: products stay within 64 bits, kernels have room */

int64_t ir_window_entry(const ir_graph *g, const ir_node *n, const char *name, unsigned i, int64_t absent) {
    const ir_attr *a = ir_node_attr(n, name);
    int64_t v = absent;
    if (a && a->is_set && i < a->n) ir_size_is_const(g->sizes, a->list[i], &v);
    return v;
}

ir_window ir_window_of(const ir_graph *g, const ir_node *n) {
    ir_window w = {.n = (int)attr_of(n, "kernel")->n,
                   .is_ceil = attr_of(n, "ceil")->integer != 0,
                   .counts_pads = attr_of(n, "count_include_pad")->integer != 0};
    for (uint32_t i = 0; i < (uint32_t)w.n; i++)
        w.axis[i] = (ir_window_axis){.kernel = ir_window_entry(g, n, "kernel", i, 1),
                                     .stride = ir_window_entry(g, n, "strides", i, 1),
                                     .dilation = ir_window_entry(g, n, "dilations", i, 1),
                                     .begin = ir_window_entry(g, n, "pads", i, 0),
                                     .end = ir_window_entry(g, n, "pads", i + (uint32_t)w.n, 0)};
    return w;
}

/* A list of `count` numbers from `least` on, where it is given. */
fusor_status infer_window_list(ir_graph *g, const ir_node *n, const char *name, uint32_t count, int64_t least,
                               const char *per) {
    const ir_attr *x = attr_of(n, name);
    if (!x->is_set) return FUSOR_OK;
    if (x->n != count) {
        return SHAPE_ERROR("%s= has %u entries; expected %u, %s of the spatial axes of %s", name, x->n, count, per,
                           operand_text(g, n));
    }
    for (uint32_t i = 0; i < count; i++) {
        const int64_t v = ir_window_entry(g, n, name, i, 0);
        if (v < least || v > MOST) {
            return SHAPE_ERROR("entry %u of %s= is %lld; expected %lld to %lld", i, name, (long long)v,
                               (long long)least, (long long)MOST);
        }
    }
    return FUSOR_OK;
}

/* Windows along an axis: floor((padded - extent) / stride) + 1. With ceil the rounding is up, but no window starts at
 * size + begin or later; both are floor((size + begin + c) / stride) + 1, so it is the smaller c. */
static ir_size count_windows(ir_graph *g, const ir_window *w, const ir_window_axis *a, ir_size size) {
    const int64_t extent = (a->kernel - 1) * a->dilation + 1;
    int64_t c = a->end - extent;
    if (w->is_ceil) c = c + a->stride - 1 < -1 ? c + a->stride - 1 : -1;
    const ir_size first = ir_size_add(g->sizes, size, ir_size_const(g->sizes, a->begin + c));
    return ir_size_add(g->sizes, ir_size_div(g->sizes, first, ir_size_const(g->sizes, a->stride)),
                       ir_size_const(g->sizes, 1));
}

fusor_status infer_window(ir_graph *g, ir_node *n) {
    const ir_node x = *ir_at(g, n->in[0]);
    const ir_dtype said = dtype_attr(n);
    FU_TRY(check_class(g, n, 0, ir_ops[n->op].classes));
    if (x.rank <= IR_SPATIAL_AT || x.rank > IR_SPATIAL_AT + IR_MAX_SPATIAL) {
        return SHAPE_ERROR("%s is %s; expected rank 3 to 5: [N, C, one to three spatial axes]", label(g, n, 0),
                           type_text(g, &x));
    }
    if (said && said != x.dtype)
        return TYPE_ERROR("dtype=%s but %s is %s; cast the operand", ir_dtypes[said].name, label(g, n, 0),
                          type_text(g, &x));
    const uint32_t spatial = x.rank - IR_SPATIAL_AT;
    copy_dims(n, &x);
    n->dtype = x.dtype;
    if (!ir_node_attr(n, "kernel")) {
        for (unsigned d = IR_SPATIAL_AT; d < n->rank; d++) n->dim[d] = ir_size_const(g->sizes, 1);
        return FUSOR_OK;
    }
    FU_TRY(infer_window_list(g, n, "kernel", spatial, 1, "one for each"));
    FU_TRY(infer_window_list(g, n, "strides", spatial, 1, "one for each"));
    FU_TRY(infer_window_list(g, n, "dilations", spatial, 1, "one for each"));
    FU_TRY(infer_window_list(g, n, "pads", 2 * spatial, 0, "begins and ends"));
    const ir_window w = ir_window_of(g, n);
    for (uint32_t i = 0; i < spatial; i++) {
        ir_size *d = &n->dim[IR_SPATIAL_AT + i];
        int64_t count;
        const ir_size size = *d;
        *d = count_windows(g, &w, &w.axis[i], size);
        if (ir_size_is_const(g->sizes, *d, &count) && count < 0) {
            return SHAPE_ERROR("a window of %lld elements does not fit dim %u of %s with its pads",
                               (long long)((w.axis[i].kernel - 1) * w.axis[i].dilation + 1), IR_SPATIAL_AT + i,
                               operand_text(g, n));
        }
    }
    return FUSOR_OK;
}
