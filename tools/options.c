/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* options.c: the command line, driven by options.def and commands.def; help; messages; the context that the options ask
 * for. */
#include "options.h"
#include "rt/cpuinfo.h"
#include "rt/device.h"
#include "rt/compiler.h"
#include "base/env.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

const tool_command tool_commands[COMMAND_COUNT] = {
#define COMMAND(ID, name, synopsis, text, example) {name, synopsis, text, example, cmd_##ID},
#include "commands.def"
#undef COMMAND
};

typedef enum option_kind { FLAG, COUNT, TEXT, MAYBE, LIST, INT, NUMBER } option_kind;
typedef struct option {
    char letter;
    const char *name;
    option_kind kind;
    size_t field;
    const char *argument;
    uint32_t commands;
    const char *text;
} option;
#define ALL   UINT32_MAX
#define C(id) (1u << COMMAND_##id)
static const option options[] = {
#define OPTION(letter, name, kind, field, argument, commands, text)                                                    \
    {letter, name, kind, offsetof(tool, field), argument, commands, text},
#include "options.def"
#undef OPTION
};
enum { N_OPTIONS = sizeof options / sizeof *options };

/* ---- messages ---- */
static void message(tool *t, const char *what, const char *fmt, va_list ap) {
    (void)fflush(stdout);
    fprintf(stderr, "fusor%s%s: ", t->command ? " " : "", t->command ? t->command->name : "");
    if (what[0]) fprintf(stderr, t->use_color ? "\033[1;31m%s\033[0m " : "%s ", what);
    char *text = NULL;
    const int n = vasprintf(&text, fmt, ap);
    if (n >= 0) (void)fu_make_printable(text, true); /* names of files may hold anything */
    fprintf(stderr, "%s\n", n >= 0 ? text : "out of memory");
    if (n >= 0) free(text);
}

int tool_usage(tool *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    message(t, "error:", fmt, ap);
    va_end(ap);
    fprintf(stderr, "Try 'fusor %s%s--help'.\n", t->command ? t->command->name : "", t->command ? " " : "");
    return EXIT_USAGE;
}

const char *tool_cache_mode(const tool *t) { return t->cache ? t->cache : fu_env_string(FU_FUSOR_CACHE); }

bool tool_cache_is_read_only(const tool *t) {
    const rt_cache_mode mode = rt_cache_mode_parse(tool_cache_mode(t));
    return mode == RT_CACHE_OFF || mode == RT_CACHE_RO;
}

int tool_no_stdout(tool *t, const char *what, const char *path) {
    return path && strcmp(path, "-") == 0 ? tool_usage(t, "%s -: expected a file", what) : 0;
}

int tool_environment(tool *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    message(t, "error:", fmt, ap);
    va_end(ap);
    return EXIT_ENVIRONMENT;
}

int tool_data(tool *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    message(t, "error:", fmt, ap);
    va_end(ap);
    return EXIT_PROGRAM;
}

void tool_note(tool *t, const char *fmt, ...) {
    va_list ap;
    if (t->quiet) return;
    va_start(ap, fmt);
    message(t, "", fmt, ap);
    va_end(ap);
}

/* Errors with a place, each with its own "error:". */
static void print_places(const tool *t, const char *text) {
    static const char mark[] = ": error: ";
    for (const char *at; t->use_color && (at = strstr(text, mark)); text = at + sizeof mark - 1)
        fprintf(stderr, "%.*s: \033[1;31merror:\033[0m ", (int)(at - text), text);
    fputs(text, stderr);
}

int tool_fail(tool *t, const fu_error *e) {
    size_t n = strlen(e->text);
    bool has_place = strstr(e->text, ": error: ") != NULL; /* FILE:LINE:COL, as compilers write it: no name before it */
    (void)fflush(stdout);
    if (!has_place) {
        fprintf(stderr, "fusor%s%s", t->command ? " " : "", t->command ? t->command->name : "");
        print_places(t, ": error: ");
    }
    print_places(t, e->text);
    if (!n || e->text[n - 1] != '\n') fputc('\n', stderr);
    switch (e->status) {
    case FUSOR_OK: return EXIT_DONE;
    case FUSOR_ERROR_ARGUMENT:
    case FUSOR_ERROR_SYNTAX:
    case FUSOR_ERROR_TYPE:
    case FUSOR_ERROR_SHAPE:
    case FUSOR_ERROR_INDEX:
    case FUSOR_ERROR_OVERLAP:
    case FUSOR_ERROR_STALE: return EXIT_PROGRAM;
    case FUSOR_ERROR_UNSUPPORTED:
        return has_place ? EXIT_PROGRAM : EXIT_ENVIRONMENT; /* a place in the program: its operator or type */
    default: return EXIT_ENVIRONMENT;
    }
}

