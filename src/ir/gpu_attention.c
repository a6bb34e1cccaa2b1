/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_attention.c: the grid of attention on a GPU (jit/gpu_attention.c). A block of threads takes some queries, a part
 * of the keys and some columns of the values; where there are several parts, a second launch merges them. */
#include "ir/gpu_grid.h"

enum {
    BLOCKS_WANTED = 512, /* some for each multiprocessor of the largest devices */
    PART_MIN = 256,      /* keys: fewer are not worth the results that are merged */
};

int ir_gpu_attention_queries(int64_t queries) {
    return queries <= IR_GPU_ATTENTION_FEW ? IR_GPU_ATTENTION_FEW : IR_GPU_ATTENTION_QUERIES;
}

int ir_gpu_attention_width(const ir_kernel *k) {
    const int64_t e = k->dim[ir_kernel_attention_dims(k).n].size;
    const int step = ir_kernel_attention_acc(k) == FUSOR_F64 ? 16 : 32;
    if (e == IR_SIZE_RUNTIME) return 2 * step;
    return e <= step ? step : e <= 2 * step ? 2 * step : 4 * step;
}

void ir_gpu_plan_attention(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out) {
    const ir_attention_dims at = ir_kernel_attention_dims(k);
    const int64_t m = size[at.m], e = size[at.n], keys = size[at.j];
    const int64_t rows = ir_ceil_div(m, ir_gpu_attention_queries(m)),
                  columns = ir_ceil_div(e, ir_gpu_attention_width(k));
    int64_t batches = 1, units, parts = 1;
    for (int d = 0; d < at.m; d++) batches = ir_times(batches, size[d]);
    units = ir_times(ir_times(batches, rows), columns);
    if (units > 0 && units < BLOCKS_WANTED) {
        parts = ir_ceil_div(BLOCKS_WANTED, units);
        if (parts > keys / PART_MIN) parts = keys / PART_MIN;
        if (parts < 1) parts = 1;
    }
    if (parts > 1) parts = ir_ceil_div(keys, ir_round_up(ir_ceil_div(keys, parts), k->tile.kb));
    out->chunks = parts;
    if (parts > 1) {
        const int64_t results = ir_times(ir_times(batches, m), ir_times(parts, e + 2));
        out->n_phases = 2;
        out->scratch_bytes = ir_times(results, ir_dtypes[ir_kernel_attention_acc(k)].bytes);
    }
    for (int p = 0; p < 2; p++) out->block[p][0] = IR_GPU_ATTENTION_THREADS;
    out->grid[0][0] = grid_at_most(ir_times(rows, parts), GRID_X_MAX);
    out->grid[0][1] = grid_at_most(columns, GRID_Y_MAX);
    out->grid[0][2] = grid_at_most(batches, GRID_Y_MAX);
    out->grid[1][0] =
        grid_at_most(ir_ceil_div(ir_times(ir_times(batches, m), e), IR_GPU_ATTENTION_THREADS), GRID_X_MAX);
}
