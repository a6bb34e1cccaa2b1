/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The reference evaluator: one node at a time, each operator as doc/operators.md words it. This file has element-wise
 * operators, conversions, views and creation; the files beside it have the rest. */
#include "ref/kinds.h"
#include "ir/scalar.h"

/* ---- shared helpers ---- */
void ref_put_real(ref_tensor *t, int64_t i, long double v) {
    if (t->dtype == FUSOR_F32) {
        float f = (float)v;
        memcpy((char *)t->data + 4 * i, &f, 4);
        return;
    }
    ref_put(t, i, ir_scalar_of(t->dtype, (double)v));
}

static int attr_index(const ir_node *n, const char *name) {
    const ir_op_info *info = &ir_ops[n->op];
    for (int i = 0; i < info->n_attrs; i++)
        if (strcmp(info->attrs[i].name, name) == 0) return i;
    return -1;
}

const ir_attr *ref_attr(const ir_node *n, const char *name) {
    const ir_attr *a = ir_node_attr(n, name);
    return a && a->is_set ? a : NULL;
}

int64_t ref_attr_int(const ir_node *n, const char *name) {
    const ir_attr *a = ref_attr(n, name);
    int i = attr_index(n, name);
    return a ? a->integer : i >= 0 ? (int64_t)ir_ops[n->op].attrs[i].default_value : 0;
}

fusor_status ref_attr_axes(const ref_call *c, const char *name, int rank, uint32_t absent, uint32_t *mask_out) {
    const ir_attr *a = ref_attr(c->n, name);
    uint32_t mask = 0;
    int i = attr_index(c->n, name);
    if (!a) {
        *mask_out = absent;
        return FUSOR_OK;
    }
    bool is_list = ir_attr_is_list(ir_ops[c->n->op].attrs[i].type);
    for (uint32_t k = 0; k < (is_list ? a->n : 1); k++) {
        int64_t axis = a->integer;
        if (is_list && ir_size_eval(c->g->sizes, a->list[k], c->symbols, &axis) != IR_SIZE_OK) axis = INT64_MAX;
        if (axis < -rank || axis >= rank)
            return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: axis %lld of a tensor of rank %d; expected %d to %d",
                            ir_ops[c->n->op].name, (long long)axis, rank, -rank, rank - 1);
        mask |= 1u << (axis < 0 ? axis + rank : axis);
    }
    *mask_out = mask;
    return FUSOR_OK;
}

void ref_strides(int rank, const int64_t *dim, int64_t *stride_out) {
    int64_t s = 1;
    for (int d = rank - 1; d >= 0; d--) {
        stride_out[d] = s;
        s *= dim[d];
    }
}

void ref_walk_init(ref_walk *w, int n, int rank, const int64_t *dim) {
    memset(w, 0, sizeof *w);
    w->n = n;
    w->rank = rank;
    for (int d = 0; d < rank; d++) w->dim[d] = dim[d];
}

bool ref_walk_next(ref_walk *w) {
    int last = w->rank - 1;
    if (!w->started) {
        w->started = true;
        for (int d = 0; d < w->rank; d++)
            if (w->dim[d] == 0) return false;
        w->inner = w->rank ? w->dim[last] : 1;
        for (int k = 0; k < w->n; k++) w->step[k] = w->rank ? w->stride[k][last] : 0;
        return true;
    }
    for (int d = last - 1; d >= 0; d--) {
        for (int k = 0; k < w->n; k++) w->offset[k] += w->stride[k][d];
        if (++w->at[d] < w->dim[d]) return true;
        w->at[d] = 0;
        for (int k = 0; k < w->n; k++) w->offset[k] -= w->stride[k][d] * w->dim[d];
    }
    return false;
}

/* Strides that read `t` at the positions of the result: 0 where it stretches. stretch: the node's mask for it, or -1:
 * by sizes. */
static fusor_status broadcast_strides(const ref_call *c, int k, const ref_tensor *t, int stretch, int64_t *stride_out) {
    const ref_tensor *out = c->out;
    int64_t own[IR_MAX_RANK];
    int lead = out->rank - t->rank;
    if (lead < 0)
        return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: operand %d has rank %d; the result has rank %d",
                        ir_ops[c->n->op].name, k, t->rank, out->rank);
    ref_strides(t->rank, t->shape, own);
    for (int d = 0; d < out->rank; d++) {
        bool missing = d < lead;
        int64_t size = missing ? 1 : t->shape[d - lead];
        bool stretches = missing || (stretch < 0 ? size == 1 : (stretch >> d & 1) != 0);
        if (size != (stretches ? 1 : out->shape[d]))
            return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: dim %d of operand %d is %lld; expected %lld",
                            ir_ops[c->n->op].name, d - lead, k, (long long)size,
                            (long long)(stretches ? 1 : out->shape[d]));
        stride_out[d] = stretches ? 0 : own[d - lead];
    }
    return FUSOR_OK;
}

