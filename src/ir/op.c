/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* op.c: the descriptor array made from ops.def, the attribute sets that its rows name, and looking operators up. */
#include "ir/op.h"
#include <math.h>
#include <string.h>

/* ---- attribute sets. Scalar (FLOAT) attributes first; NAN as an axis default means "absent". ---- */
#define ATTR_DTYPE                                                                                                     \
    { .name = "dtype", .type = IR_ATTR_DTYPE }
#define ATTR_KEEPDIMS                                                                                                  \
    { .name = "keepdims", .type = IR_ATTR_BOOL }
#define ATTR_AXES                                                                                                      \
    { .name = "axes", .type = IR_ATTR_AXES }
#define ATTR_SHAPE                                                                                                     \
    { .name = "shape", .type = IR_ATTR_SIZES, .is_required = true }
#define ATTR_ALPHA(v)                                                                                                  \
    { .name = "alpha", .type = IR_ATTR_FLOAT, .default_value = v }

/* Element-wise rows all take dtype=: the type of their literals where no operand is a tensor (doc/operators.md). */
static const ir_attr_info attrs_NONE[] = {ATTR_DTYPE};
static const ir_attr_info attrs_ALPHA_001[] = {ATTR_ALPHA(0.01), ATTR_DTYPE};
static const ir_attr_info attrs_ALPHA_1[] = {ATTR_ALPHA(1), ATTR_DTYPE};
static const ir_attr_info attrs_ALPHA_BETA[] = {
    ATTR_ALPHA(0.2), {.name = "beta", .type = IR_ATTR_FLOAT, .default_value = 0.5}, ATTR_DTYPE};
static const ir_attr_info attrs_GELU[] = {{.name = "approximate", .type = IR_ATTR_ENUM, .words = "none|tanh"},
                                          ATTR_DTYPE};
static const ir_attr_info attrs_REDUCE[] = {ATTR_AXES, ATTR_KEEPDIMS, ATTR_DTYPE};
static const ir_attr_info attrs_REDUCE_BOOL[] = {ATTR_AXES, ATTR_KEEPDIMS};
static const ir_attr_info attrs_VAR[] = {
    ATTR_AXES, ATTR_KEEPDIMS, ATTR_DTYPE, {.name = "correction", .type = IR_ATTR_NUMBER}};
static const ir_attr_info attrs_SCAN[] = {
    {.name = "axis", .type = IR_ATTR_AXIS, .is_required = true, .default_value = NAN},
    {.name = "exclusive", .type = IR_ATTR_BOOL},
    {.name = "reverse", .type = IR_ATTR_BOOL},
    ATTR_DTYPE};
#define attrs_RMS_NORM attrs_LAYER_NORM
static const ir_attr_info attrs_LAYER_NORM[] = {{.name = "axis", .type = IR_ATTR_AXIS, .default_value = -1},
                                                {.name = "epsilon", .type = IR_ATTR_NUMBER, .default_value = 1e-5},
                                                ATTR_DTYPE};
static const ir_attr_info attrs_ARGREDUCE[] = {{.name = "axis", .type = IR_ATTR_AXIS, .default_value = NAN},
                                               ATTR_KEEPDIMS,
                                               {.name = "select_last", .type = IR_ATTR_BOOL}};
static const ir_attr_info attrs_MATMUL[] = {
    {.name = "transpose_a", .type = IR_ATTR_BOOL}, {.name = "transpose_b", .type = IR_ATTR_BOOL}, ATTR_DTYPE};
static const ir_attr_info attrs_EINSUM[] = {{.name = "subscripts", .type = IR_ATTR_TEXT, .is_required = true},
                                            ATTR_DTYPE};
static const ir_attr_info attrs_SOFTMAX[] = {{.name = "axis", .type = IR_ATTR_AXIS, .default_value = -1}, ATTR_DTYPE};
static const ir_attr_info attrs_SHAPE[] = {ATTR_SHAPE};
static const ir_attr_info attrs_PERM[] = {{.name = "perm", .type = IR_ATTR_AXES}};
static const ir_attr_info attrs_AXES[] = {{.name = "axes", .type = IR_ATTR_AXES, .is_required = true}};
static const ir_attr_info attrs_FULL[] = {ATTR_SHAPE, ATTR_DTYPE};
static const ir_attr_info attrs_IOTA[] = {
    ATTR_SHAPE, {.name = "axis", .type = IR_ATTR_AXIS}, {.name = "dtype", .type = IR_ATTR_DTYPE, .is_required = true}};
#define ATTR_INTS(word, required)                                                                                      \
    { .name = word, .type = IR_ATTR_INTS, .is_required = required }
