/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* exec_device_copy.c: copies of elements between buffers: strided ones of the queue's device by a map kernel with one
 * load and one store, made on first use for a size of elements and a number of dims; those of other devices through the
 * host. */
#include "base/small.h"
#include "rt/exec_device.h"
#include "rt/buffer.h"

/* ---- by a kernel ---- */
/* Dims that matter: of size above 1, and neighbours that are one in both buffers merged. */
typedef struct layout {
    int n;
    int64_t size[8], stride[8], dense[8];
} layout;

static layout collapse(const fusor_buffer *b) {
    layout l = {0};
    int64_t dense = 1;
    for (int d = b->rank - 1; d >= 0; d--) { /* innermost first */
        if (b->shape[d] == 1) continue;
        const int last = l.n - 1;
        if (l.n && l.stride[last] * l.size[last] == b->stride[d]) l.size[last] *= b->shape[d];
        else {
            l.size[l.n] = b->shape[d];
            l.stride[l.n] = b->stride[d];
            l.dense[l.n++] = dense;
        }
        dense *= b->shape[d];
    }
    return l;
}

static int type_number(ir_dtype t) { return t == FUSOR_BOOL ? 4 : __builtin_ctz((unsigned)ir_dtypes[t].bytes); }

static void describe(const core *c, ir_kernel *k, int type, int n_dims) {
    static const ir_dtype types[PACK_TYPES] = {FUSOR_U8, FUSOR_U16, FUSOR_U32, FUSOR_U64, FUSOR_BOOL};
    *k = (ir_kernel){
        .kind = IR_KERNEL_MAP, .level = c->plan->options.level, .n_dims = n_dims, .n_buffers = 2, .n_insts = 2};
    for (int d = 0; d < n_dims; d++) k->dim[d] = (ir_kdim){'p', IR_SIZE_RUNTIME};
    for (int b = 0; b < 2; b++) {
        k->buffer[b].dtype = types[type];
        k->buffer[b].is_output = b == 1;
        for (int d = 0; d < n_dims; d++) k->buffer[b].stride[d] = IR_STRIDE_RUNTIME;
    }
    k->inst[0] = (ir_kinst){.op = IR_K_LOAD, .dtype = types[type], .index = 0};
    k->inst[1] = (ir_kinst){.op = IR_K_STORE, .dtype = types[type], .index = 1, .n_in = 1};
}

void exec_device_pack_free(loaded_kernel *p) {
    if (!p) return;
    rt_device_kernel_release(p->device);
    rt_kernel_release(p->kernel);
    fu_free(p->text);
    fu_free(p);
}

/* By two threads at once at worst; one of them is kept. */
static fusor_status find(const core *c, fu_error *e, int type, int n_dims, loaded_kernel **out) {
    _Atomic(loaded_kernel *) *slot = &c->device->pack[type][n_dims];
    loaded_kernel *have = atomic_load_explicit(slot, memory_order_acquire);
    if (!have) {
        rt_cache_outcome outcome;
        loaded_kernel *made = fu_calloc(1, sizeof *made);
        if (made) made->text = fu_malloc(sizeof *made->text); /* 50 KB: too much for a caller's thread stack */
        if (!made || !made->text) {
            fu_free(made);
            return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a kernel");
        }
        describe(c, made->text, type, n_dims);
        fusor_status s = rt_cache_get(c->cache, e, made->text, 1, &made->kernel, &outcome);
        if (s == FUSOR_OK) s = rt_device_kernel_get(c->device->device, e, made->kernel, &made->device);
        if (s != FUSOR_OK) {
            exec_device_pack_free(made);
            return s;
        }
        if (atomic_compare_exchange_strong(slot, &have, made)) have = made;
        else exec_device_pack_free(made);
    }
    *out = have;
    return FUSOR_OK;
}

fusor_status exec_device_pack(const core *c, fu_error *e, const fusor_buffer *b, rt_address dense, bool is_gather) {
    const layout l = collapse(b);
    const int type = type_number(b->dtype);
    int64_t size[8], stride[16];
    void *at[2] = {b->data, b->data};
    loaded_kernel *found = NULL;
    for (int d = 0; d < l.n; d++) {
        const int from = l.n - 1 - d;
        size[d] = l.size[from];
        if (size[d] == 0) return FUSOR_OK;
        stride[(is_gather ? 0 : l.n) + d] = l.stride[from];
        stride[(is_gather ? l.n : 0) + d] = l.dense[from];
    }
    at[is_gather] = (void *)(uintptr_t)dense;
    if (type != 4 && (l.n == 0 || (l.n == 1 && l.stride[0] == 1))) {
        const size_t bytes = (size_t)(l.n ? l.size[0] : 1) * (size_t)ir_dtypes[b->dtype].bytes;
        return rt_queue_copy(c->options.queue, e, (rt_address)(uintptr_t)at[1], (rt_address)(uintptr_t)at[0], bytes);
    }
    FU_TRY(find(c, e, type, l.n, &found));
    uint64_t words[IR_GPU_WORDS + 2 + 8 + 16];
    ir_gpu_launch plan;
    ir_gpu_plan(found->text, size, &plan);
    ir_gpu_param(found->text, &(ir_kernel_args){.buffer = at, .size = size, .stride = stride}, &plan, 0, words);
    rt_launch launch = {.kernel = found->device, .param = words, .param_bytes = (size_t)ir_gpu_words(found->text) * 8};
    memcpy(launch.grid, plan.grid[0], sizeof launch.grid);
    memcpy(launch.block, plan.block[0], sizeof launch.block);
    return rt_queue_launch(c->options.queue, e, &launch);
}

