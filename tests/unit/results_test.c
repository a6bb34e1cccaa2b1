/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* results_test.c: which results share a map (ir/plan_tiers.c): those that can, and never so that two kernels wait for
 * each other. (Values are compared in diff/ops_test.c and tests/fuzz.) */
#include "plan_test.h"
#include <stdio.h>

TestSuite(results, .init = text_start, .fini = text_stop);

static const ir_plan *plan_of(const char *text) { return plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V3}); }

enum { FORWARD, BACKWARD, ODD_FIRST };

/* n results, each made of the one before, returned in that order or another. */
static const char *chain(int n, int order) {
    fu_str s;
    fu_str_init(&s, &arena);
    fu_str_addf(&s, "func @f(%%y0: f32[N]) -> (");
    for (int i = 0; i < n; i++) fu_str_addf(&s, "%sf32[N]", i ? ", " : "");
    fu_str_addf(&s, ") {");
    for (int i = 1; i <= n; i++) fu_str_addf(&s, " %%y%d = fmod(%%y%d, %d.5)", i, i - 1, i);
    fu_str_addf(&s, " return ");
    for (int i = 0; i < n; i++) {
        const int odd = (n + 1) / 2;
        const int y = order == FORWARD ? i + 1 : order == BACKWARD ? n - i : i < odd ? 2 * i + 1 : 2 * (i - odd + 1);
        fu_str_addf(&s, "%s%%y%d", i ? ", " : "", y);
    }
    fu_str_addf(&s, " }");
    return s.at;
}

/* A map stores up to 16 results. */
Test(results, of_a_chain_are_stored_by_as_few_maps_as_hold_them) {
    for (int order = FORWARD; order <= ODD_FIRST; order++)
        for (int n = 1; n <= 40; n++) {
            const ir_plan *p = plan_of(chain(n, order));
            cr_expect(p->steps.n <= (uint32_t)(n + 15) / 16 + (n > 16), "%d results, order %d: %u kernels", n, order,
                      p->steps.n);
        }
}

Test(results, share_a_map_where_they_can) {
    /* moments and the parameter; two shapes; one that needs a result of another shape */
    cr_expect_eq(plan_of("func @f(%p: f32[N], %g: f32[N], %m: f32[N], %v: f32[N]) -> (f32[N], f32[N], f32[N]) {"
                         " %a = mul(%m, 0.9) %b = mul(%g, 0.1) %n = add(%a, %b) %c = mul(%v, 0.99) %d = square(%g)"
                         " %w = add(%c, %d) %s = sqrt(%w) %q = div(%n, %s) %r = sub(%p, %q) return %r, %n, %w }")
                     ->steps.n,
                 1);
    cr_expect_eq(plan_of("func @f(%x: f32[N], %y: f32[M]) -> (f32[N], f32[M], f32[N], f32[M]) { %a = neg(%x)"
                         " %b = neg(%y) %c = abs(%a) %d = abs(%b) return %a, %b, %c, %d }")
                     ->steps.n,
                 2);
    cr_expect_eq(plan_of("func @f(%x: f32[N], %y: f32[M, N]) -> (f32[N], f32[M, N], f32[M, N], f32[N]) { %a = neg(%x)"
                         " %b = add(%y, %a) %c = abs(%b) %d = abs(%a) return %a, %b, %c, %d }")
                     ->steps.n,
                 2);
}

