/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_OP_H
#define FUSOR_OP_H
/* fusor/op.h: one function an operator. Applied to data (tensor.h) a call is lazy: it checks types and shapes, returns
 * a handle and computes nothing. Applied to parameters of a function that is being built (graph.h) it traces. The
 * language manual says what each operator means.
 *
 * In C, a number stands for a tensor anywhere: fusor_mul(x, .5), fusor_add(x, 1). It takes the dtype of the tensors
 * beside it, and is an argument of the kernel: another number does not compile again. FUSOR_NO_GENERIC before the
 * include turns that off; then, and in C++ without fusor.hpp, write fusor_f(.5) and fusor_i(1). Beside bool write
 * fusor_b(1): true of C11's stdbool.h is an int. What has no place among a function's arguments has one among the
 * attributes of fusor_apply.
 *
 * **Ownership**: results belong to the calling thread's innermost scope. **Errors**: a bad handle, reported by
 * fusor_eval, fusor_read, fusor_status_of and the scope. **Threads**: any. **Cost**: under a microsecond. */
#include <fusor/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Two arguments, a count and a list: fusor_reduce_sum(x, FUSOR_AXES(0, -1), 0). */
#define FUSOR_AXES(...) FUSOR_SHAPE(__VA_ARGS__)
#define FUSOR_ALL_AXES  -1, NULL
enum { FUSOR_FLAT = INT32_MIN }; /* fusor_argmax(x, FUSOR_FLAT, 0): over all elements */

/** Any operator by its name, with attributes as the language writes them: fusor_apply(ctx, "softmax", 1, &x, "axis=0"),
 *  fusor_apply(ctx, "cast", 1, &x, "f16"). attributes may be NULL. **Errors**: a bad handle (SYNTAX, TYPE, SHAPE): no
 * such operator or attribute, or one that does not fit. */
FUSOR_API fusor_tensor fusor_apply(fusor_context *ctx, const char *op, int n, const fusor_tensor *args,
                                   const char *attributes);
/** The same for an operator with several results: the one of that number, from 0. */
FUSOR_API fusor_tensor fusor_apply_result(fusor_context *ctx, const char *op, int result, int n,
                                          const fusor_tensor *args, const char *attributes);

