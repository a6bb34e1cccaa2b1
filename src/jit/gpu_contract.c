/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_contract.c: contractions on a GPU in the accumulator's own arithmetic (f32: fma, no tensor cores). A block of
 * threads makes a tile, each warp a part of it, each thread some rows and columns of that (ir_gpu_fma_tiles):
 *
 *   for each `step` products: barrier, behind which the step is in its stage of shared memory; a later step's operands
 *       begin to be copied to the stage that was multiplied last, or are read into registers; products of this step;
 *       registers, and what is computed (element-wise producers), -> that stage; past the end of k: 0
 *   totals -> shared memory, some rows at a time; threads side by side evaluate the epilogue of elements side by side
 *
 * The order of an element's sum is that of the CPU's kernels, whatever the tile: products from 0 upwards in K blocks,
 * then block sums in order. Block sums so far wait in the thread's local memory. Where the tiles are too few for a
 * device, each block of threads takes some of the K blocks and stores their sums to scratch, [K block][batch][tile
 * row][tile column][element], which a second launch adds in order. */
#include "jit/gpu_contract.h"
#include <string.h>

static LLVMValueRef num(contract *c, int64_t v) { return fma_num(c, v); }
static LLVMValueRef ceil_div(contract *c, LLVMValueRef x, int64_t by) {
    return LLVMBuildUDiv(c->e->b, em_add(c->e, x, num(c, by - 1)), num(c, by), "");
}
static LLVMValueRef smaller_of(contract *c, LLVMValueRef x, LLVMValueRef y) {
    return em_select(c->e, em_icmp(c->e, LLVMIntSLT, x, y), x, y);
}
static LLVMValueRef element(contract *c, LLVMValueRef base, LLVMValueRef i) { return em_gep(c->e, base, c->t_acc, i); }
static void store(contract *c, LLVMValueRef v, LLVMValueRef at) {
    LLVMSetAlignment(LLVMBuildStore(c->e->b, v, at), ir_dtypes[c->acc].bytes);
}
static LLVMValueRef load(contract *c, LLVMValueRef at) {
    LLVMValueRef v = LLVMBuildLoad2(c->e->b, c->t_acc, at, "");
    LLVMSetAlignment(v, ir_dtypes[c->acc].bytes);
    return v;
}
static LLVMValueRef add(contract *c, LLVMValueRef x, LLVMValueRef y) {
    return ir_is_float(c->acc) ? em_fadd(c->e, x, y) : em_add(c->e, x, y);
}

static void enter_batch(contract *c, LLVMValueRef number) {
    emit *e = c->e;
    gpu_space_split(e, &c->s, IR_GPU_BATCHES, number, c->index);
    for (int b = 0; b < c->k->n_buffers; b++) c->batch_off[b] = gpu_space_offset(e, &c->s, IR_GPU_BATCHES, b, number);
}

/* ---- a thread's elements: PER_Y x PER_X lanes of a warp; adjacent elements up to vec, then a warp's lanes further
 * ---- */
enum { LOCAL = 5 /* address space */, LANES_X = 8, LANES_Y = IR_GPU_WARP / LANES_X };

static int smaller(int x, int y) { return x < y ? x : y; }
static int row_vec(const contract *c) { return smaller(c->t->thread_rows, c->vec); }
static int column_vec(const contract *c) { return smaller(c->t->thread_columns, c->vec); }
/* Row i, or column j, of a thread, from the warp's lane on. */
static int row_of(const contract *c, int i) { return i / row_vec(c) * LANES_Y * row_vec(c) + i % row_vec(c); }
static int column_of(const contract *c, int j) {
    return j / column_vec(c) * LANES_X * column_vec(c) + j % column_vec(c);
}
static int count(const contract *c) { return c->t->thread_rows * c->t->thread_columns; }

static void load_part(contract *c, LLVMValueRef at, int n, int vec, int lanes, LLVMValueRef *out) {
    emit *e = c->e;
    for (int i = 0; i < n; i += vec) {
        LLVMValueRef v =
            LLVMBuildLoad2(e->b, LLVMVectorType(c->t_acc, (unsigned)vec), element(c, at, num(c, i * lanes)), "");
        LLVMSetAlignment(v, (unsigned)(vec * ir_dtypes[c->acc].bytes));
        for (int l = 0; l < vec; l++) out[i + l] = LLVMBuildExtractElement(e->b, v, num(c, l), "");
    }
}

