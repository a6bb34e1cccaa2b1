/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* op.c: the functions of op.h, made from ops.def, and weak scalars. A row whose attribute set has no FN_ macro here
 * does not compile: the set needs a form for C. Each function packs its arguments and asks the operands whether the
 * call is lazy or traces a function. There are some 200 of them, so what a family has in common is a function, and what
 * packs an argument is not inlined: 12 kB of libfusor. */
#define FUSOR_NO_GENERIC
#include "op_call.h"
#include "base/bits.h"
#include <stdio.h>

/* ---- weak scalars ---- */

enum { WEAK_FLOAT, WEAK_INT, WEAK_UINT, WEAK_BOOL, WEAK_KINDS };
static char weak_tags[WEAK_KINDS];

static fusor_tensor weak(int kind, uint64_t bits) {
    return (fusor_tensor){&weak_tags[kind], (uint32_t)bits, (uint32_t)(bits >> 32)};
}

fusor_tensor fusor_f(double value) { return weak(WEAK_FLOAT, fu_f64_bits(value)); }
fusor_tensor fusor_i(int64_t value) { return weak(WEAK_INT, (uint64_t)value); }
fusor_tensor fusor_u(uint64_t value) { return weak(WEAK_UINT, value); }
fusor_tensor fusor_b(int value) { return weak(WEAK_BOOL, value != 0); }

static int weak_kind(fusor_tensor t) {
    for (int i = 0; i < WEAK_KINDS; i++)
        if (t.owner == &weak_tags[i]) return i;
    return -1;
}

bool op_is_weak(fusor_tensor t) { return weak_kind(t) >= 0; }

ir_operand op_weak_operand(fusor_tensor t) {
    ir_operand x = {0};
    uint64_t bits = (uint64_t)t.generation << 32 | t.slot;
    int kind = weak_kind(t);
    x.literal = kind == WEAK_FLOAT ? IR_LIT_FLOAT : kind == WEAK_BOOL ? IR_LIT_BOOL : IR_LIT_INT;
    if (kind == WEAK_FLOAT) memcpy(&x.f, &bits, sizeof x.f);
    else x.i = (int64_t)bits;
    if (kind == WEAK_INT) x.f = (double)x.i;
    if (kind == WEAK_UINT) x.f = (double)bits;
    return x;
}

fusor_tensor op_weak_of(const ir_operand *x) {
    if (x->literal == IR_LIT_FLOAT) return fusor_f(x->f);
    if (x->literal == IR_LIT_BOOL) return fusor_b(x->i != 0);
    return x->f >= 0x1p63 ? fusor_u((uint64_t)x->i) : fusor_i(x->i);
}

/* ---- dispatch ---- */

static fusor_tensor record(const op_call *c) {
    fusor_tensor lead = {NULL, 0, 0};
    for (int i = 0; i < c->n && !lead.owner; i++)
        if (!op_is_weak(c->args[i])) lead = c->args[i];
    fusor_context *ctx = c->ctx || !lead.owner || builder_owns(lead) ? c->ctx : lead.owner;
    bool traces = lead.owner ? builder_owns(lead) : builder_is_open(c->ctx);
    if (c->bad_status != FUSOR_OK && (traces || ctx)) {
        fu_error e;
        fu_error_clear(&e);
        if (c->op == IR_OP_NONE) FU_FAIL(&e, c->bad_status, "%s", c->bad_text);
        else FU_FAIL(&e, c->bad_status, "%s: %s", ir_ops[c->op].name, c->bad_text);
        if (!traces) return lazy_bad(ctx, &e);
        return builder_bad(c, &e);
    }
    if (traces) return builder_record(c);
    return ctx ? lazy_record(ctx, c) : (fusor_tensor){NULL, 0, 0};
}

static void bad(op_call *c, fusor_status status, const char *text) {
    if (c->bad_status == FUSOR_OK) c->bad_status = status;
    if (!c->bad_text) c->bad_text = text;
}

fusor_tensor op_refuse(fusor_tensor x, fusor_status status, const char *text) {
    op_call c = {.n = 1, .args = &x, .bad_status = status, .bad_text = text};
    return record(&c);
}

