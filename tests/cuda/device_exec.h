/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef DEVICE_EXEC_H
#define DEVICE_EXEC_H
/* For tests of the executor on a device: a cache and a queue for each test, executables of a text, buffers here and
 * there. A test includes it once, has init() as its suite's, and calls begin() first. */
#include "../diff/check.h"
#include "device_place.h"
#include "rt/profile.h"
#include <criterion/criterion.h>

static fu_error error;
static rt_cache *cache;
static rt_queue *queue;

static void init(void) {
    unsetenv("FUSOR_CACHE_PATH");
    fu_error_clear(&error);
    rt_cache_options o = {.dir = "", .path = ""};
    cr_assert_eq(rt_cache_open(&error, &o, &cache), FUSOR_OK);
}

/* Opens the queue; false: there is no code generation, and the test is skipped. */
static UNUSED bool begin(void) {
    const fusor_codegen_table *t;
    if (rt_module_get(&error, &t) != FUSOR_OK) {
        cr_skip("%s", error.text);
        return false;
    }
    queue = place_queue(&error, 0);
    cr_assert(queue, "%s", error.text);
    return true;
}

/* With a profile of its own, which is off: *profile, the test's to free. */
static UNUSED rt_exec *compile_profiled(const char *text, _Atomic(rt_profile *) *profile) {
    atomic_store(profile, rt_profile_new());
    rt_exec *x = build(&error, cache, text,
                       (setup){.level = rt_device_get_info(rt_queue_device(queue))->target.level,
                               .n_threads = 1,
                               .queue = queue,
                               .profile = profile});
    cr_assert(x, "%s", error.text);
    return x;
}

#define OK(...)                                                                                                        \
    do {                                                                                                               \
        fu_error_clear(&error);                                                                                        \
        cr_assert_eq((__VA_ARGS__), FUSOR_OK, "%s", error.text);                                                       \
    } while (0)
#define FAILS(want, words, ...)                                                                                        \
    do {                                                                                                               \
        fu_error_clear(&error);                                                                                        \
        cr_assert_eq((__VA_ARGS__), want, "%s", error.text);                                                           \
        cr_assert(strstr(error.text, words), "'%s' has no '%s'", error.text, words);                                   \
    } while (0)

/* For the queue's device. NULL: the error says why. */
static UNUSED rt_exec *compile_here(const char *text) {
    const ir_target target = rt_device_get_info(rt_queue_device(queue))->target;
    return build(&error, cache, text, (setup){.level = target.level, .n_threads = 1, .queue = queue});
}
static UNUSED rt_exec *compile(const char *text) {
    rt_exec *x = compile_here(text);
    cr_assert(x, "%s: %s", text, error.text);
    return x;
}
/* The reference evaluator, on the CPU. */
static UNUSED rt_exec *compile_reference(const char *text) {
    rt_exec *x = build(&error, cache, text, (setup){.level = IR_LEVEL_V2, .n_threads = 1, .reference = true});
    cr_assert(x, "%s: %s", text, error.text);
    return x;
}

/* A buffer of f32 in memory of the host. */
static UNUSED fusor_buffer here(float *data, int rank, int64_t m, int64_t n) {
    return (fusor_buffer){.data = data, .dtype = FUSOR_F32, .rank = rank, .shape = {m, n}};
}
static UNUSED void drop(const fusor_buffer *b) { rt_queue_put(queue, (rt_address)(uintptr_t)b->data); }
#endif
