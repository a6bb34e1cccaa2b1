/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* dlpack_test.c: DLPack tensors come in and go out without a copy; deleters run exactly once, also on failure. */
#include "api_test.h"

/* As a program has them from dlpack.h. */
typedef struct {
    int32_t device_type, device_id;
} DLDevice;
typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

static int deleted;
static void count_delete(DLManagedTensor *self) {
    (void)self;
    deleted++;
}

Test(dlpack, strided_tensors_come_in) {
    fusor_context *ctx = new_context(0);
    float data[] = {-1, 0, 1, 2, 3, 4, 5}, y[6];
    int64_t shape[] = {3, 2}, strides[] = {1, 3};
    DLManagedTensor in = {.dl_tensor = {data, {1, 0}, 2, {2, 32, 1}, shape, strides, 4}, .deleter = count_delete};
    deleted = 0;
    fusor_scope scope = fusor_scope_begin(ctx, NULL);
    fusor_tensor t = fusor_mul(fusor_from_dlpack(ctx, &in), 10);
    OK(fusor_read(t, y, sizeof y));
    cr_assert(y[0] == 0 && y[1] == 30 && y[2] == 10 && y[3] == 40 && y[4] == 20 && y[5] == 50);
    fusor_scope_end(&scope);
    fusor_context_free(ctx);
    cr_assert_eq(deleted, 1);
}

/* As producers write them that always do: without an effect, also of dims of 1. */
Test(dlpack, strides_of_contiguous_memory_are_none) {
    fusor_context *ctx = new_context(0);
    float data[] = {0, 1, 2, 3, 4, 5}, y[6];
    int64_t shape[] = {3, 1, 2}, strides[] = {2, 99, 1};
    DLManagedTensor in = {.dl_tensor = {data, {1, 0}, 3, {2, 32, 1}, shape, strides, 0}, .deleter = count_delete};
    fusor_tensor t = fusor_from_dlpack(ctx, &in);
    OK(fusor_assign(t, fusor_add(t, 1)));
    OK(fusor_read(t, y, sizeof y));
    for (int i = 0; i < 6; i++) cr_assert_eq(y[i], (float)i + 1);
    fusor_release(t);
    fusor_context_free(ctx);
}

Test(dlpack, what_cannot_come_in_is_deleted_and_bad) {
    fusor_context *ctx = new_context(0);
    float data[4] = {0};
    int64_t shape[] = {4};
    DLManagedTensor in = {.dl_tensor = {data, {2, 0}, 1, {2, 32, 1}, shape, NULL, 0}, .deleter = count_delete};
    deleted = 0;
    FAILS(fusor_status_of(fusor_from_dlpack(ctx, &in)), FUSOR_ERROR_DEVICE, "runs on the CPU");
    in.dl_tensor.device.device_type = 1;
    in.dl_tensor.dtype.lanes = 4;
    cr_assert_eq(fusor_status_of(fusor_from_dlpack(ctx, &in)), FUSOR_ERROR_UNSUPPORTED);
    in.dl_tensor.dtype = (DLDataType){5, 64, 1};
    cr_assert_eq(fusor_status_of(fusor_from_dlpack(ctx, &in)), FUSOR_ERROR_UNSUPPORTED);
    in.dl_tensor.dtype = (DLDataType){2, 32, 1};
    in.dl_tensor.ndim = 9;
    cr_assert_eq(fusor_status_of(fusor_from_dlpack(ctx, &in)), FUSOR_ERROR_UNSUPPORTED);
    in.dl_tensor.ndim = 1;
    in.dl_tensor.shape = NULL;
    FAILS(fusor_status_of(fusor_from_dlpack(ctx, &in)), FUSOR_ERROR_UNSUPPORTED, "shape is NULL");
    in.dl_tensor.shape = shape;
    in.dl_tensor.device = (DLDevice){2, INT32_MAX};
    FAILS(fusor_status_of(fusor_from_dlpack(ctx, &in)), FUSOR_ERROR_UNSUPPORTED, "number 2147483647");
    in.dl_tensor.device = (DLDevice){1, 0};
    shape[0] = -1;
    FAILS(fusor_status_of(fusor_from_dlpack(ctx, &in)), FUSOR_ERROR_SHAPE, "fusor_from_dlpack: dim 0 is -1");
    cr_assert_eq(deleted, 7);
    cr_assert_eq(fusor_status_of(fusor_from_dlpack(ctx, NULL)), FUSOR_ERROR_ARGUMENT);
    (void)fusor_from_dlpack(NULL, &in);
    cr_assert_eq(deleted, 8);
    fusor_context_free(ctx);
}

