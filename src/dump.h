/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_SRC_DUMP_H
#define FUSOR_SRC_DUMP_H
/* Dumps of a compile's stages, where FUSOR_DEBUG asks for them; nothing otherwise. Passes dump themselves
 * (pass=NAME). */
#include "base/log.h"
#include "ir/plan.h"

void dump_module(fu_arena *a, const ir_module *m);                   /* ir */
void dump_plan(fu_arena *a, const fu_log *log, const ir_plan *plan); /* plan, key, llvm, asm; and dispatch events */

/* While FUSOR_VERBOSE=compile: the command that compiles this function (calls inlined) again, in the arena; else
 * NULL. */
const char *dump_replay(fu_arena *a, const ir_graph *flat, const ir_plan_options *options);
#endif
