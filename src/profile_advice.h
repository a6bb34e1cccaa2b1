/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef FUSOR_SRC_PROFILE_ADVICE_H
#define FUSOR_SRC_PROFILE_ADVICE_H
/* What to do about a slow kernel, from what its profile shows. */
typedef struct profile_facts {
    const char *kind, *ops, *limit; /* limit, limit_share: rt_bound */
    double limit_share, median_ns, bytes;
    int n_threads;
} profile_facts;
const char *profile_advice(const profile_facts *f); /* a sentence; static */
#endif
