/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* str.c: the string builder, floats as text in both directions, and the spelling suggestion. */
#include "base/str.h"
#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void reserve(fu_str *s, size_t more) {
    if (s->cap - s->n > more) return; /* one byte is kept for the NUL */
    size_t cap = s->cap ? s->cap * 2 : 64;
    while (cap - s->n <= more && cap <= SIZE_MAX / 4) cap *= 2;
    if (cap - s->n <= more) cap = SIZE_MAX; /* more than there is: fu_alloc says so */
    char *at = fu_alloc(s->arena, cap);
    if (s->n) memcpy(at, s->at, s->n);
    s->at = at;
    s->cap = cap;
}

void fu_str_init(fu_str *s, fu_arena *a) {
    *s = (fu_str){.arena = a};
    reserve(s, 0);
}

void fu_str_add(fu_str *s, const char *text) { fu_str_addn(s, text, strlen(text)); }

void fu_str_addn(fu_str *s, const char *text, size_t n) {
    reserve(s, n);
    if (n) memcpy(s->at + s->n, text, n);
    s->n += n;
    s->at[s->n] = 0;
}

void fu_str_addc(fu_str *s, char c) { fu_str_addn(s, &c, 1); }

void fu_str_addf(fu_str *s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fu_str_addv(s, fmt, ap);
    va_end(ap);
}

void fu_str_addv(fu_str *s, const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    reserve(s, 0);
    int n = vsnprintf(s->at + s->n, s->cap - s->n, fmt, ap);
    if (n > 0 && (size_t)n >= s->cap - s->n) {
        s->at[s->n] = 0;
        reserve(s, (size_t)n);
        vsnprintf(s->at + s->n, s->cap - s->n, fmt, again);
    }
    va_end(again);
    if (n > 0) s->n += (size_t)n;
    s->at[s->n] = 0;
}

/* glibc has the C locale built in: no allocation, nothing to free. */
static locale_t c_locale(void) { return newlocale(LC_ALL_MASK, "C", (locale_t)0); }

static bool reads_back(const char *text, double v, int bits, locale_t c) {
    return bits == 32 ? strtof_l(text, NULL, c) == (float)v : strtod_l(text, NULL, c) == v;
}

/* "d.ddde+XX" with the fewest digits that read back. Numbers with full precision keep `sure` decimal digits, so if
 * these read back, dropping trailing zeros gives the shortest; subnormal ones have fewer digits: tried from 1 up. */
static void shortest_scientific(char out[static 40], double v, int bits) {
    locale_t c = c_locale(), before = uselocale(c);
    double smallest_normal = bits == 32 ? 0x1p-126 : 0x1p-1022;
    int sure = bits == 32 ? 6 : 15, most = bits == 32 ? 9 : 17;
    int digits = fabs(v) < smallest_normal ? 1 : sure;
    do snprintf(out, 40, "%.*e", digits - 1, v);
    while (!reads_back(out, v, bits, c) && digits++ < most);
    uselocale(before);
    freelocale(c);
}

