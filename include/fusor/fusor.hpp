/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_FUSOR_HPP
#define FUSOR_FUSOR_HPP
/* fusor/fusor.hpp: the C API for C++11 and later: numbers stand for tensors, operators are overloaded, contexts, scopes and executables free
 * themselves, and failures are exceptions of type fusor::error. Header only; everything is inline and calls the C functions.
 *
 *   fusor::context ctx;
 *   fusor::tensor x = ctx.wrap(data, {2, 3});
 *   std::vector<float> y = fusor::read<float>(fusor::relu(matmul(x, w) + 0.5));
 */
#include <fusor/fusor.h>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fusor {

/** What a failing call came to: status() is its code, what() the context's message. */
class error : public std::runtime_error {
public:
    error(fusor_status status, const char *text) : std::runtime_error(text && *text ? text : fusor_status_name(status)), status_(status) {}
    fusor_status status() const noexcept { return status_; }

private:
    fusor_status status_;
};

/** The dtype of a C++ type. */
template <class T> struct dtype_of;
template <> struct dtype_of<double> { static constexpr fusor_dtype value = FUSOR_F64; };
template <> struct dtype_of<float> { static constexpr fusor_dtype value = FUSOR_F32; };
template <> struct dtype_of<int64_t> { static constexpr fusor_dtype value = FUSOR_I64; };
template <> struct dtype_of<int32_t> { static constexpr fusor_dtype value = FUSOR_I32; };
template <> struct dtype_of<int16_t> { static constexpr fusor_dtype value = FUSOR_I16; };
template <> struct dtype_of<int8_t> { static constexpr fusor_dtype value = FUSOR_I8; };
template <> struct dtype_of<uint64_t> { static constexpr fusor_dtype value = FUSOR_U64; };
template <> struct dtype_of<uint32_t> { static constexpr fusor_dtype value = FUSOR_U32; };
template <> struct dtype_of<uint16_t> { static constexpr fusor_dtype value = FUSOR_U16; };
template <> struct dtype_of<uint8_t> { static constexpr fusor_dtype value = FUSOR_U8; };
template <> struct dtype_of<bool> { static constexpr fusor_dtype value = FUSOR_BOOL; };

/** A handle (fusor_tensor), or a number that takes the dtype of the tensors beside it. Copies are the same tensor. */
class tensor {
public:
    tensor(fusor_tensor t) : t_(t) {}
    tensor(float v) : t_(fusor_f(v)) {}
    tensor(double v) : t_(fusor_f(v)) {}
    tensor(int v) : t_(fusor_i(v)) {}
    tensor(long v) : t_(fusor_i(v)) {}
    tensor(long long v) : t_(fusor_i(v)) {}
    tensor(unsigned v) : t_(fusor_u(v)) {}
    tensor(unsigned long v) : t_(fusor_u(v)) {}
    tensor(unsigned long long v) : t_(fusor_u(v)) {}
    tensor(bool v) : t_(fusor_b(v)) {}
    operator fusor_tensor() const noexcept { return t_; }
    fusor_tensor handle() const noexcept { return t_; }

private:
    fusor_tensor t_;
};

