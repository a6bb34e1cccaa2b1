/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* lazy_test.c: lazy tensors: values, scopes, stale handles, sticky errors, snapshots, keeps, adopted memory, plans that
 * are found again, threads, failing allocations. */
#include "api_test.h"
#include "lazy.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int64_t compiles(fusor_context *ctx) {
    fusor_cache_stats s = {.size = sizeof s};
    cr_assert_eq(fusor_cache_get_stats(ctx, &s), FUSOR_OK);
    return s.compiles;
}

/* The same operators and sizes, but that what is inferred is 1 in the second call, which then stretches. */
Test(lazy, a_plan_is_none_for_dims_that_become_1) {
    fusor_context *ctx = new_context(0);
    float x[40], y[20], z[20];
    for (int i = 0; i < 40; i++) x[i] = (float)i;
    for (int i = 0; i < 20; i++) y[i] = (float)(100 * i);
    for (int k = 0; k < 2; k++) {
        fusor_scope scope = fusor_scope_begin(ctx, NULL);
        fusor_tensor X = fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(k ? 2 : 40)),
                     Y = fusor_wrap_const(ctx, y, FUSOR_F32, FUSOR_SHAPE(20)),
                     S = fusor_slice(X, 1, (int64_t[]){0}, (int64_t[]){INT64_MAX}, (int64_t[]){2}, NULL);
        OK(fusor_read(fusor_add(S, Y), z, sizeof z));
        fusor_scope_end(&scope);
        for (int i = 0; i < 20; i++) cr_assert_eq(z[i], y[i] + x[k ? 0 : 2 * i]);
    }
    fusor_context_free(ctx);
}

Test(lazy, computes_a_layer) {
    fusor_context *ctx = new_context(0);
    float x[6] = {1, -2, 3, 4, 5, -6}, w[6] = {1, 0, 0, 1, 1, 1}, b[2] = {.5f, -9}, y[4];
    fusor_tensor X = fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(2, 3));
    fusor_tensor W = fusor_wrap_const(ctx, w, FUSOR_F32, FUSOR_SHAPE(3, 2));
    fusor_tensor B = fusor_wrap_const(ctx, b, FUSOR_F32, FUSOR_SHAPE(2));
    fusor_tensor Y = fusor_relu(fusor_add(fusor_matmul(X, W), B));
    fusor_buffer shape;
    OK(fusor_shape_of(Y, &shape));
    cr_assert(shape.rank == 2 && shape.shape[0] == 2 && shape.shape[1] == 2 && shape.dtype == FUSOR_F32);
    OK(fusor_read(Y, y, sizeof y));
    cr_assert(y[0] == 4.5f && y[1] == 0 && y[2] == 0 && y[3] == 0);
    FAILS(fusor_read(Y, y, 3), FUSOR_ERROR_ARGUMENT, "3 bytes given; the tensor has 16");
    fusor_context_free(ctx);
}

/* There are kernels for convolutions whose channels and kernel are numbers, so those of lazy ones are; another batch or
 * picture is the same plan. */
Test(lazy, convolutions_have_kernels) {
    if (!getenv("FUSOR_CODEGEN")) cr_skip("no code generation module");
    enum { C = 5, K = 66, SIDE = 13 }; /* no size of a picture is one of the kernel, which would be another pattern */
    static float x[6 * C * SIDE * SIDE], w[K * C * 9], v[K * C * 9], y[6 * K * SIDE * SIDE];
    for (int i = 0; i < 6 * C * SIDE * SIDE; i++) x[i] = (float)(i % 11 - 5);
    for (int i = 0; i < K * C * 9; i++) w[i] = (float)(i % 7 - 3), v[i] = w[i];
    for (int transposed = 0; transposed < 2; transposed++) {
        fusor_context *ctx = new_context(0);
        int64_t made = 0;
        for (int round = 0; round < 3; round++) {
            const int64_t batch = 2 * round + 2, side = SIDE - 2 * round;
            fusor_tensor X = fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(batch, C, side, side));
            fusor_tensor in[2] = {X, transposed ? fusor_wrap_const(ctx, v, FUSOR_F32, FUSOR_SHAPE(C, K, 3, 3))
                                                : fusor_wrap_const(ctx, w, FUSOR_F32, FUSOR_SHAPE(K, C, 3, 3))};
            fusor_tensor Y = fusor_apply(ctx, transposed ? "conv_transpose" : "conv", 2, in, "pads=[1, 1, 1, 1]");
            OK(fusor_read(Y, y, (size_t)(batch * K * side * side) * sizeof *y));
            float sum = 0; /* of whole numbers: exact; place (1, 1) of the second picture's last channel */
            for (int c = 0; c < C; c++)
                for (int k = 0; k < 9; k++)
                    sum += x[((C + c) * side + (transposed ? 2 - k / 3 : k / 3)) * side +
                             (transposed ? 2 - k % 3 : k % 3)] *
                           (transposed ? v[(c * K + K - 1) * 9 + k] : w[((K - 1) * C + c) * 9 + k]);
            cr_assert_eq(y[((2 * K - 1) * side + 1) * side + 1], sum);
            if (round == 0) made = compiles(ctx);
            cr_assert_gt(made, 0, "the reference evaluator made a convolution");
            cr_assert_eq(compiles(ctx), made);
            cr_assert_eq(lazy_get_stats(ctx).plans_made, 1u);
        }
        fusor_context_free(ctx);
    }
}

Test(lazy, wrapped_bool_bytes_come_out_as_0_or_1) {
    fusor_context *ctx = new_context(0);
    unsigned char b[4] = {0, 2, 255, 1}, o[4];
    OK(fusor_read(fusor_wrap_const(ctx, b, FUSOR_BOOL, FUSOR_SHAPE(4)), o, sizeof o));
    cr_assert(o[0] == 0 && o[1] == 1 && o[2] == 1 && o[3] == 1 && b[1] == 2);
    fusor_context_free(ctx);
}

/* Nothing tells a number which context it belongs to: its error shows in any. */
Test(lazy, numbers_alone_are_an_error_that_is_told) {
    fusor_context *ctx = new_context(0);
    double d = 3;
    (void)fusor_status_of(fusor_apply(ctx, "rellu", 0, NULL, NULL));
    FAILS(fusor_read(fusor_f(1), &d, sizeof d), FUSOR_ERROR_ARGUMENT, "a number alone");
    FAILS(fusor_status_of(fusor_apply(ctx, "rellu", 0, NULL, NULL)), FUSOR_ERROR_SYNTAX, "rellu");
    FAILS(fusor_executable_call(NULL, 0, NULL, 0, NULL), FUSOR_ERROR_ARGUMENT,
          "fusor_executable_call: the executable is NULL");
    fusor_error_clear(ctx);
    cr_assert_str_eq(fusor_error_message(ctx), "");
    cr_assert_eq(d, 3);
    fusor_context_free(ctx);
}

