/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* reduce_lanes.c: reduce kernels, results of as many rows as there are lanes, one in each lane.
 *
 *   units    the accumulators of as many partial results as there are lanes go to an array, a vector each; then all are
 *            added by halves at once: of two vectors the lower and the upper halves are brought together, so each
 *            addition serves both, then four, and so on. 16 rows take 15 additions and 30 shuffles, where each alone
 *            takes 4 and 4, one waiting for the other. Where rows are one partial result each, they are finished then,
 *            in vectors
 *
 *   sweeps   where rows share what they read (a matrix times a vector), up to four go through it at once; what is left
 *            of a row is masked, at v3 too
 *
 *   rows     where that cannot be, and where what is computed once a row is a function: results go to an array one by
 *            one, and then one vector of all these rows is finished at once: a row of 64 products takes less time than
 *            the function
 *
 * Each lane has the additions of its row in their order, so bits do not depend on which rows share a vector. */
#include "jit/reduce_common.h"
#include <string.h>

enum { ACCUMULATORS = 2, SHORTEST = 6 };

LLVMValueRef red_is_one_partial(red *r) { return em_icmp(r->e, LLVMIntEQ, r->partials, em_i64s(r->e, 1)); }

/* ---- what rows have one of, in vectors ---- */
typedef struct lane_rows {
    red *r;
    LLVMValueRef mask; /* of the rows; NULL: all lanes */
} lane_rows;

static LLVMValueRef load_of_rows(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    const lane_rows *at = user;
    const int dim = at->r->n_p - 1;
    (void)v;
    if (inst->op != IR_K_INDEX) return em_load(e, inst->index, em_i64s(e, 0), e->stride[inst->index][dim], at->mask);
    LLVMValueRef all = em_splat(e, at->r->index[inst->index]);
    return inst->index == dim && e->lanes > 1 ? em_add(e, all, red_lane_numbers(e, e->t_i64, 0)) : all;
}

bool red_has_function_of_rows(const red *r) {
    if (r->e->level->lanes == 1 || r->n_p == 0 || r->v >= 0 || r->has_access) return false;
    for (int i = 0; i < r->k->n_insts; i++) {
        const uint16_t op = r->k->inst[i].op;
        if (op < IR_OP_COUNT && ir_ops[op].flags & IR_COSTLY && red_is_row(r, i) && r->pass[i] > 0) return true;
    }
    return false;
}

/* Arrays of n elements a lane of the reductions' types. */
static void make_arrays(red *r, const red_sweep *s, int n, LLVMValueRef *array) {
    emit *e = r->e;
    for (int a = 0; a < s->n_acc; a++) {
        LLVMTypeRef t = em_memory_type(e, r->k->inst[r->reduction[s->acc[a]]].dtype);
        array[a] = em_alloca(e, LLVMArrayType2(t, (uint64_t)(n * e->level->lanes)), 64);
    }
}

/* The rows from the one entered on, whose results are in array[]. */
static void finish_lanes(red *r, const red_sweep *s, LLVMValueRef *array, LLVMValueRef first, LLVMValueRef mask) {
    emit *e = r->e;
    lane_rows at = {r, mask};
    em_values row;
    em_values_init(&row, load_of_rows, &at);
    for (int a = 0; a < s->n_acc; a++) {
        const int inst = r->reduction[s->acc[a]];
        const ir_dtype t = r->k->inst[inst].dtype;
        LLVMValueRef from = em_gep(e, array[a], em_memory_type(e, t), first);
        row.at[inst] = em_load_ptr(e, t, from, NULL, ir_dtypes[t].bytes);
    }
    for (int i = 0; i < r->k->n_insts; i++) {
        const ir_kinst *in = &r->k->inst[i];
        if (in->op != IR_K_STORE || r->is_element_store[i]) continue;
        em_store(e, in->index, em_value(e, &row, in->in[0]), em_i64s(e, 0), e->stride[in->index][r->n_p - 1], mask);
    }
}

