/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu.c: the parameter and the grid of a GPU kernel: arithmetic on its description and the sizes of a call. */
#include "ir/arith.h"
#include "ir/gpu.h"
#include <string.h>

enum {
    GRID_X_MAX = INT32_MAX,
    GRID_Y_MAX = 65535,
    BLOCKS_WANTED = 1024 /* a few for each multiprocessor of the largest devices */
};

int ir_gpu_words(const ir_kernel *k) {
    int n = IR_GPU_WORDS + k->n_buffers + k->n_scalars;
    for (int d = 0; d < k->n_dims; d++) n += k->dim[d].size == IR_SIZE_RUNTIME;
    for (int b = 0; b < k->n_buffers; b++)
        for (int d = 0; d < k->n_dims; d++) n += k->buffer[b].stride[d] == IR_STRIDE_RUNTIME;
    return n;
}

/* Does every row of every contiguous buffer begin at a multiple of IR_GPU_VECTOR elements, and end at one? */
static bool is_aligned(const ir_kernel *k, const ir_kernel_args *args) {
    int last = k->n_dims - 1;
    if (args->size[last] % IR_GPU_VECTOR != 0) return false;
    for (int b = 0; b < k->n_buffers; b++) {
        const int64_t *stride = args->stride + b * k->n_dims;
        if (stride[last] == 0) continue;
        if ((uintptr_t)args->buffer[b] % (uintptr_t)(IR_GPU_VECTOR * ir_dtypes[k->buffer[b].dtype].bytes) != 0)
            return false;
        for (int d = 0; d < last; d++)
            if (stride[d] % IR_GPU_VECTOR != 0) return false;
    }
    return true;
}

void ir_gpu_param(const ir_kernel *k, const ir_kernel_args *args, const ir_gpu_launch *l, int phase, uint64_t *out) {
    int n = IR_GPU_WORDS;
    out[IR_GPU_WORD_PHASE] = (uint64_t)phase;
    out[IR_GPU_WORD_VECTOR] =
        ir_gpu_is_mma(k) ? ir_gpu_mma_word(k, args, l) : ir_gpu_has_vectors(k) && is_aligned(k, args);
    out[IR_GPU_WORD_CHUNKS] = (uint64_t)l->chunks;
    out[IR_GPU_WORD_SCRATCH] = (uint64_t)(uintptr_t)args->scratch;
    for (int b = 0; b < k->n_buffers; b++) out[n++] = (uint64_t)(uintptr_t)args->buffer[b];
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].size == IR_SIZE_RUNTIME) out[n++] = (uint64_t)args->size[d];
    for (int b = 0; b < k->n_buffers; b++)
        for (int d = 0; d < k->n_dims; d++)
            if (k->buffer[b].stride[d] == IR_STRIDE_RUNTIME) out[n++] = (uint64_t)args->stride[b * k->n_dims + d];
    for (int s = 0; s < k->n_scalars; s++) out[n++] = args->scalar[s];
}

static int last_reduced(const ir_kernel *k) { return k->n_dims - 1 - ir_kernel_is_column(k); }

bool ir_gpu_is_warp_row(const ir_kernel *k) {
    int last = last_reduced(k);
    return (k->kind == IR_KERNEL_ROW || k->kind == IR_KERNEL_REDUCE) && !ir_kernel_is_column(k) &&
           k->dim[last].size != IR_SIZE_RUNTIME && (last == 0 || k->dim[last - 1].role == 'p');
}

bool ir_gpu_has_vectors(const ir_kernel *k) {
    if (k->kind != IR_KERNEL_MAP || k->n_dims == 0 || ir_kernel_is_scatter(k) || ir_kernel_is_transposed(k))
        return false;
    for (int b = 0; b < k->n_buffers; b++) {
        int64_t s = k->buffer[b].stride[k->n_dims - 1];
        if (s != 0 && s != 1) return false;
    }
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_LOAD && k->inst[i].variant) return false;
    return true;
}

static uint32_t at_most(int64_t v, int64_t most) { return (uint32_t)(v < 1 ? 1 : v > most ? most : v); }

static int64_t product(const ir_kernel *k, const int64_t *size, char role) {
    int64_t n = 1;
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].role == role) n = ir_times(n, size[d]);
    return n;
}

