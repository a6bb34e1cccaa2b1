/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* sequence_test.c: one program over the steps of a sequence: the bits of single calls for every way a state may go, no
 * allocation once it runs, and its errors. */
#include "api_test.h"
#include "base/arena.h"
#include "count_test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 7, B = 3, I = 5, H = 9 };
static const char lstm[] = "func @f(%x: f32[B, I], %h: f32[B, H], %c: f32[B, H], const %w: f32[4*H, I], const %u: "
                           "f32[4*H, H], const %b: f32[4*H],\n"
                           "        const %d: f32[4*H]) -> (%y: f32[B, H], %s: f32[B, H]) {\n"
                           "  %y, %s = lstm_cell(%x, %h, %c, %w, %u, %b, %d)\n  return %y, %s\n}\n";

static fusor_context *counting_context(int n_threads) {
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.cache_dir = "";
    o.n_threads = n_threads;
    o.allocate = counted;
    o.deallocate = freed;
    fusor_context *ctx = fusor_context_new(&o);
    cr_assert(ctx);
    return ctx;
}

static void fill(float *x, int n, int seed) {
    for (int i = 0; i < n; i++) x[i] = (float)((i * 37 + seed * 101) % 1009) / 1009 - 0.5f;
}

static fusor_buffer tensor(float *data, int rank, int64_t a, int64_t b, int64_t c) {
    return (fusor_buffer){.data = data, .dtype = FUSOR_F32, .rank = rank, .shape = {a, b, c}};
}

typedef struct network {
    float x[T][B][I], h[B][H], c[B][H], w[4 * H * I], u[4 * H * H], b[4 * H], d[4 * H];
    float y[T][B][H], s[T][B][H]; /* of single calls */
    fusor_executable *exe;
} network;

/* The cell with its weights bound, and what T calls give. */
static network *new_network(fusor_context *ctx) {
    network *n = calloc(1, sizeof *n);
    cr_assert(n);
    fill(&n->x[0][0][0], T * B * I, 1);
    fill(&n->h[0][0], B * H, 2);
    fill(&n->c[0][0], B * H, 3);
    fill(n->w, 4 * H * I, 4);
    fill(n->u, 4 * H * H, 5);
    fill(n->b, 4 * H, 6);
    fill(n->d, 4 * H, 7);
    fusor_executable *plain;
    OK(fusor_compile_text(ctx, lstm, NULL, &plain));
    const char *names[4] = {"w", "u", "b", "d"};
    fusor_buffer weights[4] = {tensor(n->w, 2, 4 * H, I, 0), tensor(n->u, 2, 4 * H, H, 0), tensor(n->b, 1, 4 * H, 0, 0),
                               tensor(n->d, 1, 4 * H, 0, 0)};
    OK(fusor_executable_bind(plain, 4, names, weights, &n->exe));
    fusor_executable_free(plain);
    for (int t = 0; t < T; t++) {
        fusor_buffer in[3] = {tensor(n->x[t][0], 2, B, I, 0), tensor(t ? n->y[t - 1][0] : n->h[0], 2, B, H, 0),
                              tensor(t ? n->s[t - 1][0] : n->c[0], 2, B, H, 0)};
        fusor_buffer out[2] = {tensor(n->y[t][0], 2, B, H, 0), tensor(n->s[t][0], 2, B, H, 0)};
        OK(fusor_executable_call(n->exe, 3, in, 2, out));
    }
    return n;
}

static void free_network(network *n) {
    fusor_executable_free(n->exe);
    free(n);
}

