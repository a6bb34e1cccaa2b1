/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* fake_device.c: what every call of the fake driver begins with (faults, counts, the current context), devices,
 * contexts. */
#include "fake_cuda.h"
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FAULTS = 32, STACK = 64 };
static const struct {
    const char *name;
    void *function;
} calls[FAKE_CALLS] = {
#define CUDA(NEED, SYMBOL, PARAMETERS) {#SYMBOL, (void *)SYMBOL},
#include "rt/cuda_api.def"
#undef CUDA
};
typedef struct fault {
    int function;
    long nth; /* 0: each */
    cu_result code;
    bool is_late;
} fault;

fake_settings fake_set;
fake_device fake_devices[FAKE_MAX_DEVICES];
static long count[FAKE_CALLS];
static fault faults[MAX_FAULTS];
static int n_faults;
static char said[1024], wrong_settings[256];
static pid_t initialized_in;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local fake_context *stack[STACK];
static _Thread_local int depth;

/* ---- settings ---- */
static void refuse(const char *name, const char *value) {
    snprintf(wrong_settings, sizeof wrong_settings, "%s=%s: not understood", name, value);
}

static long long setting(const char *name, long long otherwise) {
    const char *v = getenv(name);
    char *end;
    if (!v || !*v) return otherwise;
    double n = strtod(v, &end);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (end == v || (*end && !(shift && !end[1]))) refuse(name, v);
    return (long long)(n * (double)(1ll << shift));
}

static int find_call(const char *name) {
    for (int i = 0; i < FAKE_CALLS; i++)
        if (strcmp(calls[i].name, name) == 0) return i;
    return -1;
}

/* "cuMemAlloc_v2:3=2,cuLaunchKernel:1=719@": the third call gives 2; the first gives 719 when its work runs. '*': each
 * call. */
static void read_faults(const char *text) {
    char name[64];
    for (const char *at = text; *at && n_faults < MAX_FAULTS; at += *at == ',') {
        char nth[16], late[2] = "";
        int code, used = 0;
        if (sscanf(at, "%63[^:]:%15[^=]=%d%n", name, nth, &code, &used) != 3) return refuse("FAKECUDA_FAIL", at);
        at += used;
        if (*at == '@') late[0] = *at++;
        fault f = {find_call(name), nth[0] == '*' ? 0 : atol(nth), code, late[0] != 0};
        if (f.function < 0 || (*at && *at != ',')) return refuse("FAKECUDA_FAIL", text);
        faults[n_faults++] = f;
    }
}

