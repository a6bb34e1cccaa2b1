/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* infer_parts.c: what the type rules of all kinds share: words for messages, attributes, axes, sizes that have to
 * agree, broadcasting, and the last look at a result. */
#include "base/small.h"
#include "ir/infer_parts.h"
#include <stdarg.h>
#include <string.h>

/* ---- text for messages ---- */

void ir_type_print(fu_str *out, const ir_graph *g, const ir_node *n) {
    fu_str_add(out, ir_dtypes[n->dtype].name ? ir_dtypes[n->dtype].name : "?");
    for (unsigned d = 0; d < n->rank; d++) {
        fu_str_add(out, d ? ", " : "[");
        ir_size_print(out, g->sizes, n->dim[d]);
    }
    if (n->rank) fu_str_addc(out, ']');
}

const char *type_text(ir_graph *g, const ir_node *n) {
    fu_str s;
    fu_str_init(&s, g->arena);
    ir_type_print(&s, g, n);
    return s.at;
}

const char *size_text(ir_graph *g, ir_size x) {
    fu_str s;
    fu_str_init(&s, g->arena);
    ir_size_print(&s, g->sizes, x);
    return s.at;
}

/* "lhs %x", "operand 2", ... */
const char *label(ir_graph *g, const ir_node *n, unsigned i) {
    const ir_node *x = ir_at(g, n->in[i]);
    fu_str s;
    fu_str_init(&s, g->arena);
    if (n->n_in == 2) fu_str_add(&s, i ? "rhs" : "lhs");
    else if (n->n_in == 1) fu_str_add(&s, "operand");
    else fu_str_addf(&s, "operand %u", i + 1);
    if (x->name) fu_str_addf(&s, " %%%s", x->name);
    return s.at;
}

fusor_status infer_fail(ir_graph *g, const ir_node *n, fusor_status status, const char *fmt, ...) {
    fu_str s;
    va_list ap;
    fu_str_init(&s, g->arena);
    va_start(ap, fmt);
    fu_str_addv(&s, fmt, ap);
    va_end(ap);
    return FU_FAIL_AT(g->error, status, g->source, n->loc, "%s: %s", ir_ops[n->op].name, s.at);
}

const char *class_text(unsigned classes) {
    switch (classes) {
    case IR_CLASS_F: return "a float type (f64, f32, f16, bf16)";
    case IR_CLASS_S | IR_CLASS_U: return "an integer type";
    case IR_CLASS_B: return "bool";
    case IR_CLASS_S | IR_CLASS_U | IR_CLASS_B: return "an integer type or bool";
    default: return "a float or integer type";
    }
}

/* ---- common parts ---- */

const ir_attr *attr_of(const ir_node *n, const char *name) {
    const ir_attr *x = ir_node_attr(n, name);
    static const ir_attr absent;
    return x ? x : &absent;
}

ir_attr *attr_to_fix(const ir_node *n, const char *name) { return (ir_attr *)ir_node_attr(n, name); }

ir_dtype dtype_attr(const ir_node *n) {
    const ir_attr *x = attr_of(n, "dtype");
    return x->is_set ? (ir_dtype)x->integer : 0;
}

ir_size ir_node_count(ir_graph *g, const ir_node *n) {
    ir_size count = ir_size_const(g->sizes, 1);
    for (unsigned d = 0; d < n->rank; d++) count = ir_size_mul(g->sizes, count, n->dim[d]);
    return count;
}

/* Two sizes that have to agree: an error where they provably do not, a check at the call where that is not known. The
 * caller words the error; false = provably unequal. */
bool agree(ir_graph *g, const ir_node *n, ir_size a, ir_size b, const char *who_a, unsigned dim_a, const char *who_b,
           unsigned dim_b) {
    if (a == b) return true;
    if (ir_size_never_equal(g->sizes, a, b)) return false;
    const char *what = fu_format(g->arena, "%s: dim %u of %s and dim %u of %s must be equal", ir_ops[n->op].name, dim_a,
                                 who_a, dim_b, who_b);
    ir_add_check(g, (ir_check){.a = a, .b = b, .kind = IR_CHECK_EQUAL, .what = what, .loc = n->loc});
    return true;
}

