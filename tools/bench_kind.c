/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* bench_kind.c: what fusor itself does for a workload of each kind, and the data that every rival starts from. The
 * fused kernels' first results are kept: unfused kernels and lazy tensors must give the same bits, others the same but
 * for rounding. */
#include "bench.h"
#include "fusor/device.h"
#include "timing.h"
#include "base/file.h"
#include "base/log.h"
#include "rt/data.h"
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- data ---- */
size_t bench_bytes(const fusor_buffer *b) {
    size_t n = fusor_dtype_size((fusor_dtype)b->dtype);
    for (int d = 0; d < b->rank; d++) n *= (size_t)b->shape[d];
    return n;
}

bool bench_copy(fusor_buffer *b, void **memory, const fusor_buffer *like) {
    size_t bytes = bench_bytes(b);
    *memory = fu_malloc(bytes + 64);
    if (!*memory) return false;
    b->data = (void *)(((uintptr_t)*memory + 63) & ~(uintptr_t)63);
    if (like) memcpy(b->data, like->data, bytes);
    else memset(b->data, 0, bytes);
    return true;
}

void bench_data_close(bench_data *d) {
    for (int i = 0; i < BENCH_MAX_BUFFERS + BENCH_MAX_RESULTS; i++) fu_free(d->memory[i]), d->memory[i] = NULL;
}

static int no_memory(tool *t, const bench_workload *w) {
    return tool_environment(t, "no memory for %s of suite %s", w->name, w->suite);
}

static int data_open(tool *t, const bench_workload *w, int64_t size, const fusor_executable *exe, bench_data *d) {
    fu_error e;
    fu_error_clear(&e);
    d->w = w;
    d->size = size;
    d->n_in = fusor_executable_inputs(exe, BENCH_MAX_BUFFERS, d->in_info);
    d->n_out = fusor_executable_outputs(exe, BENCH_MAX_RESULTS, d->out_info);
    for (int i = 0; i < d->n_in; i++) {
        fusor_buffer *b = &d->in[i];
        *b = (fusor_buffer){.dtype = d->in_info[i].dtype, .rank = d->in_info[i].rank};
        for (int k = 0; k < b->rank; k++) b->shape[k] = d->in_info[i].shape[k] < 0 ? size : d->in_info[i].shape[k];
        if (!bench_copy(b, &d->memory[i], NULL)) return no_memory(t, w);
        if (rt_data_fill(&e, fu_format(&t->arena, "%s:%d", w->fill, i + 1), b) != FUSOR_OK) return tool_fail(t, &e);
    }
    return 0;
}

/* ---- timing ---- */
double bench_repeat(bench_rival *r, double batch_ns, bool (*call)(void *user)) {
    if (r->one_ns <= 0 || r->one_ns < 5e6) { /* caches and predictors are another rival's */
        int64_t from = fu_now_ns();
        if (!call(r->user)) return NAN;
        double took = (double)(fu_now_ns() - from);
        if (r->one_ns <= 0 || took < r->one_ns) r->one_ns = took + 1;
    }
    int64_t n = r->one_ns < batch_ns ? (int64_t)(batch_ns / r->one_ns) + 1 : 1, from = fu_now_ns();
    for (int64_t i = 0; i < n; i++)
        if (!call(r->user)) return NAN;
    if (r->finish && !r->finish(r->user)) return NAN;
    double each = (double)(fu_now_ns() - from) / (double)n;
    if (each < r->one_ns) r->one_ns = each + 1;
    return each;
}

/* ---- executables ---- */
typedef struct side {
    tool *t;
    const bench_workload *w;
    fusor_executable *exe;
    fusor_call *call;
    int n_in, n_out;
    fusor_buffer in[BENCH_MAX_BUFFERS], out[BENCH_MAX_RESULTS];
    void *memory[BENCH_MAX_BUFFERS + BENCH_MAX_RESULTS];
    bench_lazy_fn lazy;
    bool no_fuse, is_cold;
    char directory[64]; /* of a cache of its own; "": none */
    const char *dim;
} side;
struct bench_own {
    side side[3];
};

static int fail(tool *t, fusor_status status) {
    fu_error e;
    fu_error_clear(&e);
    (void)FU_FAIL(&e, status, "%s", fusor_error_message(t->ctx));
    return tool_fail(t, &e);
}

static int compile(tool *t, const bench_workload *w, bool no_fuse, fusor_context *ctx, fusor_executable **out) {
    fu_error e;
    fu_error_clear(&e);
    compile_request request = {
        .ctx = ctx, .name = w->name, .text = w->text, .length = strlen(w->text), .flags = no_fuse ? FUSOR_NO_FUSE : 0};
    return compile_executable(&e, &request, out) == FUSOR_OK ? 0 : tool_fail(t, &e);
}

