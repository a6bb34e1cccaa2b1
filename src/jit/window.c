/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* window.c: convolutions. A register tile is mr channels x nr columns; its products are of weights as they lie (rows of K elements) and
 * of the operand as it lies: k is an offset from a table that each call makes first, so nothing is copied and nothing is packed.
 *
 *   tile of work   rows y0 .. of one image, all channels
 *   lines          where the operand's rows are little longer than the result's, all rows are one line of columns, with some that
 *                  belong to no result between them; else each row is a line
 *   panels         nr columns of a line; the last one begins earlier, so that it is whole; a line that is shorter than a panel is
 *                  copied to where there is room
 *   segments       the columns of a panel that are of one row: the program behind the sums is evaluated on them
 *
 * The order that an element is accumulated in depends on K, kb and the level alone, as in contract.c. */
#include "jit/emit.h"
#include <string.h>

enum { MAX_TILE = 32, MAX_K = 5 };
typedef enum window_function { TILE, EDGE, FINISH, FUNCTIONS } window_function;

typedef struct window {
    emit *e;
    const ir_kernel *k;
    int n_batch, dim_m, dim_y, dim_n, n_k;
    int matmul, weights, operand;   /* an instruction; buffers */
    ir_dtype acc;
    int bytes, lanes, v_lanes, nv, mr, nr, kb, step;
    LLVMTypeRef t_acc, t_vec;
    LLVMValueRef kk;                /* product of the dims k */
    LLVMValueRef table, edge_table, tile, edge;     /* parts of scratch: ir/kernel.h */
    LLVMValueRef function[FUNCTIONS];
    LLVMTypeRef function_type[FUNCTIONS];
} window;

typedef struct point {
    window *w;
    LLVMValueRef *off;              /* of each buffer, at lane 0 */
    LLVMValueRef *index;            /* of each dim but k */
    int axis;
    LLVMValueRef mask;
} point;

static LLVMValueRef num(window *w, int64_t v) { return em_i64s(w->e, v); }
static LLVMValueRef element(window *w, LLVMValueRef base, LLVMValueRef i) { return em_gep(w->e, base, w->t_acc, i); }
static LLVMValueRef least(window *w, LLVMValueRef a, LLVMValueRef b) { return em_select(w->e, em_icmp(w->e, LLVMIntSLT, a, b), a, b); }
static LLVMValueRef round_up(window *w, LLVMValueRef bytes) { return em_and(w->e, em_add(w->e, bytes, num(w, 63)), num(w, -64)); }

static void set_values(window *w) {
    emit *e = w->e;
    w->kk = num(w, 1);
    for (int d = w->dim_n + 1; d < w->k->n_dims; d++) w->kk = em_mul(e, w->kk, e->size[d]);
    const LLVMValueRef table_bytes = round_up(w, em_mul(e, w->kk, num(w, 8)));
    w->table = e->scratch;
    w->edge_table = em_gep(e, w->table, e->t_i8, table_bytes);
    w->tile = em_gep(e, w->edge_table, e->t_i8, table_bytes);
    w->edge = em_gep(e, w->tile, e->t_i8, num(w, (w->mr * w->nr * w->bytes + 63) / 64 * 64));
}

/* ---- functions beside the kernel's ---- */
typedef struct outer { emit e; window w; LLVMBasicBlockRef block; } outer;

static outer *begin_function(window *w, window_function f, const char *name, LLVMTypeRef *parameter, unsigned n) {
    emit *e = w->e;
    w->function_type[f] = LLVMFunctionType(e->t_void, parameter, n, 0);
    w->function[f] = em_function(e, name, w->function_type[f], true);
    LLVMSetLinkage(w->function[f], LLVMInternalLinkage);
    outer *o = FU_NEW(e->arena, outer);
    *o = (outer){*e, *w, LLVMGetInsertBlock(e->b)};
    e->fn = w->function[f];
    LLVMPositionBuilderAtEnd(e->b, em_block(e, "entry"));
    if (f == TILE) return o;
    em_load_args(e, LLVMGetParam(e->fn, 0));
    set_values(w);
    return o;
}

static void end_function(window *w, const outer *o) {
    emit *e = w->e;
    LLVMBuildRetVoid(e->b);
    LLVMPositionBuilderAtEnd(e->b, o->block);
    *e = o->e;
    *w = o->w;
}

static void call(window *w, window_function f, LLVMValueRef *in, unsigned n) {
    LLVMBuildCall2(w->e->b, w->function_type[f], w->function[f], in, n, "");
}

