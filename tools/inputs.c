/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* inputs.c: binds the parameters of a function to files, fills and sizes. Order of precedence: NAME=SOURCE, --weights,
 * the source in the program, --fill. Sizes come from files first, then from --dim; fills take the sizes that are then
 * known. */
#include "inputs.h"
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- the command to copy ---- */
static bool binds_sizes(const inputs *in, int i) {
    const ir_param *p = &in->g->params.at[i];
    if (in->source[i]) return !rt_data_is_fill(in->source[i]);
    return p->has_value && p->value_rank > 0;
}

static bool has_dim(const inputs *in, uint32_t symbol) {
    for (uint32_t k = 0; k < in->dims.n; k++)
        if (in->dims.at[k].symbol == symbol) return true;
    return false;
}

/* A file that is not there; what is inside an archive (PATH:NAME) is not looked for. */
static bool is_missing(const char *source) {
    return !rt_data_is_fill(source) && strcmp(source, "-") != 0 && !strchr(source, ':') && access(source, F_OK) != 0;
}

static const char *whole_command(tool *t, const inputs *in) {
    const ir_graph *g = in->g;
    fu_str s;
    fu_str_init(&s, &t->arena);
    fu_str_addf(&s, "fusor %s ", t->command->name);
    if (t->text) fu_str_add(&s, "-e "), tool_add_quoted(&s, t->text);
    else tool_add_quoted(&s, t->args.at[0]);
    if (strcmp(t->command->name, "eval") != 0) fu_str_addf(&s, " @%s", g->name);
    bool *needs = FU_NEW_N(&t->arena, bool, ir_size_symbol_count(g->sizes) + 1);
    for (uint32_t k = 0; k < ir_size_symbol_count(g->sizes); k++) needs[k] = true;
    for (int i = 0; i < in->n; i++) {
        const ir_param *p = &g->params.at[i];
        const ir_node *n = ir_at(g, p->node);
        uint32_t symbol;
        const bool lacks_file = in->given[i] && is_missing(in->source[i]);
        if (in->given[i] && !lacks_file) fu_str_addc(&s, ' '), tool_add_quoted(&s, in->given[i]);
        else if (lacks_file || (!in->source[i] && !p->has_value)) {
            const bool is_bool = n->dtype == FUSOR_BOOL;
            if (!ir_is_float(n->dtype) && !is_bool) fu_str_addf(&s, " %s=zeros", p->name); /* they may be indices */
            else fu_str_addf(&s, " %s=%s:%d", p->name, is_bool ? "uniform" : "normal", i + 1);
        }
        for (int d = 0; d < n->rank; d++)
            if (!lacks_file && binds_sizes(in, i) && ir_size_is_symbol(g->sizes, n->dim[d], &symbol))
                needs[symbol] = false;
    }
    tool_add_given(t, &s);
    for (uint32_t k = 0; k < ir_size_symbol_count(g->sizes); k++)
        if (needs[k] && !has_dim(in, k)) fu_str_addf(&s, " --dim %s=64", ir_size_symbol_name(g->sizes, k));
    return s.at;
}

/* ---- sources ---- */
static int find_param(const ir_graph *g, const char *name, size_t n) {
    if (n && name[0] == '%') name++, n--;
    for (uint32_t i = 0; i < g->params.n; i++)
        if (strlen(g->params.at[i].name) == n && memcmp(g->params.at[i].name, name, n) == 0) return (int)i;
    return -1;
}

