/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* flatten.c: how a call binds sizes, and a function with all calls inlined. Calls nest as deep as the text says, so the
 * walk keeps its own stack. */
#include "base/small.h"
#include "ir/call.h"
#include <string.h>

static const ir_size UNBOUND = UINT32_MAX;

static const char *size_text(fu_arena *a, const ir_sizes *s, ir_size x) {
    fu_str text;
    fu_str_init(&text, a);
    ir_size_print(&text, s, x);
    return text.at;
}

const char *ir_call_name(fu_arena *a, const ir_graph *callee, const char *name, bool is_inner) {
    return is_inner ? name : fu_format(a, "%s.%s", callee->name, name);
}

/* ---- binding ---- */

/* The symbol of g for a size that no argument gives. An ident of the user's own that reads the same is refused: it
 * would quietly be taken for equal. */
static fusor_status outer_symbol(ir_graph *g, const ir_graph *callee, const char *name, bool is_inner, fu_loc loc,
                                 bool demand, ir_size *out) {
    const char *full = ir_call_name(g->arena, callee, name, is_inner);
    if (demand && ir_size_find_symbol(g->sizes, full) >= 0) {
        ir_size symbol = ir_size_sym(g->sizes, full);
        for (uint32_t p = 0; p < g->params.n; p++) {
            const ir_node *n = ir_at(g, g->params.at[p].node);
            for (unsigned d = 0; d < n->rank; d++)
                if (n->dim[d] == symbol)
                    return FU_FAIL_AT(
                        g->error, FUSOR_ERROR_SHAPE, g->source, loc,
                        "call of @%s: size %s of @%s reads like the size that @%s takes from its source; rename it",
                        callee->name, full, g->name, callee->name);
        }
    }
    *out = ir_size_sym(g->sizes, full);
    return FUSOR_OK;
}

static void bind_symbol(const ir_graph *callee, ir_size dim, ir_size to, ir_size *map) {
    uint32_t symbol;
    if (ir_size_is_symbol(callee->sizes, dim, &symbol) && map[symbol] == UNBOUND) map[symbol] = to;
}

static fusor_status must_equal(ir_graph *g, const ir_graph *callee, const char *param, unsigned d, ir_size got,
                               ir_size want, const ir_node *call) {
    if (got == want) return FUSOR_OK;
    if (ir_size_never_equal(g->sizes, got, want))
        return FU_FAIL_AT(g->error, FUSOR_ERROR_SHAPE, g->source, call->loc,
                          "call of @%s: dim %u of argument %%%s is %s, expected %s", callee->name, d, param,
                          size_text(g->arena, g->sizes, got), size_text(g->arena, g->sizes, want));
    ir_add_check(
        g, (ir_check){.a = got,
                      .b = want,
                      .kind = IR_CHECK_EQUAL,
                      .loc = call->loc,
                      .meta_name = call->meta_name,
                      .meta_loc = call->meta_loc,
                      .origin = IR_CHECK_COPIED,
                      .what = fu_format(g->arena, "call of @%s: dim %u of argument %%%s", callee->name, d, param)});
    return FUSOR_OK;
}

