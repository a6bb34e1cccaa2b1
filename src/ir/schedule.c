/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* schedule.c: tables by CPU level. */
#include "ir/schedule.h"

ir_dtype ir_contract_acc(ir_dtype a, ir_dtype b, ir_dtype result) {
    if (ir_is_float(a)) return a == FUSOR_F64 || b == FUSOR_F64 || result == FUSOR_F64 ? FUSOR_F64 : FUSOR_F32;
    bool narrow = ir_dtypes[a].bytes == 1 && ir_dtypes[b].bytes == 1;
    return narrow && !(ir_is_int(result) && ir_dtypes[result].bytes == 8) ? FUSOR_I32 : FUSOR_I64;
}

/* Two vectors of columns and as many rows as leave at least two registers free (mr * 2 + 2 + 1 <= registers): measured
 * best on AVX-512 among 8x48, 9x48, 12x32, 14x32 and 6x64; no tile spills at these sizes (tests/unit/contract_test.c).
 * Products of integers need a register each where they are not made in place, those of i64 below v4 three: fewer rows.
 * kb: f32 12x32 at 1024, one thread, EPYC family 26 (48 KB L1, 1 MB L2): 512 95.9, 384 95.8, 256 92.6 % of the FMA
 * peak. */
ir_tile ir_contract_tile(ir_level level, ir_dtype acc) {
    int lanes = ir_levels[level].vector_bytes / ir_dtypes[acc].bytes;
    int mr = level == IR_LEVEL_V4 ? 12 : level == IR_LEVEL_V3 ? 6 : 4;
    if (acc == FUSOR_I64 && level != IR_LEVEL_V4) mr = 2;
    if (acc == FUSOR_I32 && level != IR_LEVEL_V4) mr -= 1 + (level == IR_LEVEL_V3);
    return (ir_tile){mr, 2 * lanes, ir_dtypes[acc].bytes == 8 ? 256 : 512};
}
