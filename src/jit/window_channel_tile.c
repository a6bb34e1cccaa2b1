/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* window_channel_tile.c: the register tile of convolutions whose vectors are channels made (window_channels.c): for
 * each element of K a vector or more of packed weights, and an element of the operand for each column, in all lanes.
 *
 *   all places       K, one element after the other
 *   rows of places   where pads are left out (window_pads.c): a row of the kernel's places at a time, of which all
 *                    along the columns are in the code, so that it is known which columns they are pads of: where tiles
 *                    are whole rows for all, else behind a branch for each end of the result's row. A tile of two rows,
 *                    which meet different places, has code for both together and for each; one of more rows takes the
 *                    places that any of them meets */
#include "jit/window.h"
#include <string.h>

static LLVMValueRef phi_of(window *w, LLVMValueRef a, LLVMBasicBlockRef from_a) {
    LLVMValueRef phi = LLVMBuildPhi(w->e->b, LLVMTypeOf(a), "");
    LLVMAddIncoming(phi, &a, &from_a, 1);
    return phi;
}

void window_extend_table(window *w) {
    emit *e = w->e;
    const int64_t next = w->mr * window_columns_apart(w) * w->bytes;
    LLVMValueRef last = em_max(e, em_sub(e, w->kk, num(w, 1)), num(w, 0));
    for (int i = 0; i < ir_window_ahead(w->k); i++) {
        LLVMValueRef from = em_gep(e, w->table, e->t_i64, em_min(e, num(w, i), last));
        LLVMValueRef at = em_add(e, LLVMBuildLoad2(e->b, e->t_i64, from, ""), num(w, next));
        LLVMBuildStore(e->b, at, em_gep(e, w->table, e->t_i64, em_add(e, w->kk, num(w, i))));
    }
}

/* Prefetches what this tile meets of the operand's rows some products later: the hardware does not see which plane is
 * next. */
static void prefetch_ahead(window *w, const LLVMValueRef *operand, int rows, LLVMValueRef table, LLVMValueRef k) {
    emit *e = w->e;
    LLVMValueRef then = em_gep(e, table, e->t_i64, em_add(e, k, num(w, ir_window_ahead(w->k))));
    LLVMValueRef off = LLVMBuildLoad2(e->b, e->t_i64, then, ""), at = NULL;
    const int64_t line = EM_LINE_BYTES / w->bytes, last = (window_row_columns(w) - 1) * window_columns_apart(w);
    for (int r = 0; r < rows; r++) {
        at = em_gep(e, operand[r], e->t_i8, off);
        for (int64_t i = 0; i < last || i == 0; i += line) em_prefetch(e, element(w, at, num(w, i)), 1);
    }
    if (last > 0) em_prefetch(e, element(w, at, num(w, last)), 1);
}

int window_n_told(const window *w) {
    if (w->result >= 0) return WINDOW_TOLD;
    return w->leaves_out ? TOLD_TO + 1 : w->tile_rows ? TOLD_NEXT + 1 : TOLD_FIRST + 1;
}

/* The result's lines that a tile of columns will be stored to, n with each step of the loop over K: of one channel after
 * the other that of the tile's first column, then, from `again` on, that of its last one. */
typedef struct result_lines {
    LLVMValueRef first, at, next, end, again, most;
    int n;
} result_lines;

typedef struct tile {
    int nv, rows, columns; /* columns of each row */
    LLVMValueRef in[WINDOW_TOLD], row[WINDOW_MAX_TILE];
} tile;

/* sum += the vectors b * the operand of row r, column i. */
static void add_column(window *w, const tile *t, int r, int i, LLVMValueRef at, const LLVMValueRef *b,
                       LLVMValueRef *sum) {
    emit *e = w->e;
    LLVMValueRef from = element(w, em_gep(e, t->row[r], e->t_i8, at), num(w, i * window_columns_apart(w)));
    LLVMValueRef x = em_load_splat(e, w->t_vec, from, (unsigned)w->bytes);
    sum += (r * t->columns + i) * t->nv;
    for (int j = 0; j < t->nv; j++) sum[j] = window_multiply(w, b[j], x, sum[j]);
    if (t->nv == 1 && e->level->has_fma && !e->level->tiles.folds)
        em_use(e, x); /* or the sum would go to its register */
}