/* ---- op-declarations, made from src/ir/ops.def by `make generated`: do not edit ---- */
/* ---- element by element: unary ---- */
/** negation; wraps for integers */
FUSOR_API fusor_tensor fusor_neg(fusor_tensor x);
/** absolute value; wraps at the minimum */
FUSOR_API fusor_tensor fusor_abs(fusor_tensor x);
/** -1, 0 or 1; zeros and NaN stay */
FUSOR_API fusor_tensor fusor_sign(fusor_tensor x);
/** x * x */
FUSOR_API fusor_tensor fusor_square(fusor_tensor x);
/** square root; NaN below 0 */
FUSOR_API fusor_tensor fusor_sqrt(fusor_tensor x);
/** reciprocal square root; +inf at 0 */
FUSOR_API fusor_tensor fusor_rsqrt(fusor_tensor x);
/** cube root */
FUSOR_API fusor_tensor fusor_cbrt(fusor_tensor x);
/** 1 / x */
FUSOR_API fusor_tensor fusor_reciprocal(fusor_tensor x);
/** e to the x */
FUSOR_API fusor_tensor fusor_exp(fusor_tensor x);
/** 2 to the x */
FUSOR_API fusor_tensor fusor_exp2(fusor_tensor x);
/** exp(x) - 1 without cancellation */
FUSOR_API fusor_tensor fusor_expm1(fusor_tensor x);
/** natural logarithm */
FUSOR_API fusor_tensor fusor_log(fusor_tensor x);
/** logarithm to base 2 */
FUSOR_API fusor_tensor fusor_log2(fusor_tensor x);
/** logarithm to base 10 */
FUSOR_API fusor_tensor fusor_log10(fusor_tensor x);
/** log(1 + x) without cancellation */
FUSOR_API fusor_tensor fusor_log1p(fusor_tensor x);
/** sine, radians, every finite argument */
FUSOR_API fusor_tensor fusor_sin(fusor_tensor x);
/** cosine, radians, every finite argument */
FUSOR_API fusor_tensor fusor_cos(fusor_tensor x);
/** tangent, radians, every finite argument */
FUSOR_API fusor_tensor fusor_tan(fusor_tensor x);
/** inverse sine */
FUSOR_API fusor_tensor fusor_asin(fusor_tensor x);
/** inverse cosine */
FUSOR_API fusor_tensor fusor_acos(fusor_tensor x);
/** inverse tangent */
FUSOR_API fusor_tensor fusor_atan(fusor_tensor x);
/** hyperbolic sine */
FUSOR_API fusor_tensor fusor_sinh(fusor_tensor x);
/** hyperbolic cosine */
FUSOR_API fusor_tensor fusor_cosh(fusor_tensor x);
/** hyperbolic tangent */
FUSOR_API fusor_tensor fusor_tanh(fusor_tensor x);
/** inverse hyperbolic sine */
FUSOR_API fusor_tensor fusor_asinh(fusor_tensor x);
/** inverse hyperbolic cosine */
FUSOR_API fusor_tensor fusor_acosh(fusor_tensor x);
/** inverse hyperbolic tangent */
FUSOR_API fusor_tensor fusor_atanh(fusor_tensor x);
/** error function */
FUSOR_API fusor_tensor fusor_erf(fusor_tensor x);
/** complementary error function */
FUSOR_API fusor_tensor fusor_erfc(fusor_tensor x);
/** largest integer not above x */
FUSOR_API fusor_tensor fusor_floor(fusor_tensor x);
/** smallest integer not below x */
FUSOR_API fusor_tensor fusor_ceil(fusor_tensor x);
/** nearest integer, halves to even */
FUSOR_API fusor_tensor fusor_round(fusor_tensor x);
/** x without its fraction */
FUSOR_API fusor_tensor fusor_trunc(fusor_tensor x);
/** is x a NaN */
FUSOR_API fusor_tensor fusor_isnan(fusor_tensor x);
/** is x an infinity */
FUSOR_API fusor_tensor fusor_isinf(fusor_tensor x);
/** is x neither NaN nor infinite */
FUSOR_API fusor_tensor fusor_isfinite(fusor_tensor x);
/** logical negation */
FUSOR_API fusor_tensor fusor_not(fusor_tensor x);
/** every bit flipped */
FUSOR_API fusor_tensor fusor_bitwise_not(fusor_tensor x);
/** 0 where x < 0, else x (NaN stays) */
FUSOR_API fusor_tensor fusor_relu(fusor_tensor x);
/** relu, at most 6 */
FUSOR_API fusor_tensor fusor_relu6(fusor_tensor x);
/** scaled exponential linear unit (Klambauer et al. 2017) */
FUSOR_API fusor_tensor fusor_selu(fusor_tensor x);
/** 1 / (1 + exp(-x)) */
FUSOR_API fusor_tensor fusor_sigmoid(fusor_tensor x);
/** x * hard_sigmoid(x, 1/6, 0.5) */
FUSOR_API fusor_tensor fusor_hard_swish(fusor_tensor x);
/** x * sigmoid(x) */
FUSOR_API fusor_tensor fusor_silu(fusor_tensor x);
/** log(1 + exp(x)) */
FUSOR_API fusor_tensor fusor_softplus(fusor_tensor x);
/** x / (1 + |x|) */
FUSOR_API fusor_tensor fusor_softsign(fusor_tensor x);
/** x * tanh(softplus(x)) */
FUSOR_API fusor_tensor fusor_mish(fusor_tensor x);
/** Gaussian error linear unit: x * Phi(x), or its tanh approximation */
FUSOR_API fusor_tensor fusor_gelu(fusor_tensor x);

/* ---- element by element: binary ---- */
/** sum */
FUSOR_API fusor_tensor fusor_add(fusor_tensor a, fusor_tensor b);
/** difference */
FUSOR_API fusor_tensor fusor_sub(fusor_tensor a, fusor_tensor b);
/** product */
FUSOR_API fusor_tensor fusor_mul(fusor_tensor a, fusor_tensor b);
/** quotient; integers truncate, division by 0 gives 0 */
FUSOR_API fusor_tensor fusor_div(fusor_tensor a, fusor_tensor b);
/** remainder with the sign of the divisor */
FUSOR_API fusor_tensor fusor_mod(fusor_tensor a, fusor_tensor b);
/** remainder with the sign of the dividend */
FUSOR_API fusor_tensor fusor_fmod(fusor_tensor a, fusor_tensor b);
/** x to the y; integers wrap */
FUSOR_API fusor_tensor fusor_pow(fusor_tensor a, fusor_tensor b);
/** angle of the point (y, x), operands in that order */
FUSOR_API fusor_tensor fusor_atan2(fusor_tensor a, fusor_tensor b);
/** a where a > b or a is NaN, else b */
FUSOR_API fusor_tensor fusor_maximum(fusor_tensor a, fusor_tensor b);
/** a where a < b or a is NaN, else b */
FUSOR_API fusor_tensor fusor_minimum(fusor_tensor a, fusor_tensor b);
/** sqrt(x*x + y*y) without overflow */
FUSOR_API fusor_tensor fusor_hypot(fusor_tensor a, fusor_tensor b);
/** magnitude of a with the sign of b */
FUSOR_API fusor_tensor fusor_copysign(fusor_tensor a, fusor_tensor b);
/** equal */
FUSOR_API fusor_tensor fusor_eq(fusor_tensor a, fusor_tensor b);
/** not equal (NaN too) */
FUSOR_API fusor_tensor fusor_ne(fusor_tensor a, fusor_tensor b);
/** less */
FUSOR_API fusor_tensor fusor_lt(fusor_tensor a, fusor_tensor b);
/** less or equal */
FUSOR_API fusor_tensor fusor_le(fusor_tensor a, fusor_tensor b);
/** greater */
FUSOR_API fusor_tensor fusor_gt(fusor_tensor a, fusor_tensor b);
/** greater or equal */
FUSOR_API fusor_tensor fusor_ge(fusor_tensor a, fusor_tensor b);
/** bitwise on integers, logical on bool */
FUSOR_API fusor_tensor fusor_and(fusor_tensor a, fusor_tensor b);
/** bitwise on integers, logical on bool */
FUSOR_API fusor_tensor fusor_or(fusor_tensor a, fusor_tensor b);
/** bitwise on integers, logical on bool */
FUSOR_API fusor_tensor fusor_xor(fusor_tensor a, fusor_tensor b);
/** shift left; 0 for counts at or past the width, and for negative ones */
FUSOR_API fusor_tensor fusor_shl(fusor_tensor a, fusor_tensor b);
/** shift right; arithmetic for signed types */
FUSOR_API fusor_tensor fusor_shr(fusor_tensor a, fusor_tensor b);

