/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef DEVICE_PLACE_H
#define DEVICE_PLACE_H
/* For tests over a queue: a device of the driver (on_fake.h), and buffers of the host that are moved there and back. */
#include "on_fake.h"
#include "rt/device.h"

static inline rt_queue *place_queue(fu_error *e, int ordinal) {
    rt_device *device;
    rt_queue *q;
    on_driver();
    return rt_device_open(e, ordinal, &device) == FUSOR_OK && rt_queue_new(device, e, &q) == FUSOR_OK ? q : NULL;
}

static inline void place_must(fusor_status status, const fu_error *e) {
    if (status == FUSOR_OK) return;
    fprintf(stderr, "the device of a test: %s\n", e->text);
    abort();
}

/* A piece of the host's memory that a buffer lies in, and its twin on the device. */
typedef struct placed {
    rt_address at;
    void *host;
    size_t bytes;
} placed;

/* Makes b, which lies in [host, host + bytes), a buffer of the queue's device with the same contents. */
static inline placed place_there(rt_queue *q, fu_error *e, fusor_buffer *b, void *host, size_t bytes) {
    placed p = {.host = host, .bytes = bytes};
    place_must(rt_queue_get(q, e, bytes, &p.at), e);
    if (bytes) place_must(rt_queue_upload(q, e, p.at, host, bytes), e);
    b->data = (void *)(uintptr_t)(p.at + (uint64_t)((char *)b->data - (char *)host));
    b->device = 1 + rt_device_get_info(rt_queue_device(q))->ordinal;
    return p;
}

/* And back: with what the device has now. */
static inline void place_back(rt_queue *q, fu_error *e, fusor_buffer *b, const placed *p) {
    if (p->bytes) place_must(rt_queue_download(q, e, p->host, p->at, p->bytes), e);
    b->data = (char *)p->host + ((rt_address)(uintptr_t)b->data - p->at);
    b->device = 0;
    rt_queue_put(q, p->at);
}
#endif
