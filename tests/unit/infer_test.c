/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* infer_test.c: types and shapes of every kind of operator, the messages, and what is left to be checked at the call.
 */
#include "new_graph.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(infer, .init = setup, .fini = teardown);

/* A size from a word: digits are a constant, else a symbol. */
static ir_size dim_of(const char *word) {
    char *end;
    const long v = strtol(word, &end, 10);
    return *end ? ir_size_sym(g->sizes, word) : ir_size_const(g->sizes, v);
}

/* Parameter %x with dims "4,N,8". */
static ir_id param(const char *name, ir_dtype t, const char *dims) {
    ir_size dim[16];
    int rank = 0;
    char *copy = fu_strdup(&arena, dims), *save = NULL;
    for (char *w = strtok_r(copy, ",", &save); w; w = strtok_r(NULL, ",", &save)) dim[rank++] = dim_of(w);
    return ir_add_param(g, name, t, rank, dim, here);
}
static ir_id f32(const char *name, const char *dims) { return param(name, FUSOR_F32, dims); }

static ir_attr *attrs; /* of the next call */
static ir_op attrs_op;
static void set(ir_op op, const char *name, double v) {
    if (!attrs || attrs_op != op) attrs = FU_NEW_N(&arena, ir_attr, IR_MAX_ATTRS), attrs_op = op;
    for (unsigned i = 0; i < ir_ops[op].n_attrs; i++) {
        if (strcmp(ir_ops[op].attrs[i].name, name) == 0)
            attrs[i] = (ir_attr){.is_set = true, .number = v, .integer = (int64_t)v};
    }
}
static void set_list(ir_op op, const char *name, const char *words) {
    set(op, name, 0);
    for (unsigned i = 0; i < ir_ops[op].n_attrs; i++) {
        if (strcmp(ir_ops[op].attrs[i].name, name) != 0) continue;
        ir_size *list = FU_NEW_N(&arena, ir_size, 16);
        char *copy = fu_strdup(&arena, words), *save = NULL;
        for (char *w = strtok_r(copy, ",", &save); w; w = strtok_r(NULL, ",", &save)) list[attrs[i].n++] = dim_of(w);
        attrs[i].list = list;
    }
}
static ir_id add3(ir_op op, ir_id a, ir_id b, ir_id c) {
    const ir_operand in[3] = {ir_use(a), ir_use(b), ir_use(c)};
    fu_error_clear(error);
    const ir_id id = ir_add(g, op, !a ? 0 : !b ? 1 : !c ? 2 : 3, in, attrs_op == op ? attrs : NULL, 0, here);
    attrs = NULL;
    attrs_op = IR_OP_NONE;
    return id;
}
static ir_id add2(ir_op op, ir_id a, ir_id b) { return add3(op, a, b, 0); }
static ir_id add1(ir_op op, ir_id a) { return add3(op, a, 0, 0); }

static const char *type_of(ir_id id) {
    fu_str s;
    fu_str_init(&s, &arena);
    if (id) ir_type_print(&s, g, ir_at(g, id));
    else fu_str_addf(&s, "error: %s", error->text);
    return s.at;
}
#define EXPECT_TYPE(id, text) cr_expect_str_eq(type_of(id), text)
#define EXPECT_ERROR(id, part)                                                                                         \
    do {                                                                                                               \
        const ir_id id_ = (id);                                                                                        \
        cr_expect_eq(id_, 0u, "no error: %s", type_of(id_));                                                           \
        cr_expect(strstr(error->text, part) != NULL, "message: %s", error->text);                                      \
    } while (0)

Test(infer, broadcasts_by_the_text) {
    const ir_id a = f32("a", "4,1,N"), b = f32("b", "5,1"), s = f32("s", "");
    const ir_id n = add2(IR_OP_ADD, a, b);
    EXPECT_TYPE(n, "f32[4, 5, N]");
    cr_expect_eq(ir_at(g, n)->stretch[0], 2);
    cr_expect_eq(ir_at(g, n)->stretch[1], 1 | 4);
    EXPECT_TYPE(add2(IR_OP_ADD, s, b), "f32[5, 1]");
    cr_expect_eq(g->checks.n, 0u);
    /* A named size never stretches: it is checked. */
    EXPECT_TYPE(add2(IR_OP_MUL, a, f32("c", "M")), "f32[4, 1, N]");
    cr_expect_eq(g->checks.n, 1u);
    EXPECT_TYPE(add2(IR_OP_MUL, f32("d", "N"), f32("e", "7")), "f32[7]");
    cr_expect_eq(g->checks.n, 2u);
    EXPECT_ERROR(add2(IR_OP_ADD, f32("p", "4,8"), f32("q", "7")),
                 "add: lhs %p is f32[4, 8] but rhs %q is f32[7]; expected rhs %q dim 0 = 8 or 1");
    cr_expect_eq(error->status, FUSOR_ERROR_SHAPE);
}

