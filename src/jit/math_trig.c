/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math_trig.c: sine, cosine, tangent, for every finite argument.
 *
 * |x| = n pi/2 + r, |r| <= pi/4, r in f64. Below 2^20 by Cody and Waite: the first part of pi/2 has 33 bits, so
 * that n times it is exact. From there on by Payne and Hanek: x = m 2^e with m of 24 bits; of 2/pi only the bits
 * count whose product with x is below 4, and three pieces of them (27, 28 and 53 bits, from a table by e) make m
 * times the first two exact. tan, where the level has fma, does the first in f32, with a remainder of two parts.
 * Payne and Hanek's stands behind a branch that is taken when any lane needs it; each lane selects, so that its
 * result does not depend on the others. */
#include "jit/llvm_compat.h"
#include "jit/math_impl.h"

#define TWO_OVER_PI  0.636619772367581343076
#define HALF_PI      1.57079632679489661923
#define HALF_PI_HIGH 0x1.921fb544p0 /* 33 bits */
#define HALF_PI_LOW  6.07710050650619224932e-11
#define HALF_PI_1    0x1.921fb6p+0
#define HALF_PI_2    -0x1.777a5cp-25
#define HALF_PI_3    -0x1.ee59dap-50
#define MAGIC        0x1.8p23
#define MAGIC_D      0x1.8p52
#define LIMIT        0x1p20
#define PAIR_LIMIT   0x1p16 /* above, the rounding of 2/pi would leave r too far beyond pi/4 */

/* sin_p: error 2^-27.9 */
static const float sin_p[3] = {
    -0x1.555546p-3f,
    0x1.110778p-7f,
    -0x1.9954p-13f,
};
/* cos_p: error 2^-33.0 */
static const float cos_p[3] = {
    0x1.55554ap-5f,
    -0x1.6c0c2ap-10f,
    0x1.99e91p-16f,
};
/* tan_p: error 2^-28.4 */
static const float tan_p[7] = {
    0x1.55556cp-2f, 0x1.110a74p-3f, 0x1.bb66aep-5f, 0x1.572a58p-6f, 0x1.7f41bap-7f, -0x1.01b3e2p-10f, 0x1.40df92p-8f,
};
/* sin_d: error 2^-37.5 */
static const double sin_d[4] = {
    -0x1.5555554c6fbb3p-3,
    0x1.11110868d2deap-7,
    -0x1.a00f7df8d4401p-13,
    0x1.6cd1ad77474c2p-19,
};
/* cos_d: error 2^-43.6 */
static const double cos_d[5] = {
    -0x1.ffffffffe9844p-2, 0x1.55555545c1556p-5, -0x1.6c16b34644e6ep-10, 0x1.a00eb8691c0d5p-16, -0x1.23c9442fa5eebp-22,
};

/* ---- Payne and Hanek ---- */
/* 2/pi = 0.a2f9836e 4e441529 ... */
static const uint32_t two_over_pi[8] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                        0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561};
enum { FIRST_EXPONENT = 126, TABLE_ROWS = 129 }; /* biased exponents 126 (0.5) to 254 */

/* The bits of 2/pi with weights 2^high down, `count` of them, times 2^scale. */
static double piece(int high, int count, int scale) {
    double v = 0;
    for (int w = high; w > high - count; w--) {
        int bit = -1 - w; /* 0 is the first one behind the point */
        bool is_set = bit >= 0 && bit < 256 && (two_over_pi[bit / 32] >> (31 - bit % 32) & 1);
        v += is_set ? __builtin_ldexp(1, w + scale) : 0;
    }
    return v;
}

