/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math_fast.c: the fast tier of f32 functions (src/ir/fast.def has the rows and their bounds).
 *
 * Against the precise versions: polynomials good to 2^-18 .. 2^-23 instead of 2^-28; one step in the reduction of exp,
 * no second word, and results below 2^-125.5 made 0 where the level has no vscalef; f32 where the precise version goes
 * through f64. Special values are the same ones. A function that gains nothing at a level returns NULL there, and
 * em_lower takes the precise one. Quotients stay divisions: a reciprocal by rcpps or vrcp14ps with its Newton step was
 * slower (sigmoid, silu, mish, gelu, tanh, erf and reciprocal itself by 1 to 27 %, 1e4 elements in the first two
 * caches, EPYC family 26, November 2026), and would depend on the make of the processor. The result does not depend on
 * the width. */
#include "jit/math_impl.h"
#include <string.h>

#define LN2     0.693147180559945309417
#define LOG2E   1.44269504088896340736
#define LN2_TOP 0x1.62e4p-1 /* 15 bits: k * this is exact */
#define LN2_LOW 0x1.7f7d1cf79abcap-20
#define LOG10_2 0.301029995663981195214
#define MAGIC   0x1.8p23
#define MAGIC_D 0x1.8p52

/* fast_exp: error 2^-18.6 */
static const float fast_exp_p[5] = {0x1.ffffe8p-1f, 0x1.fffb34p-1f, 0x1.00059ep-1f, 0x1.57e0c2p-3f, 0x1.53aa5p-5f};
/* fast_exp2: error 2^-18.6 */
static const float fast_exp2_p[5] = {0x1.ffffe8p-1f, 0x1.62e0dep-1f, 0x1.ec06b4p-3f, 0x1.ca13e4p-5f, 0x1.399e74p-7f};
/* fast_expm1: error 2^-21.1 */
static const float fast_expm1_p[4] = {0x1.fffe6ep-2f, 0x1.555628p-3f, 0x1.570582p-5f, 0x1.113ea2p-7f};
/* fast_log: error 2^-19.7 */
static const float fast_log_p[7] = {
    0x1.00000ep+0f, -0x1.fffc6cp-2f, 0x1.55248ap-2f, -0x1.00a424p-2f, 0x1.a75fcp-3f, -0x1.58109ep-3f, 0x1.536004p-4f,
};
/* fast_log2: error 2^-19.2 */
static const float fast_log2_p[7] = {
    0x1.71548cp+0f, -0x1.7151ep-1f, 0x1.ec290cp-2f, -0x1.724076p-2f, 0x1.31728ap-2f, -0x1.f08d02p-3f, 0x1.e9b13p-4f,
};
/* fast_log10: error 2^-20.9 */
static const float fast_log10_p[7] = {
    0x1.bcb7ccp-2f, -0x1.bcb49cp-3f, 0x1.284f2ap-3f, -0x1.bdd1d2p-4f, 0x1.6fce26p-4f, -0x1.2b05dp-4f, 0x1.26f52cp-5f,
};
/* fast_softplus: error 2^-19.6 */
static const float fast_softplus_p[7] = {
    0x1.ffffd6p-1f, -0x1.ffddf2p-2f, 0x1.530b4cp-2f, -0x1.e1618ap-3f, 0x1.31a53ap-3f, -0x1.10090ep-4f, 0x1.cf800cp-7f,
};
/* fast_sin: error 2^-19.8 */
static const float fast_sin_p[3] = {-0x1.555112p-3f, 0x1.107136p-7f, -0x1.84dbf8p-13f};
/* fast_gelu: error 2^-22.2 */
static const float fast_gelu_p[9] = {
    0x1.5845d8p-2f, 0x1.535bc6p-2f,  0x1.d7f356p-5f,  -0x1.2cd81cp-3f, -0x1.1eba92p-8f,
    0x1.bb3dap-4f,  -0x1.bd6916p-5f, -0x1.df9be2p-5f, 0x1.08088ap-4f,
};
/* fast_erfc: error 2^-21.1 */
static const float fast_erfc_p[8] = {
    0x1.cdc24ep-3f,  0x1.d61c6ap-3f, 0x1.6bf62ep-3f,  0x1.2f0022p-2f,
    -0x1.6fb76ap-3f, 0x1.f56f38p-2f, -0x1.2849d2p-2f, 0x1.9e5cep-5f,
};
/* fast_cbrt: error 2^-23.3 */
static const float fast_cbrt_p[5] = {0x1p+0f, -0x1.555428p-2f, 0x1.c71954p-3f, -0x1.656ba4p-3f, 0x1.2a7d0cp-3f};
/* fast_tanh: error 2^-20.8 */
static const float fast_tanh_p[5] = {0x1.ffffeep-1f, 0x1.028486p-3f, 0x1.55ab76p-9f, 0x1.b532cep-18f, -0x1.5ad7f4p-28f};
static const float fast_tanh_q[4] = {0x1p+0f, 0x1.d69686p-2f, 0x1.700ffcp-6f, 0x1.84d62cp-13f};
/* fast_erf: error 2^-18.4 */
static const float fast_erf_p[5] = {0x1.20dda4p+0f, 0x1.f1eae8p-4f, 0x1.4619bep-5f, -0x1.12636cp-11f, -0x1.b97f2ep-16f};
static const float fast_erf_q[5] = {0x1p+0f, 0x1.c3b56ep-2f, 0x1.504ddcp-4f, 0x1.c5496cp-8f, -0x1.3d2ee8p-12f};
/* fast_log_d: error 2^-27.6 */
static const double fast_log_d[9] = {
    -0x1.00000047463aap-1, 0x1.5555a6a61fe67p-2,  -0x1.000023cbeefd7p-2, 0x1.996853e1cf5d9p-3,  -0x1.54f275921d537p-3,
    0x1.2898814ef3f8p-3,   -0x1.0d8e8ec57a767p-3, 0x1.abe6a9277ab1ep-4,  -0x1.6fc79cd8ec291p-5,
};

