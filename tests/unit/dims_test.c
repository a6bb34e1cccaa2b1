/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* dims_test.c: in which order a kernel has its dims, and which are one (ir/plan_dims.c): columns behind reduced dims,
 * transposes by blocks. */
#include "plan_test.h"

TestSuite(dims, .init = text_start, .fini = text_stop);

static void has_dims(ir_level level, const char *roles, const char *text) {
    const ir_kernel *k = plan_text(text, &(ir_plan_options){.level = level})->steps.at[0].kernel;
    char is[IR_KERNEL_MAX_DIMS + 1] = "";
    for (int d = 0; d < k->n_dims; d++) is[d] = k->dim[d].role;
    cr_expect_str_eq(is, roles, "%s: %s", ir_levels[level].name, text);
}

/* Rows and columns of images behind channels are one run. */
Test(dims, columns_that_are_one_run_are_one_dim) {
    static const struct {
        const char *roles, *text;
    } cases[] = {
        {"prv", "func @f(%x: f32[8, 64, 7, 7]) -> f32[8, 7, 7] { %y = reduce_max(%x, axes=[1]) return %y }"},
        {"prv", "func @f(%x: f32[B, C, H, W]) -> i64[B, H, W] { %y = argmax(%x, axis=1) return %y }"},
        {"rv", "func @f(%x: f32[64, 4, 5, 6]) -> f32[4, 5, 6] { %y = reduce_sum(%x, axes=[0]) return %y }"},
        {"prrv", "func @f(%x: f32[9, 2, 7, 8]) -> f32[2, 8] { %y = reduce_sum(%x, axes=[0, 2]) return %y }"},
        {"prv", "func @f(%x: f32[8, 21, 64, 64]) -> f32[8, 21, 64, 64] { %y = softmax(%x, axis=1) return %y }"},
        /* not in all that is read */
        {"pprv", "func @f(%x: f32[9, 7, 4, 5], %m: f32[4, 1]) -> f32[9, 4, 5] { %t = mul(%x, %m) %y = "
                 "reduce_sum(%t, axes=[1]) return %y }"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (ir_level level = IR_LEVEL_V2; level <= IR_LEVEL_V4; level++)
            has_dims(level, cases[i].roles, cases[i].text);
}

static const char *transpose(const char *x, const char *y, const char *perm) {
    return fu_format(&arena, "func @f(%%x: f32[%s]) -> f32[%s] { %%y = transpose(%%x, perm=[%s]) return %%y }", x, y,
                     perm);
}

Test(dims, transposes_go_by_blocks) {
    for (ir_level level = IR_LEVEL_V2; level <= IR_LEVEL_V4; level++) {
        has_dims(level, "tp", transpose("100, 200", "200, 100", "1, 0"));
        /* columns that are one run with rows: 8 with 128, 56 with 56 */
        has_dims(level, "ptp", transpose("4, 128, 8, 64", "4, 64, 128, 8", "0, 3, 1, 2"));
        has_dims(level, "ptp", transpose("8, 56, 56, 64", "8, 64, 56, 56", "0, 3, 1, 2"));
    }
    /* few columns: where vectors along 256 would be stored to few sets of a cache or many pages, and there are masks */
    has_dims(IR_LEVEL_V4, "pptp", transpose("4, 3, 256, 256", "4, 256, 256, 3", "0, 3, 2, 1"));
    has_dims(IR_LEVEL_V3, "pppp", transpose("4, 3, 256, 256", "4, 256, 256, 3", "0, 3, 2, 1"));
    /* 24 elements 896 bytes apart: 24 sets of the cache */
    has_dims(IR_LEVEL_V4, "pppp", transpose("8, 28, 28, 24", "28, 24, 28, 8", "2, 3, 1, 0"));
    has_dims(IR_LEVEL_V4, "pppp", transpose("2, 50, 60, 70", "70, 60, 50, 2", "3, 2, 1, 0")); /* pairs */
}
