/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* device_exec_test.c: calls on a device: what is put on the queue, and what is not; bound parameters, sets, sequences;
 * threads, profiles, memory. Beside it: device_placement_test.c (where buffers are), device_fault_test.c (the driver
 * fails), device_each_test.c (one launch for many kernels). */
#include "device_exec.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
TestSuite(device_exec, .init = init, .timeout = 300);

/* ---- what is put on the queue ---- */
static fusor_buffer there(int64_t m, int64_t n) {
    rt_address at;
    place_must(rt_queue_get(queue, &error, (size_t)(m * n) * sizeof(float), &at), &error);
    place_must(rt_queue_fill(queue, &error, at, 0, (size_t)(m * n) * sizeof(float)), &error);
    return (fusor_buffer){.data = (void *)(uintptr_t)at, .dtype = FUSOR_F32, .rank = 2, .shape = {m, n}, .device = 1};
}
static const char two_products[] =
    "func @f(%a: f32[M, K], %b: f32[K, N], %c: f32[N, N]) -> (f32[M, N], f32[M]) { %d = matmul(%a, %b) "
    "%e = matmul(%d, %c) %g = reduce_sum(%e, axes=[1]) return %e, %g }";

static int n_kernels(const rt_exec *x) {
    int n = 0;
    for (uint32_t i = 0; i < rt_exec_plan(x)->steps.n; i++) n += rt_exec_plan(x)->steps.at[i].kind == IR_STEP_KERNEL;
    return n;
}

/* Only launches, and what makes the context current. */
static void launches_only(const long *before, const long *after, int launches) {
    for (int i = 0; i < N_FAKE_FUNCTIONS; i++) {
        const char *name = fake_functions[i];
        if (strcmp(name, "cuLaunchKernel") == 0) cr_assert_eq(after[i] - before[i], launches);
        else if (strncmp(name, "cuCtx", 5) != 0) cr_assert_eq(after[i], before[i], "%s", name);
    }
}

Test(device_exec, a_repeated_call_puts_launches_on_the_queue_and_nothing_else) {
    ONLY_ON_THE_FAKE_DRIVER();
    long before[N_FAKE_FUNCTIONS], after[N_FAKE_FUNCTIONS];
    if (!begin()) return;
    rt_exec *x = compile(two_products);
    fusor_buffer in[3] = {there(8, 8), there(8, 8), there(8, 8)}, out[2] = {there(8, 8), there(8, 1)};
    out[1].rank = 1;
    for (int i = 0; i < 2; i++) OK(rt_exec_call(x, &error, 3, in, 2, out));
    OK(rt_queue_wait(queue, &error));
    for (int i = 0; i < 3; i++) {
        fake_count_all(before);
        OK(rt_exec_call(x, &error, 3, in, 2, out));
        fake_count_all(after);
        launches_only(before, after, n_kernels(x));
    }
    rt_call *call;
    OK(rt_call_new(x, &error, 3, in, 2, out, &call));
    OK(rt_call_run(call, &error));
    fake_count_all(before);
    cr_assert(!rt_call_again(call));
    OK(rt_call_run(call, &error));
    fake_count_all(after);
    launches_only(before, after, n_kernels(x));
    rt_call_free(call);
    OK(rt_queue_wait(queue, &error));
    for (int i = 0; i < 3; i++) drop(&in[i]);
    for (int i = 0; i < 2; i++) drop(&out[i]);
    rt_exec_release(x);
}

static long copies(const char *direction) {
    char name[64];
    snprintf(name, sizeof name, "cuMemcpy%sAsync_v2", direction);
    return fake_count(name);
}