Test(infer, checks_element_wise_types) {
    const ir_id x = f32("x", "N"), i = param("i", FUSOR_I32, "N"), c = param("c", FUSOR_BOOL, "N");
    EXPECT_TYPE(add2(IR_OP_LT, x, x), "bool[N]");
    EXPECT_TYPE(add3(IR_OP_SELECT, c, i, i), "i32[N]");
    EXPECT_TYPE(add2(IR_OP_AND, c, c), "bool[N]");
    EXPECT_ERROR(add2(IR_OP_ADD, x, i), "add: lhs %x is f32[N] but rhs %i is i32[N]; expected one type");
    EXPECT_ERROR(add1(IR_OP_EXP, i), "exp: operand %i is i32[N]; expected a float type");
    EXPECT_ERROR(add2(IR_OP_ADD, c, c), "expected a float or integer type");
    EXPECT_ERROR(add3(IR_OP_SELECT, x, x, x), "select: operand 1 %x is f32[N]; expected bool");
    EXPECT_ERROR(add2(IR_OP_SHL, x, x), "expected an integer type");
    cr_expect_eq(error->status, FUSOR_ERROR_TYPE);
}

Test(infer, multiplies_matrices_as_numpy) {
    const ir_id a = f32("a", "4,8"), b = f32("b", "8,N"), v = f32("v", "8");
    EXPECT_TYPE(add2(IR_OP_MATMUL, a, b), "f32[4, N]");
    EXPECT_TYPE(add2(IR_OP_MATMUL, a, v), "f32[4]");
    EXPECT_TYPE(add2(IR_OP_MATMUL, v, b), "f32[N]");
    EXPECT_TYPE(add2(IR_OP_MATMUL, v, v), "f32");
    EXPECT_TYPE(add2(IR_OP_MATMUL, f32("t", "3,1,4,8"), f32("u", "5,8,2")), "f32[3, 5, 4, 2]");
    const ir_node *n = ir_at(g, g->nodes.n - 1);
    cr_expect_eq(n->stretch[0], 2);
    cr_expect_eq(n->stretch[1], 1);
    set(IR_OP_MATMUL, "transpose_a", 1);
    set(IR_OP_MATMUL, "transpose_b", 1);
    EXPECT_TYPE(add2(IR_OP_MATMUL, f32("b1", "8,N"), a), "f32[N, 4]");
    EXPECT_ERROR(add2(IR_OP_MATMUL, a, f32("w", "7,2")),
                 "matmul: lhs %a is f32[4, 8] but rhs %w is f32[7, 2]; expected rhs %w dim 0 = 8");
    EXPECT_ERROR(add2(IR_OP_MATMUL, f32("s", ""), a), "expected rank 1 or more");
    set(IR_OP_MATMUL, "transpose_b", 1);
    EXPECT_ERROR(add2(IR_OP_MATMUL, a, v), "transpose_b=true");
    EXPECT_ERROR(add2(IR_OP_MATMUL, f32("k", "3,4,8"), f32("l", "2,8,2")), "dim 0 = 3 or 1");
    cr_expect_eq(g->checks.n, 0u);
    add2(IR_OP_MATMUL, b, a);
    cr_expect_eq(g->checks.n, 1u);
    const ir_id i8 = param("i8", FUSOR_I8, "4,4"), u8 = param("u8", FUSOR_U8, "4,4"),
                i16 = param("i16", FUSOR_I16, "4,4");
    EXPECT_TYPE(add2(IR_OP_MATMUL, i8, u8), "i32[4, 4]");
    EXPECT_TYPE(add2(IR_OP_MATMUL, i16, i16), "i64[4, 4]");
    EXPECT_ERROR(add2(IR_OP_MATMUL, i8, i16), "u8 with i8");
    set(IR_OP_MATMUL, "dtype", FUSOR_F64);
    const ir_id wide = add2(IR_OP_MATMUL, a, f32("m", "8,2"));
    EXPECT_TYPE(wide, "f64[4, 2]");
    cr_expect_eq(ir_node_accumulator(g, ir_at(g, wide)), FUSOR_F64);
}

