/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Recurrent cells, one element of the result at a time, by the formulas of doc/operators.md. Every number on the way
 * has a bound of its error beside it, for bounds.c: products and sums carry the bounds of what they are made of,
 * sigmoid and tanh are at most 1/4 and 1 steep and good to 2 ULP, a contraction of n terms is within (512 + ceil(n /
 * 512)) * u * sum|terms|. */
#include "base/small.h"
#include "ref/kinds.h"
#include "ref/bounds.h"
#include "ir/cell.h"
#include "ir/scalar.h"
#include <math.h>

typedef struct number {
    long double v, e;
} number; /* value, bound */
typedef struct cell {
    const ref_call *c;
    ir_cell of;
    const double *const *error; /* NULL: bounds of no interest */
    long double u;
    int64_t features, hidden; /* of x, of h */
} cell;

static number at(const cell *k, unsigned operand, int64_t i) {
    const ref_tensor *t = &k->c->in[operand];
    return (number){ir_bits_to_double(t->dtype, ref_get(t, i)),
                    k->error && k->error[operand] ? k->error[operand][i] : 0};
}

static number add(const cell *k, number a, number b) {
    const long double v = a.v + b.v;
    return (number){v, a.e + b.e + k->u * fabsl(v)};
}
static number mul(const cell *k, number a, number b) {
    const long double v = a.v * b.v;
    return (number){v, fabsl(a.v) * b.e + a.e * fabsl(b.v) + a.e * b.e + k->u * fabsl(v)};
}
static number sigmoid(const cell *k, number a) {
    const long double v = 1 / (1 + expl(-a.v));
    return (number){v, a.e / 4 + 8 * k->u * v};
}
static number hyperbolic(const cell *k, number a) {
    const long double v = tanhl(a.v);
    return (number){v, a.e + 8 * k->u * fabsl(v)};
}

/* A row of weights from `row` on times n numbers, and the bias of that row. */
static number dot(const cell *k, const number *x, int64_t n, unsigned w, unsigned bias, int64_t row) {
    number sum = {0, 0};
    long double terms = 0;
    for (int64_t i = 0; i < n; i++) {
        const number y = at(k, w, row * n + i);
        sum.v += x[i].v * y.v;
        if (!k->error) continue;
        sum.e += fabsl(x[i].v) * y.e + x[i].e * fabsl(y.v) + x[i].e * y.e;
        terms += fabsl(x[i].v * y.v);
    }
    sum.e += (512 + ceill((long double)n / 512)) * k->u * terms;
    return bias ? add(k, sum, at(k, bias, row)) : sum;
}

/* Gate `gate` of hidden element j: from x, and from h. */
static number from_x(const cell *k, const number *x, int gate, int64_t j) {
    return dot(k, x, k->features, k->of.w_ih, k->of.b_ih, gate * k->hidden + j);
}
static number from_h(const cell *k, const number *h, int gate, int64_t j) {
    return dot(k, h, k->hidden, k->of.w_hh, k->of.b_hh, gate * k->hidden + j);
}
static number gate(const cell *k, const number *x, const number *h, int which, int64_t j) {
    return add(k, from_x(k, x, which, j), from_h(k, h, which, j));
}

static number lstm(const cell *k, const number *x, const number *h, int64_t row, int64_t j) {
    const number kept = mul(k, sigmoid(k, gate(k, x, h, 1, j)), at(k, k->of.c, row * k->hidden + j));
    const number c = add(k, kept, mul(k, sigmoid(k, gate(k, x, h, 0, j)), hyperbolic(k, gate(k, x, h, 2, j))));
    return k->c->n->index == 1 ? c : mul(k, sigmoid(k, gate(k, x, h, 3, j)), hyperbolic(k, c));
}

/* reset: what h * r is, where it goes into the contraction; else NULL. */
static number gru(const cell *k, const number *x, const number *h, const number *reset, int64_t j) {
    const number z = sigmoid(k, gate(k, x, h, 1, j));
    const number own = reset ? from_h(k, reset, 2, j) : mul(k, sigmoid(k, gate(k, x, h, 0, j)), from_h(k, h, 2, j));
    const number n = hyperbolic(k, add(k, from_x(k, x, 2, j), own));
    return add(k, mul(k, add(k, (number){1, 0}, (number){-z.v, z.e}), n), mul(k, z, h[j]));
}

static number rnn(const cell *k, const number *x, const number *h, int64_t j) {
    const number s = gate(k, x, h, 0, j);
    if (ref_attr_int(k->c->n, "activation") == 0) return hyperbolic(k, s);
    return (number){s.v < 0 ? 0 : s.v, s.e};
}

fusor_status ref_cell(const ref_call *c, const double *const *in_error, double *error, double u) {
    ref_tensor *out = c->out;
    const ref_tensor *x = &c->in[0], *h = &c->in[1];
    cell k = {.c = c, .of = ir_cell_of(c->n), .error = error ? in_error : NULL, .u = u};
    k.features = x->shape[x->rank - 1];
    k.hidden = h->shape[h->rank - 1];
    const bool resets_first = c->n->op == IR_OP_GRU_CELL && !ref_attr_int(c->n, "linear_before_reset");
    bool is_exact = true;
    for (int i = 0; i < c->n->n_in; i++) is_exact &= !in_error || !in_error[i];
    const int64_t count = ref_count(out), rows = k.hidden ? count / k.hidden : 0;
    number *memory = fu_malloc((size_t)(k.features + 2 * k.hidden + 1) * sizeof *memory);
    if (!memory)
        return REF_FAIL(c, FUSOR_ERROR_MEMORY, "%s: no memory for a row of its operands", ir_ops[c->n->op].name);
    number *xs = memory, *hs = xs + k.features, *reset = hs + k.hidden;
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = 0; i < k.features; i++) xs[i] = at(&k, 0, row * k.features + i);
        for (int64_t j = 0; j < k.hidden; j++) hs[j] = at(&k, 1, row * k.hidden + j);
        for (int64_t j = 0; j < k.hidden && resets_first; j++)
            reset[j] = mul(&k, sigmoid(&k, gate(&k, xs, hs, 0, j)), hs[j]);
        for (int64_t j = 0; j < k.hidden; j++) {
            const int64_t o = row * k.hidden + j;
            const number y = c->n->op == IR_OP_LSTM_CELL  ? lstm(&k, xs, hs, row, j)
                             : c->n->op == IR_OP_GRU_CELL ? gru(&k, xs, hs, resets_first ? reset : NULL, j)
                                                          : rnn(&k, xs, hs, j);
            if (!error) {
                ref_put_real(out, o, y.v);
                continue;
            }
            error[o] += (double)y.e + (isfinite(y.v) ? ref_ulp(out->dtype, (double)y.v) : 0);
            if (!(error[o] < INFINITY) || !isfinite(y.v)) error[o] = isnan(y.v) && is_exact ? 0 : INFINITY;
        }
    }
    fu_free(memory);
    return FUSOR_OK;
}
