/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One element of one operator. Every EW row of ops.def becomes four functions: f32 (also f16 and bf16: R = double,
 * rounded to float, then to the half), f64 (R = double, for rows whose double result is the correctly rounded one),
 * wide (R = long double, the other rows in f64 and the oracle of ULP measurement) and integer (int64_t).
 *
 * Why rounding twice is harmless: the double result of + - * / sqrt on floats, rounded to float, is the correctly
 * rounded float result, since 53 >= 2 * 24 + 2 (Figueroa 1995). fma has no such luck, so its f32 form calls fmaf.
 * Scalar attributes (alpha, beta) are rounded to f32 first for f32 and the halves, as a kernel's constants are. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* roundeven */
#endif
#include "ir/scalar.h"
#include "base/bits.h"
#include <math.h>
#include <string.h>

/* ---- helpers of the integer references: x and y are sign- or zero-extended ---- */
#define NOI       0
#define IU(x)     ((uint64_t)(x))
#define IWRAP(x)  ((int64_t)(x))
#define ILT(x, y) (sg ? (int64_t)(x) < (int64_t)(y) : (uint64_t)(x) < (uint64_t)(y))

static int64_t ref_idiv(int64_t x, int64_t y, bool sg) {
    if (y == 0) return 0;
    if (!sg) return (int64_t)((uint64_t)x / (uint64_t)y);
    return y == -1 ? IWRAP(0 - IU(x)) : x / y; /* INT64_MIN / -1 would trap */
}

static int64_t ref_irem(int64_t x, int64_t y, bool sg) {
    if (y == 0) return 0;
    if (!sg) return (int64_t)((uint64_t)x % (uint64_t)y);
    return y == -1 ? 0 : x % y;
}

static int64_t ref_imod(int64_t x, int64_t y, bool sg) {
    int64_t r = ref_irem(x, y, sg);
    return sg && r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

static int64_t ref_ipow(int64_t x, int64_t y, bool sg, int w) {
    (void)w; /* wrapping in 64 bits, then in w, is wrapping in w */
    if (sg && y < 0) return x == 1 ? 1 : x == -1 ? ((y & 1) ? -1 : 1) : 0;
    uint64_t r = 1, b = IU(x);
    for (uint64_t n = IU(y); n; n >>= 1) {
        if (n & 1) r *= b;
        b *= b;
    }
    return IWRAP(r);
}

static int64_t ref_shl(int64_t x, int64_t y, int w, bool sg) {
    (void)sg; /* a negative count is a huge one as unsigned */
    return IU(y) >= IU(w) ? 0 : IWRAP(IU(x) << y);
}

static int64_t ref_shr(int64_t x, int64_t y, int w, bool sg) {
    if (IU(y) >= IU(w)) return sg && x < 0 ? -1 : 0;
    return sg ? x >> y : IWRAP(IU(x) >> y);
}

static int64_t ref_iclamp(int64_t x, int64_t lo, int64_t hi, bool sg) {
    int64_t m = ILT(lo, x) ? x : lo;
    return ILT(m, hi) ? m : hi;
}

/* ---- helpers of the float references, in double and long double ---- */
#define SELU_SCALE  ((R)1.0507009873554804934193349852946L)
#define SELU_ALPHA  ((R)1.6732632423543772848170429916717L)
#define REF_SQRT1_2 ((R)0.70710678118654752440084436210484904L)

#define FLOAT_HELPERS(R, L)                                                                                            \
    static R ref_clamp##L##_(R x, R lo, R hi) {                                                                        \
        R m = (x > lo || x != x) ? x : lo;                                                                             \
        return (m < hi || m != m) ? m : hi;                                                                            \
    }                                                                                                                  \
    static R ref_mod##L(R x, R y) { /* as numpy.mod: a zero takes the sign of the divisor */                           \
        R r = fmod##L(x, y);                                                                                           \
        if (r != r) return r;                                                                                          \
        if (r == 0) return copysign##L(0, y);                                                                          \
        return (r < 0) != (y < 0) ? r + y : r;                                                                         \
    }                                                                                                                  \
    static R ref_mish##L##_(R x) { /* tanh(log1p(e)) = n / (n + 2), n = e * (e + 2): no cancellation */                \
        if (x > 50) return x;                                                                                          \
        R e = exp##L(x), n = e * (e + 2);                                                                              \
        return x * (n / (n + 2));                                                                                      \
    }                                                                                                                  \
    static R ref_gelu_tanh##L##_(R x) { /* (1 + tanh u) / 2 = 1 / (1 + exp(-2u)): accurate far below 0 */              \
        R u = (R)0.79788456080286535587989211986876L * (x + (R)0.044715L * x * x * x);                                 \
        return x / (1 + exp##L(-2 * u));                                                                               \
    }
