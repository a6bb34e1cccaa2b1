/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_expand_quantize.c: quantize and dequantize as element-wise operators that stay in lanes of 32 bits, but
 * for the quotients and products of f64.
 *
 *   quantize    cast(cast(clamp(round(x / scale), least - zero, most - zero), i32) + zero): what the sum would saturate
 *               to is clamped before it, where numbers are small and exact; a NaN passes the clamp and is cast to 0
 *   dequantize  cast(cast(x - zero) * scale), the difference in i64 where x is i32 */
#include "base/small.h"
#include "ir/expand.h"
#include <string.h>

bool ir_expands_quantize(const ir_node *n) { return ir_ops[n->op].kind == IR_KIND_QUANTIZE; }

/* Scale and zero point as they stand beside x: along the axis, or scalars. */
typedef struct beside {
    ir_node dims; /* 1 but along the axis */
    uint8_t mask; /* dims that they repeat along */
    unsigned axis;
    bool is_vector;
} beside;

static ir_id aligned(const ir_expand *c, const beside *b, ir_id p) {
    ir_graph *g = c->rw->to;
    if (!b->is_vector) return p;
    ir_node view = ir_expand_node(c, IR_OP_UNSQUEEZE, ir_at(g, p)->dtype, &b->dims, 1);
    ir_size axes[IR_MAX_RANK];
    uint32_t n = 0;
    for (unsigned d = 0; d < b->dims.rank; d++)
        if (d != b->axis) axes[n++] = ir_size_const(g->sizes, (int64_t)d);
    if (n == 0) return p;
    view.attr[0] = (ir_attr){.is_set = true, .list = axes, .n = n}; /* ORDER attrs_AXES */
    view.in = &p;
    return ir_add_raw(g, &view);
}

static ir_id clamp(const ir_expand *c, ir_id x, ir_id low, ir_id high, uint8_t mask) {
    ir_node n = ir_expand_node(c, IR_OP_CLAMP, ir_at(c->rw->to, x)->dtype, ir_at(c->rw->to, x), 3);
    ir_id in[3] = {x, low, high};
    uint8_t stretch[3] = {0, mask, mask};
    n.in = in;
    n.stretch = stretch;
    return ir_add_raw(c->rw->to, &n);
}

/* (v - zero) as f32, where zero is i32. */
static ir_id distance(const ir_expand *c, int64_t v, ir_id zero) {
    ir_graph *g = c->rw->to;
    const ir_node *z = ir_at(g, zero);
    ir_node n = ir_expand_node(c, IR_OP_SUB, FUSOR_I32, z, 2);
    ir_id in[2] = {ir_add_literal(g, FUSOR_I32, (ir_bits)(uint32_t)v), zero};
    uint8_t stretch[2] = {(uint8_t)((1u << z->rank) - 1), 0};
    n.in = in;
    n.stretch = stretch;
    return ir_expand_cast(c, ir_add_raw(g, &n), FUSOR_F32);
}

/* q = x / scale in f64, as it must be to be rounded once more: where it is not exact and its last bit is 0, the neighbour
 * on the side of the exact quotient, whose last bit is 1 (round to odd). mask: dims that the scale repeats along. */
