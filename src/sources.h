/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_SRC_SOURCES_H
#define FUSOR_SRC_SOURCES_H
/* Parameters with a source ("weights.npy", a list, a literal): loaded and bound to an executable. */
#include "rt/exec.h"

/* A new exec with every parameter that has a source bound, or x itself (one more reference) when there is none.
 * program: the program's path, which relative paths start from ("<text>": the working directory).
 * Errors: IO (missing, with the place of the source), TYPE, SHAPE. */
fusor_status sources_bind(fu_error *e, rt_exec *x, const char *program, rt_exec **out);
/* The path of a source relative to the program, in arena. */
char *source_path(fu_arena *a, const char *program, const char *path);
#endif