using sizes = std::initializer_list<int64_t>;

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
inline tensor hard_sigmoid(tensor x, double alpha = 0.2, double beta = 0.5) { return fusor_hard_sigmoid(x, alpha, beta); }
inline tensor cast(tensor x, fusor_dtype dtype) { return fusor_cast(x, dtype); }
inline tensor bitcast(tensor x, fusor_dtype dtype) { return fusor_bitcast(x, dtype); }
template <class T> tensor cast(tensor x) { return fusor_cast(x, dtype_of<T>::value); }
/** Over these axes; over all of them without a list. */
inline tensor reduce_sum(tensor x) { return fusor_reduce_sum(x, -1, nullptr, 0); }
inline tensor reduce_sum(tensor x, sizes axes, bool keepdims = false) { return fusor_reduce_sum(x, int(axes.size()), axes.begin(), keepdims); }
inline tensor reduce_prod(tensor x) { return fusor_reduce_prod(x, -1, nullptr, 0); }
inline tensor reduce_prod(tensor x, sizes axes, bool keepdims = false) { return fusor_reduce_prod(x, int(axes.size()), axes.begin(), keepdims); }
inline tensor reduce_max(tensor x) { return fusor_reduce_max(x, -1, nullptr, 0); }
inline tensor reduce_max(tensor x, sizes axes, bool keepdims = false) { return fusor_reduce_max(x, int(axes.size()), axes.begin(), keepdims); }
inline tensor reduce_min(tensor x) { return fusor_reduce_min(x, -1, nullptr, 0); }
inline tensor reduce_min(tensor x, sizes axes, bool keepdims = false) { return fusor_reduce_min(x, int(axes.size()), axes.begin(), keepdims); }
inline tensor reduce_mean(tensor x) { return fusor_reduce_mean(x, -1, nullptr, 0); }
inline tensor reduce_mean(tensor x, sizes axes, bool keepdims = false) { return fusor_reduce_mean(x, int(axes.size()), axes.begin(), keepdims); }
inline tensor reduce_var(tensor x, sizes axes, bool keepdims = false, double correction = 0) { return fusor_reduce_var(x, int(axes.size()), axes.begin(), keepdims, correction); }
inline tensor reduce_std(tensor x, sizes axes, bool keepdims = false, double correction = 0) { return fusor_reduce_std(x, int(axes.size()), axes.begin(), keepdims, correction); }
inline tensor reduce_l1(tensor x, sizes axes, bool keepdims = false) { return fusor_reduce_l1(x, int(axes.size()), axes.begin(), keepdims); }
inline tensor reduce_l2(tensor x, sizes axes, bool keepdims = false) { return fusor_reduce_l2(x, int(axes.size()), axes.begin(), keepdims); }
inline tensor reduce_logsumexp(tensor x, sizes axes, bool keepdims = false) { return fusor_reduce_logsumexp(x, int(axes.size()), axes.begin(), keepdims); }
inline tensor reduce_all(tensor x, sizes axes, bool keepdims = false) { return fusor_reduce_all(x, int(axes.size()), axes.begin(), keepdims); }
inline tensor reduce_any(tensor x, sizes axes, bool keepdims = false) { return fusor_reduce_any(x, int(axes.size()), axes.begin(), keepdims); }
inline tensor argmax(tensor x, int axis = FUSOR_FLAT, bool keepdims = false) { return fusor_argmax(x, axis, keepdims); }
inline tensor argmin(tensor x, int axis = FUSOR_FLAT, bool keepdims = false) { return fusor_argmin(x, axis, keepdims); }
inline tensor softmax(tensor x, int axis = -1) { return fusor_softmax(x, axis); }
inline tensor log_softmax(tensor x, int axis = -1) { return fusor_log_softmax(x, axis); }
inline tensor cumsum(tensor x, int axis, bool exclusive = false, bool reverse = false) { return fusor_cumsum(x, axis, exclusive, reverse); }
inline tensor cumprod(tensor x, int axis, bool exclusive = false, bool reverse = false) { return fusor_cumprod(x, axis, exclusive, reverse); }
inline tensor layer_norm(tensor x, int axis = -1, double epsilon = 1e-5) { return fusor_layer_norm(x, fusor_tensor{}, fusor_tensor{}, axis, epsilon); }
inline tensor layer_norm(tensor x, tensor gamma, tensor beta, int axis = -1, double epsilon = 1e-5) { return fusor_layer_norm(x, gamma, beta, axis, epsilon); }
inline tensor rms_norm(tensor x, int axis = -1, double epsilon = 1e-5) { return fusor_rms_norm(x, fusor_tensor{}, axis, epsilon); }
inline tensor rms_norm(tensor x, tensor gamma, int axis = -1, double epsilon = 1e-5) { return fusor_rms_norm(x, gamma, axis, epsilon); }
inline tensor matmul(tensor a, tensor b) { return fusor_matmul(a, b); }
inline tensor einsum(const char *subscripts, std::initializer_list<tensor> x) {
    std::vector<fusor_tensor> handles(x.begin(), x.end());
    return fusor_einsum(subscripts, int(handles.size()), handles.data());
}
inline tensor reshape(tensor x, sizes shape) { return fusor_reshape(x, int(shape.size()), shape.begin()); }
inline tensor transpose(tensor x) { return fusor_transpose(x, -1, nullptr); }
inline tensor transpose(tensor x, sizes perm) { return fusor_transpose(x, int(perm.size()), perm.begin()); }
inline tensor broadcast_to(tensor x, sizes shape) { return fusor_broadcast_to(x, int(shape.size()), shape.begin()); }

