/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* bounds.c: the documented error bounds of a whole function for given inputs, and the comparison with them.
 *
 *   element-wise     0 (exact rows), else ulp * ULP(result) or abs, whichever is larger; f64: 4 ULP, hard_* or abs *
 *                    2^-29; halves: one ULP of theirs
 *   sums, means      (256 + log2 n) * u * sum|terms|; not judged where that sum is out of the accumulator's range, nor
 *                    are products, contractions and averages then
 *   products         n * u * |result|
 *   contractions     (512 + ceil(n / 512)) * u * sum|a*b|; f32 with the fast tier: 1.01 * 2^-10 * sum|a*b| more
 *   softmax family   8 ULP + 1e-7, and the bound of the sum of n positive terms
 *   cells            that of their contractions and functions, carried through the formula (cell.c)
 *   attention        attention.c
 *   others           bounds_norm.c
 * With the fast tier: element-wise, the bounds of ir_fast; softmax 2 * 2^-17 of the result more; log_softmax and
 * logsumexp 2^-17 (1 + log n). What operands may do: element-wise, all corners of their ranges, and 0 in them, and what
 * jumps inside (equality, remainders, integers that wrap) as far as it may; sums, the sum of the bounds, and those of a
 * scatter an ULP of sum|terms| an update more; contractions, |a|*eb + ea*|b| + ea*eb; max and min, the largest bound,
 * and a zero has any sign where those of the operand have both; softmax y * (exp(2E) - 1) and log_softmax 2E for the
 * largest bound E; argmax of an inexact operand is not judged. */
#include "base/small.h"
#include "ref/bounds.h"
#include "ref/bounds_norm.h"
#include "ref/kinds.h"
#include <math.h>

typedef struct value {
    ref_tensor t;
    double *error;
    uint32_t uses;
    bool is_owned;
} value; /* error NULL: exact */
typedef struct walk {
    const ir_graph *g;
    fu_error *e;
    const int64_t *symbols;
    bool is_fast;
} walk;

/* Relative error of the fast tier's exp and log: 64 ULP. */
#define FAST_EXP 0x1p-17

static size_t bytes_of(const ref_tensor *t) { return (size_t)ref_count(t) * ir_dtypes[t->dtype].bytes; }

static fusor_status no_memory(const walk *w) {
    return FU_FAIL(w->e, FUSOR_ERROR_MEMORY, "no memory to evaluate @%s with its error bounds", w->g->name);
}

static double get(const ref_tensor *t, int64_t i) { return ir_bits_to_double(t->dtype, ref_get(t, i)); }

double ref_ulp(ir_dtype t, double v) {
    int digits = 1, least = 0, exponent;
    switch (t) {
    case FUSOR_F64: digits = 53, least = -1074; break;
    case FUSOR_F32: digits = 24, least = -149; break;
    case FUSOR_F16: digits = 11, least = -24; break;
    case FUSOR_BF16: digits = 8, least = -133; break;
    default: return 1;
    }
    if (v == 0 || !isfinite(v)) return ldexp(1, least);
    (void)frexp(v, &exponent);
    return ldexp(1, exponent - digits > least ? exponent - digits : least);
}

/* A tensor of t's shape in f64; NULL: no memory. */
static double *as_f64(const ref_tensor *t, bool is_absolute) {
    int64_t n = ref_count(t);
    double *d = fu_malloc((size_t)n * sizeof *d + 1);
    for (int64_t i = 0; d && i < n; i++) d[i] = is_absolute ? fabs(get(t, i)) : get(t, i);
    return d;
}

static ref_tensor shaped(const ref_tensor *like, double *data) {
    ref_tensor t = *like;
    t.dtype = FUSOR_F64;
    t.data = data;
    return t;
}

/* Evaluates node n as operator `op` on f64 tensors; *out is new memory. */
static fusor_status eval_f64(const walk *w, const ir_node *n, ir_op op, const ref_tensor *in, const ref_tensor *like,
                             double **out) {
    ir_node node = *n;
    node.op = op;
    node.dtype = FUSOR_F64;
    double *data = fu_malloc((size_t)ref_count(like) * sizeof *data + 1);
    if (!data) return no_memory(w);
    ref_tensor result = shaped(like, data);
    fusor_status status = ref_eval_node(w->g, w->e, &node, in, &result, w->symbols);
    if (status != FUSOR_OK) fu_free(data);
    else *out = data;
    return status;
}

static bool make_error(value *v) {
    if (!v->error) v->error = fu_calloc((size_t)ref_count(&v->t) + 1, sizeof *v->error);
    return v->error != NULL;
}

/* ---- what the operands' bounds do to an operator that works element by element ---- */
enum {
    END_LOW,
    END_HIGH,
    END_ZERO, /* functions jump there (1/x, log): 0 where it is in the range */
    END_NAN   /* what is off by infinity is not judged: it may be a NaN too, which clamp or tanh keep */
};
/* The error of a zero that may have either sign: END_LOW is -0 and END_HIGH +0. */
#define OF_SIGN 0x1p-1074
static void shift(const ref_tensor *from, const double *error, int end, ref_tensor *to) {
    int64_t n = ref_count(from);
    bool is_up = end == END_HIGH, has_nan = ir_is_float(from->dtype);
    for (int64_t i = 0; i < n; i++) {
        if (error[i] == 0 || (end == END_ZERO && error[i] < INFINITY && !(fabs(get(from, i)) <= error[i])) ||
            (end == END_NAN && !(has_nan && isinf(error[i]))))
            ref_put(to, i, ref_get(from, i));
        else if (end == END_ZERO) ref_put(to, i, 0);
        else if (end == END_NAN) ref_put_real(to, i, NAN);
        else if (from->dtype == FUSOR_BOOL) ref_put(to, i, is_up);
        else if (isnan(get(from, i)) && isinf(error[i]))
            ref_put_real(to, i, is_up ? error[i] : -error[i]); /* it may be anything */
        else if (error[i] == OF_SIGN && get(from, i) == 0) ref_put_real(to, i, is_up ? 0.0L : -0.0L);
        else ref_put_real(to, i, (long double)get(from, i) + (is_up ? error[i] : -error[i]));
    }
}

