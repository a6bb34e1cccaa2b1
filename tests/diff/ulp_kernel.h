/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef DIFF_ULP_KERNEL_H
#define DIFF_ULP_KERNEL_H
/* One function of ops.def as a map kernel of one type and level, for ulp.c. */
#include "ir/kernel.h"

enum { CHUNK = 16384 };

typedef struct variant {
    ir_op op;
    int variant;
    bool is_fast;   /* the fast tier */
    double attr[2]; /* rounded to f32, as a kernel's scalars of that type are; f64 kernels get the same */
} variant;

typedef struct kernel {
    ir_kernel_fn fn;
    void *map;
    size_t bytes;
    const variant *v;
    ir_dtype type;
} kernel;

int kernel_best_level(void);
/* False, with the reason on stderr, when it could not be made. */
bool kernel_make(const variant *v, ir_dtype type, int level, kernel *out);
void kernel_drop(kernel *k);
/* x, y, dst: arrays of the kernel's type; y is read by functions of two arguments. n <= CHUNK */
void kernel_run(const kernel *k, const void *x, const void *y, void *dst, int n);
#endif
