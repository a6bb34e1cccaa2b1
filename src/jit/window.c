/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* window.c: convolutions. A register tile is mr channels x nr columns; its products are of weights as they lie (rows of
 * K elements) and of columns of the operand: k is an offset from a table that each call makes first.
 *
 *   tile of work   rows y0 .. of one image, all channels
 *   lines          of columns: what is the least work (choose_way) of
 *                    each row, in place;
 *                    all rows at once, in place, where the operand's rows are little longer than the result's: some
 *                    columns between them belong to no result;
 *                    all rows at once, copied into panels (window_pack.c): where rows are short or elements apart, and
 *                    there are channels enough
 *                  A result of one row is cut: a tile of work is some of its columns
 *   panels         nr columns of a line. With masks the last one reads what there is. Else it begins earlier, so that
 *                  it is whole, and a line that is shorter than a panel is packed
 *   short sums     of one K block go from registers to the outputs; with masks, where what is behind them is one run,
 *                  all rows are one line of theirs, whose vectors go on from row to row (goes_on)
 *   segments       else: the columns of a panel that are of one row: the program behind the sums is evaluated on them
 *
 * With axes (pads, conversions, integers) the operand is the slab that window_slab.c makes for each tile of work.
 *
 * The order that an element is accumulated in depends on K, kb and the level alone, as in contract.c. */
#include "jit/window.h"
#include <string.h>

enum { MAX_K = 5, MEMORY_PRODUCTS = 16 };

LLVMValueRef window_round_up(window *w, LLVMValueRef bytes) {
    return em_and(w->e, em_add(w->e, bytes, num(w, 63)), num(w, -64));
}

LLVMValueRef window_all_weights(window *w, LLVMValueRef each) {
    for (int d = 0; d < w->n_batch; d++)
        if (w->k->buffer[w->weights].stride[d] != 0) each = em_mul(w->e, each, w->e->size[d]);
    return each;
}

LLVMValueRef window_weights_batch(window *w, LLVMValueRef *index) {
    emit *e = w->e;
    LLVMValueRef batch = num(w, 0);
    for (int d = 0; d < w->n_batch; d++)
        if (w->k->buffer[w->weights].stride[d] != 0) batch = em_add(e, em_mul(e, batch, e->size[d]), index[d]);
    return batch;
}

int window_result(const window *w) {
    for (int i = 0; i < w->k->n_insts; i++) {
        const ir_kinst *in = &w->k->inst[i];
        if (in->op != IR_K_STORE || (w->band_rows && in->index == w->band)) continue;
        const int64_t *stride = w->k->buffer[in->index].stride;
        if (stride[w->dim_m] != 0 && stride[w->dim_n] == 1) return in->index;
    }
    return -1;
}

static bool stores_last(const window *w) {
    bool any = false;
    if (!w->k->is_by_channel || w->band_rows || ir_kernel_is_transposed_window(w->k)) return false;
    for (int i = 0; i < w->k->n_insts; i++) {
        const ir_kinst *in = &w->k->inst[i];
        const int64_t *stride = w->k->buffer[in->index].stride;
        if (in->op != IR_K_STORE) continue;
        if (stride[w->dim_m] != 1 || stride[w->dim_n] == 1) return false;
        any = true;
    }
    return any;
}

static void set_values(window *w) {
    emit *e = w->e;
    w->result = -1;
    window_set_band(w);
    window_set_phases(w);
    w->columns = e->size[w->dim_n];
    if (w->cuts) { /* as ir_window_tile_columns has it */
        LLVMValueRef columns = e->tune[IR_TUNE_WINDOW_COLUMNS], n = w->columns;
        columns = em_select(e, em_icmp(e, LLVMIntSGT, columns, num(w, 0)), em_min(e, columns, n), n);
        w->columns = em_max(e, columns, num(w, 1));
    }
    w->places = w->folded = num(w, 1);
    for (int d = w->dim_n + 1; d < w->k->n_dims; d++)
        if (d != w->channels) w->places = em_mul(e, w->places, e->size[d]);
    w->taken = w->channels >= 0 ? e->size[w->channels] : num(w, 1);
    for (int i = 0; i < w->k->n_axes; i++) {
        const ir_kaxis *a = window_axis(w, i);
        if (window_is_folded(w, i) && a->place >= 0) w->folded = em_mul(e, w->folded, e->size[a->place]);
    }
    w->elements = w->kk = em_mul(e, w->has_pairs ? w->taken : window_channel_words(w), window_unfolded(w));
    if (w->has_pairs) w->kk = LLVMBuildLShr(e->b, em_add(e, w->kk, num(w, 1)), num(w, 1), "");
    w->sums_pitch = w->nr * w->turns;
    w->pitch = e->stride[w->operand][w->dim_y];
    if (w->is_tiled) {
        window_set_tiled(w);
        return;
    }
    const LLVMValueRef table_bytes =
        window_round_up(w, em_mul(e, em_add(e, w->kk, num(w, ir_window_ahead(w->k))), num(w, 8)));
    w->table = w->is_slab ? em_gep(e, e->scratch, e->t_i8, num(w, IR_SLAB_HEAD)) : e->scratch;
    w->panel_table = em_gep(e, w->table, e->t_i8, table_bytes);
    w->tile = em_gep(e, w->panel_table, e->t_i8, table_bytes);
    w->panel = element(w, w->tile, num(w, window_tile_elements(w) * (w->turns > 1 ? 2 * w->turns : 1)));
    w->weight_base = e->base[w->weights];
    w->weight_pitch = e->stride[w->weights][w->dim_m];
    if (w->k->is_by_channel) {
        window_set_channels(w, em_gep(e, w->table, e->t_i8, table_bytes));
        return;
    }
    if (!w->is_slab) return;
    w->slab = em_gep(e, w->panel, e->t_i8, window_round_up(w, em_mul(e, w->kk, num(w, (int64_t)w->nr * w->bytes))));
    if (!w->packs) return;
    LLVMValueRef made = window_all_weights(w, e->size[w->dim_m]);
    w->weight_base = e->shared;
    w->weight_pitch = w->kk;
    w->first_sums =
        em_gep(e, e->shared, e->t_i8, window_round_up(w, em_mul(e, em_mul(e, made, w->kk), num(w, w->bytes))));
}