#define SHARED __attribute__((noinline)) static
/* A list argument; a negative count is "not given". */
SHARED op_attr list(op_call *c, int n, const int64_t *at) {
    op_attr x = {.is_set = n >= 0};
    if (n > IR_MAX_LIST || (n > 0 && !at)) {
        bad(c, FUSOR_ERROR_ARGUMENT,
            n > IR_MAX_LIST ? "a list has more than 255 entries" : "a list is NULL but its count is not 0");
        return x;
    }
    x.list = at;
    x.n = n > 0 ? (uint32_t)n : 0;
    return x;
}
SHARED op_attr optional_list(op_call *c, int n, const int64_t *at) { return list(c, at ? n : -1, at); }
SHARED op_attr word(op_call *c, int v, int n_words) {
    if (v < 0 || v >= n_words) bad(c, FUSOR_ERROR_ARGUMENT, "the mode is none of those that op.h lists");
    return (op_attr){.is_set = true, .integer = v < 0 || v >= n_words ? 0 : v};
}
static op_attr flag(int on) { return (op_attr){.is_set = true, .integer = on != 0}; }
static op_attr integer(int64_t v) { return (op_attr){.is_set = true, .integer = v}; }
static op_attr number(double v) { return (op_attr){.is_set = true, .number = v}; }
SHARED ir_dtype type(op_call *c, fusor_dtype t) {
    if (fusor_dtype_size(t)) return t;
    bad(c, FUSOR_ERROR_ARGUMENT, "dtype is no fusor_dtype");
    return FUSOR_F32;
}

#define CALL(ID, count, ...) op_call c = {.op = IR_OP_##ID, .n = (count), .args = (const fusor_tensor[]){__VA_ARGS__}}
#define CALL_ATTRS(ID, x, ...)                                                                                         \
    CALL(ID, 1, x);                                                                                                    \
    op_attr attrs[IR_MAX_ATTRS] = {__VA_ARGS__};                                                                       \
    c.attrs = attrs

/* ---- element by element ---- */

SHARED fusor_tensor plain(ir_op op, int n, const fusor_tensor *x) {
    op_call c = {.op = op, .n = n, .args = x};
    return record(&c);
}
SHARED fusor_tensor with_integer(ir_op op, int n, const fusor_tensor *x, int64_t v) {
    const op_attr attrs[IR_MAX_ATTRS] = {integer(v)};
    op_call c = {.op = op, .n = n, .args = x, .attrs = attrs};
    return record(&c);
}
SHARED fusor_tensor with_list(ir_op op, fusor_tensor x, int n, const int64_t *at, bool has_flag, int on) {
    op_call c = {.op = op, .n = 1, .args = &x};
    op_attr attrs[IR_MAX_ATTRS] = {list(&c, n, at)};
    if (has_flag) attrs[1] = flag(on);
    c.attrs = attrs;
    return record(&c);
}

#define FN_NONE_1(ID, name)                                                                                            \
    fusor_tensor fusor_##name(fusor_tensor x) { return plain(IR_OP_##ID, 1, (const fusor_tensor[]){x}); }
#define FN_NONE_2(ID, name)                                                                                            \
    fusor_tensor fusor_##name(fusor_tensor a, fusor_tensor b) {                                                        \
        return plain(IR_OP_##ID, 2, (const fusor_tensor[]){a, b});                                                     \
    }
#define FN_NONE_3(ID, name)                                                                                            \
    fusor_tensor fusor_##name(fusor_tensor a, fusor_tensor b, fusor_tensor d) {                                        \
        return plain(IR_OP_##ID, 3, (const fusor_tensor[]){a, b, d});                                                  \
    }
#define FN_ALPHA_001_1(ID, name)                                                                                       \
    fusor_tensor fusor_##name(fusor_tensor x, double alpha) {                                                          \
        CALL_ATTRS(ID, x, number(alpha));                                                                              \
        return record(&c);                                                                                             \
    }
