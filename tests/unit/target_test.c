/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* target_test.c: levels and features as text. */
#include "ir/target.h"
#include <criterion/criterion.h>
#include <string.h>

static ir_target parse(const char *text) {
    fu_error e;
    ir_target t = {0};
    fu_error_clear(&e);
    cr_assert(ir_target_parse(&e, text, &t) == FUSOR_OK, "%s: %s", text, e.text);
    return t;
}

static void refuse(const char *text, const char *expected) {
    fu_error e;
    ir_target t = {IR_LEVEL_V2, 77};
    fu_error_clear(&e);
    cr_assert(ir_target_parse(&e, text, &t) == FUSOR_ERROR_ARGUMENT, "%s is accepted", text);
    cr_expect(strstr(e.text, expected) != NULL, "%s: '%s' does not say '%s'", text, e.text, expected);
    cr_expect(t.features == 77, "%s: the result is written", text);
}

Test(target, both_ways) {
    char name[IR_TARGET_MAX], again[IR_TARGET_MAX];
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        ir_features all = ir_level_extras((ir_level)level);
        for (ir_features f = 0; f < 1u << IR_FEATURE_COUNT; f++) {
            if (f & ~all) continue;
            ir_target t = parse(ir_target_name((ir_target){(ir_level)level, f}, name));
            cr_expect(t.level == (ir_level)level && t.features == f, "%s", name);
            cr_expect(strlen(name) + 1 < sizeof name, "%s is cut off", name);
        }
    }
    cr_expect_str_eq(ir_target_name(parse("v4+bf16+vnni+bf16"), name), "x86-64-v4+vnni+bf16");
    cr_expect_str_eq(ir_target_name(parse("v4+amxfp16+amxbf16+amxint8+bf16+vnni"), name),
                     "x86-64-v4+vnni+bf16+amxint8+amxbf16+amxfp16");
    cr_expect_str_eq(ir_target_name(parse("v3"), again), "x86-64-v3");
}

Test(target, refuses) {
    refuse("v5", "expected x86-64-v2 (v2), x86-64-v3 (v3), x86-64-v4 (v4)");
    refuse("x86-64-v44", "did you mean 'x86-64-v4'?");
    refuse("", "unknown target");
    refuse("v4+vnnj", "did you mean 'vnni'?");
    refuse("v4+", "unknown feature ''");
    refuse("v4++vnni", "unknown feature ''");
    refuse("v3+vnni", "vnni adds to x86-64-v4, not to x86-64-v3");
    refuse("v4+avxvnni", "avxvnni adds to x86-64-v3");
    refuse("v2+bf16", "not to x86-64-v2");
}

/* LLVM's list of a target: its level's, then those of each feature, which no level has. */
Test(target, features) {
    char list[IR_TARGET_FEATURES_MAX];
    for (int level = 0; level < IR_LEVEL_COUNT; level++) {
        ir_target_features((ir_target){(ir_level)level, ir_level_extras((ir_level)level)}, list);
        cr_expect(strlen(list) + 1 < sizeof list, "cut off: %s", list);
        cr_expect(strncmp(list, ir_levels[level].features, strlen(ir_levels[level].features)) == 0);
        for (int i = 0; i < IR_FEATURE_COUNT; i++)
            cr_expect((strstr(list, ir_feature_table[i].features) != NULL) ==
                          (ir_feature_table[i].level == (ir_level)level),
                      "%s: %s", ir_feature_table[i].name, list);
    }
}