FLOAT_HELPERS(double, )
FLOAT_HELPERS(long double, l)
#define BY_R(name)           _Generic((R)0, double : name##_, long double : name##l_)
#define ref_clamp(x, lo, hi) BY_R(ref_clamp)(x, lo, hi)
#define ref_mish(x)          BY_R(ref_mish)(x)
#define ref_gelu_tanh(x)     BY_R(ref_gelu_tanh)(x)

#define ref_pow pow
static long double ref_powl(long double x, long double y) { /* glibc's powl(-INFINITY, -0x1p63) is infinite */
    return isinf(x) ? pow((double)x, (double)y) : powl(x, y);
}

static double fma_f32(double x, double y, double z) { return fmaf((float)x, (float)y, (float)z); }

/* ---- the rows as functions ---- */
#define CONVERT(...)
#define REDUCE(...)
#define OTHER(...)
#define UNUSED     __attribute__((unused))
#define FLOAT_ARGS UNUSED R x, UNUSED R y, UNUSED R z, UNUSED R a, UNUSED R b, UNUSED int variant

#define R       double
#define FN(f)   f
#define ref_fma fma_f32
#define EW(ID, name, min, max, types, result, flags, attrs, fref, iref, ...)                                           \
    static double f32_##ID(FLOAT_ARGS) { return fref; }
#include "ir/ops.def"
#undef EW
#undef ref_fma
#define ref_fma fma
#define EW(ID, name, min, max, types, result, flags, attrs, fref, iref, ...)                                           \
    static double f64_##ID(FLOAT_ARGS) { return fref; }
#include "ir/ops.def"
#undef EW
#undef ref_fma
#undef FN
#undef R
#define R        long double
#define FN(f)    f##l
#define ref_fmal fmal
#define EW(ID, name, min, max, types, result, flags, attrs, fref, iref, ...)                                           \
    static long double wide_##ID(FLOAT_ARGS) { return fref; }
#include "ir/ops.def"
#undef EW
#undef FN
#undef R
#define EW(ID, name, min, max, types, result, flags, attrs, fref, iref, ...)                                           \
    static int64_t int_##ID(UNUSED int64_t x, UNUSED int64_t y, UNUSED int64_t z, UNUSED bool sg, UNUSED int w) {      \
        return iref;                                                                                                   \
    }
#include "ir/ops.def"
#undef EW

typedef struct row {
    double (*f32)(double, double, double, double, double, int);
    double (*f64)(double, double, double, double, double, int);
    long double (*wide)(long double, long double, long double, long double, long double, int);
    int64_t (*integer)(int64_t, int64_t, int64_t, bool, int);
    uint8_t arity, n_attrs;
    bool is_bool;
    uint32_t flags;
} row;

enum { RESULT_SAME = 0, RESULT_BOOL = 1 };
enum {
    ATTRS_NONE = 0,
    ATTRS_ALPHA_001 = 1,
    ATTRS_ALPHA_1 = 1,
    ATTRS_ALPHA_BETA = 2,
    ATTRS_GELU = 0
}; /* leading scalar ones */

