/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* window_depthwise.c: convolutions of one channel a group. Each channel has few products, so the operand's elements are
 * what is shared: by the columns and rows that meet them.
 *
 *   tile of work   rows y0 .., columns x0 .. of one channel (with all that are made of it)
 *   COPY           the part of the operand that they meet goes to scratch, with its pads, the columns by their number
 *                  modulo the stride: so vectors of columns lie in memory whatever the stride is, and no product needs
 *                  a mask
 *   PLANE          mr rows x nv vectors of sums at a time; weights stay in all lanes of registers, a vector of the
 *                  operand is loaded once for all rows that meet it
 *   the program    on the sums, in registers; at the edges masked; through memory where it is large or there are no
 *                  masks
 *
 * Pads stay in scratch from one tile to the next where all tiles have the same columns. Where a row of results is no
 * more than a vector (ir_depthwise_in_place), nothing is copied: what a store has just put there is not soon read as
 * other vectors, beside few products. (512 channels of 7x7, EPYC 9005: 1.33 times as
 * fast; with masks made once for all channels and half vectors 2.4 times.) Where it is half a vector or less, two rows
 * of sums are a vector (by_pairs): a row of the operand is loaded once, and each place shuffles two of them. (960
 * channels, 5x5: 7x7 1.29 times as fast, 14x14 of stride 2 1.48 times.) The order of a sum is that of window.c. */
#include "jit/window.h"

enum { IS_THERE = 1, IS_FRESH = 2 }; /* of COPY: the plane is none of pads; scratch has nothing of the row yet */

typedef struct depthwise {
    window *w;
    ir_depthwise d;
    ir_kaxis x, y, z; /* y, z: of one place where there are no such axes */
    bool has_y, has_z;
    LLVMValueRef rows, columns;      /* of a tile */
    LLVMValueRef pitch, line, plane; /* elements of a part, a row and a plane in scratch */
    LLVMValueRef scratch;            /* the first row */
    bool in_place;                   /* ir_depthwise_in_place: scratch is a row of zeros */
    bool by_pairs;                   /* with it: a vector of sums is two rows */
} depthwise;

static LLVMValueRef rows_of(depthwise *d, LLVMValueRef rows) {
    window *w = d->w;
    return em_add(w->e, em_mul(w->e, rows, num(w, d->y.stride)),
                  num(w, (d->d.places[1] - 1) * d->y.dilation + 1 - d->y.stride));
}
/* ORDER ir_launch_depthwise */
static void set_layout(depthwise *d) {
    window *w = d->w;
    emit *e = w->e;
    d->rows = em_max(e, e->tune[IR_TUNE_WINDOW_ROWS], num(w, w->mr));
    d->columns = em_max(e, e->tune[IR_TUNE_WINDOW_COLUMNS], num(w, w->nr));
    d->pitch =
        em_and(e, em_add(e, d->columns, num(w, (d->d.places[2] - 1) * d->x.dilation / d->x.stride + 15)), num(w, -16));
    d->line = em_mul(e, d->pitch, num(w, d->d.n_parts));
    d->plane = em_mul(e, d->line, rows_of(d, d->rows));
    w->tile = e->scratch;
    d->scratch = element(w, e->scratch, num(w, (w->mr * w->nr * w->bytes + 63) / 64 * 64 / w->bytes + d->d.lead));
}

static window_outer *begin(depthwise *d, window_function f, const char *name, LLVMTypeRef *parameter, unsigned n) {
    window_outer *o = window_begin(d->w, f, name, parameter, n);
    set_layout(d);
    return o;
}

static void end(depthwise *d, const window_outer *o) {
    window_end(d->w, o);
    set_layout(d);
}

/* ---- the operand ---- */
/* What was loaded of an operand, as sums are: narrow integers become wider. */
static LLVMValueRef converted(window *w, int buffer, LLVMValueRef x) {
    return em_cast(w->e, x, w->k->buffer[buffer].dtype, w->acc);
}

/* Columns of a part of each row: element i of from .. to - 1 is column `first` + i * stride. whole: up to here in
 * vectors; mask: of the last one, where the level has masks. */
typedef struct part {
    LLVMValueRef first, from, to, whole, mask;
} part;

static part part_of(depthwise *d, int first, LLVMValueRef column, LLVMValueRef width) {
    window *w = d->w;
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), step = num(w, d->x.stride), begin = em_sub(e, num(w, d->x.begin - first), column);
    part p = {.first = num(w, first)};
    p.from = em_min(e, window_divide_up(w, em_max(e, begin, zero), step), d->pitch);
    p.to = em_min(e, window_divide_up(w, em_max(e, em_add(e, begin, width), zero), step), d->pitch);
    p.whole = em_add(e, p.from, em_and(e, em_sub(e, p.to, p.from), num(w, -w->lanes)));
    if (e->level->has_mask) p.mask = em_mask(e, em_sub(e, p.to, p.whole));
    return p;
}

