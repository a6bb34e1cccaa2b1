/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* exec_device_profile.c: the device's time of steps and transfers, while a profile is on: a pair of marks around each,
 * read when the call's work is done. The profile then makes every call wait. A mark that cannot be made is one entry
 * less, never an error. */
#include "base/small.h"
#include "rt/exec_device.h"

void exec_device_profile_start(frame *f) {
    f->device->profile = exec_profile(f->x->core);
    f->device->n_marks = 0;
    if (f->device->profile) f->device->begin_ns = fu_now_ns();
}

static bool mark(const frame *f, int *id) {
    fu_error ignored;
    fu_error_clear(&ignored);
    return rt_queue_mark(f->x->core->options.queue, &ignored, id) == FUSOR_OK;
}

int exec_device_mark_begin(frame *f, int what, size_t bytes) {
    device_frame *d = f->device;
    if (__builtin_expect(!d->profile, 1)) return -1;
    if (d->n_marks == d->mark_room) {
        const int room = d->mark_room ? 2 * d->mark_room : 16;
        device_mark *more = fu_calloc((size_t)room, sizeof *more);
        if (!more) return -1;
        if (d->n_marks) memcpy(more, d->mark, (size_t)d->n_marks * sizeof *more);
        fu_free(d->mark);
        d->mark = more;
        d->mark_room = room;
    }
    device_mark *m = &d->mark[d->n_marks];
    *m = (device_mark){.to = -1, .what = what, .n = 1, .bytes = bytes};
    return mark(f, &m->from) ? d->n_marks++ : -1;
}

void exec_device_mark_end(frame *f, int number) {
    if (number >= 0 && !mark(f, &f->device->mark[number].to)) f->device->mark[number].to = -1;
}

void exec_device_mark_end_all(const device_item *item, int n, int number) {
    exec_device_mark_end(item[0].f, number);
    if (number < 0) return;
    device_mark *m = &item[0].f->device->mark[number];
    m->n = n;
    m->sets = item[0].f == item[n - 1].f ? NULL : item;
}

static void count_transfer(frame *f, const device_mark *m, int64_t begin_ns, int64_t end_ns) {
    const core *c = f->x->core;
    rt_profile *p = f->device->profile;
    atomic_int *slot = &c->device->profile_entry[m->what == MARK_DOWNLOAD];
    const char *kind = m->what == MARK_DOWNLOAD ? "download" : "upload";
    int entry = atomic_load_explicit(slot, memory_order_acquire), none = 0;
    if (entry == 0 && atomic_compare_exchange_strong(slot, &none, -2)) {
        entry = rt_profile_add_transfer(p, c->plan, kind);
        atomic_store_explicit(slot, entry, memory_order_release);
    }
    rt_profile_count(p, entry, end_ns - begin_ns, &(ir_cost){.bytes_read = (double)m->bytes});
    if (atomic_load_explicit(&p->on, memory_order_relaxed) == RT_PROFILE_EVENTS)
        rt_trace_add_step(atomic_load(&p->trace), entry, begin_ns, end_ns);
}

/* Times of the queue are told one after the other from the start of the call. */
void exec_device_profile_close(frame *f, bool counts) {
    device_frame *d = f->device;
    fu_error ignored;
    if (!d->profile) return;
    fu_error_clear(&ignored);
    int64_t at = d->begin_ns, ns;
    bool is_done = rt_queue_wait(f->x->core->options.queue, &ignored) == FUSOR_OK;
    for (int i = 0; i < d->n_marks; i++) {
        const device_mark *m = &d->mark[i];
        const int to = m->to < 0 ? m->from : m->to; /* asking is what frees them, half a pair too */
        if (rt_queue_between(f->x->core->options.queue, &ignored, m->from, to, &ns) != FUSOR_OK || m->to < 0 ||
            !is_done || !counts)
            continue;
        if (m->what < 0) count_transfer(f, m, at, at + ns);
        for (int k = 0; m->what >= 0 && k < m->n; k++)
            exec_profile_step(m->sets ? m->sets[k].f : f, d->profile, m->what + (m->sets ? 0 : k), at + ns * k / m->n,
                              at + ns * (k + 1) / m->n);
        at += ns;
    }
    if (counts && atomic_load_explicit(&d->profile->on, memory_order_relaxed) == RT_PROFILE_EVENTS)
        rt_trace_add(atomic_load(&d->profile->trace), RT_EVENT_CALL, f->x->core->plan->graph->name, d->begin_ns,
                     fu_now_ns());
}
