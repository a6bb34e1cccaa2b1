/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_attention_wgmma.c: the keys of a block of attention on sm_90a, for operands of one 16-bit type that can be copied
 * (flash_can_group). A group of four warps has 64 queries; all groups share keys and values, which come by cp.async into
 * two pieces of shared memory each. Scores are wgmma's of queries and keys; weights are made where scores lie, and are
 * operand A of the second product as registers hold them, each as two numbers of 16 bits (as in gpu_attention_mma.c).
 *
 *   queries and the first keys -> shared memory; weights of the first block
 *   for each block of keys but the last one that the group sees: wait for copies of these values and the next keys;
 *       barrier; scores of the next block begin, and the products of this one's weights and values; copies of the keys
 *       behind the next, and of the next values; wait for the scores; weights in their place; wait for the products;
 *       results * factor where a reference moved; weights in two parts
 *   the products of the last one; copies for groups that see more
 *
 * so weights are made while products run, and the other groups have the tensor cores meanwhile. No scores are in flight
 * from one turn of the loop to the next: ptxas would serialize all products. */
#include "jit/gpu_attention.h"
#include <stdio.h>
#include <string.h>

enum {
    LINE = 64,                          /* elements of a line of 128 bytes */
    EIGHT_LINES = 64,                   /* 16 bytes */
    QUERIES = 64,                       /* of a group */
    MAX_ACC = FLASH_SCORES,             /* accumulators of a thread */
    STRIDE_WORD = EIGHT_LINES | 1 << 30 /* upper word of a descriptor: the distance of 8 lines; 128-byte swizzle */
};

/* An operand in shared memory: columns of lines of 64 elements, 8 chunks of 16 bytes each, `column` lines apart. */
typedef struct tile {
    int operand, inst, row_dim, column_dim, rows, columns, column, at, bytes; /* at, bytes: of a piece */
    int copiers;                                                              /* threads, a power of two */
    LLVMValueRef to, first, pass_step, end; /* end: rows that there are, less the line of the first pass */
} tile;

typedef struct group {
    flash *f;
    emit *e;
    flash_weights w;
    int n_results; /* accumulators of a thread */
    tile q, k, v;
    LLVMValueRef base, own_queries;  /* i32: address of shared memory; of the group's queries in it */
    LLVMValueRef length, own_length; /* i32: keys from w.first on; those before the end of what the group sees */
    LLVMValueRef result[MAX_ACC];
} group;

/* ---- instructions ---- */
static LLVMValueRef i32(group *g, LLVMValueRef v) { return LLVMBuildTrunc(g->e->b, v, g->e->t_i32, ""); }
static LLVMValueRef plus(group *g, LLVMValueRef v, int by) { return by ? em_add(g->e, v, em_i32(g->e, by)) : v; }

static void say(group *g, const char *text) { gpu_say(g->e, text); }

/* Waits for all but the last `keep` groups of products; the accumulators are there from here on. */
static void wait_for_products(group *g, int keep, LLVMValueRef *acc, int n) {
    char text[64];
    snprintf(text, sizeof text, "wgmma.wait_group.sync.aligned %d;", keep);
    gpu_on_sums(g->e, text, acc, n, true, NULL, "", 0);
}

static ir_dtype operand_type(const group *g) { return g->f->a.k->inst[g->f->a.q].dtype; }
/* Does a mask go through shared memory? */
static bool stages_mask(const group *g) { return g->f->a.mask >= 0 && !g->w.has_mask; }

/* The lower word of a descriptor, of an address in shared memory: what is n bytes further is n / 16 more. leading: from
 * one column of lines to the next, in 16 bytes. */
static LLVMValueRef lower_word(group *g, LLVMValueRef byte, int leading) {
    return em_or(g->e, em_lshr(g->e, byte, 4), em_i32(g->e, leading << 16));
}
static LLVMValueRef descriptor(group *g, LLVMValueRef lower, int bytes) {
    emit *e = g->e;
    LLVMValueRef low = LLVMBuildZExt(e->b, plus(g, lower, bytes / 16), e->t_i64, "");
    return em_or(e, low, em_i64s(e, (int64_t)STRIDE_WORD << 32));
}

