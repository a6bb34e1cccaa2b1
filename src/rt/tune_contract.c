/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* tune_contract.c: the blocks of a contraction by cache sizes, and how a team shares them. */
#include "ir/arith.h"
#include "rt/cpuinfo.h"
#include "rt/tune_internal.h"

/* What is known of a call; counts of panels are those of register tiles. */
typedef struct contraction {
    const ir_kernel *k;
    int64_t m, n, kk, kc, batches, bytes; /* kc: columns of a K block, in words */
    int64_t mp, np;                       /* panels of rows and columns */
    int64_t again;                        /* batches that have the same operand 1 */
    bool has_edges;                       /* often panels of columns that are not full: never read in place */
    int64_t row[2], column[2];            /* strides in bytes of an operand along m (n) and along k; row < 0: unknown */
    int64_t element[2];                   /* bytes of one of it */
} contraction;

static contraction measure(const ir_kernel *k, const int64_t *size, const int64_t *stride) {
    contraction c = {.k = k,
                     .m = tune_product(k, size, "m"),
                     .n = tune_product(k, size, "n"),
                     .kk = tune_product(k, size, "jk"),
                     .batches = tune_product(k, size, "pb"),
                     .bytes = 4,
                     .again = 1,
                     .row = {-1, -1}};
    int dim[2] = {k->n_dims - 3, k->n_dims - 2}, dim_k = k->n_dims - 1;
    const ir_kinst *matmul = ir_kernel_matmul(k);
    if (ir_dtypes[matmul->dtype].bytes == 8) c.bytes = 8;
    for (int j = 0; j < 2 && stride; j++) {
        const ir_kinst *in = &k->inst[matmul->in[j]];
        if (in->op != IR_K_LOAD) continue;
        const int64_t *s = stride + in->index * k->n_dims;
        c.element[j] = ir_dtypes[in->dtype].bytes;
        c.row[j] = ir_times(s[dim[j]] < 0 ? -s[dim[j]] : s[dim[j]], c.element[j]);
        c.column[j] = ir_times(s[dim_k] < 0 ? -s[dim_k] : s[dim_k], c.element[j]);
    }
    const uint32_t varies = ir_kernel_varies(k, matmul->in[1]);
    for (int d = 0; d < k->n_dims; d++)
        if (k->dim[d].role == 'b' && !(varies >> d & 1)) c.again = ir_times(c.again, ir_at_least_one(size[d]));
    const int64_t outer = tune_product(k, size, "y");
    c.kc = ir_dot_words(ir_kernel_contract_dot(k), ir_clamp(c.kk, 1, ir_at_least_one(k->tile.kb)));
    c.mp = ir_at_least_one(ir_ceil_div(c.m, ir_at_least_one(k->tile.mr)));
    c.np = ir_at_least_one(ir_times(outer, ir_ceil_div(c.n, ir_at_least_one(k->tile.nr))));
    c.has_edges = (outer > 1 || c.again > 1) && c.n % ir_at_least_one(k->tile.nr) != 0;
    c.n = ir_times(c.n, outer);
    return c;
}

/* Operand 0 where it lies: no pass over it (Zen 5, f32, interleaved: packing costs 15 % at 64^3, 4 % at 256^3, 2 % at
 * 512^3), and rows at any distance are streams that the prefetcher follows. But not rows that meet in the same sets of
 * the L1 cache in larger numbers than it has ways (a way is 4096 bytes everywhere), or, where all are in one set of a
 * small one, than half its ways (6 rows of 8 ways, f32, Zen 3, in place over packed: 1024^3 1.03, 1032 x 4096 x 4096
 * 1.02, 4096^3 on two threads 1.07), nor columns far from each other: each step would touch other lines and pages.
 * Beside tiles two thirds of L1 are operand 1's (bytes, 12 ways, in place over packed: 256 cubed 0.80, 512 cubed 0.88,
 * 1024 cubed 1.18, 2048 cubed 1.0), which counts where panels of columns are many (5, 8: 1024 x 1024 x 160 0.86, 256
 * 0.92). */
