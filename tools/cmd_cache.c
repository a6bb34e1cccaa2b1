/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cmd_cache.c: fusor cache. Looks at the directory of compiled kernels, and tidies it. */
#include "inputs.h"
#include "report.h"
#include "base/file.h"
#include "ir/codegen_api.h"
#include "rt/module.h"
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef struct entry {
    const char *file, *key, *symbol, *level, *features, *build_id, *description, *problem, *kind;
    uint64_t file_bytes, blob_bytes, code_bytes, start;
    const void *blob;
    int64_t compile_ns, created_s, used_s;
    bool is_of_this_build;
} entry;
typedef fu_vec(entry) entries;
typedef struct listing { tool *t; entries *all; } listing;

static bool visit(void *user, const rt_cache_entry *x) {
    listing *l = user;
    fu_arena *a = &l->t->arena;
    const char *description = fu_strdup(a, x->description ? x->description : "");
    const char *symbol = fu_strdup(a, x->symbol ? x->symbol : "");
    /* The kind is the second part of every symbol: fk_<kind>_... */
    const char *kind = strncmp(symbol, "fk_", 3) == 0 ? fu_strndup(a, symbol + 3, strcspn(symbol + 3, "_")) : "?";
    entry e = {fu_strdup(a, x->file), fu_strdup(a, x->key), symbol, fu_strdup(a, x->level ? x->level : ""), fu_strdup(a, x->features ? x->features : ""),
               fu_strdup(a, x->build_id ? x->build_id : ""), description, x->problem ? fu_strdup(a, x->problem) : NULL, kind, x->file_bytes, x->blob_bytes,
               x->code_bytes, x->entry, !x->problem && x->blob && l->t->args.n > 1 ? fu_dup(a, x->blob, x->blob_bytes) : NULL, x->compile_ns, x->created_s,
               x->used_s, x->is_of_this_build};
    if (!l->t->filter || strstr(symbol, l->t->filter) || strstr(e.key, l->t->filter) || strstr(description, l->t->filter)) fu_push(a, l->all, e);
    return true;
}

static int directory(tool *t, char *path, size_t room) {
    if (rt_cache_find_dir(t->cache_dir, false, path, room) && path[0]) return 0;
    return tool_environment(t, "there is no cache directory; give --cache-dir, or set FUSOR_CACHE_DIR or HOME");
}

/* A directory that is not there yet holds no entries. */
static int read_entries(tool *t, const char *dir, entries *out) {
    fu_error e;
    fu_error_clear(&e);
    listing l = {t, out};
    if (access(dir, F_OK) != 0) return 0;
    return rt_cache_list(&e, dir, visit, &l) == FUSOR_OK ? 0 : tool_fail(t, &e);
}

static const char *sort_field;
static int by_field(const void *pa, const void *pb) {
    const entry *a = pa, *b = pb;
    if (sort_field && strcmp(sort_field, "size") == 0) return (a->file_bytes < b->file_bytes) - (a->file_bytes > b->file_bytes);
    if (sort_field && strcmp(sort_field, "age") == 0) return (a->used_s < b->used_s) - (a->used_s > b->used_s);
    if (sort_field && strcmp(sort_field, "kind") == 0) return strcmp(a->symbol, b->symbol);
    if (sort_field && strcmp(sort_field, "level") == 0) return strcmp(a->level, b->level);
    return strcmp(a->key, b->key);
}

static const char *age(tool *t, int64_t since) {
    int64_t s = (int64_t)time(NULL) - since;
    if (s < 60) return "now";
    return s < 3600 ? fu_format(&t->arena, "%" PRId64 "m", s / 60) : s < 86400 ? fu_format(&t->arena, "%" PRId64 "h", s / 3600)
                                                                 : fu_format(&t->arena, "%" PRId64 "d", s / 86400);
}

