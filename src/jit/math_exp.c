/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math_exp.c: the exponential family, and the small helpers of all math files.
 *
 * Range reduction: k = round(x / ln 2) by adding and subtracting 1.5 * 2^23, which leaves k in the low bits too; r = x
 * - k ln 2 by Cody and Waite with a first part of 15 bits, so that k * part is exact with and without fma; then a
 * polynomial of degree 6 on |r| <= ln(2) / 2, and 2^k put in at the end in a way that rounds subnormal results once. */
#include "jit/math_impl.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LOG2E    1.44269504088896340736
#define LN2_HIGH 0x1.62e4p-1
#define LN2_LOW  0x1.7f7d1cf79abcap-20
#define MAGIC    0x1.8p23
#define MAGIC_D  0x1.8p52

/* exp_p: error 2^-28.3 */
static const float exp_p[5] = {
    0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558aep-5f, 0x1.12397ep-7f, 0x1.6a4f14p-10f,
};
/* exp2_p: error 2^-28.3 */
static const float exp2_p[6] = {
    0x1.62e43p-1f, 0x1.ebfbdcp-3f, 0x1.c6af7ap-5f, 0x1.3b2dd2p-7f, 0x1.5f0948p-10f, 0x1.417a7p-13f,
};
/* weight_p: error 2^-23.5 */
static const float weight_p[5] = {
    0x1.62e4bap-1f, 0x1.ebdb6ap-3f, 0x1.c91c0ep-5f, 0x1.277c3p-7f, 0x1.e968aep-10f,
};
/* weight_near_p: error 2^-23.4 */
static const float weight_near_p[5] = {
    0x1.62e42ap-1f, 0x1.ebf9cp-3f, 0x1.c6b6cp-5f, 0x1.3ce94p-7f, 0x1.5be7cap-10f,
};
/* expm1_p: error 2^-31.1 */
static const float expm1_p[6] = {
    0x1p-1f, 0x1.555554p-3f, 0x1.5554f8p-5f, 0x1.1112dep-7f, 0x1.6d3a34p-10f, 0x1.9e6558p-13f,
};
/* exp2_d: error 2^-40.2 */
static const double exp2_d[8] = {
    0x1.62e42fef89cfep-1,  0x1.ebfbdff8ec5a3p-3,  0x1.c6b08dcece00ap-5,  0x1.3b2ab5ef185aep-7,
    0x1.5d874d11a6327p-10, 0x1.430aa65ec43c2p-13, 0x1.00d84b3dd4146p-16, 0x1.61c6aa4bef741p-20,
};

/* ---- helpers ---- */
LLVMValueRef mi_poly(emit *e, LLVMValueRef x, const float *c, int n) {
    LLVMValueRef v = em_f32(e, c[n - 1]);
    for (int i = n - 2; i >= 0; i--) v = em_mad(e, v, x, em_f32(e, c[i]));
    return v;
}

LLVMValueRef mi_poly_d(emit *e, LLVMValueRef x, const double *c, int n) {
    LLVMValueRef v = em_f64(e, c[n - 1]);
    for (int i = n - 2; i >= 0; i--) v = em_mad(e, v, x, em_f64(e, c[i]));
    return v;
}

bool mi_is_f64(const emit *e, LLVMValueRef x) {
    LLVMTypeRef t = LLVMTypeOf(x);
    return t == e->t_f64 || (LLVMGetTypeKind(t) == LLVMVectorTypeKind && LLVMGetElementType(t) == e->t_f64);
}

