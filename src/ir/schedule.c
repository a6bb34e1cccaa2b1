/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* schedule.c: register tiles, made of what level.def says of a level. */
#include "base/small.h"
#include "ir/schedule.h"
#include "ir/arith.h"

ir_dtype ir_contract_acc(ir_dtype a, ir_dtype b, ir_dtype result) {
    if (ir_is_float(a)) return a == FUSOR_F64 || b == FUSOR_F64 || result == FUSOR_F64 ? FUSOR_F64 : FUSOR_F32;
    bool narrow = ir_dtypes[a].bytes == 1 && ir_dtypes[b].bytes == 1;
    return narrow && !(ir_is_int(result) && ir_dtypes[result].bytes == 8) ? FUSOR_I32 : FUSOR_I64;
}

/* Two vectors of columns and as many rows as leave at least two registers free (mr * 2 + 2 + 1 <= registers); no tile
 * spills at these sizes (tests/unit/contract_test.c).
 * Products of integers need a register each where they are not made in place, those of i64 below v4 three: fewer rows.
 * kb: f32 12x32 at 1024, one thread, EPYC family 26 (48 KB L1, 1 MB L2): 512 95.9, 384 95.8, 256 92.6 % of the FMA
 * peak. */
ir_tile ir_contract_tile(ir_level level, ir_dtype acc) {
    if (ir_level_is_gpu(level)) return (ir_tile){IR_GPU_CONTRACT_TILE, IR_GPU_CONTRACT_TILE, 512};
    int lanes = ir_levels[level].vector_bytes / ir_dtypes[acc].bytes;
    int mr = ir_levels[level].tiles.rows[acc == FUSOR_I64 ? 2 : acc == FUSOR_I32 ? 1 : 0];
    return (ir_tile){mr, 2 * lanes, ir_dtypes[acc].bytes == 8 ? 256 : 512};
}

/* The time of one step along k of h rows of v vectors, in half cycles: two products a cycle, and no fewer than 8 that
 * do not wait for each other; h + v loads. Two loads a cycle, but one of 512 bits where it is slowest: on an Ice Lake
 * server core 12x32 takes 14 cycles a step, 8x48 and 6x64 take 12. */
static int step_time(ir_level level, int h, int v) {
    const int products = h * v, loads = (h + v) * ir_levels[level].tiles.load_time,
              time = products > loads ? products : loads;
    return time < 8 ? 8 : time;
}

/* The same in eighths of cycles, where the panel of operand 1 comes from L2, at 32 bytes a cycle. (32 x 512 x 784 on a
 * core with 1 MB of it: 8x48 0.93 of the time of 6x64, of which the last two rows are a panel that loads as much as
 * others.) What products do not hide of that, on a core with 2 MB of L2: f32 256, 512 and 1000 cubed, 9x48 0.97, 0.94 and
 * 0.97 of the time of 6x64, 512 cubed 8x48 0.96; f64 512 and 1000 cubed, 6x32 0.95 of that of 12x16. */
static int panel_time(ir_level level, int h, int v) {
    enum { EIGHTHS = 4 }; /* of half a cycle */
    const int time = step_time(level, h, v), bytes = v * ir_levels[level].vector_bytes;
    return (time * 16 < bytes ? bytes / 16 : time) * EIGHTHS + v * ir_levels[level].tiles.panel_time;
}

/* All steps of m rows, in whole tiles and one lower, for a panel of v vectors. */
static int64_t rows_time(ir_level level, int mr, int v, int64_t m) {
    const int left = (int)(m % mr);
    return m / mr * panel_time(level, mr, v) + (left ? panel_time(level, left, v) : 0);
}

/* Of n columns in panels of nv vectors; the last has as many units of vectors as are left (ir_kernel_last_columns). */
static int64_t tile_time(ir_level level, int mr, int nv, int lanes, int unit, int64_t m, int64_t n) {
    const int64_t panels = n / (nv * lanes), left = n - panels * nv * lanes;
    const int v = panels ? (int)ir_round_up(ir_ceil_div(left, lanes), unit) : left ? nv : 0;
    return panels * rows_time(level, mr, nv, m) + (v ? rows_time(level, mr, v, m) : 0);
}