Test(dlpack, values_go_out_and_outlive_scope_and_context) {
    fusor_context *ctx = new_context(0);
    float x[] = {1, 2, 3, 4};
    DLManagedTensor *out = NULL;
    fusor_scope scope = fusor_scope_begin(ctx, NULL);
    fusor_tensor X = fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(2, 2));
    OK(fusor_to_dlpack(fusor_add(X, 1), &out));
    DLManagedTensor *bad = out;
    cr_assert_neq(fusor_to_dlpack(fusor_add(X, fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(3))), &bad), FUSOR_OK);
    cr_assert_eq(bad, out);
    fusor_scope_end(&scope);
    fusor_context_free(ctx);
    cr_assert(out->dl_tensor.ndim == 2 && out->dl_tensor.shape[0] == 2 && out->dl_tensor.strides[0] == 2 &&
              out->dl_tensor.strides[1] == 1);
    cr_assert(out->dl_tensor.dtype.code == 2 && out->dl_tensor.dtype.bits == 32 && out->dl_tensor.dtype.lanes == 1 &&
              out->dl_tensor.device.device_type == 1);
    const float *y = (const float *)((const char *)out->dl_tensor.data + out->dl_tensor.byte_offset);
    cr_assert(y[0] == 2 && y[1] == 3 && y[2] == 4 && y[3] == 5);
    out->deleter(out);
}

/* Strides of what has no element may be more than 64 bits count. */
Test(dlpack, empty_tensors_of_huge_dims_go_out) {
    fusor_context *ctx = new_context(0);
    DLManagedTensor *out;
    OK(fusor_to_dlpack(fusor_wrap_const(ctx, NULL, FUSOR_F32, FUSOR_SHAPE(0, INT64_C(1) << 62, INT64_C(1) << 62)),
                       &out));
    cr_assert(out->dl_tensor.shape[0] == 0 && out->dl_tensor.strides[2] == 1 && !out->dl_tensor.data);
    out->deleter(out);
    fusor_context_free(ctx);
}

/* The value of an assignment that waits around the scope; the tensor alone holds it. */
Test(dlpack, a_pending_value_goes_out_and_outlives_its_assignment) {
    fusor_context *ctx = new_context(0);
    float x[] = {1, 2}, y[2];
    DLManagedTensor *out = NULL;
    FUSOR_SCOPE(ctx, NULL) {
        fusor_tensor X = fusor_wrap(ctx, x, FUSOR_F32, FUSOR_SHAPE(2));
        OK(fusor_assign(X, fusor_add(X, 1)));
        FUSOR_SCOPE(ctx, NULL) OK(fusor_to_dlpack(X, &out));
    }
    cr_assert_eq(x[0], 2);
    OK(fusor_read(fusor_mul(fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(2)), 9), y, sizeof y));
    const float *z = out->dl_tensor.data;
    cr_assert(z != x && z[0] == 2 && z[1] == 3);
    out->deleter(out);
    fusor_context_free(ctx);
}

/* Out of one context and into another: no copy. */
Test(dlpack, round_trip_is_the_same_memory) {
    fusor_context *a = new_context(0), *ctx = new_context(0);
    double x[] = {1, 2, 3};
    DLManagedTensor *out;
    cr_assert_eq(fusor_to_dlpack(fusor_neg(fusor_wrap_const(a, x, FUSOR_F64, FUSOR_SHAPE(3))), &out), FUSOR_OK);
    void *data = out->dl_tensor.data;
    fusor_tensor t = fusor_from_dlpack(ctx, out);
    fusor_context_free(a);
    fusor_buffer b;
    double y[3];
    OK(fusor_buffer_of(t, &b));
    cr_assert_eq(b.data, data);
    OK(fusor_read(fusor_neg(t), y, sizeof y));
    cr_assert(y[0] == 1 && y[2] == 3);
    fusor_context_free(ctx);
}
