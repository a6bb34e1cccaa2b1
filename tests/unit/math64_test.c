/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The approximated functions in f64: special values as C99 Annex F has them, arguments that are hard to reduce, the
 * error bound on random bits and on moderate values, and the same bits in a vector, in a tail and alone, at every level
 * that the host has. tests/diff/ulp.c measures more of the same. */
#include "jit_run.h"
#include <math.h>

enum { COPIES = 37, CHUNK = 1021 };
static const double BOUND = 4; /* ULP */

typedef struct special {
    ir_op op;
    double x, y, want;
} special;
#define S(ID, x, want)                                                                                                 \
    { IR_OP_##ID, x, 0, want }
#define S2(ID, x, y, want)                                                                                             \
    { IR_OP_##ID, x, y, want }
#define TINY    0x1p-1074
#define HUGE    0x1.fffffffffffffp1023
#define PI      0x1.921fb54442d18p1
#define INF     INFINITY
#define ODD(ID) S(ID, 0, 0), S(ID, -0.0, -0.0), S(ID, TINY, TINY), S(ID, -TINY, -TINY), S(ID, NAN, NAN)
#define LOGS(ID)                                                                                                       \
    S(ID, 1, 0), S(ID, 0, -INF), S(ID, -0.0, -INF), S(ID, -1, NAN), S(ID, INF, INF), S(ID, -INF, NAN), S(ID, NAN, NAN)
static const special specials[] = {
    S(EXP, 0, 1),
    S(EXP, -0.0, 1),
    S(EXP, INF, INF),
    S(EXP, -INF, 0),
    S(EXP, NAN, NAN),
    S(EXP, 709.79, INF),
    S(EXP, HUGE, INF),
    S(EXP, -HUGE, 0),
    S(EXP, -745.1, TINY),
    S(EXP, TINY, 1),
    S(EXP2, -1074, TINY),
    S(EXP2, -1076, 0),
    S(EXP2, 1023, 0x1p1023),
    S(EXP2, 1024, INF),
    S(EXP2, 10, 1024),
    S(EXP2, -1050, 0x1p-1050),
    S(EXP2, NAN, NAN),
    S(EXP2, -INF, 0),
    ODD(EXPM1),
    S(EXPM1, INF, INF),
    S(EXPM1, -INF, -1),
    S(EXPM1, -50, -1),
    S(EXPM1, 710, INF),
    LOGS(LOG),
    LOGS(LOG2),
    LOGS(LOG10),
    S(LOG, TINY, -0x1.74385446d71c3p9),
    S(LOG2, TINY, -1074),
    S(LOG2, 8, 3),
    S(LOG2, 0x1p1023, 1023),
    S(LOG10, 1000, 3),
    S(LOG10, 1e22, 22),
    ODD(LOG1P),
    S(LOG1P, -1, -INF),
    S(LOG1P, -2, NAN),
    S(LOG1P, INF, INF),
    S(LOG1P, 0x1p-60, 0x1p-60),
    ODD(SIN),
    S(SIN, INF, NAN),
    S(SIN, -INF, NAN),
    S(SIN, 1e22, -0x1.b453ab76bf397p-1),
    S(SIN, PI, 0x1.1a62633145c07p-53),
    S(COS, 0, 1),
    S(COS, INF, NAN),
    S(COS, NAN, NAN),
    S(COS, PI / 2, 0x1.1a62633145c07p-54),
    S(COS, 0x1.6ac5b262ca1ffp+849, -4.68716592425462761112e-19), /* the double nearest to a multiple of pi/2 */
    ODD(TAN),
    S(TAN, INF, NAN),
    S(TAN, PI / 2, 0x1.d02967c31cdb5p+53),
    ODD(ASIN),
    S(ASIN, 1, PI / 2),
    S(ASIN, -1, -PI / 2),
    S(ASIN, 1.5, NAN),
    S(ACOS, 1, 0),
    S(ACOS, -1, PI),
    S(ACOS, 0, PI / 2),
    S(ACOS, -2, NAN),
    S(ACOS, NAN, NAN),
    ODD(ATAN),
    S(ATAN, INF, PI / 2),
    S(ATAN, -INF, -PI / 2),
    S(ATAN, 1, PI / 4),
    S(ATAN, HUGE, PI / 2),
    ODD(SINH),
    S(SINH, INF, INF),
    S(SINH, -INF, -INF),
    S(SINH, 711, INF),
    S(COSH, 0, 1),
    S(COSH, -0.0, 1),
    S(COSH, INF, INF),
    S(COSH, -INF, INF),
    S(COSH, NAN, NAN),
    S(COSH, TINY, 1),
    ODD(TANH),
    S(TANH, INF, 1),
    S(TANH, -INF, -1),
    S(TANH, 30, 1),
    ODD(ASINH),
    S(ASINH, INF, INF),
    S(ASINH, -INF, -INF),
    S(ACOSH, 1, 0),
    S(ACOSH, INF, INF),
    S(ACOSH, 0.5, NAN),
    S(ACOSH, NAN, NAN),
    ODD(ATANH),
    S(ATANH, 1, INF),
    S(ATANH, -1, -INF),
    S(ATANH, 2, NAN),
    S(ERF, 0, 0),
    S(ERF, -0.0, -0.0),
    S(ERF, INF, 1),
    S(ERF, -INF, -1),
    S(ERF, NAN, NAN),
    S(ERF, 7, 1),
    S(ERFC, 0, 1),
    S(ERFC, INF, 0),
    S(ERFC, -INF, 2),
    S(ERFC, NAN, NAN),
    S(ERFC, 28, 0),
    S(ERFC, TINY, 1),
    S(CBRT, 0, 0),
    S(CBRT, -0.0, -0.0),
    S(CBRT, NAN, NAN),
    S(CBRT, 27, 3),
    S(CBRT, -8, -2),
    S(CBRT, INF, INF),
    S(CBRT, -INF, -INF),
    S(CBRT, 0x1p-1074 * 8, 0x1p-357),
    S(SIGMOID, 0, 0.5),
    S(SIGMOID, INF, 1),
    S(SIGMOID, -INF, 0),
    S(SIGMOID, -HUGE, 0),
    S(SIGMOID, NAN, NAN),
    S(SILU, 0, 0),
    S(SILU, INF, INF),
    S(SILU, -HUGE, -0.0),
    S(SILU, -INF, NAN),
    S(SILU, NAN, NAN),
    S(SILU, -800, -0.0),
    S(SOFTPLUS, INF, INF),
    S(SOFTPLUS, -INF, 0),
    S(SOFTPLUS, NAN, NAN),
    S(SOFTPLUS, HUGE, HUGE),
    S(MISH, 0, 0),
    S(MISH, INF, INF),
    S(MISH, -HUGE, -0.0),
    S(MISH, -INF, NAN),
    S(MISH, NAN, NAN),
    S(MISH, HUGE, HUGE),
    S(GELU, 0, 0),
    S(GELU, INF, INF),
    S(GELU, -HUGE, -0.0),
    S(GELU, -INF, NAN),
    S(GELU, NAN, NAN),
    S(GELU, 50, 50),
    S2(POW, 2, 10, 1024),
    S2(POW, 0, 0, 1),
    S2(POW, NAN, 0, 1),
    S2(POW, 1, NAN, 1),
    S2(POW, NAN, 1, NAN),
    S2(POW, -2, 3, -8),
    S2(POW, -2, 0.5, NAN),
    S2(POW, -INF, 0.5, INF),
    S2(POW, 0, -1, INF),
    S2(POW, -0.0, -1, -INF),
    S2(POW, -0.0, -2, INF),
    S2(POW, -0.0, 3, -0.0),
    S2(POW, 0, TINY, 0),
    S2(POW, INF, -TINY, 0),
    S2(POW, INF, 2, INF),
    S2(POW, -INF, 3, -INF),
    S2(POW, -INF, -3, -0.0),
    S2(POW, -1, INF, 1),
    S2(POW, 2, INF, INF),
    S2(POW, 2, -INF, 0),
    S2(POW, 0.5, INF, 0),
    S2(POW, 0.5, -INF, INF),
    S2(POW, 2, -1074, TINY),
    S2(POW, 2, 1024, INF),
    S2(POW, TINY, 1, TINY),
    S2(POW, -1, 0x1.fffffffffffffp52, -1),
    S2(POW, -1, 0x1p53, 1),
    S2(POW, 10, 22, 1e22),
    S2(POW, 2, HUGE, INF),
    S2(ATAN2, 0, 1, 0),
    S2(ATAN2, -0.0, 1, -0.0),
    S2(ATAN2, 0, -1, PI),
    S2(ATAN2, -0.0, -1, -PI),
    S2(ATAN2, 0, 0, 0),
    S2(ATAN2, -0.0, 0, -0.0),
    S2(ATAN2, 0, -0.0, PI),
    S2(ATAN2, 1, 0, PI / 2),
    S2(ATAN2, INF, INF, PI / 4),
    S2(ATAN2, INF, -INF, 0x1.2d97c7f3321d2p1),
    S2(ATAN2, 1, INF, 0),
    S2(ATAN2, -1, INF, -0.0),
    S2(ATAN2, 1, -INF, PI),
    S2(ATAN2, HUGE, HUGE, PI / 4),
    S2(ATAN2, TINY, TINY, PI / 4),
    S2(ATAN2, NAN, 1, NAN),
    S2(ATAN2, 1, NAN, NAN),
    S2(ATAN2, TINY, 1, TINY),
    S2(HYPOT, 3, 4, 5),
    S2(HYPOT, INF, NAN, INF),
    S2(HYPOT, NAN, -INF, INF),
    S2(HYPOT, NAN, 1, NAN),
    S2(HYPOT, 0, -0.0, 0),
    S2(HYPOT, HUGE, HUGE, INF),
    S2(HYPOT, TINY, 0, TINY),
    S2(HYPOT, 0x1p1023, 0, 0x1p1023),
    S2(HYPOT, 3e-320, 4e-320, 5e-320),
    S2(HYPOT, 3e300, 4e300, 5e300),
};

static bool is_measured(int op) {
    const ir_op_info *info = &ir_ops[op];
    return info->kind == IR_KIND_EW && (info->kernel_types >> FUSOR_F64 & 1) && !(info->flags & IR_EXACT) &&
           info->n_scalar_attrs <= 1 && info->max_in <= 2;
}

/* One operator as a kernel over one dim, or over none (a single element: scalar code). */
static run_kernel compile(ir_op op, int level, int variant, bool is_single) {
    const ir_op_info *info = &ir_ops[op];
    const char *stride = is_single ? "" : " 1";
    char text[1024], operands[64] = "", *p = text, *end = text + sizeof text;
    p += snprintf(p, (size_t)(end - p), "fusor-kernel %d\nkind map\nlevel %s\n%s", IR_KERNEL_ABI, ir_levels[level].name,
                  is_single ? "" : "dim p ?\n");
    for (int i = 0; i < info->max_in; i++) p += snprintf(p, (size_t)(end - p), "buffer in f64%s\n", stride);
    p += snprintf(p, (size_t)(end - p), "buffer out f64%s\n", stride);
    if (info->n_scalar_attrs) p += snprintf(p, (size_t)(end - p), "scalar f64\n");
    int n = 0;
    for (; n < info->max_in + info->n_scalar_attrs; n++) {
        bool is_load = n < info->max_in;
        p += snprintf(p, (size_t)(end - p), "%%%d = %s.f64 #%d\n", n, is_load ? "load" : "scalar",
                      is_load ? n : n - info->max_in);
        snprintf(operands + strlen(operands), sizeof operands - strlen(operands), " %%%d", n);
    }
    p += snprintf(p, (size_t)(end - p), "%%%d = %s.f64%s", n, info->name, operands);
    if (variant) p += snprintf(p, (size_t)(end - p), " variant %d", variant);
    snprintf(p, (size_t)(end - p), "\n%%%d = store.f64 #%d %%%d\n", n + 1, info->max_in, n);
    return run_compile(text);
}

static void run(const run_kernel *k, ir_op op, double *x, double *y, double *out, int64_t n) {
    void *buffer[3] = {x, ir_ops[op].max_in == 2 ? y : out, out};
    int64_t stride[3] = {1, 1, 1};
    double alpha = ir_ops[op].attrs[0].default_value;
    uint64_t scalar = 0;
    memcpy(&scalar, &alpha, 8);
    ir_kernel_args a = {
        .version = IR_KERNEL_ABI, .tune = {1, 8192}, .buffer = buffer, .size = &n, .stride = stride, .scalar = &scalar};
    cr_assert(k->fn(&a, 0, 1) == 0);
}

static bool same(double a, double b) { return (a != a && b != b) || memcmp(&a, &b, 8) == 0; }

/* What is exact comes out exact; other values within a unit of the last place. */
static bool matches(double got, double want) {
    if (same(got, want)) return true;
    double size = fabs(want);
    bool is_exact = want != want || isinf(want) || size < 0x1p-1000 || nearbyint(want) == want;
    return !is_exact && fabs(got - want) <= 0x1p-52 * size;
}

Test(math64, special_values) {
    double x[COPIES], y[COPIES], out[COPIES];
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        if (!host_has_level((ir_level)level)) continue;
        run_kernel k = {0};
        for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
            const special *s = &specials[i];
            if (i == 0 || s->op != specials[i - 1].op) k = compile(s->op, level, 0, false);
            for (int j = 0; j < COPIES; j++) x[j] = s->x, y[j] = s->y, out[j] = 77;
            run(&k, s->op, x, y, out, COPIES);
            for (int j = 0; j < COPIES; j++)
                cr_assert(matches(out[j], s->want), "%s(%a, %a) at %s, element %d: %a, expected %a", ir_ops[s->op].name,
                          s->x, s->y, ir_levels[level].short_name, j, out[j], s->want);
        }
    }
}