static bool is_a_in_place(const contraction *c) {
    enum { SMALL_L1_WAYS = 8, FEW_TILE_COLUMNS = 12 };
    const int64_t way = 4096, l1 = rt_host_caches()->l1d_bytes;
    int64_t ways = l1 / way;
    if (c->row[0] < 0 || !ir_kernel_contract_a_in_place(c->k)) return false;
    if (c->kk % ir_dots[ir_kernel_contract_dot(c->k)].step) return false;
    if (c->column[0] > c->element[0]) return ir_times(c->column[0], c->kc) <= l1;
    int64_t off = c->row[0] % way, apart = off < way - off ? off : way - off, mr = c->k->tile.mr;
    /* The rows of a tile share lines, or are in adjacent ones. (f32, 16 rows, in place over packed: 10,000 x 3 by 3 x 3
     * 0.33, 10,000 x 4 by 4 x 16 0.37, 10,000 x 8 by 8 x 8 0.45.) */
    if (ir_times(c->row[0], mr) <= way) return true;
    if (ir_dot_is_tile(ir_kernel_contract_dot(c->k)) && c->np > FEW_TILE_COLUMNS) ways /= 3;
    const bool is_one_set = apart < 64;
    int64_t rows_a_set = is_one_set ? mr : ir_ceil_div(ir_times(mr, apart), way);
    return rows_a_set <= (is_one_set && ways <= SMALL_L1_WAYS ? ways / 2 : ways) || c->m <= ways;
}

/* How many times as much of L2 as half of it the K blocks of a panel of operand 1 would take, where its rows are a power
 * of two apart and share a few sets; 0: they are not. */
static double crowding(const contraction *c) {
    const int64_t l2 = rt_host_caches()->l2_bytes, apart = c->row[1] < 0 ? 0 : c->column[1] & -c->column[1];
    return (double)c->kc * (double)(apart < l2 / 16 ? apart : l2 / 16) / (double)(l2 / 2);
}

/* Operand 1 where it lies: no pass over it, which few rows (of 8 panels of the level's tile of two vectors) are not
 * worth; of a few more than these, as long as its rows are in no more pages than the first-level TLB of a small core
 * knows. Where they are a power of two apart, they share a few sets of L2: that may have twice the rows. (f32, one
 * thread of a core with 48 KB of L1, 2 MB of L2 and 96 entries, packed by the block over in place: 96 cubed 1.05, 192
 * 1.05, 256 0.99, 320 0.95, 512 0.89, 1000 0.87, 1024 0.57; 64 x 512 x 512 1.05, 128 0.97, 256 0.93; 1024 x 64 x 1000
 * 0.95; 32 x 1024 x 1024 1.0, 48 0.90, 64 0.82, 64 x 256 x 4096 1.07. EPYC of family 26: 64 to 1000 cubed the same.) */
static bool is_b_in_place(const contraction *c) {
    enum { FEW_PANELS = 8, FEW_CROWDED = 32, FEWER_CROWDED = 12, MANY_ROWS = 256, PAGES = 64 };
    const int64_t rows = ir_times(c->m, c->again);
    if (!ir_kernel_contract_in_place(c->k)) return false;
    if (c->has_edges && ir_times(c->mp, c->again) > 1) return false;
    if (ir_times(c->mp, c->again) <= 1) return true;
    if (c->row[1] < 0 || rows > MANY_ROWS) return false;
    if (crowding(c) > 1) return rows <= (crowding(c) < 4 ? FEW_CROWDED : FEWER_CROWDED);
    const int64_t page = IR_PAGE_BYTES, pages = ir_times(c->kc, c->column[1] < page ? c->column[1] : page) / page;
    return pages <= PAGES || rows <= FEW_PANELS * ir_contract_tile(c->k->level, ir_kernel_contract_acc(c->k)).mr;
}

/* Swept, where rows are few and those of operand 1 crowd L2: a strip of each would be read several times slower. (f32,
 * one thread of a core with 32 KB of L1 and 512 KB of L2, swept / in place / packed by the block: 2 x 1024 x 1024 103 /
 * 356 / 277 us, 4 149 / 238 / 292, 8 309 / 563 / 389, 12 480 / 837 / 578, 16 849 / 920 / 796; 8 x 2048 x 300 237 / 323 /
 * 218; f64 2 x 512 x 512 49 / 199 / 216, 8 153 / 289 / 252. Where they do not, 4 x 1000 x 1000 159 / 150 / 259, 8 384 /
 * 204 / 354, 8 x 3000 x 400 630 / 290 / 488.) */
