/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_REDUCE_COMMON_H
#define JIT_REDUCE_COMMON_H
/* What reduce kernels (both forms) and row kernels share: roles of the dims, addresses of rows and blocks, accumulators
 * and the tree over partial results; and the sweep over a block of the last r dim that both inner forms are made of.
 *
 * A value is of one of three levels: row (does not vary along any r dim), block (not along the last r dim), or element.
 * Row and block values are computed once, as scalars in the inner forms, and spread over the lanes before the loop:
 * nothing behind us moves invariant code out of loops. */
#include "jit/emit.h"

typedef struct red {
    emit *e;
    const ir_kernel *k;
    int n_p, r0, last, v; /* dims: p are 0..n_p-1, r are r0..last; v = -1: inner form */
    int along;            /* the dim of the lanes: last, or v */
    uint32_t r_mask;
    int n_reductions;
    int reduction[IR_KERNEL_MAX_INSTS]; /* instruction of reduction j */
    int number[IR_KERNEL_MAX_INSTS];    /* j of an instruction */
    uint32_t varies[IR_KERNEL_MAX_INSTS];
    int pass[IR_KERNEL_MAX_INSTS];
    bool is_element_store[IR_KERNEL_MAX_INSTS];
    bool has_access; /* a load has an offset or a guard */
    /* known from function entry on */
    LLVMValueRef rows, blocks, partials, columns;
    LLVMValueRef root[IR_KERNEL_MAX_BUFFERS];
    /* of the row and block being emitted */
    LLVMValueRef index[IR_KERNEL_MAX_DIMS]; /* along p and the outer r dims */
    /* address of the row's first element; e->base is this, or the block's */
    LLVMValueRef at_row[IR_KERNEL_MAX_BUFFERS];
    LLVMValueRef partial;           /* the block's number in the row */
    LLVMValueRef outer, begin, end; /* row-major number of the outer r index; range of the last r dim */
} red;

/* The place a body is emitted for: i along the last r dim, c along v; NULL = the value varies along neither. */
typedef struct red_at {
    red *r;
    LLVMValueRef i, c, mask;
} red_at;

/* A reduction's accumulator; index only of arg-reductions: i32 within a block, i64 in partial results. */
typedef struct red_acc {
    LLVMValueRef value, index;
} red_acc;

fusor_status red_init(emit *e, fu_error *err, red **out);
static inline bool red_is_row(const red *r, int inst) { return (r->varies[inst] & r->r_mask) == 0; }
static inline bool red_is_block(const red *r, int inst) { return (r->varies[inst] >> r->last & 1) == 0; }
bool red_is_arg(const red *r, int j);
bool red_is_last(const red *r, int j);  /* the last of equals wins */
ir_dtype red_type(const red *r, int j); /* of the accumulator */

/* ---- arithmetic on indices ---- */
bool red_constant(LLVMValueRef v, int64_t *out);
LLVMValueRef red_advance(emit *e, LLVMValueRef base, LLVMValueRef index,
                         LLVMValueRef stride);            /* base may be NULL = 0 */
LLVMValueRef red_product(const red *r, int from, int to); /* of the sizes of dims [from, to) */
void red_divide(emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef *quotient_out,
                LLVMValueRef *rest_out); /* a, b >= 0 */

/* ---- rows and blocks: set e->base to the addresses of row q, of block `partial` of it, and back ---- */
void red_enter_row(red *r, LLVMValueRef q);
void red_enter_block(red *r, LLVMValueRef partial);
void red_leave_block(red *r);
/* em_values' load: loads and indices at `user`, a red_at. */
LLVMValueRef red_load_value(emit *e, em_values *v, const ir_kinst *inst, void *user);

/* ---- accumulators, at the current width ---- */
red_acc red_identity(red *r, int j, LLVMValueRef index); /* index: what an accumulator of no element holds */
/* First index of `none` for accumulators whose elements are at `position`: never wins a tie. */
LLVMValueRef red_no_index(red *r, int j, LLVMValueRef position);
red_acc red_take(red *r, int j, red_acc acc, LLVMValueRef x, LLVMValueRef position,
                 LLVMValueRef mask); /* next element */
/* Extremes of floats, where several elements are taken in one step: the values alone (red_better: one instruction), and
 * beside them which lanes met a NaN, of two vectors by one comparison. red_take waits for the comparison each time.
 * (Maxima of 1e5 floats in L2, Zen 5: 0.7 of the time.) */
