/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* stretched_test.c: values that broadcasting repeats in a larger space: costly ones are computed once, cheap ones and
 * what is the same along long runs where they are read; and along which dim a map that repeats elements has its
 * vectors. (Values are compared in diff/ops_test.c and tests/fuzz.) */
#include "plan_test.h"

TestSuite(stretched, .init = text_start, .fini = text_stop);

static const ir_plan *plan_of(const char *text) { return plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4}); }

static void has_kernels(uint32_t n, const char *text) {
    const ir_plan *p = plan_of(text);
    cr_expect_eq(p->steps.n, n, "%u, not %u kernels: %s", p->steps.n, n, text);
    if (n == 2 && p->boundaries.n > 0) cr_expect_eq(p->boundaries.at[0].reason, IR_REASON_RECOMPUTE, "%s", text);
}

/* One element of s for each row would compute it as often as there are rows. */
Test(stretched, costly_values_are_computed_once) {
    has_kernels(2, "func @f(%x: f32[M, N], %s: f32[N]) -> f32[M, N] { %e = exp(%s) %y = mul(%x, %e) return %y }");
    has_kernels(2, "func @f(%x: f32[512, 48], %s: f32[48], %t: f32[48]) -> f32[512, 48] {"
                   " %p = pow(%s, %t) %q = add(%p, 1.0) %y = mul(%x, %q) return %y }");
    has_kernels(2, "func @f(%x: f32[R, H, 64], %a: f32[R, 64]) -> f32[R, H, 64] {"
                   " %c = cos(%a) %u = unsqueeze(%c, axes=[1]) %y = mul(%x, %u) return %y }");
    has_kernels(2, "func @f(%x: f32[64, 32, 32]) -> f32[64, 32, 2, 32, 2] {"
                   " %s = silu(%x) %r = reshape(%s, shape=[64, 32, 1, 32, 1])"
                   " %y = broadcast_to(%r, shape=[64, 32, 2, 32, 2]) return %y }");
    has_kernels(2, "func @f(%x: f32[M, N], %s: f32[N]) -> f32[M] {"
                   " %e = exp(%s) %y = mul(%x, %e) %r = reduce_sum(%y, axes=[1]) return %r }");
    has_kernels(2, "func @f(%x: f32[B, 64], %w: f32[64, 32], %s: f32[32]) -> f32[B, 32] {"
                   " %a = matmul(%x, %w) %e = exp(%s) %y = mul(%a, %e) return %y }");
    has_kernels(2, "func @f(%x: f32[B, 64], %w: f32[64, 32], %s: f32[32]) -> f32[B, 32] {"
                   " %a = matmul(%x, %w) %e = exp(%s) %r = softmax(%a) %y = mul(%r, %e) return %y }");
}

Test(stretched, others_are_computed_where_they_are_read) {
    /* the same for a whole row, cheap, twice as many, few */
    has_kernels(1, "func @f(%x: f32[M, N], %s: f32[M, 1]) -> f32[M, N] { %e = exp(%s) %y = mul(%x, %e) return %y }");
    has_kernels(1, "func @f(%x: f32[M, N], %s: f32[N]) -> f32[M, N] { %e = neg(%s) %y = mul(%x, %e) return %y }");
    has_kernels(1, "func @f(%x: f32[2, N], %s: f32[N]) -> f32[2, N] { %e = exp(%s) %y = mul(%x, %e) return %y }");
    has_kernels(1, "func @f(%x: f32[8, 8], %s: f32[8]) -> f32[8, 8] { %e = exp(%s) %y = mul(%x, %e) return %y }");
    has_kernels(1, "func @f(%x: f32[M, N], %s: f32[1]) -> f32[M, N] { %e = exp(%s) %y = mul(%x, %e) return %y }");
    has_kernels(1, "func @f(%x: f32[M, N], %s: f32[N]) -> f32[M, N] {"
                   " %e = exp(%s) %y = mul(%x, %e, fuse_with=%e) return %y }");
}

/* Indices of what nothing needs are checked; it is not computed for that, nor is what it is made of. */
Test(stretched, what_is_only_checked_is_not_computed) {
    has_kernels(2, "func @f(%b: f32[N, 1], %x: f32[N, 8], %i: i32[4]) -> f32[N, 1] {"
                   " %a = exp(%b) %c = mul(%a, %x) %t = take(%c, %i) %y = neg(%b) return %y }");
    has_kernels(2, "func @f(%x: f32[4, 32, 4, 31], %i: i64[4, 32, 1, 31], %u: f32[4, 32, 1, 31]) -> f32[4, 32, 4, 31] {"
                   " %v = reduce_var(%x, axes=[0, 1, 3], keepdims=true) %w = mul(%x, %v)"
                   " %s = scatter(%w, %i, %u, axis=2) %y = neg(%x) return %y }");
    const ir_plan *p = plan_of("func @f(%x: f32[M, 64], %w: f32[64, 32], %i: i32[4]) -> f32[M, 32] {"
                               " %a = matmul(%x, %w) %t = take(%a, %i) %y = softmax(%a) return %y }");
    cr_assert_eq(p->steps.n, 2);
    for (uint32_t i = 0; i < p->buffers.n; i++)
        cr_expect_neq(p->buffers.at[i].storage, IR_STORE_TEMP, "the product is only what the softmax reads");
}

/* Where the last dim repeats two elements, vectors go along the one that the large operand has in order, be there small
 * ones of another order. */
Test(stretched, vectors_lie_along_the_large_operand) {
    const ir_plan *p = plan_of("func @f(%x: f32[64, 30, 32], %g: f32[64], %b: f32[64]) -> f32[64, 30, 2, 32, 2] {"
                               " %r = reshape(%x, shape=[64, 30, 1, 32, 1])"
                               " %t = broadcast_to(%r, shape=[64, 30, 2, 32, 2])"
                               " %h = reshape(%g, shape=[64, 1, 1, 1, 1]) %c = reshape(%b, shape=[64, 1, 1, 1, 1])"
                               " %m = mul(%t, %h) %y = add(%m, %c) return %y }");
    cr_assert_eq(p->steps.n, 1);
    const ir_kernel *k = p->steps.at[0].kernel;
    cr_expect_eq(k->dim[k->n_dims - 1].size, 32);
    cr_expect_eq(k->dim[k->n_dims - 2].size, 2, "rows of 2 take turns");
}
