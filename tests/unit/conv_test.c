/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Convolutions by channel leave out products with pads (src/jit/window_pads.c), and that is not to be seen: 0 times a
 * weight that is infinite is NaN, and sums that are 0 have one sign. The operand's elements are all the same, as are
 * the weights but one of each of the first channels, so each element of a result is known. */
#include "../diff/check.h"
#include "../host_level.h"
#include "../share.h"
#include "api_test.h"
#include "plan_test.h"
#include "rt/tune.h"
#include <stdbool.h>

typedef struct conv {
    int taken, made, n, places, pad, stride;
} conv;

static int of_result(const conv *c) { return (c->n + 2 * c->pad - c->places) / c->stride + 1; }

static bool is_pad(const conv *c, int index, int place) {
    const int at = index * c->stride + place - c->pad;
    return at < 0 || at >= c->n;
}

static void judge(const conv *c, const float *y, const char *where) {
    const int n = of_result(c), all = c->places * c->places;
    for (int i = 0; i < c->made * n * n; i++) {
        const int channel = i / (n * n), row = i / n % n, column = i % n;
        int met = 0;
        for (int p = 0; p < all; p++) met += !is_pad(c, row, p / c->places) && !is_pad(c, column, p % c->places);
        if (channel >= all)
            cr_assert_eq(y[i], (float)(c->taken * met), "%s: channel %d, row %d, column %d: %g", where, channel, row,
                         column, (double)y[i]);
        else if (is_pad(c, row, channel / c->places) || is_pad(c, column, channel % c->places))
            cr_assert(isnan(y[i]), "%s: channel %d, row %d, column %d: %g", where, channel, row, column, (double)y[i]);
        else cr_assert(isinf(y[i]), "%s: channel %d, row %d, column %d: %g", where, channel, row, column, (double)y[i]);
    }
}

static size_t all_taken(const conv *c) { return (size_t)c->taken * (size_t)(c->n * c->n); }
static size_t all_weights(const conv *c) { return (size_t)c->taken * (size_t)(c->places * c->places * c->made); }

/* The result for this operand and these weights, which it frees; is_named: the sizes of images and the number of their
 * channels are, in the text. Nothing beside the operand may be read: at one end, at the next call the other. */
static float *call(const conv *c, const char *target, int n_threads, float *x, float *w, bool is_named) {
    const size_t made = (size_t)c->made * (size_t)(of_result(c) * of_result(c));
    float *y = malloc((made + 1) * sizeof *y);
    char text[300], channels[20] = "C", sizes[40] = "H, W";
    y[made] = 77;
    if (!is_named) snprintf(channels, sizeof channels, "%d", c->taken);
    if (!is_named) snprintf(sizes, sizeof sizes, "%d, %d", c->n, c->n);
    snprintf(text, sizeof text,
             "func @f(%%x: f32[1, %s, %s], const %%w: f32[%d, %s, %d, %d]) -> f32[?, ?, ?, ?] { %%y = conv(%%x, %%w, "
             "pads=[%d, %d, %d, %d], strides=[%d, %d]) return %%y }",
             channels, sizes, c->made, channels, c->places, c->places, c->pad, c->pad, c->pad, c->pad, c->stride,
             c->stride);
    static bool is_at_end;
    guarded there = guard_new(all_taken(c) * sizeof *x, is_at_end = !is_at_end);
    memcpy(there.data, x, all_taken(c) * sizeof *x);
    fusor_context *ctx = new_context_for(target, n_threads);
    fusor_executable *exe = NULL;
    fusor_buffer in[2] = {FUSOR_BUFFER(there.data, FUSOR_F32, 1, c->taken, c->n, c->n),
                          FUSOR_BUFFER(w, FUSOR_F32, c->made, c->taken, c->places, c->places)},
                 out = FUSOR_BUFFER(y, FUSOR_F32, 1, c->made, of_result(c), of_result(c));
    OK(fusor_compile_text(ctx, text, NULL, &exe));
    OK(fusor_executable_call(exe, 2, in, 1, &out));
    cr_assert_eq(y[made], 77);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
    guard_free(&there);
    free(x);
    free(w);
    return y;
}

