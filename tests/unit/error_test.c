/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* error_test.c: first error wins, located errors add up, carets stand right, the record never overflows. */
#include "base/error.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static fu_error e;
static void init(void) {
    memset(&e, 0xaa, sizeof e);
    fu_error_clear(&e);
}
TestSuite(error, .init = init);

static fu_source source(const char *text) {
    return (fu_source){.name = "a.fusor", .text = text, .length = strlen(text)};
}

Test(error, first_wins) {
    cr_assert_eq(e.status, FUSOR_OK);
    cr_assert_eq(FU_FAIL(&e, FUSOR_ERROR_SHAPE, "rank %d", 9), FUSOR_ERROR_SHAPE);
    cr_assert_eq(FU_FAIL(&e, FUSOR_ERROR_IO, "later"), FUSOR_ERROR_SHAPE);
    cr_assert_str_eq(e.text, "rank 9");
    cr_assert_eq(e.n, 1);
    cr_assert(strstr(e.source_file, "error_test.c"));
    fu_error_clear(&e);
    cr_assert_eq(e.status, FUSOR_OK);
    cr_assert_str_eq(e.text, "");
    cr_assert_eq(FU_FAIL(&e, FUSOR_ERROR_IO, "now"), FUSOR_ERROR_IO);
}

Test(error, located) {
    fu_source s = source("x = relu(a)\ny = mtmul(x, b)\n");
    cr_assert_eq(FU_FAIL_AT(&e, FUSOR_ERROR_SYNTAX, &s, ((fu_loc){2, 5}), "unknown operator %s", "mtmul"),
                 FUSOR_ERROR_SYNTAX);
    cr_assert_str_eq(e.text, "a.fusor:2:5: error: unknown operator mtmul\ny = mtmul(x, b)\n    ^");
    cr_assert_eq(FU_FAIL_AT(&e, FUSOR_ERROR_SHAPE, &s, ((fu_loc){1, 1}), "second"), FUSOR_ERROR_SYNTAX,
                 "the first status");
    cr_assert_eq(e.n, 2);
    cr_assert_str_eq(e.text, "a.fusor:2:5: error: unknown operator mtmul\ny = mtmul(x, b)\n    ^\n"
                             "a.fusor:1:1: error: second\nx = relu(a)\n^");
}

Test(error, place_is_optional_and_may_be_wrong) {
    fu_source s = source("one");
    FU_FAIL_AT(&e, FUSOR_ERROR_TYPE, &s, ((fu_loc){0, 0}), "no place");
    cr_assert_str_eq(e.text, "a.fusor: error: no place");
    fu_error_clear(&e);
    FU_FAIL_AT(&e, FUSOR_ERROR_TYPE, &s, ((fu_loc){1, 0}), "line only");
    cr_assert_str_eq(e.text, "a.fusor:1: error: line only");
    fu_error_clear(&e);
    FU_FAIL_AT(&e, FUSOR_ERROR_TYPE, &s, ((fu_loc){7, 1}), "line past the end");
    cr_assert_str_eq(e.text, "a.fusor:7:1: error: line past the end");
    fu_error_clear(&e);
    FU_FAIL_AT(&e, FUSOR_ERROR_TYPE, &s, ((fu_loc){1, 99}), "x");
    cr_assert_str_eq(e.text, "a.fusor:1:99: error: x\none\n   ^");
    fu_error_clear(&e);
    FU_FAIL_AT(&e, FUSOR_ERROR_TYPE, NULL, ((fu_loc){3, 4}), "no source");
    cr_assert_str_eq(e.text, "<text>:3:4: error: no source");
    fu_error_clear(&e);
    fu_source none = {.name = NULL, .text = "", .length = 0};
    FU_FAIL_AT(&e, FUSOR_ERROR_TYPE, &none, ((fu_loc){1, 1}), "empty");
    cr_assert_str_eq(e.text, "<text>:1:1: error: empty\n\n^");
}

Test(error, columns_are_code_points_and_tabs_stay) {
    fu_source s = source("\tgr\xC3\xB6\xC3\x9F"
                         "e = ?\r\nnext");
    FU_FAIL_AT(&e, FUSOR_ERROR_SYNTAX, &s, ((fu_loc){1, 10}), "m");
    cr_assert_str_eq(e.text, "a.fusor:1:10: error: m\n\tgr\xC3\xB6\xC3\x9F"
                             "e = ?\n\t        ^");
}

Test(error, control_characters_are_not_repeated) {
    fu_source s = source("a\x1b[31mb\x7f");
    FU_FAIL_AT(&e, FUSOR_ERROR_SYNTAX, &s, ((fu_loc){1, 2}), "m");
    cr_assert_str_eq(e.text, "a.fusor:1:2: error: m\na?[31mb?\n ^");
}

/* C0, C1 and what turns the direction of writing, in the name, in the message and in the line. */
Test(error, nothing_reaches_a_terminal_that_it_obeys) {
    fu_source s = source("a\xC2\x9B"
                         "31m\xE2\x80\xAE b\xE2\x81\xA6 c");
    s.name = "q\x1b\n.fusor";
    FU_FAIL_AT(&e, FUSOR_ERROR_SYNTAX, &s, ((fu_loc){1, 10}), "m\x1b[2J\xE2\x80\xAA");
    cr_assert_str_eq(e.text, "q??.fusor:1:10: error: m?[2J?\na?31m? b? c\n         ^");
    cr_assert_eq(e.length, strlen(e.text));
}

