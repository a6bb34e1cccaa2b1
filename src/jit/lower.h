/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_LOWER_H
#define JIT_LOWER_H
/* What the lowering files share beyond emit.h. */
#include "jit/emit.h"

/* a * b + c rounded once, f32 or f64 (e->dt), at every level: emulated exactly where there is no instruction. */
LLVMValueRef jit_fma(emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
/* lower_mod.c: remainders of floats (e->dt), exact. May leave the builder in a new block. */
LLVMValueRef jit_fmod(emit *e, LLVMValueRef x, LLVMValueRef y);
LLVMValueRef jit_mod(emit *e, LLVMValueRef x, LLVMValueRef y);
/* lower_half.c: any other type to f16 or bf16, rounded once. */
LLVMValueRef em_half_cast(emit *e, LLVMValueRef x, ir_dtype from, ir_dtype to);
#endif