Test(lazy, numbers_take_the_type_beside_them_and_never_compile_again) {
    fusor_context *ctx = new_context(0);
    float x[3] = {1, 2, 3}, y[3];
    int32_t i[3] = {1, 2, 3}, j[3];
    fusor_tensor X = fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(3));
    fusor_tensor I = fusor_wrap_const(ctx, i, FUSOR_I32, FUSOR_SHAPE(3));
    OK(fusor_read(fusor_add(fusor_mul(X, .5), 1), y, sizeof y));
    cr_assert(y[0] == 1.5f && y[2] == 2.5f);
    OK(fusor_read(fusor_sub(10u, I), j, sizeof j));
    cr_assert(j[0] == 9 && j[2] == 7);
    int64_t before = compiles(ctx);
    lazy_stats plans = lazy_get_stats(ctx);
    for (int k = 0; k < 20; k++) {
        OK(fusor_read(fusor_add(fusor_mul(X, .25 * k), k), y, sizeof y));
        cr_assert_eq(y[1], (float)(.5 * k + k));
    }
    cr_assert_eq(compiles(ctx), before);
    cr_assert_eq(lazy_get_stats(ctx).plans_made, plans.plans_made);
    FAILS(fusor_status_of(fusor_add(I, .5)), FUSOR_ERROR_TYPE, "float literal");
    FAILS(fusor_status_of(fusor_add(fusor_cast(I, FUSOR_I8), 1000)), FUSOR_ERROR_TYPE, "does not fit i8");
    FAILS(fusor_status_of(fusor_eq(fusor_gt(X, 0), true)), FUSOR_ERROR_TYPE,
          "the number 1 cannot stand beside bool; write fusor_b(1) or fusor_b(0)");
    fusor_tensor L = fusor_cast(I, FUSOR_I64);
    for (int k = 0; k < 2; k++) { /* first inferred, then remembered: the same text */
        FAILS(fusor_status_of(fusor_add(L, UINT64_MAX)), FUSOR_ERROR_TYPE,
              "lazy: error: add: the literal 18446744073709551615 does not fit i64");
        FAILS(fusor_status_of(fusor_add(I, INT64_MAX)), FUSOR_ERROR_TYPE, "lazy: error: add: ");
        OK(fusor_status_of(fusor_add(L, 1u)));
        OK(fusor_status_of(fusor_add(I, 1)));
    }
    FAILS(fusor_status_of(fusor_full(ctx, UINT64_C(1) << 63, FUSOR_I64, 0, NULL)), FUSOR_ERROR_TYPE,
          "the literal 9223372036854775808 does not fit i64");
    FAILS(fusor_status_of(fusor_add(L, fusor_b(1))), FUSOR_ERROR_TYPE, "true stands only beside bool");
    cr_assert_eq(fusor_status_of(fusor_eq(fusor_gt(X, 0), fusor_b(1))), FUSOR_OK);
    fusor_context_free(ctx);
}

Test(lazy, other_sizes_in_the_same_pattern_are_the_same_plan) {
    fusor_context *ctx = new_context(0);
    float x[600], y[600];
    for (int k = 0; k < 600; k++) x[k] = (float)(k % 7);
    for (int n = 2; n <= 100; n += 7) {
        FUSOR_SCOPE(ctx, NULL) {
            fusor_tensor X = fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(n, 6));
            fusor_tensor Y = fusor_mul(fusor_reshape(fusor_reshape(X, FUSOR_SHAPE(n * 6)), FUSOR_SHAPE(-1, 6)), 2);
            OK(fusor_read(fusor_sub(Y, fusor_reduce_max(X, FUSOR_AXES(1), 1)), y, sizeof(float) * (size_t)n * 6));
        }
        for (int r = 0; r < n; r++) {
            float m = 0;
            for (int c = 0; c < 6; c++) m = fmaxf(m, x[r * 6 + c]);
            for (int c = 0; c < 6; c++) cr_assert_eq(y[r * 6 + c], 2 * x[r * 6 + c] - m);
        }
    }
    cr_assert_leq(lazy_get_stats(ctx).plans_made, 2);
    fusor_context_free(ctx);
}

/* The rows of short columns stay numbers, so what is reduced along them is in the kernel of what uses it: one, whatever
 * their number (up to 64 the order of factors may follow it). */
Test(lazy, softmax_over_channels_is_one_kernel) {
    if (!getenv("FUSOR_CODEGEN")) cr_skip("no code generation module");
    enum { BATCH = 3, MOST = 110, PIXELS = 135 };
    static float x[BATCH * MOST * PIXELS], y[2][BATCH * MOST * PIXELS];
    fusor_context *ctx = new_context(0);
    for (int i = 0; i < BATCH * MOST * PIXELS; i++) x[i] = (float)(i % 19) / 4;
    for (int channels = 70; channels <= MOST; channels += 20) {
        const int64_t bytes = BATCH * channels * PIXELS * (int64_t)sizeof *x;
        fusor_tensor X = fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(BATCH, channels, PIXELS));
        OK(fusor_read(fusor_softmax(X, 1), y[0], (size_t)bytes));
        cr_assert_eq(compiles(ctx), 1);
    }
    for (int channels = 70; channels <= MOST; channels += 20) { /* by hand; the sums are in the same order */
        const int64_t bytes = BATCH * channels * PIXELS * (int64_t)sizeof *x;
        fusor_tensor X = fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(BATCH, channels, PIXELS));
        fusor_tensor E = fusor_exp(fusor_sub(X, fusor_reduce_max(X, FUSOR_AXES(1), true)));
        OK(fusor_read(fusor_softmax(X, 1), y[0], (size_t)bytes));
        OK(fusor_read(fusor_div(E, fusor_reduce_sum(E, FUSOR_AXES(1), true)), y[1], (size_t)bytes));
        for (int i = 0; i < BATCH * channels * PIXELS; i++) cr_assert_float_eq(y[0][i], y[1][i], 1e-6);
        cr_assert_eq(compiles(ctx), 2);
    }
    fusor_context_free(ctx);
}

/* The sizes of small matrices stay numbers, how many there are does not. */
Test(lazy, batches_of_small_matrices) {
    enum { M = 5, K = 9, N = 7, B = 60 };
    fusor_context *ctx = new_context(0);
    static float a[B * M * K], b[B * K * N], y[B * M * N];
    for (int i = 0; i < B * M * K; i++) a[i] = (float)(i % 11 - 5);
    for (int i = 0; i < B * K * N; i++) b[i] = (float)(i % 13 - 6);
    for (int n = 12; n <= B; n += 16) {
        FUSOR_SCOPE(ctx, NULL) {
            fusor_tensor x = fusor_wrap_const(ctx, a, FUSOR_F32, FUSOR_SHAPE(n, M, K));
            fusor_tensor w = fusor_wrap_const(ctx, b, FUSOR_F32, FUSOR_SHAPE(n, K, N));
            OK(fusor_read(fusor_relu(fusor_matmul(x, w)), y, sizeof(float) * (size_t)(n * M * N)));
        }
        for (int i = 0; i < n * M * N; i++) {
            const int batch = i / (M * N), row = i / N % M, column = i % N;
            float want = 0;
            for (int k = 0; k < K; k++) want += a[(batch * M + row) * K + k] * b[(batch * K + k) * N + column];
            cr_assert_eq(y[i], want > 0 ? want : 0);
        }
    }
    cr_assert_eq(lazy_get_stats(ctx).plans_made, 1);
    fusor_context_free(ctx);
}

/* Adam: one kernel at the end of the scope, the old contents everywhere on the right. */
Test(lazy, optimizer_step_is_one_kernel) {
    enum { N = 1000 };
    fusor_context *ctx = new_context(0);
    static float m[N], v[N], p[N], g[N], em[N], ev[N], ep[N];
    for (int k = 0; k < N; k++) em[k] = m[k] = k, ev[k] = v[k] = 2 * k, ep[k] = p[k] = 3, g[k] = (float)(k % 13) - 6;
    fusor_tensor M = fusor_wrap(ctx, m, FUSOR_F32, FUSOR_SHAPE(N)), V = fusor_wrap(ctx, v, FUSOR_F32, FUSOR_SHAPE(N));
    fusor_tensor P = fusor_wrap(ctx, p, FUSOR_F32, FUSOR_SHAPE(N)),
                 G = fusor_wrap_const(ctx, g, FUSOR_F32, FUSOR_SHAPE(N));
    int64_t before = 0;
    for (int step = 0; step < 50; step++) {
        double lr = .01 / (step + 1);
        fusor_status status = FUSOR_ERROR_INTERNAL;
        FUSOR_SCOPE(ctx, &status) {
            fusor_tensor m1 = fusor_add(fusor_mul(M, .9), fusor_mul(G, .1));
            fusor_tensor v1 = fusor_add(fusor_mul(V, .999), fusor_mul(fusor_square(G), .001));
            OK(fusor_assign(M, m1));
            OK(fusor_assign(V, v1));
            OK(fusor_assign(P, fusor_sub(P, fusor_div(fusor_mul(m1, lr), fusor_add(fusor_sqrt(v1), 1e-8)))));
        }
        OK(status);
        for (int k = 0; k < N; k++) {
            em[k] = em[k] * .9f + g[k] * .1f;
            ev[k] = ev[k] * .999f + (g[k] * g[k]) * .001f;
            ep[k] = ep[k] - em[k] * (float)lr / (sqrtf(ev[k]) + 1e-8f);
        }
        cr_assert_arr_eq(m, em, sizeof m);
        cr_assert_arr_eq(v, ev, sizeof v);
        cr_assert_arr_eq(p, ep, sizeof p);
        if (step == 0) before = compiles(ctx);
    }
    if (before > 0) cr_assert_eq(lazy_get_stats(ctx).last_steps, 1u, "%u steps", lazy_get_stats(ctx).last_steps);
    cr_assert_eq(compiles(ctx), before);
    cr_assert_eq(lazy_get_stats(ctx).plans_made, 1u);
    cr_assert_eq(lazy_get_stats(ctx).live, 4u);
    fusor_context_free(ctx);
}