/* dlsym is to find no symbol of that name: its entry in the table of symbols loses its address. */
static void hide(const char *list) {
    char name[64];
    int used;
    for (const char *at = list; sscanf(at, "%63[^,]%n", name, &used) == 1; at += *at == ',') {
        Dl_info info;
        const ElfW(Sym) *symbol = NULL;
        int i = find_call(name);
        at += used;
        if (i < 0 || !dladdr1(calls[i].function, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol)
            return refuse("FAKECUDA_LACKS", list);
        long page = sysconf(_SC_PAGESIZE);
        uintptr_t from = (uintptr_t)symbol / (uintptr_t)page * (uintptr_t)page;
        size_t bytes = (uintptr_t)(symbol + 1) - from;
        if (mprotect((void *)from, bytes, PROT_READ | PROT_WRITE)) return refuse("FAKECUDA_LACKS", list);
        ElfW(Sym) *entry = (ElfW(Sym) *)(uintptr_t)symbol;
        entry->st_value = 0;
        entry->st_shndx = SHN_UNDEF;
    }
}

static __attribute__((constructor)) void read_settings(void) {
    const char *order = getenv("FAKECUDA_ORDER"), *faults_of = getenv("FAKECUDA_FAIL"),
               *lacks = getenv("FAKECUDA_LACKS");
    fake_set.n_devices = (int)setting("FAKECUDA_DEVICES", 1);
    fake_set.cc = (int)setting("FAKECUDA_CC", 90);
    fake_set.version = (int)setting("FAKECUDA_VERSION", 13000);
    fake_set.init = (int)setting("FAKECUDA_INIT", CU_OK);
    fake_set.memory = (size_t)setting("FAKECUDA_MEMORY", 4ll << 30);
    const char *ptx = getenv("FAKECUDA_PTX");
    fake_set.ptx = (int)(10 * (ptx ? atof(ptx) : 9.0) + 0.5);
    fake_set.is_quiet = setting("FAKECUDA_QUIET", 0);
    fake_set.says_leaks = setting("FAKECUDA_LEAKS", 0);
    if (order && strcmp(order, "eager") == 0) fake_set.order = FAKE_EAGER;
    else if (order && strcmp(order, "reverse") == 0) fake_set.order = FAKE_REVERSE;
    else if (order && *order && strcmp(order, "lazy") != 0) refuse("FAKECUDA_ORDER", order);
    if (fake_set.n_devices < 0 || fake_set.n_devices > FAKE_MAX_DEVICES) refuse("FAKECUDA_DEVICES", "not 0 to 8");
    if (faults_of) read_faults(faults_of);
    if (lacks) hide(lacks);
}

static __attribute__((destructor)) void say_leaks(void) {
    static const char *const kinds[] = {"memory", "host", "stream", "event", "module", "link", "pending"};
    if (!fake_set.says_leaks || initialized_in != getpid()) return;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (fake_cuda_live(kinds[i]))
            fprintf(stderr, "fakecuda: leaked: %ld of %s\n", fake_cuda_live(kinds[i]), kinds[i]);
}

/* ---- calls ---- */
static void keep_said(const char *format, va_list args) {
    vsnprintf(said, sizeof said, format, args);
    if (!fake_set.is_quiet) fprintf(stderr, "fakecuda: %s\n", said);
}

cu_result fake_say(cu_result code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    keep_said(format, args);
    va_end(args);
    return code;
}

cu_result fake_kill(fake_context *c, cu_result code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    keep_said(format, args);
    va_end(args);
    if (!c->dead) c->dead = code;
    fake_drop(c);
    return code;
}

bool fake_is_sticky(cu_result code) { return code >= CU_ILLEGAL_ADDRESS && code <= CU_LAUNCH_FAILED; }

int64_t fake_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

fake_call fake_enter(int function, fake_need need) {
    fake_call c = {0};
    pthread_mutex_lock(&mutex);
    long nth = ++count[function];
    if (need != FAKE_NOTHING && initialized_in != getpid())
        c.result = CU_NOT_INITIALIZED; /* a child of fork has no driver */
    else if (need == FAKE_CONTEXT) {
        c.context = depth ? stack[depth - 1] : NULL;
        if (!c.context || !c.context->uses) {
            c.result = fake_say(CU_INVALID_CONTEXT, "%s without a current context", calls[function].name);
        } else c.result = c.context->dead;
    }
    for (int i = 0; i < n_faults && !c.result; i++)
        if (faults[i].function == function && (!faults[i].nth || faults[i].nth == nth)) {
            if (faults[i].is_late) c.late = faults[i].code;
            else c.result = faults[i].code;
        }
    if (c.context && !c.context->dead && fake_is_sticky(c.result))
        fake_kill(c.context, c.result, "%s gives %d, as FAKECUDA_FAIL says", calls[function].name, c.result);
    return c;
}

void fake_leave(fake_call *c) {
    (void)c;
    pthread_mutex_unlock(&mutex);
}

long fake_cuda_count(const char *name) {
    int i = find_call(name);
    return i < 0 ? -1 : count[i];
}

long fake_cuda_live(const char *kind) {
    pthread_mutex_lock(&mutex);
    long n = fake_memory_live(kind) + fake_stream_live(kind) + fake_module_live(kind);
    pthread_mutex_unlock(&mutex);
    return n;
}

const char *fake_cuda_said(void) { return said; }

/* ---- the driver ---- */
cu_result cuInit(unsigned flags) {
    CALL(cuInit, NOTHING);
    if (*wrong_settings) return fake_say(CU_INVALID_VALUE, "%s", wrong_settings);
    if (flags) return CU_INVALID_VALUE;
    if (fake_set.init) return fake_set.init;
    if (!fake_set.n_devices) return CU_NO_DEVICE;
    if (initialized_in == getpid()) return CU_OK;
    if (initialized_in) return CU_NOT_INITIALIZED;
    for (int i = 0; i < fake_set.n_devices; i++) {
        fake_device *d = &fake_devices[i];
        d->ordinal = i;
        d->cc = fake_set.cc;
        d->context.device = d;
        if (!fake_memory_open(d)) return fake_say(CU_OUT_OF_MEMORY, "no addresses");
    }
    initialized_in = getpid();
    return CU_OK;
}

cu_result cuDriverGetVersion(int *version) {
    CALL(cuDriverGetVersion, NOTHING);
    if (!version) return CU_INVALID_VALUE;
    *version = fake_set.version;
    return CU_OK;
}

static const struct {
    cu_result code;
    const char *name, *text;
} codes[] = {
    {CU_OK, "CUDA_SUCCESS", "no error"},
    {CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CU_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CU_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CU_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {CU_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CU_JIT_COMPILER_NOT_FOUND, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX JIT compiler library not found"},
    {CU_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {CU_JIT_COMPILATION_DISABLED, "CUDA_ERROR_JIT_COMPILATION_DISABLED", "PTX JIT compilation was disabled"},
    {CU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CU_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CU_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {CU_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {CU_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {CU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CU_SYSTEM_NOT_READY, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {CU_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"}};

cu_result cuGetErrorName(cu_result code, const char **name) {
    CALL(cuGetErrorName, NOTHING);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].code == code) return *name = codes[i].name, CU_OK;
    *name = NULL;
    return CU_INVALID_VALUE;
}

cu_result cuGetErrorString(cu_result code, const char **text) {
    CALL(cuGetErrorString, NOTHING);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].code == code) return *text = codes[i].text, CU_OK;
    *text = NULL;
    return CU_INVALID_VALUE;
}

/* ---- devices ---- */
cu_result cuDeviceGetCount(int *n) {
    CALL(cuDeviceGetCount, INITIALIZED);
    if (!n) return CU_INVALID_VALUE;
    *n = fake_set.n_devices;
    return CU_OK;
}

cu_result cuDeviceGet(cu_device *device, int ordinal) {
    CALL(cuDeviceGet, INITIALIZED);
    if (!device) return CU_INVALID_VALUE;
    if (ordinal < 0 || ordinal >= fake_set.n_devices) return CU_INVALID_DEVICE;
    *device = ordinal;
    return CU_OK;
}

static bool is_device(cu_device d) { return d >= 0 && d < fake_set.n_devices; }

cu_result cuDeviceGetName(char *name, int room, cu_device device) {
    CALL(cuDeviceGetName, INITIALIZED);
    if (!name || room <= 0) return CU_INVALID_VALUE;
    if (!is_device(device)) return CU_INVALID_DEVICE;
    snprintf(name, (size_t)room, "Fake GPU sm_%d", fake_devices[device].cc);
    return CU_OK;
}

cu_result cuDeviceGetUuid_v2(unsigned char uuid[16], cu_device device) {
    CALL(cuDeviceGetUuid_v2, INITIALIZED);
    if (!uuid) return CU_INVALID_VALUE;
    if (!is_device(device)) return CU_INVALID_DEVICE;
    for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(0xf0 + i);
    uuid[15] = (unsigned char)device;
    return CU_OK;
}

/* Of a block, opted in: CUDA C++ programming guide, compute capabilities. */
int fake_limit_of_shared(int cc) {
    return (cc == 70 ? 96 : cc < 80 ? 64 : cc == 80 ? 163 : cc < 90 ? 99 : cc < 120 ? 227 : 99) << 10;
}

cu_result cuDeviceGetAttribute(int *value, int attribute, cu_device device) {
    CALL(cuDeviceGetAttribute, INITIALIZED);
    if (!value) return CU_INVALID_VALUE;
    if (!is_device(device)) return CU_INVALID_DEVICE;
    int cc = fake_devices[device].cc;
    switch (attribute) {
    case CU_DEVICE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_DEVICE_MAX_SHARED_PER_BLOCK: *value = FAKE_MAX_STATIC; break;
    case CU_DEVICE_CLOCK_KHZ: *value = 1500000; break;
    case CU_DEVICE_MULTIPROCESSORS: *value = FAKE_MULTIPROCESSORS; break;
    case CU_DEVICE_INTEGRATED: *value = 0; break;
    case CU_DEVICE_MEMORY_CLOCK_KHZ: *value = 2000000; break;
    case CU_DEVICE_MEMORY_BUS_BITS: *value = 512; break;
    case CU_DEVICE_L2_BYTES: *value = 8 << 20; break;
    case CU_DEVICE_CC_MAJOR: *value = cc / 10; break;
    case CU_DEVICE_CC_MINOR: *value = cc % 10; break;
    case CU_DEVICE_MAX_SHARED_OPTIN: *value = fake_limit_of_shared(cc); break;
    default: return fake_say(CU_INVALID_VALUE, "attribute %d of a device is not known here", attribute);
    }
    return CU_OK;
}

cu_result cuDeviceTotalMem_v2(size_t *bytes, cu_device device) {
    CALL(cuDeviceTotalMem_v2, INITIALIZED);
    if (!bytes) return CU_INVALID_VALUE;
    if (!is_device(device)) return CU_INVALID_DEVICE;
    *bytes = fake_set.memory;
    return CU_OK;
}

/* ---- contexts ---- */
cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device device) {
    CALL(cuDevicePrimaryCtxRetain, INITIALIZED);
    if (!context) return CU_INVALID_VALUE;
    if (!is_device(device)) return CU_INVALID_DEVICE;
    fake_devices[device].context.uses++;
    *context = &fake_devices[device].context;
    return CU_OK;
}

cu_result cuDevicePrimaryCtxRelease_v2(cu_device device) {
    CALL(cuDevicePrimaryCtxRelease_v2, INITIALIZED);
    if (!is_device(device)) return CU_INVALID_DEVICE;
    fake_context *c = &fake_devices[device].context;
    if (!c->uses) return CU_INVALID_CONTEXT;
    if (--c->uses == 0) { /* with everything in it */
        fake_drop(c);
        fake_streams_forget(c);
        fake_memory_drop(c->device);
        c->dead = CU_OK;
    }
    return CU_OK;
}

static bool is_context(cu_context c) {
    for (int i = 0; i < fake_set.n_devices; i++)
        if (c == &fake_devices[i].context && c->uses) return true;
    return false;
}

cu_result cuCtxPushCurrent_v2(cu_context context) {
    CALL(cuCtxPushCurrent_v2, INITIALIZED);
    if (!is_context(context)) return CU_INVALID_CONTEXT;
    if (depth == STACK) return fake_say(CU_INVALID_VALUE, "more than %d contexts pushed: some are never popped", STACK);
    stack[depth++] = context;
    return CU_OK;
}

cu_result cuCtxPopCurrent_v2(cu_context *context) {
    CALL(cuCtxPopCurrent_v2, INITIALIZED);
    if (!depth) return CU_INVALID_CONTEXT;
    depth--;
    if (context) *context = stack[depth];
    return CU_OK;
}

cu_result cuCtxGetCurrent(cu_context *context) {
    CALL(cuCtxGetCurrent, INITIALIZED);
    if (!context) return CU_INVALID_VALUE;
    *context = depth ? stack[depth - 1] : NULL;
    return CU_OK;
}