Test(device_exec, only_what_has_to_be_is_copied) {
    ONLY_ON_THE_FAKE_DRIVER();
    float a[64] = {0}, y[64], s[8];
    if (!begin()) return;
    rt_exec *x = compile(two_products);
    fusor_buffer in[3] = {here(a, 2, 8, 8), there(8, 8), there(8, 8)}, out[2] = {there(8, 8), here(s, 1, 8, 0)};
    OK(rt_exec_call(x, &error, 3, in, 2, out));
    long up = copies("HtoD"), down = copies("DtoH");
    OK(rt_exec_call(x, &error, 3, in, 2, out));
    cr_assert(copies("HtoD") == up + 1 && copies("DtoH") == down + 1);
    rt_exec_release(x);
    /* an index that the host has is checked where it is */
    x = compile("func @f(%a: f32[M, N], %i: i32[K]) -> f32[K, N] { %b = take(%a, %i, axis=0) return %b }");
    int32_t index[8] = {1, 2, 3, 4, 5, 6, 7, -8};
    fusor_buffer take[2] = {there(8, 8), {.data = index, .dtype = FUSOR_I32, .rank = 1, .shape = {8}}},
                 taken = there(8, 8);
    OK(rt_exec_call(x, &error, 2, take, 1, &taken));
    up = copies("HtoD"), down = copies("DtoH");
    OK(rt_exec_call(x, &error, 2, take, 1, &taken));
    cr_assert(copies("HtoD") == up + 1 && copies("DtoH") == down, "%ld", copies("DtoH") - down);
    /* a wrong one is found before anything is written */
    float mark[64];
    for (int i = 0; i < 64; i++) mark[i] = 7;
    OK(rt_queue_upload(queue, &error, (rt_address)(uintptr_t)taken.data, mark, sizeof mark));
    index[3] = 8;
    FAILS(FUSOR_ERROR_INDEX, "8", rt_exec_call(x, &error, 2, take, 1, &taken));
    placed moved = place_there(queue, &error, &take[1], index, sizeof index);
    FAILS(FUSOR_ERROR_INDEX, "8", rt_exec_call(x, &error, 2, take, 1, &taken));
    OK(rt_queue_download(queue, &error, y, (rt_address)(uintptr_t)taken.data, sizeof y));
    cr_assert(memcmp(y, mark, sizeof y) == 0);
    place_back(queue, &error, &take[1], &moved);
    index[3] = 0;
    OK(rt_exec_call(x, &error, 2, take, 1, &taken));
    drop(&in[1]), drop(&in[2]), drop(&out[0]), drop(&take[0]), drop(&taken);
    rt_exec_release(x);
}

Test(device_exec, a_bound_parameter_has_one_copy_on_the_device) {
    ONLY_ON_THE_FAKE_DRIVER();
    float a[64], b[64], c[64], y[64], s[8], want[64], sums[8];
    if (!begin()) return;
    for (int i = 0; i < 64; i++) a[i] = (float)(i % 5), b[i] = (float)(i % 7), c[i] = (float)(i % 3);
    rt_exec *x = compile(two_products), *ref = compile_reference(two_products), *one, *both;
    fusor_buffer values[3] = {here(a, 2, 8, 8), here(b, 2, 8, 8), here(c, 2, 8, 8)};
    fusor_buffer out[2] = {here(y, 2, 8, 8), here(s, 1, 8, 0)}, wanted[2] = {here(want, 2, 8, 8), here(sums, 1, 8, 0)};
    OK(rt_exec_call(ref, &error, 3, values, 2, wanted));
    placed moved = place_there(queue, &error, &values[2], c, sizeof c);
    OK(rt_exec_bind(x, &error, 1, &(int){1}, &values[1], &one));
    const long before = copies("DtoH");
    OK(rt_exec_bind(one, &error, 1, &(int){2}, &values[2], &both));
    cr_assert_eq(copies("DtoH"), before); /* from the device to the device */
    place_back(queue, &error, &values[2], &moved);
    memset(b, 0xff, sizeof b);
    memset(c, 0xff, sizeof c);
    rt_exec_release(x);
    rt_exec_release(one);
    long up = copies("HtoD");
    for (int i = 0; i < 2; i++) {
        memset(y, 0, sizeof y);
        OK(rt_exec_call(both, &error, 1, values, 2, out));
        cr_assert(memcmp(y, want, sizeof y) == 0 && memcmp(s, sums, sizeof s) == 0);
    }
    cr_assert_eq(copies("HtoD"), up + 2);
    rt_exec_release(both);
    rt_exec_release(ref);
}

