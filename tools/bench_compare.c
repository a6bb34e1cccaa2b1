/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* bench_compare.c: baselines, the JSON documents of earlier runs beside the kernel cache. A row is slower or faster
 * when its median changed by more than --threshold and by more than the noise, which is what both runs' spreads come to
 * together. What plain C took in both runs tells how the machine changed in between, and is divided out. A row that
 * looks slower is measured again, and only one that stays slower is a regression. */
#include "bench.h"
#include "timing.h"
#include "base/file.h"
#include "base/log.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

int bench_baseline_path(tool *t, const char *name, const char **out) {
    const char *dir = t->ctx || tool_context(t, 0) == 0 ? rt_cache_dir(t->ctx->cache) : "";
    if (strchr(name, '/') || !name[0]) return tool_usage(t, "baseline '%s': a name has no '/' and is not empty", name);
    if (!dir[0]) return tool_environment(t, "there is no cache directory to keep baselines in; give --cache-dir");
    *out = fu_format(&t->arena, "%s/bench-%s.json", dir, name);
    return 0;
}

int bench_save(tool *t, const char *path, const json_t *document) {
    char *text = json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(8));
    if (!text) return tool_environment(t, "out of memory");
    fu_part part = {text, strlen(text)};
    int why = fu_file_write(path, &part, 1);
    free(text);
    return why ? tool_environment(t, "%s: %s", path, strerror(why)) : 0;
}

/* Has every row what is read from it? */
static const char *problem(const json_t *document) {
    static const char *const texts[] = {"suite", "name"}, *const numbers[] = {"size", "threads", "fused_ns",
                                                                              "unfused_ns", "spread"};
    const char *schema = json_string_value(json_object_get(document, "schema"));
    const json_t *results = json_object_get(document, "results"), *row;
    size_t i;
    if (!schema || strcmp(schema, "fusor-bench/1") != 0) return "its schema is not fusor-bench/1";
    if (!json_is_array(results)) return "it has no array of results";
    json_array_foreach(results, i, row) {
        for (size_t k = 0; k < 2; k++)
            if (!json_is_string(json_object_get(row, texts[k]))) return "a result has no suite or name";
        for (size_t k = 0; k < 5; k++)
            if (!json_is_number(json_object_get(row, numbers[k])))
                return "a result lacks one of size, threads, fused_ns, unfused_ns, spread";
        if (!(json_number_value(json_object_get(row, "fused_ns")) > 0)) return "a fused_ns is not above 0";
    }
    return NULL;
}

int bench_read(tool *t, const char *path, const char *what, json_t **out) {
    json_error_t why;
    void *data;
    size_t n;
    int code = fu_file_read(path, SIZE_MAX / 4, &data, &n);
    *out = NULL;
    if (code) return tool_environment(t, "%s: %s: %s", what, path, strerror(code));
    json_t *d = json_loadb(data, n, 0, &why);
    fu_free(data);
    if (!d) return tool_data(t, "%s: %s:%d:%d: %s", what, path, why.line, why.column, why.text);
    const char *wrong = problem(d);
    if (wrong) {
        json_decref(d);
        return tool_data(t, "%s: %s: %s", what, path, wrong);
    }
    *out = d;
    return 0;
}

static double number(const json_t *row, const char *field) { return json_number_value(json_object_get(row, field)); }

static const json_t *partner(const json_t *row, const json_t *rows) {
    static const char *const same[] = {"suite", "name", "size", "threads"};
    const json_t *then;
    size_t i;
    json_array_foreach(rows, i, then) {
        bool is_same = true;
        for (int k = 0; k < 4 && is_same; k++)
            is_same = json_equal(json_object_get(row, same[k]), json_object_get(then, same[k]));
        if (is_same) return then;
    }
    return NULL;
}

static double plain_ns(const json_t *row) { return number(json_object_get(json_object_get(row, "rivals"), "c"), "ns"); }

/* The median change of plain C over the rows of both runs; 1 where there are too few to tell. */
static double drift_of(tool *t, const json_t *now, const json_t *then) {
    double *ratio = FU_NEW_N(&t->arena, double, json_array_size(now) + 1);
    int64_t n = 0;
    const json_t *row;
    size_t i;
    json_array_foreach(now, i, row) {
        double a = plain_ns(row), b = plain_ns(partner(row, then));
        if (a > 0 && b > 0) ratio[n++] = a / b;
    }
    return n >= 5 ? timing_median(ratio, n) : 1;
}

typedef struct change {
    double part, noise;
    bool is_worse, is_better;
} change;
static change change_of(const json_t *now, const json_t *then, double drift, double threshold) {
    change c = {.part = number(now, "fused_ns") / number(then, "fused_ns") / drift - 1,
                .noise = hypot(number(now, "spread"), number(then, "spread"))};
    c.is_worse = c.part > threshold && c.part > c.noise;
    c.is_better = -c.part > threshold && -c.part > c.noise;
    return c;
}

