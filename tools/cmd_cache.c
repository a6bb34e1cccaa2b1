/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cmd_cache.c: fusor cache. Looks at the directory of compiled kernels, and tidies it. cache_entries.c reads it,
 * cmd_cache_warm.c has the two actions that need a program, cmd_cache_disasm.c the one that needs LLVM. */
#include "cache_entries.h"
#include "base/file.h"
#include "rt/cache.h"
#include "rt/cache_entry.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* ---- list ---- */
static const char *sort_field;
#define MORE_FIRST(field) ((a->field < b->field) - (a->field > b->field))
static int by_field(const void *pa, const void *pb) {
    const cache_entry *a = pa, *b = pb;
    const char *f = sort_field ? sort_field : "key";
    int order = strcmp(f, "size") == 0                                   ? MORE_FIRST(file_bytes)
                : strcmp(f, "age") == 0                                  ? MORE_FIRST(used_s)
                : strcmp(f, "hits") == 0                                 ? MORE_FIRST(hits)
                : strcmp(f, "compile") == 0                              ? MORE_FIRST(compile_ns)
                : strcmp(f, "key") == 0                                  ? 0
                : strcmp(f, "kind") == 0                                 ? strcmp(a->kind, b->kind)
                : strcmp(f, "symbol") == 0 || strcmp(f, "function") == 0 ? strcmp(a->symbol, b->symbol)
                                                                         : strcmp(a->level, b->level);
    return order ? order : strcmp(a->key, b->key);
}

/* The table, with the first line bold and the lines of bad entries red where stdout is a terminal (or
 * --color=always). */
static void print_table(tool *t, report_table *table) {
    const char *no_color = getenv("NO_COLOR");
    bool color = t->color && strcmp(t->color, "always") == 0;
    if (!t->color || strcmp(t->color, "auto") == 0) color = isatty(1) && !(no_color && *no_color);
    char *text = NULL;
    size_t n = 0;
    FILE *out = color ? open_memstream(&text, &n) : NULL;
    report_table_print(table, out ? out : stdout);
    if (!out) return;
    fclose(out);
    for (const char *line = text; line && *line;) {
        size_t length = strcspn(line, "\n");
        bool is_bad = memmem(line, length, "BAD: ", 5) != NULL,
             is_other = memmem(line, length, "(another build)", 15) != NULL;
        printf("%s%.*s\033[0m\n",
               line == text ? "\033[1m"
               : is_bad     ? "\033[31m"
               : is_other   ? "\033[2m"
                            : "",
               (int)length, line);
        line += length + (line[length] == '\n');
    }
    free(text);
}

static int list(tool *t, const char *dir) {
    static const char *const fields[] = {"key",   "function", "symbol",  "kind", "target",
                                         "level", "size",     "compile", "hits", "age"};
    enum { N_FIELDS = sizeof fields / sizeof *fields };
    cache_entries all = {0};
    bool known = !t->sort;
    for (int i = 0; i < N_FIELDS; i++) known |= t->sort && strcmp(t->sort, fields[i]) == 0;
    if (!known)
        return tool_usage(t, "--sort %s: expected key, function, kind, target, size, compile, hits or age%s", t->sort,
                          tool_suggest(t, t->sort, fields, N_FIELDS, ""));
    int status = cache_read(t, dir, false, &all);
    if (status) return status;
    sort_field = t->sort;
    if (all.n) qsort(all.at, all.n, sizeof *all.at, by_field);
    if (t->json) {
        json_t *d = report_new("fusor-cache-list/1"), *a = json_array();
        for (uint32_t i = 0; i < all.n; i++) (void)json_array_append_new(a, cache_entry_json(&all.at[i]));
        (void)json_object_set_new(d, "directory", json_string(fu_utf8(&t->arena, dir)));
        (void)json_object_set_new(d, "entries", a);
        return report_print(t, d);
    }
    report_table table = {.t = t, .columns = 9, .left_mask = 1 | 2 | 4 | 8 | 256};
    report_row(&table, "key", "kind", "shape", "target", "size", "compile", "hits", "used", "function");
    for (uint32_t i = 0; i < all.n; i++) {
        const cache_entry *e = &all.at[i];
        report_row(&table, fu_strndup(&t->arena, e->key, 12), e->kind, e->shape, e->level,
                   report_bytes(t, (double)e->file_bytes), report_ns(t, (double)e->compile_ns),
                   fu_format(&t->arena, "%" PRId64, e->hits), cache_age(t, e->used_s),
                   e->problem ? fu_format(&t->arena, "BAD: %s", e->problem)
                              : fu_format(&t->arena, "%s%s", e->symbol, e->is_of_this_build ? "" : " (another build)"));
    }
    if (all.n) print_table(t, &table);
    return 0;
}