/* Each reads a result by a kernel that another result of its shape waits for. */
Test(results, do_not_wait_for_each_other) {
    static const char *const texts[] = {
        "func @f(%x: f16[1, N], %g: f16[1, 5]) -> (bool[?], f16[?, ?], bool[?], bool[?]) {"
        " %a = rms_norm(%x, %g, axis=-2) %b = le(%a, %x) %c = squeeze(%b, axes=[0]) %d = fma(%g, %x, %a)"
        " %e = squeeze(%d, axes=[0]) %f = reduce_any(%c, keepdims=true) %h = lt(1e-3, %e) %i = and(true, %f)"
        " %j = eq(%i, %c) return %c, %d, %h, %j }",
        "func @f(%x: f64[5, 1]) -> (f64[?, ?], f64[?, ?]) { %a = log(%x) %b = flip(%a, axes=[0])"
        " %c = reduce_mean(%b, axes=[-2]) %d = reduce_logsumexp(%c, axes=[-1], keepdims=true) %e = mul(%d, %a)"
        " return %b, %e }",
        "func @f(%x: f64[N], %i: u64[3, 2], %w: f64[2]) -> (f64[?], f64[?, ?], f64[?, ?], f64[?, ?]) { %a = selu(%x)"
        " %b = unsqueeze(%a, axes=[0]) %c = add(%a, %b) %d = cast(%c, bool) %e = select(%d, 0.1, %b)"
        " %f = take(%c, %i, axis=0) %g = einsum(\"abc,b->ca\", %f, %w) return %a, %b, %e, %g }",
        "func @f(%x: bool[1], %y: f64[N, 1], %g: f64[2]) -> (f64[?, ?], f64[?], f64[?]) { %a = cast(%x, f64)"
        " %b = hypot(%a, %a) %c = einsum(\"a,ba->ba\", %b, %y) %d = mul(%a, %c) %e = reshape(%d, shape=[-1])"
        " %f = rms_norm(%e, %g, axis=0) return %d, %e, %f }",
        "func @f(%x: f32[13, N, 1], %w: f32[16, 13, 3], %g: f32[1, 13, 100], %b: f32[1, 13, 100]) -> (f32[?, ?, ?],"
        " f32[?, ?, ?], f32[?, ?, ?]) { %a = transpose(%x, perm=[2, 0, 1]) %c = ge(%a, -3)"
        " %d = conv(%a, %w, strides=[1], pads=[1, 1]) %e = cast(%c, f32) %f = cast(%c, f32)"
        " %h = layer_norm(%f, %g, %b, axis=-3) return %d, %e, %h }",
        "func @f(%x: u16[1, N, M], %w: u16[5, K, 1], %i: i64[L]) -> (bf16[?, ?, ?], bf16[?, ?, ?], i64[?, ?, ?]) {"
        " %a = slice(%x, starts=[1, 1], ends=[9223372036854775807, 1000000], steps=[5, 1], axes=[1, 2])"
        " %b = bitcast(%a, bf16) %c = clamp(%b, 0.1, 7) %d = conv(%a, %w, strides=[3], pads=[0, 0])"
        " %e = layer_norm(%c, axis=1) %f = take(%d, %i, axis=2) return %c, %e, %f }",
        "func @f(%x: f16[64, N], %w: f16[N, K], %g: f16[M, N], %c: bool[64, N]) -> (f16[?, ?], u64[?, ?], f32[?, ?]) {"
        " %a = fmod(%x, %x) %b = maximum(%a, nan) %d = matmul(%a, %w, dtype=f32)"
        " %e, %f = split(%d, axis=1, sizes=[6, 10]) %h = rms_norm(%b, %g, axis=0) %i = cast(%h, u64)"
        " %j = select(%c, %i, %i) %k = fmod(%i, %j) %l = pad(%e, pads=[4, 4, 4, 0], mode=edge) return %b, %k, %l }",
        /* a value that is stored late; a tail of rows, of a band */
        "func @f(%x: f32[64, 96], %a: f32[64, 32], %b: f32[32, 128], %q: f32[96, 80]) -> (f32[64, 96], f32[64, 96],"
        " f32[64], f32[64, 80]) { %s = exp(%x) %r = neg(%s) %y = reduce_sum(%r, axes=[1], keepdims=true)"
        " %h = matmul(%a, %b) %m = reduce_max(%h, axes=[1], keepdims=true) %d = sub(%h, %m) %e = mul(%d, %y)"
        " %t = reduce_sum(%e, axes=[1]) %i = slice(%h, starts=[0], ends=[96], axes=[1]) %u = add(%s, %i)"
        " %w = matmul(%s, %q) return %r, %u, %t, %w }",
        "func @f(%x: f32[1, 16, 32, 32], %i: f32[1, 8, 66, 66], %k: f32[16, 8, 3, 3], %q: f32[32, 80]) -> (f32[1, 16,"
        " 32, 32], f32[1, 16, 32, 32], f32[1, 16, 32, 80]) { %s = exp(%x) %r = add(%s, 1.0) %h = conv(%i, %k)"
        " %m = max_pool(%h, kernel=[2, 2], strides=[2, 2]) %u = add(%m, %s) %w = matmul(%s, %q) return %r, %u, %w }",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) (void)plan_of(texts[i]); /* there is a plan */
}