void fu_str_add_float(fu_str *s, double v, int bits) {
    if (bits == 32) v = (double)(float)v;
    if (isnan(v)) {
        fu_str_add(s, "nan");
        return;
    }
    if (signbit(v)) fu_str_addc(s, '-');
    v = fabs(v);
    if (isinf(v)) {
        fu_str_add(s, "inf");
        return;
    }
    char text[40], digit[24];
    shortest_scientific(text, v, bits);
    int n = 0, exponent = atoi(strchr(text, 'e') + 1);
    for (const char *p = text; *p != 'e'; p++)
        if (*p != '.') digit[n++] = *p;
    while (n > 1 && digit[n - 1] == '0') n--;
    /* Fixed notation for the same range as Python's repr. */
    if (exponent < -4 || exponent >= 16) {
        fu_str_addc(s, digit[0]);
        if (n > 1) fu_str_addc(s, '.');
        fu_str_addn(s, digit + 1, (size_t)(n - 1));
        fu_str_addf(s, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        fu_str_add(s, "0.");
        for (int i = -1; i > exponent; i--) fu_str_addc(s, '0');
        fu_str_addn(s, digit, (size_t)n);
    } else {
        for (int i = 0; i <= exponent; i++) fu_str_addc(s, i < n ? digit[i] : '0');
        fu_str_addc(s, '.');
        if (n > exponent + 1) fu_str_addn(s, digit + exponent + 1, (size_t)(n - exponent - 1));
        else fu_str_addc(s, '0');
    }
}

static bool starts_with_word(const char *p, const char *stop, const char *word) {
    size_t n = strlen(word);
    return (size_t)(stop - p) >= n && strncasecmp(p, word, n) == 0;
}

static const char *skip_digits(const char *p, const char *stop, bool hex) {
    while (p < stop && (hex ? isxdigit((unsigned char)*p) : isdigit((unsigned char)*p))) p++;
    return p;
}

/* The end of the number that starts at text, or text when there is none. */
static const char *scan_float(const char *text, const char *stop) {
    const char *p = text;
    if (p < stop && (*p == '+' || *p == '-')) p++;
    if (starts_with_word(p, stop, "infinity")) return p + 8;
    if (starts_with_word(p, stop, "inf") || starts_with_word(p, stop, "nan")) return p + 3;
    bool hex = stop - p > 2 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X') &&
               (isxdigit((unsigned char)p[2]) || (p[2] == '.' && stop - p > 3 && isxdigit((unsigned char)p[3])));
    if (hex) p += 2;
    const char *whole = p;
    p = skip_digits(p, stop, hex);
    bool any = p > whole;
    if (p < stop && *p == '.') {
        const char *fraction = p + 1;
        const char *q = skip_digits(fraction, stop, hex);
        if (any || q > fraction) p = q;
        any |= q > fraction;
    }
    if (!any) return text;
    if (p < stop && (hex ? *p == 'p' || *p == 'P' : *p == 'e' || *p == 'E')) {
        const char *q = p + 1;
        if (q < stop && (*q == '+' || *q == '-')) q++;
        const char *r = skip_digits(q, stop, false);
        if (r > q) p = r;
    }
    return p;
}

double fu_parse_float(const char *text, size_t n, const char **end) {
    const char *stop = scan_float(text, text + n);
    size_t used = (size_t)(stop - text);
    char small[128], *copy = used < sizeof small ? small : fu_malloc(used + 1);
    if (!copy) used = 0, stop = text;
    if (end) *end = stop;
    double v = 0;
    if (used) {
        memcpy(copy, text, used);
        copy[used] = 0;
        locale_t c = c_locale();
        v = strtod_l(copy, NULL, c);
        freelocale(c);
    }
    if (copy && copy != small) fu_free(copy);
    return v;
}

enum { NEAREST_MAX = 64 };

/* Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours cost 1 each. */
static size_t edit_distance(const char *a, size_t n, const char *b, size_t m) {
    size_t row[3][NEAREST_MAX + 1];
    size_t *before = row[0], *last = row[1], *now = row[2];
    for (size_t j = 0; j <= m; j++) last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < best) best = last[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        size_t *t = before;
        before = last, last = now, now = t;
    }
    return last[m];
}

const char *fu_nearest(const char *word, const char *const *candidates, size_t n) {
    size_t length = strlen(word);
    if (!length || length > NEAREST_MAX) return NULL;
    /* One slip in a short word, one in three letters of a long one; and never most of the word. */
    size_t limit = length < 6 ? 1 : length / 3, best = limit + 1;
    if (length == 1) return NULL;
    const char *found = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t m = strlen(candidates[i]);
        if (m > NEAREST_MAX || (m > length ? m - length : length - m) >= best) continue;
        size_t d = edit_distance(word, length, candidates[i], m);
        if (d < best) best = d, found = candidates[i];
    }
    return found;
}

/* ---- UTF-8 ---- */
/* Overlong forms and surrogates are not valid. */
size_t fu_utf8_length(const char *at, const char *end) {
    const unsigned char *p = (const unsigned char *)at;
    size_t left = (size_t)(end - at), n = p[0] < 0x80                   ? 1
                                          : p[0] >= 0xC2 && p[0] < 0xE0 ? 2
                                          : (p[0] & 0xF0) == 0xE0       ? 3
                                          : p[0] >= 0xF0 && p[0] < 0xF5 ? 4
                                                                        : 0;
    if (n == 0 || n > left) return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F)) return 0;
    if ((p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F)) return 0;
    return n;
}

void fu_make_utf8(char *text) {
    const char *end = text + strlen(text);
    while (*text) {
        const size_t n = fu_utf8_length(text, end);
        if (n == 0) *text = '?';
        text += n ? n : 1;
    }
}
