/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* reduce_short.c: rows of a few elements, as many rows at once as there are lanes, one in each lane.
 *
 *   group of rows: load, element by element of the row; blocks of 16 x 16 are transposed in registers
 *                  pass by pass: values per element, one vector an element; then reductions, the tree of ir/schedule.h
 *                  written out over the vectors of the elements; then values per row, one vector
 *                  transpose back, store
 *
 * Nothing is combined across lanes, and what is computed once a row (the logarithm of log_softmax) costs one vector for
 * a whole group. A cheap program is written out for every element and stays in registers; a costly one is a loop over
 * the elements for each pass, and what it hands on lies in arrays on the stack. Rows past the last one are masked where
 * the level has masks; else they are taken one by one. Rows that lie 2 to 4 elements apart (pixels) are not transposed:
 * element i of all rows is whole vectors and shuffles. */
#include "jit/reduce_common.h"
#include <string.h>

enum { BLOCK = 16, WORK_MAX = 320, STACK_MAX = 9 * 1024 };
/* Most elements of 8 bytes, which are gathered and scattered one by one. (Rows of f64 by their norms, over a row at a
 * time, one core with AVX-512: 3 elements 0.17, 5 0.32, 8 0.45, 12 0.75, 16 1.24 of the time; v3 0.31, 0.49, 0.83,
 * 1.14.) */
enum { WIDE_MASKED = 12, WIDE = 8 };
/* Most halves, which are wider in registers than in memory, so that a row at a time is moved at less cost; of rows
 * with functions, and without. (Rows of bf16 by their norms, over a row at a time, one core with AVX-512: 3 elements
 * 0.47, 5 0.63, 8 0.78, 12 0.82, 16 1.09, 24 1.23; layer_norm 16 0.48, 17 0.52; softmax 0.40, 0.47, 0.59, 0.64, 0.84,
 * 24 elements 0.80, 32 1.05; v3, which stores them one by one: norms 3 elements 0.39, 5 0.67, 8 1.38, softmax 0.36,
 * 0.57, 1.07.) */
enum { HALVES_COSTLY = 24, HALVES_MASKED = 20, HALVES = 5 };

typedef struct short_rows {
    red *r;
    int n;   /* elements of a row */
    int dim; /* of the lanes: the last p dim */
    int n_passes;
    bool is_loop;       /* costly: loops over the elements */
    LLVMValueRef count; /* rows of this group */
    LLVMValueRef mask;  /* of the rows; NULL = all lanes */
    LLVMValueRef stage; /* rows of a group that is not whole, each of padded elements */
    int padded;
    em_values row;         /* values per row */
    em_values *element;    /* written out: values of element i */
    LLVMValueRef *array;   /* loops: by instruction, one vector an element; NULL = has none */
    bool *is_filled;       /* loops: the array holds the values */
    LLVMValueRef **loaded; /* written out, by buffer: transposed loads */
} short_rows;

typedef struct short_place {
    short_rows *s;
    LLVMValueRef i; /* element; NULL = a value per row */
} short_place;

/* Rows that are 2 to 4 elements apart: one element of each is whole vectors and shuffles (em_load). */
static bool is_spread(const red *r, int b) {
    const int64_t apart = r->k->buffer[b].stride[r->n_p - 1];
    return !r->k->buffer[b].is_output && apart >= 2 && apart <= EM_SPREAD;
}

static bool has_spread(const red *r) {
    for (int b = 0; b < r->k->n_buffers; b++)
        if (is_spread(r, b)) return true;
    return false;
}

static bool is_transposed(const red *r, int b) {
    const ir_kbuffer *x = &r->k->buffer[b];
    return r->e->level->has_mask && (ir_dtypes[x->dtype].bytes == 4 || ir_is_half(x->dtype)) &&
           x->stride[r->last] == 1 && x->stride[r->n_p - 1] != 1 && x->stride[r->n_p - 1] != 0 && !is_spread(r, b);
}

static bool is_costly(const ir_kinst *in) { return in->op < IR_OP_COUNT && ir_ops[in->op].flags & IR_COSTLY; }

