/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* gpu_attention_block.c: a block of keys of attention on a GPU:
 *
 *   for each slice of the head: queries and keys -> shared memory; each thread adds to its scores
 *   a mask -> shared memory; scores -> weights in registers, with the factor of what was summed before; weights ->
 *   shared memory for some rows of the values at a time: values -> shared memory; each thread adds weights x values to
 *   its results
 *
 * Weights are exp(score - largest score so far), f32 by the device's 2^x: its error, two units or so, is far within
 * that of the sums. Sums over the head's elements, and over keys, are in order. */
#include "jit/gpu_attention.h"

/* ---- arithmetic ---- */
static LLVMValueRef constant(flash *f, double v) { return em_const(f->e, f->a.acc, v); }

LLVMValueRef flash_exp(flash *f, LLVMValueRef x) {
    emit *e = f->e;
    const ir_kinst inst = {.op = IR_OP_EXP, .dtype = f->a.acc, .n_in = 1};
    if (f->a.acc == FUSOR_F64) return em_lower(e, &inst, &x, &f->a.acc);
    return gpu_exp2(e, em_fmul(e, x, em_f32(e, 0x1.715476p0)));
}

LLVMValueRef flash_larger(flash *f, LLVMValueRef x, LLVMValueRef y) {
    return em_intrinsic(f->e, "llvm.maxnum", 2, (LLVMValueRef[]){x, y});
}

LLVMValueRef flash_about(flash *f, LLVMValueRef largest) {
    emit *e = f->e;
    LLVMValueRef is_none = em_fcmp(e, LLVMRealOEQ, largest, constant(f, -__builtin_inf()));
    return em_select(e, is_none, constant(f, 0), largest);
}

/* ---- operands into shared memory ---- */

static LLVMValueRef stride(flash *f, int inst, int dim) { return f->e->stride[f->a.k->inst[inst].index][dim]; }

static LLVMValueRef size_of(flash *f, int dim) { return f->e->size[dim]; }

/* A load of floats that lie side by side along dim. */
static bool is_contiguous(const flash *f, int inst, int dim) {
    const ir_kinst *in = &f->a.k->inst[inst];
    return in->op == IR_K_LOAD && !in->variant && f->a.k->buffer[in->index].stride[dim] == 1;
}

void flash_find_vectors(flash *f) {
    emit *e = f->e;
    const attention *a = &f->a;
    const int inst[4] = {a->q, a->keys, a->v, a->mask}, row[4] = {a->at.m, a->at.j, a->at.j, a->at.m},
              column[4] = {a->at.k, a->at.k, a->at.n, a->at.j};
    for (int i = 0; i < 4; i++) {
        f->has_vectors[i] = NULL;
        if (inst[i] < 0 || !is_contiguous(f, inst[i], column[i])) continue;
        const int buffer = a->k->inst[inst[i]].index, bytes = ir_dtypes[a->k->buffer[buffer].dtype].bytes;
        LLVMValueRef at =
            em_gep(e, e->base[buffer], em_memory_type(e, a->k->buffer[buffer].dtype), a->batch_off[buffer]);
        LLVMValueRef bits = em_and(e, LLVMBuildPtrToInt(e->b, at, e->t_i64, ""), flash_num(f, f->vec * bytes - 1));
        LLVMValueRef steps = em_or(e, stride(f, inst[i], row[i]), size_of(f, column[i]));
        bits = em_or(e, bits, em_and(e, steps, flash_num(f, f->vec - 1)));
        f->has_vectors[i] = em_icmp(e, LLVMIntEQ, bits, flash_num(f, 0));
    }
}

/* How many rows an operand has, as far as they count. */
static LLVMValueRef rows_of(flash *f, const flash_piece *p) {
    return p->operand == 2 ? f->seen_end : size_of(f, p->row_dim);
}

/* What is outside is read as something inside, then made 0: loads have no branches between them. The size along the
 * columns is a multiple of vec here, and positive, as is that along the rows. */
