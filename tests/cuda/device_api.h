/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef DEVICE_API_H
#define DEVICE_API_H
/* For tests of the C API on devices: contexts, copies that were made, buffers there with given contents. */
#include "../unit/api_test.h"
#include "on_fake.h"
#include <math.h>

static inline fusor_context *device_context(const char *device) {
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.cache_dir = "";
    o.n_threads = 1;
    o.device = device;
    on_driver();
    (void)setenv("FAKECUDA_DEVICES", "2", 0);
    fusor_context *ctx = fusor_context_new(&o);
    cr_assert(ctx);
    return ctx;
}

static inline long downloads(void) { return fake_count("cuMemcpyDtoHAsync_v2"); }
static inline long uploads(void) { return fake_count("cuMemcpyHtoDAsync_v2"); }

#define HOST(pointer, type, ...)                                                                                       \
    ((fusor_buffer){.data = (pointer),                                                                                 \
                    .dtype = (type),                                                                                   \
                    .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                                        \
                    .shape = {__VA_ARGS__}})

/* A buffer on device 1 with the elements of b. */
static inline fusor_buffer there(fusor_context *ctx, const fusor_buffer *b) {
    fusor_buffer d = *b;
    d.flags = 0;
    d.data = NULL;
    d.device = 1;
    OK(fusor_buffer_new(ctx, &d));
    OK(fusor_buffer_copy(ctx, b, &d));
    return d;
}

/* The f32 elements of a buffer are these. */
static inline void holds(fusor_context *ctx, const fusor_buffer *b, const float *want) {
    fusor_buffer host = *b;
    float *at = malloc(64 << 10);
    int64_t n = 1;
    for (int d = 0; d < b->rank; d++) n *= b->shape[d];
    host.data = at;
    host.flags = 0;
    host.device = 0;
    OK(fusor_buffer_copy(ctx, b, &host));
    for (int64_t i = 0; i < n; i++) cr_assert_eq(at[i], want[i], "element %d is %g, not %g", (int)i, at[i], want[i]);
    free(at);
}
#endif
