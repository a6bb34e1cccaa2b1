/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* reduce_column.c: reduce kernels of the column form: the lanes are along the kept dim v, so each lane accumulates its
 * own column in order and nothing is combined across lanes.
 *
 *   phase 0     ROWS rows at a time, along them: memory is read in long runs, and the partial results themselves are
 *               the accumulators. Programs that need to know where they are, and very costly ones: chunk of columns,
 *               VECTORS vectors at a time: the block's elements in order, accumulators in registers
 *   phase 1     chunk of columns: the tree over the partial results, then the row-level program, vector by vector
 *
 * The end of a chunk: masked vectors where the level has masks; else whole vectors, then single columns. */
#include "jit/reduce_common.h"
#include <string.h>

/* COSTLY_ROWS: softmax over axis 0 of 4000 x 4000 with 1, 2, 4, 8: 17.1, 12.6, 11.4, 10.6 ms; over the channels of
 * 8x64x56x56 694, 651, 627, 666 microseconds (Zen 5, November 2026). */
enum { VECTORS = 4, ROWS = 8, COSTLY_ROWS = 4 };

typedef struct column {
    red *r;
    red_sweep *s;
    LLVMValueRef q, partial, begin, end; /* begin, end: the chunk's columns */
    void (*step)(struct column *w, LLVMValueRef c, int vectors, LLVMValueRef mask);
} column;

/* Partial result i of reduction j and row q, column c. A slot is 16 bytes a column: all values, then all indices. */
static LLVMValueRef value_at(column *w, int j, LLVMValueRef partial, LLVMValueRef c, bool of_index) {
    red *r = w->r;
    emit *e = r->e;
    LLVMValueRef number = em_add(e, em_mul(e, em_i64s(e, j), r->rows), w->q);
    number = em_mul(e, em_add(e, em_mul(e, number, r->partials), partial), r->columns);
    LLVMValueRef off = em_mul(e, number, em_i64s(e, IR_PARTIAL_BYTES));
    if (of_index) off = em_add(e, off, em_mul(e, r->columns, em_i64s(e, 8)));
    int bytes = of_index ? 8 : ir_dtypes[red_type(r, j)].bytes;
    return em_gep(e, e->shared, e->t_i8, em_add(e, off, em_mul(e, c, em_i64s(e, bytes))));
}

static void for_columns(column *w, LLVMValueRef from, int vectors, bool is_masked, LLVMValueRef end) {
    emit *e = w->r->e;
    em_loop l = em_for(e, from, end, em_i64s(e, (int64_t)vectors * e->lanes));
    w->step(w, l.i, vectors, is_masked ? em_mask(e, em_sub(e, end, l.i)) : NULL);
    em_end(e, &l);
}

/* The end of the whole groups of `group` columns from `from` on. */
static LLVMValueRef whole(column *w, LLVMValueRef from, int64_t group) {
    emit *e = w->r->e;
    return em_add(e, from, em_and(e, em_sub(e, w->end, from), em_i64s(e, -group)));
}

static void emit_chunk(column *w, int vectors) {
    emit *e = w->r->e;
    LLVMValueRef at = w->begin;
    e->lanes = e->level->lanes;
    if (vectors > 1) {
        LLVMValueRef to = whole(w, at, (int64_t)vectors * e->lanes);
        for_columns(w, at, vectors, false, to);
        at = to;
    }
    if (e->level->has_mask) {
        for_columns(w, at, 1, true, w->end);
    } else {
        LLVMValueRef to = whole(w, at, e->lanes);
        for_columns(w, at, 1, false, to);
        e->lanes = 1;
        for_columns(w, to, 1, false, w->end);
    }
    e->lanes = 1;
}

/* Sets the chunk's columns from its number. */
static void enter_chunk(column *w, LLVMValueRef chunk) {
    emit *e = w->r->e;
    w->begin = em_mul(e, chunk, e->tune[IR_TUNE_REDUCE_COLUMNS]);
    w->end = em_min(e, em_add(e, w->begin, e->tune[IR_TUNE_REDUCE_COLUMNS]), w->r->columns);
}

static LLVMValueRef count_chunks(red *r) {
    emit *e = r->e;
    LLVMValueRef by = e->tune[IR_TUNE_REDUCE_COLUMNS], chunks, rest;
    red_divide(e, em_add(e, r->columns, em_sub(e, by, em_i64s(e, 1))), by, &chunks, &rest);
    return chunks;
}

