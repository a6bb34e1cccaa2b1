/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* device_copy.c: copies. Memory of the caller is pageable, and the driver would wait where it copies such; so all goes
 * through rings of pinned memory: small copies in the lane of kernels, large ones piece by piece in a lane of their
 * own, where the processor fills or empties one slot while the device copies others. */
#include "base/small.h"
#include "rt/device_internal.h"
#include "base/arena.h"
#include <string.h>

enum { SMALL_BYTES = 64 << 10, SMALL_SLOT = 128 << 10, LARGE_SLOT = 2 << 20, ALIGN = 256 };

/* ---- rings ---- */
/* Getting pinned memory takes the driver milliseconds: what a queue leaves serves the next. */
static void *take_spare(rt_device *d, bool is_large) {
    void *memory = NULL;
    pthread_mutex_lock(&d->pool_lock);
    for (int i = 0; i < SPARE_STAGES && !memory; i++) {
        memory = d->spare_stage[is_large][i];
        d->spare_stage[is_large][i] = NULL;
    }
    pthread_mutex_unlock(&d->pool_lock);
    return memory;
}

static void give_spare(rt_device *d, bool is_large, void *memory) {
    pthread_mutex_lock(&d->pool_lock);
    for (int i = 0; i < SPARE_STAGES && memory; i++) {
        if (d->spare_stage[is_large][i]) continue;
        d->spare_stage[is_large][i] = memory;
        memory = NULL;
    }
    pthread_mutex_unlock(&d->pool_lock);
    if (memory) d->cu->cuMemFreeHost(memory);
}

void stage_trim(rt_device *d) {
    for (int i = 0; i < 2 * SPARE_STAGES; i++) {
        void **spare = &d->spare_stage[i / SPARE_STAGES][i % SPARE_STAGES];
        if (*spare) d->cu->cuMemFreeHost(*spare);
        *spare = NULL;
    }
}

static fusor_status open_stage(rt_queue *q, fu_error *e, lane_kind k) {
    stage *s = &q->stage[k];
    if (s->memory) return FUSOR_OK;
    size_t slot = k == LANE_COMPUTE ? SMALL_SLOT : LARGE_SLOT;
    void *memory = take_spare(q->device, k != LANE_COMPUTE);
    cu_result code = memory ? CU_OK : q->device->cu->cuMemHostAlloc(&memory, STAGE_SLOTS * slot, CU_HOST_PORTABLE);
    if (code != CU_OK)
        return device_fail(q->device, e, code, "getting %zu bytes of pinned memory", (size_t)STAGE_SLOTS * slot);
    s->memory = memory;
    s->slot_bytes = slot;
    return FUSOR_OK;
}

/* What came goes where it belongs, or is dropped: nothing may arrive after an error was told. */
static void hand_over(stage *s, int i, bool has_come) {
    for (int p = 0; p < s->slot[i].n && has_come; p++)
        memcpy(s->slot[i].pieces[p].to, s->slot[i].pieces[p].from, s->slot[i].pieces[p].bytes);
    s->slot[i].n = 0;
}

/* The slot's copies are done, and it is empty. */
static fusor_status empty_slot(rt_queue *q, fu_error *e, lane_kind k, int i) {
    const rt_cuda_api *cu = q->device->cu;
    stage *s = &q->stage[k];
    if (!s->slot[i].is_pending) return FUSOR_OK;
    cu_result code = cu->cuEventSynchronize(s->slot[i].event);
    s->slot[i].is_pending = false;
    /* Some of it may be another thread's, which is not told of this failure. */
    hand_over(s, i, code == CU_OK || cu->cuStreamSynchronize(q->lane[k].stream) == CU_OK);
    return code == CU_OK ? FUSOR_OK : device_fail(q->device, e, code, "waiting for a copy");
}

/* Closes the slot in use and goes to the next, the one longest in use. */
static fusor_status next_slot(rt_queue *q, fu_error *e, lane_kind k) {
    const rt_cuda_api *cu = q->device->cu;
    stage *s = &q->stage[k];
    int i = s->at;
    cu_result code = s->slot[i].event ? CU_OK : cu->cuEventCreate(&s->slot[i].event, CU_EVENT_DISABLE_TIMING);
    if (code == CU_OK) code = cu->cuEventRecord(s->slot[i].event, q->lane[k].stream);
    if (code != CU_OK) return device_fail(q->device, e, code, "recording an event behind a copy");
    s->slot[i].is_pending = true;
    s->at = (i + 1) % STAGE_SLOTS;
    s->used = 0;
    return empty_slot(q, e, k, s->at);
}

