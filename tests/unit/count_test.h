/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef COUNT_TEST_H
#define COUNT_TEST_H
/* Memory of a context that counts what is taken: for tests that a call takes none. */
#include <stdatomic.h>
#include <stdlib.h>

static atomic_int n_allocations;
static void *counted(void *user, size_t bytes, size_t alignment) {
    (void)user;
    atomic_fetch_add(&n_allocations, 1);
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
static void freed(void *user, void *p, size_t bytes) {
    (void)user;
    (void)bytes;
    free(p);
}
#endif
