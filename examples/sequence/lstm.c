/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* lstm.c: an LSTM over a sequence, in pieces, as a stream comes in: weights are bound (packed once), the state of one
 * piece is the first state of the next, and after the first run nothing is allocated.
 *
 *   cc lstm.c $(pkg-config --cflags --libs fusor) -lm -o lstm && ./lstm */
#include <fusor/fusor.h>
#include <math.h>
#include <stdio.h>

enum { PIECES = 4, STEPS = 16, BATCH = 2, INPUT = 3, HIDDEN = 8 };

static const char text[] =
    "func @cell(%x: f32[B, I], %h: f32[B, H], %c: f32[B, H], const %w: f32[4*H, I], const %u: f32[4*H, H],\n"
    "           const %b: f32[4*H], const %d: f32[4*H]) -> (%y: f32[B, H], %s: f32[B, H]) {\n"
    "  %y, %s = lstm_cell(%x, %h, %c, %w, %u, %b, %d)\n"
    "  return %y, %s\n"
    "}\n";

static float w[4 * HIDDEN][INPUT], u[4 * HIDDEN][HIDDEN], b[4 * HIDDEN], d[4 * HIDDEN];
static float x[STEPS][BATCH][INPUT], h[BATCH][HIDDEN], c[BATCH][HIDDEN];

static void fill(float *to, int n, float scale) {
    for (int i = 0; i < n; i++) to[i] = scale * sinf((float)(i + 1));
}

static fusor_buffer tensor(void *data, int rank, int64_t n0, int64_t n1, int64_t n2) {
    return (fusor_buffer){.data = data, .dtype = FUSOR_F32, .rank = rank, .shape = {n0, n1, n2}};
}

int main(void) {
    fill(&w[0][0], 4 * HIDDEN * INPUT, 0.5f);
    fill(&u[0][0], 4 * HIDDEN * HIDDEN, 0.3f);
    fill(b, 4 * HIDDEN, 0.1f);
    fusor_context *ctx = fusor_context_new(NULL);
    fusor_executable *cell = NULL, *bound = NULL;
    fusor_call *run = NULL;
    const char *names[4] = {"w", "u", "b", "d"};
    fusor_buffer weights[4] = {tensor(w, 2, 4 * HIDDEN, INPUT, 0), tensor(u, 2, 4 * HIDDEN, HIDDEN, 0),
                               tensor(b, 1, 4 * HIDDEN, 0, 0), tensor(d, 1, 4 * HIDDEN, 0, 0)};
    /* the input is a sequence; each state is one value, written over by what the last step of a piece left */
    fusor_buffer in[3] = {tensor(x, 3, STEPS, BATCH, INPUT), tensor(h, 2, BATCH, HIDDEN, 0),
                          tensor(c, 2, BATCH, HIDDEN, 0)};
    fusor_buffer out[2] = {in[1], in[2]};
    const fusor_carry states[2] = {{.input = 1, .output = 0}, {.input = 2, .output = 1}};
    fusor_status status = fusor_compile_text(ctx, text, "cell", &cell);
    if (!status) status = fusor_executable_bind(cell, 4, names, weights, &bound);
    if (!status) status = fusor_executable_prepare_scan(bound, STEPS, 2, states, 3, in, 2, out, &run);
    for (int piece = 0; piece < PIECES && !status; piece++) {
        for (int t = 0; t < STEPS; t++)
            for (int i = 0; i < BATCH * INPUT; i++)
                x[t][i / INPUT][i % INPUT] = cosf((float)(piece * STEPS + t) * 0.1f + (float)i);
        status = fusor_call_run(run);
        if (!status) printf("after %2d steps: %+.4f %+.4f %+.4f\n", (piece + 1) * STEPS, h[0][0], h[0][1], h[1][7]);
    }
    if (status) fprintf(stderr, "%s\n", fusor_error_message(ctx));
    fusor_call_free(run);
    fusor_executable_free(bound);
    fusor_executable_free(cell);
    fusor_context_free(ctx);
    return status != FUSOR_OK;
}