/* ---- element by element: ternary ---- */
/** a where cond, else b */
FUSOR_API fusor_tensor fusor_select(fusor_tensor cond, fusor_tensor a, fusor_tensor b);
/** a between b and c: minimum(maximum(a, b), c) */
FUSOR_API fusor_tensor fusor_clamp(fusor_tensor a, fusor_tensor b, fusor_tensor c);
/** a * b + c rounded once */
FUSOR_API fusor_tensor fusor_fma(fusor_tensor a, fusor_tensor b, fusor_tensor c);
/* ---- end of op-declarations ---- */

/* ---- element by element: with scalar attributes ---- */
/** alpha * x where x < 0, else x */
FUSOR_API fusor_tensor fusor_leaky_relu(fusor_tensor x, double alpha);
/** alpha * (exp(x) - 1) where x < 0, else x */
FUSOR_API fusor_tensor fusor_elu(fusor_tensor x, double alpha);
/** alpha * (exp(x / alpha) - 1) where x < 0, else x */
FUSOR_API fusor_tensor fusor_celu(fusor_tensor x, double alpha);
/** alpha * x + beta between 0 and 1 */
FUSOR_API fusor_tensor fusor_hard_sigmoid(fusor_tensor x, double alpha, double beta);

/* ---- conversion ---- */
/** the value in another type: one rounding; float to integer truncates and saturates, NaN gives 0 */
FUSOR_API fusor_tensor fusor_cast(fusor_tensor x, fusor_dtype dtype);
/** the bits read as another type of the same width */
FUSOR_API fusor_tensor fusor_bitcast(fusor_tensor x, fusor_dtype dtype);

/* ---- reductions: FUSOR_AXES(0, 2) or FUSOR_ALL_AXES stands for two arguments ---- */
/** sum; integers and bool give i64 */
FUSOR_API fusor_tensor fusor_reduce_sum(fusor_tensor x, int n_axes, const int64_t *axes, int keepdims);
/** product; integers and bool give i64 */
FUSOR_API fusor_tensor fusor_reduce_prod(fusor_tensor x, int n_axes, const int64_t *axes, int keepdims);
/** largest element; NaN wins */
FUSOR_API fusor_tensor fusor_reduce_max(fusor_tensor x, int n_axes, const int64_t *axes, int keepdims);
/** smallest element; NaN wins */
FUSOR_API fusor_tensor fusor_reduce_min(fusor_tensor x, int n_axes, const int64_t *axes, int keepdims);
/** arithmetic mean; NaN over an empty axis */
FUSOR_API fusor_tensor fusor_reduce_mean(fusor_tensor x, int n_axes, const int64_t *axes, int keepdims);
/** variance: the sum of squared deviations from the mean / max(n - correction, 0) */
FUSOR_API fusor_tensor fusor_reduce_var(fusor_tensor x, int n_axes, const int64_t *axes, int keepdims,
                                        double correction);
/** standard deviation: the square root of the variance */
FUSOR_API fusor_tensor fusor_reduce_std(fusor_tensor x, int n_axes, const int64_t *axes, int keepdims,
                                        double correction);
/** sum of absolute values; integers and bool give i64 */
FUSOR_API fusor_tensor fusor_reduce_l1(fusor_tensor x, int n_axes, const int64_t *axes, int keepdims);
/** square root of the sum of squares */
FUSOR_API fusor_tensor fusor_reduce_l2(fusor_tensor x, int n_axes, const int64_t *axes, int keepdims);
/** log(sum(exp(x))) without overflow; -inf over an empty axis */
FUSOR_API fusor_tensor fusor_reduce_logsumexp(fusor_tensor x, int n_axes, const int64_t *axes, int keepdims);
/** are all elements true */
FUSOR_API fusor_tensor fusor_reduce_all(fusor_tensor x, int n_axes, const int64_t *axes, int keepdims);
/** is any element true */
FUSOR_API fusor_tensor fusor_reduce_any(fusor_tensor x, int n_axes, const int64_t *axes, int keepdims);
/** index of the largest element, i64; the first of equals and of NaNs. axis FUSOR_FLAT: of all elements */
FUSOR_API fusor_tensor fusor_argmax(fusor_tensor x, int axis, int keepdims);
/** index of the smallest element, i64; the first of equals and of NaNs */
FUSOR_API fusor_tensor fusor_argmin(fusor_tensor x, int axis, int keepdims);