static fusor_status corners(const walk *w, const ir_node *n, value *const *in, value *v) {
    int inexact[8], k = 0;
    ref_tensor operand[8], result = v->t;
    fusor_status status = FUSOR_OK;
    if (n->n_in > 8) return FUSOR_OK;
    for (int i = 0; i < n->n_in; i++) {
        operand[i] = in[i]->t;
        if (in[i]->error) inexact[k++] = i;
    }
    if (k == 0) return FUSOR_OK;
    if (!make_error(v)) return no_memory(w);
    result.data = fu_malloc(bytes_of(&v->t) + 1);
    for (int i = 0; i < k; i++) operand[inexact[i]].data = fu_malloc(bytes_of(&operand[inexact[i]]) + 1);
    for (int i = 0; i < k; i++)
        if (!result.data || !operand[inexact[i]].data) status = no_memory(w);
    int64_t count = ref_count(&v->t);
    for (int c = 0; c <= (1 << k) + 1 && status == FUSOR_OK; c++) {
        for (int i = 0; i < k; i++)
            shift(&in[inexact[i]]->t, in[inexact[i]]->error, c < 1 << k ? c >> i & 1 : END_ZERO + (c & 1),
                  &operand[inexact[i]]);
        status = ref_eval_node(w->g, w->e, n, operand, &result, w->symbols);
        for (int64_t i = 0; i < count && status == FUSOR_OK; i++) {
            double a = get(&v->t, i), b = get(&result, i), d = fabs(a - b);
            if (a == b || (isnan(a) && isnan(b))) continue;
            if (!(d < INFINITY)) d = INFINITY; /* a NaN or an infinity on one side */
            if (d > v->error[i]) v->error[i] = d;
        }
    }
    fu_free(result.data);
    for (int i = 0; i < k; i++) fu_free(operand[inexact[i]].data);
    return status;
}

/* How far the result may be off because the operator jumps inside the ranges of a and b, which are off by of_a and
 * of_both together: equality, where these overlap; remainders; integers that wrap, and their bits. */
static double jump(const ir_node *n, ir_dtype from, double a, double b, double of_a, double of_both) {
    const bool is_int = ir_is_int(n->dtype) && ir_is_int(from);
    const double range = ldexp(is_int, 8 * ir_dtypes[n->dtype].bytes), low = ir_is_signed(n->dtype) ? range / 2 : 0;
    switch (n->op) {
    case IR_OP_EQ:
    case IR_OP_NE: return !(fabs(a - b) > of_both);
    case IR_OP_MOD:
    case IR_OP_FMOD:
        return of_a == of_both && floor((a - of_a) / b) == floor((a + of_a) / b) ? 0 : fabs(b) + of_both - of_a;
    case IR_OP_MUL: return of_both * (fabs(a) + fabs(b) + of_both) < range ? 0 : range;
    case IR_OP_CAST: return floor((a + low - of_a) / range) != floor((a + low + of_a) / range) ? range : 0;
    case IR_OP_AND:
    case IR_OP_OR:
    case IR_OP_XOR:
    case IR_OP_SHL:
    case IR_OP_POW: return range;
    default: return 0;
    }
}

static void jumps(const ir_node *n, value *const *in, value *v) {
    const int operands = n->n_in;
    if (operands > 2 || !v->error) return;
    int lead[2];
    int64_t stride[2][IR_MAX_RANK], at[IR_MAX_RANK] = {0}, offset[2] = {0, 0}, count = ref_count(&v->t);
    for (int k = 0; k < operands; k++) {
        lead[k] = v->t.rank - in[k]->t.rank;
        ref_strides(in[k]->t.rank, in[k]->t.shape, stride[k]);
    }
    for (int64_t i = 0; i < count; i++) {
        double x[2] = {0}, off[2] = {0};
        for (int k = 0; k < operands; k++) {
            x[k] = get(&in[k]->t, offset[k]);
            if (in[k]->error) off[k] = in[k]->error[offset[k]];
        }
        off[1] += off[0];
        if (off[1] > 0) v->error[i] = fmax(v->error[i], jump(n, in[0]->t.dtype, x[0], x[1], off[0], off[1]));
        for (int dim = v->t.rank - 1; dim >= 0; dim--) {
            bool wraps = ++at[dim] == v->t.shape[dim];
            for (int k = 0; k < operands; k++) {
                if (dim < lead[k] || in[k]->t.shape[dim - lead[k]] == 1) continue;
                offset[k] += wraps ? -(at[dim] - 1) * stride[k][dim - lead[k]] : stride[k][dim - lead[k]];
            }
            if (!wraps) break;
            at[dim] = 0;
        }
    }
}

/* Periodic functions turn inside the ranges, and tan jumps at its poles: the ends say nothing of what lies between. */
static void turns(const ir_node *n, value *const *in, value *v) {
    if ((n->op != IR_OP_SIN && n->op != IR_OP_COS && n->op != IR_OP_TAN) || !v->error) return;
    int64_t count = ref_count(&v->t);
    for (int64_t i = 0; i < count; i++) {
        double x = get(&in[0]->t, i), e = in[0]->error[i];
        if (!(e > 0)) continue;
        if (n->op != IR_OP_TAN) v->error[i] = e < 2 ? e : 2;
        else if (!(e < 3) || floor((x + e) / M_PI - 0.5) != floor((x - e) / M_PI - 0.5)) v->error[i] = INFINITY;
        if (isnan(get(&v->t, i)) || !(e < INFINITY)) v->error[i] = INFINITY;
    }
}

