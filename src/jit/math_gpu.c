/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math_gpu.c: f32 functions by what a GPU has beside additions: 2^x and 1 / x to one or two units (ex2.approx,
 * rcp.approx). No division here is div.rn, nor a root sqrt.rn: of those ptxas makes calls for arguments out of the
 * ordinary, around which the driver's linker keeps a kernel's values in twice the registers.
 *
 * Errors where those two round correctly (a model on the host, every 4099th float), in ULP: exp 0.83, exp2 0.75, tanh
 * 1.50, sigmoid 1.26, erf 1.01; silu and gelu 4 or 4.2e-8. A unit that ex2.approx is off adds one to exp, exp2 and
 * sigmoid, less to others. CUDA documents 1 ULP for its expf and 2 for its tanhf, which are made of the same steps. */
#include "jit/gpu.h"
#include "jit/math_impl.h"

#define LOG2E      1.44269504088896340736
#define LOG2E_HIGH 0x1.715476p+0
#define LOG2E_LOW  0x1.4ae0cp-26
#define MAGIC      0x1.8p23

/* gelu_log: error 2^-24.7 of a times the tail, 2^-13.7 of the tail where that is less */
static const float gelu_log[13] = {
    -0x1.ffff98p-1f,  -0x1.26b1aap+0f,  -0x1.d607cep-2f,  -0x1.b14a8ap-5f,  0x1.ea2516p-8f,
    -0x1.7fe992p-12f, -0x1.0c3e54p-13f, 0x1.439afap-15f,  -0x1.73ad58p-18f, 0x1.0349c2p-21f,
    -0x1.bca94ap-26f, 0x1.af9db2p-31f,  -0x1.6b827cp-37f,
};

/* ---- instructions ---- */
static LLVMValueRef each_lane(emit *e, const char *name, bool has_type, LLVMValueRef x) {
    if (e->lanes == 1) return gpu_call(e, name, &e->t_f32, has_type, &x, 1);
    LLVMValueRef all = LLVMGetPoison(LLVMTypeOf(x));
    for (int l = 0; l < e->lanes; l++) {
        LLVMValueRef one = em_lane(e, x, l);
        all = LLVMBuildInsertElement(e->b, all, gpu_call(e, name, &e->t_f32, has_type, &one, 1),
                                     LLVMConstInt(e->t_i32, (unsigned)l, 0), "");
    }
    return all;
}

static LLVMValueRef exp2_of(emit *e, LLVMValueRef x) { return each_lane(e, "llvm.nvvm.ex2.approx.ftz", true, x); }
static LLVMValueRef reciprocal_of(emit *e, LLVMValueRef x) {
    return each_lane(e, "llvm.nvvm.rcp.approx.ftz.f", false, x);
}

/* One instruction each. A NaN becomes the bound. */
static LLVMValueRef at_least(emit *e, double c, LLVMValueRef x) {
    return em_intrinsic(e, "llvm.maxnum", 2, (LLVMValueRef[]){x, em_f32(e, c)});
}
static LLVMValueRef at_most(emit *e, double c, LLVMValueRef x) {
    return em_intrinsic(e, "llvm.minnum", 2, (LLVMValueRef[]){x, em_f32(e, c)});
}

static LLVMValueRef is_below(emit *e, LLVMValueRef x, double c) { return em_fcmp(e, LLVMRealOLT, x, em_f32(e, c)); }

/* ---- division: a / b rounded once, as div.rn has it ---- */
/* 1 / b to half a unit and a little. */
static LLVMValueRef near_reciprocal(emit *e, LLVMValueRef b) {
    LLVMValueRef r = reciprocal_of(e, b);
    return em_mad(e, r, em_mad(e, em_fneg(e, b), r, em_f32(e, 1)), r);
}

static LLVMValueRef corrected(emit *e, LLVMValueRef q, LLVMValueRef a, LLVMValueRef b, LLVMValueRef r) {
    return em_mad(e, r, em_mad(e, em_fneg(e, b), q, a), q);
}

