/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* reduce_column.c: reductions of the column form: the lanes are along the kept dim v, so each lane accumulates its own
 * column in order and nothing is combined across lanes. What reduce kernels and row kernels (row_column.c) share, and
 * the two phases of the former:
 *
 *   phase 0     ROWS rows at a time, along them: memory is read in long runs, and the partial results themselves are
 *               the accumulators. Programs that need to know where they are, and very costly ones: chunk of columns,
 *               VECTORS vectors at a time: the block's elements in order, accumulators in registers. Few columns are
 *               too few sums for the adders: as many blocks at once as make VECTORS of them
 *   phase 1     chunk of columns: the tree over the partial results, then the row-level program, vector by vector
 *
 * The end of a chunk: masked vectors where the level has masks, or the columns are few and read cheaply under a mask;
 * else whole vectors, then single columns. */
#include "jit/reduce_column.h"
#include <string.h>

/* COSTLY_ROWS: softmax over axis 0 of 4000 x 4000 with 1, 2, 4, 8: 17.1, 12.6, 11.4, 10.6 ms; over the channels of
 * 8x64x56x56 694, 651, 627, 666 microseconds (Zen 5, November 2026). */
enum { VECTORS = IR_COLUMN_VECTORS, ROWS = 8, COSTLY_ROWS = 4 };

/* Partial result i of reduction j, column c. */
static LLVMValueRef value_at(column *w, int j, LLVMValueRef partial, LLVMValueRef c, bool of_index) {
    red *r = w->r;
    emit *e = r->e;
    LLVMValueRef number = red_advance(e, w->row, em_i64s(e, j), w->rows);
    number = red_advance(e, partial, number, r->partials);
    LLVMValueRef off = em_mul(e, number, em_i64s(e, IR_PARTIAL_BYTES));
    off = red_advance(e, NULL, off, w->width);
    if (of_index) off = em_add(e, off, em_mul(e, w->width, em_i64s(e, 8)));
    int bytes = of_index ? 8 : ir_dtypes[red_type(r, j)].bytes;
    if (w->first) c = em_sub(e, c, w->first);
    return em_gep(e, w->slots, e->t_i8, em_add(e, off, em_mul(e, c, em_i64s(e, bytes))));
}

static void for_columns(column *w, LLVMValueRef from, int vectors, bool is_masked, LLVMValueRef end) {
    emit *e = w->r->e;
    em_loop l = em_for(e, from, end, em_i64s(e, (int64_t)vectors * e->lanes));
    if (e->lanes == 1) em_loop_is_rare(e, &l);
    w->step(w, l.i, vectors, is_masked ? em_mask(e, em_sub(e, end, l.i)) : NULL);
    em_end(e, &l);
}

/* The end of the whole groups of `group` columns from `from` on. */
static LLVMValueRef whole(column *w, LLVMValueRef from, int64_t group) {
    emit *e = w->r->e;
    return em_add(e, from, em_and(e, em_sub(e, w->end, from), em_i64s(e, -group)));
}

