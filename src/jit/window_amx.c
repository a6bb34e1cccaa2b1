/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* window_amx.c: convolutions by tile registers (AMX; the TILE_ form of ir/kernel.h): channels are rows of tiles, columns
 * of the result their columns, and K is places, then channels.
 *
 *   weights        phase 0: panels of 32 channels, packed as tiles of operand 0
 *   slab           window_slab.c: a plane for each word of channels. A tile of operand 1 is a line of 16 planes, at the
 *                  place that it is of: nothing is copied for each place
 *   tile of work   rows of an image by the channels of a share: the rows are one line, with what lies between them, or
 *                  one after the other, whichever is less; panels of 32 columns meet all channels of a part of the share
 *                  that stays in L2 (IR_TUNE_WINDOW_CHANNELS)
 *   sums           amx.c, in scratch, a K block after the other; then FINISH, by rows (window.c), beside the next panel
 *
 * Where bf16 could be subnormal, which the instruction takes for 0, the same sums in the same order are made by fma. */
#include "jit/amx.h"
#include "jit/window.h"

enum { TILE_BYTES = AMX_COLUMNS * AMX_ROW_BYTES, SUMS_BYTES = AMX_COLUMNS * AMX_LINE_BYTES, WORD_BYTES = 4 };

static LLVMValueRef behind(window *w, LLVMValueRef at, LLVMValueRef bytes) {
    return em_gep(w->e, at, w->e->t_i8, bytes);
}

static LLVMValueRef panels_made(window *w) { return window_divide_up(w, w->e->size[w->dim_m], num(w, w->mr)); }
static LLVMValueRef steps_of(window *w) { return em_lshr(w->e, w->kk, 4); } /* a step has AMX_SIDE words */

void window_set_tiled(window *w) {
    emit *e = w->e;
    LLVMValueRef panels = window_all_weights(w, panels_made(w)),
                 table_bytes = window_round_up(w, em_mul(e, steps_of(w), num(w, 8)));
    w->table = behind(w, e->scratch, num(w, IR_SLAB_HEAD));
    w->tile = behind(w, w->table, table_bytes);
    w->slab = behind(w, w->tile, num(w, 2 * SUMS_BYTES));
    w->weight_base = e->shared;
    w->first_sums = behind(w, e->shared, em_mul(e, em_mul(e, panels, w->kk), num(w, (int64_t)w->mr * WORD_BYTES)));
}

/* Where the first word of each step is in the slab. */
static void emit_table(window *w, const window_slab *slab) {
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), one = num(w, 1), at = zero, of_axis[IR_KERNEL_MAX_AXES] = {0};
    em_loop l[IR_KERNEL_MAX_AXES];
    const int n = w->k->n_axes - w->k->n_folded;
    for (int i = 0; i < n; i++) {
        LLVMValueRef places = w->k->axis[i].place < 0 ? one : e->size[w->k->axis[i].place];
        l[i] = em_for(e, zero, places, one);
        of_axis[i] = l[i].i;
        at = em_add(e, em_mul(e, at, places), l[i].i);
    }
    LLVMValueRef words = window_channel_words(w);
    em_loop lc = em_for(e, zero, words, num(w, AMX_SIDE));
    LLVMValueRef step = em_lshr(e, em_add(e, em_mul(e, at, words), lc.i), 4);
    LLVMBuildStore(e->b, window_slab_place(w, slab, lc.i, of_axis), em_gep(e, w->table, e->t_i64, step));
    em_end(e, &lc);
    for (int i = n - 1; i >= 0; i--) em_end(e, &l[i]);
}

/* ---- weights ---- */
/* Stores words (e->lanes of them) from number `word` on of a row of the tiles at `row`. */
static void put_words(window *w, LLVMValueRef x, LLVMValueRef row, LLVMValueRef word) {
    emit *e = w->e;
    LLVMValueRef step = em_mul(e, em_lshr(e, word, 4), num(w, TILE_BYTES)),
                 within = em_and(e, word, num(w, AMX_SIDE - 1));
    LLVMValueRef at = em_add(e, step, em_mul(e, within, num(w, WORD_BYTES)));
    em_store_ptr(e, FUSOR_I32, x, behind(w, row, at), NULL, WORD_BYTES);
}

