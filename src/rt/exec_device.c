/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* exec_device.c: what an executable and its frames have of a device: modules of the kernels, literals, bound
 * parameters. */
#include "rt/exec_device.h"
#include "rt/buffer.h"

enum { LITERAL_BYTES = 256 }; /* apart, as the pool aligns */

bool exec_device_is_own(const core *c, const fusor_buffer *b) { return c->device && b->device == c->device->number; }
bool exec_device_takes(const core *c, const fusor_buffer *b) { return c->device && b->device >= 0; }
const char *exec_device_expected(const core *c) {
    return c->device ? "0, the CPU, or 1 + the number of a device" : "0, the CPU";
}

/* ---- the shared part ---- */
static void find_uses(const core *c) {
    for (int i = 0; i < c->n_steps; i++) {
        const ir_step *st = &c->plan->steps.at[i];
        if (st->kind != IR_STEP_KERNEL && st->kind != IR_STEP_COPY) continue;
        c->device->has_work = true;
        for (int a = 0; a < st->n_args; a++) c->device->kernels_use[st->arg[a]] = true;
    }
}

static fusor_status load_kernels(core *c, fu_error *e) {
    for (int i = 0; i < c->n_steps; i++) {
        if (!c->info[i].kernel) continue;
        FU_TRY(rt_device_kernel_get(c->device->device, e, (rt_kernel *)c->info[i].kernel, &c->device->kernel[i]));
    }
    return FUSOR_OK;
}

/* Literals are the same in every call: uploaded once. */
static fusor_status make_literals(core *c, fu_error *e) {
    device_core *d = c->device;
    size_t n = 0;
    for (int i = 0; i < c->n_buffers; i++) n += c->plan->buffers.at[i].storage == IR_STORE_LITERAL;
    if (!n) return FUSOR_OK;
    char *all = fu_calloc(n, LITERAL_BYTES);
    if (!all) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for an executable");
    fusor_status s = rt_queue_get(c->options.queue, e, n * LITERAL_BYTES, &d->literals);
    n = 0;
    for (int i = 0; i < c->n_buffers; i++) {
        const ir_plan_buffer *b = &c->plan->buffers.at[i];
        if (b->storage != IR_STORE_LITERAL) continue;
        memcpy(all + n, &b->bits, sizeof b->bits); /* little endian */
        d->literal_at[i] = d->literals + n;
        n += LITERAL_BYTES;
    }
    if (s == FUSOR_OK) s = rt_queue_upload(c->options.queue, e, d->literals, all, n);
    fu_free(all);
    return s;
}

fusor_status exec_device_start(core *c, fu_error *e) {
    device_core *d = fu_calloc(1, sizeof *d);
    if (!d) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for an executable");
    c->device = d;
    d->device = rt_queue_device(c->options.queue);
    d->number = 1 + rt_device_get_info(d->device)->ordinal;
    d->kernel = fu_calloc((size_t)c->n_steps + 1, sizeof *d->kernel);
    d->kernels_use = fu_calloc((size_t)c->n_buffers + 1, sizeof *d->kernels_use);
    d->literal_at = fu_calloc((size_t)c->n_buffers + 1, sizeof *d->literal_at);
    d->each = fu_calloc((size_t)c->n_steps + 1, sizeof *d->each);
    d->group = fu_calloc((size_t)c->n_steps + 1, sizeof *d->group);
    if (!d->kernel || !d->kernels_use || !d->literal_at || !d->each || !d->group)
        return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for an executable");
    for (int i = 0; i < c->n_steps; i += d->group[i]) d->group[i] = exec_device_group(c, i);
    find_uses(c);
    FU_TRY(load_kernels(c, e));
    return make_literals(c, e);
}

void exec_device_stop(core *c) {
    device_core *d = c->device;
    if (!d) return;
    for (int i = 0; d->kernel && i < c->n_steps; i++) rt_device_kernel_release(d->kernel[i]);
    for (int t = 0; t < PACK_TYPES; t++)
        for (int r = 0; r < PACK_RANKS; r++) exec_device_pack_free(atomic_load(&d->pack[t][r]));
    for (int i = 0; d->each && i < c->n_steps; i++) exec_device_pack_free(atomic_load(&d->each[i]));
    if (d->literals) rt_queue_put(c->options.queue, d->literals);
    fu_free(d->group);
    fu_free(d->each);
    fu_free(d->literal_at);
    fu_free(d->kernels_use);
    fu_free(d->kernel);
    fu_free(d);
    c->device = NULL;
}