/* ---- exp ---- */
/* p * 2^k; t is k + MAGIC where the level has vscalef, and k + 126 + MAGIC else: there 2^(k - 1) comes from the low
 * bits, 0 for k = -126, and p is twice what it is. */
static LLVMValueRef offset_of(emit *e) { return em_f32(e, mi_has_exponents(e) ? MAGIC : MAGIC + 126); }

static LLVMValueRef scaled(emit *e, LLVMValueRef r, const float *c, int n, LLVMValueRef t, LLVMValueRef k,
                           LLVMValueRef some) {
    float twice[8];
    if (mi_has_exponents(e)) return mi_scalef(e, mi_poly(e, r, c, n), k, some);
    for (int i = 0; i < n; i++) twice[i] = 2 * c[i];
    return em_fmul(e, mi_poly(e, r, twice, n), em_f32_of_bits(e, em_shl(e, em_bits_of_f32(e, t), 23)));
}

static LLVMValueRef reduced(emit *e, LLVMValueRef x, LLVMValueRef k) {
    if (e->level->has_fma) return em_mad(e, k, em_f32(e, -LN2), x);
    return em_mad(e, k, em_f32(e, -LN2_LOW), em_mad(e, k, em_f32(e, -LN2_TOP), x));
}

/* exp(x + low) for x <= 89 or NaN; low: tiny or NULL. -87.6: its k is not below -126; vscalef has no such end. */
static LLVMValueRef exp_below(emit *e, LLVMValueRef x, LLVMValueRef low) {
    LLVMValueRef some, held = mi_exp_held(e, x, -104, -87.6, &some);
    LLVMValueRef all = low && !e->level->has_fma ? em_fadd(e, held, low) : held; /* there it is not that tiny */
    LLVMValueRef t = em_mad(e, all, em_f32(e, LOG2E), offset_of(e)), k = em_fsub(e, t, offset_of(e));
    LLVMValueRef r = reduced(e, held, k);
    return scaled(e, low ? em_fadd(e, r, low) : r, fast_exp_p, 5, t, k, some);
}

