/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* cache_api_test.c: fusor/cache.h from outside: counters that may be lost, why a kernel misses, bundles from files and
 * memory, entries of several levels. */
#include "fusor/fusor.h"
#include "rt/cache_entry.h"
#include "rt/cache_stats.h"
#include "rt/compiler.h"
#include "rt/cpuinfo.h"
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM(op) "func @f(%x: f32[N]) -> f32[N] { %a = mul(%x, 3.) %y = " op "(%a) return %y }"
static char dir[128];
static fu_error error;

static bool has_module(void) {
    const fusor_codegen_table *t;
    return rt_host_level() >= 0 && rt_module_get(&error, &t) == FUSOR_OK;
}

static void init(void) {
    strcpy(dir, "/tmp/fusor-cache-api-XXXXXX");
    cr_assert(mkdtemp(dir));
    unsetenv("FUSOR_CACHE");
    unsetenv("FUSOR_CACHE_PATH");
    unsetenv("FUSOR_TARGET");
}
static void fini(void) {
    char command[300];
    snprintf(command, sizeof command, "chmod -R u+w %s; rm -rf %s", dir, dir);
    cr_assert_eq(system(command), 0);
}
/* A test that is skipped does not come to its end. */
#define SKIP(reason)                                                                                                   \
    do {                                                                                                               \
        fini();                                                                                                        \
        cr_skip(reason);                                                                                               \
    } while (0)
TestSuite(cache_api, .init = init, .fini = fini, .timeout = 120);

static fusor_context *new_context(const char *where, uint32_t flags, const char *target) {
    fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
    o.cache_dir = where;
    o.flags = flags;
    o.target = target;
    fusor_context *ctx = fusor_context_new(&o);
    cr_assert(ctx);
    return ctx;
}

static fusor_status compile(fusor_context *ctx, const char *text) {
    fusor_executable *exe = NULL;
    fusor_status s = fusor_compile_text(ctx, text, NULL, &exe);
    float x[5] = {1, -2, 3, -4, 5}, y[5] = {0};
    if (s != FUSOR_OK) return s;
    fusor_buffer in = {.data = x, .dtype = FUSOR_F32, .rank = 1, .shape = {5}}, out = in;
    out.data = y;
    cr_assert_eq(fusor_executable_call(exe, 1, &in, 1, &out), FUSOR_OK, "%s", fusor_error_message(ctx));
    cr_assert_eq(y[0], strstr(text, "neg") ? -3 : 3);
    fusor_executable_free(exe);
    return FUSOR_OK;
}

static fusor_cache_stats totals(int64_t *since) {
    fusor_context *ctx = new_context(dir, 0, NULL);
    fusor_cache_stats s = {.size = sizeof s};
    cr_assert_eq(fusor_cache_get_totals(ctx, &s, since), FUSOR_OK, "%s", fusor_error_message(ctx));
    fusor_context_free(ctx);
    return s;
}

static void compile_in(const char *text) {
    fusor_context *ctx = new_context(dir, 0, NULL);
    cr_assert_eq(compile(ctx, text), FUSOR_OK, "%s", fusor_error_message(ctx));
    fusor_context_free(ctx);
}

static int64_t hits_seen;
static int sum_hits(void *user, const fusor_cache_entry *e) {
    (void)user;
    hits_seen += e->hits;
    return 1;
}

static void entry_path(char *path, size_t room) {
    char command[300];
    snprintf(command, sizeof command, "ls %s/*.fk", dir);
    FILE *p = popen(command, "r");
    cr_assert(p && fgets(path, (int)room, p));
    pclose(p);
    path[strcspn(path, "\n")] = 0;
}