Test(lazy, assignments_are_snapshots) {
    fusor_context *ctx = new_context(0);
    float a[2] = {1, 2}, b[2] = {10, 20}, y[2];
    fusor_tensor A = fusor_wrap(ctx, a, FUSOR_F32, FUSOR_SHAPE(2)), B = fusor_wrap(ctx, b, FUSOR_F32, FUSOR_SHAPE(2));
    fusor_tensor old = fusor_keep(fusor_mul(A, 100)), half = {0};
    FUSOR_SCOPE(ctx, NULL) {
        fusor_tensor a0 = fusor_add(A, 0);
        OK(fusor_assign(A, B)); /* a swap */
        OK(fusor_assign(B, a0));
        half = fusor_keep(fusor_mul(A, .5)); /* reads the new contents */
        cr_assert(a[0] == 1 && b[0] == 10);
    }
    cr_assert(a[0] == 10 && a[1] == 20 && b[0] == 1 && b[1] == 2);
    OK(fusor_read(old, y, sizeof y));
    cr_assert(y[0] == 100 && y[1] == 200);
    OK(fusor_read(half, y, sizeof y));
    cr_assert(y[0] == 5 && y[1] == 10);
    /* An evaluated value stays what it was when its memory is written again. */
    fusor_tensor sum = fusor_add(A, B);
    OK(fusor_assign(A, sum));
    OK(fusor_assign(B, fusor_mul(A, 2)));
    OK(fusor_read(A, y, sizeof y));
    cr_assert(y[0] == 11 && a[0] == 11 && b[0] == 22);
    OK(fusor_assign(A, fusor_i(7)));
    OK(fusor_read(sum, y, sizeof y));
    cr_assert(y[0] == 11 && y[1] == 22 && a[0] == 7);
    fusor_buffer buffer;
    OK(fusor_assign(A, fusor_add(sum, 1)));
    OK(fusor_assign(A, fusor_add(A, 1)));
    OK(fusor_buffer_of(A, &buffer));
    cr_assert(buffer.data == a && a[0] == 13);
    fusor_release(old);
    fusor_release(half);
    fusor_context_free(ctx);
}

/* Snapshots are kept by tensor, so memory that is two tensors cannot be assigned to as one and read as the other. */
Test(lazy, memory_wrapped_twice_is_not_assigned_and_read) {
    fusor_context *ctx = new_context(0);
    float x[4] = {1, 2, 3, 4};
    fusor_status status = FUSOR_OK;
    FUSOR_SCOPE(ctx, &status) {
        fusor_tensor part = fusor_wrap(ctx, x + 1, FUSOR_F32, FUSOR_SHAPE(2));
        fusor_tensor whole = fusor_wrap(ctx, x, FUSOR_F32, FUSOR_SHAPE(4));
        OK(fusor_assign(part, fusor_slice(whole, 1, (int64_t[]){0}, (int64_t[]){2}, NULL, NULL)));
    }
    FAILS(status, FUSOR_ERROR_OVERLAP, "fusor_assign: memory of the target is wrapped a second time");
    cr_assert(x[0] == 1 && x[1] == 2 && x[2] == 3 && x[3] == 4);
    fusor_context_free(ctx);
}

Test(lazy, inner_scopes_and_outer_assignments) {
    fusor_context *ctx = new_context(0);
    float a[2] = {1, 2}, y[2];
    fusor_tensor A = fusor_wrap(ctx, a, FUSOR_F32, FUSOR_SHAPE(2));
    fusor_status outer, inner;
    FUSOR_SCOPE(ctx, &outer) {
        OK(fusor_assign(A, fusor_add(A, 1)));
        FUSOR_SCOPE(ctx, &inner) {
            OK(fusor_read(A, y, sizeof y));
            cr_assert(y[0] == 2 && a[0] == 1); /* pending outside: computed, not yet written */
            OK(fusor_assign(A, fusor_mul(A, 10)));
        }
        cr_assert(inner == FUSOR_OK && a[0] == 20);
    }
    cr_assert(outer == FUSOR_OK && a[0] == 20 && a[1] == 30);
    fusor_context_free(ctx);
}

/* A kept value that has been evaluated needs no wrapped memory, not even what it was written to. */
Test(lazy, a_kept_value_that_is_assigned_is_in_memory_of_its_own) {
    fusor_context *ctx = new_context(0);
    float a[2] = {1, 2}, y[2];
    fusor_tensor A = fusor_wrap(ctx, a, FUSOR_F32, FUSOR_SHAPE(2)), kept = fusor_keep(fusor_add(A, 1));
    OK(fusor_assign(A, kept));
    OK(fusor_eval(1, &kept));
    cr_assert(a[0] == 2 && a[1] == 3);
    a[0] = 100;
    OK(fusor_read(kept, y, sizeof y));
    cr_assert(y[0] == 2 && y[1] == 3);
    OK(fusor_read(A, y, sizeof y));
    cr_assert(y[0] == 100 && y[1] == 3);
    fusor_release(kept);
    fusor_context_free(ctx);
}

/* Memory that was handed out stays as long as the handle, also where it is not what the handle wraps. */
Test(lazy, memory_of_an_outer_assignment_lives_with_the_handle) {
    fusor_context *ctx = new_context(0);
    float a[2] = {1, 2};
    fusor_tensor A = fusor_keep(fusor_wrap(ctx, a, FUSOR_F32, FUSOR_SHAPE(2)));
    fusor_buffer b = {0}, again = {0}, first = {0};
    fusor_status outer, inner;
    for (int i = 0; i < 5; i++) {
        FUSOR_SCOPE(ctx, &outer) {
            OK(fusor_assign(A, fusor_add(A, 1)));
            FUSOR_SCOPE(ctx, &inner) {
                OK(fusor_buffer_of(A, &b));
                OK(fusor_buffer_of(A, &again));
            }
            cr_assert(inner == FUSOR_OK && b.data == again.data && b.data != a);
        }
        if (i == 0) first = b;
        cr_assert(outer == FUSOR_OK && a[0] == 2 + i && a[1] == 3 + i);
        fusor_tensor other = fusor_keep(fusor_neg(A)); /* would get the memory if it were free */
        OK(fusor_eval(1, &other));
        cr_assert(((float *)b.data)[0] == 2 + i && ((float *)b.data)[1] == 3 + i);
        cr_assert(((float *)first.data)[0] == 2 && ((float *)first.data)[1] == 3);
        fusor_release(other);
    }
    fusor_release(A);
    fusor_context_free(ctx);
}

