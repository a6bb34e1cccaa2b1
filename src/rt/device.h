/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_DEVICE_H
#define RT_DEVICE_H
/* CUDA devices: memory, copies and kernels in the order of a queue. The executor (exec_device.c) knows CUDA through
 * this alone.
 *
 * A device is opened once in a process (its primary context, shared with other users of CUDA) and never closed. A queue
 * has a stream for kernels and one for each direction of copies; what is put on it takes effect as if one after the
 * other, and what does not depend on each other overlaps. Nothing is done until it has to be: a call returns when its
 * work is enqueued, and only rt_queue_wait and downloads wait. Threads: devices from any; a queue from any, a call at a
 * time (a mutex inside). An error of the device's work is reported by the next wait; one that kills the context
 * (illegal address ...) is reported by every call on the device from then on. */
#include "base/error.h"
#include "ir/target.h"
#include "rt/cache.h"

typedef struct rt_device rt_device;
typedef struct rt_queue rt_queue;
typedef uint64_t rt_address; /* of a device's memory; 0: none */

typedef struct rt_device_info {
    int ordinal; /* 0-based, of the driver: CUDA_VISIBLE_DEVICES counts */
    char name[128], uuid[48];
    int cc;           /* compute capability: 90 for 9.0 */
    ir_target target; /* that code is generated for: the best of ir/gpu.def that the device takes; IR_LEVEL_END: none */
    int multiprocessors, clock_khz, memory_clock_khz, memory_bus_bits, driver_version; /* 13000 for 13.0 */
    int shared_bytes; /* of a block, at most (opted in) */
    int64_t memory_bytes, l2_bytes;
    bool is_integrated;
} rt_device_info;

/* How many devices there are; *n_out = 0 with e filled in says why none. */
fusor_status rt_device_count(fu_error *e, int *n_out);
/* What it is, without opening it (no context is made). Errors: as rt_device_open, but for the compute capability. */
fusor_status rt_device_describe(fu_error *e, int ordinal, rt_device_info *out);
/* Errors: DEVICE: no driver, no such device (the message says how many there are), a compute capability below 7.0. */
fusor_status rt_device_open(fu_error *e, int ordinal, rt_device **out);
const rt_device_info *rt_device_get_info(const rt_device *d);
/* Bytes free now, with what the pool would give back. */
fusor_status rt_device_free_bytes(rt_device *d, fu_error *e, int64_t *bytes_out);

/* A kernel's module on a device: PTX of the cache's kernel (rt_kernel.ptx), or the cubin that was made of it before and
 * kept beside it. Counted with k. Errors: DEVICE (with the driver's log), MEMORY. */
typedef struct rt_device_kernel {
    int registers, shared_bytes, local_bytes; /* static; local: spilled and arrays, a thread */
    int64_t load_ns;
    bool is_from_cubin;
} rt_device_kernel; /* begins the real one */
fusor_status rt_device_kernel_get(rt_device *d, fu_error *e, rt_kernel *k, rt_device_kernel **out);
void rt_device_kernel_release(rt_device_kernel *k); /* NULL is allowed */

/* Cost: some 50 microseconds. */
fusor_status rt_queue_new(rt_device *d, fu_error *e, rt_queue **out);
void rt_queue_free(rt_queue *q); /* waits; NULL is allowed */
rt_device *rt_queue_device(const rt_queue *q);

/* Memory of the device's pool, 256-byte aligned, for work that is put on q from now on. It is given back to the same
 * queue, and may be while work that was put on q before uses it still. bytes 0 counts as 1. Errors: MEMORY, with bytes
 * wanted and free. */
fusor_status rt_queue_get(rt_queue *q, fu_error *e, size_t bytes, rt_address *out);
void rt_queue_put(rt_queue *q, rt_address at); /* 0 is allowed */
/* The queue's RT_QUEUE_COUNTERS u32, which are 0: each kernel that counts in them leaves them so. */
enum { RT_QUEUE_COUNTERS = 16384 };
fusor_status rt_queue_counters(rt_queue *q, fu_error *e, rt_address *out);
/* Gives what nobody uses back to the driver. */
void rt_device_trim(rt_device *d);

/* Copies. upload: `from` may change when it returns. download: waits until it is done; to several ends:
 * rt_queue_download_later and one rt_queue_wait, until which `to` has not its contents; the wait is due where one of
 * them failed, too: `to` is left alone only after it. */
fusor_status rt_queue_upload(rt_queue *q, fu_error *e, rt_address to, const void *from, size_t bytes);
fusor_status rt_queue_download(rt_queue *q, fu_error *e, void *to, rt_address from, size_t bytes);
fusor_status rt_queue_download_later(rt_queue *q, fu_error *e, void *to, rt_address from, size_t bytes);
fusor_status rt_queue_copy(rt_queue *q, fu_error *e, rt_address to, rt_address from, size_t bytes);
fusor_status rt_queue_fill(rt_queue *q, fu_error *e, rt_address to, uint8_t value, size_t bytes);

/* One launch. param: the kernel's one parameter, copied now. shared_bytes: dynamic shared memory. */
typedef struct rt_launch {
    const rt_device_kernel *kernel;
    uint32_t grid[3], block[3], shared_bytes;
    const void *param;
    size_t param_bytes;
} rt_launch;
fusor_status rt_queue_launch(rt_queue *q, fu_error *e, const rt_launch *l);

/* Until everything that was put on q is done. Errors: DEVICE: of that work. */
fusor_status rt_queue_wait(rt_queue *q, fu_error *e);
/* Work put on q from now on waits for what was put on `other` until now (results of another queue of the same
 * device). */
fusor_status rt_queue_follow(rt_queue *q, fu_error *e, rt_queue *other);
/* Time of the device between two marks on q, both done; ids from rt_queue_mark. For profiles. */
fusor_status rt_queue_mark(rt_queue *q, fu_error *e, int *id_out);
fusor_status rt_queue_between(rt_queue *q, fu_error *e, int from, int to, int64_t *ns_out); /* frees both marks */
#endif
