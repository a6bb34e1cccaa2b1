/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* window_channels.c: convolutions whose vectors are channels made ("form channels", ir/kernel.h). The register tile is
 * mr columns x nr channels: for each element of K a vector or more of packed weights, and one element of the operand
 * for each column, which meets all lanes. So columns need not be vectors: rows of any length, and strides, cost the
 * same.
 *
 *   phase 0   WEIGHTS: v_lanes rows of weights as words, turned in registers to [K][channels]
 *   phase 1   a tile of work is rows y0 .. of one image and some of its channels
 *     SLAB    what it reads of the operand, with its pads; not where that can be read as it lies
 *     LINE    up to ir_window_columns columns, nr channels: sums [columns][nr], by TILE (window_channel_tile.c) or, of
 *             the vectors behind the last whole tile of channels, by NARROW, one K block after the other. A line
 *             is cut into tiles of mr and (LAST) of mr - 1 columns where registers are few (ir_window_has_lower), else
 *             its last columns are done with some before them, again. Where a tile is whole rows, all rows are one
 *             line, and those behind the last whole tile are done by LAST, one at a time, as are all by NARROW: so on
 *             small images a vector of weights meets many columns, and none is done twice. Products with pads are left
 *             out where that is known (window_pads.c)
 *     TURN    the sums as [nr][columns], unless what is stored has its channels last
 *     FINISH  the program behind them (window.c)
 *
 * The order that an element is accumulated in is that of the other forms: K blocks of kb, k by k. */
#include "jit/window.h"
#include <string.h>

static LLVMValueRef vectors_of(window *w, LLVMValueRef channels) {
    return LLVMBuildUDiv(w->e->b, em_add(w->e, channels, num(w, w->v_lanes - 1)), num(w, w->v_lanes), "");
}
static int64_t sums_columns(const window *w) {
    return (ir_window_columns(w->k) * w->turns + w->v_lanes - 1) / w->v_lanes * w->v_lanes;
}

/* The buffer whose lines tiles prefetch while they multiply, where sums are of few products, so that what stores wait
 * for is felt: a channel's lines are too far from those of the one before for the hardware. -1: none; of very few
 * products the instructions are felt more, and of many by rows of places: where K is not known, only tiles of all
 * places prefetch, in the first steps of each K block. (Cascade Lake, one thread, over the time without: 7x7 of 3 channels
 * to 64 of 112x112 0.79, 3x3 of 64 of 64x64 0.88, of 64 of 128x128 to 32 0.9, of 64 of 56x56 0.91; 1x1 of 256 of 56x56
 * to 64 0.79, of 128 to 128 0.8, of 256 of 28x28 to 512 0.87, of 1024 of 14x14 to 256 1.0; of 16 of 112x112 to 64 1.03.)
 */
static int result_to_prefetch(const window *w) {
    enum { MOST = 640 };
    const int64_t kk = window_known_k(w);
    const bool prefetches = kk < 0 ? !w->leaves_out : kk >= IR_WINDOW_PREFETCH && kk <= MOST;
    if (w->is_transposed || !w->e->level->has_mask || !prefetches) return -1;
    return window_result(w);
}

void window_set_channels(window *w, LLVMValueRef scratch) {
    emit *e = w->e;
    w->result = result_to_prefetch(w);
    const int64_t bytes = (sums_columns(w) * w->nr * w->bytes + 63) / 64 * 64;
    LLVMValueRef made = window_all_weights(w, em_mul(e, vectors_of(w, e->size[w->dim_m]), num(w, w->v_lanes)));
    w->tile = scratch;
    w->panel = em_gep(e, w->tile, e->t_i8, num(w, bytes));
    w->slab = em_gep(e, w->panel, e->t_i8, num(w, bytes));
    w->sums_pitch = (int)sums_columns(w);
    w->weight_base = e->shared;
    LLVMValueRef all = em_mul(e, em_mul(e, made, w->kk), num(w, w->bytes));
    w->first_sums = em_gep(e, e->shared, e->t_i8, em_and(e, em_add(e, all, num(w, 63)), num(w, -64)));
}

/* ---- weights ---- */
/* Where vector v of a batch's channels lies, and the elements from one k to the next. */
static LLVMValueRef packed_at(window *w, LLVMValueRef v, LLVMValueRef *step) {
    emit *e = w->e;
    LLVMValueRef nv = num(w, w->nv), lanes = num(w, w->v_lanes), tile = LLVMBuildUDiv(e->b, v, nv, "");
    LLVMValueRef whole = LLVMBuildUDiv(e->b, vectors_of(w, e->size[w->dim_m]), nv, "");
    LLVMValueRef is_whole = em_icmp(e, LLVMIntSLT, tile, whole), first = em_mul(e, tile, nv);
    LLVMValueRef at = em_add(e, em_mul(e, first, w->kk), em_sub(e, v, first));
    at = em_select(e, is_whole, at, em_mul(e, v, w->kk));
    if (step) *step = em_select(e, is_whole, em_mul(e, nv, lanes), lanes);
    return em_mul(e, at, lanes);
}

