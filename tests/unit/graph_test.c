/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* graph_test.c: hash-consing, weak literals, copies, and sizes bound at a call. */
#include "new_graph.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(graph, .init = setup, .fini = teardown);

static ir_size sym(const char *name) { return ir_size_sym(g->sizes, name); }
static ir_size num(int64_t v) { return ir_size_const(g->sizes, v); }
#define PARAM(name, t, ...)                                                                                            \
    ir_add_param(g, name, t, (int)(sizeof((ir_size[]){__VA_ARGS__}) / sizeof(ir_size)), (ir_size[]){__VA_ARGS__}, here)
static ir_operand lit_i(int64_t v) { return (ir_operand){.literal = IR_LIT_INT, .i = v, .f = (double)v, .loc = here}; }
static ir_operand lit_f(double v) { return (ir_operand){.literal = IR_LIT_FLOAT, .f = v, .loc = here}; }
static ir_operand lit_b(bool v) { return (ir_operand){.literal = IR_LIT_BOOL, .i = v, .loc = here}; }
#define ADD(op, ...)                                                                                                   \
    ir_add(g, op, (int)(sizeof((ir_operand[]){__VA_ARGS__}) / sizeof(ir_operand)), (ir_operand[]){__VA_ARGS__}, NULL,  \
           0, here)
#define EXPECT_ERROR(call, part)                                                                                       \
    do {                                                                                                               \
        fu_error_clear(error);                                                                                         \
        cr_expect_eq((call), 0u);                                                                                      \
        cr_expect(strstr(error->text, part) != NULL, "message: %s", error->text);                                      \
    } while (0)

Test(graph, conses_made_nodes_and_keeps_written_ones) {
    const ir_id x = PARAM("x", FUSOR_F32, sym("N")), y = PARAM("y", FUSOR_F32, sym("N"));
    const fu_loc nowhere = {0, 0};
    const ir_operand in[2] = {ir_use(x), ir_use(y)};
    cr_expect_eq(ir_add(g, IR_OP_ADD, 2, in, NULL, 0, nowhere), ir_add(g, IR_OP_ADD, 2, in, NULL, 0, nowhere));
    cr_expect_neq(ADD(IR_OP_ADD, ir_use(x), ir_use(y)), ADD(IR_OP_ADD, ir_use(x), ir_use(y)),
                  "each statement is itself");
    cr_expect_eq(ir_add_literal(g, FUSOR_F32, 0), ir_add_literal(g, FUSOR_F32, 0));
    cr_expect_neq(ir_add_literal(g, FUSOR_F32, 0), ir_add_literal(g, FUSOR_F32, 0x80000000u), "-0 is not 0");
    ir_attr slope = {.is_set = true, .number = 0.01};
    ir_attr attrs[2] = {slope};
    const ir_operand op = ir_use(x);
    const fu_loc none = {0, 0};
    const ir_id leaky = ir_add(g, IR_OP_LEAKY_RELU, 1, &op, NULL, 0, none);
    cr_expect_eq(ir_add(g, IR_OP_LEAKY_RELU, 1, &op, attrs, 0, none), leaky, "the default written out");
    attrs[0].number = 0.5;
    cr_expect_neq(ir_add(g, IR_OP_LEAKY_RELU, 1, &op, attrs, 0, none), leaky);
}

Test(graph, literals_take_the_type_of_their_role) {
    const ir_id h = PARAM("h", FUSOR_F16, num(4)), i = PARAM("i", FUSOR_I8, num(4)), c = PARAM("c", FUSOR_BOOL, num(4));
    ir_id n = ADD(IR_OP_ADD, ir_use(h), lit_f(0.1));
    cr_assert_neq(n, 0u);
    cr_expect_eq(ir_at(g, ir_at(g, n)->in[1])->dtype, FUSOR_F16);
    cr_expect_eq(ir_at(g, ir_at(g, n)->in[1])->bits, 0x2e66u);
    cr_expect_eq(ir_at(g, n)->stretch[1], 1, "a scalar is stretched");
    n = ADD(IR_OP_SELECT, ir_use(c), ir_use(h), lit_i(1));
    cr_assert_neq(n, 0u);
    cr_expect_eq(ir_at(g, ir_at(g, n)->in[2])->dtype, FUSOR_F16);
    n = ADD(IR_OP_SELECT, lit_b(true), ir_use(h), lit_i(1));
    cr_assert_neq(n, 0u);
    EXPECT_ERROR(ADD(IR_OP_ADD, ir_use(i), lit_f(1.5)), "cast");
    EXPECT_ERROR(ADD(IR_OP_ADD, ir_use(i), lit_i(128)), "does not fit i8");
    EXPECT_ERROR(ADD(IR_OP_ADD, ir_use(h), lit_i(70000)), "infinity");
    EXPECT_ERROR(ADD(IR_OP_ADD, ir_use(h), lit_b(true)), "only beside bool");
    EXPECT_ERROR(ADD(IR_OP_EQ, ir_use(c), lit_i(1)), "true or false");
    EXPECT_ERROR(ADD(IR_OP_SELECT, ir_use(c), lit_f(1), lit_f(2)), "dtype=");
    EXPECT_ERROR(ADD(IR_OP_SELECT, lit_i(1), ir_use(h), ir_use(h)), "select");
    EXPECT_ERROR(ADD(IR_OP_ADD, ir_use(h)), "takes 2 operands, got 1");
    ir_attr dtype = {.is_set = true, .integer = FUSOR_F64};
    const ir_operand two[3] = {ir_use(c), lit_f(1), lit_i(2)};
    n = ir_add(g, IR_OP_SELECT, 3, two, &dtype, 0, here);
    cr_assert_neq(n, 0u);
    cr_expect_eq(ir_at(g, n)->dtype, FUSOR_F64);
    fu_error_clear(error);
    cr_expect_eq(ADD(IR_OP_ADD, ir_use(0), ir_use(h)), 0u);
    cr_expect_eq(error->status, FUSOR_OK, "an operand that failed has been reported already");
}