static void add_product(contract *c, LLVMValueRef *sum, LLVMValueRef rows, LLVMValueRef columns) {
    emit *e = c->e;
    LLVMValueRef a[8], b[8];
    load_part(c, rows, c->t->thread_rows, row_vec(c), LANES_Y, a);
    load_part(c, columns, c->t->thread_columns, column_vec(c), LANES_X, b);
    for (int i = 0; i < count(c); i++) {
        LLVMValueRef p = a[i / c->t->thread_columns], q = b[i % c->t->thread_columns];
        sum[i] = ir_is_float(c->acc) ? em_mad(e, p, q, sum[i]) : em_add(e, em_mul(e, p, q), sum[i]);
    }
}

/* acc += the products of a stage. Where operands wait in registers no more than two are in the code: with more,
 * registers do not hold what was fetched, and storing it would wait for it. */
static void add_products(contract *c, LLVMValueRef *acc, LLVMValueRef stage) {
    emit *e = c->e;
    const bool is_all = c->operand[0].is_copied && c->operand[1].is_copied;
    const int unrolled = is_all ? c->t->step : 2, line[2] = {c->operand[0].line, c->operand[1].line};
    LLVMValueRef sum[FMA_PART_MAX], zero = num(c, 0);
    LLVMValueRef rows = em_add(e, em_add(e, c->warp_row, em_mul(e, c->lane_y, num(c, row_vec(c)))), stage);
    LLVMValueRef columns = em_add(e, em_add(e, c->warp_column, em_mul(e, c->lane_x, num(c, column_vec(c)))), stage);
    rows = element(c, c->shared, rows);
    columns = element(c, c->shared, em_add(e, columns, num(c, line[0] * c->t->step)));
    em_loop l;
    if (!is_all) {
        l = em_for(e, zero, num(c, c->t->step), num(c, unrolled));
        for (int i = 0; i < count(c); i++) acc[i] = em_loop_phi(e, &l, acc[i]);
        rows = element(c, rows, em_mul(e, l.i, num(c, line[0])));
        columns = element(c, columns, em_mul(e, l.i, num(c, line[1])));
    }
    memcpy(sum, acc, sizeof sum);
    for (int u = 0; u < unrolled; u++)
        add_product(c, sum, element(c, rows, num(c, u * line[0])), element(c, columns, num(c, u * line[1])));
    if (is_all) {
        memcpy(acc, sum, sizeof sum);
        return;
    }
    for (int i = 0; i < count(c); i++) em_loop_next(e, acc[i], sum[i]);
    em_end(e, &l);
    gpu_keep_loop(e, &l);
}

/* ---- K blocks ---- */
typedef struct block {
    LLVMValueRef k_begin;              /* of the block of threads */
    LLVMValueRef is_split, is_several; /* i1: its K blocks' sums go to scratch; or wait in local memory */
} block;

/* Volatile: it has to be memory, as registers have no room for it. v: NULL: loads. */
static LLVMValueRef local_access(contract *c, LLVMTypeRef type, LLVMValueRef at, LLVMValueRef v) {
    emit *e = c->e;
    LLVMValueRef x = v ? LLVMBuildStore(e->b, v, at) : LLVMBuildLoad2(e->b, type, at, "");
    LLVMSetAlignment(x, type == e->t_i64 ? 8 : (unsigned)ir_dtypes[c->acc].bytes);
    LLVMSetVolatile(x, 1);
    return x;
}

static LLVMValueRef sum_access(contract *c, int i, LLVMValueRef v) {
    return local_access(c, c->t_acc, element(c, c->local, num(c, i)), v);
}

enum { SUM_BYTES = FMA_PART_MAX * 8, PARKED_MAX = 4 + IR_KERNEL_MAX_BUFFERS };

/* What is parked: places in c whose value is not a constant. */
static int find_parked(contract *c, LLVMValueRef **out) {
    LLVMValueRef *at[4] = {&c->first[0], &c->first[1], &c->scratch, &c->scratch_step};
    int n = 0;
    for (int i = 0; i < 4; i++) out[n++] = at[i];
    for (int b = 0; b < c->k->n_buffers; b++)
        if (!LLVMIsAConstantInt(c->batch_off[b])) out[n++] = &c->batch_off[b];
    return n;
}

