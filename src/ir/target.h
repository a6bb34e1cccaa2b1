/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_TARGET_H
#define IR_TARGET_H
/* What code is generated for: a CPU level (level.def) and features beside it (feature.def), as "x86-64-v4+vnni+bf16" in
 * texts; or a GPU (gpu.def). */
#include "base/error.h"

typedef enum ir_level {
#define LEVEL(ID, ...) IR_LEVEL_##ID,
#include "ir/level.def"
#undef LEVEL
    IR_LEVEL_COUNT, /* of the CPU; GPUs' are behind */
    IR_GPU_BEFORE = IR_LEVEL_COUNT - 1,
#define GPU(ID, ...) IR_LEVEL_##ID,
#include "ir/gpu.def"
#undef GPU
    IR_LEVEL_END
} ir_level;
/* What ir/schedule.c makes register tiles of. */
typedef struct ir_level_tiles {
    int rows[3];       /* of a tile of two vectors of columns, for accumulators of: floats, i32, i64 */
    int float_rows[4]; /* of tiles of one to four vectors of floats; 0: there are none */
    int tall_rows[4];  /* another number of them, for floats that are multiplied one by one; 0: there is none */
    int load_time;     /* of a vector, in half cycles */
    int panel_time;    /* of operand 1, from L2: what a vector takes beside that, in eighths of cycles */
    int saved;         /* other than two vectors where that saves more than 1 / saved of the time, or columns */
    int spare[2];      /* registers a direct tile leaves to what makes products: of floats, of integers */
    bool folds;        /* a float product takes an element from memory in all lanes */
    int attention[2];  /* rows of attention's tile, vectors of queries where they are f32 */
} ir_level_tiles;
/* Instructions of a GPU's tensor cores that code is made of; each has those before it. */
typedef enum ir_cores { IR_CORES_NONE, IR_CORES_MMA, IR_CORES_WGMMA } ir_cores;
typedef struct ir_level_info {
    const char *name, *short_name;
    int lanes, vector_bytes;
    bool has_fma, has_mask;
    int registers; /* of a vector each */
    ir_level_tiles tiles;
    const char *features; /* "a,b,c" */
    ir_cores cores;
} ir_level_info;
extern const ir_level_info ir_levels[IR_LEVEL_END];
static inline bool ir_level_is_gpu(ir_level l) { return l >= IR_LEVEL_COUNT; }

enum {
#define FEATURE(ID, ...) IR_FEATURE_NUMBER_##ID,
#include "ir/feature.def"
#undef FEATURE
    IR_FEATURE_COUNT
};
typedef uint32_t ir_features; /* a set: IR_FEATURE_VNNI | IR_FEATURE_BF16 */
enum {
#define FEATURE(ID, ...) IR_FEATURE_##ID = 1 << IR_FEATURE_NUMBER_##ID,
#include "ir/feature.def"
#undef FEATURE
};
typedef struct ir_feature_info {
    const char *name;
    ir_level level;              /* what it adds to */
    const char *features, *text; /* LLVM's names; what uses it */
} ir_feature_info;
extern const ir_feature_info ir_feature_table[IR_FEATURE_COUNT];

typedef struct ir_target {
    ir_level level;
    ir_features features;
} ir_target;
enum { IR_TARGET_MAX = 64, IR_TARGET_FEATURES_MAX = 256 };
/* "x86-64-v4+vnni", "v4", "sm_80". Errors: ARGUMENT, with what is accepted and the nearest name. */
fusor_status ir_target_parse(fu_error *e, const char *text, ir_target *out);
/* The name, in a fixed order of features. */
const char *ir_target_name(ir_target t, char out[IR_TARGET_MAX]);
/* LLVM's names of all features, of the level and beside it: "a,b,c". */
const char *ir_target_features(ir_target t, char out[IR_TARGET_FEATURES_MAX]);
/* All features that add to a level. */
ir_features ir_level_extras(ir_level level);
#endif
