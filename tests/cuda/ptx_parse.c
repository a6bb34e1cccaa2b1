/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* ptx_parse.c: PTX text -> decoded instructions. One pass over the text; labels are resolved at the end of each
 * entry. */
#include "ptx.h"
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = 256 };

typedef struct name {
    char *text;
    int value;
} name;
typedef struct range {
    int first, end;
} range;
typedef struct label_use {
    int inst, operand;
    char *label;
    int line;
} label_use;

typedef struct parser {
    const char *at;
    int line;
    char word[WORD];
    ptx_module *m;
    ptx_entry *e; /* being read */
    name *reg, *label;
    int n_regs_named, n_labels;
    range *predicate; /* registers of .pred */
    int n_predicates;
    label_use *use;
    int n_uses;
    ptx_symbol *local; /* symbols of this entry */
    int n_local;
    char *error;
    jmp_buf failed;
} parser;

static _Noreturn void fail(parser *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = snprintf(p->error, PTX_ERROR_ROOM, "ptx:%d: ", p->line);
    vsnprintf(p->error + n, (size_t)(PTX_ERROR_ROOM - n), format, args);
    va_end(args);
    longjmp(p->failed, 1);
}

static void *grown(parser *p, void *of, int n, size_t each) {
    if (n & (n - 1)) return of;
    void *now = realloc(of, (size_t)(n ? 2 * n : 1) * each);
    if (!now) fail(p, "out of memory");
    return now;
}
#define PUSH(p, list, n, ...) ((list) = grown(p, list, n, sizeof *(list)), (list)[(n)++] = __VA_ARGS__)

static char *copy(parser *p, const char *text) {
    char *c = strdup(text);
    if (!c) fail(p, "out of memory");
    return c;
}

/* ---- words ---- */
static void skip(parser *p) {
    for (;;) {
        if (*p->at == '\n') p->line++, p->at++;
        else if (isspace((unsigned char)*p->at)) p->at++;
        else if (p->at[0] == '/' && p->at[1] == '/') p->at += strcspn(p->at, "\n");
        else if (p->at[0] == '/' && p->at[1] == '*') {
            for (p->at += 2; *p->at && !(p->at[0] == '*' && p->at[1] == '/'); p->at++) p->line += *p->at == '\n';
            if (*p->at) p->at += 2;
        } else return;
    }
}

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '.' || c == '%' || c == ':';
}

/* The next word or single character; "" at the end. A ':' belongs to a word only as "::". */
static const char *next(parser *p) {
    skip(p);
    size_t n = 0;
    if (!*p->at) return p->word[0] = 0, p->word;
    if (!is_word(*p->at) || *p->at == ':') {
        p->word[0] = *p->at++;
        p->word[1] = 0;
        return p->word;
    }
    while (is_word(*p->at)) {
        if (*p->at == ':') {
            if (p->at[1] != ':') break;
            if (n < WORD - 2) p->word[n++] = *p->at++;
        }
        if (n == WORD - 1) fail(p, "a word of more than %d characters", WORD - 1);
        p->word[n++] = *p->at++;
    }
    p->word[n] = 0;
    return p->word;
}

static bool peek(parser *p, char c) { return skip(p), *p->at == c; }
static bool take(parser *p, char c) { return peek(p, c) ? p->at++, true : false; }
static void expect(parser *p, char c) {
    if (!take(p, c)) fail(p, "expected '%c' at '%.20s'", c, p->at);
}

static uint64_t number(parser *p, const char *w) {
    bool minus = *w == '-';
    char *end;
    if (minus) w++;
    uint64_t v;
    if (w[0] == '0' && (w[1] == 'f' || w[1] == 'F' || w[1] == 'd' || w[1] == 'D')) v = strtoull(w + 2, &end, 16);
    else v = strtoull(w, &end, 0);
    if (*end == 'U') end++;
    if (*end || !isdigit((unsigned char)*w)) fail(p, "'%s' is no number", w);
    return minus ? 0 - v : v;
}

static uint64_t read_number(parser *p) {
    bool minus = take(p, '-');
    uint64_t v = number(p, next(p));
    return minus ? 0 - v : v;
}

