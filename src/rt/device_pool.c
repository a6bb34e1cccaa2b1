/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* device_pool.c: memory of a device in blocks of size classes, eight to each power of two. A block that is given back
 * lies in the list of its class and may be got again at once by the queue that gave it back, whose work comes in order,
 * and by others when that work is done. The driver is asked only where no block serves; where it has none either, what
 * lies unused goes back to it, then all queues are waited for.
 *
 * Large blocks are taken the longest unused first: a copy to the device into such a one seldom waits for kernels.
 * cuMemAlloc, not cuMemAllocAsync: its own pool would give everything back at each wait, and holding on to memory there
 * would change the pool that other users of the primary context share. */
#include "rt/device_internal.h"
#include "base/arena.h"
#include <string.h>

enum { LEAST_BYTES = 512, LEAST_BITS = 9, STEP_BITS = 3, LARGER_CLASSES = 2, LARGE_BYTES = 1 << 20 };

/* Index of the class that holds `bytes`, and its size. -1: larger than any. */
static int class_of(size_t bytes, size_t *size_out) {
    if (bytes < LEAST_BYTES) bytes = LEAST_BYTES;
    int octave = 63 - __builtin_clzll(bytes);
    if (octave >= 48) return -1;
    size_t step = (size_t)1 << (octave - STEP_BITS), n = (bytes + step - 1) / step;
    *size_out = n * step;
    int index = ((octave - LEAST_BITS) << STEP_BITS) + (int)(n - (1 << STEP_BITS));
    return index < POOL_CLASSES ? index : -1;
}

/* ---- lists; all under the pool's lock ---- */
static void push_free(rt_device *d, block *b) {
    int c = b->class_index;
    d->free_bytes += b->bytes;
    if (b->bytes >= LARGE_BYTES && d->free_last[c]) {
        b->next = NULL;
        d->free_last[c]->next = b;
        d->free_last[c] = b;
    } else {
        b->next = d->free_first[c];
        d->free_first[c] = b;
        if (!b->next) d->free_last[c] = b;
    }
}

static bool is_clean(const block *b) {
    return !b->owner || atomic_load_explicit(&b->owner->done, memory_order_acquire) >= b->issued;
}

/* The first of the class that q may use (q NULL: that anybody may). */
static block *take_free(rt_device *d, const rt_queue *q, int c) {
    block *before = NULL;
    for (block *b = d->free_first[c]; b; before = b, b = b->next) {
        if (!(q && b->owner == q) && !is_clean(b)) continue;
        if (before) before->next = b->next;
        else d->free_first[c] = b->next;
        if (d->free_last[c] == b) d->free_last[c] = before;
        d->free_bytes -= b->bytes;
        return b;
    }
    return NULL;
}

/* Index of the last block that begins at or before `at`; n_blocks when there is none. */
static size_t index_of(const rt_device *d, rt_address at) {
    size_t low = 0, high = d->n_blocks;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (d->blocks[middle]->at <= at) low = middle + 1;
        else high = middle;
    }
    return low ? low - 1 : d->n_blocks;
}

static block *find(const rt_device *d, rt_address at) {
    size_t i = index_of(d, at);
    return i < d->n_blocks && at - d->blocks[i]->at < d->blocks[i]->bytes ? d->blocks[i] : NULL;
}

block *pool_find(rt_queue *q, rt_address at) {
    rt_device *d = q->device;
    pthread_mutex_lock(&d->pool_lock);
    block *b = find(d, at);
    if (b && !(b->is_held && b->owner == q)) b = NULL;
    pthread_mutex_unlock(&d->pool_lock);
    return b;
}

static bool insert(rt_device *d, block *b) {
    if (d->n_blocks == d->room) {
        size_t room = d->room ? 2 * d->room : 64;
        block **more = fu_realloc(d->blocks, room * sizeof *more);
        if (!more) return false;
        d->blocks = more;
        d->room = room;
    }
    size_t i = d->n_blocks ? index_of(d, b->at) : 0;
    if (i == d->n_blocks) i = 0;
    else i++;
    memmove(d->blocks + i + 1, d->blocks + i, (d->n_blocks - i) * sizeof *d->blocks);
    d->blocks[i] = b;
    d->n_blocks++;
    d->pool_bytes += b->bytes;
    return true;
}

/* Gives what nobody uses back to the driver; the device's context is current. */
static size_t trim(rt_device *d) {
    size_t freed = 0;
    for (int c = 0; c < POOL_CLASSES; c++)
        for (block *b; (b = take_free(d, NULL, c)) != NULL;) {
            device_note(d, d->cu->cuMemFree_v2(b->at));
            freed += b->bytes;
            size_t i = index_of(d, b->at);
            memmove(d->blocks + i, d->blocks + i + 1, (--d->n_blocks - i) * sizeof *d->blocks);
            fu_free(b);
        }
    d->pool_bytes -= freed;
    return freed;
}

/* Everything that was put on queues until now. */
static cu_result wait_for_queues(rt_device *d) {
    for (rt_queue *q = d->queues; q; q = q->next) {
        uint64_t n = atomic_load_explicit(&q->issued, memory_order_acquire);
        for (int k = 0; k < N_LANES; k++) {
            if (!q->lane[k].stream) continue;
            cu_result code = d->cu->cuStreamSynchronize(q->lane[k].stream);
            if (code != CU_OK) return code;
        }
        uint64_t done = atomic_load(&q->done);
        while (done < n && !atomic_compare_exchange_weak(&q->done, &done, n)) {}
    }
    return CU_OK;
}