#define SOURCES "a file, a number, uniform:SEED, normal:SEED, arange, zeros or ones"
int inputs_check_source(tool *t, const char *shown, const char *source, const char *typed) {
    static const char *const fills[] = {"uniform:1", "normal:1", "arange", "zeros", "ones"};
    if (!source[0]) return tool_usage(t, "%s: expected " SOURCES " after '='", shown);
    const char *why = rt_data_fill_problem(source);
    if (why) return tool_usage(t, "%s: %s", shown, why);
    if (rt_data_is_fill(source) || access(source, F_OK) == 0) return 0;
    const size_t n = strcspn(source, "[");
    if (ir_dtype_parse(source, n) && (!source[n] || source[strlen(source) - 1] == ']'))
        return typed ? tool_usage(t, "%s: '%s' is a type; expected %s, SOURCE being " SOURCES, shown, source, typed)
                     : tool_usage(t, "%s: '%s' is a type, which the program says; expected " SOURCES, shown, source);
    const char *near = tool_suggest(t, source, fills, sizeof fills / sizeof *fills, "");
    return near[0] ? tool_environment(t, "%s: there is no such file%s", shown, near) : 0;
}

static int read_arguments(tool *t, const ir_graph *g, uint32_t from, inputs *in) {
    const char *stdin_user = !t->text && strcmp(t->args.at[0], "-") == 0 ? "the program" : NULL;
    for (uint32_t k = from; k < t->args.n; k++) {
        const char *arg = t->args.at[k], *equals = strchr(arg, '=');
        if (!equals) return tool_usage(t, "argument '%s': expected NAME=SOURCE or @FUNC", arg);
        int i = find_param(g, arg, (size_t)(equals - arg));
        if (i < 0) {
            const char **names = FU_NEW_N(&t->arena, const char *, g->params.n + 1);
            for (uint32_t p = 0; p < g->params.n; p++) names[p] = g->params.at[p].name;
            const char *name = fu_strndup(&t->arena, arg, (size_t)(equals - arg));
            return tool_usage(t, "@%s has no parameter '%s'%s\n  %s", g->name, name,
                              tool_suggest(t, name, names, g->params.n, ""), program_signature(t, g));
        }
        if (in->given[i])
            return tool_usage(t, "parameter '%s' is given twice: '%s' and '%s'", g->params.at[i].name, in->given[i],
                              arg);
        int status = inputs_check_source(t, fu_format(&t->arena, "argument '%s'", arg), equals + 1, NULL);
        if (status) return status;
        if (strcmp(equals + 1, "-") == 0) {
            if (stdin_user) return tool_usage(t, "'%s': stdin is taken by %s", arg, stdin_user);
            stdin_user = arg;
        }
        in->given[i] = arg;
        in->source[i] = equals + 1;
    }
    return 0;
}

typedef struct weights_visit {
    tool *t;
    inputs *in;
    const char *path;
} weights_visit;
static bool visit_weight(void *user, const char *name) {
    weights_visit *v = user;
    int i = find_param(v->in->g, name, strlen(name));
    if (i >= 0 && !v->in->source[i]) v->in->source[i] = fu_format(&v->t->arena, "%s:%s", v->path, name);
    return true;
}

int inputs_find(tool *t, const program *p, const ir_graph *g, uint32_t from, inputs *in) {
    fu_error e;
    memset(in, 0, sizeof *in);
    in->g = g;
    in->program = p;
    in->n = (int)g->params.n;
    in->source = FU_NEW_N(&t->arena, const char *, in->n + 1);
    in->given = FU_NEW_N(&t->arena, const char *, in->n + 1);
    in->is_own = FU_NEW_N(&t->arena, bool, in->n + 1);
    in->buffer = FU_NEW_N(&t->arena, fusor_buffer, in->n + 1);
    in->data = FU_NEW_N(&t->arena, rt_data, in->n + 1);
    in->memory = FU_NEW_N(&t->arena, void *, in->n + 1);
    in->symbols = FU_NEW_N(&t->arena, int64_t, ir_size_symbol_count(g->sizes) + 1);
    int status = read_arguments(t, g, from, in);
    if (!status) status = inputs_dims(t, g, in);
    if (status) return status;
    const char *wrong = t->fill ? rt_data_fill_problem(t->fill) : NULL;
    if (t->fill && !wrong && !rt_data_is_fill(t->fill) && access(t->fill, R_OK) != 0)
        wrong = "expected a number, uniform:SEED, normal:SEED, arange, zeros, ones or a file";
    if (wrong) return tool_usage(t, "--fill %s: %s", t->fill, wrong);
    for (uint32_t w = 0; w < t->weights.n; w++) {
        weights_visit visit = {t, in, t->weights.at[w]};
        fu_error_clear(&e);
        if (rt_data_names(&e, t->weights.at[w], visit_weight, &visit) != FUSOR_OK) return tool_fail(t, &e);
    }
    int missing = 0;
    fu_str names;
    fu_str_init(&names, &t->arena);
    for (int i = 0; i < in->n; i++) {
        const ir_param *param = &g->params.at[i];
        if (in->source[i]) continue;
        if (param->path) {
            in->source[i] = source_path(&t->arena, p->name, param->path);
            in->is_own[i] = true;
        } else if (!param->has_value) {
            in->source[i] = t->fill;
            if (!t->fill) fu_str_addf(&names, "%s%%%s", missing++ ? ", " : "", param->name);
        }
    }
    if (missing)
        return tool_usage(t, "no source for parameter%s %s of\n  %s\nA complete command:\n  %s", missing > 1 ? "s" : "",
                          names.at, program_signature(t, g), whole_command(t, in));
    return 0;
}

