/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* infer_conv.c: types and shapes of convolutions (kind CONV), as ONNX has them: x [N, C, spatial..] with weights [O, C
 * / groups, kernel..], or transposed with [C, O / groups, kernel..], and a bias [O]. The bias has the type that sums
 * are made in: that of floats, i32 for 8-bit operands, i64 for other integers. */
#include "base/small.h"
#include "ir/infer_parts.h"
#include "ir/window.h"

static const int64_t MOST = INT32_MAX;

static ir_size number(const ir_graph *g, int64_t v) { return ir_size_const(g->sizes, v); }

static fusor_status check_types(ir_graph *g, const ir_node *n) {
    const ir_node *x = ir_at(g, n->in[0]), *w = ir_at(g, n->in[1]);
    const bool mixed = n->op == IR_OP_CONV && ((x->dtype == FUSOR_U8 && w->dtype == FUSOR_I8) ||
                                               (x->dtype == FUSOR_I8 && w->dtype == FUSOR_U8));
    FU_TRY(check_class(g, n, 0, ir_ops[n->op].classes));
    FU_TRY(check_class(g, n, 1, ir_ops[n->op].classes));
    if (x->dtype != w->dtype && !mixed) {
        return TYPE_ERROR("%s is %s but the weights are %s; expected one type%s: cast one of them", label(g, n, 0),
                          type_text(g, x), type_text(g, w),
                          n->op == IR_OP_CONV ? " (u8 with i8 is the one mixed pair)" : "");
    }
    if (x->rank <= IR_SPATIAL_AT || x->rank > IR_SPATIAL_AT + IR_MAX_SPATIAL) {
        return SHAPE_ERROR("%s is %s; expected rank 3 to 5: [N, C, one to three spatial axes]", label(g, n, 0),
                           type_text(g, x));
    }
    if (w->rank != x->rank) {
        return SHAPE_ERROR("the weights are %s but %s is %s; expected rank %u: %s", type_text(g, w), label(g, n, 0),
                           type_text(g, x), x->rank,
                           n->op == IR_OP_CONV ? "[O, C / groups, kernel ..]" : "[C, O / groups, kernel ..]");
    }
    return FUSOR_OK;
}

/* Channels: those of x are groups * those of the weights; returns the channels of the result. */
static fusor_status channels(ir_graph *g, const ir_node *n, ir_size *out) {
    const ir_node x = *ir_at(g, n->in[0]), w = *ir_at(g, n->in[1]);
    const int64_t groups = attr_of(n, "groups")->integer;
    if (groups < 1 || groups > MOST)
        return SHAPE_ERROR("groups=%lld; expected 1 to %lld", (long long)groups, (long long)MOST);
    const ir_size count = number(g, groups);
    const bool is_plain = n->op == IR_OP_CONV;
    const ir_size taken = is_plain ? ir_size_mul(g->sizes, w.dim[1], count) : w.dim[0];
    if (!agree(g, n, x.dim[1], taken, label(g, n, 0), 1, "the weights", is_plain)) {
        return SHAPE_ERROR("%s is %s but the weights are %s, which with groups=%lld take %s channels; expected %s",
                           label(g, n, 0), type_text(g, &x), type_text(g, &w), (long long)groups, size_text(g, taken),
                           size_text(g, x.dim[1]));
    }
    const ir_size dealt = w.dim[0], whole = ir_size_mul(g->sizes, ir_size_div(g->sizes, dealt, count), count);
    if (groups > 1 && !agree(g, n, dealt, whole, "the weights", 0, "groups= times a number", 0)) {
        return SHAPE_ERROR("the weights are %s; expected dim 0 to be a multiple of groups=%lld", type_text(g, &w),
                           (long long)groups);
    }
    *out = is_plain ? w.dim[0] : ir_size_mul(g->sizes, w.dim[1], count);
    return FUSOR_OK;
}

/* Along spatial axis i: floor((size + pads - extent) / stride) + 1, or transposed (size - 1) * stride + extent -
 * pads. */
