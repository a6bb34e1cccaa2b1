/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* pass_simplify: rules.def, and operands that only repeat a smaller tensor (full, broadcast_to) taken from it directly.
 * Bit-exact throughout. Needs: types. Keeps: types. Breaks: ids. Cost: O(nodes * rules). */
#include "base/small.h"
#include "ir/pass.h"
#include <math.h>
#include <string.h>

typedef struct simplifier {
    ir_rewrite *rw;
    ir_graph *g; /* rw->to */
} simplifier;

/* ---- what the rules ask ---- */

static bool literal_of(const ir_graph *g, ir_id x, ir_bits *out) {
    const ir_node *n = ir_at(g, x);
    if (n->op == IR_OP_FULL) n = ir_at(g, n->in[0]);
    if (n->op != IR_OP_LITERAL) return false;
    *out = n->bits;
    return true;
}

/* c is not 0, whose sign IS_ZERO asks about. */
static bool is_number(const ir_graph *g, ir_id x, int c) {
    ir_bits b;
    const ir_dtype t = ir_at(g, x)->dtype;
    if (!literal_of(g, x, &b) || ir_is_bool(t)) return false;
    bool fits;
    const ir_bits want = ir_bits_from_int(t, c, &fits);
    return fits && want == b;
}

static bool is_zero(const ir_graph *g, ir_id x, bool negative) {
    ir_bits b;
    const ir_dtype t = ir_at(g, x)->dtype;
    if (!literal_of(g, x, &b)) return false;
    if (!ir_is_float(t) || !negative) return b == 0;
    return b == (ir_bits)1 << (8u * ir_dtypes[t].bytes - 1);
}

static bool is_ones(const ir_graph *g, ir_id x) {
    ir_bits b;
    const ir_dtype t = ir_at(g, x)->dtype;
    if (!literal_of(g, x, &b)) return false;
    return ir_is_bool(t) ? b == 1 : b == UINT64_MAX >> (64 - 8u * ir_dtypes[t].bytes);
}

static bool is_integral(const ir_graph *g, ir_id x) {
    const ir_op op = ir_at(g, x)->op;
    return op == IR_OP_FLOOR || op == IR_OP_CEIL || op == IR_OP_ROUND || op == IR_OP_TRUNC;
}

/* 1 / x as bits of x's type, where x is a power of two whose reciprocal is exact and no subnormal. */
static bool reciprocal(const ir_graph *g, ir_id x, ir_bits *out) {
    ir_bits b;
    int e;
    bool ok;
    const ir_dtype t = ir_at(g, x)->dtype;
    if (!ir_is_float(t) || !literal_of(g, x, &b)) return false;
    const double v = ir_bits_to_double(t, b);
    if (!isfinite(v) || v == 0 || fabs(frexp(v, &e)) != 0.5) return false;
    const double lowest = t == FUSOR_F64 ? 0x1p-1022 : t == FUSOR_F16 ? 0x1p-14 : 0x1p-126;
    const double r = 1 / v;
    *out = ir_bits_from_double(t, r, &ok);
    return ok && isfinite(r) && fabs(r) >= lowest && ir_bits_to_double(t, *out) == r;
}

/* Does cast(cast(x: from, via), to) equal cast(x, to)? Where via holds every value of from; a float on the way from an
 * integer to an integer would saturate where the direct way wraps. */
static bool is_widening(ir_dtype from, ir_dtype via, ir_dtype to) {
    static const int precision[IR_DTYPE_COUNT] = {
        [FUSOR_F64] = 53, [FUSOR_F32] = 24, [FUSOR_F16] = 11, [FUSOR_BF16] = 8};
    const int bits_from = 8 * ir_dtypes[from].bytes, bits_via = 8 * ir_dtypes[via].bytes;
    if (from == via || ir_is_bool(from)) return true;
    if (ir_is_float(from)) {
        if (!ir_is_float(via)) return false;
        return bits_via > bits_from; /* f16 and bf16 do not hold each other; every wider type holds both */
    }
    if (ir_is_bool(via)) return false;
    if (ir_is_float(via)) {
        const int digits = ir_is_signed(from) ? bits_from - 1 : bits_from;
        /* bf16's range takes any integer, f16's takes those of its precision. */
        return !ir_is_int(to) && digits <= precision[via];
    }
    return bits_via > bits_from ? !ir_is_signed(from) || ir_is_signed(via) : false;
}

/* ---- what the rules make ---- */

static ir_id make(const simplifier *c, const ir_node *n, ir_op op, unsigned n_in, ir_id *in, const uint8_t *masks) {
    uint8_t stretch[3];
    ir_node m = *n;
    memcpy(stretch, masks, n_in);
    m.op = op;
    m.n_in = (uint16_t)n_in;
    m.in = in;
    m.stretch = stretch;
    m.attr = ir_ops[op].n_attrs ? FU_NEW_N(c->rw->arena, ir_attr, ir_ops[op].n_attrs) : NULL;
    return ir_add_raw(c->g, &m);
}