/* Of an operand that is all x and weights that are all w. */
static float *run(const conv *c, const char *target, int n_threads, float x_of_all, float w_of_all, bool has_infinite,
                  bool is_named) {
    const size_t each = (size_t)c->taken * (size_t)(c->places * c->places);
    float *x = malloc(all_taken(c) * sizeof *x), *w = malloc(all_weights(c) * sizeof *w);
    for (size_t i = 0; i < all_taken(c); i++) x[i] = x_of_all;
    for (size_t i = 0; i < all_weights(c); i++) w[i] = w_of_all;
    for (int i = 0; has_infinite && i < c->places * c->places && i < c->made; i++)
        w[(size_t)i * each + (size_t)(i % c->taken * c->places * c->places + i)] = i % 2 ? INFINITY : -INFINITY;
    return call(c, target, n_threads, x, w, is_named);
}

/* Tiles of two rows, and of one vector of channels; of one row; of a part of one; of 11 and 10, and 13 and 12 columns; of
 * three rows; a tile before the last that meets pads; planes a multiple of 1 KB apart. */
static const conv cases[] = {
    {48, 80, 7, 3, 1, 1},  {48, 40, 14, 3, 1, 1}, {48, 32, 28, 3, 1, 1}, {16, 48, 15, 5, 2, 1},
    {32, 32, 28, 3, 1, 2}, {16, 32, 7, 7, 3, 1},  {64, 64, 32, 3, 1, 1}, {64, 32, 64, 3, 1, 1},
    {16, 16, 15, 3, 1, 2}, {32, 16, 67, 5, 2, 1}, {48, 80, 16, 1, 0, 1},
};
enum { CASES = sizeof cases / sizeof *cases };

static bool is_here(int level) { return !ir_level_is_gpu((ir_level)level) && host_has_level(level); }

Test(conv, infinite_weights_meet_pads) {
    for (int i = 0; i < CASES; i++)
        for (int level = 0; level < IR_LEVEL_COUNT; level++) {
            if (!is_here(level)) continue;
            char where[80];
            snprintf(where, sizeof where, "case %d at %s", i, ir_levels[level].name);
            float *y = run(&cases[i], ir_levels[level].name, 1 + (i + level) % 2, 1, 1, true, false);
            judge(&cases[i], y, where);
            free(y);
        }
}

/* Where all products underflow, however the sizes are told; sums of few products, and of one place, keep their sign. */
Test(conv, sums_that_vanish_have_one_sign) {
    static const conv few = {3, 20, 14, 3, 1, 1};
    for (int i = 0; i <= CASES; i++)
        for (int level = 0; level < IR_LEVEL_COUNT; level++)
            for (int k = 0; k < 2 && is_here(level); k++) {
                if (!is_in_mixed_share((uint64_t)(i * 8 + level * 2 + k))) continue;
                const conv *c = i < CASES ? &cases[i] : &few;
                const float w = k ? -1e-30f : 1e-30f;
                float *y = run(c, ir_levels[level].name, 1, 1e-30f, w, false, false),
                      *named = run(c, ir_levels[level].name, 1, 1e-30f, w, false, true);
                const int n = of_result(c);
                for (int e = 0; e < c->made * n * n; e++)
                    cr_assert(y[e] == 0 && named[e] == 0 && !signbit(y[e]) == !signbit(named[e]) &&
                                  (i == CASES || c->places == 1 || !signbit(y[e])),
                              "case %d at %s, element %d: %g, %g", i, ir_levels[level].name, e, (double)y[e],
                              (double)named[e]);
                free(y);
                free(named);
            }
}

/* Numbers without order, many of them with all bits of a float. */
static float *numbers(size_t n, uint32_t seed) {
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        x[i] = (float)(int32_t)seed / 1e9f;
    }
    return x;
}

