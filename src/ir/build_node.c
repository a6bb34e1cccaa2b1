/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* build_node.c: what stands right of a statement's "=" to nodes: an operator, or a call with the checks of its
 * function. */
#include "base/small.h"
#include "ir/build.h"
#include "ir/call.h"

/* ---- operators ---- */

static bool fail_operator(builder *b, const ast_stmt *s) {
    ast *m = b->m;
    const char *word = ast_text(m, s->op.word);
    const char *near = ir_op_nearest(word);
    if (m->words.at[s->op.word].function)
        AST_FAIL(m, FUSOR_ERROR_SYNTAX, s->op.loc, "unknown operator '%.64s'; did you mean '@%.64s'?", word, word);
    else
        AST_FAIL(m, FUSOR_ERROR_SYNTAX, s->op.loc, "unknown operator '%.64s'%s%s%s", word,
                 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return false;
}

typedef fu_vec(ir_operand) operands;

/* Positional arguments. text: the attribute that the string before them is; NULL: none. *to: the type argument.
 * *poisoned: some operand has no node. */
static bool build_operands(builder *b, const ast_stmt *s, const char *label, bool takes_type, ir_attr *text,
                           operands *out, ir_dtype *to, bool *poisoned) {
    ast *m = b->m;
    bool after_attr = false;
    for (uint32_t i = 0; i < s->n_args; i++) {
        const ast_arg *a = &s->arg[i];
        if (a->kind == AST_ARG_ATTR) {
            after_attr = true;
            continue;
        }
        if (after_attr) {
            AST_FAIL(m, FUSOR_ERROR_SYNTAX, a->loc, "%s: operands come before attributes", label);
            return false;
        }
        if (a->kind == AST_ARG_STRING && text && !text->is_set && !out->n) {
            if (!ast_text_attr(m, b->g, label, a->as.string, a->loc, text)) return false;
            continue;
        }
        if (a->kind == AST_ARG_STRING) {
            AST_FAIL(m, FUSOR_ERROR_TYPE, a->loc,
                     text ? "%s takes one string, before its operands: %s(\"ij,jk->ik\", %%a, %%b)"
                          : "%s takes no string",
                     label, label);
            return false;
        }
        if (a->kind == AST_ARG_TYPE) {
            if (!takes_type || *to || out->n != 1) {
                AST_FAIL(m, FUSOR_ERROR_TYPE, a->loc,
                         takes_type ? "%s takes one type, as its second argument: %s(%%x, f16)"
                                    : "%s takes no type as an argument",
                         label, label);
                return false;
            }
            if (a->as.type->has_dims) {
                AST_FAIL(m, FUSOR_ERROR_TYPE, a->loc, "%s takes an element type without dimensions", label);
                return false;
            }
            *to = a->as.type->dtype;
            continue;
        }
        ir_operand x = {.loc = a->loc};
        if (a->kind == AST_ARG_LITERAL) x = ast_operand(m, &a->as.literal, true);
        else if (!build_find_value(b, a->word, a->loc, &x.node)) return false;
        *poisoned |= a->kind == AST_ARG_VALUE && !x.node;
        fu_push(m->arena, out, x);
    }
    if (takes_type && !*to) {
        AST_FAIL(m, FUSOR_ERROR_TYPE, s->op.loc, "%s needs a type as its second argument: %s(%%x, f16)", label, label);
        return false;
    }
    return true;
}

/* The operand that the operator takes as an attribute, if it is given. */
static bool build_scalar(builder *b, const ast_stmt *s, ir_op op, ir_attr *attr, operands *in, bool *poisoned) {
    const ast_attr *a = ast_scalar_attr(b->m, s, op, attr);
    if (!a) return true;
    ir_operand x = {.loc = a->loc};
    if (a->kind != AST_ATTR_VALUE) x = ast_attr_operand(b->m, a);
    else if (!build_find_value(b, a->as.word, a->loc, &x.node)) return false;
    *poisoned |= a->kind == AST_ATTR_VALUE && !x.node;
    fu_push(b->m->arena, in, x);
    return true;
}

/* Hints on the statement's results. */
static bool build_hints(builder *b, const ast_stmt *s, const ast_meta *meta, const ir_id *result) {
    ast *m = b->m;
    const ast_attr *a = meta->fuse_with;
    const uint32_t n = !a ? 0 : a->kind == AST_ATTR_LIST ? a->as.list.n : 1;
    for (uint32_t r = 0; r < s->n_results; r++) {
        ir_hint h = {.kind = IR_HINT_BARRIER,
                     .node = result[r],
                     .loc = meta->barrier_loc,
                     .name = ast_text(m, s->result[r].word)};
        if (meta->is_barrier) fu_push(m->arena, &b->g->hints, h);
        h.kind = IR_HINT_FUSE_WITH;
        for (uint32_t i = 0; i < n; i++) {
            const ast_attr *item = a->kind == AST_ATTR_LIST ? &a->as.list.at[i] : a;
            if (!build_find_value(b, item->as.word, item->loc, &h.with)) return false;
            h.loc = item->loc;
            h.with_name = ast_text(m, item->as.word);
            if (h.with) fu_push(m->arena, &b->g->hints, h); /* else its own statement has been reported */
        }
    }
    return true;
}

bool build_operator(builder *b, const ast_stmt *s, ir_id *result) {
    ast *m = b->m;
    ast_word_info *w = &m->words.at[s->op.word];
    if (!w->is_op_known) {
        w->op = ir_op_find(w->text, w->length);
        w->is_op_known = true;
    }
    ir_op op = w->op;
    if (op == IR_OP_NONE) return fail_operator(b, s);
    operands in = {0};
    ir_dtype to = 0;
    bool poisoned = false;
    ast_meta meta = {0};
    ir_attr attr[IR_MAX_ATTRS] = {{0}};
    ir_attr *string = NULL;
    for (unsigned i = 0; i < ir_ops[op].n_attrs; i++)
        if (ir_ops[op].attrs[i].type == IR_ATTR_TEXT) string = &attr[i];
    if (!build_operands(b, s, w->text, ir_ops[op].kind == IR_KIND_CONVERT, string, &in, &to, &poisoned)) return false;
    if (!ast_attrs_build(m, b->g, b->mark, s, op, attr, &meta)) return false;
    if (!build_scalar(b, s, op, attr, &in, &poisoned)) return false;
    const uint32_t n_results = ir_count_results(op, attr);
    /* Without the attribute that tells their number, that it is missing is the error. */
    if (s->n_results != n_results && n_results) {
        AST_FAIL(m, FUSOR_ERROR_TYPE, s->result[s->n_results > n_results ? n_results : 0].loc,
                 "%s has %u result%s%s, not %u", w->text, n_results, n_results == 1 ? "" : "s",
                 ir_ops[op].n_results ? "" : " for these sizes", s->n_results);
        return false;
    }
    if (poisoned) return true;
    const int n_in = in.n > INT32_MAX ? INT32_MAX : (int)in.n;
    const uint32_t n_checks = b->g->checks.n;
    for (uint32_t i = 0; i < s->n_results; i++) {
        ir_id id = n_results == 1 ? ir_add(b->g, op, n_in, in.at, attr, to, s->op.loc)
                                  : ir_add_result(b->g, op, i, n_in, in.at, attr, s->op.loc);
        if (!id) return build_failed(b, s->op.loc);
        ir_node *n = ir_at(b->g, id);
        n->name = ast_text(m, s->result[i].word);
        n->meta_name = meta.name;
        n->meta_loc = meta.loc;
        result[i] = id;
    }
    for (uint32_t i = n_checks; i < b->g->checks.n; i++) {
        b->g->checks.at[i].meta_name = meta.name;
        b->g->checks.at[i].meta_loc = meta.loc;
    }
    return build_hints(b, s, &meta, result);
}

/* ---- calls ---- */

static bool fail_function(builder *b, const ast_stmt *s) {
    ast *m = b->m;
    const char *word = ast_text(m, s->op.word);
    const char **names = FU_NEW_N(m->arena, const char *, m->funcs.n);
    for (uint32_t i = 0; i < m->funcs.n; i++) names[i] = ast_text(m, m->funcs.at[i].name.word);
    const char *near = fu_nearest(word, names, m->funcs.n);
    AST_FAIL(m, FUSOR_ERROR_SYNTAX, s->op.loc, "there is no function @%.64s%s%s%s", word,
             near ? "; did you mean @" : "", near ? near : "", near ? "?" : "");
    return false;
}

/* The arguments' nodes. A literal takes the parameter's type. */
static bool build_call_args(builder *b, const ast_stmt *s, const ir_graph *callee, const operands *in, ir_id *arg) {
    ast *m = b->m;
    if (in->n > callee->params.n) {
        AST_FAIL(m, FUSOR_ERROR_TYPE, in->at[callee->params.n].loc, "@%s takes %u argument%s, got %u", callee->name,
                 callee->params.n, callee->params.n == 1 ? "" : "s", in->n);
        return false;
    }
    for (uint32_t i = in->n; i < callee->params.n; i++) {
        const ir_param *p = &callee->params.at[i];
        if (p->path || p->has_value) continue;
        AST_FAIL(m, FUSOR_ERROR_TYPE, s->op.loc,
                 "@%s: argument %u (%%%.64s) is missing; only parameters with a source may be left out", callee->name,
                 i + 1, p->name);
        return false;
    }
    for (uint32_t i = 0; i < in->n; i++) {
        const ir_param *p = &callee->params.at[i];
        const ir_node *want = ir_at(callee, p->node);
        fu_str type;
        fu_str_init(&type, m->arena);
        ir_type_print(&type, callee, want);
        if (in->at[i].node) {
            arg[i] = in->at[i].node;
        } else {
            ir_bits bits;
            if (want->rank) {
                AST_FAIL(m, FUSOR_ERROR_SHAPE, in->at[i].loc, "@%s: argument %u is a number but %%%.64s is %s",
                         callee->name, i + 1, p->name, type.at);
                return false;
            }
            if (ir_literal_bits(b->g, callee->name, &in->at[i], want->dtype, &bits) != FUSOR_OK)
                return build_failed(b, in->at[i].loc);
            arg[i] = ir_add_literal(b->g, want->dtype, bits);
        }
        const ir_node *got = ir_at(b->g, arg[i]);
        if (got->dtype == want->dtype && got->rank == want->rank) continue;
        AST_FAIL(m, got->dtype != want->dtype ? FUSOR_ERROR_TYPE : FUSOR_ERROR_SHAPE, in->at[i].loc,
                 "@%s: argument %u is %s but %%%.64s is %s", callee->name, i + 1, build_type_text(b, arg[i]), p->name,
                 type.at);
        return false;
    }
    return true;
}

bool build_call(builder *b, const ast_stmt *s, ir_id *result) {
    ast *m = b->m;
    uint32_t index = m->words.at[s->op.word].function;
    if (!index) return fail_function(b, s);
    ast_func *callee = &m->funcs.at[index - 1];
    operands in = {0};
    ir_dtype to = 0;
    bool poisoned = false;
    ast_meta meta = {0};
    const char *label = fu_format(m->arena, "@%.64s", ast_text(m, s->op.word));
    if (!build_operands(b, s, label, false, NULL, &in, &to, &poisoned)) return false;
    if (!ast_attrs_build(m, b->g, b->mark, s, IR_OP_CALL, NULL, &meta)) return false;
    const ir_graph *from = callee->graph;
    if (poisoned || callee->failed || !from) {
        b->f->failed = true;
        return true;
    }
    ir_id *arg = FU_NEW_N(m->arena, ir_id, in.n);
    if (!build_call_args(b, s, from, &in, arg)) return false;
    if (s->n_results != from->results.n) {
        AST_FAIL(m, FUSOR_ERROR_TYPE, s->result[0].loc, "%s has %u result%s, not %u", label, from->results.n,
                 from->results.n == 1 ? "" : "s", s->n_results);
        return false;
    }
    b->f->inlined += callee->inlined;
    m->n_copied_checks += from->checks.n + from->params.n;
    uint64_t limit = m->source->length > IR_MAX_INLINED ? m->source->length : IR_MAX_INLINED;
    if (b->f->inlined > limit || m->n_copied_checks > IR_MAX_INLINED_TOTAL + (uint64_t)m->source->length) {
        b->f->inlined -= callee->inlined;
        AST_FAIL(m, FUSOR_ERROR_UNSUPPORTED, s->op.loc,
                 "with this call of %s inlined the program becomes too large (more than %llu operators)", label,
                 (unsigned long long)limit);
        return false;
    }
    ir_graph *g = b->g;
    ir_size *map = FU_NEW_N(m->arena, ir_size, ir_size_symbol_count(from->sizes));
    ir_node call = {.op = IR_OP_CALL,
                    .n_in = (uint16_t)in.n,
                    .in = arg,
                    .callee = from->name,
                    .loc = s->op.loc,
                    .meta_name = meta.name,
                    .meta_loc = meta.loc};
    if (ir_call_bind(g, from, in.n, arg, &call, true, map) != FUSOR_OK) return build_failed(b, s->op.loc);
    ir_id id = ir_add_raw(g, &call);
    for (uint32_t i = 0; i < from->results.n; i++) {
        ir_node n = *ir_at(from, from->results.at[i].node);
        ir_node r = {.op = IR_OP_RESULT,
                     .dtype = n.dtype,
                     .rank = n.rank,
                     .n_in = 1,
                     .in = &id,
                     .index = (uint16_t)i,
                     .loc = s->op.loc,
                     .name = ast_text(m, s->result[i].word)};
        for (unsigned d = 0; d < n.rank; d++) {
            r.dim[d] = ir_size_substitute(g->sizes, from->sizes, n.dim[d], map);
            if (ir_size_is_huge(g->sizes, r.dim[d])) {
                AST_FAIL(m, FUSOR_ERROR_SHAPE, s->op.loc,
                         "call of %s: a size of result %u does not fit in 64 bits, or its expression is too large",
                         label, i);
                return false;
            }
        }
        result[i] = ir_add_raw(g, &r);
    }
    return build_hints(b, s, &meta, result);
}
