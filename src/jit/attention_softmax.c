/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attention_softmax.c: scores become weights, block of keys by block. The largest score so far of each query is kept:
 * the weights are exp(score - largest), and what was summed with a smaller one is multiplied by exp(smaller - largest),
 * the factor. A query without a key so far has -infinity, against which 0 is subtracted: all weights and the factor are
 * 0 then. A NaN is never the largest; it makes the sum a NaN, and with it the whole result. */
#include "jit/attention.h"
#include "jit/math.h"
#include <string.h>

#define LOG2E 1.44269504088896340736

typedef struct scores {
    attention *a;
    LLVMValueRef scale, cap, mask, low, high;
    bool is_bound, is_raw; /* is_raw: a->is_raw, of panels */
} scores;
enum {
    S,
    COUNT,
    LARGEST,
    SUM,
    FACTOR,
    SCALE,
    CAP,
    MASK,
    LOW,
    HIGH,
    N_ROW = ATTENTION_WEIGHTS_IN,
    PREFETCHED = N_ROW,
    LEAST = PREFETCHED + 2 * ATTENTION_PREFETCHED, /* a->splits, with WORDS */
    WORDS,
    MOST_IN = LEAST + ATTENTION_SPLIT_IN
};
static int parameters(const attention *a) { return a->splits ? MOST_IN : LEAST; }

static LLVMValueRef lower(attention *a, ir_op op, int n, LLVMValueRef x, LLVMValueRef y) {
    const ir_kinst inst = {.op = (uint16_t)op, .dtype = a->acc, .n_in = (uint8_t)n};
    return em_lower(a->e, &inst, (LLVMValueRef[]){x, y}, (ir_dtype[]){a->acc, a->acc});
}

static LLVMValueRef lowest(attention *a) { return em_const(a->e, a->acc, -__builtin_inf()); }
static LLVMValueRef larger(attention *a, LLVMValueRef x, LLVMValueRef than) {
    return em_select(a->e, em_fcmp(a->e, LLVMRealOGT, x, than), x, than);
}

/* What scores of f32 are multiplied by to be exponents of 2; scale: NULL is 1. */
static LLVMValueRef to_exponents(attention *a, LLVMValueRef scale) {
    emit *e = a->e;
    LLVMValueRef log2e = em_const(e, a->acc, LOG2E);
    return scale ? em_fmul(e, em_splat(e, scale), log2e) : log2e;
}

/* exp(x * scale) for x <= 0. */
static LLVMValueRef weight(attention *a, LLVMValueRef x, LLVMValueRef scale) {
    if (a->acc != FUSOR_F32) return lower(a, IR_OP_EXP, 1, x, NULL);
    return math_weight(a->e, em_fmul(a->e, x, to_exponents(a, scale)));
}

/* What is subtracted from scores whose largest is `largest`. */
static LLVMValueRef about(attention *a, LLVMValueRef largest) {
    emit *e = a->e;
    return em_select(e, em_fcmp(e, LLVMRealOEQ, largest, lowest(a)), em_const(e, a->acc, 0), largest);
}

LLVMValueRef attention_narrow(attention *a, LLVMValueRef bound) {
    emit *e = a->e;
    bound = em_max(e, attention_num(a, -(1 << 30)), em_min(e, attention_num(a, 1 << 30), bound));
    return LLVMBuildTrunc(e->b, bound, e->t_i32, "");
}

static LLVMValueRef lane_numbers(emit *e) {
    LLVMValueRef lane[64];
    for (int i = 0; i < e->lanes; i++) lane[i] = LLVMConstInt(e->t_i32, (unsigned)i, 0);
    return LLVMConstVector(lane, (unsigned)e->lanes);
}

