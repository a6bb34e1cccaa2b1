/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* infer_attention.c: type and shape of attention (kind ATTENTION): q [.., H, Sq, D], k [.., G, Sk, D], v [.., G, Sk, E]
 * give [.., H, Sq, E]. Batch axes broadcast; heads are on axis -3, where H is a multiple of G, or one of them is 1 or
 * missing. A mask stretches to the scores, [.., H, Sq, Sk]. */
#include "base/small.h"
#include "ir/attention.h"
#include "ir/infer_parts.h"
#include <math.h>

enum { Q, K, V, MASK };
static const int64_t MOST = INT64_C(1) << 31; /* of a bound of window= */

/* Which operand is causal_offset: the one of that name, the one behind a mask, or an integer; -1: none. */
static int offset_of(const ir_graph *g, const ir_node *n) {
    const int last = n->n_in - 1;
    const bool is_offset =
        last > MASK ||
        (last == MASK && (attr_of(n, "causal_offset")->is_set || ir_is_int(ir_at(g, n->in[last])->dtype)));
    return is_offset ? last : -1;
}

ir_attention ir_attention_of(const ir_graph *g, const ir_node *n) {
    const ir_attr *window = attr_of(n, "window"), *scale = attr_of(n, "scale"), *softcap = attr_of(n, "softcap");
    ir_attention a = {.mask = -1,
                      .offset = offset_of(g, n),
                      .is_causal = attr_of(n, "causal")->integer != 0,
                      .has_scale = scale->is_set,
                      .left = -1,
                      .right = -1,
                      .softcap = softcap->is_set ? softcap->number : 0,
                      .scale = scale->number};
    if (n->n_in > MASK && a.offset != MASK) a.mask = MASK;
    if (window->is_set && window->n == 2) {
        ir_size_is_const(g->sizes, window->list[0], &a.left);
        ir_size_is_const(g->sizes, window->list[1], &a.right);
    }
    return a;
}

/* "q %x", "mask %m" */
static const char *who(ir_graph *g, const ir_node *n, unsigned i) {
    static const char *const roles[] = {"q", "k", "v", "the mask"};
    const ir_node *x = ir_at(g, n->in[i]);
    const char *role = (int)i == offset_of(g, n) ? "causal_offset" : roles[i];
    return x->name ? fu_format(g->arena, "%s, %%%s,", role, x->name) : role;
}

static ir_size dim_from_end(const ir_node *x, unsigned i) { return x->dim[x->rank - i]; }
/* The heads of an operand; 1 where it has no such axis. */
static ir_size heads_of(ir_graph *g, const ir_node *x) {
    return x->rank < 3 ? ir_size_const(g->sizes, 1) : dim_from_end(x, 3);
}

static fusor_status check_types(ir_graph *g, const ir_node *n) {
    const ir_node *q = ir_at(g, n->in[Q]);
    for (unsigned i = Q; i < MASK; i++) {
        const ir_node *x = ir_at(g, n->in[i]);
        if (!ir_is_float(x->dtype)) {
            return TYPE_ERROR("%s is %s; expected %s", who(g, n, i), type_text(g, x),
                              class_text(ir_ops[n->op].classes));
        }
        if (x->dtype != q->dtype) {
            return TYPE_ERROR("%s is %s but %s is %s; expected one type: cast one of them", who(g, n, Q),
                              type_text(g, q), who(g, n, i), type_text(g, x));
        }
        if (x->rank < 2)
            return SHAPE_ERROR("%s is %s; expected rank 2 or more: [.., heads, S, D]", who(g, n, i), type_text(g, x));
    }
    for (unsigned i = MASK; i < n->n_in; i++) {
        const ir_node *x = ir_at(g, n->in[i]);
        const bool is_offset = (int)i == offset_of(g, n);
        if (!is_offset && ir_is_int(x->dtype))
            return TYPE_ERROR("the mask is %s; expected bool or a float type", type_text(g, x));
        if (is_offset && i == MASK && x->rank && !attr_of(n, "causal_offset")->is_set)
            return TYPE_ERROR(
                "operand 4 is %s; a mask is bool or a float type, a causal_offset a scalar of an integer type",
                type_text(g, x));
        if (is_offset && (!ir_is_int(x->dtype) || x->rank))
            return TYPE_ERROR("%s is %s; expected a scalar of an integer type", who(g, n, i), type_text(g, x));
    }
    return FUSOR_OK;
}

