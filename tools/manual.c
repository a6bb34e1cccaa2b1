/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* manual.c: the pages of reference.c that follow from commands.def and options.def: "man-run" is fusor-run.1 (and so on
 * for the subcommands that have no page written by hand), "zsh" a completion, "bash-words" a region of the other. */
#include "manual.h"
#include "ir/target.h"
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
#define COMMAND(ID, ...) COMMAND_##ID,
#include "commands.def"
#undef COMMAND
    COMMAND_COUNT
};
typedef struct command {
    const char *name, *synopsis, *text, *example;
} command;
static const command commands[COMMAND_COUNT] = {
#define COMMAND(ID, name, synopsis, text, example) {name, synopsis, text, example},
#include "commands.def"
#undef COMMAND
};

typedef enum kind { FLAG, COUNT, TEXT, MAYBE, LIST, INT, NUMBER } kind;
typedef struct option {
    char letter;
    const char *name;
    kind kind;
    const char *argument;
    uint32_t commands;
    const char *text;
} option;
#define ALL   UINT32_MAX
#define C(id) (1u << COMMAND_##id)
static const option options[] = {
#define OPTION(letter, name, kind, field, argument, commands, text) {letter, name, kind, argument, commands, text},
#include "options.def"
#undef OPTION
};
enum { N_OPTIONS = sizeof options / sizeof *options };

/* What stands after an option that takes one of a few words; NULL: CPU levels, alone and with each feature beside
 * them, and GPUs. */
static const struct {
    const char *option, *words;
} choices[] = {
    {"target", NULL},
    {"cache", "off ro rw refresh"},
    {"device", "cpu cuda cuda:0 auto reference"},
    {"math", "precise fast"},
    {"color", "auto always never"},
    {"stage", "ir opt plan llvm asm obj header ptx cubin"},
    {"peers", "found all none numpy numba torch jax onnxruntime torch.compile"},
    {"format", "text json dot html"},
    {"sort", "key function kind target size compile hits age"},
};
enum { N_CHOICES = sizeof choices / sizeof *choices };
static const char cache_actions[] = "list show disasm why verify prune clear stats path warm export import";

static const char *targets(void) {
    static char words[512];
    size_t n = 0;
    for (int i = 0; i < IR_LEVEL_COUNT && n < sizeof words; i++)
        n += (size_t)snprintf(words + n, sizeof words - n, "%s%s %s", i ? " " : "", ir_levels[i].short_name,
                              ir_levels[i].name);
    for (int i = 0; i < IR_FEATURE_COUNT && n < sizeof words; i++)
        n += (size_t)snprintf(words + n, sizeof words - n, " %s+%s", ir_levels[ir_feature_table[i].level].short_name,
                              ir_feature_table[i].name);
#define GPU(ID, name, ...) n += n < sizeof words ? (size_t)snprintf(words + n, sizeof words - n, " %s", name) : 0;
#include "ir/gpu.def"
#undef GPU
    return words;
}

static const char *words_of(int choice) { return choices[choice].words ? choices[choice].words : targets(); }

static const char *choice_of(const char *name) {
    for (int i = 0; i < N_CHOICES; i++)
        if (strcmp(choices[i].option, name) == 0) return words_of(i);
    return NULL;
}
static bool takes_value(const option *o) { return o->kind != FLAG && o->kind != COUNT && o->kind != MAYBE; }

/* ---- roff ---- */
static void roff(const char *text) {
    if (*text == '.' || *text == '\'') fputs("\\&", stdout);
    for (; *text; text++) {
        if (*text == '\\') fputs("\\e", stdout);
        else if (*text == '-') fputs("\\-", stdout);
        else if (*text == '\'') fputs("\\(aq", stdout);
        else putchar(*text);
    }
}

static void man_option(const option *o) {
    fputs(".TP\n", stdout);
    if (o->letter) printf("\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB\\-\\-", stdout);
    roff(o->name);
    fputs("\\fR", stdout);
    if (o->argument[0]) {
        fputs(o->kind == MAYBE ? "\\fI" : " \\fI", stdout);
        roff(o->argument);
        fputs("\\fR", stdout);
    }
    putchar('\n');
    roff(o->text);
    putchar('\n');
}

static void man_page(int id) {
    const command *c = &commands[id];
    char upper[64];
    size_t n = 0;
    for (; c->name[n] && n + 1 < sizeof upper; n++)
        upper[n] = (char)(c->name[n] >= 'a' && c->name[n] <= 'z' ? c->name[n] - 32 : c->name[n]);
    upper[n] = 0;
    printf(".\\\" SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception\n.\\\" Made from tools/commands.def and "
           "tools/options.def by make generated.\n"
           ".TH FUSOR\\-%s 1 \"\" \"fusor 0.1.0\" \"User Commands\"\n.SH NAME\nfusor\\-%s \\- ",
           upper, c->name);
    roff(c->text);
    printf("\n.SH SYNOPSIS\n.B fusor %s\n", c->name);
    if (c->synopsis[0]) {
        roff(c->synopsis);
        putchar('\n');
    }
    fputs("[\\fIOPTION\\fR ...]\n.SH OPTIONS\n", stdout);
    for (int i = 0; i < N_OPTIONS; i++)
        if (options[i].commands != ALL && options[i].commands >> id & 1) man_option(&options[i]);
    fputs(".SH OPTIONS OF EVERY SUBCOMMAND\n", stdout);
    for (int i = 0; i < N_OPTIONS; i++)
        if (options[i].commands == ALL) man_option(&options[i]);
    fputs(".SH EXIT STATUS\n0 done; 1 the answer is no; 2 usage; 3 the program or its data are wrong; 4 the "
          "environment.\n.SH EXAMPLES\n.nf\n",
          stdout);
    for (const char *p = c->example; *p;) {
        size_t length = strcspn(p, "\n");
        char line[1024];
        while (*p == ' ') p++, length--;
        snprintf(line, sizeof line, "%.*s", (int)length, p);
        roff(line);
        putchar('\n');
        p += length + (p[length] == '\n');
    }
    fputs(".fi\n.SH SEE ALSO\n.BR fusor (1)", stdout);
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (i != id) printf(",\n.BR fusor\\-%s (1)", commands[i].name);
    putchar('\n');
}

