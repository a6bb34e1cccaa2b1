/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math64_trig.c: sine, cosine, tangent in f64, for every finite argument.
 *
 * |x| = n pi/2 + r, |r| <= pi/4, r as a pair, so that r is good where x is near a multiple of pi/2. Below 2^20 by Cody
 * and Waite with three parts of 33 bits and one of 53: n times a part is exact. From there on by Payne and Hanek, in
 * integers: x = m 2^e, and of 2/pi 192 bits from where their product with x goes below 4. That is a loop over the lanes
 * of scalar code, behind a branch that is taken when any lane needs it; lanes that do not are left as they are. */
#include "jit/math64_impl.h"

#define TWO_OVER_PI 0.636619772367581343076
#define HALF_PI     0x1.921fb54442d18p+0
#define HALF_PI_LOW 0x1.1a62633145c07p-54
#define PART_1      0x1.921fb544p+0 /* pi/2 in parts of 33, 33, 33 and 53 bits */
#define PART_2      0x1.0b4611a6p-34
#define PART_3      0x1.3198a2ep-69
#define PART_4      0x1.b839a252049c1p-104
#define MAGIC       0x1.8p52
#define LIMIT       0x1p20

/* sin_64: error 2^-57.9 */
static const double sin_64[6] = {
    -0x1.5555555555548p-3, 0x1.111111110f757p-7,   -0x1.a01a019bf1579p-13,
    0x1.71de355e6aaa7p-19, -0x1.ae5e540cf79abp-26, 0x1.5d8e1d13579cp-33,
};
/* cos_64: error 2^-63.9 */
static const double cos_64[6] = {
    0x1.555555555554bp-5,   -0x1.6c16c16c15016p-10, 0x1.a01a019c8f411p-16,
    -0x1.27e4f7f1a0d14p-22, 0x1.1ee9dbd4849ep-29,   -0x1.8fa68461459a6p-37,
};

typedef struct trig {
    mi_pair r;
    LLVMValueRef n; /* i64 whose two low bits are the quadrant */
} trig;

/* ---- Payne and Hanek ---- */
/* 64 zeros and 2/pi = 0.a2f9836e4e44.., 64 bits each: as many as the largest exponent needs. */
static const uint64_t two_over_pi[] = {
    0,
    0xa2f9836e4e441529,
    0xfc2757d1f534ddc0,
    0xdb6295993c439041,
    0xfe5163abdebbc561,
    0xb7246e3a424dd2e0,
    0x06492eea09d1921c,
    0xfe1deb1cb129a73e,
    0xe88235f52ebb4484,
    0xe99c7026b45f7e41,
    0x3991d639835339f4,
    0x9c845f8bbdf9283b,
    0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f,
    0x6d367ecf27cb09b7,
    0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea,
    0x6bfb5fb11f8d5d08,
    0x56033046fc7b6bab,
};
enum { TABLE_WORDS = sizeof two_over_pi / sizeof *two_over_pi, FRACTION = 52, BIAS = 1023 };

static LLVMValueRef table(emit *e) {
    static const char name[] = "fk_two_over_pi_64";
    LLVMValueRef global = LLVMGetNamedGlobal(e->mod, name), v[TABLE_WORDS];
    if (global) return global;
    for (int i = 0; i < TABLE_WORDS; i++) v[i] = LLVMConstInt(e->t_i64, two_over_pi[i], 0);
    global = LLVMAddGlobal(e->mod, LLVMArrayType2(e->t_i64, TABLE_WORDS), name);
    LLVMSetInitializer(global, LLVMConstArray2(e->t_i64, v, TABLE_WORDS));
    LLVMSetGlobalConstant(global, 1);
    LLVMSetLinkage(global, LLVMPrivateLinkage);
    LLVMSetAlignment(global, 64);
    return global;
}

static LLVMValueRef funnel(emit *e, LLVMValueRef high, LLVMValueRef low, LLVMValueRef by) {
    return em_intrinsic(e, "llvm.fshl", 3, (LLVMValueRef[]){high, low, by});
}

/* One scalar: bits of 2/pi with weights 2^(61 - e) and below are the 192 bits g; p = m g / 2^192 less its integer part
 * is x 2/pi / 4 less its integer part, so its two upper bits are the quadrant. What follows them, as a signed number,
 * is r 2/pi; its magnitude goes into two doubles of 53 and up to 63 bits (rounded). */