bool red_sets_nans_apart(const red *r, int j);
LLVMValueRef red_no_nans(red *r, int j);
LLVMValueRef red_add_nans(red *r, LLVMValueRef nans, LLVMValueRef a, LLVMValueRef b);
red_acc red_take_apart(red *r, int j, red_acc acc, LLVMValueRef x, LLVMValueRef mask, LLVMValueRef *nans);
red_acc red_put_nans(red *r, int j, red_acc acc, LLVMValueRef nans); /* what red_take would have */
red_acc red_merge(red *r, int j, red_acc a, red_acc b); /* two accumulators or partial results, any index type */
red_acc red_load(red *r, int j, LLVMValueRef at, LLVMValueRef index_at, ir_dtype index_type, LLVMValueRef mask);
void red_store(red *r, int j, red_acc acc, LLVMValueRef at, LLVMValueRef index_at, ir_dtype index_type,
               LLVMValueRef mask);
/* acc[0..IR_REDUCE_UNROLL) of the level's lanes, of which the first `elements` (up to all) took part: one scalar.
 * nans: those that were set apart, or NULL. */
red_acc red_halves(red *r, int j, red_acc *acc, LLVMValueRef nans, int64_t elements);
/* Its first steps, those between vectors: to one vector, acc[0]. What is in `nans` is still to be put there. */
void red_fold(red *r, int j, red_acc *acc, LLVMValueRef nans, int64_t elements);
/* Arg-reduction of the first `elements` lanes of some vectors, 1 to all of them and at most 64, at the level's lanes:
 * which (i32) holds the extreme value, or the first (last) NaN. Where whole rows fit, it needs a third of red_halves'
 * instructions. */
enum { RED_FIND_MAX = 8, RED_FIND_ELEMENTS = 64 };
red_acc red_find(red *r, int j, const LLVMValueRef *x, int64_t elements);
/* An arg-reduction's next IR_REDUCE_UNROLL vectors, lane by lane, from element `first` of the block on (i32 lanes),
 * which is what the accumulator holds then. NaNs apart: *nan is the first (last) group that has one, at first
 * red_no_nan. So the values make a chain of one instruction a group. red_with_nans: what red_take would have. */
red_acc red_take_group(red *r, int j, red_acc acc, const LLVMValueRef *x, LLVMValueRef first, LLVMValueRef *nan);
LLVMValueRef red_no_nan(red *r, int j);
red_acc red_with_nans(red *r, int j, red_acc acc, LLVMValueRef nan);
/* The greater (smaller) of two, by one instruction, for arg-reductions and extremes, where NaNs do not matter; and of
 * lanes. */