LLVMValueRef attention_sees(attention *a, LLVMValueRef low, LLVMValueRef high, LLVMValueRef x, int chunk) {
    emit *e = a->e;
    LLVMValueRef key = em_splat(e, LLVMBuildTrunc(e->b, x, e->t_i32, "")), sees = NULL;
    LLVMValueRef i = em_add(e, lane_numbers(e), em_i32(e, chunk * a->lanes));
    if (a->low >= 0) sees = em_icmp(e, LLVMIntSGE, key, em_add(e, i, em_splat(e, low)));
    if (a->high < 0) return sees;
    LLVMValueRef below = em_icmp(e, LLVMIntSLE, key, em_add(e, i, em_splat(e, high)));
    return sees ? em_and(e, sees, below) : below;
}

/* Scaled (not raw ones), capped, masked. mask: what the mask has at these places as accumulators, or NULL. */
static LLVMValueRef finished(const scores *v, LLVMValueRef s, LLVMValueRef mask) {
    attention *a = v->a;
    emit *e = a->e;
    if (!v->is_raw) s = em_fmul(e, s, em_splat(e, v->scale));
    if (a->cap >= 0) {
        LLVMValueRef cap = em_splat(e, v->cap);
        s = em_fmul(e, lower(a, IR_OP_TANH, 1, em_fdiv(e, s, cap), NULL), cap);
    }
    if (!mask) return s;
    if (!ir_is_bool(a->k->inst[a->mask].dtype)) return em_fadd(e, s, mask);
    return em_select(e, em_fcmp(e, LLVMRealUNE, mask, em_const(e, a->acc, 0)), s, lowest(a));
}

static LLVMValueRef get_one(attention *a, LLVMValueRef base, LLVMValueRef i) {
    const int lanes = a->e->lanes;
    a->e->lanes = 1;
    LLVMValueRef x = attention_get(a, base, i);
    a->e->lanes = lanes;
    return x;
}

static attention_outer *begin(attention *a, attention_function f, const char *name, int n, LLVMValueRef *in,
                              scores *v) {
    emit *e = a->e;
    LLVMTypeRef parameter[MOST_IN] = {e->t_ptr, e->t_i64, e->t_ptr, e->t_ptr, e->t_ptr,
                                      a->t_acc, a->t_acc, e->t_ptr, e->t_i64, e->t_i64};
    for (int i = PREFETCHED; i < n; i++)
        parameter[i] = (i - PREFETCHED) % 2 ? e->t_i64 : e->t_ptr; /* LEAST, WORDS too */
    attention_outer *o = attention_begin(a, f, name, parameter, (unsigned)n, false, true);
    LLVMGetParams(e->fn, in);
    *v = (scores){.a = a, .scale = in[SCALE], .cap = in[CAP], .mask = a->mask >= 0 ? in[MASK] : NULL};
    e->lanes = a->lanes;
    return o;
}

/* ---- panels: (s, count, largest, sum, factor, scale, cap, mask, low, high, ahead, step, ahead, step[, least, words]).
 * s[count][nr] scores become weights (a->splits: the words of their parts, as many as `words`, and what
 * em_bf16_is_exact is told of them at `least`); largest, sum, factor [nr]. mask: [count][nr], or [count] where it does
 * not vary along queries. Key x of query i is within bounds where low + i <= x <= high + i. With each key the lines
 * at `ahead` are prefetched, and it moves `step` bytes on. ---- */
static LLVMValueRef panel_score(const scores *v, LLVMValueRef s, LLVMValueRef x, int chunk) {
    attention *a = v->a;
    emit *e = a->e;
    LLVMValueRef mask = NULL;
    if (v->mask && a->mask_has_queries)
        mask = attention_get(a, v->mask,
                             em_add(e, em_mul(e, x, attention_num(a, a->nr)), attention_num(a, chunk * a->lanes)));
    else if (v->mask) mask = em_splat(e, get_one(a, v->mask, x));
    s = finished(v, s, mask);
    if (!v->is_bound) return s;
    return em_select(e, attention_sees(a, v->low, v->high, x, chunk), s, lowest(a));
}

/* The largest of scores that are finished as they are, of each query, over the keys whose number is returned: several
 * at a time, each against its own. */