/* `count` rows from `first` on, up to as many as lanes, that differ in the last p index only. */
static void finish_group(red *r, const red_sweep *s, LLVMValueRef *array, LLVMValueRef first, LLVMValueRef count) {
    emit *e = r->e;
    LLVMValueRef zero = em_i64s(e, 0);
    const int lanes = e->level->lanes;
    red_enter_row(r, first);
    if (e->level->has_mask) {
        e->lanes = lanes;
        finish_lanes(r, s, array, zero, em_mask(e, count));
        e->lanes = 1;
        return;
    }
    em_branch all = em_if(e, em_icmp(e, LLVMIntEQ, count, em_i64s(e, lanes)));
    e->lanes = lanes;
    finish_lanes(r, s, array, zero, NULL);
    e->lanes = 1;
    em_else(e, &all);
    em_loop each = em_for(e, zero, count, em_i64s(e, 1));
    red_enter_row(r, em_add(e, first, each.i));
    finish_lanes(r, s, array, each.i, NULL);
    em_end(e, &each);
    em_endif(e, &all);
}

static LLVMValueRef rest_of_last_dim(red *r) { return em_sub(r->e, r->e->size[r->n_p - 1], r->index[r->n_p - 1]); }

/* Rows begin..end: each is reduced (whole: from its elements; else from its partial results), then groups of them are
 * finished. */
void red_lanes_of_rows(red *r, red_sweep *s, LLVMValueRef begin, LLVMValueRef end, bool is_whole) {
    emit *e = r->e;
    LLVMValueRef array[s->n_acc + 1], zero = em_i64s(e, 0), one = em_i64s(e, 1);
    make_arrays(r, s, 1, array);
    em_loop groups = em_for(e, begin, end, one);
    red_enter_row(r, groups.i);
    LLVMValueRef count = em_min(e, em_sub(e, end, groups.i), em_i64s(e, e->level->lanes));
    if (r->n_p > 1) count = em_min(e, count, rest_of_last_dim(r));
    em_loop l = em_for(e, zero, count, one);
    LLVMValueRef q = em_add(e, groups.i, l.i), slot[s->n_acc + 1];
    red_at at = {r, NULL, NULL, NULL};
    em_values row;
    em_values_init(&row, red_load_value, &at);
    red_enter_row(r, q);
    for (int a = 0; a < s->n_acc; a++) {
        LLVMValueRef number = em_add(e, em_mul(e, em_i64s(e, s->acc[a]), r->rows), q);
        slot[a] = red_slot(e, e->shared, em_mul(e, number, r->partials));
    }
    if (is_whole) {
        red_enter_block(r, zero);
        red_sweep_block(s, &row, slot);
        red_leave_block(r);
    }
    for (int a = 0; a < s->n_acc; a++) {
        const int inst = r->reduction[s->acc[a]];
        const ir_dtype t = r->k->inst[inst].dtype;
        LLVMValueRef to = em_gep(e, array[a], em_memory_type(e, t), l.i);
        em_store_ptr(e, t, red_result(s, a, &row, slot[a]), to, NULL, ir_dtypes[t].bytes);
    }
    em_end(e, &l);
    finish_group(r, s, array, groups.i, count);
    groups.step = count;
    em_end(e, &groups);
}

/* ---- partial results, as many as lanes at once ---- */
bool red_joins_units(const red *r, const red_sweep *s) {
    if (r->e->level->lanes == 1 || r->n_p == 0 || r->v >= 0 || r->has_access || s->has_arg || s->n_stores) return false;
    for (int a = 0; a < s->n_acc; a++) {
        const ir_dtype t = red_type(r, s->acc[a]);
        if (ir_dtypes[t].bytes < 4 || ir_is_half(t)) return false;
    }
    return s->n_acc <= ACCUMULATORS;
}

/* Rows that are known to be one vector for each accumulator, or fewer. */
static bool is_short(const red *r) {
    int64_t n;
    return r->r0 == r->last && red_constant(r->e->size[r->last], &n) && n > 0 &&
           n <= IR_REDUCE_UNROLL * r->e->level->lanes;
}

/* Where a lane of the halves of two vectors, g lanes a row, comes from: the lower halves (the upper ones are g / 2
 * further on), by instructions that take two vectors: 128 bits at a time as long as halves have that many. Lanes of the
 * second vector begin at `lanes`. */
static int lane_from(int lanes, int bytes, int g, int i) {
    const int half = g / 2, chunk = half * bytes >= 16 ? lanes : 16 / bytes;
    const int in_chunk = i % chunk, side = in_chunk / (chunk / 2), at = in_chunk % (chunk / 2);
    return side * lanes + i / chunk * chunk + at / half * g + at % half;
}