/* ---- tables ---- */
static const struct {
    const char *text;
    ptx_type type;
} types[] = {{"b8", PTX_B8},       {"b16", PTX_B16},     {"b32", PTX_B32},     {"b64", PTX_B64},
             {"b128", PTX_B128},   {"u8", PTX_U8},       {"u16", PTX_U16},     {"u32", PTX_U32},
             {"u64", PTX_U64},     {"s8", PTX_S8},       {"s16", PTX_S16},     {"s32", PTX_S32},
             {"s64", PTX_S64},     {"f16", PTX_F16},     {"bf16", PTX_BF16},   {"f32", PTX_F32},
             {"f64", PTX_F64},     {"tf32", PTX_TF32},   {"f16x2", PTX_F16X2}, {"bf16x2", PTX_BF16X2},
             {"u16x2", PTX_U16X2}, {"s16x2", PTX_S16X2}, {"pred", PTX_PRED}};
static const struct {
    const char *text;
    ptx_space space;
} spaces[] = {{"global", PTX_GLOBAL}, {"shared", PTX_SHARED}, {"shared::cta", PTX_SHARED},
              {"local", PTX_LOCAL},   {"param", PTX_PARAM},   {"const", PTX_CONST}};
static const char *const ops[PTX_OP_COUNT] = {
#define X(ID, NAME) NAME,
    PTX_OPS(X)
#undef X
};
static const char *const modifiers[PTX_M_COUNT] = {
#define X(ID, NAME) NAME,
    PTX_MODIFIERS(X)
#undef X
};
static const char *const ignored[] = {PTX_IGNORED};
static const struct {
    const char *text;
    int id;
} specials[] = {{"%tid.x", PTX_TID},       {"%tid.y", PTX_TID + 1},       {"%tid.z", PTX_TID + 2},
                {"%ntid.x", PTX_NTID},     {"%ntid.y", PTX_NTID + 1},     {"%ntid.z", PTX_NTID + 2},
                {"%ctaid.x", PTX_CTAID},   {"%ctaid.y", PTX_CTAID + 1},   {"%ctaid.z", PTX_CTAID + 2},
                {"%nctaid.x", PTX_NCTAID}, {"%nctaid.y", PTX_NCTAID + 1}, {"%nctaid.z", PTX_NCTAID + 2},
                {"%laneid", PTX_LANEID},   {"%warpid", PTX_WARPID},       {"%clock", PTX_CLOCK}};

static ptx_type find_type(const char *w) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].text, w) == 0) return types[i].type;
    return PTX_NONE;
}

static int find_reg(const parser *p, const char *w) {
    for (int i = p->n_regs_named - 1; i >= 0; i--)
        if (strcmp(p->reg[i].text, w) == 0) return p->reg[i].value;
    return -1;
}

/* "%r12" of ".reg .b32 %r<20>": kept as "%r<" with the first register's number. */
static int find_numbered(const parser *p, const char *w) {
    size_t digits = strlen(w);
    while (digits > 0 && isdigit((unsigned char)w[digits - 1])) digits--;
    if (!w[digits]) return -1;
    char head[WORD + 2];
    snprintf(head, sizeof head, "%.*s<", (int)digits, w);
    int first = find_reg(p, head);
    return first < 0 ? -1 : first + atoi(w + digits);
}

static bool is_predicate(const parser *p, int reg) {
    for (int i = 0; i < p->n_predicates; i++)
        if (reg >= p->predicate[i].first && reg < p->predicate[i].end) return true;
    return false;
}

static const ptx_symbol *find_symbol(const parser *p, const char *w) {
    for (int i = 0; i < p->n_local; i++)
        if (strcmp(p->local[i].name, w) == 0) return &p->local[i];
    for (int i = 0; i < p->m->n_symbols; i++)
        if (strcmp(p->m->symbol[i].name, w) == 0) return &p->m->symbol[i];
    return NULL;
}

/* ---- operands ---- */
static ptx_operand read_operand(parser *p, ptx_inst *i);

