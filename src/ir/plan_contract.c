/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_contract.c: matmul and einsum as contractions: their space, and the instructions and register tile that fit what
 * is known of their sizes. */
#include "ir/arith.h"
#include "ir/plan_builder.h"

/* Rows, columns and products of each, as plan_einsum_sizes gives them. Batches that share operand 1 are rows. */
static void matmul_sizes(const builder *b, const ir_node *n, int64_t size[3]) {
    const cluster *cl = &b->p->clusters.at[b->c];
    const ir_sizes *sizes = b->p->g->sizes;
    const int m_end = cl->rank - 1, m = ir_at(b->p->g, n->in[1])->rank > 2 ? m_end - 1 : 0;
    for (int i = 0; i < 3; i++) size[i] = i ? -1 : 1;
    for (int d = m; d < m_end && ir_at(b->p->g, n->in[0])->rank > 1; d++) {
        int64_t v = -1;
        size[0] = ir_size_is_const(sizes, cl->dim[d], &v) && size[0] >= 0 ? ir_times(size[0], v) : -1;
    }
    ir_size_is_const(sizes, cl->dim[m_end], &size[1]);
    ir_size_is_const(sizes, b->dim[b->space - 1], &size[2]);
}

static bool is_transposed(const ir_node *n, const ir_node *x) {
    return n->op == IR_OP_MATMUL && n->attr && n->attr[0].is_set && n->attr[0].integer && x->rank > 1;
}

void plan_contract_space(builder *b, const ir_node *n) {
    planner *p = b->p;
    const ir_sizes *sizes = p->g->sizes;
    const cluster *c = &p->clusters.at[b->c];
    const ir_node *x = ir_at(p->g, n->in[0]);
    const bool is_matmul = n->op == IR_OP_MATMUL, flip = is_transposed(n, x);
    const ir_dtype y = ir_at(p->g, n->in[1])->dtype, acc = ir_contract_acc(x->dtype, y, n->dtype);
    int64_t rows = -1, columns = -1, size[3];
    if (is_matmul) {
        b->dim[b->space++] = x->dim[flip ? x->rank - 2 : x->rank - 1];
        ir_size_is_const(sizes, c->dim[c->rank - 1], &columns);
        if (x->rank > 1) ir_size_is_const(sizes, c->dim[c->rank - 2], &rows);
        matmul_sizes(b, n, size);
    } else {
        plan_einsum_space(b, n);
        plan_einsum_sizes(b, n, size);
    }
    const ir_target all = {p->options->level, p->options->features},
                    target = ir_contract_target(all, x->dtype, y, acc, size[0], size[1], size[2]);
    const ir_dot dot = ir_contract_dot(target, x->dtype, y, acc);
    b->k->features = ir_contract_features(target, x->dtype, y, acc);
    b->k->tile =
        dot ? ir_dot_tile(target.level, dot, rows, columns) : ir_contract_tile_of(target.level, acc, rows, columns);
    if (is_matmul && !ir_dot_is_tile(dot) &&
        (x->rank == 1 || ir_size_is(sizes, x->dim[flip ? x->rank - 1 : x->rank - 2], 1)))
        b->k->tile = ir_contract_row_tile(target.level, acc, b->k->tile);
}

/* Of kernel dim `from_last` from the last one on; -1: not known. */
static int64_t known_size(const builder *b, const ir_step *st, int from_last) {
    int64_t size = -1;
    ir_size_is_const(b->p->g->sizes, st->dim[b->k->n_dims - 1 - from_last], &size);
    return size;
}

void plan_contract_tile(builder *b, const ir_step *st) {
    if (!ir_kernel_contract_dot(b->k))
        b->k->tile =
            ir_contract_tile_of(b->k->level, ir_kernel_contract_acc(b->k), known_size(b, st, 2), known_size(b, st, 1));
}

/* Code for few rows by a large matrix, a quarter more to compile: where these may come, and the matrix is one, may be
 * large, and is not one that is packed once. */
static bool may_sweep(const builder *b, const ir_step *st) {
    enum { SMALL = 256 << 10 }; /* bytes, which some cache near has room for */
    const int64_t m = known_size(b, st, 2), n = known_size(b, st, 1), k = known_size(b, st, 0);
    if (b->k->n_dims != 3 || st->prepack_param >= 0 || m == 0 || m == 1 || m > IR_SWEPT_ROWS) return false;
    if (n >= 0 && (n < b->k->tile.nr ||
                   (k >= 0 && ir_times(ir_times(n, k), ir_dtypes[ir_kernel_contract_acc(b->k)].bytes) <= SMALL)))
        return false;
    return ir_kernel_can_sweep(b->k);
}

void plan_contract_forms(builder *b, const ir_step *st) {
    b->k->last_columns = ir_kernel_last_columns(b->k, known_size(b, st, 1));
    b->k->can_sweep = may_sweep(b, st);
}