int inputs_dims(tool *t, const ir_graph *g, inputs *in) {
    uint32_t n_symbols = ir_size_symbol_count(g->sizes);
    for (uint32_t k = 0; k < t->dims.n; k++) {
        const char *text = t->dims.at[k], *equals = strchr(text, '=');
        inputs_dim d = {0};
        if (equals || n_symbols != 1 || ir_size_find_symbol(g->sizes, text) >= 0) {
            const char *name = fu_strndup(&t->arena, text, equals ? (size_t)(equals - text) : strlen(text));
            if (!equals)
                return tool_usage(t, "--dim %s: %s\n  %s", text,
                                  n_symbols ? "expected NAME=SIZE, with a name of" : "there is no size to give in",
                                  program_signature(t, g));
            int symbol = ir_size_find_symbol(g->sizes, name);
            if (symbol < 0) {
                const char **names = FU_NEW_N(&t->arena, const char *, n_symbols + 1);
                for (uint32_t i = 0; i < n_symbols; i++) names[i] = ir_size_symbol_name(g->sizes, i);
                return tool_usage(t, "--dim %s: @%s has no size '%s'%s\n  %s", text, g->name, name,
                                  tool_suggest(t, name, names, n_symbols, ""), program_signature(t, g));
            }
            d.symbol = (uint32_t)symbol;
        }
        if (has_dim(in, d.symbol))
            return tool_usage(t, "--dim %s: size '%s' is given twice", text, ir_size_symbol_name(g->sizes, d.symbol));
        const char *p = equals ? equals + 1 : text;
        d.value = FU_NEW_N(&t->arena, int64_t, strlen(p) + 1);
        for (;;) {
            size_t n = strcspn(p, ",");
            bool is_large;
            if (!tool_read_size(fu_strndup(&t->arena, p, n), 1000, &d.value[d.n++], &is_large))
                return tool_usage(t, "--dim %s: '%.*s' is %s; expected an integer like 1000, 64K or 1e6", text, (int)n,
                                  p, is_large ? "too large" : "no size");
            if (!p[n]) break;
            p += n + 1;
        }
        fu_push(&t->arena, &in->dims, d);
    }
    return 0;
}

/* ---- tensors ---- */
static void free_filled(inputs *in) {
    for (int i = 0; i < in->n; i++) {
        fu_free(in->memory[i]);
        in->memory[i] = NULL;
    }
}
void inputs_free(inputs *in) {
    free_filled(in);
    for (int i = 0; i < in->n; i++) rt_data_free(&in->data[i]);
}

/* -1: more than 64 bits count. */
static int64_t bytes_of(const fusor_buffer *b) {
    int64_t n = (int64_t)fusor_dtype_size((fusor_dtype)b->dtype);
    for (int d = 0; d < b->rank; d++)
        if (b->shape[d] == 0) return 0;
    for (int d = 0; d < b->rank; d++)
        if (__builtin_mul_overflow(n, b->shape[d], &n)) return -1;
    return n;
}

