/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* window_slab.c: convolutions with axes (ir/kernel.h). What a tile of rows reads of the operand is first copied into
 * scratch, with zeros where the pads are, converted, and for narrow integers as words of several channels: so the tile
 * of products reads vectors of columns one after the other whatever pads, strides and types are, and nothing of the
 * operand's size is ever made.
 *
 *   slab       [word of channels][place of the outer axis][part of rows][part of columns], planes of rows; a part:
 *              ir_slab_axis. Places of folded axes count as channels, so those have one part
 *              of bf16 as window_pairs.c says
 *   row        zeros, elements, zeros. Where columns are not parted, the zeros before the next row are also those
 *              behind this one
 *   weights    phase 0: rows of K, as words or converted */
#include "jit/window.h"
#include <string.h>

static LLVMValueRef divide(window *w, LLVMValueRef a, int64_t by) {
    return by == 1 ? a : LLVMBuildUDiv(w->e->b, a, num(w, by), "");
}

/* Axes are outer, rows, columns; a 1-D convolution has no rows. */
static const ir_kaxis *axis_of(const window *w, int number) {
    const int i = w->k->n_axes - 3 + number;
    return i < 0 ? NULL : &w->k->axis[i];
}
/* Of a transposed convolution as many as its phases reach, with no dilation. Folded ones have none of their own. */
static LLVMValueRef places_of(window *w, int number) {
    const ir_kaxis *a = axis_of(w, number);
    if (window_is_folded(w, 2 - number)) return num(w, 1);
    if (w->is_transposed) return num(w, w->phases[2 - number]->reach + 1);
    return a && a->place >= 0 ? w->e->size[a->place] : num(w, 1);
}

static LLVMValueRef size_of(window *w, int number) {
    const ir_kaxis *a = axis_of(w, number);
    return a ? axis_size(w, a) : num(w, 1);
}

static int64_t dilation_of(const window *w, const ir_kaxis *a) { return a && !w->is_transposed ? a->dilation : 1; }
static int64_t begin_of(const window *w, int number) {
    const ir_kaxis *a = axis_of(w, number);
    return w->is_transposed ? w->phases[2 - number]->begin : a ? a->begin : 0;
}

/* By channel the slab has no parts: columns are read a stride apart. Its planes are an odd number of lines apart, so
 * that those of many channels share no few sets of a cache. */
static int64_t part_stride(const window *w, const ir_kaxis *a) { return a && !w->k->is_by_channel ? a->stride : 1; }

window_slab window_slab_of(window *w, LLVMValueRef rows) {
    emit *e = w->e;
    window_slab s;
    for (int i = 0; i < 2; i++) { /* as ir_kernel_slab_axis */
        const ir_kaxis *a = axis_of(w, i + 1);
        LLVMValueRef count = i ? w->columns : rows, places = places_of(w, i + 1), zero = num(w, 0);
        const int64_t stride = part_stride(w, a), dilation = dilation_of(w, a);
        if (a && w->k->is_by_channel && a->stride > 1)
            count = em_add(e, em_mul(e, em_sub(e, count, num(w, 1)), num(w, a->stride)), num(w, 1));
        LLVMValueRef more = divide(w, em_mul(e, em_sub(e, places, num(w, 1)), num(w, dilation)), stride);
        s.is_by_place[i] = LLVMBuildOr(e->b, em_icmp(e, LLVMIntSLT, places, num(w, stride)),
                                       em_icmp(e, LLVMIntSLT, em_mul(e, places, count), em_add(e, count, more)), "");
        if (w->k->is_by_channel) s.is_by_place[i] = LLVMConstInt(e->t_i1, 0, 0);
        s.parts[i] = em_select(e, s.is_by_place[i], places, num(w, stride));
        s.extent[i] = em_add(e, count, em_select(e, s.is_by_place[i], zero, more));
    }
    s.plane = em_mul(e, s.extent[0], s.extent[1]);
    if (w->k->is_by_channel || w->is_tiled) { /* as ir_kernel_slab_bytes: an odd number of lines */
        const int64_t line = EM_LINE_BYTES / w->bytes;
        LLVMValueRef lines = window_divide_up(w, s.plane, num(w, line));
        s.plane = em_mul(e, em_or(e, lines, num(w, 1)), num(w, line));
    }
    s.pitch = s.extent[1];
    const ir_kaxis *a = axis_of(w, 2);
    if (part_stride(w, a) == 1 && !w->has_pairs && !w->cuts) { /* the second halves of words there are not zeros */
        LLVMValueRef size = size_of(w, 2), begin = num(w, begin_of(w, 2)), zero = num(w, 0);
        LLVMValueRef lo = em_min(e, em_max(e, begin, zero), s.extent[1]),
                     hi = em_min(e, em_max(e, em_add(e, begin, size), lo), s.extent[1]);
        LLVMValueRef shared = em_add(e, em_sub(e, hi, lo), em_max(e, lo, em_sub(e, s.extent[1], hi)));
        if (w->is_tiled) shared = em_max(e, shared, w->columns); /* rows are one line */
        s.pitch = em_select(e, s.is_by_place[1], s.pitch, shared);
    }
    return s;
}

