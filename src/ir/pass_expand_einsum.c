/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_expand_einsum.c: einsum as products of two terms, one after the other (einsum_order.c), in the type that sums
 * are made in.
 *
 *   each operand    sizes of 1 dropped; a subscript that it has twice: its diagonal; one that is nowhere else: summed
 *   a product       a matmul of [batch.., m, k] and [batch.., k, n], where each of m, n and k is one dim of both as
 *                   they lie; else an einsum of two, which is a kernel (plan_einsum.c); without a k, or of a matrix of
 *                   a few elements, element by element; of floats without an m or n a sum of products element by
 *                   element, but small matrices of many batches (a matmul)
 *   at the end      the axes in the result's order, sizes of 1 put in, one conversion
 *
 * The axes that are one dim of a matmul are merged where they lie by a reshape, which costs nothing where they are
 * neighbours in memory; else the operand is put in order first, where an einsum of two is no kernel or slower
 * (is_kernel). Of the two possible orders of k the one is taken that moves less. */
#include "base/small.h"
#include "ir/expand.h"
#include "ir/einsum.h"
#include "ir/kernel.h"
#include <string.h>

typedef struct term {
    ir_id id;
    unsigned rank;
    uint8_t label[IR_MAX_RANK];
} term;
typedef struct list {
    unsigned n;
    uint8_t at[IR_MAX_RANK];
} list;
typedef struct einsum {
    const ir_expand *c;
    ir_graph *g;
    ir_sizes *s;
    fu_arena *arena;
    bool has_kernels;                /* of products that are einsums */
    ir_dtype t;                      /* of sums */
    ir_size size[IR_EINSUM_LABELS];  /* of each label */
    double volume[IR_EINSUM_LABELS]; /* the same, for the order: sizes that have names count as GUESS */
} einsum;

enum { GUESS = 64 };

bool ir_expands_einsum(const ir_node *n) { return ir_ops[n->op].kind == IR_KIND_EINSUM && !ir_einsum_is_product(n); }

static ir_labels bit(unsigned label) { return (ir_labels)1 << label; }
static ir_labels labels_of(const term *x) {
    ir_labels s = 0;
    for (unsigned d = 0; d < x->rank; d++) s |= bit(x->label[d]);
    return s;
}

/* ---- operators ---- */
static ir_id binary(const einsum *v, ir_op op, ir_id a, ir_id b) {
    return ir_expand_op(v->c, op, 2, (ir_id[]){a, b}, NULL, 0, 0);
}
static ir_id cast(const einsum *v, ir_id x, ir_dtype t) {
    return !x || ir_at(v->g, x)->dtype == t ? x : ir_expand_op(v->c, IR_OP_CAST, 1, &x, NULL, 0, t);
}

static ir_id reshape(const einsum *v, ir_id x, const ir_size *dim, unsigned rank) {
    return ir_expand_shaped(v->c, IR_OP_RESHAPE, x, dim, rank);
}

static ir_id permute(const einsum *v, ir_id x, const unsigned *from, unsigned rank) {
    int perm[IR_MAX_RANK];
    bool is_same = true;
    for (unsigned d = 0; d < rank; d++) {
        perm[d] = (int)from[d];
        is_same &= from[d] == d;
    }
    return is_same ? x : ir_expand_transpose(v->c, x, perm);
}

/* x with its axes in the order of `want`, which are labels of its own. */
static term ordered(const einsum *v, term x, const uint8_t *want) {
    unsigned from[IR_MAX_RANK] = {0};
    for (unsigned d = 0; d < x.rank; d++)
        while (x.label[from[d]] != want[d]) from[d]++;
    x.id = permute(v, x.id, from, x.rank);
    memcpy(x.label, want, x.rank);
    return x;
}

/* ---- one operand ---- */
/* Labels p and q of x are one: only elements with equal indices along them. Adjacent axes of a known size: every n +
 * 1st element of both. Else the elements along q at the places along p. */