/* Few products, whose columns stay in registers at v4 (ir_window_tile): one vector and two, one more than whole tiles,
 * rows that vectors go on from; the sums are those of a kernel that does not know how many products they have. */
Test(conv, few_products_are_summed_as_many) {
    static const int taken[][2] = {{1, 3}, {2, 2}, {1, 1}, {7, 1}, {11, 1}, {16, 1}, {1, 4}}; /* and places */
    static const int sizes[] = {5, 14, 18, 19, 34, 37}, made[] = {4, 5, 8, 9, 16, 18, 33};
    for (int level = 0; level < IR_LEVEL_COUNT; level++)
        for (int t = 0; t < 7 && is_here(level); t++)
            for (int s = 0; s < 6; s++) {
                if (!is_in_mixed_share((uint64_t)(level * 42 + t * 6 + s))) continue;
                const conv c = {taken[t][0], made[(s + t) % 7], sizes[s], taken[t][1], 0, 1};
                float *y[2];
                for (int i = 0; i < 2; i++)
                    y[i] = call(&c, ir_levels[level].name, 1 + s % 2, numbers(all_taken(&c), 1),
                                numbers(all_weights(&c), 2), i);
                for (int e = 0; e < c.made * of_result(&c) * of_result(&c); e++)
                    cr_assert_eq(y[0][e], y[1][e], "%d channels of %d to %d, %d places at %s, element %d: %.9g, %.9g",
                                 c.taken, c.n, c.made, c.places, ir_levels[level].name, e, (double)y[0][e],
                                 (double)y[1][e]);
                free(y[0]);
                free(y[1]);
            }
}

/* The sums of rows of n columns, whatever way they are taken: those of the same columns as one row more and one column
 * more of a larger image, whose vectors begin and end elsewhere. */
Test(conv, sums_are_those_of_a_larger_image) {
    static const int sizes[] = {18, 30, 34, 50, 66, 82, 98}, taken[] = {16, 60}, made[] = {12, 33};
    for (int level = 0; level < IR_LEVEL_COUNT; level++)
        for (int i = 0; i < 14 && is_here(level); i++) {
            const conv c = {taken[i % 2], made[i / 2 % 2], sizes[i / 2], 3, 0, 1};
            conv larger = c;
            larger.n++;
            float *x = numbers(all_taken(&larger), 1), *part = malloc(all_taken(&c) * sizeof *part);
            for (size_t e = 0; e < all_taken(&c); e++) {
                const size_t n = (size_t)c.n, row = e / n;
                part[e] = x[(row / n * (n + 1) + row % n) * (n + 1) + e % n];
            }
            float *w = numbers(all_weights(&c), 2), *w2 = numbers(all_weights(&c), 2);
            float *y = call(&c, ir_levels[level].name, 1 + i % 2, part, w, i % 3 == 0),
                  *all = call(&larger, ir_levels[level].name, 1, x, w2, false);
            const int n = of_result(&c);
            for (int e = 0; e < c.made * n * n; e++) {
                const float there = all[(e / n / n * (n + 1) + e / n % n) * (n + 1) + e % n];
                cr_assert_eq(y[e], there, "%d channels of %d to %d at %s, element %d: %.9g, %.9g", c.taken, c.n, c.made,
                             ir_levels[level].name, e, (double)y[e], (double)there);
            }
            free(y);
            free(all);
        }
}

/* Rows of every length, with what is behind the sums: whole vectors, what is left of them, rows shorter than one; from
 * the registers (few products) and by way of memory (tanh). */
