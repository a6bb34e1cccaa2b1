/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FU_BITS_H
#define FU_BITS_H
/* Floats as their bits and back. */
#include <stdint.h>
#include <string.h>

static inline uint32_t fu_f32_bits(float v) {
    uint32_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}
static inline uint64_t fu_f64_bits(double v) {
    uint64_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}
static inline float fu_bits_f32(uint32_t b) {
    float v;
    memcpy(&v, &b, sizeof v);
    return v;
}
static inline double fu_bits_f64(uint64_t b) {
    double v;
    memcpy(&v, &b, sizeof v);
    return v;
}
#endif