/* Which vector of the array lane i of all halves together comes from, if they are taken in the order of the array. */
static int owner(int lanes, int bytes, int i) {
    int number = 0;
    for (int g = 2; g <= lanes; g *= 2) { /* the last step first */
        const int from = lane_from(lanes, bytes, g, i);
        number = 2 * number + from / lanes;
        i = from % lanes;
    }
    return number;
}

typedef struct join {
    red *r;
    int acc, bytes; /* reduction number */
    int row[64];    /* of the vectors in the order that they are joined in */
    LLVMValueRef array;
    ir_dtype t;
} join;

/* Vectors [first, first + n) of the order as one, lanes / n lanes of each row. */
static LLVMValueRef joined(join *w, int first, int n) {
    red *r = w->r;
    emit *e = r->e;
    const int lanes = e->lanes;
    if (n == 1) {
        LLVMValueRef at = em_gep(e, w->array, em_memory_type(e, w->t), em_i64s(e, (int64_t)w->row[first] * lanes));
        return em_load_ptr(e, w->t, at, NULL, ir_dtypes[w->t].bytes);
    }
    LLVMValueRef a = joined(w, first, n / 2), b = joined(w, first + n / 2, n / 2), index[2][64];
    for (int i = 0; i < lanes; i++) {
        const int g = 2 * lanes / n, from = lane_from(lanes, w->bytes, g, i);
        index[0][i] = LLVMConstInt(e->t_i32, (unsigned)from, 0);
        index[1][i] = LLVMConstInt(e->t_i32, (unsigned)(from + g / 2), 0);
    }
    LLVMValueRef low = LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(index[0], (unsigned)lanes), "");
    LLVMValueRef high = LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(index[1], (unsigned)lanes), "");
    return red_merge(r, w->acc, (red_acc){low, NULL}, (red_acc){high, NULL}).value;
}

/* Results of what is in array[], at its beginning. */
static void join_units(red *r, const red_sweep *s, LLVMValueRef *array) {
    emit *e = r->e;
    e->lanes = e->level->lanes;
    for (int a = 0; a < s->n_acc; a++) {
        const ir_dtype t = red_type(r, s->acc[a]);
        join w = {.r = r, .acc = s->acc[a], .bytes = ir_dtypes[t].bytes, .array = array[a], .t = t};
        for (int i = 0; i < e->lanes; i++) w.row[owner(e->lanes, w.bytes, i)] = i;
        LLVMValueRef all = joined(&w, 0, e->lanes);
        const bool is_float_sum = ir_is_float(t) && ir_ops[r->k->inst[r->reduction[s->acc[a]]].op].combine == IR_OP_ADD;
        if (is_float_sum && is_short(r)) all = em_fadd(e, all, em_const(e, t, 0));
        em_store_ptr(e, t, all, array[a], NULL, ir_dtypes[t].bytes);
    }
    e->lanes = 1;
}

/* Results of units [first, first + count) to their slots. */
static void store_slots(red *r, const red_sweep *s, LLVMValueRef *array, LLVMValueRef first, LLVMValueRef count,
                        LLVMValueRef units) {
    emit *e = r->e;
    em_loop l = em_for(e, em_i64s(e, 0), count, em_i64s(e, 1));
    for (int a = 0; a < s->n_acc; a++) {
        const ir_dtype t = red_type(r, s->acc[a]);
        LLVMValueRef from = em_gep(e, array[a], em_memory_type(e, t), l.i);
        LLVMValueRef number = em_add(e, em_mul(e, em_i64s(e, s->acc[a]), units), em_add(e, first, l.i));
        red_store_partial(r, s->acc[a], (red_acc){em_load_ptr(e, t, from, NULL, ir_dtypes[t].bytes), NULL},
                          red_slot(e, e->shared, number));
    }
    em_end(e, &l);
}