static term diagonal(const einsum *v, term x, unsigned p, unsigned q) {
    const ir_node of = *ir_at(v->g, x.id);
    const ir_size one = ir_size_const(v->s, 1);
    ir_size dim[IR_MAX_RANK];
    int64_t n;
    memcpy(dim, of.dim, sizeof dim);
    memmove(&dim[q], &dim[q + 1], (of.rank - q - 1) * sizeof *dim);
    if (q == p + 1 && ir_size_is_const(v->s, of.dim[p], &n) && n > 0 && n < INT32_MAX) {
        dim[p] = ir_size_const(v->s, n * n);
        ir_size start = ir_size_const(v->s, 0), end = dim[p], step = ir_size_const(v->s, n + 1),
                axis = ir_size_const(v->s, p);
        x.id = ir_expand_slice(v->c, reshape(v, x.id, dim, of.rank - 1u), 1, &start, &end, &step, &axis);
    } else {
        ir_size places[IR_MAX_RANK];
        for (unsigned d = 0; d < of.rank; d++) places[d] = d == p ? of.dim[p] : one;
        const ir_attr iota[3] =
            {/* ORDER attrs_IOTA: shape, axis, dtype */
             {.is_set = true, .list = places, .n = of.rank},
             {.is_set = true, .integer = p},
             {.is_set = true, .integer = FUSOR_I64}},
                      along = {.is_set = true, .integer = q};
        const ir_id index = ir_expand_op(v->c, IR_OP_IOTA, 0, NULL, iota, 3, 0);
        const ir_id taken = index ? ir_expand_op(v->c, IR_OP_TAKE_ALONG, 2, (ir_id[]){x.id, index}, &along, 1, 0) : 0;
        x.id = reshape(v, taken, dim, of.rank - 1u);
    }
    memmove(&x.label[q], &x.label[q + 1], x.rank - q - 1);
    x.rank--;
    return x;
}

/* `elsewhere`: labels of the result and of other operands. */
static term prepare(const einsum *v, ir_id id, const ir_einsum_term *subscripts, ir_labels elsewhere) {
    const ir_node of = *ir_at(v->g, id);
    term x = {.id = id};
    ir_size dim[IR_MAX_RANK];
    for (unsigned d = 0; d < of.rank; d++) {
        if (ir_size_is(v->s, of.dim[d], 1)) continue;
        dim[x.rank] = of.dim[d];
        x.label[x.rank++] = subscripts->label[d];
    }
    x.id = reshape(v, id, dim, x.rank);
    for (unsigned p = 0; x.id && p < x.rank; p++)
        for (unsigned q = x.rank - 1; x.id && q > p; q--)
            if (x.label[q] == x.label[p]) x = diagonal(v, x, p, q);
    if (!x.id) return x;
    const ir_node whole = *ir_at(v->g, x.id);
    ir_node kept = {.rank = 0};
    term y = {.rank = 0};
    uint32_t axes = 0;
    for (unsigned d = 0; d < x.rank; d++) {
        if (!(elsewhere & bit(x.label[d]))) {
            axes |= 1u << d;
            continue;
        }
        kept.dim[kept.rank++] = whole.dim[d];
        y.label[y.rank++] = x.label[d];
    }
    if (!axes) return x;
    y.id = ir_expand_reduce(v->c, IR_OP_REDUCE_SUM, x.id, axes, false, v->t, &kept);
    return y;
}

/* ---- a product of two ---- */
/* Are the labels of l neighbours in x, in this order? */
static bool is_run(const term *x, const list *l) {
    unsigned d = 0;
    while (l->n && d < x->rank && x->label[d] != l->at[0]) d++;
    if (d + l->n > x->rank) return l->n == 0;
    return memcmp(&x->label[d], l->at, l->n) == 0;
}

