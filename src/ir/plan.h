/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_PLAN_H
#define IR_PLAN_H
/* The plan of a function: steps in order, buffers between them, and the reason for every boundary. Made by plan.c from
 * a normalized graph; a pure function of graph, options and level. Run by rt/exec.c. */
#include "ir/graph.h"
#include "ir/kernel.h"

typedef enum ir_storage {
    IR_STORE_INPUT,  /* parameter `index` of the function */
    IR_STORE_OUTPUT, /* result `index` */
    IR_STORE_TEMP,   /* memory of one call, reused by lifetime */
    IR_STORE_LITERAL, /* one element, `bits` */
    IR_STORE_BAND     /* no memory: rows of it lie in the scratch of the kernel that makes and reads it */
} ir_storage;
typedef struct ir_plan_buffer {
    ir_storage storage;
    int index;
    ir_dtype dtype;
    uint8_t rank;
    ir_size dim[IR_MAX_RANK]; /* contiguous, row-major */
    ir_bits bits;
    int first_step, last_step; /* lifetime of a temp: first step that writes, last that reads, with those of its parts */
    ir_id node;                /* whose value it holds */
    int part_of;     /* TEMP: a temp or output that it lies in, from element part_at on (plan_concat.c, or is_over); -1: in none */
    ir_size part_at;
    bool is_over; /* part_of, from 0 on, is what it is made of element by element, and nobody reads that afterwards */
} ir_plan_buffer;

typedef struct ir_plan_scalar {
    ir_dtype dtype;
    enum { IR_SCALAR_BITS, IR_SCALAR_SIZE } kind;
    ir_bits bits;
    ir_size size; /* SIZE: the value of a size expression, cast to dtype */
} ir_plan_scalar;

typedef enum ir_step_kind {
    IR_STEP_KERNEL,
    IR_STEP_REFERENCE, /* one node by the reference evaluator: no lowering for its operator or type */
    IR_STEP_CHECK, /* every element of buffer arg[0] is an index into an axis of size dim[0] of `node`, or an error,
                      if that has indices (dim[1], with what views repeat) */
    IR_STEP_COPY   /* buffer arg[0] to buffer arg[1], same bytes: a result that is a parameter, an aliased result */
} ir_step_kind;
typedef struct ir_step {
    ir_step_kind kind;
    ir_kernel *kernel;      /* KERNEL; arena */
    int n_args;             /* KERNEL: kernel->n_buffers; REFERENCE: operands then the result; CHECK: 1; COPY: 2 */
    int *arg;               /* plan buffer numbers */
    ir_size *offset;        /* KERNEL: first element of each buffer, in elements (0 mostly) */
    ir_size *dim;           /* KERNEL: n_dims sizes; CHECK: 2 */
    ir_size *stride;        /* KERNEL: n_buffers * n_dims strides in elements */
    ir_plan_scalar *scalar; /* KERNEL: n_scalars */
    ir_id node;             /* REFERENCE, CHECK */
    ir_id base;             /* CHECK: whose elements the buffer has: the indices, or what is behind views of them */
    ir_id *ops;             /* nodes computed in this step, for explain; n_ops */
    int n_ops;
    const char *reason; /* REFERENCE, COPY: why */
    /* contract: operand 1 is a bindable constant, window: operand 0: plan buffer number of the const parameter it is
     * read from alone, else -1 */
    int prepack_param;
    int *sources, n_sources; /* contract: all parameters that it is computed of, where it is (plan_constant.c) */
    fu_vec(int) serves;      /* steps that pack, once, all that this one makes */
} ir_step;

/* Why two kernels were not one. ORDER ir_reason: texts in plan_reason.c */
typedef enum ir_reason {
    IR_REASON_TWO_CONTRACTIONS, /* a contraction's result feeds another contraction */
    IR_REASON_CONTRACT_THEN_REDUCE,
    IR_REASON_REDUCE_OTHER_AXES, /* consumers need the reduction over other axes, or over all of it */
    IR_REASON_REDUCE_INTO_CONTRACT,
    IR_REASON_DIFFERENT_SPACE, /* iteration spaces that do not map onto each other */
    IR_REASON_LAYOUT,          /* a reshape between them that is no index map of the kernel */
    IR_REASON_TRANSPOSED,      /* it is transposed, and its vectors would be stored element by element */
    IR_REASON_INDICES,         /* indices are checked in memory before they are used */
    IR_REASON_RECOMPUTE,       /* fusing would recompute a costly value */
    IR_REASON_SHARED,          /* several kernels need it, and what it is made of is more bytes than it */
    IR_REASON_WORKING_SET,     /* what a reduction spans must be kept until it is complete, and is too much */
    IR_REASON_REGISTERS,       /* more accumulators than registers hold */
    IR_REASON_SCAN,            /* into or out of a running sum or product, not element by element */
    IR_REASON_ATTENTION,       /* into or out of attention, not element by element with its result */
    IR_REASON_NO_LOWERING,     /* no kernel for this operator and type: reference evaluator */
    IR_REASON_LIMIT,           /* limit on instructions or buffers of one kernel */
    IR_REASON_CYCLE,           /* a path through another kernel */
    IR_REASON_ALIAS,           /* the old contents of an aliased parameter are read later */
    IR_REASON_PART,            /* made where a concatenation of it lies */
    IR_REASON_BARRIER,         /* barrier=true, fusor_barrier */
    IR_REASON_USER,            /* --no-fuse */
    IR_REASON_COUNT
} ir_reason;
extern const char *const ir_reason_names[IR_REASON_COUNT]; /* "two-contractions" */
extern const char *const ir_reason_texts[IR_REASON_COUNT]; /* one sentence */
typedef struct ir_boundary {
    int from, to;
    ir_id value;
    ir_reason reason;
} ir_boundary; /* step indices */

typedef struct ir_plan_options {
    ir_level level;
    ir_features features;
    bool no_fuse, fast_math, reference;
} ir_plan_options;
typedef struct ir_plan {
    ir_graph *graph; /* the normalized graph the plan was made of */
    ir_plan_options options;
    fu_vec(ir_plan_buffer)
        buffers; /* first all params (buffer p = parameter p), then all results (n_params + r = result r) */
    fu_vec(ir_step) steps;
    fu_vec(ir_boundary) boundaries;
} ir_plan;

/* reference = true: every node is a REFERENCE step (--device reference, no executable memory, no module). */
fusor_status ir_plan_make(fu_arena *a, fu_error *e, ir_graph *g, const ir_plan_options *options, ir_plan **out);
/* Text for people and for emit --stage plan. */
void ir_plan_print(fu_str *out, const ir_plan *p);
/* Bytes read and written by a step's kernel, flops (0 where a size overflows) for given symbol values. flops counts an
 * operator of an element as one, whatever it is; work counts a function (exp, tanh) as the some twenty operations that
 * it is made of: what the arithmetic of the machine has to do. */
typedef struct ir_cost {
    double bytes_read, bytes_written, flops, work;
} ir_cost;
/* Whose arithmetic the step's kernel does: the operands' type of a contraction, else f64 or f32. */
ir_dtype ir_step_work_type(const ir_plan *p, int step);
ir_cost ir_step_cost(const ir_plan *p, int step, const int64_t *symbol_values);
#endif
