/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_expand_matvec.c: products of a matrix and a vector, of two vectors, and of many rows and a matrix of a few
 * elements: matmul where m, n or k is 1, or k and m or n are few, by the program's text.
 *
 *   m or n is 1: the matrix times the vector, stretched along its other dim, summed along k: a reduction, which reads
 *   the matrix once as it lies and as fast as memory gives it, whichever of its dims is contiguous. A contraction's
 *   register tile would have one row or one column, and fill its vectors only where operand 1 is contiguous along n.
 *   The vectors of many batches by one matrix are the rows of a product of matrices, which reads that once.
 *   k is 1: an element-wise product.
 *   k and m, or k and n, are 2 to 4 (points that are turned, colours): the sum of k element-wise products, in the order
 *   and with the bits of a contraction. Its vectors are full of rows, where a register tile has a few columns. (f32, one
 *   core with AVX-512, over the contraction, whose operand 0 is read where it lies: 10,000 x 3 by 3 x 3 0.30; v3 0.13,
 *   100,000 x 4 by 4 x 4 0.31.)
 *
 *   m * n is few and k is not: sums along k, as of a matrix and a vector, of parameters in which k is contiguous.
 *
 * Integers of 8 bits have instructions of their own in contractions, other integers are rare: for those only k = 1 is
 * taken. A row times a matrix that is `const` is a contraction on a CPU: packed once, the matrix is one stream from
 * then on. What is chosen depends on the text and on what it is compiled for only, so bits do too. EPYC 9005, f32, one
 * thread, against the contraction: matrix 1024 x 1024 times vector 44 and 267 us, vector times matrix that is not
 * packed 41 and 75 us.
 *
 * And products whose result has a type that no contraction gives by itself: one that does, and a conversion. */
#include "base/small.h"
#include "ir/expand.h"
#include "ir/kernel.h"

typedef struct matvec {
    const ir_expand *c;
    ir_dtype acc;
    ir_id operand[2]; /* in the accumulator type */
    unsigned rank[2];
    bool flip[2]; /* transpose_a, transpose_b */
} matvec;

static bool flips(const ir_node *n, int i) { return n->attr && n->attr[i].is_set && n->attr[i].integer; }

/* The size of operand i along k, or along its other dim; 1 where it has none. */
static ir_size size_of(const ir_graph *g, const ir_node *n, int i, bool along_k) {
    const ir_node *x = ir_at(g, n->in[i]);
    if (x->rank == 1) return along_k ? x->dim[0] : ir_size_const(g->sizes, 1);
    const bool last = along_k == (i == 0 ? !flips(n, 0) : flips(n, 1));
    return x->dim[x->rank - (last ? 1 : 2)];
}

static bool is_one(const ir_graph *g, const ir_node *n, int i, bool along_k) {
    return ir_size_is(g->sizes, size_of(g, n, i, along_k), 1);
}

static bool is_outer(const ir_graph *g, const ir_node *n) {
    return is_one(g, n, 0, true) && is_one(g, n, 1, true) && ir_at(g, n->in[0])->rank > 1 &&
           ir_at(g, n->in[1])->rank > 1;
}

/* Has operand i 2 to `most` rows and columns, by the text? Those of 16 bits would be packed. */
static bool is_small(const ir_graph *g, const ir_node *n, int i, int64_t most) {
    int64_t size[2];
    if (ir_dtypes[ir_at(g, n->in[i])->dtype].bytes < 4) return false;
    for (int k = 0; k < 2; k++)
        if (!ir_size_is_const(g->sizes, size_of(g, n, i, k), &size[k]) || size[k] < 2 || size[k] > most) return false;
    return true;
}

/* A row times a small matrix, contiguous along n: as a contraction without packing (plan_direct.c) it is faster by
 * far. */
static bool is_small_row(const ir_graph *g, const ir_node *n, int64_t most) {
    return is_small(g, n, 1, most) && !flips(n, 1) && ir_at(g, n->in[1])->rank > 1;
}

/* Small matrices, a batch each, times a column each: rows of few elements, few of them adjacent, leave most lanes of a
 * reduction empty, more than the one column of a direct contraction does (EPYC 9005, f32, 4096 of 3x3, 4x4, 8x8, 12x12:
 * 152, 183, 174, 212 us and 9, 12, 41, 89; 16x16 71 and 221). */
static bool is_small_column(const ir_graph *g, const ir_node *n) {
    return ir_at(g, n->in[0])->rank > 2 && ir_at(g, n->in[1])->rank > 2 && is_one(g, n, 1, false) &&
           is_small(g, n, 0, IR_SMALL_MATRIX);
}

