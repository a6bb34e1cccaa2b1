/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The approximated functions: special values as C99 Annex F has them, error bounds over a stride of all floats, and the
 * same bits in a vector, in a tail and alone, at every level that the host has. tests/diff/ulp.c measures more of the
 * same. */
#include "jit_run.h"
#include <math.h>

enum { COPIES = 37, CHUNK = 4099 };
#define PI 0x1.921fb6p1f

typedef struct special {
    ir_op op;
    float x, y, want;
} special;
#define S(ID, x, want)                                                                                                 \
    { IR_OP_##ID, x, 0, want }
#define S2(ID, x, y, want)                                                                                             \
    { IR_OP_##ID, x, y, want }
#define TINY 0x1p-149f
#define HUGE 0x1.fffffep127f
static const special specials[] = {
    S(EXP, 0, 1),
    S(EXP, -0.0f, 1),
    S(EXP, INFINITY, INFINITY),
    S(EXP, -INFINITY, 0),
    S(EXP, NAN, NAN),
    S(EXP, 88.72284f, INFINITY),
    S(EXP, HUGE, INFINITY),
    S(EXP, -HUGE, 0),
    S(EXP, -103.9f, 0x1p-149f),
    S(EXP, TINY, 1),
    S(EXP2, -149, 0x1p-149f),
    S(EXP2, -151, 0),
    S(EXP2, 127, 0x1p127f),
    S(EXP2, 128, INFINITY),
    S(EXP2, 10, 1024),
    S(EXP2, -INFINITY, 0),
    S(EXP2, NAN, NAN),
    S(EXP2, -140, 0x1p-140f),
    S(EXPM1, 0, 0),
    S(EXPM1, -0.0f, -0.0f),
    S(EXPM1, INFINITY, INFINITY),
    S(EXPM1, -INFINITY, -1),
    S(EXPM1, TINY, TINY),
    S(EXPM1, -TINY, -TINY),
    S(EXPM1, NAN, NAN),
    S(LOG, 1, 0),
    S(LOG, 0, -INFINITY),
    S(LOG, -0.0f, -INFINITY),
    S(LOG, -1, NAN),
    S(LOG, INFINITY, INFINITY),
    S(LOG, -INFINITY, NAN),
    S(LOG, NAN, NAN),
    S(LOG, TINY, -0x1.9d1dap6f),
    S(LOG2, TINY, -149),
    S(LOG2, 8, 3),
    S(LOG2, 0, -INFINITY),
    S(LOG2, -1, NAN),
    S(LOG2, INFINITY, INFINITY),
    S(LOG2, 1, 0),
    S(LOG2, NAN, NAN),
    S(LOG2, -INFINITY, NAN),
    S(LOG10, 1, 0),
    S(LOG10, 0, -INFINITY),
    S(LOG10, -0.0f, -INFINITY),
    S(LOG10, -TINY, NAN),
    S(LOG10, INFINITY, INFINITY),
    S(LOG10, NAN, NAN),
    S(LOG1P, 0, 0),
    S(LOG1P, -0.0f, -0.0f),
    S(LOG1P, -1, -INFINITY),
    S(LOG1P, -2, NAN),
    S(LOG1P, INFINITY, INFINITY),
    S(LOG1P, TINY, TINY),
    S(LOG1P, NAN, NAN),
    S(SIN, 0, 0),
    S(SIN, -0.0f, -0.0f),
    S(SIN, INFINITY, NAN),
    S(SIN, -INFINITY, NAN),
    S(SIN, NAN, NAN),
    S(SIN, TINY, TINY),
    S(SIN, -TINY, -TINY),
    S(COS, 0, 1),
    S(COS, -0.0f, 1),
    S(COS, INFINITY, NAN),
    S(COS, NAN, NAN),
    S(COS, TINY, 1),
    S(TAN, 0, 0),
    S(TAN, -0.0f, -0.0f),
    S(TAN, INFINITY, NAN),
    S(TAN, -TINY, -TINY),
    S(TAN, NAN, NAN),
    S(ASIN, 0, 0),
    S(ASIN, -0.0f, -0.0f),
    S(ASIN, 1, PI / 2),
    S(ASIN, -1, -PI / 2),
    S(ASIN, 1.0000001f, NAN),
    S(ASIN, NAN, NAN),
    S(ASIN, TINY, TINY),
    S(ASIN, -INFINITY, NAN),
    S(ACOS, 1, 0),
    S(ACOS, -1, PI),
    S(ACOS, 0, PI / 2),
    S(ACOS, -0.0f, PI / 2),
    S(ACOS, 2, NAN),
    S(ACOS, -INFINITY, NAN),
    S(ACOS, NAN, NAN),
    S(ATAN, 0, 0),
    S(ATAN, -0.0f, -0.0f),
    S(ATAN, INFINITY, PI / 2),
    S(ATAN, -INFINITY, -PI / 2),
    S(ATAN, TINY, TINY),
    S(ATAN, NAN, NAN),
    S(ATAN, HUGE, PI / 2),
    S(SINH, -0.0f, -0.0f),
    S(SINH, INFINITY, INFINITY),
    S(SINH, -INFINITY, -INFINITY),
    S(SINH, TINY, TINY),
    S(SINH, NAN, NAN),
    S(SINH, 90, INFINITY),
    S(COSH, 0, 1),
    S(COSH, -INFINITY, INFINITY),
    S(COSH, -90, INFINITY),
    S(COSH, NAN, NAN),
    S(TANH, -0.0f, -0.0f),
    S(TANH, INFINITY, 1),
    S(TANH, -INFINITY, -1),
    S(TANH, TINY, TINY),
    S(TANH, NAN, NAN),
    S(TANH, -HUGE, -1),
    S(ASINH, -0.0f, -0.0f),
    S(ASINH, INFINITY, INFINITY),
    S(ASINH, -INFINITY, -INFINITY),
    S(ASINH, -TINY, -TINY),
    S(ASINH, NAN, NAN),
    S(ACOSH, 1, 0),
    S(ACOSH, 0.5f, NAN),
    S(ACOSH, INFINITY, INFINITY),
    S(ACOSH, -INFINITY, NAN),
    S(ACOSH, NAN, NAN),
    S(ATANH, -0.0f, -0.0f),
    S(ATANH, 1, INFINITY),
    S(ATANH, -1, -INFINITY),
    S(ATANH, 1.5f, NAN),
    S(ATANH, TINY, TINY),
    S(ATANH, NAN, NAN),
    S(ATANH, -INFINITY, NAN),
    S(ERF, -0.0f, -0.0f),
    S(ERF, INFINITY, 1),
    S(ERF, -INFINITY, -1),
    S(ERF, NAN, NAN),
    S(ERF, 5, 1),
    S(ERFC, 0, 1),
    S(ERFC, INFINITY, 0),
    S(ERFC, -INFINITY, 2),
    S(ERFC, NAN, NAN),
    S(ERFC, 10.1f, 0),
    S(ERFC, 11, 0),
    S(CBRT, -0.0f, -0.0f),
    S(CBRT, 27, 3),
    S(CBRT, -8, -2),
    S(CBRT, INFINITY, INFINITY),
    S(CBRT, -INFINITY, -INFINITY),
    S(CBRT, 0x1p-147f, 0x1p-49f),
    S(CBRT, NAN, NAN),
    S(RSQRT, 4, 0.5f),
    S(RSQRT, 0, INFINITY),
    S(RSQRT, -1, NAN),
    S(RSQRT, INFINITY, 0),
    S(RSQRT, NAN, NAN),
    S(SIGMOID, 0, 0.5f),
    S(SIGMOID, INFINITY, 1),
    S(SIGMOID, -INFINITY, 0),
    S(SIGMOID, NAN, NAN),
    S(SIGMOID, HUGE, 1),
    S(SOFTPLUS, INFINITY, INFINITY),
    S(SOFTPLUS, -INFINITY, 0),
    S(SOFTPLUS, NAN, NAN),
    S(SOFTPLUS, HUGE, HUGE),
    S(SILU, INFINITY, INFINITY),
    S(SILU, 0, 0),
    S(SILU, -0.0f, -0.0f),
    S(SILU, NAN, NAN),
    S(GELU, INFINITY, INFINITY),
    S(GELU, -0.0f, -0.0f),
    S(GELU, NAN, NAN),
    S(GELU, HUGE, HUGE),
    S(MISH, INFINITY, INFINITY),
    S(MISH, -0.0f, -0.0f),
    S(MISH, NAN, NAN),
    S(SELU, NAN, NAN),
    S(SELU, INFINITY, INFINITY),
    S2(POW, 0, 0, 1),
    S2(POW, NAN, 0, 1),
    S2(POW, NAN, -0.0f, 1),
    S2(POW, 1, NAN, 1),
    S2(POW, 1, INFINITY, 1),
    S2(POW, -1, INFINITY, 1),
    S2(POW, -1, -INFINITY, 1),
    S2(POW, -1, NAN, NAN),
    S2(POW, 0, -3, INFINITY),
    S2(POW, -0.0f, -3, -INFINITY),
    S2(POW, -0.0f, -2, INFINITY),
    S2(POW, -0.0f, 3, -0.0f),
    S2(POW, -0.0f, 2, 0),
    S2(POW, -0.0f, 0.5f, 0),
    S2(POW, -0.0f, -0.5f, INFINITY),
    S2(POW, 0, -INFINITY, INFINITY),
    S2(POW, 0.5f, -INFINITY, INFINITY),
    S2(POW, 2, -INFINITY, 0),
    S2(POW, 0.5f, INFINITY, 0),
    S2(POW, -2, INFINITY, INFINITY),
    S2(POW, -INFINITY, -3, -0.0f),
    S2(POW, -INFINITY, -2, 0),
    S2(POW, -INFINITY, 3, -INFINITY),
    S2(POW, -INFINITY, 2.5f, INFINITY),
    S2(POW, INFINITY, -1, 0),
    S2(POW, INFINITY, 0.1f, INFINITY),
    S2(POW, -2, 0.5f, NAN),
    S2(POW, -2, 3, -8),
    S2(POW, -2, 2, 4),
    S2(POW, NAN, 1, NAN),
    S2(POW, 2, NAN, NAN),
    S2(POW, 2, -149, 0x1p-149f),
    S2(POW, 2, 128, INFINITY),
    S2(POW, -2, 127, -0x1p127f),
    S2(POW, -1, 16777215, -1),
    S2(POW, -1, 16777216, 1),
    S2(POW, 0x1p-149f, 1, 0x1p-149f),
    S2(ATAN2, 0, 1, 0),
    S2(ATAN2, -0.0f, 1, -0.0f),
    S2(ATAN2, 0, -1, PI),
    S2(ATAN2, -0.0f, -1, -PI),
    S2(ATAN2, 0, 0, 0),
    S2(ATAN2, -0.0f, 0, -0.0f),
    S2(ATAN2, 0, -0.0f, PI),
    S2(ATAN2, -0.0f, -0.0f, -PI),
    S2(ATAN2, 1, 0, PI / 2),
    S2(ATAN2, -1, -0.0f, -PI / 2),
    S2(ATAN2, INFINITY, INFINITY, PI / 4),
    S2(ATAN2, INFINITY, -INFINITY, 0x1.2d97c8p1f),
    S2(ATAN2, -INFINITY, INFINITY, -PI / 4),
    S2(ATAN2, 1, INFINITY, 0),
    S2(ATAN2, -1, INFINITY, -0.0f),
    S2(ATAN2, 1, -INFINITY, PI),
    S2(ATAN2, INFINITY, 5, PI / 2),
    S2(ATAN2, NAN, 1, NAN),
    S2(ATAN2, 1, NAN, NAN),
    S2(ATAN2, TINY, 1, TINY),
    S2(HYPOT, 3, 4, 5),
    S2(HYPOT, -3, 4, 5),
    S2(HYPOT, INFINITY, NAN, INFINITY),
    S2(HYPOT, NAN, -INFINITY, INFINITY),
    S2(HYPOT, NAN, 1, NAN),
    S2(HYPOT, 0, -0.0f, 0),
    S2(HYPOT, HUGE, HUGE, INFINITY),
    S2(HYPOT, TINY, 0, TINY),
    S2(HYPOT, 0x1p127f, 0, 0x1p127f),
};

static bool is_measured(int op) {
    const ir_op_info *info = &ir_ops[op];
    return info->kind == IR_KIND_EW && (info->kernel_types >> FUSOR_F32 & 1) && !(info->flags & IR_EXACT) &&
           info->n_scalar_attrs <= 1 && info->max_in <= 2;
}

/* One operator as a kernel over one dim, or over none (a single element: scalar code). */
static run_kernel compile_tier(ir_op op, int level, int variant, bool is_single, bool is_fast) {
    const ir_op_info *info = &ir_ops[op];
    const char *stride = is_single ? "" : " 1";
    char text[1024], operands[64] = "", *p = text, *end = text + sizeof text;
    p += snprintf(p, (size_t)(end - p), "fusor-kernel %d\nkind map\nlevel %s\n%s%s", IR_KERNEL_ABI,
                  ir_levels[level].name, is_fast ? "math fast\n" : "", is_single ? "" : "dim p ?\n");
    for (int i = 0; i < info->max_in; i++) p += snprintf(p, (size_t)(end - p), "buffer in f32%s\n", stride);
    p += snprintf(p, (size_t)(end - p), "buffer out f32%s\n", stride);
    if (info->n_scalar_attrs) p += snprintf(p, (size_t)(end - p), "scalar f32\n");
    int n = 0;
    for (; n < info->max_in + info->n_scalar_attrs; n++) {
        bool is_load = n < info->max_in;
        p += snprintf(p, (size_t)(end - p), "%%%d = %s.f32 #%d\n", n, is_load ? "load" : "scalar",
                      is_load ? n : n - info->max_in);
        snprintf(operands + strlen(operands), sizeof operands - strlen(operands), " %%%d", n);
    }
    p += snprintf(p, (size_t)(end - p), "%%%d = %s.f32%s", n, info->name, operands);
    if (variant) p += snprintf(p, (size_t)(end - p), " variant %d", variant);
    snprintf(p, (size_t)(end - p), "\n%%%d = store.f32 #%d %%%d\n", n + 1, info->max_in, n);
    return run_compile(text);
}

static run_kernel compile(ir_op op, int level, int variant, bool is_single) {
    return compile_tier(op, level, variant, is_single, false);
}

static void run(const run_kernel *k, ir_op op, float *x, float *y, float *out, int64_t n) {
    void *buffer[3] = {x, ir_ops[op].max_in == 2 ? y : out, out};
    int64_t stride[3] = {1, 1, 1};
    float alpha = (float)ir_ops[op].attrs[0].default_value;
    uint64_t scalar = 0;
    memcpy(&scalar, &alpha, 4);
    ir_kernel_args a = {
        .version = IR_KERNEL_ABI, .tune = {1, 8192}, .buffer = buffer, .size = &n, .stride = stride, .scalar = &scalar};
    cr_assert(k->fn(&a, 0, 1) == 0);
}

static bool same(float a, float b) { return (a != a && b != b) || memcmp(&a, &b, 4) == 0; }

Test(math, special_values) {
    float x[COPIES], y[COPIES], out[COPIES];
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        if (!host_has_level((ir_level)level)) continue;
        run_kernel k = {0};
        for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
            const special *s = &specials[i];
            if (i == 0 || s->op != specials[i - 1].op) k = compile(s->op, level, 0, false);
            for (int j = 0; j < COPIES; j++) x[j] = s->x, y[j] = s->y, out[j] = 77;
            run(&k, s->op, x, y, out, COPIES);
            for (int j = 0; j < COPIES; j++)
                cr_assert(same(out[j], s->want), "%s(%a, %a) at %s, element %d: %a, expected %a", ir_ops[s->op].name,
                          (double)s->x, (double)s->y, ir_levels[level].short_name, j, (double)out[j], (double)s->want);
        }
    }
}