/* Row `to` of the panel's tiles: the weights from element `off` on, `places` elements from channel to channel. Whole
 * steps, then words one by one, then zeros. */
static void pack_row(window *w, LLVMValueRef off, LLVMValueRef to) {
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), group = num(w, w->group), words = window_channel_words(w);
    LLVMValueRef whole = em_and(e, LLVMBuildUDiv(e->b, w->taken, group, ""), num(w, -AMX_SIDE));
    LLVMValueRef begin[3] = {zero, whole, window_divide_up(w, w->taken, group)}, end[3] = {whole, begin[2], words};
    em_loop lp = em_for(e, zero, w->places, num(w, 1));
    LLVMValueRef from = em_add(e, off, lp.i),
                 row = behind(w, to, em_mul(e, em_mul(e, lp.i, em_lshr(e, words, 4)), num(w, TILE_BYTES)));
    for (int i = 0; i < 3; i++) {
        e->lanes = i ? 1 : AMX_SIDE;
        em_loop l = em_for(e, begin[i], end[i], num(w, e->lanes));
        LLVMValueRef channel = em_mul(e, l.i, group), left = i ? em_sub(e, w->taken, channel) : group;
        LLVMValueRef x = i == 2 ? LLVMConstNull(e->t_i32)
                                : window_weight_words(w, em_add(e, from, em_mul(e, channel, w->places)), left);
        put_words(w, x, row, l.i);
        em_end(e, &l);
    }
    em_end(e, &lp);
}

/* The same where places are channels: element by element, then zeros. */
static void pack_folded_row(window *w, LLVMValueRef off, LLVMValueRef to) {
    emit *e = w->e;
    const int bytes = WORD_BYTES / w->group, of_row = AMX_ROW_BYTES / bytes;
    LLVMTypeRef type = bytes == 1 ? e->t_i8 : e->t_i16;
    LLVMValueRef zero = num(w, 0), one = num(w, 1), words = window_channel_words(w),
                 there = em_mul(e, w->taken, w->folded);
    e->lanes = 1;
    em_loop lp = em_for(e, zero, window_unfolded(w), one);
    LLVMValueRef from = em_add(e, off, em_mul(e, lp.i, w->folded)),
                 row = behind(w, to, em_mul(e, em_mul(e, lp.i, em_lshr(e, words, 4)), num(w, TILE_BYTES)));
    for (int i = 0; i < 2; i++) {
        em_loop l = em_for(e, i ? there : zero, i ? em_mul(e, words, num(w, w->group)) : there, one);
        LLVMValueRef channel = LLVMBuildUDiv(e->b, l.i, w->folded, ""), place = LLVMBuildURem(e->b, l.i, w->folded, ""),
                     at = em_mul(e, LLVMBuildUDiv(e->b, l.i, num(w, of_row), ""), num(w, TILE_BYTES));
        LLVMValueRef x = LLVMConstNull(e->t_i32);
        if (!i) x = window_weight_words(w, em_add(e, from, em_add(e, em_mul(e, channel, w->places), place)), one);
        at = em_add(e, at, em_mul(e, em_and(e, l.i, num(w, of_row - 1)), num(w, bytes)));
        x = LLVMBuildTrunc(e->b, LLVMBuildBitCast(e->b, x, e->t_i32, ""), type, "");
        LLVMValueRef store = LLVMBuildStore(e->b, x, behind(w, row, at));
        LLVMSetAlignment(store, (unsigned)bytes);
        em_end(e, &l);
    }
    em_end(e, &lp);
}