static fusor_status check_attributes(ir_graph *g, const ir_node *n) {
    const ir_attr *window = attr_of(n, "window"), *softcap = attr_of(n, "softcap"), *scale = attr_of(n, "scale");
    if (window->is_set && window->n != 2)
        return SHAPE_ERROR("window= has %u entries; expected 2: [left, right]", window->n);
    for (uint32_t i = 0; window->is_set && i < 2; i++) {
        int64_t v = 0;
        ir_size_is_const(g->sizes, window->list[i], &v);
        if (v < -1 || v > MOST) {
            return SHAPE_ERROR("entry %u of window= is %lld; expected 0 to %lld, or -1 for no bound", i, (long long)v,
                               (long long)MOST);
        }
    }
    if (softcap->is_set && !(softcap->number >= 0 && isfinite(softcap->number)))
        return TYPE_ERROR("softcap=%g; expected a positive number, or 0 for none", softcap->number);
    if (scale->is_set && !isfinite(scale->number))
        return TYPE_ERROR("scale=%g; expected a finite number", scale->number);
    return FUSOR_OK;
}

/* softcap and scale as what they are computed with. */
static fusor_status check_range(ir_graph *g, const ir_node *n) {
    const ir_attr *softcap = attr_of(n, "softcap"), *scale = attr_of(n, "scale");
    const ir_dtype t = ir_node_accumulator(g, n) == FUSOR_F64 ? FUSOR_F64 : FUSOR_F32;
    bool fits;
    const double cap = softcap->is_set ? ir_bits_to_double(t, ir_bits_from_double(t, softcap->number, &fits)) : 0;
    if (!isfinite(cap) || (softcap->is_set && (cap == 0) != (softcap->number == 0)))
        return TYPE_ERROR("softcap=%g; expected one that %s can hold", softcap->number, ir_dtypes[t].name);
    if (scale->is_set && !isfinite(ir_bits_to_double(t, ir_bits_from_double(t, scale->number, &fits))))
        return TYPE_ERROR("scale=%g; expected one that %s can hold", scale->number, ir_dtypes[t].name);
    return FUSOR_OK;
}

/* Heads of the result: those of q, which are a multiple of those of k and v, or these where q has 1. */
static fusor_status infer_heads(ir_graph *g, ir_node *n, unsigned axis) {
    ir_sizes *s = g->sizes;
    const ir_node q = *ir_at(g, n->in[Q]), k = *ir_at(g, n->in[K]), v = *ir_at(g, n->in[V]);
    const ir_size hq = heads_of(g, &q), hv = heads_of(g, &v);
    ir_size h = heads_of(g, &k);
    if (!ir_size_is(s, h, 1) && !ir_size_is(s, hv, 1) &&
        !agree(g, n, h, hv, who(g, n, K), k.rank - 3u, who(g, n, V), v.rank - 3u)) {
        return SHAPE_ERROR("%s is %s but %s is %s; expected as many heads (dim %u = %s or 1)", who(g, n, K),
                           type_text(g, &k), who(g, n, V), type_text(g, &v), v.rank - 3u, size_text(g, h));
    }
    if (ir_size_is(s, h, 1)) h = hv;
    n->dim[axis] = ir_size_is(s, hq, 1) ? h : hq;
    if (!ir_size_is(s, hq, 1) && !ir_size_is(s, h, 1) && hq != h) {
        const ir_size whole = ir_size_mul(s, ir_size_div(s, hq, ir_size_max(s, h, ir_size_const(s, 1))), h);
        if (ir_size_never_equal(s, whole, hq)) {
            return SHAPE_ERROR("%s is %s, %s heads, but %s is %s, %s; expected a multiple of them", who(g, n, Q),
                               type_text(g, &q), size_text(g, hq), who(g, n, K), type_text(g, &k), size_text(g, h));
        }
        const char *what = fu_format(g->arena, "attention: the heads of %s (%s) must be a multiple of those of %s (%s)",
                                     who(g, n, Q), size_text(g, hq), who(g, n, K), size_text(g, h));
        ir_add_check(g, (ir_check){.a = hq, .b = whole, .kind = IR_CHECK_EQUAL, .what = what, .loc = n->loc});
    }
    for (unsigned i = Q; i < MASK; i++)
        if (ir_size_is(s, heads_of(g, ir_at(g, n->in[i])), 1) && !ir_size_is(s, n->dim[axis], 1))
            n->stretch[i] |= (uint8_t)(1u << axis);
    return FUSOR_OK;
}