/* ---- operands into shared memory ---- */
LLVMValueRef flash_can_group(flash *f) {
    emit *e = f->e;
    const attention *a = &f->a;
    const int inst[3] = {a->q, a->keys, a->v}, column[3] = {a->at.k, a->at.k, a->at.n};
    LLVMValueRef bits = flash_num(f, 0);
    for (int i = 0; i < 3; i++) {
        const int buffer = a->k->inst[inst[i]].index;
        bits = em_or(e, bits, em_lshr(e, LLVMBuildPtrToInt(e->b, e->base[buffer], e->t_i64, ""), 1));
        for (int d = 0; d < a->k->n_dims; d++)
            if (d != column[i] && a->k->buffer[buffer].stride[d] != 0) bits = em_or(e, bits, e->stride[buffer][d]);
    }
    return em_icmp(e, LLVMIntEQ, em_and(e, bits, flash_num(f, 7)), flash_num(f, 0));
}

static void lay_out(group *g, tile *t, int operand, int inst, int row_dim, int column_dim, int rows, int columns,
                    int column, int *at, int pieces) {
    const bool is_two = operand && g->f->group.groups > 1;
    *t = (tile){.operand = operand,
                .inst = inst,
                .row_dim = row_dim,
                .column_dim = column_dim,
                .rows = rows,
                .columns = columns,
                .column = column,
                .at = *at,
                .bytes = 2 * rows * columns,
                .copiers = (1 + is_two) * IR_GPU_ATTENTION_THREADS};
    *at += pieces * t->bytes;
}

/* Copies of all copiers are a pass. */
static int passes(const tile *t) { return t->rows * t->columns / 8 / t->copiers; }
static int pass_lines(const tile *t) { return t->copiers / (t->columns / 8); }

/* Has the piece all columns, and nothing else? */
static bool is_whole(const group *g, const tile *t) { return g->f->a.k->dim[t->column_dim].size == t->columns; }

/* What copies of the operand are for this thread: it has chunk `thread % (columns / 8)` of lines. */
static void begin_copies(group *g, tile *t, LLVMValueRef row0, LLVMValueRef column0, LLVMValueRef rows) {
    flash *f = g->f;
    emit *e = g->e;
    const int chunks = t->columns / 8, buffer = f->a.k->inst[t->inst].index;
    LLVMValueRef thread = i32(g, f->thread), chunk = em_and(e, thread, em_i32(e, chunks - 1)),
                 line = em_lshr(e, thread, __builtin_ctz((unsigned)chunks));
    LLVMValueRef swizzled = em_xor(e, em_and(e, chunk, em_i32(e, 7)), em_and(e, line, em_i32(e, 7)));
    /* a pass is a multiple of 8 lines, and a column one of passes */
    t->to = em_add(e, em_shl(e, line, 7), em_shl(e, swizzled, 4));
    t->to = em_add(e, t->to, em_mul(e, em_lshr(e, chunk, 3), em_i32(e, 128 * t->column)));
    LLVMValueRef line64 = LLVMBuildZExt(e->b, line, e->t_i64, "");
    LLVMValueRef column = column0, *stride = e->stride[buffer];
    column = em_add(e, column, LLVMBuildZExt(e->b, em_shl(e, chunk, 3), e->t_i64, ""));
    LLVMValueRef off = em_add(e, f->a.batch_off[buffer], column);
    off = em_add(e, off, em_mul(e, em_add(e, row0, line64), stride[t->row_dim]));
    t->first = em_gep(e, e->base[buffer], e->t_i16, off);
    t->pass_step = em_mul(e, stride[t->row_dim], flash_num(f, 2 * pass_lines(t)));
    t->end = em_sub(e, rows, line);
    if (is_whole(g, t)) return;
    LLVMValueRef in_columns = em_icmp(e, LLVMIntSLT, column, e->size[t->column_dim]);
    t->end = em_select(e, in_columns, t->end, em_i32(e, INT32_MIN));
}

/* Rows [row, row + rows) of an operand (i32, from its first on), those from its end on as zeros, to a piece. from: where
 * the thread's own are; returns where they go on. */
