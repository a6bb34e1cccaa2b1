/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TESTS_NEW_GRAPH_H
#define TESTS_NEW_GRAPH_H
/* An empty graph @f with its error record for each test, to be built by hand. */
#include "ir/graph.h"

static jmp_buf oom;
static fu_arena arena;
static fu_error *error;
static ir_graph *g;
static const fu_loc here = {3, 7};
static void setup(void) {
    fu_arena_init(&arena, &oom);
    error = FU_NEW(&arena, fu_error);
    g = ir_graph_new(&arena, error, NULL, "f");
}
static void teardown(void) { fu_arena_free(&arena); }
#endif