/* ---- running sums and products ---- */
/** sum of the elements up to each along an axis (exclusive: before each; reverse: from the end); integers and bool give
 * i64 */
FUSOR_API fusor_tensor fusor_cumsum(fusor_tensor x, int axis, int exclusive, int reverse);
/** product of the elements up to each along an axis; integers and bool give i64 */
FUSOR_API fusor_tensor fusor_cumprod(fusor_tensor x, int axis, int exclusive, int reverse);

/* ---- norms ---- */
/** Stands for an operand that is left out. */
#ifndef __cplusplus
#define FUSOR_NO_TENSOR ((fusor_tensor){0, 0, 0})
#else
#define FUSOR_NO_TENSOR (fusor_tensor{nullptr, 0, 0})
#endif
/** (x - mean) / sqrt(variance + epsilon) * gamma + beta, over all axes from axis on; gamma and beta, or beta, may be
 * FUSOR_NO_TENSOR */
FUSOR_API fusor_tensor fusor_layer_norm(fusor_tensor x, fusor_tensor gamma, fusor_tensor beta, int axis,
                                        double epsilon);
/** x / sqrt(mean(x * x) + epsilon) * gamma, over all axes from axis on; gamma may be FUSOR_NO_TENSOR */
FUSOR_API fusor_tensor fusor_rms_norm(fusor_tensor x, fusor_tensor gamma, int axis, double epsilon);

/* ---- rows and contractions ---- */
/** exp(x - max) / sum(exp(x - max)) along an axis */
FUSOR_API fusor_tensor fusor_softmax(fusor_tensor x, int axis);
/** x - max - log(sum(exp(x - max))) along an axis */
FUSOR_API fusor_tensor fusor_log_softmax(fusor_tensor x, int axis);
/** matrix product, batched and broadcasting as numpy.matmul */
FUSOR_API fusor_tensor fusor_matmul(fusor_tensor a, fusor_tensor b);
/** sum of products over subscripts such as "bij,bjk->bik", as numpy.einsum: n operands; ellipsis, implicit result,
 * diagonals */
FUSOR_API fusor_tensor fusor_einsum(const char *subscripts, int n, const fusor_tensor *x);

/* ---- movement: FUSOR_SHAPE(2, 3) and FUSOR_AXES(1, 0) stand for two arguments ---- */
/** the same elements in row-major order under another shape; one size may be -1: what is left */
FUSOR_API fusor_tensor fusor_reshape(fusor_tensor x, int rank, const int64_t *shape);
/** axes in another order; FUSOR_ALL_AXES: reversed */
FUSOR_API fusor_tensor fusor_transpose(fusor_tensor x, int n_axes, const int64_t *perm);
/** sizes of 1 and missing dimensions repeated */
FUSOR_API fusor_tensor fusor_broadcast_to(fusor_tensor x, int rank, const int64_t *shape);
/** axes of size 1 dropped */
FUSOR_API fusor_tensor fusor_squeeze(fusor_tensor x, int n_axes, const int64_t *axes);
/** axes of size 1 put in, counted in the result */
FUSOR_API fusor_tensor fusor_unsqueeze(fusor_tensor x, int n_axes, const int64_t *axes);

/** softmax(q @ transpose(k) * scale) @ v for q [.., heads, Sq, D], k [.., heads, Sk, D] and v [.., heads, Sk, E]; the
 * heads of q may be a multiple of those of k and v. mask: bool (true keeps the key) or a float that is added to the
 * scores, or FUSOR_NO_TENSOR. causal: query i sees key j where j <= i + causal_offset, a scalar integer or
 * FUSOR_NO_TENSOR for 0. window: NULL, or the {left, right} of i - left <= j <= i + right, with the offset added, -1
 * for no bound. softcap c > 0: c * tanh(scores / c). scale 0: 1 / sqrt(D). A row without a key gives 0 */
FUSOR_API fusor_tensor fusor_attention(fusor_tensor q, fusor_tensor k, fusor_tensor v, fusor_tensor mask, int causal,
                                       fusor_tensor causal_offset, const int64_t *window, double softcap, double scale);

/* ---- windows over the n spatial axes of [N, C, ..], and quantization ---- */
/** the largest element of each window. strides, pads (all begins, then all ends) and dilations may be NULL: ones and
 * zeros */
FUSOR_API fusor_tensor fusor_max_pool(fusor_tensor x, int n, const int64_t *kernel, const int64_t *strides,
                                      const int64_t *pads, const int64_t *dilations, int ceil);
/** the mean of each window */
FUSOR_API fusor_tensor fusor_average_pool(fusor_tensor x, int n, const int64_t *kernel, const int64_t *strides,
                                          const int64_t *pads, const int64_t *dilations, int ceil,
                                          int count_include_pad);
