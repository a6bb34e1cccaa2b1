/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_mma.c: contractions on tensor cores: which kernels they are, which tile and how many parts along k a call of
 * given sizes has, and what its addresses allow. All follows from the description and the sizes (and addresses), so
 * that the order of a sum is the same on every device, fused or not. */
#include "base/small.h"
#include "ir/gpu_grid.h"

/* Large results: 64 x 64 elements a warp, so that a byte of shared memory serves 32 products, and two blocks fit a
 * multiprocessor. Few elements: more, smaller blocks. A row or column of tiles that is nearly empty: as little of it as
 * one instruction has. With wgmma a warp makes 16 rows of all columns: tiles as wide as its registers allow. What is
 * gathered waits in registers while the piece before is multiplied: more warps, of fewer elements each. */
const ir_gpu_mma_tile ir_gpu_mma_tiles[IR_GPU_MMA_TILES] = {
    {128, 128, 64, 2, 2, 4},  {64, 64, 128, 2, 2, 3},   {16, 128, 128, 1, 4, 4}, {128, 16, 128, 4, 1, 4},
    {128, 128, 128, 8, 1, 6}, {128, 256, 128, 8, 1, 4}, {128, 128, 64, 2, 4, 4},
};
enum {
    LARGE,
    SMALL,
    FLAT,
    TALL,
    GROUP_LARGE,
    GROUP_WIDE,
    GATHERED,
    BLOCKS_ENOUGH = 120, /* nearly one for each multiprocessor of the largest devices */
    BLOCKS_WANTED = 256,
    PART_MIN = 512, /* bytes along k of a part */
    PARTS_MAX = 64,
};

bool ir_gpu_mma_is_wgmma(int tile) { return tile == GROUP_LARGE || tile == GROUP_WIDE; }

bool ir_gpu_mma_has_roles(const ir_kernel *k, int tile) {
    return ir_gpu_mma_is_wgmma(tile) && ir_gpu_mma_buffer(k, 0) >= 0 && ir_gpu_mma_buffer(k, 1) >= 0;
}

static int warps_of(int tile) { return ir_gpu_mma_tiles[tile].warps_m * ir_gpu_mma_tiles[tile].warps_n; }

int ir_gpu_mma_threads(const ir_kernel *k, int tile) {
    return warps_of(tile) * IR_GPU_WARP + (ir_gpu_mma_has_roles(k, tile) ? IR_GPU_MMA_COPIERS : 0);
}

int ir_gpu_mma_shared(const ir_kernel *k, int tile) {
    const ir_gpu_mma_tile *t = &ir_gpu_mma_tiles[tile];
    int operands = (t->rows + t->columns) * t->k_bytes * t->stages, result = t->rows * t->columns * 4;
    if (ir_gpu_mma_has_roles(k, tile))
        return operands + IR_GPU_MMA_OUT * warps_of(tile) + 2 * IR_GPU_MMA_BARRIER * t->stages;
    if (k->kind == IR_KERNEL_WINDOW) operands += IR_GPU_MMA_TABLE;
    return operands > result ? operands : result;
}

bool ir_gpu_is_mma(const ir_kernel *k) {
    const bool is_window = k->kind == IR_KERNEL_WINDOW;
    const ir_kinst *mm = is_window || k->kind == IR_KERNEL_CONTRACT ? ir_kernel_matmul(k) : NULL;
    if (!mm || !ir_levels[k->level].cores || ir_kernel_has_rows(k)) return false;
    if (is_window && ir_gpu_window_has_pads(k)) return false;
    for (int d = 0; d < k->n_dims && !is_window; d++)
        if ((k->dim[d].role == 'b') != (d < k->n_dims - 3)) return false;
    ir_dtype a = k->inst[mm->in[0]].dtype, b = k->inst[mm->in[1]].dtype, acc = ir_kernel_contract_acc(k);
    if (ir_is_half(a)) return a == b && acc == FUSOR_F32;
    if (a == FUSOR_F32) return k->fast_math && b == FUSOR_F32 && acc == FUSOR_F32;
    return acc == FUSOR_I32 && ir_dtypes[a].bytes == 1 && ir_dtypes[b].bytes == 1;
}

bool ir_gpu_mma_has_tile(const ir_kernel *k, int tile) {
    if (k->only_tile && tile != k->only_tile - 1) return false;
    if (tile != LARGE && tile != GATHERED && !ir_gpu_mma_is_wgmma(tile)) return true;
    bool has_wgmma =
        ir_levels[k->level].cores == IR_CORES_WGMMA && ir_is_half(k->inst[ir_kernel_matmul(k)->in[0]].dtype);
    if (tile == LARGE || tile == GATHERED) return !has_wgmma && (tile == GATHERED) == (k->kind == IR_KERNEL_WINDOW);
    return has_wgmma;
}

/* The dim of an operand's rows; of a convolution's operand 1, whose columns are of several dims, the innermost. */
static int row_dim(const ir_kernel *k, int operand) {
    ir_gpu_space s;
    ir_gpu_space_of(k, &s);
    const ir_gpu_axis axis = operand ? IR_GPU_COLUMNS : IR_GPU_ROWS;
    return s.dim[axis][s.n[axis] - 1];
}