/* ---- show ---- */
static bool is_of(const cache_cubin *c, const cache_entry *e) {
    return strncmp(c->file, e->file, strcspn(e->file, ".")) == 0;
}

static const char *date(tool *t, int64_t s) {
    char text[64] = "";
    time_t when = (time_t)s;
    struct tm tm;
    if (localtime_r(&when, &tm)) (void)strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &tm);
    return fu_strdup(&t->arena, text);
}

static int show(tool *t, const char *dir) {
    const cache_entry *e;
    cache_cubins cubins = {0};
    int status = cache_find_key(t, dir, &e);
    if (!status && e->is_gpu) status = cache_read_cubins(t, dir, &cubins);
    if (status) return status;
    if (t->json) {
        json_t *d = report_new("fusor-cache-show/1");
        (void)json_object_update_new(d, cache_entry_json(e));
        (void)json_object_set_new(d, "checksum", e->checksum[0] ? json_string(e->checksum) : json_null());
        (void)json_object_set_new(d, "features", json_string(e->features));
        (void)json_object_set_new(d, "has_lines", json_boolean(e->lines_bytes > 0));
        (void)json_object_set_new(d, "description", json_string(e->description));
        json_t *list = json_array();
        for (uint32_t i = 0; i < cubins.n; i++)
            if (strcmp(cubins.at[i].key, e->key) == 0)
                (void)json_array_append_new(
                    list, json_pack("{s:s, s:i, s:i, s:s, s:I, s:s?}", "file", cubins.at[i].file, "cc", cubins.at[i].cc,
                                    "driver_version", cubins.at[i].driver_version, "driver", cubins.at[i].driver,
                                    "bytes", (json_int_t)cubins.at[i].cubin_bytes, "problem", cubins.at[i].problem));
        (void)json_object_set_new(d, "cubins", list);
        const int printed = report_print(t, d);
        return printed ? printed : e->problem ? EXIT_NO : 0;
    }
    printf("key        %s\nsymbol     %s\ntarget     %s\nfeatures   %s\nbuild      %s%s\nfile       %s/%s, %" PRIu64
           " bytes\n",
           e->key, e->symbol, e->level, e->features, e->build_id,
           e->is_of_this_build ? " (this one)" : " (another one)", dir, e->file, e->file_bytes);
    for (uint32_t i = 0; i < cubins.n; i++)
        if (strcmp(cubins.at[i].key, e->key) == 0)
            printf("cubin      %s: %s\n", cubins.at[i].file,
                   cubins.at[i].problem
                       ? cubins.at[i].problem
                       : fu_format(&t->arena, "%" PRIu64 " bytes for compute capability %d.%d by driver %d.%d %s",
                                   cubins.at[i].cubin_bytes, cubins.at[i].cc / 10, cubins.at[i].cc % 10,
                                   cubins.at[i].driver_version / 1000, cubins.at[i].driver_version % 1000 / 10,
                                   cubins.at[i].driver));
    printf("code       %" PRIu64 " bytes of %" PRIu64 ", line table: %s\ncompiled   in %s, %s\nused       %s, %" PRId64
           " loads\nchecksum   %s%s%s\n\n%s",
           e->code_bytes, e->blob_bytes,
           e->is_gpu        ? "none for a GPU"
           : e->lines_bytes ? "yes"
                            : "no (FUSOR_GDB=1 or FUSOR_PERF=jitdump makes one)",
           report_ns(t, (double)e->compile_ns), date(t, e->created_s), cache_age(t, e->used_s), e->hits, e->checksum,
           e->checksum[0] ? ", " : "", e->problem ? e->problem : "good", e->description);
    return e->problem ? EXIT_NO : 0;
}