/* WEIGHTS: (args, begin, end): phase 0, panels begin .. end - 1. */
static void emit_weights(window *w) {
    emit *e = w->e;
    LLVMTypeRef parameter[3] = {e->t_ptr, e->t_i64, e->t_i64};
    window_outer *o = window_begin(w, WEIGHTS, "weights", parameter, 3);
    const int lanes = e->lanes;
    LLVMValueRef zero = num(w, 0), one = num(w, 1), mr = num(w, w->mr), m = e->size[w->dim_m], panels = panels_made(w),
                 bytes = em_mul(e, steps_of(w), num(w, TILE_BYTES));
    em_loop l = em_for(e, LLVMGetParam(e->fn, 1), LLVMGetParam(e->fn, 2), one);
    LLVMValueRef part = LLVMBuildUDiv(e->b, l.i, panels, ""), panel = LLVMBuildURem(e->b, l.i, panels, ""),
                 m0 = em_mul(e, panel, mr), rows = em_min(e, mr, em_sub(e, m, m0)),
                 to = behind(w, w->weight_base, em_mul(e, l.i, bytes));
    em_branch some = em_if(e, em_icmp(e, LLVMIntSLT, rows, mr)); /* rows that are not there are zeros */
    em_loop z = em_for(e, zero, bytes, num(w, AMX_ROW_BYTES));
    LLVMValueRef none = LLVMConstNull(LLVMVectorType(e->t_i32, AMX_SIDE));
    LLVMSetAlignment(LLVMBuildStore(e->b, none, behind(w, to, z.i)), AMX_ROW_BYTES);
    em_end(e, &z);
    em_endif(e, &some);
    em_loop r = em_for(e, zero, rows, one);
    LLVMValueRef row = em_add(e, em_add(e, em_mul(e, part, m), m0), r.i);
    LLVMValueRef off = window_weights_row(w, row), at = behind(w, to, em_mul(e, r.i, num(w, AMX_ROW_BYTES)));
    if (w->k->n_folded) pack_folded_row(w, off, at);
    else pack_row(w, off, at);
    em_end(e, &r);
    if (window_has_exponents(w))
        window_store_exponent(w, to, em_mul(e, steps_of(w), mr), num(w, AMX_SIDE), element(w, w->first_sums, l.i));
    em_end(e, &l);
    e->lanes = lanes;
    window_end(w, o);
}

/* ---- the tile ---- */
enum { WEIGHTS_AT, OPERAND, PITCH, TABLE, STEPS, SUMS, COLUMNS, ROWS, IS_SLOW, ARGS, MADE, PARAMETERS };
/* The panel whose sums wait to be finished, i64 each: columns BEGIN .. END - 1 (none are) of a line, of which FIRST is
 * the first channel; of every APART columns OF_ROW are the result's. Then the line's block. */
enum { BEGIN, END, FIRST, HIGH, APART, OF_ROW, BLOCK, WAITS };

static void tell(window *w, LLVMValueRef made, int i, LLVMValueRef x) {
    LLVMBuildStore(w->e->b, x, em_gep(w->e, made, w->e->t_i64, num(w, i)));
}

/* LATE: (args, made): finishes that panel. */
static void emit_late(window *w) {
    emit *e = w->e;
    window_outer *o = window_begin(w, LATE, "late", (LLVMTypeRef[]){e->t_ptr, e->t_ptr}, 2);
    LLVMValueRef made = LLVMGetParam(e->fn, 1), x[WAITS];
    for (int i = 0; i < WAITS; i++) x[i] = window_told(w, made, i);
    const window_line line = {.pitch = x[APART],
                              .row = x[OF_ROW],
                              .sums = w->tile,
                              .rows = x[HIGH],
                              .block = LLVMBuildIntToPtr(e->b, x[BLOCK], e->t_ptr, "")};
    window_emit_segments(w, &line, x[BEGIN], x[END], x[FIRST], NULL);
    tell(w, made, END, x[BEGIN]);
    window_end(w, o);
}

static void finish_late(emit *e, void *user) {
    window_call(user, LATE, (LLVMValueRef[]){LLVMGetParam(e->fn, ARGS), LLVMGetParam(e->fn, MADE)}, 2);
}

