/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cmd_fmt.c: fusor fmt. Canonical layout of a program that parses; comments, numbers and strings stay as they were
 * written.
 *
 * The text is cut into lines of tokens (a signature, a statement, a brace) with the comments above and behind each; a
 * line is laid out by the pairs of tokens in it and broken after commas where it is wider than 120 columns. Formatting
 * the result again changes nothing. */
#include "report.h"
#include "base/file.h"
#include "ir/lex.h"
#include <stdlib.h>

enum { WIDTH = 120, INDENT = 2 };

typedef struct piece {
    const char *at;
    size_t n;
    ir_token_kind kind;
    char punctuation;
    int depth; /* of brackets around it */
} piece;
typedef struct line {
    fu_vec(piece) pieces;
    fu_vec(piece) above; /* comments on lines of their own */
    piece trailing;      /* comment behind it; n = 0: none */
    bool blank_before;   /* the text had an empty line in front of it (and of its comments) */
    bool blank_between;  /* and one between its comments and it */
} line;

typedef struct formatter {
    tool *t;
    fu_str out;
    line now;
    fu_vec(
        piece) pending; /* comments on lines of their own after the line under way: of the next one, if it ends here */
    bool pending_blank;
    int depth;
    bool in_body, in_signature, has_lines, after_func_end;
    bool after_newline; /* since the last token */
    size_t blank_lines; /* since the last token or comment */
} formatter;

static bool is(const piece *p, char c) { return p->kind == IR_TOKEN_PUNCTUATION && p->punctuation == c; }
static bool is_text(const piece *p, const char *word) { return p->n == strlen(word) && memcmp(p->at, word, p->n) == 0; }

/* ---- one line ---- */
static bool is_size_operator(const piece *p) { return is(p, '+') || is(p, '-') || is(p, '*') || is(p, '/'); }

/* Is there a space between a and b? in_call: inside the parentheses of a statement, where name=value has none. */
static bool has_space(const piece *a, const piece *b, bool in_signature) {
    if (is(b, ',') || is(b, ')') || is(b, ']')) return false;
    if (is(a, '(') || is(a, '[')) return false;
    if (is(a, ',')) return true;
    if (is(b, '(')) return a->kind == IR_TOKEN_ARROW || is(a, '=');
    if (is(b, '[')) return is(a, '=') && in_signature;
    if (is_size_operator(a) || is_size_operator(b)) return false;
    if (is(b, ':')) return b->depth == 0 && !in_signature;
    if (is(a, '=') || is(b, '=')) return in_signature || b->depth == 0;
    return true;
}

static size_t columns(const char *p, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)p[i] & 0xC0) != 0x80;
    return count;
}

/* Width of the pieces from `from` up to the next place where a line may break. */
static size_t width_to_break(const line *l, uint32_t from, bool in_signature) {
    size_t w = 0;
    for (uint32_t i = from; i < l->pieces.n; i++) {
        const piece *p = &l->pieces.at[i];
        w += columns(p->at, p->n) + (i > from && has_space(p - 1, p, in_signature));
        if ((is(p, ',') && p->depth <= 1) || (in_signature && is(p, ')') && p->depth == 0)) break;
    }
    return w;
}

static size_t width_of_rest(const line *l, uint32_t from) {
    size_t w = 0;
    for (uint32_t i = from; i < l->pieces.n; i++)
        w += columns(l->pieces.at[i].at, l->pieces.at[i].n) +
             (i > from && has_space(&l->pieces.at[i - 1], &l->pieces.at[i], true));
    return w;
}

