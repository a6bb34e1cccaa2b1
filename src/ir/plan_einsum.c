/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_einsum.c: a product of two tensors whose rows, columns or products are several subscripts (ir/einsum.h) as a
 * contract kernel that reads both where they lie.
 *
 *   space      the dims of the result, as the subscripts say them, then those that are summed
 *   roles      in both operands and the result: b; in operand 0 alone: m; in operand 1 alone: n; summed: k
 *   merged     dims of one role that are one run in everything the kernel reads and writes, wherever they are
 *   chosen     of each role the dim that the register tile goes along; other dims of m are batches that operand 1 does
 *              not vary along, other dims of n and k have roles of their own (y, j: ir/kernel.h)
 *
 * All follows from the text, so no bit depends on sizes that it does not give. */
#include "base/small.h"
#include "ir/arith.h"
#include "ir/einsum.h"
#include "ir/plan_builder.h"

bool ir_einsum_is_product(const ir_node *n) { return n->op == IR_OP_EINSUM && n->group && n->n_in == 2; }

/* Label of each dim of the space; how many dims. */
static int labels_of_space(const builder *b, const ir_node *n, ir_einsum *e, uint8_t label[MAX_SPACE]) {
    ir_labels result = 0;
    int count = 0;
    *e = ir_einsum_of(b->p->g, b->p->arena, n);
    for (unsigned d = 0; d < e->out.rank; d++) {
        result |= (ir_labels)1 << e->out.label[d];
        label[count++] = e->out.label[d];
    }
    for (unsigned d = 0; d < e->in[0].rank && count < MAX_SPACE; d++)
        if (!(result >> e->in[0].label[d] & 1)) label[count++] = e->in[0].label[d];
    return count;
}

static int dim_of_label(const uint8_t *label, int n, uint8_t wanted) {
    for (int d = 0; d < n; d++)
        if (label[d] == wanted) return d;
    return -1;
}

void plan_einsum_space(builder *b, const ir_node *n) {
    uint8_t label[MAX_SPACE];
    ir_einsum e;
    b->space = labels_of_space(b, n, &e, label);
    const ir_node *x = ir_at(b->p->g, n->in[0]);
    for (int d = e.out.rank; d < b->space; d++) b->dim[d] = x->dim[dim_of_label(e.in[0].label, e.in[0].rank, label[d])];
}

void plan_einsum_coord(builder *b, const ir_node *n, int operand, int8_t coord[IR_MAX_RANK]) {
    uint8_t label[MAX_SPACE];
    ir_einsum e;
    const int space = labels_of_space(b, n, &e, label);
    const ir_node *x = ir_at(b->p->g, n->in[operand]);
    for (int d = 0; d < x->rank; d++)
        coord[d] =
            ir_size_is(b->p->g->sizes, x->dim[d], 1) ? -1 : (int8_t)dim_of_label(label, space, e.in[operand].label[d]);
}

bool plan_einsum_has_rows(const planner *p, const ir_node *n) {
    const ir_einsum e = ir_einsum_of(p->g, p->arena, n);
    int columns = 0, products = 0;
    for (unsigned d = 0; d < e.in[1].rank; d++) {
        const bool in_a = dim_of_label(e.in[0].label, e.in[0].rank, e.in[1].label[d]) >= 0,
                   in_result = dim_of_label(e.out.label, e.out.rank, e.in[1].label[d]) >= 0;
        columns += !in_a;
        products += !in_result;
    }
    return columns == 1 && products == 1 && e.out.rank &&
           dim_of_label(e.in[0].label, e.in[0].rank, e.out.label[e.out.rank - 1]) < 0;
}

/* ---- which dims the register tile goes along ---- */
enum { UNKNOWN = 64 }; /* a size that the text does not give counts as that */

static int64_t size_of(const builder *b, int d) {
    int64_t v;
    return ir_size_is_const(b->p->g->sizes, b->dim[d], &v) ? v : UNKNOWN;
}

/* Does what the kernel reads (or writes) have elements next to each other along d? */
static bool is_contiguous(const builder *b, int d, bool is_output) {
    for (uint32_t i = 0; i < b->accesses.n; i++)
        if (b->accesses.at[i].is_output == is_output && b->accesses.at[i].stride[d] == b->one) return true;
    return false;
}

/* How well vectors of 16 fill the dim, in 1/16, then where they can be stored and loaded as they are. */
static int64_t score_n(const builder *b, int d) {
    const int64_t n = size_of(b, d), vectors = (n + 15) / 16;
    int64_t filled = vectors ? n / vectors : 0;
    return filled * (is_contiguous(b, d, true) ? 4 : 2) + (is_contiguous(b, d, false) ? filled : 0);
}

/* Rows of a register tile; that many is enough, then the shorter steps through memory. */
static int64_t score_m(const builder *b, int d) {
    const int64_t m = size_of(b, d);
    return (m < 24 ? m : 24) * 4 + is_contiguous(b, d, false) + 2 * is_contiguous(b, d, true);
}

typedef struct dims {
    int n, at[MAX_SPACE];
} dims;

/* Dim number i becomes part of number k, which walks it first. */
static void join(builder *b, dims *of, int i, int k) {
    b->dim[of->at[k]] = ir_size_mul(b->p->g->sizes, b->dim[of->at[i]], b->dim[of->at[k]]);
    for (int d = i; d + 1 < of->n; d++) of->at[d] = of->at[d + 1];
    of->n--;
}

