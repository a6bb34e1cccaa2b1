/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_mma.c: contractions on tensor cores: operands of 16 bits (sums in f32), or of 8 (i32);
 * in the fast tier f32, rounded to tf32. A block of threads makes one tile of the
 * result at a time, for one part of k:
 *
 *   pieces 0 .. stages - 2 of both operands -> shared memory (gpu_mma_load.c)
 *   for each piece: wait for it; barrier; the piece stages - 1 further is asked for, into the stage that was used last;
 *       fragments of 16 x 16 and 16 x 8 elements -> registers (ldmatrix), products (mma)
 *   accumulators -> shared memory -> epilogue -> results (gpu_mma_store.c)
 *
 * The code has a loop for each tile of ir_gpu_mma_tiles; the launch says which one runs. The order of an element's sum
 * is that of k, in groups as the instruction takes them, whatever the tile; parts of k come together in a second
 * launch. Tiles are numbered so that GROUP rows of them go through all columns together: what they read stays in the L2
 * cache. */
#include "jit/gpu_mma.h"
#include <stdio.h>
#include <string.h>

enum { GROUP = 8, MAX_FRAGMENTS = 8, STEP_BYTES = 32 /* along k, of an instruction */ };

LLVMValueRef mma_offset(const mma_point *at, int buffer) {
    mma *m = at->m;
    LLVMValueRef off = m->batch_off[buffer];
    for (ir_gpu_axis i = 0; i < 3; i++)
        if (at->x[i]) off = em_add(m->e, off, gpu_space_offset(m->e, &m->s, i, buffer, at->x[i]));
    return off;
}

LLVMValueRef mma_load_value(emit *e, em_values *v, const ir_kinst *inst, void *point) {
    const mma_point *at = point;
    const mma *m = at->m;
    if (inst->op == IR_K_LOAD) {
        LLVMValueRef step = at->lane_dim < 0 ? em_i64s(e, 0) : e->stride[inst->index][at->lane_dim];
        return em_load_value(e, v, inst, at->lane_dim, mma_offset(at, inst->index), step, NULL);
    }
    LLVMValueRef lane[IR_GPU_MMA_LANES], n = NULL;
    for (ir_gpu_axis i = 0; i < 3 && !n; i++)
        if (at->x[i]) n = gpu_space_index(e, &m->s, i, inst->index, at->x[i]);
    if (!n) n = m->index[inst->index];
    if (inst->index != at->lane_dim || e->lanes == 1) return em_splat(e, n);
    for (int i = 0; i < e->lanes; i++) lane[i] = em_i64s(e, i);
    return em_add(e, em_splat(e, n), LLVMConstVector(lane, (unsigned)e->lanes));
}

void mma_enter_batch(mma *m, LLVMValueRef number) {
    emit *e = m->e;
    m->batch = number;
    gpu_space_split(e, &m->s, IR_GPU_BATCHES, number, m->index);
    for (int b = 0; b < m->k->n_buffers; b++) m->batch_off[b] = gpu_space_offset(e, &m->s, IR_GPU_BATCHES, b, number);
}

/* ---- products ---- */
/* A warp's part of the tile: its accumulators, and where this lane's lines of the matrices of 8 x 8 elements lie in a
 * piece: without transposition one place for each step along k, with it one for each 16 rows (of 4-byte elements:
 * 8). */
typedef struct warp_tile {
    int rows[2], n[2]; /* of each operand; fragments: of 16 rows of operand 0, of 8 rows of operand 1 */
    int n_acc, steps;
    LLVMValueRef first[2], at[2][MAX_FRAGMENTS];
} warp_tile;

static void lay_out_matrices(mma *m, warp_tile *w, int o) {
    emit *e = m->e;
    const mma_operand *p = &m->operand[o];
    /* the lane's matrix of the four is lane / 8; which is further along k, and which along the rows */
    const bool is_k_first = o == 1;
    LLVMValueRef low = mma_bits(m, m->lane, 3, 1), high = mma_bits(m, m->lane, 4, 1),
                 in_eight = mma_bits(m, m->lane, 0, 3);
    LLVMValueRef along_k = is_k_first ? low : high, along_rows = is_k_first ? high : low;
    LLVMValueRef line = em_add(e, in_eight, em_shl(e, p->is_turned ? along_k : along_rows, 3));
    if (!p->is_turned) line = em_add(e, line, w->first[o]);
    LLVMValueRef begin = mma_add(m, em_mul(e, line, em_i32(e, p->line_bytes)), p->at), x = mma_permutation(m, p, line);
    for (int i = 0; i < (p->is_turned ? w->rows[o] / 16 : w->steps); i++) {
        LLVMValueRef chunk = mma_add(m, p->is_turned ? along_rows : along_k, 2 * i);
        if (p->is_turned) chunk = em_add(e, chunk, em_lshr(e, w->first[o], 3));
        w->at[o][i] = em_add(e, begin, em_shl(e, em_xor(e, chunk, x), 4));
    }
}