static void multiply(window *w, const amx_product *p, LLVMValueRef is_slow) {
    emit *e = w->e;
    em_branch slow = {0};
    if (window_has_exponents(w)) {
        slow = em_if(e, is_slow);
        finish_late(e, w);
        amx_multiply_bf16_slowly(e, p);
        em_else(e, &slow);
    }
    amx_multiply(e, p);
    if (window_has_exponents(w)) em_endif(e, &slow);
}

/* The sums of a later K block, which are behind those before, are added to them. */
static void add_block(window *w, LLVMValueRef sums) {
    emit *e = w->e;
    em_loop l = em_for(e, num(w, 0), num(w, SUMS_BYTES), num(w, AMX_ROW_BYTES));
    LLVMValueRef to = behind(w, sums, l.i), x = window_load_vector(w, behind(w, to, num(w, SUMS_BYTES)));
    LLVMValueRef before = window_load_vector(w, to);
    x = ir_is_float(w->acc) ? em_fadd(e, before, x) : em_add(e, before, x);
    LLVMSetAlignment(LLVMBuildStore(e->b, x, to), AMX_ROW_BYTES);
    em_end(e, &l);
}

static void emit_tile(window *w) {
    emit *e = w->e;
    LLVMTypeRef parameter[PARAMETERS] = {e->t_ptr, e->t_ptr, e->t_i64, e->t_ptr, e->t_i64, e->t_ptr,
                                         e->t_i64, e->t_i64, e->t_i1,  e->t_ptr, e->t_ptr};
    window_outer *o = window_begin(w, TILE, "tile", parameter, PARAMETERS);
    LLVMValueRef in[PARAMETERS], zero = num(w, 0), side = num(w, AMX_SIDE);
    const int64_t block = w->kb / ir_dots[w->dot].step;
    LLVMGetParams(e->fn, in);
    const ir_kinst *mm = &w->k->inst[w->matmul];
    amx_product p = {.name = amx_product_name(w->dot, w->k->inst[mm->in[0]].dtype, w->k->inst[mm->in[1]].dtype),
                     .rows = in[ROWS],
                     .is_high = em_icmp(e, LLVMIntSGT, in[ROWS], side),
                     .is_wide = em_icmp(e, LLVMIntSGT, in[COLUMNS], side),
                     .a_row = num(w, AMX_ROW_BYTES),
                     .a_step = num(w, TILE_BYTES),
                     .b = in[OPERAND],
                     .b_pitch = in[PITCH],
                     .a_stays = LLVMConstInt(e->t_i1, 0, 0),
                     .before_stores = finish_late,
                     .user = w};
    em_loop l = em_for(e, zero, in[STEPS], num(w, block));
    LLVMValueRef is_first = em_icmp(e, LLVMIntEQ, l.i, zero);
    p.a = behind(w, in[WEIGHTS_AT], em_mul(e, l.i, num(w, TILE_BYTES)));
    p.table = em_gep(e, in[TABLE], e->t_i64, l.i);
    p.words = em_shl(e, em_min(e, em_sub(e, in[STEPS], l.i), num(w, block)), 4);
    p.to = em_select(e, is_first, in[SUMS], behind(w, in[SUMS], num(w, SUMS_BYTES)));
    multiply(w, &p, in[IS_SLOW]);
    em_branch later = em_if(e, LLVMBuildNot(e->b, is_first, ""));
    add_block(w, in[SUMS]);
    em_endif(e, &later);
    em_end(e, &l);
    window_end(w, o);
}

/* ---- the kernel ---- */
/* How the rows of a tile of work are lines: bytes from plane to plane of the slab, words from row to row; i1: are all
 * rows one line, with what lies between them? How many lines, of how many columns each; of every `apart` columns `row`
 * are the result's. */
typedef struct rows_as_lines {
    LLVMValueRef plane, pitch, is_flat, row, apart, count, length;
} rows_as_lines;