void fma_park(contract *c) {
    LLVMValueRef *at[PARKED_MAX];
    const int n = find_parked(c, at);
    for (int i = 0; i < n; i++)
        local_access(c, c->e->t_i64, em_gep(c->e, c->local, c->e->t_i8, num(c, SUM_BYTES + 8 * i)), *at[i]);
}

void fma_unpark(contract *c) {
    LLVMValueRef *at[PARKED_MAX];
    const int n = find_parked(c, at);
    for (int i = 0; i < n; i++)
        *at[i] = local_access(c, c->e->t_i64, em_gep(c->e, c->local, c->e->t_i8, num(c, SUM_BYTES + 8 * i)), NULL);
}

/* Sums of the K block that ends at k: to scratch, or to those so far. */
static void keep_sums(contract *c, const block *b, LLVMValueRef *sum, LLVMValueRef k) {
    emit *e = c->e;
    const contract around = *c;
    em_branch split = em_if(e, b->is_split);
    fma_unpark(c);
    LLVMValueRef number = ceil_div(c, k, c->k->tile.kb); /* k > 0 */
    LLVMValueRef to = em_add(e, c->scratch, em_mul(e, em_sub(e, number, num(c, 1)), c->scratch_step));
    LLVMValueRef row = em_add(e, c->warp_row, em_mul(e, c->lane_y, num(c, row_vec(c)))),
                 column = em_add(e, c->warp_column, em_mul(e, c->lane_x, num(c, column_vec(c))));
    to = element(c, e->scratch, em_add(e, to, em_add(e, em_mul(e, row, num(c, c->t->columns)), column)));
    for (int i = 0; i < count(c); i++) {
        const int at = row_of(c, i / c->t->thread_columns) * c->t->columns + column_of(c, i % c->t->thread_columns);
        store(c, sum[i], element(c, to, num(c, at)));
    }
    *c = around;
    em_else(e, &split);
    em_branch last = em_if(e, em_icmp(e, LLVMIntSLT, k, c->k_end));
    for (int i = 0; i < count(c); i++) sum_access(c, i, add(c, sum_access(c, i, NULL), sum[i]));
    em_endif(e, &last);
    em_endif(e, &split);
}

static LLVMValueRef next_stage(contract *c, LLVMValueRef stage) {
    const int elements = fma_stage_elements(c->t);
    LLVMValueRef next = em_add(c->e, stage, num(c, elements));
    return em_select(c->e, em_icmp(c->e, LLVMIntEQ, next, num(c, c->stages * elements)), num(c, 0), next);
}

/* The first steps, into the first stages. */
static void fill_stages(contract *c, LLVMValueRef k, int steps) {
    emit *e = c->e;
    LLVMValueRef *place[2 * FMA_LOADS], from[2 * FMA_LOADS], step = num(c, c->t->step);
    const int n_places = fma_places(c, place);
    fma_fill_table(c, k);
    em_loop l = em_for(e, num(c, 0), num(c, steps), num(c, 1));
    if (c->table) gpu_barrier(e);
    for (int i = 0; i < n_places; i++) *place[i] = from[i] = em_loop_phi(e, &l, *place[i]);
    LLVMValueRef at = em_add(e, k, em_mul(e, l.i, step)), stage = em_mul(e, l.i, num(c, fma_stage_elements(c->t)));
    fma_take(c, stage, at);
    fma_put(c, stage, at);
    fma_fill_table(c, em_add(e, at, step));
    for (int i = 0; i < n_places; i++) em_loop_next(e, from[i], *place[i]);
    em_end(e, &l);
    gpu_keep_loop(e, &l);
    for (int i = 0; i < n_places; i++) *place[i] = from[i]; /* behind the last round */
}

