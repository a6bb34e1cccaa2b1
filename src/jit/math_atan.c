/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math_atan.c: inverse trigonometric functions. pi and pi/2 are used as two floats each: the difference with the first
 * is exact or rounded below the result's last bit, the second goes with the small term. */
#include "jit/math_impl.h"

#define PI_HIGH      0x1.921fb6p1
#define PI_LOW       -0x1.777a5cp-24
#define HALF_PI_HIGH 0x1.921fb6p0
#define HALF_PI_LOW  -0x1.777a5cp-25

/* asin_p: error 2^-27.6 */
static const float asin_p[5] = {
    0x1.5555c8p-3f, 0x1.330206p-4f, 0x1.747b6p-5f, 0x1.8c42cep-6f, 0x1.5957dcp-5f,
};
/* atan_p: error 2^-28.3 */
static const float atan_p[9] = {
    -0x1.55553cp-2f, 0x1.999146p-3f,  -0x1.2418b6p-3f, 0x1.c02f66p-4f,   -0x1.56dca6p-4f,
    0x1.d5ca7ep-5f,  -0x1.f41ea2p-6f, 0x1.596a3ep-7f,  -0x1.bf08e2p-10f,
};

/* s and the rest of asin(s), |s| <= 1/2, for both asin and acos: s = a, or for a > 1/2 sqrt((1 - a) / 2), where (1 - a)
 * / 2 is exact and asin(a) = pi/2 - 2 asin(s). rest = s^3 P(s^2). */
typedef struct asin_parts {
    LLVMValueRef a, s, rest, is_large;
} asin_parts;

static asin_parts asin_reduce(emit *e, LLVMValueRef x) {
    asin_parts v = {.a = em_fabs(e, x)};
    LLVMValueRef half = em_f32(e, 0.5);
    v.is_large = em_fcmp(e, LLVMRealOGT, v.a, half);
    LLVMValueRef w = em_mad(e, v.a, em_f32(e, -0.5), half);
    LLVMValueRef z = em_select(e, v.is_large, w, em_fmul(e, v.a, v.a));
    v.s = em_select(e, v.is_large, mi_sqrt(e, w), v.a);
    v.rest = em_fmul(e, em_fmul(e, mi_poly(e, z, asin_p, 5), z), v.s);
    return v;
}

/* Error: 1.68 ULP. */
LLVMValueRef math_asin(emit *e, LLVMValueRef x) {
    asin_parts v = asin_reduce(e, x);
    LLVMValueRef two = em_f32(e, 2), small = em_fadd(e, v.s, v.rest);
    LLVMValueRef low = em_fsub(e, em_fmul(e, v.rest, two), em_f32(e, HALF_PI_LOW));
    LLVMValueRef large = em_fsub(e, em_f32(e, HALF_PI_HIGH), em_fadd(e, em_fmul(e, v.s, two), low));
    return em_copysign(e, em_select(e, v.is_large, large, small), x);
}

/* |x| <= 1/2: pi/2 - (x + rest); above: 2 (s + rest), or pi minus it for negative x. Error: 1.14 ULP. */
LLVMValueRef math_acos(emit *e, LLVMValueRef x) {
    asin_parts v = asin_reduce(e, x);
    LLVMValueRef is_negative = em_fcmp(e, LLVMRealOLT, x, em_f32(e, 0)), zero = em_f32(e, 0);
    LLVMValueRef scale = em_select(e, v.is_large, em_f32(e, 2), em_f32(e, 1));
    LLVMValueRef s = em_fmul(e, v.s, scale), rest = em_fmul(e, v.rest, scale);
    /* The sign of s + rest: of -x in the middle, of x outside. Outside, only negative x has the constant. */
    LLVMValueRef is_minus = em_xor(e, is_negative, mi_not(e, v.is_large));
    LLVMValueRef sign = em_select(e, is_minus, em_i32(e, INT32_MIN), em_i32(e, 0));
    LLVMValueRef side = em_or(e, is_negative, mi_not(e, v.is_large));
    s = mi_flip_sign(e, s, sign);
    rest = mi_flip_sign(e, rest, sign);
    LLVMValueRef high = em_select(e, v.is_large, em_f32(e, PI_HIGH), em_f32(e, HALF_PI_HIGH));
    LLVMValueRef low = em_select(e, v.is_large, em_f32(e, PI_LOW), em_f32(e, HALF_PI_LOW));
    high = em_select(e, side, high, zero);
    low = em_select(e, side, low, zero);
    return em_fadd(e, em_fadd(e, high, s), em_fadd(e, low, rest));
}