Test(cache_api, counters_over_processes) {
    if (!has_module()) SKIP("no code generation module");
    int64_t since = -1;
    fusor_cache_stats s = totals(&since);
    cr_assert(s.misses == 0 && since == 0);
    compile_in(PROGRAM("relu"));
    compile_in(PROGRAM("relu"));
    compile_in(PROGRAM("relu"));
    s = totals(&since);
    cr_assert(s.misses == 1 && s.miss_new == 1 && s.compiles == 1 && s.disk_hits == 2 && s.written == 1);
    cr_assert(s.saved_ns > 0 && s.saved_ns < 2 * s.compile_ns && s.load_ns > 0);
    cr_assert(since > time(NULL) - 100 && since <= time(NULL));
    fusor_context *ctx = new_context(dir, 0, NULL);
    hits_seen = 0;
    cr_assert_eq(fusor_cache_list(ctx, sum_hits, NULL), FUSOR_OK);
    cr_assert_eq(hits_seen, 2);
    /* an older caller's struct */
    struct {
        fusor_cache_stats s;
        int64_t guard;
    } old = {.s = {.size = offsetof(fusor_cache_stats, saved_ns), .saved_ns = 77}};
    cr_assert_eq(fusor_cache_get_totals(ctx, &old.s, NULL), FUSOR_OK);
    cr_assert(old.s.saved_ns == 77 && old.s.disk_hits == 2);
    old.s.size = 8;
    cr_assert_eq(fusor_cache_get_stats(ctx, &old.s), FUSOR_ERROR_ARGUMENT);
    cr_assert(strstr(fusor_error_message(ctx), "sizeof(fusor_cache_stats), at least 88"));
    /* evicted: the next miss is one of an entry that was there */
    int64_t n = 0;
    cr_assert_eq(fusor_cache_prune(ctx, 0, 0, &n, NULL), FUSOR_OK);
    cr_assert_eq(n, 1);
    fusor_context_free(ctx);
    compile_in(PROGRAM("relu"));
    s = totals(NULL);
    cr_assert(s.misses == 2 && s.miss_new == 1 && s.miss_gone == 1, "%ld new, %ld gone", (long)s.miss_new,
              (long)s.miss_gone);
}

/* Each miss keeps its own reason, whatever else is missed before the counters are told. */
Test(cache_api, reasons_of_several_misses) {
    if (!has_module()) SKIP("no code generation module");
    char path[400];
    compile_in(PROGRAM("relu"));
    entry_path(path, sizeof path);
    cr_assert_eq(truncate(path, 100), 0);
    fusor_context *ctx = new_context(dir, 0, NULL);
    cr_assert_eq(compile(ctx, PROGRAM("neg")), FUSOR_OK);
    cr_assert_eq(compile(ctx, PROGRAM("relu")), FUSOR_OK);
    fusor_context_free(ctx);
    const fusor_cache_stats s = totals(NULL);
    cr_assert(s.misses == 3 && s.miss_new == 2 && s.miss_damaged == 1 && s.miss_gone == 0, "%ld new, %ld gone",
              (long)s.miss_new, (long)s.miss_gone);
}

/* An entry that cannot be opened now, since the process has no more descriptors, is not thrown away for that. */
Test(cache_api, descriptors_that_are_used_up) {
    if (!has_module()) SKIP("no code generation module");
    struct rlimit was, none;
    fusor_cache_stats s = {.size = sizeof s};
    int64_t n = 0, n_bad = 0;
    compile_in(PROGRAM("neg"));
    fusor_context *ctx = new_context(dir, 0, NULL);
    const int next = dup(0);
    cr_assert(next >= 0 && close(next) == 0 && getrlimit(RLIMIT_NOFILE, &was) == 0);
    none = was;
    none.rlim_cur = (rlim_t)next;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    const fusor_status compiled = compile(ctx, PROGRAM("neg"));
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
    cr_expect(compiled == FUSOR_OK || compiled == FUSOR_ERROR_MISS || compiled == FUSOR_ERROR_IO);
    fusor_context_free(ctx);
    ctx = new_context(dir, FUSOR_CACHE_ONLY, NULL);
    cr_assert_eq(compile(ctx, PROGRAM("neg")), FUSOR_OK, "%s", fusor_error_message(ctx));
    cr_assert_eq(fusor_cache_get_stats(ctx, &s), FUSOR_OK);
    cr_expect(s.disk_hits == 1 && s.compiles == 0);
    cr_assert_eq(fusor_cache_verify(ctx, &n, &n_bad), FUSOR_OK);
    cr_expect(n == 1 && n_bad == 0);
    fusor_context_free(ctx);
}

