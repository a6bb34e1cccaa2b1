/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_attention.c: attention that is written in primitives becomes the operator, so that its scores are never in
 * memory:
 *
 *   s = matmul(q, transpose(k))   or with transpose_b=true
 *   s = s * number, s / number    any number of times, or not at all
 *   s = s + mask                  or not; of the type of s, stretched to it
 *   s = select(keep, s, -inf)     or select(hide, -inf, s): a mask of bools; where it compares the indices of queries
 *                                 and keys, causal
 *   y = matmul(softmax(s), v)
 *
 * All in f32 (halves with casts before and behind are that), and nothing else reads what is between. What
 * differs from the operator is a row whose scores are all -infinity: its softmax is NaN (attention.h). This is the one
 * rewrite that changes the order of sums, so it is no row of ir_passes: it is for fused plans only. Needs: types.
 * Keeps: types. Breaks: ids. Cost: O(nodes + edges). */
#include "base/small.h"
#include "ir/attention.h"
#include "ir/kernel.h"
#include "ir/pass.h"
#include <float.h>
#include <math.h>

typedef struct recognizer {
    ir_rewrite rw;
    const ir_graph *g; /* rw.from */
    uint32_t *uses;    /* by node, results among them */
} recognizer;

typedef struct match {
    ir_id q, k, v, mask;
    bool k_is_turned, v_is_turned;
    bool mask_hides; /* true in the mask hides a key */
    bool is_causal;  /* instead of a mask */
    double scale;
} match;

static const ir_node *at(const recognizer *r, ir_id id) { return ir_at(r->g, id); }
static bool flag(const ir_node *n, unsigned i) { return n->attr && n->attr[i].is_set && n->attr[i].integer; }

/* A product of matrices in one type. */
static bool is_product(const recognizer *r, const ir_node *n) {
    if (n->op != IR_OP_MATMUL) return false;
    const ir_node *a = at(r, n->in[0]), *b = at(r, n->in[1]); /* ORDER attrs_MATMUL */
    return a->rank >= 2 && b->rank >= 2 && a->dtype == n->dtype && b->dtype == n->dtype && !flag(n, 0);
}

static bool number_of(const recognizer *r, ir_id id, double *v) {
    const ir_node *n = at(r, id);
    if (n->op == IR_OP_FULL) n = at(r, n->in[0]);
    if (n->op != IR_OP_LITERAL) return false;
    *v = ir_bits_to_double(n->dtype, n->bits);
    return true;
}

static bool is_inner(const recognizer *r, ir_id id) { return r->uses[id] == 1; }

static bool same_dims(const ir_node *a, const ir_node *b) {
    return a->rank == b->rank && memcmp(a->dim, b->dim, a->rank * sizeof *a->dim) == 0;
}

/* Through scaling; the product behind it, or 0. */
static ir_id behind_scales(const recognizer *r, ir_id id, double *scale) {
    for (*scale = 1;;) {
        const ir_node *n = at(r, id);
        double v;
        if (!is_inner(r, id)) return 0;
        if (is_product(r, n)) return id;
        if (n->op != IR_OP_MUL && n->op != IR_OP_DIV) return 0;
        const int x = n->op == IR_OP_MUL && number_of(r, n->in[0], &v);
        if (!number_of(r, n->in[!x], &v) || !same_dims(n, at(r, n->in[x]))) return 0;
        *scale = n->op == IR_OP_MUL ? *scale * v : *scale / v;
        id = n->in[x];
    }
}

/* Is the product of all the numbers one of f32, too? Each for itself they may have given 0 or an infinity. */
static bool is_for_scale(double scale) {
    const float v = fabsf((float)scale);
    return isfinite(v) && (v >= FLT_MIN || scale == 0);
}

/* Dim `from_end` of x is that of `like`, or stretches to it. */
static bool fits(const recognizer *r, const ir_node *x, const ir_node *like, int first) {
    for (int from_end = first; from_end <= x->rank; from_end++) {
        const ir_size d = x->dim[x->rank - from_end];
        if (from_end > like->rank || (d != like->dim[like->rank - from_end] && !ir_size_is(r->g->sizes, d, 1)))
            return false;
    }
    return true;
}