/* atan(t) = t + t^3 P(t^2) for 0 <= t <= 1. */
static LLVMValueRef atan_rest(emit *e, LLVMValueRef t) {
    LLVMValueRef z = em_fmul(e, t, t);
    return em_fmul(e, em_fmul(e, mi_poly(e, z, atan_p, 9), z), t);
}

/* Above 1: pi/2 - atan(1 / |x|). Error: 1.23 ULP (1.27 without fma). */
LLVMValueRef math_atan(emit *e, LLVMValueRef x) {
    LLVMValueRef a = em_fabs(e, x), one = em_f32(e, 1), is_large = em_fcmp(e, LLVMRealOGT, a, one);
    LLVMValueRef t = em_select(e, is_large, em_fdiv(e, one, a), a), rest = atan_rest(e, t);
    LLVMValueRef large = em_fadd(e, em_fsub(e, em_f32(e, HALF_PI_HIGH), t), em_fsub(e, em_f32(e, HALF_PI_LOW), rest));
    return em_copysign(e, em_select(e, is_large, large, em_fadd(e, t, rest)), x);
}

/* t = smaller / larger of |y| and |x| (0 for two zeros, 1 for two infinities); then pi/2 - where |y| is the larger, pi
 * - where x is negative, -0 too, and the sign of y. Error: 1.64 ULP. */
LLVMValueRef math_atan2(emit *e, LLVMValueRef y, LLVMValueRef x) {
    LLVMValueRef ax = em_fabs(e, x), ay = em_fabs(e, y), zero = em_f32(e, 0), one = em_f32(e, 1);
    LLVMValueRef is_steep = em_fcmp(e, LLVMRealOGT, ay, ax);
    LLVMValueRef small = em_select(e, is_steep, ax, ay), large = em_select(e, is_steep, ay, ax);
    LLVMValueRef t = em_fdiv(e, small, large);
    t = em_select(e, em_fcmp(e, LLVMRealOEQ, large, zero), zero, t);
    t = em_select(e, mi_is_inf(e, small), one, t);
    LLVMValueRef rest = atan_rest(e, t);
    LLVMValueRef is_left = em_icmp(e, LLVMIntSLT, em_bits_of_f32(e, x), em_i32(e, 0));
    /* steep: pi/2 -+ angle; flat: angle, or pi - angle */
    LLVMValueRef flip = em_select(e, em_xor(e, is_steep, is_left), em_i32(e, INT32_MIN), em_i32(e, 0));
    LLVMValueRef high = em_select(e, is_left, em_f32(e, PI_HIGH), zero),
                 low = em_select(e, is_left, em_f32(e, PI_LOW), zero);
    high = em_select(e, is_steep, em_f32(e, HALF_PI_HIGH), high);
    low = em_select(e, is_steep, em_f32(e, HALF_PI_LOW), low);
    t = mi_flip_sign(e, t, flip);
    rest = mi_flip_sign(e, rest, flip);
    LLVMValueRef v = em_fadd(e, em_fadd(e, high, t), em_fadd(e, low, rest));
    v = em_copysign(e, v, y);
    return em_select(e, em_fcmp(e, LLVMRealUNO, x, y), em_fadd(e, x, y), v);
}
