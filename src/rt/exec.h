/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_EXEC_H
#define RT_EXEC_H
/* Runs a plan: checks the caller's buffers, binds sizes, lays out temps, launches each step's kernel over its tiles.
 *
 * An rt_exec is immutable after rt_exec_new / rt_exec_bind; any number of threads may call it at once. What one call
 * needs (evaluated sizes and strides, tune fields, launches, the temp and scratch memory) is a frame; up to 16 spare
 * frames wait in atomic slots of the rt_exec, so a call with the same shapes as the frame's last one evaluates no size
 * expression and allocates nothing: and a call with the very buffers of the last one (exec_again.c)
 * checks only that they are: a one-element chain costs under 50 ns. With a queue in the options, calls are put on that
 * device. */
#include "ir/plan.h"
#include "rt/cache.h"
#include "rt/fpenv.h"
#include "rt/probes.h"
#include "rt/profile.h"

typedef struct rt_exec rt_exec; /* counted */

/* The reference evaluator's entry, handed in by src/fusor.c (rt does not know src/ref). Tensors are contiguous. */
typedef struct rt_tensor {
    ir_dtype dtype;
    int rank;
    int64_t shape[IR_MAX_RANK];
    void *data;
} rt_tensor; /* same layout as ref_tensor; asserted in fusor.c */
typedef fusor_status (*rt_reference_fn)(const ir_graph *g, fu_error *e, const ir_node *n, const rt_tensor *in,
                                        rt_tensor *out, const int64_t *symbol_values);

typedef struct rt_exec_options {
    int n_threads; /* >= 1: used as it is */
    void (*parallel_for)(void *user, int64_t n, void (*task)(void *arg, int64_t index), void *arg); /* NULL: OpenMP */
    void *parallel_user;
    void *(*allocate)(void *user, size_t bytes, size_t align); /* NULL: rt/buffer.c's pool */
    void (*deallocate)(void *user, void *p, size_t bytes);
    void *memory_user;
    rt_reference_fn reference;
    struct rt_queue *queue; /* borrowed; NULL: the CPU. Else the plan's GPU kernels are put on it: exec_device.h */
    bool is_layout_only;    /* no kernel is found or made: sizes and memory of calls only (exec_peak) */
    /* Runs a kernel step instead of code of the cache: all phases, on the device that has it. */
    fusor_status (*launch)(void *user, fu_error *e, const ir_kernel *k, const ir_kernel_args *args);
    void *launch_user;
    const fu_log *log;              /* borrowed for the exec's life */
    _Atomic(rt_profile *) *profile; /* borrowed; NULL, or where a profile may appear */
} rt_exec_options;

/* Per compile: what each step's kernel cost to get. */
typedef struct rt_step_info {
    rt_cache_outcome outcome;
    const rt_kernel *kernel; /* NULL for steps without a kernel; borrowed */
} rt_step_info;

/* Takes the plan's arena over (the plan, its graph and all descriptions live in it) and frees it with the exec. Every
 * kernel is found or made now. On failure the arena stays the caller's. cache: borrowed, must outlive the exec (the
 * context is held by it). */
fusor_status rt_exec_new(fu_error *e, fu_arena *arena, ir_plan *plan, rt_cache *cache, const rt_exec_options *options,
                         rt_exec **out);
rt_exec *rt_exec_keep(rt_exec *x);
void rt_exec_release(rt_exec *x);

/* A new exec with the named parameters (indices) fixed: contents copied (and packed by the first call, where a
 * contraction's operand 1 or a convolution's weights are read from that parameter alone: ir_step.prepack_param). Its
 * calls take the remaining inputs in order. */
fusor_status rt_exec_bind(rt_exec *x, fu_error *e, int n, const int *param, const fusor_buffer *values, rt_exec **out);
/* The parameters that `from`, of the same program, has bound, to the same values. */
fusor_status rt_exec_bind_as(rt_exec *x, fu_error *e, const rt_exec *from, rt_exec **out);
bool rt_exec_is_bound(const rt_exec *x, int param);

/* Is any bit set that no flag has? who, name: whose. */
fusor_status rt_check_flags(fu_error *e, const char *who, const char *name, const fusor_buffer *b);
/* First and last element of one with strides that is not empty, from its data; false where an offset leaves 64 bits. */
bool rt_find_range(const fusor_buffer *b, int64_t *low, int64_t *high);
/* Do two tensors, of known types and sizes, share a byte; do two elements of one? The strides stay in the address
 * space. */
