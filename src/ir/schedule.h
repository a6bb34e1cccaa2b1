/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_SCHEDULE_H
#define IR_SCHEDULE_H
/* What a target and the sizes in the text decide: lanes, register tiles, blocks of reductions. All of it is part of a
 * kernel's description, so a cache key; nothing here may depend on cache sizes, on measurements or on run-time
 * sizes. */
#include "ir/target.h"
#include "ir/types.h"

/* The order of a reduction (the same in every kernel, fused or not, for any number of threads):
 *   inner (reduced elements contiguous or strided, vectorized along the reduction): the reduced space in row-major
 *     order; its innermost axis in blocks of IR_REDUCE_BLOCK; element i of a block is combined into accumulator i mod
 *     (IR_REDUCE_UNROLL * lanes), in increasing i; accumulators start at the identity (0 for sums); then they combine
 *     by halves: acc[l] op acc[l + n/2], n/2, n/4 ... 1. The partial results of the blocks (numbered row-major over
 *     outer reduced axes, then blocks) combine as a tree in place: for s = 1, 2, 4 ...: p[i] = p[i] op p[i + s] for i =
 *     0, 2s, 4s ...
 *   column (vectorized along a kept axis): innermost reduced axis in blocks of IR_COLUMN_BLOCK, each accumulated in
 *     order from the identity; partial results combine by the same tree.
 * Error: at most 4096 / lanes / 4 + 6 + log2(n) additions deep. */
enum { IR_REDUCE_BLOCK = 4096, IR_REDUCE_UNROLL = 4, IR_COLUMN_BLOCK = 128 };
enum { IR_COLUMN_VECTORS = 4 }; /* so many vectors of columns are few: their number is in the code */

/* The order of a running sum or product (cumsum, cumprod), in the direction of the scan:
 *   inner (vectorized along the axis): blocks of IR_SCAN_BLOCK elements, each from the identity, vector by vector:
 *     within a vector x[l] = x[l - d] op x[l] for d = 1, 2, 4 ..., then the total of the block so far op that; what is
 *     left of the last block is one vector with identities where the level has masks, else single elements.
 *   column (vectorized along a kept axis): blocks of IR_SCAN_COLUMN_BLOCK, each in order from the identity.
 * Each result is (what is before the block) op (the block's). Before a block is, for float sums, the higher part of a
 * sum in two parts (two-sum, renormalized after each block); else the blocks' totals combined in order. */
enum { IR_SCAN_BLOCK = 1024, IR_SCAN_COLUMN_BLOCK = 128 };

/* Register tile of a contraction: mr rows x nr columns of the accumulator type; k block: partial sums of kb products
 * are accumulated in order from 0 with fma (mul and add where the level has none), then block sums are added in
 * order. */
typedef struct ir_tile {
    int mr, nr, kb;
} ir_tile;
ir_tile ir_contract_tile(ir_level level, ir_dtype acc);
/* For m rows and n columns; < 0: not known. */
ir_tile ir_contract_tile_of(ir_level level, ir_dtype acc, int64_t m, int64_t n);
/* The tile of a contraction of one row, of which `tile` is that of many: wider, for as many sums at once. */
ir_tile ir_contract_row_tile(ir_level level, ir_dtype acc, ir_tile tile);
enum {
    IR_WINDOW_FEW = 16,     /* up to so many products of an element, a convolution's tile has all of them in its code */
    IR_WINDOW_MANY = 32,    /* of so many registers, all tiles by channel have as many columns (ir_window_has_lower) */
    IR_WINDOW_ALONG = 8,    /* up to so many places along columns, pads are left out */
    IR_WINDOW_UNSIGNED = 64, /* sums of so many products and more are never -0 (ir_window_drops_sign) */
    IR_WINDOW_PREFETCH = 128     /* of so many products and more, tiles by channel prefetch the result's lines */
};
enum { IR_TILE_SIDE = 32 }; /* rows and columns that 2 x 2 of a CPU's tile registers make */
/* K block of a convolution in tiles, in elements: 256 steps of halves, so that few have a second one. */
enum { IR_WINDOW_TILED_BLOCK = 8192 };
enum { IR_WINDOW_HELD_SUMS = 8 }; /* of a tile that keeps its columns in registers */
/* Are there registers for the columns of k products, nv vectors, and sums of mr channels? */
bool ir_window_holds(ir_level level, int64_t k, int mr, int nv);
/* The tile of a convolution with m channels in a group: no more rows than those. n, y: columns and rows of the result,
 * k: products of an element, each -1 where it is not known; step: stride along the columns; is_direct: sums may go from
 * registers to the outputs (ir_window_is_small). Of the tile only the K block has a say in bits. */