static void put_line(formatter *f, int indent) {
    line *l = &f->now;
    bool in_signature = l->pieces.n && is_text(&l->pieces.at[0], "func");
    int comments = l->pieces.n && is(&l->pieces.at[0], '}') ? INDENT : indent; /* they stand in the body */
    if (l->blank_before && f->has_lines) fu_str_addc(&f->out, '\n');
    for (uint32_t i = 0; i < l->above.n; i++) {
        if (i && l->above.at[i].depth) fu_str_addc(&f->out, '\n'); /* depth: empty lines before it */
        fu_str_addf(&f->out, "%*s%.*s\n", comments, "", (int)l->above.at[i].n, l->above.at[i].at);
    }
    if (l->blank_between && l->above.n && l->pieces.n) fu_str_addc(&f->out, '\n');
    size_t column = (size_t)indent, open = (size_t)indent + 2 * INDENT;
    if (l->pieces.n) fu_str_addf(&f->out, "%*s", indent, "");
    for (uint32_t i = 0; i < l->pieces.n; i++) {
        const piece *p = &l->pieces.at[i];
        bool space = i && has_space(p - 1, p, in_signature), may_break = i && is(p - 1, ',') && p[-1].depth <= 1;
        bool is_arrow =
            in_signature && p->kind == IR_TOKEN_ARROW; /* the results go to a line of their own rather than be broken */
        if ((may_break && column + 1 + width_to_break(l, i, in_signature) > WIDTH) ||
            (is_arrow && column + 1 + width_of_rest(l, i) > WIDTH)) {
            column = is_arrow ? 2 * INDENT : open;
            fu_str_addf(&f->out, "\n%*s", (int)column, "");
        } else if (space) {
            fu_str_addc(&f->out, ' ');
            column++;
        }
        fu_str_addn(&f->out, p->at, p->n);
        column += columns(p->at, p->n);
        if (is(p, '(') && p->depth == 0) open = column;
    }
    if (l->trailing.n) fu_str_addf(&f->out, "%s%.*s", l->pieces.n ? " " : "", (int)l->trailing.n, l->trailing.at);
    if (l->pieces.n || l->trailing.n) fu_str_addc(&f->out, '\n');
    f->has_lines |= l->pieces.n || l->above.n;
    l->pieces.n = l->above.n = 0;
    l->trailing.n = 0;
    l->blank_before = l->blank_between = false;
}

/* ---- the text as lines ---- */
/* Ends the line under way, if there is one. */
static void end_line(formatter *f) {
    if (!f->now.pieces.n) return;
    bool in_function = f->in_body && !is_text(&f->now.pieces.at[0], "func") && !is(&f->now.pieces.at[0], '}');
    put_line(f, in_function ? INDENT : 0);
}

static void add_comment(formatter *f, const char *at, size_t n) {
    while (n && (at[n - 1] == ' ' || at[n - 1] == '\t' || at[n - 1] == '\r')) n--;
    piece c = {.at = at, .n = n, .depth = f->blank_lines > 0};
    if (f->now.pieces.n && !f->after_newline && !f->now.trailing.n) {
        f->now.trailing = c; /* it stands behind what may be the end of the line; else it moves above */
        return;
    }
    if (f->now.pieces.n) {
        if (!f->pending.n) f->pending_blank = f->blank_lines > 0;
        fu_push(&f->t->arena, &f->pending, c);
    } else {
        if (!f->now.above.n) f->now.blank_before = f->blank_lines > 0;
        fu_push(&f->t->arena, &f->now.above, c);
    }
    f->blank_lines = 0;
}

static bool starts_line(const formatter *f, const piece *p) {
    const line *l = &f->now;
    if (!l->pieces.n) return true;
    const piece *last = &l->pieces.at[l->pieces.n - 1];
    if (is_text(p, "func") && f->depth == 0) return true;
    if (f->in_signature) return false;
    if (is(last, '{') || is(p, '}') || is(last, '}')) return true;
    if (f->depth > 0) return false;
    if (is_text(p, "return") && p->kind == IR_TOKEN_WORD) return true;
    return p->kind == IR_TOKEN_VALUE && !is(last, ',') && !is_text(last, "return");
}

static void add_token(formatter *f, piece p) {
    bool closes = is(&p, ')') || is(&p, ']');
    if (closes) f->depth--;
    p.depth = f->depth;
    bool starts = starts_line(f, &p);
    if (starts) {
        end_line(f);
        if (f->pending.n) f->now.blank_before = f->pending_blank;
        else if (!f->now.above.n) f->now.blank_before = f->blank_lines > 0 && f->has_lines;
        if (is_text(&p, "func")) {
            f->now.blank_before |= f->after_func_end;
            f->in_signature = true;
            f->in_body = false;
        }
        if (is(&p, '}') && !f->pending.n) f->now.blank_before = false;
        f->after_func_end = false;
    } else if (f->now.trailing.n) { /* a comment inside a line goes above it */
        f->now.trailing.depth = 0;
        fu_push(&f->t->arena, &f->now.above, f->now.trailing);
        f->now.trailing.n = 0;
    }
    if (starts) f->now.blank_between = f->blank_lines > 0;
    for (uint32_t i = 0; i < f->pending.n; i++) fu_push(&f->t->arena, &f->now.above, f->pending.at[i]);
    f->pending.n = 0;
    fu_push(&f->t->arena, &f->now.pieces, p);
    if (is(&p, '(') || is(&p, '[')) f->depth++;
    if (is(&p, '{') && f->in_signature) {
        f->in_signature = false;
        f->in_body = true;
    }
    if (is(&p, '}')) f->after_func_end = true;
    f->blank_lines = 0;
    f->after_newline = false;
}

