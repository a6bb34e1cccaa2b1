/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef PLAN_TEST_H
#define PLAN_TEST_H
/* What tests of plans share: the plan of the first function of a text. */
#include "ir/pass.h"
#include "ir/plan.h"
#include "text_test.h"

static inline ir_plan *plan_text(const char *text, const ir_plan_options *options) {
    ir_module *m;
    ir_graph *g;
    ir_plan *plan = NULL;
    cr_assert(ir_parse(&arena, &error, "<text>", text, strlen(text), &m) == FUSOR_OK &&
                  ir_flatten(&arena, &error, m, ir_module_find(m, NULL), &g) == FUSOR_OK,
              "%s\n%s", text, error.text);
    cr_assert(ir_normalize(&arena, &error, &g, options) == FUSOR_OK &&
                  ir_plan_make(&arena, &error, g, options, &plan) == FUSOR_OK,
              "%s\n%s", text, error.text);
    return plan;
}
#endif
