/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* env_test.c: environment variables and what depends on them directly: events, warnings, dumps. */
#include "base/env.h"
#include "base/file.h"
#include "base/log.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Test(env, table) {
    for (int i = 0; i < FU_ENV_COUNT; i++) {
        const fu_env_info *row = &fu_env_table[i];
        cr_expect(!strncmp(row->name, "FUSOR_", 6), "%s", row->name);
        const bool has_words = !strcmp(row->type, "WORD") || !strcmp(row->type, "LIST");
        cr_expect(has_words || !strcmp(row->type, "STRING") || !strcmp(row->type, "INT") || !strcmp(row->type, "BOOL"),
                  "%s", row->name);
        cr_expect_eq(has_words, *row->words && strcmp(row->type, "INT") != 0, "%s", row->name);
        cr_expect(*row->text, "%s has no text", row->name);
        unsetenv(row->name);
        cr_expect_not(fu_env_is_set((fu_env)i));
        cr_expect_str_eq(fu_env_string((fu_env)i), row->default_value);
    }
}

Test(env, values) {
    setenv("FUSOR_THREADS", "12", 1);
    cr_expect_eq(fu_env_int(FU_FUSOR_THREADS), 12);
    setenv("FUSOR_THREADS", "99999", 1);
    cr_expect_eq(fu_env_int(FU_FUSOR_THREADS), 0, "a value out of its bounds is the default");
    setenv("FUSOR_THREADS", "12", 1);
    cr_expect(fu_env_is_set(FU_FUSOR_THREADS));
    static const char *const bad[] = {"", "x", "1x", "99999999999999999999"};
    for (int i = 0; i < 4; i++) {
        setenv("FUSOR_VERIFY", bad[i], 1);
        cr_expect_eq(fu_env_int(FU_FUSOR_VERIFY), 1, "\"%s\" is the default", bad[i]);
    }
    static const char *const yes[] = {"1", "on", "YES", "true"}, *const no[] = {"0", "off", "no", "", "maybe"};
    for (int i = 0; i < 4; i++) {
        setenv("FUSOR_CHECK", yes[i], 1);
        cr_expect(fu_env_bool(FU_FUSOR_CHECK), "%s", yes[i]);
    }
    for (int i = 0; i < 5; i++) {
        setenv("FUSOR_CHECK", no[i], 1);
        cr_expect_not(fu_env_bool(FU_FUSOR_CHECK), "%s", no[i]);
    }
}