/* first: of the row's operand. */
static void copy_vector(depthwise *d, const part *p, LLVMValueRef first, LLVMValueRef dst, LLVMValueRef i,
                        LLVMValueRef mask) {
    window *w = d->w;
    emit *e = w->e;
    LLVMValueRef step = num(w, d->x.stride), at = em_add(e, em_add(e, first, p->first), em_mul(e, i, step)),
                 v = converted(w, w->operand, em_load(e, w->operand, at, step, mask));
    em_store_ptr(e, w->acc, v, element(w, dst, i), mask, (unsigned)w->bytes);
}

static void copy_part(depthwise *d, const part *p, LLVMValueRef first, LLVMValueRef dst) {
    window *w = d->w;
    emit *e = w->e;
    em_loop l = em_for(e, p->from, p->whole, num(w, w->lanes));
    copy_vector(d, p, first, dst, l.i, NULL);
    em_end(e, &l);
    if (e->level->has_mask) {
        copy_vector(d, p, first, dst, p->whole, p->mask);
        return;
    }
    const int lanes = e->lanes;
    e->lanes = 1;
    em_loop rest = em_for(e, p->whole, p->to, num(w, 1));
    copy_vector(d, p, first, dst, rest.i, NULL);
    em_end(e, &rest);
    e->lanes = lanes;
}

/* Both parts of a stride of 2, whose elements take turns: those of p[0] begin. */
typedef struct turns {
    LLVMValueRef dst[2], mask[2],
        read[2];                       /* dst: elements of the row's scratch; masks of the last vectors: stored; read */
    LLVMValueRef column, count, whole; /* of the first; columns; of them in pairs of vectors */
} turns;

static turns turns_of(depthwise *d, const part p[2]) {
    window *w = d->w;
    emit *e = w->e;
    LLVMValueRef column[2], lanes = num(w, w->lanes);
    for (int i = 0; i < 2; i++) column[i] = em_add(e, p[i].first, em_mul(e, p[i].from, num(w, 2)));
    LLVMValueRef is_second = em_icmp(e, LLVMIntSLT, column[1], column[0]);
    turns t = {.column = em_min(e, column[0], column[1])};
    LLVMValueRef count[2] = {em_sub(e, p[0].to, p[0].from), em_sub(e, p[1].to, p[1].from)},
                 dst[2] = {p[0].from, em_add(e, d->pitch, p[1].from)};
    t.count = em_add(e, count[0], count[1]);
    t.whole = em_and(e, t.count, num(w, -2 * w->lanes));
    LLVMValueRef half = em_lshr(e, t.whole, 1), left = em_sub(e, t.count, t.whole);
    for (int i = 0; i < 2; i++) {
        t.dst[i] = em_select(e, is_second, dst[!i], dst[i]);
        t.mask[i] = em_mask(e, em_sub(e, em_select(e, is_second, count[!i], count[i]), half));
        t.read[i] = em_mask(e, i ? em_sub(e, left, lanes) : left);
    }
    return t;
}

static void copy_pair(depthwise *d, const turns *t, LLVMValueRef first, LLVMValueRef row, LLVMValueRef i,
                      bool is_last) {
    window *w = d->w;
    emit *e = w->e;
    LLVMValueRef at = em_add(e, em_add(e, first, t->column), i), v[2], lane[64];
    for (int k = 0; k < 2; k++)
        v[k] = converted(
            w, w->operand,
            em_load(e, w->operand, em_add(e, at, num(w, k * w->lanes)), num(w, 1), is_last ? t->read[k] : NULL));
    for (int k = 0; k < 2; k++) {
        for (int j = 0; j < w->lanes; j++) lane[j] = LLVMConstInt(e->t_i32, (unsigned)(2 * j + k), 0);
        LLVMValueRef x = LLVMBuildShuffleVector(e->b, v[0], v[1], LLVMConstVector(lane, (unsigned)w->lanes), ""),
                     to = element(w, row, em_add(e, t->dst[k], em_lshr(e, i, 1)));
        em_store_ptr(e, w->acc, x, to, is_last ? t->mask[k] : NULL, (unsigned)w->bytes);
    }
}

static void copy_turns(depthwise *d, const turns *t, LLVMValueRef first, LLVMValueRef row) {
    emit *e = d->w->e;
    em_loop l = em_for(e, num(d->w, 0), t->whole, num(d->w, 2 * d->w->lanes));
    copy_pair(d, t, first, row, l.i, false);
    em_end(e, &l);
    copy_pair(d, t, first, row, t->whole, true);
}