/* ---- functions beside the kernel's ---- */
window_outer *window_begin(window *w, window_function f, const char *name, LLVMTypeRef *parameter, unsigned n) {
    emit *e = w->e;
    w->function_type[f] = LLVMFunctionType(e->t_void, parameter, n, 0);
    /* Weights are arranged, lines cut into tiles and blocks turned as quickly by code that takes two thirds of the time
     * to compile; slabs 1 to 2 % of a convolution more slowly. */
    const bool is_optimized = f != WEIGHTS && f != LINE && f != TURN && f != PADS;
    w->function[f] = em_function(e, name, w->function_type[f], is_optimized);
    LLVMSetLinkage(w->function[f], LLVMInternalLinkage);
    window_outer *o = FU_NEW(e->arena, window_outer);
    *o = (window_outer){*e, *w, LLVMGetInsertBlock(e->b)};
    e->fn = w->function[f];
    LLVMPositionBuilderAtEnd(e->b, em_block(e, "entry"));
    if (f == TILE || f == MASKED || f == NARROW || f == LAST || f == TURN) return o;
    em_load_args(e, LLVMGetParam(e->fn, 0));
    set_values(w);
    if (w->is_slab && f != SLAB && f != WEIGHTS)
        w->pitch = LLVMBuildLoad2(e->b, e->t_i64, e->scratch, ""); /* put there with the table */
    return o;
}

void window_end(window *w, const window_outer *o) {
    emit *e = w->e;
    LLVMBuildRetVoid(e->b);
    LLVMPositionBuilderAtEnd(e->b, o->block);
    *e = o->e;
    *w = o->w;
}

void window_call(window *w, window_function f, LLVMValueRef *in, unsigned n) {
    LLVMBuildCall2(w->e->b, w->function_type[f], w->function[f], in, n, "");
}

/* ---- the program behind the sums ---- */
LLVMValueRef window_step_of(window *w, int buffer, int axis) {
    if (axis < 0) return num(w, 0);
    const int64_t s = w->k->buffer[buffer].stride[axis];
    return s == 0 || s == 1 ? num(w, s) : w->e->stride[buffer][axis];
}

LLVMValueRef window_load(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    window_point *at = user;
    if (inst->op == IR_K_LOAD)
        return em_load_value(e, v, inst, at->axis, at->off[inst->index], window_step_of(at->w, inst->index, at->axis),
                             at->mask);
    LLVMValueRef x = em_splat(e, at->index[inst->index]), lane[64];
    if (inst->index != at->axis || e->lanes == 1) return x;
    for (int i = 0; i < e->lanes; i++) lane[i] = num(at->w, i);
    return em_add(e, x, LLVMConstVector(lane, (unsigned)e->lanes));
}

LLVMValueRef window_decode(window *w, LLVMValueRef number, uint32_t dims, LLVMValueRef *index) {
    emit *e = w->e;
    for (int d = w->n_batch - 1; d >= 0; d--) {
        if (!(dims >> d & 1)) continue;
        index[d] = LLVMBuildURem(e->b, number, e->size[d], "");
        number = LLVMBuildUDiv(e->b, number, e->size[d], "");
    }
    return number;
}

LLVMValueRef window_offset_of(window *w, int buffer, LLVMValueRef *index) {
    emit *e = w->e;
    LLVMValueRef off = num(w, 0);
    for (int d = 0; d <= w->dim_n; d++)
        if (w->k->buffer[buffer].stride[d] != 0 && index[d])
            off = em_add(e, off, em_mul(e, index[d], e->stride[buffer][d]));
    return off;
}

LLVMValueRef window_told(window *w, LLVMValueRef block, int i) {
    return LLVMBuildLoad2(w->e->b, w->e->t_i64, em_gep(w->e, block, w->e->t_i64, num(w, i)), "");
}

/* A block is the offsets of all buffers, the indices before m and that of the row, and, where rows are cut, the column
 * of the result that columns of the tile count from; offsets are of that. */
static int column_in_block(const window *w) { return w->k->n_buffers + w->n_batch + 1; }

LLVMValueRef window_told_column(window *w, LLVMValueRef block) {
    return w->cuts ? window_told(w, block, column_in_block(w)) : num(w, 0);
}

LLVMValueRef window_new_block(window *w) {
    return em_alloca(w->e, LLVMArrayType(w->e->t_i64, (unsigned)column_in_block(w) + 1), 8);
}

void window_read_block(window *w, LLVMValueRef block, LLVMValueRef *off, LLVMValueRef *index) {
    for (int b = 0; b < w->k->n_buffers; b++) off[b] = window_told(w, block, b);
    for (int d = 0; d < w->n_batch; d++) index[d] = window_told(w, block, w->k->n_buffers + d);
    index[w->dim_y] = window_told(w, block, w->k->n_buffers + w->n_batch);
}

/* Offsets of what is not an operand, moved by i along dim d. */
void window_move_offsets(window *w, const LLVMValueRef *off, LLVMValueRef i, int d, LLVMValueRef *to) {
    for (int b = 0; b < w->k->n_buffers; b++) {
        const bool varies = b != w->weights && b != w->operand && w->k->buffer[b].stride[d] != 0;
        to[b] = varies ? em_add(w->e, off[b], em_mul(w->e, i, window_step_of(w, b, d))) : off[b];
    }
}

/* Results that lie along dim `dim`, columns of a row or channels: offsets of buffers and indices at the first of them,
 * whose index along dim is `first`; their sums. */
typedef struct finish_line {
    const LLVMValueRef *off;
    LLVMValueRef *index, first, sums;
    int dim;
    LLVMValueRef same[IR_KERNEL_MAX_INSTS]; /* loads of one element for all of them, in w->lanes lanes; else NULL */
} finish_line;

static window_point point_of(window *w, const finish_line *f, const LLVMValueRef *off, LLVMValueRef mask) {
    return (window_point){w, (LLVMValueRef *)off, f->index, w->e->lanes > 1 ? f->dim : -1, mask};
}

