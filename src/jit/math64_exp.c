/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math64_exp.c: the exponential family in f64, and the small helpers of all math64 files.
 *
 * As in math_exp.c: k = round(x / ln 2) by adding and subtracting 1.5 * 2^52; r = x - k ln 2 by Cody and Waite with a
 * first part of 41 bits, so that k * part is exact with and without fma; a polynomial of degree 11 on |r| <= ln(2) / 2;
 * 2^k put in at the end in a way that rounds subnormal results once. */
#include "jit/math64_impl.h"

#define LOG2E    1.44269504088896340736
#define LN2_HIGH 0x1.62e42fefa3p-1
#define LN2_LOW  0x1.3de6af278ece6p-42
#define MAGIC    0x1.8p52
enum { BIAS = 1023, FRACTION = 52 };
static const int64_t magic_bits = 0x4338000000000000;

/* exp_64: error 2^-57.9 */
static const double exp_64[10] = {
    0x1.000000000000ap-1,  0x1.5555555555508p-3,  0x1.55555555506ep-5,   0x1.11111111248c9p-7,  0x1.6c16c1846ceb1p-10,
    0x1.a01a013a558e1p-13, 0x1.a019997beb44bp-16, 0x1.71df03ae04617p-19, 0x1.28ade22a22199p-22, 0x1.adb2370f57c73p-26,
};
/* exp2_64: error 2^-57.8 */
static const double exp2_64[11] = {
    0x1.62e42fefa39efp-1,  0x1.ebfbdff82c59cp-3,  0x1.c6b08d704a0d3p-5,  0x1.3b2ab6fba11fp-7,
    0x1.5d87fe78b3f2ep-10, 0x1.4309130c02965p-13, 0x1.ffcbfbf7aedafp-17, 0x1.62bfcdda95c8dp-20,
    0x1.b5260fde3ce0cp-24, 0x1.e611a6ef0b451p-28, 0x1.e80b9e398f195p-32,
};
/* expm1_64: error 2^-61.6 */
static const double expm1_64[11] = {
    0x1p-1,
    0x1.5555555555559p-3,
    0x1.5555555555553p-5,
    0x1.111111110f65ep-7,
    0x1.6c16c16c17f0dp-10,
    0x1.a01a01affddcap-13,
    0x1.a01a019bf6e57p-16,
    0x1.71ddf8214fb1dp-19,
    0x1.27e4f5c5d7423p-22,
    0x1.af5f082caea07p-26,
    0x1.1f46da5076d09p-29,
};

/* ---- helpers ---- */
mi_pair mi_sum(emit *e, LLVMValueRef a, LLVMValueRef b) {
    mi_pair v = {.hi = em_fadd(e, a, b)};
    LLVMValueRef part = em_fsub(e, v.hi, a);
    v.lo = em_fadd(e, em_fsub(e, a, em_fsub(e, v.hi, part)), em_fsub(e, b, part));
    return v;
}

mi_pair mi_fast_sum(emit *e, LLVMValueRef a, LLVMValueRef b) {
    mi_pair v = {.hi = em_fadd(e, a, b)};
    v.lo = em_fadd(e, em_fsub(e, a, v.hi), b);
    return v;
}

static LLVMValueRef upper_half(emit *e, LLVMValueRef x) { /* 26 bits of the significand */
    return mi_of_bits_d(e, em_and(e, mi_bits_d(e, x), mi_i64(e, ~INT64_C(0x7ffffff))));
}

/* Without fma by Dekker's product of halves; the last one has 54 bits and is rounded. */
mi_pair mi_product(emit *e, LLVMValueRef a, LLVMValueRef b) {
    mi_pair v = {.hi = em_fmul(e, a, b)};
    if (e->level->has_fma) {
        v.lo = em_mad(e, a, b, em_fneg(e, v.hi));
        return v;
    }
    LLVMValueRef ah = upper_half(e, a), bh = upper_half(e, b), al = em_fsub(e, a, ah), bl = em_fsub(e, b, bh);
    LLVMValueRef rest = em_fsub(e, em_fmul(e, ah, bh), v.hi);
    rest = em_fadd(e, em_fadd(e, rest, em_fmul(e, ah, bl)), em_fmul(e, al, bh));
    v.lo = em_fadd(e, rest, em_fmul(e, al, bl));
    return v;
}

mi_pair mi_pair_times(emit *e, mi_pair a, mi_pair b) {
    mi_pair v = mi_product(e, a.hi, b.hi);
    v.lo = em_mad(e, a.hi, b.lo, em_mad(e, a.lo, b.hi, v.lo));
    return v;
}

mi_pair mi_pair_of(emit *e, double hi, double lo) { return (mi_pair){em_f64(e, hi), em_f64(e, lo)}; }

LLVMValueRef mi64_select_sign(emit *e, LLVMValueRef c, LLVMValueRef x) {
    LLVMValueRef sign = em_select(e, c, mi_i64(e, INT64_MIN), mi_i64(e, 0));
    return mi_of_bits_d(e, em_xor(e, mi_bits_d(e, x), sign));
}

LLVMValueRef mi64_nan_where(emit *e, LLVMValueRef c, LLVMValueRef y) {
    return em_select(e, c, em_f64(e, __builtin_nan("")), y);
}

