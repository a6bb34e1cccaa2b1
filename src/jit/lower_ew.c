/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* lower_ew.c: one lower_<name>() for each element-wise row of ops.def, for values of any width and type that the row
 * allows. x[0], x[1] .. are the operands, then the scalar attributes. The dispatch array is made from the rows, so a
 * row without a function does not compile. Approximated functions are in math_*.c, conversions in lower_cast.c.
 *
 * Nothing here may become a call: no frem, no llvm.fma without the instruction, no llvm.exp. Float arithmetic has the
 * same bits at every level, so no fused multiply-add that the operator does not ask for. */
#include "jit/lower.h"
#include "jit/math.h"

#define LOWER(name) static LLVMValueRef lower_##name(emit *e, UNUSED LLVMValueRef *x)
#define UNUSED      __attribute__((unused))

static bool is_float(const emit *e) { return ir_is_float(e->dt); }
static bool is_signed(const emit *e) { return ir_is_signed(e->dt); }
static LLVMValueRef constant(emit *e, double v) { return em_const(e, e->dt, v); }
static LLVMValueRef integer(emit *e, int64_t v) { return em_int(e, e->dt, v); }
static int width(const emit *e) { return 8 * ir_dtypes[e->dt].bytes; }

/* a < b in the main type: false where either is a NaN. */
static LLVMValueRef less(emit *e, LLVMValueRef a, LLVMValueRef b) {
    if (is_float(e)) return em_fcmp(e, LLVMRealOLT, a, b);
    return em_icmp(e, is_signed(e) ? LLVMIntSLT : LLVMIntULT, a, b);
}

/* ---- unary ---- */
LOWER(neg) { return is_float(e) ? em_fneg(e, x[0]) : em_sub(e, integer(e, 0), x[0]); }

LOWER(abs) {
    if (is_float(e)) return em_fabs(e, x[0]);
    if (!is_signed(e)) return x[0];
    return em_select(e, less(e, x[0], integer(e, 0)), em_sub(e, integer(e, 0), x[0]), x[0]);
}

LOWER(sign) {
    LLVMValueRef zero = constant(e, 0), one = constant(e, 1);
    if (!is_float(e) && !is_signed(e)) return em_select(e, em_icmp(e, LLVMIntNE, x[0], zero), one, zero);
    LLVMValueRef not_positive = em_select(e, less(e, x[0], zero), constant(e, -1), x[0]); /* zeros and NaN stay */
    return em_select(e, less(e, zero, x[0]), one, not_positive);
}

LOWER(square) { return is_float(e) ? em_fmul(e, x[0], x[0]) : em_mul(e, x[0], x[0]); }
LOWER(sqrt) { return em_intrinsic(e, "llvm.sqrt", 1, x); }
LOWER(reciprocal) { return em_fdiv(e, constant(e, 1), x[0]); }
LOWER(floor) { return em_intrinsic(e, "llvm.floor", 1, x); }
LOWER(ceil) { return em_intrinsic(e, "llvm.ceil", 1, x); }
LOWER(round) { return em_rint(e, x[0]); }
LOWER(trunc) { return em_intrinsic(e, "llvm.trunc", 1, x); }
LOWER(isnan) { return em_fcmp(e, LLVMRealUNO, x[0], x[0]); }
LOWER(isinf) { return em_fcmp(e, LLVMRealOEQ, em_fabs(e, x[0]), constant(e, __builtin_inf())); }
LOWER(isfinite) { return em_fcmp(e, LLVMRealOLT, em_fabs(e, x[0]), constant(e, __builtin_inf())); }
LOWER(not ) { return em_xor(e, x[0], em_int(e, FUSOR_BOOL, 1)); }
LOWER(bitwise_not) { return em_xor(e, x[0], integer(e, -1)); }

/* ---- activations that are arithmetic ---- */
/* x where x is above lo or a NaN, else lo: one max instruction and the NaN of the left operand put back. The select has
 * the operand order of maxps, whose result is its second operand when either is a NaN or both are zeros. */
static LLVMValueRef maximum(emit *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef m = em_select(e, less(e, b, a), a, b);
    return is_float(e) ? em_select(e, em_fcmp(e, LLVMRealUNO, a, a), a, m) : m;
}

static LLVMValueRef minimum(emit *e, LLVMValueRef a, LLVMValueRef b) {
    LLVMValueRef m = em_select(e, less(e, a, b), a, b);
    return is_float(e) ? em_select(e, em_fcmp(e, LLVMRealUNO, a, a), a, m) : m;
}

