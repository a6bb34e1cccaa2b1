/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* exec_device_run.c: one call on a device's queue.
 *
 * Each plan buffer has up to two copies, here and there, and d->valid says which of them hold its contents. A step asks
 * for the copies that it reads (to_device, to_host), which moves what is not there yet, and leaves the copy that it
 * writes as the only one. So what kernels alone touch never meets the host, and what the reference evaluator alone
 * touches never meets the device. */
#include "rt/exec_device.h"
#include "rt/buffer.h"
#include "rt/probes.h"

static rt_queue *queue_of(const frame *f) { return f->x->core->options.queue; }
static rt_address base_of(const frame *f, int b) { return (rt_address)(uintptr_t)f->base[b]; }

/* Result number of a plan buffer, or -1; and the parameter that is written over by it, or -1. */
static int result_of(const core *c, int b) {
    return b >= c->n_params && b < c->n_params + c->n_results ? b - c->n_params : -1;
}
static int aliased_by(const core *c, int b) {
    const int r = result_of(c, b);
    return r >= 0 ? c->plan->graph->results.at[r].alias : -1;
}

/* Input of this device that kernels do not read where it is. */
static bool is_packed(const frame *f, int p) {
    const core *c = f->x->core;
    return !f->x->bound[p] && f->in[p].is_device && (!f->in[p].is_dense || c->normalizes[p]);
}

/* ---- memory of a call: temps and scratch; and a block for each copy of an end, got right before the copy, so that it
 * need not wait for kernels which were put on the queue earlier in the call ---- */
static fusor_status get_place(frame *f, fu_error *e, int b) {
    const int alias = aliased_by(f->x->core, b);
    if (f->base[b] || !f->bytes[b]) return FUSOR_OK;
    if (alias >= 0) {
        FU_TRY(get_place(f, e, alias));
        f->base[b] = f->base[alias];
        return FUSOR_OK;
    }
    FU_TRY(rt_queue_get(queue_of(f), e, (size_t)f->bytes[b], &f->device->end[b]));
    f->base[b] = (void *)(uintptr_t)f->device->end[b];
    return FUSOR_OK;
}

/* Is the buffer's place a copy, and not the caller's memory? */
static bool is_copy(const frame *f, int b) {
    const int alias = aliased_by(f->x->core, b);
    return f->device->end[alias >= 0 ? alias : b] != 0;
}

static void put_memory(frame *f) {
    const core *c = f->x->core;
    rt_queue_put(queue_of(f), f->device->memory);
    rt_queue_put(queue_of(f), f->device->small);
    for (int b = 0; b < c->n_params + c->n_results; b++) rt_queue_put(queue_of(f), f->device->end[b]);
}

static void *place(const device_frame *d, int64_t at) { return (void *)(uintptr_t)(d->memory + (uint64_t)at); }

static void aim(frame *f) {
    const core *c = f->x->core;
    device_frame *d = f->device;
    for (int b = 0; b < c->n_buffers; b++) {
        const ir_storage storage = c->plan->buffers.at[b].storage;
        d->valid[b] = storage == IR_STORE_LITERAL ? ON_HOST | ON_DEVICE : 0;
        if (storage == IR_STORE_TEMP && f->temp_at[b] >= 0) f->base[b] = place(d, f->temp_at[b]);
    }
    for (int p = 0; p < c->n_params; p++) {
        const bound_param *bound = f->x->bound[p];
        if (bound) {
            d->valid[p] = (uint8_t)((bound->device_at ? ON_DEVICE : 0) | (bound->value.data ? ON_HOST : 0));
            continue;
        }
        f->base[p] = f->in[p].is_device && !is_packed(f, p) ? f->in[p].user.data : NULL;
        d->valid[p] = !f->in[p].is_device ? ON_HOST : is_packed(f, p) ? 0 : ON_DEVICE;
    }
    for (int r = 0; r < c->n_results; r++) {
        const call_end *n = &f->out[r];
        const int alias = aliased_by(c, c->n_params + r);
        f->base[c->n_params + r] =
            n->is_device && n->is_dense && (alias < 0 || !is_packed(f, alias)) ? n->user.data : NULL;
    }
}

