/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu.c: the parameter and the grid of a GPU kernel: arithmetic on its description and the sizes of a call. */
#include "base/small.h"
#include "ir/gpu_grid.h"
#include <string.h>

enum {
    /* The largest devices have some 132 multiprocessors of 2048 threads. */
    BLOCKS_WANTED = 1024, /* to fill one */
    BLOCKS_ENOUGH = 264   /* so that a second launch is not worth its time */
};

bool ir_gpu_next_word(const ir_kernel *k, ir_gpu_word *w) {
    const int n[] = {[IR_GPU_BUFFER] = k->n_buffers,
                     [IR_GPU_SIZE] = k->n_dims,
                     [IR_GPU_STRIDE] = k->n_buffers * k->n_dims,
                     [IR_GPU_SCALAR] = k->n_scalars};
    for (; w->is < IR_GPU_NO_WORD; w->is++, w->next = 0)
        while (w->next < n[w->is]) {
            const int i = w->next++;
            w->number = w->is == IR_GPU_STRIDE ? i / k->n_dims : i;
            w->dim = w->is == IR_GPU_STRIDE ? i % k->n_dims : 0;
            if (w->is == IR_GPU_SIZE && k->dim[i].size != IR_SIZE_RUNTIME) continue;
            if (w->is == IR_GPU_STRIDE && k->buffer[w->number].stride[w->dim] != IR_STRIDE_RUNTIME) continue;
            w->at = w->at ? w->at + 1 : IR_GPU_WORDS;
            return true;
        }
    return false;
}

int ir_gpu_words(const ir_kernel *k) {
    int n = IR_GPU_WORDS;
    for (ir_gpu_word w = {0}; ir_gpu_next_word(k, &w);) n++;
    return n;
}

/* Does every row of every contiguous buffer begin at a multiple of `lanes` elements, and end at one? */
static bool is_aligned(const ir_kernel *k, const ir_kernel_args *args, int lanes) {
    int last = k->n_dims - 1;
    if (lanes == 1 || args->size[last] % lanes != 0) return false;
    for (int b = 0; b < k->n_buffers; b++) {
        const int64_t *stride = args->stride + b * k->n_dims;
        int64_t bytes = (int64_t)lanes * ir_dtypes[k->buffer[b].dtype].bytes;
        if (k->buffer[b].stride[last] != 1) continue;
        if ((uintptr_t)args->buffer[b] % (uintptr_t)bytes != 0) return false;
        for (int d = 0; d < last; d++)
            if (stride[d] % lanes != 0) return false;
    }
    return true;
}

static bool has_tiles(const ir_kernel *k) { return k->kind == IR_KERNEL_CONTRACT || k->kind == IR_KERNEL_WINDOW; }

void ir_gpu_param(const ir_kernel *k, const ir_kernel_args *args, const ir_gpu_launch *l, int phase, uint64_t *out) {
    out[IR_GPU_WORD_PHASE] = (uint64_t)phase;
    out[IR_GPU_WORD_COUNTERS] = 0; /* what has some sets it */
    out[IR_GPU_WORD_HOW] = ir_gpu_is_mma(k) ? ir_gpu_mma_word(k, args, l)
                           : has_tiles(k)   ? (uint64_t)l->tile
                                            : is_aligned(k, args, ir_gpu_lanes(k));
    out[IR_GPU_WORD_CHUNKS] = (uint64_t)l->chunks;
    out[IR_GPU_WORD_SCRATCH] = (uint64_t)(uintptr_t)args->scratch;
    for (ir_gpu_word w = {0}; ir_gpu_next_word(k, &w);) switch (w.is) {
        case IR_GPU_BUFFER: out[w.at] = (uint64_t)(uintptr_t)args->buffer[w.number]; break;
        case IR_GPU_SIZE: out[w.at] = (uint64_t)args->size[w.number]; break;
        case IR_GPU_STRIDE: out[w.at] = (uint64_t)args->stride[w.number * k->n_dims + w.dim]; break;
        default: out[w.at] = args->scalar[w.number];
        }
}