static json_t *json_entry(const entry *e) {
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:s?}", "key", e->key, "symbol", e->symbol, "kind", e->kind, "target", e->level,
                     "build_id", e->build_id, "bytes", (json_int_t)e->file_bytes, "code_bytes", (json_int_t)e->code_bytes, "compile_ns", (json_int_t)e->compile_ns,
                     "created", (json_int_t)e->created_s, "used", (json_int_t)e->used_s, "this_build", e->is_of_this_build, "problem", e->problem);
}

static int list(tool *t, const char *dir) {
    static const char *const fields[] = {"key", "size", "age", "kind", "level"};
    entries all = {0};
    bool known = !t->sort;
    for (int i = 0; i < 5; i++) known |= t->sort && strcmp(t->sort, fields[i]) == 0;
    if (!known) return tool_usage(t, "--sort %s: expected key, size, age, kind or level%s", t->sort, tool_suggest(t, t->sort, fields, 5, ""));
    int status = read_entries(t, dir, &all);
    if (status) return status;
    sort_field = t->sort;
    if (all.n) qsort(all.at, all.n, sizeof *all.at, by_field);
    if (t->json) {
        json_t *d = report_new("fusor-cache-list/1"), *a = json_array();
        for (uint32_t i = 0; i < all.n; i++) (void)json_array_append_new(a, json_entry(&all.at[i]));
        (void)json_object_set_new(d, "directory", json_string(dir));
        (void)json_object_set_new(d, "entries", a);
        return report_print(t, d);
    }
    report_table table = {.t = t, .columns = 7, .left_mask = 1 | 2 | 4 | 64};
    report_row(&table, "key", "kind", "target", "size", "compile", "used", "symbol");
    for (uint32_t i = 0; i < all.n; i++) {
        const entry *e = &all.at[i];
        report_row(&table, fu_strndup(&t->arena, e->key, 12), e->kind, e->level, report_bytes(t, (double)e->file_bytes), report_ns(t, (double)e->compile_ns),
                   age(t, e->used_s), e->problem ? fu_format(&t->arena, "BAD: %s", e->problem) : fu_format(&t->arena, "%s%s", e->symbol, e->is_of_this_build ? "" : " (another build)"));
    }
    if (all.n) report_table_print(&table, stdout);
    return 0;
}

static int find_key(tool *t, const char *dir, const entry **out) {
    entries all = {0};
    const entry *found = NULL;
    if (t->args.n != 2) return tool_usage(t, "cache %s: expected one KEY (see fusor cache list)", t->args.at[0]);
    const char *key = t->args.at[1];
    int status = read_entries(t, dir, &all);
    if (status) return status;
    for (uint32_t i = 0; i < all.n; i++) {
        if (strncmp(all.at[i].key, key, strlen(key)) != 0) continue;
        if (found) return tool_usage(t, "key '%s' is not unique: %.16s... and %.16s... start so", key, found->key, all.at[i].key);
        found = &all.at[i];
    }
    if (!found) return tool_usage(t, "no entry in %s has a key that starts with '%s'", dir, key);
    *out = found;
    return 0;
}

static int show(tool *t, const char *dir) {
    const entry *e;
    int status = find_key(t, dir, &e);
    if (status) return status;
    if (t->json) {
        json_t *d = report_new("fusor-cache-show/1");
        (void)json_object_update_new(d, json_entry(e));
        (void)json_object_set_new(d, "features", json_string(e->features));
        (void)json_object_set_new(d, "description", json_string(e->description));
        return report_print(t, d);
    }
    printf("key        %s\nsymbol     %s\ntarget     %s\nfeatures   %s\nbuild      %s%s\nfile       %s/%s, %" PRIu64 " bytes\n", e->key, e->symbol, e->level,
           e->features, e->build_id, e->is_of_this_build ? " (this one)" : " (another one)", dir, e->file, e->file_bytes);
    printf("code       %" PRIu64 " bytes of %" PRIu64 "\ncompiled   in %s\nused       %s\nchecksum   %s\n\n%s", e->code_bytes, e->blob_bytes,
           report_ns(t, (double)e->compile_ns), age(t, e->used_s), e->problem ? e->problem : "good", e->description);
    return 0;
}