/* What the system does not let be read is told, and left; what lies behind it is looked at as well. */
Test(cache_api, entries_that_may_not_be_read) {
    if (!has_module()) SKIP("no code generation module");
    if (geteuid() == 0) SKIP("root may read anything");
    char path[400];
    int64_t n = 0, n_bad = 0;
    compile_in(PROGRAM("neg"));
    entry_path(path, sizeof path);
    cr_assert_eq(chmod(path, 0), 0);
    fusor_context *ctx = new_context(dir, 0, NULL);
    cr_expect_eq(fusor_cache_verify(ctx, &n, &n_bad), FUSOR_ERROR_IO);
    fusor_context_free(ctx);
    cr_assert_eq(chmod(path, 0600), 0); /* it is still there */
    ctx = new_context(dir, FUSOR_CACHE_ONLY, NULL);
    cr_expect_eq(compile(ctx, PROGRAM("neg")), FUSOR_OK, "%s", fusor_error_message(ctx));
    fusor_context_free(ctx);
}

/* The counters may vanish or be damaged at any time: they begin anew, and nothing else happens. */
Test(cache_api, damaged_counters) {
    if (!has_module()) SKIP("no code generation module");
    compile_in(PROGRAM("relu"));
    char path[256], command[600];
    snprintf(path, sizeof path, "%s/stats", dir);
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    unsigned char data[4096];
    cr_assert(st.st_size > 0 && st.st_size <= (off_t)sizeof data);
    int fd = open(path, O_RDONLY);
    cr_assert_eq(read(fd, data, sizeof data), st.st_size);
    close(fd);
    for (off_t i = 0; i < st.st_size; i += 7) {
        data[i] ^= 0x10;
        fd = open(path, O_WRONLY | O_TRUNC);
        cr_assert(fd >= 0 && write(fd, data, (size_t)st.st_size) == st.st_size);
        close(fd);
        data[i] ^= 0x10;
        fusor_cache_stats s = totals(NULL);
        cr_assert(s.misses == 0 && s.disk_hits == 0, "byte %ld is not checked", (long)i);
    }
    compile_in(PROGRAM("relu"));
    fusor_cache_stats s = totals(NULL);
    cr_assert(s.disk_hits == 1 && s.misses == 0);
    static const char *const kinds[] = {"rm -f %s; mkdir %s", "rmdir %s; mkfifo -m 600 %s",
                                        "rm -f %s; ln -s /dev/zero %s", "rm -f %s; touch %s; chmod 666 %s/stats"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        snprintf(command, sizeof command, kinds[i], path, path, dir);
        (void)!system(command);
        compile_in(PROGRAM("relu"));
        s = totals(NULL);
        cr_assert(s.misses == 0, "kind %zu", i);
    }
}

static fusor_cache_answer last;
static char last_text[5][256];
static int n_answers;
static int note(void *user, const fusor_cache_answer *a) {
    (void)user;
    last = *a;
    snprintf(last_text[0], sizeof last_text[0], "%s", a->reason);
    snprintf(last_text[1], sizeof last_text[1], "%s", a->field);
    snprintf(last_text[2], sizeof last_text[2], "%s", a->has);
    snprintf(last_text[3], sizeof last_text[3], "%s", a->where);
    snprintf(last_text[4], sizeof last_text[4], "%s", a->problem);
    n_answers++;
    return 1;
}

static void ask(fusor_context *ctx, const char *text) {
    n_answers = 0;
    cr_assert_eq(fusor_cache_why(ctx, text, NULL, note, NULL), FUSOR_OK, "%s", fusor_error_message(ctx));
    cr_assert_eq(n_answers, 1);
}

