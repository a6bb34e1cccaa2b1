/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* rows_test.c: row reductions behind a contraction: what shares its kernel, what does not and why; descriptions that
 * are refused; a network of three kernels, layer after layer on the same memory. (Values are compared in
 * diff/ops_test.c.) */
#include "base/arena.h"
#include "fusor/fusor.h"
#include "rt/cpuinfo.h"
#include "rt/compiler.h"
#include "count_test.h"
#include "plan_test.h"
#include <math.h>
#include <stdlib.h>

TestSuite(rows, .init = text_start, .fini = text_stop);

/* The plan of a function of %x: f32[B, K], %w: f32[K, N], %r: f32[B, N], %g: f32[N]; N is `n`. */
static const ir_plan *plan_of(const char *n, const char *body, const char *results, bool no_fuse) {
    char text[5000];
    snprintf(text, sizeof text,
             "func @f(%%x: f32[B, K], %%w: f32[K, %s], %%r: f32[B, %s], %%g: f32[%s]) -> (%s) {\n  %%a = matmul(%%x, "
             "%%w)\n  %s\n}",
             n, n, n, results, body);
    return plan_text(text, &(ir_plan_options){.level = IR_LEVEL_V3, .no_fuse = no_fuse});
}

static int count_temps(const ir_plan *p) {
    int n = 0;
    for (uint32_t i = 0; i < p->buffers.n; i++)
        n += p->buffers.at[i].storage == IR_STORE_TEMP && p->buffers.at[i].first_step >= 0;
    return n;
}

static void one_kernel(const char *n, const char *body, const char *results) {
    const ir_plan *p = plan_of(n, body, results, false);
    cr_expect(p->steps.n == 1 && p->steps.at[0].kind == IR_STEP_KERNEL && p->boundaries.n == 0, "%s: %u steps", body,
              p->steps.n);
    cr_expect_eq(count_temps(p), 0, "%s", body);
    cr_expect(p->steps.at[0].kernel->kind == IR_KERNEL_CONTRACT && ir_kernel_has_rows(p->steps.at[0].kernel), "%s",
              body);
    cr_expect_gt(plan_of(n, body, results, true)->steps.n, 1, "%s", body);
}

Test(rows, share_the_kernel_of_the_contraction) {
    static const char *const sizes[] = {"2", "10", "1000", "N"};
    for (int i = 0; i < 4; i++) {
        one_kernel(sizes[i], "%y = softmax(%a) return %y", "f32[?, ?]");
        one_kernel(sizes[i], "%y = reduce_max(%a, axes=[1]) return %y", "f32[?]");
        one_kernel(sizes[i], "%s = add(%a, %g) %y = argmax(%s, axis=1) return %y", "i64[?]");
        one_kernel(sizes[i], "%s = add(%a, %r) %t = gelu(%s) %y = layer_norm(%t, %g) return %y", "f32[?, ?]");
        one_kernel(sizes[i], "%s = add(%a, %r) %y = rms_norm(%s, %g) return %y, %s", "f32[?, ?], f32[?, ?]");
        one_kernel(sizes[i],
                   "%m = reduce_mean(%a, axes=[1], keepdims=true) %d = sub(%a, %m) %s = square(%d) %v = reduce_sum(%s, "
                   "axes=[1]) return %d, %v, %a",
                   "f32[?, ?], f32[?], f32[?, ?]");
        one_kernel(sizes[i], "%y = log_softmax(%a) %z = mul(%y, %r) %t = reduce_sum(%z, axes=[1]) return %t", "f32[?]");
    }
}

static void apart(const char *n, const char *body, const char *results, ir_reason why) {
    const ir_plan *p = plan_of(n, body, results, false);
    bool found = false;
    for (uint32_t b = 0; b < p->boundaries.n; b++) found |= p->boundaries.at[b].reason == why;
    cr_expect(p->steps.n > 1 && found, "%s: %u steps", body, p->steps.n);
    for (uint32_t s = 0; s < p->steps.n; s++)
        cr_expect(!p->steps.at[s].kernel || !ir_kernel_has_rows(p->steps.at[s].kernel), "%s", body);
}

