/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_mma_store.c: from the accumulators of a contraction on tensor cores to its results. The fragments of the warps
 * become rows in shared memory (in the place of the operands; of warps with roles, 4 KB behind them); then threads side
 * by side take elements side by side, IR_GPU_VECTOR at a time where the launch says that addresses allow it, evaluate
 * the epilogue and store. Where k is
 * cut into parts, a part's sums go to the call's scratch instead, [part][batch][m][n, rounded up to IR_GPU_VECTOR], and
 * a second launch adds them in order and evaluates the epilogue. */
#include "jit/gpu_mma.h"

enum { CHUNK = 32, CHUNK_LOG = 5 }; /* bytes that are permuted as one: 8 lines of a fragment fall on all banks */

/* Lines of 128 bytes and more: their number's low 2 bits; of 64: the bit above the lowest. i64 */
static LLVMValueRef permutation_of(mma *m, LLVMValueRef row) {
    emit *e = m->e;
    LLVMValueRef is_narrow = em_icmp(e, LLVMIntSLT, m->columns_log, mma_num(m, 5));
    return em_select(e, is_narrow, em_and(e, em_lshr(e, row, 1), mma_num(m, 1)), em_and(e, row, mma_num(m, 3)));
}

void mma_stage_result(mma *m, LLVMValueRef *acc, int n_m, int n_n, LLVMValueRef row, LLVMValueRef column_chunk) {
    emit *e = m->e;
    const int line_bytes = 4 * m->t->columns, n_permuted = m->t->columns < 32 ? 2 : 4;
    LLVMValueRef group = em_lshr(e, m->lane, 2), line = em_add(e, row, group), at[4];
    LLVMValueRef x = n_permuted == 2 ? mma_bits(m, line, 1, 1) : mma_bits(m, line, 0, 2);
    LLVMValueRef base = em_add(e, em_mul(e, line, em_i32(e, line_bytes)), em_shl(e, mma_bits(m, m->lane, 0, 2), 3));
    base = em_add(e, base, em_shl(e, column_chunk, CHUNK_LOG));
    for (int j = 0; j < n_permuted; j++) at[j] = em_add(e, base, em_shl(e, em_xor(e, x, em_i32(e, j)), CHUNK_LOG));
    for (int i = 0; i < n_m; i++)
        for (int j = 0; j < n_n; j++)
            for (int half = 0; half < 2; half++) {
                LLVMValueRef *two = &acc[4 * (i * n_n + j) + 2 * half], v = LLVMGetPoison(LLVMVectorType(m->t_acc, 2));
                for (int c = 0; c < 2; c++)
                    v = LLVMBuildInsertElement(e->b, v, two[c], LLVMConstInt(e->t_i32, (unsigned)c, 0), "");
                int more = (16 * i + 8 * half) * line_bytes + j / n_permuted * n_permuted * CHUNK;
                LLVMValueRef to = em_gep(e, mma_at(m, at[j % n_permuted]), e->t_i8, mma_num(m, more));
                LLVMSetAlignment(LLVMBuildStore(e->b, v, to), 8);
            }
}

/* e->lanes accumulators of the block's result. */
static LLVMValueRef staged(mma *m, LLVMValueRef row, LLVMValueRef column) {
    emit *e = m->e;
    LLVMValueRef line = LLVMBuildShl(e->b, row, em_add(e, m->columns_log, mma_num(m, 2)), "");
    LLVMValueRef byte = em_xor(e, em_shl(e, column, 2), em_shl(e, permutation_of(m, row), CHUNK_LOG));
    LLVMValueRef v = LLVMBuildLoad2(e->b, em_vec(e, m->t_acc), mma_at(m, em_add(e, line, byte)), "");
    LLVMSetAlignment(v, 4 * (unsigned)e->lanes);
    return v;
}

