/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* tune_window.c: rows, columns and channels of a tile of a convolution by cache sizes, and how a team shares them. */
#include "ir/arith.h"
#include "rt/cpuinfo.h"
#include "rt/tune_internal.h"

/* The operand's part of a tile stays in half of L1, and the blocks of rows are even. Threads that share an image share
 * its rows, as they do in other convolutions, where there are many: 1x1, 3x3 depthwise and 1x1 of 112x112, two threads,
 * EPYC 9005, 0.65 of the time of sharing channels, of 56x56 0.94, of 28x28 1.04 (alone 1.06, 0.92, 1.08). */
static void tune_depthwise(const ir_kernel *k, const int64_t *size, int n_threads, int64_t y, int64_t n,
                           int64_t *tune) {
    enum { COLUMNS = 1024, FEWEST_ROWS = 28 };
    int64_t images = 1;
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].role == 'b' && !k->buffer[ir_kernel_window_operand(k, 0)->index].stride[d])
            images = ir_times(images, size[d]);
    const ir_depthwise d = ir_kernel_depthwise(k);
    const int64_t mr = k->tile.mr, nr = k->tile.nr;
    const int64_t blocks = ir_ceil_div(n, ir_round_up(COLUMNS, nr)), columns = ir_round_up(ir_ceil_div(n, blocks), nr),
                  row_bytes = d.n_parts * ir_depthwise_pitch(k, columns) * ir_dtypes[ir_kernel_contract_acc(k)].bytes;
    int64_t rows = ir_round_up(y, mr);
    while (rows > mr && d.places[0] * ir_depthwise_rows(k, rows) * row_bytes > rt_host_caches()->l1d_bytes / 2)
        rows -= mr;
    int64_t row_blocks = ir_ceil_div(y, rows);
    if (n_threads > 1 && images % n_threads && y >= ir_times(n_threads, FEWEST_ROWS))
        row_blocks = ir_round_up(row_blocks, n_threads);
    tune[IR_TUNE_WINDOW_ROWS] = ir_round_up(ir_ceil_div(y, row_blocks), mr);
    tune[IR_TUNE_WINDOW_COLUMNS] = columns;
}

/* The fewest parts of so many panels that make as many tiles for each thread, or all that are wanted. */
static int64_t fair_parts(int64_t panels, int64_t tiles, int64_t wanted, int n_threads) {
    int64_t parts = 1;
    for (; parts < panels; parts++) {
        const int64_t made = ir_times(tiles, ir_ceil_div(panels, ir_ceil_div(panels, parts)));
        if (made % n_threads == 0 || made >= wanted) break;
    }
    return parts;
}

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

/* Columns of the operand that two tiles both read, as columns of the result. */
static int64_t columns_shared(const ir_kernel *k, const int64_t *size) {
    if (!ir_kernel_has_slab(k)) return 0;
    const ir_kaxis *a = &k->axis[k->n_axes - 1];
    if (a->up) return ir_kernel_phases(k, 0).reach;
    return a->place < 0 ? 0 : ir_times(size[a->place] - 1, a->dilation) / a->stride;
}

/* A result of one row is cut into columns: even parts, as many as the team wants, or more where what they read of the
 * operand would not stay in half of L2; but not so many that what two tiles both read is a quarter of that. Returned:
 * columns of a tile, whole register tiles of them where there are several. */
