/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* over_test.c: values that take the place of what they are made of (plan_write_over of ir/plan_memory.c): which do, how
 * long that memory lives, and that the bits are those of memory of their own. */
#include "../host_level.h"
#include "api_test.h"
#include "plan_test.h"
#include <stdio.h>
#include <stdlib.h>

TestSuite(over, .init = text_start, .fini = text_stop);

#define PARAMS                                                                                                         \
    "%x: f32[M, 48], %w: f32[48, 48], %v: f32[48, 48], %i: f32[1, 48, 14, 14], %f: f32[64, 48, 1, 1], "                \
    "%g: f32[64, 64, 3, 3], %h: f32[20, 48, 1, 1], %k: f32[20, 20, 3, 3]"
#define PRODUCTS "%a = matmul(%x, %w) %b = matmul(%x, %v) "
#define SQUARE   "%a = matmul(%x, %w, transpose_a=true) %b = matmul(%a, %v) " /* M is 48 there */
#define CONVS    "%a = conv(%i, %f) %b = conv(%a, %g, pads=[1, 1, 1, 1]) "
#define NARROW(COLUMNS)                                                                                                \
    "%j = slice(%i, starts=[0, 0, 0, 0], ends=[1, 48, 7, " COLUMNS "]) %a = conv(%j, %f) "                             \
    "%b = conv(%a, %g, pads=[1, 1, 1, 1]) "

static const ir_plan *plan_of(const char *result, const char *body, ir_level level, bool no_fuse) {
    const char *text = fu_format(&arena, "func @f(%s) -> %s { %s }", PARAMS, result, body);
    return plan_text(text, &(ir_plan_options){.level = level, .no_fuse = no_fuse});
}

static int over_of(const ir_plan *p) {
    int n = 0;
    for (uint32_t i = 0; i < p->buffers.n; i++) {
        const ir_plan_buffer *b = &p->buffers.at[i];
        if (!b->is_over) continue;
        const ir_plan_buffer *of = &p->buffers.at[b->part_of];
        n++;
        cr_expect(b->part_of >= 0 && of->storage == IR_STORE_TEMP && of->first_step < b->first_step &&
                  of->last_step >= b->last_step);
    }
    return n;
}

#define EXPECT(n, result, body)                                                                                        \
    do {                                                                                                               \
        const int got = over_of(plan_of(result, body, IR_LEVEL_V4, false));                                            \
        cr_expect(got == (n), "%s: %d", body, got);                                                                    \
    } while (0)

#define MATRIX "f32[?, ?]"
#define IMAGES "f32[?, ?, ?, ?]"

Test(over, what_a_kernel_is_the_last_to_read_is_written_over) {
    EXPECT(1, MATRIX, PRODUCTS "%c = matmul(%b, %w) %d = add(%c, %a) %r = matmul(%d, %v) return %r");
    EXPECT(2, MATRIX,
           PRODUCTS /* one after the other */
           "%c = matmul(%b, %w) %d = add(%c, %a) %e = matmul(%d, %v) %s = add(%e, 1.0) %t = matmul(%s, %w) "
           "%u = add(%t, %d) %r = matmul(%u, %v) return %r");
    EXPECT(1, MATRIX, PRODUCTS "%c = add(%a, %b, barrier=true) %r = matmul(%c, %v) return %r"); /* a map */
    EXPECT(1, "i64[?, ?]",
           PRODUCTS "%s = add(%a, %b) %c = cast(%s, i32, barrier=true) %r = cumsum(%c, axis=0) return %r");
    EXPECT(1, IMAGES, CONVS "%c = conv(%b, %g, pads=[1, 1, 1, 1]) %d = add(%c, %a) %e = conv(%d, %g) return %e");
    /* a concatenation of parts */
    EXPECT(1, MATRIX,
           PRODUCTS "%c = concat(%a, %b, axis=0) %e = matmul(%c, %w) %z = matmul(%e, %v) "
                    "%d = add(%z, %c) %r = matmul(%d, %w) return %r");
}