static fusor_status own_elementwise(const walk *w, const ir_node *n, value *v) {
    const ir_op_info *op = &ir_ops[n->op];
    if ((op->flags & IR_EXACT) || !ir_is_float(v->t.dtype)) return FUSOR_OK;
    if (!make_error(v)) return no_memory(w);
    const ir_fast_info *fast = w->is_fast && v->t.dtype != FUSOR_F64 && ir_fast[n->op].levels ? &ir_fast[n->op] : NULL;
    double ulp = v->t.dtype == FUSOR_F32 ? op->ulp : v->t.dtype == FUSOR_F64 ? (op->ulp > 4 ? op->ulp : 4) : 1;
    double absolute = v->t.dtype != FUSOR_F64 ? op->abs
                      : op->flags & IR_COSTLY ? 0
                                              : op->abs * 0x1p-29; /* 29 bits more */
    if (fast && v->t.dtype == FUSOR_F32) ulp = fast->ulp;
    if (fast) absolute = fast->abs;
    int64_t count = ref_count(&v->t);
    for (int64_t i = 0; i < count; i++) {
        double y = get(&v->t, i), own = ulp * ref_ulp(v->t.dtype, y);
        if (isfinite(y)) v->error[i] += own > absolute ? own : absolute;
    }
    return FUSOR_OK;
}

/* ---- reductions and contractions ---- */
static double unit(const walk *w, const ir_node *n) {
    return ir_node_accumulator(w->g, n) == FUSOR_F64 ? 0x1p-53 : 0x1p-24;
}

/* The fast tier may round operands of contractions that are f32 to 11 bits (tf32). */
#define TF32 0x1.01p-10
static bool may_be_tf32(const walk *w, const ir_node *n) {
    return w->is_fast && ir_at(w->g, n->in[0])->dtype == FUSOR_F32 && unit(w, n) > 0x1p-53;
}

/* Of a sum of k products, of the sum of their absolute values. */
static double product_bound(const walk *w, const ir_node *n, double k) {
    return (512 + ceil(k / 512)) * unit(w, n) + (may_be_tf32(w, n) ? TF32 : 0);
}

/* v->error += factor * terms, and the conversion from the accumulator. What `each` times the terms, all that is summed,
 * takes out of the accumulator's range may overflow on the way to a finite result. */
static void add_terms(value *v, const double *terms, double factor, double u, double each) {
    const double most = u > 0x1p-30 ? 0x1p127 : 0x1p1023;
    int64_t count = ref_count(&v->t);
    for (int64_t i = 0; i < count; i++) {
        const double y = get(&v->t, i);
        v->error[i] += factor * terms[i] + ref_narrowing(v->t.dtype, u, y);
        if (isnan(v->error[i]) || (isfinite(y) && !(each * terms[i] < most))) v->error[i] = INFINITY;
    }
}

/* The larger of -0 and +0 is either. */
static fusor_status sign_of_zero(const walk *w, const ref_tensor *x, value *v) {
    const ir_bits minus = (ir_bits)1 << (8 * ir_dtypes[x->dtype].bytes - 1);
    const int64_t count = ref_count(&v->t);
    int64_t zeros = 0;
    uint32_t signs = 0;
    for (int64_t i = 0; i < count; i++) zeros += get(&v->t, i) == 0;
    if (!zeros) return FUSOR_OK;
    for (int64_t i = 0; i < ref_count(x) && ir_is_float(x->dtype); i++)
        if (!(ref_get(x, i) & ~minus)) signs |= ref_get(x, i) ? 1 : 2;
    if (signs != 3) return FUSOR_OK;
    if (!make_error(v)) return no_memory(w);
    for (int64_t i = 0; i < count; i++)
        if (get(&v->t, i) == 0) v->error[i] += OF_SIGN;
    return FUSOR_OK;
}

