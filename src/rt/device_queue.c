/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* device_queue.c: a queue's three streams (lanes) and what orders them: launches, waits, marks, other queues.
 *
 * What is put on a queue takes effect in its order. Within a lane the driver sees to that; between lanes, events:
 * operations of a lane are counted, and one that needs position n of another lane waits for an event that was recorded
 * there at n or later. Kernels may touch any memory that is held when they are launched, so a launch waits for all
 * copies to the device, and for those copies from it whose source is still held; a copy to the device waits for kernels
 * only where memory was there for them to use; a copy from the device waits for all that was put on before. */
#include "rt/device_internal.h"
#include "base/arena.h"
#include <string.h>

static const char *const lane_text[N_LANES] = {"kernels", "copies to the device", "copies from the device"};

/* ---- lanes ---- */
fusor_status lane_open(rt_queue *q, fu_error *e, lane_kind k) {
    rt_device *d = q->device;
    if (q->lane[k].stream) return FUSOR_OK;
    cu_stream stream;
    cu_result code = d->cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (code != CU_OK) return device_fail(d, e, code, "making a stream for %s", lane_text[k]);
    pthread_mutex_lock(&d->pool_lock); /* wait_for_queues reads it */
    q->lane[k].stream = stream;
    pthread_mutex_unlock(&d->pool_lock);
    return FUSOR_OK;
}

/* An event at the lane's last operation; its index in *out. */
static cu_result record(rt_queue *q, lane_kind k, int *out) {
    const rt_cuda_api *cu = q->device->cu;
    lane *l = &q->lane[k];
    int i = l->next;
    cu_result code = l->mark[i].event ? CU_OK : cu->cuEventCreate(&l->mark[i].event, CU_EVENT_DISABLE_TIMING);
    if (code == CU_OK) code = cu->cuEventRecord(l->mark[i].event, l->stream);
    if (code != CU_OK) return code;
    l->mark[i].at = l->issued;
    l->next = (i + 1) % LANE_MARKS;
    *out = i;
    return CU_OK;
}

/* The event recorded first at or after position `at`; -1: none. */
static int find_mark(const lane *l, uint64_t at) {
    int best = -1;
    for (int i = 0; i < LANE_MARKS; i++)
        if (l->mark[i].at >= at && (best < 0 || l->mark[i].at < l->mark[best].at)) best = i;
    return best;
}

void lane_mark_quietly(rt_queue *q, lane_kind k) {
    lane *l = &q->lane[k];
    int i;
    if (l->issued == l->done || find_mark(l, l->issued) >= 0 || !device_enter_quietly(q->device)) return;
    device_note(q->device, record(q, k, &i));
    device_leave(q->device);
}

fusor_status lane_wait(rt_queue *q, fu_error *e, lane_kind to, lane_kind from, uint64_t at) {
    lane *f = &q->lane[from], *t = &q->lane[to];
    if (at > f->issued) at = f->issued;
    if (at <= f->done || at <= t->waited[from]) return FUSOR_OK;
    FU_TRY(lane_open(q, e, to));
    int i = find_mark(f, at);
    cu_result code = i < 0 ? record(q, from, &i) : CU_OK;
    if (code == CU_OK) code = q->device->cu->cuStreamWaitEvent(t->stream, f->mark[i].event, 0);
    if (code != CU_OK) return device_fail(q->device, e, code, "letting %s wait for %s", lane_text[to], lane_text[from]);
    t->waited[from] = f->mark[i].at;
    return FUSOR_OK;
}

void queue_issued(rt_queue *q, lane_kind k) {
    q->lane[k].issued++;
    atomic_fetch_add_explicit(&q->issued, 1, memory_order_release);
}

fusor_status queue_before_compute(rt_queue *q, fu_error *e) {
    FU_TRY(lane_open(q, e, LANE_COMPUTE));
    if (q->n_reading) {
        for (int i = 0; i < q->n_reading; i++)
            if (q->reading[i]->read_until > q->down_before_compute) q->down_before_compute = q->reading[i]->read_until;
        q->n_reading = 0;
    }
    FU_TRY(lane_wait(q, e, LANE_COMPUTE, LANE_DOWN, q->down_before_compute));
    return lane_wait(q, e, LANE_COMPUTE, LANE_UP, q->lane[LANE_UP].issued);
}

fusor_status lane_finish(rt_queue *q, fu_error *e, lane_kind k) {
    lane *l = &q->lane[k];
    if (l->issued == l->done) return FUSOR_OK;
    cu_result code = q->device->cu->cuStreamSynchronize(l->stream);
    if (code != CU_OK) return device_fail(q->device, e, code, "waiting for %s", lane_text[k]);
    l->done = l->issued;
    for (int o = 0; o < N_LANES; o++)
        if (l->waited[o] > q->lane[o].done) q->lane[o].done = l->waited[o];
    for (int o = 0; o < N_LANES; o++)
        if (q->lane[o].issued != q->lane[o].done) return FUSOR_OK;
    atomic_store_explicit(&q->done, atomic_load(&q->issued), memory_order_release);
    return FUSOR_OK;
}

