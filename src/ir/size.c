/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* size.c: symbolic sizes (types.h). Every size is a polynomial with 64-bit coefficients over atoms, which are symbols,
 * opaque floor quotients and positive parts max(x, 0), kept sorted and hash-consed: equal polynomials have one id.
 * Minima and maxima are written with positive parts, so there is one form for them all; no text can say one, they come
 * from bounds that clamp (slice).
 *
 * Limits keep hostile input cheap: a polynomial has at most MAX_TERMS terms (as many as eight dims make that are sums of
 * two) of at most MAX_DEGREE factors, quotients nest MAX_DEPTH deep, and the tree behind a size has at most MAX_WEIGHT
 * leaves (so walking it needs no memo). What goes past them, or past 64 bits, becomes the size HUGE, which absorbs
 * everything and fails when it is evaluated. */
#include "ir/types.h"
#include <string.h>

enum { MAX_TERMS = 256, MAX_DEGREE = 12, MAX_DEPTH = 48, MAX_WEIGHT = 2560, SCRATCH_TERMS = 256 };
enum { HUGE_SIZE = 0 }; /* its id: so a dimension nobody filled in fails loudly too */

typedef struct term {
    int64_t coef;
    uint32_t n; /* factors, with repetition, in atom order */
    ir_size factor[MAX_DEGREE];
} term;

/* Working form, on the stack. */
typedef struct poly {
    int n;
    bool overflow;
    term at[SCRATCH_TERMS];
} poly;

typedef struct expr {
    ir_size_kind kind;
    int64_t value;    /* CONST */
    uint32_t symbol;  /* SYM */
    uint32_t n_terms; /* POLY */
    term *terms;      /* POLY; arena */
    ir_size num, den; /* DIV; POSITIVE: num */
    int depth, weight;
    uint64_t hash; /* of the structure, symbols by name: the same in every table */
} expr;

struct ir_sizes {
    fu_arena *arena;
    fu_vec(expr) exprs;
    fu_vec(const char *) names; /* of symbols */
    fu_vec(ir_size) symbols;
    fu_map name_map; /* a function may have as many symbols as its parameters have dims */
    fu_map unique;
};

static const expr *at(const ir_sizes *s, ir_size x) { return &s->exprs.at[x < s->exprs.n ? x : HUGE_SIZE]; }

/* ---- interning ---- */

static bool same_expr(const expr *a, const expr *b) {
    if (a->kind != b->kind || a->hash != b->hash) return false;
    switch (a->kind) {
    case IR_SIZE_CONST: return a->value == b->value;
    case IR_SIZE_SYM: return a->symbol == b->symbol;
    case IR_SIZE_DIV: return a->num == b->num && a->den == b->den;
    case IR_SIZE_POSITIVE: return a->num == b->num;
    case IR_SIZE_POLY: break;
    case IR_SIZE_HUGE: return true;
    }
    if (a->n_terms != b->n_terms) return false;
    for (uint32_t i = 0; i < a->n_terms; i++) {
        const term *x = &a->terms[i], *y = &b->terms[i];
        if (x->coef != y->coef || x->n != y->n || memcmp(x->factor, y->factor, x->n * sizeof *x->factor)) return false;
    }
    return true;
}

