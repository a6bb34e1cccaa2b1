/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H
/* A driver of CUDA for tests: the functions of src/rt/cuda_api.def over the interpreter of PTX, built as
 * libcuda_fake.so. tests/cuda/README.md has its environment.
 *
 * fake_device.c   calls, their faults and counts; devices, contexts
 * fake_memory.c   memory: addresses that the host cannot read, a table of what is allocated
 * fake_stream.c   streams and events: queues of work that run when somebody waits
 * fake_copy.c     copies: what of them happens at once
 * fake_module.c   modules, functions, launches, the linker
 *
 * One mutex is held in every call; work runs in the thread that waits for it. What the real driver leaves undefined (a
 * freed handle, memory freed while it is in use) is an error here, with a line on stderr. */
#include "ptx.h"
#include "rt/cuda_api.h"

#define CUDA(NEED, SYMBOL, PARAMETERS) __attribute__((visibility("default"))) cu_result SYMBOL PARAMETERS;
#include "rt/cuda_api.def"
#undef CUDA
enum {
#define CUDA(NEED, SYMBOL, PARAMETERS) FAKE_##SYMBOL,
#include "rt/cuda_api.def"
#undef CUDA
    FAKE_CALLS
};
/* For tests, by dlsym. How often a function was called; -1: there is none of that name. */
__attribute__((visibility("default"))) long fake_cuda_count(const char *name);
/* What is alive: "memory", "bytes" (of it), "host", "stream", "event", "module", "link"; "pending": work that has not
 * run. */
__attribute__((visibility("default"))) long fake_cuda_live(const char *kind);
/* The last error's text, as on stderr; "" where there was none. */
__attribute__((visibility("default"))) const char *fake_cuda_said(void);

enum { FAKE_MAX_DEVICES = 8, FAKE_MULTIPROCESSORS = 8, FAKE_MAX_STATIC = 48 << 10 };
typedef enum fake_order { FAKE_LAZY, FAKE_EAGER, FAKE_REVERSE } fake_order;

typedef struct fake_allocation {
    cu_address base;
    size_t bytes;
    uint8_t *host;
    uint8_t *touched; /* a byte for 64 KiB that have been written or poisoned; NULL: all are */
    bool is_async, is_reached, is_freed;
    int number;
} fake_allocation;
typedef struct cu_context_st {
    struct fake_device *device;
    int uses;
    cu_result dead;            /* the code that every call gives from then on */
    struct cu_stream_st *base; /* stream 0 */
} fake_context;
typedef struct fake_device {
    int ordinal, cc;
    uint8_t *reserved;
    size_t reserved_bytes, next;
    fake_allocation *list; /* by address; freed ones stay */
    int n_list, n_room, found;
    size_t used;
    fake_context context;
} fake_device;

/* A point of a stream, that an event was recorded at. */
typedef struct fake_mark {
    struct cu_stream_st *stream;
    bool is_done;
    int64_t at_ns;
    int uses;
} fake_mark;
typedef enum fake_kind { FAKE_COPY, FAKE_FILL, FAKE_LAUNCH, FAKE_RECORD, FAKE_WAIT, FAKE_ALLOC, FAKE_FREE } fake_kind;
typedef struct fake_work {
    fake_kind kind;
    struct fake_work *next;
    cu_result fault;        /* given when it runs */
    cu_address to, from;    /* COPY, FILL, ALLOC and FREE (to) */
    fake_device *to_device; /* NULL: the host */
    fake_device *from_device;
    size_t bytes;
    uint8_t value, *staged; /* FILL; COPY from pageable memory: its contents */
    fake_mark *mark;
    struct cu_function_st *function;
    uint32_t grid[3], block[3], shared;
    uint8_t *params;
} fake_work;
typedef struct cu_stream_st {
    struct cu_stream_st *next;
    fake_context *context;
    unsigned flags;
    int number;
    fake_work *first, *last;
    bool is_running;
} fake_stream;

typedef struct fake_settings {
    int n_devices, cc, ptx, version, init;
    size_t memory;
    fake_order order;
    bool is_quiet, says_leaks;
} fake_settings;
extern fake_settings fake_set;
extern fake_device fake_devices[FAKE_MAX_DEVICES];

/* ---- calls: CALL(name, what it needs) first in each ---- */
typedef enum fake_need { FAKE_NOTHING, FAKE_INITIALIZED, FAKE_CONTEXT } fake_need;
typedef struct fake_call {
    fake_context *context; /* the current one, where one is needed */
    cu_result result;      /* not 0: give it */
    cu_result late;        /* give it when the work runs */
} fake_call;
fake_call fake_enter(int function, fake_need need);
void fake_leave(fake_call *c);
#define CALL(NAME, NEED)                                                                                               \
    __attribute__((cleanup(fake_leave))) fake_call call = fake_enter(FAKE_##NAME, FAKE_##NEED);                        \
    if (call.result) return call.result
/* A line on stderr, kept for fake_cuda_said; gives code back. */
cu_result fake_say(cu_result code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same; from now on the context gives code to every call. */
cu_result fake_kill(fake_context *c, cu_result code, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool fake_is_sticky(cu_result code);
int64_t fake_now_ns(void);
int fake_limit_of_shared(int cc);

/* ---- memory ---- */
bool fake_memory_open(fake_device *d);
/* Host memory behind an address of the device, or of pinned host memory; NULL with a text (room for PTX_ERROR_ROOM). */
uint8_t *fake_memory_at(fake_device *d, cu_address at, uint64_t bytes, char *why);
fake_allocation *fake_memory_find(cu_address at, fake_device **device);
void fake_memory_reach(fake_device *d, cu_address base);
cu_result fake_memory_free(fake_device *d, cu_address base, const char *how);
void fake_memory_drop(fake_device *d); /* all of it */
/* Is it pinned host memory, and all of it? */
bool fake_is_pinned(const void *p, size_t bytes, bool *is_all);
long fake_memory_live(const char *kind);

/* ---- streams ---- */
fake_stream *fake_stream_of(fake_call *c, cu_stream handle); /* NULL: c->result says why */
cu_result fake_put(fake_call *c, fake_stream *s, fake_work w);
cu_result fake_run(fake_stream *s); /* all of its work */
cu_result fake_run_all(fake_context *c);
void fake_drop(fake_context *c); /* work, without running it */
fake_stream *fake_stream_base(fake_context *c);
void fake_streams_forget(fake_context *c);
bool fake_is_pending(bool (*uses)(const fake_work *w, const void *what), const void *what, int *stream);
long fake_stream_live(const char *kind);
cu_result fake_work_copy(fake_context *c, const fake_work *w);

/* ---- modules ---- */
cu_result fake_module_launch(fake_context *c, const fake_work *w);
long fake_module_live(const char *kind);
#endif