static bool is_b_swept(const contraction *c) {
    return c->k->can_sweep && c->again == 1 && c->m <= IR_SWEPT_ROWS && c->kk % IR_SWEPT_STEPS == 0 && crowding(c) > 1;
}

/* Its columns: their sums, and the rows that are read at a time, stay in L1. */
static int64_t swept_panels(const contraction *c) {
    const int64_t row = ir_times(c->m + IR_SWEPT_STEPS, ir_times(c->k->tile.nr, c->bytes));
    return ir_clamp(rt_host_caches()->l1d_bytes / row, 1, c->np);
}

/* Of `size` elements, those that the thread with most of them makes where they are cut into blocks of `each` and the
 * last block is what is left: whole blocks are handed out first. */
static int64_t longest(int64_t size, int64_t each, int64_t tiles_of_each, int n_threads) {
    const int64_t whole = ir_times(size / each, tiles_of_each), left = size % each,
                  idle = whole % n_threads ? n_threads - whole % n_threads : 0,
                  turns = ir_times(ir_ceil_div(whole, n_threads), each);
    if (!left) return turns;
    const int64_t beside = ir_times(idle, each / left), more = tiles_of_each > beside ? tiles_of_each - beside : 0;
    return turns + ir_times(ir_ceil_div(more, n_threads), left);
}

/* Rows or columns that are cut into blocks of whole panels, each of so many tiles; blocks: from..to. */
typedef struct dividend {
    int64_t size, panel, from, to, tiles_of_each;
} dividend;

/* Elements of a block, and those of the thread with most of them over its fair share. */
static int64_t block_of(const dividend *d, int64_t blocks) {
    return ir_times(ir_ceil_div(ir_at_least_one(ir_ceil_div(d->size, d->panel)), blocks), d->panel);
}

static double share_of(const dividend *d, int64_t blocks, int n_threads) {
    return (double)longest(d->size, block_of(d, blocks), d->tiles_of_each, n_threads) * n_threads /
           ((double)d->size * (double)d->tiles_of_each);
}

/* Into how many blocks: those that a team is done with first; of equals, what comes nearest to `enough` tiles. Of very
 * many, all are as even. */
static int64_t cut(const dividend *d, int64_t enough, int n_threads) {
    enum { TRIED = 64 }; /* for each thread */
    const int64_t wanted = ir_clamp(ir_ceil_div(enough, ir_at_least_one(d->tiles_of_each)), d->from, d->to);
    int64_t best = wanted, least = INT64_MAX, to = ir_times(n_threads, TRIED) + d->from;
    if (to > d->to) to = d->to;
    for (int64_t blocks = d->from; n_threads > 1 && blocks <= to && blocks <= 4 * wanted; blocks++) {
        const int64_t each = block_of(d, blocks), off = blocks < wanted ? wanted - blocks : blocks - wanted;
        if (blocks > 1 && ir_times(each, blocks - 1) >= d->size) continue; /* fewer have as many */
        const int64_t turns = longest(d->size, each, d->tiles_of_each, n_threads),
                      cost = ir_times(turns, 256) + ir_times(turns, off) / wanted;
        if (cost < least) least = cost, best = blocks;
    }
    return best;
}

/* A single row and packed panels are one stream, which the hardware follows except where a page begins. Where each line
 * that is prefetched takes the place of a load that misses L1, only a page's first lines are; a core that keeps more
 * misses in flight is quicker with all of them. What tells one from the other is the size of L1, which grew with that
 * number: 1 x 1024 x 1024, f32, the first 512 bytes / all: EPYC 9004 (32 KB) 42 / 57 us for the read alone, EPYC 9005
 * (48 KB) 43.8 / 37.7, of which 1 and 2 KB are as slow as 512 bytes. */
static int64_t page_head(void) {
    enum { FIRST_LINES = 512, SMALL_L1 = 32 << 10 };
    return rt_host_caches()->l1d_bytes <= SMALL_L1 ? FIRST_LINES : IR_PAGE_BYTES;
}

