/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TESTS_FUZZ_GRAPH_GEN_H
#define TESTS_FUZZ_GRAPH_GEN_H
/* Random typed programs for graph_fuzz.c, kept as statements so that a failing one can be cut down: any statement may
 * become a parameter of its type, any result may go, and what nothing needs is not printed. Operators come from ir_ops,
 * so a new row is in the programs without an edit here.
 *
 * In one file because programs that include it use all of it: a function for each family of operators, each of which
 * adds statements to the same program by the same few helpers. */
#include "ir/graph.h"
#include "../diff/check.h"

enum { GEN_RANK = 4, GEN_DIM = 40, GEN_VALUES = 64, GEN_SYMBOLS = 4, GEN_RESULTS = 5 };

typedef struct gen_value {
    ir_dtype dtype;
    int rank;
    char dim[GEN_RANK + 1][GEN_DIM]; /* as written: "B", "7", "B*7" */
    bool is_param;
    char text[320]; /* the right side, operands as %vN */
    int pair;       /* the second result of the call before it: index of the first; else -1 */
    int in[3], n_in;
    bool is_used;
    bool is_only_checked; /* nothing needs it, but it is printed: its indices are checked */
} gen_value;

typedef struct gen_program {
    uint64_t seed;
    gen_value value[GEN_VALUES];
    int n, n_results, result[GEN_RESULTS], alias[GEN_RESULTS]; /* alias: value of a parameter, or -1 */
    int64_t size[GEN_SYMBOLS];
    ir_level level;
    ir_features features;
    int n_threads, special;
    bool strided; /* inputs are given with strides */
    double scale;
} gen_program;

static const char *const gen_symbols[GEN_SYMBOLS] = {"A", "B", "C", "D"};

/* ---- sizes ---- */
static int64_t dim_value(const gen_program *p, const char *text) { /* products of names and numbers */
    int64_t v = 1;
    for (const char *c = text; *c;) {
        if (*c >= 'A' && *c <= 'D') v *= p->size[*c++ - 'A'];
        else if (*c >= '0' && *c <= '9') v *= strtoll(c, (char **)&c, 10);
        else c++;
    }
    return v;
}
static int64_t value_count(const gen_program *p, const gen_value *v) {
    int64_t n = 1;
    for (int d = 0; d < v->rank; d++) n *= dim_value(p, v->dim[d]);
    return n;
}
static void choose_dim(rng *r, char *out) {
    static const char *const numbers[] = {"1",  "2",  "3",  "4",  "5",  "7",  "8",  "10",
                                          "15", "16", "17", "31", "32", "33", "64", "65"};
    if (chance(r, 60)) strcpy(out, gen_symbols[below(r, GEN_SYMBOLS)]);
    else strcpy(out, numbers[below(r, 16)]);
}
static void choose_sizes(gen_program *p, rng *r) {
    static const int64_t sizes[] = {1,  2,  3,  4,  5,  7,  8,   9,   15,  16,  17,  31,
                                    32, 33, 47, 63, 64, 65, 100, 127, 128, 129, 255, 300};
    int64_t most = chance(r, 10) ? 3000000 : 60000;
    for (int i = 0; i < GEN_SYMBOLS; i++) p->size[i] = chance(r, 3) ? 0 : sizes[below(r, 24)];
    if (chance(r, 15)) p->size[below(r, GEN_SYMBOLS)] = 1000 + below(r, 9000);
    for (int round = 0; round < 200; round++) {
        bool fits = true;
        for (int i = 0; i < p->n && fits; i++) fits = value_count(p, &p->value[i]) <= most;
        if (fits) return;
        int largest = 0;
        for (int i = 1; i < GEN_SYMBOLS; i++)
            if (p->size[i] > p->size[largest]) largest = i;
        p->size[largest] = p->size[largest] / 2 + p->size[largest] % 2;
    }
}

static void print_type(fu_str *s, const gen_value *v) {
    fu_str_addf(s, "%s", ir_dtypes[v->dtype].name);
    for (int d = 0; d < v->rank; d++) fu_str_addf(s, "%s%s", d ? ", " : "[", v->dim[d]);
    if (v->rank) fu_str_addf(s, "]");
}

/* In one program of three, parameters call a size that an earlier one has bound A.1, A.2 and so on: only the call tells
 * that it is A. Not in one that a result is written over, whose sizes have to be the result's. */
static void print_param_type(fu_str *s, const gen_program *p, int number, bool *is_bound) {
    gen_value v = p->value[number];
    bool may = p->seed % 3 == 1;
    for (int r = 0; r < p->n_results; r++) may &= p->alias[r] != number;
    for (int d = 0; d < v.rank; d++) {
        if (v.dim[d][0] < 'A' || v.dim[d][1]) continue;
        bool *bound = &is_bound[v.dim[d][0] - 'A'];
        if (may && *bound && (p->seed / 3 + (uint64_t)(number + d)) % 4)
            snprintf(v.dim[d] + 1, GEN_DIM - 1, ".%d", number * 8 + d);
        *bound = true;
    }
    print_type(s, &v);
}

static void mark_used(gen_program *p) {
    for (int i = 0; i < p->n; i++) p->value[i].is_used = p->value[i].is_only_checked && !p->value[i].is_param;
    for (int r = 0; r < p->n_results; r++) {
        p->value[p->result[r]].is_used = true;
        if (p->alias[r] >= 0) p->value[p->alias[r]].is_used = true;
    }
    for (int i = p->n - 1; i >= 0; i--) {
        gen_value *v = &p->value[i];
        if (!v->is_used) continue;
        if (v->pair >= 0) p->value[v->pair].is_used = true;
        for (int k = 0; k < v->n_in && !v->is_param; k++) p->value[v->in[k]].is_used = true;
    }
}

/* The program in other words: statements in another order that their operands allow, values under other names, values
 * that nothing needs between. What it means, and so its plan, is the same. `text` is what gen_print printed. */