/* Loaded once for a row: what is stored there might lie anywhere, for all that LLVM knows. */
static void load_same(window *w, finish_line *f) {
    emit *e = w->e;
    e->lanes = w->lanes;
    window_point at = point_of(w, f, f->off, NULL);
    em_values v;
    em_values_init(&v, window_load, &at);
    for (int i = 0; i < w->k->n_insts; i++) {
        const ir_kinst *in = &w->k->inst[i];
        const bool is_operand = in->op == IR_K_LOAD && (in->index == w->weights || in->index == w->operand);
        if (in->op != IR_K_LOAD || is_operand || in->variant || w->k->buffer[in->index].stride[f->dim] != 0) continue;
        f->same[i] = em_value(e, &v, i);
    }
}

/* Evaluates and stores those from place `column` on, e->lanes of them. */
static void finish_at(window *w, const finish_line *f, LLVMValueRef column, LLVMValueRef mask) {
    emit *e = w->e;
    LLVMValueRef off[IR_KERNEL_MAX_BUFFERS], before = f->index[f->dim];
    window_move_offsets(w, f->off, column, f->dim, off);
    f->index[f->dim] = em_add(e, f->first, column);
    window_point at = point_of(w, f, off, mask);
    em_values v;
    em_values_init(&v, window_load, &at);
    for (int i = 0; i < w->k->n_insts && e->lanes == w->lanes; i++) v.at[i] = f->same[i];
    const LLVMValueRef sums = em_load_ptr(e, w->acc, element(w, f->sums, column), NULL, (unsigned)w->bytes);
    v.at[w->matmul] = em_or_zero(e, sums, mask);
    for (int i = 0; i < w->k->n_insts; i++) {
        const ir_kinst *in = &w->k->inst[i];
        if (in->op != IR_K_STORE) continue;
        LLVMValueRef value = em_value(e, &v, in->in[0]);
        em_store(e, in->index, value, off[in->index], window_step_of(w, in->index, at.axis), mask);
    }
    f->index[f->dim] = before;
}

/* Those from `begin` to `end`, `lanes` at a time, none from behind `last` on (NULL: steps are whole). */
static void finish_vectors(window *w, const finish_line *f, LLVMValueRef begin, LLVMValueRef end, int lanes,
                           LLVMValueRef last) {
    emit *e = w->e;
    e->lanes = lanes;
    em_loop l = em_for(e, begin, end, num(w, lanes));
    finish_at(w, f, last ? em_min(e, l.i, last) : l.i, NULL);
    em_end(e, &l);
}

/* May what is stored along dim d be made twice? Not where the plan may have put it over what is read for it: that takes
 * by channel for written once (makes_twice of ir/plan_memory.c). */
static bool may_overlap(const window *w, int d) {
    if (!w->k->is_by_channel) return true;
    for (int b = 0; b < w->k->n_buffers; b++) {
        const bool is_read = b != w->weights && b != w->operand && !w->k->buffer[b].is_output;
        if (is_read && w->k->buffer[b].stride[d] != 0) return false;
    }
    return true;
}

/* Without masks, `count` of them: where they may overlap, by vectors of which the last ends with the last one, fewer by
 * vectors of half as many lanes; what is left one by one. */
static void finish_without_masks(window *w, const finish_line *f, LLVMValueRef count) {
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), whole = em_and(e, count, num(w, -w->lanes));
    if (!may_overlap(w, f->dim)) {
        finish_vectors(w, f, zero, whole, w->lanes, NULL);
        finish_vectors(w, f, whole, count, 1, NULL);
        return;
    }
    em_branch fits[2];
    for (int i = 0; i < 2; i++) {
        const int lanes = w->lanes >> i;
        LLVMValueRef last = em_sub(e, count, num(w, lanes));
        fits[i] = em_if(e, em_icmp(e, LLVMIntSGE, last, zero));
        finish_vectors(w, f, zero, count, lanes, last);
        em_else(e, &fits[i]);
    }
    finish_vectors(w, f, zero, count, 1, NULL);
    for (int i = 1; i >= 0; i--) em_endif(e, &fits[i]);
}

/* (args, sums, block, m0, row, n0, columns, rows): what becomes of rows of sums, sums_pitch elements apart; or, where
 * channels are stored last, of columns of them, sums_apart from one to the next. */
static void window_emit_finish(window *w) {
    emit *e = w->e;
    LLVMTypeRef parameter[8] = {e->t_ptr, e->t_ptr, e->t_ptr, e->t_i64, e->t_i64, e->t_i64, e->t_i64, e->t_i64};
    window_outer *o = window_begin(w, FINISH, "finish", parameter, 8);
    LLVMValueRef in[8], index[IR_KERNEL_MAX_DIMS] = {0}, off[IR_KERNEL_MAX_BUFFERS], zero = num(w, 0);
    LLVMGetParams(e->fn, in);
    window_read_block(w, in[2], off, index);
    index[w->dim_y] = em_add(e, index[w->dim_y], in[4]);
    index[w->dim_m] = in[3];
    LLVMValueRef n0 = em_add(e, window_told_column(w, in[2]), in[5]);
    for (int d = w->dim_m; d <= w->dim_n; d++)
        window_move_offsets(w, off, d == w->dim_m ? in[3] : d == w->dim_y ? in[4] : in[5], d, off);
    const bool last = w->stores_last;
    const int outer = last ? w->dim_n : w->dim_m, inner = last ? w->dim_m : w->dim_n;
    LLVMValueRef base[2] = {in[3], n0}, count = last ? in[7] : in[6],
                 apart = num(w, last ? window_finish_apart(w) : w->sums_pitch), row_off[IR_KERNEL_MAX_BUFFERS];
    em_loop lr = em_for(e, zero, last ? in[6] : in[7], num(w, 1));
    window_move_offsets(w, off, lr.i, outer, row_off);
    index[outer] = em_add(e, base[last], lr.i);
    finish_line f = {row_off, index, base[!last], element(w, in[1], em_mul(e, lr.i, apart)), inner, {0}};
    load_same(w, &f);
    if (e->level->has_mask) {
        LLVMValueRef whole = em_and(e, count, num(w, -w->lanes));
        finish_vectors(w, &f, zero, whole, w->lanes, NULL);
        em_branch b = em_if(e, em_icmp(e, LLVMIntSLT, whole, count));
        finish_at(w, &f, whole, em_mask(e, em_sub(e, count, whole)));
        em_endif(e, &b);
    } else finish_without_masks(w, &f, count);
    em_end(e, &lr);
    window_end(w, o);
}