LLVMValueRef mi_to_f64(emit *e, LLVMValueRef x) { return LLVMBuildFPExt(e->b, x, em_vec(e, e->t_f64), ""); }
LLVMValueRef mi_to_f32(emit *e, LLVMValueRef x) { return LLVMBuildFPTrunc(e->b, x, em_vec(e, e->t_f32), ""); }
LLVMValueRef mi_bits_d(emit *e, LLVMValueRef x) { return LLVMBuildBitCast(e->b, x, em_vec(e, e->t_i64), ""); }
LLVMValueRef mi_of_bits_d(emit *e, LLVMValueRef x) { return LLVMBuildBitCast(e->b, x, em_vec(e, e->t_f64), ""); }
LLVMValueRef mi_i64(emit *e, int64_t v) { return em_splat(e, em_i64s(e, v)); }
LLVMValueRef mi_min(emit *e, LLVMValueRef c, LLVMValueRef x) {
    return em_select(e, em_fcmp(e, LLVMRealOLT, c, x), c, x);
}
LLVMValueRef mi_max(emit *e, LLVMValueRef c, LLVMValueRef x) {
    return em_select(e, em_fcmp(e, LLVMRealOGT, c, x), c, x);
}
LLVMValueRef mi_sqrt(emit *e, LLVMValueRef x) { return em_intrinsic(e, "llvm.sqrt", 1, &x); }
LLVMValueRef mi_flip_sign(emit *e, LLVMValueRef x, LLVMValueRef bits) {
    return em_f32_of_bits(e, em_xor(e, em_bits_of_f32(e, x), em_and(e, bits, em_i32(e, INT32_MIN))));
}
LLVMValueRef mi_is_inf(emit *e, LLVMValueRef magnitude) {
    return em_fcmp(e, LLVMRealOEQ, magnitude, em_f32(e, __builtin_inf()));
}
LLVMValueRef mi_not(emit *e, LLVMValueRef c) { return em_xor(e, c, em_int(e, FUSOR_BOOL, 1)); }

/* ---- AVX-512 exponent instructions ---- */
bool mi_has_exponents(const emit *e) { return e->level->has_mask && (e->lanes == 16 || e->lanes == 1); }

/* Calls the form of a full register: of 16 floats, or twice of 8 doubles; at width 1 the scalar form, which works on
 * the first lane of four or two. some: lanes that are not 0; NULL: all. */
static LLVMValueRef avx512_part(emit *e, const char *op, LLVMValueRef a, LLVMValueRef b, int imm, LLVMValueRef some) {
    bool is_scalar = e->lanes == 1, is_wide = mi_is_f64(e, a);
    LLVMTypeRef type = LLVMVectorType(is_wide ? e->t_f64 : e->t_f32, (is_scalar ? 4 : 16) / (is_wide ? 2 : 1));
    char name[64];
    snprintf(name, sizeof name, "llvm.x86.avx512.mask.%s.%s", op,
             is_scalar ? (is_wide ? "sd" : "ss") : (is_wide ? "pd.512" : "ps.512"));
    LLVMValueRef in[2] = {a, b}, args[6];
    int n = 0;
    for (int i = 0; i < 2; i++) {
        if (in[i] && is_scalar)
            in[i] = LLVMBuildInsertElement(e->b, LLVMConstNull(type), in[i], LLVMConstInt(e->t_i32, 0, 0), "");
        if (in[i]) args[n++] = in[i];
    }
    if (!b && is_scalar) args[n++] = in[0]; /* upper lanes come from the first, the value from the second */
    if (imm >= 0) args[n++] = LLVMConstInt(e->t_i32, (unsigned)imm, 0);
    args[n++] = LLVMConstNull(type);
    LLVMTypeRef mask = is_scalar || is_wide ? e->t_i8 : e->t_i16;
    args[n++] = some ? LLVMBuildBitCast(e->b, some, mask, "") : LLVMConstAllOnes(mask);
    args[n++] = LLVMConstInt(e->t_i32, 4, 0); /* current rounding mode */
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, LLVMLookupIntrinsicID(name, strlen(name)), NULL, 0);
    LLVMValueRef v = LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, (unsigned)n, "");
    return is_scalar ? LLVMBuildExtractElement(e->b, v, LLVMConstInt(e->t_i32, 0, 0), "") : v;
}

/* Lanes first .. first + n - 1 of a, or of a and b one behind the other. */
static LLVMValueRef lanes_of(emit *e, LLVMValueRef a, LLVMValueRef b, int first, int n) {
    LLVMValueRef index[64];
    for (int i = 0; i < n; i++) index[i] = LLVMConstInt(e->t_i32, (unsigned)(first + i), 0);
    return LLVMBuildShuffleVector(e->b, a, b ? b : LLVMGetPoison(LLVMTypeOf(a)), LLVMConstVector(index, (unsigned)n),
                                  "");
}

