/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_FUSOR_HPP
#define FUSOR_FUSOR_HPP
/* fusor/fusor.hpp: the C API for C++11 and later: numbers stand for tensors, operators are overloaded, contexts, kept
 * tensors, scopes and executables free themselves, and failures are exceptions of type fusor::error. Header only;
 * everything is inline and calls the C functions.
 *
 *   fusor::context ctx;
 *   fusor::tensor x = ctx.wrap(data, {2, 3});
 *   std::vector<float> y = fusor::read<float>(fusor::relu(matmul(x, w) + 0.5));
 *
 * Every operator of op.h is here under its name without fusor_, with the defaults of the language; and, or, not and xor
 * end in an underscore; what makes tensors of nothing is a member of context. What an operator means is said in op.h,
 * what it costs and which thread may call it too; here it says what differs. **Errors** of operators are those of the
 * handle that they return, thrown when it is read, evaluated, or its scope ends. Thrown at once, as fusor::error with
 * FUSOR_ERROR_ARGUMENT, is a list whose number of entries does not fit the lists beside it. std::bad_alloc, where a
 * list does not fit in memory.
 *
 * **Ownership**: tensors are handles: they end with the scope in which they were made (tensor.h), kept ones with their
 * last `kept`. */
#include <fusor/fusor.h>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace fusor {

/** What a failing call came to: status() is its code, what() the context's message. */
class error : public std::runtime_error {
  public:
    error(fusor_status status, const char *text)
        : std::runtime_error(text && *text ? text : fusor_status_name(status)), status_(status) {}
    fusor_status status() const noexcept { return status_; }

  private:
    fusor_status status_;
};

/** Elements of two bytes without arithmetic: ctx.wrap(halves, {n}) of an array of f16 and read<f16>(t) move them; their
 *  values are had by cast<float>(t), and made by cast<f16>(t). */
struct f16 {
    uint16_t bits;
};
struct bf16 {
    uint16_t bits;
};

/** The dtype of a C++ type: bool, integers up to 64 bits, float, double, f16, bf16. A half type of another library gets
 *  one by a line of the program: template <> struct fusor::dtype_of<half> { static constexpr fusor_dtype value =
 *  FUSOR_F16; }; */
template <class T, class = void> struct dtype_of;
template <> struct dtype_of<double> { static constexpr fusor_dtype value = FUSOR_F64; };
template <> struct dtype_of<float> { static constexpr fusor_dtype value = FUSOR_F32; };
template <> struct dtype_of<f16> { static constexpr fusor_dtype value = FUSOR_F16; };
template <> struct dtype_of<bf16> { static constexpr fusor_dtype value = FUSOR_BF16; };
template <> struct dtype_of<bool> { static constexpr fusor_dtype value = FUSOR_BOOL; };
template <class T> struct dtype_of<T, typename std::enable_if<std::is_integral<T>::value && sizeof(T) <= 8>::type> {
    static constexpr fusor_dtype value = sizeof(T) == 8   ? (std::is_signed<T>::value ? FUSOR_I64 : FUSOR_U64)
                                         : sizeof(T) == 4 ? (std::is_signed<T>::value ? FUSOR_I32 : FUSOR_U32)
                                         : sizeof(T) == 2 ? (std::is_signed<T>::value ? FUSOR_I16 : FUSOR_U16)
                                                          : (std::is_signed<T>::value ? FUSOR_I8 : FUSOR_U8);
};

namespace detail {
/* What counts as a size: integers, but neither bool nor text. */
template <class T>
struct is_size : std::integral_constant<bool, std::is_integral<T>::value && sizeof(T) <= 8 &&
                                                  !std::is_same<T, bool>::value && !std::is_same<T, char>::value> {};
/* What counts as a number: arithmetic types up to 64 bits, long double (as double), enumerators. */
template <class T>
struct is_number : std::integral_constant<bool, std::is_floating_point<T>::value ||
                                                    ((std::is_integral<T>::value || std::is_enum<T>::value) &&
                                                     sizeof(T) <= 8 && std::is_convertible<T, long long>::value)> {};
template <class T> using element = typename std::decay<decltype(*std::begin(std::declval<const T &>()))>::type;

inline fusor_tensor number(bool v) { return fusor_b(v); }
template <class T> typename std::enable_if<std::is_floating_point<T>::value, fusor_tensor>::type number(T v) {
    return fusor_f(static_cast<double>(v));
}
template <class T> typename std::enable_if<!std::is_floating_point<T>::value, fusor_tensor>::type number(T v) {
    return std::is_unsigned<T>::value ? fusor_u(static_cast<uint64_t>(v)) : fusor_i(static_cast<int64_t>(v));
}
} // namespace detail

/** Sizes, axes, bounds: a list {2, 3} of integers of any type, a std::vector, std::array or other container of them,
 *  or {pointer, count}. **Ownership**: holds a copy. **Errors**: std::bad_alloc. */
class sizes {
    struct entry {
        int64_t value;
        template <class T, typename std::enable_if<detail::is_size<T>::value, int>::type = 0>
        entry(T v) : value(static_cast<int64_t>(v)) {}
    };