static void stage_vectors(flash *f, const flash_piece *p) {
    emit *e = f->e;
    const ir_kinst *in = &f->a.k->inst[p->inst];
    const int of_line = p->columns / f->vec, passes = p->rows * of_line / IR_GPU_ATTENTION_THREADS;
    LLVMValueRef value[64], last = em_sub(e, rows_of(f, p), flash_num(f, 1));
    LLVMValueRef y = LLVMBuildUDiv(e->b, f->thread, flash_num(f, of_line), "");
    LLVMValueRef x = em_mul(e, em_and(e, f->thread, flash_num(f, of_line - 1)), flash_num(f, f->vec));
    LLVMValueRef column = em_add(e, p->column, x), in_line = em_icmp(e, LLVMIntSLT, column, size_of(f, p->column_dim));
    LLVMValueRef offset = em_add(e, f->a.batch_off[in->index], em_select(e, in_line, column, flash_num(f, 0)));
    e->lanes = f->vec;
    e->is_aligned = true;
    for (int i = 0; i < passes; i++) {
        LLVMValueRef row = em_add(e, em_add(e, p->row, y), flash_num(f, i * IR_GPU_ATTENTION_THREADS / of_line));
        LLVMValueRef is_inside = em_and(e, in_line, em_icmp(e, LLVMIntSLE, row, last));
        LLVMValueRef at = em_add(e, offset, em_mul(e, em_min(e, row, last), stride(f, p->inst, p->row_dim)));
        if (p->is_raw) {
            value[i] = LLVMBuildLoad2(e->b, LLVMVectorType(e->t_i16, (unsigned)f->vec),
                                      em_gep(e, e->base[in->index], e->t_i16, at), "");
            LLVMSetAlignment(value[i], 2 * (unsigned)f->vec);
            value[i] = em_select(e, is_inside, value[i], LLVMConstNull(LLVMTypeOf(value[i])));
            continue;
        }
        LLVMValueRef v = em_load(e, in->index, at, flash_num(f, 1), NULL);
        v = em_cast(e, v, in->dtype, f->a.acc);
        value[i] = em_select(e, is_inside, v, constant(f, 0));
    }
    for (int i = 0; i < passes; i++) {
        LLVMValueRef row = em_add(e, y, flash_num(f, i * IR_GPU_ATTENTION_THREADS / of_line));
        LLVMValueRef to = em_add(e, em_mul(e, row, flash_num(f, p->line)), x);
        if (p->is_raw)
            LLVMSetAlignment(LLVMBuildStore(e->b, value[i], em_gep(e, p->to, e->t_i16, to)), 2 * (unsigned)f->vec);
        else flash_store(f, value[i], flash_at(f, p->to, to));
    }
    e->is_aligned = false;
    e->lanes = 1;
}

/* The value of an operand's program at a row and column, or zero where `is_inside` is false. */
static LLVMValueRef evaluate(flash *f, int inst, attention_point at, LLVMValueRef is_inside) {
    emit *e = f->e;
    em_values v;
    em_values_init(&v, attention_load, &at);
    em_branch b = em_if(e, is_inside);
    LLVMValueRef value = em_cast(e, em_value(e, &v, inst), f->a.k->inst[inst].dtype, f->a.acc), zero = constant(f, 0);
    LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b);
    em_endif(e, &b);
    LLVMValueRef phi = LLVMBuildPhi(e->b, f->a.t_acc, "");
    LLVMAddIncoming(phi, (LLVMValueRef[]){value, zero}, (LLVMBasicBlockRef[]){from, b.other}, 2);
    return phi;
}

static void stage_elements(flash *f, const flash_piece *p) {
    emit *e = f->e;
    em_loop l = em_for(e, f->thread, flash_num(f, p->rows * p->columns), flash_num(f, f->threads));
    LLVMValueRef y = LLVMBuildUDiv(e->b, l.i, flash_num(f, p->columns), ""),
                 x = em_and(e, l.i, flash_num(f, p->columns - 1));
    LLVMValueRef row = em_add(e, p->row, y), column = em_add(e, p->column, x);
    attention_point at = {.a = &f->a, .axis = -1};
    const int dim[2] = {p->row_dim, p->column_dim};
    for (int i = 0; i < 2; i++) {
        LLVMValueRef v = i ? column : row;
        *(dim[i] == f->a.at.m ? &at.m : dim[i] == f->a.at.n ? &at.n : dim[i] == f->a.at.k ? &at.k : &at.j) = v;
    }
    LLVMValueRef is_inside = em_and(e, em_icmp(e, LLVMIntSLT, row, rows_of(f, p)),
                                    em_icmp(e, LLVMIntSLT, column, size_of(f, p->column_dim)));
    LLVMValueRef value = evaluate(f, p->inst, at, is_inside);
    LLVMValueRef to = em_add(e, em_mul(e, y, flash_num(f, p->line)), x);
    if (p->is_raw) {
        value = em_half_bits(e, f->a.k->inst[p->inst].dtype, value);
        LLVMSetAlignment(LLVMBuildStore(e->b, value, em_gep(e, p->to, e->t_i16, to)), 2);
    } else flash_store(f, value, flash_at(f, p->to, to));
    em_end(e, &l);
    gpu_keep_loop(e, &l);
}

