/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* map_slide.c: rows whose values go on to the next ones (ir_kslide): overlapping windows. Columns outside, rows inside:
 *
 *   for each block of rows of a line, for each step of columns:
 *       conditions of the columns; what the first row would have from the row before it
 *       for each row: the program, with what is there; what the next row has from it, in registers
 *
 * A 3x3 window loads three vectors an element's row instead of nine. A block is as many rows as stay in the cache while
 * the steps pass over them. Loads without masks come first where there are any: they alone are followed by the
 * prefetcher (Zen 5: from memory, masked loads take 4 times as long). */
#include "jit/map.h"
#include <string.h>

enum { BLOCK_ROWS = 64, ROWS_AHEAD = 8, MOST_LINES = 4 };

typedef struct strip {
    LLVMValueRef y0, y1, offset[IR_KERNEL_MAX_BUFFERS]; /* of row y0 */
} strip;

static void prefetch_buffer(emit *e, map *m, int b, LLVMValueRef column) {
    const int64_t step = e->k->buffer[b].stride[m->last], bytes = ir_dtypes[e->k->buffer[b].dtype].bytes;
    LLVMValueRef ahead = em_mul(e, e->stride[b][m->last - 1], em_i64s(e, ROWS_AHEAD));
    LLVMValueRef off = map_advance(e, em_add(e, m->offset[b], ahead), column, e->stride[b][m->last]);
    LLVMValueRef at = em_gep(e, e->base[b], em_memory_type(e, e->k->buffer[b].dtype), off);
    const int64_t reach = step > 0 ? e->lanes * bytes * step : EM_LINE_BYTES, most = MOST_LINES * EM_LINE_BYTES;
    em_prefetch_lines(e, at, reach < most ? reach : most, 1);
}

/* What the row some rows on will load and store: a line of each value that no row before has made. The prefetcher does
 * not see steps that end after a vector or two in each row. */
static void prefetch_rows(emit *e, map *m, LLVMValueRef column) {
    const ir_kernel *k = e->k;
    int first[IR_KERNEL_MAX_INSTS]; /* the buffer of a value's first load; -1: none */
    bool has_given[IR_KERNEL_MAX_INSTS] = {false}, is_user[IR_KERNEL_MAX_INSTS] = {false};
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        first[i] = in->op == IR_K_LOAD ? in->index : -1;
        for (int j = 0; j < k->slide.n; j++) has_given[i] |= k->slide.to[j] == i;
        is_user[i] = !has_given[i];
        for (int j = 0; j < in->n_in; j++) {
            if (first[i] < 0) first[i] = first[in->in[j]];
            has_given[i] |= has_given[in->in[j]];
        }
        is_user[i] &= has_given[i] || in->op == IR_K_STORE;
    }
    for (int i = 0; i < k->n_insts; i++) {
        const ir_kinst *in = &k->inst[i];
        for (int j = 0; j < in->n_in && is_user[i]; j++)
            if (!has_given[in->in[j]] && first[in->in[j]] >= 0) prefetch_buffer(e, m, first[in->in[j]], column);
        if (in->op == IR_K_STORE) prefetch_buffer(e, m, in->index, column);
    }
}

static void emit_strip(emit *e, map *m, const strip *s, LLVMValueRef column, LLVMValueRef mask) {
    const ir_kernel *k = e->k;
    const ir_kslide *slide = &k->slide;
    const int y = m->last - 1, n = slide->n;
    LLVMValueRef value[IR_KERNEL_MAX_SLIDE], next[IR_KERNEL_MAX_BUFFERS] = {NULL};
    map_fixed conditions;
    map_step step;
    m->fixed = NULL;
    map_emit_conditions(e, m, column, &conditions);
    for (int i = 0; i < k->n_insts && mask; i++)
        if (conditions.at[i]) conditions.at[i] = em_and(e, conditions.at[i], mask);
    m->fixed = &conditions;
    m->is_fixed_masked = true;
    e->n_spread = 0;
    for (int i = 0; i < k->n_insts && e->lanes > 1; i++) {
        const ir_kinst *in = &k->inst[i];
        if (in->op != IR_K_LOAD) continue;
        if (mask) em_spread_masks(e, mask, e->stride[in->index][m->last]);
        for (int j = 0; j < k->n_insts; j++)
            if (conditions.at[j]) em_spread_masks(e, conditions.at[j], e->stride[in->index][m->last]);
    }
    memcpy(m->offset, s->offset, sizeof m->offset);
    m->index[y] = s->y0;
    map_emit_row_values(e, m);
    map_begin_step(e, m, &step, column, mask);
    for (int i = 0; i < n; i++) value[i] = em_value(e, &step.v, slide->to[i]);
    em_loop rows = em_for(e, s->y0, s->y1, em_i64s(e, 1));
    for (int b = 0; b < k->n_buffers; b++)
        if (k->buffer[b].stride[y] != 0) m->offset[b] = next[b] = em_loop_phi(e, &rows, s->offset[b]);
    for (int i = 0; i < n; i++) value[i] = em_loop_phi(e, &rows, value[i]);
    m->index[y] = rows.i;
    if (e->lanes > 1) prefetch_rows(e, m, column);
    map_emit_row_values(e, m);
    map_begin_step(e, m, &step, column, mask);
    for (int i = 0; i < n; i++) step.v.at[slide->to[i]] = value[i];
    map_end_step(e, m, &step, false);
    LLVMValueRef last[IR_KERNEL_MAX_SLIDE];
    for (int i = 0; i < n; i++) last[i] = em_value(e, &step.v, slide->from[i]); /* blocks of their own, all before */
    for (int i = 0; i < n; i++) em_loop_next(e, value[i], last[i]);
    for (int b = 0; b < k->n_buffers; b++)
        if (next[b]) em_loop_next(e, next[b], em_add(e, next[b], e->stride[b][y]));
    em_end(e, &rows);
    m->fixed = NULL;
    m->is_fixed_masked = false;
    e->n_spread = 0;
}