static trig payne_hanek(emit *e, LLVMValueRef x) {
    LLVMTypeRef wide = LLVMInt128TypeInContext(e->ctx);
    LLVMValueRef bits = mi_bits_d(e, x), biased = em_lshr(e, bits, FRACTION), g[3], word[4];
    LLVMValueRef m = em_and(e, bits, mi_i64(e, (INT64_C(1) << FRACTION) - 1));
    m = LLVMBuildZExt(e->b, em_or(e, m, mi_i64(e, INT64_C(1) << FRACTION)), wide, "");
    LLVMValueRef at = em_sub(e, biased, mi_i64(e, BIAS + FRACTION - 62)); /* e - 2, and the 64 zeros */
    LLVMValueRef first = em_lshr(e, at, 6), shift = em_and(e, at, mi_i64(e, 63));
    for (int i = 0; i < 4; i++) {
        LLVMValueRef index = em_add(e, first, mi_i64(e, i));
        word[i] = LLVMBuildLoad2(e->b, e->t_i64, em_gep(e, table(e), e->t_i64, index), "");
    }
    for (int i = 0; i < 3; i++) g[i] = LLVMBuildZExt(e->b, funnel(e, word[i], word[i + 1], shift), wide, "");
    LLVMValueRef a = em_mul(e, m, g[2]), b = em_add(e, em_mul(e, m, g[1]), em_lshr(e, a, 64));
    LLVMValueRef c = em_add(e, em_mul(e, m, g[0]), em_lshr(e, b, 64));
    LLVMValueRef p0 = LLVMBuildTrunc(e->b, c, e->t_i64, ""), p1 = LLVMBuildTrunc(e->b, b, e->t_i64, "");
    LLVMValueRef p2 = LLVMBuildTrunc(e->b, a, e->t_i64, ""), two = mi_i64(e, 2);
    trig v = {.n = em_lshr(e, em_add(e, p0, mi_i64(e, INT64_C(1) << 61)), 62)};
    LLVMValueRef s0 = funnel(e, p0, p1, two), s1 = funnel(e, p1, p2, two);
    LLVMValueRef is_negative = em_icmp(e, LLVMIntSLT, s0, mi_i64(e, 0)), mask = em_ashr(e, s0, 63);
    s0 = em_xor(e, s0, mask); /* the complement: 1 less than the magnitude, in the 128th bit */
    s1 = em_xor(e, s1, mask);
    LLVMValueRef high = LLVMBuildSIToFP(e->b, em_and(e, s0, mi_i64(e, ~INT64_C(0x7ff))), e->t_f64, "");
    LLVMValueRef low = em_or(e, em_shl(e, em_and(e, s0, mi_i64(e, 0x7ff)), 52), em_lshr(e, s1, 12));
    low = LLVMBuildSIToFP(e->b, low, e->t_f64, "");
    mi_pair s = {em_fmul(e, high, em_f64(e, 0x1p-64)), em_fmul(e, low, em_f64(e, 0x1p-116))};
    v.r = mi_pair_times(e, mi_fast_sum(e, s.hi, s.lo), mi_pair_of(e, HALF_PI, HALF_PI_LOW));
    v.r = mi_fast_sum(e, v.r.hi, v.r.lo);
    v.r.hi = mi64_select_sign(e, is_negative, v.r.hi);
    v.r.lo = mi64_select_sign(e, is_negative, v.r.lo);
    return v;
}

static LLVMValueRef spill(emit *e, LLVMValueRef v) {
    LLVMValueRef slot = em_alloca(e, LLVMTypeOf(v), 64);
    LLVMBuildStore(e->b, v, slot);
    return slot;
}

/* v where |x| is small; for the other lanes, one after the other, what is above. */
static trig fix_large(emit *e, LLVMValueRef a, trig v) {
    LLVMTypeRef f64 = em_vec(e, e->t_f64), i64 = em_vec(e, e->t_i64);
    LLVMValueRef from = spill(e, a), hi = spill(e, v.r.hi), lo = spill(e, v.r.lo), n = spill(e, v.n);
    int lanes = e->lanes;
    em_loop l = em_for(e, em_i64s(e, 0), em_i64s(e, lanes), em_i64s(e, 1));
    e->lanes = 1;
    LLVMValueRef x = LLVMBuildLoad2(e->b, e->t_f64, em_gep(e, from, e->t_f64, l.i), "");
    em_branch is_large = em_if(e, em_fcmp(e, LLVMRealOGE, x, em_f64(e, LIMIT)));
    trig one = payne_hanek(e, x);
    LLVMBuildStore(e->b, one.r.hi, em_gep(e, hi, e->t_f64, l.i));
    LLVMBuildStore(e->b, one.r.lo, em_gep(e, lo, e->t_f64, l.i));
    LLVMBuildStore(e->b, one.n, em_gep(e, n, e->t_i64, l.i));
    em_endif(e, &is_large);
    em_end(e, &l);
    e->lanes = lanes;
    return (trig){{LLVMBuildLoad2(e->b, f64, hi, ""), LLVMBuildLoad2(e->b, f64, lo, "")},
                  LLVMBuildLoad2(e->b, i64, n, "")};
}

static LLVMValueRef choose(emit *e, LLVMValueRef slow, LLVMValueRef fast, const LLVMBasicBlockRef *from) {
    LLVMValueRef phi = LLVMBuildPhi(e->b, LLVMTypeOf(slow), "");
    LLVMAddIncoming(phi, (LLVMValueRef[]){slow, fast}, (LLVMBasicBlockRef[]){from[0], from[1]}, 2);
    return phi;
}

