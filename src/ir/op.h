/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_OP_H
#define IR_OP_H
/* Operators: enum and descriptors made from ops.def. Passes ask for properties; nothing outside the table's own
 * files lists operators. */
#include "ir/types.h"

typedef enum ir_op {
    IR_OP_NONE,
    IR_OP_PARAM,   /* a parameter of the function */
    IR_OP_LITERAL, /* a weak literal operand, its dtype decided: scalar */
    IR_OP_CALL,    /* %a, %b = @f(...): n results, each picked by IR_OP_RESULT; gone after ir_flatten */
    IR_OP_RESULT,  /* result `index` of a call */
#define EW(ID, ...)      IR_OP_##ID,
#define CONVERT(ID, ...) IR_OP_##ID,
#define REDUCE(ID, ...)  IR_OP_##ID,
#define OTHER(ID, ...)   IR_OP_##ID,
#include "ir/ops.def"
#undef EW
#undef CONVERT
#undef REDUCE
#undef OTHER
    IR_OP_COUNT
} ir_op;

typedef enum ir_kind {
    IR_KIND_CORE,
    IR_KIND_EW,
    IR_KIND_CONVERT,
    IR_KIND_REDUCE,
    IR_KIND_ARGREDUCE,
    IR_KIND_CONTRACT,
    IR_KIND_ROW,
    IR_KIND_SCAN,
    IR_KIND_NORM,
    IR_KIND_ATTENTION,
    IR_KIND_VIEW,
    IR_KIND_CREATE,
    IR_KIND_RANDOM,
    IR_KIND_WINDOW,
    IR_KIND_CONV,
    IR_KIND_EINSUM,
    IR_KIND_QUANTIZE,
    IR_KIND_CELL, /* one step of a recurrent network */
    IR_KIND_MOVE, /* elements of operand 0 (concat: of all) at other places */
    IR_KIND_INDEX /* places told by an operand of indices: the second, or the only one */
} ir_kind;
enum { IR_COMMUTES = 1, IR_EXACT = 2, IR_COND = 4, IR_COSTLY = 8, IR_CLOSED = 16 };

/* Attributes. A set is a NULL-terminated list of descriptors. */
typedef enum ir_attr_type {
    IR_ATTR_FLOAT,  /* a scalar parameter of an EW row: references and lowering see it as operand a, then b */
    IR_ATTR_NUMBER, /* any number that is no operand (correction, epsilon) */
    IR_ATTR_BOOL,
    IR_ATTR_INT,
    IR_ATTR_AXIS,
    IR_ATTR_AXES /* list of ints */,
    IR_ATTR_SIZES /* list of dimexpr; -1 allowed where the operator says so */,
    IR_ATTR_INTS /* list of ints */,
    IR_ATTR_INDICES /* list of dimexpr of any sign */,
    IR_ATTR_SIZE /* one dimexpr, as a list of one */,
    IR_ATTR_DTYPE,
    IR_ATTR_ENUM /* words: index of the word */,
    IR_ATTR_TEXT /* a string, as a list of its bytes; written as the first argument. integer: its place, line << 32 | column */
    ,
    /* an operand that is written as an attribute: value=0.5, value=%v. It comes after the positional operands, a row
     * has at most one, and in a node it is an operand; here is_set alone may tell that it was given by name */
    IR_ATTR_SCALAR
} ir_attr_type;
typedef struct ir_attr_info {
    const char *name;
    ir_attr_type type;
    bool is_required;
    double default_value; /* FLOAT, NUMBER, BOOL, INT, AXIS, ENUM; others: absent */
    const char *words;    /* ENUM: "none|tanh" */
} ir_attr_info;
static inline bool ir_attr_is_list(ir_attr_type t) {
    return t == IR_ATTR_AXES || t == IR_ATTR_INTS || t == IR_ATTR_SIZES || t == IR_ATTR_INDICES || t == IR_ATTR_SIZE ||
           t == IR_ATTR_TEXT;
}
enum { IR_MAX_ATTRS = 6, IR_MAX_LIST = 255 /* entries of a list */ };
/* Operands of a node. */
enum { IR_MAX_OPERANDS = 32767 };
/* Characters of a string: the subscripts of 512 operands of an einsum, whose order takes the cube of their number. */
enum { IR_MAX_TEXT = 1024 };

