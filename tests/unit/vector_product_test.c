/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* vector_product_test.c: which products with vectors are contractions and which are sums along rows. (Values are
 * compared in diff/ops_test.c.) */
#include "../host_level.h"
#include "api_test.h"
#include "plan_test.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(vector_product, .init = text_start, .fini = text_stop);

static const ir_kernel *kernel_of(const char *a, const char *b, const char *attrs, const char *result) {
    char text[300];
    snprintf(text, sizeof text,
             "func @f(%%a: f32[%s], %%b: f32[%s]) -> f32[%s] { %%y = matmul(%%a, %%b%s) return %%y }", a, b, result,
             attrs);
    const ir_plan *p = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4});
    cr_assert_eq(p->steps.n, 1, "%s", text);
    return p->steps.at[0].kernel;
}

/* Their rows are the batches: the matrix is read once for a tile of them. */
static void is_product(const char *a, const char *b, const char *attrs, const char *result) {
    const ir_kernel *k = kernel_of(a, b, attrs, result);
    cr_expect_eq(k->kind, IR_KERNEL_CONTRACT, "%s by %s", a, b);
    cr_expect_eq(k->n_dims, 3, "%s by %s", a, b);
    cr_expect(k->dim[0].role == 'm' && k->dim[0].size != 1, "%s by %s", a, b);
}

Test(vector_product, vectors_by_one_matrix_are_its_rows) {
    is_product("B, 1, 768", "768, 500", "", "B, 1, 500");
    is_product("32, 1, K", "K, N", "", "32, 1, N");
    is_product("2, B, 1, K", "N, K", ", transpose_b=true", "2, B, 1, N");
    is_product("B, K, 1", "K, 40", ", transpose_a=true", "B, 1, 40");
    is_product("4, 4", "B, 4, 1", "", "B, 4, 1");
    is_product("K, M", "B, K, 1", ", transpose_a=true", "B, M, 1");
    is_product("M, K", "B, 1, K", ", transpose_b=true", "B, M, 1");
}

Test(vector_product, one_vector_is_a_sum_along_rows) {
    cr_expect_eq(kernel_of("1, 1, K", "K, N", "", "1, 1, N")->kind, IR_KERNEL_REDUCE);
    cr_expect_eq(kernel_of("1, K", "K, N", "", "1, N")->kind, IR_KERNEL_REDUCE);
    cr_expect_eq(kernel_of("M, K", "K", "", "M")->kind, IR_KERNEL_REDUCE);
    cr_expect_eq(kernel_of("B, M, K", "B, K, 1", "", "B, M, 1")->kind, IR_KERNEL_REDUCE);
    cr_expect_eq(kernel_of("B, 3, 3", "3", "", "B, 3")->kind, IR_KERNEL_REDUCE);
}

Test(vector_product, small_matrices_times_columns_are_direct) {
    const ir_kernel *k = kernel_of("B, 3, 4", "B, 4, 1", "", "B, 3, 1");
    cr_expect(k->kind == IR_KERNEL_CONTRACT && k->is_direct);
    k = kernel_of("B, 12, 12", "B, 1, 12", ", transpose_b=true", "B, 12, 1");
    cr_expect(k->kind == IR_KERNEL_CONTRACT && k->is_direct);
    k = kernel_of("B, 1, 4", "4, 4", "", "B, 1, 4");
    cr_expect(k->kind == IR_KERNEL_CONTRACT && k->is_direct);
    cr_expect_eq(kernel_of("B, 16, 16", "B, 16, 1", "", "B, 16, 1")->kind, IR_KERNEL_REDUCE);
}

