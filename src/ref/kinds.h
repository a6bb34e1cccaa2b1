/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef REF_KINDS_H
#define REF_KINDS_H
/* What the files of the reference evaluator share: element access, attributes, and a walk over strided positions. */
#include "ref/interp.h"
#include <string.h>

/* One node being evaluated. */
typedef struct ref_call {
    const ir_graph *g;
    fu_error *e;
    const ir_node *n;
    const ref_tensor *in;
    ref_tensor *out;
    const int64_t *symbols;
} ref_call;

/* A located message where the node has a place in a text, else a plain one. */
#define REF_FAIL(c, status, ...)                                                                                       \
    ((c)->g->source && (c)->n->loc.line ? FU_FAIL_AT((c)->e, (status), (c)->g->source, (c)->n->loc, __VA_ARGS__)       \
                                        : FU_FAIL((c)->e, (status), __VA_ARGS__))

static inline ir_bits ref_get(const ref_tensor *t, int64_t i) {
    uint16_t h;
    uint32_t w;
    uint64_t d;
    switch (ir_dtypes[t->dtype].bytes) {
    case 1: return ((const uint8_t *)t->data)[i];
    case 2: memcpy(&h, (const char *)t->data + 2 * i, 2); return h;
    case 4: memcpy(&w, (const char *)t->data + 4 * i, 4); return w;
    default: memcpy(&d, (const char *)t->data + 8 * i, 8); return d;
    }
}

static inline void ref_put(ref_tensor *t, int64_t i, ir_bits b) {
    uint16_t h = (uint16_t)b;
    uint32_t w = (uint32_t)b;
    switch (ir_dtypes[t->dtype].bytes) {
    case 1: ((uint8_t *)t->data)[i] = (uint8_t)b; break;
    case 2: memcpy((char *)t->data + 2 * i, &h, 2); break;
    case 4: memcpy((char *)t->data + 4 * i, &w, 4); break;
    default: memcpy((char *)t->data + 8 * i, &b, 8);
    }
}

static inline int64_t ref_int(ir_dtype t, ir_bits b) { /* integers and bool; u64 as its two's complement */
    unsigned s = 64u - 8u * ir_dtypes[t].bytes;
    return ir_is_signed(t) ? (int64_t)(b << s) >> s : (int64_t)b;
}

/* Stores a real number in any element type: one rounding to floats, saturating truncation to integers. */
void ref_put_real(ref_tensor *t, int64_t i, long double v);

/* Attributes by name, defaults filled in. A name that the op lacks reads as absent. */
const ir_attr *ref_attr(const ir_node *n, const char *name); /* NULL where not written */
int64_t ref_attr_int(const ir_node *n, const char *name);    /* the default where not written */
/* The axes of a list or single-axis attribute as a bit mask over `rank`; not written: `absent`. */
fusor_status ref_attr_axes(const ref_call *c, const char *name, int rank, uint32_t absent, uint32_t *mask_out);

/* Visits every position of dim[0..rank) in row-major order, an innermost row at a time: `inner` positions from
 * offset[k] on, step[k] apart, for each of n operands. Empty shapes give no row. */
enum { REF_WALK_MAX = 4 };
typedef struct ref_walk {
    int rank, n;
    int64_t dim[IR_MAX_RANK], at[IR_MAX_RANK];
    int64_t stride[REF_WALK_MAX][IR_MAX_RANK];
    int64_t offset[REF_WALK_MAX], step[REF_WALK_MAX], inner;
    bool started;
} ref_walk;
void ref_walk_init(ref_walk *w, int n, int rank, const int64_t *dim); /* strides are 0 until set */
bool ref_walk_next(ref_walk *w);
void ref_strides(int rank, const int64_t *dim, int64_t *stride_out); /* contiguous row-major */

fusor_status ref_reduce(const ref_call *c);
fusor_status ref_argreduce(const ref_call *c);
fusor_status ref_row(const ref_call *c);
fusor_status ref_contract(const ref_call *c);
fusor_status ref_scan(const ref_call *c);
fusor_status ref_norm(const ref_call *c);
fusor_status ref_move(const ref_call *c);
fusor_status ref_index(const ref_call *c);
fusor_status ref_random(const ref_call *c);
fusor_status ref_window(const ref_call *c);
fusor_status ref_quantize(const ref_call *c);
/* error: bounds of the result's elements, added to, from those of the operands (in_error[k], NULL: exact) with half a
 * unit u in the last place of 1 in the accumulation type; NULL: only the values. */
fusor_status ref_cell(const ref_call *c, const double *const *in_error, double *error, double u);
fusor_status ref_conv(const ref_call *c);
fusor_status ref_einsum(const ref_call *c);
fusor_status ref_einsum_products(const ref_call *c,
                                 double *products); /* how many are added up for an element of the result */
fusor_status ref_attention(const ref_call *c);
#endif
