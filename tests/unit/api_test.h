/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef API_TEST_H
#define API_TEST_H
/* What tests of the C API share: a context that keeps nothing on disk, and checks of a status and its message. The
 * context of the test is a variable `ctx`. */
#include "fusor/fusor.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* target NULL: the host's; n_threads 0: as many as the machine has. */
static inline fusor_context *new_context_for(const char *target, int n_threads) {
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.cache_dir = "";
    o.n_threads = n_threads;
    o.target = target;
    fusor_context *ctx = fusor_context_new(&o);
    cr_assert(ctx);
    return ctx;
}
static inline fusor_context *new_context(int n_threads) { return new_context_for(NULL, n_threads); }

#define OK(expr) cr_assert_eq((expr), FUSOR_OK, "%s", fusor_error_message(ctx))
#define FAILS(expr, status, text)                                                                                      \
    do {                                                                                                               \
        cr_assert_eq((expr), (status), "%s", fusor_error_message(ctx));                                                \
        cr_assert(strstr(fusor_error_message(ctx), text), "%s", fusor_error_message(ctx));                             \
    } while (0)

/* The one function of a text, compiled with flags (FUSOR_NO_FUSE). */
static inline fusor_executable *compiled_with(fusor_context *ctx, const char *text, uint32_t flags) {
    fusor_module *m = NULL;
    fusor_executable *exe = NULL;
    fusor_compile_options o = FUSOR_COMPILE_OPTIONS_INIT;
    o.flags = flags;
    OK(fusor_module_parse(ctx, NULL, text, strlen(text), &m));
    OK(fusor_module_compile(m, NULL, &o, &exe));
    fusor_module_free(m);
    return exe;
}

/* The bytes of its one result after so many calls, each of which finds what the one before left in its memory; `out` is
 * the caller's to free. */
static inline size_t bytes_after_calls(fusor_context *ctx, fusor_executable *exe, int calls, int n_in,
                                       const fusor_buffer *in, void **out) {
    fusor_buffer y = {.data = NULL};
    for (int i = 0; i < calls; i++) {
        fusor_buffer_free(ctx, &y);
        y = (fusor_buffer){.data = NULL};
        OK(fusor_executable_call(exe, n_in, in, 1, &y));
    }
    size_t bytes = fusor_dtype_size(y.dtype);
    for (int d = 0; d < y.rank; d++) bytes *= (size_t)y.shape[d];
    *out = malloc(bytes + 1);
    memcpy(*out, y.data, bytes);
    fusor_buffer_free(ctx, &y);
    return bytes;
}
#endif