#define FN_ALPHA_1_1(ID, name) FN_ALPHA_001_1(ID, name)
#define FN_ALPHA_BETA_1(ID, name)                                                                                      \
    fusor_tensor fusor_##name(fusor_tensor x, double alpha, double beta) {                                             \
        CALL_ATTRS(ID, x, number(alpha), number(beta));                                                                \
        return record(&c);                                                                                             \
    }
#define FN_GELU_1(ID, name) FN_NONE_1(ID, name)

/* ---- the rest ---- */

#define FN_REDUCE(ID, name)                                                                                            \
    fusor_tensor fusor_##name(fusor_tensor x, int n_axes, const int64_t *axes, int keepdims) {                         \
        return with_list(IR_OP_##ID, x, n_axes, axes, true, keepdims);                                                 \
    }
#define FN_REDUCE_BOOL(ID, name) FN_REDUCE(ID, name)
#define FN_VAR(ID, name)                                                                                               \
    fusor_tensor fusor_##name(fusor_tensor x, int n_axes, const int64_t *axes, int keepdims, double correction) {      \
        CALL_ATTRS(ID, x, list(&c, n_axes, axes), flag(keepdims), {.is_set = false}, number(correction));              \
        return record(&c);                                                                                             \
    }
#define FN_SCAN(ID, name)                                                                                              \
    fusor_tensor fusor_##name(fusor_tensor x, int axis, int exclusive, int reverse) {                                  \
        CALL_ATTRS(ID, x, integer(axis), flag(exclusive), flag(reverse));                                              \
        return record(&c);                                                                                             \
    }
#define FN_ARGREDUCE(ID, name)                                                                                         \
    fusor_tensor fusor_##name(fusor_tensor x, int axis, int keepdims) {                                                \
        CALL_ATTRS(ID, x, {.is_set = axis != FUSOR_FLAT, .integer = axis}, flag(keepdims));                            \
        return record(&c);                                                                                             \
    }
#define FN_MATMUL(ID, name) FN_NONE_2(ID, name)
#define FN_EINSUM(ID, name)                                                                                            \
    fusor_tensor fusor_##name(const char *subscripts, int n, const fusor_tensor *x) {                                  \
        int64_t at[IR_MAX_TEXT];                                                                                       \
        const size_t length = subscripts ? strlen(subscripts) : 0;                                                     \
        op_call c = {.op = IR_OP_##ID, .n = n, .args = x};                                                             \
        if (n < 1 || !x || !subscripts || length > IR_MAX_TEXT) {                                                      \
            bad(&c, FUSOR_ERROR_ARGUMENT,                                                                              \
                length > IR_MAX_TEXT ? "the subscripts have more than 1024 characters"                                 \
                                     : "operands or subscripts are missing");                                          \
            if (n < 1 || !x) c.n = 0;                                                                                  \
        }                                                                                                              \
        for (size_t i = 0; i < length && i < IR_MAX_TEXT; i++) at[i] = (unsigned char)subscripts[i];                   \
        op_attr attrs[IR_MAX_ATTRS] = {                                                                                \
            {.is_set = true, .list = at, .n = length > IR_MAX_TEXT ? 0 : (uint32_t)length}};                           \
        c.attrs = attrs;                                                                                               \
        return record(&c);                                                                                             \
    }
