/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_LIMITS_H
#define RT_LIMITS_H
/* What this machine can do at most, measured once: the yardstick of profiles, explain, run --time, bench and info.
 * No plan, key or result depends on it: those of CPUs serve reports, a device's also the choice of "auto". */
#include "ir/types.h"

typedef enum rt_limit_type { RT_LIMIT_F64, RT_LIMIT_F32, RT_LIMIT_BF16, RT_LIMIT_I8, RT_LIMIT_TYPES } rt_limit_type;
typedef enum rt_limit_level { RT_LIMIT_L1, RT_LIMIT_L2, RT_LIMIT_L3, RT_LIMIT_MEMORY, RT_LIMIT_LEVELS } rt_limit_level;
extern const char *const rt_limit_type_names[RT_LIMIT_TYPES];   /* "f64" ... */
extern const char *const rt_limit_level_names[RT_LIMIT_LEVELS]; /* "L1" ... "memory" */

typedef struct rt_limits {
    int n_threads;
    bool is_known;
    bool is_doubted; /* a kernel was faster, and they were measured again since the process began */
    double peak
        [RT_LIMIT_TYPES]; /* operations a second, a multiply-add counted as two; bf16, i8: of dot-product instructions, 0 = none */
    double bandwidth
        [RT_LIMIT_LEVELS]; /* bytes read and written a second, by all threads, each with data of its own; 0 = no such level */
    double holds[RT_LIMIT_LEVELS]; /* bytes that all threads' shares of the level hold; memory: infinity */
} rt_limits;

/* For n_threads: what this process knows, else the file in `dir` ("" or NULL: none), else measured (under a second,
 * where it is idle) and kept there unless is_read_only. again: measured in any case. Any thread. */
rt_limits rt_limits_get(const char *dir, int n_threads, bool is_read_only, bool again);
/* Of a CUDA device, by what its driver says of it: estimates. n_threads: its multiprocessors. */
struct rt_device_info;
rt_limits rt_limits_of_device(const struct rt_device_info *d);
/* A rate above the peak of a type shows that the limits were measured at a bad moment: measured again, once in a
 * process unless `again`, and the larger ones are kept. A type that has no peak of its own raises none. */
void rt_limits_beside(rt_limits *l, const char *dir, bool is_read_only, ir_dtype type, double flops_per_s, bool again);

/* Operations of a type in a second at most: those of f32 where the type has no instructions of its own. */
double rt_limits_peak(const rt_limits *l, ir_dtype type);

/* What a kernel that moves `bytes` and does `work` operations of a type in ns nanoseconds is bound by, with data that
 * was there before: the level that holds its bytes, or arithmetic, whichever alone would take longer. */
typedef struct rt_bound {
    const char
        *limit; /* "arithmetic", "L1" ... "memory"; "call" where both are small beside the cost of a call; "" unknown */
    double share;    /* of that limit, 0 to about 1; call: of the time that is no work */
    double least_ns; /* the time that the limits allow */
} rt_bound;
rt_bound rt_limits_bound(const rt_limits *l, ir_dtype type, double bytes, double work, double ns);
#endif
