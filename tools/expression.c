/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* expression.c: infix text to a graph, by precedence climbing. The parser runs twice: without a graph, to find the
 * parameters, and with one, adding nodes as it goes. Operators between numbers are computed at once, in double. */
#include "expression.h"
#include "ir/lex.h"
#include <ctype.h>
#include <math.h>

enum { MAX_ARGS = 64 };
typedef struct local {
    const char *name;
    ir_operand value;
} local;
typedef struct parser {
    fu_arena *arena;
    fu_error *e;
    fu_source source;
    const char *p;
    ir_graph *g; /* NULL: only names are wanted */
    expression_params *params;
    fu_vec(local) locals;
    int depth;
    bool failed;
} parser;

/* ---- characters ---- */
static fu_loc at(const parser *x, const char *p) {
    fu_loc loc = {1, 1};
    for (const char *q = x->source.text; q < p; q++) {
        if (*q == '\n') loc = (fu_loc){loc.line + 1, 1};
        else if (((unsigned char)*q & 0xC0) != 0x80) loc.col++;
    }
    return loc;
}

#define FAIL(x, place, ...)                                                                                            \
    ((void)FU_FAIL_AT((x)->e, FUSOR_ERROR_SYNTAX, &(x)->source, at((x), (place)), __VA_ARGS__), (x)->failed = true,    \
     (ir_operand){0})

static void skip(parser *x) {
    while (isspace((unsigned char)*x->p)) x->p++;
}
static bool is_letter(char c) { return isalpha((unsigned char)c) || c == '_'; }
static size_t word_length(const char *p) {
    size_t n = 0;
    if (is_letter(*p))
        while (is_letter(p[n]) || isdigit((unsigned char)p[n])) n++;
    return n;
}
static bool is_word(const char *p, size_t n, const char *word) { return strlen(word) == n && memcmp(p, word, n) == 0; }
static bool take(parser *x, const char *text) {
    skip(x);
    size_t n = strlen(text);
    if (strncmp(x->p, text, n) != 0) return false;
    x->p += n;
    return true;
}
static const char *found(parser *x) { /* a word, or a character of UTF-8 with all of its bytes */
    size_t n = word_length(x->p);
    if (!*x->p) return "the end";
    if (!n)
        for (n = 1; n < 4 && (x->p[n] & 0xc0) == 0x80; n++) {}
    return fu_format(x->arena, "'%.*s'", (int)n, x->p);
}
static bool expect(parser *x, char c, const char *where) {
    skip(x);
    if (*x->p == c) return x->p++, true;
    if (!x->failed) FAIL(x, x->p, "expected '%c' %s, found %s", c, where, found(x));
    return false;
}

/* ---- values ---- */
static ir_operand number_of(double v) { return (ir_operand){.literal = IR_LIT_FLOAT, .f = v}; }
static ir_operand integer_of(int64_t v) { return (ir_operand){.literal = IR_LIT_INT, .i = v, .f = (double)v}; }

static ir_operand apply(parser *x, const char *place, ir_op op, int n, ir_operand *in, const ir_attr *attr,
                        ir_dtype to) {
    if (!x->g || x->failed) return (ir_operand){.node = 1};
    ir_id id = ir_add(x->g, op, n, in, attr, to, at(x, place));
    if (!id) x->failed = true;
    return ir_use(id);
}

/* Not one from 2^63 on, which has the bits of a negative one. */
static bool is_i64(const ir_operand *x) { return x->literal == IR_LIT_INT && !(x->i < 0 && x->f > 0); }

/* Both are numbers: computed here. False where the operator has no meaning for numbers. */
static bool fold(ir_op op, const ir_operand *a, const ir_operand *b, ir_operand *out) {
    bool ints = is_i64(a) && (!b || is_i64(b));
    double u = a->f, v = b ? b->f : 0;
    int64_t r;
    if (a->literal == IR_LIT_BOOL || (b && b->literal == IR_LIT_BOOL)) return false;
    switch (op) {
    case IR_OP_NEG:
        if (ints && a->i != INT64_MIN) *out = integer_of(-a->i);
        else if (a->literal == IR_LIT_INT && a->i == INT64_MIN && u > 0) *out = integer_of(INT64_MIN);
        else *out = number_of(-u);
        return true;
    case IR_OP_ADD:
        *out = ints && !__builtin_add_overflow(a->i, b->i, &r) ? integer_of(r) : number_of(u + v);
        return true;
    case IR_OP_SUB:
        *out = ints && !__builtin_sub_overflow(a->i, b->i, &r) ? integer_of(r) : number_of(u - v);
        return true;
    case IR_OP_MUL:
        *out = ints && !__builtin_mul_overflow(a->i, b->i, &r) ? integer_of(r) : number_of(u * v);
        return true;
    case IR_OP_DIV: *out = number_of(u / v); return true;
    case IR_OP_POW: *out = number_of(pow(u, v)); return true;
    default: return false;
    }
}

