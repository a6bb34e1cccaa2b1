/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* infer_quantize.c: types and shapes of quantize and dequantize (kind QUANTIZE): a float tensor and its scale of one
 * type, an integer tensor and its zero point of one type, a scale and a zero point for all elements or for each index
 * along axis=. */
#include "base/small.h"
#include "ir/infer_parts.h"

/* Scale and zero point: scalars, or as long as the axis. */
static fusor_status check_parameter(ir_graph *g, const ir_node *n, unsigned i, const ir_node *x, const ir_attr *axis) {
    const ir_node *p = ir_at(g, n->in[i]);
    const char *what = i == 1 ? "scale" : "zero point";
    if (!axis->is_set) {
        if (p->rank == 0) return FUSOR_OK;
        return SHAPE_ERROR("the %s, %s, is %s; expected a scalar, or axis= for one value an index", what,
                           label(g, n, i), type_text(g, p));
    }
    const unsigned d = (unsigned)axis->integer;
    if (p->rank == 1 && agree(g, n, x->dim[d], p->dim[0], label(g, n, 0), d, label(g, n, i), 0)) return FUSOR_OK;
    return SHAPE_ERROR("the %s, %s, is %s; with axis=%u expected %s elements in one dimension", what, label(g, n, i),
                       type_text(g, p), d, size_text(g, x->dim[d]));
}

fusor_status infer_quantize(ir_graph *g, ir_node *n) {
    const ir_node x = *ir_at(g, n->in[0]), scale = *ir_at(g, n->in[1]), zero = *ir_at(g, n->in[2]);
    const bool to_int = n->op == IR_OP_QUANTIZE;
    const ir_node *quantized = to_int ? &zero : &x;
    const unsigned at = to_int ? 2 : 0;
    ir_attr *axis = attr_to_fix(n, "axis");
    if (!ir_is_float(scale.dtype) || (to_int && x.dtype != scale.dtype)) {
        return to_int ? TYPE_ERROR("%s is %s and the scale %s; expected one float type for both", label(g, n, 0),
                                   type_text(g, &x), type_text(g, &scale))
                      : TYPE_ERROR("the scale is %s; expected f64, f32, f16 or bf16", type_text(g, &scale));
    }
    const bool fits = ir_is_int(quantized->dtype) &&
                      (ir_dtypes[quantized->dtype].bytes <= 2 || (!to_int && quantized->dtype == FUSOR_I32));
    if (!fits) {
        return TYPE_ERROR("%s is %s; expected i8, u8, i16%s u16%s", label(g, n, at), type_text(g, quantized),
                          to_int ? " or" : ",", to_int ? "" : " or i32");
    }
    if (!to_int && zero.dtype != x.dtype) {
        return TYPE_ERROR("%s is %s but the zero point %s; expected one type", label(g, n, 0), type_text(g, &x),
                          type_text(g, &zero));
    }
    const ir_dtype said = dtype_attr(n);
    if (said && to_int && said != zero.dtype)
        return TYPE_ERROR("dtype=%s but the zero point is %s; expected one type", ir_dtypes[said].name,
                          type_text(g, &zero));
    if (axis->is_set) FU_TRY(fix_axis(g, n, &axis->integer, x.rank, operand_text(g, n)));
    FU_TRY(check_parameter(g, n, 1, &x, axis));
    FU_TRY(check_parameter(g, n, 2, &x, axis));
    copy_dims(n, &x);
    n->dtype = to_int ? zero.dtype : scale.dtype;
    return FUSOR_OK;
}