/* Nothing transposes words: lanes read single ones, four lines (k) and eight words of each at a time; a place for each
 * 8 rows. */
static void lay_out_words(mma *m, warp_tile *w, int o) {
    emit *e = m->e;
    const mma_operand *p = &m->operand[o];
    LLVMValueRef line = mma_bits(m, m->lane, 0, 2), row = em_add(e, w->first[o], em_lshr(e, m->lane, 2));
    LLVMValueRef begin = mma_add(m, em_mul(e, line, em_i32(e, p->line_bytes)), p->at), x = mma_permutation(m, p, line);
    begin = em_add(e, begin, em_shl(e, mma_bits(m, row, 0, 2), 2));
    for (int i = 0; i < w->rows[o] / 8; i++) {
        LLVMValueRef chunk = em_lshr(e, mma_add(m, row, 8 * i), 2);
        w->at[o][i] = em_add(e, begin, em_shl(e, em_xor(e, chunk, x), 4));
    }
}

static void lay_out_warp(mma *m, warp_tile *w) {
    emit *e = m->e;
    const ir_gpu_mma_tile *t = m->t;
    w->rows[0] = t->rows / t->warps_m;
    w->rows[1] = t->columns / t->warps_n;
    w->n[0] = w->rows[0] / 16;
    w->n[1] = w->rows[1] / 8;
    w->n_acc = w->n[0] * w->n[1] * 4;
    w->steps = t->k_bytes / STEP_BYTES;
    const int n_log = __builtin_ctz((unsigned)t->warps_n);
    w->first[0] = em_mul(e, em_lshr(e, m->warp, n_log), em_i32(e, w->rows[0]));
    w->first[1] = em_mul(e, mma_bits(m, m->warp, 0, n_log), em_i32(e, w->rows[1]));
    for (int o = 0; o < 2; o++)
        if (m->operand[o].is_turned && m->operand[o].bytes == 4) lay_out_words(m, w, o);
        else lay_out_matrices(m, w, o);
}

/* How many places of warp_tile.at there are. */
static int places(const mma *m, const warp_tile *w, int o) {
    const mma_operand *p = &m->operand[o];
    return p->is_turned ? w->rows[o] / (p->bytes == 4 ? 8 : 16) : w->steps;
}

/* f32 to tf32, to nearest. */
static LLVMValueRef to_tf32(mma *m, LLVMValueRef word) {
    LLVMValueRef x = LLVMBuildBitCast(m->e->b, word, m->e->t_f32, "");
    return gpu_call(m->e, "llvm.nvvm.f2tf32.rna", NULL, 0, &x, 1);
}

/* 16 rows of an operand, 32 bytes along k: four registers. */
static void load_fragment(mma *m, int o, LLVMValueRef stage[MAX_FRAGMENTS], int rows16, int step, LLVMValueRef out[4]) {
    emit *e = m->e;
    const mma_operand *p = &m->operand[o];
    if (p->is_turned && p->bytes == 4) {
        for (int i = 0; i < 4; i++) { /* operand 0: rows, then k; operand 1: k, then rows */
            int eight = o == 0 ? i & 1 : i >> 1, four_k = o == 0 ? i >> 1 : i & 1;
            LLVMValueRef at =
                em_gep(e, stage[2 * rows16 + eight], e->t_i8, mma_num(m, (8 * step + 4 * four_k) * p->line_bytes));
            out[i] = LLVMBuildLoad2(e->b, e->t_i32, at, "");
            LLVMSetAlignment(out[i], 4);
        }
    } else {
        LLVMValueRef at = em_gep(e, stage[p->is_turned ? rows16 : step], e->t_i8,
                                 mma_num(m, (p->is_turned ? 16 * step : 16 * rows16) * p->line_bytes));
        LLVMTypeRef type = LLVMTypeOf(at);
        LLVMValueRef all = gpu_call(e,
                                    p->is_turned ? "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16"
                                                 : "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16",
                                    &type, 1, &at, 1);
        for (unsigned i = 0; i < 4; i++) out[i] = LLVMBuildExtractValue(e->b, all, i, "");
    }
    for (int i = 0; i < 4 && p->bytes == 4; i++) out[i] = to_tf32(m, out[i]);
}