static LLVMValueRef exp_minus_abs(emit *e, LLVMValueRef x) { return exp_below(e, em_fneg(e, em_fabs(e, x)), NULL); }

static LLVMValueRef exp_of(emit *e, LLVMValueRef x) { return exp_below(e, mi_min(e, em_f32(e, 89), x), NULL); }

static LLVMValueRef exp2_of(emit *e, LLVMValueRef x) {
    LLVMValueRef some;
    x = mi_exp_held(e, mi_min(e, em_f32(e, 128.4), x), -151, -126.4, &some);
    LLVMValueRef t = em_fadd(e, x, offset_of(e)), k = em_fsub(e, t, offset_of(e));
    return scaled(e, em_fsub(e, x, k), fast_exp2_p, 5, t, k, some);
}

/* As in math_exp.c, for -20 <= x <= 89. */
static LLVMValueRef expm1_core(emit *e, LLVMValueRef x) {
    LLVMValueRef t = em_mad(e, x, em_f32(e, LOG2E), em_f32(e, MAGIC)), k = em_fsub(e, t, em_f32(e, MAGIC));
    LLVMValueRef r = reduced(e, x, k);
    LLVMValueRef p = em_mad(e, em_fmul(e, r, r), mi_poly(e, r, fast_expm1_p, 4), r);
    LLVMValueRef bits = em_sub(e, em_bits_of_f32(e, t), em_i32(e, 0x4b400000 - 126));
    LLVMValueRef s = em_f32_of_bits(e, em_shl(e, bits, 23)); /* 2^(k - 1) */
    LLVMValueRef y = em_mad(e, s, p, em_fsub(e, s, em_f32(e, 0.5)));
    return em_select(e, em_fcmp(e, LLVMRealUEQ, k, em_f32(e, 0)), p, em_fadd(e, y, y));
}

static LLVMValueRef expm1_neg(emit *e, LLVMValueRef x) { return expm1_core(e, mi_max(e, em_f32(e, -20), x)); }

static LLVMValueRef expm1_of(emit *e, LLVMValueRef x) {
    return em_copysign(e, expm1_core(e, mi_max(e, em_f32(e, -20), mi_min(e, em_f32(e, 89), x))), x);
}

/* ---- log ---- */
static LLVMValueRef log_of(emit *e, LLVMValueRef x) {
    mi_log_parts v = mi_log_reduce(e, x, false);
    LLVMValueRef y = em_fmul(e, v.f, mi_poly(e, v.f, fast_log_p, 7));
    return mi_log_specials(e, x, em_mad(e, v.n, em_f32(e, LN2), y));
}

static LLVMValueRef log2_of(emit *e, LLVMValueRef x) {
    mi_log_parts v = mi_log_reduce(e, x, false);
    return mi_log_specials(e, x, em_mad(e, v.f, mi_poly(e, v.f, fast_log2_p, 7), v.n));
}

static LLVMValueRef log10_of(emit *e, LLVMValueRef x) {
    mi_log_parts v = mi_log_reduce(e, x, false);
    LLVMValueRef y = em_fmul(e, v.f, mi_poly(e, v.f, fast_log10_p, 7));
    return mi_log_specials(e, x, em_mad(e, v.n, em_f32(e, LOG10_2), y));
}

/* In f32: n is that of u = 1 + x rounded, f = x 2^-n + (2^-n - 1), where the product is an addition to the exponent of
 * x (n is 0 where x is small), exact, and 2^-n is 0 when it would be subnormal. */