/* Two vectors of columns, or another number that takes less time by more than 1 / saved, or the same with fewer columns
 * that are none of the result (where loads take less than step_time says, that is what counts: 32 x 1024 x 1024, EPYC
 * 9004: 6x64 1.03 times as fast as 8x48). */
static ir_tile tile_of(ir_level level, ir_dtype acc, int64_t m, int64_t n, bool may_be_tall) {
    enum { MANY = 1 << 20, MOST = 4 };
    static const uint8_t vectors[] = {2, 3, 4, 1};
    ir_tile best = ir_contract_tile(level, acc);
    if (ir_level_is_gpu(level) || !ir_is_float(acc)) return best;
    const ir_level_tiles *t = &ir_levels[level].tiles;
    const int lanes = best.nr / 2, unit = ir_levels[level].lanes / lanes;
    if (m < 1 || m > MANY) m = MANY;
    if (n < 1 || n > MANY) n = MANY;
    int64_t least = 0, fewest = 0;
    for (int i = 0; i < (may_be_tall ? 2 * MOST : MOST); i++) {
        const int nv = vectors[i % MOST], mr = (i < MOST ? t->float_rows : t->tall_rows)[nv - 1];
        if (!mr || nv % unit) continue;
        const int64_t time = tile_time(level, mr, nv, lanes, unit, m, n), columns = ir_round_up(n, nv * lanes);
        if (least && time >= least - least / t->saved && (time != least || columns >= fewest)) continue;
        least = time;
        fewest = columns;
        best.mr = mr;
        best.nr = nv * lanes;
    }
    return best;
}

ir_tile ir_contract_tile_of(ir_level level, ir_dtype acc, int64_t m, int64_t n) {
    return tile_of(level, acc, m, n, true);
}

/* 64 columns, or 8 vectors: from the last cache or memory 64 are as fast as 128 and more (f32, 1024 x 1024, EPYC
 * 9005). */
ir_tile ir_contract_row_tile(ir_level level, ir_dtype acc, ir_tile tile) {
    const int lanes = ir_levels[level].vector_bytes / ir_dtypes[acc].bytes, vectors = 64 / lanes;
    if (ir_level_is_gpu(level) || (!ir_is_float(acc) && acc != FUSOR_I32)) return tile;
    return (ir_tile){1, lanes * (vectors < 8 ? vectors : 8), tile.kb};
}

const ir_dot_info ir_dots[IR_DOT_COUNT] = {
    [IR_DOT_NONE] = {1, {0, 0}, 1, 1},      [IR_DOT_I16] = {2, {0, 0}, 2, 1},
    [IR_DOT_I8] = {4, {0, 1}, 4, 1},        [IR_DOT_BF16] = {2, {1, 1}, 2, 1},
    [IR_DOT_TILE_I8] = {4, {0, 0}, 64, 1},  [IR_DOT_TILE_BF16] = {2, {1, 1}, 32, 1},
    [IR_DOT_TILE_F16] = {2, {0, 0}, 32, 1}, [IR_DOT_TILE_CUT] = {2, {1, 1}, 32, 2},
};