Test(over, what_is_read_elsewhere_or_otherwise_stays) {
    EXPECT(0, MATRIX, PRODUCTS "%c = add(%a, %b, barrier=true) return %c"); /* a result is the caller's */
    EXPECT(0, MATRIX, PRODUCTS "%c = matmul(%b, %w) %d = add(%c, %b) %r = matmul(%d, %a, transpose_b=true) return %r");
    EXPECT(0, MATRIX,
           SQUARE "%t = transpose(%a, perm=[1, 0]) %c = matmul(%b, %w) %d = add(%c, %t) "
                  "%r = matmul(%d, %v) return %r");
    EXPECT(0, "f16[?, ?]",
           PRODUCTS "%s = add(%a, %b) %c = cast(%s, f16, barrier=true) %r = cumsum(%c, axis=0) return %r");
    EXPECT(0, MATRIX,
           PRODUCTS "%c = add(%a, %b, barrier=true) %d = matmul(%c, %a, transpose_b=true) "
                    "%r = matmul(%d, %b) return %r");
    EXPECT(0, MATRIX,
           PRODUCTS "%c = matmul(%b, %w) %d = add(%c, %a) %e = softmax(%d, axis=1) " /* rows, once more */
                    "%r = matmul(%e, %v) return %r");
    /* a part of a concatenation that is read later */
    EXPECT(0, MATRIX,
           "%a = cumsum(%x, axis=0) %b = cumsum(%x, axis=1) %c = concat(%a, %b, axis=0) "
           "%d = exp(%a, barrier=true) %e = cumsum(%d, axis=1) %s = reduce_sum(%c, axes=[0]) "
           "%r = add(%e, %s) return %r");
    /* by columns, the last of 20 channels are made twice */
    EXPECT(0, IMAGES,
           "%a = conv(%i, %h) %b = exp(%a, barrier=true) %q = cumsum(%a, axis=3) %z = cumsum(%b, axis=3) "
           "%c = conv(%q, %k, pads=[1, 1, 1, 1], strides=[1, 1]) %d = add(%c, %z) "
           "%e = cumsum(%d, axis=2) return %e");
    cr_expect_eq(over_of(plan_of(MATRIX, PRODUCTS "%c = matmul(%b, %w) %d = add(%c, %a) %r = matmul(%d, %v) return %r",
                                 IR_LEVEL_V4, true)),
                 0);
}

/* Two results of a product: the second value reads its residual when the first one is stored. */
Test(over, a_product_with_two_results_has_memory_for_both) {
    EXPECT(0, MATRIX,
           "%a = matmul(%x, %w) %b = matmul(%a, %v) %c = matmul(%b, %w) %d = relu(%c) %e = add(%c, %a) "
           "%s = matmul(%d, %v) %t = matmul(%e, %w) %r = sub(%s, %t) return %r");
}

/* A whole that is read beside one of its parts is not written over. */
Test(over, parts_are_read_where_the_whole_is) {
    const ir_plan *p = plan_of(MATRIX,
                               PRODUCTS "%c = concat(%a, %b, axis=0) %e = matmul(%c, %w) %z = matmul(%e, %v) "
                                        "%d = add(%z, %c) %s = reduce_sum(%a, axes=[0], keepdims=true) "
                                        "%o = slice(%a, starts=[0], ends=[1], axes=[0]) %k2 = sub(%d, %o) "
                                        "%m = add(%k2, %s) %r = matmul(%m, %w) return %r",
                               IR_LEVEL_V4, false);
    for (uint32_t i = 0; i < p->steps.n; i++) {
        const ir_step *st = &p->steps.at[i];
        for (int a = 0; a < st->n_args; a++)
            for (int b = 0; b < st->n_args; b++) {
                const ir_plan_buffer *to = &p->buffers.at[st->arg[a]], *from = &p->buffers.at[st->arg[b]];
                if (to->is_over && (int)i == to->first_step)
                    cr_expect(from->is_over || from->part_of < 0 || from->part_of != to->part_of, "step %u", i);
            }
    }
}

Test(over, one_of_two_results_takes_the_place) {
    const ir_plan *p = plan_of("(" MATRIX ", " MATRIX ")",
                               PRODUCTS "%c = add(%a, 1.0) %d = mul(%a, 2.0) %m = matmul(%c, %v) %n = matmul(%d, %v) "
                                        "%s = cumsum(%c, axis=0) %t = cumsum(%d, axis=0) %r = matmul(%m, %s, "
                                        "transpose_b=true) %q = matmul(%n, %t, transpose_b=true) return %r, %q",
                               IR_LEVEL_V4, false);
    cr_expect_leq(over_of(p), 1);
}