/* Loops: does the value lie in an array? What is cheap is computed again in a later pass. */
static bool has_array(const red *r, int inst) {
    const ir_kernel *k = r->k;
    const ir_kinst *in = &k->inst[inst];
    if (red_is_row(r, inst) || in->op == IR_K_STORE) return false;
    if (in->op == IR_K_LOAD && is_transposed(r, in->index)) return true;
    for (int u = inst + 1; u < k->n_insts; u++) {
        const ir_kinst *user = &k->inst[u];
        for (int i = 0; i < user->n_in; i++) {
            if (user->in[i] != inst) continue;
            if (ir_kernel_is_reduce_op(user->op)) return true;
            if (user->op == IR_K_STORE && is_transposed(r, user->index)) return true;
            if (is_costly(in) && user->op != IR_K_STORE && r->pass[u] > r->pass[inst]) return true;
        }
    }
    return false;
}

bool red_is_short(const red *r) {
    const ir_kernel *k = r->k;
    int64_t n = 0, work = 0, bytes = 0;
    bool any_costly = false, has_halves = false;
    if (r->v >= 0 || r->n_p == 0 || r->r0 != r->last || !red_constant(r->e->size[r->last], &n)) return false;
    if (n < 2 || r->has_access) return false;
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        bool is_memory = in->op == IR_K_LOAD || in->op == IR_K_STORE;
        bool is_row = in->op == IR_K_STORE ? !r->is_element_store[i] : red_is_row(r, i);
        bool is_scattered = is_memory && k->buffer[in->index].stride[r->n_p - 1] != 1 && !is_spread(r, in->index);
        const int bytes_each = ir_dtypes[in->dtype].bytes, most_wide = r->e->level->has_mask ? WIDE_MASKED : WIDE;
        if (is_scattered && bytes_each < 4 && !ir_is_half(in->dtype)) return false;
        if (is_scattered && !is_row && bytes_each > 4 && n > most_wide) return false;
        has_halves |= is_scattered && ir_is_half(in->dtype);
        if (is_row) continue;
        any_costly |= is_costly(in);
        work += ir_dtypes[in->dtype].bytes > 4 ? 3 : 1; /* two registers for each element, which are spilled sooner */
        if (has_array(r, i)) bytes += n * r->e->level->lanes * ir_dtypes[in->dtype].bytes;
    }
    if (has_halves && n > (!r->e->level->has_mask ? HALVES : any_costly ? HALVES_COSTLY : HALVES_MASKED)) return false;
    bytes += (n + BLOCK - 1) / BLOCK * BLOCK * BLOCK * 4; /* the stage */
    return any_costly ? bytes <= STACK_MAX : n <= 2 * r->e->level->lanes && work * n <= WORK_MAX;
}

/* ---- transposing 16 vectors of 16 elements of 4 bytes; NULL = anything ---- */
static LLVMValueRef shuffle(emit *e, LLVMValueRef a, LLVMValueRef b, const int *index) {
    LLVMValueRef at[BLOCK];
    if (!a && !b) return NULL;
    for (int i = 0; i < BLOCK; i++) at[i] = LLVMConstInt(e->t_i32, (unsigned)index[i], 0);
    LLVMValueRef none = LLVMGetPoison(LLVMTypeOf(a ? a : b));
    return LLVMBuildShuffleVector(e->b, a ? a : none, b ? b : none, LLVMConstVector(at, BLOCK), "");
}

/* Granules of u elements of a and b in turn, from the lower or upper half of each 128-bit lane. */
static LLVMValueRef unpack(emit *e, LLVMValueRef a, LLVMValueRef b, int u, int half) {
    int index[BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        int granule = i % 4 / u;
        index[i] = (granule & 1 ? BLOCK : 0) + i / 4 * 4 + (half * (2 / u) + granule / 2) * u + i % u;
    }
    return shuffle(e, a, b, index);
}

