/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* device_each_test.c: one launch for many kernels of one description, over the fake driver: an optimizer's step over
 * parameters of different sizes, as sets of buffers and as one program; that its bits are those of single launches,
 * that its table is uploaded when buffers change and not else, and that steps which use each other's memory stay
 * apart. */
#include "device_exec.h"
TestSuite(device_each, .init = init, .timeout = 300);

/* A tensor of f32 on the device, with numbers of its own or those of another one. */
static fusor_buffer tensor(int rank, int64_t rows, int64_t columns, uint64_t seed) {
    rt_address at;
    const size_t n = (size_t)(rows * columns);
    float *x = malloc(n * sizeof *x + 1);
    for (size_t i = 0; i < n; i++) x[i] = (float)(mix(seed * 1000003 + i) >> 40) / (1 << 23) - 1;
    place_must(rt_queue_get(queue, &error, n * sizeof *x, &at), &error);
    if (n) place_must(rt_queue_upload(queue, &error, at, x, n * sizeof *x), &error);
    free(x);
    return (fusor_buffer){.data = (void *)(uintptr_t)at,
                          .dtype = FUSOR_F32,
                          .rank = rank,
                          .shape = {rank == 1 ? rows * columns : rows, columns},
                          .device = 1};
}

static bool are_equal(const fusor_buffer *a, const fusor_buffer *b) {
    size_t n = sizeof(float);
    for (int d = 0; d < a->rank; d++) n *= (size_t)a->shape[d];
    char *x = malloc(n + 1), *y = malloc(n + 1);
    if (n) OK(rt_queue_download(queue, &error, x, (rt_address)(uintptr_t)a->data, n));
    if (n) OK(rt_queue_download(queue, &error, y, (rt_address)(uintptr_t)b->data, n));
    const bool same = memcmp(x, y, n) == 0;
    free(x);
    free(y);
    return same;
}

/* ---- sets of buffers ---- */
#define ADAM(X)                                                                                                        \
    "%m" X "1 = mul(%m" X ", 0.9) %g" X "1 = mul(%g" X ", 0.1) %m" X "2 = add(%m" X "1, %g" X "1) "                    \
    "%v" X "1 = mul(%v" X ", 0.99) %g" X "2 = mul(%g" X ", %g" X ") %g" X "3 = mul(%g" X "2, 0.01) "                   \
    "%v" X "2 = add(%v" X "1, %g" X "3) %a" X " = abs(%v" X "2) %s" X " = sqrt(%a" X ") %e" X " = add(%s" X ", 1e-6) " \
    "%u" X " = div(%m" X "2, %e" X ") %w" X " = mul(%u" X ", %lr) %q" X " = sub(%p" X ", %w" X ") "

static const char adam[] =
    "func @f(%p: f32[N], %m: f32[N], %v: f32[N], %g: f32[N], %lr: f32) -> (f32[N] alias %p, f32[N] alias %m, "
    "f32[N] alias %v) { " ADAM("") " return %q, %m2, %v2 }";
static const char softmax[] = "func @f(%x: f32[M, N]) -> f32[M, N] alias %x { %y = softmax(%x, axis=1) return %y }";
static const char turned[] = "func @f(%x: f32[M, N], %z: f32[N, M]) -> f32[N, M] alias %z { %t = transpose(%x) "
                             "%y = add(%t, %z) return %y }";
static const char columns[] = "func @f(%x: f32[M, N], %z: f32[N]) -> f32[N] alias %z { %s = reduce_sum(%x, axes=[0]) "
                              "%y = add(%s, %z) return %y }";
enum { SETS = 20, MAX_IN = 5 };

/* Sizes of one block and of several, with and without vectors; one set of nothing. */
static int64_t size_of(int set, int dim) {
    return set == 7 ? 0 : dim == 0 ? 1 + set % 5 * 9 : 3 + set * (set % 3 == 0 ? 44 : 13);
}