Test(rows, do_not_where_they_cannot) {
    apart("10", "%y = reduce_sum(%a, axes=[0]) return %y", "f32[?]", IR_REASON_CONTRACT_THEN_REDUCE);
    apart("10", "%y = reduce_sum(%a) return %y", "f32[]", IR_REASON_CONTRACT_THEN_REDUCE);
    apart("10", "%y = softmax(%a, axis=0) return %y", "f32[?, ?]", IR_REASON_CONTRACT_THEN_REDUCE);
    apart("10", "%s = neg(%a, barrier=true) %y = softmax(%s) return %y", "f32[?, ?]", IR_REASON_BARRIER);
    /* another row, in memory */
    apart("10", "%f = flip(%a, axes=[0]) %s = softmax(%a) %y = mul(%s, %f) return %y", "f32[?, ?]",
          IR_REASON_CONTRACT_THEN_REDUCE);
}

/* Two contractions, each with a tail, and results that need both: one kernel is first, and the other reads what it
 * stored. */
Test(rows, of_two_contractions_wait_for_one_another) {
    const ir_plan *p =
        plan_of("10",
                "%b = matmul(%x, %w, transpose_a=false, dtype=f64) %c = cast(%b, f32) %e = exp(%a) %h = exp(%c)\n"
                "  %s = softmax(%e) %t = softmax(%h) %u = mul(%s, %h) %v = mul(%t, %e) return %u, %v",
                "f32[?, ?], f32[?, ?]", false);
    cr_expect(p->steps.n == 2 && p->boundaries.n > 0, "%u steps", p->steps.n);
    for (uint32_t b = 0; b < p->boundaries.n; b++)
        cr_expect(p->boundaries.at[b].from == 0 && p->boundaries.at[b].to == 1);
}

/* ---- values that several kernels read ---- */
/* Of %x and %r alone: how many kernels, and how many temporaries they leave to each other. */
static void shared(const char *body, const char *results, uint32_t kernels, int temps) {
    const ir_plan *p = plan_of("10", body, results, false);
    cr_expect_eq(p->steps.n, kernels, "%s: %u steps", body, p->steps.n);
    cr_expect_eq(count_temps(p), temps, "%s: %d temporaries", body, count_temps(p));
}

Test(rows, store_what_later_kernels_read_too) {
    /* costly: stored by the reduction, which has each element; a result is stored where it belongs */
    shared("%e = exp(%r) %s = reduce_sum(%e, axes=[0]) %y = div(%e, %s) return %y", "f32[?, ?]", 2, 2);
    shared("%e = exp(%r) %s = reduce_sum(%e, axes=[1]) return %e, %s", "f32[?, ?], f32[?]", 1, 0);
    shared("%e = tanh(%r) %h = layer_norm(%e, %g) %t = reduce_sum(%e, axes=[0]) return %h, %t", "f32[?, ?], f32[?]", 2,
           1);
    shared("%y = softmax(%r, axis=0) return %y", "f32[?, ?]", 3, 3);
    /* of two operands, read twice: written once, not read twice again */
    shared("%e = mul(%r, %a) %h = softmax(%e, axis=1) %t = reduce_max(%e, axes=[0]) return %h, %t", "f32[?, ?], f32[?]",
           2, 1);
    /* of one: computed again */
    shared("%e = neg(%r) %s = reduce_sum(%e, axes=[0]) %y = div(%e, %s) return %y", "f32[?, ?]", 2, 1);
    /* a result that the reduction reads too: it stores it */
    shared("%e = erf(%r) %c = ceil(%e) %l = le(%c, 0.) %t = reduce_all(%l, axes=[1]) %m = reduce_max(%e, axes=[1])"
           " return %m, %t, %l",
           "f32[?], bool[?], bool[?, ?]", 1, 0);
    /* the reduction is not over its space, or comes later: a map */
    shared("%e = exp(%g) %b = add(%e, %r) %s = reduce_sum(%b) %y = mul(%e, %s) return %y", "f32[?]", 3, 2);
}