/* The result's dims as such: no size past 64 bits or below 0, and a byte count that fits. */
fusor_status infer_finish(ir_graph *g, ir_node *n) {
    int64_t bytes = ir_dtypes[n->dtype].bytes, v;
    bool is_known = true, is_empty = false, overflow = false;
    for (unsigned d = 0; d < n->rank; d++) {
        if (ir_size_is_huge(g->sizes, n->dim[d])) {
            return SHAPE_ERROR("the size of dim %u overflows 64 bits, or its expression is too large", d);
        }
        if (!ir_size_is_const(g->sizes, n->dim[d], &v)) {
            is_known = false;
            if (n->op == IR_OP_PARAM) continue; /* the buffer that comes has a size, and it must be this one */
            const char *what = fu_format(g->arena, "%s: dim %u of the result", ir_ops[n->op].name, d);
            if (!ir_size_never_negative(g->sizes, n->dim[d])) {
                ir_add_check(g, (ir_check){.a = n->dim[d], .kind = IR_CHECK_NOT_NEGATIVE, .what = what, .loc = n->loc});
            }
            continue;
        }
        if (v < 0) return SHAPE_ERROR("dim %u is %lld; a size must not be negative", d, (long long)v);
        is_empty |= v == 0;
        overflow |= __builtin_mul_overflow(bytes, v, &bytes);
    }
    if (is_known && !is_empty && overflow) return SHAPE_ERROR("the bytes of %s overflow 64 bits", type_text(g, n));
    return FUSOR_OK;
}

void copy_dims(ir_node *n, const ir_node *from) {
    n->rank = from->rank;
    memcpy(n->dim, from->dim, sizeof n->dim);
}

/* Axis from -rank to rank - 1 made 0 to rank - 1. `of`: what the axis counts in. */
fusor_status fix_axis(ir_graph *g, const ir_node *n, int64_t *axis, unsigned rank, const char *of) {
    const int64_t limit = (int64_t)rank;
    if (rank == 0) return SHAPE_ERROR("axis %lld is out of range: %s has no axes", (long long)*axis, of);
    if (*axis < -limit || *axis >= limit) {
        return SHAPE_ERROR("axis %lld is out of range for %s; expected %lld to %lld", (long long)*axis, of,
                           (long long)-limit, (long long)(limit - 1));
    }
    if (*axis < 0) *axis += limit;
    return FUSOR_OK;
}

/* A list of axes made non-negative, without repeats; ascending where `sorted`. */
fusor_status fix_axes(ir_graph *g, const ir_node *n, ir_attr *x, const char *name, unsigned rank, const char *of,
                      bool sorted) {
    unsigned seen = 0, count = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        int64_t axis;
        if (!ir_size_is_const(g->sizes, x->list[i], &axis)) {
            return SHAPE_ERROR("%s= takes integers, not %s", name, size_text(g, x->list[i]));
        }
        const int64_t written = axis;
        FU_TRY(fix_axis(g, n, &axis, rank, of));
        if (seen >> axis & 1) {
            return SHAPE_ERROR("axis %lld is repeated in %s=; each axis may be named once", (long long)written, name);
        }
        seen |= 1u << axis;
        x->list[i] = ir_size_const(g->sizes, axis);
    }
    for (unsigned d = 0; sorted && d < rank; d++) {
        if (seen >> d & 1) x->list[count++] = ir_size_const(g->sizes, (int64_t)d);
    }
    return FUSOR_OK;
}

/* "operand %x, f32[4, 8]," for fix_axis. */
const char *operand_text(ir_graph *g, const ir_node *n) {
    return fu_format(g->arena, "%s of type %s", label(g, n, 0), type_text(g, ir_at(g, n->in[0])));
}

