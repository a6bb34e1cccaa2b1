/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* last_test.c: images whose channels lie last: convolutions that read or make them (plan_window.c, jit/window_slab.c),
 * which of a network's images become such (ir/pass_channels.c), and that no bit depends on it. */
#include "../host_level.h"
#include "../share.h"
#include "api_test.h"
#include "plan_test.h"
#include <stdio.h>
#include <stdlib.h>

TestSuite(last, .init = text_start, .fini = text_stop);

#define LAST  "%t = transpose(%x, perm=[0, 3, 1, 2]) "
#define BACK  "%u = transpose(%y, perm=[0, 2, 3, 1]) "
#define IMAGE "f32[?, ?, ?, ?]"

typedef struct census {
    int steps, products, read_last; /* kernels; matrix products; convolutions that turn what they read */
} census;

static census count(const char *text, const ir_plan_options *options) {
    const ir_plan *p = plan_text(text, options);
    census n = {.steps = (int)p->steps.n};
    for (uint32_t i = 0; i < p->steps.n; i++) {
        if (p->steps.at[i].kind != IR_STEP_KERNEL) continue;
        n.products += p->steps.at[i].kernel->kind == IR_KERNEL_CONTRACT;
        n.read_last += p->steps.at[i].kernel->has_last;
    }
    return n;
}

static void expect(const char *text, int steps, int products, int read_last) {
    for (ir_level level = IR_LEVEL_V2; level <= IR_LEVEL_V4; level++) {
        const census n = count(text, &(ir_plan_options){.level = level});
        cr_expect(n.steps == steps && n.products == products && n.read_last == read_last,
                  "%s at %s: %d kernels, %d products, %d read", text, ir_levels[level].name, n.steps, n.products,
                  n.read_last);
    }
}

/* As they are written in other frameworks: one kernel, without copies before or behind it. */
Test(last, convolutions_between_transposes_are_one_kernel) {
    expect("func @f(%x: f32[2, 14, 14, 128], %w: f32[128, 128, 3, 3]) -> " IMAGE " { " LAST
           "%y = conv(%t, %w, pads=[1, 1, 1, 1]) " BACK "return %u }",
           1, 0, 1);
    expect("func @f(%x: f32[2, 14, 14, 128], %w: f32[128, 128, 3, 3], %b: f32[128], %r: f32[2, 14, 14, 128]) -> " IMAGE
           " { " LAST "%y = conv(%t, %w, %b, pads=[1, 1, 1, 1]) " BACK "%s = add(%u, %r) %z = relu(%s) return %z }",
           1, 0, 1);
    /* one place: a product, with strides of rows that lie apart, or are stored in order where they are few */
    expect("func @f(%x: f32[2, 14, 14, 128], %w: f32[64, 128, 1, 1]) -> " IMAGE " { " LAST "%y = conv(%t, %w) " BACK
           "return %u }",
           1, 1, 0);
    expect("func @f(%x: f32[2, 56, 56, 128], %w: f32[64, 128, 1, 1]) -> " IMAGE " { " LAST
           "%y = conv(%t, %w, strides=[2, 2]) " BACK "return %u }",
           1, 1, 0);
    expect("func @f(%x: f32[2, 14, 14, 128], %w: f32[64, 128, 1, 1]) -> " IMAGE " { " LAST
           "%y = conv(%t, %w, strides=[2, 2]) " BACK "return %u }",
           2, 1, 0);
    /* channels that are no whole vectors are turned before */
    expect("func @f(%x: f32[2, 14, 14, 100], %w: f32[128, 100, 3, 3]) -> " IMAGE " { " LAST
           "%y = conv(%t, %w, pads=[1, 1, 1, 1]) " BACK "return %u }",
           2, 0, 0);
}

/* A block of a residual network, of images of `in` channels, and `inner` in between. */
#define BLOCK(in, inner)                                                                                               \
    "func @f(%x: f32[1, 16, 14, 14], %a: f32[" inner ", " in ", 1, 1], %b: f32[" inner ", " inner                      \
    ", 3, 3], %c: f32[" in ", " inner ", 1, 1], %d: f32[" in "], %e: f32[" inner ", " in ", 1, 1], %g: f32[" in        \
    ", 16, 1, 1]) -> " IMAGE " { %p = conv(%x, %g, %d) %i = relu(%p) %h = conv(%i, %a) %j = relu(%h) "                 \
    "%k = conv(%j, %b, pads=[1, 1, 1, 1]) %l = relu(%k) %m = conv(%l, %c, %d) %n = add(%m, %i) %o = relu(%n) "
#define TAIL  "%q = conv(%o, %e) %r = relu(%q) %s = conv(%r, %b, pads=[1, 1, 1, 1]) return %s }"
#define FIRST "%q = conv(%x, %b, pads=[1, 1, 1, 1]) %r = relu(%q) "