/* 64-byte aligned; *memory is to be freed. */
static void *allocate(int64_t bytes, void **memory) {
    /* What the machine cannot hold is refused here: the system would hand it out and end the process when it is
     * touched. */
    int64_t most = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    if (bytes < 0 || bytes > most) return NULL;
    *memory = fu_malloc((size_t)bytes + 64);
    return *memory ? (void *)(((uintptr_t)*memory + 63) & ~(uintptr_t)63) : NULL;
}

static const char *buffer_type(tool *t, const fusor_buffer *b) {
    fu_str s;
    fu_str_init(&s, &t->arena);
    fu_str_add(&s, fusor_dtype_name((fusor_dtype)b->dtype));
    for (int d = 0; d < b->rank; d++) fu_str_addf(&s, "%s%" PRId64, d ? ", " : "[", b->shape[d]);
    if (b->rank) fu_str_addc(&s, ']');
    return s.at;
}

static const char *wanted_type(tool *t, const ir_graph *g, const ir_node *n) {
    fu_str s;
    fu_str_init(&s, &t->arena);
    ir_type_print(&s, g, n);
    return s.at;
}

static int load(tool *t, inputs *in, int i) {
    const ir_graph *g = in->g;
    const ir_param *p = &g->params.at[i];
    const ir_node *n = ir_at(g, p->node);
    fu_error own, e;
    fu_error_clear(&own);
    fu_error_clear(&e);
    if (rt_data_read(&own, in->source[i], n->dtype, &in->data[i]) != FUSOR_OK) {
        if (in->is_own[i])
            (void)FU_FAIL_AT(&e, own.status, g->source, p->source_loc, "source of parameter %%%s: %s", p->name,
                             own.text);
        else if (own.status == FUSOR_ERROR_TYPE || own.status == FUSOR_ERROR_SHAPE)
            (void)FU_FAIL_AT(&e, own.status, g->source, p->loc, "parameter %%%s: %s", p->name, own.text);
        else (void)FU_FAIL(&e, own.status, "parameter %%%s: %s", p->name, own.text);
        return tool_fail(t, &e);
    }
    in->buffer[i] = in->data[i].buffer;
    if (in->buffer[i].rank != n->rank) {
        const char *text = fu_format(&t->arena, "parameter %%%s: %s is %s; expected %s", p->name, in->source[i],
                                     buffer_type(t, &in->buffer[i]), wanted_type(t, g, n));
        (void)FU_FAIL_AT(&e, FUSOR_ERROR_SHAPE, g->source, in->is_own[i] ? p->source_loc : p->loc, "%s", text);
        return tool_fail(t, &e);
    }
    return 0;
}

/* Type and shape of a parameter with these sizes, in *b. 0, or the exit status: one is impossible. */
static int size_param(tool *t, const ir_graph *g, const ir_param *p, bool is_by_value, const int64_t *symbols,
                      fusor_buffer *b) {
    const ir_node *n = ir_at(g, p->node);
    fu_error e;
    fu_error_clear(&e);
    memset(b, 0, sizeof *b);
    b->dtype = n->dtype;
    b->rank = n->rank;
    for (int d = 0; d < n->rank; d++) {
        if (is_by_value && p->value_rank == n->rank) b->shape[d] = p->value_dim[d];
        else if (ir_size_eval(g->sizes, n->dim[d], symbols, &b->shape[d]) != IR_SIZE_OK || b->shape[d] < 0) {
            ir_size_result why = ir_size_eval(g->sizes, n->dim[d], symbols, &b->shape[d]);
            (void)FU_FAIL_AT(&e, FUSOR_ERROR_SHAPE, g->source, p->loc,
                             "parameter %%%s: dim %d of %s %s with these sizes", p->name, d, wanted_type(t, g, n),
                             why == IR_SIZE_ZERO_DIVISION ? "divides by zero"
                             : why == IR_SIZE_OVERFLOW    ? "does not fit 64 bits"
                                                          : "is negative");
            return tool_fail(t, &e);
        }
    }
    if (bytes_of(b) >= 0) return 0;
    (void)FU_FAIL_AT(&e, FUSOR_ERROR_SHAPE, g->source, p->loc, "parameter %%%s: the bytes of %s overflow 64 bits",
                     p->name, buffer_type(t, b));
    return tool_fail(t, &e);
}

