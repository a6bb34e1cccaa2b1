/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* queue_fault_test.c: what queues do when the driver fails: too little memory, errors of one call, contexts that died;
 * every function of the driver and every allocation of one scenario that goes through all of them. */
#include "queue_add.h"

Test(queue, no_memory) {
    on_fake("FAKECUDA_MEMORY", "64M", NULL);
    rt_queue *q = open_queue(), *other;
    OK(rt_queue_new(device, &error, &other));
    rt_address a[8] = {0}, b;
    int n = 0;
    fu_error_clear(&error);
    while (n < 8 && rt_queue_get(q, &error, 20 << 20, &a[n]) == FUSOR_OK) n++;
    cr_assert_eq(n, 3);
    cr_assert_eq(error.status, FUSOR_ERROR_MEMORY);
    cr_assert(strstr(error.text, "no memory for 20971520 bytes"), "%s", error.text);
    cr_assert(strstr(error.text, "62914560 are in use here"), "%s", error.text);
    FAILS(rt_queue_get(q, &error, (size_t)1 << 60, &b), FUSOR_ERROR_MEMORY, "no memory for 1152921504606846976 bytes");
    FAILS(rt_queue_get(q, &error, SIZE_MAX, &b), FUSOR_ERROR_MEMORY, "no memory");
    /* What lies unused in other classes makes room ... */
    rt_queue_put(q, a[0]);
    rt_queue_put(q, a[1]);
    OK(rt_queue_get(q, &error, 40 << 20, &b));
    rt_queue_put(q, b);
    /* ... what another queue's work may use still too, after a wait for it. */
    OK(rt_queue_get(other, &error, 30 << 20, &a[0]));
    OK(rt_queue_fill(other, &error, a[0], 1, 1000));
    rt_queue_put(other, a[0]);
    OK(rt_queue_get(q, &error, 41 << 20, &b));
    rt_queue_free(other);
    rt_queue_free(q);
}

Test(queue, an_allocation_that_fails_once) {
    on_fake("FAKECUDA_FAIL", "cuMemAlloc_v2:2=2,cuMemAlloc_v2:4=2", NULL);
    rt_queue *q = open_queue();
    rt_address a, b, c;
    OK(rt_queue_get(q, &error, 1000, &a));
    FAILS(rt_queue_get(q, &error, 100000, &b), FUSOR_ERROR_MEMORY, "no memory for 100000 bytes");
    OK(rt_queue_get(q, &error, 100000, &b));
    rt_queue_put(q, b);
    OK(rt_queue_get(q, &error, 1000000, &c)); /* the fourth fails, the fifth after giving b back */
    cr_assert_eq(fake_live("memory"), 2);
    rt_queue_free(q);
}

/* ---- errors ---- */
Test(queue, a_context_that_died) {
    on_fake("FAKECUDA_FAIL", "cuLaunchKernel:2=719@", NULL);
    rt_queue *q = open_queue(), *other;
    rt_device_kernel *k = get_add();
    OK(rt_queue_new(device, &error, &other));
    rt_address x;
    uint32_t data[100] = {0};
    OK(rt_queue_get(q, &error, sizeof data, &x));
    OK(rt_queue_upload(q, &error, x, data, sizeof data));
    OK(add(q, k, x, x, 100, 1));
    OK(add(q, k, x, x, 100, 1)); /* it fails when it runs */
    FAILS(rt_queue_wait(q, &error), FUSOR_ERROR_DEVICE, "CUDA_ERROR_LAUNCH_FAILED");
    cr_assert(strstr(error.text, "context is lost"), "%s", error.text);
    /* From now on every call says so, on every queue. */
    rt_address at;
    rt_queue *more;
    int id;
    FAILS(rt_queue_wait(other, &error), FUSOR_ERROR_DEVICE, "an earlier kernel or copy failed");
    FAILS(add(other, k, x, x, 100, 1), FUSOR_ERROR_DEVICE, "LAUNCH_FAILED");
    FAILS(rt_queue_get(other, &error, 10, &at), FUSOR_ERROR_DEVICE, "LAUNCH_FAILED");
    FAILS(rt_queue_upload(q, &error, x, data, 4), FUSOR_ERROR_DEVICE, "LAUNCH_FAILED");
    FAILS(rt_queue_download(q, &error, data, x, 4), FUSOR_ERROR_DEVICE, "LAUNCH_FAILED");
    FAILS(rt_queue_mark(q, &error, &id), FUSOR_ERROR_DEVICE, "LAUNCH_FAILED");
    FAILS(rt_queue_follow(q, &error, other), FUSOR_ERROR_DEVICE, "LAUNCH_FAILED");
    FAILS(rt_queue_new(device, &error, &more), FUSOR_ERROR_DEVICE, "LAUNCH_FAILED");
    rt_kernel *again = new_kernel(add_ptx, 9);
    rt_device_kernel *loaded;
    FAILS(rt_device_kernel_get(device, &error, again, &loaded), FUSOR_ERROR_DEVICE, "LAUNCH_FAILED");
    rt_kernel_release(again);
    rt_queue_put(q, x);
    rt_device_trim(device);
    rt_device_kernel_release(k);
    rt_queue_free(other);
    rt_queue_free(q);
}