/* x as a tensor with one axis for each group of labels. */
static ir_id grouped(const einsum *v, term x, const list *group, unsigned n_groups) {
    bool is_merged = true;
    for (unsigned i = 0; i < n_groups; i++) is_merged &= is_run(&x, &group[i]);
    if (!is_merged) { /* put in order first: then every group is a run */
        uint8_t all[IR_MAX_RANK];
        unsigned n = 0;
        for (unsigned i = 0; i < n_groups; i++)
            for (unsigned k = 0; k < group[i].n; k++) all[n++] = group[i].at[k];
        x = ordered(v, x, all);
    }
    if (!x.id) return 0;
    /* Merge where they lie, the groups in the order of memory; then turn. Groups of nothing are sizes of 1, wherever.
     */
    ir_size dim[IR_MAX_RANK];
    unsigned from[IR_MAX_RANK], rank = 0;
    const ir_node of = *ir_at(v->g, x.id);
    for (unsigned d = 0; d < x.rank;) {
        unsigned i = 0;
        while (!group[i].n || group[i].at[0] != x.label[d]) i++;
        from[i] = rank;
        dim[rank] = of.dim[d];
        for (unsigned k = 1; k < group[i].n; k++) dim[rank] = ir_size_mul(v->s, dim[rank], of.dim[d + k]);
        d += group[i].n;
        rank++;
    }
    for (unsigned i = 0; i < n_groups; i++)
        if (!group[i].n) from[i] = rank, dim[rank++] = ir_size_const(v->s, 1);
    return permute(v, reshape(v, x.id, dim, rank), from, rank);
}

static void append(list *l, uint8_t label) { l->at[l->n++] = label; }
/* The labels of `set` in the order of x. */
static list in_order_of(const term *x, ir_labels set) {
    list l = {0};
    for (unsigned d = 0; d < x->rank; d++)
        if (set & bit(x->label[d])) append(&l, x->label[d]);
    return l;
}

/* Operands of a matmul are of one type whose products are made in v->t. */
static void one_type(const einsum *v, ir_id *a, ir_id *b) {
    const ir_dtype ta = ir_at(v->g, *a)->dtype, tb = ir_at(v->g, *b)->dtype;
    ir_dtype wide = v->t;
    const bool is_narrow = ir_dtypes[ta].bytes == 1 && ir_dtypes[tb].bytes == 1;
    if (is_narrow && v->t == FUSOR_I32) return;
    if (ta == tb && !is_narrow && (v->t != FUSOR_F64 || ta == FUSOR_F64)) return;
    if (is_narrow && v->t != FUSOR_F64) wide = FUSOR_I16; /* what u8 and i8 both fit into */
    *a = cast(v, *a, wide);
    *b = cast(v, *b, wide);
}

/* Numbers of groups of both that have to be moved to be merged, with k in this order. */
static unsigned moved(const term *a, const term *b, const list *k) { return 2u - is_run(a, k) - is_run(b, k); }

/* x with its axes in the order of y, and sizes of 1 for those that it lacks. */
static ir_id spread(const einsum *v, term x, const term *y) {
    const ir_labels has = labels_of(&x);
    uint8_t own[IR_MAX_RANK];
    ir_size dim[IR_MAX_RANK];
    unsigned rank = 0;
    for (unsigned d = 0; d < y->rank; d++)
        if (has & bit(y->label[d])) own[rank++] = y->label[d];
    x = ordered(v, x, own);
    if (!x.id) return 0;
    for (unsigned d = 0, k = 0; d < y->rank; d++)
        dim[d] = has & bit(y->label[d]) ? ir_at(v->g, x.id)->dim[k++] : ir_size_const(v->s, 1);
    return cast(v, reshape(v, x.id, dim, y->rank), v->t);
}