/* Rows `from` of v_lanes, `pitch` elements apart, k0 .. k0 + v_lanes - 1 of each. */
static void turn_block(window *w, LLVMValueRef from, LLVMValueRef pitch, LLVMValueRef to, LLVMValueRef apart) {
    emit *e = w->e;
    LLVMValueRef v[EM_MAX_SIDE];
    for (int i = 0; i < w->v_lanes; i++) v[i] = window_load_vector(w, element(w, from, em_mul(e, pitch, num(w, i))));
    em_turn(e, v, w->v_lanes, w->bytes);
    for (int i = 0; i < w->v_lanes; i++)
        LLVMSetAlignment(LLVMBuildStore(e->b, v[i], element(w, to, em_mul(e, apart, num(w, i)))), (unsigned)w->bytes);
}

/* (args, begin, end): vectors of channels, of all batches of weights. */
static void emit_weights(window *w) {
    emit *e = w->e;
    LLVMTypeRef parameter[3] = {e->t_ptr, e->t_i64, e->t_i64};
    window_outer *o = window_begin(w, WEIGHTS, "weights", parameter, 3);
    LLVMValueRef zero = num(w, 0), one = num(w, 1), lanes = num(w, w->v_lanes), m = e->size[w->dim_m], apart;
    LLVMValueRef vectors = vectors_of(w, m), stage = w->slab;
    const int before = e->lanes;
    e->lanes = 1;
    em_loop l = em_for(e, LLVMGetParam(e->fn, 1), LLVMGetParam(e->fn, 2), one);
    LLVMValueRef batch = LLVMBuildUDiv(e->b, l.i, vectors, ""), v = LLVMBuildURem(e->b, l.i, vectors, "");
    LLVMValueRef channel = em_mul(e, v, lanes), rows = em_min(e, lanes, em_sub(e, m, channel));
    const bool in_place = w->is_transposed && e->level->has_mask; /* vectors of channels, as they lie */
    LLVMValueRef number = em_add(e, em_mul(e, batch, m), channel);
    if (!in_place) window_emit_weight_rows(w, number, rows, stage);
    LLVMValueRef to = em_add(e, packed_at(w, v, &apart), em_mul(e, em_mul(e, batch, em_mul(e, vectors, lanes)), w->kk));
    to = element(w, w->weight_base, to);
    if (in_place) {
        e->lanes = w->v_lanes;
        window_pack_phases(w, window_weights_row(w, number), e->stride[w->weights][w->dim_m], em_mask(e, rows), to,
                           apart);
        em_end(e, &l);
        e->lanes = before;
        window_end(w, o);
        return;
    }
    if (w->adds) {
        em_loop r = em_for(e, zero, rows, one);
        LLVMValueRef sum = window_sum_of_row(w, element(w, stage, em_mul(e, r.i, w->kk)));
        LLVMValueRef at = em_add(e, em_mul(e, l.i, lanes), r.i);
        LLVMSetAlignment(LLVMBuildStore(e->b, sum, element(w, w->first_sums, at)), 4);
        em_end(e, &r);
    }
    if (w->leaves_out || w->has_pairs) { /* channels that are not there are finite */
        em_loop z = em_for(e, em_mul(e, rows, w->kk), em_mul(e, lanes, w->kk), one);
        LLVMSetAlignment(LLVMBuildStore(e->b, LLVMConstNull(w->t_acc), element(w, stage, z.i)), (unsigned)w->bytes);
        em_end(e, &z);
    }
    em_branch wide = em_if(e, em_icmp(e, LLVMIntSGE, w->kk, lanes)); /* the last block begins earlier, to be whole */
    em_loop b = em_for(e, zero, w->kk, lanes);
    LLVMValueRef k = em_min(e, b.i, em_sub(e, w->kk, lanes));
    turn_block(w, element(w, stage, k), w->kk, element(w, to, em_mul(e, k, apart)), apart);
    em_end(e, &b);
    em_else(e, &wide);
    em_loop r = em_for(e, zero, w->leaves_out || w->has_pairs ? lanes : rows, one);
    em_loop c = em_for(e, zero, w->kk, one);
    LLVMValueRef x = LLVMBuildLoad2(e->b, w->t_acc, element(w, stage, em_add(e, em_mul(e, r.i, w->kk), c.i)), "");
    LLVMSetAlignment(x, (unsigned)w->bytes);
    LLVMSetAlignment(LLVMBuildStore(e->b, x, element(w, to, em_add(e, em_mul(e, c.i, apart), r.i))),
                     (unsigned)w->bytes);
    em_end(e, &c);
    em_end(e, &r);
    em_endif(e, &wide);
    if (w->has_pairs) window_store_exponent(w, to, w->kk, apart, element(w, w->first_sums, em_mul(e, l.i, lanes)));
    if (w->leaves_out) {
        LLVMValueRef sum = window_check_weights(w, to, apart), at = element(w, w->first_sums, em_mul(e, l.i, lanes));
        LLVMSetAlignment(LLVMBuildStore(e->b, sum, at), (unsigned)w->bytes);
    }
    em_end(e, &l);
    e->lanes = before;
    window_end(w, o);
}