/* A constant of the module: one row of three pieces (and a zero, so that rows are 32 bytes) for each exponent. */
static LLVMValueRef table(emit *e) {
    static const char name[] = "fk_two_over_pi";
    LLVMValueRef global = LLVMGetNamedGlobal(e->mod, name);
    if (global) return global;
    LLVMValueRef v[4 * TABLE_ROWS];
    for (int i = 0; i < TABLE_ROWS; i++) {
        int scale = FIRST_EXPONENT + i - 150, high = 1 - scale;
        v[4 * i] = LLVMConstReal(e->t_f64, piece(high, 27, scale));
        v[4 * i + 1] = LLVMConstReal(e->t_f64, piece(high - 27, 28, scale));
        v[4 * i + 2] = LLVMConstReal(e->t_f64, piece(high - 55, 53, scale));
        v[4 * i + 3] = LLVMConstReal(e->t_f64, 0);
    }
    global = LLVMAddGlobal(e->mod, LLVMArrayType2(e->t_f64, 4 * TABLE_ROWS), name);
    LLVMSetInitializer(global, LLVMConstArray2(e->t_f64, v, 4 * TABLE_ROWS));
    LLVMSetGlobalConstant(global, 1);
    LLVMSetLinkage(global, LLVMPrivateLinkage);
    LLVMSetAlignment(global, 64);
    return global;
}

static LLVMValueRef table_load(emit *e, LLVMValueRef row, int column) {
    LLVMValueRef index = em_add(e, em_shl(e, row, 2), em_i32(e, column));
    LLVMValueRef at = LLVMBuildGEP2(e->b, e->t_f64, table(e), &index, 1, "");
    LLVMTypeRef type = em_vec(e, e->t_f64);
    if (e->lanes == 1) return LLVMBuildLoad2(e->b, type, at, "");
    return compat_masked_load(e->mod, e->b, COMPAT_SCATTERED, type, at, em_int(e, FUSOR_BOOL, 1), LLVMConstNull(type),
                              8);
}

typedef struct trig {
    LLVMValueRef r, n;
} trig; /* f64; i32 whose two low bits are the quadrant */

static LLVMValueRef low_half(emit *e, LLVMValueRef x) { return LLVMBuildTrunc(e->b, x, em_vec(e, e->t_i32), ""); }

static trig payne_hanek(emit *e, LLVMValueRef a) {
    LLVMValueRef bits = em_bits_of_f32(e, a), magic = em_f64(e, MAGIC_D);
    LLVMValueRef row = em_sub(e, em_lshr(e, bits, 23), em_i32(e, FIRST_EXPONENT)), last = em_i32(e, TABLE_ROWS - 1);
    row = em_select(e, em_icmp(e, LLVMIntULT, row, last), row, last); /* other lanes' exponents: any row will do */
    LLVMValueRef mantissa = em_or(e, em_and(e, bits, em_i32(e, 0x7fffff)), em_i32(e, 0x800000));
    LLVMValueRef m = LLVMBuildSIToFP(e->b, mantissa, em_vec(e, e->t_f64), "");
    LLVMValueRef q = em_fmul(e, m, table_load(e, row, 0)), t = em_fadd(e, q, magic);
    LLVMValueRef s = em_fadd(e, em_fsub(e, q, em_fsub(e, t, magic)), em_fmul(e, m, table_load(e, row, 1)));
    LLVMValueRef u = em_fadd(e, s, magic);
    s = em_fadd(e, em_fsub(e, s, em_fsub(e, u, magic)), em_fmul(e, m, table_load(e, row, 2)));
    return (trig){em_fmul(e, s, em_f64(e, HALF_PI)), low_half(e, em_add(e, mi_bits_d(e, t), mi_bits_d(e, u)))};
}