bool ir_gpu_mma_is_gathered(const ir_kernel *k, int operand) { return k->kind == IR_KERNEL_WINDOW && operand == 1; }

int ir_gpu_mma_buffer(const ir_kernel *k, int operand) {
    if (ir_gpu_mma_is_gathered(k, operand)) return -1;
    const ir_kinst *in = &k->inst[ir_kernel_matmul(k)->in[operand]];
    if (in->op != IR_K_LOAD || in->variant) return -1;
    const int64_t *stride = k->buffer[in->index].stride;
    bool is_byte = ir_dtypes[in->dtype].bytes == 1;
    return stride[k->n_dims - 1] == 1 || (!is_byte && stride[row_dim(k, operand)] == 1) ? in->index : -1;
}

static void find_loads(const ir_kernel *k, int inst, bool seen[IR_KERNEL_MAX_INSTS]) {
    seen[inst] = true;
    for (int j = 0; j < k->inst[inst].n_in; j++)
        if (!seen[k->inst[inst].in[j]]) find_loads(k, k->inst[inst].in[j], seen);
}

bool ir_gpu_mma_is_turned(const ir_kernel *k, int operand) {
    bool seen[IR_KERNEL_MAX_INSTS] = {false}, is_turned = false;
    int in = ir_kernel_matmul(k)->in[operand];
    /* nothing transposes bytes */
    if (ir_dtypes[k->inst[in].dtype].bytes == 1 || ir_gpu_mma_is_gathered(k, operand)) return false;
    find_loads(k, in, seen);
    for (int i = 0; i < k->n_insts; i++) {
        if (!seen[i] || k->inst[i].op != IR_K_LOAD) continue;
        const int64_t *stride = k->buffer[k->inst[i].index].stride;
        if (stride[k->n_dims - 1] == 1) return false;
        if (stride[row_dim(k, operand)] == 1) is_turned = true;
    }
    return is_turned;
}

bool ir_gpu_mma_has_vectors(const ir_kernel *k, int operand) {
    bool seen[IR_KERNEL_MAX_INSTS] = {false};
    const int in = ir_kernel_matmul(k)->in[operand],
              along = ir_gpu_mma_is_turned(k, operand) ? row_dim(k, operand) : k->n_dims - 1;
    if (ir_dtypes[k->inst[in].dtype].bytes == 1 || ir_gpu_mma_buffer(k, operand) >= 0) return false;
    if (ir_gpu_mma_is_gathered(k, operand)) return false;
    find_loads(k, in, seen);
    for (int i = 0; i < k->n_insts; i++) {
        if (!seen[i] || k->inst[i].op != IR_K_LOAD) continue;
        const int64_t stride = k->buffer[k->inst[i].index].stride[along];
        if (k->inst[i].variant || (stride != 0 && stride != 1)) return false;
    }
    return true;
}

/* Tiles of a batch. */
static int64_t tiles_of(const grid_matrices *g, int tile) {
    const ir_gpu_mma_tile *t = &ir_gpu_mma_tiles[tile];
    return ir_times(ir_ceil_div(g->m, t->rows), ir_ceil_div(g->n, t->columns));
}

static int choose_tile(const ir_kernel *k, const grid_matrices *g) {
    if (g->m <= ir_gpu_mma_tiles[FLAT].rows) return FLAT;
    if (g->n <= ir_gpu_mma_tiles[TALL].columns) return TALL;
    static const int large[] = {GROUP_WIDE, GROUP_LARGE, LARGE, GATHERED};
    for (int i = 0; i < 4; i++)
        if (ir_gpu_mma_has_tile(k, large[i]) && ir_times(g->batches, tiles_of(g, large[i])) >= BLOCKS_ENOUGH)
            return large[i];
    return SMALL;
}

void ir_gpu_plan_mma(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out) {
    const grid_matrices g = grid_matrices_of(k, size);
    ir_gpu_plan_mma_tile(k, size, k->only_tile ? k->only_tile - 1 : choose_tile(k, &g), out);
}