/* ---- the register tile ---- */
static LLVMValueRef load_vector(window *w, LLVMValueRef ptr) {
    LLVMValueRef v = LLVMBuildLoad2(w->e->b, w->t_vec, ptr, "");
    LLVMSetAlignment(v, (unsigned)w->bytes);
    return v;
}

/* v_lanes columns from element `at` on, `step` apart. Of two vectors the second ends with the last element that is wanted. */
static LLVMValueRef load_columns(window *w, LLVMValueRef base, int column) {
    const int n = w->v_lanes, at = column * w->step;
    LLVMValueRef a = load_vector(w, element(w, base, num(w, at)));
    if (w->step == 1) return a;
    LLVMValueRef b = load_vector(w, element(w, base, num(w, at + n - 1))), index[64];
    for (int i = 0; i < n; i++) index[i] = LLVMConstInt(w->e->t_i32, (unsigned)(2 * i < n ? 2 * i : n + 2 * i - (n - 1)), 0);
    return LLVMBuildShuffleVector(w->e->b, a, b, LLVMConstVector(index, (unsigned)n), "");
}

static LLVMValueRef merge(window *w, LLVMValueRef a, LLVMBasicBlockRef from_a, LLVMValueRef b, LLVMBasicBlockRef from_b) {
    LLVMValueRef phi = LLVMBuildPhi(w->e->b, LLVMTypeOf(a), "");
    LLVMAddIncoming(phi, &a, &from_a, 1);
    LLVMAddIncoming(phi, &b, &from_b, 1);
    return phi;
}

/* (weights, elements between their rows, operand, table, count, dst, before): dst[mr][nr] = sum over k < count of weights[.][k] *
 * operand[table[k] + .]; plus what is there where `before` is not 0. */
static void emit_tile(window *w) {
    emit *e = w->e;
    const int n = w->mr * w->nv;
    LLVMTypeRef parameter[7] = {e->t_ptr, e->t_i64, e->t_ptr, e->t_ptr, e->t_i64, e->t_ptr, e->t_i64};
    outer *o = begin_function(w, TILE, "tile", parameter, 7);
    LLVMValueRef in[7], zero = LLVMConstNull(w->t_vec), sum[MAX_TILE], next[MAX_TILE], row[16], b[8];
    LLVMValueRef zeros = LLVMConstNull(LLVMVectorType(e->t_i32, (unsigned)w->v_lanes)), poison = LLVMGetPoison(w->t_vec);
    LLVMGetParams(e->fn, in);
    for (int i = 0; i < w->mr; i++) row[i] = i ? element(w, row[i - 1], in[1]) : in[0];
    LLVMBasicBlockRef entry = LLVMGetInsertBlock(e->b), body = em_block(e, "products"), done = em_block(e, "sums");
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSGT, in[4], num(w, 0)), body, done);
    LLVMPositionBuilderAtEnd(e->b, body);
    LLVMValueRef k = LLVMBuildPhi(e->b, e->t_i64, ""), first = num(w, 0);
    LLVMAddIncoming(k, &first, &entry, 1);
    for (int i = 0; i < n; i++) {
        next[i] = sum[i] = LLVMBuildPhi(e->b, w->t_vec, "");
        LLVMAddIncoming(sum[i], &zero, &entry, 1);
    }
    LLVMValueRef at = LLVMBuildLoad2(e->b, e->t_i64, em_gep(e, in[3], e->t_i64, k), "");
    LLVMValueRef base = em_gep(e, in[2], e->t_i8, at);
    for (int j = 0; j < w->nv; j++) b[j] = load_columns(w, base, j * w->v_lanes);
    for (int i = 0; i < w->mr; i++) {
        LLVMValueRef x = LLVMBuildLoad2(e->b, w->t_acc, element(w, row[i], k), "");
        LLVMSetAlignment(x, (unsigned)w->bytes);
        LLVMValueRef a = LLVMBuildShuffleVector(
            e->b, LLVMBuildInsertElement(e->b, poison, x, LLVMConstInt(e->t_i32, 0, 0), ""), poison, zeros, "");
        for (int j = 0; j < w->nv; j++) next[i * w->nv + j] = em_mad(e, a, b[j], next[i * w->nv + j]);
    }
    LLVMValueRef then = em_add(e, k, num(w, 1));
    LLVMAddIncoming(k, &then, &body, 1);
    for (int i = 0; i < n; i++) LLVMAddIncoming(sum[i], &next[i], &body, 1);
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSLT, then, in[4]), body, done);

    LLVMPositionBuilderAtEnd(e->b, done);
    for (int i = 0; i < n; i++) sum[i] = merge(w, zero, entry, next[i], body);
    LLVMBasicBlockRef add = em_block(e, "add"), store = em_block(e, "store");
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntNE, in[6], num(w, 0)), add, store);
    LLVMPositionBuilderAtEnd(e->b, add);
    for (int i = 0; i < n; i++) next[i] = em_fadd(e, load_vector(w, element(w, in[5], num(w, i * w->v_lanes))), sum[i]);
    LLVMBuildBr(e->b, store);
    LLVMPositionBuilderAtEnd(e->b, store);
    for (int i = 0; i < n; i++) sum[i] = merge(w, sum[i], done, next[i], add);
    for (int i = 0; i < n; i++)
        LLVMSetAlignment(LLVMBuildStore(e->b, sum[i], element(w, in[5], num(w, i * w->v_lanes))), (unsigned)w->bytes);
    end_function(w, o);
}