static const char *gen_restate(const gen_program *p, fu_arena *arena, const char *text) {
    const char *begin = strstr(text, "{\n") + 2, *end = strstr(begin, "  return");
    const char *line[2 * GEN_VALUES];
    bool is_done[2 * GEN_VALUES] = {false}, is_made[GEN_VALUES] = {false};
    int n = 0, left;
    rng r = {p->seed * 2654435761u + 12345};
    fu_str s, out;
    fu_str_init(&s, arena);
    for (const char *at = begin; at < end; at = strchr(at, '\n') + 1) line[n++] = at;
    for (int i = 0; i < p->n; i++) is_made[i] = p->value[i].is_param;
    fu_str_addn(&s, text, (size_t)(begin - text));
    for (left = n; left;) {
        int k = below(&r, n);
        for (bool is_ready = false; !is_ready;
             k = is_ready ? k : (k + 1) % n) { /* the first that may come now, from k on */
            is_ready = !is_done[k];
            const char *c = strchr(line[k], '=');
            for (; is_ready && *c != '\n'; c++)
                if (*c == '%' && c[1] == 'v') is_ready = is_made[atoi(c + 2)];
        }
        const size_t length = strcspn(line[k], "\n") + 1;
        const int first = atoi(strstr(line[k], "%v") + 2);
        for (const char *c = line[k]; *c != '='; c++)
            if (*c == '%' && c[1] == 'v') is_made[atoi(c + 2)] = true;
        fu_str_addn(&s, line[k], length);
        if (chance(&r, 30))
            fu_str_addf(&s, "  %%dead%d = cast(%%v%d, %s)\n", left, first,
                        p->value[first].dtype == FUSOR_BOOL ? "i32" : "bool");
        is_done[k] = true;
        left--;
    }
    fu_str_add(&s, end);
    fu_str_init(&out, arena);
    for (const char *c = s.at; *c; c++) {
        if (*c == '%' && (c[1] == 'v' || c[1] == 'w')) {
            char *after;
            const long number = strtol(c + 2, &after, 10);
            fu_str_addf(&out, "%%x%ld_%c", (number * 37 + 11) % 101, c[1]);
            c = after - 1;
        } else {
            fu_str_addc(&out, *c);
        }
    }
    return out.at;
}

static const char *gen_print(gen_program *p, fu_arena *arena) {
    fu_str s;
    bool calls[2] = {false, false};
    char target[IR_TARGET_MAX];
    fu_str_init(&s, arena);
    mark_used(p);
    fu_str_addf(&s,
                "# fuzz: seed=%llu level=%s threads=%d special=%d strided=%d scale=%g A=%lld B=%lld C=%lld D=%lld\n",
                (unsigned long long)p->seed, ir_target_name((ir_target){p->level, p->features}, target), p->n_threads,
                p->special, p->strided, p->scale, (long long)p->size[0], (long long)p->size[1], (long long)p->size[2],
                (long long)p->size[3]);
    fu_str_addf(&s, "func @f(");
    bool first = true, is_bound[GEN_SYMBOLS] = {false};
    for (int i = 0; i < p->n; i++) {
        gen_value *v = &p->value[i];
        if (!v->is_param || !v->is_used) continue;
        fu_str_addf(&s, "%s%%v%d: ", first ? "" : ", ", i);
        print_param_type(&s, p, i, is_bound);
        first = false;
    }
    fu_str_addf(&s, ") -> (");
    for (int r = 0; r < p->n_results; r++) {
        fu_str_addf(&s, "%s%%r%d: ", r ? ", " : "", r);
        print_type(&s, &p->value[p->result[r]]);
        if (p->alias[r] >= 0) fu_str_addf(&s, " alias %%v%d", p->alias[r]);
    }
    fu_str_addf(&s, ") {\n");
    for (int i = 0; i < p->n; i++) {
        gen_value *v = &p->value[i];
        if (v->is_param || !v->is_used || v->pair >= 0) continue;
        bool is_pair = i + 1 < p->n && p->value[i + 1].pair == i && !p->value[i + 1].is_param;
        fu_str_addf(&s, "  %%v%d", i);
        if (is_pair) fu_str_addf(&s, ", %%v%d", i + 1);
        else if (strncmp(v->text, "@two", 4) == 0) fu_str_addf(&s, ", %%w%d", i);
        /* Every so often a barrier, by seed and number: a cut-down program keeps it. */
        const bool is_cut = (p->seed * 31 + (uint64_t)i * 7) % 19 == 0;
        if (is_cut) fu_str_addf(&s, " = %.*s, barrier=true)\n", (int)strlen(v->text) - 1, v->text);
        else fu_str_addf(&s, " = %s\n", v->text);
        calls[0] |= strncmp(v->text, "@one", 4) == 0;
        calls[1] |= strncmp(v->text, "@two", 4) == 0;
    }
    fu_str_addf(&s, "  return ");
    for (int r = 0; r < p->n_results; r++) fu_str_addf(&s, "%s%%v%d", r ? ", " : "", p->result[r]);
    fu_str_addf(&s, "\n}\n");
    if (calls[0])
        fu_str_addf(&s, "func @one(%%x: f32[P, Q], %%y: f32[Q]) -> f32[P, Q] {\n  %%t = mul(%%x, %%y)\n  %%u = "
                        "add(%%t, 0.5)\n  %%m = reduce_mean(%%u, "
                        "axes=[1], keepdims=true)\n  %%z = sub(%%u, %%m)\n  return %%z\n}\n");
    if (calls[1])
        fu_str_addf(&s, "func @two(%%x: f32[P, Q]) -> (f32[P, Q], f32[P]) {\n  %%s = square(%%x)\n  %%r = "
                        "reduce_sum(%%s, axes=[1])\n  %%t = relu(%%x)\n"
                        "  return %%t, %%r\n}\n");
    return s.at;
}

/* ---- values ---- */
static int add_value(gen_program *p, const gen_value *v) {
    if (p->n == GEN_VALUES) return -1;
    p->value[p->n] = *v;
    return p->n++;
}
static gen_value like(const gen_value *v, ir_dtype dtype) {
    gen_value w = {.dtype = dtype, .rank = v->rank, .pair = -1};
    memcpy(w.dim, v->dim, sizeof w.dim);
    return w;
}
static int add_param(gen_program *p, const gen_value *shape) {
    gen_value v = *shape;
    v.is_param = true;
    v.pair = -1;
    v.n_in = 0;
    return add_value(p, &v);
}
static void uses(gen_value *v, int n, int a, int b, int c) {
    v->n_in = n;
    v->in[0] = a;
    v->in[1] = b;
    v->in[2] = c;
}

static ir_dtype choose_dtype(rng *r) {
    static const ir_dtype most[] = {FUSOR_F32, FUSOR_F32, FUSOR_F32,  FUSOR_F32, FUSOR_F32, FUSOR_F32,
                                    FUSOR_F64, FUSOR_F16, FUSOR_BF16, FUSOR_I32, FUSOR_I64, FUSOR_BOOL};
    return chance(r, 85) ? most[below(r, 12)] : (ir_dtype)(1 + below(r, IR_DTYPE_COUNT - 1));
}

static bool stretches_to(const gen_value *b, const gen_value *a) {
    if (b->rank > a->rank) return false;
    for (int d = 0; d < b->rank; d++) {
        const char *x = b->dim[d], *y = a->dim[d + a->rank - b->rank];
        if (strcmp(x, y) != 0 && strcmp(x, "1") != 0) return false;
    }
    return true;
}

