/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TEXT_TEST_H
#define TEXT_TEST_H
/* What tests of the text form share: an arena and an error record for each test, and texts to modules and back. */
#include "ir/graph.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fu_arena arena;
static fu_error error;
static jmp_buf oom;

static inline void text_start(void) {
    if (setjmp(oom)) abort();
    fu_arena_init(&arena, &oom);
    fu_error_clear(&error);
}
static inline void text_stop(void) { fu_arena_free(&arena); }

static inline ir_module *parse_n(const char *text, size_t n) {
    ir_module *m = NULL;
    fu_error_clear(&error);
    fusor_status status = ir_parse(&arena, &error, "t", text, n, &m);
    cr_assert((status == FUSOR_OK) == (m != NULL));
    cr_assert_eq(status, error.status);
    return m;
}
static inline ir_module *parse(const char *text) { return parse_n(text, strlen(text)); }

static inline ir_module *must_parse(const char *text) {
    ir_module *m = parse(text);
    cr_assert(m, "%s\nin\n%s", error.text, text);
    for (uint32_t i = 0; i < m->functions.n; i++)
        cr_assert_eq(ir_verify(m->functions.at[i], &error, "parse"), FUSOR_OK, "%s", error.text);
    return m;
}

static inline const char *module_text(const ir_module *m) {
    fu_str s;
    fu_str_init(&s, &arena);
    ir_print_module(&s, m);
    return s.at;
}
static inline const char *graph_text(const ir_graph *g) {
    fu_str s;
    fu_str_init(&s, &arena);
    ir_print_graph(&s, g);
    return s.at;
}

/* Parses, prints, parses and prints again: the same bytes. The first print. */
static inline const char *round_trip(const char *text) {
    const char *first = module_text(must_parse(text)), *second = module_text(must_parse(first));
    cr_assert_str_eq(first, second);
    return first;
}

static inline ir_graph *flatten(const ir_module *m, const char *function) {
    ir_graph *g = NULL;
    cr_assert_eq(ir_flatten(&arena, &error, m, ir_module_find(m, function), &g), FUSOR_OK, "%s", error.text);
    cr_assert_eq(ir_verify(g, &error, "flatten"), FUSOR_OK, "%s", error.text);
    return g;
}

/* A file of the source tree, relative to tests/. */
static inline char *read_test_file(const char *path, size_t *n_out) {
    const char *root = getenv("FUSOR_SRCDIR");
    FILE *f = fopen(fu_format(&arena, "%s/tests/%s", root ? root : ".", path), "rb");
    cr_assert(f, "cannot open tests/%s; run from the source directory or set FUSOR_SRCDIR", path);
    char *text = fu_alloc(&arena, 1 << 20);
    *n_out = fread(text, 1, (1 << 20) - 1, f);
    fclose(f);
    return text;
}
#endif