/* Of parameters whose sizes are known by now. */
static int check_params(tool *t, const ir_graph *g, const int64_t *symbols) {
    fusor_buffer b;
    for (uint32_t i = 0; i < g->params.n; i++) {
        const ir_param *p = &g->params.at[i];
        const ir_node *n = ir_at(g, p->node);
        bool is_known = !p->has_value;
        for (int d = 0; d < n->rank && is_known; d++) is_known = ir_size_is_known(g->sizes, n->dim[d], symbols);
        int status = is_known ? size_param(t, g, p, false, symbols, &b) : 0;
        if (status) return status;
    }
    return 0;
}

static int check_sizes(tool *t, const ir_graph *g, const int64_t *symbols) {
    fu_error e;
    const int status = check_params(t, g, symbols);
    if (status) return status;
    fu_error_clear(&e);
    return ir_check_sizes(g, &e, symbols) == FUSOR_OK ? 0 : tool_fail(t, &e);
}

bool inputs_next_sizes(const inputs *in, int *choice) {
    for (uint32_t d = 0; d < in->dims.n; d++) {
        if (++choice[d] < in->dims.at[d].n) return true;
        choice[d] = 0;
    }
    return false;
}

int inputs_check_dims(tool *t, const ir_graph *g, const inputs *in) {
    if (!in->dims.n) return 0;
    const uint32_t n = ir_size_symbol_count(g->sizes);
    int64_t *symbols = FU_NEW_N(&t->arena, int64_t, n + 1);
    int *choice = FU_NEW_N(&t->arena, int, in->dims.n);
    int status;
    do {
        for (uint32_t i = 0; i < n; i++) symbols[i] = -1;
        for (uint32_t i = 0; i < in->dims.n; i++) symbols[in->dims.at[i].symbol] = in->dims.at[i].value[choice[i]];
        status = check_sizes(t, g, symbols);
    } while (!status && inputs_next_sizes(in, choice));
    return status;
}

static int fill(tool *t, inputs *in, int i) {
    const ir_param *p = &in->g->params.at[i];
    fusor_buffer *b = &in->buffer[i];
    fu_error e;
    fu_error_clear(&e);
    int status = size_param(t, in->g, p, p->has_value && !in->source[i], in->symbols, b);
    if (status) return status;
    const int64_t bytes = bytes_of(b);
    b->data = allocate(bytes, &in->memory[i]);
    if (!b->data) return tool_environment(t, "parameter %%%s: no memory for %s", p->name, buffer_type(t, b));
    if (in->source[i]) {
        if (rt_data_fill(&e, in->source[i], b) == FUSOR_OK) return 0;
        fu_error located;
        fu_error_clear(&located);
        (void)FU_FAIL(&located, e.status, "parameter %%%s: %s", p->name, e.text);
        return tool_fail(t, &located);
    }
    size_t each = fusor_dtype_size((fusor_dtype)b->dtype);
    for (int64_t k = 0; k < bytes / (int64_t)each; k++)
        memcpy((char *)b->data + (size_t)k * each, &p->value[p->value_rank ? k : 0], each); /* little endian */
    return 0;
}

/* Sizes that parameter i's tensor tells. */
static void note_sizes(inputs *in, int i, const fusor_buffer *b) {
    const ir_node *n = ir_at(in->g, in->g->params.at[i].node);
    uint32_t symbol;
    for (int d = 0; d < n->rank; d++)
        if (ir_size_is_symbol(in->g->sizes, n->dim[d], &symbol) && in->symbols[symbol] < 0)
            in->symbols[symbol] = b->shape[d];
}

