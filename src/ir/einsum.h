/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_EINSUM_H
#define IR_EINSUM_H
/* The subscripts of einsum, read: which label each axis has. */
#include "ir/graph.h"

/* Labels: 0-51 are A-Z, a-z in NumPy's order of implicit results; from IR_EINSUM_ELLIPSIS on the axes of "...", the
 * first one outermost. At most 8 axes are in an ellipsis, as a tensor has no more. */
enum { IR_EINSUM_ELLIPSIS = 52, IR_EINSUM_LABELS = IR_EINSUM_ELLIPSIS + IR_MAX_RANK };

typedef struct ir_einsum_term {
    uint8_t rank, label[IR_MAX_RANK];
} ir_einsum_term;
typedef struct ir_einsum {
    uint32_t n; /* operands */
    ir_einsum_term *in, out;
} ir_einsum;

/* Reads subscripts for n operands of these ranks. NULL, or what is wrong with them (arena text), and *where: at which
 * byte. */
const char *ir_einsum_read(fu_arena *a, const char *text, size_t length, uint32_t n, const uint8_t *rank,
                           ir_einsum *out, size_t *where);
/* Those of a node that ir_infer has accepted. */
ir_einsum ir_einsum_of(const ir_graph *g, fu_arena *a, const ir_node *n);

/* Labels as a set. */
typedef uint64_t ir_labels;
static inline char ir_einsum_letter(unsigned label) { return (char)(label < 26 ? 'A' + label : 'a' + label - 26); }

/* einsum_order.c: which two terms are multiplied next, until one is left. The result of step i is term n + i; it keeps
 * the labels that others or the result have. False: some product would have more than 8 labels. */
typedef struct ir_einsum_step {
    uint32_t a, b;
    ir_labels kept;
} ir_einsum_step;
bool ir_einsum_order(fu_arena *a, uint32_t n, const ir_labels *term, ir_labels out, const double *size,
                     ir_einsum_step *step);

/* A product of two that is one kernel as it is (plan_einsum.c): pass_expand makes these; each subscript is in the
 * result or in both operands, no operand has one twice. ir_lower_einsums (pass_expand_einsum.c): as matmuls of operands
 * that are put in order before, for targets whose kernels have one dim each for rows, columns and products. */
bool ir_einsum_is_product(const ir_node *n);
fusor_status ir_lower_einsums(fu_arena *a, fu_error *e, ir_graph **g);
#endif