/* What an inner scope wanted to write goes with it; what waits around it is written. */
Test(lazy, inner_scopes_that_fail_leave_outer_assignments) {
    fusor_context *ctx = new_context(0);
    float a[2] = {1, 2}, b[3] = {1, 1, 1}, y[2];
    int64_t at[2] = {0, 9};
    fusor_status outer, inner, innermost;
    fusor_tensor A = fusor_wrap(ctx, a, FUSOR_F32, FUSOR_SHAPE(2)), B = fusor_wrap(ctx, b, FUSOR_F32, FUSOR_SHAPE(3));
    fusor_tensor I = fusor_wrap_const(ctx, at, FUSOR_I64, FUSOR_SHAPE(2));
    FUSOR_SCOPE(ctx, &outer) {
        OK(fusor_assign(A, fusor_add(A, 1)));
        FUSOR_SCOPE(ctx, &inner) {
            OK(fusor_assign(A, fusor_mul(A, 10)));
            OK(fusor_assign(A, A));
            FUSOR_SCOPE(ctx, &innermost) {
                OK(fusor_assign(A, fusor_neg(A)));
                FAILS(fusor_assign(A, B), FUSOR_ERROR_SHAPE, "they must be equal"); /* none of them is run */
            }
            OK(fusor_read(A, y, sizeof y)); /* writes what waits in this scope */
            cr_assert(innermost == FUSOR_ERROR_SHAPE && y[0] == 20 && a[1] == 30);
            OK(fusor_assign(A, fusor_take(A, I, 0))); /* fails when it is run */
        }
        cr_assert(inner == FUSOR_ERROR_INDEX && a[0] == 20);
        OK(fusor_assign(A, fusor_add(A, 1)));
        FUSOR_SCOPE(ctx, &inner) OK(fusor_assign(A, fusor_take(A, I, 0)));
        cr_assert(inner == FUSOR_ERROR_INDEX && a[0] == 20);
        OK(fusor_read(A, y, sizeof y));
        cr_assert(y[0] == 21);
        OK(fusor_assign(A, fusor_add(A, 1)));
        FUSOR_SCOPE(ctx, &inner) FAILS(fusor_assign(A, B), FUSOR_ERROR_SHAPE, "they must be equal");
    }
    cr_assert(outer == FUSOR_OK && a[0] == 22 && a[1] == 32);
    FUSOR_SCOPE(ctx, &outer) {
        OK(fusor_assign(A, fusor_add(A, 1)));
        FUSOR_SCOPE(ctx, &inner) {
            OK(fusor_assign(A, fusor_add(A, 1)));
            FUSOR_SCOPE(ctx, &innermost) OK(fusor_assign(A, fusor_neg(A))); /* written: nothing waits before it now */
            cr_assert(innermost == FUSOR_OK && a[0] == -24);
            OK(fusor_assign(A, fusor_add(A, 1)));
            FAILS(fusor_assign(A, B), FUSOR_ERROR_SHAPE, "they must be equal");
        }
    }
    cr_assert(outer == FUSOR_OK && inner == FUSOR_ERROR_SHAPE && a[0] == -24 && a[1] == -34);
    a[0] = 22, a[1] = 32;
    OK(fusor_assign(A, fusor_mul(A, 2))); /* of no scope */
    FUSOR_SCOPE(ctx, &inner) OK(fusor_assign(A, fusor_take(A, I, 0)));
    OK(fusor_eval(1, &A));
    cr_assert(inner == FUSOR_ERROR_INDEX && a[0] == 44 && a[1] == 64);
    fusor_context_free(ctx);
}

/* A step whose index is refused when the others have been computed writes nothing, also where nothing reads what it would
 * write over; the next one is whole. */
Test(lazy, a_refused_index_leaves_what_was_assigned) {
    for (int by_reference = 0; by_reference < 2; by_reference++) {
        if (by_reference) setenv("FUSOR_DEVICE", "reference", 1);
        fusor_context *ctx = new_context(0);
        float a[4], b[4] = {7, 8, 9, 10}, y[2];
        uint8_t c[4];
        int64_t at[2] = {0, 9};
        fusor_tensor A = fusor_wrap(ctx, a, FUSOR_F32, FUSOR_SHAPE(4)),
                     C = fusor_wrap(ctx, c, FUSOR_BOOL, FUSOR_SHAPE(4)),
                     Y = fusor_wrap(ctx, y, FUSOR_F32, FUSOR_SHAPE(2)),
                     B = fusor_wrap_const(ctx, b, FUSOR_F32, FUSOR_SHAPE(4)),
                     I = fusor_wrap_const(ctx, at, FUSOR_I64, FUSOR_SHAPE(2));
        for (int way = 0; way < 4; way++)
            for (int is_good = 0; is_good < 2; is_good++) {
                fusor_status status;
                for (int i = 0; i < 4; i++) a[i] = 1, c[i] = 1;
                y[0] = y[1] = -1;
                at[1] = is_good ? 3 : 9;
                FUSOR_SCOPE(ctx, &status) {
                    OK(fusor_assign(A, way == 0   ? fusor_add(B, 1)
                                       : way == 1 ? fusor_f(8)
                                       : way == 2 ? fusor_flip(B, 1, ((int64_t[]){0}))
                                                  : fusor_softmax(B, 0)));
                    OK(fusor_assign(C, fusor_gt(B, 8)));
                    OK(fusor_assign(Y, fusor_take(B, fusor_add(I, 0), 0)));
                }
                cr_assert_eq(status, is_good ? FUSOR_OK : FUSOR_ERROR_INDEX);
                static const float first[] = {8, 8, 10, 0.0321f};
                cr_assert_float_eq(a[0], is_good ? first[way] : 1, 1e-4, "way %d: %g", way, a[0]);
                cr_assert(c[0] == !is_good && c[3] == 1 && y[0] == (is_good ? 7 : -1) && y[1] == (is_good ? 10 : -1));
            }
        fusor_context_free(ctx);
        unsetenv("FUSOR_DEVICE");
    }
}

/* The C forms whose arguments the table does not decide: each attribute reaches its place. */
Test(lazy, reductions_running_sums_and_norms) {
    fusor_context *ctx = new_context(0);
    float a[4] = {1, 2, 3, 6}, g[4] = {1, 1, 1, 2}, y[4], one;
    fusor_tensor A = fusor_wrap(ctx, a, FUSOR_F32, FUSOR_SHAPE(4)), G = fusor_wrap(ctx, g, FUSOR_F32, FUSOR_SHAPE(4));
    OK(fusor_read(fusor_reduce_var(A, FUSOR_ALL_AXES, 0, 0), &one, sizeof one));
    cr_assert_float_eq(one, 3.5f, 1e-6);
    OK(fusor_read(fusor_reduce_var(A, FUSOR_ALL_AXES, 0, 1), &one, sizeof one));
    cr_assert_float_eq(one, 14.f / 3, 1e-6);
    OK(fusor_read(fusor_reduce_std(A, FUSOR_AXES(0), 0, 0.5), &one, sizeof one));
    cr_assert_float_eq(one, 2, 1e-6);
    OK(fusor_read(fusor_reduce_l1(fusor_neg(A), FUSOR_ALL_AXES, 0), &one, sizeof one));
    cr_assert_float_eq(one, 12, 1e-6);
    OK(fusor_read(fusor_reduce_l2(A, FUSOR_ALL_AXES, 0), &one, sizeof one));
    cr_assert_float_eq(one, 7.0710678f, 1e-6);
    OK(fusor_read(fusor_reduce_logsumexp(fusor_sub(A, A), FUSOR_ALL_AXES, 0), &one, sizeof one));
    cr_assert_float_eq(one, 1.3862944f, 1e-6);
    OK(fusor_read(fusor_cumsum(A, 0, 0, 0), y, sizeof y));
    cr_assert(y[0] == 1 && y[1] == 3 && y[2] == 6 && y[3] == 12);
    OK(fusor_read(fusor_cumsum(A, 0, 1, 0), y, sizeof y));
    cr_assert(y[0] == 0 && y[1] == 1 && y[2] == 3 && y[3] == 6);
    OK(fusor_read(fusor_cumprod(A, -1, 0, 1), y, sizeof y));
    cr_assert(y[0] == 36 && y[1] == 36 && y[2] == 18 && y[3] == 6);
    OK(fusor_read(fusor_layer_norm(A, FUSOR_NO_TENSOR, FUSOR_NO_TENSOR, -1, 0.5), y, sizeof y));
    cr_assert_float_eq(y[0], -1, 1e-6);
    OK(fusor_read(fusor_layer_norm(A, G, 10, 0, 0.5), y, sizeof y));
    cr_assert(fabsf(y[0] - 9) < 1e-5f && fabsf(y[3] - 13) < 1e-5f);
    OK(fusor_read(fusor_rms_norm(A, G, 0, 3.5), y, sizeof y));
    cr_assert(fabsf(y[0] - .25f) < 1e-6f && fabsf(y[3] - 3) < 1e-5f);
    FAILS(fusor_status_of(fusor_layer_norm(A, FUSOR_NO_TENSOR, G, -1, 0.5)), FUSOR_ERROR_ARGUMENT, "FUSOR_NO_TENSOR");
    FAILS(fusor_status_of(fusor_rms_norm(A, FUSOR_NO_TENSOR, 3, 0.5)), FUSOR_ERROR_SHAPE, "axis 3 is out of range");
    const fusor_tensor Q = fusor_reshape(A, 2, (int64_t[]){2, -1}), none = FUSOR_NO_TENSOR;
    OK(fusor_status_of(fusor_attention(Q, Q, Q, none, true, FUSOR_TENSOR_OF(1), NULL, 0, 0)));
    FAILS(fusor_status_of(fusor_attention(Q, Q, Q, none, true, fusor_full(ctx, 1, FUSOR_F32, 0, NULL), NULL, 0, 0)),
          FUSOR_ERROR_TYPE, "causal_offset is f32; expected a scalar of an integer type");
    fusor_context_free(ctx);
}