Test(graph, cast_converts_the_exact_literal) {
    const ir_operand x = lit_f(1.5);
    const ir_id n = ir_add(g, IR_OP_CAST, 1, &x, NULL, FUSOR_I32, here);
    cr_assert_neq(n, 0u);
    cr_expect_eq(ir_at(g, n)->dtype, FUSOR_I32);
    cr_expect_eq(ir_at(g, ir_at(g, n)->in[0])->dtype, FUSOR_F64);
}

Test(graph, copies_live_nodes_in_order) {
    const ir_id x = PARAM("x", FUSOR_F32, sym("N"));
    PARAM("unused", FUSOR_F32, num(1));
    const ir_id dead = ADD(IR_OP_EXP, ir_use(x)), y = ADD(IR_OP_RELU, ir_use(x));
    (void)dead;
    fu_push(&arena, &g->results, (ir_result){.name = "y", .node = y, .alias = -1});
    fu_arena other;
    fu_arena_init(&other, &oom);
    const ir_graph *c = ir_graph_copy_live(&other, g);
    fu_arena_free(&arena); /* nothing of it is left in the copy */
    cr_expect_eq(c->nodes.n, 4u);
    cr_expect_eq(c->params.n, 2u);
    cr_expect_eq(ir_at(c, c->results.at[0].node)->op, IR_OP_RELU);
    cr_expect_str_eq(c->params.at[1].name, "unused");
    cr_expect_eq(ir_use_counts(&other, c)[c->params.at[0].node], 1u);
    fu_arena_free(&other);
}

static fusor_status bind(const int64_t *a, const int64_t *b) {
    const int64_t *shape[2] = {a, b};
    int64_t values[8];
    fu_error_clear(error);
    return ir_bind_sizes(g, error, shape, values);
}
#define S(...) ((const int64_t[]){__VA_ARGS__})

Test(graph, binds_sizes_and_names_who_disagrees) {
    const ir_id x = PARAM("x", FUSOR_F32, sym("N"), sym("M"));
    const ir_id y = PARAM("y", FUSOR_F32, sym("N"), ir_size_add(g->sizes, sym("M"), num(1)));
    cr_expect_eq(bind(S(2, 3), S(2, 4)), FUSOR_OK);
    cr_expect_eq(bind(S(2, 3), S(5, 4)), FUSOR_ERROR_SHAPE);
    cr_expect(strstr(error->text, "dim N is 2 in parameter %x but 5 in parameter %y"), "%s", error->text);
    cr_expect_eq(bind(S(2, 3), S(2, 3)), FUSOR_ERROR_SHAPE);
    cr_expect(strstr(error->text, "M+1 = 4"), "%s", error->text);
    cr_expect_eq(bind(S(2, -3), S(2, 3)), FUSOR_ERROR_SHAPE);
    const ir_operand sides[2] = {ir_use(x), ir_use(y)};
    ir_attr t[3] = {{.is_set = true, .integer = 1}};
    cr_assert_neq(ir_add(g, IR_OP_MATMUL, 2, sides, t, 0, here), 0u, "%s", error->text);
    cr_expect_eq(g->checks.n, 0u, "N is N: nothing left to check");
    const ir_operand sum[2] = {ir_use(x), ir_use(ir_add(g, IR_OP_TRANSPOSE, 1, sides, NULL, 0, here))};
    cr_assert_neq(ir_add(g, IR_OP_ADD, 2, sum, NULL, 0, here), 0u);
    cr_expect_eq(g->checks.n, 1u, "N against M, whichever way round, once");
    cr_expect_eq(bind(S(3, 3), S(3, 4)), FUSOR_OK);
    cr_expect_eq(bind(S(2, 3), S(2, 4)), FUSOR_ERROR_SHAPE);
    cr_expect(strstr(error->text, "must be equal: N = 2 but M = 3"), "%s", error->text);
}

Test(graph, sizes_that_overflow_at_the_call_are_an_error) {
    const ir_id x = PARAM("x", FUSOR_F32, sym("N"), num(1)), y = PARAM("y", FUSOR_F32, sym("M"));
    const ir_operand in[2] = {ir_use(x), ir_use(y)};
    cr_assert_neq(ir_add(g, IR_OP_ADD, 2, in, NULL, 0, here), 0u);
    cr_expect_eq(bind(S(1ll << 31, 1), S(1ll << 31)), FUSOR_ERROR_SHAPE);
    cr_expect_eq(bind(S(1ll << 31, 1), S(0)), FUSOR_OK);
}