/* Fills in hash, depth and weight, and returns the id of the one expression like e. */
static ir_size intern(ir_sizes *s, expr e) {
    uint64_t h = fu_hash(&e.kind, sizeof e.kind, 17);
    e.depth = 0;
    e.weight = 1;
    switch (e.kind) {
    case IR_SIZE_CONST: h = fu_hash(&e.value, sizeof e.value, h); break;
    case IR_SIZE_SYM: h = fu_hash(s->names.at[e.symbol], strlen(s->names.at[e.symbol]), h); break;
    case IR_SIZE_DIV: {
        const expr *num = at(s, e.num), *den = at(s, e.den);
        const uint64_t part[2] = {num->hash, den->hash};
        h = fu_hash(part, sizeof part, h);
        e.depth = 1 + (num->depth > den->depth ? num->depth : den->depth);
        e.weight = 1 + num->weight + den->weight;
        break;
    }
    case IR_SIZE_POSITIVE: {
        const expr *x = at(s, e.num);
        h = fu_hash(&x->hash, sizeof x->hash, h);
        e.depth = 1 + x->depth;
        e.weight = 1 + x->weight;
        break;
    }
    case IR_SIZE_POLY:
        for (uint32_t i = 0; i < e.n_terms; i++) {
            h = fu_hash(&e.terms[i].coef, sizeof e.terms[i].coef, h);
            e.weight++;
            for (uint32_t k = 0; k < e.terms[i].n; k++) {
                const expr *f = at(s, e.terms[i].factor[k]);
                h = fu_hash(&f->hash, sizeof f->hash, h);
                if (f->depth > e.depth) e.depth = f->depth;
                e.weight += f->weight;
            }
        }
        break;
    case IR_SIZE_HUGE: break;
    }
    if (e.depth > MAX_DEPTH || e.weight > MAX_WEIGHT) return HUGE_SIZE;
    e.hash = h;
    for (uint32_t i = fu_map_find(&s->unique, h); i != UINT32_MAX; i = fu_map_next(&s->unique, h, i)) {
        if (same_expr(at(s, s->unique.value[i]), &e)) return s->unique.value[i];
    }
    if (e.kind == IR_SIZE_POLY) e.terms = fu_dup(s->arena, e.terms, e.n_terms * sizeof *e.terms);
    const ir_size id = s->exprs.n;
    fu_push(s->arena, &s->exprs, e);
    fu_map_add(&s->unique, h, id);
    return id;
}

ir_sizes *ir_sizes_new(fu_arena *a) {
    ir_sizes *s = FU_NEW(a, ir_sizes);
    s->arena = a;
    fu_map_init(&s->unique, a);
    fu_map_init(&s->name_map, a);
    intern(s, (expr){.kind = IR_SIZE_HUGE});
    return s;
}

static void add_name(ir_sizes *s, const char *name) {
    fu_map_add(&s->name_map, fu_hash(name, strlen(name), 0), s->names.n);
    fu_push(s->arena, &s->names, fu_strdup(s->arena, name));
}

ir_sizes *ir_sizes_copy(fu_arena *a, const ir_sizes *from) {
    ir_sizes *s = ir_sizes_new(a);
    for (uint32_t i = 0; i < from->names.n; i++) add_name(s, from->names.at[i]);
    for (uint32_t i = 0; i < from->symbols.n; i++) fu_push(a, &s->symbols, from->symbols.at[i]);
    /* What an expression is made of has smaller ids, so ids come out the same. */
    for (uint32_t i = 1; i < from->exprs.n; i++) intern(s, from->exprs.at[i]);
    return s;
}

ir_size ir_size_const(ir_sizes *s, int64_t v) { return intern(s, (expr){.kind = IR_SIZE_CONST, .value = v}); }

int ir_size_find_symbol(const ir_sizes *s, const char *name) {
    const uint64_t h = fu_hash(name, strlen(name), 0);
    for (uint32_t i = fu_map_find(&s->name_map, h); i != UINT32_MAX; i = fu_map_next(&s->name_map, h, i)) {
        if (strcmp(s->names.at[s->name_map.value[i]], name) == 0) return (int)s->name_map.value[i];
    }
    return -1;
}

ir_size ir_size_sym(ir_sizes *s, const char *name) {
    const int found = ir_size_find_symbol(s, name);
    if (found >= 0) return s->symbols.at[found];
    const uint32_t symbol = s->names.n;
    add_name(s, name);
    const ir_size x = intern(s, (expr){.kind = IR_SIZE_SYM, .symbol = symbol});
    fu_push(s->arena, &s->symbols, x);
    return x;
}

uint32_t ir_size_symbol_count(const ir_sizes *s) { return s->names.n; }

const char *ir_size_symbol_name(const ir_sizes *s, uint32_t symbol) {
    return symbol < s->names.n ? s->names.at[symbol] : "?";
}

/* ---- polynomials ---- */

static int compare_sizes(const ir_sizes *s, ir_size a, ir_size b);

/* Symbols by name, then quotients and positive parts by structure: the order does not depend on which was made
 * first. */