/* AMX: row and column panels of a block. A block of rows of operand 0 stays in L2, and what it meets of a panel of columns in L1, which is a part of
 * it where K is long; the sums of a group of panels wait in L2 for the next part. One panel of rows meets each column
 * once, so nothing has to stay. Operand 0 is copied once for up to 4096 columns (of bf16 4096 cubed once instead of
 * four times: 0.9 of the time, though sums of K blocks, 4 MB, come from L3 then). Blocks are 8 row panels, more in up
 * to an eighth of L2, none more than half of it: rows of the result that are a power of two apart crowd its sets, and
 * so do sums. (One core with 48 KB of L1 and 2 MB of L2, a loop of tile instructions, in turns, blocks of 128 / 256 /
 * 384 / 512 rows in us: bf16 1024 cubed 1397 / 1184 / 1250 / 1506, 1536 cubed 5249 / 4194 / 4774 / 5380, 2048 cubed
 * 13187 / 11921 / 13105 / 15407; bytes 1024 cubed 747 / 707 / 814 / 898, 2048 cubed 6865 / 6410 / 6856 / 7471; bytes
 * of 512 cubed are 1.1 times as fast in one block.) */
static int64_t amx_row_panels(const contraction *c) {
    enum { PANELS = 8 };
    const int64_t panel = ir_at_least_one(ir_times(c->kc * c->bytes, c->k->tile.mr)), l2 = rt_host_caches()->l2_bytes;
    const int64_t most = ir_clamp(l2 / 8 / panel, PANELS, c->mp);
    return ir_clamp(l2 / 2 / panel, 1, most);
}

static int64_t amx_column_panels(const contraction *c) {
    enum { COLUMNS = 4096 };
    return ir_clamp(COLUMNS / ir_at_least_one(c->k->tile.nr), 1, c->np);
}

/* A K block whose panel of operand 1 does not stay in L1 is made in parts that do. */
static void tune_amx_parts(const contraction *c, int64_t *tune) {
    const int64_t step = ir_dot_words(ir_kernel_contract_dot(c->k), 1), row = c->bytes * c->k->tile.nr,
                  tile = row * c->k->tile.mr, l1 = rt_host_caches()->l1d_bytes;
    const int64_t mc = tune[IR_TUNE_CONTRACT_MC] / c->k->tile.mr, most = ir_at_least_one(l1 * 2 / 3 / row);
    tune[IR_TUNE_CONTRACT_PART] = 0;
    tune[IR_TUNE_CONTRACT_GROUP] = 1;
    if (mc <= 1 || c->kc * row <= l1 * 3 / 4) return;
    tune[IR_TUNE_CONTRACT_PART] = ir_round_up(ir_ceil_div(c->kc, ir_ceil_div(c->kc, most)), step);
    tune[IR_TUNE_CONTRACT_GROUP] = ir_at_least_one(rt_host_caches()->l2_bytes / 32 / (mc * tile));
}

/* What is prefetched before it is written: what a thread's part of L2 does not hold. (Prefetched / not, one core with 2
 * MB of L2: u8 x i8 to i32 1024 / 2048 / 4096 cubed 0.95 / 0.76 / 0.89 of the time, 1024 x 1024 x 8192 0.65; bf16 of
 * bf16 4096 cubed 0.95; bias and relu in f32 behind bytes, 2048 cubed, 0.86. In L2 it costs up to 1.05, and of results
 * that are finished beside the next panel 1024 cubed, 2 MB, 1.05, 2048 cubed with relu 0.98, with gelu 0.93.) */
static int64_t amx_prefetch(const contraction *c, int n_threads) {
    const int buffer = ir_contract_prefetched(c->k);
    if (buffer < 0) return IR_CONTRACT_PREFETCH_NONE;
    const int64_t elements = ir_times(c->batches, ir_times(c->m, c->n)), l2 = rt_host_caches()->l2_bytes,
                  share = ir_times(elements, ir_dtypes[c->k->buffer[buffer].dtype].bytes) / n_threads;
    return share < l2       ? IR_CONTRACT_PREFETCH_NONE
           : share / 2 < l2 ? IR_CONTRACT_PREFETCH_SOON
                            : IR_CONTRACT_PREFETCH_ALL;
}

static const double FAIR = 1.0625; /* share_of the thread with most */
typedef struct block_counts {
    int64_t m, n;
} block_counts;