static LLVMValueRef largest_of_keys(attention *a, LLVMValueRef *in, LLVMValueRef *largest, int chunks) {
    enum { AT_ONCE = 4 };
    emit *e = a->e;
    LLVMValueRef most[AT_ONCE][ATTENTION_CHUNKS], next[AT_ONCE][ATTENTION_CHUNKS];
    LLVMValueRef whole = em_and(e, in[COUNT], attention_num(a, -AT_ONCE));
    em_loop l = em_for(e, attention_num(a, 0), whole, attention_num(a, AT_ONCE));
    for (int i = 0; i < AT_ONCE * chunks; i++) most[i / chunks][i % chunks] = em_loop_phi(e, &l, largest[i % chunks]);
    LLVMValueRef row = em_mul(e, l.i, attention_num(a, a->nr));
    for (int i = 0; i < AT_ONCE * chunks; i++) {
        const int key = i / chunks, c = i % chunks;
        LLVMValueRef at = em_add(e, row, attention_num(a, key * a->nr + c * a->lanes));
        next[key][c] = larger(a, attention_get(a, in[S], at), most[key][c]);
    }
    for (int i = 0; i < AT_ONCE * chunks; i++)
        em_loop_next(e, most[i / chunks][i % chunks], next[i / chunks][i % chunks]);
    em_end(e, &l);
    for (int c = 0; c < chunks; c++) {
        largest[c] = most[0][c];
        for (int key = 1; key < AT_ONCE; key++) largest[c] = larger(a, most[key][c], largest[c]);
    }
    return whole;
}

/* The scores finished where that is more than to scale them behind the largest, and the largest ones of each query. */
static void finish_scores(const scores *v, LLVMValueRef *in, LLVMValueRef *largest, int chunks) {
    attention *a = v->a;
    emit *e = a->e;
    LLVMValueRef next[ATTENTION_CHUNKS], most[ATTENTION_CHUNKS], from = attention_num(a, 0);
    for (int c = 0; c < chunks; c++) most[c] = attention_get(a, in[LARGEST], attention_num(a, c * a->lanes));
    if (v->is_raw && !v->mask && !v->is_bound) from = largest_of_keys(a, in, most, chunks);
    em_loop l = em_for(e, from, in[COUNT], attention_num(a, 1));
    for (int c = 0; c < chunks; c++) largest[c] = em_loop_phi(e, &l, most[c]);
    LLVMValueRef row = em_mul(e, l.i, attention_num(a, a->nr));
    for (int c = 0; c < chunks; c++) {
        LLVMValueRef at = em_add(e, row, attention_num(a, c * a->lanes)), raw = attention_get(a, in[S], at),
                     s = panel_score(v, raw, l.i, c);
        if (s != raw) attention_put(a, s, in[S], at);
        next[c] = larger(a, s, largest[c]);
    }
    for (int c = 0; c < chunks; c++) em_loop_next(e, largest[c], next[c]);
    em_end(e, &l);
}

/* What scores become weights with, and what is known of those that have: their sums, the least one (a->splits), what is
 * prefetched next. */
enum { PREFETCHED_NOW, SUM_NOW = PREFETCHED_NOW + ATTENTION_PREFETCHED, LEAST_NOW = SUM_NOW + ATTENTION_CHUNKS, NOW };
typedef struct weights {
    attention *a;
    LLVMValueRef *in, now[NOW]; /* NULL: not needed */
    /* a->splits: weights are 2^(score * by - shift), by one fma; shift is the largest score times `by`, rounded, the
     * same for all keys of a query, and in the factors too, so that leaves no error. Else `by` is NULL, and they are
     * exp((score - minus) * scale). */
    LLVMValueRef by, shift[ATTENTION_CHUNKS], minus[ATTENTION_CHUNKS], scale;
    int chunks;
} weights;

static void prefetch_next(weights *w) {
    for (int i = 0; i < ATTENTION_PREFETCHED; i++) {
        LLVMValueRef *at = &w->now[PREFETCHED_NOW + i];
        em_prefetch(w->a->e, *at, 2);
        *at = em_gep(w->a->e, *at, w->a->e->t_i8, w->in[PREFETCHED + 2 * i + 1]);
    }
}

