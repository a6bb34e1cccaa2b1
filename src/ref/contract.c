/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* matmul with numpy.matmul's shapes. Both operands of one batch are widened into dense [M, K] and [K, N] arrays of the
 * accumulation type (double; long double for f64; 64-bit integers), then multiplied by plain loops in blocks of K. */
#include "ref/kinds.h"
#include "ir/scalar.h"

typedef struct side {
    const ref_tensor *t;
    int64_t rows, cols, row_stride, col_stride;
    int n_batch; /* leading dims that are batch axes */
} side;

static side side_of(const ref_tensor *t, bool is_lhs, bool is_transposed) {
    side s = {.t = t};
    if (t->rank == 1) { /* a row on the left, a column on the right; no transpose */
        s.rows = is_lhs ? 1 : t->shape[0];
        s.cols = is_lhs ? t->shape[0] : 1;
        s.row_stride = is_lhs ? 0 : 1;
        s.col_stride = is_lhs ? 1 : 0;
        return s;
    }
    int64_t r = t->shape[t->rank - 2], c = t->shape[t->rank - 1];
    s.n_batch = t->rank - 2;
    s.rows = is_transposed ? c : r;
    s.cols = is_transposed ? r : c;
    s.row_stride = is_transposed ? 1 : c;
    s.col_stride = is_transposed ? c : 1;
    return s;
}

typedef struct work {
    void *a, *b, *c;
    int64_t m, k, n;
} work;
enum { K_BLOCK = 64 }; /* rows of b that stay in a level-2 cache while all of a passes */

#define KERNELS(NAME, ACC, WIDEN)                                                                                      \
    static void widen_##NAME(const side *s, int64_t offset, ACC *to) {                                                 \
        for (int64_t i = 0; i < s->rows; i++)                                                                          \
            for (int64_t j = 0; j < s->cols; j++) {                                                                    \
                ir_bits b = ref_get(s->t, offset + i * s->row_stride + j * s->col_stride);                             \
                *to++ = (ACC)WIDEN(s->t->dtype, b);                                                                    \
            }                                                                                                          \
    }                                                                                                                  \
    static void multiply_##NAME(const work *w) {                                                                       \
        const ACC *a = w->a, *b = w->b;                                                                                \
        ACC *c = w->c;                                                                                                 \
        for (int64_t i = 0; i < w->m * w->n; i++) c[i] = 0;                                                            \
        for (int64_t k0 = 0; k0 < w->k; k0 += K_BLOCK)                                                                 \
            for (int64_t i = 0; i < w->m; i++)                                                                         \
                for (int64_t k = k0; k < w->k && k < k0 + K_BLOCK; k++) {                                              \
                    ACC v = a[i * w->k + k];                                                                           \
                    const ACC *restrict row = &b[k * w->n];                                                            \
                    ACC *restrict to = &c[i * w->n];                                                                   \
                    for (int64_t j = 0; j < w->n; j++) to[j] += v * row[j];                                            \
                }                                                                                                      \
    }
KERNELS(f64, double, ir_bits_to_double)
KERNELS(f80, long double, ir_bits_to_double)
KERNELS(i64, uint64_t, ref_int)

static fusor_status wrong_shape(const ref_call *c, const char *what) {
    return REF_FAIL(c, FUSOR_ERROR_SHAPE, "matmul: %s", what);
}