/* ---- frames ---- */
device_frame *exec_device_frame(frame *f) {
    const core *c = f->x->core;
    device_frame *d = FU_NEW(&f->arena, device_frame);
    int words = 1;
    for (int i = 0; i < c->n_steps; i++) {
        const ir_step *st = &c->plan->steps.at[i];
        if (st->kind == IR_STEP_KERNEL && ir_gpu_words(st->kernel) > words) words = ir_gpu_words(st->kernel);
    }
    d->end = FU_NEW_N(&f->arena, rt_address, c->n_params + c->n_results + 1);
    d->valid = FU_NEW_N(&f->arena, uint8_t, c->n_buffers + 1);
    d->host = FU_NEW_N(&f->arena, void *, c->n_buffers + 1);
    d->own = FU_NEW_N(&f->arena, void *, c->n_buffers + 1);
    d->own_bytes = FU_NEW_N(&f->arena, size_t, c->n_buffers + 1);
    d->table = FU_NEW_N(&f->arena, device_table, c->n_steps + 1);
    memset(d->table, 0, (size_t)(c->n_steps + 1) * sizeof *d->table);
    d->words = FU_NEW_N(&f->arena, uint64_t, words);
    for (int i = 0; i < c->n_buffers; i++) {
        if (c->plan->buffers.at[i].storage != IR_STORE_LITERAL) continue;
        d->host[i] = &c->plan->buffers.at[i].bits; /* read only, by the reference evaluator */
        f->base[i] = (void *)(uintptr_t)c->device->literal_at[i];
    }
    for (int p = 0; p < c->n_params; p++)
        if (f->x->bound[p]) d->host[p] = f->x->bound[p]->value.data;
    return d;
}

void exec_device_frame_free(frame *f) {
    device_frame *d = f->device;
    for (int i = 0; i < f->x->core->n_buffers; i++) rt_memory_put(&f->x->core->options, d->own[i], d->own_bytes[i]);
    for (int i = 0; i < f->x->core->n_steps; i++) exec_device_table_free(f->x->core, &d->table[i]);
    fu_free(d->mark);
    fu_free(d->small_host);
}

void exec_device_aim(frame *f, int b, const call_end *n) {
    f->device->host[b] = n->is_device ? NULL : f->base[b];
    if (!n->is_device) f->base[b] = NULL; /* a place in the call's memory, later */
}

static void give(void *queue, void *p, size_t bytes) {
    (void)bytes;
    rt_queue_put(queue, (rt_address)(uintptr_t)p);
}

/* Noted as memory of the host that leaves the library is, with the queue as user. */
void *exec_device_output_get(const core *c, fu_error *e, const fusor_buffer *out, const char *name, int64_t bytes) {
    rt_address at;
    if (!exec_device_is_own(c, out)) {
        (void)FU_FAIL(e, FUSOR_ERROR_DEVICE,
                      "output %%%s is asked for on device %d, and has no data; this program runs on device %d", name,
                      (int)out->device, c->device->number);
        return NULL;
    }
    if (rt_queue_get(c->options.queue, e, (size_t)bytes, &at) != FUSOR_OK) {
        fu_error_prefix(e, "result %%%s: ", name);
        return NULL;
    }
    void *p = (void *)(uintptr_t)at;
    if (rt_buffer_note(p, (size_t)bytes, give, c->options.queue)) return p;
    rt_queue_put(c->options.queue, at);
    (void)FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for result %%%s", name);
    return NULL;
}

/* ---- bound parameters ---- */
fusor_status exec_device_bind(const core *c, fu_error *e, int param, bound_param *b, const fusor_buffer *value) {
    const bool kernels_read = c->device->kernels_use[param];
    bool host_reads = !kernels_read;
    for (int i = 0; i < c->n_steps; i++) {
        const ir_step *st = &c->plan->steps.at[i];
        if (st->kind != IR_STEP_REFERENCE && st->kind != IR_STEP_CHECK) continue;
        for (int a = 0; a < st->n_args; a++) host_reads |= st->arg[a] == param;
    }
    if (kernels_read) FU_TRY(rt_queue_get(c->options.queue, e, b->bytes, &b->device_at));
    if (!host_reads && exec_device_is_own(c, value)) return exec_device_pack(c, e, value, b->device_at, true);
    FU_TRY(exec_bind_host(c, e, b, value));
    if (kernels_read) FU_TRY(rt_queue_upload(c->options.queue, e, b->device_at, b->value.data, b->bytes));
    if (host_reads) return FUSOR_OK;
    rt_memory_put(&b->options, b->value.data, b->bytes);
    b->value.data = NULL;
    return FUSOR_OK;
}