/* ---- completions ---- */
static void quoted(const char *text, const char *special) {
    for (; *text; text++) {
        if (*text == '\'') fputs("'\\''", stdout);
        else {
            if (strchr(special, *text)) putchar('\\');
            putchar(*text);
        }
    }
}

static void zsh_option(const option *o) {
    const char *words = choice_of(o->name);
    for (int form = o->letter ? 0 : 1; form < 2; form++) {
        printf("        '%s", o->kind == LIST || o->kind == COUNT ? "*" : "");
        if (form) printf("--%s%s", o->name, takes_value(o) || o->kind == MAYBE ? "=" : "");
        else printf("-%c%s", o->letter, takes_value(o) ? "+" : "");
        putchar('[');
        quoted(o->text, "[]:\\");
        putchar(']');
        if (words) printf(":%s:(%s)", o->name, words);
        else if (takes_value(o)) {
            fputs(":", stdout);
            quoted(o->argument, "[]:\\");
            const bool is_file = strcmp(o->argument, "FILE") == 0 || strcmp(o->argument, "OUT") == 0;
            fputs(is_file ? ":_files" : strcmp(o->argument, "DIR") == 0 ? ":_files -/" : ": ", stdout);
        } else if (o->kind == MAYBE) printf("::%s: ", o->name);
        fputs("'\n", stdout);
    }
}

static void zsh(void) {
    puts("#compdef fusor\n# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception\n# Made from tools/commands.def "
         "and tools/options.def by make generated.\n"
         "_fusor() {\n    local curcontext=$curcontext state line rest='*:file:_files' ret=1\n    local -a commands "
         "common own found\n    "
         "commands=(");
    for (int i = 0; i < COMMAND_COUNT; i++) {
        printf("        '%s:", commands[i].name);
        quoted(commands[i].text, ":\\");
        puts("'");
    }
    puts("        'help:help of a command'\n    )\n    common=(");
    for (int i = 0; i < N_OPTIONS; i++)
        if (options[i].commands == ALL) zsh_option(&options[i]);
    puts("    )\n    _arguments -C $common '1: :->command' '*:: :->rest' && return 0\n    case $state in\n    command) "
         "_describe -t commands 'fusor command' commands && ret=0 ;;\n"
         "    rest)\n        curcontext=\"${curcontext%:*}-$words[1]:\"\n        case $words[1] in");
    for (int c = 0; c < COMMAND_COUNT; c++) {
        printf("        %s)\n            own=(\n", commands[c].name);
        for (int i = 0; i < N_OPTIONS; i++)
            if (options[i].commands != ALL && options[i].commands >> c & 1) zsh_option(&options[i]);
        puts("            )");
        if (c == COMMAND_cache)
            printf("            if [[ $words[2] == (show|disasm) ]]; then\n"
                   "                found=(${${(f)\"$(fusor cache list 2>/dev/null)\"}[2,-1]%%%% *})\n"
                   "                rest=\"*:key:($found)\"\n            fi\n"
                   "            _arguments $common $own '1:action:(%s)' $rest && ret=0 ;;\n",
                   cache_actions);
        else if (c == COMMAND_bench)
            puts("            found=(${(u)${(f)\"$(fusor bench --list 2>/dev/null)\"}%% *})\n"
                 "            rest=\"*:suite:($found)\"\n            _arguments $common $own $rest && ret=0 ;;");
        else puts("            _arguments $common $own $rest && ret=0 ;;");
    }
    puts("        help) _describe -t commands 'fusor command' commands && ret=0 ;;\n        esac ;;\n    esac\n    "
         "return ret\n}\n_fusor \"$@\"");
}

/* The region of tools/fusor.bash with the words after options. */
static void bash(void) {
    for (int i = 0; i < N_CHOICES; i++) printf("    --%s) words='%s' ;;\n", choices[i].option, words_of(i));
}

bool manual_print(const char *page) {
    int id = 0;
    if (strcmp(page, "zsh") == 0) return zsh(), true;
    if (strcmp(page, "bash-words") == 0) return bash(), true;
    while (id < COMMAND_COUNT && (strncmp(page, "man-", 4) != 0 || strcmp(page + 4, commands[id].name) != 0)) id++;
    if (id == COMMAND_COUNT) return false;
    man_page(id);
    return true;
}
