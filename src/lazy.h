/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_SRC_LAZY_H
#define FUSOR_SRC_LAZY_H
/* Lazy tensors: what context.c needs to know of lazy.c. */
#include "context.h"

/* Frees every tensor, scope and plan that the context still has. Called when its last reference goes. */
void lazy_free(fusor_context *ctx);
#endif