static void multiply(mma *m, const LLVMValueRef a[4], const LLVMValueRef b[2], LLVMValueRef acc[4]) {
    emit *e = m->e;
    const ir_kinst *inst = m->k->inst;
    ir_dtype ta = inst[m->operand[0].inst].dtype, tb = inst[m->operand[1].inst].dtype;
    LLVMValueRef in[10];
    for (int i = 0; i < 6; i++) in[i] = i < 4 ? a[i] : b[i - 4];
    for (int i = 0; i < 4; i++) in[6 + i] = acc[i];
    char name[64] = "llvm.nvvm.mma.m16n8k16.row.col.bf16";
    if (ta == FUSOR_F16) {
        LLVMTypeRef pair = LLVMVectorType(LLVMHalfTypeInContext(e->ctx), 2);
        snprintf(name, sizeof name, "llvm.nvvm.mma.m16n8k16.row.col.f32.f32");
        for (int i = 0; i < 6; i++) in[i] = LLVMBuildBitCast(e->b, in[i], pair, "");
    } else if (ta == FUSOR_F32) {
        snprintf(name, sizeof name, "llvm.nvvm.mma.m16n8k8.row.col.tf32");
    } else if (ta != FUSOR_BF16) {
        const char *sa = ir_is_signed(ta) ? "s8" : "u8", *sb = ir_is_signed(tb) ? "s8" : "u8";
        snprintf(name, sizeof name, "llvm.nvvm.mma.m16n8k32.row.col.%s%s%s", sa, ta == tb ? "" : ".",
                 ta == tb ? "" : sb);
    }
    LLVMValueRef out = gpu_call(e, name, NULL, 0, in, 10);
    for (unsigned i = 0; i < 4; i++) acc[i] = LLVMBuildExtractValue(e->b, out, i, "");
}

static void multiply_piece(mma *m, const warp_tile *w, LLVMValueRef stage, LLVMValueRef *acc) {
    emit *e = m->e;
    LLVMValueRef at[2][MAX_FRAGMENTS], a[MAX_FRAGMENTS][4], b[MAX_FRAGMENTS][2];
    for (int o = 0; o < 2; o++)
        for (int i = 0; i < places(m, w, o); i++) at[o][i] = mma_at(m, em_add(e, stage, w->at[o][i]));
    for (int s = 0; s < w->steps; s++) {
        for (int i = 0; i < w->n[0]; i++) load_fragment(m, 0, at[0], i, s, a[i]);
        for (int j = 0; j < w->n[1]; j += 2) {
            LLVMValueRef four[4];
            load_fragment(m, 1, at[1], j / 2, s, four);
            for (int c = 0; c < 4; c++) b[j + c / 2][c % 2] = four[c];
        }
        for (int i = 0; i < w->n[0]; i++)
            for (int j = 0; j < w->n[1]; j++) multiply(m, a[i], b[j], &acc[4 * (i * w->n[1] + j)]);
    }
}

/* ---- the loop along k ---- */
LLVMValueRef mma_next_stage(mma *m, LLVMValueRef stage) {
    emit *e = m->e;
    LLVMValueRef next = mma_add(m, stage, m->stage_bytes), end = em_i32(e, m->stage_bytes * m->t->stages);
    return em_select(e, em_icmp(e, LLVMIntEQ, next, end), em_i32(e, 0), next);
}

/* One more piece of both operands; from[]: where this thread's copies begin, and then those of the next. */
void mma_load_pieces(mma *m, LLVMValueRef stage, LLVMValueRef k, LLVMValueRef from[2]) {
    for (int o = 0; o < 2; o++) {
        const mma_operand *p = &m->operand[o];
        if (p->is_gathered) continue;
        mma_load_piece(m, o, stage, k, from[o]);
        if (p->first) from[o] = em_gep(m->e, from[o], m->e->t_i8, p->step);
    }
    gpu_commit_copies(m->e);
}

