/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* einsum: for each element of the result, the products of all operands over every value of the subscripts that it does
 * not have. An operand's stride along a subscript is the sum of those of the axes that have it; axes of size 1 stretch.
 */
#include "base/small.h"
#include "ref/kinds.h"
#include "ir/einsum.h"
#include "ir/scalar.h"

typedef struct sums {
    const ref_call *c;
    ir_einsum e;
    unsigned n; /* subscripts: the result's first, then those that are summed */
    unsigned n_out;
    int64_t size[IR_EINSUM_LABELS], at[IR_EINSUM_LABELS];
    int64_t *stride; /* of operand i along subscript k: [i * n + k] */
    int64_t *offset;
} sums;

static fusor_status wrong(const ref_call *c, const char *what) {
    return REF_FAIL(c, FUSOR_ERROR_SHAPE, "einsum: %s", what);
}

static fusor_status find_strides(sums *s, fu_arena *a) {
    const ref_call *c = s->c;
    int number[IR_EINSUM_LABELS];
    for (int k = 0; k < IR_EINSUM_LABELS; k++) number[k] = -1;
    if (s->e.out.rank != c->out->rank) return wrong(c, "the result has the wrong rank");
    for (unsigned d = 0; d < s->e.out.rank; d++) number[s->e.out.label[d]] = (int)s->n++;
    s->n_out = s->n;
    for (uint32_t i = 0; i < s->e.n; i++)
        for (unsigned d = 0; d < s->e.in[i].rank; d++)
            if (number[s->e.in[i].label[d]] < 0) number[s->e.in[i].label[d]] = (int)s->n++;
    for (unsigned k = 0; k < s->n; k++) s->size[k] = 1;
    s->stride = FU_NEW_N(a, int64_t, (size_t)s->e.n * s->n + 1);
    s->offset = FU_NEW_N(a, int64_t, s->e.n + 1);
    for (uint32_t i = 0; i < s->e.n; i++) {
        const ref_tensor *x = &c->in[i];
        int64_t own[IR_MAX_RANK];
        ref_strides(x->rank, x->shape, own);
        for (unsigned d = 0; d < s->e.in[i].rank; d++) {
            const int k = number[s->e.in[i].label[d]];
            if (x->shape[d] == 1) continue;
            if (s->size[k] != 1 && s->size[k] != x->shape[d]) return wrong(c, "a subscript has several sizes");
            s->size[k] = x->shape[d];
            s->stride[(size_t)i * s->n + (unsigned)k] += own[d];
        }
    }
    for (unsigned k = 0; k < s->n_out; k++)
        if (s->size[k] != c->out->shape[k]) return wrong(c, "the result has the wrong shape");
    return FUSOR_OK;
}

/* The next values of subscripts from..to - 1; false: these were the last. Empty ones never get here. */
static bool next(sums *s, unsigned from, unsigned to) {
    for (unsigned k = to; k-- > from;) {
        const int64_t back = ++s->at[k] == s->size[k] ? s->size[k] - 1 : -1;
        for (uint32_t i = 0; i < s->e.n; i++) s->offset[i] -= s->stride[(size_t)i * s->n + k] * back;
        if (back < 0) return true;
        s->at[k] = 0;
    }
    return false;
}

static fusor_status add_up(sums *s) {
    const ref_call *c = s->c;
    ref_tensor *out = c->out;
    const bool is_float = ir_is_float(c->in[0].dtype);
    /* 8-bit operands add up in i32 unless more is asked for: as the 64-bit sum wrapped to 32 bits. */
    bool wraps = !is_float && ir_dtypes[out->dtype].bytes < 8, is_empty = false;
    for (uint32_t i = 0; i < s->e.n; i++) wraps &= ir_dtypes[c->in[i].dtype].bytes == 1;
    for (unsigned k = s->n_out; k < s->n; k++) is_empty |= s->size[k] == 0;
    const int64_t n = ref_count(out);
    for (int64_t o = 0; o < n; o++) {
        long double real = 0;
        uint64_t integer = 0;
        if (!is_empty) do {
                long double product = 1;
                uint64_t whole = 1;
                for (uint32_t i = 0; i < s->e.n; i++) {
                    const ref_tensor *x = &c->in[i];
                    const ir_bits b = ref_get(x, s->offset[i]);
                    if (is_float) product *= (long double)ir_bits_to_double(x->dtype, b);
                    else whole *= (uint64_t)ref_int(x->dtype, b);
                }
                real += product;
                integer += whole;
            } while (next(s, s->n_out, s->n));
        if (is_float) ref_put_real(out, o, real);
        else
            ref_put(
                out, o,
                ir_scalar_cast(FUSOR_I64, out->dtype, (ir_bits)(wraps ? (int64_t)(int32_t)integer : (int64_t)integer)));
        (void)next(s, 0, s->n_out);
    }
    return FUSOR_OK;
}

static fusor_status in_arena(const ref_call *c, fu_arena *a, double *products) {
    sums s = {.c = c, .e = ir_einsum_of(c->g, a, c->n)};
    FU_TRY(find_strides(&s, a));
    if (!products) return add_up(&s);
    *products = 1;
    for (unsigned k = s.n_out; k < s.n; k++) *products *= (double)s.size[k];
    return FUSOR_OK;
}

static fusor_status run(const ref_call *c, double *products) {
    FU_CALL_ARENA(arena, return REF_FAIL(c, FUSOR_ERROR_MEMORY, "einsum: no memory for its subscripts"));
    const fusor_status status = in_arena(c, &arena, products);
    fu_arena_free(&arena);
    return status;
}

fusor_status ref_einsum(const ref_call *c) { return run(c, NULL); }
fusor_status ref_einsum_products(const ref_call *c, double *products) { return run(c, products); }