/* in: by parameter, then by set. Ranks: 1 for f32[N], 2 for f32[M, N]; 3: f32[N, M]. */
static void check_sets(const char *text, const char *ranks, int n_out, long launches) {
    fusor_buffer in[2][MAX_IN][SETS], out[2][3][SETS], rate = {.dtype = FUSOR_F32, .device = 1};
    const int n_in = (int)strlen(ranks);
    rt_exec *x = compile(text);
    rate.data = tensor(1, 1, 1, 77).data;
    rt_buffers lists[2][MAX_IN], results[2][3];
    for (int copy = 0; copy < 2; copy++)
        for (int p = 0; p < n_in; p++) {
            for (int s = 0; s < SETS; s++) {
                const int64_t m = size_of(s, 0), n = size_of(s, 1);
                const uint64_t seed = (uint64_t)(p * SETS + s);
                in[copy][p][s] = ranks[p] == '0'   ? rate
                                 : ranks[p] == '1' ? tensor(1, 1, n, seed)
                                 : ranks[p] == '2' ? tensor(2, m, n, seed)
                                                   : tensor(2, n, m, seed);
            }
            lists[copy][p] = (rt_buffers){in[copy][p], ranks[p] == '0' ? 1 : SETS};
        }
    memset(out, 0, sizeof out);
    for (int copy = 0; copy < 2; copy++)
        for (int r = 0; r < n_out; r++) results[copy][r] = (rt_buffers){out[copy][r], SETS};
    /* one by one */
    for (int s = 0; s < SETS; s++) {
        fusor_buffer own[MAX_IN], none[3] = {{0}};
        for (int p = 0; p < n_in; p++) own[p] = in[0][p][ranks[p] == '0' ? 0 : s];
        for (int round = 0; round < 3; round++) OK(rt_exec_call(x, &error, n_in, own, n_out, none));
    }
    rt_each *each;
    OK(rt_each_new(x, &error, SETS, n_in, lists[1], n_out, results[1], &each));
    OK(rt_queue_wait(queue, &error));
    for (int round = 0; round < 3; round++) {
        const long before = fake_count("cuLaunchKernel"), copied = fake_count("cuMemcpyHtoDAsync_v2");
        OK(rt_each_run(each, &error));
        cr_assert_eq(fake_count("cuLaunchKernel") - before, launches, "%s: %ld launches, not %ld", text,
                     fake_count("cuLaunchKernel") - before, launches);
        if (round) cr_assert_eq(fake_count("cuMemcpyHtoDAsync_v2"), copied, "%s: the table again", text);
    }
    for (int p = 0; p < n_in; p++)
        for (int s = 0; s < SETS; s++)
            cr_assert(are_equal(&in[0][p][s], &in[1][p][s]), "%s: parameter %d of set %d", text, p, s);
    rt_each_free(each);
    rt_exec_release(x);
    for (int copy = 0; copy < 2; copy++)
        for (int p = 0; p < n_in; p++)
            for (int s = 0; s < SETS && ranks[p] != '0'; s++) drop(&in[copy][p][s]);
    drop(&rate);
}

Test(device_each, sets_are_one_launch) {
    ONLY_ON_THE_FAKE_DRIVER();
    if (!begin()) return;
    check_sets(adam, "11110", 3, 1);
    check_sets(softmax, "2", 1, 1);
    check_sets(turned, "23", 1, 1);
    check_sets(columns, "21", 1, 1);
}

/* ---- steps of a program ---- */
/* Three parameters of a model, two of them vectors, of sizes below and above what a program bakes. */
static const char model[] =
    "func @f(%pa: f32[N], %ma: f32[N], %va: f32[N], %ga: f32[N], "
    "%pb: f32[10], %mb: f32[10], %vb: f32[10], %gb: f32[10], "
    "%pc: f32[M, N], %mc: f32[M, N], %vc: f32[M, N], %gc: f32[M, N], %lr: f32) -> "
    "(f32[N] alias %pa, f32[N] alias %ma, f32[N] alias %va, f32[10] alias %pb, f32[10] alias %mb, f32[10] alias %vb, "
    "f32[M, N] alias %pc, f32[M, N] alias %mc, f32[M, N] alias %vc) { " ADAM("a") ADAM("b")
        ADAM("c") "return %qa, %ma2, %va2, %qb, %mb2, %vb2, %qc, %mc2, %vc2 }";

Test(device_each, steps_of_a_plan_are_one_launch) {
    ONLY_ON_THE_FAKE_DRIVER();
    enum { N = 300, M = 7 };
    fusor_buffer all[13], own[5], none[9] = {{0}}, single[3][4];
    if (!begin()) return;
    rt_exec *x = compile(model), *one = compile(adam);
    for (int t = 0; t < 3; t++)
        for (int p = 0; p < 4; p++) {
            const uint64_t seed = (uint64_t)(t * 4 + p);
            all[t * 4 + p] = t == 0 ? tensor(1, 1, N, seed) : t == 1 ? tensor(1, 1, 10, seed) : tensor(2, M, N, seed);
            single[t][p] = tensor(1, 1, t == 0 ? N : t == 1 ? 10 : M * N, seed);
        }
    all[12] = (fusor_buffer){.dtype = FUSOR_F32, .device = 1, .data = tensor(1, 1, 1, 5).data};
    for (int round = 0; round < 3; round++) {
        memset(none, 0, sizeof none);
        const long before = fake_count("cuLaunchKernel"), copied = fake_count("cuMemcpyHtoDAsync_v2");
        OK(rt_exec_call(x, &error, 13, all, 9, none));
        cr_assert_eq(fake_count("cuLaunchKernel") - before, 1, "%ld launches", fake_count("cuLaunchKernel") - before);
        if (round) cr_assert_eq(fake_count("cuMemcpyHtoDAsync_v2"), copied, "the table again");
        for (int t = 0; t < 3; t++) {
            memcpy(own, single[t], sizeof single[t]);
            own[4] = all[12];
            memset(none, 0, sizeof none);
            OK(rt_exec_call(one, &error, 5, own, 3, none));
        }
    }
    for (int t = 0; t < 3; t++)
        for (int p = 0; p < 4; p++) {
            single[t][p].rank = all[t * 4 + p].rank;
            memcpy(single[t][p].shape, all[t * 4 + p].shape, sizeof all[0].shape);
            cr_assert(are_equal(&all[t * 4 + p], &single[t][p]), "parameter %d of tensor %d", p, t);
            drop(&all[t * 4 + p]);
            drop(&single[t][p]);
        }
    rt_exec_release(x);
    rt_exec_release(one);
}