static ir_size places(ir_graph *g, const ir_node *n, uint32_t i, ir_size size, ir_size kernel, uint32_t spatial) {
    ir_sizes *s = g->sizes;
    const int64_t stride = ir_window_entry(g, n, "strides", i, 1), dilation = ir_window_entry(g, n, "dilations", i, 1);
    const int64_t pads = ir_window_entry(g, n, "pads", i, 0) + ir_window_entry(g, n, "pads", i + spatial, 0);
    const ir_size one = number(g, 1), reach = ir_size_mul(s, ir_size_sub(s, kernel, one), number(g, dilation));
    if (n->op == IR_OP_CONV) {
        const ir_size room = ir_size_sub(s, ir_size_add(s, size, number(g, pads - 1)), reach);
        return ir_size_add(s, ir_size_div(s, room, number(g, stride)), one);
    }
    const ir_size last = ir_size_mul(s, ir_size_sub(s, size, one), number(g, stride));
    return ir_size_add(s, ir_size_add(s, last, reach),
                       number(g, 1 + ir_window_entry(g, n, "output_padding", i, 0) - pads));
}

fusor_status infer_conv(ir_graph *g, ir_node *n) {
    FU_TRY(check_types(g, n));
    const ir_node x = *ir_at(g, n->in[0]), w = *ir_at(g, n->in[1]);
    const uint32_t spatial = x.rank - IR_SPATIAL_AT;
    const char *each = "one for each";
    FU_TRY(infer_window_list(g, n, "strides", spatial, 1, each));
    FU_TRY(infer_window_list(g, n, "dilations", spatial, 1, each));
    FU_TRY(infer_window_list(g, n, "pads", 2 * spatial, 0, "begins and ends"));
    if (n->op == IR_OP_CONV_TRANSPOSE) FU_TRY(infer_window_list(g, n, "output_padding", spatial, 0, each));
    copy_dims(n, &x);
    FU_TRY(channels(g, n, &n->dim[1]));
    for (uint32_t i = 0; i < spatial; i++) {
        const unsigned d = IR_SPATIAL_AT + i;
        int64_t count;
        const bool is_known = ir_size_is_const(g->sizes, w.dim[d], &count);
        if (!is_known || !count) {
            const char *what =
                fu_format(g->arena, "the weights are %s; expected a kernel of 1 or more", type_text(g, &w));
            if (is_known) return SHAPE_ERROR("%s", what);
            what = fu_format(g->arena, "%s: %s", ir_ops[n->op].name, what);
            ir_add_check(
                g,
                (ir_check){.a = w.dim[d], .b = number(g, 1), .kind = IR_CHECK_NOT_ZERO, .what = what, .loc = n->loc});
        }
        n->dim[d] = places(g, n, i, x.dim[d], w.dim[d], spatial);
        if (ir_size_is_const(g->sizes, n->dim[d], &count) && count < 0) {
            return SHAPE_ERROR("the kernel of the weights %s does not fit dim %u of %s with its pads", type_text(g, &w),
                               d, operand_text(g, n));
        }
    }
    const ir_dtype said = dtype_attr(n);
    n->dtype = FUSOR_I64;
    if (ir_is_float(x.dtype)) n->dtype = x.dtype;
    else if (ir_dtypes[x.dtype].bytes == 1) n->dtype = FUSOR_I32;
    if (n->n_in == 3) {
        const ir_node b = *ir_at(g, n->in[2]);
        if (b.dtype != n->dtype) {
            return TYPE_ERROR("the bias is %s; expected %s beside operands of %s", type_text(g, &b),
                              ir_dtypes[n->dtype].name, ir_dtypes[x.dtype].name);
        }
        if (b.rank != 1 || !agree(g, n, n->dim[1], b.dim[0], "the result", 1, "the bias", 0))
            return SHAPE_ERROR("the bias is %s; expected [%s], a number for each channel of the result",
                               type_text(g, &b), size_text(g, n->dim[1]));
    }
    if (said) n->dtype = said;
    return FUSOR_OK;
}