static trig reduce(emit *e, LLVMValueRef a) {
    LLVMValueRef is_large = em_fcmp(e, LLVMRealOGE, a, em_f32(e, LIMIT)), any = is_large;
    if (e->lanes > 1) any = em_intrinsic(e, "llvm.vector.reduce.or", 1, &is_large);
    LLVMValueRef x = mi_to_f64(e, a), magic = em_f64(e, MAGIC_D);
    LLVMValueRef t = em_mad(e, x, em_f64(e, TWO_OVER_PI), magic), k = em_fsub(e, t, magic);
    LLVMValueRef r = em_mad(e, k, em_f64(e, -HALF_PI_LOW), em_mad(e, k, em_f64(e, -HALF_PI_HIGH), x));
    trig fast = {r, low_half(e, mi_bits_d(e, t))};

    em_branch b = em_if(e, any);
    trig slow = payne_hanek(e, a);
    slow.r = em_select(e, is_large, slow.r, fast.r);
    slow.n = em_select(e, is_large, slow.n, fast.n);
    LLVMBasicBlockRef from[2] = {LLVMGetInsertBlock(e->b), b.other};
    em_endif(e, &b);
    trig v = {LLVMBuildPhi(e->b, em_vec(e, e->t_f64), ""), LLVMBuildPhi(e->b, em_vec(e, e->t_i32), "")};
    LLVMAddIncoming(v.r, (LLVMValueRef[]){slow.r, fast.r}, from, 2);
    LLVMAddIncoming(v.n, (LLVMValueRef[]){slow.n, fast.n}, from, 2);
    return v;
}

/* NaN where the argument is not finite. */
static LLVMValueRef finite_only(emit *e, LLVMValueRef a, LLVMValueRef y) {
    return em_select(e, em_fcmp(e, LLVMRealOLT, a, em_f32(e, __builtin_inf())), y, em_f32(e, __builtin_nan("")));
}

/* sin (quadrant n) or cos (quadrant n + 1) of |x| up to the sign of x. */
static LLVMValueRef sine(emit *e, LLVMValueRef a, LLVMValueRef sign_of, int quadrant) {
    trig v = reduce(e, a);
    LLVMValueRef r = mi_to_f32(e, v.r), z = em_fmul(e, r, r), n = quadrant ? em_add(e, v.n, em_i32(e, quadrant)) : v.n;
    LLVMValueRef s = em_mad(e, em_fmul(e, mi_poly(e, z, sin_p, 3), z), r, r);
    LLVMValueRef c = em_mad(e, z, em_f32(e, -0.5), em_f32(e, 1));
    c = em_mad(e, em_fmul(e, z, z), mi_poly(e, z, cos_p, 3), c);
    LLVMValueRef is_odd = em_icmp(e, LLVMIntNE, em_and(e, n, em_i32(e, 1)), em_i32(e, 0));
    LLVMValueRef sign = em_shl(e, n, 30);
    if (sign_of) sign = em_xor(e, sign, em_bits_of_f32(e, sign_of));
    return finite_only(e, a, mi_flip_sign(e, em_select(e, is_odd, c, s), sign));
}

/* r rounded to f32, then r + r^3 P(r^2) and 1 - r^2/2 + r^4 P(r^2). Error: 1.57 ULP. */
LLVMValueRef math_sin(emit *e, LLVMValueRef x) { return sine(e, em_fabs(e, x), x, 0); }

/* Error: 1.57 ULP. */
LLVMValueRef math_cos(emit *e, LLVMValueRef x) { return sine(e, em_fabs(e, x), NULL, 1); }

/* sin / cos or -cos / sin, in f64. */
static LLVMValueRef tan_wide(emit *e, LLVMValueRef a) {
    trig v = reduce(e, a);
    LLVMValueRef z = em_fmul(e, v.r, v.r);
    LLVMValueRef s = em_mad(e, em_fmul(e, v.r, z), mi_poly_d(e, z, sin_d, 4), v.r);
    LLVMValueRef c = em_mad(e, z, mi_poly_d(e, z, cos_d, 5), em_f64(e, 1));
    LLVMValueRef is_odd = em_icmp(e, LLVMIntNE, em_and(e, v.n, em_i32(e, 1)), em_i32(e, 0));
    LLVMValueRef top = em_select(e, is_odd, em_fneg(e, c), s), bottom = em_select(e, is_odd, s, c);
    return mi_to_f32(e, em_fdiv(e, top, bottom));
}

