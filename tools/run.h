/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TOOL_RUN_H
#define TOOL_RUN_H
/* Running one function of a program, for the subcommands that do: run and eval. */
#include "inputs.h"

/* args[used ...] of the command line are @FUNC and NAME=SOURCE. after: called with the bound inputs when a single run
 * (no sweep) has printed its results; NULL: nothing. The exit status. */
int run_program(tool *t, const program *p, uint32_t used, int (*after)(tool *t, const program *p, const inputs *in));
#endif