static LLVMValueRef avx512_call(emit *e, const char *op, LLVMValueRef a, LLVMValueRef b, int imm, LLVMValueRef some) {
    if (e->lanes == 1 || !mi_is_f64(e, a)) return avx512_part(e, op, a, b, imm, some);
    LLVMValueRef half[2];
    for (int i = 0; i < 2; i++)
        half[i] = avx512_part(e, op, lanes_of(e, a, NULL, 8 * i, 8), b ? lanes_of(e, b, NULL, 8 * i, 8) : NULL, imm,
                              some ? lanes_of(e, some, NULL, 8 * i, 8) : NULL);
    return lanes_of(e, half[0], half[1], 0, 16);
}

/* x - floor(x), 0 of an infinity. */
static LLVMValueRef fraction(emit *e, LLVMValueRef x) { return avx512_call(e, "reduce", x, NULL, 1, NULL); }
LLVMValueRef mi_scalef(emit *e, LLVMValueRef x, LLVMValueRef k, LLVMValueRef some) {
    return avx512_call(e, "scalef", x, k, -1, some);
}
LLVMValueRef mi_getexp(emit *e, LLVMValueRef x) { return avx512_call(e, "getexp", x, NULL, -1, NULL); }
/* 0xf: interval [0.75, 1.5), sign of the result +, NaN for negative numbers (-0 gives 1). */
LLVMValueRef mi_getmant(emit *e, LLVMValueRef x) { return avx512_call(e, "getmant", x, NULL, 0xf, NULL); }

/* ---- cores ---- */
/* What is added to k in the low bits: both exponents of 2^k = 2^h 2^(k - h), or that of 2^(k + 64), which is one float
 * for -190 < k < 64. */
enum { PLAIN = 0, HALVES = 2 * 127, BELOW = 127 + 64 };

/* k, the bits of MAGIC + k + added, and the remainder x - k * (high + low). */
static LLVMValueRef reduce(emit *e, LLVMValueRef x, int added, mi_exp_parts *v) {
    LLVMValueRef magic = em_f32(e, MAGIC + added), t = em_mad(e, x, em_f32(e, LOG2E), magic);
    v->added = added;
    v->bits = em_bits_of_f32(e, t);
    v->k = em_fsub(e, t, magic);
    LLVMValueRef r = em_mad(e, v->k, em_f32(e, -LN2_HIGH), x);
    return em_mad(e, v->k, em_f32(e, -LN2_LOW), r);
}

static mi_exp_parts exp_parts(emit *e, LLVMValueRef x, LLVMValueRef low, int added) {
    mi_exp_parts v = {.some = NULL};
    LLVMValueRef r = reduce(e, x, mi_has_exponents(e) ? PLAIN : added, &v), one = em_f32(e, 1);
    if (low) r = em_fadd(e, r, low);
    LLVMValueRef q = em_mad(e, mi_poly(e, r, exp_p, 5), r, one); /* 1 + r (1 + r P): the last rounding is of the sum */
    v.p = em_mad(e, q, r, one);
    return v;
}

mi_exp_parts mi_exp_reduce(emit *e, LLVMValueRef x, LLVMValueRef low) { return exp_parts(e, x, low, HALVES); }
mi_exp_parts mi_exp_reduce_below(emit *e, LLVMValueRef x, LLVMValueRef low) { return exp_parts(e, x, low, BELOW); }

static mi_exp_parts exp2_parts(emit *e, LLVMValueRef x, int added) {
    mi_exp_parts v = {.added = mi_has_exponents(e) ? PLAIN : added};
    LLVMValueRef magic = em_f32(e, MAGIC + v.added), t = em_fadd(e, x, magic);
    v.bits = em_bits_of_f32(e, t);
    v.k = em_fsub(e, t, magic);
    LLVMValueRef r = em_fsub(e, x, v.k);
    v.p = em_mad(e, mi_poly(e, r, exp2_p, 6), r, em_f32(e, 1));
    return v;
}

