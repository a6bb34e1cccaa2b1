/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* plan_slide.c: values of a map that the next row needs again. Overlapping windows combine rows of the operand: what a
 * row of one makes is the same for all windows that it is in, so it is made once and goes from row to row in registers.
 *
 * Looked for are pairs of values of which one is at a row what the other is at the row before: the same instructions on
 * the same columns, of loads whose places and guards are a row apart.
 *
 * And inputs whose columns take turns in memory (plan_find_turns): vectors of both are loaded once (ir_kbuffer.behind). */
#include "base/small.h"
#include "ir/plan_builder.h"
#include <string.h>

typedef struct slide {
    const builder *b;
    const ir_step *st;
    int y;      /* the dim of rows */
    int budget; /* of instructions that are looked at: what is shared is seen again for each user */
    uint32_t varies[IR_KERNEL_MAX_INSTS];
} slide;

static ir_sizes *sizes(const slide *s) { return s->b->p->g->sizes; }

/* coefficient * row + rest; false where it is no such sum. */
typedef struct line {
    ir_size coefficient, rest;
} line;

static bool line_of(slide *s, int inst, line *out) {
    const ir_kinst *in = &s->b->k->inst[inst];
    const builder *b = s->b;
    line x, y;
    if (s->budget-- <= 0) return false;
    *out = (line){b->zero, b->zero};
    if (in->op == IR_K_INDEX) return out->coefficient = b->one, in->index == s->y;
    if (in->op == IR_K_SCALAR) {
        const ir_plan_scalar *v = &b->scalars.at[in->index];
        out->rest = v->kind == IR_SCALAR_SIZE ? v->size : ir_size_const(sizes(s), (int64_t)v->bits);
        return in->dtype == FUSOR_I64;
    }
    if (in->op != IR_OP_ADD && in->op != IR_OP_SUB && in->op != IR_OP_MUL) return false;
    if (!line_of(s, in->in[0], &x) || !line_of(s, in->in[1], &y)) return false;
    if (in->op == IR_OP_MUL) {
        if (y.coefficient != b->zero) return false;
        out->coefficient = ir_size_mul(sizes(s), x.coefficient, y.rest);
        out->rest = ir_size_mul(sizes(s), x.rest, y.rest);
        return true;
    }
    const bool is_sum = in->op == IR_OP_ADD;
    out->coefficient = is_sum ? ir_size_add(sizes(s), x.coefficient, y.coefficient)
                              : ir_size_sub(sizes(s), x.coefficient, y.coefficient);
    out->rest = is_sum ? ir_size_add(sizes(s), x.rest, y.rest) : ir_size_sub(sizes(s), x.rest, y.rest);
    return true;
}

static bool is_commutative(const ir_kinst *in) {
    return in->op < IR_OP_COUNT && in->n_in == 2 && (ir_ops[in->op].flags & IR_COMMUTES);
}

/* Is instruction x at a row what y is at the row before? */
static bool is_next(slide *s, int x, int y);

static bool is_next_line(slide *s, int x, int y) {
    line a, b;
    if (!line_of(s, x, &a) || !line_of(s, y, &b)) return false;
    return a.coefficient == b.coefficient && a.rest == ir_size_sub(sizes(s), b.rest, b.coefficient);
}

static bool is_next_load(slide *s, const ir_kinst *x, const ir_kinst *y) {
    const int n = s->b->k->n_dims;
    const ir_size *a = s->st->stride + x->index * n, *c = s->st->stride + y->index * n;
    const access *at = &s->b->accesses.at[x->index], *before = &s->b->accesses.at[y->index];
    if (x->variant & IR_LOAD_OFFSET || at->buffer != before->buffer) return false;
    for (int d = 0; d < n; d++)
        if (a[d] != c[d]) return false;
    return at->offset == ir_size_sub(sizes(s), before->offset, c[s->y]);
}

static bool is_next(slide *s, int x, int y) {
    const ir_kernel *k = s->b->k;
    const ir_kinst *a = &k->inst[x], *c = &k->inst[y];
    if (s->budget-- <= 0) return false;
    if (x == y && !(s->varies[x] >> s->y & 1)) return true;
    if (a->dtype == FUSOR_I64 && c->dtype == FUSOR_I64 && is_next_line(s, x, y)) return true;
    if (a->op != c->op || a->dtype != c->dtype || a->n_in != c->n_in || a->variant != c->variant) return false;
    if (a->op == IR_K_SCALAR) {
        const ir_plan_scalar *v = &s->b->scalars.at[a->index], *w = &s->b->scalars.at[c->index];
        return v->kind == w->kind && (v->kind == IR_SCALAR_SIZE ? v->size == w->size : v->bits == w->bits);
    }
    if (a->op == IR_K_LOAD) {
        if (!is_next_load(s, a, c)) return false;
    } else if (a->op >= IR_OP_COUNT || (ir_ops[a->op].kind != IR_KIND_EW && ir_ops[a->op].kind != IR_KIND_CONVERT)) {
        return false;
    }
    bool is_same = true;
    for (int i = 0; i < a->n_in && is_same; i++) is_same = is_next(s, a->in[i], c->in[i]);
    if (is_same || !is_commutative(a)) return is_same;
    return is_next(s, a->in[0], c->in[1]) && is_next(s, a->in[1], c->in[0]);
}