ir_dot ir_contract_dot(ir_target target, ir_dtype a, ir_dtype b, ir_dtype acc) {
    if (ir_level_is_gpu(target.level)) return IR_DOT_NONE;
    if (acc == FUSOR_I32 && ir_dtypes[a].bytes == 1 && ir_dtypes[b].bytes == 1)
        return target.features & IR_FEATURE_AMXINT8                       ? IR_DOT_TILE_I8
               : target.features & (IR_FEATURE_VNNI | IR_FEATURE_AVXVNNI) ? IR_DOT_I8
                                                                          : IR_DOT_I16;
    if (a != b || acc != FUSOR_F32) return IR_DOT_NONE;
    if (a == FUSOR_F16)
        return target.features & IR_FEATURE_AMXFP16   ? IR_DOT_TILE_F16
               : target.features & IR_FEATURE_AMXBF16 ? IR_DOT_TILE_CUT
                                                      : IR_DOT_NONE;
    if (a != FUSOR_BF16) return IR_DOT_NONE;
    return target.features & IR_FEATURE_AMXBF16 ? IR_DOT_TILE_BF16
           : target.features & IR_FEATURE_BF16  ? IR_DOT_BF16
                                                : IR_DOT_NONE;
}

ir_dot ir_attention_dot(ir_target target, ir_dtype q, ir_dtype k, ir_dtype acc) {
    const ir_dot dot = ir_contract_dot(target, q, k, acc);
    return dot == IR_DOT_TILE_CUT ? IR_DOT_NONE : dot;
}

ir_features ir_contract_features(ir_target target, ir_dtype a, ir_dtype b, ir_dtype acc) {
    switch (ir_contract_dot(target, a, b, acc)) {
    case IR_DOT_I8: return target.features & (IR_FEATURE_VNNI | IR_FEATURE_AVXVNNI);
    case IR_DOT_BF16: return IR_FEATURE_BF16;
    case IR_DOT_TILE_I8: return IR_FEATURE_AMXINT8;
    case IR_DOT_TILE_BF16: return target.features & (IR_FEATURE_AMXBF16 | IR_FEATURE_BF16); /* the latter rounds */
    case IR_DOT_TILE_F16: return IR_FEATURE_AMXFP16;
    case IR_DOT_TILE_CUT: return IR_FEATURE_AMXBF16;
    default: return 0;
    }
}

/* The operand gets 128 more where both are signed (it is its bits ^ 0x80); two unsigned ones are products of pairs. CPUs
 * with tiles multiply pairs of bf16 outside of them at half the rate of fma (8x64x56x56, 3x3, to 64, two processors of a
 * CPU with AMX: 18.7 ms, by fma, the same bits, 10.0). */
ir_dot ir_window_dot(ir_target target, ir_dtype w, ir_dtype x, ir_dtype acc) {
    const bool has_pairs = target.features & IR_FEATURE_BF16 && !(target.features & IR_FEATURE_AMXBF16);
    if (acc == FUSOR_F32 && w == FUSOR_BF16 && x == FUSOR_BF16 && has_pairs) return IR_DOT_BF16;
    if (ir_level_is_gpu(target.level) || acc != FUSOR_I32 || ir_dtypes[w].bytes != 1 || ir_dtypes[x].bytes != 1)
        return IR_DOT_NONE;
    return target.features & (IR_FEATURE_VNNI | IR_FEATURE_AVXVNNI) && (ir_is_signed(w) || ir_is_signed(x))
               ? IR_DOT_I8
               : IR_DOT_I16;
}

ir_features ir_window_features(ir_target target, ir_dtype w, ir_dtype x, ir_dtype acc) {
    return ir_window_dot(target, w, x, acc) == IR_DOT_I8 ? target.features & (IR_FEATURE_VNNI | IR_FEATURE_AVXVNNI) : 0;
}

/* Small products are made faster without what has to be packed for (one core with AMX, microseconds). Tiles of bf16
 * over fma: 8 cubed 0.65 and 0.48, 16 cubed 0.84 and 0.49, 24 cubed 1.01 and 0.84 (in batches 0.35 and 0.52), 32
 * cubed 0.98 and 1.20; pairs of them 0.54, 0.78, 1.30, 1.27. Tiles of bytes over VNNI: 16 cubed 0.73 and 0.44, 32
 * cubed 0.81 and 0.57, 64 cubed 0.97 and 1.56; of few products along k, 1000 x 16 by 16 x 16 5.7 and 2.0, 1000 x 4 by
 * 4 x 64 10 and 6.2. Of f16 that are cut, a step is sixteen products of tiles, and panels have twice the words: f16
 * results, tiles over fma, operand 1 packed before / packed by the call: 8 x 1024 x 1024 1.03 / 1.5, 16 x 256 x 256
 * 0.56 / 1.01, 1024 x 8 x 1024 1.7 / 1.8, 64 x 16 x 64 1.08 / 1.18, 64 x 24 x 64 0.86 / 0.86, 16 cubed 2.2 / 2.5, 32
 * cubed 0.8 / 1.1, 256 cubed 0.33. */