/* ---- the kernel ---- */
void window_emit_table(window *w, const window_slab *slab) {
    emit *e = w->e;
    if (w->is_transposed) {
        window_emit_phase_table(w, slab);
        if (ir_window_ahead(w->k)) window_extend_table(w);
        return;
    }
    if (w->has_pairs) {
        window_emit_pair_table(w, slab);
        if (ir_window_ahead(w->k)) window_extend_table(w);
        return;
    }
    em_loop l[MAX_K];
    LLVMValueRef at = num(w, 0), place = num(w, 0), channel = num(w, 0), of_axis[IR_KERNEL_MAX_AXES] = {0};
    for (int i = 0; i < w->n_k; i++) {
        const int d = w->dim_n + 1 + i;
        LLVMValueRef count = d == w->channels ? window_channel_words(w) : e->size[d];
        l[i] = em_for(e, num(w, 0), count, num(w, 1));
        if (d == w->channels) channel = l[i].i;
        for (int a = 0; a < w->k->n_axes; a++)
            if (w->k->axis[a].place == d) of_axis[a] = l[i].i;
        if (!slab) at = em_add(e, at, em_mul(e, l[i].i, em_mul(e, e->stride[w->operand][d], num(w, w->bytes))));
        place = em_add(e, em_mul(e, place, count), l[i].i);
    }
    if (slab) at = window_slab_place(w, slab, channel, of_axis);
    LLVMBuildStore(e->b, at, em_gep(e, w->table, e->t_i64, place));
    if (!w->k->is_by_channel)
        LLVMBuildStore(e->b, em_mul(e, place, num(w, (int64_t)w->nr * w->bytes)),
                       em_gep(e, w->panel_table, e->t_i64, place));
    for (int i = w->n_k - 1; i >= 0; i--) em_end(e, &l[i]);
    if (ir_window_ahead(w->k)) window_extend_table(w);
}

void window_emit_segments(window *w, const window_line *s, LLVMValueRef begin, LLVMValueRef end, LLVMValueRef m0,
                          LLVMValueRef phase) {
    emit *e = w->e;
    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b), head = em_block(e, "segment"), body = em_block(e, "columns"),
                      done = em_block(e, "panel");
    LLVMBuildBr(e->b, head);
    LLVMPositionBuilderAtEnd(e->b, head);
    LLVMValueRef at = LLVMBuildPhi(e->b, e->t_i64, "");
    LLVMAddIncoming(at, &begin, &before, 1);
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSLT, at, end), body, done);
    LLVMPositionBuilderAtEnd(e->b, body);
    LLVMValueRef row = LLVMBuildUDiv(e->b, at, s->pitch, ""), column = em_sub(e, at, em_mul(e, row, s->pitch));
    LLVMValueRef columns = em_min(e, em_sub(e, s->row, column), em_sub(e, end, at)), turns = num(w, w->turns),
                 to_row = row, to_column = column;
    LLVMValueRef is_there = em_icmp(e, LLVMIntSGT, columns, num(w, 0));
    if (phase) { /* the result's: the last phases may have one row or column less */
        LLVMValueRef each = num(w, w->phases[1]->n);
        to_row = em_add(e, em_mul(e, row, each), phase);
        to_column = em_mul(e, column, turns);
        LLVMValueRef made = w->made[0];
        if (s->x) made = em_sub(e, made, em_mul(e, s->x, turns));
        columns = em_min(e, em_mul(e, columns, turns), em_sub(e, made, to_column));
        is_there = em_and(e, is_there, em_icmp(e, LLVMIntSLT, em_add(e, em_mul(e, s->top, each), to_row), w->made[1]));
    }
    em_branch b = em_if(e, is_there);
    LLVMValueRef sums = element(w, s->sums, em_mul(e, em_sub(e, at, begin), num(w, window_finish_apart(w))));
    window_call(w, FINISH, (LLVMValueRef[]){e->args, sums, s->block, m0, to_row, to_column, columns, s->rows}, 8);
    em_endif(e, &b);
    LLVMValueRef next = em_add(e, at, em_sub(e, s->pitch, column));
    LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b);
    LLVMAddIncoming(at, &next, &from, 1);
    LLVMBuildBr(e->b, head);
    LLVMPositionBuilderAtEnd(e->b, done);
}

/* A panel that may be shorter than it could be. */
static void emit_some_columns(window *w, LLVMValueRef in[9]) {
    emit *e = w->e;
    LLVMValueRef columns = in[7], source = in[2], tile = in[5], vl = num(w, w->v_lanes);
    em_branch whole = em_if(e, em_icmp(e, LLVMIntEQ, columns, num(w, w->nr)));
    window_call(w, TILE, in, 9);
    em_else(e, &whole);
    em_branch most = em_if(e, em_icmp(e, LLVMIntSGT, columns, num(w, (w->nv - 1) * w->v_lanes)));
    window_call(w, MASKED, in, 9);
    em_else(e, &most);
    if (w->nv > 1) {
        em_loop l = em_for(e, num(w, 0), columns, vl);
        in[2] = element(w, source, l.i);
        in[5] = element(w, tile, l.i);
        in[7] = em_min(e, vl, em_sub(e, columns, l.i));
        window_call(w, NARROW, in, 9);
        em_end(e, &l);
    }
    em_endif(e, &most);
    em_endif(e, &whole);
}

/* The columns begin .. end - 1 of a line, all channels. Fewer of them than a tile has, which is possible where their
 * number has a name, are done one by one: all rows of the tile are the same one then. */
