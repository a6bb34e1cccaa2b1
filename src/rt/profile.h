/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef RT_PROFILE_H
#define RT_PROFILE_H
/* Times of steps, by executable and step, while a profile is on. One a context.
 *
 * Counters are atomic and the table is never moved, so a run takes no lock and a fork finds nothing held. An entry
 * lives as long as the profile, also when its executable has gone. */
#include "ir/plan.h"
#include "rt/buffer.h"
#include <stdatomic.h>

enum {
    RT_PROFILE_ENTRIES = 1024,
    RT_PROFILE_RECENT = 64
}; /* steps that are told apart (those past it are counted in `dropped`); calls
                                                                   that a median is of */
typedef struct rt_profile_entry {
    _Atomic bool is_ready; /* its texts are whole */
    char function[64], kind[16], symbol[IR_SYMBOL_MAX], ops[120];
    char names[120], places[120]; /* name= and loc= of its statements, or FILE:LINE:COL */
    int step;
    ir_dtype type; /* ir_step_work_type */
    _Atomic int64_t calls, ns, min_ns;
    _Atomic uint32_t recent[RT_PROFILE_RECENT]; /* of the last calls, in ns, as far as 32 bits hold */
    _Atomic double bytes, flops, work;          /* sums over the calls */
} rt_profile_entry;
typedef enum rt_profile_mode { RT_PROFILE_OFF, RT_PROFILE_COUNTS, RT_PROFILE_EVENTS } rt_profile_mode;
typedef struct rt_profile {
    _Atomic int on; /* rt_profile_mode */
    _Atomic int used;
    _Atomic int64_t dropped;
    struct {
        _Atomic int64_t gets, reused, system_bytes;
    } memory;                         /* rt_memory_stats when it was switched on */
    _Atomic(struct rt_trace *) trace; /* trace.h; NULL until events were asked for */
    rt_profile_entry entry[RT_PROFILE_ENTRIES];
} rt_profile;

rt_profile *rt_profile_new(void); /* NULL: no memory; off and empty */
/* The entry of step `number` of the plan: its number + 1, or -1 where the table is full. symbol: of its kernel, or
 * NULL. */
int rt_profile_add(rt_profile *p, const ir_plan *plan, int number, const char *symbol);
/* The entry of all copies in one direction ("upload", "download") of the plan's calls. */
int rt_profile_add_transfer(rt_profile *p, const ir_plan *plan, const char *kind);
void rt_profile_count(rt_profile *p, int entry, int64_t ns, const ir_cost *cost);
void rt_profile_free(rt_profile *p);
int64_t rt_profile_median(const rt_profile_entry *e); /* of the recent calls; 0: none */
void rt_profile_reset(rt_profile *p); /* counters to 0; calls that run meanwhile may count on either side */
#endif