int ir_gpu_team(int64_t n) {
    int t = 1;
    int64_t each = n > IR_GPU_VECTOR * IR_GPU_WARP ? IR_GPU_VECTOR * IR_GPU_ROW_STEPS : IR_GPU_VECTOR;
    while (t < IR_GPU_THREADS && t * each < n) t *= 2;
    return n > IR_GPU_VECTOR * IR_GPU_WARP && t < IR_GPU_WARP ? IR_GPU_WARP : t;
}

/* Does what a load adds to its address, or its guard, vary along the last dim? Else a gather's rows (of an embedding)
 * lie side by side. */
static bool has_access_along_last(const ir_kernel *k) {
    for (int i = 0; i < k->n_insts; i++)
        for (int j = 0; k->inst[i].op == IR_K_LOAD && j < k->inst[i].n_in; j++)
            if (ir_kernel_varies(k, k->inst[i].in[j]) >> (k->n_dims - 1) & 1) return true;
    return false;
}

/* Vectors of many bytes are many times the program: that has a limit. */
static int map_lanes(const ir_kernel *k) {
    enum { MOST_INSTS = 512 };
    int bytes = 1, n;
    if (k->n_dims == 0 || ir_kernel_is_scatter(k) || ir_kernel_is_transposed(k) || has_access_along_last(k)) return 1;
    for (int b = 0; b < k->n_buffers; b++) {
        int64_t s = k->buffer[b].stride[k->n_dims - 1];
        if (s != 0 && s != 1) return 1;
        if (s == 1 && ir_dtypes[k->buffer[b].dtype].bytes > bytes) bytes = ir_dtypes[k->buffer[b].dtype].bytes;
    }
    for (n = IR_GPU_VECTOR_BYTES / bytes; n > 4 && n * k->n_insts > MOST_INSTS;) n /= 2;
    return n;
}

int ir_gpu_lanes(const ir_kernel *k) {
    bool is_contiguous = false;
    if (k->kind == IR_KERNEL_MAP) return map_lanes(k);
    if ((k->kind != IR_KERNEL_REDUCE && k->kind != IR_KERNEL_ROW) || ir_kernel_is_column(k)) return 1;
    for (int b = 0; b < k->n_buffers; b++) is_contiguous |= k->buffer[b].stride[k->n_dims - 1] == 1;
    int64_t n = k->dim[k->n_dims - 1].size;
    return is_contiguous && (n == IR_SIZE_RUNTIME || n % IR_GPU_VECTOR == 0) ? IR_GPU_VECTOR : 1;
}

static int64_t product(const ir_kernel *k, const int64_t *size, char role) {
    int64_t n = 1;
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].role == role) n = ir_times(n, size[d]);
    return n;
}

/* Threads along the columns: as many as there are, up to a block, in whole warps where the block has several rows. */
static void plan_map(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out) {
    int64_t columns = k->n_dims ? size[k->n_dims - 1] : 1, rows = 1, x = 1;
    int lanes = ir_gpu_lanes(k);
    for (int d = 0; d < k->n_dims - 1; d++) rows = ir_times(rows, size[d]);
    if (ir_kernel_is_scatter(k)) columns = 1; /* updates of a line come one after the other */
    if (columns % lanes == 0) columns /= lanes;
    while (x < IR_GPU_THREADS && x < columns) x *= 2;
    out->block[0][0] = (uint32_t)x;
    out->block[0][1] = (uint32_t)(IR_GPU_THREADS / x);
    out->grid[0][0] = grid_at_most(ir_ceil_div(columns, x), GRID_X_MAX);
    out->grid[0][1] = grid_at_most(ir_ceil_div(rows, IR_GPU_THREADS / x), GRID_Y_MAX);
}