static void emit_panel(window *w, const window_line *s, LLVMValueRef begin, LLVMValueRef end, LLVMValueRef source,
                       LLVMValueRef table) {
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), one = num(w, 1), m = e->size[w->dim_m], mr = num(w, w->mr),
                 columns = em_sub(e, end, begin);
    em_loop lm = em_for(e, s->m_begin, s->m_end, s->rows);
    LLVMValueRef m0 = em_min(e, lm.i, em_sub(e, m, s->rows)),
                 row = em_select(e, em_icmp(e, LLVMIntSLT, m, mr), zero, w->weight_pitch);
    LLVMValueRef weights = element(w, s->weights, em_mul(e, m0, w->weight_pitch));
    em_loop ly = {0}, lx = {0};
    LLVMValueRef phase[3] = {zero, zero, s->phase}, k_begin = zero, k_end = w->kk, tile = w->tile;
    if (w->is_transposed) {
        ly = em_for(e, zero, num(w, w->phases[1]->n), one);
        lx = em_for(e, zero, num(w, w->turns), one);
        phase[1] = ly.i;
        phase[0] = lx.i;
        window_phase_range(w, phase, &k_begin, &k_end);
        tile = element(w, tile, em_mul(e, lx.i, num(w, window_tile_elements(w))));
    }
    em_loop lk = em_for(e, k_begin, em_max(e, k_end, em_add(e, k_begin, one)), num(w, w->kb)); /* none: sums are 0 */
    LLVMValueRef in[9] = {element(w, weights, lk.i),
                          row,
                          source,
                          em_gep(e, table, e->t_i64, lk.i),
                          em_min(e, em_sub(e, k_end, lk.i), num(w, w->kb)),
                          tile,
                          em_sub(e, lk.i, k_begin),
                          columns,
                          w->adds ? element(w, s->first_sums, m0) : w->tile};
    if (w->has_pairs) {
        in[4] = em_min(e, em_sub(e, w->elements, em_mul(e, lk.i, num(w, 2))), num(w, w->k->tile.kb));
        in[8] = window_tell_slow(w, window_is_slow(w, element(w, s->first_sums, m0), mr, 1));
    }
    if (e->level->has_mask) emit_some_columns(w, in);
    else window_call(w, TILE, in, 9);
    em_end(e, &lk);
    if (w->is_transposed) {
        em_end(e, &lx);
        if (w->turns > 1) window_call(w, TURN, (LLVMValueRef[]){w->tile, s->sums}, 2);
    }
    window_emit_segments(w, s, begin, end, m0, w->is_transposed ? phase[1] : NULL);
    if (w->is_transposed) em_end(e, &ly);
    em_end(e, &lm);
}

static void emit_line(window *w, const window_line *s) {
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), nr = num(w, w->nr), is_packed = s->is_packed;
    em_loop p = em_for(e, zero, s->length, nr);
    LLVMValueRef begin = p.i;
    if (!e->level->has_mask) {
        LLVMValueRef is_short = em_icmp(e, LLVMIntSLT, s->length, nr);
        begin = em_select(e, is_short, zero, em_min(e, begin, em_sub(e, s->length, nr)));
        is_packed = LLVMBuildOr(e->b, is_packed, is_short, "");
    }
    LLVMValueRef end = em_min(e, em_add(e, begin, nr), s->length);
    em_branch b = em_if(e, is_packed);
    window_call(w, PANEL, (LLVMValueRef[]){e->args, s->from, begin, em_sub(e, end, begin)}, 4);
    em_endif(e, &b);
    LLVMValueRef source = em_select(e, is_packed, w->panel, element(w, s->from, begin));
    emit_panel(w, s, begin, end, source, em_select(e, is_packed, w->panel_table, w->table));
    em_end(e, &p);
}

LLVMValueRef window_is_one_run(window *w) {
    emit *e = w->e;
    LLVMValueRef n = e->size[w->dim_n], is = LLVMConstInt(e->t_i1, 1, 0);
    for (int i = 0; i < w->k->n_insts; i++)
        if (w->k->inst[i].op == IR_K_INDEX) return NULL;
    for (int b = 0; b < w->k->n_buffers; b++) {
        const int64_t *stride = w->k->buffer[b].stride;
        if (b == w->weights || b == w->operand || (!stride[w->dim_y] && !stride[w->dim_n])) continue;
        LLVMValueRef apart = em_mul(e, n, window_step_of(w, b, w->dim_n));
        is = em_and(e, is, em_icmp(e, LLVMIntEQ, window_step_of(w, b, w->dim_y), apart));
    }
    return is;
}

/* Does a line go on from row to row? Where vectors are no longer than rows. */
static LLVMValueRef goes_on(window *w) {
    LLVMValueRef is = w->step == 1 && w->e->level->has_mask ? window_is_one_run(w) : NULL;
    return is ? em_and(w->e, is, em_icmp(w->e, LLVMIntSGE, w->e->size[w->dim_n], num(w, w->v_lanes))) : NULL;
}

/* Of n columns those that are made in panels of all vectors; n, where the rest needs as many. */
static LLVMValueRef wide_columns(window *w, LLVMValueRef n) {
    emit *e = w->e;
    if (!w->function[NARROW_ROW]) return n;
    LLVMValueRef nr = num(w, w->nr), left = LLVMBuildURem(e->b, n, nr, ""), wide = em_sub(e, n, left);
    wide = em_select(e, em_icmp(e, LLVMIntSGT, left, num(w, (w->nv - 1) * w->v_lanes)), n, wide);
    if (e->level->has_mask) return wide;
    return em_select(e, em_icmp(e, LLVMIntSLT, n, nr), num(w, 0), wide);
}

/* Lines, by the functions that go from registers to the outputs. */
static void emit_short_sums(window *w, const window_line *s) {
    emit *e = w->e;
    LLVMValueRef n = s->length, wide = wide_columns(w, n), first = w->adds ? s->first_sums : w->tile, zero = num(w, 0);
    window_call(w, ROW, (LLVMValueRef[]){e->args, s->block, s->weights, s->from, zero, wide, n, first}, 8);
    if (w->function[NARROW_ROW])
        window_call(w, NARROW_ROW, (LLVMValueRef[]){e->args, s->block, s->weights, s->from, wide, n, n, first}, 8);
}

void window_write_block(window *w, LLVMValueRef block, LLVMValueRef *index) {
    emit *e = w->e;
    LLVMValueRef y = index[w->dim_y], x = index[w->dim_n];
    if (w->is_transposed) { /* the result's */
        index[w->dim_y] = em_mul(e, y, num(w, w->phases[1]->n));
        if (w->cuts) index[w->dim_n] = em_mul(e, x, num(w, w->turns));
    }
    for (int b = 0; b < w->k->n_buffers; b++) {
        LLVMValueRef off = window_offset_of(w, b, index);
        if (w->band_rows && b == w->band) off = window_band_offset(w, off);
        LLVMBuildStore(e->b, off, em_gep(e, block, e->t_i64, num(w, b)));
    }
    for (int d = 0; d <= w->n_batch; d++)
        LLVMBuildStore(e->b, index[d < w->n_batch ? d : w->dim_y],
                       em_gep(e, block, e->t_i64, num(w, w->k->n_buffers + d)));
    if (w->cuts) LLVMBuildStore(e->b, index[w->dim_n], em_gep(e, block, e->t_i64, num(w, column_in_block(w))));
    index[w->dim_y] = y;
    index[w->dim_n] = x;
}