/* ---- sweeps of one row or of several at once ---- */
/* Where the rows of a sweep read the same vectors (a matrix times a vector), several go through them together. */
enum { ROWS = 4, FEW = 8 };
typedef red_acc accumulators[ACCUMULATORS][IR_REDUCE_UNROLL];
typedef struct sweeps {
    red *r;
    red_sweep *s;
    int rows;
    bool is_direct; /* by the code below; else red_sweep_vectors, one row */
    LLVMValueRef base[ROWS][IR_KERNEL_MAX_BUFFERS], seed[ROWS][IR_KERNEL_MAX_INSTS];
    accumulators acc[ROWS];
    LLVMValueRef nans[ROWS][ACCUMULATORS]; /* those set apart, or NULL */
} sweeps;

bool red_masks_rest(const red *r, const red_sweep *s) {
    const emit *e = r->e;
    if (e->level->has_mask) return true;
    for (int i = 0; i < r->k->n_insts; i++) {
        const ir_kinst *in = &r->k->inst[i];
        if (!s->is_needed[i] || s->is_seed[i] || in->op != IR_K_LOAD) continue;
        if (!em_masks_load(e, in->index, r->last)) return false;
    }
    return e->level->has_fma;
}

/* Vectors of accumulators that take an element. */
static int vectors_of_row(const red *r) {
    int64_t n;
    const int lanes = r->e->level->lanes;
    if (!is_short(r) || !red_constant(r->e->size[r->last], &n)) return IR_REDUCE_UNROLL;
    return (int)((n + lanes - 1) / lanes);
}

/* How many rows at once: with accumulators in half of the registers. */
static int rows_at_once(const red *r, const red_sweep *s) {
    int n = 0, vectors = 0, rows = ROWS;
    bool shares = false;
    for (int i = 0; i < r->k->n_insts; i++) {
        if (!s->is_needed[i] || s->is_seed[i]) continue;
        n++;
        shares |= r->k->inst[i].op == IR_K_LOAD && !(r->varies[i] >> (r->n_p - 1) & 1);
    }
    if (!shares || n > FEW || s->is_costly || !red_masks_rest(r, s)) return 1;
    for (int a = 0; a < s->n_acc; a++)
        vectors += vectors_of_row(r) * r->e->level->lanes * ir_dtypes[red_type(r, s->acc[a])].bytes /
                   r->e->level->vector_bytes;
    while (rows > 1 && rows * vectors > r->e->level->registers / 2) rows /= 2;
    return rows;
}

/* One row in each lane is quicker for the shortest (EPYC 9005, 1000 rows by a vector, f32: rows of 12 at v4 1.51 us so
 * and 1.53 joined, of 24 1.84 and 1.49; at v3, where elements are not transposed, 5: 1.01 and 1.04, 8: 1.43 and 0.96),
 * and at v4 where rows share nothing (sums of 20: 1.13 and 1.38). */
bool red_joins_short(const red *r, const red_sweep *s) {
    int64_t n = 0;
    if (!red_joins_units(r, s) || !is_short(r) || s->is_costly || !red_masks_rest(r, s)) return false;
    for (int i = 0; i < r->k->n_insts; i++) {
        const ir_kinst *in = &r->k->inst[i];
        if (s->is_needed[i] && !s->is_seed[i] && in->op == IR_K_LOAD && r->k->buffer[in->index].stride[r->last] != 1)
            return false;
    }
    red_constant(r->e->size[r->last], &n);
    return r->e->level->has_mask ? n > r->e->level->lanes && rows_at_once(r, s) > 1 : n >= SHORTEST;
}

/* Vector u of all rows at element i. */
static void step(sweeps *w, int u, LLVMValueRef i, LLVMValueRef mask) {
    red *r = w->r;
    red_sweep *s = w->s;
    emit *e = r->e;
    struct {
        red_at at;
        em_values v;
    } body[ROWS];
    for (int row = 0; row < w->rows; row++) {
        em_values *v = &body[row].v;
        body[row].at = (red_at){r, i, NULL, mask};
        em_values_init(v, red_load_value, &body[row].at);
        for (int n = 0; n < r->k->n_insts; n++) {
            if (s->is_seed[n]) v->at[n] = w->seed[row][n];
            else if (row && !(r->varies[n] >> (r->n_p - 1) & 1)) v->at[n] = body[0].v.at[n];
        }
        memcpy(e->base, w->base[row], sizeof e->base);
        for (int n = 0; n < r->k->n_insts && !row && w->rows > 1; n++) /* the others are read where they are used */
            if (s->is_needed[n] && r->k->inst[n].op == IR_K_LOAD && !(r->varies[n] >> (r->n_p - 1) & 1))
                em_value(e, v, n);
        for (int a = 0; a < s->n_acc; a++) {
            const int j = s->acc[a];
            red_acc *acc = &w->acc[row][a][u];
            LLVMValueRef x = em_value(e, v, r->k->inst[r->reduction[j]].in[0]);
            LLVMValueRef *nans = &w->nans[row][a];
            if (*nans && mask) {
                *acc = red_take_apart(r, j, *acc, x, mask, nans);
            } else if (*nans) {
                *nans = red_add_nans(r, *nans, x, x);
                acc->value = red_better(r, j, acc->value, x);
            } else if (acc->value) *acc = red_take(r, j, *acc, x, NULL, mask);
            else acc->value = mask ? em_select(e, mask, x, red_identity(r, j, NULL).value) : x;
        }
    }
}

