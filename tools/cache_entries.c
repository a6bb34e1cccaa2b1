/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_entries.c: reads the cache directory for `fusor cache`: which directory, which entries, which one is meant. */
#include "cache_entries.h"
#include <errno.h>
#include <inttypes.h>
#include <time.h>
#include <unistd.h>

typedef struct listing {
    tool *t;
    bool with_code;
    cache_entries *all;
    cache_cubins *cubins;
} listing;

/* "m=? n=32 k=64" of a description's dim lines. */
static const char *shape_of(fu_arena *a, const char *description) {
    fu_str s;
    fu_str_init(&s, a);
    for (const char *line = description; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        char role;
        int at;
        if (sscanf(line, "dim %c %n", &role, &at) != 1) continue;
        fu_str_addf(&s, "%s%c=%.*s", s.n ? " " : "", role, (int)strcspn(line + at, " \n"), line + at);
    }
    return s.n ? s.at : "-";
}

static bool has(const char *text, const char *part) { return strstr(text, part) != NULL; }

enum { N_FIELDS = 6 };
static const char *const fields[N_FIELDS] = {"kind", "target", "function", "symbol", "key", "build"};

static bool is_wanted(const tool *t, const cache_entry *e) {
    const char *f = t->filter;
    if (!f) return true;
    const char *const values[] = {e->kind,   e->level, e->symbol,
                                  e->symbol, e->key,   e->is_of_this_build ? "this" : "other"};
    for (int i = 0; i < N_FIELDS; i++) {
        size_t n = strlen(fields[i]);
        if (strncmp(f, fields[i], n) == 0 && f[n] == '=') return has(values[i], f + n + 1);
    }
    return has(e->symbol, f) || has(e->key, f) || has(e->description, f);
}

/* A word before '=' must be a field; other text may be anything. */
static int check_filter(tool *t) {
    const size_t n = t->filter ? strspn(t->filter, "abcdefghijklmnopqrstuvwxyz_-") : 0;
    if (!n || t->filter[n] != '=') return 0;
    const char *word = fu_strndup(&t->arena, t->filter, n);
    for (int i = 0; i < N_FIELDS; i++)
        if (strcmp(word, fields[i]) == 0) return 0;
    return tool_usage(
        t, "--filter %s: expected kind=, target=, function=, key=, build=this or build=other, or just TEXT%s",
        t->filter, tool_suggest(t, word, fields, N_FIELDS, ""));
}

/* Of an entry, which may be damaged. */
static char *text_of(fu_arena *a, const char *from) {
    char *text = fu_strdup(a, from ? from : "");
    (void)fu_make_printable(text, true);
    return text;
}

static bool visit(void *user, const rt_cache_entry *x) {
    listing *l = user;
    fu_arena *a = &l->t->arena;
    cache_entry e = {.file = fu_strdup(a, x->file),
                     .key = fu_strdup(a, x->key),
                     .checksum = fu_strdup(a, x->checksum),
                     .symbol = text_of(a, x->symbol),
                     .level = text_of(a, x->level),
                     .features = text_of(a, x->features),
                     .build_id = text_of(a, x->build_id),
                     .description = text_of(a, x->description),
                     .problem = x->problem ? fu_strdup(a, x->problem) : NULL,
                     .is_unread = x->is_unread,
                     .file_bytes = x->file_bytes,
                     .blob_bytes = x->blob_bytes,
                     .code_bytes = x->code_bytes,
                     .start = x->entry,
                     .lines_bytes = x->lines_bytes,
                     .compile_ns = x->compile_ns,
                     .created_s = x->created_s,
                     .used_s = x->used_s,
                     .hits = x->hits,
                     .is_of_this_build = x->is_of_this_build};
    ir_target target;
    fu_error ignored;
    fu_error_clear(&ignored);
    e.is_gpu = ir_target_parse(&ignored, e.level, &target) == FUSOR_OK && ir_level_is_gpu(target.level);
    /* The kind is the second part of every symbol: fk_<kind>_... */
    e.kind = strncmp(e.symbol, "fk_", 3) == 0 ? fu_strndup(a, e.symbol + 3, strcspn(e.symbol + 3, "_")) : "?";
    e.shape = shape_of(a, e.description);
    if (l->with_code && !x->problem && x->blob) {
        e.blob = fu_dup(a, x->blob, x->blob_bytes);
        if (x->lines) e.lines = fu_dup(a, x->lines, x->lines_bytes);
    }
    if (is_wanted(l->t, &e)) fu_push(a, l->all, e);
    return true;
}