void flash_stage(flash *f, const flash_piece *p) {
    /* what is read as vectors is dealt to so many threads */
    LLVMValueRef can = f->threads == IR_GPU_ATTENTION_THREADS ? f->has_vectors[p->operand] : NULL;
    if (!can) {
        stage_elements(f, p);
        return;
    }
    em_branch b = em_if(f->e, can);
    stage_vectors(f, p);
    em_else(f->e, &b);
    stage_elements(f, p);
    em_endif(f->e, &b);
}

/* ---- products ---- */
static void load_vector(flash *f, LLVMValueRef at, LLVMValueRef *out) {
    emit *e = f->e;
    LLVMValueRef v = LLVMBuildLoad2(e->b, LLVMVectorType(f->a.t_acc, (unsigned)f->vec), at, "");
    LLVMSetAlignment(v, 16);
    for (int i = 0; i < f->vec; i++) out[i] = LLVMBuildExtractElement(e->b, v, em_i64s(e, i), "");
}

/* score += what `count` elements of the head give, which are in shared memory. */
static void add_scores(flash *f, LLVMValueRef *score, LLVMValueRef count) {
    emit *e = f->e;
    const int n = f->rows * f->own_keys;
    LLVMValueRef q[FLASH_ROWS][4], k[4], phi[FLASH_ROWS * FLASH_KEYS], next[FLASH_ROWS * FLASH_KEYS];
    LLVMValueRef rows = flash_at(f, f->shared, em_mul(e, f->y, flash_num(f, f->line))),
                 keys = flash_at(f, f->shared,
                                 em_add(e, em_mul(e, f->x, flash_num(f, f->line)), flash_num(f, f->queries * f->line)));
    em_loop l = em_for(e, flash_num(f, 0), count, flash_num(f, f->vec));
    for (int i = 0; i < n; i++) next[i] = phi[i] = em_loop_phi(e, &l, score[i]);
    rows = flash_at(f, rows, l.i);
    keys = flash_at(f, keys, l.i);
    for (int i = 0; i < f->rows; i++) load_vector(f, flash_at(f, rows, flash_num(f, i * FLASH_GROUPS * f->line)), q[i]);
    for (int j = 0; j < f->own_keys; j++) {
        load_vector(f, flash_at(f, keys, flash_num(f, j * FLASH_SIDE * f->line)), k);
        for (int i = 0; i < f->rows; i++)
            for (int d = 0; d < f->vec; d++)
                next[i * f->own_keys + j] = em_mad(e, q[i][d], k[d], next[i * f->own_keys + j]);
    }
    for (int i = 0; i < n; i++) em_loop_next(e, phi[i], next[i]);
    em_end(e, &l);
    gpu_keep_loop(e, &l);
    for (int i = 0; i < n; i++) score[i] = phi[i];
}

void flash_make_scores(flash *f, const flash_slices *s, LLVMValueRef j0, LLVMValueRef *score) {
    emit *e = f->e;
    const attention *a = &f->a;
    const int n = f->rows * f->own_keys;
    LLVMTypeRef element = s->is_raw ? e->t_i16 : a->t_acc;
    LLVMValueRef phi[FLASH_ROWS * FLASH_KEYS], head = size_of(f, a->at.k), slice = flash_num(f, s->slice);
    em_loop l = em_for(e, flash_num(f, 0), head, slice);
    for (int i = 0; i < n; i++) score[i] = phi[i] = em_loop_phi(e, &l, constant(f, 0));
    gpu_barrier(e); /* what was in shared memory is not read any more */
    flash_stage(
        f, &(flash_piece){0, a->q, a->at.m, a->at.k, f->queries, s->slice, s->line, f->q0, l.i, f->shared, s->is_raw});
    flash_stage(f, &(flash_piece){1, a->keys, a->at.j, a->at.k, f->keys, s->slice, s->line, j0, l.i,
                                  em_gep(e, f->shared, element, flash_num(f, f->queries * s->line)), s->is_raw});
    gpu_barrier(e);
    s->add(f, score, em_min(e, slice, em_sub(e, head, l.i)));
    for (int i = 0; i < n; i++) em_loop_next(e, phi[i], score[i]);
    em_end(e, &l);
    for (int i = 0; i < n; i++) score[i] = phi[i];
}

