/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_attention_few.c: attention of few queries (decoding) by tensor cores, limited by the memory that keys and values
 * are read from. A block of threads has 16 rows: the queries of a head and of all heads that share its keys; so
 * nothing is read once a head. Each of its four warps goes over its own keys, 16 at a time, with results, largest scores
 * and sums of its own, which are joined through shared memory at the end:
 *
 *   rows of queries -> fragments in registers, for all keys
 *   for each 16 keys: their rows and those of the values -> registers, 16 bytes at a time; scores; weights
 *       (gpu_attention_weights.c), which are fragments of the second product as they lie; results
 *
 * No operand goes through shared memory. What is summed may come in any order, if it is the same for both operands: of 32
 * elements of the head a lane has 8 that lie side by side, for two products of 16. Columns of the results likewise: of 64
 * a lane reads 8 side by side, one of each of 8 products; pairs of keys are put together in registers. */
#include "jit/gpu_attention.h"
#include <string.h>

enum {
    ROWS = IR_GPU_ATTENTION_FEW,
    WARPS = IR_GPU_ATTENTION_THREADS / IR_GPU_WARP,
    KEYS = IR_GPU_ATTENTION_FEW_KEYS / WARPS, /* of a warp at a time */
    TILES = KEYS / 8,
    CHUNK = 32, /* elements of the head that four lanes read */
    PIECE = 64, /* columns that eight lanes read */
    PAD = 4,    /* floats behind a row of results in shared memory */
    MAX_CHUNKS = 128 / CHUNK,
    MAX_PIECES = 128 / PIECE
};

typedef struct few {
    flash *f;
    emit *e;
    flash_weights w;
    int chunks, pieces;
    LLVMValueRef lane_row, lane_x, warp;    /* i32: lane / 4, lane % 4 */
    LLVMValueRef rows;                      /* i64: of queries, of a batch of keys */
    LLVMValueRef first_batch, row0;         /* of the block: number of the batch of its first head; its first row */
    LLVMValueRef length;                    /* i32: keys of the part that any query sees */
    LLVMValueRef query[2][MAX_CHUNKS][4];   /* words of 2 halves of the thread's rows */
    LLVMValueRef key_at, value_at;          /* the part's first key, and its values */
    LLVMValueRef result[MAX_PIECES * 8][4]; /* tiles */
} few;

static int pieces_of(const flash *f) { return ((int)f->a.k->dim[f->a.at.n].size + PIECE - 1) / PIECE; }
int flash_few_elements(const flash *f) { return WARPS * ROWS * (PIECE * pieces_of(f) + PAD + 2); }

static LLVMValueRef num(few *g, int64_t v) { return flash_num(g->f, v); }
static LLVMValueRef wide(few *g, LLVMValueRef v) { return LLVMBuildZExt(g->e->b, v, g->e->t_i64, ""); }
static LLVMValueRef narrow(few *g, LLVMValueRef v) { return LLVMBuildTrunc(g->e->b, v, g->e->t_i32, ""); }

/* Row of a batch of keys -> head, from the batch's first on, and query. */
static void split_row(few *g, LLVMValueRef row, LLVMValueRef *head, LLVMValueRef *query) {
    emit *e = g->e;
    *head = num(g, 0);
    *query = row;
    if (g->f->a.at.g < 0) return;
    *head = LLVMBuildUDiv(e->b, row, em_max(e, g->f->a.n_queries, num(g, 1)), "");
    *query = em_sub(e, row, em_mul(e, *head, g->f->a.n_queries));
}

static LLVMValueRef half_at(few *g, LLVMValueRef base, LLVMValueRef i) { return em_gep(g->e, base, g->e->t_i16, i); }

/* ---- operands ---- */
static LLVMValueRef element_of(few *g, int inst, int dim, LLVMValueRef i) {
    return em_mul(g->e, i, g->e->stride[g->f->a.k->inst[inst].index][dim]);
}

static LLVMValueRef operand_at(few *g, int inst) {
    const int buffer = g->f->a.k->inst[inst].index;
    return half_at(g, g->e->base[buffer], g->f->a.batch_off[buffer]);
}

/* What a lane has of a row of `size` elements: n times 16 bytes as words, at `column` (i32) of every `width` elements; zeros
 * behind the row's end, and where not `is_there` (NULL: it is). */