mi_exp_parts mi_exp2_reduce(emit *e, LLVMValueRef x) { return exp2_parts(e, x, PLAIN); }

static LLVMValueRef by_one_power(emit *e, LLVMValueRef p, LLVMValueRef bits, int bias) {
    LLVMValueRef y = em_fmul(e, p, em_f32_of_bits(e, em_shl(e, bits, 23)));
    return em_fmul(e, y, em_f32(e, ldexp(1, bias - 64))); /* rounds where the result is subnormal */
}

/* Two steps: 2^k itself may be subnormal or beyond the largest float; only the second product can round. */
LLVMValueRef mi_scale(emit *e, mi_exp_parts v, int bias) {
    if (mi_has_exponents(e)) return mi_scalef(e, v.p, bias ? em_fadd(e, v.k, em_f32(e, bias)) : v.k, v.some);
    if (v.added == BELOW) return by_one_power(e, v.p, v.bits, bias);
    const int missing = HALVES - v.added + bias; /* the bits of MAGIC itself are shifted out */
    LLVMValueRef sum = missing ? em_add(e, v.bits, em_i32(e, missing)) : v.bits;
    LLVMValueRef first = em_lshr(e, sum, 1), second = em_sub(e, sum, first);
    LLVMValueRef y = em_fmul(e, v.p, em_f32_of_bits(e, em_shl(e, first, 23)));
    return em_fmul(e, y, em_f32_of_bits(e, em_shl(e, second, 23)));
}

LLVMValueRef mi_scale_normal(emit *e, mi_exp_parts v) {
    if (mi_has_exponents(e)) return mi_scalef(e, v.p, v.k, v.some);
    return em_f32_of_bits(e, em_add(e, em_bits_of_f32(e, v.p), em_shl(e, v.bits, 23)));
}

static LLVMValueRef like(emit *e, LLVMValueRef x, double v) { return mi_is_f64(e, x) ? em_f64(e, v) : em_f32(e, v); }

LLVMValueRef mi_exp_floor(emit *e, LLVMValueRef x, double least, double zero) {
    if (!mi_has_exponents(e)) return mi_max(e, like(e, x, zero), x);
    const double far = mi_is_f64(e, x) ? -10000 : -1000;
    return em_select(e, em_fcmp(e, LLVMRealOLT, x, like(e, x, least)), like(e, x, far), x);
}

LLVMValueRef mi_exp_held(emit *e, LLVMValueRef x, double least, double zero, LLVMValueRef *some) {
    const bool is_masked = mi_has_exponents(e) && e->lanes > 1;
    *some = is_masked ? em_fcmp(e, LLVMRealUGE, x, like(e, x, least)) : NULL;
    return is_masked ? x : mi_exp_floor(e, x, least, zero);
}

LLVMValueRef mi_exp_neg(emit *e, LLVMValueRef x) {
    LLVMValueRef some;
    x = mi_exp_held(e, x, -104, -130, &some);
    mi_exp_parts v = mi_exp_reduce_below(e, x, NULL);
    v.some = some;
    return mi_scale(e, v, 0);
}

/* k = round(x), r = x - k, 2^r by a polynomial, 2^k into the exponent field. */
LLVMValueRef mi_exp2_d(emit *e, LLVMValueRef x) {
    LLVMValueRef t = em_fadd(e, x, em_f64(e, MAGIC_D));
    LLVMValueRef r = em_fsub(e, x, em_fsub(e, t, em_f64(e, MAGIC_D)));
    LLVMValueRef p = em_mad(e, mi_poly_d(e, r, exp2_d, 8), r, em_f64(e, 1));
    return mi_of_bits_d(e, em_add(e, mi_bits_d(e, p), em_shl(e, mi_bits_d(e, t), 52)));
}

/* ---- functions ---- */
/* exp: argument held to [-104 (or what mi_exp_held says), 89], beyond which the result is 0 or infinity anyway. Error: 0.87 ULP (1.14 without
 * fma). */