static ir_id unary(const simplifier *c, const ir_node *n, ir_op op, ir_id x) {
    const ir_node *of = ir_at(c->g, x);
    if (of->rank != n->rank || memcmp(of->dim, n->dim, n->rank * sizeof *n->dim) != 0) return 0;
    return make(c, n, op, 1, &x, &(uint8_t){0});
}

static ir_id binary(const simplifier *c, const ir_node *n, ir_op op, ir_id x, unsigned mx, ir_id y, unsigned my) {
    return make(c, n, op, 2, (ir_id[]){x, y}, (uint8_t[]){(uint8_t)mx, (uint8_t)my});
}

static ir_id ternary(const simplifier *c, const ir_node *n, ir_op op, ir_id x, unsigned mx, ir_id y, unsigned my,
                     ir_id z, unsigned mz) {
    return make(c, n, op, 3, (ir_id[]){x, y, z}, (uint8_t[]){(uint8_t)mx, (uint8_t)my, (uint8_t)mz});
}

static ir_id reciprocal_of(const simplifier *c, ir_id x) {
    ir_bits b = 0;
    reciprocal(c->g, x, &b);
    const ir_id literal = ir_add_literal(c->g, ir_at(c->g, x)->dtype, b);
    if (ir_at(c->g, x)->op == IR_OP_LITERAL) return literal;
    ir_node full = *ir_at(c->g, x);
    ir_id in = literal;
    full.in = &in;
    full.name = NULL;
    return ir_add_raw(c->g, &full);
}

/* A view or creation of x with n's shape written out as shape=. */
static ir_id shaped(const simplifier *c, const ir_node *n, ir_op op, ir_id x, unsigned mask) {
    ir_attr attr[2] = {{.is_set = true, .list = (ir_size *)n->dim, .n = n->rank}};
    uint8_t stretch = (uint8_t)mask;
    ir_node m = *n;
    if (op == IR_OP_FULL) attr[1] = (ir_attr){.is_set = true, .integer = n->dtype};
    m.op = op;
    m.n_in = 1;
    m.in = &x;
    m.stretch = &stretch;
    m.attr = attr;
    return ir_add_raw(c->g, &m);
}

static ir_id reshape_to(const simplifier *c, const ir_node *n, ir_id x) { return shaped(c, n, IR_OP_RESHAPE, x, 0); }
static ir_id fill_to(const simplifier *c, const ir_node *n, ir_id x) {
    return shaped(c, n, IR_OP_FULL, x, (1u << n->rank) - 1);
}
static ir_id stretch_to(const simplifier *c, const ir_node *n, ir_id x, unsigned mask) {
    return shaped(c, n, IR_OP_BROADCAST_TO, x, mask);
}

static bool is_identity(const simplifier *c, const ir_node *n) {
    int perm[IR_MAX_RANK];
    ir_view_perm(c->g, n, perm);
    for (int d = 0; d < n->rank; d++) {
        if (perm[d] != d) return false;
    }
    return true;
}

static ir_id compose_transposes(const simplifier *c, const ir_node *n) {
    int outer[IR_MAX_RANK], inner[IR_MAX_RANK];
    ir_size list[IR_MAX_RANK];
    const ir_node *x = ir_at(c->g, n->in[0]);
    ir_view_perm(c->g, n, outer);
    ir_view_perm(c->g, x, inner);
    for (int d = 0; d < n->rank; d++) list[d] = ir_size_const(c->g->sizes, inner[outer[d]]);
    ir_attr perm = {.is_set = true, .list = list, .n = n->rank};
    ir_node m = *n;
    m.in = x->in;
    m.attr = &perm;
    return ir_add_raw(c->g, &m);
}

/* The size of an axis is that of a parameter wherever one has it: no reason to compute what it was asked of. */
static ir_id dim_of_param(const simplifier *c, const ir_node *n) {
    const ir_node *x = ir_at(c->g, n->in[0]);
    if (x->op == IR_OP_PARAM) return 0;
    const ir_size size = x->dim[ir_node_attr(n, "axis")->integer];
    for (uint32_t p = 0; p < c->g->params.n; p++) {
        ir_id param = c->g->params.at[p].node;
        const ir_node *of = ir_at(c->g, param);
        for (unsigned d = 0; d < of->rank; d++) {
            if (of->dim[d] != size) continue;
            ir_attr axis = {.is_set = true, .integer = (int64_t)d};
            ir_node m = *n;
            m.in = &param;
            m.attr = &axis;
            return ir_add_raw(c->g, &m);
        }
    }
    return 0;
}

/* ---- the rules ---- */

static bool same_shape(const ir_node *x, const ir_node *y) {
    return x->rank == y->rank && memcmp(x->dim, y->dim, x->rank * sizeof *x->dim) == 0;
}