static void fill(float *x, float *y, uint64_t *state, uint32_t first, uint32_t step) {
    for (int i = 0; i < CHUNK; i++) {
        uint32_t bits = first + (uint32_t)i * step, other = (uint32_t)run_random(state);
        memcpy(&x[i], &bits, 4);
        memcpy(&y[i], &other, 4);
        if (i % 2) y[i] = (float)((int32_t)other >> 22) / 8; /* moderate */
    }
}

static void check_bounds(int op, int level, int variant, bool is_fast) {
    static float x[CHUNK], y[CHUNK], out[CHUNK], alone[1];
    const ir_op_info *info = &ir_ops[op];
    run_kernel k = compile_tier((ir_op)op, level, variant, false, is_fast);
    run_kernel single = compile_tier((ir_op)op, level, variant, true, is_fast);
    const double most_ulp = is_fast ? ir_fast[op].ulp : info->ulp, most = is_fast ? ir_fast[op].abs : info->abs;
    uint64_t state = 5;
    const uint32_t step = 104729; /* 2^32 / (10 * CHUNK), a prime */
    for (uint32_t pass = 0; pass < 10; pass++) {
        fill(x, y, &state, pass * CHUNK * step, step);
        run(&k, (ir_op)op, x, y, out, CHUNK);
        for (int i = 0; i < CHUNK; i++) {
            if (i % 16 == 0) {
                run(&single, (ir_op)op, &x[i], &y[i], alone, 1);
                cr_assert(same(alone[0], out[i]), "%s(%a, %a) at %s: %a in a vector, %a alone", info->name,
                          (double)x[i], (double)y[i], ir_levels[level].short_name, (double)out[i], (double)alone[0]);
            }
            double alpha = info->attrs[0].default_value;
            long double in[3] = {x[i], y[i], 0}, real = ir_scalar_real((ir_op)op, in, &alpha, variant);
            float nearest = (float)real;
            if (same(nearest, out[i])) continue;
            int e;
            frexpl(real, &e);
            double error = (double)fabsl((isinf(out[i]) ? copysignl(0x1p128L, out[i]) : out[i]) - real);
            double ulp = ldexp(1, (e > 128 ? 128 : e < -125 ? -125 : e) - 24);
            cr_assert(error <= most_ulp * ulp || error <= most, "%s(%a, %a) at %s: %a, exactly %La", info->name,
                      (double)x[i], (double)y[i], ir_levels[level].short_name, (double)out[i], real);
        }
    }
}

