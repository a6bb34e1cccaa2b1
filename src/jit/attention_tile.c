/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attention_tile.c: the products of the attention kernel.
 *
 * Panels: keys (or columns of values) are the rows of the register tile and queries its columns, so that a panel's
 * scores come out as [key][query]: the largest of a query and the sum of its weights need no step across lanes, and the
 * weights are in the order that the second product reads. Rows are read one element (or word of two halves) at a time,
 * spread over the lanes: accumulators from memory where they lie, others from scratch, never transposed.
 *
 * One query: lanes along the head, v_lanes keys at once, whose sums are added across lanes together. */
#include "jit/attention.h"

enum {
    AHEAD = 4,     /* columns of values at once, in registers */
    MOST_SUMS = 32 /* of a register tile */
};

static LLVMValueRef load_vec(attention *a, LLVMValueRef ptr, int align) {
    LLVMValueRef v = LLVMBuildLoad2(a->e->b, a->t_vec, ptr, "");
    LLVMSetAlignment(v, (unsigned)align);
    return v;
}

static void store_vec(attention *a, LLVMValueRef v, LLVMValueRef ptr) {
    LLVMSetAlignment(LLVMBuildStore(a->e->b, v, ptr), (unsigned)(a->v_lanes * a->acc_bytes));
}

/* One element in every lane of a register. */
static LLVMValueRef spread(attention *a, LLVMValueRef ptr) {
    return em_load_splat(a->e, a->t_vec, ptr, (unsigned)a->acc_bytes);
}

/* A register of row elements of type t from element i on, as accumulators. */
static LLVMValueRef load_row(attention *a, ir_dtype t, LLVMValueRef row, LLVMValueRef i) {
    emit *e = a->e;
    const int lanes = e->lanes;
    e->lanes = a->v_lanes;
    LLVMTypeRef type = em_memory_type(e, t);
    LLVMValueRef v = LLVMBuildLoad2(e->b, em_vec(e, type), em_gep(e, row, type, i), "");
    LLVMSetAlignment(v, ir_dtypes[t].bytes);
    v = em_cast(e, em_to_register(e, t, v), t, a->acc);
    e->lanes = lanes;
    return v;
}

static LLVMValueRef splat(attention *a, LLVMValueRef x) {
    const int lanes = a->e->lanes;
    a->e->lanes = a->v_lanes;
    x = em_splat(a->e, x);
    a->e->lanes = lanes;
    return x;
}

static LLVMValueRef pick(attention *a, LLVMValueRef x, LLVMValueRef y, const int *index, int n) {
    LLVMValueRef lane[64];
    for (int i = 0; i < n; i++) lane[i] = LLVMConstInt(a->e->t_i32, (unsigned)index[i], 0);
    return LLVMBuildShuffleVector(a->e->b, x, y, LLVMConstVector(lane, (unsigned)n), "");
}

/* Of lanes whose bit h is 0 the values of x, of the others those of y, h lanes before; and the other halves of both. */
static void exchange(attention *a, LLVMValueRef x, LLVMValueRef y, int h, LLVMValueRef *low, LLVMValueRef *high) {
    int first[64], second[64], n = a->v_lanes;
    for (int l = 0; l < n; l++) {
        first[l] = l & h ? n + l - h : l;
        second[l] = l & h ? n + l : l + h;
    }
    *low = pick(a, x, y, first, n);
    *high = pick(a, x, y, second, n);
}

/* Row i and register j of a tile of nv registers a row. */
static LLVMValueRef tile_at(attention *a, LLVMValueRef dst, int i, int nv) {
    return attention_at(a, dst, attention_num(a, i / nv * a->nr + i % nv * a->v_lanes));
}

/* What is done with the sums of a tile, n registers. dst: its first row. */
static void store_scores(attention *a, LLVMValueRef *sum, int n, int nv, LLVMValueRef dst) {
    for (int i = 0; i < n; i++) store_vec(a, sum[i], tile_at(a, dst, i, nv));
}

static void add_to_results(attention *a, LLVMValueRef *sum, int n, int nv, LLVMValueRef dst, LLVMValueRef factors) {
    LLVMValueRef factor[ATTENTION_FORMS];
    const int align = a->v_lanes * a->acc_bytes;
    for (int j = 0; j < nv; j++) factor[j] = load_vec(a, tile_at(a, factors, j, nv), align);
    for (int i = 0; i < n; i++) {
        LLVMValueRef p = tile_at(a, dst, i, nv);
        store_vec(a, em_mad(a->e, load_vec(a, p, align), factor[i % nv], sum[i]), p);
    }
}