/* ---- phase 0 ---- */
static void accumulate(column *w, LLVMValueRef c, int vectors, LLVMValueRef mask) {
    red *r = w->r;
    red_sweep *s = w->s;
    emit *e = r->e;
    LLVMValueRef *seed = FU_NEW_N(e->arena, LLVMValueRef, VECTORS * r->k->n_insts), at[VECTORS];
    red_acc acc[s->n_acc][VECTORS], phi[s->n_acc][VECTORS];
    red_body b;
    memset(s->seed, 0, sizeof s->seed);
    for (int u = 0; u < vectors; u++) { /* what does not vary along the block */
        at[u] = em_add(e, c, em_i64s(e, (int64_t)u * e->lanes));
        b.at = (red_at){r, NULL, at[u], mask};
        em_values_init(&b.v, red_load_value, &b.at);
        for (int n = 0; n < r->k->n_insts; n++)
            if (s->is_seed[n]) seed[u * r->k->n_insts + n] = em_value(e, &b.v, n);
        for (int n = 0; n < r->k->n_insts && r->has_access && u == 0 && e->lanes > 1; n++)
            if (s->is_seed[n] && !(r->varies[n] >> r->v & 1)) s->seed[n] = em_uniform(e, &b.v, n);
    }
    em_loop l = em_for(e, r->begin, r->end, em_i64s(e, 1));
    for (int a = 0; a < s->n_acc; a++)
        for (int u = 0; u < vectors; u++) {
            int j = s->acc[a];
            red_acc none = red_identity(r, j, red_is_arg(r, j) ? LLVMConstNull(em_vec(e, e->t_i32)) : NULL);
            phi[a][u].value = em_loop_phi(e, &l, none.value);
            phi[a][u].index = none.index ? em_loop_phi(e, &l, none.index) : NULL;
        }
    LLVMValueRef position =
        s->has_arg ? em_splat(e, LLVMBuildTrunc(e->b, em_sub(e, l.i, r->begin), e->t_i32, "")) : NULL;
    for (int u = 0; u < vectors; u++) {
        red_evaluate(s, &b, (red_at){r, l.i, at[u], mask}, seed + u * r->k->n_insts);
        for (int a = 0; a < s->n_acc; a++) acc[a][u] = red_take(r, s->acc[a], phi[a][u], s->x[a], position, NULL);
        red_write(s, &b);
    }
    for (int a = 0; a < s->n_acc; a++)
        for (int u = 0; u < vectors; u++) {
            em_loop_next(e, phi[a][u].value, acc[a][u].value);
            if (phi[a][u].index) em_loop_next(e, phi[a][u].index, acc[a][u].index);
        }
    em_end(e, &l);
    LLVMValueRef first = em_add(e, red_advance(e, NULL, r->outer, e->size[r->last]), r->begin);
    for (int a = 0; a < s->n_acc; a++)
        for (int u = 0; u < vectors; u++) {
            int j = s->acc[a];
            red_acc total = phi[a][u];
            LLVMValueRef index_at = NULL;
            if (total.index) {
                total.index = em_add(e, em_splat(e, first), LLVMBuildZExt(e->b, total.index, em_vec(e, e->t_i64), ""));
                index_at = value_at(w, j, w->partial, at[u], true);
            }
            red_store(r, j, total, value_at(w, j, w->partial, at[u], false), index_at, FUSOR_I64, mask);
        }
}

/* ---- phase 0, along the rows ---- */
/* How many rows; 0: not in this way. Long programs, several costly functions and those of f64 would be much code. */
static int rows_along(const red_sweep *s) {
    const red *r = s->r;
    int costly = 0;
    if (s->has_arg || s->n_acc == 0) return 0;
    for (int n = 0; n < r->k->n_insts; n++) {
        uint16_t op = r->k->inst[n].op;
        if (op == IR_K_INDEX) return 0;
        if (op >= IR_OP_COUNT || !(ir_ops[op].flags & IR_COSTLY)) continue;
        if (s->is_seed[n]) return 0; /* computed again for each group */
        if (s->is_needed[n]) costly += ir_dtypes[r->k->inst[n].dtype].bytes > 4 ? 2 : 1;
    }
    return !s->is_costly ? ROWS : costly == 1 ? COSTLY_ROWS : 0;
}

/* Values of one row that are the same in all columns, and what needs them is not: seeds of its evaluation. Computed
 * before the loop over columns, from which nothing behind us would move them. */
static void mark_row_values(const red_sweep *s, bool *is_row_value) {
    const red *r = s->r;
    const ir_kernel *k = r->k;
    memset(is_row_value, 0, IR_KERNEL_MAX_INSTS * sizeof *is_row_value);
    if (r->has_access) return;
    for (int n = 0; n < k->n_insts; n++)
        for (int i = 0; s->is_needed[n] && !s->is_seed[n] && r->varies[n] >> r->v & 1 && i < k->inst[n].n_in; i++) {
            const int in = k->inst[n].in[i];
            is_row_value[in] = !s->is_seed[in] && !(r->varies[in] >> r->v & 1);
        }
}