/* ---- a line that is shorter than a panel ---- */
/* (args, operand, columns): its elements behind each other for every k, nr * step places each, zeros behind; and their table. */
static void emit_edge(window *w) {
    emit *e = w->e;
    LLVMTypeRef parameter[3] = {e->t_ptr, e->t_ptr, e->t_i64};
    outer *o = begin_function(w, EDGE, "edge", parameter, 3);
    LLVMValueRef from = LLVMGetParam(e->fn, 1), columns = LLVMGetParam(e->fn, 2), one = num(w, 1);
    const int64_t room = (int64_t)w->nr * w->step;
    LLVMValueRef width = em_add(e, em_mul(e, em_sub(e, columns, one), num(w, w->step)), one);
    em_loop lk = em_for(e, num(w, 0), w->kk, one);
    LLVMValueRef at = LLVMBuildLoad2(e->b, e->t_i64, em_gep(e, w->table, e->t_i64, lk.i), "");
    LLVMValueRef to = em_mul(e, lk.i, num(w, room)), source = em_gep(e, from, e->t_i8, at), place = element(w, w->edge, to);
    LLVMBuildStore(e->b, em_mul(e, to, num(w, w->bytes)), em_gep(e, w->edge_table, e->t_i64, lk.i));
    em_loop l = em_for(e, num(w, 0), width, one);
    LLVMValueRef x = LLVMBuildLoad2(e->b, w->t_acc, element(w, source, l.i), "");
    LLVMSetAlignment(x, (unsigned)w->bytes);
    LLVMSetAlignment(LLVMBuildStore(e->b, x, element(w, place, l.i)), (unsigned)w->bytes);
    em_end(e, &l);
    em_loop rest = em_for(e, width, num(w, room), one);
    LLVMSetAlignment(LLVMBuildStore(e->b, LLVMConstNull(w->t_acc), element(w, place, rest.i)), (unsigned)w->bytes);
    em_end(e, &rest);
    em_end(e, &lk);
    end_function(w, o);
}

/* ---- the program behind the sums ---- */
static LLVMValueRef step_of(window *w, int buffer, int axis) {
    if (axis < 0) return num(w, 0);
    const int64_t s = w->k->buffer[buffer].stride[axis];
    return s == 0 || s == 1 ? num(w, s) : w->e->stride[buffer][axis];
}

static LLVMValueRef load(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    point *at = user;
    if (inst->op == IR_K_LOAD) return em_load_value(e, v, inst, at->axis, at->off[inst->index], step_of(at->w, inst->index, at->axis), at->mask);
    LLVMValueRef x = em_splat(e, at->index[inst->index]), lane[64];
    if (inst->index != at->w->dim_n || e->lanes == 1) return x;
    for (int i = 0; i < e->lanes; i++) lane[i] = num(at->w, i);
    return em_add(e, x, LLVMConstVector(lane, (unsigned)e->lanes));
}