static LLVMValueRef weight_at(weights *w, LLVMValueRef at, int chunk) {
    attention *a = w->a;
    LLVMValueRef x = attention_get(a, w->in[S], at);
    if (w->by) x = math_weight(a->e, em_mad(a->e, x, w->by, em_fneg(a->e, w->shift[chunk])));
    else x = weight(a, em_fsub(a->e, x, w->minus[chunk]), w->scale);
    w->now[SUM_NOW + chunk] = em_fadd(a->e, w->now[SUM_NOW + chunk], x);
    return x;
}

/* Of a key, in place. */
static void weights_of_key(weights *w, LLVMValueRef key) {
    attention *a = w->a;
    LLVMValueRef row = em_mul(a->e, key, attention_num(a, a->nr));
    prefetch_next(w);
    for (int c = 0; c < w->chunks; c++) {
        LLVMValueRef at = em_add(a->e, row, attention_num(a, c * a->lanes));
        attention_put(a, weight_at(w, at, c), w->in[S], at);
    }
}

/* Of two keys as words of parts, where their scores were. */
static void parts_of_keys(weights *w, LLVMValueRef pair) {
    attention *a = w->a;
    emit *e = a->e;
    LLVMValueRef row = em_mul(e, pair, attention_num(a, ATTENTION_PARTS * a->nr));
    LLVMValueRef word[ATTENTION_CHUNKS][ATTENTION_PARTS];
    for (int c = 0; c < w->chunks; c++) {
        LLVMValueRef x[2];
        for (int h = 0; h < 2; h++) {
            if (!c) prefetch_next(w);
            x[h] = weight_at(w, em_add(e, row, attention_num(a, h * a->nr + c * a->lanes)), c);
            w->now[LEAST_NOW] = em_lesser_magnitude(e, w->now[LEAST_NOW], em_bits_of_f32(e, x[h]));
        }
        attention_split(a, x, word[c]);
    }
    for (int c = 0; c < w->chunks; c++)
        for (int p = 0; p < ATTENTION_PARTS; p++) {
            LLVMValueRef to = em_add(e, row, attention_num(a, p * a->nr + c * a->lanes));
            LLVMSetAlignment(LLVMBuildStore(e->b, word[c][p], attention_at(a, w->in[S], to)), 4);
        }
}

/* Of n keys, or pairs of them. */
static void make_weights(weights *w, LLVMValueRef n, void (*make)(weights *w, LLVMValueRef i)) {
    emit *e = w->a->e;
    LLVMValueRef phi[NOW] = {0};
    em_loop l = em_for(e, attention_num(w->a, 0), n, attention_num(w->a, 1));
    for (int i = 0; i < NOW; i++)
        if (w->now[i]) w->now[i] = phi[i] = em_loop_phi(e, &l, w->now[i]);
    make(w, l.i);
    for (int i = 0; i < NOW; i++)
        if (phi[i]) em_loop_next(e, phi[i], w->now[i]);
    em_end(e, &l);
    memcpy(w->now, phi, sizeof phi);
}

/* Behind an odd number of keys is one that is not seen, behind all of them words of 0. */
static void make_parts(weights *w) {
    attention *a = w->a;
    emit *e = a->e;
    LLVMValueRef one = attention_num(a, 1), row = attention_num(a, ATTENTION_PARTS * a->nr), count = w->in[COUNT];
    LLVMValueRef end = em_mul(e, count, attention_num(a, a->nr)), pairs;
    LLVMTypeRef t_words = em_vec(e, e->t_i32);
    em_branch odd = em_if(e, em_icmp(e, LLVMIntNE, em_and(e, count, one), attention_num(a, 0)));
    for (int c = 0; c < w->chunks; c++)
        attention_put(a, lowest(a), w->in[S], em_add(e, end, attention_num(a, c * a->lanes)));
    em_endif(e, &odd);
    w->now[LEAST_NOW] = LLVMConstAllOnes(t_words);
    pairs = LLVMBuildLShr(e->b, em_add(e, count, one), one, "");
    make_weights(w, pairs, parts_of_keys);
    em_loop z = em_for(e, em_mul(e, pairs, row), em_mul(e, w->in[WORDS], row), attention_num(a, a->lanes));
    LLVMSetAlignment(LLVMBuildStore(e->b, LLVMConstNull(t_words), attention_at(a, w->in[S], z.i)), 4);
    em_end(e, &z);
    attention_store_exponent(a, w->now[LEAST_NOW], w->in[LEAST]);
}