static void *allocate(void *user, size_t bytes) {
    (void)user;
    return malloc(bytes ? bytes : 1);
}

static int disassemble(tool *t, const char *dir) {
    const entry *e;
    const fusor_codegen_table *module;
    fu_error error;
    fu_error_clear(&error);
    int status = find_key(t, dir, &e);
    if (status) return status;
    if (e->problem) return tool_environment(t, "entry %s is bad: %s", e->key, e->problem);
    if (rt_module_get(&error, &module) != FUSOR_OK) return tool_fail(t, &error);
    fusor_codegen_request request = {.version = FUSOR_CODEGEN_VERSION, .stage = FUSOR_CODEGEN_DISASM, .description = e->description,
                                     .description_bytes = strlen(e->description), .symbol = e->symbol, .blob = e->blob, .blob_bytes = e->code_bytes + e->start <= e->blob_bytes && e->code_bytes ? e->code_bytes + e->start : e->blob_bytes,
                                     .allocate = allocate};
    fusor_codegen_result result = {0};
    if (module->generate(&request, &result) != 0) {
        free(result.data);
        return tool_environment(t, "%s", result.error);
    }
    printf("# %s: %" PRIu64 " bytes of code\n", e->symbol, e->code_bytes);
    (void)fwrite(result.data, 1, result.bytes, stdout);
    free(result.data);
    return 0;
}

static int verify(tool *t, const char *dir) {
    entries all = {0};
    fu_error e;
    int bad = 0, status = read_entries(t, dir, &all);
    if (status) return status;
    for (uint32_t i = 0; i < all.n; i++) {
        if (!all.at[i].problem) continue;
        bad++;
        if (!t->json) printf("%s: %s\n", all.at[i].file, all.at[i].problem);
        fu_error_clear(&e);
        if (rt_cache_quarantine(&e, dir, all.at[i].file) != FUSOR_OK) status = tool_fail(t, &e);
    }
    if (t->json) {
        json_t *d = report_new("fusor-cache-verify/1"), *a = json_array();
        for (uint32_t i = 0; i < all.n; i++)
            if (all.at[i].problem) (void)json_array_append_new(a, json_pack("{s:s, s:s}", "file", all.at[i].file, "problem", all.at[i].problem));
        (void)json_object_set_new(d, "entries", json_integer(all.n));
        (void)json_object_set_new(d, "bad", a);
        int printed = report_print(t, d);
        if (!status) status = printed;
    } else if (!t->quiet) printf("%u entries, %d bad%s\n", all.n, bad, bad ? " (quarantined)" : "");
    return status ? status : bad ? EXIT_NO : 0;
}

static bool parse_age(const char *text, int64_t *out) {
    char *end;
    double v = strtod(text, &end);
    double unit = *end == 'd' || !*end ? 86400 : *end == 'h' ? 3600 : *end == 'm' ? 60 : *end == 's' ? 1 : *end == 'w' ? 604800 : 0;
    if (end == text || !(v >= 0 && v < 1e6) || unit == 0 || (*end && end[1])) return false;
    *out = (int64_t)(v * unit);
    return true;
}