/* Evaluates and stores everything at columns from `column` on of a row; sums lie at x. */
static void finish_at(window *w, const LLVMValueRef *row_off, LLVMValueRef *index, LLVMValueRef first, LLVMValueRef column, LLVMValueRef x,
                      LLVMValueRef mask) {
    emit *e = w->e;
    LLVMValueRef off[IR_KERNEL_MAX_BUFFERS];
    for (int b = 0; b < w->k->n_buffers; b++) {
        off[b] = row_off[b];
        if (b != w->weights && b != w->operand && w->k->buffer[b].stride[w->dim_n] != 0)
            off[b] = em_add(e, off[b], em_mul(e, column, step_of(w, b, w->dim_n)));
    }
    LLVMValueRef before = index[w->dim_n];
    index[w->dim_n] = em_add(e, first, column);
    point at = {w, off, index, e->lanes > 1 ? w->dim_n : -1, mask};
    em_values v;
    em_values_init(&v, load, &at);
    v.at[w->matmul] = em_load_ptr(e, w->acc, element(w, x, column), NULL, (unsigned)w->bytes);
    for (int i = 0; i < w->k->n_insts; i++) {
        const ir_kinst *in = &w->k->inst[i];
        if (in->op != IR_K_STORE) continue;
        LLVMValueRef value = em_value(e, &v, in->in[0]);
        em_store(e, in->index, value, off[in->index], step_of(w, in->index, at.axis), mask);
    }
    index[w->dim_n] = before;
}

static void decode_batch(window *w, LLVMValueRef number, LLVMValueRef *index) {
    emit *e = w->e;
    for (int d = w->n_batch - 1; d >= 0; d--) {
        index[d] = LLVMBuildURem(e->b, number, e->size[d], "");
        number = LLVMBuildUDiv(e->b, number, e->size[d], "");
    }
}

static LLVMValueRef offset_of(window *w, int buffer, LLVMValueRef *index) {
    emit *e = w->e;
    LLVMValueRef off = num(w, 0);
    for (int d = 0; d <= w->dim_n; d++)
        if (w->k->buffer[buffer].stride[d] != 0 && index[d]) off = em_add(e, off, em_mul(e, index[d], e->stride[buffer][d]));
    return off;
}

/* (args, sums, batch, m0, y, n0, columns): what becomes of mr rows of sums, nr elements apart. */
static void emit_finish(window *w) {
    emit *e = w->e;
    LLVMTypeRef parameter[7] = {e->t_ptr, e->t_ptr, e->t_i64, e->t_i64, e->t_i64, e->t_i64, e->t_i64};
    outer *o = begin_function(w, FINISH, "finish", parameter, 7);
    LLVMValueRef in[7], index[IR_KERNEL_MAX_DIMS] = {0}, off[IR_KERNEL_MAX_BUFFERS], lanes = num(w, w->lanes), zero = num(w, 0);
    LLVMGetParams(e->fn, in);
    decode_batch(w, in[2], index);
    index[w->dim_m] = in[3];
    index[w->dim_y] = in[4];
    index[w->dim_n] = in[5];
    for (int b = 0; b < w->k->n_buffers; b++) off[b] = offset_of(w, b, index);
    LLVMValueRef whole = em_and(e, in[6], num(w, -w->lanes)), row_off[IR_KERNEL_MAX_BUFFERS];
    em_loop lr = em_for(e, zero, num(w, w->mr), num(w, 1));
    for (int b = 0; b < w->k->n_buffers; b++) {
        const bool varies = w->k->buffer[b].stride[w->dim_m] != 0 && b != w->weights && b != w->operand;
        row_off[b] = varies ? em_add(e, off[b], em_mul(e, lr.i, e->stride[b][w->dim_m])) : off[b];
    }
    index[w->dim_m] = em_add(e, in[3], lr.i);
    LLVMValueRef x = element(w, in[1], em_mul(e, lr.i, num(w, w->nr)));
    e->lanes = w->lanes;
    em_loop l = em_for(e, zero, whole, lanes);
    finish_at(w, row_off, index, in[5], l.i, x, NULL);
    em_end(e, &l);
    if (e->level->has_mask) {
        em_branch b = em_if(e, em_icmp(e, LLVMIntSLT, whole, in[6]));
        finish_at(w, row_off, index, in[5], whole, x, em_mask(e, em_sub(e, in[6], whole)));
        em_endif(e, &b);
    } else {
        e->lanes = 1;
        em_loop rest = em_for(e, whole, in[6], num(w, 1));
        finish_at(w, row_off, index, in[5], rest.i, x, NULL);
        em_end(e, &rest);
    }
    em_end(e, &lr);
    end_function(w, o);
}