Test(infer, reduces) {
    const ir_id x = f32("x", "4,N,8"), i = param("i", FUSOR_I8, "4"), h = param("h", FUSOR_F16, "4");
    EXPECT_TYPE(add1(IR_OP_REDUCE_SUM, x), "f32");
    set_list(IR_OP_REDUCE_SUM, "axes", "-1,0");
    set(IR_OP_REDUCE_SUM, "keepdims", 1);
    const ir_id k = add1(IR_OP_REDUCE_SUM, x);
    EXPECT_TYPE(k, "f32[1, N, 1]");
    cr_expect_eq(ir_node_axes(g, ir_at(g, k)), 5u);
    EXPECT_TYPE(add1(IR_OP_REDUCE_SUM, i), "i64");
    EXPECT_TYPE(add1(IR_OP_REDUCE_MAX, i), "i8");
    const ir_id s = add1(IR_OP_REDUCE_SUM, h);
    EXPECT_TYPE(s, "f16");
    cr_expect_eq(ir_node_accumulator(g, ir_at(g, s)), FUSOR_F32);
    set(IR_OP_REDUCE_SUM, "dtype", FUSOR_F64);
    EXPECT_TYPE(add1(IR_OP_REDUCE_SUM, h), "f64");
    set_list(IR_OP_REDUCE_SUM, "axes", "");
    EXPECT_TYPE(add1(IR_OP_REDUCE_SUM, x), "f32[4, N, 8]");
    set_list(IR_OP_REDUCE_SUM, "axes", "0,-3");
    EXPECT_ERROR(add1(IR_OP_REDUCE_SUM, x), "axis -3 is repeated");
    set_list(IR_OP_REDUCE_SUM, "axes", "3");
    EXPECT_ERROR(add1(IR_OP_REDUCE_SUM, x),
                 "axis 3 is out of range for operand %x of type f32[4, N, 8]; expected -3 to 2");
    EXPECT_ERROR(add1(IR_OP_REDUCE_MEAN, i), "expected a float type");
    EXPECT_TYPE(add1(IR_OP_ARGMAX, x), "i64");
    set(IR_OP_ARGMAX, "axis", -1);
    EXPECT_TYPE(add1(IR_OP_ARGMAX, x), "i64[4, N]");
    EXPECT_TYPE(add1(IR_OP_REDUCE_ANY, param("c", FUSOR_BOOL, "0")), "bool");
}

Test(infer, empty_axes_have_no_maximum) {
    EXPECT_ERROR(add1(IR_OP_REDUCE_MAX, f32("x", "4,0")), "no element to give");
    set_list(IR_OP_REDUCE_MAX, "axes", "1");
    EXPECT_TYPE(add1(IR_OP_REDUCE_MAX, f32("y", "0,0")), "f32[0]");
    cr_expect_eq(g->checks.n, 0u);
    set_list(IR_OP_REDUCE_MAX, "axes", "1");
    EXPECT_TYPE(add1(IR_OP_REDUCE_MAX, f32("z", "B,N")), "f32[B]");
    cr_assert_eq(g->checks.n, 1u);
    cr_expect_eq(g->checks.at[0].kind, IR_CHECK_NOT_ZERO);
    const int64_t first[2] = {4, 0}, second[2] = {0, 0};
    int64_t shape[2], values[2];
    const int64_t *shapes[3] = {first, second, shape};
    shape[0] = 0, shape[1] = 0;
    cr_expect_eq(ir_bind_sizes(g, error, shapes, values), FUSOR_OK);
    shape[0] = 2;
    cr_expect_eq(ir_bind_sizes(g, error, shapes, values), FUSOR_ERROR_SHAPE);
    cr_expect(strstr(error->text, "reduce_max: operand %z is f32[B, N]"), "%s", error->text);
    EXPECT_TYPE(add1(IR_OP_REDUCE_SUM, f32("w", "0")), "f32");
}

