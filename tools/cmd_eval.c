/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cmd_eval.c: fusor eval. An infix expression (expression.c) becomes a function whose parameter types follow from its
 * inputs: a file says its own, a number is a scalar, everything else is a vector of N elements; NAME:TYPE says
 * otherwise. Then it is run. */
#include "expression.h"
#include "inputs.h"
#include "limits.h"
#include "report.h"
#include "run.h"
#include "timing.h"
#include "base/log.h"
#include <math.h>
#include <stdlib.h>

/* ---- types of the parameters ---- */
typedef struct eval {
    tool *t;
    expression_params params;
    const char **source; /* of each; NULL: none given */
} eval;

static int find(const eval *v, const char *name, size_t n) {
    for (uint32_t i = 0; i < v->params.n; i++)
        if (strlen(v->params.at[i].name) == n && memcmp(v->params.at[i].name, name, n) == 0) return (int)i;
    return -1;
}

/* NAME=SOURCE and NAME:TYPE[=SOURCE]; the latter is cut down to NAME=SOURCE for inputs.c, or goes. */
static int read_arguments(eval *v) {
    tool *t = v->t;
    uint32_t kept = 1;
    for (uint32_t k = 1; k < t->args.n; k++) {
        const char *arg = t->args.at[k];
        size_t n = strcspn(arg, "=:");
        const char *equals = strchr(arg + n, '=');
        if (!arg[n]) return tool_usage(t, "argument '%s': expected NAME=SOURCE or NAME:TYPE", arg);
        int i = find(v, arg, n);
        if (i < 0) {
            const char **names = FU_NEW_N(&t->arena, const char *, v->params.n + 1);
            for (uint32_t p = 0; p < v->params.n; p++) names[p] = v->params.at[p].name;
            const char *name = fu_strndup(&t->arena, arg, n);
            return tool_usage(t, "the expression has no value '%s'%s", name,
                              tool_suggest(t, name, names, v->params.n, ""));
        }
        if (arg[n] == ':') {
            const char *end = equals ? equals : arg + strlen(arg);
            if (v->params.at[i].type) return tool_usage(t, "the type of '%s' is given twice", v->params.at[i].name);
            v->params.at[i].argument = fu_strndup(&t->arena, arg, (size_t)(end - arg));
            v->params.at[i].type = v->params.at[i].argument + n + 1;
        }
        if (!equals) continue;
        const char *name = v->params.at[i].name;
        if (v->source[i]) return tool_usage(t, "'%s' is given twice", name);
        const int status = inputs_check_source(t, fu_format(&t->arena, "argument '%s'", arg), equals + 1,
                                               fu_format(&t->arena, "%s:%s=SOURCE", name, equals + 1));
        if (status) return status;
        v->source[i] = equals + 1;
        t->args.at[kept++] = fu_format(&t->arena, "%s=%s", name, equals + 1);
    }
    t->args.n = kept;
    return 0;
}

typedef struct weights_visit {
    eval *v;
    const char *path;
} weights_visit;
static bool visit_weight(void *user, const char *name) {
    weights_visit *w = user;
    int i = find(w->v, name, strlen(name));
    if (i >= 0 && !w->v->source[i]) w->v->source[i] = fu_format(&w->v->t->arena, "%s:%s", w->path, name);
    return true;
}

static int read_weights(eval *v) {
    fu_error e;
    fu_error_clear(&e);
    for (uint32_t w = 0; w < v->t->weights.n; w++) {
        weights_visit visit = {v, v->t->weights.at[w]};
        if (rt_data_names(&e, visit.path, visit_weight, &visit) != FUSOR_OK) return tool_fail(v->t, &e);
    }
    return 0;
}

