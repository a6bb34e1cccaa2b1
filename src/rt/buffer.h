/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_BUFFER_H
#define RT_BUFFER_H
/* Memory for tensors: 64-byte aligned blocks of size classes, kept for reuse (the first touch of a fresh page costs
 * more than a kernel's pass over it), on huge pages from 2 MB up. One pool for the process; or the caller's callbacks,
 * which are not pooled. Threads: any. A fork is safe. Nothing is zero-filled. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rt_exec_options;

/* At least `bytes` bytes (0 counts as 1); NULL when there is no memory. options NULL or without callbacks: the pool. */
void *rt_memory_get(const struct rt_exec_options *options, size_t bytes);
/* Gives it back; the same options and bytes as at the get. NULL is allowed. */
void rt_memory_put(const struct rt_exec_options *options, void *p, size_t bytes);

/* The same for memory that leaves the library: it is remembered, so that rt_buffer_release needs no size, knows who
 * allocated it, and leaves memory alone that did not come from rt_buffer_get. */
void *rt_buffer_get(const struct rt_exec_options *options, size_t bytes);
void rt_buffer_release(const struct rt_exec_options *options, void *p);
/* Memory of another kind that leaves the library, an address of a device for one: rt_buffer_release(p) calls give(user,
 * p, bytes). False: no memory for the note; p stays the caller's. rt_buffer_give_all: the same for all that is noted
 * with this user. */
bool rt_buffer_note(void *p, size_t bytes, void (*give)(void *user, void *p, size_t bytes), void *user);
void rt_buffer_give_all(const void *user);

/* Gives cached blocks of the pool back to the system. */
void rt_memory_trim(void);
/* gets, reused: blocks taken from the pool since the process began, and those of them that had been used before;
 * system_bytes: asked of the system for the others. */
typedef struct rt_memory_stats {
    int64_t cached_bytes, live_buffers, gets, reused, system_bytes;
} rt_memory_stats;
rt_memory_stats rt_memory_get_stats(void);
#endif
