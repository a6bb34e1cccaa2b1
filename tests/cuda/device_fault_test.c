/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* device_fault_test.c: each function of the driver fails, at each of the calls that a program makes, over the fake
 * driver: errors come back, nothing is lost, and the calls after it are right where the context lives. */
#include "device_exec.h"
#include <sys/wait.h>
#include <unistd.h>
TestSuite(device_fault, .init = init, .timeout = 300);

typedef struct session {
    bool is_sequence; /* sets of buffers, and a sequence; else single calls */
    rt_exec *exec;
    float a[8 * 8], w[8 * 8], y[8 * 8], s[8];
    int32_t index[8];
} session;

/* y = x + h, and h = y; over 8 steps from h = 0 that is the running sum. Twice: as a sequence, and by sets, of one step
 * each, of buffers of the device. */
static fusor_status use_sequence(session *n) {
    rt_each *each = NULL;
    rt_scan *scan = NULL;
    fusor_buffer in[2] = {here(n->a, 2, 8, 8), here(n->w, 1, 8, 0)}, out = here(n->y, 2, 8, 8);
    if (!n->exec) n->exec = compile_here("func @f(%x: f32[N], %h: f32[N]) -> f32[N] { %y = add(%x, %h) return %y }");
    if (!n->exec) return error.status;
    memset(n->w, 0, sizeof n->w);
    memset(n->y, 0, sizeof n->y);
    FU_TRY(rt_scan_new(n->exec, &error, 8, 1, &(rt_carry){1, 0}, 2, in, 1, &out, &scan));
    fusor_status s = rt_scan_run(scan, &error);
    rt_scan_free(scan);
    FU_TRY(s);
    fusor_buffer x[8], h[8], y[8];
    for (int t = 0; t < 8; t++) {
        x[t] = here(n->a + 8 * t, 1, 8, 0);
        h[t] = here(t ? n->y + 8 * (t - 1) : n->w, 1, 8, 0);
        y[t] = (fusor_buffer){.device = 1};
    }
    FU_TRY(rt_each_new(n->exec, &error, 8, 2, (rt_buffers[]){{x, 8}, {h, 8}}, 1, &(rt_buffers){y, 8}, &each));
    s = rt_each_run(each, &error);
    rt_each_free(each);
    for (int t = 0; t < 8; t++) {
        if (s == FUSOR_OK)
            s = rt_queue_download(queue, &error, n->y + 8 * t, (rt_address)(uintptr_t)y[t].data, 8 * sizeof(float));
        rt_buffer_release(NULL, y[t].data);
    }
    return s;
}

/* What of it is not there yet, then a call with memory here, there, and made by it. */
static fusor_status use(session *n) {
    static const char text[] =
        "func @f(%a: f32[M, N], %i: i32[K], %w: f32[N, N]) -> (f32[K, N], f32[K]) { %b = take(%a, %i, axis=0) "
        "%c = matmul(%b, %w) %e = matmul(%c, %w) %s = reduce_sum(%e, axes=[1]) return %e, %s }";
    fu_error_clear(&error);
    if (!queue && !(queue = place_queue(&error, 0))) return error.status;
    if (n->is_sequence) return use_sequence(n);
    if (!n->exec) {
        fusor_buffer w = here(n->w, 2, 8, 8);
        rt_exec *whole = compile_here(text);
        if (!whole) return error.status;
        const fusor_status s = rt_exec_bind(whole, &error, 1, &(int){2}, &w, &n->exec);
        rt_exec_release(whole);
        FU_TRY(s);
    }
    fusor_buffer in[2] = {here(n->a, 2, 8, 8), {.data = n->index, .dtype = FUSOR_I32, .rank = 1, .shape = {8}}};
    fusor_buffer out[2] = {{.device = 1}, here(n->s, 1, 8, 0)};
    in[0].flags = FUSOR_STRIDED; /* a turned view */
    in[0].stride[0] = 1, in[0].stride[1] = 8;
    memset(n->y, 0, sizeof n->y);
    memset(n->s, 0, sizeof n->s);
    FU_TRY(rt_exec_call(n->exec, &error, 2, in, 2, out));
    fusor_status s = rt_queue_download(queue, &error, n->y, (rt_address)(uintptr_t)out[0].data, sizeof n->y);
    rt_buffer_release(NULL, out[0].data);
    return s;
}

static bool is_right(const session *n) {
    for (int i = 0; i < 64 && n->is_sequence; i++) {
        float sum = 0;
        for (int t = i % 8; t <= i; t += 8) sum += n->a[t];
        if (n->y[i] != sum) return false;
    }
    if (n->is_sequence) return true;
    for (int i = 0; i < 8; i++) {
        float sum = 0;
        for (int k = 0; k < 8; k++) { /* w is twice the unit matrix */
            const float want = 4 * n->a[k * 8 + n->index[i]];
            if (n->y[i * 8 + k] != want) return false;
            sum += want;
        }
        if (n->s[i] != sum) return false;
    }
    return true;
}

