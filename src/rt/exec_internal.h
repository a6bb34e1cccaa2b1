/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_EXEC_INTERNAL_H
#define RT_EXEC_INTERNAL_H
/* Inside the executor: what is shared by exec.c (life, binding, calls), exec_kernels.c (the kernels of a plan),
 * exec_frame.c (sizes, memory, running), exec_buffer.c (the caller's buffers), exec_check.c (checks of indices),
 * exec_each.c (one call over many sets of buffers), exec_scan.c (over a sequence), exec_again.c (a call repeated) and
 * exec_device*.c (on a device, which exec_device.h is about). */
#include "ir/gpu.h"
#include "rt/exec.h"
#include "rt/trace.h"
#include "rt/threads.h"
#include <stdatomic.h>

/* Operand 1 of a contraction, or a convolution's weights, packed once. */
typedef struct packed {
    void *data;
    size_t bytes;
} packed;
/* A bound parameter: a contiguous copy, counted, shared by every exec that is derived from the one that bound it. */
typedef struct bound_param {
    atomic_int refs;
    rt_exec_options options; /* whose memory it is */
    fusor_buffer value;
    size_t bytes;
    int n_steps, order;        /* order: how many were bound before */
    _Atomic(packed *) *packed; /* by step; made by the first call that needs it */
    uint64_t device_at;        /* with a queue: the copy that kernels read; 0: none does. value.data may be NULL then */
} bound_param;
typedef struct device_core device_core;
typedef struct device_frame device_frame;

/* What all execs of one plan share. */
typedef struct core {
    atomic_int refs;
    fu_arena arena; /* owned: the plan and everything in it */
    ir_plan *plan;
    rt_exec_options options;
    int n_params, n_results, n_steps, n_buffers;
    int first_part; /* plan buffer that lies in another one; n_buffers: none does */
    uint32_t n_symbols;
    rt_step_info *info; /* by step; the kernels are held */
    bool *normalizes;   /* by param: bool elements must become 0 or 1, since not only kernels read them */
    int *alias_of;      /* by param: the result written over it; -1 */
    bool logs_run;
    atomic_int *profile_entry; /* by step; 0: none yet, -2: being made, else as rt_profile_add */
    rt_cache *cache;           /* borrowed */
    device_core *device;       /* NULL: the plan runs on the CPU */
} core;

enum { SPARE_FRAMES = 16 };
typedef struct frame frame;
struct rt_exec {
    atomic_int refs;
    core *core;
    bound_param **bound; /* by param; NULL = not bound */
    int n_inputs;
    int *input_param; /* by input */
    _Atomic(frame *) spare[SPARE_FRAMES];
};

typedef struct frame_step {
    ir_kernel_args args;
    ir_launch launch;
    ir_gpu_launch gpu; /* instead of it, where the plan is for a GPU */
    int n_threads;
    bool is_prepacked; /* phase 0 is left out */
    bool may_stream;   /* a map for whose sizes stores are to be non-temporal */
    void **buffer;
    int64_t *size, *stride, *offset_bytes;
    uint64_t *scalar;
    rt_tensor *tensor; /* REFERENCE */
    int64_t axis_size, n_indices; /* CHECK */
    bool has_cost;     /* of these sizes, for a profile */
    ir_cost cost;
} frame_step;

/* One end of a call: an input or output as the caller gave it. */
typedef struct call_end {
    fusor_buffer user; /* stride filled in also where it was contiguous */
    bool is_staged;    /* packed from, or scattered to, `user` */
    bool is_new;       /* output: memory made by this call */
    char *low, *high;  /* bytes it may touch */
    bool is_dense;     /* contiguous */
    bool is_device;    /* `user` is memory of the queue's device */
    void *staging;
    size_t staging_bytes;
} call_end;

/* One phase of a kernel on one thread, with all that its code is given. */
typedef struct again_launch {
    ir_kernel_fn fn;
    int64_t tiles;
    const char *symbol;
    int n_phases; /* of the kernel; 0 where it is not its first launch */
    ir_kernel_args args;
} again_launch;
typedef enum again_state { AGAIN_UNKNOWN, AGAIN_NO, AGAIN_YES } again_state;

struct frame {
    rt_exec *x;           /* borrowed */
    again_state again_is; /* of these ends: can a repetition be the launches below and nothing else? */
    int n_again;
    again_launch *again;
    _Atomic(rt_profile *) *profile; /* as in rt_exec_options */
    fu_arena arena;
    bool is_evaluated;
    int64_t (*shape)[IR_MAX_RANK]; /* by param, of the last evaluation */
    const int64_t **shapes;        /* pointers into it */
    int64_t *symbols;
    int64_t (*dim)[IR_MAX_RANK]; /* by plan buffer */
    int64_t *count, *bytes;
    int64_t *temp_at; /* offset in memory; temps and literals; of parts of an output -1 */
    int64_t *part_at; /* first byte of a part, in the buffer that it is a part of (ir_plan_buffer.part_of) */
    void **base;      /* where each plan buffer is in this call */
    frame_step *step;
    call_end *in, *out; /* by param, by result */
    fusor_buffer *last; /* inputs then outputs of the last call that passed all checks, where every output had memory */
    bool has_last;
    device_frame *device; /* NULL: on the CPU */
    char *memory;
    size_t memory_bytes, need_bytes, shared_at, kept_at, scratch_at, scratch_stride;
};

/* exec_kernels.c: c->info's kernels and outcomes. */
fusor_status exec_find_kernels(core *c, fu_error *e);