static int compare_atoms(const ir_sizes *s, ir_size a, ir_size b) {
    if (a == b) return 0;
    const expr *x = at(s, a), *y = at(s, b);
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1; /* ORDER ir_size_kind */
    if (x->kind == IR_SIZE_SYM) return strcmp(s->names.at[x->symbol], s->names.at[y->symbol]);
    const int c = compare_sizes(s, x->num, y->num);
    return c || x->kind == IR_SIZE_POSITIVE ? c : compare_sizes(s, x->den, y->den);
}

/* Graded lexicographic, leading term first. A monomial order, which exact division relies on. */
static int compare_monomials(const ir_sizes *s, const term *a, const term *b) {
    if (a->n != b->n) return a->n > b->n ? -1 : 1;
    for (uint32_t i = 0; i < a->n; i++) {
        const int c = compare_atoms(s, a->factor[i], b->factor[i]);
        if (c) return c;
    }
    return 0;
}

static void expand(const ir_sizes *s, ir_size x, poly *p) {
    const expr *e = at(s, x);
    p->n = 0;
    p->overflow = e->kind == IR_SIZE_HUGE;
    if (e->kind == IR_SIZE_POLY) {
        memcpy(p->at, e->terms, e->n_terms * sizeof *e->terms);
        p->n = (int)e->n_terms;
    } else if (e->kind == IR_SIZE_CONST) {
        if (e->value) p->at[p->n++] = (term){.coef = e->value};
    } else if (e->kind != IR_SIZE_HUGE) {
        p->at[p->n++] = (term){.coef = 1, .n = 1, .factor = {x}};
    }
}

static int compare_sizes(const ir_sizes *s, ir_size a, ir_size b) {
    if (a == b) return 0;
    const expr *x = at(s, a), *y = at(s, b);
    /* Atoms and constants as polynomials of one term, without copying whole polynomials onto the stack. */
    const term one_x = x->kind == IR_SIZE_CONST ? (term){.coef = x->value} : (term){.coef = 1, .n = 1, .factor = {a}};
    const term one_y = y->kind == IR_SIZE_CONST ? (term){.coef = y->value} : (term){.coef = 1, .n = 1, .factor = {b}};
    const term *p = x->kind == IR_SIZE_POLY ? x->terms : &one_x, *q = y->kind == IR_SIZE_POLY ? y->terms : &one_y;
    const uint32_t n = x->kind == IR_SIZE_POLY ? x->n_terms : 1, m = y->kind == IR_SIZE_POLY ? y->n_terms : 1;
    for (uint32_t i = 0; i < n && i < m; i++) {
        const int c = compare_monomials(s, &p[i], &q[i]);
        if (c) return c;
        if (p[i].coef != q[i].coef) return p[i].coef > q[i].coef ? -1 : 1;
    }
    return n == m ? 0 : n > m ? -1 : 1;
}

/* Adds t into the sorted polynomial. */
static void add_term(const ir_sizes *s, poly *p, const term *t) {
    int lo = 0, hi = p->n;
    while (lo < hi) {
        const int mid = (lo + hi) / 2, c = compare_monomials(s, &p->at[mid], t);
        if (c == 0) {
            if (__builtin_add_overflow(p->at[mid].coef, t->coef, &p->at[mid].coef)) p->overflow = true;
            if (p->at[mid].coef == 0) {
                memmove(&p->at[mid], &p->at[mid + 1], (size_t)(p->n - mid - 1) * sizeof *p->at);
                p->n--;
            }
            return;
        }
        if (c < 0) lo = mid + 1;
        else hi = mid;
    }
    if (p->n == SCRATCH_TERMS) {
        p->overflow = true;
        return;
    }
    memmove(&p->at[lo + 1], &p->at[lo], (size_t)(p->n - lo) * sizeof *p->at);
    p->at[lo] = *t;
    p->n++;
}

static bool multiply_terms(const ir_sizes *s, const term *a, const term *b, term *out) {
    *out = (term){0};
    if (a->n + b->n > MAX_DEGREE || __builtin_mul_overflow(a->coef, b->coef, &out->coef)) return false;
    uint32_t i = 0, k = 0;
    while (i < a->n || k < b->n) {
        const bool from_a = k == b->n || (i < a->n && compare_atoms(s, a->factor[i], b->factor[k]) <= 0);
        out->factor[out->n++] = from_a ? a->factor[i++] : b->factor[k++];
    }
    return true;
}

