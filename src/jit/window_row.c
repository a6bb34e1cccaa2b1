/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* window_row.c: convolutions by columns, where all products of an element are of one K block: panels of columns that
 * all channels meet, a register tile of them at a time, stored from the registers. With masks a line of columns goes on
 * from row to row of the result, so a vector may have the end of one and the begin of the next (find_parts). Without,
 * it is a row, and its last panel begins earlier, so that it is whole: some columns are made twice (makes_twice of
 * ir/plan_memory.c knows). */
#include "jit/window.h"
#include <string.h>

/* ---- a row, from registers to the outputs ---- */
bool window_has_rows(window *w) {
    const int64_t kk = window_known_k(w);
    const bool may_step = w->step == 1 || (w->step == 2 && w->e->level->has_mask);
    if (w->is_transposed || w->v_lanes != w->lanes || kk > w->kb || !may_step || !ir_window_is_small(w->k))
        return false;
    if (kk >= 0 && w->step == 1 && w->nv <= 2 && kk <= IR_WINDOW_FEW && !w->has_pairs) w->few = (int)kk;
    w->holds = w->few && w->mr * w->nv == IR_WINDOW_HELD_SUMS && ir_window_holds(w->k->level, kk, w->mr, w->nv);
    return true;
}

/* What is stored some steps on: an instruction that stores to several channels in turn is not followed by prefetchers.
 * (EPYC 9005, 16 channels of 498x498: 0.7 of the time, 32 of 698x698 0.6.) */
static void prefetch_output(window *w, int b, LLVMValueRef off) {
    enum { STORE_AHEAD = 512 }; /* bytes */
    emit *e = w->e;
    LLVMValueRef at = em_gep(e, e->base[b], em_memory_type(e, w->k->buffer[b].dtype), off);
    em_prefetch(e, em_gep(e, at, e->t_i8, num(w, STORE_AHEAD)), 1);
}

/* Where results of a panel go: offsets and indices of the line, whose columns count from column `first` of the result,
 * and the panel's first column. */
typedef struct row_target {
    const LLVMValueRef *off;
    LLVMValueRef *index, first, column, weights, first_sums;
} row_target;

/* All vectors of a channel together: stores that share a line of the cache follow each other. (EPYC 9005, 16 channels
 * of 254x254: 0.8 of the time of all channels' first vector, then the second.)
 * active: of the last vector; NULL: all. */
static void store_sums(window *w, const window_products *p, LLVMValueRef *sum, const row_target *to, LLVMValueRef m0,
                       LLVMValueRef active) {
    emit *e = w->e;
    LLVMValueRef row_off[IR_KERNEL_MAX_BUFFERS], at_off[IR_KERNEL_MAX_BUFFERS], *index = to->index;
    LLVMValueRef n0 = em_add(e, to->first, to->column);
    window_move_offsets(w, to->off, m0, w->dim_m, row_off);
    window_move_offsets(w, row_off, to->column, w->dim_n, row_off);
    for (int i = 0; i < w->mr; i++) {
        index[w->dim_m] = em_add(e, m0, num(w, i));
        if (i) window_move_offsets(w, row_off, num(w, 1), w->dim_m, row_off);
        memcpy(at_off, row_off, sizeof at_off);
        for (int j = 0; j < p->nv; j++) {
            if (j) window_move_offsets(w, at_off, num(w, w->v_lanes), w->dim_n, at_off);
            index[w->dim_n] = em_add(e, n0, num(w, j * w->v_lanes));
            window_point at = {w, at_off, index, w->dim_n, j + 1 < p->nv ? NULL : active};
            em_values v;
            em_values_init(&v, window_load, &at);
            v.at[w->matmul] = sum[i * p->nv + j];
            for (int n = 0; n < w->k->n_insts; n++) {
                const ir_kinst *in = &w->k->inst[n];
                if (in->op != IR_K_STORE) continue;
                LLVMValueRef value = em_value(e, &v, in->in[0]);
                em_store(e, in->index, value, at_off[in->index], window_step_of(w, in->index, w->dim_n), at.mask);
                if (w->holds && w->k->buffer[in->index].stride[w->dim_n] == 1)
                    prefetch_output(w, in->index, at_off[in->index]);
            }
        }
    }
}

typedef struct panel_parts {
    LLVMValueRef active;   /* which lanes of the last vector are columns */
    LLVMValueRef is_plain; /* all of all, and no vector goes on in the next row */
} panel_parts;