/* ---- sums ---- */
/* Not where the plan says that all tiles have all vectors: it is a tenth to a fifth of what is compiled. */
static bool has_narrow(const window *w) { return w->nv > 1 && !w->k->has_whole_channels; }

/* A tile of one vector of channels where is_narrow, else f. */
static void call_narrow_or(window *w, window_function f, LLVMValueRef *of_tile, LLVMValueRef is_narrow) {
    em_branch b = {0};
    if (has_narrow(w)) {
        b = em_if(w->e, is_narrow);
        window_call(w, NARROW, of_tile, window_n_told(w));
        em_else(w->e, &b);
    }
    window_call(w, f, of_tile, window_n_told(w));
    if (has_narrow(w)) em_endif(w->e, &b);
}

static LLVMTypeRef result_type(const window *w) { return em_memory_type(w->e, w->k->buffer[w->result].dtype); }

/* Tells a tile which places its rows meet, the first of which is row y of the result. */
static void tell_places(window *w, LLVMValueRef *of_tile, LLVMValueRef y, int rows) {
    LLVMValueRef begin, end;
    if (!w->leaves_out) return;
    window_rows_met(w, y, &of_tile[TOLD_FROM], &of_tile[TOLD_END]);
    window_rows_met(w, em_add(w->e, y, num(w, rows - 1)), &begin, &end);
    of_tile[TOLD_BEGIN] = em_min(w->e, of_tile[TOLD_FROM], begin);
    of_tile[TOLD_END] = em_max(w->e, of_tile[TOLD_END], end);
    of_tile[TOLD_TO] = end;
}

/* Tiles of a line that goes from row to row, the first of which is y: whole rows. of_tile: what they are told. */
static void emit_row_tiles(window *w, LLVMValueRef *of_tile, LLVMValueRef columns, LLVMValueRef is_narrow,
                           LLVMValueRef y) {
    emit *e = w->e;
    LLVMValueRef mr = num(w, w->mr), n = num(w, window_row_columns(w)), zero = num(w, 0),
                 operand = of_tile[TOLD_OPERAND], sums = of_tile[TOLD_SUMS], next = of_tile[TOLD_NEXT],
                 result = of_tile[TOLD_RESULT];
    LLVMValueRef whole = em_mul(e, LLVMBuildUDiv(e->b, columns, mr, ""), mr);
    whole = em_select(e, is_narrow, zero, whole);
    for (int is_last = 0; is_last < 2; is_last++) {
        em_loop l = em_for(e, is_last ? whole : zero, is_last ? columns : whole, is_last ? n : mr);
        LLVMValueRef row = LLVMBuildUDiv(e->b, l.i, n, "");
        of_tile[TOLD_OPERAND] = element(w, operand, em_mul(e, row, w->pitch));
        LLVMValueRef vector = LLVMBuildURem(e->b, LLVMBuildUDiv(e->b, l.i, is_last ? n : mr, ""), num(w, w->nv), "");
        of_tile[TOLD_NEXT] = element(w, next, em_mul(e, vector, num(w, EM_LINE_BYTES / w->bytes)));
        of_tile[TOLD_SUMS] = element(w, sums, em_mul(e, l.i, num(w, window_sums_apart(w))));
        if (w->result >= 0) of_tile[TOLD_RESULT] = em_gep(e, result, result_type(w), l.i);
        tell_places(w, of_tile, em_add(e, y, row), is_last ? 1 : w->tile_rows);
        if (is_last) call_narrow_or(w, w->tile_rows > 1 ? LAST : TILE, of_tile, is_narrow);
        else window_call(w, TILE, of_tile, window_n_told(w));
        em_end(e, &l);
    }
}

/* Tells a tile of `width` columns of row y whether it is the first and the last part of that; of several rows it is
 * neither. */
static void tell_place_in_row(window *w, LLVMValueRef *of_tile, LLVMValueRef y, LLVMValueRef column, int width) {
    emit *e = w->e;
    if (!w->leaves_out) return;
    LLVMValueRef is_row = em_icmp(e, LLVMIntSGE, y, num(w, 0)), last = em_sub(e, e->size[w->dim_n], num(w, width));
    LLVMValueRef is[2] = {em_icmp(e, LLVMIntEQ, column, num(w, 0)), em_icmp(e, LLVMIntEQ, column, last)};
    for (int i = 0; i < 2; i++) of_tile[TOLD_FROM + i] = LLVMBuildZExt(e->b, em_and(e, is_row, is[i]), e->t_i64, "");
}