/* Those shifts, and factors; old: the largest scores before. Where a shift is so large that its rounding, 2^-13 and
 * more, would be seen in the largest weight, that query's largest score is taken from the others first, and the shift
 * is 0. A factor is 2^(shift before - shift), by the shifts that weights before were made with, and these are. */
static void find_shifts(weights *w, const LLVMValueRef *old) {
    attention *a = w->a;
    emit *e = a->e;
    LLVMValueRef minus[ATTENTION_CHUNKS], any = NULL, zero = em_const(e, a->acc, 0), far = em_const(e, a->acc, 0x1p12);
    w->by = to_exponents(a, w->scale);
    for (int c = 0; c < w->chunks; c++) {
        LLVMValueRef before = em_fmul(e, old[c], w->by), shift = em_fmul(e, w->minus[c], w->by);
        LLVMValueRef was_far = em_fcmp(e, LLVMRealUGE, em_fabs(e, before), far);
        LLVMValueRef is_far = em_fcmp(e, LLVMRealUGE, em_fabs(e, shift), far);
        LLVMValueRef of_near =
            em_select(e, was_far, em_mad(e, old[c], w->by, em_fneg(e, shift)), em_fsub(e, before, shift));
        LLVMValueRef of_far = em_select(e, was_far, em_fmul(e, em_fsub(e, old[c], w->minus[c]), w->by),
                                        em_mad(e, em_fneg(e, w->minus[c]), w->by, before));
        attention_put(a, math_weight(e, em_select(e, is_far, of_far, of_near)), w->in[FACTOR],
                      attention_num(a, c * a->lanes));
        w->shift[c] = em_select(e, is_far, zero, shift);
        minus[c] = em_select(e, is_far, w->minus[c], zero);
        any = any ? em_or(e, any, is_far) : is_far;
    }
    em_branch b = em_if(e, em_intrinsic(e, "llvm.vector.reduce.or", 1, &any));
    em_loop l = em_for(e, attention_num(a, 0), w->in[COUNT], attention_num(a, 1));
    LLVMValueRef row = em_mul(e, l.i, attention_num(a, a->nr));
    for (int c = 0; c < w->chunks; c++) {
        LLVMValueRef at = em_add(e, row, attention_num(a, c * a->lanes));
        attention_put(a, em_fsub(e, attention_get(a, w->in[S], at), minus[c]), w->in[S], at);
    }
    em_end(e, &l);
    em_endif(e, &b);
}

/* Where the products find the largest scores, factor has them at first (a bound takes keys away: they are found
 * anew). */