/** the mean over all spatial axes */
FUSOR_API fusor_tensor fusor_global_average_pool(fusor_tensor x);
/** convolution with weights w [O, C / groups, ..] and a bias b [O] or FUSOR_NO_TENSOR. strides, pads (all begins, then
 * all ends) and dilations, n (2 n pads) each, may be NULL: ones and zeros */
FUSOR_API fusor_tensor fusor_conv(fusor_tensor x, fusor_tensor w, fusor_tensor b, int n, const int64_t *strides,
                                  const int64_t *pads, const int64_t *dilations, int64_t groups);
/** transposed convolution with weights w [C, O / groups, ..]; output_padding, n places at the ends, may be NULL */
FUSOR_API fusor_tensor fusor_conv_transpose(fusor_tensor x, fusor_tensor w, fusor_tensor b, int n,
                                            const int64_t *strides, const int64_t *pads, const int64_t *dilations,
                                            const int64_t *output_padding, int64_t groups);
/** saturate(round(x / scale) + zero_point) in dtype; axis FUSOR_FLAT: one scale and zero point for all elements */
FUSOR_API fusor_tensor fusor_quantize(fusor_tensor x, fusor_tensor scale, fusor_tensor zero_point, int axis,
                                      fusor_dtype dtype);
/** (x - zero_point) * scale */
FUSOR_API fusor_tensor fusor_dequantize(fusor_tensor x, fusor_tensor scale, fusor_tensor zero_point, int axis);

/* ---- recurrent cells: x [.., I], h and state [.., H]; weights [gates * H, I] and [gates * H, H], biases [gates * H],
 * in the gate order of PyTorch. Both biases may be FUSOR_NO_TENSOR ---- */
/** gates i, f, g, o: state' = f * state + i * g into *state_out, o * tanh(state') into *h_out */
FUSOR_API void fusor_lstm_cell(fusor_tensor x, fusor_tensor h, fusor_tensor state, fusor_tensor w_ih, fusor_tensor w_hh,
                               fusor_tensor b_ih, fusor_tensor b_hh, fusor_tensor *h_out, fusor_tensor *state_out);
/** gates r, z, n: (1 - z) * n + z * h. linear_before_reset: r times the product of h and its weights, else of r * h */
FUSOR_API fusor_tensor fusor_gru_cell(fusor_tensor x, fusor_tensor h, fusor_tensor w_ih, fusor_tensor w_hh,
                                      fusor_tensor b_ih, fusor_tensor b_hh, int linear_before_reset);
enum { FUSOR_RNN_TANH, FUSOR_RNN_RELU };
/** tanh or relu of x w_ih^T + b_ih + h w_hh^T + b_hh */
FUSOR_API fusor_tensor fusor_rnn_cell(fusor_tensor x, fusor_tensor h, fusor_tensor w_ih, fusor_tensor w_hh,
                                      fusor_tensor b_ih, fusor_tensor b_hh, int activation);

/** a part of each axis from starts to ends by steps, n of each; negative bounds count from the end, bounds clamp. steps
 * NULL: 1; axes NULL: the first n */
FUSOR_API fusor_tensor fusor_slice(fusor_tensor x, int n, const int64_t *starts, const int64_t *ends,
                                   const int64_t *steps, const int64_t *axes);
/** axes in reverse order */
FUSOR_API fusor_tensor fusor_flip(fusor_tensor x, int n_axes, const int64_t *axes);
enum { FUSOR_PAD_CONSTANT, FUSOR_PAD_EDGE, FUSOR_PAD_REFLECT, FUSOR_PAD_WRAP };
/** elements before and after each axis. value: a scalar, for mode FUSOR_PAD_CONSTANT only; pads: n of them, twice the
 * rank of x: all begins, then all ends; negative ones cut off */
FUSOR_API fusor_tensor fusor_pad(fusor_tensor x, fusor_tensor value, int mode, int n, const int64_t *pads);
/** operands one after the other along an axis */
FUSOR_API fusor_tensor fusor_concat(int n, const fusor_tensor *x, int axis);
/** parts of an axis of the given sizes, n of them into results */
FUSOR_API void fusor_split(fusor_tensor x, int axis, int n, const int64_t *sizes, fusor_tensor *results);
/** the tensor again and again along each axis */
FUSOR_API fusor_tensor fusor_tile(fusor_tensor x, int n, const int64_t *repeats);
/** 0 above diagonal k of the last two axes */
FUSOR_API fusor_tensor fusor_tril(fusor_tensor x, int64_t k);
/** 0 below diagonal k of the last two axes */
FUSOR_API fusor_tensor fusor_triu(fusor_tensor x, int64_t k);

/* ---- indices: of any integer type; negative ones count from the end, others out of range are FUSOR_ERROR_INDEX
 * ---- */