LLVMValueRef window_slab_place(window *w, const window_slab *s, LLVMValueRef c, LLVMValueRef *place) {
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), plane = c, within = zero;
    for (int i = 0; i < 3; i++) {
        const ir_kaxis *a = axis_of(w, i);
        LLVMValueRef p = a && place[a - w->k->axis] ? place[a - w->k->axis] : zero;
        if (i == 0) {
            plane = em_add(e, em_mul(e, plane, places_of(w, 0)), p);
            continue;
        }
        const int64_t stride = part_stride(w, a);
        LLVMValueRef at = em_mul(e, p, num(w, dilation_of(w, a))), by = s->is_by_place[i - 1];
        LLVMValueRef part = em_select(e, by, p, LLVMBuildURem(e->b, at, num(w, stride), ""));
        plane = em_add(e, em_mul(e, plane, s->parts[i - 1]), part);
        LLVMValueRef off = em_select(e, by, zero, divide(w, at, stride));
        within = em_add(e, within, i == 1 ? em_mul(e, off, s->pitch) : off);
    }
    return em_mul(e, em_add(e, em_mul(e, plane, s->plane), within), num(w, w->bytes));
}

/* ---- elements and words ---- */
typedef struct source {
    int inst;                  /* operand of the matmul */
    LLVMValueRef off, step;    /* of the first lane; elements between lanes */
    LLVMValueRef apart, count; /* a word's channels: elements between them, how many are left */
    LLVMValueRef mask;
} source;

static LLVMValueRef load(emit *e, em_values *v, const ir_kinst *inst, void *user) {
    const source *s = user;
    (void)v;
    return em_load(e, inst->index, s->off, s->step, s->mask);
}

static LLVMValueRef element_at(window *w, const source *s) {
    emit *e = w->e;
    em_values v;
    em_values_init(&v, load, (void *)s);
    return em_value(e, &v, s->inst);
}

static bool has_words_of_halves(const window *w) { return w->is_tiled && ir_is_float(w->acc); }

/* Elements of a word: of halves the bits. Of f32 as well, which another kernel converted from such halves, as the plan
 * saw (type_multiplied): so that loses nothing. */
static LLVMValueRef part_of_word(window *w, const source *s) {
    emit *e = w->e;
    LLVMValueRef x = element_at(w, s);
    if (!has_words_of_halves(w)) return x;
    const ir_dtype half = w->dot == IR_DOT_TILE_F16 ? FUSOR_F16 : FUSOR_BF16;
    return LLVMBuildBitCast(e->b, em_half_bits(e, half, em_cast(e, x, w->k->inst[s->inst].dtype, FUSOR_F32)),
                            em_vec(e, e->t_i16), "");
}

/* The elements or words that begin at s->off, as the accumulator type, at the current width. */
static LLVMValueRef value_at(window *w, const source *s) {
    emit *e = w->e;
    const ir_dtype t = w->k->inst[s->inst].dtype;
    if (w->group == 1 || w->has_pairs) return em_cast(e, element_at(w, s), t, w->acc);
    LLVMTypeRef half = em_vec(e, e->t_i16), word = em_vec(e, e->t_i32);
    LLVMValueRef sum = LLVMConstNull(word);
    for (int g = 0; g < w->group; g++) {
        source at = *s;
        LLVMValueRef there = em_icmp(e, LLVMIntSGT, s->count, num(w, g)), x;
        at.off = em_add(e, s->off, em_mul(e, s->apart, num(w, g)));
        if (g) { /* there are channels enough but in the last word */
            em_branch b = em_if(e, there);
            LLVMValueRef some = part_of_word(w, &at);
            LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b);
            em_endif(e, &b);
            x = LLVMBuildPhi(e->b, LLVMTypeOf(some), "");
            LLVMValueRef zero = LLVMConstNull(LLVMTypeOf(some));
            LLVMAddIncoming(x, (LLVMValueRef[]){some, zero}, (LLVMBasicBlockRef[]){from, b.other}, 2);
        } else x = part_of_word(w, &at);
        if (w->dot == IR_DOT_I16)
            x = ir_is_signed(t) ? LLVMBuildSExt(e->b, x, half, "") : LLVMBuildZExt(e->b, x, half, "");
        x = LLVMBuildZExt(e->b, x, word, "");
        if (g) x = em_shl(e, x, g * 32 / w->group);
        sum = em_or(e, sum, x);
    }
    return LLVMBuildBitCast(e->b, sum, em_vec(e, w->t_acc), "");
}

