/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* refused_test.c: a call that is refused leaves nothing behind: the next ones are checked and run as if it had not
 * been, whatever argument was wrong; and its outputs are what they were. */
#include "api_test.h"
#include <stdio.h>

enum { MOST = 100 };
static const char rows[] =
    "func @f(%x: f32[N, K], %w: f32[K], %i: i64[M], %b: f32[N]) -> (%y: f32[N], %t: f32[M]) { "
    "%p = mul(%x, %w) %s = reduce_sum(%p, axes=[1]) %y = add(%s, %b) %t = take(%b, %i) return %y, "
    "%t }";

static unsigned seed = 1;
static int draw(int n) {
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (unsigned)n);
}

typedef struct arguments {
    float x[MOST * 3], w[3], b[MOST], y[MOST + 1], t[MOST + 1];
    int64_t i[MOST];
    fusor_buffer in[4], out[2];
} arguments;

static void fill(arguments *a, int n, int k, int m) {
    for (int e = 0; e < n * k; e++) a->x[e] = (float)draw(100);
    for (int e = 0; e < k; e++) a->w[e] = (float)draw(100);
    for (int e = 0; e < n; e++) a->b[e] = (float)draw(100);
    for (int e = 0; e < m; e++) a->i[e] = draw(n);
    a->in[0] = (fusor_buffer){.data = a->x, .dtype = FUSOR_F32, .rank = 2, .shape = {n, k}};
    a->in[1] = (fusor_buffer){.data = a->w, .dtype = FUSOR_F32, .rank = 1, .shape = {k}};
    a->in[2] = (fusor_buffer){.data = a->i, .dtype = FUSOR_I64, .rank = 1, .shape = {m}};
    a->in[3] = (fusor_buffer){.data = a->b, .dtype = FUSOR_F32, .rank = 1, .shape = {n}};
    a->out[0] = (fusor_buffer){.data = a->y, .dtype = FUSOR_F32, .rank = 1, .shape = {n}};
    a->out[1] = (fusor_buffer){.data = a->t, .dtype = FUSOR_F32, .rank = 1, .shape = {m}};
    a->y[n] = a->t[m] = -1;
}

/* Makes one buffer wrong. Returns what a call says then. */
static fusor_status spoil(arguments *a, int *inputs) {
    const int which = draw(6);
    fusor_buffer *b = which < 4 ? &a->in[which] : &a->out[which - 4];
    switch (draw(which < 4 ? 8 : 5)) {
    case 0: b->dtype = FUSOR_I32; return FUSOR_ERROR_TYPE;
    case 1: b->rank++; return FUSOR_ERROR_SHAPE;
    case 2: b->flags = 1u << 20; return FUSOR_ERROR_ARGUMENT;
    case 3: b->shape[0] += 1 + draw(3); return which == 2 ? FUSOR_OK : FUSOR_ERROR_SHAPE;
    case 4: b->device = 7; return FUSOR_ERROR_DEVICE;
    case 5: b->shape[0] = -1; return FUSOR_ERROR_SHAPE;
    case 6: b->data = NULL; return FUSOR_ERROR_ARGUMENT;
    default: *inputs = 3; return FUSOR_ERROR_ARGUMENT;
    }
}

