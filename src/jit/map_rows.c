/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* map_rows.c: from row to row of an element-wise kernel. Rows that differ in the last of the outer dims alone are a
 * line: offsets go on by one stride from row to row, so that a short row costs no division, and a value is computed
 * where it last changes:
 *
 *   what is the same everywhere
 *   for each line:                  what varies along the dims outside it
 *       for each row of the line:   what varies along it; the row's columns (map.c)
 *
 * Many rows of few columns (m->group) are one row of whole vectors, as many at a time as make some hundred elements:
 * what the rows share is repeated on the stack once a line.
 */
#include "jit/map.h"
#include <string.h>

enum { GROUPED = 64 }; /* rows of a line from which on groups pay for what they repeat */

/* Where a value changes last. */
typedef enum place { PLACE_TILE, PLACE_LINE, PLACE_ROW, PLACE_STEP } place;

static place place_of(const map *m, int inst) {
    const uint32_t varies = m->varies[inst];
    if (map_varies_in_row(m, inst)) return PLACE_STEP;
    if (m->last > 0 && varies >> (m->last - 1) & 1) return PLACE_ROW;
    return varies ? PLACE_LINE : PLACE_TILE;
}

static place user_place(emit *e, const map *m, int inst) {
    return e->k->inst[inst].op == IR_K_STORE ? PLACE_STEP : place_of(m, inst);
}

/* What changes at `here` and is needed further in: by steps as vectors too. */
static void emit_values(emit *e, map *m, place here) {
    const ir_kernel *k = e->k;
    const int lanes = e->lanes;
    m->column = em_i64s(e, 0);
    m->mask = NULL;
    for (int i = 0; i < k->n_insts; i++) {
        const place user = user_place(e, m, i);
        for (int j = 0; j < k->inst[i].n_in; j++) {
            const int in = k->inst[i].in[j];
            if (user <= here || place_of(m, in) != here) continue;
            e->lanes = 1;
            const LLVMValueRef one = em_value(e, &m->rows, in);
            e->lanes = lanes;
            if (user != PLACE_STEP || m->row_scalar[in]) continue;
            m->row_scalar[in] = one;
            m->row_splat[in] = em_splat(e, one);
        }
    }
}

/* Is instruction i computed from the column and from what is the same everywhere? */
static bool is_of_columns(const ir_kernel *k, const map *m, int i) {
    const ir_kinst *in = &k->inst[i];
    const ir_kind kind = in->op < IR_OP_COUNT ? ir_ops[in->op].kind : IR_KIND_CORE;
    if (m->varies[i] == 0) return true;
    if (m->varies[i] != 1u << m->last) return false;
    if (in->op == IR_K_INDEX) return true;
    for (int j = 0; j < in->n_in; j++)
        if (!is_of_columns(k, m, in->in[j])) return false;
    return kind == IR_KIND_EW;
}

void map_emit_conditions(emit *e, map *m, LLVMValueRef column, map_fixed *out) {
    const ir_kernel *k = e->k;
    em_values v;
    em_values_init(&v, map_load, m);
    m->column = column;
    m->mask = NULL;
    for (int i = 0; i < k->n_insts; i++)
        if (m->row_splat[i]) v.at[i] = e->lanes == m->lanes ? m->row_splat[i] : em_splat(e, m->row_scalar[i]);
    for (int i = 0; i < k->n_insts; i++)
        out->at[i] = ir_is_bool(k->inst[i].dtype) && m->varies[i] && is_of_columns(k, m, i) ? em_value(e, &v, i) : NULL;
}

/* Straight rows: conditions of columns, once for all rows. */
static void emit_fixed(emit *e, map *m) {
    const int columns = (int)e->k->dim[m->last].size;
    m->steps = FU_NEW_N(e->arena, map_fixed, columns / e->lanes + 1);
    for (int at = 0; at < columns; at += e->lanes) map_emit_conditions(e, m, em_i64s(e, at), m->steps + at / e->lanes);
}

void map_emit_row_values(emit *e, map *m) {
    for (int i = 0; i < e->k->n_insts; i++)
        if (place_of(m, i) == PLACE_ROW) m->rows.at[i] = m->row_scalar[i] = m->row_splat[i] = NULL;
    emit_values(e, m, PLACE_ROW);
}

static void emit_row(emit *e, map *m, LLVMValueRef begin, LLVMValueRef end, bool has_tail) {
    if (m->runs) map_emit_runs(e, m, begin, end);
    else map_emit_columns(e, m, begin, end, has_tail);
}