static ir_id to_odd(const ir_expand *c, ir_id x, ir_id scale, ir_id q, uint8_t mask) {
    ir_graph *g = c->rw->to;
    ir_node fma = ir_expand_node(c, IR_OP_FMA, FUSOR_F64, ir_at(g, q), 3);
    ir_id in[3] = {ir_expand_1(c, IR_OP_NEG, q), scale, x};
    uint8_t stretch[3] = {0, mask, 0};
    fma.in = in;
    fma.stretch = stretch;
    const ir_id rest = ir_add_raw(g, &fma), zero = ir_add_literal(g, FUSOR_I64, 0),
                one = ir_add_literal(g, FUSOR_I64, 1);
    const ir_id of[3] = {q, rest, scale};
    ir_id bits[3];
    for (int i = 0; i < 3; i++) bits[i] = ir_expand_op(c, IR_OP_BITCAST, 1, &of[i], NULL, 0, FUSOR_I64);
    /* negative: |q| is too large */
    const ir_id sign = ir_expand_2(c, IR_OP_XOR, ir_expand_2(c, IR_OP_XOR, bits[0], bits[1], 0), bits[2], mask);
    const ir_id back = ir_expand_op(c, IR_OP_LT, 2, (ir_id[]){sign, zero}, NULL, 0, 0);
    const ir_id step =
        ir_expand_op(c, IR_OP_SELECT, 3, (ir_id[]){back, ir_add_literal(g, FUSOR_I64, ~(ir_bits)0), one}, NULL, 0, 0);
    const ir_id last = ir_expand_op(c, IR_OP_AND, 2, (ir_id[]){bits[0], one}, NULL, 0, 0);
    const ir_id is_even = ir_expand_op(c, IR_OP_EQ, 2, (ir_id[]){last, zero}, NULL, 0, 0);
    const ir_id size = ir_expand_1(c, IR_OP_ABS, rest), none = ir_add_literal(g, FUSOR_F64, 0);
    const ir_id has_rest = ir_expand_op(c, IR_OP_GT, 2, (ir_id[]){size, none}, NULL, 0, 0); /* no NaN */
    const ir_id is_moved = ir_expand_op(c, IR_OP_AND, 2, (ir_id[]){is_even, has_rest}, NULL, 0, 0);
    const ir_id moved = ir_expand_op(c, IR_OP_ADD, 2, (ir_id[]){bits[0], step}, NULL, 0, 0);
    const ir_id odd = ir_expand_op(c, IR_OP_BITCAST, 1, &moved, NULL, 0, FUSOR_F64);
    return ir_expand_op(c, IR_OP_SELECT, 3, (ir_id[]){is_moved, odd, q}, NULL, 0, 0);
}

ir_id ir_expand_quantize(const ir_expand *c, const ir_node *n) {
    ir_graph *g = c->rw->to;
    const ir_attr *axis = ir_node_attr(n, "axis");
    beside b = {.dims = *n, .is_vector = axis->is_set, .axis = axis->is_set ? (unsigned)axis->integer : 0};
    for (unsigned d = 0; d < n->rank; d++) {
        if (b.is_vector && d == b.axis) continue;
        b.dims.dim[d] = ir_size_const(g->sizes, 1);
        if (!b.is_vector || !ir_size_is(g->sizes, n->dim[d], 1)) b.mask |= (uint8_t)(1u << d);
    }
    const ir_dtype t = ir_at(g, n->in[1])->dtype == FUSOR_F64 ? FUSOR_F64 : FUSOR_F32; /* of the quotient or product */
    const ir_id scale = ir_expand_cast(c, aligned(c, &b, n->in[1]), t);
    const ir_id zero = ir_expand_cast(c, aligned(c, &b, n->in[2]), FUSOR_I32);
    if (n->op == IR_OP_DEQUANTIZE) {
        const ir_dtype wide = ir_dtypes[ir_at(g, n->in[0])->dtype].bytes < 4 ? FUSOR_I32 : FUSOR_I64;
        const ir_id from_zero = ir_expand_2(c, IR_OP_SUB, ir_expand_cast(c, n->in[0], wide),
                                            ir_expand_cast(c, zero, wide), b.mask);
        const ir_id y = ir_expand_2(c, IR_OP_MUL, ir_expand_cast(c, from_zero, t), scale, b.mask);
        return ir_expand_finish(c, ir_expand_cast(c, y, n->dtype), n->in[0]);
    }
    const int bits = 8 * ir_dtypes[n->dtype].bytes;
    const int64_t least = ir_is_signed(n->dtype) ? -(INT64_C(1) << (bits - 1)) : 0,
                  most = least + (INT64_C(1) << bits) - 1;
    const ir_id x = ir_expand_cast(c, n->in[0], t);
    ir_id quotient = ir_expand_2(c, IR_OP_DIV, x, scale, b.mask);
    if (t == FUSOR_F64) quotient = to_odd(c, x, scale, quotient, b.mask);
    ir_id y = ir_expand_1(c, IR_OP_ROUND, ir_expand_cast(c, quotient, FUSOR_F32));
    y = clamp(c, y, distance(c, least, zero), distance(c, most, zero), b.mask);
    y = ir_expand_2(c, IR_OP_ADD, ir_expand_cast(c, y, FUSOR_I32), zero, b.mask);
    return ir_expand_finish(c, ir_expand_cast(c, y, n->dtype), n->in[0]);
}