fusor_status queue_begin(rt_queue *q, fu_error *e) {
    FU_TRY(device_check(q->device, e)); /* before the lock, which a fork may have left held */
    pthread_mutex_lock(&q->lock);
    fusor_status s = device_enter(q->device, e);
    if (s != FUSOR_OK) pthread_mutex_unlock(&q->lock);
    return s;
}

fusor_status queue_end(rt_queue *q, fusor_status s) {
    device_leave(q->device);
    pthread_mutex_unlock(&q->lock);
    return s;
}

/* ---- queues ---- */
fusor_status rt_queue_new(rt_device *d, fu_error *e, rt_queue **out) {
    FU_TRY(device_enter(d, e));
    rt_queue *q = fu_calloc(1, sizeof *q);
    fusor_status s = FUSOR_OK;
    if (!q) {
        s = FU_FAIL(e, FUSOR_ERROR_MEMORY, "cuda:%d: no memory for a queue", d->info.ordinal);
    } else {
        q->device = d;
        pthread_mutex_init(&q->lock, NULL);
        s = lane_open(q, e, LANE_COMPUTE);
    }
    device_leave(d);
    if (s != FUSOR_OK) return fu_free(q), s;
    pthread_mutex_lock(&d->pool_lock);
    q->next = d->queues;
    d->queues = q;
    pthread_mutex_unlock(&d->pool_lock);
    *out = q;
    return FUSOR_OK;
}

rt_device *rt_queue_device(const rt_queue *q) { return q->device; }

/* By two threads at once at worst; one of both is kept. Whoever finds them puts his work behind the fill. */
fusor_status rt_queue_counters(rt_queue *q, fu_error *e, rt_address *out) {
    rt_address have = atomic_load(&q->counters), made = 0;
    if (!have) {
        const size_t bytes = RT_QUEUE_COUNTERS * sizeof(uint32_t);
        FU_TRY(rt_queue_get(q, e, bytes, &made));
        if (rt_queue_fill(q, e, made, 0, bytes) != FUSOR_OK) return rt_queue_put(q, made), e->status;
        if (atomic_compare_exchange_strong(&q->counters, &have, made)) have = made;
        else rt_queue_put(q, made);
    }
    *out = have;
    return FUSOR_OK;
}

void rt_queue_free(rt_queue *q) {
    if (!q || rt_cuda_is_forked()) return;
    rt_device *d = q->device;
    fu_error *ignored = fu_malloc(sizeof *ignored);
    if (ignored) {
        fu_error_clear(ignored);
        fusor_status s = rt_queue_wait(q, ignored);
        (void)s; /* nobody waits for its results any more */
        fu_free(ignored);
    }
    rt_queue_put(q, atomic_load(&q->counters));
    pool_forget_queue(d, q);
    bool is_current = device_enter_quietly(d); /* of a dead context nothing can be given back */
    for (int k = 0; k < N_LANES && is_current; k++) {
        lane *l = &q->lane[k];
        if (l->stream) device_note(d, d->cu->cuStreamSynchronize(l->stream));
        for (int i = 0; i < LANE_MARKS; i++)
            if (l->mark[i].event) d->cu->cuEventDestroy_v2(l->mark[i].event);
        if (l->stream) d->cu->cuStreamDestroy_v2(l->stream);
    }
    for (int i = 0; i < q->n_marks && is_current; i++) d->cu->cuEventDestroy_v2(q->marks[i].event);
    stage_free(q, is_current);
    if (is_current) device_leave(d);
    fu_free(q->marks);
    fu_free(q->reading);
    pthread_mutex_destroy(&q->lock);
    fu_free(q);
}

static fusor_status finish_all(rt_queue *q, fu_error *e) {
    FU_TRY(stage_drain(q, e));
    for (int k = N_LANES - 1; k >= 0; k--) FU_TRY(lane_finish(q, e, (lane_kind)k));
    q->n_reading = 0;
    return FUSOR_OK;
}

fusor_status rt_queue_wait(rt_queue *q, fu_error *e) {
    FU_TRY(queue_begin(q, e));
    return queue_end(q, finish_all(q, e));
}

static fusor_status follow(rt_queue *q, fu_error *e, rt_queue *other) {
    bool waits = false;
    for (int k = 0; k < N_LANES; k++) {
        lane *l = &other->lane[k];
        if (l->issued == l->done) continue;
        int i = find_mark(l, l->issued);
        cu_result code = i < 0 ? record(other, (lane_kind)k, &i) : CU_OK;
        if (code == CU_OK) code = q->device->cu->cuStreamWaitEvent(q->lane[LANE_COMPUTE].stream, l->mark[i].event, 0);
        if (code != CU_OK) return device_fail(q->device, e, code, "letting a queue wait for another");
        waits = true;
    }
    if (waits) queue_issued(q, LANE_COMPUTE); /* copies of q that wait for its kernels wait for these too */
    return FUSOR_OK;
}