/* A register tile would have few columns: vectors are full of rows. */
Test(vector_product, many_rows_by_few_elements_are_maps) {
    cr_expect_eq(kernel_of("N, 3", "3, 3", "", "N, 3")->kind, IR_KERNEL_MAP);
    cr_expect_eq(kernel_of("B, 65, 4", "B, 2, 4", ", transpose_b=true", "B, 65, 2")->kind, IR_KERNEL_MAP);
    cr_expect_eq(kernel_of("2, 3", "B, 3, N", "", "B, 2, N")->kind, IR_KERNEL_MAP);
    cr_expect_eq(kernel_of("N, 3", "3, 5", "", "N, 5")->kind, IR_KERNEL_CONTRACT);
    cr_expect_eq(kernel_of("N, 5", "5, 3", "", "N, 3")->kind, IR_KERNEL_CONTRACT);
    cr_expect_eq(kernel_of("B, 4, 4", "B, 4, 4", "", "B, 4, 4")->kind, IR_KERNEL_CONTRACT);
    cr_expect_eq(kernel_of("64, 3", "3, 3", "", "64, 3")->kind, IR_KERNEL_CONTRACT);
    const ir_plan *p = plan_text("func @f(%x: f32[H, W, 3], %w: f32[3, 3]) -> f32[H, W, 3] "
                                 "{ %y = einsum(\"hwc,dc->hwd\", %x, %w) return %y }",
                                 &(ir_plan_options){.level = IR_LEVEL_V4});
    cr_expect(p->steps.n == 1 && p->steps.at[0].kernel->kind == IR_KERNEL_MAP);
}

/* Of two parameters that nothing packs, in which k is contiguous: sums along it. */
Test(vector_product, few_sums_of_many_products) {
    cr_expect_eq(kernel_of("4, 768", "8, 768", ", transpose_b=true", "4, 8")->kind, IR_KERNEL_REDUCE);
    cr_expect_eq(kernel_of("4, K", "4, K", ", transpose_b=true", "4, 4")->kind, IR_KERNEL_REDUCE);
    cr_expect_eq(kernel_of("4, 768", "768, 8", "", "4, 8")->kind, IR_KERNEL_CONTRACT);
    cr_expect_eq(kernel_of("8, 768", "8, 768", ", transpose_b=true", "8, 8")->kind, IR_KERNEL_CONTRACT);
    cr_expect_eq(kernel_of("4, 64", "4, 64", ", transpose_b=true", "4, 4")->kind, IR_KERNEL_CONTRACT);
}

/* Products are added as a contraction adds them, without being rounded where the level has fma. */
Test(vector_product, few_elements_have_the_bits_of_contractions) {
    for (int level = IR_LEVEL_V2; level <= IR_LEVEL_V4; level++) {
        if (!host_has_level(level)) continue;
        fusor_context *ctx = new_context_for(ir_levels[level].name, 1);
        float x[70 * 3], w[9], y[2][70 * 3];
        for (int i = 0; i < 70 * 3; i++) x[i] = sinf((float)i * 1.7f);
        for (int i = 0; i < 9; i++) w[i] = cosf((float)i * 2.3f);
        x[0] = 1e19f, x[1] = 2e19f, x[2] = 0; /* less 1e38, and 4e38 */
        w[0] = -1e19f, w[3] = 2e19f, w[6] = 0;
        x[3] = x[4] = x[5] = -0.0f;
        for (int named = 0; named < 2; named++) { /* of columns whose number has a name: a contraction */
            char text[200];
            snprintf(text, sizeof text,
                     "func @f(%%x: f32[N, 3], %%w: f32[3, %s]) -> f32[N, %s] { %%y = matmul(%%x, %%w) return %%y }",
                     named ? "M" : "3", named ? "M" : "3");
            fusor_executable *exe = compiled_with(ctx, text, 0);
            fusor_buffer in[2] = {{.data = x, .dtype = FUSOR_F32, .rank = 2, .shape = {70, 3}},
                                  {.data = w, .dtype = FUSOR_F32, .rank = 2, .shape = {3, 3}}},
                         out = {.data = y[named], .dtype = FUSOR_F32, .rank = 2, .shape = {70, 3}};
            OK(fusor_executable_call(exe, 2, in, 1, &out));
            fusor_executable_free(exe);
        }
        cr_expect(memcmp(y[0], y[1], sizeof y[0]) == 0, "%s", ir_levels[level].name);
        fusor_context_free(ctx);
    }
}
