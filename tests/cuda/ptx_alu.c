/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ptx_alu.c: arithmetic of PTX instructions on one lane. */
#include "ptx.h"
#include <fenv.h>
#include <math.h>
#include <string.h>

int ptx_bytes(ptx_type t) {
    switch (t) {
    case PTX_B8:
    case PTX_U8:
    case PTX_S8:
    case PTX_PRED: return 1;
    case PTX_B16:
    case PTX_U16:
    case PTX_S16:
    case PTX_F16:
    case PTX_BF16: return 2;
    case PTX_B64:
    case PTX_U64:
    case PTX_S64:
    case PTX_F64: return 8;
    case PTX_B128: return 16;
    case PTX_NONE: return 0;
    default: return 4;
    }
}

static bool is_signed(ptx_type t) { return t >= PTX_S8 && t <= PTX_S64; }
static bool is_float(ptx_type t) { return t >= PTX_F16 && t <= PTX_TF32; }
static bool has(const ptx_inst *i, unsigned __int128 m) { return (i->modifier & m) != 0; }

static uint64_t cut(ptx_type t, uint64_t v) {
    int bytes = ptx_bytes(t);
    return t == PTX_PRED ? v & 1 : bytes >= 8 ? v : v & ((1ull << 8 * bytes) - 1);
}

static int64_t as_signed(ptx_type t, uint64_t v) {
    int shift = 64 - 8 * ptx_bytes(t);
    return (int64_t)(v << shift) >> shift;
}

/* Nearest value with `digits` binary digits and least exponent `low` (of the last digit), ties to even; v is exact. */
static double round_to(double v, int digits, int low) {
    if (v == 0 || !isfinite(v)) return v;
    int e;
    frexp(v, &e);
    int last = e - digits < low ? low : e - digits;
    return ldexp(nearbyint(ldexp(v, -last)), last);
}

double ptx_to_double(ptx_type t, uint64_t b) {
    if (t == PTX_F64) {
        double d;
        memcpy(&d, &b, 8);
        return d;
    }
    uint32_t w = (uint32_t)b;
    if (t == PTX_BF16) w <<= 16;
    if (t == PTX_TF32) w &= 0xffffe000u; /* tensor cores read the high bits */
    if (t == PTX_F16) {
        int e = b >> 10 & 31, m = b & 1023;
        double d = e == 31 ? m ? NAN : INFINITY : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
        return b >> 15 & 1 ? -d : d;
    }
    float f;
    memcpy(&f, &w, 4);
    return (double)f;
}

uint64_t ptx_from_double(ptx_type t, double v) {
    uint64_t b = 0;
    if (t == PTX_F64) {
        memcpy(&b, &v, 8);
        return b;
    }
    if (t == PTX_F16) {
        if (isnan(v)) return 0x7fff;
        double r = fabs(round_to(v, 11, -24));
        uint64_t sign = signbit(v) ? 0x8000 : 0;
        if (r >= 65520) return sign | 0x7c00;
        if (r < ldexp(1, -14)) return sign | (uint64_t)ldexp(r, 24);
        int e;
        frexp(r, &e);
        return sign | (uint64_t)(e + 14) << 10 | ((uint64_t)ldexp(r, 11 - e) & 1023);
    }
    if (t == PTX_BF16 && isnan(v)) return 0x7fff;
    if (t == PTX_F32 && isnan(v)) return 0x7fffffff;
    float f = (float)(t == PTX_BF16 ? round_to(v, 8, -133) : t == PTX_TF32 ? round_to(v, 11, -136) : v);
    uint32_t w;
    memcpy(&w, &f, 4);
    return t == PTX_BF16 ? w >> 16 : w;
}

static uint64_t high(bool is_s, int bytes, uint64_t a, uint64_t b, ptx_type t) {
    if (is_s) {
        __int128 p = (__int128)as_signed(t, a) * as_signed(t, b);
        return (uint64_t)(p >> 8 * bytes);
    }
    unsigned __int128 p = (unsigned __int128)cut(t, a) * cut(t, b);
    return (uint64_t)(p >> 8 * bytes);
}

static ptx_type wider(ptx_type t) {
    switch (t) {
    case PTX_U16: return PTX_U32;
    case PTX_S16: return PTX_S32;
    case PTX_U32: return PTX_U64;
    default: return PTX_S64;
    }
}