static ir_size make(ir_sizes *s, const poly *p) {
    if (p->overflow || p->n > MAX_TERMS) return HUGE_SIZE;
    if (p->n == 0) return ir_size_const(s, 0);
    if (p->n == 1 && p->at[0].n == 0) return ir_size_const(s, p->at[0].coef);
    if (p->n == 1 && p->at[0].n == 1 && p->at[0].coef == 1) return p->at[0].factor[0];
    return intern(s, (expr){.kind = IR_SIZE_POLY, .n_terms = (uint32_t)p->n, .terms = (term *)p->at});
}

static void subtract(const ir_sizes *s, ir_size a, ir_size b, poly *out) {
    poly q;
    expand(s, a, out);
    expand(s, b, &q);
    out->overflow |= q.overflow;
    for (int i = 0; i < q.n; i++) {
        if (__builtin_sub_overflow((int64_t)0, q.at[i].coef, &q.at[i].coef)) out->overflow = true;
        add_term(s, out, &q.at[i]);
    }
}

ir_size ir_size_add(ir_sizes *s, ir_size a, ir_size b) {
    poly p, q;
    int64_t x, y, sum; /* constants: the common case, without polynomials on the stack */
    if (ir_size_is_const(s, a, &x) && ir_size_is_const(s, b, &y)) {
        return __builtin_add_overflow(x, y, &sum) ? HUGE_SIZE : ir_size_const(s, sum);
    }
    expand(s, a, &p);
    expand(s, b, &q);
    p.overflow |= q.overflow;
    for (int i = 0; i < q.n; i++) add_term(s, &p, &q.at[i]);
    return make(s, &p);
}

ir_size ir_size_sub(ir_sizes *s, ir_size a, ir_size b) {
    poly p;
    if (a == b && a != HUGE_SIZE) return ir_size_const(s, 0);
    subtract(s, a, b, &p);
    return make(s, &p);
}

ir_size ir_size_mul(ir_sizes *s, ir_size a, ir_size b) {
    poly p, q, out;
    int64_t x, y, product;
    if (ir_size_is(s, a, 1)) return b;
    if (ir_size_is(s, b, 1)) return a;
    if (ir_size_is_const(s, a, &x) && ir_size_is_const(s, b, &y)) {
        return __builtin_mul_overflow(x, y, &product) ? HUGE_SIZE : ir_size_const(s, product);
    }
    out.n = 0;
    out.overflow = false;
    expand(s, a, &p);
    expand(s, b, &q);
    if (p.overflow || q.overflow || p.n * q.n > SCRATCH_TERMS) return HUGE_SIZE;
    for (int i = 0; i < p.n; i++) {
        for (int k = 0; k < q.n; k++) {
            term t;
            if (!multiply_terms(s, &p.at[i], &q.at[k], &t)) return HUGE_SIZE;
            add_term(s, &out, &t);
        }
    }
    return make(s, &out);
}

static int64_t floor_div(int64_t a, int64_t b) {
    const int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

/* a / b as a term, where the monomial and the coefficient divide. */
static bool divide_terms(const term *a, const term *b, term *out) {
    *out = (term){0};
    if (a->n < b->n || (b->coef == -1 && a->coef == INT64_MIN) || a->coef % b->coef != 0) return false;
    out->coef = a->coef / b->coef;
    uint32_t k = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        if (k < b->n && a->factor[i] == b->factor[k]) k++;
        else out->factor[out->n++] = a->factor[i];
    }
    return k == b->n;
}

/* q = a / b where b divides a without a rest, as polynomials. b is not 0. */
static bool divide_exactly(const ir_sizes *s, const poly *a, const poly *b, poly *q) {
    poly rest = *a;
    q->n = 0;
    q->overflow = false;
    for (int round = 0; rest.n > 0; round++) {
        term t, product;
        if (round == MAX_TERMS || rest.overflow || !divide_terms(&rest.at[0], &b->at[0], &t)) return false;
        add_term(s, q, &t);
        if (__builtin_sub_overflow((int64_t)0, t.coef, &t.coef)) return false;
        for (int i = 0; i < b->n; i++) {
            if (!multiply_terms(s, &t, &b->at[i], &product)) return false;
            add_term(s, &rest, &product);
        }
    }
    return !q->overflow && !rest.overflow;
}

