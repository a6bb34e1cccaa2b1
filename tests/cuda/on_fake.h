/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef ON_FAKE_H
#define ON_FAKE_H
/* For tests that run on the fake driver (README.md): chooses it, and asks it. Each Criterion test is a process of its own. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline const char *on_fake_path(void) {
    static char path[4096];
    const char *dir = getenv("FUSOR_BUILDDIR");
    snprintf(path, sizeof path, "%s/tests/cuda/libcuda_fake.so", dir ? dir : ".");
    return path;
}

/* The fake driver with these settings: name, value, ..., NULL. */
static inline void on_fake(const char *name, ...) {
    va_list args;
    va_start(args, name);
    for (const char *n = name; n; n = va_arg(args, const char *)) setenv(n, va_arg(args, const char *), 1);
    va_end(args);
    setenv("FAKECUDA_QUIET", "1", 1);
    setenv("FUSOR_CUDA_LIB", on_fake_path(), 1);
}

/* Once the driver is loaded. */
static inline long on_fake_ask(const char *function, const char *what) {
    void *library = dlopen(on_fake_path(), RTLD_NOW | RTLD_NOLOAD), *symbol = library ? dlsym(library, function) : NULL;
    long (*ask)(const char *);
    memcpy(&ask, &symbol, sizeof ask);
    return ask ? ask(what) : -1;
}
/* Calls of a function; what is alive: "memory", "bytes", "host", "stream", "event", "module", "link", "pending". */
static inline long fake_count(const char *function) { return on_fake_ask("fake_cuda_count", function); }
static inline long fake_live(const char *kind) { return on_fake_ask("fake_cuda_live", kind); }
#endif
