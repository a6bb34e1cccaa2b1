/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* bench_suite.c: the workloads of bench/suite.def, and which of them a command line asks for. */
#include "bench.h"
#include <unistd.h>

const bench_workload bench_workloads[] = {
#define BENCH(suite, name, kind, fill, sizes, text) {suite, name, BENCH_##kind, fill, sizes, text},
#include "../bench/suite.def"
#undef BENCH
};
const int bench_n_workloads = sizeof bench_workloads / sizeof *bench_workloads;
enum { N = sizeof bench_workloads / sizeof *bench_workloads };

bool bench_is_wanted(const tool *t, const bench_workload *w) {
    bool is_named = t->args.n == 0;
    for (uint32_t i = 0; i < t->args.n; i++) is_named |= strcmp(t->args.at[i], w->suite) == 0;
    return is_named && (!t->filter || strstr(w->name, t->filter) || strstr(w->suite, t->filter));
}

/* Sizes in a list; -1: one is none. */
static int read_sizes(const char *list, char separator, int64_t sizes[8]) {
    int n = 0;
    for (const char *p = list; n < 8; p++) {
        char word[32];
        size_t length = strcspn(p, (char[]){separator, 0});
        snprintf(word, sizeof word, "%.*s", (int)length, p);
        if (!tool_parse_size(word, 1000, &sizes[n]) || sizes[n] < 1) return -1;
        n++;
        p += length;
        if (!*p) break;
    }
    return n;
}

int bench_check_suites(tool *t) {
    const char *names[N];
    size_t n = 0;
    bool is_any = false;
    for (int i = 0; i < N; i++)
        if (n == 0 || strcmp(names[n - 1], bench_workloads[i].suite) != 0) names[n++] = bench_workloads[i].suite;
    for (uint32_t i = 0; i < t->args.n; i++) {
        bool is_known = false;
        for (size_t k = 0; k < n; k++) is_known |= strcmp(names[k], t->args.at[i]) == 0;
        if (!is_known)
            return access(t->args.at[i], F_OK) == 0
                       ? tool_usage(t, "'%s' is a file; fusor explain FILE --measure times a program", t->args.at[i])
                       : tool_usage(t, "unknown suite '%s'%s (see fusor bench --list)", t->args.at[i],
                                    tool_suggest(t, t->args.at[i], names, n, ""));
    }
    for (int i = 0; i < N; i++) is_any |= bench_is_wanted(t, &bench_workloads[i]);
    for (uint32_t i = 0; i < t->dims.n; i++)
        if (strncmp(t->dims.at[i], "N=", 2) != 0 || read_sizes(t->dims.at[i] + 2, ',', (int64_t[8]){0}) < 1)
            return tool_usage(t, "--dim %s: expected N=SIZE or N=SIZE,SIZE (up to 8)", t->dims.at[i]);
    if (!is_any && !t->import_json)
        return tool_usage(t, "no workload%s has '%s' in its name (see fusor bench --list)",
                          t->args.n ? " of these suites" : "", t->filter);
    return 0;
}

int bench_sizes(const tool *t, const bench_workload *w, int64_t sizes[8]) {
    if (t->dims.n) return read_sizes(t->dims.at[t->dims.n - 1] + 2, ',', sizes);
    int n = read_sizes(w->sizes, ' ', sizes);
    return t->quick && n > 1 ? n - 1 : n;
}

int bench_list(tool *t) {
    report_table table = {.t = t, .columns = 3, .left_mask = 7};
    json_t *a = json_array();
    for (int i = 0; i < N; i++) {
        const bench_workload *w = &bench_workloads[i];
        if (!bench_is_wanted(t, w)) continue;
        report_row(&table, w->suite, w->name, w->sizes);
        (void)json_array_append_new(
            a, json_pack("{s:s, s:s, s:s}", "suite", w->suite, "name", w->name, "sizes", w->sizes));
    }
    if (!t->json) {
        report_table_print(&table, stdout);
        json_decref(a);
        return 0;
    }
    json_t *d = report_new("fusor-bench-list/1");
    (void)json_object_set_new(d, "workloads", a);
    return report_print(t, d);
}