/* Turned views, bool that is not 0 or 1, indices that are checked on the host: bound from here and from there. */
Test(device_exec, bound_parameters_of_all_kinds) {
    static const char text[] = "func @f(%a: f32[M, N], %i: i32[K], %m: bool[K, N]) -> (f32[K, N], bool[K, N]) { "
                               "%b = take(%a, %i, axis=0) %c = select(%m, %b, 0) return %c, %m }";
    float a[40], want[24], y[24];
    uint8_t mask[24], passed[24], passes[24];
    int32_t index[6] = {4, 0, -1, 2, 2, 1};
    if (!begin()) return;
    rt_exec *x = compile(text), *ref = compile_reference(text);
    for (int i = 0; i < 40; i++) a[i] = (float)(i * i % 31);
    for (int i = 0; i < 24; i++) mask[i] = i % 3 ? (uint8_t)(i + 1) : 0;
    for (int bits = 0; bits < 8; bits++) {
        fusor_buffer v[3] = {here(a, 2, 8, 4),
                             {.data = index, .dtype = FUSOR_I32, .rank = 1, .shape = {6}},
                             {.data = mask, .dtype = FUSOR_BOOL, .rank = 2, .shape = {6, 4}}};
        v[0].flags = FUSOR_STRIDED;
        v[0].stride[0] = 1, v[0].stride[1] = 9;
        void *memory[3] = {a, index, mask};
        const size_t bytes[3] = {sizeof a, sizeof index, sizeof mask};
        placed there_too[3] = {{0}};
        fusor_buffer out[2] = {here(y, 2, 6, 4), {.data = passed, .dtype = FUSOR_BOOL, .rank = 2, .shape = {6, 4}}},
                     wanted[2] = {here(want, 2, 6, 4),
                                  {.data = passes, .dtype = FUSOR_BOOL, .rank = 2, .shape = {6, 4}}};
        OK(rt_exec_call(ref, &error, 3, v, 2, wanted));
        for (int i = 0; i < 3; i++)
            if (bits >> i & 1) there_too[i] = place_there(queue, &error, &v[i], memory[i], bytes[i]);
        rt_exec *bound;
        OK(rt_exec_bind(x, &error, 3, (int[]){0, 1, 2}, v, &bound));
        for (int i = 0; i < 3; i++)
            if (there_too[i].at) place_back(queue, &error, &v[i], &there_too[i]);
        for (int k = 0; k < 2; k++) {
            OK(rt_exec_call(bound, &error, 0, NULL, 2, out));
            cr_assert(memcmp(y, want, sizeof y) == 0 && memcmp(passed, passes, sizeof passed) == 0, "%d", bits);
        }
        rt_exec_release(bound);
    }
    rt_exec_release(x);
    rt_exec_release(ref);
}

Test(device_exec, a_child_of_fork_is_told) {
    float a[64] = {0}, y[64];
    if (!begin()) return;
    rt_exec *x = compile("func @f(%a: f32[M, N]) -> f32[M, N] { %b = exp(%a) return %b }");
    fusor_buffer in = here(a, 2, 8, 8), out = here(y, 2, 8, 8);
    OK(rt_exec_call(x, &error, 1, &in, 1, &out));
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        fu_error_clear(&error);
        const fusor_status s = rt_exec_call(x, &error, 1, &in, 1, &out);
        rt_exec_release(x);
        _exit(s != FUSOR_ERROR_DEVICE || !strstr(error.text, "fork"));
    }
    int status;
    cr_assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x", status);
    OK(rt_exec_call(x, &error, 1, &in, 1, &out));
    rt_exec_release(x);
}