/* A side's own copies of the parameters; const ones are bound, as a program that keeps its weights does. */
static int side_open(tool *t, const bench_data *d, side *s) {
    const char *names[BENCH_MAX_BUFFERS];
    fusor_buffer bound[BENCH_MAX_BUFFERS];
    int n_bound = 0;
    fusor_status status;
    for (int i = 0; i < d->n_in; i++) {
        if (d->in_info[i].is_const) {
            names[n_bound] = d->in_info[i].name;
            bound[n_bound++] = d->in[i];
            continue;
        }
        s->in[s->n_in] = d->in[i];
        if (!bench_copy(&s->in[s->n_in], &s->memory[s->n_in], &d->in[i])) return no_memory(t, d->w);
        s->n_in++;
    }
    if (n_bound) {
        fusor_executable *made;
        if ((status = fusor_executable_bind(s->exe, n_bound, names, bound, &made)) != FUSOR_OK) return fail(t, status);
        fusor_executable_free(s->exe);
        s->exe = made;
    }
    s->n_out = fusor_executable_outputs(s->exe, BENCH_MAX_RESULTS, (fusor_argument_info[BENCH_MAX_RESULTS]){0});
    if ((status = fusor_executable_call(s->exe, s->n_in, s->in, s->n_out, s->out)) != FUSOR_OK) return fail(t, status);
    return 0;
}

static int prepare(tool *t, side *s) {
    fusor_status status = fusor_executable_prepare(s->exe, s->n_in, s->in, s->n_out, s->out, &s->call);
    return status == FUSOR_OK ? 0 : fail(t, status);
}

/* On a device the rivals' data is there: what is timed is calls, not transfers. */
static int move_there(tool *t, side *s) {
    const int32_t device = context_home(t->ctx);
    fusor_status status = FUSOR_OK;
    for (int i = 0; i < s->n_in && device && status == FUSOR_OK; i++) {
        fusor_buffer host = s->in[i], there = host;
        there.flags = 0;
        there.device = device;
        if ((status = fusor_buffer_new(t->ctx, &there)) != FUSOR_OK) break;
        status = fusor_buffer_copy(t->ctx, &host, &there);
        s->in[i] = there;
        for (int r = 0; r < s->n_out; r++) /* a result over a parameter */
            if (s->out[r].data == host.data) s->out[r] = there;
    }
    for (int r = 0; r < s->n_out && device && status == FUSOR_OK; r++) {
        if (s->out[r].device) continue;
        fusor_buffer there = s->out[r];
        there.flags = 0;
        there.device = device;
        if ((status = fusor_buffer_new(t->ctx, &there)) != FUSOR_OK) break;
        fusor_buffer_free(t->ctx, &s->out[r]);
        s->out[r] = there;
    }
    return status == FUSOR_OK ? 0 : fail(t, status);
}
/* Calls return before the device has done them. */
static bool wait_for_device(void *user) {
    const side *s = user;
    return !s->exe || fusor_context_wait(s->exe->ctx) == FUSOR_OK;
}

static bool run_prepared(void *user) { return fusor_call_run(((side *)user)->call) == FUSOR_OK; }
static bool run_call(void *user) {
    side *s = user;
    return fusor_executable_call(s->exe, s->n_in, s->in, s->n_out, s->out) == FUSOR_OK;
}
static bool run_lazy(void *user) {
    side *s = user;
    return s->lazy(s->t->ctx, s->in, s->out, s->no_fuse) == FUSOR_OK;
}
/* Compiles in a context of its own, whose memory table is empty: kernels come from its directory, or from the compiler
 * where it has none. */
static bool run_compile(void *user) {
    side *s = user;
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    fusor_executable *exe = NULL;
    o.cache_dir = s->directory;
    o.target = s->t->target;
    o.device = s->t->device;
    o.n_threads = s->t->ctx->n_threads;
    fusor_context *ctx = fusor_context_new(&o);
    bool is_ok = ctx && compile(s->t, s->w, s->no_fuse, ctx, &exe) == 0;
    if (is_ok) fusor_executable_free(exe);
    if (ctx) fusor_context_free(ctx);
    return is_ok;
}

static void empty_directory(const char *path, bool also_itself) {
    DIR *dir = opendir(path);
    for (struct dirent *f; dir && (f = readdir(dir)) != NULL;)
        if (strcmp(f->d_name, ".") != 0 && strcmp(f->d_name, "..") != 0) (void)unlinkat(dirfd(dir), f->d_name, 0);
    if (dir) (void)closedir(dir);
    if (also_itself) (void)rmdir(path);
}