/* Tiles of columns for a line of so many. */
static LLVMValueRef tiles_of(window *w, LLVMValueRef columns) {
    return LLVMBuildUDiv(w->e->b, em_add(w->e, columns, num(w, w->mr - 1)), num(w, w->mr), "");
}

/* Tiles of `width` columns from `begin` to `end`, of a line that begins at `column`; one that would begin behind
 * `last` begins there, and its sums go where they would have. */
static void emit_column_tiles_of(window *w, window_function f, int width, const LLVMValueRef *of_line,
                                 LLVMValueRef begin, LLVMValueRef end, LLVMValueRef last, LLVMValueRef is_narrow,
                                 LLVMValueRef y, LLVMValueRef column) {
    emit *e = w->e;
    LLVMValueRef of_tile[WINDOW_TOLD];
    memcpy(of_tile, of_line, sizeof of_tile);
    em_loop l = em_for(e, begin, end, num(w, width));
    LLVMValueRef at = last ? em_min(e, l.i, last) : l.i;
    of_tile[TOLD_OPERAND] = element(w, of_line[TOLD_OPERAND], em_mul(e, at, num(w, window_columns_apart(w))));
    tell_place_in_row(w, of_tile, y, em_add(e, column, at), width);
    of_tile[TOLD_SUMS] = element(w, of_line[TOLD_SUMS], em_mul(e, l.i, num(w, window_sums_apart(w))));
    if (w->result >= 0) of_tile[TOLD_RESULT] = em_gep(e, of_line[TOLD_RESULT], result_type(w), l.i);
    if (f == TILE) call_narrow_or(w, f, of_tile, is_narrow);
    else window_call(w, f, of_tile, window_n_told(w));
    em_end(e, &l);
}

/* Tiles of some columns, from `column` on, of one row, or of rows with what lies between them (y < 0): those of mr - 1,
 * where there are such, behind the others (`higher` columns). */
static void emit_column_tiles(window *w, const LLVMValueRef *of_line, LLVMValueRef columns, LLVMValueRef higher,
                              LLVMValueRef is_narrow, LLVMValueRef y, LLVMValueRef column) {
    LLVMValueRef last = em_max(w->e, em_sub(w->e, columns, num(w, w->mr)), num(w, 0));
    emit_column_tiles_of(w, TILE, w->mr, of_line, num(w, 0), higher, last, is_narrow, y, column);
    if (w->has_lower) emit_column_tiles_of(w, LAST, w->mr - 1, of_line, higher, columns, NULL, is_narrow, y, column);
}

/* How many columns are of tiles of mr: all, or as many as leave a multiple of mr - 1 (not for NARROW ones). */
static LLVMValueRef higher_columns(window *w, LLVMValueRef columns, LLVMValueRef is_narrow) {
    emit *e = w->e;
    if (!w->has_lower) return columns;
    LLVMValueRef tiles = tiles_of(w, columns), mr = num(w, w->mr), lower = em_sub(e, em_mul(e, tiles, mr), columns);
    LLVMValueRef is_cut = em_and(e, em_icmp(e, LLVMIntSLE, lower, tiles), LLVMBuildNot(e->b, is_narrow, ""));
    return em_select(e, is_cut, em_mul(e, em_sub(e, tiles, lower), mr), columns);
}

/* The columns of the last of some tiles before its own are those of the tile before, once more: its own go where these
 * are. */
static void put_last_columns(window *w, LLVMValueRef sums, LLVMValueRef columns, LLVMValueRef width) {
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), one = num(w, 1), mr = num(w, w->mr), nr = num(w, window_sums_apart(w));
    LLVMValueRef last = em_max(e, em_sub(e, columns, mr), zero);
    LLVMValueRef own = em_mul(e, LLVMBuildUDiv(e->b, em_sub(e, columns, one), mr, ""), mr),
                 again = em_sub(e, own, last);
    em_loop c = em_for(e, em_select(e, em_icmp(e, LLVMIntSGT, again, zero), own, columns), columns, one);
    em_loop v = em_for(e, zero, width, num(w, w->v_lanes));
    LLVMValueRef to = em_add(e, em_mul(e, c.i, nr), v.i), from = em_add(e, to, em_mul(e, again, nr));
    LLVMValueRef x = window_load_vector(w, element(w, sums, from));
    LLVMSetAlignment(LLVMBuildStore(e->b, x, element(w, sums, to)), (unsigned)w->bytes);
    em_end(e, &v);
    em_end(e, &c);
}

/* With phases it is told of one: begin and end of its K; else, where tiles prefetch it, of the result (TOLD_RESULT). */
static unsigned n_line(const window *w) { return w->is_transposed || w->result >= 0 ? 11 : 9; }

/* (args, weights, operand, columns, is_narrow, sums, first, y, column): the sums of columns of a line, from `column` of
 * row y on; y < 0: it goes on from row to row, with what lies between. All columns meet one block of weights before the
 * next. */