static void sum_up(contract *c, const block *b, LLVMValueRef *total) {
    emit *e = c->e;
    const int n = count(c), ahead = c->stages - 1;
    LLVMValueRef sum[FMA_PART_MAX], now[FMA_PART_MAX], zero = LLVMConstNull(c->t_acc), step = num(c, c->t->step);
    LLVMValueRef in_block[FMA_PART_MAX], *place[2 * FMA_LOADS], from[2 * FMA_LOADS], offset[2 * FMA_LOADS];
    em_branch several = em_if(e, b->is_several);
    for (int i = 0; i < n; i++) sum_access(c, i, zero);
    em_endif(e, &several);
    fma_begin(c, b->k_begin);
    fill_stages(c, b->k_begin, ahead);
    const int n_places = fma_places(c, place);
    em_loop blocks = em_for(e, b->k_begin, c->k_end, num(c, c->k->tile.kb));
    LLVMValueRef read = em_loop_phi(e, &blocks, num(c, 0)),
                 write = em_loop_phi(e, &blocks, num(c, ahead * fma_stage_elements(c->t))),
                 block_end = smaller_of(c, em_add(e, blocks.i, num(c, c->k->tile.kb)), c->k_end);
    for (int i = 0; i < n_places; i++) *place[i] = from[i] = em_loop_phi(e, &blocks, *place[i]);
    for (int i = 0; i < n; i++) sum[i] = em_loop_phi(e, &blocks, zero); /* of the block before */
    em_loop l = em_for(e, blocks.i, block_end, step);
    LLVMValueRef reading = em_loop_phi(e, &l, read), writing = em_loop_phi(e, &l, write);
    for (int i = 0; i < n; i++) now[i] = in_block[i] = em_loop_phi(e, &l, zero);
    for (int i = 0; i < n_places; i++) *place[i] = offset[i] = em_loop_phi(e, &l, *place[i]);
    LLVMValueRef later = em_add(e, l.i, num(c, ahead * c->t->step));
    fma_wait(c, ahead - 1);
    gpu_barrier(e); /* all have this step's copies, and have done with the stage that is written next */
    fma_take(c, writing, later);
    add_products(c, now, reading);
    fma_put(c, writing, later);
    fma_fill_table(c, em_add(e, later, step));
    for (int i = 0; i < n; i++) em_loop_next(e, in_block[i], now[i]);
    for (int i = 0; i < n_places; i++) em_loop_next(e, offset[i], *place[i]);
    em_loop_next(e, reading, next_stage(c, reading));
    em_loop_next(e, writing, next_stage(c, writing));
    em_end(e, &l);
    gpu_keep_loop(e, &l);
    em_branch kept = em_if(e, em_or(e, b->is_split, b->is_several));
    keep_sums(c, b, in_block, block_end);
    em_endif(e, &kept);
    for (int i = 0; i < n; i++) em_loop_next(e, sum[i], in_block[i]);
    for (int i = 0; i < n_places; i++) em_loop_next(e, from[i], offset[i]);
    em_loop_next(e, read, reading);
    em_loop_next(e, write, writing);
    em_end(e, &blocks);
    gpu_keep_loop(e, &blocks);
    fma_wait(c, 0);
    gpu_barrier(e); /* the results take the place of the operands */
    several = em_if(e, b->is_several);
    for (int i = 0; i < n; i++) now[i] = add(c, sum_access(c, i, NULL), sum[i]);
    LLVMBasicBlockRef then = LLVMGetInsertBlock(e->b);
    em_endif(e, &several);
    for (int i = 0; i < n; i++) {
        total[i] = LLVMBuildPhi(e->b, c->t_acc, "");
        LLVMAddIncoming(total[i], (LLVMValueRef[]){now[i], sum[i]}, (LLVMBasicBlockRef[]){then, several.other}, 2);
    }
}

/* ---- results ---- */
static void store_result(contract *c, LLVMValueRef m, LLVMValueRef n, LLVMValueRef total) {
    emit *e = c->e;
    const ir_kernel *k = c->k;
    fma_point at = {c, {m, n, NULL}};
    em_values v;
    em_values_init(&v, fma_load, &at);
    v.at[c->matmul] = em_cast(e, total, c->acc, k->inst[c->matmul].dtype);
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE) em_value(e, &v, i);
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE)
            em_store(e, k->inst[i].index, em_value(e, &v, i), fma_offset(&at, k->inst[i].index), num(c, 1), NULL);
}

static int warp_rows(const contract *c) { return LANES_Y * c->t->thread_rows; }
static int warp_columns(const contract *c) { return LANES_X * c->t->thread_columns; }

