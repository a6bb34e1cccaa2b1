/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* builder.c: functions built by calls. Between begin and end of a function the calling thread has it open; operators of
 * op.h on its parameters add nodes to its graph, by the same ir_add as the parser. The first error sticks and end
 * reports it; then the function is not in the module.
 *
 * A handle has the builder's address with its low bit set as owner, the node as slot and the function's serial number
 * as generation. It is only looked at where it belongs to the function that this thread has open, so a handle that was
 * kept too long is an error and never a pointer to freed memory. */
#include "base/small.h"
#include "base/error.h"
#include "fusor/graph.h"
#include "ir/lex.h"
#include "op_call.h"
#include "rt/fpenv.h"

struct builder_state {
    fusor_module *module; /* borrowed: it owns this */
    ir_graph *g;          /* NULL between functions */
    uint32_t serial;
    fu_error error;
    jmp_buf oom;
};
static _Thread_local struct builder_state *current;

static void *owner_of(const struct builder_state *b) { return (void *)((uintptr_t)b | 1); }
static fusor_tensor no_tensor(void) { return (fusor_tensor){NULL, 0, 0}; }

bool builder_owns(fusor_tensor t) { return ((uintptr_t)t.owner & 1) != 0 && !op_is_weak(t); }

static bool is_of(const struct builder_state *b, fusor_tensor t) {
    return b && t.owner == owner_of(b) && t.generation == b->serial;
}

const char builder_stale[] = "a value belongs to a function that has ended, or to another thread's";
bool builder_is_stale(fusor_tensor t) { return builder_owns(t) && !is_of(current, t); }

bool builder_is_open(const fusor_context *ctx) { return current && (!ctx || current->module->ctx == ctx); }

/* Slot 0: a value that could not be made. Its status is the function's, whose first error stays. */
static fusor_tensor bad(const struct builder_state *b) { return (fusor_tensor){owner_of(b), 0, b->serial}; }

/* With no function open the values among the operands are of one that has ended, and so is the result. */
static fusor_tensor bad_of(const op_call *c) {
    if (current) return bad(current);
    for (int i = 0; i < c->n; i++)
        if (builder_owns(c->args[i])) return (fusor_tensor){c->args[i].owner, 0, c->args[i].generation};
    return no_tensor();
}

fusor_tensor builder_bad(const op_call *c, const fu_error *e) {
    if (current) (void)FU_FAIL(&current->error, e->status, "%s", e->text);
    return bad_of(c);
}

/* The node of a handle of the open function; 0 with an error in it. */
static ir_id node_of(struct builder_state *b, fusor_tensor t, const char *who) {
    if (is_of(b, t) && t.slot && t.slot < b->g->nodes.n) return t.slot;
    if (!t.owner || b->error.status != FUSOR_OK) {
        FU_FAIL(&b->error, FUSOR_ERROR_ARGUMENT, "%s: a value is no tensor", who);
    } else if (builder_owns(t)) {
        FU_FAIL(&b->error, FUSOR_ERROR_STALE, "%s: %s", who, builder_stale);
    } else {
        FU_FAIL(&b->error, FUSOR_ERROR_ARGUMENT, "%s: a lazy tensor among values of a function; make it a parameter",
                who);
    }
    return 0;
}

static fusor_tensor handle(struct builder_state *b, ir_id id) {
    return (fusor_tensor){owner_of(b), id, b->serial}; /* 0: bad */
}

/* ---- operators ---- */

static ir_id record(struct builder_state *b, const op_call *c) {
    ir_graph *g = b->g;
    const ir_op_info *info = &ir_ops[c->op];
    ir_operand *in = FU_NEW_N(g->arena, ir_operand, c->n + 1), scalar = {0};
    int n = c->n;
    ir_attr attr[IR_MAX_ATTRS] = {{0}};
    ir_dtype to = c->to;
    for (int i = 0; i < c->n; i++) {
        if (op_is_weak(c->args[i])) {
            in[i] = op_weak_operand(c->args[i]);
            continue;
        }
        in[i] = ir_use(node_of(b, c->args[i], info->name));
        if (!in[i].node) return 0;
    }
    if (c->text && ir_parse_attrs(g, c->op, c->text, NULL, attr, &to, &scalar) != FUSOR_OK) return 0;
    if (scalar.literal) in[n++] = scalar;
    for (unsigned i = 0; c->attrs && i < info->n_attrs; i++) {
        const op_attr *x = &c->attrs[i];
        attr[i] = (ir_attr){.is_set = x->is_set, .number = x->number, .integer = x->integer, .n = x->n};
        attr[i].list = FU_NEW_N(g->arena, ir_size, x->n);
        for (uint32_t k = 0; k < x->n; k++) attr[i].list[k] = ir_size_const(g->sizes, x->list[k]);
    }
    const ir_attr *given = info->n_attrs ? attr : NULL;
    return info->n_results == 1 && !c->result ? ir_add(g, c->op, n, in, given, to, (fu_loc){0, 0})
                                              : ir_add_result(g, c->op, c->result, n, in, given, (fu_loc){0, 0});
}