Test(device_exec, what_is_refused) {
    float a[64] = {0}, y[64];
    if (!begin()) return;
    rt_exec *x = compile("func @f(%a: f32[M, N]) -> f32[M, N] { %b = exp(%a) return %b }");
    rt_exec *on_cpu = build(&error, cache, "func @f(%a: f32[M, N]) -> f32[M, N] { %b = exp(%a) return %b }",
                            (setup){.level = IR_LEVEL_V2, .n_threads = 1});
    cr_assert(on_cpu, "%s", error.text);
    fusor_buffer in = here(a, 2, 8, 8), out = here(y, 2, 8, 8), near = there(8, 8), part;
    FAILS(FUSOR_ERROR_DEVICE, "expected 0, the CPU", rt_exec_call(on_cpu, &error, 1, &near, 1, &out));
    FAILS(FUSOR_ERROR_DEVICE, "expected 0, the CPU", rt_exec_call(on_cpu, &error, 1, &in, 1, &near));
    in.device = -1;
    FAILS(FUSOR_ERROR_DEVICE, "input %a is on device -1", rt_exec_call(x, &error, 1, &in, 1, &out));
    in.device = 7;
    FAILS(FUSOR_ERROR_DEVICE, "", rt_exec_call(x, &error, 1, &in, 1, &out));
    in.device = 0;
    FAILS(FUSOR_ERROR_DEVICE, "device 3", rt_exec_call(x, &error, 1, &in, 1, &(fusor_buffer){.device = 3}));
    /* buffers of the device may overlap as little as others */
    part = near;
    part.data = (char *)near.data + 4;
    part.shape[0] = near.shape[0] = 4;
    FAILS(FUSOR_ERROR_OVERLAP, "overlaps input", rt_exec_call(x, &error, 1, &near, 1, &part));
    OK(rt_exec_call(x, &error, 1, &in, 1, &out));
    drop(&near);
    rt_exec_release(x);
    rt_exec_release(on_cpu);
}

Test(device_exec, buffers_of_another_device) {
    ONLY_ON_THE_FAKE_DRIVER();
    float a[64], y[64], z[64];
    setenv("FAKECUDA_DEVICES", "2", 1);
    if (!begin()) return;
    rt_queue *other = place_queue(&error, 1);
    cr_assert(other, "%s", error.text);
    rt_exec *x = compile("func @f(%a: f32[M, N], %b: f32[M, N]) -> (f32[M, N], f32[M, N] alias %b) { %c = add(%a, %b) "
                         "%d = mul(%a, %b) return %c, %d }");
    for (int i = 0; i < 64; i++) a[i] = (float)i, z[i] = (float)(i % 5);
    fusor_buffer in[2] = {here(a, 2, 8, 8), here(z, 2, 8, 8)}, out[2] = {here(y, 2, 8, 8), {0}};
    placed pa = place_there(other, &error, &in[0], a, sizeof a), pz = place_there(other, &error, &in[1], z, sizeof z),
           py = place_there(other, &error, &out[0], y, sizeof y);
    OK(rt_queue_wait(other, &error));
    cr_assert_eq(in[0].device, 2);
    OK(rt_exec_call(x, &error, 2, in, 2, out));
    cr_assert(out[1].data == in[1].data && out[1].device == 2);
    in[0].flags = FUSOR_STRIDED;
    in[0].stride[0] = 1, in[0].stride[1] = 8;
    FAILS(FUSOR_ERROR_UNSUPPORTED, "must be contiguous", rt_exec_call(x, &error, 2, in, 2, out));
    place_back(other, &error, &in[0], &pa);
    place_back(other, &error, &in[1], &pz);
    place_back(other, &error, &out[0], &py);
    for (int i = 0; i < 64; i++) cr_assert(y[i] == (float)(i + i % 5) && z[i] == (float)(i * (i % 5)));
    rt_exec_release(x);
    rt_queue_free(other);
}