/* Pinned memory for the next copy: of `want` bytes, or at least some of them where not is_whole. */
static fusor_status take(rt_queue *q, fu_error *e, lane_kind k, size_t want, bool is_whole, char **out, size_t *n_out) {
    stage *s = &q->stage[k];
    FU_TRY(open_stage(q, e, k));
    size_t left = s->slot_bytes - s->used;
    if (!left || (is_whole && left < want)) {
        FU_TRY(next_slot(q, e, k));
        left = s->slot_bytes;
    }
    *n_out = want < left ? want : left;
    *out = s->memory + (size_t)s->at * s->slot_bytes + s->used;
    s->used += (*n_out + ALIGN - 1) / ALIGN * ALIGN;
    return FUSOR_OK;
}

fusor_status stage_drain(rt_queue *q, fu_error *e) {
    stage *s = &q->stage[LANE_DOWN];
    fusor_status status = FUSOR_OK;
    for (int i = 1; i < STAGE_SLOTS; i++) { /* the longest in use first */
        const fusor_status one = empty_slot(q, e, LANE_DOWN, (s->at + i) % STAGE_SLOTS);
        if (status == FUSOR_OK) status = one;
    }
    const fusor_status last = lane_finish(q, e, LANE_DOWN);
    hand_over(s, s->at, last == FUSOR_OK);
    s->used = 0;
    return status == FUSOR_OK ? last : status;
}

void stage_free(rt_queue *q, bool is_current) {
    const rt_cuda_api *cu = q->device->cu;
    for (int k = 0; k < N_LANES; k++) {
        stage *s = &q->stage[k];
        for (int i = 0; i < STAGE_SLOTS; i++) {
            if (s->slot[i].event && is_current) cu->cuEventDestroy_v2(s->slot[i].event);
            fu_free(s->slot[i].pieces);
        }
        if (s->memory && is_current) give_spare(q->device, k != LANE_COMPUTE, s->memory);
    }
}

/* ---- to the device ---- */
static fusor_status put_up(rt_queue *q, fu_error *e, lane_kind k, rt_address to, const char *from, size_t bytes) {
    while (bytes) {
        char *p;
        size_t n;
        FU_TRY(take(q, e, k, bytes, k == LANE_COMPUTE, &p, &n));
        memcpy(p, from, n);
        cu_result code = q->device->cu->cuMemcpyHtoDAsync_v2(to, p, n, q->lane[k].stream);
        if (code != CU_OK) return device_fail(q->device, e, code, "copying %zu bytes to the device", n);
        queue_issued(q, k);
        to += n;
        from += n;
        bytes -= n;
    }
    return FUSOR_OK;
}

/* What the copy into memory at `to` waits for: nothing that was launched before the memory was got can touch it, but
 * for what used it before it was given back. */
static fusor_status before_up(rt_queue *q, fu_error *e, rt_address to) {
    const lane *compute = &q->lane[LANE_COMPUTE];
    uint64_t kernels = compute->issued, reads = q->lane[LANE_DOWN].issued;
    block *b = pool_find(q, to);
    if (b) {
        if (kernels == b->got_at) kernels = b->free_since;
        reads = b->read_until;
        b->is_uploaded = true;
    }
    FU_TRY(lane_open(q, e, LANE_UP));
    FU_TRY(lane_wait(q, e, LANE_UP, LANE_COMPUTE, kernels));
    return lane_wait(q, e, LANE_UP, LANE_DOWN, reads);
}

static fusor_status upload(rt_queue *q, fu_error *e, rt_address to, const void *from, size_t bytes) {
    bool is_small = bytes <= SMALL_BYTES;
    FU_TRY(is_small ? queue_before_compute(q, e) : before_up(q, e, to));
    return put_up(q, e, is_small ? LANE_COMPUTE : LANE_UP, to, from, bytes);
}

fusor_status rt_queue_upload(rt_queue *q, fu_error *e, rt_address to, const void *from, size_t bytes) {
    if (!bytes) return FUSOR_OK;
    FU_TRY(queue_begin(q, e));
    return queue_end(q, upload(q, e, to, from, bytes));
}

/* ---- from the device ---- */
static fusor_status small_download(rt_queue *q, fu_error *e, char *to, rt_address from, size_t bytes) {
    char *p;
    size_t n;
    FU_TRY(queue_before_compute(q, e));
    FU_TRY(take(q, e, LANE_COMPUTE, bytes, true, &p, &n));
    cu_result code = q->device->cu->cuMemcpyDtoHAsync_v2(p, from, bytes, q->lane[LANE_COMPUTE].stream);
    if (code != CU_OK) return device_fail(q->device, e, code, "copying %zu bytes from the device", bytes);
    queue_issued(q, LANE_COMPUTE);
    FU_TRY(lane_finish(q, e, LANE_COMPUTE));
    memcpy(to, p, bytes);
    return FUSOR_OK;
}