/* The index along axis -1 or -2 of x, all of it, in a type that holds it: 1 or 2; else 0. */
static int index_of(const recognizer *r, ir_id id, const ir_node *x) {
    const ir_node *n = at(r, id);
    if (n->op != IR_OP_IOTA || (n->dtype != FUSOR_I32 && n->dtype != FUSOR_I64)) return 0;
    const int64_t given = n->attr[1].is_set ? n->attr[1].integer : 0; /* ORDER attrs_IOTA */
    const int axis = ir_axis(given, n->rank), from_end = n->rank - axis;
    return from_end <= 2 && n->dim[axis] == x->dim[x->rank - from_end] ? from_end : 0;
}

/* Does the condition keep key j for query i where j <= i? */
static bool is_causal(const recognizer *r, ir_id id, bool hides, const ir_node *x) {
    const ir_node *n = at(r, id);
    if (n->op != IR_OP_GE && n->op != IR_OP_LE && n->op != IR_OP_GT && n->op != IR_OP_LT) return false;
    const int a = index_of(r, n->in[0], x), b = index_of(r, n->in[1], x);
    if (a + b != 3 || a == b) return false;
    if (hides) return n->op == (a == 2 ? IR_OP_LT : IR_OP_GT);
    return n->op == (a == 2 ? IR_OP_GE : IR_OP_LE);
}

/* The product behind the scores s, which may be masked; or 0. */
static ir_id behind_mask(const recognizer *r, ir_id id, match *m) {
    const ir_node *s = at(r, id);
    ir_id product = behind_scales(r, id, &m->scale);
    if (product || !is_inner(r, id)) return product;
    if (s->op == IR_OP_ADD)
        for (int i = 0; i < 2 && !product; i++) {
            if (!same_dims(s, at(r, s->in[i])) || !(product = behind_scales(r, s->in[i], &m->scale))) continue;
            m->mask = s->in[!i];
        }
    if (s->op == IR_OP_SELECT)
        for (int i = 1; i < 3 && !product; i++) {
            double hidden;
            if (!number_of(r, s->in[3 - i], &hidden) || hidden != -INFINITY || !same_dims(s, at(r, s->in[i])) ||
                !(product = behind_scales(r, s->in[i], &m->scale)))
                continue;
            m->mask = s->in[0];
            m->mask_hides = i == 2;
            m->is_causal = is_causal(r, m->mask, m->mask_hides, s);
        }
    return product;
}

static bool matches(const recognizer *r, const ir_node *n, match *m) {
    if (!is_product(r, n) || n->dtype != FUSOR_F32 || n->rank > IR_KERNEL_MAX_DIMS - 3) return false;
    const ir_node *p = at(r, n->in[0]);
    if (p->op != IR_OP_SOFTMAX || !is_inner(r, n->in[0]) || at(r, p->in[0])->dtype != n->dtype) return false;
    const int64_t axis = p->attr[0].is_set ? p->attr[0].integer : -1;
    if (axis != -1 && axis != p->rank - 1) return false;
    *m = (match){0};
    const ir_id product = behind_mask(r, p->in[0], m);
    if (!product || !is_for_scale(m->scale)) return false;
    const ir_node *x = at(r, product), *q = at(r, x->in[0]), *k = at(r, x->in[1]), *v = at(r, n->in[1]);
    if (x->dtype != n->dtype || x->rank != n->rank) return false;
    m->q = x->in[0], m->k = x->in[1], m->v = n->in[1];
    m->k_is_turned = !flag(x, 1), m->v_is_turned = flag(n, 1);
    /* Batch dims are the same sizes, or 1: heads of attention may be shared in other ways. */
    if (!fits(r, q, n, 3) || !fits(r, k, n, 3) || !fits(r, v, n, 3) || !same_dims(p, x)) return false;
    for (int d = 0; d < n->rank - 2; d++)
        if (x->dim[d] != n->dim[d]) return false;
    const ir_size keys = k->dim[k->rank - 1 - !m->k_is_turned], head = k->dim[k->rank - 1 - m->k_is_turned];
    if (head != q->dim[q->rank - 1] || keys != v->dim[v->rank - 1 - !m->v_is_turned]) return false;
    if (!m->mask) return true;
    const ir_node *mask = at(r, m->mask);
    return (mask->dtype == n->dtype || mask->dtype == FUSOR_BOOL) && fits(r, mask, x, 1);
}