/* All that --filter takes: entries, and what drivers made of them. */
static int read_both(tool *t, const char *dir, cache_entries *all, cache_cubins *cubins) {
    int status = cache_read(t, dir, false, all);
    if (!status) status = cache_read_cubins(t, dir, cubins);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < cubins->n; i++) {
        bool is_kept = !t->filter;
        for (uint32_t k = 0; k < all->n && !is_kept; k++) is_kept = is_of(&cubins->at[i], &all->at[k]);
        if (is_kept) cubins->at[kept++] = cubins->at[i];
    }
    cubins->n = kept;
    return status;
}

/* Whether the bad file could be quarantined; if not, the report says why. */
static bool set_aside(tool *t, const char *dir, const char *file, const char *problem, json_t *list) {
    fu_error e;
    fu_error_clear(&e);
    const char *why = tool_cache_is_read_only(t)                       ? "the cache is read-only"
                      : rt_cache_quarantine(&e, dir, file) != FUSOR_OK ? e.text
                                                                       : NULL;
    if (!t->json) printf("%s: %s%s%s\n", file, problem, why ? "; not quarantined: " : "", why ? why : "");
    (void)json_array_append_new(
        list, json_pack("{s:s, s:s, s:s?}", "file", file, "problem", problem, "not_quarantined", why));
    return !why;
}

static int verify(tool *t, const char *dir) {
    cache_entries all = {0};
    cache_cubins cubins = {0};
    int bad = 0, left = 0, status = read_both(t, dir, &all, &cubins);
    if (status) return status;
    json_t *list = json_array();
    for (uint32_t i = 0; i < all.n + cubins.n; i++) {
        const char *problem = i < all.n ? all.at[i].problem : cubins.at[i - all.n].problem;
        const char *file = i < all.n ? all.at[i].file : cubins.at[i - all.n].file;
        if (!problem) continue;
        if (i < all.n ? all.at[i].is_unread : cubins.at[i - all.n].is_unread) {
            status = tool_environment(t, "%s/%s: %s", dir, file, problem);
            continue;
        }
        bad++;
        left += !set_aside(t, dir, file, problem, list);
    }
    if (t->json) {
        json_t *d = report_new("fusor-cache-verify/1");
        (void)json_object_set_new(d, "entries", json_integer(all.n));
        (void)json_object_set_new(d, "cubins", json_integer(cubins.n));
        (void)json_object_set(d, "bad", list);
        int printed = report_print(t, d);
        if (!status) status = printed;
    } else if (!t->quiet) {
        printf("%u entries%s, %d bad%s\n", all.n, cubins.n ? fu_format(&t->arena, " and %u cubins", cubins.n) : "", bad,
               !bad                         ? ""
               : tool_cache_is_read_only(t) ? " (left where they are: the cache is read-only)"
               : left == bad                ? " (not quarantined)"
               : left                       ? fu_format(&t->arena, " (%d of them not quarantined)", left)
                                            : " (quarantined)");
    }
    json_decref(list);
    return status ? status : bad ? EXIT_NO : 0;
}

