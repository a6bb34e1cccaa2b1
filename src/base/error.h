/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FU_ERROR_H
#define FU_ERROR_H
/* The error record of one call: the first error wins; parse and type errors of later statements are appended
 * to its text, up to 20 (doc/language.md, Errors). */
#include "fusor/type.h"
#include <stdarg.h>
#include <stdbool.h>

#define FU_ERROR_TEXT_MAX        16384
#define FU_ERROR_MAX_DIAGNOSTICS 20

typedef struct fu_error {
    fusor_status status;     /* of the first error; FUSOR_OK = none */
    int n;                   /* diagnostics in text */
    const char *source_file; /* __FILE__ and line in fusor that raised the first one (debugging) */
    int source_line;
    size_t length;
    char text[FU_ERROR_TEXT_MAX]; /* truncated at a line end where longer */
} fu_error;

/* Where in a user's text: line and column count from 1; 0 = unknown. The column counts UTF-8 code points. */
typedef struct fu_loc {
    uint32_t line, col;
} fu_loc;
/* The user's text, for the caret lines. name: a path, or "<text>". */
typedef struct fu_source {
    const char *name, *text;
    size_t length;
} fu_source;

void fu_error_clear(fu_error *e);
/* Records "MESSAGE" (no place). Only the first one of a call is kept. Returns status. */
fusor_status fu_fail(fu_error *e, fusor_status status, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Records "NAME:LINE:COL: error: MESSAGE", the source line and a caret; appends after earlier ones. Returns the FIRST
 * status. */
fusor_status fu_fail_at(fu_error *e, fusor_status status, const fu_source *src, fu_loc loc, const char *file, int line,
                        const char *fmt, ...) __attribute__((format(printf, 7, 8)));

/* Puts more in front of a recorded message: which of many things failed. */
void fu_error_prefix(fu_error *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define FU_FAIL(e, status, ...)              fu_fail((e), (status), __FILE__, __LINE__, __VA_ARGS__)
#define FU_FAIL_AT(e, status, src, loc, ...) fu_fail_at((e), (status), (src), (loc), __FILE__, __LINE__, __VA_ARGS__)
#define FU_TRY(expr)                                                                                                   \
    do {                                                                                                               \
        fusor_status status_ = (expr);                                                                                 \
        if (status_ != FUSOR_OK) return status_;                                                                       \
    } while (0)
#endif