Test(lazy, errors_stick_and_scopes_report_the_first) {
    fusor_context *ctx = new_context(0);
    float a[6] = {1, 2, 3, 4, 5, 6}, b[4] = {0};
    fusor_tensor A = fusor_name(fusor_wrap(ctx, a, FUSOR_F32, FUSOR_SHAPE(2, 3)), "activations");
    fusor_tensor B = fusor_wrap(ctx, b, FUSOR_F32, FUSOR_SHAPE(2, 2));
    fusor_status status;
    FUSOR_SCOPE(ctx, &status) {
        fusor_tensor bad = fusor_relu(fusor_mul(fusor_add(A, B), 2));
        FAILS(fusor_status_of(bad), FUSOR_ERROR_SHAPE, "add: ");
        FAILS(fusor_eval(1, &bad), FUSOR_ERROR_SHAPE, "f32[2, 3]");
        (void)fusor_status_of(fusor_softmax(A, 7));
        OK(fusor_assign(B, fusor_add(B, 1)));
    }
    FAILS(status, FUSOR_ERROR_SHAPE, "add: ");
    cr_assert(b[0] == 1); /* an error of something else does not stop an assignment */
    FUSOR_SCOPE(ctx, &status) {
        OK(fusor_assign(B, fusor_add(B, 1)));
        FAILS(fusor_assign(B, fusor_matmul(A, B)), FUSOR_ERROR_SHAPE, "matmul: ");
    }
    FAILS(status, FUSOR_ERROR_SHAPE, "matmul: ");
    cr_assert(b[0] == 1); /* but a failed assignment stops all of its scope */
    FAILS(fusor_assign(A, B), FUSOR_ERROR_SHAPE, "[2, 2] but the target [2, 3]");
    FAILS(fusor_assign(A, fusor_cast(A, FUSOR_F64)), FUSOR_ERROR_TYPE, "f64");
    FAILS(fusor_assign(fusor_add(A, 1), A), FUSOR_ERROR_ARGUMENT, "the result of 'add'");
    FAILS(fusor_assign(fusor_wrap_const(ctx, a, FUSOR_F32, FUSOR_SHAPE(2, 3)), A), FUSOR_ERROR_ARGUMENT, "read only");
    FAILS(fusor_status_of(fusor_wrap(ctx, NULL, FUSOR_F32, FUSOR_SHAPE(2))), FUSOR_ERROR_ARGUMENT, "NULL");
    FAILS(fusor_status_of(fusor_wrap(ctx, a, FUSOR_F32, FUSOR_SHAPE(-2))), FUSOR_ERROR_SHAPE, "negative");
    FAILS(fusor_status_of(fusor_wrap(ctx, a, (fusor_dtype)99, FUSOR_SHAPE(2))), FUSOR_ERROR_ARGUMENT, "99");
    FAILS(fusor_status_of(fusor_wrap(ctx, a, FUSOR_F32, FUSOR_SHAPE(INT64_MAX, INT64_MAX))), FUSOR_ERROR_SHAPE,
          "overflow");
    cr_assert_eq(fusor_status_of(fusor_add(1, 2)), FUSOR_ERROR_ARGUMENT);
    cr_assert_neq(fusor_status_of((fusor_tensor){NULL, 0, 0}), FUSOR_OK);
    fusor_context_free(ctx);
}

Test(lazy, stale_handles_name_their_operator) {
    fusor_context *ctx = new_context(0);
    float a[2] = {1, 2}, y[2];
    fusor_tensor A = fusor_wrap(ctx, a, FUSOR_F32, FUSOR_SHAPE(2)), stale = {0}, kept = {0};
    FUSOR_SCOPE(ctx, NULL) {
        stale = fusor_tanh(A);
        kept = fusor_keep(fusor_add(stale, 1)); /* needs what stale was */
    }
    FAILS(fusor_read(stale, y, sizeof y), FUSOR_ERROR_STALE, "'tanh'");
    FAILS(fusor_status_of(fusor_add(stale, A)), FUSOR_ERROR_STALE, "'tanh'");
    FAILS(fusor_status_of(fusor_keep(stale)), FUSOR_ERROR_STALE, "'tanh'");
    for (int k = 0; k < 1000; k++) /* slots come round */
        FUSOR_SCOPE(ctx, NULL) { (void)fusor_exp(A); }
    FAILS(fusor_read(stale, y, sizeof y), FUSOR_ERROR_STALE, "'tanh'");
    OK(fusor_read(kept, y, sizeof y));
    cr_assert_float_eq(y[0], tanhf(1) + 1, 1e-6);
    fusor_release(kept);
    FAILS(fusor_read(kept, y, sizeof y), FUSOR_ERROR_STALE, "'add'");
    fusor_release(kept); /* one too many does nothing */
    fusor_context_free(ctx);
}

Test(lazy, a_kept_tensor_holds_the_context) {
    fusor_context *ctx = new_context(0);
    float a[2] = {1, 2}, y[2];
    fusor_tensor kept = fusor_keep(fusor_neg(fusor_wrap(ctx, a, FUSOR_F32, FUSOR_SHAPE(2))));
    fusor_context_free(ctx);
    OK(fusor_read(kept, y, sizeof y));
    cr_assert_eq(y[1], -2);
    fusor_release(kept);
}

static void count(void *user) { ++*(int *)user; }

