/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* row_column.c: row kernels of the column form (softmax over channels, norms along an outer axis): the lanes are along
 * the kept dim v. A unit of work is a chunk of columns of a row, as wide as the second-level cache has room for.
 *
 *   for each unit of the tiles:
 *       for each pass: sweep the blocks of the chunk (reduce_column.c); the tree over the partial results of each
 *                      column; what later passes read of values per column goes to lines in scratch
 *       row-level stores
 *
 * Kept values lie in the rows of an output, or in scratch. Layout of scratch: kernel.h. */
#include "jit/reduce_column.h"
#include "jit/row.h"

typedef struct row_column {
    column w;
    row_passes *passes;
    int pass; /* the one that is finished */
} row_column;

static LLVMValueRef rounded(emit *e, LLVMValueRef bytes) {
    return em_and(e, em_add(e, bytes, em_i64s(e, 63)), em_i64s(e, -64));
}

/* Is the value one of a column that a later sweep reads? Results of reductions are read from their slots. */
static bool has_line(const row_passes *p, int inst) {
    for (int i = p->r->pass[inst]; i < p->n; i++)
        if (p->sweep[i] && p->sweep[i]->is_seed[inst]) return true;
    return false;
}

static void place_scratch(row_column *c) {
    column *w = &c->w;
    red *r = w->r;
    emit *e = r->e;
    LLVMValueRef at = em_mul(e, em_max(e, r->partials, em_i64s(e, 1)), em_i64s(e, IR_PARTIAL_BYTES * r->n_reductions));
    at = em_mul(e, at, w->width);
    w->slots = e->scratch;
    w->line = FU_NEW_N(e->arena, LLVMValueRef, r->k->n_insts);
    for (int i = 0; i < r->k->n_insts; i++) {
        if (!ir_kernel_has_line(r->k, i, r->varies[i], r->pass[i])) continue;
        at = rounded(e, at);
        if (has_line(c->passes, i)) w->line[i] = em_gep(e, e->scratch, e->t_i8, at);
        at = em_add(e, at, em_mul(e, w->width, em_i64s(e, ir_dtypes[r->k->inst[i].dtype].bytes)));
    }
    row_place_kept(c->passes, rounded(e, at), w->width);
}

/* The chunk entered: rows of kept values as if they began at column 0. */
static void enter_kept(row_column *c) {
    row_passes *p = c->passes;
    red *r = p->r;
    emit *e = r->e;
    for (int i = 0; i < r->k->n_insts; i++) {
        if (!p->place[i]) continue;
        LLVMTypeRef t = em_memory_type(e, r->k->inst[i].dtype);
        const int b = p->kept_in[i];
        p->kept[i] = b >= 0 ? r->at_row[b] : em_gep(e, p->place[i], t, em_sub(e, em_i64s(e, 0), c->w.begin));
        p->step[i] = b >= 0 ? e->stride[b][r->last] : c->w.width;
    }
}

static void end_pass(column *w, LLVMValueRef c, int vectors, LLVMValueRef mask) {
    row_column *of = (row_column *)w;
    red *r = w->r;
    emit *e = r->e;
    column_at at = {{r, NULL, c, mask}, w};
    em_values v;
    (void)vectors;
    em_values_init(&v, column_load, &at);
    for (int a = 0; a < w->s->n_acc; a++) {
        const int j = w->s->acc[a];
        LLVMValueRef x = v.at[r->reduction[j]] = column_tree(w, j, c, mask);
        column_keep(w, j, c, x, mask);
    }
    for (int i = 0; i < r->k->n_insts; i++) {
        const ir_dtype t = r->k->inst[i].dtype;
        if (w->line[i] && r->pass[i] == of->pass + 1)
            em_store_ptr(e, t, em_value(e, &v, i), column_line(w, i, c), mask, ir_dtypes[t].bytes);
    }
}

static void finish(column *w, LLVMValueRef c, int vectors, LLVMValueRef mask) {
    column_at at = {{w->r, NULL, c, mask}, w};
    em_values v;
    (void)vectors;
    em_values_init(&v, column_load, &at);
    red_finish(w->r, &v, &at.at);
}

static bool has_row_stores(const red *r) {
    for (int i = 0; i < r->k->n_insts; i++)
        if (r->k->inst[i].op == IR_K_STORE && !r->is_element_store[i]) return true;
    return false;
}

void row_columns(row_passes *p, LLVMValueRef begin, LLVMValueRef end) {
    red *r = p->r;
    emit *e = r->e;
    LLVMValueRef by = e->tune[IR_TUNE_ROW_COLUMNS], chunks = column_chunks(r, by), q, chunk;
    row_column *c = FU_NEW(e->arena, row_column);
    column *w = &c->w;
    *w = (column){.r = r, .rows = em_i64s(e, 1), .width = by};
    c->passes = p;
    place_scratch(c);
    em_loop l = em_for(e, begin, em_min(e, end, em_mul(e, r->rows, chunks)), em_i64s(e, 1));
    red_divide(e, l.i, chunks, &q, &chunk);
    red_enter_row(r, q);
    column_enter(w, chunk, by);
    w->first = w->begin;
    enter_kept(c);
    for (c->pass = 0; c->pass < p->n; c->pass++) {
        w->s = p->sweep[c->pass];
        if (!w->s) continue;
        em_loop blocks = em_for(e, em_i64s(e, 0), r->partials, em_i64s(e, 1));
        w->partial = blocks.i;
        red_enter_block(r, blocks.i);
        w->s->kept_at = red_advance(e, NULL, r->outer, e->size[r->last]);
        column_block(w);
        red_leave_block(r);
        em_end(e, &blocks);
        w->step = end_pass;
        if (w->s->n_acc) column_chunk(w, 1);
    }
    w->step = finish;
    if (has_row_stores(r)) column_chunk(w, 1);
    em_end(e, &l);
}
