/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* dlpack.c: tensors to and from other libraries, without a copy, by the DLPack convention (dmlc/dlpack, version 0.8:
 * the layout of DLManagedTensor, which programs include themselves). */
#include "base/small.h"
#include "context.h"
#include "fusor/device.h"
#include "fusor/tensor.h"
#include "op_call.h"

/* The convention's layout. */
typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* strides NULL: contiguous */
    uint64_t byte_offset;
} dl_tensor;
struct DLManagedTensor {
    dl_tensor tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
};
typedef struct DLManagedTensor managed;
enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3 };
enum { DL_INT, DL_UINT, DL_FLOAT, DL_BFLOAT = 4, DL_BOOL = 6 };

static const struct {
    uint8_t code, bits;
    fusor_dtype dtype;
} types[] = {
    {DL_FLOAT, 64, FUSOR_F64}, {DL_FLOAT, 32, FUSOR_F32}, {DL_FLOAT, 16, FUSOR_F16}, {DL_BFLOAT, 16, FUSOR_BF16},
    {DL_INT, 64, FUSOR_I64},   {DL_INT, 32, FUSOR_I32},   {DL_INT, 16, FUSOR_I16},   {DL_INT, 8, FUSOR_I8},
    {DL_UINT, 64, FUSOR_U64},  {DL_UINT, 32, FUSOR_U32},  {DL_UINT, 16, FUSOR_U16},  {DL_UINT, 8, FUSOR_U8},
    {DL_BOOL, 8, FUSOR_BOOL},
};
enum { N_TYPES = sizeof types / sizeof *types };

/* ---- in ---- */
static void release_managed(void *user) {
    managed *m = user;
    if (m->deleter) m->deleter(m);
}

static fusor_tensor refuse(fusor_context *ctx, managed *m, const char *fmt, long a, long b) {
    fu_error e;
    fu_error_clear(&e);
    (void)FU_FAIL(&e, m ? FUSOR_ERROR_UNSUPPORTED : FUSOR_ERROR_ARGUMENT, fmt, a, b);
    fusor_tensor t = lazy_bad(ctx, &e);
    if (m) release_managed(m);
    return t;
}

fusor_tensor fusor_from_dlpack(fusor_context *ctx, struct DLManagedTensor *m) {
    fusor_buffer b = {0};
    if (!ctx) {
        if (m) release_managed(m);
        return (fusor_tensor){NULL, 0, 0};
    }
    if (!m) return refuse(ctx, NULL, "fusor_from_dlpack: the tensor is NULL", 0, 0);
    const dl_tensor *t = &m->tensor;
    if (t->device.type == DL_CUDA && t->device.id >= 0 && t->device.id < INT32_MAX) {
        b.device = 1 + t->device.id;
    } else if (t->device.type != DL_CPU && t->device.type != DL_CUDA_HOST) {
        return refuse(ctx, m,
                      "fusor_from_dlpack: device type %ld, number %ld; expected memory of the CPU (1 or 3) or CUDA (2)",
                      t->device.type, t->device.id);
    }
    for (int i = 0; i < N_TYPES; i++)
        if (types[i].code == t->dtype.code && types[i].bits == t->dtype.bits && t->dtype.lanes == 1)
            b.dtype = types[i].dtype;
    if (!b.dtype)
        return refuse(ctx, m, "fusor_from_dlpack: no dtype has type code %ld with %ld bits (and one lane)",
                      t->dtype.code, t->dtype.bits);
    if (t->ndim < 0 || t->ndim > FUSOR_MAX_RANK)
        return refuse(ctx, m, "fusor_from_dlpack: %ld dimensions; expected 0 to %ld", t->ndim, FUSOR_MAX_RANK);
    if (t->ndim && !t->shape)
        return refuse(ctx, m, "fusor_from_dlpack: %ld dimensions, but the shape is NULL", t->ndim, 0);
    b.data = t->data ? (char *)t->data + t->byte_offset : NULL;
    b.rank = t->ndim;
    uint64_t run = 1; /* strides that say what would be so without them are none; what is too large is refused below */
    for (int d = t->ndim; d-- > 0; run *= (uint64_t)t->shape[d]) {
        b.shape[d] = t->shape[d];
        if (t->strides && t->shape[d] != 1 && (uint64_t)t->strides[d] != run) b.flags = FUSOR_STRIDED;
    }
    for (int d = 0; d < t->ndim && b.flags; d++) b.stride[d] = t->strides[d];
    return lazy_adopt(ctx, "fusor_from_dlpack", &b, release_managed, m);
}

/* ---- out ---- */
typedef struct exported {
    managed m;
    fusor_tensor kept;
    int64_t shape[FUSOR_MAX_RANK], strides[FUSOR_MAX_RANK];
} exported;

static void delete_exported(managed *m) {
    exported *x = m ? m->manager_ctx : NULL;
    if (!x) return;
    fusor_tensor kept = x->kept;
    fu_free(x);
    fusor_release(kept);
}

fusor_status fusor_to_dlpack(fusor_tensor t, struct DLManagedTensor **out) {
    fusor_buffer b;
    if (!out) return context_refuse("fusor_to_dlpack: out is NULL");
    fusor_status status = fusor_buffer_of(t, &b);
    /* Who reads it does so on a stream that knows nothing of the context's queue. */
    if (status == FUSOR_OK && b.device) status = fusor_context_wait(t.owner);
    if (status != FUSOR_OK) return status;
    exported *x = fu_calloc(1, sizeof *x);
    if (!x) {
        fu_error e;
        fu_error_clear(&e);
        (void)FU_FAIL(&e, FUSOR_ERROR_MEMORY, "fusor_to_dlpack: out of memory");
        return context_fail(t.owner, &e);
    }
    x->kept = fusor_keep(t);
    uint64_t run = 1; /* of a tensor without elements it may wrap */
    for (int d = b.rank; d-- > 0;) {
        x->shape[d] = b.shape[d];
        x->strides[d] = b.flags & FUSOR_STRIDED ? b.stride[d] : (int64_t)run;
        run *= b.shape[d] > 0 ? (uint64_t)b.shape[d] : 1;
    }
    dl_tensor *to = &x->m.tensor;
    to->data = b.data;
    to->device.type = b.device ? DL_CUDA : DL_CPU;
    to->device.id = b.device ? b.device - 1 : 0;
    to->ndim = b.rank;
    for (int i = 0; i < N_TYPES; i++)
        if (types[i].dtype == (fusor_dtype)b.dtype) to->dtype.code = types[i].code, to->dtype.bits = types[i].bits;
    to->dtype.lanes = 1;
    to->shape = x->shape;
    to->strides = x->strides;
    x->m.manager_ctx = x;
    x->m.deleter = delete_exported;
    *out = &x->m;
    return FUSOR_OK;
}