static LLVMValueRef scratch_at(mma *m, LLVMValueRef part, LLVMValueRef batch, LLVMValueRef row, LLVMValueRef column) {
    emit *e = m->e;
    LLVMValueRef batches = m->s.size[IR_GPU_BATCHES], i;
    LLVMValueRef pitch = em_add(e, m->s.size[IR_GPU_COLUMNS], mma_num(m, IR_GPU_VECTOR - 1));
    pitch = em_and(e, pitch, mma_num(m, -IR_GPU_VECTOR));
    i = em_add(e, em_mul(e, part, batches), batch);
    i = em_add(e, em_mul(e, i, m->s.size[IR_GPU_ROWS]), row);
    return em_gep(e, e->scratch, m->t_acc, em_add(e, em_mul(e, i, pitch), column));
}

/* The epilogue on e->lanes results of the matmul from at->x[rows, columns] on, up to what is stored. */
static void evaluate(mma *m, mma_point *at, LLVMValueRef result, em_values *v) {
    const ir_kernel *k = m->k;
    em_values_init(v, mma_load_value, at);
    v->at[m->matmul] = result;
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE) em_value(m->e, v, k->inst[i].in[0]);
}

static void store_values(mma *m, const mma_point *at, em_values *v) {
    emit *e = m->e;
    const ir_kernel *k = m->k;
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE)
            em_store(e, k->inst[i].index, em_value(e, v, k->inst[i].in[0]), mma_offset(at, k->inst[i].index),
                     e->stride[k->inst[i].index][m->dim[IR_GPU_COLUMNS]], NULL);
}

static void store_results(mma *m, LLVMValueRef row, LLVMValueRef column, LLVMValueRef sums) {
    mma_point at = {m, {row, column, NULL}, m->dim[IR_GPU_COLUMNS]};
    em_values v;
    evaluate(m, &at, em_cast(m->e, sums, m->acc, m->k->inst[m->matmul].dtype), &v);
    store_values(m, &at, &v);
}

/* What the block has of the result: in sums of a part, or as results. */
static void emit_rows(mma *m, int lanes, bool is_part) {
    emit *e = m->e;
    const int log = lanes == 1 ? 0 : 2;
    LLVMValueRef rows = em_sub(e, m->s.size[IR_GPU_ROWS], m->m0),
                 most = LLVMBuildShl(e->b, mma_num(m, 1), m->rows_log, "");
    rows = em_min(e, rows, most);
    LLVMValueRef line_log = em_sub(e, m->columns_log, mma_num(m, log));
    LLVMValueRef mask = em_sub(e, LLVMBuildShl(e->b, mma_num(m, 1), line_log, ""), mma_num(m, 1));
    em_loop l = em_for(e, mma_i64(m, m->thread), LLVMBuildShl(e->b, rows, line_log, ""), m->threads);
    LLVMValueRef row = LLVMBuildLShr(e->b, l.i, line_log, ""), column = em_shl(e, em_and(e, l.i, mask), log);
    LLVMValueRef at_m = em_add(e, m->m0, row), at_n = em_add(e, m->n0, column);
    em_branch b = em_if(e, em_icmp(e, LLVMIntSLT, at_n, m->s.size[IR_GPU_COLUMNS]));
    e->lanes = lanes;
    LLVMValueRef sums = staged(m, row, column);
    if (is_part) {
        LLVMValueRef to = scratch_at(m, m->part, m->batch, at_m, at_n);
        LLVMSetAlignment(LLVMBuildStore(e->b, sums, to), 4 * (unsigned)lanes);
    } else {
        e->is_aligned = lanes > 1;
        store_results(m, at_m, at_n, sums);
        e->is_aligned = false;
    }
    e->lanes = 1;
    em_endif(e, &b);
    em_end(e, &l);
}

static LLVMValueRef can_store(mma *m) {
    emit *e = m->e;
    return em_icmp(e, LLVMIntNE, em_and(e, m->flags, mma_num(m, IR_GPU_MMA_STORE)), mma_num(m, 0));
}

void mma_emit_epilogue(mma *m) {
    emit *e = m->e;
    em_branch parts = em_if(e, em_icmp(e, LLVMIntSGT, m->parts, mma_num(m, 1)));
    emit_rows(m, IR_GPU_VECTOR, true);
    em_else(e, &parts);
    em_branch wide = em_if(e, can_store(m));
    emit_rows(m, IR_GPU_VECTOR, false);
    em_else(e, &wide);
    emit_rows(m, 1, false);
    em_endif(e, &wide);
    em_endif(e, &parts);
}

