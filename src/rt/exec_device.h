/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_EXEC_DEVICE_H
#define RT_EXEC_DEVICE_H
/* The executor on a device (rt_exec_options.queue). A call is put on the queue: uploads of what kernels read and the
 * host has, the kernels, downloads of results that the host wants. It waits only for what the host needs: results
 * there, steps of the reference evaluator, checks of indices.
 *
 *   fusor_buffer.device   an input                                        an output
 *   0                     uploaded by each call, packed before            downloaded, then scattered where it is strided
 *   the queue's           used where it is; strided: packed by a kernel   written where it is, not waited for; strided:
 *                                                                         a kernel scatters it; data NULL: memory of
 *                                                                         the queue's pool
 *   another               through the host; contiguous only               the same; data NULL: refused
 *
 * Small inputs that the host has (scalars, most of them) go there together, by one copy.
 *
 * Memory of a call (temps, scratch, copies of ends) is taken from the queue's pool when the call begins and given back
 * when everything is put on the queue: what comes later on it runs later. So executables share it, and a call with
 * device buffers that is repeated puts launches on the queue and nothing else. */
#include "rt/exec_internal.h"
#include "rt/device.h"

enum { ON_HOST = 1, ON_DEVICE = 2 }; /* where the contents of a plan buffer are, at some point of a call */

/* A kernel that no step of the plan is, and what the device loaded of it. */
typedef struct loaded_kernel {
    rt_kernel *kernel;
    rt_device_kernel *device;
    ir_kernel *text; /* of a copy's; else NULL */
} loaded_kernel;
enum { PACK_TYPES = 5, PACK_RANKS = 9 }; /* of elements: 1, 2, 4, 8 bytes, bool */

/* Arguments of one launch for many steps, as the device has them and as this call wants them. */
typedef struct device_table {
    rt_address at;
    size_t bytes;        /* there */
    uint64_t *now, *old; /* old: what is there */
    size_t now_room, old_room, n_now, n_old, index_words;
} device_table;

struct device_core {
    rt_device *device;
    int number;                  /* as fusor_buffer.device: 1 + ordinal */
    rt_device_kernel **kernel;   /* by step; NULL: not a kernel */
    bool *kernels_use;           /* by plan buffer: a kernel or a copy reads or writes it */
    bool has_work;               /* it does for some */
    rt_address literals;         /* all of them, or 0 */
    rt_address *literal_at;      /* by plan buffer */
    atomic_int profile_entry[2]; /* of uploads, of downloads; as core.profile_entry */
    _Atomic(loaded_kernel *) pack[PACK_TYPES][PACK_RANKS];
    _Atomic(loaded_kernel *) *each; /* by step: the kernel for many sets; its device NULL: cannot be had */
    int *group;                     /* by step that begins a launch: of how many steps it may be */
};

/* A pair of marks around one piece of the device's work, while a profile is on. */
enum { MARK_UPLOAD = -1, MARK_DOWNLOAD = -2 };
typedef struct device_mark {
    int from, to; /* to -1: it did not come to that, and counts for nothing */
    int what;     /* step, or MARK_ */
    int n;        /* kernels of the launch: of `sets`, or of the steps from `what` on */
    const struct device_item *sets;
    size_t bytes;
} device_mark;

struct device_frame {
    rt_address memory; /* of the call that runs: temps and scratch */
    rt_address *end;   /* by param, then result: the copy of an end, of this call; 0: there is none */
    rt_address small;  /* of this call: the small inputs that came together; 0: none did */
    char *small_host;  /* the same bytes here */
    size_t small_room;
    uint8_t *valid; /* by plan buffer: ON_HOST | ON_DEVICE */
    void **host;    /* by plan buffer: its place in the host's memory */
    void **own;     /* by plan buffer: memory for that, where it is no end's */
    size_t *own_bytes;
    uint64_t *words;     /* room for the parameter of any step */
    device_table *table; /* by step: of the group that begins there */
    bool downloads;      /* results are on the way to the host's memory */
    device_mark *mark;
    int n_marks, mark_room;
    rt_profile *profile; /* that is on in this call, or NULL */
    int64_t begin_ns;    /* of the call, while a profile is on */
};