/* ---- here and there ---- */
static fusor_status upload(frame *f, fu_error *e, int b) {
    const int mark = exec_device_mark_begin(f, MARK_UPLOAD, (size_t)f->bytes[b]);
    FU_TRY(rt_queue_upload(queue_of(f), e, base_of(f, b), f->device->host[b], (size_t)f->bytes[b]));
    exec_device_mark_end(f, mark);
    return FUSOR_OK;
}

/* A buffer that nothing was written to stays as it is, unless it has a parameter's old contents. */
static fusor_status to_device(frame *f, fu_error *e, int b) {
    const core *c = f->x->core;
    uint8_t *valid = &f->device->valid[b];
    if (*valid & ON_DEVICE) return FUSOR_OK;
    FU_TRY(get_place(f, e, b));
    if (f->bytes[b] && b < c->n_params && is_packed(f, b))
        FU_TRY(exec_device_pack(c, e, &f->in[b].user, base_of(f, b), true));
    else if (f->bytes[b] && *valid & ON_HOST) FU_TRY(upload(f, e, b));
    else if (aliased_by(c, b) >= 0) FU_TRY(to_device(f, e, aliased_by(c, b)));
    else if (f->bytes[b]) return FUSOR_OK;
    *valid |= ON_DEVICE;
    return FUSOR_OK;
}

static fusor_status host_place(frame *f, fu_error *e, int b) {
    device_frame *d = f->device;
    const rt_exec_options *o = &f->x->core->options;
    const size_t bytes = (size_t)f->bytes[b];
    if (d->host[b] && d->host[b] != d->own[b]) return FUSOR_OK; /* the caller's, a literal, or bound */
    if (!d->own[b] || d->own_bytes[b] < bytes) {
        rt_memory_put(o, d->own[b], d->own_bytes[b]);
        d->own[b] = rt_memory_get(o, bytes);
        d->own_bytes[b] = d->own[b] ? bytes : 0;
    }
    d->host[b] = d->own[b];
    return d->own[b] ? FUSOR_OK : FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a copy of %zu bytes", bytes);
}

static fusor_status to_host(frame *f, fu_error *e, int b) {
    device_frame *d = f->device;
    if (d->valid[b] & ON_HOST) return FUSOR_OK;
    FU_TRY(host_place(f, e, b));
    FU_TRY(to_device(f, e, b));
    if (f->bytes[b] && d->valid[b] & ON_DEVICE) {
        const int mark = exec_device_mark_begin(f, MARK_DOWNLOAD, (size_t)f->bytes[b]);
        FU_TRY(rt_queue_download(queue_of(f), e, d->host[b], base_of(f, b), (size_t)f->bytes[b]));
        exec_device_mark_end(f, mark);
    }
    d->valid[b] |= ON_HOST;
    return FUSOR_OK;
}

/* ---- steps ---- */
_Static_assert((int)RT_QUEUE_COUNTERS >= (int)IR_GPU_COUNTERS, "a launch counts in the counters of its queue");

static fusor_status launch(frame *f, fu_error *e, int number) {
    const core *c = f->x->core;
    const ir_kernel *k = c->plan->steps.at[number].kernel;
    const ir_gpu_launch *plan = &f->step[number].gpu;
    ir_kernel_args args = f->step[number].args;
    rt_launch l = {.kernel = c->device->kernel[number],
                   .param = f->device->words,
                   .param_bytes = (size_t)ir_gpu_words(k) * sizeof *f->device->words};
    uint32_t blocks = plan->grid[0][0]; /* of the first phase, along x */
    if (plan->goes_on) {
        const int most = rt_device_get_info(rt_queue_device(queue_of(f)))->multiprocessors;
        if (most > 0 && blocks > (uint32_t)most) blocks = (uint32_t)most;
    }
    RT_PROBE_RUN(c->info[number].kernel->symbol, plan->n_phases, (int64_t)blocks * plan->grid[0][1] * plan->grid[0][2]);
    const int mark = exec_device_mark_begin(f, number, 0);
    for (int p = 0; p < plan->n_phases; p++) {
        ir_gpu_param(k, &args, plan, p, f->device->words);
        if (plan->n_counters) FU_TRY(rt_queue_counters(queue_of(f), e, &f->device->words[IR_GPU_WORD_COUNTERS]));
        memcpy(l.grid, plan->grid[p], sizeof l.grid);
        if (p == 0) l.grid[0] = blocks;
        memcpy(l.block, plan->block[p], sizeof l.block);
        l.shared_bytes = plan->shared_bytes[p];
        FU_TRY(rt_queue_launch(queue_of(f), e, &l));
    }
    exec_device_mark_end(f, mark);
    return FUSOR_OK;
}