static int prune(tool *t, const char *dir, bool is_clear) {
    int64_t max_age = 0, max_size = INT64_MAX, n = 0, bytes = 0;
    fu_error e;
    fu_error_clear(&e);
    if (!is_clear) {
        if (!t->max_size && !t->max_age) return tool_usage(t, "cache prune: give --max-size or --max-age");
        if (t->max_size && !tool_parse_size(t->max_size, 1024, &max_size)) return tool_usage(t, "--max-size %s: expected a size like 512M", t->max_size);
        if (t->max_age && (!parse_age(t->max_age, &max_age) || max_age == 0)) return tool_usage(t, "--max-age %s: expected an age like 30d, 12h or 5m", t->max_age);
    }
    if (access(dir, F_OK) == 0 && rt_cache_prune(&e, dir, is_clear ? 0 : t->max_size ? (uint64_t)max_size : UINT64_MAX, max_age, t->dry_run, &n, &bytes) != FUSOR_OK)
        return tool_fail(t, &e);
    if (t->json) {
        json_t *d = report_new(is_clear ? "fusor-cache-clear/1" : "fusor-cache-prune/1");
        (void)json_object_update_new(d, json_pack("{s:I, s:I, s:b}", "entries", (json_int_t)n, "bytes", (json_int_t)bytes, "dry_run", t->dry_run));
        return report_print(t, d);
    }
    if (!t->quiet) printf("%s %" PRId64 " entr%s, %s\n", t->dry_run ? "would delete" : "deleted", n, n == 1 ? "y" : "ies", report_bytes(t, (double)bytes));
    return 0;
}

static int stats(tool *t, const char *dir) {
    entries all = {0};
    double bytes = 0, code = 0, compile = 0;
    int bad = 0, other = 0, status;
    if (t->zero) return tool_usage(t, "cache stats -z: this version keeps no counters across processes; nothing to zero");
    if ((status = read_entries(t, dir, &all)) != 0) return status;
    for (uint32_t i = 0; i < all.n; i++) {
        bytes += (double)all.at[i].file_bytes;
        code += (double)all.at[i].code_bytes;
        compile += (double)all.at[i].compile_ns;
        bad += all.at[i].problem != NULL;
        other += !all.at[i].problem && !all.at[i].is_of_this_build;
    }
    if (t->json) {
        json_t *d = report_new("fusor-cache-stats/1");
        (void)json_object_update_new(d, json_pack("{s:s, s:i, s:I, s:I, s:I, s:i, s:i}", "directory", dir, "entries", (int)all.n, "bytes", (json_int_t)bytes, "code_bytes", (json_int_t)code,
                                                  "compile_ns", (json_int_t)compile, "bad", bad, "other_builds", other));
        return report_print(t, d);
    }
    printf("directory     %s\nentries       %u (%d of other builds, %d bad)\nbytes         %s, %s of them code\ncompile time  %s, saved at every warm start\n", dir, all.n,
           other, bad, report_bytes(t, bytes), report_bytes(t, code), report_ns(t, compile));
    return 0;
}

/* Makes the entries of a program without running it, for each target. */
static int warm_program(tool *t, const program *p, const char *targets, int *n_out) {
    fu_error e;
    for (const char *at = targets;;) {
        size_t n = strcspn(at, ",");
        const char *name = fu_strndup(&t->arena, at, n);
        for (uint32_t f = 0; f < p->module->functions.n; f++) {
            compile_request request = {.ctx = t->ctx, .name = p->name, .module = p->module, .function = p->module->functions.at[f]->name,
                                       .flags = t->no_fuse ? FUSOR_NO_FUSE : 0, .target = n ? name : NULL};
            ir_plan *plan;
            fu_error_clear(&e);
            if (compile_plan(&t->arena, &e, &request, &plan) != FUSOR_OK) return e.status == FUSOR_ERROR_ARGUMENT ? tool_usage(t, "%s", e.text) : tool_fail(t, &e);
            for (uint32_t i = 0; i < plan->steps.n; i++) {
                if (plan->steps.at[i].kind != IR_STEP_KERNEL) continue;
                if (rt_cache_get(t->ctx->cache, &e, plan->steps.at[i].kernel, NULL, NULL) != FUSOR_OK) return tool_fail(t, &e);
                ++*n_out;
            }
        }
        if (!at[n]) return 0;
        at += n + 1;
    }
}

