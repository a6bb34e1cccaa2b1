/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_RT_FPENV_H
#define FUSOR_RT_FPENV_H
/* The floating-point environment of kernels, of the reference evaluator and of numbers in texts: to nearest, subnormals
 * kept, no traps (doc/numerics.md). A caller's may be another: -ffast-math links start-up code that flushes subnormals,
 * simulations trap invalid operations. Theirs is back when a call returns; threads take that of the thread that started
 * them. */
#include <fenv.h>
#include <stdbool.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

typedef struct rt_fpenv {
    bool is_other;
    fenv_t was; /* where it was another */
} rt_fpenv;

static inline bool rt_fpenv_is_other(void) {
#ifdef __SSE__
    enum { FLAGS = 0x3f, DEFAULT = 0x1f80 }; /* Intel SDM vol. 1, 10.2.3: all exceptions masked, nothing else */
    return (_mm_getcsr() & ~(unsigned)FLAGS) != DEFAULT;
#else
    return true;
#endif
}

static inline void rt_fpenv_enter(rt_fpenv *p) {
    p->is_other = rt_fpenv_is_other();
    if (__builtin_expect(p->is_other, 0)) {
        fegetenv(&p->was);
        fesetenv(FE_DFL_ENV);
    }
}

static inline void rt_fpenv_leave(const rt_fpenv *p) {
    if (__builtin_expect(p->is_other, 0)) fesetenv(&p->was);
}
#endif
