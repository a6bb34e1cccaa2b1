/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* specialize.c: a program with named sizes bound to integers: its text, and one more function of these sizes that calls
 * the one of named sizes. Compiling that gives the kernels which a program of integers gets. */
#include "options.h"

static void add_type(fu_str *s, const ir_graph *g, const ir_node *n, ir_sizes *to, const ir_size *map) {
    fu_str_add(s, ir_dtypes[n->dtype].name);
    for (int d = 0; d < n->rank; d++) {
        const ir_size size = ir_size_substitute(to, g->sizes, n->dim[d], map);
        fu_str_add(s, d ? ", " : "[");
        if (ir_size_is_writable(to, size)) ir_size_print(s, to, size);
        else fu_str_addc(s, '?'); /* of a result: what it is inferred to be */
    }
    if (n->rank) fu_str_addc(s, ']');
}

/* What is wrong with the function that was added has a place behind the user's text: it is shown at the function that
 * it calls. Errors of the text itself are none of this, it was parsed before. */
static int fail(tool *t, const ir_graph *g, const fu_error *of_text) {
    static const char mark[] = ": error: ";
    const char *at = strstr(of_text->text, mark), *what = at ? at + sizeof mark - 1 : of_text->text;
    fu_error e;
    fu_error_clear(&e);
    (void)FU_FAIL_AT(&e, of_text->status, g->source, g->loc, "@%s with these sizes: %.*s", g->name,
                     (int)strcspn(what, "\n"), what);
    return tool_fail(t, &e);
}

int program_specialize(tool *t, const program *p, const ir_graph *g, const int64_t *values, program *out,
                       const char **name_out) {
    const char *name = "sized__";
    for (int k = 1; ir_module_find(p->module, name); k++) name = fu_format(&t->arena, "sized__%d", k);
    *name_out = name;
    uint32_t n = ir_size_symbol_count(g->sizes);
    ir_sizes *to = ir_sizes_new(&t->arena);
    ir_size *map = FU_NEW_N(&t->arena, ir_size, n + 1);
    for (uint32_t i = 0; i < n; i++)
        map[i] = values[i] < 0 ? ir_size_sym(to, ir_size_symbol_name(g->sizes, i)) : ir_size_const(to, values[i]);
    fu_str s;
    fu_str_init(&s, &t->arena);
    fu_str_addn(&s, p->text, p->length);
    fu_str_addf(&s, "\nfunc @%s(", name);
    for (uint32_t i = 0; i < g->params.n; i++) {
        const ir_param *x = &g->params.at[i];
        fu_str_addf(&s, "%s%s%%%s: ", i ? ", " : "", x->is_const ? "const " : "", x->name);
        add_type(&s, g, ir_at(g, x->node), to, map);
    }
    fu_str_add(&s, ") -> (");
    for (uint32_t i = 0; i < g->results.n; i++) {
        const ir_result *r = &g->results.at[i];
        fu_str_addf(&s, "%s%%%s: ", i ? ", " : "", r->name);
        add_type(&s, g, ir_at(g, r->node), to, map);
        if (r->alias >= 0) fu_str_addf(&s, " alias %%%s", g->params.at[r->alias].name);
    }
    /* Values of their own: a result may have the name of a parameter, or of nothing that is returned. */
    fu_str_add(&s, ") {\n  ");
    for (uint32_t i = 0; i < g->results.n; i++) fu_str_addf(&s, "%s%%r__%u", i ? ", " : "", i);
    fu_str_addf(&s, " = @%s(", g->name);
    for (uint32_t i = 0; i < g->params.n; i++) fu_str_addf(&s, "%s%%%s", i ? ", " : "", g->params.at[i].name);
    fu_str_add(&s, ")\n  return ");
    for (uint32_t i = 0; i < g->results.n; i++) fu_str_addf(&s, "%s%%r__%u", i ? ", " : "", i);
    fu_str_add(&s, "\n}\n");
    *out = (program){.name = p->name, .text = s.at, .length = s.n};
    fu_error e;
    fu_error_clear(&e);
    return ir_parse(&t->arena, &e, out->name, out->text, out->length, &out->module) == FUSOR_OK ? 0 : fail(t, g, &e);
}