static fusor_status check_mask(ir_graph *g, const ir_node *n, unsigned i, ir_size keys) {
    const ir_node m = *ir_at(g, n->in[i]);
    ir_node scores = *n;
    scores.dtype = m.dtype;
    scores.dim[n->rank - 1] = keys;
    if (m.rank > n->rank) {
        return SHAPE_ERROR("%s is %s; expected rank %u at most, to stretch to the scores %s", who(g, n, i),
                           type_text(g, &m), n->rank, type_text(g, &scores));
    }
    for (unsigned k = 0; k < m.rank; k++) {
        const unsigned d = n->rank - m.rank + k;
        if (ir_size_is(g->sizes, m.dim[k], 1)) continue;
        if (!agree(g, n, scores.dim[d], m.dim[k], "the scores", d, who(g, n, i), k)) {
            return SHAPE_ERROR("%s is %s but the scores are %s; expected dim %u = %s or 1", who(g, n, i),
                               type_text(g, &m), type_text(g, &scores), k, size_text(g, scores.dim[d]));
        }
    }
    return FUSOR_OK;
}

fusor_status infer_attention(ir_graph *g, ir_node *n) {
    FU_TRY(check_types(g, n));
    FU_TRY(check_attributes(g, n));
    const ir_node q = *ir_at(g, n->in[Q]), k = *ir_at(g, n->in[K]), v = *ir_at(g, n->in[V]);
    if (!agree(g, n, dim_from_end(&q, 1), dim_from_end(&k, 1), who(g, n, Q), q.rank - 1u, who(g, n, K), k.rank - 1u)) {
        return SHAPE_ERROR("%s is %s but %s is %s; expected dim %u = %s", who(g, n, Q), type_text(g, &q), who(g, n, K),
                           type_text(g, &k), k.rank - 1u, size_text(g, dim_from_end(&q, 1)));
    }
    if (!agree(g, n, dim_from_end(&k, 2), dim_from_end(&v, 2), who(g, n, K), k.rank - 2u, who(g, n, V), v.rank - 2u)) {
        return SHAPE_ERROR("%s is %s but %s is %s; expected dim %u = %s, a value for each key", who(g, n, K),
                           type_text(g, &k), who(g, n, V), type_text(g, &v), v.rank - 2u,
                           size_text(g, dim_from_end(&k, 2)));
    }
    unsigned part[5] = {0}, rank = 0;
    for (unsigned i = Q; i < MASK; i++) {
        part[i] = ir_at(g, n->in[i])->rank - 2u;
        if (part[i] > rank) rank = part[i];
    }
    FU_TRY(broadcast_but(g, n, part, rank, rank ? 1u << (rank - 1) : 0));
    if (rank) FU_TRY(infer_heads(g, n, rank - 1));
    n->dim[rank] = dim_from_end(&q, 2);
    n->dim[rank + 1] = dim_from_end(&v, 1);
    n->rank = (uint8_t)(rank + 2);
    const ir_attention a = ir_attention_of(g, n);
    if (a.mask >= 0) FU_TRY(check_mask(g, n, (unsigned)a.mask, dim_from_end(&k, 2)));
    const ir_dtype said = dtype_attr(n);
    n->dtype = said ? said : q.dtype;
    return check_range(g, n);
}