/* Elements [i, i + rows) of the block for the chunk's whole vectors, up to column `end`. */
static void go_along(column *w, LLVMValueRef i, int rows, LLVMValueRef end) {
    red *r = w->r;
    red_sweep *s = w->s;
    emit *e = r->e;
    const ir_kernel *k = r->k;
    LLVMValueRef base[ROWS][IR_KERNEL_MAX_BUFFERS], block[IR_KERNEL_MAX_BUFFERS], seed[k->n_insts];
    LLVMValueRef row_value[ROWS][IR_KERNEL_MAX_INSTS], to[s->n_acc];
    bool is_row_value[IR_KERNEL_MAX_INSTS], is_seed[IR_KERNEL_MAX_INSTS];
    red_acc acc[s->n_acc];
    red_body b;
    memcpy(block, e->base, sizeof block);
    memcpy(is_seed, s->is_seed, sizeof is_seed);
    mark_row_values(s, is_row_value);
    for (int u = 0; u < rows; u++)
        for (int n = 0; n < k->n_buffers; n++) {
            LLVMValueRef off = red_advance(e, NULL, em_add(e, i, em_i64s(e, u)), e->stride[n][r->last]);
            base[u][n] = em_gep(e, block[n], em_memory_type(e, k->buffer[n].dtype), off);
        }
    for (int u = 0; u < rows; u++) {
        memcpy(e->base, base[u], sizeof block);
        b.at = (red_at){r, em_i64s(e, 0), NULL, NULL};
        em_values_init(&b.v, red_load_value, &b.at);
        for (int n = 0; n < k->n_insts; n++)
            if (is_row_value[n]) row_value[u][n] = em_value(e, &b.v, n);
    }
    memcpy(e->base, block, sizeof block);
    for (int a = 0; a < s->n_acc; a++) to[a] = value_at(w, s->acc[a], w->partial, em_i64s(e, 0), false);
    em_loop l = em_for(e, w->begin, end, em_i64s(e, e->lanes));
    b.at = (red_at){r, NULL, l.i, NULL};
    em_values_init(&b.v, red_load_value, &b.at);
    for (int n = 0; n < k->n_insts; n++)
        if (s->is_seed[n]) seed[n] = em_value(e, &b.v, n);
    LLVMValueRef at[s->n_acc];
    for (int a = 0; a < s->n_acc; a++) {
        at[a] = em_gep(e, to[a], em_memory_type(e, red_type(r, s->acc[a])), l.i);
        acc[a] = red_load(r, s->acc[a], at[a], NULL, FUSOR_I64, NULL);
    }
    for (int n = 0; n < k->n_insts; n++) s->is_seed[n] |= is_row_value[n];
    for (int u = 0; u < rows; u++) {
        memcpy(e->base, base[u], sizeof block);
        for (int n = 0; n < k->n_insts; n++)
            if (is_row_value[n]) seed[n] = row_value[u][n];
        red_evaluate(s, &b, (red_at){r, em_i64s(e, 0), l.i, NULL}, seed);
        for (int a = 0; a < s->n_acc; a++) acc[a] = red_take(r, s->acc[a], acc[a], s->x[a], NULL, NULL);
        red_write(s, &b);
    }
    memcpy(e->base, block, sizeof block);
    memcpy(s->is_seed, is_seed, sizeof is_seed);
    for (int a = 0; a < s->n_acc; a++) red_store(r, s->acc[a], acc[a], at[a], NULL, FUSOR_I64, NULL);
    em_end(e, &l);
}

static void emit_chunk_along(column *w, int rows) {
    red *r = w->r;
    emit *e = r->e;
    e->lanes = e->level->lanes;
    LLVMValueRef end = whole(w, w->begin, e->lanes), groups = em_and(e, em_sub(e, r->end, r->begin), em_i64s(e, -rows));
    groups = em_add(e, r->begin, groups);
    em_loop l = em_for(e, w->begin, end, em_i64s(e, e->lanes));
    for (int a = 0; a < w->s->n_acc; a++) {
        int j = w->s->acc[a];
        red_store(r, j, red_identity(r, j, NULL), value_at(w, j, w->partial, l.i, false), NULL, FUSOR_I64, NULL);
    }
    em_end(e, &l);
    l = em_for(e, r->begin, groups, em_i64s(e, rows));
    go_along(w, l.i, rows, end);
    em_end(e, &l);
    l = em_for(e, groups, r->end, em_i64s(e, 1));
    go_along(w, l.i, 1, end);
    em_end(e, &l);
    w->begin = end;
    emit_chunk(w, 1);
}

