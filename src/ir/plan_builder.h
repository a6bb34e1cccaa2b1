/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_PLAN_BUILDER_H
#define IR_PLAN_BUILDER_H
/* Shared by plan_build.c (the kernel of one cluster), plan_value.c (its values), plan_dims.c (its dims), plan_move.c
 * (slices, padding, concatenation, gathers in it) and the files of kinds.
 *
 * A chain is the list of index maps between a floating node and the cluster's space. Each link says, for each dim of
 * the node it starts at, which coordinate of the next link's node it reads: one dim with a start and a step, or a
 * computed index. */
#include "ir/plan_internal.h"

typedef struct chain chain;
struct chain {
    enum { CHAIN_TOP, CHAIN_STRETCH, CHAIN_VIEW, CHAIN_MOVE } kind;
    const chain *outer;
    int rank;                  /* dims of the node this chain starts at */
    int8_t coord[IR_MAX_RANK]; /* TOP: cluster dim of each; -1: size 1 */
    uint8_t mask;              /* STRETCH: dims of the consumer that repeat */
    ir_id view;                /* VIEW, MOVE */
    uint8_t operand;           /* MOVE */
};

enum { MAX_SPACE = IR_MAX_RANK + 3, MAX_TERMS = 8 };
/* A kernel's dim of a single element that no cluster dim is. */
enum { NO_DIM = MAX_SPACE - 1 };
typedef struct access {
    int buffer;
    bool is_output;
    ir_size stride[MAX_SPACE], offset;
} access;
typedef struct memo {
    ir_id id;
    const chain *at;
    uint16_t inst;
} memo;

typedef struct builder {
    planner *p;
    int c;
    int tail;   /* cluster whose program follows c's in the same kernel; 0 */
    ir_id band; /* while the tail of a convolution is made: what lies in the band; else 0 */
    int space;  /* cluster dims, plus k of a contraction */
    ir_size dim[MAX_SPACE];
    ir_size zero, one;
    ir_kernel *k;
    int window[2];           /* accesses that are the operands of a convolution */
    fu_vec(access) accesses; /* by kernel buffer */
    fu_vec(access) indexes;  /* IOTA: pseudo buffers that keep dims apart; buffer = instruction */
    fu_vec(access) places;   /* element numbers: strides, as of a buffer; made instructions when dims are known */
    fu_vec(memo) memos;
    fu_vec(const chain *) chains;
    fu_vec(ir_plan_scalar) scalars;
    fu_vec(ir_id) ops;
    fusor_status status;
} builder;

/* Is cluster c in this kernel? */
static inline bool is_mine(const builder *b, int c) { return c == b->c || (b->tail && c == b->tail); }
/* From this number on the index of an INDEX is one of builder.places, until dims are known. */
enum { PLACE = 1000 };

/* Where strides over a node's dims lead: element = offset + sum of stride * index + sum of term, where all guards
 * hold. */
typedef struct place {
    ir_size stride[MAX_SPACE], offset;
    bool is_unguarded; /* given: no guards are wanted */
    int n_terms, n_guards;
    uint16_t term[MAX_TERMS]; /* i64 index instruction, times ... */
    ir_size term_stride[MAX_TERMS];
    uint16_t guard[MAX_TERMS]; /* bool instructions */
} place;

/* plan_value.c */
uint16_t builder_value(builder *b, ir_id id, const chain *at);
uint16_t builder_fail(builder *b, const char *what);
uint16_t builder_inst(builder *b, ir_kinst inst);
uint16_t builder_scalar(builder *b, ir_plan_scalar s);
uint16_t builder_cast(builder *b, uint16_t x, ir_dtype t);
const chain *builder_chain(builder *b, const chain *c);
const chain *builder_top(builder *b, int rank, const int8_t *coord);
/* A sum over the kernel's dims, which are known last, as i64. Until then an INDEX of no dim stands for it (PLACE +
 * number). */
uint16_t builder_place(builder *b, const ir_size stride[MAX_SPACE]);
void builder_note(builder *b, ir_id id); /* for explain: the node is computed in this kernel */
/* Strides over a node's dims -> its elements over the cluster's space. */
bool builder_push(builder *b, const chain *at, const ir_size *in, place *out);

