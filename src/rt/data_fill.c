/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Tensors from a word: a number, ranges, and reproducible random values (Philox 4x32-10, Salmon et al. 2011):
 * fill_random says which word makes which element. */
#include "ir/philox.h"
#include "ir/scalar.h"
#include "rt/data.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static void put(void *data, ir_dtype t, int64_t i, ir_bits b) {
    uint16_t h = (uint16_t)b;
    uint32_t w = (uint32_t)b;
    switch (ir_dtypes[t].bytes) {
    case 1: ((uint8_t *)data)[i] = (uint8_t)b; break;
    case 2: ((uint16_t *)data)[i] = h; break;
    case 4: ((uint32_t *)data)[i] = w; break;
    default: ((uint64_t *)data)[i] = b;
    }
}

/* The random real of an element as the element type keeps it. */
static ir_bits random_bits(ir_dtype t, bool is_normal, double v) {
    if (t == FUSOR_BOOL) return v < (is_normal ? 0 : 0.5);
    if (!ir_is_float(t)) return ir_scalar_of(t, is_normal ? 10 * v : floor(100 * v));
    if (ir_dtypes[t].bytes == 2) v = (float)v; /* halves are the f32 values rounded */
    return ir_scalar_of(t, v);
}

static void fill_random(void *data, ir_dtype t, int64_t n, bool is_normal, uint64_t seed) {
    const int each = philox_each(t == FUSOR_F64);
    for (int64_t i = 0; i < n; i += each) {
        double v[4];
        philox_group(seed, (uint64_t)(i / each), t == FUSOR_F64, is_normal, v);
        for (int k = 0; k < each && i + k < n; k++) put(data, t, i + k, random_bits(t, is_normal, v[k]));
    }
}

typedef enum word { NO_WORD, NUMBER, TRUTH, UNIFORM, NORMAL, ARANGE, ZEROS, ONES } word;
typedef struct spec {
    word word;
    bool is_integer, is_negative; /* NUMBER */
    uint64_t integer;             /* magnitude of an integer; seed; TRUTH */
    double real;
} spec;

static bool parse_u64(const char *s, uint64_t *out) {
    uint64_t v = 0;
    if (!*s) return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9' || __builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
            return false;
    }
    *out = v;
    return true;
}

/* A word with a bad seed keeps its word: the message is better than "no such file". */
static spec parse_spec(const char *s, bool *is_ok) {
    spec r = {0};
    const char *end = s;
    *is_ok = true;
    if (strncmp(s, "uniform:", 8) == 0 || strncmp(s, "normal:", 7) == 0) {
        r.word = *s == 'u' ? UNIFORM : NORMAL;
        *is_ok = parse_u64(strchr(s, ':') + 1, &r.integer);
    } else if (strcmp(s, "arange") == 0) r.word = ARANGE;
    else if (strcmp(s, "zeros") == 0) r.word = ZEROS;
    else if (strcmp(s, "ones") == 0) r.word = ONES;
    else if (strcmp(s, "true") == 0 || strcmp(s, "false") == 0) {
        r.word = TRUTH;
        r.integer = *s == 't';
    } else if (strcmp(s, "nan") == 0) {
        r.word = NUMBER;
        r.real = NAN;
    } else if (strcmp(s, "inf") == 0 || strcmp(s, "-inf") == 0) {
        r.word = NUMBER;
        r.real = *s == '-' ? -INFINITY : INFINITY;
    } else if (*s == '-' || *s == '.' || (*s >= '0' && *s <= '9')) {
        r.is_negative = *s == '-';
        r.is_integer = parse_u64(s + r.is_negative, &r.integer);
        r.real = fu_parse_float(s, strlen(s), &end);
        if (r.is_integer || (end != s && !*end)) r.word = NUMBER;
    }
    return r;
}

bool rt_data_is_fill(const char *source) {
    bool is_ok;
    return parse_spec(source, &is_ok).word != NO_WORD;
}

static const char wrong_seed[] = "expected a seed from 0 to 2^64 - 1 after the colon";
const char *rt_data_fill_problem(const char *source) {
    bool is_ok;
    (void)parse_spec(source, &is_ok);
    return is_ok ? NULL : wrong_seed;
}

static fusor_status number_bits(fu_error *e, const char *text, const spec *s, ir_dtype t, ir_bits *out) {
    if (t == FUSOR_BOOL)
        return FU_FAIL(e, FUSOR_ERROR_TYPE, "%s: a number for a bool tensor; expected true or false", text);
    if (ir_is_float(t)) {
        *out = ir_scalar_of(t, s->real);
        if (isinf(ir_bits_to_double(t, *out)) && !strstr(text, "inf"))
            return FU_FAIL(e, FUSOR_ERROR_TYPE, "%s: too large for %s", text, ir_dtypes[t].name);
        return FUSOR_OK;
    }
    if (!s->is_integer)
        return FU_FAIL(e, FUSOR_ERROR_TYPE, "%s: no integer, for a tensor of %s", text, ir_dtypes[t].name);
    int w = 8 * ir_dtypes[t].bytes - ir_is_signed(t);
    uint64_t most = ~(uint64_t)0 >> (64 - w);
    if (s->is_negative ? s->integer > (ir_is_signed(t) ? most + 1 : 0) : s->integer > most)
        return FU_FAIL(e, FUSOR_ERROR_TYPE, "%s: does not fit %s; expected at %s %s%" PRIu64, text, ir_dtypes[t].name,
                       s->is_negative ? "least" : "most", s->is_negative && ir_is_signed(t) ? "-" : "",
                       !s->is_negative   ? most
                       : ir_is_signed(t) ? most + 1
                                         : 0);
    *out = ir_scalar_cast(FUSOR_U64, t, s->is_negative ? 0 - s->integer : s->integer);
    return FUSOR_OK;
}

fusor_status rt_data_fill(fu_error *e, const char *text, const fusor_buffer *b) {
    bool is_ok;
    spec s = parse_spec(text, &is_ok);
    ir_dtype t = (ir_dtype)b->dtype;
    int64_t n = 1;
    if (s.word == NO_WORD)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT,
                       "%s: expected a number, true, false, uniform:SEED, normal:SEED, arange, zeros or ones", text);
    if (!is_ok) return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s: %s", text, wrong_seed);
    if (b->dtype < 1 || b->dtype >= IR_DTYPE_COUNT || b->rank < 0 || b->rank > FUSOR_MAX_RANK ||
        b->flags & FUSOR_STRIDED)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%s: the buffer to fill is no contiguous tensor", text);
    for (int d = 0; d < b->rank; d++) n *= b->shape[d];
    ir_bits v = 0;
    switch (s.word) {
    case UNIFORM:
    case NORMAL: fill_random(b->data, t, n, s.word == NORMAL, s.integer); return FUSOR_OK;
    case ARANGE:
        for (int64_t i = 0; i < n; i++) put(b->data, t, i, ir_scalar_cast(FUSOR_I64, t, (ir_bits)i));
        return FUSOR_OK;
    case TRUTH:
        if (t != FUSOR_BOOL)
            return FU_FAIL(e, FUSOR_ERROR_TYPE, "%s: a truth value for a tensor of %s; expected a number", text,
                           ir_dtypes[t].name);
        v = s.integer;
        break;
    case ONES: v = ir_scalar_cast(FUSOR_I64, t, 1); break;
    case NUMBER: FU_TRY(number_bits(e, text, &s, t, &v)); break;
    default: break;
    }
    for (int64_t i = 0; i < n; i++) put(b->data, t, i, v);
    return FUSOR_OK;
}