/* (args, offset of the operand, row of scratch, row and column with pads, rows, IS_ bits) */
static void emit_copy(depthwise *d) {
    window *w = d->w;
    emit *e = w->e;
    LLVMTypeRef parameter[7] = {e->t_ptr, e->t_i64, e->t_ptr, e->t_i64, e->t_i64, e->t_i64, e->t_i64};
    window_outer *o = begin(d, COPY, "copy", parameter, 7);
    LLVMValueRef in[7], zero = num(w, 0);
    part p[IR_DEPTHWISE_STRIDE];
    turns t;
    LLVMGetParams(e->fn, in);
    e->lanes = w->lanes;
    LLVMValueRef width = axis_size(w, &d->x), height = d->has_y ? axis_size(w, &d->y) : num(w, 1);
    for (int i = 0; i < d->d.n_parts; i++) p[i] = part_of(d, d->d.first[i], in[4], width);
    const bool by_turns = e->level->has_mask && d->x.stride == 2 && d->d.n_parts == 2;
    if (by_turns) t = turns_of(d, p);
    LLVMValueRef is_there = em_icmp(e, LLVMIntNE, em_and(e, in[6], num(w, IS_THERE)), zero),
                 is_fresh = em_icmp(e, LLVMIntNE, em_and(e, in[6], num(w, IS_FRESH)), zero);
    LLVMValueRef top = em_sub(e, num(w, d->y.begin), in[3]), bottom = em_add(e, top, height);
    em_loop l = em_for(e, zero, in[5], num(w, 1));
    LLVMValueRef row = element(w, in[2], em_mul(e, l.i, d->line)),
                 is_row = em_and(e, em_and(e, em_icmp(e, LLVMIntSGE, l.i, top), em_icmp(e, LLVMIntSLT, l.i, bottom)),
                                 is_there);
    em_branch b = em_if(e, em_or(e, is_fresh, em_xor(e, is_row, LLVMConstInt(e->t_i1, 1, 0))));
    em_loop lz = em_for(e, zero, d->line, num(w, w->lanes));
    em_store_ptr(e, w->acc, LLVMConstNull(em_type(e, w->acc)), element(w, row, lz.i), NULL, (unsigned)w->bytes);
    em_end(e, &lz);
    em_endif(e, &b);
    b = em_if(e, is_row);
    LLVMValueRef source = em_add(e, in[1], em_mul(e, l.i, width));
    if (by_turns) copy_turns(d, &t, source, row);
    for (int i = 0; i < d->d.n_parts && !by_turns; i++)
        copy_part(d, &p[i], source, element(w, row, em_mul(e, d->pitch, num(w, i))));
    em_endif(e, &b);
    em_end(e, &l);
    end(d, o);
}

/* ---- sums ---- */
/* What the sums of some rows and columns read. In scratch: the first row. In place: rows of the operand, of which those
 * that are there are `begin` .. `end` - 1; the places' columns that are, of the one or two vectors that are read. */
typedef struct source {
    LLVMValueRef row, begin, end, width, pairs; /* pairs: by pairs, a mask of a row's elements */
    LLVMValueRef mask[IR_DEPTHWISE_PLACES][2];
} source;

/* Lane i is column i * stride + p * dilation, pads included. */
static void mask_places(depthwise *d, source *s) {
    window *w = d->w;
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), step = num(w, d->x.stride), n = e->size[w->dim_n],
                 ones = LLVMConstAllOnes(LLVMVectorType(e->t_i1, (unsigned)w->v_lanes));
    s->width = axis_size(w, &d->x);
    if (d->by_pairs) {
        e->lanes = 2 * w->v_lanes;
        s->pairs = em_mask(e, s->width);
        e->lanes = w->v_lanes;
        return;
    }
    for (int p = 0; p < d->d.places[2]; p++) {
        LLVMValueRef lo = num(w, d->x.begin - p * d->x.dilation), hi = em_add(e, lo, s->width);
        lo = window_divide_up(w, em_max(e, lo, zero), step);
        hi = em_min(e, window_divide_up(w, em_max(e, hi, zero), step), n);
        LLVMValueRef active = em_and(e, em_mask(e, hi), em_xor(e, em_mask(e, lo), ones));
        for (int i = 0; i < 2; i++) s->mask[p][i] = window_active_elements(w, active, (int)d->x.stride, i);
    }
}

/* Row r of the operand, which is at s->row, for each part of it; s goes on to the next. */
static void next_row(depthwise *d, source *s, int r, LLVMValueRef of[IR_DEPTHWISE_STRIDE]) {
    window *w = d->w;
    emit *e = w->e;
    of[0] = s->row;
    if (d->in_place) {
        LLVMValueRef is_there =
            em_and(e, em_icmp(e, LLVMIntSLE, s->begin, num(w, r)), em_icmp(e, LLVMIntSGT, s->end, num(w, r)));
        of[0] = em_select(e, is_there, s->row, d->scratch);
    } else
        for (int i = 1; i < d->d.n_parts; i++) of[i] = element(w, of[i - 1], d->pitch);
    s->row = element(w, s->row, d->in_place ? s->width : d->line);
}