/* What a kernel reads is on the device, what it writes has a place, and its arguments say where. */
static fusor_status aim_kernel(frame *f, fu_error *e, int number) {
    const ir_step *st = &f->x->core->plan->steps.at[number];
    for (int a = 0; a < st->n_args; a++) FU_TRY(to_device(f, e, st->arg[a])); /* outputs too: it may write a part */
    FU_TRY(exec_aim_kernel(f, e, number));
    f->step[number].args.scratch = place(f->device, (int64_t)f->scratch_at);
    return FUSOR_OK;
}

static void note_outputs(frame *f, int number) {
    const ir_step *st = &f->x->core->plan->steps.at[number];
    for (int a = 0; a < st->n_args; a++)
        if (st->kernel->buffer[a].is_output) f->device->valid[st->arg[a]] = ON_DEVICE;
}

static fusor_status run_kernel(frame *f, fu_error *e, int number) {
    const ir_step *st = &f->x->core->plan->steps.at[number];
    bool writes = false;
    for (int a = 0; a < st->n_args; a++) writes |= st->kernel->buffer[a].is_output && f->bytes[st->arg[a]];
    FU_TRY(aim_kernel(f, e, number));
    if (writes) FU_TRY(launch(f, e, number));
    note_outputs(f, number);
    return FUSOR_OK;
}

fusor_status exec_device_run_as_one(const core *c, fu_error *e, device_table *t, const device_item *item, int n) {
    bool is_done;
    for (int i = 0; i < n; i++) FU_TRY(aim_kernel(item[i].f, e, item[i].step));
    const int mark = exec_device_mark_begin(item[0].f, item[0].step, 0);
    FU_TRY(exec_device_launch_each(c, e, t, item, n, &is_done));
    if (is_done) exec_device_mark_end_all(item, n, mark);
    for (int i = 0; i < n; i++) {
        if (is_done) note_outputs(item[i].f, item[i].step);
        else FU_TRY(run_kernel(item[i].f, e, item[i].step));
    }
    return FUSOR_OK;
}

/* The steps from `first` on that are one launch, or the one step. */
static fusor_status run_group(frame *f, fu_error *e, int first) {
    const int n = f->x->core->device->group[first];
    device_item *item = fu_malloc((size_t)n * sizeof *item);
    if (!item) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for %d kernels of one launch", n);
    for (int i = 0; i < n; i++) item[i] = (device_item){f, first + i};
    const fusor_status s = exec_device_run_as_one(f->x->core, e, &f->device->table[first], item, n);
    fu_free(item);
    return s;
}

static fusor_status run_copy(frame *f, fu_error *e, int number) {
    device_frame *d = f->device;
    const int *arg = f->x->core->plan->steps.at[number].arg;
    const size_t bytes = (size_t)f->bytes[arg[0]];
    if (d->valid[arg[0]] == ON_HOST && d->host[arg[1]] && aliased_by(f->x->core, arg[1]) < 0) {
        FU_TRY(host_place(f, e, arg[1])); /* what an earlier call left may be smaller */
        if (bytes) memcpy(d->host[arg[1]], d->host[arg[0]], bytes);
        d->valid[arg[1]] = ON_HOST;
        return FUSOR_OK;
    }
    FU_TRY(to_device(f, e, arg[0]));
    FU_TRY(get_place(f, e, arg[1]));
    if (bytes && f->base[arg[0]] != f->base[arg[1]]) {
        const int mark = exec_device_mark_begin(f, number, 0);
        FU_TRY(rt_queue_copy(queue_of(f), e, base_of(f, arg[1]), base_of(f, arg[0]), bytes));
        exec_device_mark_end(f, mark);
    }
    d->valid[arg[1]] = ON_DEVICE;
    return FUSOR_OK;
}