static void emit_panel(attention *a, attention_function f, const char *name, bool is_bound, int chunks) {
    emit *e = a->e;
    LLVMValueRef in[MOST_IN], largest[ATTENTION_CHUNKS], old[ATTENTION_CHUNKS];
    scores v;
    attention_outer *o = begin(a, f, name, parameters(a), in, &v);
    v.is_bound = is_bound;
    v.is_raw = a->is_raw;
    if (is_bound) v.low = attention_narrow(a, in[LOW]), v.high = attention_narrow(a, in[HIGH]);
    if (is_bound || !a->has_largest) finish_scores(&v, in, largest, chunks);
    else
        for (int c = 0; c < chunks; c++) largest[c] = attention_get(a, in[FACTOR], attention_num(a, c * a->lanes));
    weights w = {.a = a, .in = in, .scale = a->is_raw ? v.scale : NULL, .chunks = chunks};
    for (int c = 0; c < chunks; c++) {
        LLVMValueRef at = attention_num(a, c * a->lanes);
        old[c] = attention_get(a, in[LARGEST], at);
        w.minus[c] = about(a, largest[c]);
        attention_put(a, largest[c], in[LARGEST], at);
    }
    if (a->splits) find_shifts(&w, old);
    else
        for (int c = 0; c < chunks; c++)
            attention_put(a, weight(a, em_fsub(e, old[c], w.minus[c]), w.scale), in[FACTOR],
                          attention_num(a, c * a->lanes));
    for (int i = 0; i < ATTENTION_PREFETCHED; i++) w.now[PREFETCHED_NOW + i] = in[PREFETCHED + 2 * i];
    for (int c = 0; c < chunks; c++) w.now[SUM_NOW + c] = em_const(e, a->acc, 0);
    if (a->splits) make_parts(&w);
    else make_weights(&w, in[COUNT], weights_of_key);
    for (int c = 0; c < chunks; c++) {
        LLVMValueRef at = attention_num(a, c * a->lanes);
        attention_put(a, em_mad(e, attention_get(a, in[SUM], at), attention_get(a, in[FACTOR], at), w.now[SUM_NOW + c]),
                      in[SUM], at);
    }
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

/* (results, rows, sums, n_keys): results[rows][nr] divided by sums[nr]. */
static void emit_divide(attention *a) {
    emit *e = a->e;
    LLVMTypeRef parameter[4] = {e->t_ptr, e->t_i64, e->t_ptr, e->t_i64};
    attention_outer *o = attention_begin(a, DIVIDE, "divide", parameter, 4, false, true);
    LLVMValueRef in[4], by[ATTENTION_CHUNKS];
    const int chunks = a->nr / a->lanes;
    LLVMGetParams(e->fn, in);
    e->lanes = a->lanes;
    for (int c = 0; c < chunks; c++)
        by[c] = attention_inverse(a, attention_get(a, in[2], attention_num(a, c * a->lanes)), in[3]);
    em_loop l = em_for(e, attention_num(a, 0), in[1], attention_num(a, 1));
    LLVMValueRef row = em_mul(e, l.i, attention_num(a, a->nr));
    for (int c = 0; c < chunks; c++) {
        LLVMValueRef at = em_add(e, row, attention_num(a, c * a->lanes));
        attention_put(a, attention_share(e, a->acc, attention_get(a, in[0], at), by[c]), in[0], at);
    }
    em_end(e, &l);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

/* ---- one query: the same, of s[count]; low <= x <= high. Scores behind count are made weights of 0, up to whole
 * lanes. ---- */
/* The lanes of v combined, by halves. */
static LLVMValueRef across(attention *a, LLVMValueRef v, bool is_sum) {
    emit *e = a->e;
    for (int h = e->lanes / 2; h >= 1; h /= 2) {
        LLVMValueRef lane[64];
        for (int i = 0; i < e->lanes; i++) lane[i] = LLVMConstInt(e->t_i32, (unsigned)((i + h) % e->lanes), 0);
        LLVMValueRef other = LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)),
                                                    LLVMConstVector(lane, (unsigned)e->lanes), "");
        v = is_sum ? em_fadd(e, v, other) : larger(a, v, other);
    }
    return em_lane(e, v, 0);
}

static LLVMValueRef row_score(const scores *v, LLVMValueRef s, LLVMValueRef x, LLVMValueRef count) {
    attention *a = v->a;
    emit *e = a->e;
    s = finished(v, s, v->mask ? attention_get(a, v->mask, x) : NULL);
    LLVMValueRef keep = em_mask(e, em_sub(e, count, x)), key = lane_numbers(e);
    if (a->low >= 0)
        keep = em_and(e, keep, em_icmp(e, LLVMIntSGE, key, em_splat(e, attention_narrow(a, em_sub(e, v->low, x)))));
    if (a->high >= 0)
        keep = em_and(e, keep, em_icmp(e, LLVMIntSLE, key, em_splat(e, attention_narrow(a, em_sub(e, v->high, x)))));
    return em_select(e, keep, s, lowest(a));
}

