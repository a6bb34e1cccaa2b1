/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_GRAPH_H
#define IR_GRAPH_H
/* A function as a graph of nodes. Every front end (text, builder, lazy tensors) makes this; passes rewrite it.
 *
 * Nodes are numbered from 1 in an order in which operands come before their users; 0 is "none". Nodes are hash-consed
 * where that is harmless (same op, operands, attributes and type give the same id) unless they carry metadata.
 * The builder is sticky: after an error ir_add returns 0 and later calls with operand 0 return 0 without a message of
 * their own; the error record holds the first. */
#include "ir/op.h"

typedef uint32_t ir_id;
enum { IR_MAX_RANK = 8 };

typedef struct ir_attr { /* value of one attribute of the node's op, in the order of ir_op_info.attrs */
    bool is_set;         /* written by the user; else default_value */
    double number;       /* FLOAT */
    int64_t integer;     /* BOOL, INT, AXIS, DTYPE, ENUM (word index) */
    ir_size *list;       /* where ir_attr_is_list; AXES and INTS: constants; arena */
    uint32_t n;
} ir_attr;

typedef struct ir_node {
    ir_op op;
    ir_dtype dtype;
    uint8_t rank;
    uint16_t n_in;
    uint16_t index; /* which PARAM; which result, of a RESULT and of operators that have several; IR_PLANES, IR_PLACES */
    ir_size dim[IR_MAX_RANK];
    ir_id *in;        /* n_in; arena */
    uint8_t *stretch; /* n_in masks: bit d = result dim d is a broadcast of this operand (decided by the text, kept by
                                       inlining: a named size that is 1 at the call does not stretch). Operand dims align at the right; dims that the
                                       operand lacks are stretched too. NULL = none. matmul: bits of batch dims only, aligned with the batch dims */
    ir_attr
        *attr; /* ir_ops[op].n_attrs, defaults filled in; NULL when the op has none. After infer axes are from 0 up, and
                                       ascending but for perm */
    ir_bits bits;                     /* LITERAL: the value in dtype */
    const char *callee;               /* CALL */
    fu_loc loc;                       /* of the statement's operator in the source; 0:0 for made nodes */
    const char *name;                 /* the value's name without '%'; may be NULL */
    const char *meta_name, *meta_loc; /* name="..." loc="..." of the statement; may be NULL */
    uint32_t group; /* composites marked by normalization: nodes of one composite share a number; 0 = none */
} ir_node;

typedef struct ir_param {
    const char *name;
    ir_id node;
    bool is_const;
    fu_loc loc;
    /* source: at most one */
    const char *path; /* "weights.npy", "model.npz:w1"; NULL = none. fu_loc source_loc is its place */
    fu_loc source_loc;
    bool has_value; /* a literal or a list: value holds its elements in row-major order, value_dim its shape */
    ir_bits *value;
    uint8_t value_rank;
    int64_t value_dim[IR_MAX_RANK];
} ir_param;

typedef struct ir_result {
    const char *name; /* declared, or derived (doc/language.md, Grammar); never NULL in a finished graph */
    ir_id node;
    int alias;        /* parameter index whose buffer it is written over; -1 = none */
    bool is_declared; /* the name was written in the text */
    fu_loc loc;
} ir_result;

/* What is checked when sizes are known (at the call): a = b; a >= 0; or a is not 0 unless b is (b: the elements of a
 * result, so that the maximum over an empty axis is an error only where there is a maximum to give). */
typedef struct ir_check {
    ir_size a, b;
    enum { IR_CHECK_EQUAL, IR_CHECK_NOT_NEGATIVE, IR_CHECK_NOT_ZERO } kind;
    const char *what; /* message text: "add: dim 1 of %x and dim 0 of %y" */
    fu_loc loc;
    const char *meta_name, *meta_loc; /* of the statement, or of the innermost call that has them */
    /* Where the user wrote it, for the printer: in a statement's or a result's type; COPIED from either of a function
     * that is called here. Others follow from the operators. */
    enum { IR_CHECK_INFERRED, IR_CHECK_ANNOTATION, IR_CHECK_RESULT, IR_CHECK_COPIED } origin;
} ir_check;

