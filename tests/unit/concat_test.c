/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* concat_test.c: concatenations that lie where their operands are made (ir/plan_concat.c): which do, that nothing else
 * moves, and that the bits are those of a kernel that copies. */
#include "../host_level.h"
#include "api_test.h"
#include "plan_test.h"
#include <stdio.h>
#include <stdlib.h>

TestSuite(concat, .init = text_start, .fini = text_stop);

#define PARAMS                                                                                                         \
    "%x: f32[1, 8, H, 24], %w: f32[16, 8, 3, 3], %v: f32[12, 8, 1, 1], %u: f32[8, 28, 3, 3], %t: f32[1, 4, H, 24], "   \
    "%y: f32[N, 8, H, 24], %k: f32[16, 8, 3, 3], %j: f32[8, 44, 3, 3], "                                               \
    "const %g: f32[16, 8, 3, 3]"
#define CONVS "%a = conv(%x, %w, pads=[1, 1, 1, 1]) %b = conv(%x, %v) "
#define ONE   "f32[?, ?, ?, ?]"
#define LAST  "%r = conv(%c, %u, pads=[1, 1, 1, 1]) return %r"

#define NESTED                                                                                                         \
    CONVS "%d = conv(%x, %k, pads=[1, 1, 1, 1]) %c = concat(%b, %d, axis=1) %e = concat(%a, %c, axis=1) "              \
          "%f = conv(%c, %u) %h = conv(%e, %j) %r = add(%f, %h) return %r"

static const ir_plan *plan_of(const char *results, const char *body, bool no_fuse) {
    const char *text = fu_format(&arena, "func @f(%s) -> %s { %s }", PARAMS, results, body);
    return plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V3, .no_fuse = no_fuse});
}

static int parts_of(const ir_plan *p) {
    int n = 0;
    for (uint32_t i = 0; i < p->buffers.n; i++) n += p->buffers.at[i].part_of >= 0 && !p->buffers.at[i].is_over;
    return n;
}

#define EXPECT(steps_, parts_, results, body)                                                                          \
    do {                                                                                                               \
        const ir_plan *p = plan_of(results, body, false);                                                              \
        cr_expect(p->steps.n == (steps_) && parts_of(p) == (parts_), "%s: %u steps, %d parts", body, p->steps.n,       \
                  parts_of(p));                                                                                        \
    } while (0)

Test(concat, what_kernels_store_is_stored_in_the_concatenation) {
    EXPECT(3, 2, ONE, CONVS "%c = concat(%a, %b, axis=1) " LAST);
    EXPECT(3, 2, ONE, CONVS "%p = relu(%a) %c = concat(%b, %p, axis=1) " LAST);
    EXPECT(2, 2, ONE, CONVS "%c = concat(%a, %b, axis=1) return %c"); /* in the caller's memory */
    EXPECT(4, 2, "(" ONE ", " ONE ")",
           CONVS "%c = concat(%a, %b, axis=1) %q = max_pool(%a, kernel=[3, 3]) %r = conv(%c, %u) return %r, %q");
    /* one of what is computed where it is read has a map of its own */
    EXPECT(4, 2, ONE, CONVS "%p = max_pool(%b, kernel=[3, 3], pads=[1, 1, 1, 1]) %c = concat(%a, %p, axis=1) " LAST);
    /* a concatenation in another one */
    EXPECT(5, 4, ONE, NESTED);
    /* along the first axis, of any sizes; in another shape */
    EXPECT(3, 2, ONE,
           "%z = cumsum(%w, axis=1) %q = cumsum(%k, axis=2) %c = concat(%z, %q, axis=0) %r = conv(%x, %c) return %r");
    EXPECT(3, 2, ONE,
           "%s = reshape(%w, shape=[16, 72]) %z = cumsum(%s, axis=1) %q = reshape(%z, shape=[16, 8, 3, 3]) "
           "%p = cumsum(%k, axis=2) %c = concat(%q, %p, axis=0) %r = conv(%x, %c) return %r");
}