/* Blocks of fewer rows than LEAST_ROWS read operand 1 from L3 as fast as that gives it; no thread is to be without one
 * for that. */
static dividend rows_of(const contraction *c, block_counts least, int n_threads) {
    enum { LEAST_ROWS = 64 };
    const int64_t tiles = ir_times(c->batches, least.n), threads = ir_ceil_div(n_threads, ir_at_least_one(tiles)),
                  few = c->m / LEAST_ROWS, most = few > threads ? few : threads, from = least.m;
    return (dividend){c->m, ir_at_least_one(c->k->tile.mr), from, ir_clamp(most, from, c->mp), tiles};
}

static dividend columns_of(const contraction *c, block_counts least) {
    return (dividend){c->n, ir_at_least_one(c->k->tile.nr), least.n, c->np, ir_times(c->batches, least.m)};
}

/* A part of the rows for each thread, which packs operand 1 for itself, panel by panel: no second pass over it and no
 * wait for the others. (Two threads, over operand 1 packed before: 256 cubed 0.92, 384 0.97, 512 0.95, 1000 1.07.) */
static bool is_own(const contraction *c, block_counts least, int n_threads) {
    enum { OWN_ROWS = 128 };
    const dividend rows = rows_of(c, least, n_threads);
    return c->again == 1 && c->batches == 1 && least.m <= n_threads && c->m >= ir_times(n_threads, OWN_ROWS) &&
           share_of(&rows, n_threads, n_threads) <= FAIR;
}

/* Columns, where rows are few: as many blocks as there are threads, since what lies beside a panel of operand 1 comes
 * with it, unless a thread had more than an eighth too many. 0: less even than the rows, whose share is given. */
static int64_t share_columns(const dividend *columns, double of_rows, int64_t enough, int n_threads) {
    const int64_t each =
        ir_clamp(ir_ceil_div(n_threads, ir_at_least_one(columns->tiles_of_each)), columns->from, columns->to);
    if (share_of(columns, each, n_threads) <= 1.125) return each;
    const int64_t n = cut(columns, enough, n_threads);
    const double share = share_of(columns, n, n_threads);
    return share > FAIR && share > of_rows ? 0 : n;
}

/* The team cuts rows: what a thread has of operand 0 is in its own L2 then, and all read the same of operand 1; or
 * columns, where each would have few rows for that and operand 0 is not packed for each block. (Two threads of a core
 * with 2 MB of L2, rows over columns: 512 cubed 0.96, 1000 0.83, 1024 0.90, 2048 0.95; 128 and 256 within 3 %; 128 x
 * 512 x 512 1.15.) Where that alone would leave threads without work for more than a sixteenth of the time, the other
 * is cut too. Small products are cut into few blocks, whose panels meet more in L1. (128 cubed in blocks of 64, 32 and
 * 16 rows 15.5, 16.4, 18 us, 64 x 784 x 512 in 2 and 11 blocks of columns 206, 230, 32 x 1024 x 1024 in 2 and 8 207,
 * 224.) Tile registers are so fast that operand 1 must be read seldom: few blocks, by rows, of no fewer than 4 panels.
 * (A CPU with AMX, two threads, in turns, over blocks as above: u8 x i8 256 / 512 / 1024 cubed 0.6 / 0.6 / 0.95, bf16
 * 0.83 / 0.90 / 0.96; 128 rows by 1024 x 1024, one block of rows over two and four: 0.77.) */