/* White space and comments in front of the next token. */
static void skip_space(formatter *f, ir_lexer *x) {
    for (size_t newlines = 0; x->p < x->end;) {
        if (*x->p == '\n') {
            if (++newlines > 1) f->blank_lines++;
            f->after_newline = true;
            x->p++;
        } else if (*x->p == ' ' || *x->p == '\t' || *x->p == '\r') {
            x->p++;
        } else if (*x->p == '#') {
            const char *end = memchr(x->p, '\n', (size_t)(x->end - x->p));
            if (!end) end = x->end;
            add_comment(f, x->p, (size_t)(end - x->p));
            x->p = end;
            newlines = 0;
            f->blank_lines = 0;
        } else {
            break;
        }
    }
}

static const char *format(tool *t, const program *p, size_t *length_out) {
    formatter f = {.t = t};
    ir_lexer x;
    ir_token token;
    fu_str_init(&f.out, &t->arena);
    ir_lex_init(&x, &t->arena, p->text, p->length);
    for (;;) {
        skip_space(&f, &x);
        const char *start = x.p;
        ir_lex_next(&x, &token);
        if (token.kind == IR_TOKEN_END) break;
        add_token(
            &f, (piece){.at = start, .n = (size_t)(x.p - start), .kind = token.kind, .punctuation = token.punctuation});
    }
    end_line(&f);
    if (f.pending.n) { /* comments after the last token */
        f.now.blank_before = f.pending_blank;
        for (uint32_t i = 0; i < f.pending.n; i++) fu_push(&t->arena, &f.now.above, f.pending.at[i]);
    }
    put_line(&f, 0);
    *length_out = f.out.n;
    return f.out.at;
}

static int format_one(tool *t, const char *path) {
    program p = {.name = "<text>", .text = t->text, .length = t->text ? strlen(t->text) : 0};
    fu_error e;
    fu_error_clear(&e);
    int status = path ? program_text(t, path, &p) : 0;
    if (status) return status;
    if (ir_parse(&t->arena, &e, p.name, p.text, p.length, &p.module) != FUSOR_OK) return tool_fail(t, &e);
    size_t length;
    const char *text = format(t, &p, &length);
    bool is_same = length == p.length && memcmp(text, p.text, length) == 0;
    if (t->check) {
        if (!is_same && !t->quiet) printf("%s\n", p.name);
        return is_same ? 0 : EXIT_NO;
    }
    const char *to = t->in_place && path && strcmp(path, "-") != 0 ? path : t->outputs.n ? t->outputs.at[0] : "-";
    if (strcmp(to, "-") == 0) {
        fwrite(text, 1, length, stdout);
        return 0;
    }
    if (is_same && t->in_place) return 0;
    fu_part part = {text, length};
    int why = fu_file_write(to, &part, 1);
    return why ? tool_environment(t, "%s: %s", to, strerror(why)) : 0;
}

int cmd_fmt(tool *t) {
    int worst = 0;
    if (!t->text && t->args.n == 0) return tool_usage(t, "no program: expected FILE ... (- is stdin) or -e TEXT");
    if (t->check && t->check[0]) return tool_usage(t, "--check=%s: fmt takes --check alone", t->check);
    if (t->outputs.n > 1 || (t->outputs.n && t->args.n + (t->text != NULL) > 1))
        return tool_usage(t, "-o: one program goes to one file; --in-place writes several");
    if (t->outputs.n && t->in_place) return tool_usage(t, "-o and --in-place: expected one of them");
    if (t->text) worst = format_one(t, NULL);
    for (uint32_t i = 0; i < t->args.n; i++) {
        int status = format_one(t, t->args.at[i]);
        if (status > worst) worst = status;
    }
    return worst;
}