/* The element of node id, in memory, at these strides over the cluster's space: from element `offset` on, where the
 * guard (an instruction; -1: none) holds; else 0. */
uint16_t builder_load_guarded(builder *b, ir_id id, const ir_size stride[MAX_SPACE], ir_size offset, int guard);

/* Strides of a node's dims where it lies in memory without gaps. */
void builder_contiguous(builder *b, const ir_node *n, ir_size out[MAX_SPACE]);
/* A buffer of the kernel for one of the plan, at these strides over the cluster's space; its number. */
uint16_t builder_buffer(builder *b, int buffer, bool is_output, ir_dtype t, const ir_size stride[MAX_SPACE],
                        ir_size offset);
void builder_boundary(builder *b, ir_id id); /* for explain: the node comes from memory, and why */

/* plan_dims.c: the dims of the kernel, and strides along them of all that the step reads and writes; those that rows
 * are kept along. */
void builder_order_dims(builder *b, ir_step *st);
void builder_mark_kept(const builder *b, const ir_step *st);
/* plan_slide.c: values of a map that the next row needs again; st->stride is known. */
void plan_find_slide(const builder *b, const ir_step *st);
void plan_find_turns(const builder *b); /* inputs of a map whose elements take turns in memory: ir_kbuffer.behind */

/* plan_window.c: the space of a convolution, its instruction, the order and roles of its kernel's dims (how many). */
void plan_window_space(builder *b, const ir_node *n);
/* The form and the tile; again once the program is there, if that is not direct (ir_window_tile). */
void plan_window_tile(builder *b, const ir_node *n, bool is_direct);
uint16_t plan_window_value(builder *b, const ir_node *n);
int plan_window_order(builder *b, const ir_node *n, int order[MAX_SPACE + 1], char role[MAX_SPACE + 1]);

/* plan_contract.c: the space, instructions and tile of a contraction; the tile of one whose dims were ordered since
 * (an einsum); the columns of its last panel. */
void plan_contract_space(builder *b, const ir_node *n);
void plan_contract_tile(builder *b, const ir_step *st);
void plan_contract_forms(builder *b, const ir_step *st);

/* plan_einsum.c: the space of a product that is an einsum, order and roles of its dims; the coordinates of an operand in
 * its space. Are dims x and y one run in all that the kernel reads and writes? */
void plan_einsum_space(builder *b, const ir_node *n);
void plan_einsum_coord(builder *b, const ir_node *n, int operand, int8_t coord[IR_MAX_RANK]);
/* Of all dims m, n and k, before any are made one: < 0: not known. */
void plan_einsum_sizes(const builder *b, const ir_node *n, int64_t size[3]);
int plan_einsum_order(builder *b, const ir_node *n, int order[MAX_SPACE + 1], char role[MAX_SPACE + 1]);
bool builder_mergeable(const builder *b, int x, int y);

/* plan_attention.c: the dims that a cluster of attention has beyond its result; the instruction, its operands
 * evaluated. */
void builder_attention_space(builder *b, const ir_node *n);
uint16_t builder_attention(builder *b, const ir_node *n, ir_id id);

/* plan_move.c */
/* The instruction of an element-wise operator on operands of the main type. */
uint16_t builder_op(builder *b, ir_op op, ir_dtype t, int n, const uint16_t *in);
uint16_t builder_size(builder *b, ir_size s);
/* Coordinate of dim d of the node at `at`, i64. */
uint16_t builder_coordinate(builder *b, const chain *at, int d);
/* Through one link of kind MOVE: strides s over its operand's dims become t over its result's; offset, terms and guards
 * add up. */
void builder_move_link(builder *b, const chain *at, const ir_size *s, ir_size *t, place *out);
uint16_t builder_offset(builder *b, const place *where);
uint16_t builder_guard(builder *b, const place *where);
/* Index i of node id, as i64, from the end where it is negative. */
uint16_t builder_wrapped(builder *b, ir_id id, uint16_t i);
/* A node of kind MOVE at a chain. */
uint16_t builder_move(builder *b, ir_id id, const chain *at);
#endif