int cache_directory(tool *t, char *path, size_t room) {
    const int found = rt_cache_find_dir(t->cache_dir, false, path, room);
    if (!found) return 0;
    if (found == ENAMETOOLONG)
        return tool_environment(t, "cache directory: its name is longer than %zu bytes", room - 1);
    return tool_environment(t, "there is no cache directory; give --cache-dir, or set FUSOR_CACHE_DIR or HOME");
}

int cache_read(tool *t, const char *dir, bool with_code, cache_entries *out) {
    fu_error e;
    fu_error_clear(&e);
    listing l = {.t = t, .with_code = with_code, .all = out};
    const int status = check_filter(t);
    if (status) return status;
    if (access(dir, F_OK) != 0) return 0;
    return rt_cache_list(&e, dir, visit, &l) == FUSOR_OK ? 0 : tool_fail(t, &e);
}

static bool visit_cubin(void *user, const rt_cache_cubin *x) {
    listing *l = user;
    fu_arena *a = &l->t->arena;
    cache_cubin c = {.file = fu_strdup(a, x->file),
                     .key = fu_strdup(a, x->key),
                     .problem = x->problem ? fu_strdup(a, x->problem) : NULL,
                     .is_unread = x->is_unread,
                     .driver = fu_strdup(a, x->driver),
                     .file_bytes = x->file_bytes,
                     .cubin_bytes = x->cubin_bytes,
                     .cc = x->cc,
                     .driver_version = x->driver_version};
    fu_push(a, l->cubins, c);
    return true;
}

int cache_read_cubins(tool *t, const char *dir, cache_cubins *out) {
    fu_error e;
    fu_error_clear(&e);
    listing l = {.t = t, .cubins = out};
    if (access(dir, F_OK) != 0) return 0;
    return rt_cache_list_cubins(&e, dir, visit_cubin, &l) == FUSOR_OK ? 0 : tool_fail(t, &e);
}

int cache_find_key(tool *t, const char *dir, const cache_entry **out) {
    cache_entries all = {0};
    const cache_entry *found = NULL;
    if (t->args.n != 2) return tool_usage(t, "cache %s: expected one KEY (see fusor cache list)", t->args.at[0]);
    const char *key = t->args.at[1];
    int status = cache_read(t, dir, true, &all);
    if (status) return status;
    for (uint32_t i = 0; i < all.n; i++) {
        const cache_entry *e = &all.at[i];
        if (strncmp(e->key, key, strlen(key)) != 0 &&
            (strncmp(key, "fk_", 3) != 0 || strncmp(e->symbol, key, strlen(key)) != 0))
            continue;
        if (found)
            return tool_usage(t, "key '%s' is not unique: %.16s (%s) and %.16s (%s) start so", key, found->key,
                              found->symbol, e->key, e->symbol);
        found = e;
    }
    if (!found) return tool_usage(t, "no entry in %s has a key that starts with '%s'", dir, key);
    *out = found;
    return 0;
}

json_t *cache_entry_json(const cache_entry *e) {
    /* What a kernel's code is called: many programs' functions may share it. */
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s?}", "key", e->key,
                     "function", e->symbol, "symbol", e->symbol, "kind", e->kind, "shape", e->shape, "target", e->level,
                     "build_id", e->build_id, "bytes", (json_int_t)e->file_bytes, "code_bytes",
                     (json_int_t)e->code_bytes, "compile_ns", (json_int_t)e->compile_ns, "created",
                     (json_int_t)e->created_s, "used", (json_int_t)e->used_s, "hits", (json_int_t)e->hits, "this_build",
                     e->is_of_this_build, "problem", e->problem);
}

const char *cache_age(tool *t, int64_t since) {
    int64_t s = (int64_t)time(NULL) - since;
    if (s < 60) return "now";
    return s < 3600    ? fu_format(&t->arena, "%" PRId64 "m", s / 60)
           : s < 86400 ? fu_format(&t->arena, "%" PRId64 "h", s / 3600)
                       : fu_format(&t->arena, "%" PRId64 "d", s / 86400);
}