/* rt_exec_call and its relatives have what they checked last; any of them may be refused at any argument. */
static void run_any_sequence(uint32_t flags) {
    fusor_context *ctx = new_context(1);
    fusor_executable *exe = compiled_with(ctx, rows, flags);
    arguments *a = calloc(1, sizeof *a);
    int n = 1, k = 1, m = 1, refused = 0;
    cr_assert(a);
    for (int step = 0; step < 4000; step++) {
        int inputs = 4;
        if (draw(2)) n = 1 + draw(MOST);
        if (draw(3) == 0) k = 1 + draw(3);
        if (draw(3) == 0) m = 1 + draw(MOST);
        fill(a, n, k, m);
        fusor_status want = FUSOR_OK;
        if (draw(2)) want = spoil(a, &inputs);
        if (want == FUSOR_OK && a->in[2].shape[0] != m) continue; /* that is no mistake by itself */
        if (draw(4) == 0) {
            fusor_buffer shapes[2] = {{0}};
            const fusor_status infers = fusor_executable_infer(exe, inputs, a->in, 2, shapes);
            if (want == FUSOR_OK) {
                cr_assert_eq(infers, FUSOR_OK, "%s", fusor_error_message(ctx));
                cr_assert(shapes[0].shape[0] == n && shapes[1].shape[0] == m, "step %d: %d, %d", step,
                          (int)shapes[0].shape[0], (int)shapes[1].shape[0]);
            }
        }
        const fusor_status is = fusor_executable_call(exe, inputs, a->in, 2, a->out);
        cr_assert_eq(is, want, "step %d, %d x %d, %d: status %d, expected %d: %s", step, n, k, m, (int)is, (int)want,
                     fusor_error_message(ctx));
        refused += is != FUSOR_OK;
        if (is != FUSOR_OK) continue;
        cr_assert(a->y[n] == -1 && a->t[m] == -1, "step %d: written past the end", step);
        for (int e = 0; e < n; e++) {
            float sum = a->b[e];
            for (int c = 0; c < k; c++) sum += a->x[e * k + c] * a->w[c];
            cr_assert_eq(a->y[e], sum, "step %d, %d x %d: row %d", step, n, k, e);
        }
        for (int e = 0; e < m; e++) cr_assert_eq(a->t[e], a->b[a->i[e]], "step %d: element %d", step, e);
    }
    cr_assert_gt(refused, 1000);
    free(a);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

Test(refused, calls_are_forgotten) { run_any_sequence(0); }
Test(refused, calls_are_forgotten_unfused) { run_any_sequence(FUSOR_NO_FUSE); }

/* Inputs of one named size that differ are no less wrong after a call that failed behind the first of them. */
Test(refused, sizes_are_bound_again) {
    fusor_context *ctx = new_context(1);
    fusor_executable *exe =
        compiled_with(ctx, "func @f(%x: f32[N], %w: f32[N]) -> f32[N] { %y = add(%x, %w) return %y }", 0);
    static float x[MOST], w[MOST], y[MOST];
    fusor_buffer in[2] = {{.data = x, .dtype = FUSOR_F32, .rank = 1, .shape = {MOST}},
                          {.data = w, .dtype = FUSOR_F32, .rank = 1, .shape = {MOST}}},
                 out = {.data = y, .dtype = FUSOR_F32, .rank = 1, .shape = {MOST}};
    OK(fusor_executable_call(exe, 2, in, 1, &out));
    in[0].shape[0] = 7;
    in[1].data = NULL;
    FAILS(fusor_executable_call(exe, 2, in, 1, &out), FUSOR_ERROR_ARGUMENT, "input %w has no data");
    in[1].data = w;
    FAILS(fusor_executable_call(exe, 2, in, 1, &out), FUSOR_ERROR_SHAPE, "100");
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

/* Sets and sequences that fail as they run: outputs are what they were, and no memory is left. */
Test(refused, outputs_of_sets_and_sequences) {
    fusor_context *ctx = new_context(1);
    fusor_executable *each = compiled_with(
                         ctx, "func @f(%x: f32[N], %i: i64[K]) -> f32[K] { %y = take(%x, %i) return %y }", 0),
                     *scan = compiled_with(ctx,
                                           "func @g(%s: f32[N], %i: i64[K]) -> (%y: f32[N], %z: f32[K]) { %z = "
                                           "take(%s, %i) %y = add(%s, 1) return %y, %z }",
                                           0);
    float x[3] = {1, 2, 3}, given[1] = {5};
    int64_t i[2] = {1, 9};
    fusor_buffer values = {.data = x, .dtype = FUSOR_F32, .rank = 1, .shape = {3}}, index[2], out[2] = {{0}}, was[2];
    for (int k = 0; k < 2; k++) index[k] = (fusor_buffer){.data = i + k, .dtype = FUSOR_I64, .rank = 1, .shape = {1}};
    out[1] = (fusor_buffer){.data = given, .dtype = FUSOR_F32, .rank = 1, .shape = {1}};
    memcpy(was, out, sizeof out);
    FAILS(fusor_executable_call_each(each, 2, 2, (fusor_buffer_list[]){{&values, 1}, {index, 2}}, 1,
                                     &(fusor_buffer_list){out, 2}),
          FUSOR_ERROR_INDEX, "set 1: ");
    cr_assert_eq(memcmp(out, was, sizeof out), 0);
    fusor_buffer in[2] = {values, {.data = i, .dtype = FUSOR_I64, .rank = 2, .shape = {2, 1}}};
    memset(out, 0, sizeof out);
    memcpy(was, out, sizeof out);
    FAILS(fusor_executable_scan(scan, 2, 1, &(fusor_carry){0, 0}, 2, in, 2, out), FUSOR_ERROR_INDEX, "index 9");
    cr_assert_eq(memcmp(out, was, sizeof out), 0);
    i[1] = 2;
    OK(fusor_executable_scan(scan, 2, 1, &(fusor_carry){0, 0}, 2, in, 2, out));
    cr_assert_eq(((float *)out[1].data)[1], 4);
    for (int r = 0; r < 2; r++) fusor_buffer_free(ctx, &out[r]);
    FAILS(fusor_executable_call_each(NULL, 1, 0, NULL, 0, NULL), FUSOR_ERROR_ARGUMENT, "");
    fusor_executable_free(each);
    fusor_executable_free(scan);
    fusor_context_free(ctx);
}

/* A state of bool that no step changes is 0 or 1 as well. */
Test(refused, no_steps_of_a_bool_state) {
    fusor_context *ctx = new_context(1);
    fusor_executable *exe =
        compiled_with(ctx, "func @f(%s: bool[N], %g: bool) -> bool[N] { %y = and(%s, %g) return %y }", 0);
    uint8_t state[4] = {0, 1, 2, 255}, last[4] = {9, 9, 9, 9}, g[1];
    fusor_buffer in[2] = {{.data = state, .dtype = FUSOR_BOOL, .rank = 1, .shape = {4}},
                          {.data = g, .dtype = FUSOR_BOOL, .rank = 1, .shape = {0}}},
                 out = {.data = last, .dtype = FUSOR_BOOL, .rank = 1, .shape = {4}};
    OK(fusor_executable_scan(exe, 0, 1, &(fusor_carry){0, 0}, 2, in, 1, &out));
    cr_assert(last[0] == 0 && last[1] == 1 && last[2] == 1 && last[3] == 1, "%d %d", last[2], last[3]);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

/* Copies: elements of one tensor that share memory, and two whose elements lie between each other. */
Test(refused, copies_that_overlap) {
    fusor_context *ctx = new_context(1);
    float x[16];
    for (int k = 0; k < 16; k++) x[k] = (float)k;
    float from[6] = {9, 8, 7, 6, 5, 4};
    const int64_t strides[][2] = {{1, 1}, {2, 1}, {-1, 1}, {0, 1}};
    for (int k = 0; k < 4; k++) {
        fusor_buffer a = {.data = from, .dtype = FUSOR_F32, .rank = 2, .shape = {2, 3}},
                     b = {.data = x + 4, .dtype = FUSOR_F32, .rank = 2, .shape = {2, 3}, .flags = FUSOR_STRIDED};
        memcpy(b.stride, strides[k], sizeof strides[k]);
        FAILS(fusor_buffer_copy(ctx, &a, &b), FUSOR_ERROR_OVERLAP, "to overlaps itself");
    }
    fusor_buffer left = {.data = x,
                         .dtype = FUSOR_F32,
                         .rank = 2,
                         .shape = {4, 2},
                         .stride = {4, 1},
                         .flags = FUSOR_STRIDED},
                 right = left, middle = left;
    right.data = x + 2;
    middle.data = x + 1;
    FAILS(fusor_buffer_copy(ctx, &left, &middle), FUSOR_ERROR_OVERLAP, "share bytes");
    OK(fusor_buffer_copy(ctx, &left, &right));
    for (int k = 0; k < 16; k++) cr_assert_eq(x[k], (float)(k % 4 < 2 ? k : k - 2), "%d", k);
    fusor_context_free(ctx);
}

/* A source is bound, and what is bound is not written over. */
Test(refused, a_source_that_a_result_is_written_over) {
    static const char text[] = "func @f(%x: f32[N], %b: f32[N] = [1, 2]) -> (%z: f32[N] alias %b) {\n"
                               "  %z = mul(%b, %x)\n  return %z\n}\n";
    fusor_context *ctx = new_context(1);
    fusor_executable *exe = NULL;
    FAILS(fusor_compile_text(ctx, text, NULL, &exe), FUSOR_ERROR_ARGUMENT,
          "<text>:1:34: error: parameter %b has a source");
    cr_assert_null(exe);
    fusor_context_free(ctx);
}