ir_size ir_size_div(ir_sizes *s, ir_size a, ir_size b) {
    int64_t x, y;
    if (a == HUGE_SIZE || b == HUGE_SIZE) return HUGE_SIZE;
    const bool b_is_const = ir_size_is_const(s, b, &y);
    if (b_is_const && y == 0) return intern(s, (expr){.kind = IR_SIZE_DIV, .num = a, .den = b});
    if (b_is_const && ir_size_is_const(s, a, &x)) {
        return x == INT64_MIN && y == -1 ? HUGE_SIZE : ir_size_const(s, floor_div(x, y));
    }
    poly p, q, out;
    expand(s, a, &p);
    expand(s, b, &q);
    if (divide_exactly(s, &p, &q, &out)) return make(s, &out);
    if (!b_is_const) return intern(s, (expr){.kind = IR_SIZE_DIV, .num = a, .den = b});
    /* floor((y*p + r) / y) = p + floor(r / y): whole multiples come out. */
    poly rest;
    rest.n = out.n = 0;
    rest.overflow = out.overflow = false;
    for (int i = 0; i < p.n; i++) {
        term t;
        if (divide_terms(&p.at[i], &q.at[0], &t)) add_term(s, &out, &t);
        else add_term(s, &rest, &p.at[i]);
    }
    const ir_size r = make(s, &rest);
    if (ir_size_is_const(s, r, &x) && x == INT64_MIN && y == -1) return HUGE_SIZE;
    const ir_size quotient = ir_size_is_const(s, r, &x) ? ir_size_const(s, floor_div(x, y))
                                                        : intern(s, (expr){.kind = IR_SIZE_DIV, .num = r, .den = b});
    return ir_size_add(s, make(s, &out), quotient);
}

/* ---- positive parts ---- */

/* Nothing is subtracted anywhere in x. Quotients nest deep, so this keeps its frames small. */
static bool is_plainly_positive(const ir_sizes *s, ir_size x) {
    const expr *e = at(s, x);
    switch (e->kind) {
    case IR_SIZE_CONST: return e->value >= 0;
    case IR_SIZE_SYM:
    case IR_SIZE_POSITIVE: return true;
    case IR_SIZE_DIV: return is_plainly_positive(s, e->num) && is_plainly_positive(s, e->den);
    case IR_SIZE_HUGE: return false;
    case IR_SIZE_POLY: break;
    }
    for (uint32_t i = 0; i < e->n_terms; i++) {
        if (e->terms[i].coef < 0) return false;
        for (uint32_t k = 0; k < e->terms[i].n; k++) {
            if (!is_plainly_positive(s, e->terms[i].factor[k])) return false;
        }
    }
    return true;
}

/* The argument of t, where t is some multiple of one positive part alone. */
static bool is_positive_part(const ir_sizes *s, const term *t, ir_size *argument) {
    if (t->n != 1 || at(s, t->factor[0])->kind != IR_SIZE_POSITIVE) return false;
    *argument = at(s, t->factor[0])->num;
    return true;
}

/* p with its term i, coef * max(x, 0), replaced by coef * x, or by nothing. */
static void without_term(const ir_sizes *s, const poly *p, int i, ir_size x, bool is_replaced, poly *out) {
    const int64_t coef = p->at[i].coef;
    *out = *p;
    memmove(&out->at[i], &out->at[i + 1], (size_t)(out->n - i - 1) * sizeof *out->at);
    out->n--;
    if (!is_replaced) return;
    poly q;
    expand(s, x, &q);
    out->overflow |= q.overflow;
    for (int k = 0; k < q.n; k++) {
        if (__builtin_mul_overflow(q.at[k].coef, coef, &q.at[k].coef)) out->overflow = true;
        add_term(s, out, &q.at[k]);
    }
}

