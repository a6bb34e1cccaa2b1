/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* infer.c: the type and shape of every node, by operator kind; the only place that computes them. What cannot be
 * decided before sizes are known becomes a check of the graph (ir_check). Messages name the operator, the operands and
 * what was expected; doc/language.md ("Sizes", "Numbers") and doc/numerics.md ("Accumulation") are the law here.
 * infer_parts.c has what the rules share. */
#include "base/small.h"
#include "ir/infer_parts.h"
#include <string.h>

/* ---- by kind ---- */

static fusor_status infer_ew(ir_graph *g, ir_node *n) {
    const ir_op_info *info = &ir_ops[n->op];
    const unsigned main = (info->flags & IR_COND) != 0;
    unsigned part[8], rank = 0;
    if (n->n_in > 8) return TYPE_ERROR("takes at most 8 operands");
    if (main) {
        if (!ir_is_bool(ir_at(g, n->in[0])->dtype)) return check_class(g, n, 0, IR_CLASS_B);
    }
    const ir_node *lead = ir_at(g, n->in[main]);
    for (unsigned i = 0; i < n->n_in; i++) {
        const ir_node *x = ir_at(g, n->in[i]);
        part[i] = x->rank;
        if (x->rank > rank) rank = x->rank;
        if (i < main) continue;
        FU_TRY(check_class(g, n, i, info->classes));
        if (x->dtype != lead->dtype) {
            return TYPE_ERROR("%s is %s but %s is %s; expected one type: cast one of them", label(g, n, main),
                              type_text(g, lead), label(g, n, i), type_text(g, x));
        }
    }
    const ir_dtype said = dtype_attr(n);
    if (said && said != lead->dtype) {
        return TYPE_ERROR("dtype=%s but %s is %s; dtype= gives literals their type, cast converts",
                          ir_dtypes[said].name, label(g, n, main), type_text(g, lead));
    }
    n->dtype = info->result_is_bool ? FUSOR_BOOL : lead->dtype;
    n->rank = (uint8_t)rank;
    return broadcast(g, n, part, rank);
}

static fusor_status infer_convert(ir_graph *g, ir_node *n, ir_dtype to) {
    const ir_node *x = ir_at(g, n->in[0]);
    if (to == 0) to = n->dtype;
    if (to == 0) return TYPE_ERROR("needs the result type as second argument: %s(%%x, f32)", ir_ops[n->op].name);
    if (n->op == IR_OP_BITCAST) {
        if (ir_is_bool(to) || ir_is_bool(x->dtype)) {
            return TYPE_ERROR("%s is %s, and the result %s; bool has no bits to reinterpret, use cast", label(g, n, 0),
                              type_text(g, x), ir_dtypes[to].name);
        }
        if (ir_dtypes[to].bytes != ir_dtypes[x->dtype].bytes) {
            return TYPE_ERROR("%s is %s, %u bits an element, but %s has %u; expected a type of the same width",
                              label(g, n, 0), type_text(g, x), 8u * ir_dtypes[x->dtype].bytes, ir_dtypes[to].name,
                              8u * ir_dtypes[to].bytes);
        }
    }
    n->dtype = to;
    copy_dims(n, x);
    return FUSOR_OK;
}

uint32_t ir_node_axes(const ir_graph *g, const ir_node *n) {
    const ir_attr *axes = attr_of(n, "axes"), *axis = ir_node_attr(n, "axis");
    const uint32_t all = (1u << ir_at(g, n->in[0])->rank) - 1;
    const ir_kind kind = ir_ops[n->op].kind;
    if (axis && kind == IR_KIND_NORM) return all & ~((1u << axis->integer) - 1);
    if (axis) return axis->is_set || kind == IR_KIND_ROW || kind == IR_KIND_SCAN ? 1u << axis->integer : all;
    if (!axes->is_set) return all;
    uint32_t mask = 0;
    for (uint32_t i = 0; i < axes->n; i++) {
        int64_t d;
        if (ir_size_is_const(g->sizes, axes->list[i], &d) && d >= 0 && d < IR_MAX_RANK) mask |= 1u << d;
    }
    return mask;
}