/* ---- sets and sequences ---- */
Test(device_exec, sets_of_buffers) {
    static const char text[] = "func @f(%p: f32[N], %g: f32[N], %lr: f32) -> f32[N] alias %p { %s = mul(%g, %lr) "
                               "%q = sub(%p, %s) return %q }";
    enum { SETS = 5 };
    float p[SETS][40], g[SETS][40], want[SETS][40], rate = 0.5f;
    if (!begin()) return;
    rt_exec *x = compile(text);
    fusor_buffer bp[SETS], bg[SETS], lr = {.data = &rate, .dtype = FUSOR_F32}, out[SETS] = {{0}};
    placed tp[SETS] = {{0}}, tg[SETS] = {{0}};
    for (int i = 0; i < SETS; i++) {
        for (int k = 0; k < 40; k++) {
            p[i][k] = (float)(k + i), g[i][k] = (float)(k % 3);
            want[i][k] = k < 8 * i ? p[i][k] - rate * g[i][k] : p[i][k];
        }
        bp[i] = here(p[i], 1, 8 * i, 0), bg[i] = here(g[i], 1, 8 * i, 0);
        if (i & 1) tp[i] = place_there(queue, &error, &bp[i], p[i], sizeof p[i]);
        if (i & 2) tg[i] = place_there(queue, &error, &bg[i], g[i], sizeof g[i]);
    }
    rt_each *each;
    OK(rt_each_new(x, &error, SETS, 3, (rt_buffers[]){{bp, SETS}, {bg, SETS}, {&lr, 1}}, 1, &(rt_buffers){out, SETS},
                   &each));
    OK(rt_each_run(each, &error));
    for (int i = 0; i < SETS; i++) {
        if (tp[i].at) place_back(queue, &error, &bp[i], &tp[i]);
        if (tg[i].at) place_back(queue, &error, &bg[i], &tg[i]);
        cr_assert(memcmp(p[i], want[i], sizeof p[i]) == 0, "set %d", i);
    }
    rt_each_free(each);
    rt_exec_release(x);
}

/* A state that is stored for all steps, one that is not, one in place; all combinations of here and there. */
Test(device_exec, sequences) {
    static const char text[] =
        "func @f(%x: f32[N], %h: f32[N], %c: f32[N], %n: f32[N]) -> (%y: f32[N], %d: f32[N], %m: f32[N] alias %n) "
        "{ "
        "%a = add(%x, %h) %y = mul(%a, 0.5) %d = maximum(%c, %y) %m = add(%n, %x) return %y, %d, %m }";
    enum { T = 6, N = 10 };
    if (!begin()) return;
    rt_exec *x = compile(text), *cpu = compile_reference(text);
    const rt_carry carries[2] = {{1, 0}, {2, 1}};
    for (int steps = 0; steps <= T; steps += T)
        for (int bits = 0; bits < 128; bits++) {
            float xs[T][N], h[2][N], c[2][N], n[2][N], y[2][T][N] = {{{0}}}, d[2][N] = {{0}};
            for (int i = 0; i < T * N; i++) xs[i / N][i % N] = (float)(i % 11);
            for (int i = 0; i < N; i++) {
                h[0][i] = h[1][i] = (float)i;
                c[0][i] = c[1][i] = (float)(i % 4);
                n[0][i] = n[1][i] = (float)(i % 3);
            }
            for (int k = 0; k < 2; k++) { /* the reference, then the device */
                fusor_buffer in[4] = {here(xs[0], 2, steps, N), here(h[k], 1, N, 0), here(c[k], 1, N, 0),
                                      here(n[k], 1, N, 0)};
                fusor_buffer out[3] = {here(y[k][0], 2, steps, N), here(d[k], 1, N, 0), {0}};
                placed moved[6] = {{0}};
                if (bits & 64 && k) { /* backwards in time */
                    in[0].flags = FUSOR_STRIDED;
                    in[0].stride[0] = -N, in[0].stride[1] = 1;
                    if (steps) in[0].data = xs[steps - 1];
                } else if (bits & 64) {
                    for (int i = 0; i < T * N; i++) xs[T - 1 - i / N][i % N] = (float)(i % 11);
                }
                if (bits & 64 && k)
                    for (int i = 0; i < T * N; i++) xs[i / N][i % N] = (float)(i % 11);
                for (int i = 0; k && i < 6; i++) {
                    fusor_buffer *b = i < 4 ? &in[i] : &out[i - 4];
                    void *memory[6] = {xs, h[k], c[k], n[k], y[k], d[k]};
                    if (bits >> i & 1)
                        moved[i] = place_there(queue, &error, b, memory[i], i == 0 || i == 4 ? sizeof xs : sizeof h[k]);
                }
                rt_scan *scan;
                OK(rt_scan_new(k ? x : cpu, &error, steps, 2, carries, 4, in, 3, out, &scan));
                OK(rt_scan_run(scan, &error));
                rt_scan_free(scan);
                for (int i = 0; i < 6; i++)
                    if (moved[i].at) place_back(queue, &error, i < 4 ? &in[i] : &out[i - 4], &moved[i]);
            }
            cr_assert(memcmp(y[0], y[1], sizeof y[0]) == 0 && memcmp(d[0], d[1], sizeof d[0]) == 0 &&
                          memcmp(n[0], n[1], sizeof n[0]) == 0,
                      "%d steps, places %x", steps, bits);
        }
    rt_exec_release(x);
    rt_exec_release(cpu);
}