const char *tool_suggest(tool *t, const char *word, const char *const *candidates, size_t n, const char *prefix) {
    const char *near = n ? fu_nearest(word, candidates, n) : NULL;
    return near ? fu_format(&t->arena, "; did you mean '%s%s'?", prefix, near) : "";
}

/* ---- parsing ---- */
bool tool_parse_size(const char *text, int unit, int64_t *out) {
    bool is_large;
    return tool_read_size(text, unit, out, &is_large);
}

bool tool_read_size(const char *text, int unit, int64_t *out, bool *is_large_out) {
    char *end;
    errno = 0;
    *is_large_out = false;
    double v = strtod(text, &end);
    if (end == text || !(text[0] >= '0' && text[0] <= '9') || text[1] == 'x' || text[1] == 'X') return false;
    bool is_plain = strspn(text, "0123456789") == (size_t)(end - text);
    bool is_large = errno == ERANGE && v > 1;
    if (errno == ERANGE && !is_large) return false;
    int64_t exact = is_plain ? strtoll(text, NULL, 10) : 0;
    double scale = 1;
    if (*end) {
        const char *letters = "KMGT", *at = strchr(letters, *end >= 'a' ? *end - 32 : *end);
        const bool is_binary = strcmp(end + 1, "iB") == 0 && unit == 1024; /* a size is no bytes */
        if (!at || (end[1] && strcmp(end + 1, "B") != 0 && !is_binary)) return false;
        scale = pow(unit, (double)(at - letters + 1));
    }
    v *= scale;
    *is_large_out = is_large || v >= 9.2e18;
    if (*is_large_out || v != floor(v)) return false;
    *out = is_plain && scale == 1 ? exact : (int64_t)v;
    return true;
}

static bool applies(const tool *t, const option *o) {
    return o->commands == ALL || (t->command && o->commands >> (t->command - tool_commands) & 1);
}

static int unknown_option(tool *t, const char *given, const char *name) {
    const char *names[N_OPTIONS];
    size_t n = 0;
    for (int i = 0; i < N_OPTIONS; i++) {
        if (strcmp(options[i].name, name) == 0 && t->command)
            return tool_usage(t, "option '--%s' is not one of 'fusor %s'", name, t->command->name);
        if (applies(t, &options[i])) names[n++] = options[i].name;
    }
    return tool_usage(t, "unknown option '%s'%s", given, tool_suggest(t, name, names, n, "--"));
}

static int store(tool *t, const option *o, const char *value) {
    void *at = (char *)t + o->field;
    char *end;
    switch (o->kind) {
    case FLAG: *(bool *)at = true; break;
    case COUNT: ++*(int64_t *)at; break;
    case TEXT: *(const char **)at = value; break;
    case MAYBE: *(const char **)at = value ? value : ""; break;
    case LIST: fu_push(&t->arena, (tool_words *)at, value); break;
    case INT:
        if (!tool_parse_size(value, 1000, at)) return tool_usage(t, "--%s %s: expected a count", o->name, value);
        break;
    case NUMBER: {
        double v = strtod(value, &end);
        if (end == value || *end || !(v >= 0))
            return tool_usage(t, "--%s %s: expected a number from 0 up", o->name, value);
        *(double *)at = v;
        break;
    }
    }
    return 0;
}

static bool takes_value(const option *o) {
    return o->kind == TEXT || o->kind == LIST || o->kind == INT || o->kind == NUMBER;
}

static int long_option(tool *t, char **argv, int argc, int *i) {
    const char *word = argv[*i] + 2, *equals = strchr(word, '=');
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    char *name = fu_strndup(&t->arena, word, n);
    const char *value = equals ? equals + 1 : NULL;
    for (int k = 0; k < N_OPTIONS; k++) {
        const option *o = &options[k];
        if (strcmp(o->name, name) != 0 || !applies(t, o)) continue;
        if (value && (o->kind == FLAG || o->kind == COUNT)) return tool_usage(t, "option '--%s' takes no value", name);
        if (takes_value(o) && !value) {
            if (*i + 1 >= argc) return tool_usage(t, "option '--%s' needs a value: --%s %s", name, name, o->argument);
            value = argv[++*i];
        }
        return store(t, o, value);
    }
    return unknown_option(t, argv[*i], name);
}

