/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* scan.c: cumsum and cumprod. Floats run in long double, integers and bool wrap in 64 bits; each element is converted
 * to the type of the result once. */
#include "ref/kinds.h"
#include "ir/scalar.h"

fusor_status ref_scan(const ref_call *c) {
    const ref_tensor *x = c->in;
    const char *name = ir_ops[c->n->op].name;
    uint32_t mask;
    if (x->rank == 0) return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: the operand is a scalar; it has no axis", name);
    if (ref_count(x) != ref_count(c->out))
        return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: the result's shape is not the operand's", name);
    FU_TRY(ref_attr_axes(c, "axis", x->rank, 1u << (x->rank - 1), &mask));
    const int axis = __builtin_ctz(mask);
    const bool is_product = c->n->op == IR_OP_CUMPROD, is_float = ir_is_float(x->dtype);
    const bool exclusive = ref_attr_int(c->n, "exclusive") != 0, reverse = ref_attr_int(c->n, "reverse") != 0;
    int64_t outer = 1, len = x->shape[axis], inner = 1;
    for (int d = 0; d < x->rank; d++)
        if (d != axis) *(d < axis ? &outer : &inner) *= x->shape[d];
    for (int64_t line = 0; line < outer * inner; line++) {
        const int64_t first = line / inner * len * inner + line % inner;
        long double real = is_product;
        uint64_t integer = is_product;
        for (int64_t k = 0; k < len; k++) {
            const int64_t i = first + (reverse ? len - 1 - k : k) * inner;
            const ir_bits b = ref_get(x, i);
            const long double v = is_float ? ir_bits_to_double(x->dtype, b) : 0;
            const uint64_t n = is_float ? 0 : (uint64_t)ref_int(x->dtype, b);
            const long double real_after = is_product ? real * v : real + v;
            const uint64_t after = is_product ? integer * n : integer + n;
            if (is_float) ref_put_real(c->out, i, exclusive ? real : real_after);
            else ref_put(c->out, i, ir_scalar_cast(FUSOR_I64, c->out->dtype, exclusive ? integer : after));
            real = real_after;
            integer = after;
        }
    }
    return FUSOR_OK;
}