static bool poly_never_negative(const ir_sizes *s, const poly *p, int depth) {
    enum { MAX_CASES = 3 };
    int minus = -1, last = -1;
    bool is_plain = !p->overflow;
    ir_size x = 0, y;
    if (p->overflow) return false;
    for (int i = 0; i < p->n; i++) {
        const term *t = &p->at[i];
        is_plain &= t->coef > 0;
        for (uint32_t k = 0; k < t->n; k++) is_plain &= is_plainly_positive(s, t->factor[k]);
        if (!is_positive_part(s, t, &y)) continue;
        if (t->coef < 0) minus = i, x = y;
        else last = i;
    }
    if (is_plain || depth == MAX_CASES) return is_plain;
    poly q;
    if (minus >= 0) { /* -max(x, 0) is -x or 0: both have to do */
        without_term(s, p, minus, x, false, &q);
        if (!poly_never_negative(s, &q, depth + 1)) return false;
        without_term(s, p, minus, x, true, &q);
        return poly_never_negative(s, &q, depth + 1);
    }
    /* max(y, 0) is at least y, and at least 0. Of several such terms any may be the one that decides; which, is tried at
     * the top only: deeper the last one is taken, so that the cases stay few. */
    for (int i = depth ? last : 0; i >= 0 && i <= last; i++) {
        if (p->at[i].coef < 0 || !is_positive_part(s, &p->at[i], &y)) continue;
        without_term(s, p, i, y, true, &q);
        if (poly_never_negative(s, &q, depth + 1)) return true;
        without_term(s, p, i, y, false, &q);
        if (poly_never_negative(s, &q, depth + 1)) return true;
    }
    return false;
}

ir_size ir_size_positive(ir_sizes *s, ir_size x) {
    poly p;
    ir_size y;
    if (x == HUGE_SIZE) return HUGE_SIZE;
    expand(s, x, &p);
    if (poly_never_negative(s, &p, 0)) return x;
    /* max(max(y, 0) - c, 0) is max(y - c, 0) */
    for (int i = 0; i < p.n && p.n == 2; i++)
        if (p.at[i].n == 1 && p.at[i].coef == 1 && is_positive_part(s, &p.at[i], &y) && !p.at[1 - i].n &&
            p.at[1 - i].coef < 0)
            return ir_size_positive(s, ir_size_add(s, y, ir_size_const(s, p.at[1 - i].coef)));
    const ir_size minus = ir_size_sub(s, ir_size_const(s, 0), x);
    if (minus == HUGE_SIZE) return HUGE_SIZE;
    expand(s, minus, &p);
    if (poly_never_negative(s, &p, 0)) return ir_size_const(s, 0);
    /* max(x, 0) = max(-x, 0) + x: the one whose leading term is positive stands for both. */
    if (p.at[0].coef < 0) return intern(s, (expr){.kind = IR_SIZE_POSITIVE, .num = x});
    return ir_size_add(s, intern(s, (expr){.kind = IR_SIZE_POSITIVE, .num = minus}), x);
}

ir_size ir_size_max(ir_sizes *s, ir_size a, ir_size b) {
    return ir_size_add(s, b, ir_size_positive(s, ir_size_sub(s, a, b)));
}

ir_size ir_size_min(ir_sizes *s, ir_size a, ir_size b) {
    return ir_size_sub(s, a, ir_size_positive(s, ir_size_sub(s, a, b)));
}

/* ---- questions ---- */

bool ir_size_is_const(const ir_sizes *s, ir_size x, int64_t *value_out) {
    const expr *e = at(s, x);
    if (e->kind != IR_SIZE_CONST) return false;
    if (value_out) *value_out = e->value;
    return true;
}

bool ir_size_is(const ir_sizes *s, ir_size x, int64_t value) {
    const expr *e = at(s, x);
    return e->kind == IR_SIZE_CONST && e->value == value;
}

bool ir_size_is_symbol(const ir_sizes *s, ir_size x, uint32_t *symbol_out) {
    const expr *e = at(s, x);
    if (e->kind != IR_SIZE_SYM) return false;
    if (symbol_out) *symbol_out = e->symbol;
    return true;
}

bool ir_size_is_huge(const ir_sizes *s, ir_size x) { return at(s, x)->kind == IR_SIZE_HUGE; }

uint64_t ir_size_hash(const ir_sizes *s, ir_size x) { return at(s, x)->hash; }

bool ir_size_never_equal(const ir_sizes *s, ir_size a, ir_size b) {
    if (a == b) return false;
    poly p;
    subtract(s, a, b, &p);
    return !p.overflow && p.n == 1 && p.at[0].n == 0;
}