Test(cache_api, why) {
    if (!has_module()) SKIP("no code generation module");
    fusor_context *ctx = new_context(dir, 0, NULL);
    ask(ctx, PROGRAM("relu"));
    cr_assert(!last.is_hit);
    cr_assert_str_eq(last_text[0], "new");
    cr_assert_str_eq(last_text[1], "");
    cr_assert_eq(compile(ctx, PROGRAM("relu")), FUSOR_OK);
    ask(ctx, PROGRAM("relu"));
    cr_assert(last.is_hit && strcmp(last_text[3], "memory") == 0);
    ask(ctx, PROGRAM("neg"));
    cr_assert(!last.is_hit);
    cr_assert_str_eq(last_text[1], "program");
    cr_assert(strstr(last_text[2], "relu.f32"), "%s", last_text[2]);
    fusor_context_free(ctx);
    ctx = new_context(dir, 0, NULL);
    ask(ctx, PROGRAM("relu"));
    cr_assert(last.is_hit && strcmp(last_text[3], dir) == 0, "%s", last_text[3]);
    if (rt_host_level() > IR_LEVEL_V2) {
        fusor_context *low = new_context(dir, 0, "x86-64-v2");
        ask(low, PROGRAM("relu"));
        cr_assert(!last.is_hit);
        cr_assert_str_eq(last_text[1], "level");
        fusor_context_free(low);
    }
    char path[512];
    entry_path(path, sizeof path);
    cr_assert_eq(truncate(path, 300), 0);
    ask(ctx, PROGRAM("relu"));
    cr_assert(!last.is_hit);
    cr_assert_str_eq(last_text[0], "damaged");
    cr_assert_str_eq(last_text[4], "shorter than a header");
    cr_assert_eq(access(path, F_OK), 0, "asking changes nothing");
    int64_t n = 0, bad = 0;
    cr_assert_eq(fusor_cache_verify(ctx, &n, &bad), FUSOR_OK);
    cr_assert(n == 1 && bad == 1 && access(path, F_OK) != 0);
    ask(ctx, PROGRAM("relu"));
    cr_assert_str_eq(last_text[0], "gone");
    cr_assert_eq(fusor_cache_why(ctx, "func", NULL, note, NULL), FUSOR_ERROR_SYNTAX);
    cr_assert_eq(fusor_cache_why(ctx, NULL, NULL, note, NULL), FUSOR_ERROR_ARGUMENT);
    fusor_context_free(ctx);
}

Test(cache_api, bundles_from_file_and_memory) {
    if (!has_module()) SKIP("no code generation module");
    char bundle[256];
    int64_t n = 0;
    snprintf(bundle, sizeof bundle, "%s/app.fbundle", dir);
    fusor_context *ctx = new_context(dir, 0, NULL);
    cr_assert_eq(compile(ctx, PROGRAM("relu")), FUSOR_OK);
    cr_assert_eq(compile(ctx, PROGRAM("neg")), FUSOR_OK);
    cr_assert_eq(fusor_cache_export(ctx, bundle, &n), FUSOR_OK, "%s", fusor_error_message(ctx));
    cr_assert_eq(n, 2);
    fusor_context_free(ctx);
    struct stat st;
    cr_assert_eq(stat(bundle, &st), 0);
    char *data = malloc((size_t)st.st_size + 1);
    int fd = open(bundle, O_RDONLY);
    cr_assert_eq(read(fd, data + 1, (size_t)st.st_size), st.st_size);
    close(fd);
    ctx = new_context("", FUSOR_CACHE_ONLY, NULL);
    cr_assert_eq(compile(ctx, PROGRAM("neg")), FUSOR_ERROR_MISS);
    cr_assert_eq(fusor_cache_add_bundle_memory(ctx, data + 1, (size_t)st.st_size), FUSOR_OK); /* any alignment */
    cr_assert_eq(compile(ctx, PROGRAM("neg")), FUSOR_OK, "%s", fusor_error_message(ctx));
    cr_assert_eq(fusor_cache_add_bundle_memory(ctx, "nothing", 7), FUSOR_ERROR_IO);
    cr_assert_eq(fusor_cache_add_bundle_memory(ctx, NULL, 7), FUSOR_ERROR_ARGUMENT);
    fusor_context_free(ctx);
    /* cut while it is in use */
    ctx = new_context("", FUSOR_CACHE_ONLY, NULL);
    cr_assert_eq(fusor_cache_add_bundle(ctx, bundle), FUSOR_OK);
    cr_assert_eq(truncate(bundle, 200), 0);
    cr_assert_eq(compile(ctx, PROGRAM("neg")), FUSOR_ERROR_MISS);
    fusor_context_free(ctx);
    for (off_t cut = 0; cut < st.st_size; cut += 33) {
        ctx = new_context("", FUSOR_CACHE_ONLY, NULL);
        (void)!fusor_cache_add_bundle_memory(ctx, data + 1, (size_t)cut);
        fusor_status s = compile(ctx, PROGRAM("neg"));
        cr_assert(s == FUSOR_OK || s == FUSOR_ERROR_MISS);
        fusor_context_free(ctx);
    }
    free(data);
}