/* to[nr] = the largest of from[nr] and of the sums in each column. One after the other, for a NaN is never the
 * largest. */
static void find_largest(attention *a, LLVMValueRef *sum, int n, int nv, LLVMValueRef from, LLVMValueRef to) {
    emit *e = a->e;
    for (int j = 0; j < nv; j++) {
        LLVMValueRef most = load_vec(a, tile_at(a, from, j, nv), a->v_lanes * a->acc_bytes);
        for (int i = j; i < n; i += nv) most = em_select(e, em_fcmp(e, LLVMRealOGT, sum[i], most), sum[i], most);
        store_vec(a, most, tile_at(a, to, j, nv));
    }
}

/* What a register tile multiplies: rows of memory, with `step` bytes from one element to the next, and a panel. */
typedef struct tile {
    LLVMValueRef *from, step, at, panel; /* from: rows; at: bytes to the next element; panel: the next of its rows */
    int nv;
    enum { ELEMENTS, WORDS, HALVES } as; /* words of two bf16, upper first: by their instruction, or by fma */
    LLVMValueRef scale;                  /* HALVES: multiplies what the panel has */
} tile;

/* sum + x * b */
static LLVMValueRef product(emit *e, const tile *t, LLVMValueRef x, LLVMValueRef b, LLVMValueRef sum) {
    if (t->as == ELEMENTS) return em_mad(e, x, b, sum);
    if (t->as == WORDS) return em_bf16_dot(e, sum, x, b);
    for (int upper = 1; upper >= 0; upper--) {
        LLVMValueRef y = em_fmul(e, em_bf16_half(e, b, upper), t->scale);
        sum = em_mad(e, em_bf16_half(e, x, upper), y, sum);
    }
    return sum;
}

/* sum[mr * nv] += elements [begin, end) of the rows times those rows of the panel, `unroll` of them a step. */
static void multiply(attention *a, tile *t, LLVMValueRef begin, LLVMValueRef end, int unroll, LLVMValueRef *sum) {
    emit *e = a->e;
    const int nv = t->nv, n = a->mr * nv;
    LLVMValueRef first[MOST_SUMS], b[ATTENTION_FORMS];
    em_loop l = em_for(e, begin, end, attention_num(a, unroll));
    LLVMValueRef at = t->at = em_loop_phi(e, &l, t->at), panel = t->panel = em_loop_phi(e, &l, t->panel);
    for (int i = 0; i < n; i++) first[i] = sum[i] = em_loop_phi(e, &l, sum[i]);
    for (int u = 0; u < unroll; u++) {
        for (int j = 0; j < nv; j++) b[j] = load_vec(a, tile_at(a, panel, j, nv), a->v_lanes * a->acc_bytes);
        for (int i = 0; i < a->mr; i++) {
            LLVMValueRef x = spread(a, em_gep(e, t->from[i], e->t_i8, at));
            for (int j = 0; j < nv; j++) sum[i * nv + j] = product(e, t, x, b[j], sum[i * nv + j]);
        }
        at = em_add(e, at, t->step);
        panel = attention_at(a, panel, attention_num(a, a->nr));
    }
    for (int i = 0; i < n; i++) em_loop_next(e, first[i], sum[i]);
    em_loop_next(e, t->at, at);
    em_loop_next(e, t->panel, panel);
    em_end(e, &l);
    for (int i = 0; i < n; i++) sum[i] = first[i];
}

/* (a, row, rows, step, b, count, dst, factors, largest): for each row i < rows, dst[i][nr] = sum over k < count of
 * a[i * row + k * step] * b[k][nr], the products in order, each added by one rounding. Scores (with a->dot never) are
 * marked by largest, or where the products do not find it (a->has_largest) by no factors; then factors[nr] become the
 * largest of each column and of largest[nr]. Else dst[i] * factors + that. Rows are made mr at a time: the last ones of
 * dst, up to a multiple of mr, repeat row rows - 1. Of each row nv registers are made.
 * SCORES are those of words. BY_FMA has one more: what the panel's elements are multiplied by. */