/* All rows are one line where that is no more tiles of columns; and where nothing lies between them, here and in what
 * is written and read behind the sums, one row. */
static rows_as_lines lines_of(window *w, const window_slab *slab, const window_part *part) {
    emit *e = w->e;
    LLVMValueRef of_axis[IR_KERNEL_MAX_AXES] = {0}, n = part->columns, side = num(w, AMX_SIDE), one = num(w, 1),
                 is_one_run = window_is_one_run(w);
    LLVMValueRef all = em_add(e, em_mul(e, em_sub(e, part->rows, one), slab->pitch), n);
    LLVMValueRef by_rows = em_mul(e, part->rows, window_divide_up(w, n, side));
    rows_as_lines l = {.plane = window_slab_place(w, slab, one, of_axis), .pitch = slab->pitch};
    l.is_flat = em_icmp(e, LLVMIntSLE, window_divide_up(w, all, side), by_rows);
    l.count = em_select(e, l.is_flat, one, part->rows);
    l.length = em_select(e, l.is_flat, all, n);
    l.row = n;
    l.apart = em_select(e, l.is_flat, slab->pitch, n);
    if (!is_one_run) return l;
    is_one_run = em_and(e, em_and(e, is_one_run, l.is_flat), em_icmp(e, LLVMIntEQ, slab->pitch, n));
    l.row = em_select(e, is_one_run, all, n);
    l.apart = em_select(e, is_one_run, all, l.apart);
    return l;
}

/* A panel of columns begin .. end - 1 of a line, with the channels of the line. Its sums wait: they are finished before
 * those of the next one are stored, so the CPU does that while products run, where it would wait for the last of
 * them. */
static void emit_panel(window *w, const window_line *s, LLVMValueRef made, LLVMValueRef plane, LLVMValueRef begin,
                       LLVMValueRef end) {
    emit *e = w->e;
    LLVMValueRef mr = num(w, w->mr), is_slow = LLVMConstInt(e->t_i1, 0, 0);
    em_loop l = em_for(e, s->m_begin, s->m_end, mr);
    LLVMValueRef rows = em_min(e, mr, em_sub(e, s->m_end, l.i));
    if (window_has_exponents(w)) {
        LLVMValueRef exponent = element(w, s->first_sums, LLVMBuildUDiv(e->b, l.i, mr, ""));
        is_slow = LLVMBuildNot(e->b, em_bf16_is_exact(e, exponent, window_slab_exponent(w)), "");
    }
    LLVMValueRef in[PARAMETERS] = {
        [WEIGHTS_AT] = element(w, s->weights, em_mul(e, l.i, w->kk)),
        [OPERAND] = element(w, s->from, begin),
        [PITCH] = plane,
        [TABLE] = w->table,
        [STEPS] = steps_of(w),
        [SUMS] = w->tile,
        [COLUMNS] = em_sub(e, end, begin),
        [ROWS] = rows,
        [IS_SLOW] = is_slow,
        [ARGS] = e->args,
        [MADE] = made,
    };
    window_call(w, TILE, in, PARAMETERS);
    tell(w, made, BEGIN, begin);
    tell(w, made, END, end);
    tell(w, made, FIRST, l.i);
    tell(w, made, HIGH, rows);
    em_end(e, &l);
}

/* Channels first .. end - 1 of a tile of work, a part of them after the other: all columns of the rows meet each. */
static void emit_part(window *w, window_line *s, LLVMValueRef made, const rows_as_lines *r, LLVMValueRef *index,
                      LLVMValueRef first, LLVMValueRef end, LLVMValueRef count) {
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), nr = num(w, w->nr), mr = num(w, w->mr), top = index[w->dim_y],
                 panels = window_divide_up(w, e->tune[IR_TUNE_WINDOW_CHANNELS], mr);
    LLVMValueRef channels = em_mul(e, em_max(e, panels, num(w, 1)), mr);
    em_loop lm = em_for(e, first, end, channels);
    s->m_begin = w->tile_channel = lm.i;
    s->m_end = em_min(e, end, em_add(e, lm.i, channels));
    em_loop ll = em_for(e, zero, r->count, num(w, 1));
    index[w->dim_y] = em_add(e, top, ll.i);
    s->from = element(w, w->slab, em_mul(e, ll.i, r->pitch));
    window_write_block(w, s->block, index);
    em_loop l = em_for(e, zero, r->length, nr);
    emit_panel(w, s, made, r->plane, l.i, em_min(e, em_add(e, l.i, nr), r->length));
    em_end(e, &l);
    window_call(w, LATE, (LLVMValueRef[]){e->args, made}, 2);
    em_end(e, &ll);
    index[w->dim_y] = top;
    window_end_tile(w, s->block, em_sub(e, s->m_end, s->m_begin), count);
    em_end(e, &lm);
}

