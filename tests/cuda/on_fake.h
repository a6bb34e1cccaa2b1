/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef ON_FAKE_H
#define ON_FAKE_H
/* For tests of devices: which driver they run on, the fake one (README.md) or a machine's, and what the fake one can be
 * asked. Each Criterion test is a process of its own. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
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

/* The driver that the environment names (a machine's: bench/gpu/run.sh), else the fake one. */
static inline void on_driver(void) { setenv("FUSOR_CUDA_LIB", on_fake_path(), 0); }

/* FUSOR_TEST_DEVICE=1 (bench/gpu/run.sh): tests are to run on a machine's driver and device. */
static inline bool on_machine(void) { return getenv("FUSOR_TEST_DEVICE") != NULL; }

/* Begins a test of what a machine's driver cannot be asked: counts, faults, a device that is full, several devices. */
#define ONLY_ON_THE_FAKE_DRIVER()                                                                                      \
    do {                                                                                                               \
        if (on_machine()) cr_skip_test("needs the fake driver");                                                       \
    } while (0)

/* Once the driver is loaded. */
static inline void *on_fake_symbol(const char *function) {
    void *library = dlopen(getenv("FUSOR_CUDA_LIB"), RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, function) : NULL;
    if (symbol) return symbol;
    fprintf(stderr, "%s: the driver does not count\n", function);
    abort();
}
static inline long on_fake_ask(const char *function, const char *what) {
    void *symbol = on_fake_symbol(function);
    long (*ask)(const char *);
    memcpy(&ask, &symbol, sizeof ask);
    return ask(what);
}
/* Calls of a function; what is alive: "memory", "bytes", "host", "stream", "event", "module", "link", "pending". */
static inline long fake_count(const char *function) { return on_fake_ask("fake_cuda_count", function); }
static inline long fake_live(const char *kind) { return on_fake_ask("fake_cuda_live", kind); }

/* The functions of the driver, and how often each was called. */
#define CUDA(NEED, SYMBOL, PARAMETERS) #SYMBOL,
static const char *const fake_functions[] __attribute__((unused)) = {
#include "rt/cuda_api.def"
};
#undef CUDA
enum { N_FAKE_FUNCTIONS = sizeof fake_functions / sizeof *fake_functions };
static inline void fake_count_all(long out[N_FAKE_FUNCTIONS]) {
    for (int i = 0; i < N_FAKE_FUNCTIONS; i++) out[i] = fake_count(fake_functions[i]);
}
#endif