/* ---- as it is ---- */
/* The label behind l in x, if it is in the list. */
static int next_in(const term *x, unsigned l, const list *of) {
    for (unsigned d = 0; d + 1 < x->rank; d++)
        for (unsigned i = 0; x->label[d] == l && i < of->n; i++)
            if (of->at[i] == x->label[d + 1]) return of->at[i];
    return -1;
}

/* How well the best of these axes fills registers of `unit` elements, up to 1. Axes that are neighbours in both x and y
 * are one. */
static double filled(const einsum *v, const list *l, const term *x, const term *y, double unit, bool is_whole) {
    double best = 0;
    for (unsigned i = 0; i < l->n; i++) {
        double n = v->volume[l->at[i]];
        for (int to = l->at[i], at = to; (to = next_in(x, (unsigned)at, l)) >= 0; at = to) {
            if (to != next_in(y, (unsigned)at, l)) break;
            n *= v->volume[to];
        }
        const double units = n > unit * 1e6 ? n / unit : (double)(int64_t)((n + unit - 1) / unit),
                     part = n >= unit && !is_whole ? 1 : n / (units * unit);
        if (n > 0 && part > best) best = part;
    }
    return best;
}

static double volume_of(const einsum *v, ir_labels s) {
    double n = 1;
    for (; s; s &= s - 1) n *= v->volume[__builtin_ctzll(s)];
    return n;
}

/* The operands of a product and what becomes of their labels. */
typedef struct product {
    term a, b;
    list batch, m, n, k[2]; /* k: in the order of a and of b */
} product;

/* Is the product better a kernel with dims for each label than a matmul of operands that are put in order? To be moved,
 * an element costs about as much as COPY products (Zen 5, f32: 0.7 to 1.5 ns against 1/110 ns); what a kernel costs are
 * registers that the innermost rows and columns leave empty. */
static bool is_kernel(const einsum *v, const product *p, const term *y, const term *want) {
    enum { COPY = 110, COLUMNS = 16, ROWS = 6 };
    const bool is_run_of[2] = {is_run(&p->a, &p->k[0]) && is_run(&p->b, &p->k[0]),
                               is_run(&p->a, &p->k[1]) && is_run(&p->b, &p->k[1])};
    const bool takes_other = moved(&p->a, &p->b, &p->k[1]) < moved(&p->a, &p->b, &p->k[0]);
    const list *k = &p->k[takes_other];
    const bool moves[2] = {!is_run(&p->a, &p->m) || !is_run(&p->a, k), !is_run(&p->b, &p->n) || !is_run(&p->b, k)},
               splits_result = p->m.n > 1 || p->n.n > 1,
               moves_result = splits_result && want && memcmp(want->label, y->label, y->rank) != 0;
    const ir_labels la = labels_of(&p->a), lb = labels_of(&p->b);
    if (!v->has_kernels || !p->m.n || !p->n.n || y->rank + p->k[0].n > IR_KERNEL_MAX_DIMS) return false;
    if (!moves[0] && !moves[1] && !splits_result) return false;
    /* Narrow elements are multiplied several at a time, which are neighbours. */
    if (!is_run_of[0] && !is_run_of[1] && ir_dtypes[ir_at(v->g, p->a.id)->dtype].bytes < 4) return false;
    /* Of a result that is only split, what is element-wise behind it would be a kernel of its own. */
    const double of_result = moves_result ? 1 : splits_result ? 0.25 : 0;
    const double copied =
                     moves[0] * volume_of(v, la) + moves[1] * volume_of(v, lb) + of_result * volume_of(v, labels_of(y)),
                 full = filled(v, &p->n, &p->b, want ? want : y, COLUMNS, true) *
                        filled(v, &p->m, &p->a, want ? want : y, ROWS, false);
    return full > 0 && volume_of(v, la | lb) * (1 / full - 1) <= COPY * copied;
}

