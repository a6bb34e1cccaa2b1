/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* einsum.c: subscripts of einsum by NumPy's rules. Spaces mean nothing. A term is letters with at most one "...", which
 * stands for the axes that the letters leave, aligned at the right between operands. Without "->" the result has the
 * axes of "..." first, then the letters that occur once, in the order of their codes. */
#include "base/small.h"
#include "ir/einsum.h"
#include <string.h>

typedef struct reader {
    fu_arena *a;
    const char *at, *end;
} reader;

static int label_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    return c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1;
}
static char letter_of(int label) { return ir_einsum_letter((unsigned)label); }

static void skip_spaces(reader *r) {
    while (r->at < r->end && *r->at == ' ') r->at++;
}

/* Letters of a term, and where among them the ellipsis is (-1: nowhere). */
typedef struct letters {
    int n, ellipsis;
    uint8_t label[IR_MAX_RANK];
} letters;

static const char *read_letters(reader *r, const char *what, letters *out) {
    *out = (letters){.ellipsis = -1};
    for (;; r->at++) {
        skip_spaces(r);
        if (r->at == r->end || *r->at == ',' || *r->at == '-') return NULL;
        if (*r->at == '.') {
            if (r->end - r->at < 3 || r->at[1] != '.' || r->at[2] != '.')
                return fu_format(r->a, "a dot in the subscripts of %s is not part of an ellipsis, ...", what);
            if (out->ellipsis >= 0)
                return fu_format(r->a, "the subscripts of %s have two ellipses; one is possible", what);
            out->ellipsis = out->n;
            r->at += 2;
            continue;
        }
        const int label = label_of(*r->at);
        if (label < 0)
            return fu_format(r->a, "'%c' in the subscripts of %s is no letter; expected a-z, A-Z, ..., comma or ->",
                             *r->at >= ' ' && *r->at <= '~' ? *r->at : '?', what);
        if (out->n == IR_MAX_RANK)
            return fu_format(r->a, "%s has more than 8 subscripts; a tensor has at most 8 dims", what);
        out->label[out->n++] = (uint8_t)label;
    }
}

/* width: axes that an ellipsis of the term stands for; the widest has all IR_EINSUM_ELLIPSIS + 0 .. most - 1. */
static ir_einsum_term place(const letters *l, int width, int most) {
    ir_einsum_term t = {0};
    for (int i = 0; i <= l->n; i++) {
        for (int k = 0; i == l->ellipsis && k < width; k++)
            t.label[t.rank++] = (uint8_t)(IR_EINSUM_ELLIPSIS + most - width + k);
        if (i < l->n) t.label[t.rank++] = l->label[i];
    }
    return t;
}

static const char *read_result(reader *r, const int *count, int most, ir_einsum *out) {
    letters l;
    bool seen[IR_EINSUM_ELLIPSIS] = {false};
    const char *wrong = read_letters(r, "the result", &l);
    if (wrong) return wrong;
    if (r->at < r->end)
        return fu_format(r->a, "the result's subscripts are followed by '%c'; expected one term", *r->at);
    for (int i = 0; i < l.n; i++) {
        const int label = l.label[i];
        if (!count[label])
            return fu_format(r->a, "the result has the subscript %c, which no operand has", letter_of(label));
        if (seen[label]) return fu_format(r->a, "the result has the subscript %c twice", letter_of(label));
        seen[label] = true;
    }
    if (l.ellipsis < 0 && most > 0)
        return "operands have an ellipsis that stands for axes, but the result has none; expected ... after ->";
    if (l.n + most > IR_MAX_RANK) return "the result has more than 8 dims; a tensor has at most 8";
    out->out = place(&l, most, most);
    return NULL;
}

static const char *read_all(reader *r, uint32_t n, const uint8_t *rank, ir_einsum *out) {
    fu_arena *a = r->a;
    letters *term = FU_NEW_N(a, letters, n + 1);
    int count[IR_EINSUM_ELLIPSIS] = {0}, most = 0;
    *out = (ir_einsum){.n = n, .in = FU_NEW_N(a, ir_einsum_term, n + 1)};
    for (uint32_t i = 0; i < n; i++) {
        const char *const start = r->at, *what = fu_format(a, "operand %u", i + 1),
                          *wrong = read_letters(r, what, &term[i]);
        if (wrong) return wrong;
        const char *const behind = r->at;
        r->at = start;
        const int width = rank[i] - term[i].n;
        if (width < 0 || (width > 0 && term[i].ellipsis < 0))
            return fu_format(a, "%s has rank %u but %d subscripts%s", what, rank[i], term[i].n,
                             width > 0 ? " and no ellipsis" : "");
        r->at = behind;
        if (width > most) most = width;
        for (int k = 0; k < term[i].n; k++) count[term[i].label[k]]++;
        if (i + 1 == n) break;
        if (r->at == r->end || *r->at != ',')
            return fu_format(a, "subscripts for %u operand%s, but there are %u", i + 1, i ? "s" : "", n);
        r->at++;
    }
    if (r->at < r->end && *r->at == ',')
        return fu_format(a, "subscripts for more than %u operand%s", n, n == 1 ? "" : "s");
    for (uint32_t i = 0; i < n; i++) out->in[i] = place(&term[i], rank[i] - term[i].n, most);
    if (r->at < r->end) {
        if (r->end - r->at < 2 || r->at[1] != '>') return "'-' in the subscripts is not part of ->";
        r->at += 2;
        return read_result(r, count, most, out);
    }
    letters once = {.ellipsis = 0};
    for (int label = 0; label < IR_EINSUM_ELLIPSIS; label++) {
        if (count[label] != 1) continue;
        if (once.n + most == IR_MAX_RANK) return "the result has more than 8 dims; a tensor has at most 8";
        once.label[once.n++] = (uint8_t)label;
    }
    out->out = place(&once, most, most);
    return NULL;
}

const char *ir_einsum_read(fu_arena *a, const char *text, size_t length, uint32_t n, const uint8_t *rank,
                           ir_einsum *out, size_t *where) {
    reader r = {a, text, text + length};
    const char *wrong = read_all(&r, n, rank, out);
    *where = (size_t)(r.at - text);
    return wrong;
}

ir_einsum ir_einsum_of(const ir_graph *g, fu_arena *a, const ir_node *n) {
    ir_einsum e = {0};
    size_t where;
    const char *text = ir_attr_text(g, a, ir_node_attr(n, "subscripts"));
    uint8_t *rank = FU_NEW_N(a, uint8_t, n->n_in + 1);
    for (unsigned i = 0; i < n->n_in; i++) rank[i] = ir_at(g, n->in[i])->rank;
    (void)ir_einsum_read(a, text, strlen(text), n->n_in, rank, &e, &where);
    return e;
}