/* Prefetches the weights of WEIGHTS_AHEAD products later as well, where those of a tile are more than L1 keeps. (Cascade
 * Lake, one thread, 3x3, with the loop of emit_rows_of_places: 128 channels of 28x28 0.94 of the time, 512 of 7x7 0.84,
 * 256 of 32x32 to 128 0.90; 1x1 of 1280 channels of 16x16 0.95. 7x7 of 3 channels, whose weights stay in L1, 1.1.) */
static void load_weights(window *w, const tile *t, LLVMValueRef weights, LLVMValueRef *b) {
    enum { WEIGHTS_AHEAD = 9, L1_BYTES = 32768 };
    const int64_t each = (int64_t)t->nv * w->v_lanes, kk = window_known_k(w);
    for (int j = 0; j < t->nv; j++) b[j] = window_load_vector(w, element(w, weights, num(w, j * w->v_lanes)));
    if (kk >= 0 && kk * each * w->bytes <= L1_BYTES) return;
    em_prefetch_lines(w->e, element(w, weights, num(w, WEIGHTS_AHEAD * each)), each * w->bytes, 1);
}

/* The columns begin .. end - 1 of the tile's one row, unless they are pads: i1. */
static void add_unless_pads(window *w, const tile *t, int begin, int end, LLVMValueRef is_pad, LLVMValueRef at,
                            const LLVMValueRef *b, LLVMValueRef *sum) {
    LLVMValueRef before[WINDOW_MAX_TILE];
    if (begin >= end) return;
    memcpy(before, sum, sizeof before);
    for (int i = 0; i < t->columns * t->nv; i++) /* not moved behind the branch, with all that they need */
        if (i < begin * t->nv || i >= end * t->nv) em_use(w->e, sum[i]);
    em_branch branch = em_if(w->e, LLVMBuildNot(w->e->b, is_pad, ""));
    for (int i = begin; i < end; i++) add_column(w, t, 0, i, at, b, sum);
    LLVMBasicBlockRef from = LLVMGetInsertBlock(w->e->b);
    em_endif(w->e, &branch);
    for (int i = begin * t->nv; i < end * t->nv; i++) {
        LLVMValueRef phi = phi_of(w, sum[i], from);
        LLVMAddIncoming(phi, &before[i], &branch.other, 1);
        sum[i] = phi;
    }
}

/* sum += weights * operand of rows begin .. end - 1, for one place along the columns. */
static void add_place(window *w, const tile *t, int begin, int end, LLVMValueRef at, LLVMValueRef weights, int place,
                      LLVMValueRef *sum) {
    emit *e = w->e;
    LLVMValueRef b[8], zero = num(w, 0);
    int left = 0, right = t->columns;
    while (left < right && window_is_pad(w, place, left, t->columns, false)) left++;
    while (right > left && window_is_pad(w, place, right - 1, t->columns, true)) right--;
    at = em_add(e, at, num(w, place * w->k->axis[w->k->n_axes - 1].dilation * w->bytes));
    load_weights(w, t, weights, b);
    if (!w->tile_rows) {
        add_unless_pads(w, t, 0, left, em_icmp(e, LLVMIntNE, t->in[TOLD_FROM], zero), at, b, sum);
        add_unless_pads(w, t, right, t->columns, em_icmp(e, LLVMIntNE, t->in[TOLD_TO], zero), at, b, sum);
    }
    for (int r = begin; r < end; r++)
        for (int i = left; i < right; i++) add_column(w, t, r, i, at, b, sum);
}