static fusor_status reduce_bounds(const walk *w, const ir_node *n, value *const *in, value *v) {
    const ref_tensor *x = &in[0]->t;
    bool is_float = ir_is_float(x->dtype), is_sum = ir_ops[n->op].is_sum_like && n->op != IR_OP_REDUCE_PROD;
    int64_t outputs = ref_count(&v->t);
    double each = outputs ? (double)ref_count(x) / (double)outputs : 1;
    double *terms = NULL, *memory;
    if (!ir_ops[n->op].is_sum_like) FU_TRY(sign_of_zero(w, x, v));
    if (!in[0]->error && (!is_float || !ir_ops[n->op].is_sum_like)) return FUSOR_OK;
    if (!make_error(v)) return no_memory(w);
    if (n->op == IR_OP_REDUCE_PROD) {
        if (in[0]->error) { /* as far as the product of |x| + error is from that of |x| */
            if (!(memory = as_f64(x, true))) return no_memory(w);
            for (int64_t i = 0; i < ref_count(x); i++) memory[i] += in[0]->error[i];
            ref_tensor most = shaped(x, memory);
            fusor_status status = eval_f64(w, n, n->op, &most, &v->t, &terms);
            fu_free(memory);
            FU_TRY(status);
            for (int64_t i = 0; i < outputs; i++) {
                double far = terms[i] - fabs(get(&v->t, i));
                v->error[i] += far >= 0 ? far : INFINITY;
            }
            fu_free(terms);
        }
        if (!is_float) return FUSOR_OK;
        if (!(memory = as_f64(&v->t, true))) return no_memory(w);
        add_terms(v, memory, each * unit(w, n), unit(w, n), 1);
        fu_free(memory);
        /* On the way some factors above 1 may overflow, and what underflows is multiplied by them later. */
        if (!(memory = as_f64(x, true))) return no_memory(w);
        for (int64_t i = 0; i < ref_count(x); i++)
            if (memory[i] < 1) memory[i] = 1;
        ref_tensor above = shaped(x, memory);
        fusor_status status = eval_f64(w, n, n->op, &above, &v->t, &terms);
        fu_free(memory);
        FU_TRY(status);
        ir_dtype acc = ir_node_accumulator(w->g, n);
        for (int64_t i = 0; i < outputs; i++) {
            if (!(terms[i] < (acc == FUSOR_F64 ? 0x1p1023 : 0x1p127))) v->error[i] = INFINITY;
            else v->error[i] += each * terms[i] * ref_ulp(acc, 0);
        }
        fu_free(terms);
        return FUSOR_OK;
    }
    if (in[0]->error && ref_count(x) > 0) { /* over an empty axis there is no largest error */
        ref_tensor errors = shaped(x, in[0]->error);
        bool is_bool = x->dtype == FUSOR_BOOL && !is_sum;
        FU_TRY(eval_f64(w, n, is_sum ? n->op : IR_OP_REDUCE_MAX, &errors, &v->t, &terms));
        for (int64_t i = 0; i < outputs; i++) v->error[i] += is_bool && terms[i] > 0 ? 1 : terms[i];
        fu_free(terms);
    }
    if (!is_sum || !is_float) return FUSOR_OK;
    if (!(memory = as_f64(x, true))) return no_memory(w);
    ref_tensor absolute = shaped(x, memory);
    fusor_status status = eval_f64(w, n, n->op, &absolute, &v->t, &terms);
    fu_free(memory);
    FU_TRY(status);
    add_terms(v, terms, (256 + log2(each > 1 ? each : 1)) * unit(w, n), unit(w, n),
              n->op == IR_OP_REDUCE_MEAN ? each : 1);
    fu_free(terms);
    return FUSOR_OK;
}

/* v->error += factor * (|a| + ea) @ (|b| + eb) - ..., with either part left out. */
static fusor_status add_product(const walk *w, const ir_node *n, value *const *in, value *v, bool a_error, bool b_error,
                                double factor) {
    double *data[2] = {NULL, NULL}, *terms = NULL;
    ref_tensor operand[2];
    bool use_error[2] = {a_error, b_error};
    for (int k = 0; k < 2; k++) {
        if (use_error[k]) operand[k] = shaped(&in[k]->t, in[k]->error);
        else if ((data[k] = as_f64(&in[k]->t, true)) != NULL) operand[k] = shaped(&in[k]->t, data[k]);
    }
    fusor_status status = (use_error[0] || data[0]) && (use_error[1] || data[1])
                              ? eval_f64(w, n, n->op, operand, &v->t, &terms)
                              : no_memory(w);
    fu_free(data[0]);
    fu_free(data[1]);
    FU_TRY(status);
    bool is_own = !a_error && !b_error;
    if (is_own) add_terms(v, terms, factor, factor == 0 ? INFINITY : unit(w, n), 1);
    else
        for (int64_t i = 0; i < ref_count(&v->t); i++)
            v->error[i] = isnan(terms[i]) ? INFINITY : v->error[i] + terms[i];
    fu_free(terms);
    return FUSOR_OK;
}

static fusor_status contract_bounds(const walk *w, const ir_node *n, value *const *in, value *v) {
    bool is_float = ir_is_float(v->t.dtype), ea = in[0]->error != NULL, eb = in[1]->error != NULL;
    if (!is_float && !ea && !eb) return FUSOR_OK;
    if (!make_error(v)) return no_memory(w);
    const ref_tensor *a = &in[0]->t;
    const ir_attr *transposed = ir_node_attr(n, "transpose_a");
    bool is_transposed = transposed && transposed->is_set && transposed->integer && a->rank >= 2;
    double k = a->rank ? (double)a->shape[a->rank - 1 - is_transposed] : 1;
    if (is_float) FU_TRY(add_product(w, n, in, v, false, false, product_bound(w, n, k)));
    /* Products below the normal numbers are rounded to a multiple of the smallest one, each. */
    for (int64_t i = 0; is_float && i < ref_count(&v->t); i++) v->error[i] += k * ref_ulp(v->t.dtype, 0);
    if (ea) FU_TRY(add_product(w, n, in, v, true, false, 1));
    if (eb) FU_TRY(add_product(w, n, in, v, false, true, 1));
    if (ea && eb) FU_TRY(add_product(w, n, in, v, true, true, 1));
    return FUSOR_OK;
}

static fusor_status row_bounds(const walk *w, const ir_node *n, value *const *in, value *v) {
    int64_t count = ref_count(&v->t);
    uint32_t axes = ir_node_axes(w->g, n);
    double most = 0, length = 1, u = unit(w, n);
    const double fast = w->is_fast && u > 0x1p-53 ? FAST_EXP : 0;
    if (!make_error(v)) return no_memory(w);
    for (int d = 0; d < v->t.rank; d++)
        if (axes >> d & 1) length *= (double)v->t.shape[d];
    for (int64_t i = 0; in[0]->error && i < ref_count(&in[0]->t); i++)
        if (in[0]->error[i] > most) most = in[0]->error[i];
    double sum = (256 + log2(length > 1 ? length : 1)) * u;
    for (int64_t i = 0; i < count; i++) {
        double y = get(&v->t, i);
        if (!isfinite(y)) {
            if (most > 0) v->error[i] = INFINITY;
            continue;
        }
        double part = n->op == IR_OP_SOFTMAX ? fabs(y) * (sum + expm1(2 * most)) : sum + 2 * most;
        if (isnan(part)) part = INFINITY; /* 0 that may be anything */
        v->error[i] += part + 8 * ref_ulp(v->t.dtype, y) + 1e-7;
        if (fast > 0) v->error[i] += n->op == IR_OP_SOFTMAX ? 2 * fast * fabs(y) : fast * (1 + log(length + 1));
    }
    return FUSOR_OK;
}