Test(lazy, adopted_memory_is_released_once) {
    fusor_context *ctx = new_context(0);
    float a[6] = {1, 2, 3, 4, 5, 6}, y[6];
    int released = 0;
    fusor_buffer b = {
        .data = a, .dtype = FUSOR_F32, .rank = 2, .shape = {3, 2}, .stride = {1, 3}, .flags = FUSOR_STRIDED};
    FUSOR_SCOPE(ctx, NULL) {
        fusor_tensor A = fusor_adopt(ctx, &b, count, &released);
        OK(fusor_read(A, y, sizeof y));
        cr_assert(y[1] == 4 && y[2] == 2);
        OK(fusor_read(fusor_add(A, 1), y, sizeof y));
        cr_assert(y[1] == 5 && y[2] == 3);
        FAILS(fusor_assign(A, A), FUSOR_ERROR_ARGUMENT, "strides");
        cr_assert_eq(released, 0);
    }
    cr_assert_eq(released, 1);
    fusor_tensor kept = {0};
    FUSOR_SCOPE(ctx, NULL) kept = fusor_keep(fusor_neg(fusor_adopt(ctx, &b, count, &released)));
    cr_assert_eq(released, 1); /* still needed */
    OK(fusor_eval(1, &kept));
    cr_assert_eq(released, 2); /* the value is there: its operands are not needed any more */
    fusor_release(kept);
    /* Also where an operator that failed has left something that would read it. */
    released = 1;
    b.flags = 0;
    FUSOR_SCOPE(ctx, NULL) {
        fusor_tensor A = fusor_adopt(ctx, &b, count, &released), B = fusor_wrap(ctx, y, FUSOR_F32, FUSOR_SHAPE(5));
        FAILS(fusor_status_of(fusor_add(A, B)), FUSOR_ERROR_SHAPE, "");
        fusor_tensor square = fusor_square(fusor_wrap_const(ctx, y, FUSOR_F32, FUSOR_SHAPE(3, 2)));
        kept = fusor_keep(fusor_neg(square));
        OK(fusor_assign(A, square));
        OK(fusor_eval(1, &square));
    }
    cr_assert_eq(released, 1);
    fusor_release(kept);
    cr_assert_eq(released, 2);
    b.flags = FUSOR_STRIDED;
    b.stride[0] = INT64_MAX / 2;
    FAILS(fusor_status_of(fusor_adopt(ctx, &b, count, &released)), FUSOR_ERROR_ARGUMENT,
          "fusor_adopt: the strides leave the address space");
    cr_assert_eq(released, 3);
    b.shape[1] = 0;
    FUSOR_SCOPE(ctx, NULL) OK(fusor_status_of(fusor_adopt(ctx, &b, count, &released))); /* of no element */
    b.shape[1] = 2;
    b.stride[0] = 1;
    released = 2;
    b.rank = 9;
    FAILS(fusor_status_of(fusor_adopt(ctx, &b, count, &released)), FUSOR_ERROR_SHAPE, "rank 9");
    cr_assert_eq(released, 3);
    (void)fusor_adopt(NULL, &b, count, &released);
    (void)fusor_adopt(ctx, NULL, count, &released);
    cr_assert_eq(released, 5);
    b.rank = 2;
    (void)fusor_adopt(ctx, &b, count, &released);
    fusor_context_free(ctx);
    cr_assert_eq(released, 6);
}

Test(lazy, long_chains_and_wide_graphs) {
    fusor_context *ctx = new_context(0);
    float a[3] = {0, 0, 0}, y[3];
    fusor_tensor A = fusor_wrap(ctx, a, FUSOR_F32, FUSOR_SHAPE(3));
    FUSOR_SCOPE(ctx, NULL) {
        fusor_tensor t = A;
        for (int k = 0; k < 300; k++) t = fusor_add(t, k % 2 ? -1 : 2);
        OK(fusor_read(t, y, sizeof y));
        cr_assert_eq(y[0], 150);
        t = A;
        for (int k = 0; k < 200000; k++) t = fusor_add(t, 1); /* never computed: freed without recursion */
    }
    cr_assert_eq(lazy_get_stats(ctx).live, 1u);
    fusor_context_free(ctx);
}

Test(lazy, creation_and_shapes) {
    fusor_context *ctx = new_context(0);
    float y[6];
    int64_t n = 0, index[2];
    fusor_tensor I = fusor_iota(ctx, FUSOR_F32, 1, FUSOR_SHAPE(2, 3));
    fusor_tensor F = fusor_full(ctx, 2.5, FUSOR_F32, FUSOR_SHAPE(3));
    OK(fusor_read(fusor_add(I, F), y, sizeof y));
    cr_assert(y[0] == 2.5f && y[5] == 4.5f);
    OK(fusor_read(fusor_transpose(I, FUSOR_ALL_AXES), y, sizeof y));
    cr_assert(y[0] == 0 && y[1] == 0 && y[2] == 1 && y[5] == 2);
    OK(fusor_read(fusor_dim(I, -1), &n, sizeof n));
    cr_assert_eq(n, 3);
    OK(fusor_read(fusor_argmax(I, 1, 0), index, sizeof index));
    cr_assert(index[0] == 2 && index[1] == 2);
    OK(fusor_read(fusor_argmin(I, FUSOR_FLAT, 0), &n, sizeof n));
    cr_assert_eq(n, 0);
    OK(fusor_read(fusor_reduce_sum(I, FUSOR_ALL_AXES, 0), y, sizeof *y));
    cr_assert_eq(y[0], 6);
    OK(fusor_read(fusor_apply(ctx, "reduce_sum", 1, &I, "axes=[0], keepdims=true"), y, 3 * sizeof *y));
    cr_assert(y[0] == 0 && y[1] == 2 && y[2] == 4);
    double d[6];
    OK(fusor_read(fusor_apply(ctx, "cast", 1, &I, "f64"), d, sizeof d));
    cr_assert_eq(d[5], 2);
    FAILS(fusor_status_of(fusor_apply(ctx, "softmax", 1, &I, "axes=0")), FUSOR_ERROR_SYNTAX, "did you mean axis?");
    FAILS(fusor_status_of(fusor_apply(ctx, "sofmax", 1, &I, NULL)), FUSOR_ERROR_SYNTAX, "did you mean softmax?");
    FAILS(fusor_status_of(fusor_apply(ctx, "add", 1, &I, NULL)), FUSOR_ERROR_TYPE, "takes 2 operands");
    FAILS(fusor_status_of(fusor_apply(ctx, "add", -1, NULL, NULL)), FUSOR_ERROR_ARGUMENT, "operands");
    FAILS(fusor_status_of(fusor_reshape(I, 2, NULL)), FUSOR_ERROR_ARGUMENT, "NULL");
    FAILS(fusor_status_of(fusor_cast(I, (fusor_dtype)0)), FUSOR_ERROR_ARGUMENT, "fusor_dtype");
    fusor_context_free(ctx);
}

typedef struct worker {
    fusor_context *ctx;
    fusor_tensor shared;
    int id, failed;
} worker;

static void *work(void *user) {
    worker *w = user;
    for (int k = 0; k < 200; k++) {
        float x[4] = {1, 2, 3, (float)w->id}, y[4];
        fusor_status status;
        FUSOR_SCOPE(w->ctx, &status) {
            fusor_tensor X = fusor_wrap(w->ctx, x, FUSOR_F32, FUSOR_SHAPE(4));
            w->failed += fusor_read(fusor_add(fusor_mul(X, k), w->shared), y, sizeof y) != FUSOR_OK;
            w->failed += y[3] != (float)(w->id * k + 4);
            w->failed += fusor_assign(X, fusor_neg(X)) != FUSOR_OK;
        }
        w->failed += status != FUSOR_OK || x[1] != -2;
    }
    return NULL;
}