static ir_id kernel_of(const einsum *v, const product *p, const term *y) {
    const term *const of[3] = {&p->a, &p->b, y};
    ir_size text[3 * IR_MAX_RANK + 3];
    uint32_t n = 0;
    char letter[IR_EINSUM_LABELS] = {0}, next = 'a';
    for (int i = 0; i < 3; i++) {
        for (const char *c = i == 1 ? "," : i == 2 ? "->" : ""; *c; c++) text[n++] = ir_size_const(v->s, *c);
        for (unsigned d = 0; d < of[i]->rank; d++) {
            char *l = &letter[of[i]->label[d]];
            if (!*l) *l = next++;
            text[n++] = ir_size_const(v->s, *l);
        }
    }
    ir_id in[2] = {p->a.id, p->b.id};
    one_type(v, &in[0], &in[1]);
    if (!in[0] || !in[1]) return 0;
    const ir_attr attr[2] = {{.is_set = true, .list = text, .n = n}, /* ORDER attrs_EINSUM: subscripts, dtype */
                             {.is_set = ir_is_float(v->t), .integer = v->t}};
    return cast(v, ir_expand_op(v->c, IR_OP_EINSUM, 2, in, attr, 2, 0), v->t);
}

/* A product with a vector: the larger operand has all labels of the other. Element by element, summed over k as the
 * larger one lies (as pass_expand_matvec.c has it for matmuls). */
static term multiply_and_sum(const einsum *v, const term *large, const term *small, ir_labels summed) {
    ir_node kept = {.rank = 0};
    term y = {.rank = 0};
    uint32_t axes = 0;
    const ir_id left = cast(v, large->id, v->t), right = spread(v, *small, large);
    const ir_id all = left && right ? binary(v, IR_OP_MUL, left, right) : 0;
    if (!all) return y;
    for (unsigned d = 0; d < large->rank; d++) {
        if (summed & bit(large->label[d])) {
            axes |= 1u << d;
            continue;
        }
        kept.dim[kept.rank++] = ir_at(v->g, all)->dim[d];
        y.label[y.rank++] = large->label[d];
    }
    y.id = ir_expand_reduce(v->c, IR_OP_REDUCE_SUM, all, axes, false, v->t, &kept);
    return y;
}

/* Places of the labels together; -1: it is not known by the text. */
static int64_t known_places(const einsum *v, const list *of) {
    int64_t all = 1, size;
    for (unsigned i = 0; i < of->n; i++) {
        if (!ir_size_is_const(v->s, v->size[of->at[i]], &size)) return -1;
        if (size > INT32_MAX || (all *= size) > INT32_MAX) return INT32_MAX;
    }
    return all;
}

/* A matrix of a few elements and many rows (as pass_expand_matvec.c has it for matmuls). */
static bool is_few(const einsum *v, const list *k, const list *m, const list *n) {
    return ir_is_float(v->t) && k->n == 1 &&
           ir_is_few_by_many(known_places(v, k), known_places(v, m), known_places(v, n));
}

/* x where `label` is i: without it. */
static term part_at(const einsum *v, term x, unsigned label, int64_t i) {
    ir_size start = ir_size_const(v->s, i), end = ir_size_const(v->s, i + 1), step = ir_size_const(v->s, 1),
            dim[IR_MAX_RANK];
    unsigned at = 0;
    while (x.label[at] != label) at++;
    ir_size axis = ir_size_const(v->s, at);
    memcpy(dim, ir_at(v->g, x.id)->dim, sizeof dim);
    memmove(&dim[at], &dim[at + 1], (x.rank - at - 1) * sizeof *dim);
    memmove(&x.label[at], &x.label[at + 1], x.rank - at - 1);
    x.rank--;
    x.id = reshape(v, ir_expand_slice(v->c, x.id, 1, &start, &end, &step, &axis), dim, x.rank);
    return x;
}