static LLVMValueRef log1p_of(emit *e, LLVMValueRef x) {
    LLVMValueRef one = em_f32(e, 1), u = em_fadd(e, x, one), none = em_i32(e, 0);
    LLVMValueRef n = em_ashr(e, em_sub(e, em_bits_of_f32(e, u), em_i32(e, 0x3f400000)), 23), high = em_shl(e, n, 23);
    LLVMValueRef power = em_sub(e, em_i32(e, 0x3f800000), high);
    power = em_max(e, power, none);
    LLVMValueRef product = em_f32_of_bits(e, em_sub(e, em_bits_of_f32(e, x), high));
    LLVMValueRef f = em_fadd(e, em_fsub(e, em_f32_of_bits(e, power), one), product);
    LLVMValueRef y = em_fmul(e, f, mi_poly(e, f, fast_log_p, 7));
    y = em_mad(e, LLVMBuildSIToFP(e->b, n, em_vec(e, e->t_f32), ""), em_f32(e, LN2), y);
    return mi_log_limits(e, u, em_copysign(e, y, x));
}

/* ---- sin and cos ---- */
/* x = k pi + r with k an integer (sin) or half of an odd one (cos), |r| <= pi/2: then only the sine's polynomial is
 * needed, and a sign. Three parts of pi with fma: below 2^14 the first step is exact. Beyond, and for what is no
 * number, the precise version, behind a branch that is taken when any lane needs it. */
static LLVMValueRef sine(emit *e, LLVMValueRef x, bool is_cos) {
    if (!e->level->has_fma) return NULL;
    LLVMValueRef magic = em_f32(e, MAGIC), q = em_fmul(e, x, em_f32(e, 0.318309886183790671538));
    if (is_cos) q = em_fsub(e, q, em_f32(e, 0.5));
    LLVMValueRef t = em_fadd(e, q, magic), k = em_fsub(e, t, magic);
    if (is_cos) k = em_fadd(e, k, em_f32(e, 0.5));
    LLVMValueRef r = em_mad(e, k, em_f32(e, -0x1.921fb4p+1), x);
    r = em_mad(e, k, em_f32(e, -0x1.4442dp-23), r);
    r = em_mad(e, k, em_f32(e, -0x1.846988p-47), r);
    LLVMValueRef z = em_fmul(e, r, r); /* r times a factor, not r plus something: -0 stays */
    LLVMValueRef y = em_fmul(e, r, em_mad(e, z, mi_poly(e, z, fast_sin_p, 3), em_f32(e, 1)));
    LLVMValueRef sign = em_shl(e, em_bits_of_f32(e, t), 31);
    if (is_cos) sign = em_xor(e, sign, em_i32(e, INT32_MIN));
    y = mi_flip_sign(e, y, sign);

    LLVMValueRef is_large = mi_not(e, em_fcmp(e, LLVMRealOLT, em_fabs(e, x), em_f32(e, 0x1p14))), any = is_large;
    if (e->lanes > 1) any = em_intrinsic(e, "llvm.vector.reduce.or", 1, &is_large);
    em_branch b = em_if(e, any);
    LLVMValueRef slow = em_select(e, is_large, is_cos ? math_cos(e, x) : math_sin(e, x), y);
    LLVMBasicBlockRef from[2] = {LLVMGetInsertBlock(e->b), b.other};
    em_endif(e, &b);
    LLVMValueRef v = LLVMBuildPhi(e->b, em_vec(e, e->t_f32), "");
    LLVMAddIncoming(v, (LLVMValueRef[]){slow, y}, from, 2);
    return v;
}

/* ---- x P(x^2) / Q(x^2) on [-most, most], held to [-1, 1] ---- */
static LLVMValueRef ratio(emit *e, LLVMValueRef x, double most, const float *p, int n, const float *q, int m) {
    LLVMValueRef one = em_f32(e, 1), minus_one = em_f32(e, -1);
    x = mi_max(e, em_f32(e, -most), mi_min(e, em_f32(e, most), x));
    LLVMValueRef z = em_fmul(e, x, x);
    LLVMValueRef y = em_fdiv(e, em_fmul(e, x, mi_poly(e, z, p, n)), mi_poly(e, z, q, m));
    return mi_max(e, minus_one, mi_min(e, one, y));
}