/* An operand beside `a`, of dtype t, that leaves its shape alone; text for it. -1: a literal. */
static int partner(gen_program *p, rng *r, const gen_value *a, ir_dtype t, bool literal, char *text) {
    int found[GEN_VALUES], n = 0;
    if (literal && t != FUSOR_BOOL && chance(r, 20)) {
        static const char *const f[] = {"0.5", "2.", "-1.25", "0.", "1.", "0.1"},
                                 *const s[] = {"3", "-2", "0", "1", "7", "-1"}, *const u[] = {"3", "2", "0",
                                                                                              "1", "7", "5"};
        strcpy(text, (ir_is_float(t) ? f : ir_is_signed(t) ? s : u)[below(r, 6)]);
        return -1;
    }
    for (int i = 0; i < p->n; i++)
        if (p->value[i].dtype == t && stretches_to(&p->value[i], a)) found[n++] = i;
    int b;
    if (n && chance(r, 70)) {
        b = found[below(r, n)];
    } else {
        gen_value v = like(a, t);
        int drop = chance(r, 50) ? 0 : below(r, v.rank + 1);
        for (int d = 0; d + drop < v.rank; d++) strcpy(v.dim[d], a->dim[d + drop]);
        v.rank -= drop;
        for (int d = 0; d < v.rank; d++)
            if (chance(r, 15)) strcpy(v.dim[d], "1");
        b = add_param(p, &v);
        if (b < 0) b = n ? found[0] : 0;
    }
    sprintf(text, "%%v%d", b);
    return b;
}

/* ---- statements: each adds a value made of value `a`, or nothing ---- */
static void gen_elementwise(gen_program *p, rng *r, int a) {
    const gen_value x = p->value[a];
    for (int tries = 0; tries < 40; tries++) {
        ir_op op = (ir_op)(1 + below(r, IR_OP_COUNT - 1));
        const ir_op_info *info = &ir_ops[op];
        int arity = info->min_in, in[3] = {a, -1, -1}, at = 0;
        char operand[3][24];
        if (info->kind != IR_KIND_EW || !(info->classes & ir_dtypes[x.dtype].cls)) continue;
        if ((info->flags & IR_COSTLY) && chance(r, 50)) continue;
        gen_value v = like(&x, info->result_is_bool ? FUSOR_BOOL : x.dtype);
        /* a remainder jumps where its operands move a little, and a computed NaN has any sign: parameters only */
        bool jumps = ir_is_float(x.dtype) && (op == IR_OP_MOD || op == IR_OP_FMOD || op == IR_OP_COPYSIGN);
        bool is_select = (info->flags & IR_COND) != 0;
        int main_at = is_select ? 1 : arity == 2 ? below(r, 2) : 0;
        for (int k = 0; k < arity; k++) {
            if (k == main_at) {
                sprintf(operand[k], "%%v%d", a);
                at = a;
            } else {
                at = partner(p, r, &x, is_select && k == 0 ? FUSOR_BOOL : x.dtype, true, operand[k]);
                if (is_select && k == 0 && at < 0) return;
            }
            in[k] = at;
            if (jumps && at >= 0 && !p->value[at].is_param) return;
        }
        int n = 0;
        for (int k = 0; k < arity; k++)
            if (in[k] >= 0) v.in[n++] = in[k];
        v.n_in = n;
        snprintf(v.text, sizeof v.text, "%s(%s%s%s%s%s)", info->name, operand[0], arity > 1 ? ", " : "",
                 arity > 1 ? operand[1] : "", arity > 2 ? ", " : "", arity > 2 ? operand[2] : "");
        add_value(p, &v);
        return;
    }
}

static void gen_cast(gen_program *p, rng *r, int a) {
    gen_value v = like(&p->value[a], choose_dtype(r));
    if (v.dtype == p->value[a].dtype) return;
    uses(&v, 1, a, 0, 0);
    snprintf(v.text, sizeof v.text, "cast(%%v%d, %s)", a, ir_dtypes[v.dtype].name);
    add_value(p, &v);
}

static void gen_reduce(gen_program *p, rng *r, int a) {
    const gen_value x = p->value[a];
    for (int tries = 0; tries < 40; tries++) {
        ir_op op = (ir_op)(1 + below(r, IR_OP_COUNT - 1));
        const ir_op_info *info = &ir_ops[op];
        bool is_arg = info->kind == IR_KIND_ARGREDUCE;
        if ((info->kind != IR_KIND_REDUCE && !is_arg) || !(info->classes & ir_dtypes[x.dtype].cls)) continue;
        if (op == IR_OP_REDUCE_PROD && ir_is_float(x.dtype) && chance(r, 70)) continue;
        gen_value v = {.dtype = x.dtype, .pair = -1};
        if (is_arg || (info->is_sum_like && !ir_is_float(x.dtype))) v.dtype = FUSOR_I64;
        uses(&v, 1, a, 0, 0);
        int mask = 0, end = snprintf(v.text, sizeof v.text, "%s(%%v%d", info->name, a);
        bool keep = chance(r, 50), all = x.rank == 0 || chance(r, 15);
        if (all) mask = (1 << x.rank) - 1;
        else if (is_arg || chance(r, 60)) mask = 1 << (chance(r, 60) ? x.rank - 1 : below(r, x.rank));
        else mask = below(r, 1 << x.rank);
        if (!all) {
            end += sprintf(v.text + end, is_arg ? ", axis=" : ", axes=[");
            bool first = true;
            for (int d = 0; d < x.rank; d++) {
                if (!(mask >> d & 1)) continue;
                end += sprintf(v.text + end, "%s%d", first ? "" : ", ", chance(r, 30) ? d - x.rank : d);
                first = false;
            }
            if (!is_arg) end += sprintf(v.text + end, "]");
        }
        if (keep) end += sprintf(v.text + end, ", keepdims=true");
        if (is_arg && chance(r, 30)) end += sprintf(v.text + end, ", select_last=true");
        if (info->is_sum_like && chance(r, 15)) {
            v.dtype = ir_is_float(x.dtype) ? (chance(r, 50) ? FUSOR_F64 : FUSOR_F32) : FUSOR_I32;
            end += sprintf(v.text + end, ", dtype=%s", ir_dtypes[v.dtype].name);
        }
        sprintf(v.text + end, ")");
        for (int d = 0; d < x.rank; d++)
            if (!(mask >> d & 1)) strcpy(v.dim[v.rank++], x.dim[d]);
            else if (keep) strcpy(v.dim[v.rank++], "1");
        add_value(p, &v);
        return;
    }
}

static void gen_row(gen_program *p, rng *r, int a) {
    const gen_value x = p->value[a];
    if (!ir_is_float(x.dtype) || x.rank == 0) return;
    gen_value v = like(&x, x.dtype);
    uses(&v, 1, a, 0, 0);
    int axis = chance(r, 70) ? x.rank - 1 : below(r, x.rank);
    snprintf(v.text, sizeof v.text, "%s(%%v%d, axis=%d)", chance(r, 60) ? "softmax" : "log_softmax", a, axis);
    add_value(p, &v);
}