static bool parse_age(const char *text, int64_t *out) {
    char *end;
    double v = strtod(text, &end);
    double unit = *end == 'd' || !*end ? 86400
                  : *end == 'h'        ? 3600
                  : *end == 'm'        ? 60
                  : *end == 's'        ? 1
                  : *end == 'w'        ? 604800
                                       : 0;
    if (end == text || !(v >= 0 && v < 1e6) || unit == 0 || (*end && end[1])) return false;
    *out = (int64_t)(v * unit);
    return true;
}

static int oldest_first(const void *pa, const void *pb) {
    const cache_entry *a = pa, *b = pb;
    return a->used_s != b->used_s ? (a->used_s > b->used_s) - (a->used_s < b->used_s) : strcmp(a->file, b->file);
}

static int remove_file(tool *t, const char *dir, const char *file) {
    const char *whole = fu_format(&t->arena, "%s/%s", dir, file);
    if (t->dry_run || unlink(whole) == 0 || errno == ENOENT) return 0;
    return tool_environment(t, "%s: cannot delete: %s", whole, strerror(errno));
}

/* Of what --filter takes, as if nothing else were there. max_size 0: all of it. */
static int prune_filtered(tool *t, const char *dir, int64_t max_size, int64_t max_age, int64_t *n, int64_t *bytes) {
    cache_entries all = {0};
    cache_cubins cubins = {0};
    int64_t total = 0, now = (int64_t)time(NULL);
    int status = read_both(t, dir, &all, &cubins);
    for (uint32_t i = 0; i < all.n; i++) total += (int64_t)all.at[i].file_bytes;
    for (uint32_t i = 0; i < cubins.n; i++) total += (int64_t)cubins.at[i].file_bytes;
    if (all.n) qsort(all.at, all.n, sizeof *all.at, oldest_first);
    for (uint32_t i = 0; i < all.n && !status; i++) {
        const bool is_old = max_age > 0 && now - all.at[i].used_s > max_age;
        if (!is_old && max_size > 0 && total - *bytes <= max_size) continue;
        if ((status = remove_file(t, dir, all.at[i].file)) != 0) break;
        ++*n;
        *bytes += (int64_t)all.at[i].file_bytes;
        for (uint32_t k = 0; k < cubins.n && !status; k++) {
            if (!is_of(&cubins.at[k], &all.at[i])) continue;
            status = remove_file(t, dir, cubins.at[k].file);
            if (!status) *bytes += (int64_t)cubins.at[k].file_bytes;
        }
    }
    return status;
}

static int prune(tool *t, const char *dir, bool is_clear) {
    int64_t max_age = 0, max_size = INT64_MAX, n = 0, bytes = 0;
    fu_error e;
    fu_error_clear(&e);
    if (is_clear) max_size = 0;
    else {
        if (!t->max_size && !t->max_age)
            return tool_usage(t, "cache prune: give --max-size or --max-age%s",
                              t->filter ? " (cache clear deletes all that --filter takes)" : "");
        if (t->max_size && !tool_parse_size(t->max_size, 1024, &max_size))
            return tool_usage(t, "--max-size %s: expected a size like 512M", t->max_size);
        if (t->max_age && (!parse_age(t->max_age, &max_age) || max_age == 0))
            return tool_usage(t, "--max-age %s: expected an age like 30d, 12h or 5m", t->max_age);
    }
    if (t->filter) {
        const int status = prune_filtered(t, dir, max_size, max_age, &n, &bytes);
        if (status) return status;
    } else if (access(dir, F_OK) == 0 &&
               rt_cache_prune(&e, dir, is_clear || t->max_size ? (uint64_t)max_size : UINT64_MAX, max_age, t->dry_run,
                              &n, &bytes) != FUSOR_OK)
        return tool_fail(t, &e);
    int64_t gone; /* temporary files, locks and counters too */
    if (is_clear && !t->filter && !t->dry_run && access(dir, F_OK) == 0 && rt_cache_clear(&e, dir, &gone) != FUSOR_OK)
        return tool_fail(t, &e);
    if (t->json) {
        json_t *d = report_new(is_clear ? "fusor-cache-clear/1" : "fusor-cache-prune/1");
        (void)json_object_update_new(d, json_pack("{s:I, s:I, s:b}", "entries", (json_int_t)n, "bytes",
                                                  (json_int_t)bytes, "dry_run", t->dry_run));
        return report_print(t, d);
    }
    if (!t->quiet)
        printf("%s %" PRId64 " entr%s, %s\n", t->dry_run ? "would delete" : "deleted", n, n == 1 ? "y" : "ies",
               report_bytes(t, (double)bytes));
    return 0;
}