/* Two products and what becomes of the gates; the second product of an rnn adds the first and goes on. */
Test(sequence, a_cell_is_two_contractions_and_one_kernel_at_most) {
    static const struct {
        const char *call;
        int gates, results, kernels;
    } cells[] = {
        {"%y = rnn_cell(%x, %h, %w, %u, %b, %d)", 1, 1, 2},
        {"%y = rnn_cell(%x, %h, %w, %u, activation=relu)", 1, 1, 2},
        {"%y, %s = lstm_cell(%x, %h, %c, %w, %u, %b, %d)", 4, 2, 3},
        {"%y = gru_cell(%x, %h, %w, %u, %b, %d)", 3, 1, 3},
        {"%y = gru_cell(%x, %h, %w, %u, %b, %d, linear_before_reset=false)", 3, 1, 4}, /* r * h is multiplied again */
    };
    fusor_context *ctx = counting_context(1);
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        char text[600], *plan;
        const int g = cells[i].gates;
        fusor_executable *exe;
        snprintf(text, sizeof text,
                 "func @f(%%x: f32[B, I], %%h: f32[B, H], %%c: f32[B, H], %%w: f32[%d*H, I], %%u: f32[%d*H, H], %%b: "
                 "f32[%d*H], %%d: f32[%d*H]) -> "
                 "(%%y: f32[B, H]%s) {\n  %s\n  return %%y%s\n}\n",
                 g, g, g, g, cells[i].results == 2 ? ", %s: f32[B, H]" : "", cells[i].call,
                 cells[i].results == 2 ? ", %s" : "");
        OK(fusor_compile_text(ctx, text, NULL, &exe));
        OK(fusor_explain_json(exe, &plan));
        int kernels = 0;
        for (const char *at = plan; (at = strstr(at, "\"symbol\"")); at++) kernels++;
        cr_expect_eq(kernels, cells[i].kernels, "%s: %d kernels", cells[i].call, kernels);
        fusor_text_free(plan);
        fusor_executable_free(exe);
    }
    fusor_context_free(ctx);
}

static const fusor_carry states[2] = {{1, 0}, {2, 1}};

Test(sequence, has_the_bits_of_single_calls) {
    for (int threads = 1; threads <= 2; threads++) {
        fusor_context *ctx = counting_context(threads);
        network *n = new_network(ctx);
        static float y[T][B][H], last[B][H];
        fusor_buffer in[3] = {tensor(n->x[0][0], 3, T, B, I), tensor(n->h[0], 2, B, H, 0), tensor(n->c[0], 2, B, H, 0)};
        fusor_buffer out[2] = {tensor(y[0][0], 3, T, B, H), tensor(last[0], 2, B, H, 0)};
        fusor_call *call;
        OK(fusor_executable_prepare_scan(n->exe, T, 2, states, 3, in, 2, out, &call));
        for (int again = 0; again < 2; again++) {
            memset(y, 0, sizeof y);
            OK(fusor_call_run(call));
            cr_assert_eq(memcmp(y, n->y, sizeof y), 0);
            cr_assert_eq(memcmp(last, n->s[T - 1], sizeof last), 0);
        }
        fusor_call_free(call);
        /* memory for all steps of what is given none; more steps than that were prepared for in another call */
        fusor_buffer made[2] = {{0}};
        OK(fusor_executable_scan(n->exe, T, 2, states, 3, in, 2, made));
        for (int r = 0; r < 2; r++)
            cr_assert(made[r].rank == 3 && made[r].shape[0] == T && made[r].shape[1] == B && made[r].shape[2] == H);
        cr_assert_eq(memcmp(made[0].data, n->y, sizeof n->y), 0);
        cr_assert_eq(memcmp(made[1].data, n->s, sizeof n->s), 0);
        fusor_buffer_free(ctx, &made[0]);
        fusor_buffer_free(ctx, &made[1]);
        free_network(n);
        fusor_context_free(ctx);
    }
}

/* Batch first: [B, T, I] and [B, T, H] with strides. */
Test(sequence, takes_any_layout) {
    fusor_context *ctx = counting_context(1);
    network *n = new_network(ctx);
    static float x[B][T][I], y[B][T][H], s[B][T][H], h[H][B];
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) memcpy(x[b][t], n->x[t][b], sizeof x[b][t]);
    for (int b = 0; b < B; b++)
        for (int i = 0; i < H; i++) h[i][b] = n->h[b][i];
    fusor_buffer in[3] = {tensor(x[0][0], 3, T, B, I), tensor(h[0], 2, B, H, 0), tensor(n->c[0], 2, B, H, 0)};
    fusor_buffer out[2] = {tensor(y[0][0], 3, T, B, H), tensor(s[0][0], 3, T, B, H)};
    in[0].flags = in[1].flags = out[0].flags = out[1].flags = FUSOR_STRIDED;
    memcpy(in[0].stride, (int64_t[]){I, T * I, 1}, 24);
    memcpy(in[1].stride, (int64_t[]){1, B}, 16);
    memcpy(out[0].stride, (int64_t[]){H, T * H, 1}, 24);
    memcpy(out[1].stride, (int64_t[]){H, T * H, 1}, 24);
    OK(fusor_executable_scan(n->exe, T, 2, states, 3, in, 2, out));
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) {
            cr_assert_eq(memcmp(y[b][t], n->y[t][b], sizeof y[b][t]), 0);
            cr_assert_eq(memcmp(s[b][t], n->s[t][b], sizeof s[b][t]), 0);
        }
    free_network(n);
    fusor_context_free(ctx);
}