Test(lazy, threads_share_a_context) {
    fusor_context *ctx = new_context(0);
    float s[4] = {1, 2, 3, 4};
    fusor_tensor shared = fusor_wrap_const(ctx, s, FUSOR_F32, FUSOR_SHAPE(4));
    pthread_t thread[4];
    worker w[4];
    for (int i = 0; i < 4; i++) {
        w[i] = (worker){ctx, shared, i, 0};
        cr_assert_eq(pthread_create(&thread[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        cr_assert_eq(w[i].failed, 0);
    }
    cr_assert_eq(lazy_get_stats(ctx).live, 1u);
    fusor_context_free(ctx);
}

Test(lazy, plans_are_bounded) {
    fusor_context *ctx = new_context(0);
    float x[1000] = {0}, y[1000];
    for (int k = 0; k < 300; k++) {
        FUSOR_SCOPE(ctx, NULL) {
            fusor_tensor t = fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(8));
            for (int b = 0; b < 9; b++) t = k >> b & 1 ? fusor_add(t, 1) : fusor_mul(t, 2);
            OK(fusor_read(t, y, 8 * sizeof *y));
        }
    }
    cr_assert_leq(lazy_get_stats(ctx).plans, 256u);
    fusor_context_free(ctx);
}

Test(lazy, no_allocation_that_fails_crashes_or_leaks) {
    for (long n = 1; n < 120; n++) {
        fusor_context *ctx = new_context(0);
        float a[4] = {1, 2, 3, 4}, y[4];
        int released = 0;
        fu_malloc_fail_at(n);
        fusor_status status = FUSOR_OK;
        FUSOR_SCOPE(ctx, &status) {
            fusor_buffer b = {.data = a, .dtype = FUSOR_F32, .rank = 1, .shape = {4}};
            fusor_tensor A = fusor_adopt(ctx, &b, count, &released),
                         B = fusor_add(fusor_reshape(A, FUSOR_SHAPE(2, 2)), 1);
            (void)!fusor_read(B, y, sizeof y);
            (void)fusor_assign(A, fusor_mul(A, 2));
        }
        fu_malloc_fail_at(0);
        fusor_context_free(ctx);
        cr_assert_eq(released, 1);
    }
}

/* Not even for the table of tensors. */
Test(lazy, without_memory_there_is_a_text) {
    float y[4];
    fusor_buffer b;
    for (int k = 0; k < 6; k++) {
        fusor_context *ctx = new_context(0);
        const fusor_tensor t = {ctx, 1, 0};
        fu_malloc_fail_at(1);
        fusor_status status = k == 0   ? fusor_read(t, y, sizeof y)
                              : k == 1 ? fusor_eval(1, &t)
                              : k == 2 ? fusor_status_of(t)
                              : k == 3 ? fusor_assign(t, fusor_f(1))
                              : k == 4 ? fusor_buffer_of(t, &b)
                                       : fusor_shape_of(t, &b);
        fu_malloc_fail_at(0);
        FAILS(status, FUSOR_ERROR_MEMORY, "out of memory");
        fusor_context_free(ctx);
    }
}

Test(lazy, pools_and_quantization) {
    fusor_context *ctx = new_context(0);
    float x[16], y[16];
    int8_t q[4];
    const int64_t two[2] = {2, 2}, three[2] = {3, 3}, pads[4] = {1, 1, 1, 1};
    for (int i = 0; i < 16; i++) x[i] = (float)i;
    fusor_tensor X = fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(1, 1, 4, 4));
    OK(fusor_read(fusor_max_pool(X, 2, two, two, NULL, NULL, 0), y, 4 * sizeof *y));
    cr_assert(y[0] == 5 && y[1] == 7 && y[2] == 13 && y[3] == 15);
    OK(fusor_read(fusor_max_pool(X, 2, two, NULL, NULL, three, 0), y, 1 * sizeof *y));
    cr_assert(y[0] == 15);
    OK(fusor_read(fusor_max_pool(X, 2, three, two, NULL, NULL, 1), y, 4 * sizeof *y));
    cr_assert(y[0] == 10 && y[1] == 11 && y[2] == 14 && y[3] == 15);
    OK(fusor_read(fusor_average_pool(X, 2, three, NULL, pads, NULL, 0, 0), y, 16 * sizeof *y));
    cr_assert(y[0] == 2.5f && y[1] == 3 && y[5] == 5 && y[15] == 12.5f);
    OK(fusor_read(fusor_average_pool(X, 2, three, NULL, pads, NULL, 0, 1), y, 16 * sizeof *y));
    cr_assert(y[0] == 10.0f / 9 && y[5] == 5);
    OK(fusor_read(fusor_global_average_pool(X), y, 1 * sizeof *y));
    cr_assert_eq(y[0], 7.5f);
    FAILS(fusor_status_of(fusor_max_pool(X, 1, two, NULL, NULL, NULL, 0)), FUSOR_ERROR_SHAPE, "kernel= has 1 entries");
    FAILS(fusor_status_of(fusor_max_pool(X, 2, pads + 2, NULL, (int64_t[4]){0, 0, 0, -1}, NULL, 0)), FUSOR_ERROR_SHAPE,
          "pads=");
    const float row[4] = {-100, 0.25f, 0.75f, 1000};
    const int8_t three_i8 = 3;
    const float half = 0.5f;
    fusor_tensor R = fusor_wrap_const(ctx, row, FUSOR_F32, FUSOR_SHAPE(4)),
                 S = fusor_wrap_const(ctx, &half, FUSOR_F32, 0, NULL);
    fusor_tensor Z = fusor_wrap_const(ctx, &three_i8, FUSOR_I8, 0, NULL),
                 Q = fusor_quantize(R, S, Z, FUSOR_FLAT, FUSOR_I8);
    OK(fusor_read(Q, q, sizeof q));
    cr_assert(q[0] == -128 && q[1] == 3 && q[2] == 5 && q[3] == 127);
    OK(fusor_read(fusor_dequantize(Q, S, Z, FUSOR_FLAT), y, 4 * sizeof *y));
    cr_assert(y[0] == -65.5f && y[1] == 0 && y[2] == 1 && y[3] == 62);
    /* a quotient of f64 is rounded to f32 as well: what is above 2.5 by less is 2.5, and that 2 */
    const double wide[4] = {2.5 + 1e-12, 2.5 + 1e-6, -2.5 - 1e-12, 1e300}, one = 1;
    fusor_tensor W = fusor_wrap_const(ctx, wide, FUSOR_F64, FUSOR_SHAPE(4)),
                 O = fusor_wrap_const(ctx, &one, FUSOR_F64, 0, NULL);
    OK(fusor_read(fusor_quantize(W, O, Z, FUSOR_FLAT, FUSOR_I8), q, sizeof q));
    cr_assert(q[0] == 5 && q[1] == 6 && q[2] == 1 && q[3] == 127, "%d %d %d %d", q[0], q[1], q[2], q[3]);
    fusor_context_free(ctx);
}

Test(lazy, movement_and_several_results) {
    fusor_context *ctx = new_context(0);
    float x[6] = {0, 1, 2, 3, 4, 5}, y[24];
    int32_t at[2] = {-1, 0}, far[2] = {0, 2};
    fusor_tensor X = fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(2, 3)), part[2];
    fusor_tensor I = fusor_wrap_const(ctx, at, FUSOR_I32, FUSOR_SHAPE(2));
    fusor_split(X, 1, FUSOR_SHAPE(1, 2), part);
    OK(fusor_read(part[0], y, 2 * sizeof *y));
    cr_assert(y[0] == 0 && y[1] == 3);
    OK(fusor_read(part[1], y, 4 * sizeof *y));
    cr_assert(y[0] == 1 && y[1] == 2 && y[2] == 4 && y[3] == 5);
    OK(fusor_read(fusor_apply_result(ctx, "split", 1, 1, &X, "axis=0, sizes=[1, 1]"), y, 3 * sizeof *y));
    cr_assert(y[0] == 3 && y[2] == 5);
    FAILS(fusor_status_of(fusor_apply_result(ctx, "split", 2, 1, &X, "axis=0, sizes=[1, 1]")), FUSOR_ERROR_ARGUMENT,
          "there is no result 2; it has 2");
    FAILS(fusor_status_of(fusor_apply_result(ctx, "relu", 1, 1, &X, NULL)), FUSOR_ERROR_ARGUMENT, "no result 1");
    /* 256 is no 0. */
    OK(fusor_status_of(fusor_apply_result(ctx, "split", 0, 1, &X, "axis=0, sizes=[1, 1]")));
    FAILS(fusor_status_of(fusor_apply_result(ctx, "split", 256, 1, &X, "axis=0, sizes=[1, 1]")), FUSOR_ERROR_ARGUMENT,
          "there is no result 256");
    FAILS(fusor_status_of(fusor_apply_result(ctx, "split", -1, 1, &X, "axis=0, sizes=[1, 1]")), FUSOR_ERROR_ARGUMENT,
          "there is no result -1");
    const int64_t from[2] = {0, -1}, to[2] = {2, INT64_MIN}, by[2] = {1, -2};
    OK(fusor_read(fusor_slice(X, 2, from, to, by, NULL), y, 4 * sizeof *y));
    cr_assert(y[0] == 2 && y[1] == 0 && y[2] == 5 && y[3] == 3);
    OK(fusor_read(fusor_flip(X, FUSOR_AXES(0)), y, 6 * sizeof *y));
    cr_assert(y[0] == 3 && y[3] == 0);
    OK(fusor_read(fusor_pad(X, 7, FUSOR_PAD_CONSTANT, FUSOR_SHAPE(0, 1, 0, 0)), y, 8 * sizeof *y));
    cr_assert(y[0] == 7 && y[1] == 0 && y[4] == 7 && y[7] == 5);
    OK(fusor_read(fusor_apply(ctx, "pad", 1, &X, "pads=[0, 1, 0, 0], value=-2.5"), y, 8 * sizeof *y));
    cr_assert(y[0] == -2.5f && y[1] == 0);
    OK(fusor_read(fusor_pad(X, 0, FUSOR_PAD_WRAP, FUSOR_SHAPE(0, 1, 0, 0)), y, 8 * sizeof *y));
    cr_assert(y[0] == 2 && y[4] == 5);
    FAILS(fusor_status_of(fusor_pad(X, 0, 9, FUSOR_SHAPE(0, 0, 0, 0))), FUSOR_ERROR_ARGUMENT, "mode");
    OK(fusor_read(fusor_concat(3, (fusor_tensor[]){X, X, fusor_neg(X)}, 0), y, 18 * sizeof *y));
    cr_assert(y[6] == 0 && y[11] == 5 && y[17] == -5);
    OK(fusor_read(fusor_tile(X, FUSOR_SHAPE(1, 2)), y, 12 * sizeof *y));
    cr_assert(y[3] == 0 && y[5] == 2 && y[11] == 5);
    OK(fusor_read(fusor_tril(X, 0), y, 6 * sizeof *y));
    cr_assert(y[1] == 0 && y[3] == 3 && y[4] == 4 && y[5] == 0);
    OK(fusor_read(fusor_triu(X, 1), y, 6 * sizeof *y));
    cr_assert(y[0] == 0 && y[1] == 1 && y[3] == 0 && y[5] == 5);
    OK(fusor_read(fusor_take(X, I, 1), y, 4 * sizeof *y));
    cr_assert(y[0] == 2 && y[1] == 0 && y[2] == 5 && y[3] == 3);
    OK(fusor_read(fusor_take_along(X, fusor_reshape(I, FUSOR_SHAPE(2, 1)), 1), y, 2 * sizeof *y));
    cr_assert(y[0] == 2 && y[1] == 3);
    fusor_tensor row = fusor_reshape(I, FUSOR_SHAPE(1, 2)), ten = fusor_full(ctx, 10, FUSOR_F32, FUSOR_SHAPE(1, 2));
    OK(fusor_read(fusor_scatter(X, row, ten, 0, FUSOR_SCATTER_ADD), y, 6 * sizeof *y));
    cr_assert(y[0] == 0 && y[1] == 11 && y[3] == 13 && y[4] == 4);
    OK(fusor_read(fusor_one_hot(I, 2, FUSOR_F32), y, 4 * sizeof *y));
    cr_assert(y[0] == 0 && y[1] == 0 && y[2] == 1 && y[3] == 0);
    fusor_tensor J = fusor_wrap_const(ctx, far, FUSOR_I32, FUSOR_SHAPE(2));
    FAILS(fusor_read(fusor_take(X, J, 0), y, 6 * sizeof *y), FUSOR_ERROR_INDEX, "index 2 at position [1]");
    FAILS(fusor_read(fusor_take(X, J, 0), y, 6 * sizeof *y), FUSOR_ERROR_INDEX, "axis 0 of size 2; expected -2 to 1");
    fusor_context_free(ctx);
}