static fusor_status copy_check(ir_graph *g, const ir_graph *callee, const ir_check *c, const ir_size *map,
                               const ir_node *call) {
    ir_sizes *s = g->sizes;
    const fu_loc loc = call->loc;
    ir_check to = *c;
    if (!to.meta_name) to.meta_name = call->meta_name; /* what a statement does not say of itself, its calls say */
    if (!to.meta_loc) to.meta_loc = call->meta_loc;
    if (to.origin != IR_CHECK_INFERRED) to.origin = IR_CHECK_COPIED;
    int64_t a, b;
    to.a = ir_size_substitute(s, callee->sizes, c->a, map);
    if (c->kind != IR_CHECK_NOT_NEGATIVE) to.b = ir_size_substitute(s, callee->sizes, c->b, map);
    bool fails = false;
    if (c->kind == IR_CHECK_EQUAL) fails = to.a != to.b && ir_size_never_equal(s, to.a, to.b);
    else if (ir_size_is_const(s, to.a, &a) && c->kind == IR_CHECK_NOT_NEGATIVE) fails = a < 0;
    else if (ir_size_is_const(s, to.a, &a)) {
        if (a != 0) return FUSOR_OK;
        fails = ir_size_is_const(s, to.b, &b) && b != 0;
    }
    if (!fails) {
        ir_add_check(g, to);
        return FUSOR_OK;
    }
    if (c->kind == IR_CHECK_EQUAL)
        return FU_FAIL_AT(g->error, FUSOR_ERROR_SHAPE, g->source, loc, "call of @%s, line %u: %s: %s but %s",
                          callee->name, c->loc.line, c->what, size_text(g->arena, s, to.a),
                          size_text(g->arena, s, to.b));
    return FU_FAIL_AT(g->error, FUSOR_ERROR_SHAPE, g->source, loc, "call of @%s, line %u: %s (size %s)", callee->name,
                      c->loc.line, c->what, size_text(g->arena, s, to.a));
}

fusor_status ir_call_bind(ir_graph *g, const ir_graph *callee, uint32_t n_args, const ir_id *arg, const ir_node *call,
                          bool demand, ir_size *map) {
    const fu_loc loc = call->loc;
    uint32_t n_symbols = ir_size_symbol_count(callee->sizes);
    bool *has_param = FU_NEW_N(g->arena, bool, n_symbols);
    for (uint32_t i = 0; i < n_symbols; i++) map[i] = UNBOUND;
    for (uint32_t p = 0; p < callee->params.n; p++) {
        const ir_node *n = ir_at(callee, callee->params.at[p].node);
        for (unsigned d = 0; d < n->rank; d++) {
            uint32_t symbol;
            if (ir_size_is_symbol(callee->sizes, n->dim[d], &symbol)) has_param[symbol] = true;
            if (p < n_args) bind_symbol(callee, n->dim[d], ir_at(g, arg[p])->dim[d], map);
        }
    }
    for (uint32_t p = n_args; p < callee->params.n; p++) {
        const ir_param *param = &callee->params.at[p];
        const ir_node *n = ir_at(callee, param->node);
        for (unsigned d = 0; d < n->rank && param->has_value && param->value_rank; d++)
            bind_symbol(callee, n->dim[d], ir_size_const(g->sizes, param->value_dim[d]), map);
    }
    for (uint32_t p = n_args; p < callee->params.n; p++) {
        const ir_param *param = &callee->params.at[p];
        const ir_node *n = ir_at(callee, param->node);
        for (unsigned d = 0; d < n->rank && param->path; d++) {
            uint32_t symbol;
            if (!ir_size_is_symbol(callee->sizes, n->dim[d], &symbol) || map[symbol] != UNBOUND) continue;
            FU_TRY(
                outer_symbol(g, callee, ir_size_symbol_name(callee->sizes, symbol), false, loc, demand, &map[symbol]));
        }
    }
    for (uint32_t i = 0; i < n_symbols; i++) {
        if (map[i] != UNBOUND) continue;
        const char *name = ir_size_symbol_name(callee->sizes, i);
        if (has_param[i])
            return FU_FAIL_AT(
                g->error, FUSOR_ERROR_SHAPE, g->source, loc,
                "call of @%s: no argument gives the size %s; pass the parameter that has it as a dimension",
                callee->name, name);
        FU_TRY(outer_symbol(g, callee, name, true, loc, demand, &map[i]));
    }
    if (!demand) return FUSOR_OK;
    for (uint32_t p = 0; p < callee->params.n; p++) {
        const ir_param *param = &callee->params.at[p];
        const ir_node *n = ir_at(callee, param->node);
        if (p >= n_args && !(param->has_value && param->value_rank)) continue;
        for (unsigned d = 0; d < n->rank; d++) {
            ir_size want = ir_size_substitute(g->sizes, callee->sizes, n->dim[d], map);
            ir_size got = p < n_args ? ir_at(g, arg[p])->dim[d] : ir_size_const(g->sizes, param->value_dim[d]);
            FU_TRY(must_equal(g, callee, param->name, d, got, want, call));
        }
    }
    for (uint32_t i = 0; i < callee->checks.n; i++) FU_TRY(copy_check(g, callee, &callee->checks.at[i], map, call));
    return FUSOR_OK;
}

