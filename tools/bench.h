/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef TOOL_BENCH_H
#define TOOL_BENCH_H
/* fusor bench: what its files share. suite.def's rows (bench_suite.c) are measured by bench_run.c, which asks the other
 * files for rivals: bench_kind.c for what fusor itself does, bench_plain.c for C, bench_peer.c for other systems. The
 * results are one JSON document (fusor-bench/1): what is printed, exported, kept as a baseline (bench_compare.c) and
 * drawn (bench_html.c, bench_chart.c) is made from it. */
#include "limits.h"
#include "report.h"

typedef enum bench_kind {
    BENCH_CALL,
    BENCH_DISPATCH,
    BENCH_LAZY,
    BENCH_COMPILE,
    BENCH_LOAD,
    BENCH_COLD,
    BENCH_WARM
} bench_kind;
typedef struct bench_workload {
    const char *suite, *name;
    bench_kind kind;
    const char *fill, *sizes, *text;
} bench_workload;
enum { BENCH_MAX_BUFFERS = 16, BENCH_MAX_RESULTS = 4, BENCH_MAX_RIVALS = 12, BENCH_MAX_ROUNDS = 1000 };

/* ---- bench_suite.c ---- */
extern const bench_workload bench_workloads[];
extern const int bench_n_workloads;
/* Are the suites of the command line suites? 0, or the exit status. */
int bench_check_suites(tool *t);
bool bench_is_wanted(const tool *t, const bench_workload *w);
/* The sizes of w that are measured (--quick leaves one out); at most 8. Their number. */
int bench_sizes(const tool *t, const bench_workload *w, int64_t sizes[8]);
int bench_list(tool *t);

/* ---- bench_kind.c: data, and fusor's own ways of doing a workload ---- */
/* Parameters, filled, and the results of the fused kernels: what rivals start from and are checked against. */
typedef struct bench_data {
    const bench_workload *w;
    int64_t size;
    int n_in, n_out;
    fusor_argument_info in_info[BENCH_MAX_BUFFERS],
        out_info[BENCH_MAX_RESULTS]; /* of the executable before consts are bound */
    fusor_buffer in[BENCH_MAX_BUFFERS], out[BENCH_MAX_RESULTS];
    void *memory[BENCH_MAX_BUFFERS + BENCH_MAX_RESULTS];
} bench_data;
size_t bench_bytes(const fusor_buffer *b);
/* Memory for b (64-byte aligned; *memory is what fu_free takes), a copy of `like` where that is no NULL. False: no
 * memory. */
bool bench_copy(fusor_buffer *b, void **memory, const fusor_buffer *like);
void bench_data_close(bench_data *d);

/* One way of doing a workload. round: the mean time of a call over about batch_ns, after a call that is not timed where
 * calls are short; NaN when one failed. */
typedef struct bench_rival bench_rival;
struct bench_rival {
    const char *name;
    double (*round)(bench_rival *r, double batch_ns);
    bool (*finish)(void *user); /* NULL, or: until all calls of a batch are done */
    void *user;
    double one_ns; /* about what a call takes; 0: not known yet */
    bool is_apart; /* of bench_auto.c, which reports it */
    double *sample;
    double median_ns, min_ns, spread; /* spread: interquartile range / median */
    int n;
};
typedef struct bench_rivals {
    int n;
    bench_rival at[BENCH_MAX_RIVALS];
} bench_rivals;
/* The round of a rival whose one call is call(user); false = it failed. */
double bench_repeat(bench_rival *r, double batch_ns, bool (*call)(void *user));

typedef struct bench_auto bench_auto;
typedef struct bench_own bench_own; /* executables and the like behind fusor's rivals */
/* Fills the data, makes the rivals "fused", "unfused" and, for some kinds, "prepared", and checks that all give the
 * same bits. fused_plan and unfused_plan are borrowed from own. 0, or the exit status after a message; own is closed by
 * the caller. */
int bench_own_open(tool *t, const bench_workload *w, int64_t size, bench_data *d, bench_rivals *rivals,
                   bench_own **own_out, const ir_plan **fused_plan, const ir_plan **unfused_plan);
/* With device "auto" and a GPU, for calls: adds the rivals of bench_auto.c. *out: NULL where there is no choice. 0, or
 * the exit status. */
int bench_own_auto(tool *t, const bench_data *d, bench_own *own, bench_rivals *rivals, bench_auto **out);
void bench_own_close(tool *t, bench_own *own);

/* bench_lazy.c: the program of a LAZY row by calls of lazy tensors, on in[] (result k is written over in[]'s memory
 * where it is an alias, else to out[k]); each: evaluates every operator before the next. NULL: there is no such
 * program. */
