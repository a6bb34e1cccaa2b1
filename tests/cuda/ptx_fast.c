/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ptx_fast.c: the instructions that kernels consist of, on all lanes of a warp at once, with the results of ptx_alu.c.
 * What it does not know it leaves alone. */
#include "ptx.h"
#include <math.h>
#include <string.h>

enum { LANES = 32 };
/* fma and wide vectors where the machine has them; the sanitizers' start does not bear the choice */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define BY_MACHINE __attribute__((target_clones("default", "arch=x86-64-v3"), optimize("O3", "no-math-errno")))
#else
#define BY_MACHINE
#endif

static inline float as_float(uint64_t v) {
    uint32_t w = (uint32_t)v;
    float f;
    memcpy(&f, &w, 4);
    return f;
}
static inline uint64_t bits_of(float f) {
    uint32_t w;
    memcpy(&w, &f, 4);
    return f != f ? 0x7fffffff : w;
}

/* The lanes' values of a source: registers as they lie, or `room` filled; NULL: not for here. */
static const uint64_t *lanes_of(const ptx_operand *o, const uint64_t *reg, uint64_t *room) {
    if (o->kind == PTX_REG && !o->is_negated) return reg + o->reg * LANES;
    if (o->kind != PTX_IMM) return NULL;
    for (int l = 0; l < LANES; l++) room[l] = o->value;
    return room;
}

#define EACH(VALUE)                                                                                                    \
    for (int l = 0; l < LANES; l++) out[l] = (VALUE);                                                                  \
    return true
#define A32 ((uint32_t)a[l])
#define B32 ((uint32_t)b[l])
#define C32 ((uint32_t)c[l])
#define FA  as_float(a[l])
#define FB  as_float(b[l])
#define FC  as_float(c[l])

BY_MACHINE static bool floats(ptx_op op, const uint64_t *a, const uint64_t *b, const uint64_t *c, uint64_t *out) {
    switch (op) {
    case PTX_ADD: EACH(bits_of(FA + FB));
    case PTX_SUB: EACH(bits_of(FA - FB));
    case PTX_MUL: EACH(bits_of(FA * FB));
    case PTX_FMA: EACH(bits_of(fmaf(FA, FB, FC)));
    case PTX_NEG: EACH(A32 ^ 0x80000000u);
    case PTX_ABS: EACH(A32 & 0x7fffffffu);
    case PTX_MOV: EACH(A32);
    case PTX_SELP: EACH(c[l] & 1 ? A32 : B32);
    default: return false;
    }
}

BY_MACHINE static bool words(ptx_op op, bool is_signed, const uint64_t *a, const uint64_t *b, const uint64_t *c,
                             uint64_t *out) {
    switch (op) {
    case PTX_ADD: EACH(A32 + B32);
    case PTX_SUB: EACH(A32 - B32);
    case PTX_AND: EACH(A32 & B32);
    case PTX_OR: EACH(A32 | B32);
    case PTX_XOR: EACH(A32 ^ B32);
    case PTX_NOT: EACH(~A32);
    case PTX_MOV: EACH(A32);
    case PTX_SELP: EACH(c[l] & 1 ? A32 : B32);
    case PTX_SHL: EACH(B32 >= 32 ? 0 : A32 << (B32 & 31));
    case PTX_SHR:
        if (is_signed) { EACH((uint32_t)((int32_t)A32 >> (B32 >= 32 ? 31 : B32))); }
        EACH(B32 >= 32 ? 0 : A32 >> (B32 & 31));
    default: return false;
    }
}

BY_MACHINE static bool long_words(ptx_op op, bool is_signed, const uint64_t *a, const uint64_t *b, const uint64_t *c,
                                  uint64_t *out) {
    switch (op) {
    case PTX_ADD: EACH(a[l] + b[l]);
    case PTX_SUB: EACH(a[l] - b[l]);
    case PTX_AND: EACH(a[l] & b[l]);
    case PTX_OR: EACH(a[l] | b[l]);
    case PTX_XOR: EACH(a[l] ^ b[l]);
    case PTX_MOV: EACH(a[l]);
    case PTX_SELP: EACH(c[l] & 1 ? a[l] : b[l]);
    case PTX_SHL: EACH(B32 >= 64 ? 0 : a[l] << (B32 & 63));
    case PTX_SHR:
        if (is_signed) { EACH((uint64_t)((int64_t)a[l] >> (B32 >= 64 ? 63 : B32))); }
        EACH(B32 >= 64 ? 0 : a[l] >> (B32 & 63));
    default: return false;
    }
}