/* One block a tile. */
static void plan_transposed(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out) {
    int64_t rows = ir_ceil_div(size[k->n_dims - 2], IR_GPU_TILE);
    for (int d = 0; d < k->n_dims - 2; d++) rows = ir_times(rows, size[d]);
    out->block[0][0] = IR_GPU_TILE;
    out->block[0][1] = IR_GPU_THREADS / IR_GPU_TILE;
    out->grid[0][0] = grid_at_most(ir_ceil_div(size[k->n_dims - 1], IR_GPU_TILE), GRID_X_MAX);
    out->grid[0][1] = grid_at_most(rows, GRID_Y_MAX);
}

static int count_reductions(const ir_kernel *k) {
    int n = 0;
    for (int i = 0; i < k->n_insts; i++) n += ir_kernel_is_reduce_op(k->inst[i].op);
    return n;
}

static int64_t between(int64_t v, int64_t least, int64_t most) { return v < least ? least : v > most ? most : v; }

/* A row is cut into chunks of so many elements that each thread has some, and where there are too few rows for the
 * device, each chunk has a team, those of a block in one row. Only the chunks have a say in bits, not who takes
 * them. */
static void plan_rows(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out) {
    enum { MOST_CHUNKS = 1024 };
    int64_t rows = product(k, size, 'p'), partials = ir_kernel_partials(k, size), n = product(k, size, 'r');
    int64_t team = ir_gpu_team(size[k->n_dims - 1]), teams = IR_GPU_THREADS / team;
    out->chunks = between(n / (team * IR_GPU_VECTOR * IR_GPU_ROW_STEPS), 1, between(partials, 1, MOST_CHUNKS));
    int64_t blocks = ir_ceil_div(rows, teams);
    if (k->kind == IR_KERNEL_REDUCE && out->chunks > 1 && blocks < BLOCKS_ENOUGH && rows <= IR_GPU_COUNTERS) {
        blocks = ir_times(rows, ir_ceil_div(out->chunks, teams));
        out->n_counters = (int)rows;
        out->scratch_bytes = ir_times(ir_times(rows, out->chunks), IR_PARTIAL_BYTES * count_reductions(k));
    }
    out->block[0][0] = (uint32_t)team;
    out->block[0][1] = (uint32_t)teams;
    out->grid[0][0] = grid_at_most(blocks, GRID_X_MAX);
}

static void plan_columns(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out) {
    int64_t rows = product(k, size, 'p'), partials = ir_kernel_partials(k, size), columns = size[k->n_dims - 1];
    int64_t blocks_x = ir_ceil_div(columns, IR_GPU_WARP), units = ir_times(rows, blocks_x);
    if (units < BLOCKS_WANTED && partials > 1)
        out->chunks = between(BLOCKS_WANTED / (units < 1 ? 1 : units), 1, partials);
    if (out->chunks > 1) {
        out->n_counters = (int)units;
        out->scratch_bytes =
            ir_times(ir_times(ir_times(rows, columns), out->chunks), IR_PARTIAL_BYTES * count_reductions(k));
    }
    out->block[0][0] = IR_GPU_WARP;
    out->block[0][1] = IR_GPU_COLUMN_ROWS;
    out->grid[0][0] = grid_at_most(blocks_x, GRID_X_MAX);
    out->grid[0][1] = grid_at_most(ir_times(rows, out->chunks), GRID_Y_MAX);
}

/* One thread a line; in column form they lie along x. */
static void plan_scan(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out) {
    int64_t rows = product(k, size, 'p');
    bool is_column = ir_kernel_is_column(k);
    out->block[0][0] = IR_GPU_WARP; /* lines are few */
    out->grid[0][0] = grid_at_most(ir_ceil_div(is_column ? size[k->n_dims - 1] : rows, IR_GPU_WARP), GRID_X_MAX);
    out->grid[0][1] = grid_at_most(is_column ? rows : 1, GRID_Y_MAX);
}

/* Few channels of a group share what is read of the operand; 32 bits number the columns of a tile. */
bool ir_gpu_window_is_direct(const ir_kernel *k, const int64_t *size) {
    ir_gpu_space s;
    ir_gpu_space_of(k, &s);
    return ir_gpu_window_has_pads(k) || ir_gpu_space_size(&s, size, IR_GPU_ROWS) <= IR_GPU_WINDOW_FEW ||
           ir_gpu_space_size(&s, size, IR_GPU_COLUMNS) > INT32_MAX ||
           ir_gpu_space_size(&s, size, IR_GPU_PRODUCTS) > INT32_MAX;
}

