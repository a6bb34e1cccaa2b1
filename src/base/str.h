/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FU_STR_H
#define FU_STR_H
/* String builder in an arena. `at` is always NUL-terminated once anything was added (or after fu_str_init). */
#include "base/arena.h"
#include <stdarg.h>

typedef struct fu_str {
    char *at;
    size_t n, cap;
    fu_arena *arena;
} fu_str;

void fu_str_init(fu_str *s, fu_arena *a);
void fu_str_add(fu_str *s, const char *text);
void fu_str_addn(fu_str *s, const char *text, size_t n);
void fu_str_addc(fu_str *s, char c);
void fu_str_addf(fu_str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void fu_str_addv(fu_str *s, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
/* Shortest decimal that reads back the same bits (C locale, independent of setlocale): "0.1", "1.0", "1e-07",
 * "inf", "-inf", "nan". bits = 64 or 32: which type must read back. Always has a '.', an 'e' or a word. */
void fu_str_add_float(fu_str *s, double v, int bits);
/* Locale-independent strtod over [text, text+n); decimal and C hexadecimal; *end = first char not used. */
double fu_parse_float(const char *text, size_t n, const char **end);
/* The candidate nearest to `word` by edit distance (Damerau), of equally near ones the one that begins most alike, or
 * NULL when none is near enough to suggest. */
const char *fu_nearest(const char *word, const char *const *candidates, size_t n);
/* Length of the UTF-8 sequence at `at`, 0 where it is not valid. */
size_t fu_utf8_length(const char *at, const char *end);
/* What is no UTF-8 becomes '?', for texts that are printed or put into JSON. */
void fu_make_utf8(char *text);
/* For JSON, which has no other strings: the text itself, or a copy with U+FFFD for each byte that is no UTF-8 (paths
 * and the environment hold any bytes). */
const char *fu_utf8(fu_arena *a, const char *text);
/* Length of the control character at `at` that a terminal would obey (C0, DEL, C1, and those that turn the direction of
 * writing), 0 where it is none. */
size_t fu_control_length(const char *at, const char *end);
/* Controls become '?' each, and what is no UTF-8 does; with_lines: newlines and tabs stay. The length that is left. */
size_t fu_make_printable(char *text, bool with_lines);
/* Cells of a terminal that the character of n bytes at `at` takes: 0 (it joins the one before it), 1 or 2 (East Asian
 * ones, emoji). */
int fu_cells(const char *at, size_t n);
#endif