void ir_gpu_plan_mma_tile(const ir_kernel *k, const int64_t *size, int tile, ir_gpu_launch *out) {
    const grid_matrices g = grid_matrices_of(k, size);
    const int64_t tiles = tiles_of(&g, tile), blocks = ir_times(g.batches, tiles);
    const int64_t k_bytes = ir_times(g.k, ir_dtypes[k->inst[ir_kernel_matmul(k)->in[0]].dtype].bytes);
    if (!ir_gpu_mma_has_roles(k, tile) && blocks > 0 && blocks < BLOCKS_ENOUGH && k_bytes >= 2 * PART_MIN) {
        out->chunks = BLOCKS_WANTED / blocks;
        if (out->chunks > k_bytes / PART_MIN) out->chunks = k_bytes / PART_MIN;
        if (out->chunks > PARTS_MAX) out->chunks = PARTS_MAX;
        /* as the kernel rounds parts up, the last ones might be empty */
        int64_t part = ir_round_up(ir_ceil_div(k_bytes, out->chunks), IR_GPU_MMA_SPLIT);
        out->chunks = ir_ceil_div(k_bytes, part);
    }
    const uint32_t threads = (uint32_t)ir_gpu_mma_threads(k, tile);
    out->tile = tile;
    out->block[0][0] = threads;
    out->shared_bytes[0] = (uint32_t)ir_gpu_mma_shared(k, tile);
    out->goes_on = ir_gpu_mma_has_roles(k, tile);
    out->grid[0][0] = grid_at_most(ir_times(out->goes_on ? blocks : tiles, out->chunks), INT32_MAX);
    out->grid[0][1] = out->goes_on ? 1 : grid_at_most(g.batches, GRID_Y_MAX);
    if (out->chunks == 1) return;
    int64_t elements = ir_times(ir_times(g.batches, g.m), ir_round_up(g.n, IR_GPU_VECTOR));
    out->n_phases = 2;
    out->scratch_bytes = ir_times(ir_times(elements, 4), out->chunks);
    out->block[1][0] = threads;
    out->grid[1][0] = grid_at_most(ir_ceil_div(elements, IR_GPU_VECTOR * threads), INT32_MAX);
}

/* Do the first element and the steps along all dims but `along` fall on multiples of `bytes`? A convolution's weights
 * have their products side by side, whatever dims these are of. */
static bool is_aligned(const ir_kernel *k, const ir_kernel_args *args, int buffer, int along, int64_t bytes) {
    if ((uintptr_t)args->buffer[buffer] % (uint64_t)bytes != 0) return false;
    for (int d = 0; d < k->n_dims; d++)
        if (d != along && args->size[d] > 1 && !(k->kind == IR_KERNEL_WINDOW && k->dim[d].role == 'k') &&
            args->stride[buffer * k->n_dims + d] * ir_dtypes[k->buffer[buffer].dtype].bytes % bytes != 0)
            return false;
    return true;
}

/* 16 bytes of the operand at a time: copied, or computed. */
static bool can_take_vectors(const ir_kernel *k, const ir_kernel_args *args, int operand) {
    if (ir_gpu_mma_is_gathered(k, operand)) return true;
    const int b = ir_gpu_mma_buffer(k, operand), kk = k->n_dims - 1, row = row_dim(k, operand);
    if (b >= 0) {
        /* A copy of nothing, behind the last row or product, has an address too: these strides count whatever the
         * sizes. */
        const int64_t *stride = args->stride + b * k->n_dims, bytes = ir_dtypes[k->buffer[b].dtype].bytes;
        const int copied = k->buffer[b].stride[kk] == 1 ? kk : row, other = copied == kk ? row : kk;
        return stride[other] * bytes % 16 == 0 && is_aligned(k, args, b, copied, 16);
    }
    if (!ir_gpu_mma_has_vectors(k, operand)) return false;
    const int along = ir_gpu_mma_is_turned(k, operand) ? row : kk,
              lanes = 16 / ir_dtypes[k->inst[ir_kernel_matmul(k)->in[operand]].dtype].bytes;
    if (args->size[along] % lanes != 0 || args->size[kk] == 0) return false; /* outside, the last ones are taken */
    bool seen[IR_KERNEL_MAX_INSTS] = {false};
    find_loads(k, ir_kernel_matmul(k)->in[operand], seen);
    for (int i = 0; i < k->n_insts; i++) {
        const int of = k->inst[i].index;
        if (seen[i] && k->inst[i].op == IR_K_LOAD && k->buffer[of].stride[along] == 1 &&
            !is_aligned(k, args, of, along, lanes * ir_dtypes[k->buffer[of].dtype].bytes))
            return false;
    }
    return true;
}

uint64_t ir_gpu_mma_word(const ir_kernel *k, const ir_kernel_args *args, const ir_gpu_launch *l) {
    uint64_t out = (uint64_t)l->tile << IR_GPU_MMA_TILE;
    const int n = row_dim(k, 1), kk = k->n_dims - 1;
    bool can_store = args->size[n] % IR_GPU_VECTOR == 0, is_of_operand[IR_KERNEL_MAX_INSTS] = {false};
    for (int operand = 0; operand < 2; operand++) {
        if (can_take_vectors(k, args, operand)) out |= (uint64_t)IR_GPU_MMA_COPY << operand;
        find_loads(k, ir_kernel_matmul(k)->in[operand], is_of_operand);
    }
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_LOAD && k->inst[i].variant && !is_of_operand[i]) can_store = false;
    for (int b = 0; b < k->n_buffers; b++)
        if (k->buffer[b].stride[kk] == 0 && k->buffer[b].stride[n] == 1)
            can_store = can_store && is_aligned(k, args, b, n, IR_GPU_VECTOR * ir_dtypes[k->buffer[b].dtype].bytes);
    return can_store ? out | IR_GPU_MMA_STORE : out;
}