/* The type that sums, products and contractions of t have without dtype=. */
static ir_dtype default_accumulator(const ir_node *n, ir_dtype t, ir_dtype other) {
    const ir_op_info *info = &ir_ops[n->op];
    if (ir_is_float(t)) return t == FUSOR_F64 ? FUSOR_F64 : FUSOR_F32;
    if ((info->kind == IR_KIND_CONTRACT || info->kind == IR_KIND_CONV || info->kind == IR_KIND_EINSUM) &&
        ir_dtypes[t].bytes == 1 && ir_dtypes[other].bytes == 1)
        return FUSOR_I32;
    return FUSOR_I64;
}

ir_dtype ir_node_accumulator(const ir_graph *g, const ir_node *n) {
    const ir_op_info *info = &ir_ops[n->op];
    const ir_dtype t = ir_at(g, n->in[0])->dtype;
    /* max, min, all and any pick an element: the type does not matter, so it stays. */
    if (info->kind == IR_KIND_ARGREDUCE || (info->kind == IR_KIND_REDUCE && !info->is_sum_like)) return t;
    const ir_dtype base =
                       default_accumulator(n, t, ir_at(g, n->in[info->kind == IR_KIND_CONV ? 1 : n->n_in - 1])->dtype),
                   said = dtype_attr(n);
    /* An integer type said of float operands only converts the result. */
    if (!said || (ir_is_float(base) && !ir_is_float(said)) || ir_is_bool(said)) return base;
    return ir_dtypes[said].bytes > ir_dtypes[base].bytes ? said : base;
}

bool ir_is_contraction(const ir_graph *g, const ir_node *n) {
    const ir_dtype a = ir_at(g, n->in[0])->dtype, b = ir_at(g, n->in[1])->dtype;
    return n->op == IR_OP_MATMUL && (ir_is_float(a) ? ir_is_float(n->dtype) : n->dtype == default_accumulator(n, a, b));
}

static fusor_status infer_reduce(ir_graph *g, ir_node *n) {
    const ir_op_info *info = &ir_ops[n->op];
    const ir_node x = *ir_at(g, n->in[0]);
    FU_TRY(check_class(g, n, 0, info->classes));
    ir_attr *axes = attr_to_fix(n, "axes"), *axis = attr_to_fix(n, "axis");
    if (axes && axes->is_set) FU_TRY(fix_axes(g, n, axes, "axes", x.rank, operand_text(g, n), true));
    if (axis && axis->is_set) FU_TRY(fix_axis(g, n, &axis->integer, x.rank, operand_text(g, n)));
    const uint32_t mask = ir_node_axes(g, n);
    const bool keep = attr_of(n, "keepdims")->integer != 0;
    n->rank = 0;
    for (unsigned d = 0; d < x.rank; d++) {
        if (mask >> d & 1) {
            if (keep) n->dim[n->rank++] = ir_size_const(g->sizes, 1);
        } else {
            n->dim[n->rank++] = x.dim[d];
        }
    }
    const bool has_identity = info->kind == IR_KIND_REDUCE && (info->is_sum_like || info->classes == IR_CLASS_B);
    if (!has_identity) {
        /* Which element would an empty axis give? None; unless no result is asked for either. */
        const ir_size count = ir_node_count(g, n);
        const char *what = "the reduced axes are empty, so there is no element to give; reduce non-empty axes";
        int64_t v;
        const char *text = NULL;
        for (unsigned d = 0; d < x.rank; d++) { /* each for itself: their product may be more than a size holds */
            if (!(mask >> d & 1) || (ir_size_is_const(g->sizes, x.dim[d], &v) && v != 0)) continue;
            if (ir_size_is(g->sizes, x.dim[d], 0) && ir_size_is_const(g->sizes, count, &v) && v != 0)
                return SHAPE_ERROR("%s is %s: %s", label(g, n, 0), type_text(g, &x), what);
            if (!text)
                text = fu_format(g->arena, "%s: %s is %s: %s", info->name, label(g, n, 0), type_text(g, &x), what);
            ir_add_check(g,
                         (ir_check){.a = x.dim[d], .b = count, .kind = IR_CHECK_NOT_ZERO, .what = text, .loc = n->loc});
        }
    }
    const ir_dtype said = dtype_attr(n);
    if (info->kind == IR_KIND_ARGREDUCE) n->dtype = FUSOR_I64;
    else if (said) n->dtype = said;
    else n->dtype = info->is_sum_like && !ir_is_float(x.dtype) ? FUSOR_I64 : x.dtype;
    return FUSOR_OK;
}