/* Uniform numbers are exact. A seed that is not: any numbers. */
static fusor_status random_bounds(const walk *w, const ir_node *n, bool any, value *v) {
    const double ulp = v->t.dtype == FUSOR_F32 || v->t.dtype == FUSOR_F64 ? 4 : 1;
    if (n->op == IR_OP_RANDOM_UNIFORM && !any) return FUSOR_OK;
    if (!make_error(v)) return no_memory(w);
    for (int64_t i = 0; i < ref_count(&v->t); i++)
        v->error[i] =
            any ? INFINITY : fmax(ulp * ref_ulp(v->t.dtype, get(&v->t, i)), v->t.dtype == FUSOR_F64 ? 1e-15 : 1e-7);
    return FUSOR_OK;
}

/* What the fast tier's exp and log add to max + log(sum(exp(x - max))). */
static void fast_logsumexp(const walk *w, const ir_node *n, const value *in, value *v) {
    const int64_t outputs = ref_count(&v->t);
    if (!w->is_fast || n->op != IR_OP_REDUCE_LOGSUMEXP || unit(w, n) <= 0x1p-53) return;
    const double each = outputs ? (double)ref_count(&in->t) / (double)outputs : 0;
    for (int64_t i = 0; i < outputs; i++) v->error[i] += FAST_EXP * (1 + log(each + 1));
}

/* Those of bounds_norm.c. */
static fusor_status other_bounds(const walk *w, const ir_node *n, value *const *in, value *v) {
    ref_tensor operand[7];
    const double *errors[7] = {NULL};
    const ref_call c = {.g = w->g, .e = w->e, .n = n, .in = operand, .out = &v->t, .symbols = w->symbols};
    bool any = ir_is_float(in[0]->t.dtype);
    for (int k = 0; k < n->n_in; k++) {
        operand[k] = in[k]->t;
        errors[k] = in[k]->error;
        any |= errors[k] != NULL;
    }
    if (!any || ref_count(&v->t) == 0) return FUSOR_OK;
    if (!make_error(v)) return no_memory(w);
    switch (ir_ops[n->op].kind) {
    case IR_KIND_CELL: return ref_cell(&c, errors, v->error, unit(w, n) + (may_be_tf32(w, n) ? TF32 / 512 : 0));
    case IR_KIND_ATTENTION: return ref_bound_attention(&c, errors, unit(w, n), v->error);
    case IR_KIND_NORM: return ref_bound_norm(&c, errors, unit(w, n), v->error);
    case IR_KIND_SCAN: ref_bound_scan(&c, errors, unit(w, n), v->error); return FUSOR_OK;
    default:
        ref_bound_composite(&c, errors, unit(w, n), v->error);
        fast_logsumexp(w, n, in[0], v);
        return FUSOR_OK;
    }
}

static bool is_plain_sum(ir_op op) {
    return ir_ops[op].combine != IR_OP_NONE || op == IR_OP_REDUCE_MEAN || op == IR_OP_REDUCE_L1;
}

/* Updates are added one after the other, and each sum is rounded to the element's type. Where an operand is off, each
 * may be rounded the other way: by an ULP of |x| and all |updates| of the place together. */
static fusor_status add_roundings(const walk *w, const ir_node *n, value *const *in, value *v) {
    const double ulp = ref_ulp(v->t.dtype, 1), most = v->t.dtype == FUSOR_F64   ? 0x1p1023
                                                      : v->t.dtype == FUSOR_F16 ? 0x1p15
                                                                                : 0x1p127;
    double *memory[2] = {as_f64(&in[0]->t, true), as_f64(&in[2]->t, true)}, *made[2] = {NULL, NULL};
    const ref_tensor operand[3] = {shaped(&in[0]->t, memory[0]), in[1]->t, shaped(&in[2]->t, memory[1])};
    fusor_status status = memory[0] && memory[1] ? FUSOR_OK : no_memory(w);
    for (int pass = 0; pass < 2 && status == FUSOR_OK; pass++) { /* that sum, then how many updates */
        for (int k = 0; k < 2; k++)
            for (int64_t i = 0; i < ref_count(&in[2 * k]->t); i++)
                memory[k][i] = pass ? k : memory[k][i] + in[2 * k]->error[i];
        status = eval_f64(w, n, n->op, operand, &v->t, &made[pass]);
    }
    for (int64_t i = 0; i < ref_count(&v->t) && status == FUSOR_OK; i++)
        if (v->error[i] > 0 && made[1][i] > 0)
            v->error[i] = made[0][i] < most ? v->error[i] + made[1][i] * ulp * made[0][i] : INFINITY;
    for (int k = 0; k < 2; k++) {
        fu_free(memory[k]);
        fu_free(made[k]);
    }
    return status;
}

/* Movement: the bounds of the elements that are moved. An operand of indices stays what it is; inexact ones judge
 * nothing. Sums of updates add their bounds, the largest of them has at most the largest bound; other combinations are
 * not judged. */