/* A stream: the state of one piece is the first of the next, in one memory. */
Test(sequence, goes_on_from_the_state_it_left) {
    fusor_context *ctx = counting_context(1);
    network *n = new_network(ctx);
    static float y[T][B][H], h[B][H], c[B][H];
    memcpy(h, n->h, sizeof h);
    memcpy(c, n->c, sizeof c);
    static const int pieces[] = {2, 0, 1, 3, 1};
    for (int i = 0, t = 0; i < 5; t += pieces[i++]) {
        fusor_buffer in[3] = {tensor(t < T ? n->x[t][0] : NULL, 3, pieces[i], B, I), tensor(h[0], 2, B, H, 0),
                              tensor(c[0], 2, B, H, 0)};
        fusor_buffer out[2] = {tensor(h[0], 2, B, H, 0), tensor(c[0], 2, B, H, 0)};
        OK(fusor_executable_scan(n->exe, pieces[i], 2, states, 3, in, 2, out));
        memcpy(y[t + pieces[i] - 1], h, sizeof h);
        cr_assert_eq(memcmp(h, n->y[t + pieces[i] - 1], sizeof h), 0, "piece %d", i);
        cr_assert_eq(memcmp(c, n->s[t + pieces[i] - 1], sizeof c), 0, "piece %d", i);
    }
    free_network(n);
    fusor_context_free(ctx);
}