typedef fusor_status (*bench_lazy_fn)(fusor_context *ctx, fusor_buffer *in, fusor_buffer *out, bool each);
bench_lazy_fn bench_lazy_find(const char *name);

/* ---- bench_auto.c: --device auto, and how often its choice was the faster one ---- */
/* Adds "cpu", "gpu" and "auto" for an executable of a context with "auto" and a device, after calls until its trials
 * are over. All is borrowed. */
bench_auto *bench_auto_add(tool *t, fusor_executable *exe, int n_in, fusor_buffer *in, int n_out, fusor_buffer *out,
                           bench_rivals *rivals);
/* Of the measured rivals: {"choice", "cpu_ns", "gpu_ns", "auto_ns" and spreads}, or {"reason"}. */
json_t *bench_auto_row(const bench_auto *a, const bench_rivals *rivals);
/* Where the document has "auto": puts "right", "behind" and "noise" into that of the rows, "choices", "right" and
 * "share" into its own. */
void bench_auto_judge(json_t *document);
const char *bench_auto_text(tool *t, const json_t *document); /* "19 of 20 choices were the faster one (95.0 %)" */
const char *bench_auto_verdict(tool *t, const json_t *row);   /* "wrong by 12.0 %" */
void bench_auto_print(tool *t, const json_t *document);

/* ---- bench_plain.c: the rows of plain.def in C ---- */
typedef struct bench_plain bench_plain;
/* Compiles the rows of the workloads that are wanted. NULL: none, or no compiler (said in a note). */
bench_plain *bench_plain_open(tool *t);
void bench_plain_close(bench_plain *p);
/* Adds "c"; says in a note where its results are others. */
void bench_plain_add(tool *t, bench_plain *p, const bench_data *d, bench_rivals *rivals);
void bench_plain_done(bench_plain *p); /* frees what add made */

/* ---- bench_peer.c: other systems, in a Python process each ---- */
typedef struct bench_peers bench_peers;
/* Starts a worker for each of --peers that is found; says which are not and why. The workers have n_threads threads. 0,
 * or the exit status. */
int bench_peers_open(tool *t, int n_threads, bench_peers **out);
void bench_peers_close(bench_peers *p);
/* Hands the workload to every worker and adds those whose results agree. reasons: an object that gets "peer": "why it
 * is left out". */
void bench_peers_add(tool *t, bench_peers *p, const bench_data *d, bench_rivals *rivals, json_t *reasons);
json_t *bench_peers_versions(const bench_peers *p); /* "torch": "2.15.0" */
/* Are the results the same but for rounding? Otherwise *error_out is the largest difference beside |b| + mean |b|. */
bool bench_agree(const fusor_buffer *a, const fusor_buffer *b, double tolerance, double *error_out);

/* ---- bench_run.c ---- */
/* Measures the wanted workloads; the document "fusor-bench/1". 0, or the exit status. */
int bench_run(tool *t, json_t **document_out);
/* Measures one row again, for longer. NULL: it could not be. */
json_t *bench_again(tool *t, const json_t *row);

/* ---- bench_compare.c: baselines ---- */
int bench_save(tool *t, const char *path, const json_t *document); /* whole or not at all */
int bench_baseline_path(tool *t, const char *name, const char **out);
int bench_read(tool *t, const char *path, const char *what, json_t **out);
/* Puts "baseline_ns", "change" and "verdict" (same, faster, slower, new) into the rows of document; rows that look
 * slower are measured again if again. 0, or EXIT_NO where a row is slower. */
int bench_compare(tool *t, json_t *document, bool again);
/* All baselines beside the cache, oldest first: [{"name", "date", "results"}]. */
json_t *bench_history(tool *t);

/* ---- bench_counts.c: what does not depend on the machine's mood ---- */
int bench_counts(tool *t);

/* ---- bench_html.c ---- */
int bench_html(tool *t, const char *path, const json_t *document, const json_t *history);
/* bench_chart.c: pieces of the page. */
typedef struct bench_series {
    const char *name, *colour;
    int n;
    const double *x, *y;
    const char *const *tip;
} bench_series;
typedef struct bench_chart {
    const char *title, *x_label, *y_label;
    bool log_x, log_y, has_lines, has_points, is_without_key;
    const bench_series *series;
    int n_series;
    double flops; /* a roof at this rate where not 0, */
    struct {
        const char *name;
        double bytes;
    } slope[RT_LIMIT_LEVELS]; /* and what each level of memory allows below it; the last counts most */
    int n_slopes;
    const char *const *x_names; /* names of the places 0, 1 ... on the x axis; NULL: numbers */
    int n_x_names;
} bench_chart;
void bench_draw(fu_str *s, const bench_chart *c);
const char *bench_colour(const char *rival); /* "var(--fused)" */
extern const char bench_style[];             /* beside html.c's */
#endif