static void check_rows(const char *behind, double (*f)(double), const char *level, int taken) {
    enum { MADE = 5, ROWS = 3, PLACES = 3, MOST = 43 };
    char text[400];
    snprintf(text, sizeof text,
             "func @f(%%x: f32[1, %d, H, W], const %%w: f32[5, %d, 3, 3], %%b: f32[5], %%r: f32[1, 5, 3, N]) -> "
             "f32[1, 5, 3, N] { %%c = conv(%%x, %%w, %%b) %%s = add(%%c, %%r) %%y = %s(%%s) return %%y }",
             taken, taken, behind);
    fusor_context *ctx = new_context_for(level, 1);
    fusor_executable *exe = NULL;
    OK(fusor_compile_text(ctx, text, NULL, &exe));
    for (int n = 1; n <= MOST; n++) {
        const int width = n + PLACES - 1, height = ROWS + PLACES - 1;
        float *x = numbers((size_t)(taken * height * width), 1), *w = numbers((size_t)(MADE * taken * 9), 2),
              *b = numbers(MADE, 3), *r = numbers((size_t)(MADE * ROWS * n), 4);
        guarded to = guard_new((size_t)(MADE * ROWS * n) * sizeof(float), n % 2);
        fusor_buffer in[4] = {FUSOR_BUFFER(x, FUSOR_F32, 1, taken, height, width),
                              FUSOR_BUFFER(w, FUSOR_F32, MADE, taken, PLACES, PLACES), FUSOR_BUFFER(b, FUSOR_F32, MADE),
                              FUSOR_BUFFER(r, FUSOR_F32, 1, MADE, ROWS, n)},
                     out = FUSOR_BUFFER(to.data, FUSOR_F32, 1, MADE, ROWS, n);
        OK(fusor_executable_call(exe, 4, in, 1, &out));
        for (int e = 0; e < MADE * ROWS * n; e++) {
            const int m = e / n / ROWS, row = e / n % ROWS, column = e % n;
            double sum = (double)b[m] + (double)r[e];
            for (int k = 0; k < taken * 9; k++)
                sum += (double)w[m * taken * 9 + k] *
                       (double)x[(k / 9 * height + row + k % 9 / 3) * width + column + k % 3];
            const double y = ((float *)(void *)to.data)[e];
            cr_assert(fabs(y - f(sum)) < 2e-5, "%s of %d channels, %d columns at %s, element %d: %g, not %g", behind,
                      taken, n, level, e, y, f(sum));
        }
        guard_free(&to);
        free(x), free(w), free(b), free(r);
    }
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

static double relu(double x) { return x > 0 ? x : 0; }
Test(conv, rows_of_any_length_are_finished) {
    for (int level = 0; level < IR_LEVEL_COUNT; level++)
        for (int taken = 1; taken <= 3 && is_here(level); taken += 2) {
            check_rows("relu", relu, ir_levels[level].name, taken);
            check_rows("tanh", tanh, ir_levels[level].name, taken);
        }
}

/* One row, which several threads cut into columns and one thread does not: what begins in its midst has no pads, knows
 * its index, and the same sums. */
Test(conv, columns_of_one_row_are_those_of_the_whole) {
    static const char *const texts[] = {
        "func @f(%x: f32[1, 20, 1700], const %w: f32[24, 20, 5]) -> f32[?, ?, ?] { %c = conv(%x, %w, pads=[4, 3], "
        "dilations=[2]) %i = iota(shape=[1, 24, 1699], axis=2, dtype=f32) %y = add(%c, %i) return %y }",
        "func @f(%x: f32[1, 20, 3401], const %w: f32[48, 10, 3]) -> f32[?, ?, ?] { %c = conv(%x, %w, pads=[1, 1], "
        "strides=[2], groups=2) %y = relu(%c) return %y }",
        "func @f(%x: f32[1, 20, T], const %w: f32[48, 20, 3]) -> f32[?, ?, ?] { %y = conv(%x, %w, pads=[0, 2]) "
        "return %y }",
        "func @f(%x: f32[1, 20, 1, 1501], const %w: f32[64, 20, 1, 31]) -> f32[?, ?, ?, ?] { %c = conv(%x, %w, "
        "pads=[0, 15, 0, 15]) %y = tanh(%c) return %y }",
        "func @f(%x: f32[1, 20, 1100], const %w: f32[20, 16, 4]) -> f32[?, ?, ?] { %c = conv_transpose(%x, %w, "
        "strides=[2], pads=[1, 0]) %i = iota(shape=[1, 16, 2201], axis=2, dtype=f32) %y = mul(%c, %i) return %y }",
    };
    static const struct {
        int64_t x[4], w[4], made;
        int rank;
    } sizes[] = {{{1, 20, 1700}, {24, 20, 5}, 24 * 1699, 3},
                 {{1, 20, 3401}, {48, 10, 3}, 48 * 1701, 3},
                 {{1, 20, 1999}, {48, 20, 3}, 48 * 1999, 3},
                 {{1, 20, 1, 1501}, {64, 20, 1, 31}, 64 * 1501, 4},
                 {{1, 20, 1100}, {20, 16, 4}, 16 * 2201, 3}};
    for (int level = 0; level < IR_LEVEL_COUNT; level++)
        for (int i = 0; i < 5 && is_here(level); i++) {
            fusor_buffer in[2] = {{.dtype = FUSOR_F32, .rank = sizes[i].rank},
                                  {.dtype = FUSOR_F32, .rank = sizes[i].rank}};
            size_t n[2] = {1, 1};
            for (int d = 0; d < sizes[i].rank; d++) {
                in[0].shape[d] = sizes[i].x[d];
                in[1].shape[d] = sizes[i].w[d];
                n[0] *= (size_t)sizes[i].x[d];
                n[1] *= (size_t)sizes[i].w[d];
            }
            for (int b = 0; b < 2; b++) in[b].data = numbers(n[b], (uint32_t)b + 1);
            float *first = NULL;
            for (int threads = 1; threads <= 4; threads += 3) {
                fusor_context *ctx = new_context_for(ir_levels[level].name, threads);
                fusor_executable *exe = NULL;
                fusor_buffer out = {0};
                OK(fusor_compile_text(ctx, texts[i], NULL, &exe));
                OK(fusor_executable_call(exe, 2, in, 1, &out));
                const float *y = out.data;
                if (!first) {
                    first = malloc((size_t)sizes[i].made * sizeof *first);
                    memcpy(first, y, (size_t)sizes[i].made * sizeof *first);
                }
                for (int64_t e = 0; e < sizes[i].made; e++)
                    cr_assert_eq(y[e], first[e], "%d at %s, element %ld: %.9g, %.9g", i, ir_levels[level].name, (long)e,
                                 (double)y[e], (double)first[e]);
                fusor_buffer_free(ctx, &out);
                fusor_executable_free(exe);
                fusor_context_free(ctx);
            }
            free(first);
            free(in[0].data);
            free(in[1].data);
        }
}

/* Operands without pads are read where they lie: up to their last element, whatever is left of a row behind whole tiles
 * of columns. */
Test(conv, nothing_behind_the_operand_is_read) {
    enum { CHANNELS = 64, MOST = 4 };
    for (int level = 0; level < IR_LEVEL_COUNT; level++)
        for (int n = 43; n <= 99 && is_here(level); n += 2) {
            const int stride = 1 + n / 2 % 2, places = n % 3 ? 1 : 3, taken = (n - 1) * stride + places;
            char text[200];
            snprintf(text, sizeof text,
                     "func @f(%%x: f32[1, %d, %d], const %%w: f32[%d, %d, %d]) -> f32[?, ?, ?] { %%y = conv(%%x, %%w, "
                     "strides=[%d]) return %%y }",
                     CHANNELS, taken, CHANNELS, CHANNELS, places, stride);
            guarded map[2];
            const size_t all[2] = {(size_t)CHANNELS * (size_t)taken, (size_t)CHANNELS * CHANNELS * (size_t)places};
            float *x[2];
            for (int i = 0; i < 2; i++) {
                map[i] = guard_new(all[i] * sizeof *x[i], true);
                x[i] = (float *)(void *)map[i].data;
                for (size_t e = 0; e < all[i]; e++) x[i][e] = 1;
            }
            fusor_context *ctx = new_context_for(ir_levels[level].name, 1 + n / 2 % MOST);
            fusor_executable *exe = NULL;
            fusor_buffer in[2] = {FUSOR_BUFFER(x[0], FUSOR_F32, 1, CHANNELS, taken),
                                  FUSOR_BUFFER(x[1], FUSOR_F32, CHANNELS, CHANNELS, places)},
                         out = {0};
            OK(fusor_compile_text(ctx, text, NULL, &exe));
            OK(fusor_executable_call(exe, 2, in, 1, &out));
            for (int e = 0; e < CHANNELS * n; e++)
                cr_assert_eq(((float *)out.data)[e], (float)(CHANNELS * places), "%d columns at %s, element %d", n,
                             ir_levels[level].name, e);
            fusor_buffer_free(ctx, &out);
            fusor_executable_free(exe);
            fusor_context_free(ctx);
            for (int i = 0; i < 2; i++) guard_free(&map[i]);
        }
}

/* The tile of a convolution of one channel at v4, with what is behind it. */
static void check_tile(const char *sizes, const char *behind, int mr, int nr) {
    char text[400];
    snprintf(text, sizeof text,
             "func @f(%%x: f32[8, 1, %s], const %%w: f32[32, 1, 3, 3]) -> f32[?, ?, ?, ?] {"
             " %%c = conv(%%x, %%w) %%y = %s(%%c) return %%y }",
             sizes, behind);
    text_start();
    const ir_plan *p = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4});
    cr_assert(p->steps.n == 1 && p->steps.at[0].kernel->kind == IR_KERNEL_WINDOW);
    const ir_tile t = p->steps.at[0].kernel->tile;
    cr_expect(t.mr == mr && t.nr == nr, "%s of %s: %d x %d, not %d x %d", behind, sizes, t.mr, t.nr, mr, nr);
    text_stop();
}