static void prefetch_for_next(window *w, const tile *t, LLVMValueRef k) {
    if (!w->tile_rows) return;
    em_prefetch(w->e, element(w, t->in[TOLD_NEXT], em_mul(w->e, k, num(w, (int64_t)t->nv * w->v_lanes))), 2);
}

/* (In the entry of a loop with a step for so many elements of K.) */
static result_lines result_of(window *w, const tile *t, int each) {
    result_lines r = {0};
    if (w->result < 0) return r;
    emit *e = w->e;
    const int channels = t->nv * w->v_lanes, bytes = ir_dtypes[w->k->buffer[w->result].dtype].bytes;
    const int64_t kk = window_known_k(w), steps = kk < 0 ? INT64_MAX : kk / each;
    r.again = em_gep(e, t->in[TOLD_RESULT], e->t_i8, num(w, (t->rows * t->columns - 1) * bytes));
    r.first = steps < channels ? r.again : t->in[TOLD_RESULT];
    r.end = em_gep(e, r.first, e->t_i8, em_mul(e, t->in[TOLD_APART], num(w, channels)));
    r.n = steps < 2 * channels ? 2 : 1;
    r.most = kk < 0 ? num(w, 2 * channels * each) : NULL;
    return r;
}
/* (In its body, k: the first element of the step.) */
static void prefetch_result(window *w, const tile *t, result_lines *r, LLVMValueRef first, LLVMBasicBlockRef from,
                            LLVMValueRef k) {
    emit *e = w->e;
    em_branch is_prefetched = {0};
    if (w->result < 0) return;
    r->next = r->at = phi_of(w, first, from);
    if (r->most) is_prefetched = em_if(e, em_icmp(e, LLVMIntSLT, k, r->most));
    for (int i = 0; i < r->n; i++) {
        em_prefetch(e, r->next, 2);
        LLVMValueRef then = em_gep(e, r->next, e->t_i8, t->in[TOLD_APART]);
        r->next = em_select(e, LLVMBuildICmp(e->b, LLVMIntULT, then, r->end, ""), then, r->again);
    }
    if (!r->most) return;
    LLVMBasicBlockRef prefetched = LLVMGetInsertBlock(e->b);
    em_endif(e, &is_prefetched);
    LLVMValueRef next = phi_of(w, r->next, prefetched);
    LLVMAddIncoming(next, &r->at, &is_prefetched.other, 1);
    r->next = next;
}

/* Ends the loop of products that begins at `body`, in which sum[n] became next[n]: back while k_then is one of K; sum
 * is what they are behind it, 0 from `entry`. */
static void end_products(window *w, const tile *t, LLVMBasicBlockRef entry, LLVMBasicBlockRef body,
                         LLVMBasicBlockRef done, LLVMValueRef k_then, LLVMValueRef *next, LLVMValueRef *sum) {
    emit *e = w->e;
    LLVMBasicBlockRef end = LLVMGetInsertBlock(e->b);
    const int n = t->rows * t->columns * t->nv;
    for (int i = 0; i < n; i++) LLVMAddIncoming(sum[i], &next[i], &end, 1);
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSLT, k_then, t->in[TOLD_COUNT]), body, done);
    LLVMPositionBuilderAtEnd(e->b, done);
    for (int i = 0; i < n; i++) {
        sum[i] = phi_of(w, LLVMConstNull(w->t_vec), entry);
        LLVMAddIncoming(sum[i], &next[i], &end, 1);
    }
}