  public:
    sizes(std::initializer_list<entry> list) {
        at_.reserve(list.size());
        for (const entry &e : list) at_.push_back(e.value);
    }
    template <class T, class N,
              typename std::enable_if<detail::is_size<T>::value && detail::is_size<N>::value, int>::type = 0>
    sizes(const T *first, N count) {
        at_.reserve(static_cast<size_t>(count));
        for (N i = 0; i < count; i++) at_.push_back(static_cast<int64_t>(first[i]));
    }
    template <class C, typename std::enable_if<detail::is_size<detail::element<C>>::value, int>::type = 0>
    sizes(const C &list) {
        for (const auto &v : list) at_.push_back(static_cast<int64_t>(v));
    }
    const int64_t *data() const noexcept { return at_.data(); }
    size_t size() const noexcept { return at_.size(); }
    int count() const noexcept { return static_cast<int>(at_.size()); }
    const int64_t *begin() const noexcept { return at_.data(); }
    const int64_t *end() const noexcept { return at_.data() + at_.size(); }

  private:
    std::vector<int64_t> at_;
};

/** Stands for a list of all axes, and for an axis that may be left out: argmax(x, all_axes). */
enum all_axes_t : int32_t { all_axes = FUSOR_FLAT };

/** Axes, as sizes, or all_axes. An empty list {} is no axis. */
class axes : public sizes {
  public:
    using sizes::sizes;
    axes(all_axes_t) : sizes({}), is_all_(true) {}
    int count() const noexcept { return is_all_ ? -1 : sizes::count(); }

  private:
    bool is_all_ = false;
};

/** A handle (fusor_tensor), or a number of any arithmetic type that takes the dtype of the tensors beside it. Without
 *  either it is empty: it stands for an operand that is left out, or that is assigned later. Copies are the same
 *  tensor. */
class tensor {
  public:
    tensor() noexcept : t_{nullptr, 0, 0} {}
    tensor(fusor_tensor t) noexcept : t_(t) {}
    template <class T, typename std::enable_if<detail::is_number<T>::value, int>::type = 0>
    tensor(T v) : t_(detail::number(v)) {}
    operator fusor_tensor() const noexcept { return t_; }
    fusor_tensor handle() const noexcept { return t_; }
    bool is_empty() const noexcept { return !t_.owner; }

  private:
    fusor_tensor t_;
};

/** Operands: a list {a, b, 2}, a container of tensors, or {pointer, count}. **Ownership**: holds a copy of the handles.
 *  **Errors**: std::bad_alloc. */
class tensors {
  public:
    tensors(std::initializer_list<tensor> list) : at_(list.begin(), list.end()) {}
    template <class N, typename std::enable_if<detail::is_size<N>::value, int>::type = 0>
    tensors(const tensor *first, N count) : at_(first, first + count) {}
    template <class C, typename std::enable_if<std::is_convertible<detail::element<C>, tensor>::value, int>::type = 0>
    tensors(const C &list) {
        for (const tensor t : list) at_.push_back(t);
    }
    const fusor_tensor *data() const noexcept { return at_.data(); }
    int count() const noexcept { return static_cast<int>(at_.size()); }

  private:
    std::vector<fusor_tensor> at_;
};

namespace detail {
/* A list that may be left out: its entries, of which there must be n, or NULL. */
inline const int64_t *optional(const char *op, const char *what, const sizes &list, size_t n) {
    if (list.size() == 0) return nullptr;
    if (list.size() != n)
        throw error(FUSOR_ERROR_ARGUMENT, (std::string(op) + ": " + std::to_string(list.size()) + " " + what +
                                           "; expected " + std::to_string(n))
                                              .c_str());
    return list.data();
}
/* How many spatial axes the lists of a convolution are for; 0: all are left out. */
inline size_t n_spatial(const sizes &strides, const sizes &pads, const sizes &dilations, const sizes &more) {
    return strides.size()     ? strides.size()
           : dilations.size() ? dilations.size()
           : more.size()      ? more.size()
                              : (pads.size() + 1) / 2;
}
} // namespace detail

