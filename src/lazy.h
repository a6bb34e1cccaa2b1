/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_SRC_LAZY_H
#define FUSOR_SRC_LAZY_H
/* Lazy tensors: what context.c, and tests, need to know of lazy.c. */
#include "context.h"

/* Frees every tensor, scope and plan that the context still has. Called when its last reference goes. */
void lazy_free(fusor_context *ctx);

/* For tests: tensors that live, plans that are kept, plans made so far, and steps of the plan that ran last;
 * with device "auto" also where, and the key of its histories. */
typedef struct lazy_stats {
    uint32_t live, plans;
    uint64_t plans_made;
    uint32_t last_steps;
    int32_t last_device;
    uint64_t last_key;
} lazy_stats;
lazy_stats lazy_get_stats(fusor_context *ctx);
#endif