Test(error, the_caret_counts_cells) {
    fu_source s =
        source("\xE6\xBC\xA2\xE5\xAD\x97 \xF0\x9F\x98\x80 e\xCC\x81 x"); /* two Han, an emoji, e and an accent */
    FU_FAIL_AT(&e, FUSOR_ERROR_SYNTAX, &s, ((fu_loc){1, 9}), "m");
    cr_assert(strstr(e.text, "\n          ^") != NULL && strstr(e.text, "\n           ^") == NULL, "%s", e.text);
}

Test(error, texts_are_utf8) {
    fu_source s = source("a\xff\x80\xC3\xB6 b\xC3");
    s.name = "q\xff.fusor";
    FU_FAIL_AT(&e, FUSOR_ERROR_SYNTAX, &s, ((fu_loc){1, 6}), "m\xF0\x9F");
    cr_assert_str_eq(e.text, "q?.fusor:1:6: error: m??\na??\xC3\xB6 b?\n     ^");
    fu_error_prefix(&e, "p\xff: ");
    cr_assert(strncmp(e.text, "p?: q?", 6) == 0);
    fu_error_clear(&e);
    FU_FAIL(&e, FUSOR_ERROR_IO, "%s: no", "x\xC0\x80y");
    cr_assert_str_eq(e.text, "x??y: no");
}

/* The caret points at the marked character, whatever part of a long line is shown. */
Test(error, long_lines_show_a_window) {
    static char text[1001];
    for (int place = 0; place < 1000; place += 37) {
        for (int i = 0; i < 1000; i++) text[i] = 'a';
        text[place] = '!';
        text[1000] = 0;
        fu_error_clear(&e);
        fu_source s = source(text);
        FU_FAIL_AT(&e, FUSOR_ERROR_SYNTAX, &s, ((fu_loc){1, (uint32_t)place + 1}), "m");
        char *line = strchr(e.text, '\n') + 1, *caret_line = strchr(line, '\n') + 1;
        cr_assert_leq(caret_line - line - 1, 166, "line of %td", caret_line - line - 1);
        cr_assert_eq(line[strchr(caret_line, '^') - caret_line], '!', "place %d\n%s", place, e.text);
    }
}

Test(error, at_most_twenty) {
    fu_source s = source("x");
    for (int i = 0; i < 50; i++) FU_FAIL_AT(&e, FUSOR_ERROR_TYPE, &s, ((fu_loc){1, 1}), "number %d", i);
    cr_assert_eq(e.n, FU_ERROR_MAX_DIAGNOSTICS);
    cr_assert(strstr(e.text, "number 19\n"));
    cr_assert_null(strstr(e.text, "number 20"));
}

Test(error, long_texts_end_at_a_line) {
    static char line[2001];
    memset(line, 'q', 2000);
    fu_source s = source("x");
    for (int i = 0; i < 20; i++) FU_FAIL_AT(&e, FUSOR_ERROR_TYPE, &s, ((fu_loc){1, 1}), "%s", line);
    cr_assert_lt(e.length, FU_ERROR_TEXT_MAX);
    cr_assert_eq(strlen(e.text), e.length);
    cr_assert_neq(e.text[e.length - 1], '\n');
    cr_assert(strncmp(strrchr(e.text, '\n') + 1, "^", 2) == 0 || strncmp(strrchr(e.text, '\n') + 1, "x", 2) == 0 ||
                  e.text[e.length - 1] == 'q',
              "ends with a whole line");
}

Test(error, one_huge_line_is_cut_between_characters) {
    static char huge[40001];
    for (int i = 0; i < 20000; i++) memcpy(huge + 2 * i, "\xC3\xA4", 2);
    FU_FAIL(&e, FUSOR_ERROR_ARGUMENT, "x%s", huge);
    cr_assert_lt(e.length, FU_ERROR_TEXT_MAX);
    cr_assert_gt(e.length, FU_ERROR_TEXT_MAX - 8);
    cr_assert_eq((unsigned char)e.text[e.length - 1], 0xA4, "no half character");
    cr_assert_eq(e.length % 2, 1);
}

static fusor_status fails_through(fusor_status s, bool *reached) {
    FU_TRY(s);
    *reached = true;
    return FUSOR_OK;
}

Test(error, try_forwards) {
    bool reached = false;
    cr_assert_eq(fails_through(FUSOR_ERROR_MISS, &reached), FUSOR_ERROR_MISS);
    cr_assert_not(reached);
    cr_assert_eq(fails_through(FUSOR_OK, &reached), FUSOR_OK);
    cr_assert(reached);
}

Test(error, status_names) {
    cr_assert_str_eq(fusor_status_name(FUSOR_OK), "FUSOR_OK");
    cr_assert_str_eq(fusor_status_name(FUSOR_ERROR_SHAPE), "FUSOR_ERROR_SHAPE");
    cr_assert_str_eq(fusor_status_name(FUSOR_ERROR_INTERNAL), "FUSOR_ERROR_INTERNAL");
    cr_assert_str_eq(fusor_status_name((fusor_status)99), "?");
    cr_assert_str_eq(fusor_status_name((fusor_status)-1), "?");
    int major, minor, patch;
    cr_assert_eq(sscanf(fusor_version_string(), "%d.%d.%d", &major, &minor, &patch), 3);
    cr_assert_eq(fusor_version(), major * 10000 + minor * 100 + patch);
}