static const ir_attr_info attrs_ATTENTION[] = {{.name = "causal", .type = IR_ATTR_BOOL},
                                               {.name = "causal_offset", .type = IR_ATTR_SCALAR},
                                               ATTR_INTS("window", false),
                                               {.name = "softcap", .type = IR_ATTR_NUMBER},
                                               {.name = "scale", .type = IR_ATTR_NUMBER, .default_value = NAN},
                                               ATTR_DTYPE};
#define ATTRS_WINDOW                                                                                                   \
    ATTR_INTS("kernel", true), ATTR_INTS("strides", false), ATTR_INTS("pads", false), ATTR_INTS("dilations", false), { \
        .name = "ceil", .type = IR_ATTR_BOOL                                                                           \
    }
static const ir_attr_info attrs_MAX_POOL[] = {ATTRS_WINDOW};
static const ir_attr_info attrs_AVERAGE_POOL[] = {ATTRS_WINDOW, {.name = "count_include_pad", .type = IR_ATTR_BOOL}};
#define ATTRS_CONV                                                                                                     \
    ATTR_INTS("strides", false), ATTR_INTS("pads", false), ATTR_INTS("dilations", false), {                            \
        .name = "groups", .type = IR_ATTR_INT, .default_value = 1                                                      \
    }
static const ir_attr_info attrs_CONV[] = {ATTRS_CONV, ATTR_DTYPE};
static const ir_attr_info attrs_CONV_TRANSPOSE[] = {ATTRS_CONV, ATTR_INTS("output_padding", false), ATTR_DTYPE};
static const ir_attr_info attrs_QUANTIZE[] = {{.name = "axis", .type = IR_ATTR_AXIS, .default_value = NAN}, ATTR_DTYPE};
static const ir_attr_info attrs_DEQUANTIZE[] = {{.name = "axis", .type = IR_ATTR_AXIS, .default_value = NAN}};
static const ir_attr_info attrs_RANDOM[] = {
    ATTR_SHAPE, {.name = "seed", .type = IR_ATTR_SCALAR, .is_required = true}, ATTR_DTYPE};
static const ir_attr_info attrs_DIM[] = {
    {.name = "axis", .type = IR_ATTR_AXIS, .is_required = true, .default_value = NAN}};

static const ir_attr_info attrs_SLICE[] = {{.name = "starts", .type = IR_ATTR_INDICES, .is_required = true},
                                           {.name = "ends", .type = IR_ATTR_INDICES, .is_required = true},
                                           {.name = "steps", .type = IR_ATTR_INTS},
                                           ATTR_AXES};
static const ir_attr_info attrs_PAD[] = {{.name = "pads", .type = IR_ATTR_INDICES, .is_required = true},
                                         {.name = "value", .type = IR_ATTR_SCALAR},
                                         {.name = "mode", .type = IR_ATTR_ENUM, .words = "constant|edge|reflect|wrap"}};
static const ir_attr_info attrs_LSTM[] = {};
static const ir_attr_info attrs_GRU[] = {{.name = "linear_before_reset", .type = IR_ATTR_BOOL, .default_value = 1}};
static const ir_attr_info attrs_RNN[] = {{.name = "activation", .type = IR_ATTR_ENUM, .words = "tanh|relu"}};
#define ATTR_AXIS                                                                                                      \
    { .name = "axis", .type = IR_ATTR_AXIS, .is_required = true, .default_value = NAN }
static const ir_attr_info attrs_CONCAT[] = {ATTR_AXIS};
static const ir_attr_info attrs_TAKE_ALONG[] = {ATTR_AXIS};
static const ir_attr_info attrs_TAKE[] = {{.name = "axis", .type = IR_ATTR_AXIS}};
static const ir_attr_info attrs_SPLIT[] = {ATTR_AXIS, {.name = "sizes", .type = IR_ATTR_SIZES, .is_required = true}};
static const ir_attr_info attrs_REPEATS[] = {{.name = "repeats", .type = IR_ATTR_INDICES, .is_required = true}};
static const ir_attr_info attrs_SCATTER[] = {
    ATTR_AXIS, {.name = "mode", .type = IR_ATTR_ENUM, .words = "set|add|mul|max|min"}}; /* ORDER ir_scatter_combine */
static const ir_attr_info attrs_ONE_HOT[] = {{.name = "depth", .type = IR_ATTR_SIZE, .is_required = true}, ATTR_DTYPE};
static const ir_attr_info attrs_DIAGONAL[] = {{.name = "k", .type = IR_ATTR_INT}};

