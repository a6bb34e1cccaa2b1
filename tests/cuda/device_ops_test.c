/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* device_ops_test.c: the differential test of every operator (ops_test.c) by the way of a user's program: the
 * executor's device part, the queue, a driver. Inputs and outputs are at random the host's or the device's, strided
 * ones too. gpu_ops_test.c has more shapes, and guard pages around what kernels touch; here are fewer, as each costs
 * copies too. */
#include "ir/target.h"
#include "device_place.h"

static rt_queue *the_queue(void);
#define LAUNCH    NULL
#define QUEUE     the_queue()
#define N_TARGETS 1
static bool choose_target(int i, uint32_t levels, const char *text, ir_target *out) {
    (void)i, (void)levels, (void)text;
    *out = rt_device_get_info(rt_queue_device(the_queue()))->target;
    return true;
}
#define IS_FOR_US(size)                                                                                                \
    ((size)[0] * ((size)[1] > 0 ? (size)[1] : 1) * ((size)[2] > 0 ? (size)[2] : 1) <= 1500 && n_checks++ % 4 == 0)
#define IS_TYPE_FOR_US(op, t)  ((t) == FUSOR_F32 || mix((uint64_t)(op)*64 + (uint64_t)(t)) % 12 == 0)
#define IS_ALWAYS_FOR_US(text) false
#define N_FUSIONS(...)         1
#define N_PROCESSES            (on_machine() ? 3 : IR_OP_COUNT) /* each costs a context there */
static unsigned n_checks, n_placed;
static placed places[16];
#define PLACE_THERE(number, buffer, memory, bytes)                                                                     \
    do {                                                                                                               \
        places[number] = (placed){0};                                                                                  \
        if (mix(n_placed++) & 1) places[number] = place_there(the_queue(), &error, buffer, memory, bytes);             \
    } while (0)
#define PLACE_BACK(number, buffer)                                                                                     \
    do {                                                                                                               \
        if (places[number].at) place_back(the_queue(), &error, buffer, &places[number]);                               \
    } while (0)
#include "../diff/ops_test.c"

/* One a process: Criterion forks before a test. */
static rt_queue *the_queue(void) {
    static rt_queue *q;
    if (!q) q = place_queue(&error, 0);
    cr_assert(q, "%s", error.text);
    return q;
}