/* All elements of K, one after the other. */
static void emit_all_places(window *w, const tile *t, LLVMBasicBlockRef done, LLVMValueRef *sum) {
    emit *e = w->e;
    const int n = t->rows * t->columns * t->nv;
    LLVMValueRef next[WINDOW_MAX_TILE], b[8], zero = num(w, 0);
    LLVMBasicBlockRef entry = LLVMGetInsertBlock(e->b), body = em_block(e, "products");
    result_lines lines = result_of(w, t, 1);
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSGT, t->in[TOLD_COUNT], zero), body, done);
    LLVMPositionBuilderAtEnd(e->b, body);
    LLVMValueRef k = phi_of(w, zero, entry), weights = phi_of(w, t->in[TOLD_WEIGHTS], entry);
    for (int i = 0; i < n; i++) next[i] = sum[i] = phi_of(w, LLVMConstNull(w->t_vec), entry);
    prefetch_result(w, t, &lines, lines.first, entry, k);
    LLVMValueRef at = LLVMBuildLoad2(e->b, e->t_i64, em_gep(e, t->in[TOLD_TABLE], e->t_i64, k), "");
    prefetch_ahead(w, t->row, t->rows, t->in[TOLD_TABLE], k);
    prefetch_for_next(w, t, k);
    load_weights(w, t, weights, b);
    for (int i = 0; i < t->rows * t->columns; i++) add_column(w, t, i / t->columns, i % t->columns, at, b, next);
    LLVMValueRef k_then = em_add(e, k, num(w, 1)), then = element(w, weights, num(w, (int64_t)t->nv * w->v_lanes));
    LLVMBasicBlockRef end = LLVMGetInsertBlock(e->b);
    LLVMAddIncoming(k, &k_then, &end, 1);
    LLVMAddIncoming(weights, &then, &end, 1);
    if (lines.at) LLVMAddIncoming(lines.at, &lines.next, &end, 1);
    end_products(w, t, entry, body, done, k_then, next, sum);
}

/* The same row by row of places, of each channel those that the tile is told of: a loop over channels around one over
 * such rows, whose weights and offsets lie one behind the other. */
