/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_ARITH_H
#define IR_ARITH_H
/* Arithmetic on sizes of a call, which are the user's: nothing overflows or divides by zero. */
#include <stdint.h>

/* Of numbers from 0 on; 0 where b is not positive. */
static inline int64_t ir_ceil_div(int64_t a, int64_t b) { return b > 0 ? a / b + (a % b != 0) : 0; }
static inline int64_t ir_round_up(int64_t a, int64_t b) { return ir_ceil_div(a, b) * b; }
/* Saturates at a quarter of the range. */
static inline int64_t ir_times(int64_t a, int64_t b) {
    int64_t r;
    return __builtin_mul_overflow(a, b, &r) ? INT64_MAX / 4 : r > INT64_MAX / 4 ? INT64_MAX / 4 : r;
}
#endif
