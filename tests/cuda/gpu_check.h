/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef GPU_CHECK_H
#define GPU_CHECK_H
/* check() of the differential test (../diff/ops_test.c) with GPU kernels (gpu_run.h), for tests that have programs of
 * their own. A test includes this once. */
#include "ir/target.h"
#include "gpu_run.h"

static ir_level gpu_level = IR_LEVEL_SM80;
static int gpu_fusions = 1; /* 2: fused, and not */
static bool gpu_is_fast;
static bool choose_target(int i, uint32_t levels, const char *text, ir_target *out) {
    (void)i, (void)levels, (void)text;
    *out = (ir_target){gpu_level_for(gpu_level), 0};
    return true;
}
#define LAUNCH                GPU_LAUNCH
#define QUEUE                 GPU_QUEUE
#define N_TARGETS             1
#define IS_FOR_US(size)       true
#define IS_TYPE_FOR_US(op, t) true
#define N_FUSIONS(...)        gpu_fusions
#define IS_FAST               gpu_is_fast
#define HAS_OWN_PROGRAMS
#pragma GCC diagnostic ignored "-Wunused-function" /* generators of other operators */
#include "../diff/ops_test.c"

/* A test of N numbers: GPU_TESTS(suite, name, N) { of *number }. Each is a process of its own in the interpreter; on a
 * device, where a process costs half a second for its context, a few processes do all. Sanitizers find nothing in
 * interpreted PTX, only in what makes and interprets it: there a third of the numbers, no rule of which is that of what a
 * number stands for; and everywhere, where they are many, what is this run's share (share.h). */
enum { FEW_NUMBERS = 12 };
static int gpu_processes(int n) { return on_machine() && n > GPU_DEVICE_PROCESSES ? GPU_DEVICE_PROCESSES : n; }
static bool gpu_takes_number(int number, int n) {
    const uint64_t of = mix((uint64_t)number);
#ifdef __SANITIZE_ADDRESS__
    if (number > 0 && of % 3 != 0) return false;
#endif
    return number == 0 || n <= FEW_NUMBERS || is_in_share(of / 3);
}
static struct criterion_test_params gpu_numbers(int n) {
    static int numbers[1000];
    size_t taken = 0;
    cr_assert_leq(n, 1000);
    for (int i = 0; i < gpu_processes(n); i++)
        if (gpu_takes_number(i, n)) numbers[taken++] = i;
    return cr_make_param_array(int, numbers, taken);
}
#define GPU_TESTS(SUITE, NAME, N)                                                                                      \
    static void NAME##_of(const int *number);                                                                          \
    ParameterizedTestParameters(SUITE, NAME) { return gpu_numbers((int)(N)); }                                         \
    ParameterizedTest(int *first, SUITE, NAME, .timeout = 1500) {                                                      \
        for (int i = *first; i < (int)(N); i += gpu_processes((int)(N))) NAME##_of(&i);                                \
    }                                                                                                                  \
    static void NAME##_of(const int *number)

/* A device counts nothing: there a test of what was counted ends with its results. */
static bool gpu_ends_uncounted(void) {
    if (!on_machine()) return false;
    gpu_is_fast = false;
    rt_cache_close(cache);
    return true;
}
#endif