/* A whole process: fusor run, which prints to nowhere. */
static bool run_process(void *user) {
    side *s = user;
    if (s->is_cold) empty_directory(s->directory, false);
    char *const argv[] = {(char *)"fusor",
                          (char *)"run",
                          (char *)"-e",
                          (char *)s->w->text,
                          (char *)"--fill",
                          (char *)"normal:1",
                          (char *)"--dim",
                          (char *)s->dim,
                          (char *)"--cache-dir",
                          s->directory,
                          (char *)"--threads",
                          (char *)"1",
                          s->no_fuse ? (char *)"--no-fuse" : NULL,
                          NULL};
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions)) return false;
    pid_t pid;
    int status = 0;
    bool is_ok = posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0) == 0 &&
                 posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ) == 0 &&
                 waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    (void)posix_spawn_file_actions_destroy(&actions);
    return is_ok;
}

static double round_prepared(bench_rival *r, double ns) { return bench_repeat(r, ns, run_prepared); }
static double round_call(bench_rival *r, double ns) { return bench_repeat(r, ns, run_call); }
static double round_lazy(bench_rival *r, double ns) { return bench_repeat(r, ns, run_lazy); }
static double round_compile(bench_rival *r, double ns) { return bench_repeat(r, ns, run_compile); }
static double round_process(bench_rival *r, double ns) { return bench_repeat(r, ns, run_process); }

static void add(bench_rivals *rivals, const char *name, double (*round)(bench_rival *, double), side *s) {
    rivals->at[rivals->n++] = (bench_rival){.name = name, .round = round, .finish = wait_for_device, .user = s};
}

static void side_close(tool *t, side *s) {
    fusor_call_free(s->call);
    for (int i = 0; i < s->n_out; i++)
        if (s->exe && !s->memory[BENCH_MAX_BUFFERS + i]) fusor_buffer_free(t->ctx, &s->out[i]);
    for (int i = 0; i < s->n_in; i++)
        if (s->exe && s->in[i].device) fusor_buffer_free(t->ctx, &s->in[i]);
    for (int i = 0; i < BENCH_MAX_BUFFERS + BENCH_MAX_RESULTS; i++) fu_free(s->memory[i]);
    fusor_executable_free(s->exe);
    if (s->directory[0]) empty_directory(s->directory, true);
}

void bench_own_close(tool *t, bench_own *own) {
    for (int i = 0; own && i < 3; i++) side_close(t, &own->side[i]);
}

static int differ(const bench_data *d, const side *s, const char *what) {
    const bool is_auto = s->t->ctx->is_auto; /* each may have run on another side, with sums in another order */
    double error;
    for (int i = 0; i < d->n_out; i++)
        if (is_auto ? d->out[i].dtype == FUSOR_F32 && !bench_agree(&s->out[i], &d->out[i], 2e-3, &error)
                    : memcmp(s->out[i].data, d->out[i].data, bench_bytes(&d->out[i])) != 0) {
            fprintf(stderr,
                    "fusor bench: error: %s of suite %s, size %" PRId64
                    ": result %%%s of the %s program has other %s than that of the fused one\n",
                    d->w->name, d->w->suite, d->size, d->out_info[i].name, what, is_auto ? "values" : "bits");
            return EXIT_NO;
        }
    return 0;
}

