/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_why.c: why a kernel is in no tier: what is wrong with its entry, or the first key field in which the nearest
 * entry differs. Looks at every entry there is, so it serves reports and errors only. */
#include "base/small.h"
#include "rt/cache_internal.h"
#include "base/arena.h"
#include "rt/cpuinfo.h"
#include <errno.h>
#include <stdio.h>

enum { NEAREST_LIMIT = 4096 };

typedef struct nearest {
    const cache_wish *w;
    const char *build_id;
    int best, examined; /* best: lines in common */
    char key[2 * IR_KEY_BYTES + 1], field[16], wanted[160], has[160];
} nearest;

static size_t line_length(const char *text, const char *end) {
    const char *newline = memchr(text, '\n', (size_t)(end - text));
    return (size_t)((newline ? newline : end) - text);
}

/* The field that a line is of. */
static size_t field_length(const char *line, size_t n) {
    const char *space = memchr(line, ' ', n);
    return n && line[0] == '%' ? 1 : (size_t)((space ? space : line + n) - line);
}

/* Is a line from `text` on of the same field as this one? */
static bool has_field(const char *text, const char *end, const char *line, size_t length) {
    for (const char *p = text; p < end; p += line_length(p, end) + 1)
        if (field_length(p, line_length(p, end)) == length && memcmp(p, line, length) == 0) return true;
    return false;
}

/* Lines that both texts end with. */
static int common_tail(const char *a, size_t n, const char *b, size_t m) {
    int lines = 0;
    while (n && m && a[n - 1] == b[m - 1]) {
        n--, m--;
        lines += a[n] == '\n';
    }
    return lines;
}

static void compare(nearest *n, const uint8_t *key, const char *build_id, const char *text, size_t bytes) {
    const char *a = n->w->description, *a_end = a + n->w->bytes, *b = text, *b_end = text + bytes;
    int same = 0;
    size_t la, lb;
    for (;; same++) {
        la = line_length(a, a_end);
        lb = line_length(b, b_end);
        if (la != lb || memcmp(a, b, la) != 0 || a + la == a_end || b + lb == b_end) break;
        a += la + 1;
        b += lb + 1;
    }
    bool is_equal = n->w->bytes == bytes && memcmp(n->w->description, text, bytes) == 0;
    same = is_equal ? INT32_MAX : same + common_tail(a, (size_t)(a_end - a), b, (size_t)(b_end - b));
    n->examined++;
    if (same <= n->best) return;
    n->best = same;
    rt_key_text(key, n->key);
    if (is_equal) {
        strcpy(n->field, "build");
        snprintf(n->wanted, sizeof n->wanted, "build %s", n->build_id);
        snprintf(n->has, sizeof n->has, "build %s", build_id);
    } else { /* lines of two fields: one of them is not in the other text */
        const size_t fa = field_length(a, la), fb = field_length(b, lb);
        const bool is_same = fa == fb && memcmp(a, b, fa) == 0,
                   is_more = !is_same && (!la || (lb && has_field(b, b_end, a, fa) && !has_field(a, a_end, b, fb)));
        const char *line = is_more ? b : a;
        const size_t length = is_more ? fb : fa;
        snprintf(n->field, sizeof n->field, "%.*s", line[0] == '%' ? 7 : (int)length,
                 line[0] == '%' ? "program" : line);
        if (is_more) snprintf(n->wanted, sizeof n->wanted, "no such %s", n->field);
        else snprintf(n->wanted, sizeof n->wanted, "%.*s", (int)(la < 150 ? la : 150), a);
        if (is_same || is_more) snprintf(n->has, sizeof n->has, "%.*s", (int)(lb < 150 ? lb : 150), b);
        else snprintf(n->has, sizeof n->has, "no such %s", n->field);
    }
}

static void compare_entry(nearest *n, const void *data, size_t bytes) {
    rt_entry entry;
    if (!rt_entry_decode(data, bytes, &entry))
        compare(n, entry.head->key, entry.head->build_id, entry.description, (size_t)entry.head->description_bytes);
}

static void compare_dir(nearest *n, const rt_dir *d) {
    char **names;
    size_t count;
    if (rt_dir_names(d, false, &names, &count)) return;
    for (size_t i = 0; i < count && n->examined < NEAREST_LIMIT; i++) {
        void *data;
        size_t bytes;
        if (rt_dir_read(d, names[i], RT_ENTRY_MAX_BYTES, &data, &bytes, NULL)) continue;
        compare_entry(n, data, bytes);
        fu_free(data);
    }
    fu_free(names);
}

static void find_nearest(rt_cache *c, nearest *n) {
    pthread_mutex_lock(&c->lock);
    for (int b = 0; b < RT_CACHE_BUCKETS; b++)
        for (cache_item *i = c->bucket[b]; i; i = i->next)
            compare(n, i->kernel->key, c->build_id, i->kernel->description, i->kernel->description_bytes);
    pthread_mutex_unlock(&c->lock);
    int n_tiers = atomic_load(&c->n_tiers);
    for (int t = 0; t < n_tiers; t++) {
        if (c->tiers[t].is_dir) compare_dir(n, &c->tiers[t].dir);
        for (uint64_t i = 0; i < c->tiers[t].bundle.n && n->examined < NEAREST_LIMIT; i++) {
            size_t bytes;
            void *data = rt_bundle_at(&c->tiers[t].bundle, i, &bytes);
            if (data) compare_entry(n, data, bytes);
            fu_free(data);
        }
    }
    if (c->has_dir) compare_dir(n, &c->dir);
}