/* y: its labels. */
static term sum_of_products(const einsum *v, term a, term b, unsigned label, term y) {
    const int64_t count = known_places(v, &(list){1, {(uint8_t)label}});
    y.id = ir_expand_number(v->c, v->t, 0);
    for (int64_t i = 0; i < count; i++) {
        const term x = part_at(v, a, label, i), w = part_at(v, b, label, i);
        if (!x.id || !w.id) return (term){.id = 0};
        y.id = ir_expand_add_product(v->c, spread(v, x, &y), spread(v, w, &y), y.id);
        if (!y.id) break;
    }
    return y;
}

/* Have the labels 2 to IR_SMALL_MATRIX places together, by the text? */
static bool are_small(const einsum *v, const list *of) {
    const int64_t places = known_places(v, of);
    return places >= 2 && places <= IR_SMALL_MATRIX;
}

/* want: the order of the result; NULL: any. */
static term multiply(const einsum *v, term a, term b, ir_labels kept, const term *want) {
    const ir_labels summed = labels_of(&a) & labels_of(&b) & ~kept;
    if (want && want->rank &&
        !(labels_of(&b) & bit(want->label[want->rank - 1]))) { /* the last axis is b's: there lanes lie */
        const term t = a;
        a = b;
        b = t;
    }
    const ir_labels la = labels_of(&a), lb = labels_of(&b);
    const list batch = in_order_of(want ? want : &a, la & lb & kept);
    list m = in_order_of(&a, la & kept & ~lb), n = in_order_of(&b, lb & kept & ~la);
    term y = {.rank = 0};
    for (unsigned i = 0; i < batch.n; i++) y.label[y.rank++] = batch.at[i];
    for (unsigned i = 0; i < m.n; i++) y.label[y.rank++] = m.at[i];
    for (unsigned i = 0; i < n.n; i++) y.label[y.rank++] = n.at[i];
    if (!summed) {
        if (want) y = *want;
        const ir_id left = spread(v, a, &y), right = spread(v, b, &y);
        y.id = left && right ? binary(v, IR_OP_MUL, left, right) : 0;
        return y;
    }
    list k = in_order_of(&a, summed), other = in_order_of(&b, summed);
    if (is_few(v, &k, &m, &n)) return sum_of_products(v, a, b, k.at[0], want ? *want : y);
    const product whole = {a, b, batch, m, n, {k, other}};
    if (ir_is_float(v->t) && (!m.n || !n.n)) {
        const term *matrix = m.n ? &a : &b;
        const bool is_row = !(bit(matrix->label[matrix->rank - 1]) & summed); /* it is the right operand as it lies */
        /* Free labels that are two would be split off one dim again, by a kernel of its own. */
        if (!batch.n || m.n + n.n != 1 || ir_dtypes[ir_at(v->g, a.id)->dtype].bytes < 4 ||
            !are_small(v, m.n ? &m : &n) || !are_small(v, &k))
            return multiply_and_sum(v, matrix, m.n ? &b : &a, summed);
        if (is_row == (m.n > 0)) {
            const term t = a;
            const list free = m, of_a = k;
            a = b, b = t;
            m = n, n = free;
            k = other, other = of_a;
        }
    }
    if (is_kernel(v, &whole, &y, want)) {
        if (want) y = *want;
        y.id = kernel_of(v, &whole, &y);
        return y;
    }
    ir_size dim[IR_MAX_RANK];
    for (unsigned d = 0; d < y.rank; d++) dim[d] = v->size[y.label[d]];
    if (moved(&a, &b, &other) < moved(&a, &b, &k)) k = other;
    /* One axis for each label of the batch, or one for all of them where there would be too many. */
    list group[2][IR_MAX_RANK];
    const unsigned n_batch = batch.n > IR_MAX_RANK - 2 ? 1 : batch.n;
    for (unsigned i = 0; i < n_batch; i++) {
        group[0][i] = (list){.n = 1, .at = {batch.at[i]}};
        if (n_batch != batch.n) group[0][i] = batch;
        group[1][i] = group[0][i];
    }
    group[0][n_batch] = m;
    group[0][n_batch + 1] = group[1][n_batch] = k;
    group[1][n_batch + 1] = n;
    ir_id left = grouped(v, a, group[0], n_batch + 2), right = grouped(v, b, group[1], n_batch + 2);
    if (!left || !right) return y;
    one_type(v, &left, &right);
    if (!left || !right) return y;
    const ir_attr attr[3] = {
        {0},
        {0},
        {.is_set = ir_is_float(v->t), .integer = v->t}}; /* ORDER attrs_MATMUL: transpose_a, transpose_b, dtype */
    const ir_id matmul = ir_expand_op(v->c, IR_OP_MATMUL, 2, (ir_id[]){left, right}, attr, 3, 0);
    y.id = reshape(v, cast(v, matmul, v->t), dim, y.rank);
    return y;
}