static fusor_status infer_row(ir_graph *g, ir_node *n) {
    const ir_node *x = ir_at(g, n->in[0]);
    FU_TRY(check_class(g, n, 0, ir_ops[n->op].classes));
    FU_TRY(fix_axis(g, n, &attr_to_fix(n, "axis")->integer, x->rank, operand_text(g, n)));
    const ir_dtype said = dtype_attr(n);
    n->dtype = said ? said : x->dtype;
    copy_dims(n, x);
    return FUSOR_OK;
}

/* Running sums and products keep the shape; integers and bool become i64, as sums do. */
static fusor_status infer_scan(ir_graph *g, ir_node *n) {
    const ir_node *x = ir_at(g, n->in[0]);
    FU_TRY(check_class(g, n, 0, ir_ops[n->op].classes));
    FU_TRY(fix_axis(g, n, &attr_to_fix(n, "axis")->integer, x->rank, operand_text(g, n)));
    const ir_dtype said = dtype_attr(n);
    n->dtype = said ? said : default_accumulator(n, x->dtype, x->dtype);
    if (!said && ir_is_float(x->dtype)) n->dtype = x->dtype;
    copy_dims(n, x);
    return FUSOR_OK;
}

/* gamma and beta stretch to x, not the other way round. */
static fusor_status infer_norm(ir_graph *g, ir_node *n) {
    static const char *const role[] = {"operand", "gamma", "beta"};
    const ir_node x = *ir_at(g, n->in[0]);
    unsigned part[3];
    for (unsigned i = 0; i < n->n_in; i++) {
        const ir_node *o = ir_at(g, n->in[i]);
        FU_TRY(check_class(g, n, i, ir_ops[n->op].classes));
        if (o->dtype != x.dtype) {
            return TYPE_ERROR("%s is %s but %s is %s; expected one type: cast one of them", label(g, n, 0),
                              type_text(g, &x), role[i], type_text(g, o));
        }
        part[i] = o->rank;
        if (o->rank > x.rank) {
            return SHAPE_ERROR("%s is %s but %s is %s; expected rank %u at most", role[i], type_text(g, o),
                               label(g, n, 0), type_text(g, &x), x.rank);
        }
    }
    FU_TRY(fix_axis(g, n, &attr_to_fix(n, "axis")->integer, x.rank, operand_text(g, n)));
    n->rank = x.rank;
    FU_TRY(broadcast(g, n, part, x.rank));
    for (unsigned d = 0; d < x.rank; d++) {
        if (!(n->stretch[0] >> d & 1)) continue;
        for (unsigned i = 1; i < n->n_in; i++) {
            const ir_node *o = ir_at(g, n->in[i]);
            const unsigned at = d - (x.rank - part[i]);
            if (n->stretch[i] >> d & 1 || agree(g, n, o->dim[at], x.dim[d], role[i], at, label(g, n, 0), d)) continue;
            return SHAPE_ERROR("%s is %s but %s is %s; expected %s dim %u = 1", role[i], type_text(g, o),
                               label(g, n, 0), type_text(g, &x), role[i], at);
        }
        n->stretch[0] &= (uint8_t) ~(1u << d);
    }
    const ir_dtype said = dtype_attr(n);
    n->dtype = said ? said : x.dtype;
    copy_dims(n, &x);
    return FUSOR_OK;
}