/* Is it computed of constants alone (plan_constant.c)? *left: nodes to look at, at most. */
static bool is_of_constants(const ir_graph *g, ir_id id, int *left) {
    const ir_node *n = ir_at(g, id);
    if (--*left < 0 || ir_ops[n->op].kind == IR_KIND_RANDOM) return false;
    if (n->op == IR_OP_PARAM)
        for (uint32_t p = 0; p < g->params.n; p++)
            if (g->params.at[p].node == id) return g->params.at[p].is_const;
    for (int i = 0; i < n->n_in; i++)
        if (!is_of_constants(g, n->in[i], left)) return false;
    return n->n_in > 0 || n->op == IR_OP_LITERAL;
}

/* A row times a parameter that is packed once, of as many columns as the tile of one row has. */
static bool is_row_times_packed(const ir_graph *g, const ir_node *n) {
    enum { FEWEST = IR_BAKE_MAX, LOOK = 100 };
    const ir_node *w = ir_at(g, n->in[1]);
    int left = LOOK;
    const bool is_made = w->op != IR_OP_PARAM && w->op != IR_OP_TRANSPOSE;
    if (!g->packs_const || (flips(n, 1) && !is_made) || ir_at(g, n->in[0])->rank > 2 || !is_one(g, n, 0, false))
        return false;
    for (int i = 0; i < 2; i++) {
        int64_t size;
        if (!ir_size_is_const(g->sizes, size_of(g, n, 1, i == 0), &size) || size < FEWEST) return false;
    }
    return w->rank == 2 && w->op != IR_OP_TRANSPOSE && is_of_constants(g, n->in[1], &left);
}

/* The operand of many vectors, a batch each, that one matrix is multiplied with: they are the rows of one product (but
 * of the smallest, which are direct, batch by batch). -1: there is none. */
static int stack_of(const ir_graph *g, const ir_node *n) {
    if (is_outer(g, n) || !ir_is_contraction(g, n) || is_small_row(g, n, IR_SMALL_MATRIX)) return -1;
    for (int i = 0; i < 2; i++) {
        const ir_node *x = ir_at(g, n->in[i]), *w = ir_at(g, n->in[1 - i]);
        if (x->rank < 3 || w->rank != 2 || x->dtype != w->dtype || !is_one(g, n, i, false)) continue;
        for (int d = 0; d < x->rank - 2; d++)
            if (!ir_size_is(g->sizes, x->dim[d], 1)) return i;
    }
    return -1;
}

bool ir_is_few_by_many(int64_t k, int64_t m, int64_t n) {
    enum { FEW = 4, MANY = IR_BAKE_MAX + 1 }; /* of fewer a contraction is direct */
    const bool m_is_few = m >= 2 && m <= FEW, n_is_few = n >= 2 && n <= FEW;
    return k >= 2 && k <= FEW && ((m_is_few && (n < 0 || n >= MANY)) || (n_is_few && (m < 0 || m >= MANY)));
}

/* Many rows, or columns, and a matrix of a few elements: a sum of products, for floats. */
static bool is_few(const ir_graph *g, const ir_node *n) {
    int64_t size[2], k, other;
    if (!ir_is_float(ir_at(g, n->in[0])->dtype) || !ir_size_is_const(g->sizes, size_of(g, n, 0, true), &k) ||
        !ir_size_is_const(g->sizes, size_of(g, n, 1, true), &other) || other != k)
        return false;
    for (int i = 0; i < 2; i++)
        if (!ir_size_is_const(g->sizes, size_of(g, n, i, false), &size[i])) size[i] = -1;
    return ir_is_few_by_many(k, size[0], size[1]);
}

/* Few rows and columns of many products each, whose factors lie along k in two parameters, `const` or not. (One core
 * with AVX-512, over the contraction, v3: f32 4 x 768 x 4 0.25, 0.31, 3 x 10,000 x 3 0.17, 0.20; f64 4 x 1000 x 4 0.24,
 * 0.51, bf16 4 x 768 x 4 0.19, 0.41; 8 x 1024 x 8 0.45, 1.14. Over operand 1 packed before 0.5 to 0.85, but a kernel more
 * where something behind takes whole rows.) */
static bool is_few_sums(const ir_graph *g, const ir_node *n) {
    enum { FEW = 32, MANY = 128 };
    int64_t size[2], k;
    if (!g->packs_const || !ir_is_float(ir_at(g, n->in[0])->dtype) || flips(n, 0) || !flips(n, 1)) return false;
    if (ir_size_is_const(g->sizes, size_of(g, n, 0, true), &k) && k < MANY) return false;
    for (int i = 0; i < 2; i++) {
        const ir_node *x = ir_at(g, n->in[i]);
        if (x->op != IR_OP_PARAM || x->rank != 2 || !ir_size_is_const(g->sizes, size_of(g, n, i, false), &size[i]) ||
            size[i] < 2 || size[i] > FEW)
            return false;
    }
    return size[0] * size[1] <= FEW;
}