static bool pays(ir_dot dot, int64_t m, int64_t n, int64_t k) {
    enum { FEW = 16, FEW_PAIRS = 16 * 16 * 16, FEW_BYTES = 48 * 48 * 48, FEW_CUT = 32 * 32 * 32 };
    const int64_t products = m < 0 || n < 0 || k < 0 ? INT64_MAX : ir_times(ir_times(m, n), k);
    switch (dot) {
    case IR_DOT_BF16:
    case IR_DOT_TILE_BF16: return products > FEW_PAIRS;
    case IR_DOT_TILE_I8: return products >= FEW_BYTES && (k < 0 || k > FEW);
    case IR_DOT_TILE_CUT: return (m < 0 || m >= FEW) && (k < 0 || k > FEW) && products >= FEW_CUT;
    default: return true;
    }
}

ir_target ir_contract_target(ir_target target, ir_dtype a, ir_dtype b, ir_dtype acc, int64_t m, int64_t n, int64_t k) {
    enum { TILES = IR_FEATURE_AMXINT8 | IR_FEATURE_AMXBF16 | IR_FEATURE_AMXFP16 };
    for (;;) {
        const ir_dot dot = ir_contract_dot(target, a, b, acc);
        if (pays(dot, m, n, k)) return target;
        target.features &= ~(ir_features)(ir_dot_is_tile(dot) ? TILES : IR_FEATURE_BF16);
    }
}

/* The product of bytes (vnni) takes what an f32 product does, of as many lanes, so its tiles are those of f32. That of
 * bf16 comes with checks of exponents for each panel of rows: fewer and higher ones. (u8 x i8 256, 512 and 1024 cubed,
 * Ice Lake server core: 6x64 1.14 to 1.18 times as fast as 12x32.)
 * K blocks of the bytes of an f32 panel; of bf16, of as many elements, since that is part of the order.
 * Tiles: 2 x 2 of them in 4 of the 8 registers, so that each step's four loads (8 cycles each, two ports) stay behind
 * its four products (16 cycles each, one after the other, 52 until a sum can be added to: Intel's optimization manual).
 * Wider forms, 1 x 4 or 3 x 1, load more for each product. kb: 4 KB of a row, so that sums seldom are added in memory;
 * what of a block stays in L1 is the launch's to say (IR_TUNE_CONTRACT_PART). */
ir_tile ir_dot_tile(ir_level level, ir_dot dot, int64_t m, int64_t n) {
    if (ir_dot_is_tile(dot))
        return (ir_tile){IR_TILE_SIDE, IR_TILE_SIDE, 1024 * ir_dots[dot].group / ir_dots[dot].parts};
    ir_tile t = dot == IR_DOT_I8    ? tile_of(level, FUSOR_F32, m, n, false)
                : dot == IR_DOT_I16 ? ir_contract_tile(level, FUSOR_I32)
                                    : ir_contract_tile(level, FUSOR_F32);
    if (dot != IR_DOT_BF16) t.kb *= ir_dots[dot].group;
    return t;
}

/* Cycles of a tile for each k: two multiply-adds a cycle, two loads, those of operand 1 across lines of the cache
 * counting half more (two of them for a stride of 2); a sum waits 4 cycles for the one before. And more the more loads
 * there are, above all where they are not part of a product (EPYC 9005, v3: 64 to 256 channels of 56x56, 1x1, 6x16 and
 * 4x24: 1.15 and 1.24 times the products' cycles). */