static void gen_scan(gen_program *p, rng *r, int a) {
    const gen_value x = p->value[a];
    const bool is_product = chance(r, 25);
    if (x.rank == 0 || (is_product && ir_is_float(x.dtype) && chance(r, 70))) return;
    gen_value v = like(&x, ir_is_float(x.dtype) ? x.dtype : FUSOR_I64);
    uses(&v, 1, a, 0, 0);
    int axis = chance(r, 60) ? x.rank - 1 : below(r, x.rank);
    int end = snprintf(v.text, sizeof v.text, "%s(%%v%d, axis=%d%s%s", is_product ? "cumprod" : "cumsum", a, axis,
                       chance(r, 30) ? ", exclusive=true" : "", chance(r, 30) ? ", reverse=true" : "");
    if (chance(r, 15)) {
        v.dtype = ir_is_float(x.dtype) ? (chance(r, 50) ? FUSOR_F64 : FUSOR_F32) : FUSOR_I32;
        end += sprintf(v.text + end, ", dtype=%s", ir_dtypes[v.dtype].name);
    }
    sprintf(v.text + end, ")");
    add_value(p, &v);
}

static void gen_norm(gen_program *p, rng *r, int a) {
    const gen_value x = p->value[a];
    if (!ir_is_float(x.dtype) || x.rank == 0) return;
    const bool is_layer = chance(r, 60);
    gen_value v = like(&x, x.dtype);
    char operand[2][24] = {"", ""};
    int n = chance(r, 40) ? 0 : is_layer && chance(r, 60) ? 2 : 1, in[3] = {a, -1, -1}, used = 1;
    for (int k = 0; k < n; k++) {
        const int at = partner(p, r, &x, x.dtype, true, operand[k]);
        if (at >= 0) in[used++] = at;
    }
    uses(&v, used, in[0], in[1], in[2]);
    snprintf(v.text, sizeof v.text, "%s(%%v%d%s%s%s%s, axis=%d)", is_layer ? "layer_norm" : "rms_norm", a,
             n > 0 ? ", " : "", operand[0], n > 1 ? ", " : "", operand[1],
             chance(r, 70) ? x.rank - 1 : below(r, x.rank));
    add_value(p, &v);
}

static void gen_matmul(gen_program *p, rng *r, int a) {
    const gen_value x = p->value[a];
    if (x.rank < 2 || x.dtype == FUSOR_BOOL) return;
    bool ta = chance(r, 20), tb = chance(r, 35);
    const char *m = x.dim[x.rank - 2 + ta], *k = x.dim[x.rank - 1 - ta];
    gen_value v = like(&x, x.dtype), y = like(&x, x.dtype);
    int b = -1;
    bool mixed = ir_is_int(x.dtype) && ir_dtypes[x.dtype].bytes == 1 && chance(r, 50);
    if (mixed) y.dtype = x.dtype == FUSOR_I8 ? FUSOR_U8 : FUSOR_I8;
    if (!mixed && chance(r, 25)) { /* a value that fits by chance, with itself most often */
        for (int i = p->n - 1; i >= 0 && b < 0; i--) {
            const gen_value *w = &p->value[i];
            if (w->dtype == x.dtype &&
                (w->rank == 2 ||
                 (w->rank == x.rank && memcmp(w->dim, x.dim, sizeof w->dim[0] * (size_t)(x.rank - 2)) == 0)) &&
                strcmp(w->dim[w->rank - 2 + tb], k) == 0)
                b = i;
        }
    }
    if (b < 0) {
        char n[GEN_DIM];
        choose_dim(r, n);
        if (chance(r, 60)) {
            y.rank = 2;
            memmove(y.dim[0], x.dim[x.rank - 2], sizeof y.dim[0] * 2);
        } else {
            for (int d = 0; d < x.rank - 2; d++)
                if (chance(r, 20)) strcpy(y.dim[d], "1");
        }
        strcpy(y.dim[y.rank - 2 + tb], k);
        strcpy(y.dim[y.rank - 1 - tb], n);
        b = add_param(p, &y);
        if (b < 0) return;
    }
    const gen_value *w = &p->value[b];
    strcpy(v.dim[v.rank - 2], m);
    strcpy(v.dim[v.rank - 1], w->dim[w->rank - 1 - tb]);
    if (!ir_is_float(x.dtype)) v.dtype = ir_dtypes[x.dtype].bytes == 1 ? FUSOR_I32 : FUSOR_I64;
    uses(&v, 2, a, b, 0);
    snprintf(v.text, sizeof v.text, "matmul(%%v%d, %%v%d%s%s)", a, b, ta ? ", transpose_a=true" : "",
             tb ? ", transpose_b=true" : "");
    add_value(p, &v);
}

/* Queries [.., S, D] that are there; keys and values, which may be the keys, with the same heads or one. Every
 * attribute by chance. */
static void gen_attention(gen_program *p, rng *r, int a) {
    const gen_value x = p->value[a];
    if (x.rank < 2 || x.rank > 4 || !ir_is_float(x.dtype) || p->n + 3 > GEN_VALUES) return;
    gen_value v = like(&x, x.dtype), k = like(&x, x.dtype), y;
    char more[160] = "";
    if (x.rank > 2 && chance(r, 25)) strcpy(k.dim[x.rank - 3], "1");
    choose_dim(r, k.dim[k.rank - 2]);
    const int b = add_param(p, &k);
    if (b < 0) return;
    int c = b;
    if (chance(r, 70)) {
        y = like(&k, x.dtype);
        choose_dim(r, y.dim[y.rank - 1]);
        strcpy(v.dim[v.rank - 1], y.dim[y.rank - 1]);
        if ((c = add_param(p, &y)) < 0) return;
    }
    if (chance(r, 40)) strcat(more, ", causal=true");
    if (chance(r, 20)) sprintf(more + strlen(more), ", causal_offset=%d", below(r, 40) - 20);
    if (chance(r, 20)) sprintf(more + strlen(more), ", window=[%d, %d]", below(r, 90) - 1, below(r, 20) - 1);
    if (chance(r, 15)) strcat(more, ", softcap=3");
    if (chance(r, 20)) strcat(more, ", scale=0.37");
    uses(&v, c == b ? 2 : 3, a, b, c);
    snprintf(v.text, sizeof v.text, "attention(%%v%d, %%v%d, %%v%d%s)", a, b, c, more);
    add_value(p, &v);
}

static void shuffle_letters(rng *r, char *s) {
    for (int i = (int)strlen(s) - 1; i > 0; i--) {
        const int other = below(r, i + 1);
        const char c = s[i];
        s[i] = s[other];
        s[other] = c;
    }
}

/* One or two operands. The axes of the first are i, j, ..; equal neighbours may be a diagonal. The second has some of
 * these and up to two of its own; the result has some of all, in any order. */