Test(conv, columns_of_few_products_stay_in_registers) {
    check_tile("28, 28", "relu", 4, 32);
    check_tile("H, W", "relu", 4, 32);
    check_tile("14, 14", "relu", 8, 16);
    check_tile("28, 28", "gelu", 8, 32); /* through memory: more sums at once */
}

/* Is what a program does first a product of matrices whose weights are packed once? *n_steps: how many there are. */
static bool is_packed_product(const char *text, uint32_t *n_steps) {
    const ir_plan *p = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V4});
    *n_steps = p->steps.n;
    return p->steps.at[0].kernel->kind == IR_KERNEL_CONTRACT && p->steps.at[0].prepack_param == 1;
}

/* A plain product where the channels lie, one kernel with what follows; not where the result has other places or the
 * channels before them. */
static bool is_product(const char *to, const char *attrs, const char *returned) {
    char text[400];
    snprintf(text, sizeof text,
             "func @f(%%x: f32[N, 14, 14, 64], const %%w: f32[32, 64, 1, 1], %%b: f32[32]) -> f32[?, ?, ?, ?] {"
             " %%a = transpose(%%x, perm=%s) %%c = conv(%%a, %%w, %%b%s) %%r = relu(%%c)"
             " %%y = transpose(%%r, perm=[0, 2, 3, 1]) return %s }",
             to, attrs, returned);
    uint32_t n_steps;
    text_start();
    const bool is = is_packed_product(text, &n_steps) && n_steps == 1;
    text_stop();
    return is;
}