static int short_options(tool *t, char **argv, int argc, int *i) {
    for (const char *p = argv[*i] + 1; *p; p++) {
        const option *o = NULL;
        for (int k = 0; k < N_OPTIONS; k++)
            if (options[k].letter == *p && applies(t, &options[k])) o = &options[k];
        char given[3] = {'-', *p, 0};
        if (!o)
            return tool_usage(t, "unknown option '%s'%s", given,
                              t->command && strcmp(t->command->name, "eval") == 0
                                  ? "; an expression that begins with '-' goes behind --: fusor eval -- '-x' x=x.npy"
                                  : "");
        if (!takes_value(o)) {
            int status = store(t, o, NULL);
            if (status) return status;
            continue;
        }
        if (p[1]) return store(t, o, p + 1);
        if (*i + 1 >= argc) return tool_usage(t, "option '%s' needs a value: %s %s", given, given, o->argument);
        return store(t, o, argv[++*i]);
    }
    return 0;
}

static int find_command(tool *t, const char *word) {
    const char *names[COMMAND_COUNT + 1];
    for (int i = 0; i < COMMAND_COUNT; i++) {
        names[i] = tool_commands[i].name;
        if (strcmp(word, names[i]) == 0) {
            t->command = &tool_commands[i];
            return 0;
        }
    }
    names[COMMAND_COUNT] = "help";
    return tool_usage(t, "unknown command '%s'%s", word, tool_suggest(t, word, names, COMMAND_COUNT + 1, ""));
}

static int one_of(tool *t, const char *option_name, const char *value, const char *const *words, size_t n) {
    if (!value) return 0;
    fu_str expected;
    fu_str_init(&expected, &t->arena);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(value, words[i]) == 0) return 0;
        fu_str_addf(&expected, "%s%s", i == 0 ? "" : i + 1 == n ? " or " : ", ", words[i]);
    }
    return tool_usage(t, "--%s %s: expected %s%s", option_name, value, expected.at,
                      tool_suggest(t, value, words, n, ""));
}

static int check_values(tool *t) {
    static const char *const caches[] = {"off", "ro", "rw", "refresh"}, *const maths[] = {"precise", "fast"},
                             *const colors[] = {"auto", "always", "never"};
    int status = one_of(t, "cache", t->cache, caches, 4);
    if (!status) status = one_of(t, "math", t->math, maths, 2);
    if (!status) status = one_of(t, "color", t->color, colors, 3);
    if (status) return status;
    fu_error e;
    fu_error_clear(&e);
    const char *device = t->device ? t->device : fu_env_string(FU_FUSOR_DEVICE);
    if ((t->device || device[0]) && context_check_device(&e, device) != FUSOR_OK)
        return tool_usage(t, "%s%s", t->device ? "--" : "FUSOR_DEVICE: ", e.text);
    ir_target target;
    /* cache warm takes a list of targets, and looks at each itself */
    bool is_list = t->command == &tool_commands[COMMAND_cache];
    const char *name = t->target ? t->target : fu_env_string(FU_FUSOR_TARGET);
    if ((t->target ? !is_list : name[0]) && ir_target_parse(&e, name, &target) != FUSOR_OK)
        return tool_usage(t, "%s%s", t->target ? "" : "FUSOR_TARGET: ", e.text);
    char words[80];
    const char *expected = t->threads ? NULL : fu_env_expected(FU_FUSOR_THREADS, words, sizeof words);
    if (expected) return tool_usage(t, "FUSOR_THREADS=%s: expected %s", fu_env_string(FU_FUSOR_THREADS), expected);
    if (t->runs == 0) return tool_usage(t, "--runs 0: expected 1 or more");
    if (t->threads) {
        for (const char *p = t->threads;;) {
            size_t n = strcspn(p, ",");
            int64_t v;
            if (!tool_parse_size(fu_strndup(&t->arena, p, n), 1000, &v) || v < 1 || v > 1024)
                return tool_usage(t, "--threads %s: expected 1 to 1024", t->threads);
            if (t->n_thread_counts == (int)(sizeof t->thread_counts / sizeof *t->thread_counts))
                return tool_usage(t, "--threads: at most 64 values");
            t->thread_counts[t->n_thread_counts++] = (int)v;
            if (!p[n]) break;
            p += n + 1;
        }
    }
    return 0;
}