/* a * b, by lo, hi or wide. */
static uint64_t product(const ptx_inst *i, uint64_t a, uint64_t b) {
    bool is_s = is_signed(i->type);
    if (has(i, PTX_M(HI))) return high(is_s, ptx_bytes(i->type), a, b, i->type);
    if (has(i, PTX_M(WIDE)))
        return is_s ? (uint64_t)(as_signed(i->type, a) * as_signed(i->type, b)) : cut(i->type, a) * cut(i->type, b);
    return a * b;
}

static uint64_t permute(uint64_t a, uint64_t b, uint64_t selector) {
    uint64_t both = (b & 0xffffffff) << 32 | (a & 0xffffffff), out = 0;
    for (int k = 0; k < 4; k++) {
        unsigned s = selector >> 4 * k & 15;
        uint64_t byte = both >> 8 * (s & 7) & 255;
        if (s & 8) byte = byte & 128 ? 255 : 0;
        out |= byte << 8 * k;
    }
    return out;
}

static uint64_t integer(const ptx_inst *i, const uint64_t *in, bool *ok) {
    ptx_type t = i->type;
    int bits = 8 * ptx_bytes(t);
    uint64_t a = cut(t, in[0]), b = i->n > 2 ? cut(t, in[1]) : 0, c = i->n > 3 ? in[2] : 0;
    int64_t sa = as_signed(t, a), sb = as_signed(t, b);
    switch (i->op) {
    case PTX_ADD:
        if (has(i, PTX_M(SAT))) {
            int64_t s = sa + sb;
            return (uint64_t)(s > INT32_MAX ? INT32_MAX : s < INT32_MIN ? INT32_MIN : s);
        }
        return a + b;
    case PTX_SUB: return a - b;
    case PTX_MUL: return product(i, a, b);
    case PTX_MAD: return product(i, a, b) + (has(i, PTX_M(WIDE)) ? cut(wider(t), c) : c);
    case PTX_DIV: return b == 0 ? ~0ull : is_signed(t) ? sb == -1 ? 0 - a : (uint64_t)(sa / sb) : a / b;
    case PTX_REM: return b == 0 ? a : is_signed(t) ? sb == -1 ? 0 : (uint64_t)(sa % sb) : a % b;
    case PTX_ABS: return sa < 0 ? 0 - a : a;
    case PTX_NEG: return 0 - a;
    case PTX_MIN:
    case PTX_MAX: {
        bool is_a = is_signed(t) ? sa < sb : a < b;
        if (i->op == PTX_MAX) is_a = is_signed(t) ? sa > sb : a > b;
        uint64_t r = is_a ? a : b;
        return has(i, PTX_M(RELU)) && as_signed(t, r) < 0 ? 0 : r;
    }
    case PTX_AND: return a & b;
    case PTX_OR: return a | b;
    case PTX_XOR: return a ^ b;
    case PTX_NOT: return t == PTX_PRED ? !a : ~a;
    case PTX_SHL: return (in[1] & 0xffffffff) >= (unsigned)bits ? 0 : a << (in[1] & 63);
    case PTX_SHR: {
        uint64_t by = in[1] & 0xffffffff;
        if (is_signed(t)) return (uint64_t)(sa >> (by >= (unsigned)bits ? bits - 1 : (int)by));
        return by >= (unsigned)bits ? 0 : a >> by;
    }
    case PTX_SHF: {
        uint64_t both = (in[1] & 0xffffffff) << 32 | (in[0] & 0xffffffff), by = in[2] & 0xffffffff;
        by = has(i, PTX_M(WRAP)) ? by & 31 : by > 32 ? 32 : by;
        return has(i, PTX_M(L)) ? (by == 32 ? both : both << by >> 32) : both >> by;
    }
    case PTX_POPC: return (uint64_t)__builtin_popcountll(a);
    case PTX_CLZ: return a ? (uint64_t)(__builtin_clzll(a) - (64 - bits)) : (uint64_t)bits;
    case PTX_BREV: {
        uint64_t r = 0;
        for (int k = 0; k < bits; k++) r |= (a >> k & 1) << (bits - 1 - k);
        return r;
    }
    case PTX_BFE: {
        int pos = (int)(in[1] & 255), len = (int)(in[2] & 255);
        if (len == 0) return 0;
        uint64_t r = 0, top = pos + len - 1 < bits - 1 ? (uint64_t)(pos + len - 1) : (uint64_t)(bits - 1);
        for (int k = 0; k < bits; k++) {
            bool inside = k < len && pos + k < bits;
            if (inside) r |= (a >> (pos + k) & 1) << k;
            else if (is_signed(t)) r |= (a >> top & 1) << k;
        }
        return r;
    }
    case PTX_BFI: {
        int pos = (int)(in[2] & 255), len = (int)(in[3] & 255);
        uint64_t r = b;
        for (int k = 0; k < len && pos + k < bits; k++) r = (r & ~(1ull << (pos + k))) | (a >> k & 1) << (pos + k);
        return r;
    }
    case PTX_PRMT: return permute(in[0], in[1], in[2]);
    default: *ok = false; return 0;
    }
}