/* What needs memory runs under this: the arena's way out leads here. */
#define GUARD(b, failed)                                                                                               \
    do {                                                                                                               \
        (b)->module->arena.oom = &(b)->oom;                                                                            \
        if (setjmp((b)->oom)) {                                                                                        \
            (void)FU_FAIL(&(b)->error, FUSOR_ERROR_MEMORY, "out of memory");                                           \
            return failed;                                                                                             \
        }                                                                                                              \
    } while (0)

static fusor_tensor guarded_record(struct builder_state *b, const op_call *c) {
    GUARD(b, bad(current));
    return handle(b, record(b, c));
}

fusor_tensor builder_record(const op_call *c) {
    if (!current || current->error.status != FUSOR_OK) return bad_of(c);
    rt_fpenv environment;
    rt_fpenv_enter(&environment); /* numbers are rounded */
    const fusor_tensor t = guarded_record(current, c);
    rt_fpenv_leave(&environment);
    return t;
}

fusor_tensor builder_name(fusor_tensor t, const char *name) {
    struct builder_state *b = current;
    if (!is_of(b, t) || b->error.status != FUSOR_OK) return t;
    GUARD(b, t);
    ir_id id = node_of(b, t, "fusor_name");
    ir_node *n = id ? ir_at(b->g, id) : NULL;
    if (n && n->op != IR_OP_PARAM && n->op != IR_OP_LITERAL) {
        char *copy = fu_strdup(b->g->arena, name);
        fu_make_utf8(copy); /* what is printed is parsed again */
        n->meta_name = copy;
    }
    return t;
}

fusor_tensor builder_hint(fusor_tensor t, const fusor_tensor *with) {
    struct builder_state *b = current;
    const char *who = with ? "fusor_fuse_with" : "fusor_barrier";
    if (!b || b->error.status != FUSOR_OK) return t;
    GUARD(b, t);
    ir_hint h = {.kind = with ? IR_HINT_FUSE_WITH : IR_HINT_BARRIER, .node = node_of(b, t, who)};
    if (!h.node || (with && !(h.with = node_of(b, *with, who)))) return bad(b);
    h.name = ir_at(b->g, h.node)->meta_name;
    h.with_name = h.with ? ir_at(b->g, h.with)->meta_name : NULL;
    fu_push(b->g->arena, &b->g->hints, h);
    return t;
}

fusor_status builder_status_of(fusor_tensor t) {
    if (is_of(current, t)) return context_fail(current->module->ctx, &current->error);
    fu_error e;
    fu_error_clear(&e);
    (void)FU_FAIL(&e, FUSOR_ERROR_STALE, "%s", builder_stale);
    return context_fail(NULL, &e);
}

fusor_status builder_shape_of(fusor_tensor t, fusor_buffer *out) {
    FU_TRY(builder_status_of(t));
    const ir_node *n = ir_at(current->g, t.slot);
    *out = (fusor_buffer){.dtype = n->dtype, .rank = n->rank};
    for (int d = 0; d < n->rank; d++)
        if (!ir_size_is_const(current->g->sizes, n->dim[d], &out->shape[d])) out->shape[d] = -1;
    return FUSOR_OK;
}

/* ---- functions ---- */

fusor_status fusor_function_begin(fusor_module *module, const char *name) {
    static uint32_t serials;
    fu_error e;
    if (!module) return context_refuse("fusor_function_begin: the module is NULL");
    fu_error_clear(&e);
    if (!name || !ir_is_ident(name)) {
        FU_FAIL(&e, FUSOR_ERROR_ARGUMENT,
                "fusor_function_begin: '%.64s' is no name; expected letters, digits, '_' and '.'", name ? name : "");
    } else if (current || (module->builder && module->builder->g)) {
        FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_function_begin: @%s is begun before @%s has ended", name,
                (current ? current : module->builder)->g->name);
    } else {
        for (uint32_t i = 0; i < module->module->functions.n; i++)
            if (strcmp(module->module->functions.at[i]->name, name) == 0)
                FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_function_begin: the module has a function @%s already", name);
    }
    if (e.status == FUSOR_OK && !module->builder) {
        module->builder = fu_calloc(1, sizeof *module->builder);
        if (module->builder) module->builder->module = module;
        else FU_FAIL(&e, FUSOR_ERROR_MEMORY, "out of memory");
    }
    if (e.status != FUSOR_OK) return context_fail(module->ctx, &e);
    struct builder_state *b = module->builder;
    fu_error_clear(&b->error);
    GUARD(b, context_fail(module->ctx, &b->error));
    b->g = ir_graph_new(&module->arena, &b->error, &module->module->source, fu_strdup(&module->arena, name));
    b->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
    current = b;
    return FUSOR_OK;
}

