/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* fork_test.c: a process that has compiled and called on several threads forks; parent and child then both go on with
 * kernels they have and with new ones, and neither hangs nor disturbs the other. */
#include "fusor/fusor.h"
#include "rt/cpuinfo.h"
#include "rt/compiler.h"
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 200000 };

static bool has_module(void) {
    static fu_error e;
    const fusor_codegen_table *t;
    return rt_host_level() >= 0 && rt_module_get(&e, &t) == FUSOR_OK;
}

/* Program `which` is relu(x) op ... of its own: another kernel for each. */
static fusor_executable *compile(fusor_context *ctx, int which) {
    static const char *const ops[] = {"add(%r, 1.)",     "mul(%r, 2.)", "sub(%r, 3.)",
                                      "maximum(%r, 4.)", "div(%r, 5.)", "minimum(%r, 6.)"};
    char text[300];
    fusor_executable *exe = NULL;
    snprintf(text, sizeof text,
             "func @f(%%x: f32[N]) -> (f32[N], f32) { %%r = relu(%%x) %%s = %s %%t = %s %%m = reduce_max(%%t) return "
             "%%t, %%m }",
             ops[which % 6], which / 6 % 2 ? "neg(%s)" : "abs(%s)");
    return fusor_compile_text(ctx, text, NULL, &exe) == FUSOR_OK ? exe : NULL;
}

static float expected(int which, float x) {
    float r = x < 0 ? 0 : x, s = 0;
    switch (which % 6) {
    case 0: s = r + 1; break;
    case 1: s = r * 2; break;
    case 2: s = r - 3; break;
    case 3: s = r > 4 ? r : 4; break;
    case 4: s = r / 5; break;
    default: s = r < 6 ? r : 6;
    }
    return which / 6 % 2 ? -s : s < 0 ? -s : s;
}

/* 0 where the result is right. */
static int call(fusor_executable *exe, int which) {
    static _Thread_local float x[N], y[N];
    float most = -1e30f, m = 0;
    for (int i = 0; i < N; i++) x[i] = (float)(i % 97) / 8 - 3;
    fusor_buffer in = {.data = x, .dtype = FUSOR_F32, .rank = 1, .shape = {N}};
    fusor_buffer out[2] = {{.data = y, .dtype = FUSOR_F32, .rank = 1, .shape = {N}}, {.data = &m, .dtype = FUSOR_F32}};
    if (!exe || fusor_executable_call(exe, 1, &in, 2, out) != FUSOR_OK) return 1;
    for (int i = 0; i < N; i++) {
        if (y[i] != expected(which, x[i])) return 2;
        if (y[i] > most) most = y[i];
    }
    return m == most ? 0 : 3;
}

static fusor_context *new_context(void) {
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.cache_dir = "";
    o.n_threads = 4;
    return fusor_context_new(&o);
}