/* ---- the error function's complement ---- */
/* As in math_erf.c, in f32: the square is made exact in two parts, since what it loses counts up to 100 times. */
static LLVMValueRef erfc_of(emit *e, LLVMValueRef x) {
    LLVMValueRef a = mi_min(e, em_f32(e, 10.2), em_fabs(e, x)), minus = em_fneg(e, a), high, low;
    if (e->level->has_fma) {
        high = em_fmul(e, a, minus);
        low = em_mad(e, a, minus, em_fneg(e, high));
    } else {
        LLVMValueRef top = em_f32_of_bits(e, em_and(e, em_bits_of_f32(e, a), em_i32(e, (int32_t)0xfffff000u)));
        high = em_fneg(e, em_fmul(e, top, top));
        low = em_fmul(e, em_fsub(e, top, a), em_fadd(e, a, top));
    }
    LLVMValueRef t = em_fdiv(e, em_f32(e, 1), em_mad(e, a, em_f32(e, 0.4), em_f32(e, 1)));
    LLVMValueRef y = em_fmul(e, em_fmul(e, t, mi_poly(e, t, fast_erfc_p, 8)), exp_below(e, high, low));
    return em_select(e, em_fcmp(e, LLVMRealOLT, x, em_f32(e, 0)), em_fsub(e, em_f32(e, 2), y), y);
}

/* ---- activations: the forms of math_act.c and math_erf.c ---- */
static LLVMValueRef is_negative(emit *e, LLVMValueRef x) { return em_fcmp(e, LLVMRealOLT, x, em_f32(e, 0)); }

/* top / (1 + w), or top w / (1 + w) for x < 0; w = exp(-|v|), top NULL: 1 */
static LLVMValueRef logistic(emit *e, LLVMValueRef top, LLVMValueRef x, LLVMValueRef w) {
    LLVMValueRef one = em_f32(e, 1), b = em_select(e, is_negative(e, x), w, one);
    return em_fdiv(e, top ? em_fmul(e, top, b) : b, em_fadd(e, one, w));
}

static LLVMValueRef sigmoid_of(emit *e, LLVMValueRef x) { return logistic(e, NULL, x, exp_minus_abs(e, x)); }
static LLVMValueRef silu_of(emit *e, LLVMValueRef x) { return logistic(e, x, x, exp_minus_abs(e, x)); }

static LLVMValueRef softplus_of(emit *e, LLVMValueRef x) {
    LLVMValueRef w = exp_minus_abs(e, x), zero = em_f32(e, 0);
    LLVMValueRef above = em_select(e, em_fcmp(e, LLVMRealUGT, x, zero), x, zero);
    return em_mad(e, w, mi_poly(e, w, fast_softplus_p, 7), above);
}

static LLVMValueRef mish_of(emit *e, LLVMValueRef x) {
    LLVMValueRef two = em_f32(e, 2), w = exp_below(e, mi_min(e, em_f32(e, 20), x), NULL);
    LLVMValueRef n = em_fmul(e, w, em_fadd(e, w, two));
    LLVMValueRef y = em_fdiv(e, em_fmul(e, x, n), em_fadd(e, n, two));
    return em_select(e, em_fcmp(e, LLVMRealOGT, x, em_f32(e, 20)), x, y);
}

static LLVMValueRef gelu_of(emit *e, LLVMValueRef x) {
    if (mi_has_gelu_pieces(e)) return NULL; /* at v4 0.10 ns an element, either form; these 0.25 and 0.14 (EPYC 9005) */
    LLVMValueRef one = em_f32(e, 1);
    if (e->variant) {
        const double c = 2 * 0.79788456080286535588; /* 2 sqrt(2 / pi) */
        LLVMValueRef q = em_mad(e, em_fmul(e, x, x), em_f32(e, -c * 0.044715), em_f32(e, -c));
        return logistic(e, x, x, exp_below(e, em_fmul(e, em_fabs(e, x), q), NULL));
    }
    LLVMValueRef half = em_f32(e, 0.5), a = mi_min(e, em_f32(e, 14.6), em_fabs(e, x));
    LLVMValueRef t = em_fdiv(e, one, em_mad(e, a, half, one));
    LLVMValueRef r = em_fmul(e, t, mi_poly(e, em_fsub(e, t, half), fast_gelu_p, 9));
    LLVMValueRef tail = em_fmul(e, r, exp_below(e, em_fmul(e, a, em_fmul(e, a, em_f32(e, -0.5))), NULL));
    return em_fmul(e, x, em_select(e, is_negative(e, x), tail, em_fsub(e, one, tail)));
}