/* What a copy on the device stands for is checked as it is elsewhere. */
Test(device_exec, sequences_that_are_refused) {
    static const char text[] = "func @f(%x: f32[N], %h: f32[N], %n: f32[N]) -> (%y: f32[N], %d: f32[N], %m: f32[N] "
                               "alias %n) { %y = add(%x, %h) %d = neg(%x) %m = add(%n, %x) return %y, %d, %m }";
    enum { T = 3, N = 4 };
    float x[T][N] = {{1}}, h[N] = {0}, n[N] = {0}, y[T][N], d[N];
    if (!begin()) return;
    rt_exec *exec = compile(text);
    rt_scan *scan;
    fusor_buffer in[3] = {here(x[0], 2, T, N), here(h, 1, N, 0), here(n, 1, N, 0)};
    fusor_buffer out[3] = {here(y[0], 2, T, N), here(d, 1, N, 0), {0}};
#define SCAN() rt_scan_new(exec, &error, T, 1, &(rt_carry){1, 0}, 3, in, 3, out, &scan)
    for (int p = 0; p < 3; p++) {
        const fusor_buffer right = in[p];
        in[p].data = NULL;
        FAILS(FUSOR_ERROR_ARGUMENT, "has no data", SCAN());
        in[p].data = (char *)right.data + 1;
        FAILS(FUSOR_ERROR_ARGUMENT, "not aligned", SCAN());
        in[p] = right;
    }
    for (int r = 0; r < 2; r++) {
        out[r].flags = FUSOR_READONLY;
        FAILS(FUSOR_ERROR_ARGUMENT, "is read-only", SCAN());
        out[r].flags = 0;
    }
    in[2].flags = FUSOR_READONLY;
    FAILS(FUSOR_ERROR_ARGUMENT, "input %n is read-only", SCAN());
    in[2].flags = 0;
    in[0].flags = in[1].flags = FUSOR_READONLY;
    OK(SCAN());
    OK(rt_scan_run(scan, &error));
    rt_scan_free(scan);
    cr_assert(n[0] == 1 && d[0] == 0 && y[T - 1][0] == 1);
#undef SCAN
    rt_exec_release(exec);
}

/* ---- threads, profiles, memory ---- */
typedef struct caller {
    rt_exec *exec;
    int number;
    bool ok;
} caller;

static void *call_often(void *user) {
    caller *c = user;
    static _Thread_local fu_error e;
    float a[64], y[64], s[8], unit[64] = {0};
    for (int i = 0; i < 8; i++) unit[i * 9] = 1;
    c->ok = true;
    for (int k = 0; k < 30; k++) {
        for (int i = 0; i < 64; i++) a[i] = (float)(i * c->number + k);
        fusor_buffer in[3] = {here(a, 2, 8, 8), here(unit, 2, 8, 8), here(unit, 2, 8, 8)};
        fusor_buffer out[2] = {here(y, 2, 8, 8), here(s, 1, 8, 0)};
        fu_error_clear(&e);
        c->ok &= rt_exec_call(c->exec, &e, 3, in, 2, out) == FUSOR_OK && memcmp(y, a, sizeof y) == 0;
    }
    return NULL;
}