static int warm(tool *t) {
    const char *targets = t->target ? t->target : "";
    int n = 0, status;
    fu_error e;
    fu_error_clear(&e);
    if (t->args.n < 2 && !t->text) return tool_usage(t, "cache warm: expected FILE ... or -e TEXT");
    t->target = NULL;               /* the context is the host's: nothing runs */
    if ((status = tool_context(t, 0)) != 0) return status;
    if (!rt_cache_dir(t->ctx->cache)[0]) return tool_environment(t, "there is no cache directory to warm");
    for (uint32_t i = t->text ? 0 : 1; i < (t->text ? 1 : t->args.n) && !status; i++) {
        program p;
        uint32_t used;
        status = t->text ? program_load(t, &p, &used) : program_read(t, t->args.at[i], &p);
        if (!status) status = warm_program(t, &p, targets, &n);
    }
    if (status) return status;
    if (t->outputs.n) {
        int64_t written = 0;
        if (rt_cache_export(&e, rt_cache_dir(t->ctx->cache), t->outputs.at[0], &written) != FUSOR_OK) return tool_fail(t, &e);
        if (!t->quiet) printf("%" PRId64 " entries in %s\n", written, t->outputs.at[0]);
    }
    if (!t->quiet) printf("%d kernel%s ready in %s\n", n, n == 1 ? "" : "s", rt_cache_dir(t->ctx->cache));
    return 0;
}

static int copy(tool *t, const char *dir, bool is_export) {
    fu_error e;
    int64_t n = 0;
    fu_error_clear(&e);
    if (t->args.n != 2) return tool_usage(t, "cache %s: expected one bundle file", t->args.at[0]);
    fusor_status status = is_export ? rt_cache_export(&e, dir, t->args.at[1], &n) : rt_cache_import(&e, t->args.at[1], dir, &n);
    if (status != FUSOR_OK) return tool_fail(t, &e);
    if (!t->quiet) printf("%" PRId64 " entries %s %s\n", n, is_export ? "written to" : "read from", t->args.at[1]);
    return 0;
}

int cmd_cache(tool *t) {
    static const char *const actions[] = {"list", "show", "disasm", "verify", "prune", "clear", "stats", "path", "warm", "export", "import"};
    enum { LIST, SHOW, DISASM, VERIFY, PRUNE, CLEAR, STATS, PATH, WARM, EXPORT, IMPORT, N_ACTIONS };
    char dir[4096];
    int action = -1, status;
    if (t->args.n == 0) return tool_usage(t, "cache: expected list, show, disasm, verify, prune, clear, stats, path, warm, export or import");
    for (int i = 0; i < N_ACTIONS; i++)
        if (strcmp(t->args.at[0], actions[i]) == 0) action = i;
    if (strcmp(t->args.at[0], "why") == 0) return tool_usage(t, "cache why: not in this version; 'fusor run --time' tells hit or miss, 'fusor cache list' what there is");
    if (action < 0) return tool_usage(t, "unknown action 'cache %s'%s", t->args.at[0], tool_suggest(t, t->args.at[0], actions, N_ACTIONS, ""));
    if (action == WARM) return warm(t);
    if ((status = directory(t, dir, sizeof dir)) != 0) return status;
    if (t->args.n > 1 && (action == LIST || action >= VERIFY) && action < WARM) return tool_usage(t, "argument '%s' was not expected", t->args.at[1]);
    switch (action) {
    case LIST: return list(t, dir);
    case SHOW: return show(t, dir);
    case DISASM: return disassemble(t, dir);
    case VERIFY: return verify(t, dir);
    case PRUNE: return prune(t, dir, false);
    case CLEAR: return prune(t, dir, true);
    case STATS: return stats(t, dir);
    case PATH: printf("%s\n", dir); return 0;
    case EXPORT: return copy(t, dir, true);
    default: return copy(t, dir, false);
    }
}