static trig reduce(emit *e, LLVMValueRef a) {
    LLVMValueRef any = em_fcmp(e, LLVMRealOGE, a, em_f64(e, LIMIT)), magic = em_f64(e, MAGIC);
    if (e->lanes > 1) any = em_intrinsic(e, "llvm.vector.reduce.or", 1, &any);
    LLVMValueRef t = em_mad(e, a, em_f64(e, TWO_OVER_PI), magic), k = em_fsub(e, t, magic);
    mi_pair r = mi_sum(e, em_mad(e, k, em_f64(e, -PART_1), a), em_fmul(e, k, em_f64(e, -PART_2)));
    mi_pair s = mi_sum(e, r.hi, em_fmul(e, k, em_f64(e, -PART_3)));
    LLVMValueRef low = em_mad(e, k, em_f64(e, -PART_4), em_fadd(e, r.lo, s.lo));
    trig fast = {mi_fast_sum(e, s.hi, low), mi_bits_d(e, t)};

    em_branch b = em_if(e, any);
    trig slow = fix_large(e, a, fast);
    LLVMBasicBlockRef from[2] = {LLVMGetInsertBlock(e->b), b.other};
    em_endif(e, &b);
    LLVMValueRef hi = choose(e, slow.r.hi, fast.r.hi, from), lo = choose(e, slow.r.lo, fast.r.lo, from);
    return (trig){{hi, lo}, choose(e, slow.n, fast.n, from)};
}

/* r + r^3 P(r^2), the low part of r with its first factor 1 - r^2 / 2 */
static LLVMValueRef sine_of(emit *e, mi_pair r, LLVMValueRef z) {
    LLVMValueRef p = mi_poly_d(e, z, sin_64, 6);
    LLVMValueRef low = em_mad(e, em_fmul(e, z, em_f64(e, -0.5)), r.lo, r.lo);
    return em_fadd(e, r.hi, em_mad(e, em_fmul(e, z, r.hi), p, low));
}

/* 1 - z / 2 as a pair, then z^2 P(z) - r.hi r.lo */
static LLVMValueRef cosine_of(emit *e, mi_pair r, LLVMValueRef z) {
    mi_pair top = mi_fast_sum(e, em_f64(e, 1), em_fmul(e, z, em_f64(e, -0.5)));
    LLVMValueRef p = em_mad(e, em_fneg(e, r.hi), r.lo, top.lo);
    p = em_mad(e, em_fmul(e, z, z), mi_poly_d(e, z, cos_64, 6), p);
    return em_fadd(e, top.hi, p);
}

/* NaN where the argument is not finite. */
static LLVMValueRef finite_only(emit *e, LLVMValueRef a, LLVMValueRef y) {
    return em_select(e, em_fcmp(e, LLVMRealOLT, a, em_f64(e, __builtin_inf())), y, em_f64(e, __builtin_nan("")));
}

static LLVMValueRef is_odd(emit *e, LLVMValueRef n) {
    return em_icmp(e, LLVMIntNE, em_and(e, n, mi_i64(e, 1)), mi_i64(e, 0));
}

static LLVMValueRef flip(emit *e, LLVMValueRef y, LLVMValueRef bits) {
    LLVMValueRef sign = em_and(e, bits, mi_i64(e, INT64_MIN));
    return mi_of_bits_d(e, em_xor(e, mi_bits_d(e, y), sign));
}

/* sin (quadrant n) or cos (quadrant n + 1) of |x| up to the sign of x. */
static LLVMValueRef sine(emit *e, LLVMValueRef a, LLVMValueRef sign_of, int quadrant) {
    trig v = reduce(e, a);
    LLVMValueRef z = em_fmul(e, v.r.hi, v.r.hi), n = quadrant ? em_add(e, v.n, mi_i64(e, quadrant)) : v.n;
    LLVMValueRef y = em_select(e, is_odd(e, n), cosine_of(e, v.r, z), sine_of(e, v.r, z)), sign = em_shl(e, n, 62);
    if (sign_of) sign = em_xor(e, sign, mi_bits_d(e, sign_of));
    return finite_only(e, a, flip(e, y, sign));
}

/* Error: 0.76 ULP (0.77 without fma). */
LLVMValueRef math64_sin(emit *e, LLVMValueRef x) { return sine(e, em_fabs(e, x), x, 0); }

/* Error: 0.78 ULP. */
LLVMValueRef math64_cos(emit *e, LLVMValueRef x) { return sine(e, em_fabs(e, x), NULL, 1); }

/* sin / cos or -cos / sin. Error: 1.93 ULP. */
LLVMValueRef math64_tan(emit *e, LLVMValueRef x) {
    LLVMValueRef a = em_fabs(e, x);
    trig v = reduce(e, a);
    LLVMValueRef z = em_fmul(e, v.r.hi, v.r.hi), s = sine_of(e, v.r, z), c = cosine_of(e, v.r, z);
    LLVMValueRef odd = is_odd(e, v.n), top = em_select(e, odd, em_fneg(e, c), s), bottom = em_select(e, odd, s, c);
    return finite_only(e, a, flip(e, em_fdiv(e, top, bottom), mi_bits_d(e, x)));
}
