/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TOOL_INPUTS_H
#define TOOL_INPUTS_H
/* The inputs of a run: NAME=SOURCE arguments, --weights, sources in the program and --fill, made into tensors whose
 * sizes agree. */
#include "options.h"
#include "rt/data.h"

typedef struct inputs_dim {
    uint32_t symbol;
    int n;
    int64_t *value;
} inputs_dim; /* --dim NAME=V1,V2 */
typedef struct inputs {
    const ir_graph *g;
    const program *program;
    int n;               /* parameters of g */
    const char **source; /* of each: a file, "-" or a fill; NULL: written in the program as a value */
    bool *is_own;        /* it comes from the program's text: messages name its place */
    const char **given;  /* arguments as written, for the command to copy */
    fu_vec(inputs_dim) dims;
    fusor_buffer *buffer; /* after inputs_bind */
    rt_data *data;
    void **memory;
    int64_t *symbols;
} inputs;
/* Is `source` one that can be read or filled in, as far as its text tells? 0, or the exit status after a message about
 * `shown` that says what to write. typed: how a user of this command gives a type ("x:TYPE=SOURCE"); NULL: not at all. */
int inputs_check_source(tool *t, const char *shown, const char *source, const char *typed);
/* Finds the source of every parameter. args[from ...] are NAME=SOURCE. 0, or the exit status after a message. */
int inputs_find(tool *t, const program *p, const ir_graph *g, uint32_t from, inputs *out);
/* --dim options for a graph, without inputs (explain): in->dims. */
int inputs_dims(tool *t, const ir_graph *g, inputs *in);
/* The next combination of these sizes, choice[i] of dims.at[i]; false after the last, when all are 0 again. */
bool inputs_next_sizes(const inputs *in, int *choice);
/* Can a function have these sizes, each combination of them? g: flattened. 0, or the exit status after the message that
 * a run would end with. */
int inputs_check_dims(tool *t, const ir_graph *g, const inputs *in);
/* Loads, once, and fills. choice[i]: which value of dims.at[i]. Frees what an earlier call filled. */
int inputs_bind(tool *t, inputs *in, const int *choice);
void inputs_free(inputs *in);
/* Private copies of the parameters that results are written over, in fresh memory. False: no memory. */
bool inputs_copy_aliased(const inputs *in, fusor_buffer *buffer, void **memory);
#endif