/* ---- inlining ---- */

typedef struct frame {
    const ir_graph *f;
    ir_size *map; /* f's symbols in the result's sizes; NULL for the function itself, whose sizes are the result's */
    ir_id *node;  /* f's nodes in the result; of a CALL: 0 */
    ir_id **call; /* of a CALL: what its results became */
    ir_id next;   /* the next node of f to copy */
    ir_id caller_node;                /* the CALL in the frame below */
    const char *meta_name, *meta_loc; /* of the innermost call that has them */
} frame;

typedef struct flattener {
    fu_arena *a;
    const ir_module *m;
    ir_graph *out;
    fu_map params; /* extra parameters by hash of (callee, name) */
    fu_map functions;
    fu_vec(frame) stack;
} flattener;

static ir_size size_of(flattener *x, const frame *f, ir_size s) {
    return f->map ? ir_size_substitute(x->out->sizes, f->f->sizes, s, f->map) : s;
}

static const ir_graph *find_function(flattener *x, const char *name) {
    /* Made at the first call: most functions have none. */
    for (uint32_t i = x->functions.n; i < x->m->functions.n; i++)
        fu_map_add(&x->functions, fu_hash(x->m->functions.at[i]->name, strlen(x->m->functions.at[i]->name), 0), i);
    uint64_t h = fu_hash(name, strlen(name), 0);
    for (uint32_t i = fu_map_find(&x->functions, h); i != UINT32_MAX; i = fu_map_next(&x->functions, h, i)) {
        const ir_graph *f = x->m->functions.at[x->functions.value[i]];
        if (strcmp(f->name, name) == 0) return f;
    }
    return NULL;
}

/* `id` as an operand of exactly these sizes. An argument whose size is another expression of the same value (which a
 * check guarantees) goes through a reshape, so that the callee's nodes keep the types that its text gives them. */
static ir_id with_sizes(ir_graph *g, ir_id id, unsigned rank, const ir_size *dim, fu_loc loc) {
    const ir_node *n = ir_at(g, id);
    if (rank == 0 || memcmp(n->dim, dim, rank * sizeof *dim) == 0) return id;
    ir_attr attr[IR_MAX_ATTRS] = {{0}};
    attr[0] = (ir_attr){.is_set = true, .list = fu_dup(g->arena, dim, rank * sizeof *dim), .n = rank};
    ir_operand in = ir_use(id);
    return ir_add(g, IR_OP_RESHAPE, 1, &in, attr, 0, loc);
}

/* A parameter with a source that the call leaves out. One number: a constant tensor. Else: a parameter of the result,
 * one for all calls that want it with the same sizes. */
static ir_id left_out(flattener *x, const frame *f, uint32_t p) {
    ir_graph *g = x->out;
    const ir_param *from = &f->f->params.at[p];
    const ir_node *n = ir_at(f->f, from->node);
    ir_size dim[IR_MAX_RANK];
    for (unsigned d = 0; d < n->rank; d++) dim[d] = size_of(x, f, n->dim[d]);
    if (from->has_value && from->value_rank == 0) {
        ir_attr attr[IR_MAX_ATTRS] = {{0}};
        const ir_op_info *info = &ir_ops[IR_OP_FULL];
        for (unsigned i = 0; i < info->n_attrs; i++) {
            if (info->attrs[i].type == IR_ATTR_SIZES)
                attr[i] = (ir_attr){.is_set = true, .list = fu_dup(g->arena, dim, n->rank * sizeof *dim), .n = n->rank};
            else if (info->attrs[i].type == IR_ATTR_DTYPE) attr[i] = (ir_attr){.is_set = true, .integer = n->dtype};
        }
        ir_operand in = ir_use(ir_add_literal(g, n->dtype, from->value[0]));
        return ir_add(g, IR_OP_FULL, 1, &in, attr, 0, (fu_loc){0, 0});
    }
    const char *name = ir_call_name(x->a, f->f, from->name, false);
    uint64_t h = fu_hash(name, strlen(name), 0);
    uint32_t same = 0;
    for (uint32_t i = fu_map_find(&x->params, h); i != UINT32_MAX; i = fu_map_next(&x->params, h, i), same++) {
        ir_id id = g->params.at[x->params.value[i]].node;
        if (ir_at(g, id)->rank == n->rank && memcmp(ir_at(g, id)->dim, dim, n->rank * sizeof *dim) == 0) return id;
    }
    if (same) name = fu_format(x->a, "%s.%u", name, same);
    ir_id id = ir_add_param(g, name, n->dtype, n->rank, dim, from->loc);
    if (!id) return 0;
    ir_param *to = &g->params.at[g->params.n - 1];
    uint16_t index = ir_at(g, id)->index;
    *to = *from;
    to->name = name;
    to->node = id;
    ir_at(g, id)->index = index;
    fu_map_add(&x->params, h, g->params.n - 1);
    return id;
}

