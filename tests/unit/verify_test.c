/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* verify_test.c: a good graph passes; each broken invariant is named, with the pass and the place. */
#include "text_test.h"

TestSuite(verify, .init = text_start, .fini = text_stop);

static ir_graph *g;
static ir_id y, z;

static void make(void) {
    g = must_parse("func @f(%x: f32[N, 4], %b: f32[4], %p: f32[N, 4]) -> (%z: f32[N, 4] alias %p, %s: f32[N]) {\n"
                   "  %y = add(%x, %b)\n  %z = gelu(%y, approximate=tanh)\n  %s = reduce_sum(%z, axes=[1], dtype=f32)\n"
                   "  %c = cast(%y, f16)\n  %t = reshape(%x, shape=[-1])\n  %l = mul(%x, 2.0)\n  return %z, %s\n}\n")
            ->functions.at[0];
    for (ir_id i = 1; i < g->nodes.n; i++) {
        if (ir_at(g, i)->op == IR_OP_ADD) y = i;
        if (ir_at(g, i)->op == IR_OP_GELU) z = i;
    }
}

/* Breaks a fresh graph and expects the message. */
#define BROKEN(fragment, ...)                                                                                          \
    do {                                                                                                               \
        make();                                                                                                        \
        __VA_ARGS__;                                                                                                   \
        fu_error_clear(&error);                                                                                        \
        cr_expect_eq(ir_verify(g, &error, "fuse"), FUSOR_ERROR_INTERNAL, "%s", fragment);                              \
        cr_expect(strstr(error.text, fragment) && strstr(error.text, "after pass fuse"), "%s, not:\n%s", fragment,     \
                  error.text);                                                                                         \
    } while (0)

Test(verify, good) {
    make();
    cr_assert_eq(ir_verify(g, &error, NULL), FUSOR_OK, "%s", error.text);
    uint32_t checks = g->checks.n;
    size_t bytes = arena.bytes;
    cr_assert_eq(ir_verify(g, &error, "x"), FUSOR_OK);
    cr_assert(g->checks.n == checks && arena.bytes == bytes, "the graph was written to");
}

Test(verify, operands) {
    BROKEN("does not come before", ir_at(g, y)->in[0] = y);
    BROKEN("does not come before", ir_at(g, y)->in[0] = 0);
    BROKEN("does not come before", ir_at(g, y)->in[0] = 4000000000u);
    BROKEN("has 1 operands", ir_at(g, y)->n_in = 1);
    BROKEN("has no operand array", ir_at(g, y)->in = NULL);
    BROKEN("has operator 9999", ir_at(g, y)->op = (ir_op)9999);
}

Test(verify, types) {
    BROKEN("has type f16", ir_at(g, y)->dtype = FUSOR_F16);
    BROKEN("operands give f32[N, 4]", ir_at(g, y)->rank = 1);
    BROKEN("operands give", ir_at(g, y)->dim[1] = ir_size_const(g->sizes, 5));
    BROKEN("has type 77", ir_at(g, y)->dtype = 77);
    BROKEN("has rank 9", ir_at(g, y)->rank = 9);
    BROKEN("dim 0 is -1", ir_at(g, y)->dim[0] = ir_size_const(g->sizes, -1));
    BROKEN("is not well formed", ir_at(g, y)->op = IR_OP_AND);
    BROKEN("stretch mask", ir_at(g, y)->stretch = (uint8_t[]){0, 4});
}

Test(verify, attributes) {
    BROKEN("has no attributes", ir_at(g, z)->attr = NULL);
    BROKEN("word 7", ir_at(g, z)->attr[0].integer = 7);
    for (ir_id i = 1; i < 12; i++) {
        make();
        if (i >= g->nodes.n) break;
        if (ir_at(g, i)->op == IR_OP_REDUCE_SUM)
            BROKEN("attribute dtype is type 99", ir_at(g, i)->attr[2].integer = 99);
        if (ir_at(g, i)->op == IR_OP_RESHAPE) BROKEN("lacks attribute shape", ir_at(g, i)->attr[0].is_set = false);
        if (ir_at(g, i)->op == IR_OP_LITERAL) BROKEN("do not fit f32", ir_at(g, i)->bits = 1ull << 32);
    }
}

Test(verify, params_and_results) {
    BROKEN("parameters 0 and 1 are both %x", g->params.at[1].name = "x");
    BROKEN("parameter 1 has no name", g->params.at[1].name = NULL);
    BROKEN("is node 2, which is another thing", g->params.at[0].node = 2);
    BROKEN("two sources", g->params.at[0].path = "a"; g->params.at[0].has_value = true);
    BROKEN("results 0 and 1 are both %z", g->results.at[1].name = "z");
    BROKEN("which is no value", g->results.at[1].node = 0);
    BROKEN("does not exist", g->results.at[0].alias = 3);
    BROKEN("that another result is over", g->results.at[1].alias = 2);
    BROKEN("but over %b", g->results.at[0].alias = 1);
}

Test(verify, the_place_is_told) { BROKEN("t:2:8: error: @f after pass fuse: node", ir_at(g, y)->dtype = FUSOR_F64); }