static fusor_status infer_contract(ir_graph *g, ir_node *n) {
    const ir_node a = *ir_at(g, n->in[0]), b = *ir_at(g, n->in[1]);
    const char *lhs = label(g, n, 0), *rhs = label(g, n, 1);
    const bool ta = attr_of(n, "transpose_a")->integer != 0, tb = attr_of(n, "transpose_b")->integer != 0;
    FU_TRY(check_class(g, n, 0, ir_ops[n->op].classes));
    FU_TRY(check_class(g, n, 1, ir_ops[n->op].classes));
    const bool mixed = (a.dtype == FUSOR_U8 && b.dtype == FUSOR_I8) || (a.dtype == FUSOR_I8 && b.dtype == FUSOR_U8);
    if (a.dtype != b.dtype && !mixed) {
        return TYPE_ERROR(
            "%s is %s but %s is %s; expected one type (u8 with i8 is the one mixed pair): cast one of them", lhs,
            type_text(g, &a), rhs, type_text(g, &b));
    }
    for (unsigned i = 0; i < 2; i++) {
        const ir_node *x = i ? &b : &a;
        if (x->rank == 0)
            return SHAPE_ERROR("%s is the scalar %s; expected rank 1 or more", i ? rhs : lhs, type_text(g, x));
        if (x->rank == 1 && (i ? tb : ta)) {
            return SHAPE_ERROR("transpose_%c=true, but %s is %s; expected rank 2 or more", i ? 'b' : 'a', i ? rhs : lhs,
                               type_text(g, x));
        }
    }
    const unsigned k_of_a = a.rank == 1 ? 0 : ta ? a.rank - 2u : a.rank - 1u;
    const unsigned k_of_b = b.rank == 1 ? 0 : tb ? b.rank - 1u : b.rank - 2u;
    if (!agree(g, n, a.dim[k_of_a], b.dim[k_of_b], lhs, k_of_a, rhs, k_of_b)) {
        return SHAPE_ERROR("%s is %s but %s is %s; expected %s dim %u = %s", lhs, type_text(g, &a), rhs,
                           type_text(g, &b), rhs, k_of_b, size_text(g, a.dim[k_of_a]));
    }
    const unsigned part[2] = {a.rank > 2 ? a.rank - 2u : 0, b.rank > 2 ? b.rank - 2u : 0};
    unsigned rank = part[0] > part[1] ? part[0] : part[1];
    FU_TRY(broadcast(g, n, part, rank));
    if (a.rank > 1) n->dim[rank++] = a.dim[ta ? a.rank - 1 : a.rank - 2];
    if (b.rank > 1) n->dim[rank++] = b.dim[tb ? b.rank - 2 : b.rank - 1];
    n->rank = (uint8_t)rank;
    const ir_dtype said = dtype_attr(n);
    n->dtype = said ? said : ir_is_float(a.dtype) ? a.dtype : default_accumulator(n, a.dtype, b.dtype);
    return FUSOR_OK;
}

static fusor_status infer_reshape(ir_graph *g, ir_node *n) {
    const ir_node x = *ir_at(g, n->in[0]);
    int inferred = -1;
    FU_TRY(shape_attr(g, n, &inferred));
    const ir_size total = ir_node_count(g, &x);
    if (inferred >= 0) {
        n->dim[inferred] = ir_size_const(g->sizes, 1);
        const ir_size rest = ir_node_count(g, n);
        if (ir_size_is(g->sizes, rest, 0)) {
            return SHAPE_ERROR("the size at -1 cannot be inferred: the other sizes of shape= make 0 elements");
        }
        n->dim[inferred] = ir_size_div(g->sizes, total, rest);
    }
    const ir_size count = ir_node_count(g, n);
    if (ir_size_is_huge(g->sizes, total) || ir_size_is_huge(g->sizes, count)) {
        return SHAPE_ERROR("the element count of %s overflows 64 bits, or its expression is too large",
                           type_text(g, ir_size_is_huge(g->sizes, total) ? &x : n));
    }
    if (count == total) return FUSOR_OK;
    if (ir_size_never_equal(g->sizes, count, total)) {
        return SHAPE_ERROR("%s is %s, %s elements, but shape= makes %s; expected as many", label(g, n, 0),
                           type_text(g, &x), size_text(g, total), size_text(g, count));
    }
    const char *what = fu_format(g->arena, "reshape: the elements of %s and of shape= must be as many", label(g, n, 0));
    ir_add_check(g, (ir_check){.a = total, .b = count, .kind = IR_CHECK_EQUAL, .what = what, .loc = n->loc});
    return FUSOR_OK;
}

static fusor_status infer_broadcast_to(ir_graph *g, ir_node *n) {
    const ir_node x = *ir_at(g, n->in[0]);
    FU_TRY(shape_attr(g, n, NULL));
    if (n->rank < x.rank) {
        return SHAPE_ERROR("%s is %s but shape= has %u sizes; expected at least %u", label(g, n, 0), type_text(g, &x),
                           n->rank, x.rank);
    }
    for (unsigned d = 0; d < n->rank; d++) {
        const int k = (int)d - (n->rank - x.rank);
        if (k < 0 || (ir_size_is(g->sizes, x.dim[k], 1) && n->dim[d] != x.dim[k])) {
            n->stretch[0] |= (uint8_t)(1u << d);
        } else if (!agree(g, n, x.dim[k], n->dim[d], label(g, n, 0), (unsigned)k, "shape=", d)) {
            return SHAPE_ERROR("%s is %s but shape= has %s at %u; expected %s", label(g, n, 0), type_text(g, &x),
                               size_text(g, n->dim[d]), d, size_text(g, x.dim[k]));
        }
    }
    return FUSOR_OK;
}