/* ---- op-overloads, made from src/ir/ops.def by `make generated`: do not edit ---- */
inline tensor neg(tensor a) { return fusor_neg(a); }
inline tensor abs(tensor a) { return fusor_abs(a); }
inline tensor sign(tensor a) { return fusor_sign(a); }
inline tensor square(tensor a) { return fusor_square(a); }
inline tensor sqrt(tensor a) { return fusor_sqrt(a); }
inline tensor rsqrt(tensor a) { return fusor_rsqrt(a); }
inline tensor cbrt(tensor a) { return fusor_cbrt(a); }
inline tensor reciprocal(tensor a) { return fusor_reciprocal(a); }
inline tensor exp(tensor a) { return fusor_exp(a); }
inline tensor exp2(tensor a) { return fusor_exp2(a); }
inline tensor expm1(tensor a) { return fusor_expm1(a); }
inline tensor log(tensor a) { return fusor_log(a); }
inline tensor log2(tensor a) { return fusor_log2(a); }
inline tensor log10(tensor a) { return fusor_log10(a); }
inline tensor log1p(tensor a) { return fusor_log1p(a); }
inline tensor sin(tensor a) { return fusor_sin(a); }
inline tensor cos(tensor a) { return fusor_cos(a); }
inline tensor tan(tensor a) { return fusor_tan(a); }
inline tensor asin(tensor a) { return fusor_asin(a); }
inline tensor acos(tensor a) { return fusor_acos(a); }
inline tensor atan(tensor a) { return fusor_atan(a); }
inline tensor sinh(tensor a) { return fusor_sinh(a); }
inline tensor cosh(tensor a) { return fusor_cosh(a); }
inline tensor tanh(tensor a) { return fusor_tanh(a); }
inline tensor asinh(tensor a) { return fusor_asinh(a); }
inline tensor acosh(tensor a) { return fusor_acosh(a); }
inline tensor atanh(tensor a) { return fusor_atanh(a); }
inline tensor erf(tensor a) { return fusor_erf(a); }
inline tensor erfc(tensor a) { return fusor_erfc(a); }
inline tensor floor(tensor a) { return fusor_floor(a); }
inline tensor ceil(tensor a) { return fusor_ceil(a); }
inline tensor round(tensor a) { return fusor_round(a); }
inline tensor trunc(tensor a) { return fusor_trunc(a); }
inline tensor isnan(tensor a) { return fusor_isnan(a); }
inline tensor isinf(tensor a) { return fusor_isinf(a); }
inline tensor isfinite(tensor a) { return fusor_isfinite(a); }
inline tensor not_(tensor a) { return fusor_not(a); }
inline tensor bitwise_not(tensor a) { return fusor_bitwise_not(a); }
inline tensor relu(tensor a) { return fusor_relu(a); }
inline tensor relu6(tensor a) { return fusor_relu6(a); }
inline tensor selu(tensor a) { return fusor_selu(a); }
inline tensor sigmoid(tensor a) { return fusor_sigmoid(a); }
inline tensor hard_swish(tensor a) { return fusor_hard_swish(a); }
inline tensor silu(tensor a) { return fusor_silu(a); }
inline tensor softplus(tensor a) { return fusor_softplus(a); }
inline tensor softsign(tensor a) { return fusor_softsign(a); }
inline tensor mish(tensor a) { return fusor_mish(a); }
inline tensor gelu(tensor a) { return fusor_gelu(a); }
inline tensor add(tensor a, tensor b) { return fusor_add(a, b); }
inline tensor sub(tensor a, tensor b) { return fusor_sub(a, b); }
inline tensor mul(tensor a, tensor b) { return fusor_mul(a, b); }
inline tensor div(tensor a, tensor b) { return fusor_div(a, b); }
inline tensor mod(tensor a, tensor b) { return fusor_mod(a, b); }
inline tensor fmod(tensor a, tensor b) { return fusor_fmod(a, b); }
inline tensor pow(tensor a, tensor b) { return fusor_pow(a, b); }
inline tensor atan2(tensor a, tensor b) { return fusor_atan2(a, b); }
inline tensor maximum(tensor a, tensor b) { return fusor_maximum(a, b); }
inline tensor minimum(tensor a, tensor b) { return fusor_minimum(a, b); }
inline tensor hypot(tensor a, tensor b) { return fusor_hypot(a, b); }
inline tensor copysign(tensor a, tensor b) { return fusor_copysign(a, b); }
inline tensor eq(tensor a, tensor b) { return fusor_eq(a, b); }
inline tensor ne(tensor a, tensor b) { return fusor_ne(a, b); }
inline tensor lt(tensor a, tensor b) { return fusor_lt(a, b); }
inline tensor le(tensor a, tensor b) { return fusor_le(a, b); }
inline tensor gt(tensor a, tensor b) { return fusor_gt(a, b); }
inline tensor ge(tensor a, tensor b) { return fusor_ge(a, b); }
inline tensor and_(tensor a, tensor b) { return fusor_and(a, b); }
inline tensor or_(tensor a, tensor b) { return fusor_or(a, b); }
inline tensor xor_(tensor a, tensor b) { return fusor_xor(a, b); }
inline tensor shl(tensor a, tensor b) { return fusor_shl(a, b); }
inline tensor shr(tensor a, tensor b) { return fusor_shr(a, b); }
inline tensor select(tensor a, tensor b, tensor c) { return fusor_select(a, b, c); }
inline tensor clamp(tensor a, tensor b, tensor c) { return fusor_clamp(a, b, c); }
inline tensor fma(tensor a, tensor b, tensor c) { return fusor_fma(a, b, c); }
/* ---- end of op-overloads ---- */

inline tensor leaky_relu(tensor x, double alpha = 0.01) { return fusor_leaky_relu(x, alpha); }
inline tensor elu(tensor x, double alpha = 1) { return fusor_elu(x, alpha); }
inline tensor celu(tensor x, double alpha = 1) { return fusor_celu(x, alpha); }
inline tensor hard_sigmoid(tensor x, double alpha = 0.2, double beta = 0.5) {
    return fusor_hard_sigmoid(x, alpha, beta);
}
inline tensor cast(tensor x, fusor_dtype dtype) { return fusor_cast(x, dtype); }
inline tensor bitcast(tensor x, fusor_dtype dtype) { return fusor_bitcast(x, dtype); }
template <class T> tensor cast(tensor x) { return fusor_cast(x, dtype_of<T>::value); }
template <class T> tensor bitcast(tensor x) { return fusor_bitcast(x, dtype_of<T>::value); }