/* exec_frame.c */
fusor_status exec_frame_new(rt_exec *x, fu_error *e, frame **out);
void exec_frame_free(frame *f);
/* Evaluates every size for f->shape; with_memory: and makes the memory that a run needs. */
fusor_status exec_evaluate(frame *f, fu_error *e, bool with_memory);
/* Bytes that a run with these symbol values needs; -1 where a size overflows. Makes no memory. */
int64_t exec_peak(frame *f, fu_error *e, const int64_t *symbol_values);
/* Runs all steps, or one; ends are prepared. exec_complete: with what is copied in before and out behind, on the CPU or
 * a device. */
fusor_status exec_run(frame *f, fu_error *e);
fusor_status exec_run_step(frame *f, fu_error *e, int number);
fusor_status exec_complete(frame *f, fu_error *e);
/* A step of kind REFERENCE; at: where each plan buffer is in the host's memory. */
fusor_status exec_run_reference(frame *f, fu_error *e, int number, void *const *at);
/* The profile that is on, or NULL; and counts one run of a step, of any frame of the exec. */
rt_profile *exec_profile(const core *c);
void exec_profile_step(frame *f, rt_profile *p, int number, int64_t begin_ns, int64_t end_ns);
/* Number + 1 of the step's entry, made when it is not there; -1, -2: none. */
int exec_profile_entry(const core *c, rt_profile *p, int number);
/* Points a kernel step at the call's memory; its phases may then run. */
fusor_status exec_aim_kernel(frame *f, fu_error *e, int number);
/* One phase of one kernel: the `user` of exec_run_tiles. */
typedef struct exec_phase {
    const frame_step *s;
    ir_kernel_fn fn;
    char *scratch; /* of worker 0; the others' follow */
    size_t scratch_stride;
    uint32_t phase;
    atomic_int *code;       /* of the step: what a kernel returned that was not 0 */
    struct rt_trace *trace; /* NULL: no events are kept */
    int entry;              /* of the profile, for the trace */
} exec_phase;
void exec_run_tiles(void *user, int worker, int64_t begin, int64_t end);
void exec_packed_free(const rt_exec_options *options, packed *p);

/* exec_again.c. After a run of the frame: decides how it is repeated; and repeats it, true when done. */
void exec_again_make(frame *f);
bool exec_again(const frame *f);
rt_again exec_again_single(const frame *f); /* fn is NULL: it is more than one launch */

/* Need the step not run, since what it makes of bound constants is packed? */
bool exec_is_done(const frame *f, int number);
/* A size of the plan. Errors: SHAPE. */
fusor_status exec_size(const frame *f, fu_error *e, ir_size s, int64_t *out);
/* Threads for so much work (rt_tune_work) on the host: all, or one. */
int exec_team(const rt_exec_options *o, int64_t work);
/* exec_check.c: a step of kind CHECK; data: its buffer, in the host's memory. */
fusor_status exec_check_indices(const frame *f, fu_error *e, int number, const void *data);

/* exec_buffer.c */
/* Is b usable as parameter p? Fills *out but for staging; data is looked at where needs_data. */
fusor_status exec_check_input(const core *c, fu_error *e, int p, const fusor_buffer *b, bool needs_data, call_end *out);
/* May a result be written to given->data, as far as sizes do not matter? Type and rank are known to be right. */
fusor_status exec_check_place(const core *c, fu_error *e, int r, const fusor_buffer *given);
/* Outputs against evaluated sizes; memory for those without; overlaps. What it made is given back by exec_drop_outputs.
 */
fusor_status exec_prepare_outputs(frame *f, fu_error *e, const fusor_buffer *out);
void exec_drop_outputs(frame *f);
void exec_give_outputs(const frame *f, fusor_buffer *out);
fusor_status exec_stage_inputs(frame *f, fu_error *e); /* makes staging memory and sets f->base; see exec_copy_in */
void exec_copy_in(frame *f);
void exec_copy_out(frame *f);
/* Contiguous <-> strided; elements of `bytes` bytes. */
void exec_gather(void *dst, const fusor_buffer *src, size_t bytes);
void exec_scatter(const fusor_buffer *dst, const void *src, size_t bytes);
void exec_normalize_bool(uint8_t *p, int64_t n);
void exec_fill_shape(const frame *f, int result, fusor_buffer *out);
/* Memory of a result of these bytes, on out's device, for rt_buffer_release; NULL: none, which is reported. */
void *exec_output_get(const core *c, fu_error *e, const fusor_buffer *out, const char *name, int64_t bytes);
/* The plan buffer with memory of its own that b lies in, and b's first byte there; b: it is that itself. */
int exec_whole(const frame *f, int b, int64_t *at);
/* Where end n of plan buffer b is from now on, and its parts: f->base, and the host's address for exec_device_run.c. */
void exec_aim_end(frame *f, int b, const call_end *n);
/* Do two ends share a byte? Exact also where strides interleave. */
bool exec_ends_overlap(const call_end *a, const call_end *b);
bool exec_overlaps_itself(const call_end *n);
/* Fills in strides, range and is_dense of n->user; false where an offset leaves the address space. */
bool exec_measure(call_end *n);

/* exec.c */
/* A contiguous copy of value, of any device, in the host's memory. */
fusor_status exec_bind_host(const core *c, fu_error *e, bound_param *b, const fusor_buffer *value);
fusor_status exec_prepare(frame *f, fu_error *e, int n_in, const fusor_buffer *in, int n_out, const fusor_buffer *out);
#endif