/* The operands that are there: an offset may come without a mask. scale 0: the usual one. */
#define FN_ATTENTION(ID, name)                                                                                         \
    fusor_tensor fusor_##name(fusor_tensor q, fusor_tensor k, fusor_tensor v, fusor_tensor mask, int causal,           \
                              fusor_tensor causal_offset, const int64_t *window, double softcap, double scale) {       \
        fusor_tensor x[5] = {q, k, v};                                                                                 \
        op_call c = {.op = IR_OP_##ID, .n = 3, .args = x};                                                             \
        if (mask.owner) x[c.n++] = mask;                                                                               \
        if (causal_offset.owner) x[c.n++] = causal_offset;                                                             \
        op_attr attrs[IR_MAX_ATTRS] = {flag(causal),                                                                   \
                                       {.is_set = causal_offset.owner != NULL},                                        \
                                       optional_list(&c, 2, window),                                                   \
                                       number(softcap),                                                                \
                                       number(scale)};                                                                 \
        attrs[4].is_set = scale != 0;                                                                                  \
        c.attrs = attrs;                                                                                               \
        return record(&c);                                                                                             \
    }
#define FN_SOFTMAX(ID, name)                                                                                           \
    fusor_tensor fusor_##name(fusor_tensor x, int axis) { return with_integer(IR_OP_##ID, 1, &x, axis); }
/* A handle of zeros stands for an operand that is left out; only the last ones may be. */
static int operands(op_call *c, int n, const fusor_tensor *x) {
    int given = 1;
    for (int i = 1; i < n; i++) {
        if (!x[i].owner) continue;
        if (given < i) bad(c, FUSOR_ERROR_ARGUMENT, "an operand before the last one given is FUSOR_NO_TENSOR");
        given = i + 1;
    }
    return given;
}
#define FN_NORM_CALL(ID, ...)                                                                                          \
    const fusor_tensor x_[] = {__VA_ARGS__};                                                                           \
    op_call c = {.op = IR_OP_##ID, .args = x_};                                                                        \
    op_attr attrs[IR_MAX_ATTRS] = {integer(axis), number(epsilon)};                                                    \
    c.attrs = attrs;                                                                                                   \
    c.n = operands(&c, (int)(sizeof x_ / sizeof *x_), x_);                                                             \
    return record(&c);
#define FN_LAYER_NORM(ID, name)                                                                                        \
    fusor_tensor fusor_##name(fusor_tensor x, fusor_tensor gamma, fusor_tensor beta, int axis, double epsilon) {       \
        FN_NORM_CALL(ID, x, gamma, beta)                                                                               \
    }
#define FN_RMS_NORM(ID, name)                                                                                          \
    fusor_tensor fusor_##name(fusor_tensor x, fusor_tensor gamma, int axis, double epsilon) {                          \
        FN_NORM_CALL(ID, x, gamma)                                                                                     \
    }
#define FN_DIM(ID, name) FN_SOFTMAX(ID, name)
#define FN_LIST(ID, name)                                                                                              \
    fusor_tensor fusor_##name(fusor_tensor x, int n, const int64_t *sizes) {                                           \
        return with_list(IR_OP_##ID, x, n, sizes, false, 0);                                                           \
    }
#define FN_SHAPE(ID, name) FN_LIST(ID, name)
#define FN_PERM(ID, name)  FN_LIST(ID, name)
#define FN_AXES(ID, name)  FN_LIST(ID, name)
#define FN_FULL(ID, name)                                                                                              \
    fusor_tensor fusor_##name(fusor_context *ctx, fusor_tensor value, fusor_dtype dtype, int rank,                     \
                              const int64_t *shape) {                                                                  \
        CALL_ATTRS(ID, value, list(&c, rank, shape), integer(type(&c, dtype)));                                        \
        c.ctx = ctx;                                                                                                   \
        return record(&c);                                                                                             \
    }
#define FN_IOTA(ID, name)                                                                                              \
    fusor_tensor fusor_##name(fusor_context *ctx, fusor_dtype dtype, int axis, int rank, const int64_t *shape) {       \
        op_call c = {.ctx = ctx, .op = IR_OP_##ID};                                                                    \
        op_attr attrs[IR_MAX_ATTRS] = {list(&c, rank, shape), integer(axis), integer(type(&c, dtype))};                \
        c.attrs = attrs;                                                                                               \
        return record(&c);                                                                                             \
    }

/* ---- movement ---- */

#define FN_SLICE(ID, name)                                                                                             \
    fusor_tensor fusor_##name(fusor_tensor x, int n, const int64_t *starts, const int64_t *ends, const int64_t *steps, \
                              const int64_t *axes) {                                                                   \
        CALL_ATTRS(ID, x, list(&c, n < 0 ? 0 : n, starts), list(&c, n < 0 ? 0 : n, ends), optional_list(&c, n, steps), \
                   optional_list(&c, n, axes));                                                                        \
        return record(&c);                                                                                             \
    }