/* ---- kinds ---- */
static fusor_status eval_ew(const ref_call *c) {
    const ir_node *n = c->n;
    const ir_op_info *info = &ir_ops[n->op];
    double attr[IR_MAX_ATTRS] = {0};
    int variant = 0, n_in = n->n_in;
    for (int i = 0; i < info->n_attrs; i++) {
        bool is_set = n->attr && n->attr[i].is_set;
        if (info->attrs[i].type == IR_ATTR_FLOAT) attr[i] = is_set ? n->attr[i].number : info->attrs[i].default_value;
        if (info->attrs[i].type == IR_ATTR_ENUM)
            variant = (int)(is_set ? n->attr[i].integer : info->attrs[i].default_value);
    }
    if (n_in < 1 || n_in > 3)
        return REF_FAIL(c, FUSOR_ERROR_INTERNAL, "%s: %d operands; expected 1 to 3", info->name, n_in);
    ir_dtype t = c->in[n_in - 1].dtype; /* the last operand is always of the main role */
    ref_walk w;
    ref_walk_init(&w, n_in, c->out->rank, c->out->shape);
    for (int k = 0; k < n_in; k++)
        FU_TRY(broadcast_strides(c, k, &c->in[k], n->stretch ? n->stretch[k] : -1, w.stride[k]));
    int64_t o = 0;
    while (ref_walk_next(&w))
        for (int64_t j = 0; j < w.inner; j++, o++) {
            ir_bits x[3];
            for (int k = 0; k < n_in; k++) x[k] = ref_get(&c->in[k], w.offset[k] + j * w.step[k]);
            ref_put(c->out, o, ir_scalar_ew(n->op, t, x, attr, variant));
        }
    return FUSOR_OK;
}

static fusor_status eval_convert(const ref_call *c) {
    int64_t n = ref_count(c->out);
    ir_dtype from = c->in->dtype, to = c->out->dtype;
    if (c->n->op == IR_OP_BITCAST || from == to) {
        if (n) memmove(c->out->data, c->in->data, (size_t)n * ir_dtypes[to].bytes);
        return FUSOR_OK;
    }
    for (int64_t i = 0; i < n; i++) ref_put(c->out, i, ir_scalar_cast(from, to, ref_get(c->in, i)));
    return FUSOR_OK;
}

static fusor_status eval_view(const ref_call *c) {
    const ref_tensor *x = c->in;
    ref_tensor *out = c->out;
    ref_walk w;
    ref_walk_init(&w, 1, out->rank, out->shape);
    if (c->n->op == IR_OP_TRANSPOSE) {
        const ir_attr *perm = ref_attr(c->n, "perm");
        int64_t own[IR_MAX_RANK];
        ref_strides(x->rank, x->shape, own);
        for (int d = 0; d < out->rank; d++) {
            int64_t from = x->rank - 1 - d;
            if (perm &&
                ((uint32_t)d >= perm->n || ir_size_eval(c->g->sizes, perm->list[d], c->symbols, &from) != IR_SIZE_OK))
                from = x->rank;
            if (from < 0) from += x->rank;
            if (from < 0 || from >= x->rank || x->shape[from] != out->shape[d])
                return REF_FAIL(c, FUSOR_ERROR_SHAPE, "transpose: result dim %d is no dim of the operand", d);
            w.stride[0][d] = own[from];
        }
    } else if (c->n->op == IR_OP_BROADCAST_TO) {
        FU_TRY(broadcast_strides(c, 0, x, c->n->stretch ? c->n->stretch[0] : -1, w.stride[0]));
    } else { /* reshape, squeeze, unsqueeze: the same elements in the same order */
        if (ref_count(x) != ref_count(out))
            return REF_FAIL(c, FUSOR_ERROR_SHAPE, "%s: %lld elements; expected %lld", ir_ops[c->n->op].name,
                            (long long)ref_count(x), (long long)ref_count(out));
        if (ref_count(x)) memmove(out->data, x->data, (size_t)ref_count(x) * ir_dtypes[x->dtype].bytes);
        return FUSOR_OK;
    }
    int64_t o = 0;
    while (ref_walk_next(&w))
        for (int64_t j = 0; j < w.inner; j++) ref_put(out, o++, ref_get(x, w.offset[0] + j * w.step[0]));
    return FUSOR_OK;
}