/* mul.lo, mul.wide and mad.lo of integers */
BY_MACHINE static bool products(const ptx_inst *i, bool is_long, bool is_signed, const uint64_t *a, const uint64_t *b,
                                const uint64_t *c, uint64_t *out) {
    bool is_mad = i->op == PTX_MAD;
    if (i->modifier == PTX_M(LO)) {
        if (is_long) { EACH(a[l] * b[l] + (is_mad ? c[l] : 0)); }
        EACH(A32 * B32 + (is_mad ? C32 : 0));
    }
    if (i->modifier != PTX_M(WIDE) || is_long) return false;
    if (is_signed) { EACH((uint64_t)((int64_t)(int32_t)A32 * (int32_t)B32) + (is_mad ? c[l] : 0)); }
    EACH((uint64_t)A32 * B32 + (is_mad ? c[l] : 0));
}

#define COMPARE(A, B)                                                                                                  \
    if (m == PTX_M(EQ)) { EACH((A) == (B)); }                                                                          \
    if (m == PTX_M(LT)) { EACH((A) < (B)); }                                                                           \
    if (m == PTX_M(LE)) { EACH((A) <= (B)); }                                                                          \
    if (m == PTX_M(GT)) { EACH((A) > (B)); }                                                                           \
    if (m == PTX_M(GE)) { EACH((A) >= (B)); }

BY_MACHINE static bool compares(ptx_type t, unsigned __int128 m, const uint64_t *a, const uint64_t *b, uint64_t *out) {
    if (t == PTX_F32) {
        COMPARE(FA, FB)
        if (m == PTX_M(NAN_)) { EACH(FA != FA || FB != FB); }
        return false;
    }
    if (m == PTX_M(NE) && (t == PTX_S64 || t == PTX_U64 || t == PTX_B64)) { EACH(a[l] != b[l]); }
    if (m == PTX_M(NE) && (t == PTX_S32 || t == PTX_U32 || t == PTX_B32)) { EACH(A32 != B32); }
    if (t == PTX_S64) {
        COMPARE((int64_t)a[l], (int64_t)b[l])
    } else if (t == PTX_U64 || t == PTX_B64) {
        COMPARE(a[l], b[l])
    } else if (t == PTX_S32) {
        COMPARE((int32_t)A32, (int32_t)B32)
    } else if (t == PTX_U32 || t == PTX_B32) {
        COMPARE(A32, B32)
    }
    return false;
}

static bool predicates(ptx_op op, const uint64_t *a, const uint64_t *b, uint64_t *out) {
    switch (op) {
    case PTX_AND: EACH((a[l] & b[l]) & 1);
    case PTX_OR: EACH((a[l] | b[l]) & 1);
    case PTX_XOR: EACH((a[l] ^ b[l]) & 1);
    case PTX_NOT: EACH(!(a[l] & 1));
    default: return false;
    }
}

static bool compute(const ptx_inst *i, const uint64_t *a, const uint64_t *b, const uint64_t *c, uint64_t *out) {
    static const unsigned __int128 nearest = PTX_M(RN);
    bool is_long = i->type == PTX_B64 || i->type == PTX_U64 || i->type == PTX_S64;
    bool is_word = i->type == PTX_B32 || i->type == PTX_U32 || i->type == PTX_S32;
    bool is_signed = i->type == PTX_S32 || i->type == PTX_S64;
    if (i->op == PTX_SETP) return compares(i->type, i->modifier, a, b, out);
    if ((i->op == PTX_MUL || i->op == PTX_MAD) && (is_long || is_word))
        return products(i, is_long, is_signed, a, b, c, out);
    if (i->modifier & ~nearest) return false;
    if (i->type == PTX_F32) return floats(i->op, a, b, c, out);
    if (i->modifier) return false;
    if (is_word) return words(i->op, is_signed, a, b, c, out);
    if (is_long) return long_words(i->op, is_signed, a, b, c, out);
    if (i->type == PTX_PRED) return predicates(i->op, a, b, out);
    return false;
}

bool ptx_fast(const ptx_inst *i, uint64_t *reg, uint32_t active) {
    uint64_t room[3][LANES], out[LANES];
    const uint64_t *in[3] = {room[0], room[0], room[0]};
    if (i->n < 2 || i->n > 4 || (i->op == PTX_SETP && i->n != 3) || i->in[0].kind != PTX_REG || i->in[0].second >= 0)
        return false;
    for (int k = 1; k < i->n; k++) {
        in[k - 1] = lanes_of(&i->in[k], reg, room[k - 1]);
        if (!in[k - 1]) return false;
    }
    if (i->n < 4 && (i->op == PTX_FMA || i->op == PTX_MAD || i->op == PTX_SELP)) return false;
    if (!compute(i, in[0], in[1], in[2], out)) return false;
    uint64_t *to = reg + i->in[0].reg * LANES;
    if (active == ~0u) return memcpy(to, out, sizeof out), true;
    for (int l = 0; l < LANES; l++)
        if (active >> l & 1) to[l] = out[l];
    return true;
}