fusor_status cache_miss(rt_cache *c, fu_error *e, cache_wish *w) {
    nearest n = {.w = w, .build_id = c->build_id, .best = -1};
    find_nearest(c, &n);
    if (n.best < 0)
        return FU_FAIL(e, FUSOR_ERROR_MISS,
                       "kernel %s is in no cache, and compiling is switched off; no intact entry is there", w->symbol);
    return FU_FAIL(
        e, FUSOR_ERROR_MISS,
        "kernel %s is in no cache, and compiling is switched off; the nearest entry (%.8s) differs first in: "
        "'%s', where it has '%s'",
        w->symbol, n.key, n.wanted, n.has);
}

/* ---- the same as a report, without a request ---- */
static bool is_good(const rt_cache *c, cache_wish *w, const void *data, size_t bytes, const char *where,
                    rt_cache_answer *out) {
    rt_entry entry;
    const char *problem = rt_entry_decode(data, bytes, &entry);
    snprintf(out->where, sizeof out->where, "%s", where);
    out->reason = RT_MISS_DAMAGED;
    if (!problem) {
        problem = cache_mismatch(c, w, &entry);
        out->reason = w->reason;
    }
    if (!problem && !rt_host_has(entry.head->features, NULL, NULL) && w->target.level <= (ir_level)rt_host_level()) {
        problem = "it needs features that this machine lacks";
        out->reason = RT_MISS_FEATURES;
    }
    if (!problem && w->wants_lines && !entry.head->lines_bytes && !c->only) {
        problem = "it has no line table";
        out->reason = RT_MISS_NO_LINES;
    }
    snprintf(out->problem, sizeof out->problem, "%s", problem ? problem : "");
    return !problem;
}

static bool look_in_dir(const rt_cache *c, cache_wish *w, const rt_dir *d, rt_cache_answer *out) {
    void *data;
    size_t bytes;
    int failed = rt_dir_read(d, w->file, RT_ENTRY_MAX_BYTES, &data, &bytes, NULL);
    if (failed == ENOENT) return false;
    if (failed) {
        snprintf(out->where, sizeof out->where, "%s", d->path);
        out->reason = RT_MISS_UNREADABLE;
        snprintf(out->problem, sizeof out->problem, "%s", rt_dir_reason(failed));
        return false;
    }
    bool good = is_good(c, w, data, bytes, d->path, out);
    fu_free(data);
    return good;
}

static bool look(rt_cache *c, cache_wish *w, rt_cache_answer *out) {
    pthread_mutex_lock(&c->lock);
    out->is_hit = cache_find_in_memory(c, w) != NULL;
    pthread_mutex_unlock(&c->lock);
    out->source = out->is_hit ? RT_CACHE_MEMORY : RT_CACHE_DISK;
    if (out->is_hit) return true;
    if (c->mode == RT_CACHE_REFRESH) {
        out->reason = RT_MISS_REFRESH;
        return false;
    }
    int n_tiers = atomic_load_explicit(&c->n_tiers, memory_order_acquire);
    if (!n_tiers && !c->has_dir) out->reason = RT_MISS_OFF;
    for (int i = 0; i < n_tiers; i++) {
        const cache_tier *t = &c->tiers[i];
        if (t->is_dir) {
            if (look_in_dir(c, w, &t->dir, out)) return true;
            continue;
        }
        size_t bytes;
        void *data = rt_bundle_find(&t->bundle, w->key, &bytes);
        bool good = data && is_good(c, w, data, bytes, t->path, out);
        fu_free(data);
        if (good) return true;
    }
    if (c->has_dir && look_in_dir(c, w, &c->dir, out)) return true;
    if (c->has_dir && out->reason == RT_MISS_NEW) {
        rt_stats_content s;
        rt_stats_read(&c->dir, &s);
        if (rt_stats_find(&s, w->key)) out->reason = RT_MISS_GONE;
        rt_stats_free(&s);
    }
    return false;
}

fusor_status rt_cache_why(rt_cache *c, fu_error *e, const ir_kernel *k, rt_cache_answer *out) {
    FU_CALL_ARENA(arena, return FU_FAIL(e, FUSOR_ERROR_MEMORY, "no memory for the description of a kernel"));
    uint8_t key[IR_KEY_BYTES];
    cache_wish w;
    memset(out, 0, sizeof *out);
    cache_wish_make(c, &arena, k, key, out->symbol, &w);
    rt_key_text(key, out->key);
    out->is_hit = look(c, &w, out);
    if (!out->is_hit && out->reason != RT_MISS_REFRESH) {
        nearest n = {.w = &w, .build_id = c->build_id, .best = -1};
        find_nearest(c, &n);
        if (n.best >= 0) {
            memcpy(out->nearest, n.key, sizeof out->nearest);
            memcpy(out->field, n.field, sizeof out->field);
            memcpy(out->wanted, n.wanted, sizeof out->wanted);
            memcpy(out->has, n.has, sizeof out->has);
        }
    }
    fu_arena_free(&arena);
    return FUSOR_OK;
}