inline tensor squeeze(tensor x, sizes axes) { return fusor_squeeze(x, int(axes.size()), axes.begin()); }
inline tensor unsqueeze(tensor x, sizes axes) { return fusor_unsqueeze(x, int(axes.size()), axes.begin()); }
/** **Errors**: fusor::error: not as many ends as starts. */
inline tensor slice(tensor x, sizes starts, sizes ends) {
    if (starts.size() != ends.size())
        throw error(FUSOR_ERROR_ARGUMENT, ("slice: " + std::to_string(starts.size()) + " starts but " + std::to_string(ends.size()) + " ends").c_str());
    return fusor_slice(x, int(starts.size()), starts.begin(), ends.begin(), nullptr, nullptr);
}
inline tensor flip(tensor x, sizes axes) { return fusor_flip(x, int(axes.size()), axes.begin()); }
inline tensor pad(tensor x, sizes pads, tensor value = 0, int mode = FUSOR_PAD_CONSTANT) { return fusor_pad(x, value, mode, int(pads.size()), pads.begin()); }
inline tensor concat(std::initializer_list<tensor> x, int axis) {
    std::vector<fusor_tensor> handles(x.begin(), x.end());
    return fusor_concat(int(handles.size()), handles.data(), axis);
}
inline std::vector<tensor> split(tensor x, int axis, sizes parts) {
    std::vector<fusor_tensor> handles(parts.size());
    fusor_split(x, axis, int(parts.size()), parts.begin(), handles.data());
    return std::vector<tensor>(handles.begin(), handles.end());
}
inline tensor tile(tensor x, sizes repeats) { return fusor_tile(x, int(repeats.size()), repeats.begin()); }
inline tensor tril(tensor x, int64_t k = 0) { return fusor_tril(x, k); }
inline tensor triu(tensor x, int64_t k = 0) { return fusor_triu(x, k); }
inline tensor take(tensor x, tensor indices, int axis = 0) { return fusor_take(x, indices, axis); }
inline tensor take_along(tensor x, tensor indices, int axis) { return fusor_take_along(x, indices, axis); }
inline tensor scatter(tensor x, tensor indices, tensor updates, int axis, int mode = FUSOR_SCATTER_SET) { return fusor_scatter(x, indices, updates, axis, mode); }
inline tensor one_hot(tensor indices, int64_t depth, fusor_dtype dtype = FUSOR_F32) { return fusor_one_hot(indices, depth, dtype); }
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
inline tensor operator!(tensor a) { return fusor_not(a); }

/** A context of its own; the last of its executables, memories and kept tensors frees what it has. Copies are the
 *  same context. */
