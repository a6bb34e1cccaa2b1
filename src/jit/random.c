/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* random.c: random numbers (ir/philox.h has the definition). A group number becomes four words by ten rounds of Philox;
 * the words become elements: 24 bits of one (f32) or 53 of two (f64), or normal numbers by pairs.
 *
 *   em_random         an element a lane, of whatever number: each lane computes its group and takes one word of it
 *   em_random_block   adjacent elements: a group a lane, then the words are interleaved by shuffles
 *
 * Words live in lanes of 64 bits, of which the upper halves may hold anything: the products of 32 bits are one vpmuludq
 * each, and what they leave behind needs no cleaning. The same bits either way, and at every width. */
#include "ir/philox.h"
#include "jit/math_impl.h"

static LLVMValueRef splat64(emit *e, uint64_t v) { return em_splat(e, em_i64s(e, (int64_t)v)); }
static LLVMValueRef low32(emit *e, LLVMValueRef x) { return em_and(e, x, splat64(e, UINT32_MAX)); }

/* The rounds are a loop: unrolled they would be most of a kernel's time of compilation, and no faster. seed: at the
 * current width. */
static void words(emit *e, LLVMValueRef seed, LLVMValueRef group, LLVMValueRef w[4]) {
    LLVMValueRef key[2] = {seed, em_lshr(e, seed, 32)},
                 start[4] = {group, em_lshr(e, group, 32), splat64(e, 0), splat64(e, 0)};
    em_loop l = em_for(e, em_i64s(e, 0), em_i64s(e, PHILOX_ROUNDS), em_i64s(e, 1));
    for (int i = 0; i < 4; i++) w[i] = em_loop_phi(e, &l, start[i]);
    for (int i = 0; i < 2; i++) key[i] = em_loop_phi(e, &l, key[i]);
    LLVMValueRef a = em_mul(e, low32(e, w[0]), splat64(e, PHILOX_M0)),
                 b = em_mul(e, low32(e, w[2]), splat64(e, PHILOX_M1));
    em_loop_next(e, w[0], em_xor(e, em_xor(e, em_lshr(e, b, 32), w[1]), key[0]));
    em_loop_next(e, w[1], b);
    em_loop_next(e, w[2], em_xor(e, em_xor(e, em_lshr(e, a, 32), w[3]), key[1]));
    em_loop_next(e, w[3], a);
    em_loop_next(e, key[0], em_add(e, key[0], splat64(e, PHILOX_W0)));
    em_loop_next(e, key[1], em_add(e, key[1], splat64(e, PHILOX_W1)));
    em_end(e, &l);
}

/* ---- words to uniform numbers ---- */
static LLVMValueRef uniform_of_32(emit *e, LLVMValueRef word) { /* i32 */
    LLVMValueRef v = LLVMBuildSIToFP(e->b, em_lshr(e, word, 8), em_vec(e, e->t_f32), "");
    return em_fmul(e, v, em_f32(e, 0x1p-24));
}

static LLVMValueRef uniform_f32(emit *e, LLVMValueRef word) {
    return uniform_of_32(e, LLVMBuildTrunc(e->b, word, em_vec(e, e->t_i32), ""));
}

/* v < 2^52 in i64 as f64, exactly: put below the exponent of 2^52, which is taken off again. */
static LLVMValueRef small_to_f64(emit *e, LLVMValueRef v) {
    LLVMValueRef bits = em_or(e, v, splat64(e, UINT64_C(0x4330000000000000)));
    return em_fsub(e, LLVMBuildBitCast(e->b, bits, em_vec(e, e->t_f64), ""), em_f64(e, 0x1p52));
}

static LLVMValueRef uniform_f64(emit *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef high = em_fmul(e, small_to_f64(e, em_lshr(e, low32(e, a), 5)), em_f64(e, 0x1p26));
    return em_fmul(e, em_fadd(e, high, small_to_f64(e, em_lshr(e, low32(e, b), 6))), em_f64(e, 0x1p-53));
}

/* ---- pairs of uniform numbers to normal ones ---- */
/* Terms of sin(2 pi r) / r and cos(2 pi r) in powers of r^2, for |r| <= 1/8: (2 pi)^k / k! with alternating signs. */
static double term(int k) {
    long double t = k / 2 % 2 ? -1 : 1;
    for (int i = 1; i <= k; i++) t *= 6.283185307179586476925286766559L / i;
    return (double)t;
}

