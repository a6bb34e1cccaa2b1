/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_ATTENTION_H
#define IR_ATTENTION_H
/* What the attributes and the last operands of attention mean. Operands: q, k, v, then a mask (bool or float), then
 * causal_offset= (an integer; without a mask, where the attribute is not set, told from one by that). Query i may see
 * key j if j <= i + offset (causal), and if i + offset - left <= j <= i + offset + right (window; -1: no bound). */
#include "ir/graph.h"

/* Offsets are brought between -LIMIT and LIMIT: sums with indices stay within 64 bits, and no key is kept that was
 * not. */
#define IR_ATTENTION_LIMIT (INT64_C(1) << 61)

/* Index of a node that was recognized in primitives (pass_attention.c): a row without a key is NaN, as its softmax is,
 * instead of 0. */
enum { IR_ATTENTION_EMPTY_IS_NAN = 1 };

typedef struct ir_attention {
    int mask, offset; /* operands; -1: none */
    bool is_causal, has_scale;
    int64_t left, right;   /* -1: no bound */
    double softcap, scale; /* softcap 0: none */
} ir_attention;
ir_attention ir_attention_of(const ir_graph *g, const ir_node *n);
#endif