/* Enters the function that node `id` of the top frame calls. */
static fusor_status enter_call(flattener *x, ir_id id) {
    frame *top = &x->stack.at[x->stack.n - 1];
    const ir_node *call = ir_at(top->f, id);
    const ir_graph *f = find_function(x, call->callee);
    ir_graph *g = x->out;
    if (!f)
        return FU_FAIL_AT(g->error, FUSOR_ERROR_SYNTAX, g->source, call->loc, "there is no function @%s", call->callee);
    if (call->n_in > f->params.n)
        return FU_FAIL_AT(g->error, FUSOR_ERROR_TYPE, g->source, call->loc, "@%s takes %u arguments, got %u",
                          call->callee, f->params.n, call->n_in);
    frame inner = {.f = f, .next = 1, .caller_node = id};
    inner.meta_name = call->meta_name ? call->meta_name : top->meta_name;
    inner.meta_loc = call->meta_loc ? call->meta_loc : top->meta_loc;
    inner.map = FU_NEW_N(x->a, ir_size, ir_size_symbol_count(f->sizes));
    inner.node = FU_NEW_N(x->a, ir_id, f->nodes.n);
    inner.call = FU_NEW_N(x->a, ir_id *, f->nodes.n);
    ir_id *arg = FU_NEW_N(x->a, ir_id, call->n_in);
    for (unsigned i = 0; i < call->n_in; i++) arg[i] = top->node[call->in[i]];
    FU_TRY(ir_call_bind(g, f, call->n_in, arg, call, false, inner.map));
    for (uint32_t p = 0; p < f->params.n; p++) {
        const ir_node *n = ir_at(f, f->params.at[p].node);
        ir_id got;
        if (p < call->n_in) {
            ir_size dim[IR_MAX_RANK];
            for (unsigned d = 0; d < n->rank; d++) dim[d] = size_of(x, &inner, n->dim[d]);
            got = with_sizes(g, arg[p], n->rank, dim, call->loc);
        } else {
            got = left_out(x, &inner, p);
        }
        if (!got) return g->error->status ? g->error->status : FUSOR_ERROR_INTERNAL;
        inner.node[f->params.at[p].node] = got;
    }
    fu_push(x->a, &x->stack, inner);
    return FUSOR_OK;
}

static void leave_call(flattener *x) {
    frame done = x->stack.at[--x->stack.n];
    ir_map_hints(x->out, done.f, done.node);
    frame *top = &x->stack.at[x->stack.n - 1];
    ir_id *result = FU_NEW_N(x->a, ir_id, done.f->results.n);
    for (uint32_t i = 0; i < done.f->results.n; i++) result[i] = done.node[done.f->results.at[i].node];
    top->call[done.caller_node] = result;
}