static const row rows[IR_OP_COUNT] = {
#define EW(ID, name, min, max, types, result, flags, attrs, ...)                                                       \
    [IR_OP_##ID] = {f32_##ID, f64_##ID, wide_##ID, int_##ID, max, ATTRS_##attrs, RESULT_##result, flags},
#include "ir/ops.def"
#undef EW
};

/* ---- bits and values ---- */
static int64_t int_value(ir_dtype t, ir_bits b) {
    unsigned unused_bits = 64u - 8u * ir_dtypes[t].bytes;
    if (ir_is_signed(t)) return (int64_t)(b << unused_bits) >> unused_bits;
    return (int64_t)(b << unused_bits >> unused_bits);
}

static ir_bits int_bits(ir_dtype t, int64_t v) {
    unsigned unused_bits = 64u - 8u * ir_dtypes[t].bytes;
    return (uint64_t)v << unused_bits >> unused_bits;
}

/* From an f32 operator result: "computed as if in f32, then rounded". */
static ir_bits f32_bits(ir_dtype t, float v) {
    if (t == FUSOR_F16) return ir_f32_to_f16(v);
    if (t == FUSOR_BF16) return ir_f32_to_bf16(v);
    return fu_f32_bits(v);
}

long double ir_scalar_real(ir_op op, const long double *x, const double *attr, int variant) {
    const row *r = &rows[op];
    if (!r->wide) return 0;
    long double v[3] = {0}, a[2] = {0};
    for (int i = 0; i < r->arity; i++) v[i] = x[i];
    for (int i = 0; i < r->n_attrs && attr; i++) a[i] = attr[i];
    return r->wide(v[0], v[1], v[2], a[0], a[1], variant);
}

ir_bits ir_scalar_ew(ir_op op, ir_dtype t, const ir_bits *x, const double *attr, int variant) {
    const row *r = &rows[op];
    if (!r->f32) return 0; /* no EW row: the verifier refuses such nodes */
    if (!ir_is_float(t)) {
        int64_t v[3] = {0};
        for (int i = 0; i < r->arity; i++) v[i] = int_value(r->flags & IR_COND && i == 0 ? FUSOR_BOOL : t, x[i]);
        int64_t y = r->integer(v[0], v[1], v[2], ir_is_signed(t), ir_is_bool(t) ? 1 : 8 * ir_dtypes[t].bytes);
        return r->is_bool || ir_is_bool(t) ? y != 0 : int_bits(t, y);
    }
    double v[3] = {0}, a[2] = {0};
    for (int i = 0; i < r->arity; i++)
        v[i] = r->flags & IR_COND && i == 0 ? (double)(x[0] != 0) : ir_bits_to_double(t, x[i]);
    for (int i = 0; i < r->n_attrs && attr; i++) a[i] = t == FUSOR_F64 ? attr[i] : (double)(float)attr[i];
    if (t != FUSOR_F64) {
        double y = r->f32(v[0], v[1], v[2], a[0], a[1], variant);
        return r->is_bool ? y != 0 : f32_bits(t, (float)y);
    }
    double y;
    if (r->flags & IR_EXACT) y = r->f64(v[0], v[1], v[2], a[0], a[1], variant);
    else y = (double)ir_scalar_real(op, (long double[]){v[0], v[1], v[2]}, attr, variant);
    return r->is_bool ? y != 0 : fu_f64_bits(y);
}

/* ---- cast ---- */
static double sticky_double(bool is_signed, int64_t v) {
    const bool is_negative = is_signed && v < 0;
    return ir_odd_double(is_negative, is_negative ? 0 - (uint64_t)v : (uint64_t)v);
}

static ir_bits float_to_int(ir_dtype to, double v) {
    int w = 8 * ir_dtypes[to].bytes;
    if (v != v) return 0;
    if (ir_is_signed(to)) {
        double limit = ldexp(1, w - 1);
        if (v >= limit) return ~(uint64_t)0 >> (65 - w);
        if (v < -limit) return (uint64_t)1 << (w - 1); /* -limit - 0.5 truncates to the minimum anyway */
        return int_bits(to, (int64_t)v);
    }
    if (v <= 0) return 0;
    if (v >= ldexp(1, w)) return ~(uint64_t)0 >> (64 - w);
    return (uint64_t)v;
}

ir_bits ir_scalar_cast(ir_dtype from, ir_dtype to, ir_bits x) {
    if (from == to) return x;
    if (ir_is_float(from)) {
        double v = ir_bits_to_double(from, x);
        switch (to) {
        case FUSOR_F64: return fu_f64_bits(v);
        case FUSOR_F32: return fu_f32_bits((float)v);
        case FUSOR_F16: return ir_f64_to_f16(v);
        case FUSOR_BF16: return ir_f64_to_bf16(v);
        case FUSOR_BOOL: return v != 0;
        default: return float_to_int(to, v);
        }
    }
    int64_t v = int_value(from, x);
    bool sg = ir_is_signed(from);
    switch (to) {
    case FUSOR_F64: return fu_f64_bits(sg ? (double)v : (double)(uint64_t)v);
    case FUSOR_F32: return fu_f32_bits(sg ? (float)v : (float)(uint64_t)v);
    case FUSOR_F16: return ir_f64_to_f16(sticky_double(sg, v));
    case FUSOR_BF16: return ir_f64_to_bf16(sticky_double(sg, v));
    case FUSOR_BOOL: return v != 0;
    default: return int_bits(to, v);
    }
}

ir_bits ir_scalar_of(ir_dtype t, double v) { return ir_scalar_cast(FUSOR_F64, t, fu_f64_bits(v)); }