static LLVMValueRef copy(group *g, const tile *t, LLVMValueRef row, LLVMValueRef from, LLVMValueRef piece) {
    static const char text[] = "cp.async.cg.shared.global [$0], [$1], 16, $2;";
    flash *f = g->f;
    emit *e = g->e;
    LLVMValueRef to = plus(g, em_add(e, em_add(e, g->base, piece), t->to), t->at);
    LLVMValueRef was = from;
    const bool is_part = t->copiers < f->threads;
    em_branch some;
    if (is_part) some = em_if(e, em_icmp(e, LLVMIntSLT, f->thread, flash_num(f, t->copiers)));
    for (int i = 0; i < passes(t); i++) {
        const int line = i * pass_lines(t), block = line / t->column,
                  further = 128 * (block * t->column * (t->columns / LINE) + line % t->column);
        LLVMValueRef is_outside = em_icmp(e, LLVMIntSGE, plus(g, row, line), t->end);
        LLVMValueRef at = LLVMBuildPtrToInt(e->b, from, e->t_i64, "");
        gpu_asm(e, text, "r,l,b,~{memory}", true, e->t_void, (LLVMValueRef[]){plus(g, to, further), at, is_outside}, 3);
        from = em_gep(e, from, e->t_i8, t->pass_step);
    }
    if (is_part) {
        LLVMBasicBlockRef then = LLVMGetInsertBlock(e->b);
        em_endif(e, &some);
        LLVMValueRef phi = LLVMBuildPhi(e->b, LLVMTypeOf(from), "");
        LLVMAddIncoming(phi, (LLVMValueRef[]){from, was}, (LLVMBasicBlockRef[]){then, some.other}, 2);
        from = phi;
    }
    return from;
}

/* What this thread's copies brought, or it wrote, is there for wgmma of all threads. */
static void meet(group *g, int groups) {
    gpu_wait_for_copies(g->e, groups);
    say(g, "fence.proxy.async.shared::cta;");
    gpu_barrier(g->e);
}

/* ---- products ---- */
static void begin_scores(group *g, LLVMValueRef piece) {
    flash *f = g->f;
    emit *e = g->e;
    const int steps = ((int)f->a.k->dim[f->a.at.k].size + 15) / 16;
    LLVMValueRef queries = lower_word(g, g->own_queries, 1),
                 keys = lower_word(g, plus(g, em_add(e, g->base, piece), g->k.at), 1);
    for (int s = 0; s < steps; s++) {
        const int column = s / 4, chunk = 32 * (s % 4);
        LLVMValueRef a = descriptor(g, queries, 128 * QUERIES * column + chunk),
                     b = descriptor(g, keys, 128 * g->k.column * column + chunk);
        gpu_begin_product(e, &(gpu_product){.type = operand_type(g), .adds = s > 0, .a = {a}, .n_a = 1, .b = b},
                          g->w.score, g->w.n_scores);
    }
    say(g, "wgmma.commit_group.sync.aligned;");
}

/* part[2][n_scores / 2]: pairs of weights. */
static void begin_results(group *g, LLVMValueRef part[2][MAX_ACC / 2], LLVMValueRef piece) {
    flash *f = g->f;
    emit *e = g->e;
    LLVMValueRef values = lower_word(g, plus(g, em_add(e, g->base, piece), g->v.at), 8 * g->v.column);
    for (int s = 0; s < f->keys / 16; s++) {
        LLVMValueRef b = descriptor(g, values, 16 * 128 * s);
        for (int p = 0; p < 2; p++) {
            gpu_product product = {.type = operand_type(g), .adds = true, .n_a = 4, .b = b, .b_turned = true};
            memcpy(product.a, &part[p][4 * s], sizeof product.a);
            gpu_begin_product(e, &product, g->result, g->n_results);
        }
    }
    say(g, "wgmma.commit_group.sync.aligned;");
}

/* Waits for the results, and multiplies them where a reference moved. Both waits are in blocks of their own: ptxas
 * would put a single one in front of the exponentials, which are to be made meanwhile. */
