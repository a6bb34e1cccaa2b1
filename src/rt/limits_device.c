/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* limits_device.c: what a CUDA device can do at most, from what its driver says of it: nothing is measured. Operations
 * a cycle of a multiprocessor: CUDA C++ Programming Guide 13.0, table of arithmetic throughput; matrix products: the
 * architectures' white papers (V100, T4, A100, GA102, AD102, H100), with sums in f32. */
#include "rt/device.h"
#include "rt/limits.h"
#include <math.h>

/* f32, f64, bf16 (f16 where there is no bf16), i8; multiply-adds as two. */
static const struct {
    int cc; /* and newer, up to the next row */
    double peak[RT_LIMIT_TYPES];
} by_cc[] = {
    {70, {[RT_LIMIT_F64] = 64, [RT_LIMIT_F32] = 128, [RT_LIMIT_BF16] = 1024, [RT_LIMIT_I8] = 512}},
    {75, {[RT_LIMIT_F64] = 4, [RT_LIMIT_F32] = 128, [RT_LIMIT_BF16] = 1024, [RT_LIMIT_I8] = 2048}},
    {80, {[RT_LIMIT_F64] = 64, [RT_LIMIT_F32] = 128, [RT_LIMIT_BF16] = 2048, [RT_LIMIT_I8] = 4096}},
    {86, {[RT_LIMIT_F64] = 4, [RT_LIMIT_F32] = 256, [RT_LIMIT_BF16] = 512, [RT_LIMIT_I8] = 2048}},
    {90, {[RT_LIMIT_F64] = 128, [RT_LIMIT_F32] = 256, [RT_LIMIT_BF16] = 4096, [RT_LIMIT_I8] = 8192}},
    {120, {[RT_LIMIT_F64] = 4, [RT_LIMIT_F32] = 256, [RT_LIMIT_BF16] = 1024, [RT_LIMIT_I8] = 2048}},
};

rt_limits rt_limits_of_device(const rt_device_info *d) {
    rt_limits l = {.n_threads = d->multiprocessors};
    size_t row = 0;
    while (row + 1 < sizeof by_cc / sizeof *by_cc && by_cc[row + 1].cc <= d->cc) row++;
    const double cycles = 1e3 * (double)d->clock_khz * d->multiprocessors;
    for (int i = 0; i < RT_LIMIT_TYPES; i++) l.peak[i] = by_cc[row].peak[i] * cycles;
    l.bandwidth[RT_LIMIT_MEMORY] =
        2e3 * (double)d->memory_clock_khz * d->memory_bus_bits / 8; /* two transfers a cycle */
    l.holds[RT_LIMIT_MEMORY] = INFINITY;
    l.is_known = cycles > 0 && l.bandwidth[RT_LIMIT_MEMORY] > 0;
    return l;
}