Test(queue, an_error_of_one_call) {
    on_fake("FAKECUDA_FAIL", "cuLaunchKernel:1=1", NULL);
    rt_queue *q = open_queue();
    rt_device_kernel *k = get_add();
    rt_address x;
    OK(rt_queue_get(q, &error, 400, &x));
    OK(rt_queue_fill(q, &error, x, 0, 400));
    FAILS(add(q, k, x, x, 100, 1), FUSOR_ERROR_DEVICE, "launching add: grid 1x1x1, block 256x1x1");
    OK(add(q, k, x, x, 100, 1));
    OK(rt_queue_wait(q, &error));
    rt_queue_free(q);
}

/* After an error nothing arrives in memory that may be another's by then; what other calls wait for does. */
static int fail_a_download(void) {
    enum { N = 3 << 20, FEW = 100000 }; /* two slots; a part of one */
    rt_queue *q = open_queue();
    char *to = malloc(N), *few = malloc(FEW);
    rt_address x;
    OK(rt_queue_get(q, &error, N, &x));
    OK(rt_queue_fill(q, &error, x, 7, N));
    OK(rt_queue_download_later(q, &error, few, x, FEW));
    if (rt_queue_download(q, &error, to, x, N) != FUSOR_ERROR_DEVICE) return 1;
    if (few[0] != 7 || few[FEW - 1] != 7) return 2;
    memset(to, 1, N);
    memset(few, 1, FEW);
    OK(rt_queue_wait(q, &error));
    if (few[0] != 1) return 3;
    for (int i = 0; i < N; i++)
        if (to[i] != 1) return 4;
    OK(rt_queue_download(q, &error, to, x, N));
    for (int i = 0; i < N; i++)
        if (to[i] != 7) return 5;
    rt_queue_put(q, x);
    rt_queue_free(q);
    free(to);
    free(few);
    return 0;
}

Test(queue, nothing_arrives_after_an_error) {
    static const char *const faults[] = {"cuMemcpyDtoHAsync_v2:2=1", "cuMemcpyDtoHAsync_v2:3=1", "cuEventRecord:2=1",
                                         "cuEventSynchronize:1=1", "cuStreamSynchronize:1=1"};
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        on_fake("FAKECUDA_FAIL", faults[f], NULL);
        const int got = in_child(fail_a_download);
        cr_assert_eq(got, 0, "%s: %d", faults[f], got);
    }
}

/* What kernels find wrong is an error of a wait. */
Test(queue, memory_that_nobody_has) {
    on_fake(NULL);
    rt_queue *q = open_queue();
    rt_device_kernel *k = get_add();
    OK(add(q, k, 4096, 4096, 100, 1));
    FAILS(rt_queue_wait(q, &error), FUSOR_ERROR_DEVICE, "ILLEGAL_ADDRESS");
    rt_queue_free(q);
}

/* ---- faults ---- */
/* Every function of the driver fails, the first, second and fourth time, in turn with an error of the call, of memory,
 * and one that kills the context: errors come back, and what works has the right result. */