static fusor_status add_piece(stage *s, fu_error *e, piece p) {
    int i = s->at;
    if (s->slot[i].n == s->slot[i].room) {
        int room = s->slot[i].room ? 2 * s->slot[i].room : 8;
        piece *more = fu_realloc(s->slot[i].pieces, (size_t)room * sizeof *more);
        if (!more) return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for a list of copies");
        s->slot[i].pieces = more;
        s->slot[i].room = room;
    }
    s->slot[i].pieces[s->slot[i].n++] = p;
    return FUSOR_OK;
}

/* The source must not change before the copy; once it is given back, nothing on the queue can change it but a later
 * owner. */
static void note_reading(rt_queue *q, rt_address from) {
    uint64_t until = q->lane[LANE_DOWN].issued;
    block *b = pool_find(q, from);
    if (b && q->n_reading == q->reading_room) {
        int room = q->reading_room ? 2 * q->reading_room : 16;
        block **more = fu_realloc(q->reading, (size_t)room * sizeof *more);
        if (more) q->reading = more, q->reading_room = room;
    }
    if (b) b->read_until = until;
    if (b && q->n_reading < q->reading_room) q->reading[q->n_reading++] = b;
    else q->down_before_compute = until;
}

static fusor_status download_later(rt_queue *q, fu_error *e, char *to, rt_address from, size_t bytes) {
    FU_TRY(lane_open(q, e, LANE_DOWN));
    FU_TRY(lane_wait(q, e, LANE_DOWN, LANE_COMPUTE, q->lane[LANE_COMPUTE].issued));
    FU_TRY(lane_wait(q, e, LANE_DOWN, LANE_UP, q->lane[LANE_UP].issued));
    for (rt_address at = from; bytes;) {
        char *p;
        size_t n;
        FU_TRY(take(q, e, LANE_DOWN, bytes, false, &p, &n));
        cu_result code = q->device->cu->cuMemcpyDtoHAsync_v2(p, at, n, q->lane[LANE_DOWN].stream);
        if (code != CU_OK) return device_fail(q->device, e, code, "copying %zu bytes from the device", n);
        queue_issued(q, LANE_DOWN);
        FU_TRY(add_piece(&q->stage[LANE_DOWN], e, (piece){to, p, n}));
        at += n;
        to += n;
        bytes -= n;
    }
    note_reading(q, from);
    return FUSOR_OK;
}

fusor_status rt_queue_download_later(rt_queue *q, fu_error *e, void *to, rt_address from, size_t bytes) {
    if (!bytes) return FUSOR_OK;
    FU_TRY(queue_begin(q, e));
    return queue_end(q, download_later(q, e, to, from, bytes));
}

static fusor_status download(rt_queue *q, fu_error *e, void *to, rt_address from, size_t bytes) {
    /* Not before what is on its way: that may be for the same memory. */
    const lane *down = &q->lane[LANE_DOWN];
    if (bytes <= SMALL_BYTES && down->issued == down->done) return small_download(q, e, to, from, bytes);
    const fusor_status s = download_later(q, e, to, from, bytes), drained = stage_drain(q, e);
    return s == FUSOR_OK ? drained : s;
}

fusor_status rt_queue_download(rt_queue *q, fu_error *e, void *to, rt_address from, size_t bytes) {
    if (!bytes) return FUSOR_OK;
    FU_TRY(queue_begin(q, e));
    return queue_end(q, download(q, e, to, from, bytes));
}

/* ---- on the device ---- */
/* from 0: a fill. */
static fusor_status copy_or_fill(rt_queue *q, fu_error *e, rt_address to, rt_address from, uint8_t value,
                                 size_t bytes) {
    const rt_cuda_api *cu = q->device->cu;
    const cu_stream stream = q->lane[LANE_COMPUTE].stream;
    FU_TRY(queue_before_compute(q, e));
    const cu_result code =
        from ? cu->cuMemcpyDtoDAsync_v2(to, from, bytes, stream) : cu->cuMemsetD8Async(to, value, bytes, stream);
    if (code != CU_OK)
        return device_fail(q->device, e, code, "%s %zu bytes on the device", from ? "copying" : "filling", bytes);
    queue_issued(q, LANE_COMPUTE);
    return FUSOR_OK;
}

fusor_status rt_queue_copy(rt_queue *q, fu_error *e, rt_address to, rt_address from, size_t bytes) {
    if (!bytes || to == from) return FUSOR_OK;
    FU_TRY(queue_begin(q, e));
    return queue_end(q, copy_or_fill(q, e, to, from, 0, bytes));
}

fusor_status rt_queue_fill(rt_queue *q, fu_error *e, rt_address to, uint8_t value, size_t bytes) {
    if (!bytes) return FUSOR_OK;
    FU_TRY(queue_begin(q, e));
    return queue_end(q, copy_or_fill(q, e, to, 0, value, bytes));
}