/* The sum of terms first, first + 2, .. last, by Horner's rule. */
static LLVMValueRef series(emit *e, ir_dtype t, LLVMValueRef r2, int first, int last) {
    LLVMValueRef y = em_const(e, t, term(last));
    for (int k = last - 2; k >= first; k -= 2) y = em_mad(e, y, r2, em_const(e, t, term(k)));
    return y;
}

/* z[0] = sqrt(-2 ln(1 - u)) cos(2 pi v), z[1] the same with sin. 4 v is rounded to the quarter, and the rest of v is
 * exact, so the result is as good around the zeros of cos and sin as anywhere. */
static void box_muller(emit *e, ir_dtype t, LLVMValueRef u, LLVMValueRef v, LLVMValueRef z[2]) {
    const bool is_f64 = t == FUSOR_F64;
    const double turn = 6.283185307179586476925;
    LLVMTypeRef word = em_vec(e, is_f64 ? e->t_i64 : e->t_i32);
    e->dt = t;
    LLVMValueRef w = em_fsub(e, em_const(e, t, 1), u), two = em_const(e, t, 2);
    LLVMValueRef ln = is_f64 ? math64_log(e, w) : math_log(e, w);
    LLVMValueRef radius = em_fabs(e, em_fmul(e, two, ln));
    radius = em_intrinsic(e, "llvm.sqrt", 1, &radius);
    /* adding 1.5 * 2^52 (2^23) rounds to an integer, whose lowest bits are then those of the sum */
    LLVMValueRef magic = em_const(e, t, is_f64 ? 0x1.8p52 : 0x1.8p23);
    LLVMValueRef sum = em_fadd(e, em_fmul(e, v, em_const(e, t, 4)), magic);
    LLVMValueRef bits = LLVMBuildBitCast(e->b, sum, word, "");
    LLVMValueRef r = em_fsub(e, v, em_fmul(e, em_fsub(e, sum, magic), em_const(e, t, 0.25))), r2 = em_fmul(e, r, r);
    LLVMValueRef one = em_splat(e, LLVMConstInt(is_f64 ? e->t_i64 : e->t_i32, 1, 0)), zero = LLVMConstNull(word);
    /* 2 pi in two parts: the leading term of sin decides the last bits */
    const double high = is_f64 ? turn : (double)(float)turn, low = is_f64 ? 2.4492935982947064e-16 : turn - high;
    LLVMValueRef rest = em_mad(e, r2, series(e, t, r2, 3, is_f64 ? 19 : 11), em_const(e, t, low));
    LLVMValueRef s = em_mad(e, r, em_const(e, t, high), em_fmul(e, r, rest));
    LLVMValueRef c = em_mad(e, r2, series(e, t, r2, 2, is_f64 ? 18 : 10), em_const(e, t, 1));
    LLVMValueRef is_odd = em_icmp(e, LLVMIntNE, em_and(e, bits, one), zero);
    LLVMValueRef cosine = em_select(e, is_odd, s, c), sine = em_select(e, is_odd, c, s);
    /* signs: sin is negative in quarters 2 and 3, cos in 1 and 2 */
    const int top = is_f64 ? 63 : 31;
    LLVMValueRef sign_s = em_shl(e, em_lshr(e, em_shl(e, bits, top - 1), top), top);
    LLVMValueRef sign_c = em_shl(e, em_lshr(e, em_shl(e, em_add(e, bits, one), top - 1), top), top);
    LLVMValueRef both[2] = {cosine, sine}, sign[2] = {sign_c, sign_s};
    for (int i = 0; i < 2; i++) {
        LLVMValueRef turned = em_xor(e, LLVMBuildBitCast(e->b, both[i], word, ""), sign[i]);
        z[i] = em_fmul(e, radius, LLVMBuildBitCast(e->b, turned, em_type(e, t), ""));
    }
}

