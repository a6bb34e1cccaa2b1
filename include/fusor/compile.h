/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_COMPILE_H
#define FUSOR_COMPILE_H
/* fusor/compile.h: from a program to an executable, and calling it. */
#include <fusor/context.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FUSOR_NO_FUSE = 1,              /* one kernel an operator: for comparisons */
    FUSOR_KEEP_SOURCES = 2          /* parameters with a source stay inputs instead of being loaded and bound */
};
/** Options of one compile; start from FUSOR_COMPILE_OPTIONS_INIT. */
typedef struct fusor_compile_options {
    size_t   size;
    uint32_t flags;
    const char *target;             /* NULL: the context's. One that the host cannot run, a GPU's too: DEVICE */
} fusor_compile_options;
#define FUSOR_COMPILE_OPTIONS_INIT { sizeof(fusor_compile_options), 0, NULL }

typedef struct fusor_module fusor_module;       /* graph.h */

/** Compiles one function of a program text: plans it and finds or makes every kernel it needs. **Types**: text is
 *  UTF-8, NUL-terminated; function "f" or "@f", NULL = the first. **Ownership**: *out is the caller's (fusor_executable_free); it
 *  holds ctx. Parameters with a source are loaded (paths relative to the working directory) and are no inputs.
 *  **Errors**: SYNTAX, TYPE, SHAPE with "<text>:LINE:COL"; ARGUMENT (no such function; a parameter with a source that a
 *  result is written over: it can only be an input); IO (a source); MISS
 *  (FUSOR_CACHE_ONLY); DEVICE (a level that the host lacks); MEMORY. *out is untouched on failure. **Threads**: any.
 *  **Cost**: microseconds when every kernel is cached, milliseconds a kernel when not. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_compile_text(fusor_context *ctx, const char *text, const char *function,
                                                           fusor_executable **out);
/** The same for a function of a parsed or built module; options may be NULL. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_module_compile(fusor_module *module, const char *function,
                                                             const fusor_compile_options *options,
                                                             fusor_executable **out);
/** A new executable with the named `const` parameters fixed: their contents are copied, and packed once, by the first
 *  call, where a contraction or convolution multiplies by them, or a contraction by what is computed of them alone;
 *  these inputs disappear from its calls. It lives independently of exe and of the buffers.
 *  **Errors**: ARGUMENT (unknown, not const, or bound already), TYPE, SHAPE, MEMORY. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_executable_bind(fusor_executable *exe, int n, const char *const *names,
                                                              const fusor_buffer *values, fusor_executable **out);
/** Fills dtype, rank and shape of every output for inputs of these shapes; data is not read. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_executable_infer(fusor_executable *exe, int n_inputs,
                                                               const fusor_buffer *inputs, int n_outputs,
                                                               fusor_buffer *outputs);
/** Runs: inputs in parameter order (without bound ones), outputs in result order. An output with data NULL gets memory
 *  (fusor_buffer_free), its dtype, rank and shape. **Errors**: ARGUMENT, TYPE, SHAPE, INDEX, MEMORY, OVERLAP (strides
 *  that interleave without a common byte are none, but where 2^26 steps do not tell, as of many dims at odds); the
 *  contents of outputs are then unspecified. **Threads**: any number at once. **Cost**: under 200 ns for a chain of one
 *  element, under 50 with the very buffers of the call before; allocates nothing once warm. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_executable_call(fusor_executable *exe, int n_inputs,
                                                              const fusor_buffer *inputs, int n_outputs,
                                                              fusor_buffer *outputs);
FUSOR_API void fusor_executable_free(fusor_executable *exe);

/** One parameter or result of an executable. */
typedef struct fusor_argument_info {
    const char *name;               /* without '%'; lives as long as the executable */
    int32_t dtype, rank;
    int64_t shape[8];               /* -1: known when called */
    int32_t is_const;               /* parameters */
    int32_t alias;                  /* results: input position whose buffer it is written over; -1 none */
} fusor_argument_info;
/** Number of inputs of a call (without bound ones); fills up to n of info. */
FUSOR_API int fusor_executable_inputs(const fusor_executable *exe, int n, fusor_argument_info *info);
/** Number of outputs; fills up to n of info. */
FUSOR_API int fusor_executable_outputs(const fusor_executable *exe, int n, fusor_argument_info *info);
/** Would a call with inputs of these shapes have to compile? 0 = no; 1 = yes, *reason_out (borrowed, static) says why.
 *  Sizes are run-time arguments, so the answer is no for every shape that the function accepts. */