static void multiply_results(group *g) {
    emit *e = g->e;
    LLVMValueRef was[MAX_ACC];
    memcpy(was, g->result, sizeof was);
    em_branch b = em_if(e, g->w.is_moved);
    wait_for_products(g, 0, g->result, g->n_results);
    for (int i = 0; i < g->n_results; i++) g->result[i] = em_fmul(e, g->result[i], g->w.factor[flash_row_of(i)]);
    LLVMBasicBlockRef from[2] = {LLVMGetInsertBlock(e->b), b.other};
    em_else(e, &b);
    gpu_on_sums(e, "wgmma.wait_group.sync.aligned 0; // as they are", was, g->n_results, true, NULL, "", 0);
    em_endif(e, &b);
    for (int i = 0; i < g->n_results; i++) {
        LLVMValueRef phi = LLVMBuildPhi(e->b, e->t_f32, "");
        LLVMAddIncoming(phi, (LLVMValueRef[]){g->result[i], was[i]}, from, 2);
        g->result[i] = phi;
    }
}

/* ---- all keys ---- */
static void find_bounds(group *g, LLVMValueRef from, LLVMValueRef to) {
    flash *f = g->f;
    emit *e = g->e;
    LLVMValueRef warp = LLVMBuildUDiv(e->b, f->thread, flash_num(f, IR_GPU_WARP), ""), query[2];
    LLVMValueRef least = em_add(e, f->q0, em_mul(e, warp, flash_num(f, 16))), most = em_add(e, least, flash_num(f, 15));
    g->w.first = from;
    g->length = g->own_length = flash_distance(&g->w, to);
    if (f->a.high >= 0 && !stages_mask(g)) { /* all groups bring that, with barriers */
        LLVMValueRef group_end = em_add(e, f->q0, em_and(e, em_lshr(e, f->thread, 1), flash_num(f, -QUERIES)));
        group_end = em_add(e, em_add(e, group_end, flash_num(f, QUERIES)), f->high);
        g->own_length = gpu_same_in_warp(e, flash_distance(&g->w, em_min(e, to, group_end)));
    }
    for (int r = 0; r < 2; r++) query[r] = em_add(e, f->q0, em_add(e, f->y, flash_num(f, 8 * r)));
    flash_find_bounds(&g->w, least, most, query, to);
    if (g->w.has_mask) flash_find_mask(&g->w, NULL, query);
}

/* Keeps ptxas from computing a value again where it is used. */
static void pin(group *g, LLVMValueRef *v) { *v = gpu_shuffle(g->e, *v, 0); }

static void lay_out_all(group *g) {
    flash *f = g->f;
    emit *e = g->e;
    attention *a = &f->a;
    int at = 0;
    LLVMValueRef zero = flash_num(f, 0);
    lay_out(g, &g->q, 0, a->q, a->at.m, a->at.k, f->queries, f->group.head, QUERIES, &at, 1);
    lay_out(g, &g->k, 1, a->keys, a->at.j, a->at.k, f->keys, f->group.head, f->keys, &at, 2);
    lay_out(g, &g->v, 2, a->v, a->at.j, a->at.n, f->keys, f->width, f->keys, &at, 2);
    g->base = LLVMBuildPtrToInt(e->b, f->shared, e->t_i32, "");
    LLVMValueRef number = gpu_same_in_warp(e, em_lshr(e, i32(g, f->thread), 7));
    g->own_queries = em_add(e, g->base, em_mul(e, number, em_i32(e, 2 * QUERIES * f->group.head)));
    LLVMValueRef queries = em_min(e, em_sub(e, a->n_queries, f->q0), flash_num(f, f->queries));
    begin_copies(g, &g->q, f->q0, zero, i32(g, queries));
    begin_copies(g, &g->k, g->w.first, zero, g->length);
    begin_copies(g, &g->v, g->w.first, a->k->dim[a->at.n].size <= f->width ? zero : f->n0, g->length);
    pin(g, &g->k.to), pin(g, &g->k.end);
    if (g->k.columns == g->v.columns && is_whole(g, &g->k) && is_whole(g, &g->v)) {
        g->v.to = g->k.to, g->v.end = g->k.end;
    } else pin(g, &g->v.to), pin(g, &g->v.end);
}

/* What goes round the loop over blocks of keys. piece: bytes of the keys' and the values' that these are in. */
typedef struct state {
    LLVMValueRef result[MAX_ACC], part[2][MAX_ACC / 2], reference[2], sum[2], from[2], piece[2];
    LLVMValueRef mask[MAX_ACC / 2]; /* w.has_mask: of the next block */
} state;

static LLVMValueRef key_at(group *g, LLVMValueRef j) {
    return em_add(g->e, g->w.first, LLVMBuildSExt(g->e->b, j, g->e->t_i64, ""));
}