static void emit_line(window *w) {
    emit *e = w->e;
    LLVMTypeRef parameter[11] = {e->t_ptr, e->t_ptr, e->t_ptr, e->t_i64, e->t_i64,
                                 e->t_ptr, e->t_ptr, e->t_i64, e->t_i64, w->result >= 0 ? e->t_ptr : e->t_i64,
                                 e->t_i64};
    window_outer *o = window_begin(w, LINE, "line", parameter, n_line(w));
    LLVMValueRef in[11], zero = num(w, 0), one = num(w, 1), kb = num(w, w->kb);
    LLVMGetParams(e->fn, in);
    LLVMValueRef is_narrow = has_narrow(w) ? em_icmp(e, LLVMIntNE, in[4], zero) : LLVMConstInt(e->t_i1, 0, 0),
                 higher = w->tile_rows ? NULL : higher_columns(w, in[3], is_narrow);
    LLVMValueRef width = em_select(e, is_narrow, num(w, w->v_lanes), num(w, w->nr));
    LLVMValueRef k_begin = w->is_transposed ? in[9] : zero, k_end = w->is_transposed ? in[10] : w->kk;
    em_loop lk = em_for(e, k_begin, em_max(e, k_end, em_add(e, k_begin, one)), kb); /* none: sums are 0 */
    LLVMValueRef weights = element(w, in[1], em_mul(e, lk.i, width)), table = em_gep(e, w->table, e->t_i64, lk.i),
                 count = em_min(e, em_sub(e, k_end, lk.i), kb);
    LLVMValueRef next = element(w, weights, em_mul(e, count, width));
    LLVMValueRef of_tile[WINDOW_TOLD] = {weights, in[2],    table, count, in[5], em_sub(e, lk.i, k_begin),
                                         in[6],   w->pitch, next};
    for (int i = TOLD_BEGIN; i < TOLD_RESULT; i++) of_tile[i] = zero;
    if (w->result >= 0) {
        of_tile[TOLD_RESULT] = in[9];
        of_tile[TOLD_APART] = in[10];
    }
    if (w->has_pairs)
        of_tile[TOLD_FIRST] = window_tell_slow(
            w, window_is_slow(w, in[6], LLVMBuildUDiv(e->b, width, num(w, w->v_lanes), ""), w->v_lanes));
    if (w->tile_rows) {
        emit_row_tiles(w, of_tile, in[3], is_narrow, in[7]);
    } else {
        tell_places(w, of_tile, in[7], 1);
        emit_column_tiles(w, of_tile, in[3], higher, is_narrow, in[7], in[8]);
    }
    em_end(e, &lk);
    if (!w->tile_rows) put_last_columns(w, in[5], higher, width);
    if (w->leaves_out) {
        em_branch is_row = em_if(e, em_icmp(e, LLVMIntSGE, in[7], zero));
        window_add_pads(w, (LLVMValueRef[]){in[0], in[1], in[3], width, in[5], in[7], in[8]}, in[6], width);
        em_endif(e, &is_row);
    }
    window_end(w, o);
}

/* (sums, to, columns, channels): to[channels][columns] = sums[columns][channels], in whole vectors. */
static void emit_turn(window *w) {
    emit *e = w->e;
    LLVMTypeRef parameter[4] = {e->t_ptr, e->t_ptr, e->t_i64, e->t_i64};
    window_outer *o = window_begin(w, TURN, "turn", parameter, 4);
    LLVMValueRef in[4], zero = num(w, 0), lanes = num(w, w->v_lanes), nr = num(w, w->nr), pitch = num(w, w->sums_pitch);
    LLVMGetParams(e->fn, in);
    em_loop c = em_for(e, zero, in[2], lanes);
    em_loop m = em_for(e, zero, in[3], lanes);
    turn_block(w, element(w, in[0], em_add(e, em_mul(e, c.i, nr), m.i)), nr,
               element(w, in[1], em_add(e, em_mul(e, m.i, pitch), c.i)), pitch);
    em_end(e, &m);
    em_end(e, &c);
    window_end(w, o);
}

/* ---- the kernel ---- */
/* Are the pads of the axis left out wherever a tile meets them (window_pads.c)? Of columns, those before a row so far
 * as its first tile reaches, of however many columns, so that none meets pads on both sides, and behind it those that
 * its last column alone meets: the tile before the last may end there. */
static bool leaves_out_pads_of(const window *w, const ir_kaxis *a) {
    if (a->begin == 0 && a->end <= 0) return true;
    if (!w->leaves_out || a->begin < 0) return false;
    if (a == window_axis(w, 1))
        return w->tile_rows <= 2; /* of more rows each takes the places that any of them meets */
    const int64_t reached = (w->mr - w->has_lower - 1) * a->stride;
    return a == window_axis(w, 0) && (w->tile_rows || (a->begin <= reached && a->end <= a->stride));
}