Test(env, what_was_expected) {
    static const char debug[] =
        "some of: all ir plan key llvm asm pass=expand pass=fold pass=simplify pass=cse pass=dce";
    static const struct {
        fu_env v;
        const char *value, *expected;
    } cases[] = {{FU_FUSOR_THREADS, "4", NULL},
                 {FU_FUSOR_THREADS, "", NULL},
                 {FU_FUSOR_THREADS, "four", "a number from 0 to 1024"},
                 {FU_FUSOR_THREADS, "1,2", "a number from 0 to 1024"},
                 {FU_FUSOR_THREADS, "-3", "a number from 0 to 1024"},
                 {FU_FUSOR_THREADS, "1025", "a number from 0 to 1024"},
                 {FU_FUSOR_THREADS, "1024", NULL},
                 {FU_FUSOR_VERIFY, "much", "a number"},
                 {FU_FUSOR_CHECK, "yes", NULL},
                 {FU_FUSOR_CHECK, "maybe", "0 or 1"},
                 {FU_FUSOR_PERF, "jitdump", NULL},
                 {FU_FUSOR_PERF, "map,jitdump", "one of: off map jitdump"},
                 {FU_FUSOR_VERBOSE, "run,,cache,", NULL},
                 {FU_FUSOR_VERBOSE, "run,cash", "some of: all error compile cache run dispatch"},
                 {FU_FUSOR_DEBUG, "pass=cse,llvm", NULL},
                 {FU_FUSOR_DEBUG, "pass=", debug},
                 {FU_FUSOR_DEBUG, "ir,pass=nosuch", debug},
                 {FU_FUSOR_CODEGEN, "anything, at all", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[120];
        setenv(fu_env_table[cases[i].v].name, cases[i].value, 1);
        const char *expected = fu_env_expected(cases[i].v, text, sizeof text);
        cr_expect_eq(expected == NULL, cases[i].expected == NULL, "case %zu", i);
        if (expected && cases[i].expected) cr_expect_str_eq(expected, cases[i].expected, "case %zu", i);
    }
}

Test(env, lists) {
    setenv("FUSOR_DEBUG", "ir,pass=fuse,llvm", 1);
    cr_expect(fu_env_has(FU_FUSOR_DEBUG, "ir"));
    cr_expect(fu_env_has(FU_FUSOR_DEBUG, "pass=fuse"));
    cr_expect(fu_env_has(FU_FUSOR_DEBUG, "llvm"));
    cr_expect_not(fu_env_has(FU_FUSOR_DEBUG, "llv"));
    cr_expect_not(fu_env_has(FU_FUSOR_DEBUG, "asm"));
    cr_expect_not(fu_env_has(FU_FUSOR_DEBUG, ""));
    setenv("FUSOR_DEBUG", "all", 1);
    cr_expect(fu_env_has(FU_FUSOR_DEBUG, "asm"));
    setenv("FUSOR_DEBUG", "", 1);
    cr_expect_not(fu_env_has(FU_FUSOR_DEBUG, "ir"));
}

static char dir[256];
static void make_dir(void) {
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/fusor-env-XXXXXX", tmp ? tmp : "/tmp");
    cr_assert_not_null(mkdtemp(dir));
}
static const char *in_dir(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}
static char *contents(const char *name) {
    void *data = NULL;
    size_t n;
    return fu_file_read(in_dir(name), 1 << 20, &data, &n) ? NULL : data;
}

Test(log, events_are_csv_lines, .init = make_dir) {
    unsetenv("FUSOR_VERBOSE");
    setenv("FUSOR_LOG_FILE", in_dir("log"), 1);
    fu_log log = {0};
    fu_log_event(&log, "cache", "%s", "not asked for");
    fu_log_warn(&log, "not asked for");
    cr_assert_null(contents("log"), "nothing unasked");
    setenv("FUSOR_VERBOSE", "cache,error", 1);
    fu_log_event(&log, "cache", "hit,%d", 3);
    fu_log_event(&log, "run", "other kind");
    fu_log_warn(NULL, "disk %s", "full");
    char *text = contents("log");
    cr_assert_str_eq(text, "# fusor,1: marker,version,kind,fields\nfusor,1,cache,hit,3\nfusor,1,error,disk full\n");
    fu_free(text);
}

static char seen[100];
static void sink(void *user, int level, const char *line) {
    snprintf(seen, sizeof seen, "%s %d %s", (char *)user, level, line);
}

Test(log, warnings_go_to_the_sink) {
    char user[] = "me";
    fu_log log = {.sink = sink, .user = user};
    fu_log_warn(&log, "n = %d", 5);
    cr_assert_str_eq(seen, "me 1 n = 5");
}

Test(log, dumps_go_to_the_directory, .init = make_dir) {
    setenv("FUSOR_DUMP_DIR", dir, 1);
    setenv("FUSOR_DEBUG", "asm", 1);
    cr_assert(fu_dump_on("asm"));
    cr_assert_not(fu_dump_on("ir"));
    fu_dump("asm", "fk_map", "ret\n");
    char *text = contents("fk_map.asm");
    cr_assert_str_eq(text, "ret\n");
    fu_free(text);
    fu_dump("asm", "../escape", "x");
    text = contents("_._escape.asm");
    cr_assert_str_eq(text, "x");
    fu_free(text);
}

Test(log, clock_advances) {
    int64_t a = fu_now_ns();
    usleep(2000);
    cr_assert_geq(fu_now_ns() - a, 1000000);
}