/* What vector j of results meets of a row at place p. */
static LLVMValueRef load_place(depthwise *d, const source *s, LLVMValueRef *of, int p, int j) {
    window *w = d->w;
    if (!d->in_place) return window_load_vector(w, element(w, of[d->d.part[p]], num(w, d->d.at[p] + j * w->v_lanes)));
    LLVMValueRef mask[2] = {s->mask[p][0], s->mask[p][1]};
    return window_load_columns(w, of[0], (int)(p * d->x.dilation), (int)d->x.stride, mask);
}

/* What rows of sums meet at place p: the first half of the columns of a vector's elements of one row, the second of
 * those of another. What lies before the elements is a pad, what lies behind them was read as zeros. */
static LLVMValueRef pair_of(depthwise *d, LLVMValueRef a, LLVMValueRef b, int p) {
    window *w = d->w;
    emit *e = w->e;
    LLVMValueRef lane[64], is_there[64];
    for (int i = 0; i < 2 * w->v_lanes; i++) {
        const int64_t at = i % w->v_lanes * d->x.stride + p * d->x.dilation - d->x.begin;
        const bool is = at >= 0 && at < 2 * w->v_lanes;
        lane[i] = LLVMConstInt(e->t_i32, is ? (unsigned)at + (i < w->v_lanes ? 0 : 2u * (unsigned)w->v_lanes) : 0, 0);
        is_there[i] = LLVMConstInt(e->t_i1, is, 0);
    }
    const unsigned n = 2 * (unsigned)w->v_lanes;
    LLVMValueRef x = LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(lane, n), "");
    return em_select(e, LLVMConstVector(is_there, n), x, LLVMConstNull(LLVMTypeOf(x)));
}

/* Rows i and i + half of the sums in one vector: half as many products, and each row of the operand is loaded once. */
static void emit_pairs(depthwise *d, source s, LLVMValueRef weights, LLVMValueRef *sum) {
    window *w = d->w;
    emit *e = w->e;
    const int height = d->d.places[1], width = d->d.places[2], sy = (int)d->y.stride, dy = (int)d->y.dilation,
              half = (w->mr + 1) / 2, last = (half - 1) * sy + (height - 1) * dy;
    LLVMValueRef row[2 * IR_DEPTHWISE_REACH], pair[WINDOW_MAX_TILE], lane[64], of[IR_DEPTHWISE_STRIDE];
    e->lanes = 2 * w->v_lanes;
    LLVMTypeRef vector = em_vec(e, w->t_acc);
    for (int i = 0; i < half; i++) pair[i] = LLVMConstNull(vector);
    for (int r = 0, n = 0; r <= last; r++) {
        for (; n <= r + half * sy; n++) {
            next_row(d, &s, n, of);
            row[n] = em_load_ptr(e, w->acc, element(w, of[0], num(w, d->x.begin)), s.pairs, (unsigned)w->bytes);
        }
        for (int p = 0; p < width; p++) {
            LLVMValueRef v = NULL;
            for (int i = 0; i < half; i++) {
                const int at = r - i * sy;
                if (at < 0 || at % dy || at / dy >= height) continue;
                if (!v) v = pair_of(d, row[r], row[r + half * sy], p);
                LLVMValueRef weight =
                    em_load_splat(e, vector, element(w, weights, num(w, at / dy * width + p)), (unsigned)w->bytes);
                pair[i] = window_multiply(w, weight, v, pair[i]);
            }
        }
    }
    for (int i = 0; i < w->mr; i++) {
        for (int k = 0; k < w->v_lanes; k++)
            lane[k] = LLVMConstInt(e->t_i32, (unsigned)(k + (i < half ? 0 : w->v_lanes)), 0);
        sum[i] = LLVMBuildShuffleVector(e->b, pair[i % half], pair[i % half],
                                        LLVMConstVector(lane, (unsigned)w->v_lanes), "");
    }
    e->lanes = w->v_lanes;
}

