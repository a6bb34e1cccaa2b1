/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attention: one query at a time, its scores, their softmax, the values weighted by it, all in long double; and the
 * bound of its error.
 *
 * The bound of a score e is (512 + ceil(D / 512)) * u * sum|q * k| * scale, a few roundings of the score, and what q, k
 * and the mask are off by; of a result, with p the softmax and E the largest e of the row,
 *   sum(p * |v|) * (exp(2E) - 1 + (512 + ceil(Sk / 512) + 16) * u) + exp(2E) * sum(p * bound of v). */
#include "base/small.h"
#include "ir/attention.h"
#include "ref/bounds.h"
#include "ref/bounds_norm.h"
#include <math.h>

enum { Q, K, V };

typedef struct attention {
    const ref_call *c;
    ir_attention a;
    int n_batch;
    int64_t queries, keys, d, values;
    int64_t offset; /* of causal and window */
    long double scale;
    long double *s, *e;            /* of one query: scores, then weights; bounds of the scores, where wanted */
    const double *const *in_error; /* NULL: only the result is wanted */
} attention;

static long double get(const ref_tensor *x, int64_t i) { return ir_bits_to_double(x->dtype, ref_get(x, i)); }

/* Where the matrix of batch index `at` begins. Several query heads may share one of another operand: with own sizes
 * that divide those of the result, it is at * own / size. */
static int64_t matrix_of(const attention *x, int operand, const int64_t *at) {
    const ref_tensor *t = &x->c->in[operand];
    const int lead = t->rank - 2;
    int64_t offset = 0;
    for (int k = 0; k < lead; k++) {
        const int d = x->n_batch - lead + k;
        offset = offset * t->shape[k] + at[d] * t->shape[k] / x->c->out->shape[d];
    }
    return offset * t->shape[lead] * t->shape[lead + 1];
}

/* Element (i, 0) of the mask, and the step to the next key. */
static int64_t mask_row(const attention *x, const int64_t *at, int64_t i, int64_t *step) {
    const ref_tensor *m = &x->c->in[x->a.mask];
    int64_t offset = 0;
    *step = m->rank && m->shape[m->rank - 1] != 1;
    for (int k = 0; k < m->rank; k++) {
        const int d = x->n_batch + 2 - m->rank + k;
        const int64_t index = d < x->n_batch ? at[d] : d == x->n_batch ? i : 0;
        offset = offset * m->shape[k] + (m->shape[k] == 1 ? 0 : index);
    }
    return offset;
}

static bool is_in_reach(const attention *x, int64_t i, int64_t j) {
    const int64_t p = i + x->offset;
    return (!x->a.is_causal || j <= p) && (x->a.left < 0 || j >= p - x->a.left) &&
           (x->a.right < 0 || j <= p + x->a.right);
}

/* Scores of query i, and their bounds where wanted. */
static void score(const attention *x, const int64_t *at, int64_t i, double u) {
    const ref_tensor *q = &x->c->in[Q], *k = &x->c->in[K], *m = x->a.mask < 0 ? NULL : &x->c->in[x->a.mask];
    const int64_t query = matrix_of(x, Q, at) + i * x->d, first = matrix_of(x, K, at);
    int64_t step = 0, mask = m ? mask_row(x, at, i, &step) : 0;
    const double *eq = x->in_error ? x->in_error[Q] : NULL, *ek = x->in_error ? x->in_error[K] : NULL;
    for (int64_t j = 0; j < x->keys; j++, mask += step) {
        long double s = 0, terms = 0, off = 0;
        for (int64_t d = 0; d < x->d; d++) {
            const long double a = get(q, query + d), b = get(k, first + j * x->d + d);
            s += a * b;
            if (!x->in_error) continue;
            const double ea = eq ? eq[query + d] : 0, eb = ek ? ek[first + j * x->d + d] : 0;
            terms += fabsl(a * b);
            off += fabsl(a) * eb + ea * fabsl(b) + (long double)ea * eb;
        }
        s *= x->scale;
        long double e = fabsl(x->scale) * (off + terms * u * (512 + ceil((double)x->d / 512))) + 4 * u * fabsl(s);
        if (x->a.softcap > 0) {
            s = x->a.softcap * tanhl(s / x->a.softcap);
            e += 8 * u * fabsl(s);
        }
        bool is_kept = is_in_reach(x, i, j);
        if (m && ir_is_bool(m->dtype)) is_kept &= ref_get(m, mask) != 0;
        else if (m) {
            const long double v = get(m, mask);
            s += v;
            e += 2 * u * (fabsl(s) + fabsl(v)) +
                 (x->in_error && x->in_error[x->a.mask] ? x->in_error[x->a.mask][mask] : 0);
        }
        x->s[j] = is_kept ? s : -INFINITY;
        if (x->in_error) x->e[j] = is_kept && s != -INFINITY ? e : 0;
    }
}

/* Is no key of the row kept? Its results are 0, whatever the values are. */
static bool is_empty(const attention *x) {
    for (int64_t j = 0; j < x->keys; j++)
        if (x->s[j] != -INFINITY) return false;
    return x->c->n->index != IR_ATTENTION_EMPTY_IS_NAN;
}