static long fail_at; /* allocation of the host that fails; 0: none */
static int scenario(void) {
    rt_queue *q = NULL, *other = NULL;
    rt_device_kernel *k = NULL;
    rt_kernel *text = new_kernel(add_ptx, 1);
    rt_address x = 0, y = 0;
    enum { N = 20000 };
    uint32_t *data = numbers(N, 1), *back = numbers(N, 0), few[4] = {0};
    int a, b;
    int64_t ns;
    fu_error_clear(&error);
    fu_malloc_fail_at(fail_at);
    fusor_status s = rt_device_open(&error, 0, &device);
    if (s == FUSOR_OK) s = rt_queue_new(device, &error, &q);
    if (s == FUSOR_OK) s = rt_queue_new(device, &error, &other);
    if (s == FUSOR_OK) s = rt_device_kernel_get(device, &error, text, &k);
    for (int i = 0; i < 3 && s == FUSOR_OK; i++) {
        x = y = 0;
        s = rt_queue_get(q, &error, 4 * N, &x);
        if (s == FUSOR_OK) s = rt_queue_get(q, &error, 4 * N, &y);
        if (s == FUSOR_OK) s = rt_queue_upload(q, &error, x, data, 4 * N);
        if (s == FUSOR_OK) s = rt_queue_mark(q, &error, &a);
        if (s == FUSOR_OK) s = add(q, k, x, y, N, 1);
        if (s == FUSOR_OK) s = rt_queue_mark(q, &error, &b);
        if (s == FUSOR_OK) s = rt_queue_copy(q, &error, x, y, 4 * N);
        if (s == FUSOR_OK) s = rt_queue_fill(q, &error, y, 0, 4 * N);
        if (s == FUSOR_OK) s = rt_queue_follow(other, &error, q);
        if (s == FUSOR_OK) s = rt_queue_download_later(q, &error, back, x, 4 * N);
        if (s == FUSOR_OK) s = rt_queue_wait(q, &error);
        if (s == FUSOR_OK) s = rt_queue_between(q, &error, a, b, &ns);
        if (s == FUSOR_OK) s = rt_queue_download(other, &error, few, x, sizeof few);
        if (s == FUSOR_OK && (back[N - 1] != N + 1 || few[3] != 5)) return 9;
        rt_queue_put(q, x);
        rt_queue_put(q, y);
    }
    fu_malloc_fail_at(0);
    rt_device_kernel_release(k);
    rt_kernel_release(text);
    rt_queue_free(other);
    rt_queue_free(q);
    if (device) rt_device_trim(device);
    free(data);
    free(back);
    if (s == FUSOR_OK) return error.status == FUSOR_OK ? 0 : 8;
    return s == error.status && error.text[0] && (s == FUSOR_ERROR_DEVICE || s == FUSOR_ERROR_MEMORY) ? 1 : 7;
}

Test(queue, every_function_fails, .timeout = 300) {
    static const int nth[] = {1, 2, 4}, codes[] = {1, 2, 700};
    int n_failed = 0, n_served = 0;
    on_fake(NULL);
    cr_assert_eq(in_child(scenario), 0);
    for (int f = 0; f < N_FAKE_FUNCTIONS; f++)
        for (int i = 0; i < 3; i++) {
            char fault[128];
            snprintf(fault, sizeof fault, "%s:%d=%d", fake_functions[f], nth[i], codes[(f + i) % 3]);
            setenv("FAKECUDA_FAIL", fault, 1);
            int got = in_child(scenario);
            cr_assert(got <= 1, "%s: %d", fault, got);
            n_failed += got;
            n_served += !got;
        }
    cr_assert(n_failed > 40 && n_served > 5, "%d failed, %d served", n_failed, n_served);
}

Test(queue, every_allocation_fails, .timeout = 60) {
    int n_failed = 0;
    on_fake(NULL);
    for (fail_at = 1; fail_at < 200; fail_at++) {
        int got = in_child(scenario);
        cr_assert(got <= 1, "allocation %ld: %d", fail_at, got);
        n_failed += got;
        if (!got && fail_at > 20) break; /* there are not that many */
    }
    cr_assert(n_failed > 5 && fail_at < 200, "%d failed, %ld tried", n_failed, fail_at);
}