/* Of rows and vectors, in row-major order of the places. */
static void emit_sums(depthwise *d, const source *x, LLVMValueRef *weight, LLVMValueRef *sum) {
    window *w = d->w;
    emit *e = w->e;
    const int height = d->d.places[1], width = d->d.places[2], sy = (int)d->y.stride, dy = (int)d->y.dilation,
              last = (w->mr - 1) * sy + (height - 1) * dy;
    for (int i = 0; i < w->mr * w->nv; i++) sum[i] = LLVMConstNull(w->t_vec);
    for (int z = 0; z < d->d.places[0]; z++) {
        source s = *x;
        if (z) s.row = element(w, x->row, em_mul(e, d->plane, num(w, z)));
        for (int r = 0; r <= last; r++) {
            LLVMValueRef of[IR_DEPTHWISE_STRIDE];
            next_row(d, &s, r, of);
            for (int p = 0; p < width; p++) {
                LLVMValueRef v[8] = {NULL};
                for (int i = 0; i < w->mr; i++) {
                    const int at = r - i * sy;
                    if (at < 0 || at % dy || at / dy >= height) continue;
                    for (int j = 0; j < w->nv; j++) {
                        if (!v[j]) v[j] = load_place(d, &s, of, p, j);
                        LLVMValueRef *t = &sum[i * w->nv + j];
                        *t = window_multiply(w, weight[(z * height + at / dy) * width + p], v[j], *t);
                    }
                }
            }
        }
    }
}

typedef struct place {
    LLVMValueRef off[IR_KERNEL_MAX_BUFFERS], index[IR_KERNEL_MAX_DIMS]; /* of the first row and column */
    LLVMValueRef fixed[IR_KERNEL_MAX_INSTS]; /* loads that neither rows nor columns change; NULL: others */
} place;

/* Offsets and indices `by` further along dim d. */
static void move(window *w, place *p, int d, LLVMValueRef by) {
    for (int b = 0; b < w->k->n_buffers; b++)
        if (b != w->weights && b != w->operand && w->k->buffer[b].stride[d] != 0)
            p->off[b] = em_add(w->e, p->off[b], em_mul(w->e, by, window_step_of(w, b, d)));
    p->index[d] = em_add(w->e, p->index[d], by);
}

static void evaluate(window *w, place *p, LLVMValueRef sum, LLVMValueRef mask) {
    emit *e = w->e;
    window_point at = {w, p->off, p->index, e->lanes > 1 ? w->dim_n : -1, mask};
    em_values v;
    em_values_init(&v, window_load, &at);
    for (int i = 0; i < w->k->n_insts && e->lanes > 1; i++) v.at[i] = p->fixed[i];
    v.at[w->matmul] = sum;
    for (int i = 0; i < w->k->n_insts; i++) {
        const ir_kinst *in = &w->k->inst[i];
        if (in->op != IR_K_STORE) continue;
        LLVMValueRef value = em_value(e, &v, in->in[0]);
        em_store(e, in->index, value, p->off[in->index], window_step_of(w, in->index, at.axis), mask);
    }
}

/* From registers; rows and columns that are left, or NULL: all there are. */
static void finish_registers(depthwise *d, const place *first, LLVMValueRef *sum, LLVMValueRef rows,
                             LLVMValueRef columns) {
    window *w = d->w;
    emit *e = w->e;
    LLVMValueRef mask[8] = {NULL};
    for (int j = 0; j < w->nv && columns; j++) mask[j] = em_mask(e, em_sub(e, columns, num(w, j * w->v_lanes)));
    for (int i = 0; i < w->mr; i++) {
        em_branch b = {0};
        if (rows && i) b = em_if(e, em_icmp(e, LLVMIntSGT, rows, num(w, i)));
        for (int j = 0; j < w->nv; j++) {
            place p = *first;
            move(w, &p, w->dim_y, num(w, i));
            move(w, &p, w->dim_n, num(w, j * w->v_lanes));
            evaluate(w, &p, sum[i * w->nv + j], mask[j]);
        }
        if (rows && i) em_endif(e, &b);
    }
}

/* From the register tile in memory. */
static void finish_memory(depthwise *d, const place *first, LLVMValueRef rows, LLVMValueRef columns) {
    window *w = d->w;
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), whole = em_and(e, columns, num(w, -w->lanes));
    em_loop lr = em_for(e, zero, rows, num(w, 1));
    place row = *first;
    move(w, &row, w->dim_y, lr.i);
    LLVMValueRef x = element(w, w->tile, em_mul(e, lr.i, num(w, w->nr)));
    em_loop l = em_for(e, zero, whole, num(w, w->lanes));
    place p = row;
    move(w, &p, w->dim_n, l.i);
    evaluate(w, &p, em_load_ptr(e, w->acc, element(w, x, l.i), NULL, (unsigned)w->bytes), NULL);
    em_end(e, &l);
    p = row;
    if (e->level->has_mask) {
        em_branch b = em_if(e, em_icmp(e, LLVMIntSLT, whole, columns));
        move(w, &p, w->dim_n, whole);
        evaluate(w, &p, em_load_ptr(e, w->acc, element(w, x, whole), NULL, (unsigned)w->bytes),
                 em_mask(e, em_sub(e, columns, whole)));
        em_endif(e, &b);
    } else {
        const int lanes = e->lanes;
        e->lanes = 1;
        em_loop rest = em_for(e, whole, columns, num(w, 1));
        move(w, &p, w->dim_n, rest.i);
        evaluate(w, &p, em_load_ptr(e, w->acc, element(w, x, rest.i), NULL, (unsigned)w->bytes), NULL);
        em_end(e, &rest);
        e->lanes = lanes;
    }
    em_end(e, &lr);
}

