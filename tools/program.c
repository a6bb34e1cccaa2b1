/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* program.c: reads the program that a subcommand works on, and picks its function. */
#include "options.h"
#include "base/file.h"
#include "base/log.h"
#include <errno.h>

static int parse(tool *t, program *p) {
    fu_error e;
    fu_error_clear(&e);
    int64_t start = fu_now_ns();
    if (ir_parse(&t->arena, &e, p->name, p->text, p->length, &p->module) != FUSOR_OK) return tool_fail(t, &e);
    p->parse_ns = fu_now_ns() - start;
    return 0;
}

int program_text(tool *t, const char *path, program *p) {
    enum { MOST_MB = 256 }; /* a device that never ends, or weights, are no program */
    const char *shown = strcmp(path, "-") == 0 ? "stdin" : path;
    void *data = NULL;
    memset(p, 0, sizeof *p);
    int why = fu_file_read(path, (size_t)MOST_MB << 20, &data, &p->length);
    if (why == EFBIG) return tool_environment(t, "%s: more than %d MB; expected the text of a program", shown, MOST_MB);
    if (why) return tool_environment(t, "%s: %s", shown, strerror(why));
    p->name = strcmp(path, "-") == 0 ? "<text>" : path;
    char *text = fu_alloc(&t->arena, p->length + 1);
    if (p->length) memcpy(text, data, p->length);
    fu_free(data);
    p->text = text;
    return 0;
}

int program_read(tool *t, const char *path, program *p) {
    int status = program_text(t, path, p);
    return status ? status : parse(t, p);
}

int program_load(tool *t, program *p, uint32_t *used_out) {
    *used_out = 0;
    if (t->text) {
        *p = (program){.name = "<text>", .text = t->text, .length = strlen(t->text)};
        return parse(t, p);
    }
    if (t->args.n == 0 || t->args.at[0][0] == '@')
        return tool_usage(t, "no program: expected FILE (- is stdin) or -e TEXT\nUsage: fusor %s %s", t->command->name,
                          t->command->synopsis);
    *used_out = 1;
    return program_read(t, t->args.at[0], p);
}

int program_find(tool *t, const program *p, const char *name, ir_graph **function_out) {
    fu_error e;
    fu_error_clear(&e);
    ir_graph *g = ir_module_find(p->module, name);
    if (!g && p->module->functions.n == 0) {
        (void)FU_FAIL_AT(&e, FUSOR_ERROR_SYNTAX, &p->module->source, ((fu_loc){1, 1}),
                         "the module has no function; expected 'func @name(...) -> ... { ... }'");
        return tool_fail(t, &e);
    }
    if (!g) {
        const char **names = FU_NEW_N(&t->arena, const char *, p->module->functions.n);
        fu_str all;
        fu_str_init(&all, &t->arena);
        for (uint32_t i = 0; i < p->module->functions.n; i++) {
            names[i] = p->module->functions.at[i]->name;
            if (i < 8) fu_str_addf(&all, "%s@%s", i ? ", " : "", names[i]);
        }
        return tool_usage(t, "%s has no function '@%s'%s (it has %s%s)", p->name, name,
                          tool_suggest(t, name, names, p->module->functions.n, "@"), all.at,
                          p->module->functions.n > 8 ? ", ..." : "");
    }
    *function_out = g;
    return 0;
}

int program_function(tool *t, const program *p, uint32_t from, ir_graph **function_out, ir_graph **flat_out) {
    const char *name = NULL;
    uint32_t kept = from;
    for (uint32_t i = from; i < t->args.n; i++) {
        if (t->args.at[i][0] == '@' && !name) name = t->args.at[i] + 1;
        else t->args.at[kept++] = t->args.at[i];
    }
    t->args.n = kept;
    ir_graph *g;
    int status = program_find(t, p, name, &g);
    if (status) return status;
    if (function_out) *function_out = g;
    fu_error e;
    fu_error_clear(&e);
    if (ir_flatten(&t->arena, &e, p->module, g, flat_out) != FUSOR_OK) return tool_fail(t, &e);
    return 0;
}

const char *program_signature(tool *t, const ir_graph *g) {
    fu_str s;
    fu_str_init(&s, &t->arena);
    fu_str_addf(&s, "@%s(", g->name);
    for (uint32_t i = 0; i < g->params.n; i++) {
        const ir_param *p = &g->params.at[i];
        fu_str_addf(&s, "%s%s%%%s: ", i ? ", " : "", p->is_const ? "const " : "", p->name);
        ir_type_print(&s, g, ir_at(g, p->node));
    }
    fu_str_add(&s, ") -> (");
    for (uint32_t i = 0; i < g->results.n; i++) {
        const ir_result *r = &g->results.at[i];
        fu_str_addf(&s, "%s%%%s: ", i ? ", " : "", r->name);
        ir_type_print(&s, g, ir_at(g, r->node));
        if (r->alias >= 0) fu_str_addf(&s, " alias %%%s", g->params.at[r->alias].name);
    }
    fu_str_addc(&s, ')');
    return s.at;
}