/* Scores to softmax; without a key all are 0. Returns the largest bound, to which the difference of two scores adds. */
static long double weigh(const attention *x, double u) {
    long double most = -INFINITY, sum = 0, error = 0;
    for (int64_t j = 0; j < x->keys; j++)
        if (x->s[j] > most || isnan(x->s[j])) most = x->s[j];
    for (int64_t j = 0; j < x->keys; j++) {
        if (x->in_error && x->s[j] != -INFINITY) {
            const long double e = x->e[j] + u * (fabsl(x->s[j]) + fabsl(most));
            if (e > error || isnan(e)) error = e;
        }
        x->s[j] = most == -INFINITY && x->c->n->index != IR_ATTENTION_EMPTY_IS_NAN ? 0 : expl(x->s[j] - most);
        sum += x->s[j];
    }
    for (int64_t j = 0; j < x->keys; j++) x->s[j] /= sum > 0 || isnan(sum) ? sum : 1;
    return error;
}

static fusor_status begin(const ref_call *c, attention *x) {
    const ref_tensor *q = &c->in[Q], *k = &c->in[K], *v = &c->in[V];
    *x = (attention){.c = c, .a = ir_attention_of(c->g, c->n), .n_batch = c->out->rank - 2};
    x->queries = q->shape[q->rank - 2];
    x->keys = k->shape[k->rank - 2];
    x->d = q->shape[q->rank - 1];
    x->values = v->shape[v->rank - 1];
    if (k->shape[k->rank - 1] != x->d || v->shape[v->rank - 2] != x->keys)
        return REF_FAIL(c, FUSOR_ERROR_SHAPE, "attention: q, k and v do not belong together");
    x->scale = x->a.has_scale ? (long double)x->a.scale : 1 / sqrtl(x->d > 0 ? (long double)x->d : 1);
    if (x->a.offset >= 0) {
        const ref_tensor *o = &c->in[x->a.offset];
        const int64_t offset = ref_int(o->dtype, ref_get(o, 0));
        const bool is_huge = o->dtype == FUSOR_U64 && offset < 0;
        x->offset = is_huge || offset > IR_ATTENTION_LIMIT ? IR_ATTENTION_LIMIT
                    : offset < -IR_ATTENTION_LIMIT         ? -IR_ATTENTION_LIMIT
                                                           : offset;
    }
    x->s = fu_malloc((size_t)(x->keys + 1) * 2 * sizeof *x->s);
    if (!x->s) return REF_FAIL(c, FUSOR_ERROR_MEMORY, "attention: no memory for the scores of a query");
    x->e = x->s + x->keys + 1;
    return FUSOR_OK;
}

static void next(const attention *x, int64_t *at) {
    for (int d = x->n_batch - 1; d >= 0 && ++at[d] == x->c->out->shape[d]; d--) at[d] = 0;
}

fusor_status ref_attention(const ref_call *c) {
    attention x;
    const int64_t n = ref_count(c->out);
    if (n == 0) return FUSOR_OK;
    FU_TRY(begin(c, &x));
    int64_t at[IR_MAX_RANK] = {0};
    for (int64_t o = 0; o < n; next(&x, at)) {
        const int64_t first = matrix_of(&x, V, at);
        for (int64_t i = 0; i < x.queries; i++) {
            score(&x, at, i, 0);
            const bool has_key = !is_empty(&x);
            (void)weigh(&x, 0);
            for (int64_t v = 0; v < x.values; v++, o++) {
                long double y = 0;
                for (int64_t j = 0; has_key && j < x.keys; j++) /* hidden values may be anything */
                    if (is_in_reach(&x, i, j) || isnan(x.s[j])) y += x.s[j] * get(&c->in[V], first + j * x.values + v);
                ref_put_real(c->out, o, y);
            }
        }
    }
    fu_free(x.s);
    return FUSOR_OK;
}

fusor_status ref_bound_attention(const ref_call *c, const double *const *in_error, double u, double *error) {
    attention x;
    const int64_t n = ref_count(c->out);
    if (n == 0) return FUSOR_OK;
    FU_TRY(begin(c, &x));
    x.in_error = in_error;
    /* Keys that may be kept or not: nothing is known. */
    const bool is_unknown = (x.a.offset >= 0 && in_error[x.a.offset]) ||
                            (x.a.mask >= 0 && in_error[x.a.mask] && ir_is_bool(c->in[x.a.mask].dtype));
    const double sums = (512 + ceil((double)x.keys / 512) + 16) * u, *ev = in_error[V];
    int64_t at[IR_MAX_RANK] = {0};
    for (int64_t o = 0; o < n; next(&x, at)) {
        const int64_t first = matrix_of(&x, V, at);
        for (int64_t i = 0; i < x.queries; i++) {
            score(&x, at, i, u);
            const long double far = weigh(&x, u);
            for (int64_t v = 0; v < x.values; v++, o++) {
                long double terms = 0, off = 0;
                for (int64_t j = 0; j < x.keys; j++) {
                    const int64_t k = first + j * x.values + v;
                    if (!is_in_reach(&x, i, j) && !isnan(x.s[j]) && !is_unknown) continue;
                    terms += x.s[j] * fabsl(get(&c->in[V], k));
                    if (ev) off += (x.s[j] + 0x1p-120L) * ev[k];
                }
                const double y = ir_bits_to_double(c->out->dtype, ref_get(c->out, o));
                /* what underflows in a weight, too */
                const long double own =
                    terms * (expm1l(2 * far) + sums) + expl(2 * far) * off + (double)x.keys * 0x1p-120;
                error[o] += isnan(own) || is_unknown ? INFINITY : (double)own;
                if (ir_dtypes[c->out->dtype].bytes < 4 || (c->out->dtype == FUSOR_F32 && u < 0x1p-30))
                    error[o] += ref_ulp(c->out->dtype, y);
            }
        }
    }
    fu_free(x.s);
    return FUSOR_OK;
}