/* The even (odd) 128-bit lanes of a, then of b. */
static LLVMValueRef lanes_of(emit *e, LLVMValueRef a, LLVMValueRef b, int odd) {
    int index[BLOCK];
    for (int i = 0; i < BLOCK; i++) index[i] = i / 8 * BLOCK + (i % 8 / 4 * 2 + odd) * 4 + i % 4;
    return shuffle(e, a, b, index);
}

/* The back end looks through whole chains of shuffles; stages that are blocks of their own compile in half the time. */
static void next_block(emit *e) {
    LLVMBasicBlockRef next = em_block(e, "next");
    LLVMBuildBr(e->b, next);
    LLVMPositionBuilderAtEnd(e->b, next);
}

static void transpose(emit *e, const LLVMValueRef in[BLOCK], LLVMValueRef out[BLOCK]) {
    LLVMValueRef t[BLOCK], u[BLOCK];
    for (int i = 0; i < BLOCK; i++) t[i] = unpack(e, in[i & ~1], in[i | 1], 1, i & 1);
    next_block(e);
    for (int i = 0; i < BLOCK; i++) { /* u[4g + j], lane k: column 4k + j of rows 4g to 4g + 3 */
        int from = i / 4 * 4 + i % 4 / 2;
        u[i] = unpack(e, t[from], t[from + 2], 2, i & 1);
    }
    next_block(e);
    for (int i = 0; i < BLOCK; i++) /* t[4q + j]: blocks of even or odd columns of a half of the rows */
        t[i] = lanes_of(e, u[i / 8 * 8 + i % 4], u[i / 8 * 8 + i % 4 + 4], i / 4 % 2);
    next_block(e);
    for (int i = 0; i < BLOCK; i++) out[i] = lanes_of(e, t[i % 8], t[i % 8 + 8], i / 8);
    next_block(e);
}

/* ---- memory ---- */
static LLVMValueRef array_at(short_rows *s, int inst, LLVMValueRef i) {
    emit *e = s->r->e;
    ir_dtype t = e->k->inst[inst].dtype;
    return em_gep(e, s->array[inst], em_memory_type(e, t), em_mul(e, i, em_i64s(e, e->level->lanes)));
}

static LLVMValueRef load_array(short_rows *s, int inst, LLVMValueRef i) {
    ir_dtype t = s->r->k->inst[inst].dtype;
    return em_load_ptr(s->r->e, t, array_at(s, inst, i), NULL, ir_dtypes[t].bytes);
}

static void store_array(short_rows *s, int inst, LLVMValueRef i, LLVMValueRef v) {
    ir_dtype t = s->r->k->inst[inst].dtype;
    em_store_ptr(s->r->e, t, v, array_at(s, inst, i), NULL, ir_dtypes[t].bytes);
}

/* Elements [first, first + 16) of a row that there are. */
static LLVMValueRef part_mask(short_rows *s, int first) {
    return s->n - first >= BLOCK ? NULL : em_mask(s->r->e, em_i64s(s->r->e, s->n - first));
}

static LLVMValueRef is_whole_group(short_rows *s) {
    return em_icmp(s->r->e, LLVMIntSGE, s->count, em_i64s(s->r->e, BLOCK));
}

/* Copies the rows that there are between buffer b and the stage. */
static void copy_rows(short_rows *s, int b, bool to_stage) {
    emit *e = s->r->e;
    ir_dtype t = e->k->buffer[b].dtype;
    LLVMTypeRef type = em_memory_type(e, t);
    const unsigned align = ir_dtypes[t].bytes;
    em_loop l = em_for(e, em_i64s(e, 0), s->count, em_i64s(e, 1));
    LLVMValueRef in_buffer = em_gep(e, e->base[b], type, em_mul(e, l.i, e->stride[b][s->dim]));
    LLVMValueRef in_stage = em_gep(e, s->stage, type, em_mul(e, l.i, em_i64s(e, s->padded)));
    for (int first = 0; first < s->n; first += BLOCK) {
        LLVMValueRef there = em_gep(e, in_buffer, type, em_i64s(e, first));
        LLVMValueRef here = em_gep(e, in_stage, type, em_i64s(e, first));
        LLVMValueRef mask = part_mask(s, first);
        if (to_stage) em_store_ptr(e, t, em_load_ptr(e, t, there, mask, align), here, NULL, align);
        else em_store_ptr(e, t, em_load_ptr(e, t, here, NULL, align), there, mask, align);
    }
    em_end(e, &l);
}