/** Over these axes; over all of them without a list. */
inline tensor reduce_sum(tensor x, const axes &over = all_axes, bool keepdims = false) {
    return fusor_reduce_sum(x, over.count(), over.data(), keepdims);
}
inline tensor reduce_prod(tensor x, const axes &over = all_axes, bool keepdims = false) {
    return fusor_reduce_prod(x, over.count(), over.data(), keepdims);
}
inline tensor reduce_max(tensor x, const axes &over = all_axes, bool keepdims = false) {
    return fusor_reduce_max(x, over.count(), over.data(), keepdims);
}
inline tensor reduce_min(tensor x, const axes &over = all_axes, bool keepdims = false) {
    return fusor_reduce_min(x, over.count(), over.data(), keepdims);
}
inline tensor reduce_mean(tensor x, const axes &over = all_axes, bool keepdims = false) {
    return fusor_reduce_mean(x, over.count(), over.data(), keepdims);
}
inline tensor reduce_var(tensor x, const axes &over = all_axes, bool keepdims = false, double correction = 0) {
    return fusor_reduce_var(x, over.count(), over.data(), keepdims, correction);
}
inline tensor reduce_std(tensor x, const axes &over = all_axes, bool keepdims = false, double correction = 0) {
    return fusor_reduce_std(x, over.count(), over.data(), keepdims, correction);
}
inline tensor reduce_l1(tensor x, const axes &over = all_axes, bool keepdims = false) {
    return fusor_reduce_l1(x, over.count(), over.data(), keepdims);
}
inline tensor reduce_l2(tensor x, const axes &over = all_axes, bool keepdims = false) {
    return fusor_reduce_l2(x, over.count(), over.data(), keepdims);
}
inline tensor reduce_logsumexp(tensor x, const axes &over = all_axes, bool keepdims = false) {
    return fusor_reduce_logsumexp(x, over.count(), over.data(), keepdims);
}
inline tensor reduce_all(tensor x, const axes &over = all_axes, bool keepdims = false) {
    return fusor_reduce_all(x, over.count(), over.data(), keepdims);
}
inline tensor reduce_any(tensor x, const axes &over = all_axes, bool keepdims = false) {
    return fusor_reduce_any(x, over.count(), over.data(), keepdims);
}
/** Along an axis; without one, of all elements. */
inline tensor argmax(tensor x, int axis = all_axes, bool keepdims = false) { return fusor_argmax(x, axis, keepdims); }
inline tensor argmin(tensor x, int axis = all_axes, bool keepdims = false) { return fusor_argmin(x, axis, keepdims); }
inline tensor softmax(tensor x, int axis = -1) { return fusor_softmax(x, axis); }
inline tensor log_softmax(tensor x, int axis = -1) { return fusor_log_softmax(x, axis); }
inline tensor cumsum(tensor x, int axis, bool exclusive = false, bool reverse = false) {
    return fusor_cumsum(x, axis, exclusive, reverse);
}
inline tensor cumprod(tensor x, int axis, bool exclusive = false, bool reverse = false) {
    return fusor_cumprod(x, axis, exclusive, reverse);
}
inline tensor layer_norm(tensor x, int axis = -1, double epsilon = 1e-5) {
    return fusor_layer_norm(x, tensor(), tensor(), axis, epsilon);
}
inline tensor layer_norm(tensor x, tensor gamma, tensor beta, int axis = -1, double epsilon = 1e-5) {
    return fusor_layer_norm(x, gamma, beta, axis, epsilon);
}
inline tensor rms_norm(tensor x, int axis = -1, double epsilon = 1e-5) {
    return fusor_rms_norm(x, tensor(), axis, epsilon);
}
inline tensor rms_norm(tensor x, tensor gamma, int axis = -1, double epsilon = 1e-5) {
    return fusor_rms_norm(x, gamma, axis, epsilon);
}
inline tensor matmul(tensor a, tensor b) { return fusor_matmul(a, b); }
inline tensor einsum(const char *subscripts, const tensors &x) { return fusor_einsum(subscripts, x.count(), x.data()); }
/** mask and causal_offset may be empty; window: {} for none, or {left, right}; scale 0: 1 / sqrt(D). **Errors**: also
 *  fusor::error: a window that has not two entries. */
inline tensor attention(tensor q, tensor k, tensor v, tensor mask = {}, bool causal = false, tensor causal_offset = {},
                        const sizes &window = {}, double softcap = 0, double scale = 0) {
    return fusor_attention(q, k, v, mask, causal, causal_offset,
                           detail::optional("attention", "entries of the window", window, 2), softcap, scale);
}

/** Lists but the kernel may be empty: ones, and zeros for the pads, which are all begins, then all ends. **Errors**:
 *  also fusor::error: a list that is not as long as the kernel, or pads that are not twice as many. */
inline tensor max_pool(tensor x, const sizes &kernel, const sizes &strides = {}, const sizes &pads = {},
                       const sizes &dilations = {}, bool ceil = false) {
    return fusor_max_pool(x, kernel.count(), kernel.data(),
                          detail::optional("max_pool", "strides", strides, kernel.size()),
                          detail::optional("max_pool", "pads", pads, 2 * kernel.size()),
                          detail::optional("max_pool", "dilations", dilations, kernel.size()), ceil);
}
inline tensor average_pool(tensor x, const sizes &kernel, const sizes &strides = {}, const sizes &pads = {},
                           const sizes &dilations = {}, bool ceil = false, bool count_include_pad = false) {
    return fusor_average_pool(
        x, kernel.count(), kernel.data(), detail::optional("average_pool", "strides", strides, kernel.size()),
        detail::optional("average_pool", "pads", pads, 2 * kernel.size()),
        detail::optional("average_pool", "dilations", dilations, kernel.size()), ceil, count_include_pad);
}
inline tensor global_average_pool(tensor x) { return fusor_global_average_pool(x); }
/** The bias b and the lists may be empty: ones, and zeros for the pads, which are all begins, then all ends.
 *  **Errors**: also fusor::error: lists of different lengths, or pads that are not twice as many. */