/** the slices along an axis that indices name */
FUSOR_API fusor_tensor fusor_take(fusor_tensor x, fusor_tensor indices, int axis);
/** the element along an axis that each index names; ranks are equal, other axes broadcast */
FUSOR_API fusor_tensor fusor_take_along(fusor_tensor x, fusor_tensor indices, int axis);
enum { FUSOR_SCATTER_SET, FUSOR_SCATTER_ADD, FUSOR_SCATTER_MUL, FUSOR_SCATTER_MAX, FUSOR_SCATTER_MIN };
/** x with updates at indices along an axis, one after the other, of mode FUSOR_SCATTER_SET, .._ADD, .. */
FUSOR_API fusor_tensor fusor_scatter(fusor_tensor x, fusor_tensor indices, fusor_tensor updates, int axis, int mode);
/** rows of zeros with a 1 where the index says; an index out of range gives zeros */
FUSOR_API fusor_tensor fusor_one_hot(fusor_tensor indices, int64_t depth, fusor_dtype dtype);

/* ---- creation: inside fusor_function_begin and _end of a module of ctx they trace ---- */
/** a tensor of one value: a scalar, or a tensor of rank 0 of that dtype */
FUSOR_API fusor_tensor fusor_full(fusor_context *ctx, fusor_tensor value, fusor_dtype dtype, int rank,
                                  const int64_t *shape);
/** the index along an axis, cast */
FUSOR_API fusor_tensor fusor_iota(fusor_context *ctx, fusor_dtype dtype, int axis, int rank, const int64_t *shape);
/** random numbers, uniform in [0, 1): an integer, or a scalar tensor of an integer type, as seed */
FUSOR_API fusor_tensor fusor_random_uniform(fusor_context *ctx, fusor_tensor seed, fusor_dtype dtype, int rank,
                                            const int64_t *shape);
/** random numbers, normally distributed: mean 0, variance 1 */
FUSOR_API fusor_tensor fusor_random_normal(fusor_context *ctx, fusor_tensor seed, fusor_dtype dtype, int rank,
                                           const int64_t *shape);
/** the size of an axis, i64 */
FUSOR_API fusor_tensor fusor_dim(fusor_tensor x, int axis);

#ifdef __cplusplus
}
#endif

/* Numbers for tensors. The statement expression has its argument's text once: nested calls would otherwise double it at
 * each level; its variable has a name of its own, so that nested ones shadow none. A macro does not expand within
 * itself, so the plain functions stay beneath: (fusor_add)(a, b). */
#if !defined(__cplusplus) && !defined(FUSOR_NO_GENERIC)
static inline fusor_tensor fusor_same_tensor(fusor_tensor t) { return t; }
#define FUSOR_GENERIC_(x)                                                                                              \
    _Generic((x), fusor_tensor                                                                                         \
             : fusor_same_tensor, _Bool                                                                                \
             : fusor_b, float                                                                                          \
             : fusor_f, double                                                                                         \
             : fusor_f, long double                                                                                    \
             : fusor_f, char                                                                                           \
             : fusor_i, signed char                                                                                    \
             : fusor_i, short                                                                                          \
             : fusor_i, int                                                                                            \
             : fusor_i, long                                                                                           \
             : fusor_i, long long                                                                                      \
             : fusor_i, unsigned char                                                                                  \
             : fusor_u, unsigned short                                                                                 \
             : fusor_u, unsigned                                                                                       \
             : fusor_u, unsigned long                                                                                  \
             : fusor_u, unsigned long long                                                                             \
             : fusor_u)(x)