/* Is a result written over an operand? Plans do that where each element is read by its own place alone: so not to what
 * goes from row to row. NULL: there is no other operand. */
static LLVMValueRef is_in_place(emit *e) {
    const ir_kernel *k = e->k;
    bool is_marked[IR_KERNEL_MAX_INSTS] = {false};
    LLVMValueRef any = NULL;
    for (int i = 0; i < k->slide.n; i++) {
        ir_kernel_mark(k, k->slide.to[i], is_marked);
        ir_kernel_mark(k, k->slide.from[i], is_marked);
    }
    for (int i = 0; i < k->n_insts; i++)
        for (int j = 0; j < k->n_insts && k->inst[i].op == IR_K_STORE; j++) {
            if (k->inst[j].op != IR_K_LOAD || is_marked[j]) continue;
            LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntEQ, e->base[k->inst[i].index], e->base[k->inst[j].index], "");
            any = any ? LLVMBuildOr(e->b, any, is, "") : is;
        }
    return any;
}

void map_emit_slide(emit *e, map *m, LLVMValueRef y0, LLVMValueRef y1, LLVMValueRef begin, LLVMValueRef end) {
    const ir_kernel *k = e->k;
    const int64_t columns = k->dim[m->last].size;
    const int y = m->last - 1, lanes = e->lanes;
    strip s;
    LLVMValueRef first[IR_KERNEL_MAX_BUFFERS];
    memcpy(first, m->offset, sizeof first);
    em_loop blocks = em_for(e, y0, y1, em_i64s(e, BLOCK_ROWS));
    s.y0 = blocks.i;
    s.y1 = em_min(e, em_add(e, blocks.i, em_i64s(e, BLOCK_ROWS)), y1);
    for (int b = 0; b < k->n_buffers; b++)
        s.offset[b] = map_advance(e, first[b], em_sub(e, blocks.i, y0), e->stride[b][y]);
    const LLVMValueRef width = em_i64s(e, lanes), past = em_sub(e, end, width);
    LLVMValueRef in_place = columns == lanes ? NULL : is_in_place(e);
    const bool may_fit = columns == IR_SIZE_RUNTIME || columns >= lanes,
               may_be_short = columns == IR_SIZE_RUNTIME || columns < lanes || in_place;
    em_branch fits = {0};
    if (may_fit && may_be_short) {
        LLVMValueRef is_long = em_icmp(e, LLVMIntSGE, past, begin);
        fits = em_if(e, in_place ? em_select(e, in_place, LLVMConstNull(e->t_i1), is_long) : is_long);
    }
    if (may_fit) { /* the last step ends with the last column: some are made twice */
        em_loop l = em_for(e, begin, end, width);
        emit_strip(e, m, &s, columns == lanes ? begin : em_min(e, l.i, past), NULL);
        em_end(e, &l);
    }
    if (may_fit && may_be_short) em_else(e, &fits);
    if (may_be_short) {
        if (!e->level->has_mask) e->lanes = 1;
        em_loop l = em_for(e, begin, end, em_i64s(e, e->lanes));
        emit_strip(e, m, &s, l.i, e->lanes > 1 ? em_mask(e, em_sub(e, end, l.i)) : NULL);
        em_end(e, &l);
        e->lanes = lanes;
    }
    if (may_fit && may_be_short) em_endif(e, &fits);
    em_end(e, &blocks);
}