#define N_ATTRS(set) (sizeof attrs_##set / sizeof *attrs_##set)
enum {
    SCALARS_NONE = 0,
    SCALARS_ALPHA_001 = 1,
    SCALARS_ALPHA_1 = 1,
    SCALARS_ALPHA_BETA = 2,
    SCALARS_GELU = 0,
};
_Static_assert(N_ATTRS(ALPHA_BETA) <= IR_MAX_ATTRS && N_ATTRS(REDUCE) <= IR_MAX_ATTRS &&
                   N_ATTRS(IOTA) <= IR_MAX_ATTRS && N_ATTRS(ARGREDUCE) <= IR_MAX_ATTRS &&
                   N_ATTRS(MATMUL) <= IR_MAX_ATTRS && N_ATTRS(VAR) <= IR_MAX_ATTRS && N_ATTRS(SCAN) <= IR_MAX_ATTRS &&
                   N_ATTRS(SLICE) <= IR_MAX_ATTRS && N_ATTRS(AVERAGE_POOL) <= IR_MAX_ATTRS &&
                   N_ATTRS(ATTENTION) <= IR_MAX_ATTRS,
               "a row of attributes is too long");

/* ---- the array ---- */
enum {
    KF32 = 1u << FUSOR_F32 | 1u << FUSOR_F16 | 1u << FUSOR_BF16,
    KF64 = 1u << FUSOR_F64,
    KBOOL = 1u << FUSOR_BOOL,
    KINT = 1u << FUSOR_I64 | 1u << FUSOR_I32 | 1u << FUSOR_I16 | 1u << FUSOR_I8 | 1u << FUSOR_U64 | 1u << FUSOR_U32 |
           1u << FUSOR_U16 | 1u << FUSOR_U8,
    /* Rows without the column: whether a kernel exists is decided by the kernel kind, not here. */
    KANY = ~1u & ((1u << IR_DTYPE_COUNT) - 1),
};
#define CLASS(set, letter, bit) (__builtin_strchr(set, letter) != 0 ? bit : 0)
#define CLASSES(set)                                                                                                   \
    (CLASS(set, 'F', IR_CLASS_F) | CLASS(set, 'S', IR_CLASS_S) | CLASS(set, 'U', IR_CLASS_U) |                         \
     CLASS(set, 'B', IR_CLASS_B))
#define RESULT_SAME false
#define RESULT_BOOL true

const ir_op_info ir_ops[IR_OP_COUNT] = {
    [IR_OP_NONE] = {.name = "none", .text = "no operator", .n_results = 1},
    [IR_OP_PARAM] = {.name = "param", .text = "a parameter of the function", .n_results = 1},
    [IR_OP_LITERAL] = {.name = "literal", .text = "a literal operand", .n_results = 1},
    [IR_OP_CALL] = {.name = "call", .text = "a call of another function", .max_in = UINT8_MAX},
    [IR_OP_RESULT] = {.name = "result", .text = "one result of a call", .min_in = 1, .max_in = 1, .n_results = 1},
#define EW(ID, op_name, min, max, types, result, op_flags, set, fref, iref, from, to, max_ulp, max_abs, ktypes,        \
           sentence)                                                                                                   \
    [IR_OP_##ID] = {.name = #op_name,                                                                                  \
                    .text = sentence,                                                                                  \
                    .kind = IR_KIND_EW,                                                                                \
                    .n_results = 1,                                                                                    \
                    .min_in = min,                                                                                     \
                    .max_in = max,                                                                                     \
                    .classes = CLASSES(types),                                                                         \
                    .result_is_bool = RESULT_##result,                                                                 \
                    .flags = op_flags,                                                                                 \
                    .attrs = attrs_##set,                                                                              \
                    .n_attrs = N_ATTRS(set),                                                                           \
                    .n_scalar_attrs = SCALARS_##set,                                                                   \
                    .lo = from,                                                                                        \
                    .hi = to,                                                                                          \
                    .ulp = max_ulp,                                                                                    \
                    .abs = max_abs,                                                                                    \
                    .kernel_types = ktypes},
#define CONVERT(ID, op_name, sentence)                                                                                 \
    [IR_OP_##ID] = {.name = #op_name,                                                                                  \
                    .text = sentence,                                                                                  \
                    .kind = IR_KIND_CONVERT,                                                                           \
                    .n_results = 1,                                                                                    \
                    .min_in = 1,                                                                                       \
                    .max_in = 1,                                                                                       \
                    .classes = CLASSES("FSUB"),                                                                        \
                    .kernel_types = KANY},
#define REDUCE(ID, op_name, with, types, sums, set, sentence)                                                          \
    [IR_OP_##ID] = {.name = #op_name,                                                                                  \
                    .text = sentence,                                                                                  \
                    .kind = IR_KIND_REDUCE,                                                                            \
                    .n_results = 1,                                                                                    \
                    .min_in = 1,                                                                                       \
                    .max_in = 1,                                                                                       \
                    .classes = CLASSES(types),                                                                         \
                    .attrs = attrs_##set,                                                                              \
                    .n_attrs = N_ATTRS(set),                                                                           \
                    .combine = IR_OP_##with,                                                                           \
                    .is_sum_like = sums,                                                                               \
                    .kernel_types = KANY},