static void main_loop(sweeps *w, LLVMValueRef end) {
    emit *e = w->r->e;
    em_loop l = em_for(e, w->r->begin, end, em_i64s(e, IR_REDUCE_UNROLL * e->lanes));
    accumulators phi[ROWS];
    LLVMValueRef nans[ROWS][ACCUMULATORS];
    for (int row = 0; row < w->rows; row++)
        for (int a = 0; a < w->s->n_acc; a++) {
            if (w->nans[row][a]) w->nans[row][a] = nans[row][a] = em_loop_phi(e, &l, w->nans[row][a]);
            for (int u = 0; u < IR_REDUCE_UNROLL; u++)
                w->acc[row][a][u] = phi[row][a][u] = (red_acc){em_loop_phi(e, &l, w->acc[row][a][u].value), NULL};
        }
    for (int u = 0; u < IR_REDUCE_UNROLL; u++) step(w, u, em_add(e, l.i, em_i64s(e, (int64_t)u * e->lanes)), NULL);
    for (int row = 0; row < w->rows; row++)
        for (int a = 0; a < w->s->n_acc; a++) {
            for (int u = 0; u < IR_REDUCE_UNROLL; u++) {
                em_loop_next(e, phi[row][a][u].value, w->acc[row][a][u].value);
                w->acc[row][a][u] = phi[row][a][u];
            }
            if (!w->nans[row][a]) continue;
            em_loop_next(e, nans[row][a], w->nans[row][a]);
            w->nans[row][a] = nans[row][a];
        }
    em_end(e, &l);
}

/* Fewer elements than a group: a vector for each accumulator that takes any, and past the others at once. */
static void rest(sweeps *w, LLVMValueRef from) {
    emit *e = w->r->e;
    LLVMValueRef left = em_sub(e, w->r->end, from);
    LLVMBasicBlockRef done = LLVMCreateBasicBlockInContext(e->ctx, "done"), at[IR_REDUCE_UNROLL + 1];
    accumulators was[ROWS];
    LLVMValueRef nans[IR_REDUCE_UNROLL + 1][ROWS][ACCUMULATORS];
    int64_t known = -1;
    unsigned n = 0;
    red_constant(left, &known);
    memcpy(was, w->acc, sizeof was);
    for (int u = 0; u < IR_REDUCE_UNROLL; u++) {
        const int64_t before = (int64_t)u * e->lanes;
        if (known >= 0 && known <= before) break;
        if (known < 0) {
            LLVMBasicBlockRef some = em_block(e, "some");
            memcpy(nans[n], w->nans, sizeof w->nans);
            at[n++] = LLVMGetInsertBlock(e->b);
            LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSGT, left, em_i64s(e, before)), some, done);
            LLVMPositionBuilderAtEnd(e->b, some);
        }
        step(w, u, em_add(e, from, em_i64s(e, before)),
             known >= before + e->lanes ? NULL : red_mask_of(e, left, red_bits_below(e, left), u));
    }
    memcpy(nans[n], w->nans, sizeof w->nans);
    at[n++] = LLVMGetInsertBlock(e->b);
    LLVMBuildBr(e->b, done);
    LLVMAppendExistingBasicBlock(e->fn, done);
    LLVMPositionBuilderAtEnd(e->b, done);
    for (int row = 0; row < w->rows && known < 0; row++)
        for (int a = 0; a < w->s->n_acc; a++) {
            for (int u = 0; u < IR_REDUCE_UNROLL; u++) {
                LLVMValueRef *now = &w->acc[row][a][u].value, in[IR_REDUCE_UNROLL + 1];
                for (int i = 0; i < (int)n; i++) in[i] = i <= u ? was[row][a][u].value : *now;
                *now = LLVMBuildPhi(e->b, LLVMTypeOf(in[0]), "");
                LLVMAddIncoming(*now, in, at, n);
            }
            if (!w->nans[row][a]) continue;
            LLVMValueRef in[IR_REDUCE_UNROLL + 1];
            for (int i = 0; i < (int)n; i++) in[i] = nans[i][row][a];
            w->nans[row][a] = LLVMBuildPhi(e->b, LLVMTypeOf(in[0]), "");
            LLVMAddIncoming(w->nans[row][a], in, at, n);
        }
}