static double tile_cycles(ir_level level, int mr, int nv, int step) {
    const double products = mr * nv / 2.0, loads = (mr + 1.5 * nv * step + 1) / 2,
                 most = products > loads ? products : loads;
    const bool is_apart = ir_levels[level].has_fma && !ir_levels[level].tiles.folds;
    return (most > 4 ? most : 4) * (1 + loads / products / (is_apart ? 4 : 10));
}

/* For a line of so many vectors; what is left of the last panel is done as tiles of one vector. */
static double line_cycles(ir_level level, int mr, int nv, int step, int64_t vectors) {
    const int64_t left = vectors % nv;
    return (double)(vectors / nv) * tile_cycles(level, mr, nv, step) + (double)left * tile_cycles(level, mr, 1, step);
}

int ir_window_block(ir_level level, ir_dtype acc, int64_t places) {
    const int kb = ir_contract_tile(level, acc).kb;
    return places > 1 && places <= kb && ir_is_float(acc) ? (int)(kb / places * places) : kb;
}

/* Without masks the elements behind whole vectors go one by one, and take most of the time: 5 to 6 cycles an element of
 * the panel at v3 (256 channels of 14x14, EPYC 9005). */
int ir_window_pack_cycles(ir_level level, int64_t step) {
    if (!ir_levels[level].has_mask) return 5 * ir_levels[level].lanes * ir_levels[level].lanes / 8;
    return step == 1 || step == 2 ? 3 * (int)step : 24;
}

bool ir_window_holds(ir_level level, int64_t k, int mr, int nv) {
    return (k + mr) * nv + 2 <= ir_levels[level].registers;
}

/* Of all tiles that fit the registers (accumulators, a row of operand 1 and one element of operand 0), the quickest for
 * the result: by rows, or all rows in one line with a few columns between them, or packed without these (as
 * jit/window.c chooses). More than four vectors only of few channels: they are loaded for few products then. (EPYC
 * 9005, f32, 32 channels of 112x112 to 16, 3x3: 2x112 3.1 times the time of 8x48.) */