static fusor_status infer_transpose(ir_graph *g, ir_node *n) {
    const ir_node x = *ir_at(g, n->in[0]);
    ir_attr *perm = attr_to_fix(n, "perm");
    n->rank = x.rank;
    if (!perm->is_set) {
        for (unsigned d = 0; d < x.rank; d++) n->dim[d] = x.dim[x.rank - 1 - d];
        return FUSOR_OK;
    }
    if (perm->n != x.rank) {
        return SHAPE_ERROR("%s is %s but perm= has %u axes; expected %u", label(g, n, 0), type_text(g, &x), perm->n,
                           x.rank);
    }
    FU_TRY(fix_axes(g, n, perm, "perm", x.rank, operand_text(g, n), false));
    for (unsigned d = 0; d < x.rank; d++) {
        int64_t axis = 0;
        ir_size_is_const(g->sizes, perm->list[d], &axis);
        n->dim[d] = x.dim[axis];
    }
    return FUSOR_OK;
}

static fusor_status infer_squeeze(ir_graph *g, ir_node *n) {
    const ir_node x = *ir_at(g, n->in[0]);
    FU_TRY(fix_axes(g, n, attr_to_fix(n, "axes"), "axes", x.rank, operand_text(g, n), true));
    const uint32_t mask = ir_node_axes(g, n);
    const ir_size one = ir_size_const(g->sizes, 1);
    n->rank = 0;
    for (unsigned d = 0; d < x.rank; d++) {
        if (!(mask >> d & 1)) {
            n->dim[n->rank++] = x.dim[d];
            continue;
        }
        if (ir_size_never_equal(g->sizes, x.dim[d], one)) {
            return SHAPE_ERROR("%s is %s; expected dim %u = 1", label(g, n, 0), type_text(g, &x), d);
        }
        const char *what = fu_format(g->arena, "squeeze: dim %u of %s must be 1", d, label(g, n, 0));
        ir_add_check(g, (ir_check){.a = x.dim[d], .b = one, .kind = IR_CHECK_EQUAL, .what = what, .loc = n->loc});
    }
    return FUSOR_OK;
}

static fusor_status infer_unsqueeze(ir_graph *g, ir_node *n) {
    const ir_node x = *ir_at(g, n->in[0]);
    ir_attr *axes = attr_to_fix(n, "axes");
    const unsigned rank = x.rank + axes->n;
    if (axes->n > IR_MAX_RANK || rank > IR_MAX_RANK) {
        return SHAPE_ERROR("%s is %s and axes= adds %u dims; a tensor has at most 8", label(g, n, 0), type_text(g, &x),
                           axes->n);
    }
    FU_TRY(fix_axes(g, n, axes, "axes", rank, fu_format(g->arena, "the result of rank %u", rank), true));
    uint32_t mask = 0;
    for (uint32_t i = 0; i < axes->n; i++) {
        int64_t d = 0;
        ir_size_is_const(g->sizes, axes->list[i], &d);
        mask |= 1u << d;
    }
    n->rank = (uint8_t)rank;
    for (unsigned d = 0, k = 0; d < rank; d++) n->dim[d] = mask >> d & 1 ? ir_size_const(g->sizes, 1) : x.dim[k++];
    return FUSOR_OK;
}

static fusor_status infer_view(ir_graph *g, ir_node *n) {
    n->dtype = ir_at(g, n->in[0])->dtype;
    switch (n->op) {
    case IR_OP_RESHAPE: return infer_reshape(g, n);
    case IR_OP_BROADCAST_TO: return infer_broadcast_to(g, n);
    case IR_OP_TRANSPOSE: return infer_transpose(g, n);
    case IR_OP_SQUEEZE: return infer_squeeze(g, n);
    default: return infer_unsqueeze(g, n);
    }
}