/* Few elements, known: accumulators begin with what they take, not with the identity. That shows in sums of -0 only,
 * which join_units makes +0. */
static void straight(sweeps *w) {
    emit *e = w->r->e;
    int64_t n = 0;
    red_constant(w->r->e->size[w->r->last], &n);
    for (int u = 0; (int64_t)u * e->lanes < n; u++) {
        const int64_t at = (int64_t)u * e->lanes;
        LLVMValueRef mask = n - at < e->lanes ? em_mask(e, em_i64s(e, n - at)) : NULL;
        step(w, u, em_add(e, w->r->begin, em_i64s(e, at)), mask);
    }
}

/* Rows q, q + 1 ... of block i: a vector of accumulators each. Enters the rows; leaves the level's lanes. */
static void sweep_rows(sweeps *w, LLVMValueRef q, LLVMValueRef i, LLVMValueRef (*out)[ACCUMULATORS]) {
    red *r = w->r;
    red_sweep *s = w->s;
    emit *e = r->e;
    const bool is_straight = is_short(r);
    for (int row = 0; row < w->rows; row++) {
        red_at at = {r, NULL, NULL, NULL};
        em_values values;
        em_values_init(&values, red_load_value, &at);
        red_enter_row(r, row ? em_add(e, q, em_i64s(e, row)) : q);
        red_enter_block(r, i);
        if (!w->is_direct) {
            red_sweep_vectors(s, &values, out[row]);
            e->lanes = e->level->lanes;
            return;
        }
        red_seeds(s, &values);
        memcpy(w->base[row], e->base, sizeof e->base);
        memcpy(w->seed[row], s->seed_splat, sizeof s->seed_splat);
        for (int a = 0; a < s->n_acc && !is_straight; a++)
            for (int u = 0; u < IR_REDUCE_UNROLL; u++) w->acc[row][a][u] = red_identity(r, s->acc[a], NULL);
        e->lanes = 1;
    }
    e->lanes = e->level->lanes;
    for (int row = 0; row < w->rows; row++)
        for (int a = 0; a < s->n_acc; a++)
            if (!is_straight && red_sets_nans_apart(r, s->acc[a])) w->nans[row][a] = red_no_nans(r, s->acc[a]);
    if (is_straight) {
        straight(w);
    } else {
        LLVMValueRef all = em_sub(e, r->end, r->begin);
        LLVMValueRef whole = em_and(e, all, em_i64s(e, -(int64_t)IR_REDUCE_UNROLL * e->lanes));
        LLVMValueRef end = em_add(e, r->begin, whole);
        main_loop(w, end);
        rest(w, end);
    }
    for (int row = 0; row < w->rows; row++)
        for (int a = 0; a < s->n_acc; a++) {
            LLVMValueRef nans = w->nans[row][a];
            red_acc *acc = w->acc[row][a];
            red_fold(r, s->acc[a], acc, nans, (int64_t)vectors_of_row(r) * e->lanes);
            out[row][a] = (nans ? red_put_nans(r, s->acc[a], acc[0], nans) : acc[0]).value;
        }
}

