/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* html_check.c [WORD ...]: stdin is a page whose elements nest and close, whose attributes are quoted, whose text has
 * no bare < or &, that asks for no other file and has no script, and that has every WORD. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int bad(const char *page, const char *at, const char *what) {
    int line = 1;
    for (const char *p = page; p < at; p++) line += *p == '\n';
    printf("line %d: %s: %.60s\n", line, what, at);
    return 1;
}

static int entity(const char *p) {
    static const char *const known[] = {"&lt;", "&gt;", "&amp;", "&quot;", "&#39;"};
    for (int i = 0; i < 5; i++)
        if (strncmp(p, known[i], strlen(known[i])) == 0) return 1;
    return 0;
}

int main(int argc, char **argv) {
    static char page[16 << 20], open[64][32];
    size_t n = fread(page, 1, sizeof page - 1, stdin);
    int depth = 0, elements = 0;
    page[n] = 0;
    if (strncmp(page, "<!DOCTYPE html>", 15) != 0) return bad(page, page, "no doctype");
    for (char *p = page + 15; *p;) {
        if (*p == '&' && !entity(p)) return bad(page, p, "a bare &");
        if (*p == '>') return bad(page, p, "a bare >");
        if (*p != '<') {
            p++;
            continue;
        }
        char *start = p++, name[32];
        int is_end = *p == '/', length = 0;
        p += is_end;
        while (isalnum((unsigned char)*p) && length < 31) name[length++] = *p++;
        name[length] = 0;
        if (!length) return bad(page, start, "no name of an element");
        if (is_end) {
            while (depth && (strcmp(open[depth - 1], "td") == 0 || strcmp(open[depth - 1], "th") == 0) &&
                   strcmp(name, open[depth - 1]) != 0)
                depth--; /* HTML closes cells itself */
            if (*p++ != '>' || depth == 0 || strcmp(open[--depth], name) != 0)
                return bad(page, start, "closes what is not open");
            continue;
        }
        elements++;
        while (*p == ' ') {
            char *attribute = ++p;
            while (isalnum((unsigned char)*p) || *p == '-') p++;
            if (p == attribute || p[0] != '=' || p[1] != '"')
                return bad(page, attribute, "an attribute without quotes");
            char *value = p += 2;
            while (*p && *p != '"') {
                if (*p == '<' || (*p == '&' && !entity(p))) return bad(page, p, "a bare < or & in an attribute");
                p++;
            }
            if (!*p) return bad(page, attribute, "no end of an attribute");
            if (strncmp(attribute, "src=", 4) == 0 || (strncmp(attribute, "href=", 5) == 0 && *value != '#'))
                return bad(page, attribute, "asks for another file");
            p++;
        }
        int is_empty = *p == '/';
        p += is_empty;
        if (*p++ != '>') return bad(page, start, "no end of a tag");
        if (strcmp(name, "script") == 0 || strcmp(name, "link") == 0) return bad(page, start, "a script or a link");
        if (is_empty || strcmp(name, "meta") == 0 || strcmp(name, "br") == 0) continue;
        if (depth && strcmp(name, "td") == 0 && strcmp(open[depth - 1], "td") == 0) depth--;
        if (depth == 64) return bad(page, start, "too deep");
        strcpy(open[depth++], name);
        if (strcmp(name, "style") == 0 && !(p = strstr(p, "</style>"))) return bad(page, start, "no end of the style");
        if (strcmp(name, "style") == 0 && (strstr(start, "url(") || strstr(start, "@import")))
            return bad(page, start, "the style asks for another file");
    }
    if (depth) return bad(page, page + n, open[depth - 1]);
    for (int i = 1; i < argc; i++)
        if (!strstr(page, argv[i])) return printf("no '%s'\n", argv[i]), 1;
    return printf("%d elements\n", elements), 0;
}