#if defined(__GNUC__)
#define FUSOR_TENSOR_OF(x)             FUSOR_TENSOR_AS_(x, __COUNTER__)
#define FUSOR_TENSOR_AS_(x, count)     FUSOR_TENSOR_NAMED_(x, count)
#define FUSOR_TENSOR_NAMED_(x, count)                                                                                  \
    __extension__({                                                                                                    \
        __auto_type fusor_x_##count = (x);                                                                             \
        FUSOR_GENERIC_(fusor_x_##count);                                                                               \
    })
#else
#define FUSOR_TENSOR_OF(x) FUSOR_GENERIC_(x)
#endif
/* ---- op-macros, made from src/ir/ops.def by `make generated`: do not edit ---- */
#define fusor_neg(a)          fusor_neg(FUSOR_TENSOR_OF(a))
#define fusor_abs(a)          fusor_abs(FUSOR_TENSOR_OF(a))
#define fusor_sign(a)         fusor_sign(FUSOR_TENSOR_OF(a))
#define fusor_square(a)       fusor_square(FUSOR_TENSOR_OF(a))
#define fusor_sqrt(a)         fusor_sqrt(FUSOR_TENSOR_OF(a))
#define fusor_rsqrt(a)        fusor_rsqrt(FUSOR_TENSOR_OF(a))
#define fusor_cbrt(a)         fusor_cbrt(FUSOR_TENSOR_OF(a))
#define fusor_reciprocal(a)   fusor_reciprocal(FUSOR_TENSOR_OF(a))
#define fusor_exp(a)          fusor_exp(FUSOR_TENSOR_OF(a))
#define fusor_exp2(a)         fusor_exp2(FUSOR_TENSOR_OF(a))
#define fusor_expm1(a)        fusor_expm1(FUSOR_TENSOR_OF(a))
#define fusor_log(a)          fusor_log(FUSOR_TENSOR_OF(a))
#define fusor_log2(a)         fusor_log2(FUSOR_TENSOR_OF(a))
#define fusor_log10(a)        fusor_log10(FUSOR_TENSOR_OF(a))
#define fusor_log1p(a)        fusor_log1p(FUSOR_TENSOR_OF(a))
#define fusor_sin(a)          fusor_sin(FUSOR_TENSOR_OF(a))
#define fusor_cos(a)          fusor_cos(FUSOR_TENSOR_OF(a))
#define fusor_tan(a)          fusor_tan(FUSOR_TENSOR_OF(a))
#define fusor_asin(a)         fusor_asin(FUSOR_TENSOR_OF(a))
#define fusor_acos(a)         fusor_acos(FUSOR_TENSOR_OF(a))
#define fusor_atan(a)         fusor_atan(FUSOR_TENSOR_OF(a))
#define fusor_sinh(a)         fusor_sinh(FUSOR_TENSOR_OF(a))
#define fusor_cosh(a)         fusor_cosh(FUSOR_TENSOR_OF(a))
#define fusor_tanh(a)         fusor_tanh(FUSOR_TENSOR_OF(a))
#define fusor_asinh(a)        fusor_asinh(FUSOR_TENSOR_OF(a))
#define fusor_acosh(a)        fusor_acosh(FUSOR_TENSOR_OF(a))
#define fusor_atanh(a)        fusor_atanh(FUSOR_TENSOR_OF(a))
#define fusor_erf(a)          fusor_erf(FUSOR_TENSOR_OF(a))
#define fusor_erfc(a)         fusor_erfc(FUSOR_TENSOR_OF(a))
#define fusor_floor(a)        fusor_floor(FUSOR_TENSOR_OF(a))
#define fusor_ceil(a)         fusor_ceil(FUSOR_TENSOR_OF(a))
#define fusor_round(a)        fusor_round(FUSOR_TENSOR_OF(a))
#define fusor_trunc(a)        fusor_trunc(FUSOR_TENSOR_OF(a))
#define fusor_isnan(a)        fusor_isnan(FUSOR_TENSOR_OF(a))
#define fusor_isinf(a)        fusor_isinf(FUSOR_TENSOR_OF(a))
#define fusor_isfinite(a)     fusor_isfinite(FUSOR_TENSOR_OF(a))
#define fusor_not(a)          fusor_not(FUSOR_TENSOR_OF(a))
#define fusor_bitwise_not(a)  fusor_bitwise_not(FUSOR_TENSOR_OF(a))
#define fusor_relu(a)         fusor_relu(FUSOR_TENSOR_OF(a))
#define fusor_relu6(a)        fusor_relu6(FUSOR_TENSOR_OF(a))
#define fusor_selu(a)         fusor_selu(FUSOR_TENSOR_OF(a))
#define fusor_sigmoid(a)      fusor_sigmoid(FUSOR_TENSOR_OF(a))
#define fusor_hard_swish(a)   fusor_hard_swish(FUSOR_TENSOR_OF(a))
#define fusor_silu(a)         fusor_silu(FUSOR_TENSOR_OF(a))
#define fusor_softplus(a)     fusor_softplus(FUSOR_TENSOR_OF(a))
#define fusor_softsign(a)     fusor_softsign(FUSOR_TENSOR_OF(a))
#define fusor_mish(a)         fusor_mish(FUSOR_TENSOR_OF(a))
#define fusor_gelu(a)         fusor_gelu(FUSOR_TENSOR_OF(a))
#define fusor_add(a, b)       fusor_add(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_sub(a, b)       fusor_sub(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_mul(a, b)       fusor_mul(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_div(a, b)       fusor_div(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_mod(a, b)       fusor_mod(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_fmod(a, b)      fusor_fmod(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_pow(a, b)       fusor_pow(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_atan2(a, b)     fusor_atan2(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_maximum(a, b)   fusor_maximum(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_minimum(a, b)   fusor_minimum(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_hypot(a, b)     fusor_hypot(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_copysign(a, b)  fusor_copysign(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_eq(a, b)        fusor_eq(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_ne(a, b)        fusor_ne(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_lt(a, b)        fusor_lt(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_le(a, b)        fusor_le(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_gt(a, b)        fusor_gt(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_ge(a, b)        fusor_ge(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_and(a, b)       fusor_and(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_or(a, b)        fusor_or(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_xor(a, b)       fusor_xor(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_shl(a, b)       fusor_shl(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_shr(a, b)       fusor_shr(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_select(a, b, c) fusor_select(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b), FUSOR_TENSOR_OF(c))
#define fusor_clamp(a, b, c)  fusor_clamp(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b), FUSOR_TENSOR_OF(c))
#define fusor_fma(a, b, c)    fusor_fma(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b), FUSOR_TENSOR_OF(c))
/* ---- end of op-macros ---- */
#define fusor_leaky_relu(a, ...)    fusor_leaky_relu(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_elu(a, ...)           fusor_elu(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_celu(a, ...)          fusor_celu(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_hard_sigmoid(a, ...)  fusor_hard_sigmoid(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_cast(a, ...)          fusor_cast(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_bitcast(a, ...)       fusor_bitcast(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_reduce_sum(a, ...)    fusor_reduce_sum(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_reduce_prod(a, ...)   fusor_reduce_prod(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_reduce_max(a, ...)    fusor_reduce_max(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_reduce_min(a, ...)    fusor_reduce_min(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_reduce_mean(a, ...)   fusor_reduce_mean(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_reduce_var(a, ...)    fusor_reduce_var(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_reduce_std(a, ...)    fusor_reduce_std(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_reduce_l1(a, ...)     fusor_reduce_l1(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_reduce_l2(a, ...)     fusor_reduce_l2(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_reduce_logsumexp(a, ...) fusor_reduce_logsumexp(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_cumsum(a, ...)        fusor_cumsum(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_cumprod(a, ...)       fusor_cumprod(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_layer_norm(a, b, c, ...) \
    fusor_layer_norm(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b), FUSOR_TENSOR_OF(c), __VA_ARGS__)