/* Is what corrected() computes exact, and what it gives normal or 0? Magnitudes from 2^-60 to 2^60, or a = 0. */
static LLVMValueRef is_ordinary(emit *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef least = em_f32(e, 0x1p-60), most = em_f32(e, 0x1p60), mb = em_fabs(e, b), ma = em_fabs(e, a);
    LLVMValueRef a_fits = em_or(e, em_fcmp(e, LLVMRealOGE, ma, least), em_fcmp(e, LLVMRealOEQ, a, em_f32(e, 0)));
    LLVMValueRef b_fits = em_and(e, em_fcmp(e, LLVMRealOGE, mb, least), em_fcmp(e, LLVMRealOLE, mb, most));
    LLVMValueRef all = em_and(e, em_and(e, a_fits, em_fcmp(e, LLVMRealOLE, ma, most)), b_fits),
                 one = em_lane(e, all, 0);
    for (int l = 1; l < e->lanes; l++) one = em_and(e, one, em_lane(e, all, l));
    return one;
}

/* In f64, whose exponents hold all quotients, and 53 bits of which no quotient of 24-bit numbers rounds the other way.
 * By the first reciprocal where one of both is 0 or no finite number. */
static LLVMValueRef wide_quotient(emit *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef inf = em_f64(e, __builtin_inf()), da = mi_to_f64(e, a), db = mi_to_f64(e, b),
                 first = LLVMGetPoison(LLVMTypeOf(db));
    for (int l = 0; l < e->lanes; l++) {
        LLVMValueRef one = em_lane(e, db, l), r = gpu_call(e, "llvm.nvvm.rcp.approx.ftz.d", NULL, 0, &one, 1);
        if (e->lanes == 1) first = r;
        else first = LLVMBuildInsertElement(e->b, first, r, LLVMConstInt(e->t_i32, (unsigned)l, 0), "");
    }
    LLVMValueRef r = first, minus = em_fneg(e, db);
    for (int i = 0; i < 3; i++) r = em_mad(e, r, em_mad(e, minus, r, em_f64(e, 1)), r);
    LLVMValueRef q = em_fmul(e, da, r);
    q = em_mad(e, r, em_mad(e, minus, q, da), q);
    LLVMValueRef a_is = em_fcmp(e, LLVMRealOLT, em_fabs(e, da), inf),
                 b_is = em_fcmp(e, LLVMRealOLT, em_fabs(e, db), inf);
    LLVMValueRef has_zero = em_fcmp(e, LLVMRealOEQ, em_fmul(e, da, db), em_f64(e, 0));
    LLVMValueRef is_number = em_and(e, em_and(e, a_is, b_is), mi_not(e, has_zero));
    return mi_to_f32(e, em_select(e, is_number, q, em_fmul(e, da, first)));
}

LLVMValueRef math_gpu_divide(emit *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef q[2];
    em_branch is_easy = em_if(e, is_ordinary(e, a, b));
    LLVMValueRef r = near_reciprocal(e, b);
    LLVMValueRef first = em_fmul(e, a, r), twice = corrected(e, corrected(e, first, a, b, r), a, b, r);
    q[0] = em_select(e, em_fcmp(e, LLVMRealOEQ, a, em_f32(e, 0)), first, twice); /* the sign of a zero */
    em_else(e, &is_easy);
    q[1] = wide_quotient(e, a, b);
    em_endif(e, &is_easy);
    LLVMValueRef quotient = LLVMBuildPhi(e->b, LLVMTypeOf(a), "");
    LLVMAddIncoming(quotient, q, (LLVMBasicBlockRef[]){is_easy.then, is_easy.other}, 2);
    return quotient;
}

/* ---- functions ---- */
/* Root and half its reciprocal, that g and h go to together, of x or what it is times 2^64. */
typedef struct roots {
    LLVMValueRef is_small, is_itself, v, first, g, h; /* is_itself: x is 0 or infinite, where `first` is right */
} roots;