Test(math, bounds_and_equal_bits) {
    for (int op = 0; op < IR_OP_COUNT; op++)
        for (int level = 0; is_measured(op) && level < IR_LEVEL_COUNT; level++) {
            if (!host_has_level((ir_level)level)) continue;
            check_bounds(op, level, 0, false);
            if (op == IR_OP_GELU) check_bounds(op, level, 1, false);
        }
}

Test(math, fast_tier_has_bounds_and_equal_bits) {
    for (int op = 0; op < IR_OP_COUNT; op++)
        for (int level = 0; ir_fast[op].levels && level < IR_LEVEL_COUNT; level++) {
            if (!host_has_level((ir_level)level)) continue;
            check_bounds(op, level, 0, true);
            if (op == IR_OP_GELU) check_bounds(op, level, 1, true);
        }
}

/* Each row differs from the precise version somewhere where it says so, and nowhere else. */
Test(math, fast_tier_is_where_its_table_says) {
    static float x[CHUNK], y[CHUNK], out[2][CHUNK];
    for (int op = 0; op < IR_OP_COUNT; op++)
        for (int level = 0; ir_fast[op].levels && level < IR_LEVEL_COUNT; level++) {
            if (!host_has_level((ir_level)level)) continue;
            for (int i = 0; i < CHUNK; i++) x[i] = (i % 2 ? 1.0f : -1.0f) * (float)(i + 1) / 512, y[i] = 1.5f;
            for (int tier = 0; tier < 2; tier++) {
                run_kernel k = compile_tier((ir_op)op, level, 0, false, tier);
                run(&k, (ir_op)op, x, y, out[tier], CHUNK);
            }
            bool says = strstr(ir_fast[op].levels, ir_levels[level].short_name) != NULL;
            cr_assert_eq(says, memcmp(out[0], out[1], sizeof out[0]) != 0, "%s at %s", ir_ops[op].name,
                         ir_levels[level].short_name);
        }
}
