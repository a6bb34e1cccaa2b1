/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TESTS_HOST_LEVEL_H
#define TESTS_HOST_LEVEL_H
/* Levels in tests: by name, and whether this machine executes code of a CPU level, as the compiler's run time finds it
 * (not rt/cpuinfo.c, which is tested). */
#include "ir/target.h"
#include <string.h>

static inline bool cpu_has_level(int level) {
    __builtin_cpu_init();
    switch (level) {
#define LEVEL(ID, name, ...)                                                                                           \
    case IR_LEVEL_##ID:                                                                                                \
        return __builtin_cpu_supports(name);
#include "ir/level.def"
#undef LEVEL
    default: return false;
    }
}
/* Under a sanitizer, which sees what makes code and not the code, the lowest level and the highest: with masks and without
 * is what differs there. */
static inline bool host_has_level(int level) {
#ifdef __SANITIZE_ADDRESS__
    for (int i = level + 1; level > 0 && i < IR_LEVEL_COUNT; i++)
        if (cpu_has_level(i)) return false;
#endif
    return cpu_has_level(level);
}
/* Case `number` of many that are much alike: under a sanitizer at the lowest level or at the highest, in turns. */
static inline bool case_has_level(unsigned number, int level) {
#ifdef __SANITIZE_ADDRESS__
    if ((level > 0) != (number % 2 > 0) && cpu_has_level(1)) return false;
#endif
    (void)number;
    return host_has_level(level);
}
/* By either name; -1: there is none. */
static inline int level_of_name(const char *name) {
    for (int i = 0; i < IR_LEVEL_COUNT; i++)
        if (strcmp(ir_levels[i].name, name) == 0 || strcmp(ir_levels[i].short_name, name) == 0) return i;
    return -1;
}
#endif