static fusor_status no_memory(rt_device *d, fu_error *e, size_t bytes) {
    size_t free_bytes = 0, total = 0;
    d->cu->cuMemGetInfo_v2(&free_bytes, &total);
    return FU_FAIL(e, FUSOR_ERROR_MEMORY,
                   "cuda:%d (%s): no memory for %zu bytes: %zu of its %zu bytes are free, %zu are in use here",
                   d->info.ordinal, d->info.name, bytes, free_bytes, total, d->pool_bytes - d->free_bytes);
}

/* From the driver; the context is current. */
static fusor_status new_block(rt_device *d, fu_error *e, int c, size_t size, size_t bytes, block **out) {
    rt_address at = 0;
    cu_result code = c < 0 ? CU_OUT_OF_MEMORY : d->cu->cuMemAlloc_v2(&at, size);
    if (code == CU_OUT_OF_MEMORY && c >= 0 && trim(d)) code = d->cu->cuMemAlloc_v2(&at, size);
    if (code == CU_OUT_OF_MEMORY && c >= 0 && d->free_bytes) {
        code = wait_for_queues(d);
        if (code == CU_OK) code = trim(d) ? d->cu->cuMemAlloc_v2(&at, size) : CU_OUT_OF_MEMORY;
    }
    if (code == CU_OUT_OF_MEMORY) return no_memory(d, e, bytes);
    if (code != CU_OK) return device_fail(d, e, code, "getting %zu bytes of memory", size);
    block *b = fu_calloc(1, sizeof *b);
    if (b) *b = (block){.at = at, .bytes = size, .class_index = c};
    if (b && insert(d, b)) return *out = b, FUSOR_OK;
    d->cu->cuMemFree_v2(at);
    fu_free(b);
    return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for the list of cuda:%d's memory", d->info.ordinal);
}

static void hold(rt_queue *q, block *b) {
    if (b->owner == q) {
        if (b->read_until > q->down_before_compute) q->down_before_compute = b->read_until;
    } else {
        b->owner = q;
        b->free_since = b->read_until = 0;
    }
    b->is_held = true;
    b->got_at = q->lane[LANE_COMPUTE].issued;
}

fusor_status rt_queue_get(rt_queue *q, fu_error *e, size_t bytes, rt_address *out) {
    rt_device *d = q->device;
    FU_TRY(device_check(d, e));
    size_t size = 0;
    int c = class_of(bytes, &size);
    block *b = NULL;
    fusor_status s = FUSOR_OK;
    pthread_mutex_lock(&q->lock);
    pthread_mutex_lock(&d->pool_lock);
    for (int i = c; c >= 0 && i <= c + LARGER_CLASSES && i < POOL_CLASSES && !b; i++) b = take_free(d, q, i);
    if (!b) {
        s = device_enter(d, e);
        if (s == FUSOR_OK) {
            s = new_block(d, e, c, size, bytes, &b);
            device_leave(d);
        }
    }
    if (b) {
        hold(q, b);
        *out = b->at;
    }
    pthread_mutex_unlock(&d->pool_lock);
    pthread_mutex_unlock(&q->lock);
    return s;
}

void rt_queue_put(rt_queue *q, rt_address at) {
    rt_device *d = q->device;
    if (!at || rt_cuda_is_forked()) return;
    pthread_mutex_lock(&q->lock);
    pthread_mutex_lock(&d->pool_lock);
    block *b = find(d, at);
    if (b && b->is_held && b->at == at) {
        for (int i = 0; i < q->n_reading; i++)
            if (q->reading[i] == b) q->reading[i--] = q->reading[--q->n_reading];
        b->is_held = false;
        b->owner = q;
        b->issued = atomic_load(&q->issued);
        b->free_since = q->lane[LANE_COMPUTE].issued;
        push_free(d, b);
        /* So that a later copy into it can wait for just what was put on the queue until now. */
        if (b->is_uploaded) lane_mark_quietly(q, LANE_COMPUTE);
    }
    pthread_mutex_unlock(&d->pool_lock);
    pthread_mutex_unlock(&q->lock);
}

void pool_forget_queue(rt_device *d, rt_queue *q) {
    pthread_mutex_lock(&d->pool_lock);
    for (size_t i = 0; i < d->n_blocks; i++)
        if (d->blocks[i]->owner == q) d->blocks[i]->owner = NULL;
    for (rt_queue **p = &d->queues; *p; p = &(*p)->next)
        if (*p == q) {
            *p = q->next;
            break;
        }
    pthread_mutex_unlock(&d->pool_lock);
}

void rt_device_trim(rt_device *d) {
    if (!device_enter_quietly(d)) return;
    pthread_mutex_lock(&d->pool_lock);
    trim(d);
    stage_trim(d);
    pthread_mutex_unlock(&d->pool_lock);
    device_leave(d);
}

fusor_status rt_device_free_bytes(rt_device *d, fu_error *e, int64_t *bytes_out) {
    size_t free_bytes = 0, total = 0;
    FU_TRY(device_enter(d, e));
    cu_result code = d->cu->cuMemGetInfo_v2(&free_bytes, &total);
    device_leave(d);
    if (code != CU_OK) return device_fail(d, e, code, "asking for free memory");
    pthread_mutex_lock(&d->pool_lock);
    *bytes_out = (int64_t)(free_bytes + d->free_bytes);
    pthread_mutex_unlock(&d->pool_lock);
    return FUSOR_OK;
}
