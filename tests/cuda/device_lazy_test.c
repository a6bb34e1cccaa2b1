/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* device_lazy_test.c: lazy tensors in a context on a device: results stay there until they are read, wrapped memory
 * goes there once an evaluation, assignments reach the memory that was wrapped; DLPack. */
#include "device_api.h"

TestSuite(device_lazy, .timeout = 120);

static int released;
static void release(void *user) {
    (void)user;
    released++;
}

Test(device_lazy, results_stay_on_the_device) {
    ONLY_ON_THE_FAKE_DRIVER();
    fusor_context *ctx = device_context("cuda");
    float x[4] = {1, -2, 3, -4}, y[4];
    fusor_buffer b = {0};
    fusor_scope scope = fusor_scope_begin(ctx, NULL);
    fusor_tensor X = fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(4)), R = fusor_relu(X), S = fusor_add(R, R);
    OK(fusor_eval(1, &R));
    const long fetched = downloads(), sent = uploads();
    OK(fusor_eval(1, &S));
    OK(fusor_buffer_of(S, &b));
    cr_assert(b.device == 1 && b.data && b.data != x);
    cr_assert_eq(downloads(), fetched, "a result was fetched");
    cr_assert_eq(uploads(), sent, "what was there was sent again");
    OK(fusor_read(S, y, sizeof y));
    cr_assert(y[0] == 2 && y[1] == 0 && y[2] == 6 && y[3] == 0);
    cr_assert_eq(downloads(), fetched + 1);
    FAILS(fusor_read(S, y, 3), FUSOR_ERROR_ARGUMENT, "3 bytes given");
    fusor_scope_end(&scope);
    fusor_context_free(ctx);
}

Test(device_lazy, wrapped_memory_goes_there_once_an_evaluation) {
    ONLY_ON_THE_FAKE_DRIVER();
    fusor_context *ctx = device_context("cuda");
    float x[4] = {1, 2, 3, 4}, y[4];
    fusor_tensor X = fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(4)), D = fusor_to_device(X);
    fusor_tensor both[2] = {fusor_reduce_sum(fusor_exp(X), FUSOR_AXES(0), 0), fusor_add(X, fusor_square(X))};
    long sent = uploads();
    OK(fusor_eval(2, both));
    cr_assert_eq(uploads(), sent + 1);
    fusor_tensor next = fusor_square(X);
    OK(fusor_eval(1, &next));
    cr_assert_eq(uploads(), sent + 2);
    x[0] = 100; /* the copy there is of before */
    for (int i = 0; i < 3; i++) OK(fusor_read(fusor_add(D, D), y, sizeof y));
    cr_assert_eq(uploads(), sent + 2);
    cr_assert(y[0] == 2 && y[3] == 8);
    fusor_tensor again = fusor_to_device(D);
    fusor_buffer a, b;
    OK(fusor_buffer_of(D, &a));
    OK(fusor_buffer_of(again, &b));
    cr_assert_eq(a.data, b.data);
    fusor_context_free(ctx);
}

Test(device_lazy, scalars_go_there_together) {
    ONLY_ON_THE_FAKE_DRIVER();
    fusor_context *ctx = device_context("cuda");
    float x[4] = {1, 2, 3, 4}, small[2] = {10, 20}, y[4];
    static float large[2000];
    bool flag[1] = {true};
    fusor_tensor D = fusor_keep(fusor_to_device(fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(4))));
    for (int i = 0; i < 3; i++) {
        large[1999] = (float)i;
        flag[0] = i != 1;
        const long sent = uploads();
        fusor_tensor S = fusor_wrap_const(ctx, small, FUSOR_F32, FUSOR_SHAPE(2));
        fusor_tensor F = fusor_wrap_const(ctx, flag, FUSOR_BOOL, FUSOR_SHAPE(1));
        fusor_tensor t = fusor_add(fusor_mul(D, 2 + i), 0.5);
        t = fusor_select(F, fusor_add(t, fusor_reduce_sum(S, FUSOR_AXES(0), 0)), fusor_sub(t, 1 + i));
        OK(fusor_eval(1, &t));
        cr_assert_eq(uploads(), sent + 1, "%ld", uploads() - sent);
        OK(fusor_read(t, y, sizeof y));
        for (int k = 0; k < 4; k++)
            cr_assert_eq(y[k], x[k] * (float)(2 + i) + 0.5f + (i != 1 ? 30.0f : -(float)(1 + i)));
        /* what is larger goes alone */
        t = fusor_add(fusor_mul(fusor_wrap_const(ctx, large, FUSOR_F32, FUSOR_SHAPE(2000)), 3), 1 + i);
        static float z[2000];
        const long before = uploads();
        OK(fusor_read(t, z, sizeof z));
        cr_assert_eq(uploads(), before + 2);
        cr_assert(z[0] == (float)(1 + i) && z[1999] == (float)(3 * i + 1 + i));
    }
    fusor_release(D);
    fusor_context_free(ctx);
}