inline tensor conv(tensor x, tensor w, tensor b = {}, const sizes &strides = {}, const sizes &pads = {},
                   const sizes &dilations = {}, int64_t groups = 1) {
    size_t n = detail::n_spatial(strides, pads, dilations, {});
    return fusor_conv(x, w, b, static_cast<int>(n), detail::optional("conv", "strides", strides, n),
                      detail::optional("conv", "pads", pads, 2 * n),
                      detail::optional("conv", "dilations", dilations, n), groups);
}
/** As conv; output_padding, zeros where it is empty, adds places at the ends. */
inline tensor conv_transpose(tensor x, tensor w, tensor b = {}, const sizes &strides = {}, const sizes &pads = {},
                             const sizes &dilations = {}, const sizes &output_padding = {}, int64_t groups = 1) {
    size_t n = detail::n_spatial(strides, pads, dilations, output_padding);
    return fusor_conv_transpose(x, w, b, static_cast<int>(n), detail::optional("conv_transpose", "strides", strides, n),
                                detail::optional("conv_transpose", "pads", pads, 2 * n),
                                detail::optional("conv_transpose", "dilations", dilations, n),
                                detail::optional("conv_transpose", "entries of the output padding", output_padding, n),
                                groups);
}
/** Without an axis: one scale and zero point for all elements. */
inline tensor quantize(tensor x, tensor scale, tensor zero_point, fusor_dtype dtype, int axis = all_axes) {
    return fusor_quantize(x, scale, zero_point, axis, dtype);
}
inline tensor dequantize(tensor x, tensor scale, tensor zero_point, int axis = all_axes) {
    return fusor_dequantize(x, scale, zero_point, axis);
}

/** What lstm_cell gives. */
struct lstm_result {
    tensor h, state;
};
/** Both biases of a cell may be empty. */
inline lstm_result lstm_cell(tensor x, tensor h, tensor state, tensor w_ih, tensor w_hh, tensor b_ih = {},
                             tensor b_hh = {}) {
    fusor_tensor h_out = tensor(), state_out = tensor();
    fusor_lstm_cell(x, h, state, w_ih, w_hh, b_ih, b_hh, &h_out, &state_out);
    return {h_out, state_out};
}
inline tensor gru_cell(tensor x, tensor h, tensor w_ih, tensor w_hh, tensor b_ih = {}, tensor b_hh = {},
                       bool linear_before_reset = true) {
    return fusor_gru_cell(x, h, w_ih, w_hh, b_ih, b_hh, linear_before_reset);
}
/** activation: FUSOR_RNN_TANH or FUSOR_RNN_RELU. */
inline tensor rnn_cell(tensor x, tensor h, tensor w_ih, tensor w_hh, tensor b_ih = {}, tensor b_hh = {},
                       int activation = FUSOR_RNN_TANH) {
    return fusor_rnn_cell(x, h, w_ih, w_hh, b_ih, b_hh, activation);
}

inline tensor reshape(tensor x, const sizes &shape) { return fusor_reshape(x, shape.count(), shape.data()); }
/** Axes in this order; without a list reversed. */
inline tensor transpose(tensor x, const axes &perm = all_axes) { return fusor_transpose(x, perm.count(), perm.data()); }
inline tensor broadcast_to(tensor x, const sizes &shape) { return fusor_broadcast_to(x, shape.count(), shape.data()); }
inline tensor squeeze(tensor x, const sizes &which) { return fusor_squeeze(x, which.count(), which.data()); }
inline tensor unsqueeze(tensor x, const sizes &which) { return fusor_unsqueeze(x, which.count(), which.data()); }
/** From starts to ends; without steps by 1, without a list of axes of the first ones. **Errors**: also fusor::error:
 *  lists of different lengths. */
inline tensor slice(tensor x, const sizes &starts, const sizes &ends, const sizes &steps = {},
                    const sizes &along = {}) {
    if (starts.size() != ends.size())
        throw error(FUSOR_ERROR_ARGUMENT,
                    ("slice: " + std::to_string(starts.size()) + " starts but " + std::to_string(ends.size()) + " ends")
                        .c_str());
    return fusor_slice(x, starts.count(), starts.data(), ends.data(),
                       detail::optional("slice", "steps", steps, starts.size()),
                       detail::optional("slice", "axes", along, starts.size()));
}
inline tensor flip(tensor x, const sizes &along) { return fusor_flip(x, along.count(), along.data()); }
/** mode: FUSOR_PAD_CONSTANT, .._EDGE, .._REFLECT or .._WRAP. */
inline tensor pad(tensor x, const sizes &pads, tensor value = 0, int mode = FUSOR_PAD_CONSTANT) {
    return fusor_pad(x, value, mode, pads.count(), pads.data());
}
inline tensor concat(const tensors &x, int axis) { return fusor_concat(x.count(), x.data(), axis); }
inline std::vector<tensor> split(tensor x, int axis, const sizes &parts) {
    std::vector<fusor_tensor> handles(parts.size());
    fusor_split(x, axis, parts.count(), parts.data(), handles.data());
    return std::vector<tensor>(handles.begin(), handles.end());
}
inline tensor tile(tensor x, const sizes &repeats) { return fusor_tile(x, repeats.count(), repeats.data()); }
inline tensor tril(tensor x, int64_t k = 0) { return fusor_tril(x, k); }
inline tensor triu(tensor x, int64_t k = 0) { return fusor_triu(x, k); }
inline tensor take(tensor x, tensor indices, int axis = 0) { return fusor_take(x, indices, axis); }
inline tensor take_along(tensor x, tensor indices, int axis) { return fusor_take_along(x, indices, axis); }
/** mode: FUSOR_SCATTER_SET, .._ADD, .._MUL, .._MAX or .._MIN. */
inline tensor scatter(tensor x, tensor indices, tensor updates, int axis, int mode = FUSOR_SCATTER_SET) {
    return fusor_scatter(x, indices, updates, axis, mode);
}
inline tensor one_hot(tensor indices, int64_t depth, fusor_dtype dtype = FUSOR_F32) {
    return fusor_one_hot(indices, depth, dtype);
}
inline tensor dim(tensor x, int axis) { return fusor_dim(x, axis); }

