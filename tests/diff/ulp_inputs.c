/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ulp_inputs.c: arguments that ulp.c measures. */
#include "ulp_inputs.h"
#include <math.h>
#include <string.h>

static const double specials[] = {
    0,
    -0x1.1af982p+0,
    1,
    2,
    3,
    0.5,
    0.75,
    1.5,
    4,
    5,
    127,
    128,
    6,
    20,
    16777215,
    16777216,
    16777217,
    33554432,
    1e30,
    1e-30,
    0x1p-149,
    0x1p-126,
    0x1.fffffcp-127,
    0x1.fffffep127,
    0x1.fffffep-1,
    0x1.000002p0,
    0x1p-1074,
    0x1p-1022,
    0x1.fffffffffffffp1023,
    0x1.fffffffffffffp-1,
    0x1.0000000000001p0,
    0x1p53,
    0x1.fffffffffffffp53,
    0x1p1000,
    0x1p-1000,
    0.95,
    0.41421356237309503,
    27.3,
    0x1p60,
    INFINITY,
    NAN,
};
enum { N_SPECIALS = sizeof specials / sizeof *specials };

uint64_t input_random(void) { /* splitmix64 */
    static uint64_t state = 20240229;
    uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t input_bits(ir_dtype t, double v) {
    uint64_t b = 0;
    float f = (float)v;
    switch (t) {
    case FUSOR_F64: memcpy(&b, &v, 8); return b;
    case FUSOR_F16: return ir_f64_to_f16(v);
    case FUSOR_BF16: return ir_f64_to_bf16(v);
    default: memcpy(&b, &f, 4); return b;
    }
}

double input_of_bits(ir_dtype t, uint64_t bits) {
    double v;
    float f;
    uint32_t low = (uint32_t)bits;
    switch (t) {
    case FUSOR_F64: memcpy(&v, &bits, 8); return v;
    case FUSOR_F16: return (double)ir_f16_to_f32((uint16_t)bits);
    case FUSOR_BF16: return (double)ir_bf16_to_f32((uint16_t)bits);
    default: memcpy(&f, &low, 4); return (double)f;
    }
}

double input_rounded(ir_dtype t, double v) { return input_of_bits(t, input_bits(t, v)); }

static double fraction(uint64_t r) { return (double)(r >> 11) * 0x1p-53; }

/* 1 +- 2^-j (1 + something) */
static double around_one(uint64_t r) {
    double d = ldexp(1 + fraction(input_random()), -(int)(r % 56));
    return r >> 63 ? 1 - d / 2 : 1 + d;
}

void input_pair(ir_dtype t, long long number, double *x, double *y) {
    uint64_t r = input_random(), s = input_random();
    if (number < 4 * N_SPECIALS * N_SPECIALS) {
        long long n = number / 4;
        *x = specials[n / N_SPECIALS] * (number & 1 ? -1 : 1);
        *y = specials[n % N_SPECIALS] * (number & 2 ? -1 : 1);
    } else if (number % 4 == 0) {
        *x = input_of_bits(t, r);
        *y = input_of_bits(t, s);
    } else if (number % 4 == 1) { /* a power of about any size */
        *x = around_one(r);
        *y = ldexp(1 + fraction(s), (int)(r >> 40) % 62 - 10) * (s & 1 ? -1 : 1);
    } else if (number % 4 == 2) { /* moderate; every second y an integer or a half */
        *x = ldexp(1 + fraction(s), (int)(r % 24) - 12) * (r >> 63 ? -1 : 1);
        *y = (double)((int)(r >> 40 & 511) - 255) / (r >> 50 & 1 ? 2.0 : 1.7);
    } else { /* of similar size */
        *x = input_of_bits(t, r);
        *y = *x * (0.25 + 4 * fraction(s)) * (s & 1 ? -1 : 1);
    }
    *x = input_rounded(t, *x);
    *y = input_rounded(t, *y);
}

long long input_specials(const ir_op_info *info) {
    (void)info;
    return 6 * (N_SPECIALS + 2);
}

static double next_to(ir_dtype t, double v, int by) {
    if (v != v || isinf(v) || v == 0) return by ? input_of_bits(t, 1) * (by < 0 ? -1 : 1) : v;
    double w = input_of_bits(t, input_bits(t, v) + (uint64_t)(int64_t)by);
    return w;
}

double input_near(ir_dtype t, double v) {
    uint64_t r = input_random();
    if (v != v || isinf(v)) return v;
    if (r & 1) return next_to(t, v, (int)(r >> 32 & 4095) - 2048);
    double part = ldexp(fraction(input_random()) - 0.5, -(int)(r >> 8 & 31) - 7);
    return input_rounded(t, v + v * part);
}

double input_single(ir_dtype t, const ir_op_info *info, long long number) {
    uint64_t r = input_random();
    double v;
    if (number < input_specials(info)) {
        long long n = number / 6;
        v = n < N_SPECIALS ? specials[n] : n == N_SPECIALS ? info->lo : info->hi;
        v = next_to(t, input_rounded(t, v), (int)(number % 6 / 2) - 1);
        return number & 1 ? -v : v;
    }
    double scale = t == FUSOR_F64 && fabs(info->hi) > 80 && info->hi < 1000 ? 8.4 : 1; /* f32's range of exponents */
    switch (number % 6) {
    case 0: return input_of_bits(t, r);
    case 1:
    case 2:
        v = info->lo + (info->hi - info->lo) * fraction(r);
        v *= scale;
        break;
    case 3: v = around_one(r) * (r >> 62 & 1 ? -1 : 1); break;
    case 4: /* k pi/2 */
        v = nearbyint(ldexp(1 + fraction(r), (int)(r % 70))) * 1.57079632679489661923;
        return next_to(t, input_rounded(t, v), (int)(r >> 8 & 3) - 1);
    default: v = ldexp((double)(r >> 58) + 1, (int)(r % 20) - 12) * (r >> 20 & 1 ? -1 : 1); break;
    }
    return input_rounded(t, v);
}