/* May the operand be read as it lies? Where pads are left out, nothing is to convert, and each row has a tile's
 * columns, or the tile whole rows. Planes that lie a multiple of 1 KB apart share few sets of L1 and L2, and what is
 * read of them several times is copied. (1x1, Cascade Lake, one thread: 640 channels of 32x32 0.66 of the time, 320
 * of 64x64 0.67, 1280 of 16x16 to 320 0.80, 256 of 64x64 to 64 0.89; of planes of 28x28, which do not, 1.07.) */
static LLVMValueRef is_in_place(window *w) {
    enum { FEW_SETS = 1024 };
    emit *e = w->e;
    LLVMValueRef n = e->size[w->dim_n], zero = num(w, 0), one = num(w, 1), fewest = n;
    if (w->cuts) { /* the last part's */
        fewest = LLVMBuildURem(e->b, n, w->columns, "");
        fewest = em_select(e, em_icmp(e, LLVMIntEQ, fewest, zero), w->columns, fewest);
    }
    LLVMValueRef is = em_icmp(e, LLVMIntSGE, fewest, num(w, window_row_columns(w)));
    const ir_kinst *x = &w->k->inst[w->k->inst[w->matmul].in[1]];
    if (w->k->has_last || x->op != IR_K_LOAD || x->dtype != w->acc || w->group > 1 || w->is_transposed) return NULL;
    for (int i = 0; i < w->k->n_axes; i++) {
        const ir_kaxis *a = &w->k->axis[i];
        if (!leaves_out_pads_of(w, a)) return NULL;
        LLVMValueRef count = a->dim >= 0 ? e->size[a->dim] : one, places = a->place >= 0 ? e->size[a->place] : one;
        LLVMValueRef last = em_add(e, em_mul(e, em_sub(e, count, one), num(w, a->stride)),
                                   em_mul(e, em_sub(e, places, one), num(w, a->dilation)));
        const int64_t pads = a->begin + (a->end > 0 ? a->end : 0);
        is = em_and(e, is, em_icmp(e, LLVMIntSLT, em_sub(e, last, num(w, pads)), axis_size(w, a)));
    }
    if (w->channels >= 0) {
        LLVMValueRef apart = em_mul(e, e->stride[w->operand][w->channels], num(w, w->bytes)),
                     is_spread = em_icmp(e, LLVMIntNE, em_and(e, apart, num(w, FEW_SETS - 1)), zero),
                     is_once = em_and(e, em_icmp(e, LLVMIntSLE, e->size[w->dim_m], num(w, w->nr)),
                                      em_icmp(e, LLVMIntEQ, w->places, one));
        is = em_and(e, is, em_or(e, is_spread, is_once));
    }
    return is;
}

/* From place 0 of the first element of a result to the operand's element 0 beside it, where it is read as it lies. */
static LLVMValueRef pads_before(window *w) {
    LLVMValueRef off = num(w, 0);
    for (int i = 0; i < 2; i++) {
        const ir_kaxis *a = window_axis(w, i);
        if (!a || a->begin == 0) continue;
        LLVMValueRef row = i ? axis_size(w, window_axis(w, 0)) : num(w, 1);
        off = em_add(w->e, off, em_mul(w->e, row, num(w, a->begin)));
    }
    return off;
}