Test(infer, views) {
    const ir_id x = f32("x", "N,4,6");
    set_list(IR_OP_RESHAPE, "shape", "N,-1");
    EXPECT_TYPE(add1(IR_OP_RESHAPE, x), "f32[N, 24]");
    set_list(IR_OP_RESHAPE, "shape", "-1,8");
    EXPECT_TYPE(add1(IR_OP_RESHAPE, x), "f32[3*N, 8]");
    cr_expect_eq(g->checks.n, 0u);
    set_list(IR_OP_RESHAPE, "shape", "-1,7");
    EXPECT_TYPE(add1(IR_OP_RESHAPE, x), "f32[24*N/7, 7]");
    cr_expect_eq(g->checks.n, 1u);
    set_list(IR_OP_RESHAPE, "shape", "M");
    EXPECT_TYPE(add1(IR_OP_RESHAPE, x), "f32[M]");
    cr_expect_eq(g->checks.n, 2u);
    const ir_id y = f32("y", "4,6");
    set_list(IR_OP_RESHAPE, "shape", "5,5");
    EXPECT_ERROR(add1(IR_OP_RESHAPE, y), "24 elements, but shape= makes 25");
    set_list(IR_OP_RESHAPE, "shape", "-1,-1");
    EXPECT_ERROR(add1(IR_OP_RESHAPE, y), "-1 twice");
    set_list(IR_OP_RESHAPE, "shape", "-1,0");
    EXPECT_ERROR(add1(IR_OP_RESHAPE, f32("e", "0")), "cannot be inferred");
    set_list(IR_OP_RESHAPE, "shape", "24,-2");
    EXPECT_ERROR(add1(IR_OP_RESHAPE, y), "negative");
    set_list(IR_OP_RESHAPE, "shape", "1,1,1,1,1,1,1,1,24");
    EXPECT_ERROR(add1(IR_OP_RESHAPE, y), "at most 8");
    EXPECT_TYPE(add1(IR_OP_TRANSPOSE, x), "f32[6, 4, N]");
    set_list(IR_OP_TRANSPOSE, "perm", "1,-3,2");
    EXPECT_TYPE(add1(IR_OP_TRANSPOSE, x), "f32[4, N, 6]");
    set_list(IR_OP_TRANSPOSE, "perm", "1,1,2");
    EXPECT_ERROR(add1(IR_OP_TRANSPOSE, x), "repeated");
    set_list(IR_OP_TRANSPOSE, "perm", "1,0");
    EXPECT_ERROR(add1(IR_OP_TRANSPOSE, x), "expected 3");
    set_list(IR_OP_BROADCAST_TO, "shape", "3,4,6");
    const ir_id b = add1(IR_OP_BROADCAST_TO, y);
    EXPECT_TYPE(b, "f32[3, 4, 6]");
    cr_expect_eq(ir_at(g, b)->stretch[0], 1);
    set_list(IR_OP_BROADCAST_TO, "shape", "3,4,7");
    EXPECT_ERROR(add1(IR_OP_BROADCAST_TO, y), "expected 6");
    set_list(IR_OP_BROADCAST_TO, "shape", "6");
    EXPECT_ERROR(add1(IR_OP_BROADCAST_TO, y), "at least 2");
    set_list(IR_OP_UNSQUEEZE, "axes", "-1,0");
    const ir_id u = add1(IR_OP_UNSQUEEZE, y);
    EXPECT_TYPE(u, "f32[1, 4, 6, 1]");
    set_list(IR_OP_SQUEEZE, "axes", "0,-1");
    EXPECT_TYPE(add1(IR_OP_SQUEEZE, u), "f32[4, 6]");
    set_list(IR_OP_SQUEEZE, "axes", "1");
    EXPECT_ERROR(add1(IR_OP_SQUEEZE, u), "expected dim 1 = 1");
    const uint32_t before = g->checks.n;
    set_list(IR_OP_SQUEEZE, "axes", "0");
    EXPECT_TYPE(add1(IR_OP_SQUEEZE, x), "f32[4, 6]");
    cr_expect_eq(g->checks.n, before + 1);
}

Test(infer, creates) {
    set_list(IR_OP_IOTA, "shape", "2,N");
    set(IR_OP_IOTA, "dtype", FUSOR_I32);
    set(IR_OP_IOTA, "axis", -1);
    const ir_id i = add1(IR_OP_IOTA, 0);
    EXPECT_TYPE(i, "i32[2, N]");
    cr_expect_eq(ir_at(g, i)->attr[1].integer, 1);
    set_list(IR_OP_IOTA, "shape", "2");
    EXPECT_ERROR(add1(IR_OP_IOTA, 0), "iota: needs the attribute dtype=");
    set(IR_OP_DIM, "axis", 1);
    EXPECT_TYPE(add1(IR_OP_DIM, i), "i64");
    EXPECT_ERROR(add1(IR_OP_DIM, i), "dim: needs the attribute axis=");
    set_list(IR_OP_FULL, "shape", "2,N");
    EXPECT_TYPE(add1(IR_OP_FULL, f32("s", "")), "f32[2, N]");
    set_list(IR_OP_FULL, "shape", "2");
    EXPECT_ERROR(add1(IR_OP_FULL, i), "expected a scalar");
    set_list(IR_OP_FULL, "shape", "4611686018427387904,2");
    EXPECT_ERROR(add1(IR_OP_FULL, f32("t", "")), "overflow");
    EXPECT_ERROR(add1(IR_OP_SOFTMAX, f32("u", "")), "has no axes");
    EXPECT_TYPE(add1(IR_OP_SOFTMAX, f32("v", "3,4")), "f32[3, 4]");
    cr_expect_eq(ir_node_axes(g, ir_at(g, g->nodes.n - 1)), 2u);
}