static void store(window *w, LLVMValueRef x, LLVMValueRef dst, LLVMValueRef mask) {
    em_store_ptr(w->e, w->acc, x, dst, mask, (unsigned)w->bytes);
}

/* Prefetches the element that is `ahead` elements behind s->off: what the same columns of the next channel are. */
static void prefetch(window *w, const source *s, LLVMValueRef ahead) {
    emit *e = w->e;
    LLVMTypeRef element = em_memory_type(e, e->k->buffer[w->operand].dtype);
    em_prefetch(e, em_gep(e, e->base[w->operand], element, em_add(e, s->off, ahead)), 1);
}

/* ---- the slab ---- */
/* What one place of one channel gives a plane: rows lo_y .. hi_y - 1 have elements lo .. hi - 1 of the operand, `off`
 * being that of element 0 of row 0; all else are zeros. */
typedef struct piece {
    LLVMValueRef off, lo, hi, lo_y, hi_y;
} piece;

/* `down` is the way from row to row of the operand; least: where the least exponent is kept. */
typedef struct plane {
    LLVMValueRef dst, pitch, extent, rows, down, least;
    int n;
    piece piece[4]; /* of each element of words, where those are not the same place of adjacent channels */
} plane;

static LLVMValueRef pad_value(window *w) { return w->adds ? em_i32(w->e, (int32_t)0x80808080u) : NULL; }

static void store_value(window *w, LLVMValueRef x, LLVMValueRef dst, LLVMValueRef mask) {
    if (w->adds) x = em_xor(w->e, x, pad_value(w));
    store(w, x, dst, mask);
}

static void zeros(window *w, const plane *p, LLVMValueRef from, LLVMValueRef to, LLVMValueRef column,
                  LLVMValueRef mask) {
    emit *e = w->e;
    em_loop l = em_for(e, from, to, num(w, 1));
    store_value(w, LLVMConstNull(em_vec(e, w->t_acc)), element(w, p->dst, em_add(e, em_mul(e, l.i, p->pitch), column)),
                mask);
    em_end(e, &l);
}

static LLVMValueRef mask_from_to(window *w, LLVMValueRef at, LLVMValueRef lo, LLVMValueRef hi) {
    emit *e = w->e;
    LLVMValueRef before = em_mask(e, em_sub(e, lo, at));
    return em_and(e, em_mask(e, em_sub(e, hi, at)), LLVMBuildNot(e->b, before, ""));
}

static LLVMValueRef bits_at(window *w, const source *s) {
    return LLVMBuildBitCast(w->e->b, value_at(w, s), em_vec(w->e, w->e->t_i32), "");
}

static void keep_least(window *w, const plane *p, LLVMValueRef least) {
    emit *e = w->e;
    LLVMValueRef all = LLVMBuildLoad2(e->b, window_halves(w), p->least, "");
    all = LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntULT, least, all, ""), least, all, "");
    LLVMBuildStore(e->b, all, p->least);
}

/* Element number i of words, those of a vector of columns that are a piece; as an i32 in its place of the word. The
 * first one is the high half of a pair, but the low part of a word of tiles. */
static LLVMValueRef piece_at(window *w, const source *s, int i) {
    emit *e = w->e;
    if (w->has_pairs) return em_lshr(e, bits_at(w, s), 16 * i);
    return em_shl(e, LLVMBuildZExt(e->b, part_of_word(w, s), em_vec(e, e->t_i32), ""), i * 32 / w->group);
}

/* Lanes of the vector of columns from `column` on, of row r: words whose elements are pieces. Columns that are apart
 * are read under several masks, which take longer than a branch does: so those are of the columns alone, and made
 * once. */
static LLVMValueRef pieces_at(window *w, const source *s, const plane *p, LLVMValueRef r, LLVMValueRef column,
                              const LLVMValueRef *masks) {
    emit *e = w->e;
    LLVMTypeRef words = em_vec(e, e->t_i32);
    LLVMValueRef word = NULL, along = em_mul(e, column, s->step), down = em_mul(e, r, p->down);
    const bool is_apart = part_stride(w, axis_of(w, 2)) != 1;
    for (int i = 0; i < p->n; i++) {
        const piece *part = &p->piece[i];
        LLVMValueRef is_there = em_icmp(e, LLVMIntULT, em_sub(e, r, part->lo_y), em_sub(e, part->hi_y, part->lo_y)), x;
        source at = *s;
        at.off = em_add(e, em_add(e, part->off, along), down);
        at.mask = is_apart ? masks[i] : em_select(e, is_there, masks[i], LLVMConstNull(LLVMTypeOf(masks[i])));
        if (i == 0 && w->has_pairs) prefetch(w, &at, s->apart);
        if (is_apart) {
            em_branch b = em_if(e, is_there);
            LLVMValueRef zero = LLVMConstNull(words), some = piece_at(w, &at, i);
            LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b);
            em_endif(e, &b);
            x = LLVMBuildPhi(e->b, words, "");
            LLVMAddIncoming(x, (LLVMValueRef[]){some, zero}, (LLVMBasicBlockRef[]){from, b.other}, 2);
        } else {
            x = piece_at(w, &at, i);
        }
        word = word ? em_or(e, word, x) : x;
    }
    return LLVMBuildBitCast(e->b, word, w->t_vec, "");
}