/* ---- the kernel ---- */
/* Byte offsets of the elements of K, in order. */
static void emit_table(window *w) {
    emit *e = w->e;
    em_loop l[MAX_K];
    LLVMValueRef at = num(w, 0), place = num(w, 0);
    for (int i = 0; i < w->n_k; i++) {
        const int d = w->dim_n + 1 + i;
        l[i] = em_for(e, num(w, 0), e->size[d], num(w, 1));
        at = em_add(e, at, em_mul(e, l[i].i, em_mul(e, e->stride[w->operand][d], num(w, w->bytes))));
        place = em_add(e, em_mul(e, place, e->size[d]), l[i].i);
    }
    LLVMBuildStore(e->b, at, em_gep(e, w->table, e->t_i64, place));
    for (int i = w->n_k - 1; i >= 0; i--) em_end(e, &l[i]);
}

typedef struct line {
    LLVMValueRef from, length, pitch, batch, y, weights;  /* first element of the operand; columns; columns from row to row */
} line;

/* The columns of a panel by rows: those past the result's columns are skipped. */
static void emit_segments(window *w, const line *s, LLVMValueRef begin, LLVMValueRef end, LLVMValueRef m0) {
    emit *e = w->e;
    LLVMValueRef n = e->size[w->dim_n];
    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b), head = em_block(e, "segment"), body = em_block(e, "columns"), done = em_block(e, "panel");
    LLVMBuildBr(e->b, head);
    LLVMPositionBuilderAtEnd(e->b, head);
    LLVMValueRef at = LLVMBuildPhi(e->b, e->t_i64, "");
    LLVMAddIncoming(at, &begin, &before, 1);
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSLT, at, end), body, done);
    LLVMPositionBuilderAtEnd(e->b, body);
    LLVMValueRef row = LLVMBuildUDiv(e->b, at, s->pitch, ""), column = em_sub(e, at, em_mul(e, row, s->pitch));
    LLVMValueRef columns = least(w, em_sub(e, n, column), em_sub(e, end, at));
    em_branch b = em_if(e, em_icmp(e, LLVMIntSGT, columns, num(w, 0)));
    call(w, FINISH, (LLVMValueRef[]){e->args, element(w, w->tile, em_sub(e, at, begin)), s->batch, m0, em_add(e, s->y, row), column, columns}, 7);
    em_endif(e, &b);
    LLVMValueRef next = em_add(e, at, em_sub(e, s->pitch, column));
    LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b);
    LLVMAddIncoming(at, &next, &from, 1);
    LLVMBuildBr(e->b, head);
    LLVMPositionBuilderAtEnd(e->b, done);
}

static void emit_panel(window *w, const line *s, LLVMValueRef at) {
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), one = num(w, 1), nr = num(w, w->nr), m = e->size[w->dim_m], mr = num(w, w->mr);
    LLVMValueRef is_short = em_icmp(e, LLVMIntSLT, s->length, nr);
    LLVMValueRef begin = em_select(e, is_short, zero, least(w, at, em_sub(e, s->length, nr)));
    LLVMValueRef end = least(w, em_add(e, begin, nr), s->length);
    LLVMValueRef from = element(w, s->from, em_mul(e, begin, num(w, w->step)));
    em_branch b = em_if(e, is_short);
    call(w, EDGE, (LLVMValueRef[]){e->args, from, s->length}, 3);
    em_endif(e, &b);
    LLVMValueRef source = em_select(e, is_short, w->edge, from), table = em_select(e, is_short, w->edge_table, w->table);
    em_loop lm = em_for(e, zero, m, mr);
    LLVMValueRef m0 = least(w, lm.i, em_sub(e, m, mr)), row = e->stride[w->weights][w->dim_m];
    LLVMValueRef weights = element(w, s->weights, em_mul(e, m0, row));
    LLVMValueRef k_end = em_select(e, em_icmp(e, LLVMIntSGT, w->kk, zero), w->kk, one);   /* K = 0: sums of nothing */
    em_loop lk = em_for(e, zero, k_end, num(w, w->kb));
    call(w, TILE, (LLVMValueRef[]){element(w, weights, lk.i), row, source, em_gep(e, table, e->t_i64, lk.i),
                                   least(w, em_sub(e, w->kk, lk.i), num(w, w->kb)), w->tile, lk.i}, 7);
    em_end(e, &lk);
    emit_segments(w, s, begin, end, m0);
    em_end(e, &lm);
}