static void finish_through_memory(depthwise *d, const place *first, LLVMValueRef *sum, LLVMValueRef rows,
                                  LLVMValueRef columns) {
    window *w = d->w;
    for (int i = 0; i < w->mr * w->nv; i++) {
        LLVMValueRef at = element(w, w->tile, num(w, i / w->nv * w->nr + i % w->nv * w->v_lanes));
        LLVMSetAlignment(LLVMBuildStore(w->e->b, sum[i], at), (unsigned)w->bytes);
    }
    finish_memory(d, first, em_min(w->e, rows, num(w, w->mr)), em_min(w->e, columns, num(w, w->nr)));
}

static place place_at(window *w, LLVMValueRef *index) {
    place at = {.off = {NULL}};
    for (int b = 0; b < w->k->n_buffers; b++) at.off[b] = window_offset_of(w, b, index);
    for (int i = 0; i <= w->dim_n; i++) at.index[i] = index[i];
    return at;
}

/* What PLANE is told of a place: offsets of buffers, then indices of the dims before k. */
static LLVMValueRef word_of(window *w, LLVMValueRef block, int i) {
    return em_gep(w->e, block, w->e->t_i64, num(w, i));
}

static void write_place(window *w, LLVMValueRef block, const place *at) {
    const int n = w->k->n_buffers;
    for (int b = 0; b < n; b++) LLVMBuildStore(w->e->b, at->off[b], word_of(w, block, b));
    for (int i = 0; i <= w->dim_n; i++) LLVMBuildStore(w->e->b, at->index[i], word_of(w, block, n + i));
}

static place read_place(window *w, LLVMValueRef block) {
    const int n = w->k->n_buffers;
    place at = {.off = {NULL}};
    for (int b = 0; b < n; b++) at.off[b] = LLVMBuildLoad2(w->e->b, w->e->t_i64, word_of(w, block, b), "");
    for (int i = 0; i <= w->dim_n; i++)
        at.index[i] = LLVMBuildLoad2(w->e->b, w->e->t_i64, word_of(w, block, n + i), "");
    return at;
}

/* A place's, in all lanes. */
static LLVMValueRef load_weight(window *w, LLVMValueRef weights, int number) {
    emit *e = w->e;
    const ir_dtype t = e->k->buffer[w->weights].dtype;
    LLVMValueRef at = em_gep(e, weights, em_memory_type(e, t), num(w, number)), x = NULL;
    e->lanes = 1;
    if (t != w->acc) x = converted(w, w->weights, em_load_ptr(e, t, at, NULL, ir_dtypes[t].bytes));
    e->lanes = w->v_lanes;
    return t != w->acc ? em_splat(e, x) : em_load_splat(e, w->t_vec, at, (unsigned)w->bytes);
}

