/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* lex.c: text to tokens. Every byte is looked at a bounded number of times; what is no token comes back as an ERROR
 * token with a message and is skipped, so the caller always gets on. */
#include "base/small.h"
#include "ir/lex.h"
#include "base/bits.h"
#include <fenv.h>
#include <string.h>

static bool is_letter(int c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_digit(int c) { return c >= '0' && c <= '9'; }
static bool is_part(int c) { return is_letter(c) || is_digit(c) || c == '.'; }
static bool is_hex(int c) { return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f'); }
static int peek(const ir_lexer *x, size_t k) { return (size_t)(x->end - x->p) > k ? (unsigned char)x->p[k] : -1; }

void ir_lex_init(ir_lexer *x, fu_arena *a, const char *text, size_t length) {
    *x = (ir_lexer){.arena = a, .p = text, .end = text + length, .loc = {1, 1}, .at_line_start = true};
}

bool ir_token_is(const ir_token *t, const char *word) {
    return t->kind == IR_TOKEN_WORD && t->n == strlen(word) && memcmp(t->at, word, t->n) == 0;
}

bool ir_word_is_reserved(const char *at, size_t n) {
    static const char *const words[] = {"func", "return", "fusor",  "const",  "alias", "inf", "nan",
                                        "true", "false",  "f8e4m3", "f8e5m2", "i4",    "u4"};
    if (ir_dtype_parse(at, n)) return true;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == n && memcmp(words[i], at, n) == 0) return true;
    return false;
}

bool ir_is_ident(const char *text) {
    if (!*text) return false;
    bool digits = is_digit((unsigned char)*text);
    if (!digits && !is_letter((unsigned char)*text)) return false;
    for (; *text; text++)
        if (digits ? !is_digit((unsigned char)*text) : !is_part((unsigned char)*text)) return false;
    return true;
}

/* Over n bytes that are one character (or one broken byte) and not a line end. */
static void skip_character(ir_lexer *x, size_t n) {
    x->p += n;
    x->loc.col++;
}
static void skip_ascii(ir_lexer *x, size_t n) {
    x->p += n;
    x->loc.col += (uint32_t)n;
}

static void fail(ir_token *t, fu_loc loc, const char *message) {
    t->kind = IR_TOKEN_ERROR;
    t->loc = loc;
    t->text = message;
}

/* A byte that stands nowhere: NUL, broken UTF-8. Skips it. */
static bool bad_byte(ir_lexer *x, ir_token *t) {
    size_t n = fu_utf8_length(x->p, x->end);
    if (n && *x->p) return false;
    if (n) fail(t, x->loc, "NUL byte in the text");
    else fail(t, x->loc, fu_format(x->arena, "byte 0x%02x is not valid UTF-8", (unsigned char)*x->p));
    skip_character(x, 1);
    return true;
}

/* White space and comments; false with an error token. */
static bool skip_space(ir_lexer *x, ir_token *t) {
    bool comment = false;
    while (x->p < x->end) {
        char c = *x->p;
        if (c == '\n') {
            x->p++;
            x->loc = (fu_loc){x->loc.line + 1, 1};
            x->at_line_start = true;
            comment = false;
        } else if (c == ' ' || c == '\t' || c == '\r') {
            skip_ascii(x, 1);
        } else if (comment) {
            if (bad_byte(x, t)) {
                /* The rest of the comment is not looked at again: it would be read as program text. */
                while (x->p < x->end && *x->p != '\n') skip_character(x, 1);
                return false;
            }
            skip_character(x, fu_utf8_length(x->p, x->end));
        } else if (c == '#') {
            comment = true;
        } else {
            break;
        }
    }
    return true;
}

static bool hex4(const char *p, const char *end, uint32_t *out) {
    if (end - p < 4) return false;
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        int c = (unsigned char)p[i];
        int digit = is_digit(c)            ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return false;
        v = v * 16 + (uint32_t)digit;
    }
    *out = v;
    return true;
}

static void add_utf8(fu_str *s, uint32_t c) {
    if (c < 0x80) {
        fu_str_addc(s, (char)c);
    } else if (c < 0x800) {
        fu_str_addc(s, (char)(0xC0 | c >> 6));
        fu_str_addc(s, (char)(0x80 | (c & 0x3F)));
    } else if (c < 0x10000) {
        fu_str_addc(s, (char)(0xE0 | c >> 12));
        fu_str_addc(s, (char)(0x80 | (c >> 6 & 0x3F)));
        fu_str_addc(s, (char)(0x80 | (c & 0x3F)));
    } else {
        fu_str_addc(s, (char)(0xF0 | c >> 18));
        fu_str_addc(s, (char)(0x80 | (c >> 12 & 0x3F)));
        fu_str_addc(s, (char)(0x80 | (c >> 6 & 0x3F)));
        fu_str_addc(s, (char)(0x80 | (c & 0x3F)));
    }
}

