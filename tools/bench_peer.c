/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* bench_peer.c: other systems, each in a Python process that runs bench/peers/worker.py (its text is part of the
 * command). Parameters and fusor's results go to a worker in files, requests and answers as lines of JSON through
 * pipes. All workers but the one that is asked are stopped, so that no one's spinning threads disturb another. A worker
 * that does not answer in time is ended and left out. */
#include "bench.h"
#include "base/file.h"
#include "base/log.h"
#include <errno.h>
#include <math.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const char worker_text[] = {
#include "../bench/peers/worker.inc" /* made from worker.py */
    0};

enum { N_PEERS = 6, ANSWER_SECONDS = 120, ROOM = 4096 };
static const char *const names[N_PEERS] = {"numpy",       "numba",        "torch", "jax",
                                           "onnxruntime", "torch.compile"}; /* the last only where it is named */

typedef struct peer {
    tool *t;
    const char *name, *version;
    pid_t pid;
    int to, from;
    char line[ROOM];
    size_t n;
} peer;
struct bench_peers {
    int n;
    peer at[N_PEERS];
    char directory[96];
};

static void end(peer *p) {
    if (p->pid <= 0) return;
    (void)kill(p->pid, SIGKILL);
    (void)waitpid(p->pid, NULL, 0);
    (void)close(p->to);
    (void)close(p->from);
    p->pid = 0;
}

/* The next line, as JSON; NULL: none in time. */
static json_t *hear(peer *p) {
    for (int64_t until = fu_now_ns() + ANSWER_SECONDS * (int64_t)1000000000; p->pid > 0;) {
        char *stop = memchr(p->line, '\n', p->n);
        if (stop) {
            json_t *answer = json_loadb(p->line, (size_t)(stop - p->line), 0, NULL);
            p->n -= (size_t)(stop + 1 - p->line);
            memmove(p->line, stop + 1, p->n);
            return answer;
        }
        int64_t left = until - fu_now_ns();
        struct pollfd f = {.fd = p->from, .events = POLLIN};
        if (left <= 0 || p->n == ROOM || poll(&f, 1, (int)(left / 1000000) + 1) < 0) return NULL;
        ssize_t got = f.revents ? read(p->from, p->line + p->n, ROOM - p->n) : 0;
        if (f.revents && got <= 0) return NULL;
        p->n += (size_t)got;
    }
    return NULL;
}

static json_t *ask(peer *p, json_t *question) {
    char *text = p->pid > 0 ? json_dumps(question, JSON_COMPACT) : NULL;
    json_decref(question);
    if (!text) return NULL;
    bool is_sent = kill(p->pid, SIGCONT) == 0 && write(p->to, text, strlen(text)) == (ssize_t)strlen(text) &&
                   write(p->to, "\n", 1) == 1;
    free(text);
    json_t *answer = is_sent ? hear(p) : NULL;
    if (answer) (void)kill(p->pid, SIGSTOP);
    else {
        tool_note(p->t, "peer %s did not answer and is left out from here on", p->name);
        end(p);
    }
    return answer;
}

static int start(tool *t, peer *p, const char *name, int n_threads) {
    static const char *const variables[] = {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                                            "NUMBA_NUM_THREADS", "FUSOR_BENCH_THREADS"};
    enum { N_VARIABLES = sizeof variables / sizeof *variables };
    const char *python = t->python ? t->python : "python3";
    int in[2], out[2], n = 0;
    while (environ[n]) n++;
    char **environment = FU_NEW_N(&t->arena, char *, n + N_VARIABLES + 1);
    int kept = 0;
    for (int i = 0; i < n; i++) {
        bool is_ours = false;
        for (int k = 0; k < N_VARIABLES; k++)
            is_ours |=
                strncmp(environ[i], variables[k], strlen(variables[k])) == 0 && environ[i][strlen(variables[k])] == '=';
        if (!is_ours) environment[kept++] = environ[i];
    }
    for (int k = 0; k < N_VARIABLES; k++) environment[kept++] = fu_format(&t->arena, "%s=%d", variables[k], n_threads);
    *p = (peer){.t = t, .name = name};
    if (pipe2(in, O_CLOEXEC)) return errno;
    if (pipe2(out, O_CLOEXEC)) {
        int why = errno;
        (void)close(in[0]);
        (void)close(in[1]);
        return why;
    }
    char *const argv[] = {(char *)python, (char *)"-c", (char *)worker_text, (char *)name, NULL};
    posix_spawn_file_actions_t actions;
    int why = posix_spawn_file_actions_init(&actions);
    if (!why) {
        if (!(why = posix_spawn_file_actions_adddup2(&actions, in[0], 0)) &&
            !(why = posix_spawn_file_actions_adddup2(&actions, out[1], 1)) &&
            !(why = posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0)))
            why = posix_spawnp(&p->pid, python, &actions, NULL, argv, environment);
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    (void)close(in[0]);
    (void)close(out[1]);
    p->to = in[1];
    p->from = out[0];
    if (why) {
        (void)close(p->to);
        (void)close(p->from);
        p->pid = 0;
    }
    return why;
}

static int choose(tool *t, bool chosen[N_PEERS]) {
    const char *list = t->peers ? t->peers : t->quick ? "none" : "found";
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ",");
        const char *word = fu_strndup(&t->arena, at, n);
        bool is_known = strcmp(word, "none") == 0 || strcmp(word, "found") == 0 || strcmp(word, "all") == 0;
        for (int i = 0; i < N_PEERS; i++)
            if (strcmp(word, names[i]) == 0 || strcmp(word, "all") == 0 ||
                (strcmp(word, "found") == 0 && i + 1 < N_PEERS))
                chosen[i] = is_known = true;
        if (!is_known)
            return tool_usage(
                t, "unknown peer '%s'%s (numpy, numba, torch, jax, onnxruntime, torch.compile; found, all, none)", word,
                tool_suggest(t, word, names, N_PEERS, ""));
        at += n + (at[n] == ',');
    }
    return 0;
}