/* What the user asks of the plan: that a value is complete in memory before what reads it starts, or that two values
 * are computed in one kernel. Hints are beside the nodes, so that they are in no key; passes carry them to what became
 * of the nodes. */
typedef struct ir_hint {
    enum { IR_HINT_BARRIER, IR_HINT_FUSE_WITH } kind;
    ir_id node, with;             /* with: FUSE_WITH */
    fu_loc loc;                   /* of the attribute; 0:0: not from a text */
    const char *name, *with_name; /* of the values as the user wrote them, for messages; may be NULL */
} ir_hint;

typedef struct ir_graph {
    fu_arena *arena;         /* borrowed */
    fu_error *error;         /* borrowed */
    const fu_source *source; /* borrowed; may be NULL */
    const char *name;        /* function name without '@' */
    fu_loc loc;
    ir_sizes *sizes;
    fu_vec(ir_node) nodes; /* nodes.at[0] is unused */
    fu_vec(ir_param) params;
    fu_vec(ir_result) results;
    fu_vec(ir_check) checks;
    fu_vec(ir_hint) hints;
    fu_map unique;
    const struct ir_graph *as_written; /* what ir_normalize made it of; NULL: it is that still */
    bool packs_const; /* for a CPU: kernels pack operands that are `const` once; by ir_normalize alone */
    bool has_fma;     /* what it is compiled for adds to products without rounding these; by ir_normalize alone */
    bool failed;      /* sticky */
} ir_graph;

typedef struct ir_module {
    fu_arena *arena;
    fu_source source;
    fu_vec(ir_graph *) functions; /* in the order of the text */
} ir_module;

ir_graph *ir_graph_new(fu_arena *a, fu_error *e, const fu_source *src, const char *name);
static inline ir_node *ir_at(const ir_graph *g, ir_id id) { return &g->nodes.at[id]; }
ir_id ir_add_param(ir_graph *g, const char *name, ir_dtype t, int rank, const ir_size *dim, fu_loc loc);
ir_id ir_add_literal(ir_graph *g, ir_dtype t, ir_bits bits); /* a NaN: the one of arithmetic, whatever its bits */
/* Hints of `from` whose nodes became map[node] of g, those on dead nodes (map: 0) excepted. */
void ir_map_hints(ir_graph *g, const ir_graph *from, const ir_id *map);
void ir_add_check(ir_graph *g, ir_check check); /* unless it is there already, or always holds */
/* What the front ends hand to ir_add: operands may be weak literals, whose dtype infer decides. */
typedef struct ir_operand {
    ir_id node; /* 0 where it is a literal */
    enum { IR_LIT_NONE, IR_LIT_INT, IR_LIT_FLOAT, IR_LIT_BOOL } literal;
    int64_t i;
    double f; /* INT (also f; from 2^63 up i holds the bits of the uint64_t), FLOAT, BOOL (i) */
    fu_loc loc;
    const char *text; /* as written, for messages; may be NULL */
    int8_t residue;   /* sign of (the number as written - f): types narrower than f64 still round once */
} ir_operand;
/* The literal in dtype t, rounded once; *out untouched on failure, with a message that starts with `what` ("add",
 * "full", "return"). */
fusor_status ir_literal_bits(ir_graph *g, const char *what, const ir_operand *literal, ir_dtype t, ir_bits *out);
/* attr: array of ir_ops[op].n_attrs (is_set false = default), or NULL. to: CAST/BITCAST result type, else 0.
 * Decides literal types, checks types and shapes, computes the result, adds call-time checks. 0 after an error. */