/* Each value reads the one before twice, and all are read by several kernels: paths double with each. */
Test(rows, shared_values_are_measured_once) {
    char body[4000];
    int n = snprintf(body, sizeof body, "%%v0 = add(%%r, %%g)");
    for (int i = 0; i < 60; i++)
        n += snprintf(body + n, sizeof body - (size_t)n, "\n  %%v%d = %s(%%v%d, %%v%d)", i + 1, i & 1 ? "mul" : "add",
                      i, i);
    snprintf(body + n, sizeof body - (size_t)n,
             "\n  %%s = reduce_sum(%%v60, axes=[1]) %%q = reduce_sum(%%v60, axes=[0]) return %%v60, %%s, %%q");
    shared(body, "f32[?, ?], f32[?], f32[?]", 2, 0);
}

/* ---- descriptions ---- */
#define HEAD                                                                                                           \
    "fusor-kernel 1\nkind contract\nlevel x86-64-v3\ntile 6 16 512\ndim m ?\ndim n ?\ndim k ?\n"                       \
    "buffer in f32 ? 0 1\nbuffer in f32 0 1 ?\nbuffer out f32 1 0 0\n%0 = load.f32 #0\n%1 = load.f32 #1\n%2 = "        \
    "matmul.f32 %0 %1"

Test(rows, bad_descriptions_are_refused) {
    static const struct {
        const char *text, *message;
    } bad[] = {
        {HEAD " kept\n%3 = reduce_sum.f32 %2\n%4 = store.f32 #2 %3\n", NULL},
        {HEAD "\n%3 = reduce_sum.f32 %2\n%4 = store.f32 #2 %3\n", "keeps 1 to 8 values of its rows, not 0"},
        {HEAD "\n%3 = neg.f32 %2 kept\n%4 = reduce_sum.f32 %3\n%5 = reduce_sum.f32 %2\n%6 = add.f32 %4 %5\n%7 = "
              "store.f32 #2 %6\n",
         "%5: a row program reads products that are not kept"},
        {HEAD " kept\n%3 = reduce_sum.f32 %2\n%4 = reduce_sum.f32 %3\n%5 = store.f32 #2 %4\n",
         "%4: a contract kernel reduces along n"},
    };
    static ir_kernel k;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fu_error_clear(&error);
        fusor_status status = ir_kernel_parse(&error, bad[i].text, strlen(bad[i].text), &k);
        if (!bad[i].message) cr_expect_eq(status, FUSOR_OK, "%s", error.text);
        else cr_expect(status != FUSOR_OK && strstr(error.text, bad[i].message), "%zu: %s", i, error.text);
    }
}

/* What one program needs of the other is its buffers behind the whole's, and what neither needs is gone. */
Test(rows, two_programs_meet_in_the_kept_values) {
    static ir_kernel k, tile, row;
    const char *text = HEAD " kept\n%3 = reduce_sum.f32 %2\n%4 = store.f32 #2 %3\n";
    cr_assert_eq(ir_kernel_parse(&error, text, strlen(text), &k), FUSOR_OK, "%s", error.text);
    ir_kernel_tile_program(&k, &tile);
    ir_kernel_row_program(&k, &row);
    cr_expect(tile.n_buffers == 4 && tile.buffer[3].is_output && row.n_buffers == 4 && !row.buffer[3].is_output);
    cr_expect(row.kind == IR_KERNEL_ROW && row.n_dims == 2 && row.dim[1].role == 'r');
    cr_expect(tile.inst[3].op == IR_K_INDEX && tile.inst[4].op == IR_K_INDEX && row.inst[0].op == IR_K_INDEX &&
              row.inst[2].op == IR_K_LOAD);
    cr_expect(ir_kernel_verify(&tile, &error) == FUSOR_OK && ir_kernel_verify(&row, &error) == FUSOR_OK, "%s",
              error.text);
    cr_expect(!ir_kernel_has_rows(&tile) && !ir_kernel_has_rows(&row) && ir_kernel_has_rows(&k));
    ir_launch l;
    int64_t size[3] = {100, 33, 1000}, tune[IR_TUNE_COUNT] = {24, 16};
    ir_kernel_launch(&k, size, tune, &l);
    cr_expect(l.n_phases == 3 && l.tiles[1] == 5 && l.tiles[2] == 0 && l.kept_bytes == 0, "a block is as wide as n");
    tune[IR_TUNE_CONTRACT_ROWS] = 30;
    ir_kernel_launch(&k, size, tune, &l);
    cr_expect(l.tiles[1] == 15 && l.tiles[2] == 4 && l.kept_bytes >= 100 * 33 * 4, "phase 2 makes the rows");
}