/* Vectors of columns, each of all rows: their masks are made once. */
static void emit_columns(window *w, source *s, const plane *p) {
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), one = num(w, 1), begin = p->piece[0].lo_y, end = p->piece[0].hi_y, masks[4];
    for (int i = 1; i < p->n; i++) {
        begin = em_min(e, begin, p->piece[i].lo_y);
        end = em_max(e, end, p->piece[i].hi_y);
    }
    e->lanes = w->v_lanes;
    em_loop l = em_for(e, zero, p->pitch, num(w, w->v_lanes));
    LLVMValueRef mask = em_mask(e, em_sub(e, p->pitch, l.i));
    zeros(w, p, zero, begin, l.i, mask);
    const int n_spread = e->n_spread;
    for (int i = 0; i < p->n; i++) {
        masks[i] = mask_from_to(w, l.i, p->piece[i].lo, p->piece[i].hi);
        em_spread_masks(e, masks[i], s->step);
    }
    em_loop r = em_for(e, begin, end, one);
    LLVMValueRef least = NULL, x;
    if (window_has_exponents(w)) least = em_loop_phi(e, &r, LLVMConstAllOnes(window_halves(w)));
    if (p->n > 1) {
        x = pieces_at(w, s, p, r.i, l.i, masks);
    } else {
        s->mask = masks[0];
        s->off = em_add(e, em_add(e, p->piece[0].off, em_mul(e, l.i, s->step)), em_mul(e, r.i, p->down));
        if (w->group == 1) prefetch(w, s, s->apart);
        x = value_at(w, s);
    }
    if (least) em_loop_next(e, least, window_least_of(w, least, x));
    store_value(w, x, element(w, p->dst, em_add(e, em_mul(e, r.i, p->pitch), l.i)), mask);
    em_end(e, &r);
    if (least) keep_least(w, p, least);
    e->n_spread = n_spread;
    zeros(w, p, end, p->rows, l.i, mask);
    em_end(e, &l);
    em_loop rest = em_for(e, p->pitch, p->extent, num(w, w->v_lanes));
    LLVMValueRef last = em_mul(e, em_sub(e, p->rows, one), p->pitch);
    store_value(w, LLVMConstNull(em_vec(e, w->t_acc)), element(w, p->dst, em_add(e, last, rest.i)),
                em_mask(e, em_sub(e, p->extent, rest.i)));
    em_end(e, &rest);
    e->lanes = 1;
}

/* Without masks: row by row, zeros, vectors, elements, zeros. */
static void emit_rows(window *w, source *s, const plane *p) {
    emit *e = w->e;
    const piece *in = &p->piece[0];
    LLVMValueRef zero = num(w, 0), one = num(w, 1);
    s->mask = NULL;
    em_loop r = em_for(e, zero, p->rows, one);
    LLVMValueRef is_there = em_and(e, em_icmp(e, LLVMIntSGE, r.i, in->lo_y), em_icmp(e, LLVMIntSLT, r.i, in->hi_y));
    LLVMValueRef is_last = em_icmp(e, LLVMIntEQ, r.i, em_sub(e, p->rows, one));
    LLVMValueRef hi = em_select(e, is_there, in->hi, in->lo), length = em_select(e, is_last, p->extent, p->pitch);
    LLVMValueRef whole = em_add(e, in->lo, em_and(e, em_sub(e, hi, in->lo), num(w, -w->v_lanes)));
    LLVMValueRef begin[4] = {zero, in->lo, whole, hi}, end[4] = {in->lo, whole, hi, length};
    for (int i = 0; i < 4; i++) {
        e->lanes = i == 1 ? w->v_lanes : 1;
        em_loop l = em_for(e, begin[i], end[i], num(w, e->lanes));
        s->off = em_add(e, em_add(e, in->off, em_mul(e, l.i, s->step)), em_mul(e, r.i, p->down));
        LLVMValueRef x = i == 0 || i == 3 ? LLVMConstNull(w->t_acc) : value_at(w, s);
        store_value(w, x, element(w, p->dst, em_add(e, em_mul(e, r.i, p->pitch), l.i)), NULL);
        em_end(e, &l);
    }
    e->lanes = 1;
    em_end(e, &r);
}