/* A bundle of a lower level serves before anything is compiled; not where somebody named the level. */
Test(cache_api, lower_levels) {
    if (!has_module() || rt_host_level() <= IR_LEVEL_V2) SKIP("no module, or no lower level");
    char bundle[256];
    snprintf(bundle, sizeof bundle, "%s/app.fbundle", dir);
    fusor_context *ctx = new_context(dir, 0, "x86-64-v2");
    cr_assert_eq(compile(ctx, PROGRAM("relu")), FUSOR_OK);
    cr_assert_eq(fusor_cache_export(ctx, bundle, NULL), FUSOR_OK);
    fusor_context_free(ctx);
    ctx = new_context("", FUSOR_CACHE_ONLY, NULL);
    cr_assert_eq(compile(ctx, PROGRAM("relu")), FUSOR_ERROR_MISS);
    cr_assert_eq(fusor_cache_add_bundle(ctx, bundle), FUSOR_OK);
    cr_assert_eq(compile(ctx, PROGRAM("relu")), FUSOR_OK, "%s", fusor_error_message(ctx));
    fusor_context_free(ctx);
    ctx = new_context("", 0, NULL);
    fusor_cache_stats s = {.size = sizeof s};
    cr_assert_eq(fusor_cache_add_bundle(ctx, bundle), FUSOR_OK);
    cr_assert_eq(compile(ctx, PROGRAM("relu")), FUSOR_OK);
    cr_assert_eq(compile(ctx, PROGRAM("neg")), FUSOR_OK);
    cr_assert_eq(fusor_cache_get_stats(ctx, &s), FUSOR_OK);
    cr_assert(s.disk_hits == 1 && s.compiles == 1);
    fusor_context_free(ctx);
    ctx = new_context("", FUSOR_CACHE_ONLY, ir_levels[rt_host_level()].name);
    cr_assert_eq(fusor_cache_add_bundle(ctx, bundle), FUSOR_OK);
    cr_assert_eq(compile(ctx, PROGRAM("relu")), FUSOR_ERROR_MISS);
    fusor_context_free(ctx);
}

/* A bad entry there costs a warning and the misses, not the level; a report sees what a compile meets. */
static int n_lower_hits, n_answers;
static int count_lower(void *user, const fusor_cache_answer *a) {
    (void)user;
    n_answers++;
    n_lower_hits += a->is_hit && strstr(a->symbol, "__v2_") != NULL;
    return 1;
}
static int n_told;
static void count_told(void *user, int level, const char *line) {
    (void)user, (void)level;
    n_told += strstr(line, "checksum does not match; it is ignored") != NULL;
}

Test(cache_api, damaged_lower_levels) {
    if (!has_module() || rt_host_level() <= IR_LEVEL_V2) SKIP("no module, or no lower level");
    char bundle[256];
    static char bytes[1 << 16];
    snprintf(bundle, sizeof bundle, "%s/app.fbundle", dir);
    fusor_context *ctx = new_context(dir, 0, "x86-64-v2");
    cr_assert_eq(compile(ctx, PROGRAM("relu")), FUSOR_OK);
    cr_assert_eq(fusor_cache_export(ctx, bundle, NULL), FUSOR_OK);
    fusor_context_free(ctx);
    for (int is_bad = 0; is_bad < 2; is_bad++) {
        fusor_context_options o = FUSOR_CONTEXT_OPTIONS_INIT;
        o.cache_dir = "";
        o.log = count_told;
        if (is_bad) {
            FILE *f = fopen(bundle, "r+");
            const size_t n = fread(bytes, 1, sizeof bytes, f);
            char *entry = memmem(bytes, n, "FUSORK1\n", 8);
            cr_assert(n < sizeof bytes && entry);
            fseek(f, entry - bytes + 700, SEEK_SET);
            fputc(entry[700] ^ 1, f);
            fclose(f);
        }
        ctx = fusor_context_new(&o);
        cr_assert_eq(fusor_cache_add_bundle(ctx, bundle), FUSOR_OK);
        n_lower_hits = n_answers = n_told = 0;
        cr_assert_eq(fusor_cache_why(ctx, PROGRAM("relu"), NULL, count_lower, NULL), FUSOR_OK);
        cr_assert(n_answers == 1 && n_lower_hits == !is_bad && n_told == is_bad, "%d %d %d", n_answers, n_lower_hits,
                  n_told);
        cr_assert_eq(compile(ctx, PROGRAM("relu")), FUSOR_OK);
        cr_assert_eq(n_told, 2 * is_bad);
        fusor_cache_stats s = {.size = sizeof s};
        cr_assert_eq(fusor_cache_get_stats(ctx, &s), FUSOR_OK);
        cr_assert(s.disk_hits == !is_bad && s.compiles == is_bad);
        n_lower_hits = 0; /* what is in memory now is of the level that ran */
        cr_assert_eq(fusor_cache_why(ctx, PROGRAM("relu"), NULL, count_lower, NULL), FUSOR_OK);
        cr_assert_eq(n_lower_hits, !is_bad);
        fusor_context_free(ctx);
    }
}

