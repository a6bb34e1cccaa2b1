/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_SRC_OP_CALL_H
#define FUSOR_SRC_OP_CALL_H
/* One operator as it is called from C: what op.c makes of every fusor_<operator>() and hands to lazy_record.c or
 * builder.c. */
#include "context.h"
#include "fusor/op.h"

/* Value of one attribute, in the order of ir_op_info.attrs. */
typedef struct op_attr {
    bool is_set;
    double number;       /* FLOAT, NUMBER */
    int64_t integer;     /* BOOL, INT, AXIS, DTYPE, ENUM */
    const int64_t *list; /* AXES, SIZES; borrowed */
    uint32_t n;
} op_attr;

typedef struct op_call {
    fusor_context *ctx; /* of an operator that may be without tensor operands; NULL: the operands tell */
    ir_op op;
    unsigned result; /* which, of an operator with several */
    int n;
    const fusor_tensor *args;
    const op_attr *attrs;    /* ir_ops[op].n_attrs of them, or NULL: all defaults */
    ir_dtype to;             /* cast, bitcast */
    const char *text;        /* attributes as text, instead of attrs and to; may be NULL */
    fusor_status bad_status; /* an argument that has no place in this struct is wrong */
    const char *bad_text;
} op_call;

/* Weak scalars: their owner is a tag, their bits fill slot and generation. */
bool op_is_weak(fusor_tensor t);
ir_operand op_weak_operand(fusor_tensor t); /* the literal it stands for */
fusor_tensor op_weak_of(const ir_operand *literal);

/* op.c: a bad handle in the place of x's result: for functions that are composed of operators. */
fusor_tensor op_refuse(fusor_tensor x, fusor_status status, const char *text);

/* lazy_record.c: records the call. builder.c: traces it. ctx is call->ctx, or that of the first tensor operand. */
fusor_tensor lazy_record(fusor_context *ctx, const op_call *call);
/* An operator that is none, or a bad argument: a bad handle with this error. */
fusor_tensor lazy_bad(fusor_context *ctx, const fu_error *e);
/* fusor_adopt; who: the function that messages name. */
fusor_tensor lazy_adopt(fusor_context *ctx, const char *who, const fusor_buffer *buffer, void (*release)(void *user),
                        void *user);

/* builder.c. Builder handles are recognized by the low bit of their owner. */
bool builder_owns(fusor_tensor t);
bool builder_is_stale(fusor_tensor t);          /* builder_owns, but of no function that this thread has open */
extern const char builder_stale[];              /* says so */
bool builder_is_open(const fusor_context *ctx); /* does this thread build a function of a module of ctx? */
fusor_tensor builder_record(const op_call *call);
/* Makes e sticky in the function that this thread builds; a value that has its status. */
fusor_tensor builder_bad(const op_call *call, const fu_error *e);
/* fusor_barrier(t) (with NULL), fusor_fuse_with(t, *with). */
fusor_tensor builder_hint(fusor_tensor t, const fusor_tensor *with);
fusor_tensor builder_name(fusor_tensor t, const char *name);
fusor_status builder_shape_of(fusor_tensor t, fusor_buffer *out);
fusor_status builder_status_of(fusor_tensor t);
void builder_free(struct builder_state *b);
#endif