/* All channels of a tile of work, of a line. in_place: i1, the operand is read as it lies; NULL: never. */
static void emit_channels(window *w, window_line *s, LLVMValueRef weights, LLVMValueRef first_sums,
                          LLVMValueRef in_place) {
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), m = e->size[w->dim_m], nr = num(w, w->nr), chunk = num(w, ir_window_columns(w->k)),
                 lanes = num(w, w->v_lanes), nv = num(w, w->nv);
    em_loop lm = em_for(e, s->m_begin, s->m_end, nr);
    LLVMValueRef left = em_min(e, nr, em_sub(e, m, lm.i)), vectors = vectors_of(w, left);
    LLVMValueRef is_whole = em_icmp(e, LLVMIntEQ, vectors, nv), v = LLVMBuildUDiv(e->b, lm.i, lanes, "");
    s->rows = left;
    em_loop l = em_for(e, zero, s->length, chunk);
    LLVMValueRef end = em_min(e, em_add(e, l.i, chunk), s->length), begin = l.i;
    if (in_place && !w->tile_rows) { /* a tile's columns at least, since nothing may be read behind them */
        LLVMValueRef last = em_max(e, em_sub(e, s->length, num(w, w->mr)), zero);
        begin = em_select(e, in_place, em_min(e, begin, last), begin);
    }
    LLVMValueRef columns = em_sub(e, end, begin);
    LLVMValueRef off = w->tile_rows ? em_mul(e, LLVMBuildUDiv(e->b, l.i, num(w, window_row_columns(w)), ""), w->pitch)
                                    : em_mul(e, begin, num(w, window_columns_apart(w)));
    LLVMValueRef from = element(w, s->from, off);
    em_loop ly = {0}, lx = {0};
    LLVMValueRef phase[3] = {zero, zero, s->phase}, last_told[2] = {0}, sums = w->tile, turns = num(w, w->turns);
    if (w->is_transposed) {
        ly = em_for(e, zero, num(w, w->phases[1]->n), num(w, 1));
        lx = em_for(e, zero, turns, num(w, 1));
        phase[1] = ly.i;
        phase[0] = lx.i;
        window_phase_range(w, phase, &last_told[0], &last_told[1]);
        sums = element(w, sums, em_mul(e, lx.i, nr));
    }
    em_loop lv = em_for(e, zero, vectors, em_select(e, is_whole, nv, num(w, 1)));
    LLVMValueRef at = em_add(e, v, lv.i), done = em_mul(e, lv.i, lanes);
    if (w->result >= 0) {
        LLVMValueRef step = window_step_of(w, w->result, w->dim_m),
                     first = em_add(e, window_told(w, s->block, w->result), begin);
        first = em_add(e, first, em_mul(e, em_add(e, lm.i, done), step));
        last_told[0] = em_gep(e, e->base[w->result], result_type(w), first);
        last_told[1] = em_mul(e, step, num(w, ir_dtypes[w->k->buffer[w->result].dtype].bytes));
    }
    window_call(w, LINE,
                (LLVMValueRef[]){
                    e->args, element(w, weights, packed_at(w, at, NULL)), from, columns,
                    em_select(e, is_whole, zero, num(w, 1)), element(w, sums, done),
                    ir_window_has_row_words(w->k) ? element(w, first_sums, em_mul(e, at, lanes)) : w->tile,
                    w->tile_rows ? em_add(e, s->y, LLVMBuildUDiv(e->b, l.i, num(w, window_row_columns(w)), "")) : s->y,
                    w->tile_rows ? zero
                    : s->x       ? em_add(e, s->x, begin)
                                 : begin,
                    last_told[0], last_told[1]},
                n_line(w));
    em_end(e, &lv);
    if (w->is_transposed) em_end(e, &lx);
    if (!w->stores_last) window_call(w, TURN, (LLVMValueRef[]){w->tile, w->panel, em_mul(e, columns, turns), left}, 4);
    window_line own = *s; /* the columns before l.i are made once more, and stored once */
    own.sums = element(w, s->sums, em_mul(e, em_sub(e, l.i, begin), num(w, window_finish_apart(w))));
    window_emit_segments(w, &own, l.i, end, lm.i, w->is_transposed ? phase[1] : NULL);
    if (w->is_transposed) em_end(e, &ly);
    em_end(e, &l);
    em_end(e, &lm);
}

/* How long the line of `count` rows of n columns is, and what in it is a row's. i1: is it one for all rows? Where
 * tiles are whole rows it is; else where that is fewer tiles, with what lies between the rows: not pads, unless they
 * are in the slab. */
static LLVMValueRef lay_line(window *w, window_line *s, LLVMValueRef count, LLVMValueRef n, LLVMValueRef pitch,
                             LLVMValueRef in_place) {
    emit *e = w->e;
    if (w->tile_rows) {
        LLVMValueRef is_run = w->is_transposed ? NULL : window_is_one_run(w);
        s->length = em_mul(e, count, n);
        s->row = s->pitch = is_run ? em_select(e, is_run, s->length, n) : n;
        return LLVMConstInt(e->t_i1, 1, 0);
    }
    LLVMValueRef step = num(w, window_columns_apart(w)), apart = LLVMBuildUDiv(e->b, pitch, step, "");
    LLVMValueRef flat = em_add(e, em_mul(e, em_sub(e, count, num(w, 1)), apart), n);
    LLVMValueRef is_flat =
        em_and(e, em_icmp(e, LLVMIntSGE, apart, n), em_icmp(e, LLVMIntEQ, em_mul(e, apart, step), pitch));
    LLVMValueRef tiles = em_mul(e, count, tiles_of(w, n)), is_fewer = em_icmp(e, LLVMIntSLT, tiles_of(w, flat), tiles);
    if (w->has_lower) { /* where no column of a row is done twice, those between rows would be more */
        LLVMValueRef is_twice = em_icmp(e, LLVMIntEQ, higher_columns(w, n, LLVMConstInt(e->t_i1, 0, 0)), n);
        is_twice = em_and(e, is_twice, em_icmp(e, LLVMIntNE, LLVMBuildURem(e->b, n, num(w, w->mr), ""), num(w, 0)));
        is_fewer = em_and(e, is_fewer, em_or(e, is_twice, em_icmp(e, LLVMIntEQ, apart, n)));
    }
    is_flat = em_and(e, is_flat, is_fewer);
    if (in_place && w->leaves_out) is_flat = em_and(e, is_flat, LLVMBuildNot(e->b, in_place, ""));
    s->length = em_select(e, is_flat, flat, n);
    s->pitch = em_select(e, is_flat, apart, n);
    s->row = n;
    return is_flat;
}

