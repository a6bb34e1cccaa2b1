/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* device.c: which devices there are, opening one, and what all calls on one share: its context is made current around
 * each, and an error that killed the context is every later call's error. */
#include "rt/device_internal.h"
#include "base/arena.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEVICES = 64, LEAST_CC = 70 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rt_device *devices[MAX_DEVICES]; /* open ones; never closed */

/* ---- errors ---- */
/* After these the context only ever returns the same code; other codes from 700 on are of one call. */
static bool is_fatal(cu_result code) {
    switch (code) {
    case CU_ILLEGAL_ADDRESS:
    case CU_LAUNCH_TIMEOUT:
    case CU_CONTEXT_IS_DESTROYED:
    case CU_ASSERT:
    case CU_HARDWARE_STACK_ERROR:
    case CU_ILLEGAL_INSTRUCTION:
    case CU_MISALIGNED_ADDRESS:
    case CU_INVALID_ADDRESS_SPACE:
    case CU_INVALID_PC:
    case CU_LAUNCH_FAILED:
    case CU_ECC_UNCORRECTABLE: return true;
    default: return false;
    }
}

void device_note(rt_device *d, cu_result code) {
    int none = 0;
    if (is_fatal(code)) atomic_compare_exchange_strong(&d->dead, &none, code);
}

fusor_status device_fail(rt_device *d, fu_error *e, cu_result code, const char *what, ...) {
    char doing[512], text[256];
    va_list args;
    va_start(args, what);
    vsnprintf(doing, sizeof doing, what, args);
    va_end(args);
    device_note(d, code);
    return FU_FAIL(e, code == CU_OUT_OF_MEMORY ? FUSOR_ERROR_MEMORY : FUSOR_ERROR_DEVICE, "cuda:%d (%s): %s: %s%s",
                   d->info.ordinal, d->info.name, doing, rt_cuda_text(d->cu, code, text, sizeof text),
                   is_fatal(code) ? "; the device's context is lost for this process" : "");
}

fusor_status device_check(rt_device *d, fu_error *e) {
    if (rt_cuda_is_forked()) return rt_cuda_get(e, &d->cu);
    int dead = atomic_load_explicit(&d->dead, memory_order_relaxed);
    return dead ? device_fail(d, e, dead, "an earlier kernel or copy failed") : FUSOR_OK;
}

fusor_status device_enter(rt_device *d, fu_error *e) {
    FU_TRY(device_check(d, e));
    cu_result code = d->cu->cuCtxPushCurrent_v2(d->context);
    return code == CU_OK ? FUSOR_OK : device_fail(d, e, code, "making its context current");
}

bool device_enter_quietly(rt_device *d) {
    return !rt_cuda_is_forked() && !atomic_load_explicit(&d->dead, memory_order_relaxed) &&
           d->cu->cuCtxPushCurrent_v2(d->context) == CU_OK;
}

void device_leave(rt_device *d) {
    cu_context popped;
    d->cu->cuCtxPopCurrent_v2(&popped);
}

/* ---- what a device is ---- */
/* sm_90a is PTX 8.0, which drivers know from 12.0 on. */
static ir_target best_target(int cc, int driver_version) {
    return (ir_target){cc < LEAST_CC                         ? IR_LEVEL_END
                       : cc < 80                             ? IR_LEVEL_SM70
                       : cc == 90 && driver_version >= 12000 ? IR_LEVEL_SM90A
                                                             : IR_LEVEL_SM80,
                       0};
}

static int attribute(const rt_cuda_api *cu, cu_device handle, int which) {
    int value = 0;
    return cu->cuDeviceGetAttribute(&value, which, handle) == CU_OK ? value : 0;
}

