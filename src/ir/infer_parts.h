/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_INFER_PARTS_H
#define IR_INFER_PARTS_H
/* Shared by the files of type rules (infer.c and infer_*.c) and by nothing else. Their short names are theirs only: the
 * linker sees the long ones. */
#include "ir/graph.h"

#define type_text     infer_type_text
#define size_text     infer_size_text
#define label         infer_label
#define class_text    infer_class_text
#define attr_of       infer_attr_of
#define attr_to_fix   infer_attr_to_fix
#define dtype_attr    infer_dtype_attr
#define agree         infer_agree
#define copy_dims     infer_copy_dims
#define fix_axis      infer_fix_axis
#define fix_axes      infer_fix_axes
#define operand_text  infer_operand_text
#define check_class   infer_check_class
#define broadcast     infer_broadcast
#define broadcast_but infer_broadcast_but
#define shape_attr    infer_shape_attr

/* ---- words: arena text ---- */
const char *type_text(ir_graph *g, const ir_node *n); /* "f32[B, 4]" */
const char *size_text(ir_graph *g, ir_size x);
const char *label(ir_graph *g, const ir_node *n, unsigned i); /* of operand i: "lhs %x", "operand 2" */
const char *operand_text(ir_graph *g, const ir_node *n);      /* "operand %x of type f32[4, 8]": for fix_axis */
const char *class_text(unsigned classes);
fusor_status infer_fail(ir_graph *g, const ir_node *n, fusor_status status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#define TYPE_ERROR(...)  infer_fail(g, n, FUSOR_ERROR_TYPE, __VA_ARGS__)
#define SHAPE_ERROR(...) infer_fail(g, n, FUSOR_ERROR_SHAPE, __VA_ARGS__)

/* ---- attributes ---- */
const ir_attr *attr_of(const ir_node *n, const char *name); /* never NULL: one that is not set */
ir_attr *attr_to_fix(const ir_node *n, const char *name);   /* NULL where the operator has none of that name */
ir_dtype dtype_attr(const ir_node *n);                      /* dtype= as written, or 0 */
/* An axis from -rank to rank - 1 made 0 to rank - 1. `of`: what the axis counts in. */
fusor_status fix_axis(ir_graph *g, const ir_node *n, int64_t *axis, unsigned rank, const char *of);
/* A list of axes made non-negative, without repeats; ascending where `sorted`. */
fusor_status fix_axes(ir_graph *g, const ir_node *n, ir_attr *x, const char *name, unsigned rank, const char *of,
                      bool sorted);
/* Sizes of shape= into n's dims. -1 is a size only where `inferred` takes its place (which starts as -1). */
fusor_status shape_attr(ir_graph *g, ir_node *n, int *inferred);

/* ---- types and shapes ---- */
fusor_status check_class(ir_graph *g, const ir_node *n, unsigned i, unsigned classes);
void copy_dims(ir_node *n, const ir_node *from);
/* Two sizes that have to agree: false where they provably do not (the caller words that), a check where it is not
 * known. */
bool agree(ir_graph *g, const ir_node *n, ir_size a, ir_size b, const char *who_a, unsigned dim_a, const char *who_b,
           unsigned dim_b);
/* NumPy's rule, decided by the text: only a missing dim or the constant 1 stretches. Operand i takes part with its
 * first part[i] dims; the result has `rank` dims. Fills n->dim[0..rank) and the stretch masks. */
fusor_status broadcast(ir_graph *g, ir_node *n, const unsigned *part, unsigned rank);
fusor_status broadcast_but(ir_graph *g, ir_node *n, const unsigned *part, unsigned rank,
                           unsigned skip); /* dims to leave alone */
/* The result's dims as such: no size past 64 bits or below 0, and a byte count that fits. */
fusor_status infer_finish(ir_graph *g, ir_node *n);

/* ---- the rules of other files: infer_move.c, infer_window.c, infer_quantize.c, infer_attention.c, infer_cell.c
 * ---- */
fusor_status infer_move(ir_graph *g, ir_node *n);
fusor_status infer_index(ir_graph *g, ir_node *n);
fusor_status infer_window(ir_graph *g, ir_node *n);
fusor_status infer_quantize(ir_graph *g, ir_node *n);
fusor_status infer_cell(ir_graph *g, ir_node *n);
fusor_status infer_attention(ir_graph *g, ir_node *n);
fusor_status infer_conv(ir_graph *g, ir_node *n);
fusor_status infer_einsum(ir_graph *g, ir_node *n);
/* infer_window.c: a list attribute of `count` numbers from `least` on, where it is given; a number of it, or
 * `absent`. */
fusor_status infer_window_list(ir_graph *g, const ir_node *n, const char *name, uint32_t count, int64_t least,
                               const char *per);
#endif