/* ---- a network ---- */
static const char mlp[] = "func @mlp(%x: f32[B, 784], const %w1: f32[784, 512], const %b1: f32[512], const %w2: "
                          "f32[512, 256], const %b2: f32[256],\n"
                          "          const %w3: f32[256, 10], const %b3: f32[10]) -> (%y: f32[B, 10]) {\n"
                          "  %m1 = matmul(%x, %w1) %a1 = add(%m1, %b1) %h1 = relu(%a1)\n  %m2 = matmul(%h1, %w2) %a2 = "
                          "add(%m2, %b2) %h2 = relu(%a2)\n"
                          "  %m3 = matmul(%h2, %w3) %a3 = add(%m3, %b3) %y = softmax(%a3)\n  return %y\n}\n";
static const char *const names[6] = {"w1", "b1", "w2", "b2", "w3", "b3"};
static const int64_t shapes[7][2] = {{784, 512}, {512}, {512, 256}, {256}, {256, 10}, {10}, {128, 784}};

Test(rows, a_network_is_three_kernels_and_allocates_nothing_once_warm) {
    const fusor_codegen_table *table;
    if (rt_host_level() < 0 || rt_module_get(&error, &table) != FUSOR_OK) return;
    fusor_buffer in[7] = {{0}};
    for (int i = 0; i < 7; i++) {
        in[i] = (fusor_buffer){.dtype = FUSOR_F32, .rank = shapes[i][1] ? 2 : 1, .shape = {shapes[i][0], shapes[i][1]}};
        int64_t n = shapes[i][0] * (shapes[i][1] ? shapes[i][1] : 1);
        float *data = malloc((size_t)n * sizeof *data);
        cr_assert(data);
        for (int64_t k = 0; k < n; k++) data[k] = (float)((k * 37 + i * 101) % 1009) / 5045 - 0.1f;
        in[i].data = data;
    }
    for (int threads = 1; threads <= 2; threads++) {
        fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
        o.cache_dir = "";
        o.n_threads = threads;
        o.allocate = counted;
        o.deallocate = freed;
        fusor_context *ctx = fusor_context_new(&o);
        fusor_executable *plain, *exe;
        cr_assert_eq(fusor_compile_text(ctx, mlp, NULL, &plain), FUSOR_OK, "%s", fusor_error_message(ctx));
        char *text;
        cr_assert_eq(fusor_explain_json(plain, &text), FUSOR_OK);
        int kernels = 0;
        for (const char *at = text; (at = strstr(at, "\"symbol\"")); at++) kernels++;
        cr_expect_eq(kernels, 3, "%s", text);
        fusor_text_free(text);
        cr_assert_eq(fusor_executable_bind(plain, 6, names, in, &exe), FUSOR_OK, "%s", fusor_error_message(ctx));
        float y[128][10];
        fusor_buffer x = in[6], out = {.data = y, .dtype = FUSOR_F32, .rank = 2, .shape = {128, 10}};
        cr_assert_eq(fusor_executable_call(exe, 1, &x, 1, &out), FUSOR_OK);
        int before = atomic_load(&n_allocations);
        fu_malloc_fail_at(1);
        for (int again = 0; again < 3; again++)
            for (int64_t batch = 1; batch <= 128; batch *= 2) {
                x.shape[0] = out.shape[0] = batch;
                fusor_status status = fusor_executable_call(exe, 1, &x, 1, &out);
                cr_assert_eq(status, FUSOR_OK, "%s", fusor_error_message(ctx));
                for (int64_t b = 0; b < batch; b++) {
                    float sum = 0;
                    for (int i = 0; i < 10; i++) sum += y[b][i];
                    cr_assert(fabsf(sum - 1) < 1e-5f, "row %lld sums to %g", (long long)b, (double)sum);
                }
            }
        fu_malloc_fail_at(0);
        cr_assert_eq(atomic_load(&n_allocations), before);
        fusor_executable_free(exe);
        fusor_executable_free(plain);
        fusor_context_free(ctx);
    }
    for (int i = 0; i < 7; i++) free(in[i].data);
}