static void emit_products(attention *a, attention_function f, const char *name, int nv) {
    emit *e = a->e;
    const int mr = a->mr, n = mr * nv;
    const bool is_scores = f >= SCORES, by_fma = f == SCORES_BY_FMA;
    LLVMTypeRef parameter[10] = {e->t_ptr, e->t_i64, e->t_i64, e->t_i64, e->t_ptr,
                                 e->t_i64, e->t_ptr, e->t_ptr, e->t_ptr, a->t_acc};
    attention_outer *o = attention_begin(a, f, name, parameter, by_fma ? 10 : 9, false, true);
    LLVMValueRef in[10], zero = LLVMConstNull(a->t_vec), sum[MOST_SUMS], from[16];
    LLVMGetParams(e->fn, in);
    LLVMValueRef none = LLVMConstNull(e->t_ptr), one = attention_num(a, 1);
    LLVMValueRef step = em_mul(e, in[3], attention_num(a, a->acc_bytes));
    em_loop rows = em_for(e, attention_num(a, 0), in[2], attention_num(a, mr));
    LLVMValueRef before = a->has_largest && (is_scores || !a->dot) ? em_loop_phi(e, &rows, in[8]) : NULL;
    LLVMValueRef last = em_sub(e, em_sub(e, in[2], rows.i), one);
    for (int i = 0; i < mr; i++) {
        LLVMValueRef row = em_add(e, rows.i, em_min(e, attention_num(a, i), last));
        from[i] = attention_at(a, in[0], em_mul(e, row, in[1]));
    }
    tile t = {from, step, attention_num(a, 0), in[4], nv, by_fma ? HALVES : is_scores ? WORDS : ELEMENTS, NULL};
    if (by_fma) t.scale = splat(a, in[9]);
    for (int i = 0; i < n; i++) sum[i] = zero;
    LLVMValueRef pairs = by_fma ? attention_num(a, 0) : em_and(e, in[5], attention_num(a, -2));
    if (!by_fma) multiply(a, &t, attention_num(a, 0), pairs, 2, sum);
    multiply(a, &t, pairs, in[5], 1, sum);
    LLVMValueRef dst = attention_at(a, in[6], em_mul(e, rows.i, attention_num(a, a->nr)));
    em_branch scores = {0};
    if (!a->dot) scores = em_if(e, em_icmp(e, a->has_largest ? LLVMIntNE : LLVMIntEQ, in[7 + a->has_largest], none));
    if (is_scores || !a->dot) store_scores(a, sum, n, nv, dst);
    if (before) find_largest(a, sum, n, nv, before, in[7]);
    if (!a->dot) em_else(e, &scores);
    if (!is_scores) add_to_results(a, sum, n, nv, dst, in[7]);
    if (!a->dot) em_endif(e, &scores);
    if (before) em_loop_next(e, before, in[7]);
    em_end(e, &rows);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

/* (src, src_row, dst, dst_row, rows, columns): dst[c][r] = src[r][c], both counts multiples of v_lanes. */
static void emit_turn(attention *a) {
    emit *e = a->e;
    const int n = a->v_lanes;
    LLVMTypeRef parameter[6] = {e->t_ptr, e->t_i64, e->t_ptr, e->t_i64, e->t_i64, e->t_i64};
    attention_outer *o = attention_begin(a, TURN, "turn", parameter, 6, false, true);
    LLVMValueRef in[6], v[16];
    LLVMGetParams(e->fn, in);
    em_loop r = em_for(e, attention_num(a, 0), in[4], attention_num(a, n));
    em_loop c = em_for(e, attention_num(a, 0), in[5], attention_num(a, n));
    LLVMValueRef src = attention_at(a, in[0], em_add(e, em_mul(e, r.i, in[1]), c.i));
    LLVMValueRef dst = attention_at(a, in[2], em_add(e, em_mul(e, c.i, in[3]), r.i));
    for (int i = 0; i < n; i++) {
        v[i] = load_vec(a, src, a->acc_bytes);
        src = attention_at(a, src, in[1]);
    }
    em_turn(e, v, n, a->acc_bytes);
    for (int i = 0; i < n; i++) {
        LLVMSetAlignment(LLVMBuildStore(e->b, v[i], dst), (unsigned)a->acc_bytes);
        dst = attention_at(a, dst, in[3]);
    }
    em_end(e, &c);
    em_end(e, &r);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

/* (q, keys, row, count, length, dst), keys of type k_row: dst[j] = sum over i < length of q[i] * keys[j * row + i], for
 * j < count and as many more as make it a multiple of v_lanes (the last key again). length is a multiple of v_lanes:
 * element i is added to sum i mod v_lanes in order, and these sums by halves. */
static void emit_dots(attention *a) {
    emit *e = a->e;
    const int n = a->v_lanes;
    LLVMTypeRef parameter[6] = {e->t_ptr, e->t_ptr, e->t_i64, e->t_i64, e->t_i64, e->t_ptr};
    attention_outer *o = attention_begin(a, DOTS, "dots", parameter, 6, false, true);
    LLVMValueRef in[6], sum[16], from[16];
    LLVMGetParams(e->fn, in);
    LLVMValueRef one = attention_num(a, 1);
    em_loop g = em_for(e, attention_num(a, 0), in[3], attention_num(a, n));
    LLVMValueRef last = em_sub(e, em_sub(e, in[3], g.i), one);
    for (int i = 0; i < n; i++)
        from[i] = em_gep(e, in[1], em_memory_type(e, a->k_row),
                         em_mul(e, em_add(e, g.i, em_min(e, attention_num(a, i), last)), in[2]));
    em_loop l = em_for(e, attention_num(a, 0), in[4], attention_num(a, n));
    for (int i = 0; i < n; i++) sum[i] = em_loop_phi(e, &l, LLVMConstNull(a->t_vec));
    LLVMValueRef q = load_vec(a, attention_at(a, in[0], l.i), n * a->acc_bytes);
    for (int i = 0; i < n; i++) em_loop_next(e, sum[i], em_mad(e, load_row(a, a->k_row, from[i], l.i), q, sum[i]));
    em_end(e, &l);
    for (int h = n / 2; h >= 1; h /= 2)
        for (int i = 0; i < h; i++) {
            LLVMValueRef low, high;
            exchange(a, sum[i], sum[i + h], h, &low, &high);
            sum[i] = em_fadd(e, low, high);
        }
    store_vec(a, sum[0], attention_at(a, in[5], g.i));
    em_end(e, &g);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

/* `n` registers of values from column c on: dst[c] = dst[c] * factor + sum over j of weights[j] * values[j][c]. */
static void weigh_columns(attention *a, LLVMValueRef *in, LLVMValueRef factor, LLVMValueRef c, int n) {
    emit *e = a->e;
    LLVMTypeRef type = em_memory_type(e, a->v_row);
    LLVMValueRef sum[AHEAD], from = em_gep(e, in[2], type, c);
    em_loop l = em_for(e, attention_num(a, 0), in[1], attention_num(a, 1));
    LLVMValueRef v = em_loop_phi(e, &l, from);
    for (int i = 0; i < n; i++) sum[i] = em_loop_phi(e, &l, LLVMConstNull(a->t_vec));
    LLVMValueRef w = spread(a, attention_at(a, in[0], l.i));
    for (int i = 0; i < n; i++)
        em_loop_next(e, sum[i], em_mad(e, load_row(a, a->v_row, v, attention_num(a, i * a->v_lanes)), w, sum[i]));
    em_loop_next(e, v, em_gep(e, v, type, in[3]));
    em_end(e, &l);
    for (int i = 0; i < n; i++) {
        LLVMValueRef p = attention_at(a, in[5], em_add(e, c, attention_num(a, i * a->v_lanes)));
        store_vec(a, em_mad(e, load_vec(a, p, a->v_lanes * a->acc_bytes), factor, sum[i]), p);
    }
}

/* (weights, count, values, row, length, dst, factor), values of type v_row: dst[c] = dst[c] * *factor + sum over j <
 * count of weights[j] * values[j * row + c], for c < length, a multiple of v_lanes. */
static void emit_weigh(attention *a) {
    emit *e = a->e;
    LLVMTypeRef parameter[7] = {e->t_ptr, e->t_i64, e->t_ptr, e->t_i64, e->t_i64, e->t_ptr, e->t_ptr};
    attention_outer *o = attention_begin(a, WEIGH, "weigh", parameter, 7, false, true);
    LLVMValueRef in[7], wide = attention_num(a, AHEAD * a->v_lanes);
    LLVMGetParams(e->fn, in);
    LLVMValueRef factor = spread(a, in[6]), whole = em_sub(e, in[4], LLVMBuildURem(e->b, in[4], wide, ""));
    em_loop many = em_for(e, attention_num(a, 0), whole, wide);
    weigh_columns(a, in, factor, many.i, AHEAD);
    em_end(e, &many);
    em_loop few = em_for(e, whole, in[4], attention_num(a, a->v_lanes));
    weigh_columns(a, in, factor, few.i, 1);
    em_end(e, &few);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

void attention_emit_tiles(attention *a) {
    for (int i = 0; i < a->forms; i++) {
        emit_products(a, PRODUCTS + i, "products", a->nr / a->v_lanes - i);
        if (a->dot && !a->is_tile) emit_products(a, SCORES + i, "scores", a->nr / a->v_lanes - i);
    }
    if (a->dot && !a->is_tile) emit_products(a, SCORES_BY_FMA, "scores_by_fma", 1);
    emit_turn(a);
    emit_dots(a);
    emit_weigh(a);
}