fusor_status check_class(ir_graph *g, const ir_node *n, unsigned i, unsigned classes) {
    const ir_node *x = ir_at(g, n->in[i]);
    if (ir_dtypes[x->dtype].cls & classes) return FUSOR_OK;
    return TYPE_ERROR("%s is %s; expected %s", label(g, n, i), type_text(g, x), class_text(classes));
}

/* ---- broadcasting ---- */

/* NumPy's rule, decided by the text: only a missing dim or the constant 1 stretches. Operand i takes part with its
 * first part[i] dims; the result has `rank` dims. Fills n->dim[0..rank) and the stretch masks, but for the dims in
 * `skip`. */
fusor_status broadcast_but(ir_graph *g, ir_node *n, const unsigned *part, unsigned rank, unsigned skip) {
    for (unsigned d = 0; d < rank; d++) {
        if (skip >> d & 1) continue;
        int base = -1, base_dim = 0;
        bool base_is_const = false;
        for (unsigned i = 0; i < n->n_in; i++) {
            const int k = (int)d - (int)(rank - part[i]);
            if (k < 0) continue;
            const ir_size x = ir_at(g, n->in[i])->dim[k];
            const bool is_const = ir_size_is_const(g->sizes, x, NULL);
            if (ir_size_is(g->sizes, x, 1)) continue;
            /* The most telling size: a known one before a named one. */
            if (base < 0 || (is_const && !base_is_const)) {
                base = (int)i;
                base_dim = k;
                base_is_const = is_const;
            }
        }
        n->dim[d] = base < 0 ? ir_size_const(g->sizes, 1) : ir_at(g, n->in[base])->dim[base_dim];
        for (unsigned i = 0; i < n->n_in; i++) {
            const int k = (int)d - (int)(rank - part[i]);
            const ir_node *x = ir_at(g, n->in[i]);
            if (k < 0 || (ir_size_is(g->sizes, x->dim[k], 1) && n->dim[d] != x->dim[k])) {
                n->stretch[i] |= (uint8_t)(1u << d);
                continue;
            }
            if (base < 0 || x->dim[k] == n->dim[d]) continue;
            const char *who = label(g, n, i), *other = label(g, n, (unsigned)base);
            if (!agree(g, n, n->dim[d], x->dim[k], other, (unsigned)base_dim, who, (unsigned)k)) {
                /* The later operand is the one told to change. */
                const bool first = (int)i < base;
                const ir_node *y = ir_at(g, n->in[base]);
                return SHAPE_ERROR("%s is %s but %s is %s; expected %s dim %u = %s or 1", first ? who : other,
                                   type_text(g, first ? x : y), first ? other : who, type_text(g, first ? y : x),
                                   first ? other : who, first ? (unsigned)base_dim : (unsigned)k,
                                   size_text(g, first ? x->dim[k] : n->dim[d]));
            }
        }
    }
    return FUSOR_OK;
}

fusor_status broadcast(ir_graph *g, ir_node *n, const unsigned *part, unsigned rank) {
    return broadcast_but(g, n, part, rank, 0);
}

/* Sizes of a shape= list into n's dims. -1 counts as a size only where `inferred` takes its place. */
fusor_status shape_attr(ir_graph *g, ir_node *n, int *inferred) {
    const ir_attr *x = attr_of(n, "shape");
    if (x->n > IR_MAX_RANK) return SHAPE_ERROR("shape= has %u sizes; a tensor has at most 8 dims", x->n);
    n->rank = (uint8_t)x->n;
    for (uint32_t d = 0; d < x->n; d++) {
        int64_t v;
        n->dim[d] = x->list[d];
        if (!ir_size_is_const(g->sizes, x->list[d], &v) || v >= 0) continue;
        if (v != -1 || !inferred) {
            return SHAPE_ERROR("size %lld in shape= is negative%s", (long long)v,
                               v == -1 ? "; only reshape infers a size from -1" : "");
        }
        if (*inferred >= 0) return SHAPE_ERROR("shape= has -1 twice; one size can be inferred");
        *inferred = (int)d;
    }
    return FUSOR_OK;
}
