/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ulp_exact.c: exact values of the approximated functions by MPFR. Intermediate results have 160 bits and MPFR's
 * range of exponents, so that a formula that cancels or multiplies an error by some thousands leaves 2^-90 of an f64
 * ULP, and nothing overflows before the result does. Special values come out as C99 Annex F has them, which MPFR
 * follows, but for mpfr_rec_sqrt(-0), which is why rsqrt is a division.
 *
 * Without MPFR (or with its library and no header) exact_has() is false for everything and long double has to do. */
#include "ulp_exact.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

exact_format exact_format_of(ir_dtype t) {
    switch (t) {
    case FUSOR_F64: return (exact_format){53, -1021, 1024};
    case FUSOR_F16: return (exact_format){11, -13, 16};
    case FUSOR_BF16: return (exact_format){8, -125, 128};
    default: return (exact_format){24, -125, 128};
    }
}

#if defined FUSOR_HAVE_MPFR && __has_include(<mpfr.h>)
#include <mpfr.h>

enum { BITS = 160 };
#define RN       MPFR_RNDN
#define COUNT(a) (sizeof(a) / sizeof *(a))

static mpfr_t real, X, Y, t, u, c; /* the exact value, the operands, scratch */

typedef int unary_fn(mpfr_t, mpfr_srcptr, mpfr_rnd_t);
static const struct {
    ir_op op;
    unary_fn *fn;
} unary[] = {
    {IR_OP_CBRT, mpfr_cbrt}, {IR_OP_EXP, mpfr_exp},     {IR_OP_EXP2, mpfr_exp2},   {IR_OP_EXPM1, mpfr_expm1},
    {IR_OP_LOG, mpfr_log},   {IR_OP_LOG2, mpfr_log2},   {IR_OP_LOG10, mpfr_log10}, {IR_OP_LOG1P, mpfr_log1p},
    {IR_OP_SIN, mpfr_sin},   {IR_OP_COS, mpfr_cos},     {IR_OP_TAN, mpfr_tan},     {IR_OP_ASIN, mpfr_asin},
    {IR_OP_ACOS, mpfr_acos}, {IR_OP_ATAN, mpfr_atan},   {IR_OP_SINH, mpfr_sinh},   {IR_OP_COSH, mpfr_cosh},
    {IR_OP_TANH, mpfr_tanh}, {IR_OP_ASINH, mpfr_asinh}, {IR_OP_ACOSH, mpfr_acosh}, {IR_OP_ATANH, mpfr_atanh},
    {IR_OP_ERF, mpfr_erf},   {IR_OP_ERFC, mpfr_erfc},
};

/* ---- formulas: real from X, Y and the attributes a, b ---- */
static void clamp01(mpfr_t v) {
    if (mpfr_cmp_ui(v, 1) > 0) mpfr_set_ui(v, 1, RN);
    else if (mpfr_cmp_ui(v, 0) < 0) mpfr_set_ui(v, 0, RN);
}

/* real = 1 / (1 + exp(-v)) * by */
static void logistic(mpfr_srcptr v, mpfr_srcptr by) {
    mpfr_neg(t, v, RN);
    mpfr_exp(t, t, RN);
    mpfr_add_ui(t, t, 1, RN);
    if (by) mpfr_div(real, by, t, RN);
    else mpfr_ui_div(real, 1, t, RN);
}

/* out = log(1 + exp(X)), from the side where exp is small */
static void softplus(mpfr_t out) {
    bool is_positive = mpfr_sgn(X) > 0;
    if (is_positive) mpfr_neg(out, X, RN);
    else mpfr_set(out, X, RN);
    mpfr_exp(out, out, RN);
    mpfr_log1p(out, out, RN);
    if (is_positive) mpfr_add(out, out, X, RN);
}

