/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_PROFILE_H
#define RT_PROFILE_H
/* Times of steps, by executable and step, while a profile is on. One a context.
 *
 * Counters are atomic and the table is never moved, so a run takes no lock and a fork finds nothing held. An entry lives as
 * long as the profile, also when its executable has gone. */
#include "ir/plan.h"
#include <stdatomic.h>

enum { RT_PROFILE_ENTRIES = 1024 };     /* steps that are told apart; those past it are counted in `dropped` */
typedef struct rt_profile_entry {
    _Atomic bool is_ready;              /* its texts are whole */
    char function[64], kind[16], symbol[IR_SYMBOL_MAX], ops[120];
    int  step;
    _Atomic int64_t calls, ns, min_ns;
    _Atomic double  bytes, flops;       /* sums over the calls */
} rt_profile_entry;
typedef struct rt_profile {
    _Atomic bool on;
    _Atomic int  used;
    _Atomic int64_t dropped;
    rt_profile_entry entry[RT_PROFILE_ENTRIES];
} rt_profile;

rt_profile *rt_profile_new(void);       /* NULL: no memory; off and empty. Freed with fu_free */
/* The entry of step `number` of the plan: its number + 1, or -1 where the table is full. symbol: of its kernel, or NULL. */
int  rt_profile_add(rt_profile *p, const ir_plan *plan, int number, const char *symbol);
void rt_profile_count(rt_profile *p, int entry, int64_t ns, double bytes, double flops);
void rt_profile_reset(rt_profile *p);   /* counters to 0; calls that run meanwhile may count on either side */
#endif
