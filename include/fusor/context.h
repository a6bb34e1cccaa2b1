/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_CONTEXT_H
#define FUSOR_CONTEXT_H
/* fusor/context.h: a context holds a kernel cache, the thread count and the caller's callbacks. */
#include <fusor/type.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FUSOR_CACHE_ONLY = 1,        /* never load the code generation module (LLVM ends a process where malloc fails in the
                                       middle of its work): a miss is FUSOR_ERROR_MISS from compile */
    FUSOR_REFERENCE_ON_MISS = 2, /* the reference evaluator serves what would have to be compiled, with one log line */
    FUSOR_IGNORE_ENVIRONMENT =
        4, /* target, device, threads, cache and check are not taken from FUSOR_* variables (those for debugging,
                                       and FUSOR_CODEGEN, are the process's and still count) */
    FUSOR_START_UNFUSED =
        16, /* a program whose kernels are in no cache starts at once, one kernel an operator from the bundle that is installed
                                       with the library, while a thread compiles the fused kernels; the bits are the same. bind and prepared calls wait */
    FUSOR_FAST_MATH =
        8 /* faster functions of f32 and the halves, within 64 ULP instead of 2 to 4 (numerics.md); f64 stays as it is */
};

/** Options of a context. Start from FUSOR_CONTEXT_OPTIONS_INIT; zero and NULL mean the default, which the environment
 * may set. As with every struct of options that begins with its size: fields past it have their default, and 0 there is
 * the whole struct. */
typedef struct fusor_context_options {
    size_t   size;                  /* sizeof(fusor_context_options) */
    uint32_t flags;
    int32_t  n_threads;             /* of a call, and up to 16 of a compile (one with parallel_for). 1..1024; 0: FUSOR_THREADS, else min(OMP_NUM_THREADS, affinity, cgroup quota) */
    const char *device;             /* NULL: FUSOR_DEVICE, else "cpu". Or "cuda" (the first), "cuda:K", "reference", "auto" (device.h) */
    const char *target;             /* "x86-64-v3", "v4+vnni", of a GPU "sm_80" ...; NULL: FUSOR_TARGET, else what the device has */
    const char *cache_dir;          /* NULL: FUSOR_CACHE_DIR, XDG_CACHE_HOME/fusor, HOME/.cache/fusor, else memory only. "": memory only */
    uint64_t cache_max_bytes;       /* of the directory; 0 = 512 MB */
    void *(*allocate)(void *user, size_t bytes, size_t align);
    void  (*deallocate)(void *user, void *p, size_t bytes);
    void  (*parallel_for)(void *user, int64_t n, void (*task)(void *arg, int64_t index), void *arg);
    void  (*log)(void *user, int level, const char *line);   /* may come in the middle of a call: it uses no context of its own */
    void  *user;                    /* handed to the four callbacks */
} fusor_context_options;
#define FUSOR_CONTEXT_OPTIONS_INIT { sizeof(fusor_context_options), 0, 0, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL }

/** Makes a context. **Ownership**: the caller frees it; executables and kept tensors hold it, so any order of freeing
 *  is legal. **Errors**: NULL when there is no memory; a bad option (target, device, thread count, unknown flags, one of
 *  allocate and deallocate alone) is reported by the first compile.
 *  **Threads**: a context may be used from several threads; one that pthread_cancel ends within a call leaks what the
 *  call has (while it compiles a kernel, it cannot be). **Cost**: about 20 microseconds; nothing is compiled or
 *  loaded; with a CUDA device the driver's start, some 100 ms once in a process. */
FUSOR_API fusor_context *fusor_context_new(const fusor_context_options *options);
/** Gives the caller's reference back. NULL is allowed. */
FUSOR_API void fusor_context_free(fusor_context *ctx);
/** Text of the calling thread's last failing call: "mlp.fusor:3:14: error: matmul: ..."; "" when none. A call that
 *  names no context (a NULL handle) tells every context that is there. ctx NULL: the last one of any context, or of
 *  none.
 *  **Ownership**: borrowed, until this thread's next failing call on ctx or fusor_error_clear. */
FUSOR_API const char *fusor_error_message(const fusor_context *ctx);
/** Forgets the calling thread's error record; ctx NULL: all that it has. */
FUSOR_API void fusor_error_clear(fusor_context *ctx);
/** Frees memory of an output that a call returned with data == NULL given; sets data to NULL. Memory that fusor did not
 *  allocate (an aliased parameter's) is left alone. Memory of a device too, in order: what was asked for before may
 *  still use it. */
FUSOR_API void fusor_buffer_free(fusor_context *ctx, fusor_buffer *buffer);

#ifdef __cplusplus
}
#endif
#endif
