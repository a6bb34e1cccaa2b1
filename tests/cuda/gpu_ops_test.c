/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_ops_test.c: the differential test of every operator (ops_test.c) with GPU kernels, run by the interpreter. */
#include "ir/target.h"
#include "gpu_run.h"

#define LAUNCH    gpu_launch
#define N_TARGETS 2
/* sm_70 differs in how it rounds halves and takes maxima: one check of a few. */
static bool choose_target(int i, uint32_t levels, const char *text, ir_target *out) {
    (void)text;
    *out = (ir_target){i ? IR_LEVEL_SM70 : IR_LEVEL_SM80, 0};
    return i == 0 || levels % 3 == 0;
}
/* What takes the interpreter long is left out: it does some ten million instructions of a lane a second. */
#define IS_FOR_US(size) ((size)[0] * ((size)[1] > 0 ? (size)[1] : 1) * ((size)[2] > 0 ? (size)[2] : 1) <= 1500)
/* f32, and a sixth of the others, not the same for each operator; fused alone. */
#define IS_TYPE_FOR_US(op, t) ((t) == FUSOR_F32 || mix((uint64_t)(op)*64 + (uint64_t)(t)) % 6 == 0)
#define N_FUSIONS             1
#include "../diff/ops_test.c"
