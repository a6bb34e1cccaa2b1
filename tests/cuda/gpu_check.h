/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef GPU_CHECK_H
#define GPU_CHECK_H
/* check() of the differential test (../diff/ops_test.c) with GPU kernels, run by the interpreter, for tests that have
 * programs of their own. A test includes this once. */
#include "ir/target.h"
#include "gpu_run.h"

static ir_level gpu_level = IR_LEVEL_SM80;
static int gpu_fusions = 1; /* 2: fused, and not */
static bool gpu_is_fast;
static bool choose_target(int i, uint32_t levels, const char *text, ir_target *out) {
    (void)i, (void)levels, (void)text;
    *out = (ir_target){gpu_level, 0};
    return true;
}
#define LAUNCH                gpu_launch
#define N_TARGETS             1
#define IS_FOR_US(size)       true
#define IS_TYPE_FOR_US(op, t) true
#define N_FUSIONS             gpu_fusions
#define IS_FAST               gpu_is_fast
#define HAS_OWN_PROGRAMS
#pragma GCC diagnostic ignored "-Wunused-function" /* generators of other operators */
#include "../diff/ops_test.c"
#endif
