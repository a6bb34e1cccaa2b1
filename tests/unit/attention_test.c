/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attention_test.c: attention is one kernel whose memory does not grow with the matrix of scores; its description
 * survives text both ways, and one that code generation could not rely on is refused. */
#include "fusor/fusor.h"
#include "ir/ast.h"
#include "ir/pass.h"
#include "ir/plan.h"
#include "rt/cpuinfo.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fu_arena arena;
static fu_error error;
static jmp_buf oom;

static ir_plan *plan_of(const char *text, bool no_fuse) {
    ir_module *m;
    ir_graph *g;
    ir_plan *plan = NULL;
    const ir_plan_options options = {.level = IR_LEVEL_V4, .no_fuse = no_fuse};
    fu_arena_init(&arena, &oom);
    if (setjmp(oom)) cr_assert(false, "out of memory");
    fu_error_clear(&error);
    cr_assert(ir_parse(&arena, &error, "<text>", text, strlen(text), &m) == FUSOR_OK &&
                  ir_flatten(&arena, &error, m, ir_module_find(m, NULL), &g) == FUSOR_OK &&
                  ir_normalize(&arena, &error, &g, &options) == FUSOR_OK &&
                  ir_plan_make(&arena, &error, g, &options, &plan) == FUSOR_OK,
              "%s", error.text);
    return plan;
}

static const char heads[] = "func @f(%q: f32[8, S, 64], %k: f32[2, T, 64], %v: f32[2, T, 64]) -> f32[8, S, 64] { "
                            "%a = neg(%q) %y = attention(%a, %k, %v, causal=true) %r = square(%y) return %r }";

static const ir_kernel *kernel_of(const ir_plan *p) {
    cr_assert_eq(p->steps.n, 1u);
    cr_assert_eq(p->steps.at[0].kernel->kind, IR_KERNEL_ATTENTION);
    return p->steps.at[0].kernel;
}

Test(attention, has_no_matrix_of_scores) {
    const ir_plan *p = plan_of(heads, false);
    const ir_kernel *k = kernel_of(p);
    for (uint32_t b = 0; b < p->buffers.n; b++) cr_assert_neq(p->buffers.at[b].storage, IR_STORE_TEMP);
    const ir_attention_dims at = ir_kernel_attention_dims(k);
    int64_t size[IR_KERNEL_MAX_DIMS] = {0}, tune[IR_TUNE_COUNT] = {[IR_TUNE_ATTENTION_PANELS] = 4}, first = 0;
    cr_assert_neq(at.g, -1);
    for (int64_t s = 512; s <= 16384; s *= 32) {
        ir_launch l;
        size[at.h] = 8, size[at.g] = 2, size[at.m] = size[at.j] = s, size[at.n] = size[at.k] = 64;
        ir_kernel_launch(k, size, tune, &l);
        cr_assert_eq(l.tiles[0], 8 * ((s + 4 * k->tile.nr - 1) / (4 * k->tile.nr)));
        cr_assert_eq(l.shared_bytes, 0);
        cr_assert_lt(l.scratch_bytes, 1 << 20);
        if (first) cr_assert_eq(l.scratch_bytes, first);
        first = l.scratch_bytes;
    }
    fu_arena_free(&arena);
}

Test(attention, a_long_row_of_keys_is_in_parts) {
    const ir_kernel *k = kernel_of(plan_of(heads, false));
    int64_t length;
    cr_assert_eq(ir_attention_parts(k, 8, 1, 1000, &length), 1);
    cr_assert_eq(ir_attention_parts(k, 8, 1, 8192, &length), 8);
    cr_assert_eq(length, 1024);
    cr_assert_eq(ir_attention_parts(k, 8, 1, 1000000, &length), 8);   /* 64 in all */
    cr_assert_eq(ir_attention_parts(k, 8, 100, 1000000, &length), 1); /* enough panels of queries */
    cr_assert_eq(ir_attention_parts(k, 100, 1, 1000000, &length), 1);
    fu_arena_free(&arena);
}

Test(attention, alone_where_nothing_is_fused) {
    const ir_plan *p = plan_of(heads, true);
    cr_assert_eq(p->steps.n, 3u);
    cr_assert_eq(p->steps.at[1].kernel->kind, IR_KERNEL_ATTENTION);
    fu_arena_free(&arena);
}