/* ---- cores ---- */
static LLVMValueRef reduce(emit *e, LLVMValueRef x, mi_exp_parts *v) {
    LLVMValueRef t = em_mad(e, x, em_f64(e, LOG2E), em_f64(e, MAGIC));
    v->bits = mi_bits_d(e, t);
    v->k = em_fsub(e, t, em_f64(e, MAGIC));
    LLVMValueRef r = em_mad(e, v->k, em_f64(e, -LN2_HIGH), x);
    return em_mad(e, v->k, em_f64(e, -LN2_LOW), r);
}

mi_exp_parts mi64_exp_reduce(emit *e, LLVMValueRef x, LLVMValueRef low) {
    mi_exp_parts v = {.some = NULL};
    LLVMValueRef r = reduce(e, x, &v), one = em_f64(e, 1);
    if (low) r = em_fadd(e, r, low);
    LLVMValueRef q = em_mad(e, mi_poly_d(e, r, exp_64, 10), r, one);
    v.p = em_mad(e, q, r, one);
    return v;
}

mi_exp_parts mi64_exp_pair(emit *e, LLVMValueRef x, LLVMValueRef low, mi_pair *p) {
    mi_exp_parts v = {.some = NULL};
    LLVMValueRef r = reduce(e, x, &v), q;
    if (low) r = em_fadd(e, r, low);
    q = em_mad(e, em_fmul(e, r, r), mi_poly_d(e, r, exp_64, 10), r);
    *p = mi_fast_sum(e, em_f64(e, 1), q);
    v.p = p->hi;
    return v;
}

mi_exp_parts mi64_exp2_reduce(emit *e, LLVMValueRef x, LLVMValueRef low) {
    mi_exp_parts v = {.some = NULL};
    LLVMValueRef t = em_fadd(e, x, em_f64(e, MAGIC));
    v.bits = mi_bits_d(e, t);
    v.k = em_fsub(e, t, em_f64(e, MAGIC));
    LLVMValueRef r = em_fsub(e, x, v.k);
    if (low) r = em_fadd(e, r, low);
    v.p = em_mad(e, mi_poly_d(e, r, exp2_64, 11), r, em_f64(e, 1));
    return v;
}

/* Two steps where there is no instruction: only the second product can round. */
LLVMValueRef mi64_scale(emit *e, mi_exp_parts v, int bias) {
    if (mi_has_exponents(e)) return mi_scalef(e, v.p, bias ? em_fadd(e, v.k, em_f64(e, bias)) : v.k, v.some);
    LLVMValueRef sum = em_sub(e, v.bits, mi_i64(e, magic_bits - 2 * BIAS - bias));
    LLVMValueRef first = em_lshr(e, sum, 1), second = em_sub(e, sum, first);
    LLVMValueRef y = em_fmul(e, v.p, mi_of_bits_d(e, em_shl(e, first, FRACTION)));
    return em_fmul(e, y, mi_of_bits_d(e, em_shl(e, second, FRACTION)));
}

LLVMValueRef mi64_exp_neg(emit *e, LLVMValueRef x) {
    LLVMValueRef some;
    x = mi_exp_held(e, x, -746, -1000, &some);
    mi_exp_parts v = mi64_exp_reduce(e, x, NULL);
    v.some = some;
    return mi64_scale(e, v, 0);
}

/* ---- functions ---- */
/* Error: 0.87 ULP (1.13 without fma). */
LLVMValueRef math64_exp(emit *e, LLVMValueRef x) { return mi64_exp_neg(e, mi_min(e, em_f64(e, 710), x)); }

/* Error: 0.76 ULP (1.05 without fma). */
LLVMValueRef math64_exp2(emit *e, LLVMValueRef x) {
    LLVMValueRef some;
    x = mi_exp_held(e, mi_min(e, em_f64(e, 1025), x), -1076, -1500, &some);
    mi_exp_parts v = mi64_exp2_reduce(e, x, NULL);
    v.some = some;
    return mi64_scale(e, v, 0);
}

/* 2 (s p + (s - 1/2)), p = expm1(r), s = 2^(k-1); p itself for k = 0: see math_exp.c. */
LLVMValueRef mi64_expm1_held(emit *e, LLVMValueRef x) {
    mi_exp_parts v = {.some = NULL};
    LLVMValueRef r = reduce(e, x, &v);
    LLVMValueRef p = em_mad(e, em_fmul(e, r, r), mi_poly_d(e, r, expm1_64, 11), r);
    LLVMValueRef s = mi_of_bits_d(e, em_shl(e, em_sub(e, v.bits, mi_i64(e, magic_bits - (BIAS - 1))), FRACTION));
    LLVMValueRef y = em_mad(e, s, p, em_fsub(e, s, em_f64(e, 0.5)));
    return em_select(e, em_fcmp(e, LLVMRealUEQ, v.k, em_f64(e, 0)), p, em_fadd(e, y, y));
}

/* The sign is that of x, which the reduction loses at -0. Error: 1.81 ULP (1.92 without fma). */
LLVMValueRef math64_expm1(emit *e, LLVMValueRef x) {
    LLVMValueRef y = mi64_expm1_held(e, mi_max(e, em_f64(e, -40), mi_min(e, em_f64(e, 710), x)));
    return em_copysign(e, y, x);
}