/* A number as a scalar tensor: of the widest type of its kind, or f64 where the operator takes floats only. */
static ir_operand as_tensor(parser *x, const char *place, ir_operand v, bool is_float) {
    if (!x->g || x->failed || !v.literal) return v;
    ir_attr *attr = FU_NEW_N(x->arena, ir_attr, ir_ops[IR_OP_FULL].n_attrs + 1);
    const char *form = v.literal == IR_LIT_BOOL               ? "shape=[], dtype=bool"
                       : v.literal == IR_LIT_INT && !is_float ? "shape=[], dtype=i64"
                                                              : "shape=[], dtype=f64";
    ir_dtype to = 0;
    ir_operand none = {0};
    if (ir_parse_attrs(x->g, IR_OP_FULL, form, NULL, attr, &to, &none) != FUSOR_OK) {
        x->failed = true;
        return v;
    }
    return apply(x, place, IR_OP_FULL, 1, &v, attr, 0);
}

/* Operands that are numbers alone: the first of the main role becomes a tensor, and the others take its type. */
static void give_type(parser *x, const char *place, ir_op op, int n, ir_operand *in) {
    const ir_op_info *info = &ir_ops[op];
    const int main = (info->flags & IR_COND) != 0;
    bool is_float = !(info->classes & IR_CLASS_S);
    for (int i = 0; i < n; i++) {
        if (!in[i].literal) return;
        is_float |= i >= main && in[i].literal == IR_LIT_FLOAT;
    }
    if (n > main && info->kind != IR_KIND_CREATE && info->kind != IR_KIND_RANDOM)
        in[main] = as_tensor(x, place, in[main], is_float);
    if (main && n) in[0] = as_tensor(x, place, in[0], false);
}

static ir_operand unary(parser *x, const char *place, ir_op op, ir_operand a) {
    ir_operand out;
    if (x->failed) return a;
    if (a.literal && fold(op, &a, NULL, &out)) return out.loc = at(x, place), out;
    give_type(x, place, op, 1, &a);
    return apply(x, place, op, 1, &a, NULL, 0);
}

static ir_operand binary(parser *x, const char *place, ir_op op, ir_operand a, ir_operand b) {
    ir_operand out, in[2] = {a, b};
    if (x->failed) return a;
    if (a.literal && b.literal && fold(op, &a, &b, &out)) return out.loc = at(x, place), out;
    give_type(x, place, op, 2, in);
    return apply(x, place, op, 2, in, NULL, 0);
}

static ir_operand expr(parser *x);

/* ---- names and functions ---- */
static ir_operand name(parser *x, const char *p, size_t n) {
    for (uint32_t i = x->locals.n; i-- > 0;)
        if (is_word(p, n, x->locals.at[i].name)) return x->locals.at[i].value;
    for (uint32_t i = 0; i < x->params->n; i++)
        if (is_word(p, n, x->params->at[i].name)) return ir_use(x->g ? x->g->params.at[i].node : 1);
    if (ir_word_is_reserved(p, n)) return FAIL(x, p, "'%.*s' is a word of the language; expected a value", (int)n, p);
    expression_param made = {.name = fu_strndup(x->arena, p, n), .loc = at(x, p)};
    fu_push(x->arena, x->params, made);
    return ir_use(1);
}

static ir_op find_function(const char *p, size_t n, int n_args) {
    static const struct {
        const char *name, *one, *two;
    } shorter[] = {
        {"sum", "reduce_sum", NULL},   {"prod", "reduce_prod", NULL},    {"mean", "reduce_mean", NULL},
        {"var", "reduce_var", NULL},   {"std", "reduce_std", NULL},      {"all", "reduce_all", NULL},
        {"any", "reduce_any", NULL},   {"max", "reduce_max", "maximum"}, {"min", "reduce_min", "minimum"},
        {"where", "select", "select"},
    };
    for (size_t i = 0; i < sizeof shorter / sizeof *shorter; i++) {
        if (!is_word(p, n, shorter[i].name)) continue;
        const char *full = n_args > 1 && shorter[i].two ? shorter[i].two : shorter[i].one;
        return ir_op_find(full, strlen(full));
    }
    return ir_op_find(p, n);
}