bool ir_size_never_negative(const ir_sizes *s, ir_size x) {
    poly p;
    if (at(s, x)->kind != IR_SIZE_POLY || is_plainly_positive(s, x)) return is_plainly_positive(s, x);
    expand(s, x, &p);
    return poly_never_negative(s, &p, 0);
}

bool ir_size_is_writable(const ir_sizes *s, ir_size x) {
    const expr *e = at(s, x);
    if (e->kind == IR_SIZE_DIV) return ir_size_is_writable(s, e->num) && ir_size_is_writable(s, e->den);
    for (uint32_t i = 0; e->kind == IR_SIZE_POLY && i < e->n_terms; i++) {
        for (uint32_t k = 0; k < e->terms[i].n; k++) {
            if (!ir_size_is_writable(s, e->terms[i].factor[k])) return false;
        }
    }
    return e->kind != IR_SIZE_POSITIVE;
}

/* Does `is` hold for every symbol of x? */
static bool all_symbols(const ir_sizes *s, ir_size x, bool (*is)(const void *values, uint32_t symbol),
                        const void *values) {
    const expr *e = at(s, x);
    if (e->kind == IR_SIZE_SYM) return is(values, e->symbol);
    if (e->kind == IR_SIZE_POSITIVE) return all_symbols(s, e->num, is, values);
    if (e->kind == IR_SIZE_DIV) return all_symbols(s, e->num, is, values) && all_symbols(s, e->den, is, values);
    for (uint32_t i = 0; e->kind == IR_SIZE_POLY && i < e->n_terms; i++)
        for (uint32_t k = 0; k < e->terms[i].n; k++)
            if (!all_symbols(s, e->terms[i].factor[k], is, values)) return false;
    return true;
}

static bool is_chosen(const void *symbols, uint32_t symbol) { return ((const bool *)symbols)[symbol]; }
static bool has_value(const void *values, uint32_t symbol) { return ((const int64_t *)values)[symbol] >= 0; }

bool ir_size_is_made_of(const ir_sizes *s, ir_size x, const bool *symbols) {
    return all_symbols(s, x, is_chosen, symbols);
}

bool ir_size_is_known(const ir_sizes *s, ir_size x, const int64_t *symbol_values) {
    return all_symbols(s, x, has_value, symbol_values);
}

ir_size_result ir_size_eval(const ir_sizes *s, ir_size x, const int64_t *symbol_values, int64_t *out) {
    const expr *e = at(s, x);
    switch (e->kind) {
    case IR_SIZE_CONST: *out = e->value; return IR_SIZE_OK;
    case IR_SIZE_SYM: *out = symbol_values[e->symbol]; return IR_SIZE_OK;
    case IR_SIZE_HUGE: return IR_SIZE_OVERFLOW;
    case IR_SIZE_POSITIVE: {
        const ir_size_result r = ir_size_eval(s, e->num, symbol_values, out);
        if (r == IR_SIZE_OK && *out < 0) *out = 0;
        return r;
    }
    case IR_SIZE_DIV: {
        int64_t num, den;
        ir_size_result r = ir_size_eval(s, e->num, symbol_values, &num);
        if (r == IR_SIZE_OK) r = ir_size_eval(s, e->den, symbol_values, &den);
        if (r != IR_SIZE_OK) return r;
        if (den == 0) return IR_SIZE_ZERO_DIVISION;
        if (num == INT64_MIN && den == -1) return IR_SIZE_OVERFLOW;
        *out = floor_div(num, den);
        return IR_SIZE_OK;
    }
    case IR_SIZE_POLY: break;
    }
    __int128 sum = 0; /* at most MAX_TERMS products of 64 bits each */
    for (uint32_t i = 0; i < e->n_terms; i++) {
        const term *t = &e->terms[i];
        int64_t factor[MAX_DEGREE], product = t->coef;
        bool is_zero = false;
        for (uint32_t k = 0; k < t->n; k++) {
            const ir_size_result r = ir_size_eval(s, t->factor[k], symbol_values, &factor[k]);
            if (r != IR_SIZE_OK) return r;
            is_zero |= factor[k] == 0;
        }
        if (is_zero) continue; /* 0 whatever the order of multiplying, so no overflow before it either */
        for (uint32_t k = 0; k < t->n; k++) {
            if (__builtin_mul_overflow(product, factor[k], &product)) return IR_SIZE_OVERFLOW;
        }
        sum += product;
    }
    if (sum > INT64_MAX || sum < INT64_MIN) return IR_SIZE_OVERFLOW;
    *out = (int64_t)sum;
    return IR_SIZE_OK;
}