/* The open function if it is one of module, and good so far. */
static struct builder_state *open_of(const fusor_module *module) {
    struct builder_state *b = current;
    return b && module && b->module == module && b->error.status == FUSOR_OK ? b : NULL;
}

static bool has_param(const ir_graph *g, const char *name, uint32_t *at) {
    for (uint32_t i = 0; i < g->params.n; i++) {
        if (strcmp(g->params.at[i].name, name) != 0) continue;
        if (at) *at = i;
        return true;
    }
    return false;
}

static const char *symbol_name(struct builder_state *b, const char *name) {
    GUARD(b, NULL);
    uint32_t symbol = 0;
    (void)ir_size_is_symbol(b->g->sizes, ir_size_sym(b->g->sizes, name), &symbol);
    return ir_size_symbol_name(b->g->sizes, symbol);
}

/* A word of digits would be read as a number. */
static bool is_size_name(const char *name) {
    return ir_is_ident(name) && !ir_word_is_reserved(name, strlen(name)) && (name[0] < '0' || name[0] > '9');
}

fusor_size fusor_function_dim(fusor_module *module, const char *name) {
    struct builder_state *b = open_of(module);
    fusor_size none = {NULL, 0};
    if (!b) return none;
    if (!name || !is_size_name(name)) {
        FU_FAIL(&b->error, FUSOR_ERROR_ARGUMENT, "fusor_function_dim: '%.64s' is no name of a size", name ? name : "");
        return none;
    }
    return (fusor_size){symbol_name(b, name), 0};
}

static fusor_tensor add_param(struct builder_state *b, const char *name, fusor_dtype dtype, int rank,
                              const fusor_size *shape, int is_const) {
    ir_graph *g = b->g;
    ir_size dim[IR_MAX_RANK];
    GUARD(b, bad(current));
    for (int d = 0; d < rank; d++)
        dim[d] = shape[d].name ? ir_size_sym(g->sizes, shape[d].name) : ir_size_const(g->sizes, shape[d].size);
    ir_id id = ir_add_param(g, fu_strdup(g->arena, name), dtype, rank, dim, (fu_loc){0, 0});
    if (id) g->params.at[g->params.n - 1].is_const = is_const != 0;
    return handle(b, id);
}

fusor_tensor fusor_function_param(fusor_module *module, const char *name, fusor_dtype dtype, int rank,
                                  const fusor_size *shape, int is_const) {
    struct builder_state *b = open_of(module);
    if (!b) return current && current->module == module ? bad(current) : no_tensor();
    ir_graph *g = b->g;
    if (!name || !ir_is_ident(name))
        FU_FAIL(&b->error, FUSOR_ERROR_ARGUMENT, "fusor_function_param: '%.64s' is no name", name ? name : "");
    else if (has_param(g, name, NULL))
        FU_FAIL(&b->error, FUSOR_ERROR_ARGUMENT, "fusor_function_param: %%%s is a parameter already", name);
    else if (ir_size_find_symbol(g->sizes, name) >= 0)
        FU_FAIL(&b->error, FUSOR_ERROR_ARGUMENT, "fusor_function_param: %%%s is named as a size; names must differ",
                name);
    else if (!fusor_dtype_size(dtype))
        FU_FAIL(&b->error, FUSOR_ERROR_ARGUMENT, "fusor_function_param: %%%s: dtype %d is no fusor_dtype", name,
                (int)dtype);
    else if (rank < 0 || rank > IR_MAX_RANK || (rank && !shape))
        FU_FAIL(&b->error, FUSOR_ERROR_SHAPE, "fusor_function_param: %%%s: rank %d; expected 0 to 8 and a shape", name,
                rank);
    for (int d = 0; d < rank && b->error.status == FUSOR_OK; d++) {
        if (shape[d].name && has_param(g, shape[d].name, NULL))
            FU_FAIL(&b->error, FUSOR_ERROR_ARGUMENT,
                    "fusor_function_param: size %s is named as a parameter; names must differ", shape[d].name);
        else if (shape[d].name && !is_size_name(shape[d].name))
            FU_FAIL(&b->error, FUSOR_ERROR_ARGUMENT, "fusor_function_param: '%.64s' is no name of a size",
                    shape[d].name);
        else if (!shape[d].name && shape[d].size < 0)
            FU_FAIL(&b->error, FUSOR_ERROR_SHAPE,
                    "fusor_function_param: %%%s: dim %d is %lld; a size must not be negative", name, d,
                    (long long)shape[d].size);
    }
    return b->error.status != FUSOR_OK ? bad(b) : add_param(b, name, dtype, rank, shape, is_const);
}