static void load_row(few *g, LLVMValueRef row, LLVMValueRef column, int width, int64_t size, LLVMValueRef is_there,
                     int n, LLVMValueRef word[][4]) {
    emit *e = g->e;
    for (int c = 0; c < n; c++) {
        LLVMValueRef at = column, is_inside = is_there;
        if (width * (c + 1) > size) { /* some lanes have none: they read the first ones */
            LLVMValueRef i = em_add(e, column, em_i32(e, width * c));
            LLVMValueRef in_row = em_icmp(e, LLVMIntSLT, i, em_i32(e, (int)size));
            at = em_select(e, in_row, column, em_i32(e, 0));
            is_inside = is_there ? em_and(e, is_there, in_row) : in_row;
        }
        at = half_at(g, half_at(g, row, wide(g, at)), num(g, width * c));
        LLVMValueRef v = LLVMBuildLoad2(e->b, LLVMVectorType(e->t_i32, 4), at, "");
        LLVMSetAlignment(v, 16);
        for (int i = 0; i < 4; i++) {
            word[c][i] = LLVMBuildExtractElement(e->b, v, em_i32(e, i), "");
            if (is_inside) word[c][i] = em_select(e, is_inside, word[c][i], em_i32(e, 0));
        }
    }
}

/* Of the head, of a query's or key's row. */
static void load_head(few *g, LLVMValueRef row, LLVMValueRef word[][4]) {
    const int64_t size = g->f->a.k->dim[g->f->a.at.k].size;
    load_row(g, row, em_shl(g->e, g->lane_x, 3), CHUNK, size, NULL, g->chunks, word);
}

static void load_queries(few *g, LLVMValueRef query[2], LLVMValueRef head[2]) {
    flash *f = g->f;
    emit *e = g->e;
    for (int r = 0; r < 2; r++) {
        LLVMValueRef off = element_of(g, f->a.q, f->a.at.m, query[r]);
        if (f->a.at.g >= 0) off = em_add(e, off, element_of(g, f->a.q, f->a.at.h, head[r]));
        load_head(g, half_at(g, operand_at(g, f->a.q), off), g->query[r]);
    }
}

/* Row `key` (i32) of the part, or its last one. */
static LLVMValueRef key_row(few *g, int inst, LLVMValueRef first, LLVMValueRef key) {
    LLVMValueRef last = em_sub(g->e, g->length, em_i32(g->e, 1));
    return half_at(g, first, element_of(g, inst, g->f->a.at.j, wide(g, em_min(g->e, key, last))));
}

/* Keys j + 8 * t + lane_row, all of the head. */
static void load_keys(few *g, LLVMValueRef j, LLVMValueRef word[TILES][MAX_CHUNKS][4]) {
    emit *e = g->e;
    for (int t = 0; t < TILES; t++) {
        LLVMValueRef key = em_add(e, em_add(e, j, em_i32(e, 8 * t)), g->lane_row);
        load_head(g, key_row(g, g->f->a.keys, g->key_at, key), word[t]);
    }
}

/* Which of a lane's four keys of 16. */
static int value_key(int i) { return i / 2 * 8 + i % 2; }

/* Values of the keys j + 2 * lane_x + value_key(i), 8 columns of each piece. */
static void load_values(few *g, LLVMValueRef j, LLVMValueRef word[4][MAX_PIECES][4]) {
    flash *f = g->f;
    emit *e = g->e;
    LLVMValueRef column = em_shl(e, g->lane_row, 3), own = em_add(e, j, em_shl(e, g->lane_x, 1));
    for (int i = 0; i < 4; i++) {
        LLVMValueRef key = em_add(e, own, em_i32(e, value_key(i))), is_key = em_icmp(e, LLVMIntSLT, key, g->length);
        load_row(g, key_row(g, f->a.v, g->value_at, key), column, PIECE, f->a.k->dim[f->a.at.n].size, is_key, g->pieces,
                 word[i]);
    }
}

/* ---- products ---- */
static void make_scores(few *g, LLVMValueRef key[TILES][MAX_CHUNKS][4]) {
    for (int t = 0; t < TILES; t++) {
        LLVMValueRef *c = g->w.score + 4 * t;
        for (int i = 0; i < 4; i++) c[i] = em_f32(g->e, 0);
        for (int s = 0; s < 2 * g->chunks; s++) {
            LLVMValueRef *q0 = g->query[0][s / 2] + s % 2 * 2, *q1 = g->query[1][s / 2] + s % 2 * 2;
            flash_multiply(g->f, (LLVMValueRef[4]){q0[0], q1[0], q0[1], q1[1]}, key[t][s / 2] + s % 2 * 2, c);
        }
    }
}

/* The low (or high) halves of two words. */
static LLVMValueRef halves(few *g, LLVMValueRef x, LLVMValueRef y, bool is_high) {
    emit *e = g->e;
    LLVMValueRef in[3] = {x, y, em_i32(e, is_high ? 0x7632 : 0x5410)};
    return gpu_call(e, "llvm.nvvm.prmt", NULL, 0, in, 3);
}

