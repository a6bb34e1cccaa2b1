/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef IR_SCHEDULE_H
#define IR_SCHEDULE_H
/* What the CPU level alone decides: lanes, register tiles, blocks of reductions. All of it is part of a kernel's description,
 * so a cache key; nothing here may depend on cache sizes, on measurements or on run-time sizes. */
#include "ir/target.h"
#include "ir/types.h"

/* The order of a reduction (the same in every kernel, fused or not, for any number of threads):
 *   inner (reduced elements contiguous or strided, vectorized along the reduction): the reduced space in row-major order; its
 *     innermost axis in blocks of IR_REDUCE_BLOCK; element i of a block is combined into accumulator i mod (IR_REDUCE_UNROLL *
 *     lanes), in increasing i; accumulators start at the identity (0 for sums); then they combine by halves: acc[l] op acc[l + n/2],
 *     n/2, n/4 ... 1. The partial results of the blocks (numbered row-major over outer reduced axes, then blocks) combine as
 *     a tree in place: for s = 1, 2, 4 ...: p[i] = p[i] op p[i + s] for i = 0, 2s, 4s ...
 *   column (vectorized along a kept axis): innermost reduced axis in blocks of IR_COLUMN_BLOCK, each accumulated in order from
 *     the identity; partial results combine by the same tree.
 * Error: at most 4096 / lanes / 4 + 6 + log2(n) additions deep. */
enum { IR_REDUCE_BLOCK = 4096, IR_REDUCE_UNROLL = 4, IR_COLUMN_BLOCK = 128 };

/* The order of a running sum or product (cumsum, cumprod), in the direction of the scan:
 *   inner (vectorized along the axis): blocks of IR_SCAN_BLOCK elements, each from the identity, vector by vector: within a vector
 *     x[l] = x[l - d] op x[l] for d = 1, 2, 4 ..., then the total of the block so far op that; what is left of the last block
 *     is one vector with identities where the level has masks, else single elements.
 *   column (vectorized along a kept axis): blocks of IR_SCAN_COLUMN_BLOCK, each in order from the identity.
 * Each result is (what is before the block) op (the block's). Before a block is, for float sums, the higher part of a sum in
 * two parts (two-sum, renormalized after each block); else the blocks' totals combined in order. */
enum { IR_SCAN_BLOCK = 1024, IR_SCAN_COLUMN_BLOCK = 128 };

/* Register tile of a contraction: mr rows x nr columns of the accumulator type; k block: partial sums of kb products are
 * accumulated in order from 0 with fma (mul and add where the level has none), then block sums are added in order. */
typedef struct ir_tile { int mr, nr, kb; } ir_tile;
ir_tile ir_contract_tile(ir_level level, ir_dtype acc);
/* Type a contraction of a and b accumulates in: f32 for floats up to 32 bits, f64, i32 for two 8-bit integers, i64 for other
 * integers; the result's type where that is of the same class and wider. */
ir_dtype ir_contract_acc(ir_dtype a, ir_dtype b, ir_dtype result);
#endif