/* More than a plain load, which is no more than a copy between registers. */
static bool is_worth(const slide *s, int inst) {
    const ir_kinst *in = &s->b->k->inst[inst];
    const bool is_operator = in->op < IR_OP_COUNT && in->dtype != FUSOR_BOOL;
    return in->n_in > 0 && (is_operator || in->op == IR_K_LOAD) && s->varies[inst] >> s->y & 1;
}

static bool has_pair(slide *s) {
    const ir_kernel *k = s->b->k;
    for (int i = 0; i < k->n_insts; i++)
        for (int j = 0; j < k->n_insts && k->inst[i].op == IR_K_LOAD; j++)
            if (i != j && k->inst[j].op == IR_K_LOAD && is_next_load(s, &k->inst[i], &k->inst[j])) return true;
    return false;
}

static bool is_value_of(const ir_kslide *s, int inst) {
    for (int i = 0; i < s->n; i++)
        if (s->to[i] == inst) return true;
    return false;
}

/* Is every value that goes on made in a row anyway? What only others are made of that come from the row before is
 * not. */
static bool is_made(const slide *s, const ir_kslide *found) {
    const ir_kernel *k = s->b->k;
    bool is_needed[IR_KERNEL_MAX_INSTS] = {false};
    for (int i = 0; i < found->n; i++) is_needed[found->to[i]] = true; /* not looked into */
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_STORE) ir_kernel_mark(k, i, is_needed);
    for (int i = 0; i < found->n; i++)
        if (!is_needed[found->from[i]]) return false;
    return true;
}

static bool is_plain(const ir_kernel *k, int buffer) {
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_K_LOAD && k->inst[i].index == buffer && k->inst[i].variant) return false;
    return true;
}

void plan_find_turns(const builder *b) {
    ir_kernel *k = b->k;
    ir_sizes *sz = b->p->g->sizes;
    bool is_first[IR_KERNEL_MAX_BUFFERS] = {false}; /* another is behind it: it is behind none */
    if ((k->kind != IR_KERNEL_MAP && !k->band_rows) || ir_level_is_gpu(k->level) || ir_kernel_is_transposed(k) ||
        k->slide.n)
        return;
    for (int i = 0; i < k->n_buffers; i++) {
        const access *x = &b->accesses.at[i];
        if (x->is_output || k->n_dims < 1 || k->buffer[i].stride[k->n_dims - 1] != 2 || !is_plain(k, i) || is_first[i])
            continue;
        for (int j = 0; j < k->n_buffers && !k->buffer[i].behind; j++) {
            const access *y = &b->accesses.at[j];
            if (y->is_output || y->buffer != x->buffer || k->buffer[j].behind ||
                k->buffer[j].dtype != k->buffer[i].dtype || x->offset != ir_size_add(sz, y->offset, b->one) ||
                !is_plain(k, j) || memcmp(x->stride, y->stride, (size_t)b->space * sizeof *x->stride) != 0)
                continue;
            k->buffer[i].behind = (uint8_t)(j + 1);
            is_first[j] = true;
        }
    }
}

void plan_find_slide(const builder *b, const ir_step *st) {
    ir_kernel *k = b->k;
    slide s = {b, st, k->n_dims - 2, 1 << 14, {0}};
    ir_kslide found = {0};
    bool is_covered[IR_KERNEL_MAX_INSTS] = {false};
    if (k->kind != IR_KERNEL_MAP || s.y < 0 || ir_level_is_gpu(k->level)) return;
    if (ir_kernel_is_transposed(k) || ir_kernel_is_scatter(k) || !has_pair(&s)) return;
    ir_kernel_vary_all(k, s.varies);
    for (int i = k->n_insts - 1; i >= 0; i--) {
        if (is_covered[i] || !is_worth(&s, i)) continue;
        for (int j = k->n_insts - 1; j >= 0 && found.n < IR_KERNEL_MAX_SLIDE; j--) {
            if (j == i || (is_covered[j] && !is_value_of(&found, j)) || !is_worth(&s, j) || !is_next(&s, i, j))
                continue;
            found.to[found.n] = (uint16_t)i;
            found.from[found.n++] = (uint16_t)j;
            ir_kernel_mark(k, i, is_covered);
            break;
        }
    }
    if (found.n && is_made(&s, &found)) k->slide = found;
}