static fusor_status run_on_host(frame *f, fu_error *e, int number) {
    const ir_step *st = &f->x->core->plan->steps.at[number];
    const int n_read = st->kind == IR_STEP_REFERENCE ? st->n_args - 1 : st->n_args;
    rt_profile *profile = f->device->profile;
    for (int a = 0; a < n_read; a++) FU_TRY(to_host(f, e, st->arg[a]));
    const int64_t begin = profile ? fu_now_ns() : 0;
    if (st->kind == IR_STEP_CHECK) FU_TRY(exec_check_indices(f, e, number, f->device->host[st->arg[0]]));
    else {
        FU_TRY(host_place(f, e, st->arg[n_read]));
        FU_TRY(exec_run_reference(f, e, number, f->device->host));
        f->device->valid[st->arg[n_read]] = ON_HOST;
    }
    if (profile) exec_profile_step(f, profile, number, begin, fu_now_ns());
    return FUSOR_OK;
}

fusor_status exec_device_run_step(frame *f, fu_error *e, int number) {
    switch (f->x->core->plan->steps.at[number].kind) {
    case IR_STEP_KERNEL: return run_kernel(f, e, number);
    case IR_STEP_COPY: return run_copy(f, e, number);
    case IR_STEP_REFERENCE:
    case IR_STEP_CHECK: break;
    }
    return run_on_host(f, e, number);
}

/* ---- small inputs, all of them by one copy ---- */
enum { SMALL_INPUT = 4096, SMALL_INPUTS = 64 << 10 /* in all: a small copy of the queue */, SMALL_ALIGN = 256 };

static bool is_small(const frame *f, int p) {
    const core *c = f->x->core;
    if (!c->device->kernels_use[p] || f->device->valid[p] != ON_HOST || f->x->bound[p]) return false;
    for (int r = 0; r < c->n_results; r++)
        if (c->plan->graph->results.at[r].alias == p) return false; /* its place is the result's */
    return f->bytes[p] > 0 && f->bytes[p] <= SMALL_INPUT;
}

/* Sets *p_out to the next one from *p_out on that still has room behind *at; and *at to where it lies. */
static bool next_small(const frame *f, int *p_out, size_t *at) {
    for (; *p_out < f->x->core->n_params; ++*p_out) {
        const size_t here = (*at + SMALL_ALIGN - 1) / SMALL_ALIGN * SMALL_ALIGN;
        if (!is_small(f, *p_out) || here + (size_t)f->bytes[*p_out] > SMALL_INPUTS) continue;
        *at = here;
        return true;
    }
    return false;
}

/* One alone is left to the step that reads it. */
static fusor_status send_small(frame *f, fu_error *e) {
    device_frame *d = f->device;
    size_t bytes = 0;
    int n = 0;
    for (int p = 0; next_small(f, &p, &bytes); p++, n++) bytes += (size_t)f->bytes[p];
    if (n < 2) return FUSOR_OK;
    if (d->small_room < bytes) {
        char *more = fu_realloc(d->small_host, bytes);
        if (!more) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a copy of %zu bytes", bytes);
        d->small_host = more;
        d->small_room = bytes;
    }
    FU_TRY(rt_queue_get(queue_of(f), e, bytes, &d->small));
    size_t at = 0;
    for (int p = 0; next_small(f, &p, &at); p++) {
        memcpy(d->small_host + at, d->host[p], (size_t)f->bytes[p]);
        f->base[p] = (void *)(uintptr_t)(d->small + at);
        d->valid[p] |= ON_DEVICE;
        at += (size_t)f->bytes[p];
    }
    const int mark = exec_device_mark_begin(f, MARK_UPLOAD, bytes);
    FU_TRY(rt_queue_upload(queue_of(f), e, d->small, d->small_host, bytes));
    exec_device_mark_end(f, mark);
    return FUSOR_OK;
}