/* ---- powers and roots ---- */
/* 2^(y log2 |x|): the logarithm in f64, good to 2^-27, since y log2 |x| counts up to 128; the power in f32. */
static LLVMValueRef pow_of(emit *e, LLVMValueRef x, LLVMValueRef y) {
    const bool has = mi_has_exponents(e);
    LLVMValueRef w = mi_pow_exponent(e, x, y, fast_log_d, 9), magic = em_f64(e, has ? MAGIC_D : MAGIC_D + 126);
    w = mi_max(e, em_f64(e, has ? -151 : -126.4), mi_min(e, em_f64(e, 128.4), w));
    LLVMValueRef t = em_fadd(e, w, magic), k = em_fsub(e, t, magic), r = mi_to_f32(e, em_fsub(e, w, k)), v;
    if (has) v = mi_scalef(e, mi_poly(e, r, fast_exp2_p, 5), mi_to_f32(e, k), NULL);
    else {
        LLVMValueRef bits = LLVMBuildTrunc(e->b, mi_bits_d(e, t), em_vec(e, e->t_i32), "");
        v = scaled(e, r, fast_exp2_p, 5, em_f32_of_bits(e, bits), NULL, NULL);
    }
    return mi_pow_specials(e, x, y, v);
}

/* c y^2, y = c^(-1/3): minus a third of the bits as a number is within 3.5 %, so d = c y^3 - 1 within 0.105, and y
 * times a polynomial for (1 + d)^(-1/3). Subnormal arguments times 2^24 before, the result times 2^-8 after. */
static LLVMValueRef cbrt_of(emit *e, LLVMValueRef x) {
    LLVMValueRef a = em_fabs(e, x), is_small = em_fcmp(e, LLVMRealOLT, a, em_f32(e, 0x1p-100));
    LLVMValueRef c = em_select(e, is_small, em_fmul(e, a, em_f32(e, 0x1p24)), a);
    LLVMValueRef third = LLVMBuildSIToFP(e->b, em_bits_of_f32(e, c), em_vec(e, e->t_f32), "");
    third = LLVMBuildFPToSI(e->b, em_fmul(e, third, em_f32(e, 1 / 3.0)), em_vec(e, e->t_i32), "");
    LLVMValueRef y = em_f32_of_bits(e, em_sub(e, em_i32(e, 0x54a20000), third));
    LLVMValueRef d = em_mad(e, em_fmul(e, c, y), em_fmul(e, y, y), em_f32(e, -1));
    y = em_fmul(e, y, mi_poly(e, d, fast_cbrt_p, 5));
    LLVMValueRef v = em_fmul(e, em_fmul(e, c, y), y);
    v = em_copysign(e, em_select(e, is_small, em_fmul(e, v, em_f32(e, 0x1p-8)), v), x);
    return em_select(e, em_fcmp(e, LLVMRealOLT, a, em_f32(e, __builtin_inf())), v, x);
}

/* AVX-512's approximation to 2^-14 and a Newton step: at full width, or on the first of four lanes. Of 0, infinity and
 * NaN the first value is the result already, and 1 - x r^2 no number. */