static ptx_operand read_address(parser *p) {
    ptx_operand o = {.kind = PTX_ADDRESS, .reg = -1, .second = -1};
    const char *w = next(p);
    int r = find_reg(p, w);
    if (r < 0) r = find_numbered(p, w);
    if (r >= 0) o.reg = r;
    else if (isdigit((unsigned char)*w)) o.value = number(p, w);
    else {
        bool found = false;
        for (int k = 0; k < p->e->n_params && !found; k++)
            if (strcmp(p->e->param[k].name, w) == 0) o.value = p->e->param[k].offset, o.space = PTX_PARAM, found = true;
        const ptx_symbol *s = found ? NULL : find_symbol(p, w);
        if (!found && !s) fail(p, "'%s' is no register, parameter or symbol", w);
        if (s) o.value = s->offset, o.space = s->space;
    }
    if (take(p, '+')) o.value += read_number(p);
    else if (peek(p, '-')) o.value += read_number(p);
    expect(p, ']');
    return o;
}

enum { MAX_VECTOR = 128 }; /* accumulators of wgmma */
static ptx_operand read_vector(parser *p, ptx_inst *i) {
    ptx_operand o = {.kind = PTX_VECTOR, .second = p->e->n_elements}, list[MAX_VECTOR];
    int n = 0;
    do {
        if (n == MAX_VECTOR) fail(p, "a vector of more than %d elements", MAX_VECTOR);
        list[n++] = read_operand(p, i);
    } while (take(p, ','));
    expect(p, '}');
    o.second = p->e->n_elements;
    for (int k = 0; k < n; k++) PUSH(p, p->e->element, p->e->n_elements, list[k]);
    o.reg = n;
    return o;
}

static ptx_operand read_operand(parser *p, ptx_inst *i) {
    ptx_operand o = {.kind = PTX_REG, .reg = -1, .second = -1};
    if (take(p, '[')) return read_address(p);
    if (take(p, '{')) return read_vector(p, i);
    o.is_negated = take(p, '!');
    if (peek(p, '-') || isdigit((unsigned char)*p->at)) {
        o.kind = PTX_IMM;
        o.value = read_number(p);
        return o;
    }
    const char *w = next(p);
    for (size_t k = 0; k < sizeof specials / sizeof *specials; k++)
        if (strcmp(specials[k].text, w) == 0)
            return (ptx_operand){.kind = PTX_SPECIAL, .reg = specials[k].id, .second = -1};
    if (strcmp(w, "_") == 0) {
        o.kind = PTX_SINK;
    } else if (i->op == PTX_BRA) {
        o.kind = PTX_LABEL;
        PUSH(p, p->use, p->n_uses, ((label_use){p->e->n_insts, i->n, copy(p, w), p->line}));
        return o;
    } else {
        o.reg = find_reg(p, w);
        if (o.reg < 0) o.reg = find_numbered(p, w);
        if (o.reg < 0) {
            for (int k = 0; k < p->e->n_params; k++)
                if (strcmp(p->e->param[k].name, w) == 0)
                    return (ptx_operand){
                        .kind = PTX_IMM, .reg = -1, .second = -1, .value = p->e->param[k].offset, .space = PTX_PARAM};
            const ptx_symbol *s = find_symbol(p, w);
            if (!s) fail(p, "'%s' is no register, parameter or symbol", w);
            return (ptx_operand){.kind = PTX_IMM, .reg = -1, .second = -1, .value = s->offset, .space = s->space};
        }
        o.is_predicate = is_predicate(p, o.reg);
    }
    if (take(p, '|')) {
        w = next(p);
        o.second = find_reg(p, w);
        if (o.second < 0) o.second = find_numbered(p, w);
        if (o.second < 0) fail(p, "'%s' is no register", w);
    }
    return o;
}

/* ---- instructions ---- */
static void read_opcode(parser *p, ptx_inst *i, char *word) {
    char *rest = strchr(word, '.');
    int n_types = 0;
    if (rest) *rest++ = 0;
    int op = 0;
    while (op < PTX_OP_COUNT && strcmp(ops[op], word) != 0) op++;
    if (op == PTX_OP_COUNT) fail(p, "unknown instruction '%s'", word);
    i->op = (ptx_op)op;
    while (rest) {
        char *w = rest;
        rest = strchr(w, '.');
        if (rest) *rest++ = 0;
        ptx_type t = find_type(w);
        if (t != PTX_NONE) {
            if (n_types == 0) i->type = t;
            else if (n_types == 1) i->from = t;
            else if (n_types == 2) i->third = t; /* mma has four: the accumulator's, A's, B's, the result's */
            n_types++;
            continue;
        }
        bool found = false;
        for (size_t k = 0; k < sizeof spaces / sizeof *spaces && !found; k++)
            if (strcmp(spaces[k].text, w) == 0) {
                if (i->space == PTX_GENERIC) i->space = spaces[k].space;
                else i->to = spaces[k].space;
                found = true;
            }
        for (int k = 0; k < PTX_M_COUNT && !found; k++)
            if (strcmp(modifiers[k], w) == 0) i->modifier |= (unsigned __int128)1 << k, found = true;
        for (size_t k = 0; k < sizeof ignored / sizeof *ignored && !found; k++) found = strcmp(ignored[k], w) == 0;
        if (!found) fail(p, "unknown word '.%s' of '%s'", w, word);
    }
}