/* A file's dtype and shape, as a type. */
static int type_of_file(eval *v, uint32_t i, ir_dtype *dtype_out) {
    tool *t = v->t;
    fu_error e;
    rt_data d = {0};
    fu_error_clear(&e);
    if (strcmp(v->source[i], "-") == 0)
        return tool_usage(t,
                          "%s=-: the type of what comes on stdin is not known before it is read; say it: '%s:f32[N]=-'",
                          v->params.at[i].name, v->params.at[i].name);
    if (rt_data_read(&e, v->source[i], 0, &d) != FUSOR_OK) {
        fu_error_prefix(&e, "%s: ", v->params.at[i].name);
        return tool_fail(t, &e);
    }
    v->params.at[i].type = report_shape_text(t, (ir_dtype)d.buffer.dtype, d.buffer.rank, d.buffer.shape);
    *dtype_out = (ir_dtype)d.buffer.dtype;
    rt_data_free(&d);
    return 0;
}

static bool is_number(const char *source) {
    return rt_data_is_fill(source) &&
           (strchr("0123456789+-.", source[0]) || strcmp(source, "inf") == 0 || strcmp(source, "nan") == 0);
}

static int decide_types(eval *v) {
    tool *t = v->t;
    ir_dtype dtype = 0;
    for (uint32_t i = 0; i < v->params.n; i++) {
        const char *s = v->source[i] ? v->source[i] : NULL;
        ir_dtype own = 0;
        if (v->params.at[i].type || !s || rt_data_is_fill(s)) continue;
        int status = type_of_file(v, i, &own);
        if (status) return status;
        if (!dtype) dtype = own;
    }
    /* A size that no parameter is called. */
    static const char *const sizes[] = {"N", "M", "K", "L", "N0", "N1"};
    const char *size = sizes[0];
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes && find(v, size, strlen(size)) >= 0; k++) size = sizes[k];
    const char *name = ir_dtypes[dtype ? dtype : FUSOR_F32].name;
    for (uint32_t i = 0; i < v->params.n; i++) {
        if (v->params.at[i].type) continue;
        if (v->source[i] && is_number(v->source[i])) v->params.at[i].type = name;
        else v->params.at[i].type = fu_format(&t->arena, "%s[%s]", name, size);
    }
    return 0;
}

/* ---- bars ---- */
typedef struct side {
    fusor_executable *exe;
    fusor_call *call;
    fusor_buffer *out;
    int n_out;
} side;

static int open_side(tool *t, const program *p, const inputs *in, uint32_t flags, side *s) {
    fu_error e;
    fu_error_clear(&e);
    compile_request request = {
        .ctx = t->ctx, .name = p->name, .module = p->module, .flags = FUSOR_KEEP_SOURCES | flags};
    if (compile_executable(&e, &request, &s->exe) != FUSOR_OK) return tool_fail(t, &e);
    tool_ran(t, s->exe);
    s->n_out = fusor_executable_outputs(s->exe, 0, NULL);
    s->out = FU_NEW_N(&t->arena, fusor_buffer, s->n_out + 1);
    if (fusor_executable_prepare(s->exe, in->n, in->buffer, s->n_out, s->out, &s->call) != FUSOR_OK) {
        (void)FU_FAIL(&e, FUSOR_ERROR_INTERNAL, "%s", fusor_error_message(t->ctx));
        return tool_fail(t, &e);
    }
    return 0;
}

static void close_side(tool *t, side *s) {
    fusor_call_free(s->call);
    for (int i = 0; i < s->n_out; i++) fusor_buffer_free(t->ctx, &s->out[i]);
    fusor_executable_free(s->exe);
}

static void bar(tool *t, const char *name, double ns, double longest, const char *note) {
    enum { WIDTH = 44 };
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int n = (int)(ns / longest * WIDTH * 8 + 0.5);
    char line[WIDTH * 3 + 8] = "";
    if (n < 1) n = 1;
    for (int i = 0; i < n / 8 && i < WIDTH; i++) strcat(line, "█");
    if (n < WIDTH * 8) strcat(line, eighths[n % 8]);
    int cells = (n + 7) / 8 < WIDTH ? (n + 7) / 8 : WIDTH;
    printf("%-8s %s%s%s%*s %9s  %s\n", name, t->use_color ? "\033[36m" : "", line, t->use_color ? "\033[0m" : "",
           WIDTH - cells, "", report_ns(t, ns), note);
}