/* ---- results of one warp: 16 rows, in slices whose lines are 256 bytes: 64 columns, or 128 that are rounded to halves
 * before. Chunks of 8 columns are permuted as above: by the low bits of the line's number, 2 or 3. ---- */
enum { ROWS = 16, LINE_LOG = 8, CHUNK_COLUMNS = 8, AT_ONCE = 4 };

typedef struct slice_form {
    int bytes, columns, columns_log, chunk_log, n_permuted;
} slice_form;

static ir_dtype result_type(const mma *m) { return m->k->inst[m->matmul].dtype; }

static slice_form slice_form_of(const mma *m) {
    return ir_is_half(result_type(m)) ? (slice_form){2, 128, 7, 4, 8} : (slice_form){4, 64, 6, 5, 4};
}

static LLVMValueRef pair_of(mma *m, LLVMValueRef *acc) {
    emit *e = m->e;
    LLVMValueRef v = LLVMGetPoison(LLVMVectorType(m->t_acc, 2));
    for (int c = 0; c < 2; c++) v = LLVMBuildInsertElement(e->b, v, acc[c], em_i32(e, c), "");
    if (!ir_is_half(result_type(m))) return v;
    e->lanes = 2;
    v = em_half_bits(e, result_type(m), em_cast(e, v, m->acc, result_type(m)));
    e->lanes = 1;
    return v;
}

static void stage_slice(mma *m, const slice_form *f, LLVMValueRef *acc, LLVMValueRef place) {
    emit *e = m->e;
    const int log = __builtin_ctz((unsigned)f->n_permuted);
    LLVMValueRef line = em_lshr(e, m->lane, 2), x = mma_bits(m, line, 0, log), at[8];
    LLVMValueRef base = em_add(e, place, em_shl(e, line, LINE_LOG));
    base = em_add(e, base, em_mul(e, mma_bits(m, m->lane, 0, 2), em_i32(e, 2 * f->bytes)));
    for (int j = 0; j < f->n_permuted; j++)
        at[j] = mma_at(m, em_add(e, base, em_shl(e, em_xor(e, x, em_i32(e, j)), f->chunk_log)));
    for (int j = 0; j < f->columns / CHUNK_COLUMNS; j++)
        for (int half = 0; half < 2; half++) {
            const int more = (8 * half << LINE_LOG) + (j / f->n_permuted * f->n_permuted << f->chunk_log);
            LLVMValueRef to = em_gep(e, at[j % f->n_permuted], e->t_i8, mma_num(m, more));
            LLVMSetAlignment(LLVMBuildStore(e->b, pair_of(m, &acc[4 * j + 2 * half]), to), 2 * (unsigned)f->bytes);
        }
}

/* Up to AT_ONCE vectors of a slice: what they are and where in the result, and which of them lie in it. */
typedef struct slice_part {
    int n, lanes;
    bool is_whole; /* all of it lies in the result */
    LLVMValueRef row[AT_ONCE], column[AT_ONCE], value[AT_ONCE], inside[AT_ONCE];
} slice_part;

static LLVMValueRef staged_in_slice(mma *m, const slice_form *f, LLVMValueRef byte, int lanes) {
    emit *e = m->e;
    const bool is_half = f->bytes == 2;
    LLVMTypeRef one = is_half ? e->t_i16 : m->t_acc, type = lanes == 1 ? one : LLVMVectorType(one, (unsigned)lanes);
    LLVMValueRef v = LLVMBuildLoad2(e->b, type, mma_at(m, byte), "");
    LLVMSetAlignment(v, (unsigned)(f->bytes * lanes));
    e->lanes = lanes;
    v = is_half ? em_half_value(e, result_type(m), v) : em_cast(e, v, m->acc, result_type(m));
    e->lanes = 1;
    return v;
}

/* The lane's vectors from number `first` on, at_m and at_n: where the slice is. Those of a lane lie one above the
 * other: a warp takes whole rows, or a part of one. */
