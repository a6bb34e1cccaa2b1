/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* tune.c: tile sizes by cache sizes and amount of work: of all kinds of kernels but contractions (tune_contract.c) and
 * convolutions (tune_window.c), and the work that is worth a team. */
#include "base/small.h"
#include "ir/arith.h"
#include "rt/cpuinfo.h"
#include "rt/threads.h"
#include "rt/tune_internal.h"

/* A tile is large enough that taking it (some 50 ns with a contended counter) does not show, and small enough that a
 * worker which lost its core delays the end by little. */
enum {
    TURN_ROWS = 256,
    TURN_COLUMNS = 64,
    TILE_MIN = 16 << 10,
    TILE_MAX = 64 << 10,
    SCATTER_STEP = 16, /* columns of a tile whose updates go one by one: a line of the cache */
    COLUMN_STEP = 64,
    ROW_COLUMNS = 16 /* of a chunk, at least: a line of the cache */
};
/* Work that is not worth a team, in element visits of a cheap kernel (3 accesses each): a fork and join costs 0.7
 * microseconds (RT_FORK_LEAST_NS) while the team spins and 13 to 25 when it sleeps; 16 Ki elements of an addition take
 * 2. And products, for contractions. Where a fork costs more, so much more work. (1.2 microseconds, one and two
 * threads: 64 cubed 3.7 and 4.2, 96 cubed 12 and 9, additions of 16 Ki elements 2.4 and 2.4, 24 Ki 3.3 and 3.9, 32 Ki
 * 4.2 and 4.4, 64 Ki 8.4 and 6.3.) */
enum { SERIAL_WORK = 48 << 10, SERIAL_PRODUCTS = 64 * 64 * 64 };

int64_t tune_product(const ir_kernel *k, const int64_t *size, const char *roles) {
    int64_t n = 1;
    for (int d = 0; d < k->n_dims; d++)
        if (strchr(roles, k->dim[d].role)) n = ir_times(n, size[d]);
    return n;
}

/* Of the space; what a window kernel's tail has of it (q, w) is made of y and n. */
static int64_t all(const ir_kernel *k, const int64_t *size) {
    int64_t n = 1;
    for (int d = 0; d < k->n_dims - ir_kernel_tail_dims(k); d++) n = ir_times(n, size[d]);
    return n;
}

int64_t tune_grain(int64_t units, int64_t elements_per_unit, int n_threads) {
    elements_per_unit = ir_at_least_one(elements_per_unit);
    int64_t fair = ir_ceil_div(units, (int64_t)n_threads * TILES_PER_THREAD);
    int64_t low = ir_ceil_div(TILE_MIN, elements_per_unit), high = ir_at_least_one(TILE_MAX / elements_per_unit);
    if (low > high) low = high;
    return ir_at_least_one(ir_clamp(fair, low, high));
}