static void add_values(few *g, LLVMValueRef part[2][FLASH_SCORES / 2], LLVMValueRef value[4][MAX_PIECES][4]) {
    for (int p = 0; p < g->pieces; p++)
        for (int t = 0; t < 8; t++) {
            LLVMValueRef b[2];
            for (int i = 0; i < 2; i++) b[i] = halves(g, value[2 * i][p][t / 2], value[2 * i + 1][p][t / 2], t % 2);
            for (int k = 0; k < 2; k++) flash_multiply(g->f, part[k], b, g->result[8 * p + t]);
        }
}

static void multiply_results(few *g) {
    emit *e = g->e;
    LLVMValueRef was[MAX_PIECES * 8 * 4], now[MAX_PIECES * 8 * 4];
    const int n = g->pieces * 8 * 4;
    memcpy(was, g->result, sizeof was);
    em_branch b = em_if(e, g->w.is_moved);
    for (int i = 0; i < n; i++) now[i] = em_fmul(e, was[i], g->w.factor[flash_row_of(i)]);
    flash_join(g->f, &b, now, was, n);
    memcpy(g->result, now, (size_t)n * sizeof *now);
}

static void add_keys(few *g, LLVMValueRef j) {
    LLVMValueRef key[TILES][MAX_CHUNKS][4], value[4][MAX_PIECES][4], part[2][FLASH_SCORES / 2];
    load_keys(g, j, key);
    load_values(g, j, value);
    if (g->w.has_mask) flash_load_mask(&g->w, em_add(g->e, g->w.first, wide(g, j)));
    make_scores(g, key);
    flash_weigh(&g->w, j);
    multiply_results(g);
    flash_split(&g->w, part);
    add_values(g, part, value);
}

static void add_all_keys(few *g) {
    emit *e = g->e;
    LLVMValueRef result[MAX_PIECES * 8 * 4], reference[2], sum[2];
    const int n = g->pieces * 8 * 4;
    em_loop l = em_for(e, em_mul(e, g->warp, em_i32(e, KEYS)), g->length, em_i32(e, IR_GPU_ATTENTION_FEW_KEYS));
    for (int i = 0; i < n; i++) g->result[i / 4][i % 4] = result[i] = em_loop_phi(e, &l, em_f32(e, 0));
    for (int r = 0; r < 2; r++) {
        g->w.reference[r] = reference[r] = em_loop_phi(e, &l, em_f32(e, __builtin_inf()));
        g->w.sum[r] = sum[r] = em_loop_phi(e, &l, em_f32(e, 0));
    }
    add_keys(g, l.i);
    for (int i = 0; i < n; i++) em_loop_next(e, result[i], g->result[i / 4][i % 4]);
    for (int r = 0; r < 2; r++) {
        em_loop_next(e, reference[r], g->w.reference[r]);
        em_loop_next(e, sum[r], g->w.sum[r]);
    }
    em_end(e, &l);
    gpu_keep_loop(e, &l);
    memcpy(g->result, result, (size_t)n * sizeof *result);
    for (int r = 0; r < 2; r++) g->w.reference[r] = reference[r], g->w.sum[r] = sum[r];
}

/* ---- results of the four warps ---- */
static int line_of(const few *g) { return g->f->width + PAD; }

/* Largest score (as flash_top) and sum of a warp's row in shared memory, behind the results. */
static LLVMValueRef top_at(few *g, LLVMValueRef warp, LLVMValueRef row) {
    emit *e = g->e;
    LLVMValueRef i = em_add(e, em_mul(e, warp, em_i32(e, ROWS)), row);
    i = em_add(e, em_shl(e, i, 1), em_i32(e, WARPS * ROWS * line_of(g)));
    return flash_at(g->f, g->f->shared, wide(g, i));
}

typedef struct top {
    LLVMValueRef largest, about, sum; /* of all warps; about: what exponents are relative to */
} top;

static top join_tops(few *g, LLVMValueRef row) {
    flash *f = g->f;
    emit *e = g->e;
    LLVMValueRef largest[WARPS], sum[WARPS];
    top all = {0};
    for (int i = 0; i < WARPS; i++) {
        LLVMValueRef at = top_at(g, em_i32(e, i), row);
        largest[i] = flash_load(f, at);
        sum[i] = flash_load(f, flash_at(f, at, num(g, 1)));
        all.largest = i ? flash_larger(f, largest[i], all.largest) : largest[i];
    }
    all.about = flash_about(f, all.largest);
    for (int i = 0; i < WARPS; i++) {
        LLVMValueRef v = em_fmul(e, sum[i], flash_power(&g->w, em_fsub(e, largest[i], all.about)));
        all.sum = i ? em_fadd(e, all.sum, v) : v;
    }
    return all;
}