static void emit_rows_of_places(window *w, const tile *t, LLVMBasicBlockRef done, LLVMValueRef *sum) {
    emit *e = w->e;
    const int n = t->rows * t->columns * t->nv, width = t->nv * w->v_lanes, parts = t->rows == 2 ? 3 : 1;
    LLVMValueRef at[3][WINDOW_MAX_TILE], of_channel[WINDOW_MAX_TILE], across = num(w, w->across),
                                                                      lo = t->in[TOLD_BEGIN], hi = t->in[TOLD_END];
    LLVMBasicBlockRef entry = LLVMGetInsertBlock(e->b), channel = em_block(e, "channel"), body = em_block(e, "places"),
                      latch = em_block(e, "latch"), last = em_block(e, "last_of_channel"), from[3], block[3],
                      neither = NULL;
    LLVMValueRef first = em_mul(e, lo, across), met = em_mul(e, em_sub(e, hi, lo), across),
                 skipped = em_sub(e, num(w, (int64_t)w->down * w->across), met);
    LLVMValueRef is_any =
        em_and(e, em_icmp(e, LLVMIntSLT, lo, hi), em_icmp(e, LLVMIntSGT, t->in[TOLD_COUNT], num(w, 0)));
    LLVMValueRef weights_from = element(w, t->in[TOLD_WEIGHTS], em_mul(e, first, num(w, width))), channel_line = NULL;
    result_lines lines = result_of(w, t, w->across);
    LLVMBuildCondBr(e->b, is_any, channel, done);
    LLVMPositionBuilderAtEnd(e->b, channel);
    if (lines.end) channel_line = phi_of(w, lines.first, entry);
    LLVMValueRef channel_k = phi_of(w, first, entry), channel_weights = phi_of(w, weights_from, entry);
    for (int i = 0; i < n; i++) of_channel[i] = phi_of(w, LLVMConstNull(w->t_vec), entry);
    LLVMValueRef k_end = em_add(e, channel_k, met);
    LLVMBuildBr(e->b, body);
    LLVMPositionBuilderAtEnd(e->b, body);
    LLVMValueRef k = phi_of(w, channel_k, channel), y = parts > 1 ? phi_of(w, lo, channel) : NULL,
                 weights = phi_of(w, channel_weights, channel);
    for (int i = 0; i < n; i++) sum[i] = phi_of(w, of_channel[i], channel);
    prefetch_result(w, t, &lines, channel_line, channel, k);
    LLVMValueRef off = LLVMBuildLoad2(e->b, e->t_i64, em_gep(e, t->in[TOLD_TABLE], e->t_i64, k), "");
    prefetch_ahead(w, t->row, t->rows, t->in[TOLD_TABLE], k);
    for (int p = 0; p < w->across; p++) prefetch_for_next(w, t, em_add(e, k, num(w, p)));
    block[0] = LLVMGetInsertBlock(e->b);
    if (parts > 1) {
        LLVMBasicBlockRef not_both = em_block(e, "not_both");
        block[0] = em_block(e, "both");
        block[1] = em_block(e, "one");
        block[2] = em_block(e, "other");
        LLVMBuildCondBr(
            e->b, em_and(e, em_icmp(e, LLVMIntSGE, y, t->in[TOLD_FROM]), em_icmp(e, LLVMIntSLT, y, t->in[TOLD_TO])),
            block[0], not_both);
        LLVMPositionBuilderAtEnd(e->b, not_both);
        neither = em_block(e, "neither");
        LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSGE, y, t->in[TOLD_FROM]), block[1], neither);
        LLVMPositionBuilderAtEnd(e->b, neither); /* behind what the second row meets, before the first one */
        LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSLT, y, t->in[TOLD_TO]), block[2], latch);
    }
    for (int part = 0; part < parts; part++) {
        const int begin = part == 2, end = part == 1 ? 1 : t->rows;
        LLVMPositionBuilderAtEnd(e->b, block[part]);
        for (int i = 0; i < n; i++) at[part][i] = sum[i];
        LLVMValueRef x = off, of_place = weights;
        for (int p = 0; p < w->across; p++) {
            if (p) { /* what several places meet, or the next one, would be in registers that sums need */
                x = em_opaque(e, x);
                of_place = em_opaque(e, element(w, of_place, num(w, width)));
            }
            add_place(w, t, begin, end, x, of_place, p, at[part]);
        }
        from[part] = LLVMGetInsertBlock(e->b);
        LLVMBuildBr(e->b, latch);
    }
    LLVMPositionBuilderAtEnd(e->b, latch);
    LLVMValueRef next[WINDOW_MAX_TILE];
    for (int i = 0; i < n; i++) {
        next[i] = phi_of(w, at[0][i], from[0]);
        for (int part = 1; part < parts; part++) LLVMAddIncoming(next[i], &at[part][i], &from[part], 1);
        if (neither) LLVMAddIncoming(next[i], &sum[i], &neither, 1);
        LLVMAddIncoming(sum[i], &next[i], &latch, 1);
        sum[i] = of_channel[i];
    }
    LLVMValueRef k_then = em_add(e, k, across), then = element(w, weights, num(w, (int64_t)w->across * width));
    LLVMAddIncoming(k, &k_then, &latch, 1);
    LLVMAddIncoming(weights, &then, &latch, 1);
    if (lines.at) LLVMAddIncoming(lines.at, &lines.next, &latch, 1);
    if (y) {
        LLVMValueRef y_then = em_add(e, y, num(w, 1));
        LLVMAddIncoming(y, &y_then, &latch, 1);
    }
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntSLT, k_then, k_end), body, last);
    LLVMPositionBuilderAtEnd(e->b, last);
    k_then = em_add(e, k_then, skipped);
    then = element(w, then, em_mul(e, skipped, num(w, width)));
    LLVMAddIncoming(channel_k, &k_then, &last, 1);
    LLVMAddIncoming(channel_weights, &then, &last, 1);
    if (lines.at) LLVMAddIncoming(channel_line, &lines.next, &last, 1);
    end_products(w, t, entry, channel, done, k_then, next, sum);
}