/* An attribute's value, as text up to the next ',' or ')' outside brackets and strings. */
static const char *skip_value(const char *p) {
    for (int depth = 0; *p; p++) {
        if (*p == '"') {
            for (p++; *p && *p != '"'; p++)
                if (*p == '\\' && p[1]) p++;
            if (!*p) break;
        } else if (*p == '[' || *p == '(') depth++;
        else if (depth == 0 && (*p == ',' || *p == ')')) break;
        else if (*p == ']' || *p == ')') depth--;
    }
    return p;
}

/* The attribute from `from` to `end` behind the others, which ended at `before` (NULL: none), as a text whose places are
 * those of the expression: what stands between them is blank, but for the comma. Returns end. */
static const char *add_attribute(parser *x, fu_str *text, const char *before, const char *comma, const char *from,
                                 const char *end) {
    for (const char *p = before ? before : x->source.text; p < from; p++)
        if (((unsigned char)*p & 0xC0) != 0x80) fu_str_addc(text, *p == '\n' || (before && p == comma) ? *p : ' ');
    fu_str_addf(text, "%.*s", (int)(end - from), from);
    return end;
}

static bool has_type(ir_op op, const ir_attr *attr) {
    for (unsigned i = 0; i < ir_ops[op].n_attrs; i++)
        if (ir_ops[op].attrs[i].type == IR_ATTR_DTYPE && attr[i].is_set && ir_ops[op].kind == IR_KIND_EW) return true;
    return false;
}

static ir_operand call(parser *x, const char *p, size_t n) {
    ir_operand in[MAX_ARGS + 1];
    int n_in = 0;
    fu_str text; /* attributes, as the language writes them */
    const char *comma = NULL, *attributes_end = NULL;
    fu_str_init(&text, x->arena);
    skip(x);
    while (!x->failed && *x->p && *x->p != ')') {
        const char *start = x->p, *after = start + word_length(start);
        size_t length = (size_t)(after - start);
        while (isspace((unsigned char)*after)) after++;
        bool is_attr = length && *after == '=' && after[1] != '=',
             is_type = length && ir_dtype_parse(start, length) && (*after == ',' || *after == ')');
        if (is_attr || is_type || *start == '"') {
            const char *end = skip_value(start);
            attributes_end = add_attribute(x, &text, attributes_end, comma, start, end);
            x->p = end;
        } else {
            if (n_in == MAX_ARGS) return FAIL(x, start, "%.*s: more than %d operands", (int)n, p, MAX_ARGS);
            in[n_in++] = expr(x);
        }
        skip(x);
        comma = x->p;
        if (*x->p == ',') x->p++;
        else break;
        skip(x);
    }
    if (!expect(x, ')', "after the operands") || x->failed) return (ir_operand){0};
    ir_op op = find_function(p, n, n_in);
    if (op == IR_OP_NONE) {
        char word[64] = "";
        memcpy(word, p, n < sizeof word ? n : sizeof word - 1);
        const char *near = ir_op_nearest(word);
        return FAIL(x, p, "unknown function '%s'%s%s%s", word, near ? "; did you mean '" : "", near ? near : "",
                    near ? "'?" : "");
    }
    if (!x->g) return ir_use(1);
    ir_attr *attr = FU_NEW_N(x->arena, ir_attr, ir_ops[op].n_attrs + 1);
    ir_dtype to = 0;
    ir_operand scalar = {0};
    if (ir_parse_attrs(x->g, op, text.n ? text.at : "", &x->source, attr, &to, &scalar) != FUSOR_OK) {
        x->failed = true;
        return (ir_operand){0};
    }
    if (ir_ops[op].n_results != 1)
        return FAIL(x, p, "%s has several results; an expression takes operators of one", ir_ops[op].name);
    if (!has_type(op, attr) && !to) give_type(x, p, op, n_in, in);
    if (scalar.literal) in[n_in++] = scalar;
    return apply(x, p, op, n_in, in, attr, to);
}