static const unsigned __int128 directed = PTX_M(RZ) | PTX_M(RM) | PTX_M(RP);
static void begin_rounding(const ptx_inst *i) {
    if (has(i, directed)) fesetround(has(i, PTX_M(RZ)) ? FE_TOWARDZERO : has(i, PTX_M(RM)) ? FE_DOWNWARD : FE_UPWARD);
}
static void end_rounding(const ptx_inst *i) {
    if (has(i, directed)) fesetround(FE_TONEAREST);
}

static uint64_t f32_bits(float f) {
    uint32_t w;
    memcpy(&w, &f, 4);
    return f != f ? 0x7fffffff : w;
}

static float flushed(const ptx_inst *i, float f) {
    return has(i, PTX_M(FTZ)) && fpclassify(f) == FP_SUBNORMAL ? copysignf(0, f) : f;
}

static double least(const ptx_inst *i, double a, double b, bool is_max) {
    if (isnan(a) || isnan(b)) return has(i, PTX_M(NANS)) ? NAN : isnan(a) ? b : a;
    if (a == 0 && b == 0) return signbit(a) == is_max ? b : a;
    return is_max ? (a > b ? a : b) : a < b ? a : b;
}

/* In f32 for f32, in f64 for f64; halves in f64 (exact but for div and the like) and rounded once. */
static uint64_t floating(const ptx_inst *i, const uint64_t *in, bool *ok) {
    ptx_type t = i->type;
    if (i->op == PTX_NEG || i->op == PTX_ABS) {
        uint64_t sign = 1ull << (8 * ptx_bytes(t) - 1);
        return i->op == PTX_NEG ? in[0] ^ sign : in[0] & ~sign;
    }
    if (i->op == PTX_COPYSIGN) {
        uint64_t sign = 1ull << (8 * ptx_bytes(t) - 1);
        return (in[1] & ~sign) | (in[0] & sign);
    }
    volatile double a = ptx_to_double(t, in[0]), b = i->n > 2 ? ptx_to_double(t, in[1]) : 0,
                    c = i->n > 3 ? ptx_to_double(t, in[2]) : 0, r = 0;
    volatile float fa = flushed(i, (float)a), fb = flushed(i, (float)b), fc = flushed(i, (float)c), fr = 0;
    bool is_f32 = t == PTX_F32;
    begin_rounding(i);
    switch (i->op) {
    case PTX_ADD: r = a + b, fr = fa + fb; break;
    case PTX_SUB: r = a - b, fr = fa - fb; break;
    case PTX_MUL: r = a * b, fr = fa * fb; break;
    case PTX_DIV: r = a / b, fr = fa / fb; break;
    case PTX_FMA:
    case PTX_MAD: r = fma(a, b, c), fr = fmaf(fa, fb, fc); break;
    case PTX_SQRT: r = sqrt(a), fr = sqrtf(fa); break;
    case PTX_RCP: r = 1 / a, fr = 1 / fa; break;
    case PTX_RSQRT: r = 1 / sqrt(a), fr = (float)r; break;
    case PTX_EX2: r = exp2(a), fr = (float)r; break;
    case PTX_LG2: r = log2(a), fr = (float)r; break;
    case PTX_SIN: r = sin(a), fr = (float)r; break;
    case PTX_COS: r = cos(a), fr = (float)r; break;
    case PTX_TANH: r = tanh(a), fr = (float)r; break;
    case PTX_MIN: r = least(i, a, b, false), fr = (float)r; break;
    case PTX_MAX: r = least(i, a, b, true), fr = (float)r; break;
    default: *ok = false;
    }
    end_rounding(i);
    if (has(i, PTX_M(SAT))) r = isnan(r) ? 0 : fmin(fmax(r, 0), 1), fr = isnan(fr) ? 0 : fminf(fmaxf(fr, 0), 1);
    return is_f32 ? f32_bits(flushed(i, fr)) : ptx_from_double(t, r);
}