/* A machine with features that came later is served by a bundle for one without. */
Test(cache_api, features_that_came_later) {
    static const char text[] =
        "func @f(%x: bf16[N, 40], %w: bf16[40, 50]) -> f32[N, 50] { %y = matmul(%x, %w, dtype=f32) return %y }";
    ir_target host = {(ir_level)rt_host_level(), 0};
    if (has_module() && host.level == IR_LEVEL_V4)
        host.features = rt_host_extras(host.level) & (IR_FEATURE_VNNI | IR_FEATURE_BF16);
    if (!(host.features & IR_FEATURE_BF16)) SKIP("no module, or no bf16");
    char bundle[256], name[IR_TARGET_MAX];
    snprintf(bundle, sizeof bundle, "%s/app.fbundle", dir);
    fusor_executable *exe = NULL;
    fusor_context *ctx = new_context(dir, 0, ir_target_name(host, name));
    cr_assert_eq(fusor_compile_text(ctx, text, NULL, &exe), FUSOR_OK, "%s", fusor_error_message(ctx));
    fusor_executable_free(exe);
    cr_assert_eq(fusor_cache_export(ctx, bundle, NULL), FUSOR_OK);
    fusor_context_free(ctx);
    rt_host_assume("amx-tile,amx-int8,amx-bf16,amx-fp16");
    for (int i = 0; i < 2; i++) { /* named: no */
        host.features = rt_host_extras(host.level);
        cr_assert(host.features & IR_FEATURE_AMXBF16);
        ctx = new_context("", FUSOR_CACHE_ONLY, i ? ir_target_name(host, name) : NULL);
        cr_assert_eq(fusor_compile_text(ctx, text, NULL, &exe), FUSOR_ERROR_MISS);
        cr_assert_eq(fusor_cache_add_bundle(ctx, bundle), FUSOR_OK);
        cr_assert_eq(fusor_compile_text(ctx, text, NULL, &exe), i ? FUSOR_ERROR_MISS : FUSOR_OK);
        if (!i) fusor_executable_free(exe);
        fusor_context_free(ctx);
    }
}

/* Of a clock that was ahead: an entry used in the future would never be pruned. */
Test(cache_api, no_use_is_in_the_future) {
    char why[256];
    rt_dir d;
    rt_stats_delta *delta = calloc(1, sizeof *delta);
    cr_assert(delta && !rt_dir_open(dir, true, &d, why, sizeof why));
    delta->n_uses = 1;
    delta->use[0].last_s = time(NULL) + 1000000;
    cr_assert(rt_stats_add(&d, delta));
    for (int i = 0; i < 2; i++) {
        rt_stats_content s;
        rt_stats_read(&d, &s);
        cr_assert_eq(s.n, 1);
        cr_expect_leq(s.use[0].last_s, time(NULL));
        rt_stats_free(&s);
        *delta = (rt_stats_delta){0};
        cr_assert(rt_stats_add(&d, delta)); /* and the file is put right */
    }
    rt_dir_close(&d);
    free(delta);
}
