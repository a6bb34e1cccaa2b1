/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TOOL_OPTIONS_H
#define TOOL_OPTIONS_H
/* The fusor command: what its files share. One struct holds everything the command line said; options.def has a row for
 * each option and commands.def one for each subcommand, and the parser, the help and the suggestions are made from
 * them. */
#include "base/arena.h"
#include "base/error.h"
#include "base/vec.h"
#include "fusor/cache.h"
#include "fusor/compile.h"
/* The internals that the command links to: it reports on what programs never see (plans, kernels, cache entries). */
#include "context.h"
#include "ir/graph.h"
#include "ir/plan.h"
#include "sources.h"
#include <stdio.h>

/* Exit status (spec: the command's contract). */
enum { EXIT_DONE = 0, EXIT_NO = 1, EXIT_USAGE = 2, EXIT_PROGRAM = 3, EXIT_ENVIRONMENT = 4 };

typedef struct tool tool;
typedef enum tool_command_id {
#define COMMAND(ID, ...) COMMAND_##ID,
#include "commands.def"
#undef COMMAND
    COMMAND_COUNT
} tool_command_id;
typedef struct tool_command {
    const char *name, *synopsis, *text, *example;
    int (*run)(tool *t);
} tool_command;
extern const tool_command tool_commands[COMMAND_COUNT];
#define COMMAND(ID, ...) int cmd_##ID(tool *t);
#include "commands.def"
#undef COMMAND

typedef fu_vec(const char *) tool_words;

struct tool {
    fu_arena arena;
    jmp_buf oom;
    const tool_command *command; /* NULL until it is known */
    tool_words args;             /* what is no option, after the command's name */
    fusor_context *ctx;          /* made by tool_context */
    const char *ran_target;      /* what its programs were taken for, by tool_ran; NULL: the context's */
    bool use_color;
    /* options.def */
    bool help, version, quiet, emit, in_place, json, no_fuse, time, wait, profile, perf, measure, dry_run, zero, list,
        quick, counts;
    int64_t verbose, runs, warmup;
    int thread_counts[64], n_thread_counts; /* of --threads */
    double min_time, threshold;
    const char *color, *text, *target, *cache, *cache_dir, *device, *math, *threads, *fill, *check, *trace, *stage,
        *kernel, *format, *filter, *sort, *max_size, *max_age, *export_json, *export_html, *import_json, *peers,
        *python, *save_baseline, *baseline;
    tool_words dims, outputs, weights;
};

/* Reads the command line. 0, or the exit status after a message. */
int tool_parse_options(tool *t, int argc, char **argv);
/* A word as a shell reads it, and " --option value" for each option that was given but -e. */
void tool_add_quoted(fu_str *s, const char *word);
void tool_add_given(const tool *t, fu_str *s);
void tool_print_help(FILE *out, const tool_command *c); /* NULL: of the whole command */

const char *tool_cache_mode(const tool *t); /* what --cache says, else FUSOR_CACHE */
/* By that: is nothing to be written beside or into the cache? */
bool tool_cache_is_read_only(const tool *t);

/* Messages on stderr. They return the exit status. */
int tool_usage(tool *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int tool_no_stdout(tool *t, const char *what, const char *path); /* usage where path is "-"; NULL is fine */
int tool_environment(tool *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int tool_data(tool *t, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* what is in a file is wrong */
int tool_fail(tool *t, const fu_error *e); /* the status that belongs to the error's */
void tool_note(tool *t, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* a remark; not with -q */
/* ", did you mean 'x'?", or "". */
const char *tool_suggest(tool *t, const char *word, const char *const *candidates, size_t n, const char *prefix);

/* A size or count: 1000, 1e6, 64K, 2M, 1G (powers of 1024 for bytes, of 1000 for sizes). False: not one. */
bool tool_parse_size(const char *text, int unit, int64_t *out);
bool tool_read_size(const char *text, int unit, int64_t *out, bool *is_large_out); /* false for too large a one, too */
/* The context that the options ask for; t->ctx. 0, or the exit status. n_threads 0: as the options say. */
int tool_context(tool *t, int n_threads);
/* A program of t->ctx was compiled: -v names its target, which is lower than the host's where a bundle is. */
void tool_ran(tool *t, const fusor_executable *exe);
/* Gives t->ctx up; with -v, says what was asked of it. */
void tool_end_context(tool *t);
/* The target that the options and the environment ask for, or the host's. 0, or the exit status. */
int tool_target(tool *t, ir_target *out);

/* A program, parsed. */
typedef struct program {
    const char *name, *text; /* name: a path, "<stdin>" reads "<text>" too */
    size_t length;
    ir_module *module;
    const char *printed; /* where text is in another language: the module in this one; else NULL */
    int64_t parse_ns;
} program;
/* From -e TEXT, else the first argument; *used_out: arguments taken. Reports what is wrong with it. */
int program_load(tool *t, program *out, uint32_t *used_out);
/* Reads the text of a file ("-" is stdin) without parsing it, and with. */
int program_text(tool *t, const char *path, program *out);
int program_read(tool *t, const char *path, program *out);
/* The function of this name (no @); NULL: the first. */
int program_find(tool *t, const program *p, const char *name, ir_graph **function_out);
/* The function named by an argument "@NAME" among args[from ...] (removed there), else the first; flattened. */
int program_function(tool *t, const program *p, uint32_t from, ir_graph **function_out, ir_graph **flat_out);
/* p with one more function, *name_out: g (a function of p's module) with its named sizes bound; values[symbol] -1:
 * stays named. */
int program_specialize(tool *t, const program *p, const ir_graph *g, const int64_t *values, program *out,
                       const char **name_out);
/* "@dense(%x: f32[B, 784], const %w: f32[784, 256]) -> (%y: f32[B, 256])" */
const char *program_signature(tool *t, const ir_graph *g);
#endif
