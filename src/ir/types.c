/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* types.c: the element type table and conversions between bits and numbers. Symbolic sizes are in size.c. */
#include "base/small.h"
#include "ir/types.h"
#include "base/bits.h"
#include "base/str.h"
#include <math.h>
#include <string.h>

const ir_dtype_info ir_dtypes[IR_DTYPE_COUNT] = {
#define DTYPE(ID, text, size, class_letter, storage)                                                                   \
    [FUSOR_##ID] = {.name = #text, .bytes = size, .cls = IR_CLASS_##class_letter},
#include "ir/dtype.def"
#undef DTYPE
};

ir_dtype ir_dtype_parse(const char *name, size_t n) {
    for (ir_dtype t = 1; t < IR_DTYPE_COUNT; t++) {
        if (strlen(ir_dtypes[t].name) == n && memcmp(ir_dtypes[t].name, name, n) == 0) return t;
    }
    return 0;
}

const char *ir_dtype_nearest(const char *word) {
    static const char *const others[][2] = {{"float", "f"}, {"bfloat", "bf"}, {"int", "i"}, {"uint", "u"}};
    static const char *const words[][2] = {{"float", "f32"}, {"double", "f64"}, {"half", "f16"},    {"int", "i32"},
                                           {"uint", "u32"},  {"long", "i64"},   {"boolean", "bool"}};
    const char *names[IR_DTYPE_COUNT];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i][0]) == 0) return words[i][1];
    for (int t = 1; t < IR_DTYPE_COUNT; t++) {
        names[t - 1] = ir_dtypes[t].name;
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) { /* "float32" */
            const size_t n = strlen(others[i][0]), m = strlen(others[i][1]);
            if (strncmp(word, others[i][0], n) == 0 && strncmp(ir_dtypes[t].name, others[i][1], m) == 0 &&
                strcmp(word + n, ir_dtypes[t].name + m) == 0)
                return ir_dtypes[t].name;
        }
    }
    return fu_nearest(word, names, IR_DTYPE_COUNT - 1);
}

size_t fusor_dtype_size(fusor_dtype dtype) { return (unsigned)dtype < IR_DTYPE_COUNT ? ir_dtypes[dtype].bytes : 0; }

const char *fusor_dtype_name(fusor_dtype dtype) {
    return (unsigned)dtype < IR_DTYPE_COUNT && dtype != 0 ? ir_dtypes[dtype].name : "?";
}

/* The exact value of d rounded once, to nearest even, to a 16-bit format of `mantissa` stored bits. */
static uint16_t round_to_half(double d, int mantissa) {
    const uint64_t u = fu_f64_bits(d);
    const uint32_t sign = (uint32_t)(u >> 63) << 15;
    const int bias = (1 << (14 - mantissa)) - 1;
    const uint32_t infinity = (uint32_t)(2 * bias + 1) << mantissa;
    const int biased = (int)(u >> 52 & 0x7ff);
    uint64_t m = u & 0xfffffffffffffu;
    if (biased == 0x7ff) return (uint16_t)(sign | infinity | (m ? 1u << (mantissa - 1) : 0));
    if (biased == 0) return (uint16_t)sign; /* zero, or a double far below the smallest half */
    m |= (uint64_t)1 << 52;
    const int e = biased - 1023, e_min = 1 - bias;
    if (e > bias) return (uint16_t)(sign | infinity);
    int shift = 52 - mantissa;
    if (e < e_min) shift += e_min - e; /* a subnormal result keeps fewer bits */
    if (shift > 54) return (uint16_t)sign;
    const uint64_t half = (uint64_t)1 << (shift - 1), rest = m & ((half << 1) - 1);
    uint64_t q = m >> shift;
    if (rest > half || (rest == half && (q & 1))) q++;
    /* A carry out of the mantissa runs into the exponent, which is what rounding up to a power of two needs. */
    uint64_t code = e < e_min ? q : ((uint64_t)(e + bias) << mantissa) + (q - ((uint64_t)1 << mantissa));
    if (code > infinity) code = infinity;
    return (uint16_t)(sign | (uint32_t)code);
}

uint16_t ir_f64_to_f16(double d) { return round_to_half(d, 10); }
uint16_t ir_f64_to_bf16(double d) { return round_to_half(d, 7); }
uint16_t ir_f32_to_f16(float f) { return round_to_half((double)f, 10); }
uint16_t ir_f32_to_bf16(float f) { return round_to_half((double)f, 7); }