/* The better of the two sums, for floats. */
static bool is_sum(const ir_graph *g, const ir_node *n) {
    return ir_is_float(ir_at(g, n->in[0])->dtype) && !is_small_row(g, n, IR_BAKE_MAX) && !is_small_column(g, n) &&
           !is_row_times_packed(g, n) && (is_one(g, n, 0, false) || is_one(g, n, 1, false));
}

bool ir_expands_matvec(const ir_graph *g, const ir_node *n) {
    return n->op == IR_OP_MATMUL && (is_outer(g, n) || is_sum(g, n) || is_few(g, n) || is_few_sums(g, n) ||
                                     stack_of(g, n) >= 0 || !ir_is_contraction(g, n));
}

static ir_id with_list(const matvec *v, ir_op op, ir_id x, int64_t *at, unsigned n) {
    ir_size list[IR_MAX_RANK];
    if (!x) return 0;
    for (unsigned i = 0; i < n; i++) list[i] = ir_size_const(v->c->rw->to->sizes, at[i]);
    const ir_attr attr = {.is_set = true, .list = list, .n = n};
    return ir_expand_op(v->c, op, 1, &x, &attr, 1, 0);
}

static ir_id with_axis(const matvec *v, ir_id x, int64_t axis) { return with_list(v, IR_OP_UNSQUEEZE, x, &axis, 1); }

static ir_id swapped(const matvec *v, ir_id x) {
    const int rank = ir_at(v->c->rw->to, x)->rank;
    int perm[IR_MAX_RANK];
    for (int d = 0; d < rank; d++) perm[d] = d < rank - 2 ? d : 2 * rank - 3 - d;
    return ir_expand_transpose(v->c, x, perm);
}

static ir_id product(const matvec *v, ir_id a, ir_id b) {
    return a && b ? ir_expand_op(v->c, IR_OP_MUL, 2, (ir_id[]){a, b}, NULL, 0, 0) : 0;
}

/* Operand i as it varies along k in dim -1 or -2 of two. */
static ir_id vector(const matvec *v, int i, bool k_is_last) {
    if (v->rank[i] == 1) return k_is_last ? v->operand[i] : with_axis(v, v->operand[i], -1);
    const bool is_last = i == 0 ? !v->flip[0] : v->flip[1];
    return is_last == k_is_last ? v->operand[i] : swapped(v, v->operand[i]);
}

/* Of operand i, what it has at k: a column of operand 0, a row of operand 1. */
static ir_id part_at(const matvec *v, int i, int64_t k) {
    ir_sizes *sizes = v->c->rw->to->sizes;
    const bool is_last = i == 0 ? !v->flip[0] : v->flip[1];
    ir_size start = ir_size_const(sizes, k), end = ir_size_const(sizes, k + 1), step = ir_size_const(sizes, 1),
            axis = ir_size_const(sizes, (int64_t)v->rank[i] - (is_last ? 1 : 2));
    const ir_id x = ir_expand_slice(v->c, v->operand[i], 1, &start, &end, &step, &axis);
    return x && v->flip[i] ? swapped(v, x) : x;
}

ir_id ir_expand_add_product(const ir_expand *c, ir_id a, ir_id b, ir_id y) {
    if (!a || !b || !y) return 0;
    if (c->rw->to->has_fma) return ir_expand_op(c, IR_OP_FMA, 3, (ir_id[]){a, b, y}, NULL, 0, 0);
    const ir_id x = ir_expand_op(c, IR_OP_MUL, 2, (ir_id[]){a, b}, NULL, 0, 0);
    return x ? ir_expand_op(c, IR_OP_ADD, 2, (ir_id[]){y, x}, NULL, 0, 0) : 0;
}

static ir_id sum_of_products(const matvec *v, const ir_node *n) {
    const ir_graph *g = v->c->rw->to;
    int64_t count = 0;
    ir_id y = ir_expand_number(v->c, v->acc, 0);
    if (!ir_size_is_const(g->sizes, size_of(g, n, 0, true), &count)) return 0;
    for (int64_t k = 0; k < count; k++) {
        y = ir_expand_add_product(v->c, part_at(v, 0, k), part_at(v, 1, k), y);
        if (!y) return 0;
    }
    return y;
}