/* ---- calls ---- */
static bool is_of_another(const call_end *n) { return n->user.device && !n->is_device; }

static fusor_status fetch(frame *f, fu_error *e) {
    const core *c = f->x->core;
    exec_copy_in(f);
    for (int p = 0; p < c->n_params; p++) {
        if (f->x->bound[p] || !is_of_another(&f->in[p])) continue;
        FU_TRY(exec_device_bring(c, e, &f->in[p].user, f->in[p].staging));
        if (c->normalizes[p]) exec_normalize_bool(f->in[p].staging, f->count[p]);
    }
    return c->device->has_work ? send_small(f, e) : FUSOR_OK;
}

static fusor_status deliver(frame *f, fu_error *e) {
    const core *c = f->x->core;
    device_frame *d = f->device;
    for (int r = 0; r < c->n_results; r++) {
        const int b = c->n_params + r;
        if (!f->bytes[b]) continue;
        if (f->out[r].is_device) {
            FU_TRY(to_device(f, e, b));
            if (is_copy(f, b)) FU_TRY(exec_device_pack(c, e, &f->out[r].user, base_of(f, b), false));
        } else if (d->valid[b] == ON_DEVICE) {
            const int mark = exec_device_mark_begin(f, MARK_DOWNLOAD, (size_t)f->bytes[b]);
            d->downloads = true;
            FU_TRY(rt_queue_download_later(queue_of(f), e, d->host[b], base_of(f, b), (size_t)f->bytes[b]));
            exec_device_mark_end(f, mark);
        } else d->downloads |= is_of_another(&f->out[r]);
    }
    return FUSOR_OK;
}

fusor_status exec_device_begin_call(frame *f, fu_error *e) {
    device_frame *d = f->device;
    d->downloads = false;
    exec_device_profile_start(f);
    d->memory = d->small = 0;
    memset(d->end, 0, (size_t)(f->x->core->n_params + f->x->core->n_results) * sizeof *d->end);
    if (f->need_bytes && f->x->core->device->has_work) FU_TRY(rt_queue_get(queue_of(f), e, f->need_bytes, &d->memory));
    aim(f);
    return fetch(f, e);
}

fusor_status exec_device_enqueue_call(frame *f, fu_error *e, bool *waits_out) {
    const core *c = f->x->core;
    fusor_status s = exec_device_begin_call(f, e);
    for (int i = 0; i < c->n_steps && s == FUSOR_OK; i += c->device->group[i])
        s = c->device->group[i] > 1 ? run_group(f, e, i) : exec_device_run_step(f, e, i);
    return exec_device_end_call(f, e, s, waits_out);
}

fusor_status exec_device_end_call(frame *f, fu_error *e, fusor_status s, bool *waits_out) {
    if (s == FUSOR_OK) s = deliver(f, e);
    put_memory(f);
    exec_device_profile_close(f, s == FUSOR_OK);
    /* Nothing may arrive after this returns. The record keeps what failed first. */
    if (s != FUSOR_OK && f->device->downloads) (void)rt_queue_wait(queue_of(f), e);
    *waits_out = f->device->downloads;
    return s;
}

fusor_status exec_device_hand_out(frame *f, fu_error *e) {
    const core *c = f->x->core;
    exec_copy_out(f);
    for (int r = 0; r < c->n_results; r++)
        if (is_of_another(&f->out[r]) && f->device->valid[c->n_params + r])
            FU_TRY(exec_device_send(c, e, &f->out[r].user, f->out[r].staging));
    return FUSOR_OK;
}

fusor_status exec_device_call(frame *f, fu_error *e) {
    bool waits;
    FU_TRY(exec_device_enqueue_call(f, e, &waits));
    if (waits) FU_TRY(rt_queue_wait(queue_of(f), e));
    return exec_device_hand_out(f, e);
}
