/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_PLAN_INTERNAL_H
#define IR_PLAN_INTERNAL_H
/* Shared by plan.c (which values become which kernel), plan_cluster.c (nodes in clusters) and plan_build.c (the kernel
 * of one cluster).
 *
 * A cluster is one future kernel over a space of dims. A node is
 *   homed     computed inside one cluster, at coordinates of its space (epilogues, row values, reductions);
 *   floating  element-wise on parameters and materialized values: recomputed inside every cluster that uses it;
 *   materialized: stored to memory by its cluster, a leaf for every other cluster. */
#include "ir/plan.h"
#include "ir/window.h"

typedef enum cluster_kind {
    CLUSTER_MAP,
    CLUSTER_REDUCE,
    CLUSTER_CONTRACT,
    CLUSTER_SCAN,
    CLUSTER_WINDOW,
    CLUSTER_ATTENTION,
    CLUSTER_REFERENCE
} cluster_kind;
typedef struct cluster {
    cluster_kind kind;
    int rank;
    ir_size dim[IR_MAX_RANK + 1];
    uint32_t reduced; /* REDUCE: bit per dim */
    bool is_row;      /* REDUCE: element values use reduction results */
    bool can_row;     /* REDUCE: layout and space allow that */
    int column;       /* REDUCE, SCAN: dim vectorized in column form, -1 = inner form */
    int scanned;      /* SCAN: the dim */
    uint32_t merged;  /* REDUCE: reduced dims that are one with the next reduced dim; sizes of 1 have no bit */
    ir_id anchor;     /* matmul, first reduction, reference node, scatter; 0 for other maps */
    int n_nodes, n_leaves, n_reductions;
    bool is_building;
    int level, tier;      /* MAP of results: as node_info's */
    fu_vec(ir_id) stores; /* nodes stored, in order of decision */
    int tail, head;     /* CONTRACT: the REDUCE cluster that is computed in its kernel, WINDOW: the MAP cluster; of that
                           one: the contraction, or convolution; 0: none */
    int64_t band_rows;  /* WINDOW with a tail: ir_kernel.band_rows */
    fu_vec(ir_id) kept; /* CONTRACT with a tail: what that reads of it */
    int step;           /* number in the plan, once built; -1 */
    int n_parts;        /* MAP of a concatenation that lies where its parts are made: it has no step (plan_concat.c) */
    const ir_id *part;
} cluster;

typedef struct node_info {
    int home;             /* cluster number, 0 = floating or leaf */
    int avail;            /* largest cluster number it depends on, when it was placed */
    int level;            /* the same, through maps of values and in the end (plan_tiers.c) */
    int tier;             /* floating results of one shape, level and tier may share a map (plan_tiers.c) */
    int made_by;          /* cluster that stores it; 0 = not materialized */
    int buffer;           /* plan buffer that holds it; -1 */
    int as_result;        /* stored: 1 + number of the result that has its elements in its order, and its memory; 0 */
    ir_id part_of;        /* stored: the concatenation that it is a run of elements of, and lies in; 0 */
    ir_size part_at;      /* the first of them */
    bool must_store;      /* needs memory of its own whoever uses it */
    bool is_barrier;      /* a hint: stored, and no consumer is in its kernel */
    bool is_wanted;       /* a hint: rather computed again than cut from the other value */
    bool is_used_outside; /* homed, and some other cluster or the reference evaluator reads it */
    int8_t coord[IR_MAX_RANK]; /* homed: cluster dim of each dim; -1 where its size is 1 */
    ir_reason reason;          /* why it was cut from its consumers */
    int64_t taps,
        step; /* slices by which one composite reads it, and product of a slice's steps: a pool's windows overlap
                                   where there are more of them than that */
} node_info;

typedef struct planner {
    fu_arena *arena;
    fu_error *error;
    ir_graph *g;
    ir_plan *plan;
    const ir_plan_options *options;
    node_info *info;          /* by node id */
    int *saved;               /* by result: plan buffer with the old contents of the parameter it returns; -1 */
    fu_vec(cluster) clusters; /* [0] unused */
    bool *is_checked;         /* by node id: its indices have a step */
    const bool *goes_last;    /* by node id: ir_goes_last */
    const uint32_t *uses;     /* by node id: ir_use_counts */
    int8_t *fast_dim;         /* by node id: along which elements are adjacent, for the order of sums (plan_order.c) */
} planner;

