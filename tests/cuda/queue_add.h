/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef QUEUE_ADD_H
#define QUEUE_ADD_H
/* For tests of queues and modules on the fake driver: a device and a queue, and a kernel of PTX that adds to words. A
 * test includes it once. */
#include "on_fake.h"
#include "rt/device.h"
#include <criterion/criterion.h>
#include <sys/wait.h>
#include <unistd.h>

static _Thread_local fu_error error;
static rt_device *device;
#define OK(CALL)                                                                                                       \
    do {                                                                                                               \
        fu_error_clear(&error);                                                                                        \
        cr_assert_eq((CALL), FUSOR_OK, "%s: %s", #CALL, error.text);                                                   \
    } while (0)
#define FAILS(CALL, STATUS, WORDS)                                                                                     \
    do {                                                                                                               \
        fu_error_clear(&error);                                                                                        \
        cr_assert_eq((CALL), STATUS, "%s: %s", #CALL, error.text);                                                     \
        cr_assert(strstr(error.text, WORDS), "%s: %s", #CALL, error.text);                                             \
    } while (0)

static inline rt_queue *open_queue(void) {
    rt_queue *q;
    OK(rt_device_open(&error, 0, &device));
    OK(rt_queue_new(device, &error, &q));
    return q;
}

/* y[i] = x[i] + v for i < n, of u32 */
typedef struct add_words {
    uint64_t x, y, n, v;
} add_words;
static const char add_ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry add(.param .align 8 .b8 p[32])\n.maxntid 256\n{\n"
    ".reg .pred %p<2>;\n.reg .b32 %r<8>;\n.reg .b64 %rd<6>;\n"
    "ld.param.u64 %rd1, [p];\nld.param.u64 %rd2, [p+8];\nld.param.u32 %r1, [p+16];\nld.param.u32 %r6, [p+24];\n"
    "mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nmov.u32 %r4, %tid.x;\nmad.lo.s32 %r5, %r2, %r3, %r4;\n"
    "setp.ge.u32 %p1, %r5, %r1;\n@%p1 ret;\nmul.wide.u32 %rd3, %r5, 4;\nadd.s64 %rd4, %rd1, %rd3;\n"
    "add.s64 %rd5, %rd2, %rd3;\nld.global.u32 %r2, [%rd4];\nadd.s32 %r3, %r2, %r6;\nst.global.u32 [%rd5], "
    "%r3;\nret;\n}\n";

static inline rt_kernel *new_kernel(const char *ptx, int number) {
    rt_kernel *k = fu_calloc(1, sizeof *k);
    k->ptx = ptx;
    k->ptx_bytes = strlen(ptx);
    strcpy(k->symbol, "add");
    k->key[0] = (uint8_t)number;
    k->description = (char *)(uintptr_t) "d\n";
    k->description_bytes = 2;
    atomic_init(&k->refs, 1);
    return k;
}

static inline rt_device_kernel *get_add(void) {
    rt_kernel *k = new_kernel(add_ptx, 1);
    rt_device_kernel *out;
    OK(rt_device_kernel_get(device, &error, k, &out));
    rt_kernel_release(k); /* the device's holds it */
    return out;
}

static inline fusor_status add(rt_queue *q, const rt_device_kernel *k, rt_address x, rt_address y, size_t n,
                               uint32_t v) {
    add_words w = {x, y, n, v};
    rt_launch l = {.kernel = k,
                   .grid = {(uint32_t)((n + 255) / 256), 1, 1},
                   .block = {256, 1, 1},
                   .param = &w,
                   .param_bytes = sizeof w};
    fusor_status s = rt_queue_launch(q, &error, &l);
    memset(&w, 0xff, sizeof w); /* it was copied */
    return s;
}

static inline uint32_t *numbers(size_t n, uint32_t first) {
    uint32_t *p = malloc(n * 4 + 4);
    for (size_t i = 0; i < n; i++) p[i] = first + (uint32_t)i;
    return p;
}

static inline int in_child(int (*run)(void)) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) _exit(run());
    int status = 0;
    cr_assert(pid > 0 && waitpid(pid, &status, 0) == pid);
    cr_assert(WIFEXITED(status), "a child ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}
#endif