ir_size ir_size_substitute(ir_sizes *to, const ir_sizes *from, ir_size x, const ir_size *map) {
    const expr e = *at(from, x); /* a copy: `to` may be the same table, and grow */
    switch (e.kind) {
    case IR_SIZE_CONST: return ir_size_const(to, e.value);
    case IR_SIZE_SYM: return map[e.symbol];
    case IR_SIZE_HUGE: return HUGE_SIZE;
    case IR_SIZE_POSITIVE: return ir_size_positive(to, ir_size_substitute(to, from, e.num, map));
    case IR_SIZE_DIV: {
        const ir_size num = ir_size_substitute(to, from, e.num, map);
        return ir_size_div(to, num, ir_size_substitute(to, from, e.den, map));
    }
    case IR_SIZE_POLY: break;
    }
    ir_size sum = ir_size_const(to, 0);
    for (uint32_t i = 0; i < e.n_terms; i++) {
        ir_size product = ir_size_const(to, e.terms[i].coef);
        for (uint32_t k = 0; k < e.terms[i].n; k++) {
            product = ir_size_mul(to, product, ir_size_substitute(to, from, e.terms[i].factor[k], map));
        }
        sum = ir_size_add(to, sum, product);
    }
    return sum;
}

/* ---- text ---- */

static void print_factor(fu_str *out, const ir_sizes *s, ir_size x) {
    const bool is_div = at(s, x)->kind == IR_SIZE_DIV;
    if (is_div) fu_str_addc(out, '(');
    ir_size_print(out, s, x);
    if (is_div) fu_str_addc(out, ')');
}

static void print_term(fu_str *out, const ir_sizes *s, const term *t, bool is_first) {
    int64_t coef = t->coef;
    if (!is_first && coef == INT64_MIN) { /* its absolute value is no 64-bit number */
        term part = *t;
        part.coef = -INT64_MAX;
        print_term(out, s, &part, false);
        part.coef = -1;
        print_term(out, s, &part, false);
        return;
    }
    if (!is_first) {
        fu_str_addc(out, coef < 0 ? '-' : '+');
        if (coef < 0) coef = -coef;
    }
    if (t->n == 0 || coef != 1) {
        fu_str_addf(out, "%lld", (long long)coef);
        if (t->n) fu_str_addc(out, '*');
    }
    for (uint32_t i = 0; i < t->n; i++) {
        if (i) fu_str_addc(out, '*');
        if (t->n == 1 && coef == 1) ir_size_print(out, s, t->factor[i]);
        else print_factor(out, s, t->factor[i]);
    }
}

void ir_size_print(fu_str *out, const ir_sizes *s, ir_size x) {
    const expr *e = at(s, x);
    switch (e->kind) {
    case IR_SIZE_CONST: fu_str_addf(out, "%lld", (long long)e->value); return;
    case IR_SIZE_SYM: fu_str_add(out, s->names.at[e->symbol]); return;
    case IR_SIZE_HUGE: fu_str_add(out, "9223372036854775807*9223372036854775807"); return;
    case IR_SIZE_POSITIVE:
        fu_str_add(out, "max(");
        ir_size_print(out, s, e->num);
        fu_str_add(out, ", 0)");
        return;
    case IR_SIZE_DIV: {
        const expr *num = at(s, e->num), *den = at(s, e->den);
        const bool is_sum = num->kind == IR_SIZE_POLY && num->n_terms > 1;
        if (is_sum) fu_str_addc(out, '(');
        ir_size_print(out, s, e->num);
        fu_str_add(out, is_sum ? ")/" : "/");
        const bool is_simple = den->kind == IR_SIZE_CONST || den->kind == IR_SIZE_SYM;
        if (!is_simple) fu_str_addc(out, '(');
        ir_size_print(out, s, e->den);
        if (!is_simple) fu_str_addc(out, ')');
        return;
    }
    case IR_SIZE_POLY: break;
    }
    for (uint32_t i = 0; i < e->n_terms; i++) print_term(out, s, &e->terms[i], i == 0);
}