/* Where the vectors of the panel that begins at `column` of a row are, of which `left` columns are left in the line. A
 * vector is no longer than a row. On to the next panel. */
static panel_parts find_parts(window *w, window_products *p, LLVMValueRef *at, LLVMValueRef *column,
                              LLVMValueRef left) {
    emit *e = w->e;
    LLVMValueRef n = e->size[w->dim_n], vl = num(w, w->v_lanes), gap = em_sub(e, w->pitch, n);
    panel_parts found = {.is_plain = em_icmp(e, LLVMIntSGE, left, num(w, p->nv * w->v_lanes))};
    for (int j = 0; j < p->nv; j++) {
        LLVMValueRef in_row = em_sub(e, n, *column), here = em_mask(e, in_row);
        found.active = em_mask(e, em_sub(e, left, num(w, j * w->v_lanes)));
        found.is_plain = em_and(e, found.is_plain, em_icmp(e, LLVMIntSGE, in_row, vl));
        p->mask[j][0] = em_and(e, found.active, here);
        p->part[j].at = *at;
        p->part[j].next = element(w, *at, gap);
        p->part[j].mask = em_and(e, found.active, LLVMBuildNot(e->b, here, ""));
        *column = em_add(e, *column, vl);
        LLVMValueRef is_past = em_icmp(e, LLVMIntSGE, *column, n);
        *at = element(w, em_select(e, is_past, p->part[j].next, *at), vl);
        *column = em_sub(e, *column, em_select(e, is_past, n, num(w, 0)));
    }
    return found;
}

/* What the channels m0 .. m0 + mr - 1 of a panel prefetch of the next panel while they multiply, one line of each with
 * each product: of the result as many lines as theirs has, one of a channel, channel after channel; of the operand line
 * number m0 / mr of its columns. Of one place, whose operand is read where it lies, each row of it another page.
 * (Cascade Lake, one thread: 64 channels of 56x56 to 256 0.85 of the time, to 32 and to 64 0.8, of 112x112 to 64 0.62,
 * 24 of 56x56 to 144 0.93. 16 of 224x224 to 16, 3x3: 1.07.) */
static void find_lines(window *w, window_products *p, const row_target *to, LLVMValueRef m0) {
    emit *e = w->e;
    const int b = window_result(w), columns = p->nv * w->v_lanes, taken = columns * w->bytes;
    const bool is_one = w->n_k <= 2 && w->k->dim[w->k->n_dims - 1].size == 1;
    if (b < 0 || w->few || w->is_slab || !is_one || p->operand) return;
    const int bytes = ir_dtypes[w->k->buffer[b].dtype].bytes,
              lines = (columns * bytes + EM_LINE_BYTES - 1) / EM_LINE_BYTES;
    LLVMTypeRef t = em_memory_type(e, w->k->buffer[b].dtype);
    LLVMValueRef step = window_step_of(w, b, w->dim_m), tile = LLVMBuildUDiv(e->b, m0, num(w, w->mr), ""),
                 each = num(w, w->mr * lines), line = em_mul(e, tile, num(w, EM_LINE_BYTES));
    LLVMValueRef first = em_mul(e, LLVMBuildUDiv(e->b, tile, num(w, lines), ""), each),
                 last = em_min(e, em_add(e, first, each), e->size[w->dim_m]);
    LLVMValueRef at = em_gep(e, e->base[b], t, em_add(e, to->off[b], em_add(e, to->column, num(w, columns))));
    at = em_gep(e, at, e->t_i8, LLVMBuildURem(e->b, line, num(w, lines * EM_LINE_BYTES), ""));
    p->prefetch.result = em_gep(e, at, t, em_mul(e, first, step));
    p->prefetch.last = em_gep(e, at, t, em_mul(e, em_sub(e, last, num(w, 1)), step));
    p->prefetch.apart = em_mul(e, step, num(w, bytes));
    p->prefetch.operand =
        em_gep(e, p->part[0].at, e->t_i8, em_add(e, em_min(e, line, num(w, taken - w->bytes)), num(w, taken)));
}

