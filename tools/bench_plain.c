/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* bench_plain.c: the rows of bench/plain.def, compiled by a C compiler of this machine (cc, gcc or clang; CC names
 * another) with -O3 -march=native into a temporary shared object, and called on copies of the data. */
#include "bench.h"
#include "base/file.h"
#include "base/log.h"
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
typedef void (*plain_fn)(long n, void **in, void **out);
typedef struct plain_row {
    const char *suite, *name, *body;
} plain_row;
static const plain_row rows[] = {
#define PLAIN(suite, name, body) {suite, name, body},
#include "../bench/plain.def"
#undef PLAIN
};
enum { N_ROWS = sizeof rows / sizeof *rows };

struct bench_plain {
    void *object;
    plain_fn fn[N_ROWS], now;
    long size;
    void *in[BENCH_MAX_BUFFERS], *out[BENCH_MAX_RESULTS], *memory[BENCH_MAX_BUFFERS + BENCH_MAX_RESULTS];
};

static const plain_row *row_of(const bench_workload *w) {
    for (int i = 0; i < N_ROWS; i++)
        if (w->kind == BENCH_CALL && strcmp(rows[i].suite, w->suite) == 0 && strcmp(rows[i].name, w->name) == 0)
            return &rows[i];
    return NULL;
}

/* Runs the compiler without its messages. */
static bool run_compiler(const char *compiler, const char *source, const char *object) {
    char *const argv[] = {(char *)compiler,
                          (char *)"-O3",
                          (char *)"-march=native",
                          (char *)"-fno-math-errno",
                          (char *)"-shared",
                          (char *)"-fPIC",
                          (char *)"-o",
                          (char *)object,
                          (char *)source,
                          (char *)"-lm",
                          NULL};
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions)) return false;
    pid_t pid;
    int status = 0;
    bool is_ok = posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", 1, 0) == 0 &&
                 posix_spawnp(&pid, compiler, &actions, NULL, argv, environ) == 0 && waitpid(pid, &status, 0) == pid &&
                 WIFEXITED(status) && WEXITSTATUS(status) == 0;
    (void)posix_spawn_file_actions_destroy(&actions);
    return is_ok;
}

static const char *source_of(tool *t, const bool *wanted) {
    fu_str s;
    fu_str_init(&s, &t->arena);
    fu_str_add(&s, "#include <math.h>\n#include <string.h>\n#define IN(x, i) const float *restrict x = in[i];\n#define "
                   "OUT(y, i) float *restrict y = out[i];\n"
                   "#define BOTH(p, i, k) float *restrict p = out[k];\n");
    for (int i = 0; i < N_ROWS; i++)
        if (wanted[i])
            fu_str_addf(&s, "void plain_%d(long n, void **in, void **out) { (void)in; %s }\n", i, rows[i].body);
    return s.at;
}

bench_plain *bench_plain_open(tool *t) {
    bool wanted[N_ROWS] = {false}, is_any = false;
    for (int i = 0; i < bench_n_workloads; i++) {
        const plain_row *r = bench_is_wanted(t, &bench_workloads[i]) ? row_of(&bench_workloads[i]) : NULL;
        if (r) wanted[r - rows] = is_any = true;
    }
    if (!is_any) return NULL;
    const char *base = getenv("TMPDIR"), *named = getenv("CC");
    char *directory = fu_format(&t->arena, "%s/fusor-bench-c-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(directory)) {
        tool_note(t, "plain C is left out: %s: %s", directory, strerror(errno));
        return NULL;
    }
    const char *source = fu_format(&t->arena, "%s/plain.c", directory),
               *object = fu_format(&t->arena, "%s/plain.so", directory), *text = source_of(t, wanted);
    const char *compilers[] = {named && *named && !strchr(named, ' ') ? named : "cc", "gcc", "clang"};
    fu_part part = {text, strlen(text)};
    bench_plain *p = NULL;
    bool is_made = false;
    if (fu_file_write_atomic(source, 0600, &part, 1) == 0)
        for (int i = 0; i < 3 && !is_made; i++) is_made = run_compiler(compilers[i], source, object);
    void *handle = is_made ? dlopen(object, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (handle) {
        p = FU_NEW(&t->arena, bench_plain);
        p->object = handle;
        for (int i = 0; i < N_ROWS; i++)
            if (wanted[i]) *(void **)&p->fn[i] = dlsym(handle, fu_format(&t->arena, "plain_%d", i));
    } else
        tool_note(t, "plain C is left out: %s",
                  is_made ? "its shared object does not load"
                          : "none of cc, gcc and clang compiled it (CC names another)");
    (void)unlink(source);
    (void)unlink(object);
    (void)rmdir(directory);
    return p;
}

void bench_plain_done(bench_plain *p) {
    for (int i = 0; p && i < BENCH_MAX_BUFFERS + BENCH_MAX_RESULTS; i++) fu_free(p->memory[i]), p->memory[i] = NULL;
}

void bench_plain_close(bench_plain *p) {
    bench_plain_done(p);
    if (p) (void)dlclose(p->object);
}

static bool run_plain(void *user) {
    bench_plain *p = user;
    p->now(p->size, p->in, p->out);
    return true;
}
static double round_plain(bench_rival *r, double ns) { return bench_repeat(r, ns, run_plain); }

bool bench_agree(const fusor_buffer *a, const fusor_buffer *b, double tolerance, double *error_out) {
    *error_out = 0;
    if (a->dtype != FUSOR_F32) return memcmp(a->data, b->data, bench_bytes(a)) == 0;
    const float *x = a->data, *y = b->data;
    size_t n = bench_bytes(a) / sizeof *x;
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += fabs((double)y[i]);
    for (size_t i = 0; i < n; i++) {
        double error = fabs((double)x[i] - (double)y[i]) / (fabs((double)y[i]) + sum / (double)n + 1e-30);
        if (isnan(x[i]) && isnan(y[i])) continue;
        if (!(error <= *error_out)) *error_out = error;
        if (!(error <= tolerance)) return false;
    }
    return true;
}

void bench_plain_add(tool *t, bench_plain *p, const bench_data *d, bench_rivals *rivals) {
    const plain_row *row = p ? row_of(d->w) : NULL;
    plain_fn fn = row ? p->fn[row - rows] : NULL;
    if (!fn) return;
    fusor_buffer out[BENCH_MAX_RESULTS];
    for (int i = 0; i < d->n_in; i++) {
        fusor_buffer b = d->in[i];
        if (!bench_copy(&b, &p->memory[i], &d->in[i])) return;
        p->in[i] = b.data;
    }
    for (int i = 0; i < d->n_out; i++) {
        int over = d->out_info[i].alias;
        out[i] = d->out[i];
        if (over >= 0) out[i].data = p->in[over];
        else if (!bench_copy(&out[i], &p->memory[BENCH_MAX_BUFFERS + i], NULL)) return;
        p->out[i] = out[i].data;
    }
    p->now = fn;
    p->size = (long)d->size;
    (void)run_plain(p);
    for (int i = 0; i < d->n_out; i++) {
        double error;
        if (bench_agree(&out[i], &d->out[i], 2e-3, &error)) continue;
        tool_note(t, "plain C is left out of %s, %s: result %%%s differs by %.3g", d->w->suite, d->w->name,
                  d->out_info[i].name, error);
        return;
    }
    rivals->at[rivals->n++] = (bench_rival){.name = "c", .round = round_plain, .user = p};
}
