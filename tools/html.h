/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TOOL_HTML_H
#define TOOL_HTML_H
/* Pages that need nothing but themselves: no network, no font, no library. Light and dark by the reader's system.
 *
 * Colours are CSS variables, so that SVG drawn into a page follows them too: --page --card --ink --soft --line --accent
 * --good --bad, and --s1 ... --s6 for series (classes s1 ... s6 fill with them, l1 ... l6 draw lines). Further classes:
 * card (a box), note (small and soft), tag (a word in a frame), num (a cell flush right), scroll (what is wider than
 * the page), wide (a page that uses the whole window). */
#include "options.h"
#include "base/str.h"

enum { HTML_SERIES = 6 };

/* Text with < > & and quotes made harmless; fit for attributes in double quotes too. */
void html_text(fu_str *o, const char *text);
/* The document up to and with <main> and its heading; lead: one line below it, or NULL. style: further CSS, or NULL. */
void html_begin(fu_str *o, const char *title, const char *lead, const char *style);
/* script: JavaScript that runs once the page is there, or NULL. */
void html_end(fu_str *o, const char *script);

/* A table: heads, then rows of as many cells of text (NULL: an empty one). Columns are flush right but for the first
 * and those in left_mask (bit c = column c). */
typedef struct html_table {
    fu_str *out;
    int columns;
    uint32_t left_mask;
} html_table;
html_table html_table_begin(fu_str *o, int columns, uint32_t left_mask, const char *const *heads);
void html_row(html_table *t, ...);
/* The same, cell by cell: html_cell opens one, what is added to the page until the next is its contents. */
void html_row_begin(html_table *t);
void html_cell(html_table *t, int column);
void html_row_end(html_table *t);
void html_table_end(html_table *t);

/* A horizontal bar of `share` (0 to 1, else cut) of the cell or line that it stands in, in the colour of a series (1
 * ...), with text behind it. */
void html_bar(fu_str *o, double share, int series, const char *text);
/* A number in a box over a few words: <div class="figures"> holds several beside each other. */
void html_figure(fu_str *o, const char *number, const char *words);
/* A square of a series' colour and its name. */
void html_key(fu_str *o, int series, const char *name);
#endif