static void do_rsqrt(double a, double b) {
    (void)a, (void)b;
    mpfr_sqrt(t, X, RN);
    mpfr_ui_div(real, 1, t, RN);
}
static void do_celu(double a, double b) {
    (void)b;
    if (!(mpfr_sgn(X) < 0)) {
        mpfr_set(real, X, RN);
        return;
    }
    mpfr_div_d(t, X, a, RN);
    mpfr_expm1(t, t, RN);
    mpfr_mul_d(real, t, a, RN);
}
static void do_elu(double a, double b) {
    (void)b;
    if (!(mpfr_sgn(X) < 0)) {
        mpfr_set(real, X, RN);
        return;
    }
    mpfr_expm1(t, X, RN);
    mpfr_mul_d(real, t, a, RN);
}
static void do_selu(double a, double b) {
    do_elu(1, b);
    (void)a;
    if (mpfr_sgn(X) < 0) {
        mpfr_set_str(c, "1.6732632423543772848170429916717", 10, RN);
        mpfr_mul(real, real, c, RN);
    }
    mpfr_set_str(c, "1.0507009873554804934193349852946", 10, RN);
    mpfr_mul(real, real, c, RN);
}
static void do_sigmoid(double a, double b) {
    (void)a, (void)b;
    logistic(X, NULL);
}
static void do_silu(double a, double b) {
    (void)a, (void)b;
    logistic(X, X);
}
static void do_hard_sigmoid(double a, double b) {
    mpfr_mul_d(real, X, a, RN);
    mpfr_add_d(real, real, b, RN);
    clamp01(real);
}
static void do_hard_swish(double a, double b) {
    (void)a, (void)b;
    mpfr_div_ui(t, X, 6, RN);
    mpfr_add_d(t, t, 0.5, RN);
    clamp01(t);
    mpfr_mul(real, X, t, RN);
}
static void do_softplus(double a, double b) {
    (void)a, (void)b;
    softplus(real);
}
static void do_softsign(double a, double b) {
    (void)a, (void)b;
    mpfr_abs(t, X, RN);
    mpfr_add_ui(t, t, 1, RN);
    mpfr_div(real, X, t, RN);
}
static void do_mish(double a, double b) {
    (void)a, (void)b;
    softplus(t);
    mpfr_tanh(t, t, RN);
    mpfr_mul(real, X, t, RN);
}
static void do_gelu(double a, double b) { /* X / 2 * erfc(-X / sqrt 2) */
    (void)a, (void)b;
    mpfr_sqrt_ui(c, 2, RN);
    mpfr_div(t, X, c, RN);
    mpfr_neg(t, t, RN);
    mpfr_erfc(t, t, RN);
    mpfr_mul(real, X, t, RN);
    mpfr_div_2ui(real, real, 1, RN);
}
static void do_gelu_tanh(double a, double b) { /* X / 2 * (1 + tanh v) = X / (1 + exp(-2 v)) */
    (void)a, (void)b;
    mpfr_set_str(c, "0.044715", 10, RN);
    mpfr_sqr(u, X, RN);
    mpfr_mul(u, u, c, RN);
    mpfr_add_ui(u, u, 1, RN);
    mpfr_mul(u, u, X, RN);
    mpfr_const_pi(c, RN);
    mpfr_ui_div(c, 2, c, RN);
    mpfr_sqrt(c, c, RN);
    mpfr_mul(u, u, c, RN);
    mpfr_mul_2ui(u, u, 1, RN);
    logistic(u, X);
}
static void do_pow(double a, double b) {
    (void)a, (void)b;
    mpfr_pow(real, X, Y, RN);
}
static void do_atan2(double a, double b) {
    (void)a, (void)b;
    mpfr_atan2(real, X, Y, RN);
}
static void do_hypot(double a, double b) {
    (void)a, (void)b;
    mpfr_hypot(real, X, Y, RN);
}

typedef void formula_fn(double a, double b);
static const struct {
    ir_op op;
    int variant;
    formula_fn *fn;
} formulas[] = {
    {IR_OP_RSQRT, 0, do_rsqrt},     {IR_OP_ELU, 0, do_elu},
    {IR_OP_CELU, 0, do_celu},       {IR_OP_SELU, 0, do_selu},
    {IR_OP_SIGMOID, 0, do_sigmoid}, {IR_OP_HARD_SIGMOID, 0, do_hard_sigmoid},
    {IR_OP_SILU, 0, do_silu},       {IR_OP_HARD_SWISH, 0, do_hard_swish},
    {IR_OP_MISH, 0, do_mish},       {IR_OP_SOFTPLUS, 0, do_softplus},
    {IR_OP_GELU, 0, do_gelu},       {IR_OP_SOFTSIGN, 0, do_softsign},
    {IR_OP_GELU, 1, do_gelu_tanh},  {IR_OP_POW, 0, do_pow},
    {IR_OP_ATAN2, 0, do_atan2},     {IR_OP_HYPOT, 0, do_hypot},
};