static fusor_status infer_create(ir_graph *g, ir_node *n) {
    const ir_dtype said = dtype_attr(n);
    if (n->op == IR_OP_DIM) {
        const ir_node *x = ir_at(g, n->in[0]);
        FU_TRY(fix_axis(g, n, &attr_to_fix(n, "axis")->integer, x->rank, operand_text(g, n)));
        n->dtype = FUSOR_I64;
        n->rank = 0;
        return FUSOR_OK;
    }
    FU_TRY(shape_attr(g, n, NULL));
    if (n->op == IR_OP_IOTA) {
        if (!(ir_dtypes[said].cls & ir_ops[n->op].classes)) {
            return TYPE_ERROR("dtype=%s; expected %s", ir_dtypes[said].name, class_text(ir_ops[n->op].classes));
        }
        n->dtype = said;
        return fix_axis(g, n, &attr_to_fix(n, "axis")->integer, n->rank, "shape=");
    }
    const ir_node *x = ir_at(g, n->in[0]);
    if (x->rank != 0) return SHAPE_ERROR("%s is %s; expected a scalar", label(g, n, 0), type_text(g, x));
    if (said && said != x->dtype) {
        return TYPE_ERROR("%s is %s but dtype=%s; cast the value", label(g, n, 0), type_text(g, x),
                          ir_dtypes[said].name);
    }
    n->dtype = x->dtype;
    n->stretch[0] = (uint8_t)((1u << n->rank) - 1);
    return FUSOR_OK;
}

/* A tensor of random numbers; operand 0 is the seed. */
static fusor_status infer_random(ir_graph *g, ir_node *n) {
    const ir_dtype said = dtype_attr(n), t = said ? said : FUSOR_F32;
    const ir_node *seed = ir_at(g, n->in[0]);
    FU_TRY(shape_attr(g, n, NULL));
    if (!(ir_dtypes[t].cls & ir_ops[n->op].classes))
        return TYPE_ERROR("dtype=%s; expected %s", ir_dtypes[t].name, class_text(ir_ops[n->op].classes));
    if (seed->rank || !(ir_dtypes[seed->dtype].cls & (IR_CLASS_S | IR_CLASS_U)))
        return TYPE_ERROR("seed=%s%s is %s; expected a scalar of an integer type", seed->name ? "%" : "",
                          seed->name ? seed->name : "", type_text(g, seed));
    n->dtype = t;
    n->stretch[0] = (uint8_t)((1u << n->rank) - 1);
    return FUSOR_OK;
}

fusor_status ir_infer(ir_graph *g, ir_node *n, ir_dtype to) {
    if (!n->stretch && n->n_in) n->stretch = FU_NEW_N(g->arena, uint8_t, n->n_in);
    if (n->n_in) memset(n->stretch, 0, n->n_in);
    if (n->op <= IR_OP_NONE || n->op >= IR_OP_COUNT) {
        return FU_FAIL_AT(g->error, FUSOR_ERROR_INTERNAL, g->source, n->loc, "operator %d does not exist", (int)n->op);
    }
    switch (ir_ops[n->op].kind) {
    case IR_KIND_CORE: break; /* parameters, literals and calls come with their types */
    case IR_KIND_EW: FU_TRY(infer_ew(g, n)); break;
    case IR_KIND_CONVERT: FU_TRY(infer_convert(g, n, to)); break;
    case IR_KIND_REDUCE:
    case IR_KIND_ARGREDUCE: FU_TRY(infer_reduce(g, n)); break;
    case IR_KIND_ROW: FU_TRY(infer_row(g, n)); break;
    case IR_KIND_SCAN: FU_TRY(infer_scan(g, n)); break;
    case IR_KIND_NORM: FU_TRY(infer_norm(g, n)); break;
    case IR_KIND_CONTRACT: FU_TRY(infer_contract(g, n)); break;
    case IR_KIND_ATTENTION: FU_TRY(infer_attention(g, n)); break;
    case IR_KIND_VIEW: FU_TRY(infer_view(g, n)); break;
    case IR_KIND_CREATE: FU_TRY(infer_create(g, n)); break;
    case IR_KIND_MOVE: FU_TRY(infer_move(g, n)); break;
    case IR_KIND_INDEX: FU_TRY(infer_index(g, n)); break;
    case IR_KIND_RANDOM: FU_TRY(infer_random(g, n)); break;
    case IR_KIND_WINDOW: FU_TRY(infer_window(g, n)); break;
    case IR_KIND_CONV: FU_TRY(infer_conv(g, n)); break;
    case IR_KIND_EINSUM: FU_TRY(infer_einsum(g, n)); break;
    case IR_KIND_QUANTIZE: FU_TRY(infer_quantize(g, n)); break;
    case IR_KIND_CELL: FU_TRY(infer_cell(g, n)); break;
    }
    return infer_finish(g, n);
}