/* ---- rows of few columns ---- */
/* What all rows of the line share, again and again: a group's elements, on the stack. */
static LLVMValueRef repeat(emit *e, const map *m, int b, int64_t elements) {
    const ir_dtype t = e->k->buffer[b].dtype;
    const int64_t columns = e->k->dim[m->last].size, lanes = e->level->vector_bytes / ir_dtypes[t].bytes;
    const int64_t first = (lanes + columns - 1) / columns * columns; /* whole vectors of it are copied on */
    LLVMTypeRef element = em_memory_type(e, t), vector = LLVMVectorType(element, (unsigned)lanes);
    LLVMValueRef to = em_alloca(e, LLVMArrayType2(element, (uint64_t)(elements + lanes)), 64);
    LLVMValueRef from = em_gep(e, e->base[b], element, m->offset[b]), zero = em_i64s(e, 0);
    const unsigned align = ir_dtypes[t].bytes;
    em_loop times = em_for(e, zero, em_i64s(e, first), em_i64s(e, columns));
    em_loop each = em_for(e, zero, em_i64s(e, columns), em_i64s(e, 1));
    LLVMValueRef x = LLVMBuildLoad2(e->b, element, em_gep(e, from, element, each.i), "");
    LLVMSetAlignment(x, align);
    LLVMSetAlignment(LLVMBuildStore(e->b, x, em_gep(e, to, element, em_add(e, times.i, each.i))), align);
    em_end(e, &each);
    em_end(e, &times);
    em_loop on = em_for(e, em_i64s(e, first), em_i64s(e, elements), em_i64s(e, lanes));
    x = LLVMBuildLoad2(e->b, vector, em_gep(e, to, element, em_sub(e, on.i, em_i64s(e, first))), "");
    LLVMSetAlignment(x, align);
    LLVMSetAlignment(LLVMBuildStore(e->b, x, em_gep(e, to, element, on.i)), align);
    em_end(e, &on);
    return to;
}

/* Rows y0..y1 of a line by groups, each one row. */
static void emit_groups(emit *e, const map *m, LLVMValueRef y0, LLVMValueRef y1) {
    const ir_kernel *k = e->k;
    const int y = m->last - 1;
    const int64_t columns = k->dim[m->last].size, elements = columns * m->group;
    LLVMValueRef base[IR_KERNEL_MAX_BUFFERS], next[IR_KERNEL_MAX_BUFFERS] = {NULL}, zero = em_i64s(e, 0);
    map *one = FU_NEW(e->arena, map);
    memcpy(base, e->base, sizeof base);
    *one = *m;
    one->rows.user = one;
    one->is_straight = false;
    one->unroll = m->is_costly ? 1 : 2;
    for (int b = 0; b < k->n_buffers; b++) {
        if (k->buffer[b].stride[y] != 0 || k->buffer[b].stride[m->last] == 0) continue;
        e->base[b] = repeat(e, m, b, elements);
        one->offset[b] = zero;
    }
    em_loop groups = em_for(e, y0, y1, em_i64s(e, m->group));
    for (int b = 0; b < k->n_buffers; b++)
        if (k->buffer[b].stride[y] != 0) one->offset[b] = next[b] = em_loop_phi(e, &groups, m->offset[b]);
    LLVMValueRef rows = em_min(e, em_sub(e, y1, groups.i), em_i64s(e, m->group));
    map_emit_columns(e, one, zero, em_mul(e, rows, em_i64s(e, columns)), true);
    for (int b = 0; b < k->n_buffers; b++)
        if (next[b]) em_loop_next(e, next[b], em_add(e, next[b], em_i64s(e, elements)));
    em_end(e, &groups);
    memcpy(e->base, base, sizeof base);
}