LLVMValueRef red_better(red *r, int j, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef red_extreme_lane(red *r, int j, LLVMValueRef x);
/* The mask of vector u of a group whose first `left` elements are there, and whose elements there are the bits of an
 * i64 (used at levels with masks). */
LLVMValueRef red_mask_of(emit *e, LLVMValueRef left, LLVMValueRef bits, int u);
LLVMValueRef red_bits_below(emit *e, LLVMValueRef n); /* n < 64 */
LLVMValueRef red_phi(emit *e, LLVMValueRef a, LLVMBasicBlockRef from_a, LLVMValueRef b, LLVMBasicBlockRef from_b);
LLVMValueRef red_lane_numbers(emit *e, LLVMTypeRef element, int from);

/* ---- inner form: partial results are 16 bytes, value then i64 index ---- */
LLVMValueRef red_slot(emit *e, LLVMValueRef base, LLVMValueRef number);
void red_store_partial(red *r, int j, red_acc acc, LLVMValueRef slot);
/* The tree over partials slot(0) ... in place; the result as a scalar of the instruction's dtype. */
LLVMValueRef red_tree(red *r, int j, LLVMValueRef slots);

/* ---- sweeps: what one pass computes per element ---- */
/* Memory that a sweep prefetches: of the element at `row` plus the index along the last r dim, contiguous. */
typedef struct red_ahead {
    LLVMValueRef row;
    int bytes; /* of an element */
} red_ahead;

typedef struct red_sweep {
    red *r;
    int pass;
    int n_acc, n_stores, n_kept;
    int *acc, *store, *kept; /* reduction numbers; instructions */
    bool is_needed[IR_KERNEL_MAX_INSTS];
    bool is_seed[IR_KERNEL_MAX_INSTS];    /* row or block value that element values use */
    bool is_loaded[IR_KERNEL_MAX_INSTS];  /* kept by an earlier pass */
    bool is_costly, has_arg;              /* has_arg: an accumulator carries an index */
    bool masks_rest;                      /* has_arg: what no whole group has is read under masks */
    struct red_sweep **find;              /* by acc: evaluates an arg-reduction's operand for red_locate, or NULL */
    LLVMValueRef *nan;                    /* by acc: of a search, what red_take_group has of NaNs */
    LLVMValueRef *nans;                   /* by acc: those set apart (red_sets_nans_apart); NULL: in the accumulators */
    LLVMValueRef *x;                      /* of the step emitted last: what it reduces, one per acc */
    LLVMValueRef (*vector)[RED_FIND_MAX]; /* straight code: all that red_find looks at, by acc */
    /* kept values */
    LLVMValueRef *kept_row;  /* by instruction: its row */
    LLVMValueRef *kept_step; /* column form, by instruction: elements from one of the row to the next, at each column */
    LLVMValueRef kept_at;    /* row-major number of element 0 of the last r dim */
    /* inner form */
    struct red_ahead *ahead; /* n_ahead: what is prefetched beside the element computed */
    int n_ahead;
    LLVMValueRef prefetches_ahead;       /* i1: does this row? */
    LLVMValueRef prefetches_stream;      /* i1; NULL: no (red_find_stream) */
    LLVMValueRef *memory, *index_memory; /* accumulators between steps, one area per acc */
    LLVMValueRef seed[IR_KERNEL_MAX_INSTS],
        seed_splat[IR_KERNEL_MAX_INSTS]; /* column form: seed is what lanes share, or NULL */
} red_sweep;

/* What is to be computed per element in one pass: reductions, element stores and kept values; NULL when nothing.
 * kept[inst]: row of a kept value (NULL array = none is kept). */
fusor_status red_sweep_new(red *r, int pass, LLVMValueRef *kept, fu_error *err, red_sweep **out);
/* One step: all values at a place (seeds given), then its stores; so an output may be the same memory as an input. */
typedef struct red_body {
    red_at at;
    em_values v, one;
} red_body;
void red_evaluate(red_sweep *s, red_body *b, red_at at, LLVMValueRef *seed);
void red_write(red_sweep *s, red_body *b);
/* For the sweep of a reduce kernel: does it prefetch its elements ahead? */
void red_find_stream(red_sweep *s);
/* Row values that the sweep needs, once; and the sweep over the block entered: partial results to slot[a]. */
void red_sweep_row(red_sweep *s, em_values *row);
void red_sweep_block(red_sweep *s, const em_values *row, LLVMValueRef *slot);
/* The same as one vector for each of the accumulators, red_fold's. */
void red_sweep_vectors(red_sweep *s, const em_values *row, LLVMValueRef *out);
/* The result of acc a from its partial results: the tree over slots `first` ...; the row is entered. Where partial
 * results of an arg-reduction know the place of the extreme value only roughly (s->find), it is looked for. */
LLVMValueRef red_result(red_sweep *s, int a, const em_values *row, LLVMValueRef first);
/* reduce_find.c: place = block * IR_REDUCE_BLOCK + element within the block. Of the IR_REDUCE_UNROLL vectors there, cut
 * off at the end of the block, the first (last) element that is `value`, or a NaN where value is one: its row-major
 * number. */
LLVMValueRef red_locate(red_sweep *s, const em_values *row, LLVMValueRef place, LLVMValueRef value);
/* A row of one partial result, of up to RED_SHORT groups, and one arg-reduction (red_finds_short): is it such a row,
 * without a NaN (i1)? Where it is, its place within the row. */
enum { RED_SHORT = 4 };
typedef struct red_short {
    red_sweep *s;
    LLVMValueRef extreme, whole, left, there; /* whole: elements of whole groups; left behind them, and as bits */
} red_short;
bool red_finds_short(const red *r, const red_sweep *s);
LLVMValueRef red_short_extreme(red_sweep *s, const em_values *row, red_short *out);
LLVMValueRef red_short_place(const em_values *row, red_short *w);
/* reduce_lanes.c: is all that a sweep needs read cheaply under a mask? */
bool red_masks_rest(const red *r, const red_sweep *s);
/* Values of the row and of the block entered that the sweep's elements use. */
void red_seeds(red_sweep *s, const em_values *row);
/* Row-level program and stores, at the current width, at v's place; results of reductions are in v->at. */
void red_finish(red *r, em_values *v, const red_at *at);

/* reduce_lanes.c: results of as many rows as lanes at once, in reduce kernels. Partial results of units [tile_begin,
 * tile_end) to slots, or (is_whole, or where it turns out that each row is one) the rows completely; for sweeps that
 * red_joins_units. And rows that are finished in vectors. */
LLVMValueRef red_is_one_partial(red *r);
bool red_joins_units(const red *r, const red_sweep *s);
bool red_joins_short(const red *r, const red_sweep *s); /* rather than red_short_rows */
void red_units(red *r, red_sweep *s, bool is_whole);
bool red_has_function_of_rows(const red *r);
void red_lanes_of_rows(red *r, red_sweep *s, LLVMValueRef begin, LLVMValueRef end, bool is_whole);

/* reduce_short.c: rows of few elements, known, of types and strides that suit; rows [begin, end) completely. */
bool red_is_short(const red *r);
void red_short_rows(red *r, LLVMValueRef begin, LLVMValueRef end);

/* reduce_column.c: the column form of reduce kernels; each makes what is between the entry of the phase and its end. */
void red_column_partials(red *r, red_sweep *s);
void red_column_finish(red *r);
#endif