/* Zeros: of a sum over no elements. A factor of it that was summed before is no longer empty but 0, which an infinity
 * in another one would make a NaN. */
static ir_id nothing(const einsum *v, const ir_node *n) {
    ir_node shape = *n;
    const ir_attr attr[2] = {/* ORDER attrs_FULL: shape, dtype */
                             {.is_set = true, .list = shape.dim, .n = shape.rank},
                             {.is_set = true, .integer = n->dtype}};
    const ir_id zero = ir_add_literal(v->g, n->dtype, 0);
    return ir_expand_finish(v->c, ir_expand_op(v->c, IR_OP_FULL, 1, &zero, attr, 2, 0), n->in[0]);
}

/* y, or zeros where a label of `early` has no elements: what nothing() is for, of sizes with names. */
static ir_id unless_empty(const einsum *v, const ir_node *n, const ir_einsum *e, ir_labels early, ir_id y) {
    int64_t size;
    ir_id is_empty = 0;
    for (uint32_t i = 0; i < e->n; i++)
        for (unsigned d = 0; d < e->in[i].rank; d++) {
            const unsigned l = e->in[i].label[d];
            const ir_size dim = ir_at(v->g, n->in[i])->dim[d]; /* 1 stretches to what it is elsewhere */
            if (!(early & bit(l)) || ir_size_is(v->s, dim, 1) || ir_size_is_const(v->s, v->size[l], &size)) continue;
            early &= ~bit(l);
            const ir_id is_0 =
                binary(v, IR_OP_EQ, ir_expand_count(v->c, n->in[i], 1u << d), ir_add_literal(v->g, FUSOR_I64, 0));
            is_empty = is_0 && is_empty ? binary(v, IR_OP_OR, is_empty, is_0) : is_0;
            if (!is_empty) return 0;
        }
    if (!is_empty || !y) return y;
    const ir_id zero = ir_add_literal(v->g, ir_at(v->g, y)->dtype, 0);
    return ir_expand_op(v->c, IR_OP_SELECT, 3, (ir_id[]){is_empty, zero, y}, NULL, 0, 0);
}