ir_tile ir_window_tile(ir_level level, ir_dtype acc, int64_t m, int64_t n, int64_t y, int64_t k, int64_t step,
                       bool is_direct, double *cycles) {
    const int lanes = ir_levels[level].vector_bytes / ir_dtypes[acc].bytes, registers = ir_levels[level].registers;
    const bool is_known = n > 0 && n < INT32_MAX && y > 0 && y < INT32_MAX;
    /* Products of integers need a register where they are not made in place, those of i64 below v4 more. */
    const int products = ir_is_float(acc) ? 0 : ir_dtypes[acc].bytes == 8 && level != IR_LEVEL_V4 ? 5 : 1;
    ir_tile best = {1, lanes, ir_contract_tile(level, acc).kb};
    const double each = k > 0 ? (double)k : 512;
    const bool has_rows = step == 1 || (step == 2 && k > 0 && k <= best.kb);
    double least = 1e300;
    for (int mr = 1; mr <= 12 && mr <= m; mr++)
        for (int nv = 1; nv <= (m <= 3 ? 8 : 4) && mr * nv + nv + 1 + products <= registers; nv++) {
            const double tiles = (double)((m + mr - 1) / mr);
            double line = tile_cycles(level, mr, nv, has_rows ? (int)step : 1) / nv;
            if (is_known) {
                /* and for each vector some to go on with it, more where that leads through memory */
                const int64_t in_row = (n + lanes - 1) / lanes, in_all = ((y - 1) * (n + 2) + n + lanes - 1) / lanes,
                              packed = (y * n + lanes - 1) / lanes;
                line = line_cycles(level, mr, nv, 1, packed) + (double)(packed * mr) * 8 / each +
                       (double)packed * ir_window_pack_cycles(level, step) / tiles;
                const double flat = line_cycles(level, mr, nv, 1, in_all) + (double)(in_all * mr) * 8 / each;
                if (step == 1 && flat < line) line = flat;
                const double rows = !has_rows ? line
                                              : (double)y * (line_cycles(level, mr, nv, (int)step, in_row) +
                                                             (double)(in_row * mr) * 1.5 / each);
                if (rows < line) line = rows;
            }
            const double cost = line * tiles;
            if (cost >= least) continue;
            least = cost;
            best.mr = mr;
            best.nr = nv * lanes;
        }
    if (cycles) *cycles = is_known ? least : 0;
    /* Few products: the columns of two vectors stay in registers, and all channels meet them, four at a time; of one
     * vector, eight at a time, where rows are shorter. (EPYC 9005, 32x1x28x28 to 16, 3x3: 0.86 of the time of 16
     * channels by one vector that is loaded for them.) A few more products than registers: of one vector with up to 16
     * channels, which read the weights from memory themselves, and the loop around them is gone. (EPYC 9004: 0.92 of
     * the time of 8 channels x 32 columns.) More channels: two vectors, since each weight is loaded for both; the
     * columns are gathered once for all channels. (EPYC 9005, to 32: 0.90 of the time of one vector; to 16 1.04.) */
    if (!ir_levels[level].has_mask || acc != FUSOR_F32 || step != 1 || k <= 0 || k > IR_WINDOW_FEW) return best;
    const int vectors_held = n > 0 && n < lanes ? 1 : 2, rows_held = IR_WINDOW_HELD_SUMS / vectors_held;
    if (is_direct && m >= rows_held && ir_window_holds(level, k, rows_held, vectors_held)) {
        best.mr = rows_held;
        best.nr = vectors_held * lanes;
    } else if (m > 8) {
        const int vectors = m > 16 ? 2 : 1, most = vectors > 1 ? 12 : 16;
        best.mr = 8;
        for (int mr = 9; mr <= most; mr++)
            if ((m + mr - 1) / mr * mr <= (m + best.mr - 1) / best.mr * best.mr) best.mr = mr;
        best.nr = vectors * lanes;
    }
    return best;
}

/* Vectors of weights count three times, for they come from L2 or L3; whole lines of it four times (32 bytes a cycle: 512
 * channels of 8x8, 3x3, 4 columns by 4 vectors two times the time of 8 by 2 on a Cascade Lake core). And a core may start
 * no more than four instructions a cycle, of which a loop over the places takes some for each; with one vector elements
 * are operands of products. (128 channels of 32x32: 8 columns by 2 vectors 1.12 times the time of 11 and 10 on the same
 * core; 64 of 64x64 1.05 times that of 13 and 12. Not measured at levels of few registers.) */
static double channel_tile_cycles(ir_level level, int mr, int nv) {
    const bool is_wide = ir_levels[level].registers >= IR_WINDOW_MANY;
    const double products = mr * nv / 2.0, loads = (mr + (is_wide ? 4 : 3) * nv) / 2.0,
                 instructions = (mr * nv + (nv > 1 ? mr : 0) + nv + 7) / 4.0;
    double most = products > loads ? products : loads;
    if (most < instructions && is_wide) most = instructions;
    return (most > 4 ? most : 4) * (1 + loads / products / 10);
}

bool ir_window_is_cut(ir_level level, int64_t n, int64_t y, int mr) {
    const int64_t tiles = ir_ceil_div(n, mr), lower = tiles * mr - n;
    if (mr < 2 || lower < 1 || lower > tiles) return false;
    return ir_levels[level].registers < IR_WINDOW_MANY || ir_ceil_div((y - 1) * (n + 2) + n, mr) > y * tiles;
}

/* Tiles of mr columns x nv vectors of channels; vectors that are left behind the last one are alone, as are rows behind
 * the last tile of whole ones: on small images these meet more columns with each vector of weights, which come from L3.
 * (512 to 512 channels of 7x7, 3x3, EPYC 9005: 0.8 of the time of 7 columns by 2 or 3 vectors; four rows by one vector
 * take 1.4 times that, for they load an element a product.) Where that saves tiles, a row is cut into such of mr
 * and of mr - 1 columns (ir_window_is_cut). Sums are turned, and go through memory to what is behind
 * them: some cycles a vector of columns, and two for each K block. */