inline tensor operator-(tensor a) { return fusor_neg(a); }
inline tensor operator+(tensor a, tensor b) { return fusor_add(a, b); }
inline tensor operator-(tensor a, tensor b) { return fusor_sub(a, b); }
inline tensor operator*(tensor a, tensor b) { return fusor_mul(a, b); }
inline tensor operator/(tensor a, tensor b) { return fusor_div(a, b); }
inline tensor operator%(tensor a, tensor b) { return fusor_mod(a, b); }
/** Element by element, giving bool tensors. == and != compare elements too, not handles. */
inline tensor operator<(tensor a, tensor b) { return fusor_lt(a, b); }
inline tensor operator<=(tensor a, tensor b) { return fusor_le(a, b); }
inline tensor operator>(tensor a, tensor b) { return fusor_gt(a, b); }
inline tensor operator>=(tensor a, tensor b) { return fusor_ge(a, b); }
inline tensor operator==(tensor a, tensor b) { return fusor_eq(a, b); }
inline tensor operator!=(tensor a, tensor b) { return fusor_ne(a, b); }
inline tensor operator&(tensor a, tensor b) { return fusor_and(a, b); }
inline tensor operator|(tensor a, tensor b) { return fusor_or(a, b); }
inline tensor operator^(tensor a, tensor b) { return fusor_xor(a, b); }
inline tensor operator<<(tensor a, tensor b) { return fusor_shl(a, b); }
inline tensor operator>>(tensor a, tensor b) { return fusor_shr(a, b); }
inline tensor operator!(tensor a) { return fusor_not(a); }
inline tensor operator~(tensor a) { return fusor_bitwise_not(a); }
/** a becomes the result; what was made of the old a stays as it is. */
inline tensor &operator+=(tensor &a, tensor b) { return a = a + b; }
inline tensor &operator-=(tensor &a, tensor b) { return a = a - b; }
inline tensor &operator*=(tensor &a, tensor b) { return a = a * b; }
inline tensor &operator/=(tensor &a, tensor b) { return a = a / b; }

/** Hints of tensor.h: where a kernel ends, and what shares one. */
inline tensor barrier(tensor t) { return fusor_barrier(t); }
inline tensor fuse_with(tensor a, tensor b) { return fusor_fuse_with(a, b); }
/** Names the value in explain, profiles and errors. */
inline tensor name(tensor t, const std::string &text) { return fusor_name(t, text.c_str()); }

/** A tensor that outlives its scope, and its context: one reference (fusor_keep), given back with the object. Stands
 *  for its tensor everywhere; a copy has a reference of its own. Without a tensor it is empty:
 *
 *   struct layer { fusor::kept w; };
 *   l.w = fusor::kept(ctx.wrap(data, {784, 256}));
 *
 *  **Errors**: of a tensor that is stale already: a bad handle. */
class kept {
  public:
    kept() noexcept {}
    explicit kept(tensor t) : t_(fusor_keep(t)) {}
    kept(const kept &other) : t_(fusor_keep(other.t_)) {}
    kept(kept &&other) noexcept : t_(other.t_) { other.t_ = tensor(); }
    kept &operator=(kept other) noexcept {
        std::swap(t_, other.t_);
        return *this;
    }
    ~kept() { fusor_release(t_); }
    operator tensor() const noexcept { return t_; }
    fusor_tensor handle() const noexcept { return t_; }
    bool is_empty() const noexcept { return t_.is_empty(); }

  private:
    tensor t_;
};

/** A context of its own; the last of its executables, memories and kept tensors frees what it has. Copies are the
 *  same context. */
