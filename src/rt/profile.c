/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* profile.c: the table of step times: sums, the least, and the last calls of each. */
#include "rt/profile.h"
#include "rt/trace.h"
#include "base/arena.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rt_profile *rt_profile_new(void) { return fu_calloc(1, sizeof(rt_profile)); }

/* Adds a word and a blank between; a list that has no room for it ends with "...". once: unless the list ends with
 * it. */
static void add_word(char *list, size_t room, const char *word, bool once) {
    const size_t n = strlen(list), w = strlen(word);
    if (n >= 4 && strcmp(list + n - 4, " ...") == 0) return;
    if (once && n >= w && strcmp(list + n - w, word) == 0 && (n == w || list[n - w - 1] == ' ')) return;
    if (n + w + 6 > room) (void)snprintf(list + n, room - n, "%s", n ? " ..." : "...");
    else (void)snprintf(list + n, room - n, "%s%s", n ? " " : "", word);
}

static int take_entry(rt_profile *p, const ir_plan *plan) {
    const int i = atomic_fetch_add(&p->used, 1);
    if (i >= RT_PROFILE_ENTRIES) {
        atomic_store(&p->used, RT_PROFILE_ENTRIES);
        return -1;
    }
    snprintf(p->entry[i].function, sizeof p->entry[i].function, "%s", plan->graph->name ? plan->graph->name : "");
    return i;
}

int rt_profile_add_transfer(rt_profile *p, const ir_plan *plan, const char *kind) {
    const int i = take_entry(p, plan);
    if (i < 0) return -1;
    rt_profile_entry *e = &p->entry[i];
    snprintf(e->kind, sizeof e->kind, "%s", kind);
    e->step = -1;
    e->type = FUSOR_F32;
    atomic_store_explicit(&e->is_ready, true, memory_order_release);
    return i + 1;
}

int rt_profile_add(rt_profile *p, const ir_plan *plan, int number, const char *symbol) {
    static const char *const kinds[] = {[IR_STEP_KERNEL] = "kernel",
                                        [IR_STEP_REFERENCE] = "reference",
                                        [IR_STEP_CHECK] = "check",
                                        [IR_STEP_COPY] = "copy"};
    const int i = take_entry(p, plan);
    if (i < 0) return -1;
    rt_profile_entry *e = &p->entry[i];
    const ir_step *s = &plan->steps.at[number];
    snprintf(e->kind, sizeof e->kind, "%s",
             s->kind == IR_STEP_KERNEL ? ir_kernel_kind_names[s->kernel->kind] : kinds[s->kind]);
    snprintf(e->symbol, sizeof e->symbol, "%s", symbol ? symbol : "");
    e->step = number;
    e->type = ir_step_work_type(plan, number);
    for (int k = 0; k < s->n_ops; k++) {
        const ir_node *n = ir_at(plan->graph, s->ops[k]);
        char place[100] = "";
        add_word(e->ops, sizeof e->ops, ir_ops[n->op].name, false);
        if (n->meta_name) add_word(e->names, sizeof e->names, n->meta_name, true);
        if (n->meta_loc) snprintf(place, sizeof place, "%s", n->meta_loc);
        else if (n->loc.line && plan->graph->source)
            snprintf(place, sizeof place, "%.60s:%u:%u",
                     plan->graph->source->name ? plan->graph->source->name : "<text>", n->loc.line, n->loc.col);
        fu_make_utf8(place); /* a path, and perhaps cut: reports are JSON */
        if (place[0]) add_word(e->places, sizeof e->places, place, true);
    }
    if (s->kind == IR_STEP_REFERENCE)
        snprintf(e->ops, sizeof e->ops, "%s", ir_ops[ir_at(plan->graph, s->node)->op].name);
    atomic_store_explicit(&e->is_ready, true, memory_order_release);
    return i + 1;
}

static void add_to(_Atomic double *sum, double v) {
    double old = atomic_load_explicit(sum, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(sum, &old, old + v, memory_order_relaxed, memory_order_relaxed)) {}
}

void rt_profile_count(rt_profile *p, int entry, int64_t ns, const ir_cost *cost) {
    if (entry < 1) {
        atomic_fetch_add_explicit(&p->dropped, 1, memory_order_relaxed);
        return;
    }
    rt_profile_entry *e = &p->entry[entry - 1];
    const int64_t call = atomic_fetch_add_explicit(&e->calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&e->ns, ns, memory_order_relaxed);
    atomic_store_explicit(&e->recent[call % RT_PROFILE_RECENT], ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX,
                          memory_order_relaxed);
    int64_t least = atomic_load_explicit(&e->min_ns, memory_order_relaxed);
    while ((least == 0 || ns < least) &&
           !atomic_compare_exchange_weak_explicit(&e->min_ns, &least, ns, memory_order_relaxed, memory_order_relaxed)) {
    }
    add_to(&e->bytes, cost->bytes_read + cost->bytes_written);
    add_to(&e->flops, cost->flops);
    add_to(&e->work, cost->work);
}

static int by_size(const void *a, const void *b) {
    return (*(const uint32_t *)a > *(const uint32_t *)b) - (*(const uint32_t *)a < *(const uint32_t *)b);
}

int64_t rt_profile_median(const rt_profile_entry *e) {
    uint32_t v[RT_PROFILE_RECENT];
    const int64_t calls = atomic_load(&e->calls), n = calls < RT_PROFILE_RECENT ? calls : RT_PROFILE_RECENT;
    for (int64_t i = 0; i < n; i++) v[i] = atomic_load_explicit(&e->recent[i], memory_order_relaxed);
    qsort(v, (size_t)n, sizeof *v, by_size);
    return n ? v[n / 2] : 0;
}

void rt_profile_free(rt_profile *p) {
    if (!p) return;
    rt_trace_free(atomic_load(&p->trace));
    fu_free(p);
}

void rt_profile_reset(rt_profile *p) {
    for (int i = 0; i < RT_PROFILE_ENTRIES; i++) {
        rt_profile_entry *e = &p->entry[i];
        atomic_store(&e->calls, 0);
        atomic_store(&e->ns, 0);
        atomic_store(&e->min_ns, 0);
        atomic_store(&e->bytes, 0);
        atomic_store(&e->flops, 0);
        atomic_store(&e->work, 0);
    }
    atomic_store(&p->dropped, 0);
    if (atomic_load(&p->trace)) rt_trace_reset(atomic_load(&p->trace));
}