/* Fused, one kernel an operator, and the time that the machine's measured limits allow, in one interleaved run. */
static int print_bars(tool *t, const program *p, const inputs *in) {
    enum { ROUNDS = 400 };
    side fused = {0}, unfused = {0};
    int status = open_side(t, p, in, 0, &fused);
    if (!status) status = open_side(t, p, in, FUSOR_NO_FUSE, &unfused);
    if (!status) {
        double a[ROUNDS], b[ROUNDS];
        int64_t na = timing_batch_of(fused.call, 100e3), nb = timing_batch_of(unfused.call, 100e3), start = fu_now_ns();
        int n = 0;
        for (; n < ROUNDS && (n < 3 || fu_now_ns() - start < 600000000); n++) {
            a[n] = timing_batch_ns(fused.call, na);
            b[n] = timing_batch_ns(unfused.call, nb);
        }
        double one = timing_median(a, n), apart = timing_median(b, n);
        traffic moved = timing_traffic(rt_exec_plan(fused.exe->exec), in->symbols),
                more = timing_traffic(rt_exec_plan(unfused.exe->exec), in->symbols);
        limits l = limits_get(t, t->ctx->n_threads, false);
        if (moved.is_f32) limits_beside(t, &l, moved.flops / one * 1e9);
        double bytes = moved.bytes_read + moved.bytes_written, peak = rt_limits_peak(&l.all, moved.type),
               limit = l.is_known ? fmax(bytes / l.bytes, moved.flops / peak) * 1e9 : 0;
        double longest = fmax(one, fmax(apart, limit));
        printf("\n");
        bar(t, "fused", one, longest,
            fu_format(&t->arena, "%d kernel%s, %s", moved.kernels, moved.kernels == 1 ? "" : "s",
                      report_rate(t, bytes / one * 1e9, "GB/s")));
        bar(t, "unfused", apart, longest,
            fu_format(&t->arena, "%d kernel%s, %.2f times the fused", more.kernels, more.kernels == 1 ? "" : "s",
                      apart / one));
        if (l.is_known)
            bar(t, "limit", limit, longest,
                bytes / l.bytes > moved.flops / peak
                    ? "memory bandwidth past the caches"
                    : fu_format(&t->arena, "peak %s arithmetic", ir_dtypes[moved.type].name));
    }
    close_side(t, &fused);
    close_side(t, &unfused);
    return status;
}

/* ---- the command ---- */
int cmd_eval(tool *t) {
    eval v = {.t = t};
    fu_error e;
    fu_error_clear(&e);
    if (t->args.n == 0)
        return tool_usage(t, "no expression\nUsage: fusor %s %s", t->command->name, t->command->synopsis);
    if (t->emit && (t->json || t->outputs.n))
        return tool_usage(t, "--emit prints the program alone; it takes no %s", t->json ? "--json" : "-o");
    const char *text = t->args.at[0];
    int64_t start = fu_now_ns();
    if (expression_find_params(&t->arena, &e, text, &v.params) != FUSOR_OK) return tool_fail(t, &e);
    v.source = FU_NEW_N(&t->arena, const char *, v.params.n + 1);
    int status = read_arguments(&v);
    if (!status) status = read_weights(&v);
    if (!status) status = decide_types(&v);
    if (status) return status;
    program p = {.name = "<expression>", .text = text, .length = strlen(text)};
    if (expression_build(&t->arena, &e, text, &v.params, &p.module) != FUSOR_OK) return tool_fail(t, &e);
    p.parse_ns = fu_now_ns() - start;
    fu_str s;
    fu_str_init(&s, &t->arena);
    ir_print_module(&s, p.module);
    if (t->emit) {
        fputs(s.at, stdout);
        return report_flush(t);
    }
    p.printed = s.at;
    return run_program(t, &p, 1, t->time && !t->json ? print_bars : NULL);
}
