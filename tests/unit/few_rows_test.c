/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* few_rows_test.c: reductions along an outer axis whose results their elements use (softmax over channels, norms of
 * columns): one kernel where the columns are known to be short, several else. (Kernels are compared with a model in
 * reduce_test.c, values in diff/ops_test.c and tests/fuzz.) */
#include "plan_test.h"

TestSuite(few_rows, .init = text_start, .fini = text_stop);

static void has_kernels(ir_level level, uint32_t n, const char *text) {
    const ir_plan *p = plan_text(text, &(ir_plan_options){.level = level});
    cr_expect_eq(p->steps.n, n, "%s: %u, not %u kernels: %s", ir_levels[level].name, p->steps.n, n, text);
    if (n > 1 || p->steps.n != n) return;
    const ir_kernel *k = p->steps.at[0].kernel;
    cr_expect(k->kind == IR_KERNEL_ROW && ir_kernel_is_column(k), "%s", text);
    for (int d = 0; d < k->n_dims; d++) /* other numbers of rows are the same kernel */
        cr_expect_eq(k->dim[d].size, IR_SIZE_RUNTIME, "%s", text);
}

/* A row less one's mean over `axes`, by its root mean square. */
static const char *norm(const char *type, const char *axes) {
    return fu_format(&arena,
                     "func @f(%%x: %s) -> %s { %%m = reduce_mean(%%x, axes=[%s], keepdims=true) %%d = sub(%%x, %%m)"
                     " %%s = square(%%d) %%v = reduce_mean(%%s, axes=[%s], keepdims=true) %%r = rsqrt(%%v)"
                     " %%y = mul(%%d, %%r) return %%y }",
                     type, type, axes, axes);
}

static const char *softmax(const char *type, int axis) {
    return fu_format(&arena, "func @f(%%x: %s) -> %s { %%y = softmax(%%x, axis=%d) return %%y }", type, type, axis);
}

Test(few_rows, are_one_kernel) {
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        if (ir_level_is_gpu((ir_level)level)) continue;
        has_kernels((ir_level)level, 1, softmax("f32[8, 21, 512, 512]", 1));
        has_kernels((ir_level)level, 1, softmax("f32[B, 128, N]", 1));
        has_kernels((ir_level)level, 1, softmax("f64[64, 16]", 0));
        has_kernels((ir_level)level, 1, softmax("f32[8, 64, 7, 7]", 1));
        has_kernels((ir_level)level, 1, norm("f32[B, 64, H, W]", "1"));
        has_kernels((ir_level)level, 1, norm("f32[8, 16, 100]", "0, 1"));
        has_kernels((ir_level)level, 1,
                    "func @f(%x: f32[B, 64, N], %g: f32[64, 1]) -> (%y: f32[B, 64, N], %n: f32[B, N]) {"
                    " %s = square(%x) %v = reduce_sum(%s, axes=[1]) %n = sqrt(%v) %u = unsqueeze(%n, axes=[1])"
                    " %d = div(%x, %u) %y = mul(%d, %g) return %y, %n }");
    }
}

Test(few_rows, many_unknown_or_narrow_ones_are_several) {
    has_kernels(IR_LEVEL_V4, 3, softmax("f32[8, 129, 100]", 1));
    has_kernels(IR_LEVEL_V4, 3, softmax("f64[65, 100]", 0));
    has_kernels(IR_LEVEL_V4, 3, softmax("f32[B, C, N]", 1));
    has_kernels(IR_LEVEL_V4, 3, softmax("f32[1000, 8, 15]", 1));
    has_kernels(IR_LEVEL_V4, 3, norm("f32[16, 16, 100]", "0, 1"));
}
