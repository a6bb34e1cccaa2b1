/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_LOADER_H
#define RT_LOADER_H
/* Puts the code of kernels (flat position-independent blobs) where it can run, and takes it away again.
 *
 * Blobs share chunks of memory that are mapped twice, once writable and once executable (memfd); no address is ever
 * both. Where the system refuses that, or rt_debugger_wants_private_code, each blob gets its own mapping that turns
 * from writable to executable; where that is refused too, loading fails with FUSOR_ERROR_UNSUPPORTED and the caller
 * evaluates without code. A fork seals every chunk: parent and child share that memory, so neither writes or reuses
 * any of it again. Threads: every function may be called from any thread. */
#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

typedef struct rt_code rt_code;

/* What tools that look at the code are told: the text that it was made of, and its line table (ir/codegen_api.h), if it
 * has one. All borrowed for the call. */
typedef struct rt_code_debug {
    const char *text;
    size_t text_bytes;
    const void *lines;
    size_t lines_bytes;
} rt_code_debug;
/* Copies the blob. *out is owned by the caller (rt_code_release). symbol and debug (may be NULL): for perf (FUSOR_PERF)
 * and GDB (FUSOR_GDB=1). Errors: ARGUMENT (entry outside the blob, empty blob), MEMORY, UNSUPPORTED (executable memory
 * is forbidden here). */
fusor_status rt_code_load(fu_error *e, const void *blob, size_t bytes, uint64_t entry, const char *symbol,
                          const rt_code_debug *debug, rt_code **out);
void *rt_code_entry(const rt_code *c); /* address of the function at `entry`; the blob lies around it, readable */
/* Nothing may run in it any more. NULL is allowed. */
void rt_code_release(rt_code *c);

/* How memory becomes executable; AUTO tries the others in order. Tests set it; what is loaded stays. */
typedef enum rt_code_mode { RT_CODE_AUTO, RT_CODE_DUAL, RT_CODE_PROTECT, RT_CODE_NONE } rt_code_mode;
void rt_code_set_mode(rt_code_mode mode);

typedef struct rt_code_stats {
    int chunks, sealed_chunks, kernels;
    int64_t mapped_bytes, used_bytes; /* of executable memory */
} rt_code_stats;
rt_code_stats rt_code_get_stats(void);
#endif