static void gen_einsum(gen_program *p, rng *r, int a) {
    const gen_value x = p->value[a];
    char first[GEN_RANK + 1] = "", second[GEN_RANK + 2] = "", result[2 * GEN_RANK + 2] = "", size[128][GEN_DIM];
    if (x.dtype == FUSOR_BOOL) return;
    for (int d = 0; d < x.rank; d++) {
        first[d] = d && strcmp(x.dim[d], x.dim[d - 1]) == 0 && chance(r, 30) ? first[d - 1] : (char)('i' + d);
        first[d + 1] = 0;
        strcpy(size[(int)first[d]], x.dim[d]);
    }
    int b = -1;
    if (chance(r, 75)) {
        gen_value y = like(&x, x.dtype);
        int n = 0;
        for (int d = 0; d < x.rank; d++)
            if (!strchr(second, first[d]) && chance(r, 50)) second[n++] = first[d], second[n] = 0;
        for (int own = 'a'; own <= 'b'; own++)
            if (n < GEN_RANK && chance(r, own == 'a' ? 70 : 40))
                second[n++] = (char)own, second[n] = 0, choose_dim(r, size[own]);
        shuffle_letters(r, second);
        y.rank = n;
        for (int d = 0; d < n; d++) strcpy(y.dim[d], chance(r, 8) ? "1" : size[(int)second[d]]);
        for (int d = 0; d < n; d++)
            if (second[d] <= 'b') strcpy(size[(int)second[d]], y.dim[d]);
        b = add_param(p, &y);
        if (b < 0) return;
    }
    gen_value v = like(&x, x.dtype);
    int n = 0;
    for (const char *from = first; from; from = from == first ? second : NULL)
        for (int d = 0; from[d]; d++)
            if (!strchr(result, from[d]) && n < GEN_RANK && chance(r, 60)) result[n++] = from[d], result[n] = 0;
    shuffle_letters(r, result);
    v.rank = n;
    for (int d = 0; d < n; d++) strcpy(v.dim[d], size[(int)result[d]]);
    if (!ir_is_float(x.dtype)) v.dtype = ir_dtypes[x.dtype].bytes == 1 ? FUSOR_I32 : FUSOR_I64;
    if (b < 0) {
        uses(&v, 1, a, 0, 0);
        snprintf(v.text, sizeof v.text, "einsum(\"%s->%s\", %%v%d)", first, result, a);
    } else {
        uses(&v, 2, a, b, 0);
        snprintf(v.text, sizeof v.text, "einsum(\"%s,%s->%s\", %%v%d, %%v%d)", first, second, result, a, b);
    }
    add_value(p, &v);
}

static void gen_view(gen_program *p, rng *r, int a) {
    const gen_value x = p->value[a];
    gen_value v = like(&x, x.dtype);
    uses(&v, 1, a, 0, 0);
    int end = 0, kind = below(r, 6), at;
    switch (kind) {
    case 0:
    case 1: { /* transpose */
        int perm[GEN_RANK];
        if (x.rank < 2) return;
        for (int d = 0; d < x.rank; d++) perm[d] = d;
        for (int d = x.rank - 1; d > 0; d--) {
            int other = below(r, d + 1), t = perm[d];
            perm[d] = perm[other];
            perm[other] = t;
        }
        end = sprintf(v.text, "transpose(%%v%d, perm=[", a);
        for (int d = 0; d < x.rank; d++) {
            end += sprintf(v.text + end, "%s%d", d ? ", " : "", perm[d]);
            strcpy(v.dim[d], x.dim[perm[d]]);
        }
        sprintf(v.text + end, "])");
        break;
    }
    case 2: /* two dims become one, or all */
        if (x.rank < 2 || strlen(x.dim[0]) + strlen(x.dim[1]) + 4 > GEN_DIM / 2) return;
        at = below(r, x.rank - 1);
        if (strlen(x.dim[at]) + strlen(x.dim[at + 1]) + 2 > GEN_DIM / 2) return;
        snprintf(v.dim[at], GEN_DIM, "%.19s*%.19s", x.dim[at], x.dim[at + 1]);
        for (int d = at + 1; d + 1 < x.rank; d++) strcpy(v.dim[d], x.dim[d + 1]);
        v.rank--;
        break;
    case 3: /* unsqueeze */
        if (x.rank == GEN_RANK) return;
        at = below(r, x.rank + 1);
        for (int d = x.rank; d > at; d--) strcpy(v.dim[d], x.dim[d - 1]);
        strcpy(v.dim[at], "1");
        v.rank++;
        sprintf(v.text, "unsqueeze(%%v%d, axes=[%d])", a, at);
        break;
    case 4: /* squeeze */
        for (at = 0; at < x.rank && strcmp(x.dim[at], "1") != 0; at++) {}
        if (at == x.rank) return;
        for (int d = at; d + 1 < x.rank; d++) strcpy(v.dim[d], x.dim[d + 1]);
        v.rank--;
        sprintf(v.text, "squeeze(%%v%d, axes=[%d])", a, at);
        break;
    default: /* broadcast_to */
        if (x.rank < GEN_RANK && chance(r, 60)) {
            for (int d = x.rank; d > 0; d--) strcpy(v.dim[d], x.dim[d - 1]);
            choose_dim(r, v.dim[0]);
            v.rank++;
        } else {
            for (at = 0; at < x.rank && strcmp(x.dim[at], "1") != 0; at++) {}
            if (at == x.rank) return;
            choose_dim(r, v.dim[at]);
        }
    }
    if (kind == 2 || kind >= 5) {
        end = sprintf(v.text, "%s(%%v%d, shape=[", kind == 2 ? "reshape" : "broadcast_to", a);
        for (int d = 0; d < v.rank; d++) end += sprintf(v.text + end, "%s%s", d ? ", " : "", v.dim[d]);
        sprintf(v.text + end, "])");
    }
    add_value(p, &v);
}

/* A value that holds indices 0 .. n - 1 in the dims given; -1: no room. */
static int gen_indices(gen_program *p, const gen_value *shape, int axis, int64_t n) {
    gen_value v = like(shape, FUSOR_I64), w = v;
    char dims[GEN_RANK * (GEN_DIM + 2) + 4] = "";
    for (int d = 0; d < v.rank; d++) sprintf(dims + strlen(dims), "%s%s", d ? ", " : "", v.dim[d]);
    if (strlen(dims) > 120 || p->n + 2 > GEN_VALUES) return -1;
    v.n_in = 0;
    snprintf(v.text, sizeof v.text, "iota(shape=[%.120s], axis=%d, dtype=i64)", dims, axis);
    uses(&w, 1, add_value(p, &v), 0, 0);
    snprintf(w.text, sizeof w.text, "mod(%%v%d, %lld)", w.in[0], (long long)n);
    return add_value(p, &w);
}

/* "[0, 3, 0]" or, for pads, "[0, 3, 0, 0, 1, 0]". */
static int put_list(char *out, int rank, int at, int64_t v, int64_t other) {
    int end = sprintf(out, "[");
    for (int d = 0; d < rank; d++) end += sprintf(out + end, "%s%lld", d ? ", " : "", (long long)(d == at ? v : other));
    return end + sprintf(out + end, "]");
}