Test(concat, what_lies_elsewhere_is_copied) {
    EXPECT(4, 0, ONE,
           "%a = conv(%y, %w, pads=[1, 1, 1, 1]) %b = conv(%y, %v) %c = concat(%a, %b, axis=1) " LAST); /* images */
    EXPECT(3, 0, ONE,
           "%a = conv(%x, %v) %b = conv(%x, %v) %d = slice(%b, starts=[0], ends=[12], axes=[1]) "
           "%c = concat(%t, %a, %d, axis=1) " LAST); /* a parameter; one value twice */
    EXPECT(3, 0, "(" ONE ", " ONE ")", CONVS "%c = concat(%a, %b, axis=1) return %c, %a"); /* a result itself */
    EXPECT(4, 0, "(f32[?, ?], " ONE ")", /* made of constants, and packed once for a product too */
           "%s = reshape(%g, shape=[16, 72]) %d = softmax(%s, axis=1) %m = reshape(%u, shape=[28, 72]) "
           "%o = matmul(%m, %d, transpose_b=true) %z = cumsum(%w, axis=1) %q = reshape(%d, shape=[16, 8, 3, 3]) "
           "%c = concat(%q, %z, axis=0) return %o, %c");
    EXPECT(4, 0, ONE, CONVS "%c = concat(%a, %b, axis=1, barrier=true) " LAST); /* named by a hint */
    cr_expect_eq(parts_of(plan_of(ONE, CONVS "%c = concat(%a, %b, axis=1) " LAST, true)), 0);
}

/* Values that the map of a concatenation computes for two of its operands may be asked to be in one kernel. */
Test(concat, wishes_for_its_map_are_met) {
    const ir_plan *p =
        plan_of(ONE,
                "%a = conv(%x, %w, pads=[1, 1, 1, 1]) %p = mul(%t, 2.0) %n = add(%p, 1.0) "
                "%q = mul(%t, 3.0, fuse_with=%p) %m = exp(%q) %s = slice(%a, starts=[0], ends=[20], axes=[1]) "
                "%c = concat(%a, %n, %m, axis=1) %v1 = slice(%c, starts=[0], ends=[20], axes=[1]) "
                "%z = cumsum(%c, axis=1) %r = slice(%z, starts=[2], ends=[4], axes=[1]) return %r",
                false);
    cr_expect_eq(parts_of(p), 0);
}

Test(concat, a_part_of_a_part_lives_as_long_as_the_whole) {
    const ir_plan *p = plan_of(ONE, NESTED, false);
    int whole = -1;
    for (uint32_t i = 0; i < p->buffers.n; i++) {
        const ir_plan_buffer *b = &p->buffers.at[i];
        for (int of = b->part_of; of >= 0; of = p->buffers.at[of].part_of) {
            cr_expect(p->buffers.at[of].first_step <= b->first_step && p->buffers.at[of].last_step >= b->last_step);
            whole = of;
        }
    }
    cr_assert(whole >= 0);
    cr_expect_eq(p->buffers.at[whole].first_step, 0, "from the first of its parts on");
}

Test(concat, boundaries_are_those_of_the_parts) {
    const ir_plan *p = plan_of(ONE,
                               CONVS "%p = max_pool(%b, kernel=[3, 3], pads=[1, 1, 1, 1]) "
                                     "%c = concat(%a, %p, axis=1) " LAST,
                               false);
    bool has[IR_REASON_COUNT] = {false};
    for (uint32_t i = 0; i < p->boundaries.n; i++) {
        cr_expect_lt(p->boundaries.at[i].from, p->boundaries.at[i].to);
        has[p->boundaries.at[i].reason] = true;
    }
    cr_expect(has[IR_REASON_TWO_CONTRACTIONS] && has[IR_REASON_PART]);
}

/* ---- bits ---- */
/* x within a frame of another value, and that within another one: more conditions than a kernel knows of at once. */
#define FRAME(op, from, to)                                                                                            \
    "%n" to " = " op "(%s" from ") %s" to " = pad(%n" to ", pads=[1, 1, 1, 1, 1, 1, 1, 1], value=" to ") "
#define FRAMES(a, b, c, d, e) FRAME("neg", a, b) FRAME("square", b, c) FRAME("abs", c, d) FRAME("sqrt", d, e)