Test(conv, one_place_of_last_channels_is_a_product) {
    cr_expect(is_product("[0, 3, 1, 2]", "", "%y"));
    cr_expect(is_product("[0, -1, 1, 2]", ", pads=[0, 0, 0, 0]", "%y"));
    cr_expect(!is_product("[0, 3, 1, 2]", "", "%r"));
    cr_expect(!is_product("[0, 3, 2, 1]", "", "%y"));
    cr_expect(!is_product("[0, 3, 1, 2]", ", strides=[2, 2]", "%y"));
    cr_expect(!is_product("[0, 3, 1, 2]", ", pads=[0, 1, 0, 0]", "%y"));
}

/* Of the whole image, or of one place: a product of matrices, whose weights are packed once. */
static bool is_one_window(const char *x, const char *w, const char *call) {
    uint32_t n_steps;
    text_start();
    const bool is = is_packed_product(fu_format(&arena,
                                                "func @f(%%x: f32[%s], const %%w: f32[%s]) -> f32[?, ?, ?, ?] "
                                                "{ %%c = %s %%y = relu(%%c) return %%y }",
                                                x, w, call),
                                      &n_steps);
    text_stop();
    return is;
}

Test(conv, one_window_is_a_product) {
    cr_expect(is_one_window("N, 16, 5, 5", "120, 16, 5, 5", "conv(%x, %w)"));
    cr_expect(is_one_window("N, 16, 1, 1", "8, 16, 1, 1", "conv(%x, %w, strides=[3, 3])"));
    cr_expect(!is_one_window("N, 16, 5, 5", "120, 16, 4, 5", "conv(%x, %w)"));
    cr_expect(!is_one_window("N, 16, 5, 5", "120, 16, 5, 5", "conv(%x, %w, pads=[0, 1, 0, 1])"));
    cr_expect(!is_one_window("N, 16, 5, 5", "120, 8, 5, 5", "conv(%x, %w, groups=2)"));
    text_start(); /* one filter for each channel */
    const ir_plan *p = plan_text("func @f(%x: f32[N, 16, 7, 7], %w: f32[16, 1, 7, 7]) -> f32[N, 16, 1, 1] "
                                 "{ %y = conv(%x, %w, groups=16) return %y }",
                                 &(ir_plan_options){.level = IR_LEVEL_V4});
    cr_expect(p->steps.n == 1 && p->steps.at[0].kernel->kind == IR_KERNEL_REDUCE);
    text_stop();
    cr_expect(is_one_window("N, 100, 1, 1", "100, 64, 4, 4", "conv_transpose(%x, %w, strides=[2, 2])"));
    cr_expect(!is_one_window("N, 100, 1, 2", "100, 64, 4, 4", "conv_transpose(%x, %w, strides=[2, 2])"));
    cr_expect(!is_one_window("N, 100, 1, 1", "100, 64, 4, 4", "conv_transpose(%x, %w, pads=[1, 1, 1, 1])"));
}