ir_tile ir_window_channel_tile(ir_level level, ir_dtype acc, int64_t m, int64_t n, int64_t y, int64_t k,
                               double *cycles) {
    const int lanes = ir_levels[level].vector_bytes / ir_dtypes[acc].bytes, registers = ir_levels[level].registers;
    ir_tile best = {0, 0, ir_contract_tile(level, acc).kb};
    const int64_t vectors = (m + lanes - 1) / lanes;
    const double each = k > 0 ? (double)k : 512, finish = 4 * (double)m * (double)y * (double)((n + lanes - 1) / lanes);
    double least = 1e300;
    for (int mr = 1; mr <= 28; mr++)
        for (int nv = 1; nv <= 4; nv++) {
            /* an element, and its product while another is to come */
            if (mr * nv + nv + (ir_levels[level].has_fma || nv == 1 ? 1 : 2) > registers) break;
            const int rows = mr > n && mr % n == 0 ? (int)(mr / n) : 1, left = rows > 1 ? (int)(y % rows) : 0;
            if (mr > n && (rows == 1 || rows > y)) continue;
            const int64_t in_row = (n + mr - 1) / mr,
                          lower = rows == 1 && ir_window_is_cut(level, n, y, mr) ? (in_row * mr - n) * y : 0;
            const double tiles = (double)(rows > 1 ? y / rows : y * in_row),
                         whole = (tiles - (double)lower) * channel_tile_cycles(level, mr, nv) +
                                 (double)lower * channel_tile_cycles(level, mr - 1, nv) +
                                 left * channel_tile_cycles(level, (int)n, nv),
                         alone = rows > 1 ? (double)y * channel_tile_cycles(level, (int)n, 1)
                                          : tiles * channel_tile_cycles(level, mr, 1);
            const double cost =
                (double)(vectors / nv) * whole + (double)(vectors % nv) * alone +
                (tiles * mr + (double)(left * n)) * (double)vectors * 2 / (each < best.kb ? each : best.kb) +
                finish / each;
            if (cost >= least) continue;
            least = cost;
            best.mr = mr;
            best.nr = nv * lanes;
        }
    *cycles = least;
    return best;
}

/* Rows of the operand that r rows of the result meet. */
static int rows_met(int r, int64_t places, int64_t step, int64_t apart) {
    int n = 0;
    for (int64_t at = 0; at <= (r - 1) * step + (places - 1) * apart; at++) {
        bool is_met = false;
        for (int i = 0; i < r && i * step <= at; i++)
            is_met |= (at - i * step) % apart == 0 && (at - i * step) / apart < places;
        n += is_met;
    }
    return n;
}

/* Cycles of one product of a vector: two products a cycle, where eight go on at a time; a cycle for each vector of the
 * operand (most lie across lines), which all rows that meet it share; weights that do not stay in registers are loaded
 * for each row. */
