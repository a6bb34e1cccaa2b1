/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* scalar_test.c: the reference of one element: special values, integer rules, single roundings, casts. */
#include "ir/scalar.h"
#include "base/bits.h"
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static ir_bits f32(float v) { return fu_f32_bits(v); }
static ir_bits f64(double v) { return fu_f64_bits(v); }
static float as_f32(ir_bits b) { return fu_bits_f32((uint32_t)b); }
static double as_f64(ir_bits b) { return fu_bits_f64(b); }

static float ew32(ir_op op, float x, float y, float z) {
    ir_bits in[3] = {f32(x), f32(y), f32(z)};
    return as_f32(ir_scalar_ew(op, FUSOR_F32, in, NULL, 0));
}
static uint64_t ewi(ir_op op, ir_dtype t, int64_t x, int64_t y, int64_t z) {
    uint64_t mask = ~(uint64_t)0 >> (64 - 8 * ir_dtypes[t].bytes);
    ir_bits in[3] = {(uint64_t)x & mask, (uint64_t)y & mask, (uint64_t)z & mask};
    return ir_scalar_ew(op, t, in, NULL, 0);
}
static bool same(float a, float b) { return (a != a && b != b) || f32(a) == f32(b); }

#define EQ32(got, want)                                                                                                \
    do {                                                                                                               \
        float g_ = (got), w_ = (want);                                                                                 \
        cr_expect(same(g_, w_), #got ": %a, expected %a", g_, w_);                                                     \
    } while (0)
#define EQI(got, want)                                                                                                 \
    do {                                                                                                               \
        uint64_t g_ = (got), w_ = (uint64_t)(want);                                                                    \
        cr_expect_eq(g_, w_, #got ": %" PRIx64 ", expected %" PRIx64, g_, w_);                                         \
    } while (0)

Test(scalar, special_values_of_float_rows) {
    EQ32(ew32(IR_OP_NEG, 0.0f, 0, 0), -0.0f);
    EQ32(ew32(IR_OP_ABS, -0.0f, 0, 0), 0.0f);
    EQ32(ew32(IR_OP_SIGN, -0.0f, 0, 0), -0.0f);
    EQ32(ew32(IR_OP_SIGN, NAN, 0, 0), NAN);
    EQ32(ew32(IR_OP_SIGN, -INFINITY, 0, 0), -1.0f);
    EQ32(ew32(IR_OP_RELU, -0.0f, 0, 0), -0.0f);
    EQ32(ew32(IR_OP_RELU, NAN, 0, 0), NAN);
    EQ32(ew32(IR_OP_RELU6, INFINITY, 0, 0), 6.0f);
    EQ32(ew32(IR_OP_RSQRT, 0.0f, 0, 0), INFINITY);
    EQ32(ew32(IR_OP_SQRT, -0.0f, 0, 0), -0.0f);
    EQ32(ew32(IR_OP_SQRT, -1.0f, 0, 0), NAN);
    EQ32(ew32(IR_OP_LOG, 0.0f, 0, 0), -INFINITY);
    EQ32(ew32(IR_OP_EXP, -INFINITY, 0, 0), 0.0f);
    EQ32(ew32(IR_OP_EXP, 89.0f, 0, 0), INFINITY);
    EQ32(ew32(IR_OP_EXP, -103.0f, 0, 0), 0x1p-149f); /* subnormals are kept */
    EQ32(ew32(IR_OP_MUL, 0x1p-149f, 0.5f, 0), 0.0f);
    EQ32(ew32(IR_OP_ADD, 3.402823466e38f, 3.402823466e38f, 0), INFINITY);
    EQ32(ew32(IR_OP_ROUND, 2.5f, 0, 0), 2.0f);
    EQ32(ew32(IR_OP_ROUND, -0.5f, 0, 0), -0.0f);
    EQ32(ew32(IR_OP_ROUND, 3.5f, 0, 0), 4.0f);
    EQ32(ew32(IR_OP_TRUNC, -0.9f, 0, 0), -0.0f);
    EQ32(ew32(IR_OP_SIGMOID, -100.0f, 0, 0), (float)exp(-100.0));
    EQ32(ew32(IR_OP_POW, 0.0f, 0.0f, 0), 1.0f);
    EQ32(ew32(IR_OP_POW, NAN, 0.0f, 0), 1.0f);
    EQ32(ew32(IR_OP_HYPOT, INFINITY, NAN, 0), INFINITY);
    EQ32(ew32(IR_OP_COPYSIGN, 1.0f, -0.0f, 0), -1.0f);
    EQ32(ew32(IR_OP_ATAN2, -0.0f, -1.0f, 0), -(float)M_PI);
    EQI(ir_scalar_ew(IR_OP_ISNAN, FUSOR_F32, (ir_bits[]){f32(NAN)}, NULL, 0), 1);
    EQI(ir_scalar_ew(IR_OP_ISINF, FUSOR_F32, (ir_bits[]){f32(-INFINITY)}, NULL, 0), 1);
    EQI(ir_scalar_ew(IR_OP_ISFINITE, FUSOR_F32, (ir_bits[]){f32(NAN)}, NULL, 0), 0);
    EQI(ir_scalar_ew(IR_OP_NE, FUSOR_F32, (ir_bits[]){f32(NAN), f32(NAN)}, NULL, 0), 1);
    EQI(ir_scalar_ew(IR_OP_EQ, FUSOR_F32, (ir_bits[]){f32(0.0f), f32(-0.0f)}, NULL, 0), 1);
}

/* f64 goes by long double, whose pow in glibc has an infinity for the first of them. */
Test(scalar, powers_of_infinities) {
    static const double is[][3] = {{-INFINITY, -0x1p63, 0},   {-INFINITY, 0x1p63, INFINITY}, {-INFINITY, -3, -0.0},
                                   {-INFINITY, 3, -INFINITY}, {INFINITY, -0x1p63, 0},        {INFINITY, 0, 1}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        const ir_bits in[2] = {f64(is[i][0]), f64(is[i][1])};
        cr_expect_eq(ir_scalar_ew(IR_OP_POW, FUSOR_F64, in, NULL, 0), f64(is[i][2]), "pow(%g, %a)", is[i][0], is[i][1]);
    }
}

Test(scalar, nan_of_choices) {
    EQ32(ew32(IR_OP_MAXIMUM, NAN, 1, 0), NAN);
    EQ32(ew32(IR_OP_MAXIMUM, 1, NAN, 0), NAN);
    EQ32(ew32(IR_OP_MINIMUM, NAN, 1, 0), NAN);
    EQ32(ew32(IR_OP_MINIMUM, 1, NAN, 0), NAN);
    EQ32(ew32(IR_OP_MAXIMUM, 0.0f, -0.0f, 0), -0.0f); /* not greater: b */
    EQ32(ew32(IR_OP_CLAMP, NAN, 0, 1), NAN);
    EQ32(ew32(IR_OP_CLAMP, 0.5f, NAN, 1), NAN);
    EQ32(ew32(IR_OP_CLAMP, 0.5f, 0, NAN), NAN);
    EQ32(ew32(IR_OP_CLAMP, 5, 3, 1), 1); /* hi wins where lo > hi */
    EQ32(as_f32(ir_scalar_ew(IR_OP_SELECT, FUSOR_F32, (ir_bits[]){1, f32(-0.0f), f32(NAN)}, NULL, 0)), -0.0f);
    EQ32(as_f32(ir_scalar_ew(IR_OP_SELECT, FUSOR_F32, (ir_bits[]){0, f32(-0.0f), f32(NAN)}, NULL, 0)), NAN);
}

Test(scalar, mod_follows_the_divisor) {
    EQ32(ew32(IR_OP_MOD, 5, 3, 0), 2);
    EQ32(ew32(IR_OP_MOD, -5, 3, 0), 1);
    EQ32(ew32(IR_OP_MOD, 5, -3, 0), -1);
    EQ32(ew32(IR_OP_MOD, -6, 3, 0), 0.0f);
    EQ32(ew32(IR_OP_MOD, 6, -3, 0), -0.0f);
    EQ32(ew32(IR_OP_MOD, -1, INFINITY, 0), INFINITY);
    EQ32(ew32(IR_OP_MOD, 1, 0, 0), NAN);
    EQ32(ew32(IR_OP_FMOD, -5, 3, 0), -2);
    EQI(ewi(IR_OP_MOD, FUSOR_I32, -5, 3, 0), 1);
    EQI(ewi(IR_OP_MOD, FUSOR_I32, 5, -3, 0), (uint32_t)-1);
    EQI(ewi(IR_OP_FMOD, FUSOR_I32, -5, 3, 0), (uint32_t)-2);
    EQI(ewi(IR_OP_MOD, FUSOR_U64, -1, 10, 0), 5); /* 2^64 - 1 */
}

Test(scalar, integers_wrap_and_never_trap) {
    static const ir_dtype signed_types[] = {FUSOR_I8, FUSOR_I16, FUSOR_I32, FUSOR_I64};
    for (size_t i = 0; i < 4; i++) {
        ir_dtype t = signed_types[i];
        int w = 8 * ir_dtypes[t].bytes;
        uint64_t min = (uint64_t)1 << (w - 1);
        EQI(ewi(IR_OP_NEG, t, (int64_t)min, 0, 0), min);
        EQI(ewi(IR_OP_ABS, t, (int64_t)min, 0, 0), min);
        EQI(ewi(IR_OP_DIV, t, (int64_t)min, -1, 0), min);
        EQI(ewi(IR_OP_MOD, t, (int64_t)min, -1, 0), 0);
        EQI(ewi(IR_OP_DIV, t, 7, 0, 0), 0);
        EQI(ewi(IR_OP_MOD, t, 7, 0, 0), 0);
        EQI(ewi(IR_OP_FMOD, t, 7, 0, 0), 0);
        EQI(ewi(IR_OP_ADD, t, (int64_t)(min - 1), 1, 0), min);
        EQI(ewi(IR_OP_SHL, t, 1, w - 1, 0), min);
        EQI(ewi(IR_OP_SHL, t, 1, w, 0), 0);
        EQI(ewi(IR_OP_SHL, t, 1, -1, 0), 0);
        EQI(ewi(IR_OP_SHR, t, -8, 1, 0), ewi(IR_OP_NEG, t, 4, 0, 0));
        EQI(ewi(IR_OP_SHR, t, -8, w, 0), ewi(IR_OP_NEG, t, 1, 0, 0));
        EQI(ewi(IR_OP_SHR, t, 8, -1, 0), 0);
        EQI(ewi(IR_OP_POW, t, 3, -1, 0), 0);
        EQI(ewi(IR_OP_POW, t, -1, -3, 0), ewi(IR_OP_NEG, t, 1, 0, 0));
        EQI(ewi(IR_OP_POW, t, -1, -2, 0), 1);
        EQI(ewi(IR_OP_POW, t, 0, 0, 0), 1);
        EQI(ewi(IR_OP_POW, t, 2, w, 0), 0);
        EQI(ewi(IR_OP_LT, t, (int64_t)min, 1, 0), 1);
        EQI(ewi(IR_OP_MAXIMUM, t, -3, 2, 0), 2);
        EQI(ewi(IR_OP_CLAMP, t, -3, -2, 5), ewi(IR_OP_NEG, t, 2, 0, 0));
    }
    EQI(ewi(IR_OP_LT, FUSOR_U64, -1, 1, 0), 0);
    EQI(ewi(IR_OP_DIV, FUSOR_U64, -1, 2, 0), INT64_MAX);
    EQI(ewi(IR_OP_SHR, FUSOR_U8, 0x80, 7, 0), 1);
    EQI(ewi(IR_OP_ABS, FUSOR_U32, -5, 0, 0), (uint32_t)-5);
    EQI(ewi(IR_OP_RELU6, FUSOR_U8, 200, 0, 0), 6);
    EQI(ewi(IR_OP_BITWISE_NOT, FUSOR_U16, 0, 0, 0), 0xffff);
    EQI(ewi(IR_OP_NOT, FUSOR_BOOL, 1, 0, 0), 0);
    EQI(ewi(IR_OP_XOR, FUSOR_BOOL, 1, 1, 0), 0);
    EQI(ir_scalar_ew(IR_OP_SELECT, FUSOR_I8, (ir_bits[]){1, 0x80, 3}, NULL, 0), 0x80);
}

Test(scalar, fma_rounds_once) {
    /* 1 + 2^-24 + 2^-60: through a double it becomes the tie 1 + 2^-24, which would round to 1. */
    float a = 1 + 0x1p-12f, b = 1 - 0x1p-12f; /* a * b = 1 - 2^-24 */
    EQ32(ew32(IR_OP_FMA, a, b, 0x1p-60f), fmaf(a, b, 0x1p-60f));
    EQ32(ew32(IR_OP_FMA, 0x1p-30f, 0x1p-30f, 1 + 0x1p-23f), 1 + 0x1p-23f);
    EQ32(ew32(IR_OP_FMA, 0x1.000002p0f, 0x1p-24f, 1.0f), fmaf(0x1.000002p0f, 0x1p-24f, 1.0f));
    ir_bits x[3] = {f64(1 + 0x1p-27), f64(1 + 0x1p-27), f64(-1 - 0x1p-26)};
    cr_assert_eq(as_f64(ir_scalar_ew(IR_OP_FMA, FUSOR_F64, x, NULL, 0)), 0x1p-54);
    /* every float sum and product equals the machine's own */
    uint32_t s = 1;
    for (int i = 0; i < 100000; i++) {
        float p, q;
        s = s * 1664525 + 1013904223;
        memcpy(&p, &s, 4);
        s = s * 1664525 + 1013904223;
        memcpy(&q, &s, 4);
        volatile float sum = p + q, product = p * q, quotient = p / q;
        cr_assert(same(ew32(IR_OP_ADD, p, q, 0), sum) && same(ew32(IR_OP_MUL, p, q, 0), product) &&
                      same(ew32(IR_OP_DIV, p, q, 0), quotient),
                  "%a, %a", p, q);
    }
}

Test(scalar, halves_are_computed_in_f32) {
    /* 1 + 2^-11 (tie of f16) from 1 + 2^-12 + 2^-12 exactly: to even, 1 */
    ir_bits one = ir_f32_to_f16(1), tiny = ir_f32_to_f16(0x1p-11f);
    EQI(ir_scalar_ew(IR_OP_ADD, FUSOR_F16, (ir_bits[]){one, tiny}, NULL, 0), one);
    EQI(ir_scalar_ew(IR_OP_MUL, FUSOR_F16, (ir_bits[]){ir_f32_to_f16(65504), ir_f32_to_f16(2)}, NULL, 0), 0x7c00);
    EQI(ir_scalar_ew(IR_OP_NEG, FUSOR_BF16, (ir_bits[]){0x3f80}, NULL, 0), 0xbf80);
    EQI(ir_scalar_ew(IR_OP_EXP, FUSOR_BF16, (ir_bits[]){0}, NULL, 0), 0x3f80);
    for (uint32_t h = 0; h < 65536; h++) { /* reading and writing halves loses nothing */
        float v = ir_f16_to_f32((uint16_t)h), u = ir_bf16_to_f32((uint16_t)h);
        if (v == v) EQI(ir_scalar_ew(IR_OP_SELECT, FUSOR_F16, (ir_bits[]){1, h, 0}, NULL, 0), h);
        if (u == u) EQI(ir_scalar_ew(IR_OP_SELECT, FUSOR_BF16, (ir_bits[]){1, h, 0}, NULL, 0), h);
    }
}

Test(scalar, attributes) {
    double alpha[2] = {0.1, 0};
    ir_bits x[1] = {f32(-3)};
    EQ32(as_f32(ir_scalar_ew(IR_OP_LEAKY_RELU, FUSOR_F32, x, alpha, 0)), -3 * 0.1f);
    double hard[2] = {0.5, 0.25};
    x[0] = f32(1);
    EQ32(as_f32(ir_scalar_ew(IR_OP_HARD_SIGMOID, FUSOR_F32, x, hard, 0)), 0.75f);
    double v = 1.5, c = 0.7978845608028653559, t = 0.5 * v * (1 + tanh(c * (v + 0.044715 * v * v * v)));
    x[0] = f32(1.5f);
    cr_expect_float_eq(as_f32(ir_scalar_ew(IR_OP_GELU, FUSOR_F32, x, NULL, 1)), t, 1e-6);
    cr_expect_float_eq(as_f32(ir_scalar_ew(IR_OP_GELU, FUSOR_F32, x, NULL, 0)), 0.5 * v * erfc(-v * M_SQRT1_2), 1e-6);
    cr_expect_float_eq((double)ir_scalar_real(IR_OP_MISH, (long double[]){1.5L}, NULL, 0), v * tanh(log1p(exp(v))),
                       1e-15);
}

#define CAST(from, to, x) ir_scalar_cast(FUSOR_##from, FUSOR_##to, x)
Test(scalar, casts) {
    EQI(CAST(F32, I8, f32(127.9f)), 127);
    EQI(CAST(F32, I8, f32(1e9f)), 127);
    EQI(CAST(F32, I8, f32(-INFINITY)), 0x80);
    EQI(CAST(F32, I8, f32(-128.9f)), 0x80);
    EQI(CAST(F32, U8, f32(-1)), 0);
    EQI(CAST(F32, U8, f32(255.9f)), 255);
    EQI(CAST(F32, I32, f32(NAN)), 0);
    EQI(CAST(F32, I32, f32(-2.9f)), (uint32_t)-2);
    EQI(CAST(F32, I64, f32(0x1p63f)), INT64_MAX);
    EQI(CAST(F64, I64, f64(-0x1p63)), INT64_MIN);
    EQI(CAST(F64, U64, f64(0x1p64)), UINT64_MAX);
    EQI(CAST(F64, U64, f64(0x1.8p63)), 0xC000000000000000);
    EQI(CAST(F32, BOOL, f32(NAN)), 1);
    EQI(CAST(F32, BOOL, f32(-0.0f)), 0);
    EQI(CAST(F64, F32, f64(1e300)), f32(INFINITY));
    EQI(CAST(I32, I8, (uint32_t)-129), 0x7f);
    EQI(CAST(I8, U32, 0xff), 0xffffffff);
    EQI(CAST(I8, I64, 0x80), (uint64_t)-128);
    EQI(CAST(U8, I64, 0x80), 128);
    EQI(CAST(BOOL, F16, 1), 0x3c00);
    EQI(CAST(I64, BOOL, 256), 1);
    /* one rounding, not two, past 2^53 */
    EQI(CAST(I64, F32, ((int64_t)1 << 54) + ((int64_t)1 << 30) + 1), f32(0x1p54f + 0x1p31f));
    EQI(CAST(U64, F32, UINT64_MAX), f32(0x1p64f));
    EQI(CAST(I64, BF16, ((uint64_t)1 << 62) + ((uint64_t)1 << 54) + 1), ir_f32_to_bf16(0x1p62f + 0x1p55f));
    EQI(CAST(I64, BF16, ((uint64_t)1 << 62) + ((uint64_t)1 << 54)), ir_f32_to_bf16(0x1p62f));
    EQI(CAST(I64, F16, 65519), 0x7bff);
    EQI(CAST(I64, F16, 65520), 0x7c00);
    EQI(CAST(I64, F16, INT64_MIN), 0xfc00);
    /* f64 to f16: just above a tie that f32 would hide */
    EQI(CAST(F64, F16, f64(1 + 0x1p-11 + 0x1p-40)), 0x3c01);
    EQI(CAST(F64, BF16, f64(1 + 0x1p-8 + 0x1p-40)), 0x3f81);
}

Test(scalar, every_cast_pair_takes_every_corner) {
    static const ir_bits corner[] = {0,
                                     1,
                                     0x7f,
                                     0x80,
                                     0xff,
                                     0x7fff,
                                     0x8000,
                                     0xffff,
                                     0x7f800000,
                                     0x80000000,
                                     0xffffffff,
                                     0x7ff0000000000000,
                                     0x8000000000000000,
                                     UINT64_MAX};
    for (ir_dtype a = 1; a < IR_DTYPE_COUNT; a++)
        for (ir_dtype b = 1; b < IR_DTYPE_COUNT; b++)
            for (size_t i = 0; i < sizeof corner / sizeof *corner; i++) {
                ir_bits x = a == FUSOR_BOOL ? corner[i] & 1 : corner[i] & ~(uint64_t)0 >> (64 - 8 * ir_dtypes[a].bytes);
                ir_bits y = ir_scalar_cast(a, b, x);
                cr_expect(y >> (8 * ir_dtypes[b].bytes - 1) <= 1, "%s to %s", ir_dtypes[a].name, ir_dtypes[b].name);
                if (b == FUSOR_BOOL) cr_expect_leq(y, 1);
            }
}
