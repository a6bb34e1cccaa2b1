/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math64_atan.c: inverse trigonometric functions in f64; asin and acos as in math_atan.c. pi and its parts are used as
 * two doubles each: the difference with the first is rounded once, the second goes with the small term. */
#include "jit/math64_impl.h"

#define PI_HIGH 0x1.921fb54442d18p1
#define PI_LOW  0x1.1a62633145c07p-53

/* asin_64: error 2^-59.9 */
static const double asin_64[13] = {
    0x1.5555555555577p-3, 0x1.333333332e13fp-4,  0x1.6db6db721175ap-5, 0x1.f1c71a955c4cdp-6, 0x1.6e8bded3c772fp-6,
    0x1.1c49f1456b872p-6, 0x1.ca1f773f845dp-7,   0x1.758640a36c11fp-7, 0x1.6138897bb97cfp-7, 0x1.e631fc0a9ebf5p-9,
    0x1.638a271dfef0dp-6, -0x1.57e3c44858386p-6, 0x1.0b3ec24e4703ep-5,
};
/* atan_64: error 2^-59.4 */
static const double atan_64[11] = {
    -0x1.555555555553dp-2, 0x1.9999999995862p-3, -0x1.24924922acf4bp-3, 0x1.c71c70e5d2e16p-4,
    -0x1.745cf8d3e0fd2p-4, 0x1.3b11186b1fe4p-4,  -0x1.10ebaf7b9b13cp-4, 0x1.df0ebfd56e94p-5,
    -0x1.9cd01c7290494p-5, 0x1.37ce9453b0f53p-5, -0x1.255a1d348c63dp-6,
};

/* s and the rest of asin(s), |s| <= 1/2: see math_atan.c. */
typedef struct asin_parts {
    LLVMValueRef a, s, rest, is_large;
} asin_parts;

static asin_parts asin_reduce(emit *e, LLVMValueRef x) {
    asin_parts v = {.a = em_fabs(e, x)};
    LLVMValueRef half = em_f64(e, 0.5);
    v.is_large = em_fcmp(e, LLVMRealOGT, v.a, half);
    LLVMValueRef w = em_mad(e, v.a, em_f64(e, -0.5), half);
    LLVMValueRef z = em_select(e, v.is_large, w, em_fmul(e, v.a, v.a));
    v.s = em_select(e, v.is_large, mi_sqrt(e, w), v.a);
    v.rest = em_fmul(e, em_fmul(e, mi_poly_d(e, z, asin_64, 13), z), v.s);
    return v;
}

/* Error: 1.54 ULP. */
LLVMValueRef math64_asin(emit *e, LLVMValueRef x) {
    asin_parts v = asin_reduce(e, x);
    LLVMValueRef two = em_f64(e, 2), small = em_fadd(e, v.s, v.rest);
    LLVMValueRef low = em_fsub(e, em_fmul(e, v.rest, two), em_f64(e, PI_LOW / 2));
    LLVMValueRef large = em_fsub(e, em_f64(e, PI_HIGH / 2), em_fadd(e, em_fmul(e, v.s, two), low));
    return em_copysign(e, em_select(e, v.is_large, large, small), x);
}

/* high + low + (s + rest) with the sign of minus. */
static LLVMValueRef add_angle(emit *e, LLVMValueRef high, LLVMValueRef low, LLVMValueRef minus, LLVMValueRef s,
                              LLVMValueRef rest) {
    s = mi64_select_sign(e, minus, s);
    rest = mi64_select_sign(e, minus, rest);
    return em_fadd(e, em_fadd(e, high, s), em_fadd(e, low, rest));
}

/* |x| <= 1/2: pi/2 - (x + rest); above: 2 (s + rest), or pi minus it for negative x. Error: 1.14 ULP. */
LLVMValueRef math64_acos(emit *e, LLVMValueRef x) {
    asin_parts v = asin_reduce(e, x);
    LLVMValueRef zero = em_f64(e, 0), is_negative = em_fcmp(e, LLVMRealOLT, x, zero), is_small = mi_not(e, v.is_large);
    LLVMValueRef scale = em_select(e, v.is_large, em_f64(e, 2), em_f64(e, 1));
    LLVMValueRef minus = em_xor(e, is_negative, is_small), side = em_or(e, is_negative, is_small);
    LLVMValueRef high = em_select(e, v.is_large, em_f64(e, PI_HIGH), em_f64(e, PI_HIGH / 2));
    LLVMValueRef low = em_select(e, v.is_large, em_f64(e, PI_LOW), em_f64(e, PI_LOW / 2));
    return add_angle(e, em_select(e, side, high, zero), em_select(e, side, low, zero), minus, em_fmul(e, v.s, scale),
                     em_fmul(e, v.rest, scale));
}

/* atan(small / large) for 0 <= small <= large: t = small / large up to tan(pi/8), else (small - large) / (small +
 * large), which is tan of the angle less pi/4. The result is t + rest + quarter ? pi/4 : 0. */
typedef struct atan_parts {
    LLVMValueRef t, rest, has_quarter;
} atan_parts;

