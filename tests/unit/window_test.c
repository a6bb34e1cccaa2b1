/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* window_test.c: pools and convolutions in plans: how many kernels a window is, what fuses with it and what is stored
 * before it. */
#include "plan_test.h"

TestSuite(window, .init = text_start, .fini = text_stop);

typedef struct made {
    int kernels, others, reads, depthwise; /* steps; most buffers that one kernel reads; kernels of that form */
    int behind;                            /* inputs that are an element behind another */
} made;

/* The plan of a function of %x: f32[N, C, H, W] and %b: f32[C, 1, 1]; with weights C is 6. */
static made plan_with(const char *weights, const char *body) {
    char text[600];
    made n = {0};
    snprintf(text, sizeof text,
             "func @f(%%x: f32[N, %s, 24, 40], %%b: f32[%s, 1, 1]%s) -> f32[?, ?, ?, ?] { %s return %%r }",
             weights ? "6" : "C", weights ? "6" : "C", weights ? weights : "", body);
    const ir_plan *plan = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V3});
    for (uint32_t s = 0; s < plan->steps.n; s++) {
        const ir_step *st = &plan->steps.at[s];
        if (st->kind == IR_STEP_KERNEL) n.kernels++;
        else n.others++;
        for (int b = 0; st->kind == IR_STEP_KERNEL && b < st->kernel->n_buffers; b++)
            n.behind += st->kernel->buffer[b].behind != 0;
        n.depthwise += st->kind == IR_STEP_KERNEL && st->kernel->is_depthwise;
        if (st->kind == IR_STEP_KERNEL && st->n_args - 1 > n.reads) n.reads = st->n_args - 1;
    }
    return n;
}

#define plan_of(body) plan_with(NULL, body)
#define KERNELS(n, body)                                                                                               \
    do {                                                                                                               \
        const made is = plan_of(body);                                                                                 \
        cr_expect(is.kernels == (n) && is.others == 0, "%s: %d kernels and %d other steps", body, is.kernels,          \
                  is.others);                                                                                          \
        cr_expect(is.reads <= 24, "%s: a kernel of %d inputs", body, is.reads);                                        \
    } while (0)

Test(window, small_windows_fuse_with_what_is_around_them) {
    KERNELS(1, "%h = relu(%x) %p = max_pool(%h, kernel=[2, 2], strides=[2, 2]) %r = add(%p, %b)");
    KERNELS(1, "%h = relu(%x) %p = average_pool(%h, kernel=[3, 3], pads=[1, 1, 1, 1]) %q = add(%p, %b) %r = relu(%q)");
    KERNELS(1, "%h = add(%x, %b) %r = max_pool(%h, kernel=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])");
    KERNELS(1, "%r = max_pool(%x, kernel=[4, 4], strides=[4, 4])");
}

Test(window, columns_that_take_turns_are_loaded_once) {
    cr_expect(plan_of("%r = max_pool(%x, kernel=[2, 2], strides=[2, 2])").behind == 2);
    cr_expect(plan_of("%h = neg(%x) %r = average_pool(%h, kernel=[1, 2], strides=[1, 2])").behind == 1);
    cr_expect(plan_of("%r = max_pool(%x, kernel=[2, 2], strides=[2, 3])").behind == 0);
    cr_expect(plan_of("%r = max_pool(%x, kernel=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1])").behind == 0);
}

Test(window, costly_values_are_stored_where_windows_overlap) {
    KERNELS(1, "%h = gelu(%x) %r = max_pool(%h, kernel=[2, 2], strides=[2, 2])");
    KERNELS(2, "%h = gelu(%x) %r = max_pool(%h, kernel=[3, 3], strides=[2, 2])");
}

Test(window, large_windows_are_taken_by_axes_and_parts) {
    KERNELS(2, "%r = max_pool(%x, kernel=[9, 9], pads=[4, 4, 4, 4])");
    KERNELS(2, "%r = max_pool(%x, kernel=[1, 40])");
    KERNELS(4, "%r = average_pool(%x, kernel=[24, 40])");
    KERNELS(2, "%h = exp(%x) %r = max_pool(%h, kernel=[1, 30], strides=[1, 30])");
    KERNELS(4, "%r = average_pool(%x, kernel=[4001, 1], pads=[2000, 0, 2000, 0])");
}

/* How many values go from row to row in the first kernel of a pool, whose text is read back. */
#define SLIDES(n, level, body)                                                                                         \
    do {                                                                                                               \
        const int is = slides_of(level, body);                                                                         \
        cr_expect(is == (n), "%s: %d values go from row to row", body, is);                                            \
    } while (0)