int bench_peers_open(tool *t, int n_threads, bench_peers **out) {
    bool chosen[N_PEERS] = {false}, is_any = false;
    int status = choose(t, chosen);
    bench_peers *all = *out = FU_NEW(&t->arena, bench_peers);
    for (int i = 0; i < N_PEERS; i++) is_any |= chosen[i];
    if (status || !is_any) return status;
    const char *base = getenv("TMPDIR");
    snprintf(all->directory, sizeof all->directory, "%s/fusor-bench-p-XXXXXX",
             base && *base && strlen(base) < 64 ? base : "/tmp");
    if (!mkdtemp(all->directory)) {
        tool_note(t, "no peers: %s: %s", all->directory, strerror(errno));
        all->directory[0] = 0;
        return 0;
    }
    for (int i = 0; i < N_PEERS; i++) {
        if (!chosen[i]) continue;
        int why = start(t, &all->at[all->n], names[i], n_threads);
        if (why) {
            tool_note(t, "no peers: %s: %s (--python names another interpreter)", t->python ? t->python : "python3",
                      strerror(why));
            break;
        }
        all->n++;
    }
    int kept = 0;
    for (int i = 0; i < all->n; i++) {
        json_t *hello = hear(&all->at[i]);
        const char *version = json_string_value(json_object_get(hello, "version")),
                   *missing = json_string_value(json_object_get(hello, "missing"));
        if (version) {
            all->at[i].version = fu_strdup(&t->arena, version);
            (void)kill(all->at[i].pid, SIGSTOP);
            if (kept != i) all->at[kept] = all->at[i];
            kept++;
        } else {
            tool_note(t, "peer %s is left out: %s", all->at[i].name,
                      missing ? missing : "its process ended or did not answer");
            end(&all->at[i]);
        }
        json_decref(hello);
    }
    all->n = kept;
    return 0;
}

void bench_peers_close(bench_peers *all) {
    for (int i = 0; all && i < all->n; i++) end(&all->at[i]);
    if (all && all->directory[0]) (void)rmdir(all->directory);
}

json_t *bench_peers_versions(const bench_peers *all) {
    json_t *o = json_object();
    for (int i = 0; all && i < all->n; i++)
        (void)json_object_set_new(o, all->at[i].name, json_string(all->at[i].version));
    return o;
}

/* ---- workloads ---- */
static const char *file_of(tool *t, const bench_peers *all, char kind, int i) {
    return fu_format(&t->arena, "%s/%c%d", all->directory, kind, i);
}

static json_t *describe(tool *t, const bench_peers *all, char kind, int i, const fusor_argument_info *info,
                        const fusor_buffer *b) {
    fu_part part = {b->data, bench_bytes(b)};
    const char *file = file_of(t, all, kind, i);
    if (fu_file_write_atomic(file, 0600, &part, 1)) return NULL;
    return json_pack("{s:s, s:s, s:o, s:b, s:s}", "name", info->name, "dtype", fusor_dtype_name((fusor_dtype)b->dtype),
                     "shape", report_shape(b->rank, b->shape), "const", info->is_const, "file", file);
}

static double round_peer(bench_rival *r, double batch_ns) {
    json_t *answer = ask(r->user, json_pack("{s:s, s:f}", "do", "time", "ns", batch_ns));
    double ns = json_is_number(json_object_get(answer, "ns")) ? json_number_value(json_object_get(answer, "ns")) : NAN;
    json_decref(answer);
    return ns;
}

void bench_peers_add(tool *t, bench_peers *all, const bench_data *d, bench_rivals *rivals, json_t *reasons) {
    if (!all || !all->n || !d->n_in) return;
    json_t *parameters = json_array(), *results = json_array();
    bool is_ok = true;
    for (int i = 0; i < d->n_in; i++)
        is_ok &= json_array_append_new(parameters, describe(t, all, 'p', i, &d->in_info[i], &d->in[i])) == 0;
    for (int i = 0; i < d->n_out; i++)
        is_ok &= json_array_append_new(results, describe(t, all, 'r', i, &d->out_info[i], &d->out[i])) == 0;
    if (!is_ok) tool_note(t, "no room in %s to hand %s to the peers", all->directory, d->w->name);
    for (int i = 0; i < all->n && is_ok; i++) {
        peer *p = &all->at[i];
        if (p->pid <= 0 || rivals->n == BENCH_MAX_RIVALS) continue;
        json_t *answer = ask(p, json_pack("{s:s, s:s, s:I, s:O, s:O}", "do", "open", "program", d->w->text, "size",
                                          (json_int_t)d->size, "parameters", parameters, "results", results));
        const char *why = answer ? json_string_value(json_object_get(answer, "skip")) : "no answer";
        if (why) (void)json_object_set_new(reasons, p->name, json_string(why));
        else rivals->at[rivals->n++] = (bench_rival){.name = p->name, .round = round_peer, .user = p};
        json_decref(answer);
    }
    for (int i = 0; i < d->n_in; i++) (void)unlink(file_of(t, all, 'p', i));
    for (int i = 0; i < d->n_out; i++) (void)unlink(file_of(t, all, 'r', i));
    json_decref(parameters);
    json_decref(results);
}