/* The last two dims exchanged. */
static ir_id turned(recognizer *r, ir_id id, fu_loc loc) {
    ir_graph *g = r->rw.to;
    const int rank = ir_at(g, id)->rank;
    ir_size perm[IR_MAX_RANK];
    for (int d = 0; d < rank; d++) perm[d] = ir_size_const(g->sizes, d < rank - 2 ? d : 2 * rank - 3 - d);
    const ir_attr attr = {.is_set = true, .list = perm, .n = (uint32_t)rank};
    return ir_add(g, IR_OP_TRANSPOSE, 1, (ir_operand[]){ir_use(id)}, &attr, 0, loc);
}

static ir_id make(recognizer *r, const ir_node *n, const match *m) {
    const ir_id *map = r->rw.map;
    ir_id k = map[m->k], v = map[m->v];
    if (m->k_is_turned) k = turned(r, k, n->loc);
    if (m->v_is_turned) v = turned(r, v, n->loc);
    ir_attr attr[IR_MAX_ATTRS] = {{0}};
    attr[4] = (ir_attr){.is_set = true, .number = m->scale}; /* ORDER attrs_ATTENTION */
    ir_operand in[4] = {ir_use(map[m->q]), ir_use(k), ir_use(v)};
    const bool has_mask = m->mask && !m->is_causal;
    if (has_mask) {
        ir_id mask = map[m->mask];
        if (m->mask_hides) mask = ir_add(r->rw.to, IR_OP_NOT, 1, (ir_operand[]){ir_use(mask)}, NULL, 0, n->loc);
        if (!mask) return 0;
        in[3] = ir_use(mask);
    }
    attr[0] = (ir_attr){.is_set = true, .integer = m->is_causal};
    const ir_id id = ir_add(r->rw.to, IR_OP_ATTENTION, has_mask ? 4 : 3, in, attr, 0, n->loc);
    if (!id) return 0;
    ir_node *y = ir_at(r->rw.to, id);
    y->index = IR_ATTENTION_EMPTY_IS_NAN;
    y->name = n->name;
    y->meta_name = n->meta_name;
    y->meta_loc = n->meta_loc;
    return id;
}

fusor_status ir_recognize_attention(fu_arena *a, fu_error *e, ir_graph **g) {
    recognizer r = {.g = *g};
    match m;
    bool any = false;
    if ((*g)->hints.n) return FUSOR_OK; /* they are about values that would be gone */
    r.uses = ir_use_counts(a, *g);
    for (ir_id i = 1; i < (*g)->nodes.n && !any; i++) any = matches(&r, ir_at(*g, i), &m);
    if (!any) return FUSOR_OK;
    ir_rewrite_begin(&r.rw, a, *g);
    for (ir_id i = 1; i < (*g)->nodes.n; i++) {
        if (r.rw.map[i]) continue;
        const ir_node n = ir_rewrite_node(&r.rw, i);
        if (matches(&r, ir_at(*g, i), &m)) {
            r.rw.map[i] = make(&r, &n, &m);
            if (!r.rw.map[i])
                return e->status != FUSOR_OK ? e->status : FU_FAIL(e, FUSOR_ERROR_INTERNAL, "attention in primitives");
            r.rw.is_changed = true;
        } else r.rw.map[i] = ir_add_raw(r.rw.to, &n);
    }
    ir_rewrite_finish(&r.rw, g);
    return FUSOR_OK;
}
