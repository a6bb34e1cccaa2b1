/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* html.c: the frame of a page, its style, tables and bars. What is put on a page is built as text in an arena, in
 * order. */
#include "html.h"
#include <stdarg.h>

/* Contrast of text on its ground is at least 4.5 to 1 in both schemes, of series on a card at least 3 to 1. */
static const char style_text[] =
    ":root{color-scheme:light "
    "dark;--page:#f5f6f8;--card:#fff;--ink:#1c2128;--soft:#5b6573;--line:#d8dde4;--accent:#1f62ad;--good:#1f7a4a;"
    "--bad:#b3342a;--s1:#2c6fb7;--s2:#c96f14;--s3:#2a8f63;--s4:#a8488a;--s5:#6b5cc4;--s6:#78818c;--code:#f1f3f6}\n"
    "@media "
    "(prefers-color-scheme:dark){:root{--page:#131619;--card:#1c2025;--ink:#e4e8ed;--soft:#9ba6b3;--line:#353c45;--"
    "accent:#78b4f4;"
    "--good:#5cc48e;--bad:#f0857a;--s1:#5f9fe6;--s2:#e69a45;--s3:#50b887;--s4:#d57fb5;--s5:#a096ee;--s6:#98a1ac;--code:"
    "#15181c}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe "
    "UI',Roboto,'DejaVu Sans',sans-serif}\n"
    "main{max-width:1180px;margin:0 auto;padding:28px 24px 64px}.wide main{max-width:none}\n"
    "h1{font-size:24px;line-height:1.25;margin:0 0 "
    "4px;font-weight:650;overflow-wrap:anywhere}h2{font-size:17px;margin:36px 0 10px;font-weight:650}"
    "h3{font-size:15px;margin:20px 0 6px;font-weight:650}\n"
    "p{margin:6px 0}.lead{color:var(--soft);margin:0 0 "
    "20px}.note{color:var(--soft);font-size:13px}a{color:var(--accent)}\n"
    "code,pre,.mono{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}\n"
    "pre{background:var(--code);border:1px solid var(--line);border-radius:6px;padding:10px 12px;margin:6px "
    "0;overflow:auto}\n"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 18px;margin:0 0 "
    "14px}.scroll{overflow-x:auto}\n"
    ".figures{display:flex;flex-wrap:wrap;gap:12px;margin:0 0 14px}.figure{background:var(--card);border:1px solid "
    "var(--line);border-radius:8px;"
    "padding:10px 16px;min-width:130px}.figure "
    "b{display:block;font-size:20px;font-weight:650;line-height:1.3;font-variant-numeric:tabular-nums}"
    ".figure span{color:var(--soft);font-size:13px}\n"
    "table{border-collapse:collapse;width:100%;font-size:14px;background:var(--card)}"
    "th{font-weight:600;color:var(--soft);font-size:13px;text-align:left;white-space:nowrap;border-bottom:1px solid "
    "var(--line);padding:6px 10px}"
    "td{border-bottom:1px solid var(--line);padding:5px 10px;vertical-align:top}tr:last-child td{border-bottom:0}"
    "th.num,td.num{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}\n"
    ".tag{display:inline-block;border:1px solid var(--line);border-radius:4px;padding:0 "
    "6px;font-size:12.5px;line-height:1.55;color:var(--soft);white-space:nowrap}\n"
    ".bar{position:relative;display:block;min-width:90px;background:var(--code);border-radius:3px;overflow:hidden}"
    ".bar i{position:absolute;inset:0 auto 0 0;opacity:.35;border-radius:3px}.bar "
    "b{position:relative;font-weight:400;padding:0 6px;"
    "font-variant-numeric:tabular-nums;white-space:nowrap}\n"
    ".key{white-space:nowrap;display:inline-flex;align-items:center;gap:6px;margin-right:14px;font-size:13px}.key "
    "i{width:11px;height:11px;border-radius:2px}\n"
    ".good{color:var(--good)}.bad{color:var(--bad)}\n"
    "svg text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:var(--ink)}svg "
    ".soft{fill:var(--soft)}"
    "svg .axis{stroke:var(--line);fill:none}\n";