/* Random bits; every second one moderate, and few of the size where sin and cos change their method. */
static void fill(double *x, double *y, uint64_t *state) {
    for (int i = 0; i < CHUNK; i++) {
        uint64_t bits = run_random(state), other = run_random(state);
        bits = bits << 32 ^ run_random(state);
        other = other << 32 ^ run_random(state);
        memcpy(&x[i], &bits, 8);
        memcpy(&y[i], &other, 8);
        if (i % 2) {
            x[i] = ldexp((double)(bits >> 11), (int)(other % 16) - 60) * (bits & 1 ? -1 : 1);
            y[i] = (double)((int64_t)other >> 54) / 8;
        }
    }
}

static void check_bounds(int op, int level, int variant) {
    static double x[CHUNK], y[CHUNK], out[CHUNK], alone[1];
    const ir_op_info *info = &ir_ops[op];
    run_kernel k = compile((ir_op)op, level, variant, false), single = compile((ir_op)op, level, variant, true);
    uint64_t state = 5;
    double absolute = info->flags & IR_COSTLY ? 0 : info->abs * 0x1p-29;
    for (int pass = 0; pass < 10; pass++) {
        fill(x, y, &state);
        run(&k, (ir_op)op, x, y, out, CHUNK);
        for (int i = 0; i < CHUNK; i++) {
            if (i % 16 < 2) {
                run(&single, (ir_op)op, &x[i], &y[i], alone, 1);
                cr_assert(same(alone[0], out[i]), "%s(%a, %a) at %s: %a in a vector, %a alone", info->name, x[i], y[i],
                          ir_levels[level].short_name, out[i], alone[0]);
            }
            double alpha = info->attrs[0].default_value;
            long double in[3] = {x[i], y[i], 0}, real = ir_scalar_real((ir_op)op, in, &alpha, variant);
            if (same((double)real, out[i])) continue;
            int e;
            frexpl(real, &e);
            double error = (double)fabsl((isinf(out[i]) ? copysignl(0x1p1024L, out[i]) : out[i]) - real);
            double ulp = ldexp(1, (e > 1024 ? 1024 : e < -1021 ? -1021 : e) - 53);
            cr_assert(error <= BOUND * ulp || error <= absolute, "%s(%a, %a) at %s: %a, exactly %La", info->name, x[i],
                      y[i], ir_levels[level].short_name, out[i], real);
        }
    }
}

Test(math64, bounds_and_equal_bits) {
    for (int op = 0; op < IR_OP_COUNT; op++)
        for (int level = 0; is_measured(op) && level < IR_LEVEL_COUNT; level++) {
            if (!host_has_level((ir_level)level)) continue;
            check_bounds(op, level, 0);
            if (op == IR_OP_GELU) check_bounds(op, level, 1);
        }
}