void red_column_partials(red *r, red_sweep *s) {
    emit *e = r->e;
    column w = {.r = r, .s = s, .step = accumulate};
    const int rows = rows_along(s);
    LLVMValueRef grain = e->tune[IR_TUNE_REDUCE_GRAIN], chunks = count_chunks(r), row_and_partial, chunk;
    LLVMValueRef units = em_mul(e, em_mul(e, r->rows, r->partials), chunks);
    em_loop l =
        em_for(e, em_mul(e, e->tile_begin, grain), em_min(e, em_mul(e, e->tile_end, grain), units), em_i64s(e, 1));
    red_divide(e, l.i, chunks, &row_and_partial, &chunk);
    red_divide(e, row_and_partial, r->partials, &w.q, &w.partial);
    red_enter_row(r, w.q);
    red_enter_block(r, w.partial);
    enter_chunk(&w, chunk);
    if (rows > 0) emit_chunk_along(&w, rows);
    else emit_chunk(&w, s->is_costly ? 1 : VECTORS);
    red_leave_block(r);
    em_end(e, &l);
}

/* ---- phase 1 ---- */
static red_acc load_partial(column *w, int j, LLVMValueRef partial, LLVMValueRef c, LLVMValueRef mask) {
    LLVMValueRef index_at = red_is_arg(w->r, j) ? value_at(w, j, partial, c, true) : NULL;
    return red_load(w->r, j, value_at(w, j, partial, c, false), index_at, FUSOR_I64, mask);
}

/* The tree of ir/schedule.h in place, then partial result 0; the identity where nothing is reduced. */
static LLVMValueRef tree(column *w, int j, LLVMValueRef c, LLVMValueRef mask) {
    red *r = w->r;
    emit *e = r->e;
    LLVMValueRef zero = em_i64s(e, 0);
    em_loop by = em_for(e, em_i64s(e, 1), r->partials, em_i64s(e, 1));
    by.step = by.i; /* 1, 2, 4 ... */
    LLVMValueRef twice = em_add(e, by.i, by.i);
    em_loop l = em_for(e, zero, em_sub(e, r->partials, by.i), twice);
    red_acc a = load_partial(w, j, l.i, c, mask), b = load_partial(w, j, em_add(e, l.i, by.i), c, mask);
    LLVMValueRef index_at = red_is_arg(r, j) ? value_at(w, j, l.i, c, true) : NULL;
    red_store(r, j, red_merge(r, j, a, b), value_at(w, j, l.i, c, false), index_at, FUSOR_I64, mask);
    em_end(e, &l);
    em_end(e, &by);
    red_acc none = red_identity(r, j, LLVMConstNull(em_vec(e, e->t_i64)));
    em_branch any = em_if(e, em_icmp(e, LLVMIntSGT, r->partials, zero));
    red_acc some = load_partial(w, j, zero, c, mask);
    em_endif(e, &any);
    LLVMValueRef result[2] = {some.index ? some.index : some.value, some.index ? none.index : none.value};
    LLVMValueRef phi = LLVMBuildPhi(e->b, LLVMTypeOf(result[0]), "");
    LLVMAddIncoming(phi, result, (LLVMBasicBlockRef[]){any.then, any.other}, 2);
    return phi;
}

static void finish(column *w, LLVMValueRef c, int vectors, LLVMValueRef mask) {
    red *r = w->r;
    red_at at = {r, NULL, c, mask};
    em_values v;
    (void)vectors;
    em_values_init(&v, red_load_value, &at);
    for (int j = 0; j < r->n_reductions; j++) v.at[r->reduction[j]] = tree(w, j, c, mask);
    red_finish(r, &v, &at);
}

void red_column_finish(red *r) {
    emit *e = r->e;
    column w = {.r = r, .step = finish};
    LLVMValueRef grain = e->tune[IR_TUNE_REDUCE_FINISH_GRAIN], chunks = count_chunks(r), chunk;
    LLVMValueRef units = em_mul(e, r->rows, chunks);
    em_loop l =
        em_for(e, em_mul(e, e->tile_begin, grain), em_min(e, em_mul(e, e->tile_end, grain), units), em_i64s(e, 1));
    red_divide(e, l.i, chunks, &w.q, &chunk);
    red_enter_row(r, w.q);
    enter_chunk(&w, chunk);
    emit_chunk(&w, 1);
    em_end(e, &l);
}