void html_text(fu_str *o, const char *text) {
    for (; *text; text++) {
        if (*text == '<') fu_str_add(o, "&lt;");
        else if (*text == '>') fu_str_add(o, "&gt;");
        else if (*text == '&') fu_str_add(o, "&amp;");
        else if (*text == '"') fu_str_add(o, "&quot;");
        else if (*text == '\'') fu_str_add(o, "&#39;");
        else if ((unsigned char)*text >= ' ' || *text == '\n' || *text == '\t') fu_str_addc(o, *text);
    }
}

void html_begin(fu_str *o, const char *title, const char *lead, const char *style) {
    fu_str_add(o, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
                  "content=\"width=device-width,initial-scale=1\">\n<title>");
    html_text(o, title);
    fu_str_addf(o, "</title>\n<style>\n%s", style_text);
    for (int i = 1; i <= HTML_SERIES; i++)
        fu_str_addf(o, ".s%d{background:var(--s%d);fill:var(--s%d)}.l%d{stroke:var(--s%d);fill:none}", i, i, i, i, i);
    fu_str_addf(o, "\n%s</style></head>\n<body><main>\n<h1>", style ? style : "");
    html_text(o, title);
    fu_str_add(o, "</h1>\n");
    if (!lead) return;
    fu_str_add(o, "<p class=\"lead\">");
    html_text(o, lead);
    fu_str_add(o, "</p>\n");
}

void html_end(fu_str *o, const char *script) {
    fu_str_add(o, "</main>\n");
    if (script) fu_str_addf(o, "<script>\n%s</script>\n", script);
    fu_str_add(o, "</body></html>\n");
}

static bool is_left(const html_table *t, int column) { return column == 0 || t->left_mask >> column & 1; }

html_table html_table_begin(fu_str *o, int columns, uint32_t left_mask, const char *const *heads) {
    html_table t = {o, columns, left_mask};
    fu_str_add(o, "<div class=\"card scroll\"><table><thead><tr>");
    for (int c = 0; c < columns; c++) {
        fu_str_addf(o, "<th%s>", is_left(&t, c) ? "" : " class=\"num\"");
        html_text(o, heads[c]);
        fu_str_add(o, "</th>");
    }
    fu_str_add(o, "</tr></thead><tbody>\n");
    return t;
}

void html_row_begin(html_table *t) { fu_str_add(t->out, "<tr>"); }
/* HTML closes a cell where the next one opens. */
void html_cell(html_table *t, int column) { fu_str_addf(t->out, "<td%s>", is_left(t, column) ? "" : " class=\"num\""); }
void html_row_end(html_table *t) { fu_str_add(t->out, "</tr>\n"); }

void html_row(html_table *t, ...) {
    va_list ap;
    va_start(ap, t);
    html_row_begin(t);
    for (int c = 0; c < t->columns; c++) {
        const char *cell = va_arg(ap, const char *);
        html_cell(t, c);
        html_text(t->out, cell ? cell : "");
    }
    html_row_end(t);
    va_end(ap);
}

void html_table_end(html_table *t) { fu_str_add(t->out, "</tbody></table></div>\n"); }

void html_bar(fu_str *o, double share, int series, const char *text) {
    double percent = share > 1 ? 100 : share > 0 ? 100 * share : 0; /* NaN: nothing */
    fu_str_addf(o, "<span class=\"bar\"><i class=\"s%d\" style=\"width:%.1f%%\"></i><b>", series, percent);
    html_text(o, text);
    fu_str_add(o, "</b></span>");
}

void html_figure(fu_str *o, const char *number, const char *words) {
    fu_str_add(o, "<div class=\"figure\"><b>");
    html_text(o, number);
    fu_str_add(o, "</b><span>");
    html_text(o, words);
    fu_str_add(o, "</span></div>\n");
}

void html_key(fu_str *o, int series, const char *name) {
    fu_str_addf(o, "<span class=\"key\"><i class=\"s%d\"></i>", series);
    html_text(o, name);
    fu_str_add(o, "</span>");
}