/* The child has 60 seconds: a hang must be a failure. */
static void join_child(pid_t child, const char *what) {
    int status = 0;
    for (int tick = 0; tick < 600; tick++) {
        if (waitpid(child, &status, WNOHANG) == child) {
            cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: the child ended with status 0x%x", what,
                      status);
            return;
        }
        usleep(100000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    cr_assert(false, "%s: the child hangs", what);
}

/* Of tests that fork while another thread allocates. */
#ifdef __SANITIZE_ADDRESS__
#define SKIP_ASAN() cr_skip("the locks of AddressSanitizer's own allocator do not survive a fork beside threads")
#else
#define SKIP_ASAN() (void)0
#endif

static void *compile_one(void *ctx) { return compile(ctx, 0); }

/* A fork while another thread loads the code generation module: the child can load it, too. */
Test(forks, while_the_module_is_loaded, .timeout = 120) {
    SKIP_ASAN();
    if (rt_host_level() < 0 || !getenv("FUSOR_CODEGEN")) cr_skip("no code generation module"); /* none is loaded yet */
    fusor_context *ctx = new_context();
    pthread_t loader;
    void *exe;
    cr_assert_eq(pthread_create(&loader, NULL, compile_one, ctx), 0);
    for (int i = 0; i < 5; i++) {
        usleep(2000);
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            fusor_context *own = new_context();
            _exit(call(compile(own, 1), 1));
        }
        cr_assert_gt(child, 0);
        join_child(child, "module");
    }
    pthread_join(loader, &exe);
    cr_assert_eq(call(exe, 0), 0);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

static atomic_int step;

static int slow_generate(const fusor_codegen_request *request, fusor_codegen_result *result) {
    (void)request;
    (void)result;
    atomic_store(&step, 1);
    usleep(200000);
    atomic_store(&step, 2);
    return 0;
}

static void *generate_slowly(void *unused) {
    static fusor_codegen_result result;
    rt_module_generate(slow_generate, &(fusor_codegen_request){.version = FUSOR_CODEGEN_VERSION}, &result);
    return unused;
}

/* A fork while another thread makes code: it is put off until that is made, and both sides make code afterwards. */
Test(forks, while_code_is_generated, .timeout = 120) {
    pthread_t other;
    cr_assert_eq(pthread_create(&other, NULL, generate_slowly, NULL), 0);
    while (atomic_load(&step) < 1) usleep(100);
    pid_t child = fork();
    const int seen = atomic_load(&step);
    generate_slowly(NULL);
    if (child == 0) _exit(seen != 2);
    cr_assert_eq(seen, 2);
    join_child(child, "code generation");
    pthread_join(other, NULL);
}

Test(forks, parent_and_child_go_on, .timeout = 120) {
    if (!has_module()) cr_skip("no code generation module");
    fusor_context *ctx = new_context();
    fusor_executable *exe = compile(ctx, 0);
    cr_assert_eq(call(exe, 0), 0);
    for (int round = 1; round < 6; round++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            fusor_executable *mine = compile(ctx, round); /* the parent makes this one, too */
            int rc = call(exe, 0) + call(mine, round);
            fusor_executable *other = compile(ctx, 6 + round);
            rc += call(other, 6 + round) + call(exe, 0);
            pid_t grandchild = fork();
            if (grandchild == 0) _exit(call(exe, 0) + call(other, 6 + round) + call(compile(ctx, 0), 0));
            int status;
            rc += waitpid(grandchild, &status, 0) != grandchild || status != 0;
            fusor_executable_free(mine);
            fusor_executable_free(other);
            _exit(rc);
        }
        cr_assert_gt(child, 0);
        fusor_executable *mine = compile(ctx, round);
        cr_assert_eq(call(mine, round), 0);
        cr_assert_eq(call(exe, 0), 0);
        fusor_executable_free(mine);
        join_child(child, "fork");
        cr_assert_eq(call(exe, 0), 0);
    }
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

static atomic_bool stop;
static atomic_int wrong;
typedef struct worker {
    fusor_context *ctx;
    fusor_executable *exe;
    int number;
} worker;

static void *work(void *arg) {
    worker *w = arg;
    for (int i = 0; !atomic_load(&stop); i++) {
        if (call(w->exe, 0) != 0) atomic_fetch_add(&wrong, 1);
        fusor_executable *mine = compile(w->ctx, (i + w->number) % 12);
        if (call(mine, (i + w->number) % 12) != 0) atomic_fetch_add(&wrong, 1);
        fusor_executable_free(mine);
    }
    return NULL;
}

Test(forks, while_other_threads_call_and_compile, .timeout = 240) {
    SKIP_ASAN();
    if (!has_module()) cr_skip("no code generation module");
    fusor_context *ctx = new_context();
    fusor_executable *exe = compile(ctx, 0);
    cr_assert_eq(call(exe, 0), 0);
    pthread_t thread[3];
    worker w[3];
    for (int i = 0; i < 3; i++) {
        w[i] = (worker){ctx, exe, i * 4};
        cr_assert_eq(pthread_create(&thread[i], NULL, work, &w[i]), 0);
    }
    for (int round = 0; round < 10; round++) {
        pid_t child = fork();
        if (child == 0) {
            fusor_executable *mine = compile(ctx, round);
            _exit(call(exe, 0) + call(mine, round));
        }
        cr_assert_gt(child, 0);
        join_child(child, "fork beside threads");
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    cr_assert_eq(atomic_load(&wrong), 0);
    fusor_executable_free(exe);
    fusor_context_free(ctx);
}

/* ---- lazy tensors ---- */
static void *evaluate(void *ctx) {
    static float a[256 * 256], b[256 * 256];
    while (!atomic_load(&stop)) {
        FUSOR_SCOPE(ctx, NULL) {
            fusor_tensor x = fusor_wrap_const(ctx, a, FUSOR_F32, FUSOR_SHAPE(256, 256));
            if (fusor_read(fusor_matmul(x, x), b, sizeof b) != FUSOR_OK) atomic_fetch_add(&wrong, 1);
        }
    }
    return NULL;
}

static fusor_tensor kept_tensor(fusor_context *ctx) {
    static const float x[2] = {1, 2};
    fusor_tensor kept = fusor_keep(fusor_mul(fusor_wrap_const(ctx, x, FUSOR_F32, FUSOR_SHAPE(2)), 2));
    cr_assert_eq(fusor_eval(1, &kept), FUSOR_OK);
    return kept;
}

static int read_kept(fusor_tensor kept) {
    float y[2] = {0};
    return fusor_read(kept, y, sizeof y) != FUSOR_OK || y[1] != 4;
}

/* A fork waits for another thread's evaluation: the child has the tensors whole. */
Test(forks, while_another_thread_evaluates, .timeout = 240) {
    SKIP_ASAN();
    fusor_context *ctx = new_context();
    fusor_tensor kept = kept_tensor(ctx);
    pthread_t other;
    cr_assert_eq(pthread_create(&other, NULL, evaluate, ctx), 0);
    for (int round = 0; round < 20; round++) {
        usleep(1000);
        pid_t child = fork();
        if (child == 0) _exit(read_kept(kept) + read_kept(fusor_add(kept, 0)));
        cr_assert_gt(child, 0);
        join_child(child, "fork beside an evaluation");
        cr_assert_eq(read_kept(kept), 0);
    }
    atomic_store(&stop, true);
    pthread_join(other, NULL);
    cr_assert_eq(atomic_load(&wrong), 0);
    fusor_release(kept);
    fusor_context_free(ctx);
}

typedef struct inside {
    fusor_context *ctx;
    fusor_tensor kept;
    int forks;
} inside;

/* The child begins anew, and is told so. */
static void fork_inside(void *user, int64_t n, void (*task)(void *, int64_t), void *arg) {
    inside *in = user;
    pid_t child = in->forks++ ? -1 : fork();
    if (child == 0) {
        float y[2];
        _exit(fusor_read(in->kept, y, sizeof y) != FUSOR_ERROR_STALE ||
              !strstr(fusor_error_message(in->ctx), "'mul' is of before a fork") || read_kept(kept_tensor(in->ctx)));
    }
    for (int64_t i = 0; i < n; i++) task(arg, i);
    if (child > 0) join_child(child, "fork inside an evaluation");
}

Test(forks, inside_an_evaluation, .timeout = 120) {
    enum { MANY = 1 << 22 };
    if (!has_module()) cr_skip("no code generation module");
    inside in = {0};
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.cache_dir = "";
    o.n_threads = 4;
    o.parallel_for = fork_inside;
    o.user = &in;
    in.ctx = fusor_context_new(&o);
    in.kept = kept_tensor(in.ctx);
    in.forks = 0;
    float *x = calloc(MANY, sizeof *x);
    fusor_tensor y = fusor_exp(fusor_wrap_const(in.ctx, x, FUSOR_F32, FUSOR_SHAPE(MANY)));
    cr_assert_eq(fusor_eval(1, &y), FUSOR_OK);
    cr_assert_gt(in.forks, 0, "no work was shared");
    cr_assert_eq(read_kept(in.kept), 0);
    fusor_release(in.kept);
    fusor_context_free(in.ctx);
    free(x);
}