ir_id ir_add(ir_graph *g, ir_op op, int n_in, const ir_operand *in, const ir_attr *attr, ir_dtype to, fu_loc loc);
/* Result `index` of an operator with several: a node of its own, like any other. ir_add makes result 0. */
ir_id ir_add_result(ir_graph *g, ir_op op, unsigned index, int n_in, const ir_operand *in, const ir_attr *attr,
                    fu_loc loc);
/* How many results the operator has with these attributes (filled in, or ir_op_info.n_attrs given ones). */
uint32_t ir_count_results(ir_op op, const ir_attr *attr);
/* Raw node for passes: everything given, hash-consed unless it has a name, a place or metadata; no inference (ir_verify
 * checks it). The node's arrays are copied. */
ir_id ir_add_raw(ir_graph *g, const ir_node *node);
static inline ir_operand ir_use(ir_id id) { return (ir_operand){.node = id}; }

/* infer.c: the only place that computes result types and shapes. Fills node->dtype/rank/dim/stretch; may append
 * checks. */
fusor_status ir_infer(ir_graph *g, ir_node *node, ir_dtype to);
/* Axes of operand 0 that a REDUCE, ARGREDUCE or ROW node works along, as a bit mask. */
uint32_t ir_node_axes(const ir_graph *g, const ir_node *n);
/* The type that a REDUCE, CONTRACT or ROW node accumulates in: the wider of dtype= and the default
 * (doc/numerics.md). */
ir_dtype ir_node_accumulator(const ir_graph *g, const ir_node *n);
/* A matmul that kernels compute as it is: its result is what its products are added up in, or of floats any float. */
bool ir_is_contraction(const ir_graph *g, const ir_node *n);
/* SLICE: dim d of the result, at i, is dim d of the operand at start[d] + i * step[d]. */
void ir_slice_map(ir_graph *g, const ir_node *n, ir_size *start, int64_t *step);
/* Where it starts along an axis if it goes forward and has elements; false: that is not known. */
bool ir_slice_start(ir_graph *g, const ir_node *n, int axis, int64_t *out);
/* TAKE, TAKE_ALONG, SCATTER: the message for an index that is out of range, as every evaluator words it. `at`: its
 * place in the row-major order of `base`, whose shape is `shape`: the operand of indices or what is behind views of it;
 * size: of the axis that it points into. */
fusor_status ir_fail_index(const ir_graph *g, fu_error *e, const ir_node *n, ir_id base, ir_bits index, int64_t at,
                           const int64_t *shape, int64_t size);
/* " (in \"layer3/ffn\", from model.py:12)": what name= and loc= of a statement say, for messages; "" where neither was
 * given. */
enum { IR_WHERE_MAX = 200 };
const char *ir_where(const char *name, const char *loc, char text[IR_WHERE_MAX]);
/* Number of elements. */
ir_size ir_node_count(ir_graph *g, const ir_node *n);
bool ir_same_attrs(const ir_node *x, const ir_node *y); /* of two nodes of one operator, both with attributes */
/* An IR_ATTR_TEXT as a string. */
const char *ir_attr_text(const ir_graph *g, fu_arena *a, const ir_attr *x);
/* One that is a list, of sizes or of constants; it keeps the pointer. */
static inline ir_attr ir_list_attr(ir_size *list, uint32_t n) {
    return (ir_attr){.is_set = true, .list = list, .n = n};
}
/* Attribute of that name, or NULL. */
const ir_attr *ir_node_attr(const ir_node *n, const char *name);
/* "f32[B, 784]" */
void ir_type_print(fu_str *out, const ir_graph *g, const ir_node *n);

