/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_attention.c: the one instruction of an attention kernel: the coordinates of its operands, and as scalars what
 * its attributes mean: scale, cap, and which keys a query may see. */
#include "base/small.h"
#include "ir/attention.h"
#include "ir/plan_builder.h"
#include <math.h>

enum { Q, K, V };

static ir_size heads_of(const builder *b, const ir_node *x) { return x->rank < 3 ? b->one : x->dim[x->rank - 3]; }

/* The heads of keys and values where several query heads share one; else 0. */
static ir_size shared_heads(const builder *b, const ir_node *n) {
    const ir_graph *g = b->p->g;
    const ir_size hq = heads_of(b, ir_at(g, n->in[Q]));
    ir_size h = heads_of(b, ir_at(g, n->in[K]));
    if (ir_size_is(g->sizes, h, 1)) h = heads_of(b, ir_at(g, n->in[V]));
    return hq == h || ir_size_is(g->sizes, hq, 1) || ir_size_is(g->sizes, h, 1) ? 0 : h;
}

/* Behind the result's dims: head size, keys, heads of keys. */
void builder_attention_space(builder *b, const ir_node *n) {
    const ir_graph *g = b->p->g;
    const ir_node *q = ir_at(g, n->in[Q]), *k = ir_at(g, n->in[K]);
    const ir_size heads = shared_heads(b, n);
    b->dim[b->space++] = q->dim[q->rank - 1];
    b->dim[b->space++] = k->dim[k->rank - 2];
    if (heads) b->dim[b->space++] = heads;
    const ir_target target = {b->k->level, b->p->options->features};
    const ir_dtype acc = ir_node_accumulator(g, n) == FUSOR_F64 ? FUSOR_F64 : FUSOR_F32;
    const ir_dot dot = ir_attention_dot(target, q->dtype, k->dtype, acc);
    b->k->tile = ir_attention_tile(b->k->level, acc, dot);
    b->k->features = dot ? ir_contract_features(target, q->dtype, k->dtype, acc) : 0;
}

/* An operand whose last two dims are dims `row` and `column` of the space, the third last `heads`. */
static uint16_t operand(builder *b, const ir_node *n, int i, int row, int column, int heads) {
    const ir_node *x = ir_at(b->p->g, n->in[i]);
    int8_t coord[IR_MAX_RANK];
    for (int d = 0; d < x->rank; d++) {
        const int from_end = x->rank - d;
        const int at = from_end == 1 ? column : from_end == 2 ? row : from_end == 3 ? heads : n->rank - from_end;
        coord[d] = ir_size_is(b->p->g->sizes, x->dim[d], 1) ? -1 : (int8_t)at;
    }
    return builder_value(b, n->in[i], builder_top(b, x->rank, coord));
}

static uint16_t real(builder *b, ir_dtype t, double v) {
    bool fits;
    return builder_scalar(b, (ir_plan_scalar){.dtype = t, .bits = ir_bits_from_double(t, v, &fits)});
}

static uint16_t integer(builder *b, int64_t v) {
    return builder_scalar(b, (ir_plan_scalar){.dtype = FUSOR_I64, .bits = (ir_bits)v});
}

/* 1 / sqrt(D) unless given; of a head without elements 1. */
static uint16_t scale_of(builder *b, const ir_node *n, const ir_attention *a, ir_dtype t) {
    const ir_node *q = ir_at(b->p->g, n->in[Q]);
    const ir_size size = q->dim[q->rank - 1];
    int64_t d;
    if (a->has_scale) return real(b, t, a->scale);
    if (ir_size_is_const(b->p->g->sizes, size, &d)) return real(b, t, d <= 1 ? 1 : 1 / sqrt((double)d));
    const uint16_t one = builder_op(b, IR_OP_MAXIMUM, FUSOR_I64, 2, (uint16_t[]){builder_size(b, size), integer(b, 1)});
    const uint16_t length = builder_cast(b, one, FUSOR_F64), root = builder_op(b, IR_OP_SQRT, FUSOR_F64, 1, &length);
    return builder_cast(b, builder_op(b, IR_OP_RECIPROCAL, FUSOR_F64, 1, &root), t);
}

/* causal_offset, within the limits. */
static uint16_t offset_of(builder *b, const ir_node *n, const ir_attention *a) {
    const ir_dtype t = ir_at(b->p->g, n->in[a->offset])->dtype;
    uint16_t x = builder_value(b, n->in[a->offset], builder_top(b, 0, NULL));
    if (t == FUSOR_U64) {
        const uint16_t most = builder_scalar(b, (ir_plan_scalar){.dtype = t, .bits = (ir_bits)IR_ATTENTION_LIMIT});
        x = builder_op(b, IR_OP_MINIMUM, t, 2, (uint16_t[]){x, most});
    }
    x = builder_cast(b, x, FUSOR_I64);
    if (t != FUSOR_I64) return x;
    x = builder_op(b, IR_OP_MINIMUM, t, 2, (uint16_t[]){x, integer(b, IR_ATTENTION_LIMIT)});
    return builder_op(b, IR_OP_MAXIMUM, t, 2, (uint16_t[]){x, integer(b, -IR_ATTENTION_LIMIT)});
}

/* The offset and a constant. */
static uint16_t bound(builder *b, const ir_node *n, const ir_attention *a, int64_t by) {
    if (a->offset < 0) return integer(b, by);
    const uint16_t x = offset_of(b, n, a);
    return by ? builder_op(b, IR_OP_ADD, FUSOR_I64, 2, (uint16_t[]){x, integer(b, by)}) : x;
}

uint16_t builder_attention(builder *b, const ir_node *n, ir_id id) {
    const ir_graph *g = b->p->g;
    const int rank = n->rank, head = rank - 3, m = rank - 2, e = rank - 1, d = rank, keys = rank + 1;
    const int key_head = shared_heads(b, n) ? rank + 2 : head;
    const ir_attention a = ir_attention_of(g, n);
    const ir_dtype t = ir_node_accumulator(g, n) == FUSOR_F64 ? FUSOR_F64 : FUSOR_F32;
    ir_kinst inst;
    memset(&inst, 0, sizeof inst);
    inst.op = IR_OP_ATTENTION;
    inst.dtype = n->dtype;
    inst.in[inst.n_in++] = operand(b, n, Q, m, d, head);
    inst.in[inst.n_in++] = operand(b, n, K, keys, d, key_head);
    inst.in[inst.n_in++] = operand(b, n, V, keys, e, key_head);
    inst.in[inst.n_in++] = scale_of(b, n, &a, t);
    if (n->index == IR_ATTENTION_EMPTY_IS_NAN) inst.variant |= IR_ATTENTION_NAN;
    if (a.softcap > 0) inst.variant |= IR_ATTENTION_CAP, inst.in[inst.n_in++] = real(b, t, a.softcap);
    if (a.mask >= 0) inst.variant |= IR_ATTENTION_MASK, inst.in[inst.n_in++] = operand(b, n, a.mask, m, keys, head);
    if (a.left >= 0) inst.variant |= IR_ATTENTION_LOW, inst.in[inst.n_in++] = bound(b, n, &a, -a.left);
    /* a window to the right of i is wider than causal's */
    if (a.is_causal || a.right >= 0)
        inst.variant |= IR_ATTENTION_HIGH, inst.in[inst.n_in++] = bound(b, n, &a, a.is_causal ? 0 : a.right);
    builder_note(b, id);
    return builder_inst(b, inst);
}
