/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_column.c: the column form of reduce kernels on a GPU, in the order that ir/gpu.h says. A block has 32 columns and
 * 8 threads for each: a warp reads 32 adjacent elements of a row, 8 warps rows side by side, each warp a few of its
 * rows before it uses the first. The 8 accumulators of a column become one in shared memory. Where columns are few,
 * chunks of the rows have blocks of their own, and the last of them combines the results of all in the same way. */
#include "jit/gpu_row.h"

enum { ROWS = IR_GPU_COLUMN_ROWS, COLUMNS = IR_GPU_WARP, UNROLL = 4 };

typedef struct column {
    gpu_row *w;
    gpu_pass p;
    gpu_cell *acc; /* by number in the pass */
    red_at at;
    em_values v;                 /* of the row */
    LLVMValueRef x, y, is_valid; /* thread of the block; is its column one of the kernel's? */
    LLVMValueRef block;          /* number of the block's columns */
} column;

static void clear(column *t) {
    for (int a = 0; a < t->p.n_acc; a++) gpu_cell_set(t->w, t->p.acc[a], t->acc[a], gpu_no_acc(t->w, t->p.acc[a]));
}

static void take(column *t, int a, LLVMValueRef x, LLVMValueRef position) {
    int j = t->p.acc[a];
    red_acc now = gpu_cell_get(t->w, j, t->acc[a]);
    gpu_cell_set(t->w, j, t->acc[a], red_take(t->w->r, j, now, x, position, NULL));
}

/* Of an element of column c: what is stored of it. Threads beyond the last column have that one's values. */
static void store(column *t, em_values *v, const red_at *at) {
    red *r = t->w->r;
    emit *e = r->e;
    for (int s = 0; s < r->k->n_insts; s++) {
        const ir_kinst *in = &r->k->inst[s];
        if (in->op != IR_K_STORE || !r->is_element_store[s]) continue;
        LLVMValueRef x = em_value(e, v, s), off = red_advance(e, NULL, at->i, e->stride[in->index][r->last]);
        em_branch valid = em_if(e, t->is_valid);
        em_store(e, in->index, x, red_advance(e, off, at->c, e->stride[in->index][r->v]), em_i64s(e, 0), NULL);
        em_endif(e, &valid);
    }
}

/* n elements ROWS rows apart from row i on: what they load, then their values, then the accumulators in order, then
 * what is stored. */
static void take_rows(column *t, LLVMValueRef i, LLVMValueRef c, int n) {
    red *r = t->w->r;
    emit *e = r->e;
    const ir_kernel *k = r->k;
    em_values v[UNROLL];
    red_at at[UNROLL];
    for (int u = 0; u < n; u++) {
        at[u] = (red_at){r, u ? em_add(e, i, em_i64s(e, u * ROWS)) : i, c, NULL};
        em_values_init(&v[u], red_load_value, &at[u]);
    }
    for (int s = 0; s < k->n_insts; s++) /* what only results use is loaded once, when the column is done */
        for (int u = 0; u < n && k->inst[s].op == IR_K_LOAD && !k->inst[s].variant && (r->varies[s] & r->r_mask); u++)
            em_value(e, &v[u], s);
    for (int u = 0; u < n; u++)
        for (int a = 0; a < t->p.n_acc; a++) em_value(e, &v[u], k->inst[r->reduction[t->p.acc[a]]].in[0]);
    for (int u = 0; u < n; u++)
        for (int a = 0; a < t->p.n_acc; a++)
            take(t, a, em_value(e, &v[u], k->inst[r->reduction[t->p.acc[a]]].in[0]),
                 red_advance(e, at[u].i, r->outer, e->size[r->last]));
    for (int u = 0; u < n; u++) store(t, &v[u], &at[u]);
}

/* Blocks [from, to) of the rows, of column c. */
static void sweep(column *t, LLVMValueRef from, LLVMValueRef to, LLVMValueRef c) {
    red *r = t->w->r;
    emit *e = r->e;
    em_loop blocks = em_for(e, from, to, em_i64s(e, 1));
    red_enter_block(r, blocks.i);
    LLVMValueRef i = em_add(e, r->begin, t->y), tail = em_sub(e, r->end, em_i64s(e, (UNROLL - 1) * ROWS));
    em_loop many = em_for(e, i, tail, em_i64s(e, UNROLL * ROWS));
    take_rows(t, many.i, c, UNROLL);
    em_end(e, &many);
    em_loop rest = em_for(e, many.i, r->end, em_i64s(e, ROWS));
    take_rows(t, rest.i, c, 1);
    em_end(e, &rest);
    red_leave_block(r);
    em_end(e, &blocks);
}

static LLVMValueRef slot_of(column *t, LLVMValueRef y) {
    emit *e = t->w->r->e;
    return red_slot(e, t->w->slots, em_add(e, em_mul(e, y, em_i64s(e, COLUMNS)), t->x));
}

/* The accumulators of a column as one, in order: threads of y = 0 have it. All threads of the block come here. */
static void combine(column *t, red_acc *acc) {
    red *r = t->w->r;
    emit *e = r->e;
    for (int a = 0; a < t->p.n_acc; a++) {
        int j = t->p.acc[a];
        acc[a] = gpu_cell_get(t->w, j, t->acc[a]);
        red_store_partial(r, j, acc[a], slot_of(t, t->y));
        gpu_barrier(e);
        for (int i = 1; i < ROWS; i++)
            acc[a] = red_merge(r, j, acc[a], gpu_load_partial(t->w, j, slot_of(t, em_i64s(e, i))));
        gpu_barrier(e); /* before the slots are used again */
    }
}

static em_branch if_owner(column *t) {
    emit *e = t->w->r->e;
    return em_if(e, em_and(e, em_icmp(e, LLVMIntEQ, t->y, em_i64s(e, 0)), t->is_valid));
}