Test(last, images_between_enough_products_are_such) {
    /* the first convolution makes one, the last one makes planes of one */
    expect(BLOCK("256", "64") TAIL, 6, 3, 2);
    const ir_plan_options apart = {.level = IR_LEVEL_V4, .no_fuse = true};
    cr_expect_eq(count(BLOCK("256", "64") TAIL, &apart).read_last, 0);
    cr_expect_eq(count(BLOCK("256", "64") TAIL, &apart).products, 0);
    /* channels that are no whole vectors; a result, and what it is added up with */
    expect(BLOCK("120", "60") TAIL, 6, 0, 0);
    expect(BLOCK("256", "64") "return %o }", 4, 0, 0);
    /* few products of matrices among the work */
    expect("func @f(%x: f32[1, 64, 14, 14], %b: f32[64, 64, 3, 3], %a: f32[64, 64, 1, 1]) -> " IMAGE " { " FIRST
           "%s = conv(%r, %a) %t = relu(%s) %u = conv(%t, %b, pads=[1, 1, 1, 1]) %v = relu(%u) "
           "%y = conv(%v, %b, pads=[1, 1, 1, 1]) return %y }",
           4, 0, 0);
}

/* ---- bits ---- */
enum { MAX_IN = 8 };

/* The result's bytes, of inputs that are what their number says. */
static size_t run(const char *text, const char *level, int threads, uint32_t flags, void **out) {
    const ir_plan *p = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V2});
    fusor_context *ctx = new_context_for(level, threads);
    fusor_buffer in[MAX_IN];
    const int n_in = (int)p->graph->params.n;
    cr_assert_leq(n_in, MAX_IN);
    for (int i = 0; i < n_in; i++) {
        const ir_node *n = ir_at(p->graph, p->graph->params.at[i].node);
        int64_t count = 1;
        in[i] = (fusor_buffer){.dtype = n->dtype, .rank = n->rank};
        for (int d = 0; d < n->rank; d++) {
            cr_assert(ir_size_is_const(p->graph->sizes, n->dim[d], &in[i].shape[d]));
            count *= in[i].shape[d];
        }
        in[i].data = malloc((size_t)count * 8);
        for (int64_t j = 0; j < count; j++) {
            const double v = (double)((j * 37 + i * 11) % 1009 - 504) / 2048;
            if (n->dtype == FUSOR_F64) ((double *)in[i].data)[j] = v;
            else ((float *)in[i].data)[j] = (float)v;
        }
    }
    fusor_executable *exe = compiled_with(ctx, text, flags);
    const size_t bytes = bytes_after_calls(ctx, exe, 2, n_in, in, out);
    for (int i = 0; i < n_in; i++) free(in[i].data);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
    return bytes;
}

static void same_bits(const char *text) {
    static uint64_t number;
    for (int level = IR_LEVEL_V2; level <= IR_LEVEL_V4; level++) {
        void *fused, *apart;
        if (!host_has_level(level) || !is_in_mixed_share(number++)) continue;
        const size_t a = run(text, ir_levels[level].name, 1 + level % 3, 0, &fused),
                     b = run(text, ir_levels[level].name, 1, FUSOR_NO_FUSE, &apart);
        cr_expect(a == b && memcmp(fused, apart, a) == 0, "%s at %s", text, ir_levels[level].name);
        free(fused);
        free(apart);
    }
}