static block_counts share_contract(const contraction *c, block_counts b, int n_threads, bool may_cut_columns) {
    enum { FEW_ROWS = 128, TILE_PRODUCTS = 16 << 20, AMX_TILE_PRODUCTS = 64 << 20, FEW_ROW_PANELS = 4 };
    const bool is_tile = ir_dot_is_tile(ir_kernel_contract_dot(c->k));
    const int64_t products = ir_times(ir_times(c->batches, c->m), ir_times(c->n, ir_at_least_one(c->kk))),
                  enough = ir_clamp(products / (is_tile ? AMX_TILE_PRODUCTS : TILE_PRODUCTS), n_threads,
                                    (int64_t)n_threads * TILES_PER_THREAD);
    dividend rows = rows_of(c, b, n_threads), columns = columns_of(c, b);
    const int64_t m = cut(&rows, enough, n_threads),
                  n = may_cut_columns && c->m < (int64_t)n_threads * FEW_ROWS
                          ? share_columns(&columns, share_of(&rows, m, n_threads), enough, n_threads)
                          : 0;
    if (n) {
        b.n = n;
        rows = rows_of(c, b, n_threads);
        if (ir_times(rows.tiles_of_each, b.m) < n_threads) b.m = cut(&rows, enough, n_threads);
        return b;
    }
    b.m = is_tile ? ir_clamp(m, 1, ir_at_least_one(c->mp / FEW_ROW_PANELS)) : m;
    columns = columns_of(c, b);
    if (share_of(&rows, b.m, n_threads) > FAIR) b.n = cut(&columns, enough, n_threads);
    return b;
}

/* The block of operand 0 and the block of the result stay in half of L2 while panels of operand 1 stream by (f32, a
 * core with 2 MB, one thread, blocks of 64 or 256 rows of 512 cubed 0.95 of the time of one block; 1000 and 1024 cubed
 * 0.88 and 0.87): so many panels of rows, for `columns`. A result that is not added to again counts half. */
static int64_t rows_in_l2(const contraction *c, int64_t columns) {
    const int64_t kept = c->kk > c->k->tile.kb ? columns : columns / 2;
    return ir_clamp(rt_host_caches()->l2_bytes / 2 / ir_times(c->kc + kept, c->bytes * c->k->tile.mr), 1, c->mp);
}

/* Do rows of operand 0 a power of two apart share so few sets of L2 that a block of them fills these? */
static bool crowds_l2(const contraction *c, int64_t rows) {
    return ir_times(rows, c->row[0] & -c->row[0]) > rt_host_caches()->l2_bytes * 3 / 4;
}

/* Blocks have 1024 columns, since 512 pack operand 0 twice there (3 % slower, Zen 5); up to 2048 where it is packed, as
 * long as L2 then has 96 rows. (4096 cubed, one / two threads: packed 0.98 / 0.95 of the time of in place, with 2048
 * columns 0.95 / 0.92; 2048 cubed and less, packed 1.0 to 1.03.) */
static void tune_blocks(const contraction *c, int n_threads, int64_t *tune) {
    enum { MANY_COLUMNS = 1024, MOST_COLUMNS = 2048, ROWS_WITH_MOST = 96 };
    const ir_kernel *k = c->k;
    const int64_t mr = ir_at_least_one(k->tile.mr), nr = ir_at_least_one(k->tile.nr), l2 = rt_host_caches()->l2_bytes;
    const bool is_tile = ir_dot_is_tile(ir_kernel_contract_dot(k)), is_swept = is_b_swept(c),
               b_in_place = is_swept || is_b_in_place(c);
    int64_t nc, mc; /* panels of a block */
    bool in_place = is_a_in_place(c);
    if (is_tile) {
        mc = amx_row_panels(c);
        nc = amx_column_panels(c);
    } else {
        nc = ir_clamp(ir_ceil_div(MANY_COLUMNS, nr), 1, c->np);
        mc = rows_in_l2(c, nc * nr);
        in_place = in_place && !crowds_l2(c, mc * mr);
        if (!in_place) {
            const int64_t columns = ir_clamp(l2 / 2 / (ROWS_WITH_MOST * c->bytes) - c->kc, MANY_COLUMNS, MOST_COLUMNS);
            nc = ir_clamp(ir_ceil_div(columns, nr), 1, c->np);
            mc = rows_in_l2(c, nc * nr);
        }
    }
    if (is_swept) mc = c->mp, nc = swept_panels(c);
    block_counts b = {ir_ceil_div(c->mp, mc), ir_ceil_div(c->np, nc)};
    const bool is_own_b = n_threads > 1 && !is_tile && !b_in_place && is_own(c, b, n_threads);
    if (is_own_b) b.m = n_threads;
    else if (n_threads > 1) b = share_contract(c, b, n_threads, in_place && !is_tile);
    tune[IR_TUNE_CONTRACT_MC] = ir_ceil_div(c->mp, b.m) * mr;
    tune[IR_TUNE_CONTRACT_NC] = ir_ceil_div(c->np, b.n) * nr;
    if (is_tile) tune_amx_parts(c, tune);
    tune[IR_TUNE_CONTRACT_A_IN_PLACE] = in_place;
    if (is_tile) tune[IR_TUNE_CONTRACT_PREFETCH] = amx_prefetch(c, n_threads);
    else tune[IR_TUNE_CONTRACT_PAGE_HEAD] = page_head();
    tune[IR_TUNE_CONTRACT_B] = is_swept                                  ? IR_CONTRACT_B_SWEPT
                               : b_in_place                              ? IR_CONTRACT_B_IN_PLACE
                               : is_own_b || (b.m == 1 && c->again == 1) ? IR_CONTRACT_B_BY_BLOCK
                                                                         : IR_CONTRACT_B_PACKED;
}