static LLVMValueRef weight_at(flash *f, int i, int j) {
    emit *e = f->e;
    LLVMValueRef at =
        em_add(e, em_mul(e, f->y, flash_num(f, f->weight_line)), em_mul(e, f->x, flash_num(f, f->key_vec)));
    at = flash_at(f, f->weights, at);
    return flash_at(f, at, flash_num(f, i * f->row_step * f->weight_line + flash_key(f, j)));
}

/* result += weights x values, for value_rows keys from `row` of the block on, of which `count` are keys at all. */
static void add_values(flash *f, LLVMValueRef row, LLVMValueRef count) {
    emit *e = f->e;
    const int pieces = f->width / (FLASH_SIDE * f->vec), of_row = pieces * f->vec, n = f->rows * of_row;
    LLVMValueRef w[FLASH_ROWS][4], v[4], phi[FLASH_ROWS * FLASH_WIDTH], next[FLASH_ROWS * FLASH_WIDTH];
    LLVMValueRef weights = flash_at(f, f->weights, em_add(e, em_mul(e, f->y, flash_num(f, f->weight_line)), row));
    LLVMValueRef values =
        flash_at(f, f->shared, em_add(e, flash_num(f, f->values_at), em_mul(e, f->x, flash_num(f, f->vec))));
    em_loop l = em_for(e, flash_num(f, 0), em_min(e, flash_num(f, f->value_rows), count), flash_num(f, f->vec));
    for (int i = 0; i < n; i++) next[i] = phi[i] = em_loop_phi(e, &l, f->result[i]);
    weights = flash_at(f, weights, l.i);
    values = flash_at(f, values, em_mul(e, l.i, flash_num(f, f->width)));
    for (int i = 0; i < f->rows; i++)
        load_vector(f, flash_at(f, weights, flash_num(f, i * FLASH_GROUPS * f->weight_line)), w[i]);
    for (int k = 0; k < f->vec; k++)
        for (int p = 0; p < pieces; p++) {
            load_vector(f, flash_at(f, values, flash_num(f, k * f->width + p * FLASH_SIDE * f->vec)), v);
            for (int i = 0; i < f->rows; i++)
                for (int c = 0; c < f->vec; c++) {
                    const int at = i * of_row + p * f->vec + c;
                    next[at] = em_mad(e, w[i][k], v[c], next[at]);
                }
        }
    for (int i = 0; i < n; i++) em_loop_next(e, phi[i], next[i]);
    em_end(e, &l);
    gpu_keep_loop(e, &l);
    for (int i = 0; i < n; i++) f->result[i] = phi[i];
}

/* ---- scores to weights ---- */
/* The mask at every place of the block, as accumulators where the weights will be; 0 (or false) outside. */
void flash_stage_mask(flash *f, LLVMValueRef j0) {
    const attention *a = &f->a;
    flash_stage(f, &(flash_piece){3, a->mask, a->at.m, a->at.j, f->queries, f->keys, f->weight_line, f->q0, j0,
                                  f->weights, false});
    gpu_barrier(f->e);
}

LLVMValueRef flash_staged_mask(flash *f, int i, int j) { return flash_load(f, weight_at(f, i, j)); }

LLVMValueRef flash_score(flash *f, LLVMValueRef s, LLVMValueRef mask) {
    emit *e = f->e;
    const attention *a = &f->a;
    s = em_fmul(e, s, f->scale);
    if (f->cap) {
        const ir_kinst inst = {.op = IR_OP_TANH, .dtype = a->acc, .n_in = 1};
        LLVMValueRef x = em_fdiv(e, s, f->cap);
        s = em_fmul(e, em_lower(e, &inst, &x, &a->acc), f->cap);
    }
    if (!mask) return s;
    if (!ir_is_bool(a->k->inst[a->mask].dtype)) return em_fadd(e, s, mask);
    return em_select(e, em_fcmp(e, LLVMRealUNE, mask, constant(f, 0)), s, constant(f, -__builtin_inf()));
}