int tool_parse_options(tool *t, int argc, char **argv) {
    bool only_words = false;
    int status = 0;
    t->min_time = t->threshold = -1;
    t->runs = t->warmup = -1;
    for (int i = 1; i < argc; i++) {
        const char *w = argv[i];
        if (!only_words && strcmp(w, "--") == 0) only_words = true;
        else if (!only_words && w[0] == '-' && w[1] == '-') status = long_option(t, argv, argc, &i);
        else if (!only_words && w[0] == '-' && w[1]) status = short_options(t, argv, argc, &i);
        else if (!t->command && t->args.n == 0 && strcmp(w, "help") == 0) {
            t->help = true;
            if (i + 1 < argc && argv[i + 1][0] != '-' && strcmp(argv[++i], "help") != 0)
                status = find_command(t, argv[i]);
        } else if (!t->command) status = find_command(t, w);
        else fu_push(&t->arena, &t->args, w);
        if (status) return status;
    }
    const char *color = t->color ? t->color : "auto", *no_color = getenv("NO_COLOR");
    t->use_color =
        strcmp(color, "always") == 0 || (strcmp(color, "auto") == 0 && isatty(2) && !(no_color && *no_color));
    return t->help || t->version ? 0 : check_values(t);
}

/* ---- the command to copy ---- */
void tool_add_quoted(fu_str *s, const char *word) {
    if (word[0] &&
        strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:@,%") == strlen(word)) {
        fu_str_add(s, word);
        return;
    }
    fu_str_addc(s, '\'');
    for (; *word; word++)
        if (*word == '\'') fu_str_add(s, "'\\''");
        else fu_str_addc(s, *word);
    fu_str_addc(s, '\'');
}

static void add_option(fu_str *s, const option *o, const char *value) {
    fu_str_addf(s, " --%s", o->name);
    if (value) fu_str_addc(s, o->kind == MAYBE ? '=' : ' '), tool_add_quoted(s, value);
}

void tool_add_given(const tool *t, fu_str *s) {
    for (int k = 0; k < N_OPTIONS; k++) {
        const option *o = &options[k];
        const void *at = (const char *)t + o->field;
        char number[32];
        const char *text;
        switch (o->kind) {
        case FLAG:
            if (*(const bool *)at) add_option(s, o, NULL);
            break;
        case COUNT:
            for (int64_t i = 0; i < *(const int64_t *)at; i++) add_option(s, o, NULL);
            break;
        case TEXT:
        case MAYBE:
            text = *(const char *const *)at;
            if (text && at != &t->text) add_option(s, o, o->kind == MAYBE && !text[0] ? NULL : text);
            break;
        case LIST:
            for (uint32_t i = 0; i < ((const tool_words *)at)->n; i++)
                add_option(s, o, ((const tool_words *)at)->at[i]);
            break;
        case INT:
            snprintf(number, sizeof number, "%" PRId64, *(const int64_t *)at);
            if (*(const int64_t *)at >= 0) add_option(s, o, number);
            break;
        case NUMBER:
            snprintf(number, sizeof number, "%g", *(const double *)at);
            if (*(const double *)at >= 0) add_option(s, o, number);
            break;
        }
    }
}

/* ---- help ---- */
static void print_options(FILE *out, const tool_command *c) {
    for (int k = 0; k < N_OPTIONS; k++) {
        const option *o = &options[k];
        if (c ? o->commands != ALL && !(o->commands >> (c - tool_commands) & 1) : o->commands != ALL) continue;
        char left[64];
        snprintf(left, sizeof left, "%s--%s%s%s", o->letter ? (char[]){'-', o->letter, ',', ' ', 0} : "    ", o->name,
                 o->argument[0] && o->kind != MAYBE ? " " : "", o->argument);
        fprintf(out, "  %-28s %s\n", left, o->text);
    }
}