/* Behind the mask of a block, which is in g->w, that of the block from key j on: a turn of the loop is less than memory
 * takes. */
static void load_next_mask(group *g, LLVMValueRef j, LLVMValueRef *next) {
    LLVMValueRef now[MAX_ACC / 2];
    memcpy(now, g->w.mask, sizeof now);
    flash_load_mask(&g->w, j);
    memcpy(next, g->w.mask, sizeof now);
    memcpy(g->w.mask, now, sizeof now);
}

static void begin_keys(group *g, state *s) {
    flash *f = g->f;
    emit *e = g->e;
    LLVMValueRef zero = em_i32(e, 0), next = em_i32(e, f->keys), *from = s->from;
    gpu_barrier(e); /* what was in shared memory is not read any more */
    (void)copy(g, &g->q, zero, g->q.first, zero);
    from[0] = copy(g, &g->k, zero, g->k.first, zero);
    gpu_commit_copies(g->e);
    from[0] = copy(g, &g->k, next, from[0], em_i32(e, g->k.bytes));
    from[1] = copy(g, &g->v, zero, g->v.first, zero);
    gpu_commit_copies(g->e);
    if (g->w.has_mask) {
        flash_load_mask(&g->w, g->w.first);
        load_next_mask(g, key_at(g, next), s->mask);
    } else if (stages_mask(g)) flash_stage_mask(f, g->w.first);
    meet(g, 1);
    say(g, "wgmma.fence.sync.aligned;");
    begin_scores(g, zero);
    wait_for_products(g, 0, g->w.score, g->w.n_scores);
    flash_weigh(&g->w, zero);
}

static LLVMValueRef other_piece(group *g, int i, const state *s) {
    return em_sub(g->e, em_i32(g->e, i ? g->v.bytes : g->k.bytes), s->piece[i]);
}

/* Behind the barrier of the block from j on: copies of the keys after the next, and of the next values, where these can
 * be `ahead` blocks that a group sees. */
static void copy_next(group *g, LLVMValueRef j, int ahead, state *now) {
    const int keys = g->f->keys;
    LLVMValueRef other[2] = {other_piece(g, 0, now), other_piece(g, 1, now)};
    if (ahead > 1) now->from[0] = copy(g, &g->k, plus(g, j, 2 * keys), now->from[0], now->piece[0]);
    if (ahead > 0) now->from[1] = copy(g, &g->v, plus(g, j, keys), now->from[1], other[1]);
    if (ahead > 0) gpu_commit_copies(g->e);
    memcpy(now->piece, other, sizeof other);
}

/* Results of keys [j, j + keys), and weights of the next. */
static void add_keys(group *g, LLVMValueRef j, state *now) {
    flash *f = g->f;
    LLVMValueRef next = plus(g, j, f->keys);
    meet(g, 0);
    say(g, "wgmma.fence.sync.aligned;");
    begin_scores(g, other_piece(g, 0, now));
    begin_results(g, now->part, now->piece[1]);
    copy_next(g, j, 2, now);
    if (g->w.has_mask) {
        memcpy(g->w.mask, now->mask, sizeof now->mask);
        load_next_mask(g, key_at(g, plus(g, next, f->keys)), now->mask);
    } else if (stages_mask(g))
        flash_stage_mask(f, key_at(g, next)); /* the one before was read in front of the barrier */
    wait_for_products(g, 1, g->w.score, g->w.n_scores);
    flash_weigh(&g->w, next);
    multiply_results(g);
    flash_split(&g->w, now->part);
}

static void enter_loop(group *g, em_loop *l, state *phi) {
    emit *e = g->e;
    LLVMValueRef zero = em_f32(e, 0);
    for (int i = 0; i < g->n_results; i++) g->result[i] = phi->result[i] = em_loop_phi(e, l, zero);
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < g->w.n_scores / 2; i++) phi->part[p][i] = em_loop_phi(e, l, phi->part[p][i]);
    for (int i = 0; g->w.has_mask && i < g->w.n_scores / 2; i++) phi->mask[i] = em_loop_phi(e, l, phi->mask[i]);
    for (int r = 0; r < 2; r++) {
        g->w.reference[r] = phi->reference[r] = em_loop_phi(e, l, g->w.reference[r]);
        g->w.sum[r] = phi->sum[r] = em_loop_phi(e, l, g->w.sum[r]);
        phi->from[r] = em_loop_phi(e, l, phi->from[r]);
        phi->piece[r] = em_loop_phi(e, l, em_i32(e, 0));
    }
}