fusor_status rt_queue_follow(rt_queue *q, fu_error *e, rt_queue *other) {
    if (q == other) return FUSOR_OK;
    if (q->device != other->device)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "a queue of cuda:%d cannot follow one of cuda:%d",
                       q->device->info.ordinal, other->device->info.ordinal);
    FU_TRY(device_check(q->device, e));
    rt_queue *first = q < other ? q : other, *second = q < other ? other : q;
    pthread_mutex_lock(&first->lock);
    pthread_mutex_lock(&second->lock);
    fusor_status s = device_enter(q->device, e);
    if (s == FUSOR_OK) {
        s = follow(q, e, other);
        device_leave(q->device);
    }
    pthread_mutex_unlock(&second->lock);
    pthread_mutex_unlock(&first->lock);
    return s;
}

/* ---- launches ---- */
static fusor_status launch(rt_queue *q, fu_error *e, const rt_launch *l) {
    const device_kernel *k = (const device_kernel *)l->kernel;
    FU_TRY(queue_before_compute(q, e));
    void *params[1] = {(void *)(uintptr_t)l->param}; /* read only */
    const uint32_t *g = l->grid, *b = l->block;
    cu_result code = q->device->cu->cuLaunchKernel(k->function, g[0], g[1], g[2], b[0], b[1], b[2], l->shared_bytes,
                                                   q->lane[LANE_COMPUTE].stream, params, NULL);
    if (code != CU_OK)
        return device_fail(q->device, e, code,
                           "launching %s: grid %ux%ux%u, block %ux%ux%u, %u bytes of dynamic shared memory",
                           k->kernel->symbol, g[0], g[1], g[2], b[0], b[1], b[2], l->shared_bytes);
    queue_issued(q, LANE_COMPUTE);
    return FUSOR_OK;
}

fusor_status rt_queue_launch(rt_queue *q, fu_error *e, const rt_launch *l) {
    device_kernel *k = (device_kernel *)(uintptr_t)l->kernel;
    if (k->device != q->device)
        return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "kernel %s was loaded on cuda:%d; the queue is of cuda:%d",
                       k->kernel->symbol, k->device->info.ordinal, q->device->info.ordinal);
    for (int i = 0; i < 3; i++)
        if (!l->grid[i]) return FUSOR_OK;
    FU_TRY(queue_begin(q, e));
    fusor_status s = device_kernel_allow_shared(k, e, l->shared_bytes);
    if (s == FUSOR_OK) s = launch(q, e, l);
    return queue_end(q, s);
}

/* ---- marks ---- */
static fusor_status mark(rt_queue *q, fu_error *e, int *id_out) {
    const rt_cuda_api *cu = q->device->cu;
    int i = 0;
    FU_TRY(queue_before_compute(q, e));
    while (i < q->n_marks && q->marks[i].is_used) i++;
    if (i == q->n_marks) {
        time_mark *more = fu_realloc(q->marks, (size_t)(i + 1) * sizeof *more);
        if (!more) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a mark");
        q->marks = more;
        q->marks[i] = (time_mark){0};
        cu_result code = cu->cuEventCreate(&q->marks[i].event, 0);
        if (code != CU_OK) return device_fail(q->device, e, code, "making an event");
        q->n_marks++;
    }
    cu_result code = cu->cuEventRecord(q->marks[i].event, q->lane[LANE_COMPUTE].stream);
    if (code != CU_OK) return device_fail(q->device, e, code, "recording an event");
    q->marks[i].is_used = true;
    queue_issued(q, LANE_COMPUTE);
    *id_out = i;
    return FUSOR_OK;
}

fusor_status rt_queue_mark(rt_queue *q, fu_error *e, int *id_out) {
    FU_TRY(queue_begin(q, e));
    return queue_end(q, mark(q, e, id_out));
}

static fusor_status between(rt_queue *q, fu_error *e, int from, int to, int64_t *ns_out) {
    const rt_cuda_api *cu = q->device->cu;
    int ids[2] = {from, to};
    for (int i = 0; i < 2; i++)
        if (ids[i] < 0 || ids[i] >= q->n_marks || !q->marks[ids[i]].is_used)
            return FU_FAIL(e, FUSOR_ERROR_ARGUMENT, "%d is no mark of this queue", ids[i]);
    float ms = 0;
    cu_result code = CU_OK;
    for (int i = 0; i < 2 && code == CU_OK; i++) code = cu->cuEventSynchronize(q->marks[ids[i]].event);
    if (code == CU_OK) code = cu->cuEventElapsedTime(&ms, q->marks[from].event, q->marks[to].event);
    q->marks[from].is_used = q->marks[to].is_used = false;
    if (code != CU_OK) return device_fail(q->device, e, code, "reading the time between two events");
    *ns_out = (int64_t)((double)ms * 1e6);
    return FUSOR_OK;
}

fusor_status rt_queue_between(rt_queue *q, fu_error *e, int from, int to, int64_t *ns_out) {
    FU_TRY(queue_begin(q, e));
    return queue_end(q, between(q, e, from, to, ns_out));
}