void tool_print_help(FILE *out, const tool_command *c) {
    if (c) {
        fprintf(out, "fusor %s: %s.\n\nUsage: fusor %s %s%s[OPTION ...]\n\nOptions:\n", c->name, c->text, c->name,
                c->synopsis, c->synopsis[0] ? " " : "");
        print_options(out, c);
        fprintf(out, "\nExample:\n  %s\n", c->example);
        return;
    }
    fprintf(out, "fusor: fused kernels for chains of tensor operators, made at run time.\n\nUsage: fusor COMMAND "
                 "...\n\nCommands:\n");
    for (int i = 0; i < COMMAND_COUNT; i++) fprintf(out, "  %-10s %s\n", tool_commands[i].name, tool_commands[i].text);
    fprintf(out, "  %-10s %s\n", "help", "help of a command: fusor help run");
    fprintf(out, "\nOptions of every command:\n");
    print_options(out, NULL);
    fprintf(
        out,
        "\nExit status: 0 done; 1 the answer is no; 2 usage; 3 the program or its data are wrong; 4 the environment.\n"
        "\nExample:\n  fusor run -e 'func @f(%%a: f32[4]) -> f32[4] { %%y = relu(%%a) return %%y }' a=arange\n");
}

/* ---- what the options ask for ---- */
int tool_target(tool *t, ir_target *out) {
    const char *name = t->target ? t->target : fu_env_string(FU_FUSOR_TARGET);
    int level = rt_host_level();
    *out = (ir_target){(ir_level)(level < 0 ? 0 : level), level < 0 ? 0 : rt_host_extras((ir_level)level)};
    fu_error e;
    fu_error_clear(&e);
    const char *device = t->device ? t->device : fu_env_string(FU_FUSOR_DEVICE);
    if (!name[0] && strncmp(device, "cuda", 4) == 0) { /* what its kernels are made for */
        rt_device_info info;
        const int ordinal = device[4] == ':' ? atoi(device + 5) : 0;
        if (rt_device_describe(&e, ordinal, &info) != FUSOR_OK)
            return tool_environment(t, "device %s: %s", device, e.text);
        *out = info.target;
        return 0;
    }
    return name[0] && ir_target_parse(&e, name, out) != FUSOR_OK ? tool_usage(t, "%s", e.text) : 0;
}

static void context_log(void *user, int level, const char *line) {
    (void)level;
    tool_note(user, "%s", line);
}

void tool_ran(tool *t, const fusor_executable *exe) {
    const ir_plan_options *o = &rt_exec_plan(exe->exec)->options;
    char name[IR_TARGET_MAX];
    t->ran_target = fu_strdup(&t->arena, ir_target_name((ir_target){o->level, o->features}, name));
}

void tool_end_context(tool *t) {
    fusor_context *ctx = t->ctx;
    if (!ctx) return;
    if (t->verbose) {
        char target[IR_TARGET_MAX], device[24];
        const rt_cache_stats s = rt_cache_get_stats(ctx->cache);
        const char *dir = rt_cache_dir(ctx->cache);
        tool_note(t, "target %s, device %s, %d thread%s",
                  t->ran_target ? t->ran_target : ir_target_name((ir_target){ctx->level, ctx->features}, target),
                  context_device_name(ctx, device), ctx->n_threads, ctx->n_threads == 1 ? "" : "s");
        tool_note(t,
                  "cache %s%s%s; kernels: %" PRId64 " from disk in %.3g ms, %" PRId64 " from memory, %" PRId64
                  " compiled in %.3g ms",
                  dir[0] ? fu_env_string(FU_FUSOR_CACHE) : "in memory", dir[0] ? ", " : "", dir, s.disk_hits,
                  (double)s.load_ns * 1e-6, s.memory_hits, s.compiles, (double)s.compile_ns * 1e-6);
    }
    fusor_context_free(ctx);
    t->ctx = NULL;
    t->ran_target = NULL;
}

int tool_context(tool *t, int n_threads) {
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    if (t->cache) (void)setenv("FUSOR_CACHE", t->cache, 1); /* read once, by fusor_context_new */
    if (t->perf) (void)setenv("FUSOR_PERF", "map", 1);
    o.cache_dir = t->cache_dir;
    o.target = t->target;
    o.device = t->device;
    o.n_threads = n_threads ? n_threads : t->thread_counts[0];
    if (t->math && strcmp(t->math, "fast") == 0) o.flags |= FUSOR_FAST_MATH;
    o.log = context_log;
    o.user = t;
    tool_end_context(t);
    t->ctx = fusor_context_new(&o);
    if (!t->ctx) return tool_environment(t, "out of memory");
    return 0;
}