/* A warp's results to shared memory, relative to what all warps have in common. */
static void share_results(few *g, LLVMValueRef is_alone) {
    flash *f = g->f;
    emit *e = g->e;
    LLVMValueRef largest[2];
    for (int r = 0; r < 2; r++) largest[r] = flash_top(&g->w, g->w.reference[r]);
    gpu_barrier(e); /* what was in shared memory is not read any more */
    em_branch one = em_if(e, em_icmp(e, LLVMIntEQ, g->lane_x, em_i32(e, 0)));
    for (int r = 0; r < 2; r++) {
        LLVMValueRef at = top_at(g, g->warp, em_add(e, g->lane_row, em_i32(e, 8 * r)));
        flash_store(f, largest[r], at);
        flash_store(f, g->w.sum[r], flash_at(f, at, num(g, 1)));
    }
    em_endif(e, &one);
    gpu_barrier(e);
    for (int r = 0; r < 2; r++) {
        LLVMValueRef row = em_add(e, g->lane_row, em_i32(e, 8 * r));
        const top all = join_tops(g, row);
        LLVMValueRef by = flash_power(&g->w, em_fsub(e, largest[r], all.about));
        LLVMValueRef inverse = flash_inverse(f, all.sum);
        LLVMValueRef has_none = em_and(e, is_alone, em_fcmp(e, LLVMRealOEQ, inverse, em_const(e, f->a.acc, 0)));
        by = em_select(e, is_alone, em_fmul(e, by, inverse), by);
        LLVMValueRef line = em_add(e, em_mul(e, g->warp, em_i32(e, ROWS)), row);
        line = em_add(e, em_mul(e, line, em_i32(e, line_of(g))), em_shl(e, g->lane_x, 4));
        LLVMValueRef to = flash_at(f, f->shared, wide(g, line));
        for (int i = 0; i < g->pieces * 8 * 2; i++) { /* column 16 * x + t of half 0, 8 more of half 1 */
            const int tile = i / 2, half = i % 2, column = tile / 8 * PIECE + tile % 8 + 8 * half;
            LLVMValueRef v = em_fmul(e, g->result[tile][2 * r + half], by);
            flash_store(f, em_select(e, has_none, em_const(e, f->a.acc, 0), v), flash_at(f, to, num(g, column)));
        }
    }
    gpu_barrier(e);
}

static void store_results(few *g, LLVMValueRef part, LLVMValueRef is_alone) {
    flash *f = g->f;
    emit *e = g->e;
    LLVMValueRef left = em_min(e, em_sub(e, g->rows, g->row0), num(g, ROWS)), batches = flash_count_batches(f), head, m;
    em_loop l = em_for(e, f->thread, em_mul(e, left, num(g, f->width)), num(g, f->threads));
    LLVMValueRef row = LLVMBuildUDiv(e->b, l.i, num(g, f->width), ""), n = em_and(e, l.i, num(g, f->width - 1)),
                 sum = NULL;
    em_branch inside = em_if(e, em_icmp(e, LLVMIntSLT, n, f->a.n_values));
    LLVMValueRef at = flash_at(f, f->shared, em_add(e, em_mul(e, row, num(g, line_of(g))), n));
    for (int i = 0; i < WARPS; i++) {
        LLVMValueRef v = flash_load(f, flash_at(f, at, num(g, i * ROWS * line_of(g))));
        sum = sum ? em_fadd(e, sum, v) : v;
    }
    split_row(g, em_add(e, g->row0, row), &head, &m);
    LLVMValueRef batch = em_add(e, g->first_batch, head);
    em_branch alone = em_if(e, is_alone);
    attention_decode(&f->a, batch);
    flash_store_result(f, m, n, sum);
    em_else(e, &alone);
    LLVMValueRef to = flash_scratch_row(f, part, batches, batch, m);
    flash_store(f, sum, flash_at(f, to, n));
    em_branch first = em_if(e, em_icmp(e, LLVMIntEQ, n, num(g, 0)));
    const top all = join_tops(g, narrow(g, row));
    to = flash_at(f, to, f->a.n_values);
    flash_store(f, flash_top_score(&g->w, all.largest), to);
    flash_store(f, all.sum, flash_at(f, to, num(g, 1)));
    em_endif(e, &first);
    em_endif(e, &alone);
    em_endif(e, &inside);
    em_end(e, &l);
    gpu_keep_loop(e, &l);
}

