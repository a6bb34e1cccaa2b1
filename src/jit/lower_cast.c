/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* lower_cast.c: conversions between types (doc/numerics.md: one rounding; float to integer truncates and saturates, NaN
 * gives 0). */
#include "jit/lower.h"

/* fptosi and fptoui give poison out of range; the selects behind them take none of it. */
static LLVMValueRef float_to_int(emit *e, LLVMValueRef x, ir_dtype from, ir_dtype to) {
    int width = 8 * ir_dtypes[to].bytes;
    if (width <
        32) { /* brought into range as a float, which is exact: one maximum, that takes NaN to 0 if lo is 0, one minimum */
        int64_t lo = ir_is_signed(to) ? -(INT64_C(1) << (width - 1)) : 0;
        int64_t hi = ir_is_signed(to) ? -lo - 1 : (INT64_C(1) << width) - 1;
        LLVMValueRef low = em_const(e, from, (double)lo), high = em_const(e, from, (double)hi);
        if (lo < 0) x = em_select(e, em_fcmp(e, LLVMRealORD, x, x), x, em_const(e, from, 0));
        x = em_select(e, em_fcmp(e, LLVMRealOGT, x, low), x, low);
        x = em_select(e, em_fcmp(e, LLVMRealOLT, x, high), x, high);
        return LLVMBuildTrunc(e->b, LLVMBuildFPToSI(e->b, x, em_vec(e, e->t_i32), ""), em_type(e, to), "");
    }
    LLVMTypeRef type = em_type(e, to);
    if (!ir_is_signed(to)) {
        LLVMValueRef limit = em_const(e, from, width == 64 ? 0x1p64 : 0x1p32);
        LLVMValueRef v = LLVMBuildFPToUI(e->b, x, type, "");
        v = em_select(e, em_fcmp(e, LLVMRealOGE, x, limit), em_int(e, to, -1), v);
        return em_select(e, em_fcmp(e, LLVMRealULE, x, em_const(e, from, 0)), em_int(e, to, 0), v); /* NaN too */
    }
    double limit = width == 64 ? 0x1p63 : 0x1p31;
    int64_t max = width == 64 ? INT64_MAX : INT32_MAX;
    LLVMValueRef v = LLVMBuildFPToSI(e->b, x, type, "");
    v = em_select(e, em_fcmp(e, LLVMRealOGE, x, em_const(e, from, limit)), em_int(e, to, max), v);
    v = em_select(e, em_fcmp(e, LLVMRealOLT, x, em_const(e, from, -limit)), em_int(e, to, -max - 1), v);
    return em_select(e, em_fcmp(e, LLVMRealUNO, x, x), em_int(e, to, 0), v);
}

LLVMValueRef em_cast(emit *e, LLVMValueRef x, ir_dtype from, ir_dtype to) {
    LLVMTypeRef type = em_type(e, to);
    if (from == to) return x;
    if (ir_is_half(from)) return em_cast(e, x, FUSOR_F32, to);
    if (ir_is_half(to)) return em_half_cast(e, x, from, to);
    if (ir_is_bool(to)) {
        if (ir_is_float(from)) return em_fcmp(e, LLVMRealUNE, x, em_const(e, from, 0));
        return em_icmp(e, LLVMIntNE, x, em_int(e, from, 0));
    }
    if (ir_is_bool(from)) return em_select(e, x, em_const(e, to, 1), em_const(e, to, 0));
    if (ir_is_float(from)) {
        if (!ir_is_float(to)) return float_to_int(e, x, from, to);
        return to == FUSOR_F64 ? LLVMBuildFPExt(e->b, x, type, "") : LLVMBuildFPTrunc(e->b, x, type, "");
    }
    if (ir_is_float(to)) {
        if (ir_is_signed(from)) return LLVMBuildSIToFP(e->b, x, type, "");
        if (ir_dtypes[from].bytes >= 4) return LLVMBuildUIToFP(e->b, x, type, "");
        return LLVMBuildSIToFP(e->b, LLVMBuildZExt(e->b, x, em_vec(e, e->t_i32), ""), type, "");
    }
    int wider = ir_dtypes[to].bytes - ir_dtypes[from].bytes;
    if (wider == 0) return x;
    if (wider < 0) return LLVMBuildTrunc(e->b, x, type, "");
    return ir_is_signed(from) ? LLVMBuildSExt(e->b, x, type, "") : LLVMBuildZExt(e->b, x, type, "");
}
