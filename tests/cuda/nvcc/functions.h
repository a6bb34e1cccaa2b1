/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* functions.h: functions of three words, compiled by nvcc to PTX for the interpreter and by the host's compiler: the
 * same bits have to come out. kernels.cu and ../nvcc_run.c include it. Where C leaves a conversion undefined, the host
 * has what PTX says. */
#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __CUDACC__
#define HERE static __device__ __forceinline__
#else
#define HERE static inline
#endif

HERE float as_f(uint32_t w) {
    float f;
    memcpy(&f, &w, 4);
    return f;
}
HERE uint32_t bits_f(float f) { /* a NaN is one NaN */
    uint32_t w;
    memcpy(&w, &f, 4);
    return f != f ? 0x7fffffffu : w;
}
HERE double as_d(uint32_t low, uint32_t high) {
    uint64_t w = (uint64_t)high << 32 | low;
    double d;
    memcpy(&d, &w, 8);
    return d;
}
HERE uint32_t fold_d(double d) {
    uint64_t w;
    memcpy(&w, &d, 8);
    return d != d ? 0x7ff80000u : (uint32_t)(w ^ w >> 32);
}
HERE uint32_t fold(uint64_t w) { return (uint32_t)(w ^ w >> 32); }
/* small numbers, of random words */
HERE float near_f(uint32_t w) { return (float)(int32_t)w * 1e-6f; }

#ifdef __CUDA_ARCH__
#define CLZ(x)         __clz((int)(x))
#define POPC(x)        __popc(x)
#define BREV(x)        __brev(x)
#define MULHI(x, y)    __umulhi(x, y)
#define TO_INT(x)      __float2int_rz(x)
#define TO_INT_NEAR(x) __float2int_rn(x)
#define TO_UINT(x)     __float2uint_rz(x)
#define FMA(x, y, z)   __fmaf_rn(x, y, z)
#define LEAST(x, y)    fminf(x, y)
#define MOST(x, y)     fmaxf(x, y)
#else
#define CLZ(x)         ((x) ? __builtin_clz(x) : 32)
#define POPC(x)        __builtin_popcount(x)
static inline uint32_t reversed(uint32_t x) {
    uint32_t r = 0;
    for (int k = 0; k < 32; k++) r |= (x >> k & 1) << (31 - k);
    return r;
}
#define BREV(x)        reversed(x)
#define MULHI(x, y)    (uint32_t)((uint64_t)(x) * (y) >> 32)
static inline int32_t to_int(float x) {
    return x != x ? 0 : x >= 2147483648.0f ? INT32_MAX : x < -2147483648.0f ? INT32_MIN : (int32_t)x;
}
#define TO_INT(x)      to_int(x)
#define TO_INT_NEAR(x) to_int(nearbyintf(x))
static inline uint32_t to_uint(float x) { return x != x || x <= 0 ? 0 : x >= 4294967296.0f ? UINT32_MAX : (uint32_t)x; }
#define TO_UINT(x)     to_uint(x)
#define FMA(x, y, z)   fmaf(x, y, z)
/* a NaN of any kind gives the other; -0 is below 0 */
static inline float least_f(float x, float y) {
    return x != x ? y : y != y ? x : x == y ? (signbit(x) ? x : y) : x < y ? x : y;
}
static inline float most_f(float x, float y) {
    return x != x ? y : y != y ? x : x == y ? (signbit(x) ? y : x) : x > y ? x : y;
}
#define LEAST(x, y)    least_f(x, y)
#define MOST(x, y)     most_f(x, y)
#endif

HERE uint32_t collatz(uint32_t a) {
    uint32_t n = a % 1000 + 1, steps = 0;
    while (n != 1) {
        n = n & 1 ? 3 * n + 1 : n / 2;
        steps++;
    }
    return steps;
}
HERE uint32_t digits(uint32_t a, uint32_t b) {
    uint32_t sum = 0, base = b % 15 + 2;
    for (; a; a /= base) {
        if (a % base == 3) continue;
        sum = 31 * sum + a % base;
        if (sum > 4000000000u) break;
    }
    return sum;
}