/* Tiles of work: rows, and of each the channels of a share. */
static void emit_parts(window *w, const window_slab *slab, LLVMValueRef rows) {
    emit *e = w->e;
    LLVMValueRef index[IR_KERNEL_MAX_DIMS] = {0}, parts = window_parts(w, rows), mr = num(w, w->mr),
                 m = e->size[w->dim_m], share = e->tune[IR_TUNE_WINDOW_SHARE];
    share = em_select(e, em_icmp(e, LLVMIntSGT, share, num(w, 0)), share, m);
    share = em_max(e, em_mul(e, window_divide_up(w, share, mr), mr), mr);
    LLVMValueRef shares = window_divide_up(w, m, share);
    window_line s = {.block = window_new_block(w)};
    LLVMValueRef made = em_alloca(e, LLVMArrayType(e->t_i64, WAITS), 8);
    for (int i = 0; i < WAITS; i++) tell(w, made, i, num(w, 0));
    tell(w, made, BLOCK, LLVMBuildPtrToInt(e->b, s.block, e->t_i64, ""));
    em_loop t = em_for(e, e->tile_begin, e->tile_end, num(w, 1));
    LLVMValueRef first = em_mul(e, LLVMBuildURem(e->b, t.i, shares, ""), share),
                 number = LLVMBuildUDiv(e->b, t.i, shares, "");
    const window_part part = window_part_of(w, LLVMBuildURem(e->b, number, parts, ""), rows);
    window_decode(w, LLVMBuildUDiv(e->b, number, parts, ""), window_batch_dims(w), index);
    LLVMValueRef panel = em_mul(e, window_weights_batch(w, index), panels_made(w));
    s.weights = element(w, w->weight_base, em_mul(e, em_mul(e, panel, mr), w->kk));
    s.first_sums = element(w, w->first_sums, panel);
    window_make_slab(w, index, window_outer_index(w, index), &part, rows);
    index[w->dim_y] = w->tile_row = part.y;
    index[w->dim_n] = part.x;
    const rows_as_lines lines = lines_of(w, slab, &part);
    tell(w, made, APART, lines.apart);
    tell(w, made, OF_ROW, lines.row);
    emit_part(w, &s, made, &lines, index, first, em_min(e, m, em_add(e, first, share)), part.rows);
    em_end(e, &t);
}

void window_emit_tiled(window *w) {
    emit *e = w->e;
    window_emit_slab(w);
    emit_weights(w);
    emit_late(w);
    emit_tile(w);
    LLVMValueRef rows = window_tile_of_rows(w);
    em_branch phase = em_if(e, em_icmp(e, LLVMIntEQ, e->phase, LLVMConstInt(LLVMTypeOf(e->phase), 0, 0)));
    window_call(w, WEIGHTS, (LLVMValueRef[]){e->args, e->tile_begin, e->tile_end}, 3);
    em_else(e, &phase);
    const window_slab slab = window_slab_of(w, rows);
    w->pitch = slab.pitch;
    LLVMBuildStore(e->b, slab.pitch, e->scratch);
    emit_table(w, &slab);
    amx_configure_whole(e);
    emit_parts(w, &slab, rows);
    amx_release(e);
    em_endif(e, &phase);
}