/* Movement. Named sizes stay whole or are multiplied; numbers are cut, grown and indexed. */
static void gen_move(gen_program *p, rng *r, int a) {
    const gen_value x = p->value[a];
    if (x.rank == 0) return;
    gen_value v = like(&x, x.dtype), w;
    uses(&v, 1, a, 0, 0);
    const int axis = below(r, x.rank), kind = below(r, 12);
    char *end, list[2][80];
    const int64_t n = strtoll(x.dim[axis], &end, 10);
    const bool is_number = end != x.dim[axis] && *end == 0;
    int b, c;
    if (kind >= 5 && kind < 11 && !is_number) return;
    switch (kind) {
    case 0:
    case 1: snprintf(v.text, sizeof v.text, "flip(%%v%d, axes=[%d])", a, axis); break;
    case 2:
        if (x.rank < 2) return;
        snprintf(v.text, sizeof v.text, "%s(%%v%d, k=%d)", chance(r, 50) ? "tril" : "triu", a, below(r, 5) - 2);
        break;
    case 3:
        if (strlen(x.dim[axis]) > 20) return;
        snprintf(v.dim[axis], GEN_DIM, "%.20s*2", x.dim[axis]);
        snprintf(v.text, sizeof v.text, "concat(%%v%d, %%v%d, axis=%d)", a, a, axis);
        break;
    case 4:
        if (strlen(x.dim[axis]) > 20) return;
        snprintf(v.dim[axis], GEN_DIM, "%.20s*3", x.dim[axis]);
        put_list(list[0], x.rank, axis, 3, 1);
        snprintf(v.text, sizeof v.text, "tile(%%v%d, repeats=%.79s)", a, list[0]);
        break;
    case 5: {
        const int64_t start = below(r, (int)n), step = 1 + below(r, 3), count = (n - start + step - 1) / step;
        const bool is_back = chance(r, 40);
        snprintf(v.dim[axis], GEN_DIM, "%lld", (long long)(is_back ? start / step + 1 : count));
        snprintf(v.text, sizeof v.text, "slice(%%v%d, starts=[%lld], ends=[%s], steps=[%lld], axes=[%d])", a,
                 (long long)start, is_back ? "-9223372036854775808" : "9223372036854775807",
                 (long long)(is_back ? -step : step), axis);
        break;
    }
    case 6: {
        static const char *const modes[] = {"constant", "edge", "reflect", "wrap"};
        const int mode = below(r, 4), most = mode == 2 ? (int)n : 6, before = below(r, most), after = below(r, most);
        put_list(list[0], x.rank, axis, before, 0);
        put_list(list[1], x.rank, axis, after, 0);
        snprintf(v.dim[axis], GEN_DIM, "%lld", (long long)n + before + after);
        snprintf(v.text, sizeof v.text, "pad(%%v%d, pads=%.*s, %.78s, mode=%s)", a, (int)strlen(list[0]) - 1, list[0],
                 list[1] + 1, modes[mode]);
        break;
    }
    case 7: /* split */
        if (n < 2 || p->n + 2 > GEN_VALUES) return;
        w = v;
        b = 1 + below(r, (int)n - 1);
        sprintf(v.dim[axis], "%d", b);
        sprintf(w.dim[axis], "%d", (int)n - b);
        snprintf(v.text, sizeof v.text, "split(%%v%d, axis=%d, sizes=[%d, %d])", a, axis, b, (int)n - b);
        w.pair = add_value(p, &v);
        add_value(p, &w);
        return;
    case 8: {
        gen_value shape = {.rank = 1 + (x.rank < GEN_RANK && chance(r, 30)), .pair = -1};
        for (int d = 0; d < shape.rank; d++) choose_dim(r, shape.dim[d]);
        if ((b = gen_indices(p, &shape, below(r, shape.rank), n)) < 0) return;
        v.rank = x.rank - 1 + shape.rank;
        for (int d = x.rank - 1; d > axis; d--) strcpy(v.dim[d - 1 + shape.rank], x.dim[d]);
        for (int d = 0; d < shape.rank; d++) strcpy(v.dim[axis + d], shape.dim[d]);
        uses(&v, 2, a, b, 0);
        snprintf(v.text, sizeof v.text, "take(%%v%d, %%v%d, axis=%d)", a, b, axis);
        break;
    }
    case 9:
        choose_dim(r, v.dim[axis]);
        if ((b = gen_indices(p, &v, below(r, x.rank), n)) < 0) return;
        uses(&v, 2, a, b, 0);
        snprintf(v.text, sizeof v.text, "take_along(%%v%d, %%v%d, axis=%d)", a, b, axis);
        break;
    case 10: {
        static const char *const modes[] = {"set", "add", "max", "min", "mul"};
        gen_value updates = like(&x, x.dtype);
        choose_dim(r, updates.dim[axis]);
        if ((b = gen_indices(p, &updates, below(r, x.rank), n)) < 0 || (c = add_param(p, &updates)) < 0) return;
        uses(&v, 3, a, b, c);
        snprintf(v.text, sizeof v.text, "scatter(%%v%d, %%v%d, %%v%d, axis=%d, mode=%s)", a, b, c, axis,
                 modes[x.dtype == FUSOR_BOOL ? 0 : below(r, ir_is_float(x.dtype) ? 4 : 5)]);
        break;
    }
    default:
        if (!ir_is_int(x.dtype) || x.rank == GEN_RANK) return;
        v.dtype = chance(r, 70) ? FUSOR_F32 : FUSOR_I32;
        strcpy(v.dim[v.rank++], "5");
        snprintf(v.text, sizeof v.text, "one_hot(%%v%d, depth=5, dtype=%s)", a, ir_dtypes[v.dtype].name);
    }
    add_value(p, &v);
}

/* What nothing needs, but for the check of its indices, which are a parameter: 0 (graph_fuzz.c). */
static void gen_unused(gen_program *p, int a) {
    const gen_value x = p->value[a], indices = {.dtype = FUSOR_I64, .rank = 1, .dim = {"1"}};
    int axis = 0; /* whose size is a number, so that it is not empty */
    while (axis < x.rank && (x.dim[axis][0] < '1' || x.dim[axis][0] > '9')) axis++;
    if (axis == x.rank || p->n + 2 > GEN_VALUES) return;
    const int b = add_param(p, &indices);
    gen_value v = like(&x, x.dtype);
    strcpy(v.dim[axis], "1");
    uses(&v, 2, a, b, 0);
    snprintf(v.text, sizeof v.text, "take(%%v%d, %%v%d, axis=%d)", a, b, axis);
    v.is_only_checked = true;
    add_value(p, &v);
}