void mma_begin_from(mma *m, em_loop *l, LLVMValueRef from[2]) {
    for (int o = 0; o < 2; o++)
        if (m->operand[o].first) from[o] = em_loop_phi(m->e, l, from[o]);
}

void mma_next_from(mma *m, LLVMValueRef phi[2], LLVMValueRef next[2]) {
    for (int o = 0; o < 2; o++)
        if (m->operand[o].first) em_loop_next(m->e, phi[o], next[o]);
}

void mma_fill_stages(mma *m, int pieces, LLVMValueRef from[2]) {
    emit *e = m->e;
    LLVMValueRef now[2], next[2], k_step = mma_num(m, m->operand[0].k);
    for (int o = 0; o < 2; o++) {
        mma_begin_copies(m, o);
        from[o] = m->operand[o].first;
    }
    if (m->operand[1].is_gathered) mma_fill_table(m, m->k_begin);
    em_loop fill = em_for(e, mma_num(m, 0), mma_num(m, pieces), mma_num(m, 1));
    if (m->operand[1].is_gathered) gpu_barrier(e); /* for the table */
    memcpy(now, from, sizeof now);
    mma_begin_from(m, &fill, now);
    memcpy(next, now, sizeof next);
    LLVMValueRef stage = em_mul(e, mma_i32(m, fill.i), em_i32(e, m->stage_bytes)),
                 k = em_add(e, m->k_begin, em_mul(e, fill.i, k_step));
    mma_load_pieces(m, stage, k, next);
    mma_gather(m, stage, k);
    mma_put_gathered(m, stage, k);
    mma_next_from(m, now, next);
    em_end(e, &fill);
    memcpy(from, now, sizeof now);
}

static void emit_tile(mma *m, int tile) {
    emit *e = m->e;
    warp_tile w;
    m->t = &ir_gpu_mma_tiles[tile];
    m->n_threads = ir_gpu_mma_threads(m->k, tile);
    mma_lay_out(m, ir_gpu_mma_is_wgmma(tile));
    if (ir_gpu_mma_is_wgmma(tile)) {
        mma_emit_wgmma(m);
        return;
    }
    lay_out_warp(m, &w);
    LLVMValueRef from[2], now[2], next[2], *acc = FU_NEW_N(e->arena, LLVMValueRef, 2 * w.n_acc);
    LLVMValueRef *sum = acc + w.n_acc, k_step = mma_num(m, m->operand[0].k);
    const int ahead = m->t->stages - 1;
    mma_fill_stages(m, ahead, from);
    em_loop l = em_for(e, m->k_begin, m->k_end, k_step);
    LLVMValueRef read = em_loop_phi(e, &l, em_i32(e, 0)), write = em_loop_phi(e, &l, em_i32(e, ahead * m->stage_bytes));
    memcpy(now, from, sizeof now);
    mma_begin_from(m, &l, now);
    for (int i = 0; i < w.n_acc; i++) acc[i] = sum[i] = em_loop_phi(e, &l, LLVMConstNull(m->t_acc));
    gpu_wait_for_copies(e, ahead - 1);
    gpu_barrier(e);
    memcpy(next, now, sizeof next);
    LLVMValueRef k = em_add(e, l.i, mma_num(m, ahead * m->operand[0].k));
    mma_load_pieces(m, write, k, next);
    mma_gather(m, write, k);
    multiply_piece(m, &w, read, sum);
    mma_put_gathered(m, write, k);
    for (int i = 0; i < w.n_acc; i++) em_loop_next(e, acc[i], sum[i]);
    em_loop_next(e, read, mma_next_stage(m, read));
    em_loop_next(e, write, mma_next_stage(m, write));
    mma_next_from(m, now, next);
    em_end(e, &l);
    gpu_wait_for_copies(e, 0);
    gpu_barrier(e); /* the results take the place of the operands */
    mma_stage_result(m, acc, w.n[0], w.n[1], w.first[0], em_lshr(e, w.first[1], 3));
}

