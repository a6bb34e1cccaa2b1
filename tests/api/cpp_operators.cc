// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cpp_operators.cc: every operator of op.h and every function of tensor.h as fusor.hpp has it, with its result: beside
// that of the C function, beside fusor_apply without attributes where it has defaults, or beside numbers. Prints what
// differs, then how many were compared. cpp_operators.sh looks for the names here.
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fusor/fusor.hpp>

using fusor::all_axes;
using fusor::kept;
using fusor::tensor;

static int n_checked, n_failed;

static void verdict(const char *what, bool is_good) {
    n_checked++;
    if (is_good) return;
    n_failed++;
    std::printf("%s differs\n", what);
}
/* The bytes of an evaluated tensor, behind its dtype and shape. */
static std::vector<unsigned char> contents(tensor t) {
    fusor_buffer b = fusor::buffer_of(t);
    size_t bytes = fusor_dtype_size(static_cast<fusor_dtype>(b.dtype));
    std::vector<unsigned char> out(1, static_cast<unsigned char>(b.dtype));
    for (int d = 0; d < b.rank; d++) {
        bytes *= static_cast<size_t>(b.shape[d]);
        out.push_back(static_cast<unsigned char>(b.shape[d]));
    }
    size_t head = out.size();
    out.resize(head + bytes);
    if (fusor_read(t, out.data() + head, bytes) != FUSOR_OK) out.clear();
    return out;
}
static void same(const char *what, tensor got, tensor want) {
    try {
        verdict(what, contents(got) == contents(want));
    } catch (const fusor::error &e) {
        std::printf("%s: %s\n", what, e.what());
        verdict(what, false);
    }
}
template <class T> static void expect(const char *what, tensor got, const std::vector<T> &want) {
    try {
        std::vector<T> have = fusor::read<T>(got);
        bool is_good = have.size() == want.size();
        for (size_t i = 0; is_good && i < want.size(); i++)
            is_good = std::fabs(static_cast<double>(have[i]) - static_cast<double>(want[i])) < 1e-5;
        verdict(what, is_good);
    } catch (const fusor::error &e) {
        std::printf("%s: %s\n", what, e.what());
        verdict(what, false);
    }
}
using F = std::vector<float>;
using I = std::vector<int64_t>;

template <class Call> static void refused(const char *message, Call call) {
    try {
        call();
        verdict(message, false);
    } catch (const fusor::error &e) {
        verdict(message, std::strstr(e.what(), message) && e.status() == FUSOR_ERROR_ARGUMENT);
    }
}

/* C has macros of these names only without C++; (name) is a function in any case. */
#define ONE(name, x)             same(#name, fusor::name(x), (fusor_##name)(x))
#define TWO(name, x, y)          same(#name, fusor::name(x, y), (fusor_##name)(x, y))
#define THREE(name, x, y, z)     same(#name, fusor::name(x, y, z), (fusor_##name)(x, y, z))
#define WORD(name, word, ...)    same(#word, fusor::name(__VA_ARGS__), (fusor_##word)(__VA_ARGS__))
#define DEFAULTS(ctx, name, ...) same(#name, fusor::name(__VA_ARGS__), ctx.apply(#name, {__VA_ARGS__}))