class context {
public:
    /** **Errors**: std::bad_alloc. */
    explicit context(const fusor_context_options *options = nullptr) : ctx_(fusor_context_new(options), fusor_context_free) {
        if (!ctx_) throw std::bad_alloc();
    }
    /** On a device: "cuda", "cuda:1", "cpu" ... (device.h). **Errors**: std::bad_alloc; fusor::error: no such device, no driver. */
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
    /** Any operator by its name, with attributes as the language writes them: ctx.apply("max_pool", {x}, "kernel=[2, 2]"). */
    tensor apply(const char *op, std::initializer_list<tensor> operands, const char *attributes = nullptr) const {
        std::vector<fusor_tensor> handles(operands.begin(), operands.end());
        return fusor_apply(ctx_.get(), op, int(handles.size()), handles.data(), attributes);
    }
    tensor full(tensor value, fusor_dtype dtype, sizes shape) const { return fusor_full(ctx_.get(), value, dtype, int(shape.size()), shape.begin()); }
    tensor iota(fusor_dtype dtype, int axis, sizes shape) const { return fusor_iota(ctx_.get(), dtype, axis, int(shape.size()), shape.begin()); }
    /** The caller's memory, which must outlive what reads it; writable: fusor_assign may target it. */
    template <class T> tensor wrap(T *data, sizes shape) const { return fusor_wrap(ctx_.get(), data, dtype_of<T>::value, int(shape.size()), shape.begin()); }
    template <class T> tensor wrap(const T *data, sizes shape) const { return fusor_wrap_const(ctx_.get(), data, dtype_of<T>::value, int(shape.size()), shape.begin()); }

private:
    std::shared_ptr<fusor_context> ctx_;
};

/** Of a call on t, this thread's last: what is no tensor with data has no context to ask. */
inline void check(tensor, fusor_status status) {
    if (status != FUSOR_OK) throw error(status, fusor_error_message(nullptr));
}

/** Evaluates t. **Errors**: those of t, as fusor::error; the element type must be that of t. */
template <class T> std::vector<T> read(tensor t) {
    fusor_buffer b;
    check(t, fusor_buffer_of(t, &b));
    if (b.dtype != dtype_of<T>::value)
        throw error(FUSOR_ERROR_TYPE, (std::string("read: the tensor is ") + fusor_dtype_name(fusor_dtype(b.dtype)) + "; asked for " + fusor_dtype_name(dtype_of<T>::value)).c_str());
    size_t n = 1;
    for (int d = 0; d < b.rank; d++) n *= size_t(b.shape[d]);
    std::unique_ptr<T[]> out(new T[n]);      /* a vector of bool has no memory to read into */
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
    executable(const context &ctx, const char *text, const char *function = nullptr) : ctx_(ctx), exe_(nullptr, fusor_executable_free) {
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
        check(fusor_executable_call(exe_.get(), int(inputs.size()), inputs.data(), int(outputs.size()), outputs.data()));
    }
    /** Over the steps of a sequence, with the state that carries name (fusor_executable_prepare_scan says what each buffer is). */
    void scan(int64_t n_steps, const std::vector<fusor_carry> &carries, const std::vector<fusor_buffer> &inputs,
              std::vector<fusor_buffer> &outputs) const {
        check(fusor_executable_scan(exe_.get(), n_steps, int(carries.size()), carries.data(), int(inputs.size()), inputs.data(),
                                    int(outputs.size()), outputs.data()));
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
inline void set_shape(fusor_buffer &b, sizes shape) {
    for (int64_t n : shape) {
        if (b.rank < FUSOR_MAX_RANK) b.shape[b.rank] = n;
        b.rank++;
    }
}

/** A contiguous buffer over the caller's memory. */
template <class T> fusor_buffer buffer(T *data, sizes shape) {
    fusor_buffer b = {};
    b.data = const_cast<typename std::remove_const<T>::type *>(data);
    b.dtype = dtype_of<typename std::remove_const<T>::type>::value;
    set_shape(b, shape);
    if (std::is_const<T>::value) b.flags = FUSOR_READONLY;
    return b;
}

/** Copies a tensor between any two devices, strides allowed. */
inline void copy(const context &ctx, const fusor_buffer &from, const fusor_buffer &to) { ctx.check(fusor_buffer_copy(ctx, &from, &to)); }

/** Memory for a tensor on the context's device, given back with the object, which holds the context. */
class memory {
public:
    memory(const context &ctx, fusor_dtype dtype, sizes shape) : ctx_(ctx) {
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