static int stats(tool *t, const char *dir) {
    cache_entries all = {0};
    cache_cubins cubins = {0};
    fu_error e;
    fu_error_clear(&e);
    double bytes = 0, code = 0, compile = 0, cubin_bytes = 0;
    int bad = 0, other = 0, status;
    rt_cache_stats s = {0};
    int64_t since = 0;
    bool is_there = access(dir, F_OK) == 0;
    if (t->zero && is_there && rt_cache_zero_totals(&e, dir) != FUSOR_OK) return tool_fail(t, &e);
    if ((status = read_both(t, dir, &all, &cubins)) != 0) return status;
    if (is_there && rt_cache_read_totals(&e, dir, &s, &since) != FUSOR_OK) return tool_fail(t, &e);
    int64_t n_aside = 0, aside_bytes = 0;
    if (is_there && rt_cache_count_quarantined(&e, dir, &n_aside, &aside_bytes) != FUSOR_OK) return tool_fail(t, &e);
    for (uint32_t i = 0; i < all.n; i++) {
        bytes += (double)all.at[i].file_bytes;
        code += (double)all.at[i].code_bytes;
        compile += (double)all.at[i].compile_ns;
        bad += all.at[i].problem != NULL;
        other += !all.at[i].problem && !all.at[i].is_of_this_build;
    }
    for (uint32_t i = 0; i < cubins.n; i++) cubin_bytes += (double)cubins.at[i].file_bytes;
    if (t->json) {
        json_t *d = report_new("fusor-cache-stats/1"), *reasons = json_object();
        for (int i = 0; i < RT_MISS_COUNT; i++)
            (void)json_object_set_new(reasons, rt_miss_reason_names[i], json_integer(s.miss[i]));
        (void)json_object_update_new(d, json_pack("{s:s, s:i, s:I, s:I, s:I, s:i, s:i}", "directory",
                                                  fu_utf8(&t->arena, dir), "entries", (int)all.n, "bytes",
                                                  (json_int_t)bytes, "code_bytes", (json_int_t)code, "compile_ns",
                                                  (json_int_t)compile, "bad", bad, "other_builds", other));
        (void)json_object_update_new(d, json_pack("{s:I, s:I, s:i, s:I}", "quarantined", (json_int_t)n_aside,
                                                  "quarantined_bytes", (json_int_t)aside_bytes, "cubins", (int)cubins.n,
                                                  "cubin_bytes", (json_int_t)cubin_bytes));
        (void)json_object_update_new(
            d, json_pack("{s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I}", "since", (json_int_t)since,
                         "memory_hits", (json_int_t)s.memory_hits, "hits", (json_int_t)s.disk_hits, "misses",
                         (json_int_t)s.misses, "misses_by_reason", reasons, "compiles", (json_int_t)s.compiles,
                         "failures", (json_int_t)s.failures, "written", (json_int_t)s.written, "evicted",
                         (json_int_t)s.evicted, "load_ns", (json_int_t)s.load_ns, "saved_ns", (json_int_t)s.saved_ns));
        return report_print(t, d);
    }
    printf("directory     %s\nentries       %u (%d of other builds, %d bad)\nbytes         %s, %s of them "
           "code\ncompile time  %s in these entries\n",
           dir, all.n, other, bad, report_bytes(t, bytes), report_bytes(t, code), report_ns(t, compile));
    if (cubins.n) printf("cubins        %u, made of PTX by drivers, %s\n", cubins.n, report_bytes(t, cubin_bytes));
    if (n_aside)
        printf("set aside     %" PRId64 " bad entr%s, %s (cache prune and clear remove them)\n", n_aside,
               n_aside == 1 ? "y" : "ies", report_bytes(t, (double)aside_bytes));
    printf("counted       %s%s\nhits          %" PRId64 " from disk (%s each), %" PRId64
           " from memory\nmisses        %" PRId64,
           since ? "since " : "nothing yet", since ? date(t, since) : "", s.disk_hits,
           report_ns(t, s.disk_hits ? (double)s.load_ns / (double)s.disk_hits : 0), s.memory_hits, s.misses);
    for (int i = 0, n = 0; i < RT_MISS_COUNT; i++)
        if (s.miss[i]) printf("%s%" PRId64 " %s", n++ ? ", " : ": ", s.miss[i], rt_miss_reason_names[i]);
    printf("\ncompiled      %" PRId64 " kernels in %s, %" PRId64 " failed; %" PRId64 " written, %" PRId64
           " evicted, %" PRId64 " bad entries met\ntime saved    %s\n",
           s.compiles, report_ns(t, (double)s.compile_ns), s.failures, s.written, s.evicted, s.bad_entries,
           report_ns(t, (double)s.saved_ns));
    return 0;
}