/* One channel from a place on; of_tile: what mask_places made, or nothing. */
static void emit_channel(depthwise *d, place first, LLVMValueRef weights, LLVMValueRef all_rows,
                         LLVMValueRef all_columns, const source *of_tile) {
    window *w = d->w;
    emit *e = w->e;
    const bool in_registers = w->v_lanes == w->lanes && ir_window_is_small(w->k);
    LLVMValueRef zero = num(w, 0), weight[IR_DEPTHWISE_PLACES], sum[WINDOW_MAX_TILE];
    source x = *of_tile;
    for (int i = 0; i < d->d.places[0] * d->d.places[1] * d->d.places[2] && !d->by_pairs; i++)
        weight[i] = load_weight(w, weights, i);
    e->lanes = w->lanes;
    for (int i = 0; i < w->k->n_insts && in_registers; i++) {
        const ir_kinst *in = &w->k->inst[i];
        if (in->op != IR_K_LOAD || in->variant || in->index == w->weights || in->index == w->operand) continue;
        const int64_t *stride = w->k->buffer[in->index].stride;
        if (stride[w->dim_y] || stride[w->dim_n]) continue;
        first.fixed[i] = em_load(e, in->index, first.off[in->index], zero, NULL);
    }
    em_loop ly = em_for(e, zero, all_rows, num(w, w->mr)), lx;
    LLVMValueRef row = em_mul(e, ly.i, num(w, d->y.stride)), rows = em_sub(e, all_rows, ly.i), columns = all_columns;
    place at = first;
    move(w, &at, w->dim_y, ly.i);
    if (d->in_place) {
        LLVMValueRef above = em_add(e, em_mul(e, first.index[w->dim_y], num(w, d->y.stride)), row);
        x.begin = em_sub(e, num(w, d->y.begin), above);
        x.end = em_add(e, x.begin, d->has_y ? axis_size(w, &d->y) : num(w, 1));
        x.row = element(w, e->base[w->operand], em_add(e, first.off[w->operand], em_mul(e, row, x.width)));
    } else {
        lx = em_for(e, zero, all_columns, num(w, w->nr));
        columns = em_sub(e, all_columns, lx.i);
        move(w, &at, w->dim_n, lx.i);
        x.row = element(w, d->scratch, em_add(e, em_mul(e, row, d->line), lx.i));
    }
    e->lanes = w->v_lanes;
    if (d->by_pairs) emit_pairs(d, x, weights, sum);
    else emit_sums(d, &x, weight, sum);
    e->lanes = w->lanes;
    if (in_registers) {
        LLVMValueRef is_whole = em_icmp(e, LLVMIntSGE, rows, num(w, w->mr)), whole_columns = NULL;
        if (d->in_place) whole_columns = columns;
        else is_whole = em_and(e, is_whole, em_icmp(e, LLVMIntSGE, columns, num(w, w->nr)));
        em_branch b = em_if(e, is_whole);
        finish_registers(d, &at, sum, NULL, whole_columns);
        em_else(e, &b);
        if (e->level->has_mask) finish_registers(d, &at, sum, rows, columns);
        else finish_through_memory(d, &at, sum, rows, columns);
        em_endif(e, &b);
    } else finish_through_memory(d, &at, sum, rows, columns);
    if (!d->in_place) em_end(e, &lx);
    em_end(e, &ly);
}

/* (args, block, weights, rows, columns): one channel, from scratch. */
static void emit_plane(depthwise *d) {
    window *w = d->w;
    LLVMTypeRef ptr = w->e->t_ptr, number = w->e->t_i64, parameter[5] = {ptr, ptr, ptr, number, number};
    window_outer *o = begin(d, PLANE, "plane", parameter, 5);
    LLVMValueRef in[5];
    LLVMGetParams(w->e->fn, in);
    emit_channel(d, read_place(w, in[1]), in[2], in[3], in[4], &(source){.row = NULL});
    end(d, o);
}

/* ---- the kernel ---- */
/* Copies the planes that the places of the outermost axis meet. */
static void copy_planes(depthwise *d, LLVMValueRef *index, LLVMValueRef rows, LLVMValueRef flags) {
    window *w = d->w;
    emit *e = w->e;
    LLVMValueRef from = window_offset_of(w, w->operand, index), zero = num(w, 0);
    LLVMValueRef z0 = d->has_z && d->z.dim >= 0 ? em_mul(e, index[d->z.dim], num(w, d->z.stride)) : zero;
    em_loop l = em_for(e, zero, num(w, d->d.places[0]), num(w, 1));
    LLVMValueRef at = em_sub(e, em_add(e, z0, em_mul(e, l.i, num(w, d->z.dilation))), num(w, d->z.begin)),
                 is_there = LLVMConstInt(e->t_i1, 1, 0), off = from;
    if (d->has_z) is_there = em_icmp(e, LLVMIntULT, at, axis_size(w, &d->z));
    if (d->has_z && d->z.place >= 0) off = em_add(e, off, em_mul(e, l.i, e->stride[w->operand][d->z.place]));
    LLVMValueRef bits = em_or(e, flags, em_select(e, is_there, num(w, IS_THERE), zero));
    window_call(w, COPY,
                (LLVMValueRef[]){e->args, off, element(w, d->scratch, em_mul(e, l.i, d->plane)),
                                 em_mul(e, index[w->dim_y], num(w, d->y.stride)),
                                 em_mul(e, index[w->dim_n], num(w, d->x.stride)), rows, bits},
                7);
    em_end(e, &l);
}

/* Once for all tiles: zeros where scratch is to be pads. */
static void emit_zeros(depthwise *d) {
    window *w = d->w;
    emit *e = w->e;
    const int lanes = e->lanes;
    LLVMValueRef zero = num(w, 0);
    if (!d->in_place) {
        window_call(w, COPY,
                    (LLVMValueRef[]){e->args, zero, d->scratch, zero, zero,
                                     em_mul(e, rows_of(d, d->rows), num(w, d->d.places[0])), zero},
                    7);
        return;
    }
    e->lanes = w->v_lanes;
    em_loop l = em_for(e, zero, num(w, IR_DEPTHWISE_ZEROS), num(w, w->v_lanes));
    em_store_ptr(e, w->acc, LLVMConstNull(em_type(e, w->acc)), element(w, d->scratch, l.i), NULL, (unsigned)w->bytes);
    em_end(e, &l);
    e->lanes = lanes;
}