#define fusor_rms_norm(a, b, ...)   fusor_rms_norm(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b), __VA_ARGS__)
#define fusor_reduce_all(a, ...)    fusor_reduce_all(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_reduce_any(a, ...)    fusor_reduce_any(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_argmax(a, ...)        fusor_argmax(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_argmin(a, ...)        fusor_argmin(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_softmax(a, ...)       fusor_softmax(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_log_softmax(a, ...)   fusor_log_softmax(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_matmul(a, b)          fusor_matmul(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(b))
#define fusor_reshape(a, ...)       fusor_reshape(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_transpose(a, ...)     fusor_transpose(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_broadcast_to(a, ...)  fusor_broadcast_to(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_squeeze(a, ...)       fusor_squeeze(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_unsqueeze(a, ...)     fusor_unsqueeze(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_attention(q, k, v, mask, causal, offset, ...)                                                            \
    fusor_attention(FUSOR_TENSOR_OF(q), FUSOR_TENSOR_OF(k), FUSOR_TENSOR_OF(v), FUSOR_TENSOR_OF(mask), causal,         \
                    FUSOR_TENSOR_OF(offset), __VA_ARGS__)
#define fusor_conv(x, w, b, ...)    fusor_conv(FUSOR_TENSOR_OF(x), FUSOR_TENSOR_OF(w), FUSOR_TENSOR_OF(b), __VA_ARGS__)
#define fusor_conv_transpose(x, w, b, ...)                                                                             \
    fusor_conv_transpose(FUSOR_TENSOR_OF(x), FUSOR_TENSOR_OF(w), FUSOR_TENSOR_OF(b), __VA_ARGS__)
#define fusor_max_pool(a, ...)      fusor_max_pool(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_average_pool(a, ...)  fusor_average_pool(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_global_average_pool(a) fusor_global_average_pool(FUSOR_TENSOR_OF(a))
#define fusor_quantize(a, scale, zero, ...)                                                                            \
    fusor_quantize(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(scale), FUSOR_TENSOR_OF(zero), __VA_ARGS__)
#define fusor_dequantize(a, scale, zero, ...)                                                                          \
    fusor_dequantize(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(scale), FUSOR_TENSOR_OF(zero), __VA_ARGS__)
#define fusor_slice(a, ...)         fusor_slice(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_flip(a, ...)          fusor_flip(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_pad(a, value, ...)    fusor_pad(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(value), __VA_ARGS__)
#define fusor_split(a, ...)         fusor_split(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_tile(a, ...)          fusor_tile(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_tril(a, ...)          fusor_tril(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_triu(a, ...)          fusor_triu(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_take(a, i, ...)       fusor_take(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(i), __VA_ARGS__)
#define fusor_take_along(a, i, ...) fusor_take_along(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(i), __VA_ARGS__)
#define fusor_scatter(a, i, u, ...)                                                                                    \
    fusor_scatter(FUSOR_TENSOR_OF(a), FUSOR_TENSOR_OF(i), FUSOR_TENSOR_OF(u), __VA_ARGS__)
#define fusor_one_hot(a, ...)       fusor_one_hot(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_full(ctx, value, ...) fusor_full(ctx, FUSOR_TENSOR_OF(value), __VA_ARGS__)
#define fusor_dim(a, ...)           fusor_dim(FUSOR_TENSOR_OF(a), __VA_ARGS__)
#define fusor_random_uniform(ctx, seed, ...) fusor_random_uniform(ctx, FUSOR_TENSOR_OF(seed), __VA_ARGS__)
#define fusor_random_normal(ctx, seed, ...)  fusor_random_normal(ctx, FUSOR_TENSOR_OF(seed), __VA_ARGS__)
#endif
#endif