static ir_id sum_along(const matvec *v, ir_id x, int64_t axis) {
    if (!x) return 0;
    ir_size list[1] = {ir_size_const(v->c->rw->to->sizes, axis)};
    const ir_attr attr[3] = {
        {.is_set = true, .list = list, .n = 1}, {0}, {.is_set = true, .integer = v->acc}}; /* ORDER attrs_REDUCE */
    return ir_expand_op(v->c, IR_OP_REDUCE_SUM, 1, &x, attr, 3, 0);
}

/* In the type that sums are made in. 8-bit integers whose sums are to be of 64 bits are widened to what u8 and i8 both
 * fit into; a sum of them in f64 is exact, as one in i64 is. */
static ir_id plain_product(const ir_expand *c, const ir_node *n) {
    const ir_graph *g = c->rw->to;
    const ir_dtype t = ir_node_accumulator(g, n);
    const bool is_float = ir_is_float(ir_at(g, n->in[0])->dtype), is_wide = !is_float && t != FUSOR_I32;
    ir_id in[2];
    for (int i = 0; i < 2; i++) {
        const bool is_narrow = ir_dtypes[ir_at(g, n->in[i])->dtype].bytes == 1;
        in[i] = is_narrow && is_wide ? ir_expand_cast(c, n->in[i], FUSOR_I16) : n->in[i];
    }
    const ir_attr attr[3] = {n->attr[0], n->attr[1], {.is_set = is_float, .integer = t}}; /* ORDER attrs_MATMUL */
    return ir_expand_op(c, IR_OP_MATMUL, 2, in, attr, 3, 0);
}

/* Vectors without the dim of 1 beside k are the rows: x @ w, or (w @ x) turned. */
static ir_id rows_by_matrix(const matvec *v, const ir_node *n, int stack) {
    const ir_id x = n->in[stack], w = n->in[1 - stack];
    int64_t one = flips(n, stack) == (stack == 1) ? -2 : -1; /* the dim of x beside k */
    const ir_attr attr[3] = {{0},
                             {.is_set = true, .integer = stack ? !flips(n, 0) : flips(n, 1)},
                             n->attr ? n->attr[2] : (ir_attr){0}}; /* ORDER attrs_MATMUL */
    const ir_id in[2] = {with_list(v, IR_OP_SQUEEZE, x, &one, 1), w};
    const ir_id y = in[0] ? ir_expand_op(v->c, IR_OP_MATMUL, 2, in, attr, 3, 0) : 0;
    return with_axis(v, y, stack ? -1 : -2);
}

ir_id ir_expand_matvec(const ir_expand *c, const ir_node *n) {
    const ir_graph *g = c->rw->to;
    const int stack = stack_of(g, n);
    if (stack >= 0) {
        const ir_id rows = rows_by_matrix(&(matvec){.c = c}, n, stack);
        return rows ? ir_expand_finish(c, rows, n->in[0]) : 0;
    }
    matvec v = {.c = c, .acc = ir_contract_acc(ir_at(g, n->in[0])->dtype, ir_at(g, n->in[1])->dtype, n->dtype)};
    const bool outer = is_outer(g, n), row = is_one(g, n, 0, false);
    for (int i = 0; i < 2; i++) {
        v.operand[i] = ir_expand_cast(c, n->in[i], v.acc);
        v.rank[i] = ir_at(g, n->in[i])->rank;
        v.flip[i] = v.rank[i] > 1 && flips(n, i);
    }
    ir_id y;
    if (is_few(g, n)) {
        y = sum_of_products(&v, n);
    } else if (is_few_sums(g, n)) {
        y = sum_along(&v, product(&v, with_axis(&v, v.operand[0], 1), v.operand[1]), -1);
    } else if (!outer && !is_sum(g, n)) {
        y = plain_product(c, n);
    } else if (outer) {
        y = product(&v, v.flip[0] ? swapped(&v, v.operand[0]) : v.operand[0],
                    v.flip[1] ? swapped(&v, v.operand[1]) : v.operand[1]);
    } else if (row && v.rank[1] > 1) { /* a is the vector */
        y = sum_along(&v, product(&v, vector(&v, 0, v.flip[1]), v.operand[1]), v.flip[1] ? -1 : -2);
        if (v.rank[0] > 1) y = with_axis(&v, y, -2);
    } else if (v.rank[0] > 1) {
        y = sum_along(&v, product(&v, v.operand[0], vector(&v, 1, !v.flip[0])), v.flip[0] ? -2 : -1);
        if (v.rank[1] > 1) y = with_axis(&v, y, -1);
    } else {
        y = sum_along(&v, product(&v, v.operand[0], v.operand[1]), -1);
    }
    return y ? ir_expand_finish(c, ir_expand_cast(c, y, n->dtype), n->in[0]) : 0;
}
