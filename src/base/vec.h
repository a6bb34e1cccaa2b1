/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FU_VEC_H
#define FU_VEC_H
/* Growable array in an arena: `fu_vec(int) v = {0}; fu_push(arena, &v, 3); v.at[0]; v.n`. */
#include "base/arena.h"
#include <string.h>

#define fu_vec(T)                                                                                                      \
    struct {                                                                                                           \
        T *at;                                                                                                         \
        uint32_t n, cap;                                                                                               \
    }

#define fu_reserve(a, v, want)                                                                                         \
    do {                                                                                                               \
        if ((v)->cap < (uint32_t)(want)) {                                                                             \
            uint32_t cap_ = (v)->cap ? (v)->cap * 2 : 8;                                                               \
            while (cap_ < (uint32_t)(want)) cap_ *= 2;                                                                 \
            void *p_ = fu_alloc_n((a), cap_, sizeof *(v)->at);                                                         \
            if ((v)->n) memcpy(p_, (v)->at, (v)->n * sizeof *(v)->at);                                                 \
            (v)->at = p_;                                                                                              \
            (v)->cap = cap_;                                                                                           \
        }                                                                                                              \
    } while (0)
#define fu_push(a, v, ...)                                                                                             \
    do {                                                                                                               \
        fu_reserve((a), (v), (v)->n + 1);                                                                              \
        (v)->at[(v)->n++] = (__VA_ARGS__);                                                                             \
    } while (0)
#endif