static LLVMValueRef clamp(emit *e, LLVMValueRef v, LLVMValueRef lo, LLVMValueRef hi) {
    return minimum(e, maximum(e, v, lo), hi);
}

static LLVMValueRef relu(emit *e, LLVMValueRef v) {
    if (!is_float(e) && !is_signed(e)) return v;
    return em_select(e, less(e, v, constant(e, 0)), constant(e, 0), v);
}

LOWER(relu) { return relu(e, x[0]); }

LOWER(relu6) {
    LLVMValueRef v = relu(e, x[0]), six = constant(e, 6);
    return em_select(e, less(e, six, v), six, v);
}

LOWER(leaky_relu) { return em_select(e, less(e, x[0], constant(e, 0)), em_fmul(e, x[1], x[0]), x[0]); }

/* fma: the sum may cancel, and beta be large. */
LOWER(hard_sigmoid) { return clamp(e, jit_fma(e, x[1], x[0], x[2]), constant(e, 0), constant(e, 1)); }

/* x * (clamp(x + 3, 0, 6) / 6): the sum is exact near -3, where x / 6 + 0.5 would cancel. */
LOWER(hard_swish) {
    LLVMValueRef t = clamp(e, em_fadd(e, x[0], constant(e, 3)), constant(e, 0), constant(e, 6));
    return em_fmul(e, x[0], em_fdiv(e, t, constant(e, 6)));
}

LOWER(softsign) { return em_fdiv(e, x[0], em_fadd(e, constant(e, 1), em_fabs(e, x[0]))); }

/* ---- arithmetic ---- */
LOWER(add) { return is_float(e) ? em_fadd(e, x[0], x[1]) : em_add(e, x[0], x[1]); }
LOWER(sub) { return is_float(e) ? em_fsub(e, x[0], x[1]) : em_sub(e, x[0], x[1]); }
LOWER(mul) { return is_float(e) ? em_fmul(e, x[0], x[1]) : em_mul(e, x[0], x[1]); }

/* x / y truncated, for y that is neither 0 nor (signed) -1. Up to 16 bits in f32 and 32 bits in f64: a quotient that is
 * not an integer is at least 1 / |y| away from one, more than the rounding error, and vectors have float division. */
static LLVMValueRef quotient(emit *e, LLVMValueRef a, LLVMValueRef b) {
    bool sg = is_signed(e);
    if (width(e) == 64) {
        LLVMValueRef q = sg ? LLVMBuildSDiv(e->b, a, b, "") : LLVMBuildUDiv(e->b, a, b, "");
        em_mark_program(e, q);
        return q;
    }
    LLVMTypeRef type = em_vec(e, width(e) == 32 ? e->t_f64 : e->t_f32), to = em_type(e, e->dt);
    LLVMTypeRef wide = em_vec(e, e->t_i32);
    if (width(e) < 32) { /* through i32: vectors convert no narrower integers */
        a = sg ? LLVMBuildSExt(e->b, a, wide, "") : LLVMBuildZExt(e->b, a, wide, "");
        b = sg ? LLVMBuildSExt(e->b, b, wide, "") : LLVMBuildZExt(e->b, b, wide, "");
        LLVMValueRef q = em_fdiv(e, LLVMBuildSIToFP(e->b, a, type, ""), LLVMBuildSIToFP(e->b, b, type, ""));
        return LLVMBuildTrunc(e->b, LLVMBuildFPToSI(e->b, q, wide, ""), to, "");
    }
    if (sg) {
        LLVMValueRef q = em_fdiv(e, LLVMBuildSIToFP(e->b, a, type, ""), LLVMBuildSIToFP(e->b, b, type, ""));
        return LLVMBuildFPToSI(e->b, q, to, "");
    }
    return LLVMBuildFPToUI(e->b, em_fdiv(e, LLVMBuildUIToFP(e->b, a, type, ""), LLVMBuildUIToFP(e->b, b, type, "")), to,
                           "");
}

/* The divisor with 1 in place of 0 and of -1, which would trap or have no quotient. */
static LLVMValueRef safe_divisor(emit *e, LLVMValueRef y) {
    LLVMValueRef bad = em_icmp(e, LLVMIntEQ, y, integer(e, 0));
    if (is_signed(e)) bad = em_or(e, bad, em_icmp(e, LLVMIntEQ, y, integer(e, -1)));
    return em_select(e, bad, integer(e, 1), y);
}