/* The kinds whose calls leave results in buffers. */
static int open_calls(tool *t, bench_data *d, bench_rivals *rivals, side *fused, side *unfused, side *third) {
    const bench_workload *w = d->w;
    int status = side_open(t, d, fused);
    for (int i = 0; i < d->n_out && !status; i++) {
        d->out[i] = fused->out[i];
        if (!bench_copy(&d->out[i], &d->memory[BENCH_MAX_BUFFERS + i], &fused->out[i])) return no_memory(t, w);
    }
    if (!status) status = side_open(t, d, unfused);
    if (!status) status = differ(d, unfused, "unfused");
    const bool is_moved = w->kind != BENCH_LAZY; /* lazy programs wrap memory of the CPU */
    if (!status && is_moved) status = move_there(t, fused);
    if (!status && is_moved) status = move_there(t, unfused);
    if (!status && w->kind == BENCH_CALL) status = prepare(t, unfused);
    if (!status) status = prepare(t, fused);
    if (status) return status;
    if (w->kind != BENCH_LAZY) {
        bool is_call = w->kind == BENCH_DISPATCH;
        add(rivals, "fused", is_call ? round_call : round_prepared, fused);
        add(rivals, "unfused", is_call ? round_call : round_prepared, unfused);
        if (is_call) add(rivals, "prepared", round_prepared, fused);
        return 0;
    }
    /* The lazy sides have no executable: the fused one's prepared call is the yardstick. */
    side *lazy[2] = {unfused, third};
    fusor_executable_free(third->exe);
    third->exe = unfused->exe;
    unfused->exe = NULL;
    for (int k = 0; k < 2; k++) {
        side *s = lazy[k];
        if (!(s->lazy = bench_lazy_find(w->name)))
            return tool_environment(t, "suite lazy has no calls for %s", w->name);
        s->no_fuse = k == 1;
        for (int i = 0; i < s->n_out; i++) fusor_buffer_free(t->ctx, &s->out[i]);
        s->n_in = s->n_out = 0;
        for (int i = 0; i < BENCH_MAX_BUFFERS; i++) fu_free(s->memory[i]), s->memory[i] = NULL;
        for (int i = 0; i < d->n_in; i++, s->n_in++) {
            s->in[i] = d->in[i];
            if (!bench_copy(&s->in[i], &s->memory[i], &d->in[i])) return no_memory(t, w);
        }
        for (int i = 0; i < d->n_out; i++, s->n_out++) {
            int over = d->out_info[i].alias;
            s->out[i] = over >= 0 ? s->in[over] : d->out[i];
            if (over < 0 && !bench_copy(&s->out[i], &s->memory[BENCH_MAX_BUFFERS + i], NULL)) return no_memory(t, w);
        }
        if (!run_lazy(s)) return fail(t, FUSOR_ERROR_ARGUMENT);
        if ((status = differ(d, s, "lazy")) != 0) return status;
    }
    add(rivals, "fused", round_lazy, unfused);
    add(rivals, "unfused", round_lazy, third);
    add(rivals, "prepared", round_prepared, fused);
    return 0;
}

static int own_directory(tool *t, side *s) {
    const char *base = getenv("TMPDIR");
    snprintf(s->directory, sizeof s->directory, "%s/fusor-bench-XXXXXX", base && strlen(base) < 40 ? base : "/tmp");
    if (mkdtemp(s->directory)) return 0;
    s->directory[0] = 0;
    return tool_environment(t, "cannot make a directory for a kernel cache in %s", base ? base : "/tmp");
}

int bench_own_auto(tool *t, const bench_data *d, bench_own *own, bench_rivals *rivals, bench_auto **out) {
    const bench_workload *w = d->w;
    side *s = &own->side[2]; /* no other's where workloads are calls */
    *out = NULL;
    if (!t->ctx->is_auto || (w->kind != BENCH_CALL && w->kind != BENCH_DISPATCH)) return 0;
    int status = compile(t, w, false, t->ctx, &s->exe);
    if (!status) status = side_open(t, d, s);
    if (!status) *out = bench_auto_add(t, s->exe, s->n_in, s->in, s->n_out, s->out, rivals);
    return status;
}

int bench_own_open(tool *t, const bench_workload *w, int64_t size, bench_data *d, bench_rivals *rivals,
                   bench_own **own_out, const ir_plan **fused_plan, const ir_plan **unfused_plan) {
    bench_own *own = *own_out = FU_NEW(&t->arena, bench_own);
    side *fused = &own->side[0], *unfused = &own->side[1], *third = &own->side[2];
    int status = 0;
    for (int i = 0; i < 3; i++) own->side[i].t = t, own->side[i].w = w, own->side[i].no_fuse = i == 1;
    for (int i = 0; i < 2 && !status; i++) status = compile(t, w, i == 1, t->ctx, &own->side[i].exe);
    if (status) return status;
    bool has_data = w->kind == BENCH_CALL || w->kind == BENCH_DISPATCH || w->kind == BENCH_LAZY;
    if (has_data) status = data_open(t, w, size, fused->exe, d);
    else d->w = w, d->size = size;
    if (!status && has_data) status = open_calls(t, d, rivals, fused, unfused, third);
    if (status) return status;
    *fused_plan = rt_exec_plan(fused->exe->exec);
    *unfused_plan = rt_exec_plan((unfused->exe ? unfused : third)->exe->exec);
    if (has_data) return 0;
    double (*round)(bench_rival *, double) =
        w->kind == BENCH_COMPILE || w->kind == BENCH_LOAD ? round_compile : round_process;
    for (int i = 0; i < 2; i++) {
        side *s = &own->side[i];
        if (w->kind != BENCH_COMPILE && (status = own_directory(t, s)) != 0) return status;
        s->dim = fu_format(&t->arena, "N=%" PRId64, size);
        s->is_cold = w->kind == BENCH_COLD;
        bool is_ok =
            round == round_compile ? run_compile(s) : run_process(s); /* loads the module, fills the directory */
        if (!is_ok) return tool_environment(t, "%s of suite %s failed", w->name, w->suite);
        add(rivals, i ? "unfused" : "fused", round, s);
    }
    return 0;
}