/* Strides and an offset: costs nothing. */
static inline bool is_view(const ir_node *n) { return ir_ops[n->op].kind == IR_KIND_VIEW || n->op == IR_OP_SLICE; }
static inline bool is_leaf(const planner *p, ir_id id) {
    return p->g->nodes.at[id].op == IR_OP_PARAM || p->info[id].made_by != 0;
}
static inline bool is_move(const ir_node *n) {
    return ir_ops[n->op].kind == IR_KIND_MOVE || ir_ops[n->op].kind == IR_KIND_INDEX;
}

/* Limits of a kernel, and of an expression that is computed again wherever it is used. */
enum {
    MAX_CLUSTER_NODES = 220,
    MAX_CLUSTER_LEAVES = 32,
    MAX_SUBTREE = 96,
    MAX_SUBTREE_LEAVES = 24,
    MAX_REDUCTIONS = 12,
    MAX_MAP_RESULTS = 16,
};

/* ---- plan_cluster.c ---- */
int plan_new_cluster(planner *p, cluster_kind kind, ir_id anchor, int rank, const ir_size *dim);
void plan_store_in(planner *p, int c, ir_id id); /* c stores the node, unless some cluster does */
bool plan_is_result(const planner *p, ir_id id);
/* The value behind views, for questions of where it is computed. */
ir_id plan_behind_views(const planner *p, ir_id id);
/* A consumer outside its cluster reads this operand: homed values behind views must be stored. */
void plan_needs_memory(planner *p, ir_id id, ir_reason reason);
/* Opens a map cluster that stores a floating value. */
void plan_store_floating(planner *p, ir_id id, ir_reason reason);
typedef struct subtree {
    int n, leaves;
    int large; /* leaves that are not stretched to the value's size */
    bool is_costly;
} subtree;
subtree plan_measure_subtree(const planner *p, ir_id id);
bool plan_may_share(const planner *p, ir_id a,
                    ir_id b); /* a kernel: no_fuse leaves that to primitives of one composite */
/* Room for a node and the floating subtrees of its operands; takes it. */
bool plan_take_room(planner *p, int c, const ir_node *n);
bool plan_have_room(const cluster *a, const cluster *b);   /* in one kernel */
int plan_latest_avail(const planner *p, const ir_node *n); /* the largest cluster that its operands depend on */
/* Makes the node part of cluster c where it fits; else *why. The second: a view, of the cluster its operand is homed
 * in. */
bool plan_try_join(planner *p, ir_id id, int c, ir_reason *why);
bool plan_try_join_view(planner *p, ir_id id, ir_reason *why);
void plan_leave_to_readers(planner *p);

/* ---- plan_order.c ---- */
void plan_find_fast_dims(planner *p); /* before all others */
/* The dim of x along which column form has its lanes; -1: inner form. */
int plan_column_of(const planner *p, ir_id x, uint32_t axes);
/* The reduced dims of x that are one with the next reduced dim. */
uint32_t plan_merged_axes(const planner *p, ir_id x, uint32_t axes);
/* Does a value per element of cluster c let its merged dims be one? */
bool plan_keeps_merged(const planner *p, int c, ir_id id, const int8_t *coord);

/* ---- plan_memory.c ---- */
void plan_make_buffers(planner *p);
/* A result that is a parameter which another result overwrites: its old contents are saved before anything runs. */
void plan_save_parameters(planner *p);
void plan_write_in_place(planner *p);
void plan_write_over(ir_plan *plan); /* behind plan_lifetimes */
void plan_copy_results(planner *p);
void plan_lifetimes(ir_plan *plan);
/* INTERNAL where a step reads a temp that no step before it writes. */
fusor_status plan_check_made(const ir_plan *plan, fu_arena *arena, fu_error *e);
/* Gives a literal that something reads from memory a buffer; nothing for other nodes. */
void plan_literal_buffer(planner *p, ir_id id);

/* ---- plan_concat.c ---- */
/* Concatenations that are there once their operands are: before buffers are made, and once they are. */
void plan_find_parts(planner *p);
void plan_place_parts(planner *p);