static double to_integral(const ptx_inst *i, double v) {
    if (has(i, PTX_M(RZI))) return trunc(v);
    if (has(i, PTX_M(RMI))) return floor(v);
    if (has(i, PTX_M(RPI))) return ceil(v);
    return has(i, PTX_M(RNI)) ? nearbyint(v) : v;
}

static uint64_t saturate(ptx_type t, double v) {
    int bits = 8 * ptx_bytes(t);
    if (isnan(v)) return 0;
    if (is_signed(t)) {
        double top = ldexp(1, bits - 1);
        return v >= top ? (1ull << (bits - 1)) - 1 : v < -top ? 1ull << (bits - 1) : (uint64_t)(int64_t)v;
    }
    return v >= ldexp(1, bits) ? ~0ull : v <= 0 ? 0 : (uint64_t)v;
}

/* type: to; from: of the source */
/* f32 to tf32, ties away from zero. */
static uint64_t to_tf32(uint32_t bits) {
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fffffff;
    return (bits + 0x1000u) & 0xffffe000u;
}

static uint64_t convert(const ptx_inst *i, uint64_t a) {
    ptx_type to = i->type, from = i->from;
    if (to == PTX_TF32 && from == PTX_F32 && has(i, PTX_M(RNA))) return to_tf32((uint32_t)a);
    if (is_float(from)) {
        double v = ptx_to_double(from, a);
        if (has(i, PTX_M(FTZ)) && from == PTX_F32) v = (double)flushed(i, (float)v);
        if (!is_float(to)) return saturate(to, to_integral(i, v));
        if (ptx_bytes(to) >= ptx_bytes(from)) v = to_integral(i, v);
        if (has(i, PTX_M(SAT))) v = isnan(v) ? 0 : fmin(fmax(v, 0), 1);
        if (to == PTX_F32 && from == PTX_F64) {
            volatile double x = v;
            begin_rounding(i);
            volatile float f = (float)x;
            end_rounding(i);
            return f32_bits(flushed(i, f));
        }
        return ptx_from_double(to, v);
    }
    int64_t s = as_signed(from, a);
    uint64_t u = cut(from, a);
    if (!is_float(to)) {
        if (has(i, PTX_M(SAT))) {
            double v = is_signed(from) ? (double)s
                                       : (double)u; /* saturation starts far below where this rounds, or is exact */
            if (ptx_bytes(to) < ptx_bytes(from) || is_signed(to) != is_signed(from)) return saturate(to, v);
        }
        return is_signed(from) ? (uint64_t)s : u;
    }
    begin_rounding(i);
    volatile float f = is_signed(from) ? (float)s : (float)u;
    volatile double d = is_signed(from) ? (double)s : (double)u;
    end_rounding(i);
    if (to == PTX_F32) return f32_bits(f);
    if (to == PTX_F64) return ptx_from_double(to, d);
    /* halves: |s| below 2^53 is exact in d, and what is above is infinite in f16 and rounds the same by the leading
     * bits in bf16 unless d was a tie made by rounding: sticky */
    long double l = is_signed(from) ? (long double)s : (long double)u;
    double near = (double)l;
    if ((long double)near != l && near != 0) near = nextafter(near, l > (long double)near ? INFINITY : -INFINITY);
    return ptx_from_double(to, near);
}