LLVMValueRef flash_narrow(flash *f, LLVMValueRef bound) {
    emit *e = f->e;
    bound = em_max(e, flash_num(f, -(1 << 20)), em_min(e, flash_num(f, 1 << 20), bound));
    return LLVMBuildTrunc(e->b, bound, e->t_i32, "");
}

void flash_make_weights(flash *f, LLVMValueRef *score, LLVMValueRef j0) {
    emit *e = f->e;
    const attention *a = &f->a;
    LLVMValueRef mine = em_add(e, j0, em_mul(e, f->x, flash_num(f, f->key_vec))), end = em_sub(e, a->n_keys, mine);
    const int of_row = f->width / f->side;
    for (int i = 0; i < f->rows; i++) {
        LLVMValueRef *s = score + i * f->own_keys,
                     query = em_add(e, f->q0, em_add(e, f->y, flash_num(f, i * f->row_step)));
        LLVMValueRef to = end, from = NULL, most = f->largest[i], sum = NULL;
        if (f->high) to = em_min(e, end, em_sub(e, em_add(e, em_add(e, query, f->high), flash_num(f, 1)), mine));
        if (f->low) from = flash_narrow(f, em_sub(e, em_add(e, query, f->low), mine));
        to = flash_narrow(f, to);
        for (int j = 0; j < f->own_keys; j++) {
            LLVMValueRef number = em_i32(e, flash_key(f, j)), keep = em_icmp(e, LLVMIntSLT, number, to);
            if (from) keep = em_and(e, keep, em_icmp(e, LLVMIntSGE, number, from));
            s[j] = flash_score(f, s[j], a->mask >= 0 ? flash_staged_mask(f, i, j) : NULL);
            s[j] = em_select(e, keep, s[j], constant(f, -__builtin_inf()));
            most = flash_larger(f, s[j], most);
        }
        for (int mask = f->side / 2; mask; mask /= 2) most = flash_larger(f, gpu_shuffle(e, most, mask), most);
        LLVMValueRef minus = flash_about(f, most), factor = flash_exp(f, em_fsub(e, f->largest[i], minus));
        for (int j = 0; j < f->own_keys; j++) {
            LLVMValueRef w = flash_exp(f, em_fsub(e, s[j], minus));
            /* 2048 times as much is no subnormal of 16 bits so soon; results are divided by the sum of it */
            if (f->is_mma && a->k->inst[a->q].dtype == FUSOR_F16) w = em_fmul(e, w, constant(f, 2048));
            if (f->is_mma) s[j] = w;
            else flash_store(f, w, weight_at(f, i, j));
            sum = sum ? em_fadd(e, sum, w) : w;
        }
        f->largest[i] = most;
        f->sum[i] = em_mad(e, f->sum[i], factor, sum);
        for (int c = 0; c < of_row; c++) f->result[i * of_row + c] = em_fmul(e, f->result[i * of_row + c], factor);
    }
}

void flash_add_keys(flash *f, LLVMValueRef j0) {
    emit *e = f->e;
    const attention *a = &f->a;
    const int n = f->rows * f->width / f->side;
    LLVMValueRef score[FLASH_ROWS * FLASH_KEYS], phi[FLASH_ROWS * FLASH_WIDTH];
    flash_make_scores(f, &(flash_slices){f->slice, f->line, false, add_scores}, j0, score);
    gpu_barrier(e);
    if (a->mask >= 0) flash_stage_mask(f, j0);
    flash_make_weights(f, score, j0);
    em_loop l = em_for(e, flash_num(f, 0), em_min(e, flash_num(f, f->keys), em_sub(e, a->n_keys, j0)),
                       flash_num(f, f->value_rows));
    for (int i = 0; i < n; i++) f->result[i] = phi[i] = em_loop_phi(e, &l, f->result[i]);
    LLVMValueRef row = em_add(e, j0, l.i);
    gpu_barrier(e);
    flash_stage(f, &(flash_piece){2, a->v, a->at.j, a->at.n, f->value_rows, f->width, f->width, row, f->n0,
                                  flash_at(f, f->shared, flash_num(f, f->values_at)), false});
    gpu_barrier(e);
    add_values(f, l.i, em_sub(e, a->n_keys, row));
    for (int i = 0; i < n; i++) em_loop_next(e, phi[i], f->result[i]);
    em_end(e, &l);
    for (int i = 0; i < n; i++) f->result[i] = phi[i];
}