#define FN_PAD(ID, name)                                                                                               \
    fusor_tensor fusor_##name(fusor_tensor x, fusor_tensor value, int mode, int n, const int64_t *pads) {              \
        CALL(ID, mode == FUSOR_PAD_CONSTANT ? 2 : 1, x, value);                                                        \
        op_attr attrs[IR_MAX_ATTRS] = {list(&c, n < 0 ? 0 : n, pads), {0}, word(&c, mode, FUSOR_PAD_WRAP + 1)};        \
        c.attrs = attrs;                                                                                               \
        return record(&c);                                                                                             \
    }
#define FN_CONCAT(ID, name)                                                                                            \
    fusor_tensor fusor_##name(int n, const fusor_tensor *x, int axis) {                                                \
        op_call c = {.op = IR_OP_##ID, .n = n, .args = x};                                                             \
        if (n < 0 || (n > 0 && !x)) {                                                                                  \
            bad(&c, FUSOR_ERROR_ARGUMENT, "the operands are missing");                                                 \
            c.n = 0;                                                                                                   \
        }                                                                                                              \
        op_attr attrs[IR_MAX_ATTRS] = {integer(axis)};                                                                 \
        c.attrs = attrs;                                                                                               \
        return record(&c);                                                                                             \
    }
#define FN_SPLIT(ID, name)                                                                                             \
    void fusor_##name(fusor_tensor x, int axis, int n, const int64_t *sizes, fusor_tensor *results) {                  \
        CALL_ATTRS(ID, x, integer(axis), list(&c, n < 0 ? 0 : n, sizes));                                              \
        for (int i = 0; i < n && results; i++) {                                                                       \
            c.result = (unsigned)i;                                                                                    \
            results[i] = record(&c);                                                                                   \
        }                                                                                                              \
    }
#define FN_REPEATS(ID, name) FN_LIST(ID, name)
#define FN_DIAGONAL(ID, name)                                                                                          \
    fusor_tensor fusor_##name(fusor_tensor x, int64_t k) { return with_integer(IR_OP_##ID, 1, &x, k); }
#define FN_TAKE(ID, name)                                                                                              \
    fusor_tensor fusor_##name(fusor_tensor x, fusor_tensor indices, int axis) {                                        \
        return with_integer(IR_OP_##ID, 2, (const fusor_tensor[]){x, indices}, axis);                                  \
    }
#define FN_SCATTER(ID, name)                                                                                           \
    fusor_tensor fusor_##name(fusor_tensor x, fusor_tensor indices, fusor_tensor updates, int axis, int mode) {        \
        CALL(ID, 3, x, indices, updates);                                                                              \
        op_attr attrs[IR_MAX_ATTRS] = {integer(axis), word(&c, mode, FUSOR_SCATTER_MIN + 1)};                          \
        c.attrs = attrs;                                                                                               \
        return record(&c);                                                                                             \
    }
#define FN_ONE_HOT(ID, name)                                                                                           \
    fusor_tensor fusor_##name(fusor_tensor indices, int64_t depth, fusor_dtype dtype) {                                \
        CALL_ATTRS(ID, indices, list(&c, 1, &depth), integer(type(&c, dtype)));                                        \
        return record(&c);                                                                                             \
    }
#define FN_TAKE_ALONG(ID, name) FN_TAKE(ID, name)
/* ---- windows, quantization ---- */

#define WINDOW_LISTS(n, kernel, strides, pads, dilations)                                                              \
    list(&c, n < 0 ? 0 : n, kernel), optional_list(&c, n, strides), optional_list(&c, 2 * (n > 64 ? 64 : n), pads),    \
        optional_list(&c, n, dilations)
#define FN_MAX_POOL(ID, name)                                                                                          \
    fusor_tensor fusor_##name(fusor_tensor x, int n, const int64_t *kernel, const int64_t *strides,                    \
                              const int64_t *pads, const int64_t *dilations, int ceil) {                               \
        CALL_ATTRS(ID, x, WINDOW_LISTS(n, kernel, strides, pads, dilations), flag(ceil));                              \
        return record(&c);                                                                                             \
    }