/* After a backslash at x->p. NULL, or what is wrong. */
static const char *lex_escape(ir_lexer *x, fu_str *s) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = peek(x, 1);
    const char *known = c > 0 ? strchr(from, c) : NULL;
    if (known) {
        fu_str_addc(s, to[known - from]);
        skip_ascii(x, 2);
        return NULL;
    }
    if (c != 'u') return "unknown escape in a string; known are \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\uXXXX";
    uint32_t v, low;
    if (!hex4(x->p + 2, x->end, &v)) return "\\u needs four hexadecimal digits";
    if (v == 0) return "a string cannot hold the character \\u0000";
    size_t used = 6;
    if (v >= 0xD800 && v < 0xE000) {
        if (v >= 0xDC00 || x->end - x->p < 12 || x->p[6] != '\\' || x->p[7] != 'u' || !hex4(x->p + 8, x->end, &low) ||
            low < 0xDC00 || low >= 0xE000)
            return "\\u escape is half of a surrogate pair";
        v = 0x10000 + ((v - 0xD800) << 10) + (low - 0xDC00);
        used = 12;
    }
    add_utf8(s, v);
    skip_ascii(x, used);
    return NULL;
}

static void lex_string(ir_lexer *x, ir_token *t) {
    const char *wrong = NULL;
    fu_loc where = {0, 0};
    fu_str s;
    fu_str_init(&s, x->arena);
    skip_ascii(x, 1);
    for (;;) {
        int c = peek(x, 0);
        if (c < 0 || c == '\n') {
            /* An error inside is the better message; it also explains why no end was found. */
            if (!wrong) wrong = "string has no closing quote on its line", where = t->loc;
            break;
        }
        if (c == '"') {
            skip_ascii(x, 1);
            break;
        }
        size_t n = fu_utf8_length(x->p, x->end);
        const char *now = NULL;
        fu_loc here = x->loc;
        if (n == 0) now = "string is not valid UTF-8";
        else if (c == 0) now = "NUL byte in the text";
        else if (c < 0x20 || c == 0x7f) now = "control character in a string; write it as an escape";
        else if (c == '\\') now = lex_escape(x, &s);
        else {
            fu_str_addn(&s, x->p, n);
            skip_character(x, n);
        }
        if (now) {
            if (!wrong) wrong = now, where = here;
            if (c == '\\' && peek(x, 1) > 0x20) skip_ascii(x, 1);
            if (x->p < x->end && *x->p != '\n') skip_character(x, 1);
        }
    }
    t->kind = IR_TOKEN_STRING;
    t->text = s.at;
    t->n = (uint32_t)s.n;
    if (wrong) fail(t, where, wrong);
}

/* The sign of (the written number - f). It matters only where f could be a tie between two values of a narrower type:
 * those have their low 28 bits clear. strtod rounds as the thread's rounding mode says, so parsing toward both sides
 * tells whether f is exact. */
static int8_t residue_of(const char *text, size_t n, double f) {
    if (fu_f64_bits(f) & 0xFFFFFFF) return 0;
    int before = fegetround();
    const char *stop;
    fesetround(FE_DOWNWARD);
    double low = fu_parse_float(text, n, &stop);
    fesetround(FE_UPWARD);
    double high = fu_parse_float(text, n, &stop);
    fesetround(before);
    return low == high ? 0 : f == low ? 1 : -1;
}

static void lex_number(ir_lexer *x, ir_token *t) {
    const char *start = x->p, *p = start, *end = x->end;
    bool negative = *p == '-', is_float = false, good = true;
    if (negative) p++;
    const char *body = p;
    if (end - p >= 2 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X')) {
        p += 2;
        size_t n = 0, dots = 0;
        for (; p < end && (is_hex((unsigned char)*p) || *p == '.'); p++) *p == '.' ? dots++ : n++;
        good = n > 0 && dots <= 1;
        is_float = true;
        if (good && p < end && (*p | 32) == 'p') {
            p++;
            if (p < end && (*p == '+' || *p == '-')) p++;
            good = p < end && is_digit((unsigned char)*p);
        } else {
            good = false;
        }
        while (p < end && is_digit((unsigned char)*p)) p++;
        if (!good) t->text = "malformed hexadecimal float; expected a form such as 0x1.8p3 (integers are decimal)";
    } else {
        while (p < end && is_digit((unsigned char)*p)) p++;
        if (p < end && *p == '.') {
            is_float = true;
            p++;
            while (p < end && is_digit((unsigned char)*p)) p++;
        }
        if (p < end && (*p | 32) == 'e') {
            is_float = true;
            p++;
            if (p < end && (*p == '+' || *p == '-')) p++;
            good = p < end && is_digit((unsigned char)*p);
            while (p < end && is_digit((unsigned char)*p)) p++;
        }
        if (!good) t->text = "malformed number; expected digits after the exponent's 'e'";
    }
    if (p < end && is_part((unsigned char)*p)) {
        if (good) t->text = "malformed number";
        good = false;
        while (p < end && is_part((unsigned char)*p)) p++;
    }
    t->at = start;
    t->n = (uint32_t)(p - start);
    skip_ascii(x, (size_t)(p - start));
    if (!good) {
        t->kind = IR_TOKEN_ERROR;
        return;
    }
    const char *stop;
    t->number.f = fu_parse_float(start, t->n, &stop);
    if (__builtin_isinf(t->number.f)) {
        t->kind = IR_TOKEN_ERROR;
        t->text = "number is too large even for f64; infinity is written inf";
        return;
    }
    t->number.residue = residue_of(start, t->n, t->number.f);
    t->kind = is_float ? IR_TOKEN_FLOAT : IR_TOKEN_INTEGER;
    if (is_float) return;
    uint64_t v = 0;
    bool over = false;
    for (const char *q = body; q < p; q++)
        over |= __builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(*q - '0'), &v);
    if (over || (negative && v > (uint64_t)INT64_MAX + 1)) t->number.range = IR_RANGE_NONE;
    else if (!negative && v > (uint64_t)INT64_MAX) t->number.range = IR_RANGE_U64;
    t->number.i = (int64_t)(negative ? 0 - v : v);
}