/* Direct form: as many rows for each thread, in whole register tiles, of which there are few. */
static void tune_direct(const ir_kernel *k, const int64_t *size, int n_threads, int64_t *tune) {
    const int64_t mr = ir_at_least_one(k->tile.mr);
    tune[IR_TUNE_CONTRACT_MC] = ir_at_least_one(tune_product(k, size, "m") / mr / n_threads) * mr;
}

/* Rows of a contraction that a row program goes on with. A block as wide as n keeps them in L2, unless it would be so
 * flat that each row of tiles streams all of operand 1, or there were fewer blocks than threads: then phase 2 reads
 * them from memory. */
static void tune_rows(const contraction *c, int n_threads, int64_t *tune) {
    enum {
        FLAT_PANELS = 4,
        HIGH_PANELS = 16
    }; /* 1024 rows, one thread: 4 to 16 within 2 % of the best, 1, 64 up to 5 */
    const ir_kernel *k = c->k;
    const int64_t mr = ir_at_least_one(k->tile.mr), nr = ir_times(c->np, ir_at_least_one(k->tile.nr)),
                  l2 = rt_host_caches()->l2_bytes,
                  row_bytes = ir_times(c->kc + (c->kk > k->tile.kb ? nr : 0), c->bytes * mr) +
                              ir_kernel_row_value_bytes(k, mr, c->n);
    int64_t mc = ir_clamp(l2 * 6 / 10 / ir_at_least_one(row_bytes), 0, c->mp < HIGH_PANELS ? c->mp : HIGH_PANELS);
    const bool is_flat = mc < c->mp && mc < FLAT_PANELS && ir_times(ir_times(c->kk, nr), c->bytes) > l2;
    if (mc < 1 || is_flat || (n_threads > 1 && ir_times(c->batches, c->mp) < 2 * (int64_t)n_threads)) {
        tune[IR_TUNE_CONTRACT_ROWS] = tune_grain(ir_times(c->batches, c->m), c->n, n_threads);
        return;
    }
    while (n_threads > 1 && mc > 1 &&
           ir_times(c->batches, ir_ceil_div(c->mp, mc)) < (int64_t)n_threads * (mc > 4 ? TILES_PER_THREAD : 1))
        mc = ir_ceil_div(mc, 2);
    const int64_t fewest = ir_ceil_div(c->mp, mc);
    const dividend rows = {c->m, mr, fewest, c->mp, c->batches};
    mc = ir_ceil_div(c->mp, cut(&rows, ir_times(fewest, c->batches), n_threads));
    tune[IR_TUNE_CONTRACT_MC] = mc * mr;
    tune[IR_TUNE_CONTRACT_NC] = nr;
    if (mc < c->mp && tune[IR_TUNE_CONTRACT_B] == IR_CONTRACT_B_BY_BLOCK)
        tune[IR_TUNE_CONTRACT_B] = IR_CONTRACT_B_PACKED;
    if (ir_dot_is_tile(ir_kernel_contract_dot(k))) tune_amx_parts(c, tune);
}

void tune_contract(const ir_kernel *k, const int64_t *size, const int64_t *stride, int n_threads, int64_t *tune) {
    if (k->is_direct) {
        tune_direct(k, size, n_threads, tune);
        return;
    }
    const contraction c = measure(k, size, stride);
    tune_blocks(&c, n_threads, tune);
    if (ir_kernel_has_rows(k)) tune_rows(&c, n_threads, tune);
}