bool ptx_compare(const ptx_inst *i, uint64_t a, uint64_t b, bool *ok) {
    ptx_type t = i->type;
    if (is_float(t)) {
        double x = ptx_to_double(t, a), y = ptx_to_double(t, b);
        if (has(i, PTX_M(FTZ)) && t == PTX_F32) x = (double)flushed(i, (float)x), y = (double)flushed(i, (float)y);
        bool u = isnan(x) || isnan(y);
        if (has(i, PTX_M(EQ))) return x == y;
        if (has(i, PTX_M(NE))) return !u && x != y;
        if (has(i, PTX_M(LT))) return x < y;
        if (has(i, PTX_M(LE))) return x <= y;
        if (has(i, PTX_M(GT))) return x > y;
        if (has(i, PTX_M(GE))) return x >= y;
        if (has(i, PTX_M(EQU))) return u || x == y;
        if (has(i, PTX_M(NEU))) return u || x != y;
        if (has(i, PTX_M(LTU))) return u || x < y;
        if (has(i, PTX_M(LEU))) return u || x <= y;
        if (has(i, PTX_M(GTU))) return u || x > y;
        if (has(i, PTX_M(GEU))) return u || x >= y;
        if (has(i, PTX_M(NUM))) return !u;
        if (has(i, PTX_M(NAN_))) return u;
    } else {
        uint64_t x = cut(t, a), y = cut(t, b);
        int64_t sx = as_signed(t, a), sy = as_signed(t, b);
        bool s = is_signed(t);
        if (has(i, PTX_M(EQ))) return x == y;
        if (has(i, PTX_M(NE))) return x != y;
        if (has(i, PTX_M(LT))) return s ? sx < sy : x < y;
        if (has(i, PTX_M(LE))) return s ? sx <= sy : x <= y;
        if (has(i, PTX_M(GT))) return s ? sx > sy : x > y;
        if (has(i, PTX_M(GE))) return s ? sx >= sy : x >= y;
    }
    *ok = false;
    return false;
}

static uint64_t packed(const ptx_inst *i, const uint64_t *in, bool *ok) {
    ptx_inst one = *i;
    uint64_t low[4], up[4];
    for (int k = 0; k < i->n - 1; k++) low[k] = in[k] & 0xffff, up[k] = in[k] >> 16 & 0xffff;
    if (i->type == PTX_U16X2 || i->type == PTX_S16X2) { /* min, max, add */
        one.type = i->type == PTX_U16X2 ? PTX_U16 : PTX_S16;
        return (integer(&one, low, ok) & 0xffff) | (integer(&one, up, ok) & 0xffff) << 16;
    }
    one.type = i->type == PTX_F16X2 ? PTX_F16 : PTX_BF16;
    return (floating(&one, low, ok) & 0xffff) | (floating(&one, up, ok) & 0xffff) << 16;
}

uint64_t ptx_alu(const ptx_inst *i, const uint64_t *in, bool *ok) {
    ptx_type t = i->type;
    uint64_t r;
    *ok = true;
    switch (i->op) {
    case PTX_CVT:
        if (t == PTX_F16X2 || t == PTX_BF16X2) { /* two sources: the first goes to the upper half */
            ptx_inst one = *i;
            one.type = t == PTX_F16X2 ? PTX_F16 : PTX_BF16;
            return (convert(&one, in[0]) & 0xffff) << 16 | (convert(&one, in[1]) & 0xffff);
        }
        r = cut(t, convert(i, in[0])); /* a register may be wider than the type */
        return is_signed(t) ? (uint64_t)as_signed(t, r) : r;
    case PTX_SELP: return cut(t, in[2] & 1 ? in[0] : in[1]);
    case PTX_SETP: return ptx_compare(i, in[0], in[1], ok);
    default: break;
    }
    if (has(i, PTX_M(RELU)) && ((i->op != PTX_MIN && i->op != PTX_MAX) || is_float(t))) *ok = false;
    bool is_bitwise = i->op == PTX_AND || i->op == PTX_OR || i->op == PTX_XOR || i->op == PTX_NOT;
    if (t >= PTX_F16X2 && t <= PTX_S16X2) r = packed(i, in, ok);
    else if (is_float(t) && !is_bitwise) r = floating(i, in, ok);
    else r = integer(i, in, ok);
    if (has(i, PTX_M(WIDE))) t = wider(t);
    if (i->op == PTX_POPC || i->op == PTX_CLZ) t = PTX_U32;
    return cut(t, r);
}
