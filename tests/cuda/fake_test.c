/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* fake_test.c: the fake driver does what it is for: it runs kernels, and finds what the real one leaves undefined. */
#include "on_fake.h"
#include "rt/cuda_api.h"
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static rt_cuda_api cu;
static void *library;
static const char *(*said)(void);

/* The library, with the settings of on_fake(). */
static void load_library(void) {
    library = dlopen(on_fake_path(), RTLD_NOW | RTLD_LOCAL);
    cr_assert(library, "%s", dlerror());
#define CUDA(NEED, SYMBOL, PARAMETERS) *(void **)&cu.SYMBOL = dlsym(library, #SYMBOL);
#include "rt/cuda_api.def"
#undef CUDA
    *(void **)&said = on_fake_symbol("fake_cuda_said");
}
#define LOAD(...) (on_fake(__VA_ARGS__), load_library())
#define OK(CALL)                                                                                                       \
    do {                                                                                                               \
        cu_result r_ = CALL;                                                                                           \
        cr_assert_eq(r_, CU_OK, "%s: %d: %s", #CALL, r_, said());                                                      \
    } while (0)
#define GIVES(CODE, CALL)                                                                                              \
    do {                                                                                                               \
        cu_result r_ = CALL;                                                                                           \
        cr_assert_eq(r_, CODE, "%s: %d: %s", #CALL, r_, said());                                                       \
    } while (0)
#define SAID(WORDS) cr_assert(strstr(said(), WORDS), "%s", said())

static void open_device(int ordinal) {
    cu_device d;
    cu_context c;
    OK(cu.cuInit(0));
    OK(cu.cuDeviceGet(&d, ordinal));
    OK(cu.cuDevicePrimaryCtxRetain(&c, d));
    OK(cu.cuCtxPushCurrent_v2(c));
}

#define HEAD(VERSION, TARGET) ".version " VERSION "\n.target " TARGET "\n.address_size 64\n"
/* y[i] = x[i] + 1 for i < n */
#define BODY                                                                                                           \
    ".visible .entry add(.param .u64 x, .param .u64 y, .param .u32 n)\n.maxntid 64, 1, 1\n{\n.reg .pred %p<2>;\n"      \
    ".reg .b32 %r<6>;\n.reg .f32 %f<3>;\n.reg .b64 %rd<6>;\n.shared .align 4 .b8 s[4];\n"                              \
    "ld.param.u64 %rd1, [x];\nld.param.u64 %rd2, [y];\nld.param.u32 %r1, [n];\nmov.u32 %r2, %ctaid.x;\n"               \
    "mov.u32 %r3, %ntid.x;\nmov.u32 %r4, %tid.x;\nmad.lo.u32 %r5, %r2, %r3, %r4;\nsetp.ge.u32 %p1, %r5, %r1;\n"        \
    "@%p1 ret;\nmul.wide.u32 %rd3, %r5, 4;\nadd.u64 %rd4, %rd1, %rd3;\nadd.u64 %rd5, %rd2, %rd3;\n"                    \
    "ld.global.f32 %f1, [%rd4];\nadd.rn.f32 %f2, %f1, 0f3F800000;\nst.global.f32 [%rd5], %f2;\nret;\n}\n"
static const char text[] = HEAD("7.0", "sm_80") BODY;

static cu_function get_add(void) {
    cu_module m;
    cu_function f;
    OK(cu.cuModuleLoadDataEx(&m, text, 0, NULL, NULL));
    OK(cu.cuModuleGetFunction(&f, m, "add"));
    return f;
}

static cu_result add(cu_function f, cu_stream s, cu_address x, cu_address y, uint32_t n) {
    void *params[] = {&x, &y, &n};
    return cu.cuLaunchKernel(f, (n + 63) / 64, 1, 1, 64, 1, 1, 0, s, params, NULL);
}

Test(fake, defines_every_function_of_the_table) {
    LOAD(NULL);
#define CUDA(NEED, SYMBOL, PARAMETERS) cr_assert(cu.SYMBOL, #SYMBOL);
#include "rt/cuda_api.def"
#undef CUDA
}

Test(fake, hides_functions_that_a_driver_lacks) {
    LOAD("FAKECUDA_LACKS", "cuMemAllocAsync,cuLinkCreate_v2", NULL);
    cr_assert_null((void *)cu.cuMemAllocAsync);
    cr_assert_null((void *)cu.cuLinkCreate_v2);
    cr_assert(cu.cuMemAlloc_v2 && cu.cuMemFreeAsync && cu.cuLinkAddData_v2);
    OK(cu.cuInit(0));
}

Test(fake, runs_kernels_when_somebody_waits) {
    float x[100], *y;
    cu_address a, b;
    cu_stream s;
    LOAD(NULL);
    open_device(0);
    OK(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cu.cuMemHostAlloc((void **)&y, sizeof x, CU_HOST_PORTABLE));
    for (int i = 0; i < 100; i++) x[i] = (float)i, y[i] = -5;
    OK(cu.cuMemAlloc_v2(&a, sizeof x));
    OK(cu.cuMemAlloc_v2(&b, sizeof x));
    OK(cu.cuMemcpyHtoDAsync_v2(a, x, sizeof x, s));
    memset(x, 0, sizeof x); /* pageable: it was read */
    OK(add(get_add(), s, a, b, 100));
    OK(cu.cuMemcpyDtoHAsync_v2(y, b, sizeof x, s));
    cr_assert_eq(y[7], -5, "the copy ran before anybody waited");
    cr_assert_eq(fake_live("pending"), 3);
    GIVES(CU_NOT_READY, cu.cuStreamQuery(s));
    OK(cu.cuStreamSynchronize(s));
    OK(cu.cuStreamQuery(s));
    for (int i = 0; i < 100; i++) cr_assert_eq(y[i], (float)i + 1);
    cr_assert_eq(fake_count("cuLaunchKernel"), 1);
    cr_assert_eq(fake_count("cuNothing"), -1);
    cr_assert_eq(fake_live("memory"), 2);
    cr_assert_eq(fake_live("bytes"), 800);
    OK(cu.cuMemFree_v2(a));
    OK(cu.cuMemFreeHost(y));
    cr_assert_eq(fake_live("memory") + fake_live("host"), 1);
}

Test(fake, asking_again_and_again_comes_to_an_end) {
    cu_address a;
    cu_stream s;
    LOAD(NULL);
    open_device(0);
    OK(cu.cuStreamCreate(&s, 0));
    OK(cu.cuMemAlloc_v2(&a, 64));
    for (int i = 0; i < 5; i++) OK(cu.cuMemsetD8Async(a, (unsigned char)i, 64, s));
    int asked = 0;
    while (cu.cuStreamQuery(s) == CU_NOT_READY) asked++;
    cr_assert_eq(asked, 5);
}

Test(fake, reads_pinned_memory_when_the_copy_runs) {
    int *p, out = 0;
    cu_address a;
    cu_stream s;
    LOAD(NULL);
    open_device(0);
    OK(cu.cuStreamCreate(&s, 0));
    OK(cu.cuMemAlloc_v2(&a, 4));
    OK(cu.cuMemHostAlloc((void **)&p, 4, 0));
    *p = 1;
    OK(cu.cuMemcpyHtoDAsync_v2(a, p, 4, s));
    *p = 2; /* too early: the copy has not run */
    OK(cu.cuMemcpyDtoHAsync_v2(&out, a, 4, s));
    cr_assert_eq(out, 2);
    OK(cu.cuMemcpyHtoDAsync_v2(a, p, 4, s));
    GIVES(CU_ILLEGAL_ADDRESS, cu.cuMemFreeHost(p));
    SAID("still to use");
}

static void add_100(size_t x_bytes, size_t y_bytes, const char *words) {
    cu_address a, b;
    LOAD(NULL);
    open_device(0);
    OK(cu.cuMemAlloc_v2(&a, x_bytes));
    OK(cu.cuMemAlloc_v2(&b, y_bytes));
    OK(add(get_add(), NULL, a, b, 100));
    GIVES(CU_ILLEGAL_ADDRESS, cu.cuStreamSynchronize(NULL));
    SAID(words);
    GIVES(CU_ILLEGAL_ADDRESS, cu.cuMemFree_v2(a)); /* the context is dead */
}
Test(fake, finds_reads_outside_memory) { add_100(396, 400, "offset 396 of allocation 0, which has 396 bytes"); }
Test(fake, finds_writes_outside_memory) { add_100(400, 399, "offset 396 of allocation 1"); }

Test(fake, finds_memory_that_is_freed_or_not_written) {
    cu_address a, b;
    uint32_t v = 0;
    LOAD(NULL);
    open_device(0);
    OK(cu.cuMemAlloc_v2(&a, 4096));
    OK(cu.cuMemcpyDtoHAsync_v2(&v, a + 8, 4, NULL));
    cr_assert_eq(v, 0xffffffff, "what was never written reads as NaNs");
    OK(cu.cuMemAlloc_v2(&b, 3 << 20));
    OK(cu.cuMemcpyDtoHAsync_v2(&v, b + (2 << 20) + 4, 4, NULL));
    cr_assert_eq(v, 0xffffffff);
    OK(cu.cuMemFree_v2(a));
    GIVES(CU_INVALID_VALUE, cu.cuMemcpyDtoHAsync_v2(&v, a, 4, NULL));
    GIVES(CU_INVALID_VALUE, cu.cuMemFree_v2(a));
    SAID("is freed");
    GIVES(CU_INVALID_VALUE, cu.cuMemcpyDtoHAsync_v2(&v, b, (3 << 20) + 1, NULL));
    OK(add(get_add(), NULL, b, a, 1));
    GIVES(CU_ILLEGAL_ADDRESS, cu.cuStreamSynchronize(NULL));
    SAID("is freed");
}

Test(fake, orders_memory_of_a_stream) {
    cu_address a;
    cu_stream s, t;
    LOAD(NULL);
    open_device(0);
    OK(cu.cuStreamCreate(&s, 1));
    OK(cu.cuStreamCreate(&t, 1));
    OK(cu.cuMemAllocAsync(&a, 64, s));
    OK(cu.cuMemsetD8Async(a, 1, 64, s));
    OK(cu.cuStreamSynchronize(s));
    OK(cu.cuMemFreeAsync(a, s));
    OK(cu.cuMemAllocAsync(&a, 64, s));
    OK(cu.cuMemsetD8Async(a, 1, 64, t)); /* without an event */
    GIVES(CU_ILLEGAL_ADDRESS, cu.cuStreamSynchronize(t));
    SAID("is not there yet");
}

/* A copy on t of what a kernel on s makes. */
static int handed_over(bool has_event) {
    int *out;
    cu_address a;
    cu_stream s, t;
    cu_event e;
    open_device(0);
    OK(cu.cuStreamCreate(&s, 1));
    OK(cu.cuStreamCreate(&t, 1));
    OK(cu.cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cu.cuMemHostAlloc((void **)&out, 4, 0));
    OK(cu.cuMemAlloc_v2(&a, 4));
    OK(cu.cuMemsetD8Async(a, 1, 4, s));
    OK(cu.cuEventRecord(e, s));
    OK(cu.cuMemsetD8Async(a, 2, 4, s)); /* behind the event: nothing that t waits for */
    if (has_event) OK(cu.cuStreamWaitEvent(t, e, 0));
    OK(cu.cuMemcpyDtoHAsync_v2(out, a, 4, t));
    OK(cu.cuStreamSynchronize(t));
    return *out;
}

Test(fake, orders_streams_by_events_alone) {
    LOAD(NULL);
    cr_assert_eq(handed_over(true), 0x01010101);
    cr_assert_eq(handed_over(false), -1);
}

Test(fake, runs_in_other_orders) {
    LOAD("FAKECUDA_ORDER", "reverse", NULL);
    cr_assert_eq(handed_over(true), 0x02020202, "s ran before what was waited for");
}

Test(fake, runs_at_once) {
    LOAD("FAKECUDA_ORDER", "eager", NULL);
    cr_assert_eq(handed_over(false), 0x02020202);
    cr_assert_eq(fake_live("pending"), 0);
}

Test(fake, measures_between_events) {
    cu_event e[3];
    float ms = -1;
    LOAD(NULL);
    open_device(0);
    for (int i = 0; i < 3; i++) OK(cu.cuEventCreate(&e[i], i == 2 ? CU_EVENT_DISABLE_TIMING : 0));
    OK(cu.cuEventQuery(e[0]));
    GIVES(CU_INVALID_HANDLE, cu.cuEventElapsedTime(&ms, e[0], e[1]));
    for (int i = 0; i < 3; i++) OK(cu.cuEventRecord(e[i], NULL));
    GIVES(CU_NOT_READY, cu.cuEventElapsedTime(&ms, e[0], e[1]));
    OK(cu.cuEventSynchronize(e[1]));
    OK(cu.cuEventElapsedTime(&ms, e[0], e[1]));
    cr_assert_geq(ms, 0);
    OK(cu.cuEventSynchronize(e[2]));
    GIVES(CU_INVALID_HANDLE, cu.cuEventElapsedTime(&ms, e[0], e[2]));
    OK(cu.cuEventDestroy_v2(e[0]));
    GIVES(CU_INVALID_HANDLE, cu.cuEventRecord(e[0], NULL));
    cr_assert_eq(fake_live("event"), 2);
}

Test(fake, checks_launches) {
    cu_address a;
    uint32_t n = 1;
    LOAD(NULL);
    open_device(0);
    OK(cu.cuMemAlloc_v2(&a, 4));
    void *params[] = {&a, &a, &n};
    cu_function f = get_add();
    static const struct {
        unsigned grid[3], block[3], shared;
    } wrong[] = {{{0, 1, 1}, {1, 1, 1}, 0}, {{1, 65536, 1}, {1, 1, 1}, 0}, {{1, 1, 1}, {65, 1, 1}, 0},
                 {{1, 1, 1}, {0, 1, 1}, 0}, {{1, 1, 1}, {1, 1, 65}, 0},    {{1, 1, 1}, {1, 1, 1}, (48 << 10) - 3}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        GIVES(CU_INVALID_VALUE,
              cu.cuLaunchKernel(f, wrong[i].grid[0], wrong[i].grid[1], wrong[i].grid[2], wrong[i].block[0],
                                wrong[i].block[1], wrong[i].block[2], wrong[i].shared, NULL, params, NULL));
    OK(cu.cuFuncSetAttribute(f, CU_FUNC_MAX_DYNAMIC_SHARED, 100 << 10));
    OK(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 100 << 10, NULL, params, NULL));
    n = 1000000; /* the parameters were copied */
    OK(cu.cuStreamSynchronize(NULL));
    GIVES(CU_INVALID_VALUE, cu.cuFuncSetAttribute(f, CU_FUNC_MAX_DYNAMIC_SHARED, 228 << 10));
    cr_assert_eq(fake_live("pending"), 0);
}

Test(fake, refuses_modules) {
    cu_module m;
    char log[256] = "";
    int options[] = {CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BYTES};
    void *values[] = {log, (void *)sizeof log};
    LOAD("FAKECUDA_CC", "80", "FAKECUDA_PTX", "7.5", NULL);
    open_device(0);
    GIVES(CU_NO_BINARY_FOR_GPU, cu.cuModuleLoadDataEx(&m, HEAD("7.0", "sm_90") BODY, 0, NULL, NULL));
    GIVES(CU_NO_BINARY_FOR_GPU, cu.cuModuleLoadDataEx(&m, HEAD("7.0", "sm_70a") BODY, 0, NULL, NULL));
    GIVES(CU_UNSUPPORTED_PTX_VERSION, cu.cuModuleLoadDataEx(&m, HEAD("7.6", "sm_80") BODY, 0, NULL, NULL));
    GIVES(CU_INVALID_PTX, cu.cuModuleLoadDataEx(&m, HEAD("7.0", "sm_80") "rubbish", 2, options, values));
    cr_assert(strstr(log, "rubbish"), "%s", log);
    cr_assert_eq((size_t)values[1], strlen(log) + 1);
    GIVES(CU_INVALID_IMAGE, cu.cuModuleLoadDataEx(&m,
                                                  "\x7f"
                                                  "ELF and what follows",
                                                  0, NULL, NULL));
    OK(cu.cuModuleLoadDataEx(&m, HEAD("7.0", "sm_70") BODY, 0, NULL, NULL));
    cu_function f;
    GIVES(CU_NOT_FOUND, cu.cuModuleGetFunction(&f, m, "other"));
    OK(cu.cuModuleGetFunction(&f, m, "add"));
    OK(cu.cuModuleUnload(m));
    GIVES(CU_INVALID_HANDLE, cu.cuModuleUnload(m));
    GIVES(CU_INVALID_HANDLE, cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}

Test(fake, links_cubins) {
    cu_link l;
    cu_module m;
    void *cubin;
    size_t bytes;
    LOAD(NULL);
    open_device(0);
    OK(cu.cuLinkCreate_v2(0, NULL, NULL, &l));
    OK(cu.cuLinkAddData_v2(l, CU_JIT_INPUT_PTX, (void *)text, sizeof text, "k", 0, NULL, NULL));
    OK(cu.cuLinkComplete(l, &cubin, &bytes));
    char *copy = malloc(bytes);
    memcpy(copy, cubin, bytes);
    OK(cu.cuLinkDestroy(l));
    OK(cu.cuModuleLoadDataEx(&m, copy, 0, NULL, NULL));
    for (size_t i = 4; i < bytes; i += 17) {
        copy[i] ^= 4;
        GIVES(CU_INVALID_IMAGE, cu.cuModuleLoadDataEx(&m, copy, 0, NULL, NULL));
        copy[i] ^= 4;
    }
    cr_assert_eq(fake_live("module"), 1);
    cr_assert_eq(fake_live("link"), 0);
    free(copy);
}

Test(fake, fails_where_it_is_told) {
    cu_address a;
    LOAD("FAKECUDA_FAIL", "cuMemAlloc_v2:2=2,cuStreamCreate:*=1,cuLaunchKernel:1=719@", NULL);
    open_device(0);
    OK(cu.cuMemAlloc_v2(&a, 4));
    GIVES(CU_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&a, 4));
    OK(cu.cuMemAlloc_v2(&a, 4));
    cu_stream s;
    for (int i = 0; i < 3; i++) GIVES(CU_INVALID_VALUE, cu.cuStreamCreate(&s, 0));
    OK(add(get_add(), NULL, a, a, 1));
    GIVES(CU_LAUNCH_FAILED, cu.cuStreamSynchronize(NULL));
    GIVES(CU_LAUNCH_FAILED, cu.cuMemAlloc_v2(&a, 4));
}

Test(fake, has_settings) {
    int n;
    size_t all, left;
    cu_address a;
    LOAD("FAKECUDA_DEVICES", "2", "FAKECUDA_MEMORY", "1M", "FAKECUDA_CC", "120", "FAKECUDA_VERSION", "12040", NULL);
    GIVES(CU_NOT_INITIALIZED, cu.cuDeviceGetCount(&n));
    open_device(1);
    OK(cu.cuDeviceGetCount(&n));
    cr_assert_eq(n, 2);
    OK(cu.cuDriverGetVersion(&n));
    cr_assert_eq(n, 12040);
    OK(cu.cuDeviceGetAttribute(&n, CU_DEVICE_CC_MAJOR, 1));
    cr_assert_eq(n, 12);
    GIVES(CU_OUT_OF_MEMORY, cu.cuMemAlloc_v2(&a, (1 << 20) + 1));
    OK(cu.cuMemAlloc_v2(&a, 1 << 19));
    OK(cu.cuMemGetInfo_v2(&left, &all));
    cr_assert_eq(all, 1 << 20);
    cr_assert_eq(left, 1 << 19);
    cu_device d;
    GIVES(CU_INVALID_DEVICE, cu.cuDeviceGet(&d, 2));
    OK(cu.cuPointerGetAttribute(&n, CU_POINTER_DEVICE_ORDINAL, a + 5));
    cr_assert_eq(n, 1);
}

Test(fake, keeps_devices_apart) {
    cu_address a, b;
    cu_context c[2], now;
    LOAD("FAKECUDA_DEVICES", "2", NULL);
    open_device(0);
    OK(cu.cuMemAlloc_v2(&a, 64));
    OK(cu.cuMemsetD8Async(a, 3, 64, NULL));
    open_device(1);
    OK(cu.cuMemAlloc_v2(&b, 64));
    GIVES(CU_INVALID_VALUE, cu.cuMemcpyDtoDAsync_v2(b, a, 64, NULL));
    OK(cu.cuCtxPopCurrent_v2(&c[1]));
    OK(cu.cuCtxGetCurrent(&c[0]));
    OK(cu.cuStreamSynchronize(NULL));
    OK(cu.cuCtxPushCurrent_v2(c[1]));
    OK(cu.cuMemcpyPeerAsync(b, c[1], a, c[0], 64, NULL));
    char v[64];
    OK(cu.cuMemcpyDtoHAsync_v2(v, b, 64, NULL));
    cr_assert_eq(v[63], 3);
    OK(add(get_add(), NULL, a, b, 1));
    GIVES(CU_ILLEGAL_ADDRESS, cu.cuStreamSynchronize(NULL));
    SAID("memory of device 0");
    OK(cu.cuCtxPopCurrent_v2(&now));
    OK(cu.cuMemFree_v2(a)); /* the other device lives */
    OK(cu.cuCtxPopCurrent_v2(&now));
    GIVES(CU_INVALID_CONTEXT, cu.cuMemAlloc_v2(&a, 4));
}

static void *device_memory(void) {
    cu_address a;
    open_device(0);
    OK(cu.cuMemAlloc_v2(&a, 64));
    return (void *)(uintptr_t)a;
}

Test(fake, addresses_are_not_for_the_host, .signal = SIGSEGV) {
    signal(SIGSEGV, SIG_DFL); /* not a sanitizer's */
    LOAD(NULL);
    *(volatile int *)device_memory() = 1;
}

Test(fake, a_child_has_no_driver) {
    LOAD(NULL);
    open_device(0);
    pid_t child = fork();
    if (child == 0) {
        int n;
        _exit(cu.cuDeviceGetCount(&n) == CU_NOT_INITIALIZED && cu.cuInit(0) == CU_NOT_INITIALIZED ? 7 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    cr_assert_eq(WEXITSTATUS(status), 7);
}

Test(fake, refuses_settings_that_it_does_not_know) {
    LOAD("FAKECUDA_FAIL", "cuMemAloc:1=2", NULL);
    GIVES(CU_INVALID_VALUE, cu.cuInit(0));
    SAID("FAKECUDA_FAIL");
}