/* Rows of one row of warps at a time come into shared memory, and are stored by all threads. */
static void emit_results(contract *c, LLVMValueRef *total) {
    emit *e = c->e;
    const contract around = *c;
    fma_unpark(c);
    const int rows = warp_rows(c), columns = c->t->columns;
    em_loop w = em_for(e, num(c, 0), num(c, c->t->rows), num(c, rows));
    em_branch mine = em_if(e, em_icmp(e, LLVMIntEQ, c->warp_row, w.i));
    LLVMValueRef row = em_mul(e, c->lane_y, num(c, row_vec(c))),
                 column = em_add(e, c->warp_column, em_mul(e, c->lane_x, num(c, column_vec(c))));
    LLVMValueRef to = element(c, c->shared, em_add(e, em_mul(e, row, num(c, columns)), column));
    for (int i = 0; i < count(c); i++)
        store(c, total[i],
              element(c, to,
                      num(c, row_of(c, i / c->t->thread_columns) * columns + column_of(c, i % c->t->thread_columns))));
    em_endif(e, &mine);
    gpu_barrier(e);
    em_loop l = em_for(e, c->thread, num(c, rows * columns), num(c, IR_GPU_THREADS));
    LLVMValueRef m = em_add(e, em_add(e, c->first[0], w.i), LLVMBuildUDiv(e->b, l.i, num(c, columns), "")),
                 n = em_add(e, c->first[1], em_and(e, l.i, num(c, columns - 1)));
    em_branch inside = em_if(e, em_and(e, em_icmp(e, LLVMIntSLT, m, c->s.size[IR_GPU_ROWS]),
                                       em_icmp(e, LLVMIntSLT, n, c->s.size[IR_GPU_COLUMNS])));
    store_result(c, m, n, load(c, element(c, c->shared, l.i)));
    em_endif(e, &inside);
    em_end(e, &l);
    gpu_keep_loop(e, &l);
    gpu_barrier(e); /* before the next rows, or operands */
    em_end(e, &w);
    gpu_keep_loop(e, &w);
    *c = around;
}

/* ---- blocks of threads ---- */
/* Lanes 2 by 8, and so again: of a half of the warp neighbours read the same columns, and every other one the same
 * rows, so that 16 bytes a lane of either take shared memory two turns (8 by 4 in order: four, of the columns). */
static void lay_lanes(contract *c) {
    emit *e = c->e;
    LLVMValueRef lane = em_and(e, c->thread, num(c, IR_GPU_WARP - 1));
    c->lane_x = em_and(e, em_lshr(e, lane, 1), num(c, LANES_X - 1));
    c->lane_y = em_or(e, em_and(e, lane, num(c, 1)), em_and(e, em_lshr(e, lane, 3), num(c, LANES_Y - 2)));
}

static void emit_tile(contract *c, LLVMValueRef parts) {
    emit *e = c->e;
    const ir_gpu_fma_tile *t = c->t;
    const int kb = c->k->tile.kb, tile = t->rows * t->columns;
    LLVMValueRef batches = c->s.size[IR_GPU_BATCHES], kk = c->s.size[IR_GPU_PRODUCTS], total[FMA_PART_MAX];
    LLVMValueRef warp = em_lshr(e, c->thread, 5);
    lay_lanes(c);
    c->warp_row = em_mul(e, LLVMBuildUDiv(e->b, warp, num(c, t->warps_n), ""), num(c, warp_rows(c)));
    c->warp_column = em_mul(e, em_and(e, warp, num(c, t->warps_n - 1)), num(c, warp_columns(c)));
    fma_lay_out(c);
    LLVMValueRef rows = ceil_div(c, c->s.size[IR_GPU_ROWS], t->rows),
                 columns = ceil_div(c, c->s.size[IR_GPU_COLUMNS], t->columns);
    /* one number says which tile, so that little is kept while products are made */
    LLVMValueRef tiles = em_mul(e, rows, columns), all = em_mul(e, em_mul(e, batches, tiles), parts);
    em_loop l = em_for(e, gpu_special(e, "ctaid.x"), all, gpu_special(e, "nctaid.x"));
    LLVMValueRef part = LLVMBuildURem(e->b, l.i, parts, ""), number = LLVMBuildUDiv(e->b, l.i, parts, "");
    LLVMValueRef row = LLVMBuildUDiv(e->b, number, columns, "");
    c->first[1] = em_mul(e, LLVMBuildURem(e->b, number, columns, ""), num(c, t->columns));
    c->first[0] = em_mul(e, LLVMBuildURem(e->b, row, rows, ""), num(c, t->rows));
    enter_batch(c, LLVMBuildUDiv(e->b, row, rows, ""));
    /* K blocks of a part */
    LLVMValueRef blocks = ceil_div(c, kk, kb), each = em_sub(e, em_add(e, blocks, parts), num(c, 1));
    each = em_mul(e, LLVMBuildUDiv(e->b, each, parts, ""), num(c, kb));
    block b = {.k_begin = em_mul(e, part, each)};
    c->k_end = smaller_of(c, kk, em_add(e, b.k_begin, each));
    b.is_split = em_icmp(e, LLVMIntSGT, parts, num(c, 1));
    b.is_several = em_and(e, em_icmp(e, LLVMIntEQ, parts, num(c, 1)), em_icmp(e, LLVMIntSGT, kk, num(c, kb)));
    c->scratch = em_mul(e, number, num(c, tile));
    c->scratch_step = em_mul(e, em_mul(e, batches, tiles), num(c, tile));
    fma_begin_tile(c);
    fma_park(c);
    sum_up(c, &b, total);
    em_branch whole = em_if(e, b.is_split);
    em_else(e, &whole);
    emit_results(c, total);
    em_endif(e, &whole);
    em_end(e, &l);
}

