/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef JIT_LLVM_COMPAT_H
#define JIT_LLVM_COMPAT_H
/* What differs between LLVM 19 and 22: the only place that asks for LLVM's version. */
#include <llvm-c/Core.h>
#include <stdbool.h>

/* Masked memory: contiguous (ptr) or one pointer a lane (vector of ptr). Inactive lanes of a load give passthru. */
typedef enum compat_masked { COMPAT_CONTIGUOUS, COMPAT_SCATTERED } compat_masked;
LLVMValueRef compat_masked_load(LLVMModuleRef mod, LLVMBuilderRef b, compat_masked kind, LLVMTypeRef type,
                                LLVMValueRef ptr, LLVMValueRef mask, LLVMValueRef passthru, unsigned align);
void compat_masked_store(LLVMModuleRef mod, LLVMBuilderRef b, compat_masked kind, LLVMValueRef value, LLVMValueRef ptr,
                         LLVMValueRef mask, unsigned align);
/* The number of an intrinsic by the name it has now, with what the call has for it. */
unsigned compat_intrinsic(const char *name, unsigned *n_overload, unsigned *n_in);
/* To be called when the attributes of a GPU's kernel are complete. */
void compat_note_limits(LLVMModuleRef mod, LLVMValueRef fn);
/* *at becomes 0 where it is `most`, else one more, at once for all threads of a device; what it was. i32. */
LLVMValueRef compat_count_on_device(LLVMBuilderRef b, LLVMValueRef at, LLVMValueRef most);
#endif