bool rt_buffers_overlap(const fusor_buffer *a, const fusor_buffer *b);
bool rt_buffer_overlaps_itself(const fusor_buffer *b);
/* Inputs in parameter order without bound ones. FUSOR_STRIDED inputs that are not contiguous are packed into frame
 * memory first, strided outputs are computed into frame memory and scattered. Outputs with data == NULL get pool memory
 * (fusor_buffer_free). Checks: dtype, rank, sizes (ir_bind_sizes), NULL data, READONLY outputs, alias rules and
 * overlaps (exec_buffer.c). */
fusor_status rt_exec_call(rt_exec *x, fu_error *e, int n_in, const fusor_buffer *in, int n_out, fusor_buffer *out);
/* dtype, rank and shape of every output for inputs of these shapes (data is not read). */
fusor_status rt_exec_infer(rt_exec *x, fu_error *e, int n_in, const fusor_buffer *in, int n_out, fusor_buffer *out);

/* The values of the named sizes for inputs of these shapes, by symbol. */
fusor_status rt_exec_symbols(rt_exec *x, fu_error *e, int n_in, const fusor_buffer *in, int64_t *values_out);

const ir_plan *rt_exec_plan(const rt_exec *x);
int rt_exec_n_inputs(const rt_exec *x); /* without bound ones */
const rt_step_info *rt_exec_step(const rt_exec *x, int step);
/* Prepared calls: buffers checked once. */
typedef struct rt_call rt_call;
fusor_status rt_call_new(rt_exec *x, fu_error *e, int n_in, const fusor_buffer *in, int n_out, fusor_buffer *out,
                         rt_call **call_out);
/* Runs where nothing but kernels on one thread has to run, which is known from the first run on; false: nothing was
 * done, or it failed, so rt_call_run is due. Some 15 ns for a small chain. */
bool rt_call_again(const rt_call *c);
/* What a repetition is where it is one launch: all of it, so that the caller needs to go nowhere else. fn is NULL where
 * a run has more to do, or was not yet. Valid as long as the call. */
typedef struct rt_again {
    ir_kernel_fn fn;
    const ir_kernel_args *args;
    int64_t tiles;
    _Atomic(rt_profile *) *profile; /* as in rt_exec_options */
    const char *symbol;
    int n_phases;
} rt_again;
rt_again rt_call_single(const rt_call *c);
/* As rt_call_again. */
static inline bool rt_again_run(const rt_again *a) {
    if (!a->fn || __builtin_expect(rt_fpenv_is_other(), 0)) return false;
    if (a->profile && __builtin_expect(atomic_load_explicit(a->profile, memory_order_acquire) != NULL, 0)) return false;
    RT_PROBE_RUN(a->symbol, a->n_phases, a->tiles);
    return __builtin_expect(a->fn(a->args, 0, a->tiles) == 0, 1);
}
fusor_status rt_call_run(rt_call *c, fu_error *e);
void rt_call_free(rt_call *c);
/* One call over many sets of buffers, checked once (exec_each.c): every kernel of the plan is launched once, over the
 * tiles of all sets. A list has a buffer a set, or one for all sets (inputs only). Fails with the number of the set in
 * the message. */
typedef struct rt_each rt_each;
typedef struct rt_buffers {
    fusor_buffer *at;
    int64_t n;
} rt_buffers;
fusor_status rt_each_new(rt_exec *x, fu_error *e, int64_t n_sets, int n_in, const rt_buffers *in, int n_out,
                         const rt_buffers *out, rt_each **each_out);
fusor_status rt_each_run(rt_each *c, fu_error *e);
void rt_each_free(rt_each *c);
/* One program over the steps of a sequence (exec_scan.c), checked once; a step allocates nothing. Outputs with data
 * NULL get memory. */
typedef struct rt_scan rt_scan;
typedef struct rt_carry {
    int32_t input, output;
} rt_carry; /* numbers of inputs, without bound ones, and of results */
fusor_status rt_scan_new(rt_exec *x, fu_error *e, int64_t n_steps, int n_carries, const rt_carry *carries, int n_in,
                         const fusor_buffer *in, int n_out, fusor_buffer *out, rt_scan **scan_out);
fusor_status rt_scan_run(rt_scan *c, fu_error *e);
void rt_scan_free(rt_scan *c);
/* Bytes of temps and scratch that a call with these sizes needs (on a device: of its memory); -1 where a size
 * overflows. */
int64_t rt_exec_peak_bytes(const rt_exec *x, const int64_t *symbol_values);
#endif