static void begin(column *t, LLVMValueRef q, LLVMValueRef c) {
    red_enter_row(t->w->r, q);
    t->at = (red_at){t->w->r, NULL, c, NULL};
    em_values_init(&t->v, red_load_value, &t->at);
    clear(t);
}

static void finish(column *t, red_acc *acc) {
    em_branch owner = if_owner(t);
    gpu_set_results(t->w, &t->p, acc, &t->v);
    red_finish(t->w->r, &t->v, &t->at);
    em_endif(t->w->r->e, &owner);
}

static void whole(column *t, LLVMValueRef q, LLVMValueRef c) {
    red_acc acc[IR_KERNEL_MAX_INSTS];
    begin(t, q, c);
    sweep(t, em_i64s(t->w->r->e, 0), t->w->r->partials, c);
    combine(t, acc);
    finish(t, acc);
}

static void join_parts(column *t, LLVMValueRef q, LLVMValueRef c) {
    red *r = t->w->r;
    emit *e = r->e;
    red_acc acc[IR_KERNEL_MAX_INSTS];
    begin(t, q, c);
    em_loop l = em_for(e, t->y, t->w->chunks, em_i64s(e, ROWS));
    for (int a = 0; a < t->p.n_acc; a++) {
        int j = t->p.acc[a];
        LLVMValueRef number = em_add(e, em_mul(e, q, t->w->chunks), l.i);
        red_acc one = gpu_load_partial(t->w, j, gpu_part_slot(t->w, j, number, c));
        gpu_cell_set(t->w, j, t->acc[a], red_merge(r, j, gpu_cell_get(t->w, j, t->acc[a]), one));
    }
    em_end(e, &l);
    combine(t, acc);
    finish(t, acc);
}

/* Part `number` of all rows' parts; the last one of a row joins them. */
static void part(column *t, LLVMValueRef number, LLVMValueRef c) {
    emit *e = t->w->r->e;
    LLVMValueRef q, chunk, from, to;
    red_acc acc[IR_KERNEL_MAX_INSTS];
    red_divide(e, number, t->w->chunks, &q, &chunk);
    begin(t, q, c);
    gpu_chunk_range(t->w, chunk, &from, &to);
    sweep(t, from, to, c);
    combine(t, acc);
    em_branch owner = if_owner(t);
    for (int a = 0; a < t->p.n_acc; a++)
        red_store_partial(t->w->r, t->p.acc[a], acc[a], gpu_part_slot(t->w, t->p.acc[a], number, c));
    em_endif(e, &owner);
    LLVMValueRef blocks = em_lshr(e, em_add(e, t->w->r->columns, em_i64s(e, COLUMNS - 1)), 5);
    em_branch last = em_if(e, gpu_is_last(t->w, em_add(e, em_mul(e, q, blocks), t->block), t->w->chunks));
    join_parts(t, q, c);
    em_endif(e, &last);
}

/* Units [0, n) along y and columns along x, as many rounds for each thread of a block: there are barriers. */
static void each_column(column *t, LLVMValueRef n, void (*make)(column *t, LLVMValueRef number, LLVMValueRef c)) {
    red *r = t->w->r;
    emit *e = r->e;
    LLVMValueRef width = em_i64s(e, COLUMNS);
    em_loop units = em_for(e, gpu_special(e, "ctaid.y"), n, gpu_special(e, "nctaid.y"));
    em_loop l = em_for(e, em_mul(e, gpu_special(e, "ctaid.x"), width), r->columns,
                       em_mul(e, gpu_special(e, "nctaid.x"), width));
    LLVMValueRef c = em_add(e, l.i, t->x);
    t->block = em_lshr(e, l.i, 5);
    t->is_valid = em_icmp(e, LLVMIntSLT, c, r->columns);
    make(t, units.i, em_select(e, t->is_valid, c, em_sub(e, r->columns, em_i64s(e, 1))));
    em_end(e, &l);
    em_end(e, &units);
}

/* As in gpu_row.c: so that a multiprocessor has room for as many threads as it can run, or half of them. */
static void limit_registers(column *t) {
    enum { FEW_INSTS = 6, MOST_INSTS = 40 };
    const ir_kernel *k = t->w->r->k;
    bool is_wide = t->p.n_acc > 1;
    for (int i = 0; i < k->n_insts; i++) is_wide |= ir_dtypes[k->inst[i].dtype].bytes > 4; /* arg-reductions too */
    if (k->n_insts > MOST_INSTS) return;
    gpu_limit_registers(t->w->r->e, is_wide || k->n_insts > FEW_INSTS ? 64 : k->level < IR_LEVEL_SM80 ? 48 : 32);
}

void gpu_emit_columns(gpu_row *w) {
    red *r = w->r;
    emit *e = r->e;
    column *t = FU_NEW(e->arena, column);
    t->w = w;
    t->x = gpu_special(e, "tid.x");
    t->y = gpu_special(e, "tid.y");
    gpu_find_pass(r, 0, &t->p);
    t->acc = FU_NEW_N(e->arena, gpu_cell, t->p.n_acc + 1);
    for (int a = 0; a < t->p.n_acc; a++) t->acc[a] = gpu_cell_new(w, t->p.acc[a]);
    w->slots = gpu_shared(e, e->t_i64, ROWS * COLUMNS * IR_PARTIAL_BYTES / 8);
    w->is_last = gpu_shared(e, e->t_i32, 1);
    limit_registers(t);
    em_branch cut = em_if(e, w->is_cut);
    each_column(t, em_mul(e, r->rows, w->chunks), part);
    em_else(e, &cut);
    each_column(t, r->rows, whole);
    em_endif(e, &cut);
}