static fusor_status copy_node(flattener *x, frame *f, ir_id id) {
    const ir_node *from = ir_at(f->f, id);
    ir_graph *g = x->out;
    ir_node n = *from;
    ir_id *in = FU_NEW_N(x->a, ir_id, n.n_in);
    bool is_huge = false;
    for (unsigned k = 0; k < n.n_in; k++) in[k] = f->node[n.in[k]];
    n.in = in;
    for (unsigned d = 0; d < n.rank; d++) {
        n.dim[d] = size_of(x, f, n.dim[d]);
        is_huge |= ir_size_is_huge(g->sizes, n.dim[d]);
    }
    if (n.attr && f->map) {
        n.attr = fu_dup(x->a, n.attr, ir_ops[n.op].n_attrs * sizeof *n.attr);
        for (unsigned i = 0; i < ir_ops[n.op].n_attrs; i++) {
            ir_attr *attr = &n.attr[i];
            if (!attr->n) continue;
            attr->list = FU_NEW_N(x->a, ir_size, attr->n);
            for (uint32_t k = 0; k < attr->n; k++) {
                ir_size size = from->attr[i].list[k];
                /* What -1 stands for is known, and with other sizes of 0 it would not be again. */
                if (n.op == IR_OP_RESHAPE && ir_size_is(f->f->sizes, size, -1) &&
                    ir_size_is_writable(g->sizes, n.dim[k]))
                    attr->list[k] = n.dim[k];
                else attr->list[k] = size_of(x, f, size);
                is_huge |= ir_size_is_huge(g->sizes, attr->list[k]);
            }
        }
    }
    if (is_huge && f->map)
        return FU_FAIL_AT(g->error, FUSOR_ERROR_SHAPE, g->source, ir_at(f[-1].f, f->caller_node)->loc,
                          "call of @%s, line %u: a size does not fit in 64 bits", f->f->name, n.loc.line);
    /* What an inlined operator does not say of itself, its calls say. */
    if (!n.meta_name) n.meta_name = f->meta_name;
    if (!n.meta_loc) n.meta_loc = f->meta_loc;
    f->node[id] = ir_add_raw(g, &n);
    return FUSOR_OK;
}

fusor_status ir_flatten(fu_arena *a, fu_error *e, const ir_module *m, const ir_graph *f, ir_graph **out) {
    flattener *x = FU_NEW(a, flattener);
    x->a = a;
    x->m = m;
    fu_map_init(&x->params, a);
    fu_map_init(&x->functions, a);
    ir_graph *g = x->out = ir_graph_new(a, e, f->source, f->name);
    g->loc = f->loc;
    g->sizes = ir_sizes_copy(a, f->sizes);
    for (uint32_t i = 0; i < f->checks.n; i++) fu_push(a, &g->checks, f->checks.at[i]);
    frame whole = {.f = f, .next = 1, .node = FU_NEW_N(a, ir_id, f->nodes.n), .call = FU_NEW_N(a, ir_id *, f->nodes.n)};
    fu_push(a, &x->stack, whole);
    for (uint32_t p = 0; p < f->params.n; p++) {
        ir_param param = f->params.at[p];
        ir_id id = ir_add_raw(g, ir_at(f, param.node));
        x->stack.at[0].node[param.node] = id;
        param.node = id;
        fu_push(a, &g->params, param);
    }
    while (x->stack.n > 1 || x->stack.at[0].next < f->nodes.n) {
        frame *top = &x->stack.at[x->stack.n - 1];
        if (top->next >= top->f->nodes.n) {
            leave_call(x);
            continue;
        }
        ir_id id = top->next++;
        const ir_node *n = ir_at(top->f, id);
        if (n->op == IR_OP_PARAM || n->op == IR_OP_NONE) continue;
        if (n->op == IR_OP_CALL) FU_TRY(enter_call(x, id));
        else if (n->op == IR_OP_RESULT) top->node[id] = top->call[n->in[0]][n->index];
        else FU_TRY(copy_node(x, top, id));
    }
    for (uint32_t i = 0; i < f->results.n; i++) {
        ir_result r = f->results.at[i];
        r.node = x->stack.at[0].node[r.node];
        fu_push(a, &g->results, r);
    }
    ir_map_hints(g, f, x->stack.at[0].node);
    *out = g;
    return FUSOR_OK;
}
