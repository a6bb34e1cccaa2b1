/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* lower_mod.c: remainders of floats, exact as C's fmod. With q = trunc(x / y) below 2^(digits - 1), x - q * y is exact:
 * it is a multiple of the last place of y and smaller than y (q may be 1 too large, as x / y may round up: then the
 * difference is negative and y is added). Larger quotients are brought down first, which a branch that all lanes take
 * together leaves out where no lane has one:
 *
 *   while any lane has x / y >= 2^(digits - 1):
 *       in these lanes x = the remainder by y * 2^k, with k such that the quotient is just below that
 *   x = the remainder by y */
#include "jit/lower.h"

/* x, y >= 0, finite, y not 0: what the lanes that the results of which are taken hold. */
static LLVMValueRef rest(emit *e, LLVMValueRef x, LLVMValueRef y, LLVMValueRef quotient) {
    LLVMValueRef q = em_intrinsic(e, "llvm.trunc", 1, &quotient), r;
    if (e->level->has_fma || e->dt == FUSOR_F64) {
        r = jit_fma(e, em_fneg(e, q), y, x);
    } else {
        LLVMTypeRef wide = em_vec(e, e->t_f64);
        LLVMValueRef p = em_fmul(e, LLVMBuildFPExt(e->b, q, wide, ""), LLVMBuildFPExt(e->b, y, wide, ""));
        r = LLVMBuildFPTrunc(e->b, em_fsub(e, LLVMBuildFPExt(e->b, x, wide, ""), p), em_vec(e, e->t_f32), "");
    }
    return em_select(e, em_fcmp(e, LLVMRealOLT, r, em_const(e, e->dt, 0)), em_fadd(e, r, y), r);
}

typedef struct format {
    ir_dtype integer;
    int digits, bias;
} format;

static LLVMValueRef exponent(emit *e, const format *f, LLVMValueRef x) {
    return em_lshr(e, LLVMBuildBitCast(e->b, x, em_type(e, f->integer), ""), f->digits - 1);
}

/* One step down of the lanes in `large`. */
static LLVMValueRef step(emit *e, const format *f, LLVMValueRef x, LLVMValueRef y, LLVMValueRef large) {
    LLVMTypeRef type = em_type(e, e->dt);
    LLVMValueRef zero = em_int(e, f->integer, 0), most = em_int(e, f->integer, f->bias - 1);
    /* The exponent of a subnormal y is that of y * 2^digits; x is normal. */
    LLVMValueRef up = em_fmul(e, y, em_const(e, e->dt, e->dt == FUSOR_F64 ? 0x1p53 : 0x1p24));
    LLVMValueRef ey = em_sub(e, exponent(e, f, up), em_int(e, f->integer, f->digits));
    LLVMValueRef field = exponent(e, f, y);
    ey = em_select(e, em_icmp(e, LLVMIntEQ, field, zero), ey, field);
    LLVMValueRef k = em_sub(e, em_sub(e, exponent(e, f, x), ey), em_int(e, f->integer, f->digits - 2));
    LLVMValueRef by = y;
    for (int i = 0; i < 3;
         i++) { /* 2^k is beyond the format where y is small: in three factors, each a product that is exact */
        LLVMValueRef part = em_min(e, k, most);
        part = em_max(e, part, zero);
        LLVMValueRef bits = em_shl(e, em_add(e, part, em_int(e, f->integer, f->bias)), f->digits - 1);
        by = em_fmul(e, by, LLVMBuildBitCast(e->b, bits, type, ""));
        k = em_sub(e, k, part);
    }
    return em_select(e, large, rest(e, x, by, em_fdiv(e, x, by)), x);
}

static LLVMValueRef any(emit *e, LLVMValueRef mask) {
    if (e->lanes == 1) return mask;
    LLVMValueRef bits = LLVMBuildBitCast(e->b, mask, LLVMIntTypeInContext(e->ctx, (unsigned)e->lanes), "");
    return em_icmp(e, LLVMIntNE, bits, LLVMConstNull(LLVMTypeOf(bits)));
}

/* NaN where x is infinite, y is 0 or either is NaN; x where y is infinite. The sign is that of x. */
LLVMValueRef jit_fmod(emit *e, LLVMValueRef x, LLVMValueRef y) {
    const format f = e->dt == FUSOR_F64 ? (format){FUSOR_I64, 53, 1023} : (format){FUSOR_I32, 24, 127};
    LLVMValueRef infinity = em_const(e, e->dt, __builtin_inf()), ax = em_fabs(e, x), ay = em_fabs(e, y);
    LLVMValueRef fits =
        em_and(e, em_fcmp(e, LLVMRealOLT, ax, infinity), em_fcmp(e, LLVMRealOGT, ay, em_const(e, e->dt, 0)));
    LLVMValueRef is_far = em_fcmp(e, LLVMRealOEQ, ay, infinity);
    LLVMValueRef limit = em_const(e, e->dt, e->dt == FUSOR_F64 ? 0x1p52 : 0x1p23);

    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b), head = em_block(e, "quotient"), body = em_block(e, "large");
    LLVMBasicBlockRef done = LLVMCreateBasicBlockInContext(e->ctx, "small");
    LLVMBuildBr(e->b, head);
    LLVMPositionBuilderAtEnd(e->b, head);
    LLVMValueRef m = LLVMBuildPhi(e->b, LLVMTypeOf(ax), "");
    LLVMAddIncoming(m, &ax, &before, 1);
    LLVMValueRef q = em_fdiv(e, m, ay), large = em_and(e, em_fcmp(e, LLVMRealOGE, q, limit), fits);
    LLVMBuildCondBr(e->b, any(e, large), body, done);
    LLVMPositionBuilderAtEnd(e->b, body);
    LLVMValueRef next = step(e, &f, m, ay, large);
    LLVMBasicBlockRef last = LLVMGetInsertBlock(e->b);
    LLVMAddIncoming(m, &next, &last, 1);
    LLVMBuildBr(e->b, head);
    LLVMAppendExistingBasicBlock(e->fn, done);
    LLVMPositionBuilderAtEnd(e->b, done);

    LLVMValueRef r = em_select(e, is_far, m, rest(e, m, ay, q));
    r = em_select(e, fits, r, em_const(e, e->dt, __builtin_nan("")));
    return em_copysign(e, r, x);
}

/* NumPy's: the sign of the divisor, of a zero too. */
LLVMValueRef jit_mod(emit *e, LLVMValueRef x, LLVMValueRef y) {
    LLVMValueRef zero = em_const(e, e->dt, 0), r = jit_fmod(e, x, y);
    LLVMValueRef differ = em_xor(e, em_fcmp(e, LLVMRealOLT, r, zero), em_fcmp(e, LLVMRealOLT, y, zero));
    LLVMValueRef moved = em_select(e, differ, em_fadd(e, r, y), r);
    return em_select(e, em_fcmp(e, LLVMRealOEQ, r, zero), em_copysign(e, zero, y), moved);
}
