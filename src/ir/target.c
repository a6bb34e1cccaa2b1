/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* target.c: levels and features by name: the tables of level.def and feature.def, and targets as text both ways. */
#include "base/small.h"
#include "ir/target.h"
#include "base/str.h"
#include <stdio.h>
#include <string.h>

const ir_level_info ir_levels[IR_LEVEL_END] = {
#define TILES(...)                                                                                                     \
    { __VA_ARGS__ }
#define LEVEL(ID, name, short_name, lanes, bytes, fma, mask, registers, tiles, features)                               \
    {name, short_name, lanes, bytes, fma, mask, registers, tiles, features, IR_CORES_NONE},
#include "ir/level.def"
#undef LEVEL
#undef TILES
/* one element a thread; IR_GPU_VECTOR_BYTES are one access */
#define GPU(ID, name, cores, text) {name, name, 1, 16, true, false, 16, {.rows = {0}}, "", IR_CORES_##cores},
#include "ir/gpu.def"
#undef GPU
};

const ir_feature_info ir_feature_table[IR_FEATURE_COUNT] = {
#define FEATURE(ID, name, level, features, text) {name, IR_LEVEL_##level, features, text},
#include "ir/feature.def"
#undef FEATURE
};

/* What targets may be, for messages. */
enum { ACCEPTED_MAX = 512 };
static const char *accepted(char out[ACCEPTED_MAX]) {
    int n = 0;
    for (int i = 0; i < IR_LEVEL_COUNT && n < ACCEPTED_MAX; i++)
        n += snprintf(out + n, ACCEPTED_MAX - (size_t)n, "%s%s (%s)", i ? ", " : "", ir_levels[i].name,
                      ir_levels[i].short_name);
    for (int i = 0; i < IR_FEATURE_COUNT && n < ACCEPTED_MAX; i++)
        n += snprintf(out + n, ACCEPTED_MAX - (size_t)n, "%s+%s (%s)", i ? ", " : "; and with them ",
                      ir_feature_table[i].name, ir_levels[ir_feature_table[i].level].short_name);
    for (int i = IR_LEVEL_COUNT; i < IR_LEVEL_END && n < ACCEPTED_MAX; i++)
        n += snprintf(out + n, ACCEPTED_MAX - (size_t)n, "%s%s", i == IR_LEVEL_COUNT ? "; or of a GPU: " : ", ",
                      ir_levels[i].name);
    return out;
}

static int find_level(const char *name, size_t n) {
    for (int i = 0; i < IR_LEVEL_COUNT; i++) {
        const char *both[2] = {ir_levels[i].name, ir_levels[i].short_name};
        for (int j = 0; j < 2; j++)
            if (strlen(both[j]) == n && memcmp(both[j], name, n) == 0) return i;
    }
    return -1;
}

static int find_feature(const char *name, size_t n) {
    for (int i = 0; i < IR_FEATURE_COUNT; i++)
        if (strlen(ir_feature_table[i].name) == n && memcmp(ir_feature_table[i].name, name, n) == 0) return i;
    return -1;
}

/* ", did you mean 'x'?", or "". */
static const char *suggest(const char *word, size_t n, const char *const *names, size_t n_names, char out[64]) {
    char copy[IR_TARGET_MAX];
    snprintf(copy, sizeof copy, "%.*s", (int)n, word);
    const char *nearest = fu_nearest(copy, names, n_names);
    out[0] = 0;
    if (nearest) snprintf(out, 64, "; did you mean '%s'?", nearest);
    return out;
}

fusor_status ir_target_parse(fu_error *e, const char *text, ir_target *out) {
    enum { LEVELS = 2 * IR_LEVEL_COUNT, GPUS = IR_LEVEL_END - IR_LEVEL_COUNT };
    const char *names[LEVELS + GPUS + IR_FEATURE_COUNT];
    char nearest[64], all[ACCEPTED_MAX];
    size_t n = strcspn(text, "+");
    int level = find_level(text, n);
    for (int i = IR_LEVEL_COUNT; i < IR_LEVEL_END; i++)
        if (strcmp(ir_levels[i].name, text) == 0) return *out = (ir_target){(ir_level)i, 0}, FUSOR_OK;
    for (int i = 0; i < IR_LEVEL_COUNT; i++)
        names[2 * i] = ir_levels[i].name, names[2 * i + 1] = ir_levels[i].short_name;
    for (int i = 0; i < IR_FEATURE_COUNT; i++) names[LEVELS + GPUS + i] = ir_feature_table[i].name;
    for (int i = 0; i < GPUS; i++) names[LEVELS + i] = ir_levels[IR_LEVEL_COUNT + i].name;
    if (level < 0)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "unknown target '%.64s'; expected %s%s", text, accepted(all),
                       suggest(text, n, names, LEVELS + GPUS, nearest));
    ir_target t = {(ir_level)level, 0};
    for (const char *at = text + n; *at; at += n) {
        n = strcspn(++at, "+");
        int f = find_feature(at, n);
        if (f < 0)
            return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "target '%.64s': unknown feature '%.*s'; expected %s%s", text,
                           (int)(n < 32 ? n : 32), at, accepted(all),
                           suggest(at, n, names + LEVELS + GPUS, IR_FEATURE_COUNT, nearest));
        if (ir_feature_table[f].level != t.level)
            return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "target '%.64s': %s adds to %s, not to %s; expected %s", text,
                           ir_feature_table[f].name, ir_levels[ir_feature_table[f].level].name, ir_levels[level].name,
                           accepted(all));
        t.features |= (ir_features)1 << f;
    }
    *out = t;
    return FUSOR_OK;
}

const char *ir_target_name(ir_target t, char out[IR_TARGET_MAX]) {
    int n = snprintf(out, IR_TARGET_MAX, "%s", ir_levels[t.level].name);
    for (int i = 0; i < IR_FEATURE_COUNT; i++)
        if (t.features >> i & 1 && n < IR_TARGET_MAX)
            n += snprintf(out + n, IR_TARGET_MAX - (size_t)n, "+%s", ir_feature_table[i].name);
    return out;
}

const char *ir_target_features(ir_target t, char out[IR_TARGET_FEATURES_MAX]) {
    int n = snprintf(out, IR_TARGET_FEATURES_MAX, "%s", ir_levels[t.level].features);
    for (int i = 0; i < IR_FEATURE_COUNT; i++)
        if (t.features >> i & 1 && n < IR_TARGET_FEATURES_MAX)
            n += snprintf(out + n, IR_TARGET_FEATURES_MAX - (size_t)n, ",%s", ir_feature_table[i].features);
    return out;
}

ir_features ir_level_extras(ir_level level) {
    ir_features all = 0;
    for (int i = 0; i < IR_FEATURE_COUNT; i++)
        if (ir_feature_table[i].level == level) all |= (ir_features)1 << i;
    return all;
}