/* Rows of fewer places than a vector, of whole vectors, of some more; pads on all sides or one; strides. */
Test(last, bits_of_convolutions) {
    static const struct {
        int n, y, x, taken, made, places;
        const char *how;
    } shapes[] = {
        {2, 9, 13, 32, 48, 3, "pads=[1, 1, 1, 1]"},
        {1, 7, 7, 64, 64, 3, "pads=[1, 1, 1, 1]"},
        {1, 6, 32, 32, 40, 3, "pads=[0, 1, 2, 0]"},
        {1, 5, 35, 16, 33, 5, "pads=[2, 2, 2, 2]"},
        {2, 11, 17, 32, 32, 3, "strides=[2, 2]"},
        {1, 8, 3, 48, 64, 2, "pads=[1, 0, 0, 1]"},
        {1, 12, 20, 32, 64, 3, "dilations=[2, 2]"},
        {1, 10, 16, 64, 32, 1, "pads=[1, 1, 0, 0]"},
        {2, 10, 22, 64, 32, 1, "strides=[2, 3]"},
        {3, 2, 7, 16, 16, 3, "strides=[3, 2], pads=[3, 3, 3, 3]"},
        {2, 1, 7, 32, 32, 5, "strides=[2, 1], pads=[4, 2, 4, 2]"},
        {1, 4, 1, 64, 64, 3, "pads=[1, 1, 1, 1]"},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int form = 1; form < 4; form++) { /* reads, makes such images */
            const bool reads = form & 1, makes = form & 2;
            char x[64];
            snprintf(x, sizeof x, reads ? "%d, %d, %d, %d" : "%1$d, %4$d, %2$d, %3$d", shapes[i].n, shapes[i].y,
                     shapes[i].x, shapes[i].taken);
            same_bits(fu_format(&arena,
                                "func @f(%%x: f32[%s], %%w: f32[%d, %d, %d, %d], %%b: f32[%d]) -> " IMAGE
                                " { %s %%y = conv(%s, %%w, %%b, %s) %s %%z = silu(%s) return %%z }",
                                x, shapes[i].made, shapes[i].taken, shapes[i].places, shapes[i].places, shapes[i].made,
                                reads ? LAST : "", reads ? "%t" : "%x", shapes[i].how, makes ? BACK : "",
                                makes ? "%u" : "%y"));
        }
    same_bits("func @f(%x: f64[1, 9, 13, 24], %w: f64[20, 24, 3, 3]) -> f64[?, ?, ?, ?] { " LAST
              "%y = conv(%t, %w, pads=[1, 1, 1, 1]) " BACK "return %u }");
    same_bits("func @f(%x: f32[2, 29, 32], %w: f32[32, 32, 5]) -> f32[?, ?, ?] { %t = transpose(%x, perm=[0, 2, 1]) "
              "%y = conv(%t, %w, pads=[2, 2]) %u = transpose(%y, perm=[0, 2, 1]) return %u }");
    same_bits("func @f(%x: f32[1, 9, 13, 32], %w: f32[48, 32, 3, 3], %r: f32[1, 48, 9, 13], %q: f32[1, 9, 13, 48]) -> "
              "(" IMAGE ") { " LAST "%y = conv(%t, %w, pads=[1, 1, 1, 1]) %s = add(%y, %r) "
              "%u = transpose(%s, perm=[0, 2, 3, 1]) %v = mul(%u, %q) return %v }");
}

Test(last, bits_of_networks) {
    static const char *const rest[] = {
        TAIL,
        "%q = conv(%o, %e) %r = relu(%q) %s = conv(%r, %b, pads=[1, 1, 1, 1], strides=[2, 2]) return %s }",
        "%q = conv(%o, %a, strides=[2, 2]) %r = sigmoid(%q) %s = conv(%r, %c, %d) return %s }",
        /* reductions in the order that they have without */
        "%q = reduce_mean(%o, axes=[2, 3], keepdims=true) return %q }",
        "%q = reduce_sum(%o, axes=[3]) %r = conv(%o, %e) %s = reduce_mean(%r, axes=[2, 3], keepdims=true) "
        "%t = reduce_max(%s, axes=[0, 1], keepdims=true) %u = reshape(%q, shape=[1, 1, 256, 14]) %v = add(%u, %t) "
        "return %v }",
        "%q = reduce_sum(%o, axes=[1], keepdims=true) return %q }",
        "%q = max_pool(%o, kernel=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]) %r = conv(%q, %e) %s = relu(%r) "
        "%t = conv(%s, %c) %u = average_pool(%t, kernel=[2, 2]) return %u }",
        "%q = softmax(%o, axis=3) %r = conv(%o, %e) %s = reduce_sum(%r, axes=[2]) return %q }",
        /* numbers for each channel, of an image */
        "%q = reduce_mean(%o, axes=[2, 3], keepdims=true) %r = sigmoid(%q) %s = mul(%o, %r) %t = conv(%s, %e) "
        "%u = relu(%t) %v = conv(%u, %b) return %v }",
        "%q = reshape(%d, shape=[256, 1, 1]) %r = mul(%o, %q) %s = add(%q, %r) %t = conv(%s, %e) %u = relu(%t) "
        "%v = conv(%u, %b) return %v }",
        "%q = pow(2.0, %o) %r = clamp(%q, -1.0, 1.5) %s = conv(%r, %e) return %s }",
    };
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        same_bits(fu_format(&arena, "%s%s", BLOCK("256", "64"), rest[i]));
}

/* A transpose of the user's is read as it is written. */
Test(last, bits_of_images_that_are_transposed_elsewhere) {
    same_bits("func @f(%x: f32[1, 14, 14, 64], %w: f32[64, 64, 1, 1], %v: f32[64, 64, 1, 1]) -> f32[?, ?, ?, ?] { " LAST
              "%a = conv(%t, %w) %b = relu(%a) %c = conv(%b, %v) %d = relu(%c) %e = conv(%d, %w) "
              "%y = reduce_mean(%d, axes=[2, 3], keepdims=true) %z = add(%e, %y) return %z }");
    same_bits("func @f(%x: f32[1, 64, 14, 14], %w: f32[64, 64, 1, 1], %v: f32[64, 64, 1, 1]) -> f32[?, ?, ?] { "
              "%a = conv(%x, %w) %b = relu(%a) %c = conv(%b, %v) %d = relu(%c) %e = conv(%d, %w) "
              "%y = transpose(%e, perm=[0, 2, 3, 1]) %z = reduce_sum(%y, axes=[3]) return %z }");
}