#define FN_AVERAGE_POOL(ID, name)                                                                                      \
    fusor_tensor fusor_##name(fusor_tensor x, int n, const int64_t *kernel, const int64_t *strides,                    \
                              const int64_t *pads, const int64_t *dilations, int ceil, int count_include_pad) {        \
        CALL_ATTRS(ID, x, WINDOW_LISTS(n, kernel, strides, pads, dilations), flag(ceil), flag(count_include_pad));     \
        return record(&c);                                                                                             \
    }
#define CONV_CALL(ID, n, strides, pads, dilations, groups, ...)                                                        \
    const fusor_tensor x_[] = {x, w, b};                                                                               \
    op_call c = {.op = IR_OP_##ID, .args = x_};                                                                        \
    op_attr attrs[IR_MAX_ATTRS] = {optional_list(&c, n, strides), optional_list(&c, 2 * (n > 64 ? 64 : n), pads),      \
                                   optional_list(&c, n, dilations), integer(groups), __VA_ARGS__};                     \
    c.attrs = attrs;                                                                                                   \
    c.n = operands(&c, 3, x_);                                                                                         \
    return record(&c);
#define FN_CONV(ID, name)                                                                                              \
    fusor_tensor fusor_##name(fusor_tensor x, fusor_tensor w, fusor_tensor b, int n, const int64_t *strides,           \
                              const int64_t *pads, const int64_t *dilations, int64_t groups) {                         \
        CONV_CALL(ID, n, strides, pads, dilations, groups, {0})                                                        \
    }
#define FN_CONV_TRANSPOSE(ID, name)                                                                                    \
    fusor_tensor fusor_##name(fusor_tensor x, fusor_tensor w, fusor_tensor b, int n, const int64_t *strides,           \
                              const int64_t *pads, const int64_t *dilations, const int64_t *output_padding,            \
                              int64_t groups) {                                                                        \
        CONV_CALL(ID, n, strides, pads, dilations, groups, optional_list(&c, n, output_padding))                       \
    }
#define FN_NONE(ID, name) FN_NONE_1(ID, name)
#define FN_QUANTIZE(ID, name)                                                                                          \
    fusor_tensor fusor_##name(fusor_tensor x, fusor_tensor scale, fusor_tensor zero_point, int axis,                   \
                              fusor_dtype dtype) {                                                                     \
        CALL(ID, 3, x, scale, zero_point);                                                                             \
        op_attr attrs[IR_MAX_ATTRS] = {{.is_set = axis != FUSOR_FLAT, .integer = axis}, integer(type(&c, dtype))};     \
        c.attrs = attrs;                                                                                               \
        return record(&c);                                                                                             \
    }
#define FN_DEQUANTIZE(ID, name)                                                                                        \
    fusor_tensor fusor_##name(fusor_tensor x, fusor_tensor scale, fusor_tensor zero_point, int axis) {                 \
        CALL(ID, 3, x, scale, zero_point);                                                                             \
        op_attr attrs[IR_MAX_ATTRS] = {{.is_set = axis != FUSOR_FLAT, .integer = axis}};                               \
        c.attrs = attrs;                                                                                               \
        return record(&c);                                                                                             \
    }

/* ---- recurrent ---- */