/* exec_device.c: life. start: after the kernels were found; stop: also of what was never started. */
fusor_status exec_device_start(core *c, fu_error *e);
void exec_device_stop(core *c);
device_frame *exec_device_frame(frame *f); /* of f->arena */
void exec_device_frame_free(frame *f);
/* Copies value to where the parameter is read: the device, or the host, or both. */
fusor_status exec_device_bind(const core *c, fu_error *e, int param, bound_param *b, const fusor_buffer *value);
bool exec_device_takes(const core *c, const fusor_buffer *b);
bool exec_device_is_own(const core *c, const fusor_buffer *b);
const char *exec_device_expected(const core *c); /* "0, the CPU", ... */
void *exec_device_output_get(const core *c, fu_error *e, const fusor_buffer *out, const char *name, int64_t bytes);
/* Tells the frame where an end is: its place in the host's memory, or none. */
void exec_device_aim(frame *f, int b, const call_end *n);

/* exec_device_run.c. call: all of it. enqueue_call: everything but the last wait; *waits_out: results for the host are
 * on the way, and rt_queue_wait is due before hand_out, which gives them to the caller's buffers. */
fusor_status exec_device_call(frame *f, fu_error *e);
fusor_status exec_device_enqueue_call(frame *f, fu_error *e, bool *waits_out);
fusor_status exec_device_hand_out(frame *f, fu_error *e);
/* What enqueue_call is made of, for many frames at once: begin_call, the steps, end_call, which is due whatever
 * failed. */
fusor_status exec_device_begin_call(frame *f, fu_error *e);
fusor_status exec_device_run_step(frame *f, fu_error *e, int step);
fusor_status exec_device_end_call(frame *f, fu_error *e, fusor_status so_far, bool *waits_out);
/* A kernel step of each frame, as one launch where that is possible. */
typedef struct device_item {
    frame *f;
    int step;
} device_item;
fusor_status exec_device_run_as_one(const core *c, fu_error *e, device_table *t, const device_item *item, int n);

/* exec_device_each.c. group: how many steps from this one on, with itself, are kernels of one description that do not
 * use each other's results. launch_each: the items' buffers are on the device and aimed at; *done_out false: they are
 * to be launched one by one. */
int exec_device_group(const core *c, int first);
fusor_status exec_device_launch_each(const core *c, fu_error *e, device_table *t, const device_item *item, int n,
                                     bool *done_out);
void exec_device_table_free(const core *c, device_table *t);

/* exec_device_profile.c: begin returns what end takes; nothing is done, nor fails, where no profile is on. close: after
 * everything was put on the queue: waits, and counts; or only frees the marks. */
void exec_device_profile_start(frame *f);
int exec_device_mark_begin(frame *f, int what, size_t bytes);
void exec_device_mark_end(frame *f, int mark);
/* Of one launch for all items, whose time is shared out evenly. Those of several frames are borrowed until close. */
void exec_device_mark_end_all(const device_item *item, int n, int mark);
void exec_device_profile_close(frame *f, bool counts);

/* exec_device_copy.c: elements of buffers of any device, strided or not.
 * pack: dense (an address of the queue's device) from or to a buffer of the same device; bool elements become 0 or
 * 1. */
fusor_status exec_device_pack(const core *c, fu_error *e, const fusor_buffer *b, rt_address dense, bool is_gather);
void exec_device_pack_free(loaded_kernel *p);
/* A device's buffer to dense memory of the host, and back; both wait. Strides filled in. */
fusor_status exec_device_bring(const core *c, fu_error *e, const fusor_buffer *from, void *to);
fusor_status exec_device_send(const core *c, fu_error *e, const fusor_buffer *to, const void *from);

/* A dense copy on the queue's device of a buffer that is elsewhere. load and store: nothing where copy.data is NULL;
 * store waits. */
typedef struct device_mirror {
    fusor_buffer user, copy;
    size_t bytes;
} device_mirror;
fusor_status exec_device_mirror(const core *c, fu_error *e, const fusor_buffer *user, device_mirror *out);
fusor_status exec_device_mirror_load(const core *c, fu_error *e, const device_mirror *m);
fusor_status exec_device_mirror_store(const core *c, fu_error *e, const device_mirror *m);
void exec_device_mirror_drop(const core *c, device_mirror *m);
#endif