int bench_compare(tool *t, json_t *document, bool again) {
    const char *path;
    json_t *base, *row, *results = json_object_get(document, "results");
    size_t i;
    double threshold = (t->threshold >= 0 ? t->threshold : 5) / 100;
    int worse = 0, better = 0, compared = 0, status = bench_baseline_path(t, t->baseline, &path);
    if (status) return status;
    if ((status = bench_read(
             t, path, fu_format(&t->arena, "baseline '%s' (made with --save-baseline %s)", t->baseline, t->baseline),
             &base)) != 0)
        return status;
    const json_t *old = json_object_get(base, "results");
    double drift = drift_of(t, results, old);
    json_array_foreach(results, i, row) {
        const json_t *then = partner(row, old);
        if (!then) {
            (void)json_object_set_new(row, "verdict", json_string("new"));
            continue;
        }
        change c = change_of(row, then, drift, threshold);
        for (int k = 0; k < 2 && c.is_worse && again; k++) {
            json_t *second = bench_again(t, row);
            static const char *const fields[] = {"fused_ns",       "unfused_ns", "ratio", "spread",
                                                 "unfused_spread", "min_ns",     "rounds"};
            bool is_better = second && number(second, "fused_ns") < number(row, "fused_ns");
            for (size_t f = 0; f < sizeof fields / sizeof *fields && is_better; f++)
                (void)json_object_set(row, fields[f], json_object_get(second, fields[f]));
            json_decref(second);
            c = change_of(row, then, drift, threshold);
        }
        compared++;
        worse += c.is_worse;
        better += c.is_better;
        (void)json_object_set_new(row, "baseline_ns", json_real(number(then, "fused_ns")));
        (void)json_object_set_new(row, "change", json_real(c.part));
        (void)json_object_set_new(row, "noise", json_real(c.noise));
        (void)json_object_set_new(row, "verdict", json_string(c.is_worse ? "slower" : c.is_better ? "faster" : "same"));
        if (c.is_worse || (c.is_better && !t->quiet))
            fprintf(stderr,
                    "%s: %s, %s, size %" JSON_INTEGER_FORMAT ", %" JSON_INTEGER_FORMAT
                    " threads: %+.1f%% (noise %.1f%%)\n",
                    c.is_worse ? "SLOWER" : "faster", json_string_value(json_object_get(row, "suite")),
                    json_string_value(json_object_get(row, "name")), json_integer_value(json_object_get(row, "size")),
                    json_integer_value(json_object_get(row, "threads")), 100 * c.part, 100 * c.noise);
    }
    (void)json_object_set_new(document, "baseline",
                              json_pack("{s:s, s:f, s:f, s:i, s:i, s:i}", "name", fu_utf8(&t->arena, t->baseline),
                                        "drift", drift, "threshold", threshold, "compared", compared, "slower", worse,
                                        "faster", better));
    json_decref(base);
    if (!t->quiet) {
        if (fabs(drift - 1) > 0.02)
            fprintf(stderr, "the machine is %.1f%% %s than then (by plain C); divided out\n", 100 * fabs(drift - 1),
                    drift > 1 ? "slower" : "faster");
        fprintf(stderr, "%d regression%s among %d results against baseline '%s'\n", worse, worse == 1 ? "" : "s",
                compared, t->baseline);
    }
    return worse ? EXIT_NO : 0;
}

static int by_date(const void *a, const void *b) {
    const char *x = json_string_value(json_object_get(*(json_t *const *)a, "date")),
               *y = json_string_value(json_object_get(*(json_t *const *)b, "date"));
    return strcmp(x ? x : "", y ? y : "");
}

json_t *bench_history(tool *t) {
    json_t *all = json_array();
    const char *path;
    if (bench_baseline_path(t, "x", &path) != 0) return all;
    const char *directory = rt_cache_dir(t->ctx->cache);
    fu_vec(json_t *) found = {0};
    DIR *dir = opendir(directory);
    for (struct dirent *f; dir && (f = readdir(dir)) != NULL;) {
        size_t n = strlen(f->d_name);
        if (n <= 11 || strncmp(f->d_name, "bench-", 6) != 0 || strcmp(f->d_name + n - 5, ".json") != 0) continue;
        json_t *d = json_load_file(fu_format(&t->arena, "%s/%s", directory, f->d_name), 0, NULL);
        if (d && !problem(d)) {
            (void)json_object_set_new(d, "name",
                                      json_string(fu_utf8(&t->arena, fu_strndup(&t->arena, f->d_name + 6, n - 11))));
            fu_push(&t->arena, &found, d);
        } else json_decref(d);
    }
    if (dir) (void)closedir(dir);
    if (found.n) qsort(found.at, found.n, sizeof *found.at, by_date);
    for (uint32_t i = 0; i < found.n; i++) (void)json_array_append_new(all, found.at[i]);
    return all;
}