static fusor_status move_bounds(const walk *w, const ir_node *n, value *const *in, value *v) {
    const ir_op with = n->op == IR_OP_SCATTER ? ir_scatter_combine(ir_node_attr(n, "mode")->integer) : IR_OP_NONE;
    bool is_unknown = n->op == IR_OP_ONE_HOT || (with != IR_OP_NONE && with != IR_OP_ADD && with != IR_OP_MAXIMUM);
    for (int k = 0; k < n->n_in; k++)
        is_unknown |= in[k]->error && ir_operand_role(n->op, (unsigned)k) == IR_ROLE_INDEX;
    if (is_unknown) {
        if (!make_error(v)) return no_memory(w);
        for (int64_t i = 0; i < ref_count(&v->t); i++) v->error[i] = INFINITY;
        return FUSOR_OK;
    }
    ref_tensor *operand = fu_calloc((size_t)n->n_in + 1, sizeof *operand);
    bool good = operand != NULL;
    for (int k = 0; good && k < n->n_in; k++) {
        operand[k] = in[k]->t;
        if (ir_operand_role(n->op, (unsigned)k) == IR_ROLE_INDEX) continue;
        good = make_error(in[k]);
        operand[k] = shaped(&in[k]->t, in[k]->error);
    }
    fusor_status status = good ? eval_f64(w, n, n->op, operand, &v->t, &v->error) : no_memory(w);
    fu_free(operand);
    return status == FUSOR_OK && with == IR_OP_ADD && ir_is_float(v->t.dtype) ? add_roundings(w, n, in, v) : status;
}

/* max_pool: the largest bound in the window. Averages: that of the bounds, and of a sum of up to n terms. */
static fusor_status window_bounds(const walk *w, const ir_node *n, value *const *in, value *v) {
    const bool is_max = n->op == IR_OP_MAX_POOL;
    const int64_t outputs = ref_count(&v->t);
    double *terms, *memory, each = 1;
    if (is_max) FU_TRY(sign_of_zero(w, &in[0]->t, v));
    if (is_max && !in[0]->error) return FUSOR_OK;
    if (!make_error(v)) return no_memory(w);
    if (in[0]->error) {
        ref_tensor errors = shaped(&in[0]->t, in[0]->error);
        FU_TRY(eval_f64(w, n, n->op, &errors, &v->t, &terms));
        for (int64_t i = 0; i < outputs; i++) v->error[i] += isnan(terms[i]) || terms[i] < 0 ? 0 : terms[i];
        fu_free(terms);
    }
    if (is_max) return FUSOR_OK;
    const ir_attr *kernel = ir_node_attr(n, "kernel");
    for (uint32_t i = 0; kernel && i < kernel->n; i++) {
        int64_t k = 1;
        ir_size_is_const(w->g->sizes, kernel->list[i], &k);
        each *= (double)k;
    }
    for (int d = 2; !kernel && d < in[0]->t.rank; d++) each *= (double)in[0]->t.shape[d];
    if (!(memory = as_f64(&in[0]->t, true))) return no_memory(w);
    ref_tensor absolute = shaped(&in[0]->t, memory);
    fusor_status status = eval_f64(w, n, n->op, &absolute, &v->t, &terms);
    fu_free(memory);
    FU_TRY(status);
    add_terms(v, terms, product_bound(w, n, each), unit(w, n), each);
    fu_free(terms);
    return FUSOR_OK;
}

/* Sums of up to `each` products of absolute values: what operands are off by adds as in a product. */
static fusor_status product_bounds(const walk *w, const ir_node *n, value *const *in, value *v, double each) {
    const bool is_float = ir_is_float(v->t.dtype) && ir_is_float(in[0]->t.dtype);
    double **memory = NULL, *terms = NULL, *far = NULL;
    bool any = is_float, good;
    for (int k = 0; k < n->n_in; k++) any |= in[k]->error != NULL;
    if (!any) return FUSOR_OK;
    if (!make_error(v)) return no_memory(w);
    ref_tensor *operand = fu_calloc((size_t)n->n_in + 1, sizeof *operand);
    memory = fu_calloc(2 * (size_t)n->n_in + 1, sizeof *memory); /* |x|, then |x| + error */
    good = operand && memory;
    for (int k = 0; good && k < 2 * n->n_in; k++) {
        const value *x = in[k % n->n_in];
        good = (memory[k] = as_f64(&x->t, true)) != NULL;
        for (int64_t i = 0; good && k >= n->n_in && x->error && i < ref_count(&x->t); i++) memory[k][i] += x->error[i];
    }
    fusor_status status = good ? FUSOR_OK : no_memory(w);
    for (int pass = 0; status == FUSOR_OK && pass < 2; pass++) {
        for (int k = 0; k < n->n_in; k++) operand[k] = shaped(&in[k]->t, memory[pass * n->n_in + k]);
        status = eval_f64(w, n, n->op, operand, &v->t, pass ? &far : &terms);
    }
    if (status == FUSOR_OK) {
        /* Inexact operands: all that |x| + error makes of it more than |x| does, and the rounding of this difference
         * here. */
        for (int64_t i = 0; i < ref_count(&v->t); i++)
            v->error[i] += far[i] == terms[i]       ? 0
                           : far[i] - terms[i] >= 0 ? far[i] - terms[i] + 0x1p-50 * far[i]
                                                    : INFINITY;
        if (is_float) add_terms(v, terms, product_bound(w, n, each), unit(w, n), 1);
        /* Products below the normal numbers, and the sign of a zero. */
        for (int64_t i = 0; is_float && i < ref_count(&v->t); i++) v->error[i] += each * ref_ulp(v->t.dtype, 0);
    }
    for (int k = 0; memory && k < 2 * n->n_in; k++) fu_free(memory[k]);
    fu_free(memory);
    fu_free(operand);
    fu_free(terms);
    fu_free(far);
    return status;
}