Test(device_lazy, to_device_on_the_cpu_is_a_copy) {
    fusor_context *ctx = device_context("cpu");
    float x[2] = {1, 2}, y[2];
    fusor_tensor D = fusor_to_device(fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(2)));
    x[0] = 9;
    OK(fusor_read(D, y, sizeof y));
    cr_assert(y[0] == 1 && y[1] == 2);
    cr_assert_neq(fusor_status_of(fusor_to_device(fusor_reshape(D, 1, (int64_t[]){7}))), FUSOR_OK);
    cr_assert_eq(fusor_status_of(fusor_to_device(fusor_f(2))), FUSOR_OK);
    fusor_context_free(ctx);
}

Test(device_lazy, assignments_reach_memory_of_the_cpu) {
    fusor_context *ctx = device_context("cuda");
    float p[3] = {1, 2, 3}, old[3];
    fusor_status status = FUSOR_ERROR_INTERNAL;
    fusor_scope scope = fusor_scope_begin(ctx, &status);
    fusor_tensor P = fusor_wrap(ctx, p, FUSOR_F32, FUSOR_SHAPE(3)), before = fusor_keep(fusor_add(P, 0.5));
    OK(fusor_assign(P, fusor_mul(P, 10)));
    fusor_tensor after = fusor_keep(fusor_add(P, 0.5));
    fusor_scope_end(&scope);
    cr_assert_eq(status, FUSOR_OK);
    cr_assert(p[0] == 10 && p[1] == 20 && p[2] == 30); /* there when the scope ends */
    OK(fusor_read(before, old, sizeof old));
    cr_assert(old[0] == 1.5f && old[2] == 3.5f);
    OK(fusor_read(after, old, sizeof old));
    cr_assert(old[0] == 10.5f && old[2] == 30.5f);
    fusor_release(before);
    fusor_release(after);
    fusor_context_free(ctx);
}

Test(device_lazy, assignments_to_memory_of_the_device_are_done_there) {
    ONLY_ON_THE_FAKE_DRIVER();
    fusor_context *ctx = device_context("cuda");
    float p[3] = {1, 2, 3}, old[3], want[3] = {1024, 2048, 3072};
    fusor_buffer host = HOST(p, FUSOR_F32, 3), d = there(ctx, &host);
    fusor_tensor P = fusor_keep(fusor_adopt(ctx, &d, release, NULL)), kept = {0};
    released = 0;
    const long fetched = downloads();
    for (int i = 0; i < 10; i++) {
        fusor_status status;
        fusor_scope scope = fusor_scope_begin(ctx, &status);
        if (i == 1) kept = fusor_keep(fusor_add(P, 0));
        OK(fusor_assign(P, fusor_mul(P, 2)));
        fusor_scope_end(&scope);
        cr_assert_eq(status, FUSOR_OK, "%s", fusor_error_message(ctx));
    }
    cr_assert_eq(downloads(), fetched);
    holds(ctx, &d, want);
    OK(fusor_read(kept, old, sizeof old)); /* the contents of then were kept for it */
    cr_assert(old[0] == 2 && old[2] == 6);
    fusor_release(kept);
    cr_assert_eq(released, 0);
    fusor_release(P);
    fusor_context_free(ctx);
    cr_assert_eq(released, 1);
}