static void emit_tiles(window *w) {
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), one = num(w, 1), nr = num(w, w->nr), n = e->size[w->dim_n], all = e->size[w->dim_y];
    LLVMValueRef rows = e->tune[IR_TUNE_WINDOW_ROWS], pitch = e->stride[w->operand][w->dim_y], index[IR_KERNEL_MAX_DIMS] = {0};
    rows = em_select(e, em_icmp(e, LLVMIntSLT, rows, one), one, rows);
    LLVMValueRef blocks = LLVMBuildUDiv(e->b, em_sub(e, em_add(e, all, rows), one), rows, "");
    em_loop t = em_for(e, e->tile_begin, e->tile_end, one);
    line s = {.batch = LLVMBuildUDiv(e->b, t.i, blocks, "")};
    LLVMValueRef y0 = em_mul(e, LLVMBuildURem(e->b, t.i, blocks, ""), rows), count = least(w, rows, em_sub(e, all, y0));
    decode_batch(w, s.batch, index);
    s.weights = element(w, e->base[w->weights], offset_of(w, w->weights, index));
    index[w->dim_y] = y0;
    LLVMValueRef from = element(w, e->base[w->operand], offset_of(w, w->operand, index));
    /* Which way has fewer panels? */
    LLVMValueRef flat = em_add(e, em_mul(e, em_sub(e, count, one), pitch), n);
    LLVMValueRef few = LLVMBuildUDiv(e->b, em_add(e, flat, num(w, w->nr - 1)), nr, "");
    LLVMValueRef many = em_mul(e, count, LLVMBuildUDiv(e->b, em_add(e, n, num(w, w->nr - 1)), nr, ""));
    LLVMValueRef is_flat = LLVMConstInt(e->t_i1, 0, 0);
    if (w->step == 1)
        is_flat = em_and(e, em_icmp(e, LLVMIntSGE, pitch, n), em_icmp(e, LLVMIntSLT, few, many));
    LLVMValueRef lines = em_select(e, is_flat, one, count);
    s.length = em_select(e, is_flat, flat, n);
    s.pitch = em_select(e, is_flat, pitch, n);
    em_loop l = em_for(e, zero, lines, one);
    s.from = element(w, from, em_mul(e, l.i, pitch));
    s.y = em_add(e, y0, l.i);
    em_loop p = em_for(e, zero, s.length, nr);
    emit_panel(w, &s, p.i);
    em_end(e, &p);
    em_end(e, &l);
    em_end(e, &t);
}

fusor_status jit_emit_window(emit *e, fu_error *err) {
    window *w = FU_NEW(e->arena, window);
    w->e = e;
    w->k = e->k;
    w->dim_m = -1;
    for (int d = 0; d < w->k->n_dims; d++) {
        if (w->k->dim[d].role == 'b') w->n_batch++;
        if (w->k->dim[d].role == 'm') w->dim_m = d;
        w->n_k += w->k->dim[d].role == 'k';
    }
    w->dim_y = w->dim_m + 1;
    w->dim_n = w->dim_m + 2;
    for (int i = 0; i < w->k->n_insts; i++) {
        if (w->k->inst[i].op != IR_OP_MATMUL) continue;
        w->matmul = i;
        w->weights = w->k->inst[w->k->inst[i].in[0]].index;
        w->operand = w->k->inst[w->k->inst[i].in[1]].index;
    }
    w->acc = ir_kernel_contract_acc(w->k);
    w->bytes = ir_dtypes[w->acc].bytes;
    w->lanes = e->level->lanes;
    w->v_lanes = e->level->vector_bytes / w->bytes;
    w->mr = w->k->tile.mr;
    w->nr = w->k->tile.nr;
    w->kb = w->k->tile.kb;
    w->nv = w->nr / w->v_lanes;
    w->step = ir_kernel_window_step(w->k);
    if (w->n_k > MAX_K || w->nr % w->v_lanes || w->nv > 8 || w->mr > 16 || w->mr * w->nv > MAX_TILE)
        return FU_FAIL(err, FUSOR_ERROR_INTERNAL, "window kernel: tile %d x %d does not fit level %s", w->mr, w->nr, e->level->name);
    w->t_acc = em_scalar_type(e, w->acc);
    w->t_vec = LLVMVectorType(w->t_acc, (unsigned)w->v_lanes);
    set_values(w);
    emit_tile(w);
    emit_edge(w);
    emit_finish(w);
    emit_table(w);
    emit_tiles(w);
    em_demote(e);
    return FUSOR_OK;
}