static bool is_finite(const value *in) {
    for (int64_t i = 0; i < ref_count(&in->t); i++)
        if (!isfinite(get(&in->t, i)) || (in->error && isinf(in->error[i]))) return false;
    return true;
}

static void judge_nothing(value *v) {
    for (int64_t i = 0; i < ref_count(&v->t); i++) v->error[i] = INFINITY;
}

/* The sum of |x * w| over a window, with |b|. A transposed one may have products with zeros beyond the operand
 * (numerics.md), which infinite weights make NaN. */
static fusor_status conv_bounds(const walk *w, const ir_node *n, value *const *in, value *v) {
    const ref_tensor *weights = &in[1]->t;
    double each = 1;
    for (int d = 1; d < weights->rank; d++) each *= (double)weights->shape[d];
    if (n->op == IR_OP_CONV_TRANSPOSE) each *= (double)in[0]->t.shape[1];
    FU_TRY(product_bounds(w, n, in, v, each));
    if (n->op == IR_OP_CONV_TRANSPOSE && v->error && !is_finite(in[1])) judge_nothing(v);
    return FUSOR_OK;
}

static fusor_status einsum_bounds(const walk *w, const ir_node *n, value *const *in, value *v) {
    double each = 1;
    ref_tensor *operand = fu_calloc((size_t)n->n_in + 1, sizeof *operand);
    if (!operand) return no_memory(w);
    for (int k = 0; k < n->n_in; k++) operand[k] = in[k]->t;
    const ref_call c = {.g = w->g, .e = w->e, .n = n, .in = operand, .out = &v->t, .symbols = w->symbols};
    const fusor_status status = ref_einsum_products(&c, &each);
    fu_free(operand);
    FU_TRY(status);
    FU_TRY(product_bounds(w, n, in, v, each));
    /* Products of sums, one of them of nothing: 0 by what is not finite. */
    for (int k = 0; each == 0 && k < n->n_in; k++)
        if (!is_finite(in[k])) judge_nothing(v);
    return FUSOR_OK;
}

static fusor_status node_bounds(const walk *w, const ir_node *n, value *const *in, value *v) {
    ref_tensor moved;
    bool any = false;
    for (int k = 0; k < n->n_in; k++) any |= in[k]->error != NULL;
    switch (ir_ops[n->op].kind) {
    case IR_KIND_EW:
        FU_TRY(corners(w, n, in, v));
        jumps(n, in, v);
        turns(n, in, v);
        return own_elementwise(w, n, v);
    case IR_KIND_CONVERT:
        FU_TRY(corners(w, n, in, v));
        jumps(n, in, v);
        return FUSOR_OK;
    case IR_KIND_REDUCE: return is_plain_sum(n->op) ? reduce_bounds(w, n, in, v) : other_bounds(w, n, in, v);
    case IR_KIND_SCAN:
    case IR_KIND_NORM:
    case IR_KIND_ATTENTION:
    case IR_KIND_CELL: return other_bounds(w, n, in, v);
    case IR_KIND_CONTRACT: return contract_bounds(w, n, in, v);
    case IR_KIND_ROW: return row_bounds(w, n, in, v);
    case IR_KIND_VIEW:
        if (!in[0]->error) return FUSOR_OK;
        moved = shaped(&in[0]->t, in[0]->error);
        return eval_f64(w, n, n->op, &moved, &v->t, &v->error);
    case IR_KIND_MOVE:
    case IR_KIND_INDEX: return any ? move_bounds(w, n, in, v) : FUSOR_OK;
    case IR_KIND_ARGREDUCE:
        if (!any) return FUSOR_OK;
        if (!make_error(v)) return no_memory(w);
        judge_nothing(v);
        return FUSOR_OK;
    case IR_KIND_RANDOM: return random_bounds(w, n, any, v);
    case IR_KIND_CONV: return conv_bounds(w, n, in, v);
    case IR_KIND_EINSUM: return einsum_bounds(w, n, in, v);
    case IR_KIND_WINDOW: return window_bounds(w, n, in, v);
    case IR_KIND_QUANTIZE:
    case IR_KIND_CREATE: return corners(w, n, in, v); /* full: of a value that may be off */
    case IR_KIND_CORE: break;
    }
    return FUSOR_OK;
}

/* ---- the walk ---- */
static void drop(value *v) {
    if (--v->uses) return;
    if (v->is_owned) fu_free(v->t.data);
    fu_free(v->error);
    v->is_owned = false;
    v->error = NULL;
}

static fusor_status eval_one(const walk *w, ir_id id, value *values, ref_tensor *operand, value **in) {
    const ir_node *n = ir_at(w->g, id);
    value *v = &values[id];
    v->t.dtype = n->dtype;
    v->t.rank = n->rank;
    int64_t bytes = ir_dtypes[n->dtype].bytes;
    for (int d = 0; d < n->rank; d++)
        if (ir_size_eval(w->g->sizes, n->dim[d], w->symbols, &v->t.shape[d]) != IR_SIZE_OK || v->t.shape[d] < 0 ||
            __builtin_mul_overflow(bytes, v->t.shape[d], &bytes))
            return FU_FAIL(w->e, FUSOR_ERROR_SHAPE, "%s: dim %d of the result is no size", ir_ops[n->op].name, d);
    v->t.data = fu_malloc((size_t)bytes + 1);
    if (!v->t.data) return no_memory(w);
    v->is_owned = true;
    for (int k = 0; k < n->n_in; k++) {
        in[k] = &values[n->in[k]];
        operand[k] = in[k]->t;
    }
    FU_TRY(ref_eval_node(w->g, w->e, n, operand, &v->t, w->symbols));
    FU_TRY(node_bounds(w, n, in, v));
    for (int k = 0; k < n->n_in; k++) drop(in[k]);
    return FUSOR_OK;
}