static void tune_map(const ir_kernel *k, const int64_t *size, int n_threads, int64_t *tune) {
    int64_t columns = k->n_dims ? size[k->n_dims - 1] : 1, total = all(k, size);
    int64_t rows = columns > 0 ? total / columns : 0;
    /* Alone, nothing is gained by stopping: streams of loads that run on are prefetched best. */
    int64_t tile = n_threads == 1
                       ? ir_at_least_one(total)
                       : ir_clamp(ir_ceil_div(total, (int64_t)n_threads * TILES_PER_THREAD), TILE_MIN, TILE_MAX);
    if (ir_kernel_scatters_columns(k)) { /* all rows of a line, in order; but lines of columns are independent */
        const int64_t line = ir_at_least_one(size[k->n_dims - 2]),
                      step = ir_kernel_scatters_rows(k) ? COLUMN_STEP : SCATTER_STEP,
                      most = ir_round_up(ir_at_least_one(columns), step);
        tune[IR_TUNE_MAP_ROWS] =
            ir_times(line, ir_clamp(tile / ir_at_least_one(ir_times(line, columns)), 1, rows / line + 1));
        tune[IR_TUNE_MAP_COLUMNS] = ir_clamp(ir_round_up(tile / line, step), step, most);
    } else if (ir_kernel_is_transposed(k)) { /* some rows of pages read, some written: both stay in the TLB and L2 */
        tune[IR_TUNE_MAP_ROWS] = TURN_ROWS;
        tune[IR_TUNE_MAP_COLUMNS] = TURN_COLUMNS;
    } else if (columns > tile && !ir_kernel_is_scatter(k)) { /* a line's updates apply in order */
        tune[IR_TUNE_MAP_ROWS] = 1;
        tune[IR_TUNE_MAP_COLUMNS] = ir_round_up(tile, COLUMN_STEP);
    } else {
        tune[IR_TUNE_MAP_ROWS] = ir_clamp(tile / ir_at_least_one(columns), 1, ir_at_least_one(rows));
        tune[IR_TUNE_MAP_COLUMNS] = ir_at_least_one(columns);
    }
    /* Past the last cache, a plain store first reads the line it is about to overwrite. Within it, streaming throws
     * data out that the next kernel wants. */
    int64_t bytes = 0;
    for (int b = 0; b < k->n_buffers; b++) {
        int64_t n = 1;
        for (int d = 0; d < k->n_dims; d++)
            if (k->buffer[b].stride[d] != 0) n = ir_times(n, size[d]);
        bytes += ir_times(n, ir_dtypes[k->buffer[b].dtype].bytes);
    }
    tune[IR_TUNE_MAP_STREAM] = bytes > rt_host_caches()->l3_bytes;
}

/* Of all reductions, a column: what a sweep along the rows has in memory. */
static int64_t accumulator_bytes(const ir_kernel *k) {
    int64_t bytes = 0;
    for (int i = 0; i < k->n_insts; i++)
        if (ir_kernel_is_reduce_op(k->inst[i].op)) bytes += ir_dtypes[k->inst[k->inst[i].in[0]].dtype].bytes;
    return ir_at_least_one(bytes);
}

static void tune_reduce(const ir_kernel *k, const int64_t *size, int n_threads, int64_t *tune) {
    int64_t rows = tune_product(k, size, "p"), partials = ir_kernel_partials(k, size);
    int64_t last_r = 1;
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].role == 'r') last_r = size[d];
    int64_t chunks = 1, columns = 1;
    int64_t unit = last_r < IR_REDUCE_BLOCK ? last_r : IR_REDUCE_BLOCK;
    tune[IR_TUNE_REDUCE_COLUMNS] = COLUMN_STEP;
    if (ir_kernel_is_column(k)) {
        /* Runs of contiguous loads as long as the accumulators leave half of L1 to them; narrower only where there
         * would be too few units for the team. */
        int64_t v = ir_at_least_one(size[k->n_dims - 1]);
        const int64_t most = rt_host_caches()->l1d_bytes / 2 / accumulator_bytes(k) / COLUMN_STEP * COLUMN_STEP;
        columns = ir_clamp(ir_round_up(v, COLUMN_STEP), COLUMN_STEP, most < COLUMN_STEP ? COLUMN_STEP : most);
        while (columns > 2 * COLUMN_STEP &&
               ir_times(ir_times(rows, partials), ir_ceil_div(v, columns)) < (int64_t)n_threads * TILES_PER_THREAD)
            columns = ir_round_up(columns / 2, COLUMN_STEP);
        chunks = ir_ceil_div(v, columns);
        tune[IR_TUNE_REDUCE_COLUMNS] = columns;
        unit = ir_times(last_r < IR_COLUMN_BLOCK ? last_r : IR_COLUMN_BLOCK, columns);
    }
    tune[IR_TUNE_REDUCE_GRAIN] = tune_grain(ir_times(ir_times(rows, partials), chunks), unit, n_threads);
    tune[IR_TUNE_REDUCE_FINISH_GRAIN] =
        tune_grain(ir_times(rows, chunks), ir_times(ir_at_least_one(partials), columns), n_threads);
}

