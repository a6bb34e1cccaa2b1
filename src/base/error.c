/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* error.c: the error record of one call, with the caret lines of errors that have a place in a text. */
#include "base/small.h"
#include "base/error.h"
#include "base/str.h"
#include <stdio.h>
#include <string.h>

enum { LINE_MAX_COLUMNS = 160, WINDOW_BEFORE = 100 };

void fu_error_clear(fu_error *e) {
    e->status = FUSOR_OK;
    e->n = 0;
    e->source_file = NULL;
    e->source_line = 0;
    e->length = 0;
    e->text[0] = 0;
}

/* Appends; what does not fit is dropped, see cut(). */
static void add(fu_error *e, const char *text, size_t n) {
    size_t room = FU_ERROR_TEXT_MAX - 1 - e->length;
    if (n > room) n = room;
    memcpy(e->text + e->length, text, n);
    e->length += n;
    e->text[e->length] = 0;
}

static void addv(fu_error *e, const char *fmt, va_list ap) {
    size_t room = FU_ERROR_TEXT_MAX - e->length;
    int n = vsnprintf(e->text + e->length, room, fmt, ap);
    if (n > 0) e->length += (size_t)n < room ? (size_t)n : room - 1;
}

static bool is_full(const fu_error *e) { return e->length == FU_ERROR_TEXT_MAX - 1; }

/* A text that ran into the end of the record ends with its last whole line; one long line, between two characters. All
 * is UTF-8, whatever was quoted, as reports are JSON, and nothing in it moves the cursor of a terminal or worse. */
static void cut(fu_error *e) {
    if (!is_full(e)) {
        e->length = fu_make_printable(e->text, true);
        return;
    }
    size_t n = e->length;
    while (n > 0 && e->text[n - 1] != '\n') n--;
    if (n > 0) n--;
    else {
        n = e->length;
        while (n > 0 && ((unsigned char)e->text[n - 1] & 0xC0) == 0x80) n--;
        if (n > 0 && (unsigned char)e->text[n - 1] >= 0xC0) n--;
    }
    e->text[n] = 0;
    e->length = fu_make_printable(e->text, true);
}

static void note_first(fu_error *e, fusor_status status, const char *file, int line) {
    if (e->n++) return;
    e->status = status;
    e->source_file = file;
    e->source_line = line;
}

fusor_status fu_fail(fu_error *e, fusor_status status, const char *file, int line, const char *fmt, ...) {
    if (e->n) return e->status;
    note_first(e, status, file, line);
    e->length = 0;
    va_list ap;
    va_start(ap, fmt);
    addv(e, fmt, ap);
    va_end(ap);
    cut(e);
    return status;
}

/* Behind the character at p, or one broken byte, as the lexer counts columns. */
static const char *after(const char *p, const char *end) {
    const size_t n = fu_utf8_length(p, end);
    return p + (n ? n : 1);
}

/* The byte at code point `col` (from 0) of [line, end), or end. */
static const char *at_column(const char *line, const char *end, uint32_t col) {
    const char *p = line;
    for (uint32_t i = 0; p < end && i < col; i++) p = after(p, end);
    return p;
}

/* "\n" + the source line + "\n" + caret. The caret's indent repeats the line's tabs, so any tab width lines up. */
static void add_caret(fu_error *e, const fu_source *src, fu_loc loc) {
    const char *end = src->text + src->length, *line = src->text;
    for (uint32_t i = 1; i < loc.line; i++) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        if (!newline) return;
        line = newline + 1;
    }
    const char *stop = memchr(line, '\n', (size_t)(end - line));
    if (!stop) stop = end;
    if (stop > line && stop[-1] == '\r') stop--;
    uint32_t columns = 0, caret = loc.col - 1, from = 0;
    for (const char *p = line; p < stop; p = after(p, stop)) columns++;
    if (caret > columns) caret = columns; /* just after the end: something is missing there */
    bool cut_right = false;
    if (columns > LINE_MAX_COLUMNS) {
        if (caret > WINDOW_BEFORE) from = caret - WINDOW_BEFORE;
        if (from > columns - LINE_MAX_COLUMNS) from = columns - LINE_MAX_COLUMNS;
        cut_right = from + LINE_MAX_COLUMNS < columns;
        if (cut_right) stop = at_column(line, stop, from + LINE_MAX_COLUMNS);
        line = at_column(line, stop, from);
    }
    add(e, "\n", 1);
    if (from) add(e, "...", 3);
    for (const char *p = line; p < stop; p = after(p, stop)) { /* one column stays one, see cut() */
        const bool is_control = *p != '\t' && fu_control_length(p, stop);
        add(e, is_control ? "?" : p, is_control ? 1 : (size_t)(after(p, stop) - p));
    }
    if (cut_right) add(e, "...", 3);
    add(e, "\n", 1);
    if (from) add(e, "   ", 3);
    const char *place = at_column(line, stop, caret - from);
    for (const char *p = line; p < place; p = after(p, stop)) {
        const size_t n = fu_utf8_length(p, stop);
        const int cells = n && !fu_control_length(p, stop) ? fu_cells(p, n) : 1;
        if (*p == '\t') add(e, "\t", 1);
        else add(e, "  ", (size_t)cells);
    }
    add(e, "^", 1);
}

fusor_status fu_fail_at(fu_error *e, fusor_status status, const fu_source *src, fu_loc loc, const char *file, int line,
                        const char *fmt, ...) {
    if (e->n >= FU_ERROR_MAX_DIAGNOSTICS || (e->n && is_full(e))) return e->status;
    bool first = e->n == 0;
    note_first(e, status, file, line);
    if (first) e->length = 0;
    else add(e, "\n", 1);
    const char *name = src && src->name ? src->name : "<text>";
    const size_t name_at = e->length;
    add(e, name, strlen(name));
    e->length = name_at + fu_make_printable(e->text + name_at, false);
    char place[32] = "";
    if (loc.line && loc.col) snprintf(place, sizeof place, ":%u:%u", loc.line, loc.col);
    else if (loc.line) snprintf(place, sizeof place, ":%u", loc.line);
    add(e, place, strlen(place));
    add(e, ": error: ", 9);
    va_list ap;
    va_start(ap, fmt);
    addv(e, fmt, ap);
    va_end(ap);
    if (src && src->text && loc.line && loc.col) add_caret(e, src, loc);
    cut(e);
    return e->status;
}

void fu_error_prefix(fu_error *e, const char *fmt, ...) {
    char prefix[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    size_t room = FU_ERROR_TEXT_MAX - 1, size = n < 0 ? 0 : (size_t)n < sizeof prefix ? (size_t)n : sizeof prefix - 1;
    size_t kept = e->length < room - size ? e->length : room - size;
    memmove(e->text + size, e->text, kept);
    memcpy(e->text, prefix, size);
    e->length = size + kept;
    e->text[e->length] = 0;
    cut(e);
}