/* Where a group's rows lie, and how far apart: the buffer or the stage. */
static void place_of_rows(short_rows *s, int b, bool is_load, LLVMValueRef *base_out, LLVMValueRef *stride_out) {
    emit *e = s->r->e;
    em_branch part = em_if(e, LLVMBuildNot(e->b, is_whole_group(s), ""));
    if (is_load) copy_rows(s, b, true);
    LLVMBasicBlockRef from[2] = {LLVMGetInsertBlock(e->b), part.other};
    em_endif(e, &part);
    *base_out = LLVMBuildPhi(e->b, e->t_ptr, "");
    *stride_out = LLVMBuildPhi(e->b, e->t_i64, "");
    LLVMAddIncoming(*base_out, (LLVMValueRef[]){s->stage, e->base[b]}, from, 2);
    LLVMAddIncoming(*stride_out, (LLVMValueRef[]){em_i64s(e, s->padded), e->stride[b][s->dim]}, from, 2);
}

static void load_transposed(short_rows *s, int b, LLVMValueRef *out) {
    emit *e = s->r->e;
    ir_dtype t = e->k->buffer[b].dtype;
    LLVMValueRef base, stride, in[BLOCK];
    place_of_rows(s, b, true, &base, &stride);
    for (int first = 0; first < s->n; first += BLOCK) {
        LLVMValueRef at = em_gep(e, base, em_memory_type(e, t), em_i64s(e, first)), mask = part_mask(s, first);
        for (int l = 0; l < BLOCK; l++) {
            in[l] = em_load_ptr(e, t, at, mask, ir_dtypes[t].bytes);
            at = em_gep(e, at, em_memory_type(e, t), stride);
        }
        transpose(e, in, out + first);
    }
}

static void store_transposed(short_rows *s, int b, LLVMValueRef *value) {
    emit *e = s->r->e;
    ir_dtype t = e->k->buffer[b].dtype;
    LLVMValueRef base, stride, out[BLOCK];
    place_of_rows(s, b, false, &base, &stride);
    for (int first = 0; first < s->n; first += BLOCK) {
        LLVMValueRef at = em_gep(e, base, em_memory_type(e, t), em_i64s(e, first)), mask = part_mask(s, first);
        transpose(e, value + first, out);
        for (int l = 0; l < BLOCK; l++) {
            em_store_ptr(e, t, out[l], at, mask, ir_dtypes[t].bytes);
            at = em_gep(e, at, em_memory_type(e, t), stride);
        }
    }
    em_branch part = em_if(e, LLVMBuildNot(e->b, is_whole_group(s), ""));
    copy_rows(s, b, false);
    em_endif(e, &part);
}

static LLVMValueRef load(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    short_place *at = user;
    short_rows *s = at->s;
    red *r = s->r;
    int64_t i = 0;
    (void)v;
    if (inst->op == IR_K_INDEX) {
        if (inst->index == r->last) return em_splat(e, at->i);
        LLVMValueRef all = em_splat(e, r->index[inst->index]);
        return inst->index == s->dim && e->lanes > 1 ? em_add(e, all, red_lane_numbers(e, e->t_i64, 0)) : all;
    }
    int b = inst->index;
    if (at->i && !s->is_loop && e->lanes > 1 && is_transposed(r, b) && red_constant(at->i, &i)) {
        if (!s->loaded[b]) {
            s->loaded[b] = FU_NEW_N(e->arena, LLVMValueRef, s->padded);
            load_transposed(s, b, s->loaded[b]);
        }
        return s->loaded[b][i];
    }
    LLVMValueRef off = at->i ? red_advance(e, NULL, at->i, e->stride[b][r->last]) : em_i64s(e, 0);
    return em_load(e, b, off, e->stride[b][s->dim], s->mask);
}

