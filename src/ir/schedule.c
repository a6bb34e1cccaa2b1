/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* schedule.c: tables by CPU level. */
#include "ir/schedule.h"

const ir_level_info ir_levels[IR_LEVEL_COUNT] = {
#define LEVEL(ID, name, short_name, lanes, bytes, fma, mask, features) {name, short_name, lanes, bytes, fma, mask, features},
#include "ir/level.def"
#undef LEVEL
};

int ir_level_find(const char *name) {
    for (int i = 0; i < IR_LEVEL_COUNT; i++)
        if (strcmp(ir_levels[i].name, name) == 0 || strcmp(ir_levels[i].short_name, name) == 0) return i;
    return -1;
}

/* Two vectors of columns and as many rows as leave at least two registers free (mr * 2 + 2 + 1 <= registers): measured best on
 * AVX-512 among 8x48, 9x48, 12x32, 14x32 and 6x64; no tile spills at these sizes. */
ir_tile ir_contract_tile(ir_level level, ir_dtype acc) {
    int lanes = ir_levels[level].vector_bytes / ir_dtypes[acc].bytes;
    int mr = level == IR_LEVEL_V4 ? 12 : level == IR_LEVEL_V3 ? 6 : 4;
    if (level == IR_LEVEL_V2) return (ir_tile){mr, 2 * lanes, 256};
    return (ir_tile){mr, 2 * lanes, 256};
}