static void read_inst(parser *p, char *word, int line, int guard, bool is_negated) {
    ptx_inst i = {.guard = guard, .is_guard_negated = is_negated, .line = line};
    read_opcode(p, &i, word);
    while (!take(p, ';')) {
        if (i.n == PTX_MAX_OPERANDS) fail(p, "more than %d operands", PTX_MAX_OPERANDS);
        ptx_operand o = read_operand(p, &i);
        i.in[i.n++] = o;
        if (!peek(p, ';')) expect(p, ',');
    }
    PUSH(p, p->e->inst, p->e->n_insts, i);
}

/* ---- declarations ---- */
static void read_reg(parser *p) {
    const char *w = next(p);
    if (*w != '.' || find_type(w + 1) == PTX_NONE) fail(p, "'%s' is no type of a register", w);
    const bool is_pred = strcmp(w, ".pred") == 0;
    do {
        char name_of[WORD + 2];
        snprintf(name_of, sizeof name_of, "%s", next(p));
        int first = p->e->n_regs, count = 1;
        if (take(p, '<')) {
            count = (int)read_number(p);
            expect(p, '>');
            strcat(name_of, "<");
        }
        PUSH(p, p->reg, p->n_regs_named, ((name){copy(p, name_of), first}));
        if (is_pred) PUSH(p, p->predicate, p->n_predicates, ((range){first, first + count}));
        p->e->n_regs += count;
    } while (take(p, ','));
    expect(p, ';');
}

static uint64_t round_up(uint64_t v, uint64_t to) { return (v + to - 1) / to * to; }

/* ".align 4 .b8 name[1024] = {..};" behind its space. In an entry, or of the module. */
static void read_variable(parser *p, ptx_space space) {
    uint64_t align = 1, bytes;
    const char *w = next(p);
    if (strcmp(w, ".align") == 0) align = read_number(p), w = next(p);
    ptx_type t = *w == '.' ? find_type(w + 1) : PTX_NONE;
    if (t == PTX_NONE) fail(p, "'%s' is no type of a variable", w);
    if (align < (uint64_t)ptx_bytes(t)) align = (uint64_t)ptx_bytes(t);
    char *of = copy(p, next(p));
    bytes = (uint64_t)ptx_bytes(t);
    bool is_open = false;
    if (take(p, '[')) {
        if (peek(p, ']')) is_open = true, bytes = 0;
        else bytes *= read_number(p);
        expect(p, ']');
    }
    ptx_symbol s = {.name = of, .space = space, .bytes = bytes};
    if (space == PTX_SHARED) {
        uint64_t *end = p->e ? &p->e->shared_bytes : &p->m->shared_bytes;
        s.offset = round_up(*end, align);
        *end = s.offset + bytes;
        if (is_open) p->m->has_dynamic_shared = true;
    } else if (space == PTX_LOCAL) {
        s.offset = round_up(p->e->local_bytes, align);
        p->e->local_bytes = s.offset + bytes;
    } else {
        uint64_t start = round_up(p->m->constant_bytes, align);
        p->m->constants = realloc(p->m->constants, start + bytes + 1);
        if (!p->m->constants) fail(p, "out of memory");
        memset(p->m->constants + p->m->constant_bytes, 0, start + bytes - p->m->constant_bytes);
        p->m->constant_bytes = start + bytes;
        s.offset = PTX_CONSTANTS + start;
        if (take(p, '=')) {
            uint64_t at = start;
            bool is_list = take(p, '{');
            do {
                uint64_t v = read_number(p);
                if (at + (uint64_t)ptx_bytes(t) > start + bytes) fail(p, "more values than '%s' has", of);
                memcpy(p->m->constants + at, &v, (size_t)ptx_bytes(t));
                at += (uint64_t)ptx_bytes(t);
            } while (is_list && take(p, ','));
            if (is_list) expect(p, '}');
        }
    }
    expect(p, ';');
    if (p->e) PUSH(p, p->local, p->n_local, s);
    else PUSH(p, p->m->symbol, p->m->n_symbols, s);
}