fusor_status ref_contract(const ref_call *c) {
    ref_tensor *out = c->out;
    ir_dtype ta = c->in[0].dtype, tb = c->in[1].dtype, to = out->dtype;
    if (c->n->op != IR_OP_MATMUL)
        return REF_FAIL(c, FUSOR_ERROR_INTERNAL, "%s: the reference evaluator has no rule for it",
                        ir_ops[c->n->op].name);
    if (!c->in[0].rank || !c->in[1].rank) return wrong_shape(c, "an operand is a scalar; expected rank 1 or more");
    side a = side_of(&c->in[0], true, ref_attr_int(c->n, "transpose_a") != 0);
    side b = side_of(&c->in[1], false, ref_attr_int(c->n, "transpose_b") != 0);
    if (a.cols != b.rows)
        return REF_FAIL(c, FUSOR_ERROR_SHAPE, "matmul: lhs has %lld columns but rhs has %lld rows; expected equal",
                        (long long)a.cols, (long long)b.rows);

    int n_batch = a.n_batch > b.n_batch ? a.n_batch : b.n_batch;
    if (out->rank != n_batch + (c->in[0].rank > 1) + (c->in[1].rank > 1))
        return wrong_shape(c, "the result has the wrong rank");
    ref_walk walk;
    ref_walk_init(&walk, 2, n_batch, out->shape);
    const side *sides[2] = {&a, &b};
    int64_t n_products = 1;
    for (int s = 0; s < 2; s++) {
        const ref_tensor *t = sides[s]->t;
        int64_t own[IR_MAX_RANK];
        int lead = n_batch - sides[s]->n_batch;
        ref_strides(t->rank, t->shape, own);
        for (int d = lead; d < n_batch; d++) {
            if (t->shape[d - lead] != 1 && t->shape[d - lead] != out->shape[d])
                return wrong_shape(c, "the batch axes do not broadcast to those of the result");
            walk.stride[s][d] = t->shape[d - lead] == 1 ? 0 : own[d - lead];
        }
    }
    for (int d = 0; d < n_batch; d++) n_products *= out->shape[d];
    if (n_products * a.rows * b.cols != ref_count(out))
        return wrong_shape(c, "the result has the wrong number of elements");
    if (ref_count(out) == 0) return FUSOR_OK;

    bool is_real = ir_is_float(ta), is_wide = is_real && (ta == FUSOR_F64 || to == FUSOR_F64);
    /* 8-bit operands accumulate in i32 unless the result is wider: the same as wrapping the 64-bit sum to 32 bits. */
    bool wraps_to_i32 = ir_dtypes[ta].bytes == 1 && ir_dtypes[tb].bytes == 1 && ir_dtypes[to].bytes < 8;
    size_t each = is_wide ? sizeof(long double) : 8;
    work w = {.m = a.rows, .k = a.cols, .n = b.cols};
    char *memory = fu_malloc((size_t)(w.m * w.k + w.k * w.n + w.m * w.n) * each);
    if (!memory) return REF_FAIL(c, FUSOR_ERROR_MEMORY, "matmul: no memory for widened copies of its operands");
    w.a = memory;
    w.b = memory + (size_t)(w.m * w.k) * each;
    w.c = memory + (size_t)(w.m * w.k + w.k * w.n) * each;

    int64_t had_a = -1, had_b = -1, o = 0;
    while (ref_walk_next(&walk))
        for (int64_t p = 0; p < walk.inner; p++) {
            int64_t at_a = walk.offset[0] + p * walk.step[0], at_b = walk.offset[1] + p * walk.step[1];
            if (at_a != had_a)
                (is_wide ? widen_f80(&a, at_a, w.a) : is_real ? widen_f64(&a, at_a, w.a) : widen_i64(&a, at_a, w.a));
            if (at_b != had_b)
                (is_wide ? widen_f80(&b, at_b, w.b) : is_real ? widen_f64(&b, at_b, w.b) : widen_i64(&b, at_b, w.b));
            had_a = at_a;
            had_b = at_b;
            is_wide ? multiply_f80(&w) : is_real ? multiply_f64(&w) : multiply_i64(&w);
            for (int64_t i = 0; i < w.m * w.n; i++, o++) {
                if (is_wide) ref_put_real(out, o, ((long double *)w.c)[i]);
                else if (is_real) ref_put_real(out, o, ((double *)w.c)[i]);
                else {
                    int64_t v = ((int64_t *)w.c)[i];
                    ref_put(out, o, ir_scalar_cast(FUSOR_I64, to, (ir_bits)(wraps_to_i32 ? (int64_t)(int32_t)v : v)));
                }
            }
        }
    fu_free(memory);
    return FUSOR_OK;
}