/* A line is split where there are fewer lines than threads: each block is scanned twice then, so two threads would gain
 * nothing (1e6 elements on two threads: 592 microseconds split, 585 by one thread). */
static void tune_scan(const ir_kernel *k, const int64_t *size, int n_threads, int64_t *tune) {
    int64_t lines = tune_product(k, size, "p"), length = tune_product(k, size, "r"), units = lines, each = length;
    tune[IR_TUNE_SCAN_COLUMNS] = COLUMN_STEP;
    if (ir_kernel_is_column(k)) {
        int64_t v = ir_at_least_one(size[k->n_dims - 1]);
        int64_t columns = ir_clamp(ir_round_up(v, COLUMN_STEP), COLUMN_STEP, 1024);
        while (columns > 2 * COLUMN_STEP &&
               ir_times(lines, ir_ceil_div(v, columns)) < (int64_t)n_threads * TILES_PER_THREAD)
            columns = ir_round_up(columns / 2, COLUMN_STEP);
        tune[IR_TUNE_SCAN_COLUMNS] = columns;
        units = ir_times(lines, ir_ceil_div(v, columns));
        each = ir_times(length, columns);
    } else if (n_threads > 2 && 2 * lines < n_threads && ir_times(lines, length) >= SERIAL_WORK) {
        tune[IR_TUNE_SCAN_TWO_PHASES] = 1;
        each = IR_SCAN_BLOCK;
        units = ir_times(lines, ir_ceil_div(length, IR_SCAN_BLOCK));
    }
    tune[IR_TUNE_SCAN_GRAIN] = tune_grain(units, each, n_threads);
}

/* Of a row kernel of the column form, an element: what its passes read and write. */
static int64_t row_bytes(const ir_kernel *k) {
    int64_t bytes = 0;
    for (int b = 0; b < k->n_buffers; b++) {
        bool varies = false;
        for (int d = 0; d < k->n_dims; d++) varies |= k->dim[d].role == 'r' && k->buffer[b].stride[d] != 0;
        if (varies && k->buffer[b].stride[k->n_dims - 1] != 0) bytes += ir_dtypes[k->buffer[b].dtype].bytes;
    }
    return ir_at_least_one(bytes);
}

static void tune_row(const ir_kernel *k, const int64_t *size, int n_threads, int64_t *tune) {
    int64_t units = tune_product(k, size, "p"), length = tune_product(k, size, "r");
    if (ir_kernel_is_column(k)) {
        /* Half of L2 has all rows of a chunk, half of L1 its sums and what is made of them; narrower where there would
         * be too few units, and all alike. */
        const int64_t v = ir_at_least_one(size[k->n_dims - 1]),
                      most = rt_host_caches()->l1d_bytes / 4 / accumulator_bytes(k);
        int64_t columns = rt_host_caches()->l2_bytes / 2 / ir_at_least_one(ir_times(length, row_bytes(k)));
        columns = ir_clamp(columns < most ? columns : most, COLUMN_STEP, ir_round_up(v, COLUMN_STEP));
        columns = ir_round_up(ir_ceil_div(v, ir_ceil_div(v, columns)), ROW_COLUMNS);
        while (columns > ROW_COLUMNS &&
               ir_times(units, ir_ceil_div(v, columns)) < (int64_t)n_threads * TILES_PER_THREAD)
            columns = ir_round_up(columns / 2, ROW_COLUMNS);
        tune[IR_TUNE_ROW_COLUMNS] = columns;
        units = ir_times(units, ir_ceil_div(v, columns));
        length = ir_times(length, columns);
    }
    tune[IR_TUNE_ROW_UNITS] = tune_grain(units, length, n_threads);
}