static atan_parts atan_reduce(emit *e, LLVMValueRef small, LLVMValueRef large) {
    atan_parts v;
    v.has_quarter = em_fcmp(e, LLVMRealOGT, small, em_fmul(e, large, em_f64(e, 0.41421356)));
    LLVMValueRef top = em_select(e, v.has_quarter, em_fsub(e, small, large), small);
    LLVMValueRef bottom = em_select(e, v.has_quarter, em_fadd(e, small, large), large);
    v.t = em_fdiv(e, top, bottom);
    LLVMValueRef z = em_fmul(e, v.t, v.t);
    v.rest = em_fmul(e, em_fmul(e, mi_poly_d(e, z, atan_64, 11), z), v.t);
    return v;
}

/* base + (minus ? -angle : angle), base a multiple of pi/2: angle's pi/4 joins it. */
static LLVMValueRef atan_finish(emit *e, atan_parts v, LLVMValueRef high, LLVMValueRef low, LLVMValueRef minus) {
    LLVMValueRef zero = em_f64(e, 0);
    LLVMValueRef quarter = em_select(e, v.has_quarter, em_f64(e, PI_HIGH / 4), zero);
    LLVMValueRef quarter_low = em_select(e, v.has_quarter, em_f64(e, PI_LOW / 4), zero);
    high = em_fadd(e, high, mi64_select_sign(e, minus, quarter)); /* multiples of pi/4 up to 4: exact */
    low = em_fadd(e, low, mi64_select_sign(e, minus, quarter_low));
    return add_angle(e, high, low, minus, v.t, v.rest);
}

/* Above 1: pi/2 - atan(1 / |x|). Error: 1.74 ULP. */
LLVMValueRef math64_atan(emit *e, LLVMValueRef x) {
    LLVMValueRef a = em_fabs(e, x), one = em_f64(e, 1), zero = em_f64(e, 0);
    LLVMValueRef is_large = em_fcmp(e, LLVMRealOGT, a, one);
    LLVMValueRef held = mi_min(e, em_f64(e, 0x1p70), a);
    atan_parts v = atan_reduce(e, em_select(e, is_large, one, held), em_select(e, is_large, held, one));
    LLVMValueRef high = em_select(e, is_large, em_f64(e, PI_HIGH / 2), zero);
    LLVMValueRef low = em_select(e, is_large, em_f64(e, PI_LOW / 2), zero);
    LLVMValueRef y = atan_finish(e, v, high, low, is_large);
    return em_copysign(e, y, x);
}

/* pi/2 - where |y| is the larger, pi - where x is negative, -0 too, and the sign of y. Very large operands are halved
 * twice, so that their sum is finite, very small ones are multiplied, so that they are compared exactly enough; infinite
 * ones become 1 and the others beside them 0. Error: 1.94 ULP. */
LLVMValueRef math64_atan2(emit *e, LLVMValueRef y, LLVMValueRef x) {
    LLVMValueRef ax = em_fabs(e, x), ay = em_fabs(e, y), zero = em_f64(e, 0), inf = em_f64(e, __builtin_inf());
    LLVMValueRef is_steep = em_fcmp(e, LLVMRealOGT, ay, ax);
    LLVMValueRef small = em_select(e, is_steep, ax, ay), large = em_select(e, is_steep, ay, ax);
    LLVMValueRef is_huge = em_fcmp(e, LLVMRealOGT, large, em_f64(e, 0x1p1000));
    LLVMValueRef is_tiny = em_fcmp(e, LLVMRealOLT, large, em_f64(e, 0x1p-900));
    LLVMValueRef factor = em_select(e, is_tiny, em_f64(e, 0x1p100), em_f64(e, 1));
    factor = em_select(e, is_huge, em_f64(e, 0x1p-2), factor);
    LLVMValueRef is_infinite = em_fcmp(e, LLVMRealOEQ, large, inf), is_both = em_fcmp(e, LLVMRealOEQ, small, inf);
    small = em_fmul(e, small, factor);
    large = em_fmul(e, large, factor);
    small = em_select(e, is_infinite, em_select(e, is_both, em_f64(e, 1), zero), small);
    large = em_select(e, is_infinite, em_f64(e, 1), large);
    large = em_select(e, em_fcmp(e, LLVMRealOEQ, large, zero), em_f64(e, 1), large); /* two zeros */
    atan_parts v = atan_reduce(e, small, large);
    LLVMValueRef is_left = em_icmp(e, LLVMIntSLT, mi_bits_d(e, x), mi_i64(e, 0));
    LLVMValueRef high = em_select(e, is_left, em_f64(e, PI_HIGH), zero);
    LLVMValueRef low = em_select(e, is_left, em_f64(e, PI_LOW), zero);
    high = em_select(e, is_steep, em_f64(e, PI_HIGH / 2), high);
    low = em_select(e, is_steep, em_f64(e, PI_LOW / 2), low);
    /* steep: pi/2 -+ angle; flat: angle, or pi - angle */
    LLVMValueRef r = em_copysign(e, atan_finish(e, v, high, low, em_xor(e, is_steep, is_left)), y);
    return em_select(e, em_fcmp(e, LLVMRealUNO, x, y), em_fadd(e, x, y), r);
}