/* F(name, value of a, b, c) */
#define FUNCTIONS(F)                                                                                                   \
    F(add, a + b - c)                                                                                                  \
    F(product, a *b + (uint32_t)((int64_t)(int32_t)b * (int32_t)c))                                                    \
    F(high, MULHI(a, b) ^ (uint32_t)((int64_t)(int32_t)a * (int32_t)c >> 32))                                          \
    F(divide, a / (b | 1) + a % (c | 1))                                                                               \
    F(divide_signed, (uint32_t)((int32_t)a / (int32_t)(b >> 8 | 1)) + (uint32_t)((int32_t)a % (int32_t)(c >> 3 | 1)))  \
    F(shifts, a << (b & 31) | a >> (c & 31) | (uint32_t)((int32_t)a >> (c & 31)))                                      \
    F(wide, fold(((uint64_t)a << 32 | b) * (c | 1) + ((uint64_t)b << 7)))                                              \
    F(wide_divide, fold(((uint64_t)a << 32 | b) / (c | 1)) ^ fold(((uint64_t)b << 32 | a) % (c | 1)))                  \
    F(wide_shift,                                                                                                      \
      fold(((uint64_t)a << 32 | b) << (c & 63)) ^ fold((uint64_t)((int64_t)((uint64_t)b << 32 | a) >> (c & 63))))      \
    F(bits, (uint32_t)CLZ(a) + 64 * (uint32_t)POPC(b) + BREV(c))                                                       \
    F(logic, (a & b) ^ (~a & c) ^ (a | c))                                                                             \
    F(least, (a < b ? a : b) + (uint32_t)((int32_t)a > (int32_t)c ? (int32_t)a : (int32_t)c))                          \
    F(narrow, (uint32_t)(int32_t)(int8_t)a + (uint16_t)b + (uint32_t)(int32_t)(int16_t)(c >> 4))                       \
    F(f_add, bits_f(as_f(a) + as_f(b) - as_f(c)))                                                                      \
    F(f_product, bits_f(as_f(a) * as_f(b) + near_f(c)))                                                                \
    F(f_fma, bits_f(FMA(near_f(a), near_f(b), near_f(c))))                                                             \
    F(f_fma_any, bits_f(FMA(as_f(a), as_f(b), as_f(c))))                                                               \
    F(f_divide, bits_f(as_f(a) / as_f(b)))                                                                             \
    F(f_root, bits_f(sqrtf(fabsf(as_f(a))) + sqrtf(near_f(b))))                                                        \
    F(f_round, bits_f(floorf(near_f(a)) + ceilf(near_f(b)) * 8 + truncf(near_f(c)) * 64 + rintf(near_f(a) * 0.5f)))    \
    F(f_compare, (as_f(a) < as_f(b)) + 2u * (as_f(a) >= as_f(c)) + 4u * (as_f(b) == as_f(b)) +                         \
                     8u * !(as_f(a) > as_f(c)) + 16u * (as_f(a) != as_f(c)))                                           \
    F(f_least, bits_f(LEAST(as_f(a), as_f(b))) ^ bits_f(MOST(as_f(b), as_f(c) + 1)))                                   \
    F(from_int, bits_f((float)(int32_t)a) ^ bits_f((float)b) ^ bits_f((float)(int64_t)((uint64_t)c << 32 | a)))        \
    F(to_int, (uint32_t)TO_INT(as_f(a)) ^ (uint32_t)TO_INT_NEAR(near_f(b)) ^ TO_UINT(as_f(c)))                         \
    F(d_sum, fold_d(as_d(a, b) * as_d(b, c) + (double)as_f(c)))                                                        \
    F(d_divide, fold_d((double)(int32_t)a / ((double)b + 0.5)) ^ fold_d(sqrt((double)c)))                              \
    F(d_to_f, bits_f((float)as_d(a, b)))                                                                               \
    F(loop, collatz(a) + collatz(b))                                                                                   \
    F(branches, digits(a, b) ^ (c & 1 ? digits(c, a) : a & 2 ? digits(b, c) : 5))