/* view.c: which dims of a view (a node of kind IR_KIND_VIEW, or a slice) are which dims of its operand. */
/* A view that only drops or inserts sizes of 1, permutes or repeats; false = a reshape that splits or merges dims. */
bool ir_view_is_index_map(const ir_graph *g, const ir_node *n);
/* Are indices that n makes checked where its operand lies? A view of them in their order, or repeated. */
bool ir_view_is_checked_below(const ir_graph *g, const ir_node *n);
/* Perm of a transpose: dim of the result -> dim of the operand. */
void ir_view_perm(const ir_graph *g, const ir_node *n, int perm[IR_MAX_RANK]);
/* Result dim of an index-map view -> operand dim, or -1 (inserted or repeated). */
void ir_view_dims(const ir_graph *g, const ir_node *n, int from[IR_MAX_RANK]);
static inline int ir_axis(int64_t axis, int rank) { return (int)(axis < 0 ? axis + rank : axis); } /* -1: the last */

/* verify.c: every invariant, with a located message (FUSOR_ERROR_INTERNAL names the pass). */
fusor_status ir_verify(const ir_graph *g, fu_error *e, const char *after_pass);

/* parse.c: the whole text; all diagnostics; static errors of all functions. On failure *out is untouched.
 * Type errors, unknown operators (ir_op_nearest), planned operators, calls (existence, argument types, no recursion)
 * included. */
fusor_status ir_parse(fu_arena *a, fu_error *e, const char *name, const char *text, size_t length, ir_module **out);
/* "axis=1, keepdims=true" into attr (ir_ops[op].n_attrs entries, zeroed); the type argument of cast and bitcast into
 * *to; an IR_ATTR_SCALAR that is given into *scalar (else untouched). The sizes of g may be named. Messages show
 * `shown`, whose places are those of `text`; NULL: they say "<attributes>:1:6". */
fusor_status ir_parse_attrs(ir_graph *g, ir_op op, const char *text, const fu_source *shown, ir_attr *attr,
                            ir_dtype *to, ir_operand *scalar);
ir_graph *ir_module_find(const ir_module *m, const char *function); /* NULL: the first; NULL back: not there */
/* flatten.c: function with its calls inlined, as a new graph in arena a (names, locs and stretch masks kept; callee
 * checks come along). */
fusor_status ir_flatten(fu_arena *a, fu_error *e, const ir_module *m, const ir_graph *f, ir_graph **out);
/* print.c: canonical text. parse(print(m)) is the same module and prints the same bytes. */
void ir_print_module(fu_str *out, const ir_module *m);
void ir_print_graph(fu_str *out, const ir_graph *g); /* one function, no version line */
/* Only the statements that make these nodes. A printer has the names of its graph. */
typedef struct ir_printer ir_printer;
ir_printer *ir_printer_new(fu_arena *a, const ir_graph *g);
void ir_print_nodes(ir_printer *p, fu_str *out, const ir_id *id, int n);

/* A node that is kept though no result may need it: it indexes by what is a parameter's, and that is checked; a call,
 * which may. */
bool ir_checks_parameter(const ir_graph *g, const ir_node *n);
/* A whole copy in another arena, or of live nodes only after a pass (ids change, order kept). */
ir_graph *ir_graph_copy_live(fu_arena *a, const ir_graph *g);
/* A graph with g's name, source and sizes (same ids) and nothing in it: what a pass fills. Checks come along. */
ir_graph *ir_graph_like(fu_arena *a, const ir_graph *g);
uint32_t *ir_use_counts(fu_arena *a, const ir_graph *g); /* by id, by live nodes; results count as uses. 0 = dead */

/* Binds dim symbols from concrete parameter shapes and evaluates all checks; symbol_values has ir_size_symbol_count
 * entries. shape[p] is the shape of parameter p; ranks are already checked. Messages name the dim, both parameters and
 * both sizes. */
fusor_status ir_bind_sizes(const ir_graph *g, fu_error *e, const int64_t *const *shape, int64_t *symbol_values);
/* The same checks for sizes that are given without tensors; symbol_values -1: not given, and what depends on one is not
 * checked. */
fusor_status ir_check_sizes(const ir_graph *g, fu_error *e, const int64_t *symbol_values);
#endif