static LLVMValueRef rsqrt_of(emit *e, LLVMValueRef x) {
    const bool is_scalar = e->lanes == 1;
    if (!mi_has_exponents(e)) return NULL;
    LLVMTypeRef type = LLVMVectorType(e->t_f32, is_scalar ? 4 : 16);
    LLVMValueRef none = LLVMConstNull(type), first = LLVMConstInt(e->t_i32, 0, 0), v = x, args[4];
    const char *name = is_scalar ? "llvm.x86.avx512.rsqrt14.ss" : "llvm.x86.avx512.rsqrt14.ps.512";
    int n = 0;
    if (is_scalar)
        args[n++] = v = LLVMBuildInsertElement(e->b, none, x, first, ""); /* twice: the first is for upper lanes */
    args[n++] = v;
    args[n++] = none;
    args[n++] = LLVMConstAllOnes(is_scalar ? e->t_i8 : e->t_i16);
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, LLVMLookupIntrinsicID(name, strlen(name)), NULL, 0);
    LLVMValueRef r = LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, (unsigned)n, "");
    if (is_scalar) r = LLVMBuildExtractElement(e->b, r, first, "");
    LLVMValueRef rest = em_mad(e, em_fneg(e, em_fmul(e, x, r)), r, em_f32(e, 1));
    LLVMValueRef y = em_mad(e, em_fmul(e, r, em_f32(e, 0.5)), rest, r);
    return em_select(e, em_fcmp(e, LLVMRealORD, rest, rest), y, r);
}

/* ---- dispatch ---- */
#define FAST1(name)                                                                                                    \
    static LLVMValueRef fast_##name(emit *e, LLVMValueRef *x) { return name##_of(e, x[0]); }
FAST1(rsqrt)
FAST1(cbrt)
FAST1(exp)
FAST1(exp2)
FAST1(expm1)
FAST1(log)
FAST1(log2)
FAST1(log10)
FAST1(log1p)
FAST1(erfc)
FAST1(sigmoid)
FAST1(silu)
FAST1(softplus)
FAST1(mish)
FAST1(gelu)
static LLVMValueRef fast_sin(emit *e, LLVMValueRef *x) { return sine(e, x[0], false); }
static LLVMValueRef fast_cos(emit *e, LLVMValueRef *x) { return sine(e, x[0], true); }
static LLVMValueRef fast_tanh(emit *e, LLVMValueRef *x) { return ratio(e, x[0], 9, fast_tanh_p, 5, fast_tanh_q, 4); }
static LLVMValueRef fast_erf(emit *e, LLVMValueRef *x) { return ratio(e, x[0], 3.9, fast_erf_p, 5, fast_erf_q, 5); }
static LLVMValueRef fast_pow(emit *e, LLVMValueRef *x) { return pow_of(e, x[0], x[1]); }
static LLVMValueRef fast_elu(emit *e, LLVMValueRef *x) {
    return em_select(e, is_negative(e, x[0]), em_fmul(e, x[1], expm1_neg(e, x[0])), x[0]);
}
static LLVMValueRef fast_celu(emit *e, LLVMValueRef *x) {
    LLVMValueRef below = em_fmul(e, x[1], expm1_of(e, em_fdiv(e, x[0], x[1])));
    return em_select(e, is_negative(e, x[0]), below, x[0]);
}
static LLVMValueRef fast_selu(emit *e, LLVMValueRef *x) {
    const double scale = 1.0507009873554804934193349852946, alpha = 1.6732632423543772848170429916717;
    LLVMValueRef below = em_fmul(e, em_f32(e, scale * alpha), expm1_neg(e, x[0]));
    return em_select(e, is_negative(e, x[0]), below, em_fmul(e, em_f32(e, scale), x[0]));
}

LLVMValueRef math_fast(emit *e, ir_op op, LLVMValueRef *x) {
    static LLVMValueRef (*const functions[IR_OP_COUNT])(emit * e, LLVMValueRef * x) = {
#define FAST(ID, name, ...) [IR_OP_##ID] = fast_##name,
#include "ir/fast.def"
#undef FAST
    };
    return functions[op] ? functions[op](e, x) : NULL;
}