/* ---- blocks ---- */
/* Where tile `number` of the result is. */
static void find_tile(mma *m, LLVMValueRef number, LLVMValueRef tiles_m, LLVMValueRef tiles_n) {
    emit *e = m->e;
    LLVMValueRef group = em_i32(e, m->group), of_group = em_mul(e, tiles_n, group);
    LLVMValueRef first = em_mul(e, LLVMBuildUDiv(e->b, number, of_group, ""), group);
    LLVMValueRef in_group = LLVMBuildURem(e->b, number, of_group, ""), rows = em_sub(e, tiles_m, first);
    rows = em_select(e, em_icmp(e, LLVMIntULT, rows, group), rows, group);
    LLVMValueRef row = em_add(e, first, LLVMBuildURem(e->b, in_group, rows, ""));
    m->m0 = LLVMBuildShl(e->b, mma_i64(m, row), m->rows_log, "");
    m->n0 = LLVMBuildShl(e->b, mma_i64(m, LLVMBuildUDiv(e->b, in_group, rows, "")), m->columns_log, "");
}

static LLVMValueRef tiles_along(mma *m, ir_gpu_axis axis, LLVMValueRef log) {
    emit *e = m->e;
    LLVMValueRef most = em_sub(e, LLVMBuildShl(e->b, mma_num(m, 1), log, ""), mma_num(m, 1));
    return LLVMBuildLShr(e->b, em_add(e, m->s.size[axis], most), log, "");
}

void mma_count_tiles(mma *m) {
    emit *e = m->e;
    const int bytes = m->operand[0].bytes;
    LLVMValueRef k = m->s.size[IR_GPU_PRODUCTS], unit = mma_num(m, IR_GPU_MMA_SPLIT / bytes);
    m->tiles_m = tiles_along(m, IR_GPU_ROWS, m->rows_log);
    m->tiles_n = tiles_along(m, IR_GPU_COLUMNS, m->columns_log);
    m->tiles = em_mul(e, m->tiles_m, m->tiles_n);
    m->length = LLVMBuildUDiv(e->b, em_add(e, k, em_sub(e, m->parts, mma_num(m, 1))), m->parts, "");
    m->length = em_add(e, m->length, em_sub(e, unit, mma_num(m, 1)));
    m->length = em_and(e, m->length, mma_num(m, -(IR_GPU_MMA_SPLIT / bytes)));
}

void mma_enter_tile(mma *m, LLVMValueRef part, LLVMValueRef number) {
    emit *e = m->e;
    m->part = part;
    find_tile(m, mma_i32(m, number), mma_i32(m, m->tiles_m), mma_i32(m, m->tiles_n));
    m->k_begin = em_mul(e, part, m->length);
    m->k_end = em_add(e, m->k_begin, m->length);
    m->k_end = em_min(e, m->k_end, m->s.size[IR_GPU_PRODUCTS]);
}

/* The tiles without roles, all of whose threads copy and multiply. */
static void emit_products(mma *m, const int *tile, int n_tiles) {
    emit *e = m->e;
    mma_count_tiles(m);
    em_loop lb = em_for(e, gpu_special(e, "ctaid.y"), m->s.size[IR_GPU_BATCHES], gpu_special(e, "nctaid.y"));
    mma_enter_batch(m, lb.i);
    em_loop lt = em_for(e, gpu_special(e, "ctaid.x"), em_mul(e, m->tiles, m->parts), gpu_special(e, "nctaid.x"));
    mma_enter_tile(m, LLVMBuildUDiv(e->b, lt.i, m->tiles, ""), LLVMBuildURem(e->b, lt.i, m->tiles, ""));
    em_branch b[IR_GPU_MMA_TILES];
    for (int i = 0; i < n_tiles - 1; i++) {
        b[i] = em_if(e, em_icmp(e, LLVMIntEQ, m->tile, mma_num(m, tile[i])));
        emit_tile(m, tile[i]);
        em_else(e, &b[i]);
    }
    emit_tile(m, tile[n_tiles - 1]);
    for (int i = n_tiles - 2; i >= 0; i--) em_endif(e, &b[i]);
    gpu_barrier(e);
    mma_emit_epilogue(m);
    gpu_barrier(e); /* before the next tile's operands */
    em_end(e, &lt);
    em_end(e, &lb);
}

/* log2 of the rows or columns of the launch's tile, one of these. */
static LLVMValueRef of_tile(mma *m, const int *tile, int n_tiles, bool is_columns) {
    LLVMValueRef log = NULL;
    for (int i = n_tiles - 1; i >= 0; i--) {
        const ir_gpu_mma_tile *t = &ir_gpu_mma_tiles[tile[i]];
        LLVMValueRef own = mma_num(m, __builtin_ctz((unsigned)(is_columns ? t->columns : t->rows)));
        log = log ? em_select(m->e, em_icmp(m->e, LLVMIntEQ, m->tile, mma_num(m, tile[i])), own, log) : own;
    }
    return log;
}