/* Where there are tiles and those do not serve, products of pairs of bf16 are slower than fma, and the bits are the same. */
Test(conv, pairs_of_bf16_are_for_cpus_without_tiles) {
    const ir_target pairs = {IR_LEVEL_V4, IR_FEATURE_BF16}, tiles = {IR_LEVEL_V4, IR_FEATURE_BF16 | IR_FEATURE_AMXBF16};
    cr_expect_eq(ir_window_dot(pairs, FUSOR_BF16, FUSOR_BF16, FUSOR_F32), IR_DOT_BF16);
    cr_expect_eq(ir_window_dot(tiles, FUSOR_BF16, FUSOR_BF16, FUSOR_F32), IR_DOT_NONE);
    cr_expect_eq(ir_window_dot(tiles, FUSOR_F16, FUSOR_F16, FUSOR_F32), IR_DOT_NONE);
}

/* Places far apart are planes of their own, or the convolution is made by channel no more: nothing is as large as the
 * way between them. */
Test(conv, places_far_apart_make_no_large_slab) {
    static const ir_target targets[] = {{IR_LEVEL_V2, 0},
                                        {IR_LEVEL_V3, 0},
                                        {IR_LEVEL_V4, 0},
                                        {IR_LEVEL_V4, IR_FEATURE_BF16},
                                        {IR_LEVEL_V4, IR_FEATURE_BF16 | IR_FEATURE_AMXBF16}};
    static const char *const types[] = {"f32", "bf16"}, *const ops[] = {"conv", "conv_transpose"};
    enum { TARGETS = sizeof targets / sizeof *targets };
    for (int i = 0; i < 4 * TARGETS; i++) {
        char text[400];
        const char *type = types[i % 2];
        const ir_target *t = &targets[i / 4];
        snprintf(text, sizeof text,
                 "func @f(%%x: %s[2, 32, 4, 4], const %%w: %s[32, 32, 2, 2]) -> %s[?, ?, ?, ?] { %%c = %s(%%x, %%w, "
                 "dilations=[1048576, 1048574], pads=[524288, 524287, 524288, 524287]) return %%c }",
                 type, type, type, ops[i / 2 % 2]);
        text_start();
        const ir_plan *p = plan_text(text, &(ir_plan_options){.level = t->level, .features = t->features});
        for (uint32_t s = 0; s < p->steps.n; s++) {
            const ir_step *step = &p->steps.at[s];
            int64_t size[IR_KERNEL_MAX_DIMS], tune[IR_TUNE_COUNT];
            ir_launch launch;
            if (step->kind != IR_STEP_KERNEL) continue;
            for (int d = 0; d < step->kernel->n_dims; d++)
                cr_assert(ir_size_is_const(p->graph->sizes, step->dim[d], &size[d]));
            rt_tune(step->kernel, size, NULL, 1, tune);
            ir_kernel_launch(step->kernel, size, tune, &launch);
            cr_expect_lt(launch.scratch_bytes + launch.shared_bytes, 1 << 20, "%s: %ld and %ld bytes", text,
                         (long)launch.scratch_bytes, (long)launch.shared_bytes);
        }
        text_stop();
    }
}