/* ---- blocks ---- */
static void emit_rows(few *g, LLVMValueRef part, LLVMValueRef parts) {
    flash *f = g->f;
    emit *e = g->e;
    attention *a = &f->a;
    LLVMValueRef head[2], query[2], one = num(g, 1), last = em_sub(e, a->n_queries, one), from, to;
    flash_find_part(f, part, parts, num(g, 0), last, &from, &to);
    for (int r = 0; r < 2; r++) {
        LLVMValueRef row = em_add(e, g->row0, wide(g, em_add(e, g->lane_row, em_i32(e, 8 * r))));
        split_row(g, em_min(e, row, em_sub(e, g->rows, one)), &head[r], &query[r]);
    }
    attention_decode(a, g->first_batch);
    g->w.first = from;
    g->length = flash_distance(&g->w, to);
    flash_find_bounds(&g->w, num(g, 0), last, query, to);
    if (g->w.has_mask) flash_find_mask(&g->w, a->at.g >= 0 ? head : NULL, query);
    load_queries(g, query, head);
    g->key_at = half_at(g, operand_at(g, a->keys), element_of(g, a->keys, a->at.j, from));
    g->value_at = half_at(g, operand_at(g, a->v), element_of(g, a->v, a->at.j, from));
    add_all_keys(g);
    for (int r = 0; r < 2; r++)
        for (int mask = 2; mask; mask /= 2) g->w.sum[r] = em_fadd(e, g->w.sum[r], gpu_shuffle(e, g->w.sum[r], mask));
    LLVMValueRef is_alone = em_icmp(e, LLVMIntEQ, parts, one);
    share_results(g, is_alone);
    store_results(g, part, is_alone);
}

void flash_emit_few(flash *f) {
    emit *e = f->e;
    attention *a = &f->a;
    few *g = FU_NEW(e->arena, few);
    LLVMValueRef one = flash_num(f, 1), parts = gpu_word(e, IR_GPU_WORD_CHUNKS);
    LLVMValueRef thread = LLVMBuildTrunc(e->b, f->thread, e->t_i32, ""),
                 lane = em_and(e, thread, em_i32(e, IR_GPU_WARP - 1));
    LLVMValueRef outer = flash_count_batches(f), heads = one, groups = one, each = one;
    g->f = f;
    g->e = e;
    g->chunks = ((int)a->k->dim[a->at.k].size + CHUNK - 1) / CHUNK;
    g->pieces = pieces_of(f);
    g->lane_x = em_and(e, lane, em_i32(e, 3));
    g->lane_row = em_lshr(e, lane, 2);
    g->warp = gpu_same_in_warp(e, em_lshr(e, thread, 5));
    f->x = wide(g, g->lane_x);
    f->width = PIECE * g->pieces;
    f->keys = IR_GPU_ATTENTION_FEW_KEYS;
    g->w.f = f;
    g->w.n_scores = KEYS / 2;
    g->w.has_mask = a->mask >= 0;
    if (a->at.g >= 0) {
        heads = em_max(e, e->size[a->at.h], one);
        groups = em_max(e, e->size[a->at.g], one);
        each = em_max(e, LLVMBuildUDiv(e->b, e->size[a->at.h], groups, ""), one);
        outer = em_mul(e, LLVMBuildUDiv(e->b, outer, heads, ""), groups);
    }
    g->rows = em_mul(e, each, a->n_queries);
    flash_find_scale(&g->w);
    LLVMValueRef blocks = flash_ceil_div(f, g->rows, num(g, ROWS));
    em_loop lb = em_for(e, gpu_special(e, "ctaid.z"), outer, gpu_special(e, "nctaid.z"));
    g->first_batch = lb.i;
    if (a->at.g >= 0) {
        LLVMValueRef batch = LLVMBuildUDiv(e->b, lb.i, groups, ""), group = em_sub(e, lb.i, em_mul(e, batch, groups));
        g->first_batch = em_add(e, em_mul(e, batch, heads), em_mul(e, group, each));
    }
    em_loop lq = em_for(e, gpu_special(e, "ctaid.x"), em_mul(e, blocks, parts), gpu_special(e, "nctaid.x"));
    LLVMValueRef block = LLVMBuildUDiv(e->b, lq.i, parts, "");
    g->row0 = em_mul(e, block, num(g, ROWS));
    emit_rows(g, em_sub(e, lq.i, em_mul(e, block, parts)), parts);
    em_end(e, &lq);
    em_end(e, &lb);
}