ir_tile ir_window_tile(ir_level level, ir_dtype acc, int64_t m, int64_t n, int64_t y, int64_t k, int64_t step,
                       bool is_direct, double *cycles);
/* The same by channel (kernel.h); sizes are known. cycles: for each k, of one image, of the same scale; the other may
 * be told them too: 0 where sizes are not known. */
ir_tile ir_window_channel_tile(ir_level level, ir_dtype acc, int64_t m, int64_t n, int64_t y, int64_t k,
                               double *cycles);
/* Are y rows of n columns cut into tiles of mr and of mr - 1 columns, as many for each row? Where registers are many,
 * only so far as all rows in one line, with a few columns between them, would be more tiles. */
bool ir_window_is_cut(ir_level level, int64_t n, int64_t y, int mr);
/* The K block of a convolution with so many places: whole channels. */
int ir_window_block(ir_level level, ir_dtype acc, int64_t places);
/* The same for one channel a group, with so many places along three axes: rows x columns of one channel. step, apart:
 * stride and dilation along the rows. */
ir_tile ir_depthwise_tile(ir_level level, ir_dtype acc, int64_t n, int64_t y, const int64_t places[3], int64_t step,
                          int64_t apart);
/* Cycles that packing a vector of a convolution's columns takes, `step` elements apart (measured: Zen 5). */
int ir_window_pack_cycles(ir_level level, int64_t step);
/* The same for the direct form (ir/kernel.h): a tile that fits m x n, both known, and stays in registers. */
ir_tile ir_contract_direct_tile(ir_level level, ir_dtype acc, int m, int n);
/* On a GPU the tile is that of a block of threads. */
enum { IR_GPU_CONTRACT_TILE = 64, IR_GPU_ATTENTION_TILE = 64 };
/* Type a contraction of a and b accumulates in: f32 for floats up to 32 bits, f64, i32 for two 8-bit integers, i64 for
 * other integers; the result's type where that is of the same class and wider. */
ir_dtype ir_contract_acc(ir_dtype a, ir_dtype b, ir_dtype result);