/* ---- reductions ---- */
static LLVMValueRef operand(short_rows *s, int in, int i) {
    if (red_is_row(s->r, in)) return em_value(s->r->e, &s->row, in); /* the same value n times */
    return s->is_loop ? load_array(s, in, em_i64s(s->r->e, i)) : s->element[i].at[in];
}

/* Accumulator l of `span` in the tree; depth first, so that few values are alive. */
static red_acc tree(short_rows *s, int inst, int l, int span) {
    red *r = s->r;
    int j = r->number[inst], in = r->k->inst[inst].in[0], group = IR_REDUCE_UNROLL * r->e->level->lanes;
    if (span < group) {
        red_acc low = tree(s, inst, l, 2 * span);
        return l + span < s->n ? red_merge(r, j, low, tree(s, inst, l + span, 2 * span)) : low;
    }
    red_acc acc = {operand(s, in, l), NULL};
    for (int i = l + group; i < s->n; i += group) acc = red_take(r, j, acc, operand(s, in, i), NULL, NULL);
    return acc;
}

static LLVMValueRef reduced(short_rows *s, int inst) {
    red *r = s->r;
    emit *e = r->e;
    int j = r->number[inst], in = r->k->inst[inst].in[0];
    if (red_is_arg(r, j)) { /* which element wins does not depend on the order */
        red_acc acc = {operand(s, in, 0), em_i32(e, 0)};
        for (int i = 1; i < s->n; i++) acc = red_take(r, j, acc, operand(s, in, i), em_i32(e, i), NULL);
        return LLVMBuildSExt(e->b, acc.index, em_vec(e, e->t_i64), "");
    }
    /* The accumulators of ir/schedule.h begin with the identity; that shows only in a sum of nothing but -0. */
    LLVMValueRef total = tree(s, inst, 0, 1).value;
    ir_dtype t = red_type(r, j);
    bool is_float_sum = ir_is_float(t) && ir_ops[r->k->inst[inst].op].combine == IR_OP_ADD;
    return is_float_sum ? em_fadd(e, total, em_const(e, t, 0)) : total;
}

/* ---- a group of rows ---- */
/* Value of an element: of the row, from its array, or computed. */
static LLVMValueRef element(short_rows *s, em_values *v, int n) {
    red *r = s->r;
    if (v->at[n]) return v->at[n];
    if (red_is_row(r, n)) return v->at[n] = em_value(r->e, &s->row, n);
    if (s->is_loop && s->is_filled[n]) return v->at[n] = load_array(s, n, ((short_place *)v->user)->i);
    for (int i = 0; i < r->k->inst[n].n_in; i++) element(s, v, r->k->inst[n].in[i]);
    return em_value(r->e, v, n);
}

static void store_element(short_rows *s, em_values *v, int store) {
    red *r = s->r;
    const ir_kinst *in = &r->k->inst[store];
    LLVMValueRef off = red_advance(r->e, NULL, ((short_place *)v->user)->i, r->e->stride[in->index][r->last]);
    em_store(r->e, in->index, element(s, v, in->in[0]), off, r->e->stride[in->index][s->dim], s->mask);
}

static bool is_stored_later(const short_rows *s, int store) {
    return s->r->e->lanes > 1 && is_transposed(s->r, s->r->k->inst[store].index);
}

/* Everything per element of one pass: in arrays, or stored. */
static void loop_pass(short_rows *s, int pass) {
    red *r = s->r;
    emit *e = r->e;
    const ir_kernel *k = r->k;
    short_place at = {s, NULL};
    em_values *v = FU_NEW(e->arena, em_values);
    bool any = false;
    for (int n = 0; n < k->n_insts; n++) {
        if (r->pass[n] != pass) continue;
        any |= k->inst[n].op == IR_K_STORE ? r->is_element_store[n] && !is_stored_later(s, n)
                                           : s->array[n] && !s->is_filled[n];
    }
    if (!any) return;
    for (int n = 0; n < k->n_insts; n++)
        if (red_is_row(r, n) && k->inst[n].op != IR_K_STORE && r->pass[n] <= pass) em_value(e, &s->row, n);
    em_loop l = em_for(e, em_i64s(e, 0), em_i64s(e, s->n), em_i64s(e, 1));
    at.i = l.i;
    em_values_init(v, load, &at);
    for (int n = 0; n < k->n_insts; n++) {
        if (r->pass[n] != pass) continue;
        if (k->inst[n].op == IR_K_STORE) {
            if (r->is_element_store[n] && !is_stored_later(s, n)) store_element(s, v, n);
        } else if (s->array[n] && !s->is_filled[n]) {
            store_array(s, n, l.i, element(s, v, n));
        }
    }
    em_end(e, &l);
    for (int n = 0; n < k->n_insts; n++)
        if (r->pass[n] == pass && s->array[n]) s->is_filled[n] = true;
}

