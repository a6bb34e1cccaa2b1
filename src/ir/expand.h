/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_EXPAND_H
#define IR_EXPAND_H
/* What the files of pass_expand share: making the primitives of one composite. A family of operators is a file
 * pass_expand_*.c, with one function that says whether a node is one of its own and what becomes of it. */
#include "ir/pass.h"

typedef struct ir_expand {
    ir_rewrite *rw;
    ir_node model; /* place, metadata and group of the nodes made */
} ir_expand;

/* A node like the model, attributes at their defaults; `dims` gives rank and dims. To be completed and added. */
ir_node ir_expand_node(const ir_expand *c, ir_op op, ir_dtype t, const ir_node *dims, unsigned n_in);
ir_id ir_expand_1(const ir_expand *c, ir_op op, ir_id x);
/* x op y over the dims of x; y is stretched along the dims of `mask`. */
ir_id ir_expand_2(const ir_expand *c, ir_op op, ir_id x, ir_id y, unsigned mask);
ir_id ir_expand_cast(const ir_expand *c, ir_id x, ir_dtype t); /* x where it has the type */
/* A literal of a float type. */
ir_id ir_expand_number(const ir_expand *c, ir_dtype t, double v);
/* x reduced over the axes of `mask` in type t, as the node `dims` is shaped. */
ir_id ir_expand_reduce(const ir_expand *c, ir_op op, ir_id x, uint32_t mask, bool keepdims, ir_dtype t,
                       const ir_node *dims);
/* Product of the sizes of x along the dims of `mask`, i64. */
ir_id ir_expand_count(const ir_expand *c, ir_id x, uint32_t mask);
/* An operator by its usual rules; what is new belongs to the composite. attr: its leading attributes, n_attrs of
 * them. */
ir_id ir_expand_op(const ir_expand *c, ir_op op, int n_in, const ir_id *in, const ir_attr *attr, unsigned n_attrs,
                   ir_dtype to);
ir_id ir_expand_transpose(const ir_expand *c, ir_id x, const int *perm); /* 0 where x is */
/* x by RESHAPE or BROADCAST_TO; x where it has the shape. */
ir_id ir_expand_shaped(const ir_expand *c, ir_op op, ir_id x, const ir_size *dim, unsigned rank);
/* x from start to end by steps along n axes. */
ir_id ir_expand_slice(const ir_expand *c, ir_id x, unsigned n, ir_size *start, ir_size *end, ir_size *step,
                      ir_size *axis);
/* A tensor of these dims, all elements v of type t. */
ir_id ir_expand_full(const ir_expand *c, ir_dtype t, ir_bits v, const ir_size *dim, unsigned rank);
/* The last node of a composite is the one that the user named. */
ir_id ir_expand_finish(const ir_expand *c, ir_id id, ir_id operand);

/* The families: what becomes of node n, its operands mapped already; 0: none of them. */
bool ir_expands_reduce(const ir_graph *g,
                       const ir_node *n); /* pass_expand_reduce.c: reductions, softmax family, norms */
ir_id ir_expand_reduction(const ir_expand *c, const ir_node *n);
bool ir_expands_random(const ir_graph *g, const ir_node *n); /* pass_expand_random.c */
ir_id ir_expand_random(const ir_expand *c, const ir_node *n);
bool ir_expands_window(const ir_node *n); /* pass_expand_window.c: pooling */
bool ir_expands_blocks(const ir_graph *g, const ir_node *n);
ir_id ir_expand_blocks(const ir_expand *c, const ir_node *n);
ir_id ir_expand_window(const ir_expand *c, const ir_node *n);
bool ir_expands_attention(const ir_node *n); /* pass_expand_attention.c */
ir_id ir_expand_attention(const ir_expand *c, const ir_node *n);
bool ir_expands_conv(const ir_graph *g, const ir_node *n); /* pass_expand_conv.c */
ir_id ir_expand_conv(const ir_expand *c, const ir_node *n);
/* Of a node of the graph as it was: one place, images whose channels are last. goes_last: ir_goes_last (window.h). */
bool ir_expands_last_channels(const ir_graph *g, const bool *goes_last, ir_id id);
ir_id ir_expand_last_channels(const ir_expand *c, const ir_node *n);
bool ir_expands_einsum(const ir_node *n); /* pass_expand_einsum.c */
ir_id ir_expand_einsum(const ir_expand *c, const ir_node *n);
bool ir_expands_matvec(const ir_graph *g, const ir_node *n); /* pass_expand_matvec.c: matmul with vectors */
ir_id ir_expand_matvec(const ir_expand *c, const ir_node *n);
/* Are m x n sums of k products better made element by element, since k and one of the others are few and one is many?
 * -1: not known by the text. */
bool ir_is_few_by_many(int64_t k, int64_t m, int64_t n);
/* a * b + y, in the type that sums are made in, as a contraction on this level adds: with fma where that has it. */
ir_id ir_expand_add_product(const ir_expand *c, ir_id a, ir_id b, ir_id y);
/* Of a node of the graph as it was: a product whose result is only wanted transposed. It becomes the product of the
 * transposed operands the other way round, whose rows are stored as they are made. uses: ir_use_counts; NULL: nothing is
 * transposed. */
const uint32_t *ir_uses_if_turned(fu_arena *a, const ir_graph *g);
bool ir_expands_turned(const ir_graph *g, const uint32_t *uses, ir_id id); /* pass_expand_turned.c */
ir_id ir_expand_turned(const ir_expand *c, const ir_node *n);
/* The softmax family and running sums of what is transposed: transposed themselves, of what that was made of. */
bool ir_expands_behind_transpose(const ir_graph *g, const ir_node *n);
ir_id ir_expand_behind_transpose(const ir_expand *c, const ir_node *n);
/* Matrices of many batches, each times a vector of its own, stay contractions up to so many rows and columns. */
enum { IR_SMALL_MATRIX = 12 };
bool ir_expands_quantize(const ir_node *n); /* pass_expand_quantize.c */
ir_id ir_expand_quantize(const ir_expand *c, const ir_node *n);
/* take and take_along whose indices are counted: the view that they are; 0: they are none (pass_expand_take.c). */
ir_id ir_expand_take(const ir_expand *c, const ir_node *n);
ir_id ir_expand_scatter(const ir_expand *c, const ir_node *n); /* likewise; a concatenation */
/* The sum of one_hot over its indices, a scatter; its product with a matrix, a take; 0: neither (pass_expand_hot.c). */
ir_id ir_expand_hot(const ir_expand *c, const ir_node *n);
/* take_along of a few elements of what is element-wise and reduces its rows; 0: it is none (pass_expand_pick.c). */
ir_id ir_expand_pick(const ir_expand *c, const ir_node *n);
bool ir_expands_cell(const ir_node *n); /* pass_expand_cell.c: recurrent */
ir_id ir_expand_cell(const ir_expand *c, const ir_node *n);
#endif