/* ---- through the host ---- */
static int64_t bytes_of(const fusor_buffer *b) {
    int64_t n = ir_dtypes[b->dtype].bytes;
    for (int d = 0; d < b->rank; d++) n *= b->shape[d];
    return n;
}

/* A queue of another device, for one copy. */
static fusor_status open_other(const core *c, fu_error *e, const fusor_buffer *b, rt_queue **out) {
    call_end n = {.user = *b};
    rt_device *device;
    (void)exec_measure(&n);
    if (!n.is_dense)
        return FU_FAIL(e, FUSOR_ERROR_UNSUPPORTED,
                       "a strided buffer of device %d, and the program runs on device %d: it must be contiguous, or be "
                       "copied there",
                       (int)b->device, c->device->number);
    FU_TRY(rt_device_open(e, b->device - 1, &device));
    return rt_queue_new(device, e, out);
}

fusor_status exec_device_bring(const core *c, fu_error *e, const fusor_buffer *from, void *to) {
    const size_t bytes = (size_t)bytes_of(from);
    const rt_address at = (rt_address)(uintptr_t)from->data;
    rt_queue *q = c->options.queue;
    if (!bytes) return FUSOR_OK;
    if (!exec_device_is_own(c, from)) {
        FU_TRY(open_other(c, e, from, &q));
        fusor_status s = rt_queue_download(q, e, to, at, bytes);
        rt_queue_free(q);
        return s;
    }
    call_end n = {.user = *from};
    (void)exec_measure(&n);
    if (n.is_dense) return rt_queue_download(q, e, to, at, bytes);
    rt_address dense;
    FU_TRY(rt_queue_get(q, e, bytes, &dense));
    fusor_status s = exec_device_pack(c, e, from, dense, true);
    if (s == FUSOR_OK) s = rt_queue_download(q, e, to, dense, bytes);
    rt_queue_put(q, dense);
    return s;
}

fusor_status exec_device_send(const core *c, fu_error *e, const fusor_buffer *to, const void *from) {
    const size_t bytes = (size_t)bytes_of(to);
    rt_queue *q = c->options.queue;
    if (!bytes) return FUSOR_OK;
    FU_TRY(open_other(c, e, to, &q));
    fusor_status s = rt_queue_upload(q, e, (rt_address)(uintptr_t)to->data, from, bytes);
    if (s == FUSOR_OK) s = rt_queue_wait(q, e);
    rt_queue_free(q);
    return s;
}

/* ---- mirrors ---- */
fusor_status exec_device_mirror(const core *c, fu_error *e, const fusor_buffer *user, device_mirror *out) {
    rt_address at;
    out->bytes = (size_t)bytes_of(user);
    FU_TRY(rt_queue_get(c->options.queue, e, out->bytes, &at));
    out->user = out->copy = *user;
    out->copy.flags &= ~(uint32_t)FUSOR_STRIDED; /* what is read only stays so */
    out->copy.device = c->device->number;
    out->copy.data = (void *)(uintptr_t)at;
    return FUSOR_OK;
}

/* Contiguous and of the host: copied as it is. */
static bool is_plain(const device_mirror *m) {
    call_end n = {.user = m->user};
    return exec_measure(&n) && n.is_dense && !n.user.device;
}

fusor_status exec_device_mirror_load(const core *c, fu_error *e, const device_mirror *m) {
    const rt_address at = (rt_address)(uintptr_t)m->copy.data;
    if (!at || !m->bytes) return FUSOR_OK;
    if (is_plain(m)) return rt_queue_upload(c->options.queue, e, at, m->user.data, m->bytes);
    fusor_status s = FUSOR_OK;
    void *dense = rt_memory_get(&c->options, m->bytes);
    if (!dense) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a copy of %zu bytes", m->bytes);
    if (m->user.device) s = exec_device_bring(c, e, &m->user, dense);
    else exec_gather(dense, &m->user, ir_dtypes[m->user.dtype].bytes);
    if (s == FUSOR_OK) s = rt_queue_upload(c->options.queue, e, at, dense, m->bytes);
    rt_memory_put(&c->options, dense, m->bytes);
    return s;
}

fusor_status exec_device_mirror_store(const core *c, fu_error *e, const device_mirror *m) {
    const rt_address at = (rt_address)(uintptr_t)m->copy.data;
    if (!at || !m->bytes) return FUSOR_OK;
    if (is_plain(m)) return rt_queue_download(c->options.queue, e, m->user.data, at, m->bytes);
    void *dense = rt_memory_get(&c->options, m->bytes);
    if (!dense) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a copy of %zu bytes", m->bytes);
    fusor_status s = rt_queue_download(c->options.queue, e, dense, at, m->bytes);
    if (s == FUSOR_OK && m->user.device) s = exec_device_send(c, e, &m->user, dense);
    else if (s == FUSOR_OK) exec_scatter(&m->user, dense, ir_dtypes[m->user.dtype].bytes);
    rt_memory_put(&c->options, dense, m->bytes);
    return s;
}

void exec_device_mirror_drop(const core *c, device_mirror *m) {
    rt_queue_put(c->options.queue, (rt_address)(uintptr_t)m->copy.data);
}