static void elements(const fusor::context &ctx) {
    float a[4] = {.25f, .5f, .75f, -.5f}, b[4] = {2, .125f, -3, 1}, big[4] = {1.5f, 2, 3, 4};
    int32_t i[4] = {5, -3, 12, 7}, j[4] = {1, 2, 3, 0};
    bool p[4] = {true, false, true, false}, q[4] = {true, true, false, false};
    tensor A = ctx.wrap(a, {4}), B = ctx.wrap(b, {4}), P = abs(B), G = ctx.wrap(big, {4});
    tensor K = ctx.wrap(i, {4}), L = ctx.wrap(j, {4}), T = ctx.wrap(p, {4}), U = ctx.wrap(q, {4});
    ONE(neg, A);

    ONE(abs, A);
    ONE(sign, A);
    ONE(square, A);
    ONE(sqrt, P);
    ONE(rsqrt, P);
    ONE(cbrt, A);
    ONE(reciprocal, B);
    ONE(exp, A);

    ONE(exp2, A);
    ONE(expm1, A);
    ONE(log, P);
    ONE(log2, P);
    ONE(log10, P);
    ONE(log1p, P);
    ONE(sin, A);
    ONE(cos, A);

    ONE(tan, A);
    ONE(asin, A);
    ONE(acos, A);
    ONE(atan, A);
    ONE(sinh, A);
    ONE(cosh, A);
    ONE(tanh, A);
    ONE(asinh, A);

    ONE(acosh, G);
    ONE(atanh, A);
    ONE(erf, A);
    ONE(erfc, A);
    ONE(floor, B);
    ONE(ceil, A);
    ONE(round, A);

    ONE(trunc, A);
    ONE(isnan, A);
    ONE(isinf, A / 0);
    ONE(isfinite, A / 0);
    WORD(not_, not, T);

    ONE(bitwise_not, K);
    ONE(relu, B);
    ONE(relu6, B);
    ONE(selu, B);
    ONE(sigmoid, B);
    ONE(hard_swish, B);

    ONE(silu, B);
    ONE(softplus, B);
    ONE(softsign, B);
    ONE(mish, B);
    ONE(gelu, B);
    TWO(add, A, B);

    TWO(sub, A, B);
    TWO(mul, A, B);
    TWO(div, A, B);
    TWO(mod, A, B);
    TWO(fmod, A, B);

    TWO(pow, P, A);
    TWO(atan2, A, B);
    TWO(maximum, A, B);
    TWO(minimum, A, B);

    TWO(hypot, A, B);
    TWO(copysign, A, B);
    TWO(eq, A, B);
    TWO(ne, A, B);
    TWO(lt, A, B);

    TWO(le, A, B);
    TWO(gt, A, B);
    TWO(ge, A, B);
    WORD(and_, and, T, U);

    WORD(or_, or, T, U);
    WORD(xor_, xor, T, U);
    TWO(shl, K, L);
    TWO(shr, K, L);

    THREE(select, T, A, B);
    THREE(clamp, B, A, G);
    THREE(fma, A, B, G);

    DEFAULTS(ctx, leaky_relu, B);
    DEFAULTS(ctx, elu, B);

    DEFAULTS(ctx, celu, B);
    DEFAULTS(ctx, hard_sigmoid, B);

    same("leaky_relu", leaky_relu(B, .5), ctx.apply("leaky_relu", {B}, "alpha=0.5"));
    same("hard_sigmoid", hard_sigmoid(B, .1, .2), ctx.apply("hard_sigmoid", {B}, "alpha=0.1, beta=0.2"));
    expect<int32_t>("cast", fusor::cast<int32_t>(B), {2, 0, -3, 1});
    expect<uint8_t>("cast", cast(G, FUSOR_U8), {1, 2, 3, 4});
    expect<int32_t>("bitcast", fusor::bitcast<int32_t>(G), {0x3fc00000, 0x40000000, 0x40400000, 0x40800000});
    expect<int32_t>("bitcast", bitcast(G, FUSOR_I32), {0x3fc00000, 0x40000000, 0x40400000, 0x40800000});

    same("-", -A, neg(A));
    same("+", A + B, add(A, B));
    same("%", A % B, mod(A, B));
    same("<<", K << 2, shl(K, 2));
    same(">>", K >> L, shr(K, L));
    same("~", ~K, bitwise_not(K));
    same("^", T ^ U, xor_(T, U));
    same("|", T | U, or_(T, U));
    same("!=", A != B, ne(A, B));
    tensor x = A, before = x;
    x += 1;
    x -= B;
    x *= A;
    x /= 2;
    same("+= -= *= /=", x, ((A + 1) - B) * A / 2);
    same("+=", before, A);

    /* numbers of every type */
    enum { TWO_OF_ENUM = 2 };
    tensor two = A + 2;
    same("short", A + static_cast<short>(2), two);
    same("signed char", A + static_cast<signed char>(2), two);
    same("char", A + static_cast<char>(2), two);
    same("unsigned char", A + static_cast<unsigned char>(2), two);
    same("unsigned short", static_cast<unsigned short>(2) + A, two);
    same("unsigned", A + 2u, two);
    same("long", A + 2l, two);
    same("unsigned long", A + 2ul, two);
    same("long long", A + 2ll, two);
    same("unsigned long long", A + 2ull, two);
    same("float", A + 2.f, two);
    same("double", 2. + A, two);
    same("long double", A + 2.l, two);
    same("enum", A + TWO_OF_ENUM, two);
    same("bool", T & true, T);
    uint64_t most[1] = {UINT64_MAX};
    expect<bool>("uint64_t", ctx.wrap(most, {1}) == UINT64_MAX, {true});
}