class context {
  public:
    /** **Errors**: std::bad_alloc. */
    explicit context(const fusor_context_options *options = nullptr)
        : ctx_(fusor_context_new(options), fusor_context_free) {
        if (!ctx_) throw std::bad_alloc();
    }
    /** On a device: "cuda", "cuda:1", "cpu" ... (device.h). **Errors**: std::bad_alloc; fusor::error: no such device,
     *  no driver. */
    static context on(const std::string &device) {
        fusor_context_options options = FUSOR_CONTEXT_OPTIONS_INIT;
        options.device = device.c_str();
        context made(&options);
        (void)made.device();
        return made;
    }
    /** 0 for the CPU, 1 + k for CUDA device k, as in fusor_buffer.device. */
    int32_t device() const {
        int32_t device = 0;
        check(fusor_context_device(ctx_.get(), &device));
        return device;
    }
    /** Until everything that was asked of the device is done. */
    void wait() const { check(fusor_context_wait(ctx_.get())); }
    operator fusor_context *() const noexcept { return ctx_.get(); }
    void check(fusor_status status) const {
        if (status != FUSOR_OK) throw error(status, fusor_error_message(ctx_.get()));
    }
    /** Any operator by its name, with attributes as the language writes them: ctx.apply("argmax", {x}, "axis=1,
     *  select_last=true"). */
    tensor apply(const char *op, const tensors &operands, const char *attributes = nullptr) const {
        return fusor_apply(ctx_.get(), op, operands.count(), operands.data(), attributes);
    }
    /** The same for an operator with several results: the one of that number, from 0. */
    tensor apply_result(const char *op, int result, const tensors &operands, const char *attributes = nullptr) const {
        return fusor_apply_result(ctx_.get(), op, result, operands.count(), operands.data(), attributes);
    }
    tensor full(tensor value, fusor_dtype dtype, const sizes &shape) const {
        return fusor_full(ctx_.get(), value, dtype, shape.count(), shape.data());
    }
    tensor iota(fusor_dtype dtype, int axis, const sizes &shape) const {
        return fusor_iota(ctx_.get(), dtype, axis, shape.count(), shape.data());
    }
    tensor random_uniform(tensor seed, fusor_dtype dtype, const sizes &shape) const {
        return fusor_random_uniform(ctx_.get(), seed, dtype, shape.count(), shape.data());
    }
    tensor random_normal(tensor seed, fusor_dtype dtype, const sizes &shape) const {
        return fusor_random_normal(ctx_.get(), seed, dtype, shape.count(), shape.data());
    }
    /** The caller's memory, which must outlive what reads it; writable: fusor_assign may target it. */
    template <class T> tensor wrap(T *data, const sizes &shape) const { return wrap(data, dtype_of<T>::value, shape); }
    template <class T> tensor wrap(const T *data, const sizes &shape) const {
        return wrap(data, dtype_of<T>::value, shape);
    }
    /** The same of a dtype that the program knows when it runs. */
    tensor wrap(void *data, fusor_dtype dtype, const sizes &shape) const {
        return fusor_wrap(ctx_.get(), data, dtype, shape.count(), shape.data());
    }
    tensor wrap(const void *data, fusor_dtype dtype, const sizes &shape) const {
        return fusor_wrap_const(ctx_.get(), data, dtype, shape.count(), shape.data());
    }
    /** Takes over memory, strides allowed: release(user) runs exactly once, also on failure; without it the memory
     *  stays the caller's. */
    tensor adopt(const fusor_buffer &buffer, void (*release)(void *user) = nullptr, void *user = nullptr) const {
        return fusor_adopt(ctx_.get(), &buffer, release, user);
    }
    /** Takes over a DLPack tensor without a copy: its deleter runs exactly once, also on failure. */
    tensor from_dlpack(DLManagedTensor *managed) const { return fusor_from_dlpack(ctx_.get(), managed); }

  private:
    std::shared_ptr<fusor_context> ctx_;
};

/** Of a call on t, this thread's last: what is no tensor with data has no context to ask. */
inline void check(tensor, fusor_status status) {
    if (status != FUSOR_OK) throw error(status, fusor_error_message(nullptr));
}

/** Evaluates tensors as one graph; their values are then kept in memory. **Errors**: theirs, as fusor::error. */
inline void eval(const tensors &t) {
    fusor_status status = fusor_eval(t.count(), t.data());
    if (status != FUSOR_OK) check(t.data()[0], status);
}
/** Evaluates t and describes its memory, which is valid as long as the handle. **Errors**: those of t, as
 *  fusor::error. */
inline fusor_buffer buffer_of(tensor t) {
    fusor_buffer b;
    check(t, fusor_buffer_of(t, &b));
    return b;
}
/** Dtype, rank and shape without computing anything; data is NULL. **Errors**: those of t, as fusor::error. */
inline fusor_buffer shape_of(tensor t) {
    fusor_buffer b;
    check(t, fusor_shape_of(t, &b));
    return b;
}
/** FUSOR_OK, or the first error behind t. Computes and throws nothing. */
inline fusor_status status_of(tensor t) { return fusor_status_of(t); }
/** Evaluates t and hands its memory out without a copy; the DLPack tensor holds it until its deleter runs. **Errors**:
 *  those of t, as fusor::error. */
inline DLManagedTensor *to_dlpack(tensor t) {
    DLManagedTensor *managed = nullptr;
    check(t, fusor_to_dlpack(t, &managed));
    return managed;
}

/** Evaluates t. **Errors**: those of t, as fusor::error; the element type must be that of t. */
template <class T> std::vector<T> read(tensor t) {
    fusor_buffer b = buffer_of(t);
    if (b.dtype != dtype_of<T>::value)
        throw error(FUSOR_ERROR_TYPE, (std::string("read: the tensor is ") + fusor_dtype_name(fusor_dtype(b.dtype)) +
                                       "; asked for " + fusor_dtype_name(dtype_of<T>::value))
                                          .c_str());
    size_t n = 1;
    for (int d = 0; d < b.rank; d++) n *= size_t(b.shape[d]);
    std::unique_ptr<T[]> out(new T[n]); /* a vector of bool has no memory to read into */
    check(t, fusor_read(t, out.get(), n * sizeof(T)));
    return std::vector<T>(out.get(), out.get() + n);
}