static ir_id expand(const ir_expand *c, const ir_node *n, bool has_kernels) {
    einsum v = {.c = c,
                .g = c->rw->to,
                .s = c->rw->to->sizes,
                .arena = c->rw->arena,
                .has_kernels = has_kernels,
                .t = ir_node_accumulator(c->rw->to, n)};
    const ir_einsum e = ir_einsum_of(v.g, v.arena, n);
    const uint32_t count = e.n;
    ir_labels *term_labels = FU_NEW_N(v.arena, ir_labels, count), out = 0, early = 0; /* early: summed in a factor */
    ir_einsum_step *step = FU_NEW_N(v.arena, ir_einsum_step, count);
    term *terms = FU_NEW_N(v.arena, term, 2 * count), want = {.rank = 0};
    uint32_t uses[IR_EINSUM_LABELS] = {0};
    for (uint32_t i = 0; i < count; i++) {
        const ir_node *x = ir_at(v.g, n->in[i]);
        for (unsigned d = 0; d < x->rank; d++) {
            const unsigned l = e.in[i].label[d];
            int64_t size;
            if (ir_size_is(v.s, x->dim[d], 1)) continue;
            const bool is_new = !(term_labels[i] & bit(l)), is_known = ir_size_is_const(v.s, x->dim[d], &size);
            if (!uses[l] || is_known) v.size[l] = x->dim[d], v.volume[l] = is_known ? (double)size : GUESS;
            uses[l] += is_new;
            term_labels[i] |= bit(l);
        }
    }
    for (unsigned d = 0; d < e.out.rank; d++) {
        if (!uses[e.out.label[d]]) continue; /* its size is 1 */
        out |= bit(e.out.label[d]);
        want.label[want.rank++] = e.out.label[d];
    }
    for (unsigned l = 0; l < IR_EINSUM_LABELS; l++)
        if (uses[l] && !(out & bit(l)) && ir_size_is(v.s, v.size[l], 0)) return nothing(&v, n);
    for (uint32_t i = 0; i < count; i++) {
        ir_labels elsewhere = out;
        for (unsigned l = 0; l < IR_EINSUM_LABELS; l++)
            if (uses[l] > ((term_labels[i] & bit(l)) != 0)) elsewhere |= bit(l);
        terms[i] = prepare(&v, n->in[i], &e.in[i], elsewhere);
        if (!terms[i].id) return 0;
        if (count > 1) early |= term_labels[i] & ~elsewhere;
        term_labels[i] &= elsewhere;
    }
    if (!ir_einsum_order(v.arena, count, term_labels, out, v.volume, step))
        return ir_add_raw(v.g, n); /* for the reference */
    uint32_t last = 0;
    for (uint32_t s = 0; s + 1 < count; s++) {
        const term *of[2] = {&terms[step[s].a], &terms[step[s].b]};
        if (s + 2 < count) early |= labels_of(of[0]) & labels_of(of[1]) & ~step[s].kept;
        last = count + s;
        terms[last] = multiply(&v, terms[step[s].a], terms[step[s].b], step[s].kept, s + 2 == count ? &want : NULL);
        if (!terms[last].id) return 0;
    }
    const term result = ordered(&v, terms[last], want.label);
    ir_id y = reshape(&v, result.id, n->dim, n->rank);
    if (ir_is_float(v.t)) y = unless_empty(&v, n, &e, early, y);
    if (y && ir_at(v.g, y)->dtype == FUSOR_U64) y = cast(&v, y, v.t); /* nothing was summed */
    return y ? ir_expand_finish(c, cast(&v, y, n->dtype), n->in[0]) : 0;
}

ir_id ir_expand_einsum(const ir_expand *c, const ir_node *n) { return expand(c, n, true); }

fusor_status ir_lower_einsums(fu_arena *a, fu_error *e, ir_graph **g) {
    ir_rewrite rw;
    bool has_any = false;
    for (ir_id i = 1; i < (*g)->nodes.n; i++) has_any |= ir_einsum_is_product(ir_at(*g, i));
    if (!has_any) return FUSOR_OK;
    ir_rewrite_begin(&rw, a, *g);
    for (ir_id i = 1; i < (*g)->nodes.n; i++) {
        if (rw.map[i]) continue;
        const ir_node n = ir_rewrite_node(&rw, i);
        if (!ir_einsum_is_product(&n)) {
            rw.map[i] = ir_add_raw(rw.to, &n);
            continue;
        }
        const ir_expand c = {.rw = &rw, .model = n};
        rw.map[i] = expand(&c, &n, false);
        if (!rw.map[i]) return FU_FAIL(e, FUSOR_ERROR_INTERNAL, "expand: %s", ir_ops[n.op].name);
        rw.is_changed = true;
    }
    ir_rewrite_finish(&rw, g);
    return ir_run_passes(a, e, g);
}