Test(attention, what_reads_whole_rows_is_another_kernel) {
    const ir_plan *p = plan_of("func @f(%q: f32[S, 64], %k: f32[T, 64]) -> f32[S] { %y = attention(%q, %k, %k) %r = "
                               "reduce_sum(%y, axes=[1]) return %r }",
                               false);
    cr_assert_eq(p->steps.n, 2u);
    cr_assert_eq(p->boundaries.n, 1u);
    cr_assert_eq(p->boundaries.at[0].reason, IR_REASON_ATTENTION);
    fu_arena_free(&arena);
}

/* The description with `from` replaced by `to`. */
static bool accepts(const char *text, const char *from, const char *to) {
    char changed[8192];
    const char *at = strstr(text, from);
    ir_kernel *k = FU_NEW(&arena, ir_kernel);
    cr_assert(at, "%s has no %s", text, from);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    fu_error_clear(&error);
    return ir_kernel_parse(&error, changed, strlen(changed), k) == FUSOR_OK;
}

Test(attention, descriptions_are_verified) {
    const ir_kernel *k = kernel_of(plan_of(heads, false));
    fu_str text;
    fu_str_init(&text, &arena);
    ir_kernel_print(&text, k);
    cr_assert(accepts(text.at, "dim m ?", "dim m ?"), "%s", error.text);
    cr_assert_not(accepts(text.at, "dim m ?\n", ""));
    cr_assert_not(accepts(text.at, "dim g ?\n", ""));
    cr_assert_not(accepts(text.at, "tile 8 ", "tile 7 "));
    cr_assert_not(accepts(text.at, "kind attention", "kind contract"));
    cr_assert_not(accepts(text.at, "variant 8", "variant 4 variant 12"));
    cr_assert_not(accepts(text.at, " variant 8", ""));
    fu_arena_free(&arena);
}

static uint32_t kernels_of(const char *body, bool no_fuse) {
    char text[1200];
    snprintf(text, sizeof text,
             "func @f(%%q: f32[3, S, 64], %%k: f32[3, T, 64], %%t: f32[3, 64, T], %%v: f32[3, T, 32], %%m: f32[S, T], "
             "%%c: f32[S, 1], %%o: f32, %%w: bool[S, T]) -> %s",
             body);
    const ir_plan *p = plan_of(text, no_fuse);
    uint32_t attentions = 0;
    for (uint32_t i = 0; i < p->steps.n; i++) attentions += p->steps.at[i].kernel->kind == IR_KERNEL_ATTENTION;
    cr_assert(attentions <= 1);
    cr_assert(!attentions || p->steps.n == 1, "%s: %u kernels", body, p->steps.n);
    fu_arena_free(&arena);
    return attentions;
}

#define BODY(scores) "f32[3, S, 32] { " scores " %p = softmax(%s) %y = matmul(%p, %v) %r = relu(%y) return %r }"
#define ROW          "%i = iota(shape=[S, 1], axis=0, dtype=i64) "
#define COLUMN       "%j = iota(shape=[T], axis=0, dtype=i64) "
Test(attention, is_recognized_in_primitives) {
    static const char *const yes[] = {
        BODY("%s = matmul(%q, %t)"),
        BODY("%a = matmul(%q, %k, transpose_b=true) %s = mul(%a, 0.125)"),
        BODY("%a = matmul(%q, %t) %b = div(%a, 8.0) %s = add(%m, %b)"),
        BODY("%x = transpose(%k, perm=[0, 2, 1]) %a = matmul(%q, %x) %b = mul(2.0, %a) %d = div(%b, 3.0) %s = add(%d, "
             "%c)"),
        /* what no result needs reads nothing */
        "f32[3, S, 32] { %s = matmul(%q, %t) %p = softmax(%s) %d = cast(%p, bool) %e = exp(%s) %y = matmul(%p, %v) "
        "return %y }",
    };
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        cr_assert_eq(kernels_of(yes[i], false), 1u, "%s", yes[i]);
        cr_assert_eq(kernels_of(yes[i], true), 0u, "%s", yes[i]);
    }
}