static const char *const programs[] = {
    CONVS "%c = concat(%a, %b, axis=1) " LAST,
    CONVS
    "%p = silu(%b) %c = concat(%p, %a, axis=1) %m = max_pool(%c, kernel=[3, 3], strides=[2, 2]) "
    "%d = conv(%c, %u) %s = slice(%m, starts=[0], ends=[8], axes=[1]) %o = reduce_mean(%s, axes=[2, 3], keepdims=true) "
    "%r = mul(%d, %o) return %r",
    CONVS "%p = max_pool(%b, kernel=[3, 3], pads=[1, 1, 1, 1]) %q = pad(%p, pads=[0, 0, 0, 0, 0, 0, 0, 0]) "
          "%c = concat(%a, %q, axis=1) " LAST,
    NESTED,
    "%z = cumsum(%w, axis=1) %q = cumsum(%k, axis=2) %c = concat(%z, %q, axis=0) %r = conv(%x, %c) return %r",
    CONVS "%d = conv(%x, %k, pads=[1, 1, 1, 1]) %c = concat(%b, %d, axis=1) %f = conv(%c, %u, pads=[1, 1, 1, 1]) "
          "%e = concat(%f, %c, %a, axis=1) return %e",
    CONVS "%c = concat(%b, %a, axis=1) return %c",
    "%z = cumsum(%x, axis=3) %q = softmax(%x, axis=3) %c = concat(%z, %q, %z, axis=1) %s = cumsum(%c, axis=2) return "
    "%s",
    "%z = cumsum(%x, axis=3) %q = softmax(%x, axis=3) %c = concat(%z, %q, axis=0) %s = cumsum(%c, axis=0) return %s",
    "%c = concat(%y, %y, axis=3) %s0 = sin(%c) " FRAMES("0", "1", "2", "3", "4") FRAMES("4", "5", "6", "7", "8")
        FRAMES("8", "9", "10", "11", "12") "return %s12",
};
enum { PROGRAMS = sizeof programs / sizeof *programs, N_IN = 9, ROWS = 18, ROOM = 1 << 15 };

static fusor_buffer tensor(const int64_t *shape, float *data, uint64_t seed) {
    fusor_buffer b = {.data = data, .dtype = FUSOR_F32, .rank = 4};
    int64_t n = 1;
    for (int d = 0; d < 4; d++) n *= b.shape[d] = shape[d];
    cr_assert_leq(n, ROOM);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        data[i] = (float)((int64_t)(seed >> 33) % 1001 - 500) / 1024;
    }
    return b;
}

/* The result's elements: three times in memory that fusor makes, then in every other element of the caller's. */
static size_t run(const char *body, const char *level, int threads, uint32_t flags, float **out) {
    static float room[N_IN][ROOM];
    static const int64_t shape[N_IN][4] = {{1, 8, ROWS, 24}, {16, 8, 3, 3},    {12, 8, 1, 1},
                                           {8, 28, 3, 3},    {1, 4, ROWS, 24}, {2, 8, ROWS, 24},
                                           {16, 8, 3, 3},    {8, 44, 3, 3},    {16, 8, 3, 3}};
    char text[1800];
    snprintf(text, sizeof text, "func @f(%s) -> %s { %s }", PARAMS, ONE, body);
    fusor_context *ctx = new_context_for(level, threads);
    fusor_buffer in[N_IN], y = {.data = NULL}, strided = {.data = NULL};
    for (int i = 0; i < N_IN; i++) in[i] = tensor(shape[i], room[i], (uint64_t)i + 1);
    fusor_executable *exe = compiled_with(ctx, text, flags);
    for (int again = 0; again < 3; again++) { /* what the call before left in its temporaries is there */
        fusor_buffer_free(ctx, &y);
        y = (fusor_buffer){.data = NULL};
        OK(fusor_executable_call(exe, N_IN, in, 1, &y));
    }
    int64_t n = 1;
    for (int d = 0; d < y.rank; d++) n *= y.shape[d];
    *out = malloc((size_t)n * sizeof **out + 1);
    memcpy(*out, y.data, (size_t)n * sizeof **out);
    float *gaps = malloc((size_t)n * 2 * sizeof *gaps + 1); /* the caller's, with gaps */
    strided = (fusor_buffer){.data = gaps, .dtype = FUSOR_F32, .rank = y.rank, .flags = FUSOR_STRIDED};
    int64_t apart = 2;
    for (int d = y.rank - 1; d >= 0; d--) {
        strided.shape[d] = y.shape[d];
        strided.stride[d] = apart;
        apart *= y.shape[d];
    }
    OK(fusor_executable_call(exe, N_IN, in, 1, &strided));
    for (int64_t i = 0; i < n; i++) cr_assert(memcmp(&gaps[2 * i], &(*out)[i], sizeof *gaps) == 0, "%s", body);
    free(gaps);
    fusor_buffer_free(ctx, &y);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
    return (size_t)n * sizeof **out;
}

Test(concat, the_bits_are_those_of_copies) {
    for (int level = IR_LEVEL_V2; level <= IR_LEVEL_V4; level++) {
        if (!host_has_level(level)) continue;
        for (int i = 0; i < PROGRAMS; i++) {
            float *fused, *apart;
            const size_t a = run(programs[i], ir_levels[level].name, 1 + (i + level) % 3, 0, &fused),
                         b = run(programs[i], ir_levels[level].name, 1, FUSOR_NO_FUSE, &apart);
            cr_expect(a == b && memcmp(fused, apart, a) == 0, "program %d at %s", i, ir_levels[level].name);
            free(fused);
            free(apart);
        }
    }
}