typedef struct ir_op_info {
    const char *name, *text; /* "relu"; one sentence */
    ir_kind kind;
    uint8_t min_in, max_in; /* max_in IR_ANY_NUMBER: no limit of its own */
    uint8_t n_results;      /* as nodes, one for each result with its `index`; 0: as many as sizes= has entries */
    uint8_t classes;        /* ir_class bits allowed for the main role */
    bool result_is_bool;
    uint32_t flags;
    const ir_attr_info *attrs; /* n_attrs of them */
    uint8_t n_attrs;
    uint8_t n_scalar_attrs;  /* leading IR_ATTR_FLOAT ones */
    double lo, hi, ulp, abs; /* EW */
    uint32_t kernel_types;   /* bit per fusor_dtype of the main role for which code generation has a lowering */
    ir_op combine;           /* REDUCE; IR_OP_NONE: composite */
    bool is_sum_like;        /* REDUCE */
} ir_op_info;
enum { IR_ANY_NUMBER = UINT8_MAX };
extern const ir_op_info ir_ops[IR_OP_COUNT];

/* The fast tier's bound for f32 and where there is another version than the precise one (fast.def); levels NULL:
 * nowhere. */
typedef struct ir_fast_info {
    const char *levels;
    double ulp, abs;
} ir_fast_info;
extern const ir_fast_info ir_fast[IR_OP_COUNT];
/* A REDUCE row that is made of others: it has no kernel of its own. */
static inline bool ir_is_composite_reduce(ir_op op) {
    return ir_ops[op].kind == IR_KIND_REDUCE && ir_ops[op].combine == IR_OP_NONE;
}

/* Operands of one role have one dtype, which literals among them take. Others have a role of their own. */
typedef enum ir_role {
    IR_ROLE_MAIN,
    IR_ROLE_CONDITION /* bool */,
    IR_ROLE_INDEX /* any integer type; literals: i64 */,
    IR_ROLE_SEED /* any integer type; literals: i64, from 2^63 up u64 */,
    IR_ROLE_QUANTIZED /* zero points and what is beside them */
} ir_role;
static inline ir_role ir_operand_role(ir_op op, unsigned i) {
    if (ir_ops[op].flags & IR_COND) return i == 0 ? IR_ROLE_CONDITION : IR_ROLE_MAIN;
    if (ir_ops[op].kind == IR_KIND_RANDOM) return IR_ROLE_SEED;
    if (ir_ops[op].kind == IR_KIND_QUANTIZE)
        return i == 2 || (i == 0 && !(ir_ops[op].classes & 1)) ? IR_ROLE_QUANTIZED : IR_ROLE_MAIN;
    if (ir_ops[op].kind == IR_KIND_ATTENTION)
        return i < 3 ? IR_ROLE_MAIN : IR_ROLE_INDEX; /* causal_offset; a mask is no literal */
    return ir_ops[op].kind == IR_KIND_INDEX && i == (ir_ops[op].max_in > 1) ? IR_ROLE_INDEX : IR_ROLE_MAIN;
}
static inline bool ir_op_takes(ir_op op, unsigned n_in) {
    return n_in >= ir_ops[op].min_in && (n_in <= ir_ops[op].max_in || ir_ops[op].max_in == IR_ANY_NUMBER);
}

/* What scatter's mode= does with an element and an update (in that order); IR_OP_NONE: the update replaces it. */
ir_op ir_scatter_combine(int64_t mode);
ir_op ir_op_find(const char *name, size_t n); /* IR_OP_NONE when there is none (PARAM ... RESULT are never found) */
/* For "did you mean": reduce_NAME, NAME_..., or a name spelt nearly so; NULL when there is none. */
const char *ir_op_nearest(const char *name);
#endif