/* To array[] from vector number `to` on. */
static void rows_to_array(red *r, red_sweep *s, int rows, LLVMValueRef q, LLVMValueRef i, LLVMValueRef *array,
                          LLVMValueRef to) {
    emit *e = r->e;
    LLVMValueRef out[ROWS][ACCUMULATORS];
    sweeps *w = FU_NEW(e->arena, sweeps);
    *w = (sweeps){.r = r, .s = s, .rows = rows, .is_direct = !s->is_costly && red_masks_rest(r, s)};
    sweep_rows(w, q, i, out);
    for (int row = 0; row < rows; row++)
        for (int a = 0; a < s->n_acc; a++) {
            const ir_dtype t = red_type(r, s->acc[a]);
            LLVMValueRef number = em_mul(e, em_add(e, to, em_i64s(e, row)), em_i64s(e, e->lanes));
            em_store_ptr(e, t, out[row][a], em_gep(e, array[a], em_memory_type(e, t), number), NULL,
                         ir_dtypes[t].bytes);
        }
    e->lanes = 1;
    red_leave_block(r);
}

/* ---- groups of units ---- */
void red_units(red *r, red_sweep *s, bool is_whole) {
    emit *e = r->e;
    LLVMValueRef grain = e->tune[IR_TUNE_REDUCE_GRAIN], begin = em_mul(e, e->tile_begin, grain);
    LLVMValueRef units = em_mul(e, r->rows, r->partials), end = em_min(e, em_mul(e, e->tile_end, grain), units);
    LLVMValueRef zero = em_i64s(e, 0), one = em_i64s(e, 1), array[s->n_acc + 1], q, i;
    const int rows = rows_at_once(r, s), lanes = e->level->lanes;
    make_arrays(r, s, lanes, array);
    e->lanes = lanes;
    for (int a = 0; a < s->n_acc; a++) /* lanes that have no unit add what was there */
        for (int n = 0; n < lanes; n++) {
            const ir_dtype t = red_type(r, s->acc[a]);
            LLVMValueRef to = em_gep(e, array[a], em_memory_type(e, t), em_i64s(e, (int64_t)n * lanes));
            em_store_ptr(e, t, LLVMConstNull(em_type(e, t)), to, NULL, ir_dtypes[t].bytes);
        }
    e->lanes = 1;
    red_divide(e, begin, em_max(e, r->partials, one), &q, &i);
    em_loop groups = em_for(e, begin, end, one);
    LLVMValueRef group_q = em_loop_phi(e, &groups, q), group_i = em_loop_phi(e, &groups, i);
    LLVMValueRef count = em_min(e, em_sub(e, end, groups.i), em_i64s(e, lanes)), done = zero;
    if (r->n_p > 1) {
        red_enter_row(r, group_q);
        LLVMValueRef left = em_min(e, count, rest_of_last_dim(r));
        count = is_whole ? left : em_select(e, red_is_one_partial(r), left, count);
    }
    q = group_q;
    i = group_i;
    if (rows > 1) {
        done = em_and(e, count, em_i64s(e, -(int64_t)rows));
        if (!is_whole) done = em_select(e, red_is_one_partial(r), done, zero);
        em_loop l = em_for(e, zero, done, em_i64s(e, rows));
        rows_to_array(r, s, rows, em_add(e, group_q, l.i), zero, array, l.i);
        em_end(e, &l);
        q = em_add(e, group_q, done);
    }
    em_loop l = em_for(e, done, count, one);
    q = em_loop_phi(e, &l, q); /* counted along: no division a unit */
    i = em_loop_phi(e, &l, i);
    rows_to_array(r, s, 1, q, i, array, l.i);
    LLVMValueRef next = em_add(e, i, one), is_past = em_icmp(e, LLVMIntEQ, next, r->partials);
    em_loop_next(e, q, is_whole ? em_add(e, q, one) : em_select(e, is_past, em_add(e, q, one), q));
    em_loop_next(e, i, is_whole ? zero : em_select(e, is_past, zero, next));
    em_end(e, &l);
    join_units(r, s, array);
    em_branch one_each = {0};
    if (!is_whole) one_each = em_if(e, red_is_one_partial(r));
    finish_group(r, s, array, group_q, count);
    if (!is_whole) {
        em_else(e, &one_each);
        store_slots(r, s, array, groups.i, count, units);
        em_endif(e, &one_each);
    }
    em_loop_next(e, group_q, q);
    em_loop_next(e, group_i, i);
    groups.step = count;
    em_end(e, &groups);
}