static void choose_among(mma *m, const int *tile, int n_tiles) {
    m->rows_log = of_tile(m, tile, n_tiles, false);
    m->columns_log = of_tile(m, tile, n_tiles, true);
}

/* Of tiles whose warps have roles each has loops of its own. */
static void emit_first_launch(mma *m) {
    emit *e = m->e;
    int with_roles[IR_GPU_MMA_TILES], without[IR_GPU_MMA_TILES], n_with = 0, n_without = 0;
    for (int i = 0; i < IR_GPU_MMA_TILES; i++) {
        if (!ir_gpu_mma_has_tile(m->k, i)) continue;
        if (ir_gpu_mma_has_roles(m->k, i)) with_roles[n_with++] = i;
        else without[n_without++] = i;
    }
    em_branch b[IR_GPU_MMA_TILES];
    if (n_with) gpu_limit(e, ir_gpu_mma_threads(m->k, with_roles[0]), 1);
    for (int i = 0; i < n_with; i++) {
        const bool is_last = i == n_with - 1 && !n_without;
        if (!is_last) b[i] = em_if(e, em_icmp(e, LLVMIntEQ, m->tile, mma_num(m, with_roles[i])));
        choose_among(m, &with_roles[i], 1);
        m->t = &ir_gpu_mma_tiles[with_roles[i]];
        m->group = GROUP * m->t->columns / m->t->rows; /* what blocks make at a time is nearly a square */
        mma_emit_roles(m);
        if (!is_last) em_else(e, &b[i]);
    }
    if (n_without) {
        choose_among(m, without, n_without);
        m->group = GROUP;
        emit_products(m, without, n_without);
    }
    for (int i = n_with - (n_without ? 1 : 2); i >= 0; i--) em_endif(e, &b[i]);
}

void gpu_emit_mma(emit *e) {
    mma *m = FU_NEW(e->arena, mma);
    const ir_kernel *k = m->k = e->k;
    m->e = e;
    gpu_space_of(e, &m->s);
    for (int a = 0; a < 3; a++) m->dim[a] = m->s.of.dim[a][m->s.of.n[a] - 1];
    m->matmul = (int)(ir_kernel_matmul(k) - k->inst);
    m->acc = ir_kernel_contract_acc(k);
    m->t_acc = em_scalar_type(e, m->acc);
    for (int o = 0; o < 2; o++) {
        int inst = k->inst[m->matmul].in[o];
        m->operand[o] = (mma_operand){.inst = inst,
                                      .row_dim = m->dim[o],
                                      .bytes = ir_dtypes[k->inst[inst].dtype].bytes,
                                      .lanes = 16 / ir_dtypes[k->inst[inst].dtype].bytes,
                                      .buffer = ir_gpu_mma_buffer(k, o),
                                      .is_turned = ir_gpu_mma_is_turned(k, o),
                                      .has_vectors = ir_gpu_mma_has_vectors(k, o),
                                      .is_gathered = ir_gpu_mma_is_gathered(k, o)};
    }
    m->shared = gpu_dynamic_shared(e);
    m->thread = mma_i32(m, gpu_special(e, "tid.x"));
    m->lane = mma_bits(m, m->thread, 0, 5);
    m->warp = em_lshr(e, m->thread, 5);
    m->threads = gpu_special(e, "ntid.x");
    m->flags = gpu_word(e, IR_GPU_WORD_HOW);
    m->tile = em_lshr(e, m->flags, IR_GPU_MMA_TILE);
    m->parts = gpu_word(e, IR_GPU_WORD_CHUNKS);
    if (m->operand[1].is_gathered) gpu_limit(e, IR_GPU_THREADS, 1);
    if (k->only_tile && ir_gpu_mma_has_roles(k, k->only_tile - 1)) { /* k has one part: no second launch */
        emit_first_launch(m);
        return;
    }
    em_branch b = em_if(e, em_icmp(e, LLVMIntEQ, e->phase, mma_num(m, 0)));
    emit_first_launch(m);
    em_else(e, &b);
    mma_emit_sums(m);
    em_endif(e, &b);
}