static int path(tool *t, const char *dir) {
    if (!t->json) return printf("%s\n", dir) < 0 ? report_flush(t) : 0;
    json_t *d = report_new("fusor-cache-path/1");
    (void)json_object_set_new(d, "directory", json_string(fu_utf8(&t->arena, dir)));
    (void)json_object_set_new(d, "exists", json_boolean(access(dir, F_OK) == 0));
    return report_print(t, d);
}

static fusor_status export_filtered(tool *t, fu_error *e, const cache_entries *all, const char *dir, const char *bundle,
                                    int64_t *n) {
    uint8_t(*keys)[IR_KEY_BYTES] = fu_alloc(&t->arena, (all->n + 1) * sizeof *keys);
    for (uint32_t i = 0; i < all->n; i++) rt_key_read(all->at[i].file, keys[i]);
    return rt_cache_export_keys(e, dir, (const uint8_t(*)[IR_KEY_BYTES])(const void *)keys, all->n, bundle, n);
}

static int copy(tool *t, const char *dir, bool is_export) {
    cache_entries all = {0};
    fu_error e;
    int64_t n = 0;
    fu_error_clear(&e);
    if (t->args.n + (is_export ? t->outputs.n : 0) != 2)
        return tool_usage(t, "cache %s: expected one bundle file", t->args.at[0]);
    const char *bundle = t->args.n == 2 ? t->args.at[1] : t->outputs.at[0];
    int usage = tool_no_stdout(t, is_export ? "cache export" : "cache import", bundle);
    if (!usage && t->filter) usage = cache_read(t, dir, false, &all);
    if (usage) return usage;
    fusor_status status = t->filter   ? export_filtered(t, &e, &all, dir, bundle, &n)
                          : is_export ? rt_cache_export(&e, dir, bundle, &n)
                                      : rt_cache_import(&e, bundle, dir, &n);
    if (status != FUSOR_OK) return tool_fail(t, &e);
    if (t->json) {
        json_t *d = report_new(is_export ? "fusor-cache-export/1" : "fusor-cache-import/1");
        (void)json_object_update_new(d, json_pack("{s:s, s:s, s:I}", "directory", fu_utf8(&t->arena, dir), "bundle",
                                                  fu_utf8(&t->arena, bundle), "entries", (json_int_t)n));
        return report_print(t, d);
    }
    if (!t->quiet) printf("%" PRId64 " entries %s %s\n", n, is_export ? "written to" : "read from", bundle);
    return 0;
}