/* Threads along the columns: as many as there are, up to a block, in whole warps where the block has several rows. */
static void plan_map(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out) {
    int64_t columns = k->n_dims ? size[k->n_dims - 1] : 1, rows = 1, x = 1;
    for (int d = 0; d < k->n_dims - 1; d++) rows = ir_times(rows, size[d]);
    if (ir_kernel_is_scatter(k)) columns = 1; /* updates of a line come one after the other */
    while (x < IR_GPU_THREADS && x < columns) x *= 2;
    out->block[0][0] = (uint32_t)x;
    out->block[0][1] = (uint32_t)(IR_GPU_THREADS / x);
    out->grid[0][0] = at_most(ir_ceil_div(columns, x), GRID_X_MAX);
    out->grid[0][1] = at_most(ir_ceil_div(rows, IR_GPU_THREADS / x), GRID_Y_MAX);
}

/* A row is cut where there are too few rows for the device. The number of parts follows from the sizes alone. */
static void plan_reduce(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out) {
    int64_t rows = product(k, size, 'p'), partials = ir_kernel_partials(k, size);
    bool is_column = ir_kernel_is_column(k), is_warp = ir_gpu_is_warp_row(k);
    int64_t columns = is_column ? size[k->n_dims - 1] : 1, blocks_x = ir_ceil_div(columns, IR_GPU_THREADS), n_accs = 0;
    int64_t units = ir_times(rows, blocks_x);
    for (int i = 0; i < k->n_insts; i++) n_accs += ir_kernel_is_reduce_op(k->inst[i].op);
    if (k->kind == IR_KERNEL_REDUCE && !is_warp && units < BLOCKS_WANTED && partials > 1) {
        out->chunks = ir_ceil_div(BLOCKS_WANTED, units < 1 ? 1 : units);
        if (out->chunks > partials) out->chunks = partials;
    }
    if (out->chunks > 1) {
        out->n_phases = 2;
        out->scratch_bytes = ir_times(ir_times(ir_times(rows, columns), out->chunks), IR_PARTIAL_BYTES * n_accs);
    }
    int64_t teams = is_warp ? IR_GPU_THREADS / IR_GPU_WARP : 1;
    for (int p = 0; p < 2; p++) {
        int64_t of_phase = ir_times(rows, p == 0 ? out->chunks : 1);
        out->block[p][0] = IR_GPU_THREADS;
        out->grid[p][0] = at_most(is_column ? blocks_x : ir_ceil_div(of_phase, teams), GRID_X_MAX);
        out->grid[p][1] = at_most(is_column ? of_phase : 1, GRID_Y_MAX);
    }
}

static void plan_contract(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out) {
    out->block[0][0] = IR_GPU_THREADS;
    out->grid[0][0] = at_most(ir_ceil_div(size[k->n_dims - 2], IR_GPU_CONTRACT_TILE), GRID_X_MAX);
    out->grid[0][1] = at_most(ir_ceil_div(size[k->n_dims - 3], IR_GPU_CONTRACT_TILE), GRID_Y_MAX);
    out->grid[0][2] = at_most(product(k, size, 'b'), GRID_Y_MAX);
}

/* One thread a line; in column form they lie along x. */
static void plan_scan(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out) {
    int64_t rows = product(k, size, 'p');
    bool is_column = ir_kernel_is_column(k);
    out->block[0][0] = IR_GPU_WARP; /* lines are few */
    out->grid[0][0] = at_most(ir_ceil_div(is_column ? size[k->n_dims - 1] : rows, IR_GPU_WARP), GRID_X_MAX);
    out->grid[0][1] = at_most(is_column ? rows : 1, GRID_Y_MAX);
}

/* One thread an element of the output. */
static void plan_window(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out) {
    int64_t n = 1;
    for (int d = 0; d < k->n_dims && k->dim[d].role != 'k'; d++) n = ir_times(n, size[d]);
    out->block[0][0] = IR_GPU_THREADS;
    out->grid[0][0] = at_most(ir_ceil_div(n, IR_GPU_THREADS), GRID_X_MAX);
}

void ir_gpu_plan(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out) {
    *out = (ir_gpu_launch){.n_phases = 1, .chunks = 1, .grid = {{1, 1, 1}, {1, 1, 1}}, .block = {{1, 1, 1}, {1, 1, 1}}};
    if (k->kind == IR_KERNEL_MAP) plan_map(k, size, out);
    else if (k->kind == IR_KERNEL_SCAN) plan_scan(k, size, out);
    else if (ir_gpu_is_mma(k)) ir_gpu_mma_plan(k, size, out);
    else if (k->kind == IR_KERNEL_CONTRACT) plan_contract(k, size, out);
    else if (k->kind == IR_KERNEL_WINDOW) plan_window(k, size, out);
    else if (k->kind == IR_KERNEL_ATTENTION) ir_gpu_plan_attention(k, size, out);
    else plan_reduce(k, size, out);
}