/* Windows over the last one or two axes: named sizes keep their size, numbers may shrink. */
static void gen_pool(gen_program *p, rng *r, int a) {
    gen_value x = p->value[a];
    if (x.rank == 0 || x.rank > 4 || ir_is_bool(x.dtype) || p->n + 2 > GEN_VALUES) return;
    if (x.rank < 3) { /* [N, C, ..] */
        gen_value up = like(&x, x.dtype);
        uses(&up, 1, a, 0, 0);
        snprintf(up.text, sizeof up.text, "unsqueeze(%%v%d, axes=[%s])", a, x.rank == 1 ? "0, 1" : "1");
        memmove(up.dim[2], up.dim[x.rank - 1], GEN_DIM);
        strcpy(up.dim[1], "1");
        if (x.rank == 1) strcpy(up.dim[0], "1");
        up.rank = 3;
        a = add_value(p, &up);
        x = up;
    }
    gen_value v = like(&x, x.dtype);
    const int n = x.rank - 2;
    const bool is_max = !ir_is_float(x.dtype) || chance(r, 50);
    char lists[4][40] = {"", "", "", ""}, ends[40] = "";
    for (int i = 0; i < n; i++) {
        char *end;
        const int64_t size = strtoll(x.dim[2 + i], &end, 10);
        const bool is_number = end != x.dim[2 + i] && *end == 0;
        const int kernel = 1 + below(r, chance(r, 20) ? 40 : 4), dilation = 1 + (chance(r, 20) ? below(r, 3) : 0);
        const int extent = (kernel - 1) * dilation + 1, begin = below(r, extent), after = extent - 1 - begin;
        const int stride = is_number ? 1 + below(r, 4) : 1;
        if (is_number) snprintf(v.dim[2 + i], GEN_DIM, "%lld", (long long)((size - 1) / stride + 1));
        const int values[] = {kernel, stride, dilation, begin};
        for (int k = 0; k < 4; k++) sprintf(lists[k] + strlen(lists[k]), "%s%d", i ? ", " : "", values[k]);
        sprintf(ends + strlen(ends), ", %d", after);
    }
    uses(&v, 1, a, 0, 0);
    snprintf(v.text, sizeof v.text, "%s(%%v%d, kernel=[%s], strides=[%s], dilations=[%s], pads=[%s%s]%s)",
             is_max ? "max_pool" : "average_pool", a, lists[0], lists[1], lists[2], lists[3], ends,
             !is_max && chance(r, 30) ? ", count_include_pad=true" : "");
    add_value(p, &v);
}

/* Of [N, C, ..] with weights that keep the spatial sizes, or whose stride divides those that are numbers; groups of one
 * channel or one group; sometimes a bias. */
static void gen_conv(gen_program *p, rng *r, int a) {
    const gen_value x = p->value[a];
    if (x.rank < 3 || x.rank > 4 || ir_is_bool(x.dtype) || p->n + 3 > GEN_VALUES) return;
    gen_value v = like(&x, x.dtype), w = like(&x, x.dtype), bias = {.dtype = x.dtype, .rank = 1, .pair = -1};
    const int n = x.rank - 2, made = 1 + below(r, chance(r, 30) ? 20 : 6);
    char lists[3][40] = {"", "", ""}, ends[40] = "", groups[24] = "", third[16] = "", *end;
    const int64_t channels = strtoll(x.dim[1], &end, 10);
    if (!ir_is_float(x.dtype)) v.dtype = bias.dtype = ir_dtypes[x.dtype].bytes == 1 ? FUSOR_I32 : FUSOR_I64;
    snprintf(w.dim[0], GEN_DIM, "%d", made);
    if (end != x.dim[1] && !*end && channels > 1 && channels < 20 && chance(r, 30)) {
        snprintf(w.dim[0], GEN_DIM, "%lld", (long long)channels * (1 + made % 2));
        strcpy(w.dim[1], "1");
        snprintf(groups, sizeof groups, ", groups=%lld", (long long)channels);
    }
    for (int i = 0; i < n; i++) {
        const int64_t size = strtoll(x.dim[2 + i], &end, 10);
        const bool is_number = end != x.dim[2 + i] && *end == 0;
        const int kernel = 1 + below(r, 4), dilation = 1 + (chance(r, 20) ? below(r, 3) : 0),
                  extent = (kernel - 1) * dilation + 1;
        const int begin = below(r, extent), stride = is_number ? 1 + below(r, 3) : 1,
                  values[] = {stride, dilation, begin};
        if (is_number) snprintf(v.dim[2 + i], GEN_DIM, "%lld", (long long)((size - 1) / stride + 1));
        snprintf(w.dim[2 + i], GEN_DIM, "%d", kernel);
        for (int k = 0; k < 3; k++) sprintf(lists[k] + strlen(lists[k]), "%s%d", i ? ", " : "", values[k]);
        sprintf(ends + strlen(ends), ", %d", extent - 1 - begin);
    }
    strcpy(v.dim[1], w.dim[0]);
    strcpy(bias.dim[0], w.dim[0]);
    const int b = add_param(p, &w), c = b >= 0 && chance(r, 40) ? add_param(p, &bias) : -1;
    if (b < 0) return;
    if (c >= 0) snprintf(third, sizeof third, ", %%v%d", c);
    uses(&v, 2 + (c >= 0), a, b, c < 0 ? 0 : c);
    snprintf(v.text, sizeof v.text, "conv(%%v%d, %%v%d%s, strides=[%s], dilations=[%s], pads=[%s%s]%s)", a, b, third,
             lists[0], lists[1], lists[2], ends, groups);
    add_value(p, &v);
}

/* Of what another kernel makes, converted or not, and one behind the other. */
static void gen_convs(gen_program *p, rng *r, int a) {
    const int times = 1 + below(r, 3);
    for (int tries = 0; tries < 20 && p->value[a].rank < 3; tries++) a = below(r, p->n);
    if (p->value[a].rank < 3) {
        gen_value v = {.dtype = choose_dtype(r), .rank = 3 + below(r, 2), .pair = -1};
        for (int d = 0; d < v.rank; d++) choose_dim(r, v.dim[d]);
        if ((a = add_param(p, &v)) < 0) return;
    }
    if (chance(r, 50)) gen_row(p, r, a);
    for (int i = 0; i < times && p->n < GEN_VALUES - 8; i++) {
        if (chance(r, 40)) gen_cast(p, r, p->n - 1);
        else if (chance(r, 40)) gen_elementwise(p, r, p->n - 1);
        gen_conv(p, r, p->n - 1);
    }
}

static void gen_quantize(gen_program *p, rng *r, int a) {
    const gen_value x = p->value[a];
    static const ir_dtype types[] = {FUSOR_I8, FUSOR_U8, FUSOR_I16, FUSOR_U16};
    const bool quantizes = ir_is_float(x.dtype);
    if ((!quantizes && x.dtype != FUSOR_I8 && x.dtype != FUSOR_U8 && x.dtype != FUSOR_I16 && x.dtype != FUSOR_U16) ||
        p->n + 3 > GEN_VALUES)
        return;
    gen_value scale = {.dtype = quantizes ? x.dtype : FUSOR_F32, .pair = -1};
    gen_value zero = {.dtype = quantizes ? types[below(r, 4)] : x.dtype, .pair = -1};
    snprintf(scale.text, sizeof scale.text, "full(0.%d, shape=[], dtype=%s)", 1 + below(r, 9),
             ir_dtypes[scale.dtype].name);
    snprintf(zero.text, sizeof zero.text, "full(%d, shape=[], dtype=%s)", below(r, 100), ir_dtypes[zero.dtype].name);
    gen_value v = like(&x, quantizes ? zero.dtype : scale.dtype);
    const int s = add_value(p, &scale), z = add_value(p, &zero);
    uses(&v, 3, a, s, z);
    snprintf(v.text, sizeof v.text, "%s(%%v%d, %%v%d, %%v%d)", quantizes ? "quantize" : "dequantize", a, s, z);
    add_value(p, &v);
}