/* Quotient and remainder of numbers below 2^31: of the tiles that are cut into parts there are few. */
static LLVMValueRef small_div(contract *c, LLVMValueRef x, LLVMValueRef by, LLVMValueRef *rest) {
    emit *e = c->e;
    LLVMValueRef a = LLVMBuildTrunc(e->b, x, e->t_i32, ""), b = LLVMBuildTrunc(e->b, by, e->t_i32, "");
    LLVMValueRef q = LLVMBuildUDiv(e->b, a, b, "");
    *rest = LLVMBuildZExt(e->b, em_sub(e, a, em_mul(e, q, b)), e->t_i64, "");
    return LLVMBuildZExt(e->b, q, e->t_i64, "");
}

/* Adds the K blocks of vec adjacent columns, which are of one tile. */
static LLVMValueRef add_blocks(contract *c, LLVMValueRef first, LLVMValueRef step) {
    emit *e = c->e;
    LLVMTypeRef type = LLVMVectorType(c->t_acc, (unsigned)c->vec);
    em_loop b = em_for(e, num(c, 0), ceil_div(c, c->s.size[IR_GPU_PRODUCTS], c->k->tile.kb), num(c, 1));
    LLVMValueRef total = em_loop_phi(e, &b, LLVMConstNull(type));
    LLVMValueRef at = element(c, e->scratch, em_add(e, first, em_mul(e, b.i, step)));
    LLVMValueRef more = LLVMBuildLoad2(e->b, type, at, "");
    LLVMSetAlignment(more, 16);
    em_loop_next(e, total, add(c, total, more));
    em_end(e, &b);
    return total;
}

/* The second launch: a thread adds the K blocks of vec columns of a row. */
static void emit_sums(contract *c) {
    emit *e = c->e;
    const ir_gpu_fma_tile *t = c->t;
    LLVMValueRef mm = c->s.size[IR_GPU_ROWS], nn = c->s.size[IR_GPU_COLUMNS], batches = c->s.size[IR_GPU_BATCHES];
    LLVMValueRef rows = ceil_div(c, mm, t->rows), columns = ceil_div(c, nn, t->columns),
                 groups = ceil_div(c, nn, c->vec);
    gpu_span x = gpu_threads(e, 'x');
    em_loop l = em_for(e, x.first, em_mul(e, em_mul(e, batches, mm), groups), x.step);
    LLVMValueRef group, m, row = small_div(c, l.i, groups, &group), batch = small_div(c, row, mm, &m);
    LLVMValueRef n = em_mul(e, group, num(c, c->vec));
    enter_batch(c, batch);
    LLVMValueRef tiles = em_mul(e, rows, columns), tile = num(c, t->rows * t->columns);
    LLVMValueRef number = em_add(e, em_mul(e, LLVMBuildUDiv(e->b, m, num(c, t->rows), ""), columns),
                                 LLVMBuildUDiv(e->b, n, num(c, t->columns), ""));
    LLVMValueRef in_tile = em_add(e, em_mul(e, em_and(e, m, num(c, t->rows - 1)), num(c, t->columns)),
                                  em_and(e, n, num(c, t->columns - 1)));
    LLVMValueRef first = em_add(e, em_mul(e, em_add(e, em_mul(e, batch, tiles), number), tile), in_tile);
    LLVMValueRef total = add_blocks(c, first, em_mul(e, em_mul(e, batches, tiles), tile));
    for (int i = 0; i < c->vec; i++) {
        LLVMValueRef at = em_add(e, n, num(c, i));
        em_branch inside = em_if(e, em_icmp(e, LLVMIntSLT, at, nn));
        store_result(c, m, at, LLVMBuildExtractElement(e->b, total, num(c, i), ""));
        em_endif(e, &inside);
    }
    em_end(e, &l);
    gpu_keep_loop(e, &l);
}