LOWER(div) {
    if (is_float(e)) return em_fdiv(e, x[0], x[1]);
    LLVMValueRef zero = integer(e, 0), q = quotient(e, x[0], safe_divisor(e, x[1]));
    if (is_signed(e)) q = em_select(e, em_icmp(e, LLVMIntEQ, x[1], integer(e, -1)), em_sub(e, zero, x[0]), q);
    return em_select(e, em_icmp(e, LLVMIntEQ, x[1], zero), zero, q);
}

/* 0 for divisors 0 and -1, as x - x / 1 * 1. */
LOWER(fmod) {
    if (is_float(e)) return jit_fmod(e, x[0], x[1]);
    LLVMValueRef y = safe_divisor(e, x[1]);
    return em_sub(e, x[0], em_mul(e, quotient(e, x[0], y), y));
}

LOWER(mod) {
    if (is_float(e)) return jit_mod(e, x[0], x[1]);
    LLVMValueRef r = lower_fmod(e, x), zero = integer(e, 0);
    if (!is_signed(e)) return r;
    LLVMValueRef other_sign = less(e, em_xor(e, r, x[1]), zero);
    LLVMValueRef fix = em_and(e, em_icmp(e, LLVMIntNE, r, zero), other_sign);
    return em_select(e, fix, em_add(e, r, x[1]), r);
}

/* Integers: square and multiply over the bits of the exponent, as a loop (unrolled it would be 64 steps of code). */
LOWER(pow) {
    if (is_float(e)) return e->dt == FUSOR_F64 ? math64_pow(e, x[0], x[1]) : math_pow(e, x[0], x[1]);
    LLVMValueRef one = integer(e, 1), zero = integer(e, 0);
    em_loop l = em_for(e, em_i64s(e, 0), em_i64s(e, width(e)), em_i64s(e, 1));
    LLVMValueRef r = em_loop_phi(e, &l, one), b = em_loop_phi(e, &l, x[0]), n = em_loop_phi(e, &l, x[1]);
    LLVMValueRef odd = em_icmp(e, LLVMIntNE, em_and(e, n, one), zero);
    em_loop_next(e, r, em_select(e, odd, em_mul(e, r, b), r));
    em_loop_next(e, b, em_mul(e, b, b));
    em_loop_next(e, n, em_lshr(e, n, 1));
    em_end(e, &l);
    if (!is_signed(e)) return r;
    LLVMValueRef minus = integer(e, -1), is_odd = em_icmp(e, LLVMIntNE, em_and(e, x[1], one), zero);
    LLVMValueRef inverse = em_select(e, em_icmp(e, LLVMIntEQ, x[0], minus), em_select(e, is_odd, minus, one), zero);
    inverse = em_select(e, em_icmp(e, LLVMIntEQ, x[0], one), one, inverse);
    return em_select(e, less(e, x[1], zero), inverse, r);
}

LOWER(maximum) { return maximum(e, x[0], x[1]); }
LOWER(minimum) { return minimum(e, x[0], x[1]); }
LOWER(copysign) { return em_copysign(e, x[0], x[1]); }

/* ---- comparisons ---- */
static LLVMValueRef compare(emit *e, LLVMValueRef *x, LLVMRealPredicate f, LLVMIntPredicate s, LLVMIntPredicate u) {
    if (is_float(e)) return em_fcmp(e, f, x[0], x[1]);
    return em_icmp(e, is_signed(e) ? s : u, x[0], x[1]);
}
LOWER(eq) { return compare(e, x, LLVMRealOEQ, LLVMIntEQ, LLVMIntEQ); }
LOWER(ne) { return compare(e, x, LLVMRealUNE, LLVMIntNE, LLVMIntNE); }
LOWER(lt) { return compare(e, x, LLVMRealOLT, LLVMIntSLT, LLVMIntULT); }
LOWER(le) { return compare(e, x, LLVMRealOLE, LLVMIntSLE, LLVMIntULE); }
LOWER(gt) { return compare(e, x, LLVMRealOGT, LLVMIntSGT, LLVMIntUGT); }
LOWER(ge) { return compare(e, x, LLVMRealOGE, LLVMIntSGE, LLVMIntUGE); }

/* ---- bits ---- */
LOWER(and) { return em_and(e, x[0], x[1]); }
LOWER(or) { return em_or(e, x[0], x[1]); }
LOWER(xor) { return em_xor(e, x[0], x[1]); }

/* A negative count is a huge one when it is compared as unsigned. The select takes nothing of a shift that is too far.
 * For a GPU the count itself is kept small: LLVM 22 makes compare, shift and select one PTX shift, whose count has 32
 * bits, and so shifts by 2^63 by 0. */
