/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* bounds_norm.c: error bounds of composite reductions, running sums and products, and norms, with k = 256 + log2 n:
 *
 *   variance          k * u * y, and squares below the smallest number; deviation and l2 norm likewise
 *   logsumexp         k * u, 8 ULP and 1e-7
 *   cumsum            k * u * sum|terms so far|;  cumprod  n * u * |y|
 *   norms             k * u * (1 + |z|) for z = (x - mean) / deviation; rms_norm k * u * |z|; times gamma
 *
 * Operands that are off by E at most move a mean by E, a deviation by E and a variance by 2 E deviation + E^2 (a norm
 * moves by no more than the norm of what moves it). Sums that may overflow the accumulation type are not judged. */
#include "base/small.h"
#include "ref/bounds_norm.h"
#include "ref/bounds.h"
#include "ref/norm.h"
#include <math.h>

static double get(const ref_tensor *t, int64_t i) { return ir_bits_to_double(t->dtype, ref_get(t, i)); }
static double most_of(double u) { return u > 0x1p-30 ? 0x1p127 : 0x1p1023; } /* of the accumulation type */
static double least_of(double u) { return u > 0x1p-30 ? 0x1p-149 : 0x1p-1074; }
static double at_least_zero(double v) { return v > 0 ? v : 0; }

double ref_narrowing(ir_dtype t, double u, double y) {
    const double own = t == FUSOR_F64 ? 0x1p-53 : t == FUSOR_F32 ? 0x1p-24 : 1;
    return own > u && isfinite(y) ? ref_ulp(t, y) : 0;
}

/* Largest error and largest finite magnitude of elements [from, from + n). */
static void extremes(const ref_tensor *x, const double *errors, int64_t from, int64_t n, double *error_out,
                     double *most_out) {
    *error_out = *most_out = 0;
    for (int64_t i = from; i < from + n; i++) {
        const double v = fabs(get(x, i));
        if (errors && errors[i] > *error_out) *error_out = errors[i];
        if (isfinite(v) && v > *most_out) *most_out = v;
    }
}

/* sqrt(square +- off) - y, at most, for y = sqrt(square). */
static double root_moves(double y, double off) { return y * y > 4 * off ? off / y : 2 * sqrt(off); }

void ref_bound_composite(const ref_call *c, const double *const *in_error, double u, double *error) {
    const ref_tensor *x = c->in;
    const int64_t outputs = ref_count(c->out), count = ref_count(x);
    const double n = outputs ? (double)count / (double)outputs : 0, k = (256 + log2(n > 1 ? n : 1)) * u;
    const ir_attr *correction = ir_node_attr(c->n, "correction");
    const double degrees = at_least_zero(n - (correction ? correction->number : 0)), tiny = least_of(u);
    double off, most;
    extremes(x, in_error[0], 0, count, &off, &most);
    const bool overflows = c->n->op != IR_OP_REDUCE_LOGSUMEXP && !(n * (most + off) * fmax(most + off, 1) < most_of(u));
    for (int64_t i = 0; i < outputs; i++) {
        const double y = get(c->out, i), ulp = ref_ulp(c->out->dtype, y);
        double e = 0;
        if (c->n->op == IR_OP_REDUCE_VAR || c->n->op == IR_OP_REDUCE_STD) {
            const bool is_var = c->n->op == IR_OP_REDUCE_VAR;
            if (degrees == 0) {
                if (n > 1) error[i] = INFINITY; /* infinite or, where the deviations vanish, NaN */
                continue;
            }
            if (is_var)
                e = k * y + 2 * ulp + n * tiny / degrees + (2 * off * sqrt(n * y * degrees) + n * off * off) / degrees;
            else e = k * y + 2 * ulp + root_moves(y, n * tiny / degrees) + off * sqrt(n / degrees);
        } else if (c->n->op == IR_OP_REDUCE_L2) {
            e = k * y + 2 * ulp + root_moves(y, n * tiny) + off * sqrt(n);
        } else {
            e = k + 8 * ulp + 1e-7 + off;
        }
        if (overflows) error[i] = INFINITY;
        else if (isfinite(y)) error[i] += e + ref_narrowing(c->out->dtype, u, y);
        else if (off > 0) error[i] = INFINITY;
    }
}

/* ---- running sums and products ---- */
typedef struct line {
    double terms, errors;       /* of |finite terms|; of the operand's bounds */
    double product, off, above; /* of |terms|, of |terms| + their bounds, of those above 1 */
    double n;
    bool is_finite;
} line;

static void line_take(line *l, double v, double e) {
    const double magnitude = fabs(v);
    if (isfinite(v)) l->terms += magnitude;
    else l->is_finite = false;
    l->errors += e;
    l->product *= magnitude;
    l->off *= magnitude + e;
    l->above *= fmax(magnitude + e, 1);
    l->n++;
}