/** The contents of t, in memory of its context's device. */
inline tensor to_device(tensor t) { return fusor_to_device(t); }

inline void assign(tensor wrapped, tensor value) { check(wrapped, fusor_assign(wrapped, value)); }

/** Ends with the block; end() also throws what failed, which a destructor cannot. */
class scope {
  public:
    explicit scope(fusor_context *ctx) : ctx_(ctx), scope_(fusor_scope_begin(ctx, &status_)) {}
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;
    ~scope() { fusor_scope_end(&scope_); }
    void end() {
        fusor_scope_end(&scope_);
        if (status_ != FUSOR_OK) throw error(status_, fusor_error_message(ctx_));
    }

  private:
    fusor_context *ctx_;
    fusor_status status_ = FUSOR_OK;
    fusor_scope scope_;
};

/** A compiled function; it holds its context. */
class executable {
  public:
    executable(const context &ctx, const char *text, const char *function = nullptr)
        : ctx_(ctx), exe_(nullptr, fusor_executable_free) {
        fusor_executable *made = nullptr;
        ctx.check(fusor_compile_text(ctx, text, function, &made));
        exe_.reset(made);
    }
    operator fusor_executable *() const noexcept { return exe_.get(); }
    /** Another executable, with these `const` parameters fixed: f.bind({{"w", fusor::buffer(w, {784, 256})}}). Their
     *  contents are copied; they are no inputs of its calls. **Errors**: fusor::error, as fusor_executable_bind. */
    executable bind(const std::vector<std::pair<std::string, fusor_buffer>> &constants) const {
        std::vector<const char *> names;
        std::vector<fusor_buffer> values;
        fusor_executable *made = nullptr;
        for (const auto &c : constants) {
            names.push_back(c.first.c_str());
            values.push_back(c.second);
        }
        check(fusor_executable_bind(exe_.get(), int(names.size()), names.data(), values.data(), &made));
        return executable(ctx_, made);
    }
    /** Outputs without data get memory, to be freed with fusor_buffer_free. */
    void call(const std::vector<fusor_buffer> &inputs, std::vector<fusor_buffer> &outputs) const {
        check(
            fusor_executable_call(exe_.get(), int(inputs.size()), inputs.data(), int(outputs.size()), outputs.data()));
    }
    /** Over the steps of a sequence, with the state that carries name (fusor_executable_prepare_scan says what each
     *  buffer is). */
    void scan(int64_t n_steps, const std::vector<fusor_carry> &carries, const std::vector<fusor_buffer> &inputs,
              std::vector<fusor_buffer> &outputs) const {
        check(fusor_executable_scan(exe_.get(), n_steps, int(carries.size()), carries.data(), int(inputs.size()),
                                    inputs.data(), int(outputs.size()), outputs.data()));
    }

  private:
    executable(fusor_context *ctx, fusor_executable *made) : ctx_(ctx), exe_(made, fusor_executable_free) {}
    /* What was moved from holds no context. */
    void check(fusor_status status) const {
        if (status != FUSOR_OK) throw error(status, fusor_error_message(exe_ ? ctx_ : nullptr));
    }

    fusor_context *ctx_;
    std::unique_ptr<fusor_executable, void (*)(fusor_executable *)> exe_;
};

/** A contiguous tensor's rank and sizes; of too many, the rank alone, which every call refuses. */
inline void set_shape(fusor_buffer &b, const sizes &shape) {
    for (int64_t n : shape) {
        if (b.rank < FUSOR_MAX_RANK) b.shape[b.rank] = n;
        b.rank++;
    }
}

/** A contiguous buffer over the caller's memory: what FUSOR_BUFFER is in C. */
template <class T> fusor_buffer buffer(T *data, const sizes &shape) {
    fusor_buffer b = {};
    b.data = const_cast<typename std::remove_const<T>::type *>(data);
    b.dtype = dtype_of<typename std::remove_const<T>::type>::value;
    set_shape(b, shape);
    if (std::is_const<T>::value) b.flags = FUSOR_READONLY;
    return b;
}

/** Copies a tensor between any two devices, strides allowed. */
inline void copy(const context &ctx, const fusor_buffer &from, const fusor_buffer &to) {
    ctx.check(fusor_buffer_copy(ctx, &from, &to));
}

/** Memory for a tensor on the context's device, given back with the object, which holds the context. */
class memory {
  public:
    memory(const context &ctx, fusor_dtype dtype, const sizes &shape) : ctx_(ctx) {
        buffer_.dtype = dtype;
        set_shape(buffer_, shape);
        buffer_.device = ctx.device();
        ctx.check(fusor_buffer_new(ctx, &buffer_));
    }
    memory(const memory &) = delete;
    memory &operator=(const memory &) = delete;
    ~memory() { fusor_buffer_free(ctx_, &buffer_); }
    const fusor_buffer &buffer() const noexcept { return buffer_; }

  private:
    context ctx_;
    fusor_buffer buffer_ = {};
};

} // namespace fusor
#endif