void column_chunk(column *w, int vectors) {
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

void column_enter(column *w, LLVMValueRef chunk, LLVMValueRef by) {
    emit *e = w->r->e;
    w->begin = em_mul(e, chunk, by);
    w->end = em_min(e, em_add(e, w->begin, by), w->r->columns);
}

LLVMValueRef column_chunks(red *r, LLVMValueRef by) {
    emit *e = r->e;
    LLVMValueRef chunks, rest;
    red_divide(e, em_add(e, r->columns, em_sub(e, by, em_i64s(e, 1))), by, &chunks, &rest);
    return chunks;
}

LLVMValueRef column_load(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    const column_at *at = user;
    if (!ir_kernel_is_reduce_op(inst->op)) return red_load_value(e, v, inst, user);
    red *r = at->w->r;
    const int j = r->number[inst - r->k->inst];
    LLVMValueRef zero = em_i64s(e, 0), mask = at->at.mask;
    if (red_is_arg(r, j)) return em_load_ptr(e, FUSOR_I64, value_at(at->w, j, zero, at->at.c, true), mask, 8);
    return red_load(r, j, value_at(at->w, j, zero, at->at.c, false), NULL, FUSOR_I64, mask).value;
}

LLVMValueRef column_line(column *w, int inst, LLVMValueRef c) {
    emit *e = w->r->e;
    return em_gep(e, w->line[inst], em_memory_type(e, w->r->k->inst[inst].dtype), em_sub(e, c, w->first));
}

/* Values at a place; those that do not vary along the block, at w->s's. */
static void seeds_init(em_values *v, column_at *at) {
    column *w = at->w;
    em_values_init(v, column_load, at);
    for (int n = 0; w->line && n < w->r->k->n_insts; n++) {
        const ir_dtype t = w->r->k->inst[n].dtype;
        if (w->line[n] && w->s->is_seed[n])
            v->at[n] = em_load_ptr(w->r->e, t, column_line(w, n, at->at.c), at->at.mask, ir_dtypes[t].bytes);
    }
}

/* ---- phase 0 ---- */
/* Does a value depend on which row it is of? If not, rows are evaluated as if each were the first. */
static bool has_row_number(const red_sweep *s) {
    const ir_kernel *k = s->r->k;
    for (int n = 0; n < k->n_insts; n++)
        if (k->inst[n].op == IR_K_INDEX && k->inst[n].index == s->r->last && s->is_needed[n]) return true;
    return false;
}

/* e->base, further on by n times the stride along the rows. */
static void move_base(const red *r, LLVMValueRef n) {
    emit *e = r->e;
    int64_t stride;
    for (int b = 0; b < r->k->n_buffers; b++) {
        if (red_constant(e->stride[b][r->last], &stride) && stride == 0) continue;
        e->base[b] = em_gep(e, e->base[b], em_memory_type(e, r->k->buffer[b].dtype),
                            red_advance(e, NULL, n, e->stride[b][r->last]));
    }
}

/* What does not vary along the block, at each of its vectors' columns. */
static void make_seeds(column *w, const LLVMValueRef *at, int vectors, LLVMValueRef mask, LLVMValueRef *seed) {
    red *r = w->r;
    red_sweep *s = w->s;
    em_values v;
    memset(s->seed, 0, sizeof s->seed);
    for (int u = 0; u < vectors; u++) {
        column_at place = {{r, NULL, at[u], mask}, w};
        seeds_init(&v, &place);
        for (int n = 0; n < r->k->n_insts; n++)
            if (s->is_seed[n]) seed[u * r->k->n_insts + n] = em_value(r->e, &v, n);
        for (int n = 0; n < r->k->n_insts && r->has_access && u == 0 && r->e->lanes > 1; n++)
            if (s->is_seed[n] && !(r->varies[n] >> r->v & 1)) s->seed[n] = em_uniform(r->e, &v, n);
    }
}

/* nans: by reduction and vector, those set apart. */
static void store_sums(column *w, const LLVMValueRef *at, int vectors, LLVMValueRef mask, red_acc (*sum)[VECTORS],
                       LLVMValueRef (*nans)[VECTORS]) {
    red *r = w->r;
    emit *e = r->e;
    LLVMValueRef first = em_add(e, red_advance(e, NULL, r->outer, e->size[r->last]), r->begin);
    for (int a = 0; a < w->s->n_acc; a++)
        for (int u = 0; u < w->blocks * vectors; u++) {
            const int j = w->s->acc[a], v = u % vectors;
            red_acc total = sum[a][u];
            LLVMValueRef index_at = NULL, partial = em_add(e, w->partial, em_i64s(e, u / vectors));
            if (red_sets_nans_apart(r, j)) total = red_put_nans(r, j, total, nans[a][v]);
            if (total.index) {
                total.index = em_add(e, em_splat(e, first), LLVMBuildZExt(e->b, total.index, em_vec(e, e->t_i64), ""));
                index_at = value_at(w, j, partial, at[v], true);
            }
            red_store(r, j, total, value_at(w, j, partial, at[v], false), index_at, FUSOR_I64, mask);
        }
}

/* Of w->blocks blocks from the one entered on: sum g * vectors + u is of vector u of block g. */
static void accumulate(column *w, LLVMValueRef c, int vectors, LLVMValueRef mask) {
    red *r = w->r;
    red_sweep *s = w->s;
    emit *e = r->e;
    const int sums = w->blocks * vectors;
    const bool steps = !has_row_number(s) && !s->kept_row; /* addresses do, from row to row */
    LLVMValueRef *seed = FU_NEW_N(e->arena, LLVMValueRef, VECTORS * r->k->n_insts), at[VECTORS];
    LLVMValueRef block[IR_KERNEL_MAX_BUFFERS], row[IR_KERNEL_MAX_BUFFERS];
    LLVMValueRef nans[s->n_acc + 1][VECTORS], nans_phi[s->n_acc + 1][VECTORS], even[s->n_acc + 1][VECTORS];
    red_acc acc[s->n_acc + 1][VECTORS], phi[s->n_acc + 1][VECTORS];
    red_body b;
    memcpy(block, e->base, sizeof block);
    for (int u = 0; u < vectors; u++) at[u] = em_add(e, c, em_i64s(e, (int64_t)u * e->lanes));
    make_seeds(w, at, vectors, mask, seed);
    if (steps) move_base(r, r->begin);
    memcpy(row, e->base, sizeof row);
    em_loop l = em_for(e, r->begin, r->end, em_i64s(e, 1));
    for (int n = 0; steps && n < r->k->n_buffers; n++) e->base[n] = row[n] = em_loop_phi(e, &l, row[n]);
    for (int a = 0; a < s->n_acc; a++)
        for (int u = 0; u < sums; u++) {
            int j = s->acc[a];
            red_acc none = red_identity(r, j, red_is_arg(r, j) ? LLVMConstNull(em_vec(e, e->t_i32)) : NULL);
            phi[a][u].value = em_loop_phi(e, &l, none.value);
            phi[a][u].index = none.index ? em_loop_phi(e, &l, none.index) : NULL;
        }
    for (int a = 0; a < s->n_acc; a++) /* the blocks of a vector share them: what they come to is a NaN all the same */
        for (int v = 0; v < vectors && red_sets_nans_apart(r, s->acc[a]); v++)
            nans[a][v] = nans_phi[a][v] = em_loop_phi(e, &l, red_no_nans(r, s->acc[a]));
    LLVMValueRef position =
        s->has_arg ? em_splat(e, LLVMBuildTrunc(e->b, em_sub(e, l.i, r->begin), e->t_i32, "")) : NULL;
    for (int u = 0; u < sums; u++) {
        const int v = u % vectors;
        if (u > 0 && v == 0) move_base(r, em_i64s(e, IR_COLUMN_BLOCK));
        red_evaluate(s, &b, (red_at){r, steps ? em_i64s(e, 0) : l.i, at[v], mask}, seed + v * r->k->n_insts);
        for (int a = 0; a < s->n_acc; a++) {
            const int j = s->acc[a];
            LLVMValueRef x = s->x[a];
            const bool is_odd = u / vectors % 2, is_last = u + vectors >= sums;
            acc[a][u] = phi[a][u];
            if (!red_sets_nans_apart(r, j)) {
                acc[a][u] = red_take(r, j, phi[a][u], x, position, NULL);
                continue;
            }
            acc[a][u].value = red_better(r, j, phi[a][u].value, x);
            if (is_odd || is_last) nans[a][v] = red_add_nans(r, nans[a][v], is_odd ? even[a][v] : x, x);
            even[a][v] = x;
        }
        red_write(s, &b);
    }
    memcpy(e->base, row, sizeof row);
    if (steps) move_base(r, em_i64s(e, 1));
    for (int n = 0; steps && n < r->k->n_buffers; n++) em_loop_next(e, row[n], e->base[n]);
    for (int a = 0; a < s->n_acc; a++)
        for (int u = 0; u < sums; u++) {
            em_loop_next(e, phi[a][u].value, acc[a][u].value);
            if (phi[a][u].index) em_loop_next(e, phi[a][u].index, acc[a][u].index);
        }
    for (int a = 0; a < s->n_acc; a++)
        for (int v = 0; v < vectors && red_sets_nans_apart(r, s->acc[a]); v++)
            em_loop_next(e, nans_phi[a][v], nans[a][v]);
    em_end(e, &l);
    memcpy(e->base, block, sizeof block);
    store_sums(w, at, vectors, mask, phi, nans_phi);
}

/* ---- phase 0, along the rows ---- */
/* How many rows; 0: not in this way. Long programs, several costly functions and those of f64 would be much code. */
static int rows_along(const red_sweep *s) {
    const red *r = s->r;
    int costly = 0;
    if (s->has_arg || has_row_number(s)) return 0;
    if (s->n_acc == 0) return 4;
    for (int n = 0; n < r->k->n_insts; n++) {
        uint16_t op = r->k->inst[n].op;
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
    LLVMValueRef row_value[ROWS][IR_KERNEL_MAX_INSTS], to[s->n_acc + 1];
    LLVMValueRef kept[k->n_insts], row_kept[ROWS][k->n_insts], kept_at = s->kept_at;
    bool is_row_value[IR_KERNEL_MAX_INSTS], is_seed[IR_KERNEL_MAX_INSTS];
    red_acc acc[s->n_acc + 1];
    red_body b;
    memcpy(block, e->base, sizeof block);
    memcpy(is_seed, s->is_seed, sizeof is_seed);
    mark_row_values(s, is_row_value);
    for (int u = 0; u < rows; u++)
        for (int n = 0; n < k->n_buffers; n++) {
            LLVMValueRef step = e->stride[n][r->last], off = u ? step : red_advance(e, NULL, i, step);
            base[u][n] = em_gep(e, u ? base[u - 1][n] : block[n], em_memory_type(e, k->buffer[n].dtype), off);
        }
    for (int u = 0; u < rows; u++) {
        memcpy(e->base, base[u], sizeof block);
        b.at = (red_at){r, em_i64s(e, 0), NULL, NULL};
        em_values_init(&b.v, red_load_value, &b.at);
        for (int n = 0; n < k->n_insts; n++)
            if (is_row_value[n]) row_value[u][n] = em_value(e, &b.v, n);
    }
    memcpy(e->base, block, sizeof block);
    for (int n = 0; n < k->n_insts && s->kept_row; n++) {
        kept[n] = s->kept_row[n];
        for (int u = 0; u < rows && kept[n]; u++) {
            LLVMValueRef number = em_add(e, kept_at, em_add(e, i, em_i64s(e, u)));
            row_kept[u][n] =
                em_gep(e, kept[n], em_memory_type(e, k->inst[n].dtype), em_mul(e, number, s->kept_step[n]));
        }
    }
    s->kept_at = em_i64s(e, 0);
    for (int a = 0; a < s->n_acc; a++) to[a] = value_at(w, s->acc[a], w->partial, em_i64s(e, 0), false);
    em_loop l = em_for(e, w->begin, end, em_i64s(e, e->lanes));
    column_at place = {{r, NULL, l.i, NULL}, w};
    seeds_init(&b.v, &place);
    for (int n = 0; n < k->n_insts; n++)
        if (s->is_seed[n]) seed[n] = em_value(e, &b.v, n);
    LLVMValueRef at[s->n_acc + 1], nans[s->n_acc + 1], even[s->n_acc + 1];
    bool is_apart[s->n_acc + 1];
    for (int a = 0; a < s->n_acc; a++) {
        at[a] = em_gep(e, to[a], em_memory_type(e, red_type(r, s->acc[a])), l.i);
        acc[a] = red_load(r, s->acc[a], at[a], NULL, FUSOR_I64, NULL);
        is_apart[a] = rows > 1 && red_sets_nans_apart(r, s->acc[a]);
        if (is_apart[a]) nans[a] = red_add_nans(r, red_no_nans(r, s->acc[a]), acc[a].value, acc[a].value);
    }
    for (int n = 0; n < k->n_insts; n++) s->is_seed[n] |= is_row_value[n];
    for (int u = 0; u < rows; u++) {
        memcpy(e->base, base[u], sizeof block);
        for (int n = 0; n < k->n_insts; n++)
            if (is_row_value[n]) seed[n] = row_value[u][n];
        for (int n = 0; n < k->n_insts && s->kept_row; n++)
            if (kept[n]) s->kept_row[n] = row_kept[u][n];
        red_evaluate(s, &b, (red_at){r, em_i64s(e, 0), l.i, NULL}, seed);
        for (int a = 0; a < s->n_acc; a++) {
            const int j = s->acc[a];
            if (!is_apart[a]) acc[a] = red_take(r, j, acc[a], s->x[a], NULL, NULL);
            else acc[a].value = red_better(r, j, acc[a].value, s->x[a]);
            if (is_apart[a] && u % 2) nans[a] = red_add_nans(r, nans[a], even[a], s->x[a]);
            even[a] = s->x[a];
        }
        red_write(s, &b);
    }
    for (int a = 0; a < s->n_acc; a++)
        if (is_apart[a]) acc[a] = red_put_nans(r, s->acc[a], acc[a], nans[a]);
    s->kept_at = kept_at;
    if (s->kept_row) memcpy(s->kept_row, kept, sizeof kept);
    memcpy(e->base, block, sizeof block);
    memcpy(s->is_seed, is_seed, sizeof is_seed);
    for (int a = 0; a < s->n_acc; a++) red_store(r, s->acc[a], acc[a], at[a], NULL, FUSOR_I64, NULL);
    em_end(e, &l);
}

/* The chunk's columns up to `end`, whole vectors; then those behind them are the chunk's. */
static void emit_along(column *w, int rows, LLVMValueRef end) {
    red *r = w->r;
    emit *e = r->e;
    e->lanes = e->level->lanes;
    LLVMValueRef groups = em_and(e, em_sub(e, r->end, r->begin), em_i64s(e, -rows));
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
}

/* ---- phase 0, few columns ---- */
/* Columns that are known (ir/plan_dims.c), in reduce kernels, whose chunks have all of them. */
static bool are_few(const red *r, const red_sweep *s, int64_t *n) {
    return r->k->kind == IR_KERNEL_REDUCE && red_constant(r->columns, n) && *n <= VECTORS * r->e->level->lanes &&
           !has_row_number(s);
}

/* Do the sums of so many vectors, and what they set apart, leave registers for what is computed? */
static bool have_registers(const red *r, const red_sweep *s, int vectors) {
    const emit *e = r->e;
    int bytes = 0;
    for (int a = 0; a < s->n_acc; a++)
        bytes += ir_dtypes[red_type(r, s->acc[a])].bytes * (red_sets_nans_apart(r, s->acc[a]) ? 2 : 1);
    return vectors * e->level->lanes * bytes <= e->level->vector_bytes * e->level->registers * 3 / 4;
}

/* Blocks at once. */
static int blocks_of_few(const red *r, const red_sweep *s, int64_t n) {
    const int vectors = (int)(n / r->e->level->lanes), most = have_registers(r, s, VECTORS) ? VECTORS : VECTORS / 2;
    if (s->is_costly || s->has_arg || r->r0 < r->last || !have_registers(r, s, most)) return 1;
    return vectors > most ? 1 : vectors ? most / vectors : most;
}

/* Are the rest's columns one vector under a mask? It is known to the code: where the level has none, loads of neighbours
 * are as many instructions as there are columns at most. */
static bool masks_rest(const red *r, const red_sweep *s) {
    if (r->e->level->has_mask) return true;
    for (int i = 0; i < r->k->n_insts; i++) {
        const ir_kinst *in = &r->k->inst[i];
        if (in->op != IR_K_LOAD || !s->is_needed[i] || s->is_seed[i]) continue;
        const int64_t step = r->k->buffer[in->index].stride[r->v];
        if (step != 0 && step != 1) return false;
    }
    return s->n_stores == 0 && !r->has_access;
}

static void emit_few(column *w, int64_t n, int blocks) {
    red *r = w->r;
    emit *e = r->e;
    const int lanes = e->level->lanes, vectors = (int)(n / lanes), rows = rows_along(w->s);
    const bool masks = masks_rest(r, w->s);
    LLVMValueRef whole = em_i64s(e, (int64_t)vectors * lanes);
    w->begin = em_i64s(e, 0);
    w->blocks = blocks;
    w->step = accumulate;
    e->lanes = lanes;
    if (rows > 0 && vectors > 0 && (w->s->is_costly || !have_registers(r, w->s, vectors))) emit_along(w, rows, whole);
    else if (vectors > 0) accumulate(w, w->begin, vectors, NULL);
    if (masks && n % lanes) accumulate(w, whole, 1, em_mask(e, em_i64s(e, n % lanes)));
    e->lanes = 1;
    if (!masks && n % lanes) for_columns(w, whole, 1, false, em_i64s(e, n));
}

void column_block(column *w) {
    const int rows = rows_along(w->s);
    int64_t n;
    w->blocks = 1;
    w->step = accumulate;
    LLVMValueRef begin = w->begin;
    if (are_few(w->r, w->s, &n)) {
        emit_few(w, n, 1);
    } else if (rows > 0) {
        emit_along(w, rows, whole(w, begin, w->r->e->level->lanes));
        column_chunk(w, 1);
    } else {
        column_chunk(w, w->s->is_costly ? 1 : VECTORS);
    }
    w->begin = begin;
}

/* Partial results in shared memory. */
static column new_column(red *r, red_sweep *s) {
    return (column){.r = r, .s = s, .slots = r->e->shared, .rows = r->rows, .width = r->columns};
}

/* The blocks that w->partial is the first of, if all are whole and in rows of this tile, which `left` units are. */
static em_branch enter_group(column *w, int blocks, LLVMValueRef left, LLVMValueRef *is_group) {
    emit *e = w->r->e;
    LLVMValueRef n = em_i64s(e, blocks), past = em_mul(e, em_add(e, w->partial, n), em_i64s(e, IR_COLUMN_BLOCK));
    LLVMValueRef are_whole = em_icmp(e, LLVMIntSLE, past, w->r->e->size[w->r->last]);
    *is_group = em_and(e, are_whole, em_icmp(e, LLVMIntSLE, n, left));
    return em_if(e, *is_group);
}

void red_column_partials(red *r, red_sweep *s) {
    emit *e = r->e;
    column w = new_column(r, s);
    LLVMValueRef grain = e->tune[IR_TUNE_REDUCE_GRAIN], by = e->tune[IR_TUNE_REDUCE_COLUMNS],
                 chunks = column_chunks(r, by), row_and_partial, chunk;
    LLVMValueRef units = em_mul(e, em_mul(e, r->rows, r->partials), chunks), one = em_i64s(e, 1);
    LLVMValueRef end = em_min(e, em_mul(e, e->tile_end, grain), units), is_group = NULL;
    int64_t n = 0;
    const int blocks = are_few(r, s, &n) ? blocks_of_few(r, s, n) : 1;
    em_branch group = {0};
    em_loop l = em_for(e, em_mul(e, e->tile_begin, grain), end, one);
    red_divide(e, l.i, chunks, &row_and_partial, &chunk);
    red_divide(e, row_and_partial, r->partials, &w.row, &w.partial);
    red_enter_row(r, w.row);
    if (blocks > 1) {
        group = enter_group(&w, blocks, em_sub(e, end, l.i), &is_group);
        red_enter_block(r, w.partial);
        emit_few(&w, n, blocks);
        red_leave_block(r);
        em_else(e, &group);
    }
    red_enter_block(r, w.partial);
    column_enter(&w, chunk, by);
    column_block(&w);
    red_leave_block(r);
    if (blocks > 1) em_endif(e, &group);
    if (blocks > 1) l.step = em_select(e, is_group, em_i64s(e, blocks), one);
    em_end(e, &l);
}

/* ---- phase 1 ---- */
static red_acc load_partial(column *w, int j, LLVMValueRef partial, LLVMValueRef c, LLVMValueRef mask) {
    LLVMValueRef index_at = red_is_arg(w->r, j) ? value_at(w, j, partial, c, true) : NULL;
    return red_load(w->r, j, value_at(w, j, partial, c, false), index_at, FUSOR_I64, mask);
}

/* The tree of ir/schedule.h in place, then partial result 0; the identity where nothing is reduced. */
LLVMValueRef column_tree(column *w, int j, LLVMValueRef c, LLVMValueRef mask) {
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

void column_keep(column *w, int j, LLVMValueRef c, LLVMValueRef result, LLVMValueRef mask) {
    emit *e = w->r->e;
    const bool is_arg = red_is_arg(w->r, j);
    const ir_dtype t = is_arg ? FUSOR_I64 : red_type(w->r, j);
    em_store_ptr(e, t, result, value_at(w, j, em_i64s(e, 0), c, is_arg), mask, ir_dtypes[t].bytes);
}

static void finish(column *w, LLVMValueRef c, int vectors, LLVMValueRef mask) {
    red *r = w->r;
    red_at at = {r, NULL, c, mask};
    em_values v;
    (void)vectors;
    em_values_init(&v, red_load_value, &at);
    for (int j = 0; j < r->n_reductions; j++) v.at[r->reduction[j]] = column_tree(w, j, c, mask);
    red_finish(r, &v, &at);
}

void red_column_finish(red *r) {
    emit *e = r->e;
    column w = new_column(r, NULL);
    w.step = finish;
    LLVMValueRef grain = e->tune[IR_TUNE_REDUCE_FINISH_GRAIN], by = e->tune[IR_TUNE_REDUCE_COLUMNS],
                 chunks = column_chunks(r, by), chunk;
    LLVMValueRef units = em_mul(e, r->rows, chunks);
    em_loop l =
        em_for(e, em_mul(e, e->tile_begin, grain), em_min(e, em_mul(e, e->tile_end, grain), units), em_i64s(e, 1));
    red_divide(e, l.i, chunks, &w.row, &chunk);
    red_enter_row(r, w.row);
    column_enter(&w, chunk, by);
    column_chunk(&w, 1);
    em_end(e, &l);
}