/* The replacement, if there is one of the node's own type and shape. */
static bool fits(const simplifier *c, const ir_node *n, ir_id to, ir_id *out) {
    const ir_node *x = ir_at(c->g, to);
    if (to == 0 || x->dtype != n->dtype || x->rank != n->rank || memcmp(x->dim, n->dim, n->rank * sizeof *n->dim) != 0)
        return false;
    *out = to;
    return true;
}

static unsigned mask_of(const ir_node *n, unsigned i) { return n->stretch ? n->stretch[i] : 0; }

static bool apply_rules(const simplifier *c, const ir_node *n, ir_id *out) {
    const ir_graph *g = c->g;
#define AT(v)                            ir_at(g, v)
#define X                                (n->in[0])
#define Y                                (n->in[1])
#define Z                                (n->in[2])
#define IN(v, k)                         (AT(v)->in[k])
#define IS_OP(v, OP)                     (AT(v)->op == IR_OP_##OP)
#define TYPE(v)                          (AT(v)->dtype)
#define MASK(v, k)                       mask_of(AT(v), k)
#define M(k)                             mask_of(n, k)
#define IS(v, number)                    is_number(g, v, number)
#define PLUS_ZERO(v)                     is_zero(g, v, false)
#define MINUS_ZERO(v)                    is_zero(g, v, true)
#define ONES(v)                          is_ones(g, v)
#define FLOAT                            ir_is_float(TYPE(X))
#define UNSIGNED                         (ir_dtypes[TYPE(X)].cls == IR_CLASS_U)
#define IS_INTEGRAL(v)                   is_integral(g, v)
#define HAS_EXACT_RECIPROCAL(v)          reciprocal(g, v, &(ir_bits){0})
#define RECIPROCAL_OF(v)                 reciprocal_of(c, v)
#define SAME_SHAPE(v)                    same_shape(AT(v), n)
#define UNARY(OP, v)                     unary(c, n, IR_OP_##OP, v)
#define BINARY(OP, v, mv, w, mw)         binary(c, n, IR_OP_##OP, v, mv, w, mw)
#define TERNARY(OP, v, mv, w, mw, u, mu) ternary(c, n, IR_OP_##OP, v, mv, w, mw, u, mu)
#define RULE(OP, guard, to)                                                                                            \
    if (n->op == IR_OP_##OP && (guard) && fits(c, n, (to), out)) return true;
#include "ir/rules.def"
#undef RULE
#undef X
#undef Y
#undef Z
    return false;
}

/* An element-wise operand that only repeats something is read from that instead, as long as some other operand has the
 * result's shape: so the shapes still follow from the operands, and a dump reads back the same. */
static bool read_through(const simplifier *c, ir_node *n) {
    bool is_changed = false;
    for (unsigned i = 0; i < n->n_in; i++) {
        const ir_node *x = ir_at(c->g, n->in[i]);
        if (x->op != IR_OP_FULL && x->op != IR_OP_BROADCAST_TO) continue;
        bool has_full = false;
        for (unsigned k = 0; k < n->n_in; k++) {
            const ir_node *other = ir_at(c->g, n->in[k]);
            has_full |= k != i && other->rank == n->rank && mask_of(n, k) == 0 &&
                        memcmp(other->dim, n->dim, n->rank * sizeof *n->dim) == 0;
        }
        if (!has_full) continue;
        uint8_t *stretch = FU_NEW_N(c->rw->arena, uint8_t, n->n_in);
        for (unsigned k = 0; k < n->n_in; k++) stretch[k] = (uint8_t)mask_of(n, k);
        stretch[i] |= (uint8_t)((unsigned)mask_of(x, 0) << (n->rank - x->rank));
        n->stretch = stretch;
        n->in[i] = x->in[0];
        is_changed = true;
    }
    return is_changed;
}

fusor_status ir_pass_simplify(fu_arena *a, fu_error *e, ir_graph **g) {
    (void)e;
    ir_rewrite rw;
    ir_rewrite_begin(&rw, a, *g);
    const simplifier c = {&rw, rw.to};
    for (ir_id i = 1; i < (*g)->nodes.n; i++) {
        if (rw.map[i]) continue;
        enum { MAX_ROUNDS = 16 }; /* each rule makes a node cheaper; the limit is for a mistake in the table */
        ir_node n = ir_rewrite_node(&rw, i);
        if (ir_ops[n.op].kind == IR_KIND_EW && n.n_in > 1) rw.is_changed |= read_through(&c, &n);
        ir_id to = 0;
        bool is_new = false; /* `to` was made for this node: rules may apply to it again */
        for (int round = 0; round < MAX_ROUNDS; round++) {
            const ir_id count = rw.to->nodes.n;
            ir_id next;
            if (!apply_rules(&c, &n, &next)) break;
            to = next;
            rw.is_changed = true;
            is_new = next >= count;
            if (!is_new) break;
            n = *ir_at(rw.to, next);
            n.in = fu_dup(a, n.in, n.n_in * sizeof *n.in);
        }
        rw.map[i] = to ? to : ir_add_raw(rw.to, &n);
    }
    ir_rewrite_finish(&rw, g);
    return FUSOR_OK;
}