/* Steps of tiles are filled by places where channels are few, unless fma is quicker: -1; the same where another kernel
 * converts the operands, so that fusing changes no bits. */
static int axes_taken_for_channels(const char *body, bool no_fuse) {
    char text[400];
    snprintf(text, sizeof text, "func @f(%%x: bf16[1, %s return %%c }", body);
    text_start();
    const ir_plan *p = plan_text(
        text,
        &(ir_plan_options){.level = IR_LEVEL_V4, .features = IR_FEATURE_BF16 | IR_FEATURE_AMXBF16, .no_fuse = no_fuse});
    int found = -1;
    for (uint32_t s = 0; s < p->steps.n; s++) {
        const ir_step *step = &p->steps.at[s];
        if (step->kind == IR_STEP_KERNEL && step->kernel->kind == IR_KERNEL_WINDOW && ir_window_is_tiled(step->kernel))
            found = step->kernel->n_folded;
    }
    text_stop();
    return found;
}

Test(conv, few_channels_take_places_for_channels) {
    static const struct {
        const char *body;
        int axes;
    } shapes[] = {
#define CONV(sizes, weights, attrs) sizes "], %w: bf16[" weights "]) -> bf16[?, ?, ?, ?] { %c = conv(%x, %w" attrs ")"
        {CONV("64, 56, 56", "64, 64, 3, 3", ""), 0},
        {CONV("3, 224, 224", "64, 3, 7, 7", ", strides=[2, 2], pads=[3, 3, 3, 3]"), 1},
        {CONV("8, 56, 56", "32, 8, 3, 3", ", pads=[1, 1, 1, 1]"), 1},
        {CONV("3, 224, 224", "32, 3, 3, 3", ", strides=[2, 2]"), 2},
        {CONV("3, 224, 224", "96, 3, 4, 4", ", strides=[4, 4]"), 2},
        {CONV("1, 28, 28", "16, 1, 3, 3", ""), -1},
        {CONV("8, 56, 56", "16, 8, 1, 1", ""), -1},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int no_fuse = 0; no_fuse < 2; no_fuse++)
            cr_expect_eq(axes_taken_for_channels(shapes[i].body, no_fuse), shapes[i].axes, "%s: %d", shapes[i].body,
                         axes_taken_for_channels(shapes[i].body, no_fuse));
}