static void read_params(parser *p) {
    expect(p, '(');
    while (!take(p, ')')) {
        uint64_t align = 0, count = 1;
        ptx_param a = {0};
        if (strcmp(next(p), ".param") != 0) fail(p, "expected .param, not '%s'", p->word);
        for (;;) {
            const char *w = next(p);
            ptx_type t = *w == '.' ? find_type(w + 1) : PTX_NONE;
            if (t != PTX_NONE) a.type = t;
            else if (strcmp(w, ".align") == 0) align = read_number(p);
            else if (strcmp(w, ".ptr") == 0 || strcmp(w, ".global") == 0 || strcmp(w, ".shared") == 0) continue;
            else if (*w == '.') fail(p, "unknown word '%s' of a parameter", w);
            else break;
        }
        a.name = copy(p, p->word);
        if (take(p, '[')) count = read_number(p), expect(p, ']');
        uint64_t each = (uint64_t)ptx_bytes(a.type);
        if (!each) fail(p, "a parameter without a type");
        a.bytes = each * count;
        if (count == 1) align = each; /* of a pointer's parameter, .align is of what it points to */
        a.offset = round_up(p->e->param_bytes, align ? align : each);
        p->e->param_bytes = a.offset + a.bytes;
        PUSH(p, p->e->param, p->e->n_params, a);
        if (!peek(p, ')')) expect(p, ',');
    }
}

static void resolve_labels(parser *p) {
    for (int u = 0; u < p->n_uses; u++) {
        int k = 0;
        while (k < p->n_labels && strcmp(p->label[k].text, p->use[u].label) != 0) k++;
        p->line = p->use[u].line;
        if (k == p->n_labels) fail(p, "no label '%s'", p->use[u].label);
        p->e->inst[p->use[u].inst].in[p->use[u].operand].value = (uint64_t)p->label[k].value;
    }
}

static void drop_names(name **list, int *n) {
    for (int i = 0; i < *n; i++) free((*list)[i].text);
    free(*list);
    *list = NULL;
    *n = 0;
}

static void leave_entry(parser *p) {
    drop_names(&p->reg, &p->n_regs_named);
    drop_names(&p->label, &p->n_labels);
    for (int i = 0; i < p->n_uses; i++) free(p->use[i].label);
    free(p->use);
    p->use = NULL;
    p->n_uses = 0;
    free(p->predicate);
    p->predicate = NULL;
    p->n_predicates = 0;
    for (int i = 0; i < p->n_local; i++) free(p->local[i].name);
    free(p->local);
    p->local = NULL;
    p->n_local = 0;
    p->e = NULL;
}

static void read_body(parser *p) {
    char word[WORD];
    expect(p, '{');
    for (int depth = 1; depth > 0;) {
        int guard = -1;
        bool is_negated = false;
        if (take(p, '}')) {
            depth--;
            continue;
        }
        if (take(p, '{')) {
            depth++;
            continue;
        }
        if (take(p, '@')) {
            is_negated = take(p, '!');
            const char *w = next(p);
            guard = find_reg(p, w);
            if (guard < 0) guard = find_numbered(p, w);
            if (guard < 0) fail(p, "'%s' is no predicate", w);
        }
        int line = p->line;
        strcpy(word, next(p));
        if (!*word) fail(p, "the text ends inside an entry");
        if (guard < 0 && take(p, ':')) {
            PUSH(p, p->label, p->n_labels, ((name){copy(p, word), p->e->n_insts}));
        } else if (strcmp(word, ".reg") == 0) read_reg(p);
        else if (strcmp(word, ".shared") == 0) read_variable(p, PTX_SHARED);
        else if (strcmp(word, ".local") == 0) read_variable(p, PTX_LOCAL);
        else if (strcmp(word, ".pragma") == 0 || strcmp(word, ".loc") == 0) p->at += strcspn(p->at, "\n");
        else if (*word == '.') fail(p, "unknown directive '%s'", word);
        else read_inst(p, word, line, guard, is_negated);
    }
    resolve_labels(p);
}