static fusor_status eval_create(const ref_call *c) {
    ref_tensor *out = c->out;
    int64_t n = ref_count(out);
    uint32_t mask;
    switch (c->n->op) {
    case IR_OP_FULL: {
        ir_bits v = ir_scalar_cast(c->in->dtype, out->dtype, ref_get(c->in, 0));
        for (int64_t i = 0; i < n; i++) ref_put(out, i, v);
        return FUSOR_OK;
    }
    case IR_OP_IOTA: {
        FU_TRY(ref_attr_axes(c, "axis", out->rank, out->rank ? 1 : 0, &mask));
        ref_walk w;
        ref_walk_init(&w, 1, out->rank, out->shape);
        for (int d = 0; d < out->rank; d++) w.stride[0][d] = mask >> d & 1; /* the offset is the index along the axis */
        int64_t o = 0;
        while (ref_walk_next(&w))
            for (int64_t j = 0; j < w.inner; j++)
                ref_put(out, o++, ir_scalar_cast(FUSOR_I64, out->dtype, (ir_bits)(w.offset[0] + j * w.step[0])));
        return FUSOR_OK;
    }
    case IR_OP_DIM:
        FU_TRY(ref_attr_axes(c, "axis", c->in->rank, c->in->rank ? 1 : 0, &mask));
        if (!mask) return REF_FAIL(c, FUSOR_ERROR_SHAPE, "dim: the operand is a scalar; it has no axis");
        ref_put(out, 0, (ir_bits)c->in->shape[__builtin_ctz(mask)]);
        return FUSOR_OK;
    default:
        return REF_FAIL(c, FUSOR_ERROR_INTERNAL, "%s: the reference evaluator has no rule for it",
                        ir_ops[c->n->op].name);
    }
}

fusor_status ref_eval_node(const ir_graph *g, fu_error *e, const ir_node *n, const ref_tensor *in, ref_tensor *out,
                           const int64_t *symbol_values) {
    ref_call c = {.g = g, .e = e, .n = n, .in = in, .out = out, .symbols = symbol_values};
    const ir_kind kind = ir_ops[n->op].kind;
    /* There may be any number of lines without an element. */
    if ((kind == IR_KIND_SCAN || kind == IR_KIND_ROW || kind == IR_KIND_NORM) && ref_count(out) == 0) return FUSOR_OK;
    switch (kind) {
    case IR_KIND_EW: return eval_ew(&c);
    case IR_KIND_CONVERT: return eval_convert(&c);
    case IR_KIND_REDUCE: return ref_reduce(&c);
    case IR_KIND_ARGREDUCE: return ref_argreduce(&c);
    case IR_KIND_ROW: return ref_row(&c);
    case IR_KIND_SCAN: return ref_scan(&c);
    case IR_KIND_NORM: return ref_norm(&c);
    case IR_KIND_CONTRACT: return ref_contract(&c);
    case IR_KIND_ATTENTION: return ref_attention(&c);
    case IR_KIND_VIEW: return eval_view(&c);
    case IR_KIND_CREATE: return eval_create(&c);
    case IR_KIND_MOVE: return ref_move(&c);
    case IR_KIND_INDEX: return ref_index(&c);
    case IR_KIND_RANDOM: return ref_random(&c);
    case IR_KIND_WINDOW: return ref_window(&c);
    case IR_KIND_CONV: return ref_conv(&c);
    case IR_KIND_EINSUM: return ref_einsum(&c);
    case IR_KIND_QUANTIZE: return ref_quantize(&c);
    case IR_KIND_CELL: return ref_cell(&c, NULL, NULL, 0);
    case IR_KIND_CORE: break;
    }
    if (n->op != IR_OP_LITERAL)
        return REF_FAIL(&c, FUSOR_ERROR_INTERNAL,
                        "a node of kind %d has no value of its own; expected a flattened graph", (int)n->op);
    ref_put(out, 0, n->bits);
    return FUSOR_OK;
}
