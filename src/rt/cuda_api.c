/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cuda_api.c: the way to the CUDA driver. The first call loads the library, finds every row of cuda_api.def in it and
 * initializes it; what came of that, the table or the reason why there is none, is kept for the process. */
#include "rt/cuda_api.h"
#include "base/env.h"
#include "rt/fork.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rt_cuda_api api;
static _Atomic(const rt_cuda_api *) found;
static atomic_bool is_begun, is_tried, is_forked;
static char reason[1024]; /* why there is none; written once, under the lock */

typedef struct function_row {
    const char *name;
    bool is_needed;
    size_t at; /* in rt_cuda_api */
} function_row;
enum { MAY, MUST };
static const function_row rows[] = {
#define CUDA(NEED, SYMBOL, PARAMETERS) {#SYMBOL, NEED, offsetof(rt_cuda_api, SYMBOL)},
#include "rt/cuda_api.def"
#undef CUDA
};

/* The child of a fork has no threads of the driver's and none of its mappings of the device. The lock may have been
 * held by a thread that is not here (or by this one: cuInit itself forks to load the kernel's module). */
static void in_child(void *user) {
    (void)user;
    bool is_here = atomic_load(&found) || (atomic_load(&is_begun) && !atomic_load(&is_tried));
    if (is_here) atomic_store(&is_forked, true);
    pthread_mutex_init(&lock, NULL);
}

bool rt_cuda_is_forked(void) { return atomic_load_explicit(&is_forked, memory_order_relaxed); }

const char *rt_cuda_text(const rt_cuda_api *cu, cu_result code, char *text, size_t room) {
    const char *name = NULL, *what = NULL;
    if (cu->cuGetErrorName(code, &name) != CU_OK || !name) snprintf(text, room, "CUDA error %d", code);
    else if (cu->cuGetErrorString(code, &what) != CU_OK || !what) snprintf(text, room, "%s", name);
    else snprintf(text, room, "%s (%s)", name, what);
    return text;
}

/* What helps with the reasons that are seen most. */
static const char *advice(cu_result code) {
    switch (code) {
    case CU_NO_DEVICE: return "; this machine has none, or CUDA_VISIBLE_DEVICES or the container hides them";
    case CU_STUB_LIBRARY: return "; this library is the toolkit's stub, not a driver";
    case CU_SYSTEM_NOT_READY: return "; the fabric manager of the devices is not running yet";
    case CU_SYSTEM_DRIVER_MISMATCH:
        return "; the kernel's NVIDIA module and libcuda are of different versions: load the module again, or reboot";
    case CU_COMPAT_NOT_SUPPORTED: return "; a forward compatibility package (cuda-compat) does not serve this device";
    case CU_UNKNOWN: return "; the kernel's NVIDIA module may not be loaded, or /dev/nvidia* not open to this user";
    default: return "";
    }
}

/* Fills in the table. False: why not is in `reason`. */
static bool find_functions(void *library, const char *path) {
    const char *missing = NULL;
    int n_missing = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *symbol = dlsym(library, rows[i].name);
        memcpy((char *)&api + rows[i].at, &symbol, sizeof symbol);
        if (symbol || !rows[i].is_needed) continue;
        if (!missing) missing = rows[i].name;
        n_missing++;
    }
    if (!missing) return true;
    char more[32] = "";
    if (n_missing > 1) snprintf(more, sizeof more, " and %d more", n_missing - 1);
    snprintf(reason, sizeof reason,
             "the CUDA driver %.400s has no function %s%s; one for CUDA 11.0 or newer is expected", path, missing,
             more);
    return false;
}

/* Under the lock. */
static void load(void) {
    const char *given = fu_env_string(FU_FUSOR_CUDA_LIB), *path = *given ? given : LIBRARY;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        snprintf(reason, sizeof reason, "no CUDA driver: %.600s%s", why ? why : path,
                 *given ? " (FUSOR_CUDA_LIB)" : "");
        return;
    }
    if (!find_functions(library, path)) {
        dlclose(library);
        return;
    }
    char text[256];
    cu_result code = api.cuInit(0);
    if (code == CU_OK) {
        atomic_store_explicit(&found, &api, memory_order_release);
        return;
    }
    /* The library stays: one that has begun to initialize may have threads. */
    snprintf(reason, sizeof reason, "the CUDA driver does not start: cuInit: %s%s",
             rt_cuda_text(&api, code, text, sizeof text), advice(code));
}

fusor_status rt_cuda_get(fu_error *e, const rt_cuda_api **out) {
    static rt_fork_hook hook = {.child = in_child};
    if (rt_cuda_is_forked())
        return FU_FAIL(e, FUSOR_ERROR_DEVICE,
                       "the CUDA driver does not survive a fork: it was used before the fork of "
                       "this process; use it in one of them alone, or fork and exec");
    const rt_cuda_api *cu = atomic_load_explicit(&found, memory_order_acquire);
    if (!cu) {
        pthread_mutex_lock(&lock);
        if (!atomic_load(&is_tried)) {
            rt_fork_add(&hook);
            atomic_store(&is_begun, true);
            load();
            atomic_store(&is_tried, true);
        }
        cu = atomic_load_explicit(&found, memory_order_acquire);
        pthread_mutex_unlock(&lock);
    }
    if (!cu) return FU_FAIL(e, FUSOR_ERROR_DEVICE, "%s", reason);
    *out = cu;
    return FUSOR_OK;
}