LLVMValueRef window_parts(window *w, LLVMValueRef rows) {
    if (w->cuts) return window_divide_up(w, w->e->size[w->dim_n], w->columns);
    return window_divide_up(w, window_rows_made(w), rows);
}

window_part window_part_of(window *w, LLVMValueRef number, LLVMValueRef rows) {
    emit *e = w->e;
    LLVMValueRef n = e->size[w->dim_n];
    if (w->cuts) {
        LLVMValueRef x = em_mul(e, number, w->columns);
        return (window_part){num(w, 0), num(w, 1), x, em_min(e, w->columns, em_sub(e, n, x))};
    }
    LLVMValueRef y = em_mul(e, number, rows);
    return (window_part){y, em_min(e, rows, em_sub(e, window_rows_made(w), y)), NULL, n};
}

void window_make_slab(window *w, LLVMValueRef *index, LLVMValueRef z, const window_part *part, LLVMValueRef rows) {
    const int outer = w->k->n_axes > 2 ? w->k->axis[0].dim : -1;
    LLVMValueRef before = outer < 0 ? NULL : index[outer];
    if (outer >= 0) index[outer] = num(w, 0);
    LLVMValueRef first = window_offset_of(w, w->operand, index);
    if (outer >= 0) index[outer] = before;
    window_call(w, SLAB, (LLVMValueRef[]){w->e->args, first, z, part->y, rows, part->rows, part->x}, w->cuts ? 7 : 6);
}

LLVMValueRef window_outer_index(window *w, const LLVMValueRef *index) {
    const int outer = w->k->n_axes > 2 ? w->k->axis[0].dim : -1;
    return outer < 0 ? num(w, 0) : index[outer];
}

/* How the columns of `count` rows are taken: i1s, one of which is set, or none: each row is a line of columns as they
 * lie. */
typedef struct way {
    LLVMValueRef is_row;    /* the functions that go from registers to the outputs */
    LLVMValueRef goes_on;   /* all rows are one line of theirs; NULL: never */
    LLVMValueRef is_flat;   /* one line, with the elements between the rows */
    LLVMValueRef is_packed; /* one line, without them, in panels */
    LLVMValueRef flat;      /* columns of that line */
} way;

static LLVMValueRef vectors(window *w, LLVMValueRef columns) {
    return LLVMBuildUDiv(w->e->b, em_add(w->e, columns, num(w, w->v_lanes - 1)), num(w, w->v_lanes), "");
}

/* A row by those functions, without masks: panels of one vector have too few sums for products that do not wait for
 * each other. */
static LLVMValueRef row_vectors(window *w, LLVMValueRef n) {
    enum { SUMS = 8 };
    emit *e = w->e;
    const int each = w->mr < SUMS ? (SUMS + w->mr - 1) / w->mr : 1;
    LLVMValueRef wide = wide_columns(w, n), panels = window_divide_up(w, wide, num(w, w->nr));
    return em_add(e, em_mul(e, panels, num(w, w->nv)), em_mul(e, vectors(w, em_sub(e, n, wide)), num(w, each)));
}

static void take_if_less(window *w, LLVMValueRef work, LLVMValueRef may, LLVMValueRef *is, LLVMValueRef *least_work) {
    *is = em_and(w->e, may, em_icmp(w->e, LLVMIntSLT, work, *least_work));
    *least_work = em_select(w->e, *is, work, *least_work);
}

/* What products of a vector take more where lines go on from row to row: a panel with a vector of two rows loads all of
 * them under two masks. Row ends are inside vectors as far as n has no factors of the lanes'. (EPYC 9005, 3x3, 48
 * channels to 12 and 24, goes_on over flat: 75 columns 1.16, 100 1.07, 150 1.07, 28 1.06; 24 channels 1.06, 1.02, 1.02,
 * 1.01.) */
static LLVMValueRef seams(window *w, LLVMValueRef is) {
    enum { PART = 4 };
    emit *e = w->e;
    if (!is || w->few) return num(w, 0);
    LLVMValueRef n = em_max(e, e->size[w->dim_n], num(w, 1)), lanes = num(w, w->v_lanes),
                 factor = em_min(e, em_and(e, n, em_sub(e, num(w, 0), n)), lanes),
                 met = em_mul(e, em_min(e, n, num(w, w->nr)), em_sub(e, lanes, factor));
    LLVMValueRef more = LLVMBuildUDiv(e->b, em_mul(e, w->kk, met), em_mul(e, n, num(w, PART * w->v_lanes)), "");
    return em_select(e, is, more, num(w, 0));
}

/* For `count` rows of n columns: the one with the least work, in products of vectors for each channel; the way through
 * memory counts as some. Two products are a cycle. */