/* ---- bits ---- */
static const struct {
    const char *result, *body;
} programs[] = {
    {MATRIX, PRODUCTS "%c = matmul(%b, %w) %d = add(%c, %a) %r = matmul(%d, %v) return %r"},
    {MATRIX, PRODUCTS "%c = matmul(%b, %w) %d = add(%c, %a) %e = matmul(%d, %v) %s = add(%e, 1.0) %t = matmul(%s, %w) "
                      "%u = add(%t, %d) %r = matmul(%u, %v) return %r"},
    {MATRIX, PRODUCTS "%c = add(%a, %b, barrier=true) %r = matmul(%c, %v) return %r"},
    {MATRIX, SQUARE "%c = matmul(%b, %w) %d = sub(%c, %a) %e = tanh(%d) %r = matmul(%e, %v) return %r"},
    {MATRIX, "%a = matmul(%x, %w) %b = matmul(%a, %v) %c = matmul(%b, %w) %d = relu(%c) %e = add(%c, %a) "
             "%s = matmul(%d, %v) %t = matmul(%e, %w) %r = sub(%s, %t) return %r"},
    {IMAGES, CONVS "%c = conv(%b, %g, pads=[1, 1, 1, 1]) %d = relu(%c) %e = add(%c, %a) %s = conv(%d, %g) "
                   "%t = conv(%e, %g) %r = sub(%s, %t) return %r"},
    {IMAGES, CONVS "%c = conv(%b, %g, pads=[1, 1, 1, 1]) %d = add(%c, %a) %e = conv(%d, %g) return %e"},
    /* vectors of columns, and what is left of a row */
    {IMAGES, NARROW("13") "%c = conv(%b, %g, pads=[1, 1, 1, 1]) %d = add(%c, %a) %e = conv(%d, %g) return %e"},
    {IMAGES, NARROW("5") "%c = conv(%b, %g, pads=[1, 1, 1, 1]) %d = sub(%a, %c) %e = conv(%d, %g) return %e"},
    {IMAGES, CONVS "%c = conv(%b, %g, pads=[2, 1, 0, 1]) %d = sub(%a, %c) %e = relu(%d) %s = conv(%e, %g) return %s"},
    {IMAGES, "%a = conv(%i, %h) %b = conv(%a, %k, pads=[1, 1, 1, 1]) %c = conv(%b, %k, pads=[1, 1, 1, 1]) "
             "%d = add(%c, %a) %e = conv(%d, %k) return %e"},
    {MATRIX, PRODUCTS "%c = concat(%a, %b, axis=0) %e = matmul(%c, %w) %z = matmul(%e, %v) %d = add(%z, %c) "
                      "%r = matmul(%d, %w) return %r"},
};
enum { PROGRAMS = sizeof programs / sizeof *programs, N_IN = 8, ROOM = 1 << 16 };

/* Of three calls, each of which finds what the one before left in its temporaries. */
static size_t run(int program, const char *level, int threads, uint32_t flags, void **out) {
    static float room[N_IN][ROOM];
    static const int64_t shape[N_IN][4] = {{48, 48},       {48, 48},       {48, 48},       {1, 48, 14, 14},
                                           {64, 48, 1, 1}, {64, 64, 3, 3}, {20, 48, 1, 1}, {20, 20, 3, 3}};
    char text[1200];
    snprintf(text, sizeof text, "func @f(%s) -> %s { %s }", PARAMS, programs[program].result, programs[program].body);
    fusor_context *ctx = new_context_for(level, threads);
    fusor_buffer in[N_IN];
    for (int i = 0; i < N_IN; i++) {
        int64_t n = 1;
        in[i] = (fusor_buffer){.data = room[i], .dtype = FUSOR_F32, .rank = i < 3 ? 2 : 4};
        for (int d = 0; d < in[i].rank; d++) n *= in[i].shape[d] = shape[i][d];
        cr_assert_leq(n, ROOM);
        for (int64_t j = 0; j < n; j++) room[i][j] = (float)((j * 7 + i * 3) % 31 - 15) / 64;
    }
    fusor_executable *exe = compiled_with(ctx, text, flags);
    const size_t bytes = bytes_after_calls(ctx, exe, 3, N_IN, in, out);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
    return bytes;
}

Test(over, the_bits_are_those_of_memory_of_their_own) {
    for (int level = IR_LEVEL_V2; level <= IR_LEVEL_V4; level++) {
        if (!host_has_level(level)) continue;
        for (int i = 0; i < PROGRAMS; i++) {
            void *over, *apart;
            const size_t a = run(i, ir_levels[level].name, 1 + (i + level) % 3, 0, &over),
                         b = run(i, ir_levels[level].name, 1, FUSOR_NO_FUSE, &apart);
            cr_expect(a == b && memcmp(over, apart, a) == 0, "program %d at %s", i, ir_levels[level].name);
            free(over);
            free(apart);
        }
    }
}