/* The same kernel three times, each on the result of the one before; and on results side by side. */
Test(device_each, what_depends_on_each_other_stays_apart) {
    ONLY_ON_THE_FAKE_DRIVER();
    static const char chain[] = "func @f(%x: f32[M, N]) -> f32[N, M] { %a = transpose(%x) %b = softmax(%a, axis=1) "
                                "%c = transpose(%b) %d = softmax(%c, axis=1) %e = transpose(%d) return %e }";
    static const char beside[] =
        "func @f(%x: f32[M, N], %y: f32[K, N], %z: f32[L, N]) -> (f32[M, N], f32[K, N], f32[L, N]) { "
        "%a = softmax(%x, axis=1) %b = softmax(%y, axis=1) %c = softmax(%z, axis=1) return %a, %b, %c }";
    if (!begin()) return;
    fusor_buffer in[3] = {tensor(2, 3, 50, 1), tensor(2, 9, 50, 2), tensor(2, 1, 50, 3)}, out[3] = {{0}};
    rt_exec *x = compile(chain);
    long before = fake_count("cuLaunchKernel");
    out[0] = tensor(2, 50, 3, 9);
    OK(rt_exec_call(x, &error, 1, in, 1, out));
    long kernels = 0;
    for (uint32_t i = 0; i < rt_exec_plan(x)->steps.n; i++)
        kernels += rt_exec_plan(x)->steps.at[i].kind == IR_STEP_KERNEL;
    cr_assert(kernels > 1);
    cr_assert_eq(fake_count("cuLaunchKernel") - before, kernels);
    rt_exec_release(x);
    x = compile(beside);
    for (int i = 0; i < 3; i++) out[i] = tensor(2, in[i].shape[0], 50, 9);
    before = fake_count("cuLaunchKernel");
    OK(rt_exec_call(x, &error, 3, in, 3, out));
    cr_assert_eq(fake_count("cuLaunchKernel") - before, 1);
    rt_exec_release(x);
    for (int i = 0; i < 3; i++) drop(&in[i]);
}

/* ---- profiles ---- */
/* Each step, or set, counts once; its bytes are its own. A launch that did not come to be counts for nothing. */
Test(device_each, one_launch_is_shared_out_in_a_profile) {
    static const char beside[] = "func @f(%x: f32[M, N], %y: f32[K, N]) -> (f32[M, N], f32[K, N]) { "
                                 "%a = softmax(%x, axis=1) %b = softmax(%y, axis=1) return %a, %b }";
    if (!begin()) return;
    fusor_buffer in[2] = {tensor(2, 3, 50, 1), tensor(2, 9, 50, 2)},
                 out[2] = {tensor(2, 3, 50, 3), tensor(2, 9, 50, 4)};
    static _Atomic(rt_profile *) profile;
    rt_exec *x = compile_profiled(beside, &profile);
    rt_profile *p = atomic_load(&profile);
    atomic_store(&p->on, RT_PROFILE_COUNTS);
    for (int i = 0; i < 3; i++) OK(rt_exec_call(x, &error, 2, in, 2, out));
    cr_assert_eq(atomic_load(&p->used), 2);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(atomic_load(&p->entry[i].calls), 3);
        cr_assert_eq(atomic_load(&p->entry[i].bytes), 3.0 * 2 * 4 * 50 * (i ? 9 : 3));
    }
    rt_exec_release(x);
    rt_profile_free(p);
    x = compile_profiled(softmax, &profile);
    p = atomic_load(&profile);
    atomic_store(&p->on, RT_PROFILE_COUNTS);
    rt_each *each;
    fusor_buffer none[2] = {{0}, {0}};
    OK(rt_each_new(x, &error, 2, 1, &(rt_buffers){in, 2}, 1, &(rt_buffers){none, 2}, &each));
    OK(rt_each_run(each, &error));
    cr_assert_eq(atomic_load(&p->entry[0].calls), 2);
    cr_assert_eq(atomic_load(&p->entry[0].bytes), 2.0 * 4 * 50 * (3 + 9));
    rt_each_free(each);
    for (int i = 0; i < 2; i++) in[i].shape[0] = 0;
    memset(none, 0, sizeof none);
    OK(rt_each_new(x, &error, 2, 1, &(rt_buffers){in, 2}, 1, &(rt_buffers){none, 2}, &each));
    OK(rt_each_run(each, &error));
    cr_assert_eq(atomic_load(&p->entry[0].calls), 2);
    rt_each_free(each);
    rt_exec_release(x);
    rt_profile_free(p);
    for (int i = 0; i < 2; i++) drop(&in[i]), drop(&out[i]);
}