static way choose_way(window *w, LLVMValueRef count, LLVMValueRef n, LLVMValueRef first_sums) {
    emit *e = w->e;
    LLVMValueRef pitch = w->pitch, no = LLVMConstInt(e->t_i1, 0, 0), yes = LLVMConstInt(e->t_i1, 1, 0),
                 through = num(w, MEMORY_PRODUCTS);
    way how = {no, NULL, no, no, em_add(e, em_mul(e, em_sub(e, count, num(w, 1)), pitch), n)};
    LLVMValueRef by_rows = em_mul(e, count, vectors(w, n)), short_vectors = by_rows, work = num(w, INT64_MAX),
                 is_short = em_icmp(e, LLVMIntSLE, w->kk, num(w, w->kb));
    if (w->step == 1) work = em_mul(e, by_rows, em_add(e, w->kk, through));
    how.goes_on = w->has_rows && !w->cuts ? goes_on(w) : NULL;
    if (how.goes_on) short_vectors = em_select(e, how.goes_on, vectors(w, em_mul(e, count, n)), by_rows);
    if (w->few) is_short = em_icmp(e, LLVMIntEQ, w->weight_pitch, w->kk);
    is_short = em_and(e, is_short, em_icmp(e, LLVMIntSGE, e->size[w->dim_m], num(w, w->mr)));
    if (!e->level->has_mask) {
        LLVMValueRef fewest = num(w, w->function[NARROW_ROW] ? w->v_lanes : w->nr);
        short_vectors = em_mul(e, count, row_vectors(w, n));
        is_short = em_and(e, is_short, em_icmp(e, LLVMIntSGE, n, fewest));
    }
    if (w->has_rows && w->has_pairs) /* there are no such functions by fma */
        is_short = em_and(e, is_short, LLVMBuildNot(e->b, window_is_slow(w, first_sums, e->size[w->dim_m], 1), ""));
    LLVMValueRef by_row = em_mul(e, short_vectors, em_add(e, w->kk, seams(w, how.goes_on)));
    if (w->has_rows) take_if_less(w, by_row, is_short, &how.is_row, &work);
    if (w->step == 1) {
        LLVMValueRef flat = em_mul(e, vectors(w, how.flat), em_add(e, w->kk, through));
        LLVMValueRef may = em_icmp(e, LLVMIntSGE, pitch, n);
        if (!e->level->has_mask) /* a shorter line is packed, and that leaves out what lies between rows */
            may = em_and(e, may, em_icmp(e, LLVMIntSGE, how.flat, num(w, w->nr)));
        take_if_less(w, flat, may, &how.is_flat, &work);
    }
    LLVMValueRef m = e->size[w->dim_m], at_least_one = em_max(e, m, num(w, 1));
    LLVMValueRef pack = LLVMBuildUDiv(e->b, em_mul(e, w->kk, num(w, 2 * ir_window_pack_cycles(w->k->level, w->step))),
                                      at_least_one, "");
    LLVMValueRef packed = em_mul(e, vectors(w, em_mul(e, count, n)), em_add(e, em_add(e, w->kk, through), pack));
    take_if_less(w, packed, yes, &how.is_packed, &work);
    how.is_flat = em_and(e, how.is_flat, em_xor(e, how.is_packed, yes));
    how.is_row = em_and(e, how.is_row, em_xor(e, LLVMBuildOr(e->b, how.is_flat, how.is_packed, ""), yes));
    return how;
}

/* Line i of a tile of work that begins at row y0, whose first one is at `from`. */
static void begin_line(window *w, window_line *s, LLVMValueRef from, LLVMValueRef y0, LLVMValueRef i,
                       LLVMValueRef *index) {
    s->from = element(w, from, em_mul(w->e, i, w->pitch));
    index[w->dim_y] = s->top = em_add(w->e, y0, i);
    window_write_block(w, s->block, index);
}

static void emit_tiles(window *w, LLVMValueRef rows) {
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), one = num(w, 1), pitch = w->pitch, index[IR_KERNEL_MAX_DIMS] = {0},
                 parts = window_parts(w, rows);
    em_loop t = em_for(e, e->tile_begin, e->tile_end, one);
    window_line s = {.sums = w->turns > 1 ? element(w, w->tile, num(w, w->turns * window_tile_elements(w))) : w->tile,
                     .phase = zero,
                     .rows = em_select(e, em_icmp(e, LLVMIntSLT, e->size[w->dim_m], num(w, w->mr)), one, num(w, w->mr)),
                     .block = window_new_block(w)};
    const window_part part = window_part_of(w, LLVMBuildURem(e->b, t.i, parts, ""), rows);
    const LLVMValueRef y0 = part.y, count = part.rows, n = part.columns;
    w->tile_row = y0;
    w->tile_channel = zero;
    s.x = part.x;
    window_decode(w, LLVMBuildUDiv(e->b, t.i, parts, ""), window_batch_dims(w), index);
    if (w->packs) {
        LLVMValueRef row = em_mul(e, window_weights_batch(w, index), e->size[w->dim_m]);
        s.weights = element(w, w->weight_base, em_mul(e, row, w->weight_pitch));
        s.first_sums = element(w, w->first_sums, row);
    } else s.weights = element(w, e->base[w->weights], window_offset_of(w, w->weights, index));
    LLVMValueRef from = w->slab;
    if (w->is_slab) {
        const LLVMValueRef z = window_outer_phase(w, window_outer_index(w, index), &s.phase);
        window_make_slab(w, index, z, &part, rows);
        index[w->dim_y] = y0;
        index[w->dim_n] = part.x;
    } else {
        index[w->dim_y] = y0;
        index[w->dim_n] = part.x;
        from = element(w, e->base[w->operand], window_offset_of(w, w->operand, index));
    }
    const way how = choose_way(w, count, n, s.first_sums);
    em_branch b = {0};
    s.length = n;
    if (w->has_rows) {
        b = em_if(e, how.is_row);
        LLVMValueRef short_lines = count;
        if (how.goes_on) {
            short_lines = em_select(e, how.goes_on, one, count);
            s.length = em_select(e, how.goes_on, em_mul(e, count, n), n);
        }
        em_loop l = em_for(e, zero, short_lines, one);
        begin_line(w, &s, from, y0, l.i, index);
        emit_short_sums(w, &s);
        em_end(e, &l);
        window_end_tile(w, s.block, e->size[w->dim_m], count);
        em_else(e, &b);
    }
    LLVMValueRef lines = em_select(e, LLVMBuildOr(e->b, how.is_flat, how.is_packed, ""), one, count);
    s.is_packed = how.is_packed;
    s.length = em_select(e, how.is_packed, em_mul(e, count, n), em_select(e, how.is_flat, how.flat, n));
    s.pitch = em_select(e, how.is_flat, pitch, n);
    s.row = n;
    LLVMValueRef m = e->size[w->dim_m], channels = e->tune[IR_TUNE_WINDOW_CHANNELS], mr = num(w, w->mr);
    channels = em_max(e, channels, mr);
    em_loop lm = em_for(e, zero, m, channels);
    s.m_begin = lm.i;
    w->tile_channel = em_min(e, lm.i, em_sub(e, m, s.rows)); /* the last tile of channels begins where it is whole */
    s.m_end = em_min(e, m, em_add(e, lm.i, channels));
    em_loop l = em_for(e, zero, lines, one);
    begin_line(w, &s, from, y0, l.i, index);
    emit_line(w, &s);
    em_end(e, &l);
    window_end_tile(w, s.block, em_sub(e, s.m_end, w->tile_channel), count);
    em_end(e, &lm);
    if (w->has_rows) em_endif(e, &b);
    em_end(e, &t);
}