/* Elements begin .. end - 1 of an axis are those that lie within: element i is i * stride + origin of `size`. */
static void within(window *w, LLVMValueRef origin, LLVMValueRef size, int64_t stride, LLVMValueRef count,
                   LLVMValueRef *lo, LLVMValueRef *hi) {
    emit *e = w->e;
    LLVMValueRef round = num(w, stride - 1), zero = num(w, 0), before = em_sub(e, zero, origin);
    *lo = em_min(e, divide(w, em_add(e, em_max(e, before, zero), round), stride), count);
    *hi = divide(w, em_add(e, em_max(e, em_add(e, size, before), zero), round), stride);
    *hi = em_min(e, em_max(e, *hi, *lo), count);
}

/* Channels last: rows of places to which all channels belong. Squares of a vector of places by one of channels are
 * turned in registers, to one row of as many planes; the last places of a row are read twice, where that makes them
 * whole squares, else one by one, or stored under a mask. */
static void emit_last_row(window *w, const plane *p, LLVMValueRef from, LLVMValueRef to, LLVMValueRef apart) {
    emit *e = w->e;
    const piece *in = &p->piece[0];
    const int n = w->v_lanes;
    LLVMValueRef zero = num(w, 0), one = num(w, 1), lanes = num(w, n), count = em_sub(e, in->hi, in->lo),
                 v[EM_MAX_SIDE], base = e->base[w->operand], is_whole = em_icmp(e, LLVMIntSGE, count, lanes),
                 last = em_sub(e, count, one), short_by = em_max(e, em_sub(e, count, lanes), zero);
    em_branch b = {0};
    if (!e->level->has_mask) b = em_if(e, is_whole);
    em_loop lx = em_for(e, zero, count, lanes);
    LLVMValueRef x = em_min(e, lx.i, short_by), mask = NULL;
    if (e->level->has_mask) {
        e->lanes = n;
        mask = em_mask(e, em_min(e, count, lanes));
        e->lanes = 1;
    }
    em_loop lc = em_for(e, zero, w->taken, lanes);
    for (int i = 0; i < n; i++) {
        LLVMValueRef place = em_add(e, x, num(w, i));
        if (e->level->has_mask) place = em_min(e, place, last);
        v[i] = window_load_vector(w, element(w, base, em_add(e, from, em_add(e, em_mul(e, place, w->taken), lc.i))));
    }
    em_turn(e, v, n, w->bytes);
    e->lanes = n;
    for (int i = 0; i < n; i++)
        store(w, v[i], element(w, to, em_add(e, x, em_mul(e, em_add(e, lc.i, num(w, i)), apart))), mask);
    e->lanes = 1;
    em_end(e, &lc);
    em_end(e, &lx);
    if (e->level->has_mask) return;
    em_else(e, &b);
    em_loop ly = em_for(e, zero, count, one);
    em_loop lz = em_for(e, zero, w->taken, one);
    LLVMValueRef at = em_add(e, from, em_add(e, em_mul(e, ly.i, w->taken), lz.i));
    LLVMValueRef element_there = LLVMBuildLoad2(e->b, w->t_acc, element(w, base, at), "");
    LLVMSetAlignment(element_there, (unsigned)w->bytes);
    store(w, element_there, element(w, to, em_add(e, ly.i, em_mul(e, lz.i, apart))), NULL);
    em_end(e, &lz);
    em_end(e, &ly);
    em_endif(e, &b);
}

/* All planes are zeros first where any has pads. */
static void emit_last(window *w, const source *s, const plane *p, LLVMValueRef apart) {
    emit *e = w->e;
    const piece *in = &p->piece[0];
    LLVMValueRef zero = num(w, 0), lanes = num(w, w->v_lanes), is_full = em_icmp(e, LLVMIntEQ, in->lo, zero);
    is_full = em_and(e, is_full, em_icmp(e, LLVMIntSGE, in->hi, p->pitch));
    is_full = em_and(e, is_full, em_icmp(e, LLVMIntEQ, in->lo_y, zero));
    is_full = em_and(e, is_full, em_icmp(e, LLVMIntSGE, in->hi_y, p->rows));
    em_branch b = em_if(e, LLVMBuildNot(e->b, is_full, ""));
    em_loop l = em_for(e, zero, em_mul(e, apart, w->taken), lanes);
    e->lanes = w->v_lanes;
    store(w, LLVMConstNull(w->t_vec), element(w, p->dst, l.i), NULL);
    e->lanes = 1;
    em_end(e, &l);
    em_endif(e, &b);
    em_loop r = em_for(e, in->lo_y, in->hi_y, num(w, 1));
    LLVMValueRef from = em_add(e, in->off, em_add(e, em_mul(e, r.i, p->down), em_mul(e, in->lo, s->step)));
    emit_last_row(w, p, from, element(w, p->dst, em_add(e, em_mul(e, r.i, p->pitch), in->lo)), apart);
    em_end(e, &r);
}