Test(device_exec, threads_share_an_executable) {
    pthread_t id[3];
    caller c[3];
    if (!begin()) return;
    rt_exec *x = compile(two_products);
    for (int i = 0; i < 3; i++) {
        c[i] = (caller){x, i + 1, false};
        cr_assert_eq(pthread_create(&id[i], NULL, call_often, &c[i]), 0);
    }
    for (int i = 0; i < 3; i++) pthread_join(id[i], NULL);
    for (int i = 0; i < 3; i++) cr_assert(c[i].ok, "thread %d", i);
    rt_exec_release(x);
}

/* A temporary that is copied to, and scattered into, on the host: its place there is of an earlier call. */
Test(device_exec, a_larger_call_has_larger_copies_on_the_host) {
    static const int64_t lengths[] = {8, 500000, 16};
    if (!begin()) return;
    rt_exec *x = compile("func @f(%x: i64[N], %i: i64[M], %u: i64[M], %t: f32[K]) -> f32[N] { %s = scatter(%x, %i, %u, "
                         "axis=0) %y = take(%t, %s) return %y }");
    for (size_t c = 0; c < sizeof lengths / sizeof *lengths; c++) {
        const int64_t n = lengths[c];
        int64_t *at = calloc((size_t)n, sizeof *at), index[2] = {1, n - 1}, update[2] = {2, 1};
        float *y = calloc((size_t)n, sizeof *y), table[3] = {5, 6, 7};
        fusor_buffer in[4] = {{.dtype = FUSOR_I64, .rank = 1, .shape = {n}, .data = at},
                              {.dtype = FUSOR_I64, .rank = 1, .shape = {2}, .data = index},
                              {.dtype = FUSOR_I64, .rank = 1, .shape = {2}, .data = update},
                              here(table, 1, 3, 0)},
                     out = here(y, 1, n, 0);
        OK(rt_exec_call(x, &error, 4, in, 1, &out));
        for (int64_t i = 0; i < n; i++)
            cr_assert_eq(y[i],
                         i == 1       ? 7
                         : i == n - 1 ? 6
                                      : 5,
                         "element %lld of %lld: %g", (long long)i, (long long)n, (double)y[i]);
        free(at), free(y);
    }
    rt_exec_release(x);
}

Test(device_exec, a_profile_has_steps_and_transfers) {
    if (!begin()) return;
    static _Atomic(rt_profile *) profile;
    rt_exec *x = compile_profiled(two_products, &profile);
    rt_profile *p = atomic_load(&profile);
    float a[64] = {0}, y[64], s[8];
    fusor_buffer in[3] = {here(a, 2, 8, 8), here(a, 2, 8, 8), here(a, 2, 8, 8)},
                 out[2] = {here(y, 2, 8, 8), here(s, 1, 8, 0)};
    OK(rt_exec_call(x, &error, 3, in, 2, out)); /* off */
    cr_assert_eq(atomic_load(&p->used), 0);
    atomic_store(&p->on, RT_PROFILE_COUNTS);
    for (int i = 0; i < 2; i++) OK(rt_exec_call(x, &error, 3, in, 2, out));
    int kernels = 0, up = 0, down = 0;
    for (int i = 0; i < atomic_load(&p->used); i++) {
        const rt_profile_entry *n = &p->entry[i];
        if (strcmp(n->kind, "upload") == 0) {
            up++;
            cr_assert(atomic_load(&n->calls) == 2 && atomic_load(&n->bytes) == 6 * 256.0); /* all of a call in one */
        } else if (strcmp(n->kind, "download") == 0) {
            down++;
            cr_assert(atomic_load(&n->calls) == 4 && atomic_load(&n->bytes) == 2 * (256.0 + 32.0));
        } else {
            kernels++;
            cr_assert(atomic_load(&n->calls) == 2 && n->symbol[0]);
        }
    }
    cr_assert(kernels == n_kernels(x) && up == 1 && down == 1, "%d %d %d", kernels, up, down);
    rt_exec_release(x);
    rt_profile_free(p);
}