#define FN_LSTM(ID, name)                                                                                              \
    void fusor_##name(fusor_tensor x, fusor_tensor h, fusor_tensor state, fusor_tensor w_ih, fusor_tensor w_hh,        \
                      fusor_tensor b_ih, fusor_tensor b_hh, fusor_tensor *h_out, fusor_tensor *state_out) {            \
        const fusor_tensor x_[] = {x, h, state, w_ih, w_hh, b_ih, b_hh};                                               \
        op_call c = {.op = IR_OP_##ID, .args = x_};                                                                    \
        c.n = operands(&c, 7, x_);                                                                                     \
        if (h_out) *h_out = record(&c);                                                                                \
        c.result = 1;                                                                                                  \
        if (state_out) *state_out = record(&c);                                                                        \
    }
#define FN_CELL_CALL(ID, attribute)                                                                                    \
    const fusor_tensor x_[] = {x, h, w_ih, w_hh, b_ih, b_hh};                                                          \
    op_call c = {.op = IR_OP_##ID, .args = x_};                                                                        \
    op_attr attrs[IR_MAX_ATTRS] = {attribute};                                                                         \
    c.attrs = attrs;                                                                                                   \
    c.n = operands(&c, 6, x_);                                                                                         \
    return record(&c);
#define FN_GRU(ID, name)                                                                                               \
    fusor_tensor fusor_##name(fusor_tensor x, fusor_tensor h, fusor_tensor w_ih, fusor_tensor w_hh, fusor_tensor b_ih, \
                              fusor_tensor b_hh, int linear_before_reset) {                                            \
        FN_CELL_CALL(ID, flag(linear_before_reset))                                                                    \
    }
#define FN_RNN(ID, name)                                                                                               \
    fusor_tensor fusor_##name(fusor_tensor x, fusor_tensor h, fusor_tensor w_ih, fusor_tensor w_hh, fusor_tensor b_ih, \
                              fusor_tensor b_hh, int activation) {                                                     \
        FN_CELL_CALL(ID, word(&c, activation, FUSOR_RNN_RELU + 1))                                                     \
    }

#define FN_RANDOM(ID, name)                                                                                            \
    fusor_tensor fusor_##name(fusor_context *ctx, fusor_tensor seed, fusor_dtype dtype, int rank,                      \
                              const int64_t *shape) {                                                                  \
        CALL_ATTRS(ID, seed, list(&c, rank, shape), {0}, integer(type(&c, dtype)));                                    \
        c.ctx = ctx;                                                                                                   \
        return record(&c);                                                                                             \
    }

#define EW(ID, name, min, max, types, result, flags, set, ...) FN_##set##_##max(ID, name)
#define CONVERT(ID, name, ...)                                                                                         \
    fusor_tensor fusor_##name(fusor_tensor x, fusor_dtype dtype) {                                                     \
        CALL(ID, 1, x);                                                                                                \
        c.to = type(&c, dtype);                                                                                        \
        return record(&c);                                                                                             \
    }
#define REDUCE(ID, name, combine, types, sums, set, ...) FN_##set(ID, name)
#define OTHER(ID, name, min, max, kind, types, set, ...) FN_##set(ID, name)
#include "ir/ops.def"

/* ---- by name ---- */

fusor_tensor fusor_apply(fusor_context *ctx, const char *op, int n, const fusor_tensor *args, const char *attributes) {
    return fusor_apply_result(ctx, op, 0, n, args, attributes);
}

fusor_tensor fusor_apply_result(fusor_context *ctx, const char *op, int result, int n, const fusor_tensor *args,
                                const char *attributes) {
    char text[160];
    op_call c = {.ctx = ctx, .n = n, .args = args, .text = attributes && attributes[0] ? attributes : NULL};
    if (n < 0 || (n > 0 && !args)) {
        bad(&c, FUSOR_ERROR_ARGUMENT, "fusor_apply: the operands are missing");
        c.n = 0;
    }
    size_t length = op ? strlen(op) : 0;
    c.op = ir_op_find(op ? op : "", length);
    if (!op) {
        bad(&c, FUSOR_ERROR_ARGUMENT, "fusor_apply: the operator's name is NULL");
    } else if (c.op == IR_OP_NONE) {
        const char *near = length < 64 ? ir_op_nearest(op) : NULL;
        snprintf(text, sizeof text, "fusor_apply: unknown operator '%.64s'%s%s%s", op, near ? "; did you mean " : "",
                 near ? near : "", near ? "?" : "");
        bad(&c, FUSOR_ERROR_SYNTAX, text);
    } else if (result < 0 || result >= UINT8_MAX) { /* no list is as long; a record has a byte for it */
        snprintf(text, sizeof text, "%.64s: there is no result %d", op, result);
        bad(&c, FUSOR_ERROR_ARGUMENT, text);
    } else c.result = (unsigned)result;
    return record(&c);
}
