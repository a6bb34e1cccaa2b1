/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cmd_check.c: fusor check. Parses and types every function of the files; prints signatures and sizes. */
#include "report.h"

static json_t *json_value(tool *t, const ir_graph *g, ir_id id, const char *name) {
    const ir_node *n = ir_at(g, id);
    json_t *shape = json_array();
    for (int d = 0; d < n->rank; d++) {
        int64_t v;
        fu_str s;
        fu_str_init(&s, &t->arena);
        ir_size_print(&s, g->sizes, n->dim[d]);
        (void)json_array_append_new(shape,
                                    ir_size_is_const(g->sizes, n->dim[d], &v) ? json_integer(v) : json_string(s.at));
    }
    return json_pack("{s:s, s:s, s:o}", "name", name, "dtype", ir_dtypes[n->dtype].name, "shape", shape);
}

static json_t *json_function(tool *t, const ir_graph *g) {
    json_t *params = json_array(), *results = json_array(), *sizes = json_array();
    for (uint32_t i = 0; i < g->params.n; i++) {
        const ir_param *p = &g->params.at[i];
        json_t *o = json_value(t, g, p->node, p->name);
        (void)json_object_set_new(o, "const", json_boolean(p->is_const));
        (void)json_object_set_new(o, "source",
                                  p->path        ? json_string(p->path)
                                  : p->has_value ? json_string("value")
                                                 : json_null());
        (void)json_array_append_new(params, o);
    }
    for (uint32_t i = 0; i < g->results.n; i++) {
        const ir_result *r = &g->results.at[i];
        json_t *o = json_value(t, g, r->node, r->name);
        (void)json_object_set_new(o, "alias", r->alias >= 0 ? json_string(g->params.at[r->alias].name) : json_null());
        (void)json_array_append_new(results, o);
    }
    for (uint32_t i = 0; i < ir_size_symbol_count(g->sizes); i++)
        (void)json_array_append_new(sizes, json_string(ir_size_symbol_name(g->sizes, i)));
    return json_pack("{s:s, s:i, s:o, s:o, s:o, s:s}", "name", g->name, "line", (int)g->loc.line, "params", params,
                     "results", results, "sizes", sizes, "signature", program_signature(t, g));
}

static json_t *json_file(tool *t, const char *path, bool is_good) {
    return json_pack("{s:s, s:b}", "file", fu_utf8(&t->arena, path), "ok", is_good);
}

/* Each error of a text of them, which begins with "NAME:LINE:COLUMN: error: "; what is behind its line shows the place. */
static json_t *json_places(tool *t, const char *name, const char *text) {
    json_t *list = json_array();
    const size_t n = strlen(name);
    for (const char *line = text, *end; *line; line = *end ? end + 1 : end) {
        unsigned at[2];
        char kind[16];
        int used = 0;
        end = line + strcspn(line, "\n");
        if (strncmp(line, name, n) != 0 || sscanf(line + n, ":%u:%u: %15[a-z]: %n", &at[0], &at[1], kind, &used) != 3 ||
            !used || line + n + used > end)
            continue;
        const char *message = fu_strndup(&t->arena, line + n + used, (size_t)(end - line) - n - (size_t)used);
        (void)json_array_append_new(list, json_pack("{s:i, s:i, s:s, s:s}", "line", (int)at[0], "column", (int)at[1],
                                                    "severity", kind, "message", fu_utf8(&t->arena, message)));
    }
    return list;
}

/* Why a file is not ok. */
static void add_failure(tool *t, json_t *files, json_t *o, const char *name, fusor_status status, const char *text) {
    (void)json_object_set_new(o, "status", json_string(fusor_status_name(status)));
    (void)json_object_set_new(o, "errors", json_string(text));
    (void)json_object_set_new(o, "diagnostics", json_places(t, name, text));
    (void)json_array_append_new(files, o);
}

static int check_one(tool *t, const char *path, json_t *files) {
    program p;
    fu_error e;
    memset(&p, 0, sizeof p);
    fu_error_clear(&e);
    if (!path) p.name = "<text>", p.text = t->text, p.length = strlen(t->text);
    else {
        int status = program_text(t, path, &p);
        if (status) {
            add_failure(t, files, json_file(t, path, false), path, FUSOR_ERROR_IO, "the file cannot be read");
            return status;
        }
    }
    fusor_status status = ir_parse(&t->arena, &e, p.name, p.text, p.length, &p.module);
    json_t *o = json_file(t, p.name, status == FUSOR_OK);
    if (status != FUSOR_OK) {
        add_failure(t, files, o, p.name, status, e.text);
        return tool_fail(t, &e);
    }
    json_t *functions = json_array();
    for (uint32_t i = 0; i < p.module->functions.n; i++) {
        const ir_graph *g = p.module->functions.at[i];
        (void)json_array_append_new(functions, json_function(t, g));
        if (!t->json && !t->quiet) printf("%s:%u: %s\n", p.name, g->loc.line, program_signature(t, g));
    }
    if (!t->json && !t->quiet && p.module->functions.n == 0) printf("%s: no functions\n", p.name);
    (void)json_object_set_new(o, "functions", functions);
    (void)json_array_append_new(files, o);
    return 0;
}

int cmd_check(tool *t) {
    if (!t->text && t->args.n == 0) return tool_usage(t, "no program: expected FILE ... (- is stdin) or -e TEXT");
    json_t *files = json_array();
    int worst = 0;
    if (t->text) worst = check_one(t, NULL, files);
    for (uint32_t i = 0; i < t->args.n; i++) {
        int status = check_one(t, t->args.at[i], files);
        if (status > worst) worst = status;
    }
    if (t->json) {
        json_t *document = report_new("fusor-check/1");
        (void)json_object_set_new(document, "ok", json_boolean(worst == 0));
        (void)json_object_set(document, "files", files);
        int status = report_print(t, document);
        if (!worst) worst = status;
    }
    json_decref(files);
    return worst;
}