static void leave_body(group *g, const state *phi, const state *now) {
    emit *e = g->e;
    for (int i = 0; i < g->n_results; i++) em_loop_next(e, phi->result[i], g->result[i]);
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < g->w.n_scores / 2; i++) em_loop_next(e, phi->part[p][i], now->part[p][i]);
    for (int i = 0; g->w.has_mask && i < g->w.n_scores / 2; i++) em_loop_next(e, phi->mask[i], now->mask[i]);
    for (int r = 0; r < 2; r++) {
        em_loop_next(e, phi->reference[r], g->w.reference[r]);
        em_loop_next(e, phi->sum[r], g->w.sum[r]);
        em_loop_next(e, phi->from[r], now->from[r]);
        em_loop_next(e, phi->piece[r], now->piece[r]);
    }
}

/* The last block's products, which nothing runs beside; results to where they are finished. */
static void end_keys(group *g, LLVMValueRef j, state *s) {
    flash *f = g->f;
    const int of_row = g->n_results / 2;
    memcpy(g->result, s->result, sizeof s->result);
    meet(g, 0);
    say(g, "wgmma.fence.sync.aligned;");
    begin_results(g, s->part, s->piece[1]);
    copy_next(g, j, f->group.groups - 1, s); /* the last group sees so many more blocks, at most */
    wait_for_products(g, 0, g->result, g->n_results);
    for (int i = 0; i < g->n_results; i++) f->result[flash_row_of(i) * of_row + 2 * (i / 4) + i % 2] = g->result[i];
    for (int r = 0; r < 2; r++) {
        f->largest[r] = flash_top_score(&g->w, flash_top(&g->w, s->reference[r]));
        f->sum[r] = s->sum[r];
    }
}

/* A group whose queries see no key from j on copies them for the others. */
static void copy_rest(group *g, LLVMValueRef j, state *s) {
    emit *e = g->e;
    LLVMValueRef from[2], piece[2];
    em_loop l = em_for(e, j, g->length, em_i32(e, g->f->keys));
    for (int i = 0; i < 2; i++) {
        s->from[i] = from[i] = em_loop_phi(e, &l, s->from[i]);
        s->piece[i] = piece[i] = em_loop_phi(e, &l, s->piece[i]);
    }
    meet(g, 0);
    copy_next(g, l.i, g->f->group.groups - 2, s);
    for (int i = 0; i < 2; i++) em_loop_next(e, from[i], s->from[i]), em_loop_next(e, piece[i], s->piece[i]);
    em_end(e, &l);
    gpu_keep_loop(e, &l);
    gpu_wait_for_copies(e, 0);
}

void flash_group_keys(flash *f, LLVMValueRef from, LLVMValueRef to) {
    emit *e = f->e;
    group *g = FU_NEW(e->arena, group);
    state *phi = FU_NEW(e->arena, state), now;
    g->f = f;
    g->e = e;
    g->n_results = f->width / 2;
    g->w.f = f;
    g->w.n_scores = f->keys / 2;
    g->w.has_mask = f->a.mask >= 0 && ir_gpu_attention_mask_is_plain(f->a.k);
    flash_find_scale(&g->w);
    find_bounds(g, from, to);
    lay_out_all(g);
    for (int r = 0; r < 2; r++) g->w.reference[r] = em_f32(e, __builtin_inf()), g->w.sum[r] = em_f32(e, 0);
    begin_keys(g, phi);
    flash_split(&g->w, phi->part);
    em_loop l = em_for(e, em_i32(e, 0), plus(g, g->own_length, -f->keys), em_i32(e, f->keys));
    enter_loop(g, &l, phi);
    now = *phi;
    add_keys(g, l.i, &now);
    leave_body(g, phi, &now);
    em_end(e, &l);
    gpu_keep_loop(e, &l);
    now = *phi;
    end_keys(g, l.i, &now);
    copy_rest(g, plus(g, l.i, f->keys), &now);
}
