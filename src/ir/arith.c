/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* arith.c: arithmetic on sizes of a call. */
#include "ir/arith.h"

int64_t ir_ceil_div(int64_t a, int64_t b) { return b > 0 ? a / b + (a % b != 0) : 0; }
int64_t ir_round_up(int64_t a, int64_t b) { return ir_ceil_div(a, b) * b; }

int64_t ir_times(int64_t a, int64_t b) {
    int64_t r;
    return __builtin_mul_overflow(a, b, &r) ? INT64_MAX / 4 : r > INT64_MAX / 4 ? INT64_MAX / 4 : r;
}

int64_t ir_clamp(int64_t v, int64_t low, int64_t high) { return v < low ? low : v > high ? high : v; }

int64_t ir_at_least_one(int64_t v) { return v < 1 ? 1 : v; }
