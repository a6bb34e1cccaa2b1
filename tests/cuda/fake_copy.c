/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* fake_copy.c: copies and fills. Memory of cuMemHostAlloc is read and written when the copy runs. Other host memory is
 * read at once (the driver stages it), and a copy to it waits until it is done. */
#include "fake_cuda.h"
#include <stdlib.h>
#include <string.h>

cu_result fake_work_copy(fake_context *c, const fake_work *w) {
    char why[PTX_ERROR_ROOM];
    uint8_t *to = w->to_device ? fake_memory_at(w->to_device, w->to, w->bytes, why) : (uint8_t *)(uintptr_t)w->to;
    if (!to) return fake_kill(c, CU_ILLEGAL_ADDRESS, "%s to %s", w->kind == FAKE_FILL ? "a fill" : "a copy", why);
    if (w->kind == FAKE_FILL) return memset(to, w->value, w->bytes), CU_OK;
    const uint8_t *from = w->staged        ? w->staged
                          : w->from_device ? fake_memory_at(w->from_device, w->from, w->bytes, why)
                                           : (const uint8_t *)(uintptr_t)w->from;
    if (!from) return fake_kill(c, CU_ILLEGAL_ADDRESS, "a copy from %s", why);
    memmove(to, from, w->bytes);
    return CU_OK;
}

/* What the driver sees at once: the range is of one allocation of that device. */
static cu_result check(const fake_device *d, cu_address at, size_t bytes, const char *function) {
    fake_device *of;
    const fake_allocation *a = fake_memory_find(at, &of);
    bool is_all;
    if (!a && fake_is_pinned((const void *)(uintptr_t)at, bytes, &is_all) && is_all) return CU_OK;
    if (!a) return fake_say(CU_INVALID_VALUE, "%s: %#llx is no memory of a device", function, (unsigned long long)at);
    if (of != d)
        return fake_say(CU_INVALID_VALUE, "%s: memory of device %d, not %d", function, of->ordinal, d->ordinal);
    if (bytes > a->bytes - (at - a->base))
        return fake_say(CU_INVALID_VALUE, "%s: %zu bytes at offset %llu of allocation %d, which has %zu", function,
                        bytes, (unsigned long long)(at - a->base), a->number, a->bytes);
    return CU_OK;
}

static cu_result check_host(const void *p, size_t bytes, bool *is_pinned) {
    bool is_all = true;
    fake_device *d;
    if (!p) return CU_INVALID_VALUE;
    if (fake_memory_find((uintptr_t)p, &d))
        return fake_say(CU_INVALID_VALUE, "an address of a device where one of the host is meant");
    *is_pinned = fake_is_pinned(p, bytes, &is_all);
    return is_all ? CU_OK : fake_say(CU_INVALID_VALUE, "%zu bytes at %p go beyond what cuMemHostAlloc gave", bytes, p);
}

cu_result cuMemcpyHtoDAsync_v2(cu_address to, const void *from, size_t bytes, cu_stream stream) {
    CALL(cuMemcpyHtoDAsync_v2, CONTEXT);
    fake_stream *s = fake_stream_of(&call, stream);
    bool is_pinned = false;
    if (!s || !bytes) return call.result;
    cu_result r = check(call.context->device, to, bytes, "cuMemcpyHtoDAsync");
    if (!r) r = check_host(from, bytes, &is_pinned);
    if (r) return r;
    fake_work w = {
        .kind = FAKE_COPY, .to = to, .to_device = call.context->device, .from = (uintptr_t)from, .bytes = bytes};
    if (!is_pinned) {
        w.staged = malloc(bytes);
        if (!w.staged) return CU_OUT_OF_MEMORY;
        memcpy(w.staged, from, bytes);
    }
    return fake_put(&call, s, w);
}

cu_result cuMemcpyDtoHAsync_v2(void *to, cu_address from, size_t bytes, cu_stream stream) {
    CALL(cuMemcpyDtoHAsync_v2, CONTEXT);
    fake_stream *s = fake_stream_of(&call, stream);
    bool is_pinned = false;
    if (!s || !bytes) return call.result;
    cu_result r = check(call.context->device, from, bytes, "cuMemcpyDtoHAsync");
    if (!r) r = check_host(to, bytes, &is_pinned);
    if (!r) {
        fake_work w = {
            .kind = FAKE_COPY, .to = (uintptr_t)to, .from = from, .from_device = call.context->device, .bytes = bytes};
        r = fake_put(&call, s, w);
    }
    return r || is_pinned ? r : fake_run(s);
}

cu_result cuMemcpyDtoDAsync_v2(cu_address to, cu_address from, size_t bytes, cu_stream stream) {
    CALL(cuMemcpyDtoDAsync_v2, CONTEXT);
    fake_stream *s = fake_stream_of(&call, stream);
    fake_device *d = call.context->device;
    if (!s || !bytes) return call.result;
    cu_result r = check(d, to, bytes, "cuMemcpyDtoDAsync");
    if (!r) r = check(d, from, bytes, "cuMemcpyDtoDAsync");
    if (r) return r;
    return fake_put(
        &call, s,
        (fake_work){.kind = FAKE_COPY, .to = to, .to_device = d, .from = from, .from_device = d, .bytes = bytes});
}

cu_result cuMemcpyPeerAsync(cu_address to, cu_context to_context, cu_address from, cu_context from_context,
                            size_t bytes, cu_stream stream) {
    CALL(cuMemcpyPeerAsync, CONTEXT);
    fake_stream *s = fake_stream_of(&call, stream);
    if (!s || !bytes) return call.result;
    if (!to_context || !from_context || !to_context->uses || !from_context->uses) return CU_INVALID_CONTEXT;
    cu_result r = check(to_context->device, to, bytes, "cuMemcpyPeerAsync");
    if (!r) r = check(from_context->device, from, bytes, "cuMemcpyPeerAsync");
    if (r) return r;
    return fake_put(&call, s,
                    (fake_work){.kind = FAKE_COPY,
                                .to = to,
                                .to_device = to_context->device,
                                .from = from,
                                .from_device = from_context->device,
                                .bytes = bytes});
}

cu_result cuMemsetD8Async(cu_address to, unsigned char value, size_t bytes, cu_stream stream) {
    CALL(cuMemsetD8Async, CONTEXT);
    fake_stream *s = fake_stream_of(&call, stream);
    if (!s || !bytes) return call.result;
    cu_result r = check(call.context->device, to, bytes, "cuMemsetD8Async");
    if (r) return r;
    return fake_put(
        &call, s,
        (fake_work){.kind = FAKE_FILL, .to = to, .to_device = call.context->device, .value = value, .bytes = bytes});
}