static LLVMValueRef count_of(emit *e, LLVMValueRef count, LLVMValueRef fits) {
    return ir_level_is_gpu(e->k->level) ? em_select(e, fits, count, integer(e, 0)) : count;
}

LOWER(shl) {
    LLVMValueRef fits = em_icmp(e, LLVMIntULT, x[1], integer(e, width(e)));
    return em_select(e, fits, LLVMBuildShl(e->b, x[0], count_of(e, x[1], fits), ""), integer(e, 0));
}

LOWER(shr) {
    LLVMValueRef fits = em_icmp(e, LLVMIntULT, x[1], integer(e, width(e)));
    if (!is_signed(e)) return em_select(e, fits, LLVMBuildLShr(e->b, x[0], count_of(e, x[1], fits), ""), integer(e, 0));
    return LLVMBuildAShr(e->b, x[0], em_select(e, fits, x[1], integer(e, width(e) - 1)), "");
}

/* ---- ternary ---- */
LOWER(select) { return em_select(e, x[0], x[1], x[2]); }
LOWER(clamp) { return clamp(e, x[0], x[1], x[2]); }
LOWER(fma) { return jit_fma(e, x[0], x[1], x[2]); }

/* ---- functions of math_*.c ---- */
#define MATH1(name)                                                                                                    \
    LOWER(name) { return e->dt == FUSOR_F64 ? math64_##name(e, x[0]) : math_##name(e, x[0]); }
#define MATH2(name)                                                                                                    \
    LOWER(name) { return e->dt == FUSOR_F64 ? math64_##name(e, x[0], x[1]) : math_##name(e, x[0], x[1]); }
LOWER(rsqrt) { return math_rsqrt(e, x[0]); }
MATH1(cbrt)
MATH1(exp)
MATH1(exp2)
MATH1(expm1)
MATH1(log)
MATH1(log2)
MATH1(log10)
MATH1(log1p)
MATH1(sin)
MATH1(cos)
MATH1(tan)
MATH1(asin)
MATH1(acos)
MATH1(atan)
MATH1(sinh)
MATH1(cosh)
MATH1(tanh)
MATH1(asinh)
MATH1(acosh)
MATH1(atanh)
MATH1(erf)
MATH1(erfc)
MATH2(elu)
MATH2(celu)
MATH1(selu)
MATH1(sigmoid)
MATH1(silu)
MATH1(softplus)
MATH1(mish)
MATH1(gelu)
MATH2(atan2)
MATH2(hypot)

/* ---- dispatch ---- */
typedef LLVMValueRef (*lowering)(emit *e, LLVMValueRef *x);
static const lowering lowerings[IR_OP_COUNT] = {
#define EW(ID, name, ...) [IR_OP_##ID] = lower_##name,
#define CONVERT(...)
#define REDUCE(...)
#define OTHER(...)
#include "ir/ops.def"
#undef EW
#undef CONVERT
#undef REDUCE
#undef OTHER
};

static LLVMValueRef bitcast(emit *e, LLVMValueRef x, ir_dtype from, ir_dtype to) {
    if (from == to) return x;
    if (ir_is_half(from)) x = em_half_bits(e, from, x);
    return ir_is_half(to) ? em_half_value(e, to, x) : LLVMBuildBitCast(e->b, x, em_type(e, to), "");
}

LLVMValueRef em_lower(emit *e, const ir_kinst *inst, LLVMValueRef *in, const ir_dtype *in_type) {
    ir_op op = (ir_op)inst->op;
    if (op == IR_OP_CAST) return em_cast(e, in[0], in_type[0], inst->dtype);
    if (op == IR_OP_BITCAST) return bitcast(e, in[0], in_type[0], inst->dtype);
    ir_dtype t = in_type[ir_ops[op].flags & IR_COND ? 1 : 0];
    e->dt = ir_is_half(t) ? FUSOR_F32 : t;
    e->variant = inst->variant;
    LLVMValueRef v = e->dt == FUSOR_F32 && ir_level_is_gpu(e->k->level) ? math_gpu(e, op, in) : NULL;
    if (!v && e->fast_math && e->dt == FUSOR_F32) v = math_fast(e, op, in);
    if (!v) v = lowerings[op](e, in);
    if (!ir_is_half(inst->dtype) || ir_ops[op].flags & IR_CLOSED) return v;
    return em_half_round(e, t, v, true);
}