static roots roots_of(emit *e, LLVMValueRef x) {
    LLVMValueRef is_small = is_below(e, x, 0x1p-96), half = em_f32(e, 0.5);
    LLVMValueRef v = em_select(e, is_small, em_fmul(e, x, em_f32(e, 0x1p64)), x);
    LLVMValueRef r = each_lane(e, "llvm.nvvm.rsqrt.approx.ftz.f", false, v), g = em_fmul(e, v, r),
                 h = em_fmul(e, r, half);
    LLVMValueRef rest = em_mad(e, em_fneg(e, g), h, half);
    LLVMValueRef is_itself = em_or(e, em_fcmp(e, LLVMRealOEQ, x, em_f32(e, 0)), mi_is_inf(e, x));
    return (roots){is_small, is_itself, v, r, em_mad(e, g, rest, g), em_mad(e, h, rest, h)};
}

/* Rounded once, as sqrt.rn has it, by what is left of x: all floats from 1 to 4 come out right for every rsqrt.approx
 * within two units. */
static LLVMValueRef gpu_sqrt(emit *e, LLVMValueRef *x) {
    roots r = roots_of(e, x[0]);
    LLVMValueRef g = em_mad(e, em_mad(e, em_fneg(e, r.g), r.g, r.v), r.h, r.g);
    g = em_select(e, r.is_small, em_fmul(e, g, em_f32(e, 0x1p-32)), g);
    return em_select(e, r.is_itself, x[0], g);
}

static LLVMValueRef gpu_rsqrt(emit *e, LLVMValueRef *x) {
    roots r = roots_of(e, x[0]);
    LLVMValueRef twice = em_select(e, r.is_small, em_f32(e, 0x1p33), em_f32(e, 2));
    return em_select(e, r.is_itself, r.first, em_fmul(e, r.h, twice));
}

/* 2^k p for x = k + rest, k between -126 and 127: k counts in the last bits of x + 1.5 * 2^23, above its exponent's
 * bias; p takes what is beyond those, down to results that are subnormal and up to infinity, and a NaN. */
static LLVMValueRef scaled_exp2(emit *e, LLVMValueRef sum, LLVMValueRef rest) {
    return em_fmul(e, exp2_of(e, rest), em_f32_of_bits(e, em_shl(e, em_bits_of_f32(e, sum), 23)));
}

static LLVMValueRef exp_of(emit *e, LLVMValueRef x, bool is_negative) {
    LLVMValueRef by = em_f32(e, MAGIC + 127), held = at_least(e, -87.3, x);
    if (!is_negative) held = at_most(e, 88.3, held);
    LLVMValueRef sum = em_mad(e, held, em_f32(e, LOG2E), by), k = em_fsub(e, sum, by);
    LLVMValueRef rest = em_mad(e, x, em_f32(e, LOG2E_HIGH), em_fneg(e, k));
    return scaled_exp2(e, sum, em_mad(e, x, em_f32(e, LOG2E_LOW), rest));
}

static LLVMValueRef gpu_exp(emit *e, LLVMValueRef *x) { return exp_of(e, x[0], false); }

static LLVMValueRef gpu_exp2_exact(emit *e, LLVMValueRef *x) {
    LLVMValueRef by = em_f32(e, MAGIC + 127), sum = em_fadd(e, at_most(e, 127, at_least(e, -126, x[0])), by);
    return scaled_exp2(e, sum, em_fsub(e, x[0], em_fsub(e, sum, by)));
}

/* |x| < 0.6: x + x^3 P(x^2). Above: 1 - 2 / (w + 1), w = exp(2 |x|), which may be infinite. */
static LLVMValueRef gpu_tanh(emit *e, LLVMValueRef *x) {
    LLVMValueRef a = em_fabs(e, x[0]), z = em_fmul(e, x[0], x[0]), one = em_f32(e, 1);
    LLVMValueRef w = em_fadd(e, exp2_of(e, em_fmul(e, a, em_f32(e, 2 * LOG2E))), one);
    LLVMValueRef large = em_mad(e, reciprocal_of(e, w), em_f32(e, -2), one);
    LLVMValueRef small = em_mad(e, em_fmul(e, mi_poly(e, z, mi_tanh_p, 5), z), a, a);
    return em_copysign(e, em_select(e, em_fcmp(e, LLVMRealULT, a, em_f32(e, 0.6)), small, large), x[0]);
}