/* What the planes of a tile share: of each axis (outer, rows, columns) the operand's size, the way from one element to
 * the next, and at which element its first column, row or place is, without the place of the kernel. */
typedef struct axes {
    LLVMValueRef size[3], run[3], origin[3], first; /* first: the operand's first element */
} axes;

/* Channel c, `by` elements (or NULL: none) along each axis from those origins; nothing where !is_there (NULL: it
 * is). */
static piece piece_of(window *w, const source *s, const plane *p, const axes *a, LLVMValueRef c,
                      const LLVMValueRef by[3], LLVMValueRef is_there) {
    emit *e = w->e;
    LLVMValueRef at[3];
    piece x;
    for (int i = 0; i < 3; i++) at[i] = by[i] ? em_add(e, a->origin[i], by[i]) : a->origin[i];
    within(w, at[2], a->size[2], part_stride(w, axis_of(w, 2)), p->extent, &x.lo, &x.hi);
    within(w, at[1], a->size[1], part_stride(w, axis_of(w, 1)), p->rows, &x.lo_y, &x.hi_y);
    if (axis_of(w, 0)) {
        LLVMValueRef in_z = em_icmp(e, LLVMIntULT, at[0], a->size[0]);
        is_there = is_there ? em_and(e, is_there, in_z) : in_z;
    }
    if (is_there) {
        x.lo_y = em_select(e, is_there, x.lo_y, p->rows);
        x.hi_y = em_select(e, is_there, x.hi_y, p->rows);
    }
    x.off = em_add(e, a->first, em_mul(e, c, s->apart));
    for (int i = 0; i < 3; i++) x.off = em_add(e, x.off, em_mul(e, at[i], a->run[i]));
    return x;
}

/* Element number i of those of folded axes: its channel, and its place along each axis. */
static piece folded_piece(window *w, const source *s, const plane *p, const axes *a, LLVMValueRef i) {
    emit *e = w->e;
    LLVMValueRef c = LLVMBuildUDiv(e->b, i, w->folded, ""), place = LLVMBuildURem(e->b, i, w->folded, ""), by[3] = {0};
    for (int k = 0; k < w->k->n_folded; k++) {
        const ir_kaxis *along = window_axis(w, k);
        if (along->place < 0) continue;
        LLVMValueRef places = e->size[along->place];
        by[2 - k] = em_mul(e, LLVMBuildURem(e->b, place, places, ""), num(w, along->dilation));
        place = LLVMBuildUDiv(e->b, place, places, "");
    }
    return piece_of(w, s, p, a, c, by, em_icmp(e, LLVMIntSLT, c, w->taken));
}