static unary_fn *find_unary(ir_op op) {
    for (size_t i = 0; i < COUNT(unary); i++)
        if (unary[i].op == op) return unary[i].fn;
    return NULL;
}

static formula_fn *find_formula(ir_op op, int variant) {
    for (size_t i = 0; i < COUNT(formulas); i++)
        if (formulas[i].op == op && formulas[i].variant == variant) return formulas[i].fn;
    return NULL;
}

bool exact_has(ir_op op, int variant) { return find_formula(op, variant) || (variant == 0 && find_unary(op)); }

void exact_set(ir_op op, int variant, const double *attr, double x, double y) {
    static bool is_ready;
    if (!is_ready) mpfr_inits2(BITS, real, X, Y, t, u, c, (mpfr_ptr)NULL);
    is_ready = true;
    mpfr_set_d(X, x, RN);
    mpfr_set_d(Y, y, RN);
    formula_fn *formula = find_formula(op, variant);
    /* A NaN has no sign to branch on; pow and hypot have numbers for some. */
    if (formula && mpfr_nan_p(X) && op != IR_OP_POW && op != IR_OP_HYPOT) mpfr_set_nan(real);
    else if (formula) formula(attr[0], attr[1]);
    else find_unary(op)(real, X, RN);
}

/* The exact value rounded to type t. It is rounded to odd in f64 first where t is narrower, so that it is rounded once.
 */
static double nearest(ir_dtype type) {
    if (type == FUSOR_F64) return mpfr_get_d(real, RN);
    if (type == FUSOR_F32) return (double)mpfr_get_flt(real, RN);
    double v = mpfr_get_d(real, MPFR_RNDZ);
    uint64_t bits;
    memcpy(&bits, &v, 8);
    if (mpfr_cmp_d(real, v) != 0) bits |= 1;
    memcpy(&v, &bits, 8);
    return type == FUSOR_F16 ? (double)ir_f16_to_f32(ir_f64_to_f16(v)) : (double)ir_bf16_to_f32(ir_f64_to_bf16(v));
}

bool exact_is_finite(ir_dtype type) { return mpfr_number_p(real) && isfinite(nearest(type)); }

double exact_error(ir_dtype type, double got, double *abs_out) {
    exact_format f = exact_format_of(type);
    *abs_out = INFINITY;
    if (mpfr_nan_p(real)) return got != got ? *abs_out = 0 : INFINITY;
    if (got != got) return INFINITY;
    bool has_sign = !signbit(got) == !mpfr_signbit(real);
    if (mpfr_inf_p(real)) return isinf(got) && has_sign ? *abs_out = 0 : INFINITY;
    if (got == 0 && !has_sign) return INFINITY;
    if (got == 0 && mpfr_zero_p(real)) return *abs_out = 0;
    if (isinf(got) && nearest(type) == got) return *abs_out = 0;
    mpfr_set_d(t, got, RN);
    if (isinf(got)) mpfr_set_si_2exp(t, got < 0 ? -1 : 1, f.largest, RN);
    mpfr_sub(t, t, real, RN);
    mpfr_abs(t, t, RN);
    *abs_out = mpfr_get_d(t, RN);
    long exponent = mpfr_zero_p(real) ? f.least : mpfr_get_exp(real);
    if (exponent > f.largest) exponent = f.largest;
    if (exponent < f.least) exponent = f.least;
    mpfr_mul_2si(t, t, f.digits - exponent, RN);
    return mpfr_get_d(t, RN);
}

#else
bool exact_has(ir_op op, int variant) {
    (void)op, (void)variant;
    return false;
}
void exact_set(ir_op op, int variant, const double *attr, double x, double y) {
    (void)op, (void)variant, (void)attr, (void)x, (void)y;
}
bool exact_is_finite(ir_dtype t) {
    (void)t;
    return false;
}
double exact_error(ir_dtype type, double got, double *abs_out) {
    (void)type, (void)got;
    *abs_out = INFINITY;
    return INFINITY;
}
#endif