#define REDUCE(name, x)                                                                                                \
    same(#name, fusor::name(x), (fusor_##name)(x, -1, nullptr, 0));                                                    \
    same(#name " keepdims", fusor::name(x, all_axes, true), (fusor_##name)(x, -1, nullptr, 1));                        \
    same(#name " of axes", fusor::name(x, {-1}, true), (fusor_##name)(x, FUSOR_AXES(-1), 1));                          \
    same(#name " of no axes", fusor::name(x, {}), (fusor_##name)(x, 0, nullptr, 0))
#define VARIANCE(name, x)                                                                                              \
    same(#name, fusor::name(x), (fusor_##name)(x, -1, nullptr, 0, 0));                                                 \
    same(#name " keepdims", fusor::name(x, all_axes, true, 1), (fusor_##name)(x, -1, nullptr, 1, 1))

static void rows(const fusor::context &ctx) {
    float x[6] = {1, -2, 3, 4, 5, -6}, g[3] = {1, 2, 3}, h[3] = {.5f, 0, -1};
    bool p[4] = {true, false, true, true};
    tensor X = ctx.wrap(x, {2, 3}), P = ctx.wrap(p, {2, 2}), G = ctx.wrap(g, {3}), H = ctx.wrap(h, {3});
    REDUCE(reduce_sum, X);

    REDUCE(reduce_prod, X);
    REDUCE(reduce_max, X);
    REDUCE(reduce_min, X);
    REDUCE(reduce_mean, X);
    VARIANCE(reduce_var, X);

    VARIANCE(reduce_std, X);
    REDUCE(reduce_l1, X);
    REDUCE(reduce_l2, X);
    REDUCE(reduce_logsumexp, X);

    REDUCE(reduce_all, P);
    REDUCE(reduce_any, P);

    expect<float>("reduce_var", reduce_var(X, {1}, false, 1), {19.f / 3, 37});
    expect<float>("reduce_std", reduce_std(X, {1}, false, 1), {std::sqrt(19.f / 3), std::sqrt(37.f)});
    expect<float>("reduce_l1", reduce_l1(X), {21});
    expect<bool>("reduce_all", reduce_all(P), {false});
    expect<bool>("reduce_any", reduce_any(P, {1}), {true, true});
    expect<int64_t>("argmax", argmax(X), {4});
    expect<int64_t>("argmax", argmax(X, 1), {2, 1});
    expect<int64_t>("argmax", argmax(X, all_axes, true), {4});
    expect<int64_t>("argmin", argmin(X), {5});
    expect<int64_t>("argmin", argmin(X, 0, true), {0, 0, 1});
    expect<float>("cumsum", cumsum(X, 1), {1, -1, 2, 4, 9, 3});
    expect<float>("cumsum", cumsum(X, 1, true, true), {1, 3, 0, -1, -6, 0});
    expect<float>("cumprod", cumprod(X, 1), {1, -2, -6, 4, 20, -120});
    DEFAULTS(ctx, softmax, X);

    DEFAULTS(ctx, log_softmax, X);
    DEFAULTS(ctx, layer_norm, X);
    DEFAULTS(ctx, rms_norm, X);

    same("softmax", softmax(X, 0), fusor_softmax(X, 0));
    same("log_softmax", log_softmax(X, 0), fusor_log_softmax(X, 0));
    same("layer_norm", layer_norm(X, G, H, 1, 1e-3), fusor_layer_norm(X, G, H, 1, 1e-3));
    same("layer_norm", layer_norm(X, G, {}), fusor_layer_norm(X, G, FUSOR_NO_TENSOR, -1, 1e-5));
    same("layer_norm", layer_norm(X, 0, 1e-3), fusor_layer_norm(X, FUSOR_NO_TENSOR, FUSOR_NO_TENSOR, 0, 1e-3));
    same("rms_norm", rms_norm(X, G), fusor_rms_norm(X, G, -1, 1e-5));
    expect<float>("matmul", matmul(X, transpose(X)), {14, -24, -24, 77});
    expect<float>("einsum", fusor::einsum("ij,j->i", {X, G}), {6, -4});
}

static void movement(const fusor::context &ctx) {
    float x[6] = {1, -2, 3, 4, 5, -6};
    int32_t at[2] = {2, 0}, along[4] = {0, 1, 2, 0};
    tensor X = ctx.wrap(x, {2, 3}), N = ctx.wrap(at, {2}), sevens = ctx.full(7, FUSOR_F32, {2});
    expect<float>("reshape", reshape(X, {-1}) + 0, {1, -2, 3, 4, 5, -6});
    expect<float>("transpose", transpose(X), {1, 4, -2, 5, 3, -6});
    expect<float>("transpose", transpose(X, {0, 1}), {1, -2, 3, 4, 5, -6});
    expect<float>("broadcast_to", broadcast_to(ctx.wrap(x, {2, 1}), {2, 2}), {1, 1, -2, -2});
    verdict("unsqueeze", fusor::shape_of(unsqueeze(X, {0, 3})).rank == 4);
    verdict("squeeze", fusor::shape_of(squeeze(unsqueeze(X, {0, 3}), {0})).rank == 3);
    expect<float>("slice", slice(X, {0, 1}, {2, 3}), {-2, 3, 5, -6});
    expect<float>("slice by steps", slice(X, {2}, {-4}, {-2}, {1}), {3, 1, -6, 4});
    expect<float>("flip", flip(X, {1}), {3, -2, 1, -6, 5, 4});
    expect<float>("pad", pad(X, {0, 1, 0, 0}, 9), {9, 1, -2, 3, 9, 4, 5, -6});
    expect<float>("pad", pad(X, {0, 1, 0, 0}, 0, FUSOR_PAD_EDGE), {1, 1, -2, 3, 4, 4, 5, -6});
    expect<float>("concat", fusor::concat({X, X + 1}, 1), {1, -2, 3, 2, -1, 4, 4, 5, -6, 5, 6, -5});
    std::vector<tensor> parts = split(X, 1, {1, 2});
    expect<float>("split", parts[1], {-2, 3, 5, -6});
    expect<float>("concat of a vector", fusor::concat(parts, 1), {1, -2, 3, 4, 5, -6});
    expect<float>("tile", tile(X, {1, 2}), {1, -2, 3, 1, -2, 3, 4, 5, -6, 4, 5, -6});
    expect<float>("tril", tril(X), {1, 0, 0, 4, 5, 0});
    expect<float>("triu", triu(X, 1), {0, -2, 3, 0, 0, -6});
    DEFAULTS(ctx, tril, X);
    DEFAULTS(ctx, triu, X);
    expect<float>("take", take(X, N, 1), {3, 1, -6, 4});
    same("take", take(X, 1), ctx.apply("take", {X, 1}));
    expect<float>("take_along", take_along(X, ctx.wrap(along, {2, 2}), 1), {1, -2, -6, 4});
    expect<float>("scatter", scatter(reshape(X, {6}), N, sevens, 0), {7, -2, 7, 4, 5, -6});
    expect<float>("scatter", scatter(reshape(X, {6}), N, sevens, 0, FUSOR_SCATTER_ADD), {8, -2, 10, 4, 5, -6});
    expect<float>("one_hot", one_hot(N, 3), {0, 0, 1, 1, 0, 0});
    expect<int64_t>("dim", dim(X, 1), {3});
    expect<double>("full", ctx.full(2.5, FUSOR_F64, {2}), {2.5, 2.5});
    expect<int64_t>("iota", ctx.iota(FUSOR_I64, 0, {3}), {0, 1, 2});
    same("random_uniform", ctx.random_uniform(7, FUSOR_F32, {2, 3}),
         fusor_random_uniform(ctx, fusor_i(7), FUSOR_F32, FUSOR_SHAPE(2, 3)));
    same("random_normal", ctx.random_normal(7, FUSOR_F64, {5}),
         fusor_random_normal(ctx, fusor_i(7), FUSOR_F64, FUSOR_SHAPE(5)));
    expect<bool>("random_uniform", reduce_all(ctx.random_uniform(1, FUSOR_F32, {99}) < 1), {true});
    expect<float>("apply_result", ctx.apply_result("split", 1, {X}, "axis=1, sizes=[1, 2]"), {-2, 3, 5, -6});
    expect<int64_t>("apply", ctx.apply("argmax", {X}, "axis=1, keepdims=true"), {2, 1});
}

static void layers(const fusor::context &ctx) {
    float x[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, ones[4] = {1, 1, 1, 1}, bias[1] = {10};
    tensor X = ctx.wrap(x, {1, 1, 3, 3}), W = ctx.wrap(ones, {1, 1, 2, 2}), B = ctx.wrap(bias, {1});
    expect<float>("conv", conv(X, W), {12, 16, 24, 28});
    expect<float>("conv", conv(X, W, B, {2, 2}, {0, 0, 1, 1}), {22, 19, 25, 19});
    expect<float>("conv", conv(X, W, {}, {}, {}, {2, 2}), {20});
    expect<float>("conv of pads", conv(X, W, {}, {}, {1, 1, 0, 0}), {1, 3, 5, 5, 12, 16, 11, 24, 28});
    same("conv", conv(X, W, B), ctx.apply("conv", {X, W, B}));
    expect<float>("conv of groups",
                  conv(reshape(X, {1, 9, 1, 1}), ctx.full(2, FUSOR_F32, {9, 1, 1, 1}), {}, {}, {}, {}, 9),
                  {2, 4, 6, 8, 10, 12, 14, 16, 18});
    tensor Y = ctx.wrap(x, {1, 1, 2, 2});
    expect<float>("conv_transpose", conv_transpose(Y, W), {1, 3, 2, 4, 10, 6, 3, 7, 4});
    expect<float>("conv_transpose", conv_transpose(Y, W, B, {2, 2}),
                  {11, 11, 12, 12, 11, 11, 12, 12, 13, 13, 14, 14, 13, 13, 14, 14});
    expect<float>("conv_transpose", conv_transpose(ctx.wrap(x, {1, 1, 1, 1}), W, {}, {2, 2}, {}, {}, {1, 0}),
                  {1, 1, 1, 1, 0, 0});
    expect<float>("max_pool", max_pool(X, {2, 2}), {5, 6, 8, 9});
    expect<float>("max_pool", max_pool(X, {2, 2}, {2, 2}, {}, {}, true), {5, 6, 8, 9});
    expect<float>("max_pool", max_pool(X, {2, 2}, {2, 2}, {1, 1, 0, 0}), {1, 3, 7, 9});
    expect<float>("max_pool", max_pool(X, {2, 2}, {}, {}, {2, 2}), {9});
    expect<float>("average_pool", average_pool(X, {2, 2}), {3, 4, 6, 7});
    expect<float>("average_pool", average_pool(X, {2, 2}, {2, 2}, {1, 1, 0, 0}), {1, 2.5f, 5.5f, 7});
    expect<float>("average_pool", average_pool(X, {2, 2}, {2, 2}, {1, 1, 0, 0}, {}, false, true),
                  {.25f, 1.25f, 2.75f, 7});
    expect<float>("global_average_pool", global_average_pool(X), {5});
    expect<uint8_t>("quantize", quantize(ctx.wrap(x, {9}), 0.5, 3, FUSOR_U8), {5, 7, 9, 11, 13, 15, 17, 19, 21});
    tensor S = ctx.wrap(x, {3}), Z = ctx.full(0, FUSOR_I8, {3});
    expect<int8_t>("quantize along an axis", quantize(ctx.wrap(x, {3, 3}), S, Z, FUSOR_I8, 0),
                   {1, 2, 3, 2, 2, 3, 2, 3, 3});
    int8_t codes[3] = {-1, 0, 4};
    expect<float>("dequantize",
                  dequantize(ctx.wrap(codes, {3}), ctx.full(.5, FUSOR_F32, {}), ctx.full(1, FUSOR_I8, {})),
                  {-1, -.5f, 1.5f});
    expect<float>("dequantize", dequantize(ctx.wrap(codes, {3}), S, Z, 0), {-1, 0, 12});

    /* one head, two keys: equal scores give the mean of the values */
    float q[2] = {0, 0}, v[4] = {1, 2, 3, 6};
    bool first[2] = {true, false};
    tensor Q = ctx.wrap(q, {1, 1, 2}), V = ctx.wrap(v, {1, 2, 2});
    expect<float>("attention", attention(Q, V, V), {2, 4});
    expect<float>("attention with a mask", attention(Q, V, V, ctx.wrap(first, {1, 2})), {1, 2});
    expect<float>("attention, causal", attention(Q, V, V, {}, true), {1, 2});
    expect<float>("attention, offset", attention(Q, V, V, {}, true, 1), {2, 4});
    expect<float>("attention, window", attention(Q, V, V, {}, false, {}, {0, 0}), {1, 2});
    same("attention, softcap", attention(V, V, V, {}, false, {}, {}, 2, .5),
         fusor_attention(V, V, V, FUSOR_NO_TENSOR, 0, FUSOR_NO_TENSOR, nullptr, 2, .5));

    /* cells of one unit: all weights 0 but what the expected numbers say */
    float in[1] = {2}, state[1] = {3}, w4[4] = {0, 0, 0, 0}, w3[3] = {0, 0, 0}, b4[4] = {50, 50, 1, 50}, w1[1] = {.5f};
    tensor x1 = ctx.wrap(in, {1}), h1 = ctx.wrap(w1, {1}), c1 = ctx.wrap(state, {1});
    tensor W4 = ctx.wrap(w4, {4, 1}), W3 = ctx.wrap(w3, {3, 1}), B4 = ctx.wrap(b4, {4}), W1 = ctx.wrap(w1, {1, 1});
    fusor::lstm_result r = lstm_cell(x1, h1, c1, W4, W4, B4, reshape(W4, {4}));
    expect<float>("lstm_cell", r.state, {3 + std::tanh(1.f)});
    expect<float>("lstm_cell", r.h, {std::tanh(3 + std::tanh(1.f))});
    expect<float>("lstm_cell without biases", lstm_cell(x1, h1, c1, W4, W4).state, {1.5f});
    expect<float>("gru_cell", gru_cell(x1, h1, W3, W3), {.25f});
    same("gru_cell", gru_cell(x1, h1, W3 + 1, W3 + 2), ctx.apply("gru_cell", {x1, h1, W3 + 1, W3 + 2}));
    same("gru_cell", gru_cell(x1, h1, W3 + 1, W3 + 2, reshape(W3, {3}), reshape(W3 + 1, {3}), false),
         fusor_gru_cell(x1, h1, W3 + 1, W3 + 2, reshape(W3, {3}), reshape(W3 + 1, {3}), 0));
    expect<float>("rnn_cell", rnn_cell(x1, h1, W1, W1), {std::tanh(1.25f)});
    expect<float>("rnn_cell", rnn_cell(x1, h1, W1, W1, {}, {}, FUSOR_RNN_RELU), {1.25f});

    refused("conv: 2 pads; expected 4", [&] { (void)conv(X, W, {}, {2, 2}, {1, 1}); });
    refused("conv: 1 pads; expected 2", [&] { (void)conv(X, W, {}, {}, {1}); });
    refused("max_pool: 1 pads; expected 4", [&] { (void)max_pool(X, {2, 2}, {}, {1}); });
    refused("conv_transpose: 1 entries of the output padding; expected 2", [&] {
        (void)conv_transpose(X, W, {}, {2, 2}, {}, {}, {1});
    });
    refused("attention: 1 entries of the window; expected 2", [&] { (void)attention(Q, V, V, {}, false, {}, {1}); });
    refused("slice: 2 steps; expected 1", [&] { (void)slice(X, {0}, {1}, {1, 1}); });
}

/* Shapes, dtypes and lists that are known when the program runs. */
static void known_late(const fusor::context &ctx) {
    float x[6] = {1, -2, 3, 4, 5, -6};
    std::vector<int64_t> shape = {2, 3};
    std::vector<size_t> unsigned_shape = {3, 2};
    std::array<int, 1> flat = {{6}};
    int64_t c_shape[2] = {6, 1};
    size_t n = 2;
    tensor X = ctx.wrap(x, shape), want = ctx.wrap(x, {2, 3});
    same("vector", X, want);
    same("vector<size_t>", reshape(X, unsigned_shape), ctx.wrap(x, {3, 2}));
    same("array", reshape(X, flat), ctx.wrap(x, {6}));
    same("array of C", reshape(X, c_shape), ctx.wrap(x, {6, 1}));
    same("pointer and count", reshape(X, {c_shape, n}), ctx.wrap(x, {6, 1}));
    same("size_t in a list", ctx.wrap(x, {n, 3}), want);
    expect<float>("rank 0", ctx.wrap(x, {}) + 1, {2});
    same("no axes", reduce_sum(X, std::vector<int64_t>()), want);
    same("axes", reduce_sum(X, std::vector<int>{0}), reduce_sum(X, {0}));
    fusor::sizes held = {2, 3};
    same("sizes", reshape(reshape(X, {6}), held), want);
    fusor::axes both = all_axes;
    same("axes", reduce_sum(X, both), reduce_sum(X));
    same("dtype", ctx.wrap(static_cast<void *>(x), FUSOR_F32, shape), want);
    same("const dtype", ctx.wrap(static_cast<const void *>(x), FUSOR_F32, shape), want);
    verdict("buffer", fusor::buffer(x, shape).shape[1] == 3 && fusor::buffer(x, shape).rank == 2);
    fusor::memory room(ctx, FUSOR_F32, shape);
    verdict("memory", room.buffer().rank == 2);
    same("FUSOR_SHAPE", fusor_wrap(ctx, x, FUSOR_F32, FUSOR_SHAPE(n, 3)), want);
    std::vector<tensor> operands = {X, X};
    same("operands", fusor::einsum("ij,ij->", operands), reduce_sum(X * X));
    same("operands", ctx.apply("add", {operands.data(), n}), X + X);
    verdict("long long", fusor::dtype_of<long long>::value == FUSOR_I64 && fusor::dtype_of<long>::value == FUSOR_I64);
    verdict("size_t", fusor::dtype_of<size_t>::value == FUSOR_U64);
    fusor::f16 halves[2] = {{0x3c00}, {0xc000}};
    expect<float>("f16", fusor::cast<float>(ctx.wrap(halves, {2})), {1, -2});
    verdict("f16", fusor::read<fusor::f16>(fusor::cast<fusor::f16>(ctx.wrap(x, {2})))[1].bits == 0xc000);
    verdict("bf16", fusor::read<fusor::bf16>(fusor::cast<fusor::bf16>(ctx.wrap(x, {2})))[1].bits == 0xc000);
}

struct model {
    kept weights;
    tensor last;
};

static void lifetimes() {
    float x[3] = {1, 2, 3};
    model m;
    std::vector<tensor> many(3);
    verdict("empty", many[2].is_empty() && m.last.is_empty() && m.weights.is_empty());
    tensor stale;
    {
        fusor::context ctx;
        {
            fusor::scope scope(ctx);
            tensor y = ctx.wrap(x, {3}) * 2;
            m.weights = kept(y);
            stale = y + 1;
            verdict("status_of", fusor::status_of(stale) == FUSOR_OK);
        }
        verdict("stale", fusor::status_of(stale) == FUSOR_ERROR_STALE);
    }
    kept other = m.weights, moved = std::move(m.weights), itself = other;
    itself = static_cast<const kept &>(itself);
    verdict("moved", m.weights.is_empty() && !moved.is_empty());
    moved = kept();
    std::vector<kept> list(2, other);
    other = kept();
    expect<float>("kept", itself, {2, 4, 6});
    expect<float>("kept, in a sum", itself + 1, {3, 5, 7});
    expect<float>("kept, in a list", fusor::concat(list, 0), {2, 4, 6, 2, 4, 6});
    fusor_tensor last = itself.handle();
    fusor::context hold;
    tensor t = hold.wrap(x, {3}) + 1;
    list.clear();
    {
        kept brief(t);
        last = brief.handle();
    }
    verdict("released once", fusor::status_of(last) == FUSOR_OK); /* the context's scope has it still */
}

static int n_released;
static void count_release(void *) { n_released++; }

static void values(const fusor::context &ctx) {
    float x[3] = {1, 2, 3}, p[3] = {0, 0, 0};
    tensor X = ctx.wrap(x, {3});
    same("barrier", barrier(X * 2) + 1, X * 2 + 1);
    tensor a = X * 2, b = X + 1;
    fusor::eval({fuse_with(a, b), b});
    same("fuse_with", a, X * 2);
    same("name", name(X * 2, "twice"), X * 2);
    fusor::eval({});
    verdict("buffer_of", static_cast<float *>(fusor::buffer_of(a).data)[2] == 6);
    verdict("shape_of", fusor::shape_of(a).rank == 1 && fusor::shape_of(a).data == nullptr);
    tensor target = ctx.wrap(p, {3});
    fusor::assign(target, X);
    fusor::eval({target});
    verdict("assign", p[2] == 3);
    same("to_device", fusor::to_device(X), X);
    {
        fusor::context brief;
        expect<float>("adopt", brief.adopt(fusor::buffer(x, {3}), count_release) + 1, {2, 3, 4});
    }
    verdict("adopt", n_released == 1);
    expect<float>("adopt", ctx.adopt(fusor::buffer(x, {3})), {1, 2, 3});
    expect<float>("from_dlpack", ctx.from_dlpack(fusor::to_dlpack(X * 3)), {3, 6, 9});
    try {
        fusor::eval({X + ctx.wrap(x, {2})});
        verdict("eval", false);
    } catch (const fusor::error &e) { verdict("eval", e.status() == FUSOR_ERROR_SHAPE); }
}

int main() {
    fusor::context ctx;
    elements(ctx);
    rows(ctx);
    movement(ctx);
    layers(ctx);
    known_late(ctx);
    lifetimes();
    values(ctx);
    std::printf("%d compared, %d differ\n", n_checked, n_failed);
    return n_failed != 0;
}