/* What is behind it, in the same kernel, is window_emit_band's. */
static void take_head(window *w) {
    emit *e = w->e;
    ir_kernel *head = FU_NEW(e->arena, ir_kernel);
    ir_kernel_head(e->whole, head);
    w->band_rows = e->whole->band_rows;
    w->band = ir_kernel_band(head);
    em_take_program(e, head);
    em_load_args(e, e->args);
}

/* Dims by their roles, the product and its operands. */
static void find_parts(window *w) {
    const ir_kernel *k = w->k;
    w->dim_m = -1;
    for (int d = 0; d < k->n_dims; d++) {
        if (k->dim[d].role == 'b') w->n_batch++;
        if (k->dim[d].role == 'm') w->dim_m = d;
        w->n_k += k->dim[d].role == 'k';
    }
    w->dim_y = w->dim_m + 1;
    w->dim_n = w->dim_m + 2;
    const ir_kinst *product = ir_kernel_matmul(k);
    w->matmul = (int)(product - k->inst);
    w->weights = ir_kernel_window_operand(k, 0)->index;
    w->operand = ir_kernel_window_operand(k, 1)->index;
    w->acc = product->dtype;
}

/* The register tile, and whether it can be one. */
static fusor_status set_tile(window *w, fu_error *err) {
    emit *e = w->e;
    const ir_kernel *k = w->k;
    w->bytes = ir_dtypes[w->acc].bytes;
    w->lanes = e->level->lanes;
    w->v_lanes = e->level->vector_bytes / w->bytes;
    w->mr = k->tile.mr;
    w->nr = k->tile.nr;
    w->kb = k->tile.kb;
    if (k->is_depthwise && w->nr < w->v_lanes) w->v_lanes = w->lanes = w->nr;
    w->nv = w->nr / w->v_lanes;
    w->tile_rows = ir_window_tile_rows(k);
    w->t_acc = em_scalar_type(e, w->acc);
    w->t_vec = LLVMVectorType(w->t_acc, (unsigned)w->v_lanes);
    w->dot = ir_kernel_window_dot(k);
    w->group = ir_dots[w->dot].group;
    w->has_pairs = w->dot == IR_DOT_BF16;
    w->is_tiled = ir_dot_is_tile(w->dot);
    if (w->has_pairs) {
        if (!ir_window_pairs_of(k, &w->pairs))
            return FU_FAIL(err, FUSOR_ERROR_INTERNAL, "a window kernel has no such words of bf16");
        w->kb /= 2;
    }
    if (w->n_k > MAX_K || w->nr % w->v_lanes || w->nv > 8 ||
        (!w->is_tiled && ((w->mr > 16 && !k->is_by_channel) || w->mr * w->nv > WINDOW_MAX_TILE)))
        return FU_FAIL(err, FUSOR_ERROR_INTERNAL, "window kernel: tile %d x %d does not fit level %s", w->mr, w->nr,
                       e->level->name);
    return FUSOR_OK;
}

/* How the operand is read and results are stored. */
static void set_access(window *w) {
    const ir_kernel *k = w->k;
    const int64_t step = ir_kernel_window_step(k);
    w->has_lower = ir_window_has_lower(k);
    w->stores_last = stores_last(w);
    w->cuts = !w->band_rows && ir_window_cuts_rows(k); /* k may be the head, which knows nothing of a band */
    window_find_pads(w);
    window_find_phases(w);
    w->is_slab = ir_kernel_has_slab(k);
    w->packs = ir_kernel_window_packs(k);
    w->adds = ir_kernel_window_adds(k);
    w->channels = w->is_slab ? ir_kernel_window_channels(k) : -1;
    w->step = w->is_slab ? 1 : step == IR_STRIDE_RUNTIME ? 0 : (int)step;
}

/* By fma, a row of places after the other: the functions, and the kernel that calls them. */
static void emit_by_places(window *w) {
    emit *e = w->e;
    window_emit_tile(w, TILE);
    if (e->level->has_mask) window_emit_tile(w, MASKED);
    if (e->level->has_mask && w->nv > 1) window_emit_tile(w, NARROW);
    window_emit_panel(w);
    if (w->turns > 1) window_emit_interleave(w);
    if (w->is_slab) window_emit_slab(w);
    if (w->packs) window_emit_weights(w);
    window_emit_finish(w);
    w->has_rows = window_has_rows(w);
    if (w->has_rows) window_emit_row(w, ROW);
    /* Without masks a panel of one vector takes as long as one of two, which may begin earlier. */
    if (w->has_rows && w->nv > (e->level->has_mask ? 1 : 2)) window_emit_row(w, NARROW_ROW);
    LLVMValueRef rows = window_tile_of_rows(w);
    em_branch phase = {0};
    if (w->packs) {
        phase = em_if(e, em_icmp(e, LLVMIntEQ, e->phase, LLVMConstInt(LLVMTypeOf(e->phase), 0, 0)));
        window_call(w, WEIGHTS, (LLVMValueRef[]){e->args, e->tile_begin, e->tile_end}, 3);
        em_else(e, &phase);
    }
    window_slab slab;
    if (w->is_slab) {
        slab = window_slab_of(w, rows);
        w->pitch = slab.pitch;
        LLVMBuildStore(e->b, slab.pitch, e->scratch);
    }
    window_emit_table(w, w->is_slab ? &slab : NULL);
    emit_tiles(w, rows);
    if (w->packs) em_endif(e, &phase);
}

fusor_status jit_emit_window(emit *e, fu_error *err) {
    window *w = FU_NEW(e->arena, window);
    w->e = e;
    if (e->whole->band_rows) take_head(w);
    w->k = e->k;
    find_parts(w);
    FU_TRY(set_tile(w, err));
    set_access(w);
    set_values(w);
    if (w->k->is_depthwise) {
        window_emit_depthwise(w);
        e->is_optimized = true;
        return FUSOR_OK;
    }
    FU_TRY(window_emit_band(w, err));
    if (w->is_tiled || w->k->is_by_channel) {
        window_emit_finish(w);
        if (w->is_tiled) window_emit_tiled(w);
        else window_emit_channels(w);
    } else {
        emit_by_places(w);
    }
    em_demote(e);
    return FUSOR_OK;
}