static void read_slice(mma *m, const slice_form *f, LLVMValueRef place, LLVMValueRef first, LLVMValueRef at_m,
                       LLVMValueRef at_n, slice_part *s) {
    emit *e = m->e;
    const int log = s->lanes == 1 ? 0 : 2;
    LLVMValueRef row0 = em_lshr(e, first, f->columns_log - log), column = mma_bits(m, first, 0, f->columns_log - log);
    column = em_shl(e, column, log);
    for (int u = 0; u < s->n; u++) {
        const int further = u * IR_GPU_WARP * s->lanes / f->columns;
        LLVMValueRef row = mma_add(m, row0, further), x = em_and(e, row, em_i32(e, f->n_permuted - 1));
        LLVMValueRef byte = em_xor(e, em_mul(e, column, em_i32(e, f->bytes)), em_shl(e, x, f->chunk_log));
        byte = em_add(e, em_add(e, place, em_shl(e, row, LINE_LOG)), byte);
        s->value[u] = staged_in_slice(m, f, byte, s->lanes);
        s->row[u] = em_add(e, em_add(e, at_m, mma_i64(m, row0)), mma_num(m, further));
        s->column[u] = em_add(e, at_n, mma_i64(m, column));
        s->inside[u] = em_and(e, em_icmp(e, LLVMIntSLT, s->row[u], m->s.size[IR_GPU_ROWS]),
                              em_icmp(e, LLVMIntSLT, s->column[u], m->s.size[IR_GPU_COLUMNS]));
    }
}

/* All of them are computed before the first is stored, so that what an epilogue loads is waited for once. Where some
 * may be outside the matrix, that is one. */
static void store_slice(mma *m, slice_part *s) {
    emit *e = m->e;
    em_values *v = FU_NEW_N(e->arena, em_values, s->n);
    mma_point at[AT_ONCE];
    em_branch b;
    if (!s->is_whole) b = em_if(e, s->inside[0]);
    for (int u = 0; u < s->n; u++) {
        at[u] = (mma_point){m, {s->row[u], s->column[u], NULL}, m->dim[IR_GPU_COLUMNS]};
        evaluate(m, &at[u], s->value[u], &v[u]);
    }
    for (int u = 0; u < s->n; u++) store_values(m, &at[u], &v[u]);
    if (!s->is_whole) em_endif(e, &b);
}

typedef enum slice_how { WHOLE, ON_THE_EDGE, BY_ELEMENT } slice_how;

static void emit_slice(mma *m, const slice_form *f, LLVMValueRef place, LLVMValueRef at_m, LLVMValueRef at_n,
                       slice_how how) {
    emit *e = m->e;
    const int lanes = how == BY_ELEMENT ? 1 : IR_GPU_VECTOR;
    slice_part s = {.n = how == WHOLE ? AT_ONCE : 1, .lanes = lanes, .is_whole = how == WHOLE};
    em_loop l =
        em_for(e, mma_i64(m, m->lane), mma_num(m, ROWS * f->columns / lanes), mma_num(m, (int64_t)s.n * IR_GPU_WARP));
    read_slice(m, f, place, mma_i32(m, l.i), at_m, at_n, &s);
    e->lanes = lanes;
    e->is_aligned = lanes > 1;
    store_slice(m, &s);
    e->is_aligned = false;
    e->lanes = 1;
    em_end(e, &l);
    gpu_keep_loop(e, &l);
}

/* Of acc, those of the slice whose number is known when the kernel runs. */
static void stage_some_slice(mma *m, const slice_form *f, LLVMValueRef *acc, LLVMValueRef number, LLVMValueRef place) {
    enum { MOST = 4 };
    em_branch b[MOST];
    const int n = m->t->columns / f->columns;
    for (int i = 0; i < n; i++) {
        if (i < n - 1) b[i] = em_if(m->e, em_icmp(m->e, LLVMIntEQ, number, mma_num(m, i)));
        stage_slice(m, f, acc + i * f->columns / 2, place);
        if (i < n - 1) em_else(m->e, &b[i]);
    }
    for (int i = n - 2; i >= 0; i--) em_endif(m->e, &b[i]);
}

static void sync_warp(emit *e) {
    LLVMValueRef all = em_i32(e, -1);
    gpu_call(e, "llvm.nvvm.bar.warp.sync", NULL, 0, &all, 1);
}

