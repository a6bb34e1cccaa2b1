/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* fusor.c: the command. Reads the command line, runs the subcommand, turns its outcome into an exit status. */
#include "report.h"
#include "base/file.h"
#include "rt/cpuinfo.h"
#include "rt/compiler.h"
#include <locale.h>
#include <signal.h>
#include <stdlib.h>

static void print_version(tool *t) {
    int level = rt_host_level();
    char name[IR_TARGET_MAX];
    printf("fusor %s\nbuild %s\nLLVM %s\nCPU level %s\n", fusor_version_string(), rt_build_id(), FUSOR_LLVM_VERSION,
           level < 0 ? "below x86-64-v2 (reference evaluator only)"
                     : ir_target_name((ir_target){(ir_level)level, rt_host_extras((ir_level)level)}, name));
    (void)t;
}

static int run_tool(tool *t, int argc, char **argv) {
    int status = tool_parse_options(t, argc, argv);
    if (status) return status;
    if (t->help) tool_print_help(stdout, t->command);
    else if (t->version) print_version(t);
    else if (!t->command) {
        tool_print_help(stderr, NULL);
        return EXIT_USAGE;
    } else status = t->command->run(t);
    int flushed = report_flush(t);
    return status ? status : flushed;
}

/* Half of a file is of no use to anybody. */
static void end_by(int signal_number) {
    fu_file_unlink_temps();
    (void)raise(signal_number); /* SA_RESETHAND: as if there were no handler */
}

static void set_signals(void) {
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
    (void)signal(SIGPIPE, SIG_IGN); /* writes report it instead */
    (void)signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct sigaction old, new = {.sa_handler = end_by, .sa_flags = SA_RESETHAND};
        if (sigaction(ends[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) (void)sigaction(ends[i], &new, NULL);
    }
}

int main(int argc, char **argv) {
    static tool t;
    set_signals();
    (void)setlocale(LC_ALL, "C");
    fu_arena_init(&t.arena, &t.oom);
    int status;
    if (setjmp(t.oom)) status = tool_environment(&t, "out of memory");
    else status = run_tool(&t, argc, argv);
    tool_end_context(&t);
    fu_arena_free(&t.arena);
    return status;
}