float ir_f16_to_f32(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t e = h >> 10 & 0x1f, m = h & 0x3ffu;
    uint32_t u;
    if (e == 0x1f) {
        u = sign | 0x7f800000u | m << 13;
    } else if (e != 0) {
        u = sign | (e + 112) << 23 | m << 13;
    } else {
        const float f = (float)m * 0x1p-24f; /* exact */
        u = sign | fu_f32_bits(f);
    }
    return fu_bits_f32(u);
}

float ir_bf16_to_f32(uint16_t h) {
    const uint32_t u = (uint32_t)h << 16;
    return fu_bits_f32(u);
}

static ir_bits float_to_bits(ir_dtype t, double v) {
    switch (t) {
    case FUSOR_F64: return fu_f64_bits(v);
    case FUSOR_F32: return fu_f32_bits((float)v);
    case FUSOR_F16: return ir_f64_to_f16(v);
    default: return ir_f64_to_bf16(v);
    }
}

double ir_bits_to_double(ir_dtype t, ir_bits b) {
    switch (t) {
    case FUSOR_F64: return fu_bits_f64(b);
    case FUSOR_F32: return (double)fu_bits_f32((uint32_t)b);
    case FUSOR_F16: return (double)ir_f16_to_f32((uint16_t)b);
    case FUSOR_BF16: return (double)ir_bf16_to_f32((uint16_t)b);
    case FUSOR_I64: return (double)(int64_t)b;
    case FUSOR_I32: return (double)(int32_t)(uint32_t)b;
    case FUSOR_I16: return (double)(int16_t)(uint16_t)b;
    case FUSOR_I8: return (double)(int8_t)(uint8_t)b;
    default: return (double)b; /* unsigned and bool: stored zero-extended */
    }
}

/* Cuts a two's complement value to the width of t, zero-extended: how ir_bits keeps it. */
static ir_bits cut(ir_dtype t, uint64_t v) {
    const unsigned width = 8u * ir_dtypes[t].bytes;
    return width >= 64 ? v : v & (((uint64_t)1 << width) - 1);
}

double ir_odd_double(bool is_negative, uint64_t magnitude) {
    const uint64_t top = magnitude >> 11 | (uint64_t)((magnitude & 0x7ff) != 0);
    const double d = magnitude >> 53 ? (double)top * 2048.0 : (double)magnitude;
    return is_negative ? -d : d;
}

ir_bits ir_bits_from_int(ir_dtype t, int64_t v, bool *fits) {
    bool ok = true;
    ir_bits out = 0;
    if (ir_is_float(t)) {
        if (t == FUSOR_F64) {
            out = fu_f64_bits((double)v);
        } else if (t == FUSOR_F32) {
            out = fu_f32_bits((float)v);
        } else {
            out = float_to_bits(t, ir_odd_double(v < 0, v < 0 ? 0 - (uint64_t)v : (uint64_t)v));
        }
        ok = isfinite(ir_bits_to_double(t, out));
    } else if (ir_is_bool(t)) {
        ok = v == 0 || v == 1;
        out = v != 0;
    } else if (t != 0) {
        const unsigned width = 8u * ir_dtypes[t].bytes;
        if (!ir_is_signed(t)) {
            ok = v >= 0 && (width >= 64 || (uint64_t)v >> width == 0);
        } else if (width < 64) {
            const int64_t limit = (int64_t)1 << (width - 1);
            ok = v >= -limit && v < limit;
        }
        out = cut(t, (uint64_t)v);
    }
    if (fits) *fits = ok;
    return out;
}

ir_bits ir_bits_from_double(ir_dtype t, double v, bool *exact_or_rounded_ok) {
    bool ok;
    ir_bits out = 0;
    if (ir_is_float(t)) {
        out = float_to_bits(t, isnan(v) ? NAN : v);
        ok = !isfinite(v) || isfinite(ir_bits_to_double(t, out));
    } else if (v >= -0x1p63 && v < 0x1p63 && v == trunc(v)) {
        out = ir_bits_from_int(t, (int64_t)v, &ok);
    } else if (t == FUSOR_U64 && v >= 0x1p63 && v < 0x1p64) {
        out = (uint64_t)v;
        ok = true;
    } else {
        ok = false;
    }
    if (exact_or_rounded_ok) *exact_or_rounded_ok = ok;
    return out;
}