static void read_entry(parser *p) {
    PUSH(p, p->m->entry, p->m->n_entries, ((ptx_entry){0}));
    p->e = &p->m->entry[p->m->n_entries - 1];
    p->e->shared_bytes = p->m->shared_bytes;
    p->e->name = copy(p, next(p));
    if (peek(p, '(')) read_params(p);
    while (!peek(p, '{')) {
        const char *w = next(p);
        int dim[3] = {1, 1, 1}, n = 0;
        bool is_required = strcmp(w, ".reqntid") == 0, is_most = strcmp(w, ".maxntid") == 0;
        if (!is_required && !is_most && strcmp(w, ".minnctapersm") != 0 && strcmp(w, ".maxnreg") != 0)
            fail(p, "unknown directive '%s' of an entry", w);
        do dim[n++] = (int)read_number(p);
        while (n < 3 && take(p, ','));
        if (is_most) p->e->max_threads = dim[0] * dim[1] * dim[2];
        if (is_required) memcpy(p->e->required, dim, sizeof dim);
    }
    read_body(p);
    leave_entry(p);
}

static void read_module(parser *p) {
    for (;;) {
        const char *w = next(p);
        if (!*w) break;
        if (strcmp(w, ".version") == 0) {
            int major = 0, minor = 0;
            if (sscanf(next(p), "%d.%d", &major, &minor) != 2) fail(p, "'%s' is no version", p->word);
            p->m->version = 10 * major + minor;
        } else if (strcmp(w, ".target") == 0) {
            if (sscanf(next(p), "sm_%d", &p->m->target) != 1) fail(p, "'%s' is no target", p->word);
            p->m->is_for_one = p->word[strlen(p->word) - 1] == 'a';
            while (take(p, ',')) next(p);
        } else if (strcmp(w, ".address_size") == 0) {
            if (read_number(p) != 64) fail(p, "only 64-bit addresses are known");
        } else if (strcmp(w, ".visible") == 0 || strcmp(w, ".extern") == 0 || strcmp(w, ".weak") == 0) continue;
        else if (strcmp(w, ".entry") == 0) read_entry(p);
        else if (strcmp(w, ".shared") == 0) read_variable(p, PTX_SHARED);
        else if (strcmp(w, ".global") == 0) read_variable(p, PTX_GLOBAL);
        else if (strcmp(w, ".const") == 0) read_variable(p, PTX_CONST);
        else if (strcmp(w, ".file") == 0) p->at += strcspn(p->at, "\n");
        else if (strcmp(w, ".section") == 0) break; /* debug information is last */
        else fail(p, "unknown directive '%s'", w);
    }
    if (!p->m->version || !p->m->target) fail(p, "no .version or no .target");
}

static bool parse(parser *p) {
    if (setjmp(p->failed)) return false;
    read_module(p);
    return true;
}

ptx_module *ptx_parse(const char *text, char error[PTX_ERROR_ROOM]) {
    parser *p = calloc(1, sizeof *p);
    ptx_module *m = calloc(1, sizeof *m);
    bool ok = false;
    snprintf(error, PTX_ERROR_ROOM, "out of memory");
    if (p && m) {
        p->at = text;
        p->line = 1;
        p->m = m;
        p->error = error;
        ok = parse(p);
        leave_entry(p);
    }
    free(p);
    if (ok) return m;
    ptx_free(m);
    return NULL;
}

void ptx_free(ptx_module *m) {
    if (!m) return;
    for (int i = 0; i < m->n_entries; i++) {
        ptx_entry *e = &m->entry[i];
        for (int k = 0; k < e->n_params; k++) free(e->param[k].name);
        free(e->param);
        free(e->inst);
        free(e->element);
        free(e->name);
    }
    for (int i = 0; i < m->n_symbols; i++) free(m->symbol[i].name);
    free(m->entry);
    free(m->symbol);
    free(m->constants);
    free(m);
}

const ptx_entry *ptx_find(const ptx_module *m, const char *name_of) {
    for (int i = 0; i < m->n_entries; i++)
        if (strcmp(m->entry[i].name, name_of) == 0) return &m->entry[i];
    return NULL;
}