static void emit_work(window *w, LLVMValueRef rows, LLVMValueRef in_place, LLVMValueRef pitch) {
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), one = num(w, 1), m = e->size[w->dim_m], nr = num(w, w->nr),
                 index[IR_KERNEL_MAX_DIMS] = {0}, blocks = window_parts(w, rows);
    LLVMValueRef each = em_max(e, e->tune[IR_TUNE_WINDOW_CHANNELS], nr);
    LLVMValueRef parts = window_divide_up(w, m, each);
    LLVMValueRef vectors = vectors_of(w, m), slab_of = em_alloca(e, e->t_i64, 8);
    window_line s = {.sums = w->stores_last ? w->tile : w->panel, .phase = zero, .block = window_new_block(w)};
    LLVMBuildStore(e->b, num(w, -1), slab_of);
    em_loop t = em_for(e, e->tile_begin, e->tile_end, one);
    LLVMValueRef place = LLVMBuildUDiv(e->b, t.i, parts, ""), part = LLVMBuildURem(e->b, t.i, parts, "");
    const window_part there = window_part_of(w, LLVMBuildURem(e->b, place, blocks, ""), rows);
    const LLVMValueRef y0 = there.y, count = there.rows;
    s.x = there.x;
    window_decode(w, LLVMBuildUDiv(e->b, place, blocks, ""), window_batch_dims(w), index);
    s.m_begin = em_mul(e, part, each);
    s.m_end = em_min(e, m, em_add(e, s.m_begin, each));
    w->tile_row = y0;
    w->tile_channel = s.m_begin;
    LLVMValueRef batch = em_mul(e, em_mul(e, window_weights_batch(w, index), vectors), num(w, w->v_lanes));
    LLVMValueRef weights = element(w, w->weight_base, em_mul(e, batch, w->kk)),
                 first_sums = element(w, w->first_sums, batch), from = w->slab;
    LLVMValueRef z = window_outer_phase(w, window_outer_index(w, index), &s.phase);
    /* another part of the same rows has made the slab */
    LLVMValueRef is_new = em_icmp(e, LLVMIntNE, LLVMBuildLoad2(e->b, e->t_i64, slab_of, ""), place);
    if (in_place) is_new = em_and(e, is_new, em_xor(e, in_place, LLVMConstInt(e->t_i1, 1, 0)));
    em_branch b = em_if(e, is_new);
    LLVMBuildStore(e->b, place, slab_of);
    window_make_slab(w, index, z, &there, rows);
    em_endif(e, &b);
    index[w->dim_y] = y0;
    index[w->dim_n] = there.x;
    if (in_place)
        from = em_select(
            e, in_place,
            element(w, e->base[w->operand], em_sub(e, window_offset_of(w, w->operand, index), pads_before(w))), from);
    LLVMValueRef is_flat = lay_line(w, &s, count, there.columns, pitch, in_place);
    em_loop l = em_for(e, zero, em_select(e, is_flat, one, count), one);
    s.from = element(w, from, em_mul(e, l.i, pitch));
    s.y = s.top = index[w->dim_y] = em_add(e, y0, l.i);
    if (!w->tile_rows) s.y = em_select(e, is_flat, num(w, -1), s.y);
    window_write_block(w, s.block, index);
    emit_channels(w, &s, weights, first_sums, in_place);
    em_end(e, &l);
    window_end_tile(w, s.block, em_sub(e, s.m_end, s.m_begin), count);
    em_end(e, &t);
}

void window_emit_channels(window *w) {
    emit *e = w->e;
    LLVMValueRef rows = window_tile_of_rows(w);
    window_emit_channel_tile(w, TILE);
    if (has_narrow(w)) window_emit_channel_tile(w, NARROW);
    if (w->tile_rows > 1 || w->has_lower) window_emit_channel_tile(w, LAST);
    if (w->leaves_out) window_emit_pads(w);
    emit_line(w);
    if (!w->stores_last) emit_turn(w);
    window_emit_slab(w);
    emit_weights(w);
    em_branch phase = em_if(e, em_icmp(e, LLVMIntEQ, e->phase, LLVMConstInt(LLVMTypeOf(e->phase), 0, 0)));
    window_call(w, WEIGHTS, (LLVMValueRef[]){e->args, e->tile_begin, e->tile_end}, 3);
    em_else(e, &phase);
    const window_slab slab = window_slab_of(w, rows);
    const ir_kaxis *y = w->k->n_axes > 1 ? &w->k->axis[w->k->n_axes - 2] : NULL;
    LLVMValueRef in_place = is_in_place(w), pitch = em_mul(e, slab.pitch, num(w, y ? y->stride : 1));
    if (in_place) {
        em_branch b = em_if(e, in_place);
        window_emit_table(w, NULL);
        em_else(e, &b);
        window_emit_table(w, &slab);
        em_endif(e, &b);
        pitch = em_select(e, in_place, e->stride[w->operand][w->dim_y], pitch);
    } else window_emit_table(w, &slab);
    LLVMBuildStore(e->b, pitch, e->scratch);
    w->pitch = pitch;
    emit_work(w, rows, in_place, pitch);
    em_endif(e, &phase);
}