Test(attention, what_is_something_else_is_left) {
    static const char *const no[] = {
        BODY("%a = matmul(%q, %t) %s = mul(%a, %o)"), /* scaled by what is no number */
        BODY("%a = matmul(%q, %t) %s = exp(%a)"),
        BODY("%a = matmul(%q, %t) %s = select(%w, %a, -1e9)"), /* a row without a key is the mean of v */
        "f32[3, S, 32] { %s = matmul(%q, %t) %p = softmax(%s, axis=1) %y = matmul(%p, %v) return %y }",
        "(f32[3, S, 32], f32[3, S, T]) { %s = matmul(%q, %t) %p = softmax(%s) %y = matmul(%p, %v) return %y, %p }",
        "(f32[3, S, 32], f32[3, S, T]) { %s = matmul(%q, %t) %p = softmax(%s) %y = matmul(%p, %v) return %y, %s }",
        "f64[3, S, 32] { %a = cast(%q, f64) %b = cast(%t, f64) %d = cast(%v, f64) %s = matmul(%a, %b) %p = softmax(%s) "
        "%y = matmul(%p, %d) return %y }",
        "f16[3, S, 32] { %a = cast(%q, f16) %b = cast(%t, f16) %d = cast(%v, f16) %s = matmul(%a, %b) %p = softmax(%s) "
        "%y = matmul(%p, %d) return %y }",
    };
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) cr_assert_eq(kernels_of(no[i], false), 0u, "%s", no[i]);
}

/* Flags of the attention that scores become. */
static int64_t flags_of(const char *body) {
    char text[1200];
    snprintf(text, sizeof text, "func @f(%%q: f32[3, S, 64], %%t: f32[3, 64, T], %%v: f32[3, T, 32]) -> %s", body);
    const ir_kernel *k = kernel_of(plan_of(text, false));
    int64_t flags = 0;
    for (int i = 0; i < k->n_insts; i++)
        if (k->inst[i].op == IR_OP_ATTENTION) flags = k->inst[i].variant;
    fu_arena_free(&arena);
    return flags;
}