/* All channels of an image meet some rows before the next ones: so where threads share rows, as convolutions around
 * this one do, each finds what it has made (rt/tune.c). */
static void emit_tiles(depthwise *d) {
    window *w = d->w;
    emit *e = w->e;
    LLVMValueRef zero = num(w, 0), one = num(w, 1), index[IR_KERNEL_MAX_DIMS] = {0}, n = e->size[w->dim_n],
                 y = e->size[w->dim_y];
    LLVMValueRef bands = d->in_place ? one : window_divide_up(w, n, d->columns),
                 blocks = window_divide_up(w, y, d->rows),
                 block = em_alloca(e, LLVMArrayType(e->t_i64, (unsigned)(w->k->n_buffers + w->dim_n + 1)), 8);
    LLVMValueRef fresh = em_select(e, em_icmp(e, LLVMIntSGT, bands, one), num(w, IS_FRESH), zero);
    source x = {.row = NULL};
    const int lanes = e->lanes;
    emit_zeros(d);
    e->lanes = w->v_lanes;
    if (d->in_place) mask_places(d, &x);
    e->lanes = lanes;
    em_loop t = em_for(e, e->tile_begin, e->tile_end, one);
    LLVMValueRef band = LLVMBuildURem(e->b, t.i, bands, ""), rest = LLVMBuildUDiv(e->b, t.i, bands, "");
    uint32_t channels = 0;
    for (int b = 0; b < w->n_batch; b++) channels |= (uint32_t)(w->k->buffer[w->weights].stride[b] != 0) << b;
    rest = window_decode(w, rest, channels, index);
    index[w->dim_m] = zero;
    index[w->dim_y] = em_mul(e, LLVMBuildURem(e->b, rest, blocks, ""), d->rows);
    index[w->dim_n] = em_mul(e, band, d->columns);
    window_decode(w, LLVMBuildUDiv(e->b, rest, blocks, ""), window_batch_dims(w) & ~channels, index);
    LLVMValueRef rows = em_min(e, em_sub(e, y, index[w->dim_y]), d->rows),
                 columns = d->in_place ? n : em_min(e, em_sub(e, n, index[w->dim_n]), d->columns);
    LLVMValueRef whole = em_mul(e, window_divide_up(w, rows, num(w, w->mr)), num(w, w->mr));
    if (!d->in_place) copy_planes(d, index, rows_of(d, whole), fresh);
    em_loop lm = em_for(e, zero, e->size[w->dim_m], one);
    index[w->dim_m] = lm.i;
    LLVMTypeRef weight = em_memory_type(e, w->k->buffer[w->weights].dtype);
    LLVMValueRef weights = em_gep(e, e->base[w->weights], weight, window_offset_of(w, w->weights, index));
    const place first = place_at(w, index);
    if (d->in_place) {
        emit_channel(d, first, weights, rows, columns, &x);
        e->lanes = lanes;
    } else {
        write_place(w, block, &first);
        window_call(w, PLANE, (LLVMValueRef[]){e->args, block, weights, rows, columns}, 5);
    }
    em_end(e, &lm);
    em_end(e, &t);
}

/* Are the elements of a row that its results meet one vector's, of which the results are half? 3x3 of stride 1 is as
 * quick or quicker (6 %) as half vectors that are loaded for each place. */
static bool can_pair(const depthwise *d) {
    const window *w = d->w;
    const int64_t n = w->k->dim[w->dim_n].size, wide = 2 * w->v_lanes,
                  last = (n - 1) * d->x.stride + (d->d.places[2] - 1) * d->x.dilation - d->x.begin;
    if (d->x.stride == 1 && d->d.places[1] * d->d.places[2] <= 9) return false;
    return d->in_place && w->nv == 1 && w->mr > 1 && wide * w->bytes == w->e->level->vector_bytes && last < wide &&
           d->x.begin <= wide;
}

void window_emit_depthwise(window *w) {
    const ir_kernel *k = w->k;
    const ir_kaxis none = {.dim = -1, .place = -1, .stride = 1, .dilation = 1};
    depthwise *d = FU_NEW(w->e->arena, depthwise);
    *d = (depthwise){.w = w,
                     .d = ir_kernel_depthwise(k),
                     .x = k->axis[k->n_axes - 1],
                     .has_y = k->n_axes > 1,
                     .has_z = k->n_axes > 2};
    d->y = d->has_y ? k->axis[k->n_axes - 2] : none;
    d->z = d->has_z ? k->axis[k->n_axes - 3] : none;
    set_layout(d);
    d->in_place = ir_depthwise_in_place(k);
    d->by_pairs = can_pair(d);
    if (!d->in_place) {
        emit_copy(d);
        emit_plane(d);
    }
    emit_tiles(d);
}