static int slides_of(ir_level level, const char *body) {
    char text[400];
    ir_kernel back;
    fu_str once = {.arena = &arena}, again = {.arena = &arena};
    snprintf(text, sizeof text, "func @f(%%x: f32[N, C, H, W]) -> f32[?, ?, ?, ?] { %s return %%r }", body);
    const ir_plan *plan = plan_text(text, &(ir_plan_options){.level = level});
    const ir_kernel *k = plan->steps.at[0].kernel;
    ir_kernel_print(&once, k);
    cr_expect(ir_kernel_parse(&error, once.at, once.n, &back) == FUSOR_OK, "%s", error.text);
    ir_kernel_print(&again, &back);
    cr_expect_str_eq(again.at, once.at);
    return k->slide.n;
}

Test(window, rows_of_overlapping_windows_are_made_once) {
    SLIDES(2, IR_LEVEL_V4, "%r = max_pool(%x, kernel=[3, 3], pads=[1, 1, 1, 1])");
    SLIDES(2, IR_LEVEL_V2, "%r = average_pool(%x, kernel=[3, 3], pads=[1, 0, 1, 0])");
    SLIDES(1, IR_LEVEL_V3, "%r = max_pool(%x, kernel=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])");
    SLIDES(3, IR_LEVEL_V3, "%h = relu(%x) %r = max_pool(%h, kernel=[4, 2], strides=[1, 2], pads=[2, 0, 1, 0])");
    SLIDES(0, IR_LEVEL_V4, "%r = max_pool(%x, kernel=[2, 2], strides=[2, 2])");
    SLIDES(0, IR_LEVEL_V4, "%r = max_pool(%x, kernel=[3, 3], dilations=[2, 1], strides=[3, 1])");
    SLIDES(0, IR_LEVEL_SM80, "%r = max_pool(%x, kernel=[3, 3], pads=[1, 1, 1, 1])");
}

Test(window, pairs_of_values_that_are_none_are_refused) {
    static const char *const wrong[] = {"slide\n", "slide %0\n", "slide %0 %99\n", "slide %0 %4\n", "slide 0 1\n"};
    ir_kernel k;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[400];
        snprintf(
            text, sizeof text,
            "fusor-kernel 1\nkind map\nlevel x86-64-v3\n%sdim p ?\ndim p ?\nbuffer in f32 ? 1\nbuffer out f32 ? 1\n"
            "%%0 = load.f32 #0\n%%1 = neg.f32 %%0\n%%2 = isnan.bool %%1\n%%3 = select.f32 %%2 %%0 %%1\n"
            "%%4 = store.f32 #1 %%3\n",
            wrong[i]);
        cr_expect(ir_kernel_parse(&error, text, strlen(text), &k) != FUSOR_OK, "accepted: %s", wrong[i]);
    }
}

/* Of 6 channels, with weights: how many kernels at most, and are they in the form for one channel a group? */
#define CONV_KERNELS(n, n_depthwise, weights, body)                                                                    \
    do {                                                                                                               \
        const made is = plan_with(", %w: f32" weights, body);                                                          \
        cr_expect(is.kernels <= (n) && is.others == 0 && is.depthwise == (n_depthwise),                                \
                  "%s: %d kernels, %d of them depthwise, and %d other steps", body, is.kernels, is.depthwise,          \
                  is.others);                                                                                          \
    } while (0)

Test(window, one_channel_a_group_is_one_kernel_with_its_pads) {
    CONV_KERNELS(1, 1, "[6, 1, 3, 3]", "%c = conv(%x, %w, groups=6, pads=[1, 1, 1, 1]) %s = add(%c, %b) %r = relu(%s)");
    CONV_KERNELS(1, 1, "[12, 1, 5, 5]",
                 "%r = conv(%x, %w, groups=6, strides=[2, 3], dilations=[2, 1], pads=[2, 9, 1, 0])");
    CONV_KERNELS(1, 0, "[30, 1, 3, 3]", "%r = conv(%x, %w, groups=6)");
    CONV_KERNELS(1, 0, "[6, 1, 9, 9]", "%r = conv(%x, %w, groups=6)");
}

Test(window, integers_with_one_channel_a_group_are_one_kernel) {
    static const char *const types[][2] = {{"i8", "i8"}, {"u8", "i8"}, {"i32", "i32"}, {"u64", "u64"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "func @f(%%x: %s[N, 6, H, W], %%w: %s[6, 1, 3, 3]) -> %s[?, ?, ?, ?] { %%c = conv(%%x, %%w, groups=6, "
                 "pads=[1, 1, 1, 1]) %%r = relu(%%c) return %%r }",
                 types[i][0], types[i][1], i < 2 ? "i32" : "i64");
        const ir_plan *plan = plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V3});
        cr_expect(plan->steps.n == 1 && plan->steps.at[0].kernel && plan->steps.at[0].kernel->is_depthwise, "%s", text);
    }
}