static ir_operand primary(parser *x) {
    skip(x);
    const char *p = x->p;
    size_t n = word_length(p);
    ir_operand v;
    if (isdigit((unsigned char)*p) || (*p == '.' && isdigit((unsigned char)p[1])) || is_word(p, n, "inf") ||
        is_word(p, n, "nan")) {
        ir_lexer lexer;
        ir_token token;
        ir_lex_init(&lexer, x->arena, p, strlen(p));
        ir_lex_next(&lexer, &token);
        x->p = n ? p + n : token.at + token.n;
        if (n) v = number_of(*p == 'i' ? INFINITY : NAN);
        else if (token.kind == IR_TOKEN_INTEGER)
            v = (ir_operand){
                .literal = IR_LIT_INT, .i = token.number.i, .f = token.number.f, .residue = token.number.residue};
        else if (token.kind == IR_TOKEN_FLOAT)
            v = (ir_operand){.literal = IR_LIT_FLOAT, .f = token.number.f, .residue = token.number.residue};
        else return FAIL(x, p, "%s", token.kind == IR_TOKEN_ERROR ? token.text : "this is no number");
        if (token.kind == IR_TOKEN_INTEGER && !n && token.number.range == IR_RANGE_NONE) v = number_of(token.number.f);
        v.loc = at(x, p);
    } else if (is_word(p, n, "true") || is_word(p, n, "false")) {
        x->p += n;
        v = (ir_operand){.literal = IR_LIT_BOOL, .i = *p == 't', .f = *p == 't', .loc = at(x, p)};
    } else if (n) {
        x->p += n;
        if (take(x, "(")) v = call(x, p, n);
        else v = name(x, p, n);
    } else if (take(x, "(")) {
        v = expr(x);
        (void)expect(x, ')', "to close the parenthesis");
    } else {
        return FAIL(x, p, "expected a value, found %s", found(x));
    }
    while (!x->failed) { /* .T */
        skip(x);
        if (x->p[0] != '.' || x->p[1] != 'T' || is_letter(x->p[2]) || isdigit((unsigned char)x->p[2])) break;
        const char *place = x->p;
        x->p += 2;
        if (v.literal) return FAIL(x, place, "a number has no transpose");
        v = apply(x, place, IR_OP_TRANSPOSE, 1, &v, NULL, 0);
    }
    return v;
}

/* ---- operators ---- */
typedef struct infix {
    const char *text;
    int level;
    ir_op op;
} infix;
/* Longer spellings first. */
static const infix infixes[] = {
    {"||", 1, IR_OP_OR},     {"or", 1, IR_OP_OR},  {"&&", 2, IR_OP_AND}, {"and", 2, IR_OP_AND}, {"==", 6, IR_OP_EQ},
    {"!=", 6, IR_OP_NE},     {"<<", 8, IR_OP_SHL}, {">>", 8, IR_OP_SHR}, {"<=", 7, IR_OP_LE},   {">=", 7, IR_OP_GE},
    {"<", 7, IR_OP_LT},      {">", 7, IR_OP_GT},   {"|", 3, IR_OP_OR},   {"^", 4, IR_OP_XOR},   {"&", 5, IR_OP_AND},
    {"+", 9, IR_OP_ADD},     {"-", 9, IR_OP_SUB},  {"*", 10, IR_OP_MUL}, {"/", 10, IR_OP_DIV},  {"%", 10, IR_OP_MOD},
    {"@", 10, IR_OP_MATMUL},
};

static const infix *peek_infix(parser *x) {
    skip(x);
    if (x->p[0] == '*' && x->p[1] == '*') return NULL;
    for (size_t i = 0; i < sizeof infixes / sizeof *infixes; i++) {
        size_t n = strlen(infixes[i].text), word = word_length(x->p);
        if (word ? is_word(x->p, word, infixes[i].text) : strncmp(x->p, infixes[i].text, n) == 0) return &infixes[i];
    }
    return NULL;
}

static ir_operand prefixed(parser *x);

static ir_operand power(parser *x) {
    ir_operand base = primary(x);
    skip(x);
    const char *place = x->p;
    if (x->failed || !take(x, "**")) return base;
    return binary(x, place, IR_OP_POW, base, prefixed(x));
}