Test(lazy, recurrent_cells) {
    fusor_context *ctx = new_context(0);
    float x[2] = {1, 2}, h[1] = {0.5f}, w[8] = {1, 0, 0, 1, 1, 1, -1, 0}, u[4] = {0, 1, 0, 2}, b[4] = {0, 0, -1, 1},
          y[1], s[1];
    fusor_tensor X = fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(2)),
                 H = fusor_wrap_const(ctx, h, FUSOR_F32, FUSOR_SHAPE(1));
    fusor_tensor W = fusor_wrap_const(ctx, w, FUSOR_F32, FUSOR_SHAPE(4, 2)),
                 U = fusor_wrap_const(ctx, u, FUSOR_F32, FUSOR_SHAPE(4, 1));
    fusor_tensor B = fusor_wrap_const(ctx, b, FUSOR_F32, FUSOR_SHAPE(4)), R, S;
    fusor_lstm_cell(X, H, H, W, U, B, B, &R, &S);
    OK(fusor_read(R, y, sizeof y));
    OK(fusor_read(S, s, sizeof s));
    /* gates: i 1, f 2 + 0.5, g 3 - 2, o -1 + 1 + 2 */
    const double state = 0.5 / (1 + exp(-2.5)) + tanh(1) / (1 + exp(-1));
    cr_assert_float_eq(s[0], state, 1e-6);
    cr_assert_float_eq(y[0], tanh(state) / (1 + exp(-2)), 1e-6);
    fusor_lstm_cell(X, H, H, W, U, FUSOR_NO_TENSOR, FUSOR_NO_TENSOR, NULL, &S);
    OK(fusor_read(S, s, sizeof s));
    cr_assert_float_eq(s[0], 0.5 / (1 + exp(-2.5)) + tanh(3) / (1 + exp(-1)), 1e-6);
    fusor_tensor W3 = fusor_slice(W, 1, (int64_t[]){0}, (int64_t[]){3}, NULL, NULL),
                 U3 = fusor_slice(U, 1, (int64_t[]){1}, (int64_t[]){4}, NULL, NULL);
    const double r = 1 / (1 + exp(-1.5)), z = 1 / (1 + exp(-2)); /* U3: 1, 0, 2 */
    OK(fusor_read(fusor_gru_cell(X, H, W3, U3, FUSOR_NO_TENSOR, FUSOR_NO_TENSOR, 1), y, sizeof y));
    cr_assert_float_eq(y[0], (1 - z) * tanh(3 + r) + z * 0.5, 1e-6);
    OK(fusor_read(fusor_gru_cell(X, H, W3, U3, FUSOR_NO_TENSOR, FUSOR_NO_TENSOR, 0), y, sizeof y));
    cr_assert_float_eq(y[0], (1 - z) * tanh(3 + r) + z * 0.5, 1e-6);
    fusor_tensor W1 = fusor_slice(W, 1, (int64_t[]){3}, (int64_t[]){4}, NULL, NULL),
                 U1 = fusor_slice(U, 1, (int64_t[]){1}, (int64_t[]){2}, NULL, NULL);
    OK(fusor_read(fusor_rnn_cell(X, H, W1, U1, FUSOR_NO_TENSOR, FUSOR_NO_TENSOR, FUSOR_RNN_TANH), y, sizeof y));
    cr_assert_float_eq(y[0], tanh(-0.5), 1e-6);
    OK(fusor_read(fusor_rnn_cell(X, H, W1, U1, FUSOR_NO_TENSOR, FUSOR_NO_TENSOR, FUSOR_RNN_RELU), y, sizeof y));
    cr_assert_eq(y[0], 0);
    FAILS(fusor_status_of(fusor_rnn_cell(X, H, W1, U1, FUSOR_NO_TENSOR, FUSOR_NO_TENSOR, 2)), FUSOR_ERROR_ARGUMENT,
          "mode");
    FAILS(fusor_status_of(fusor_rnn_cell(X, H, W1, U1, B, FUSOR_NO_TENSOR, 0)), FUSOR_ERROR_TYPE, "both or neither");
    fusor_context_free(ctx);
}