void window_emit_channel_tile(window *w, window_function f) {
    emit *e = w->e;
    tile t = {.nv = f == NARROW ? 1 : w->nv,
              .rows = w->tile_rows && f == TILE ? w->tile_rows : 1,
              .columns = w->has_lower && f == LAST ? w->mr - 1 : window_row_columns(w)};
    const int nv = t.nv, n = t.rows * t.columns * nv;
    LLVMTypeRef parameter[WINDOW_TOLD] = {e->t_ptr, e->t_ptr, e->t_ptr, e->t_i64, e->t_ptr,
                                          e->t_i64, e->t_ptr, e->t_i64, e->t_ptr, e->t_i64,
                                          e->t_i64, e->t_i64, e->t_i64, e->t_ptr, e->t_i64};
    static const char *const name[] = {[TILE] = "tile", [NARROW] = "narrow", [LAST] = "last"};
    if (w->has_pairs && !w->is_slow) { /* a function of its own: or both would keep sums in memory */
        w->is_slow = true;
        window_emit_channel_tile(w, f);
        w->is_slow = false;
    }
    const LLVMValueRef by_fma = w->function[f];
    window_outer *o = window_begin(w, f, w->is_slow ? "by_fma" : name[f], parameter, (unsigned)window_n_told(w));
    LLVMValueRef b[8], sum[WINDOW_MAX_TILE], to[WINDOW_MAX_TILE], *in = t.in;
    LLVMGetParams(e->fn, in);
    if (w->has_pairs && !w->is_slow) window_leave_if_slow(w, f, by_fma, in[TOLD_FIRST], in, window_n_told(w));
    t.row[0] = in[TOLD_OPERAND];
    for (int r = 1; r < t.rows; r++) t.row[r] = element(w, t.row[r - 1], in[TOLD_PITCH]);
    e->lanes = w->v_lanes;
    LLVMBasicBlockRef done = em_block(e, "sums"), add = em_block(e, "add"), first = em_block(e, "first");
    if (w->leaves_out) emit_rows_of_places(w, &t, done, sum);
    else emit_all_places(w, &t, done, sum);
    for (int i = 0; i < n; i++)
        to[i] = element(w, in[TOLD_SUMS], num(w, i / nv * window_sums_apart(w) + i % nv * w->v_lanes));
    LLVMBuildCondBr(e->b, em_icmp(e, LLVMIntNE, in[TOLD_BEFORE], num(w, 0)), add, first);
    LLVMBasicBlockRef blocks[2] = {add, first};
    LLVMValueRef zero = LLVMConstNull(w->t_vec);
    for (int g = 0; g < 2; g++) {
        LLVMPositionBuilderAtEnd(e->b, blocks[g]);
        if (g && w->drops_sign && w->is_transposed) { /* by how many products the phase has, as window_tile.c */
            LLVMValueRef is_many = em_icmp(e, LLVMIntSGE, in[TOLD_COUNT], num(w, IR_WINDOW_UNSIGNED));
            zero = em_splat(e, em_select(e, is_many, LLVMConstReal(w->t_acc, 0), LLVMConstReal(w->t_acc, -0.0)));
        }
        for (int j = 0; j < nv && g && w->adds; j++)
            b[j] = window_load_vector(w, element(w, in[TOLD_FIRST], num(w, j * w->v_lanes)));
        for (int i = 0; i < n; i++) {
            LLVMValueRef more = !g ? window_load_vector(w, to[i]) : w->adds ? b[i % nv] : NULL, x = sum[i];
            if (!more && w->drops_sign) more = zero;
            if (more) x = ir_is_float(w->acc) ? em_fadd(e, more, x) : em_add(e, more, x);
            LLVMSetAlignment(LLVMBuildStore(e->b, x, to[i]), (unsigned)w->bytes);
        }
        if (!g) LLVMBuildRetVoid(e->b);
    }
    window_end(w, o);
}