/* Contractions of narrow operands may multiply several adjacent k at once: a word of a panel is then `group` elements
 * of one row, and one instruction adds their products to each accumulator.
 *   DOT_I16   two 8-bit integers as i16, any level                         pmaddwd
 *   DOT_I8    four 8-bit integers, unsigned times signed                   vpdpbusd   (vnni, avxvnni)
 *   DOT_BF16  two bf16                                                     vdpbf16ps  (bf16)
 *   TILE_I8   four 8-bit integers of any sign, 16 words                    tdpb??d    (amxint8)
 *   TILE_BF16 two bf16, 16 words                                           tdpbf16ps  (amxbf16)
 *   TILE_F16  two f16, 16 words                                            tdpfp16ps  (amxfp16)
 *   TILE_CUT  two f16 as two bf16 each, 16 words of high and of low parts  tdpbf16ps  (amxbf16, no amxfp16)
 * DOT_I8 of two signed operands takes operand 0 + 128, of two unsigned ones operand 0 - 128 (both are its bits ^ 0x80);
 * what that adds to each column of the result, 128 times the sum of operand 1, is taken off in a row of words in front
 * of each K block of a panel. Integers are exact, in any order, wrapping.
 * DOT_BF16 adds the products of a word one after the other, each fused and rounded to nearest even, the upper one
 * first: so k is the upper half and k + 1 the lower, and the sum is bit by bit that of contractions without it. But it
 * takes subnormals for 0: each K block of a panel begins with the least exponent of its nonzero elements, and where the
 * exponents of both panels allow a product or sum to be subnormal, their tile is made by fma.
 * Words of convolutions are such too, in the order of their K (ir/kernel.h).
 * The TILE_ forms multiply matrices in memory, 16 rows by 16 columns by 16 words, so `step` elements along k: panels
 * are filled up to whole steps, and those of operand 0 are rows of memory. Sums of bf16 and f16 there (the
 * instructions' definition, and what is done by fma where bf16 could be subnormal): elements 0, 2, 4 ... of a step are
 * added in order from 0, fused, and elements 1, 3, 5 ... likewise; the two sums are added; that is added to the sum of
 * the steps before, which begins at 0 with each K block. So their bits differ from those of targets without; products
 * and sums of f16 are never subnormal.
 * TILE_CUT: an f16 has 11 significant bits: it is the sum of its upper 8 (the high part) and the other 3 (the low
 * part), each of them 0 or a normal bf16. A step is four such products, each added to the sum as above: high x high,
 * high x low, low x low, low x high (parts of operand 0 x those of operand 1); their sums are multiples of 2^-48. An
 * infinity or NaN has no parts: the head of a K block of a panel tells that there is one, and its tile is then made by
 * fma, in which what has such an element in its sum is the sum of products of whole elements, and all else as above. */
typedef enum ir_dot {
    IR_DOT_NONE,
    IR_DOT_I16,
    IR_DOT_I8,
    IR_DOT_BF16,
    IR_DOT_TILE_I8,
    IR_DOT_TILE_BF16,
    IR_DOT_TILE_F16,
    IR_DOT_TILE_CUT,
    IR_DOT_COUNT
} ir_dot;
/* Register tile and blocks of attention (doc/numerics.md): mr keys (or values' columns) x nr queries; kb keys a block;
 * dot: how scores are made. On a GPU mr queries of a block of threads, nr = kb keys a block. */
ir_tile ir_attention_tile(ir_level level, ir_dtype acc, ir_dot dot);
ir_dot ir_contract_dot(ir_target target, ir_dtype a, ir_dtype b, ir_dtype acc);
ir_dot ir_attention_dot(ir_target target, ir_dtype q, ir_dtype k, ir_dtype acc); /* the same, but f16 is not cut */
typedef struct ir_dot_info {
    int group;    /* elements of a word */
    int heads[2]; /* rows of words in front of each K block of a panel of operand 0, 1 */
    int step;     /* elements along k that one instruction takes: K blocks of panels are filled up to whole steps */
    int parts;    /* words that a word becomes: those of a step's high parts, then those of its low parts */
} ir_dot_info;
extern const ir_dot_info ir_dots[IR_DOT_COUNT];
static inline bool ir_dot_is_tile(ir_dot d) { return d >= IR_DOT_TILE_I8; }
/* Words of a panel for n elements along k. */
static inline int64_t ir_dot_words(ir_dot d, int64_t n) {
    return (n + ir_dots[d].step - 1) / ir_dots[d].step * (ir_dots[d].step / ir_dots[d].group * ir_dots[d].parts);
}
/* The target without the features that a product of m rows, n columns and k products of each is slower with; < 0: not
 * known, many. */
ir_target ir_contract_target(ir_target target, ir_dtype a, ir_dtype b, ir_dtype acc, int64_t m, int64_t n, int64_t k);
/* For m rows and n columns; < 0: not known. */
ir_tile ir_dot_tile(ir_level level, ir_dot dot, int64_t m, int64_t n);
/* Of a convolution on a CPU: weights w by x. */
ir_dot ir_window_dot(ir_target target, ir_dtype w, ir_dtype x, ir_dtype acc);
ir_features ir_window_features(ir_target target, ir_dtype w, ir_dtype x, ir_dtype acc); /* of integers */
/* Of the target's features, those that a contraction of these types uses. */
ir_features ir_contract_features(ir_target target, ir_dtype a, ir_dtype b, ir_dtype acc);
#endif