static int64_t columns_of_tile(const ir_kernel *k, const int64_t *size, int64_t n_threads, int64_t batches, int64_t n,
                               int64_t *tune) {
    enum { FEWEST_PANELS = 4, LEAST_SHARED = 4 };
    if (!ir_window_cuts_rows(k)) return n;
    const int64_t unit = ir_at_least_one(k->is_by_channel ? k->tile.mr : k->tile.nr),
                  panel = k->is_by_channel ? ir_window_columns(k) : unit,
                  shared = ir_times(columns_shared(k, size), LEAST_SHARED), least = shared > panel ? shared : panel,
                  fewest = shared > panel * FEWEST_PANELS ? shared : panel * FEWEST_PANELS;
    int64_t parts = 1, columns;
    if (n_threads > 1 && batches % n_threads) { /* smaller ones where some threads would have none */
        const int64_t each = ir_ceil_div(n_threads, batches);
        parts = ir_clamp(n / fewest, ir_clamp(n / least, 1, each), ir_times(each, TILES_PER_THREAD));
    }
    const int64_t fair = parts >= n_threads && batches % n_threads ? n_threads : 1; /* as many for each thread */
    parts = parts / fair * fair;
    for (;; parts += ir_round_up(ir_at_least_one(parts / 16), fair)) {
        columns = ir_round_up(ir_ceil_div(n, parts), unit);
        if (!ir_kernel_has_slab(k) || columns < 2 * fewest ||
            ir_kernel_slab_bytes(k, size, 1, columns) <= rt_host_caches()->l2_bytes / 2)
            break;
    }
    tune[IR_TUNE_WINDOW_COLUMNS] = columns;
    return ir_window_tile_columns(k, size, tune);
}

/* By channel: a part of the rows reads little more of the operand than its own, a part of the channels all of it again;
 * so channels are parted only where rows do not make enough tiles. But where tiles are whole rows of images that are
 * less than the weights, each part of the rows would read all of these, and few rows are shared badly: there only
 * channels are parted, until each thread has as many tiles. (Two threads, EPYC 9005, 3x3: 512 to 512 channels of 7x7
 * 0.74 to 0.93 of the time, 256 of 14x14 0.79 to 0.94, 128 of 28x28 as before; at v3, where rows are cut into tiles of
 * two heights, 0.89, 0.87, 1.0.) */
static void tune_by_channel(const ir_kernel *k, const int64_t *size, int n_threads, int64_t batches, int64_t y,
                            int64_t n, int64_t m, int64_t *tune) {
    enum { FEWEST_ROWS = 4 };
    const int64_t nr = ir_at_least_one(k->tile.nr), wanted = (int64_t)n_threads * TILES_PER_THREAD,
                  fewest = y < FEWEST_ROWS ? y : FEWEST_ROWS, panels = ir_at_least_one(ir_ceil_div(m, nr));
    const int64_t weight_bytes =
        ir_times(ir_times(m, tune_product(k, size, "k")), ir_dtypes[ir_kernel_contract_acc(k)].bytes) /
        ir_dots[ir_kernel_window_dot(k)].group;
    const bool parts_channels = (ir_window_tile_rows(k) > 0 || ir_window_has_lower(k) || ir_window_cuts_rows(k)) &&
                                weight_bytes > ir_kernel_slab_bytes(k, size, y, n);
    /* Threads that share columns. Where channels are parted, as few as make as many tiles for each thread: of 6 panels
     * and 4 threads, 2. */
    int64_t sharers = n_threads;
    if (parts_channels) sharers = panels >= wanted ? 1 : n_threads / common_divisor(panels, n_threads);
    const int64_t columns = columns_of_tile(k, size, sharers, batches, n, tune);
    int64_t rows = y, each = panels;
    if (n_threads > 1 && batches % n_threads && !parts_channels) rows = ir_ceil_div(y, ir_ceil_div(wanted, batches));
    if (rows < fewest) rows = fewest;
    while (rows > fewest && ir_kernel_slab_bytes(k, size, rows, columns) > rt_host_caches()->l2_bytes / 2)
        rows = ir_ceil_div(y, ir_ceil_div(y, rows - 1)); /* in fewer parts there are as many rows */
    rows = ir_band_tile_rows(k, rows);
    if (parts_channels && k->band_rows && y % rows) rows = y; /* parts of 8 and 6 rows would be shared badly */
    const int64_t tiles = ir_times(ir_times(batches, ir_ceil_div(y, rows)), ir_ceil_div(n, columns));
    if (n_threads > 1 && tiles < wanted && batches % n_threads) {
        const int64_t parts =
            parts_channels ? fair_parts(panels, tiles, wanted, n_threads) : ir_ceil_div(wanted, tiles);
        each = ir_ceil_div(panels, ir_clamp(parts, 1, panels));
    }
    /* parts of the channels find the operand's rows where the first one put them */
    for (int64_t parts = ir_ceil_div(panels, each);
         each > 1 && ir_band_bytes(k, size, rows, ir_times(each, nr)) > rt_host_caches()->l2_bytes / 4;)
        each = ir_ceil_div(panels, ++parts);
    tune[IR_TUNE_WINDOW_ROWS] = rows;
    tune[IR_TUNE_WINDOW_CHANNELS] = ir_times(each, nr);
}