static int choose_dims(tool *t, inputs *in, const int *choice) {
    for (uint32_t k = 0; k < in->dims.n; k++) {
        const inputs_dim *d = &in->dims.at[k];
        int64_t v = d->value[choice ? choice[k] : 0], *known = &in->symbols[d->symbol];
        const char *name = ir_size_symbol_name(in->g->sizes, d->symbol);
        if (*known >= 0 && *known != v) {
            fu_error e;
            fu_error_clear(&e);
            const char *by = "a file";
            for (int i = in->n; i-- > 0;) {
                const ir_node *n = ir_at(in->g, in->g->params.at[i].node);
                uint32_t symbol;
                for (int a = 0; a < n->rank && in->source[i] && binds_sizes(in, i); a++)
                    if (ir_size_is_symbol(in->g->sizes, n->dim[a], &symbol) && symbol == d->symbol) by = in->source[i];
            }
            (void)FU_FAIL(&e, FUSOR_ERROR_SHAPE, "dim %s is %" PRId64 " in --dim but %" PRId64 " in %s", name, v,
                          *known, by);
            return tool_fail(t, &e);
        }
        *known = v;
    }
    for (uint32_t s = 0; s < ir_size_symbol_count(in->g->sizes); s++)
        if (in->symbols[s] < 0)
            return tool_usage(
                t, "size %s of @%s is not known: no file binds it; give --dim %s=SIZE\n  %s\nA complete command:\n  %s",
                ir_size_symbol_name(in->g->sizes, s), in->g->name, ir_size_symbol_name(in->g->sizes, s),
                program_signature(t, in->g), whole_command(t, in));
    return 0;
}

int inputs_bind(tool *t, inputs *in, const int *choice) {
    const ir_graph *g = in->g;
    int status;
    fu_error e;
    free_filled(in); /* files stay: a pipe can be read once */
    for (uint32_t s = 0; s < ir_size_symbol_count(g->sizes); s++) in->symbols[s] = -1;
    for (int i = 0; i < in->n; i++) {
        const ir_param *p = &g->params.at[i];
        if (!binds_sizes(in, i)) continue;
        if (in->source[i]) {
            const bool is_loaded = in->data[i].buffer.dtype != 0;
            if (!is_loaded && (status = load(t, in, i)) != 0) return status;
            note_sizes(in, i, &in->buffer[i]);
        } else if (p->value_rank == ir_at(g, p->node)->rank) {
            fusor_buffer b = {.rank = p->value_rank};
            memcpy(b.shape, p->value_dim, sizeof p->value_dim);
            note_sizes(in, i, &b);
        }
    }
    if ((status = choose_dims(t, in, choice)) != 0) return status;
    for (int i = 0; i < in->n; i++)
        if (!(binds_sizes(in, i) && in->source[i]) && (status = fill(t, in, i)) != 0) return status;
    if ((status = check_params(t, g, in->symbols)) != 0) return status; /* what files make of a size may be none */
    const int64_t **shape = FU_NEW_N(&t->arena, const int64_t *, in->n + 1);
    for (int i = 0; i < in->n; i++) shape[i] = in->buffer[i].shape;
    fu_error_clear(&e);
    return ir_bind_sizes(g, &e, shape, in->symbols) == FUSOR_OK ? 0 : tool_fail(t, &e);
}

bool inputs_copy_aliased(const inputs *in, fusor_buffer *buffer, void **memory) {
    memcpy(buffer, in->buffer, (size_t)in->n * sizeof *buffer);
    for (uint32_t r = 0; r < in->g->results.n; r++) {
        int p = in->g->results.at[r].alias;
        if (p < 0 || memory[p]) continue;
        int64_t bytes = bytes_of(&buffer[p]);
        buffer[p].data = allocate(bytes, &memory[p]);
        if (!buffer[p].data) return false;
        if (bytes) memcpy(buffer[p].data, in->buffer[p].data, (size_t)bytes);
    }
    return true;
}