FUSOR_API int fusor_would_compile(const fusor_executable *exe, int n_inputs, const fusor_buffer *inputs,
                                  const char **reason_out);

typedef struct fusor_call fusor_call;
/** Checks the buffers once; fusor_call_run then runs on the same memory. The buffers' memory must outlive the call
 *  object.
 *  **Threads**: one prepared call is run by one thread at a time. **Cost** of a run on one thread: 2 ns besides its
 *  kernel's work where it is one launch, else some 11 ns. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_executable_prepare(fusor_executable *exe, int n_inputs,
                                                                 const fusor_buffer *inputs, int n_outputs,
                                                                 fusor_buffer *outputs, fusor_call **out);
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_call_run(fusor_call *call);
FUSOR_API void fusor_call_free(fusor_call *call);

/** The buffers of one input or output over all sets of a call: n is the number of sets, or, for an input that no result
 *  is written over, 1: the same buffer for all (a learning rate). */
typedef struct fusor_buffer_list { fusor_buffer *at; int64_t n; } fusor_buffer_list;
/** One call over many sets of buffers, as an optimizer step over all parameters of a model: the same results as n_sets
 *  calls of fusor_executable_call, with one launch a kernel for any number of sets and any sizes. Checks everything
 *  once; fusor_call_run then runs on the same memory, which must outlive the call object. Lists: in parameter order
 *  without bound ones, and in result order. The sets run side by side, so what one writes no other may use. Outputs
 *  with data NULL get memory, or for an aliased result the parameter's.
 *  **Errors**: as fusor_executable_call, with the number of the set; OVERLAP between sets; ARGUMENT (length of a
 *  list). */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_executable_prepare_each(fusor_executable *exe, int64_t n_sets,
                                                                      int n_inputs, const fusor_buffer_list *inputs,
                                                                      int n_outputs, const fusor_buffer_list *outputs,
                                                                      fusor_call **out);
/** The same, prepared, run once and freed. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_executable_call_each(fusor_executable *exe, int64_t n_sets, int n_inputs,
                                                                   const fusor_buffer_list *inputs, int n_outputs,
                                                                   const fusor_buffer_list *outputs);

/** A state of a sequence: what result `output` is after a step, parameter `input` (its position among the inputs) is
 *  in the next. */
typedef struct fusor_carry { int32_t input, output; } fusor_carry;
/** One program over the steps of a sequence, as a recurrent cell: the same results as n_steps calls of
 *  fusor_executable_call, with everything checked once, nothing allocated in a step, and bound weights packed once for
 *  all (fusor_executable_bind). fusor_call_run runs all steps on the same memory, which must outlive the call object.
 *  **Shapes**: an input with one dim more than its parameter is a sequence: step t reads element t of dim 0, which has
 *  n_steps (a stride may be negative: backwards). Any other is the same in each step. The input of a carry is the first
 *  state. An output with one dim more than its result gets all steps; one of the result's own rank what the last step
 *  left, and may be the first state's memory. With data NULL it gets memory for all steps. An aliased result is written
 *  over its parameter in each step, so it carries itself, and its output has that data or NULL. **Types**: of a state
 *  and the result that it is carried on from: equal. **Errors**: as fusor_executable_call; ARGUMENT (carries; the last
 *  value of 0 steps, except of a state), OVERLAP between what any steps read and write. **Threads**: as
 *  fusor_executable_prepare. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_executable_prepare_scan(fusor_executable *exe, int64_t n_steps,
                                                                      int n_carries, const fusor_carry *carries,
                                                                      int n_inputs, const fusor_buffer *inputs,
                                                                      int n_outputs, fusor_buffer *outputs,
                                                                      fusor_call **out);
/** The same, prepared, run once and freed. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_executable_scan(fusor_executable *exe, int64_t n_steps, int n_carries,
                                                              const fusor_carry *carries, int n_inputs,
                                                              const fusor_buffer *inputs, int n_outputs,
                                                              fusor_buffer *outputs);

/** The plan as a JSON document ("fusor-explain/1"); free with fusor_text_free. */
FUSOR_API FUSOR_MUST_CHECK fusor_status fusor_explain_json(fusor_executable *exe, char **text_out);
FUSOR_API void fusor_text_free(char *text);

#ifdef __cplusplus
}
#endif
#endif