/* Elements of shared memory: the stages of operands, or a row of warps' results. */
static int shared_elements(contract *c) {
    int most = 0;
    for (int i = 0; i < IR_GPU_FMA_TILES; i++) {
        const ir_gpu_fma_tile *t = c->t = &ir_gpu_fma_tiles[i];
        const int operands = fma_stages(c, t) * fma_stage_elements(t), results = warp_rows(c) * t->columns;
        if (!ir_gpu_fma_has(c->k, i)) continue;
        if (operands > most) most = operands;
        if (results > most) most = results;
    }
    return most;
}

fusor_status gpu_emit_contract(emit *e, fu_error *err) {
    (void)err; /* whatever ir_kernel_verify lets pass can be emitted */
    (ir_gpu_is_mma(e->k) ? gpu_emit_mma : gpu_emit_fma)(e);
    return FUSOR_OK;
}

void gpu_emit_fma(emit *e) {
    contract *c = FU_NEW(e->arena, contract);
    const ir_kernel *k = e->k;
    int most_products = 0;
    c->e = e;
    c->k = k;
    gpu_space_of(e, &c->s);
    for (int a = 0; a < 3; a++) c->dim[a] = c->s.of.dim[a][c->s.of.n[a] - 1];
    c->matmul = (int)(ir_kernel_matmul(k) - k->inst);
    c->acc = ir_kernel_contract_acc(k);
    c->t_acc = em_scalar_type(e, c->acc);
    c->vec = 16 / ir_dtypes[c->acc].bytes;
    for (int i = 0; i < IR_GPU_FMA_TILES; i++)
        if (ir_gpu_fma_has(k, i) && ir_gpu_fma_tiles[i].step > most_products) most_products = ir_gpu_fma_tiles[i].step;
    if (k->kind == IR_KERNEL_WINDOW) c->table = gpu_shared(e, e->t_i32, 2 * most_products);
    fma_find_operands(c);
    c->shared = gpu_shared(e, c->t_acc, shared_elements(c));
    c->thread = gpu_special(e, "tid.x");
    gpu_limit(e, IR_GPU_THREADS, c->acc == FUSOR_F32 ? 2 : 1); /* 128 registers */
    LLVMValueRef tile = gpu_word(e, IR_GPU_WORD_HOW), parts = gpu_word(e, IR_GPU_WORD_CHUNKS);
    c->local = em_alloca(e, LLVMArrayType2(e->t_i64, FMA_PART_MAX + 4 + (unsigned)k->n_buffers), 16);
    c->local = LLVMBuildAddrSpaceCast(e->b, c->local, LLVMPointerTypeInContext(e->ctx, LOCAL), "");
    for (int i = 0; i < IR_GPU_FMA_TILES; i++) {
        if (!ir_gpu_fma_has(k, i)) continue;
        em_branch is_tile = em_if(e, em_icmp(e, LLVMIntEQ, tile, num(c, i)));
        c->t = &ir_gpu_fma_tiles[i];
        em_branch phase = em_if(e, em_icmp(e, LLVMIntNE, e->phase, num(c, 0)));
        emit_sums(c);
        em_else(e, &phase);
        emit_tile(c, parts);
        em_endif(e, &phase);
        em_endif(e, &is_tile);
    }
}