Test(infer, converts) {
    const ir_id x = f32("x", "N"), c = param("c", FUSOR_BOOL, "N");
    const ir_operand in = ir_use(x), cin = ir_use(c);
    EXPECT_TYPE(ir_add(g, IR_OP_CAST, 1, &in, NULL, FUSOR_I8, here), "i8[N]");
    EXPECT_TYPE(ir_add(g, IR_OP_BITCAST, 1, &in, NULL, FUSOR_U32, here), "u32[N]");
    fu_error_clear(error);
    EXPECT_ERROR(ir_add(g, IR_OP_BITCAST, 1, &in, NULL, FUSOR_F16, here), "same width");
    fu_error_clear(error);
    EXPECT_ERROR(ir_add(g, IR_OP_BITCAST, 1, &cin, NULL, FUSOR_U8, here), "use cast");
    fu_error_clear(error);
    EXPECT_ERROR(ir_add(g, IR_OP_BITCAST, 1, &cin, NULL, FUSOR_BOOL, here), "use cast");
    fu_error_clear(error);
    EXPECT_ERROR(ir_add(g, IR_OP_CAST, 1, &cin, NULL, 0, here), "needs the result type");
}

/* With the sizes a, b of the parameters of one dim. */
static fusor_status bind_two(int64_t a, int64_t b) {
    int64_t values[2];
    fu_error_clear(error);
    return ir_bind_sizes(g, error, (const int64_t *[]){&a, &b}, values);
}

/* By 0 an empty axis reflects too. */
Test(infer, reflects_by_less_than_the_axis) {
    const ir_id x = f32("x", "N");
    f32("y", "M");
    set_list(IR_OP_PAD, "pads", "M,0");
    set(IR_OP_PAD, "mode", 2);
    EXPECT_TYPE(add1(IR_OP_PAD, x), "f32[M+N]");
    cr_expect_eq(bind_two(0, 0), FUSOR_OK, "%s", error->text);
    cr_expect_eq(bind_two(3, 2), FUSOR_OK, "%s", error->text);
    cr_expect_eq(bind_two(3, 3), FUSOR_ERROR_SHAPE);
    cr_expect_eq(bind_two(0, 1), FUSOR_ERROR_SHAPE);
}

/* Where x is known to be 1, gamma must be. */
Test(infer, gamma_of_a_name_is_checked) {
    const ir_id gamma = f32("g", "N");
    f32("y", "M");
    const ir_id id = add2(IR_OP_RMS_NORM, f32("x", "3,1"), gamma);
    EXPECT_TYPE(id, "f32[3, 1]");
    cr_expect_eq(ir_at(g, id)->stretch ? ir_at(g, id)->stretch[0] : 0, 0);
    cr_assert_eq(g->checks.n, 1u);
    cr_expect_eq(g->checks.at[0].kind, IR_CHECK_EQUAL);
    EXPECT_ERROR(add2(IR_OP_RMS_NORM, f32("z", "3,1"), f32("h", "4")), "expected gamma dim 0 = 1");
}

Test(infer, kernels_have_places) {
    const ir_id x = f32("x", "2,3,9"), w = f32("w", "3,3,K");
    for (int i = 0; i < 2; i++) {
        g->checks.n = 0;
        cr_assert(add2(i ? IR_OP_CONV_TRANSPOSE : IR_OP_CONV, x, w));
        cr_assert_geq(g->checks.n, 1u);
        cr_expect_eq(g->checks.at[0].kind, IR_CHECK_NOT_ZERO);
        cr_expect(strstr(g->checks.at[0].what, "expected a kernel of 1 or more"), "%s", g->checks.at[0].what);
    }
    EXPECT_ERROR(add2(IR_OP_CONV, x, f32("z", "3,3,0")), "expected a kernel of 1 or more");
}