Test(sequence, runs_backwards) {
    fusor_context *ctx = counting_context(1);
    fusor_executable *exe;
    OK(fusor_compile_text(
        ctx,
        "func @f(%x: f32[], %a: f32[]) -> (%y: f32[]) {\n  %h = mul(%a, 0.5)\n  %y = add(%h, %x)\n  return %y\n}\n",
        NULL, &exe));
    float x[4] = {1, 2, 3, 4}, a = 8, y[4];
    fusor_buffer in[2] = {
        {.data = &x[3], .dtype = FUSOR_F32, .rank = 1, .shape = {4}, .stride = {-1}, .flags = FUSOR_STRIDED},
        {.data = &a, .dtype = FUSOR_F32}};
    fusor_buffer out[1] = {
        {.data = &y[3], .dtype = FUSOR_F32, .rank = 1, .shape = {4}, .stride = {-1}, .flags = FUSOR_STRIDED}};
    OK(fusor_executable_scan(exe, 4, 1, (fusor_carry[]){{1, 0}}, 2, in, 1, out));
    cr_assert(y[3] == 8 && y[2] == 7 && y[1] == 5.5f && y[0] == 3.75f);
    /* without a carry each step starts from the same value */
    OK(fusor_executable_scan(exe, 4, 0, NULL, 2, in, 1, out));
    cr_assert(y[3] == 8 && y[2] == 7 && y[1] == 6 && y[0] == 5);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

/* A result over its parameter carries itself; bool states are 0 or 1; a result that is a parameter is copied. */
Test(sequence, writes_over_parameters) {
    fusor_context *ctx = counting_context(1);
    fusor_executable *exe;
    OK(fusor_compile_text(
        ctx,
        "func @f(%x: f32[N], %a: f32[N], %m: bool[N]) -> (%s: f32[N] alias %a, %o: bool[N], %z: f32[N]) {\n"
        "  %v = select(%m, %x, 0)\n  %s = add(%a, %v)\n  %g = gt(%s, 2)\n  %o = not(%g)\n  return %s, %o, %x\n}\n",
        NULL, &exe));
    float x[3][2] = {{1, 5}, {2, 6}, {3, 7}}, a[2] = {0, 0}, z[3][2];
    uint8_t m[2] = {7, 1}, o[3][2];
    fusor_buffer in[3] = {
        tensor(x[0], 2, 3, 2, 0), tensor(a, 1, 2, 0, 0), {.data = m, .dtype = FUSOR_BOOL, .rank = 1, .shape = {2}}};
    fusor_buffer out[3] = {{0}, {.data = o, .dtype = FUSOR_BOOL, .rank = 2, .shape = {3, 2}}, tensor(z[0], 2, 3, 2, 0)};
    OK(fusor_executable_scan(exe, 3, 2, (fusor_carry[]){{2, 1}, {1, 0}}, 3, in, 3, out));
    cr_assert(out[0].data == a && a[0] == 3 && a[1] == 5, "%g %g", (double)a[0], (double)a[1]);
    cr_assert(o[0][0] == 1 && o[1][0] == 0 && o[2][0] == 0 && o[0][1] == 0 && o[2][1] == 0);
    cr_assert_eq(memcmp(x, z, sizeof z), 0);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

Test(sequence, allocates_nothing_in_a_step) {
    for (int threads = 1; threads <= 2; threads++) {
        fusor_context *ctx = counting_context(threads);
        network *n = new_network(ctx);
        static float y[T][B][H];
        fusor_buffer in[3] = {tensor(n->x[0][0], 3, T, B, I), tensor(n->h[0], 2, B, H, 0), tensor(n->c[0], 2, B, H, 0)};
        fusor_buffer out[2] = {tensor(y[0][0], 3, T, B, H), tensor(n->c[0], 2, B, H, 0)};
        fusor_call *call;
        OK(fusor_executable_prepare_scan(n->exe, T, 2, states, 3, in, 2, out, &call));
        OK(fusor_call_run(call));
        int before = atomic_load(&n_allocations);
        cr_assert_gt(before, 0);
        fu_malloc_fail_at(1); /* the library's own memory: none is asked for */
        for (int i = 0; i < 10; i++) OK(fusor_call_run(call));
        fu_malloc_fail_at(0);
        cr_assert_eq(atomic_load(&n_allocations), before);
        fusor_call_free(call);
        free_network(n);
        fusor_context_free(ctx);
    }
}

Test(sequence, refuses_what_does_not_fit) {
    fusor_context *ctx = counting_context(1);
    network *n = new_network(ctx);
    static float y[T][B][H], c[B][H];
    fusor_buffer in[3] = {tensor(n->x[0][0], 3, T, B, I), tensor(n->h[0], 2, B, H, 0), tensor(n->c[0], 2, B, H, 0)};
    fusor_buffer out[2] = {tensor(y[0][0], 3, T, B, H), tensor(c[0], 2, B, H, 0)};
#define SCAN(steps, n_states, which) fusor_executable_scan(n->exe, steps, n_states, which, 3, in, 2, out)
    FAILS(SCAN(-1, 2, states), FUSOR_ERROR_ARGUMENT, "-1 steps");
    FAILS(SCAN(T - 1, 2, states), FUSOR_ERROR_SHAPE, "input %x has 7 steps along dim 0; expected 6");
    FAILS(SCAN(T, 2, NULL), FUSOR_ERROR_ARGUMENT, "2 states");
    FAILS(SCAN(T, 1, ((fusor_carry[]){{3, 0}})), FUSOR_ERROR_ARGUMENT, "from output 0 to input 3");
    FAILS(SCAN(T, 2, ((fusor_carry[]){{1, 0}, {1, 1}})), FUSOR_ERROR_ARGUMENT, "%h is given a state twice");
    FAILS(SCAN(T, 1, ((fusor_carry[]){{0, 0}})), FUSOR_ERROR_SHAPE, "input %x is a state");
    FAILS(fusor_executable_scan(n->exe, T, 2, states, 2, in, 2, out), FUSOR_ERROR_ARGUMENT, "takes 3 inputs; 2 given");
    FAILS(fusor_executable_scan(n->exe, T, 2, states, 3, in, 1, out), FUSOR_ERROR_ARGUMENT,
          "gives 2 results; 1 outputs");
    fusor_call *call;
    FAILS(fusor_executable_prepare_scan(n->exe, T, 2, states, 3, in, 2, out, NULL), FUSOR_ERROR_ARGUMENT,
          "must not be NULL");
    in[0].dtype = 77;
    FAILS(SCAN(T, 2, states), FUSOR_ERROR_TYPE, "input %x is no dtype");
    in[0].dtype = FUSOR_F32;
    in[0].rank = 2;
    FAILS(SCAN(T, 2, states), FUSOR_ERROR_SHAPE, "");
    in[0].rank = 3;
    out[0].dtype = FUSOR_F64;
    FAILS(SCAN(T, 2, states), FUSOR_ERROR_TYPE, "the result is f32");
    out[0].dtype = FUSOR_F32;
    out[1].shape[1] = H - 1;
    FAILS(SCAN(T, 2, states), FUSOR_ERROR_SHAPE, "output %s");
    out[1].shape[1] = H;
    for (int r = 0; r < 2; r++) { /* ranks that no tensor has, too */
        const int right = out[r].rank, wrong[] = {-1, 0, 5, 9, 1 << 30};
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            out[r].rank = wrong[i];
            FAILS(SCAN(T, 2, states), FUSOR_ERROR_SHAPE, r ? "output %s has " : "output %y has ");
        }
        out[r].rank = right;
    }
    out[0].data = n->x;
    FAILS(SCAN(T, 2, states), FUSOR_ERROR_OVERLAP, "output %y overlaps input %x");
    out[0].data = n->h;
    FAILS(SCAN(T, 2, states), FUSOR_ERROR_OVERLAP, "output %y overlaps input %h");
    out[0].data = y;
    out[1].data = y[T - 1];
    FAILS(SCAN(T, 2, states), FUSOR_ERROR_OVERLAP, "output %s overlaps output %y");
    out[1].data = c;
    in[2].data = NULL;
    FAILS(SCAN(T, 2, states), FUSOR_ERROR_ARGUMENT, "input %c has no data");
    in[2].data = n->c;
    for (int steps = T; steps >= 0; steps -= T) { /* where the last value of a state goes, too */
        in[0].shape[0] = out[0].shape[0] = steps;
        out[1].device = 1;
        FAILS(SCAN(steps, 2, states), FUSOR_ERROR_DEVICE, "output %s is on device 1");
        out[1].device = 0;
        out[1].flags = 64;
        FAILS(SCAN(steps, 2, states), FUSOR_ERROR_ARGUMENT, "output %s: flags 0x40");
        out[1].flags = FUSOR_READONLY;
        FAILS(SCAN(steps, 2, states), FUSOR_ERROR_ARGUMENT, "output %s is read-only");
        out[1].flags = 0;
        out[1].data = (char *)c + 1;
        FAILS(SCAN(steps, 2, states), FUSOR_ERROR_ARGUMENT, "output %s: data is not aligned");
        out[1].data = c;
        in[1].data = NULL;
        FAILS(SCAN(steps, 2, states), FUSOR_ERROR_ARGUMENT, "input %h has no data");
        in[1].data = n->h;
    }
    out[0] = (fusor_buffer){.data = (char *)y + 1, .dtype = FUSOR_F32, .rank = 3, .shape = {T, B, H}};
    in[0].shape[0] = T;
    FAILS(SCAN(T, 2, states), FUSOR_ERROR_ARGUMENT, "output %y: data is not aligned");
    out[0] = tensor(y[0][0], 3, 0, B, H);
    in[0].shape[0] = 0;
    OK(fusor_executable_prepare_scan(n->exe, 0, 2, states, 3, in, 2, out, &call));
    fusor_call_free(call);
    FAILS(SCAN(0, 1, states), FUSOR_ERROR_ARGUMENT, "the last value of %s");
    free_network(n);

    fusor_executable *exe;
    OK(fusor_compile_text(
        ctx,
        "func @f(%x: f32[N], %a: f32[N], %b: f32[M]) -> (%s: f32[N] alias %a, %r: f32[M], %i: i32[N]) {\n"
        "  %s = add(%a, %x)\n  %r = neg(%b)\n  %i = cast(%x, i32)\n  return %s, %r, %i\n}\n",
        NULL, &exe));
    float data[5][4] = {{0}};
    int32_t whole[4];
    fusor_buffer from[3] = {tensor(data[0], 1, 3, 0, 0), tensor(data[1], 1, 3, 0, 0), tensor(data[2], 1, 2, 0, 0)};
    fusor_buffer to[3] = {
        {0}, tensor(data[3], 1, 2, 0, 0), {.data = whole, .dtype = FUSOR_I32, .rank = 1, .shape = {3}}};
#define OVER(...) fusor_executable_scan(exe, 2, 1, (fusor_carry[]){__VA_ARGS__}, 3, from, 3, to)
    FAILS(OVER({1, 1}), FUSOR_ERROR_ARGUMENT, "%s is written over %a");
    FAILS(OVER({0, 0}), FUSOR_ERROR_ARGUMENT, "%s is written over %a");
    FAILS(OVER({0, 1}), FUSOR_ERROR_SHAPE, "state %x and %r, which the next step reads as it, differ in dim 0");
    FAILS(OVER({0, 2}), FUSOR_ERROR_TYPE, "state %x is f32, but %i");
    to[0] = tensor(data[4], 1, 3, 0, 0);
    FAILS(OVER({2, 1}), FUSOR_ERROR_ARGUMENT, "its buffer must have that input's data");
    to[0] = (fusor_buffer){0};
    OK(OVER({2, 1}));
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}