void window_emit_slab(window *w) {
    emit *e = w->e;
    LLVMTypeRef parameter[7] = {e->t_ptr, e->t_i64, e->t_i64, e->t_i64, e->t_i64, e->t_i64, e->t_i64};
    window_outer *o = window_begin(w, SLAB, "slab", parameter, w->cuts ? 7 : 6);
    LLVMValueRef in[7], zero = num(w, 0), one = num(w, 1);
    LLVMGetParams(e->fn, in);
    const int lanes = e->lanes;
    e->lanes = 1;
    const window_slab s = window_slab_of(w, in[4]);
    axes a = {.first = in[1]};
    for (int i = 0; i < 3; i++) a.size[i] = size_of(w, i);
    a.run[2] = w->k->has_last ? w->taken : one;
    a.run[1] = em_mul(e, a.size[2], a.run[2]);
    a.run[0] = em_mul(e, a.size[1], a.run[1]);
    const ir_kaxis *x = axis_of(w, 2), *y = axis_of(w, 1), *z = axis_of(w, 0);
    source from = {.inst = w->k->inst[w->matmul].in[1], .step = em_mul(e, num(w, part_stride(w, x)), a.run[2])};
    from.apart = w->channels >= 0 ? e->stride[w->operand][w->channels] : zero;
    LLVMValueRef words = w->k->has_last ? one
                         : w->has_pairs ? window_pair_planes(w)
                                        : window_channel_words(w),
                 plane_at = zero;
    /* rows of this tile: those that its last row of results still meets */
    LLVMValueRef missing = em_mul(e, em_sub(e, in[4], in[5]), num(w, y ? y->stride / part_stride(w, y) : 1));
    plane p = {.pitch = s.pitch, .extent = s.extent[1], .rows = em_sub(e, s.extent[0], missing), .n = 1};
    p.down = em_mul(e, num(w, part_stride(w, y)), a.run[1]);
    if (window_has_exponents(w)) {
        p.least = em_alloca(e, window_halves(w), 64);
        LLVMBuildStore(e->b, LLVMConstAllOnes(window_halves(w)), p.least);
    }
    em_loop lc = em_for(e, zero, words, one);
    LLVMValueRef by[4], first = w->has_pairs ? window_pair_of_plane(w, lc.i, by) : em_mul(e, lc.i, num(w, w->group));
    from.count = em_sub(e, w->taken, first);
    em_loop lz = em_for(e, zero, places_of(w, 0), one);
    a.origin[0] = zero;
    if (z) {
        a.origin[0] = em_add(e, em_mul(e, in[2], num(w, z->stride)), em_mul(e, lz.i, num(w, dilation_of(w, z))));
        a.origin[0] = em_sub(e, a.origin[0], num(w, begin_of(w, 0)));
    }
    em_loop ly = em_for(e, zero, s.parts[0], one);
    a.origin[1] = em_select(e, s.is_by_place[0], em_mul(e, ly.i, num(w, dilation_of(w, y))), ly.i);
    a.origin[1] =
        em_add(e, a.origin[1], em_sub(e, em_mul(e, in[3], num(w, y ? y->stride : 1)), num(w, begin_of(w, 1))));
    em_loop lx = em_for(e, zero, s.parts[1], one);
    /* columns: element i is i * stride + origin of the axis */
    a.origin[2] = em_select(e, s.is_by_place[1], em_mul(e, lx.i, num(w, dilation_of(w, x))), lx.i);
    a.origin[2] = em_sub(e, a.origin[2], num(w, begin_of(w, 2)));
    if (w->cuts) a.origin[2] = em_add(e, a.origin[2], em_mul(e, in[6], num(w, x->stride)));
    plane_at = em_add(e, em_mul(e, em_add(e, em_mul(e, lc.i, places_of(w, 0)), lz.i), s.parts[0]), ly.i);
    plane_at = em_mul(e, em_add(e, em_mul(e, plane_at, s.parts[1]), lx.i), s.plane);
    p.dst = element(w, w->slab, plane_at);
    if (w->k->n_folded) {
        p.n = w->group;
        for (int i = 0; i < p.n; i++) p.piece[i] = folded_piece(w, &from, &p, &a, em_add(e, first, num(w, i)));
    } else { /* of tiles, words behind the last channel: zeros */
        LLVMValueRef is_there = w->is_tiled ? em_icmp(e, LLVMIntSGT, from.count, zero) : NULL;
        p.piece[0] = piece_of(w, &from, &p, &a, first, (LLVMValueRef[3]){0}, is_there);
    }
    if (w->has_pairs) {
        LLVMValueRef next = em_add(e, first, by[3]), is_there = em_icmp(e, LLVMIntSLT, next, w->taken);
        p.n = 2;
        p.piece[1] = piece_of(w, &from, &p, &a, next, (LLVMValueRef[3]){by[2], by[1], by[0]}, is_there);
    }
    if (w->k->has_last) emit_last(w, &from, &p, s.plane);
    else if (e->level->has_mask) emit_columns(w, &from, &p);
    else emit_rows(w, &from, &p);
    em_end(e, &lx);
    em_end(e, &ly);
    em_end(e, &lz);
    em_end(e, &lc);
    if (window_has_exponents(w))
        em_store_least_exponent(e, LLVMBuildLoad2(e->b, window_halves(w), p.least, ""), window_slab_exponent(w));
    e->lanes = lanes;
    window_end(w, o);
}

/* ---- weights ---- */
/* Elements begin .. end - 1, v_lanes at a time, the rest one by one or masked. */
static void emit_run(window *w, source *s, LLVMValueRef dst, LLVMValueRef count) {
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), off = s->off, whole = em_and(e, count, num(w, -w->v_lanes));
    for (int i = 0; i < 2; i++) {
        const bool is_rest = i == 1;
        e->lanes = is_rest && !e->level->has_mask ? 1 : w->v_lanes;
        em_loop l = em_for(e, is_rest ? whole : zero, is_rest ? count : whole, num(w, e->lanes));
        s->off = em_add(e, off, l.i);
        s->mask = is_rest && e->lanes > 1 ? em_mask(e, em_sub(e, count, l.i)) : NULL;
        store(w, value_at(w, s), element(w, dst, l.i), s->mask);
        em_end(e, &l);
    }
    e->lanes = 1;
}