static void describe_uuid(const unsigned char u[16], char *out, size_t room) {
    snprintf(out, room, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
             u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

static fusor_status describe(const rt_cuda_api *cu, fu_error *e, int ordinal, cu_device *handle, rt_device_info *i) {
    char text[256];
    size_t bytes = 0;
    *i = (rt_device_info){.ordinal = ordinal};
    cu_result code = cu->cuDeviceGet(handle, ordinal);
    if (code == CU_OK) code = cu->cuDeviceGetName(i->name, sizeof i->name, *handle);
    if (code == CU_OK) code = cu->cuDeviceTotalMem_v2(&bytes, *handle);
    if (code == CU_OK) code = cu->cuDriverGetVersion(&i->driver_version);
    if (code != CU_OK)
        return FU_FAIL(e, FUSOR_ERROR_DEVICE, "cuda:%d: the driver does not describe it: %s", ordinal,
                       rt_cuda_text(cu, code, text, sizeof text));
    i->name[sizeof i->name - 1] = 0;
    unsigned char uuid[16];
    if (cu->cuDeviceGetUuid_v2 && cu->cuDeviceGetUuid_v2(uuid, *handle) == CU_OK)
        describe_uuid(uuid, i->uuid, sizeof i->uuid);
    i->cc = 10 * attribute(cu, *handle, CU_DEVICE_CC_MAJOR) + attribute(cu, *handle, CU_DEVICE_CC_MINOR);
    i->target = best_target(i->cc, i->driver_version);
    i->multiprocessors = attribute(cu, *handle, CU_DEVICE_MULTIPROCESSORS);
    i->clock_khz = attribute(cu, *handle, CU_DEVICE_CLOCK_KHZ);
    i->memory_clock_khz = attribute(cu, *handle, CU_DEVICE_MEMORY_CLOCK_KHZ);
    i->memory_bus_bits = attribute(cu, *handle, CU_DEVICE_MEMORY_BUS_BITS);
    i->shared_bytes = attribute(cu, *handle, CU_DEVICE_MAX_SHARED_OPTIN);
    if (!i->shared_bytes) i->shared_bytes = attribute(cu, *handle, CU_DEVICE_MAX_SHARED_PER_BLOCK);
    i->memory_bytes = (int64_t)bytes;
    i->l2_bytes = attribute(cu, *handle, CU_DEVICE_L2_BYTES);
    i->is_integrated = attribute(cu, *handle, CU_DEVICE_INTEGRATED) != 0;
    return FUSOR_OK;
}

static fusor_status count_devices(const rt_cuda_api *cu, fu_error *e, int *n_out) {
    char text[256];
    int n = 0;
    cu_result code = cu->cuDeviceGetCount(&n);
    if (code != CU_OK)
        return FU_FAIL(e, FUSOR_ERROR_DEVICE, "the CUDA driver does not count its devices: %s",
                       rt_cuda_text(cu, code, text, sizeof text));
    if (n <= 0)
        return FU_FAIL(e, FUSOR_ERROR_DEVICE, "the CUDA driver has no device; CUDA_VISIBLE_DEVICES may hide them");
    *n_out = n < MAX_DEVICES ? n : MAX_DEVICES;
    return FUSOR_OK;
}

fusor_status rt_device_count(fu_error *e, int *n_out) {
    const rt_cuda_api *cu;
    *n_out = 0;
    FU_TRY(rt_cuda_get(e, &cu));
    return count_devices(cu, e, n_out);
}

fusor_status rt_device_describe(fu_error *e, int ordinal, rt_device_info *out) {
    const rt_cuda_api *cu;
    cu_device handle;
    int n;
    FU_TRY(rt_cuda_get(e, &cu));
    FU_TRY(count_devices(cu, e, &n));
    if (ordinal < 0 || ordinal >= n)
        return FU_FAIL(e, FUSOR_ERROR_DEVICE, "there is no device cuda:%d; the driver has %d, from cuda:0 to cuda:%d",
                       ordinal, n, n - 1);
    return describe(cu, e, ordinal, &handle, out);
}

/* ---- opening ---- */
/* Under the lock. */
static fusor_status open_device(fu_error *e, int ordinal, rt_device **out) {
    rt_device_info info;
    const rt_cuda_api *cu;
    cu_device handle;
    FU_TRY(rt_device_describe(e, ordinal, &info));
    FU_TRY(rt_cuda_get(e, &cu));
    if (info.cc < LEAST_CC)
        return FU_FAIL(e, FUSOR_ERROR_DEVICE,
                       "cuda:%d (%s) has compute capability %d.%d; code is generated for 7.0 and newer", ordinal,
                       info.name, info.cc / 10, info.cc % 10);
    cu_result code = cu->cuDeviceGet(&handle, ordinal);
    rt_device *d = fu_calloc(1, sizeof *d);
    if (!d) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "cuda:%d: no memory to open it", ordinal);
    d->info = info;
    d->cu = cu;
    d->handle = handle;
    rt_cubin_describe_driver(info.cc, info.driver_version, &d->driver);
    if (code == CU_OK) code = cu->cuDevicePrimaryCtxRetain(&d->context, handle);
    if (code != CU_OK) {
        fusor_status s = device_fail(d, e, code, "making its context");
        fu_free(d);
        return s;
    }
    pthread_mutex_init(&d->pool_lock, NULL);
    pthread_mutex_init(&d->kernel_lock, NULL);
    pthread_cond_init(&d->landed, NULL);
    *out = d;
    return FUSOR_OK;
}

fusor_status rt_device_open(fu_error *e, int ordinal, rt_device **out) {
    const rt_cuda_api *cu;
    FU_TRY(rt_cuda_get(e, &cu)); /* before the lock, which a fork may have left held */
    pthread_mutex_lock(&lock);
    rt_device *d = ordinal >= 0 && ordinal < MAX_DEVICES ? devices[ordinal] : NULL;
    fusor_status s = FUSOR_OK;
    if (!d) {
        s = open_device(e, ordinal, &d);
        if (s == FUSOR_OK) devices[ordinal] = d;
    }
    pthread_mutex_unlock(&lock);
    if (s == FUSOR_OK) *out = d;
    return s;
}

const rt_device_info *rt_device_get_info(const rt_device *d) { return &d->info; }