void ir_lex_next(ir_lexer *x, ir_token *t) {
    *t = (ir_token){.kind = IR_TOKEN_ERROR};
    bool after_operand = x->after_operand;
    if (!skip_space(x, t)) return;
    t->starts_line = x->at_line_start;
    t->loc = x->loc;
    t->at = x->p;
    x->at_line_start = false;
    x->after_operand = true;
    if (x->p >= x->end) {
        t->kind = IR_TOKEN_END;
        return;
    }
    if (bad_byte(x, t)) return;
    int c = (unsigned char)*x->p, c1 = peek(x, 1), c2 = peek(x, 2);
    if (is_letter(c) || c == '%' || c == '@') {
        bool sigil = c == '%' || c == '@';
        t->kind = c == '%' ? IR_TOKEN_VALUE : c == '@' ? IR_TOKEN_FUNCTION : IR_TOKEN_WORD;
        if (sigil) skip_ascii(x, 1);
        t->at = x->p;
        const char *p = x->p;
        if (c == '%' && is_digit(c1))
            while (p < x->end && is_digit((unsigned char)*p)) p++;
        else if (!sigil || is_letter(c1))
            while (p < x->end && is_part((unsigned char)*p)) p++;
        t->n = (uint32_t)(p - x->p);
        skip_ascii(x, t->n);
        if (t->n == 0) fail(t, t->loc, c == '%' ? "expected a name after '%'" : "expected a name after '@'");
        else if (p < x->end && is_part((unsigned char)*p)) {
            while (peek(x, 0) >= 0 && is_part(peek(x, 0))) skip_ascii(x, 1);
            fail(t, t->loc, "a name that starts with a digit has digits only");
        }
        if (t->kind == IR_TOKEN_WORD && ir_word_is_reserved(t->at, t->n))
            x->after_operand = !(ir_token_is(t, "return") || ir_token_is(t, "func") || ir_token_is(t, "const") ||
                                 ir_token_is(t, "alias") || ir_token_is(t, "fusor"));
    } else if (is_digit(c) || (c == '.' && is_digit(c1))) {
        lex_number(x, t);
    } else if (c == '-' && c1 == '>') {
        t->kind = IR_TOKEN_ARROW;
        x->after_operand = false;
        skip_ascii(x, 2);
    } else if (c == '-' && !after_operand) {
        if (is_digit(c1) || (c1 == '.' && is_digit(c2))) {
            lex_number(x, t);
        } else if (x->end - x->p >= 4 && memcmp(x->p, "-inf", 4) == 0 && (x->end - x->p == 4 || !is_part(peek(x, 4)))) {
            t->kind = IR_TOKEN_FLOAT;
            t->n = 4;
            t->number.f = -__builtin_inf();
            skip_ascii(x, 4);
        } else {
            skip_ascii(x, 1);
            fail(t, t->loc, "expected a number right after '-' (the negative of a value is neg(%x))");
        }
    } else if (c == '"') {
        lex_string(x, t);
    } else if (strchr("(){}[],:=?+-*/", c)) {
        t->kind = IR_TOKEN_PUNCTUATION;
        t->punctuation = (char)c;
        t->n = 1;
        x->after_operand = c == ')' || c == ']' || c == '?';
        skip_ascii(x, 1);
    } else {
        size_t n = fu_utf8_length(x->p, x->end);
        const bool is_mark = n == 3 && memcmp(x->p, "\xef\xbb\xbf", 3) == 0;
        fail(t, t->loc,
             is_mark                 ? "a byte order mark; write the text as UTF-8 without one"
             : c < 0x20 || c == 0x7f ? fu_format(x->arena, "control character 0x%02x in the text", (unsigned)c)
                                     : fu_format(x->arena, "unexpected character '%.*s'", (int)n, x->p));
        skip_character(x, n);
    }
}