static ir_operand prefixed(parser *x) {
    skip(x);
    const char *place = x->p;
    size_t n = word_length(place);
    ir_op op = *place == '-'                                 ? IR_OP_NEG
               : *place == '!' && place[1] != '='            ? IR_OP_NOT
               : *place == '~'                               ? IR_OP_BITWISE_NOT
               : is_word(place, n, "not") && place[n] != '(' ? IR_OP_NOT
                                                             : IR_OP_NONE;
    if (op == IR_OP_NONE && *place != '+') return power(x);
    if (++x->depth > 256) return FAIL(x, place, "more than 256 nested operators");
    x->p += op == IR_OP_NOT && n ? n : 1;
    ir_operand v = prefixed(x);
    x->depth--;
    return op == IR_OP_NONE ? v : unary(x, place, op, v);
}

static ir_operand operators(parser *x, int level) {
    ir_operand left = prefixed(x);
    for (const infix *i; !x->failed && (i = peek_infix(x)) != NULL && i->level >= level;) {
        const char *place = x->p;
        x->p += strlen(i->text);
        left = binary(x, place, i->op, left, operators(x, i->level + 1));
    }
    return left;
}

static ir_operand expr(parser *x) {
    if (++x->depth > 256) return FAIL(x, x->p, "more than 256 nested parentheses");
    ir_operand v = operators(x, 1);
    const char *place = x->p;
    if (!x->failed && take(x, "?")) {
        ir_operand in[3] = {v, expr(x), {0}};
        if (expect(x, ':', "between the two values of ?:")) in[2] = expr(x);
        if (!x->failed)
            v = in[0].literal ? FAIL(x, place, "the condition of ?: is a number; expected a bool tensor")
                              : apply(x, place, IR_OP_SELECT, 3, in, NULL, 0);
    }
    x->depth--;
    return v;
}

/* ---- programs ---- */
/* "name =" in front of an expression; NULL: none. */
static const char *take_target(parser *x) {
    skip(x);
    const char *p = x->p, *after = p + word_length(p);
    size_t n = (size_t)(after - p);
    while (isspace((unsigned char)*after)) after++;
    if (!n || *after != '=' || after[1] == '=') return NULL;
    if (ir_word_is_reserved(p, n)) {
        FAIL(x, p, "'%.*s' is a word of the language; expected a name", (int)n, p);
        return NULL;
    }
    x->p = after + 1;
    return fu_strndup(x->arena, p, n);
}

/* What the user called a value is its name in the function; numbers and parameters keep theirs. */
static void name_value(parser *x, const char *name, ir_operand v) {
    if (!x->g || x->failed || v.literal || !name) return;
    ir_node *n = ir_at(x->g, v.node);
    if (n->op != IR_OP_PARAM && !n->name) n->name = name;
}

static void add_result(parser *x, const char *name, ir_operand v, const char *place) {
    if (!x->g || x->failed) return;
    v = as_tensor(x, place, v, false); /* numbers alone: a scalar of the widest type */
    if (x->failed) return;
    bool is_named = name != NULL;
    if (!name) {
        name = "result";
        for (uint32_t i = 0; i < x->params->n; i++)
            if (strcmp(x->params->at[i].name, "result") == 0) name = "value";
        if (x->g->results.n) name = fu_format(x->arena, "%s%u", name, x->g->results.n);
    }
    for (uint32_t i = 0; i < x->g->results.n; i++)
        if (strcmp(x->g->results.at[i].name, name) == 0) FAIL(x, place, "two results are called '%s'", name);
    if (!is_named) name_value(x, name, v);
    ir_result r = {.name = name, .node = v.node, .alias = -1, .is_declared = true, .loc = at(x, place)};
    fu_push(x->g->arena, &x->g->results, r);
}

static fusor_status parse(parser *x) {
    for (;;) {
        const char *target = take_target(x), *place = x->p;
        ir_operand v = x->failed ? (ir_operand){0} : expr(x);
        skip(x);
        if (x->failed) return x->e->status;
        name_value(x, target, v);
        if (*x->p == ';') {
            x->p++;
            if (!target)
                FAIL(x, place,
                     "this value is not used; give it a name ('name = ...;') or put results last, with ',' between "
                     "them");
            else fu_push(x->arena, &x->locals, ((local){target, v}));
            skip(x);
            if (!x->failed && !*x->p) add_result(x, target, v, place);
            if (x->failed || !*x->p) break;
            continue;
        }
        add_result(x, target, v, place);
        if (target) fu_push(x->arena, &x->locals, ((local){target, v}));
        if (x->failed || !*x->p) break;
        if (*x->p != ',') {
            FAIL(x, x->p, "expected an operator, ',' or the end, found %s", found(x));
            break;
        }
        x->p++;
    }
    return x->failed ? x->e->status : FUSOR_OK;
}

