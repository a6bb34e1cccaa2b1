/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_ARITH_H
#define IR_ARITH_H
/* Arithmetic on sizes of a call, which are the user's: nothing overflows or divides by zero. */
#include <stdint.h>

/* Functions, not inline: there are some hundred calls, and a core library of a limited size. */
int64_t ir_ceil_div(int64_t a, int64_t b); /* of numbers from 0 on; 0 where b is not positive */
int64_t ir_round_up(int64_t a, int64_t b); /* to a multiple of b */
int64_t ir_times(int64_t a, int64_t b);    /* saturates at a quarter of the range */
int64_t ir_clamp(int64_t v, int64_t low, int64_t high);
int64_t ir_at_least_one(int64_t v);
#endif