static void emit_row(attention *a) {
    emit *e = a->e;
    LLVMValueRef in[N_ROW], zero = attention_num(a, 0), step = attention_num(a, a->lanes);
    scores v;
    attention_outer *o = begin(a, ROW_WEIGHTS, "row_weights", N_ROW, in, &v);
    v.low = in[LOW];
    v.high = in[HIGH];
    LLVMValueRef old = get_one(a, in[LARGEST], zero), begin_with = em_splat(e, old);
    em_loop l = em_for(e, zero, in[COUNT], step);
    LLVMValueRef largest = em_loop_phi(e, &l, begin_with);
    LLVMValueRef s = row_score(&v, attention_get(a, in[S], l.i), l.i, in[COUNT]);
    attention_put(a, s, in[S], l.i);
    em_loop_next(e, largest, larger(a, s, largest));
    em_end(e, &l);
    LLVMValueRef most = across(a, largest, false);
    e->lanes = 1;
    LLVMValueRef minus = about(a, most), factor = weight(a, em_fsub(e, old, minus), NULL);
    attention_put(a, factor, in[FACTOR], zero);
    attention_put(a, most, in[LARGEST], zero);
    e->lanes = a->lanes;
    l = em_for(e, zero, in[COUNT], step);
    LLVMValueRef sum = em_loop_phi(e, &l, em_const(e, a->acc, 0));
    LLVMValueRef w = weight(a, em_fsub(e, attention_get(a, in[S], l.i), em_splat(e, minus)), NULL);
    attention_put(a, w, in[S], l.i);
    em_loop_next(e, sum, em_fadd(e, sum, w));
    em_end(e, &l);
    LLVMValueRef total = across(a, sum, true);
    e->lanes = 1;
    attention_put(a, em_mad(e, attention_get(a, in[SUM], zero), factor, total), in[SUM], zero);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

/* (values, from, length, largest, sum, from_largest, from_sum): results of one query over some keys joined with those
 * over others; length is a multiple of lanes. */
static void emit_merge(attention *a) {
    emit *e = a->e;
    LLVMTypeRef parameter[7] = {e->t_ptr, e->t_ptr, e->t_i64, e->t_ptr, e->t_ptr, e->t_ptr, e->t_ptr};
    attention_outer *o = attention_begin(a, MERGE, "merge", parameter, 7, false, true);
    LLVMValueRef in[7], zero = attention_num(a, 0);
    LLVMGetParams(e->fn, in);
    e->lanes = 1;
    LLVMValueRef mine = attention_get(a, in[3], zero), other = attention_get(a, in[5], zero),
                 most = larger(a, mine, other), minus = about(a, most);
    LLVMValueRef f = weight(a, em_fsub(e, mine, minus), NULL), g = weight(a, em_fsub(e, other, minus), NULL);
    attention_put(a, most, in[3], zero);
    attention_put(a, em_mad(e, attention_get(a, in[4], zero), f, em_fmul(e, attention_get(a, in[6], zero), g)), in[4],
                  zero);
    e->lanes = a->lanes;
    em_loop l = em_for(e, zero, in[2], attention_num(a, a->lanes));
    LLVMValueRef x = em_fmul(e, attention_get(a, in[1], l.i), em_splat(e, g));
    attention_put(a, em_mad(e, attention_get(a, in[0], l.i), em_splat(e, f), x), in[0], l.i);
    em_end(e, &l);
    LLVMBuildRetVoid(e->b);
    attention_end(a, o);
}

void attention_emit_softmax(attention *a) {
    const int chunks = a->nr / a->lanes;
    for (int i = 0; i < a->forms; i++) {
        emit_panel(a, WEIGHTS + i, "weights", false, chunks - i);
        if (attention_has_bounds(a)) emit_panel(a, WEIGHTS_BOUND + i, "weights_bound", true, chunks - i);
    }
    if (attention_plain_result(a) >= 0) emit_divide(a);
    emit_row(a);
    emit_merge(a);
}