static void compute_in_loops(short_rows *s) {
    red *r = s->r;
    emit *e = r->e;
    const ir_kernel *k = r->k;
    memset(s->is_filled, 0, sizeof *s->is_filled * (size_t)k->n_insts);
    for (int n = 0; n < k->n_insts; n++) {
        if (k->inst[n].op != IR_K_LOAD || !s->array[n] || e->lanes == 1 || !is_transposed(r, k->inst[n].index))
            continue;
        LLVMValueRef *x = FU_NEW_N(e->arena, LLVMValueRef, s->padded);
        load_transposed(s, k->inst[n].index, x);
        for (int i = 0; i < s->n; i++) store_array(s, n, em_i64s(e, i), x[i]);
        s->is_filled[n] = true;
    }
    for (int pass = 0; pass < s->n_passes; pass++) {
        loop_pass(s, pass);
        for (int n = 0; n < k->n_insts; n++)
            if (ir_kernel_is_reduce_op(k->inst[n].op) && r->pass[n] == pass + 1) s->row.at[n] = reduced(s, n);
    }
    for (int n = 0; n < k->n_insts; n++) {
        if (k->inst[n].op != IR_K_STORE || !r->is_element_store[n] || !is_stored_later(s, n)) continue;
        int from = k->inst[n].in[0];
        LLVMValueRef *y = FU_NEW_N(e->arena, LLVMValueRef, s->padded);
        for (int i = 0; i < s->n; i++) y[i] = operand(s, from, i);
        store_transposed(s, k->inst[n].index, y);
    }
}

static void compute_written_out(short_rows *s) {
    red *r = s->r;
    emit *e = r->e;
    const ir_kernel *k = r->k;
    short_place *place = FU_NEW_N(e->arena, short_place, s->n);
    memset(s->loaded, 0, sizeof *s->loaded * (size_t)k->n_buffers);
    for (int i = 0; i < s->n; i++) {
        place[i] = (short_place){s, em_i64s(e, i)};
        em_values_init(&s->element[i], load, &place[i]);
    }
    for (int n = 0; n < k->n_insts; n++) {
        if (k->inst[n].op == IR_K_STORE) continue;
        if (ir_kernel_is_reduce_op(k->inst[n].op)) s->row.at[n] = reduced(s, n);
        else if (red_is_row(r, n)) em_value(e, &s->row, n);
        else
            for (int i = 0; i < s->n; i++) element(s, &s->element[i], n);
    }
    for (int n = 0; n < k->n_insts; n++) {
        if (k->inst[n].op != IR_K_STORE || !r->is_element_store[n]) continue;
        LLVMValueRef *y = FU_NEW_N(e->arena, LLVMValueRef, s->padded);
        for (int i = 0; i < s->n; i++) {
            if (is_stored_later(s, n)) y[i] = element(s, &s->element[i], k->inst[n].in[0]);
            else store_element(s, &s->element[i], n);
        }
        if (is_stored_later(s, n)) store_transposed(s, k->inst[n].index, y);
    }
}

