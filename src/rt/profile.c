/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* profile.c: the table of step times. */
#include "rt/profile.h"
#include "base/arena.h"
#include <stdio.h>
#include <string.h>

rt_profile *rt_profile_new(void) { return fu_calloc(1, sizeof(rt_profile)); }

int rt_profile_add(rt_profile *p, const ir_plan *plan, int number, const char *symbol) {
    static const char *const kinds[] = {[IR_STEP_KERNEL] = "kernel", [IR_STEP_REFERENCE] = "reference", [IR_STEP_CHECK] = "check", [IR_STEP_COPY] = "copy"};
    int i = atomic_fetch_add(&p->used, 1);
    if (i >= RT_PROFILE_ENTRIES) {
        atomic_store(&p->used, RT_PROFILE_ENTRIES);
        return -1;
    }
    rt_profile_entry *e = &p->entry[i];
    const ir_step *s = &plan->steps.at[number];
    snprintf(e->function, sizeof e->function, "%s", plan->graph->name ? plan->graph->name : "");
    snprintf(e->kind, sizeof e->kind, "%s", s->kind == IR_STEP_KERNEL ? ir_kernel_kind_names[s->kernel->kind] : kinds[s->kind]);
    snprintf(e->symbol, sizeof e->symbol, "%s", symbol ? symbol : "");
    e->step = number;
    size_t n = 0;
    for (int k = 0; k < s->n_ops; k++) {
        const char *name = ir_ops[ir_at(plan->graph, s->ops[k])->op].name;
        if (n + strlen(name) + 5 > sizeof e->ops) {
            (void)snprintf(e->ops + n, sizeof e->ops - n, " ...");
            break;
        }
        n += (size_t)snprintf(e->ops + n, sizeof e->ops - n, "%s%s", k ? " " : "", name);
    }
    if (s->kind == IR_STEP_REFERENCE) snprintf(e->ops, sizeof e->ops, "%s", ir_ops[ir_at(plan->graph, s->node)->op].name);
    atomic_store_explicit(&e->is_ready, true, memory_order_release);
    return i + 1;
}

static void add_to(_Atomic double *sum, double v) {
    double old = atomic_load_explicit(sum, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(sum, &old, old + v, memory_order_relaxed, memory_order_relaxed)) {}
}

void rt_profile_count(rt_profile *p, int entry, int64_t ns, double bytes, double flops) {
    if (entry < 1) {
        atomic_fetch_add_explicit(&p->dropped, 1, memory_order_relaxed);
        return;
    }
    rt_profile_entry *e = &p->entry[entry - 1];
    atomic_fetch_add_explicit(&e->calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&e->ns, ns, memory_order_relaxed);
    int64_t least = atomic_load_explicit(&e->min_ns, memory_order_relaxed);
    while ((least == 0 || ns < least) && !atomic_compare_exchange_weak_explicit(&e->min_ns, &least, ns, memory_order_relaxed, memory_order_relaxed)) {}
    add_to(&e->bytes, bytes);
    add_to(&e->flops, flops);
}

void rt_profile_reset(rt_profile *p) {
    for (int i = 0; i < RT_PROFILE_ENTRIES; i++) {
        rt_profile_entry *e = &p->entry[i];
        atomic_store(&e->calls, 0);
        atomic_store(&e->ns, 0);
        atomic_store(&e->min_ns, 0);
        atomic_store(&e->bytes, 0);
        atomic_store(&e->flops, 0);
    }
    atomic_store(&p->dropped, 0);
}
