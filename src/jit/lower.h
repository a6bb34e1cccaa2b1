/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_LOWER_H
#define JIT_LOWER_H
/* What the lowering files share beyond emit.h. */
#include "jit/emit.h"

/* a * b + c rounded once, f32 or f64 (e->dt), at every level: emulated exactly where there is no instruction. */
LLVMValueRef jit_fma(emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
#endif
