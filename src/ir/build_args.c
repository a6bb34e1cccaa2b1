/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* build_args.c: the parts of a statement that are not values: literals, sizes, types, attributes by their descriptors.
 */
#include "base/small.h"
#include "ir/ast.h"
#include <string.h>

ir_operand ast_operand(ast *m, const ast_literal *l, bool with_text) {
    ir_operand x = {.i = l->number.i, .f = l->number.f, .residue = l->number.residue, .loc = l->loc};
    x.literal = l->kind == AST_INT ? IR_LIT_INT : l->kind == AST_BOOL ? IR_LIT_BOOL : IR_LIT_FLOAT;
    if (l->kind == AST_BOOL) x.f = (double)x.i;
    /* Past 64 bits only a float type can hold it. */
    if (l->kind == AST_INT && l->number.range == IR_RANGE_NONE) x.literal = IR_LIT_FLOAT;
    if (with_text) x.text = l->n <= 40 ? fu_strndup(m->arena, l->at, l->n) : fu_format(m->arena, "%.40s...", l->at);
    return x;
}

/* ---- sizes ---- */

static void fail_unbound(ast *m, ir_graph *g, const ast_size_item *item) {
    const char *word = ast_text(m, item->word), *near = NULL;
    if (strlen(word) <= 64) {
        uint32_t n = ir_size_symbol_count(g->sizes);
        const char **names = FU_NEW_N(m->arena, const char *, n);
        for (uint32_t i = 0; i < n; i++) names[i] = ir_size_symbol_name(g->sizes, i);
        near = fu_nearest(word, names, n);
    }
    AST_FAIL(m, FUSOR_ERROR_SHAPE, item->loc,
             "size %.64s is not bound: no parameter has a dimension that is just %.64s%s%s%s", word, word,
             near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

bool ast_size_build(ast *m, ir_graph *g, uint32_t mark, const ast_size *size, ir_size *out) {
    ir_size stack[IR_MAX_SIZE_OPERANDS + 1];
    uint32_t n = 0;
    for (uint32_t i = 0; i < size->n; i++) {
        const ast_size_item *item = &size->item[i];
        if (item->kind == AST_SIZE_INT || item->kind == AST_SIZE_WORD) {
            if (n > IR_MAX_SIZE_OPERANDS) break;
            if (item->kind == AST_SIZE_WORD && m->words.at[item->word].dim_mark != mark) {
                fail_unbound(m, g, item);
                return false;
            }
            stack[n++] = item->kind == AST_SIZE_INT ? ir_size_const(g->sizes, item->value)
                                                    : ir_size_sym(g->sizes, ast_text(m, item->word));
            continue;
        }
        if (n < 2) break;
        ir_size b = stack[--n], a = stack[n - 1], v;
        if (item->kind == AST_SIZE_DIV && ir_size_is(g->sizes, b, 0)) {
            AST_FAIL(m, FUSOR_ERROR_SHAPE, item->loc, "a size divides by zero");
            return false;
        }
        /* Of its own: M/M is 1 and N/M - N/M is 0 where M is not. */
        if (item->kind == AST_SIZE_DIV)
            ir_add_check(g, (ir_check){.a = b,
                                       .b = ir_size_const(g->sizes, 1),
                                       .kind = IR_CHECK_NOT_ZERO,
                                       .what = "a size expression divides by zero",
                                       .loc = item->loc});
        v = item->kind == AST_SIZE_ADD   ? ir_size_add(g->sizes, a, b)
            : item->kind == AST_SIZE_SUB ? ir_size_sub(g->sizes, a, b)
            : item->kind == AST_SIZE_MUL ? ir_size_mul(g->sizes, a, b)
                                         : ir_size_div(g->sizes, a, b);
        if (ir_size_is_huge(g->sizes, v)) {
            AST_FAIL(m, FUSOR_ERROR_SHAPE, item->loc,
                     "the size does not fit in 64 bits, or its expression is too large");
            return false;
        }
        stack[n - 1] = v;
    }
    if (n == 1) *out = stack[0];
    return n == 1;
}

bool ast_type_build(ast *m, ir_graph *g, uint32_t mark, const ast_type *type, ir_size *dim) {
    for (unsigned d = 0; d < type->rank; d++) {
        int64_t v;
        if (type->dim[d].is_inferred) continue;
        if (!ast_size_build(m, g, mark, &type->dim[d], &dim[d])) return false;
        if (ir_size_is_const(g->sizes, dim[d], &v) && v < 0) {
            AST_FAIL(m, FUSOR_ERROR_SHAPE, type->dim[d].loc, "size %lld is negative", (long long)v);
            return false;
        }
    }
    return true;
}

/* ---- attributes ---- */

static bool is_word(const ast_attr *a) {
    return a->kind == AST_ATTR_SIZE && a->as.size.n == 1 && a->as.size.item[0].kind == AST_SIZE_WORD;
}
static bool is_integer(const ast_attr *a) {
    return a->kind == AST_ATTR_SIZE && a->as.size.n == 1 && a->as.size.item[0].kind == AST_SIZE_INT;
}

static const char *describe(ast *m, const ast_attr *a) {
    switch (a->kind) {
    case AST_ATTR_SIZE:
        if (is_word(a)) return fu_format(m->arena, "the word '%.40s'", ast_text(m, a->as.size.item[0].word));
        return is_integer(a) ? "an integer" : "a size expression";
    case AST_ATTR_LITERAL:
        if (a->as.literal.kind == AST_BOOL) return a->as.literal.number.i ? "true" : "false";
        return a->as.literal.kind == AST_INT ? "an integer past 64 bits" : "a float";
    case AST_ATTR_DTYPE: return fu_format(m->arena, "the type %s", ir_dtypes[a->as.dtype].name);
    case AST_ATTR_STRING: return "a string";
    case AST_ATTR_VALUE: return fu_format(m->arena, "the value %%%.40s", ast_text(m, a->as.word));
    case AST_ATTR_LIST: return "a list";
    }
    return "something else";
}

typedef struct attr_place {
    const char *op, *name;
    ir_graph *g;
    uint32_t mark;
} attr_place;

static bool wrong(ast *m, const attr_place *at, const ast_attr *a, const char *want) {
    AST_FAIL(m, FUSOR_ERROR_TYPE, a->loc, "%s: attribute %s must be %s, not %s", at->op, at->name, want,
             describe(m, a));
    return false;
}

static bool build_integer(ast *m, const attr_place *at, const ast_attr *a, const char *want, int64_t *out) {
    ir_size size;
    if (a->kind != AST_ATTR_SIZE) return wrong(m, at, a, want);
    if (!is_word(a)) {
        if (!ast_size_build(m, at->g, at->mark, &a->as.size, &size)) return false;
        if (ir_size_is_const(at->g->sizes, size, out)) return true;
    }
    return wrong(m, at, a, fu_format(m->arena, "%s without the name of a size", want));
}

static bool build_list(ast *m, const attr_place *at, const ast_attr *a, ir_attr_type type, ir_attr *out) {
    const char *want = type == IR_ATTR_SIZES     ? "a list of sizes such as [B, 8]"
                       : type == IR_ATTR_INDICES ? "a list of integers or sizes such as [0, B-1]"
                       : type == IR_ATTR_INTS    ? "a list of integers such as [1, -1]"
                                                 : "a list of axes such as [0, 1]";
    const bool has_sizes = type == IR_ATTR_SIZES || type == IR_ATTR_INDICES;
    if (a->kind != AST_ATTR_LIST) return wrong(m, at, a, want);
    if (a->as.list.n > IR_MAX_LIST) {
        AST_FAIL(m, FUSOR_ERROR_SHAPE, a->loc, "%s: attribute %s has %u entries; a list has at most %d", at->op,
                 at->name, a->as.list.n, IR_MAX_LIST);
        return false;
    }
    out->n = a->as.list.n;
    out->list = FU_NEW_N(m->arena, ir_size, out->n);
    for (uint32_t i = 0; i < out->n; i++) {
        const ast_attr *item = &a->as.list.at[i];
        int64_t v;
        if (!has_sizes) {
            if (!build_integer(m, at, item, want, &v)) return false;
            out->list[i] = ir_size_const(at->g->sizes, v);
            continue;
        }
        if (item->kind != AST_ATTR_SIZE) return wrong(m, at, item, want);
        if (!ast_size_build(m, at->g, at->mark, &item->as.size, &out->list[i])) return false;
        /* -1 has a meaning to some operators; infer.c knows which. */
        if (type == IR_ATTR_SIZES && ir_size_is_const(at->g->sizes, out->list[i], &v) && v < -1) {
            AST_FAIL(m, FUSOR_ERROR_SHAPE, item->loc, "%s: size %lld is negative", at->op, (long long)v);
            return false;
        }
    }
    return true;
}

static bool build_enum(ast *m, const attr_place *at, const ast_attr *a, const char *words, ir_attr *out) {
    const char *list[16], *near = NULL;
    size_t n = 0;
    for (const char *p = words; *p && n < 16;) {
        size_t k = strcspn(p, "|");
        list[n++] = fu_strndup(m->arena, p, k);
        p += k + (p[k] == '|');
    }
    if (is_word(a)) {
        const char *word = ast_text(m, a->as.size.item[0].word);
        for (size_t i = 0; i < n; i++)
            if (strcmp(list[i], word) == 0) {
                out->integer = (int64_t)i;
                return true;
            }
        near = fu_nearest(word, list, n);
    }
    fu_str want;
    fu_str_init(&want, m->arena);
    for (size_t i = 0; i < n; i++) fu_str_addf(&want, "%s%s", i == 0 ? "" : i + 1 == n ? " or " : ", ", list[i]);
    AST_FAIL(m, FUSOR_ERROR_TYPE, a->loc, "%s: attribute %s must be %s, not %s%s%s%s", at->op, at->name, want.at,
             describe(m, a), near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    return false;
}

bool ast_text_attr(ast *m, ir_graph *g, const char *op, const char *text, fu_loc loc, ir_attr *out) {
    const size_t n = strlen(text);
    if (n > IR_MAX_TEXT) {
        AST_FAIL(m, FUSOR_ERROR_SHAPE, loc, "%s: the string has %zu characters; expected at most %d", op, n,
                 IR_MAX_TEXT);
        return false;
    }
    *out = (ir_attr){.is_set = true,
                     .n = (uint32_t)n,
                     .list = FU_NEW_N(m->arena, ir_size, n + 1),
                     .integer = (int64_t)((uint64_t)loc.line << 32 | loc.col)};
    for (size_t i = 0; i < n; i++) out->list[i] = ir_size_const(g->sizes, (unsigned char)text[i]);
    return true;
}

static bool build_attr(ast *m, const attr_place *at, const ast_attr *a, const ir_attr_info *info, ir_attr *out) {
    out->is_set = true;
    switch (info->type) {
    case IR_ATTR_FLOAT:
    case IR_ATTR_NUMBER:
        if (is_integer(a)) out->number = (double)a->as.size.item[0].value;
        else if (a->kind == AST_ATTR_LITERAL && a->as.literal.kind != AST_BOOL) out->number = a->as.literal.number.f;
        else return wrong(m, at, a, "a number");
        return true;
    case IR_ATTR_BOOL:
        if (a->kind != AST_ATTR_LITERAL || a->as.literal.kind != AST_BOOL) return wrong(m, at, a, "true or false");
        out->integer = a->as.literal.number.i;
        return true;
    case IR_ATTR_INT:
    case IR_ATTR_AXIS: return build_integer(m, at, a, "an integer", &out->integer);
    case IR_ATTR_AXES:
    case IR_ATTR_INTS:
    case IR_ATTR_SIZES:
    case IR_ATTR_INDICES: return build_list(m, at, a, info->type, out);
    case IR_ATTR_SIZE:
        if (a->kind != AST_ATTR_SIZE) return wrong(m, at, a, "a size such as 8 or N");
        out->n = 1;
        out->list = FU_NEW(m->arena, ir_size);
        return ast_size_build(m, at->g, at->mark, &a->as.size, out->list);
    case IR_ATTR_SCALAR:
        return a->kind == AST_ATTR_VALUE || a->kind == AST_ATTR_LITERAL || is_integer(a) ||
               wrong(m, at, a, "a number or a value such as %v");
    case IR_ATTR_DTYPE:
        if (a->kind != AST_ATTR_DTYPE) return wrong(m, at, a, "a type such as f32");
        out->integer = a->as.dtype;
        return true;
    case IR_ATTR_ENUM: return build_enum(m, at, a, info->words, out);
    case IR_ATTR_TEXT:
        if (a->kind != AST_ATTR_STRING) return wrong(m, at, a, "a string");
        return ast_text_attr(m, at->g, at->op, a->as.string, a->loc, out);
    }
    return false;
}

const ast_attr *ast_scalar_attr(ast *m, const ast_stmt *s, ir_op op, ir_attr *attr) {
    for (unsigned k = 0; k < ir_ops[op].n_attrs; k++) {
        if (ir_ops[op].attrs[k].type != IR_ATTR_SCALAR || !attr[k].is_set) continue;
        attr[k] = (ir_attr){.is_set = true};
        for (uint32_t i = 0; i < s->n_args; i++) {
            const ast_arg *arg = &s->arg[i];
            if (arg->kind == AST_ARG_ATTR && strcmp(ast_text(m, arg->word), ir_ops[op].attrs[k].name) == 0)
                return arg->as.attr;
        }
    }
    return NULL;
}

ir_operand ast_attr_operand(ast *m, const ast_attr *a) {
    if (a->kind == AST_ATTR_LITERAL) return ast_operand(m, &a->as.literal, true);
    const int64_t v = a->as.size.item[0].value;
    return (ir_operand){.literal = IR_LIT_INT, .i = v, .f = (double)v, .loc = a->loc};
}

/* ORDER build_meta */
static const char *const meta_names[] = {"name", "loc", "barrier", "fuse_with"};
enum { N_META = sizeof meta_names / sizeof *meta_names };

static void fail_unknown(ast *m, const char *op, const ir_op_info *info, const ast_arg *arg) {
    const char *names[IR_MAX_ATTRS + N_META], *word = ast_text(m, arg->word);
    size_t n = N_META;
    memcpy(names, meta_names, sizeof meta_names);
    for (unsigned i = 0; i < info->n_attrs; i++) names[n++] = info->attrs[i].name;
    const char *near = fu_nearest(word, names, n);
    fu_str known;
    fu_str_init(&known, m->arena);
    for (size_t i = N_META; i < n; i++) fu_str_addf(&known, "%s%s", names[i], i + 1 < n ? ", " : "");
    if (near) fu_str_addf(&known, "; did you mean %s?", near);
    AST_FAIL(m, FUSOR_ERROR_SYNTAX, arg->loc, "%s has no attribute %.40s; it has %s%s", op, word,
             n > N_META ? "" : "none but name, loc, barrier and fuse_with", known.at);
}

static bool build_meta(ast *m, const attr_place *at, const ast_attr *a, int which, ast_meta *meta) {
    switch (which) {
    case 0:
    case 1:
        if (a->kind != AST_ATTR_STRING) return wrong(m, at, a, "a string");
        *(which ? &meta->loc : &meta->name) = a->as.string;
        return true;
    case 2:
        if (a->kind != AST_ATTR_LITERAL || a->as.literal.kind != AST_BOOL) return wrong(m, at, a, "true or false");
        meta->is_barrier = a->as.literal.number.i;
        meta->barrier_loc = a->loc;
        return true;
    default:
        if (a->kind != AST_ATTR_VALUE && a->kind != AST_ATTR_LIST)
            return wrong(m, at, a, "a value such as %h, or a list of values");
        for (uint32_t i = 0; a->kind == AST_ATTR_LIST && i < a->as.list.n; i++)
            if (a->as.list.at[i].kind != AST_ATTR_VALUE)
                return wrong(m, at, &a->as.list.at[i], "a list of values such as [%a, %b]");
        meta->fuse_with = a;
        return true;
    }
}

bool ast_attrs_build(ast *m, ir_graph *g, uint32_t mark, const ast_stmt *s, ir_op op, ir_attr *attr, ast_meta *meta) {
    const ir_op_info *info = &ir_ops[op];
    const char *label = s->is_call ? fu_format(m->arena, "@%.64s", ast_text(m, s->op.word)) : info->name;
    bool is_given[N_META] = {false};
    for (uint32_t i = 0; i < s->n_args; i++) {
        const ast_arg *arg = &s->arg[i];
        if (arg->kind != AST_ARG_ATTR) continue;
        const char *word = ast_text(m, arg->word);
        attr_place at = {label, word, g, mark};
        int which = 0;
        while (which < N_META && strcmp(meta_names[which], word) != 0) which++;
        const bool is_meta = which < N_META;
        unsigned k = 0;
        while (!is_meta && k < info->n_attrs && strcmp(info->attrs[k].name, word) != 0) k++;
        if (!is_meta && k == info->n_attrs) {
            fail_unknown(m, label, info, arg);
            return false;
        }
        if (is_meta ? is_given[which] : attr[k].is_set) {
            AST_FAIL(m, FUSOR_ERROR_SYNTAX, arg->loc, "%s: attribute %s is given twice", label, word);
            return false;
        }
        if (is_meta) is_given[which] = true;
        if (!(is_meta ? build_meta(m, &at, arg->as.attr, which, meta)
                      : build_attr(m, &at, arg->as.attr, &info->attrs[k], &attr[k])))
            return false;
    }
    return true;
}