static fusor_status check_alias(struct builder_state *b, ir_result *r, const char *alias) {
    ir_graph *g = b->g;
    uint32_t p = 0;
    if (!has_param(g, alias[0] == '%' ? alias + 1 : alias, &p))
        return FU_FAIL(&b->error, FUSOR_ERROR_ARGUMENT, "fusor_function_result: alias '%.64s' is no parameter", alias);
    for (uint32_t i = 0; i < g->results.n; i++)
        if (g->results.at[i].alias == (int)p)
            return FU_FAIL(&b->error, FUSOR_ERROR_ARGUMENT,
                           "fusor_function_result: an earlier result is written over %%%s already", alias);
    const ir_node *n = ir_at(g, r->node), *to = ir_at(g, g->params.at[p].node);
    bool same = n->dtype == to->dtype && n->rank == to->rank;
    for (int d = 0; same && d < n->rank; d++) {
        bool both_named = ir_size_is_symbol(g->sizes, n->dim[d], NULL) && ir_size_is_symbol(g->sizes, to->dim[d], NULL);
        same = n->dim[d] == to->dim[d] || !(both_named || ir_size_never_equal(g->sizes, n->dim[d], to->dim[d]));
    }
    if (!same) {
        fu_str text;
        fu_str_init(&text, g->arena);
        ir_type_print(&text, g, to);
        fu_str_add(&text, " but the result is ");
        ir_type_print(&text, g, n);
        return FU_FAIL(&b->error, n->dtype != to->dtype ? FUSOR_ERROR_TYPE : FUSOR_ERROR_SHAPE,
                       "fusor_function_result: alias %%%s is %s; they must be equal", g->params.at[p].name, text.at);
    }
    for (int d = 0; d < n->rank; d++)
        ir_add_check(g, (ir_check){.a = n->dim[d],
                                   .b = to->dim[d],
                                   .kind = IR_CHECK_EQUAL,
                                   .what = fu_format(g->arena, "alias %%%s: dim %d", g->params.at[p].name, d)});
    r->alias = (int)p;
    return FUSOR_OK;
}

void fusor_function_result(fusor_module *module, const char *name, fusor_tensor value, const char *alias) {
    struct builder_state *b = open_of(module);
    if (!b) return;
    ir_graph *g = b->g;
    if (name && !ir_is_ident(name))
        FU_FAIL(&b->error, FUSOR_ERROR_ARGUMENT, "fusor_function_result: '%.64s' is no name", name);
    ir_id id = node_of(b, value, "fusor_function_result");
    if (!id || b->error.status != FUSOR_OK) return;
    GUARD(b, );
    const char *own = name ? fu_strdup(g->arena, name) : fu_format(g->arena, "result%u", g->results.n);
    for (uint32_t i = 0; i < g->results.n; i++)
        if (strcmp(g->results.at[i].name, own) == 0)
            FU_FAIL(&b->error, FUSOR_ERROR_ARGUMENT, "fusor_function_result: an earlier result is named %%%s", own);
    if (b->error.status != FUSOR_OK) return;
    ir_result r = {.name = own,
                   .node = id,
                   .alias = -1,
                   .is_declared = name != NULL};
    if (alias && check_alias(b, &r, alias) != FUSOR_OK) return;
    fu_push(g->arena, &g->results, r);
}

fusor_status fusor_function_end(fusor_module *module) {
    fu_error e;
    if (!module) return context_refuse("fusor_function_end: the module is NULL");
    fu_error_clear(&e);
    struct builder_state *b = current;
    if (!b || b->module != module) {
        FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "fusor_function_end: this thread has begun no function of the module");
        return context_fail(module->ctx, &e);
    }
    ir_graph *g = b->g;
    current = NULL;
    b->g = NULL;
    GUARD(b, context_fail(module->ctx, &b->error));
    if (b->error.status == FUSOR_OK && g->results.n == 0)
        FU_FAIL(&b->error, FUSOR_ERROR_ARGUMENT, "fusor_function_end: @%s has no result", g->name);
    for (uint32_t i = 0; i < g->params.n && b->error.status == FUSOR_OK; i++)
        if (ir_size_find_symbol(g->sizes, g->params.at[i].name) >= 0)
            FU_FAIL(&b->error, FUSOR_ERROR_ARGUMENT,
                    "fusor_function_end: @%s: %s is a parameter and a size; names must differ", g->name,
                    g->params.at[i].name);
    if (b->error.status == FUSOR_OK) (void)ir_verify(g, &b->error, "builder");
    if (b->error.status == FUSOR_OK) fu_push(&module->arena, &module->module->functions, g);
    return context_fail(module->ctx, &b->error);
}

void builder_free(struct builder_state *b) {
    if (current == b) current = NULL;
    fu_free(b);
}