/* Rows y0..y1 of a line, whose offsets at y0 offset[] has. */
static void emit_line(emit *e, map *m, LLVMValueRef y0, LLVMValueRef y1, LLVMValueRef begin, LLVMValueRef end,
                      bool has_tail) {
    const ir_kernel *k = e->k;
    const int y = m->last - 1;
    LLVMValueRef next[IR_KERNEL_MAX_BUFFERS] = {NULL};
    emit_values(e, m, PLACE_LINE);
    if (m->turns > 1) { /* all rows of the line, or none */
        em_branch b = em_if(e, em_icmp(e, LLVMIntSLT, y0, y1));
        map_emit_turns(e, m, begin, end);
        em_endif(e, &b);
        return;
    }
    if (k->slide.n) {
        map_emit_slide(e, m, y0, y1, begin, end);
        return;
    }
    if (m->runs && m->runs->is_by_line) {
        map_emit_line_runs(e, m, y0, y1, begin, end);
        return;
    }
    em_branch few = {0};
    LLVMValueRef offset[IR_KERNEL_MAX_BUFFERS];
    memcpy(offset, m->offset, sizeof offset);
    if (m->group) {
        few = em_if(e, em_icmp(e, LLVMIntSGE, em_sub(e, y1, y0), em_i64s(e, GROUPED)));
        emit_groups(e, m, y0, y1);
        em_else(e, &few);
    }
    em_loop rows = em_for(e, y0, y1, em_i64s(e, 1));
    for (int b = 0; b < k->n_buffers; b++)
        if (k->buffer[b].stride[y] != 0) m->offset[b] = next[b] = em_loop_phi(e, &rows, m->offset[b]);
    m->index[y] = rows.i;
    emit_values(e, m, PLACE_ROW);
    emit_row(e, m, begin, end, has_tail);
    for (int b = 0; b < k->n_buffers; b++)
        if (next[b]) em_loop_next(e, next[b], em_add(e, next[b], e->stride[b][y]));
    em_end(e, &rows);
    if (m->group) em_endif(e, &few);
    memcpy(m->offset, offset, sizeof offset);
}

void map_emit_rows(emit *e, map *m, LLVMValueRef row_begin, LLVMValueRef row_end, LLVMValueRef begin, LLVMValueRef end,
                   bool has_tail) {
    const ir_kernel *k = e->k;
    const LLVMValueRef zero = em_i64s(e, 0), one = em_i64s(e, 1);
    const int y = m->last - 1;
    em_values_init(&m->rows, map_load, m);
    memset(m->row_scalar, 0, sizeof m->row_scalar);
    memset(m->row_splat, 0, sizeof m->row_splat);
    for (int b = 0; b < k->n_buffers; b++) m->offset[b] = zero;
    emit_values(e, m, PLACE_TILE);
    if (y < 0) { /* one row */
        emit_values(e, m, PLACE_LINE);
        emit_values(e, m, PLACE_ROW);
        emit_row(e, m, begin, end, has_tail);
        return;
    }
    if (m->is_straight) emit_fixed(e, m);
    if (y == 0) { /* one line */
        for (int b = 0; b < k->n_buffers; b++) m->offset[b] = map_advance(e, zero, row_begin, e->stride[b][0]);
        emit_line(e, m, row_begin, row_end, begin, end, has_tail);
        return;
    }
    LLVMValueRef first = LLVMBuildUDiv(e->b, row_begin, e->size[y], ""), index[IR_KERNEL_MAX_DIMS], rest = first;
    LLVMValueRef past = em_add(e, LLVMBuildUDiv(e->b, em_sub(e, row_end, one), e->size[y], ""), one);
    for (int d = y - 1; d >= 0; d--) { /* the outermost index is what is left */
        index[d] = d ? LLVMBuildURem(e->b, rest, e->size[d], "") : rest;
        if (d) rest = LLVMBuildUDiv(e->b, rest, e->size[d], "");
    }
    em_loop lines = em_for(e, first, past, one);
    for (int d = 0; d < y; d++) m->index[d] = index[d] = em_loop_phi(e, &lines, index[d]);
    LLVMValueRef before = em_mul(e, lines.i, e->size[y]), y0 = em_max(e, em_sub(e, row_begin, before), zero),
                 y1 = em_min(e, em_sub(e, row_end, before), e->size[y]);
    for (int b = 0; b < k->n_buffers; b++) {
        m->offset[b] = zero;
        for (int d = 0; d <= y; d++)
            m->offset[b] = map_advance(e, m->offset[b], d < y ? index[d] : y0, e->stride[b][d]);
    }
    emit_line(e, m, y0, y1, begin, end, has_tail);
    LLVMValueRef carry = one;
    for (int d = y - 1; d >= 0; d--) {
        LLVMValueRef next = em_add(e, index[d], carry), is_past = em_icmp(e, LLVMIntEQ, next, e->size[d]);
        em_loop_next(e, index[d], d ? em_select(e, is_past, zero, next) : next);
        carry = em_select(e, is_past, one, zero);
    }
    em_end(e, &lines);
}