/* In tile registers: images that are less than the weights are not cut, since each part of the rows would read all of
 * these; the team shares their channels. tiles: of all rows. */
static bool share_channels(const ir_kernel *k, const int64_t *size, int n_threads, int64_t tiles, int64_t y,
                           int64_t columns, int64_t *tune) {
    if (!ir_window_is_tiled(k) || n_threads < 2 || tiles % n_threads == 0) return false;
    const int64_t panels = ir_ceil_div(tune_product(k, size, "m"), IR_TILE_SIDE),
                  bytes = ir_times(ir_times(panels, IR_TILE_SIDE * 4), tune_product(k, size, "k")) /
                          ir_dots[ir_kernel_window_dot(k)].group;
    if (ir_kernel_slab_bytes(k, size, y, columns) >= bytes) return false;
    const int64_t parts = fair_parts(panels, tiles, (int64_t)n_threads * TILES_PER_THREAD, n_threads);
    tune[IR_TUNE_WINDOW_SHARE] = ir_times(ir_ceil_div(panels, parts), IR_TILE_SIDE);
    return true;
}

/* Whole images, or so few rows of one that there are enough tiles for the team, but some panels of columns in each. */
void tune_window(const ir_kernel *k, const int64_t *size, int n_threads, int64_t *tune) {
    int64_t batches = ir_at_least_one(tune_product(k, size, "b")), y = 1, n = 1;
    for (int d = 0; d < k->n_dims; d++) {
        if (k->dim[d].role == 'y') y = ir_at_least_one(ir_window_size(k, d, ir_band_rows_made(k, size)));
        if (k->dim[d].role == 'n') n = ir_at_least_one(ir_window_size(k, d, size[d]));
    }
    if (k->is_depthwise) {
        tune_depthwise(k, size, n_threads, y, n, tune);
        return;
    }
    if (k->is_by_channel) {
        tune_by_channel(k, size, n_threads, batches, y, n, tune_product(k, size, "m"), tune);
        return;
    }
    const int64_t columns = columns_of_tile(k, size, n_threads, batches, n, tune);
    int64_t rows = y, fewest = ir_clamp(ir_ceil_div(4 * ir_at_least_one(k->tile.nr), n), 1, y);
    if (share_channels(k, size, n_threads, ir_times(batches, ir_ceil_div(n, columns)), y, columns, tune)) fewest = y;
    if (n_threads > 1 && batches % n_threads)
        rows = ir_ceil_div(y, ir_ceil_div((int64_t)n_threads * TILES_PER_THREAD, batches));
    if (rows < fewest) rows = fewest;
    /* What it reads of the operand, and rows that something behind it reads, stay in most of L2. */
    while (rows > fewest && (ir_kernel_has_slab(k) ? ir_kernel_slab_bytes(k, size, rows, columns) : 0) +
                                    ir_band_bytes(k, size, rows, tune_product(k, size, "m")) >
                                rt_host_caches()->l2_bytes * 6 / 10)
        rows = ir_ceil_div(y, ir_ceil_div(y, rows - 1)); /* in fewer parts there are as many rows */
    tune[IR_TUNE_WINDOW_ROWS] = ir_band_tile_rows(k, rows);
    /* Their weights stay in half of L2 while the columns go by. */
    const int64_t mr = ir_at_least_one(k->tile.mr), row_bytes = ir_times(ir_at_least_one(tune_product(k, size, "k")),
                                                                         ir_dtypes[ir_kernel_contract_acc(k)].bytes) /
                                                                ir_dots[ir_kernel_window_dot(k)].group;
    tune[IR_TUNE_WINDOW_CHANNELS] =
        ir_times(mr, ir_at_least_one(rt_host_caches()->l2_bytes / 2 / ir_at_least_one(ir_times(row_bytes, mr))));
}