LLVMValueRef window_sum_of_row(window *w, LLVMValueRef row) {
    emit *e = w->e;
    em_loop l = em_for(e, num(w, 0), w->kk, num(w, 1));
    LLVMValueRef sum = em_loop_phi(e, &l, LLVMConstNull(e->t_i32)), next = sum;
    LLVMValueRef x = LLVMBuildLoad2(e->b, e->t_i32, element(w, row, l.i), "");
    for (int g = 0; g < 4; g++) {
        LLVMValueRef left = g < 3 ? em_shl(e, x, 24 - 8 * g) : x;
        next = em_sub(e, next, em_shl(e, em_ashr(e, left, 24), 7));
    }
    em_loop_next(e, sum, next);
    em_end(e, &l);
    return sum;
}

LLVMValueRef window_weight_words(window *w, LLVMValueRef off, LLVMValueRef left) {
    source from = {.inst = w->k->inst[w->matmul].in[0], .off = off, .apart = w->places, .count = left};
    from.step = em_mul(w->e, num(w, w->group), w->places);
    return value_at(w, &from);
}

LLVMValueRef window_weights_at(window *w, LLVMValueRef off, LLVMValueRef step, LLVMValueRef mask) {
    return value_at(w, &(source){.inst = w->k->inst[w->matmul].in[0], .off = off, .step = step, .mask = mask});
}

/* Number of a row of weights: of the batches that they vary along, then of m. */
LLVMValueRef window_weights_row(window *w, LLVMValueRef row) {
    emit *e = w->e;
    LLVMValueRef m = e->size[w->dim_m], number = LLVMBuildUDiv(e->b, row, m, "");
    LLVMValueRef off = em_mul(e, LLVMBuildURem(e->b, row, m, ""), e->stride[w->weights][w->dim_m]);
    for (int d = w->n_batch - 1; d >= 0; d--) {
        if (w->k->buffer[w->weights].stride[d] == 0) continue;
        off = em_add(e, off, em_mul(e, LLVMBuildURem(e->b, number, e->size[d], ""), e->stride[w->weights][d]));
        number = LLVMBuildUDiv(e->b, number, e->size[d], "");
    }
    return off;
}

static void emit_weight_row(window *w, LLVMValueRef number, LLVMValueRef row) {
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), one = num(w, 1), off = window_weights_row(w, number);
    if (w->is_transposed) {
        window_pack_phases(w, off, one, NULL, row, one);
        return;
    }
    if (w->has_pairs) {
        window_emit_pair_row(w, off, row);
        return;
    }
    source from = {.inst = w->k->inst[w->matmul].in[0], .step = one, .apart = w->places};
    if (w->group == 1) {
        from.off = off;
        emit_run(w, &from, row, w->kk);
        return;
    }
    LLVMValueRef words = window_channel_words(w);
    em_loop lc = em_for(e, zero, words, one);
    LLVMValueRef first = em_mul(e, lc.i, num(w, w->group));
    from.count = em_sub(e, w->taken, first);
    from.off = em_add(e, off, em_mul(e, first, w->places));
    emit_run(w, &from, element(w, row, em_mul(e, lc.i, w->places)), w->places);
    em_end(e, &lc);
}

void window_emit_weight_rows(window *w, LLVMValueRef first, LLVMValueRef rows, LLVMValueRef dst) {
    emit *e = w->e;
    const int lanes = e->lanes;
    e->lanes = 1;
    em_loop l = em_for(e, num(w, 0), rows, num(w, 1));
    emit_weight_row(w, em_add(e, first, l.i), element(w, dst, em_mul(e, l.i, w->kk)));
    em_end(e, &l);
    e->lanes = lanes;
}

void window_emit_weights(window *w) {
    emit *e = w->e;
    LLVMTypeRef parameter[3] = {e->t_ptr, e->t_i64, e->t_i64};
    window_outer *o = window_begin(w, WEIGHTS, "weights", parameter, 3);
    const int lanes = e->lanes;
    e->lanes = 1;
    em_loop l = em_for(e, LLVMGetParam(e->fn, 1), LLVMGetParam(e->fn, 2), num(w, 1));
    LLVMValueRef row = element(w, w->weight_base, em_mul(e, l.i, w->kk));
    emit_weight_row(w, l.i, row);
    if (w->has_pairs) window_store_exponent(w, row, w->kk, NULL, element(w, w->first_sums, l.i));
    if (w->adds) {
        LLVMValueRef sum = window_sum_of_row(w, row);
        LLVMSetAlignment(LLVMBuildStore(e->b, sum, element(w, w->first_sums, l.i)), 4);
    }
    em_end(e, &l);
    e->lanes = lanes;
    window_end(w, o);
}