ir_tile ir_depthwise_tile(ir_level level, ir_dtype acc, int64_t n, int64_t y, const int64_t places[3], int64_t step,
                          int64_t apart) {
    const int lanes = ir_levels[level].vector_bytes / ir_dtypes[acc].bytes, registers = ir_levels[level].registers;
    const int all = (int)(places[0] * places[1] * places[2]);
    const bool is_known = n > 0 && n<INT32_MAX, has_rows = y> 0 && y < INT32_MAX;
    ir_tile best = {1, lanes, ir_contract_tile(level, acc).kb};
    double least = 1e300;
    for (int mr = 1; mr <= 8; mr++)
        for (int nv = 1; nv <= 8 / mr || nv <= 2; nv++) {
            const int sums = mr * nv, spilled = all + sums + nv - registers;
            if (sums + nv + 1 > registers || (sums > 1 && sums * all > 400)) continue;
            const double products = (double)all * (sums < 8 ? 8 : sums) / 2;
            double loads = (double)(places[0] * rows_met(mr, places[1], step, apart) * places[2] * nv);
            if (spilled > 0) loads += (double)(spilled < all ? spilled : all) * mr / 2;
            double cost = ((products > loads ? products : loads) + 0.2 * loads + 4) / sums;
            if (is_known) {
                const int64_t vectors = (n + lanes - 1) / lanes;
                cost *= (double)((vectors + nv - 1) / nv * nv) / (double)vectors;
            }
            if (has_rows) cost *= (double)((y + mr - 1) / mr * mr) / (double)y;
            if (cost >= least) continue;
            least = cost;
            best.mr = mr;
            best.nr = nv * lanes;
        }
    /* Half a vector: fewer loads lie across lines. */
    if (is_known && ir_levels[level].has_mask && n <= lanes / 2) best.nr = lanes / 2;
    return best;
}

/* Of equals, fewer loads; and what a tile costs beside its steps. */
static int direct_time(ir_level level, int h, int v) { return 16 * step_time(level, h, v) + h + v + 16; }

/* All tiles are tried: mr * nv accumulators, nv vectors of operand 1 and an element of operand 0 in all lanes, which
 * may stay in memory where the level has such products and it is used once; products where the level has none that add.
 * Rows that are left over, and vectors, are tiles of their own. */
ir_tile ir_contract_direct_tile(ir_level level, ir_dtype acc, int m, int n) {
    int lanes = ir_levels[level].vector_bytes / ir_dtypes[acc].bytes, registers = ir_levels[level].registers;
    int spare = ir_levels[level].tiles.spare[ir_is_int(acc)];
    int vectors = (n + lanes - 1) / lanes, unit = ir_levels[level].lanes / lanes, best = 0;
    if (unit < 1) unit = 1;
    ir_tile tile = {1, unit * lanes, ir_contract_tile(level, acc).kb};
    for (int nv = unit; nv <= 8 && nv < vectors + unit; nv += unit)
        for (int h = 1; h <= m && h <= 30; h++) {
            bool is_folded = nv == 1 && ir_levels[level].tiles.folds && ir_is_float(acc);
            if (h * nv + nv + !is_folded + spare > registers) break;
            int v = nv < vectors ? nv : vectors, time = 0;
            for (int row = 0; row < m; row += h)
                for (int j = 0; j < vectors; j += v)
                    time += direct_time(level, row + h <= m ? h : m - row, j + v <= vectors ? v : vectors - j);
            if (best && time >= best) continue;
            best = time;
            tile.mr = h;
            tile.nr = nv * lanes;
        }
    return tile;
}

/* Products of a block of keys are a register tile whose columns are queries. 8 rows divide every usual head size, and
 * the more vectors of queries there are, the fewer loads and instructions a product takes: three of f32 (an Ice Lake
 * core of a shared host: 126 GFLOP/s, with two vectors 106). kb: scores of a panel and the block's keys and values
 * stay in L2. Panels for AMX have 32 queries, and all that a block is made of stays in L1 (48 KB, 8 heads of 512x64, bf16,
 * in turns: 64 keys 1261 us, 128 1443, 256 1449). */
ir_tile ir_attention_tile(ir_level level, ir_dtype acc, ir_dot dot) {
    const int lanes = ir_levels[level].vector_bytes / ir_dtypes[acc].bytes, *tile = ir_levels[level].tiles.attention;
    if (ir_level_is_gpu(level)) return (ir_tile){IR_GPU_ATTENTION_TILE, 16 * lanes, 16 * lanes};
    if (ir_dot_is_tile(dot)) return (ir_tile){tile[0], 2 * lanes, 64};
    return (ir_tile){tile[0], (acc == FUSOR_F32 ? tile[1] : 2) * lanes, 128};
}