/* ---- an element a lane ---- */
LLVMValueRef em_random(emit *e, const ir_kinst *inst, LLVMValueRef seed, LLVMValueRef number) {
    const bool is_f64 = inst->dtype == FUSOR_F64, is_normal = inst->op == IR_OP_RANDOM_NORMAL;
    LLVMValueRef w[4], z[2];
    words(e, seed, em_lshr(e, number, is_f64 ? 1 : 2), w);
    LLVMValueRef zero = splat64(e, 0);
    LLVMValueRef is_odd = em_icmp(e, LLVMIntNE, em_and(e, number, splat64(e, 1)), zero);
    LLVMValueRef is_high = em_icmp(e, LLVMIntNE, em_and(e, number, splat64(e, 2)), zero);
    if (is_f64 && !is_normal) return uniform_f64(e, em_select(e, is_odd, w[2], w[0]), em_select(e, is_odd, w[3], w[1]));
    if (is_f64) {
        box_muller(e, FUSOR_F64, uniform_f64(e, w[0], w[1]), uniform_f64(e, w[2], w[3]), z);
        return em_select(e, is_odd, z[1], z[0]);
    }
    LLVMValueRef first = em_select(e, is_high, w[2], w[0]), second = em_select(e, is_high, w[3], w[1]);
    if (!is_normal) return uniform_f32(e, em_select(e, is_odd, second, first));
    box_muller(e, FUSOR_F32, uniform_f32(e, first), uniform_f32(e, second), z);
    return em_select(e, is_odd, z[1], z[0]);
}

/* ---- adjacent elements ---- */
/* Lanes [from, from + n) of a[0] b[0] a[1] b[1] .., where an item is `width` lanes. */
static LLVMValueRef interleave(emit *e, LLVMValueRef a, LLVMValueRef b, int width, int from, int n) {
    LLVMValueRef index[128];
    const int length = (int)LLVMGetVectorSize(LLVMTypeOf(a));
    for (int i = 0; i < n; i++) {
        const int at = from + i, item = at / width;
        index[i] = LLVMConstInt(e->t_i32, (unsigned)((item % 2 ? length : 0) + item / 2 * width + at % width), 0);
    }
    return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(index, (unsigned)n), "");
}

/* Words 0 and 1 of each group, or 2 and 3, as neighbours: <2 * lanes x i32>. */
static LLVMValueRef pair(emit *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMTypeRef type = LLVMVectorType(e->t_i32, 2 * (unsigned)e->lanes);
    return LLVMBuildBitCast(e->b, em_or(e, low32(e, a), em_shl(e, b, 32)), type, "");
}

int em_random_block(emit *e, const ir_kinst *inst, LLVMValueRef seed, LLVMValueRef first,
                    LLVMValueRef out[EM_RANDOM_MAX]) {
    const bool is_f64 = inst->dtype == FUSOR_F64, is_normal = inst->op == IR_OP_RANDOM_NORMAL;
    const int n = is_f64 ? 2 : 4;
    LLVMValueRef w[4], x[4], lane[64];
    for (int i = 0; i < e->lanes; i++) lane[i] = em_i64s(e, i);
    /* Behind padding, a block may begin before the first element: its groups count up to 0 from below. */
    LLVMValueRef group = LLVMBuildAShr(e->b, first, LLVMConstInt(e->t_i64, is_f64 ? 1 : 2, 0), "");
    words(e, seed, em_add(e, em_splat(e, group), LLVMConstVector(lane, (unsigned)e->lanes)), w);
    if (is_f64) {
        x[0] = uniform_f64(e, w[0], w[1]);
        x[1] = uniform_f64(e, w[2], w[3]);
        if (is_normal) box_muller(e, FUSOR_F64, x[0], x[1], x);
        for (int i = 0; i < n; i++) out[i] = interleave(e, x[0], x[1], 1, i * e->lanes, e->lanes);
        return n;
    }
    if (!is_normal) {
        LLVMValueRef low = pair(e, w[0], w[1]), high = pair(e, w[2], w[3]);
        for (int i = 0; i < n; i++) out[i] = uniform_of_32(e, interleave(e, low, high, 2, i * e->lanes, e->lanes));
        return n;
    }
    for (int i = 0; i < 4; i++) x[i] = uniform_f32(e, w[i]);
    box_muller(e, FUSOR_F32, x[0], x[1], x);
    box_muller(e, FUSOR_F32, x[2], x[3], x + 2);
    LLVMValueRef low = interleave(e, x[0], x[1], 1, 0, 2 * e->lanes),
                 high = interleave(e, x[2], x[3], 1, 0, 2 * e->lanes);
    for (int i = 0; i < n; i++) out[i] = interleave(e, low, high, 2, i * e->lanes, e->lanes);
    return n;
}