/* A call that fails between the marks of a launch gives back the first. */
Test(device_exec, a_profile_of_calls_that_fail) {
    ONLY_ON_THE_FAKE_DRIVER();
    setenv("FAKECUDA_FAIL", "cuLaunchKernel:*=1", 1);
    if (!begin()) return;
    static _Atomic(rt_profile *) profile;
    rt_exec *x = compile_profiled(two_products, &profile);
    rt_profile *p = atomic_load(&profile);
    atomic_store(&p->on, RT_PROFILE_COUNTS);
    float a[64] = {0}, y[64], s[8];
    fusor_buffer in[3] = {here(a, 2, 8, 8), here(a, 2, 8, 8), here(a, 2, 8, 8)},
                 out[2] = {here(y, 2, 8, 8), here(s, 1, 8, 0)};
    long events = 0;
    for (int i = 0; i < 4; i++) {
        FAILS(FUSOR_ERROR_DEVICE, "launching", rt_exec_call(x, &error, 3, in, 2, out));
        if (i == 1) events = fake_live("event");
    }
    cr_assert_eq(fake_live("event"), events);
    rt_exec_release(x);
    rt_profile_free(p);
}

Test(device_exec, peak_bytes_are_the_device_s) {
    if (!begin()) return;
    rt_exec *x = compile(
        "func @f(%a: f32[M, N], %b: f32[N, N]) -> f32[M, N] { %c = matmul(%a, %b) %d = matmul(%c, %b) return %d }");
    /* one tensor between two products, and no packed operands */
    int64_t symbols[2] = {8, 100};
    const ir_graph *g = rt_exec_plan(x)->graph;
    for (uint32_t s = 0; s < 2; s++) symbols[s] = ir_size_symbol_name(g->sizes, s)[0] == 'M' ? 8 : 100;
    cr_assert_eq(rt_exec_peak_bytes(x, symbols), (8 * 100 * 4 + 255) / 256 * 256, "%lld",
                 (long long)rt_exec_peak_bytes(x, symbols));
    rt_exec_release(x);
}

Test(device_exec, too_little_memory_is_an_error_and_no_end) {
    ONLY_ON_THE_FAKE_DRIVER();
    enum { SIDE = 1024 };
    setenv("FAKECUDA_MEMORY", "6291456", 1);
    if (!begin()) return;
    rt_exec *x =
        compile("func @f(%a: f32[M, N]) -> (f32[M, N], f32[M, N]) { %b = neg(%a) %d = exp(%a) return %b, %d }");
    float *a = calloc(SIDE * SIDE, sizeof *a), *y = calloc(SIDE * SIDE, sizeof *y), *z = calloc(SIDE * SIDE, sizeof *z);
    for (int side = SIDE; side >= 4; side /= 256) {
        fusor_buffer in = here(a, 2, side, side), out[2] = {here(y, 2, side, side), {.device = 1}};
        a[0] = 3;
        if (side == SIDE) FAILS(FUSOR_ERROR_MEMORY, "bytes", rt_exec_call(x, &error, 1, &in, 2, out));
        else {
            OK(rt_exec_call(x, &error, 1, &in, 2, out));
            cr_assert(y[0] == -3);
            rt_buffer_release(NULL, out[1].data);
        }
    }
    free(a), free(y), free(z);
    rt_exec_release(x);
}

Test(device_exec, a_dead_context_fails_each_call) {
    ONLY_ON_THE_FAKE_DRIVER();
    setenv("FAKECUDA_FAIL", "cuLaunchKernel:3=700", 1);
    if (!begin()) return;
    rt_exec *x = compile("func @f(%a: f32[M, N]) -> f32[M, N] { %b = exp(%a) return %b }");
    float a[64] = {0}, y[64];
    fusor_buffer in = here(a, 2, 8, 8), out = here(y, 2, 8, 8), made = {.device = 1};
    for (int i = 0; i < 2; i++) OK(rt_exec_call(x, &error, 1, &in, 1, &out));
    for (int i = 0; i < 3; i++) FAILS(FUSOR_ERROR_DEVICE, "", rt_exec_call(x, &error, 1, &in, 1, &out));
    FAILS(FUSOR_ERROR_DEVICE, "", rt_exec_call(x, &error, 1, &in, 1, &made));
    cr_assert(!made.data);
    rt_exec_release(x);
}
