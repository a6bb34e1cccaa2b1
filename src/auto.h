/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_SRC_AUTO_H
#define FUSOR_SRC_AUTO_H
/* Device "auto": executables that run on the CPU or the GPU, call by call (rt/select.h has the model and the
 * policy). */
#include "context.h"
#include "rt/select.h"

typedef struct auto_choice auto_choice; /* fusor_executable.choice; counted by its executable alone */

/* For an executable whose CPU side is exe->exec. gpu: its other side, moved in; NULL: made when first chosen. NULL: no
 * memory. */
auto_choice *auto_new(rt_exec *gpu);
void auto_free(auto_choice *a);
/* The GPU's side, made when it is not there: borrowed. NULL: it cannot be had; why (may be NULL) says so. */
rt_exec *auto_gpu(fusor_executable *exe, fu_error *why);
/* One call, on the side that is expected to be faster. */
fusor_status auto_call(fusor_executable *exe, fu_error *e, int n_in, const fusor_buffer *in, int n_out,
                       fusor_buffer *out);
/* One call on the CPU's side: buffers of the device are brought, and results sent back. */
fusor_status auto_call_here(fusor_executable *exe, fu_error *e, int n_in, const fusor_buffer *in, int n_out,
                            fusor_buffer *out);
/* For calls that are prepared once: the side that all of them run on. Buffers on the device decide for it. */
rt_exec *auto_prepare(fusor_executable *exe, int n_in, const fusor_buffer *in, int n_out, const fusor_buffer *out);
/* The last call's choice. False: none was made, or the GPU's side cannot be had. */
bool auto_last(const fusor_executable *exe, rt_select_choice *out);
/* "the CPU, 12 us expected; cuda:0 40 us, with 1.2 MB up and 4 B down": of the last call; or of a plan whose ends are
 * on the CPU. */
void auto_last_text(const fusor_executable *exe, char *out, size_t room);
void auto_plan_text(fusor_context *ctx, const ir_plan *plan, const int64_t *symbol_values, char *out, size_t room);
/* Of a context with "auto", once: the device's limits and the rate of the bus. */
const rt_select_gpu *auto_gpu_of(fusor_context *ctx);

/* What each side would take for inputs of some shapes, wherever they are: by the model, without moving anything. */
typedef struct auto_costs {
    uint64_t key; /* of the program and its sizes, to be joined with what moves (rt_select_key) */
    double ns[RT_SIDES];
    double temp_bytes;
    double free_bytes; /* of the device, when it was asked */
} auto_costs;
/* outputs (may be NULL) get the shapes of all results. False: nothing can be said. */
bool auto_costs_of(fusor_executable *exe, int n_in, const fusor_buffer *in, int n_out, fusor_buffer *outputs,
                   auto_costs *out);
/* Is there room on the device for so many bytes beside what a call takes? Asks again where they are many. */
bool auto_fits(const fusor_context *ctx, const auto_costs *c, double bytes);
#endif