void mma_emit_warp_results(mma *m, LLVMValueRef *acc, LLVMValueRef row, LLVMValueRef place) {
    emit *e = m->e;
    const slice_form f = slice_form_of(m);
    LLVMValueRef at_m = em_add(e, m->m0, mma_i64(m, row)), end = em_sub(e, m->s.size[IR_GPU_COLUMNS], m->n0);
    end = em_min(e, end, mma_num(m, m->t->columns));
    end = em_select(e, em_icmp(e, LLVMIntSLT, at_m, m->s.size[IR_GPU_ROWS]), end, mma_num(m, 0));
    LLVMValueRef slices = em_lshr(e, em_add(e, end, mma_num(m, f.columns - 1)), f.columns_log);
    em_loop l = em_for(e, mma_num(m, 0), slices, mma_num(m, 1));
    LLVMValueRef at_n = em_add(e, m->n0, em_shl(e, l.i, f.columns_log));
    stage_some_slice(m, &f, acc, l.i, place);
    sync_warp(e);
    em_branch wide = em_if(e, can_store(m));
    LLVMValueRef rows_end = em_add(e, at_m, mma_num(m, ROWS)), columns_end = em_add(e, at_n, mma_num(m, f.columns));
    em_branch whole = em_if(e, em_and(e, em_icmp(e, LLVMIntSLE, rows_end, m->s.size[IR_GPU_ROWS]),
                                      em_icmp(e, LLVMIntSLE, columns_end, m->s.size[IR_GPU_COLUMNS])));
    emit_slice(m, &f, place, at_m, at_n, WHOLE);
    em_else(e, &whole);
    emit_slice(m, &f, place, at_m, at_n, ON_THE_EDGE);
    em_endif(e, &whole);
    em_else(e, &wide);
    emit_slice(m, &f, place, at_m, at_n, BY_ELEMENT);
    em_endif(e, &wide);
    sync_warp(e); /* before the next slice */
    em_end(e, &l);
    gpu_keep_loop(e, &l);
}

/* ---- the second launch ---- */
static void sum_parts(mma *m, int lanes, LLVMValueRef rows) {
    emit *e = m->e;
    LLVMValueRef columns = m->s.size[IR_GPU_COLUMNS]; /* a multiple of the vector where it is one */
    if (lanes > 1) columns = em_lshr(e, columns, 2);
    gpu_span x = gpu_threads(e, 'x');
    em_loop l = em_for(e, x.first, em_mul(e, rows, columns), x.step);
    LLVMValueRef column = LLVMBuildURem(e->b, l.i, columns, ""), line = LLVMBuildUDiv(e->b, l.i, columns, "");
    if (lanes > 1) column = em_shl(e, column, 2);
    LLVMValueRef row = LLVMBuildURem(e->b, line, m->s.size[IR_GPU_ROWS], "");
    mma_enter_batch(m, LLVMBuildUDiv(e->b, line, m->s.size[IR_GPU_ROWS], ""));
    e->lanes = lanes;
    LLVMTypeRef type = em_vec(e, m->t_acc);
    em_loop part = em_for(e, mma_num(m, 0), m->parts, mma_num(m, 1));
    LLVMValueRef sum = em_loop_phi(e, &part, LLVMConstNull(type));
    LLVMValueRef more = LLVMBuildLoad2(e->b, type, scratch_at(m, part.i, m->batch, row, column), "");
    LLVMSetAlignment(more, 4 * (unsigned)lanes);
    em_loop_next(e, sum, ir_is_float(m->acc) ? em_fadd(e, sum, more) : em_add(e, sum, more));
    em_end(e, &part);
    e->is_aligned = lanes > 1;
    store_results(m, row, column, sum);
    e->is_aligned = false;
    e->lanes = 1;
    em_end(e, &l);
}

void mma_emit_sums(mma *m) {
    emit *e = m->e;
    LLVMValueRef rows = em_mul(e, m->s.size[IR_GPU_BATCHES], m->s.size[IR_GPU_ROWS]);
    em_branch wide = em_if(e, can_store(m));
    sum_parts(m, IR_GPU_VECTOR, rows);
    em_else(e, &wide);
    sum_parts(m, 1, rows);
    em_endif(e, &wide);
}
