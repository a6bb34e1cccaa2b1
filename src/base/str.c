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

static size_t common(const char *a, const char *b) {
    size_t n = 0;
    while (a[n] && a[n] == b[n]) n++;
    return n;
}

const char *fu_nearest(const char *word, const char *const *candidates, size_t n) {
    size_t length = strlen(word);
    if (!length || length > NEAREST_MAX) return NULL;
    /* One slip in a short word, one in three letters of a long one; and never most of the word. */
    size_t limit = length < 6 ? 1 : length / 3, best = limit + 1, begin = 0;
    if (length == 1) return NULL;
    const char *found = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t m = strlen(candidates[i]);
        if (m > NEAREST_MAX || (m > length ? m - length : length - m) > best) continue;
        size_t d = edit_distance(word, length, candidates[i], m);
        /* Of equals, what begins alike, then what has as many letters: those were swapped or mistyped. */
        const size_t same = 2 * common(word, candidates[i]) + (m == length);
        if (d < best || (d == best && found && same > begin)) best = d, begin = same, found = candidates[i];
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

const char *fu_utf8(fu_arena *a, const char *text) {
    const char *end = text + strlen(text), *p = text;
    size_t n;
    while (p < end && (n = fu_utf8_length(p, end)) != 0) p += n;
    if (p == end) return text;
    fu_str s;
    fu_str_init(&s, a);
    for (p = text; p < end; p += n ? n : 1) {
        n = fu_utf8_length(p, end);
        if (n) fu_str_addn(&s, p, n);
        else fu_str_add(&s, "\xEF\xBF\xBD");
    }
    return s.at;
}

/* n: as fu_utf8_length has it. */
static uint32_t code_point(const char *at, size_t n) {
    const unsigned char *p = (const unsigned char *)at;
    uint32_t c = n < 2 ? p[0] : p[0] & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++) c = c << 6 | (p[i] & 0x3F);
    return c;
}

size_t fu_control_length(const char *at, const char *end) {
    const size_t n = fu_utf8_length(at, end);
    const uint32_t c = code_point(at, n);
    const bool is_control =
        c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
    return is_control ? n : 0;
}

size_t fu_make_printable(char *text, bool with_lines) {
    const char *end = text + strlen(text), *from = text;
    char *to = text;
    while (from < end) {
        const size_t n = fu_utf8_length(from, end), control = fu_control_length(from, end);
        if (n == 0 || (control && !(with_lines && (*from == '\n' || *from == '\t')))) *to++ = '?';
        else to = (char *)memmove(to, from, n) + n;
        from += n ? n : 1;
    }
    *to = 0;
    return (size_t)(to - text);
}

typedef struct range {
    uint32_t first, last;
} range;

static bool is_in(const range *r, size_t n, uint32_t c) {
    for (size_t i = 0; i < n; i++)
        if (c >= r[i].first && c <= r[i].last) return true;
    return false;
}

/* Unicode 16, EastAsianWidth.txt (W and F) and the blocks of combining marks that text on a terminal has. */
int fu_cells(const char *at, size_t n) {
    static const range joined[] = {{0x300, 0x36F},   {0x200B, 0x200F}, {0x20D0, 0x20FF},  {0xFE00, 0xFE0F},
                                   {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}, {0xE0100, 0xE01EF}},
                       wide[] = {{0x1100, 0x115F},   {0x231A, 0x231B},   {0x2329, 0x232A},   {0x23E9, 0x23EC},
                                 {0x23F0, 0x23F0},   {0x23F3, 0x23F3},   {0x25FD, 0x25FE},   {0x2614, 0x2615},
                                 {0x2648, 0x2653},   {0x267F, 0x267F},   {0x2693, 0x2693},   {0x26A1, 0x26A1},
                                 {0x26AA, 0x26AB},   {0x26BD, 0x26BE},   {0x26C4, 0x26C5},   {0x26CE, 0x26CE},
                                 {0x26D4, 0x26D4},   {0x26EA, 0x26EA},   {0x26F2, 0x26F3},   {0x26F5, 0x26F5},
                                 {0x26FA, 0x26FA},   {0x26FD, 0x26FD},   {0x2705, 0x2705},   {0x270A, 0x270B},
                                 {0x2728, 0x2728},   {0x274C, 0x274C},   {0x274E, 0x274E},   {0x2753, 0x2755},
                                 {0x2757, 0x2757},   {0x2795, 0x2797},   {0x27B0, 0x27B0},   {0x27BF, 0x27BF},
                                 {0x2B1B, 0x2B1C},   {0x2B50, 0x2B50},   {0x2B55, 0x2B55},   {0x2E80, 0x303E},
                                 {0x3041, 0xA4CF},   {0xA960, 0xA97C},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},
                                 {0xFE10, 0xFE19},   {0xFE30, 0xFE6F},   {0xFF01, 0xFF60},   {0xFFE0, 0xFFE6},
                                 {0x16FE0, 0x1B2FF}, {0x1F004, 0x1F004}, {0x1F0CF, 0x1F0CF}, {0x1F18E, 0x1F18E},
                                 {0x1F191, 0x1F19A}, {0x1F200, 0x1F320}, {0x1F32D, 0x1F335}, {0x1F337, 0x1F37C},
                                 {0x1F37E, 0x1F393}, {0x1F3A0, 0x1F3CA}, {0x1F3CF, 0x1F3D3}, {0x1F3E0, 0x1F3F0},
                                 {0x1F3F4, 0x1F3F4}, {0x1F3F8, 0x1F43E}, {0x1F440, 0x1F440}, {0x1F442, 0x1F4FC},
                                 {0x1F4FF, 0x1F53D}, {0x1F54B, 0x1F54E}, {0x1F550, 0x1F567}, {0x1F57A, 0x1F57A},
                                 {0x1F595, 0x1F596}, {0x1F5A4, 0x1F5A4}, {0x1F5FB, 0x1F64F}, {0x1F680, 0x1F6C5},
                                 {0x1F6CC, 0x1F6CC}, {0x1F6D0, 0x1F6DF}, {0x1F6EB, 0x1F6EF}, {0x1F6F4, 0x1F6FF},
                                 {0x1F7E0, 0x1F7FF}, {0x1F90C, 0x1F93A}, {0x1F93C, 0x1F945}, {0x1F947, 0x1F9FF},
                                 {0x1FA70, 0x1FAFF}, {0x20000, 0x3FFFD}};
    const uint32_t c = code_point(at, n);
    if (c < 0x300) return 1;
    if (is_in(joined, sizeof joined / sizeof *joined, c)) return 0;
    return is_in(wide, sizeof wide / sizeof *wide, c) ? 2 : 1;
}