/* All channels of a panel. active: lanes of the last vector; NULL: all. is_whole: i1, they are all; NULL: not known. */
static void emit_panel_channels(window *w, window_products *p, const row_target *to, LLVMValueRef active,
                                LLVMValueRef is_whole) {
    emit *e = w->e;
    LLVMValueRef m = e->size[w->dim_m], pitch = w->few ? num(w, w->few) : w->weight_pitch, sum[WINDOW_MAX_TILE];
    em_loop l = em_for(e, num(w, 0), m, num(w, w->mr));
    LLVMValueRef m0 = em_min(e, l.i, em_sub(e, m, num(w, w->mr)));
    for (int i = 0; i < w->mr; i++)
        p->row[i] = element(w, i ? p->row[i - 1] : to->weights, i ? pitch : em_mul(e, m0, pitch));
    find_lines(w, p, to, m0);
    if (w->few) window_emit_few_products(w, p, sum);
    else window_emit_products(w, p, sum);
    if (w->adds) window_add_first(w, element(w, to->first_sums, m0), sum, p->nv);
    if (is_whole) { /* a block has products or stores: LLVM would mix them, and sums were in memory */
        em_branch b = em_if(e, is_whole);
        store_sums(w, p, sum, to, m0, NULL);
        em_else(e, &b);
        store_sums(w, p, sum, to, m0, active);
        em_endif(e, &b);
    } else store_sums(w, p, sum, to, m0, active);
    em_end(e, &l);
}

/* (args, block, weights, operand, begin, end, length, first sums): all channels of the columns begin .. end - 1 of a
 * line of `length`, in panels of all vectors or (NARROW_ROW) one. */
void window_emit_row(window *w, window_function f) {
    emit *e = w->e;
    window_products p = {.nv = f == NARROW_ROW ? 1 : w->nv, .step = w->step};
    LLVMTypeRef parameter[8] = {e->t_ptr, e->t_ptr, e->t_ptr, e->t_ptr, e->t_i64, e->t_i64, e->t_i64, e->t_ptr};
    window_outer *o = window_begin(w, f, f == NARROW_ROW ? "narrow_row" : "row", parameter, 8);
    LLVMValueRef in[8], off[IR_KERNEL_MAX_BUFFERS], index[IR_KERNEL_MAX_DIMS] = {0}, n = e->size[w->dim_n], at, column,
                                                    state[2];
    LLVMGetParams(e->fn, in);
    window_read_block(w, in[1], off, index);
    const LLVMValueRef first = window_told_column(w, in[1]);
    e->lanes = w->v_lanes;
    p.count = w->kk;
    p.elements = w->elements;
    p.table = w->table;
    const bool has_mask = e->level->has_mask, goes_on = w->step == 1 && has_mask;
    const int64_t columns = p.nv * w->v_lanes;
    if (goes_on) {
        LLVMValueRef row = LLVMBuildUDiv(e->b, in[4], n, "");
        column = em_sub(e, in[4], em_mul(e, row, n));
        at = element(w, in[3], em_add(e, em_mul(e, row, w->pitch), column));
    }
    em_loop lp = em_for(e, in[4], in[5], num(w, columns));
    LLVMValueRef left = em_sub(e, in[6], lp.i);
    const LLVMValueRef begin = has_mask ? lp.i : em_min(e, lp.i, em_sub(e, in[6], num(w, columns)));
    const row_target to = {off, index, first, begin, in[2], in[7]};
    panel_parts parts = {0};
    if (goes_on) {
        state[0] = em_loop_phi(e, &lp, at);
        state[1] = em_loop_phi(e, &lp, column);
        at = state[0];
        column = state[1];
        parts = find_parts(w, &p, &at, &column, left);
    } else {
        p.operand = element(w, in[3], em_mul(e, begin, num(w, w->step)));
        if (has_mask) parts.active = window_mask_last(w, &p, left);
    }
    if (goes_on && !w->few) {
        window_products plain = p;
        for (int j = 0; j < p.nv; j++) plain.part[j].next = plain.part[j].mask = plain.mask[j][0] = NULL;
        em_branch b = em_if(e, parts.is_plain);
        emit_panel_channels(w, &plain, &to, NULL, NULL);
        em_else(e, &b);
        emit_panel_channels(w, &p, &to, parts.active, NULL);
        em_endif(e, &b);
    } else {
        if (w->few && (w->nv > 1 || w->holds)) window_gather_few(w, &p);
        emit_panel_channels(w, &p, &to, parts.active, has_mask ? em_icmp(e, LLVMIntSGE, left, num(w, columns)) : NULL);
    }
    if (goes_on) {
        em_loop_next(e, state[0], at);
        em_loop_next(e, state[1], column);
    }
    em_end(e, &lp);
    window_end(w, o);
}
