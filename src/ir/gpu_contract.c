/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_contract.c: tiles and the grid of contractions without tensor cores on a GPU (jit/gpu_contract.c). All follows
 * from the description and the sizes. */
#include "ir/gpu_grid.h"

/* Of a thread: 8 x 8 elements keep the fma units busy, 64 fma for 4 loads of 16 bytes from shared memory; its block is
 * too large for small results. A few rows or columns are limited by memory: wide blocks, as much of it at a time as two
 * hundred threads take. */
const ir_gpu_fma_tile ir_gpu_fma_tiles[IR_GPU_FMA_TILES] = {
    [IR_GPU_FMA_LARGE] = {128, 128, 8, 8, 8, 4, 2},
    [IR_GPU_FMA_SMALL] = {64, 64, 16, 4, 4, 4, 2},
    [IR_GPU_FMA_FLAT] = {16, 128, 16, 2, 4, 2, 4},
    [IR_GPU_FMA_TALL] = {128, 16, 16, 4, 2, 8, 1},
};

enum {
    BLOCKS_WANTED = 264, /* two for each multiprocessor of the largest devices */
    FEWEST_LARGE = 100,  /* blocks: most multiprocessors of an H100 (132) or A100 (108) have one */
};

bool ir_gpu_fma_has(const ir_kernel *k, int tile) {
    if (k->only_tile && tile != k->only_tile - 1) return false;
    const ir_gpu_fma_tile *t = &ir_gpu_fma_tiles[tile];
    ir_gpu_space s;
    ir_gpu_space_of(k, &s);
    const int64_t n =
        s.n[IR_GPU_COLUMNS] == 1 ? k->dim[s.dim[IR_GPU_COLUMNS][0]].size : IR_SIZE_RUNTIME; /* baked, or not */
    const ir_dtype acc = ir_kernel_contract_acc(k);
    if (tile == IR_GPU_FMA_SMALL) return n == IR_SIZE_RUNTIME || n > ir_gpu_fma_tiles[IR_GPU_FMA_TALL].columns;
    if (tile == IR_GPU_FMA_TALL) return n == IR_SIZE_RUNTIME || n <= t->columns;
    if (tile == IR_GPU_FMA_LARGE) return acc == FUSOR_F32 && n == IR_SIZE_RUNTIME;
    return ir_is_float(acc) && n == IR_SIZE_RUNTIME;
}

static int64_t tiles_of(int tile, int64_t m, int64_t n) {
    return ir_times(ir_ceil_div(m, ir_gpu_fma_tiles[tile].rows), ir_ceil_div(n, ir_gpu_fma_tiles[tile].columns));
}

static int choose(const ir_kernel *k, int64_t m, int64_t n, int64_t batches, int64_t k_blocks) {
    if (n <= ir_gpu_fma_tiles[IR_GPU_FMA_TALL].columns && ir_gpu_fma_has(k, IR_GPU_FMA_TALL)) return IR_GPU_FMA_TALL;
    if (m <= ir_gpu_fma_tiles[IR_GPU_FMA_FLAT].rows && ir_gpu_fma_has(k, IR_GPU_FMA_FLAT)) return IR_GPU_FMA_FLAT;
    if (!ir_gpu_fma_has(k, IR_GPU_FMA_LARGE)) return IR_GPU_FMA_SMALL;
    /* what edges waste, and whether most multiprocessors have a block, those of other K blocks too: four small tiles take
     * 1.4 times as long as a large one by their loads, twice as long on an H100 (1024 and 4096 cubed, 2026-11) */
    const int64_t large = ir_times(batches, tiles_of(IR_GPU_FMA_LARGE, m, n)),
                  small = ir_times(batches, tiles_of(IR_GPU_FMA_SMALL, m, n));
    if (ir_times(large, k_blocks) < FEWEST_LARGE) return IR_GPU_FMA_SMALL;
    return ir_times(large, 20) <= ir_times(small, 7) ? IR_GPU_FMA_LARGE : IR_GPU_FMA_SMALL;
}

void ir_gpu_plan_fma(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out) {
    const grid_matrices g = grid_matrices_of(k, size);
    const int tile = k->only_tile ? k->only_tile - 1 : choose(k, g.m, g.n, g.batches, ir_ceil_div(g.k, k->tile.kb));
    ir_gpu_plan_fma_tile(k, size, tile, out);
}

void ir_gpu_plan_fma_tile(const ir_kernel *k, const int64_t *size, int tile, ir_gpu_launch *out) {
    const grid_matrices g = grid_matrices_of(k, size);
    const int64_t k_blocks = ir_ceil_div(g.k, k->tile.kb);
    out->tile = tile;
    const ir_gpu_fma_tile *t = &ir_gpu_fma_tiles[out->tile];
    const int64_t tiles = ir_times(g.batches, tiles_of(out->tile, g.m, g.n));
    if (tiles > 0 && tiles < BLOCKS_WANTED && k_blocks > 1) {
        out->chunks = ir_ceil_div(BLOCKS_WANTED, tiles);
        if (out->chunks > k_blocks) out->chunks = k_blocks;
        out->chunks = ir_ceil_div(k_blocks, ir_ceil_div(k_blocks, out->chunks)); /* parts are whole blocks of k */
    }
    out->block[0][0] = out->block[1][0] = IR_GPU_THREADS;
    out->grid[0][0] = grid_at_most(ir_times(tiles, out->chunks), GRID_X_MAX);
    if (out->chunks == 1) return;
    out->n_phases = 2;
    out->scratch_bytes =
        ir_times(ir_times(ir_times(tiles, t->rows * t->columns), k_blocks), ir_dtypes[ir_kernel_contract_acc(k)].bytes);
    /* a thread adds 16 bytes of a row */
    const int64_t groups = ir_ceil_div(g.n, 16 / ir_dtypes[ir_kernel_contract_acc(k)].bytes);
    out->grid[1][0] = grid_at_most(ir_ceil_div(ir_times(ir_times(g.batches, g.m), groups), IR_GPU_THREADS), GRID_X_MAX);
}