static double line_bound(const line *l, bool is_product, bool is_float, double k, double u, double y) {
    if (is_product) {
        double e = l->errors > 0 ? l->off - l->product : 0;
        if (!is_float) return e;
        if (!(l->above < most_of(u))) return INFINITY;
        return e + l->n * u * fabs(y) + l->n * l->above * least_of(u);
    }
    if (!is_float) return l->errors;
    if (!(l->terms < most_of(u))) return INFINITY;
    return l->is_finite ? k * l->terms + l->errors : l->errors > 0 ? INFINITY : 0;
}

void ref_bound_scan(const ref_call *c, const double *const *in_error, double u, double *error) {
    const ref_tensor *x = c->in;
    const bool is_product = c->n->op == IR_OP_CUMPROD, is_float = ir_is_float(x->dtype);
    const bool exclusive = ref_attr_int(c->n, "exclusive") != 0, reverse = ref_attr_int(c->n, "reverse") != 0;
    const int axis = (int)ref_attr_int(c->n, "axis");
    int64_t outer = 1, len = x->shape[axis], inner = 1;
    for (int d = 0; d < x->rank; d++)
        if (d != axis) *(d < axis ? &outer : &inner) *= x->shape[d];
    const double k = (256 + log2(len > 1 ? (double)len : 1)) * u;
    for (int64_t q = 0; q < outer * inner; q++) {
        const int64_t first = q / inner * len * inner + q % inner;
        line l = {.product = 1, .off = 1, .above = 1, .is_finite = true};
        for (int64_t j = 0; j < len; j++) {
            const int64_t i = first + (reverse ? len - 1 - j : j) * inner;
            const double y = get(c->out, i), v = get(x, i), e = in_error[0] ? in_error[0][i] : 0;
            if (!exclusive) line_take(&l, v, e);
            const double b =
                line_bound(&l, is_product, is_float, k, u, y) + (is_float ? ref_narrowing(c->out->dtype, u, y) : 0);
            error[i] = isnan(b) ? INFINITY : error[i] + b;
            if (exclusive) line_take(&l, v, e);
        }
    }
}

/* ---- norms ---- */
fusor_status ref_bound_norm(const ref_call *c, const double *const *in_error, double u, double *error) {
    const ref_tensor *x = c->in;
    const bool is_centered = c->n->op == IR_OP_LAYER_NORM;
    ref_norm_shape s;
    ref_norm_row row = {0};
    ref_walk w;
    FU_TRY(ref_norm_rows(c, &s));
    const double n = s.len > 1 ? (double)s.len : 1, k = (256 + log2(n)) * u;
    ref_walk_init(&w, c->n->n_in, x->rank, x->shape);
    for (int o = 1; o < c->n->n_in; o++) FU_TRY(ref_norm_strides(c, o, w.stride[o]));
    int64_t i = 0, now = -1;
    double off = 0, most = 0, relative = 0, least = 0;
    bool overflows = false;
    while (ref_walk_next(&w))
        for (int64_t j = 0; j < w.inner; j++, i++) {
            if (i / s.len != now) {
                now = i / s.len;
                row = ref_norm_row_of(c, &s, now);
                extremes(x, in_error[0], now * s.len, s.len, &off, &most);
                overflows = !(n * (most + off) * fmax(most + off, 1) < most_of(u));
                /* the variance where deviations vanish beside the mean, or their squares beside the smallest number */
                const double rest = least_of(u) + (is_centered ? k * (128 * u * most) * (128 * u * most) : 0);
                relative = row.deviation > 0 ? rest / (2 * (double)(row.deviation * row.deviation))
                           : rest > 0        ? INFINITY
                                             : 0;
                least = fmax((double)row.deviation - off, sqrt(s.epsilon));
            }
            const double z = (double)((get(x, i) - row.mean) / row.deviation), y = get(c->out, i);
            if (!isfinite(y) && off == 0 && !overflows && isnan((double)row.deviation)) continue;
            double e = k * (is_centered + fabs(z)) + fabs(z) * relative + 2 * least_of(u);
            if (off > 0) e += ((is_centered ? 2 : 1) * off + fabs(z) * off) / least;
            for (int o = 1; o < c->n->n_in; o++) {
                const int64_t at = w.offset[o] + j * w.step[o];
                const double v = get(&c->in[o], at), ve = in_error[o] ? in_error[o][at] : 0;
                e = o == 1 ? fabs(v) * e + (fabs(z) + e) * ve + 2 * u * fabs(z * v) : e + ve + 2 * u * fabs(y);
            }
            e += 2 * u * fabs(y) + 2 * least_of(u) + ref_narrowing(c->out->dtype, u, y);
            if (overflows || isnan(e)) error[i] = off > 0 || overflows || isfinite(y) ? INFINITY : error[i];
            else error[i] += e;
        }
    return FUSOR_OK;
}