Test(window, transposed_convolutions_are_one_convolution) {
    CONV_KERNELS(3, 0, "[6, 5, 3, 3]", "%c = conv_transpose(%x, %w) %r = relu(%c)");
    CONV_KERNELS(2, 1, "[6, 1, 3, 3]", "%c = conv_transpose(%x, %w, groups=6, pads=[1, 1, 1, 1]) %r = neg(%c)");
    CONV_KERNELS(1, 0, "[6, 5, 4, 4]",
                 "%c = conv_transpose(%x, %w, strides=[2, 2], pads=[1, 1, 1, 1]) %s = add(%c, 1) %r = relu(%s)");
    CONV_KERNELS(1, 0, "[6, 4, 3, 3]", "%r = conv_transpose(%x, %w, strides=[2, 3], output_padding=[1, 0])");
    CONV_KERNELS(1, 0, "[6, 4, 3, 3]", "%r = conv_transpose(%x, %w, strides=[2, 1], dilations=[2, 3])");
    CONV_KERNELS(5, 0, "[6, 1, 2, 2]", "%c = conv_transpose(%x, %w, strides=[2, 2]) %r = relu(%c)");
}

/* Convolutions: pads, conversions and integers are the kernel's own; what else is computed in front of it is stored,
 * and a pad that two of them read. */
static void expect_kernels(const char *text, ir_level level, int kernels, int axes) {
    const ir_plan *plan = plan_text(text, &(ir_plan_options){.level = level});
    int n = 0, with = 0;
    for (uint32_t s = 0; s < plan->steps.n; s++) {
        const ir_kernel *k = plan->steps.at[s].kernel;
        fu_str text_of = {.arena = &arena}, text_back = {.arena = &arena};
        ir_kernel back;
        n += plan->steps.at[s].kind == IR_STEP_KERNEL;
        if (!k || !k->n_axes) continue;
        with = k->n_axes;
        ir_kernel_print(&text_of, k);
        cr_expect(ir_kernel_parse(&error, text_of.at, text_of.n, &back) == FUSOR_OK, "%s", error.text);
        ir_kernel_print(&text_back, &back);
        cr_expect_str_eq(text_back.at, text_of.at);
        cr_expect_eq(back.n_axes, k->n_axes);
    }
    cr_expect(n == kernels && with == axes, "%s: %d kernels, %d axes", text, n, with);
}

Test(window, a_convolution_is_one_kernel_with_its_pads) {
#define F(x, w, b, r, body) "func @f(%x: " x ", %w: " w ", %b: " b ") -> " r " { " body " return %r }"
    expect_kernels(F("f32[N, 64, 28, 28]", "f32[64, 64, 3, 3]", "f32[64, 1, 1]", "f32[?, ?, ?, ?]",
                     "%c = conv(%x, %w, strides=[2, 2], pads=[1, 1, 1, 1]) %r = add(%c, %b)"),
                   IR_LEVEL_V4, 1, 2); /* vectors of channels */
    const char *padded = F("f32[N, 4, H, W]", "f32[8, 4, 3, 3]", "f32[8]", "f32[?, ?, ?, ?]",
                           "%c = conv(%x, %w, %b, pads=[1, 1, 1, 1]) %r = relu(%c)");
    expect_kernels(padded, IR_LEVEL_V3, 1, 2);
    expect_kernels(padded, IR_LEVEL_SM80, 2, 0);
    expect_kernels(F("f32[N, 4, H, W]", "f32[8, 4, 3, 3]", "f32[8]", "f32[?, ?, ?, ?]", "%r = conv(%x, %w, %b)"),
                   IR_LEVEL_V4, 1, 0);
    expect_kernels(F("f16[N, 4, D]", "f16[8, 4, 3]", "f16[8]", "f16[?, ?, ?]", "%r = conv(%x, %w, %b, pads=[1, 0])"),
                   IR_LEVEL_V4, 1, 1);
    expect_kernels(F("u8[N, 4, D, H, W]", "i8[8, 4, 1, 2, 3]", "i32[8]", "i32[?, ?, ?, ?, ?]",
                     "%c = conv(%x, %w, %b) %r = relu(%c)"),
                   IR_LEVEL_V4, 1, 3);
    expect_kernels(F("f32[N, 4, H, W]", "f32[8, 4, 3, 3]", "f32[8, 4, 3, 3]", "f32[?, ?, ?, ?]",
                     "%p = pad(%x, pads=[0, 0, 1, 1, 0, 0, 1, 2]) %r = conv(%p, %w)"),
                   IR_LEVEL_V4, 1, 2);
    expect_kernels(F("f32[N, 4, H, W]", "f32[8, 4, 3, 3]", "f32", "f32[?, ?, ?, ?]",
                     "%p = pad(%x, pads=[0, 0, 1, 1, 0, 0, 1, 1], value=1) %r = conv(%p, %w)"),
                   IR_LEVEL_V4, 2, 0);
    expect_kernels(F("f32[N, 4, H, W]", "f32[8, 4, 3, 3]", "f32", "f32[?, ?, ?, ?]",
                     "%h = exp(%x) %r = conv(%h, %w, pads=[1, 1, 1, 1])"),
                   IR_LEVEL_V4, 2, 2);
}