static void emit_group(short_rows *s) {
    red *r = s->r;
    emit *e = r->e;
    const ir_kernel *k = r->k;
    short_place of_row = {s, NULL};
    memset(s->loaded, 0, (size_t)k->n_buffers * sizeof *s->loaded);
    memset(s->is_filled, 0, (size_t)k->n_insts * sizeof *s->is_filled);
    em_values_init(&s->row, load, &of_row);
    if (s->is_loop) compute_in_loops(s);
    else compute_written_out(s);
    for (int n = 0; n < k->n_insts; n++) {
        const ir_kinst *in = &k->inst[n];
        if (in->op != IR_K_STORE || r->is_element_store[n]) continue;
        em_store(e, in->index, em_value(e, &s->row, in->in[0]), em_i64s(e, 0), e->stride[in->index][s->dim], s->mask);
    }
}

static short_rows *new_short_rows(red *r) {
    emit *e = r->e;
    const ir_kernel *k = r->k;
    int64_t n = 0;
    bool has_stage = false;
    short_rows *s = FU_NEW(e->arena, short_rows);
    s->r = r;
    s->dim = r->n_p - 1;
    red_constant(e->size[r->last], &n);
    s->n = (int)n;
    s->padded = (s->n + BLOCK - 1) / BLOCK * BLOCK;
    s->element = FU_NEW_N(e->arena, em_values, s->n);
    s->loaded = FU_NEW_N(e->arena, LLVMValueRef *, k->n_buffers);
    s->array = FU_NEW_N(e->arena, LLVMValueRef, k->n_insts);
    s->is_filled = FU_NEW_N(e->arena, bool, k->n_insts);
    for (int i = 0; i < k->n_insts; i++) {
        if (r->pass[i] >= s->n_passes) s->n_passes = r->pass[i] + 1;
        s->is_loop |= !red_is_row(r, i) && k->inst[i].op != IR_K_STORE && is_costly(&k->inst[i]);
    }
    for (int b = 0; b < k->n_buffers; b++) has_stage |= is_transposed(r, b);
    for (int i = 0; i < k->n_insts && s->is_loop; i++) {
        LLVMTypeRef t = em_memory_type(e, k->inst[i].dtype);
        if (has_array(r, i)) s->array[i] = em_alloca(e, LLVMArrayType2(t, (uint64_t)(s->n * e->level->lanes)), 64);
    }
    if (has_stage) s->stage = em_alloca(e, LLVMArrayType2(e->t_i32, (uint64_t)(BLOCK * s->padded)), 64);
    return s;
}

void red_short_rows(red *r, LLVMValueRef begin, LLVMValueRef end) {
    emit *e = r->e;
    short_rows *s = new_short_rows(r);
    LLVMValueRef lanes = em_i64s(e, e->level->lanes), one = em_i64s(e, 1);
    em_loop l = em_for(e, begin, end, one);
    red_enter_row(r, l.i);
    s->count = em_min(e, em_sub(e, end, l.i), lanes);
    if (r->n_p > 1) s->count = em_min(e, s->count, em_sub(e, e->size[s->dim], r->index[s->dim]));
    e->lanes = e->level->lanes;
    if (has_spread(r) && e->level->has_mask) { /* masks of each part would cost as much as the loads */
        em_branch whole = em_if(e, em_icmp(e, LLVMIntSGE, s->count, lanes));
        emit_group(s);
        em_else(e, &whole);
        s->mask = em_mask(e, s->count);
        emit_group(s);
        em_endif(e, &whole);
        l.step = s->count;
    } else if (e->level->has_mask) {
        s->mask = em_mask(e, s->count);
        emit_group(s);
        l.step = s->count;
    } else {
        em_branch whole = em_if(e, em_icmp(e, LLVMIntSGE, s->count, lanes));
        emit_group(s);
        LLVMBasicBlockRef from[2] = {LLVMGetInsertBlock(e->b)};
        em_else(e, &whole);
        e->lanes = 1;
        emit_group(s);
        from[1] = LLVMGetInsertBlock(e->b);
        em_endif(e, &whole);
        l.step = LLVMBuildPhi(e->b, e->t_i64, "");
        LLVMAddIncoming(l.step, (LLVMValueRef[]){lanes, one}, from, 2);
    }
    e->lanes = 1;
    em_end(e, &l);
}