/* The remainder in two parts of f32, with fma: x - k * HALF_PI_1 is exact, for k < 2^21 and x >= 0.5; what the next
 * step rounds off is the second part. */
typedef struct trig_pair {
    LLVMValueRef r, low, n;
} trig_pair;

static trig_pair reduce_pair(emit *e, LLVMValueRef a) {
    LLVMValueRef is_large = em_fcmp(e, LLVMRealOGE, a, em_f32(e, PAIR_LIMIT)), any = is_large;
    if (e->lanes > 1) any = em_intrinsic(e, "llvm.vector.reduce.or", 1, &is_large);
    LLVMValueRef magic = em_f32(e, MAGIC), t = em_mad(e, a, em_f32(e, TWO_OVER_PI), magic), k = em_fsub(e, t, magic);
    LLVMValueRef minus = em_fneg(e, k), whole = em_mad(e, minus, em_f32(e, HALF_PI_1), a);
    LLVMValueRef part = em_fmul(e, k, em_f32(e, HALF_PI_2)), rest = em_mad(e, minus, em_f32(e, HALF_PI_2), part);
    trig_pair fast = {.r = em_fsub(e, whole, part), .n = em_bits_of_f32(e, t)};
    fast.low = em_fadd(e, em_fsub(e, em_fsub(e, whole, fast.r), part), em_mad(e, minus, em_f32(e, HALF_PI_3), rest));

    em_branch b = em_if(e, any);
    trig wide = payne_hanek(e, a);
    LLVMValueRef r = mi_to_f32(e, wide.r), low = mi_to_f32(e, em_fsub(e, wide.r, mi_to_f64(e, r)));
    trig_pair slow = {em_select(e, is_large, r, fast.r), em_select(e, is_large, low, fast.low),
                      em_select(e, is_large, wide.n, fast.n)};
    LLVMBasicBlockRef from[2] = {LLVMGetInsertBlock(e->b), b.other};
    em_endif(e, &b);
    LLVMTypeRef f32 = em_vec(e, e->t_f32);
    trig_pair v = {LLVMBuildPhi(e->b, f32, ""), LLVMBuildPhi(e->b, f32, ""),
                   LLVMBuildPhi(e->b, em_vec(e, e->t_i32), "")};
    LLVMAddIncoming(v.r, (LLVMValueRef[]){slow.r, fast.r}, from, 2);
    LLVMAddIncoming(v.low, (LLVMValueRef[]){slow.low, fast.low}, from, 2);
    LLVMAddIncoming(v.n, (LLVMValueRef[]){slow.n, fast.n}, from, 2);
    return v;
}

/* t = r + (r^3 P(r^2) + low tan'(r)), or -1 / t. */
static LLVMValueRef tan_pair(emit *e, LLVMValueRef a) {
    trig_pair v = reduce_pair(e, a);
    LLVMValueRef z = em_fmul(e, v.r, v.r), cube = em_fmul(e, z, v.r);
    LLVMValueRef low =
        em_mad(e, v.low, em_fmul(e, z, em_f32(e, 1.6)), v.low); /* tan' = 1 + tan^2, nearly 1 + 1.6 r^2 */
    LLVMValueRef t = em_fadd(e, v.r, em_mad(e, cube, mi_poly(e, z, tan_p, 7), low));
    LLVMValueRef is_odd = em_icmp(e, LLVMIntNE, em_and(e, v.n, em_i32(e, 1)), em_i32(e, 0));
    return em_select(e, is_odd, em_fdiv(e, em_f32(e, -1), t), t);
}

/* Error: 1.87 ULP (0.51 without fma). */
LLVMValueRef math_tan(emit *e, LLVMValueRef x) {
    LLVMValueRef a = em_fabs(e, x), y = e->level->has_fma ? tan_pair(e, a) : tan_wide(e, a);
    return finite_only(e, a, mi_flip_sign(e, y, em_bits_of_f32(e, x)));
}