Test(device_lazy, memory_is_given_back) {
    ONLY_ON_THE_FAKE_DRIVER();
    fusor_context *ctx = device_context("cuda");
    enum { N = 1000 };
    static float x[N];
    long before = 0;
    for (int i = 0; i < 20; i++) {
        fusor_scope scope = fusor_scope_begin(ctx, NULL);
        fusor_tensor t = fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(N));
        for (int k = 0; k < 5; k++) {
            t = fusor_add(t, 1);
            OK(fusor_eval(1, &t));
        }
        fusor_scope_end(&scope);
        if (i == 10) before = fake_live("bytes");
    }
    OK(fusor_context_wait(ctx));
    cr_assert_eq(fake_live("bytes"), before);
    fusor_context_free(ctx);
}

Test(device_lazy, strided_memory_is_adopted) {
    fusor_context *ctx = device_context("cuda");
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6];
    fusor_buffer host = HOST(x, FUSOR_F32, 6), d = there(ctx, &host), turned = d;
    turned.rank = 2;
    turned.shape[0] = 3, turned.shape[1] = 2;
    turned.flags = FUSOR_STRIDED | FUSOR_READONLY;
    turned.stride[0] = 1, turned.stride[1] = 3;
    fusor_tensor T = fusor_adopt(ctx, &turned, NULL, NULL);
    OK(fusor_read(T, y, sizeof y));
    cr_assert(y[0] == 1 && y[1] == 4 && y[2] == 2 && y[5] == 6);
    OK(fusor_read(fusor_mul(T, 10), y, sizeof y));
    cr_assert(y[0] == 10 && y[1] == 40 && y[2] == 20 && y[5] == 60);
    fusor_context_free(ctx);
}

/* ---- DLPack ---- */
typedef struct DLManagedTensor {
    struct {
        void *data;
        int32_t device_type, device_id, ndim;
        uint8_t code, bits;
        uint16_t lanes;
        int64_t *shape, *strides;
        uint64_t byte_offset;
    } t;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
static void count_delete(DLManagedTensor *self) {
    (void)self;
    released++;
}

Test(device_lazy, dlpack) {
    ONLY_ON_THE_FAKE_DRIVER();
    fusor_context *ctx = device_context("cuda");
    float x[4] = {1, 2, 3, 4}, y[4];
    fusor_buffer host = HOST(x, FUSOR_F32, 4), d = there(ctx, &host);
    OK(fusor_context_wait(ctx));
    DLManagedTensor in = {{d.data, 2, 0, 1, 2, 32, 1, (int64_t[]){4}, NULL, 0}, NULL, count_delete}, *out = NULL;
    released = 0;
    fusor_scope scope = fusor_scope_begin(ctx, NULL);
    fusor_tensor t = fusor_mul(fusor_from_dlpack(ctx, &in), 10);
    OK(fusor_to_dlpack(t, &out));
    cr_assert(out->t.device_type == 2 && out->t.device_id == 0 && out->t.ndim == 1 && out->t.shape[0] == 4);
    cr_assert_eq(fake_live("pending"), 0, "what is handed out is not complete");
    fusor_buffer handed = HOST(out->t.data, FUSOR_F32, 4), to = HOST(y, FUSOR_F32, 4);
    handed.device = 1;
    OK(fusor_buffer_copy(ctx, &handed, &to));
    cr_assert(y[0] == 10 && y[3] == 40);
    in.t.device_id = 1; /* not the context's */
    FAILS(fusor_status_of(fusor_from_dlpack(ctx, &in)), FUSOR_ERROR_DEVICE, "device 2");
    in.t.device_type = 10;
    FAILS(fusor_status_of(fusor_from_dlpack(ctx, &in)), FUSOR_ERROR_UNSUPPORTED, "device type 10");
    fusor_scope_end(&scope);
    out->deleter(out);
    fusor_context_free(ctx);
    cr_assert_eq(released, 3);
}