Test(attention, comparisons_of_indices_are_causal) {
    static const struct {
        const char *body;
        bool is_causal;
    } cases[] = {
        {BODY("%a = matmul(%q, %t) " ROW COLUMN "%l = lt(%i, %j) %s = select(%l, -inf, %a)"), true},
        {BODY("%a = matmul(%q, %t) " ROW COLUMN "%l = gt(%j, %i) %s = select(%l, -inf, %a)"), true},
        {BODY("%a = matmul(%q, %t) " ROW COLUMN "%l = ge(%i, %j) %s = select(%l, %a, -inf)"), true},
        {BODY("%a = matmul(%q, %t) " ROW COLUMN "%l = le(%j, %i) %s = select(%l, %a, -inf)"), true},
        {BODY("%a = matmul(%q, %t) " ROW COLUMN "%l = gt(%i, %j) %s = select(%l, %a, -inf)"), false},
        {BODY("%a = matmul(%q, %t) " ROW COLUMN "%l = le(%i, %j) %s = select(%l, %a, -inf)"), false},
        {BODY("%a = matmul(%q, %t) " ROW COLUMN "%l = ge(%i, %j) %s = select(%l, -inf, %a)"), false},
        {BODY("%a = matmul(%q, %t) " ROW "%l = ge(%i, %i) %s = select(%l, %a, -inf)"), false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t flags = flags_of(cases[i].body);
        cr_expect_eq((flags & IR_ATTENTION_HIGH) != 0, cases[i].is_causal, "%s", cases[i].body);
        cr_expect_eq((flags & IR_ATTENTION_MASK) != 0, !cases[i].is_causal, "%s", cases[i].body);
    }
}

/* The softmax of a row of -infinity is NaN; attention to no key is 0. */
Test(attention, recognized_rows_without_a_key_are_nan) {
    const ir_plan *p = plan_of(
        "func @f(%q: f32[S, 8], %k: f32[8, T], %v: f32[T, 8]) -> f32[S, 8] { %s = matmul(%q, %k) %p = softmax(%s) "
        "%y = matmul(%p, %v) return %y }",
        false);
    const ir_kernel *k = kernel_of(p);
    int found = 0;
    for (int i = 0; i < k->n_insts; i++)
        found += k->inst[i].op == IR_OP_ATTENTION && (k->inst[i].variant & IR_ATTENTION_NAN);
    cr_assert_eq(found, 1);
    fu_arena_free(&arena);
}

/* Attention in f32 of S queries and T keys of D, values of E, by `text`. */
typedef struct shape {
    int64_t s, t, d, e;
} shape;
static void attend(fusor_context *ctx, const char *text, shape n, float *q, float *k, float *v, float *y) {
    fusor_executable *exe = NULL;
    fusor_buffer in[3] = {{.data = q, .dtype = FUSOR_F32, .rank = 2, .shape = {n.s, n.d}},
                          {.data = k, .dtype = FUSOR_F32, .rank = 2, .shape = {n.t, n.d}},
                          {.data = v, .dtype = FUSOR_F32, .rank = 2, .shape = {n.t, n.e}}};
    fusor_buffer out = {.data = y, .dtype = FUSOR_F32, .rank = 2, .shape = {n.s, n.e}};
    cr_assert(fusor_compile_text(ctx, text, NULL, &exe) == FUSOR_OK, "%s", fusor_error_message(ctx));
    cr_assert(fusor_executable_call(exe, 3, in, 1, &out) == FUSOR_OK, "%s", fusor_error_message(ctx));
    fusor_executable_free(exe);
}

/* The same by bf16. */
static void attend_bf16(fusor_context *ctx, shape n, float *q, float *k, float *v, float *y) {
    char text[300];
    snprintf(text, sizeof text,
             "func @f(%%q: f32[S, %d], %%k: f32[T, %d], %%v: f32[T, %d]) -> f32[S, %d] { %%a = cast(%%q, bf16) "
             "%%b = cast(%%k, bf16) %%c = cast(%%v, bf16) %%y = attention(%%a, %%b, %%c, scale=1.0) "
             "%%r = cast(%%y, f32) return %%r }",
             (int)n.d, (int)n.d, (int)n.e, (int)n.e);
    attend(ctx, text, n, q, k, v, y);
}

/* Two keys, scores 0 and -x, values 0 and 1: w / (1 + w) with w = exp(-x). The product of x and log2 e is off by x
 * units in the last place or so, the rest by a few; far below what diff/ops_test.c allows. */
static void expect_weights(fusor_context *ctx, const char *target, int n, double scale) {
    char text[200];
    float q[100], k[2] = {0, -1}, v[32] = {0}, y[1600];
    snprintf(text, sizeof text,
             "func @f(%%q: f32[S, 1], %%k: f32[2, 1], %%v: f32[2, 16]) -> f32[S, 16] { %%y = attention(%%q, %%k, %%v, "
             "scale=%.17g) return %%y }",
             scale);
    for (int i = 0; i < n; i++) q[i] = (float)(i * i % 101 * 1.09 / scale);
    for (int i = 16; i < 32; i++) v[i] = 1;
    attend(ctx, text, (shape){n, 2, 1, 16}, q, k, v, y);
    for (int i = 0; i < n * 16; i++) {
        const double x = (double)q[i / 16] * scale, w = exp(-x), want = w / (1 + w);
        cr_expect(fabs(y[i] - want) <= want * (8 + 2 * x) * 0x1p-24 + 0x1p-126,
                  "%s, %d queries, scale %g, x %g: %a, %a", target, n, scale, x, y[i], want);
    }
}

Test(attention, weights_are_exponentials) {
    for (int level = 0; level <= (int)rt_host_level(); level++) {
        fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
        o.target = ir_levels[level].name;
        fusor_context *ctx = fusor_context_new(&o);
        cr_assert(ctx);
        for (int n = 1; n <= 100; n += 33) {
            expect_weights(ctx, o.target, n, 1);
            expect_weights(ctx, o.target, n, -0.5);
            expect_weights(ctx, o.target, n, 0x1p-70);
        }
        fusor_context_free(ctx);
    }
}

/* Scores so large that only one key has a weight, whatever power of two they are multiplied by, up to the largest: the
 * largest score, in whichever block of keys it is, neither overflows nor is lost where it is taken from the others. */
static void expect_one_key(fusor_context *ctx, const char *target, double factor, float sign) {
    enum { S = 40, T = 150, E = 20 };
    static float q[S], k[T], v[T * E], y[S * E];
    int best = 0;
    for (int i = 0; i < S; i++) q[i] = (float)(factor * (1 + i % 2));
    for (int j = 0; j < T; j++) {
        const int m = (j * 37 + 11) % T;
        k[j] = sign * (m < 128 ? 1 + (float)m / 128 : 2 + (float)(m - 128) / 64); /* all are bf16 */
        if (k[j] > k[best]) best = j;
    }
    for (int i = 0; i < T * E; i++) v[i] = (float)(i / E);
    attend_bf16(ctx, (shape){S, T, 1, E}, q, k, v, y);
    for (int i = 0; i < S * E; i++)
        cr_expect_eq(y[i], (float)best, "%s, scores of %g: query %d: %g, not %d", target, sign * factor, i / E, y[i],
                     best);
}

/* All scores of query 0 are `score`, half of them in the first blocks, whose values are 0, half in the others, whose
 * values are `value`: half of it is the result, whatever the scores of query 7 of the same panel are: 1e30 times
 * `first` in the first blocks and times `second` in the others. */
static void expect_half(fusor_context *ctx, const char *target, float score, float first, float second, float value) {
    enum { S = 40, T = 256, E = 20 };
    static float q[S * 2], k[T * 2], v[T * E], y[S * E];
    memset(q, 0, sizeof q);
    for (int i = 0; i < S; i++) q[2 * i + (i == 7)] = i == 7 ? 1e15f : score;
    for (int j = 0; j < T; j++) k[2 * j] = 1, k[2 * j + 1] = 1e15f * (j < T / 2 ? first : second);
    for (int i = 0; i < T * E; i++) v[i] = i < T / 2 * E ? 0 : value;
    attend_bf16(ctx, (shape){S, T, 2, E}, q, k, v, y);
    for (int i = 0; i < E; i++)
        cr_expect_eq(y[i], value / 2, "%s, scores of %g, %g and %g beside: %a, not %a", target, score, first, second,
                     y[i], value / 2);
}

Test(attention, large_scores_are_no_rounding) {
    for (int level = 0; level <= (int)rt_host_level() + 1; level++) {
        fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
        o.target = level <= (int)rt_host_level() ? ir_levels[level].name : NULL; /* NULL: all that the host has */
        fusor_context *ctx = fusor_context_new(&o);
        cr_assert(ctx);
        const char *name = o.target ? o.target : "the host";
        for (int power = 14; power <= 125; power += power < 40 ? 2 : 5)
            for (int sign = -1; sign <= 1; sign += 2) expect_one_key(ctx, name, ldexp(1, power), (float)sign);
        static const float scores[] = {0, 1.25f, -2832, 2848, 92160, 249856, -1998848, 31981568, 377487360, 696254464},
                           values[] = {1, 0x1.fep119f, 0x1p-125f};
        for (int i = 0; i < 10; i++)
            for (int beside = 0; beside < 6; beside++)
                expect_half(ctx, name, scores[i], (float)(beside % 3 - 1), (float)(beside / 3),
                            values[(i + beside) % 3]);
        fusor_context_free(ctx);
    }
}

/* Heads of named sizes are checked at the call; none over none are none. */
Test(attention, named_heads_are_multiples) {
    static const int64_t cases[][3] = {{0, 0, 1}, {0, 2, 1}, {6, 3, 1}, {6, 4, 0}, {6, 0, 0}, {1, 2, 0}};
    static float x[6 * 3 * 8], y[6 * 3 * 8];
    fusor_context *ctx = fusor_context_new(NULL);
    fusor_executable *exe = NULL;
    cr_assert(fusor_compile_text(ctx,
                                 "func @f(%q: f32[G, 3, 8], %k: f32[H, 3, 8], %v: f32[H, 3, 8]) -> f32[G, 3, 8] { %y = "
                                 "attention(%q, %k, %v) return %y }",
                                 NULL, &exe) == FUSOR_OK,
              "%s", fusor_error_message(ctx));
    for (int i = 0; i < 6; i++) {
        fusor_buffer in[3] = {{.data = x, .dtype = FUSOR_F32, .rank = 3, .shape = {cases[i][0], 3, 8}},
                              {.data = x, .dtype = FUSOR_F32, .rank = 3, .shape = {cases[i][1], 3, 8}},
                              {.data = x, .dtype = FUSOR_F32, .rank = 3, .shape = {cases[i][1], 3, 8}}};
        fusor_buffer out = {.data = y, .dtype = FUSOR_F32, .rank = 3, .shape = {cases[i][0], 3, 8}};
        const fusor_status got = fusor_executable_call(exe, 3, in, 1, &out);
        cr_expect_eq(got == FUSOR_OK, cases[i][2] != 0, "case %d: %s", i, fusor_error_message(ctx));
        if (!cases[i][2])
            cr_expect(strstr(fusor_error_message(ctx), "of q, %q, (G) must be a multiple of those of k, %k, (H): G = "),
                      "%s", fusor_error_message(ctx));
    }
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

/* What causal or window hides from a query reaches nothing of it, whatever it is: values that are not finite at keys
 * that it does not see, other queries of its panel do, or none (the unused end of a cache). */
static void hide(fusor_context *ctx, const char *target, const char *type, const int *size, const int *window) {
    enum { E = 20 };
    const int n_q = size[0], n_k = size[1], left = window[0], right = window[1];
    int64_t offset = size[2];
    char text[300];
    float *q = calloc((size_t)n_q, sizeof *q), *k = calloc((size_t)n_k, sizeof *k),
          *v = calloc((size_t)n_k * E, sizeof *v), *y = calloc((size_t)n_q * E, sizeof *y);
    fusor_executable *exe = NULL;
    cr_assert(q && k && v && y);
    snprintf(text, sizeof text,
             "func @f(%%q: f32[S, 1], %%k: f32[T, 1], %%v: f32[T, %d], %%o: i64) -> f32[S, %d] { %%a = cast(%%q, %s) "
             "%%b = cast(%%k, %s) %%c = cast(%%v, %s) %%y = attention(%%a, %%b, %%c, window=[%d, %d], "
             "causal_offset=%%o) %%r = cast(%%y, f32) return %%r }",
             E, E, type, type, type, left, right);
    for (int j = 0; j < n_k; j++)
        for (int c = 0; c < E; c++) /* column c has one key that is special */
            v[j * E + c] = j != (c * 37 + 3) % n_k ? 1 : c % 3 == 0 ? NAN : c % 3 == 1 ? INFINITY : -INFINITY;
    fusor_buffer in[4] = {{.data = q, .dtype = FUSOR_F32, .rank = 2, .shape = {n_q, 1}},
                          {.data = k, .dtype = FUSOR_F32, .rank = 2, .shape = {n_k, 1}},
                          {.data = v, .dtype = FUSOR_F32, .rank = 2, .shape = {n_k, E}},
                          {.data = &offset, .dtype = FUSOR_I64}};
    fusor_buffer out = {.data = y, .dtype = FUSOR_F32, .rank = 2, .shape = {n_q, E}};
    cr_assert(fusor_compile_text(ctx, text, NULL, &exe) == FUSOR_OK, "%s", fusor_error_message(ctx));
    cr_assert(fusor_executable_call(exe, 4, in, 1, &out) == FUSOR_OK, "%s", fusor_error_message(ctx));
    for (int i = 0; i < n_q; i++)
        for (int c = 0; c < E; c++) {
            const int key = (c * 37 + 3) % n_k, at = i + (int)offset;
            const bool sees_special = (left < 0 || key >= at - left) && (right < 0 || key <= at + right),
                       sees_any = (left < 0 || at - left < n_k) && (right < 0 || at + right >= 0);
            const float got = y[i * E + c];
            if (sees_special)
                cr_expect(c % 3 == 0 ? isnan(got) : isinf(got) && (got < 0) == (c % 3 == 2), "%s %s: %d, %d: %g",
                          target, text, i, c, got);
            else
                cr_expect(fabs(got - sees_any) < 1e-2, "%s %s, %d x %d: query %d, column %d (key %d): %g", target, text,
                          n_q, n_k, i, c, key, got);
        }
    fusor_executable_free(exe);
    free(q), free(k), free(v), free(y);
}

Test(attention, hidden_values_may_be_anything) {
    static const int sizes[][3] = {{1, 300, 140}, {3, 2100, 1030}, {40, 300, 100}, {130, 130, 0}, {70, 500, 200}},
                     windows[][2] = {{-1, 0}, {50, -1}, {130, 3}};
    for (int level = 0; level <= (int)rt_host_level(); level++) {
        fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
        o.target = ir_levels[level].name;
        fusor_context *ctx = fusor_context_new(&o);
        cr_assert(ctx);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
                hide(ctx, o.target, s % 2 ? "f32" : "f16", sizes[s], windows[w]);
        hide(ctx, o.target, "f64", sizes[2], windows[2]);
        hide(ctx, o.target, "bf16", sizes[4], windows[0]);
        fusor_context_free(ctx);
    }
}

/* A query whose mask keeps no key gives 0, whatever the values are that weights of 0 met: few queries and many, a mask of
 * bool and one that is added, in one kernel and in two products (axes more than it has). */
static void mask_all(fusor_context *ctx, const char *form, const char *type, int n_q) {
    enum { T = 70, E = 20, BATCHES = 6 };
    char text[600];
    bool *keep = calloc((size_t)n_q * T, sizeof *keep);
    float *q = calloc((size_t)n_q * BATCHES, sizeof *q), *k = calloc(T * BATCHES, sizeof *k),
          *v = calloc(T * BATCHES * E, sizeof *v), *y = calloc((size_t)n_q * E * BATCHES, sizeof *y);
    fusor_executable *exe = NULL;
    cr_assert(keep && q && k && v && y);
    snprintf(
        text, sizeof text,
        "func @f(%%q: f32[2, 3, S, 1], %%k: f32[2, 3, %d, 1], %%v: f32[2, 3, %d, %d], %%m: bool[S, %d]) -> f32[2, 3, "
        "S, %d] { %%a = cast(%%q, %s) %%b = cast(%%k, %s) %%c = cast(%%v, %s) %s %%r = cast(%%y, f32) return %%r }",
        T, T, E, T, E, type, type, type, form);
    for (int i = 0; i < n_q; i++)
        for (int j = 0; j < T; j++) keep[i * T + j] = i % 3 != 1;
    for (int i = 0; i < T * BATCHES * E; i++) v[i] = i % 7 == 0 ? NAN : i % 7 == 1 ? INFINITY : 1;
    fusor_buffer in[4] = {{.data = q, .dtype = FUSOR_F32, .rank = 4, .shape = {2, 3, n_q, 1}},
                          {.data = k, .dtype = FUSOR_F32, .rank = 4, .shape = {2, 3, T, 1}},
                          {.data = v, .dtype = FUSOR_F32, .rank = 4, .shape = {2, 3, T, E}},
                          {.data = keep, .dtype = FUSOR_BOOL, .rank = 2, .shape = {n_q, T}}};
    fusor_buffer out = {.data = y, .dtype = FUSOR_F32, .rank = 4, .shape = {2, 3, n_q, E}};
    cr_assert(fusor_compile_text(ctx, text, NULL, &exe) == FUSOR_OK, "%s", fusor_error_message(ctx));
    cr_assert(fusor_executable_call(exe, 4, in, 1, &out) == FUSOR_OK, "%s", fusor_error_message(ctx));
    for (int i = 0; i < n_q * BATCHES * E; i++) {
        const int row = i / E % n_q;
        if (row % 3 == 1) cr_expect_eq(y[i], 0, "%s, %d queries: row %d: %g", text, n_q, row, y[i]);
        else cr_expect(!isfinite(y[i]), "%s, %d queries: row %d: %g", text, n_q, row, y[i]);
    }
    fusor_executable_free(exe);
    free(keep), free(q), free(k), free(v), free(y);
}

Test(attention, rows_without_a_key_are_zero_whatever_the_values) {
    static const char *const forms[] = {
        "%y = attention(%a, %b, %c, %m)",
        "%n = select(%m, 0.0, -inf, dtype=f32) %y = attention(%a, %b, %c, %n)",
        "%s = attention(%a, %b, %c, %m) %y = neg(%s)",
        "%d = reshape(%a, shape=[2, 3, 1, 1, 1, 1, S, 1]) %e = reshape(%b, shape=[2, 3, 1, 1, 1, 1, 70, 1]) "
        "%f = reshape(%c, shape=[2, 3, 1, 1, 1, 1, 70, 20]) %s = attention(%d, %e, %f, %m) "
        "%y = reshape(%s, shape=[2, 3, S, 20])",
    };
    for (int level = -1; level <= (int)rt_host_level(); level++) {
        fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
        if (level < 0) o.device = "reference";
        else o.target = ir_levels[level].name;
        fusor_context *ctx = fusor_context_new(&o);
        cr_assert(ctx);
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
            for (int n_q = 1; n_q <= 80; n_q += 79) {
                mask_all(ctx, forms[i], i == 1 ? "f32" : "bf16", n_q + 1);
                mask_all(ctx, forms[i], "f32", n_q);
            }
        fusor_context_free(ctx);
    }
}