static parser new_parser(fu_arena *a, fu_error *e, const char *text, expression_params *params) {
    return (parser){.arena = a, .e = e, .source = {"<expression>", text, strlen(text)}, .p = text, .params = params};
}

fusor_status expression_find_params(fu_arena *a, fu_error *e, const char *text, expression_params *out) {
    parser x = new_parser(a, e, text, out);
    return parse(&x);
}

/* How much of a text may be a type: nothing that would end the parameter, or the function; 0 where a bracket is open at
 * the end. */
static uint32_t type_length(const char *text) {
    uint32_t n = 0;
    int depth = 0;
    for (; text[n] && !strchr("{}%@\"#\n", text[n]); n++) {
        const char c = text[n];
        if (depth == 0 && (c == ',' || c == ')' || c == ']')) break;
        depth += (c == '[' || c == '(') - (c == ']' || c == ')');
    }
    return text[n] || depth == 0 ? n : 0;
}

/* Wrong in the type of p, `at` characters behind its begin: located in the argument that gave it, else where the
 * expression has the parameter. */
static fusor_status fail_type(fu_error *e, fusor_status status, const fu_source *expression, const expression_param *p,
                              uint32_t at, const char *message) {
    if (!p->argument) return FU_FAIL_AT(e, status, expression, p->loc, "%s", message);
    const fu_source argument = {"<argument>", p->argument, strlen(p->argument)};
    return FU_FAIL_AT(e, status, &argument, ((fu_loc){1, (uint32_t)(p->type - p->argument) + at + 1}), "%s", message);
}

/* The parameters by way of the language, one parser of types: a function with a line for each. What is wrong is said
 * of the user's own text. The stand-in result goes. */
static fusor_status parse_types(fu_arena *a, fu_error *e, const fu_source *expression, const expression_params *params,
                                ir_module **out) {
    fu_str s;
    fu_str_init(&s, a);
    fu_str_add(&s, "func @eval(");
    for (uint32_t i = 0; i < params->n; i++) {
        const expression_param *p = &params->at[i];
        const uint32_t n = type_length(p->type);
        if (!n || p->type[n])
            return fail_type(e, FUSOR_ERROR_SYNTAX, expression, p, n, "expected one type such as f32 or f32[N, 4]");
        fu_str_addf(&s, "\n%s%%%s: %s", i ? "," : " ", p->name, p->type);
    }
    fu_str_add(&s, "\n) -> i64 { %eval.0 = full(0, shape=[], dtype=i64) return %eval.0 }");
    fu_error wrong;
    fu_error_clear(&wrong);
    if (ir_parse(a, &wrong, "<types>", s.at, s.n, out) == FUSOR_OK) return FUSOR_OK;
    /* Each diagnostic is a line "<types>:LINE:COLUMN: error: MESSAGE", with two lines behind it. */
    for (char *line = wrong.text; line && *line;) {
        char *next = strchr(line, '\n'), *message = strstr(line, ": error: ");
        unsigned row, column;
        if (next) *next++ = 0;
        if (message && sscanf(line, "<types>:%u:%u:", &row, &column) == 2 && row >= 2 && params->n) {
            const expression_param *p = &params->at[row - 2 < params->n ? row - 2 : params->n - 1];
            const uint32_t type = (uint32_t)strlen(p->name) + 5; /* ",%NAME: " */
            (void)fail_type(e, wrong.status, expression, p, column > type ? column - type : 0, message + 9);
        }
        line = next;
    }
    return e->n ? e->status : FU_FAIL(e, FUSOR_ERROR_INTERNAL, "%s", wrong.text);
}

fusor_status expression_build(fu_arena *a, fu_error *e, const char *text, const expression_params *params,
                              ir_module **out) {
    expression_params known = *params;
    parser x = new_parser(a, e, text, &known);
    ir_module *m;
    FU_TRY(parse_types(a, e, &x.source, params, &m));
    x.g = m->functions.at[0];
    x.g->results.n = 0;
    x.g->error = e;
    m->source = x.source;
    x.g->source = &m->source;
    for (uint32_t i = 0; i < params->n; i++) x.g->params.at[i].loc = params->at[i].loc;
    FU_TRY(parse(&x));
    m->functions.at[0] = ir_graph_copy_live(a, x.g); /* without the stand-in */
    *out = m;
    return FUSOR_OK;
}