/* ---- plan_move.c ---- */
/* Dim of an operand along which dim d of a MOVE or take's result moves, unchanged; -1: it does not vary;
 * PLAN_DIM_MOVED: not at the same index. */
enum { PLAN_DIM_MOVED = -2 };
int plan_move_dim(ir_graph *g, const ir_node *n, int operand, int d);
int plan_axis_of(const ir_node *n);                        /* its attribute axis; 0 where it is not written */
int plan_padded_dims(const ir_graph *g, const ir_node *n); /* of a PAD: those with pads */
/* What lies behind views that only repeat the indices or put in dims of size 1: it is stored and checked, once. */
ir_id plan_index_base(const planner *p, ir_id id);
/* A step that checks the indices of node id, unless there is one. */
fusor_status plan_check_index(planner *p, ir_id id);
bool plan_has_index(const ir_node *n);
/* Indices of node n that are in range whatever they are made of (an unsigned minimum): neither stored nor checked. */
bool plan_index_is_certain(const planner *p, const ir_node *n);

/* ---- plan_window.c ---- */
/* What the kernel reads for the operands of a convolution: with axes, from within pads and through conversions
 * (weights: cast[0]). */
typedef struct plan_window_form {
    bool has_axes, is_by_channel, has_pairs; /* the form by channel has axes, as have words of bf16 */
    ir_features tiles;                       /* TILE_ form (ir_window_is_tiled): those that it uses; else 0 */
    int n_folded;                            /* of that: axes whose places count as channels */
    ir_tile tile;                            /* by channel */
    ir_id x, w, pad, cast[2];                /* 0: none */
    ir_id last; /* the transpose by which x, whose channels lie last, is read; 0: x is read as it is */
    int64_t begin[IR_MAX_SPATIAL];
} plan_window_form;
plan_window_form plan_window_form_of(const planner *p, const ir_node *n);
/* Is what its kernel reads, as things are, in memory, or computed by it? */
bool plan_window_reads_memory(const planner *p, const ir_node *n);

/* ---- plan_hint.c ---- */
/* Marks what hints ask for in p->info. */
void plan_take_hints(planner *p);
/* Is every hint met? Else an error at its place, with the reason why not. */
fusor_status plan_check_hints(planner *p);

/* ---- plan.c ---- */
bool plan_has_kernel(const planner *p, const ir_node *n);
bool plan_is_in_order(const ir_node *n); /* a view: the elements of its operand, in their order */

/* ---- plan_einsum.c ---- */
bool plan_einsum_has_rows(const planner *p, const ir_node *n); /* could be followed by reductions along its rows */
/* ---- plan_window.c ---- */
/* What the kernel of a convolution reads: operand i, or the halves that is converted from. */
ir_id plan_window_operand(const planner *p, const ir_node *n, int i);

/* ---- plan_tiers.c ---- */
/* Once clusters have their nodes: node_info.level. A value of a lower level than a cluster is there before it. */
void plan_find_levels(planner *p);
/* Which of the results that no cluster stores yet (by node) may share a map: their tiers. */
void plan_find_tiers(planner *p, const bool *is_floating);
/* Is a result of the class of this shape and level? Those of one class and tier may share a map. */
bool plan_is_of_class(const planner *p, ir_id id, int rank, const ir_size *dim, int level);

/* ---- plan_constant.c ---- */
/* Which constant a step packs once for all calls, as it is: its prepack_param. */
void plan_find_packed(planner *p, ir_step *st);
/* Those that it is computed of; and which steps need not run again, once what they make of bound constants is packed. */
void plan_find_constants(planner *p);

/* ---- plan_bands.c ---- */
/* Maps of rows that convolutions make become tails of their clusters. */
void plan_attach_bands(planner *p);

/* ---- plan_rows.c ---- */
/* Reductions along the rows of a contraction's result become tails of its cluster. */
void plan_attach_rows(planner *p);

/* ---- plan_build.c ---- */
/* Turns cluster c into a step of the plan, after those whose values it reads. Nothing when it is built already. */
fusor_status plan_build_step(planner *p, int c);
/* plan_direct.c: gives a contraction of small known sizes its direct form; its step is ready but for being pushed. */
void plan_make_direct(const planner *p, ir_kernel *k, ir_step *st);
#endif
