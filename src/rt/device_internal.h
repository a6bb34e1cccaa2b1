/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_DEVICE_INTERNAL_H
#define RT_DEVICE_INTERNAL_H
/* What the files of devices share. Locks, in this order: a queue's, a device's pool_lock or kernel_lock; two queues' by
 * address. The driver is called under a queue's lock, and for memory under the pool's. */
#include "rt/cubin.h"
#include "rt/cuda_api.h"
#include "rt/device.h"
#include <pthread.h>
#include <stdatomic.h>

/* ---- device.c ---- */
typedef struct block block;
enum { POOL_CLASSES = 320, MODULE_BUCKETS = 64, SPARE_STAGES = 4 };
struct rt_device {
    rt_device_info info;
    const rt_cuda_api *cu;
    cu_device handle;
    cu_context context; /* the primary one, retained */
    rt_cubin_driver driver;
    atomic_int dead; /* cu_result that killed the context */
    /* device_pool.c; under pool_lock */
    pthread_mutex_t pool_lock;
    block **blocks; /* all, by address */
    size_t n_blocks, room;
    block *free_first[POOL_CLASSES], *free_last[POOL_CLASSES];
    size_t free_bytes, pool_bytes;
    rt_queue *queues;
    void *spare_stage[2][SPARE_STAGES]; /* pinned memory that queues left: small, large */
    /* device_kernel.c; under kernel_lock */
    pthread_mutex_t kernel_lock;
    pthread_cond_t landed; /* a module is loaded, or not */
    struct device_kernel *modules[MODULE_BUCKETS];
    int n_unused;
    uint64_t clock;
};
/* Errors: DEVICE: after a fork, of a context that died. Before any lock is taken: a fork may have left it held. */
fusor_status device_check(rt_device *d, fu_error *e);
/* Makes the device's context current (what was so is so again after device_leave). Errors: of device_check. */
fusor_status device_enter(rt_device *d, fu_error *e);
/* The same where nothing can be told; false: it is not current. */
bool device_enter_quietly(rt_device *d);
void device_leave(rt_device *d);
/* Records what a driver's function returned; what: "copying 12 bytes to the device". MEMORY for out of memory, else
 * DEVICE. */
fusor_status device_fail(rt_device *d, fu_error *e, cu_result code, const char *what, ...)
    __attribute__((format(printf, 4, 5)));
/* Notes a code that is not reported: one that killed the context is reported by the next call. */
void device_note(rt_device *d, cu_result code);

/* ---- device_queue.c ---- */
/* Streams of a queue. Position n of one: after its n-th operation. */
typedef enum { LANE_COMPUTE, LANE_UP, LANE_DOWN, N_LANES } lane_kind;
enum { LANE_MARKS = 8, STAGE_SLOTS = 4 };
typedef struct lane {
    cu_stream stream;         /* NULL: not made yet */
    uint64_t issued, done;    /* positions: of the last operation; up to which all is known to be done */
    uint64_t waited[N_LANES]; /* up to which position of the others it waits for them */
    struct {
        uint64_t at;
        cu_event event;
    } mark[LANE_MARKS]; /* positions that events were recorded at; the oldest is next */
    int next;
} lane;

/* What is on its way to memory of the caller. */
typedef struct piece {
    char *to;
    const char *from;
    size_t bytes;
} piece;
/* A ring of pinned memory: a slot is filled, closed with an event, and used again when that came. */
typedef struct stage {
    char *memory;
    size_t slot_bytes, used; /* used: of the slot `at` */
    int at;
    struct {
        cu_event event;
        bool is_pending;
        piece *pieces; /* of LANE_DOWN */
        int n, room;
    } slot[STAGE_SLOTS];
} stage;

typedef struct time_mark {
    cu_event event;
    bool is_used;
} time_mark;

struct rt_queue {
    rt_device *device;
    rt_queue *next; /* of the device; under its pool_lock */
    pthread_mutex_t lock;
    lane lane[N_LANES];
    stage stage[N_LANES];
    atomic_uint_fast64_t issued, done; /* operations of all lanes */
    _Atomic(rt_address) counters;      /* rt_queue_counters; 0: nobody has asked for them yet */
    uint64_t down_before_compute;      /* position of LANE_DOWN that the next operation of LANE_COMPUTE waits for */
    block **reading;                   /* held blocks that LANE_DOWN may still read */
    int n_reading, reading_room;
    time_mark *marks;
    int n_marks;
};
/* Locks the queue and enters its device; queue_end undoes that and hands s on. */
fusor_status queue_begin(rt_queue *q, fu_error *e);
fusor_status queue_end(rt_queue *q, fusor_status s);
fusor_status lane_open(rt_queue *q, fu_error *e, lane_kind k);
/* Work put on `to` from now on waits for position `at` of `from`. */
fusor_status lane_wait(rt_queue *q, fu_error *e, lane_kind to, lane_kind from, uint64_t at);
/* An event at the lane's last operation, where there is none yet. */
void lane_mark_quietly(rt_queue *q, lane_kind k);
/* Before an operation of LANE_COMPUTE, and after one of any lane. */
fusor_status queue_before_compute(rt_queue *q, fu_error *e);
void queue_issued(rt_queue *q, lane_kind k);
/* Waits for a lane; what it waited for is done then too. */
fusor_status lane_finish(rt_queue *q, fu_error *e, lane_kind k);

/* ---- device_copy.c ---- */
/* Hands what came from the device on to where it belongs; after a failure too nothing is on its way any more. */
fusor_status stage_drain(rt_queue *q, fu_error *e);
void stage_free(rt_queue *q, bool is_current);
/* Pinned memory that nobody uses goes back to the driver; the device's context is current, its pool's lock held. */
void stage_trim(rt_device *d);

/* ---- device_pool.c ---- */
struct block {
    rt_address at;
    size_t bytes;
    int class_index;
    bool is_held, is_uploaded; /* is_uploaded: was once the end of a copy on LANE_UP */
    rt_queue *owner;           /* whose work may use it; NULL: nobody's */
    uint64_t issued;           /* of owner, when it was given back */
    /* Positions of owner: of LANE_COMPUTE when it was got and when it was given back before; of the last download from
     * it. */
    uint64_t got_at, free_since, read_until;
    block *next;
};
/* The block of an address where q holds it, else NULL. Takes the pool's lock; what it returns is q's, under its
 * lock. */
block *pool_find(rt_queue *q, rt_address at);
/* The queue is done with everything: its blocks are nobody's. */
void pool_forget_queue(rt_device *d, rt_queue *q);

/* ---- device_kernel.c ---- */
typedef struct device_kernel {
    rt_device_kernel shown;
    rt_device *device;
    rt_kernel *kernel; /* held */
    cu_module module;
    cu_function function;
    atomic_int allowed_shared_bytes; /* dynamic, of a launch */
    /* under kernel_lock */
    int refs;
    bool is_loading;
    uint64_t used;
    struct device_kernel *next;
} device_kernel;
/* Before a launch with that much dynamic shared memory. */
fusor_status device_kernel_allow_shared(device_kernel *k, fu_error *e, uint32_t bytes);
#endif