#define SEVERAL(ID, op_name, results, min, max, op_kind, types, set, sentence)                                         \
    [IR_OP_##ID] = {.name = #op_name,                                                                                  \
                    .text = sentence,                                                                                  \
                    .kind = IR_KIND_##op_kind,                                                                         \
                    .n_results = results,                                                                              \
                    .flags = IR_KIND_##op_kind == IR_KIND_RANDOM ? IR_COSTLY : 0,                                      \
                    .min_in = min,                                                                                     \
                    .max_in = max,                                                                                     \
                    .classes = CLASSES(types),                                                                         \
                    .attrs = attrs_##set,                                                                              \
                    .n_attrs = N_ATTRS(set),                                                                           \
                    .kernel_types = KANY},
#define OTHER(ID, op_name, ...) SEVERAL(ID, op_name, 1, __VA_ARGS__)
#include "ir/ops.def"
#undef EW
#undef CONVERT
#undef REDUCE
#undef OTHER
};

const ir_fast_info ir_fast[IR_OP_COUNT] = {
#define FAST(ID, op_name, max_ulp, max_abs, where) [IR_OP_##ID] = {.levels = where, .ulp = max_ulp, .abs = max_abs},
#include "ir/fast.def"
#undef FAST
};

ir_op ir_scatter_combine(int64_t mode) {
    static const ir_op ops[] = {IR_OP_NONE, IR_OP_ADD, IR_OP_MUL, IR_OP_MAXIMUM, IR_OP_MINIMUM};
    return ops[mode];
}

/* ---- lookup ---- */
enum { FIRST_OP = IR_OP_RESULT + 1 };

ir_op ir_op_find(const char *name, size_t n) {
    for (int op = FIRST_OP; op < IR_OP_COUNT; op++) {
        if (strlen(ir_ops[op].name) == n && memcmp(ir_ops[op].name, name, n) == 0) return (ir_op)op;
    }
    return IR_OP_NONE;
}

/* NumPy's, PyTorch's and ONNX's words for operators whose own are far from them. */
static const char *const synonyms[][2] = {{"where", "select"},
                                          {"masked_fill", "select"},
                                          {"gather", "take"},
                                          {"index_select", "take"},
                                          {"permute", "transpose"},
                                          {"swapaxes", "transpose"},
                                          {"view", "reshape"},
                                          {"flatten", "reshape"},
                                          {"expand", "broadcast_to"},
                                          {"cat", "concat"},
                                          {"stack", "concat"},
                                          {"bmm", "matmul"},
                                          {"mm", "matmul"},
                                          {"dot", "matmul"},
                                          {"gemm", "matmul"},
                                          {"linear", "matmul"},
                                          {"arange", "iota"},
                                          {"zeros", "full"},
                                          {"ones", "full"},
                                          {"norm", "reduce_l2"},
                                          {"clip", "clamp"},
                                          {"astype", "cast"},
                                          {"to", "cast"},
                                          {"multiply", "mul"},
                                          {"subtract", "sub"},
                                          {"divide", "div"},
                                          {"power", "pow"},
                                          {"negative", "neg"},
                                          {"less", "lt"},
                                          {"greater", "gt"},
                                          {"equal", "eq"},
                                          {"logical_not", "not"},
                                          {"logical_and", "and"},
                                          {"logical_or", "or"},
                                          {"repeat", "tile"},
                                          {"conv1d", "conv"},
                                          {"conv2d", "conv"},
                                          {"conv3d", "conv"},
                                          {"avg_pool", "average_pool"},
                                          {"avg_pool2d", "average_pool"},
                                          {"max_pool2d", "max_pool"},
                                          {"rand", "random_uniform"},
                                          {"randn", "random_normal"},
                                          {"scaled_dot_product_attention", "attention"}};

const char *ir_op_nearest(const char *name) {
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++)
        if (strcmp(synonyms[i][0], name) == 0) return synonyms[i][1];
    static const char reduce[] = "reduce_";
    const size_t n = strlen(name), r = sizeof reduce - 1;
    const char *names[IR_OP_COUNT], *longer = NULL;
    for (int op = FIRST_OP; op < IR_OP_COUNT; op++) {
        const char *of = names[op - FIRST_OP] = ir_ops[op].name;
        if (strncmp(of, reduce, r) == 0 && strcmp(of + r, name) == 0) return of;
        if (!longer && n && strncmp(of, name, n) == 0 && of[n] == '_') longer = of;
    }
    return longer ? longer : fu_nearest(name, names, IR_OP_COUNT - FIRST_OP);
}