static void start(session *n, bool is_sequence) {
    memset(n, 0, sizeof *n);
    n->is_sequence = is_sequence;
    for (int i = 0; i < 64; i++) n->a[i] = (float)(i % 13), n->w[i] = i % 9 == 0 ? 2 : 0;
    for (int i = 0; i < 8; i++) n->index[i] = (i * 5) % 8;
}

int __lsan_do_recoverable_leak_check(void) __attribute__((weak)); /* where the sanitizer is */

/* In a child: 0 = a failure that was reported, and then all was well; 1 = nothing failed; else what is wrong. */
static int fail_at(bool is_sequence, const char *function, long nth, int code) {
    char fault[80];
    session n;
    const bool is_deadly = code >= 700;
    snprintf(fault, sizeof fault, "%s:%ld=%d", function, nth, code);
    setenv("FAKECUDA_FAIL", fault, 1);
    start(&n, is_sequence);
    fusor_status s = use(&n);
    const bool failed = s != FUSOR_OK, has_context = queue != NULL;
    if (failed && (s != FUSOR_ERROR_DEVICE && s != FUSOR_ERROR_MEMORY)) return 2;
    if (failed && !error.text[0]) return 3;
    if (!failed && !is_right(&n)) return 4;
    for (int i = 0; i < 2; i++) {
        s = use(&n);
        if (failed && !has_context) return s == FUSOR_OK && !is_right(&n) ? 10 : 0; /* may stay so in the process */
        if (is_deadly && failed && s != FUSOR_ERROR_DEVICE) return 5;
        if (!is_deadly && s != FUSOR_OK) return 6;
        if (s == FUSOR_OK && !is_right(&n)) return 7;
    }
    rt_exec_release(n.exec);
    if (rt_memory_get_stats().live_buffers) return 8;
    if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check()) return 11;
    if (is_deadly) return 0;
    rt_device *d = rt_queue_device(queue);
    rt_queue_free(queue);
    rt_device_trim(d);
    if (fake_live("memory") != 0) return 9;
    return !failed;
}

/* The driver of the process that runs the test is not touched: each child opens its own. */
static int in_child(bool is_sequence, const char *function, long nth, int code) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        if (!freopen("/dev/null", "w", stderr)) _exit(90);
        _exit(fail_at(is_sequence, function, nth, code));
    }
    int status;
    while (waitpid(child, &status, 0) < 0) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

/* Each process of a sanitizer looks for leaks, which takes most of its time: one code each there, in turns. */
static bool takes_code(int call, int code) {
#ifdef __SANITIZE_ADDRESS__
    return call % 3 == code;
#else
    (void)call, (void)code;
    return true;
#endif
}

static void fail_each_call(bool is_sequence) {
    static const int codes[] = {1, 2, 719};
    long total[N_FAKE_FUNCTIONS];
    int n_failed = 0, n_survived = 0, pipes[2];
    const fusor_codegen_table *t;
    if (rt_module_get(&error, &t) != FUSOR_OK) cr_skip("%s", error.text);
    /* Kernels come from a directory, not from code generation, in the children. */
    char dir[] = "/tmp/fusor-device-XXXXXX";
    cr_assert(mkdtemp(dir));
    rt_cache_close(cache);
    OK(rt_cache_open(&error, &(rt_cache_options){.dir = dir, .path = ""}, &cache));
    cr_assert_eq(pipe(pipes), 0);
    if (fork() == 0) {
        session n;
        start(&n, is_sequence);
        if (use(&n) != FUSOR_OK || !is_right(&n)) _exit(1);
        fake_count_all(total);
        _exit(write(pipes[1], total, sizeof total) != sizeof total);
    }
    close(pipes[1]);
    cr_assert_eq(read(pipes[0], total, sizeof total), (ssize_t)sizeof total, "without a failure it does not run");
    for (int f = 0; f < N_FAKE_FUNCTIONS; f++)
        for (long nth = 1; nth <= total[f] && nth <= 40; nth++)
            for (int c = 0; c < 3; c++) {
                if (!takes_code(f + (int)nth, c)) continue;
                const int rc = in_child(is_sequence, fake_functions[f], nth, codes[c]);
                cr_assert(rc < 2, "%s, call %ld gives %d: %d", fake_functions[f], nth, codes[c], rc);
                n_failed += rc == 0;
                n_survived += rc == 1;
            }
    cr_log_info("%d failures reported, %d survived", n_failed, n_survived);
    cr_assert(n_failed > 50);
    rt_cache_clear(&error, dir, NULL);
    rmdir(dir);
}

Test(device_fault, a_failure_of_each_call_of_the_driver) { fail_each_call(false); }
Test(device_fault, a_failure_of_each_call_of_a_sequence) { fail_each_call(true); }