/* n dims from `first` on are moved to the end; all stay in order. */
static void move_to_end(dims *of, int first, int n) {
    for (; n > 0; n--) {
        const int moved = of->at[first];
        for (int i = first; i + 1 < of->n; i++) of->at[i] = of->at[i + 1];
        of->at[of->n - 1] = moved;
    }
}

/* Makes one of every two that are one run everywhere. */
static void merge(builder *b, dims *of) {
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < of->n && !again; i++)
            for (int k = 0; k < of->n && !again; k++)
                if (i != k && builder_mergeable(b, of->at[i], of->at[k])) {
                    join(b, of, i, k);
                    again = true;
                }
    }
}

/* The best is moved to the end. */
static void choose(builder *b, dims *of, int64_t (*score)(const builder *b, int d)) {
    int best = 0;
    for (int i = 1; i < of->n; i++)
        if (score(b, of->at[i]) >= score(b, of->at[best])) best = i;
    move_to_end(of, best, 1);
}

/* ---- in which order products are summed ---- */
static bool is_last_label(const ir_einsum_term *t, uint8_t label) { return t->rank && t->label[t->rank - 1] == label; }

/* Does y follow x in both operands' subscripts? */
static bool follows(const ir_einsum *e, uint8_t x, uint8_t y) {
    for (int i = 0; i < 2; i++) {
        const unsigned at = (unsigned)dim_of_label(e->in[i].label, e->in[i].rank, x);
        if (at + 1 >= e->in[i].rank || e->in[i].label[at + 1] != y) return false;
    }
    return true;
}

/* Subscripts that follow each other in both operands are one run. The longest goes to the end, of long ones one that
 * ends an operand; the others stay in order. That follows from the text alone: where an operand lies depends on what is
 * fused, and may say only what is one dim of the kernel. */
static void order_products(builder *b, const ir_einsum *e, const uint8_t *label, dims *of) {
    enum { ENOUGH = 64 };
    int chosen = 0, chosen_n = 0, n;
    int64_t best = -1;
    for (int i = 0; i < of->n; i += n) {
        int64_t size = size_of(b, of->at[i]);
        for (n = 1; i + n < of->n && follows(e, label[of->at[i + n - 1]], label[of->at[i + n]]); n++)
            size = ir_times(size, size_of(b, of->at[i + n]));
        const uint8_t last = label[of->at[i + n - 1]];
        const int64_t score = (size < ENOUGH ? size : ENOUGH) *
                              (is_last_label(&e->in[0], last) || is_last_label(&e->in[1], last) ? 2 : 1);
        if (score < best) continue;
        best = score;
        chosen = i;
        chosen_n = n;
    }
    move_to_end(of, chosen, chosen_n);
    for (int i = 0; i + 1 < of->n;)
        if (builder_mergeable(b, of->at[i], of->at[i + 1])) join(b, of, i, i + 1);
        else i++;
}

void plan_einsum_sizes(const builder *b, const ir_node *n, int64_t size[3]) {
    uint8_t label[MAX_SPACE];
    ir_einsum e;
    const int space = labels_of_space(b, n, &e, label);
    for (int i = 0; i < 3; i++) size[i] = 1;
    for (int d = 0; d < space; d++) {
        const bool in_a = dim_of_label(e.in[0].label, e.in[0].rank, label[d]) >= 0,
                   in_b = dim_of_label(e.in[1].label, e.in[1].rank, label[d]) >= 0;
        int64_t *to = &size[d >= e.out.rank ? 2 : in_b], v = -1;
        if (d < e.out.rank && in_a && in_b) continue;
        *to = ir_size_is_const(b->p->g->sizes, b->dim[d], &v) && *to >= 0 ? ir_times(*to, v) : -1;
    }
}

int plan_einsum_order(builder *b, const ir_node *n, int order[MAX_SPACE + 1], char role[MAX_SPACE + 1]) {
    uint8_t label[MAX_SPACE];
    ir_einsum e;
    const int space = labels_of_space(b, n, &e, label);
    dims of[4] = {{0}}; /* b m n k */
    for (int d = 0; d < space; d++) {
        const bool in_a = dim_of_label(e.in[0].label, e.in[0].rank, label[d]) >= 0,
                   in_b = dim_of_label(e.in[1].label, e.in[1].rank, label[d]) >= 0;
        dims *to = &of[d >= e.out.rank ? 3 : in_a && in_b ? 0 : in_a ? 1 : 2];
        to->at[to->n++] = d;
    }
    for (int i = 0; i < 3; i++) merge(b, &of[i]);
    choose(b, &of[1], score_m);
    choose(b, &of[2], score_n);
    order_products(b, &e, label, &of[3]);
    int count = 0;
#define PUT(i, from, to, r)                                                                                            \
    for (int d = (from); d < (to); d++) order[count] = of[i].at[d], role[count++] = (r);
    PUT(0, 0, of[0].n, 'b')
    PUT(1, 0, of[1].n - 1, 'b')
    PUT(2, 0, of[2].n - 1, 'y')
    PUT(3, 0, of[3].n - 1, 'j')
    PUT(1, of[1].n - 1, of[1].n, 'm')
    PUT(2, of[2].n - 1, of[2].n, 'n')
    PUT(3, of[3].n - 1, of[3].n, 'k')
#undef PUT
    return count;
}
