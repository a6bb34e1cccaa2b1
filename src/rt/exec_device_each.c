/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* exec_device_each.c: one launch for many kernel steps of the same description: those of the sets of rt_each, and those
 * that follow each other in a plan (an optimizer's, one for each parameter of a model).
 *
 * The kernel finds its arguments in a table in the device's memory (ir/gpu.h). A table is made by each call and
 * compared with the one that was uploaded before: where all buffers are what they were, a call is the launch alone.
 * Steps of a plan are known to be of one kernel before the first call; whether one of them writes what another reads or
 * writes is asked when a table is new, for temporaries of a plan share memory. */
#include "rt/exec_device.h"
#include "rt/buffer.h"
#include <stdlib.h>

/* ---- which steps ---- */
static bool are_alike(const core *c, int a, int b) {
    const ir_step *x = &c->plan->steps.at[a], *y = &c->plan->steps.at[b];
    return x->kind == IR_STEP_KERNEL && y->kind == IR_STEP_KERNEL && c->info[a].kernel == c->info[b].kernel;
}

static bool has_output(const ir_step *st, int buffer) {
    for (int a = 0; a < st->n_args; a++)
        if (st->kernel->buffer[a].is_output && st->arg[a] == buffer) return true;
    return false;
}

static bool is_apart(const core *c, int a, int b) {
    const ir_step *x = &c->plan->steps.at[a], *y = &c->plan->steps.at[b];
    for (int i = 0; i < x->n_args; i++)
        if (has_output(y, x->arg[i])) return false;
    for (int i = 0; i < y->n_args; i++)
        if (has_output(x, y->arg[i])) return false;
    return true;
}

/* Only kernels that are one launch at any size: maps and rows. Reduce kernels are found out when a table is made. */
int exec_device_group(const core *c, int first) {
    int n = 1;
    if (c->plan->steps.at[first].kind != IR_STEP_KERNEL || !ir_gpu_can_each(c->plan->steps.at[first].kernel)) return 1;
    for (; first + n < c->n_steps && are_alike(c, first, first + n); n++)
        for (int i = first; i < first + n; i++)
            if (!is_apart(c, i, first + n)) return n;
    return n;
}

/* ---- the kernel ---- */
/* By two threads at once at worst; one of them is kept. A kernel that cannot be had is no error: steps are launched one
 * by one. */
static const loaded_kernel *find(const core *c, int step) {
    _Atomic(loaded_kernel *) *slot = &c->device->each[step];
    loaded_kernel *have = atomic_load_explicit(slot, memory_order_acquire);
    if (have) return have->device ? have : NULL;
    loaded_kernel *made = fu_calloc(1, sizeof *made);
    ir_kernel *k = fu_malloc(sizeof *k);
    fu_error e;
    fu_error_clear(&e);
    if (made && k) {
        rt_cache_outcome outcome;
        *k = *c->plan->steps.at[step].kernel;
        k->is_each = true;
        if (rt_cache_get(c->cache, &e, k, 1, &made->kernel, &outcome) == FUSOR_OK)
            (void)rt_device_kernel_get(c->device->device, &e, made->kernel, &made->device);
    }
    fu_free(k);
    if (!made) return NULL;
    if (atomic_compare_exchange_strong(slot, &have, made)) have = made;
    else exec_device_pack_free(made);
    return have->device ? have : NULL;
}

/* ---- tables ---- */
static bool grow(uint64_t **words, size_t *room, size_t want) {
    if (want <= *room) return true;
    uint64_t *more = fu_realloc(*words, want * sizeof *more);
    if (!more) return false;
    *words = more;
    *room = want;
    return true;
}

void exec_device_table_free(const core *c, device_table *t) {
    if (t->at) rt_queue_put(c->options.queue, t->at);
    fu_free(t->now);
    fu_free(t->old);
    *t = (device_table){0};
}

typedef struct range {
    const char *low, *high;
    int item;
    bool is_written;
} range;

static int by_address(const void *a, const void *b) {
    const char *x = ((const range *)a)->low, *y = ((const range *)b)->low;
    return x < y ? -1 : x > y;
}

/* Does what one item writes meet what another reads or writes? In order of first byte, with how far the ranges so far
 * reach. */
static bool meet(const device_item *item, int n, bool *meet_out) {
    size_t most = 0, used = 0;
    for (int i = 0; i < n; i++) most += (size_t)item[i].f->x->core->plan->steps.at[item[i].step].n_args;
    range *all = fu_malloc((most + 1) * sizeof *all);
    if (!all) return false;
    for (int i = 0; i < n; i++) {
        const frame *f = item[i].f;
        const ir_step *st = &f->x->core->plan->steps.at[item[i].step];
        for (int a = 0; a < st->n_args; a++) {
            const char *low = f->base[st->arg[a]];
            if (f->bytes[st->arg[a]])
                all[used++] = (range){low, low + f->bytes[st->arg[a]], i, st->kernel->buffer[a].is_output};
        }
    }
    qsort(all, used, sizeof *all, by_address);
    *meet_out = false;
    for (size_t i = 0; i < used && !*meet_out; i++)
        for (size_t j = i + 1; j < used && all[j].low < all[i].high && !*meet_out; j++)
            *meet_out = all[i].item != all[j].item && (all[i].is_written || all[j].is_written);
    fu_free(all);
    return true;
}

static bool writes(const device_item *item) {
    const ir_step *st = &item->f->x->core->plan->steps.at[item->step];
    for (int a = 0; a < st->n_args; a++)
        if (st->kernel->buffer[a].is_output && item->f->bytes[st->arg[a]]) return true;
    return false;
}

/* The table of the items that write something: t->now. *blocks_out = 0: it is none for one launch. */
static bool fill(device_table *t, const ir_kernel *k, const device_item *item, int n, int64_t *blocks_out) {
    const size_t words = (size_t)ir_gpu_each_words(k);
    int64_t blocks = 0;
    size_t sets = 0;
    *blocks_out = 0;
    for (int i = 0; i < n; i++) {
        const ir_gpu_launch *l = &item[i].f->step[item[i].step].gpu;
        if (!writes(&item[i])) continue;
        if (l->n_phases > 1 || l->n_counters) return true;
        blocks += ir_gpu_each_blocks(l);
        sets++;
    }
    if (blocks > INT32_MAX) return true;
    t->index_words = ((size_t)blocks + 1) / 2;
    t->n_now = t->index_words + sets * words;
    if (!grow(&t->now, &t->now_room, t->n_now + 1)) return false;
    uint32_t *index = (uint32_t *)t->now;
    int64_t first = 0;
    uint32_t number = 0;
    t->now[t->index_words ? t->index_words - 1 : 0] = 0;
    for (int i = 0; i < n; i++) {
        const frame_step *s = &item[i].f->step[item[i].step];
        if (!writes(&item[i])) continue;
        const int64_t own = ir_gpu_each_blocks(&s->gpu);
        for (int64_t b = 0; b < own; b++) index[first + b] = number;
        ir_gpu_each_set(k, &s->args, &s->gpu, first, t->now + t->index_words + number * words);
        first += own;
        number++;
    }
    *blocks_out = blocks;
    return true;
}

static bool is_same(const device_table *t) {
    return t->n_old == t->n_now && memcmp(t->old, t->now, t->n_now * sizeof *t->now) == 0;
}

static fusor_status upload(const core *c, fu_error *e, device_table *t) {
    const size_t bytes = t->n_now * sizeof *t->now;
    if (t->bytes < bytes) {
        rt_queue_put(c->options.queue, t->at);
        t->at = 0;
        t->bytes = 0;
        FU_TRY(rt_queue_get(c->options.queue, e, bytes, &t->at));
        t->bytes = bytes;
    }
    t->n_old = 0; /* until it is there */
    FU_TRY(rt_queue_upload(c->options.queue, e, t->at, t->now, bytes));
    uint64_t *last = t->old;
    const size_t room = t->old_room;
    t->old = t->now;
    t->old_room = t->now_room;
    t->n_old = t->n_now;
    t->now = last;
    t->now_room = room;
    return FUSOR_OK;
}

/* The items' kernels as one launch, where that is possible: *done_out. Their buffers are there, and aimed at. */
fusor_status exec_device_launch_each(const core *c, fu_error *e, device_table *t, const device_item *item, int n,
                                     bool *done_out) {
    const int step = item[0].step;
    const ir_kernel *k = c->plan->steps.at[step].kernel;
    int64_t blocks;
    bool do_meet = false;
    *done_out = false;
    if (!fill(t, k, item, n, &blocks) || blocks == 0) return FUSOR_OK;
    const loaded_kernel *kernel = find(c, step);
    if (!kernel) return FUSOR_OK;
    if (!is_same(t)) {
        if (!meet(item, n, &do_meet) || do_meet) return FUSOR_OK;
        FU_TRY(upload(c, e, t));
    }
    const uint64_t param[IR_GPU_EACH_PARAMS] = {t->at, t->at + t->index_words * sizeof *t->now};
    const rt_launch l = {.kernel = kernel->device,
                         .grid = {(uint32_t)blocks, 1, 1},
                         .block = {IR_GPU_THREADS, 1, 1},
                         .param = param,
                         .param_bytes = sizeof param};
    *done_out = true;
    return rt_queue_launch(c->options.queue, e, &l);
}