static void gen_create(gen_program *p, rng *r, int a) {
    const gen_value x = p->value[a];
    gen_value v = like(&x, chance(r, 70) ? FUSOR_F32 : FUSOR_I64);
    char shape[GEN_RANK * (GEN_DIM + 2) + 4] = "[";
    for (int d = 0; d < x.rank; d++) sprintf(shape + strlen(shape), "%s%s", d ? ", " : "", x.dim[d]);
    strcat(shape, "]");
    if (strlen(shape) > 120) return;
    if (chance(r, 30)) {
        v.dtype = choose_dtype(r);
        if (!ir_is_float(v.dtype)) v.dtype = FUSOR_F32;
        snprintf(v.text, sizeof v.text, "random_%s(shape=%.120s, seed=%d, dtype=%s)",
                 chance(r, 50) ? "uniform" : "normal", shape, below(r, 1000), ir_dtypes[v.dtype].name);
    } else if (x.rank && chance(r, 40)) {
        snprintf(v.text, sizeof v.text, "iota(shape=%.120s, axis=%d, dtype=%s)", shape, below(r, x.rank),
                 ir_dtypes[v.dtype].name);
    } else if (x.rank && chance(r, 40)) {
        v.dtype = FUSOR_I64;
        v.rank = 0;
        uses(&v, 1, a, 0, 0);
        snprintf(v.text, sizeof v.text, "dim(%%v%d, axis=%d)", a, below(r, x.rank));
    } else {
        snprintf(v.text, sizeof v.text, "full(%d, shape=%.120s, dtype=%s)", below(r, 3), shape,
                 ir_dtypes[v.dtype].name);
    }
    add_value(p, &v);
}

static void gen_call(gen_program *p, rng *r, int a) {
    const gen_value x = p->value[a];
    if (x.dtype != FUSOR_F32 || x.rank != 2) return;
    gen_value v = like(&x, FUSOR_F32), row = like(&x, FUSOR_F32);
    uses(&v, 1, a, 0, 0);
    if (chance(r, 50)) {
        strcpy(row.dim[0], x.dim[1]);
        row.rank = 1;
        int b = add_param(p, &row);
        if (b < 0) return;
        uses(&v, 2, a, b, 0);
        sprintf(v.text, "@one(%%v%d, %%v%d)", a, b);
        add_value(p, &v);
    } else if (p->n + 2 <= GEN_VALUES) {
        sprintf(v.text, "@two(%%v%d)", a);
        row.rank = 1;
        row.pair = add_value(p, &v);
        add_value(p, &row);
    }
}

/* What may share a kernel with the product made last: a value of each element, then reductions along its rows. */
static void gen_behind_product(gen_program *p, rng *r) {
    if (chance(r, 50)) gen_elementwise(p, r, p->n - 1);
    const int x = p->n - 1, times = 1 + below(r, 2);
    for (int i = 0; i < times && p->n < GEN_VALUES - 4; i++) {
        const int a = chance(r, 70) ? x : p->n - 1;
        if (chance(r, 40)) gen_reduce(p, r, a);
        else if (chance(r, 50)) gen_row(p, r, a);
        else gen_norm(p, r, a);
    }
}

static void generate(gen_program *p, uint64_t seed, int forced_level) {
    rng r = {mix(seed) ^ 0x6675736f72u};
    memset(p, 0, sizeof *p);
    p->seed = seed;
    int n_first = 1 + below(&r, 2), steps = 2 + below(&r, chance(&r, 20) ? 25 : 9);
    for (int i = 0; i < n_first; i++) {
        gen_value v = {.dtype = choose_dtype(&r), .rank = below(&r, 4), .pair = -1};
        if (chance(&r, 60)) v.rank = 2;
        for (int d = 0; d < v.rank; d++) choose_dim(&r, v.dim[d]);
        add_param(p, &v);
    }
    for (int s = 0; s < steps && p->n < GEN_VALUES - 6; s++) {
        /* mostly the newest values, so that chains grow */
        int a = chance(&r, 60) ? p->n - 1 : below(&r, p->n), what = below(&r, 100);
        if (what < 50) gen_elementwise(p, &r, a);
        else if (what < 56) gen_cast(p, &r, a);
        else if (what < 68) gen_reduce(p, &r, a);
        else if (what < 73) chance(&r, 40) ? gen_norm(p, &r, a) : gen_row(p, &r, a);
        else if (what < 76) gen_scan(p, &r, a);
        else if (what < 80) {
            const int before = p->n;
            gen_matmul(p, &r, a);
            if (p->n > before && p->n < GEN_VALUES - 6 && chance(&r, 50)) gen_behind_product(p, &r);
        } else if (what < 82) chance(&r, 35) ? gen_attention(p, &r, a) : gen_einsum(p, &r, a);
        else if (what < 88) gen_view(p, &r, a);
        else if (what < 92) gen_move(p, &r, a);
        else if (what < 94) chance(&r, 60) ? gen_convs(p, &r, a) : gen_pool(p, &r, a);
        else if (what < 95) gen_quantize(p, &r, a);
        else if (what < 97) gen_create(p, &r, a);
        else gen_call(p, &r, a);
    }
    p->result[0] = p->n - 1;
    p->n_results = 1;
    if (seed % 2) gen_unused(p, below(&r, p->n));
    mark_used(p);
    for (int i = p->n - 2; i >= 0 && p->n_results < GEN_RESULTS; i--) {
        if (p->value[i].is_only_checked || (p->value[i].is_param && !chance(&r, 2))) continue;
        if (p->value[i].is_used ? !chance(&r, 6) : !chance(&r, 80)) continue;
        p->result[p->n_results++] = i;
        mark_used(p);
    }
    for (int k = 0; k < p->n_results; k++) {
        const gen_value *v = &p->value[p->result[k]];
        p->alias[k] = -1;
        if (!chance(&r, 15)) continue;
        for (int i = 0; i < p->n && p->alias[k] < 0; i++) {
            const gen_value *w = &p->value[i];
            bool fits = w->is_param && w->dtype == v->dtype && w->rank == v->rank;
            for (int d = 0; d < v->rank && fits; d++) fits = strcmp(w->dim[d], v->dim[d]) == 0;
            for (int j = 0; j < k && fits; j++) fits = p->alias[j] != i;
            if (fits) p->alias[k] = i;
        }
    }
    choose_sizes(p, &r);
    int host = rt_host_level();
    p->level = (ir_level)(forced_level >= 0 ? forced_level : below(&r, host + 1));
    p->features = p->seed & 1 ? rt_host_extras(p->level) : 0;
    p->n_threads = 2 + below(&r, 6);
    p->special = chance(&r, 25) ? SPECIAL_SOME : SPECIAL_NONE;
    p->strided = chance(&r, 10);
    p->scale = chance(&r, 70) ? 2 : chance(&r, 50) ? 0.25 : 30;
}
#endif