/* 1 / (1 + w), or w / (1 + w) for x < 0, w = exp(-|x|): the quotient is corrected by what is left of the numerator,
 * with what 1 + w rounds off. */
static LLVMValueRef gpu_sigmoid(emit *e, LLVMValueRef *x) {
    LLVMValueRef w = exp_of(e, em_fneg(e, em_fabs(e, x[0])), true), one = em_f32(e, 1), d = em_fadd(e, one, w);
    LLVMValueRef low = em_fsub(e, w, em_fsub(e, d, one)), r = reciprocal_of(e, d);
    LLVMValueRef top = em_select(e, is_below(e, x[0], 0), w, one), q = em_fmul(e, top, r);
    LLVMValueRef rest = em_mad(e, em_fneg(e, low), q, em_mad(e, em_fneg(e, d), q, top));
    return em_mad(e, rest, r, q);
}

/* x / (1 + exp(-x)); where exp(-x) is infinite 0, which the absolute bound allows. */
static LLVMValueRef gpu_silu(emit *e, LLVMValueRef *x) {
    LLVMValueRef w = exp2_of(e, em_fmul(e, x[0], em_f32(e, -LOG2E)));
    return em_fmul(e, x[0], reciprocal_of(e, em_fadd(e, w, em_f32(e, 1))));
}

/* x times the tail of |x|, or what is left of 1. The tail is 2^P(|x|), P a polynomial for its logarithm up to 13.2,
 * from where on it falls faster than that; or, of the tanh form, 1 / (1 + exp(2 u)). */
static LLVMValueRef gpu_gelu(emit *e, LLVMValueRef *x) {
    const double c = 2 * 0.79788456080286535588 * LOG2E; /* 2 sqrt(2 / pi) */
    LLVMValueRef a = em_fabs(e, x[0]), one = em_f32(e, 1), tail;
    if (e->variant) {
        LLVMValueRef u = em_fmul(e, a, em_mad(e, em_fmul(e, a, a), em_f32(e, c * 0.044715), em_f32(e, c)));
        tail = reciprocal_of(e, em_fadd(e, exp2_of(e, u), one));
    } else {
        tail = exp2_of(e, mi_poly(e, a, gelu_log, 13));
    }
    LLVMValueRef is_above = em_fcmp(e, LLVMRealOGE, x[0], em_f32(e, 0));
    return em_fmul(e, x[0], em_select(e, is_above, em_fsub(e, one, tail), tail));
}

/* As math_erf. */
static LLVMValueRef gpu_erf(emit *e, LLVMValueRef *x) {
    LLVMValueRef a = em_fabs(e, x[0]), z = em_fmul(e, x[0], x[0]);
    LLVMValueRef small = em_mad(e, mi_poly(e, z, mi_erf_p, 7), x[0], x[0]);
    LLVMValueRef large = em_fsub(e, em_f32(e, 1), exp2_of(e, mi_poly(e, at_most(e, 4, a), mi_erf_q, 9)));
    return em_select(e, em_fcmp(e, LLVMRealULT, a, em_f32(e, 0.95)), small, em_copysign(e, large, x[0]));
}

static LLVMValueRef (*const functions[IR_OP_COUNT])(emit *, LLVMValueRef *) = {
    [IR_OP_EXP] = gpu_exp,         [IR_OP_EXP2] = gpu_exp2_exact, [IR_OP_TANH] = gpu_tanh,
    [IR_OP_SIGMOID] = gpu_sigmoid, [IR_OP_SILU] = gpu_silu,       [IR_OP_GELU] = gpu_gelu,
    [IR_OP_ERF] = gpu_erf,         [IR_OP_SQRT] = gpu_sqrt,       [IR_OP_RSQRT] = gpu_rsqrt,
};

bool math_gpu_has(ir_op op) { return functions[op] != NULL; }
LLVMValueRef math_gpu(emit *e, ir_op op, LLVMValueRef *x) { return functions[op] ? functions[op](e, x) : NULL; }