LLVMValueRef math_exp(emit *e, LLVMValueRef x) {
    LLVMValueRef some;
    x = mi_exp_held(e, mi_min(e, em_f32(e, 89), x), -104, -130, &some);
    mi_exp_parts v = mi_exp_reduce(e, x, NULL);
    v.some = some;
    return mi_scale(e, v, 0);
}

/* exp2: k = round(x), exact remainder. Error: 0.87 ULP (1.06 without fma). */
LLVMValueRef math_exp2(emit *e, LLVMValueRef x) {
    LLVMValueRef some;
    x = mi_exp_held(e, mi_min(e, em_f32(e, 129), x), -151, -188, &some);
    mi_exp_parts v = exp2_parts(e, x, HALVES);
    v.some = some;
    return mi_scale(e, v, 0);
}

/* With scalef the reduction rounds down, as that does: it takes x itself, minus infinity and NaN included, and there is
 * no k. Else to nearest, and x is held where a product is 0 without an assist (mi_exp_held). No result differs from 0
 * below -150. (A mask for scalef, too, takes attention of usual scores 1.02 to 1.03 of the time; of scores spread by
 * hundreds, where weights that are subnormal make products as slow, f32 0.5, bf16 0.85.) Error: about 2 ULP. */
LLVMValueRef math_weight(emit *e, LLVMValueRef x) {
    LLVMValueRef one = em_f32(e, 1);
    if (!mi_has_exponents(e)) {
        LLVMValueRef magic = em_f32(e, MAGIC + BELOW);
        x = mi_max(e, em_f32(e, -188), x);
        LLVMValueRef biased = em_fadd(e, x, magic), f = em_fsub(e, x, em_fsub(e, biased, magic));
        return by_one_power(e, em_mad(e, mi_poly(e, f, weight_near_p, 5), f, one), em_bits_of_f32(e, biased), 0);
    }
    if (e->lanes > 1) {
        LLVMValueRef f = fraction(e, x);
        return mi_scalef(e, em_mad(e, mi_poly(e, f, weight_p, 5), f, one), x, NULL);
    }
    mi_exp_parts v = {.added = PLAIN};
    x = mi_exp_floor(e, x, -150, 0);
    v.k = em_intrinsic(e, "llvm.floor", 1, &x);
    v.bits = em_bits_of_f32(e, em_fadd(e, v.k, em_f32(e, MAGIC)));
    LLVMValueRef f = em_fsub(e, x, v.k);
    v.p = em_mad(e, mi_poly(e, f, weight_p, 5), f, one);
    return mi_scale(e, v, 0);
}

/* expm1(x) = 2 (s p + (s - 1/2)), p = expm1(r), s = 2^(k-1): the product by a power of two and s - 1/2 are exact or far
 * below the last bit, and doubling overflows only where the result does. k = 0: p itself, which halving would round
 * when subnormal. */
static LLVMValueRef expm1_core(emit *e, LLVMValueRef x) {
    mi_exp_parts v = {.some = NULL};
    LLVMValueRef r = reduce(e, x, PLAIN, &v);
    LLVMValueRef p = em_mad(e, em_fmul(e, r, r), mi_poly(e, r, expm1_p, 6), r);
    LLVMValueRef s = em_f32_of_bits(e, em_shl(e, em_sub(e, v.bits, em_i32(e, 0x4b400000 - 126)), 23));
    LLVMValueRef y = em_mad(e, s, p, em_fsub(e, s, em_f32(e, 0.5)));
    return em_select(e, em_fcmp(e, LLVMRealUEQ, v.k, em_f32(e, 0)), p, em_fadd(e, y, y));
}

LLVMValueRef mi_expm1_neg(emit *e, LLVMValueRef x) { return expm1_core(e, mi_max(e, em_f32(e, -20), x)); }

/* expm1: as above; the sign is that of x, which the reduction loses at -0. Error: 1.43 ULP. */
LLVMValueRef math_expm1(emit *e, LLVMValueRef x) {
    LLVMValueRef y = expm1_core(e, mi_max(e, em_f32(e, -20), mi_min(e, em_f32(e, 89), x)));
    return em_copysign(e, y, x);
}
