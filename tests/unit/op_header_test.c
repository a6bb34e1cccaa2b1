/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* op_header_test.c: every row of ops.def has its function in op.h (else this does not compile), and numbers stand for
 * tensors in all of them. */
#include "fusor/op.h"
#include "ir/op.h"
#include <criterion/criterion.h>

/* The names of functions, in parentheses, so that no macro takes them. */
typedef void (*any_function)(void);
static const struct row {
    const char *name;
    any_function function;
} rows[] = {
#define ROW(name)              {#name, (any_function)(fusor_##name)},
#define EW(ID, name, ...)      ROW(name)
#define CONVERT(ID, name, ...) ROW(name)
#define REDUCE(ID, name, ...)  ROW(name)
#define OTHER(ID, name, ...)   ROW(name)
#include "ir/ops.def"
};

Test(op_header, every_operator_has_a_function) {
    size_t n = sizeof rows / sizeof *rows;
    cr_assert_eq(n, (size_t)(IR_OP_COUNT - IR_OP_RESULT - 1));
    for (size_t i = 0; i < n; i++) cr_assert(rows[i].function, "%s", rows[i].name);
}

Test(op_header, element_wise_functions_record_their_operator) {
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.cache_dir = "";
    fusor_context *ctx = fusor_context_new(&o);
    float f[2] = {1, 2};
    int32_t i[2] = {1, 2};
    uint8_t b[2] = {0, 1};
    fusor_tensor main_role[3] = {fusor_wrap_const(ctx, f, FUSOR_F32, FUSOR_SHAPE(2)),
                                 fusor_wrap_const(ctx, i, FUSOR_I32, FUSOR_SHAPE(2)),
                                 fusor_wrap_const(ctx, b, FUSOR_BOOL, FUSOR_SHAPE(2))};
    for (int op = IR_OP_RESULT + 1; op < IR_OP_COUNT; op++) {
        if (ir_ops[op].kind != IR_KIND_EW || ir_ops[op].n_scalar_attrs) continue;
        fusor_tensor x = main_role[ir_ops[op].classes & IR_CLASS_F ? 0 : ir_ops[op].classes & IR_CLASS_S ? 1 : 2];
        fusor_tensor first = ir_ops[op].flags & IR_COND ? main_role[2] : x, y;
        any_function function = rows[op - IR_OP_RESULT - 1].function;
        if (ir_ops[op].max_in == 1) y = ((fusor_tensor(*)(fusor_tensor))function)(x);
        else if (ir_ops[op].max_in == 2) y = ((fusor_tensor(*)(fusor_tensor, fusor_tensor))function)(x, x);
        else y = ((fusor_tensor(*)(fusor_tensor, fusor_tensor, fusor_tensor))function)(first, x, x);
        cr_assert_eq(fusor_status_of(y), FUSOR_OK, "%s: %s", ir_ops[op].name, fusor_error_message(ctx));
        cr_assert_eq(y.generation >> 24, (uint32_t)op, "%s", ir_ops[op].name);
    }
    fusor_context_free(ctx);
}

Test(op_header, numbers_of_every_c_type_stand_for_tensors) {
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.cache_dir = "";
    fusor_context *ctx = fusor_context_new(&o);
    double x = 1, y;
    const fusor_tensor X = fusor_wrap_const(ctx, &x, FUSOR_F64, 0, NULL);
    fusor_tensor t = fusor_add(1, fusor_add(2u, fusor_add(3L, fusor_add(4UL, fusor_add(5LL, fusor_add(6ULL, X))))));
    t = fusor_add(fusor_add(fusor_add(t, 7.f), 8.), 9.L);
    t = fusor_add(fusor_add(fusor_add(fusor_add(t, (char)10), (short)11), (unsigned char)12), (unsigned short)13);
    t = fusor_select(fusor_b(1), t, 0);
    cr_assert_eq(fusor_read(t, &y, sizeof y), FUSOR_OK, "%s", fusor_error_message(ctx));
    cr_assert_eq(y, 92);
    uint64_t u = 1;
    fusor_tensor U = fusor_wrap_const(ctx, &u, FUSOR_U64, 0, NULL);
    cr_assert_eq(fusor_read(fusor_add(U, UINT64_MAX - 1), &u, sizeof u), FUSOR_OK, "%s", fusor_error_message(ctx));
    cr_assert_eq(u, UINT64_MAX);
    fusor_context_free(ctx);
}
