/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The reference evaluator: one node at a time, in the order of the graph, each operator as doc/operators.md words it. This
 * file has the walk over a graph, element-wise operators, conversions, views and creation; the files beside it have
 * the rest. */
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
    switch (ir_ops[n->op].kind) {
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

/* ---- graphs ---- */
/* Values in flight. No arena call is made while `owned` memory is held: out of memory there would leak it. */
typedef struct value {
    ref_tensor t;
    uint32_t uses;
    bool is_owned;
} value;

static fusor_status node_shape(const ir_graph *g, fu_error *e, const ir_node *n, const int64_t *symbols,
                               ref_tensor *t) {
    ref_call c = {.g = g, .e = e, .n = n};
    int64_t bytes = ir_dtypes[n->dtype].bytes;
    bool is_empty = false, overflows = false;
    t->dtype = n->dtype;
    t->rank = n->rank;
    for (int d = 0; d < n->rank; d++) {
        if (ir_size_eval(g->sizes, n->dim[d], symbols, &t->shape[d]) != IR_SIZE_OK || t->shape[d] < 0)
            return REF_FAIL(&c, FUSOR_ERROR_SHAPE,
                            "%s: dim %d of the result is not a size (negative, too large, or a division by 0)",
                            ir_ops[n->op].name, d);
        if (t->shape[d] == 0) is_empty = true;
        else overflows |= __builtin_mul_overflow(bytes, t->shape[d], &bytes);
    }
    if (overflows && !is_empty)
        return REF_FAIL(&c, FUSOR_ERROR_SHAPE, "%s: the result has more bytes than 64 bits can count",
                        ir_ops[n->op].name);
    return FUSOR_OK;
}

static size_t tensor_bytes(const ref_tensor *t) {
    size_t bytes = ir_dtypes[t->dtype].bytes;
    for (int d = 0; d < t->rank; d++) {
        if (t->shape[d] == 0) return 0;
        bytes *= (size_t)t->shape[d];
    }
    return bytes;
}

static fusor_status check_inputs(const ir_graph *g, fu_error *e, int n_in, const ref_tensor *in) {
    if ((uint32_t)n_in != g->params.n)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "@%s: %d inputs; expected %u", g->name ? g->name : "", n_in,
                       g->params.n);
    for (int p = 0; p < n_in; p++) {
        const ir_node *n = ir_at(g, g->params.at[p].node);
        if (in[p].dtype != n->dtype)
            return FU_FAIL(e, FUSOR_ERROR_TYPE, "parameter %%%s: %s given; expected %s", g->params.at[p].name,
                           in[p].dtype < IR_DTYPE_COUNT ? ir_dtypes[in[p].dtype].name : "?", ir_dtypes[n->dtype].name);
        if (in[p].rank != n->rank)
            return FU_FAIL(e, FUSOR_ERROR_SHAPE, "parameter %%%s: rank %d given; expected %d", g->params.at[p].name,
                           in[p].rank, n->rank);
    }
    return FUSOR_OK;
}

static void drop(value *v) {
    if (--v->uses || !v->is_owned) return;
    fu_free(v->t.data);
    v->is_owned = false;
}

static fusor_status eval_nodes(const ir_graph *g, fu_error *e, value *values, ref_tensor *operands,
                               const int64_t *symbols) {
    for (ir_id id = 1; id < g->nodes.n; id++) {
        const ir_node *n = ir_at(g, id);
        value *v = &values[id];
        if (!v->uses || n->op == IR_OP_PARAM) continue;
        if (!v->t.data) {
            size_t bytes = tensor_bytes(&v->t);
            v->t.data = fu_malloc(bytes ? bytes : 1);
            if (!v->t.data)
                return FU_FAIL(e, FUSOR_ERROR_MEMORY, "%s: no memory for its result of %zu bytes", ir_ops[n->op].name,
                               bytes);
            v->is_owned = true;
        }
        for (int k = 0; k < n->n_in; k++) operands[k] = values[n->in[k]].t;
        FU_TRY(ref_eval_node(g, e, n, operands, &v->t, symbols));
        for (int k = 0; k < n->n_in; k++) drop(&values[n->in[k]]);
    }
    return FUSOR_OK;
}

fusor_status ref_eval(fu_arena *a, fu_error *e, const ir_graph *g, int n_in, const ref_tensor *in, int n_out,
                      ref_tensor *out) {
    FU_TRY(check_inputs(g, e, n_in, in));
    if ((uint32_t)n_out != g->results.n)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "@%s: room for %d results; expected %u", g->name ? g->name : "", n_out,
                       g->results.n);
    int64_t *symbols = FU_NEW_N(a, int64_t, ir_size_symbol_count(g->sizes) + 1);
    const int64_t **shape = FU_NEW_N(a, const int64_t *, n_in + 1);
    for (int p = 0; p < n_in; p++) shape[p] = in[p].shape;
    FU_TRY(ir_bind_sizes(g, e, shape, symbols));

    /* Uses of live nodes; a result's use is never dropped. */
    value *values = FU_NEW_N(a, value, g->nodes.n + 1);
    const uint32_t *uses = ir_use_counts(a, g);
    uint32_t most = 1;
    for (ir_id id = g->nodes.n; id-- > 1;) {
        const ir_node *n = ir_at(g, id);
        values[id].uses = uses[id];
        if (!uses[id]) continue;
        if (n->n_in > most) most = n->n_in;
        if (n->op == IR_OP_PARAM) values[id].t = in[n->index];
        else FU_TRY(node_shape(g, e, n, symbols, &values[id].t));
    }
    for (int r = 0; r < n_out; r++) {
        value *v = &values[g->results.at[r].node];
        ref_tensor *o = &out[r];
        if (o->data && (o->dtype != v->t.dtype || o->rank != v->t.rank ||
                        memcmp(o->shape, v->t.shape, sizeof *o->shape * (size_t)v->t.rank) != 0))
            return FU_FAIL(e, FUSOR_ERROR_SHAPE, "result %%%s: the memory given is of another type or shape",
                           g->results.at[r].name);
        void *data = o->data ? o->data : fu_alloc(a, tensor_bytes(&v->t) + 1);
        if (!v->t.data) v->t.data = data; /* evaluated in place; other results of the node are copies */
        *o = v->t;
        o->data = data;
    }
    ref_tensor *operands = FU_NEW_N(a, ref_tensor, most);
    fusor_status status = eval_nodes(g, e, values, operands, symbols);
    for (ir_id id = 1; id < g->nodes.n; id++)
        if (values[id].is_owned) fu_free(values[id].t.data);
    FU_TRY(status);
    for (int r = 0; r < n_out; r++) {
        const value *v = &values[g->results.at[r].node];
        if (out[r].data != v->t.data && tensor_bytes(&v->t)) memmove(out[r].data, v->t.data, tensor_bytes(&v->t));
    }
    return FUSOR_OK;
}