/* Panels of queries that share what a tile does for a block of keys: as many as stay in half of L2 with the block, as
 * long as there are tiles enough. */
static void tune_attention(const ir_kernel *k, const int64_t *size, int n_threads, int64_t *tune) {
    const int64_t nr = ir_at_least_one(k->tile.nr),
                  row = ir_dtypes[ir_kernel_attention_acc(k)].bytes *
                        ir_at_least_one(tune_product(k, size, "n") + tune_product(k, size, "k"));
    int64_t panels = ir_at_least_one(ir_ceil_div(tune_product(k, size, "m"), nr)),
            batches = tune_product(k, size, "bh");
    int64_t n = ir_clamp((rt_host_caches()->l2_bytes / 2 / row - k->tile.kb) / nr, 4, 16);
    while (n > 1 && n_threads > 1 && ir_times(batches, ir_ceil_div(panels, n)) < (int64_t)n_threads * TILES_PER_THREAD)
        n /= 2;
    tune[IR_TUNE_ATTENTION_PANELS] = ir_ceil_div(panels, ir_ceil_div(panels, n));
}

void rt_tune(const ir_kernel *k, const int64_t *size, const int64_t *stride, int n_threads,
             int64_t tune[IR_TUNE_COUNT]) {
    for (int i = 0; i < IR_TUNE_COUNT; i++) tune[i] = 0;
    if (n_threads < 1) n_threads = 1;
    switch (k->kind) {
    case IR_KERNEL_MAP: tune_map(k, size, n_threads, tune); break;
    case IR_KERNEL_REDUCE: tune_reduce(k, size, n_threads, tune); break;
    case IR_KERNEL_SCAN: tune_scan(k, size, n_threads, tune); break;
    case IR_KERNEL_ROW: tune_row(k, size, n_threads, tune); break;
    case IR_KERNEL_CONTRACT: tune_contract(k, size, stride, n_threads, tune); break;
    case IR_KERNEL_WINDOW: tune_window(k, size, n_threads, tune); break;
    case IR_KERNEL_ATTENTION: tune_attention(k, size, n_threads, tune); break;
    case IR_KERNEL_KIND_COUNT: break;
    }
}

int64_t rt_tune_work(const ir_kernel *k, const int64_t *size) {
    int64_t elements = all(k, size);
    if (k->kind == IR_KERNEL_CONTRACT || k->kind == IR_KERNEL_WINDOW)
        return ir_times(elements / SERIAL_PRODUCTS, SERIAL_WORK) +
               elements % SERIAL_PRODUCTS * SERIAL_WORK / SERIAL_PRODUCTS;
    if (k->kind == IR_KERNEL_ATTENTION) {
        int64_t products =
            ir_times(tune_product(k, size, "bhmj"), tune_product(k, size, "n") + tune_product(k, size, "k"));
        return ir_times(products / SERIAL_PRODUCTS, SERIAL_WORK) +
               products % SERIAL_PRODUCTS * SERIAL_WORK / SERIAL_PRODUCTS;
    }
    int64_t quarters = 0; /* of an access */
    for (int i = 0; i < k->n_insts; i++) {
        uint16_t op = k->inst[i].op;
        if (op == IR_K_LOAD || op == IR_K_STORE) quarters += 4;
        else if (op < IR_OP_COUNT) quarters += ir_ops[op].flags & IR_COSTLY ? 16 : 1;
    }
    return ir_times(elements, quarters) / 4;
}

int rt_tune_team(int64_t work, int n_threads, int64_t fork_ns) {
    return n_threads <= 1 || work < SERIAL_WORK * fork_ns / RT_FORK_LEAST_NS ? 1 : n_threads;
}

int rt_tune_threads(const ir_kernel *k, const int64_t *size, int n_threads) {
    return n_threads <= 1 ? 1 : rt_tune_team(rt_tune_work(k, size), n_threads, RT_FORK_LEAST_NS);
}