/* One thread an element of the output. */
static void plan_direct(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out) {
    int64_t n = 1;
    for (int d = 0; d < k->n_dims && k->dim[d].role != 'k'; d++) n = ir_times(n, size[d]);
    out->tile = IR_GPU_WINDOW_DIRECT;
    out->block[0][0] = IR_GPU_THREADS;
    out->grid[0][0] = grid_at_most(ir_ceil_div(n, IR_GPU_THREADS), GRID_X_MAX);
}

void ir_gpu_plan(const ir_kernel *k, const int64_t *size, ir_gpu_launch *out) {
    *out = (ir_gpu_launch){.n_phases = 1, .chunks = 1, .grid = {{1, 1, 1}, {1, 1, 1}}, .block = {{1, 1, 1}, {1, 1, 1}}};
    if (k->kind == IR_KERNEL_MAP) (ir_kernel_is_transposed(k) ? plan_transposed : plan_map)(k, size, out);
    else if (k->kind == IR_KERNEL_SCAN) plan_scan(k, size, out);
    else if (k->kind == IR_KERNEL_WINDOW && ir_gpu_window_is_direct(k, size)) plan_direct(k, size, out);
    else if (ir_gpu_is_mma(k)) ir_gpu_plan_mma(k, size, out);
    else if (has_tiles(k)) ir_gpu_plan_fma(k, size, out);
    else if (k->kind == IR_KERNEL_ATTENTION) ir_gpu_plan_attention(k, size, out);
    else (ir_kernel_is_column(k) ? plan_columns : plan_rows)(k, size, out);
}

bool ir_gpu_has_tile(const ir_kernel *k, int tile) {
    if (!ir_level_is_gpu(k->level) || !has_tiles(k)) return false;
    if (ir_gpu_is_mma(k)) return tile >= 0 && tile < IR_GPU_MMA_TILES && ir_gpu_mma_has_tile(k, tile);
    return tile >= 0 && tile < IR_GPU_FMA_TILES && ir_gpu_fma_has(k, tile);
}

int ir_gpu_only_tile(const ir_kernel *k, const int64_t *size) {
    ir_gpu_launch l;
    if (!ir_level_is_gpu(k->level) || !has_tiles(k)) return 0;
    ir_gpu_plan(k, size, &l);
    return l.tile == IR_GPU_WINDOW_DIRECT ? 0 : l.tile + 1;
}

/* ---- many sets of arguments ---- */
bool ir_gpu_can_each(const ir_kernel *k) {
    return ir_level_is_gpu(k->level) &&
           (k->kind == IR_KERNEL_MAP || k->kind == IR_KERNEL_REDUCE || k->kind == IR_KERNEL_ROW);
}

int64_t ir_gpu_each_blocks(const ir_gpu_launch *l) { return (int64_t)l->grid[0][0] * l->grid[0][1]; }

int ir_gpu_each_words(const ir_kernel *k) { return ir_gpu_words(k) + IR_GPU_EACH_WORDS; }

void ir_gpu_each_set(const ir_kernel *k, const ir_kernel_args *args, const ir_gpu_launch *l, int64_t first,
                     uint64_t *out) {
    uint64_t *place = out + ir_gpu_words(k);
    ir_gpu_param(k, args, l, 0, out);
    out[IR_GPU_WORD_SCRATCH] =
        0; /* one launch without counters needs none; so the words say nothing that changes from call to call */
    place[IR_GPU_EACH_FIRST] = (uint64_t)first;
    place[IR_GPU_EACH_GRID_X] = l->grid[0][0];
    place[IR_GPU_EACH_GRID_Y] = l->grid[0][1];
    place[IR_GPU_EACH_BLOCK_X] = (uint64_t)__builtin_ctz(l->block[0][0]);
}