static const char *const actions[] = {"list",  "show", "disasm", "verify", "prune",  "clear",
                                      "stats", "path", "why",    "warm",   "export", "import"};
enum { LIST, SHOW, DISASM, VERIFY, PRUNE, CLEAR, STATS, PATH, WHY, WARM, EXPORT, IMPORT, N_ACTIONS };

/* Those of `fusor cache` that an action would ignore. */
static int check_options(tool *t, int action) {
#define A(x) (1u << (x))
    const struct {
        bool is_given;
        const char *name;
        unsigned takers;
    } rows[] = {
        {t->text != NULL, "-e", A(WHY) | A(WARM)},
        {t->dims.n > 0, "--dim", A(WHY) | A(WARM)},
        {t->outputs.n > 0, "-o", A(WARM) | A(EXPORT)},
        {t->target != NULL, "--target", A(WHY) | A(WARM)},
        {t->math != NULL, "--math", A(WHY) | A(WARM)},
        {t->no_fuse, "--no-fuse", A(WHY) | A(WARM)},
        {t->filter != NULL, "--filter",
         A(LIST) | A(SHOW) | A(DISASM) | A(VERIFY) | A(PRUNE) | A(CLEAR) | A(STATS) | A(EXPORT)},
        {t->sort != NULL, "--sort", A(LIST)},
        {t->max_size != NULL, "--max-size", A(PRUNE)},
        {t->max_age != NULL, "--max-age", A(PRUNE)},
        {t->dry_run, "--dry-run", A(PRUNE) | A(CLEAR)},
        {t->zero, "--zero", A(STATS)},
    };
#undef A
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].is_given || rows[i].takers >> action & 1) continue;
        fu_str names;
        fu_str_init(&names, &t->arena);
        for (int k = 0; k < N_ACTIONS; k++)
            if (rows[i].takers >> k & 1) fu_str_addf(&names, "%s%s", names.n ? ", " : "", actions[k]);
        return tool_usage(t, "'cache %s' takes no %s, which is for cache %s", actions[action], rows[i].name, names.at);
    }
    return 0;
}

int cmd_cache(tool *t) {
    char dir[4096];
    int action = -1, status;
    if (t->args.n == 0)
        return tool_usage(
            t, "cache: expected list, show, disasm, why, verify, prune, clear, stats, path, warm, export or import");
    for (int i = 0; i < N_ACTIONS; i++)
        if (strcmp(t->args.at[0], actions[i]) == 0) action = i;
    if (action < 0)
        return tool_usage(t, "unknown action 'cache %s'%s", t->args.at[0],
                          tool_suggest(t, t->args.at[0], actions, N_ACTIONS, ""));
    if ((status = check_options(t, action)) != 0) return status;
    const bool is_write =
        action == PRUNE || action == CLEAR || action == IMPORT || action == WARM || (action == STATS && t->zero);
    if (is_write && !t->dry_run && tool_cache_is_read_only(t))
        return tool_usage(t, "%s%s: 'cache %s' changes the directory; expected rw",
                          t->cache ? "--cache " : "FUSOR_CACHE=", tool_cache_mode(t), actions[action]);
    if (action == WARM) return cache_warm(t);
    if (action == WHY) return cache_why(t);
    if ((status = cache_directory(t, dir, sizeof dir)) != 0) return status;
    if (t->args.n > 1 && (action == LIST || action >= VERIFY) && action < WHY)
        return tool_usage(t, "argument '%s' was not expected", t->args.at[1]);
    switch (action) {
    case LIST: return list(t, dir);
    case SHOW: return show(t, dir);
    case DISASM: return cache_disasm(t, dir);
    case VERIFY: return verify(t, dir);
    case PRUNE: return prune(t, dir, false);
    case CLEAR: return prune(t, dir, true);
    case STATS: return stats(t, dir);
    case PATH: return path(t, dir);
    case EXPORT: return copy(t, dir, true);
    default: return copy(t, dir, false);
    }
}