/* As ir_use_counts, but what indices in a parameter lead to is checked though nothing uses it. */
static const uint32_t *count_uses(fu_arena *a, const ir_graph *g) {
    uint32_t *uses = ir_use_counts(a, g);
    const uint32_t *counted = fu_dup(a, uses, g->nodes.n * sizeof *uses);
    for (ir_id id = g->nodes.n; id-- > 1;) {
        const ir_node *n = ir_at(g, id);
        if (counted[id]) continue;
        uses[id] += ir_checks_parameter(g, n);
        for (unsigned k = 0; k < n->n_in && uses[id]; k++) uses[n->in[k]]++;
    }
    return uses;
}

fusor_status ref_eval_bounds(fu_arena *a, fu_error *e, const ir_graph *g, bool is_fast, int n_in, const ref_tensor *in,
                             int n_out, ref_tensor *out, double **bound) {
    if ((uint32_t)n_in != g->params.n || (uint32_t)n_out != g->results.n)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "@%s: %d inputs and %d results given; expected %u and %u", g->name,
                       n_in, n_out, g->params.n, g->results.n);
    int64_t *symbols = FU_NEW_N(a, int64_t, ir_size_symbol_count(g->sizes) + 1);
    const int64_t **shape = FU_NEW_N(a, const int64_t *, n_in + 1);
    for (int p = 0; p < n_in; p++) shape[p] = in[p].shape;
    FU_TRY(ir_bind_sizes(g, e, shape, symbols));
    value *values = FU_NEW_N(a, value, g->nodes.n + 1);
    const uint32_t *uses = count_uses(a, g);
    uint32_t most = 1;
    for (ir_id id = 1; id < g->nodes.n; id++) {
        const ir_node *n = ir_at(g, id);
        values[id].uses = uses[id];
        if (!uses[id]) continue;
        if (n->n_in > most) most = n->n_in;
        if (n->op == IR_OP_PARAM) values[id].t = in[n->index];
    }
    ref_tensor *operand = FU_NEW_N(a, ref_tensor, most);
    value **used = FU_NEW_N(a, value *, most);
    walk w = {g, e, symbols, is_fast};
    fusor_status status = FUSOR_OK;
    for (ir_id id = 1; id < g->nodes.n && status == FUSOR_OK; id++)
        if (values[id].uses && ir_at(g, id)->op != IR_OP_PARAM) status = eval_one(&w, id, values, operand, used);
    /* The arena is asked only once nothing is owned any more but through values, so no jump can leak more than this
     * call's. */
    for (int r = 0; r < n_out && status == FUSOR_OK; r++) {
        const value *v = &values[g->results.at[r].node];
        out[r] = v->t;
        out[r].data = fu_dup(a, v->t.data, bytes_of(&v->t));
        bound[r] = v->error ? fu_dup(a, v->error, (size_t)ref_count(&v->t) * sizeof(double))
                            : FU_NEW_N(a, double, ref_count(&v->t) + 1);
    }
    for (ir_id id = 1; id < g->nodes.n; id++) {
        if (values[id].is_owned) fu_free(values[id].t.data);
        fu_free(values[id].error);
    }
    return status;
}

/* ---- comparison ---- */
static double difference(const ref_tensor *got, const ref_tensor *expected, int64_t i) {
    ir_bits a = ref_get(got, i), b = ref_get(expected, i);
    if (a == b) return 0;
    if (!ir_is_float(got->dtype)) {
        long double d = got->dtype == FUSOR_U64
                            ? (long double)a - (long double)b
                            : (long double)ref_int(got->dtype, a) - (long double)ref_int(got->dtype, b);
        return (double)fabsl(d);
    }
    double x = ir_bits_to_double(got->dtype, a), y = ir_bits_to_double(got->dtype, b);
    if ((isnan(x) && isnan(y)) || x == y) return 0;
    if (!isfinite(x) || !isfinite(y)) return INFINITY;
    return (double)fabsl((long double)x - (long double)y);
}

ref_comparison ref_compare(const ref_tensor *got, const ref_tensor *expected, const double *bound, double limit_ulp) {
    ref_comparison c = {.bound_ulp = limit_ulp < 0 ? 0 : limit_ulp, .at = -1, .ok = true};
    double worst = -1;
    int64_t n = ref_count(expected);
    for (int64_t i = 0; i < n; i++) {
        double y = get(expected, i), ulp = ref_ulp(expected->dtype, y), d = difference(got, expected, i);
        double limit = limit_ulp < 0 ? bound[i] : limit_ulp * ulp;
        bool ok = d == 0 || d <= limit;
        double share = d == 0 ? (limit > 0 ? 0 : -0.5) : limit > 0 ? d / limit : INFINITY;
        if (isinf(d) && isinf(limit)) share = 1;
        if (d / ulp > c.max_ulp) c.max_ulp = d / ulp;
        if (share > worst || c.at < 0 || (share == worst && d / ulp > c.at_ulp)) { /* all bounds may be 0 */
            worst = share;
            c.at = i;
            c.at_ulp = d / ulp;
            c.at_bound_ulp = limit / ulp;
            if (limit_ulp < 0) c.bound_ulp = limit / ulp;
        } else if (share == worst && share == 0 && limit_ulp < 0 && limit / ulp > c.bound_ulp) {
            c.bound_ulp = limit / ulp;
        }
        c.ok &= ok;
    }
    /* An element far from its bound may still be the farthest in ULP: the bound that is told admits all that is
     * admitted. */
    if (c.ok && c.bound_ulp < c.max_ulp) c.bound_ulp = c.max_ulp;
    return c;
}
